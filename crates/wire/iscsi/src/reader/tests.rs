//! Tests of the reader: the same events whatever pieces the bytes come in, and every error that ends a connection.

use super::*;
use crate::pdu::{
    DataIn, DataOut, LoginRequest, NopIn, NopOut, Reject, ScsiCommand, ScsiResponse, TextRequest,
    put_bidirectional_read_length, put_extended_cdb,
};
use crate::writer::{FULL_HEADER_SIZE_MAX, HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};
use proptest::prelude::*;

const MAXIMUM: u32 = 65536;

fn parameters(header_digest: bool, data_digest: bool) -> ReceiveParameters {
    ReceiveParameters {
        header_digest,
        data_digest,
        data_segment_max: MAXIMUM,
    }
}

fn established(side: Side, parameters: ReceiveParameters) -> Reader {
    let mut reader = Reader::new(side);
    reader.establish(parameters);
    reader
}

const fn writer(parameters: ReceiveParameters) -> Writer {
    Writer {
        header_digest: parameters.header_digest,
        data_digest: parameters.data_digest,
    }
}

/// A PDU of the full feature phase with its data, as sent.
#[derive(Debug, Clone)]
struct Sent {
    pdu: Pdu,
    additional: Vec<u8>,
    data: Vec<u8>,
}

fn write(writer: &Writer, sent: &Sent) -> Vec<u8> {
    let mut bytes = vec![0; FULL_HEADER_SIZE_MAX];
    let additional = &sent.additional;
    let length = match &sent.pdu {
        Pdu::ScsiCommand(command) => writer.header_with_additional(&mut bytes, command, additional),
        Pdu::DataOut(header) => writer.header(&mut bytes, header),
        Pdu::NopOut(header) => writer.header(&mut bytes, header),
        Pdu::TextRequest(header) => writer.header(&mut bytes, header),
        Pdu::DataIn(header) => writer.header(&mut bytes, header),
        Pdu::ScsiResponse(header) => writer.header(&mut bytes, header),
        other => panic!("{other:?} is not sent here"),
    };
    bytes.truncate(length);
    bytes.extend(&sent.data);
    let mut trailer = [0; TRAILER_SIZE_MAX];
    let digest = Digest::of(&sent.data);
    let length = writer.trailer(&mut trailer, sent.data.len() as u32, digest);
    bytes.extend(&trailer[..length]);
    bytes
}

/// A PDU or an end that was read, with the data in one piece.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Pdu(Pdu),
    Data(Vec<u8>),
    End(DataDigest),
    Error(FramingError),
}

fn expected(parameters: ReceiveParameters, sent: &Sent) -> Vec<Seen> {
    let mut seen = vec![Seen::Pdu(sent.pdu)];
    if !sent.data.is_empty() {
        let digest = if parameters.data_digest {
            DataDigest::Matches
        } else {
            DataDigest::Absent
        };
        seen.extend([Seen::Data(sent.data.clone()), Seen::End(digest)]);
    }
    seen
}

fn add_data(seen: &mut Vec<Seen>, offset: u32, bytes: &[u8]) {
    match seen.last_mut() {
        Some(Seen::Data(data)) => {
            assert_eq!(data.len(), offset as usize);
            data.extend(bytes);
        }
        _ => {
            assert_eq!(offset, 0);
            seen.push(Seen::Data(bytes.to_vec()));
        }
    }
}

/// Feeds one piece until the reader has nothing more to say of it.
fn drain(reader: &mut Reader, mut piece: &[u8], seen: &mut Vec<Seen>) -> Result<(), FramingError> {
    loop {
        let Fed { consumed, event } = reader.feed(piece)?;
        let (taken, rest) = piece.split_at(consumed);
        piece = rest;
        match event {
            Some(Event::Pdu(pdu)) => seen.push(Seen::Pdu(pdu)),
            Some(Event::Data { offset }) => add_data(seen, offset, taken),
            Some(Event::DataEnd { digest }) => seen.push(Seen::End(digest)),
            None => {
                assert!(rest.is_empty(), "no event, and bytes are left");
                return Ok(());
            }
        }
    }
}

/// Reads bytes in pieces of these lengths, the last again and again.
fn read(mut reader: Reader, bytes: &[u8], pieces: &[usize]) -> Vec<Seen> {
    let mut seen = vec![];
    let mut rest = bytes;
    let mut pieces = pieces.iter().copied();
    while !rest.is_empty() {
        let length = pieces.next().unwrap_or(rest.len()).min(rest.len());
        let (piece, after) = rest.split_at(length);
        rest = after;
        if let Err(error) = drain(&mut reader, piece, &mut seen) {
            seen.push(Seen::Error(error));
            assert_eq!(reader.feed(&[]), Err(error), "an error is final");
            return seen;
        }
    }
    seen
}

