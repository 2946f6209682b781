//! Tests of channels, on replies that a server's side writes.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_memory::View;

use super::*;

const SESSION: SessionId = SessionId([7; 16]);
const VERIFIER: [u8; 8] = *b"verifier";

/// Data and answers of requests.
#[derive(Default)]
struct Seen {
    data: RefCell<BTreeMap<u64, Vec<u8>>>,
    answers: RefCell<Vec<(u64, Answer)>>,
}

impl Commands<Answer> for Seen {
    fn data(&self, user: u64, offset: u32, bytes: &[u8]) {
        let mut all = self.data.borrow_mut();
        let data = all.entry(user).or_default();
        assert_eq!(data.len(), offset as usize, "data comes in order");
        data.extend_from_slice(bytes);
    }

    fn answer(&self, user: u64, answer: Answer) {
        self.answers.borrow_mut().push((user, answer));
    }
}

fn table(slots: u32) -> Arc<Table> {
    let table = Arc::<Table>::default();
    table.begin(SESSION, slots);
    table
}

fn channel(table: &Arc<Table>, slots: Range<u32>) -> Channel {
    let mut channel = Channel::new(&Credential::None, Some(2));
    channel.take_share(Share {
        table: Arc::clone(table),
        session: SESSION,
        highest: 63,
        slots,
    });
    let handle = FileHandle::new(b"a handle").expect("it has bytes");
    channel.set_file((handle, StateId::ANONYMOUS));
    channel
}

fn channel_of_3(requests: u16) -> Channel {
    let mut channel = Channel::new(&Credential::None, None);
    channel.make_room(requests);
    let handle = FileHandle::new(b"a handle").expect("it has bytes");
    channel.set_file((handle, StateId::ANONYMOUS));
    channel
}

/// Sends all there is: the calls' numbers.
fn sent(channel: &mut Channel) -> Vec<u32> {
    let mut gather = Gather::new();
    channel.transmit(&mut gather);
    let bytes: Vec<u8> = gather.slices().flat_map(<[u8]>::to_vec).collect();
    let mut rest = &bytes[..];
    let mut numbers = Vec::new();
    while let Some((mark, record)) = rest.split_first_chunk() {
        let fragment = Fragment::parse(*mark);
        assert!(fragment.is_last);
        let (call, after) = record.split_at(fragment.length as usize);
        let mut reader = Reader::new(call);
        let parsed = Call::parse(&mut reader).expect("a call");
        let version = match channel.minor_version {
            Some(_) => (4, 1),
            None => (3, parsed.procedure),
        };
        assert_eq!(parsed.program, NFS_PROGRAM);
        assert_eq!((parsed.version, parsed.procedure), version);
        if channel.minor_version.is_none() {
            let procedure = Procedure::from_value(parsed.procedure);
            let arguments = v3::Arguments::parse(procedure, &mut reader);
            assert!(arguments.is_ok_and(|arguments| arguments.is_some()));
            assert_eq!(reader.remaining(), 0);
        }
        numbers.push(parsed.xid);
        rest = after;
    }
    numbers
}

/// The reply to a request: its SEQUENCE and PUTFH go well.
fn reply(
    xid: u32,
    operation: OperationNumber,
    status: Status,
    write: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    let mut writer = Writer::new();
    Reply::Success.write(xid, &mut writer);
    writer.u32(status.value());
    writer.opaque(&[]);
    writer.u32(3);
    writer.u32(OperationNumber::Sequence.value());
    writer.u32(0);
    writer.fixed(&SESSION.0);
    for word in [1, 0, 63, 63, 0] {
        writer.u32(word);
    }
    writer.u32(OperationNumber::Putfh.value());
    writer.u32(0);
    writer.u32(operation.value());
    writer.u32(status.value());
    write(&mut writer);
    writer.into_bytes()
}

/// The same in version 3, with the file's attributes where they are told.
fn reply_of_3(
    xid: u32,
    (status, is_told, is_change): (Status, bool, bool),
    write: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    let mut writer = Writer::new();
    Reply::Success.write(xid, &mut writer);
    writer.u32(status.value());
    if is_change {
        writer.bool(is_told);
        writer.raw(&[0; 24][..if is_told { 24 } else { 0 }]);
    }
    writer.bool(is_told);
    writer.raw(&[0; v3::ATTRIBUTES_BYTES][..if is_told { v3::ATTRIBUTES_BYTES } else { 0 }]);
    write(&mut writer);
    writer.into_bytes()
}

