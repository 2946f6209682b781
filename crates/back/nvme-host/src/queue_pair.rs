//! The host's side of one queue pair over TCP: commands in, PDUs out; bytes in, data and answers out.
//!
//! A state machine without socket, clock or randomness (NVMe/TCP Transport 1.0 section 3). It holds what a command sends
//! until the command is answered, and never what a command receives: that is handed on as it arrives. A CID is a slot and a
//! count of its uses, so that an answer that comes too late meets no other command. What the controller asked for it is sent
//! though it has ended the command meanwhile: it may wait for it, and keep the command's place for so long.

use std::collections::VecDeque;
use std::fmt;

use weir_digest::{DataDigest, digest_of_parts};
use weir_memory::{Gather, View, slice_views, views_len};
use weir_nvme::tcp::{
    Alignment, C2hData, DataPdu, DigestOptions, Event, FramingError, H2cData, HEADER_SIZE_MAX,
    InitializeRequest, InitializeResponse, Pdu, R2t, Reader, ReceiveParameters, Side,
    TERMINATION_SIZE_MAX, Termination, TerminationRequest, Writer, encode_termination,
};
use weir_nvme::{Cqe, SglDescriptor, Sqe, Status};

use weir_initiator::wire::{Commands, Exposure, Payload, Wire};

use crate::options::Options;

/// In-capsule data that every controller takes with admin and Fabrics commands, in bytes (NVMe/TCP Transport 1.0 section
/// 3.3.2.1).
pub(crate) const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// About so many bytes are handed to one send, so that what is ready later does not wait long behind it.
const SEND_BYTES: usize = 512 * 1024;
/// So many pieces of memory are handed to one send at most, a PDU more or less.
const SEND_SLICES: usize = 192;

/// What a queue pair is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// What this host wants of C2HData (HPDA).
    pub(crate) alignment: Alignment,
    /// Outstanding commands.
    pub(crate) slots: u16,
    /// In-capsule data that I/O commands may have; see [`ADMIN_IN_CAPSULE_BYTES`] for the others.
    pub(crate) in_capsule_bytes: u32,
}

impl Settings {
    /// For an admin queue.
    pub(crate) fn admin(options: &Options, slots: u16) -> Settings {
        Settings::io(options, slots, ADMIN_IN_CAPSULE_BYTES)
    }

    /// For an I/O queue.
    pub(crate) fn io(options: &Options, slots: u16, in_capsule_bytes: u32) -> Settings {
        Settings {
            header_digest: options.common.header_digest,
            data_digest: options.common.data_digest,
            alignment: Alignment::from_wire(options.host_data_alignment)
                .expect("options hold HPDA within its range"),
            slots,
            in_capsule_bytes,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The controller's completion. Where it succeeded its data came whole.
    Cqe(Cqe),
    /// The controller completed it, but its data was damaged or did not come whole.
    Damaged,
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The controller broke the protocol.
    Protocol(FramingError),
    /// The controller says that this host broke it.
    Terminated(TerminationRequest),
    /// The controller does not do a digest that was asked for.
    Digest(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Protocol(error) => {
                write!(formatter, "the controller broke the protocol: {error}")
            }
            Fault::Terminated(request) => write!(
                formatter,
                "the controller ended the connection: {} (FEI {:#x})",
                request.status, request.information
            ),
            Fault::Digest(which) => write!(
                formatter,
                "the controller does not do {which} digests: leave them off here, or turn them on there"
            ),
        }
    }
}

/// A command that was not answered yet, or whose data is owed still.
struct Pending {
    user: u64,
    sqe: Sqe,
    payload: Payload,
    in_capsule: bool,
    /// Whether its capsule was handed to a send.
    sent: bool,
    /// Whether data of it was.
    data_sent: bool,
    /// Bytes of its data that came, or that the controller asked for.
    transferred: u32,
    /// What the controller asked for and was not handed to a send yet.
    owed: Option<Owed>,
    /// Whether data of it came damaged.
    damaged: bool,
    /// It was answered. It keeps its slot until what is owed was handed to a send, so that the controller never has more commands
    /// than it has entries.
    answered: bool,
}

#[derive(Clone, Copy)]
struct Owed {
    transfer_tag: u16,
    offset: u32,
    left: u32,
}

struct Slot {
    uses: u16,
    pending: Option<Pending>,
}

/// Something to be sent, in order.
#[derive(Clone, Copy)]
enum Outgoing {
    Capsule(u16),
    /// Data that the controller asked for.
    Data(u16),
}

/// See the module.
pub struct QueuePair {
    settings: Settings,
    request: InitializeRequest,
    request_sent: bool,
    ready: bool,
    reader: Reader,
    writer: Writer,
    /// MAXH2CDATA.
    maximum_data: u32,
    slots: Vec<Slot>,
    slot_bits: u32,
    free: Vec<u16>,
    outgoing: VecDeque<Outgoing>,
    /// CID of the C2HData that is being received, and where its data belongs.
    current_data: (u16, u32),
    fault: Option<Fault>,
    /// The termination request to be sent.
    farewell: Option<Vec<u8>>,
}

impl QueuePair {
    pub(crate) fn new(settings: Settings) -> QueuePair {
        assert!(settings.slots > 0, "a queue pair has a slot");
        let mut digests = DigestOptions::NONE;
        if settings.header_digest {
            digests = digests | DigestOptions::HEADER;
        }
        if settings.data_digest {
            digests = digests | DigestOptions::DATA;
        }
        let mut request = InitializeRequest::new(digests);
        request.alignment = settings.alignment.to_wire();
        let slot_bits = u16::BITS - (settings.slots - 1).leading_zeros();
        QueuePair {
            settings,
            request,
            request_sent: false,
            ready: false,
            reader: Reader::new(Side::Host),
            writer: Writer::default(),
            maximum_data: 0,
            slots: (0..settings.slots)
                .map(|_| Slot {
                    uses: 0,
                    pending: None,
                })
                .collect(),
            slot_bits,
            free: (0..settings.slots).rev().collect(),
            outgoing: VecDeque::new(),
            current_data: (0, 0),
            fault: None,
            farewell: None,
        }
    }

