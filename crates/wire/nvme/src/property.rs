//! Controller properties: what Property Get and Set read and change (NVMe Base 2.0c section 3.1.3).
//!
//! Values only; what a change of CC does is the controller's state machine.

use crate::wire::{bit, bits, open_enum};
use core::fmt;

open_enum! {
    /// A property that exists on Fabrics, by its offset (NVMe Base 2.0c section 3.1.3).
    pub enum Property: u32 {
        /// Controller Capabilities, 8 bytes; see [`Capabilities`].
        Capabilities = 0x00 => "CAP",
        /// Version, 4 bytes; see [`Version`].
        Version = 0x08 => "VS",
        /// Controller Configuration, 4 bytes; see [`Configuration`].
        Configuration = 0x14 => "CC",
        /// Controller Status, 4 bytes; see [`ControllerStatus`].
        Status = 0x1c => "CSTS",
        /// NVM Subsystem Reset, 4 bytes; see [`SUBSYSTEM_RESET`].
        SubsystemReset = 0x20 => "NSSR",
        /// Controller Ready Timeouts, 4 bytes; see [`ReadyTimeouts`].
        ReadyTimeouts = 0x68 => "CRTO",
    }
}

impl Property {
    /// Bytes of the property; `None` where it is not known.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Capabilities => Some(8),
            Self::Version
            | Self::Configuration
            | Self::Status
            | Self::SubsystemReset
            | Self::ReadyTimeouts => Some(4),
            Self::Other(_) => None,
        }
    }
}

/// The value written to NSSR that resets the subsystem: "NVMe" (NVMe Base 2.0c section 3.1.3.7).
pub const SUBSYSTEM_RESET: u32 = 0x4e56_4d65;

/// A version of the base specification: VS, and Identify Controller's VER (NVMe Base 2.0c section
/// 3.1.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// NVMe 1.3.
    pub const V1_3: Self = Self::new(1, 3, 0);
    /// NVMe 1.4.
    pub const V1_4: Self = Self::new(1, 4, 0);
    /// NVMe 2.0.
    pub const V2_0: Self = Self::new(2, 0, 0);
    /// NVMe 2.1.
    pub const V2_1: Self = Self::new(2, 1, 0);

    /// From major (MJR), minor (MNR) and tertiary (TER) numbers.
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self((major as u32) << 16 | (minor as u32) << 8 | tertiary as u32)
    }

    /// Major version number (MJR).
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Minor version number (MNR).
    pub const fn minor(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Tertiary version number (TER).
    pub const fn tertiary(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major(), self.minor())?;
        match self.tertiary() {
            0 => Ok(()),
            tertiary => write!(formatter, ".{tertiary}"),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Version({self})")
    }
}

/// Reads bits `high..=low` of a 64-bit property.
const fn wide(word: u64, high: u32, low: u32) -> u64 {
    (word >> low) & (u64::MAX >> (63 - (high - low)))
}

/// A 64-bit property with bits `high..=low` replaced. Panics where the value does not fit.
const fn with_wide(word: u64, high: u32, low: u32, value: u64) -> u64 {
    let mask = u64::MAX >> (63 - (high - low));
    assert!(value <= mask, "the value does not fit the property's field");
    word & !(mask << low) | value << low
}

/// A 32-bit property with bits `high..=low` replaced. Panics where the value does not fit.
const fn with_bits(word: u32, high: u32, low: u32, value: u32) -> u32 {
    with_wide(word as u64, high, low, value as u64) as u32
}

