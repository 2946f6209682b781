//! The client's side of one connection: requests in, calls out; bytes in, data and answers out.
//!
//! A state machine without socket, clock or randomness (RFC 5531, RFC 8881, RFC 1813). Data of a read is handed on as it comes; all other replies
//! are short, and are kept until they are whole. A channel has slots of its session to itself, so that nothing is shared by connections;
//! one of version 3 has places that nobody else knows of.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weir_initiator::wire::{Commands, Exposure, Wire};
use weir_memory::{Gather, Views};
use weir_nfs::record::{Fragment, HEADER_BYTES};
use weir_nfs::rpc::{Call, Credential, NFS_PROGRAM, RPC_VERSION, Reply};
use weir_nfs::types::stable;
use weir_nfs::v3::{self, Procedure};
use weir_nfs::{FileHandle, OperationNumber, Reader, SessionId, StateId, Status, Writer, XdrError};

use crate::arguments::{Arguments, write_commit, write_sequence};
use crate::results::{Failure, Results};
use crate::slots::{Slot, Table};

/// Bytes that are handed to one send, about, so that what is ready later does not wait long behind it.
const SEND_BYTES: usize = 512 << 10;
/// Pieces of memory that are handed to one send at most, a call more or less.
const SEND_SLICES: usize = 192;
/// Bytes of a reply before the data of a read, where the server says no more than it must: of version 4, and of 3.
const READ_HEAD_BYTES: usize = 104;
const READ_HEAD_BYTES_OF_3: usize = 44;
/// Bytes of a reply but for the data of a read at most.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// The version that has COMPOUNDs, and their procedure.
const VERSION: u32 = 4;
const COMPOUND: u32 = 1;
/// A message is a call.
const CALL: u32 = 0;
/// Bytes of a call before its credential.
const CALL_BYTES: usize = 24;
/// Bits of a call's number that say which of a channel's calls it is. The others differ from one use to the next.
const INDEX_BITS: u32 = 16;

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Bytes of a read.
    Read(u32),
    /// A write.
    Written {
        /// Bytes.
        bytes: u32,
        /// It lasts only when a COMMIT confirms the verifier.
        is_unstable: bool,
        /// The verifier.
        verifier: [u8; 8],
    },
    /// A COMMIT, with its verifier.
    Committed([u8; 8]),
    /// An operation failed.
    Failed(Status),
    /// Results of what was asked for by itself.
    Results(Vec<u8>),
    /// The server did not take the call.
    Refused(Reply),
}

/// A reason for which a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A reply is not what it should be.
    Nonsense(XdrError),
    /// A reply answers no call.
    Unasked(u32),
    /// A read brings more than was asked for.
    TooMuchData(u32),
    /// A reply is longer than any is.
    TooLong,
    /// There is something behind the end of a reply, or its end is missing.
    Length,
    /// An answer has another operation's result.
    OtherOperation,
    /// A write is less durable than was asked for.
    LessStable,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Nonsense(error) => write!(formatter, "a reply makes no sense: {error}"),
            Fault::Unasked(xid) => write!(formatter, "reply {xid:#x} answers no call"),
            Fault::TooMuchData(bytes) => {
                write!(
                    formatter,
                    "a read brings {bytes} bytes, more than were asked for"
                )
            }
            Fault::TooLong => formatter.write_str("a reply is too long"),
            Fault::Length => formatter.write_str("a reply has another length than it says"),
            Fault::OtherOperation => formatter.write_str("a reply is that of another operation"),
            Fault::LessStable => formatter.write_str("a write is less durable than was asked for"),
        }
    }
}

impl From<XdrError> for Fault {
    fn from(error: XdrError) -> Self {
        Fault::Nonsense(error)
    }
}

/// A request about the file.
#[derive(Debug)]
pub(crate) enum Request {
    Read {
        offset: u64,
        count: u32,
    },
    Write {
        offset: u64,
        is_durable: bool,
        data: Views,
    },
    Commit,
}

#[derive(Debug)]
enum Work {
    Request(Request),
    /// Operations as they are.
    Asked(Arguments),
    /// A procedure as it is.
    Called(Called),
}

