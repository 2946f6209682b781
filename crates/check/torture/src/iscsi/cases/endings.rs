//! Group 10: connections and sessions that end, and what becomes of what they had under way.

use std::time::{Duration, Instant};

use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::iscsi::Context;
use crate::iscsi::pdu::{HEADER, NO_TAG, Request, at, opcode};
use crate::iscsi::peer::{Answer, Got, Peer};
use crate::iscsi::session::{READ_16, Session, WRITE_16, transfer};

cases! {
    10 reinstatement [] "RFC 7143 6.3.5": "a login with the ISID of a session that is there" => "Login Response 0000h, and the end of the old session";
    10 reinstatement_with_writes [WRITES] "RFC 7143 6.3.5": "the same, with a write of the old session that awaits its data" => "Login Response 0000h; the old write has written nothing";
    10 reinstatement_race [] "RFC 7143 6.3.5": "eight logins with one ISID at once" => "one session in the end";
    10 reinstatement_of_another_initiator [] "RFC 7143 6.3.5": "a login with the ISID of another initiator's session" => "Login Response 0000h, and both sessions";
    10 logout_with_writes [WRITES] "RFC 7143 11.14": "a logout with a write that awaits its data" => "Logout Response 0, and the end of the connection; the write has written nothing";
    10 reset_with_reads [] "RFC 7143 7.5": "a reset with reads under way" => "the end of the session alone";
    10 reset_with_writes [WRITES] "RFC 7143 7.5": "a reset inside the data of a write" => "the end of the session; nothing is written";
    10 end_inside_a_header [] "RFC 7143 7.5": "the end of the connection (FIN) inside a header" => "the end of the connection";
    10 end_inside_data [WRITES] "RFC 7143 7.5": "the end of the connection (FIN) inside immediate data" => "the end of the connection; nothing is written";
    10 end_inside_a_login [] "RFC 7143 6.3": "connections that end inside their login, 64 times" => "nothing is left";
    10 other_protocols [] "RFC 7143 6.3": "HTTP, TLS, SSH and NVMe/TCP on the port" => "the end of the connection, or a refusal";
    10 silent_login [SHORT_LIMITS] "RFC 7143 6.3, 7.5": "a connection that says nothing" => "its end, once a login takes too long";
    10 slow_login [SHORT_LIMITS] "RFC 7143 6.3, 7.5": "a login that stops after its first request" => "the end of the connection";
    10 half_open_logins [SHORT_LIMITS] "RFC 7143 6.3, 7.5": "more silent connections than may be half open" => "other hosts are served";
    10 silence_inside_a_header [SHORT_LIMITS] "RFC 7143 6.3, 7.5": "half of a header, and then silence" => "the end of the connection";
    10 silence_inside_data_out [SHORT_LIMITS, WRITES] "RFC 7143 6.3, 7.5": "a write whose data does not come" => "the end of the connection; nothing is written";
}

fn reinstatement(context: &mut Context) -> Result<(), Failure> {
    let mut old = context.session()?;
    let mut new = context.session_with(&old.login.clone())?;
    old.peer.expect_end("the old session")?;
    new.still_works()
}

/// A session with a write from LBA 0 on that awaits its data, the write, its transfer tag, and what the block holds.
fn with_a_write(context: &Context) -> Result<(Session, u32, u32, Vec<u8>), Failure> {
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let before = session.read(0, 1, block)?;
    let write = session.command(&transfer(WRITE_16, 0, 1), 0, block);
    session.peer.send(&write)?;
    let itt = write.itt();
    let r2t = session.peer.expect_pdu("a write", &[Answer::R2t(itt)])?;
    Ok((session, itt, r2t.ttt(), before))
}

/// A new session finds the block as it was.
fn unchanged(context: &Context, before: &[u8]) -> Result<(), Failure> {
    let after = context.session()?.read(0, 1, context.facts.block_bytes)?;
    check(after == before, "the block", "what it held", "other data")
}

