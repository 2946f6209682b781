//! Writes: what goes with the command, what follows, what is asked for.

use proptest::prelude::*;
use weir_initiator::wire::{Exposure, Payload, Wire};
use weir_iscsi::negotiation::{DigestPolicy, Offer, Parameters};
use weir_iscsi::pdu::{DataOut, Pdu, Residual, ScsiCommand};
use weir_iscsi::{Itt, Ttt};
use weir_memory::View;

use super::super::Answer;
use super::target::{GOOD, LUN, SLOTS, Target, data_out, out};

/// An offer of a target that takes no more than these.
fn offer(immediate_data: bool, initial_r2t: bool) -> Offer {
    Offer {
        immediate_data,
        initial_r2t,
        max_recv_data_segment_length: 1024,
        first_burst_length: 4096,
        max_burst_length: 8192,
        max_outstanding_r2t: 2,
        ..Offer::default()
    }
}

/// Immediate bytes, F, and unsolicited bytes of a write of so many bytes.
fn unasked(target: &mut Target, length: usize) -> (usize, bool, usize) {
    let (payload, data) = out(length);
    let itt = target.submit(payload, 1);
    let heard = target.hear();
    let Pdu::ScsiCommand(ScsiCommand {
        is_final, write, ..
    }) = heard[0].0
    else {
        panic!("{:?} is no command", heard[0].0);
    };
    assert!(write);
    let immediate = heard[0].1.len();
    let mut came = heard[0].1.clone();
    for (number, (pdu, part)) in heard[1..].iter().enumerate() {
        let header = data_out(pdu);
        assert_eq!((header.itt, header.ttt), (itt, Ttt::RESERVED));
        assert_eq!(header.data_sn.0 as usize, number);
        assert_eq!(header.buffer_offset as usize, came.len());
        assert_eq!(header.is_final, number + 2 == heard.len());
        came.extend_from_slice(part);
    }
    assert_eq!(came, data[..came.len()]);
    // The rest, so that it ends.
    let (mut r2t_sn, mut at) = (0, came.len());
    while at < length {
        let more = (length - at).min(8192);
        target.say_r2t(itt, r2t_sn, at as u32, more as u32);
        r2t_sn += 1;
        at += more;
        target.hear();
    }
    target.say_good(itt);
    assert_eq!(target.seen.take(), [(1, GOOD)]);
    (immediate, is_final, came.len() - immediate)
}

#[test]
fn what_is_sent_unasked_is_what_was_agreed() {
    // Immediate bytes and unsolicited bytes of writes of these lengths, for ImmediateData and InitialR2T.
    let lengths = [1, 1023, 1024, 1025, 4095, 4096, 4097, 20_000];
    type Unasked = fn(usize) -> (usize, usize);
    let cases: [(bool, bool, Unasked); 4] = [
        (true, true, |length| (length.min(1024), 0)),
        (true, false, |length| {
            let immediate = length.min(1024);
            (immediate, length.min(4096) - immediate)
        }),
        (false, true, |_| (0, 0)),
        (false, false, |length| (0, length.min(4096))),
    ];
    for (immediate_data, initial_r2t, expected) in cases {
        let mut target = Target::new(offer(immediate_data, initial_r2t));
        for length in lengths {
            let (immediate, unsolicited) = expected(length);
            assert_eq!(
                unasked(&mut target, length),
                (immediate, unsolicited == 0, unsolicited),
                "{length} bytes, ImmediateData={immediate_data}, InitialR2T={initial_r2t}"
            );
        }
        assert_eq!(target.nexus.room(), usize::from(SLOTS));
    }
}

#[test]
fn what_is_asked_for_is_sent_in_order_and_in_turns() {
    let mut target = Target::new(offer(false, true));
    let (payload, data) = out(6000);
    let first = target.submit(payload, 1);
    let (payload, _) = out(2000);
    let second = target.submit(payload, 2);
    target.hear();
    target.say_r2t(first, 0, 0, 2048);
    target.say_r2t(first, 1, 2048, 3952);
    target.say_r2t(second, 0, 0, 2000);
    let heard = target.hear();
    let order: Vec<(Itt, u32, u32, bool)> = heard
        .iter()
        .map(|(pdu, _)| {
            let header = data_out(pdu);
            assert_eq!(header.lun, LUN);
            (header.itt, header.ttt.0, header.data_sn.0, header.is_final)
        })
        .collect();
    assert_eq!(
        order,
        [
            (first, 0x7000, 0, false),
            (second, 0x7000, 0, false),
            (first, 0x7000, 1, true),
            (second, 0x7000, 1, true),
            (first, 0x7001, 0, false),
            (first, 0x7001, 1, false),
            (first, 0x7001, 2, false),
            (first, 0x7001, 3, true),
        ]
    );
    let of_first = heard
        .iter()
        .filter(|(pdu, _)| data_out(pdu).itt == first)
        .flat_map(|(_, data)| data.clone());
    assert_eq!(of_first.collect::<Vec<u8>>(), data);
    target.say_good(second);
    target.say_good(first);
    assert_eq!(target.seen.take(), [(2, GOOD), (1, GOOD)]);
}

