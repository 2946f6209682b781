//! Groups 1 and 2: what a Login Request may say, in its header and in its text.

use crate::case::{Failure, check};
use crate::iscsi::Context;
use crate::iscsi::pdu::{CONTINUE, FINAL, Request, at, opcode, put_u32};
use crate::iscsi::peer::{Answer, BROKEN, Got, Peer};
use crate::iscsi::session::{FULL_FEATURE, Login, OPERATIONAL, SECURITY, Session, pairs, text};

cases! {
    1 login_version_1 [] "RFC 7143 11.12.4, 11.13.5": "a login of version 1 alone" => "Login Response 0205h, unsupported version";
    1 login_of_the_reserved_stage [] "RFC 7143 11.12.3, 11.13.5": "a login that begins in stage 2" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_of_the_full_feature_stage [] "RFC 7143 11.12.3, 11.13.5": "a login that begins in stage 3" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_to_the_reserved_stage [] "RFC 7143 11.12.3, 11.13.5": "a login that wants stage 2" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_backwards [] "RFC 7143 6.3, 11.13.5": "a login that wants the security stage after the operational one" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_to_its_own_stage [] "RFC 7143 6.3, 11.13.5": "a login that wants the stage that it is in" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_with_t_and_c [] "RFC 7143 11.12.2": "a login with T and C both" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_stage_jumps [] "RFC 7143 6.3, 11.13.5": "a second request of another stage than the first one asked for" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_isid_changes [] "RFC 7143 11.12.5": "a second request with another ISID" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_tsih_changes [] "RFC 7143 11.12.6": "a second request with another TSIH" => "Login Response 020bh, invalid during login; or 0200h or 020ah";
    1 login_cid_changes [] "RFC 7143 11.12.7": "a second request with another CID" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_tag_changes [] "RFC 7143 11.12": "a second request with another Initiator Task Tag" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_number_changes [] "RFC 7143 11.12.8": "a second request with another CmdSN" => "Login Response 020bh, invalid during login; or 0200h";
    1 login_to_a_session_that_is_not_there [] "RFC 7143 6.3.5, 11.13.5": "a login with a TSIH that no session has" => "Login Response 020ah, session does not exist";
    1 login_for_a_second_connection [] "RFC 7143 6.3.5, 11.13.5": "a login with the TSIH of a session that may have one connection" => "Login Response 0206h, too many connections, or 0208h; the session goes on";
    1 login_without_end [] "RFC 7143 6.3": "128 Login Requests without T" => "Login Response 020bh, or the end of the connection";
    1 login_is_not_final_without_text [] "RFC 7143 6.3": "a login without T, and then one with it" => "Login Response 0000h twice";
    1 login_in_pieces [] "RFC 7143 11": "a login that comes byte by byte" => "Login Response 0000h, and a session";
    1 login_in_one_segment [] "RFC 7143 11": "a login and a ping in one segment" => "Login Response 0000h, and NOP-In";
    1 login_reserved_bits [] "RFC 7143 11": "a login whose reserved bytes are FFh" => "Login Response 0000h: reserved fields are ignored";

    2 login_without_initiator_name [] "RFC 7143 6.3, 11.13.5": "a login without InitiatorName" => "Login Response 0207h, missing parameter";
    2 login_without_target_name [] "RFC 7143 6.3, 11.13.5": "a login without TargetName" => "Login Response 0207h, missing parameter";
    2 login_to_an_unknown_target [] "RFC 7143 11.13.5": "a login to a target that is not there" => "Login Response 0203h, not found";
    2 login_of_another_session_type [] "RFC 7143 11.13.5": "a login with SessionType=Other" => "Login Response 0209h, session type not supported";
    2 login_with_a_name_that_is_none [] "RFC 7143 4.2.7": "a login whose InitiatorName has a blank" => "Login Response 0200h, initiator error; or 0202h";
    2 login_with_a_long_name [] "RFC 7143 4.2.7": "a login whose InitiatorName has 224 bytes" => "Login Response 0200h, initiator error; or 0202h";
    2 login_key_without_value [] "RFC 7143 6.1": "a login with a key without =" => "Login Response 0200h, initiator error";
    2 login_key_without_a_name [] "RFC 7143 6.1": "a login with =value" => "Login Response 0200h, initiator error";
    2 login_long_key [] "RFC 7143 6.1": "a login with a key of 64 bytes" => "Login Response 0200h, initiator error; or NotUnderstood";
    2 login_long_value [] "RFC 7143 6.1": "a login with a value of 256 bytes" => "Login Response 0200h, initiator error; or NotUnderstood";
    2 login_text_that_does_not_end [] "RFC 7143 6.1": "a login whose text has no zero byte at its end" => "Login Response 0200h, initiator error";
    2 login_text_of_no_characters [] "RFC 7143 6.1": "a login whose text is no UTF-8" => "Login Response 0200h, initiator error";
    2 login_key_twice [] "RFC 7143 6.2": "a login that offers a key twice" => "Login Response 0200h, initiator error";
    2 login_key_again [] "RFC 7143 6.2": "a login that offers a key again in its next request" => "Login Response 0200h, initiator error";
    2 login_unknown_key [] "RFC 7143 6.2": "a login with a key that nobody knows" => "NotUnderstood, and Login Response 0000h";
    2 login_endless_text [] "RFC 7143 6.1": "1 MiB of text in requests with C" => "Login Response 0200h or 0302h, or the end of the connection";
    2 login_text_in_pieces [] "RFC 7143 6.1": "a login whose text is cut into requests of 7 bytes with C" => "Login Response 0000h";
    2 login_unknown_digest [] "RFC 7143 13.1": "HeaderDigest=Fletcher" => "HeaderDigest=Reject, or Login Response 0200h";
    2 login_segment_of_0 [] "RFC 7143 13.12": "MaxRecvDataSegmentLength=0" => "Reject, or Login Response 0200h";
    2 login_segment_of_2_to_24 [] "RFC 7143 13.12": "MaxRecvDataSegmentLength=16777216" => "Reject, or Login Response 0200h";
    2 login_number_that_is_none [] "RFC 7143 6.1": "MaxBurstLength=many" => "Reject, or Login Response 0200h";
    2 login_number_beyond_64_bits [] "RFC 7143 6.1": "MaxBurstLength of 40 digits" => "Reject, or Login Response 0200h";
    2 login_boolean_that_is_none [] "RFC 7143 6.1": "ImmediateData=Maybe" => "Reject, or Login Response 0200h";
    2 login_first_burst_above_max_burst [] "RFC 7143 13.14": "FirstBurstLength above MaxBurstLength" => "a FirstBurstLength that is not, Reject, or Login Response 0200h";
    2 login_recovery_level_2 [] "RFC 7143 13.20": "ErrorRecoveryLevel=2" => "a level of 0 to 2";
    2 login_answers_of_its_own [] "RFC 7143 6.2": "a login that offers NotUnderstood, Irrelevant and Reject" => "no answer to the key, Reject, or Login Response 0200h";
    2 login_method_that_is_unknown [] "RFC 7143 12": "AuthMethod=Magic" => "Login Response 0201h, authentication failure; or AuthMethod=Reject";
    2 login_leaves_security_without_a_method [] "RFC 7143 6.3.2": "a login that leaves the security stage without AuthMethod" => "Login Response 0000h where no proof is asked for, or 0201h";
}

