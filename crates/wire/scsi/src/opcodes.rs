//! REPORT SUPPORTED OPERATION CODES data (SPC-4 section 6.35), and the list of commands that it tells of.

#[cfg(test)]
mod tests;

use crate::cdb::{Reporting, cdb_length, opcode, service_action};
use crate::sense::{FieldPointer, Sense};
use crate::wire::{TooShort, at_least, flag, length_16, length_32, put, u16_at};

/// Bytes of a command timeouts descriptor.
const TIMEOUTS_LENGTH: usize = 12;
/// Bytes before the CDB USAGE DATA of one command.
const ONE_HEADER_LENGTH: usize = 4;

/// A command that is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supported {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, where the operation code has some.
    pub service_action: Option<u8>,
    /// CDB USAGE DATA behind the operation code: the bits that are looked at. The service action stands in it as such.
    pub usage: &'static [u8],
}

impl Supported {
    /// Length of its CDB in bytes.
    pub const fn length(&self) -> usize {
        1 + self.usage.len()
    }
}

const fn plain(opcode: u8, usage: &'static [u8]) -> Supported {
    Supported {
        opcode,
        service_action: None,
        usage,
    }
}

const fn action(opcode: u8, service_action: u8, usage: &'static [u8]) -> Supported {
    Supported {
        opcode,
        service_action: Some(service_action),
        usage,
    }
}

/// NACA of the CONTROL byte.
const C: u8 = 0x04;
const A: u8 = 0xff;

