//! The laboratory: what measurements come to, beyond one run.
//!
//! [`document`] is the form in which results are stored and exchanged. Whoever wants to draw, export or print a result works from it
//! alone. [`convert`] makes it of what the load generator
//! reports, and [`job`] reads what load to make. [`statistics`] says what numbers allow to be said; [`curve`] and [`compare`] say which runs are needed and what they come to, and have
//! somebody else ([`runner::Bench`]) make them. This crate knows no terminal and no HTTP, and reads no clock.

#![forbid(unsafe_code)]

pub mod compare;
pub mod convert;
pub mod curve;
pub mod document;
pub mod job;
mod machine;
#[cfg(test)]
mod model;
pub mod modelled;
pub mod runner;
pub mod secret;
pub mod statistics;
pub mod sweep;
