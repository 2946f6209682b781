//! The iSCSI initiator, as a volume.

#![forbid(unsafe_code)]

// Whoever opens connections stands above it.
#[cfg_attr(not(test), allow(dead_code))]
mod nexus;
