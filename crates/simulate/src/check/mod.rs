//! The checks that every history must pass.
//!
//! Each check has a name, and what it finds says what was violated, by which request. What a check goes by and what it cannot
//! see is in `docs/fault-model.md`.

pub(crate) mod atomic;
pub(crate) mod exercised;
pub(crate) mod register;
pub(crate) mod replaced;
pub(crate) mod revoked;
pub(crate) mod stale;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::journal::History;
use crate::plan::Plan;

/// A check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// No write that was acknowledged and flushed (Flush or FUA) is lost.
    FlushedWrites,
    /// No write lands after it was answered, or after a fence.
    StaleWrites,
    /// No write begins or goes on after it was acknowledged that its host may not write any more.
    RevokedWrites,
    /// No write over a path that was lost goes on once the host was served over another one.
    ReplacedPath,
    /// Every read is explained by some order of writes.
    Reads,
    /// Compare-and-write is atomic against all writers.
    CompareWrites,
    /// Writes within the advertised unit are seen whole or not at all.
    Atomicity,
    /// Each request is completed exactly once.
    ExactlyOnce,
    /// Each request ends as it may end: an error that says that nothing was done tells the truth.
    HonestStatus,
    /// No bound is passed, and nothing is left behind.
    Bounds,
    /// Once faults stop everything outstanding ends in time, and new commands succeed.
    Progress,
    /// A file is as long as its volume was made last.
    Sizes,
    /// Clients are served while things go wrong, and what the plan switches on happens.
    Exercised,
    /// The same seed gives the same history.
    Determinism,
    /// No invariant of the program breaks.
    Invariants,
    /// The checker came to an end.
    Decided,
}

impl Check {
    /// The name of it, as reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Check::FlushedWrites => "flushed-writes",
            Check::StaleWrites => "stale-writes",
            Check::RevokedWrites => "revoked-writes",
            Check::ReplacedPath => "replaced-path",
            Check::Reads => "reads",
            Check::CompareWrites => "compare-writes",
            Check::Atomicity => "atomicity",
            Check::ExactlyOnce => "exactly-once",
            Check::HonestStatus => "honest-status",
            Check::Bounds => "bounds",
            Check::Progress => "progress",
            Check::Sizes => "sizes",
            Check::Exercised => "exercised",
            Check::Determinism => "determinism",
            Check::Invariants => "invariants",
            Check::Decided => "decided",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Something that must hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which check says so.
    pub check: Check,
    /// Describes what is violated, and by which request.
    pub message: String,
}

impl Violation {
    /// A violation that `check` found.
    pub(crate) fn new(check: Check, message: String) -> Self {
        Violation { check, message }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.check, self.message)
    }
}

/// Properties of a volume that the checkers need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// Blocks that clients use.
    pub(crate) used: u64,
    /// Blocks at first.
    pub(crate) blocks_first: u64,
    /// The fewest blocks that it ever had.
    pub(crate) blocks_least: u64,
    /// The most blocks that it ever had.
    pub(crate) blocks_most: u64,
    /// Writes may be lost at a power failure until a flush.
    pub(crate) volatile_cache: bool,
    /// Writes of so many blocks are seen whole or not at all.
    pub(crate) atomic_blocks: u64,
}

/// Everything that is wrong with a history.
pub(crate) fn all(plan: &Plan, promises: &[Promise], history: &History) -> Vec<Violation> {
    let mut found = history.wrong.clone();
    found.extend(stale::check(history));
    found.extend(revoked::check(history));
    found.extend(replaced::check(history));
    found.extend(status::check(plan, promises, history));
    found.extend(exercised::check(plan, promises, history));
    found.extend(atomic::check(promises, history));
    found.extend(register::check(promises, history));
    found
}
