//! One contract that every kind of volume passes: random requests, several at once, against a plain oracle in memory.

#[path = "../common/mod.rs"]
mod common;
mod kinds;
mod oracle;
mod run;

pub(crate) use run::{Kind, contract};
