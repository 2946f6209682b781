//! Tests of the list of commands.

use proptest::prelude::*;

use super::*;
use crate::cdb::{CDB_LENGTH_MAX, CdbError, Command};

#[test]
fn the_list_is_that_of_the_parser() {
    for opcode in 0..=u8::MAX {
        for service_action in 0..0x20 {
            let mut cdb = [0; CDB_LENGTH_MAX];
            (cdb[0], cdb[1]) = (opcode, service_action);
            let is_listed = SUPPORTED.iter().any(|one| {
                one.opcode == opcode && one.service_action.is_none_or(|one| one == service_action)
            });
            let is_known = !matches!(
                Command::parse(&cdb),
                Err(CdbError::Opcode(_) | CdbError::ServiceAction { .. })
            );
            assert_eq!(is_listed, is_known, "{opcode:02x}h {service_action:02x}h");
        }
    }
}

/// Bits that are said not to be looked at change nothing, and those that are said to be do, with a few exceptions.
#[test]
fn usage_data_is_what_the_parser_looks_at() {
    for supported in SUPPORTED {
        let mut cdb = [0; CDB_LENGTH_MAX];
        cdb[0] = supported.opcode;
        cdb[1] = supported.service_action.unwrap_or(0);
        let plain = Command::parse(&cdb);
        let action_bits = if supported.service_action.is_some() {
            0x1f
        } else {
            0
        };
        for (index, usage) in supported.usage.iter().enumerate() {
            let byte = index + 1;
            let ignored = if byte == 1 {
                !usage & !action_bits
            } else {
                !usage
            };
            for bit in (0..8).filter(|bit| ignored & 1 << bit != 0) {
                let mut changed = cdb;
                changed[byte] ^= 1 << bit;
                assert_eq!(
                    Command::parse(&changed),
                    plain,
                    "{supported:?} {byte} {bit}"
                );
            }
        }
    }
}

#[test]
fn cdbs_are_as_long_as_their_group_says() {
    for supported in SUPPORTED {
        assert_eq!(cdb_length(supported.opcode), Some(supported.length()));
    }
}

#[test]
fn all_commands_are_listed() {
    for (timeouts, each) in [(false, 8), (true, 20)] {
        let data = supported_operation_codes(Reporting::All, timeouts).expect("a list");
        assert_eq!(data.len(), 4 + SUPPORTED.len() * each);
        assert_eq!(data[..4], (data.len() as u32 - 4).to_be_bytes());
        for (chunk, supported) in data[4..].chunks(each).zip(SUPPORTED) {
            assert_eq!(chunk[0], supported.opcode);
            assert_eq!(chunk[5] & 1 != 0, supported.service_action.is_some());
            assert_eq!(chunk[5] & 2 != 0, timeouts);
        }
    }
}

#[test]
fn one_command_is_told_with_its_usage() {
    let data = supported_operation_codes(Reporting::Opcode(opcode::UNMAP), false);
    let expected = [0, 3, 0, 10, 0x42, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 4];
    assert_eq!(data.expect("a command"), expected);
    let read_capacity = Reporting::Either(opcode::SERVICE_ACTION_IN_16, 0x10);
    let data = supported_operation_codes(read_capacity, true).expect("a command");
    assert_eq!(data[..6], [0, 0x83, 0, 16, 0x9e, 0x10]);
    assert_eq!(data[20..22], [0, 10]);
    // FORMAT UNIT, and a service action that is not there.
    for reporting in [
        Reporting::Opcode(0x04),
        Reporting::Either(opcode::MAINTENANCE_IN, 0x05),
        Reporting::ServiceAction(opcode::MAINTENANCE_IN, 0x105),
    ] {
        let data = supported_operation_codes(reporting, false);
        assert_eq!(data, Ok(vec![0, 1, 0, 0]), "{reporting:?}");
    }
}

#[test]
fn a_question_that_does_not_fit_the_operation_code_is_refused() {
    let sense = Sense::invalid_field(FieldPointer::cdb_bit(2, 2));
    for reporting in [
        Reporting::Opcode(opcode::MAINTENANCE_IN),
        Reporting::ServiceAction(opcode::UNMAP, 0),
    ] {
        assert_eq!(supported_operation_codes(reporting, false), Err(sense));
    }
}

#[test]
fn an_initiator_reads_what_a_target_tells() {
    for supported in SUPPORTED {
        for timeouts in [false, true] {
            let action = supported.service_action.unwrap_or(0).into();
            let reporting = Reporting::Either(supported.opcode, action);
            let data = supported_operation_codes(reporting, timeouts).expect("a command");
            let usage = [&[supported.opcode], supported.usage].concat();
            let support = Support::parse(&data).expect("whole data");
            assert_eq!(support, Support::Supported(&usage));
        }
    }
    let data = supported_operation_codes(Reporting::Opcode(0x04), false).expect("an answer");
    assert_eq!(Support::parse(&data), Ok(Support::Unsupported));
    assert_eq!(Support::parse(&[0, 0, 0, 0]), Ok(Support::Unknown));
    assert_eq!(Support::parse(&[0, 5, 0, 0]), Ok(Support::Unsupported));
    assert!(Support::parse(&[0, 3, 0]).is_err());
}

#[test]
fn bits_that_are_looked_at_are_told() {
    let data = supported_operation_codes(Reporting::Opcode(opcode::WRITE_SAME_16), false);
    let data = data.expect("a command");
    let support = Support::parse(&data).expect("whole data");
    assert!(support.heeds(1, 0x09) && !support.heeds(1, 0x06) && !support.heeds(16, 1));
    let cut = Support::parse(&data[..5]).expect("a header");
    assert_eq!(cut, Support::Supported(&[opcode::WRITE_SAME_16]));
    assert!(!cut.heeds(1, 1) && !Support::Unsupported.heeds(0, 0));
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_too_short(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(Support::parse(&bytes).is_ok(), bytes.len() >= 4);
    }
}
