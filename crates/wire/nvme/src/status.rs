//! Completion statuses: status code type, status code, More, Do Not Retry and Command Retry Delay
//! (NVMe Base 2.0c section 3.3.3.2.1).
//!
//! A status says what happened; which status answers which fault is the command core's decision.

use core::fmt;

/// The group that a status code belongs to (NVMe Base 2.0c section 3.3.3.2.1, SCT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusCodeType {
    /// 0h: generic command status.
    Generic,
    /// 1h: command specific status; its codes from 80h mean different things to Fabrics commands.
    CommandSpecific,
    /// 2h: media and data integrity errors.
    MediaAndDataIntegrity,
    /// 3h: path related status.
    PathRelated,
    /// 7h: vendor specific.
    VendorSpecific,
    /// 4h to 6h: reserved.
    Reserved(u8),
}

/// Whose command specific status codes from 80h to BFh are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandSet {
    /// Admin and NVM commands.
    Nvm,
    /// Fabrics commands, and Get Log Page of the Discovery log.
    Fabrics,
}

/// The 15-bit status field of a completion, the phase tag left out.
///
/// Equality compares every bit; [`Status::is`] compares type and code alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

const CODE_MASK: u16 = 0x07ff;
const RETRY_DELAY_SHIFT: u32 = 11;
const RETRY_DELAY_MAX: u8 = 3;
const MORE: u16 = 1 << 13;
const DO_NOT_RETRY: u16 = 1 << 14;
const FIELD_MASK: u16 = 0x7fff;

const GENERIC: u16 = 0x000;
const SPECIFIC: u16 = 0x100;
const MEDIA: u16 = 0x200;
const PATH: u16 = 0x300;

