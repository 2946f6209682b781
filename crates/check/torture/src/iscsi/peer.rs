//! One iSCSI connection of a scripted initiator: it reads whole PDUs by a deadline, checks their numbers, and expects answers.
//!
//! By itself it answers nothing but the target's pings, which are told to nobody.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::case::Failure;
use crate::connection::{Connection, End, Manner};
use crate::iscsi::pdu::{Format, NO_TAG, Reply, Request, at, length_of, opcode, parse, reason};

/// Something that came from a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// A PDU.
    Pdu(Reply),
    /// The target closed the connection in order.
    Closed,
    /// The target reset the connection.
    Reset,
    /// Nothing came for so long.
    Nothing(Duration),
    /// Bytes that are no PDU of a target; why not.
    Malformed(String),
}

impl fmt::Display for Got {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pdu(pdu) => describe(pdu, formatter),
            Self::Closed => formatter.write_str("the connection was closed"),
            Self::Reset => formatter.write_str("the connection was reset"),
            Self::Nothing(waited) => write!(formatter, "nothing within {waited:?}"),
            Self::Malformed(why) => write!(formatter, "no PDU: {why}"),
        }
    }
}

fn describe(pdu: &Reply, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let itt = pdu.itt();
    match pdu.opcode() {
        opcode::LOGGED_IN => write!(formatter, "Login Response {:04x}h", pdu.login_status()),
        opcode::REJECT => write!(formatter, "Reject {:02x}h", pdu.code()),
        opcode::MANAGED => write!(formatter, "task management response {}", pdu.code()),
        opcode::LOGGED_OUT => write!(formatter, "Logout Response {}", pdu.code()),
        opcode::R2T => write!(
            formatter,
            "an R2T for task {itt} of {} bytes at {}",
            pdu.last(),
            pdu.offset()
        ),
        opcode::DATA_IN if !pdu.has_status() => {
            write!(
                formatter,
                "{} bytes of Data-In for task {itt}",
                pdu.data.len()
            )
        }
        opcode::RESPONSE | opcode::DATA_IN => {
            write!(formatter, "task {itt}: status {:02x}h", pdu.status())?;
            if pdu.code() != 0 && pdu.opcode() == opcode::RESPONSE {
                write!(formatter, ", response {:02x}h", pdu.code())?;
            }
            match pdu.sense().filter(|_| pdu.opcode() == opcode::RESPONSE) {
                Some((key, code)) => write!(formatter, ", sense {key:x}h {code:04x}h"),
                None => Ok(()),
            }
        }
        opcode::TEXT_RESPONSE => formatter.write_str("Text Response"),
        opcode::NOP_IN => formatter.write_str("NOP-In"),
        _ => formatter.write_str("Asynchronous Message"),
    }
}

/// An answer that a specification names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A Login Response with this status, class and detail.
    Login(u16),
    /// The task ends with this SCSI status.
    Status(u32, u8),
    /// The task ends with CHECK CONDITION, this sense key and additional sense code.
    Sense(u32, u8, u16),
    /// A Reject for this reason.
    Reject(u8),
    /// A Reject for this reason, and the end of the connection.
    RejectAndEnd(u8),
    /// The task management function of this task is answered so.
    Managed(u32, u8),
    /// The logout of this task is answered so.
    LoggedOut(u32, u8),
    /// The text request of this task is answered.
    Text(u32),
    /// The ping of this task is answered.
    Ping(u32),
    /// An R2T for this task.
    R2t(u32),
    /// The end of the connection, closed or reset, without a word.
    End,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Login(status) => write!(formatter, "Login Response {status:04x}h"),
            Self::Status(itt, status) => write!(formatter, "task {itt}: status {status:02x}h"),
            Self::Sense(itt, key, code) => {
                write!(formatter, "task {itt}: sense {key:x}h {code:04x}h")
            }
            Self::Reject(reason) => write!(formatter, "Reject {reason:02x}h"),
            Self::RejectAndEnd(reason) => write!(formatter, "Reject {reason:02x}h and the end"),
            Self::Managed(_, response) => write!(formatter, "task management response {response}"),
            Self::LoggedOut(_, response) => write!(formatter, "Logout Response {response}"),
            Self::Text(_) => formatter.write_str("Text Response"),
            Self::Ping(_) => formatter.write_str("NOP-In"),
            Self::R2t(itt) => write!(formatter, "an R2T for task {itt}"),
            Self::End => formatter.write_str("the end of the connection"),
        }
    }
}