/// Refused during login.
const INVALID: &[Answer] = &[Answer::Login(0x020b), Answer::Login(0x0200), Answer::End];
/// Text that is none.
const BAD_TEXT: &[Answer] = &[Answer::Login(0x0200), Answer::Login(0x0207), Answer::End];

/// Sends this as the first request, and waits for its refusal.
fn refused(context: &mut Context, request: &Request, answers: &[Answer]) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(request)?;
    ends(&mut peer, "a login", answers)
}

/// Waits for a refusal; of Weir, for the end of the connection too.
fn ends(peer: &mut Peer, what: &str, answers: &[Answer]) -> Result<(), Failure> {
    let got = peer.expect(what, answers)?;
    match got {
        Got::Pdu(_) if peer.manner.exact => peer.expect_end(what),
        _ => Ok(()),
    }
}

/// Sends a good first request without T, and then this one.
fn refused_second(
    context: &mut Context,
    change: impl FnOnce(&mut Request),
    answers: &[Answer],
) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    first_goes(&mut peer, &login)?;
    let mut second = login.request(SECURITY, OPERATIONAL, &[]);
    change(&mut second);
    put_u32(&mut second.header, at::EXP_STAT_SN, peer.exp_stat_sn());
    peer.send(&second)?;
    ends(&mut peer, "a second Login Request", answers)
}

