//! A peer that has logged in: the well-behaved part of a case.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::case::{Failure, check};
use crate::connection::Manner;
use crate::iscsi::pdu::{
    CONTINUE, FINAL, Format, IMMEDIATE, NO_TAG, READ, Reply, Request, WRITE, at, lun, opcode,
    put_u32,
};
use crate::iscsi::peer::{Answer, CHECK_CONDITION, Got, Peer};

/// The stage in which who is there is proven, as in CSG.
pub const SECURITY: u8 = 0;
/// The stage in which parameters are negotiated.
pub const OPERATIONAL: u8 = 1;
/// The stage in which commands flow.
pub const FULL_FEATURE: u8 = 3;
/// Requests of one stage at most.
const REQUESTS_MAX: usize = 16;
/// Keys of a target that are no offer.
const DECLARED: [&str; 5] = [
    "AuthMethod",
    "MaxRecvDataSegmentLength",
    "TargetAddress",
    "TargetAlias",
    "TargetPortalGroupTag",
];
/// Times that a command is sent again where the target first has something to say.
const ATTENTIONS_MAX: usize = 16;
/// The sense key of that.
pub const UNIT_ATTENTION: u8 = 6;
/// The first CmdSN.
const FIRST_COMMAND: u32 = 1;

/// READ (16).
pub const READ_16: u8 = 0x88;
/// WRITE (16).
pub const WRITE_16: u8 = 0x8a;

/// Words of a login.
#[derive(Debug, Clone)]
pub struct Login {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; none: a discovery session.
    pub target: Option<String>,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH.
    pub tsih: u16,
    /// Offers of the operational stage.
    pub keys: Vec<(&'static str, String)>,
    /// The logical unit that commands are for.
    pub lun: u16,
}

impl Login {
    /// A login that offers what every target takes: data is sent only when it is asked for, but what goes with a command.
    pub fn new(initiator: &str, target: Option<&str>, isid: [u8; 6], lun: u16) -> Self {
        let keys = [
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("MaxConnections", "1"),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "Yes"),
            ("MaxRecvDataSegmentLength", "65536"),
            ("MaxBurstLength", "262144"),
            ("FirstBurstLength", "65536"),
            ("DefaultTime2Wait", "2"),
            ("DefaultTime2Retain", "0"),
            ("MaxOutstandingR2T", "1"),
            ("DataPDUInOrder", "Yes"),
            ("DataSequenceInOrder", "Yes"),
            ("ErrorRecoveryLevel", "0"),
        ];
        // A discovery session has no data (RFC 7143, section 13).
        let of_discovery = ["HeaderDigest", "DataDigest", "MaxRecvDataSegmentLength"];
        let keys = keys
            .into_iter()
            .filter(|(key, _)| target.is_some() || of_discovery.contains(key));
        Self {
            initiator: initiator.to_owned(),
            target: target.map(str::to_owned),
            isid,
            tsih: 0,
            keys: keys.map(|(key, value)| (key, value.to_owned())).collect(),
            lun,
        }
    }

    /// The same with another value of a key, or with a further key.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.keys.retain(|(other, _)| *other != key);
        self.keys.push((key, value.to_string()));
        self
    }

    /// The same with both digests.
    #[must_use]
    pub fn with_digests(self) -> Self {
        self.with("HeaderDigest", "CRC32C")
            .with("DataDigest", "CRC32C")
    }

    /// Says who is there and what for.
    pub fn identity(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("InitiatorName", self.initiator.clone())];
        match &self.target {
            Some(target) => {
                keys.push(("SessionType", "Normal".into()));
                keys.push(("TargetName", target.clone()));
            }
            None => keys.push(("SessionType", "Discovery".into())),
        }
        keys
    }

    /// A Login Request in the stage `current` that wants the stage `next`.
    pub fn request(&self, current: u8, next: u8, text: &[u8]) -> Request {
        let mut request = Request::new(opcode::LOGIN, 0)
            .immediate()
            .with(at::FLAGS, FINAL | current << 2 | next)
            .with_u32(at::CMD_SN, FIRST_COMMAND)
            .carrying(text);
        request.header[at::LUN..at::LUN + 6].copy_from_slice(&self.isid);
        request.header[at::TSIH..at::TSIH + 2].copy_from_slice(&self.tsih.to_be_bytes());
        request
    }

    /// The request with which a login begins and wants to negotiate next.
    pub fn first(&self) -> Request {
        let mut keys = self.identity();
        keys.push(("AuthMethod", "None".into()));
        self.request(SECURITY, OPERATIONAL, &text(&keys))
    }

    /// The request that offers parameters, and wants to end the login.
    pub fn last(&self) -> Request {
        self.request(OPERATIONAL, FULL_FEATURE, &text(&self.keys))
    }

    /// The one request of a login without a security stage.
    pub fn whole(&self) -> Request {
        let keys = [self.identity(), self.keys.clone()].concat();
        self.request(OPERATIONAL, FULL_FEATURE, &text(&keys))
    }
}

