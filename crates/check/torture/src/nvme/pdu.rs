//! PDUs as bytes: well-formed ones of any fields, to be damaged afterwards, and the ones that a target sends, taken apart and judged.
//!
//! Sections cited are those of NVMe/TCP Transport 1.0c.

use weir_digest::{DIGEST_LENGTH, Digest};
use weir_nvme::tcp::{
    C2hData, CommonHeader, FatalErrorStatus, H2cData, InitializeResponse, PduType, R2t,
};
use weir_nvme::{Cqe, Sqe};

/// Where the fields are that cases damage, in bytes from the start of a PDU (section 3.6).
pub mod at {
    /// PDU-Type.
    pub const TYPE: usize = 0;
    /// FLAGS.
    pub const FLAGS: usize = 1;
    /// HLEN.
    pub const HEADER_LENGTH: usize = 2;
    /// PDO.
    pub const DATA_OFFSET: usize = 3;
    /// PLEN.
    pub const LENGTH: usize = 4;
    /// PFV of ICReq.
    pub const FORMAT_VERSION: usize = 8;
    /// HPDA of ICReq.
    pub const ALIGNMENT: usize = 10;
    /// DGST of ICReq.
    pub const DIGESTS: usize = 11;
    /// MAXR2T of ICReq.
    pub const MAXIMUM_R2T: usize = 12;
    /// The submission queue entry of a CapsuleCmd.
    pub const ENTRY: usize = 8;
    /// DPTR of the entry of a CapsuleCmd.
    pub const SGL: usize = ENTRY + 24;
    /// CCCID of H2CData.
    pub const COMMAND_ID: usize = 8;
    /// TTAG of H2CData.
    pub const TRANSFER_TAG: usize = 10;
    /// DATAO of H2CData.
    pub const DATA_START: usize = 12;
    /// DATAL of H2CData.
    pub const DATA_LENGTH: usize = 16;
}

/// FLAGS (section 3.6.1).
pub mod flag {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS, of C2HData.
    pub const SUCCESS: u8 = 1 << 3;
}

/// HLEN by type (section 3.6.2).
pub mod header {
    /// ICReq and ICResp.
    pub const INITIALIZE: usize = 128;
    /// H2CTermReq and C2HTermReq.
    pub const TERMINATION: usize = 24;
    /// CapsuleCmd.
    pub const COMMAND: usize = 72;
    /// CapsuleResp.
    pub const RESPONSE: usize = 24;
    /// H2CData and C2HData.
    pub const DATA: usize = 24;
    /// R2T.
    pub const R2T: usize = 24;
}

/// The longest PDU that a target is believed to send: a data PDU of 16 MiB.
const LENGTH_MAX: usize = 16 << 20;

/// What ICReq and ICResp agreed, as far as it shapes PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Header digests are on.
    pub header_digest: bool,
    /// Data digests are on.
    pub data_digest: bool,
    /// PDO of what the host sends is a multiple of so many bytes (CPDA).
    pub controller_alignment: usize,
    /// PDO of what the controller sends is a multiple of so many bytes (HPDA).
    pub host_alignment: usize,
}

impl Format {
    /// Before ICResp, and without digests and alignment.
    pub const PLAIN: Self = Self {
        header_digest: false,
        data_digest: false,
        controller_alignment: 4,
        host_alignment: 4,
    };

    /// Bytes of a header with its digest.
    pub fn after_header(&self, header: usize) -> usize {
        header + if self.header_digest { DIGEST_LENGTH } else { 0 }
    }

    /// CapsuleCmd.
    pub fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut bytes = common(PduType::CapsuleCommand, header::COMMAND);
        bytes[at::ENTRY..].copy_from_slice(&sqe.encode());
        self.finish(bytes, data)
    }

    /// H2CData. DATAL is `header.length`, whatever `data` is.
    pub fn h2c_data(&self, header: &H2cData, data: &[u8]) -> Vec<u8> {
        let mut bytes = common(PduType::H2cData, header::DATA);
        put_u16(&mut bytes, at::COMMAND_ID, header.cid);
        put_u16(&mut bytes, at::TRANSFER_TAG, header.transfer_tag);
        put_u32(&mut bytes, at::DATA_START, header.offset);
        put_u32(&mut bytes, at::DATA_LENGTH, header.length);
        if header.last {
            bytes[at::FLAGS] |= flag::LAST;
        }
        self.finish(bytes, data)
    }

    /// Adds digests, padding, data and the lengths that these make.
    fn finish(&self, mut bytes: Vec<u8>, data: &[u8]) -> Vec<u8> {
        let header = bytes.len();
        let mut end = self.after_header(header);
        if self.header_digest {
            bytes[at::FLAGS] |= flag::HEADER_DIGEST;
        }
        if !data.is_empty() {
            end = end.next_multiple_of(self.controller_alignment);
            bytes[at::DATA_OFFSET] = end as u8;
            if self.data_digest {
                bytes[at::FLAGS] |= flag::DATA_DIGEST;
            }
        }
        let digest = data_digest_length(self, data);
        put_u32(&mut bytes, at::LENGTH, (end + data.len() + digest) as u32);
        bytes.resize(end, 0);
        self.sign(&mut bytes);
        bytes.extend_from_slice(data);
        if digest > 0 {
            bytes.extend(Digest::of(data).to_bytes());
        }
        bytes
    }

    /// Computes the header digest anew, where there is one: after a header was damaged that is to be believed. HLEN must be
    /// that of the PDU's type.
    pub fn sign(&self, pdu: &mut [u8]) {
        if !self.header_digest {
            return;
        }
        let header = usize::from(pdu[at::HEADER_LENGTH]);
        let digest = Digest::of(&pdu[..header]).to_bytes();
        pdu[header..header + DIGEST_LENGTH].copy_from_slice(&digest);
    }
}

