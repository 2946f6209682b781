//! Qualifies drives: what one sustains when it is written from end to end, and then again over what is there.
//!
//! The method is that of BittWare's white paper on recorders (an empty drive without a file system is filled with queued writes of aligned data that does not
//! compress, and then once more over the old data), with SNIA's purge before and idle time after it. [`config`] says what is asked for, [`course`] which request
//! comes next and what was measured, and knows no clock. [`real`] carries a course out on volumes, [`simulated`] on a model's clock. [`analysis`] finds the places at
//! which the rate changes, [`phases`] names what is between them, [`state`] keeps it to be taken up again, and [`document`] is the form of the result. This
//! crate knows no terminal and opens no file.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod config;
pub mod course;
pub mod data;
pub mod document;
pub mod phases;
pub mod real;
pub mod simulated;
pub mod state;

pub use config::{Config, ConfigError};
pub use document::{Document, DocumentError, PassKind};
pub use state::{DriveState, Identity, State, StateError};
