//! Status, and sense data in its two formats (SPC-4 section 4.5).
//!
//! A target makes a [`Sense`] and encodes it as the initiator asked (D_SENSE, DESC); an initiator
//! parses either format.

mod codes;
mod data;
#[cfg(test)]
mod tests;

use thiserror::Error;
use weir_open_enum::open_enum;

pub use codes::AdditionalSense;
pub use data::{SENSE_LENGTH_MAX, SenseBytes, SenseFormat};

open_enum! {
    /// Status of a command (SAM-5 section 5.3.1).
    pub enum Status: u8 {
        /// The command has succeeded.
        Good = 0x00 => "GOOD",
        /// The command has failed, or the unit has something to say; sense data says what.
        CheckCondition = 0x02 => "CHECK CONDITION",
        /// PRE-FETCH has found room for all blocks.
        ConditionMet = 0x04 => "CONDITION MET",
        /// The command can be tried again later.
        Busy = 0x08 => "BUSY",
        /// A reservation forbids the command.
        ReservationConflict = 0x18 => "RESERVATION CONFLICT",
        /// There is no room for another command.
        TaskSetFull = 0x28 => "TASK SET FULL",
        /// An auto contingent allegiance exists.
        AcaActive = 0x30 => "ACA ACTIVE",
        /// Another initiator has aborted the command.
        TaskAborted = 0x40 => "TASK ABORTED",
    }
}

/// Sense key (SPC-4 section 4.5.6, table 48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// 0h: nothing to report.
    NoSense = 0x0,
    /// 1h: the command has succeeded after recovery.
    RecoveredError = 0x1,
    /// 2h: the unit cannot be accessed.
    NotReady = 0x2,
    /// 3h: a flaw in the medium or in the recorded data.
    MediumError = 0x3,
    /// 4h: a failure of the device.
    HardwareError = 0x4,
    /// 5h: an illegal value in the CDB or in parameter data.
    IllegalRequest = 0x5,
    /// 6h: the initiator shall know that something has changed.
    UnitAttention = 0x6,
    /// 7h: the block is protected against the access.
    DataProtect = 0x7,
    /// 8h: blank medium.
    BlankCheck = 0x8,
    /// 9h: vendor specific.
    VendorSpecific = 0x9,
    /// Ah: a copy has been aborted.
    CopyAborted = 0xa,
    /// Bh: the device server has aborted the command.
    AbortedCommand = 0xb,
    /// Ch: reserved.
    Reserved = 0xc,
    /// Dh: the end of the partition was reached.
    VolumeOverflow = 0xd,
    /// Eh: the data did not match the data on the medium.
    Miscompare = 0xe,
    /// Fh: completed sense data after success.
    Completed = 0xf,
}

impl SenseKey {
    /// Sense keys by their value.
    pub const ALL: [Self; 16] = [
        Self::NoSense,
        Self::RecoveredError,
        Self::NotReady,
        Self::MediumError,
        Self::HardwareError,
        Self::IllegalRequest,
        Self::UnitAttention,
        Self::DataProtect,
        Self::BlankCheck,
        Self::VendorSpecific,
        Self::CopyAborted,
        Self::AbortedCommand,
        Self::Reserved,
        Self::VolumeOverflow,
        Self::Miscompare,
        Self::Completed,
    ];

    /// Meaning of the low four bits of a byte.
    pub const fn from_low_bits(byte: u8) -> Self {
        Self::ALL[(byte & 0xf) as usize]
    }
}

/// Place of a wrong value (SPC-4 section 4.5.2.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldPointer {
    /// The value stands in the CDB (C/D); otherwise in the parameter list.
    pub in_cdb: bool,
    /// First byte of the field.
    pub byte: u16,
    /// Highest bit of the field, where it does not begin with the byte's highest.
    pub bit: Option<u8>,
}

impl FieldPointer {
    /// A field of the CDB that begins with a byte.
    pub const fn cdb(byte: u16) -> Self {
        Self {
            in_cdb: true,
            byte,
            bit: None,
        }
    }

    /// A field of the CDB whose highest bit is `bit`.
    pub const fn cdb_bit(byte: u16, bit: u8) -> Self {
        Self {
            in_cdb: true,
            byte,
            bit: Some(bit),
        }
    }

    /// A field of the parameter list that begins with a byte.
    pub const fn list(byte: u16) -> Self {
        Self {
            in_cdb: false,
            byte,
            bit: None,
        }
    }

    /// A field of the parameter list whose highest bit is `bit`.
    pub const fn list_bit(byte: u16, bit: u8) -> Self {
        Self {
            in_cdb: false,
            byte,
            bit: Some(bit),
        }
    }
}

/// SENSE KEY SPECIFIC field (SPC-4 section 4.5.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeySpecific {
    /// ILLEGAL REQUEST: place of the wrong value.
    Field(FieldPointer),
    /// NO SENSE and NOT READY: parts of 65,536 that are done.
    Progress(u16),
    /// COPY ABORTED: place of the wrong value.
    Segment {
        /// The place is counted from the segment descriptor (SD); otherwise from the list.
        in_segment: bool,
        /// First byte of the field.
        byte: u16,
        /// Highest bit of the field, where it does not begin with the byte's highest.
        bit: Option<u8>,
    },
    /// RECOVERED ERROR, MEDIUM ERROR and HARDWARE ERROR: retries that were made.
    Retries(u16),
    /// UNIT ATTENTION: unit attentions were lost because there was no room for them (OVERFLOW).
    Overflow(bool),
}

