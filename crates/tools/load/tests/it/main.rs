//! Integration tests of weir-load.

mod bench;
mod common;
mod faults;
mod tools;
