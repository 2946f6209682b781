//! Groups 3 and 4: PDUs at the wrong time or of no kind, their lengths, and their digests.

use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::iscsi::Context;
use crate::iscsi::pdu::{FINAL, Format, HEADER, NO_TAG, Request, at, opcode, reason};
use crate::iscsi::peer::{Answer, BROKEN, Got};
use crate::iscsi::session::{READ_16, Session, WRITE_16, transfer};

cases! {
    3 command_before_login [] "RFC 7143 6.3": "a SCSI Command first" => "the end of the connection, or a Reject";
    3 ping_before_login [] "RFC 7143 6.3": "a NOP-Out first" => "the end of the connection, or a Reject";
    3 text_before_login [] "RFC 7143 6.3": "a Text Request first" => "the end of the connection, or a Reject";
    3 data_before_login [] "RFC 7143 6.3": "a Data-Out first" => "the end of the connection, or a Reject";
    3 logout_before_login [] "RFC 7143 6.3": "a Logout Request first" => "the end of the connection, or a Reject";
    3 login_response_before_login [] "RFC 7143 11.2.1.2": "a Login Response from the initiator first" => "the end of the connection, or a Reject";
    3 command_inside_login [] "RFC 7143 6.3": "a SCSI Command between two Login Requests" => "the end of the connection, or a refusal";
    3 login_after_login [] "RFC 7143 6.3": "a Login Request in a session" => "Reject, Protocol Error, and the end of the connection";
    3 response_from_the_initiator [] "RFC 7143 11.2.1.2": "a SCSI Response from the initiator" => "Reject, and the end of the connection";
    3 r2t_from_the_initiator [] "RFC 7143 11.2.1.2": "an R2T from the initiator" => "Reject, and the end of the connection";
    3 reject_from_the_initiator [] "RFC 7143 11.2.1.2": "a Reject from the initiator" => "Reject, and the end of the connection";
    3 opcode_of_no_kind [] "RFC 7143 11.2.1.2, 11.17.1": "requests of opcodes 07h, 0fh and 1fh" => "Reject, Command not supported; the session goes on";
    3 snack [] "RFC 7143 11.16, 7.1.4.1": "a SNACK at error recovery level 0" => "Reject, SNACK Reject or Protocol Error";
    3 logout_of_another_connection [] "RFC 7143 11.14": "a logout of a CID that is not there" => "Logout Response 1, CID not found; the session goes on";
    3 logout_for_recovery [] "RFC 7143 11.14": "a logout for recovery at error recovery level 0" => "Logout Response 2, recovery is not supported, or 1";
    3 logout_for_no_reason [] "RFC 7143 11.14": "a logout of reason 7fh" => "Reject, Invalid PDU field; the session goes on";
    3 pings_carry_data [] "RFC 7143 11.18": "pings with 0, 1, 4,095 and 8,192 bytes" => "NOP-In with the same data";
    3 ping_that_answers_nothing [] "RFC 7143 11.18": "an answer to a ping that was not sent" => "no answer; or Reject";
    3 reserved_bits [] "RFC 7143 11": "a ping whose reserved bytes are FFh" => "NOP-In: reserved fields are ignored";
    3 requests_in_pieces [] "RFC 7143 11": "a ping and a read that come byte by byte" => "their answers";
    3 many_requests_in_one_segment [] "RFC 7143 11": "64 pings in one segment" => "64 answers, in order";

    4 login_longer_than_8192 [] "RFC 7143 13.12": "a Login Request with 8,193 bytes" => "the end of the connection, or a refusal";
    4 login_of_16_mib [] "RFC 7143 13.12": "a Login Request that announces 2^24 - 1 bytes" => "the end of the connection, or a refusal";
    4 login_with_additional_headers [] "RFC 7143 11.2.1.5": "a Login Request with an Additional Header Segment" => "the end of the connection, or a refusal";
    4 ping_longer_than_the_segment [] "RFC 7143 13.12": "a ping that announces one byte more than MaxRecvDataSegmentLength" => "Reject, and the end of the connection";
    4 ping_of_16_mib [] "RFC 7143 13.12": "a ping that announces 2^24 - 1 bytes" => "Reject, and the end of the connection";
    4 ping_with_additional_headers [] "RFC 7143 11.2.1.5": "a ping with an Additional Header Segment" => "Reject, and the end of the connection; or NOP-In";
    4 command_with_255_words_of_headers [] "RFC 7143 11.2.1.5": "a SCSI Command with 1,020 bytes of additional headers" => "CHECK CONDITION, or Reject";
    4 additional_header_of_no_length [] "RFC 7143 11.2.2.1": "a SCSI Command with an additional header whose length is 0" => "Reject, or CHECK CONDITION";
    4 additional_header_beyond_its_end [] "RFC 7143 11.2.2.1": "a SCSI Command with an additional header that is longer than what there is" => "Reject, or CHECK CONDITION";
    4 additional_header_of_no_kind [] "RFC 7143 11.2.2.1": "a SCSI Command with an additional header of type 3fh" => "CHECK CONDITION, or Reject";
    4 long_command [] "RFC 7143 11.2.2.3": "a CDB of 32 bytes in an Extended CDB header" => "CHECK CONDITION";
    4 bidirectional_length [] "RFC 7143 11.2.2.4": "a read with a Bidirectional Read length" => "CHECK CONDITION, or GOOD";
    4 digests_are_kept [DIGESTS] "RFC 7143 13.1": "pings, reads and writes of odd lengths with both digests" => "their answers, with both digests";
    4 header_digest_of_a_command_wrong [DIGESTS] "RFC 7143 7.7": "a command with a wrong header digest" => "Reject, and the end of the connection; or the end alone";
    4 header_digest_of_a_ping_wrong [DIGESTS] "RFC 7143 7.7": "a ping with a wrong header digest" => "Reject, and the end of the connection; or the end alone";
    4 data_digest_wrong_on_a_ping [DIGESTS] "RFC 7143 7.8, 11.17.1": "a ping with a wrong data digest" => "Reject, data digest error; the session goes on";
    4 data_digest_wrong_on_immediate_data [DIGESTS, WRITES] "RFC 7143 7.8": "a write whose immediate data has a wrong digest" => "Reject, data digest error, and CHECK CONDITION; nothing is written";
    4 data_digest_wrong_on_data_out [DIGESTS, WRITES] "RFC 7143 7.8": "a write whose solicited data has a wrong digest" => "Reject, data digest error, and CHECK CONDITION; nothing is written";
}