/// Sense data without its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sense {
    /// SENSE KEY.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE and its qualifier.
    pub additional: AdditionalSense,
    /// INFORMATION, where it is VALID. Fixed format has no room for more than 32 bits, and leaves
    /// VALID zero for more.
    pub information: Option<u64>,
    /// COMMAND-SPECIFIC INFORMATION. Fixed format has no room for more than 32 bits, and cannot tell
    /// none from zero.
    pub command_specific: Option<u64>,
    /// SENSE KEY SPECIFIC, where SKSV is set.
    pub specific: Option<KeySpecific>,
    /// The error is one of an earlier command (RESPONSE CODE 71h and 73h).
    pub deferred: bool,
}

/// Bytes that are no sense data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SenseError {
    /// The bytes end within the header.
    #[error("sense data of {0} bytes ends within its header")]
    TooShort(usize),
    /// The RESPONSE CODE is none of 70h to 73h.
    #[error("response code {0:#04x} is no known format of sense data")]
    ResponseCode(u8),
}

impl Sense {
    /// Sense data of a key and an additional sense code alone.
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self {
            key,
            additional,
            information: None,
            command_specific: None,
            specific: None,
            deferred: false,
        }
    }

    /// The same with INFORMATION.
    #[must_use]
    pub const fn with_information(self, information: u64) -> Self {
        Self {
            information: Some(information),
            ..self
        }
    }

    /// The same with SENSE KEY SPECIFIC.
    #[must_use]
    pub const fn with_specific(self, specific: KeySpecific) -> Self {
        Self {
            specific: Some(specific),
            ..self
        }
    }

    /// NO SENSE: what REQUEST SENSE answers where nothing is to report.
    pub const fn none() -> Self {
        Self::new(SenseKey::NoSense, AdditionalSense::NO_ADDITIONAL_SENSE)
    }

    /// ILLEGAL REQUEST with an additional sense code.
    pub const fn illegal_request(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, additional)
    }

    /// INVALID COMMAND OPERATION CODE.
    pub const fn invalid_operation_code() -> Self {
        Self::illegal_request(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
    }

    /// INVALID FIELD IN CDB, or INVALID FIELD IN PARAMETER LIST, as the pointer says.
    pub const fn invalid_field(pointer: FieldPointer) -> Self {
        let additional = if pointer.in_cdb {
            AdditionalSense::INVALID_FIELD_IN_CDB
        } else {
            AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST
        };
        Self::illegal_request(additional).with_specific(KeySpecific::Field(pointer))
    }

    /// PARAMETER LIST LENGTH ERROR.
    pub const fn parameter_list_length() -> Self {
        Self::illegal_request(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
    }

    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const fn lba_out_of_range() -> Self {
        Self::illegal_request(AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE)
    }

    /// LOGICAL UNIT NOT SUPPORTED.
    pub const fn unit_not_supported() -> Self {
        Self::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
    }

    /// WRITE PROTECTED.
    pub const fn write_protected() -> Self {
        Self::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED)
    }

    /// UNRECOVERED READ ERROR, with the first block that could not be read.
    pub const fn read_error(lba: u64) -> Self {
        Self::new(
            SenseKey::MediumError,
            AdditionalSense::UNRECOVERED_READ_ERROR,
        )
        .with_information(lba)
    }

    /// WRITE ERROR, with the first block that could not be written.
    pub const fn write_error(lba: u64) -> Self {
        Self::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR).with_information(lba)
    }

    /// MISCOMPARE DURING VERIFY OPERATION, with the offset of the first byte that differs (SBC-3
    /// section 5.2).
    pub const fn miscompare(offset: u64) -> Self {
        Self::new(
            SenseKey::Miscompare,
            AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION,
        )
        .with_information(offset)
    }

    /// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    pub const fn becoming_ready() -> Self {
        Self::new(
            SenseKey::NotReady,
            AdditionalSense::LOGICAL_UNIT_IS_IN_PROCESS_OF_BECOMING_READY,
        )
    }

    /// LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
    pub const fn manual_intervention() -> Self {
        Self::new(
            SenseKey::NotReady,
            AdditionalSense::LOGICAL_UNIT_NOT_READY_MANUAL_INTERVENTION_REQUIRED,
        )
    }

    /// UNIT ATTENTION with an additional sense code.
    pub const fn unit_attention(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::UnitAttention, additional)
    }

    /// ABORTED COMMAND with an additional sense code.
    pub const fn aborted_command(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::AbortedCommand, additional)
    }

    /// HARDWARE ERROR: INTERNAL TARGET FAILURE.
    pub const fn internal_failure() -> Self {
        Self::new(
            SenseKey::HardwareError,
            AdditionalSense::INTERNAL_TARGET_FAILURE,
        )
    }

    /// COPY ABORTED with an additional sense code.
    pub const fn copy_aborted(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::CopyAborted, additional)
    }
}