fn data_digest_length(format: &Format, data: &[u8]) -> usize {
    if format.data_digest && !data.is_empty() {
        DIGEST_LENGTH
    } else {
        0
    }
}

/// A header of this type and length, otherwise zero; PLEN is HLEN.
fn common(pdu_type: PduType, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[at::TYPE] = pdu_type.value();
    bytes[at::HEADER_LENGTH] = length as u8;
    put_u32(&mut bytes, at::LENGTH, length as u32);
    bytes
}

/// H2CTermReq that carries `carried` (section 3.6.2.4).
pub fn termination(status: u16, information: u32, carried: &[u8]) -> Vec<u8> {
    let mut bytes = common(PduType::H2cTermination, header::TERMINATION);
    put_u16(&mut bytes, 8, status);
    put_u32(&mut bytes, 10, information);
    bytes.extend_from_slice(carried);
    let length = bytes.len() as u32;
    put_u32(&mut bytes, at::LENGTH, length);
    bytes
}

/// Writes a little-endian number at a byte offset.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// As [`put_u16`].
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// As [`put_u16`].
pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Reads a little-endian number at a byte offset.
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// As [`get_u16`].
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A PDU that a target sent, whole and as the specification asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPdu {
    /// ICResp.
    Initialized(InitializeResponse),
    /// CapsuleResp.
    Response(Cqe),
    /// C2HData and what it carries.
    Data(C2hData, Vec<u8>),
    /// R2T.
    R2t(R2t),
    /// C2HTermReq.
    Terminated {
        /// FES.
        status: FatalErrorStatus,
        /// FEI.
        information: u32,
        /// The header that it complains about.
        carried: Vec<u8>,
    },
}

/// How many bytes the PDU that starts with these has; none: there are too few to say.
///
/// # Errors
/// PLEN is not to be believed.
pub fn length_of(bytes: &[u8]) -> Result<Option<usize>, String> {
    if bytes.len() < CommonHeader::SIZE {
        return Ok(None);
    }
    let length = get_u32(bytes, at::LENGTH) as usize;
    if (CommonHeader::SIZE..=LENGTH_MAX).contains(&length) {
        Ok(Some(length))
    } else {
        Err(format!("a PDU with PLEN {length}"))
    }
}

/// Takes a whole PDU of a target apart.
///
/// # Errors
/// What is wrong with it, by section 3.6.
pub fn parse(bytes: &[u8], format: &Format) -> Result<TargetPdu, String> {
    let pdu_type = PduType::from_value(bytes[at::TYPE]);
    let header = match pdu_type {
        PduType::InitializeResponse => header::INITIALIZE,
        PduType::C2hTermination => header::TERMINATION,
        PduType::CapsuleResponse => header::RESPONSE,
        PduType::C2hData => header::DATA,
        PduType::R2t => header::R2T,
        other => {
            return Err(format!(
                "a PDU of type {other}, which a controller never sends"
            ));
        }
    };
    let stated = usize::from(bytes[at::HEADER_LENGTH]);
    if stated != header || bytes.len() < header {
        return Err(format!(
            "{pdu_type} with HLEN {stated} and PLEN {}",
            bytes.len()
        ));
    }
    match pdu_type {
        PduType::InitializeResponse if bytes.len() == header => {
            let bytes = bytes.first_chunk().expect("the length was checked");
            Ok(TargetPdu::Initialized(InitializeResponse::decode(bytes)))
        }
        PduType::C2hTermination if bytes.len() > header => Ok(TargetPdu::Terminated {
            status: FatalErrorStatus::from_value(get_u16(bytes, 8)),
            information: get_u32(bytes, 10),
            carried: bytes[header..].to_vec(),
        }),
        PduType::InitializeResponse | PduType::C2hTermination => {
            Err(format!("{pdu_type} with PLEN {}", bytes.len()))
        }
        _ => parse_with_digests(pdu_type, bytes, header, format),
    }
}

