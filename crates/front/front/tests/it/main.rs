//! Integration tests of weir-front.

mod lines;
mod runtime;
