//! Group 9: task management.

use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::iscsi::Context;
use crate::iscsi::pdu::{FINAL, NO_TAG, Request, at, lun, opcode, put_u32, reason};
use crate::iscsi::peer::{Answer, Got};
use crate::iscsi::session::{Session, UNIT_ATTENTION, WRITE_16, transfer};

cases! {
    9 abort_of_no_task [] "RFC 7143 11.6.1": "ABORT TASK of a tag that is not there" => "Function complete, or Task does not exist";
    9 abort_of_a_task_to_come [] "RFC 7143 11.6.1, 4.2.2.1": "ABORT TASK of a command that has not come, and the command after it" => "Function complete, or Task does not exist; the session goes on";
    9 abort_of_a_write [WRITES] "RFC 7143 4.2.3, 11.6.1": "ABORT TASK of a write that awaits its data, and then the data" => "Function complete, and no answer to the write, which has written nothing";
    9 abort_task_set_with_writes [WRITES] "RFC 7143 4.2.3": "ABORT TASK SET with writes that await their data" => "Function complete, and no answer to the writes";
    9 clear_task_set_with_writes [WRITES] "RFC 7143 4.2.3": "CLEAR TASK SET with writes that await their data" => "Function complete, and no answer to the writes";
    9 unit_reset_with_writes [WRITES, ALONE] "RFC 7143 4.2.3": "LOGICAL UNIT RESET with writes that await their data" => "Function complete, no answer to the writes, and a unit attention";
    9 functions_on_no_unit [] "RFC 7143 11.6.1": "ABORT TASK SET and LOGICAL UNIT RESET of a logical unit that is not there" => "LUN does not exist";
    9 reassign [] "RFC 7143 11.6.1": "TASK REASSIGN at error recovery level 0" => "Task allegiance reassignment not supported, or Task does not exist";
    9 clear_aca [] "RFC 7143 11.6.1": "CLEAR ACA" => "Task management function not supported, or complete";
    9 function_of_none [] "RFC 7143 11.6.1": "functions 0, 20 and 127" => "Task management function not supported, or Reject";
    9 functions_without_end [] "RFC 7143 11.5": "100 functions at once" => "an answer to each";
    9 function_before_its_number [] "RFC 7143 4.2.2.1": "a function that is not immediate, whose CmdSN came before" => "no answer; the session goes on";
}

/// Functions of task management (RFC 7143, section 11.5.1).
mod function {
    pub(super) const ABORT_TASK: u8 = 1;
    pub(super) const ABORT_TASK_SET: u8 = 2;
    pub(super) const CLEAR_ACA: u8 = 3;
    pub(super) const CLEAR_TASK_SET: u8 = 4;
    pub(super) const UNIT_RESET: u8 = 5;
    pub(super) const REASSIGN: u8 = 8;
}

const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;

/// A function, delivered at once.
fn function(session: &mut Session, function: u8, referenced: u32) -> Request {
    let itt = session.tag();
    let mut request = Request::new(opcode::MANAGEMENT, itt)
        .immediate()
        .on(lun(session.login.lun))
        .with(at::FLAGS, FINAL | function)
        .with_u32(at::TTT, referenced);
    put_u32(&mut request.header, 32, session.cmd_sn);
    session.numbered(request)
}

/// Does a function, whose answers may be these.
fn manages(session: &mut Session, request: &Request, responses: &[u8]) -> Result<(), Failure> {
    session.peer.send(request)?;
    let itt = request.itt();
    let answers: Vec<_> = responses
        .iter()
        .map(|response| Answer::Managed(itt, *response))
        .collect();
    session.peer.expect("the function", &answers).map(drop)
}

fn abort_of_no_task(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = function(&mut session, function::ABORT_TASK, 0xdead);
    manages(&mut session, &request, &[NO_TASK, COMPLETE])?;
    session.still_works()
}

fn abort_of_a_task_to_come(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    // The next command's tag, and its CmdSN in RefCmdSN.
    let next = session.tag() + 2;
    let request = function(&mut session, function::ABORT_TASK, next);
    session.peer.send(&request)?;
    let itt = request.itt();
    let answers = [
        Answer::Managed(itt, NO_TASK),
        Answer::Managed(itt, COMPLETE),
    ];
    session.peer.expect("the function", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        // A target that counts the command as come is in its right.
        false => session.ping(b"there"),
    }
}

/// Begins writes that await their data. Their tags, and the transfer tags of their R2Ts.
fn waiting_writes(
    context: &Context,
    session: &mut Session,
    count: usize,
) -> Result<Vec<(u32, u32)>, Failure> {
    let block = context.facts.block_bytes;
    let mut writes = Vec::new();
    for _ in 0..count {
        session.await_window(1)?;
        let write = session.command(&transfer(WRITE_16, 0, 1), 0, block);
        session.peer.send(&write)?;
        let itt = write.itt();
        let r2t = session.peer.expect_pdu("a write", &[Answer::R2t(itt)])?;
        writes.push((itt, r2t.ttt()));
    }
    Ok(writes)
}

