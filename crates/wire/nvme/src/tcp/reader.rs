//! The receiving half of a connection: bytes in, in pieces of any size; PDUs, data and digest
//! verdicts out (NVMe/TCP Transport 1.0c sections 3.5 and 3.6).
//!
//! A reader holds one header at most and allocates nothing. Data is never held here: the reader
//! says which bytes are data, and the caller has them where it wants them.

use crate::cqe::Cqe;
use crate::sqe::Sqe;
use crate::tcp::layout::{
    CloseReason, FramingError, Layout, ReceiveParameters, Side, Termination, is_termination,
};
use crate::tcp::pdu::{
    C2hData, CapsuleCommand, CommonHeader, H2cData, INITIALIZE_HEADER, InitializeRequest,
    InitializeResponse, Pdu, PduType, R2t, TERMINATION_HEADER, TERMINATION_SIZE_MAX,
    TerminationRequest, offset,
};
use crate::wire::{array_at, get};
use weir_digest::{DIGEST_LENGTH, DataDigest, Digest};

/// Room for the longest header with its digest: a termination request with what it carries.
const BUFFER_SIZE: usize = TERMINATION_SIZE_MAX;
const _: () = assert!(BUFFER_SIZE >= INITIALIZE_HEADER as usize + DIGEST_LENGTH);

/// What a reader found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A header, checked. Where [`Pdu::data_length`] is not 0 its data comes next.
    Pdu(Pdu),
    /// The bytes that this call consumed are data of the last PDU, from `offset` of its data on.
    Data {
        /// Bytes of this PDU's data before these.
        offset: u32,
    },
    /// All data of `pdu` was received. Not sent for a PDU without data.
    DataEnd {
        /// The PDU whose data ended.
        pdu: DataPdu,
        /// What its digest says. A wrong data digest concerns this PDU's command alone.
        digest: DataDigest,
    },
}

/// A PDU that had data, as far as it matters at the data's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPdu {
    /// A command with data in its capsule.
    CapsuleCommand {
        /// The command's.
        cid: u16,
    },
    /// Data to the controller.
    H2cData(H2cData),
    /// Data to the host.
    C2hData(C2hData),
}

/// What [`Reader::feed`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes taken from the start of the input.
    pub consumed: usize,
    /// What was found; `None` when all input was taken and nothing is complete.
    pub event: Option<Event>,
}

/// What the next bytes are, for a caller that receives them to a place of its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Header, header digest or padding: at least this many more bytes.
    Header(usize),
    /// Exactly this many more bytes of the PDU's data.
    Data(u32),
    /// Exactly this many more bytes of the data digest.
    DataDigest(usize),
    /// Nothing: an event is ready, [`Reader::feed`] it no bytes.
    Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for ICReq or ICResp.
    Initializing,
    /// It came; waiting for [`Reader::establish`].
    Negotiating,
    Established,
    /// A termination request came.
    Terminated,
    /// The connection must end.
    Failed(FramingError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The eight bytes of the common header.
    Common,
    /// The rest of the header and its digest, up to this many bytes.
    Header { end: usize },
    /// Padding before the data.
    Padding { left: u32 },
    /// Data; `received` bytes so far.
    Data { received: u32 },
    /// The data digest; this many bytes of it so far.
    DataDigest {
        bytes: [u8; DIGEST_LENGTH],
        filled: usize,
    },
}

/// Common headers that are kept.
const KNOWN: usize = 4;

/// A common header that was right.
#[derive(Debug, Clone, Copy)]
struct Known {
    bytes: [u8; CommonHeader::SIZE],
    layout: Layout,
}

/// Reads the PDUs of one side of a connection.
///
/// Call [`Reader::feed`] with received bytes until it returns no event; bytes that it did not
/// consume are fed again after the event is handled. After the ICReq or ICResp event, call
/// [`Reader::establish`] before feeding on. While [`Reader::wanted`] is [`Wanted::Data`], data may
/// instead be received straight into its place and reported by [`Reader::data_received`].
///
/// An error is final: [`Reader::header`] has the bytes for the termination request.
#[derive(Debug, Clone)]
pub struct Reader {
    side: Side,
    parameters: ReceiveParameters,
    phase: Phase,
    stage: Stage,
    /// Header bytes of the current PDU, with the header digest.
    buffer: [u8; BUFFER_SIZE],
    filled: usize,
    /// Lengths of the current PDU, once its common header is right.
    layout: Layout,
    /// The last common headers, by [`known_as`]: most often the next is the same.
    known: [Option<Known>; KNOWN],
    /// What is wrong with the common header, while its digest is awaited that says whether it is what
    /// was sent.
    suspect: Option<Termination>,
    /// The buffer holds a whole header, which was right.
    held: bool,
    data_digest: Digest,
}

impl Reader {
    /// The reader of a connection that was just made.
    pub const fn new(side: Side) -> Self {
        Self {
            side,
            parameters: ReceiveParameters::INITIAL,
            phase: Phase::Initializing,
            stage: Stage::Common,
            buffer: [0; BUFFER_SIZE],
            filled: 0,
            layout: Layout {
                header: 0,
                header_digest: 0,
                padding: 0,
                data: 0,
                data_digest: 0,
            },
            known: [None; KNOWN],
            suspect: None,
            held: false,
            data_digest: Digest::new(),
        }
    }

    /// Goes on with what ICReq and ICResp agreed.
    ///
    /// Panics unless the event of the ICReq or ICResp was the last.
    pub fn establish(&mut self, parameters: ReceiveParameters) {
        assert_eq!(
            self.phase,
            Phase::Negotiating,
            "establish follows ICReq or ICResp"
        );
        self.parameters = parameters;
        self.known = [None; KNOWN];
        self.phase = Phase::Established;
    }

    /// Whether ICReq or ICResp were exchanged and the connection was not ended since.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Whether a PDU has begun and is not complete.
    #[inline]
    pub fn is_inside_pdu(&self) -> bool {
        self.stage != Stage::Common || !self.held && self.filled > 0
    }

    /// The header of the current or last PDU as far as it was received, without its digest: what a
    /// termination request carries. Empty before the first byte.
    pub fn header(&self) -> &[u8] {
        let length = match self.buffer[..self.filled].first_chunk() {
            Some(common) => usize::from(CommonHeader::decode(common).header_length),
            None => self.filled,
        };
        // A wrong HLEN may be anything: no less than the common header, no more than there is.
        &self.buffer[..length.max(CommonHeader::SIZE).min(self.filled)]
    }

