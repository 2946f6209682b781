//! The bytes of iSCSI PDUs as the suite needs them: well-formed headers to damage, and answers taken apart (RFC 7143, section 11).
//!
//! Nothing here is shared with the parsers of Weir.

use weir_digest::Digest;

/// Bytes of a Basic Header Segment.
pub const HEADER: usize = 48;
/// A tag that stands for none.
pub const NO_TAG: u32 = u32::MAX;
/// The bit of a request that is delivered at once.
pub const IMMEDIATE: u8 = 0x40;
/// F of byte 1.
pub const FINAL: u8 = 0x80;
/// R of byte 1 of a SCSI Command.
pub const READ: u8 = 0x40;
/// W of byte 1 of a SCSI Command.
pub const WRITE: u8 = 0x20;
/// C of byte 1 of a Login or Text Request.
pub const CONTINUE: u8 = 0x40;
/// S of byte 1 of a Data-In.
const HAS_STATUS: u8 = 0x01;

/// Offsets of fields.
pub mod at {
    /// F and what depends on the opcode.
    pub const FLAGS: usize = 1;
    /// TotalAHSLength, in words.
    pub const ADDITIONAL: usize = 4;
    /// DataSegmentLength, of three bytes.
    pub const DATA_LENGTH: usize = 5;
    /// LUN, or ISID and TSIH.
    pub const LUN: usize = 8;
    /// TSIH of a login.
    pub const TSIH: usize = 14;
    /// Initiator Task Tag.
    pub const ITT: usize = 16;
    /// Target Transfer Tag, or what depends on the opcode.
    pub const TTT: usize = 20;
    /// Expected Data Transfer Length of a SCSI Command.
    pub const EXPECTED: usize = 20;
    /// CmdSN.
    pub const CMD_SN: usize = 24;
    /// ExpStatSN.
    pub const EXP_STAT_SN: usize = 28;
    /// CDB of a SCSI Command.
    pub const CDB: usize = 32;
    /// DataSN.
    pub const DATA_SN: usize = 36;
    /// Buffer Offset.
    pub const BUFFER_OFFSET: usize = 40;
}

/// Opcodes of requests.
pub mod opcode {
    /// NOP-Out.
    pub const NOP_OUT: u8 = 0x00;
    /// SCSI Command.
    pub const COMMAND: u8 = 0x01;
    /// Task Management Function Request.
    pub const MANAGEMENT: u8 = 0x02;
    /// Login Request.
    pub const LOGIN: u8 = 0x03;
    /// Text Request.
    pub const TEXT: u8 = 0x04;
    /// SCSI Data-Out.
    pub const DATA_OUT: u8 = 0x05;
    /// Logout Request.
    pub const LOGOUT: u8 = 0x06;
    /// SNACK Request.
    pub const SNACK: u8 = 0x10;
    /// NOP-In.
    pub const NOP_IN: u8 = 0x20;
    /// SCSI Response.
    pub const RESPONSE: u8 = 0x21;
    /// Task Management Function Response.
    pub const MANAGED: u8 = 0x22;
    /// Login Response.
    pub const LOGGED_IN: u8 = 0x23;
    /// Text Response.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// SCSI Data-In.
    pub const DATA_IN: u8 = 0x25;
    /// Logout Response.
    pub const LOGGED_OUT: u8 = 0x26;
    /// Ready To Transfer.
    pub const R2T: u8 = 0x31;
    /// Asynchronous Message.
    pub const ASYNC: u8 = 0x32;
    /// Reject.
    pub const REJECT: u8 = 0x3f;
}

/// Reasons of a Reject (section 11.17.1).
pub mod reason {
    /// Data (payload) digest error.
    pub const DATA_DIGEST: u8 = 0x02;
    /// SNACK Reject.
    pub const SNACK: u8 = 0x03;
    /// Protocol Error.
    pub const PROTOCOL: u8 = 0x04;
    /// Command not supported.
    pub const NOT_SUPPORTED: u8 = 0x05;
    /// Immediate command reject: too many immediate commands.
    pub const IMMEDIATE: u8 = 0x06;
    /// Task in progress.
    pub const IN_PROGRESS: u8 = 0x07;
    /// Invalid PDU field.
    pub const INVALID_FIELD: u8 = 0x09;
}

/// Digests that follow headers and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
}

/// Writes a number of four bytes.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Writes DataSegmentLength, or another number of three bytes.
pub fn put_u24(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 3].copy_from_slice(&value.to_be_bytes()[1..]);
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    u32::from_be_bytes(four)
}

fn get_u24(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) << 16 | usize::from(bytes[at + 1]) << 8 | usize::from(bytes[at + 2])
}

/// Bytes up to a multiple of four.
fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A logical unit's number as SAM has it: by peripheral device addressing below 256, and by flat space addressing from there on.
pub fn lun(number: u16) -> [u8; 8] {
    let method = if number < 256 { 0 } else { 0x40 };
    let [high, low] = number.to_be_bytes();
    [high | method, low, 0, 0, 0, 0, 0, 0]
}

