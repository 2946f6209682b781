//! Which acknowledged writes no Flush has covered, and whether flushes may still succeed.
//!
//! Flushes are numbered when they are sent. A write that the target acknowledges to its volatile write cache notes the next
//! number: a flush of that number or a later one covers it. So all queues of a volume share three numbers, which a write reads,
//! and changes only where it is the first since a flush was sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Durability of a volume's writes, shared by all its queues.
#[derive(Default)]
pub(crate) struct Durability {
    /// Flushes that were sent.
    sent: AtomicU64,
    /// The first flush that covers every acknowledged write; 0 where there is none.
    needed: AtomicU64,
    /// The last flush that succeeded; 0 where none has.
    succeeded: AtomicU64,
    /// Set once acknowledged writes may be lost: no flush succeeds any more.
    failed: AtomicBool,
}

impl Durability {
    /// The target acknowledged a write that a power failure may take.
    pub(crate) fn note_write(&self) {
        let covering = self.sent.load(Ordering::Relaxed) + 1;
        if self.needed.load(Ordering::Relaxed) < covering {
            self.needed.fetch_max(covering, Ordering::Relaxed);
        }
    }

    /// A flush is sent now; its number.
    pub(crate) fn send_flush(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Flush `number` succeeded at the target.
    pub(crate) fn note_flush(&self, number: u64) {
        self.succeeded.fetch_max(number, Ordering::Relaxed);
    }

    /// Returns whether a write was acknowledged that no flush has covered. Exact while no queue has a connection.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.needed.load(Ordering::Relaxed) > self.succeeded.load(Ordering::Relaxed)
    }

    /// From now on every flush fails. True the first time.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }

    /// Returns whether every flush fails.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_was_sent() {
        let durability = Durability::default();
        assert!(!durability.has_unflushed());
        durability.note_write();
        let first = durability.send_flush();
        assert!(durability.has_unflushed(), "it has not succeeded");
        durability.note_write();
        let second = durability.send_flush();
        durability.note_flush(first);
        assert!(
            durability.has_unflushed(),
            "the second write came after the first flush"
        );
        durability.note_flush(second);
        assert!(!durability.has_unflushed());
        // A flush that was overtaken takes nothing back.
        durability.note_flush(first);
        assert!(!durability.has_unflushed());
    }

    #[test]
    fn a_flush_that_failed_covers_nothing() {
        let durability = Durability::default();
        durability.note_write();
        durability.send_flush();
        assert!(durability.has_unflushed());
        assert!(durability.fail() && !durability.fail() && durability.has_failed());
    }
}
