//! Features: what Get and Set Features read and change (NVMe Base 2.0c sections 5.15 and 5.27.1; NVM
//! Command Set 1.0c section 4.1.3).
//!
//! Values in a dword have `to_dword` and `from_dword`; which of them a controller supports, and
//! what it makes of a value, is the command core's decision.

use crate::event::EventType;
use crate::nqn::HostId;
use crate::wire::{bit, bits, flags, open_enum, wire_struct};

open_enum! {
    /// Feature Identifier, FID (NVMe Base 2.0c section 5.27.1).
    pub enum FeatureId: u8 {
        /// 01h; see [`Arbitration`].
        Arbitration = 0x01 => "Arbitration",
        /// 02h; see [`PowerManagement`].
        PowerManagement = 0x02 => "Power Management",
        /// 03h.
        LbaRangeType = 0x03 => "LBA Range Type",
        /// 04h; see [`TemperatureThreshold`].
        TemperatureThreshold = 0x04 => "Temperature Threshold",
        /// 05h; see [`ErrorRecovery`].
        ErrorRecovery = 0x05 => "Error Recovery",
        /// 06h; see [`VolatileWriteCache`].
        VolatileWriteCache = 0x06 => "Volatile Write Cache",
        /// 07h; see [`NumberOfQueues`].
        NumberOfQueues = 0x07 => "Number of Queues",
        /// 08h; see [`InterruptCoalescing`]; not for Fabrics.
        InterruptCoalescing = 0x08 => "Interrupt Coalescing",
        /// 09h; see [`InterruptVectorConfiguration`]; not for Fabrics.
        InterruptVectorConfiguration = 0x09 => "Interrupt Vector Configuration",
        /// 0Ah; see [`WriteAtomicityNormal`].
        WriteAtomicityNormal = 0x0a => "Write Atomicity Normal",
        /// 0Bh; see [`AsynchronousEventConfiguration`].
        AsynchronousEventConfiguration = 0x0b => "Asynchronous Event Configuration",
        /// 0Ch.
        AutonomousPowerStateTransition = 0x0c => "Autonomous Power State Transition",
        /// 0Dh; not for Fabrics.
        HostMemoryBuffer = 0x0d => "Host Memory Buffer",
        /// 0Eh.
        Timestamp = 0x0e => "Timestamp",
        /// 0Fh; the dword is KATO in milliseconds.
        KeepAliveTimer = 0x0f => "Keep Alive Timer",
        /// 10h.
        HostControlledThermalManagement = 0x10 => "Host Controlled Thermal Management",
        /// 11h.
        NonOperationalPowerStateConfig = 0x11 => "Non-Operational Power State Config",
        /// 12h.
        ReadRecoveryLevelConfig = 0x12 => "Read Recovery Level Config",
        /// 13h.
        PredictableLatencyModeConfig = 0x13 => "Predictable Latency Mode Config",
        /// 14h.
        PredictableLatencyModeWindow = 0x14 => "Predictable Latency Mode Window",
        /// 15h.
        LbaStatusInformationReportInterval = 0x15 => "LBA Status Information Report Interval",
        /// 16h; see [`HostBehaviorSupport`].
        HostBehaviorSupport = 0x16 => "Host Behavior Support",
        /// 17h.
        SanitizeConfig = 0x17 => "Sanitize Config",
        /// 18h.
        EnduranceGroupEventConfiguration = 0x18 => "Endurance Group Event Configuration",
        /// 19h; see [`IoCommandSetProfile`].
        IoCommandSetProfile = 0x19 => "I/O Command Set Profile",
        /// 1Ah.
        SpinupControl = 0x1a => "Spinup Control",
        /// 7Dh.
        EnhancedControllerMetadata = 0x7d => "Enhanced Controller Metadata",
        /// 7Eh.
        ControllerMetadata = 0x7e => "Controller Metadata",
        /// 7Fh.
        NamespaceMetadata = 0x7f => "Namespace Metadata",
        /// 80h.
        SoftwareProgressMarker = 0x80 => "Software Progress Marker",
        /// 81h; see [`HostIdentifier`].
        HostIdentifier = 0x81 => "Host Identifier",
        /// 82h; see [`ReservationNotificationMask`].
        ReservationNotificationMask = 0x82 => "Reservation Notification Mask",
        /// 83h; see [`ReservationPersistence`].
        ReservationPersistence = 0x83 => "Reservation Persistence",
        /// 84h; see [`NamespaceWriteProtection`].
        NamespaceWriteProtection = 0x84 => "Namespace Write Protection Config",
    }
}