/// Controller Capabilities, CAP (NVMe Base 2.0c section 3.1.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Entries that a queue may have, 2 to 65536: MQES + 1.
    pub const fn maximum_queue_entries(self) -> u32 {
        wide(self.0, 15, 0) as u32 + 1
    }

    /// With a maximum of 2 to 65536 entries (MQES).
    #[must_use]
    pub const fn with_maximum_queue_entries(self, entries: u32) -> Self {
        assert!(
            entries >= 2 && entries <= 0x1_0000,
            "a queue has 2 to 65536 entries"
        );
        Self(with_wide(self.0, 15, 0, entries as u64 - 1))
    }

    /// Contiguous Queues Required (CQR); always set on Fabrics.
    pub const fn contiguous_queues_required(self) -> bool {
        wide(self.0, 16, 16) == 1
    }

    /// With Contiguous Queues Required (CQR).
    #[must_use]
    pub const fn with_contiguous_queues_required(self, required: bool) -> Self {
        Self(with_wide(self.0, 16, 16, required as u64))
    }

    /// Arbitration Mechanism Supported (AMS): bit 0 weighted round robin, bit 1 vendor specific.
    pub const fn arbitration_mechanisms(self) -> u8 {
        wide(self.0, 18, 17) as u8
    }

    /// Timeout (TO): how long CSTS.RDY may take to follow CC.EN, in units of 500 ms.
    pub const fn timeout_500ms(self) -> u8 {
        wide(self.0, 31, 24) as u8
    }

    /// With a Timeout (TO) in units of 500 ms.
    #[must_use]
    pub const fn with_timeout_500ms(self, timeout: u8) -> Self {
        Self(with_wide(self.0, 31, 24, timeout as u64))
    }

    /// NVM Subsystem Reset Supported (NSSRS).
    pub const fn subsystem_reset_supported(self) -> bool {
        wide(self.0, 36, 36) == 1
    }

    /// With NVM Subsystem Reset Supported (NSSRS).
    #[must_use]
    pub const fn with_subsystem_reset_supported(self, supported: bool) -> Self {
        Self(with_wide(self.0, 36, 36, supported as u64))
    }

    /// Command Sets Supported (CSS).
    pub const fn command_sets(self) -> u8 {
        wide(self.0, 44, 37) as u8
    }

    /// With Command Sets Supported (CSS): the `COMMAND_SETS_` bits.
    #[must_use]
    pub const fn with_command_sets(self, sets: u8) -> Self {
        Self(with_wide(self.0, 44, 37, sets as u64))
    }

    /// CSS bit 0: the NVM command set.
    pub const COMMAND_SETS_NVM: u8 = 1 << 0;
    /// CSS bit 6: one or more command sets, by Identify CNS 1Ch.
    pub const COMMAND_SETS_SELECTABLE: u8 = 1 << 6;
    /// CSS bit 7: no I/O command set, admin only.
    pub const COMMAND_SETS_ADMIN_ONLY: u8 = 1 << 7;

    /// Memory Page Size Minimum (MPSMIN): the size is 2^(12 + this).
    pub const fn memory_page_size_minimum(self) -> u8 {
        wide(self.0, 51, 48) as u8
    }

    /// Memory Page Size Maximum (MPSMAX): the size is 2^(12 + this).
    pub const fn memory_page_size_maximum(self) -> u8 {
        wide(self.0, 55, 52) as u8
    }

    /// With Memory Page Sizes from 2^(12 + `minimum`) to 2^(12 + `maximum`) bytes.
    #[must_use]
    pub const fn with_memory_page_sizes(self, minimum: u8, maximum: u8) -> Self {
        assert!(
            minimum <= maximum,
            "the smallest page is not larger than the largest"
        );
        Self(with_wide(
            with_wide(self.0, 51, 48, minimum as u64),
            55,
            52,
            maximum as u64,
        ))
    }

    /// Controller Ready Modes Supported (CRMS), bits 60:59.
    pub const fn ready_modes(self) -> u8 {
        wide(self.0, 60, 59) as u8
    }

    /// With Controller Ready Modes Supported (CRMS): the `READY_` bits.
    #[must_use]
    pub const fn with_ready_modes(self, modes: u8) -> Self {
        Self(with_wide(self.0, 60, 59, modes as u64))
    }

    /// CRMS bit 0: Controller Ready With Media Support.
    pub const READY_WITH_MEDIA: u8 = 1 << 0;
    /// CRMS bit 1: Controller Ready Independent of Media Support.
    pub const READY_INDEPENDENT_OF_MEDIA: u8 = 1 << 1;
}

/// Shutdown Notification, CC.SHN (NVMe Base 2.0c section 3.1.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShutdownNotification {
    /// 00b: none.
    #[default]
    None,
    /// 01b: normal shutdown.
    Normal,
    /// 10b: abrupt shutdown.
    Abrupt,
    /// 11b.
    Reserved,
}