/// A request: its header, whose fields are written by offset, what stands between header and data, and its data.
#[derive(Debug, Clone)]
pub struct Request {
    /// The Basic Header Segment. DataSegmentLength and TotalAHSLength are written when it is encoded.
    pub header: [u8; HEADER],
    /// Additional Header Segments, whole words.
    pub additional: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

impl Request {
    /// A request of this opcode, final, with an Initiator Task Tag, no LUN and no data.
    pub fn new(opcode: u8, itt: u32) -> Self {
        let mut header = [0; HEADER];
        header[0] = opcode;
        header[at::FLAGS] = FINAL;
        put_u32(&mut header, at::ITT, itt);
        Self {
            header,
            additional: Vec::new(),
            data: Vec::new(),
        }
    }

    /// The same, delivered at once.
    #[must_use]
    pub fn immediate(mut self) -> Self {
        self.header[0] |= IMMEDIATE;
        self
    }

    /// The same for a logical unit.
    #[must_use]
    pub fn on(mut self, lun: [u8; 8]) -> Self {
        self.header[at::LUN..at::LUN + 8].copy_from_slice(&lun);
        self
    }

    /// The same with another byte in its header.
    #[must_use]
    pub fn with(mut self, at: usize, value: u8) -> Self {
        self.header[at] = value;
        self
    }

    /// The same with a number in its header.
    #[must_use]
    pub fn with_u32(mut self, at: usize, value: u32) -> Self {
        put_u32(&mut self.header, at, value);
        self
    }

    /// The same with data.
    #[must_use]
    pub fn carrying(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self
    }

    /// The same with Additional Header Segments.
    #[must_use]
    pub fn with_additional(mut self, additional: &[u8]) -> Self {
        self.additional = additional.to_vec();
        self
    }

    /// The Initiator Task Tag.
    pub fn itt(&self) -> u32 {
        get_u32(&self.header, at::ITT)
    }

    /// Its bytes, with padding and digests.
    pub fn encode(&self, format: Format) -> Vec<u8> {
        self.encode_as(format, self.data.len() as u32)
    }

    /// Its bytes, with a DataSegmentLength that may be wrong.
    pub fn encode_as(&self, format: Format, data_length: u32) -> Vec<u8> {
        let mut bytes = self.header.to_vec();
        put_u24(&mut bytes, at::DATA_LENGTH, data_length);
        if !self.additional.is_empty() {
            bytes[at::ADDITIONAL] = (self.additional.len() / 4) as u8;
            bytes.extend_from_slice(&self.additional);
        }
        if format.header_digest {
            let digest = Digest::of(&bytes).value();
            bytes.extend(digest.to_le_bytes());
        }
        let start = bytes.len();
        bytes.extend_from_slice(&self.data);
        bytes.resize(start + padded(self.data.len()), 0);
        if format.data_digest && !self.data.is_empty() {
            let digest = Digest::of(&bytes[start..]).value();
            bytes.extend(digest.to_le_bytes());
        }
        bytes
    }
}

/// An answer of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    header: [u8; HEADER],
    /// Its data.
    pub data: Vec<u8>,
}

impl Reply {
    /// The opcode.
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// Byte 1.
    pub fn flags(&self) -> u8 {
        self.header[at::FLAGS]
    }

    /// Byte 2: a response code, or a Reject's reason.
    pub fn code(&self) -> u8 {
        self.header[2]
    }

    /// Byte 3: a SCSI status.
    pub fn status(&self) -> u8 {
        self.header[3]
    }

    /// Initiator Task Tag.
    pub fn itt(&self) -> u32 {
        get_u32(&self.header, at::ITT)
    }

    /// Target Transfer Tag.
    pub fn ttt(&self) -> u32 {
        get_u32(&self.header, at::TTT)
    }

    /// StatSN.
    pub fn stat_sn(&self) -> u32 {
        get_u32(&self.header, 24)
    }

    /// ExpCmdSN.
    pub fn exp_cmd_sn(&self) -> u32 {
        get_u32(&self.header, 28)
    }

    /// MaxCmdSN.
    pub fn max_cmd_sn(&self) -> u32 {
        get_u32(&self.header, 32)
    }

    /// Buffer Offset of a Data-In or an R2T.
    pub fn offset(&self) -> u32 {
        get_u32(&self.header, 40)
    }

    /// Desired Data Transfer Length of an R2T; Residual Count of what has a status.
    pub fn last(&self) -> u32 {
        get_u32(&self.header, 44)
    }

    /// TSIH of a Login Response.
    pub fn tsih(&self) -> u16 {
        u16::from_be_bytes([self.header[at::TSIH], self.header[at::TSIH + 1]])
    }

    /// Status class and detail of a Login Response.
    pub fn login_status(&self) -> u16 {
        u16::from_be_bytes([self.header[36], self.header[37]])
    }

    /// Tells whether it has a SCSI status.
    pub fn has_status(&self) -> bool {
        match self.opcode() {
            opcode::RESPONSE => true,
            opcode::DATA_IN => self.flags() & HAS_STATUS != 0,
            _ => false,
        }
    }