#[test]
fn unsolicited_data_follows_its_command_before_the_next() {
    let mut target = Target::new(offer(true, false));
    let first = target.submit(out(4096).0, 1);
    let second = target.submit(out(4096).0, 2);
    let order: Vec<Itt> = target
        .hear()
        .iter()
        .map(|(pdu, _)| match pdu {
            Pdu::ScsiCommand(command) => command.itt,
            other => data_out(other).itt,
        })
        .collect();
    assert_eq!(order, [[first; 4], [second; 4]].concat());
}

#[test]
fn what_is_owed_is_sent_after_the_answer() {
    let mut target = Target::new(offer(false, true));
    let (payload, data) = out(4000);
    let itt = target.submit(payload, 1);
    target.hear();
    target.say_r2t(itt, 0, 0, 4000);
    target.say_status(itt, 2, Residual::None);
    assert_eq!(target.seen.take().len(), 1);
    assert_eq!(
        target.nexus.room(),
        usize::from(SLOTS) - 1,
        "the target may wait for the data"
    );
    let heard: Vec<u8> = target
        .hear()
        .into_iter()
        .flat_map(|(_, data)| data)
        .collect();
    assert_eq!(heard, data);
    assert_eq!(target.nexus.room(), usize::from(SLOTS));
    // It is not among those that are lost with the connection, and is not answered again.
    let itt = target.submit(out(4000).0, 2);
    target.hear();
    target.say_r2t(itt, 0, 0, 4000);
    target.say_status(itt, 2, Residual::None);
    target.say_status(itt, 2, Residual::None);
    assert_eq!(target.seen.take().len(), 1);
    target.assert_fault();
    assert_eq!(target.nexus.take_unanswered(), []);
}

#[test]
fn a_write_has_not_succeeded_before_its_data_was_sent() {
    let mut target = Target::new(offer(false, true));
    let owed = target.submit(out(4000).0, 1);
    let unasked = target.submit(out(4000).0, 2);
    let part = target.submit(out(4000).0, 3);
    target.hear();
    target.say_r2t(owed, 0, 0, 4000);
    target.say_good(owed);
    target.say_good(unasked);
    target.say_r2t(part, 0, 0, 3000);
    target.hear();
    let residual = Residual::Underflow(1000);
    target.say_status(part, 0, residual);
    let part = Answer::Scsi {
        status: 0,
        sense: None,
        residual,
    };
    assert_eq!(
        target.seen.take(),
        [(1, Answer::Damaged), (2, Answer::Damaged), (3, part)]
    );
}

#[test]
fn exposure_tells_what_may_have_been_done() {
    let mut target = Target::new(offer(false, true));
    target.submit(Payload::None, 1);
    let asked = target.submit(out(4000).0, 2);
    target.submit(out(4000).0, 3);
    target.hear();
    target.say_r2t(asked, 0, 0, 100);
    target.hear();
    target.submit(Payload::None, 4);
    assert!(target.nexus.submit_nop(5));
    let mut unanswered = target.nexus.take_unanswered();
    unanswered.sort_by_key(|(user, _)| *user);
    assert_eq!(
        unanswered,
        [
            (1, Exposure::Possible),
            (2, Exposure::Possible),
            // Nothing of its data was sent, so there is nothing that could have been written.
            (3, Exposure::Never),
            (4, Exposure::Never),
            (5, Exposure::Never)
        ]
    );
    let mut target = Target::new(offer(true, true));
    target.submit(out(4000).0, 1);
    target.hear();
    let unanswered = target.nexus.take_unanswered();
    assert_eq!(unanswered, [(1, Exposure::Possible)], "immediate data was");
}

/// One write as a target sees it.
struct Write {
    itt: Itt,
    length: usize,
    data: Vec<u8>,
    came: Vec<u8>,
    /// Bytes that are coming unasked, or that were asked for.
    asked: usize,
    /// Ends of the R2Ts whose data is awaited.
    awaited: Vec<usize>,
    r2t_sn: u32,
    data_sn: u32,
    unsolicited: bool,
}

