//! One connection of a host: what was sent on it, read as the target must read it, and what came, held against that.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use weir_digest::Digest;
use weir_nvme::command::{ConnectAttributes, FabricsCommand, NvmCommand};
use weir_nvme::opcode::DataDirection;
use weir_nvme::sgl::{Payload, SglDescriptor};
use weir_nvme::tcp::{
    Alignment, C2hData, DataPdu, Event, H2cData, HEADER_SIZE_MAX, InitializeRequest,
    InitializeResponse, Pdu, R2t, Reader, ReceiveParameters, Side, Writer,
};
use weir_nvme::{Cqe, Sqe, Status};

use super::ledger::{CommandIndex, PeerId, SharedLedger, Transfer};
use super::program::Head;
use crate::link::Link;

/// In-capsule data that every controller takes with admin and Fabrics commands, in bytes.
pub(super) const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// Opcode of the Asynchronous Event Request, which may stay unanswered.
const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0c;
/// For how long a host may always keep the target waiting: less than its progress timeout.
const KEPT_WAITING_MAX: Duration = Duration::from_secs(25);

/// Where the data of a PDU that is being sent belongs.
#[derive(Debug, Clone, Copy)]
enum Place {
    Nowhere,
    Capsule(CommandIndex),
    Transfer(H2cData),
}

/// Data that came for a command.
#[derive(Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
    last: bool,
}

/// An R2T whose data was not all sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenR2t {
    pub(super) r2t: R2t,
    /// Bytes that were staged, and that were sent.
    pub(super) staged: u32,
    sent: u32,
}

/// A queue that the target granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) qid: u16,
    pub(super) controller: u16,
    /// When its Connect was sent.
    pub(super) sent: u64,
}

/// See the module.
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) link: Rc<Link>,
    /// Which host it is a connection of.
    pub(super) host: usize,
    ledger: SharedLedger,
    maximum_in_capsule: u32,
    maximum_h2c: u32,
    // What was sent.
    sent: Reader,
    sent_dead: bool,
    place: Place,
    sent_data: Vec<u8>,
    request: Option<InitializeRequest>,
    flow_control_off: bool,
    // What came.
    received: Reader,
    current: Option<C2hData>,
    incoming: HashMap<u16, Incoming>,
    pub(super) initialized: bool,
    terminated: bool,
    pub(super) granted: Option<Granted>,
    /// Queues that were granted since somebody last looked.
    news: Vec<Granted>,
    // What is outstanding.
    outstanding: HashMap<u16, Vec<CommandIndex>>,
    requested: HashMap<CommandIndex, u32>,
    pub(super) r2ts: Vec<OpenR2t>,
    // What is to be sent.
    /// An ICReq was staged.
    asked: bool,
    pub(super) writer: Writer,
    next_cid: u16,
    payloads: HashMap<u16, Vec<u8>>,
    /// Commands that must succeed unless something was made to fail.
    pub(super) sound: HashSet<u16>,
    pub(super) staged: Vec<Vec<u8>>,
    /// Nothing that breaks a rule of the transport was sent on it.
    pub(super) clean: bool,
    /// It may end without having done anything wrong.
    pub(super) may_end: bool,
    paused: bool,
    /// For how long it has owed data, or has read nothing.
    kept_waiting: Duration,
}

impl Peer {
    pub(super) fn new(link: Rc<Link>, host: usize, head: &Head, ledger: SharedLedger) -> Self {
        let id = ledger.lock().add_peer();
        ledger.lock().peers[id].host = host;
        Peer {
            id,
            link,
            host,
            ledger,
            maximum_in_capsule: head.in_capsule.max(ADMIN_IN_CAPSULE_BYTES),
            maximum_h2c: head.mdts,
            sent: Reader::new(Side::Controller),
            sent_dead: false,
            place: Place::Nowhere,
            sent_data: Vec::new(),
            request: None,
            flow_control_off: false,
            received: Reader::new(Side::Host),
            current: None,
            incoming: HashMap::new(),
            initialized: false,
            terminated: false,
            granted: None,
            news: Vec::new(),
            outstanding: HashMap::new(),
            requested: HashMap::new(),
            r2ts: Vec::new(),
            asked: false,
            writer: Writer::default(),
            next_cid: 0,
            payloads: HashMap::new(),
            sound: HashSet::new(),
            staged: Vec::new(),
            clean: true,
            may_end: false,
            paused: false,
            kept_waiting: Duration::ZERO,
        }
    }