/// A first request that is well, and stays in the security stage.
fn first_goes(peer: &mut Peer, login: &Login) -> Result<(), Failure> {
    let first = login.first().with(at::FLAGS, SECURITY << 2);
    peer.send(&first)?;
    peer.expect("a Login Request", &[Answer::Login(0)])
        .map(drop)
}

fn login_version_1(context: &mut Context) -> Result<(), Failure> {
    let request = context.login().first().with(2, 1).with(3, 1);
    refused(context, &request, &[Answer::Login(0x0205)])
}

fn begins(context: &mut Context, current: u8, next: u8) -> Result<(), Failure> {
    let login = context.login();
    let request = login.request(current, next, &login.whole().data);
    refused(context, &request, INVALID)
}

fn login_of_the_reserved_stage(context: &mut Context) -> Result<(), Failure> {
    begins(context, 2, FULL_FEATURE)
}

fn login_of_the_full_feature_stage(context: &mut Context) -> Result<(), Failure> {
    begins(context, FULL_FEATURE, FULL_FEATURE)
}

fn login_to_the_reserved_stage(context: &mut Context) -> Result<(), Failure> {
    begins(context, OPERATIONAL, 2)
}

fn login_backwards(context: &mut Context) -> Result<(), Failure> {
    begins(context, OPERATIONAL, SECURITY)
}

fn login_to_its_own_stage(context: &mut Context) -> Result<(), Failure> {
    begins(context, OPERATIONAL, OPERATIONAL)
}

fn login_with_t_and_c(context: &mut Context) -> Result<(), Failure> {
    let flags = FINAL | CONTINUE | OPERATIONAL;
    let request = context.login().first().with(at::FLAGS, flags);
    refused(context, &request, INVALID)
}

fn login_stage_jumps(context: &mut Context) -> Result<(), Failure> {
    let change = |request: &mut Request| {
        request.header[at::FLAGS] = FINAL | OPERATIONAL << 2 | FULL_FEATURE;
    };
    refused_second(context, change, INVALID)
}

fn login_isid_changes(context: &mut Context) -> Result<(), Failure> {
    refused_second(context, |request| request.header[at::LUN + 5] ^= 1, INVALID)
}

fn login_tsih_changes(context: &mut Context) -> Result<(), Failure> {
    let allowed = [INVALID, &[Answer::Login(0x020a)]].concat();
    refused_second(context, |request| request.header[at::TSIH] = 1, &allowed)
}

fn login_cid_changes(context: &mut Context) -> Result<(), Failure> {
    refused_second(context, |request| request.header[at::TTT] ^= 1, INVALID)
}

fn login_tag_changes(context: &mut Context) -> Result<(), Failure> {
    refused_second(context, |request| request.header[at::ITT] ^= 1, INVALID)
}

fn login_number_changes(context: &mut Context) -> Result<(), Failure> {
    let change = |request: &mut Request| request.header[at::CMD_SN + 3] ^= 0x40;
    refused_second(context, change, INVALID)
}

fn login_to_a_session_that_is_not_there(context: &mut Context) -> Result<(), Failure> {
    let mut login = context.login();
    login.tsih = 0xfffe;
    refused(context, &login.first(), &[Answer::Login(0x020a)])
}

