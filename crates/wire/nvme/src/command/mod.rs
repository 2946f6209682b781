//! Typed commands: a submission queue entry read as the command that it is, and built from it.
//!
//! Parsing reads fields and refuses values that the specification reserves. It knows no namespace,
//! no limit and no state: whether a command may run is the command core's decision. A reserved bit
//! outside an enumerated field is ignored, as the specification lets a controller do (NVMe Base
//! 2.0c section 1.4), so that hosts of later versions are served.

mod admin;
mod fabrics;
mod nvm;

pub use admin::{
    Abort, AdminCommand, FeatureSelect, GetFeatures, GetLogPage, Identify, SetFeatures,
};
pub use fabrics::{
    AUTHENTICATION_REQUIRED, Connect, ConnectAttributes, ConnectData, ConnectParameter,
    ConnectResponse, FabricsCommand, PropertyGet, PropertySet, PropertySize, SecurityTransfer,
};
pub use nvm::{
    BLOCKS_PER_COMMAND_MAX, Blocks, CopyCommand, CopyRange, DatasetManagement,
    DatasetManagementRange, NvmCommand, RANGES_MAX, Verify, WriteZeroes, copy_ranges,
    dataset_management_ranges,
};

use crate::status::Status;
use thiserror::Error;

/// Why an entry is not a command that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The opcode is reserved, or of a command that is not read here.
    #[error("opcode {opcode:#04x} is not supported")]
    Opcode {
        /// The opcode.
        opcode: u8,
    },
    /// The Fabrics command type is reserved, or of a command that is not read here.
    #[error("Fabrics command type {fabrics_type:#04x} is not supported")]
    FabricsType {
        /// FCTYPE.
        fabrics_type: u8,
    },
    /// A field has a reserved value.
    #[error("{field} has the reserved value {value:#x}")]
    ReservedValue {
        /// The field's name in the specification.
        field: &'static str,
        /// Its value.
        value: u32,
        /// Byte of the entry where the field starts, for the Error Information log.
        byte: u16,
    },
}

impl CommandError {
    /// The status that answers such a command, with Do Not Retry set: Invalid Command Opcode or
    /// Invalid Field in Command. An unknown Fabrics command type is the latter, being a
    /// field other than the opcode (NVMe Base 2.0c section 3.3.3.2.1.1).
    pub const fn status(self) -> Status {
        match self {
            Self::Opcode { .. } => Status::INVALID_COMMAND_OPCODE.with_do_not_retry(),
            Self::FabricsType { .. } | Self::ReservedValue { .. } => {
                Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry()
            }
        }
    }

    /// Byte of the entry where the fault is, for the Error Information log's parameter error
    /// location.
    pub const fn byte(self) -> u16 {
        match self {
            Self::Opcode { .. } => 0,
            Self::FabricsType { .. } => 4,
            Self::ReservedValue { byte, .. } => byte,
        }
    }
}