    /// Commands that can be submitted now.
    pub(crate) fn room(&self) -> usize {
        match self.fault {
            None => self.free.len(),
            Some(_) => 0,
        }
    }

    /// Why it cannot go on, if so. What is to be sent before the connection is closed still comes from
    /// [`QueuePair::transmit`].
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Takes a command; its CID. The entry's CID and SGL are set here.
    ///
    /// # Panics
    /// When there is no room.
    pub(crate) fn submit(&mut self, mut sqe: Sqe, payload: Payload, user: u64) -> u16 {
        let slot = self
            .free
            .pop()
            .expect("a command is submitted where there is room");
        let cid = self.next_cid(slot);
        sqe.cid = cid;
        let in_capsule_bytes = match sqe.is_fabrics() {
            true => self.settings.in_capsule_bytes.max(ADMIN_IN_CAPSULE_BYTES),
            false => self.settings.in_capsule_bytes,
        };
        let (sgl, in_capsule) = match &payload {
            Payload::None => (SglDescriptor::Transport { length: 0 }, false),
            Payload::In(length) => (SglDescriptor::Transport { length: *length }, false),
            Payload::Out(views) => {
                let length =
                    u32::try_from(views_len(views)).expect("a command moves less than 4 GiB");
                match length <= in_capsule_bytes {
                    true => (SglDescriptor::InCapsule { offset: 0, length }, true),
                    false => (SglDescriptor::Transport { length }, false),
                }
            }
        };
        sqe.sgl = sgl;
        let pending = Pending {
            user,
            sqe,
            payload,
            in_capsule,
            sent: false,
            data_sent: false,
            transferred: 0,
            owed: None,
            damaged: false,
            answered: false,
        };
        self.slots[usize::from(slot)].pending = Some(pending);
        self.outgoing.push_back(Outgoing::Capsule(cid));
        cid
    }

    /// Takes a fused pair, whose capsules are sent one right after the other; their CIDs.
    ///
    /// # Panics
    /// When there is no room for two.
    pub(crate) fn submit_fused(
        &mut self,
        first: (Sqe, Payload, u64),
        second: (Sqe, Payload, u64),
    ) -> (u16, u16) {
        assert!(
            self.room() >= 2,
            "a fused pair is submitted where there is room for two"
        );
        let first = self.submit(first.0, first.1, first.2);
        let second = self.submit(second.0, second.1, second.2);
        (first, second)
    }

    /// Whether there is something to send.
    pub(crate) fn has_output(&self) -> bool {
        match self.fault {
            Some(_) => self.farewell.is_some(),
            None if !self.request_sent => true,
            None => self.ready && !self.outgoing.is_empty(),
        }
    }

    /// Adds what is to be sent next. It counts as sent.
    pub(crate) fn transmit(&mut self, gather: &mut Gather) {
        if let Some(farewell) = self.farewell.take() {
            return gather.push_header(&farewell);
        }
        if self.fault.is_some() {
            return;
        }
        if !self.request_sent {
            self.request_sent = true;
            return gather.push_header(&self.request.encode());
        }
        while gather.len() < SEND_BYTES && gather.slice_count() < SEND_SLICES {
            match self.outgoing.pop_front() {
                Some(Outgoing::Capsule(cid)) => self.send_capsule(cid, gather),
                Some(Outgoing::Data(cid)) => self.send_data(cid, gather),
                None => return,
            }
        }
    }

    fn send_capsule(&mut self, cid: u16, gather: &mut Gather) {
        let writer = self.writer;
        let Some(pending) = self.find(cid) else {
            unreachable!("a command that was not sent is not answered");
        };
        pending.sent = true;
        let views: &[View] = match &pending.payload {
            Payload::Out(views) if pending.in_capsule => views,
            _ => &[],
        };
        let length = views_len(views) as u32;
        let mut header = [0; HEADER_SIZE_MAX];
        let header_length = writer.capsule_command(&mut header, &pending.sqe, length);
        gather.push_header(&header[..header_length]);
        push_data(&writer, views, length, gather);
        pending.data_sent = length > 0;
    }

