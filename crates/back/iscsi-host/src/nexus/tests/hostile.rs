//! Targets that break the protocol: each ends in a fault, and none in a panic.

use proptest::prelude::*;
use weir_initiator::wire::{Payload, Wire};
use weir_iscsi::negotiation::{DigestPolicy, Offer};
use weir_iscsi::pdu::{Opcode, Pdu, Residual, UnknownPdu};
use weir_iscsi::reader::FramingError;
use weir_iscsi::{Itt, Serial, Ttt};

use super::super::{Fault, Violation};
use super::target::{SLOTS, Target, bytes_of, out, sent};

#[track_caller]
fn violation(mut target: Target) -> Violation {
    match target.assert_fault() {
        Fault::Protocol(violation) => violation,
        other => panic!("{other:?} is another fault"),
    }
}

/// A target with a read of 100 bytes under way.
fn reading() -> (Target, Itt) {
    let mut target = Target::new(Offer::default());
    let itt = target.read(100, 1);
    target.hear();
    (target, itt)
}

/// A target with a write under way of which nothing was sent.
fn writing(length: usize) -> (Target, Itt) {
    let mut target = Target::new(Offer {
        immediate_data: false,
        initial_r2t: true,
        max_burst_length: 4096,
        first_burst_length: 4096,
        max_outstanding_r2t: 2,
        ..Offer::default()
    });
    let itt = target.submit(out(length).0, 1);
    target.hear();
    (target, itt)
}

#[test]
fn answers_to_nothing_end_the_connection() {
    // A tag that was never given, and the reserved one.
    for itt in [Itt(0x1234), Itt::RESERVED, Itt(0)] {
        let mut none = Target::new(Offer::default());
        none.say_good(itt);
        let opcode = Opcode::ScsiResponse;
        assert_eq!(violation(none), Violation::NothingSuch { opcode, itt });
    }
    // One that was answered already, after its slot was used again.
    let mut late = Target::new(Offer::default());
    let old = late.submit(Payload::None, 1);
    late.hear();
    late.say_good(old);
    for user in 0..u64::from(SLOTS) {
        late.submit(Payload::None, user);
    }
    late.hear();
    assert_eq!(late.seen.take().len(), 1);
    late.say_data(old, 0, 0, &[0; 4]);
    assert_eq!(late.seen.take(), []);
    let opcode = Opcode::DataIn;
    assert_eq!(violation(late), Violation::NothingSuch { opcode, itt: old });
    // One whose command was not sent.
    let mut early = Target::new(Offer::default());
    let itt = early.submit(Payload::None, 1);
    early.say_good(itt);
    assert!(matches!(violation(early), Violation::NothingSuch { .. }));
    // One twice.
    let (mut twice, itt) = reading();
    twice.say_last_data(itt, (0, 0), &[0; 100], Residual::None);
    twice.say_good(itt);
    assert!(matches!(violation(twice), Violation::NothingSuch { .. }));
}

#[test]
fn a_response_with_another_number_ends_the_connection() {
    for step in [1, u32::MAX] {
        let (mut target, itt) = reading();
        target.stat_sn = target.stat_sn.plus(step);
        target.say_last_data(itt, (0, 0), &[0; 100], Residual::None);
        assert_eq!(target.seen.take(), []);
        assert!(matches!(
            violation(target),
            Violation::WrongNumber {
                field: "StatSN",
                ..
            }
        ));
        let mut target = Target::new(Offer::default());
        let itt = target.submit(Payload::None, 1);
        target.hear();
        target.stat_sn = target.stat_sn.plus(step);
        target.say_good(itt);
        assert_eq!(target.seen.take(), []);
        assert!(matches!(
            violation(target),
            Violation::WrongNumber {
                field: "StatSN",
                ..
            }
        ));
    }
}

