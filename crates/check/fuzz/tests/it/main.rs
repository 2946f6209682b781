//! Integration tests of weir-fuzz.

mod corpus;
