//! Integration tests of weir-rbd.

mod contract;
mod faults;
mod moves;
mod watches;