/// Controller Configuration, CC (NVMe Base 2.0c section 3.1.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Configuration(pub u32);

impl Configuration {
    /// CSS 000b: the NVM command set.
    pub const COMMAND_SET_NVM: u8 = 0b000;
    /// CSS 110b: all supported command sets.
    pub const COMMAND_SET_ALL: u8 = 0b110;
    /// CSS 111b: admin commands only.
    pub const COMMAND_SET_ADMIN_ONLY: u8 = 0b111;
    /// IOSQES of a 64-byte submission queue entry: 2^6.
    pub const SUBMISSION_ENTRY_SIZE: u8 = 6;
    /// IOCQES of a 16-byte completion queue entry: 2^4.
    pub const COMPLETION_ENTRY_SIZE: u8 = 4;

    /// Enable (EN).
    pub const fn enabled(self) -> bool {
        bit(self.0, 0)
    }

    /// With Enable (EN).
    #[must_use]
    pub const fn with_enabled(self, enabled: bool) -> Self {
        Self(with_bits(self.0, 0, 0, enabled as u32))
    }

    /// I/O Command Set Selected (CSS): the `COMMAND_SET_` values.
    pub const fn command_set(self) -> u8 {
        bits(self.0, 6, 4) as u8
    }

    /// With I/O Command Set Selected (CSS).
    #[must_use]
    pub const fn with_command_set(self, set: u8) -> Self {
        Self(with_bits(self.0, 6, 4, set as u32))
    }

    /// Memory Page Size (MPS): the size is 2^(12 + this) bytes.
    pub const fn memory_page_size(self) -> u8 {
        bits(self.0, 10, 7) as u8
    }

    /// With Memory Page Size (MPS).
    #[must_use]
    pub const fn with_memory_page_size(self, size: u8) -> Self {
        Self(with_bits(self.0, 10, 7, size as u32))
    }

    /// Arbitration Mechanism Selected (AMS): 000b round robin.
    pub const fn arbitration_mechanism(self) -> u8 {
        bits(self.0, 13, 11) as u8
    }

    /// With Arbitration Mechanism Selected (AMS).
    #[must_use]
    pub const fn with_arbitration_mechanism(self, mechanism: u8) -> Self {
        Self(with_bits(self.0, 13, 11, mechanism as u32))
    }

    /// Shutdown Notification (SHN).
    pub const fn shutdown(self) -> ShutdownNotification {
        match bits(self.0, 15, 14) {
            0 => ShutdownNotification::None,
            1 => ShutdownNotification::Normal,
            2 => ShutdownNotification::Abrupt,
            _ => ShutdownNotification::Reserved,
        }
    }

    /// With Shutdown Notification (SHN).
    #[must_use]
    pub const fn with_shutdown(self, shutdown: ShutdownNotification) -> Self {
        Self(with_bits(self.0, 15, 14, shutdown as u32))
    }

    /// I/O Submission Queue Entry Size (IOSQES): 2^this bytes.
    pub const fn submission_entry_size(self) -> u8 {
        bits(self.0, 19, 16) as u8
    }

    /// I/O Completion Queue Entry Size (IOCQES): 2^this bytes.
    pub const fn completion_entry_size(self) -> u8 {
        bits(self.0, 23, 20) as u8
    }

    /// With the entry sizes 2^`submission` (IOSQES) and 2^`completion` (IOCQES) bytes.
    #[must_use]
    pub const fn with_entry_sizes(self, submission: u8, completion: u8) -> Self {
        let word = with_bits(self.0, 19, 16, submission as u32);
        Self(with_bits(word, 23, 20, completion as u32))
    }

    /// Controller Ready Independent of Media Enable (CRIME).
    pub const fn ready_independent_of_media(self) -> bool {
        bit(self.0, 24)
    }

    /// With Controller Ready Independent of Media Enable (CRIME).
    #[must_use]
    pub const fn with_ready_independent_of_media(self, enabled: bool) -> Self {
        Self(with_bits(self.0, 24, 24, enabled as u32))
    }
}

/// Shutdown Status, CSTS.SHST (NVMe Base 2.0c section 3.1.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShutdownStatus {
    /// 00b: no shutdown was asked for.
    #[default]
    Normal,
    /// 01b: shutdown is under way.
    Occurring,
    /// 10b: shutdown is complete.
    Complete,
    /// 11b.
    Reserved,
}