fn login_for_a_second_connection(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let mut login = session.login.clone();
    login.tsih = session.tsih;
    let request = login.first().with(at::TTT + 1, 1);
    let answers = [Answer::Login(0x0206), Answer::Login(0x0208)];
    refused(context, &request, &answers)?;
    session.still_works()
}

fn login_without_end(context: &mut Context) -> Result<(), Failure> {
    const REQUESTS: u32 = 128;
    let login = context.login();
    let mut peer = context.peer()?;
    first_goes(&mut peer, &login)?;
    for _ in 1..REQUESTS {
        let request = login
            .request(SECURITY, OPERATIONAL, &[])
            .with(at::FLAGS, SECURITY << 2)
            .with_u32(at::EXP_STAT_SN, peer.exp_stat_sn());
        peer.send(&request)?;
        match peer.receive() {
            Got::Pdu(reply) if reply.login_status() == 0 => {}
            Got::Pdu(reply) if reply.login_status() == 0x020b => {
                return peer.expect_end("a login without end");
            }
            Got::Closed | Got::Reset if !peer.manner.exact => return Ok(()),
            got => return Err(Failure::differs("a login without end", "its refusal", got)),
        }
    }
    let got = format!("{REQUESTS} answers");
    Err(Failure::differs("a login without end", "its refusal", got))
}

fn login_is_not_final_without_text(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    first_goes(&mut peer, &login)?;
    let second = login
        .request(SECURITY, OPERATIONAL, &[])
        .with_u32(at::EXP_STAT_SN, peer.exp_stat_sn());
    peer.send(&second)?;
    let reply = peer.expect_pdu("a Login Request with T", &[Answer::Login(0)])?;
    check(
        reply.flags() & FINAL != 0,
        "its response",
        "T",
        format!("{:02x}h", reply.flags()),
    )
}

fn login_in_pieces(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    for byte in login.whole().encode(peer.format) {
        peer.send_bytes(&[byte])?;
    }
    let reply = peer.expect_pdu("a login in pieces", &[Answer::Login(0)])?;
    let agreed = pairs(&reply.data).into_iter().collect();
    Session::logged_in(peer, &login, &reply, agreed).still_works()
}

fn login_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    let ping = Request::new(opcode::NOP_OUT, 7)
        .immediate()
        .with_u32(at::TTT, u32::MAX)
        .with_u32(at::CMD_SN, 1);
    let both = [login.whole(), ping].map(|request| request.encode(peer.format));
    peer.send_bytes(&both.concat())?;
    peer.expect("a login", &[Answer::Login(0)])?;
    peer.expect("a ping behind it", &[Answer::Ping(7)])
        .map(drop)
}

fn login_reserved_bits(context: &mut Context) -> Result<(), Failure> {
    let mut request = context.login().whole();
    request.header[22..24].fill(0xff);
    request.header[32..48].fill(0xff);
    request.header[at::FLAGS] |= 0x30;
    let mut peer = context.peer()?;
    peer.send(&request)?;
    peer.expect("a login", &[Answer::Login(0)]).map(drop)
}

/// A first request of this text alone.
fn refused_text(context: &mut Context, text: &[u8], answers: &[Answer]) -> Result<(), Failure> {
    let request = context.login().request(SECURITY, OPERATIONAL, text);
    refused(context, &request, answers)
}

/// A first request whose text is that of a good login with this behind it.
fn refused_with(context: &mut Context, more: &[u8], answers: &[Answer]) -> Result<(), Failure> {
    let text = [&context.login().first().data[..], more].concat();
    refused_text(context, &text, answers)
}

/// A first request that says this in place of what the login says of a key.
fn refused_identity(
    context: &mut Context,
    key: &'static str,
    value: Option<&str>,
    answers: &[Answer],
) -> Result<(), Failure> {
    let mut keys = context.login().identity();
    keys.retain(|(other, _)| *other != key);
    keys.extend(value.map(|value| (key, value.to_owned())));
    keys.push(("AuthMethod", "None".into()));
    refused_text(context, &text(&keys), answers)
}

