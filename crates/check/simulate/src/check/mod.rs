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

use crate::journal::History;
use crate::plan::Plan;
use crate::violation::{Check, Violation};

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
