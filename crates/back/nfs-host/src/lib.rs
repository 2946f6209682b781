//! The NFS client, as a volume: a file on a server of version 3, 4.1 or 4.2.
//!
//! [`NfsHost::open`] opens a file, which then is a [`weir_block::Volume`] like any other. Inside, from the wire upwards:
//!
//! * `arguments` writes operations, `results` reads what comes of them;
//! * `channel` is the protocol of one connection: a state machine without I/O;
//! * `slots` is what connections know of their session's slots, from one connection to the next;
//! * `asking` asks a server one thing at a time, and has what this host remembers of it;
//! * `session` makes or takes up a session, and opens the file; `version3` finds it without a session, by MOUNT; `keeper` connects, and
//!   has either done;
//! * `outcome` turns statuses into errors;
//! * `protocol` is all of that as [`weir_initiator::Protocol`], which moves bytes, spreads requests over connections, retries, and takes the
//!   session up again when a connection is lost;
//! * `volume` is what others see.
//!
//! The connections of a volume: `connections=` is how many are spread over the host's reactors; never fewer than these. One more keeps
//! watch: it renews the lease, and asks whether the file has another size. In version 4 all of them belong to one session, whose slots
//! are divided among them.
//!
//! Not done here: Kerberos, byte-range locks, delegations and other callbacks, several addresses of one server.

#![forbid(unsafe_code)]

mod arguments;
mod asking;
mod channel;
mod keeper;
pub mod options;
mod outcome;
mod protocol;
mod results;
mod session;
mod slots;
mod version3;
mod volume;

pub use asking::ConnectError;
pub use options::{Options, PORT, SCHEME, Version};
pub use protocol::Nfs;
pub use volume::{NfsHost, NfsVolume, User};
