//! What is fixed when a target starts.

use std::time::Duration;

use weir_front::{HubLimits, Limits};
use weir_nvme::identify::SglSupport;
use weir_nvme::log::TransportType;
use weir_nvme_core::{CoreConfig, PAGE_BYTES};

/// In-capsule data that is accepted with every admin and Fabrics command (NVMe/TCP Transport 1.0, section 3.3.2.1).
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// The longest in-capsule data that can be configured, in bytes.
pub const IN_CAPSULE_BYTES_MAX: u32 = 64 << 10;
/// The shortest longest transfer that can be configured, in bytes: one page cannot be said, since MDTS counts in powers of two of pages, and 0 is no limit.
const TRANSFER_BYTES_MIN: u32 = 2 * PAGE_BYTES;
/// The longest transfer that can be configured, in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 4 << 20;
/// Entries of the smallest queue that a host asks for when it makes an admin queue.
const QUEUE_DEPTH_MIN: u16 = 32;
/// The most entries of a queue that can be configured.
const QUEUE_DEPTH_MAX: u16 = 4096;
/// The longest keep-alive timeout that Identify's KAS can still divide, for bounds.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The limits and sizes of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetConfig {
    /// Connections at most, of all hosts. Those above are closed when they arrive.
    pub max_connections: u32,
    /// Connections at most that are served and have not finished their Connect. Those above wait, twice as long as
    /// `handshake_timeout` at most, and are closed then; a quarter of `max_connections` may wait, and further ones are closed when
    /// they arrive. The last quarter is for addresses that have fewer than an eighth.
    pub max_half_open: u32,
    /// Of these, those of one address (of one /64 with IPv6) at most. With those that wait, an address has a quarter of
    /// `max_connections` at most; further ones are closed when they arrive.
    pub max_half_open_per_address: u32,
    /// For how long a connection may take from being accepted to the end of its Connect.
    pub handshake_timeout: Duration,
    /// How long a host may take to move on with what it began to send, was asked to send, or is sent: by 16 KiB or by what is
    /// left, and by more where so much is held for it that it would take longer than ten minutes. It has twice as long at most; then
    /// its connection ends.
    pub progress_timeout: Duration,
    /// Entries of a queue at most (MQES + 1), 32 to 4096.
    pub queue_depth: u16,
    /// I/O queues of one controller at most. No more than `max_half_open_per_address` is wise: hosts open all before they connect
    /// one.
    pub io_queues_max: u16,
    /// Controllers at most that one host has on one subsystem.
    pub controllers_per_host_max: u16,
    /// Controllers at most, of all hosts and subsystems. Further ones are refused as busy.
    pub controllers_max: u32,
    /// Data of one connection's commands at once, in bytes, at least `mdts_bytes`: what its host is asked for, what it is
    /// sent and has not taken, and what Verify has read and Copy moves. Further commands wait. What comes in capsules has the
    /// bound of the reactor's pool.
    pub bytes_in_flight_per_connection: u32,
    /// The same for all connections of one reactor.
    pub bytes_in_flight: u64,
    /// In-capsule data of an I/O command, in bytes: 0 or a multiple of 16 up to [`IN_CAPSULE_BYTES_MAX`].
    pub in_capsule_bytes: u32,
    /// The longest transfer of one command (MDTS), and of one H2CData PDU (MAXH2CDATA), in bytes: a power of two from 8192
    /// to [`TRANSFER_BYTES_MAX`].
    pub mdts_bytes: u32,
    /// The longest data of one C2HData PDU, in bytes: a multiple of 4, at least 4096.
    pub max_c2h_data: u32,
    /// The shortest keep-alive timeout that is used; shorter ones are lengthened to it.
    pub keep_alive_min: Duration,
    /// The longest keep-alive timeout that is accepted.
    pub keep_alive_max: Duration,
    /// How long a persistent discovery controller without a keep-alive timeout of its own lives without a command.
    pub discovery_keep_alive: Duration,
    /// Requests in flight at most on one reactor's queue of one volume.
    pub volume_queue_depth: u32,
}

impl Default for TargetConfig {
    fn default() -> Self {
        TargetConfig {
            max_connections: 4096,
            max_half_open: 128,
            max_half_open_per_address: 64,
            handshake_timeout: Duration::from_secs(10),
            progress_timeout: Duration::from_secs(30),
            queue_depth: 128,
            io_queues_max: 128,
            controllers_per_host_max: 16,
            controllers_max: 1024,
            bytes_in_flight_per_connection: 64 << 20,
            bytes_in_flight: 1 << 30,
            in_capsule_bytes: 16_384,
            mdts_bytes: 1 << 20,
            max_c2h_data: 1 << 20,
            keep_alive_min: Duration::from_secs(1),
            keep_alive_max: Duration::from_secs(3600),
            discovery_keep_alive: Duration::from_secs(120),
            volume_queue_depth: 512,
        }
    }
}

/// A value of [`TargetConfig`] that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but must be {allowed}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