fn login_without_initiator_name(context: &mut Context) -> Result<(), Failure> {
    refused_identity(context, "InitiatorName", None, &[Answer::Login(0x0207)])
}

fn login_without_target_name(context: &mut Context) -> Result<(), Failure> {
    refused_identity(context, "TargetName", None, &[Answer::Login(0x0207)])
}

fn login_to_an_unknown_target(context: &mut Context) -> Result<(), Failure> {
    let other = Some("iqn.2026-01.org.example:there.is.no.such.target");
    refused_identity(context, "TargetName", other, &[Answer::Login(0x0203)])
}

fn login_of_another_session_type(context: &mut Context) -> Result<(), Failure> {
    let answers = [Answer::Login(0x0209), Answer::Login(0x0200)];
    refused_identity(context, "SessionType", Some("Other"), &answers)
}

fn with_name(context: &mut Context, name: &str) -> Result<(), Failure> {
    let answers = [
        Answer::Login(0x0200),
        Answer::Login(0x0202),
        Answer::Login(0x0207),
    ];
    refused_identity(context, "InitiatorName", Some(name), &answers)
}

fn login_with_a_name_that_is_none(context: &mut Context) -> Result<(), Failure> {
    with_name(context, "iqn.2026-01.org.example:a b")
}

fn login_with_a_long_name(context: &mut Context) -> Result<(), Failure> {
    let name = format!("iqn.2026-01.org.example:{}", "a".repeat(200));
    with_name(context, &name)
}

fn login_key_without_value(context: &mut Context) -> Result<(), Failure> {
    refused_with(context, b"HeaderDigest\0", BAD_TEXT)
}

fn login_key_without_a_name(context: &mut Context) -> Result<(), Failure> {
    refused_with(context, b"=None\0", BAD_TEXT)
}

fn login_long_key(context: &mut Context) -> Result<(), Failure> {
    let key = format!("X-{}=1\0", "a".repeat(62));
    let allowed = [BAD_TEXT, &[Answer::Login(0)]].concat();
    refused_with(context, key.as_bytes(), &allowed)
}

fn login_long_value(context: &mut Context) -> Result<(), Failure> {
    let key = format!("X-org.example.key={}\0", "a".repeat(256));
    let allowed = [BAD_TEXT, &[Answer::Login(0)]].concat();
    refused_with(context, key.as_bytes(), &allowed)
}

fn login_text_that_does_not_end(context: &mut Context) -> Result<(), Failure> {
    let allowed = [BAD_TEXT, &[Answer::Login(0)]].concat();
    refused_with(context, b"InitiatorAlias=weir", &allowed)
}

fn login_text_of_no_characters(context: &mut Context) -> Result<(), Failure> {
    let allowed = [BAD_TEXT, &[Answer::Login(0)]].concat();
    refused_with(context, b"InitiatorAlias=\xff\xfe\0", &allowed)
}

fn login_key_twice(context: &mut Context) -> Result<(), Failure> {
    let allowed = [BAD_TEXT, &[Answer::Login(0)]].concat();
    let name = context.login().initiator;
    refused_with(
        context,
        format!("InitiatorName={name}\0").as_bytes(),
        &allowed,
    )
}

fn login_key_again(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    let offer = b"MaxBurstLength=262144\0MaxConnections=1\0";
    let keys = [&text(&login.identity())[..], offer].concat();
    let first = login.request(OPERATIONAL, FULL_FEATURE, &keys);
    peer.send(&first.with(at::FLAGS, OPERATIONAL << 2))?;
    peer.expect("a Login Request", &[Answer::Login(0)])?;
    let second = login.request(OPERATIONAL, FULL_FEATURE, offer);
    peer.send(&second.with_u32(at::EXP_STAT_SN, peer.exp_stat_sn()))?;
    let allowed = [BAD_TEXT, &[Answer::Login(0)]].concat();
    ends(&mut peer, "a key that was agreed", &allowed)
}