fn write_read_of_3(writer: &mut Writer, data: &[u8]) {
    writer.u32(data.len() as u32);
    write_read(writer, data);
}

/// A record in fragments of so many bytes.
fn record(bytes: &[u8], fragment: usize) -> Vec<u8> {
    let count = bytes.len().div_ceil(fragment);
    let mark = |(index, part): (usize, &[u8])| {
        let fragment = Fragment {
            length: part.len() as u32,
            is_last: index + 1 == count,
        };
        [&fragment.to_bytes()[..], part].concat()
    };
    bytes.chunks(fragment).enumerate().flat_map(mark).collect()
}

fn read(offset: u64, count: u32) -> Request {
    Request::Read { offset, count }
}

fn write(is_durable: bool) -> Request {
    Request::Write {
        offset: 0,
        is_durable,
        data: Views::from_iter([View::copy_of(&[5; 512])]),
    }
}

fn write_read(writer: &mut Writer, data: &[u8]) {
    writer.bool(false);
    writer.opaque(data);
}

fn write_written(writer: &mut Writer, bytes: u32, how: u32) {
    writer.u32(bytes);
    writer.u32(how);
    writer.fixed(&VERIFIER);
}

#[test]
fn answers_come_in_whatever_pieces() {
    use OperationNumber as Number;
    let data: Vec<u8> = (0..9001u32).map(|byte| byte as u8).collect();
    for fragment in [1, 7, 104, 4096, 1 << 20] {
        for piece in [1, 3, 104, 5000, 1 << 20] {
            let mut channel = channel(&table(64), 2..9);
            channel.submit(read(0, 9001), 1);
            channel.submit(write(false), 2);
            channel.submit(Request::Commit, 3);
            channel.submit(read(1, 1), 4);
            channel.submit(read(1 << 40, 4096), 5);
            channel.submit(write(true), 6);
            assert_eq!(channel.room(), 1);
            let xids = sent(&mut channel);
            let replies = [
                reply(xids[1], Number::Write, Status::Ok, |out| {
                    write_written(out, 512, 0)
                }),
                reply(xids[0], Number::Read, Status::Ok, |out| {
                    write_read(out, &data)
                }),
                reply(xids[3], Number::Read, Status::Io, |_| {}),
                reply(xids[2], Number::Commit, Status::Ok, |out| {
                    out.fixed(&VERIFIER)
                }),
                reply(xids[5], Number::Write, Status::Ok, |out| {
                    write_written(out, 512, 2)
                }),
                reply(xids[4], Number::Read, Status::Ok, |out| {
                    write_read(out, &[])
                }),
            ];
            let stream: Vec<u8> = replies
                .iter()
                .flat_map(|reply| record(reply, fragment))
                .collect();
            let seen = Seen::default();
            stream
                .chunks(piece)
                .for_each(|piece| channel.receive(piece, &seen));
            assert_eq!(
                channel.fault(),
                None,
                "fragments of {fragment}, pieces of {piece}"
            );
            let written = |is_unstable| Answer::Written {
                bytes: 512,
                is_unstable,
                verifier: VERIFIER,
            };
            let expected = [
                (2, written(true)),
                (1, Answer::Read(9001)),
                (4, Answer::Failed(Status::Io)),
                (3, Answer::Committed(VERIFIER)),
                (6, written(false)),
                (5, Answer::Read(0)),
            ];
            assert_eq!(*seen.answers.borrow(), expected);
            assert_eq!(seen.data.borrow().get(&1), Some(&data));
            assert_eq!((channel.room(), seen.data.borrow().len()), (7, 1));
        }
    }
}

