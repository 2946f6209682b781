//! Volumes: null, mem, file, stripe, concat, and Guard, which wraps every served one.
//!
//! A volume is named by a [`VolumeUrl`] and opened by a [`Registry`]. What is said of each kind stands in its module; how
//! URLs are written, in `docs/volumes.md`. This crate speaks no protocol, and reaches files only through the reactor.

#![forbid(unsafe_code)]

mod call;
mod concat;
mod file;
mod guard;
mod lane;
mod mem;
mod null;
mod pace;
pub mod parts;
pub mod probe;
mod registry;
mod set;
mod stripe;
mod support;
pub mod url;
mod when_all;

pub use file::FileVolume;
pub use guard::{
    COMPARE_WRITE_BYTES_MAX, GUARD_TRANSFER_BYTES_MAX, Guard, GuardConfig, GuardError, KINDS,
    KindStatistics, LimitedVolume, Limits, RateLimit, RateLimitError, Throttled, VolumeStatistics,
};
pub use mem::{MEM_BYTES_MAX, MemVolume};
pub use null::NullVolume;
pub use registry::{Access, Factory, Gate, Notice, OpenError, OpenRequest, Registry};
pub use set::SetVolume;
#[doc(hidden)]
pub use set::label::read_label;
pub use support::TRANSFER_BYTES_MAX;
pub use url::{Authority, Parameters, UrlError, VolumeUrl};
