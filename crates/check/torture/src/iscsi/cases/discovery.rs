//! Group 11: discovery sessions, and text requests.

use crate::case::{Failure, check};
use crate::iscsi::Context;
use crate::iscsi::pdu::{CONTINUE, FINAL, NO_TAG, Reply, Request, at, opcode, reason};
use crate::iscsi::peer::{Answer, BROKEN, Got};
use crate::iscsi::session::{Session, pairs};

cases! {
    11 discovery [] "RFC 7143 4.3, 13.3": "SendTargets=All in a discovery session" => "the target and its addresses";
    11 command_in_discovery [] "RFC 7143 4.3": "a SCSI Command in a discovery session" => "Reject, Command not supported; or the end of the connection";
    11 management_in_discovery [] "RFC 7143 4.3": "a task management function in a discovery session" => "Reject, Command not supported; or the end of the connection";
    11 discovery_of_one [] "RFC 7143 13.3": "SendTargets of the target's name" => "the target and its addresses";
    11 discovery_of_none [] "RFC 7143 13.3": "SendTargets of a name that is not there" => "no target";
    11 all_in_a_normal_session [] "RFC 7143 appendix C": "SendTargets=All in a normal session" => "SendTargets=Reject; or the end of the connection";
    11 unknown_key_in_text [] "RFC 7143 6.2": "a text request with a key that nobody knows" => "NotUnderstood";
    11 text_without_value [] "RFC 7143 6.1": "a text request with a key without =" => "Reject; or the end of the connection";
    11 text_of_another_exchange [] "RFC 7143 11.10.4": "a text request with a transfer tag that was not given" => "Reject; or the end of the connection";
    11 text_that_goes_on [] "RFC 7143 11.10.2": "a text request in two parts" => "an empty response to the first, and the answer";
    11 text_without_end [] "RFC 7143 11.10.2": "64 KiB of text in requests with C" => "Reject; or the end of the connection";
    11 text_with_f_and_c [] "RFC 7143 11.10.2": "a text request with F and C" => "Reject; or a response";
    11 five_hundred_keys [] "RFC 7143 6.2": "a text request with 500 unknown keys" => "NotUnderstood for each";
}

fn discover(context: &Context) -> Result<Session, Failure> {
    context.session_with(&context.discovery())
}

/// A text request of its own.
fn request(session: &mut Session, text: &[u8]) -> Request {
    session
        .request(opcode::TEXT)
        .with_u32(at::TTT, NO_TAG)
        .carrying(text)
}

/// The whole answer to a text request, as pairs.
fn asks(session: &mut Session, text: &[u8]) -> Result<Vec<(String, String)>, Failure> {
    let first = request(session, text);
    let itt = first.itt();
    session.peer.send(&first)?;
    let mut all = Vec::new();
    for _ in 0..1000 {
        let reply = session
            .peer
            .expect_pdu("a text request", &[Answer::Text(itt)])?;
        all.extend_from_slice(&reply.data);
        if reply.flags() & FINAL != 0 {
            return Ok(pairs(&all));
        }
        go_on(session, &reply)?;
    }
    Err(Failure::differs(
        "a text request",
        "an answer that ends",
        "1,000 parts",
    ))
}

/// Asks for the rest of an answer.
fn go_on(session: &mut Session, reply: &Reply) -> Result<(), Failure> {
    let request = session
        .request(opcode::TEXT)
        .with_u32(at::ITT, reply.itt())
        .with_u32(at::TTT, reply.ttt());
    session.peer.send(&request)
}

/// The target is among what was found, with an address.
fn finds(context: &Context, found: &[(String, String)]) -> Result<(), Failure> {
    let name = &context.target.name;
    let at = found
        .iter()
        .position(|(key, value)| key == "TargetName" && value == name);
    let address = at.and_then(|at| found.get(at + 1));
    check(
        address.is_some_and(|(key, _)| key == "TargetAddress"),
        "SendTargets",
        format!("{name} and its address"),
        format!("{found:?}"),
    )
}

fn discovery(context: &mut Context) -> Result<(), Failure> {
    let mut session = discover(context)?;
    let found = asks(&mut session, b"SendTargets=All\0")?;
    finds(context, &found)?;
    session.still_works()
}

