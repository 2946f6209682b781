//! Command descriptor blocks (SPC-4 chapter 6, SBC-3 chapter 5).

mod encode;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::reservation::{ReserveInAction, ReserveOutAction};
use crate::sense::{FieldPointer, Sense};
use crate::wire::{bit, u16_at, u32_at, u64_at};

/// Bytes of the longest CDB that is known here.
pub const CDB_LENGTH_MAX: usize = 16;

/// A CDB, filled with zeroes to the longest.
pub type Cdb = [u8; CDB_LENGTH_MAX];

/// Operation codes (SPC-4 annex F.3).
pub mod opcode {
    /// TEST UNIT READY.
    pub const TEST_UNIT_READY: u8 = 0x00;
    /// REQUEST SENSE.
    pub const REQUEST_SENSE: u8 = 0x03;
    /// READ (6).
    pub const READ_6: u8 = 0x08;
    /// WRITE (6).
    pub const WRITE_6: u8 = 0x0a;
    /// INQUIRY.
    pub const INQUIRY: u8 = 0x12;
    /// MODE SELECT (6).
    pub const MODE_SELECT_6: u8 = 0x15;
    /// RESERVE (6) (SPC-2).
    pub const RESERVE_6: u8 = 0x16;
    /// RELEASE (6) (SPC-2).
    pub const RELEASE_6: u8 = 0x17;
    /// MODE SENSE (6).
    pub const MODE_SENSE_6: u8 = 0x1a;
    /// START STOP UNIT.
    pub const START_STOP_UNIT: u8 = 0x1b;
    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub const PREVENT_ALLOW_MEDIUM_REMOVAL: u8 = 0x1e;
    /// READ CAPACITY (10).
    pub const READ_CAPACITY_10: u8 = 0x25;
    /// READ (10).
    pub const READ_10: u8 = 0x28;
    /// WRITE (10).
    pub const WRITE_10: u8 = 0x2a;
    /// WRITE AND VERIFY (10).
    pub const WRITE_AND_VERIFY_10: u8 = 0x2e;
    /// VERIFY (10).
    pub const VERIFY_10: u8 = 0x2f;
    /// SYNCHRONIZE CACHE (10).
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    /// WRITE SAME (10).
    pub const WRITE_SAME_10: u8 = 0x41;
    /// UNMAP.
    pub const UNMAP: u8 = 0x42;
    /// MODE SELECT (10).
    pub const MODE_SELECT_10: u8 = 0x55;
    /// RESERVE (10) (SPC-2).
    pub const RESERVE_10: u8 = 0x56;
    /// RELEASE (10) (SPC-2).
    pub const RELEASE_10: u8 = 0x57;
    /// MODE SENSE (10).
    pub const MODE_SENSE_10: u8 = 0x5a;
    /// PERSISTENT RESERVE IN, with service actions.
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    /// PERSISTENT RESERVE OUT, with service actions.
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
    /// Third-party copy out; service action 00h is EXTENDED COPY (LID1).
    pub const THIRD_PARTY_COPY_OUT: u8 = 0x83;
    /// Third-party copy in; service action 03h is RECEIVE COPY OPERATING PARAMETERS.
    pub const THIRD_PARTY_COPY_IN: u8 = 0x84;
    /// READ (16).
    pub const READ_16: u8 = 0x88;
    /// COMPARE AND WRITE.
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    /// WRITE (16).
    pub const WRITE_16: u8 = 0x8a;
    /// WRITE AND VERIFY (16).
    pub const WRITE_AND_VERIFY_16: u8 = 0x8e;
    /// VERIFY (16).
    pub const VERIFY_16: u8 = 0x8f;
    /// SYNCHRONIZE CACHE (16).
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    /// WRITE SAME (16).
    pub const WRITE_SAME_16: u8 = 0x93;
    /// SERVICE ACTION IN (16); service action 10h is READ CAPACITY (16).
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    /// REPORT LUNS.
    pub const REPORT_LUNS: u8 = 0xa0;
    /// MAINTENANCE IN, with service actions.
    pub const MAINTENANCE_IN: u8 = 0xa3;
    /// READ (12).
    pub const READ_12: u8 = 0xa8;
    /// WRITE (12).
    pub const WRITE_12: u8 = 0xaa;
    /// WRITE AND VERIFY (12).
    pub const WRITE_AND_VERIFY_12: u8 = 0xae;
    /// VERIFY (12).
    pub const VERIFY_12: u8 = 0xaf;
}

