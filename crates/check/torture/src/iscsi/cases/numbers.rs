//! Group 5: CmdSN, the window, and task tags.

use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::iscsi::Context;
use crate::iscsi::pdu::{IMMEDIATE, NO_TAG, Request, at, opcode, put_u32, reason};
use crate::iscsi::peer::{Answer, BROKEN, Got};
use crate::iscsi::session::{READ_16, Session, transfer};

cases! {
    5 command_number_ahead [] "RFC 7143 4.2.2.1, 7.8": "a command whose CmdSN is one too high" => "Reject, and the end of the connection; or no answer before the missing one";
    5 command_number_again [] "RFC 7143 4.2.2.1": "a command whose CmdSN came before" => "no answer; the session goes on";
    5 command_number_far_ahead [] "RFC 7143 4.2.2.1": "a command whose CmdSN is beyond the window" => "no answer, or Reject and the end of the connection";
    5 command_number_half_way_round [] "RFC 7143 4.2.2.1": "a command whose CmdSN is 2^31 away" => "no answer, or Reject and the end of the connection";
    5 ping_number_again [] "RFC 7143 4.2.2.1": "a ping that is not immediate, whose CmdSN came before" => "no answer; the session goes on";
    5 acknowledgement_ahead [] "RFC 7143 4.2.2.2": "a ping whose ExpStatSN is beyond what was sent" => "NOP-In; or the end of the connection";
    5 numbers_wrap [] "RFC 1982": "commands whose CmdSN goes from 2^32 - 1 to 0" => "GOOD";
    5 whole_window [] "RFC 7143 4.2.2.1": "as many reads at once as the window admits" => "GOOD for each";
    5 immediate_commands_without_end [] "RFC 7143 4.2.2.1, 11.17.1": "200 immediate reads at once" => "GOOD, TASK SET FULL or Reject, Immediate command reject, for each";
    5 immediate_pings_without_end [] "RFC 7143 11.18": "1,000 immediate pings at once" => "NOP-In for each";
    5 task_tag_that_is_reserved [] "RFC 7143 11.2.1.8": "a command whose Initiator Task Tag is FFFFFFFFh" => "its end, or Reject";
    5 task_tag_in_flight [WRITES] "RFC 7143 11.2.1.8, 11.17.1": "a read with the tag of a write that awaits its data" => "GOOD for both, or Reject, Task in progress";
    5 tags_of_all_kinds [] "RFC 7143 11.2.1.8": "a command, a ping and a text request of one tag, one after the other" => "an answer to each";
}

/// Sends a read with a CmdSN that is off by so much from the next one.
fn off_by(session: &mut Session, block: u32, difference: u32) -> Result<Request, Failure> {
    let number = session.cmd_sn;
    let mut command = session.command(&transfer(READ_16, 0, 1), block, 0);
    session.cmd_sn = number;
    put_u32(
        &mut command.header,
        at::CMD_SN,
        number.wrapping_add(difference),
    );
    session.peer.send(&command)?;
    Ok(command)
}

/// Nothing answers what was sent, and the session goes on; or the connection ends with a Reject before it.
fn ignored_or_broken(mut session: Session, what: &str) -> Result<(), Failure> {
    match session.peer.receive_within(QUIET) {
        Got::Nothing(_) => session.still_works(),
        Got::Closed | Got::Reset if !session.peer.manner.exact => Ok(()),
        Got::Pdu(reply) if reply.opcode() == opcode::REJECT => session.peer.expect_end(what),
        got => Err(Failure::differs(what, "no answer, or Reject", got)),
    }
}

fn command_number_ahead(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    session.await_window(2)?;
    off_by(&mut session, context.facts.block_bytes, 1)?;
    let what = "a CmdSN ahead";
    if session.peer.manner.exact {
        // One connection keeps the order, so that what is missing never comes.
        return session.peer.expect(what, BROKEN).map(drop);
    }
    // A target that waits for the missing one answers both.
    match session.peer.receive_within(QUIET) {
        Got::Nothing(_) => session.still_works(),
        Got::Closed | Got::Reset => Ok(()),
        Got::Pdu(reply) if reply.opcode() == opcode::REJECT => Ok(()),
        got => Err(Failure::differs(what, "no answer", got)),
    }
}

