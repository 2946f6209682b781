//! The recorder: streams of packets or of bytes onto a ring of volumes, and back by time.
//!
//! * `format` is what lies on the volumes: superblocks, and segments that describe themselves.
//! * [`Ring`] is the volumes of a ring, opened, and what was found on them.
//! * `writer` turns packets into segments; [`record()`] feeds it from a [`Source`]: an interface ([`Live`]), a UDP socket ([`Udp`]),
//!   a file or stream ([`Input`]), or packets that are made up ([`Generator`]).
//! * `read` lists, checks and extracts what was recorded.
//!
//! Nothing here knows a terminal.

#![forbid(unsafe_code)]

mod capture;
mod format;
mod generator;
mod input;
mod losses;
mod pressure;
mod read;
mod record;
mod ring;
mod source;
mod streams;
mod supply;
mod udp;
mod writer;

pub use capture::Live;
pub use format::{ClockSteps, Content, Counts, Defect};
pub use generator::Generator;
pub use input::Input;
pub use pressure::Pressure;
pub use read::{Damage, Extract, Extracted, Listed, Output, ReadError, extract, follow, list};
pub use record::{Ended, Progress, RecordConfig, RecordError, Recorded, record, record_stream};
pub use ring::{Ring, RingConfig, RingError, SharedRing, WhenFull};
pub use source::Source;
pub use streams::Streams;
pub use supply::{Pace, SourceError};
pub use udp::Udp;
pub use writer::VolumeFigures;
