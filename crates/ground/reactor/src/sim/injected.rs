//! The record of the faults that were carried out: which, where, and for how long. What fails or takes long without one of them is
//! a defect of the code under test.

use std::path::PathBuf;
use std::time::Duration;

use super::settings::HostId;

/// Kind of a fault that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A segment took [`super::Faults::delay_spike`] longer.
    DelaySpike,
    /// A connection was cut, until both ends are told.
    Cut,
    /// A connection fell silent, until neither end held it any more.
    Silence,
    /// Nothing passed between two hosts.
    Partition,
    /// An accept failed.
    AcceptError,
    /// A reactor stood still.
    ReactorStall,
    /// A disk operation took [`super::Faults::disk_stall`] longer.
    DiskStall,
    /// A file or device was silent, until it had worked off what it kept back.
    SilentDisk,
    /// A read from the disk failed.
    ReadError,
    /// A write, or a change of allocation, failed.
    WriteError,
    /// A sync failed.
    SyncError,
    /// A write was not written back.
    WritebackError,
    /// A host was down.
    Crash,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 13] = [
        FaultKind::DelaySpike,
        FaultKind::Cut,
        FaultKind::Silence,
        FaultKind::Partition,
        FaultKind::AcceptError,
        FaultKind::ReactorStall,
        FaultKind::DiskStall,
        FaultKind::SilentDisk,
        FaultKind::ReadError,
        FaultKind::WriteError,
        FaultKind::SyncError,
        FaultKind::WritebackError,
        FaultKind::Crash,
    ];
}

/// A fault that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// The fault.
    pub kind: FaultKind,
    /// The two hosts that it came between; where it is of one host, that one twice.
    pub hosts: (HostId, HostId),
    /// The file or device, of a disk's fault.
    pub path: Option<PathBuf>,
    /// When it began.
    pub from: Duration,
    /// When it was over; none while it goes on.
    pub until: Option<Duration>,
}