    /// Sends one H2CData of what is owed to a command.
    fn send_data(&mut self, cid: u16, gather: &mut Gather) {
        let (writer, maximum_data) = (self.writer, self.maximum_data);
        let Some(pending) = self.find(cid) else {
            unreachable!("a command stays until what is owed was sent");
        };
        let (Some(owed), Payload::Out(views)) = (&mut pending.owed, &pending.payload) else {
            unreachable!("data is sent that was asked for");
        };
        let length = owed.left.min(maximum_data);
        let data = H2cData {
            cid,
            transfer_tag: owed.transfer_tag,
            offset: owed.offset,
            length,
            last: length == owed.left,
        };
        let mut header = [0; HEADER_SIZE_MAX];
        let header_length = writer.h2c_data(&mut header, &data);
        gather.push_header(&header[..header_length]);
        let views = slice_views(views, owed.offset as usize, length as usize);
        push_data(&writer, &views, length, gather);
        owed.offset += length;
        owed.left -= length;
        pending.data_sent = true;
        if !data.last {
            return self.outgoing.push_back(Outgoing::Data(cid));
        }
        pending.owed = None;
        if pending.answered {
            self.release(cid);
        }
    }

    /// Takes received bytes.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], commands: &dyn Commands<Answer>) {
        while self.fault.is_none() {
            // By reference: an event is as long as the longest PDU's header.
            match &self.reader.feed(bytes) {
                Ok(fed) => {
                    let (taken, rest) = bytes.split_at(fed.consumed);
                    bytes = rest;
                    let Some(event) = &fed.event else {
                        return;
                    };
                    if let Err(fault) = self.event(event, taken, commands) {
                        self.fail(fault);
                    }
                }
                Err(error) => self.fail(Fault::Protocol(*error)),
            }
        }
    }

    fn fail(&mut self, fault: Fault) {
        if let Fault::Protocol(FramingError::Terminate(termination)) = &fault {
            let mut buffer = [0; TERMINATION_SIZE_MAX];
            let length =
                encode_termination(Side::Host, termination, self.reader.header(), &mut buffer);
            self.farewell = Some(buffer[..length].to_vec());
        }
        self.fault = Some(fault);
    }

    fn event(
        &mut self,
        event: &Event,
        taken: &[u8],
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        match event {
            Event::Pdu(Pdu::InitializeResponse(response)) => self.establish(response),
            Event::Pdu(Pdu::CapsuleResponse(cqe)) => Ok(self.completion(cqe, commands)?),
            Event::Pdu(Pdu::C2hData(data)) => Ok(self.data_begins(data)?),
            Event::Pdu(Pdu::R2t(r2t)) => Ok(self.ready_to_transfer(r2t)?),
            Event::Pdu(Pdu::Termination(request)) => Err(Fault::Terminated(*request)),
            Event::Data { offset } => {
                let (cid, start) = self.current_data;
                if let Some(pending) = self.find(cid) {
                    commands.data(pending.user, start + offset, taken);
                }
                Ok(())
            }
            Event::DataEnd {
                pdu: DataPdu::C2hData(data),
                digest,
            } => {
                self.data_ends(data, *digest, commands);
                Ok(())
            }
            Event::Pdu(_) | Event::DataEnd { .. } => {
                unreachable!("the reader yields what a host receives")
            }
        }
    }

    fn establish(&mut self, response: &InitializeResponse) -> Result<(), Fault> {
        let alignment = response.check(&self.request)?;
        let enabled = |digest| response.digests.contains(digest);
        if self.settings.header_digest && !enabled(DigestOptions::HEADER) {
            return Err(Fault::Digest("header"));
        }
        if self.settings.data_digest && !enabled(DigestOptions::DATA) {
            return Err(Fault::Digest("data"));
        }
        self.writer = Writer {
            header_digest: self.settings.header_digest,
            data_digest: self.settings.data_digest,
            alignment,
        };
        self.reader.establish(ReceiveParameters {
            header_digest: self.settings.header_digest,
            data_digest: self.settings.data_digest,
            alignment: self.settings.alignment,
            maximum_in_capsule: 0,
            maximum_data: u32::MAX,
        });
        self.maximum_data = response.maximum_h2c_data;
        self.ready = true;
        Ok(())
    }

