//! The machine's ceiling, and Weir measured against it and against others.
//!
//! A bare [`server`] and a bare [`client`] do nothing but what TCP needs to move the bytes of NVMe/TCP reads and writes;
//! a [`canned`] responder speaks just enough NVMe/TCP to measure initiators against something that is not the limit; [`speed`]
//! runs them, Weir and a peer in turn, and compares; [`copy`](mod@copy) does what a recorder cannot do without, and [`datagrams`] sends packets for it to record. Nothing here is part of what `weir` is made of, and only the wire types are
//! Weir's, so that the ceiling owes nothing to what is measured.

#![forbid(unsafe_code)]

pub mod canned;
pub mod client;
pub mod copy;
pub mod datagrams;
mod engine;
mod flow;
pub mod processor;
pub mod server;
pub mod speed;
pub mod work;
