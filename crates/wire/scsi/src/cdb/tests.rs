//! Tests of CDBs.

use proptest::prelude::*;

use super::*;
use crate::sense::AdditionalSense;

fn cdb(bytes: &[u8]) -> Cdb {
    let mut cdb = [0; CDB_LENGTH_MAX];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

fn parsed(bytes: &[u8]) -> Command {
    Command::parse(&cdb(bytes)).expect("it is a command")
}

fn refused(bytes: &[u8]) -> Sense {
    Command::parse(&cdb(bytes)).expect_err("it is none").into()
}

const WIDE: Extent = Extent {
    lba: 0x0102_0304_0506_0708,
    blocks: 0x090a_0b0c,
};
const NARROW: Extent = Extent {
    lba: 0x0102_0304,
    blocks: 0x0506,
};
const TWELVE: Extent = Extent {
    lba: 0x0102_0304,
    blocks: 0x0506_0708,
};

/// The CDB of each length with the blocks of [`NARROW`], [`TWELVE`] and [`WIDE`].
fn with_extents(opcodes: [u8; 3], byte_1: u8) -> [(Cdb, Extent); 3] {
    [
        (cdb(&[opcodes[0], byte_1, 1, 2, 3, 4, 0, 5, 6]), NARROW),
        (cdb(&[opcodes[1], byte_1, 1, 2, 3, 4, 5, 6, 7, 8]), TWELVE),
        (
            cdb(&[opcodes[2], byte_1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xc]),
            WIDE,
        ),
    ]
}

#[test]
fn reads_and_writes_of_every_length() {
    let reads = [opcode::READ_10, opcode::READ_12, opcode::READ_16];
    let writes = [opcode::WRITE_10, opcode::WRITE_12, opcode::WRITE_16];
    // DPO says nothing that matters, and FUA does.
    for (byte_1, fua) in [(0x00, false), (0x10, false), (0x18, true)] {
        for (cdb, extent) in with_extents(reads, byte_1) {
            assert_eq!(Command::parse(&cdb), Ok(Command::Read { extent, fua }));
        }
        for (cdb, extent) in with_extents(writes, byte_1) {
            assert_eq!(Command::parse(&cdb), Ok(Command::Write { extent, fua }));
        }
    }
}

#[test]
fn six_bytes_have_21_bits_of_address_and_zero_blocks_are_256() {
    // The three bits above the address were a LUN once.
    let lba = 0x1f_0203;
    let read = |blocks| Command::Read {
        extent: Extent { lba, blocks },
        fua: false,
    };
    assert_eq!(parsed(&[opcode::READ_6, 0xff, 2, 3, 0]), read(256));
    assert_eq!(parsed(&[opcode::READ_6, 0x1f, 2, 3, 7]), read(7));
    let write = Command::Write {
        extent: Extent { lba: 1, blocks: 2 },
        fua: false,
    };
    assert_eq!(parsed(&[opcode::WRITE_6, 0, 0, 1, 2]), write);
}

#[test]
fn verifies_say_with_what_they_compare() {
    let verifies = [opcode::VERIFY_10, opcode::VERIFY_12, opcode::VERIFY_16];
    let checks = [
        (0x00, ByteCheck::Medium),
        (0x02, ByteCheck::Data),
        (0x06, ByteCheck::OneBlock),
    ];
    for (byte_1, check) in checks {
        for (cdb, extent) in with_extents(verifies, byte_1) {
            assert_eq!(Command::parse(&cdb), Ok(Command::Verify { extent, check }));
        }
    }
    let writes = [
        opcode::WRITE_AND_VERIFY_10,
        opcode::WRITE_AND_VERIFY_12,
        opcode::WRITE_AND_VERIFY_16,
    ];
    for (byte_1, compares) in [(0x10, false), (0x02, true)] {
        for (cdb, extent) in with_extents(writes, byte_1) {
            let command = Command::WriteAndVerify { extent, compares };
            assert_eq!(Command::parse(&cdb), Ok(command));
        }
    }
    let pointer = FieldPointer::cdb_bit(1, 2);
    for bytes in [
        [opcode::VERIFY_10, 0x04],
        [opcode::WRITE_AND_VERIFY_16, 0x04],
        [opcode::WRITE_AND_VERIFY_16, 0x06],
    ] {
        assert_eq!(refused(&bytes), Sense::invalid_field(pointer), "{bytes:x?}");
    }
}

#[test]
fn commands_of_blocks_and_no_transfer_length() {
    assert_eq!(
        parsed(&[
            opcode::COMPARE_AND_WRITE,
            0x08,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            9,
            9,
            9,
            3
        ]),
        Command::CompareAndWrite {
            extent: Extent {
                lba: WIDE.lba,
                blocks: 3
            },
            fua: true
        }
    );
    assert_eq!(
        parsed(&[opcode::SYNCHRONIZE_CACHE_10, 0x02, 1, 2, 3, 4, 0, 5, 6]),
        Command::SynchronizeCache { extent: NARROW }
    );
    assert_eq!(
        parsed(&[opcode::UNMAP, 0, 0, 0, 0, 0, 0, 0x12, 0x34]),
        Command::Unmap {
            list_length: 0x1234
        }
    );
    let same = WriteSame {
        lba: WIDE.lba,
        blocks: WIDE.blocks,
        unmap: true,
        no_data: true,
    };
    let bytes = [
        opcode::WRITE_SAME_16,
        0x09,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        0xa,
        0xb,
        0xc,
    ];
    assert_eq!(parsed(&bytes), Command::WriteSame(same));
    // There is no NDOB in the ten-byte command.
    let same = WriteSame {
        lba: NARROW.lba,
        blocks: NARROW.blocks,
        unmap: false,
        no_data: false,
    };
    let bytes = [opcode::WRITE_SAME_10, 0x01, 1, 2, 3, 4, 0, 5, 6];
    assert_eq!(parsed(&bytes), Command::WriteSame(same));
}

#[test]
fn primary_commands() {
    let allocation_length = 0x1234;
    assert_eq!(parsed(&[opcode::TEST_UNIT_READY]), Command::TestUnitReady);
    assert_eq!(
        parsed(&[opcode::INQUIRY, 1, 0x83, 0x12, 0x34]),
        Command::Inquiry {
            page: Some(0x83),
            allocation_length
        }
    );
    assert_eq!(
        parsed(&[opcode::REQUEST_SENSE, 1, 0, 0, 0x34]),
        Command::RequestSense {
            descriptor: true,
            allocation_length: 0x34
        }
    );
    assert_eq!(
        parsed(&[opcode::MODE_SENSE_10, 0x18, 0x88, 0xff, 0, 0, 0, 0x12, 0x34]),
        Command::ModeSense(ModeSense {
            is_long: true,
            no_descriptor: true,
            long_lba: true,
            control: PageControl::Default,
            page: 0x08,
            subpage: 0xff,
            allocation_length
        })
    );
    let Command::ModeSense(short) = parsed(&[opcode::MODE_SENSE_6, 0x10, 0x3f, 0, 0xc0]) else {
        panic!("a MODE SENSE (6)")
    };
    assert_eq!((short.is_long, short.long_lba), (false, false));
    assert_eq!((short.page, short.allocation_length), (0x3f, 0xc0));
    assert_eq!(
        parsed(&[opcode::MODE_SELECT_6, 0x11, 0, 0, 0x18]),
        Command::ModeSelect {
            is_long: false,
            save: true,
            list_length: 0x18
        }
    );
    assert_eq!(
        parsed(&[opcode::START_STOP_UNIT, 1, 0, 0, 0x17]),
        Command::StartStopUnit {
            start: true,
            load_eject: true,
            no_flush: true,
            power_condition: 1
        }
    );
    assert_eq!(
        parsed(&[opcode::PREVENT_ALLOW_MEDIUM_REMOVAL, 0, 0, 0, 1]),
        Command::PreventAllowMediumRemoval { prevent: 1 }
    );
    assert_eq!(
        parsed(&[opcode::REPORT_LUNS, 0, 2, 0, 0, 0, 0, 0, 0x12, 0x34]),
        Command::ReportLuns {
            select: 2,
            allocation_length
        }
    );
}

#[test]
fn service_actions() {
    let allocation_length = 0x1234;
    let long = |opcode, action| parsed(&[opcode, action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
    assert_eq!(
        long(opcode::SERVICE_ACTION_IN_16, 0x10),
        Command::ReadCapacity16 { allocation_length }
    );
    assert_eq!(
        long(opcode::THIRD_PARTY_COPY_OUT, 0),
        Command::ExtendedCopy {
            list_length: 0x1234
        }
    );
    assert_eq!(
        long(opcode::THIRD_PARTY_COPY_IN, 3),
        Command::ReceiveCopyOperatingParameters { allocation_length }
    );
    let maintenance = |byte_1, byte_2| {
        parsed(&[
            opcode::MAINTENANCE_IN,
            byte_1,
            byte_2,
            0x9e,
            0,
            0x10,
            0,
            0,
            0x12,
            0x34,
        ])
    };
    assert_eq!(
        maintenance(0x2a, 0),
        Command::ReportTargetPortGroups {
            extended: true,
            allocation_length
        }
    );
    let options = [
        Reporting::All,
        Reporting::Opcode(0x9e),
        Reporting::ServiceAction(0x9e, 0x10),
        Reporting::Either(0x9e, 0x10),
    ];
    for (value, reporting) in options.into_iter().enumerate() {
        assert_eq!(
            maintenance(0x0c, 0x80 | value as u8),
            Command::ReportSupportedOperationCodes {
                timeouts: true,
                reporting,
                allocation_length
            }
        );
    }
    assert_eq!(
        maintenance(0x0d, 0x80),
        Command::ReportSupportedTaskManagementFunctions {
            extended: true,
            allocation_length
        }
    );
}

#[test]
fn reservations() {
    for opcode in [opcode::RESERVE_6, opcode::RESERVE_10] {
        assert_eq!(parsed(&[opcode]), Command::Reserve);
    }
    for opcode in [opcode::RELEASE_6, opcode::RELEASE_10] {
        assert_eq!(parsed(&[opcode]), Command::Release);
    }
    assert_eq!(
        parsed(&[
            opcode::PERSISTENT_RESERVE_IN,
            0xe3,
            0,
            0,
            0,
            0,
            0,
            0x12,
            0x34
        ]),
        Command::PersistentReserveIn {
            action: ReserveInAction::ReadFullStatus,
            allocation_length: 0x1234
        }
    );
    let out = ReserveOut {
        action: ReserveOutAction::PreemptAndAbort,
        scope: 1,
        kind: 8,
        list_length: 0x0102_0304,
    };
    assert_eq!(
        parsed(&[opcode::PERSISTENT_RESERVE_OUT, 0x05, 0x18, 0, 0, 1, 2, 3, 4]),
        Command::PersistentReserveOut(out)
    );
}

#[test]
fn what_is_not_supported_is_told_with_its_place() {
    // FORMAT UNIT, and an operation code of a group without a length.
    for opcode in [0x04, 0x7f] {
        assert_eq!(refused(&[opcode]), Sense::invalid_operation_code());
    }
    let at = |byte, bit| Sense::invalid_field(FieldPointer::cdb_bit(byte, bit));
    // REPORT IDENTIFYING INFORMATION.
    assert_eq!(refused(&[opcode::MAINTENANCE_IN, 0x05]), at(1, 4));
    // Protection information.
    for opcode in [
        opcode::READ_10,
        opcode::WRITE_16,
        opcode::VERIFY_12,
        opcode::WRITE_AND_VERIFY_10,
        opcode::WRITE_SAME_16,
        opcode::COMPARE_AND_WRITE,
    ] {
        assert_eq!(refused(&[opcode, 0x20]), at(1, 7), "{opcode:02x}h");
    }
    // Anchors.
    assert_eq!(refused(&[opcode::UNMAP, 0x01]), at(1, 0));
    assert_eq!(refused(&[opcode::WRITE_SAME_10, 0x18]), at(1, 4));
    // Parts of a unit, or a third party, and REPLACE LOST RESERVATION.
    assert_eq!(refused(&[opcode::RESERVE_6, 0x01]), at(1, 0));
    assert_eq!(refused(&[opcode::RELEASE_10, 0x10]), at(1, 4));
    assert_eq!(refused(&[opcode::PERSISTENT_RESERVE_OUT, 0x08]), at(1, 4));
    assert_eq!(refused(&[opcode::PERSISTENT_RESERVE_IN, 0x04]), at(1, 4));
    // A page without EVPD, pages of a vendor's own format, and reporting options that are reserved.
    let page = refused(&[opcode::INQUIRY, 0, 0x80]);
    assert_eq!(page, Sense::invalid_field(FieldPointer::cdb(2)));
    assert_eq!(refused(&[opcode::MODE_SELECT_6, 0, 0, 0, 8]), at(1, 4));
    assert_eq!(refused(&[opcode::MAINTENANCE_IN, 0x0c, 4]), at(2, 2));
    assert_eq!(refused(&[opcode::MAINTENANCE_IN, 0x4a]), at(1, 7));
}

#[test]
fn no_command_takes_naca() {
    for supported in crate::opcodes::SUPPORTED {
        let mut cdb = [0; CDB_LENGTH_MAX];
        cdb[0] = supported.opcode;
        cdb[1] = supported.service_action.unwrap_or(0);
        cdb[supported.length() - 1] = 0x04;
        let sense = Sense::from(Command::parse(&cdb).expect_err("there is no ACA"));
        let last = supported.length() as u16 - 1;
        let pointer = FieldPointer::cdb_bit(last, 2);
        assert_eq!(sense, Sense::invalid_field(pointer), "{supported:?}");
    }
}

#[test]
fn an_initiator_writes_the_widest_fields() {
    let short = cdb(&[opcode::READ_6, 0x1f, 2, 3, 0]);
    let written = Command::parse(&short).expect("a command").encode();
    let expected = [
        opcode::READ_16,
        0,
        0,
        0,
        0,
        0,
        0,
        0x1f,
        2,
        3,
        0,
        0,
        1,
        0,
        0,
        0,
    ];
    assert_eq!(written, expected);
    let whole_medium = Command::SynchronizeCache {
        extent: Extent { lba: 0, blocks: 0 },
    };
    assert_eq!(whole_medium.encode(), cdb(&[opcode::SYNCHRONIZE_CACHE_16]));
}

#[test]
fn what_a_field_has_no_room_for_is_the_most_that_it_has() {
    let extent = Extent {
        lba: 1,
        blocks: 256,
    };
    let compare = Command::CompareAndWrite { extent, fua: false }.encode();
    assert_eq!(compare[10..], [0, 0, 0, 0xff, 0, 0]);
    let inquiry = Command::Inquiry {
        page: None,
        allocation_length: 0x1_0000,
    };
    assert_eq!(inquiry.encode()[3..5], [0xff, 0xff]);
    let sense = Command::RequestSense {
        descriptor: false,
        allocation_length: 256,
    };
    assert_eq!(sense.encode()[4], 0xff);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_is_written_is_read_again(
        supported in proptest::sample::select(crate::opcodes::SUPPORTED),
        mut cdb: Cdb,
    ) {
        cdb[0] = supported.opcode;
        if let Some(action) = supported.service_action {
            cdb[1] = cdb[1] & 0xe0 | action;
        }
        // Bits that most commands refuse would leave few of them.
        cdb[supported.length() - 1] = 0;
        if let Ok(command) = Command::parse(&cdb) {
            prop_assert_eq!(Command::parse(&command.encode()), Ok(command));
        }
    }

    #[test]
    fn any_bytes_are_a_command_or_an_error(cdb: Cdb) {
        if let Err(error) = Command::parse(&cdb) {
            let known = [
                AdditionalSense::INVALID_COMMAND_OPERATION_CODE,
                AdditionalSense::INVALID_FIELD_IN_CDB,
            ];
            prop_assert!(known.contains(&Sense::from(error).additional));
        }
    }
}