/// Sends a request before the login, and waits for the connection's end.
fn before_login(context: &mut Context, request: &Request) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(request)?;
    refused_login(&mut peer, "a request before the login")
}

fn refused_login(peer: &mut crate::iscsi::Peer, what: &str) -> Result<(), Failure> {
    let answers = [
        Answer::End,
        Answer::RejectAndEnd(reason::PROTOCOL),
        Answer::RejectAndEnd(reason::NOT_SUPPORTED),
        Answer::RejectAndEnd(reason::INVALID_FIELD),
        Answer::Login(0x020b),
        Answer::Login(0x0200),
    ];
    peer.expect(what, &answers).map(drop)
}

fn command_before_login(context: &mut Context) -> Result<(), Failure> {
    before_login(context, &Request::new(opcode::COMMAND, 1))
}

fn ping_before_login(context: &mut Context) -> Result<(), Failure> {
    before_login(context, &Request::new(opcode::NOP_OUT, 1).immediate())
}

fn text_before_login(context: &mut Context) -> Result<(), Failure> {
    let request = Request::new(opcode::TEXT, 1).carrying(b"SendTargets=All\0");
    before_login(context, &request)
}

fn data_before_login(context: &mut Context) -> Result<(), Failure> {
    before_login(
        context,
        &Request::new(opcode::DATA_OUT, 1).carrying(&[0; 512]),
    )
}

fn logout_before_login(context: &mut Context) -> Result<(), Failure> {
    before_login(context, &Request::new(opcode::LOGOUT, 1).immediate())
}

fn login_response_before_login(context: &mut Context) -> Result<(), Failure> {
    before_login(context, &Request::new(opcode::LOGGED_IN, 1))
}

