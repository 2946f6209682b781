//! Everything that is no task: the window, aborts, pings, logouts, texts, messages and rejections.

use weir_initiator::wire::{Exposure, Payload, Wire};
use weir_iscsi::negotiation::Offer;
use weir_iscsi::pdu::{
    AsyncEvent, AsyncMessage, Header, LogoutReason, LogoutResponse, LogoutResponseCode, NopIn, Pdu,
    Reject, RejectReason, Residual, TaskFunction, TaskResponse, TextResponse,
};
use weir_iscsi::{Itt, Serial, Ttt};

use super::super::{Answer, Fault, IMMEDIATE_SLOTS, PINGS_MAX, TEXT_MAX, Violation};
use super::target::{CMD_SN, Door, GOOD, LUN, SLOTS, Target, out, settings};

fn nop_in(target: &mut Target, itt: Itt, ttt: Ttt) {
    let serials = if itt == Itt::RESERVED {
        target.serials()
    } else {
        target.next_serials()
    };
    let header = NopIn {
        lun: 7,
        itt,
        ttt,
        serials,
        data_length: 0,
    };
    target.say(&header, &[]);
}

/// Tells the window as it is.
fn tell_window(target: &mut Target) {
    nop_in(target, Itt::RESERVED, Ttt::RESERVED);
}

/// A target that takes `window` commands at once.
fn with_window(window: u32) -> Target {
    let mut target = Target::connect(settings());
    target.log_in(Door::open(Offer::default()), window);
    target
}

/// The tag of the only PDU that is heard, which must be immediate.
fn only(target: &mut Target) -> (Itt, Pdu) {
    let heard = target.hear();
    let [(pdu, _)] = &heard[..] else {
        panic!("one PDU, not {heard:?}");
    };
    let itt = match pdu {
        Pdu::NopOut(header) => header.itt,
        Pdu::TaskManagementRequest(header) => header.itt,
        Pdu::LogoutRequest(header) => header.itt,
        Pdu::TextRequest(header) => header.itt,
        other => panic!("{other:?} is a task's"),
    };
    (itt, *pdu)
}

#[test]
fn the_window_closes_and_opens() {
    let mut target = with_window(2);
    assert_eq!(target.nexus.room(), 2);
    let first = target.submit(Payload::None, 1);
    target.submit(Payload::None, 2);
    assert_eq!(target.nexus.room(), 0, "the window is used up");
    target.hear();
    target.say_good(first);
    assert_eq!(
        target.nexus.room(),
        0,
        "a slot is free, but the window closed"
    );
    target.max_cmd_sn = target.max_cmd_sn.plus(2);
    tell_window(&mut target);
    assert_eq!(target.nexus.room(), 2);
    target.max_cmd_sn = target.max_cmd_sn.plus(100);
    tell_window(&mut target);
    assert_eq!(target.nexus.room(), 3, "so many slots are free");
    let third = target.submit(Payload::None, 3);
    target.hear();
    assert!(target.exp_cmd_sn.is_before(CMD_SN.plus(4)));
    // In a response and in data, too.
    target.say_good(third);
    assert_eq!(target.nexus.room(), 3);
}

