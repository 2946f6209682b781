//! The Error Information log: what failed lately on a controller's queues (NVMe Base 2.0c, section 5.16.1.2).

use std::collections::VecDeque;

use weir_nvme::Status;

/// A command that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) qid: u16,
    pub(crate) cid: u16,
    pub(crate) status: Status,
    /// Byte and bit of the entry where the fault is; FFFFh where it is not a field's.
    pub(crate) parameter: u16,
    pub(crate) lba: u64,
    pub(crate) nsid: u32,
    pub(crate) opcode: u8,
}

impl Failure {
    /// The fault is in no field of the entry.
    pub(crate) const NO_PARAMETER: u16 = 0xffff;
}

/// The latest failures, newest first, and how many there were.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    entries: VecDeque<(u64, Failure)>,
    count: u64,
}

impl ErrorLog {
    /// Entries that are kept (ELPE + 1).
    pub(crate) const ENTRIES: usize = 64;

    pub(crate) fn record(&mut self, failure: Failure) {
        self.count += 1;
        self.entries.truncate(Self::ENTRIES - 1);
        self.entries.push_front((self.count, failure));
    }

    /// Errors so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The entries with their numbers, newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, Failure)> {
        self.entries.iter()
    }
}
