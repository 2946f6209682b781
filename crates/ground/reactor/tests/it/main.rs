//! Integration tests of weir-reactor.

mod contract;
mod foreign;
mod linux;
mod sim;
mod sources;
