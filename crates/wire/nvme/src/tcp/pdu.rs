//! The PDUs: their types, flags and header fields (NVMe/TCP Transport 1.0c section 3.6.2).

use crate::cqe::Cqe;
use crate::sqe::Sqe;
use crate::tcp::layout::Termination;
use crate::wire::{flags, get, open_enum, put, wire_struct};

/// PDU Format Version (PFV) that is spoken here (section 3.6.2.2).
pub const PDU_FORMAT_VERSION: u16 = 0;

/// Least MAXH2CDATA that a controller may announce, in bytes (section 3.6.2.3).
pub const MAXIMUM_H2C_DATA_MIN: u32 = 4096;

/// Most bytes of an offending header that a termination request carries (sections 3.6.2.4, 3.6.2.5).
pub const TERMINATION_DATA_MAX: usize = 128;

/// Most bytes of a termination request (sections 3.6.2.4 and 3.6.2.5).
pub const TERMINATION_SIZE_MAX: usize = TERMINATION_HEADER as usize + TERMINATION_DATA_MAX;

// Header lengths (HLEN), by PDU.
pub(super) const INITIALIZE_HEADER: u8 = 128;
pub(super) const TERMINATION_HEADER: u8 = 24;
pub(super) const COMMAND_HEADER: u8 = 72;
pub(super) const RESPONSE_HEADER: u8 = 24;
pub(super) const DATA_HEADER: u8 = 24;
pub(super) const R2T_HEADER: u8 = 24;

const _: () = assert!(COMMAND_HEADER as usize == CommonHeader::SIZE + Sqe::SIZE);
const _: () = assert!(RESPONSE_HEADER as usize == CommonHeader::SIZE + Cqe::SIZE);
const _: () = assert!(TERMINATION_SIZE_MAX == 152);

open_enum! {
    /// PDU-Type, byte 0 (section 3.6.1). Even types go to the controller, odd ones to the host.
    pub enum PduType: u8 {
        /// Initialize Connection Request, section 3.6.2.2.
        InitializeRequest = 0x00 => "ICReq",
        /// Initialize Connection Response, section 3.6.2.3.
        InitializeResponse = 0x01 => "ICResp",
        /// Host to Controller Terminate Connection Request, section 3.6.2.4.
        H2cTermination = 0x02 => "H2CTermReq",
        /// Controller to Host Terminate Connection Request, section 3.6.2.5.
        C2hTermination = 0x03 => "C2HTermReq",
        /// Command Capsule, section 3.6.2.6.
        CapsuleCommand = 0x04 => "CapsuleCmd",
        /// Response Capsule, section 3.6.2.7.
        CapsuleResponse = 0x05 => "CapsuleResp",
        /// Host to Controller Data, section 3.6.2.8.
        H2cData = 0x06 => "H2CData",
        /// Controller to Host Data, section 3.6.2.9.
        C2hData = 0x07 => "C2HData",
        /// Ready to Transfer, section 3.6.2.10.
        R2t = 0x09 => "R2T",
    }
}

flags! {
    /// FLAGS, byte 1 (section 3.6.2); which of them a PDU has depends on its type.
    pub struct PduFlags: u8 {
        /// Bit 0: a header digest follows the header (HDGSTF).
        HEADER_DIGEST = 1 << 0,
        /// Bit 1: a data digest follows the data (DDGSTF).
        DATA_DIGEST = 1 << 1,
        /// Bit 2: the last data PDU of a transfer (LAST_PDU).
        LAST = 1 << 2,
        /// Bit 3: of C2HData: the command succeeded, no response capsule follows (SUCCESS).
        SUCCESS = 1 << 3,
    }
}

wire_struct! {
    /// The Common Header that every PDU starts with (section 3.6.1).
    pub struct CommonHeader[8] {
        /// PDU-Type.
        0 => pdu_type: PduType,
        /// FLAGS.
        1 => flags: PduFlags,
        /// Header Length (HLEN) in bytes, the header digest not counted.
        2 => header_length: u8,
        /// PDU Data Offset (PDO) in bytes from the start of the PDU.
        3 => data_offset: u8,
        /// PDU Length (PLEN) in bytes: header, digests, padding and data.
        4 => length: u32,
    }
}

