//! Test helpers that more than one crate needs.
//!
//! Reactors and a client for volumes, the contract that every volume passes, a fake Ceph cluster, a reader of metrics pages, a
//! browser, what every initiator must do, and where cases of a front end run. No crate depends on it but for its tests and benchmarks.

#![allow(missing_docs, reason = "its users are tests")]

pub mod ceph;
pub mod contract;
pub mod exposition;
pub mod failing;
pub mod harness;
pub mod initiator;
pub mod late;
pub mod webdriver;
pub mod world;
