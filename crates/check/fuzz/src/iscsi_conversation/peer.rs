//! An initiator's connection: what it sends, what it is owed, and whether it has broken a rule.

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_digest::Digest;
use weir_iscsi::login::{InitiatorLogin, InitiatorSettings, InitiatorStep, LoggedIn, SessionType};
use weir_iscsi::pdu::{
    DataIn, DataOut, Header, Itt, LoginResponse, NopIn, NopOut, Pdu, R2t, RejectReason,
    ResponseSerials, ScsiCommand, Side, TaskAttribute, TaskFunction, TaskManagementRequest, Ttt,
};
use weir_iscsi::reader::{Event, Reader};
use weir_iscsi::serial::Serial;
use weir_iscsi::writer::{HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};

use crate::link::{Farewell, Link};

/// Bytes of a basic header segment.
const BASIC_BYTES: usize = 48;
/// Status GOOD (SAM-5, 5.3.1).
const GOOD: u8 = 0;

/// The answer that an outstanding request waits for.
pub(super) enum Owed {
    /// Data of this length; the part that came, and the PDUs that brought it.
    Read {
        bytes: u32,
        came: Vec<u8>,
        pdus: u32,
    },
    /// An answer when all of this was taken, and the transfer tags that are being answered.
    Write { data: Vec<u8>, r2ts: u32 },
    /// The same bytes.
    Ping { data: Vec<u8> },
    /// An answer.
    Managed,
}

/// Damage to a PDU on its way.
#[derive(Clone, Copy)]
pub(super) enum Damage {
    /// These bits of this byte are turned.
    Turn { at: usize, bits: u8 },
    /// Only the beginning is sent.
    Cut { to: usize },
    /// It is sent twice.
    Twice,
}

/// See the module.
pub(super) struct Peer {
    link: Rc<Link>,
    reader: Reader,
    writer: Writer,
    unread: Vec<u8>,
    login: Option<InitiatorLogin>,
    agreed: Option<LoggedIn>,
    cmd_sn: Serial,
    max_cmd_sn: Serial,
    exp_stat_sn: Serial,
    last_itt: u32,
    owed: BTreeMap<u32, Owed>,
    /// R2Ts that came and are not answered.
    r2ts: Vec<R2t>,
    damage: Option<Damage>,
    /// It broke no rule yet.
    pub(super) clean: bool,
    /// Its session may end, or leave requests without an answer, through what others did, or what it asked for.
    pub(super) excused: bool,
    /// The data of the last Read that ended well.
    pub(super) last_read: Option<Vec<u8>>,
}

impl Peer {
    /// Begins to log in.
    pub(super) fn new(link: Rc<Link>, settings: InitiatorSettings, damage: Option<Damage>) -> Self {
        let mut login = InitiatorLogin::new(settings);
        let request = login.start();
        let mut peer = Peer {
            link,
            reader: Reader::new(Side::Initiator),
            writer: Writer::default(),
            unread: Vec::new(),
            login: Some(login),
            agreed: None,
            cmd_sn: Serial(0),
            max_cmd_sn: Serial(0),
            exp_stat_sn: Serial(0),
            last_itt: 1,
            owed: BTreeMap::new(),
            r2ts: Vec::new(),
            damage,
            clean: true,
            excused: false,
            last_read: None,
        };
        peer.send(&request.header, &request.text);
        peer
    }

    pub(super) fn end(&self, farewell: Farewell) {
        self.link.end(farewell);
    }

    /// Reads no more, or again. Who reads nothing may be given up.
    pub(super) fn pause(&mut self, paused: bool) {
        self.excused |= paused;
        self.link.pause(paused);
    }

    /// Sets the damage to the next PDU.
    pub(super) fn set_damage(&mut self, damage: Option<Damage>) {
        self.damage = damage;
    }

    pub(super) fn is_in(&self) -> bool {
        self.agreed.is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.link.is_gone()
    }

    pub(super) fn unanswered(&self) -> usize {
        self.owed.len() + usize::from(self.login.is_some())
    }