    fn completion(
        &mut self,
        cqe: &Cqe,
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Termination> {
        let pending = self.find_sent(cqe.cid);
        let pending = pending.ok_or(Termination::invalid_field(field::RESPONSE_CID))?;
        let whole = match pending.payload {
            Payload::In(length) => !pending.damaged && pending.transferred == length,
            Payload::Out(_) | Payload::None => true,
        };
        let answer = match cqe.status.is_success() && !whole {
            true => Answer::Damaged,
            false => Answer::Cqe(*cqe),
        };
        let user = self.end(cqe.cid);
        commands.answer(user, answer);
        Ok(())
    }

    /// Data of a command comes in order, and not more than it asked for.
    fn data_begins(&mut self, data: &C2hData) -> Result<(), Termination> {
        let pending = self.find_sent(data.cid);
        let pending = pending.ok_or(Termination::invalid_field(field::DATA_CID))?;
        let Payload::In(length) = pending.payload else {
            return Err(Termination::invalid_field(field::DATA_CID));
        };
        if data.offset != pending.transferred {
            return Err(Termination::invalid_field(field::DATA_OFFSET));
        }
        let end = data.offset.checked_add(data.length);
        if end.is_none_or(|end| end > length) {
            return Err(Termination::out_of_range());
        }
        self.current_data = (data.cid, data.offset);
        Ok(())
    }

    fn data_ends(&mut self, data: &C2hData, digest: DataDigest, commands: &dyn Commands<Answer>) {
        let Some(pending) = self.find(data.cid) else {
            return;
        };
        pending.transferred += data.length;
        pending.damaged |= !digest.is_good();
        if !data.success {
            return;
        }
        let whole = match pending.payload {
            Payload::In(length) => pending.transferred == length,
            _ => false,
        };
        let answer = match whole && !pending.damaged {
            true => Answer::Cqe(Cqe::new(data.cid, 0, Status::SUCCESS)),
            false => Answer::Damaged,
        };
        let user = self.end(data.cid);
        commands.answer(user, answer);
    }

    /// The controller asks for data, in order, and one piece at a time: MAXR2T is 0 in ICReq.
    fn ready_to_transfer(&mut self, r2t: &R2t) -> Result<(), Termination> {
        let pending = self.find_sent(r2t.cid);
        let pending = pending.ok_or(Termination::invalid_field(field::DATA_CID))?;
        let length = match &pending.payload {
            Payload::Out(views) if !pending.in_capsule => views_len(views) as u32,
            _ => return Err(Termination::invalid_field(field::DATA_CID)),
        };
        if pending.owed.is_some() {
            return Err(Termination::limit_exceeded());
        }
        if r2t.offset != pending.transferred {
            return Err(Termination::invalid_field(field::DATA_OFFSET));
        }
        let end = r2t.offset.checked_add(r2t.length);
        if r2t.length == 0 || end.is_none_or(|end| end > length) {
            return Err(Termination::invalid_field(field::DATA_LENGTH));
        }
        pending.transferred += r2t.length;
        pending.owed = Some(Owed {
            transfer_tag: r2t.transfer_tag,
            offset: r2t.offset,
            left: r2t.length,
        });
        self.outgoing.push_back(Outgoing::Data(r2t.cid));
        Ok(())
    }

    /// The commands that were not answered, and whether the controller may have carried them out. They are forgotten.
    pub(crate) fn take_unanswered(&mut self) -> Vec<(u64, Exposure)> {
        self.outgoing.clear();
        let slots = self.slots.iter_mut();
        slots
            .filter_map(|slot| slot.pending.take())
            .filter(|pending| !pending.answered)
            .map(|pending| {
                let moved = match pending.payload {
                    Payload::Out(_) => pending.data_sent,
                    Payload::In(_) | Payload::None => true,
                };
                let exposure = match pending.sent && moved {
                    true => Exposure::Possible,
                    false => Exposure::Never,
                };
                (pending.user, exposure)
            })
            .collect()
    }

    fn next_cid(&mut self, slot: u16) -> u16 {
        let entry = &mut self.slots[usize::from(slot)];
        loop {
            entry.uses = entry.uses.wrapping_add(1);
            let cid = entry
                .uses
                .checked_shl(self.slot_bits)
                .map_or(slot, |uses| uses | slot);
            // FFFFh means no command in an Error Information entry.
            if cid != u16::MAX {
                return cid;
            }
        }
    }

    /// The bits of a CID that are its slot.
    fn slot_mask(&self) -> u16 {
        u16::MAX
            .checked_shr(u16::BITS - self.slot_bits)
            .unwrap_or(0)
    }

    fn find(&mut self, cid: u16) -> Option<&mut Pending> {
        let slot = usize::from(cid & self.slot_mask());
        let pending = self.slots.get_mut(slot)?.pending.as_mut()?;
        (pending.sqe.cid == cid).then_some(pending)
    }

    /// A command that the controller may say something of.
    fn find_sent(&mut self, cid: u16) -> Option<&mut Pending> {
        self.find(cid)
            .filter(|pending| pending.sent && !pending.answered)
    }

    /// A command is answered: whom it was submitted for.
    fn end(&mut self, cid: u16) -> u64 {
        let pending = self.find(cid).expect("a command is answered once");
        let user = pending.user;
        pending.answered = true;
        if pending.owed.is_none() {
            self.release(cid);
        }
        user
    }

    fn release(&mut self, cid: u16) {
        let slot = cid & self.slot_mask();
        // In place: a command is longer than what is wanted of it.
        self.slots[usize::from(slot)].pending = None;
        self.free.push(slot);
    }
}

/// Data after a header, and its digest.
fn push_data(writer: &Writer, views: &[View], length: u32, gather: &mut Gather) {
    if length == 0 {
        return;
    }
    views.iter().for_each(|view| gather.push_view(view.clone()));
    if writer.data_digest {
        let digest = digest_of_parts(views.iter().map(|view| &**view));
        gather.push_header(&digest.to_bytes());
    }
}

impl From<Termination> for Fault {
    fn from(termination: Termination) -> Fault {
        Fault::Protocol(termination.into())
    }
}

/// Bytes of a PDU where the fields are that this module judges (NVMe/TCP Transport 1.0 section 3.6.2).
mod field {
    /// CID of the completion in a CapsuleResp.
    pub(super) const RESPONSE_CID: u32 = 20;
    /// CCCID of C2HData and R2T.
    pub(super) const DATA_CID: u32 = 8;
    /// DATAO, R2TO.
    pub(super) const DATA_OFFSET: u32 = 12;
    /// DATAL, R2TL.
    pub(super) const DATA_LENGTH: u32 = 16;
}

impl Wire for QueuePair {
    type Answer = Answer;
    type Fault = Fault;

    fn room(&self) -> usize {
        QueuePair::room(self)
    }

    fn fault(&self) -> Option<&Fault> {
        QueuePair::fault(self)
    }