/// Reads as a caller does that receives data straight into its place.
fn read_landing(mut reader: Reader, bytes: &[u8], pieces: &[usize]) -> Vec<Seen> {
    let mut seen = vec![];
    let mut rest = bytes;
    let mut pieces = pieces.iter().copied();
    while !rest.is_empty() || reader.wanted() == Wanted::Event {
        let length = pieces.next().unwrap_or(rest.len()).min(rest.len());
        let (offset, length) = match reader.wanted() {
            Wanted::Data(left) => (Some(left), length.min(left as usize)),
            Wanted::Header(wanted) | Wanted::Trailer(wanted) => (None, length.min(wanted)),
            Wanted::Event => (None, 0),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        if let Some(left) = offset {
            let so_far = match seen.last() {
                Some(Seen::Data(data)) => data.len() as u32,
                _ => 0,
            };
            if length > 0 {
                add_data(&mut seen, so_far, piece);
            }
            if reader.has_data_digest() {
                reader.data_received(piece);
            } else {
                reader.data_received_unseen(length);
            }
            if length == left as usize && reader.end_data_without_trailer() {
                seen.push(Seen::End(DataDigest::Absent));
            }
            continue;
        }
        if let Err(error) = drain(&mut reader, piece, &mut seen) {
            seen.push(Seen::Error(error));
            return seen;
        }
    }
    seen
}

fn header() -> impl Strategy<Value = BasicHeader> {
    proptest::collection::vec(any::<u8>(), BASIC_HEADER_SIZE).prop_map(|bytes| array_at(&bytes, 0))
}

fn additional() -> impl Strategy<Value = Vec<u8>> {
    (
        proptest::option::of(1_usize..=244),
        proptest::option::of(any::<u32>()),
    )
        .prop_map(|(cdb, bidirectional)| {
            let mut bytes = [0; 300];
            let mut end = 0;
            if let Some(length) = cdb {
                end += put_extended_cdb(&mut bytes, &[3; 244][..length]);
            }
            if let Some(length) = bidirectional {
                end += put_bidirectional_read_length(&mut bytes[end..], length);
            }
            bytes[..end].to_vec()
        })
}

/// PDUs to a target, some with data, some with Additional Header Segments.
fn requests() -> impl Strategy<Value = Vec<Sent>> {
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    let one =
        (0_u8..4, header(), additional(), data).prop_map(|(kind, bytes, additional, data)| {
            let data_length = data.len() as u32;
            let (pdu, additional) = match kind {
                0 => {
                    let mut command = ScsiCommand::read(&bytes);
                    command.data_length = data_length;
                    command.additional = AdditionalSummary::read(&additional).expect("well formed");
                    (Pdu::ScsiCommand(command), additional)
                }
                1 => {
                    let mut header = DataOut::read(&bytes);
                    header.data_length = data_length;
                    (Pdu::DataOut(header), vec![])
                }
                2 => {
                    let mut header = NopOut::read(&bytes);
                    header.data_length = data_length;
                    (Pdu::NopOut(header), vec![])
                }
                _ => {
                    let mut header = TextRequest::read(&bytes);
                    header.data_length = data_length;
                    (Pdu::TextRequest(header), vec![])
                }
            };
            Sent {
                pdu,
                additional,
                data,
            }
        });
    proptest::collection::vec(one, 1..5)
}

proptest! {
    /// Reads what was sent, in pieces of any size, and data that lands elsewhere.
    #[test]
    fn pieces_make_no_difference(
        sent in requests(),
        header_digest: bool,
        data_digest: bool,
        pieces in proptest::collection::vec(0_usize..120, 0..60),
    ) {
        let parameters = parameters(header_digest, data_digest);
        let writer = writer(parameters);
        let bytes: Vec<u8> = sent.iter().flat_map(|sent| write(&writer, sent)).collect();
        let expected: Vec<Seen> = sent.iter().flat_map(|sent| expected(parameters, sent)).collect();
        let reader = established(Side::Target, parameters);
        prop_assert_eq!(&read(reader.clone(), &bytes, &[bytes.len()]), &expected);
        prop_assert_eq!(&read(reader.clone(), &bytes, &pieces), &expected);
        prop_assert_eq!(&read_landing(reader, &bytes, &pieces), &expected);
    }

    /// Damage anywhere: the same events in pieces as in one, no panic, and no change of what came before it.
    #[test]
    fn damage_is_seen_the_same_in_any_pieces(
        sent in requests(),
        header_digest: bool,
        data_digest: bool,
        place: proptest::sample::Index,
        change in 1_u8..,
        pieces in proptest::collection::vec(0_usize..120, 0..60),
    ) {
        let parameters = parameters(header_digest, data_digest);
        let writer = writer(parameters);
        let written: Vec<Vec<u8>> = sent.iter().map(|sent| write(&writer, sent)).collect();
        let mut bytes = written.concat();
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        let reader = established(Side::Target, parameters);
        let whole = read(reader.clone(), &bytes, &[bytes.len()]);
        prop_assert_eq!(&read(reader.clone(), &bytes, &pieces), &whole);
        prop_assert_eq!(&read_landing(reader, &bytes, &pieces), &whole);
        let mut end = 0;
        let before = sent.iter().zip(&written).take_while(|(_, bytes)| {
            end += bytes.len();
            end <= place
        });
        let before: Vec<Seen> = before.flat_map(|(sent, _)| expected(parameters, sent)).collect();
        prop_assert_eq!(&whole[..before.len()], &before[..]);
    }

    /// Any bytes at all, on either side and in any phase.
    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        target: bool,
        established: bool,
        header_digest: bool,
        data_digest: bool,
        pieces in proptest::collection::vec(0_usize..120, 0..60),
    ) {
        let mut reader = Reader::new(if target { Side::Target } else { Side::Initiator });
        if established {
            reader.establish(parameters(header_digest, data_digest));
        }
        let whole = read(reader.clone(), &bytes, &[bytes.len()]);
        prop_assert_eq!(read(reader, &bytes, &pieces), whole);
    }

    /// Any one damaged bit of a header with a digest ends the connection, and no PDU is believed.
    #[test]
    fn a_damaged_header_ends_the_connection(bit in 0_usize..52 * 8) {
        let parameters = parameters(true, false);
        let mut bytes = [0; HEADER_SIZE_MAX];
        writer(parameters).header(&mut bytes, &DataOut::read(&[9; 48]));
        bytes[bit / 8] ^= 1 << (bit % 8);
        // The damage may announce Additional Header Segments.
        let mut bytes = bytes.to_vec();
        bytes.resize(FULL_HEADER_SIZE_MAX, 0);
        let seen = read(established(Side::Target, parameters), &bytes, &[bytes.len()]);
        let ended = matches!(seen[..], [Seen::Error(FramingError::HeaderDigest { .. })]);
        prop_assert!(ended);
    }
}

