//! The recorder: streams of packets or of bytes onto a ring of volumes, and back by time.
//!
//! * `format` is what lies on the volumes: superblocks, and segments that describe themselves.
//! * [`Ring`] is the volumes of a ring, opened, and what was found on them.
//! * `writer` turns packets into segments; [`record()`] feeds it from a [`Source`].
//! * `read` lists, checks and extracts what was recorded.
//!
//! Nothing here knows a terminal.

#![forbid(unsafe_code)]

mod format;
mod read;
mod record;
mod ring;
mod source;
mod writer;

pub use format::{Content, Counts, Defect};
pub use read::{Damage, Extract, Extracted, Listed, Output, ReadError, extract, follow, list};
pub use record::{Ended, Progress, RecordConfig, RecordError, Recorded, record};
pub use ring::{Ring, RingConfig, RingError, WhenFull};
pub use source::{Generator, Input, Pace, Source, SourceError};
