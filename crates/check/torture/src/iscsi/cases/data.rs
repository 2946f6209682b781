//! Groups 6 and 7: data that was not asked for, transfer lengths that do not fit the command, and what is told of them.

use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::iscsi::Context;
use crate::iscsi::pdu::{FINAL, NO_TAG, READ, Reply, Request, WRITE, at, opcode};
use crate::iscsi::peer::{Answer, BROKEN, Got};
use crate::iscsi::session::{Ended, READ_16, Session, WRITE_16, transfer};

cases! {
    6 data_of_no_task [] "RFC 7143 11.7": "a Data-Out for a task that is not there" => "no answer, or Reject; the session goes on";
    6 data_for_another_transfer [WRITES] "RFC 7143 11.7.4": "a Data-Out with a Target Transfer Tag that was not given" => "no answer, or Reject; the write goes on";
    6 data_of_another_task [WRITES] "RFC 7143 11.7": "a Data-Out with the transfer tag of another write" => "no answer, or Reject; the writes go on";
    6 data_at_another_offset [WRITES] "RFC 7143 11.7.5, 7.8": "a Data-Out that begins after the first byte asked for" => "Reject, and the end of the connection";
    6 data_before_the_offset [WRITES] "RFC 7143 11.7.5, 7.8": "a Data-Out at an offset that came before" => "Reject, and the end of the connection";
    6 data_beyond_what_was_asked_for [WRITES] "RFC 7143 11.8, 7.8": "a Data-Out with more bytes than its R2T wants" => "Reject, and the end of the connection";
    6 data_beyond_2_to_32 [WRITES] "RFC 7143 11.7.5": "a Data-Out at offset 2^32 - 1" => "Reject, and the end of the connection";
    6 data_that_ends_early [WRITES] "RFC 7143 11.8, 7.8": "a Data-Out with F before all was sent" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 data_that_does_not_end [WRITES] "RFC 7143 11.7.1": "all of the data, without F" => "Reject, and the end of the connection; or GOOD, or a wait for F";
    6 data_in_pieces_of_one_byte [WRITES] "RFC 7143 11.7": "a block in Data-Outs of one byte" => "GOOD, and the block as it was sent";
    6 data_of_no_bytes [WRITES] "RFC 7143 11.7": "empty Data-Outs before the data" => "GOOD";
    6 immediate_data_that_is_not_agreed [WRITES] "RFC 7143 13.11, 7.8": "immediate data where ImmediateData=No" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 unsolicited_data_that_is_not_agreed [WRITES] "RFC 7143 13.10, 7.8": "a write without F where InitialR2T=Yes" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 immediate_data_beyond_the_first_burst [WRITES] "RFC 7143 13.14, 7.8": "immediate data longer than FirstBurstLength" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 immediate_data_beyond_the_command [WRITES] "RFC 7143 11.3.4, 7.8": "immediate data longer than the Expected Data Transfer Length" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 immediate_data_of_a_read [] "RFC 7143 11.3": "a read with immediate data" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 unsolicited_data_in_disorder [WRITES] "RFC 7143 13.18, 7.8": "unsolicited data whose second half comes first" => "Reject, and the end of the connection; or CHECK CONDITION";
    6 unsolicited_data_of_two_writes [WRITES] "RFC 7143 4.2.5.2": "the unsolicited data of two writes, the second one's first" => "GOOD for both, and both blocks";

    7 read_of_less_than_expected [] "RFC 7143 11.4.5": "a read of one block that expects two" => "GOOD, and an underflow of a block";
    7 read_of_more_than_expected [] "RFC 7143 11.4.5": "a read of two blocks that expects one" => "GOOD, one block, and an overflow of a block";
    7 read_that_expects_nothing [] "RFC 7143 11.4.5": "a read of one block that expects no data" => "GOOD and an overflow of a block, or CHECK CONDITION";
    7 read_that_expects_4_gib [] "RFC 7143 11.4.5": "a read of one block that expects 2^32 - 1 bytes" => "GOOD, and the rest as underflow";
    7 write_of_less_than_expected [WRITES] "RFC 7143 11.4.5": "a write of one block that expects two" => "GOOD, and an underflow of a block";
    7 write_of_more_than_expected [WRITES] "RFC 7143 11.4.5": "a write of two blocks that expects one" => "GOOD and an overflow of a block, or CHECK CONDITION; no other block is written";
    7 write_that_expects_4_gib [WRITES] "RFC 7143 11.4.5": "a write of one block that expects 2^32 - 1 bytes" => "GOOD, and the rest as underflow";
    7 read_with_w [] "RFC 7143 11.3.1": "a read whose command says that it writes" => "CHECK CONDITION, or GOOD without data";
    7 write_with_r [WRITES] "RFC 7143 11.3.1": "a write whose command says that it reads" => "CHECK CONDITION, or GOOD; nothing is written";
    7 both_directions [] "RFC 7143 11.3.1": "a command with R and W" => "CHECK CONDITION, or GOOD";
    7 no_direction [] "RFC 7143 11.3.1": "a read with neither R nor W, that expects data" => "CHECK CONDITION, or GOOD without data";
    7 inquiry_is_cut [] "SPC-4 4.2.5.6": "INQUIRY with an allocation length of 5, that expects 255 bytes" => "5 bytes, and an underflow of 250";
    7 lengths_of_all_kinds [] "RFC 7143 11.7": "reads of 1 to 64 blocks" => "GOOD, each with as many bytes";
}

