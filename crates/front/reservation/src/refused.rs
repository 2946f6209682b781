//! Refusals of an operation, and how each protocol says them.

use thiserror::Error;
use weir_nvme::Status;
use weir_scsi::sense::{AdditionalSense, FieldPointer, Sense};

use crate::table::REGISTRANTS_MAX;

/// Byte of SERVICE ACTION RESERVATION KEY in the parameter list of PERSISTENT RESERVE OUT.
const SERVICE_ACTION_KEY_BYTE: u16 = 8;
/// Byte of the TransportID in the parameter list of REGISTER AND MOVE.
const TRANSPORT_ID_BYTE: u16 = 24;
/// Byte of the CDB whose low bits are TYPE, and the highest of these.
const TYPE_BYTE: (u16, u8) = (2, 3);

/// Reason why an operation is refused. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Refused {
    /// The operation is for registrants.
    #[error("the host has not registered a key; register one first")]
    NotRegistered,
    /// The key is not that of the registration.
    #[error("the key is not the one that the host has registered")]
    WrongKey,
    /// The reservation is another's, or of another type.
    #[error("the reservation is held by another host, or is of another type")]
    Held,
    /// The operation is for the holder.
    #[error("the host does not hold the reservation")]
    NotHolder,
    /// All registrants hold the reservation, so that none can hand it over.
    #[error("all registrants hold the reservation; it cannot be moved")]
    HeldByAll,
    /// Nobody has registered the key that is to be preempted.
    #[error("no host has registered the key that is to be preempted")]
    NoSuchKey,
    /// RESERVE (6) or (10) shuts the unit.
    #[error("RESERVE (6) or (10) shuts the unit; release it first")]
    UnitReserved,
    /// RESERVE (6) and (10), and RELEASE, conflict with any registration.
    #[error("hosts have registered keys; RESERVE (6) and (10) cannot be used beside them")]
    Registrations,
    /// A key of zero where a registrant's is expected.
    #[error("a key of zero names no registration")]
    ZeroKey,
    /// The type of the reservation is reserved.
    #[error("the type of the reservation is not known")]
    UnknownType,
    /// The reservation is to be released as one of another type.
    #[error("the reservation that the host holds is of another type")]
    OtherType,
    /// The reservation is to be moved to the nexus that holds it.
    #[error("the reservation is to be moved to its holder")]
    MoveToSelf,
    /// There is no place for another registrant.
    #[error("{REGISTRANTS_MAX} hosts have registered; unregister one first")]
    TooManyRegistrants,
    /// The host gave no identifier.
    #[error("the host has no Host Identifier; set one first")]
    NamelessHost,
    /// RESERVE (6) and (10) are for nexuses.
    #[error("only an I_T nexus can reserve the unit")]
    NoNexus,
    /// What is to outlast a loss of power could not be stored. Nothing has changed.
    #[error("the reservations could not be stored, and stay as they were")]
    NotStored,
}

impl Refused {
    /// Says that the protocols answer it with a reservation conflict.
    pub const fn is_conflict(self) -> bool {
        matches!(
            self,
            Self::NotRegistered
                | Self::WrongKey
                | Self::Held
                | Self::NotHolder
                | Self::HeldByAll
                | Self::NoSuchKey
                | Self::UnitReserved
                | Self::Registrations
        )
    }

    /// Status of NVMe.
    pub const fn status(self) -> Status {
        match self {
            Self::TooManyRegistrants | Self::NotStored => Status::INTERNAL_ERROR,
            Self::NamelessHost => Status::HOST_IDENTIFIER_NOT_INITIALIZED.with_do_not_retry(),
            _ if self.is_conflict() => Status::RESERVATION_CONFLICT.with_do_not_retry(),
            _ => Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry(),
        }
    }

    /// Sense data of SCSI, with CHECK CONDITION; `None`: status RESERVATION CONFLICT, which has none.
    pub const fn sense(self) -> Option<Sense> {
        if self.is_conflict() {
            return None;
        }
        let (byte, bit) = TYPE_BYTE;
        Some(match self {
            Self::ZeroKey => Sense::invalid_field(FieldPointer::list(SERVICE_ACTION_KEY_BYTE)),
            Self::MoveToSelf => Sense::invalid_field(FieldPointer::list(TRANSPORT_ID_BYTE)),
            Self::UnknownType => Sense::invalid_field(FieldPointer::cdb_bit(byte, bit)),
            Self::OtherType => {
                Sense::illegal_request(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
            }
            Self::TooManyRegistrants => {
                Sense::illegal_request(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES)
            }
            _ => Sense::internal_failure(),
        })
    }
}
