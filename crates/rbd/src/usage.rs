//! What is told of clients and images: what a client costs this process, and how long librbd takes.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_block::OperationKind;

/// What the process had at one moment, as the system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    threads: u32,
    resident_bytes: u64,
    descriptors: u32,
}

/// What a client of a cluster, with its first image open, has added to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCost {
    /// Threads.
    pub threads: u32,
    /// Memory in the machine's, in bytes.
    pub resident_bytes: u64,
    /// Descriptors.
    pub descriptors: u32,
}

impl Usage {
    /// As it is now; none where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        // The listing's own is among them, always.
        let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count();
        Usage::of(&status, descriptors as u32)
    }

    fn of(status: &str, descriptors: u32) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Usage {
            threads: field("Threads:")? as u32,
            resident_bytes: field("VmRSS:")? << 10,
            descriptors,
        })
    }

    /// What has been added since.
    pub(crate) fn added_until(&self, now: &Usage) -> ClientCost {
        ClientCost {
            threads: now.threads.saturating_sub(self.threads),
            resident_bytes: now.resident_bytes.saturating_sub(self.resident_bytes),
            descriptors: now.descriptors.saturating_sub(self.descriptors),
        }
    }
}

/// Operations of one kind that librbd had and gave back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many.
    pub operations: u64,
    /// From the turn of the reactor in which each was handed over until that in which its end was seen, all together, in nanoseconds.
    pub nanoseconds: u64,
}

/// What librbd took, by kind of request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LibrbdTimes {
    /// Operations of requests that read.
    pub reads: Taken,
    /// Operations of requests that write.
    pub writes: Taken,
    /// All others.
    pub others: Taken,
}

impl LibrbdTimes {
    fn all(&mut self) -> [&mut Taken; 3] {
        [&mut self.reads, &mut self.writes, &mut self.others]
    }

    pub(crate) fn add(&mut self, other: &mut LibrbdTimes) {
        for (own, other) in self.all().into_iter().zip(other.all()) {
            own.operations += other.operations;
            own.nanoseconds += other.nanoseconds;
        }
    }
}

/// The same of one queue: its reactor writes, whoever asks reads.
#[derive(Debug, Default)]
pub(crate) struct QueueTimes([[AtomicU64; 2]; 3]);

impl QueueTimes {
    /// To be called by the queue's reactor alone.
    pub(crate) fn took(&self, kind: OperationKind, nanoseconds: u64) {
        let [operations, sum] = match kind {
            OperationKind::Read | OperationKind::Compare | OperationKind::Verify => &self.0[0],
            OperationKind::Write | OperationKind::CompareWrite | OperationKind::WriteZeroes => {
                &self.0[1]
            }
            _ => &self.0[2],
        };
        let add = |to: &AtomicU64, what| {
            to.store(to.load(Ordering::Relaxed) + what, Ordering::Relaxed);
        };
        add(operations, 1);
        add(sum, nanoseconds);
    }

    pub(crate) fn read(&self) -> LibrbdTimes {
        let taken = |[operations, sum]: &[AtomicU64; 2]| Taken {
            operations: operations.load(Ordering::Relaxed),
            nanoseconds: sum.load(Ordering::Relaxed),
        };
        LibrbdTimes {
            reads: taken(&self.0[0]),
            writes: taken(&self.0[1]),
            others: taken(&self.0[2]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_what_the_system_tells() {
        let status = |threads, kib| format!("Name:\tx\nVmRSS:\t  {kib} kB\nThreads:\t{threads}\n");
        let before = Usage::of(&status(3, 1000), 10).unwrap();
        let after = Usage::of(&status(18, 4000), 24).unwrap();
        let cost = ClientCost {
            threads: 15,
            resident_bytes: 3000 << 10,
            descriptors: 14,
        };
        assert_eq!(before.added_until(&after), cost);
        let none = before.added_until(&Usage::of(&status(2, 900), 10).unwrap());
        assert_eq!((none.threads, none.resident_bytes), (0, 0));
        assert_eq!(Usage::of("Threads:\t3\n", 1), None);
        let now = Usage::now().expect("this system tells");
        assert!(now.threads > 0 && now.resident_bytes > 0 && now.descriptors > 0);
    }

    #[test]
    fn times_are_summed_by_kind() {
        let queue = QueueTimes::default();
        for (kind, nanoseconds) in [
            (OperationKind::Read, 5),
            (OperationKind::Read, 7),
            (OperationKind::Write, 11),
            (OperationKind::Flush, 13),
        ] {
            queue.took(kind, nanoseconds);
        }
        let mut all = queue.read();
        all.add(&mut queue.read());
        let taken = |operations, nanoseconds| Taken {
            operations,
            nanoseconds,
        };
        assert_eq!(
            (all.reads, all.writes, all.others),
            (taken(4, 24), taken(2, 22), taken(2, 26))
        );
    }
}
