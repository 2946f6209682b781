//! The weir command.
#![forbid(unsafe_code)]

fn main() {}
