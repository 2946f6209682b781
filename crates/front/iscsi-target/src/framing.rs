//! Received bytes become PDUs and their data, answers become PDUs.
//!
//! It knows which bytes it wants next and into which segment; it sees no socket. What a PDU's own rules are is in `weir_iscsi`; here
//! is what holds between PDUs: the numbers of commands and answers, and where data goes.

use weir_digest::{DIGEST_LENGTH, Digest, digest_of_parts};
use weir_front::{Arrival, Awaited};
use weir_iscsi::pdu::{
    AsyncEvent, AsyncMessage, BASIC_HEADER_SIZE, DataIn, DataInStatus, DataOut, Header, Itt,
    LogoutResponse, NopIn, Pdu, R2t, Reject, RejectReason, Residual, ResponseCode, ResponseSerials,
    ScsiCommand, ScsiResponse, Side, TaskManagementResponse, TextResponse, Ttt, sense_prefix,
};
use weir_iscsi::reader::{Event, FramingError, Reader, ReceiveParameters, Wanted};
use weir_iscsi::serial::{CommandOrder, Serial};
use weir_iscsi::writer::{HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer, padding_length};
use weir_memory::{Gather, Pool, Segment, View, Views};
use weir_reactor::{Amount, Instant};
use weir_scsi::sense::{Sense, SenseFormat, Status};

use crate::scene::Scene;
use crate::tasks::task::{Answer, SlotIndex};
use crate::tasks::{Next, TaskError, Tasks};

/// Data that is left of a PDU before it is worth receiving it straight into its segment.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Bytes of one receive from which more are expected of the next.
const BULK_BYTES_MIN: usize = 24 << 10;
/// The tag of a ping, by which its answer is known.
const PING_TAG: Ttt = Ttt(0x5049_4e47);

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Framing(#[from] FramingError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error("command {number} came, and command {expected} has not")]
    MissingCommand { number: Serial, expected: Serial },
}

/// What [`Framing::receive`] found.
pub(crate) enum Received {
    /// All input was taken.
    Hungry,
    /// Answers wait to be sent; the rest of the input is to be offered again.
    Blocked,
    /// A PDU that is no command and no data of one, with all of its data.
    Other(Pdu, Vec<u8>),
}

/// Where the data of the current PDU goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// A task's place, from this byte on. `is_last`: it ends a sequence.
    Task {
        slot: SlotIndex,
        uses: u16,
        offset: u32,
        is_last: bool,
    },
    /// It is kept until all of it is there.
    Kept,
}

/// A segment that data of the current PDU can be received into.
pub(crate) struct DirectReturn {
    slot: SlotIndex,
    uses: u16,
    index: usize,
    length: usize,
    from: usize,
}

/// Both directions of one connection.
pub(crate) struct Framing {
    reader: Reader,
    writer: Writer,
    place: Place,
    /// Bytes of the current PDU's data in all.
    data_length: u32,
    /// The current PDU, where it is for the session, and what has come of its data.
    other: Option<(Pdu, Vec<u8>)>,
    blocked: Option<(Pdu, Arrival)>,
    /// PDUs whose header has come so far.
    pdus: u64,
    /// When a PDU began whose header is not complete.
    began: Option<Instant>,
    /// The next answer's number.
    stat_sn: Serial,
    /// The longest data segment that is sent.
    send_segment: u32,
    max_burst: u32,
    /// Answers that were written since the last send began, and those in the send that is under way.
    written: usize,
    sending: usize,
    /// Tasks up to this one were looked at for what the initiator owes them.
    looked: u64,
    pub(crate) damaged: u64,
    header: [u8; HEADER_SIZE_MAX],
}

impl DirectReturn {
    /// From which byte of the segment on is received.
    pub(crate) fn from(&self) -> usize {
        self.from
    }
}

impl Framing {
    /// A connection that was just accepted.
    pub(crate) fn new() -> Self {
        Framing {
            reader: Reader::new(Side::Target),
            writer: Writer::default(),
            place: Place::Nowhere,
            data_length: 0,
            other: None,
            blocked: None,
            pdus: 0,
            began: None,
            stat_sn: Serial(0),
            send_segment: weir_iscsi::reader::LOGIN_DATA_SEGMENT_MAX,
            max_burst: u32::MAX,
            written: 0,
            sending: 0,
            looked: 0,
            damaged: 0,
            header: [0; HEADER_SIZE_MAX],
        }
    }