/// A write of so many blocks from LBA 0 without data of its own, and its R2T.
fn asked_for(session: &mut Session, block: u32, blocks: u32) -> Result<(u32, Reply), Failure> {
    let write = session.command(&transfer(WRITE_16, 0, blocks), 0, blocks * block);
    session.peer.send(&write)?;
    let itt = write.itt();
    let r2t = session.peer.expect_pdu("a write", &[Answer::R2t(itt)])?;
    Ok((itt, r2t))
}

/// A session whose data goes only where it was asked for, and what the first blocks hold.
fn solicited(context: &Context, blocks: u32) -> Result<(Session, Vec<u8>), Failure> {
    let mut session = context.session()?;
    let before = session.read(0, blocks, context.facts.block_bytes)?;
    Ok((session, before))
}

/// Waits for what a target does with data that it does not know.
fn skipped(session: &mut Session, what: &str) -> Result<bool, Failure> {
    match session.peer.receive_within(QUIET) {
        Got::Nothing(_) => Ok(true),
        Got::Pdu(reply) if reply.opcode() == opcode::REJECT && !session.peer.manner.exact => {
            Ok(false)
        }
        Got::Closed | Got::Reset if !session.peer.manner.exact => Ok(false),
        got => Err(Failure::differs(what, "no answer", got)),
    }
}

