//! What the tests of this crate share.

pub(crate) mod client;
pub(crate) mod fake;
