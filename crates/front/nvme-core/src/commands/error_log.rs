//! The Error Information log: what failed lately on a controller's queues (NVMe Base 2.0c, section 5.16.1.2).

use std::collections::VecDeque;

use weir_nvme::Status;

/// A command that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub qid: u16,
    pub cid: u16,
    pub status: Status,
    /// Byte and bit of the entry where the fault is; FFFFh where it is not a field's.
    pub parameter: u16,
    pub lba: u64,
    pub nsid: u32,
    pub opcode: u8,
}

impl Failure {
    /// The fault is in no field of the entry.
    pub const NO_PARAMETER: u16 = 0xffff;
}

/// The latest failures, newest first, and how many there were.
#[derive(Debug, Default)]
pub struct ErrorLog {
    entries: VecDeque<(u64, Failure)>,
    count: u64,
}

impl ErrorLog {
    /// Entries that are kept (ELPE + 1).
    pub const ENTRIES: usize = 64;

    /// Adds a command that failed; the oldest one goes.
    pub fn record(&mut self, failure: Failure) {
        self.count += 1;
        self.entries.truncate(Self::ENTRIES - 1);
        self.entries.push_front((self.count, failure));
    }

    /// Errors so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The entries with their numbers, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, Failure)> {
        self.entries.iter()
    }
}