flags! {
    /// Completion dword 0 of Get Features with SEL 011b (NVMe Base 2.0c section 5.15).
    pub struct FeatureCapabilities: u32 {
        /// Bit 0: the value can be saved.
        SAVEABLE = 1 << 0,
        /// Bit 1: the value is a namespace's.
        NAMESPACE_SPECIFIC = 1 << 1,
        /// Bit 2: the value can be changed.
        CHANGEABLE = 1 << 2,
    }
}

/// Arbitration (FID 01h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Arbitration {
    /// Arbitration Burst (AB): a power of two of commands; 7 is no limit.
    pub burst: u8,
    /// Low Priority Weight (LPW), 0's based.
    pub low_priority_weight: u8,
    /// Medium Priority Weight (MPW), 0's based.
    pub medium_priority_weight: u8,
    /// High Priority Weight (HPW), 0's based.
    pub high_priority_weight: u8,
}

impl Arbitration {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            burst: bits(dword, 2, 0) as u8,
            low_priority_weight: bits(dword, 15, 8) as u8,
            medium_priority_weight: bits(dword, 23, 16) as u8,
            high_priority_weight: bits(dword, 31, 24) as u8,
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        assert!(self.burst <= 7, "the arbitration burst has three bits");
        u32::from_le_bytes([
            self.burst,
            self.low_priority_weight,
            self.medium_priority_weight,
            self.high_priority_weight,
        ])
    }
}

/// Power Management (FID 02h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PowerManagement {
    /// Power State (PS), 0 to 31.
    pub power_state: u8,
    /// Workload Hint (WH), 0 to 7.
    pub workload_hint: u8,
}

impl PowerManagement {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            power_state: bits(dword, 4, 0) as u8,
            workload_hint: bits(dword, 7, 5) as u8,
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        assert!(
            self.power_state <= 31 && self.workload_hint <= 7,
            "power state or hint too large"
        );
        (self.workload_hint as u32) << 5 | self.power_state as u32
    }
}

/// Temperature Threshold (FID 04h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TemperatureThreshold {
    /// Threshold (TMPTH) in kelvin.
    pub kelvin: u16,
    /// Sensor (TMPSEL): 0 the composite temperature, 1 to 8 a sensor, Fh all, in Set Features only.
    pub sensor: u8,
    /// Type (THSEL): false over, true under temperature; 10b and 11b are reserved.
    pub kind: ThresholdType,
}

/// Threshold Type Select (THSEL).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ThresholdType {
    /// 00b: over temperature.
    #[default]
    Over,
    /// 01b: under temperature.
    Under,
    /// 10b and 11b.
    Reserved(u8),
}

impl TemperatureThreshold {
    /// From CDW11.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            kelvin: bits(dword, 15, 0) as u16,
            sensor: bits(dword, 19, 16) as u8,
            kind: match bits(dword, 21, 20) {
                0 => ThresholdType::Over,
                1 => ThresholdType::Under,
                reserved => ThresholdType::Reserved(reserved as u8),
            },
        }
    }

    /// To CDW11. (The answer's dword carries the threshold alone.)
    pub const fn to_dword(self) -> u32 {
        assert!(self.sensor <= 0xf, "the sensor has four bits");
        let kind = match self.kind {
            ThresholdType::Over => 0,
            ThresholdType::Under => 1,
            ThresholdType::Reserved(value) => {
                assert!(value == 2 || value == 3, "the reserved types are 2 and 3");
                value as u32
            }
        };
        kind << 20 | (self.sensor as u32) << 16 | self.kelvin as u32
    }
}

/// Error Recovery (FID 05h; NVM Command Set 1.0c section 4.1.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ErrorRecovery {
    /// Time Limited Error Recovery (TLER) in units of 100 ms; 0 is no limit.
    pub time_limit: u16,
    /// Deallocated or Unwritten Logical Block Error Enable (DULBE).
    pub deallocated_block_error: bool,
}

impl ErrorRecovery {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            time_limit: bits(dword, 15, 0) as u16,
            deallocated_block_error: bit(dword, 16),
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        (self.deallocated_block_error as u32) << 16 | self.time_limit as u32
    }
}