#[test]
fn data_that_was_not_asked_for_ends_the_connection() {
    let wrong = |target, field| match violation(target) {
        Violation::WrongNumber { field: found, .. } => assert_eq!(found, field),
        other => panic!("{other:?} is another violation"),
    };
    let (mut gap, itt) = reading();
    gap.say_data(itt, 0, 4, &[0; 4]);
    wrong(gap, "Buffer Offset");
    let (mut twice, itt) = reading();
    twice.say_data(itt, 0, 0, &[0; 4]);
    twice.say_data(itt, 1, 0, &[0; 4]);
    wrong(twice, "Buffer Offset");
    let (mut number, itt) = reading();
    number.say_data(itt, 1, 0, &[0; 4]);
    wrong(number, "DataSN");
    let (mut long, itt) = reading();
    long.say_data(itt, 0, 0, &[0; 101]);
    assert!(long.seen.data.borrow().is_empty(), "none is handed on");
    assert!(matches!(violation(long), Violation::Beyond { .. }));
    let (mut beyond, itt) = reading();
    beyond.say_data(itt, 0, 0, &[0; 100]);
    beyond.say_data(itt, 1, 100, &[0; 1]);
    assert!(matches!(violation(beyond), Violation::Beyond { .. }));
    let (mut open, itt) = reading();
    let mut header = open.data_in(itt, 0, 0, 0);
    header.status = Some(weir_iscsi::pdu::DataInStatus {
        status: 0,
        stat_sn: open.stat_sn,
        residual: Residual::None,
    });
    open.say(&header, &[]);
    assert_eq!(violation(open), Violation::StatusNotFinal);
    // Of a write.
    let (mut write, itt) = writing(4096);
    write.say_data(itt, 0, 0, &[0; 4]);
    assert!(matches!(violation(write), Violation::NothingSuch { .. }));
}

#[test]
fn requests_for_data_that_is_not_there_end_the_connection() {
    let ask = |r2t_sn, offset, length| {
        let (mut target, itt) = writing(5000);
        target.say_r2t(itt, r2t_sn, offset, length);
        violation(target)
    };
    assert!(matches!(ask(0, 0, 0), Violation::WrongBurst { .. }));
    assert!(matches!(ask(0, 0, 4097), Violation::WrongBurst { .. }));
    assert!(matches!(ask(0, 0, u32::MAX), Violation::WrongBurst { .. }));
    assert!(matches!(
        ask(1, 0, 100),
        Violation::WrongNumber { field: "R2TSN", .. }
    ));
    for offset in [4, 5000, u32::MAX] {
        assert!(matches!(
            ask(0, offset, 100),
            Violation::WrongNumber {
                field: "Buffer Offset",
                ..
            }
        ));
    }
    let (mut beyond, itt) = writing(5000);
    beyond.say_r2t(itt, 0, 0, 4096);
    beyond.say_r2t(itt, 1, 4096, 905);
    assert!(matches!(violation(beyond), Violation::Beyond { .. }));
    let (mut many, itt) = writing(5000);
    for number in 0..3 {
        many.say_r2t(itt, number, number * 100, 100);
    }
    let maximum = 2;
    assert_eq!(violation(many), Violation::TooManyR2ts { maximum });
    // As many again, once their data was sent.
    let (mut again, itt) = writing(5000);
    for number in 0..5 {
        again.say_r2t(itt, number, number * 100, 100);
        assert_eq!(again.hear().len(), 1);
    }
    assert_eq!(again.nexus.fault(), None);
    // Without a tag for it.
    let (mut untagged, itt) = writing(5000);
    let mut header = untagged.r2t(itt, 0, 0, 100);
    header.ttt = Ttt::RESERVED;
    untagged.say(&header, &[]);
    assert_eq!(violation(untagged), Violation::NoTransferTag(Opcode::R2t));
    // Of what was sent unasked already, or of a read.
    let mut sent = Target::new(Offer::default());
    let itt = sent.submit(out(5000).0, 1);
    sent.hear();
    sent.say_r2t(itt, 0, 0, 5000);
    assert!(matches!(violation(sent), Violation::WrongNumber { .. }));
    let (mut read, itt) = reading();
    read.say_r2t(itt, 0, 0, 100);
    assert!(matches!(violation(read), Violation::NothingSuch { .. }));
}

