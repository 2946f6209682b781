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
mod search;
mod shuffle;
pub mod verified;
pub mod verify;
pub mod workload;

pub use diagnosis::{Fault, Finding};
pub use lane::{Ended, Lane, LaneError};
pub use plan::PlanError;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a tool reports its progress.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Asks a running tool to end early. What it found until then is its result.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    above: Option<Arc<Stop>>,
}

impl Stop {
    /// Not asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Stop::default()
    }

    /// One that is asked for where this one is, and may be asked for by itself.
    #[must_use]
    pub fn within(&self) -> Self {
        Stop {
            asked: Arc::default(),
            above: Some(Arc::new(self.clone())),
        }
    }

    /// For what comes after what this one has ended: where it was asked for already, one that nobody has asked for yet.
    #[must_use]
    pub fn for_what_follows(&self) -> Self {
        match self.is_asked() {
            true => Stop::new(),
            false => self.clone(),
        }
    }

    /// The flag itself, for a signal handler to set.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Asks.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.above.as_deref().is_some_and(Stop::is_asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_within_another_is_asked_for_with_it_and_not_the_other_way_round() {
        let above = Stop::new();
        let (one, other) = (above.within(), above.within());
        one.stop();
        assert!(one.is_asked() && !other.is_asked() && !above.is_asked());
        assert!(!above.flag().load(Ordering::Relaxed));
        let follows = above.for_what_follows();
        above.stop();
        assert!(other.is_asked() && other.clone().within().is_asked());
        assert!(follows.is_asked(), "it was not asked for before");
        assert!(!above.for_what_follows().is_asked());
    }
}