/// A procedure of a program, and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called {
    /// Program, version and procedure.
    pub(crate) numbers: (u32, u32, u32),
    pub(crate) arguments: Vec<u8>,
}

#[derive(Debug)]
struct Pending {
    user: u64,
    /// Distinguishes it from others at the same place.
    xid: u32,
    /// Slot, as the channel counts them; none: it needs no session.
    slot: Option<usize>,
    work: Work,
    is_sent: bool,
}

/// Share of a session that a channel has.
pub(crate) struct Share {
    pub(crate) table: Arc<Table>,
    pub(crate) session: SessionId,
    /// The highest slot of the session.
    pub(crate) highest: u32,
    /// Slots of the channel.
    pub(crate) slots: Range<u32>,
}

/// Places for requests that a channel has.
struct Held {
    /// None: they are no slots of a session.
    share: Option<Share>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

/// Place in a record.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Its head, as far as it came, is kept.
    Head,
    /// Data of a read, from byte `offset` of it on.
    Data {
        place: usize,
        offset: u32,
        left: u32,
        bytes: u32,
    },
    /// Bytes that fill the data up.
    Fill { place: usize, left: u32, bytes: u32 },
}

/// See the module.
pub struct Channel {
    /// The credential of each call, with its verifier.
    credential: Vec<u8>,
    /// The minor version; none: it is version 3.
    minor_version: Option<u32>,
    /// The file that requests are about.
    file: Option<(FileHandle, StateId)>,
    held: Option<Held>,
    pending: Vec<Option<Pending>>,
    vacant: Vec<usize>,
    calls: u32,
    outgoing: VecDeque<usize>,
    scratch: Writer,
    /// Header of a fragment, as far as it came.
    mark: Vec<u8>,
    /// Bytes of the fragment that are to come, and whether the record ends with it.
    fragment: Option<(u32, bool)>,
    part: Part,
    head: Vec<u8>,
    fault: Option<Fault>,
}

impl Channel {
    /// A channel without places for requests, of calls by `credential`, and of this minor version or of version 3.
    pub(crate) fn new(credential: &Credential<'_>, minor_version: Option<u32>) -> Channel {
        let call = Call {
            xid: 0,
            rpc_version: RPC_VERSION,
            program: NFS_PROGRAM,
            version: VERSION,
            procedure: COMPOUND,
            credential: credential.clone(),
        };
        let mut writer = Writer::new();
        call.write(&mut writer);
        Channel {
            credential: writer.into_bytes().split_off(CALL_BYTES),
            minor_version,
            file: None,
            held: None,
            pending: Vec::new(),
            vacant: Vec::new(),
            calls: 0,
            outgoing: VecDeque::new(),
            scratch: Writer::new(),
            mark: Vec::with_capacity(HEADER_BYTES),
            fragment: None,
            part: Part::Head,
            head: Vec::with_capacity(READ_HEAD_BYTES),
            fault: None,
        }
    }

    /// Takes its share of a session. A slot that is uncertain is not used.
    pub(crate) fn take_share(&mut self, share: Share) {
        let Range { start, end } = share.slots;
        let slots = share.table.get(share.session, start, end - start);
        let certain = (0..slots.len()).filter(|&slot| !slots[slot].is_uncertain);
        let free = certain.rev().collect();
        self.held = Some(Held {
            share: Some(share),
            slots,
            free,
        });
    }

    /// Makes room for so many requests of version 3 at once.
    pub(crate) fn make_room(&mut self, requests: u16) {
        let requests = usize::from(requests);
        self.held = Some(Held {
            share: None,
            slots: vec![Slot::NEW; requests],
            free: (0..requests).rev().collect(),
        });
    }

    /// Names the file that requests are about.
    pub(crate) fn set_file(&mut self, file: (FileHandle, StateId)) {
        self.file = Some(file);
    }