macro_rules! statuses {
    ($( $(#[$meta:meta])* $name:ident = $kind:ident | $code:literal, $set:ident => $text:literal; )*) => {
        impl Status {
            $(
                #[doc = concat!($text, ".")]
                $(#[$meta])*
                pub const $name: Self = Self($kind | $code);
            )*

            /// Every status that has a name, in the order of the specification's tables.
            pub const NAMED: &[Self] = &[$( Self::$name ),*];
        }

        const NAMES: &[(Status, CommandSet, &str)] =
            &[$( (Status::$name, CommandSet::$set, $text) ),*];
    };
}

statuses! {
    // Generic command status (section 3.3.3.2.1.1; 25h to 2Ah and 2Eh below are of revision 2.1).
    SUCCESS = GENERIC | 0x00, Nvm => "Successful Completion";
    INVALID_COMMAND_OPCODE = GENERIC | 0x01, Nvm => "Invalid Command Opcode";
    INVALID_FIELD_IN_COMMAND = GENERIC | 0x02, Nvm => "Invalid Field in Command";
    COMMAND_ID_CONFLICT = GENERIC | 0x03, Nvm => "Command ID Conflict";
    DATA_TRANSFER_ERROR = GENERIC | 0x04, Nvm => "Data Transfer Error";
    ABORTED_POWER_LOSS = GENERIC | 0x05, Nvm => "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = GENERIC | 0x06, Nvm => "Internal Error";
    COMMAND_ABORT_REQUESTED = GENERIC | 0x07, Nvm => "Command Abort Requested";
    ABORTED_SUBMISSION_QUEUE_DELETION = GENERIC | 0x08, Nvm => "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED_COMMAND = GENERIC | 0x09, Nvm => "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED_COMMAND = GENERIC | 0x0a, Nvm => "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE_OR_FORMAT = GENERIC | 0x0b, Nvm => "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = GENERIC | 0x0c, Nvm => "Command Sequence Error";
    INVALID_SGL_SEGMENT_DESCRIPTOR = GENERIC | 0x0d, Nvm => "Invalid SGL Segment Descriptor";
    INVALID_NUMBER_OF_SGL_DESCRIPTORS = GENERIC | 0x0e, Nvm => "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = GENERIC | 0x0f, Nvm => "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = GENERIC | 0x10, Nvm => "Metadata SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = GENERIC | 0x11, Nvm => "SGL Descriptor Type Invalid";
    INVALID_USE_OF_CONTROLLER_MEMORY_BUFFER = GENERIC | 0x12, Nvm => "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = GENERIC | 0x13, Nvm => "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = GENERIC | 0x14, Nvm => "Atomic Write Unit Exceeded";
    OPERATION_DENIED = GENERIC | 0x15, Nvm => "Operation Denied";
    SGL_OFFSET_INVALID = GENERIC | 0x16, Nvm => "SGL Offset Invalid";
    HOST_IDENTIFIER_INCONSISTENT_FORMAT = GENERIC | 0x18, Nvm => "Host Identifier Inconsistent Format";
    KEEP_ALIVE_TIMER_EXPIRED = GENERIC | 0x19, Nvm => "Keep Alive Timer Expired";
    KEEP_ALIVE_TIMEOUT_INVALID = GENERIC | 0x1a, Nvm => "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT_AND_ABORT = GENERIC | 0x1b, Nvm => "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = GENERIC | 0x1c, Nvm => "Sanitize Failed";
    SANITIZE_IN_PROGRESS = GENERIC | 0x1d, Nvm => "Sanitize In Progress";
    SGL_DATA_BLOCK_GRANULARITY_INVALID = GENERIC | 0x1e, Nvm => "SGL Data Block Granularity Invalid";
    COMMAND_NOT_SUPPORTED_FOR_QUEUE_IN_CMB = GENERIC | 0x1f, Nvm => "Command Not Supported for Queue in CMB";
    NAMESPACE_IS_WRITE_PROTECTED = GENERIC | 0x20, Nvm => "Namespace is Write Protected";
    COMMAND_INTERRUPTED = GENERIC | 0x21, Nvm => "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = GENERIC | 0x22, Nvm => "Transient Transport Error";
    COMMAND_PROHIBITED_BY_LOCKDOWN = GENERIC | 0x23, Nvm => "Command Prohibited by Command and Feature Lockdown";
    ADMIN_COMMAND_MEDIA_NOT_READY = GENERIC | 0x24, Nvm => "Admin Command Media Not Ready";
    INVALID_KEY_TAG = GENERIC | 0x25, Nvm => "Invalid Key Tag";
    HOST_DISPERSED_NAMESPACE_SUPPORT_NOT_ENABLED = GENERIC | 0x26, Nvm => "Host Dispersed Namespace Support Not Enabled";
    HOST_IDENTIFIER_NOT_INITIALIZED = GENERIC | 0x27, Nvm => "Host Identifier Not Initialized";
    INCORRECT_KEY = GENERIC | 0x28, Nvm => "Incorrect Key";
    FDP_DISABLED = GENERIC | 0x29, Nvm => "FDP Disabled";
    INVALID_PLACEMENT_HANDLE_LIST = GENERIC | 0x2a, Nvm => "Invalid Placement Handle List";
    LBA_OUT_OF_RANGE = GENERIC | 0x80, Nvm => "LBA Out of Range";
    CAPACITY_EXCEEDED = GENERIC | 0x81, Nvm => "Capacity Exceeded";
    NAMESPACE_NOT_READY = GENERIC | 0x82, Nvm => "Namespace Not Ready";
    RESERVATION_CONFLICT = GENERIC | 0x83, Nvm => "Reservation Conflict";
    FORMAT_IN_PROGRESS = GENERIC | 0x84, Nvm => "Format In Progress";

    // Command specific status (section 3.3.3.2.1.2).
    COMPLETION_QUEUE_INVALID = SPECIFIC | 0x00, Nvm => "Completion Queue Invalid";
    INVALID_QUEUE_IDENTIFIER = SPECIFIC | 0x01, Nvm => "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = SPECIFIC | 0x02, Nvm => "Invalid Queue Size";
    ABORT_COMMAND_LIMIT_EXCEEDED = SPECIFIC | 0x03, Nvm => "Abort Command Limit Exceeded";
    ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED = SPECIFIC | 0x05, Nvm => "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = SPECIFIC | 0x06, Nvm => "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = SPECIFIC | 0x07, Nvm => "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = SPECIFIC | 0x08, Nvm => "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = SPECIFIC | 0x09, Nvm => "Invalid Log Page";
    INVALID_FORMAT = SPECIFIC | 0x0a, Nvm => "Invalid Format";
    FIRMWARE_ACTIVATION_REQUIRES_CONVENTIONAL_RESET = SPECIFIC | 0x0b, Nvm => "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = SPECIFIC | 0x0c, Nvm => "Invalid Queue Deletion";
    FEATURE_IDENTIFIER_NOT_SAVEABLE = SPECIFIC | 0x0d, Nvm => "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = SPECIFIC | 0x0e, Nvm => "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = SPECIFIC | 0x0f, Nvm => "Feature Not Namespace Specific";
    FIRMWARE_ACTIVATION_REQUIRES_NVM_SUBSYSTEM_RESET = SPECIFIC | 0x10, Nvm => "Firmware Activation Requires NVM Subsystem Reset";
    FIRMWARE_ACTIVATION_REQUIRES_CONTROLLER_LEVEL_RESET = SPECIFIC | 0x11, Nvm => "Firmware Activation Requires Controller Level Reset";
    FIRMWARE_ACTIVATION_REQUIRES_MAXIMUM_TIME_VIOLATION = SPECIFIC | 0x12, Nvm => "Firmware Activation Requires Maximum Time Violation";
    FIRMWARE_ACTIVATION_PROHIBITED = SPECIFIC | 0x13, Nvm => "Firmware Activation Prohibited";
    OVERLAPPING_RANGE = SPECIFIC | 0x14, Nvm => "Overlapping Range";
    NAMESPACE_INSUFFICIENT_CAPACITY = SPECIFIC | 0x15, Nvm => "Namespace Insufficient Capacity";
    NAMESPACE_IDENTIFIER_UNAVAILABLE = SPECIFIC | 0x16, Nvm => "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = SPECIFIC | 0x18, Nvm => "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = SPECIFIC | 0x19, Nvm => "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = SPECIFIC | 0x1a, Nvm => "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = SPECIFIC | 0x1b, Nvm => "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = SPECIFIC | 0x1c, Nvm => "Controller List Invalid";
    DEVICE_SELF_TEST_IN_PROGRESS = SPECIFIC | 0x1d, Nvm => "Device Self-test In Progress";
    BOOT_PARTITION_WRITE_PROHIBITED = SPECIFIC | 0x1e, Nvm => "Boot Partition Write Prohibited";
    INVALID_CONTROLLER_IDENTIFIER = SPECIFIC | 0x1f, Nvm => "Invalid Controller Identifier";
    INVALID_SECONDARY_CONTROLLER_STATE = SPECIFIC | 0x20, Nvm => "Invalid Secondary Controller State";
    INVALID_NUMBER_OF_CONTROLLER_RESOURCES = SPECIFIC | 0x21, Nvm => "Invalid Number of Controller Resources";
    INVALID_RESOURCE_IDENTIFIER = SPECIFIC | 0x22, Nvm => "Invalid Resource Identifier";
    SANITIZE_PROHIBITED_WHILE_PMR_ENABLED = SPECIFIC | 0x23, Nvm => "Sanitize Prohibited While Persistent Memory Region is Enabled";
    ANA_GROUP_IDENTIFIER_INVALID = SPECIFIC | 0x24, Nvm => "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = SPECIFIC | 0x25, Nvm => "ANA Attach Failed";
    INSUFFICIENT_CAPACITY = SPECIFIC | 0x26, Nvm => "Insufficient Capacity";
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = SPECIFIC | 0x27, Nvm => "Namespace Attachment Limit Exceeded";
    PROHIBITION_OF_COMMAND_EXECUTION_NOT_SUPPORTED = SPECIFIC | 0x28, Nvm => "Prohibition of Command Execution Not Supported";
    IO_COMMAND_SET_NOT_SUPPORTED = SPECIFIC | 0x29, Nvm => "I/O Command Set Not Supported";
    IO_COMMAND_SET_NOT_ENABLED = SPECIFIC | 0x2a, Nvm => "I/O Command Set Not Enabled";
    IO_COMMAND_SET_COMBINATION_REJECTED = SPECIFIC | 0x2b, Nvm => "I/O Command Set Combination Rejected";
    INVALID_IO_COMMAND_SET = SPECIFIC | 0x2c, Nvm => "Invalid I/O Command Set";
    IDENTIFIER_UNAVAILABLE = SPECIFIC | 0x2d, Nvm => "Identifier Unavailable";
    NAMESPACE_IS_DISPERSED = SPECIFIC | 0x2e, Nvm => "Namespace Is Dispersed";
    INVALID_DISCOVERY_INFORMATION = SPECIFIC | 0x2f, Nvm => "Invalid Discovery Information";

    // NVM Command Set 1.0c section 3.1.1 and, from 85h on, 1.1, command specific.
    CONFLICTING_ATTRIBUTES = SPECIFIC | 0x80, Nvm => "Conflicting Attributes";
    INVALID_PROTECTION_INFORMATION = SPECIFIC | 0x81, Nvm => "Invalid Protection Information";
    ATTEMPTED_WRITE_TO_READ_ONLY_RANGE = SPECIFIC | 0x82, Nvm => "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT_EXCEEDED = SPECIFIC | 0x83, Nvm => "Command Size Limit Exceeded";
    INCOMPATIBLE_NAMESPACE_OR_FORMAT = SPECIFIC | 0x85, Nvm => "Incompatible Namespace or Format";
    FAST_COPY_NOT_POSSIBLE = SPECIFIC | 0x86, Nvm => "Fast Copy Not Possible";
    OVERLAPPING_IO_RANGE = SPECIFIC | 0x87, Nvm => "Overlapping I/O Range";
    INSUFFICIENT_RESOURCES = SPECIFIC | 0x89, Nvm => "Insufficient Resources";

    // Fabrics commands (section 3.3.3.2.1.2, Fabrics command specific).
    CONNECT_INCOMPATIBLE_FORMAT = SPECIFIC | 0x80, Fabrics => "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = SPECIFIC | 0x81, Fabrics => "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = SPECIFIC | 0x82, Fabrics => "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = SPECIFIC | 0x83, Fabrics => "Connect Restart Discovery";
    CONNECT_INVALID_HOST = SPECIFIC | 0x84, Fabrics => "Connect Invalid Host";
    INVALID_QUEUE_TYPE = SPECIFIC | 0x85, Fabrics => "Invalid Queue Type";
    DISCOVER_RESTART = SPECIFIC | 0x90, Fabrics => "Discover Restart";
    AUTHENTICATION_REQUIRED = SPECIFIC | 0x91, Fabrics => "Authentication Required";

    // Media and data integrity errors (section 3.3.3.2.1.3, NVM Command Set 1.0c section 3.1.1).
    WRITE_FAULT = MEDIA | 0x80, Nvm => "Write Fault";
    UNRECOVERED_READ_ERROR = MEDIA | 0x81, Nvm => "Unrecovered Read Error";
    END_TO_END_GUARD_CHECK_ERROR = MEDIA | 0x82, Nvm => "End-to-end Guard Check Error";
    END_TO_END_APPLICATION_TAG_CHECK_ERROR = MEDIA | 0x83, Nvm => "End-to-end Application Tag Check Error";
    END_TO_END_REFERENCE_TAG_CHECK_ERROR = MEDIA | 0x84, Nvm => "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = MEDIA | 0x85, Nvm => "Compare Failure";
    ACCESS_DENIED = MEDIA | 0x86, Nvm => "Access Denied";
    DEALLOCATED_OR_UNWRITTEN_LOGICAL_BLOCK = MEDIA | 0x87, Nvm => "Deallocated or Unwritten Logical Block";
    END_TO_END_STORAGE_TAG_CHECK_ERROR = MEDIA | 0x88, Nvm => "End-to-End Storage Tag Check Error";

    // Path related status (section 3.3.3.2.1.4).
    INTERNAL_PATH_ERROR = PATH | 0x00, Nvm => "Internal Path Error";
    ASYMMETRIC_ACCESS_PERSISTENT_LOSS = PATH | 0x01, Nvm => "Asymmetric Access Persistent Loss";
    ASYMMETRIC_ACCESS_INACCESSIBLE = PATH | 0x02, Nvm => "Asymmetric Access Inaccessible";
    ASYMMETRIC_ACCESS_TRANSITION = PATH | 0x03, Nvm => "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = PATH | 0x60, Nvm => "Controller Pathing Error";
    HOST_PATHING_ERROR = PATH | 0x70, Nvm => "Host Pathing Error";
    COMMAND_ABORTED_BY_HOST = PATH | 0x71, Nvm => "Command Aborted By Host";
}

impl Status {
    /// The status with this type and code, and every other bit clear.
    ///
    /// Panics where `status_code_type` does not fit its three bits.
    pub const fn new(status_code_type: u8, status_code: u8) -> Self {
        assert!(status_code_type <= 7, "a status code type has three bits");
        Self((status_code_type as u16) << 8 | status_code as u16)
    }

    /// From the upper half of completion dword 3, whose bit 0 is the phase tag.
    pub const fn from_completion(upper: u16) -> Self {
        Self(upper >> 1)
    }

    /// To the upper half of completion dword 3, with this phase tag.
    pub const fn to_completion(self, phase: bool) -> u16 {
        self.0 << 1 | phase as u16
    }

    /// From the 15 bits alone, as tools and the Linux kernel print them; bit 15 is ignored.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & FIELD_MASK)
    }

    /// The 15 bits: SC 7:0, SCT 10:8, CRD 12:11, More 13, DNR 14.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status Code Type (SCT).
    pub const fn status_code_type(self) -> StatusCodeType {
        match (self.0 >> 8) as u8 & 7 {
            0 => StatusCodeType::Generic,
            1 => StatusCodeType::CommandSpecific,
            2 => StatusCodeType::MediaAndDataIntegrity,
            3 => StatusCodeType::PathRelated,
            7 => StatusCodeType::VendorSpecific,
            reserved => StatusCodeType::Reserved(reserved),
        }
    }

    /// Status Code (SC).
    pub const fn status_code(self) -> u8 {
        self.0 as u8
    }

    /// Whether type and code say success.
    pub const fn is_success(self) -> bool {
        self.is(Self::SUCCESS)
    }

    /// Whether type and code are those of `other`, whatever the remaining bits.
    pub const fn is(self, other: Self) -> bool {
        self.0 & CODE_MASK == other.0 & CODE_MASK
    }

    /// Do Not Retry (DNR): the same command would fail again.
    pub const fn do_not_retry(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// More (M): the Error Information log has an entry on this completion.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// Command Retry Delay (CRD): 0 is no delay, 1 to 3 name CRDT1 to CRDT3 of Identify Controller.
    pub const fn command_retry_delay(self) -> u8 {
        (self.0 >> RETRY_DELAY_SHIFT) as u8 & RETRY_DELAY_MAX
    }

    /// This status with Do Not Retry set.
    #[must_use]
    pub const fn with_do_not_retry(self) -> Self {
        Self(self.0 | DO_NOT_RETRY)
    }

    /// This status with More set.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// This status with a Command Retry Delay index.
    ///
    /// Panics where the index is above 3.
    #[must_use]
    pub const fn with_command_retry_delay(self, index: u8) -> Self {
        assert!(
            index <= RETRY_DELAY_MAX,
            "a command retry delay index is 0 to 3"
        );
        let others = self.0 & !((RETRY_DELAY_MAX as u16) << RETRY_DELAY_SHIFT);
        Self(others | (index as u16) << RETRY_DELAY_SHIFT)
    }

    /// The specification's name for this status when it answers a command of `set`; `None` where it
    /// has none.
    pub fn name(self, set: CommandSet) -> Option<&'static str> {
        let named = |wanted: CommandSet| {
            NAMES
                .iter()
                .find(|(status, of, _)| status.is(self) && *of == wanted)
                .map(|(_, _, name)| *name)
        };
        // Only a few codes mean something else to a Fabrics command; the rest are shared.
        match set {
            CommandSet::Fabrics => named(CommandSet::Fabrics).or_else(|| named(CommandSet::Nvm)),
            CommandSet::Nvm => named(CommandSet::Nvm),
        }
    }
}

impl fmt::Display for Status {
    /// The specification's name, both where the code has two meanings, and the numbers.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, _, name) in NAMES.iter().filter(|(status, _, _)| status.is(*self)) {
            write!(formatter, "{separator}{name}")?;
            separator = " or ";
        }
        if separator.is_empty() {
            formatter.write_str("unnamed status")?;
        }
        let status_code_type = (self.0 & CODE_MASK) >> 8;
        write!(
            formatter,
            " (SCT {status_code_type:X}h, SC {:02X}h",
            self.status_code()
        )?;
        if self.do_not_retry() {
            formatter.write_str(", do not retry")?;
        }
        formatter.write_str(")")
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Status({self}")?;
        if self.more() {
            formatter.write_str(", more")?;
        }
        match self.command_retry_delay() {
            0 => formatter.write_str(")"),
            index => write!(formatter, ", retry delay {index})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_field_is_laid_out_as_the_specification_says() {
        // Completion dword 3: P 16, SC 24:17, SCT 27:25, CRD 29:28, M 30, DNR 31.
        let status = Status::COMPARE_FAILURE
            .with_do_not_retry()
            .with_more()
            .with_command_retry_delay(2);
        assert_eq!(status.to_completion(true), 0b1110_0101_0000_1011);
        assert_eq!(status.to_completion(false), 0b1110_0101_0000_1010);
        assert_eq!(Status::from_completion(0b1110_0101_0000_1011), status);
        assert_eq!(status.status_code(), 0x85);
        assert_eq!(
            status.status_code_type(),
            StatusCodeType::MediaAndDataIntegrity
        );
        assert_eq!(status.command_retry_delay(), 2);
        assert!(status.more() && status.do_not_retry());
        assert!(status.is(Status::COMPARE_FAILURE));
        assert_ne!(status, Status::COMPARE_FAILURE);
    }

    #[test]
    fn each_bit_stands_alone() {
        assert_eq!(Status::SUCCESS.with_more().bits(), 0x2000);
        assert_eq!(Status::SUCCESS.with_do_not_retry().bits(), 0x4000);
        assert_eq!(Status::SUCCESS.with_command_retry_delay(3).bits(), 0x1800);
        assert_eq!(
            Status::SUCCESS
                .with_command_retry_delay(3)
                .with_command_retry_delay(1)
                .bits(),
            0x0800
        );
        assert_eq!(Status::TRANSIENT_TRANSPORT_ERROR.bits(), 0x022);
        assert_eq!(Status::INVALID_QUEUE_IDENTIFIER.bits(), 0x101);
        assert_eq!(Status::HOST_PATHING_ERROR.bits(), 0x370);
        assert_eq!(Status::new(7, 0xff).bits(), 0x7ff);
        assert_eq!(Status::from_bits(0xffff).bits(), 0x7fff);
    }

    #[test]
    fn every_field_value_survives_the_completion() {
        for bits in 0..=0x7fff {
            let status = Status::from_bits(bits);
            assert_eq!(Status::from_completion(status.to_completion(true)), status);
            assert_eq!(Status::from_completion(status.to_completion(false)), status);
        }
    }

    #[test]
    fn no_name_is_given_twice_within_a_command_set() {
        for (index, (status, set, name)) in NAMES.iter().enumerate() {
            for (other, other_set, other_name) in &NAMES[index + 1..] {
                assert!(
                    !(status.is(*other) && set == other_set),
                    "{name} and {other_name}"
                );
                assert_ne!(name, other_name);
            }
        }
    }

    #[test]
    fn names_depend_on_the_command_where_the_code_does() {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        assert_eq!(
            status.name(CommandSet::Fabrics),
            Some("Connect Invalid Parameters")
        );
        assert_eq!(
            status.name(CommandSet::Nvm),
            Some("Attempted Write to Read Only Range")
        );
        assert_eq!(
            Status::INVALID_FIELD_IN_COMMAND.name(CommandSet::Fabrics),
            Some("Invalid Field in Command")
        );
        assert_eq!(Status::new(0, 0x7e).name(CommandSet::Nvm), None);
    }

    #[test]
    fn display_names_the_status_and_its_numbers() {
        assert_eq!(
            Status::LBA_OUT_OF_RANGE.to_string(),
            "LBA Out of Range (SCT 0h, SC 80h)"
        );
        assert_eq!(
            Status::INVALID_COMMAND_OPCODE
                .with_do_not_retry()
                .to_string(),
            "Invalid Command Opcode (SCT 0h, SC 01h, do not retry)"
        );
        assert_eq!(
            Status::CONFLICTING_ATTRIBUTES.to_string(),
            "Conflicting Attributes or Connect Incompatible Format (SCT 1h, SC 80h)"
        );
        assert_eq!(
            Status::new(7, 1).to_string(),
            "unnamed status (SCT 7h, SC 01h)"
        );
    }
}