/// Ends writes that await their data by a function, and sends their data all the same.
fn ended_by(context: &mut Context, which: u8, count: usize) -> Result<Session, Failure> {
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let before = session.read(0, 1, block)?;
    let writes = waiting_writes(context, &mut session, count)?;
    let request = function(&mut session, which, writes[0].0);
    session.peer.send(&request)?;
    // Data that was asked for may still be on its way (RFC 7143, section 4.2.3.3).
    let wrong = vec![0xee; block as usize];
    for (itt, ttt) in &writes {
        session.send_data(*itt, *ttt, 0, &wrong)?;
    }
    let itt = request.itt();
    session
        .peer
        .expect("the function", &[Answer::Managed(itt, COMPLETE)])?;
    session
        .peer
        .expect_silence("the writes that it ended", QUIET)?;
    let read = transfer(crate::iscsi::session::READ_16, 0, 1);
    let mut ended = session.run(&read, block, &[])?;
    if ended.reply.sense().map(|(key, _)| key) == Some(UNIT_ATTENTION) {
        check(
            which == function::UNIT_RESET || !session.peer.manner.exact,
            "the command after the function",
            "GOOD",
            Got::Pdu(ended.reply),
        )?;
        ended = session.run(&read, block, &[])?;
    } else if which == function::UNIT_RESET {
        let got = Got::Pdu(ended.reply);
        return Err(Failure::differs(
            "the command after a reset",
            "a unit attention",
            got,
        ));
    }
    let after = session.succeeded("a read", ended)?.data;
    // Of what had come before the function, a target may have written some.
    let holds = after == before || !session.peer.manner.exact && after == wrong;
    check(holds, "the block", "what it held", "other data")?;
    Ok(session)
}

fn abort_of_a_write(context: &mut Context) -> Result<(), Failure> {
    ended_by(context, function::ABORT_TASK, 1)?.still_works()
}

fn abort_task_set_with_writes(context: &mut Context) -> Result<(), Failure> {
    ended_by(context, function::ABORT_TASK_SET, 3)?.still_works()
}

fn clear_task_set_with_writes(context: &mut Context) -> Result<(), Failure> {
    ended_by(context, function::CLEAR_TASK_SET, 3)?.still_works()
}

fn unit_reset_with_writes(context: &mut Context) -> Result<(), Failure> {
    ended_by(context, function::UNIT_RESET, 3)?.still_works()
}

fn functions_on_no_unit(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let own = session.login.lun;
    for which in [function::ABORT_TASK_SET, function::UNIT_RESET] {
        session.login.lun = if own == 250 { 249 } else { 250 };
        let request = function(&mut session, which, NO_TAG);
        session.login.lun = own;
        manages(&mut session, &request, &[NO_UNIT])?;
    }
    session.still_works()
}

fn reassign(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = function(&mut session, function::REASSIGN, 1);
    let responses = [NO_REASSIGNMENT, NO_TASK, NOT_SUPPORTED];
    manages(&mut session, &request, &responses)?;
    session.still_works()
}

fn clear_aca(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = function(&mut session, function::CLEAR_ACA, NO_TAG);
    manages(&mut session, &request, &[NOT_SUPPORTED, COMPLETE, 255])?;
    session.still_works()
}

fn function_of_none(context: &mut Context) -> Result<(), Failure> {
    for which in [0, 20, 127] {
        let mut session = context.session()?;
        let request = function(&mut session, which, NO_TAG);
        session.peer.send(&request)?;
        let itt = request.itt();
        let answers = [
            Answer::Managed(itt, NOT_SUPPORTED),
            Answer::Managed(itt, 255),
            Answer::Reject(reason::NOT_SUPPORTED),
            Answer::Reject(reason::PROTOCOL),
            Answer::Reject(reason::INVALID_FIELD),
            Answer::End,
        ];
        session.peer.expect("a function of no kind", &answers)?;
        if session.peer.manner.exact {
            session.still_works()?;
        }
    }
    Ok(())
}

fn functions_without_end(context: &mut Context) -> Result<(), Failure> {
    const FUNCTIONS: usize = 100;
    let mut session = context.session()?;
    let (mut bytes, mut tags) = (Vec::new(), Vec::new());
    for _ in 0..FUNCTIONS {
        let request = function(&mut session, function::ABORT_TASK_SET, NO_TAG);
        bytes.extend(request.encode(session.peer.format));
        tags.push(request.itt());
    }
    session.peer.send_bytes(&bytes)?;
    while !tags.is_empty() {
        match session.peer.receive() {
            Got::Pdu(reply)
                if reply.opcode() == opcode::MANAGED
                    && [COMPLETE, 255].contains(&reply.code())
                    && tags.contains(&reply.itt()) =>
            {
                tags.retain(|itt| *itt != reply.itt());
            }
            got => return Err(Failure::differs("many functions", "an answer to each", got)),
        }
    }
    session.still_works()
}

fn function_before_its_number(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let mut request = function(&mut session, function::ABORT_TASK_SET, NO_TAG);
    request.header[0] = opcode::MANAGEMENT;
    put_u32(
        &mut request.header,
        at::CMD_SN,
        session.cmd_sn.wrapping_sub(1),
    );
    session.peer.send(&request)?;
    session.peer.expect_silence("a function again", QUIET)?;
    session.still_works()
}
