//! What a protocol is to the runtime of its connections.

use std::fmt::Debug;
use std::hash::Hash;

use crate::volumes::Export;

/// The types of a protocol, and what of it concerns no single connection.
pub trait Protocol: Sized + 'static {
    /// What connections tell one another.
    type Message: Send + 'static;
    /// What has exports under their numbers: an NVMe subsystem, an iSCSI target.
    type Group: Clone + Debug + Ord + Hash + Send + Sync + 'static;
    /// A namespace, a LUN, a file of an export.
    type Export: Export;
    /// All that is served.
    type Snapshot: Default + Send + Sync + 'static;
    /// What all reactors share of it.
    type Shared: Send + Sync + 'static;
    /// What one reactor makes of a snapshot for all its connections, when one needs it.
    type Local: Default + 'static;
    /// What a connection is told of the listener that it came by.
    type Port: Clone + Send + 'static;
    /// What others are told of a connection.
    type About: Clone + Default + Send + 'static;

    /// Yields the groups of a snapshot with their exports.
    fn exports(snapshot: &Self::Snapshot) -> impl Iterator<Item = (&Self::Group, &[Self::Export])>;

    /// A message came to a connection that reads none any more: whoever waits for an answer has it.
    fn decline(message: Self::Message) {
        drop(message);
    }

    /// Volumes have left commands unanswered: hosts that wait to come in are told why they cannot.
    fn look_again(shared: &Self::Shared) {
        let _ = shared;
    }
}
