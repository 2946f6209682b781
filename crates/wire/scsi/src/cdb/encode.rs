//! CDBs as initiators write them: of the forms of a command, the one with the widest fields.

use super::{
    ByteCheck, Cdb, Command, Extent, ModeSense, PageControl, Reporting, WriteSame, opcode,
    service_action,
};
use crate::wire::{flag, put};

impl Command {
    /// The CDB. A length or a number of blocks that its field has no room for becomes the highest that it has room for.
    pub fn encode(&self) -> Cdb {
        match *self {
            Self::Read { extent, fua } => of_blocks(opcode::READ_16, flag(fua, 3), extent),
            Self::Write { extent, fua } => of_blocks(opcode::WRITE_16, flag(fua, 3), extent),
            Self::WriteAndVerify { extent, compares } => {
                of_blocks(opcode::WRITE_AND_VERIFY_16, flag(compares, 1), extent)
            }
            Self::Verify { extent, check } => {
                let check = match check {
                    ByteCheck::Medium => 0,
                    ByteCheck::Data => 1,
                    ByteCheck::OneBlock => 3,
                };
                of_blocks(opcode::VERIFY_16, check << 1, extent)
            }
            Self::CompareAndWrite { extent, fua } => {
                let mut cdb = of_blocks(opcode::COMPARE_AND_WRITE, flag(fua, 3), extent);
                put(&mut cdb, 10, [0, 0, 0, narrow_8(extent.blocks)]);
                cdb
            }
            Self::SynchronizeCache { extent } => of_blocks(opcode::SYNCHRONIZE_CACHE_16, 0, extent),
            Self::Unmap { list_length } => ten(opcode::UNMAP, 0, list_length),
            Self::WriteSame(same) => write_same(&same),
            ref other => other.encode_primary(),
        }
    }

    fn encode_primary(&self) -> Cdb {
        match *self {
            Self::RequestSense {
                descriptor,
                allocation_length,
            } => six(
                opcode::REQUEST_SENSE,
                flag(descriptor, 0),
                allocation_length,
            ),
            Self::Inquiry {
                page,
                allocation_length,
            } => {
                let mut cdb = cdb(opcode::INQUIRY, flag(page.is_some(), 0));
                cdb[2] = page.unwrap_or(0);
                put(&mut cdb, 3, narrow_16(allocation_length));
                cdb
            }
            Self::ReportLuns {
                select,
                allocation_length,
            } => {
                let mut cdb = cdb(opcode::REPORT_LUNS, 0);
                cdb[2] = select;
                put(&mut cdb, 6, allocation_length.to_be_bytes());
                cdb
            }
            Self::ModeSense(sense) => mode_sense(&sense),
            Self::ModeSelect {
                is_long,
                save,
                list_length,
            } => {
                // PF: pages are in the standard's format.
                let flags = flag(true, 4) | flag(save, 0);
                match is_long {
                    true => ten(opcode::MODE_SELECT_10, flags, list_length),
                    false => six(opcode::MODE_SELECT_6, flags, list_length),
                }
            }
            Self::StartStopUnit {
                start,
                load_eject,
                no_flush,
                power_condition,
            } => {
                let mut cdb = cdb(opcode::START_STOP_UNIT, 0);
                let flags = flag(no_flush, 2) | flag(load_eject, 1) | flag(start, 0);
                cdb[4] = power_condition << 4 | flags;
                cdb
            }
            Self::PreventAllowMediumRemoval { prevent } => {
                let mut cdb = cdb(opcode::PREVENT_ALLOW_MEDIUM_REMOVAL, 0);
                cdb[4] = prevent & 0x3;
                cdb
            }
            Self::ReadCapacity10 => cdb(opcode::READ_CAPACITY_10, 0),
            Self::ReadCapacity16 { allocation_length } => sixteen(
                opcode::SERVICE_ACTION_IN_16,
                service_action::READ_CAPACITY_16,
                allocation_length,
            ),
            Self::ExtendedCopy { list_length } => sixteen(
                opcode::THIRD_PARTY_COPY_OUT,
                service_action::EXTENDED_COPY_LID1,
                list_length,
            ),
            Self::ReceiveCopyOperatingParameters { allocation_length } => sixteen(
                opcode::THIRD_PARTY_COPY_IN,
                service_action::RECEIVE_COPY_OPERATING_PARAMETERS,
                allocation_length,
            ),
            Self::Reserve => cdb(opcode::RESERVE_10, 0),
            Self::Release => cdb(opcode::RELEASE_10, 0),
            Self::PersistentReserveIn {
                action,
                allocation_length,
            } => ten(
                opcode::PERSISTENT_RESERVE_IN,
                action.value(),
                allocation_length,
            ),
            Self::PersistentReserveOut(out) => {
                let mut cdb = cdb(opcode::PERSISTENT_RESERVE_OUT, out.action.value());
                cdb[2] = out.scope << 4 | out.kind & 0xf;
                put(&mut cdb, 5, out.list_length.to_be_bytes());
                cdb
            }
            ref other => other.encode_maintenance(),
        }
    }

