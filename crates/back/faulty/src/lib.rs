//! Volumes with defects, for tests of what becomes of a process then, and of what finds a lie out.
//!
//! `planted:` breaks invariants, `lying:` lies about what it stores. A registry knows them where a test registers them. Programs of the
//! tree know them in test builds alone: with the feature `planted-faults` of `weir-gateway`, which no release has.

#![forbid(unsafe_code)]

mod lying;
mod planted;

use weir_volume::Registry;

/// Adds both kinds to a registry.
pub fn register(registry: &mut Registry) {
    registry.register_plain("lying", lying::open);
    registry.register_plain("planted", planted::open);
}
