//! Parameter lists of PERSISTENT RESERVE OUT, and data of PERSISTENT RESERVE IN (SPC-4 sections 6.16 and 6.15).
//!
//! Keys are numbers. TYPE is the field's value: it is not judged here, and neither is who holds what.

mod report;
#[cfg(test)]
mod tests;
mod transport;

use thiserror::Error;
use weir_open_enum::open_enum;

use crate::sense::{FieldPointer, Sense};
use crate::wire::{bit, flag, length_32, put, u16_at, u32_at, u64_at};

pub use report::{
    FullStatus, HeldReservation, RegisteredKeys, RegistrantStatus, ReservationCapabilities,
    ReservationStatus, type_mask,
};
pub use transport::{ISCSI_NAME_LENGTH_MAX, TransportId, TransportIdError};

/// Bytes of the parameter list of PERSISTENT RESERVE OUT, and of that of REGISTER AND MOVE before its TransportID.
pub const RESERVE_OUT_LENGTH: usize = 24;

/// Byte of SPEC_I_PT, ALL_TG_PT and APTPL.
const FLAGS: usize = 20;
const SPECIFY_INITIATOR_PORTS: u8 = 3;
const ALL_TARGET_PORTS: u8 = 2;
/// Byte of UNREG and APTPL in the list of REGISTER AND MOVE.
const MOVE_FLAGS: usize = 17;
const UNREGISTER: u8 = 1;
/// APTPL in either list.
const PERSISTS: u8 = 0;

open_enum! {
    /// SERVICE ACTION of PERSISTENT RESERVE OUT (SPC-4 table 212), five bits.
    pub enum ReserveOutAction: u8 {
        /// Registers, changes or ends the registration of a key.
        Register = 0x00 => "REGISTER",
        /// Makes a reservation.
        Reserve = 0x01 => "RESERVE",
        /// Ends a reservation.
        Release = 0x02 => "RELEASE",
        /// Ends the reservation and all registrations.
        Clear = 0x03 => "CLEAR",
        /// Ends registrations of others, and takes their reservation over.
        Preempt = 0x04 => "PREEMPT",
        /// The same, and aborts their commands.
        PreemptAndAbort = 0x05 => "PREEMPT AND ABORT",
        /// Registers without regard to the key before.
        RegisterAndIgnoreExistingKey = 0x06 => "REGISTER AND IGNORE EXISTING KEY",
        /// Hands the reservation to another I_T nexus.
        RegisterAndMove = 0x07 => "REGISTER AND MOVE",
        /// Begins anew after reservations were lost.
        ReplaceLostReservation = 0x08 => "REPLACE LOST RESERVATION",
    }
}

open_enum! {
    /// SERVICE ACTION of PERSISTENT RESERVE IN (SPC-4 table 202), five bits.
    pub enum ReserveInAction: u8 {
        /// See [`RegisteredKeys`].
        ReadKeys = 0x00 => "READ KEYS",
        /// See [`ReservationStatus`].
        ReadReservation = 0x01 => "READ RESERVATION",
        /// See [`ReservationCapabilities`].
        ReportCapabilities = 0x02 => "REPORT CAPABILITIES",
        /// See [`FullStatus`].
        ReadFullStatus = 0x03 => "READ FULL STATUS",
    }
}

/// A parameter list of PERSISTENT RESERVE OUT that is not to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReserveOutError {
    /// The list is not as long as it must be.
    #[error("the list of {0} bytes is not as long as its service action and its fields make it")]
    Length(usize),
    /// SPEC_I_PT: initiator ports are listed, which are to be registered, too.
    #[error("SPEC_I_PT is set, but initiator ports register for themselves alone")]
    SpecifiesInitiatorPorts,
    /// ALL_TG_PT: the registration is to be one for all target ports.
    #[error("ALL_TG_PT is set, but a registration is for one target port")]
    AllTargetPorts,
    /// The TransportID names no initiator port.
    #[error(transparent)]
    TransportId(#[from] TransportIdError),
}

impl From<ReserveOutError> for Sense {
    fn from(error: ReserveOutError) -> Self {
        let flags = FLAGS as u16;
        Self::invalid_field(match error {
            ReserveOutError::Length(_) => return Self::parameter_list_length(),
            ReserveOutError::SpecifiesInitiatorPorts => {
                FieldPointer::list_bit(flags, SPECIFY_INITIATOR_PORTS)
            }
            ReserveOutError::AllTargetPorts => FieldPointer::list_bit(flags, ALL_TARGET_PORTS),
            ReserveOutError::TransportId(_) => FieldPointer::list(RESERVE_OUT_LENGTH as u16),
        })
    }
}

