//! NVMe/TCP framing of a queue pair: received bytes become commands and their data, answers become PDUs.
//!
//! It knows which bytes it wants next and into which segment; it sees no socket. What the PDUs' own rules are is in
//! `weir_nvme::tcp`; here is what holds between PDUs: transfers that were asked for, and where their data goes.

use weir_digest::{DIGEST_LENGTH, digest_of_parts};
use weir_memory::{Gather, Pool, Segment, View, Views};
use weir_nvme::tcp::{
    C2hData, CapsuleCommand, DigestOptions, Event, FramingError, H2cData, HEADER_SIZE_MAX,
    InitializeRequest, InitializeResponse, Pdu, R2t, Reader, ReceiveParameters, Side,
    TERMINATION_SIZE_MAX, Termination, Wanted, Writer, encode_termination,
};
use weir_nvme::{Cqe, Status};
use weir_reactor::{Amount, Instant};

use crate::config::{ADMIN_IN_CAPSULE_BYTES, TargetConfig};
use weir_front::Awaited;
use weir_front::{Arrival, Run};
use weir_nvme_core::{Answer, Env, Fetch, Next, QueuePair, SlotIndex, Stalled};

/// Where fields are in an H2CData header (NVMe/TCP Transport 1.0c, section 3.6.2.8).
mod field {
    pub(super) const FLAGS: u32 = 1;
    pub(super) const CCCID: u32 = 8;
    pub(super) const TTAG: u32 = 10;
}

/// Data that is left of a PDU before it is worth receiving it straight into its segment.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Bytes of one receive from which more are expected of the next.
const BULK_BYTES_MIN: usize = 24 << 10;

/// Where the data of the current PDU goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// The place in which a slot has the data of its capsule.
    Capsule(SlotIndex),
    /// The place in which a slot has the data that an R2T asked for, from this byte on. `last`: the last for that R2T.
    Transfer {
        slot: SlotIndex,
        offset: u32,
        last: bool,
    },
}

impl Place {
    /// The slot, and the byte of its data that the PDU's data begins at.
    fn landing(self) -> Option<(SlotIndex, u32)> {
        match self {
            Place::Nowhere => None,
            Place::Capsule(slot) => Some((slot, 0)),
            Place::Transfer { slot, offset, .. } => Some((slot, offset)),
        }
    }
}

/// How far data that was asked for has come.
#[derive(Debug, Clone, Copy, Default)]
struct Transfer {
    received: u32,
    damaged: bool,
    /// Which R2T asked for it.
    asked: u32,
}

/// What [`Framing::receive`] left undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// All input was taken.
    Hungry,
    /// A command waits for a slot or a buffer; the rest of the input is to be offered again.
    Blocked,
    /// The peer ended the connection.
    PeerTerminated,
}

/// A segment that data of the current PDU can be received into.
pub(crate) struct Direct {
    pub(crate) segment: Segment,
    pub(crate) from: usize,
    slot: SlotIndex,
    index: usize,
    length: usize,
}

/// Where a segment goes back to when it was received into.
pub(crate) struct DirectReturn {
    slot: SlotIndex,
    index: usize,
    length: usize,
    from: usize,
}

impl Direct {
    /// The segment, cut to what is wanted of it, and where it goes back to.
    pub(crate) fn split(self) -> (Segment, usize, DirectReturn) {
        let back = DirectReturn {
            slot: self.slot,
            index: self.index,
            length: self.length,
            from: self.from,
        };
        (self.segment, self.from, back)
    }
}

/// Counts of what was wrong with digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DigestErrors {
    pub(crate) data: u64,
}