/// Volatile Write Cache (FID 06h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VolatileWriteCache {
    /// Volatile Write Cache Enable (WCE).
    pub enabled: bool,
}

impl VolatileWriteCache {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            enabled: bit(dword, 0),
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        self.enabled as u32
    }
}

/// Number of Queues (FID 07h): asked for in Set Features, allocated in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NumberOfQueues {
    /// I/O submission queues, 1 to 65536: NSQR or NSQA, plus 1. 65536 (FFFFh) is an invalid request.
    pub submission: u32,
    /// I/O completion queues, 1 to 65536: NCQR or NCQA, plus 1. 65536 (FFFFh) is an invalid request.
    pub completion: u32,
}

impl NumberOfQueues {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            submission: bits(dword, 15, 0) + 1,
            completion: bits(dword, 31, 16) + 1,
        }
    }

    /// To CDW11, or completion dword 0.
    ///
    /// Panics where a number is not 1 to 65536.
    pub const fn to_dword(self) -> u32 {
        const MAX: u32 = 0x1_0000;
        assert!(
            self.submission >= 1
                && self.submission <= MAX
                && self.completion >= 1
                && self.completion <= MAX,
            "a number of queues is 1 to 65536"
        );
        (self.completion - 1) << 16 | (self.submission - 1)
    }
}

/// Interrupt Coalescing (FID 08h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InterruptCoalescing {
    /// Aggregation Threshold (THR), 0's based.
    pub threshold: u8,
    /// Aggregation Time (TIME) in units of 100 microseconds.
    pub time: u8,
}

impl InterruptCoalescing {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            threshold: bits(dword, 7, 0) as u8,
            time: bits(dword, 15, 8) as u8,
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        (self.time as u32) << 8 | self.threshold as u32
    }
}

/// Interrupt Vector Configuration (FID 09h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InterruptVectorConfiguration {
    /// Interrupt Vector (IV).
    pub vector: u16,
    /// Coalescing Disable (CD).
    pub coalescing_disabled: bool,
}

impl InterruptVectorConfiguration {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            vector: bits(dword, 15, 0) as u16,
            coalescing_disabled: bit(dword, 16),
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        (self.coalescing_disabled as u32) << 16 | self.vector as u32
    }
}

/// Write Atomicity Normal (FID 0Ah; NVM Command Set 1.0c section 4.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WriteAtomicityNormal {
    /// Disable Normal (DN): the host needs atomicity across power failure only (AWUPF, NAWUPF).
    pub disabled: bool,
}

impl WriteAtomicityNormal {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            disabled: bit(dword, 0),
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        self.disabled as u32
    }
}

flags! {
    /// Asynchronous Event Configuration (FID 0Bh): which events the host wants; the bits are those
    /// of OAES, from bit 8 on.
    pub struct AsynchronousEventConfiguration: u32 {
        /// Bits 7:0: SMART / Health critical warnings, bit by bit as in that log.
        CRITICAL_WARNINGS = 0xff,
        /// Bit 8: Namespace Attribute Notices.
        NAMESPACE_ATTRIBUTE = 1 << 8,
        /// Bit 9: Firmware Activation Notices.
        FIRMWARE_ACTIVATION = 1 << 9,
        /// Bit 10: Telemetry Log Notices.
        TELEMETRY_LOG = 1 << 10,
        /// Bit 11: Asymmetric Namespace Access Change Notices.
        ANA_CHANGE = 1 << 11,
        /// Bit 12: Predictable Latency Event Aggregate Log Change Notices.
        PREDICTABLE_LATENCY = 1 << 12,
        /// Bit 13: LBA Status Information Notices.
        LBA_STATUS = 1 << 13,
        /// Bit 14: Endurance Group Event Aggregate Log Change Notices.
        ENDURANCE_GROUP = 1 << 14,
        /// Bit 15: Normal NVM Subsystem Shutdown.
        NORMAL_SUBSYSTEM_SHUTDOWN = 1 << 15,
        /// Bit 31: Discovery Log Page Change Notification; of a discovery controller.
        DISCOVERY_LOG_CHANGE = 1 << 31,
    }
}