/// Not by chance, as above: three pieces, cut at every two places, some of them empty.
#[test]
fn data_is_read_the_same_at_every_two_cuts() {
    let mut header = DataOut::read(&[9; 48]);
    header.data_length = 5;
    let sent = Sent {
        pdu: Pdu::DataOut(header),
        additional: vec![],
        data: vec![1, 2, 3, 4, 5],
    };
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let parameters = parameters(header_digest, data_digest);
        let bytes = write(&writer(parameters), &sent).repeat(2);
        let expected = vec![expected(parameters, &sent); 2].concat();
        let reader = established(Side::Target, parameters);
        for second in 0..=bytes.len() {
            for first in 0..=second {
                let pieces = [first, second - first, bytes.len()];
                let seen = read(reader.clone(), &bytes, &pieces);
                assert_eq!(seen, expected, "{pieces:?}");
            }
        }
    }
}

fn first_error(reader: Reader, bytes: &[u8]) -> FramingError {
    match read(reader, bytes, &[bytes.len()]).last() {
        Some(Seen::Error(error)) => *error,
        other => panic!("{other:?}"),
    }
}

fn request(opcode: u8) -> BasicHeader {
    let mut bytes = [0; BASIC_HEADER_SIZE];
    bytes[0] = opcode;
    bytes
}

#[test]
fn the_login_comes_first_and_once() {
    let plain = parameters(false, false);
    let login = request(0x43);
    let seen = read(Reader::new(Side::Target), &login, &[1, 47]);
    let header = LoginRequest::read(&login);
    assert_eq!(seen, [Seen::Pdu(Pdu::LoginRequest(header))]);
    assert_eq!(
        first_error(Reader::new(Side::Target), &request(0x01)),
        FramingError::BeforeLogin {
            opcode: Opcode::ScsiCommand
        }
    );
    assert_eq!(
        first_error(established(Side::Target, plain), &login),
        FramingError::AfterLogin {
            opcode: Opcode::LoginRequest
        }
    );
    for reader in [Reader::new(Side::Target), established(Side::Target, plain)] {
        assert_eq!(
            first_error(reader, &request(0x23)),
            FramingError::WrongDirection {
                opcode: Opcode::LoginResponse
            }
        );
    }
    let reject = request(0x3f);
    let seen = read(Reader::new(Side::Initiator), &reject, &[48]);
    assert_eq!(seen, [Seen::Pdu(Pdu::Reject(Reject::read(&reject)))]);
}