/// Both directions of one connection.
pub(crate) struct Framing {
    reader: Reader,
    writer: Writer,
    place: Place,
    /// Bytes of the current PDU's data in all.
    data_length: u32,
    transfers: Vec<Transfer>,
    /// R2Ts so far; of those, up to which are in the send that is under way, up to which have left, and up to which had when
    /// the host's progress was looked at last.
    asked: u32,
    asked_sending: u32,
    asked_sent: u32,
    asked_looked: u32,
    /// Commands and pieces of data whose header has come so far.
    pdus: u64,
    blocked: Option<(CapsuleCommand, Arrival)>,
    /// When a PDU began whose header is not complete.
    began: Option<Instant>,
    in_capsule_max: u32,
    /// The longest that an R2T asks for, which some hosts send as one PDU whatever MAXH2CDATA says: Linux before 5.18.
    max_h2c_data: u32,
    max_c2h_data: u32,
    success_flag: bool,
    /// Answers that were written since the last send began.
    written: usize,
    /// Answers in the send that is under way.
    sending: usize,
    /// Space in which a header is put together.
    header: [u8; HEADER_SIZE_MAX],
    pub(crate) digest_errors: DigestErrors,
}

impl Framing {
    /// A connection that was just accepted.
    pub(crate) fn new(config: &TargetConfig) -> Self {
        Framing {
            reader: Reader::new(Side::Controller),
            writer: Writer::default(),
            place: Place::Nowhere,
            data_length: 0,
            transfers: Vec::new(),
            asked: 0,
            asked_sending: 0,
            asked_sent: 0,
            asked_looked: 0,
            pdus: 0,
            blocked: None,
            began: None,
            in_capsule_max: config.in_capsule_bytes.max(ADMIN_IN_CAPSULE_BYTES),
            max_h2c_data: config.mdts_bytes,
            max_c2h_data: config.max_c2h_data,
            success_flag: false,
            written: 0,
            sending: 0,
            header: [0; HEADER_SIZE_MAX],
            digest_errors: DigestErrors::default(),
        }
    }

    /// Bytes that the framing of a queue of so many entries takes at worst, without data.
    pub(crate) fn memory_bytes(entries: usize) -> usize {
        /// A response after a data header that is as long as its alignment asks for, and three digests.
        const HEADERS_BYTES: usize = HEADER_SIZE_MAX + 24 + 3 * DIGEST_LENGTH;
        /// What is sent, and what is written meanwhile.
        const GATHERS: usize = 2;
        let answers = QueuePair::answers_bound(entries);
        let headers = GATHERS * answers * HEADERS_BYTES;
        entries * size_of::<Transfer>() + headers + answers * size_of::<Run>()
    }

    /// SQ flow control is off: a read's last data may say success in place of a response.
    pub(crate) fn set_success_flag(&mut self, on: bool) {
        self.success_flag = on;
    }

    /// Whether headers and whether data have digests.
    pub(crate) fn digests(&self) -> (bool, bool) {
        (self.writer.header_digest, self.writer.data_digest)
    }

    /// What was written is being sent: all that `queue` had ready.
    pub(crate) fn send_began(&mut self, queue: &mut QueuePair) {
        debug_assert_eq!(
            queue.answers_ready(),
            0,
            "answers are written before a send"
        );
        self.sending = std::mem::take(&mut self.written);
        self.asked_sending = self.asked;
    }

    /// The send ended.
    pub(crate) fn send_ended(&mut self) {
        self.asked_sent = self.asked_sending;
        self.sending = 0;
    }

    /// Whether so many answers wait to be sent that no command is taken until the host has read some. A host within its queue
    /// depth does not get here.
    pub(crate) fn is_backlogged(&self, queue: &QueuePair) -> bool {
        let answers = self.written + self.sending + queue.answers_ready();
        answers >= queue.answers_max() || queue.is_full()
    }