    fn encode_maintenance(&self) -> Cdb {
        match *self {
            Self::ReportTargetPortGroups {
                extended,
                allocation_length,
            } => {
                let action = service_action::REPORT_TARGET_PORT_GROUPS | flag(extended, 5);
                maintenance(action, 0, allocation_length)
            }
            Self::ReportSupportedOperationCodes {
                timeouts,
                reporting,
                allocation_length,
            } => {
                let (option, opcode, action) = match reporting {
                    Reporting::All => (0, 0, 0),
                    Reporting::Opcode(opcode) => (1, opcode, 0),
                    Reporting::ServiceAction(opcode, action) => (2, opcode, action),
                    Reporting::Either(opcode, action) => (3, opcode, action),
                };
                let mut cdb = maintenance(
                    service_action::REPORT_SUPPORTED_OPERATION_CODES,
                    flag(timeouts, 7) | option,
                    allocation_length,
                );
                cdb[3] = opcode;
                put(&mut cdb, 4, action.to_be_bytes());
                cdb
            }
            Self::ReportSupportedTaskManagementFunctions {
                extended,
                allocation_length,
            } => maintenance(
                service_action::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS,
                flag(extended, 7),
                allocation_length,
            ),
            // All that is left, and all of its CDB is zero.
            _ => cdb(opcode::TEST_UNIT_READY, 0),
        }
    }
}

fn cdb(opcode: u8, byte_1: u8) -> Cdb {
    let mut cdb = Cdb::default();
    (cdb[0], cdb[1]) = (opcode, byte_1);
    cdb
}

fn narrow_8(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn narrow_16(value: u32) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes()
}

/// A six-byte CDB with a length.
fn six(opcode: u8, byte_1: u8, length: u32) -> Cdb {
    let mut cdb = cdb(opcode, byte_1);
    cdb[4] = narrow_8(length);
    cdb
}

/// A ten-byte CDB with a length.
fn ten(opcode: u8, byte_1: u8, length: u32) -> Cdb {
    let mut cdb = cdb(opcode, byte_1);
    put(&mut cdb, 7, narrow_16(length));
    cdb
}

/// A sixteen-byte CDB with a length.
fn sixteen(opcode: u8, byte_1: u8, length: u32) -> Cdb {
    let mut cdb = cdb(opcode, byte_1);
    put(&mut cdb, 10, length.to_be_bytes());
    cdb
}

/// A sixteen-byte CDB with blocks.
fn of_blocks(opcode: u8, byte_1: u8, extent: Extent) -> Cdb {
    let mut cdb = sixteen(opcode, byte_1, extent.blocks);
    put(&mut cdb, 2, extent.lba.to_be_bytes());
    cdb
}

fn maintenance(byte_1: u8, byte_2: u8, allocation_length: u32) -> Cdb {
    let mut cdb = cdb(opcode::MAINTENANCE_IN, byte_1);
    cdb[2] = byte_2;
    put(&mut cdb, 6, allocation_length.to_be_bytes());
    cdb
}

fn write_same(same: &WriteSame) -> Cdb {
    let extent = Extent {
        lba: same.lba,
        blocks: same.blocks,
    };
    let flags = flag(same.unmap, 3) | flag(same.no_data, 0);
    of_blocks(opcode::WRITE_SAME_16, flags, extent)
}

fn mode_sense(sense: &ModeSense) -> Cdb {
    let descriptor = flag(sense.no_descriptor, 3);
    let mut cdb = match sense.is_long {
        true => ten(
            opcode::MODE_SENSE_10,
            descriptor | flag(sense.long_lba, 4),
            sense.allocation_length,
        ),
        false => six(opcode::MODE_SENSE_6, descriptor, sense.allocation_length),
    };
    let control = match sense.control {
        PageControl::Current => 0,
        PageControl::Changeable => 1,
        PageControl::Default => 2,
        PageControl::Saved => 3,
    };
    cdb[2] = control << 6 | sense.page & 0x3f;
    cdb[3] = sense.subpage;
    cdb
}