fn parse_with_digests(
    pdu_type: PduType,
    bytes: &[u8],
    header: usize,
    format: &Format,
) -> Result<TargetPdu, String> {
    let flags = bytes[at::FLAGS];
    let after_header = format.after_header(header);
    if (flags & flag::HEADER_DIGEST != 0) != format.header_digest {
        return Err(format!("{pdu_type} whose HDGSTF is not what was agreed"));
    }
    if bytes.len() < after_header {
        return Err(format!("{pdu_type} with PLEN {}", bytes.len()));
    }
    if format.header_digest
        && Digest::of(&bytes[..header]).to_bytes() != bytes[header..after_header]
    {
        return Err(format!("{pdu_type} with a wrong header digest"));
    }
    if pdu_type == PduType::C2hData {
        return parse_data(bytes, after_header, format);
    }
    if bytes.len() != after_header {
        return Err(format!("{pdu_type} with PLEN {}", bytes.len()));
    }
    if pdu_type == PduType::R2t {
        return Ok(TargetPdu::R2t(R2t {
            cid: get_u16(bytes, 8),
            transfer_tag: get_u16(bytes, 10),
            offset: get_u32(bytes, 12),
            length: get_u32(bytes, 16),
        }));
    }
    let entry = bytes[at::ENTRY..].first_chunk().expect("HLEN was checked");
    Ok(TargetPdu::Response(Cqe::decode(entry)))
}

fn parse_data(bytes: &[u8], after_header: usize, format: &Format) -> Result<TargetPdu, String> {
    let flags = bytes[at::FLAGS];
    let data = C2hData {
        cid: get_u16(bytes, at::COMMAND_ID),
        offset: get_u32(bytes, at::DATA_START),
        length: get_u32(bytes, at::DATA_LENGTH),
        last: flags & flag::LAST != 0,
        success: flags & flag::SUCCESS != 0,
    };
    let start = usize::from(bytes[at::DATA_OFFSET]);
    if start < after_header || !start.is_multiple_of(format.host_alignment) {
        return Err(format!("C2HData with PDO {start}"));
    }
    if (flags & flag::DATA_DIGEST != 0) != format.data_digest {
        return Err("C2HData whose DDGSTF is not what was agreed".into());
    }
    let digest = if format.data_digest { DIGEST_LENGTH } else { 0 };
    let end = start + data.length as usize;
    if data.length == 0 || end + digest != bytes.len() {
        let (datal, plen) = (data.length, bytes.len());
        return Err(format!(
            "C2HData with DATAL {datal}, PDO {start} and PLEN {plen}"
        ));
    }
    if data.success && !data.last {
        return Err("C2HData with SUCCESS and without LAST_PDU".into());
    }
    let carried = &bytes[start..end];
    if format.data_digest && Digest::of(carried).to_bytes() != bytes[end..] {
        return Err("C2HData with a wrong data digest".into());
    }
    Ok(TargetPdu::Data(data, carried.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_nvme::Status;
    use weir_nvme::tcp::{Alignment, Writer};

    #[test]
    fn what_is_built_is_what_the_other_encoder_writes() {
        let sqe = Sqe {
            opcode: 1,
            cid: 7,
            ..Sqe::default()
        };
        let data = [0xa5; 52];
        for wire in [0, 3, 31] {
            let alignment = Alignment::from_wire(wire).expect("in range");
            let format = Format {
                header_digest: wire > 0,
                data_digest: wire > 3,
                controller_alignment: alignment.bytes() as usize,
                host_alignment: 4,
            };
            let writer = Writer {
                header_digest: format.header_digest,
                data_digest: format.data_digest,
                alignment,
            };
            let mut header = [0; 144];
            let length = writer.capsule_command(&mut header, &sqe, 52);
            let built = format.capsule(&sqe, &data);
            assert_eq!(built[..length], header[..length]);
            assert_eq!(built[length..length + 52], data);
            assert_eq!(built.len(), length + 52 + writer.data_digest_length(52));
        }
    }

    #[test]
    fn what_a_target_sends_is_judged() {
        let format = Format {
            header_digest: true,
            ..Format::PLAIN
        };
        let writer = Writer {
            header_digest: true,
            ..Writer::default()
        };
        let cqe = Cqe::new(3, 0, Status::SUCCESS);
        let mut buffer = [0; 144];
        let length = writer.capsule_response(&mut buffer, &cqe);
        let good = &buffer[..length];
        assert_eq!(parse(good, &format), Ok(TargetPdu::Response(cqe)));
        let mut damaged = good.to_vec();
        damaged[20] ^= 1;
        assert!(parse(&damaged, &format).is_err_and(|why| why.contains("digest")));
        assert!(parse(good, &Format::PLAIN).is_err_and(|why| why.contains("HDGSTF")));
        assert_eq!(length_of(&good[..7]), Ok(None));
        assert!(length_of(&[5, 0, 24, 0, 255, 255, 255, 255]).is_err());
    }

    #[test]
    fn a_termination_carries_what_it_is_given() {
        let bytes = termination(1, 4, &[9; 72]);
        assert_eq!(get_u32(&bytes, at::LENGTH), 96);
        assert_eq!((bytes[0], bytes[2]), (2, 24));
        assert_eq!((get_u16(&bytes, 8), get_u32(&bytes, 10)), (1, 4));
    }
}