    /// Takes bytes from the front of `input`.
    pub(crate) fn receive(
        &mut self,
        input: &mut View,
        queue: &mut QueuePair,
        env: &Env<'_>,
        out: &mut Gather,
    ) -> Result<Received, FramingError> {
        if self.blocked.is_some() && !self.offer_again(input.len(), queue, env, out) {
            return Ok(Received::Blocked);
        }
        loop {
            match self.reader.wanted() {
                Wanted::Data(left) if !input.is_empty() => {
                    self.store(input, left, queue);
                    continue;
                }
                Wanted::Event if self.reader.end_data_without_digest() => {
                    self.data_ended(true, queue, env);
                    continue;
                }
                Wanted::Event => {}
                _ if input.is_empty() => {
                    if self.began.is_none() && self.reader.is_inside_pdu() {
                        self.began = Some(queue.now());
                    }
                    return Ok(Received::Hungry);
                }
                _ => {}
            }
            // By reference: an event is as long as the entry in it.
            let fed = self.reader.feed(input);
            let fed = fed.as_ref().map_err(|error| *error)?;
            input.advance(fed.consumed);
            let Some(event) = &fed.event else {
                continue;
            };
            let began = self.began.take();
            match event {
                Event::Pdu(Pdu::CapsuleCommand(capsule)) => {
                    self.pdus += 1;
                    let whole = queue.now();
                    let arrival = Arrival {
                        first: began.unwrap_or(whole),
                        whole,
                    };
                    if !self.command(capsule, arrival, input.len(), queue, env, out) {
                        return Ok(Received::Blocked);
                    }
                }
                Event::Pdu(Pdu::InitializeRequest(request)) => self.initialize(request, out)?,
                Event::Pdu(Pdu::H2cData(data)) => {
                    self.pdus += 1;
                    self.begin_transfer(data, queue)?;
                }
                Event::Pdu(Pdu::Termination(_)) => return Ok(Received::PeerTerminated),
                Event::Pdu(other) => unreachable!("a controller's reader yields no {other:?}"),
                Event::Data { .. } => unreachable!("data is stored before it is fed"),
                Event::DataEnd { digest, .. } => self.data_ended(digest.is_good(), queue, env),
            }
        }
    }

    /// How much to expect of the next receive into the ring. `last` is how many bytes came with the last one.
    pub(crate) fn expected(&self, last: usize, queue: &QueuePair) -> Amount {
        if queue.expects_data() {
            return Amount::Headers;
        }
        if last >= BULK_BYTES_MIN {
            return Amount::Bulk;
        }
        Amount::Usual
    }

    /// The number of the PDU that has come in part, if one has.
    pub(crate) fn arriving(&self) -> Option<u64> {
        let header = self.reader.header();
        let length = header.get(2).map_or(usize::MAX, |&hlen| usize::from(hlen));
        // Until its header is complete it is not among those that have come.
        let begins = matches!(self.reader.wanted(), Wanted::Header(_)) && header.len() < length;
        let number = self.pdus + u64::from(begins);
        self.reader.is_inside_pdu().then_some(number)
    }

    /// What the host was asked for and still owes: of the R2Ts that have left, for others it cannot know of.
    pub(crate) fn look_at_awaited(&mut self, queue: &QueuePair) -> Option<Awaited> {
        // However often the count has wrapped: how far they are behind it.
        let behind = |asked: u32| self.asked.wrapping_sub(asked);
        let (sent, looked) = (behind(self.asked_sent), behind(self.asked_looked));
        let mut awaited = Awaited::default();
        let mut oldest = None;
        for (slot, transfer) in self.transfers.iter().enumerate() {
            let (slot, age) = (slot as SlotIndex, behind(transfer.asked));
            if age < sent || !queue.is_owed(slot) {
                continue;
            }
            oldest = oldest.max(Some(age));
            let length = queue.fetching(slot).map_or(0, |(_, length)| length);
            let is_arriving = self.place.landing().is_some_and(|(of, _)| of == slot);
            let arriving = if is_arriving { self.data_length } else { 0 };
            let left = length - transfer.received;
            awaited.held += u64::from(length);
            awaited.left += u64::from(left);
            if age >= looked {
                awaited.left_of_last += u64::from(left.saturating_sub(arriving));
            }
            awaited.is_arriving |= is_arriving;
        }
        awaited.oldest = self.asked.wrapping_sub(oldest?);
        self.asked_looked = self.asked_sent;
        Some(awaited)
    }

