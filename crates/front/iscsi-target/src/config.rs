//! What is fixed when the front end starts.

use std::time::Duration;

use weir_front::{HubLimits, Limits};

/// The longest transfer of one command that can be configured, in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// The portal group tag of every portal: a session may use any of them, and no two of its connections are spread over them.
pub const PORTAL_GROUP: u16 = 1;

/// Limits and sizes of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IscsiConfig {
    /// Who is let in, and how long they may take.
    pub connections: Limits,
    /// Sessions at most, of all initiators.
    pub sessions_max: u32,
    /// Sessions at most of one initiator with one target.
    pub sessions_per_initiator_max: u32,
    /// Commands that one session may have under way at most: the widest command window.
    pub commands_max: u16,
    /// The longest data segment that is received (MaxRecvDataSegmentLength), in bytes.
    pub receive_segment_bytes: u32,
    /// The longest data segment that is sent, whatever the initiator would take, in bytes.
    pub send_segment_bytes: u32,
    /// Unsolicited data of one command at most (FirstBurstLength), in bytes. Each command that an initiator may send keeps so much room.
    pub first_burst_bytes: u32,
    /// Data of one R2T, or of one sequence of Data-In PDUs, at most (MaxBurstLength), in bytes.
    pub max_burst_bytes: u32,
    /// R2Ts of one command under way at most (MaxOutstandingR2T).
    pub outstanding_r2t: u16,
    /// Whether data may come with a command (ImmediateData).
    pub immediate_data: bool,
    /// Whether data beside that has to wait until it is asked for (InitialR2T).
    pub initial_r2t: bool,
    /// The longest transfer of one command, in bytes.
    pub transfer_bytes_max: u32,
    /// Data of one session's commands at once, in bytes. Further commands wait.
    pub bytes_in_flight_per_session: u32,
    /// How long an initiator may be silent before it is asked whether it is there (NOP-In). As long again, and its session ends.
    pub nop_interval: Duration,
}

impl Default for IscsiConfig {
    fn default() -> Self {
        IscsiConfig {
            connections: Limits::default(),
            sessions_max: 1024,
            sessions_per_initiator_max: 64,
            commands_max: 128,
            receive_segment_bytes: 256 << 10,
            send_segment_bytes: 256 << 10,
            first_burst_bytes: 64 << 10,
            max_burst_bytes: 1 << 20,
            outstanding_r2t: 4,
            immediate_data: true,
            initial_r2t: false,
            transfer_bytes_max: 4 << 20,
            bytes_in_flight_per_session: 64 << 20,
            nop_interval: Duration::from_secs(30),
        }
    }
}

/// A value of [`IscsiConfig`] that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but must be {allowed}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// What is allowed.
    pub allowed: &'static str,
}

impl IscsiConfig {
    /// Checks that every value is allowed.
    ///
    /// # Errors
    /// The first value that is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        /// Bytes that lengths are negotiated in (RFC 7143, section 13).
        const LENGTHS: std::ops::RangeInclusive<u32> = 512..=(1 << 24) - 1;
        let lengths = [
            ("receive_segment_bytes", self.receive_segment_bytes),
            ("send_segment_bytes", self.send_segment_bytes),
            ("first_burst_bytes", self.first_burst_bytes),
            ("max_burst_bytes", self.max_burst_bytes),
        ];
        for (field, value) in lengths {
            let allowed = "512 to 16777215";
            ensure(LENGTHS.contains(&value), field, value, allowed)?;
        }
        let first = self.first_burst_bytes;
        let fits = first <= self.max_burst_bytes;
        ensure(fits, "first_burst_bytes", first, "at most max_burst_bytes")?;
        let transfer = self.transfer_bytes_max;
        let fits = (4096..=TRANSFER_BYTES_MAX).contains(&transfer);
        ensure(fits, "transfer_bytes_max", transfer, "4096 to 16777216")?;
        let all = self.bytes_in_flight_per_session;
        let fits = all >= transfer && all >= first;
        let allowed = "at least transfer_bytes_max and first_burst_bytes";
        ensure(fits, "bytes_in_flight_per_session", all, allowed)?;
        let commands = self.commands_max;
        let fits = (1..=4096).contains(&commands);
        ensure(fits, "commands_max", commands, "1 to 4096")?;
        let r2t = self.outstanding_r2t;
        ensure((1..=64).contains(&r2t), "outstanding_r2t", r2t, "1 to 64")?;
        let sessions = self.sessions_max.min(self.sessions_per_initiator_max);
        ensure(sessions > 0, "sessions_max", sessions, "at least 1")?;
        ensure(
            !self.nop_interval.is_zero(),
            "nop_interval",
            0_u16,
            "longer than nothing",
        )
    }

    /// Limits of the hubs of a front end that is alone on its reactors.
    #[must_use]
    pub fn hub_limits() -> HubLimits {
        HubLimits::default()
    }
}

fn ensure(
    holds: bool,
    field: &'static str,
    value: impl Into<u64>,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError {
        field,
        value: value.into(),
        allowed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_bounds() {
        let default = IscsiConfig::default();
        default.check().expect("the defaults are allowed");
        let broken = [
            (
                "receive_segment_bytes",
                IscsiConfig {
                    receive_segment_bytes: 511,
                    ..default.clone()
                },
            ),
            (
                "max_burst_bytes",
                IscsiConfig {
                    max_burst_bytes: 1 << 24,
                    ..default.clone()
                },
            ),
            (
                "first_burst_bytes",
                IscsiConfig {
                    first_burst_bytes: 2 << 20,
                    ..default.clone()
                },
            ),
            (
                "transfer_bytes_max",
                IscsiConfig {
                    transfer_bytes_max: 0,
                    ..default.clone()
                },
            ),
            (
                "bytes_in_flight_per_session",
                IscsiConfig {
                    bytes_in_flight_per_session: 1 << 20,
                    ..default.clone()
                },
            ),
            (
                "commands_max",
                IscsiConfig {
                    commands_max: 0,
                    ..default.clone()
                },
            ),
            (
                "outstanding_r2t",
                IscsiConfig {
                    outstanding_r2t: 65,
                    ..default.clone()
                },
            ),
            (
                "sessions_max",
                IscsiConfig {
                    sessions_max: 0,
                    ..default.clone()
                },
            ),
            (
                "nop_interval",
                IscsiConfig {
                    nop_interval: Duration::ZERO,
                    ..default.clone()
                },
            ),
        ];
        for (field, config) in broken {
            let error = config.check().expect_err(field);
            assert_eq!(error.field, field);
        }
    }
}