/// CHECK CONDITION.
pub const CHECK_CONDITION: u8 = 0x02;

impl Answer {
    fn fits(&self, got: &Got) -> bool {
        let pdu = match got {
            Got::Pdu(pdu) => pdu,
            Got::Closed | Got::Reset => return *self == Self::End,
            _ => return false,
        };
        let is = |opcode: u8| pdu.opcode() == opcode;
        let of = |opcode: u8, itt: u32| is(opcode) && pdu.itt() == itt;
        let ended = |itt: u32, status: u8| {
            let accepted = pdu.opcode() != opcode::RESPONSE || pdu.code() == 0;
            pdu.has_status() && accepted && pdu.itt() == itt && pdu.status() == status
        };
        match *self {
            Self::Login(status) => is(opcode::LOGGED_IN) && pdu.login_status() == status,
            Self::Status(itt, status) => ended(itt, status),
            Self::Sense(itt, key, code) => {
                ended(itt, CHECK_CONDITION) && pdu.sense() == Some((key, code))
            }
            Self::Reject(reason) | Self::RejectAndEnd(reason) => {
                is(opcode::REJECT) && pdu.code() == reason
            }
            Self::Managed(itt, response) => of(opcode::MANAGED, itt) && pdu.code() == response,
            Self::LoggedOut(itt, response) => of(opcode::LOGGED_OUT, itt) && pdu.code() == response,
            Self::Text(itt) => of(opcode::TEXT_RESPONSE, itt),
            Self::Ping(itt) => of(opcode::NOP_IN, itt),
            Self::R2t(itt) => of(opcode::R2T, itt),
            Self::End => false,
        }
    }
}

/// Answers to what breaks the protocol: Weir says why and ends the connection (RFC 7143, section 7.8, lets a target do less).
pub const BROKEN: &[Answer] = &[
    Answer::RejectAndEnd(reason::PROTOCOL),
    Answer::End,
    Answer::RejectAndEnd(reason::INVALID_FIELD),
    Answer::RejectAndEnd(reason::NOT_SUPPORTED),
];

/// One connection to a target.
pub struct Peer {
    connection: Connection,
    /// Digests, once they are agreed.
    pub format: Format,
    /// Manner in which it waits and judges.
    pub manner: Manner,
    /// The StatSN that comes next, once one came.
    stat_sn: Option<u32>,
    /// ExpCmdSN and MaxCmdSN as they were told last.
    pub window: (u32, u32),
}

impl Peer {
    /// Connects, and says nothing yet.
    ///
    /// # Errors
    /// The target does not take the connection.
    pub fn connect(address: SocketAddr, manner: Manner) -> Result<Self, Failure> {
        Ok(Self {
            connection: Connection::new(address)?,
            format: Format::default(),
            manner,
            stat_sn: None,
            window: (0, 0),
        })
    }