    /// A segment to receive the rest of the current PDU's data into, when that is worth its while.
    pub(crate) fn direct(&mut self, queue: &mut QueuePair) -> Option<Direct> {
        let Wanted::Data(left) = self.reader.wanted() else {
            return None;
        };
        let (slot, base) = self.place.landing()?;
        if (left as usize) < DIRECT_BYTES_MIN {
            return None;
        }
        let offset = base + (self.data_length - left);
        let (mut segment, index, from) = queue.take_segment(slot, offset as usize)?;
        let length = segment.len();
        let wanted = (length - from).min(left as usize);
        segment.set_len(from + wanted);
        Some(Direct {
            segment,
            from,
            slot,
            index,
            length,
        })
    }

    /// `count` bytes were received into the segment that [`Framing::direct`] gave.
    pub(crate) fn received_directly(
        &mut self,
        mut segment: Segment,
        back: &DirectReturn,
        count: usize,
        queue: &mut QueuePair,
    ) {
        if self.reader.has_data_digest() {
            self.reader
                .data_received(&segment[back.from..back.from + count]);
        } else {
            self.reader.data_received_unseen(count);
        }
        segment.set_len(back.length);
        queue.put_segment(back.slot, back.index, segment);
    }

    fn initialize(
        &mut self,
        request: &InitializeRequest,
        out: &mut Gather,
    ) -> Result<(), FramingError> {
        let alignment = request.check()?;
        let digests = request.digests.known();
        self.writer = Writer {
            header_digest: digests.contains(DigestOptions::HEADER),
            data_digest: digests.contains(DigestOptions::DATA),
            alignment,
        };
        let answer = InitializeResponse::new(digests, self.max_h2c_data);
        out.push_header(&answer.encode());
        self.reader.establish(ReceiveParameters {
            header_digest: self.writer.header_digest,
            data_digest: self.writer.data_digest,
            maximum_in_capsule: self.in_capsule_max,
            maximum_data: self.max_h2c_data,
            ..ReceiveParameters::INITIAL
        });
        Ok(())
    }

    /// Whether the data of a capsule, and its digest, are among the bytes that follow its header.
    fn is_whole(&self, data_length: u32, following: usize) -> bool {
        let padding = match self.reader.wanted() {
            Wanted::Header(padding) => padding,
            Wanted::Data(_) | Wanted::DataDigest(_) | Wanted::Event => 0,
        };
        let digest = match self.reader.has_data_digest() {
            true => DIGEST_LENGTH,
            false => 0,
        };
        following >= padding + data_length as usize + digest
    }

    /// Hands the command in again that was blocked. False: it waits still.
    #[cold]
    fn offer_again(
        &mut self,
        following: usize,
        queue: &mut QueuePair,
        env: &Env<'_>,
        out: &mut Gather,
    ) -> bool {
        let blocked = self.blocked.take();
        blocked.is_none_or(|(capsule, arrival)| {
            self.command(&capsule, arrival, following, queue, env, out)
        })
    }

    /// Hands a command in. `following` bytes are there after its header. False: it waits.
    fn command(
        &mut self,
        capsule: &CapsuleCommand,
        arrival: Arrival,
        following: usize,
        queue: &mut QueuePair,
        env: &Env<'_>,
        out: &mut Gather,
    ) -> bool {
        self.place = Place::Nowhere;
        self.data_length = capsule.data_length;
        if self.is_backlogged(queue) {
            self.blocked = Some((*capsule, arrival));
            return false;
        }
        let payload = payload_of(capsule);
        let length = capsule.data_length;
        let all_here = length == 0 || self.is_whole(length, following);
        match queue.command(&capsule.sqe, payload, all_here, arrival, env) {
            Ok(Next::Skip) => {}
            Ok(Next::Fill(slot)) => self.place = Place::Capsule(slot),
            Err(Stalled) if queue.is_fetching() && queue.requests_running() == 0 => {
                // Nothing that could make room ends before data that lies behind this command in the stream.
                let cqe = queue.refuse_without_slot(&capsule.sqe, Status::COMMAND_INTERRUPTED);
                self.written += 1;
                self.write_response(&cqe, out);
            }
            Err(Stalled) => {
                self.blocked = Some((*capsule, arrival));
                return false;
            }
        }
        true
    }