    fn has_output(&self) -> bool {
        QueuePair::has_output(self)
    }

    fn transmit(&mut self, gather: &mut Gather) {
        QueuePair::transmit(self, gather);
    }

    fn receive(&mut self, bytes: &[u8], commands: &dyn Commands<Answer>) {
        QueuePair::receive(self, bytes, commands);
    }

    fn take_unanswered(&mut self) -> Vec<(u64, Exposure)> {
        QueuePair::take_unanswered(self)
    }
}

#[cfg(test)]
mod instructions;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;
    use weir_digest::Digest;
    use weir_memory::Segment;
    use weir_nvme::tcp::FatalErrorStatus;

    use super::*;

    /// What came of commands, in order; data of one command put together.
    #[derive(Default)]
    struct Seen {
        data: RefCell<Vec<(u64, u32, Vec<u8>)>>,
        answers: RefCell<Vec<(u64, Answer)>>,
    }

    impl Commands<Answer> for Seen {
        fn data(&self, user: u64, offset: u32, bytes: &[u8]) {
            self.data.borrow_mut().push((user, offset, bytes.to_vec()));
        }
        fn answer(&self, user: u64, answer: Answer) {
            self.answers.borrow_mut().push((user, answer));
        }
    }

    impl Seen {
        fn whole(&self, user: u64) -> Vec<u8> {
            let data = self.data.borrow();
            let mut whole = Vec::new();
            for (_, offset, bytes) in data.iter().filter(|(of, ..)| *of == user) {
                assert_eq!(*offset as usize, whole.len());
                whole.extend_from_slice(bytes);
            }
            whole
        }
    }

    fn settings(digests: bool) -> Settings {
        Settings {
            header_digest: digests,
            data_digest: digests,
            alignment: Alignment::DWORD,
            slots: 4,
            in_capsule_bytes: 4096,
        }
    }

    /// The other end: writes PDUs as a controller does, and reads what the queue pair sends.
    struct Peer {
        pair: QueuePair,
        seen: Seen,
        writer: Writer,
        reader: Reader,
    }

    fn sent(pair: &mut QueuePair) -> Vec<u8> {
        let mut gather = Gather::new();
        while pair.has_output() {
            pair.transmit(&mut gather);
        }
        gather.slices().flatten().copied().collect()
    }

    fn peer(digests: bool, maximum_h2c_data: u32) -> Peer {
        let mut pair = QueuePair::new(settings(digests));
        let seen = Seen::default();
        let request = sent(&mut pair);
        assert_eq!(request.len(), InitializeRequest::SIZE);
        let mut reader = Reader::new(Side::Controller);
        reader.feed(&request).expect("well formed");
        let flags = DigestOptions(if digests { 3 } else { 0 });
        let writer = Writer {
            header_digest: digests,
            data_digest: digests,
            alignment: Alignment::DWORD,
        };
        reader.establish(ReceiveParameters {
            header_digest: digests,
            data_digest: digests,
            alignment: Alignment::DWORD,
            maximum_in_capsule: 8192,
            maximum_data: maximum_h2c_data,
        });
        let response = InitializeResponse::new(flags, maximum_h2c_data).encode();
        pair.receive(&response, &seen);
        assert_eq!(pair.fault(), None);
        Peer {
            pair,
            seen,
            writer,
            reader,
        }
    }

    /// What the peer read.
    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Heard {
        Capsule(u16, Vec<u8>),
        Data(H2cData, Vec<u8>),
        Termination(FatalErrorStatus, u32),
    }

    impl Peer {
        fn hear(&mut self) -> Vec<Heard> {
            let bytes = sent(&mut self.pair);
            let (mut rest, mut heard, mut data) = (&bytes[..], Vec::new(), Vec::new());
            loop {
                let fed = self
                    .reader
                    .feed(rest)
                    .expect("the initiator's PDUs are right");
                let (taken, left) = rest.split_at(fed.consumed);
                rest = left;
                match fed.event {
                    None => return heard,
                    Some(Event::Data { .. }) => data.extend_from_slice(taken),
                    Some(Event::Pdu(Pdu::CapsuleCommand(capsule))) if capsule.data_length == 0 => {
                        heard.push(Heard::Capsule(capsule.sqe.cid, Vec::new()));
                    }
                    Some(Event::Pdu(Pdu::Termination(request))) => {
                        heard.push(Heard::Termination(request.status, request.information));
                    }
                    Some(Event::Pdu(_)) => {}
                    Some(Event::DataEnd { pdu, digest }) => {
                        assert!(digest.is_good());
                        let data = std::mem::take(&mut data);
                        match pdu {
                            DataPdu::CapsuleCommand { cid } => {
                                heard.push(Heard::Capsule(cid, data));
                            }
                            DataPdu::H2cData(header) => heard.push(Heard::Data(header, data)),
                            other => panic!("{other:?} has no data"),
                        }
                    }
                }
            }
        }

        fn say(&mut self, header: impl FnOnce(&Writer, &mut [u8]) -> usize, data: &[u8]) {
            let mut bytes = [0; HEADER_SIZE_MAX];
            let length = header(&self.writer, &mut bytes);
            let mut pdu = bytes[..length].to_vec();
            pdu.extend_from_slice(data);
            if self.writer.data_digest && !data.is_empty() {
                pdu.extend_from_slice(&Digest::of(data).to_bytes());
            }
            self.pair.receive(&pdu, &self.seen);
        }