/// Parameter list of PERSISTENT RESERVE OUT, but for REGISTER AND MOVE (SPC-4 section 6.16.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReserveOutList {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub action_key: u64,
    /// APTPL, where the service action registers; false for others, which ignore it.
    pub persists: bool,
}

impl ReserveOutList {
    /// Reads the list of a service action, which must have come whole: a list of another length than PARAMETER LIST
    /// LENGTH is refused before.
    ///
    /// # Errors
    /// The length, or a bit that is not supported. ALL_TG_PT is ignored where the service action does not register.
    pub fn parse(bytes: &[u8], action: ReserveOutAction) -> Result<Self, ReserveOutError> {
        let wrong_length = ReserveOutError::Length(bytes.len());
        let flags = *bytes.get(FLAGS).ok_or(wrong_length)?;
        // A list with initiator ports is longer, so that its length says nothing.
        if bit(flags, SPECIFY_INITIATOR_PORTS) {
            return Err(ReserveOutError::SpecifiesInitiatorPorts);
        }
        if bytes.len() != RESERVE_OUT_LENGTH {
            return Err(wrong_length);
        }
        let registers = matches!(
            action,
            ReserveOutAction::Register | ReserveOutAction::RegisterAndIgnoreExistingKey
        );
        if registers && bit(flags, ALL_TARGET_PORTS) {
            return Err(ReserveOutError::AllTargetPorts);
        }
        Ok(Self {
            key: u64_at(bytes, 0),
            action_key: u64_at(bytes, 8),
            persists: registers && bit(flags, PERSISTS),
        })
    }

    /// Bytes of the list.
    pub fn encode(&self) -> [u8; RESERVE_OUT_LENGTH] {
        let mut bytes = [0; RESERVE_OUT_LENGTH];
        put(&mut bytes, 0, self.key.to_be_bytes());
        put(&mut bytes, 8, self.action_key.to_be_bytes());
        bytes[FLAGS] = flag(self.persists, PERSISTS);
        bytes
    }
}

/// Parameter list of REGISTER AND MOVE (SPC-4 section 6.16.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegisterAndMoveList {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: that of the nexus which is to hold the reservation.
    pub action_key: u64,
    /// UNREG: the registration of the nexus that asks ends.
    pub unregisters: bool,
    /// APTPL.
    pub persists: bool,
    /// RELATIVE TARGET PORT IDENTIFIER of the other nexus.
    pub relative_port: u16,
    /// Initiator port of the other nexus.
    pub transport: TransportId,
}

impl RegisterAndMoveList {
    /// Reads the list, which must have come whole.
    ///
    /// # Errors
    /// The length, or a TransportID that is no iSCSI initiator port: one that names a device alone leaves open which
    /// of its ports is meant.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReserveOutError> {
        let wrong_length = ReserveOutError::Length(bytes.len());
        let (header, rest) = bytes
            .split_at_checked(RESERVE_OUT_LENGTH)
            .ok_or(wrong_length)?;
        if rest.len() != u32_at(header, 20) as usize {
            return Err(wrong_length);
        }
        let transport = TransportId::parse(rest)?;
        if !matches!(transport, TransportId::IscsiPort { .. }) {
            return Err(TransportIdError::NoPort.into());
        }
        Ok(Self {
            key: u64_at(header, 0),
            action_key: u64_at(header, 8),
            unregisters: bit(header[MOVE_FLAGS], UNREGISTER),
            persists: bit(header[MOVE_FLAGS], PERSISTS),
            relative_port: u16_at(header, 18),
            transport,
        })
    }

    /// Bytes of the list.
    pub fn encode(&self) -> Vec<u8> {
        let transport = self.transport.encode();
        let mut bytes = vec![0; RESERVE_OUT_LENGTH];
        put(&mut bytes, 0, self.key.to_be_bytes());
        put(&mut bytes, 8, self.action_key.to_be_bytes());
        bytes[MOVE_FLAGS] = flag(self.unregisters, UNREGISTER) | flag(self.persists, PERSISTS);
        put(&mut bytes, 18, self.relative_port.to_be_bytes());
        put(&mut bytes, 20, length_32(transport.len()));
        bytes.extend(transport);
        bytes
    }
}
