//! What a guard counts: on each queue without a lock, gathered when asked for.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use weir_block::{InFlight, Operation, OperationKind};
use weir_reactor::{Receiver, Sender, oneshot};

use crate::support::lock;

/// The kinds of operation, in the order of their declaration.
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

const _: () = {
    let mut at = 0;
    while at < KINDS.len() {
        assert!(KINDS[at] as usize == at);
        at += 1;
    }
};

/// Counters of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindStatistics {
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed, a miscompare among them.
    pub failed: u64,
    /// Blocks of the requests that succeeded.
    pub blocks: u64,
    /// Requests that were taken and have not ended.
    pub in_flight: u64,
}

impl KindStatistics {
    fn add(&mut self, other: &KindStatistics) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.blocks += other.blocks;
        self.in_flight += other.in_flight;
    }
}

/// Counters of a volume since it was opened, over all queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeStatistics {
    kinds: [KindStatistics; KINDS.len()],
    /// Requests that had to wait for a range lock, or for what a lost connection of their host had left.
    pub waited_for_lock: u64,
    /// Queues that are open.
    pub queues: u64,
}

impl VolumeStatistics {
    /// The counters of one kind.
    #[must_use]
    pub fn kind(&self, kind: OperationKind) -> &KindStatistics {
        &self.kinds[kind as usize]
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
    /// Of each kind: requests that succeeded, requests that failed, blocks of those that succeeded.
    kinds: [[Cell<u64>; 3]; KINDS.len()],
    waited_for_lock: Cell<u64>,
}

fn increase(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

impl Counters {
    pub(super) fn waited_for_lock(&self) {
        increase(&self.waited_for_lock, 1);
    }

    #[inline]
    pub(super) fn ended(&self, operation: &Operation, ok: bool) {
        let [succeeded, failed, all_blocks] = &self.kinds[operation.kind() as usize];
        if ok {
            increase(succeeded, 1);
            let blocks = operation.range().map_or(0, |(_, blocks)| blocks);
            increase(all_blocks, blocks);
        } else {
            increase(failed, 1);
        }
    }

    /// The counters of a queue that is gone.
    pub(super) fn past(&self) -> VolumeStatistics {
        let kinds = self
            .kinds
            .each_ref()
            .map(|[succeeded, failed, blocks]| KindStatistics {
                succeeded: succeeded.get(),
                failed: failed.get(),
                blocks: blocks.get(),
                in_flight: 0,
            });
        VolumeStatistics {
            kinds,
            waited_for_lock: self.waited_for_lock.get(),
            queues: 0,
        }
    }

    /// The counters of a queue that is open, with the requests that `in_flight` visits.
    pub(super) fn now(&self, in_flight: impl FnOnce(&mut dyn FnMut(InFlight))) -> VolumeStatistics {
        let mut counted = self.past();
        counted.queues = 1;
        in_flight(&mut |request| counted.kinds[request.kind as usize].in_flight += 1);
        counted
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

    pub(super) fn add(&self, counted: &VolumeStatistics) {
        lock(&self.sum).add(counted);
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(sender) = lock(&self.sender).take() {
            sender.send(std::mem::take(&mut *lock(&self.sum)));
        }
    }
}