fn command_number_again(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    off_by(&mut session, context.facts.block_bytes, u32::MAX)?;
    ignored_or_broken(session, "a CmdSN that came before")
}

fn command_number_far_ahead(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    off_by(&mut session, context.facts.block_bytes, 100_000)?;
    ignored_or_broken(session, "a CmdSN beyond the window")
}

fn command_number_half_way_round(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    off_by(&mut session, context.facts.block_bytes, 1 << 31)?;
    ignored_or_broken(session, "a CmdSN half way round")
}

fn ping_number_again(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let number = session.cmd_sn;
    let mut ping = session.request(opcode::NOP_OUT).with_u32(at::TTT, NO_TAG);
    session.cmd_sn = number;
    put_u32(&mut ping.header, at::CMD_SN, number.wrapping_sub(1));
    session.peer.send(&ping)?;
    ignored_or_broken(session, "a ping whose CmdSN came before")
}

fn acknowledgement_ahead(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let itt = session.tag();
    let ahead = session.peer.exp_stat_sn().wrapping_add(1000);
    let ping = Request::new(opcode::NOP_OUT, itt)
        .immediate()
        .with_u32(at::TTT, NO_TAG);
    let ping = session.numbered(ping).with_u32(at::EXP_STAT_SN, ahead);
    session.peer.send(&ping)?;
    let answers = [&[Answer::Ping(itt)][..], BROKEN].concat();
    session.peer.expect("such a ping", &answers).map(drop)
}

fn numbers_wrap(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    let first = login.whole().with_u32(at::CMD_SN, u32::MAX - 3);
    peer.send(&first)?;
    let reply = peer.expect_pdu("a login", &[Answer::Login(0)])?;
    let agreed = crate::iscsi::session::pairs(&reply.data);
    let mut session = Session::logged_in(peer, &login, &reply, agreed.into_iter().collect());
    check(
        session.cmd_sn == u32::MAX - 3,
        "ExpCmdSN of the login's end",
        "the CmdSN of the login",
        session.cmd_sn,
    )?;
    for _ in 0..8 {
        session.still_works()?;
    }
    check(
        session.cmd_sn < 8,
        "CmdSN after eight commands",
        "a number that has wrapped",
        session.cmd_sn,
    )
}

fn whole_window(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    let (mut bytes, mut tags) = (Vec::new(), Vec::new());
    let (_, last) = session.peer.window;
    while last.wrapping_sub(session.cmd_sn) as i32 >= 0 {
        let command = session.command(&transfer(READ_16, 0, 1), block, 0);
        bytes.extend(command.encode(session.peer.format));
        tags.push(command.itt());
    }
    check(
        !tags.is_empty(),
        "the window of an idle session",
        "room for a command",
        "none",
    )?;
    session.peer.send_bytes(&bytes)?;
    let mut ended = 0;
    while ended < tags.len() {
        match session.peer.receive() {
            Got::Pdu(reply) if tags.contains(&reply.itt()) && reply.status() == 0 => {
                ended += usize::from(reply.has_status());
            }
            got => return Err(Failure::differs("a window of reads", "GOOD for each", got)),
        }
    }
    session.still_works()
}

fn immediate_commands_without_end(context: &mut Context) -> Result<(), Failure> {
    const COMMANDS: usize = 200;
    const TASK_SET_FULL: u8 = 0x28;
    const BUSY: u8 = 0x08;
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    let mut bytes = Vec::new();
    for _ in 0..COMMANDS {
        let number = session.cmd_sn;
        let mut command = session.command(&transfer(READ_16, 0, 1), block, 0);
        session.cmd_sn = number;
        command.header[0] |= IMMEDIATE;
        bytes.extend(command.encode(session.peer.format));
    }
    session.peer.send_bytes(&bytes)?;
    let mut ended = 0;
    while ended < COMMANDS {
        match session.peer.receive() {
            Got::Pdu(reply) if reply.opcode() == opcode::REJECT => {
                let holds = reply.code() == reason::IMMEDIATE;
                check(holds, "a Reject", "06h", format!("{:02x}h", reply.code()))?;
                ended += 1;
            }
            Got::Pdu(reply) if reply.has_status() => {
                let status = reply.status();
                let holds = [0, TASK_SET_FULL, BUSY].contains(&status);
                check(
                    holds,
                    "a status",
                    "00h, 08h or 28h",
                    format!("{status:02x}h"),
                )?;
                ended += 1;
            }
            Got::Pdu(reply) if reply.opcode() == opcode::DATA_IN => {}
            got => return Err(Failure::differs("immediate reads", "an end of each", got)),
        }
    }
    session.still_works()
}

