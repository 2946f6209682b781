//! Integration tests of weir-simulate.

mod seeds;