    /// Commands and functions are not for discovery sessions.
    fn sends_for_units(&mut self) {
        let agreed = self.agreed.as_ref().expect("it is logged in");
        self.clean &= matches!(agreed.session, SessionType::Normal(_));
    }

    /// The tag of an outstanding request, or of none.
    pub(super) fn some_tag(&self, which: u8) -> Itt {
        let tag = self.owed.keys().nth(usize::from(which) % 4);
        Itt(tag.copied().unwrap_or(u32::from(which)))
    }

    /// Returns whether the window admits another command.
    pub(super) fn may_begin(&self) -> bool {
        self.is_in() && !self.max_cmd_sn.is_before(self.cmd_sn)
    }

    /// Sends bytes that nobody asked for.
    pub(super) fn send_garbage(&mut self, bytes: Vec<u8>) {
        self.clean = false;
        self.link.send(bytes);
    }

    /// Sends a PDU, with what befalls it on the way.
    fn send<H: Header>(&mut self, header: &H, data: &[u8]) {
        let mut head = [0; HEADER_SIZE_MAX];
        let written = self.writer.header(&mut head, header);
        let mut bytes = head[..written].to_vec();
        bytes.extend_from_slice(data);
        if !data.is_empty() {
            let mut trailer = [0; TRAILER_SIZE_MAX];
            let digest = Digest::of(data);
            let written = self.writer.trailer(&mut trailer, data.len() as u32, digest);
            bytes.extend_from_slice(&trailer[..written]);
        }
        self.send_damaged(bytes);
    }

    fn send_damaged(&mut self, mut bytes: Vec<u8>) {
        if let Some(damage) = self.damage.take() {
            self.clean = false;
            match damage {
                Damage::Turn { at, bits } => {
                    let at = at % bytes.len();
                    bytes[at] ^= bits;
                }
                Damage::Cut { to } => bytes.truncate(to % bytes.len()),
                Damage::Twice => bytes.extend_from_within(..),
            }
        }
        self.link.send(bytes);
    }

    /// Sends a SCSI Command whose header has other bytes in these places, with a digest that is right again.
    pub(super) fn send_raw(&mut self, changes: &[(usize, u8)]) {
        self.clean = false;
        let header = self.command([0; 16], 0, 0, false);
        let mut head = [0; HEADER_SIZE_MAX];
        let written = self.writer.header(&mut head, &header);
        for &(at, byte) in changes {
            head[at % BASIC_BYTES] = byte;
        }
        if written > BASIC_BYTES {
            let digest = Digest::of(&head[..BASIC_BYTES]).to_bytes();
            head[BASIC_BYTES..BASIC_BYTES + digest.len()].copy_from_slice(&digest);
        }
        self.send_damaged(head[..written].to_vec());
    }

    fn next_tag(&mut self) -> Itt {
        self.last_itt += 1;
        Itt(self.last_itt)
    }