    /// Tells whether it takes a StatSN of its own.
    pub fn is_numbered(&self) -> bool {
        match self.opcode() {
            opcode::R2T => false,
            opcode::DATA_IN => self.has_status(),
            opcode::NOP_IN => self.itt() != NO_TAG,
            _ => true,
        }
    }

    /// Sense key, and additional sense code with its qualifier, of a SCSI Response that has sense data (SPC-4, section 4.5).
    pub fn sense(&self) -> Option<(u8, u16)> {
        let sense = self.data.get(2..)?;
        match sense.first()? & 0x7f {
            0x70 | 0x71 => Some((
                sense.get(2)? & 0x0f,
                u16::from_be_bytes([*sense.get(12)?, *sense.get(13)?]),
            )),
            0x72 | 0x73 => Some((
                sense.get(1)? & 0x0f,
                u16::from_be_bytes([*sense.get(2)?, *sense.get(3)?]),
            )),
            _ => None,
        }
    }
}

/// Length of the PDU that bytes begin with, digests and padding included; none: not known yet.
///
/// # Errors
/// It cannot be an answer; why not.
pub fn length_of(bytes: &[u8], format: Format) -> Result<Option<usize>, String> {
    if bytes.len() < HEADER {
        return Ok(None);
    }
    if bytes[at::ADDITIONAL] != 0 {
        let words = bytes[at::ADDITIONAL];
        return Err(format!(
            "an answer with {words} words of additional headers"
        ));
    }
    let digest = |there: bool| if there { 4 } else { 0 };
    let data = get_u24(bytes, at::DATA_LENGTH);
    let data = match data {
        0 => 0,
        data => padded(data) + digest(format.data_digest),
    };
    Ok(Some(HEADER + digest(format.header_digest) + data))
}

/// Takes a whole PDU apart.
///
/// # Errors
/// It is no good answer; why not.
pub fn parse(bytes: &[u8], format: Format) -> Result<Reply, String> {
    let (header, mut rest) = bytes.split_at(HEADER);
    let opcode = header[0];
    let known = [
        opcode::NOP_IN,
        opcode::RESPONSE,
        opcode::MANAGED,
        opcode::LOGGED_IN,
        opcode::TEXT_RESPONSE,
        opcode::DATA_IN,
        opcode::LOGGED_OUT,
        opcode::R2T,
        opcode::ASYNC,
        opcode::REJECT,
    ];
    if !known.contains(&opcode) {
        return Err(format!("opcode {opcode:02x}h from a target"));
    }
    if format.header_digest {
        let (digest, after) = rest.split_at(4);
        check_digest("header", header, digest)?;
        rest = after;
    }
    let length = get_u24(header, at::DATA_LENGTH);
    if length > 0 {
        let (data, digest) = rest.split_at(padded(length));
        if data[length..].iter().any(|byte| *byte != 0) {
            return Err("padding that is not zero".into());
        }
        if format.data_digest {
            check_digest("data", data, digest)?;
        }
        rest = &data[..length];
    }
    Ok(Reply {
        header: header.try_into().expect("a whole header"),
        data: rest[..length].to_vec(),
    })
}

fn check_digest(what: &str, bytes: &[u8], digest: &[u8]) -> Result<(), String> {
    let computed = Digest::of(bytes).value().to_le_bytes();
    match digest == computed {
        true => Ok(()),
        false => Err(format!("a wrong {what} digest")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_apart_as_requests_were_put_together() {
        let format = Format {
            header_digest: true,
            data_digest: true,
        };
        let request = Request::new(opcode::REJECT, 7)
            .with(2, 4)
            .carrying(b"seven b");
        let mut bytes = request.encode(format);
        assert_eq!(bytes.len(), HEADER + 4 + 8 + 4);
        assert_eq!(length_of(&bytes[..47], format), Ok(None));
        assert_eq!(length_of(&bytes, format), Ok(Some(bytes.len())));
        let reply = parse(&bytes, format).expect("a good one");
        assert_eq!(
            (reply.opcode(), reply.itt(), reply.code()),
            (opcode::REJECT, 7, 4)
        );
        assert_eq!(reply.data, b"seven b");
        bytes[HEADER + 4] ^= 1;
        assert_eq!(parse(&bytes, format), Err("a wrong data digest".into()));
        bytes[1] ^= 1;
        assert_eq!(parse(&bytes, format), Err("a wrong header digest".into()));
    }

    #[test]
    fn sense_is_read_in_both_formats() {
        let of = |sense: &[u8]| Reply {
            header: [0; HEADER],
            data: [&(sense.len() as u16).to_be_bytes()[..], sense].concat(),
        };
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12], fixed[13]) = (0x70, 5, 0x24, 1);
        assert_eq!(of(&fixed).sense(), Some((5, 0x2401)));
        assert_eq!(of(&[0x72, 6, 0x29, 0]).sense(), Some((6, 0x2900)));
        assert_eq!(of(&[0x72, 6]).sense(), None);
        assert_eq!(of(&[]).sense(), None);
    }
}
