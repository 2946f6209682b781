//! A modelled drive: what a flash drive does with what is written to it.
//!
//! A [`Profile`] says what is to be known of a drive, and where each figure is from. A [`Model`] is that drive as a state machine: given what
//! is asked of it and when, it says when that is done; it reads no clock and does no I/O, and is the same for the same seed.
//! [`Profile::truth`] says what the model must show when it is filled, computed from the profile alone. What is modelled and what is not
//! stands in `docs/drives.md`.

#![forbid(unsafe_code)]

mod flash;
mod layout;
mod model;
mod profile;
mod random;
mod truth;
mod value;
mod volume;

pub use model::{Model, Smart};
pub use profile::{
    Adjustments, Background, CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, CAPACITY_BYTES_UNIT, Cache,
    Heat, Latency, Media, Parameter, Profile, ProfileError, SizeError, Source, Stall, Throttle,
    WhenFull,
};
pub use truth::{Truth, TruthPhase};
pub use volume::{SCHEME, SsdVolume};