/// Every command that [`crate::Command::parse`] reads, by operation code and service action.
pub const SUPPORTED: &[Supported] = &[
    plain(opcode::TEST_UNIT_READY, &[0, 0, 0, 0, C]),
    plain(opcode::REQUEST_SENSE, &[0x01, 0, 0, A, C]),
    plain(opcode::READ_6, &[0x1f, A, A, A, C]),
    plain(opcode::WRITE_6, &[0x1f, A, A, A, C]),
    plain(opcode::INQUIRY, &[0x01, A, A, A, C]),
    plain(opcode::MODE_SELECT_6, &[0x11, 0, 0, A, C]),
    plain(opcode::RESERVE_6, &[0x11, 0, 0, 0, C]),
    plain(opcode::RELEASE_6, &[0x11, 0, 0, 0, C]),
    plain(opcode::MODE_SENSE_6, &[0x08, A, A, A, C]),
    plain(opcode::START_STOP_UNIT, &[0x01, 0, 0, 0xf7, C]),
    plain(opcode::PREVENT_ALLOW_MEDIUM_REMOVAL, &[0, 0, 0, 0x03, C]),
    plain(opcode::READ_CAPACITY_10, &[0, 0, 0, 0, 0, 0, 0, 0, C]),
    plain(opcode::READ_10, &[0xf8, A, A, A, A, 0, A, A, C]),
    plain(opcode::WRITE_10, &[0xf8, A, A, A, A, 0, A, A, C]),
    plain(opcode::WRITE_AND_VERIFY_10, &[0xf6, A, A, A, A, 0, A, A, C]),
    plain(opcode::VERIFY_10, &[0xf6, A, A, A, A, 0, A, A, C]),
    plain(opcode::SYNCHRONIZE_CACHE_10, &[0, A, A, A, A, 0, A, A, C]),
    plain(opcode::WRITE_SAME_10, &[0xf8, A, A, A, A, 0, A, A, C]),
    plain(opcode::UNMAP, &[0x01, 0, 0, 0, 0, 0, A, A, C]),
    plain(opcode::MODE_SELECT_10, &[0x11, 0, 0, 0, 0, 0, A, A, C]),
    plain(opcode::RESERVE_10, &[0x11, 0, 0, 0, 0, 0, 0, 0, C]),
    plain(opcode::RELEASE_10, &[0x11, 0, 0, 0, 0, 0, 0, 0, C]),
    plain(opcode::MODE_SENSE_10, &[0x18, A, A, 0, 0, 0, A, A, C]),
    action(
        opcode::PERSISTENT_RESERVE_IN,
        0,
        &[0, 0, 0, 0, 0, 0, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_IN,
        1,
        &[1, 0, 0, 0, 0, 0, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_IN,
        2,
        &[2, 0, 0, 0, 0, 0, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_IN,
        3,
        &[3, 0, 0, 0, 0, 0, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        0,
        &[0, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        1,
        &[1, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        2,
        &[2, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        3,
        &[3, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        4,
        &[4, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        5,
        &[5, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        6,
        &[6, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::PERSISTENT_RESERVE_OUT,
        7,
        &[7, A, 0, 0, A, A, A, A, C],
    ),
    action(
        opcode::THIRD_PARTY_COPY_OUT,
        service_action::EXTENDED_COPY_LID1,
        &[0x00, 0, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, C],
    ),
    action(
        opcode::THIRD_PARTY_COPY_IN,
        service_action::RECEIVE_COPY_OPERATING_PARAMETERS,
        &[0x03, A, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, C],
    ),
    plain(
        opcode::READ_16,
        &[0xf8, A, A, A, A, A, A, A, A, A, A, A, A, 0, C],
    ),
    plain(
        opcode::COMPARE_AND_WRITE,
        &[0xf8, A, A, A, A, A, A, A, A, 0, 0, 0, A, 0, C],
    ),
    plain(
        opcode::WRITE_16,
        &[0xf8, A, A, A, A, A, A, A, A, A, A, A, A, 0, C],
    ),
    plain(
        opcode::WRITE_AND_VERIFY_16,
        &[0xf6, A, A, A, A, A, A, A, A, A, A, A, A, 0, C],
    ),
    plain(
        opcode::VERIFY_16,
        &[0xf6, A, A, A, A, A, A, A, A, A, A, A, A, 0, C],
    ),
    plain(
        opcode::SYNCHRONIZE_CACHE_16,
        &[0, A, A, A, A, A, A, A, A, A, A, A, A, 0, C],
    ),
    plain(
        opcode::WRITE_SAME_16,
        &[0xf9, A, A, A, A, A, A, A, A, A, A, A, A, 0, C],
    ),
    action(
        opcode::SERVICE_ACTION_IN_16,
        service_action::READ_CAPACITY_16,
        &[0x10, 0, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, C],
    ),
    plain(opcode::REPORT_LUNS, &[0, A, 0, 0, 0, A, A, A, A, 0, C]),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_TARGET_PORT_GROUPS,
        &[0xea, 0, 0, 0, 0, A, A, A, A, 0, C],
    ),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_SUPPORTED_OPERATION_CODES,
        &[0x0c, 0x87, A, A, A, A, A, A, A, 0, C],
    ),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS,
        &[0x0d, 0x80, 0, 0, 0, A, A, A, A, 0, C],
    ),
    plain(opcode::READ_12, &[0xf8, A, A, A, A, A, A, A, A, 0, C]),
    plain(opcode::WRITE_12, &[0xf8, A, A, A, A, A, A, A, A, 0, C]),
    plain(
        opcode::WRITE_AND_VERIFY_12,
        &[0xf6, A, A, A, A, A, A, A, A, 0, C],
    ),
    plain(opcode::VERIFY_12, &[0xf6, A, A, A, A, A, A, A, A, 0, C]),
];

/// REPORT SUPPORTED OPERATION CODES data of [`SUPPORTED`]. `timeouts` (RCTD) adds descriptors that say of no command how long it takes.
///
/// # Errors
/// An operation code is asked for without a service action though it has some, or with one though it has none.
pub fn supported_operation_codes(reporting: Reporting, timeouts: bool) -> Result<Vec<u8>, Sense> {
    let (opcode, service_action) = match reporting {
        Reporting::All => return Ok(all(timeouts)),
        Reporting::Opcode(opcode) => {
            if has_service_actions(opcode) {
                return Err(Sense::invalid_field(FieldPointer::cdb_bit(2, 2)));
            }
            (opcode, None)
        }
        Reporting::ServiceAction(opcode, action) => {
            if SUPPORTED.iter().any(|one| one.opcode == opcode) && !has_service_actions(opcode) {
                return Err(Sense::invalid_field(FieldPointer::cdb_bit(2, 2)));
            }
            (opcode, Some(action))
        }
        Reporting::Either(opcode, action) => {
            (opcode, has_service_actions(opcode).then_some(action))
        }
    };
    let found = SUPPORTED
        .iter()
        .find(|one| one.opcode == opcode && one.service_action.map(u16::from) == service_action);
    Ok(one(found, timeouts))
}

/// A target's word on one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support<'a> {
    /// It cannot say for now, or says nothing that is known.
    Unknown,
    /// It has not got the command, or not as the standard says.
    Unsupported,
    /// It has the command: CDB USAGE DATA, the operation code in front, as far as it was not cut.
    Supported(&'a [u8]),
}

impl<'a> Support<'a> {
    /// Reads REPORT SUPPORTED OPERATION CODES data of one command (SPC-4 table 250).
    ///
    /// # Errors
    /// The data ends before CDB SIZE does.
    pub fn parse(data: &'a [u8]) -> Result<Self, TooShort> {
        at_least("supported operation code data", data, ONE_HEADER_LENGTH)?;
        Ok(match data[1] & 0x7 {
            0b001 | 0b101 => Self::Unsupported,
            0b011 => {
                let end = ONE_HEADER_LENGTH + usize::from(u16_at(data, 2));
                Self::Supported(&data[ONE_HEADER_LENGTH..end.min(data.len())])
            }
            _ => Self::Unknown,
        })
    }

    /// Tells whether the command is supported, and all of these bits of a byte of its CDB are looked at.
    pub fn heeds(&self, byte: usize, bits: u8) -> bool {
        let Self::Supported(usage) = self else {
            return false;
        };
        usage.get(byte).is_some_and(|used| used & bits == bits)
    }
}

fn has_service_actions(opcode: u8) -> bool {
    let has = |one: &Supported| one.opcode == opcode && one.service_action.is_some();
    SUPPORTED.iter().any(has)
}

fn timeouts_descriptor() -> [u8; TIMEOUTS_LENGTH] {
    let mut descriptor = [0; TIMEOUTS_LENGTH];
    put(&mut descriptor, 0, length_16(TIMEOUTS_LENGTH - 2));
    descriptor
}

/// The all_commands format (SPC-4 table 248).
fn all(timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for one in SUPPORTED {
        let mut descriptor = [0; 8];
        descriptor[0] = one.opcode;
        descriptor[3] = one.service_action.unwrap_or(0);
        // CTDP and SERVACTV.
        descriptor[5] = flag(timeouts, 1) | flag(one.service_action.is_some(), 0);
        put(&mut descriptor, 6, length_16(one.length()));
        data.extend(descriptor);
        if timeouts {
            data.extend(timeouts_descriptor());
        }
    }
    let length = data.len() - 4;
    put(&mut data, 0, length_32(length));
    data
}

/// The one_command format (SPC-4 table 250).
fn one(found: Option<&Supported>, timeouts: bool) -> Vec<u8> {
    // SUPPORT: 001b not supported, 011b supported as the standard says.
    let Some(found) = found else {
        return vec![0, 0b001, 0, 0];
    };
    let mut data = vec![0, flag(timeouts, 7) | 0b011, 0, 0];
    put(&mut data, 2, length_16(found.length()));
    data.push(found.opcode);
    data.extend(found.usage);
    if timeouts {
        data.extend(timeouts_descriptor());
    }
    debug_assert_eq!(cdb_length(found.opcode), Some(found.length()));
    data
}
