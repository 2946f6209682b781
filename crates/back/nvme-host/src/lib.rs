//! The NVMe over TCP initiator, as a volume.
//!
//! [`NvmeHost::open`] connects to a namespace, which then is a [`weir_block::Volume`] like any other; [`discover`] asks a
//! target what it has. Inside, from the wire upwards:
//!
//! * `queue_pair` is the protocol of one connection, a state machine without I/O;
//! * `admin` asks one command at a time, `association` connects and identifies;
//! * `command` makes commands of the pieces of requests, `outcome` turns statuses into errors;
//! * `protocol` is all of that as [`weir_initiator::Protocol`], which moves bytes, spreads requests over connections, retries,
//!   and makes the next association when one is lost;
//! * `volume` and `discovery` are what others see.
//!
//! The queues of a volume: `queues=` is how many I/O queues, each with its own connection, are spread over the host's
//! reactors; never fewer than these. Each [`weir_block::Queue`] has `queues / reactors` of them, rounded up, as long as there
//! are any, and one otherwise, and spreads its requests over these; `depth=` commands are outstanding on each.
//!
//! What this crate does not do: authentication, TLS, metadata, several paths to one namespace.

#![forbid(unsafe_code)]

mod admin;
mod association;
mod command;
mod discovery;
pub mod options;
mod outcome;
mod profile;
mod protocol;
mod queue_pair;
mod volume;

pub use admin::CommandFailure;
pub use association::ConnectError;
pub use discovery::{DiscoveryEntry, ENTRIES_MAX, discover};
pub use options::{HostIdentity, IdentityError, Options, PORT, SCHEME};
pub use profile::NamespaceError;
#[doc(hidden)]
pub use profile::geometry_of;
pub use protocol::NvmeTcp;
pub use volume::{NvmeHost, NvmeVolume};
