//! Integration tests of weir-drive.

mod real;
mod simulated;