    /// The header that the last termination request complains about; empty for other PDUs.
    pub fn termination_data(&self) -> &[u8] {
        match self.phase {
            Phase::Terminated => &self.buffer[usize::from(TERMINATION_HEADER)..self.filled],
            _ => &[],
        }
    }

    /// What the next bytes are.
    #[inline]
    pub fn wanted(&self) -> Wanted {
        match self.stage {
            Stage::Common if self.held => Wanted::Header(CommonHeader::SIZE),
            Stage::Common => Wanted::Header(CommonHeader::SIZE - self.filled),
            Stage::Header { end } => Wanted::Header(end - self.filled),
            Stage::Padding { left: 0 } => Wanted::Event,
            Stage::Padding { left } => Wanted::Header(left as usize),
            Stage::Data { received } if received < self.layout.data => {
                Wanted::Data(self.layout.data - received)
            }
            Stage::Data { .. } if self.has_data_digest() => Wanted::DataDigest(DIGEST_LENGTH),
            Stage::Data { .. } => Wanted::Event,
            Stage::DataDigest { filled, .. } => Wanted::DataDigest(DIGEST_LENGTH - filled),
        }
    }

    /// Whether the digest of data must be computed, so that [`Reader::data_received`] needs its bytes.
    #[inline]
    pub const fn has_data_digest(&self) -> bool {
        self.layout.data_digest > 0
    }