/// Answer to a key that is offered in the operational stage. None: the login was refused, as it may be.
fn answer_to(
    context: &mut Context,
    key: &'static str,
    value: &str,
) -> Result<Option<String>, Failure> {
    let login = context.login().with(key, value);
    let mut peer = context.peer()?;
    peer.send(&login.whole())?;
    let answers = [Answer::Login(0), Answer::Login(0x0200)];
    let what = format!("{key}={}", &value[..value.len().min(40)]);
    // Either is Weir's: what it refuses is judged by the value.
    let got = peer.receive();
    let reply = match got {
        Got::Pdu(reply) if [0, 0x0200].contains(&reply.login_status()) => reply,
        got => {
            let expected = format!("{}, or {}", answers[0], answers[1]);
            return Err(Failure::differs(what, expected, got));
        }
    };
    if reply.login_status() != 0 {
        return Ok(None);
    }
    let answer = pairs(&reply.data).into_iter().find(|(one, _)| one == key);
    match answer {
        Some((_, value)) => Ok(Some(value)),
        // What is itself an answer has none.
        None if ANSWERS.contains(&value) => Ok(None),
        None => Err(Failure::differs(what, "an answer to the key", "none")),
    }
}

/// Values that answer a key, and offer none (RFC 7143, section 6.2).
const ANSWERS: [&str; 3] = ["NotUnderstood", "Irrelevant", "Reject"];

/// A value that cannot be is answered by Reject, or refuses the login.
fn rejected(context: &mut Context, key: &'static str, value: &str) -> Result<(), Failure> {
    match answer_to(context, key, value)? {
        Some(answer) => check(
            answer == "Reject",
            format!("{key}={}", &value[..value.len().min(40)]),
            "Reject, or Login Response 0200h",
            answer,
        ),
        None => Ok(()),
    }
}

fn login_unknown_key(context: &mut Context) -> Result<(), Failure> {
    let answer = answer_to(context, "X-org.example.magic", "Yes")?;
    let answer = answer.unwrap_or_default();
    check(
        answer == "NotUnderstood",
        "a key that nobody knows",
        "NotUnderstood",
        answer,
    )
}

fn login_endless_text(context: &mut Context) -> Result<(), Failure> {
    const PIECE: usize = 4096;
    const PIECES: usize = 256;
    let login = context.login();
    let mut peer = context.peer()?;
    let mut piece = login.first().data;
    for number in 0..PIECES {
        piece.resize(PIECE, b'a');
        let request = login
            .request(SECURITY, OPERATIONAL, &piece)
            .with(at::FLAGS, CONTINUE | SECURITY << 2)
            .with_u32(at::EXP_STAT_SN, peer.exp_stat_sn());
        peer.send(&request)?;
        match peer.receive() {
            Got::Pdu(reply) if reply.login_status() == 0 => {}
            Got::Pdu(reply) if [0x0200, 0x0302].contains(&reply.login_status()) => {
                return peer.expect_end("endless text");
            }
            Got::Closed | Got::Reset if !peer.manner.exact => return Ok(()),
            got => return Err(Failure::differs("endless text", "its refusal", got)),
        }
        piece = match number {
            0 => b"X-org.example.key=".to_vec(),
            _ => Vec::new(),
        };
    }
    let got = format!("{PIECES} pieces were taken");
    Err(Failure::differs("endless text", "its refusal", got))
}

fn login_text_in_pieces(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    let whole = login.whole().data;
    // Fewer requests than a login may have.
    let piece = (whole.len() / 30).max(7);
    let parts = whole.chunks(piece).count();
    for (number, part) in whole.chunks(piece).enumerate() {
        let flags = match number + 1 == parts {
            true => FINAL | OPERATIONAL << 2 | FULL_FEATURE,
            false => CONTINUE | OPERATIONAL << 2,
        };
        let request = login
            .request(OPERATIONAL, FULL_FEATURE, part)
            .with(at::FLAGS, flags)
            .with_u32(at::EXP_STAT_SN, peer.exp_stat_sn());
        peer.send(&request)?;
        let reply = peer.expect_pdu("a piece of text", &[Answer::Login(0)])?;
        if number + 1 == parts {
            let agreed = pairs(&reply.data).into_iter().collect();
            return Session::logged_in(peer, &login, &reply, agreed).still_works();
        }
    }
    unreachable!("the last piece returns")
}

