//! The receiving half of a connection: bytes in, in pieces of any size; PDUs, data and digest verdicts out (RFC 7143 section 11.2).
//!
//! A reader holds one header at most and allocates nothing. Data is never held here: the reader says which bytes are data, and the
//! caller has them where it wants them.

use crate::pdu::{
    ADDITIONAL_HEADERS_SIZE_MAX, AdditionalError, AdditionalHeaders, AdditionalSummary,
    BASIC_HEADER_SIZE, BasicHeader, CommonHeader, Opcode, Pdu, Side,
};
use crate::wire::array_at;
use crate::writer::padding_length;
use thiserror::Error;
use weir_digest::{DIGEST_LENGTH, DataDigest, Digest};

/// Room for the longest header with its digest.
const BUFFER_SIZE: usize = BASIC_HEADER_SIZE + ADDITIONAL_HEADERS_SIZE_MAX + DIGEST_LENGTH;

/// Bytes of data that a PDU may have during login: the default of MaxRecvDataSegmentLength (section 13.12).
pub const LOGIN_DATA_SEGMENT_MAX: u32 = 8192;

/// Event of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A header, checked. Where [`Pdu::data_length`] is not 0 its data comes next.
    Pdu(Pdu),
    /// The bytes that this call consumed are data of the last PDU, from `offset` of its data on.
    Data {
        /// Bytes of this PDU's data before these.
        offset: u32,
    },
    /// All data of the last PDU was received, with its padding. Not sent for a PDU without data.
    DataEnd {
        /// Verdict of its digest. A wrong data digest concerns this PDU alone.
        digest: DataDigest,
    },
}

/// Result of [`Reader::feed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes taken from the start of the input.
    pub consumed: usize,
    /// The event; `None` when all input was taken and nothing is complete.
    pub event: Option<Event>,
}

/// Meaning of the next bytes, for a caller that receives them to a place of its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Header or header digest: at least this many more bytes.
    Header(usize),
    /// Exactly this many more bytes of the PDU's data.
    Data(u32),
    /// Exactly this many more bytes of padding and data digest.
    Trailer(usize),
    /// Nothing: an event is ready, [`Reader::feed`] it no bytes.
    Event,
}

/// Parameters agreed for the PDUs that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveParameters {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength that this side declared, in bytes.
    pub data_segment_max: u32,
}

impl ReceiveParameters {
    /// Those of the login phase.
    pub const LOGIN: Self = Self {
        header_digest: false,
        data_digest: false,
        data_segment_max: LOGIN_DATA_SEGMENT_MAX,
    };
}

