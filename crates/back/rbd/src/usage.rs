//! What is told of clients and images: what a client costs this process, and how long librbd takes.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_block::OperationKind;

use crate::auto::Load;

/// Resources that a client of a cluster, with its first image open, has added to this process; or all of the process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCost {
    /// Threads.
    pub threads: u32,
    /// Memory in the machine's, in bytes.
    pub resident_bytes: u64,
    /// Descriptors.
    pub descriptors: u32,
}

/// The thread of a client that had a processor for longest when the client was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusiestThread {
    /// Its name.
    pub name: String,
    /// Of a processor.
    pub percent: u32,
}

impl ClientCost {
    /// Asks the system for those of the process now; none where it does not tell.
    pub(crate) fn now() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        // The listing's own is among them, always.
        let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count();
        ClientCost::of(&status, descriptors as u32)
    }

    fn of(status: &str, descriptors: u32) -> Option<Self> {
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(ClientCost {
            threads: field("Threads:")? as u32,
            resident_bytes: field("VmRSS:")? << 10,
            descriptors,
        })
    }

    /// What has been added since.
    pub(crate) fn added_until(&self, now: &ClientCost) -> ClientCost {
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
    /// Bytes of transfers, each for as long as librbd had it, all together, in KiB times microseconds.
    pub kibibyte_microseconds: u64,
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
        self.kibibyte_microseconds += other.kibibyte_microseconds;
    }

    /// All kinds together.
    pub(crate) fn load(&self) -> Load {
        let mut load = Load {
            kibibyte_microseconds: self.kibibyte_microseconds,
            ..Load::default()
        };
        for taken in [self.reads, self.writes, self.others] {
            load.operations += taken.operations;
            load.nanoseconds += taken.nanoseconds;
        }
        load
    }
}

/// The same of one queue: its reactor writes, whoever asks reads.
#[derive(Debug, Default)]
pub(crate) struct QueueTimes {
    /// Operations and nanoseconds, by kind.
    kinds: [[AtomicU64; 2]; 3],
    kibibyte_microseconds: AtomicU64,
}

impl QueueTimes {
    /// An operation of so many bytes has ended. To be called by the queue's reactor alone.
    pub(crate) fn took(&self, kind: OperationKind, nanoseconds: u64, bytes: u64) {
        let [reads, writes, others] = &self.kinds;
        let [operations, sum] = match kind {
            OperationKind::Read | OperationKind::Compare | OperationKind::Verify => reads,
            OperationKind::Write | OperationKind::CompareWrite | OperationKind::WriteZeroes => {
                writes
            }
            _ => others,
        };
        let add = |to: &AtomicU64, what| {
            to.store(to.load(Ordering::Relaxed) + what, Ordering::Relaxed);
        };
        add(operations, 1);
        add(sum, nanoseconds);
        if bytes > 0 {
            add(
                &self.kibibyte_microseconds,
                (bytes >> 10) * (nanoseconds / 1000),
            );
        }
    }

    pub(crate) fn read(&self) -> LibrbdTimes {
        let taken = |[operations, sum]: &[AtomicU64; 2]| Taken {
            operations: operations.load(Ordering::Relaxed),
            nanoseconds: sum.load(Ordering::Relaxed),
        };
        LibrbdTimes {
            reads: taken(&self.kinds[0]),
            writes: taken(&self.kinds[1]),
            others: taken(&self.kinds[2]),
            kibibyte_microseconds: self.kibibyte_microseconds.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_what_the_system_tells() {
        let status = |threads, kib| format!("Name:\tx\nVmRSS:\t  {kib} kB\nThreads:\t{threads}\n");
        let before = ClientCost::of(&status(3, 1000), 10).unwrap();
        let after = ClientCost::of(&status(18, 4000), 24).unwrap();
        let cost = ClientCost {
            threads: 15,
            resident_bytes: 3000 << 10,
            descriptors: 14,
        };
        assert_eq!(before.added_until(&after), cost);
        let none = before.added_until(&ClientCost::of(&status(2, 900), 10).unwrap());
        assert_eq!((none.threads, none.resident_bytes), (0, 0));
        assert_eq!(ClientCost::of("Threads:\t3\n", 1), None);
        let now = ClientCost::now().expect("this system tells");
        assert!(now.threads > 0 && now.resident_bytes > 0 && now.descriptors > 0);
    }

    #[test]
    fn times_are_summed_by_kind() {
        let queue = QueueTimes::default();
        for (kind, nanoseconds, bytes) in [
            (OperationKind::Read, 5000, 4096),
            (OperationKind::Read, 7000, 512),
            (OperationKind::Write, 11_000, 8192),
            (OperationKind::Flush, 13_000, 0),
        ] {
            queue.took(kind, nanoseconds, bytes);
        }
        let mut all = queue.read();
        all.add(&mut queue.read());
        let taken = |operations, nanoseconds| Taken {
            operations,
            nanoseconds,
        };
        assert_eq!(
            (all.reads, all.writes, all.others),
            (taken(4, 24_000), taken(2, 22_000), taken(2, 26_000))
        );
        let load = Load {
            operations: 8,
            nanoseconds: 72_000,
            // 4 KiB for 5 us, 8 KiB for 11 us, twice; less than 1 KiB counts as none.
            kibibyte_microseconds: 2 * (4 * 5 + 8 * 11),
        };
        assert_eq!(all.load(), load);
    }
}
