//! Counters that one reactor writes and any thread reads. A count costs a load and a store, no read-modify-write.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the reactor that owns the counter may call this.
    pub(crate) fn add(&self, count: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it: a gauge. As for [`Counter::add`].
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one reactor did for one subsystem; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct IoCounters {
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) other_commands: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) media_errors: Counter,
    pub(crate) failed_commands: Counter,
}

/// What hosts did with a subsystem, or with a target, since the target started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoTotals {
    /// Read, Compare and Verify commands that ended well.
    pub reads: u64,
    /// Write commands that ended well.
    pub writes: u64,
    /// Other commands of I/O queues that ended well.
    pub other_commands: u64,
    /// Bytes sent to hosts as data of Read commands.
    pub bytes_read: u64,
    /// Bytes received from hosts as data of Write commands.
    pub bytes_written: u64,
    /// Commands that failed because a medium did.
    pub media_errors: u64,
    /// Commands that failed for any reason.
    pub failed_commands: u64,
}

impl IoTotals {
    pub(crate) fn add(&mut self, counters: &IoCounters) {
        self.reads += counters.reads.get();
        self.writes += counters.writes.get();
        self.other_commands += counters.other_commands.get();
        self.bytes_read += counters.bytes_read.get();
        self.bytes_written += counters.bytes_written.get();
        self.media_errors += counters.media_errors.get();
        self.failed_commands += counters.failed_commands.get();
    }
}

/// What happened to the connections of one reactor.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ConnectionCounters {
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    pub(crate) over_connections: Counter,
    pub(crate) over_address: Counter,
    pub(crate) over_half_open: Counter,
    pub(crate) over_controllers: Counter,
    pub(crate) buffer_waits: Counter,
    pub(crate) own_waits: Counter,
    pub(crate) bytes_in_flight: Counter,
    pub(crate) handshake_timeouts: Counter,
    pub(crate) keep_alive_expiries: Counter,
    pub(crate) terminated: Counter,
    pub(crate) lost: Counter,
    pub(crate) stalled_arriving: Counter,
    pub(crate) stalled_awaited: Counter,
    pub(crate) stalled_sending: Counter,
    pub(crate) data_digest_errors: Counter,
    pub(crate) panics: Counter,
    pub(crate) bytes_received: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) sends: Counter,
}