    /// Bytes that the framing of a session of so many commands takes at worst, without data.
    pub(crate) fn memory_bytes(commands_max: usize) -> usize {
        /// What is sent, and what is written meanwhile.
        const GATHERS: usize = 2;
        let answers = Tasks::answers_bound(commands_max);
        GATHERS * answers * (2 * HEADER_SIZE_MAX + TRAILER_SIZE_MAX)
    }

    /// The login has ended: what was agreed holds from the next PDU on.
    pub(crate) fn establish(
        &mut self,
        stat_sn: Serial,
        parameters: ReceiveParameters,
        send_segment: u32,
        max_burst: u32,
    ) {
        self.stat_sn = stat_sn;
        self.writer = Writer {
            header_digest: parameters.header_digest,
            data_digest: parameters.data_digest,
        };
        self.send_segment = send_segment;
        self.max_burst = max_burst;
        self.reader.establish(parameters);
    }

    /// The longest data segment that is sent, in bytes.
    pub(crate) fn send_segment(&self) -> u32 {
        self.send_segment
    }

    /// What was written is being sent.
    pub(crate) fn send_began(&mut self) {
        self.sending = std::mem::take(&mut self.written);
    }

    /// The send ended.
    pub(crate) fn send_ended(&mut self) {
        self.sending = 0;
    }

    /// Tells whether so many answers wait to be sent that nothing more is taken in.
    pub(crate) fn is_backlogged(&self, tasks: &Tasks) -> bool {
        tasks.is_backlogged(self.written + self.sending)
    }

    /// How much to expect of the next receive into the ring. `last` is how many bytes came with the last one.
    pub(crate) fn expected(&self, last: usize, tasks: &Tasks) -> Amount {
        if last >= BULK_BYTES_MIN {
            return Amount::Bulk;
        }
        match tasks.expects_data() {
            true => Amount::Headers,
            false => Amount::Usual,
        }
    }

    /// The number of the PDU that has come in part, if one has.
    pub(crate) fn arriving(&self) -> Option<u64> {
        let begins = matches!(self.reader.wanted(), Wanted::Header(_));
        let number = self.pdus + u64::from(begins);
        self.reader.is_inside_pdu().then_some(number)
    }

    /// What the initiator was asked for and still owes.
    pub(crate) fn look_at_awaited(&mut self, tasks: &Tasks) -> Option<Awaited> {
        let arriving = match self.place {
            Place::Task { slot, .. } => Some((slot, self.data_length)),
            Place::Nowhere | Place::Kept => None,
        };
        let (awaited, looked) = tasks.awaited(self.looked, arriving)?;
        self.looked = looked;
        Some(awaited)
    }

    // ------------------------------------------------------------------ receiving --

    /// Takes bytes from the front of `input`.
    pub(crate) fn receive(
        &mut self,
        input: &mut View,
        tasks: &mut Tasks,
        scene: &Scene,
    ) -> Result<Received, ReceiveError> {
        if let Some((pdu, arrival)) = self.blocked.take()
            && !self.header(&pdu, arrival, input.len(), tasks, scene)?
        {
            return Ok(Received::Blocked);
        }
        loop {
            if self.place == Place::Nowhere
                && let Some((pdu, data)) = self.other.take()
            {
                return Ok(Received::Other(pdu, data));
            }
            match self.reader.wanted() {
                Wanted::Data(left) if !input.is_empty() => {
                    self.store(input, left, tasks);
                    continue;
                }
                Wanted::Event if self.reader.end_data_without_trailer() => {
                    self.data_ended(true, tasks, scene)?;
                    continue;
                }
                Wanted::Event => {}
                _ if input.is_empty() => {
                    if self.began.is_none() && self.reader.is_inside_pdu() {
                        self.began = Some(tasks.now());
                    }
                    return Ok(Received::Hungry);
                }
                _ => {}
            }
            // By reference: an event is as long as the header in it.
            let fed = self.reader.feed(input);
            let fed = fed.as_ref().map_err(|error| *error)?;
            input.advance(fed.consumed);
            let began = self.began.take();
            match &fed.event {
                None => {}
                Some(Event::Pdu(pdu)) => {
                    self.pdus += 1;
                    let whole = tasks.now();
                    let arrival = Arrival {
                        first: began.unwrap_or(whole),
                        whole,
                    };
                    if !self.header(pdu, arrival, input.len(), tasks, scene)? {
                        return Ok(Received::Blocked);
                    }
                }
                Some(Event::Data { .. }) => unreachable!("data is stored before it is fed"),
                Some(Event::DataEnd { digest }) => {
                    self.data_ended(digest.is_good(), tasks, scene)?;
                }
            }
        }
    }