    /// Submits a request; its number.
    ///
    /// # Panics
    /// There is no room.
    pub(crate) fn submit(&mut self, request: Request, user: u64) -> u32 {
        let held = self.held.as_mut().expect("a request needs a session");
        let slot = held
            .free
            .pop()
            .expect("a request is submitted where there is room");
        self.insert(user, Some(slot), Work::Request(request))
    }

    /// Asks for operations under a SEQUENCE. False where there is no room.
    pub(crate) fn ask(&mut self, arguments: Arguments, user: u64) -> bool {
        let slot = self.held.as_mut().and_then(|held| held.free.pop());
        if slot.is_some() {
            self.insert(user, slot, Work::Asked(arguments));
        }
        slot.is_some()
    }

    /// Asks for operations as they are.
    pub(crate) fn ask_without_slot(&mut self, arguments: Arguments, user: u64) {
        self.insert(user, None, Work::Asked(arguments));
    }

    /// Calls a procedure.
    pub(crate) fn call(&mut self, called: Called, user: u64) {
        self.insert(user, None, Work::Called(called));
    }

    fn insert(&mut self, user: u64, slot: Option<usize>, work: Work) -> u32 {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        assert!(
            place < 1 << INDEX_BITS,
            "calls are fewer than slots and some"
        );
        self.calls = self.calls.wrapping_add(1);
        let xid = self.calls << INDEX_BITS | place as u32;
        self.pending[place] = Some(Pending {
            user,
            xid,
            slot,
            work,
            is_sent: false,
        });
        self.outgoing.push_back(place);
        xid
    }

    /// Adds one call to what is sent.
    fn send(&mut self, place: usize, gather: &mut Gather) {
        let pending = self.pending[place].as_mut().expect("it was not answered");
        pending.is_sent = true;
        let out = &mut self.scratch;
        out.truncate(0);
        out.u32(0);
        let numbers = match (&pending.work, self.minor_version) {
            (Work::Called(called), _) => called.numbers,
            (Work::Request(request), None) => {
                (NFS_PROGRAM, v3::VERSION, procedure_of(request).value())
            }
            _ => (NFS_PROGRAM, VERSION, COMPOUND),
        };
        for word in [
            pending.xid,
            CALL,
            RPC_VERSION,
            numbers.0,
            numbers.1,
            numbers.2,
        ] {
            out.u32(word);
        }
        out.raw(&self.credential);
        let data = match (&mut pending.work, self.minor_version) {
            (Work::Called(called), _) => {
                out.raw(&called.arguments);
                Views::new()
            }
            (Work::Request(request), None) => {
                let (handle, _) = self.file.as_ref().expect("a request is about a file");
                out.opaque(handle.bytes());
                write_request_of_3(out, request)
            }
            (work, minor) => {
                let held = self.held.as_ref();
                let slot = pending.slot.zip(held);
                write_compound(out, minor.unwrap_or_default(), slot, work, &self.file)
            }
        };
        let length: usize = data.iter().map(|view| view.len()).sum();
        let fragment = Fragment {
            length: (out.len() - HEADER_BYTES + length) as u32,
            is_last: true,
        };
        out.u32_at(0, u32::from_be_bytes(fragment.to_bytes()));
        gather.push_header(out.bytes());
        data.into_iter().for_each(|view| gather.push_view(view));
    }