/// Service actions (SPC-4 annex F.3, SBC-3 section 5.1).
pub mod service_action {
    /// EXTENDED COPY (LID1), of THIRD-PARTY COPY OUT.
    pub const EXTENDED_COPY_LID1: u8 = 0x00;
    /// RECEIVE COPY OPERATING PARAMETERS, of THIRD-PARTY COPY IN.
    pub const RECEIVE_COPY_OPERATING_PARAMETERS: u8 = 0x03;
    /// REPORT TARGET PORT GROUPS, of MAINTENANCE IN.
    pub const REPORT_TARGET_PORT_GROUPS: u8 = 0x0a;
    /// REPORT SUPPORTED OPERATION CODES, of MAINTENANCE IN.
    pub const REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0c;
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS, of MAINTENANCE IN.
    pub const REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: u8 = 0x0d;
    /// READ CAPACITY (16), of SERVICE ACTION IN (16).
    pub const READ_CAPACITY_16: u8 = 0x10;
}

/// Blocks that a command reads, writes or verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// TRANSFER LENGTH, or what stands for it, in blocks.
    pub blocks: u32,
}

/// What a VERIFY compares the blocks with (BYTCHK, SBC-3 section 5.33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteCheck {
    /// 00b: nothing; the medium is read.
    Medium,
    /// 01b: as many blocks of data.
    Data,
    /// 11b: one block of data, with which each is compared.
    OneBlock,
}

/// WRITE SAME (SBC-3 sections 5.43 and 5.44).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteSame {
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS. Zero: all up to the end of the medium.
    pub blocks: u32,
    /// UNMAP: the blocks may be unmapped, where they read as the data then.
    pub unmap: bool,
    /// NDOB: no data comes, and zeroes are meant.
    pub no_data: bool,
}

/// PAGE CONTROL of MODE SENSE (SPC-4 section 6.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageControl {
    /// 00b: current values.
    Current,
    /// 01b: a mask of what can be changed.
    Changeable,
    /// 10b: default values.
    Default,
    /// 11b: saved values.
    Saved,
}

/// MODE SENSE (SPC-4 sections 6.11 and 6.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModeSense {
    /// The ten-byte command, with its longer header.
    pub is_long: bool,
    /// DBD: no block descriptor.
    pub no_descriptor: bool,
    /// LLBAA: a block descriptor with an eight-byte number of blocks may come.
    pub long_lba: bool,
    /// PAGE CONTROL.
    pub control: PageControl,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// ALLOCATION LENGTH.
    pub allocation_length: u32,
}

/// REPORTING OPTIONS of REPORT SUPPORTED OPERATION CODES (SPC-4 section 6.35).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reporting {
    /// 000b: all commands.
    All,
    /// 001b: an operation code that has no service actions.
    Opcode(u8),
    /// 010b: an operation code and one of its service actions.
    ServiceAction(u8, u16),
    /// 011b: an operation code, with that service action where it has some.
    Either(u8, u16),
}

/// PERSISTENT RESERVE OUT (SPC-4 section 6.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReserveOut {
    /// SERVICE ACTION: one that is supported.
    pub action: ReserveOutAction,
    /// SCOPE. Zero is the logical unit, and there is no other.
    pub scope: u8,
    /// TYPE, as it stands there.
    pub kind: u8,
    /// PARAMETER LIST LENGTH.
    pub list_length: u32,
}