/// Where the fields of a header are, for Fatal Error Information.
pub(super) mod offset {
    pub(crate) const TYPE: u32 = 0;
    pub(crate) const FLAGS: u32 = 1;
    pub(crate) const HEADER_LENGTH: u32 = 2;
    pub(crate) const DATA_OFFSET: u32 = 3;
    pub(crate) const LENGTH: u32 = 4;
    pub(crate) const FORMAT_VERSION: u32 = 8;
    pub(crate) const ALIGNMENT: u32 = 10;
    pub(crate) const DIGESTS: u32 = 11;
    pub(crate) const MAXIMUM_H2C_DATA: u32 = 12;
    pub(crate) const DATA_LENGTH: u32 = 16;
}

/// The alignment of data in PDUs: HPDA, which a host asks for, or CPDA, which a controller asks for
/// (sections 3.6.2.2 and 3.6.2.3). PDO is a multiple of it, with or without a header digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Alignment(u8);

impl Alignment {
    /// Largest value on the wire: 128 bytes.
    pub const WIRE_MAX: u8 = 31;
    /// Dwords: the least there is.
    pub const DWORD: Self = Self(0);

    /// From HPDA or CPDA, 0's based dwords; `None` above 31, which is reserved.
    pub const fn from_wire(value: u8) -> Option<Self> {
        if value <= Self::WIRE_MAX {
            Some(Self(value))
        } else {
            None
        }
    }

    /// As HPDA or CPDA.
    pub const fn to_wire(self) -> u8 {
        self.0
    }

    /// The alignment in bytes: 4 to 128, a multiple of 4 and not always a power of two.
    pub const fn bytes(self) -> u32 {
        (self.0 as u32 + 1) * 4
    }

    /// The first aligned offset at or after `offset`.
    pub const fn align(self, offset: u32) -> u32 {
        offset.next_multiple_of(self.bytes())
    }
}

flags! {
    /// Digests (DGST) of ICReq and ICResp (sections 3.6.2.2 and 3.6.2.3).
    pub struct DigestOptions: u8 {
        /// Bit 0: header digest.
        HEADER = 1 << 0,
        /// Bit 1: data digest.
        DATA = 1 << 1,
    }
}

impl DigestOptions {
    /// The bits that are defined; the others are reserved.
    pub const fn known(self) -> Self {
        Self(self.0 & (Self::HEADER.0 | Self::DATA.0))
    }
}

/// Initialize Connection Request, ICReq (section 3.6.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InitializeRequest {
    /// PDU Format Version (PFV).
    pub format_version: u16,
    /// Host PDU Data Alignment (HPDA), 0's based dwords, 0 to 31: what the host wants of C2HData.
    pub alignment: u8,
    /// Digests that the host asks for.
    pub digests: DigestOptions,
    /// Maximum Number of Outstanding R2T (MAXR2T) per command, 0's based: 2^32 - 1 is 2^32 of them.
    pub maximum_r2t_zero_based: u32,
}

impl InitializeRequest {
    /// Bytes of the PDU.
    pub const SIZE: usize = INITIALIZE_HEADER as usize;

    /// A request for data at dword alignment and one R2T at a time.
    pub const fn new(digests: DigestOptions) -> Self {
        Self {
            format_version: PDU_FORMAT_VERSION,
            alignment: 0,
            digests,
            maximum_r2t_zero_based: 0,
        }
    }

    /// The whole PDU.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let dword_12 = self.maximum_r2t_zero_based;
        let fields = (self.format_version, self.alignment, self.digests, dword_12);
        encode_initialize(PduType::InitializeRequest, fields)
    }

    /// Reads the fields of a whole PDU; its common header is not looked at.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let (format_version, alignment, digests, dword_12) = decode_initialize(bytes);
        Self {
            format_version,
            alignment,
            digests,
            maximum_r2t_zero_based: dword_12,
        }
    }

    /// What the host wants of C2HData, once the request is checked. The reserved bits of DGST ask for
    /// digests that are not known, and are ignored: the answer says which are enabled.
    ///
    /// # Errors
    /// Unsupported Parameter at PFV, or Invalid PDU Header Field at HPDA.
    pub fn check(&self) -> Result<Alignment, Termination> {
        if self.format_version != PDU_FORMAT_VERSION {
            return Err(Termination::unsupported_parameter(offset::FORMAT_VERSION));
        }
        Alignment::from_wire(self.alignment).ok_or(Termination::invalid_field(offset::ALIGNMENT))
    }
}

/// Initialize Connection Response, ICResp (section 3.6.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InitializeResponse {
    /// PDU Format Version (PFV).
    pub format_version: u16,
    /// Controller PDU Data Alignment (CPDA), 0's based dwords, 0 to 31: what the controller wants of
    /// CapsuleCmd with data and H2CData.
    pub alignment: u8,
    /// Digests that are enabled from the next PDU on.
    pub digests: DigestOptions,
    /// Maximum Host to Controller Data length (MAXH2CDATA) in bytes: a multiple of 4, at least 4096.
    pub maximum_h2c_data: u32,
}

