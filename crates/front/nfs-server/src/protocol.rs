//! NFS's types for the runtime of its connections, and what of them all connections share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use weir_block::Volume;
use weir_front::{AtVolume, Protocol, Slot};

use crate::config::NfsConfig;
use crate::handle::HandleKey;
use crate::replies::Replies;
use crate::served::Snapshot;
use crate::state::State;

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

/// A connection has replies that wait.
pub(crate) struct Replied;

/// A volume that is served as a file. There is none yet.
#[derive(Clone)]
pub(crate) enum VolumeFile {}

impl weir_front::Export for VolumeFile {
    fn number(&self) -> u32 {
        match *self {}
    }

    fn volume(&self) -> &Arc<dyn Volume> {
        match *self {}
    }
}

/// A slot for a request of a volume. There is none yet.
pub(crate) enum VolumeSlot {}

impl Slot for VolumeSlot {
    type Export = VolumeFile;

    fn at_volume(&self) -> &AtVolume<VolumeFile> {
        match *self {}
    }

    fn at_volume_mut(&mut self) -> &mut AtVolume<VolumeFile> {
        match *self {}
    }
}

impl Protocol for NfsProtocol {
    type Message = Replied;
    type Group = u32;
    type Export = VolumeFile;
    type Snapshot = Snapshot;
    type Shared = NfsShared;
    type Local = ();
    type Port = ();
    type About = About;

    fn exports(_: &Snapshot) -> impl Iterator<Item = (&u32, &[VolumeFile])> {
        std::iter::empty()
    }
}