fn data_of_no_task(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    for ttt in [NO_TAG, 0, 77] {
        let data = session.data_out(0xdead, ttt, 0, &[0xee; 512], 0, true);
        session.peer.send(&data)?;
    }
    match skipped(&mut session, "data of no task")? {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn data_for_another_transfer(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    let (itt, r2t) = asked_for(&mut session, block, 1)?;
    let wrong = vec![0xee; block as usize];
    let data = session.data_out(itt, r2t.ttt() ^ 0x100, 0, &wrong, 0, true);
    session.peer.send(&data)?;
    if !skipped(&mut session, "data with another transfer tag")? {
        return Ok(());
    }
    session.send_data(itt, r2t.ttt(), 0, &before)?;
    session
        .peer
        .expect("the write's end", &[Answer::Status(itt, 0)])?;
    unchanged(&mut session, block, &before)
}

/// The first blocks hold this.
fn unchanged(session: &mut Session, block: u32, before: &[u8]) -> Result<(), Failure> {
    let after = session.read(0, before.len() as u32 / block, block)?;
    check(
        after == before,
        "the blocks",
        "what they held",
        "other data",
    )
}

fn data_of_another_task(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    session.await_window(2)?;
    let (one, one_r2t) = asked_for(&mut session, block, 1)?;
    let (other, other_r2t) = asked_for(&mut session, block, 1)?;
    let wrong = vec![0xee; block as usize];
    let data = session.data_out(one, other_r2t.ttt(), 0, &wrong, 0, true);
    session.peer.send(&data)?;
    if !skipped(&mut session, "data with another task's transfer tag")? {
        return Ok(());
    }
    session.send_data(one, one_r2t.ttt(), 0, &before)?;
    session
        .peer
        .expect("the first write's end", &[Answer::Status(one, 0)])?;
    session.send_data(other, other_r2t.ttt(), 0, &before)?;
    session
        .peer
        .expect("the second write's end", &[Answer::Status(other, 0)])?;
    unchanged(&mut session, block, &before)
}

/// Sends a Data-Out that breaks the protocol; nothing is written.
fn broken_data(
    context: &mut Context,
    make: impl FnOnce(&Session, u32, &Reply, &[u8]) -> Vec<Request>,
    answers: &[Answer],
) -> Result<(), Failure> {
    const BLOCKS: u32 = 2;
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, BLOCKS)?;
    let (itt, r2t) = asked_for(&mut session, block, BLOCKS)?;
    let wrong = vec![0xee; (BLOCKS * block) as usize];
    for request in make(&session, itt, &r2t, &wrong) {
        session.peer.send(&request)?;
    }
    let sense = [Answer::Status(itt, 0x02)];
    session
        .peer
        .expect("such data", &[answers, &sense].concat())?;
    let mut other = context.session()?;
    unchanged(&mut other, block, &before)
}

fn data_at_another_offset(context: &mut Context) -> Result<(), Failure> {
    let make = |session: &Session, itt, r2t: &Reply, wrong: &[u8]| {
        let half = wrong.len() / 2;
        vec![session.data_out(itt, r2t.ttt(), half as u32, &wrong[half..], 0, true)]
    };
    broken_data(context, make, BROKEN)
}

fn data_before_the_offset(context: &mut Context) -> Result<(), Failure> {
    let make = |session: &Session, itt, r2t: &Reply, wrong: &[u8]| {
        let half = &wrong[..wrong.len() / 2];
        let first = session.data_out(itt, r2t.ttt(), 0, half, 0, false);
        let again = session.data_out(itt, r2t.ttt(), 0, half, 1, true);
        vec![first, again]
    };
    broken_data(context, make, BROKEN)
}

fn data_beyond_what_was_asked_for(context: &mut Context) -> Result<(), Failure> {
    let make = |session: &Session, itt, r2t: &Reply, wrong: &[u8]| {
        let more = [wrong, &[0xee; 512]].concat();
        vec![session.data_out(itt, r2t.ttt(), 0, &more, 0, true)]
    };
    broken_data(context, make, BROKEN)
}

fn data_beyond_2_to_32(context: &mut Context) -> Result<(), Failure> {
    let make = |session: &Session, itt, r2t: &Reply, wrong: &[u8]| {
        vec![session.data_out(itt, r2t.ttt(), u32::MAX, &wrong[..512], 0, true)]
    };
    broken_data(context, make, BROKEN)
}

fn data_that_ends_early(context: &mut Context) -> Result<(), Failure> {
    let make = |session: &Session, itt, r2t: &Reply, wrong: &[u8]| {
        let half = &wrong[..wrong.len() / 2];
        vec![session.data_out(itt, r2t.ttt(), 0, half, 0, true)]
    };
    broken_data(context, make, BROKEN)
}

fn data_that_does_not_end(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    let (itt, r2t) = asked_for(&mut session, block, 1)?;
    let whole = session.data_out(itt, r2t.ttt(), 0, &before, 0, false);
    session.peer.send(&whole)?;
    if session.peer.manner.exact {
        return session.peer.expect("data without F", BROKEN).map(drop);
    }
    match session.peer.receive_within(QUIET) {
        // It waits for the end of the sequence.
        Got::Nothing(_) => {
            let end = session.data_out(itt, r2t.ttt(), block, &[], 1, true);
            session.peer.send(&end)?;
            let answers = [&[Answer::Status(itt, 0)][..], BROKEN].concat();
            session.peer.expect("the write's end", &answers).map(drop)
        }
        Got::Pdu(reply) if reply.itt() == itt && reply.has_status() => {
            unchanged(&mut session, block, &before)
        }
        Got::Pdu(reply) if reply.opcode() == opcode::REJECT => Ok(()),
        Got::Closed | Got::Reset => Ok(()),
        got => Err(Failure::differs("data without F", "GOOD, or a wait", got)),
    }
}

fn data_in_pieces_of_one_byte(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    let (itt, r2t) = asked_for(&mut session, block, 1)?;
    let new: Vec<u8> = before.iter().map(|byte| byte.wrapping_add(1)).collect();
    let mut bytes = Vec::new();
    for (at, byte) in new.iter().enumerate() {
        let is_last = at + 1 == new.len();
        let piece = session.data_out(itt, r2t.ttt(), at as u32, &[*byte], at as u32, is_last);
        bytes.extend(piece.encode(session.peer.format));
    }
    session.peer.send_bytes(&bytes)?;
    session
        .peer
        .expect("the write's end", &[Answer::Status(itt, 0)])?;
    unchanged(&mut session, block, &new)
}

fn data_of_no_bytes(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    let (itt, r2t) = asked_for(&mut session, block, 1)?;
    for number in 0..3 {
        let empty = session.data_out(itt, r2t.ttt(), 0, &[], number, false);
        session.peer.send(&empty)?;
    }
    let data = session.data_out(itt, r2t.ttt(), 0, &before, 3, true);
    session.peer.send(&data)?;
    session
        .peer
        .expect("the write's end", &[Answer::Status(itt, 0)])?;
    unchanged(&mut session, block, &before)
}

/// A write that goes against what was agreed; nothing is written.
fn against_what_was_agreed(
    context: &mut Context,
    keys: &[(&'static str, &str)],
    make: impl FnOnce(&mut Session, u32) -> Vec<Request>,
) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let login = keys.iter().fold(context.login(), |login, (key, value)| {
        login.with(key, value)
    });
    let mut session = context.session_with(&login)?;
    for (key, value) in keys {
        if ["Yes", "No"].contains(value) && !session.is(key, value) {
            return Err(Failure::NotOffered(format!("{key}={value}")));
        }
    }
    let before = session.read(0, 1, block)?;
    let requests = make(&mut session, block);
    let itt = requests[0].itt();
    for request in &requests {
        session.peer.send(request)?;
    }
    let answers = [BROKEN, &[Answer::Status(itt, 0x02)]].concat();
    session.peer.expect("such a write", &answers)?;
    let mut other = context.session()?;
    unchanged(&mut other, block, &before)
}

fn immediate_data_that_is_not_agreed(context: &mut Context) -> Result<(), Failure> {
    against_what_was_agreed(context, &[("ImmediateData", "No")], |session, block| {
        let write = session.command(&transfer(WRITE_16, 0, 1), 0, block);
        vec![write.carrying(&vec![0xee; block as usize])]
    })
}

fn unsolicited_data_that_is_not_agreed(context: &mut Context) -> Result<(), Failure> {
    against_what_was_agreed(context, &[("InitialR2T", "Yes")], |session, block| {
        let write = session.command(&transfer(WRITE_16, 0, 1), 0, block);
        let itt = write.itt();
        let data = session.data_out(itt, NO_TAG, 0, &vec![0xee; block as usize], 0, true);
        vec![write.with(at::FLAGS, WRITE | 1), data]
    })
}

fn immediate_data_beyond_the_first_burst(context: &mut Context) -> Result<(), Failure> {
    let keys = [("FirstBurstLength", "512"), ("ImmediateData", "Yes")];
    against_what_was_agreed(context, &keys, |session, block| {
        let first = session.number("FirstBurstLength", 512);
        let blocks = first / block + 1;
        let write = session.command(&transfer(WRITE_16, 0, blocks), 0, blocks * block);
        vec![write.carrying(&vec![0xee; first as usize + 4])]
    })
}

fn immediate_data_beyond_the_command(context: &mut Context) -> Result<(), Failure> {
    against_what_was_agreed(context, &[("ImmediateData", "Yes")], |session, block| {
        let write = session.command(&transfer(WRITE_16, 0, 1), 0, block);
        vec![write.carrying(&vec![0xee; block as usize + 4])]
    })
}

fn immediate_data_of_a_read(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    let read = session
        .command(&transfer(READ_16, 0, 1), block, 0)
        .carrying(&[0xee; 512]);
    session.peer.send(&read)?;
    let itt = read.itt();
    let answers = [BROKEN, &[Answer::Status(itt, 0x02), Answer::Status(itt, 0)]];
    session
        .peer
        .expect("such a read", &answers.concat())
        .map(drop)
}

/// A session that sends data unasked.
fn unsolicited(context: &Context) -> Result<Session, Failure> {
    let login = context.login().with("InitialR2T", "No");
    let session = context.session_with(&login)?;
    match session.is("InitialR2T", "No") {
        true => Ok(session),
        false => Err(Failure::NotOffered("InitialR2T=No".into())),
    }
}

fn unsolicited_data_in_disorder(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut session = unsolicited(context)?;
    let before = session.read(0, 1, block)?;
    let write = session
        .command(&transfer(WRITE_16, 0, 1), 0, block)
        .with(at::FLAGS, WRITE | 1);
    let itt = write.itt();
    let half = block / 2;
    let part = vec![0xee; half as usize];
    let second = session.data_out(itt, NO_TAG, half, &part, 0, false);
    let first = session.data_out(itt, NO_TAG, 0, &part, 1, true);
    for request in [write, second, first] {
        session.peer.send(&request)?;
    }
    let answers = [BROKEN, &[Answer::Status(itt, 0x02)]].concat();
    session.peer.expect("data in disorder", &answers)?;
    let mut other = context.session()?;
    unchanged(&mut other, block, &before)
}

fn unsolicited_data_of_two_writes(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut session = unsolicited(context)?;
    session.await_window(2)?;
    let before = session.read(0, 2, block)?;
    let new: Vec<u8> = before.iter().map(|byte| byte.wrapping_add(3)).collect();
    let halves: Vec<&[u8]> = new.chunks(block as usize).collect();
    let writes = [0u64, 1].map(|lba| {
        session
            .command(&transfer(WRITE_16, lba, 1), 0, block)
            .with(at::FLAGS, WRITE | 1)
    });
    for write in &writes {
        session.peer.send(write)?;
    }
    for at in [1, 0] {
        let data = session.data_out(writes[at].itt(), NO_TAG, 0, halves[at], 0, true);
        session.peer.send(&data)?;
    }
    for at in [1, 0] {
        // Either may end first.
        let answers = [
            Answer::Status(writes[at].itt(), 0),
            Answer::Status(writes[1 - at].itt(), 0),
        ];
        let got = session.peer.receive();
        let ended = match &got {
            Got::Pdu(reply) => reply.has_status() && reply.status() == 0,
            _ => false,
        };
        let expected = format!("{}, or {}", answers[0], answers[1]);
        check(ended, "two writes", expected, got)?;
    }
    unchanged(&mut session, block, &new)
}

/// Checks what is told of lengths that differ: GOOD, so many bytes, and this residual.
fn told(ended: &Ended, bytes: usize, residual: i64) -> Result<(), Failure> {
    check(
        ended.data.len() == bytes,
        "the data of such a command",
        format!("{bytes} bytes"),
        ended.data.len(),
    )?;
    check(
        ended.residual() == residual,
        "its residual",
        residual.to_string(),
        ended.residual(),
    )
}

fn read_expecting(
    context: &mut Context,
    blocks: u32,
    expected: u32,
    bytes: usize,
    residual: i64,
) -> Result<(), Failure> {
    let mut session = context.session()?;
    let ended = session.run(&transfer(READ_16, 0, blocks), expected, &[])?;
    let ended = session.succeeded("such a read", ended)?;
    told(&ended, bytes, residual)?;
    session.still_works()
}

fn read_of_less_than_expected(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    read_expecting(context, 1, 2 * block, block as usize, -i64::from(block))
}

fn read_of_more_than_expected(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    read_expecting(context, 2, block, block as usize, block.into())
}

fn read_that_expects_nothing(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let read = session
        .command(&transfer(READ_16, 0, 1), 0, 0)
        .with(at::FLAGS, FINAL | READ | 1);
    session.peer.send(&read)?;
    let ended = session.ended(read.itt(), &[])?;
    match ended.reply.status() {
        0 => told(&ended, 0, block.into())?,
        status => check(
            status == 0x02 && !session.peer.manner.exact,
            "such a read",
            "GOOD",
            format!("{status:02x}h"),
        )?,
    }
    session.still_works()
}

fn read_that_expects_4_gib(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let rest = i64::from(u32::MAX) - i64::from(block);
    read_expecting(context, 1, u32::MAX, block as usize, -rest)
}

/// A write of so many blocks that expects so many bytes; it sends what it is asked for of `data`.
fn write_expecting(
    session: &mut Session,
    blocks: u32,
    expected: u32,
    data: &[u8],
) -> Result<Ended, Failure> {
    let write = session.command(&transfer(WRITE_16, 0, blocks), 0, expected);
    session.peer.send(&write)?;
    session.ended(write.itt(), data)
}

fn write_of_less_than_expected(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 2)?;
    let mut new = before.clone();
    new[..block as usize].fill(0x11);
    // A target may ask for all that is expected; what is beyond the command is not written.
    let data = [&new[..block as usize], &vec![0xee; block as usize]].concat();
    let ended = write_expecting(&mut session, 1, 2 * block, &data)?;
    let ended = session.succeeded("such a write", ended)?;
    told(&ended, 0, -i64::from(block))?;
    unchanged(&mut session, block, &new)
}

fn write_of_more_than_expected(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 2)?;
    let data = vec![0x22; block as usize];
    let ended = write_expecting(&mut session, 2, block, &data)?;
    let mut after = session.read(0, 2, block)?;
    match ended.reply.status() {
        0 => {
            told(&ended, 0, block.into())?;
            let mut new = before;
            new[..block as usize].copy_from_slice(&data);
            check(after == new, "the blocks", "one new block", "other data")
        }
        0x02 => {
            // Part of it may have been written.
            after[..block as usize].copy_from_slice(&before[..block as usize]);
            check(
                after == before,
                "the other block",
                "what it held",
                "other data",
            )
        }
        status => Err(Failure::differs(
            "such a write",
            "GOOD, or CHECK CONDITION",
            format!("{status:02x}h"),
        )),
    }
}