/// Controller Status, CSTS (NVMe Base 2.0c section 3.1.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// Ready (RDY).
    pub const fn ready(self) -> bool {
        bit(self.0, 0)
    }

    /// With Ready (RDY).
    #[must_use]
    pub const fn with_ready(self, ready: bool) -> Self {
        Self(with_bits(self.0, 0, 0, ready as u32))
    }

    /// Controller Fatal Status (CFS).
    pub const fn fatal(self) -> bool {
        bit(self.0, 1)
    }

    /// With Controller Fatal Status (CFS).
    #[must_use]
    pub const fn with_fatal(self, fatal: bool) -> Self {
        Self(with_bits(self.0, 1, 1, fatal as u32))
    }

    /// Shutdown Status (SHST).
    pub const fn shutdown(self) -> ShutdownStatus {
        match bits(self.0, 3, 2) {
            0 => ShutdownStatus::Normal,
            1 => ShutdownStatus::Occurring,
            2 => ShutdownStatus::Complete,
            _ => ShutdownStatus::Reserved,
        }
    }

    /// With Shutdown Status (SHST).
    #[must_use]
    pub const fn with_shutdown(self, shutdown: ShutdownStatus) -> Self {
        Self(with_bits(self.0, 3, 2, shutdown as u32))
    }

    /// NVM Subsystem Reset Occurred (NSSRO).
    pub const fn subsystem_reset_occurred(self) -> bool {
        bit(self.0, 4)
    }

    /// With NVM Subsystem Reset Occurred (NSSRO).
    #[must_use]
    pub const fn with_subsystem_reset_occurred(self, occurred: bool) -> Self {
        Self(with_bits(self.0, 4, 4, occurred as u32))
    }

    /// Processing Paused (PP).
    pub const fn processing_paused(self) -> bool {
        bit(self.0, 5)
    }
}

/// Controller Ready Timeouts, CRTO (NVMe Base 2.0c section 3.1.3, offset 68h), in units of 500 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ReadyTimeouts {
    /// Controller Ready With Media Timeout (CRWMT).
    pub with_media_500ms: u16,
    /// Controller Ready Independent of Media Timeout (CRIMT).
    pub independent_of_media_500ms: u16,
}