fn command_inside_login(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    peer.send(&login.first())?;
    peer.expect("a Login Request", &[Answer::Login(0)])?;
    peer.send(&Request::new(opcode::COMMAND, 1))?;
    refused_login(&mut peer, "a command inside a login")
}

fn login_after_login(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let again = session.login.first();
    session.peer.send(&again)?;
    session
        .peer
        .expect("a login in a session", BROKEN)
        .map(drop)
}

/// Sends a request of an opcode that only targets use.
fn of_a_target(context: &mut Context, opcode: u8) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = session.request(opcode);
    session.peer.send(&request)?;
    session.peer.expect("a target's PDU", BROKEN).map(drop)
}

fn response_from_the_initiator(context: &mut Context) -> Result<(), Failure> {
    of_a_target(context, opcode::RESPONSE)
}

fn r2t_from_the_initiator(context: &mut Context) -> Result<(), Failure> {
    of_a_target(context, opcode::R2T)
}

fn reject_from_the_initiator(context: &mut Context) -> Result<(), Failure> {
    of_a_target(context, opcode::REJECT)
}

fn opcode_of_no_kind(context: &mut Context) -> Result<(), Failure> {
    for opcode in [0x07, 0x0f, 0x1f] {
        let mut session = context.session()?;
        let itt = session.tag();
        // Immediate, so that whether it takes a CmdSN is no question.
        let request = Request::new(opcode, itt).immediate();
        let request = session.numbered(request);
        session.peer.send(&request)?;
        let answers = [
            Answer::Reject(reason::NOT_SUPPORTED),
            Answer::Reject(reason::PROTOCOL),
            Answer::Reject(reason::INVALID_FIELD),
            Answer::End,
        ];
        let got = session.peer.expect("an opcode of no kind", &answers)?;
        if session.peer.manner.exact {
            check_rejected(&got, &request)?;
            session.still_works()?;
        }
    }
    Ok(())
}

/// A Reject carries the header that it is about.
fn check_rejected(got: &Got, request: &Request) -> Result<(), Failure> {
    let carried = match got {
        Got::Pdu(reply) => &reply.data[..],
        _ => &[],
    };
    check(
        carried.get(..HEADER) == Some(&request.header),
        "what a Reject carries",
        "the header at fault",
        format!("{} bytes", carried.len()),
    )
}