fn login_unknown_digest(context: &mut Context) -> Result<(), Failure> {
    rejected(context, "HeaderDigest", "Fletcher")
}

fn login_segment_of_0(context: &mut Context) -> Result<(), Failure> {
    rejected(context, "MaxRecvDataSegmentLength", "0")
}

fn login_segment_of_2_to_24(context: &mut Context) -> Result<(), Failure> {
    rejected(context, "MaxRecvDataSegmentLength", "16777216")
}

fn login_number_that_is_none(context: &mut Context) -> Result<(), Failure> {
    rejected(context, "MaxBurstLength", "many")
}

fn login_number_beyond_64_bits(context: &mut Context) -> Result<(), Failure> {
    rejected(context, "MaxBurstLength", &"9".repeat(40))
}

fn login_boolean_that_is_none(context: &mut Context) -> Result<(), Failure> {
    rejected(context, "ImmediateData", "Maybe")
}

fn login_first_burst_above_max_burst(context: &mut Context) -> Result<(), Failure> {
    let login = context
        .login()
        .with("MaxBurstLength", 4096)
        .with("FirstBurstLength", 1 << 20);
    let mut peer = context.peer()?;
    peer.send(&login.whole())?;
    let reply = match peer.receive() {
        Got::Pdu(reply) if reply.login_status() == 0 => reply,
        Got::Pdu(reply) if reply.login_status() == 0x0200 => return Ok(()),
        got => return Err(Failure::differs("such a login", "its answer", got)),
    };
    let agreed: std::collections::BTreeMap<_, _> = pairs(&reply.data).into_iter().collect();
    let number = |key: &str, offered: u64| match agreed.get(key) {
        Some(value) => value.parse().unwrap_or(0),
        None => offered,
    };
    let (first, max) = (
        number("FirstBurstLength", 1 << 20),
        number("MaxBurstLength", 4096),
    );
    check(
        first <= max,
        "FirstBurstLength",
        format!("at most MaxBurstLength, {max}"),
        first,
    )
}

fn login_recovery_level_2(context: &mut Context) -> Result<(), Failure> {
    let answer = answer_to(context, "ErrorRecoveryLevel", "2")?;
    let answer = answer.unwrap_or_default();
    let allowed: &[&str] = match context.manner.exact {
        true => &["0"],
        false => &["0", "1", "2"],
    };
    let holds = allowed.contains(&answer.as_str());
    check(holds, "ErrorRecoveryLevel=2", allowed.join(" or "), answer)
}

fn login_answers_of_its_own(context: &mut Context) -> Result<(), Failure> {
    for value in ANSWERS {
        // What is agreed is nothing that the value stands for.
        if let Some(answer) = answer_to(context, "MaxBurstLength", value)? {
            let is_number = answer.parse::<u32>().is_ok();
            let holds = is_number || ["Reject", "Irrelevant"].contains(&answer.as_str());
            check(
                holds,
                format!("MaxBurstLength={value}"),
                "Reject, or Login Response 0200h",
                answer,
            )?;
        }
    }
    Ok(())
}

fn login_method_that_is_unknown(context: &mut Context) -> Result<(), Failure> {
    let mut keys = context.login().identity();
    keys.push(("AuthMethod", "Magic".into()));
    let answers = [
        Answer::Login(0x0201),
        Answer::Login(0x0200),
        Answer::Login(0),
    ];
    refused_text(context, &text(&keys), &answers)
}

fn login_leaves_security_without_a_method(context: &mut Context) -> Result<(), Failure> {
    let login = context.login();
    let mut peer = context.peer()?;
    peer.send(&login.request(SECURITY, OPERATIONAL, &text(&login.identity())))?;
    let answers = [Answer::Login(0), Answer::Login(0x0201), BROKEN[1]];
    peer.expect("a login without AuthMethod", &answers)
        .map(drop)
}