#[test]
fn answers_of_version_3_come_in_whatever_pieces() {
    let data: Vec<u8> = (0..9001u32).map(|byte| byte as u8).collect();
    for is_told in [false, true] {
        for (fragment, piece) in [(1, 1), (7, 5000), (44, 3), (4096, 128), (1 << 20, 1 << 20)] {
            let mut channel = channel_of_3(6);
            channel.submit(read(0, 9001), 1);
            channel.submit(write(true), 2);
            channel.submit(Request::Commit, 3);
            channel.submit(read(1, 1), 4);
            channel.submit(read(1 << 40, 4096), 5);
            channel.submit(read(2, 4096), 6);
            assert_eq!(channel.room(), 0);
            let xids = sent(&mut channel);
            let (read, change) = ((Status::Ok, is_told, false), (Status::Ok, is_told, true));
            let replies = [
                reply_of_3(xids[1], change, |out| write_written(out, 512, 2)),
                reply_of_3(xids[0], read, |out| write_read_of_3(out, &data)),
                reply_of_3(xids[3], (Status::Io, is_told, false), |_| {}),
                reply_of_3(xids[2], change, |out| out.fixed(&VERIFIER)),
                reply_of_3(xids[4], read, |out| write_read_of_3(out, &[])),
                // Less than there is room for a head of version 4.
                reply_of_3(xids[5], read, |out| write_read_of_3(out, &[7])),
            ];
            let records = replies.iter().flat_map(|reply| record(reply, fragment));
            let stream: Vec<u8> = records.collect();
            let seen = Seen::default();
            let pieces = stream.chunks(piece);
            pieces.for_each(|piece| channel.receive(piece, &seen));
            assert_eq!(channel.fault(), None, "{fragment}, {piece}");
            let written = Answer::Written {
                bytes: 512,
                is_unstable: false,
                verifier: VERIFIER,
            };
            let expected = [
                (2, written),
                (1, Answer::Read(9001)),
                (4, Answer::Failed(Status::Io)),
                (3, Answer::Committed(VERIFIER)),
                (5, Answer::Read(0)),
                (6, Answer::Read(1)),
            ];
            assert_eq!(*seen.answers.borrow(), expected);
            assert_eq!(seen.data.borrow().get(&1), Some(&data));
            assert_eq!(seen.data.borrow().get(&6), Some(&vec![7]));
            assert_eq!(channel.room(), 6);
        }
    }
}

#[test]
fn what_was_not_answered_leaves_its_slot_uncertain() {
    let table = table(8);
    let mut channel = channel(&table, 2..6);
    channel.submit(read(0, 512), 1);
    channel.submit(write(false), 2);
    let xids = sent(&mut channel);
    channel.submit(write(false), 3);
    let seen = Seen::default();
    let answered = reply(xids[0], OperationNumber::Read, Status::Ok, |out| {
        write_read(out, &[1; 512])
    });
    channel.receive(&record(&answered, 4096), &seen);
    let unanswered = channel.take_unanswered();
    assert_eq!(unanswered, [(2, Exposure::Possible), (3, Exposure::Never)]);
    let slots = table.get(SESSION, 0, 8);
    let uncertain: Vec<bool> = slots.iter().map(|slot| slot.is_uncertain).collect();
    assert_eq!(
        uncertain,
        [false, false, false, true, false, false, false, false]
    );
    let sequences: Vec<u32> = slots.iter().map(|slot| slot.sequence).collect();
    assert_eq!(sequences, [1, 1, 2, 1, 1, 1, 1, 1]);
    // A new one does without it.
    assert_eq!(self::channel(&table, 2..6).room(), 3);
}

#[test]
fn a_request_that_sequence_refuses_takes_no_number() {
    let table = table(8);
    let mut channel = channel(&table, 0..1);
    channel.submit(Request::Commit, 1);
    let xids = sent(&mut channel);
    let mut writer = Writer::new();
    Reply::Success.write(xids[0], &mut writer);
    writer.u32(Status::Delay.value());
    writer.opaque(&[]);
    for word in [1, OperationNumber::Sequence.value(), Status::Delay.value()] {
        writer.u32(word);
    }
    let seen = Seen::default();
    channel.receive(&record(writer.bytes(), 4096), &seen);
    assert_eq!(*seen.answers.borrow(), [(1, Answer::Failed(Status::Delay))]);
    assert!(channel.take_unanswered().is_empty());
    let slot = table.get(SESSION, 0, 1)[0];
    assert_eq!((slot.sequence, slot.is_uncertain), (1, false));
}