    /// H2CData must be what an R2T asked for, in order.
    fn begin_transfer(&mut self, data: &H2cData, queue: &QueuePair) -> Result<(), Termination> {
        let slot = data.transfer_tag;
        let Some((cid, length)) = queue.fetching(slot) else {
            return Err(Termination::invalid_field(field::TTAG));
        };
        if data.cid != cid {
            return Err(Termination::invalid_field(field::CCCID));
        }
        let transfer = self.transfers[usize::from(slot)];
        let end = data.offset.checked_add(data.length);
        let within = end.is_some_and(|end| end <= length);
        if data.offset != transfer.received || !within {
            return Err(Termination::out_of_range());
        }
        if data.last != (end == Some(length)) {
            return Err(Termination::invalid_field(field::FLAGS));
        }
        self.place = Place::Transfer {
            slot,
            offset: data.offset,
            last: data.last,
        };
        self.data_length = data.length;
        Ok(())
    }

    /// Puts the front of `input` where it belongs, up to `left` bytes: what is left of the current PDU's data.
    fn store(&mut self, input: &mut View, left: u32, queue: &mut QueuePair) {
        self.began = None;
        let length = input.len().min(left as usize);
        self.reader.data_received(&input[..length]);
        if let Some((slot, base)) = self.place.landing() {
            if let Some(received) = queue.received(slot) {
                received.push(input.split_to(length));
                return;
            }
            let mut at = (base + (self.data_length - left)) as usize;
            let mut rest = &input[..length];
            while !rest.is_empty() {
                let target = queue.landing_at(slot, at);
                let length = target.len().min(rest.len());
                if length == 0 {
                    break;
                }
                target[..length].copy_from_slice(&rest[..length]);
                rest = &rest[length..];
                at += length;
            }
        }
        input.advance(length);
    }

