//! Opcodes: which command a submission queue entry is.
//!
//! Every opcode of the specifications is named, whether or not Weir carries the command out, so
//! that a refusal can say what was refused.

use crate::wire::open_enum;

open_enum! {
    /// Opcodes of the admin queue (NVMe Base 2.0c section 5, "Opcodes for Admin Commands").
    pub enum AdminOpcode: u8 {
        /// Delete I/O Submission Queue; not for Fabrics.
        DeleteSubmissionQueue = 0x00 => "Delete I/O Submission Queue",
        /// Create I/O Submission Queue; not for Fabrics.
        CreateSubmissionQueue = 0x01 => "Create I/O Submission Queue",
        /// Get Log Page, section 5.16.
        GetLogPage = 0x02 => "Get Log Page",
        /// Delete I/O Completion Queue; not for Fabrics.
        DeleteCompletionQueue = 0x04 => "Delete I/O Completion Queue",
        /// Create I/O Completion Queue; not for Fabrics.
        CreateCompletionQueue = 0x05 => "Create I/O Completion Queue",
        /// Identify, section 5.17.
        Identify = 0x06 => "Identify",
        /// Abort, section 5.1.
        Abort = 0x08 => "Abort",
        /// Set Features, section 5.27.
        SetFeatures = 0x09 => "Set Features",
        /// Get Features, section 5.15.
        GetFeatures = 0x0a => "Get Features",
        /// Asynchronous Event Request, section 5.2.
        AsynchronousEventRequest = 0x0c => "Asynchronous Event Request",
        /// Namespace Management.
        NamespaceManagement = 0x0d => "Namespace Management",
        /// Firmware Commit.
        FirmwareCommit = 0x10 => "Firmware Commit",
        /// Firmware Image Download.
        FirmwareImageDownload = 0x11 => "Firmware Image Download",
        /// Device Self-test.
        DeviceSelfTest = 0x14 => "Device Self-test",
        /// Namespace Attachment.
        NamespaceAttachment = 0x15 => "Namespace Attachment",
        /// Keep Alive, section 5.18.
        KeepAlive = 0x18 => "Keep Alive",
        /// Directive Send.
        DirectiveSend = 0x19 => "Directive Send",
        /// Directive Receive.
        DirectiveReceive = 0x1a => "Directive Receive",
        /// Virtualization Management.
        VirtualizationManagement = 0x1c => "Virtualization Management",
        /// NVMe-MI Send.
        NvmeMiSend = 0x1d => "NVMe-MI Send",
        /// NVMe-MI Receive.
        NvmeMiReceive = 0x1e => "NVMe-MI Receive",
        /// Capacity Management.
        CapacityManagement = 0x20 => "Capacity Management",
        /// Lockdown.
        Lockdown = 0x24 => "Lockdown",
        /// Doorbell Buffer Config; not for Fabrics.
        DoorbellBufferConfig = 0x7c => "Doorbell Buffer Config",
        /// Fabrics commands, told apart by their FCTYPE.
        Fabrics = 0x7f => "Fabrics Commands",
        /// Format NVM.
        FormatNvm = 0x80 => "Format NVM",
        /// Security Send.
        SecuritySend = 0x81 => "Security Send",
        /// Security Receive.
        SecurityReceive = 0x82 => "Security Receive",
        /// Sanitize.
        Sanitize = 0x84 => "Sanitize",
        /// Get LBA Status.
        GetLbaStatus = 0x86 => "Get LBA Status",
    }
}

open_enum! {
    /// Opcodes of an I/O queue of the NVM command set (NVMe Base 2.0c section 7; NVM Command Set 1.0
    /// section 3.2).
    pub enum NvmOpcode: u8 {
        /// Flush.
        Flush = 0x00 => "Flush",
        /// Write.
        Write = 0x01 => "Write",
        /// Read.
        Read = 0x02 => "Read",
        /// Write Uncorrectable.
        WriteUncorrectable = 0x04 => "Write Uncorrectable",
        /// Compare.
        Compare = 0x05 => "Compare",
        /// Write Zeroes.
        WriteZeroes = 0x08 => "Write Zeroes",
        /// Dataset Management.
        DatasetManagement = 0x09 => "Dataset Management",
        /// Verify.
        Verify = 0x0c => "Verify",
        /// Reservation Register.
        ReservationRegister = 0x0d => "Reservation Register",
        /// Reservation Report.
        ReservationReport = 0x0e => "Reservation Report",
        /// Reservation Acquire.
        ReservationAcquire = 0x11 => "Reservation Acquire",
        /// Reservation Release.
        ReservationRelease = 0x15 => "Reservation Release",
        /// Copy.
        Copy = 0x19 => "Copy",
        /// Fabrics commands, told apart by their FCTYPE.
        Fabrics = 0x7f => "Fabrics Commands",
    }
}