/// A request that a discovery session does not take.
fn not_in_discovery(context: &mut Context, opcode: u8) -> Result<(), Failure> {
    let mut session = discover(context)?;
    let itt = session.tag();
    let request = Request::new(opcode, itt)
        .immediate()
        .with(at::FLAGS, FINAL | 1);
    let request = session.numbered(request);
    session.peer.send(&request)?;
    let answers = [
        Answer::Reject(reason::NOT_SUPPORTED),
        Answer::Reject(reason::PROTOCOL),
        Answer::Reject(reason::INVALID_FIELD),
        Answer::End,
    ];
    session.peer.expect("such a request", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn command_in_discovery(context: &mut Context) -> Result<(), Failure> {
    not_in_discovery(context, opcode::COMMAND)
}

fn management_in_discovery(context: &mut Context) -> Result<(), Failure> {
    not_in_discovery(context, opcode::MANAGEMENT)
}

fn discovery_of_one(context: &mut Context) -> Result<(), Failure> {
    let mut session = discover(context)?;
    let text = format!("SendTargets={}\0", context.target.name);
    let found = asks(&mut session, text.as_bytes())?;
    finds(context, &found)
}

fn discovery_of_none(context: &mut Context) -> Result<(), Failure> {
    let mut session = discover(context)?;
    let text = b"SendTargets=iqn.2026-01.org.example:there.is.none\0";
    let found = asks(&mut session, text)?;
    let none = found.iter().all(|(key, _)| key != "TargetName");
    check(
        none,
        "SendTargets of no target",
        "no target",
        format!("{found:?}"),
    )
}

fn all_in_a_normal_session(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let found = asks(&mut session, b"SendTargets=All\0")?;
    if session.peer.manner.exact {
        let expected = [("SendTargets".to_owned(), "Reject".to_owned())];
        check(
            found == expected,
            "SendTargets=All",
            "SendTargets=Reject",
            format!("{found:?}"),
        )?;
    }
    session.still_works()
}

fn unknown_key_in_text(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let found = asks(&mut session, b"X-org.example.magic=1\0")?;
    let expected = [("X-org.example.magic".to_owned(), "NotUnderstood".to_owned())];
    check(
        found == expected,
        "an unknown key",
        "NotUnderstood",
        format!("{found:?}"),
    )
}

/// A text request that makes no sense.
fn refused(session: &mut Session, request: &Request) -> Result<(), Failure> {
    session.peer.send(request)?;
    let answers = [
        Answer::Reject(reason::PROTOCOL),
        Answer::Reject(reason::INVALID_FIELD),
        Answer::End,
        Answer::Reject(reason::NOT_SUPPORTED),
    ];
    session.peer.expect("such a text request", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn text_without_value(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = request(&mut session, b"SendTargets\0");
    refused(&mut session, &request)
}

fn text_of_another_exchange(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let request = request(&mut session, b"").with_u32(at::TTT, 0x1234_5678);
    session.peer.send(&request)?;
    let answers = [
        Answer::Reject(reason::INVALID_FIELD),
        Answer::Reject(reason::PROTOCOL),
        Answer::End,
    ];
    session.peer.expect("such a text request", &answers)?;
    match session.peer.manner.exact {
        true => session.still_works(),
        false => Ok(()),
    }
}

fn text_that_goes_on(context: &mut Context) -> Result<(), Failure> {
    let mut session = discover(context)?;
    let first = request(&mut session, b"SendTar").with(at::FLAGS, CONTINUE);
    let itt = first.itt();
    session.peer.send(&first)?;
    let reply = session
        .peer
        .expect_pdu("the first part", &[Answer::Text(itt)])?;
    check(
        reply.flags() & FINAL == 0 && reply.data.is_empty() && reply.ttt() != NO_TAG,
        "the response to the first part",
        "one without F and data, with a transfer tag",
        format!("flags {:02x}h, {} bytes", reply.flags(), reply.data.len()),
    )?;
    let second = session
        .request(opcode::TEXT)
        .with_u32(at::ITT, itt)
        .with_u32(at::TTT, reply.ttt())
        .carrying(b"gets=All\0");
    session.peer.send(&second)?;
    let reply = session
        .peer
        .expect_pdu("the second part", &[Answer::Text(itt)])?;
    finds(context, &pairs(&reply.data))
}

fn text_without_end(context: &mut Context) -> Result<(), Failure> {
    const PART: usize = 4096;
    const PARTS: usize = 16;
    let mut session = context.session()?;
    let mut ttt = NO_TAG;
    let first = request(&mut session, &[]);
    let itt = first.itt();
    session.cmd_sn = session.cmd_sn.wrapping_sub(1);
    for _ in 0..PARTS {
        let part = session
            .request(opcode::TEXT)
            .with_u32(at::ITT, itt)
            .with_u32(at::TTT, ttt)
            .with(at::FLAGS, CONTINUE)
            .carrying(&[b'a'; PART]);
        session.peer.send(&part)?;
        match session.peer.receive() {
            Got::Pdu(reply) if reply.opcode() == opcode::TEXT_RESPONSE => ttt = reply.ttt(),
            Got::Pdu(reply) if reply.opcode() == opcode::REJECT => {
                return match session.peer.manner.exact {
                    true => session.still_works(),
                    false => Ok(()),
                };
            }
            Got::Closed | Got::Reset if !session.peer.manner.exact => return Ok(()),
            got => return Err(Failure::differs("endless text", "Reject", got)),
        }
    }
    let got = format!("{PARTS} parts were taken");
    Err(Failure::differs("endless text", "Reject", got))
}

fn text_with_f_and_c(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let both = request(&mut session, b"SendTargets=\0").with(at::FLAGS, FINAL | CONTINUE);
    let itt = both.itt();
    session.peer.send(&both)?;
    let answers = [
        Answer::Reject(reason::PROTOCOL),
        Answer::Text(itt),
        Answer::Reject(reason::INVALID_FIELD),
    ];
    session
        .peer
        .expect("F and C", &[&answers[..], BROKEN].concat())
        .map(drop)
}

fn five_hundred_keys(context: &mut Context) -> Result<(), Failure> {
    const KEYS: usize = 500;
    let mut session = context.session()?;
    let text: String = (0..KEYS).map(|at| format!("X-{at}=\0")).collect();
    let found = asks(&mut session, text.as_bytes())?;
    let not_understood = found.iter().all(|(_, value)| value == "NotUnderstood");
    check(
        found.len() == KEYS && not_understood,
        "many keys",
        format!("NotUnderstood for {KEYS}"),
        format!("{} answers", found.len()),
    )
}