fn snack(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = session.tag();
    let request = Request::new(opcode::SNACK, itt)
        .with(at::FLAGS, FINAL | 1)
        .with_u32(at::TTT, NO_TAG)
        .with_u32(at::EXP_STAT_SN, session.peer.exp_stat_sn());
    session.peer.send(&request)?;
    let answers = [
        Answer::Reject(reason::SNACK),
        Answer::Reject(reason::PROTOCOL),
        Answer::Reject(reason::NOT_SUPPORTED),
        Answer::End,
    ];
    session.peer.expect("a SNACK", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn log_out(session: &mut Session, reason: u8, cid: u16) -> Result<u32, Failure> {
    let itt = session.tag();
    let [high, low] = cid.to_be_bytes();
    let request = Request::new(opcode::LOGOUT, itt)
        .immediate()
        .with(at::FLAGS, FINAL | reason)
        .with(at::TTT, high)
        .with(at::TTT + 1, low);
    let request = session.numbered(request);
    session.peer.send(&request)?;
    Ok(itt)
}

fn logout_of_another_connection(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = log_out(&mut session, 1, 0x1234)?;
    let answers = [Answer::LoggedOut(itt, 1)];
    session.peer.expect("such a logout", &answers)?;
    session.still_works()
}

fn logout_for_recovery(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = log_out(&mut session, 2, 0)?;
    let answers = [
        Answer::LoggedOut(itt, 2),
        Answer::LoggedOut(itt, 1),
        Answer::Reject(reason::PROTOCOL),
    ];
    session.peer.expect("such a logout", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn logout_for_no_reason(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = log_out(&mut session, 0x7f, 0)?;
    let answers = [
        Answer::Reject(reason::INVALID_FIELD),
        Answer::Reject(reason::PROTOCOL),
        Answer::LoggedOut(itt, 3),
        Answer::LoggedOut(itt, 0),
        Answer::End,
    ];
    session.peer.expect("such a logout", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn pings_carry_data(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let segment = context.facts.receive_segment as usize;
    for length in [0, 1, 4095, 8192] {
        let data: Vec<u8> = (0..length.min(segment)).map(|at| at as u8).collect();
        session.ping(&data)?;
    }
    Ok(())
}

fn ping_that_answers_nothing(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = Request::new(opcode::NOP_OUT, NO_TAG)
        .immediate()
        .with_u32(at::TTT, 0x1234_5678);
    let request = session.numbered(request);
    session.peer.send(&request)?;
    match session.peer.receive_within(QUIET) {
        Got::Nothing(_) => session.still_works(),
        Got::Pdu(reply) if reply.opcode() == opcode::REJECT && !session.peer.manner.exact => Ok(()),
        got => Err(Failure::differs("such an answer", "no answer", got)),
    }
}

fn reserved_bits(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = session.tag();
    let mut request = Request::new(opcode::NOP_OUT, itt)
        .immediate()
        .with_u32(at::TTT, NO_TAG);
    request.header[0] |= 0x80;
    request.header[1..4].fill(0xff);
    request.header[32..48].fill(0xff);
    let request = session.numbered(request);
    session.peer.send(&request)?;
    session.peer.expect("a ping", &[Answer::Ping(itt)])?;
    session.still_works()
}

fn requests_in_pieces(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    let command = session.command(&transfer(READ_16, 0, 1), block, 0);
    for byte in command.encode(session.peer.format) {
        session.peer.send_bytes(&[byte])?;
    }
    let ended = session.ended(command.itt(), &[])?;
    session.succeeded("a read in pieces", ended)?;
    session.still_works()
}

fn many_requests_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    const PINGS: u32 = 64;
    let mut session = context.session()?;
    let (mut bytes, mut tags) = (Vec::new(), Vec::new());
    for _ in 0..PINGS {
        let itt = session.tag();
        let ping = Request::new(opcode::NOP_OUT, itt)
            .immediate()
            .with_u32(at::TTT, NO_TAG)
            .carrying(&itt.to_be_bytes());
        bytes.extend(session.numbered(ping).encode(session.peer.format));
        tags.push(itt);
    }
    session.peer.send_bytes(&bytes)?;
    for itt in tags {
        let what = format!("ping {itt}");
        let answer = session.peer.expect_pdu(&what, &[Answer::Ping(itt)])?;
        check(
            answer.data == itt.to_be_bytes(),
            what,
            "its own data",
            format!("{:?}", answer.data),
        )?;
    }
    Ok(())
}

fn login_that_announces(context: &mut Context, length: u32) -> Result<(), Failure> {
    let request = context.login().first();
    let mut peer = context.peer()?;
    let mut bytes = request.encode_as(Format::default(), length);
    bytes.resize(HEADER + (length as usize).min(64 << 10), 0);
    peer.send_bytes(&bytes)?;
    refused_login(&mut peer, "a long Login Request")
}

fn login_longer_than_8192(context: &mut Context) -> Result<(), Failure> {
    login_that_announces(context, 8193)
}

fn login_of_16_mib(context: &mut Context) -> Result<(), Failure> {
    login_that_announces(context, (1 << 24) - 1)
}

fn login_with_additional_headers(context: &mut Context) -> Result<(), Failure> {
    let request = context.login().first().with_additional(&[0, 4, 1, 0]);
    let mut peer = context.peer()?;
    peer.send(&request)?;
    refused_login(&mut peer, "a Login Request with additional headers")
}

fn ping_that_announces(context: &mut Context, length: u32) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = session.tag();
    let ping = Request::new(opcode::NOP_OUT, itt)
        .immediate()
        .with_u32(at::TTT, NO_TAG);
    let ping = session.numbered(ping);
    let bytes = ping.encode_as(session.peer.format, length);
    session.peer.send_bytes(&bytes)?;
    session.peer.send_bytes(&[0; 4096])?;
    session.peer.expect("a long ping", BROKEN).map(drop)
}

fn ping_longer_than_the_segment(context: &mut Context) -> Result<(), Failure> {
    let length = context.facts.receive_segment + 1;
    if length >= 1 << 24 {
        let why = "a longest segment below 16 MiB";
        return Err(Failure::NotOffered(why.into()));
    }
    ping_that_announces(context, length)
}

fn ping_of_16_mib(context: &mut Context) -> Result<(), Failure> {
    ping_that_announces(context, (1 << 24) - 1)
}

fn ping_with_additional_headers(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = session.tag();
    let ping = Request::new(opcode::NOP_OUT, itt)
        .immediate()
        .with_u32(at::TTT, NO_TAG)
        .with_additional(&[0, 4, 1, 0]);
    let ping = session.numbered(ping);
    session.peer.send(&ping)?;
    let answers = [BROKEN, &[Answer::Ping(itt)]].concat();
    session.peer.expect("such a ping", &answers).map(drop)
}

/// A read of one block with additional headers: it fails, by sense or by a Reject, and does not move what follows.
fn with_additional(context: &mut Context, additional: &[u8], ends: bool) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    let command = session
        .command(&transfer(READ_16, 0, 1), block, 0)
        .with_additional(additional);
    session.peer.send(&command)?;
    let itt = command.itt();
    // INVALID FIELD IN COMMAND INFORMATION UNIT.
    let sense = Answer::Sense(itt, 5, 0x0e03);
    let others = [
        Answer::Sense(itt, 5, 0x2400),
        Answer::Sense(itt, 5, 0x2000),
        Answer::Reject(reason::INVALID_FIELD),
        Answer::Reject(reason::PROTOCOL),
        Answer::End,
    ];
    let answers = match ends {
        true => [BROKEN, &[sense], &others].concat(),
        false => [&[sense][..], BROKEN, &others].concat(),
    };
    session.peer.expect("additional headers", &answers)?;
    match session.peer.manner.exact && !ends {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn command_with_255_words_of_headers(context: &mut Context) -> Result<(), Failure> {
    // One of an unknown type, as long as there can be.
    let mut additional = vec![0; 255 * 4];
    let length = (additional.len() - 3) as u16;
    additional[..2].copy_from_slice(&length.to_be_bytes());
    additional[2] = 0x3f;
    with_additional(context, &additional, false)
}

fn additional_header_of_no_length(context: &mut Context) -> Result<(), Failure> {
    with_additional(context, &[0, 0, 1, 0], true)
}

fn additional_header_beyond_its_end(context: &mut Context) -> Result<(), Failure> {
    with_additional(context, &[0x03, 0xff, 1, 0], true)
}

fn additional_header_of_no_kind(context: &mut Context) -> Result<(), Failure> {
    with_additional(context, &[0, 1, 0x3f, 0], false)
}

fn long_command(context: &mut Context) -> Result<(), Failure> {
    let mut additional = vec![0; 4 + 16];
    // The rest of the CDB, and a reserved byte.
    (additional[1], additional[2]) = (17, 1);
    with_additional(context, &additional, false)
}

fn bidirectional_length(context: &mut Context) -> Result<(), Failure> {
    let additional = [0, 5, 2, 0, 0, 0, 2, 0];
    with_additional(context, &additional, false)
}

fn with_digests(context: &mut Context) -> Result<Session, Failure> {
    context.session_with(&context.login().with_digests())
}

fn digests_are_kept(context: &mut Context) -> Result<(), Failure> {
    let mut session = with_digests(context)?;
    for length in [1, 2, 3, 4, 5, 1001] {
        session.ping(&vec![0x5a; length])?;
    }
    let block = context.facts.block_bytes;
    let before = session.read(0, 4, block)?;
    if context.given.contains(crate::Needs::WRITES) {
        session.write(0, block, &before)?;
    }
    session.still_works()
}

/// Damages a byte of what is sent, by its place.
fn send_damaged(session: &mut Session, request: &Request, at: usize) -> Result<(), Failure> {
    let mut bytes = request.encode(session.peer.format);
    bytes[at] ^= 1;
    session.peer.send_bytes(&bytes)
}

/// A wrong header digest ends the connection: nothing that follows has a known place.
const LOST: &[Answer] = &[
    Answer::RejectAndEnd(reason::PROTOCOL),
    Answer::End,
    Answer::RejectAndEnd(0x01),
];

fn header_digest_of_a_command_wrong(context: &mut Context) -> Result<(), Failure> {
    let mut session = with_digests(context)?;
    let block = context.facts.block_bytes;
    let command = session.command(&transfer(READ_16, 0, 1), block, 0);
    send_damaged(&mut session, &command, HEADER)?;
    session.peer.expect("a wrong header digest", LOST).map(drop)
}

fn header_digest_of_a_ping_wrong(context: &mut Context) -> Result<(), Failure> {
    let mut session = with_digests(context)?;
    let ping = session.request(opcode::NOP_OUT).carrying(b"ping");
    send_damaged(&mut session, &ping, 30)?;
    session.peer.expect("a wrong header digest", LOST).map(drop)
}

fn data_digest_wrong_on_a_ping(context: &mut Context) -> Result<(), Failure> {
    let mut session = with_digests(context)?;
    let itt = session.tag();
    let ping = Request::new(opcode::NOP_OUT, itt)
        .immediate()
        .with_u32(at::TTT, NO_TAG)
        .carrying(b"ping");
    let ping = session.numbered(ping);
    send_damaged(&mut session, &ping, HEADER + 4)?;
    let answers = [Answer::Reject(reason::DATA_DIGEST), Answer::End];
    session.peer.expect("a wrong data digest", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

/// Waits for what tells of a write whose data was damaged: the Reject, the end of the command, and its block as it was.
fn damaged_write(
    context: &Context,
    mut session: Session,
    itt: u32,
    before: &[u8],
) -> Result<(), Failure> {
    let answers = [Answer::Reject(reason::DATA_DIGEST), Answer::End];
    if !matches!(
        session.peer.expect("a wrong data digest", &answers)?,
        Got::Pdu(_)
    ) {
        return Ok(());
    }
    // PROTOCOL SERVICE CRC ERROR (RFC 7143, section 11.4.7.2).
    let answers = [
        Answer::Sense(itt, 0x0b, 0x4705),
        Answer::Status(itt, super::super::peer::CHECK_CONDITION),
    ];
    session.peer.expect("the write's end", &answers)?;
    let after = session.read(0, 1, context.facts.block_bytes)?;
    check(after == before, "the block", "what it held", "other data")
}

fn data_digest_wrong_on_immediate_data(context: &mut Context) -> Result<(), Failure> {
    let mut session = with_digests(context)?;
    let block = context.facts.block_bytes;
    if !context.facts.immediate_data || block > context.facts.first_burst.min(8192) {
        return Err(Failure::NotOffered("immediate data of a block".into()));
    }
    let before = session.read(0, 1, block)?;
    let data: Vec<u8> = before.iter().map(|byte| !byte).collect();
    let write = session
        .command(&transfer(WRITE_16, 0, 1), 0, block)
        .carrying(&data);
    send_damaged(&mut session, &write, HEADER + 4 + 7)?;
    damaged_write(context, session, write.itt(), &before)
}

fn data_digest_wrong_on_data_out(context: &mut Context) -> Result<(), Failure> {
    let mut session = with_digests(context)?;
    let block = context.facts.block_bytes;
    let before = session.read(0, 1, block)?;
    let data: Vec<u8> = before.iter().map(|byte| !byte).collect();
    let write = session.command(&transfer(WRITE_16, 0, 1), 0, block);
    session.peer.send(&write)?;
    let itt = write.itt();
    let r2t = session.peer.expect_pdu("a write", &[Answer::R2t(itt)])?;
    let out = session.data_out(itt, r2t.ttt(), 0, &data, 0, true);
    send_damaged(&mut session, &out, HEADER + 4 + 7)?;
    damaged_write(context, session, itt, &before)
}