#[test]
fn a_window_that_cannot_be_is_ignored() {
    let mut target = with_window(2);
    let (expected, maximum) = (target.exp_cmd_sn, target.max_cmd_sn);
    let absurd = [
        // It shrinks.
        (expected, maximum.minus(1)),
        (expected, expected.minus(1)),
        // MaxCmdSN before ExpCmdSN - 1.
        (expected.plus(9), expected.plus(7)),
        (expected, expected.plus(1 << 31)),
        (expected, expected.minus(1000)),
        // Commands that were never sent.
        (expected.plus(1), expected.plus(100)),
    ];
    for (exp_cmd_sn, max_cmd_sn) in absurd {
        (target.exp_cmd_sn, target.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        tell_window(&mut target);
        assert_eq!(target.nexus.room(), 2, "{exp_cmd_sn} {max_cmd_sn}");
    }
    let closed = with_window(0);
    assert_eq!(closed.nexus.room(), 0);
    assert_eq!(closed.nexus.fault(), None);
}

#[test]
fn an_aborted_task_is_answered_before_its_abort() {
    let responses = [TaskResponse::Complete, TaskResponse::TaskDoesNotExist];
    for response in responses {
        let mut target = Target::new(Offer {
            initial_r2t: true,
            immediate_data: false,
            ..Offer::default()
        });
        let task = target.submit(out(4000).0, 1);
        assert!(target.nexus.submit_abort(task, 2));
        let heard = target.hear();
        let Pdu::ScsiCommand(command) = heard[0].0 else {
            panic!("the command comes first");
        };
        let Pdu::TaskManagementRequest(request) = heard[1].0 else {
            panic!("then its abort");
        };
        assert_eq!(request.function, TaskFunction::AbortTask);
        assert_eq!((request.referenced, request.lun), (task, LUN));
        assert_eq!(request.ref_cmd_sn, command.cmd_sn);
        // What is owed is not sent any more.
        target.say_r2t(task, 0, 0, 4000);
        target.say_function(request.itt, response);
        assert_eq!(
            target.seen.take(),
            [(1, Answer::Aborted), (2, Answer::Function(response))]
        );
        assert_eq!(target.hear(), []);
        assert_eq!(target.nexus.room(), usize::from(SLOTS));
        // Its tag is nothing's.
        assert!(!target.nexus.submit_abort(task, 3));
        target.say_good(task);
        target.assert_fault();
    }
}

#[test]
fn a_task_that_was_answered_or_not_aborted_goes_its_way() {
    let mut target = Target::new(Offer::default());
    let task = target.submit(Payload::None, 1);
    assert!(target.nexus.submit_abort(task, 2));
    let heard = target.hear();
    let Pdu::TaskManagementRequest(request) = heard[1].0 else {
        panic!("an abort");
    };
    target.say_good(task);
    target.say_function(request.itt, TaskResponse::TaskDoesNotExist);
    let gone = Answer::Function(TaskResponse::TaskDoesNotExist);
    assert_eq!(target.seen.take(), [(1, GOOD), (2, gone)]);

    let task = target.submit(Payload::None, 3);
    target.hear();
    assert!(target.nexus.submit_abort(task, 4));
    let (itt, _) = only(&mut target);
    target.say_function(itt, TaskResponse::NotSupported);
    let refused = Answer::Function(TaskResponse::NotSupported);
    assert_eq!(target.seen.take(), [(4, refused)]);
    target.say_good(task);
    assert_eq!(target.seen.take(), [(3, GOOD)]);
}

#[test]
fn a_ping_comes_back_and_one_of_the_target_is_answered() {
    let mut target = Target::new(Offer::default());
    // Though tasks fill all of their slots.
    for user in 0..u64::from(SLOTS) {
        target.submit(Payload::None, user);
    }
    target.hear();
    assert_eq!(target.nexus.room(), 0);
    assert!(target.nexus.submit_nop(9));
    let (itt, pdu) = only(&mut target);
    let Pdu::NopOut(ping) = pdu else {
        panic!("a ping, not {pdu:?}");
    };
    assert_eq!(ping.ttt, Ttt::RESERVED);
    nop_in(&mut target, itt, Ttt::RESERVED);
    assert_eq!(target.seen.take(), [(9, Answer::Nop)]);

    nop_in(&mut target, Itt::RESERVED, Ttt(77));
    let (itt, pdu) = only(&mut target);
    let Pdu::NopOut(pong) = pdu else {
        panic!("the answer to a ping, not {pdu:?}");
    };
    assert_eq!((itt, pong.ttt, pong.lun), (Itt::RESERVED, Ttt(77), 7));
    assert_eq!(target.seen.take(), []);
}

#[test]
fn pings_are_answered_up_to_a_bound() {
    let mut target = Target::new(Offer::default());
    for _ in 0..2 {
        for number in 0..PINGS_MAX {
            nop_in(&mut target, Itt::RESERVED, Ttt(number as u32));
        }
        assert_eq!(target.hear().len(), PINGS_MAX);
    }
    for number in 0..=PINGS_MAX {
        nop_in(&mut target, Itt::RESERVED, Ttt(number as u32));
    }
    let maximum = PINGS_MAX;
    let fault = Fault::Protocol(Violation::TooManyPings { maximum });
    assert_eq!(target.assert_fault(), fault);
}

#[test]
fn only_so_many_immediate_things_are_under_way() {
    let mut target = Target::new(Offer::default());
    for user in 0..u64::from(IMMEDIATE_SLOTS) {
        assert!(target.nexus.submit_nop(user));
    }
    assert!(!target.nexus.submit_nop(99));
    assert!(!target.nexus.submit_logout(99));
    assert_eq!(target.nexus.room(), usize::from(SLOTS), "it was not taken");
    let heard = target.hear();
    let Pdu::NopOut(first) = heard[0].0 else {
        panic!("a ping");
    };
    nop_in(&mut target, first.itt, Ttt::RESERVED);
    assert!(target.nexus.submit_text(b"", 99));
    let mut unanswered = target.nexus.take_unanswered();
    unanswered.sort_by_key(|(user, _)| *user);
    assert_eq!(unanswered.len(), IMMEDIATE_SLOTS as usize);
    assert_eq!(unanswered[0], (1, Exposure::Possible));
    assert_eq!(unanswered.last(), Some(&(99, Exposure::Never)));
}

#[test]
fn a_logout_ends_what_may_be_submitted() {
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_logout(1));
    assert_eq!(target.nexus.room(), 0);
    let (itt, pdu) = only(&mut target);
    let Pdu::LogoutRequest(request) = pdu else {
        panic!("a logout, not {pdu:?}");
    };
    assert_eq!(request.reason, LogoutReason::CloseSession);
    let header = LogoutResponse {
        response: LogoutResponseCode::Closed,
        itt,
        serials: target.next_serials(),
        time_to_wait: 2,
        time_to_retain: 0,
        data_length: 0,
    };
    target.say(&header, &[]);
    let closed = Answer::LoggedOut(LogoutResponseCode::Closed);
    assert_eq!(target.seen.take(), [(1, closed)]);
    assert_eq!(target.nexus.room(), 0);
}

