//! What a protocol is to the runtime of its connections.

use std::fmt::Debug;
use std::hash::Hash;

use crate::volumes::Export;

/// The types of a protocol, and what of it concerns no single connection.
pub trait Protocol: Sized + 'static {
    /// Messages between connections.
    type Message: Send + 'static;
    /// Owner of numbered exports: an NVMe subsystem, an iSCSI target.
    type Group: Clone + Debug + Ord + Hash + Send + Sync + 'static;
    /// One export: a namespace, a LUN, a file.
    type Export: Export;
    /// All that is served.
    type Snapshot: Default + Send + Sync + 'static;
    /// State of the protocol that all reactors share.
    type Shared: Send + Sync + 'static;
    /// Data that one reactor derives from a snapshot for all its connections, when first needed.
    type Local: Default + 'static;
    /// Properties of the listener that a connection came by.
    type Port: Clone + Send + 'static;
    /// Description of a connection, for others.
    type About: Clone + Default + Send + 'static;

    /// Yields the groups of a snapshot with their exports.
    fn exports(snapshot: &Self::Snapshot) -> impl Iterator<Item = (&Self::Group, &[Self::Export])>;

    /// Refuses a message to a connection that reads none any more. A sender that waits for an answer gets it here.
    fn decline(message: Self::Message) {
        drop(message);
    }

    /// Volumes have left commands unanswered: hosts that wait to come in are told why they cannot.
    fn look_again(shared: &Self::Shared) {
        let _ = shared;
    }
}
