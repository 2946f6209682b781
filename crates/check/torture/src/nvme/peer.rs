//! One NVMe/TCP connection of a scripted host: it reads whole PDUs by a deadline, and expects answers.
//!
//! It answers nothing by itself. What ends a connection is an answer like any other ([`Got::Closed`], [`Got::Reset`]).

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weir_nvme::tcp::{
    C2hData, DigestOptions, FatalErrorStatus, InitializeRequest, InitializeResponse, R2t,
};
use weir_nvme::{Cqe, Status};

use crate::case::Failure;
use crate::connection::{Connection, End, Manner};
use crate::nvme::pdu::{Format, TargetPdu, length_of, parse};

/// Bytes sent last that are kept, to find a header in that a termination request carries.
const SENT_BYTES_KEPT: usize = 8 << 10;

/// Something that came from a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// ICResp.
    Initialized(InitializeResponse),
    /// CapsuleResp.
    Response(Cqe),
    /// C2HData and what it carries.
    Data(C2hData, Vec<u8>),
    /// R2T.
    R2t(R2t),
    /// C2HTermReq.
    Terminated {
        /// FES.
        status: FatalErrorStatus,
        /// FEI.
        information: u32,
        /// The header that it complains about.
        carried: Vec<u8>,
    },
    /// The target closed the connection in order.
    Closed,
    /// The target reset the connection.
    Reset,
    /// Nothing came for so long.
    Nothing(Duration),
    /// Bytes that are no PDU of a controller; why not.
    Malformed(String),
}

impl fmt::Display for Got {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initialized(_) => formatter.write_str("ICResp"),
            Self::Response(cqe) => {
                write!(formatter, "the answer to CID {}: {}", cqe.cid, cqe.status)
            }
            Self::Data(data, _) => write!(
                formatter,
                "{} bytes of C2HData for CID {}{}",
                data.length,
                data.cid,
                if data.success { " with SUCCESS" } else { "" }
            ),
            Self::R2t(r2t) => write!(
                formatter,
                "an R2T for CID {} of {} bytes at {}",
                r2t.cid, r2t.length, r2t.offset
            ),
            Self::Terminated {
                status,
                information,
                ..
            } => write!(formatter, "C2HTermReq, {status}, FEI {information:#x}"),
            Self::Closed => formatter.write_str("the connection was closed"),
            Self::Reset => formatter.write_str("the connection was reset"),
            Self::Nothing(waited) => write!(formatter, "nothing for {waited:?}"),
            Self::Malformed(why) => formatter.write_str(why),
        }
    }
}

/// An answer that a specification names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The command with this CID ends with this status. Type and code count; Do Not Retry of Weir only.
    Status(u16, Status),
    /// The command with this CID ends, whatever its status is.
    Answered(u16),
    /// C2HTermReq with this FES and FEI, and the end of the connection.
    Terminated(FatalErrorStatus, u32),
    /// C2HTermReq with this FES, whatever FEI is.
    TerminatedFor(FatalErrorStatus),
    /// The end of the connection, closed or reset, without a termination request.
    End,
    /// Nothing for the time that the peer waits for silence.
    Silence,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(cid, status) => write!(formatter, "CID {cid}: {}", status),
            Self::Answered(cid) => write!(formatter, "an answer to CID {cid}"),
            Self::Terminated(status, information) => {
                write!(formatter, "C2HTermReq, {status}, FEI {information:#x}")
            }
            Self::TerminatedFor(status) => write!(formatter, "C2HTermReq, {status}"),
            Self::End => formatter.write_str("the end of the connection"),
            Self::Silence => formatter.write_str("no answer"),
        }
    }
}

impl Answer {
    fn fits(&self, got: &Got, manner: Manner) -> bool {
        match (self, got) {
            (Self::Status(cid, status), Got::Response(cqe)) => {
                let retry = !manner.exact || status.do_not_retry() == cqe.status.do_not_retry();
                *cid == cqe.cid && status.is(cqe.status) && retry
            }
            (Self::Answered(cid), Got::Response(cqe)) => *cid == cqe.cid,
            (
                Self::Terminated(status, information),
                Got::Terminated {
                    status: given,
                    information: told,
                    ..
                },
            ) => status == given && information == told,
            (Self::TerminatedFor(status), Got::Terminated { status: given, .. }) => status == given,
            (Self::End, Got::Closed | Got::Reset) => true,
            (Self::Silence, Got::Nothing(_)) => true,
            _ => false,
        }
    }
}

/// Several answers in words.
fn any_of(answers: &[Answer]) -> String {
    let words: Vec<_> = answers.iter().map(Answer::to_string).collect();
    words.join(", or ")
}

