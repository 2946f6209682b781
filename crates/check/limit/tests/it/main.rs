//! Integration tests of weir-limit.

mod bare;
mod canned;
mod speed;
