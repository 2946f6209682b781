//! The wire suite: a scripted peer that speaks NVMe/TCP byte by byte, and a table of cases, each with the answer that the
//! specifications name.
//!
//! It is a tool, with blocking sockets and threads; it knows no volume, no reactor and no command line. Well-formed PDUs are
//! encoded by `weir_nvme`; what is wrong with them is written over their bytes, and what a target answers is taken apart here,
//! apart from the parsers that Weir itself uses.
//!
//! - [`peer`]: one connection: sends anything in any pieces, reads PDUs by a deadline, expects answers.
//! - [`queue`]: a peer that has become a queue of a controller, for the well-behaved part of a case.
//! - [`case`]: what a case is, and why it fails.
//! - [`cases`]: all of them, in one table, by the groups of `docs/torture.md`.
//! - [`context`]: what a case is given: the target, what was found out about it, connections to it.
//! - [`witness`]: the well-behaved host that must not notice anything.
//! - [`gateway`]: what a gateway under our own control is asked for: its resources, and changes.
//! - [`runner`]: runs cases one after the other and judges them.
//!
//! # To write a case
//!
//! A case is a function `fn(&mut Context) -> Result<(), Failure>` and a row in its file's `cases!` table, which names it. It makes
//! its connections through the [`context::Context`], damages something, and ends with an `expect` of the connection, whose
//! error is the failure. Its connections are closed when the function returns; after that the runner looks at the witness and at the
//! target's resources. Where the specifications allow several answers, the case lists them all, Weir's own first: of Weir only that one
//! is accepted.
#![forbid(unsafe_code)]

pub mod case;
pub mod cases;
pub mod context;
pub mod gateway;
pub mod pdu;
pub mod peer;
pub mod queue;
pub mod runner;
pub mod witness;

pub use case::{Failure, Needs};
pub use cases::Case;
pub use context::{Context, Target};
pub use gateway::{Gateway, Resources};
pub use peer::{Answer, Got, Peer};
pub use queue::{Controller, Queue, QueueOptions};
pub use runner::{Outcome, Record, Restart, Runner, Settings};
