//! The iSCSI initiator, as a volume.

#![forbid(unsafe_code)]

#[cfg_attr(not(test), expect(dead_code))]
mod command;
#[cfg_attr(not(test), expect(dead_code))]
mod outcome;
#[cfg_attr(not(test), expect(dead_code))]
mod profile;

pub use profile::UnitError;
#[doc(hidden)]
pub use profile::geometry_of;
