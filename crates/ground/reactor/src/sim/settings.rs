//! The properties of a simulated world, and the faults in it.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A machine of the simulated world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub usize);

impl From<usize> for HostId {
    fn from(index: usize) -> Self {
        HostId(index)
    }
}

/// The properties of a simulated world. Fixed when it is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Decides everything that is random: the same seed, the same run.
    pub seed: u64,
    /// Processors of each host.
    pub processors: usize,
    /// Faults of the world, until [`super::World::set_faults`] changes it.
    pub faults: Faults,
    /// Bytes that a socket buffers in each direction where its options say nothing.
    pub socket_buffer: usize,
    /// Bytes of one buffer that a ring receive fills.
    pub receive_buffer: usize,
    /// Bytes of such buffers that one reactor has, beside its own pool: those that readers hold are not received into.
    pub receive_pool_bytes: usize,
    /// The time for which a connection is attempted before `ETIMEDOUT`.
    pub connect_timeout: Duration,
    /// The time for which sent data stays unacknowledged before `ETIMEDOUT`, where no TCP_USER_TIMEOUT is set.
    pub retransmission_timeout: Duration,
    /// Each host's disk.
    pub disk: DiskConfig,
    /// Rounds (one turn of every reactor) that one run may take.
    pub rounds_max: u64,
    /// Simulated time that one run may take.
    pub time_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 0,
            processors: 4,
            faults: Faults::default(),
            socket_buffer: 128 << 10,
            receive_buffer: 16 << 10,
            receive_pool_bytes: 8 << 20,
            connect_timeout: Duration::from_secs(127),
            retransmission_timeout: Duration::from_secs(924),
            disk: DiskConfig::default(),
            rounds_max: 20_000_000,
            time_max: Duration::from_secs(24 * 3600),
        }
    }
}

/// The properties of a host's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskConfig {
    /// Bytes that its files may occupy together; above, `ENOSPC`. Block devices have room of their own.
    pub capacity: u64,
    /// Bytes that are written whole or not at all when the power fails.
    pub physical_block: u32,
    /// Direct I/O is possible.
    pub direct: bool,
    /// The alignment that direct I/O needs of the address and length of each buffer, in bytes.
    pub memory_alignment: u32,
    /// The alignment that direct I/O needs of offset and length, in bytes.
    pub offset_alignment: u32,
    /// Block devices lose completed writes that were not synced when the power fails. (Files always may.)
    pub volatile_cache: bool,
    /// Ranges can be deallocated; otherwise `EOPNOTSUPP`.
    pub punch_hole: bool,
    /// Ranges can be zeroed in place; otherwise `EOPNOTSUPP`.
    pub zero_range: bool,
}

impl Default for DiskConfig {
    fn default() -> Self {
        DiskConfig {
            capacity: 1 << 40,
            physical_block: 512,
            direct: true,
            memory_alignment: 512,
            offset_alignment: 512,
            volatile_cache: true,
            punch_hole: true,
            zero_range: true,
        }
    }
}

/// Faults, and the time that operations take. The default injects nothing but random delays and segmentation.
/// `docs/fault-model.md` says what each fault stands for and what must survive it.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Time of a segment from one end of a connection to the other.
    pub network_delay: RangeInclusive<Duration>,
    /// Bytes of the largest segment; 1 delivers byte by byte.
    pub segment_bytes_max: usize,
    /// Probability that a segment takes [`Faults::delay_spike`] longer.
    pub delay_spike_probability: f64,
    /// The time by which it is late.
    pub delay_spike: RangeInclusive<Duration>,
    /// Probability, per segment, that its connection is cut instead: both ends see `ECONNRESET`.
    pub cut_probability: f64,
    /// Probability that an accept that would succeed fails with `EMFILE` (its connection waits on).
    pub accept_error_probability: f64,
    /// Time of a read from the disk.
    pub read_delay: RangeInclusive<Duration>,
    /// Time of a write, and of a change of allocation.
    pub write_delay: RangeInclusive<Duration>,
    /// Time of a sync.
    pub sync_delay: RangeInclusive<Duration>,
    /// Probability that a disk operation takes [`Faults::disk_stall`] longer.
    pub disk_stall_probability: f64,
    /// The time by which it is late.
    pub disk_stall: RangeInclusive<Duration>,
    /// Probability that a read fails with `EIO`.
    pub read_error_probability: f64,
    /// Probability that a write or change of allocation fails with `EIO`; it may have been done in part or in whole.
    pub write_error_probability: f64,
    /// Probability that a sync fails with `EIO`; what it should have made durable no later sync makes durable.
    pub sync_error_probability: f64,
    /// Probability that a write that ends well and is not durable is not written back: no sync makes it durable. The next sync or durable
    /// write by each file that is open then fails with `EIO`, once.
    pub writeback_error_probability: f64,
    /// When offloaded work is run.
    pub offload_delay: RangeInclusive<Duration>,
    /// Probability, per reactor and round, that a reactor stands still for [`Faults::reactor_stall`].
    pub reactor_stall_probability: f64,
    /// For how long.
    pub reactor_stall: RangeInclusive<Duration>,
}

const fn microseconds(range: (u64, u64)) -> RangeInclusive<Duration> {
    Duration::from_micros(range.0)..=Duration::from_micros(range.1)
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            network_delay: microseconds((5, 200)),
            segment_bytes_max: 64 << 10,
            delay_spike_probability: 0.0,
            delay_spike: microseconds((10_000, 2_000_000)),
            cut_probability: 0.0,
            accept_error_probability: 0.0,
            read_delay: microseconds((20, 300)),
            write_delay: microseconds((10, 300)),
            sync_delay: microseconds((50, 2_000)),
            disk_stall_probability: 0.0,
            disk_stall: microseconds((100_000, 20_000_000)),
            read_error_probability: 0.0,
            write_error_probability: 0.0,
            sync_error_probability: 0.0,
            writeback_error_probability: 0.0,
            offload_delay: microseconds((1, 1_000)),
            reactor_stall_probability: 0.0,
            reactor_stall: microseconds((100, 50_000)),
        }
    }
}

impl Faults {
    /// Nothing fails and nothing takes time: for tests that look at something else.
    #[must_use]
    pub fn none() -> Self {
        let at_once = Duration::ZERO..=Duration::ZERO;
        Faults {
            network_delay: at_once.clone(),
            read_delay: at_once.clone(),
            write_delay: at_once.clone(),
            sync_delay: at_once.clone(),
            offload_delay: at_once,
            ..Faults::default()
        }
    }
}

/// The way in which a host goes down. See [`super::World::crash`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Its processes are killed; its kernel lives: connections are closed or reset, what was written stays.
    Process,
    /// Its power fails: peers hear nothing more, and of what was not synced some is lost or torn.
    Power,
}
