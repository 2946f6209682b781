//! The suite for NVMe/TCP.
//!
//! Well-formed PDUs are encoded by `weir_nvme`; what is wrong with them is written over their bytes, and what a target answers is taken
//! apart here, apart from the parsers that Weir itself uses.
//!
//! - [`peer`]: one connection: reads PDUs by a deadline, expects answers.
//! - [`queue`]: a peer that has become a queue of a controller, for the well-behaved part of a case.
//! - [`cases`]: all of them, in one table, by the groups of `docs/torture.md`.
//! - [`context`]: what is found out about a target, and connections to it.

pub mod cases;
pub mod context;
pub mod pdu;
pub mod peer;
pub mod queue;

pub use context::{Context, Nvme, Target};
pub use peer::{Answer, Got, Peer};
pub use queue::{Controller, Queue, QueueOptions};