    /// The next StatSN.
    pub fn exp_stat_sn(&self) -> u32 {
        self.stat_sn.unwrap_or(0)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The target does not read.
    pub fn send(&mut self, request: &Request) -> Result<(), Failure> {
        let bytes = request.encode(self.format);
        self.send_bytes(&bytes)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The target does not read.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.connection.send(bytes)
    }

    /// Ends this direction of the connection (FIN).
    pub fn finish_sending(&self) {
        self.connection.finish_sending();
    }

    /// Ends the connection with RST, whatever is unsent.
    pub fn reset(self) {
        self.connection.reset();
    }

    /// Receives what comes next, for as long as the peer's patience lasts.
    pub fn receive(&mut self) -> Got {
        self.receive_within(self.manner.patience)
    }

    /// Receives what comes next within `patience`, but for pings.
    pub fn receive_within(&mut self, patience: Duration) -> Got {
        let deadline = Instant::now() + patience;
        loop {
            let received = &mut self.connection.received;
            match length_of(received, self.format) {
                Err(why) => return Got::Malformed(why),
                Ok(Some(length)) if received.len() >= length => {
                    let rest = received.split_off(length);
                    let bytes = std::mem::replace(received, rest);
                    match self.parsed(&bytes) {
                        Some(got) => return got,
                        None => continue,
                    }
                }
                Ok(_) => {}
            }
            match self.connection.end() {
                None => {}
                Some(End::Reset) => return Got::Reset,
                Some(End::Closed) if self.connection.received.is_empty() => return Got::Closed,
                Some(End::Closed) => {
                    return Got::Malformed("the connection was closed inside a PDU".into());
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.connection.read_more(left) && Instant::now() >= deadline {
                return Got::Nothing(patience);
            }
        }
    }

    /// A PDU; none: it was a ping, which is answered.
    fn parsed(&mut self, bytes: &[u8]) -> Option<Got> {
        let pdu = match parse(bytes, self.format) {
            Ok(pdu) => pdu,
            Err(why) => return Some(Got::Malformed(why)),
        };
        if let Err(why) = self.count(&pdu) {
            return Some(Got::Malformed(why));
        }
        let is_ping = pdu.opcode() == opcode::NOP_IN && pdu.itt() == NO_TAG;
        if is_ping && pdu.ttt() != NO_TAG {
            let answer = Request::new(opcode::NOP_OUT, NO_TAG)
                .immediate()
                .with_u32(at::TTT, pdu.ttt())
                .with_u32(at::CMD_SN, pdu.exp_cmd_sn())
                .with_u32(at::EXP_STAT_SN, self.exp_stat_sn());
            // A target that takes no answer any more says so itself.
            let _ = self.send(&answer);
        }
        (!is_ping).then_some(Got::Pdu(pdu))
    }

    /// Checks the numbers of an answer (RFC 7143, section 4.2.2).
    fn count(&mut self, pdu: &Reply) -> Result<(), String> {
        let number = pdu.stat_sn();
        if let Some(expected) = self.stat_sn
            && (pdu.is_numbered() || pdu.opcode() == opcode::R2T)
            && number != expected
        {
            return Err(format!("StatSN {number}, where {expected} is the next"));
        }
        if pdu.is_numbered() {
            self.stat_sn = Some(number.wrapping_add(1));
        }
        let window = (pdu.exp_cmd_sn(), pdu.max_cmd_sn());
        let size = window.1.wrapping_sub(window.0).wrapping_add(1);
        let is_refusal = pdu.opcode() == opcode::LOGGED_IN && pdu.login_status() != 0;
        if size > 1 << 31 && !is_refusal {
            return Err(format!(
                "MaxCmdSN {} below ExpCmdSN {} - 1",
                window.1, window.0
            ));
        }
        self.window = window;
        Ok(())
    }

    /// Waits for one of `answers`, the first of which is Weir's own. What came is returned.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect(&mut self, what: &str, answers: &[Answer]) -> Result<Got, Failure> {
        let allowed = match self.manner.exact {
            true => &answers[..1],
            false => answers,
        };
        let got = self.receive();
        let Some(answer) = allowed.iter().find(|answer| answer.fits(&got)) else {
            let expected: Vec<_> = allowed.iter().map(Answer::to_string).collect();
            let expected = expected.join(", or ");
            return Err(match got {
                Got::Nothing(waited) => Failure::NoAnswer {
                    what: what.into(),
                    expected,
                    waited,
                },
                got => Failure::differs(what, expected, got),
            });
        };
        if matches!(answer, Answer::RejectAndEnd(_)) {
            self.expect_end(what)?;
        }
        Ok(got)
    }

    /// Waits for one of `answers`, which are PDUs.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect_pdu(&mut self, what: &str, answers: &[Answer]) -> Result<Reply, Failure> {
        match self.expect(what, answers)? {
            Got::Pdu(pdu) => Ok(pdu),
            got => unreachable!("{got} is no PDU"),
        }
    }

    /// Waits for the end of the connection.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect_end(&mut self, what: &str) -> Result<(), Failure> {
        self.expect(what, &[Answer::End]).map(drop)
    }

    /// Nothing comes for so long.
    ///
    /// # Errors
    /// Something came.
    pub fn expect_silence(&mut self, what: &str, quiet: Duration) -> Result<(), Failure> {
        match self.receive_within(quiet) {
            Got::Nothing(_) => Ok(()),
            got => Err(Failure::differs(what, "no answer", got)),
        }
    }
}
