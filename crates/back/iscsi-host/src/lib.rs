//! The iSCSI initiator, as a volume.

#![forbid(unsafe_code)]
#![allow(dead_code)]

mod command;
mod nexus;
mod outcome;
mod profile;

pub use profile::UnitError;
#[doc(hidden)]
pub use profile::geometry_of;