open_enum! {
    /// Fabrics Command Type, FCTYPE (NVMe Base 2.0c section 6).
    pub enum FabricsType: u8 {
        /// Property Set, section 6.6.
        PropertySet = 0x00 => "Property Set",
        /// Connect, section 6.3.
        Connect = 0x01 => "Connect",
        /// Property Get, section 6.5.
        PropertyGet = 0x04 => "Property Get",
        /// Authentication Send, section 6.2.
        AuthenticationSend = 0x05 => "Authentication Send",
        /// Authentication Receive, section 6.1.
        AuthenticationReceive = 0x06 => "Authentication Receive",
        /// Disconnect, section 6.4.
        Disconnect = 0x08 => "Disconnect",
    }
}

/// The opcode of every Fabrics command (NVMe Base 2.0c section 6).
pub const FABRICS_OPCODE: u8 = 0x7f;

/// Which way a command moves data: bits 1:0 of its opcode, and of FCTYPE for a Fabrics command
/// (NVMe Base 2.0c section 3.3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataDirection {
    /// 00b: no data.
    None,
    /// 01b: from the host to the controller.
    HostToController,
    /// 10b: from the controller to the host.
    ControllerToHost,
    /// 11b: both ways.
    Bidirectional,
}

impl DataDirection {
    /// The direction that an opcode or FCTYPE states.
    pub const fn of(code: u8) -> Self {
        match code & 0b11 {
            0b00 => Self::None,
            0b01 => Self::HostToController,
            0b10 => Self::ControllerToHost,
            _ => Self::Bidirectional,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_the_specified_values() {
        assert_eq!(AdminOpcode::from_value(0x02), AdminOpcode::GetLogPage);
        assert_eq!(AdminOpcode::Identify.value(), 0x06);
        assert_eq!(AdminOpcode::AsynchronousEventRequest.value(), 0x0c);
        assert_eq!(AdminOpcode::KeepAlive.value(), 0x18);
        assert_eq!(AdminOpcode::Fabrics.value(), FABRICS_OPCODE);
        assert_eq!(AdminOpcode::from_value(0xc3), AdminOpcode::Other(0xc3));
        assert_eq!(NvmOpcode::Read.value(), 0x02);
        assert_eq!(NvmOpcode::Copy.value(), 0x19);
        assert_eq!(NvmOpcode::from_value(0x03), NvmOpcode::Other(0x03));
        assert_eq!(FabricsType::Disconnect.value(), 0x08);
        assert_eq!(AdminOpcode::GetLogPage.to_string(), "Get Log Page");
        assert_eq!(NvmOpcode::Other(0x90).to_string(), "0x90");
    }

    #[test]
    fn all_values_survive() {
        for value in 0..=u8::MAX {
            assert_eq!(AdminOpcode::from_value(value).value(), value);
            assert_eq!(NvmOpcode::from_value(value).value(), value);
            assert_eq!(FabricsType::from_value(value).value(), value);
        }
    }

    #[test]
    fn the_opcode_says_which_way_data_goes() {
        assert_eq!(
            DataDirection::of(NvmOpcode::Read.value()),
            DataDirection::ControllerToHost
        );
        assert_eq!(
            DataDirection::of(NvmOpcode::Write.value()),
            DataDirection::HostToController
        );
        assert_eq!(
            DataDirection::of(NvmOpcode::Compare.value()),
            DataDirection::HostToController
        );
        assert_eq!(
            DataDirection::of(NvmOpcode::Copy.value()),
            DataDirection::HostToController
        );
        assert_eq!(
            DataDirection::of(NvmOpcode::Flush.value()),
            DataDirection::None
        );
        assert_eq!(
            DataDirection::of(NvmOpcode::Verify.value()),
            DataDirection::None
        );
        assert_eq!(
            DataDirection::of(FabricsType::Connect.value()),
            DataDirection::HostToController
        );
        assert_eq!(
            DataDirection::of(FabricsType::PropertyGet.value()),
            DataDirection::None
        );
        assert_eq!(DataDirection::of(0x7f), DataDirection::Bidirectional);
    }
}