    fn finding(&self, text: &str) {
        let (id, clean) = (self.id, self.clean);
        let kind = if clean { "clean" } else { "damaged" };
        self.ledger
            .lock()
            .finding(format!("connection {id} ({kind}): {text}"));
    }

    /// Something that breaks a rule of the transport is about to be sent.
    pub(super) fn soil(&mut self) {
        self.clean = false;
        self.ledger.lock().peers[self.id].soiled = true;
    }

    /// Stops reading, or goes on.
    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.link.pause(paused);
    }

    /// Time has passed. Who keeps the target waiting may lose the connection.
    pub(super) fn note_time(&mut self, passed: Duration) {
        if self.paused || !self.r2ts.is_empty() {
            self.kept_waiting += passed;
            self.may_end |= self.kept_waiting > KEPT_WAITING_MAX;
        } else {
            self.kept_waiting = Duration::ZERO;
        }
    }

    /// Queues that were granted since the last call.
    pub(super) fn take_news(&mut self) -> Vec<Granted> {
        std::mem::take(&mut self.news)
    }

    /// Commands that were not answered, but for those that may wait for ever.
    pub(super) fn unanswered(&self) -> usize {
        let ledger = self.ledger.lock();
        let is_admin = self.granted.is_some_and(|granted| granted.qid == 0);
        let counts = |index: &&CommandIndex| {
            let opcode = ledger.commands[**index].sqe.opcode;
            !(is_admin && opcode == ASYNCHRONOUS_EVENT_REQUEST)
        };
        self.outstanding.values().flatten().filter(counts).count()
    }

    /// The CIDs that are outstanding, in order.
    pub(super) fn outstanding_cids(&self) -> Vec<u16> {
        let mut cids: Vec<u16> = self.outstanding.keys().copied().collect();
        cids.sort_unstable();
        cids
    }

    // ---------------------------------------------------------------- staging --

    /// An ICReq.
    pub(super) fn stage_request(&mut self, request: &InitializeRequest) {
        if std::mem::replace(&mut self.asked, true) || request.check().is_err() {
            self.soil();
        }
        self.staged.push(request.encode().to_vec());
        let digests = request.digests.known();
        self.writer.header_digest = digests.contains(weir_nvme::tcp::DigestOptions::HEADER);
        self.writer.data_digest = digests.contains(weir_nvme::tcp::DigestOptions::DATA);
    }

    /// A PDU that is not to come first.
    pub(super) fn stage(&mut self, pdu: Vec<u8>) {
        if !self.asked {
            self.soil();
        }
        self.staged.push(pdu);
    }

    /// A command whose data, if it sends any, is in its capsule or waits for R2Ts, and that reads up to `reads` bytes. The
    /// command gets its CID and SGL here.
    pub(super) fn stage_command(
        &mut self,
        mut sqe: Sqe,
        data: Option<Vec<u8>>,
        in_capsule: bool,
        reads: u32,
    ) -> u16 {
        let length = data.as_ref().map_or(reads, |data| data.len() as u32);
        let fits = self.maximum_in_capsule >= length;
        let in_capsule = in_capsule && fits && data.is_some();
        sqe.sgl = match (length, in_capsule) {
            (0, _) => SglDescriptor::NONE,
            (_, true) => SglDescriptor::InCapsule { offset: 0, length },
            (_, false) => SglDescriptor::Transport { length },
        };
        self.stage_entry(sqe, data, in_capsule)
    }

    /// As [`Peer::stage_command`], with the SGL as it is.
    pub(super) fn stage_entry(
        &mut self,
        mut sqe: Sqe,
        data: Option<Vec<u8>>,
        in_capsule: bool,
    ) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = cid;
        let data = data.unwrap_or_default();
        let pdu = self.capsule(&sqe, if in_capsule { &data } else { &[] });
        self.stage(pdu);
        self.payloads.insert(cid, data);
        cid
    }

    fn with_data(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(data);
        if self.writer.data_digest_length(data.len() as u32) > 0 {
            bytes.extend(Digest::of(data).to_bytes());
        }
        bytes
    }

    fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut buffer = [0; HEADER_SIZE_MAX];
        let length = data.len() as u32;
        let written = self.writer.capsule_command(&mut buffer, sqe, length);
        self.with_data(&buffer[..written], data)
    }

    /// An H2CData PDU with these fields; its data is the command's where it has so much.
    pub(super) fn stage_transfer(&mut self, header: &H2cData) {
        let (from, length) = (header.offset as usize, header.length as usize);
        let payload = self.payloads.get(&header.cid);
        let data = payload.and_then(|payload| payload.get(from..from.checked_add(length)?));
        let data = data.map_or_else(|| vec![0x5a; length], <[u8]>::to_vec);
        let mut buffer = [0; HEADER_SIZE_MAX];
        let written = self.writer.h2c_data(&mut buffer, header);
        let pdu = self.with_data(&buffer[..written], &data);
        self.stage(pdu);
    }

    /// Up to `pdus` PDUs of the data that an R2T asks for, of up to `length` bytes each.
    pub(super) fn stage_data(&mut self, which: usize, length: u32, pdus: usize) {
        let longest = length.clamp(1, self.maximum_h2c);
        for _ in 0..pdus {
            let Some(open) = self.r2ts.get_mut(which) else {
                return;
            };
            let left = open.r2t.length - open.staged;
            if left == 0 {
                return;
            }
            let length = left.min(longest);
            let header = H2cData {
                cid: open.r2t.cid,
                transfer_tag: open.r2t.transfer_tag,
                offset: open.r2t.offset + open.staged,
                length,
                last: length == left,
            };
            open.staged += length;
            self.stage_transfer(&header);
        }
    }

    /// Sends what is staged, cut into pieces of up to `piece` bytes.
    pub(super) fn flush(&mut self, piece: usize) {
        let bytes: Vec<u8> = std::mem::take(&mut self.staged).concat();
        for piece in bytes.chunks(piece.max(1)) {
            self.note_sent(piece);
            self.link.send(piece.to_vec());
        }
    }

    // ---------------------------------------------------------- what was sent --

    /// Reads what is sent as the target does.
    fn note_sent(&mut self, mut bytes: &[u8]) {
        while !self.sent_dead {
            let Ok(fed) = self.sent.feed(bytes) else {
                self.sent_dead = true;
                return;
            };
            let (taken, rest) = bytes.split_at(fed.consumed);
            bytes = rest;
            match fed.event {
                None => return,
                Some(Event::Pdu(pdu)) => self.note_pdu(&pdu),
                Some(Event::Data { .. }) => self.sent_data.extend_from_slice(taken),
                Some(Event::DataEnd { digest, .. }) => self.note_data(digest.is_good()),
            }
        }
    }

    fn note_pdu(&mut self, pdu: &Pdu) {
        self.place = Place::Nowhere;
        self.sent_data.clear();
        match pdu {
            Pdu::InitializeRequest(request) => {
                if request.check().is_err() {
                    self.sent_dead = true;
                    return;
                }
                let digests = request.digests.known();
                self.request = Some(*request);
                self.sent.establish(ReceiveParameters {
                    header_digest: digests.contains(weir_nvme::tcp::DigestOptions::HEADER),
                    data_digest: digests.contains(weir_nvme::tcp::DigestOptions::DATA),
                    maximum_in_capsule: self.maximum_in_capsule,
                    maximum_data: self.maximum_h2c,
                    ..ReceiveParameters::INITIAL
                });
            }
            Pdu::CapsuleCommand(capsule) => self.note_command(&capsule.sqe),
            Pdu::H2cData(data) => self.place = Place::Transfer(*data),
            _ => self.may_end = true,
        }
    }

    fn note_command(&mut self, sqe: &Sqe) {
        let mut ledger = self.ledger.lock();
        let index = ledger.sent(self.id, *sqe);
        let same = self.outstanding.entry(sqe.cid).or_default();
        same.push(index);
        if same.len() > 1 {
            for index in same.iter() {
                ledger.commands[*index].ambiguous = true;
            }
        }
        if let Ok(FabricsCommand::Connect(connect)) = FabricsCommand::parse(sqe) {
            ledger.peers[self.id].io |= connect.qid > 0;
            self.flow_control_off |= connect
                .attributes
                .contains(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL);
            self.may_end |= connect.keep_alive_timeout_ms > 0;
        }
        if let Ok(FabricsCommand::Disconnect { .. }) = FabricsCommand::parse(sqe) {
            self.may_end = true;
        }
        self.place = Place::Capsule(index);
    }

    fn note_data(&mut self, good: bool) {
        let bytes = std::mem::take(&mut self.sent_data);
        let mut ledger = self.ledger.lock();
        match self.place {
            Place::Nowhere => {}
            Place::Capsule(index) => {
                ledger.commands[index].in_capsule = Some(Transfer {
                    bytes,
                    damaged: !good,
                });
            }
            Place::Transfer(data) => {
                ledger.sent_data(self.id, data.cid, data.offset, &bytes, good);
                let its = |open: &OpenR2t| {
                    open.r2t.transfer_tag == data.transfer_tag && open.r2t.cid == data.cid
                };
                if let Some(at) = self.r2ts.iter().position(its) {
                    self.r2ts[at].sent += data.length;
                    if self.r2ts[at].sent >= self.r2ts[at].r2t.length {
                        self.r2ts.remove(at);
                    }
                }
            }
        }
    }

    // -------------------------------------------------------------- what came --

    /// Takes what came.
    pub(super) fn receive(&mut self) {
        let came = self.link.take_incoming();
        let mut bytes = &came[..];
        loop {
            let fed = match self.received.feed(bytes) {
                Ok(fed) => fed,
                Err(error) => {
                    return self.finding(&format!("what the target sent is no PDU: {error}"));
                }
            };
            let (taken, rest) = bytes.split_at(fed.consumed);
            bytes = rest;
            match fed.event {
                None => break,
                Some(_) if self.terminated => {
                    return self.finding("the target went on after its termination request");
                }
                Some(Event::Data { .. }) => self.take_data(taken),
                Some(Event::DataEnd { pdu, digest }) => {
                    if !digest.is_good() {
                        self.finding("the target's data digest is wrong");
                    }
                    self.data_ended(&pdu);
                }
                Some(Event::Pdu(pdu)) => self.take_pdu(&pdu),
            }
        }
        let gone = self.link.is_gone();
        if gone {
            let mut ledger = self.ledger.lock();
            ledger.ended(self.id);
        }
    }

    fn take_pdu(&mut self, pdu: &Pdu) {
        match pdu {
            Pdu::InitializeResponse(response) => self.take_response(response),
            Pdu::CapsuleResponse(cqe) => self.complete(cqe, false),
            Pdu::C2hData(data) => self.begin_data(data),
            Pdu::R2t(r2t) => self.take_r2t(r2t),
            Pdu::Termination(request) => {
                self.terminated = true;
                self.ledger.lock().ended(self.id);
                if self.clean {
                    self.finding(&format!(
                        "it did nothing wrong and was terminated: {request:?}"
                    ));
                }
            }
            Pdu::InitializeRequest(_) | Pdu::CapsuleCommand(_) | Pdu::H2cData(_) => {
                unreachable!("a host's reader yields no {pdu:?}")
            }
        }
    }

    fn take_response(&mut self, response: &InitializeResponse) {
        let Some(request) = self.request else {
            return self.finding("an ICResp without a good ICReq");
        };
        if let Err(termination) = response.check(&request) {
            return self.finding(&format!("the ICResp is not right: {termination:?}"));
        }
        if response.digests != request.digests.known() {
            self.finding("the digests asked for were not granted");
        }
        if response.maximum_h2c_data != self.maximum_h2c {
            self.finding("MAXH2CDATA is not MDTS");
        }
        self.initialized = true;
        self.received.establish(ReceiveParameters {
            header_digest: response
                .digests
                .contains(weir_nvme::tcp::DigestOptions::HEADER),
            data_digest: response
                .digests
                .contains(weir_nvme::tcp::DigestOptions::DATA),
            alignment: Alignment::from_wire(request.alignment).expect("it was checked"),
            maximum_in_capsule: 0,
            maximum_data: u32::MAX,
        });
    }

    /// Whether a command under this CID moves data in this direction, and at most how much.
    fn longest(&self, cid: u16, direction: DataDirection) -> Option<u32> {
        let ledger = self.ledger.lock();
        let length = |index: &CommandIndex| {
            let sqe = &ledger.commands[*index].sqe;
            match sqe.tcp_data() {
                Ok(Payload::Transport { length }) if sqe.data_direction() == direction => {
                    Some(length)
                }
                _ => None,
            }
        };
        let commands = self.outstanding.get(&cid)?;
        commands.iter().filter_map(length).max()
    }

    fn take_r2t(&mut self, r2t: &R2t) {
        let Some(longest) = self.longest(r2t.cid, DataDirection::HostToController) else {
            return self.finding(&format!("{r2t:?} for no command that has data to fetch"));
        };
        let end = r2t.offset.checked_add(r2t.length);
        if r2t.length == 0 || end.is_none_or(|end| end > longest) {
            self.finding(&format!("{r2t:?} is beyond the {longest} bytes there are"));
        }
        let tag = |open: &OpenR2t| open.r2t.transfer_tag == r2t.transfer_tag;
        if self.r2ts.iter().any(tag) {
            self.finding(&format!("{r2t:?} has the tag of another"));
        }
        let outstanding = &self.outstanding[&r2t.cid];
        let most = self
            .request
            .map_or(0, |request| u64::from(request.maximum_r2t_zero_based) + 1)
            * outstanding.len() as u64;
        let same = self.r2ts.iter().filter(|open| open.r2t.cid == r2t.cid);
        // An earlier command under the CID that was aborted may still have one.
        if self.clean && same.count() as u64 >= most {
            self.finding(&format!("{r2t:?} is one more than MAXR2T"));
        }
        if let [only] = outstanding[..] {
            let requested = self.requested.entry(only).or_default();
            if *requested != r2t.offset {
                let text = format!("{r2t:?} does not follow on at {requested}");
                self.finding(&text);
            }
            *self.requested.entry(only).or_default() += r2t.length;
        }
        self.r2ts.push(OpenR2t {
            r2t: *r2t,
            staged: 0,
            sent: 0,
        });
    }

    fn begin_data(&mut self, data: &C2hData) {
        let Some(longest) = self.longest(data.cid, DataDirection::ControllerToHost) else {
            self.current = None;
            return self.finding(&format!("{data:?} for no command that reads"));
        };
        let incoming = self.incoming.entry(data.cid).or_default();
        let follows = incoming.bytes.len() == data.offset as usize && !incoming.last;
        incoming.last = data.last;
        let within = data
            .offset
            .checked_add(data.length)
            .is_some_and(|end| end <= longest);
        if !follows || !within || data.length == 0 {
            self.finding(&format!(
                "{data:?} does not follow on, or is beyond the {longest} bytes asked for"
            ));
        }
        if data.success && !self.flow_control_off {
            self.finding("a success flag with SQ flow control");
        }
        self.current = Some(*data);
    }

    fn take_data(&mut self, bytes: &[u8]) {
        if let Some(current) = &self.current
            && let Some(incoming) = self.incoming.get_mut(&current.cid)
        {
            incoming.bytes.extend_from_slice(bytes);
        }
    }

    fn data_ended(&mut self, pdu: &DataPdu) {
        if let DataPdu::C2hData(data) = pdu
            && data.success
        {
            self.complete(&Cqe::new(data.cid, 0, Status::SUCCESS), true);
        }
    }

    fn complete(&mut self, cqe: &Cqe, by_flag: bool) {
        let Some(same) = self.outstanding.get_mut(&cqe.cid) else {
            return self.finding(&format!("an answer to nothing: {cqe:?}"));
        };
        let index = same.remove(0);
        if same.is_empty() {
            self.outstanding.remove(&cqe.cid);
        }
        let data = self.incoming.remove(&cqe.cid).unwrap_or_default();
        if !data.bytes.is_empty() && !data.last && !by_flag {
            self.finding(&format!("{cqe:?} before the last of its data"));
        }
        let (sqe, ambiguous, sent) = {
            let ledger = self.ledger.lock();
            let command = &ledger.commands[index];
            (command.sqe, command.ambiguous, command.sent)
        };
        if !ambiguous {
            self.judge(index, &sqe, cqe, &data.bytes);
        }
        if cqe.status.is_success()
            && let Ok(FabricsCommand::Connect(connect)) = FabricsCommand::parse(&sqe)
        {
            let granted = Granted {
                qid: connect.qid,
                controller: cqe.dw0() as u16,
                sent,
            };
            if self.granted.is_some() && !ambiguous {
                self.finding("a second Connect was granted");
            }
            self.granted = Some(granted);
            self.news.push(granted);
        }
        let done = cqe.status.is_success() && !ambiguous;
        self.ledger.lock().answered(index, done);
    }

    fn judge(&mut self, index: CommandIndex, sqe: &Sqe, cqe: &Cqe, data: &[u8]) {
        let is_io = self.granted.is_some_and(|granted| granted.qid > 0);
        let success = cqe.status.is_success();
        if self.clean && self.sound.remove(&sqe.cid) && !success && is_io {
            let excused =
                self.ledger.lock().failures_made || cqe.status.is(Status::COMMAND_INTERRUPTED);
            if !excused {
                self.finding(&format!("a sound command failed: {cqe:?}, {sqe:?}"));
            }
        }
        if !is_io || sqe.is_fabrics() || !success {
            return;
        }
        let mut ledger = self.ledger.lock();
        match NvmCommand::parse(sqe) {
            Ok(NvmCommand::Read(read)) => {
                ledger.check_seen(index, read.lba, read.blocks, data);
            }
            Ok(NvmCommand::Write(write)) => ledger.check_written(index, write.blocks),
            Ok(NvmCommand::Compare(compare)) => {
                if let Some(data) = ledger.compared(index) {
                    ledger.check_seen(index, compare.lba, compare.blocks, &data);
                }
            }
            _ => {}
        }
    }
}