fn text_response(target: &mut Target, itt: Itt, ttt: Option<Ttt>, data: &[u8]) {
    let header = TextResponse {
        is_final: ttt.is_none(),
        continues: ttt.is_some(),
        lun: 3,
        itt,
        ttt: ttt.unwrap_or(Ttt::RESERVED),
        serials: target.next_serials(),
        data_length: data.len() as u32,
    };
    target.say(&header, data);
}

#[test]
fn a_text_goes_on_until_its_end() {
    for cut in [0, 5] {
        let mut target = Target::new(Offer::default());
        target.cut = cut;
        assert!(target.nexus.submit_text(b"SendTargets=All\0", 1));
        let heard = target.hear();
        let Pdu::TextRequest(first) = heard[0].0 else {
            panic!("a text");
        };
        assert_eq!(heard[0].1, b"SendTargets=All\0");
        assert!(first.is_final && !first.continues);
        assert_eq!(first.ttt, Ttt::RESERVED);
        let parts: [&[u8]; 3] = [b"TargetName=a\0Targ", b"etName=b\0TargetNa", b"me=c\0"];
        for (number, part) in parts.iter().take(2).enumerate() {
            text_response(&mut target, first.itt, Some(Ttt(number as u32)), part);
            let heard = target.hear();
            let Pdu::TextRequest(next) = heard[0].0 else {
                panic!("the rest is asked for");
            };
            assert_eq!(heard[0].1, b"");
            assert_eq!((next.itt, next.ttt), (first.itt, Ttt(number as u32)));
            assert_eq!(next.lun, 3);
        }
        text_response(&mut target, first.itt, None, parts[2]);
        let all = b"TargetName=a\0TargetName=b\0TargetName=c\0".to_vec();
        assert_eq!(target.seen.take(), [(1, Answer::Text(all))]);
        // Its tag is nothing's.
        text_response(&mut target, first.itt, None, b"");
        target.assert_fault();
    }
}