impl InitializeResponse {
    /// Bytes of the PDU.
    pub const SIZE: usize = INITIALIZE_HEADER as usize;

    /// An answer that asks for dword alignment.
    pub const fn new(digests: DigestOptions, maximum_h2c_data: u32) -> Self {
        Self {
            format_version: PDU_FORMAT_VERSION,
            alignment: 0,
            digests,
            maximum_h2c_data,
        }
    }

    /// The whole PDU.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let fields = (
            self.format_version,
            self.alignment,
            self.digests,
            self.maximum_h2c_data,
        );
        encode_initialize(PduType::InitializeResponse, fields)
    }

    /// Reads the fields of a whole PDU; its common header is not looked at.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let (format_version, alignment, digests, maximum_h2c_data) = decode_initialize(bytes);
        Self {
            format_version,
            alignment,
            digests,
            maximum_h2c_data,
        }
    }

    /// What the controller wants of CapsuleCmd and H2CData, once the answer to `request` is checked.
    ///
    /// # Errors
    /// Unsupported Parameter at PFV or at digests that the host did not ask for; Invalid PDU Header
    /// Field at CPDA, or at a MAXH2CDATA below 4096 or not in dwords.
    pub fn check(&self, request: &InitializeRequest) -> Result<Alignment, Termination> {
        if self.format_version != PDU_FORMAT_VERSION {
            return Err(Termination::unsupported_parameter(offset::FORMAT_VERSION));
        }
        let alignment = Alignment::from_wire(self.alignment)
            .ok_or(Termination::invalid_field(offset::ALIGNMENT))?;
        if !request.digests.contains(self.digests) {
            return Err(Termination::unsupported_parameter(offset::DIGESTS));
        }
        if self.maximum_h2c_data < MAXIMUM_H2C_DATA_MIN || !self.maximum_h2c_data.is_multiple_of(4)
        {
            return Err(Termination::invalid_field(offset::MAXIMUM_H2C_DATA));
        }
        Ok(alignment)
    }
}

/// PFV, HPDA or CPDA, DGST, and MAXR2T or MAXH2CDATA.
type InitializeFields = (u16, u8, DigestOptions, u32);

fn encode_initialize(
    pdu_type: PduType,
    (format_version, alignment, digests, dword_12): InitializeFields,
) -> [u8; INITIALIZE_HEADER as usize] {
    let mut bytes = [0; INITIALIZE_HEADER as usize];
    let common = CommonHeader {
        pdu_type,
        header_length: INITIALIZE_HEADER,
        length: u32::from(INITIALIZE_HEADER),
        ..CommonHeader::default()
    };
    put(&mut bytes, 0, common);
    put(&mut bytes, 8, format_version);
    put(&mut bytes, 10, alignment);
    put(&mut bytes, 11, digests);
    put(&mut bytes, 12, dword_12);
    bytes
}

fn decode_initialize(bytes: &[u8; INITIALIZE_HEADER as usize]) -> InitializeFields {
    (
        get(bytes, 8),
        get(bytes, 10),
        get(bytes, 11),
        get(bytes, 12),
    )
}

open_enum! {
    /// Fatal Error Status (FES) of a termination request (sections 3.6.2.4 and 3.6.2.5).
    pub enum FatalErrorStatus: u16 {
        /// 01h: FEI is the byte of the PDU where the field starts.
        InvalidPduHeaderField = 0x01 => "Invalid PDU Header Field",
        /// 02h: a PDU that is not expected in this state.
        PduSequenceError = 0x02 => "PDU Sequence Error",
        /// 03h: FEI is the digest that was received.
        HeaderDigestError = 0x03 => "Header Digest Error",
        /// 04h: data outside what was asked for.
        DataTransferOutOfRange = 0x04 => "Data Transfer Out of Range",
        /// 05h: to the host: more data in a PDU than MAXH2CDATA; to the controller: more R2Ts than
        /// MAXR2T.
        LimitExceeded = 0x05 => "Data Transfer or R2T Limit Exceeded",
        /// 06h: FEI is the byte of the PDU where the parameter starts.
        UnsupportedParameter = 0x06 => "Unsupported Parameter",
    }
}

/// A termination request that was received, H2CTermReq or C2HTermReq. The header that it complains
/// about is [`Reader::termination_data`](super::Reader::termination_data).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminationRequest {
    /// Fatal Error Status (FES).
    pub status: FatalErrorStatus,
    /// Fatal Error Information (FEI), as the status defines it.
    pub information: u32,
}

