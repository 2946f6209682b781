//! What the tests of this crate share.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod client;
pub(crate) mod fake;