    /// Takes bytes up to the next event.
    ///
    /// # Errors
    /// The connection must end; every later call returns the same.
    ///
    /// # Panics
    /// When given bytes between the event of an ICReq or ICResp and [`Reader::establish`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Fed, FramingError> {
        if matches!(self.phase, Phase::Established) {
            match self.stage {
                Stage::Common => {
                    if let Some(layout) = self.known_layout(bytes) {
                        return self.read_at_once(bytes, layout);
                    }
                }
                Stage::Data { received } => {
                    if let Some(fed) = self.read_data(bytes, received) {
                        return Ok(fed);
                    }
                }
                _ => {}
            }
        }
        self.feed_in_steps(bytes)
    }

    /// As [`Reader::feed`], for what does not come in one piece, or has not come before.
    #[inline(never)]
    fn feed_in_steps(&mut self, bytes: &[u8]) -> Result<Fed, FramingError> {
        match self.phase {
            Phase::Failed(error) => return Err(error),
            Phase::Negotiating | Phase::Terminated if bytes.is_empty() => {
                return Ok(Fed {
                    consumed: 0,
                    event: None,
                });
            }
            Phase::Negotiating => panic!("ICReq or ICResp was not followed by establish"),
            Phase::Terminated => return Err(self.fail(CloseReason::AfterTermination.into())),
            Phase::Initializing | Phase::Established => {}
        }
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            let (taken, event) = self.step(rest).map_err(|error| self.fail(error))?;
            consumed += taken;
            match event {
                Step::Event(event) => {
                    return Ok(Fed {
                        consumed,
                        event: Some(event),
                    });
                }
                Step::More => {
                    return Ok(Fed {
                        consumed,
                        event: None,
                    });
                }
                Step::Next => {}
            }
        }
    }

    /// Reports data that was received straight into its place: `bytes` follow what came before.
    ///
    /// Panics where they are more than [`Wanted::Data`] says.
    #[inline]
    pub fn data_received(&mut self, bytes: &[u8]) {
        if self.has_data_digest() {
            self.data_digest.update(bytes);
        }
        self.count_data(bytes.len());
    }

    /// As [`Reader::data_received`], without showing the bytes.
    ///
    /// Panics where they are more than [`Wanted::Data`] says, or [`Reader::has_data_digest`].
    pub fn data_received_unseen(&mut self, length: usize) {
        assert!(!self.has_data_digest(), "the digest needs the data's bytes");
        self.count_data(length);
    }

    /// Takes the end of a PDU's data in place of [`Event::DataEnd`], where all of it was received and no digest follows. Returns
    /// whether that is so.
    #[inline]
    pub fn end_data_without_digest(&mut self) -> bool {
        let ends = matches!(self.stage, Stage::Data { received } if received == self.layout.data)
            && !self.has_data_digest();
        if ends {
            self.stage = Stage::Common;
        }
        ends
    }

    #[inline]
    fn count_data(&mut self, length: usize) {
        let Stage::Data { received } = &mut self.stage else {
            panic!("no data is expected")
        };
        let left = self.layout.data - *received;
        assert!(
            length <= left as usize,
            "{length} bytes were received where {left} are data"
        );
        *received += length as u32;
    }

    /// One stage's worth of input. Never that of data: [`Reader::feed`] takes it first, and what makes it the stage ends a call
    /// with an event.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, Step), FramingError> {
        match self.stage {
            Stage::Common => self.read_common(bytes),
            Stage::Header { end } => self.read_header(bytes, end),
            Stage::Padding { left } => Ok(self.skip_padding(bytes, left)),
            Stage::Data { .. } => unreachable!("data is taken before the steps"),
            Stage::DataDigest {
                bytes: digest,
                filled,
            } => Ok(self.read_data_digest(bytes, digest, filled)),
        }
    }

    /// The layout of the PDU that begins with `bytes`, where its header is there up to the data and begins as one did before.
    #[inline]
    fn known_layout(&self, bytes: &[u8]) -> Option<Layout> {
        let between = self.held || self.filled == 0;
        let common: &[u8; CommonHeader::SIZE] = bytes.first_chunk().filter(|_| between)?;
        let known = self.known[known_as(common)].as_ref()?;
        let layout = &known.layout;
        let before_data = layout.header + layout.header_digest + layout.padding;
        (known.bytes == *common && bytes.len() >= before_data as usize).then_some(*layout)
    }

    /// A header in one piece: all of the stages before its event.
    #[inline]
    fn read_at_once(&mut self, bytes: &[u8], layout: Layout) -> Result<Fed, FramingError> {
        let end = (layout.header + layout.header_digest) as usize;
        self.held = false;
        self.buffer[..end].copy_from_slice(&bytes[..end]);
        self.filled = end;
        self.layout = layout;
        let common = self.common();
        let mut checked = Ok(());
        if layout.header_digest > 0 {
            checked = self.check_header_digest(&common);
        }
        if let Err(termination) = checked.and_then(|()| self.check_fields(&common)) {
            return Err(self.fail(termination.into()));
        }
        self.held = true;
        self.expect_data();
        let consumed = end + layout.padding as usize;
        // A controller's most frequent, made in its place.
        if common.pdu_type == PduType::CapsuleCommand {
            let event = Some(Event::Pdu(Pdu::CapsuleCommand(self.capsule())));
            return Ok(Fed { consumed, event });
        }
        let event = Some(Event::Pdu(self.pdu()));
        Ok(Fed { consumed, event })
    }

    /// Keeps a common header that was right. Those of PDUs that come once are not worth it.
    fn know(&mut self) {
        let bytes: [u8; CommonHeader::SIZE] = *array_at(&self.buffer, 0);
        if self.phase == Phase::Established && !is_termination(self.common().pdu_type) {
            let layout = self.layout;
            self.known[known_as(&bytes)] = Some(Known { bytes, layout });
        }
    }

    fn read_common(&mut self, bytes: &[u8]) -> Result<(usize, Step), FramingError> {
        if bytes.is_empty() {
            return Ok((0, Step::More));
        }
        if self.held {
            // The last PDU's header was kept for a termination request until now.
            self.held = false;
            self.filled = 0;
        }
        let taken = self.fill(bytes, CommonHeader::SIZE);
        if self.filled < CommonHeader::SIZE {
            return Ok((taken, Step::More));
        }
        let common = self.common();
        self.check_sequence(&common)?;
        let end = match Layout::of(self.side, &common, &self.parameters) {
            Ok(layout) => {
                self.layout = layout;
                self.know();
                layout.header + layout.header_digest
            }
            Err(FramingError::Terminate(termination)) => self.suspect(&common, termination)?,
            Err(error) => return Err(error),
        };
        self.stage = Stage::Header { end: end as usize };
        Ok((taken, Step::Next))
    }

    /// The digest tells a damaged header from a wrong one, so it is awaited where it can be. Returns
    /// where it ends.
    fn suspect(
        &mut self,
        common: &CommonHeader,
        termination: Termination,
    ) -> Result<u32, Termination> {
        if !self.parameters.header_digest {
            return Err(termination);
        }
        self.suspect = Some(termination);
        Layout::readable_header(self.side, common, &self.parameters).ok_or(termination)
    }

    fn read_header(&mut self, bytes: &[u8], end: usize) -> Result<(usize, Step), FramingError> {
        let taken = self.fill(bytes, end);
        if self.filled < end {
            return Ok((taken, Step::More));
        }
        let common = self.common();
        self.check_header_digest(&common)?;
        if let Some(termination) = self.suspect {
            return Err(termination.into());
        }
        self.check_fields(&common)?;
        self.held = true;
        self.stage = Stage::Padding {
            left: self.layout.padding,
        };
        Ok((taken, Step::Next))
    }

    /// Takes the padding, so that the PDU is told when its data is next.
    fn skip_padding(&mut self, bytes: &[u8], left: u32) -> (usize, Step) {
        let taken = bytes.len().min(left as usize);
        let left = left - taken as u32;
        if left > 0 {
            self.stage = Stage::Padding { left };
            return (taken, Step::More);
        }
        (taken, Step::Event(self.begin_data()))
    }

    /// The header is complete: data is next, or another PDU.
    fn begin_data(&mut self) -> Event {
        self.expect_data();
        let pdu = self.pdu();
        match pdu {
            Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_) => {
                self.phase = Phase::Negotiating;
            }
            Pdu::Termination(_) => self.phase = Phase::Terminated,
            _ => {}
        }
        Event::Pdu(pdu)
    }

    #[inline]
    fn expect_data(&mut self) {
        self.stage = match self.layout.data {
            0 => Stage::Common,
            _ => Stage::Data { received: 0 },
        };
        self.data_digest = Digest::new();
    }

    /// Data, or its end; none when its digest is next.
    #[inline]
    fn read_data(&mut self, bytes: &[u8], received: u32) -> Option<Fed> {
        let left = self.layout.data - received;
        let consumed = bytes.len().min(left as usize);
        if left > 0 {
            let event = (consumed > 0).then(|| {
                self.data_received(&bytes[..consumed]);
                Event::Data { offset: received }
            });
            return Some(Fed { consumed, event });
        }
        if self.has_data_digest() {
            self.stage = Stage::DataDigest {
                bytes: [0; DIGEST_LENGTH],
                filled: 0,
            };
            return None;
        }
        let event = Some(self.end_data(DataDigest::Absent));
        Some(Fed { consumed, event })
    }

    fn read_data_digest(
        &mut self,
        bytes: &[u8],
        mut digest: [u8; DIGEST_LENGTH],
        filled: usize,
    ) -> (usize, Step) {
        let taken = bytes.len().min(DIGEST_LENGTH - filled);
        let end = filled + taken;
        digest[filled..end].copy_from_slice(&bytes[..taken]);
        if end < DIGEST_LENGTH {
            self.stage = Stage::DataDigest {
                bytes: digest,
                filled: end,
            };
            return (taken, Step::More);
        }
        let verdict = DataDigest::judge(self.data_digest, digest);
        (taken, Step::Event(self.end_data(verdict)))
    }

    fn end_data(&mut self, digest: DataDigest) -> Event {
        self.stage = Stage::Common;
        Event::DataEnd {
            pdu: self.data_pdu(),
            digest,
        }
    }

    /// The PDU whose header is held, and which has data.
    fn data_pdu(&self) -> DataPdu {
        let (common, bytes) = (self.common(), &self.buffer);
        match common.pdu_type {
            PduType::CapsuleCommand => DataPdu::CapsuleCommand {
                cid: get(bytes, CommonHeader::SIZE + 2),
            },
            PduType::H2cData => DataPdu::H2cData(H2cData::read(&common, bytes)),
            PduType::C2hData => DataPdu::C2hData(C2hData::read(&common, bytes)),
            other => unreachable!("{other} has no data"),
        }
    }

    /// Adds to the header up to `end` bytes; returns how many were taken.
    fn fill(&mut self, bytes: &[u8], end: usize) -> usize {
        let taken = bytes.len().min(end - self.filled);
        self.buffer[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        taken
    }

    fn common(&self) -> CommonHeader {
        get(&self.buffer, 0)
    }

    /// ICReq or ICResp come first and once; a termination request may come at any time.
    fn check_sequence(&self, common: &CommonHeader) -> Result<(), Termination> {
        let known = !matches!(common.pdu_type, PduType::Other(_));
        let towards_host = common.pdu_type.value() & 1 == 1;
        if !known || towards_host != (self.side == Side::Host) {
            return Err(Termination::invalid_field(offset::TYPE));
        }
        let initialize = matches!(
            common.pdu_type,
            PduType::InitializeRequest | PduType::InitializeResponse
        );
        let expected = initialize == (self.phase == Phase::Initializing);
        if expected || is_termination(common.pdu_type) {
            Ok(())
        } else {
            Err(Termination::sequence_error())
        }
    }

    fn check_header_digest(&self, common: &CommonHeader) -> Result<(), Termination> {
        if !self.parameters.header_digest || is_termination(common.pdu_type) {
            return Ok(());
        }
        let (header, digest) = self.buffer[..self.filled].split_at(self.filled - DIGEST_LENGTH);
        let received = get(digest, 0);
        if Digest::of(header).value() == received {
            Ok(())
        } else {
            Err(Termination::header_digest_error(received))
        }
    }

    /// Checks the fields behind the common header that its lengths depend on.
    #[inline]
    fn check_fields(&self, common: &CommonHeader) -> Result<(), Termination> {
        match common.pdu_type {
            PduType::InitializeRequest => {
                InitializeRequest::decode(array_at(&self.buffer, 0)).check()?;
            }
            PduType::CapsuleCommand if self.layout.data > self.parameters.maximum_in_capsule => {
                return Err(Termination::invalid_field(offset::LENGTH));
            }
            PduType::H2cData | PduType::C2hData => {
                self.check_data_length(get(&self.buffer, offset::DATA_LENGTH as usize))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// DATAL is not 0, is what PLEN says, and within the limit.
    fn check_data_length(&self, length: u32) -> Result<(), Termination> {
        if length == 0 {
            Err(Termination::invalid_field(offset::DATA_LENGTH))
        } else if length != self.layout.data {
            Err(Termination::invalid_field(offset::LENGTH))
        } else if length > self.parameters.maximum_data {
            Err(Termination::limit_exceeded())
        } else {
            Ok(())
        }
    }

    /// The PDU whose header is held.
    fn pdu(&self) -> Pdu {
        assert!(self.held, "the header was read");
        let common = self.common();
        let bytes = &self.buffer;
        match common.pdu_type {
            PduType::InitializeRequest => {
                Pdu::InitializeRequest(InitializeRequest::decode(array_at(bytes, 0)))
            }
            PduType::InitializeResponse => {
                Pdu::InitializeResponse(InitializeResponse::decode(array_at(bytes, 0)))
            }
            PduType::H2cTermination | PduType::C2hTermination => {
                Pdu::Termination(TerminationRequest::read(bytes))
            }
            PduType::CapsuleCommand => Pdu::CapsuleCommand(self.capsule()),
            PduType::CapsuleResponse => {
                Pdu::CapsuleResponse(Cqe::decode(array_at(bytes, CommonHeader::SIZE)))
            }
            PduType::H2cData => Pdu::H2cData(H2cData::read(&common, bytes)),
            PduType::C2hData => Pdu::C2hData(C2hData::read(&common, bytes)),
            PduType::R2t => Pdu::R2t(R2t::read(bytes)),
            PduType::Other(_) => unreachable!("a header of unknown type is not held"),
        }
    }

    #[inline]
    fn capsule(&self) -> CapsuleCommand {
        CapsuleCommand {
            sqe: Sqe::decode(array_at(&self.buffer, CommonHeader::SIZE)),
            data_length: self.layout.data,
        }
    }

    fn fail(&mut self, error: FramingError) -> FramingError {
        self.phase = Phase::Failed(error);
        error
    }
}

/// Where a common header is kept: those that take turns are kept apart, which are capsules with and without data, or R2Ts,
/// responses and data.
fn known_as(common: &[u8; CommonHeader::SIZE]) -> usize {
    const R2T_BIT: u8 = 0b1000;
    let is_r2t = common[offset::TYPE as usize] & R2T_BIT != 0;
    let has_data = common[offset::DATA_OFFSET as usize] != 0;
    usize::from(is_r2t) << 1 | usize::from(has_data)
}

/// How [`Reader::step`] left off.
enum Step {
    /// Something is complete.
    Event(Event),
    /// The next stage may have input, or an event without input.
    Next,
    /// All input is used up.
    More,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sgl::SglDescriptor;
    use crate::status::Status;
    use crate::tcp::pdu::{Alignment, DigestOptions, FatalErrorStatus};
    use crate::tcp::writer::{HEADER_SIZE_MAX, Writer, encode_termination};
    use proptest::prelude::*;

    const MAXIMUM_DATA: u32 = 1 << 16;

    /// What came out of a reader, whatever the pieces: data is put together.
    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Seen {
        Pdu(Pdu),
        Data(Vec<u8>),
        End(DataPdu, DataDigest),
        Error(FramingError),
    }

    fn parameters(digests: DigestOptions, alignment: Alignment) -> ReceiveParameters {
        ReceiveParameters {
            header_digest: digests.contains(DigestOptions::HEADER),
            data_digest: digests.contains(DigestOptions::DATA),
            alignment,
            maximum_in_capsule: 8192,
            maximum_data: MAXIMUM_DATA,
        }
    }

    /// A reader that has been through ICReq or ICResp.
    fn established(side: Side, parameters: ReceiveParameters) -> Reader {
        let mut reader = Reader::new(side);
        let opening = match side {
            Side::Controller => InitializeRequest::new(DigestOptions::NONE).encode(),
            Side::Host => InitializeResponse::new(DigestOptions::NONE, MAXIMUM_DATA).encode(),
        };
        let fed = reader.feed(&opening).expect("well formed");
        assert_eq!(fed.consumed, 128);
        assert!(matches!(
            fed.event,
            Some(Event::Pdu(
                Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_)
            ))
        ));
        reader.establish(parameters);
        reader
    }

    /// Feeds `piece` until nothing more comes of it.
    fn drain(
        reader: &mut Reader,
        mut piece: &[u8],
        seen: &mut Vec<Seen>,
    ) -> Result<(), FramingError> {
        loop {
            let fed = reader.feed(piece)?;
            let (taken, rest) = piece.split_at(fed.consumed);
            piece = rest;
            match fed.event {
                None => {
                    assert!(piece.is_empty(), "what is not taken comes with an event");
                    return Ok(());
                }
                Some(Event::Pdu(pdu)) => seen.push(Seen::Pdu(pdu)),
                Some(Event::DataEnd { pdu, digest }) => seen.push(Seen::End(pdu, digest)),
                Some(Event::Data { offset }) => add_data(seen, offset, taken),
            }
        }
    }

    fn add_data(seen: &mut Vec<Seen>, offset: u32, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        if offset == 0 {
            seen.push(Seen::Data(vec![]));
        }
        let Some(Seen::Data(data)) = seen.last_mut() else {
            panic!("data follows data")
        };
        assert_eq!(data.len(), offset as usize);
        data.extend_from_slice(bytes);
    }

    /// Everything that a reader makes of `bytes` in pieces of these lengths, repeated.
    fn read(mut reader: Reader, bytes: &[u8], pieces: &[usize]) -> Vec<Seen> {
        let mut seen = vec![];
        let mut rest = bytes;
        for &piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            rest = later;
            if let Err(error) = drain(&mut reader, now, &mut seen) {
                assert_eq!(reader.feed(&[1]), Err(error), "an error is final");
                seen.push(Seen::Error(error));
                break;
            }
            if rest.is_empty() {
                break;
            }
        }
        seen
    }

    /// As [`read`], but data is received straight into place, in pieces of these lengths.
    fn read_landing(mut reader: Reader, bytes: &[u8], pieces: &[usize]) -> Vec<Seen> {
        let mut seen = vec![];
        let mut rest = bytes;
        let mut pieces = pieces.iter().cycle();
        while !rest.is_empty() {
            let piece = *pieces.next().expect("cycles") as u32;
            let wanted = match reader.wanted() {
                Wanted::Data(left) => left.min(piece) as usize,
                Wanted::Header(length) | Wanted::DataDigest(length) => length,
                Wanted::Event => 0,
            };
            let (now, later) = rest.split_at(wanted.min(rest.len()));
            rest = later;
            if let (Wanted::Data(left), Some(length)) = (reader.wanted(), landed_length(&seen)) {
                assert_eq!(left + length, seen_data_length(&seen));
            }
            if matches!(reader.wanted(), Wanted::Data(_)) {
                let offset = landed_length(&seen).unwrap_or(0);
                add_data(&mut seen, offset, now);
                if reader.has_data_digest() {
                    reader.data_received(now);
                } else {
                    reader.data_received_unseen(now.len());
                }
                // The end of the data is an event without bytes.
                drain(&mut reader, &[], &mut seen).expect("data is never an error");
            } else if let Err(error) = drain(&mut reader, now, &mut seen) {
                seen.push(Seen::Error(error));
                break;
            }
        }
        seen
    }

    /// Bytes of the data that is being received.
    fn landed_length(seen: &[Seen]) -> Option<u32> {
        match seen.last() {
            Some(Seen::Data(data)) => Some(data.len() as u32),
            _ => None,
        }
    }

    /// Bytes of data of the PDU that is being received.
    fn seen_data_length(seen: &[Seen]) -> u32 {
        let last = seen.iter().rev().find_map(|event| match event {
            Seen::Pdu(pdu) => Some(pdu.data_length()),
            _ => None,
        });
        last.expect("data follows a PDU")
    }

    /// A PDU as a peer would send it, and what should be seen of it.
    #[derive(Debug, Clone)]
    struct Sent {
        pdu: Pdu,
        data: Vec<u8>,
        /// Damage the data digest, where there is one.
        damage: bool,
    }

    fn write(writer: &Writer, sent: &Sent) -> Vec<u8> {
        let mut bytes = vec![0xee; HEADER_SIZE_MAX];
        let length = match &sent.pdu {
            Pdu::CapsuleCommand(capsule) => {
                writer.capsule_command(&mut bytes, &capsule.sqe, capsule.data_length)
            }
            Pdu::CapsuleResponse(cqe) => writer.capsule_response(&mut bytes, cqe),
            Pdu::H2cData(data) => writer.h2c_data(&mut bytes, data),
            Pdu::C2hData(data) => writer.c2h_data(&mut bytes, data),
            Pdu::R2t(r2t) => writer.r2t(&mut bytes, r2t),
            Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_) | Pdu::Termination(_) => {
                panic!("not sent here")
            }
        };
        bytes.truncate(length);
        bytes.extend_from_slice(&sent.data);
        if writer.data_digest && !sent.data.is_empty() {
            let digest = Digest::of(&sent.data).value() ^ u32::from(sent.damage);
            bytes.extend_from_slice(&digest.to_le_bytes());
        }
        bytes
    }

    fn expected(writer: &Writer, sent: &Sent) -> Vec<Seen> {
        let mut seen = vec![Seen::Pdu(sent.pdu)];
        if !sent.data.is_empty() {
            let computed = Digest::of(&sent.data).value();
            let digest = match (writer.data_digest, sent.damage) {
                (false, _) => DataDigest::Absent,
                (true, false) => DataDigest::Matches,
                (true, true) => DataDigest::Differs {
                    received: computed ^ 1,
                    computed,
                },
            };
            let pdu = match sent.pdu {
                Pdu::CapsuleCommand(capsule) => DataPdu::CapsuleCommand {
                    cid: capsule.sqe.cid,
                },
                Pdu::H2cData(data) => DataPdu::H2cData(data),
                Pdu::C2hData(data) => DataPdu::C2hData(data),
                other => panic!("{other:?} has no data"),
            };
            seen.extend([Seen::Data(sent.data.clone()), Seen::End(pdu, digest)]);
        }
        seen
    }

    fn data(length: core::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), length)
    }

    fn sent(side: Side) -> BoxedStrategy<Sent> {
        let tags = (
            any::<u16>(),
            any::<u16>(),
            any::<u32>(),
            any::<bool>(),
            any::<bool>(),
        );
        let parts = (0..3_u8, tags, data(0..300), any::<bool>());
        type Parts = (u8, (u16, u16, u32, bool, bool), Vec<u8>, bool);
        let from_parts = move |(kind, tags, mut data, damage): Parts| {
            let (cid, transfer_tag, offset, last, success) = tags;
            let length = data.len().max(1) as u32;
            let pdu = match (side, kind) {
                (Side::Controller, 0) => {
                    data.resize(length as usize, 1);
                    Pdu::H2cData(H2cData {
                        cid,
                        transfer_tag,
                        offset,
                        length,
                        last,
                    })
                }
                (Side::Controller, _) => {
                    let sgl = SglDescriptor::Transport { length: offset };
                    let sqe = Sqe {
                        opcode: 2,
                        cid,
                        nsid: offset,
                        sgl,
                        ..Sqe::default()
                    };
                    Pdu::CapsuleCommand(CapsuleCommand {
                        sqe,
                        data_length: data.len() as u32,
                    })
                }
                (Side::Host, 0) => {
                    data.resize(length as usize, 1);
                    let success = success && last;
                    Pdu::C2hData(C2hData {
                        cid,
                        offset,
                        length,
                        last,
                        success,
                    })
                }
                (Side::Host, kind) => {
                    data.clear();
                    match kind {
                        1 => Pdu::R2t(R2t {
                            cid,
                            transfer_tag,
                            offset,
                            length,
                        }),
                        _ => Pdu::CapsuleResponse(Cqe::new(cid, transfer_tag, Status::SUCCESS)),
                    }
                }
            };
            Sent { pdu, data, damage }
        };
        parts.prop_map(from_parts).boxed()
    }

    fn pieces() -> impl Strategy<Value = Vec<usize>> {
        prop_oneof![
            Just(vec![1]),
            Just(vec![7, 1]),
            proptest::collection::vec(1_usize..200, 1..10),
            proptest::collection::vec(1_usize..12, 1..10),
        ]
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            controller: bool, digests in 0_u8..4, alignment in 0_u8..32, pieces in pieces(),
            (sent_to_controller, sent_to_host) in (
                proptest::collection::vec(sent(Side::Controller), 0..8),
                proptest::collection::vec(sent(Side::Host), 0..8),
            ),
        ) {
            let (side, sent) = match controller {
                true => (Side::Controller, sent_to_controller),
                false => (Side::Host, sent_to_host),
            };
            let alignment = Alignment::from_wire(alignment).expect("in range");
            let parameters = parameters(DigestOptions(digests), alignment);
            let ReceiveParameters { header_digest, data_digest, .. } = parameters;
            let writer = Writer { header_digest, data_digest, alignment };
            let bytes: Vec<u8> = sent.iter().flat_map(|sent| write(&writer, sent)).collect();
            let expected: Vec<Seen> = sent.iter().flat_map(|sent| expected(&writer, sent)).collect();
            let reader = established(side, parameters);
            prop_assert_eq!(&read(reader.clone(), &bytes, &[bytes.len().max(1)]), &expected);
            prop_assert_eq!(&read(reader.clone(), &bytes, &pieces), &expected);
            prop_assert_eq!(&read_landing(reader, &bytes, &pieces), &expected);
        }

        /// Garbage, from the start or after the handshake, never panics and is judged the same in any
        /// pieces.
        #[test]
        fn garbage_is_judged_the_same_in_any_pieces(
            host: bool, before: bool, digests in 0_u8..4, alignment in 0_u8..32,
            headers in proptest::collection::vec(
                (0_u8..10, 0_u8..16, prop_oneof![Just(24_u8), Just(72), Just(128), any::<u8>()],
                 prop_oneof![Just(24_u8), Just(28), Just(72), any::<u8>()], 0_u32..300, data(0..160)),
                1..5,
            ),
            pieces in pieces(),
        ) {
            let side = if host { Side::Host } else { Side::Controller };
            let alignment = Alignment::from_wire(alignment).expect("in range");
            let reader = if before {
                Reader::new(side)
            } else {
                established(side, parameters(DigestOptions(digests), alignment))
            };
            let mut bytes = vec![];
            for (kind, flags, header_length, data_offset, length, rest) in headers {
                bytes.extend([kind, flags, header_length, data_offset]);
                bytes.extend(length.to_le_bytes());
                bytes.extend(rest);
            }
            // A second handshake cannot be negotiated by this test; its bytes are cut away.
            if before {
                bytes[0] = 0x04;
            }
            let whole = read(reader.clone(), &bytes, &[bytes.len()]);
            prop_assert_eq!(read(reader, &bytes, &pieces), whole);
        }

        /// A good stream with one byte changed anywhere is judged the same in any pieces, landed or
        /// not, and what came before the change is seen.
        #[test]
        fn a_changed_byte_is_judged_the_same_in_any_pieces(
            digests in 0_u8..4, alignment in 0_u8..32, pieces in pieces(),
            (sent, times) in (proptest::collection::vec(sent(Side::Controller), 1..6), 1_usize..4),
            (place, change) in (any::<proptest::sample::Index>(), 1_u8..),
        ) {
            // Headers that begin as one before them are read in another way.
            let sent = vec![sent; times].concat();
            let alignment = Alignment::from_wire(alignment).expect("in range");
            let parameters = parameters(DigestOptions(digests), alignment);
            let ReceiveParameters { header_digest, data_digest, .. } = parameters;
            let writer = Writer { header_digest, data_digest, alignment };
            let written: Vec<Vec<u8>> = sent.iter().map(|sent| write(&writer, sent)).collect();
            let mut bytes = written.concat();
            let place = place.index(bytes.len());
            bytes[place] ^= change;
            let reader = established(Side::Controller, parameters);
            let whole = read(reader.clone(), &bytes, &[bytes.len()]);
            prop_assert_eq!(&read(reader.clone(), &bytes, &pieces), &whole);
            prop_assert_eq!(&read_landing(reader, &bytes, &pieces), &whole);
            let mut end = 0;
            let before = sent.iter().zip(&written).take_while(|(_, bytes)| {
                end += bytes.len();
                end <= place
            });
            let before: Vec<Seen> = before.flat_map(|(sent, _)| expected(&writer, sent)).collect();
            prop_assert_eq!(&whole[..before.len()], &before[..]);
        }

        /// Any one damaged bit of a header with a digest ends the connection, and no PDU is believed.
        #[test]
        fn a_damaged_header_ends_the_connection(bit in 0_usize..28 * 8, transfer_tag: u16) {
            let parameters = parameters(DigestOptions::HEADER, Alignment::DWORD);
            let writer = Writer { header_digest: true, ..Writer::default() };
            let h2c = H2cData { cid: 1, transfer_tag, offset: 0, length: 8, last: true };
            let sent = Sent { pdu: Pdu::H2cData(h2c), data: vec![5; 8], damage: false };
            let mut bytes = write(&writer, &sent);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let seen = read(established(Side::Controller, parameters), &bytes, &[bytes.len()]);
            if bytes[0] == PduType::H2cTermination.value() {
                // One bit away from H2CTermReq, which has no digest and ends the connection too.
                prop_assert!(matches!(seen[..], [] | [Seen::Pdu(Pdu::Termination(_))]));
                return Ok(());
            }
            prop_assert!(matches!(seen[..], [Seen::Error(FramingError::Terminate(_))]));
            // Bits of the fields that say where the digest is are judged before it.
            if bit / 8 >= 8 {
                let digest = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
                let error = Termination::header_digest_error(digest);
                prop_assert_eq!(&seen[0], &Seen::Error(error.into()));
            }
        }
    }

    /// PDUs with data, each twice: the second header is one that is known.
    fn twice_with_data() -> [(Side, Sent); 3] {
        let data = vec![1, 2, 3, 4, 5];
        let length = data.len() as u32;
        let (cid, offset, last) = (1, 0, true);
        let capsule = CapsuleCommand {
            sqe: Sqe::default(),
            data_length: length,
        };
        let to_controller = H2cData {
            cid,
            transfer_tag: 2,
            offset,
            length,
            last,
        };
        let to_host = C2hData {
            cid,
            offset,
            length,
            last,
            success: true,
        };
        [
            (Side::Controller, Pdu::CapsuleCommand(capsule)),
            (Side::Controller, Pdu::H2cData(to_controller)),
            (Side::Host, Pdu::C2hData(to_host)),
        ]
        .map(|(side, pdu)| {
            let (data, damage) = (data.clone(), false);
            (side, Sent { pdu, data, damage })
        })
    }

    /// Not by chance, as above: three pieces, cut at every two places, some of them empty.
    #[test]
    fn data_is_read_the_same_at_every_two_cuts() {
        for ((side, sent), digests) in twice_with_data()
            .iter()
            .flat_map(|of| [0, 1, 2, 3].map(|digests| (of, digests)))
        {
            for alignment in [Alignment::DWORD, Alignment::from_wire(7).expect("in range")] {
                let parameters = parameters(DigestOptions(digests), alignment);
                let ReceiveParameters {
                    header_digest,
                    data_digest,
                    ..
                } = parameters;
                let writer = Writer {
                    header_digest,
                    data_digest,
                    alignment,
                };
                let bytes = write(&writer, sent).repeat(2);
                let expected = vec![expected(&writer, sent); 2].concat();
                let reader = established(*side, parameters);
                for second in 0..=bytes.len() {
                    for first in 0..=second {
                        let pieces = [first, second - first, bytes.len()];
                        assert_eq!(
                            read(reader.clone(), &bytes, &pieces),
                            expected,
                            "{pieces:?}"
                        );
                    }
                }
            }
        }
    }

    fn first_error(reader: Reader, bytes: &[u8]) -> FramingError {
        match read(reader, bytes, &[bytes.len()]).last() {
            Some(Seen::Error(error)) => *error,
            other => panic!("{other:?}"),
        }
    }

    /// ICReq as a Linux host sends it: both digests, one R2T.
    #[test]
    fn a_linux_request_is_read() {
        let mut bytes = vec![0x00, 0x00, 0x80, 0x00, 0x80, 0x00, 0x00, 0x00];
        bytes.extend([0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00]);
        bytes.resize(128, 0);
        let expected = InitializeRequest::new(DigestOptions(3));
        for piece in [1, 7, 128] {
            let seen = read(Reader::new(Side::Controller), &bytes, &[piece]);
            assert_eq!(seen, [Seen::Pdu(Pdu::InitializeRequest(expected))]);
        }
    }

    #[test]
    fn the_handshake_comes_first_and_once() {
        let request = InitializeRequest::new(DigestOptions::NONE).encode();
        let plain = parameters(DigestOptions::NONE, Alignment::DWORD);
        let again = first_error(established(Side::Controller, plain), &request);
        assert_eq!(again, Termination::sequence_error().into());
        let capsule = [4, 0, 72, 0, 72, 0, 0, 0];
        let early = first_error(Reader::new(Side::Controller), &capsule);
        assert_eq!(early, Termination::sequence_error().into());
        let response = [5, 0, 24, 0, 24, 0, 0, 0];
        let early = first_error(Reader::new(Side::Host), &response);
        assert_eq!(early, Termination::sequence_error().into());
        // What cannot come in this direction at all is a wrong field, not a wrong order.
        let backwards = first_error(Reader::new(Side::Controller), &response);
        assert_eq!(backwards, Termination::invalid_field(0).into());
        let hello = first_error(
            Reader::new(Side::Controller),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        );
        assert_eq!(hello, Termination::invalid_field(0).into());
    }

    #[test]
    fn a_bad_request_is_refused_by_its_field() {
        let request = InitializeRequest::new(DigestOptions::NONE).encode();
        for (byte, value, error) in [
            (2, 127, Termination::invalid_field(2)),
            (4, 129, Termination::invalid_field(4)),
            (8, 1, Termination::unsupported_parameter(8)),
            (10, 32, Termination::invalid_field(10)),
        ] {
            let mut bytes = request;
            bytes[byte] = value;
            assert_eq!(
                first_error(Reader::new(Side::Controller), &bytes),
                error.into()
            );
        }
    }

    #[test]
    fn data_lengths_are_held_to_the_limits() {
        let plain = parameters(DigestOptions::NONE, Alignment::DWORD);
        let header = |length: u32, plen: u32| {
            let mut bytes = vec![6, 4, 24, 24];
            bytes.extend(plen.to_le_bytes());
            bytes.extend([1, 0, 2, 0, 0, 0, 0, 0]);
            bytes.extend(length.to_le_bytes());
            bytes.extend([0; 4]);
            bytes
        };
        let error = |bytes: &[u8]| first_error(established(Side::Controller, plain), bytes);
        assert_eq!(error(&header(0, 32)), Termination::invalid_field(16).into());
        assert_eq!(error(&header(9, 32)), Termination::invalid_field(4).into());
        assert_eq!(error(&header(8, 24)), Termination::invalid_field(4).into());
        let most = MAXIMUM_DATA;
        assert_eq!(
            error(&header(most + 1, 24 + most + 1)),
            Termination::limit_exceeded().into()
        );
        let seen = read(
            established(Side::Controller, plain),
            &header(most, 24 + most),
            &[100],
        );
        assert!(matches!(seen[..], [Seen::Pdu(Pdu::H2cData(_))]));

        let capsule = |data: u32| {
            let mut bytes = vec![4, 0, 72, 72];
            bytes.extend((72 + data).to_le_bytes());
            bytes.extend([0; 64]);
            bytes
        };
        assert_eq!(error(&capsule(8193)), Termination::invalid_field(4).into());
        let seen = read(established(Side::Controller, plain), &capsule(8192), &[100]);
        assert!(matches!(seen[..], [Seen::Pdu(Pdu::CapsuleCommand(_))]));
    }

    #[test]
    fn a_termination_is_read_in_every_state_and_ends_the_stream() {
        let mut buffer = [0; TERMINATION_SIZE_MAX];
        let fault = Termination::invalid_field(2);
        let length = encode_termination(Side::Host, &fault, &[9; 24], &mut buffer);
        let bytes = &buffer[..length];
        let digests = parameters(DigestOptions(3), Alignment::DWORD);
        for reader in [
            Reader::new(Side::Controller),
            established(Side::Controller, digests),
        ] {
            let mut reader = reader;
            let mut seen = vec![];
            drain(&mut reader, bytes, &mut seen).expect("well formed");
            let request = TerminationRequest {
                status: FatalErrorStatus::InvalidPduHeaderField,
                information: 2,
            };
            assert_eq!(seen, [Seen::Pdu(Pdu::Termination(request))]);
            assert_eq!(reader.termination_data(), [9; 24]);
            assert!(!reader.is_established());
            assert_eq!(reader.feed(&[0]), Err(CloseReason::AfterTermination.into()));
        }
        for length in [24_u32, 153, u32::MAX] {
            let mut bytes = [0; 24];
            bytes[..4].copy_from_slice(&[2, 0, 24, 0]);
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            let error = first_error(established(Side::Controller, digests), &bytes);
            assert_eq!(
                error,
                CloseReason::MalformedTermination {
                    header_length: 24,
                    length
                }
                .into()
            );
        }
    }

    #[test]
    fn the_header_at_fault_is_kept_for_the_termination() {
        let plain = parameters(DigestOptions::NONE, Alignment::DWORD);
        let mut reader = established(Side::Controller, plain);
        let r2t = H2cData {
            cid: 1,
            transfer_tag: 2,
            offset: 0,
            length: 4,
            last: true,
        };
        let mut bytes = vec![0; HEADER_SIZE_MAX];
        let length = Writer::default().h2c_data(&mut bytes, &r2t);
        bytes.truncate(length);
        assert!(!reader.is_inside_pdu());
        let mut seen = vec![];
        drain(&mut reader, &bytes[..5], &mut seen).expect("well formed");
        assert!(reader.is_inside_pdu());
        assert_eq!(reader.header(), &bytes[..5]);
        drain(&mut reader, &bytes[5..], &mut seen).expect("well formed");
        drain(&mut reader, &[1, 2, 3, 4], &mut seen).expect("well formed");
        assert!(!reader.is_inside_pdu());
        assert_eq!(reader.header(), bytes);
        // A wrong header length is no reason to show more than came.
        let error = reader.feed(&[4, 0, 255, 0, 72, 0, 0, 0, 1]);
        assert_eq!(error, Err(Termination::invalid_field(2).into()));
        assert_eq!(reader.header(), [4, 0, 255, 0, 72, 0, 0, 0]);
    }

    #[test]
    fn a_damaged_header_is_told_with_its_digest() {
        let parameters = parameters(DigestOptions::HEADER, Alignment::DWORD);
        let mut bytes = vec![5, 1, 24, 0, 28, 0, 0, 0];
        bytes.extend([0; 16]);
        bytes.extend([0x44, 0x33, 0x22, 0x11]);
        let error = first_error(established(Side::Host, parameters), &bytes);
        assert_eq!(error, Termination::header_digest_error(0x1122_3344).into());
    }

    #[test]
    fn the_reader_says_what_it_wants() {
        let parameters = parameters(
            DigestOptions(3),
            Alignment::from_wire(31).expect("in range"),
        );
        let mut reader = established(Side::Controller, parameters);
        let writer = Writer {
            header_digest: true,
            data_digest: true,
            alignment: parameters.alignment,
        };
        let pdu = H2cData {
            cid: 1,
            transfer_tag: 2,
            offset: 0,
            length: 4,
            last: true,
        };
        let sent = Sent {
            pdu: Pdu::H2cData(pdu),
            data: vec![1, 2, 3, 4],
            damage: false,
        };
        let bytes = write(&writer, &sent);
        let mut wanted = vec![];
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let now = reader.wanted();
            wanted.push(now);
            let length = match now {
                Wanted::Header(length) | Wanted::DataDigest(length) => length,
                Wanted::Data(length) => length as usize,
                Wanted::Event => 0,
            };
            let fed = reader.feed(&rest[..length]).expect("well formed");
            assert_eq!(fed.consumed, length);
            rest = &rest[length..];
        }
        assert_eq!(
            wanted,
            [
                Wanted::Header(8),
                Wanted::Header(20),
                Wanted::Header(100),
                Wanted::Data(4),
                Wanted::DataDigest(4),
            ]
        );
        assert_eq!(reader.wanted(), Wanted::Header(8));
    }

    #[test]
    #[should_panic(expected = "followed by establish")]
    fn feeding_on_without_negotiating_is_a_bug() {
        let mut reader = Reader::new(Side::Controller);
        let request = InitializeRequest::new(DigestOptions::NONE).encode();
        reader.feed(&request).expect("well formed");
        let _ = reader.feed(&[4]);
    }

    #[test]
    #[should_panic(expected = "5 bytes were received where 4 are data")]
    fn more_data_than_was_announced_is_a_bug() {
        let plain = parameters(DigestOptions::NONE, Alignment::DWORD);
        let mut reader = established(Side::Controller, plain);
        let mut bytes = vec![0; HEADER_SIZE_MAX];
        let pdu = H2cData {
            cid: 1,
            transfer_tag: 2,
            offset: 0,
            length: 4,
            last: true,
        };
        let length = Writer::default().h2c_data(&mut bytes, &pdu);
        reader.feed(&bytes[..length]).expect("well formed");
        reader.data_received(&[0; 5]);
    }

    #[test]
    fn the_state_of_a_reader_is_small() {
        assert!(size_of::<Reader>() <= 512, "{}", size_of::<Reader>());
    }
}