impl TerminationRequest {
    /// Reads the fields of a header; `bytes` holds 24 bytes or more.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self {
            status: get(bytes, 8),
            information: get(bytes, 10),
        }
    }
}

/// A Command Capsule, CapsuleCmd (section 3.6.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CapsuleCommand {
    /// The command.
    pub sqe: Sqe,
    /// Bytes of in-capsule data in the PDU, as its lengths say; the command's SGL must agree.
    pub data_length: u32,
}

/// Host to Controller Data, H2CData (section 3.6.2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct H2cData {
    /// Command Capsule CID (CCCID).
    pub cid: u16,
    /// Transfer Tag (TTAG) of the R2T.
    pub transfer_tag: u16,
    /// Data Offset (DATAO) in bytes from the start of the command's data.
    pub offset: u32,
    /// Data Length (DATAL) in bytes, at least 1.
    pub length: u32,
    /// LAST_PDU: the last for its R2T.
    pub last: bool,
}

/// Controller to Host Data, C2HData (section 3.6.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct C2hData {
    /// Command Capsule CID (CCCID).
    pub cid: u16,
    /// Data Offset (DATAO) in bytes from the start of the command's data.
    pub offset: u32,
    /// Data Length (DATAL) in bytes, at least 1.
    pub length: u32,
    /// LAST_PDU: the last of the command's data.
    pub last: bool,
    /// SUCCESS: the command succeeded and no response capsule follows; only with `last`.
    pub success: bool,
}

/// Ready to Transfer, R2T (section 3.6.2.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct R2t {
    /// Command Capsule CID (CCCID).
    pub cid: u16,
    /// Transfer Tag (TTAG), which H2CData brings back.
    pub transfer_tag: u16,
    /// Requested Data Offset (R2TO) in bytes from the start of the command's data.
    pub offset: u32,
    /// Requested Data Length (R2TL) in bytes.
    pub length: u32,
}

impl H2cData {
    pub(super) fn read(common: &CommonHeader, bytes: &[u8]) -> Self {
        Self {
            cid: get(bytes, 8),
            transfer_tag: get(bytes, 10),
            offset: get(bytes, 12),
            length: get(bytes, 16),
            last: common.flags.contains(PduFlags::LAST),
        }
    }
}

impl C2hData {
    pub(super) fn read(common: &CommonHeader, bytes: &[u8]) -> Self {
        Self {
            cid: get(bytes, 8),
            offset: get(bytes, 12),
            length: get(bytes, 16),
            last: common.flags.contains(PduFlags::LAST),
            success: common.flags.contains(PduFlags::SUCCESS),
        }
    }
}

impl R2t {
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self {
            cid: get(bytes, 8),
            transfer_tag: get(bytes, 10),
            offset: get(bytes, 12),
            length: get(bytes, 16),
        }
    }
}

/// A PDU whose header was received and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pdu {
    /// ICReq.
    InitializeRequest(InitializeRequest),
    /// ICResp.
    InitializeResponse(InitializeResponse),
    /// H2CTermReq or C2HTermReq: the peer ends the connection.
    Termination(TerminationRequest),
    /// CapsuleCmd.
    CapsuleCommand(CapsuleCommand),
    /// CapsuleResp.
    CapsuleResponse(Cqe),
    /// H2CData.
    H2cData(H2cData),
    /// C2HData.
    C2hData(C2hData),
    /// R2T.
    R2t(R2t),
}