    /// All data of the current PDU has come. `good`: its digest does not say otherwise.
    fn data_ended(&mut self, mut good: bool, queue: &mut QueuePair, env: &Env<'_>) {
        self.began = None;
        if !good {
            self.digest_errors.data += 1;
        }
        let slot = match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Nowhere => return,
            Place::Capsule(slot) => slot,
            Place::Transfer { slot, last, .. } => {
                let transfer = &mut self.transfers[usize::from(slot)];
                transfer.received += self.data_length;
                transfer.damaged |= !good;
                if !last {
                    return;
                }
                good = !transfer.damaged;
                slot
            }
        };
        if good {
            queue.filled(slot, env);
        } else {
            queue.damaged(slot);
        }
    }

    /// Writes what the queue has ready: requests for data, then answers.
    /// Lists of data go back to `pool`.
    #[inline]
    pub(crate) fn write(&mut self, queue: &mut QueuePair, pool: &Pool, out: &mut Gather) {
        if queue.has_output() {
            self.write_all(queue, pool, out);
        }
    }

    fn write_all(&mut self, queue: &mut QueuePair, pool: &Pool, out: &mut Gather) {
        while let Some(fetch) = queue.next_fetch() {
            self.write_r2t(&fetch, out);
        }
        let answers = queue.answers();
        for answer in answers.iter_mut() {
            self.write_answer(answer, pool, out);
        }
        answers.clear();
    }

    fn write_r2t(&mut self, fetch: &Fetch, out: &mut Gather) {
        let index = usize::from(fetch.slot);
        if self.transfers.len() <= index {
            self.transfers.resize(index + 1, Transfer::default());
        }
        self.asked = self.asked.wrapping_add(1);
        self.transfers[index] = Transfer {
            asked: self.asked,
            ..Transfer::default()
        };
        let r2t = R2t {
            cid: fetch.cid,
            transfer_tag: fetch.slot,
            offset: 0,
            length: fetch.length,
        };
        let written = self.writer.r2t(&mut self.header, &r2t);
        out.push_header(&self.header[..written]);
    }

    #[inline]
    fn write_answer(&mut self, answer: &mut Answer, pool: &Pool, out: &mut Gather) {
        self.written += 1;
        let cqe = &answer.cqe;
        let has_data = answer.data_bytes > 0;
        let success =
            has_data && self.success_flag && cqe.status == Status::SUCCESS && cqe.result == 0;
        if has_data {
            let data = &mut answer.data;
            self.write_data(cqe.cid, data, answer.data_bytes, success, out);
            if data.spilled() {
                pool.keep_list(std::mem::take(data));
            }
        }
        if !success {
            self.write_response(cqe, out);
        }
    }

    /// Writes one entry as a response.
    pub(crate) fn write_response(&mut self, cqe: &Cqe, out: &mut Gather) {
        let written = self.writer.capsule_response(&mut self.header, cqe);
        out.push_header(&self.header[..written]);
    }

    /// Writes data in as many PDUs as it needs.
    #[inline]
    fn write_data(
        &mut self,
        cid: u16,
        data: &mut Views,
        total: u32,
        success: bool,
        out: &mut Gather,
    ) {
        let mut header = C2hData {
            cid,
            offset: 0,
            length: total,
            last: true,
            success,
        };
        if total > self.max_c2h_data {
            self.write_front(&mut header, data, out);
        }
        let written = self.writer.c2h_data(&mut self.header, &header);
        out.push_header(&self.header[..written]);
        if self.writer.data_digest {
            return self.write_views_and_digest(data, out);
        }
        // Most often it is one, which needs no loop.
        if data.len() == 1
            && let Some(view) = data.pop()
        {
            out.push_view(view);
        } else {
            data.drain(..).for_each(|view| out.push_view(view));
        }
    }

    /// Writes all the PDUs of data that is too long for one but the last, whose header and data are left.
    #[inline(never)]
    fn write_front(&mut self, rest: &mut C2hData, data: &mut Views, out: &mut Gather) {
        while rest.length > self.max_c2h_data {
            let header = C2hData {
                length: self.max_c2h_data,
                last: false,
                success: false,
                ..*rest
            };
            let written = self.writer.c2h_data(&mut self.header, &header);
            out.push_header(&self.header[..written]);
            let mut part = split_front(data, header.length as usize);
            if self.writer.data_digest {
                self.write_views_and_digest(&mut part, out);
            } else {
                part.drain(..).for_each(|view| out.push_view(view));
            }
            rest.offset += header.length;
            rest.length -= header.length;
        }
    }

    fn write_views_and_digest(&self, views: &mut Views, out: &mut Gather) {
        let digest = digest_of_parts(views.iter().map(|view| &view[..]));
        views.drain(..).for_each(|view| out.push_view(view));
        out.push_header(&digest.to_bytes());
    }

    /// Writes the termination request that an error asks for, if it does.
    pub(crate) fn terminate(&self, error: &FramingError, out: &mut Gather) {
        let header = self.reader.header();
        if let FramingError::Terminate(termination) = error
            && !header.is_empty()
        {
            let mut buffer = [0; TERMINATION_SIZE_MAX];
            let written = encode_termination(Side::Controller, termination, header, &mut buffer);
            out.push_header(&buffer[..written]);
        }
    }
}

/// Where a capsule's data is, or the status that refuses it: what its SGL says must be what the PDU holds.
fn payload_of(capsule: &CapsuleCommand) -> Result<weir_nvme::sgl::Payload, Status> {
    use weir_nvme::sgl::Payload;
    let payload = capsule.sqe.tcp_data().map_err(Status::with_do_not_retry)?;
    let in_pdu = match payload {
        Payload::InCapsule { length } => length,
        Payload::None | Payload::Transport { .. } => 0,
    };
    if in_pdu == capsule.data_length {
        Ok(payload)
    } else {
        Err(Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry())
    }
}

/// Takes the first `length` bytes of `views`.
fn split_front(views: &mut Views, length: usize) -> Views {
    let mut front = Views::new();
    let mut wanted = length;
    while wanted > 0 {
        let first = &mut views[0];
        if first.len() > wanted {
            front.push(first.split_to(wanted));
            return front;
        }
        wanted -= first.len();
        front.push(views.remove(0));
    }
    front
}

#[cfg(test)]
mod instructions;
#[cfg(test)]
mod tests;