/// Keys and values as text.
pub fn text(keys: &[(&'static str, String)]) -> Vec<u8> {
    let pairs = keys.iter().map(|(key, value)| format!("{key}={value}\0"));
    pairs.collect::<String>().into_bytes()
}

/// The pairs of a text.
pub fn pairs(text: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(text);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The PDU with its status.
    pub reply: Reply,
    /// Data that it has read.
    pub data: Vec<u8>,
}

impl Ended {
    /// Overflow (positive) or underflow (negative) in bytes.
    pub fn residual(&self) -> i64 {
        let count = i64::from(self.reply.last());
        match self.reply.flags() & 0x06 {
            0x04 => count,
            0x02 => -count,
            _ => 0,
        }
    }
}

/// A session.
pub struct Session {
    /// Its connection.
    pub peer: Peer,
    /// Its login.
    pub login: Login,
    /// TSIH.
    pub tsih: u16,
    /// Values that were agreed, by key, as the target said them.
    pub agreed: BTreeMap<String, String>,
    /// CmdSN of the next command.
    pub cmd_sn: u32,
    itt: u32,
}

impl Session {
    /// Logs in, and waits until the logical unit has said what it has to say first.
    ///
    /// # Errors
    /// The target refuses, or does not answer.
    pub fn open(address: SocketAddr, login: &Login, manner: Manner) -> Result<Self, Failure> {
        let peer = Peer::connect(address, manner)?;
        let mut session = Self::over(peer, login)?;
        if session.login.target.is_some() {
            session.settle()?;
        }
        Ok(session)
    }

    /// Logs in on a connection.
    ///
    /// # Errors
    /// The target refuses, or does not answer.
    pub fn over(mut peer: Peer, login: &Login) -> Result<Self, Failure> {
        let mut agreed = BTreeMap::new();
        stage(&mut peer, login, login.first(), OPERATIONAL, &mut agreed)?;
        let last = stage(&mut peer, login, login.last(), FULL_FEATURE, &mut agreed)?;
        Ok(Self::logged_in(peer, login, &last, agreed))
    }

    /// A session whose login ended with this response.
    pub fn logged_in(
        mut peer: Peer,
        login: &Login,
        last: &Reply,
        agreed: BTreeMap<String, String>,
    ) -> Self {
        let has_digest = |key: &str| agreed.get(key).is_some_and(|value| value == "CRC32C");
        peer.format = Format {
            header_digest: has_digest("HeaderDigest"),
            data_digest: has_digest("DataDigest"),
        };
        Self {
            cmd_sn: last.exp_cmd_sn(),
            tsih: last.tsih(),
            peer,
            login: login.clone(),
            agreed,
            itt: 0x100,
        }
    }

    /// A number that was agreed, or the default of its key.
    pub fn number(&self, key: &str, default: u32) -> u32 {
        let value = self.agreed.get(key).and_then(|value| value.parse().ok());
        value.unwrap_or(default)
    }

    /// Tells whether a key was agreed to be this.
    pub fn is(&self, key: &str, value: &str) -> bool {
        self.agreed.get(key).is_some_and(|agreed| agreed == value)
    }

    /// Sends TEST UNIT READY until the target has told all that a new nexus is told.
    fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..ATTENTIONS_MAX {
            let ended = self.run(&[0; 6], 0, &[])?;
            let is_told = ended.reply.sense().map(|(key, _)| key) == Some(UNIT_ATTENTION);
            if !is_told {
                return self.succeeded("TEST UNIT READY", ended).map(drop);
            }
        }
        Err(Failure::preparation(
            "TEST UNIT READY",
            "unit attentions without end",
        ))
    }

    /// A new Initiator Task Tag.
    pub fn tag(&mut self) -> u32 {
        self.itt += 1;
        self.itt
    }

    /// A request with its numbers: the next CmdSN, which it takes unless it is immediate.
    pub fn numbered(&mut self, mut request: Request) -> Request {
        put_u32(&mut request.header, at::CMD_SN, self.cmd_sn);
        put_u32(
            &mut request.header,
            at::EXP_STAT_SN,
            self.peer.exp_stat_sn(),
        );
        if request.header[0] & IMMEDIATE == 0 {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        request
    }

    /// A request without data of this opcode, numbered.
    pub fn request(&mut self, opcode: u8) -> Request {
        let itt = self.tag();
        let request = Request::new(opcode, itt);
        self.numbered(request)
    }

    /// A SCSI Command, numbered: one that reads `reads` bytes, or writes what is not 0 of `writes`.
    pub fn command(&mut self, cdb: &[u8], reads: u32, writes: u32) -> Request {
        let direction = match (reads, writes) {
            (0, 0) => 0,
            (0, _) => WRITE,
            _ => READ,
        };
        let mut request = self
            .request(opcode::COMMAND)
            .on(lun(self.login.lun))
            .with(at::FLAGS, FINAL | direction | 1)
            .with_u32(at::EXPECTED, reads.max(writes));
        request.header[at::CDB..at::CDB + cdb.len()].copy_from_slice(cdb);
        request
    }

    /// Sends a command without any data, and waits for its end, sending what it is asked for.
    ///
    /// # Errors
    /// It does not end, or the target breaks the protocol.
    pub fn run(&mut self, cdb: &[u8], reads: u32, writes: &[u8]) -> Result<Ended, Failure> {
        let command = self.command(cdb, reads, writes.len() as u32);
        self.peer.send(&command)?;
        self.ended(command.itt(), writes)
    }

    /// Waits for the end of a command that was sent.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn ended(&mut self, itt: u32, writes: &[u8]) -> Result<Ended, Failure> {
        let what = format!("task {itt}");
        let mut data = Vec::new();
        loop {
            let reply = match self.peer.receive() {
                Got::Pdu(reply) if reply.itt() == itt => reply,
                Got::Nothing(waited) => {
                    return Err(Failure::NoAnswer {
                        what,
                        expected: "its end".into(),
                        waited,
                    });
                }
                got => return Err(Failure::differs(what, "its end", got)),
            };
            match reply.opcode() {
                opcode::DATA_IN => {
                    check(
                        reply.offset() as usize == data.len(),
                        format!("{what}: the offset of its Data-In"),
                        data.len().to_string(),
                        reply.offset(),
                    )?;
                    data.extend_from_slice(&reply.data);
                }
                opcode::R2T => {
                    let (from, length) = (reply.offset() as usize, reply.last() as usize);
                    let wanted = writes.get(from..from + length).ok_or_else(|| {
                        Failure::differs(
                            format!("{what}: its R2T"),
                            format!("one within {} bytes", writes.len()),
                            format!("{length} bytes at {from}"),
                        )
                    })?;
                    self.send_data(itt, reply.ttt(), from as u32, wanted)?;
                }
                opcode::RESPONSE => {}
                other => {
                    let got = format!("opcode {other:02x}h");
                    return Err(Failure::differs(what, "its end", got));
                }
            }
            if reply.has_status() {
                return Ok(Ended { reply, data });
            }
        }
    }

    /// Sends the data of an R2T, in one sequence.
    ///
    /// # Errors
    /// The target does not read.
    pub fn send_data(&mut self, itt: u32, ttt: u32, from: u32, data: &[u8]) -> Result<(), Failure> {
        let segment = self.number("MaxRecvDataSegmentLength", 8192) as usize;
        let parts = data.chunks(segment).count();
        for (number, part) in data.chunks(segment).enumerate() {
            let offset = from + (number * segment) as u32;
            let is_last = number + 1 == parts;
            let request = self.data_out(itt, ttt, offset, part, number as u32, is_last);
            self.peer.send(&request)?;
        }
        Ok(())
    }

    /// One Data-Out.
    pub fn data_out(
        &self,
        itt: u32,
        ttt: u32,
        offset: u32,
        data: &[u8],
        number: u32,
        is_last: bool,
    ) -> Request {
        let request = Request::new(opcode::DATA_OUT, itt)
            .with(at::FLAGS, if is_last { FINAL } else { 0 })
            .with_u32(at::TTT, ttt)
            .with_u32(at::EXP_STAT_SN, self.peer.exp_stat_sn())
            .with_u32(at::DATA_SN, number)
            .with_u32(at::BUFFER_OFFSET, offset)
            .carrying(data);
        match ttt {
            NO_TAG => request,
            _ => request.on(lun(self.login.lun)),
        }
    }

    /// A command that ended with GOOD.
    ///
    /// # Errors
    /// It ended otherwise.
    pub fn succeeded(&self, what: &str, ended: Ended) -> Result<Ended, Failure> {
        let good = ended.reply.status() == 0;
        let sense = ended.reply.sense();
        check(
            good,
            what,
            "status 00h",
            match (ended.reply.status(), sense) {
                (CHECK_CONDITION, Some((key, code))) => format!("sense {key:x}h {code:04x}h"),
                (status, _) => format!("status {status:02x}h"),
            },
        )?;
        Ok(ended)
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// It fails.
    pub fn read(&mut self, lba: u64, blocks: u32, block: u32) -> Result<Vec<u8>, Failure> {
        let what = format!("reading {blocks} blocks from {lba}");
        let ended = self.run(&transfer(READ_16, lba, blocks), blocks * block, &[])?;
        let ended = self.succeeded(&what, ended)?;
        let wanted = (blocks * block) as usize;
        check(
            ended.data.len() == wanted,
            what,
            format!("{wanted} bytes"),
            ended.data.len(),
        )?;
        Ok(ended.data)
    }

    /// Writes whole blocks.
    ///
    /// # Errors
    /// It fails.
    pub fn write(&mut self, lba: u64, block: u32, data: &[u8]) -> Result<(), Failure> {
        let blocks = data.len() as u32 / block;
        let what = format!("writing {blocks} blocks from {lba}");
        let ended = self.run(&transfer(WRITE_16, lba, blocks), 0, data)?;
        self.succeeded(&what, ended).map(drop)
    }

    /// Sends a ping, and takes its answer.
    ///
    /// # Errors
    /// The answer is another.
    pub fn ping(&mut self, data: &[u8]) -> Result<(), Failure> {
        let itt = self.tag();
        let ping = Request::new(opcode::NOP_OUT, itt)
            .immediate()
            .with_u32(at::TTT, NO_TAG)
            .carrying(data);
        let ping = self.numbered(ping);
        self.peer.send(&ping)?;
        let answer = self.peer.expect_pdu("a ping", &[Answer::Ping(itt)])?;
        check(
            answer.data == data,
            "a ping's data",
            format!("the {} bytes sent", data.len()),
            format!("{} bytes", answer.data.len()),
        )
    }

    /// The session is as good as before: a ping and a command are answered.
    ///
    /// # Errors
    /// They are not.
    pub fn still_works(&mut self) -> Result<(), Failure> {
        self.ping(b"still there")?;
        match self.login.target {
            Some(_) => self.settle(),
            None => Ok(()),
        }
    }

    /// Waits until the target lets so many commands come, asking it to say so.
    ///
    /// # Errors
    /// It does not.
    pub fn await_window(&mut self, commands: u32) -> Result<(), Failure> {
        for _ in 0..ATTENTIONS_MAX {
            let (_, last) = self.peer.window;
            if last.wrapping_sub(self.cmd_sn).wrapping_add(1) as i32 >= commands as i32 {
                return Ok(());
            }
            self.ping(b"")?;
        }
        let what = format!("a window of {commands} commands");
        Err(Failure::NotOffered(what))
    }
}

/// A READ (16) or WRITE (16).
pub fn transfer(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Goes through one stage of a login. The last response, and what the target said.
fn stage(
    peer: &mut Peer,
    login: &Login,
    first: Request,
    next: u8,
    agreed: &mut BTreeMap<String, String>,
) -> Result<Reply, Failure> {
    let current = first.header[at::FLAGS] >> 2 & 3;
    let mut request = first;
    for _ in 0..REQUESTS_MAX {
        let request_now = request.with_u32(at::EXP_STAT_SN, peer.exp_stat_sn());
        peer.send(&request_now)?;
        let reply = match peer.receive() {
            Got::Pdu(reply) if reply.opcode() == opcode::LOGGED_IN => reply,
            got => return Err(Failure::preparation("the login", got)),
        };
        match reply.login_status() {
            0 => {}
            0x0201 => {
                let why = "the target wants CHAP, which this suite does not speak; let its initiator in without";
                return Err(Failure::preparation("the login", why));
            }
            status => {
                let why = format!("Login Response {status:04x}h");
                return Err(Failure::preparation("the login", why));
            }
        }
        let said = pairs(&reply.data);
        // What the target offers by itself is taken as it is.
        let offers = said.iter().filter(|(key, _)| {
            !DECLARED.contains(&key.as_str()) && !login.keys.iter().any(|(own, _)| own == key)
        });
        let answers: String = offers
            .map(|(key, value)| format!("{key}={value}\0"))
            .collect();
        agreed.extend(said);
        if reply.flags() & FINAL != 0 {
            let to = reply.flags() & 3;
            check(
                to == next,
                "the stage after the login's",
                next.to_string(),
                to,
            )?;
            return Ok(reply);
        }
        let goes_on = reply.flags() & CONTINUE != 0;
        let wanted = login.request(current, next, answers.as_bytes());
        request = match goes_on {
            true => wanted.with(at::FLAGS, current << 2),
            false => wanted,
        };
    }
    let said = format!("it does not end; said was {agreed:?}");
    Err(Failure::preparation("the login", said))
}
