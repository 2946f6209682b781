//! The host's side of one queue pair over TCP: commands in, PDUs out; bytes in, data and answers out.
//!
//! A state machine without socket, clock or randomness (NVMe/TCP Transport 1.0 section 3). It holds what a command sends
//! until the command is answered, and never what a command receives: that is handed on as it arrives. A CID is a slot and a
//! count of its uses, so that an answer that comes too late meets no other command.

use std::collections::VecDeque;
use std::fmt;

use weir_memory::{Gather, View, Views, views_len};
use weir_nvme::digest::digest_of_parts;
use weir_nvme::tcp::{
    Alignment, C2hData, DataDigest, DigestOptions, Event, FramingError, H2cData, HEADER_SIZE_MAX,
    InitializeRequest, InitializeResponse, Pdu, R2t, Reader, ReceiveParameters, Side,
    TERMINATION_SIZE_MAX, Termination, TerminationRequest, Writer, encode_termination,
};
use weir_nvme::{Cqe, SglDescriptor, Sqe, Status};

use crate::command::slice_views;
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
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            alignment: Alignment::from_wire(options.host_data_alignment)
                .expect("options hold HPDA within its range"),
            slots,
            in_capsule_bytes,
        }
    }
}

/// A command's data.
#[derive(Debug)]
pub(crate) enum Payload {
    None,
    /// To the controller.
    Out(Views),
    /// From the controller: so many bytes.
    In(u32),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The controller's completion. Where it succeeded its data came whole.
    Cqe(Cqe),
    /// The controller completed it, but its data was damaged or did not come whole.
    Damaged,
}

/// Whether the controller may have carried out a command that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// It cannot: it was not sent, or nothing of the data that it writes was.
    Never,
    /// It may.
    Possible,
}

/// Takes what comes of commands; `user` is what they were submitted with.
pub(crate) trait Commands {
    /// Data of a command, `offset` bytes from its start.
    fn data(&self, user: u64, offset: u32, bytes: &[u8]);
    /// A command ended.
    fn answer(&self, user: u64, answer: Answer);
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
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

/// A command that was not answered yet.
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
pub(crate) struct QueuePair {
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
        // The controller may have ended the command meanwhile.
        let Some(pending) = self.find(cid) else {
            return;
        };
        let (Some(owed), Payload::Out(views)) = (&mut pending.owed, &pending.payload) else {
            return;
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
        if owed.left == 0 {
            pending.owed = None;
        } else {
            self.outgoing.push_back(Outgoing::Data(cid));
        }
        if let Some(pending) = self.find(cid) {
            pending.data_sent = true;
        }
    }

    /// Takes received bytes.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], commands: &dyn Commands) {
        while self.fault.is_none() {
            match self.reader.feed(bytes) {
                Ok(fed) => {
                    let (taken, rest) = bytes.split_at(fed.consumed);
                    bytes = rest;
                    let Some(event) = fed.event else {
                        return;
                    };
                    if let Err(fault) = self.event(event, taken, commands) {
                        self.fail(fault);
                    }
                }
                Err(error) => self.fail(Fault::Protocol(error)),
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

    fn event(&mut self, event: Event, taken: &[u8], commands: &dyn Commands) -> Result<(), Fault> {
        match event {
            Event::Pdu(Pdu::InitializeResponse(response)) => self.establish(&response),
            Event::Pdu(Pdu::CapsuleResponse(cqe)) => Ok(self.completion(&cqe, commands)?),
            Event::Pdu(Pdu::C2hData(data)) => Ok(self.data_begins(&data)?),
            Event::Pdu(Pdu::R2t(r2t)) => Ok(self.ready_to_transfer(&r2t)?),
            Event::Pdu(Pdu::Termination(request)) => Err(Fault::Terminated(request)),
            Event::Data { offset } => {
                let (cid, start) = self.current_data;
                if let Some(pending) = self.find(cid) {
                    commands.data(pending.user, start + offset, taken);
                }
                Ok(())
            }
            Event::DataEnd {
                pdu: Pdu::C2hData(data),
                digest,
            } => {
                self.data_ends(&data, digest, commands);
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

    fn completion(&mut self, cqe: &Cqe, commands: &dyn Commands) -> Result<(), Termination> {
        let pending = self.find(cqe.cid).filter(|pending| pending.sent);
        let pending = pending.ok_or(Termination::invalid_field(field::RESPONSE_CID))?;
        let whole = match pending.payload {
            Payload::In(length) => !pending.damaged && pending.transferred == length,
            Payload::Out(_) | Payload::None => true,
        };
        let answer = match cqe.status.is_success() && !whole {
            true => Answer::Damaged,
            false => Answer::Cqe(*cqe),
        };
        let user = self.release(cqe.cid);
        commands.answer(user, answer);
        Ok(())
    }

    /// Data of a command comes in order, and not more than it asked for.
    fn data_begins(&mut self, data: &C2hData) -> Result<(), Termination> {
        let pending = self.find(data.cid).filter(|pending| pending.sent);
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

    fn data_ends(&mut self, data: &C2hData, digest: DataDigest, commands: &dyn Commands) {
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
        let user = self.release(data.cid);
        commands.answer(user, answer);
    }

    /// The controller asks for data, in order, and one piece at a time: MAXR2T is 0 in ICReq.
    fn ready_to_transfer(&mut self, r2t: &R2t) -> Result<(), Termination> {
        let pending = self.find(r2t.cid).filter(|pending| pending.sent);
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

    fn find(&mut self, cid: u16) -> Option<&mut Pending> {
        let slot = usize::from(cid & ((1 << self.slot_bits) - 1));
        let pending = self.slots.get_mut(slot)?.pending.as_mut()?;
        (pending.sqe.cid == cid).then_some(pending)
    }

    fn release(&mut self, cid: u16) -> u64 {
        let slot = cid & ((1 << self.slot_bits) - 1);
        let pending = self.slots[usize::from(slot)].pending.take();
        self.free.push(slot);
        pending.expect("a command is answered once").user
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