    /// Takes bytes of a record.
    fn take(&mut self, mut bytes: &[u8], commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match &mut self.part {
                Part::Head => {
                    // As little as there may be of what is handed on as it comes.
                    let least = match self.minor_version {
                        Some(_) => READ_HEAD_BYTES,
                        None => READ_HEAD_BYTES_OF_3,
                    };
                    let wanted = match least.saturating_sub(self.head.len()) {
                        0 => 64,
                        missing => missing,
                    };
                    let (first, rest) = bytes.split_at(bytes.len().min(wanted));
                    if self.head.len() + first.len() > REPLY_BYTES_MAX {
                        return Err(Fault::TooLong);
                    }
                    self.head.extend_from_slice(first);
                    bytes = rest;
                    if self.head.len() >= least {
                        self.look_for_data(commands)?;
                    }
                }
                Part::Data {
                    place,
                    offset,
                    left,
                    bytes: all,
                } => {
                    let (first, rest) = bytes.split_at(bytes.len().min(*left as usize));
                    let user = self.pending[*place].as_ref().map(|pending| pending.user);
                    commands.data(user.expect("it is answered at its end"), *offset, first);
                    *offset += first.len() as u32;
                    *left -= first.len() as u32;
                    if *left == 0 {
                        self.part = Part::Fill {
                            place: *place,
                            left: fill(*all),
                            bytes: *all,
                        };
                    }
                    bytes = rest;
                }
                Part::Fill { left: 0, .. } => return Err(Fault::Length),
                Part::Fill { left, .. } => {
                    let taken = bytes.len().min(*left as usize);
                    *left -= taken as u32;
                    bytes = &bytes[taken..];
                }
            }
        }
        Ok(())
    }

    /// Goes over to data where the head is that of a read that brings some.
    fn look_for_data(&mut self, commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        let xid = Reader::new(&self.head).u32()?;
        let place = self.place_of(xid)?;
        let pending = self.pending[place].as_ref().expect("it is there");
        let &Work::Request(Request::Read { count, .. }) = &pending.work else {
            return Ok(());
        };
        let user = pending.user;
        let mut reader = Reader::new(&self.head);
        let found = match self.minor_version {
            Some(_) => read_head(&mut reader),
            None => read_head_of_3(&mut reader),
        };
        let found = match found {
            Err(Failure::Nonsense {
                error: XdrError::Short,
                ..
            }) => return Ok(()),
            // It ends with its head, where it is judged.
            Err(_) => return Ok(()),
            Ok(found) => found,
        };
        let Some(bytes) = found else {
            return Ok(());
        };
        if bytes > count {
            return Err(Fault::TooMuchData(bytes));
        }
        let rest = self.head[reader.position()..].len();
        let came = rest.min(bytes as usize);
        let start = reader.position();
        if came > 0 {
            commands.data(user, 0, &self.head[start..start + came]);
        }
        self.advance_slot(place);
        let left = bytes - came as u32;
        self.part = match left {
            0 => {
                let filled = (rest - came) as u32;
                let left = fill(bytes).checked_sub(filled).ok_or(Fault::Length)?;
                Part::Fill { place, left, bytes }
            }
            left => Part::Data {
                place,
                offset: came as u32,
                left,
                bytes,
            },
        };
        self.head.clear();
        Ok(())
    }

    /// Takes the end of a record.
    fn end_record(&mut self, commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        match std::mem::replace(&mut self.part, Part::Head) {
            Part::Fill {
                place,
                left: 0,
                bytes,
            } => {
                self.answer(place, Answer::Read(bytes), commands);
                Ok(())
            }
            Part::Data { .. } | Part::Fill { .. } => Err(Fault::Length),
            Part::Head => {
                let head = std::mem::take(&mut self.head);
                let result = self.whole(&head, commands);
                self.head = head;
                self.head.clear();
                result
            }
        }
    }

    /// Takes a reply that is whole.
    fn whole(&mut self, record: &[u8], commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        let mut reader = Reader::new(record);
        let (xid, reply) = Reply::parse(&mut reader)?;
        let place = self.place_of(xid)?;
        if reply != Reply::Success {
            self.answer(place, Answer::Refused(reply), commands);
            return Ok(());
        }
        let start = reader.position();
        let pending = self.pending[place].as_ref().expect("it is there");
        match (&pending.work, self.minor_version) {
            (Work::Called(_), _) => {
                let results = Answer::Results(record[start..].to_vec());
                self.answer(place, results, commands);
                return Ok(());
            }
            (Work::Request(request), None) => {
                let answer = read_results_of_3(&mut reader, request)?;
                self.answer(place, answer, commands);
                return Ok(());
            }
            _ => {}
        }
        let mut results = Results::parse(reader)?;
        if pending.slot.is_some() {
            match results.sequence() {
                Ok(_) => self.advance_slot(place),
                Err(failure) => {
                    let status = status_of(failure)?;
                    self.answer(place, Answer::Failed(status), commands);
                    return Ok(());
                }
            }
        }
        let pending = self.pending[place].as_ref().expect("it is there");
        let answer = match &pending.work {
            Work::Asked(_) => Answer::Results(record[start..].to_vec()),
            Work::Called(_) => unreachable!("it has no results of operations"),
            Work::Request(request) => match read_results(&mut results, request) {
                Ok(answer) => answer?,
                Err(failure) => Answer::Failed(status_of(failure)?),
            },
        };
        self.answer(place, answer, commands);
        Ok(())
    }

    fn place_of(&self, xid: u32) -> Result<usize, Fault> {
        let place = (xid & ((1 << INDEX_BITS) - 1)) as usize;
        match self.pending.get(place) {
            Some(Some(pending)) if pending.xid == xid && pending.is_sent => Ok(place),
            _ => Err(Fault::Unasked(xid)),
        }
    }

    fn advance_slot(&mut self, place: usize) {
        let pending = self.pending[place].as_ref();
        if let (Some(slot), Some(held)) = (pending.and_then(|one| one.slot), &mut self.held) {
            held.slots[slot].advance();
        }
    }

    fn answer(&mut self, place: usize, answer: Answer, commands: &dyn Commands<Answer>) {
        let pending = self.pending[place].take().expect("it is answered once");
        self.vacant.push(place);
        if let (Some(slot), Some(held)) = (pending.slot, &mut self.held) {
            held.free.push(slot);
        }
        commands.answer(pending.user, answer);
    }

    fn try_receive(
        &mut self,
        mut bytes: &[u8],
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let Some((left, is_last)) = self.fragment else {
                let wanted = HEADER_BYTES - self.mark.len();
                let (first, rest) = bytes.split_at(bytes.len().min(wanted));
                self.mark.extend_from_slice(first);
                bytes = rest;
                if let Ok(mark) = <[u8; HEADER_BYTES]>::try_from(&self.mark[..]) {
                    self.mark.clear();
                    let Fragment { length, is_last } = Fragment::parse(mark);
                    self.begin_fragment(length, is_last, commands)?;
                }
                continue;
            };
            let (first, rest) = bytes.split_at(bytes.len().min(left as usize));
            self.take(first, commands)?;
            bytes = rest;
            self.begin_fragment(left - first.len() as u32, is_last, commands)?;
        }
        Ok(())
    }

    /// Notes that `left` bytes of a fragment are to come.
    fn begin_fragment(
        &mut self,
        left: u32,
        is_last: bool,
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        self.fragment = (left > 0).then_some((left, is_last));
        match (left, is_last) {
            (0, true) => self.end_record(commands),
            _ => Ok(()),
        }
    }
}