fn reinstatement_with_writes(context: &mut Context) -> Result<(), Failure> {
    let (mut old, itt, ttt, before) = with_a_write(context)?;
    let mut new = context.session_with(&old.login.clone())?;
    old.send_data(itt, ttt, 0, &vec![0xee; before.len()])?;
    old.peer.expect_end("the old session")?;
    new.still_works()?;
    unchanged(context, &before)
}

fn reinstatement_race(context: &mut Context) -> Result<(), Failure> {
    const LOGINS: usize = 8;
    let login = context.login();
    let mut peers = Vec::new();
    for _ in 0..LOGINS {
        let mut peer = context.peer()?;
        peer.send(&login.whole())?;
        peers.push(peer);
    }
    // Which of them is the last is not known before all others have ended.
    let began = Instant::now();
    while peers.len() > 1 {
        peers.retain_mut(|peer| !matches!(peer.receive_within(QUIET), Got::Closed | Got::Reset));
        check(
            began.elapsed() < context.manner.patience,
            "sessions with one ISID",
            "one that goes on",
            peers.len(),
        )?;
    }
    let Some(mut last) = peers.pop() else {
        return Err(Failure::differs("sessions with one ISID", "one", "none"));
    };
    let ping = Request::new(opcode::NOP_OUT, 7)
        .immediate()
        .with_u32(at::TTT, NO_TAG)
        .with_u32(at::CMD_SN, last.window.0)
        .with_u32(at::EXP_STAT_SN, last.exp_stat_sn());
    last.send(&ping)?;
    let answers = [Answer::Ping(7), Answer::Login(0)];
    let manner = last.manner;
    // Its login may not have been answered before.
    last.manner.exact = false;
    if matches!(last.expect("the last session", &answers)?, Got::Pdu(reply) if reply.itt() != 7) {
        last.expect("the last session", &answers)?;
    }
    last.manner = manner;
    Ok(())
}

fn reinstatement_of_another_initiator(context: &mut Context) -> Result<(), Failure> {
    let mut one = context.session()?;
    let mut login = one.login.clone();
    login.initiator = context.target.witness.clone();
    if login.initiator == one.login.initiator {
        let why = "two initiators";
        return Err(Failure::NotOffered(why.into()));
    }
    let mut other = context.session_with(&login)?;
    one.still_works()?;
    other.still_works()
}

fn logout_with_writes(context: &mut Context) -> Result<(), Failure> {
    let (mut session, _, _, before) = with_a_write(context)?;
    let itt = session.tag();
    let logout = Request::new(opcode::LOGOUT, itt).immediate();
    let logout = session.numbered(logout);
    session.peer.send(&logout)?;
    session
        .peer
        .expect("a logout", &[Answer::LoggedOut(itt, 0)])?;
    session.peer.expect_end("a logout")?;
    unchanged(context, &before)
}

fn reset_with_reads(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let block = context.facts.block_bytes;
    for _ in 0..4 {
        session.await_window(1)?;
        let read = session.command(&transfer(READ_16, 0, 64), 64 * block, 0);
        session.peer.send(&read)?;
    }
    session.peer.reset();
    context.session()?.still_works()
}

fn reset_with_writes(context: &mut Context) -> Result<(), Failure> {
    let (mut session, itt, ttt, before) = with_a_write(context)?;
    let data = session.data_out(itt, ttt, 0, &vec![0xee; before.len()], 0, true);
    let bytes = data.encode(session.peer.format);
    session.peer.send_bytes(&bytes[..bytes.len() - 8])?;
    session.peer.reset();
    unchanged(context, &before)
}

fn end_inside_a_header(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let ping = session.request(opcode::NOP_OUT).with_u32(at::TTT, NO_TAG);
    let bytes = ping.encode(session.peer.format);
    session.peer.send_bytes(&bytes[..HEADER / 2])?;
    session.peer.finish_sending();
    session.peer.expect_end("half of a header")
}

