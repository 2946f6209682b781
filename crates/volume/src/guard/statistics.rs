//! What a guard counts: on each queue without a lock, gathered when asked for.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_block::OperationKind;
use weir_reactor::{Receiver, Sender, oneshot};

use crate::support::lock;

/// The kinds of operation, in the order in which [`VolumeStatistics`] counts them.
pub const KINDS: [OperationKind; 8] = [
    OperationKind::Read,
    OperationKind::Write,
    OperationKind::WriteZeroes,
    OperationKind::Compare,
    OperationKind::CompareWrite,
    OperationKind::Deallocate,
    OperationKind::Verify,
    OperationKind::Flush,
];

/// Buckets of a latency histogram.
pub const LATENCY_BUCKETS: usize = 40;

/// Counters of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindStatistics {
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed, a miscompare among them.
    pub failed: u64,
    /// Blocks of the requests that succeeded.
    pub blocks: u64,
    /// Requests that were taken and have not ended.
    pub in_flight: u64,
    /// Sum of the times from taking to ending, in nanoseconds.
    pub latency_ns: u64,
    /// How many took less than 2^index nanoseconds and not less than half of it; the last holds what is longer too.
    pub latency_histogram: [u64; LATENCY_BUCKETS],
}

impl KindStatistics {
    const ZERO: KindStatistics = KindStatistics {
        succeeded: 0,
        failed: 0,
        blocks: 0,
        in_flight: 0,
        latency_ns: 0,
        latency_histogram: [0; LATENCY_BUCKETS],
    };

    fn add(&mut self, other: &KindStatistics) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.blocks += other.blocks;
        self.in_flight += other.in_flight;
        self.latency_ns += other.latency_ns;
        for (sum, count) in self
            .latency_histogram
            .iter_mut()
            .zip(other.latency_histogram)
        {
            *sum += count;
        }
    }
}

/// Counters of a volume since it was opened, over all queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatistics {
    kinds: [KindStatistics; KINDS.len()],
    /// Requests that had to wait for a range lock, or for what a lost connection of their host had left.
    pub waited_for_lock: u64,
    /// Queues that are open.
    pub queues: u64,
}

impl Default for VolumeStatistics {
    fn default() -> Self {
        VolumeStatistics {
            kinds: [KindStatistics::ZERO; KINDS.len()],
            waited_for_lock: 0,
            queues: 0,
        }
    }
}

fn index(kind: OperationKind) -> usize {
    match kind {
        OperationKind::Read => 0,
        OperationKind::Write => 1,
        OperationKind::WriteZeroes => 2,
        OperationKind::Compare => 3,
        OperationKind::CompareWrite => 4,
        OperationKind::Deallocate => 5,
        OperationKind::Verify => 6,
        OperationKind::Flush => 7,
    }
}

impl VolumeStatistics {
    /// The counters of one kind.
    #[must_use]
    pub fn kind(&self, kind: OperationKind) -> &KindStatistics {
        &self.kinds[index(kind)]
    }

    /// What a dropped queue had in flight ends uncounted.
    pub(super) fn forget_in_flight(&mut self) {
        self.kinds.iter_mut().for_each(|kind| kind.in_flight = 0);
    }

    pub(super) fn add(&mut self, other: &VolumeStatistics) {
        for (sum, kind) in self.kinds.iter_mut().zip(&other.kinds) {
            sum.add(kind);
        }
        self.waited_for_lock += other.waited_for_lock;
        self.queues += other.queues;
    }
}

/// The counters of one queue.
#[derive(Default)]
pub(super) struct Counters {
    kinds: [KindCounters; KINDS.len()],
    waited_for_lock: Cell<u64>,
}

struct KindCounters {
    succeeded: Cell<u64>,
    failed: Cell<u64>,
    blocks: Cell<u64>,
    in_flight: Cell<u64>,
    latency_ns: Cell<u64>,
    latency_histogram: [Cell<u64>; LATENCY_BUCKETS],
}

impl Default for KindCounters {
    fn default() -> Self {
        KindCounters {
            succeeded: Cell::default(),
            failed: Cell::default(),
            blocks: Cell::default(),
            in_flight: Cell::default(),
            latency_ns: Cell::default(),
            latency_histogram: std::array::from_fn(|_| Cell::default()),
        }
    }
}

fn increase(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

impl Counters {
    pub(super) fn taken(&self, kind: OperationKind) {
        increase(&self.kinds[index(kind)].in_flight, 1);
    }

    pub(super) fn waited_for_lock(&self) {
        increase(&self.waited_for_lock, 1);
    }

    pub(super) fn ended(&self, kind: OperationKind, blocks: u64, ok: bool, took: Duration) {
        let counters = &self.kinds[index(kind)];
        counters.in_flight.set(counters.in_flight.get() - 1);
        if ok {
            increase(&counters.succeeded, 1);
            increase(&counters.blocks, blocks);
        } else {
            increase(&counters.failed, 1);
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sum = counters.latency_ns.get().saturating_add(nanoseconds);
        counters.latency_ns.set(sum);
        let bucket = (u64::BITS - nanoseconds.leading_zeros()) as usize;
        let bucket = bucket.min(LATENCY_BUCKETS - 1);
        increase(&counters.latency_histogram[bucket], 1);
    }

    pub(super) fn get(&self) -> VolumeStatistics {
        let kinds = std::array::from_fn(|index| {
            let counters = &self.kinds[index];
            KindStatistics {
                succeeded: counters.succeeded.get(),
                failed: counters.failed.get(),
                blocks: counters.blocks.get(),
                in_flight: counters.in_flight.get(),
                latency_ns: counters.latency_ns.get(),
                latency_histogram: std::array::from_fn(|bucket| {
                    counters.latency_histogram[bucket].get()
                }),
            }
        });
        VolumeStatistics {
            kinds,
            waited_for_lock: self.waited_for_lock.get(),
            queues: 0,
        }
    }
}

/// Collects the counters of all queues; sent when the last queue has let go of it.
pub(super) struct Gathering {
    sum: Mutex<VolumeStatistics>,
    sender: Mutex<Option<Sender<VolumeStatistics>>>,
}

impl Gathering {
    pub(super) fn new(past: VolumeStatistics) -> (Arc<Self>, Receiver<VolumeStatistics>) {
        let (sender, receiver) = oneshot();
        let gathering = Gathering {
            sum: Mutex::new(past),
            sender: Mutex::new(Some(sender)),
        };
        (Arc::new(gathering), receiver)
    }

    pub(super) fn add(&self, counters: &Counters) {
        let mut sum = lock(&self.sum);
        sum.add(&counters.get());
        sum.queues += 1;
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(sender) = lock(&self.sender).take() {
            sender.send(std::mem::take(&mut *lock(&self.sum)));
        }
    }
}