impl AsynchronousEventConfiguration {
    /// Whether the host wants notices of this kind. Error, SMART and immediate events have no bit
    /// each; ask [`Self::contains`] for a critical warning.
    pub const fn wants(self, event: EventType) -> bool {
        match event {
            EventType::NamespaceAttributeChanged => self.contains(Self::NAMESPACE_ATTRIBUTE),
            EventType::FirmwareActivationStarting => self.contains(Self::FIRMWARE_ACTIVATION),
            EventType::AnaChange => self.contains(Self::ANA_CHANGE),
            EventType::NormalSubsystemShutdown => self.contains(Self::NORMAL_SUBSYSTEM_SHUTDOWN),
            EventType::DiscoveryLogChange => self.contains(Self::DISCOVERY_LOG_CHANGE),
            _ => true,
        }
    }
}

wire_struct! {
    /// Host Behavior Support (FID 16h), the data of both Get and Set Features.
    pub struct HostBehaviorSupport[512] {
        /// Advanced Command Retry Enable (ACRE): 1 where the host understands Command Interrupted and
        /// CRD.
        0 => advanced_command_retry: u8,
        /// Extended Telemetry Data Area 4 Supported (ETDAS).
        1 => extended_telemetry: u8,
        /// LBA Format Extension Enable (LBAFEE).
        2 => lba_format_extension: u8,
    }
}

/// I/O Command Set Profile (FID 19h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct IoCommandSetProfile {
    /// I/O Command Set Combination Index (IOCSCI), 0 to 511: into the list that Identify CNS 1Ch yields.
    pub combination_index: u16,
}

impl IoCommandSetProfile {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            combination_index: bits(dword, 8, 0) as u16,
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        assert!(self.combination_index <= 511, "the index has nine bits");
        self.combination_index as u32
    }
}

/// Host Identifier (FID 81h): its data. CDW11 bit 0 (EXHID) tells 16 bytes from 8; Fabrics has 16
/// only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostIdentifier {
    /// EXHID 0: 64 bits.
    Short([u8; 8]),
    /// EXHID 1: 128 bits.
    Extended(HostId),
}

impl HostIdentifier {
    /// EXHID, bit 0 of CDW11: the identifier has 128 bits.
    pub const fn is_extended(cdw11: u32) -> bool {
        bit(cdw11, 0)
    }

    /// The data's length in bytes.
    pub const fn length(&self) -> usize {
        match self {
            Self::Short(_) => 8,
            Self::Extended(_) => 16,
        }
    }
}

flags! {
    /// Reservation Notification Mask (FID 82h): a set bit silences its notification.
    pub struct ReservationNotificationMask: u32 {
        /// Bit 1: Registration Preempted.
        REGISTRATION_PREEMPTED = 1 << 1,
        /// Bit 2: Reservation Released.
        RESERVATION_RELEASED = 1 << 2,
        /// Bit 3: Reservation Preempted.
        RESERVATION_PREEMPTED = 1 << 3,
    }
}

/// Reservation Persistence (FID 83h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ReservationPersistence {
    /// Persist Through Power Loss (PTPL).
    pub persist_through_power_loss: bool,
}

impl ReservationPersistence {
    /// From CDW11, or completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            persist_through_power_loss: bit(dword, 0),
        }
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        self.persist_through_power_loss as u32
    }
}

open_enum! {
    /// Namespace Write Protection Config (FID 84h): bits 2:0 of the dword.
    pub enum NamespaceWriteProtection: u8 {
        /// 000b.
        None = 0 => "No Write Protect",
        /// 001b.
        WriteProtect = 1 => "Write Protect",
        /// 010b.
        UntilPowerCycle = 2 => "Write Protect Until Power Cycle",
        /// 011b.
        Permanent = 3 => "Permanent Write Protect",
    }
}

impl NamespaceWriteProtection {
    /// From CDW11, or completion dword 0; 4 to 7 are reserved.
    pub const fn from_dword(dword: u32) -> Self {
        Self::from_value(bits(dword, 2, 0) as u8)
    }