        fn say_completion(&mut self, cid: u16, status: Status) {
            let cqe = Cqe::new(cid, 0, status);
            self.say(|writer, buffer| writer.capsule_response(buffer, &cqe), &[]);
        }

        fn say_data(&mut self, cid: u16, offset: u32, data: &[u8], last: bool, success: bool) {
            let header = C2hData {
                cid,
                offset,
                length: data.len() as u32,
                last,
                success,
            };
            self.say(|writer, buffer| writer.c2h_data(buffer, &header), data);
        }

        fn say_r2t(&mut self, cid: u16, transfer_tag: u16, offset: u32, length: u32) {
            let r2t = R2t {
                cid,
                transfer_tag,
                offset,
                length,
            };
            self.say(|writer, buffer| writer.r2t(buffer, &r2t), &[]);
        }

        fn assert_terminated(&mut self, status: FatalErrorStatus, information: u32) {
            assert!(self.pair.fault().is_some());
            let heard = self.hear();
            assert_eq!(heard.last(), Some(&Heard::Termination(status, information)));
            assert_eq!(self.pair.room(), 0);
        }
    }

    fn out(length: usize) -> (Payload, Vec<u8>) {
        let data: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
        let (one, other) = data.split_at(length / 3);
        let views = [one, other].map(|part| Segment::copy_of(part).freeze());
        (Payload::Out(views.into_iter().collect()), data)
    }

    const SUCCESS: Status = Status::SUCCESS;

    #[test]
    fn a_short_write_goes_in_its_capsule_and_a_long_one_when_asked_for() {
        for digests in [false, true] {
            let mut peer = peer(digests, 4096);
            let (short, short_data) = out(4096);
            let (long, long_data) = out(10_000);
            let first = peer.pair.submit(Sqe::default(), short, 1);
            let second = peer.pair.submit(Sqe::default(), long, 2);
            assert_eq!(
                peer.hear(),
                [
                    Heard::Capsule(first, short_data),
                    Heard::Capsule(second, Vec::new())
                ]
            );
            peer.say_r2t(second, 9, 0, 9000);
            let data = |offset: u32, length: u32, transfer_tag, last| {
                let header = H2cData {
                    cid: second,
                    transfer_tag,
                    offset,
                    length,
                    last,
                };
                let range = offset as usize..(offset + length) as usize;
                Heard::Data(header, long_data[range].to_vec())
            };
            assert_eq!(
                peer.hear(),
                [
                    data(0, 4096, 9, false),
                    data(4096, 4096, 9, false),
                    data(8192, 808, 9, true)
                ]
            );
            peer.say_r2t(second, 10, 9000, 1000);
            assert_eq!(peer.hear(), [data(9000, 1000, 10, true)]);
            peer.say_completion(second, SUCCESS);
            peer.say_completion(first, SUCCESS);
            let users: Vec<u64> = peer
                .seen
                .answers
                .borrow()
                .iter()
                .map(|(user, _)| *user)
                .collect();
            assert_eq!(users, [2, 1]);
            assert_eq!(peer.pair.room(), 4);
        }
    }

    #[test]
    fn what_was_asked_for_is_sent_after_the_answer() {
        let mut peer = peer(true, 4096);
        let (payload, data) = out(10_000);
        let cid = peer.pair.submit(Sqe::default(), payload, 1);
        peer.hear();
        peer.say_r2t(cid, 9, 0, 10_000);
        peer.say_completion(cid, Status::COMMAND_ABORT_REQUESTED);
        assert_eq!(peer.seen.answers.borrow().len(), 1);
        assert_eq!(
            peer.pair.room(),
            3,
            "the controller has the command in a slot"
        );
        let heard: Vec<u8> = peer
            .hear()
            .into_iter()
            .flat_map(|heard| match heard {
                Heard::Data(header, data) => {
                    assert_eq!((header.cid, header.transfer_tag), (cid, 9));
                    data
                }
                other => panic!("data, not {other:?}"),
            })
            .collect();
        assert_eq!(heard, data);
        assert_eq!(peer.pair.room(), 4);
        // It is not among those that are lost with the connection, and is not answered again.
        let (payload, _) = out(10_000);
        let cid = peer.pair.submit(Sqe::default(), payload, 2);
        peer.hear();
        peer.say_r2t(cid, 9, 0, 10_000);
        peer.say_completion(cid, Status::COMMAND_ABORT_REQUESTED);
        peer.say_completion(cid, Status::COMMAND_ABORT_REQUESTED);
        assert_eq!(peer.seen.answers.borrow().len(), 2);
        assert!(peer.pair.fault().is_some());
        assert_eq!(peer.pair.take_unanswered(), []);
    }

    #[test]
    fn a_read_ends_with_its_success_flag_or_its_completion() {
        let mut peer = peer(true, 4096);
        let first = peer.pair.submit(Sqe::default(), Payload::In(600), 1);
        let second = peer.pair.submit(Sqe::default(), Payload::In(600), 2);
        peer.hear();
        peer.say_data(second, 0, &[2; 500], false, false);
        peer.say_data(first, 0, &[1; 600], true, true);
        peer.say_data(second, 500, &[3; 100], true, false);
        assert_eq!(peer.seen.answers.borrow().len(), 1);
        peer.say_completion(second, SUCCESS);
        assert_eq!(peer.seen.whole(1), [1; 600]);
        assert_eq!(
            peer.seen.whole(2),
            [[2; 500].as_slice(), &[3; 100]].concat()
        );
        assert!(
            peer.seen
                .answers
                .borrow()
                .iter()
                .all(|(_, answer)| matches!(answer, Answer::Cqe(_)))
        );
    }

