//! The laboratory: what measurements come to, beyond one run.
//!
//! [`document`] is the form in which results are stored and exchanged. Whoever wants to draw, export or print a result works from it
//! alone. This crate knows no terminal and no HTTP, and reads no clock.

#![forbid(unsafe_code)]

pub mod document;
mod machine;
pub mod secret;