/// A command. Lengths are in bytes where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// READ (6), (10), (12), (16).
    Read {
        /// The blocks.
        extent: Extent,
        /// FUA: from the medium.
        fua: bool,
    },
    /// WRITE (6), (10), (12), (16).
    Write {
        /// The blocks.
        extent: Extent,
        /// FUA: it is durable when it is answered.
        fua: bool,
    },
    /// WRITE AND VERIFY (10), (12), (16).
    WriteAndVerify {
        /// The blocks.
        extent: Extent,
        /// BYTCHK: what was written is compared with the data.
        compares: bool,
    },
    /// VERIFY (10), (12), (16).
    Verify {
        /// The blocks.
        extent: Extent,
        /// BYTCHK.
        check: ByteCheck,
    },
    /// COMPARE AND WRITE: twice as many blocks of data come.
    CompareAndWrite {
        /// The blocks.
        extent: Extent,
        /// FUA.
        fua: bool,
    },
    /// SYNCHRONIZE CACHE (10) and (16).
    SynchronizeCache {
        /// The blocks. None at all: all up to the end of the medium.
        extent: Extent,
    },
    /// UNMAP.
    Unmap {
        /// PARAMETER LIST LENGTH.
        list_length: u32,
    },
    /// WRITE SAME (10) and (16).
    WriteSame(WriteSame),
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// DESC: in descriptor format.
        descriptor: bool,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// INQUIRY.
    Inquiry {
        /// PAGE CODE of vital product data, where EVPD asks for it.
        page: Option<u8>,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT.
        select: u8,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// MODE SENSE (6) and (10).
    ModeSense(ModeSense),
    /// MODE SELECT (6) and (10).
    ModeSelect {
        /// The ten-byte command, with its longer header.
        is_long: bool,
        /// SP: the values shall be saved.
        save: bool,
        /// PARAMETER LIST LENGTH.
        list_length: u32,
    },
    /// START STOP UNIT.
    StartStopUnit {
        /// START.
        start: bool,
        /// LOEJ: the medium shall be loaded or ejected.
        load_eject: bool,
        /// NO_FLUSH.
        no_flush: bool,
        /// POWER CONDITION.
        power_condition: u8,
    },
    /// PREVENT ALLOW MEDIUM REMOVAL.
    PreventAllowMediumRemoval {
        /// PREVENT.
        prevent: u8,
    },
    /// READ CAPACITY (10).
    ReadCapacity10,
    /// READ CAPACITY (16).
    ReadCapacity16 {
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// EXTENDED COPY (LID1).
    ExtendedCopy {
        /// PARAMETER LIST LENGTH.
        list_length: u32,
    },
    /// RECEIVE COPY OPERATING PARAMETERS.
    ReceiveCopyOperatingParameters {
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// RESERVE (6) and (10), of the whole unit for the nexus that asks (SPC-2 section 7.22).
    Reserve,
    /// RELEASE (6) and (10) (SPC-2 section 7.20).
    Release,
    /// PERSISTENT RESERVE IN.
    PersistentReserveIn {
        /// SERVICE ACTION: one that is supported.
        action: ReserveInAction,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// PERSISTENT RESERVE OUT.
    PersistentReserveOut(ReserveOut),
    /// REPORT TARGET PORT GROUPS.
    ReportTargetPortGroups {
        /// PARAMETER DATA FORMAT: with an extended header.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportSupportedOperationCodes {
        /// RCTD: with timeouts.
        timeouts: bool,
        /// REPORTING OPTIONS.
        reporting: Reporting,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportSupportedTaskManagementFunctions {
        /// REPD: in extended format.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
}

/// A CDB that is no command known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CdbError {
    /// Its operation code is not known.
    #[error("operation code {0:02x}h is not supported")]
    Opcode(u8),
    /// The operation code is known, but not with this service action.
    #[error(
        "operation code {opcode:02x}h is not supported with service action {service_action:02x}h"
    )]
    ServiceAction {
        /// OPERATION CODE.
        opcode: u8,
        /// SERVICE ACTION.
        service_action: u8,
    },
    /// A field has a value that is not supported.
    #[error("byte {} of the CDB has a value that is not supported", .0.byte)]
    Field(FieldPointer),
}

impl From<CdbError> for Sense {
    fn from(error: CdbError) -> Self {
        match error {
            CdbError::Opcode(_) => Self::invalid_operation_code(),
            CdbError::ServiceAction { .. } => Self::invalid_field(FieldPointer::cdb_bit(1, 4)),
            CdbError::Field(pointer) => Self::invalid_field(pointer),
        }
    }
}

/// Length of a CDB in bytes, by the group of its operation code (SPC-4 section 4.2.5.1); `None` where the group does not say.
pub const fn cdb_length(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

impl Command {
    /// Reads a CDB.
    ///
    /// # Errors
    /// A command that is not known here, or a field whose value none of its users may have: protection information, ACA (NACA), an
    /// anchor. Bits that are reserved or obsolete are not looked at, as initiators of all ages set some.
    #[inline]
    pub fn parse(cdb: &Cdb) -> Result<Self, CdbError> {
        match cdb[0] {
            opcode::READ_10 => Self::read(cdb, extent_10(cdb), cdb[9]),
            opcode::WRITE_10 => Self::write(cdb, extent_10(cdb), cdb[9]),
            opcode::READ_16 => Self::read(cdb, extent_16(cdb), cdb[15]),
            opcode::WRITE_16 => Self::write(cdb, extent_16(cdb), cdb[15]),
            _ => Self::parse_other(cdb),
        }
    }

    #[inline]
    fn read(cdb: &Cdb, extent: Extent, control: u8) -> Result<Self, CdbError> {
        refuse_protection(cdb)?;
        refuse_naca(control, cdb)?;
        let fua = bit(cdb[1], 3);
        Ok(Self::Read { extent, fua })
    }

    #[inline]
    fn write(cdb: &Cdb, extent: Extent, control: u8) -> Result<Self, CdbError> {
        refuse_protection(cdb)?;
        refuse_naca(control, cdb)?;
        let fua = bit(cdb[1], 3);
        Ok(Self::Write { extent, fua })
    }

    #[inline(never)]
    fn parse_other(cdb: &Cdb) -> Result<Self, CdbError> {
        let length = cdb_length(cdb[0]).ok_or(CdbError::Opcode(cdb[0]))?;
        let command = match cdb[0] {
            opcode::READ_6 => Self::Read {
                extent: extent_6(cdb),
                fua: false,
            },
            opcode::WRITE_6 => Self::Write {
                extent: extent_6(cdb),
                fua: false,
            },
            opcode::READ_12 => Self::read(cdb, extent_12(cdb), 0)?,
            opcode::WRITE_12 => Self::write(cdb, extent_12(cdb), 0)?,
            opcode::WRITE_AND_VERIFY_10 => Self::write_and_verify(cdb, extent_10(cdb))?,
            opcode::WRITE_AND_VERIFY_12 => Self::write_and_verify(cdb, extent_12(cdb))?,
            opcode::WRITE_AND_VERIFY_16 => Self::write_and_verify(cdb, extent_16(cdb))?,
            opcode::VERIFY_10 => Self::verify(cdb, extent_10(cdb))?,
            opcode::VERIFY_12 => Self::verify(cdb, extent_12(cdb))?,
            opcode::VERIFY_16 => Self::verify(cdb, extent_16(cdb))?,
            opcode::COMPARE_AND_WRITE => Self::compare_and_write(cdb)?,
            opcode::SYNCHRONIZE_CACHE_10 => Self::SynchronizeCache {
                extent: extent_10(cdb),
            },
            opcode::SYNCHRONIZE_CACHE_16 => Self::SynchronizeCache {
                extent: extent_16(cdb),
            },
            opcode::UNMAP => Self::unmap(cdb)?,
            opcode::WRITE_SAME_10 => Self::write_same(cdb, extent_10(cdb), false)?,
            opcode::WRITE_SAME_16 => Self::write_same(cdb, extent_16(cdb), bit(cdb[1], 0))?,
            _ => Self::parse_primary(cdb)?,
        };
        refuse_naca(cdb[length - 1], cdb)?;
        Ok(command)
    }

    fn write_and_verify(cdb: &Cdb, extent: Extent) -> Result<Self, CdbError> {
        refuse_protection(cdb)?;
        let compares = match byte_check(cdb)? {
            ByteCheck::Medium => false,
            ByteCheck::Data => true,
            ByteCheck::OneBlock => return Err(field_bit(1, 2)),
        };
        Ok(Self::WriteAndVerify { extent, compares })
    }

    fn verify(cdb: &Cdb, extent: Extent) -> Result<Self, CdbError> {
        refuse_protection(cdb)?;
        let check = byte_check(cdb)?;
        Ok(Self::Verify { extent, check })
    }

    fn compare_and_write(cdb: &Cdb) -> Result<Self, CdbError> {
        refuse_protection(cdb)?;
        Ok(Self::CompareAndWrite {
            extent: Extent {
                lba: u64_at(cdb, 2),
                blocks: cdb[13].into(),
            },
            fua: bit(cdb[1], 3),
        })
    }

    fn unmap(cdb: &Cdb) -> Result<Self, CdbError> {
        if bit(cdb[1], 0) {
            // ANCHOR.
            return Err(field_bit(1, 0));
        }
        let list_length = u16_at(cdb, 7).into();
        Ok(Self::Unmap { list_length })
    }

    fn write_same(cdb: &Cdb, extent: Extent, no_data: bool) -> Result<Self, CdbError> {
        refuse_protection(cdb)?;
        if bit(cdb[1], 4) {
            // ANCHOR.
            return Err(field_bit(1, 4));
        }
        Ok(Self::WriteSame(WriteSame {
            lba: extent.lba,
            blocks: extent.blocks,
            unmap: bit(cdb[1], 3),
            no_data,
        }))
    }

    fn parse_primary(cdb: &Cdb) -> Result<Self, CdbError> {
        Ok(match cdb[0] {
            opcode::TEST_UNIT_READY => Self::TestUnitReady,
            opcode::REQUEST_SENSE => Self::RequestSense {
                descriptor: bit(cdb[1], 0),
                allocation_length: cdb[4].into(),
            },
            opcode::INQUIRY => Self::inquiry(cdb)?,
            opcode::MODE_SENSE_6 => Self::mode_sense(cdb, false, cdb[4].into()),
            opcode::MODE_SENSE_10 => Self::mode_sense(cdb, true, u16_at(cdb, 7).into()),
            opcode::MODE_SELECT_6 => Self::mode_select(cdb, false, cdb[4].into())?,
            opcode::MODE_SELECT_10 => Self::mode_select(cdb, true, u16_at(cdb, 7).into())?,
            opcode::START_STOP_UNIT => Self::StartStopUnit {
                start: bit(cdb[4], 0),
                load_eject: bit(cdb[4], 1),
                no_flush: bit(cdb[4], 2),
                power_condition: cdb[4] >> 4,
            },
            opcode::PREVENT_ALLOW_MEDIUM_REMOVAL => Self::PreventAllowMediumRemoval {
                prevent: cdb[4] & 0x3,
            },
            opcode::READ_CAPACITY_10 => Self::ReadCapacity10,
            opcode::REPORT_LUNS => Self::ReportLuns {
                select: cdb[2],
                allocation_length: u32_at(cdb, 6),
            },
            opcode::RESERVE_6 | opcode::RESERVE_10 => {
                refuse_parts(cdb)?;
                Self::Reserve
            }
            opcode::RELEASE_6 | opcode::RELEASE_10 => {
                refuse_parts(cdb)?;
                Self::Release
            }
            opcode::SERVICE_ACTION_IN_16
            | opcode::THIRD_PARTY_COPY_OUT
            | opcode::THIRD_PARTY_COPY_IN
            | opcode::PERSISTENT_RESERVE_IN
            | opcode::PERSISTENT_RESERVE_OUT
            | opcode::MAINTENANCE_IN => Self::parse_service_action(cdb)?,
            opcode => return Err(CdbError::Opcode(opcode)),
        })
    }

    fn inquiry(cdb: &Cdb) -> Result<Self, CdbError> {
        let page = bit(cdb[1], 0).then_some(cdb[2]);
        if page.is_none() && cdb[2] != 0 {
            return Err(CdbError::Field(FieldPointer::cdb(2)));
        }
        Ok(Self::Inquiry {
            page,
            allocation_length: u16_at(cdb, 3).into(),
        })
    }

    fn mode_sense(cdb: &Cdb, is_long: bool, allocation_length: u32) -> Self {
        Self::ModeSense(ModeSense {
            is_long,
            no_descriptor: bit(cdb[1], 3),
            long_lba: is_long && bit(cdb[1], 4),
            control: match cdb[2] >> 6 {
                0 => PageControl::Current,
                1 => PageControl::Changeable,
                2 => PageControl::Default,
                _ => PageControl::Saved,
            },
            page: cdb[2] & 0x3f,
            subpage: cdb[3],
            allocation_length,
        })
    }

    fn mode_select(cdb: &Cdb, is_long: bool, list_length: u32) -> Result<Self, CdbError> {
        // PF: pages of a vendor's own format are unknown.
        if !bit(cdb[1], 4) && list_length > 0 {
            return Err(field_bit(1, 4));
        }
        Ok(Self::ModeSelect {
            is_long,
            save: bit(cdb[1], 0),
            list_length,
        })
    }

    fn parse_service_action(cdb: &Cdb) -> Result<Self, CdbError> {
        let action = cdb[1] & 0x1f;
        Ok(match (cdb[0], action) {
            (opcode::SERVICE_ACTION_IN_16, service_action::READ_CAPACITY_16) => {
                let allocation_length = u32_at(cdb, 10);
                Self::ReadCapacity16 { allocation_length }
            }
            (opcode::THIRD_PARTY_COPY_OUT, service_action::EXTENDED_COPY_LID1) => {
                let list_length = u32_at(cdb, 10);
                Self::ExtendedCopy { list_length }
            }
            (opcode::THIRD_PARTY_COPY_IN, service_action::RECEIVE_COPY_OPERATING_PARAMETERS) => {
                let allocation_length = u32_at(cdb, 10);
                Self::ReceiveCopyOperatingParameters { allocation_length }
            }
            (opcode::MAINTENANCE_IN, service_action::REPORT_TARGET_PORT_GROUPS) => {
                Self::target_port_groups(cdb)?
            }
            (opcode::MAINTENANCE_IN, service_action::REPORT_SUPPORTED_OPERATION_CODES) => {
                Self::operation_codes(cdb)?
            }
            (
                opcode::MAINTENANCE_IN,
                service_action::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS,
            ) => Self::ReportSupportedTaskManagementFunctions {
                extended: bit(cdb[2], 7),
                allocation_length: u32_at(cdb, 6),
            },
            (opcode::PERSISTENT_RESERVE_IN, action) if is_reserve_in(action) => {
                Self::PersistentReserveIn {
                    action: ReserveInAction::from_value(action),
                    allocation_length: u16_at(cdb, 7).into(),
                }
            }
            (opcode::PERSISTENT_RESERVE_OUT, action) if is_reserve_out(action) => {
                Self::PersistentReserveOut(ReserveOut {
                    action: ReserveOutAction::from_value(action),
                    scope: cdb[2] >> 4,
                    kind: cdb[2] & 0xf,
                    list_length: u32_at(cdb, 5),
                })
            }
            (opcode, service_action) => {
                return Err(CdbError::ServiceAction {
                    opcode,
                    service_action,
                });
            }
        })
    }

    fn target_port_groups(cdb: &Cdb) -> Result<Self, CdbError> {
        let extended = match cdb[1] >> 5 {
            0 => false,
            1 => true,
            _ => return Err(field_bit(1, 7)),
        };
        Ok(Self::ReportTargetPortGroups {
            extended,
            allocation_length: u32_at(cdb, 6),
        })
    }

    fn operation_codes(cdb: &Cdb) -> Result<Self, CdbError> {
        let (opcode, action) = (cdb[3], u16_at(cdb, 4));
        let reporting = match cdb[2] & 0x7 {
            0 => Reporting::All,
            1 => Reporting::Opcode(opcode),
            2 => Reporting::ServiceAction(opcode, action),
            3 => Reporting::Either(opcode, action),
            _ => return Err(field_bit(2, 2)),
        };
        Ok(Self::ReportSupportedOperationCodes {
            timeouts: bit(cdb[2], 7),
            reporting,
            allocation_length: u32_at(cdb, 6),
        })
    }
}

const fn field_bit(byte: u16, bit: u8) -> CdbError {
    CdbError::Field(FieldPointer::cdb_bit(byte, bit))
}

fn is_reserve_in(action: u8) -> bool {
    !matches!(
        ReserveInAction::from_value(action),
        ReserveInAction::Other(_)
    )
}

/// Reservations are not lost, so that there is nothing to replace.
fn is_reserve_out(action: u8) -> bool {
    !matches!(
        ReserveOutAction::from_value(action),
        ReserveOutAction::ReplaceLostReservation | ReserveOutAction::Other(_)
    )
}

/// 3RDPTY and EXTENT of RESERVE and RELEASE: a unit is reserved whole, by who asks (SPC-2 sections 7.20 to 7.23).
fn refuse_parts(cdb: &Cdb) -> Result<(), CdbError> {
    match [4, 0].into_iter().find(|&at| bit(cdb[1], at)) {
        Some(at) => Err(field_bit(1, at)),
        None => Ok(()),
    }
}

/// RDPROTECT, WRPROTECT or VRPROTECT: there is no protection information.
#[inline]
fn refuse_protection(cdb: &Cdb) -> Result<(), CdbError> {
    match cdb[1] >> 5 {
        0 => Ok(()),
        _ => Err(field_bit(1, 7)),
    }
}

/// NACA: there is no ACA (SAM-5 section 5.2).
#[inline]
fn refuse_naca(control: u8, cdb: &Cdb) -> Result<(), CdbError> {
    if !bit(control, 2) {
        return Ok(());
    }
    let last = cdb_length(cdb[0]).unwrap_or(CDB_LENGTH_MAX) - 1;
    Err(field_bit(last as u16, 2))
}

fn byte_check(cdb: &Cdb) -> Result<ByteCheck, CdbError> {
    match cdb[1] >> 1 & 0x3 {
        0 => Ok(ByteCheck::Medium),
        1 => Ok(ByteCheck::Data),
        3 => Ok(ByteCheck::OneBlock),
        _ => Err(field_bit(1, 2)),
    }
}

/// Blocks of a six-byte CDB, whose TRANSFER LENGTH of zero means 256 (SBC-3 section 5.10).
fn extent_6(cdb: &Cdb) -> Extent {
    Extent {
        lba: (u32_at(cdb, 0) & 0x001f_ffff).into(),
        blocks: match cdb[4] {
            0 => 256,
            blocks => blocks.into(),
        },
    }
}

#[inline]
fn extent_10(cdb: &Cdb) -> Extent {
    Extent {
        lba: u32_at(cdb, 2).into(),
        blocks: u16_at(cdb, 7).into(),
    }
}

fn extent_12(cdb: &Cdb) -> Extent {
    Extent {
        lba: u32_at(cdb, 2).into(),
        blocks: u32_at(cdb, 6),
    }
}

#[inline]
fn extent_16(cdb: &Cdb) -> Extent {
    Extent {
        lba: u64_at(cdb, 2),
        blocks: u32_at(cdb, 10),
    }
}
