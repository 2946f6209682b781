//! Integration tests of weir-ssd.

mod model;
mod volume;