    fn command(&mut self, cdb: [u8; 16], reads: u32, writes: u32, is_final: bool) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final,
            read: reads > 0,
            write: writes > 0,
            attribute: TaskAttribute::Simple,
            lun: 0,
            itt: self.next_tag(),
            expected_data_length: reads.max(writes),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb,
            additional: Default::default(),
            data_length: 0,
        }
    }

    /// Sends a command that reads so many bytes.
    pub(super) fn read(&mut self, cdb: [u8; 16], bytes: u32, attribute: TaskAttribute) {
        self.sends_for_units();
        let header = ScsiCommand {
            attribute,
            ..self.command(cdb, bytes, 0, true)
        };
        self.cmd_sn = self.cmd_sn.next();
        let owed = Owed::Read {
            bytes,
            came: Vec::new(),
            pdus: 0,
        };
        self.owed.insert(header.itt.0, owed);
        self.send(&header, &[]);
    }

    /// Sends a command that writes, with as much of its data as may come at once where `at_once` says so.
    pub(super) fn write(&mut self, cdb: [u8; 16], data: Vec<u8>, at_once: bool) {
        self.sends_for_units();
        let parameters = &self.agreed.as_ref().expect("it is logged in").parameters;
        let (initial_r2t, immediate) = (parameters.initial_r2t, parameters.immediate_data);
        let segment = parameters.peer_max_recv_data_segment_length as usize;
        let first = (parameters.first_burst_length as usize).min(data.len());
        let with_command = if at_once && immediate {
            first.min(segment)
        } else {
            0
        };
        let unasked = if at_once && !initial_r2t {
            first
        } else {
            with_command
        };
        let header = self.command(cdb, 0, data.len() as u32, unasked == with_command);
        let header = ScsiCommand {
            data_length: with_command as u32,
            ..header
        };
        self.cmd_sn = self.cmd_sn.next();
        self.send(&header, &data[..with_command]);
        self.send_data(
            header.itt,
            Ttt::RESERVED,
            with_command,
            &data[with_command..unasked],
        );
        self.owed
            .insert(header.itt.0, Owed::Write { data, r2ts: 0 });
    }

    fn send_data(&mut self, itt: Itt, ttt: Ttt, offset: usize, data: &[u8]) {
        let agreed = self.agreed.as_ref().expect("it is logged in");
        let segment = agreed.parameters.peer_max_recv_data_segment_length as usize;
        let mut sent = 0;
        for (number, part) in data.chunks(segment).enumerate() {
            let header = DataOut {
                is_final: sent + part.len() == data.len(),
                lun: 0,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: Serial(number as u32),
                buffer_offset: (offset + sent) as u32,
                data_length: part.len() as u32,
            };
            self.send(&header, part);
            sent += part.len();
        }
    }

    /// Sends what was asked for longest.
    pub(super) fn answer_r2t(&mut self) -> bool {
        if self.r2ts.is_empty() {
            return false;
        }
        let r2t = self.r2ts.remove(0);
        let (from, to) = (r2t.buffer_offset, r2t.buffer_offset + r2t.desired_length);
        let Some(Owed::Write { data, r2ts }) = self.owed.get_mut(&r2t.itt.0) else {
            return true;
        };
        *r2ts -= 1;
        let part = data[from as usize..to as usize].to_vec();
        self.send_data(r2t.itt, r2t.ttt, from as usize, &part);
        true
    }

    /// Sends data that was not asked for.
    pub(super) fn send_stray_data(&mut self, itt: Itt, ttt: Ttt, offset: u32, data: &[u8]) {
        self.clean = false;
        let header = DataOut {
            is_final: offset & 1 == 0,
            lun: 0,
            itt,
            ttt,
            exp_stat_sn: self.exp_stat_sn,
            data_sn: Serial(offset % 3),
            buffer_offset: offset,
            data_length: data.len() as u32,
        };
        self.send(&header, data);
    }

    pub(super) fn ping(&mut self, data: Vec<u8>) {
        let header = NopOut {
            immediate: true,
            lun: 0,
            itt: self.next_tag(),
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_length: data.len() as u32,
        };
        self.send(&header, &data);
        self.owed.insert(header.itt.0, Owed::Ping { data });
    }

    /// Asks for a function. What it ends has no answer.
    pub(super) fn manage(&mut self, function: TaskFunction, of: Itt) {
        self.sends_for_units();
        let header = TaskManagementRequest {
            immediate: true,
            function,
            lun: 0,
            itt: self.next_tag(),
            referenced: of,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn: self.cmd_sn.minus(1),
            exp_data_sn: Serial(0),
            data_length: 0,
        };
        self.send(&header, &[]);
        self.excused = true;
        self.owed.insert(header.itt.0, Owed::Managed);
    }

    /// Reads what came, and judges it.
    ///
    /// # Panics
    /// When the target broke a rule.
    pub(super) fn judge(&mut self) {
        self.unread.extend(self.link.take_incoming());
        if !self.clean && self.agreed.is_none() {
            // What was agreed is not known.
            self.unread.clear();
            return;
        }
        let (mut pdu, mut data) = (None, Vec::new());
        let mut at = 0;
        // Of a PDU that is not whole nothing is taken.
        let mut whole = 0;
        let mut reader = self.reader.clone();
        loop {
            let fed = reader.feed(&self.unread[at..]);
            let fed = fed.expect("the target's PDUs are right");
            if let Some(Event::Data { .. }) = fed.event {
                data.extend_from_slice(&self.unread[at..at + fed.consumed]);
            }
            at += fed.consumed;
            let complete = match fed.event {
                None => break,
                Some(Event::Pdu(header)) if header.data_length() == 0 => Some(header),
                Some(Event::Pdu(header)) => {
                    pdu = Some(header);
                    None
                }
                Some(Event::Data { .. }) => None,
                Some(Event::DataEnd { digest }) => {
                    assert!(digest.is_good(), "the target's data has its digest");
                    pdu.take()
                }
            };
            if let Some(header) = complete {
                self.reader = reader;
                self.take(header, std::mem::take(&mut data));
                reader = self.reader.clone();
                whole = at;
            }
        }
        self.unread.drain(..whole);
    }

    fn take(&mut self, pdu: Pdu, data: Vec<u8>) {
        if let Pdu::LoginResponse(response) = pdu {
            return self.go_on_with_login(&response, &data);
        }
        assert!(self.is_in(), "{pdu:?} comes before the login has ended");
        if !self.clean {
            // What it asked for is not known any more.
            return;
        }
        match pdu {
            Pdu::DataIn(part) => self.take_data_in(&part, &data),
            Pdu::ScsiResponse(response) => {
                self.count(&response.serials);
                let owed = self.owed.remove(&response.itt.0);
                self.r2ts.retain(|r2t| r2t.itt != response.itt);
                match owed {
                    Some(Owed::Read { bytes, came, .. }) => {
                        assert!(came.len() <= bytes as usize);
                        let is_whole = came.len() == bytes as usize;
                        assert!(response.status != GOOD || is_whole, "a Read lacks data");
                    }
                    Some(Owed::Write { .. }) => {}
                    _ => assert!(self.excused, "{response:?} answers no command"),
                }
            }
            Pdu::R2t(r2t) => self.take_r2t(r2t),
            Pdu::NopIn(nop) => self.take_nop(&nop, &data),
            Pdu::TaskManagementResponse(response) => {
                self.count(&response.serials);
                let owed = self.owed.remove(&response.itt.0);
                assert!(matches!(owed, Some(Owed::Managed)), "{response:?}");
            }
            // Commands that are immediate have no window: there may be too many.
            Pdu::Reject(reject) => {
                assert_eq!(reject.reason, RejectReason::TooManyImmediateCommands);
                self.count(&reject.serials);
                self.excused = true;
            }
            // A unit came or went: the session goes on, or is asked to end.
            Pdu::AsyncMessage(message) => {
                self.count(&message.serials);
                self.excused = true;
            }
            other => panic!("{other:?} comes to one that asked for nothing like it"),
        }
    }

    fn go_on_with_login(&mut self, response: &LoginResponse, text: &[u8]) {
        let login = self.login.take();
        let mut login = login.expect("it answers a login that is under way");
        let mut random = |bytes: &mut [u8]| bytes.fill(0x5a);
        match login.receive(response, text, &mut random) {
            Ok(InitiatorStep::Send(next)) => {
                self.login = Some(login);
                self.send(&next.header, &next.text);
            }
            Ok(InitiatorStep::Complete(agreed)) => {
                self.writer = agreed.parameters.writer();
                self.reader.establish(agreed.parameters.receive());
                (self.cmd_sn, self.max_cmd_sn) = (agreed.cmd_sn, agreed.max_cmd_sn);
                self.exp_stat_sn = agreed.stat_sn;
                self.agreed = Some(*agreed);
            }
            // There may be as many sessions as are allowed.
            Err(_) => self.excused = true,
        }
    }

    /// An answer's number, and the window with it.
    fn count(&mut self, serials: &ResponseSerials) {
        let expected = self.exp_stat_sn;
        assert_eq!(
            serials.stat_sn, expected,
            "answers are numbered without a gap"
        );
        self.exp_stat_sn = expected.next();
        self.open(serials.max_cmd_sn);
    }

    fn open(&mut self, max_cmd_sn: Serial) {
        assert!(
            !max_cmd_sn.is_before(self.max_cmd_sn),
            "a window never shrinks"
        );
        self.max_cmd_sn = max_cmd_sn;
    }

    fn take_data_in(&mut self, part: &DataIn, data: &[u8]) {
        let parameters = &self.agreed.as_ref().expect("it is in").parameters;
        assert!(part.data_length <= parameters.max_recv_data_segment_length);
        let Some(Owed::Read { bytes, came, pdus }) = self.owed.get_mut(&part.itt.0) else {
            assert!(self.excused, "{part:?} answers no Read");
            return;
        };
        assert_eq!(part.data_sn, Serial(*pdus), "data is numbered");
        assert_eq!(part.buffer_offset as usize, came.len(), "data is in order");
        came.extend_from_slice(data);
        *pdus += 1;
        assert!(
            came.len() <= *bytes as usize,
            "more data than was asked for"
        );
        let Some(end) = part.status else {
            return self.open(part.max_cmd_sn);
        };
        assert!(
            end.status != GOOD || came.len() == *bytes as usize,
            "a Read lacks data"
        );
        if let Some(Owed::Read { came, .. }) = self.owed.remove(&part.itt.0) {
            self.last_read = (end.status == GOOD).then_some(came);
        }
        self.count(&ResponseSerials {
            stat_sn: end.stat_sn,
            exp_cmd_sn: part.exp_cmd_sn,
            max_cmd_sn: part.max_cmd_sn,
        });
    }

    fn take_r2t(&mut self, r2t: R2t) {
        let parameters = &self.agreed.as_ref().expect("it is in").parameters;
        let Some(Owed::Write { data, r2ts }) = self.owed.get_mut(&r2t.itt.0) else {
            assert!(self.excused, "{r2t:?} is of no Write");
            return;
        };
        let end = u64::from(r2t.buffer_offset) + u64::from(r2t.desired_length);
        assert!(
            r2t.desired_length > 0 && end <= data.len() as u64,
            "{r2t:?}"
        );
        assert!(r2t.desired_length <= parameters.max_burst_length, "{r2t:?}");
        *r2ts += 1;
        assert!(*r2ts <= parameters.max_outstanding_r2t, "too many R2Ts");
        // What a tag is, is the target's own matter (RFC 7143, 11.8.5); its R2Ts are of different data.
        let mut others = self.r2ts.iter().filter(|of| of.itt == r2t.itt);
        let is_new = others.all(|of| {
            let end = of.buffer_offset + of.desired_length;
            end <= r2t.buffer_offset
                || u64::from(of.buffer_offset)
                    >= u64::from(r2t.buffer_offset) + u64::from(r2t.desired_length)
        });
        assert!(r2t.ttt != Ttt::RESERVED && is_new, "{r2t:?}");
        self.r2ts.push(r2t);
    }

    fn take_nop(&mut self, nop: &NopIn, data: &[u8]) {
        if nop.itt == Itt::RESERVED {
            self.open(nop.serials.max_cmd_sn);
            if nop.ttt != Ttt::RESERVED {
                let header = NopOut {
                    immediate: true,
                    lun: nop.lun,
                    itt: Itt::RESERVED,
                    ttt: nop.ttt,
                    cmd_sn: self.cmd_sn,
                    exp_stat_sn: self.exp_stat_sn,
                    data_length: 0,
                };
                self.send(&header, &[]);
            }
            return;
        }
        self.count(&nop.serials);
        match self.owed.remove(&nop.itt.0) {
            Some(Owed::Ping { data: sent }) => {
                // An answer may be as short as the initiator takes.
                assert!(sent.starts_with(data), "a ping comes back as it was sent");
            }
            _ => panic!("{nop:?} answers no ping"),
        }
    }
}