#[test]
fn an_unknown_opcode_is_a_pdu_of_its_direction() {
    let plain = parameters(false, false);
    let mut bytes = request(0x5d).to_vec();
    bytes[7] = 3;
    bytes.extend([1, 2, 3, 0]);
    let seen = read(established(Side::Target, plain), &bytes, &[20]);
    assert!(matches!(
        seen[..],
        [Seen::Pdu(Pdu::Unknown(_)), Seen::Data(_), Seen::End(_)]
    ));
    let error = first_error(established(Side::Initiator, plain), &bytes);
    assert!(matches!(error, FramingError::WrongDirection { .. }));
}

#[test]
fn data_is_held_to_what_was_declared() {
    let mut bytes = request(0x43);
    bytes[5..8].copy_from_slice(&[0, 0x20, 1]);
    let opcode = Opcode::LoginRequest;
    let (length, maximum) = (8193, 8192);
    assert_eq!(
        first_error(Reader::new(Side::Target), &bytes),
        FramingError::DataTooLong {
            opcode,
            length,
            maximum
        }
    );
    bytes[7] = 0;
    let seen = read(Reader::new(Side::Target), &bytes, &[48]);
    assert!(matches!(seen[..], [Seen::Pdu(Pdu::LoginRequest(_))]));

    let mut bytes = request(0x05);
    bytes[5..8].copy_from_slice(&[1, 0, 1]);
    let mut reader = established(Side::Target, parameters(false, false));
    let error = first_error(reader.clone(), &bytes);
    assert!(matches!(
        error,
        FramingError::DataTooLong { length: 65537, .. }
    ));
    reader.set_data_segment_max(65537);
    assert!(matches!(
        read(reader, &bytes, &[48])[..],
        [Seen::Pdu(Pdu::DataOut(_))]
    ));
}

#[test]
fn additional_headers_belong_to_commands() {
    let plain = parameters(false, false);
    let mut bytes = request(0x05);
    bytes[4] = 2;
    let (opcode, length) = (Opcode::DataOut, 8);
    assert_eq!(
        first_error(established(Side::Target, plain), &bytes),
        FramingError::UnexpectedAdditional { opcode, length }
    );
    let mut bytes = request(0x01).to_vec();
    bytes[4] = 1;
    bytes.extend([0, 9, 1, 0]);
    assert_eq!(
        first_error(established(Side::Target, plain), &bytes),
        FramingError::Additional(AdditionalError::TooLong {
            length: 12,
            left: 4
        })
    );
}

#[test]
fn the_header_is_kept_for_a_reject() {
    let parameters = parameters(true, false);
    let mut reader = established(Side::Target, parameters);
    let mut additional = [0; 8];
    put_bidirectional_read_length(&mut additional, 7);
    let mut command = ScsiCommand::read(&[0x01; 48]);
    command.data_length = 0;
    let mut bytes = [0; 64];
    let length = writer(parameters).header_with_additional(&mut bytes, &command, &additional);
    assert_eq!(length, 60);
    let mut seen = vec![];
    assert!(!reader.is_inside_pdu());
    drain(&mut reader, &bytes[..50], &mut seen).expect("well formed");
    assert!(reader.is_inside_pdu());
    assert_eq!(reader.header(), &bytes[..50]);
    drain(&mut reader, &bytes[50..60], &mut seen).expect("well formed");
    assert!(!reader.is_inside_pdu());
    assert_eq!(reader.header(), &bytes[..56]);
    assert_eq!(reader.additional().count(), 1);
    // The next header takes its place.
    let mut next = [0; HEADER_SIZE_MAX];
    let length = writer(parameters).header(&mut next, &NopOut::read(&[0; 48]));
    drain(&mut reader, &next[..length], &mut seen).expect("well formed");
    assert_eq!(reader.header(), &next[..48]);
    assert_eq!((seen.len(), reader.additional().count()), (2, 0));
}