fn write_that_expects_4_gib(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    let ended = write_expecting(&mut session, 1, u32::MAX, &before)?;
    let ended = session.succeeded("such a write", ended)?;
    let rest = i64::from(u32::MAX) - i64::from(block);
    told(&ended, 0, -rest)?;
    unchanged(&mut session, block, &before)
}

/// A transfer of one block whose direction bits are these.
fn with_direction(context: &mut Context, operation: u8, direction: u8) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let (mut session, before) = solicited(context, 1)?;
    let command = session
        .command(&transfer(operation, 0, 1), block, 0)
        .with(at::FLAGS, FINAL | direction | 1);
    session.peer.send(&command)?;
    let itt = command.itt();
    // A target may ask for data of a command that says that it has some; it is what the block holds.
    let ended = loop {
        match session.peer.receive() {
            Got::Pdu(reply) if reply.opcode() == opcode::R2T => {
                let (from, length) = (reply.offset(), reply.last());
                let part = vec![before[0]; length as usize];
                session.send_data(itt, reply.ttt(), from, &part)?;
            }
            Got::Pdu(reply) if reply.opcode() == opcode::DATA_IN && !reply.has_status() => {}
            Got::Pdu(reply) if reply.itt() == itt && reply.has_status() => break reply,
            Got::Pdu(reply) if reply.opcode() == opcode::REJECT => break reply,
            got => return Err(Failure::differs("such a command", "its end", got)),
        }
    };
    let is_refused = ended.opcode() == opcode::REJECT || ended.status() == 0x02;
    check(
        is_refused || ended.status() == 0,
        "such a command",
        "CHECK CONDITION, or GOOD",
        format!("{:02x}h", ended.status()),
    )?;
    if is_refused || session.peer.manner.exact {
        unchanged(&mut session, block, &before)?;
    }
    session.still_works()
}

fn read_with_w(context: &mut Context) -> Result<(), Failure> {
    with_direction(context, READ_16, WRITE)
}

fn write_with_r(context: &mut Context) -> Result<(), Failure> {
    with_direction(context, WRITE_16, READ)
}

fn both_directions(context: &mut Context) -> Result<(), Failure> {
    with_direction(context, READ_16, READ | WRITE)
}

fn no_direction(context: &mut Context) -> Result<(), Failure> {
    with_direction(context, READ_16, 0)
}

fn inquiry_is_cut(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let ended = session.run(&[0x12, 0, 0, 0, 5, 0], 255, &[])?;
    let ended = session.succeeded("INQUIRY", ended)?;
    told(&ended, 5, -250)
}

fn lengths_of_all_kinds(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    for blocks in [1, 2, 3, 7, 16, 17, 63, 64] {
        session.read(0, blocks, block)?;
    }
    Ok(())
}