#[test]
fn unknown_pdus_and_damaged_headers_end_the_connection() {
    let mut unknown = Target::new(Offer::default());
    let mut bytes = [0; 48];
    bytes[0] = 0x3c;
    unknown.say_bytes(&bytes);
    assert!(matches!(violation(unknown), Violation::Unexpected(_)));
    let mut login = Target::new(Offer::default());
    bytes[0] = 0x23;
    login.say_bytes(&bytes);
    assert!(matches!(
        login.assert_fault(),
        Fault::Framing(FramingError::AfterLogin { .. })
    ));
    let mut damaged = Target::new(Offer {
        header_digest: DigestPolicy::Required,
        ..Offer::default()
    });
    let itt = damaged.submit(Payload::None, 1);
    damaged.hear();
    let response = damaged.response(itt, 0, Residual::None);
    let mut bytes = bytes_of(&damaged.writer, &response, &[]);
    bytes[30] ^= 1;
    damaged.say_bytes(&bytes);
    assert!(matches!(
        damaged.assert_fault(),
        Fault::Framing(FramingError::HeaderDigest { .. })
    ));
}

proptest! {
    /// No bytes from the target make it panic.
    #[test]
    fn no_bytes_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        opcode in prop::sample::select(vec![
            0x20u8, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f, 0x3c, 0x01,
        ]),
        tag in 0usize..7,
        plausible in any::<bool>(),
        cut in 0usize..50,
    ) {
        let mut target = Target::new(Offer { initial_r2t: true, ..Offer::default() });
        target.cut = cut;
        let read = target.read(64, 1);
        let write = target.submit(out(20_000).0, 2);
        assert!(target.nexus.submit_nop(3));
        assert!(target.nexus.submit_text(b"SendTargets=All\0", 4));
        assert!(target.nexus.submit_abort(write, 5));
        assert!(target.nexus.submit_logout(6));
        let mut tags = vec![read, write, Itt::RESERVED];
        for (pdu, _) in target.hear() {
            match pdu {
                Pdu::NopOut(header) => tags.push(header.itt),
                Pdu::TextRequest(header) => tags.push(header.itt),
                Pdu::TaskManagementRequest(header) => tags.push(header.itt),
                Pdu::LogoutRequest(header) => tags.push(header.itt),
                _ => {}
            }
        }
        if bytes.len() >= 48 {
            // Make a plausible header of it, so that it gets further.
            bytes[0] = opcode;
            bytes[4] = 0;
            let length = (bytes.len() as u32 - 48) / 4 * 4;
            bytes[5..8].copy_from_slice(&length.to_be_bytes()[1..]);
            bytes[16..20].copy_from_slice(&tags[tag].0.to_be_bytes());
            if plausible {
                bytes[24..28].copy_from_slice(&target.stat_sn.0.to_be_bytes());
                bytes[36..44].fill(0);
            }
        }
        target.say_bytes(&bytes);
        sent(&mut target.nexus);
        target.nexus.take_unanswered();
    }

    /// Nor do any before the login.
    #[test]
    fn no_bytes_of_a_login_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        reject in any::<bool>(),
        cut in 0usize..50,
    ) {
        let mut target = Target::connect(super::target::settings());
        target.cut = cut;
        sent(&mut target.nexus);
        if bytes.len() >= 48 {
            bytes[0] = if reject { 0x3f } else { 0x23 };
            (bytes[1], bytes[3], bytes[4]) = (bytes[1] & 0x87, 0, 0);
            let length = (bytes.len() as u32 - 48) / 4 * 4;
            bytes[5..8].copy_from_slice(&length.to_be_bytes()[1..]);
            bytes[8..14].copy_from_slice(&super::target::login_settings().isid.0);
            bytes[16..20].copy_from_slice(&9u32.to_be_bytes());
            bytes[36..38].fill(0);
        }
        target.say_bytes(&bytes);
        sent(&mut target.nexus);
    }
}

#[test]
fn a_fault_is_told_in_words() {
    let unknown = UnknownPdu {
        opcode: Opcode::from_value(0x3c),
        immediate: false,
        itt: Itt(1),
        data_length: 0,
    };
    let faults = [
        Fault::Protocol(Violation::Unexpected(unknown.opcode)),
        Fault::Protocol(Violation::WrongNumber {
            field: "StatSN",
            received: Serial(3).0,
            expected: 2,
        }),
    ];
    assert_eq!(
        faults[1].to_string(),
        "the target broke the protocol: StatSN is 0x3, where 0x2 comes next"
    );
    assert!(faults[0].to_string().contains("not expected"));
}