    #[test]
    fn data_that_is_damaged_or_missing_is_not_a_success() {
        let mut peer = peer(true, 4096);
        let damaged = peer.pair.submit(Sqe::default(), Payload::In(8), 1);
        let short = peer.pair.submit(Sqe::default(), Payload::In(8), 2);
        let none = peer.pair.submit(Sqe::default(), Payload::In(8), 3);
        let failed = peer.pair.submit(Sqe::default(), Payload::In(8), 4);
        peer.hear();
        let header = C2hData {
            cid: damaged,
            offset: 0,
            length: 8,
            last: true,
            success: true,
        };
        let mut bytes = [0; HEADER_SIZE_MAX];
        let length = peer.writer.c2h_data(&mut bytes, &header);
        let mut pdu = bytes[..length].to_vec();
        pdu.extend_from_slice(&[0; 12]);
        peer.pair.receive(&pdu, &peer.seen);
        peer.say_data(short, 0, &[0; 4], true, true);
        peer.say_completion(none, SUCCESS);
        peer.say_completion(failed, Status::LBA_OUT_OF_RANGE);
        let answers = peer.seen.answers.borrow();
        assert_eq!(
            answers[..3],
            [
                (1, Answer::Damaged),
                (2, Answer::Damaged),
                (3, Answer::Damaged)
            ]
        );
        assert!(matches!(answers[3], (4, Answer::Cqe(cqe)) if !cqe.status.is_success()));
    }

    #[test]
    fn answers_to_nothing_end_the_connection() {
        let field = FatalErrorStatus::InvalidPduHeaderField;
        // A CID that was never given.
        let mut none = peer(false, 4096);
        none.say_completion(0x1234, SUCCESS);
        none.assert_terminated(field, 20);
        // One that was answered already, after its slot was used again.
        let mut late = peer(false, 4096);
        let old = late.pair.submit(Sqe::default(), Payload::None, 1);
        late.hear();
        late.say_completion(old, SUCCESS);
        for user in 2..6 {
            late.pair.submit(Sqe::default(), Payload::None, user);
        }
        late.hear();
        late.say_completion(old, SUCCESS);
        late.assert_terminated(field, 20);
        assert_eq!(late.seen.answers.borrow().len(), 1);
        // One whose command was not sent.
        let mut early = peer(false, 4096);
        let cid = early.pair.submit(Sqe::default(), Payload::None, 1);
        early.say_completion(cid, SUCCESS);
        assert!(early.pair.fault().is_some());
    }

    #[test]
    fn data_that_was_not_asked_for_ends_the_connection() {
        let field = FatalErrorStatus::InvalidPduHeaderField;
        let read = || {
            let mut peer = peer(false, 4096);
            let cid = peer.pair.submit(Sqe::default(), Payload::In(100), 1);
            peer.hear();
            (peer, cid)
        };
        let (mut gap, cid) = read();
        gap.say_data(cid, 4, &[0; 4], false, false);
        gap.assert_terminated(field, 12);
        let (mut twice, cid) = read();
        twice.say_data(cid, 0, &[0; 4], false, false);
        twice.say_data(cid, 0, &[0; 4], false, false);
        twice.assert_terminated(field, 12);
        let (mut long, cid) = read();
        long.say_data(cid, 0, &[0; 101], true, true);
        long.assert_terminated(FatalErrorStatus::DataTransferOutOfRange, 0);
        assert!(long.seen.data.borrow().is_empty());
        let mut write = peer(false, 4096);
        let cid = write.pair.submit(Sqe::default(), out(8192).0, 1);
        write.hear();
        write.say_data(cid, 0, &[0; 4], true, true);
        write.assert_terminated(field, 8);
    }

    #[test]
    fn requests_for_data_that_is_not_there_end_the_connection() {
        let field = FatalErrorStatus::InvalidPduHeaderField;
        let write = |length| {
            let mut peer = peer(false, 4096);
            let cid = peer.pair.submit(Sqe::default(), out(length).0, 1);
            peer.hear();
            (peer, cid)
        };
        for (offset, length, byte) in [(0, 8193, 16), (0, 0, 16), (4, 100, 12), (0, u32::MAX, 16)] {
            let (mut peer, cid) = write(8192);
            peer.say_r2t(cid, 1, offset, length);
            peer.assert_terminated(field, byte);
        }
        // In its capsule already.
        let (mut again, cid) = write(4096);
        again.say_r2t(cid, 1, 0, 4096);
        again.assert_terminated(field, 8);
        // A second one while the first is owed: MAXR2T is one.
        let (mut two, cid) = write(8192);
        two.say_r2t(cid, 1, 0, 4096);
        two.say_r2t(cid, 2, 4096, 4096);
        two.assert_terminated(FatalErrorStatus::LimitExceeded, 0);
    }