fn check(
    holds: bool,
    field: &'static str,
    value: impl std::fmt::Debug,
    allowed: impl Into<String>,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError {
        field,
        value: format!("{value:?}"),
        allowed: allowed.into(),
    })
}

impl TargetConfig {
    /// Whether every value is allowed.
    ///
    /// # Errors
    /// The first value that is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(
            self.max_connections > 0,
            "max_connections",
            self.max_connections,
            "at least 1",
        )?;
        check(
            self.max_half_open > 0,
            "max_half_open",
            self.max_half_open,
            "at least 1",
        )?;
        check(
            self.max_half_open_per_address > 0,
            "max_half_open_per_address",
            self.max_half_open_per_address,
            "at least 1",
        )?;
        check(
            !self.handshake_timeout.is_zero(),
            "handshake_timeout",
            self.handshake_timeout,
            "longer than nothing",
        )?;
        check(
            !self.progress_timeout.is_zero(),
            "progress_timeout",
            self.progress_timeout,
            "longer than nothing",
        )?;
        check(
            (QUEUE_DEPTH_MIN..=QUEUE_DEPTH_MAX).contains(&self.queue_depth),
            "queue_depth",
            self.queue_depth,
            format!("{QUEUE_DEPTH_MIN} to {QUEUE_DEPTH_MAX}"),
        )?;
        check(
            (1..=1024).contains(&self.io_queues_max),
            "io_queues_max",
            self.io_queues_max,
            "1 to 1024",
        )?;
        check(
            self.controllers_per_host_max > 0,
            "controllers_per_host_max",
            self.controllers_per_host_max,
            "at least 1",
        )?;
        check(
            self.controllers_max > 0,
            "controllers_max",
            self.controllers_max,
            "at least 1",
        )?;
        check(
            self.bytes_in_flight_per_connection >= self.mdts_bytes,
            "bytes_in_flight_per_connection",
            self.bytes_in_flight_per_connection,
            "at least mdts_bytes",
        )?;
        check(
            self.bytes_in_flight >= u64::from(self.mdts_bytes),
            "bytes_in_flight",
            self.bytes_in_flight,
            "at least mdts_bytes",
        )?;
        check(
            self.in_capsule_bytes <= IN_CAPSULE_BYTES_MAX
                && self.in_capsule_bytes.is_multiple_of(16),
            "in_capsule_bytes",
            self.in_capsule_bytes,
            format!("a multiple of 16 up to {IN_CAPSULE_BYTES_MAX}"),
        )?;
        check(
            (TRANSFER_BYTES_MIN..=TRANSFER_BYTES_MAX).contains(&self.mdts_bytes)
                && self.mdts_bytes.is_power_of_two(),
            "mdts_bytes",
            self.mdts_bytes,
            format!("a power of two, {TRANSFER_BYTES_MIN} to {TRANSFER_BYTES_MAX}"),
        )?;
        check(
            self.max_c2h_data >= PAGE_BYTES && self.max_c2h_data.is_multiple_of(4),
            "max_c2h_data",
            self.max_c2h_data,
            "a multiple of 4, at least 4096",
        )?;
        check(
            self.keep_alive_min <= self.keep_alive_max && self.keep_alive_max <= KEEP_ALIVE_MAX,
            "keep_alive_max",
            self.keep_alive_max,
            "at least keep_alive_min, and at most a day",
        )?;
        check(
            self.volume_queue_depth > 0,
            "volume_queue_depth",
            self.volume_queue_depth,
            "at least 1",
        )
    }

    /// Its limits for connections of any protocol.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_connections: self.max_connections,
            max_half_open: self.max_half_open,
            max_half_open_per_address: self.max_half_open_per_address,
            handshake_timeout: self.handshake_timeout,
            progress_timeout: self.progress_timeout,
        }
    }

    /// What each reactor may have for it.
    pub(crate) fn hub_limits(&self) -> HubLimits {
        HubLimits {
            bytes_in_flight: self.bytes_in_flight,
            volume_queue_depth: self.volume_queue_depth,
        }
    }

    /// The limits of its controllers, and what TCP is like.
    pub(crate) fn core(&self) -> CoreConfig {
        CoreConfig {
            transport: TransportType::Tcp,
            sgl_support: SglSupport::SUPPORTED
                | SglSupport::OFFSET_ADDRESS
                | SglSupport::TRANSPORT_DATA_BLOCK,
            queue_depth: self.queue_depth,
            io_queues_max: self.io_queues_max,
            controllers_per_host_max: self.controllers_per_host_max,
            controllers_max: self.controllers_max,
            in_capsule_bytes: self.in_capsule_bytes,
            admin_in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            mdts_bytes: self.mdts_bytes,
            keep_alive_min: self.keep_alive_min,
            keep_alive_max: self.keep_alive_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_allowed() {
        let config = TargetConfig::default();
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let config = TargetConfig {
            mdts_bytes: 12288,
            ..TargetConfig::default()
        };
        let error = config.check().expect_err("three pages are no power of two");
        assert_eq!(error.field, "mdts_bytes");
        assert!(error.to_string().contains("12288"), "{error}");
    }
}