/// A stream of bytes that goes on in no way: the connection must end (section 7.7 and 7.8, at error recovery level 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FramingError {
    /// The header digest differs.
    #[error("header digest {received:#010x} received, {computed:#010x} computed")]
    HeaderDigest {
        /// Digest that was received.
        received: u32,
        /// Digest of the header that was received.
        computed: u32,
    },
    /// A PDU that goes the other way.
    #[error("{opcode} came from the wrong side")]
    WrongDirection {
        /// Its opcode.
        opcode: Opcode,
    },
    /// A PDU that is not of the login before the login's end.
    #[error("{opcode} came before the login ended")]
    BeforeLogin {
        /// Its opcode.
        opcode: Opcode,
    },
    /// A login PDU after the login's end.
    #[error("{opcode} came after the login ended")]
    AfterLogin {
        /// Its opcode.
        opcode: Opcode,
    },
    /// More data than MaxRecvDataSegmentLength.
    #[error("{opcode} has {length} bytes of data, more than MaxRecvDataSegmentLength {maximum}")]
    DataTooLong {
        /// The PDU's opcode.
        opcode: Opcode,
        /// DataSegmentLength.
        length: u32,
        /// MaxRecvDataSegmentLength.
        maximum: u32,
    },
    /// Additional Header Segments in a PDU that has none.
    #[error("{opcode} has {length} bytes of additional headers")]
    UnexpectedAdditional {
        /// The PDU's opcode.
        opcode: Opcode,
        /// Their bytes.
        length: u32,
    },
    /// Additional Header Segments that cannot be.
    #[error("SCSI Command: {0}")]
    Additional(#[from] AdditionalError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Login,
    FullFeature,
    /// The connection must end.
    Failed(FramingError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The basic header.
    Basic,
    /// The rest of the header and its digest, up to this many bytes.
    Header { end: usize },
    /// Data; `received` bytes so far.
    Data { received: u32 },
    /// Padding and data digest; this many bytes of them so far.
    Trailer {
        bytes: [u8; DIGEST_LENGTH],
        filled: usize,
    },
}

/// Reads the PDUs of one side of a connection.
///
/// Call [`Reader::feed`] with received bytes until it returns no event; bytes that it did not consume are fed again after the event is
/// handled. When the login ended, call [`Reader::establish`] before feeding on. While [`Reader::wanted`] is [`Wanted::Data`], data
/// may instead be received straight into its place and reported by [`Reader::data_received`].
///
/// An error is final: every later call returns the same.
#[derive(Debug, Clone)]
pub struct Reader {
    side: Side,
    parameters: ReceiveParameters,
    phase: Phase,
    stage: Stage,
    /// The buffer holds a whole header, which was right.
    held: bool,
    /// Bytes of the current PDU's data.
    data_length: u32,
    /// Header bytes of the current PDU, with the header digest.
    filled: usize,
    data_digest: Digest,
    buffer: [u8; BUFFER_SIZE],
}

impl Reader {
    /// The reader of a connection that was just made.
    pub const fn new(side: Side) -> Self {
        Self {
            side,
            parameters: ReceiveParameters::LOGIN,
            phase: Phase::Login,
            stage: Stage::Basic,
            held: false,
            data_length: 0,
            filled: 0,
            data_digest: Digest::new(),
            buffer: [0; BUFFER_SIZE],
        }
    }

    /// Goes on with what the login agreed. A target calls it before it sends the final Login Response, an initiator when it has it.
    ///
    /// Panics inside a PDU, or after an error.
    pub fn establish(&mut self, parameters: ReceiveParameters) {
        assert!(!self.is_inside_pdu(), "parameters change between PDUs");
        assert!(
            !matches!(self.phase, Phase::Failed(_)),
            "the connection must end"
        );
        self.parameters = parameters;
        self.phase = Phase::FullFeature;
    }

    /// Changes MaxRecvDataSegmentLength, which may be declared anew after the login (section 13.12). The peer may not know of it
    /// yet: only a larger one is safe.
    pub const fn set_data_segment_max(&mut self, maximum: u32) {
        self.parameters.data_segment_max = maximum;
    }

    /// Returns whether the login ended and the stream went on without an error.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::FullFeature
    }

    /// Returns whether a PDU has begun and is not complete.
    #[inline]
    pub fn is_inside_pdu(&self) -> bool {
        self.stage != Stage::Basic || !self.held && self.filled > 0
    }

    /// The header of the current or last PDU as far as it was received, with its Additional Header Segments and without its digest:
    /// what a Reject carries. Empty before the first byte.
    pub fn header(&self) -> &[u8] {
        let length = match self.buffer[..self.filled].first_chunk() {
            Some(basic) => BASIC_HEADER_SIZE + CommonHeader::read(basic).additional_length as usize,
            None => self.filled,
        };
        &self.buffer[..length.min(self.filled)]
    }

    /// The Additional Header Segments of the last PDU.
    pub fn additional(&self) -> AdditionalHeaders<'_> {
        AdditionalHeaders::new(self.header().get(BASIC_HEADER_SIZE..).unwrap_or_default())
    }

    /// Meaning of the next bytes.
    #[inline]
    pub fn wanted(&self) -> Wanted {
        match self.stage {
            Stage::Basic if self.held => Wanted::Header(BASIC_HEADER_SIZE),
            Stage::Basic => Wanted::Header(BASIC_HEADER_SIZE - self.filled),
            Stage::Header { end } => Wanted::Header(end - self.filled),
            Stage::Data { received } if received < self.data_length => {
                Wanted::Data(self.data_length - received)
            }
            Stage::Data { .. } => match self.trailer_length() {
                0 => Wanted::Event,
                length => Wanted::Trailer(length),
            },
            Stage::Trailer { filled, .. } => Wanted::Trailer(self.trailer_length() - filled),
        }
    }

    /// Returns whether the digest of data must be computed, so that [`Reader::data_received`] needs its bytes.
    #[inline]
    pub const fn has_data_digest(&self) -> bool {
        self.parameters.data_digest
    }

    /// Takes bytes up to the next event.
    ///
    /// # Errors
    /// The connection must end; every later call returns the same.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Fed, FramingError> {
        match self.stage {
            Stage::Basic if matches!(self.phase, Phase::FullFeature) => {
                if let Some(header) = self.whole_header(bytes) {
                    return self.read_at_once(header);
                }
            }
            Stage::Data { received } => {
                if let Some(fed) = self.read_data(bytes, received) {
                    return Ok(fed);
                }
            }
            _ => {}
        }
        self.feed_in_steps(bytes)
    }

    /// Takes bytes as [`Reader::feed`] does, where they do not come in one piece, or are of the login.
    #[inline(never)]
    fn feed_in_steps(&mut self, bytes: &[u8]) -> Result<Fed, FramingError> {
        if let Phase::Failed(error) = self.phase {
            return Err(error);
        }
        let mut consumed = 0;
        loop {
            let (taken, step) = self.step(&bytes[consumed..]).inspect_err(|error| {
                self.phase = Phase::Failed(*error);
            })?;
            consumed += taken;
            let event = match step {
                Step::Event(event) => Some(event),
                Step::More => None,
                Step::Next => continue,
            };
            return Ok(Fed { consumed, event });
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

    /// Reports data as [`Reader::data_received`] does, without showing the bytes.
    ///
    /// Panics where they are more than [`Wanted::Data`] says, or [`Reader::has_data_digest`].
    #[inline]
    pub fn data_received_unseen(&mut self, length: usize) {
        assert!(!self.has_data_digest(), "the digest needs the data's bytes");
        self.count_data(length);
    }

    /// Takes the end of a PDU's data in place of [`Event::DataEnd`], where all of it was received and neither padding nor a digest
    /// follows. Returns whether that is so.
    #[inline]
    pub fn end_data_without_trailer(&mut self) -> bool {
        let ends = matches!(self.stage, Stage::Data { received } if received == self.data_length)
            && self.trailer_length() == 0;
        if ends {
            self.stage = Stage::Basic;
        }
        ends
    }

    #[inline]
    fn count_data(&mut self, length: usize) {
        let Stage::Data { received } = &mut self.stage else {
            panic!("no data is expected")
        };
        let left = self.data_length - *received;
        assert!(
            length <= left as usize,
            "{length} bytes were received where {left} are data"
        );
        *received += length as u32;
    }

    /// Bytes of padding and digest after the current PDU's data, which it has.
    #[inline]
    const fn trailer_length(&self) -> usize {
        let digest = if self.parameters.data_digest {
            DIGEST_LENGTH
        } else {
            0
        };
        padding_length(self.data_length) + digest
    }

    /// The basic header that `bytes` begin with, and how long it is with its digest: where all of it is there, and it has no
    /// Additional Header Segments.
    #[inline]
    fn whole_header(&self, bytes: &[u8]) -> Option<WholeHeader> {
        let between = self.held || self.filled == 0;
        let header: &BasicHeader = bytes.first_chunk().filter(|_| between)?;
        if CommonHeader::read(header).additional_length > 0 {
            return None;
        }
        let digest = if self.parameters.header_digest {
            Some(bytes[BASIC_HEADER_SIZE..].first_chunk().copied()?)
        } else {
            None
        };
        Some(WholeHeader {
            header: *header,
            digest,
        })
    }

    /// A header in one piece: all of the stages before its event.
    #[inline]
    fn read_at_once(&mut self, whole: WholeHeader) -> Result<Fed, FramingError> {
        let WholeHeader { header, digest } = whole;
        self.held = false;
        self.buffer[..BASIC_HEADER_SIZE].copy_from_slice(&header);
        self.filled = BASIC_HEADER_SIZE;
        let mut consumed = BASIC_HEADER_SIZE;
        if let Some(received) = digest {
            consumed += DIGEST_LENGTH;
            if let Err(error) = check_digest(&header, received) {
                return Err(self.fail(error));
            }
        }
        if let Err(error) = self.check(&CommonHeader::read(&header)) {
            return Err(self.fail(error));
        }
        self.held = true;
        let pdu = Pdu::read(&header);
        self.expect_data();
        let event = Some(Event::Pdu(pdu));
        Ok(Fed { consumed, event })
    }

    #[cold]
    fn fail(&mut self, error: FramingError) -> FramingError {
        self.phase = Phase::Failed(error);
        error
    }

    /// One stage's worth of input. Never that of data: [`Reader::feed`] takes it first.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, Step), FramingError> {
        match self.stage {
            Stage::Basic => self.read_basic(bytes),
            Stage::Header { end } => self.read_header(bytes, end),
            Stage::Data { .. } => unreachable!("data is taken before the steps"),
            Stage::Trailer {
                bytes: digest,
                filled,
            } => Ok(self.read_trailer(bytes, digest, filled)),
        }
    }

    fn read_basic(&mut self, bytes: &[u8]) -> Result<(usize, Step), FramingError> {
        if bytes.is_empty() {
            return Ok((0, Step::More));
        }
        if self.held {
            // The last PDU's header was kept for a Reject until now.
            self.held = false;
            self.filled = 0;
        }
        let taken = self.fill(bytes, BASIC_HEADER_SIZE);
        if self.filled < BASIC_HEADER_SIZE {
            return Ok((taken, Step::More));
        }
        let common = CommonHeader::read(&array_at(&self.buffer, 0));
        // With a digest a damaged header is told from a wrong one when all of it is there.
        if !self.parameters.header_digest {
            self.check(&common)?;
        }
        let end = BASIC_HEADER_SIZE + common.additional_length as usize + self.header_digest();
        self.stage = Stage::Header { end };
        Ok((taken, Step::Next))
    }

    fn read_header(&mut self, bytes: &[u8], end: usize) -> Result<(usize, Step), FramingError> {
        let taken = self.fill(bytes, end);
        if self.filled < end {
            return Ok((taken, Step::More));
        }
        let header_end = end - self.header_digest();
        let header = array_at(&self.buffer, 0);
        if self.parameters.header_digest {
            check_digest(
                &self.buffer[..header_end],
                array_at(&self.buffer, header_end),
            )?;
        }
        self.check(&CommonHeader::read(&header))?;
        let mut pdu = Pdu::read(&header);
        if let Pdu::ScsiCommand(command) = &mut pdu {
            command.additional =
                AdditionalSummary::read(&self.buffer[BASIC_HEADER_SIZE..header_end])?;
        }
        self.held = true;
        self.expect_data();
        Ok((taken, Step::Event(Event::Pdu(pdu))))
    }

    const fn header_digest(&self) -> usize {
        if self.parameters.header_digest {
            DIGEST_LENGTH
        } else {
            0
        }
    }

    #[inline]
    fn expect_data(&mut self) {
        self.data_length = CommonHeader::read(&array_at(&self.buffer, 0)).data_length;
        self.stage = match self.data_length {
            0 => Stage::Basic,
            _ => Stage::Data { received: 0 },
        };
        self.data_digest = Digest::new();
    }

    /// Data, or its end; none when padding or its digest is next.
    #[inline]
    fn read_data(&mut self, bytes: &[u8], received: u32) -> Option<Fed> {
        let left = self.data_length - received;
        let consumed = bytes.len().min(left as usize);
        if left > 0 {
            let event = (consumed > 0).then(|| {
                self.data_received(&bytes[..consumed]);
                Event::Data { offset: received }
            });
            return Some(Fed { consumed, event });
        }
        if self.trailer_length() > 0 {
            self.stage = Stage::Trailer {
                bytes: [0; DIGEST_LENGTH],
                filled: 0,
            };
            return None;
        }
        let event = Some(self.end_data(DataDigest::Absent));
        Some(Fed { consumed, event })
    }

    fn read_trailer(
        &mut self,
        bytes: &[u8],
        mut digest: [u8; DIGEST_LENGTH],
        filled: usize,
    ) -> (usize, Step) {
        let padding = padding_length(self.data_length);
        let length = self.trailer_length();
        let taken = bytes.len().min(length - filled);
        // Padding is part of what the digest covers.
        let (pad, rest) = bytes[..taken].split_at(padding.saturating_sub(filled).min(taken));
        if self.has_data_digest() {
            self.data_digest.update(pad);
        }
        let start = (filled + pad.len()).saturating_sub(padding);
        digest[start..start + rest.len()].copy_from_slice(rest);
        let filled = filled + taken;
        if filled < length {
            self.stage = Stage::Trailer {
                bytes: digest,
                filled,
            };
            return (taken, Step::More);
        }
        let verdict = self.judge_data(digest);
        (taken, Step::Event(self.end_data(verdict)))
    }

    fn judge_data(&self, digest: [u8; DIGEST_LENGTH]) -> DataDigest {
        if !self.has_data_digest() {
            return DataDigest::Absent;
        }
        DataDigest::judge(self.data_digest, digest)
    }

    fn end_data(&mut self, digest: DataDigest) -> Event {
        self.stage = Stage::Basic;
        Event::DataEnd { digest }
    }

    /// Adds to the header up to `end` bytes; returns how many were taken.
    fn fill(&mut self, bytes: &[u8], end: usize) -> usize {
        let taken = bytes.len().min(end - self.filled);
        self.buffer[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        taken
    }

    /// Checks direction, phase and lengths.
    #[inline]
    fn check(&self, common: &CommonHeader) -> Result<(), FramingError> {
        let opcode = common.opcode;
        if opcode.is_request() != (self.side == Side::Target) {
            return Err(FramingError::WrongDirection { opcode });
        }
        let login = matches!(opcode, Opcode::LoginRequest | Opcode::LoginResponse);
        // Targets reject a login, too, by a Reject.
        let may_end_login = login || opcode == Opcode::Reject;
        if self.phase == Phase::Login && !may_end_login {
            return Err(FramingError::BeforeLogin { opcode });
        }
        if self.phase == Phase::FullFeature && login {
            return Err(FramingError::AfterLogin { opcode });
        }
        if common.data_length > self.parameters.data_segment_max {
            return Err(FramingError::DataTooLong {
                opcode,
                length: common.data_length,
                maximum: self.parameters.data_segment_max,
            });
        }
        let length = common.additional_length;
        let may_have_additional =
            matches!(opcode, Opcode::ScsiCommand | Opcode::Other(_)) || length == 0;
        if !may_have_additional {
            return Err(FramingError::UnexpectedAdditional { opcode, length });
        }
        Ok(())
    }
}

/// A header in one piece.
struct WholeHeader {
    header: BasicHeader,
    digest: Option<[u8; DIGEST_LENGTH]>,
}

#[inline]
fn check_digest(header: &[u8], received: [u8; DIGEST_LENGTH]) -> Result<(), FramingError> {
    let received = u32::from_le_bytes(received);
    let computed = Digest::of(header).value();
    if received == computed {
        Ok(())
    } else {
        Err(FramingError::HeaderDigest { received, computed })
    }
}

/// End of a step.
enum Step {
    Event(Event),
    /// All input was taken.
    More,
    /// A stage ended; the next may take input.
    Next,
}

#[cfg(test)]
mod tests;