    /// Takes a header. `following` bytes are there after it. False: it waits until answers have left.
    fn header(
        &mut self,
        pdu: &Pdu,
        arrival: Arrival,
        following: usize,
        tasks: &mut Tasks,
        scene: &Scene,
    ) -> Result<bool, ReceiveError> {
        self.place = Place::Nowhere;
        self.data_length = pdu.data_length();
        match pdu {
            Pdu::DataOut(data) => self.data_out(data, tasks, scene)?,
            Pdu::ScsiCommand(command) => {
                if self.is_backlogged(tasks) {
                    self.blocked = Some((*pdu, arrival));
                    return Ok(false);
                }
                self.command(command, arrival, following, tasks, scene)?;
            }
            _ => {
                if self.is_backlogged(tasks) {
                    self.blocked = Some((*pdu, arrival));
                    return Ok(false);
                }
                self.other = Some((*pdu, Vec::new()));
                if self.data_length > 0 {
                    self.place = Place::Kept;
                }
            }
        }
        Ok(true)
    }

    /// Tells whether a numbered PDU is to be done: the next one, or an immediate one.
    pub(crate) fn is_next(
        number: Serial,
        is_immediate: bool,
        tasks: &mut Tasks,
    ) -> Result<bool, ReceiveError> {
        if is_immediate {
            return Ok(true);
        }
        let expected = tasks.window().expected();
        match tasks.arrives(number) {
            CommandOrder::Next => Ok(true),
            // It is ignored (RFC 7143, section 4.2.2.1).
            CommandOrder::Duplicate | CommandOrder::Outside => Ok(false),
            // There is one connection, which keeps the order.
            CommandOrder::Ahead { .. } => Err(ReceiveError::MissingCommand { number, expected }),
        }
    }

    fn command(
        &mut self,
        command: &ScsiCommand,
        arrival: Arrival,
        following: usize,
        tasks: &mut Tasks,
        scene: &Scene,
    ) -> Result<(), ReceiveError> {
        if !Self::is_next(command.cmd_sn, command.immediate, tasks)? {
            return Ok(());
        }
        if scene.target().is_none() {
            // A discovery session takes none (RFC 7143, section 4.3).
            let reason = RejectReason::CommandNotSupported;
            let header = self.rejected_header();
            tasks.push(Answer::Reject { reason, header });
            return Ok(());
        }
        if command.immediate && !tasks.takes_immediate() {
            let reason = RejectReason::TooManyImmediateCommands;
            let header = self.rejected_header();
            tasks.push(Answer::Reject { reason, header });
            return Ok(());
        }
        let length = command.data_length;
        let all_here = length > 0 && self.is_whole(length, following);
        let next = tasks.command(command, all_here, arrival, scene)?;
        self.place = place_of(next, command.is_final);
        Ok(())
    }

    fn data_out(
        &mut self,
        data: &DataOut,
        tasks: &mut Tasks,
        scene: &Scene,
    ) -> Result<(), ReceiveError> {
        let next = tasks.data_out(data)?;
        self.place = place_of(next, data.is_final);
        if data.data_length == 0 {
            // Its end has no event of its own.
            self.data_ended(true, tasks, scene)?;
        }
        Ok(())
    }

    /// Whether data of this length, and what belongs to it, are among the bytes that follow its header.
    fn is_whole(&self, data_length: u32, following: usize) -> bool {
        let digest = match self.reader.has_data_digest() {
            true => DIGEST_LENGTH,
            false => 0,
        };
        following >= data_length as usize + padding_length(data_length) + digest
    }