impl Wire for Channel {
    type Answer = Answer;
    type Fault = Fault;

    fn room(&self) -> usize {
        match (&self.fault, &self.held) {
            (None, Some(held)) => held.free.len(),
            _ => 0,
        }
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn has_output(&self) -> bool {
        self.fault.is_none() && !self.outgoing.is_empty()
    }

    fn transmit(&mut self, gather: &mut Gather) {
        while gather.len() < SEND_BYTES && gather.slice_count() < SEND_SLICES {
            let Some(place) = self.outgoing.pop_front() else {
                return;
            };
            self.send(place, gather);
        }
    }

    fn receive(&mut self, bytes: &[u8], commands: &dyn Commands<Answer>) {
        if self.fault.is_none() {
            self.fault = self.try_receive(bytes, commands).err();
        }
    }

    fn take_unanswered(&mut self) -> Vec<(u64, Exposure)> {
        let mut unanswered = Vec::new();
        for pending in self.pending.drain(..).flatten() {
            let exposure = match pending.is_sent {
                true => Exposure::Possible,
                false => Exposure::Never,
            };
            if let (Some(slot), Some(held)) = (pending.slot, &mut self.held) {
                held.slots[slot].is_uncertain |= pending.is_sent;
            }
            unanswered.push((pending.user, exposure));
        }
        if let Some(Held {
            share: Some(share),
            slots,
            ..
        }) = self.held.take()
        {
            share.table.put(share.session, share.slots.start, &slots);
        }
        unanswered
    }
}

/// Number of bytes that fill opaque data of `bytes` bytes up.
fn fill(bytes: u32) -> u32 {
    bytes.wrapping_neg() % 4
}

/// Writes operations from the tag on, under a SEQUENCE where there is a slot; the data that they bring.
fn write_compound(
    out: &mut Writer,
    minor_version: u32,
    slot: Option<(usize, &Held)>,
    work: &mut Work,
    file: &Option<(FileHandle, StateId)>,
) -> Views {
    // No tag.
    out.opaque(&[]);
    out.u32(minor_version);
    let count = out.len();
    out.u32(0);
    let mut operations = 0;
    if let Some((slot, held)) = slot
        && let Some(share) = &held.share
    {
        out.u32(OperationNumber::Sequence.value());
        let number = share.slots.start + slot as u32;
        let sequence = held.slots[slot].sequence;
        write_sequence(out, share.session, sequence, number, share.highest);
        operations += 1;
    }
    let mut data = Views::new();
    match work {
        Work::Asked(arguments) => {
            out.raw(arguments.bytes());
            operations += arguments.count();
        }
        Work::Request(request) => {
            let (handle, stateid) = file.as_ref().expect("a request is about a file");
            out.u32(OperationNumber::Putfh.value());
            out.opaque(handle.bytes());
            data = write_request(out, request, stateid);
            operations += 2;
        }
        Work::Called(_) => unreachable!("it is no operation"),
    }
    out.u32_at(count, operations);
    data
}

fn procedure_of(request: &Request) -> Procedure {
    match request {
        Request::Read { .. } => Procedure::Read,
        Request::Write { .. } => Procedure::Write,
        Request::Commit => Procedure::Commit,
    }
}

/// Writes the arguments of version 3 behind the file, but for the data, which it yields.
fn write_request_of_3(out: &mut Writer, request: &mut Request) -> Views {
    match request {
        Request::Read { offset, count } => {
            out.u64(*offset);
            out.u32(*count);
            Views::new()
        }
        Request::Write {
            offset,
            is_durable,
            data,
        } => {
            let length = length_of(data);
            out.u64(*offset);
            out.u32(length);
            out.u32(how(*is_durable));
            out.u32(length);
            std::mem::take(data)
        }
        Request::Commit => {
            write_commit(out);
            Views::new()
        }
    }
}

/// Length of written data, which is of blocks and needs no fill.
fn length_of(data: &Views) -> u32 {
    let length: usize = data.iter().map(|view| view.len()).sum();
    assert!(length.is_multiple_of(4), "blocks need no fill");
    length as u32
}

fn how(is_durable: bool) -> u32 {
    match is_durable {
        true => stable::FILE_SYNC,
        false => stable::UNSTABLE,
    }
}

/// The same as [`read_head`], in version 3.
fn read_head_of_3(reader: &mut Reader<'_>) -> Result<Option<u32>, Failure> {
    let mut read = || -> Result<Option<u32>, XdrError> {
        let (_, reply) = Reply::parse(reader)?;
        if reply != Reply::Success || reader.u32()? != Status::Ok.value() {
            return Ok(None);
        }
        v3::Attributes::parse_told(reader)?;
        let (_count, _is_end) = (reader.u32()?, reader.bool()?);
        reader.u32().map(Some)
    };
    read().map_err(|error| Failure::Nonsense {
        operation: OperationNumber::Read.into(),
        error,
    })
}

/// Reads the results of version 3 of a request.
fn read_results_of_3(reader: &mut Reader<'_>, request: &Request) -> Result<Answer, Fault> {
    match Status::from_value(reader.u32()?) {
        Status::Ok => {}
        status => return Ok(Answer::Failed(status)),
    }
    match request {
        Request::Read { .. } => {
            v3::Attributes::parse_told(reader)?;
            let (_count, _is_end) = (reader.u32()?, reader.bool()?);
            // What has data was taken as it came.
            match reader.u32()? {
                0 => Ok(Answer::Read(0)),
                _ => Err(Fault::Length),
            }
        }
        Request::Write { is_durable, .. } => {
            v3::parse_change(reader)?;
            let (bytes, how) = (reader.u32()?, reader.u32()?);
            written(*is_durable, bytes, how, reader.fixed()?)
        }
        Request::Commit => {
            v3::parse_change(reader)?;
            Ok(Answer::Committed(reader.fixed()?))
        }
    }
}

/// The answer that a write has.
fn written(is_durable: bool, bytes: u32, how: u32, verifier: [u8; 8]) -> Result<Answer, Fault> {
    if is_durable && how != stable::FILE_SYNC {
        return Err(Fault::LessStable);
    }
    Ok(Answer::Written {
        bytes,
        is_unstable: how == stable::UNSTABLE,
        verifier,
    })
}

/// Writes an operation but for the data that it brings, which it yields.
fn write_request(out: &mut Writer, request: &mut Request, stateid: &StateId) -> Views {
    match request {
        Request::Read { offset, count } => {
            out.u32(OperationNumber::Read.value());
            stateid.write(out);
            out.u64(*offset);
            out.u32(*count);
            Views::new()
        }
        Request::Write {
            offset,
            is_durable,
            data,
        } => {
            out.u32(OperationNumber::Write.value());
            stateid.write(out);
            out.u64(*offset);
            out.u32(how(*is_durable));
            out.u32(length_of(data));
            std::mem::take(data)
        }
        Request::Commit => {
            out.u32(OperationNumber::Commit.value());
            write_commit(out);
            Views::new()
        }
    }
}

/// Reads a reply to a read up to its data; the length of the data, or none where there is no such reply.
fn read_head(reader: &mut Reader<'_>) -> Result<Option<u32>, Failure> {
    let operation = OperationNumber::Read;
    let nonsense = |error| Failure::Nonsense {
        operation: operation.into(),
        error,
    };
    let (_, reply) = Reply::parse(reader).map_err(nonsense)?;
    if reply != Reply::Success {
        return Ok(None);
    }
    let mut results = Results::parse(reader.clone()).map_err(nonsense)?;
    results.sequence()?;
    results.next(OperationNumber::Putfh)?;
    results.next(operation)?;
    let length = results.read(operation, |inner| {
        let _is_end = inner.bool()?;
        let length = inner.u32()?;
        *reader = inner.clone();
        Ok(length)
    })?;
    Ok(Some(length))
}

/// Reads the results of a request behind those of its SEQUENCE.
fn read_results(
    results: &mut Results<'_>,
    request: &Request,
) -> Result<Result<Answer, Fault>, Failure> {
    results.next(OperationNumber::Putfh)?;
    match request {
        Request::Read { count, .. } => {
            let operation = OperationNumber::Read;
            results.next(operation)?;
            let length = results.read(operation, |reader| {
                let _is_end = reader.bool()?;
                reader.opaque(*count).map(<[u8]>::len)
            })?;
            // What has data was taken as it came.
            Ok(match length {
                0 => Ok(Answer::Read(0)),
                _ => Err(Fault::Length),
            })
        }
        Request::Write { is_durable, .. } => {
            let operation = OperationNumber::Write;
            results.next(operation)?;
            let (bytes, how, verifier) = results.read(operation, |reader| {
                Ok((reader.u32()?, reader.u32()?, reader.fixed()?))
            })?;
            Ok(written(*is_durable, bytes, how, verifier))
        }
        Request::Commit => {
            let operation = OperationNumber::Commit;
            results.next(operation)?;
            let verifier = results.read(operation, Reader::fixed)?;
            Ok(Ok(Answer::Committed(verifier)))
        }
    }
}

/// The status of an operation that failed; else the connection cannot go on.
fn status_of(failure: Failure) -> Result<Status, Fault> {
    match failure {
        Failure::Status { status, .. } => Ok(status),
        Failure::Nonsense { error, .. } => Err(error.into()),
        Failure::Missing(_) => Err(Fault::OtherOperation),
    }
}

#[cfg(test)]
mod tests;
