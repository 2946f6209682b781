//! The wire suites: scripted peers that speak NVMe/TCP and iSCSI byte by byte, and tables of cases, each with the answer that the
//! specifications name.
//!
//! It is a tool, with blocking sockets and threads; it knows no volume, no reactor and no command line.
//!
//! - [`connection`]: one TCP connection: sends anything in any pieces, keeps what comes.
//! - [`case`]: what a case is, and why it fails.
//! - [`context`]: what a case is given, and what a protocol has to have.
//! - [`nvme`], [`iscsi`]: the protocols: their peers, and their cases.
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

#[macro_use]
pub mod case;
pub mod connection;
pub mod context;
pub mod gateway;
pub mod iscsi;
pub mod nvme;
pub mod runner;
pub mod witness;

pub use case::{Case, Failure, Needs};
pub use context::{Context, Protocol};
pub use gateway::{Gateway, Resources};
pub use runner::{Outcome, Record, Restart, Runner, Settings};
