//! The checks that a history must pass, and what they find.

use std::fmt;

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
