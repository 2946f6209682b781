//! iSCSI's types for the runtime of its connections, and what of them all sessions share.

use std::sync::Arc;

use weir_front::{Groups, Protocol};
use weir_iscsi::names::Name;
use weir_iscsi::pdu::{Isid, Tsih};

use crate::config::IscsiConfig;
use crate::registry::{Message, Registry};
use crate::served::{Lun, Snapshot};

/// iSCSI.
pub(crate) struct IscsiProtocol;

/// What all reactors share.
pub(crate) struct IscsiShared {
    pub(crate) config: IscsiConfig,
    pub(crate) registry: Arc<Registry>,
    pub(crate) groups: Groups<Name>,
}

/// What others are told of a connection.
#[derive(Clone, Default)]
pub(crate) struct About {
    /// Its session; none before the login has ended.
    pub(crate) session: Option<Arc<SessionInfo>>,
}

/// What a connection is told of its listener: nothing.
#[derive(Clone)]
pub(crate) struct ListenerPort;

impl Protocol for IscsiProtocol {
    type Message = Message;
    type Group = Name;
    type Export = Lun;
    type Snapshot = Snapshot;
    type Shared = IscsiShared;
    type Local = ();
    type Port = ListenerPort;
    type About = About;

    fn exports(snapshot: &Snapshot) -> impl Iterator<Item = (&Name, &[Lun])> {
        let targets = snapshot.targets.iter();
        targets.map(|target| (&target.name, &target.luns[..]))
    }

    fn look_again(shared: &IscsiShared) {
        shared.registry.retry_waiting();
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// The initiator.
    pub initiator: Name,
    /// What the initiator calls itself for people (InitiatorAlias).
    pub alias: Option<String>,
    /// The initiator's part of the session's identity.
    pub isid: Isid,
    /// The target. None: a discovery session.
    pub target: Option<Name>,
    /// The number that the session was given; 0 of a discovery session.
    pub tsih: Tsih,
    /// Under which name the initiator proved itself (CHAP).
    pub user: Option<String>,
    /// Whether headers have digests.
    pub header_digest: bool,
    /// Whether data has digests.
    pub data_digest: bool,
}
