//! Integration tests of weir-lab.

mod simulated;
