//! NFS's types for the runtime of its connections, and what of them all connections share.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use weir_front::{Groups, Protocol};

use crate::config::NfsConfig;
use crate::exports::Exports;
use crate::handle::HandleKey;
use crate::replies::Replies;
use crate::served::Snapshot;
use crate::state::State;
use crate::volumes::VolumeFile;

/// NFS.
pub(crate) struct NfsProtocol;

/// Parts that all reactors share.
pub(crate) struct NfsShared {
    pub(crate) config: NfsConfig,
    pub(crate) key: HandleKey,
    /// Names this server for clients: the same behind all its addresses.
    pub(crate) name: Vec<u8>,
    pub(crate) state: State,
    pub(crate) replies: Replies,
    /// Counts of what clients do with exports, by their paths.
    pub(crate) groups: Groups<Arc<str>>,
    /// Spreads connections over reactors.
    pub(crate) next_reactor: AtomicUsize,
}

/// A client, as a connection of it shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its number.
    pub id: u64,
    /// Name that it gives itself (co_ownerid).
    pub name: String,
    /// Its implementation, as it says.
    pub implementation: String,
    /// The address from which it introduced itself last.
    pub address: IpAddr,
    /// Its sessions.
    pub sessions: u32,
    /// Its opens and owners of locks.
    pub states: u32,
}

/// Description of a connection, for others.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    /// The client whose session it was bound to last.
    pub(crate) client: Option<u64>,
}

/// A connection has replies, or requests of its calls, that wait.
pub(crate) struct Waiting;

impl Protocol for NfsProtocol {
    type Message = Waiting;
    type Group = Arc<str>;
    type Export = VolumeFile;
    type Snapshot = Snapshot;
    type Shared = NfsShared;
    type Local = Option<Rc<Exports>>;
    type Port = ();
    type About = About;

    fn exports(snapshot: &Snapshot) -> impl Iterator<Item = (&Arc<str>, &[VolumeFile])> {
        let exports = snapshot.exports();
        exports.map(|export| (&export.path, export.source.volumes()))
    }
}