fn end_inside_data(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let before = session.read(0, 1, block)?;
    let write = session
        .command(&transfer(WRITE_16, 0, 1), 0, block)
        .carrying(&vec![0xee; block as usize]);
    let bytes = write.encode(session.peer.format);
    session.peer.send_bytes(&bytes[..bytes.len() - 8])?;
    session.peer.finish_sending();
    session.peer.expect_end("half of the data")?;
    unchanged(context, &before)
}

fn end_inside_a_login(context: &mut Context) -> Result<(), Failure> {
    let bytes = context.login().first().encode(Default::default());
    for number in 0..64 {
        let mut peer = context.peer()?;
        peer.send_bytes(&bytes[..bytes.len() * number / 64])?;
        if number % 2 == 0 {
            peer.reset();
        }
    }
    context.session()?.still_works()
}

fn other_protocols(context: &mut Context) -> Result<(), Failure> {
    let http = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    // A ClientHello of TLS, the version line of SSH, an ICReq of NVMe/TCP: their beginnings, and zeros.
    let tls = b"\x16\x03\x01\x00\xf8\x01\x00\x00\xf4\x03\x03";
    let ssh = b"SSH-2.0-weir\r\n";
    let nvme = b"\x00\x00\x80\x00\x80\x00\x00\x00";
    for beginning in [&http[..], tls, ssh, nvme] {
        let mut bytes = beginning.to_vec();
        bytes.resize(256, 0);
        let mut peer = context.peer()?;
        peer.send_bytes(&bytes)?;
        peer.finish_sending();
        let answers = [Answer::End, Answer::Login(0x0200), Answer::Login(0x020b)];
        peer.expect("another protocol", &answers)?;
    }
    Ok(())
}

/// The connection ends within the limit, and not at once.
fn ends_in_time(peer: &mut Peer, what: &str, limit: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    peer.expect_end(what)?;
    check(
        began.elapsed() >= limit / 4,
        what,
        format!("a time of about {limit:?}"),
        format!("{:?}", began.elapsed()),
    )
}

fn silent_login(context: &mut Context) -> Result<(), Failure> {
    let limit = context.short_limits()?.handshake_time;
    let mut peer = context.peer()?;
    ends_in_time(&mut peer, "a silent connection", limit)
}

fn slow_login(context: &mut Context) -> Result<(), Failure> {
    let limit = context.short_limits()?.handshake_time;
    let mut peer = context.peer()?;
    peer.send(&context.login().first())?;
    peer.expect("a Login Request", &[Answer::Login(0)])?;
    ends_in_time(&mut peer, "a login that stops", limit)
}

fn half_open_logins(context: &mut Context) -> Result<(), Failure> {
    let limits = context.short_limits()?;
    let silent: Result<Vec<_>, _> = (0..limits.half_open_max * 2)
        .map(|_| context.peer())
        .collect();
    let silent = silent?;
    // Once the first have had their time, whoever logs in is served.
    context.eventually("a login beside silent connections", |context| {
        Ok(context
            .session()
            .and_then(|mut one| one.still_works())
            .is_ok())
    })?;
    drop(silent);
    Ok(())
}

fn silence_inside_a_header(context: &mut Context) -> Result<(), Failure> {
    let limit = context.short_limits()?.progress_time;
    let mut session = context.session()?;
    let ping = session.request(opcode::NOP_OUT).with_u32(at::TTT, NO_TAG);
    let bytes = ping.encode(session.peer.format);
    session.peer.send_bytes(&bytes[..HEADER / 2])?;
    ends_in_time(&mut session.peer, "half of a header", limit)
}

fn silence_inside_data_out(context: &mut Context) -> Result<(), Failure> {
    let limit = context.short_limits()?.progress_time;
    let (mut session, _, _, before) = with_a_write(context)?;
    ends_in_time(&mut session.peer, "data that does not come", limit)?;
    unchanged(context, &before)
}
