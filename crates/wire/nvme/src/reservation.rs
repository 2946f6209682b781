//! Reservation commands: their fields, their data, and what Reservation Report returns (NVMe Base 2.0c sections 7.2
//! to 7.5).
//!
//! [`NvmCommand`](crate::command::NvmCommand) says that an entry is one of these commands; the types here read the
//! rest of it. Keys are numbers. RTYPE is the field's value: it is not judged here.

mod report;
#[cfg(test)]
mod tests;

pub use report::{
    CONTROLLER_NOT_ATTACHED, RegisteredController, RegisteredControllerEntry,
    RegisteredControllerEntryExtended, RegisteredControllerStatus, ReservationReport,
    ReservationReportHeader,
};

use crate::command::CommandError;
use crate::sqe::Sqe;
use crate::wire::{bit, bits, wire_struct};

/// Byte of an entry where CDW10 starts.
const CDW10: u16 = 40;
/// Bit of CDW10: Ignore Existing Key (IEKEY).
const IGNORE_EXISTING_KEY: u32 = 3;
/// Lowest bit of CDW10's Reservation Type (RTYPE), eight bits.
const RESERVATION_TYPE: u32 = 8;
/// Lowest bit of CDW10's Change Persist Through Power Loss State (CPTPL), two bits.
const CHANGE_PERSISTENCE: u32 = 30;

const fn reserved(field: &'static str, value: u32) -> CommandError {
    CommandError::ReservedValue {
        field,
        value,
        byte: CDW10,
    }
}

/// Action of Reservation Register (RREGA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegisterAction {
    /// 000b: registers NRKEY.
    Register,
    /// 001b: ends the registration.
    Unregister,
    /// 010b: replaces the key by NRKEY.
    Replace,
}

/// Reservation Register (NVMe Base 2.0c section 7.3). Its data is [`ReservationRegisterKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationRegister {
    /// Reservation Register Action (RREGA).
    pub action: RegisterAction,
    /// Ignore Existing Key (IEKEY): CRKEY is not looked at.
    pub ignores_existing_key: bool,
    /// Change Persist Through Power Loss State (CPTPL); `None` leaves the state as it is.
    pub persistence: Option<bool>,
}

impl ReservationRegister {
    /// Reads the fields of an entry with the command's opcode.
    ///
    /// # Errors
    /// RREGA or CPTPL has a reserved value.
    pub const fn from_sqe(sqe: &Sqe) -> Result<Self, CommandError> {
        let action = match bits(sqe.cdw10, 2, 0) {
            0 => RegisterAction::Register,
            1 => RegisterAction::Unregister,
            2 => RegisterAction::Replace,
            value => return Err(reserved("RREGA", value)),
        };
        let persistence = match bits(sqe.cdw10, 31, CHANGE_PERSISTENCE) {
            0b00 => None,
            0b10 => Some(false),
            0b11 => Some(true),
            value => return Err(reserved("CPTPL", value)),
        };
        Ok(Self {
            action,
            ignores_existing_key: bit(sqe.cdw10, IGNORE_EXISTING_KEY),
            persistence,
        })
    }

    /// Command dword 10.
    pub const fn to_cdw10(self) -> u32 {
        let persistence = match self.persistence {
            None => 0b00,
            Some(persists) => 0b10 | persists as u32,
        };
        self.action as u32
            | (self.ignores_existing_key as u32) << IGNORE_EXISTING_KEY
            | persistence << CHANGE_PERSISTENCE
    }
}

wire_struct! {
    /// Data of Reservation Register.
    pub struct ReservationRegisterKeys[16] {
        /// Current Reservation Key (CRKEY).
        0 => current: u64,
        /// New Reservation Key (NRKEY).
        8 => new: u64,
    }
}

/// Action of Reservation Acquire (RACQA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AcquireAction {
    /// 000b: acquires the reservation.
    Acquire,
    /// 001b: ends registrations with PRKEY, and takes their reservation over.
    Preempt,
    /// 010b: the same, and aborts commands of theirs.
    PreemptAndAbort,
}

