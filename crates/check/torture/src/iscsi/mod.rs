//! The suite for iSCSI.
//!
//! All bytes are made and taken apart here, apart from the parsers that Weir itself uses.
//!
//! - [`pdu`]: requests to damage, answers taken apart.
//! - [`peer`]: one connection: reads PDUs by a deadline, checks their numbers, expects answers.
//! - [`session`]: a peer that has logged in, for the well-behaved part of a case.
//! - [`cases`]: all of them, in one table, by the groups of `docs/torture.md`.
//! - [`context`]: what is found out about a target, and connections to it.

pub mod cases;
pub mod context;
pub mod pdu;
pub mod peer;
pub mod session;

pub use context::{Context, Iscsi, Target};
pub use peer::{Answer, Got, Peer};
pub use session::{Login, Session};