#[test]
fn what_no_server_sends_ends_the_connection() {
    use OperationNumber as Number;
    type Make = fn(u32) -> Vec<u8>;
    let cases: [(Request, Make, Fault); 6] = [
        (
            read(0, 512),
            |xid| {
                reply(xid, Number::Read, Status::Ok, |out| {
                    write_read(out, &[0; 516])
                })
            },
            Fault::TooMuchData(516),
        ),
        (
            read(0, 512),
            |xid| {
                let mut bytes = reply(xid, Number::Read, Status::Ok, |out| {
                    write_read(out, &[0; 512])
                });
                bytes.truncate(300);
                bytes
            },
            Fault::Length,
        ),
        (
            read(0, 512),
            |xid| {
                let mut bytes = reply(xid, Number::Read, Status::Ok, |out| {
                    write_read(out, &[0; 512])
                });
                bytes.extend([0; 4]);
                bytes
            },
            Fault::Length,
        ),
        (
            Request::Commit,
            |xid| {
                reply(xid + 1, Number::Commit, Status::Ok, |out| {
                    out.fixed(&VERIFIER)
                })
            },
            Fault::Unasked(0x0001_0001),
        ),
        (
            Request::Commit,
            |xid| reply(xid, Number::Commit, Status::Ok, |out| out.raw(&[0; 70_000])),
            Fault::TooLong,
        ),
        (
            write(true),
            |xid| {
                reply(xid, Number::Write, Status::Ok, |out| {
                    write_written(out, 512, 0)
                })
            },
            Fault::LessStable,
        ),
    ];
    for (request, make, fault) in cases {
        let mut channel = channel(&table(8), 0..1);
        channel.submit(request, 1);
        let xid = sent(&mut channel)[0];
        channel.receive(&record(&make(xid), 1 << 20), &Seen::default());
        assert_eq!(channel.fault(), Some(&fault));
        assert_eq!(channel.room(), 0);
    }
}

proptest! {
    /// Whatever comes, no more data is handed on than was asked for, and each request is answered once at most.
    #[test]
    fn any_bytes_are_answers_or_faults(
        change in proptest::collection::vec((0usize..400, any::<u8>()), 0..6),
        junk in proptest::collection::vec(any::<u8>(), 0..64),
        piece in 1usize..600,
        cut in 0usize..800,
        is_of_3 in any::<bool>(),
        is_told in any::<bool>(),
    ) {
        use OperationNumber as Number;
        let mut channel = match is_of_3 {
            false => channel(&table(8), 0..3),
            true => channel_of_3(3),
        };
        channel.submit(read(0, 256), 1);
        channel.submit(write(false), 2);
        channel.submit(Request::Commit, 3);
        let xids = sent(&mut channel);
        let replies = match is_of_3 {
            false => [
                reply(xids[0], Number::Read, Status::Ok, |out| write_read(out, &[9; 256])),
                reply(xids[1], Number::Write, Status::Ok, |out| write_written(out, 512, 0)),
                reply(xids[2], Number::Commit, Status::Ok, |out| out.fixed(&VERIFIER)),
            ],
            true => {
                let (read, change) = ((Status::Ok, is_told, false), (Status::Ok, is_told, true));
                [
                    reply_of_3(xids[0], read, |out| write_read_of_3(out, &[9; 256])),
                    reply_of_3(xids[1], change, |out| write_written(out, 512, 0)),
                    reply_of_3(xids[2], change, |out| out.fixed(&VERIFIER)),
                ]
            }
        };
        let mut stream: Vec<u8> = replies.iter().flat_map(|reply| record(reply, 200)).collect();
        for (at, byte) in change {
            stream[at] = byte;
        }
        stream.truncate(cut.max(1));
        stream.extend(junk);
        let seen = Seen::default();
        stream.chunks(piece).for_each(|piece| channel.receive(piece, &seen));
        let data = seen.data.borrow();
        prop_assert!(data.iter().all(|(&user, data)| user == 1 && data.len() <= 256));
        let answered = seen.answers.borrow().len();
        prop_assert_eq!(answered + channel.take_unanswered().len(), 3);
    }
}
