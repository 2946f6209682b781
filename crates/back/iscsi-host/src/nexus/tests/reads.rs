//! Reads, statuses and sense data.

use weir_initiator::wire::{Payload, Wire};
use weir_iscsi::negotiation::{DigestPolicy, Offer};
use weir_iscsi::pdu::{Residual, ResponseCode, sense_prefix};
use weir_scsi::sense::SenseFormat;
use weir_scsi::{Sense, Status};

use super::super::{Answer, Fault};
use super::target::{GOOD, SLOTS, Target, bytes_of, out};

fn digests() -> Offer {
    Offer {
        header_digest: DigestPolicy::Required,
        data_digest: DigestPolicy::Required,
        ..Offer::default()
    }
}

fn scsi(status: Status, sense: Option<Sense>, residual: Residual) -> Answer {
    Answer::Scsi {
        status: status.value(),
        sense,
        residual,
    }
}

#[test]
fn a_read_ends_with_its_last_data_or_with_a_response() {
    for cut in [0, 1, 7, 100] {
        let mut target = Target::new(digests());
        target.cut = cut;
        let first = target.read(600, 1);
        let second = target.read(601, 2);
        let heard = target.hear();
        assert_eq!(heard.len(), 2);
        target.say_data(second, 0, 0, &[2; 500]);
        target.say_last_data(first, (0, 0), &[1; 600], Residual::None);
        target.say_data(second, 1, 500, &[3; 101]);
        assert_eq!(target.seen.take(), [(1, GOOD)]);
        target.say_good(second);
        assert_eq!(target.seen.take(), [(2, GOOD)]);
        assert_eq!(target.seen.whole(1), [1; 600]);
        let expected = [[2; 500].as_slice(), &[3; 101]].concat();
        assert_eq!(target.seen.whole(2), expected);
        assert_eq!(target.nexus.room(), usize::from(SLOTS));
    }
}

#[test]
fn the_command_says_what_is_read() {
    let mut target = Target::new(Offer::default());
    target.read(600, 1);
    target.submit(Payload::None, 2);
    target.submit(Payload::In(0), 3);
    let flags: Vec<(bool, bool, bool, u32)> = target
        .hear()
        .iter()
        .map(|(pdu, _)| match pdu {
            weir_iscsi::Pdu::ScsiCommand(command) => {
                assert_eq!(command.cdb, super::target::CDB);
                assert_eq!(command.lun, super::target::LUN);
                let length = command.expected_data_length;
                (command.is_final, command.read, command.write, length)
            }
            other => panic!("{other:?} is no command"),
        })
        .collect();
    assert_eq!(
        flags,
        [
            (true, true, false, 600),
            (true, false, false, 0),
            (true, false, false, 0)
        ]
    );
}

#[test]
fn a_residual_that_fits_is_told_and_one_that_does_not_is_damage() {
    let mut target = Target::new(Offer::default());
    let mut read = |length, data: &[u8], residual| {
        let itt = target.read(length, 1);
        target.hear();
        target.say_last_data(itt, (0, 0), data, residual);
        assert_eq!(target.nexus.fault(), None);
        target.seen.take().pop().unwrap().1
    };
    let under = Residual::Underflow(36);
    let over = Residual::Overflow(99);
    assert_eq!(read(100, &[1; 64], under), scsi(Status::Good, None, under));
    assert_eq!(read(100, &[1; 100], over), scsi(Status::Good, None, over));
    assert_eq!(read(100, &[1; 99], Residual::None), Answer::Damaged);
    assert_eq!(read(100, &[1; 99], over), Answer::Damaged);
    assert_eq!(read(100, &[1; 100], under), Answer::Damaged);
    assert_eq!(read(100, &[], Residual::None), Answer::Damaged);
    assert_eq!(
        read(100, &[], Residual::Underflow(u32::MAX)),
        Answer::Damaged
    );
    let all = Residual::Underflow(100);
    assert_eq!(read(100, &[], all), scsi(Status::Good, None, all));
}

#[test]
fn data_that_is_damaged_or_missing_is_not_a_success() {
    let mut target = Target::new(digests());
    let damaged = target.read(8, 1);
    let none = target.read(8, 2);
    let failed = target.read(8, 3);
    target.hear();
    let mut bytes = bytes_of(&target.writer, &target.data_in(damaged, 0, 0, 8), &[5; 8]);
    *bytes.last_mut().unwrap() ^= 1;
    target.say_bytes(&bytes);
    assert_eq!(target.nexus.fault(), None, "it concerns one command");
    target.say_good(damaged);
    target.say_good(none);
    target.say_status(failed, Status::Busy.value(), Residual::None);
    assert_eq!(
        target.seen.take(),
        [
            (1, Answer::Damaged),
            (2, Answer::Damaged),
            (3, scsi(Status::Busy, None, Residual::None))
        ]
    );
}

#[test]
fn sense_data_is_read_whatever_its_format() {
    let mut target = Target::new(digests());
    let sense = Sense::read_error(77);
    for (user, format) in [(1, SenseFormat::Fixed), (2, SenseFormat::Descriptor)] {
        for cut in [0, 1] {
            target.cut = cut;
            let itt = target.read(512, user);
            target.hear();
            let encoded = sense.encode(format);
            let data = [&sense_prefix(encoded.len() as u16)[..], &encoded].concat();
            let residual = Residual::Underflow(512);
            let mut response = target.response(itt, 2, residual);
            response.data_length = data.len() as u32;
            target.say(&response, &data);
            let expected = scsi(Status::CheckCondition, Some(sense), residual);
            assert_eq!(target.seen.take(), [(user, expected)]);
        }
    }
    // That of one command is not another's.
    let itt = target.submit(Payload::None, 3);
    target.hear();
    target.say_status(itt, 2, Residual::None);
    let none = scsi(Status::CheckCondition, None, Residual::None);
    assert_eq!(target.seen.take(), [(3, none)]);
}

#[test]
fn sense_data_that_is_none_is_no_reason_to_stop() {
    let mut target = Target::new(Offer::default());
    for data in [&[0xff][..], &[0, 9, 1], &[0, 3, 1, 2, 3], &[0xff; 4000]] {
        let itt = target.submit(Payload::None, 1);
        target.hear();
        let mut response = target.response(itt, 2, Residual::None);
        response.data_length = data.len() as u32;
        target.say(&response, data);
        let none = scsi(Status::CheckCondition, None, Residual::None);
        assert_eq!(target.seen.take(), [(1, none)]);
    }
    assert_eq!(target.nexus.fault(), None);
}

#[test]
fn damaged_sense_data_ends_the_connection() {
    let mut target = Target::new(digests());
    let itt = target.submit(Payload::None, 1);
    target.hear();
    let mut response = target.response(itt, 2, Residual::None);
    response.data_length = 4;
    let mut bytes = bytes_of(&target.writer, &response, &[0, 2, 0x70, 0]);
    *bytes.last_mut().unwrap() ^= 1;
    target.say_bytes(&bytes);
    assert!(matches!(target.assert_fault(), Fault::Digest(_)));
    assert_eq!(target.seen.take(), []);
}

#[test]
fn a_failure_of_the_target_is_no_status() {
    let mut target = Target::new(Offer::default());
    let (payload, _) = out(100);
    let itt = target.submit(payload, 1);
    target.hear();
    let mut response = target.response(itt, 0, Residual::None);
    response.response = ResponseCode::TargetFailure;
    target.say(&response, &[]);
    let sense = Sense::internal_failure();
    let failed = scsi(Status::CheckCondition, Some(sense), Residual::None);
    assert_eq!(target.seen.take(), [(1, failed)]);
}