impl Pdu {
    /// Bytes of data that follow the header.
    pub const fn data_length(&self) -> u32 {
        match self {
            Self::CapsuleCommand(capsule) => capsule.data_length,
            Self::H2cData(data) => data.length,
            Self::C2hData(data) => data.length,
            Self::InitializeRequest(_)
            | Self::InitializeResponse(_)
            | Self::Termination(_)
            | Self::CapsuleResponse(_)
            | Self::R2t(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;
    use proptest::prelude::*;

    #[test]
    fn the_common_header_is_laid_out_as_the_specification_says() {
        let header = CommonHeader {
            pdu_type: PduType::C2hData,
            flags: PduFlags::HEADER_DIGEST | PduFlags::LAST | PduFlags::SUCCESS,
            header_length: 24,
            data_offset: 28,
            length: 0x0102_0304,
        };
        assert_eq!(header.encode(), [0x07, 0x0d, 24, 28, 4, 3, 2, 1]);
        round_trip::<CommonHeader>();
    }

    #[test]
    fn initialize_pdus_are_laid_out_as_the_specification_says() {
        let request = InitializeRequest {
            format_version: 0x0102,
            alignment: 31,
            digests: DigestOptions::HEADER | DigestOptions::DATA,
            maximum_r2t_zero_based: 0x0a0b_0c0d,
        };
        let mut bytes = [0; 128];
        bytes[..16].copy_from_slice(&[
            0x00, 0, 128, 0, 128, 0, 0, 0, 0x02, 0x01, 31, 3, 0x0d, 0x0c, 0x0b, 0x0a,
        ]);
        assert_eq!(request.encode(), bytes);
        assert_eq!(InitializeRequest::decode(&bytes), request);

        let response = InitializeResponse {
            format_version: 0,
            alignment: 1,
            digests: DigestOptions::DATA,
            maximum_h2c_data: 0x0002_0000,
        };
        bytes[..16].copy_from_slice(&[0x01, 0, 128, 0, 128, 0, 0, 0, 0, 0, 1, 2, 0, 0, 2, 0]);
        assert_eq!(response.encode(), bytes);
        assert_eq!(InitializeResponse::decode(&bytes), response);
    }

    #[test]
    fn a_request_is_checked_field_by_field() {
        let request = InitializeRequest::new(DigestOptions::NONE);
        assert_eq!(request.check(), Ok(Alignment::DWORD));
        let widest = InitializeRequest {
            alignment: 31,
            ..request
        };
        assert_eq!(widest.check().map(Alignment::bytes), Ok(128));
        let reserved = InitializeRequest {
            alignment: 32,
            ..request
        };
        assert_eq!(reserved.check(), Err(Termination::invalid_field(10)));
        let version = InitializeRequest {
            format_version: 1,
            alignment: 32,
            ..request
        };
        assert_eq!(version.check(), Err(Termination::unsupported_parameter(8)));
        let digests = InitializeRequest {
            digests: DigestOptions(0xff),
            ..request
        };
        assert!(digests.check().is_ok());
        assert_eq!(
            digests.digests.known(),
            DigestOptions::HEADER | DigestOptions::DATA
        );
        let most = InitializeRequest {
            maximum_r2t_zero_based: u32::MAX,
            ..request
        };
        assert!(most.check().is_ok());
    }

    #[test]
    fn a_response_is_checked_against_its_request() {
        let request = InitializeRequest::new(DigestOptions::HEADER);
        let response = InitializeResponse::new(DigestOptions::HEADER, 131_072);
        assert_eq!(response.check(&request), Ok(Alignment::DWORD));
        for (response, error) in [
            (
                InitializeResponse {
                    format_version: 1,
                    ..response
                },
                Termination::unsupported_parameter(8),
            ),
            (
                InitializeResponse {
                    alignment: 32,
                    ..response
                },
                Termination::invalid_field(10),
            ),
            (
                InitializeResponse {
                    digests: DigestOptions(3),
                    ..response
                },
                Termination::unsupported_parameter(11),
            ),
            (
                InitializeResponse {
                    digests: DigestOptions(0x80),
                    ..response
                },
                Termination::unsupported_parameter(11),
            ),
            (
                InitializeResponse {
                    maximum_h2c_data: 4092,
                    ..response
                },
                Termination::invalid_field(12),
            ),
            (
                InitializeResponse {
                    maximum_h2c_data: 4098,
                    ..response
                },
                Termination::invalid_field(12),
            ),
        ] {
            assert_eq!(response.check(&request), Err(error), "{response:?}");
        }
    }

    #[test]
    fn alignment_is_in_dwords_and_zero_based() {
        assert_eq!(Alignment::from_wire(32), None);
        let twenty = Alignment::from_wire(4).expect("in range");
        assert_eq!(
            (twenty.bytes(), twenty.align(72), twenty.align(80)),
            (20, 80, 80)
        );
        assert_eq!(Alignment::DWORD.align(24), 24);
        assert_eq!(twenty.to_wire(), 4);
    }

    proptest! {
        #[test]
        fn any_initialize_pdu_reads_and_survives(
            format_version: u16, alignment: u8, digests: u8, dword: u32,
        ) {
            let digests = DigestOptions(digests);
            let request = InitializeRequest {
                format_version, alignment, digests, maximum_r2t_zero_based: dword,
            };
            prop_assert_eq!(InitializeRequest::decode(&request.encode()), request);
            let response = InitializeResponse {
                format_version, alignment, digests, maximum_h2c_data: dword,
            };
            prop_assert_eq!(InitializeResponse::decode(&response.encode()), response);
        }
    }
}