    #[test]
    fn a_damaged_header_ends_the_connection_and_a_termination_is_heard() {
        let mut damaged = peer(true, 4096);
        let mut bytes = [0; HEADER_SIZE_MAX];
        let length = damaged
            .writer
            .capsule_response(&mut bytes, &Cqe::new(1, 0, SUCCESS));
        bytes[12] ^= 1;
        damaged.pair.receive(&bytes[..length], &damaged.seen);
        let Some(Fault::Protocol(FramingError::Terminate(termination))) = damaged.pair.fault()
        else {
            panic!("a header digest error is fatal");
        };
        assert_eq!(termination.status, FatalErrorStatus::HeaderDigestError);

        let mut told = peer(false, 4096);
        let mut buffer = [0; TERMINATION_SIZE_MAX];
        let termination = Termination::sequence_error();
        let length = encode_termination(Side::Controller, &termination, &[4; 72], &mut buffer);
        told.pair.receive(&buffer[..length], &told.seen);
        assert!(matches!(told.pair.fault(), Some(Fault::Terminated(_))));
        assert!(!told.pair.has_output(), "a termination is not answered");
    }

    #[test]
    fn exposure_tells_what_may_have_been_done() {
        let mut peer = peer(false, 4096);
        peer.pair.submit(Sqe::default(), out(100).0, 1);
        let asked = peer.pair.submit(Sqe::default(), out(8192).0, 2);
        peer.pair.submit(Sqe::default(), out(8192).0, 3);
        peer.hear();
        peer.say_r2t(asked, 1, 0, 100);
        peer.hear();
        peer.pair.submit(Sqe::default(), Payload::None, 4);
        let mut unanswered = peer.pair.take_unanswered();
        unanswered.sort_by_key(|(user, _)| *user);
        assert_eq!(
            unanswered,
            [
                (1, Exposure::Possible),
                (2, Exposure::Possible),
                // Nothing of its data was sent, so there is nothing that could have been written.
                (3, Exposure::Never),
                (4, Exposure::Never)
            ]
        );
    }

    #[test]
    fn a_fused_pair_stays_together() {
        let mut peer = peer(false, 4096);
        let waiting = peer.pair.submit(Sqe::default(), out(20_000).0, 1);
        peer.hear();
        peer.say_r2t(waiting, 1, 0, 20_000);
        let (first, second) = peer.pair.submit_fused(
            (Sqe::default(), out(100).0, 2),
            (Sqe::default(), out(100).0, 3),
        );
        let heard = peer.hear();
        let at = heard
            .iter()
            .position(|heard| matches!(heard, Heard::Capsule(cid, _) if *cid == first));
        let next = &heard[at.unwrap() + 1];
        assert!(matches!(next, Heard::Capsule(cid, _) if *cid == second));
    }

    #[test]
    fn a_cid_comes_back_late_and_is_never_ffff() {
        for slots in [1, 3, 4, 1024] {
            let mut pair = QueuePair::new(Settings {
                slots,
                ..settings(false)
            });
            let mut last: Vec<u16> = Vec::new();
            for _ in 0..3000 {
                let slot = pair.free.pop().unwrap();
                let cid = pair.next_cid(slot);
                assert_ne!(cid, u16::MAX);
                assert_eq!(cid & ((1 << pair.slot_bits) - 1), slot);
                pair.free.push(slot);
                assert!(!last.contains(&cid), "used {} uses ago", last.len());
                last.push(cid);
                if last.len() > 32 {
                    last.remove(0);
                }
            }
        }
    }

    proptest! {
        /// However the bytes are cut, the same comes of them.
        #[test]
        fn pieces_of_any_size_are_the_same(pieces in prop::collection::vec(1usize..40, 1..20)) {
            let mut peer = peer(true, 4096);
            let cid = peer.pair.submit(Sqe::default(), Payload::In(300), 1);
            let other = peer.pair.submit(Sqe::default(), Payload::None, 2);
            peer.hear();
            let mut bytes = Vec::new();
            let mut header = [0; HEADER_SIZE_MAX];
            let data: Vec<u8> = (0..=255).chain(0..44).collect();
            let pdu = C2hData { cid, offset: 0, length: 300, last: true, success: true };
            let length = peer.writer.c2h_data(&mut header, &pdu);
            bytes.extend_from_slice(&header[..length]);
            bytes.extend_from_slice(&data);
            bytes.extend_from_slice(&Digest::of(&data).to_bytes());
            let length = peer.writer.capsule_response(&mut header, &Cqe::new(other, 0, SUCCESS));
            bytes.extend_from_slice(&header[..length]);
            let mut rest = &bytes[..];
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                peer.pair.receive(now, &peer.seen);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(peer.pair.fault(), None);
            prop_assert_eq!(peer.seen.whole(1), data);
            prop_assert_eq!(peer.seen.answers.borrow().len(), 2);
        }

        /// No bytes from the controller make it panic.
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0u8..10) {
            let mut peer = peer(false, 4096);
            peer.pair.submit(Sqe::default(), Payload::In(64), 1);
            peer.pair.submit(Sqe::default(), out(8192).0, 2);
            peer.hear();
            let mut bytes = bytes;
            if bytes.len() >= 8 {
                // Make a plausible header of it, so that it gets further.
                bytes[0] = kind;
                bytes[1] &= 0b1100;
                bytes[2] = 24;
                bytes[3] = 24;
                let length = bytes.len() as u32;
                bytes[4..8].copy_from_slice(&length.to_le_bytes());
            }
            peer.pair.receive(&bytes, &peer.seen);
            sent(&mut peer.pair);
        }
    }
}
