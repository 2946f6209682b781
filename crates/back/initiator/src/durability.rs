//! Which acknowledged writes no Flush has covered, and whether flushes may still succeed.
//!
//! A protocol may retain ([`crate::Protocol::RETAINS`]): the data of these writes is kept then, too, in the order of their
//! acknowledgements. It is copied: memory of the pool that a host could hold for as long as no flush comes would be missed where
//! requests need it to go on.
//!
//! Flushes are numbered when they are sent. A write that the target acknowledges to its volatile write cache notes the next
//! number: a flush of that number or a later one covers it. So all queues of a volume share three numbers, which a write reads,
//! and changes only where it is the first since a flush was sent.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_memory::View;

use crate::lock::lock;

/// Bytes that are retained before a write has a flush follow it.
const RETAINED_BYTES: usize = 32 << 20;
/// Bytes that are retained before every write has.
const RETAINED_BYTES_MAX: usize = 64 << 20;

/// A write that was acknowledged and that no flush has covered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retained {
    /// Its first block.
    pub lba: u64,
    /// Its data.
    pub data: Vec<u8>,
}

/// Retained writes, in the order of their acknowledgements.
#[derive(Default)]
struct Log {
    /// The flush that covers it, the first block, and bytes of each.
    writes: VecDeque<(u64, u64, usize)>,
    data: VecDeque<u8>,
    /// The last flush that was asked for because there is much.
    asked: u64,
}

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
    log: Mutex<Log>,
}

impl Durability {
    /// The target acknowledged a write that a power failure may take.
    pub(crate) fn note_write(&self) {
        let covering = self.sent.load(Ordering::Relaxed) + 1;
        if self.needed.load(Ordering::Relaxed) < covering {
            self.needed.fetch_max(covering, Ordering::Relaxed);
        }
    }

    /// Notes a write, and keeps its data. True where a flush is to follow it, as much is kept.
    pub(crate) fn retain(&self, lba: u64, data: &[View]) -> bool {
        self.note_write();
        if self.has_failed() {
            return false;
        }
        let log = &mut *lock(&self.log);
        let covering = self.sent.load(Ordering::Relaxed) + 1;
        let bytes = data.iter().map(|view| view.len()).sum();
        log.writes.push_back((covering, lba, bytes));
        data.iter().for_each(|view| log.data.extend(&view[..]));
        let is_asked = log.asked > self.succeeded.load(Ordering::Relaxed);
        let wanted = match log.data.len() {
            RETAINED_BYTES_MAX.. => true,
            RETAINED_BYTES.. => !is_asked,
            _ => false,
        };
        if wanted {
            log.asked = covering;
        }
        wanted
    }

    /// The writes that are retained, in the order of their acknowledgements.
    pub(crate) fn retained(&self) -> Vec<Retained> {
        let log = &*lock(&self.log);
        let mut data = log.data.iter().copied();
        let of = |&(_, lba, bytes): &(u64, u64, usize)| Retained {
            lba,
            data: data.by_ref().take(bytes).collect(),
        };
        log.writes.iter().map(of).collect()
    }

    /// All that was acknowledged is durable. Nothing is sent meanwhile.
    pub(crate) fn note_all(&self) {
        let number = self.send_flush();
        self.note_flush(number);
        self.release(number);
    }

    /// A flush is sent now; its number.
    pub(crate) fn send_flush(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Flush `number` succeeded at the target.
    pub(crate) fn note_flush(&self, number: u64) {
        self.succeeded.fetch_max(number, Ordering::Relaxed);
    }

    /// Drops what flush `number`, which succeeded, has covered.
    pub(crate) fn release(&self, number: u64) {
        let log = &mut *lock(&self.log);
        while let Some(&(covering, _, bytes)) = log.writes.front()
            && covering <= number
        {
            log.writes.pop_front();
            log.data.drain(..bytes);
        }
        if log.data.is_empty() {
            log.data.shrink_to(RETAINED_BYTES / 8);
        }
    }

    /// Returns whether a write was acknowledged that no flush has covered. Exact while no queue has a connection.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.needed.load(Ordering::Relaxed) > self.succeeded.load(Ordering::Relaxed)
    }

    /// From now on every flush fails. True the first time.
    pub(crate) fn fail(&self) -> bool {
        *lock(&self.log) = Log::default();
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
    fn what_no_flush_has_covered_is_retained_in_order() {
        let durability = Durability::default();
        let view = |bytes: &[u8]| [View::copy_of(bytes)];
        assert!(!durability.retain(7, &view(b"first")));
        let first = durability.send_flush();
        assert!(!durability.retain(7, &view(b"second")));
        let kept = |lba, data: &[u8]| Retained {
            lba,
            data: data.to_vec(),
        };
        let both = [kept(7, b"first"), kept(7, b"second")];
        assert_eq!(durability.retained(), both);
        durability.note_flush(first);
        durability.release(first);
        assert_eq!(durability.retained(), both[1..]);
        durability.note_all();
        assert!(durability.retained().is_empty() && !durability.has_unflushed());
        durability.retain(1, &view(b"third"));
        assert!(durability.has_unflushed());
        durability.fail();
        durability.retain(2, &view(b"fourth"));
        assert!(durability.retained().is_empty(), "no flush will succeed");
    }

    #[test]
    fn much_that_is_retained_asks_for_one_flush_and_very_much_for_each() {
        let durability = Durability::default();
        let mebibyte = [View::copy_of(&[1; 1 << 20])];
        let asked = (0..66).map(|lba| durability.retain(lba, &mebibyte));
        let asked: Vec<usize> = asked
            .enumerate()
            .filter(|one| one.1)
            .map(|one| one.0)
            .collect();
        assert_eq!(asked, [31, 63, 64, 65]);
        let flush = durability.send_flush();
        durability.note_flush(flush);
        durability.release(flush);
        assert!(!durability.retain(0, &mebibyte));
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