/// Reservation Acquire (NVMe Base 2.0c section 7.2). Its data is [`ReservationAcquireKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationAcquire {
    /// Reservation Acquire Action (RACQA).
    pub action: AcquireAction,
    /// Reservation Type (RTYPE).
    pub kind: u8,
}

impl ReservationAcquire {
    /// Reads the fields of an entry with the command's opcode.
    ///
    /// # Errors
    /// RACQA has a reserved value, or IEKEY is set, which this command does not allow.
    pub const fn from_sqe(sqe: &Sqe) -> Result<Self, CommandError> {
        let action = match bits(sqe.cdw10, 2, 0) {
            0 => AcquireAction::Acquire,
            1 => AcquireAction::Preempt,
            2 => AcquireAction::PreemptAndAbort,
            value => return Err(reserved("RACQA", value)),
        };
        if bit(sqe.cdw10, IGNORE_EXISTING_KEY) {
            return Err(reserved("IEKEY", 1));
        }
        Ok(Self {
            action,
            kind: bits(sqe.cdw10, 15, RESERVATION_TYPE) as u8,
        })
    }

    /// Command dword 10.
    pub const fn to_cdw10(self) -> u32 {
        self.action as u32 | (self.kind as u32) << RESERVATION_TYPE
    }
}

wire_struct! {
    /// Data of Reservation Acquire.
    pub struct ReservationAcquireKeys[16] {
        /// Current Reservation Key (CRKEY).
        0 => current: u64,
        /// Preempt Reservation Key (PRKEY).
        8 => preempted: u64,
    }
}

/// Action of Reservation Release (RRELA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseAction {
    /// 000b: releases the reservation.
    Release,
    /// 001b: ends the reservation and all registrations.
    Clear,
}

/// Reservation Release (NVMe Base 2.0c section 7.4). Its data is [`ReservationReleaseKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationRelease {
    /// Reservation Release Action (RRELA).
    pub action: ReleaseAction,
    /// Reservation Type (RTYPE).
    pub kind: u8,
}

impl ReservationRelease {
    /// Reads the fields of an entry with the command's opcode.
    ///
    /// # Errors
    /// RRELA has a reserved value, or IEKEY is set, which this command does not allow.
    pub const fn from_sqe(sqe: &Sqe) -> Result<Self, CommandError> {
        let action = match bits(sqe.cdw10, 2, 0) {
            0 => ReleaseAction::Release,
            1 => ReleaseAction::Clear,
            value => return Err(reserved("RRELA", value)),
        };
        if bit(sqe.cdw10, IGNORE_EXISTING_KEY) {
            return Err(reserved("IEKEY", 1));
        }
        Ok(Self {
            action,
            kind: bits(sqe.cdw10, 15, RESERVATION_TYPE) as u8,
        })
    }

    /// Command dword 10.
    pub const fn to_cdw10(self) -> u32 {
        self.action as u32 | (self.kind as u32) << RESERVATION_TYPE
    }
}

wire_struct! {
    /// Data of Reservation Release.
    pub struct ReservationReleaseKey[8] {
        /// Current Reservation Key (CRKEY).
        0 => current: u64,
    }
}

/// Fields of Reservation Report (NVMe Base 2.0c section 7.5), which returns [`ReservationReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationReportCommand {
    /// Number of Dwords (NUMD), 0's based.
    pub dwords_zero_based: u32,
    /// Extended Data Structure (EDS): host identifiers of 128 bits.
    pub is_extended: bool,
}

impl ReservationReportCommand {
    /// Reads the fields of an entry with the command's opcode.
    pub const fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            dwords_zero_based: sqe.cdw10,
            is_extended: bit(sqe.cdw11, 0),
        }
    }

    /// Command dwords 10 and 11.
    pub const fn to_dwords(self) -> [u32; 2] {
        [self.dwords_zero_based, self.is_extended as u32]
    }

    /// Bytes that the host asks for.
    pub const fn length(&self) -> u64 {
        (self.dwords_zero_based as u64 + 1) * 4
    }
}