impl Write {
    fn command(&mut self, command: &ScsiCommand, data: &[u8], agreed: &Parameters) {
        assert_eq!(command.expected_data_length as usize, self.length);
        let burst = self.length.min(agreed.first_burst_length as usize);
        assert!(data.is_empty() || agreed.immediate_data);
        self.came.extend_from_slice(data);
        self.unsolicited = !command.is_final;
        assert!(command.is_final || !agreed.initial_r2t);
        assert!(data.len() <= burst);
        self.asked = if self.unsolicited { burst } else { data.len() };
    }

    fn data_out(&mut self, header: &DataOut, data: &[u8]) {
        assert_eq!(header.buffer_offset as usize, self.came.len());
        assert_eq!(header.data_sn.0, self.data_sn);
        assert!(!data.is_empty());
        self.came.extend_from_slice(data);
        let end = if header.ttt == Ttt::RESERVED {
            assert!(self.unsolicited);
            self.asked
        } else {
            self.awaited[0]
        };
        assert!(self.came.len() <= end);
        assert_eq!(header.is_final, self.came.len() == end);
        self.data_sn += 1;
        if header.is_final {
            self.data_sn = 0;
            if header.ttt == Ttt::RESERVED {
                self.unsolicited = false;
            } else {
                self.awaited.remove(0);
            }
        }
    }
}

/// Carries out writes of these lengths at once, with the data cut into pieces of memory of `piece` bytes.
fn write_all(target: &mut Target, lengths: &[usize], piece: usize) {
    let agreed = target.agreed.as_ref().unwrap().parameters;
    let mut writes: Vec<Write> = Vec::new();
    for (user, &length) in lengths.iter().enumerate() {
        let (_, data) = out(length);
        let views = data.chunks(piece).map(View::copy_of).collect();
        let itt = target.submit(Payload::Out(views), user as u64);
        writes.push(Write {
            itt,
            length,
            data,
            came: Vec::new(),
            asked: 0,
            awaited: Vec::new(),
            r2t_sn: 0,
            data_sn: 0,
            unsolicited: false,
        });
    }
    loop {
        let heard = target.hear();
        if heard.is_empty() {
            break;
        }
        for (pdu, data) in &heard {
            let of = |itt| writes.iter().position(|write| write.itt == itt).unwrap();
            match pdu {
                Pdu::ScsiCommand(command) => {
                    let index = of(command.itt);
                    writes[index].command(command, data, &agreed);
                }
                other => {
                    let header = data_out(other);
                    let index = of(header.itt);
                    writes[index].data_out(header, data);
                }
            }
        }
        for write in &mut writes {
            while write.asked < write.length
                && write.awaited.len() < agreed.max_outstanding_r2t as usize
            {
                let more = (write.length - write.asked).min(agreed.max_burst_length as usize);
                target.say_r2t(write.itt, write.r2t_sn, write.asked as u32, more as u32);
                write.r2t_sn += 1;
                write.asked += more;
                write.awaited.push(write.asked);
            }
        }
        assert_eq!(target.nexus.fault(), None);
    }
    for (user, write) in writes.iter().enumerate() {
        assert!(write.came == write.data, "the data came whole and in order");
        target.say_good(write.itt);
        assert_eq!(target.seen.take(), [(user as u64, GOOD)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was agreed, and however bytes and memory are cut, data arrives whole and in order.
    #[test]
    fn data_arrives_whole(
        immediate_data in any::<bool>(),
        initial_r2t in any::<bool>(),
        digests in any::<bool>(),
        first_burst in 512u32..3000,
        burst in 512u32..3000,
        segment in 512u32..3000,
        outstanding in 1u32..5,
        lengths in prop::collection::vec((0usize..4, -1isize..2, 0usize..9000), 1..4),
        piece in 1usize..2000,
        cut in 0usize..60,
    ) {
        let policy = if digests { DigestPolicy::Required } else { DigestPolicy::Refused };
        let max_burst_length = burst.max(first_burst);
        let mut target = Target::new(Offer {
            immediate_data,
            initial_r2t,
            header_digest: policy,
            data_digest: policy,
            first_burst_length: first_burst,
            max_burst_length,
            max_recv_data_segment_length: segment,
            max_outstanding_r2t: outstanding,
            ..Offer::default()
        });
        target.cut = cut;
        // Around the bursts and the segment, or any.
        let lengths: Vec<usize> = lengths
            .iter()
            .map(|(base, step, any)| {
                let base = [first_burst, max_burst_length, segment, *any as u32 + 1][*base];
                (base as isize + step) as usize
            })
            .filter(|length| *length > 0)
            .collect();
        write_all(&mut target, &lengths, piece);
        prop_assert_eq!(target.nexus.room(), usize::from(SLOTS));
    }
}