#[test]
fn a_wrong_data_digest_is_told_and_the_stream_goes_on() {
    let parameters = parameters(false, true);
    let mut header = DataOut::read(&[9; 48]);
    header.data_length = 5;
    let sent = Sent {
        pdu: Pdu::DataOut(header),
        additional: vec![],
        data: vec![1, 2, 3, 4, 5],
    };
    let good = write(&writer(parameters), &sent);
    // Data, padding and the digest itself are covered.
    for place in [48, 53, 56] {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        bytes.extend(&good);
        let seen = read(established(Side::Target, parameters), &bytes, &[7; 30]);
        let digests: Vec<_> = seen
            .iter()
            .filter_map(|seen| match seen {
                Seen::End(digest) => Some(digest.is_good()),
                _ => None,
            })
            .collect();
        assert_eq!(digests, [false, true], "byte {place}");
    }
}

#[test]
fn an_initiator_reads_what_a_target_sends() {
    let parameters = parameters(true, true);
    let mut data_in = DataIn::read(&[0x25; 48]);
    data_in.data_length = 6;
    let mut response = ScsiResponse::read(&[0x21; 48]);
    response.data_length = 0;
    let sent = [
        Sent {
            pdu: Pdu::DataIn(data_in),
            additional: vec![],
            data: vec![1, 2, 3, 4, 5, 6],
        },
        Sent {
            pdu: Pdu::ScsiResponse(response),
            additional: vec![],
            data: vec![],
        },
    ];
    let bytes: Vec<u8> = sent
        .iter()
        .flat_map(|sent| write(&writer(parameters), sent))
        .collect();
    let expected: Vec<Seen> = sent
        .iter()
        .flat_map(|sent| expected(parameters, sent))
        .collect();
    for piece in [1, 5, 48, 52, 200] {
        let reader = established(Side::Initiator, parameters);
        assert_eq!(read(reader, &bytes, &vec![piece; 200]), expected);
    }
}

#[test]
fn the_reader_says_what_it_wants() {
    let parameters = parameters(true, true);
    let mut reader = established(Side::Target, parameters);
    let mut header = DataOut::read(&[9; 48]);
    header.data_length = 5;
    let sent = Sent {
        pdu: Pdu::DataOut(header),
        additional: vec![],
        data: vec![1, 2, 3, 4, 5],
    };
    let bytes = write(&writer(parameters), &sent);
    let mut wanted = vec![];
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let now = reader.wanted();
        wanted.push(now);
        let length = match now {
            Wanted::Header(length) | Wanted::Trailer(length) => length,
            Wanted::Data(length) => length as usize,
            Wanted::Event => 0,
        };
        let fed = reader.feed(&rest[..length]).expect("well formed");
        assert_eq!(fed.consumed, length);
        rest = &rest[length..];
    }
    assert_eq!(
        wanted,
        [
            Wanted::Header(48),
            Wanted::Header(4),
            Wanted::Data(5),
            Wanted::Trailer(7),
        ]
    );
    assert_eq!(reader.wanted(), Wanted::Header(48));
}

#[test]
fn an_event_is_ready_where_nothing_follows_the_data() {
    let mut reader = established(Side::Target, parameters(false, false));
    let mut bytes = request(0x05);
    bytes[7] = 4;
    reader.feed(&bytes).expect("well formed");
    assert_eq!(reader.wanted(), Wanted::Data(4));
    assert!(!reader.end_data_without_trailer());
    reader.data_received(&[1, 2, 3, 4]);
    assert_eq!(reader.wanted(), Wanted::Event);
    let fed = reader.feed(&[]).expect("well formed");
    let digest = DataDigest::Absent;
    assert_eq!(fed.event, Some(Event::DataEnd { digest }));
    assert_eq!(reader.wanted(), Wanted::Header(48));
}

#[test]
#[should_panic(expected = "5 bytes were received where 4 are data")]
fn more_data_than_was_announced_is_a_bug() {
    let mut reader = established(Side::Target, parameters(false, false));
    let mut bytes = request(0x05);
    bytes[7] = 4;
    reader.feed(&bytes).expect("well formed");
    reader.data_received(&[0; 5]);
}

#[test]
#[should_panic(expected = "parameters change between PDUs")]
fn establishing_inside_a_pdu_is_a_bug() {
    let mut reader = Reader::new(Side::Target);
    reader.feed(&[0x43]).expect("a beginning");
    reader.establish(parameters(false, false));
}

#[test]
fn the_state_of_a_reader_is_small() {
    assert!(size_of::<Reader>() <= 1280, "{}", size_of::<Reader>());
}

#[test]
fn a_nop_without_data_is_one_event() {
    let bytes = request(0x20);
    let seen = read(
        established(Side::Initiator, parameters(false, false)),
        &bytes,
        &[48],
    );
    assert_eq!(seen, [Seen::Pdu(Pdu::NopIn(NopIn::read(&bytes)))]);
}
