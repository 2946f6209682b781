//! What a drive says of itself.

use std::pin::Pin;

/// What came of asking a drive for its health.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HealthReport {
    /// What it says; none where there is no drive, or none that says anything.
    pub health: Option<Health>,
    /// Which drives they are, in their own words: model, firmware, serial number. None of a drive that does not say.
    pub drives: Vec<String>,
    /// Why something is not said that a drive could say, in words.
    pub unknown: Vec<String>,
}

impl HealthReport {
    /// Nothing is known, for this reason.
    #[must_use]
    pub fn unknown(reason: String) -> Self {
        HealthReport {
            unknown: vec![reason],
            ..HealthReport::default()
        }
    }
}

impl From<Health> for HealthReport {
    fn from(health: Health) -> Self {
        HealthReport {
            health: Some(health),
            ..HealthReport::default()
        }
    }
}

/// What a drive says, when it has said it. To be awaited on the reactor that it was asked on.
pub type HealthFuture = Pin<Box<dyn Future<Output = HealthReport>>>;

/// Counters of a drive since it was made. Each is `None` where the drive does not say.
///
/// The first are those of NVMe's SMART / Health Information log page (NVM Express Base Specification 2.0, section 5.16.1.3), in bytes and
/// nanoseconds instead of its units; the media's and those of throttling are those of OCP's extended log page (Datacenter NVMe SSD Specification, log C0h);
/// those of the cache are what vendors keep in logs of their own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Health {
    /// Bytes that hosts wrote (Data Units Written).
    pub data_units_written_bytes: Option<u64>,
    /// Bytes that hosts read (Data Units Read).
    pub data_units_read_bytes: Option<u64>,
    /// Write commands of hosts (Host Write Commands).
    pub host_write_commands: Option<u64>,
    /// Read commands of hosts (Host Read Commands).
    pub host_read_commands: Option<u64>,
    /// Endurance that is used up, in percent of what the vendor rates (Percentage Used). It may exceed 100.
    pub percentage_used: Option<f64>,
    /// Spare that is left, in percent (Available Spare).
    pub available_spare_percent: Option<f64>,
    /// Temperature (Composite Temperature), in kelvin.
    pub temperature_kelvin: Option<f64>,
    /// For how long heat has slowed the drive down (Thermal Management Temperature 1 and 2 Time, together).
    pub thermal_throttle_nanoseconds: Option<u64>,
    /// How often heat began to slow it down (Thermal Management Temperature 1 and 2 Transition Count, together).
    pub thermal_throttle_transitions: Option<u64>,
    /// What it warns of, as the bits of Critical Warning.
    pub critical_warning: Option<u8>,
    /// Minutes in which it was as warm as its warning threshold or warmer, and not as its critical one (Warning Composite Temperature Time).
    pub warning_temperature_minutes: Option<u64>,
    /// Minutes in which it was as warm as its critical threshold or warmer (Critical Composite Temperature Time).
    pub critical_temperature_minutes: Option<u64>,
    /// How much heat slows it down now: 0 is not at all, 1 to 3 are levels of it (Current Throttling Status).
    pub throttling_level: Option<u8>,
    /// Bytes written to the media, for hosts and on the drive's own account (Physical Media Units Written).
    pub media_bytes_written: Option<u64>,
    /// Bytes moved from the cache to where they stay.
    pub folded_bytes: Option<u64>,
    /// Bytes moved by garbage collection.
    pub collected_bytes: Option<u64>,
    /// Bytes in the cache.
    pub cache_bytes_used: Option<u64>,
    /// How much the cache takes now.
    pub cache_bytes_size: Option<u64>,
}

impl Health {
    /// Two drives as one: counters added up, the worse of what is no count. What one of them does not say, both do not.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
            Some(one?.saturating_add(other?))
        }
        fn most(one: Option<f64>, other: Option<f64>) -> Option<f64> {
            Some(one?.max(other?))
        }
        Health {
            data_units_written_bytes: sum(
                self.data_units_written_bytes,
                other.data_units_written_bytes,
            ),
            data_units_read_bytes: sum(self.data_units_read_bytes, other.data_units_read_bytes),
            host_write_commands: sum(self.host_write_commands, other.host_write_commands),
            host_read_commands: sum(self.host_read_commands, other.host_read_commands),
            percentage_used: most(self.percentage_used, other.percentage_used),
            available_spare_percent: self
                .available_spare_percent
                .zip(other.available_spare_percent)
                .map(|(one, other)| one.min(other)),
            temperature_kelvin: most(self.temperature_kelvin, other.temperature_kelvin),
            thermal_throttle_nanoseconds: sum(
                self.thermal_throttle_nanoseconds,
                other.thermal_throttle_nanoseconds,
            ),
            thermal_throttle_transitions: sum(
                self.thermal_throttle_transitions,
                other.thermal_throttle_transitions,
            ),
            critical_warning: self
                .critical_warning
                .zip(other.critical_warning)
                .map(|(one, other)| one | other),
            warning_temperature_minutes: sum(
                self.warning_temperature_minutes,
                other.warning_temperature_minutes,
            ),
            critical_temperature_minutes: sum(
                self.critical_temperature_minutes,
                other.critical_temperature_minutes,
            ),
            throttling_level: self
                .throttling_level
                .zip(other.throttling_level)
                .map(|(one, other)| one.max(other)),
            media_bytes_written: sum(self.media_bytes_written, other.media_bytes_written),
            folded_bytes: sum(self.folded_bytes, other.folded_bytes),
            collected_bytes: sum(self.collected_bytes, other.collected_bytes),
            cache_bytes_used: sum(self.cache_bytes_used, other.cache_bytes_used),
            cache_bytes_size: sum(self.cache_bytes_size, other.cache_bytes_size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_drives_counts_add_up_and_the_worse_is_told() {
        let one = Health {
            data_units_written_bytes: Some(3),
            media_bytes_written: Some(5),
            percentage_used: Some(2.0),
            available_spare_percent: Some(90.0),
            temperature_kelvin: Some(300.0),
            critical_warning: Some(0b1),
            warning_temperature_minutes: Some(1),
            throttling_level: Some(2),
            ..Health::default()
        };
        let other = Health {
            data_units_written_bytes: Some(4),
            percentage_used: Some(7.0),
            available_spare_percent: Some(100.0),
            temperature_kelvin: Some(299.0),
            critical_warning: Some(0b100),
            warning_temperature_minutes: Some(2),
            throttling_level: Some(0),
            ..Health::default()
        };
        let both = Health {
            data_units_written_bytes: Some(7),
            percentage_used: Some(7.0),
            available_spare_percent: Some(90.0),
            temperature_kelvin: Some(300.0),
            critical_warning: Some(0b101),
            warning_temperature_minutes: Some(3),
            throttling_level: Some(2),
            ..Health::default()
        };
        assert_eq!(one.with(other), both);
        assert_eq!(one.with(Health::default()), Health::default());
    }
}
