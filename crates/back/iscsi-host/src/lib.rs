//! The iSCSI initiator, as a volume.
//!
//! [`IscsiHost::open`] logs in to a target, one of whose logical units then is a [`weir_block::Volume`] like any other; [`discover`]
//! asks which targets there are. Inside, from the wire upwards:
//!
//! * `nexus` is the protocol of one connection, which is one session: a state machine without I/O;
//! * `asking` asks one command at a time, `session` connects, logs in and identifies;
//! * `command` makes commands of the pieces of requests, `outcome` turns statuses and sense data into errors;
//! * `protocol` is all of that as [`weir_initiator::Protocol`], which moves bytes, spreads requests over sessions, retries, and makes
//!   the next association when one is lost;
//! * `volume` and `discovery` are what others see.
//!
//! The sessions of a volume: `sessions=` is how many sessions for I/O are spread over the host's reactors; never fewer than these. One
//! more keeps watch: it pings the target, and asks the unit whether something changed.
//!
//! What this crate does not do: several connections in a session, error recovery levels above 0, several paths to one unit.

#![forbid(unsafe_code)]

mod asking;
mod command;
mod discovery;
mod nexus;
pub mod options;
mod outcome;
mod profile;
mod protocol;
mod secrets;
mod session;
mod volume;

pub use asking::CommandFailure;
pub use discovery::{DiscoveryEntry, ENTRIES_MAX, discover};
pub use options::{ChapOptions, IdentityError, Options, PORT, SCHEME, initiator_name};
pub use profile::UnitError;
#[doc(hidden)]
pub use profile::geometry_of;
pub use protocol::Iscsi;
pub use secrets::{MUTUAL_SECRET_VARIABLE, SECRET_VARIABLE, SecretError};
pub use session::ConnectError;
pub use volume::{IscsiHost, IscsiVolume};