    /// To CDW11, or completion dword 0.
    pub const fn to_dword(self) -> u32 {
        self.value() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;
    use proptest::prelude::*;

    #[test]
    fn values_are_laid_out_as_the_specification_says() {
        assert_eq!(
            Arbitration::from_dword(0x0403_0207),
            Arbitration {
                burst: 7,
                low_priority_weight: 2,
                medium_priority_weight: 3,
                high_priority_weight: 4,
            }
        );
        assert_eq!(
            PowerManagement {
                power_state: 31,
                workload_hint: 1
            }
            .to_dword(),
            0x3f
        );
        assert_eq!(
            TemperatureThreshold::from_dword(0x0018_0157),
            TemperatureThreshold {
                kelvin: 343,
                sensor: 8,
                kind: ThresholdType::Under,
            }
        );
        let recovery = ErrorRecovery {
            time_limit: 5,
            deallocated_block_error: true,
        };
        assert_eq!(recovery.to_dword(), 0x0001_0005);
        assert_eq!(VolatileWriteCache { enabled: true }.to_dword(), 1);
        assert_eq!(
            NumberOfQueues {
                submission: 8,
                completion: 4
            }
            .to_dword(),
            0x0003_0007
        );
        assert_eq!(NumberOfQueues::from_dword(u32::MAX).submission, 65536);
        assert_eq!(
            InterruptCoalescing {
                threshold: 1,
                time: 2
            }
            .to_dword(),
            0x0201
        );
        let vector = InterruptVectorConfiguration {
            vector: 3,
            coalescing_disabled: true,
        };
        assert_eq!(vector.to_dword(), 0x0001_0003);
        assert_eq!(WriteAtomicityNormal { disabled: true }.to_dword(), 1);
        let profile = IoCommandSetProfile {
            combination_index: 511,
        };
        assert_eq!(profile.to_dword(), 0x1ff);
        assert_eq!(ReservationPersistence::from_dword(1).to_dword(), 1);
        assert_eq!(
            NamespaceWriteProtection::from_dword(1),
            NamespaceWriteProtection::WriteProtect
        );
        assert_eq!(
            NamespaceWriteProtection::from_dword(0xff),
            NamespaceWriteProtection::Other(7)
        );
    }

    #[test]
    fn a_host_chooses_its_events() {
        let wants = AsynchronousEventConfiguration(0x8000_0100);
        assert!(wants.wants(EventType::NamespaceAttributeChanged));
        assert!(wants.wants(EventType::DiscoveryLogChange));
        assert!(!wants.wants(EventType::AnaChange));
        assert!(wants.wants(EventType::PersistentInternalError));
    }

    #[test]
    fn host_behavior_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 512];
        bytes[..3].copy_from_slice(&[1, 2, 3]);
        let behavior = HostBehaviorSupport::decode(&bytes);
        assert_eq!(behavior.advanced_command_retry, 1);
        assert_eq!(behavior.extended_telemetry, 2);
        assert_eq!(behavior.lba_format_extension, 3);
        round_trip::<HostBehaviorSupport>();
    }

    #[test]
    fn a_host_identifier_has_two_lengths() {
        assert!(HostIdentifier::is_extended(1) && !HostIdentifier::is_extended(2));
        assert_eq!(HostIdentifier::Extended(HostId([1; 16])).length(), 16);
        assert_eq!(HostIdentifier::Short([1; 8]).length(), 8);
    }

    proptest! {
        #[test]
        fn any_dword_reads_and_survives(dword: u32) {
            prop_assert_eq!(Arbitration::from_dword(dword).to_dword(), dword & 0xffff_ff07);
            prop_assert_eq!(PowerManagement::from_dword(dword).to_dword(), dword & 0xff);
            prop_assert_eq!(TemperatureThreshold::from_dword(dword).to_dword(), dword & 0x3f_ffff);
            prop_assert_eq!(ErrorRecovery::from_dword(dword).to_dword(), dword & 0x1_ffff);
            prop_assert_eq!(VolatileWriteCache::from_dword(dword).to_dword(), dword & 1);
            prop_assert_eq!(NumberOfQueues::from_dword(dword).to_dword(), dword);
            prop_assert_eq!(InterruptCoalescing::from_dword(dword).to_dword(), dword & 0xffff);
            prop_assert_eq!(InterruptVectorConfiguration::from_dword(dword).to_dword(), dword & 0x1_ffff);
            prop_assert_eq!(WriteAtomicityNormal::from_dword(dword).to_dword(), dword & 1);
            prop_assert_eq!(IoCommandSetProfile::from_dword(dword).to_dword(), dword & 0x1ff);
            prop_assert_eq!(ReservationPersistence::from_dword(dword).to_dword(), dword & 1);
            prop_assert_eq!(NamespaceWriteProtection::from_dword(dword).to_dword(), dword & 7);
        }
    }
}
