//! Tools that work on any volume: load with measured latency, copy, and verification.
//!
//! Every tool takes the reactors that it may use and a control reactor on which it runs itself; it opens a queue of the
//! volume per lane and keeps it full. A tool knows nothing of terminals: it reports progress through a callback and
//! returns a report.

#![forbid(unsafe_code)]

pub mod bench;
pub mod copy;
mod diagnosis;
mod lane;
mod pattern;
mod plan;
mod random;
mod search;
pub mod verified;
pub mod verify;
pub mod workload;

pub use diagnosis::{Fault, Finding};
pub use lane::LaneError;
pub use plan::PlanError;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a tool reports its progress.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Asks a running tool to end early. What it found until then is its result.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Not asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Stop::default()
    }

    /// The flag itself, for a signal handler to set.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Asks.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
