//! The shape of block storage: a volume is a queue of block requests.
//!
//! Whatever stores blocks provides a [`Volume`]; whatever serves or drives blocks opens a [`Queue`] of it on each of its
//! reactors, submits [`Request`]s, and is given a [`Completion`] for each. This crate holds the types and the rules; it
//! stores nothing and does no I/O.

#![forbid(unsafe_code)]

mod error;
mod geometry;
mod health;
mod request;
mod sink;
pub mod size;
pub mod text;
mod volume;

pub use error::VolumeError;
pub use geometry::{BlockSize, DeallocatedRead, Geometry};
pub use health::{Health, HealthFuture, HealthReport};
pub use request::{
    Completion, Operation, OperationKind, ReadBuffers, Request, Token, compare_write_halves,
};
pub use sink::{CompletionSink, Completions, GUARD_OWNER, HostNumber, Router, submit_to};
pub use volume::{
    Announcement, FenceReply, InFlight, Landing, Queue, ResizeError, ResizeFuture, Volume,
    VolumeEvent, Watcher,
};
