//! What every initiator needs: connections, retries after proof, reconnecting, one queue per reactor.

#![forbid(unsafe_code)]

pub mod durability;
pub mod options;
pub mod plan;
pub mod wire;