    /// Puts the front of `input` where it belongs, up to `left` bytes: what is left of the current PDU's data.
    fn store(&mut self, input: &mut View, left: u32, tasks: &mut Tasks) {
        self.began = None;
        let length = input.len().min(left as usize);
        self.reader.data_received(&input[..length]);
        match self.place {
            Place::Nowhere => {}
            Place::Kept => {
                if let Some((_, kept)) = &mut self.other {
                    kept.extend_from_slice(&input[..length]);
                }
            }
            Place::Task {
                slot, uses, offset, ..
            } => {
                if let Some(received) = tasks.received(slot, uses) {
                    received.push(input.split_to(length));
                    return;
                }
                let mut at = (offset + (self.data_length - left)) as usize;
                let mut rest = &input[..length];
                while !rest.is_empty() {
                    let target = tasks.landing_at(slot, uses, at);
                    let length = target.len().min(rest.len());
                    if length == 0 {
                        break;
                    }
                    target[..length].copy_from_slice(&rest[..length]);
                    rest = &rest[length..];
                    at += length;
                }
            }
        }
        input.advance(length);
    }

    /// All data of the current PDU has come. `good`: its digest does not say otherwise.
    fn data_ended(
        &mut self,
        good: bool,
        tasks: &mut Tasks,
        scene: &Scene,
    ) -> Result<(), ReceiveError> {
        self.began = None;
        if !good {
            self.damaged += 1;
            // Data of a command is taken in whatever waits to be sent. One that reads no answers learns of the damage by the
            // command's end.
            if self.place == Place::Kept || !self.is_backlogged(tasks) {
                let reason = RejectReason::DataDigestError;
                let header = self.rejected_header();
                tasks.push(Answer::Reject { reason, header });
            }
        }
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::Kept if good => {}
            // The initiator sends it again, or does without.
            Place::Kept => self.other = None,
            Place::Task {
                slot,
                uses,
                is_last,
                ..
            } => {
                let length = self.data_length;
                tasks.data_ended(slot, uses, length, is_last, good, scene)?;
            }
        }
        Ok(())
    }

    /// The header of the last PDU, as a Reject brings it back.
    pub(crate) fn rejected_header(&self) -> Box<[u8; BASIC_HEADER_SIZE]> {
        let mut header = Box::new([0; BASIC_HEADER_SIZE]);
        let last = self.reader.header();
        let length = last.len().min(BASIC_HEADER_SIZE);
        header[..length].copy_from_slice(&last[..length]);
        header
    }

    /// A segment to receive the rest of the current PDU's data into, when that is worth its while, and from which byte of it on.
    pub(crate) fn direct(&mut self, tasks: &mut Tasks) -> Option<(Segment, DirectReturn)> {
        let Wanted::Data(left) = self.reader.wanted() else {
            return None;
        };
        let Place::Task {
            slot, uses, offset, ..
        } = self.place
        else {
            return None;
        };
        if (left as usize) < DIRECT_BYTES_MIN {
            return None;
        }
        let offset = offset + (self.data_length - left);
        let (mut segment, index, from) = tasks.take_segment(slot, uses, offset as usize)?;
        let length = segment.len();
        let wanted = (length - from).min(left as usize);
        segment.set_len(from + wanted);
        let back = DirectReturn {
            slot,
            uses,
            index,
            length,
            from,
        };
        Some((segment, back))
    }

    /// `count` bytes were received into the segment that [`Framing::direct`] gave.
    pub(crate) fn received_directly(
        &mut self,
        mut segment: Segment,
        back: &DirectReturn,
        count: usize,
        tasks: &mut Tasks,
    ) {
        if self.reader.has_data_digest() {
            self.reader
                .data_received(&segment[back.from..back.from + count]);
        } else {
            self.reader.data_received_unseen(count);
        }
        segment.set_len(back.length);
        tasks.put_segment(back.slot, back.uses, back.index, segment);
    }

    // -------------------------------------------------------------------- sending --

    /// Writes what is ready.
    #[inline]
    pub(crate) fn write(&mut self, tasks: &mut Tasks, pool: &Pool, out: &mut Gather) {
        if !tasks.answers().is_empty() {
            self.write_all(tasks, pool, out);
        }
    }

    fn write_all(&mut self, tasks: &mut Tasks, pool: &Pool, out: &mut Gather) {
        let window = *tasks.window();
        let mut serials = ResponseSerials {
            stat_sn: self.stat_sn,
            exp_cmd_sn: window.expected(),
            max_cmd_sn: window.maximum(),
        };
        let answers = tasks.answers();
        self.written += answers.len();
        for answer in answers.iter_mut() {
            self.write_answer(answer, &mut serials, pool, out);
        }
        answers.clear();
        self.stat_sn = serials.stat_sn;
    }

    #[inline]
    fn write_answer(
        &mut self,
        answer: &mut Answer,
        serials: &mut ResponseSerials,
        pool: &Pool,
        out: &mut Gather,
    ) {
        match answer {
            Answer::Command {
                itt,
                status,
                sense,
                residual,
                data,
                data_bytes,
                r2ts,
            } => {
                let end = DataInStatus {
                    status: status.value(),
                    stat_sn: serials.stat_sn,
                    residual: *residual,
                };
                let with_data = *status == Status::Good && sense.is_none();
                let mut count = *r2ts;
                if *data_bytes > 0 {
                    let status = with_data.then_some(end);
                    count += self.write_data(*itt, data, *data_bytes, status, serials, out);
                    if data.spilled() {
                        pool.keep_list(std::mem::take(data));
                    }
                }
                if *data_bytes == 0 || !with_data {
                    self.write_response(*itt, &end, sense.as_deref(), count, serials, out);
                }
                serials.stat_sn = serials.stat_sn.next();
            }
            Answer::R2t {
                itt,
                tag,
                lun,
                number,
                offset,
                length,
            } => {
                let r2t = R2t {
                    lun: *lun,
                    itt: *itt,
                    ttt: *tag,
                    serials: *serials,
                    r2t_sn: Serial(*number),
                    buffer_offset: *offset,
                    desired_length: *length,
                    data_length: 0,
                };
                self.put(&r2t, &[], out);
            }
            _ => self.write_other(answer, serials, out),
        }
    }

    /// Writes a header and its data.
    #[inline]
    fn put<H: Header>(&mut self, header: &H, data: &[u8], out: &mut Gather) {
        let written = self.writer.header(&mut self.header, header);
        out.push_header(&self.header[..written]);
        if !data.is_empty() {
            out.push_header(data);
            self.put_trailer(data.len() as u32, Digest::of(data), out);
        }
    }

    #[inline]
    fn put_trailer(&self, length: u32, digest: Digest, out: &mut Gather) {
        let mut trailer = [0; TRAILER_SIZE_MAX];
        let written = self.writer.trailer(&mut trailer, length, digest);
        if written > 0 {
            out.push_header(&trailer[..written]);
        }
    }

    /// Writes data in as many PDUs as it needs, and returns how many these are. The last one has the status, if there is one.
    #[inline]
    fn write_data(
        &mut self,
        itt: Itt,
        data: &mut Views,
        total: u32,
        status: Option<DataInStatus>,
        serials: &ResponseSerials,
        out: &mut Gather,
    ) -> u32 {
        let mut header = DataIn {
            is_final: true,
            acknowledge: false,
            status,
            lun: 0,
            itt,
            ttt: Ttt::RESERVED,
            exp_cmd_sn: serials.exp_cmd_sn,
            max_cmd_sn: serials.max_cmd_sn,
            data_sn: Serial(0),
            buffer_offset: 0,
            data_length: total,
        };
        if total > self.send_segment.min(self.max_burst) {
            self.write_front(&mut header, data, out);
        }
        let written = self.writer.header(&mut self.header, &header);
        out.push_header(&self.header[..written]);
        self.write_views(header.data_length, data, out);
        header.data_sn.0 + 1
    }

    /// Writes all the PDUs of data that is too long for one but the last, whose header and data are left.
    #[inline(never)]
    fn write_front(&mut self, rest: &mut DataIn, data: &mut Views, out: &mut Gather) {
        loop {
            let left_of_burst = self.max_burst - rest.buffer_offset % self.max_burst;
            let length = self.send_segment.min(left_of_burst);
            if rest.data_length <= length {
                return;
            }
            let header = DataIn {
                data_length: length,
                is_final: length == left_of_burst,
                status: None,
                ..*rest
            };
            let written = self.writer.header(&mut self.header, &header);
            out.push_header(&self.header[..written]);
            let mut part = split_front(data, length as usize);
            self.write_views(length, &mut part, out);
            rest.data_sn = rest.data_sn.next();
            rest.buffer_offset += length;
            rest.data_length -= length;
        }
    }

    #[inline]
    fn write_views(&self, length: u32, views: &mut Views, out: &mut Gather) {
        let digest = match self.writer.data_digest {
            true => digest_of_parts(views.iter().map(|view| &view[..])),
            false => Digest::new(),
        };
        // Most often it is one, which needs no loop.
        if views.len() == 1
            && let Some(view) = views.pop()
        {
            out.push_view(view);
        } else {
            views.drain(..).for_each(|view| out.push_view(view));
        }
        if self.writer.trailer_length(length) > 0 {
            self.put_trailer(length, digest, out);
        }
    }

    /// Writes the end of a command. `count`: of its Data-In PDUs and R2Ts.
    #[inline]
    fn write_response(
        &mut self,
        itt: Itt,
        end: &DataInStatus,
        sense: Option<&Sense>,
        count: u32,
        serials: &ResponseSerials,
        out: &mut Gather,
    ) {
        let mut response = ScsiResponse {
            response: ResponseCode::CommandCompleted,
            status: end.status,
            itt,
            snack_tag: 0,
            serials: *serials,
            exp_data_sn: Serial(count),
            read_residual: Residual::None,
            residual: end.residual,
            data_length: 0,
        };
        match sense {
            None => self.put(&response, &[], out),
            Some(sense) => {
                let sense = sense.encode(SenseFormat::Fixed);
                let mut data = Vec::with_capacity(2 + sense.len());
                data.extend(sense_prefix(sense.len() as u16));
                data.extend_from_slice(&sense);
                response.data_length = data.len() as u32;
                self.put(&response, &data, out);
            }
        }
    }

    #[inline(never)]
    fn write_other(
        &mut self,
        answer: &mut Answer,
        serials: &mut ResponseSerials,
        out: &mut Gather,
    ) {
        let now = *serials;
        match answer {
            Answer::Command { .. } | Answer::R2t { .. } => unreachable!("they are written before"),
            Answer::Ping => {
                // Its number is not used up.
                let ping = NopIn {
                    lun: 0,
                    itt: Itt::RESERVED,
                    ttt: PING_TAG,
                    serials: now,
                    data_length: 0,
                };
                return self.put(&ping, &[], out);
            }
            Answer::NopIn { itt, data } => {
                let length = data.len() as u32;
                let nop = NopIn {
                    lun: 0,
                    itt: *itt,
                    ttt: Ttt::RESERVED,
                    serials: now,
                    data_length: length,
                };
                self.put(&nop, &[], out);
                if length > 0 {
                    let mut views = Views::new();
                    views.push(std::mem::replace(data, View::empty()));
                    self.write_views(length, &mut views, out);
                }
            }
            Answer::Management { itt, response } => {
                let response = TaskManagementResponse {
                    response: *response,
                    itt: *itt,
                    serials: now,
                    data_length: 0,
                };
                self.put(&response, &[], out);
            }
            Answer::Text {
                itt,
                tag,
                data,
                is_final,
                continues,
            } => {
                let response = TextResponse {
                    is_final: *is_final,
                    continues: *continues,
                    lun: 0,
                    itt: *itt,
                    ttt: *tag,
                    serials: now,
                    data_length: data.len() as u32,
                };
                self.put(&response, data, out);
            }
            Answer::Logout { itt, response } => {
                let response = LogoutResponse {
                    response: *response,
                    itt: *itt,
                    serials: now,
                    time_to_wait: 0,
                    time_to_retain: 0,
                    data_length: 0,
                };
                self.put(&response, &[], out);
            }
            Answer::Reject { reason, header } => {
                let reject = Reject {
                    reason: *reason,
                    serials: now,
                    data_sn: Serial(0),
                    data_length: BASIC_HEADER_SIZE as u32,
                };
                self.put(&reject, &header[..], out);
            }
            Answer::AskForLogout => {
                let message = AsyncMessage {
                    lun: 0,
                    serials: now,
                    event: AsyncEvent::LogoutRequest,
                    vendor_code: 0,
                    // How many seconds the initiator has for it.
                    parameters: [0, 0, LOGOUT_SECONDS],
                    data_length: 0,
                };
                self.put(&message, &[], out);
            }
        }
        serials.stat_sn = serials.stat_sn.next();
    }
}

/// How many seconds an initiator has to log out when it is asked to.
const LOGOUT_SECONDS: u16 = 3;

fn place_of(next: Next, is_last: bool) -> Place {
    match next {
        Next::Skip => Place::Nowhere,
        Next::Fill { slot, uses, offset } => Place::Task {
            slot,
            uses,
            offset,
            is_last,
        },
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