fn immediate_pings_without_end(context: &mut Context) -> Result<(), Failure> {
    const PINGS: usize = 1000;
    let mut session = context.session()?;
    let mut bytes = Vec::new();
    for _ in 0..PINGS {
        let itt = session.tag();
        let ping = Request::new(opcode::NOP_OUT, itt)
            .immediate()
            .with_u32(at::TTT, NO_TAG);
        bytes.extend(session.numbered(ping).encode(session.peer.format));
    }
    session.peer.send_bytes(&bytes)?;
    for number in 0..PINGS {
        match session.peer.receive() {
            Got::Pdu(reply) if reply.opcode() == opcode::NOP_IN => {}
            got => {
                let what = format!("ping {number}");
                return Err(Failure::differs(what, "NOP-In", got));
            }
        }
    }
    session.still_works()
}

fn task_tag_that_is_reserved(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    let command = session
        .command(&transfer(READ_16, 0, 1), block, 0)
        .with_u32(at::ITT, NO_TAG);
    session.peer.send(&command)?;
    let answers = [
        Answer::Status(NO_TAG, 0),
        Answer::RejectAndEnd(reason::PROTOCOL),
        Answer::Reject(reason::INVALID_FIELD),
        Answer::Reject(reason::PROTOCOL),
        Answer::End,
    ];
    session.peer.expect("a reserved tag", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn task_tag_in_flight(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    session.await_window(2)?;
    let block = context.facts.block_bytes;
    let before = session.read(0, 1, block)?;
    let write = session.command(&transfer(0x8a, 0, 1), 0, block);
    session.peer.send(&write)?;
    let itt = write.itt();
    let r2t = session.peer.expect_pdu("a write", &[Answer::R2t(itt)])?;
    let read = session
        .command(&transfer(READ_16, 1, 1), block, 0)
        .with_u32(at::ITT, itt);
    session.peer.send(&read)?;
    let answers = [
        Answer::Status(itt, 0),
        Answer::Reject(reason::IN_PROGRESS),
        Answer::Reject(reason::PROTOCOL),
        Answer::End,
    ];
    if !matches!(session.peer.expect("a tag twice", &answers)?, Got::Pdu(_)) {
        return Ok(());
    }
    session.send_data(itt, r2t.ttt(), 0, &before)?;
    session
        .peer
        .expect("the write's end", &[Answer::Status(itt, 0), Answer::End])?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn tags_of_all_kinds(context: &mut Context) -> Result<(), Failure> {
    const TAG: u32 = 5;
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    for _ in 0..2 {
        let read = session
            .command(&transfer(READ_16, 0, 1), block, 0)
            .with_u32(at::ITT, TAG);
        session.peer.send(&read)?;
        let ended = session.ended(TAG, &[])?;
        session.succeeded("a read", ended)?;
        let ping = session
            .request(opcode::NOP_OUT)
            .with_u32(at::ITT, TAG)
            .with_u32(at::TTT, NO_TAG);
        session.peer.send(&ping)?;
        session.peer.expect("a ping", &[Answer::Ping(TAG)])?;
        let text = session
            .request(opcode::TEXT)
            .with_u32(at::ITT, TAG)
            .with_u32(at::TTT, NO_TAG)
            .carrying(b"SendTargets=\0");
        session.peer.send(&text)?;
        session
            .peer
            .expect("a text request", &[Answer::Text(TAG)])?;
    }
    Ok(())
}