impl ReadyTimeouts {
    /// From the property's value.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            with_media_500ms: bits(dword, 15, 0) as u16,
            independent_of_media_500ms: bits(dword, 31, 16) as u16,
        }
    }

    /// To the property's value.
    pub const fn to_dword(self) -> u32 {
        (self.independent_of_media_500ms as u32) << 16 | self.with_media_500ms as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capabilities_are_laid_out_as_the_specification_says() {
        let capabilities = Capabilities::default()
            .with_maximum_queue_entries(128)
            .with_contiguous_queues_required(true)
            .with_timeout_500ms(0x1e)
            .with_subsystem_reset_supported(true)
            .with_command_sets(
                Capabilities::COMMAND_SETS_NVM | Capabilities::COMMAND_SETS_SELECTABLE,
            )
            .with_memory_page_sizes(0, 4)
            .with_ready_modes(Capabilities::READY_WITH_MEDIA);
        // CRMS bit 59, MPSMAX bit 54, CSS bits 43 and 37, NSSRS bit 36, TO, CQR, MQES.
        let value = 1 << 59 | 4 << 52 | 1 << 43 | 1 << 37 | 1 << 36 | 0x1e << 24 | 1 << 16 | 0x7f;
        assert_eq!(capabilities.0, value);
        assert_eq!(capabilities.maximum_queue_entries(), 128);
        assert!(capabilities.contiguous_queues_required());
        assert!(capabilities.subsystem_reset_supported());
        assert_eq!(capabilities.timeout_500ms(), 0x1e);
        assert_eq!(capabilities.command_sets(), 0x41);
        assert_eq!(capabilities.memory_page_size_minimum(), 0);
        assert_eq!(capabilities.memory_page_size_maximum(), 4);
        assert_eq!(capabilities.ready_modes(), 1);
        assert_eq!(Capabilities(0b11 << 17).arbitration_mechanisms(), 3);
    }

    #[test]
    fn configuration_is_laid_out_as_the_specification_says() {
        let configuration = Configuration::default()
            .with_enabled(true)
            .with_command_set(Configuration::COMMAND_SET_ALL)
            .with_memory_page_size(1)
            .with_arbitration_mechanism(7)
            .with_shutdown(ShutdownNotification::Abrupt)
            .with_entry_sizes(
                Configuration::SUBMISSION_ENTRY_SIZE,
                Configuration::COMPLETION_ENTRY_SIZE,
            )
            .with_ready_independent_of_media(true);
        assert_eq!(configuration.0, 0x0146_b8e1);
        assert!(configuration.enabled() && configuration.ready_independent_of_media());
        assert_eq!(configuration.command_set(), 6);
        assert_eq!(configuration.memory_page_size(), 1);
        assert_eq!(configuration.arbitration_mechanism(), 7);
        assert_eq!(configuration.shutdown(), ShutdownNotification::Abrupt);
        assert_eq!(configuration.submission_entry_size(), 6);
        assert_eq!(configuration.completion_entry_size(), 4);
        // What a Linux host writes to enable a controller.
        assert!(Configuration(0x0046_0001).enabled());
    }

    #[test]
    fn status_is_laid_out_as_the_specification_says() {
        let status = ControllerStatus::default()
            .with_ready(true)
            .with_fatal(true)
            .with_shutdown(ShutdownStatus::Complete)
            .with_subsystem_reset_occurred(true);
        assert_eq!(status.0, 0b01_1011);
        assert!(status.ready() && status.fatal() && status.subsystem_reset_occurred());
        assert_eq!(status.shutdown(), ShutdownStatus::Complete);
        assert_eq!(status.with_shutdown(ShutdownStatus::Normal).0, 0b01_0011);
        assert!(ControllerStatus(1 << 5).processing_paused());
    }

    #[test]
    fn versions_and_offsets_have_the_specified_values() {
        assert_eq!(Version::V2_0.0, 0x0002_0000);
        assert_eq!(Version::V1_4.0, 0x0001_0400);
        assert_eq!(Version::V2_1.to_string(), "2.1");
        assert_eq!(Version::new(1, 2, 1).to_string(), "1.2.1");
        assert!(Version::V2_0 > Version::V1_4);
        assert_eq!(Property::from_value(0x14), Property::Configuration);
        assert_eq!(Property::ReadyTimeouts.value(), 0x68);
        assert_eq!(
            (Property::Capabilities.size(), Property::Status.size()),
            (Some(8), Some(4))
        );
        assert_eq!(Property::from_value(0x28).size(), None);
        assert_eq!(SUBSYSTEM_RESET.to_be_bytes(), *b"NVMe");
        let timeouts = ReadyTimeouts {
            with_media_500ms: 1,
            independent_of_media_500ms: 2,
        };
        assert_eq!(timeouts.to_dword(), 0x0002_0001);
        assert_eq!(ReadyTimeouts::from_dword(0x0002_0001), timeouts);
    }

    proptest! {
        #[test]
        fn any_value_reads_and_setting_a_field_leaves_the_others(cap: u64, cc: u32, csts: u32) {
            let capabilities = Capabilities(cap);
            prop_assume!(capabilities.maximum_queue_entries() >= 2);
            prop_assert_eq!(
                capabilities
                    .with_maximum_queue_entries(capabilities.maximum_queue_entries())
                    .with_timeout_500ms(capabilities.timeout_500ms())
                    .with_command_sets(capabilities.command_sets())
                    .with_ready_modes(capabilities.ready_modes()),
                capabilities
            );
            let configuration = Configuration(cc);
            prop_assert_eq!(
                configuration
                    .with_enabled(configuration.enabled())
                    .with_command_set(configuration.command_set())
                    .with_shutdown(configuration.shutdown())
                    .with_entry_sizes(
                        configuration.submission_entry_size(),
                        configuration.completion_entry_size(),
                    ),
                configuration
            );
            let status = ControllerStatus(csts);
            prop_assert_eq!(status.with_shutdown(status.shutdown()).with_ready(status.ready()), status);
        }
    }
}