#[test]
fn a_text_without_end_or_without_a_tag_ends_the_connection() {
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_text(b"SendTargets=All\0", 1));
    let part = vec![b'a'; 60_000];
    for number in 0..=TEXT_MAX / part.len() {
        assert_eq!(target.nexus.fault(), None);
        let (itt, _) = only(&mut target);
        text_response(&mut target, itt, Some(Ttt(number as u32)), &part);
    }
    let fault = Fault::Protocol(Violation::TooMuchText { maximum: TEXT_MAX });
    assert_eq!(target.assert_fault(), fault);

    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_text(b"SendTargets=All\0", 1));
    let (itt, _) = only(&mut target);
    text_response(&mut target, itt, Some(Ttt::RESERVED), b"a");
    assert!(matches!(
        target.assert_fault(),
        Fault::Protocol(Violation::NoTransferTag(_))
    ));

    // Twice, before the rest was asked for.
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_text(b"SendTargets=All\0", 1));
    let (itt, _) = only(&mut target);
    text_response(&mut target, itt, Some(Ttt(1)), b"a");
    text_response(&mut target, itt, Some(Ttt(2)), b"b");
    target.assert_fault();
}

fn async_message(target: &mut Target, event: AsyncEvent, data: &[u8]) {
    let header = AsyncMessage {
        lun: 0,
        serials: target.next_serials(),
        event,
        vendor_code: 0,
        parameters: [0, 1, 2],
        data_length: data.len() as u32,
    };
    target.say(&header, data);
}

#[test]
fn an_asynchronous_message_ends_the_session_or_is_ignored() {
    for event in [
        AsyncEvent::LogoutRequest,
        AsyncEvent::DropConnection,
        AsyncEvent::DropSession,
        AsyncEvent::Negotiate,
    ] {
        let mut target = Target::new(Offer::default());
        async_message(&mut target, event, &[]);
        assert_eq!(target.assert_fault(), Fault::Asked(event));
    }
    let mut target = Target::new(Offer::default());
    for event in [AsyncEvent::Scsi, AsyncEvent::Vendor] {
        async_message(&mut target, event, &[0, 2, 0x70, 0]);
    }
    let task = target.submit(Payload::None, 1);
    // With the StatSN that comes after both.
    target.hear();
    target.say_good(task);
    assert_eq!(target.seen.take(), [(1, GOOD)]);
}

fn reject(target: &mut Target, header: &impl Header) {
    let mut bytes = [0; 48];
    weir_iscsi::writer::Writer::default().header(&mut bytes, header);
    let reject = Reject {
        reason: RejectReason::CommandNotSupported,
        serials: target.next_serials(),
        data_sn: Serial(0),
        data_length: 48,
    };
    target.say(&reject, &bytes);
}

#[test]
fn a_rejected_ping_is_answered_and_a_rejected_command_ends_the_connection() {
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_nop(1));
    let (_, Pdu::NopOut(ping)) = only(&mut target) else {
        panic!("a ping");
    };
    reject(&mut target, &ping);
    let reason = RejectReason::CommandNotSupported;
    assert_eq!(target.seen.take(), [(1, Answer::Rejected(reason))]);
    target.submit(Payload::None, 2);
    let Pdu::ScsiCommand(command) = target.hear()[0].0 else {
        panic!("a command");
    };
    reject(&mut target, &command);
    assert_eq!(target.assert_fault(), Fault::Rejected(reason));
    assert_eq!(target.nexus.take_unanswered(), [(2, Exposure::Possible)]);
    // One that does not say of what.
    let mut target = Target::new(Offer::default());
    let header = Reject {
        reason,
        serials: target.next_serials(),
        data_sn: Serial(0),
        data_length: 0,
    };
    target.say(&header, &[]);
    assert_eq!(target.assert_fault(), Fault::Rejected(reason));
}

#[test]
fn tags_of_one_kind_are_not_those_of_another() {
    let mut target = Target::new(Offer::default());
    let task = target.submit(Payload::None, 1);
    target.hear();
    nop_in(&mut target, task, Ttt::RESERVED);
    target.assert_fault();
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_nop(1));
    let (itt, _) = only(&mut target);
    target.say_status(itt, 0, Residual::None);
    target.assert_fault();
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_nop(1));
    let (itt, _) = only(&mut target);
    target.say_function(itt, TaskResponse::Complete);
    target.assert_fault();
    // Before it was sent.
    let mut target = Target::new(Offer::default());
    assert!(target.nexus.submit_nop(1));
    let (itt, _) = only(&mut target);
    nop_in(&mut target, itt, Ttt::RESERVED);
    assert!(target.nexus.submit_nop(2));
    let next = Itt(itt.0 + 16);
    nop_in(&mut target, next, Ttt::RESERVED);
    target.assert_fault();
    assert_eq!(target.seen.take(), [(1, Answer::Nop)]);
}