/// One connection to a target.
pub struct Peer {
    connection: Connection,
    /// What was agreed, and how PDUs look after it.
    pub format: Format,
    /// Manner in which it waits and judges.
    pub manner: Manner,
    /// ICResp, once it came.
    pub agreed: Option<InitializeResponse>,
    sent: Vec<u8>,
}

impl Peer {
    /// Connects, and says nothing yet.
    ///
    /// # Errors
    /// The target does not take the connection.
    pub fn connect(address: SocketAddr, manner: Manner) -> Result<Self, Failure> {
        Ok(Self {
            connection: Connection::new(address)?,
            format: Format::PLAIN,
            manner,
            agreed: None,
            sent: Vec::new(),
        })
    }

    /// The port of this end.
    ///
    /// # Errors
    /// The socket has none any more.
    pub fn local_port(&self) -> Result<u16, Failure> {
        let address = self.stream().local_addr();
        address
            .map(|address| address.port())
            .map_err(|error| Failure::preparation("the local port", error))
    }

    /// The socket itself, for options that only one case sets.
    pub fn stream(&self) -> &TcpStream {
        self.connection.stream()
    }

    /// Sends bytes. What a target that has ended the connection does not take is dropped: what it said is read next.
    ///
    /// # Errors
    /// The target does not read.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.sent
            .extend_from_slice(&bytes[..bytes.len().min(SENT_BYTES_KEPT)]);
        let kept = self.sent.len().saturating_sub(SENT_BYTES_KEPT);
        self.sent.drain(..kept);
        self.connection.send(bytes)
    }

    /// Sends bytes in pieces of so many, each a segment of its own as far as the system allows, with a pause after each.
    ///
    /// # Errors
    /// As [`Peer::send`].
    pub fn send_in_pieces(
        &mut self,
        bytes: &[u8],
        piece: usize,
        pause: Duration,
    ) -> Result<(), Failure> {
        for part in bytes.chunks(piece) {
            self.send(part)?;
            std::thread::sleep(pause);
        }
        Ok(())
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

    /// What comes next within `patience`.
    pub fn receive_within(&mut self, patience: Duration) -> Got {
        let deadline = Instant::now() + patience;
        loop {
            let received = &mut self.connection.received;
            match length_of(received) {
                Err(why) => return Got::Malformed(why),
                Ok(Some(length)) if received.len() >= length => {
                    let rest = received.split_off(length);
                    let bytes = std::mem::replace(received, rest);
                    return self.parsed(&bytes);
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

    fn parsed(&mut self, bytes: &[u8]) -> Got {
        match parse(bytes, &self.format) {
            Ok(TargetPdu::Initialized(response)) => Got::Initialized(response),
            Ok(TargetPdu::Response(cqe)) => Got::Response(cqe),
            Ok(TargetPdu::Data(data, bytes)) => Got::Data(data, bytes),
            Ok(TargetPdu::R2t(r2t)) => Got::R2t(r2t),
            Ok(TargetPdu::Terminated {
                status,
                information,
                carried,
            }) => Got::Terminated {
                status,
                information,
                carried,
            },
            Err(why) => Got::Malformed(why),
        }
    }

    /// Waits for one of `answers`, the first of which is Weir's own. What came is returned.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect(&mut self, what: &str, answers: &[Answer]) -> Result<Got, Failure> {
        let got = self.receive();
        self.judge(what, answers, got)
    }

    /// Judges what came as [`Peer::expect`] does.
    ///
    /// # Errors
    /// It is none of `answers`.
    pub fn judge(&mut self, what: &str, answers: &[Answer], got: Got) -> Result<Got, Failure> {
        let allowed = if self.manner.exact {
            &answers[..1]
        } else {
            answers
        };
        if !allowed.iter().any(|answer| answer.fits(&got, self.manner)) {
            return Err(match got {
                Got::Nothing(waited) => Failure::NoAnswer {
                    what: what.into(),
                    expected: any_of(allowed),
                    waited,
                },
                got => Failure::differs(what, any_of(allowed), got),
            });
        }
        if let Got::Terminated { carried, .. } = &got {
            self.check_carried(what, carried)?;
            if self.manner.exact {
                self.expect_end(what)?;
            }
        }
        Ok(got)
    }

    /// A termination request carries a header that was sent.
    fn check_carried(&self, what: &str, carried: &[u8]) -> Result<(), Failure> {
        let known = !carried.is_empty()
            && self
                .sent
                .windows(carried.len())
                .any(|window| window == carried);
        if known || !self.manner.exact {
            return Ok(());
        }
        Err(Failure::differs(
            format!("{what}: what C2HTermReq carries"),
            "the header at fault",
            format!("{} other bytes", carried.len()),
        ))
    }

    /// Waits for a C2HTermReq, and the end of the connection.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect_termination(
        &mut self,
        what: &str,
        status: FatalErrorStatus,
        information: u32,
    ) -> Result<(), Failure> {
        self.expect(what, &[Answer::Terminated(status, information)])
            .map(drop)
    }

    /// Waits for the answer to a command.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect_status(&mut self, what: &str, cid: u16, status: Status) -> Result<Cqe, Failure> {
        match self.expect(what, &[Answer::Status(cid, status)])? {
            Got::Response(cqe) => Ok(cqe),
            other => unreachable!("{other} is no status"),
        }
    }

    /// Waits for the end of the connection without any answer before it.
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

    /// Waits for the R2T of a command.
    ///
    /// # Errors
    /// Something else came, or nothing.
    pub fn expect_r2t(&mut self, what: &str, cid: u16) -> Result<R2t, Failure> {
        match self.receive() {
            Got::R2t(r2t) if r2t.cid == cid => Ok(r2t),
            Got::Nothing(waited) => Err(Failure::NoAnswer {
                what: what.into(),
                expected: format!("an R2T for CID {cid}"),
                waited,
            }),
            got => Err(Failure::differs(what, format!("an R2T for CID {cid}"), got)),
        }
    }

    /// Sends ICReq and takes ICResp; PDUs look as agreed from then on.
    ///
    /// # Errors
    /// ICResp did not come, or grants what was not asked for.
    pub fn initialize(
        &mut self,
        request: &InitializeRequest,
    ) -> Result<InitializeResponse, Failure> {
        self.send(&request.encode())?;
        self.await_initialized(request)
    }

    /// Takes the ICResp to a request that was sent.
    ///
    /// # Errors
    /// As [`Peer::initialize`].
    pub fn await_initialized(
        &mut self,
        request: &InitializeRequest,
    ) -> Result<InitializeResponse, Failure> {
        let response = match self.receive() {
            Got::Initialized(response) => response,
            Got::Nothing(waited) => {
                return Err(Failure::NoAnswer {
                    what: "ICReq".into(),
                    expected: "ICResp".into(),
                    waited,
                });
            }
            got => return Err(Failure::differs("ICReq", "ICResp", got)),
        };
        let known = InitializeRequest {
            digests: request.digests.known(),
            ..*request
        };
        let alignment = response
            .check(&known)
            .map_err(|error| Failure::differs("ICReq", "a good ICResp", error))?;
        self.format = Format {
            header_digest: response.digests.contains(DigestOptions::HEADER),
            data_digest: response.digests.contains(DigestOptions::DATA),
            controller_alignment: alignment.bytes() as usize,
            host_alignment: (usize::from(request.alignment) + 1) * 4,
        };
        self.agreed = Some(response);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const MANNER: Manner = Manner {
        patience: Duration::from_secs(5),
        exact: true,
    };

    fn pair() -> (Peer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = Peer::connect(address, MANNER).expect("it listens");
        (peer, listener.accept().expect("connected").0)
    }

    #[test]
    fn pdus_come_whole_from_pieces_and_ends_are_told_apart() {
        let (mut peer, mut target) = pair();
        let mut pdu = vec![3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 4, 0, 0, 0];
        pdu.resize(24, 0);
        pdu.extend([4; 8]);
        peer.send(&[4; 8]).expect("sent");
        for part in pdu.chunks(5) {
            target.write_all(part).expect("sent");
        }
        // What is not read would make the close a reset.
        target.read_exact(&mut [0; 8]).expect("sent before");
        drop(target);
        let status = FatalErrorStatus::InvalidPduHeaderField;
        peer.expect_termination("a test", status, 4).expect("whole");
        assert_eq!(peer.receive(), Got::Closed);
    }

    #[test]
    fn silence_a_cut_pdu_and_what_was_not_sent_are_failures() {
        let (mut peer, mut target) = pair();
        peer.manner.patience = Duration::from_millis(20);
        assert!(matches!(
            peer.expect_end("a test"),
            Err(Failure::NoAnswer { .. })
        ));
        peer.expect_silence("a test", Duration::from_millis(5))
            .expect("silent");
        let mut pdu = vec![3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 4, 0, 0, 0];
        pdu.resize(32, 0x77);
        target.write_all(&pdu).expect("sent");
        target.write_all(&pdu[..9]).expect("sent");
        drop(target);
        peer.manner.patience = MANNER.patience;
        let status = FatalErrorStatus::InvalidPduHeaderField;
        let failure = peer.expect_termination("a test", status, 4);
        assert!(
            matches!(failure, Err(Failure::Differs { .. })),
            "{failure:?}"
        );
        assert!(matches!(peer.receive(), Got::Malformed(_)));
    }
}
