//! The PDUs: their opcodes and basic header segments, both ways (RFC 7143 section 11).
//!
//! Reading a header ignores what is reserved; the two fields that are lengths are checked by the [`reader`](crate::reader).

/// Defines a header that is nothing but its fields: each with its offset, and with its bits where it is a part of a byte. `with` sets what
/// is the same in all of them.
macro_rules! header {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(, with |$bytes:ident| $fixed:expr,)? {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty [$offset:expr $(, $mask:expr)?], )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
            /// Bytes of the data segment, without padding.
            pub data_length: u32,
        }

        impl $name {
            /// Reads a header.
            #[inline]
            pub fn read(bytes: &$crate::pdu::BasicHeader) -> Self {
                Self {
                    $( $field: header!(@get bytes, $offset $(, $mask)?), )*
                    data_length: $crate::pdu::CommonHeader::read(bytes).data_length,
                }
            }
        }

        impl $crate::pdu::sealed::Sealed for $name {}
        impl $crate::pdu::Header for $name {
            const OPCODE: $crate::pdu::Opcode = $crate::pdu::Opcode::$name;

            #[inline]
            fn put(&self, bytes: &mut $crate::pdu::BasicHeader) {
                $( let $bytes = &mut *bytes; $fixed; )?
                $( header!(@put self.$field, bytes, $offset $(, $mask)?); )*
            }

            #[inline]
            fn data_length(&self) -> u32 {
                self.data_length
            }
        }
    };
    (@get $bytes:expr, $offset:expr) => { $crate::wire::Field::get($bytes, $offset) };
    (@get $bytes:expr, $offset:expr, $mask:expr) => { $crate::wire::get_bits($bytes, $offset, $mask) };
    (@put $value:expr, $bytes:expr, $offset:expr) => { $crate::wire::Field::put(&$value, $bytes, $offset) };
    (@put $value:expr, $bytes:expr, $offset:expr, $mask:expr) => {
        $crate::wire::put_bits(&$value, $bytes, $offset, $mask)
    };
}

mod additional;
mod request;
mod response;
mod tags;

pub use additional::{
    AdditionalError, AdditionalHeader, AdditionalHeaders, AdditionalSummary, UnsupportedAdditional,
    put_bidirectional_read_length, put_extended_cdb,
};
pub use request::{
    DataOut, LoginRequest, LogoutReason, LogoutRequest, NopOut, ScsiCommand, Snack, SnackType,
    TaskAttribute, TaskFunction, TaskManagementRequest, TextRequest,
};
pub use response::{
    AsyncEvent, AsyncMessage, DataIn, DataInStatus, LoginResponse, LogoutResponse,
    LogoutResponseCode, NopIn, R2t, Reject, RejectReason, Residual, ResponseCode, ResponseSerials,
    ScsiResponse, TaskManagementResponse, TaskResponse, TextResponse, parse_sense, sense_prefix,
};
pub use tags::{Cid, Isid, IsidFormat, Itt, IttSpace, Stage, Tsih, Ttt};

pub use crate::wire::{BASIC_HEADER_SIZE, BasicHeader};
use crate::wire::{get_u24, get_u32, open_enum};

/// Most bytes of the Additional Header Segments together: TotalAHSLength has eight bits and counts words (section 11.2.1.5).
pub const ADDITIONAL_HEADERS_SIZE_MAX: usize = 255 * 4;

/// Most bytes that DataSegmentLength can tell (section 11.2.1.6).
pub const DATA_SEGMENT_SIZE_MAX: u32 = (1 << 24) - 1;

open_enum! {
    /// The opcode (section 11.2.1.2). Those up to 1Fh go to the target, those from 20h to the initiator.
    pub enum Opcode: u8 {
        /// Section 11.18.
        NopOut = 0x00 => "NOP-Out",
        /// Section 11.3.
        ScsiCommand = 0x01 => "SCSI Command",
        /// Section 11.5.
        TaskManagementRequest = 0x02 => "Task Management Function Request",
        /// Section 11.12.
        LoginRequest = 0x03 => "Login Request",
        /// Section 11.10.
        TextRequest = 0x04 => "Text Request",
        /// Section 11.7.
        DataOut = 0x05 => "SCSI Data-Out",
        /// Section 11.14.
        LogoutRequest = 0x06 => "Logout Request",
        /// Section 11.16.
        Snack = 0x10 => "SNACK Request",
        /// Section 11.19.
        NopIn = 0x20 => "NOP-In",
        /// Section 11.4.
        ScsiResponse = 0x21 => "SCSI Response",
        /// Section 11.6.
        TaskManagementResponse = 0x22 => "Task Management Function Response",
        /// Section 11.13.
        LoginResponse = 0x23 => "Login Response",
        /// Section 11.11.
        TextResponse = 0x24 => "Text Response",
        /// Section 11.7.
        DataIn = 0x25 => "SCSI Data-In",
        /// Section 11.15.
        LogoutResponse = 0x26 => "Logout Response",
        /// Section 11.8.
        R2t = 0x31 => "R2T",
        /// Section 11.9.
        AsyncMessage = 0x32 => "Asynchronous Message",
        /// Section 11.17.
        Reject = 0x3f => "Reject",
    }
}

impl Opcode {
    /// Bits of byte 0 that are the opcode.
    pub const MASK: u8 = 0x3f;

    /// Returns whether PDUs of this opcode go to the target (section 11.2.1.2).
    pub const fn is_request(self) -> bool {
        self.value() < 0x20
    }
}

/// The end of a connection that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Reads requests.
    Target,
    /// Reads responses.
    Initiator,
}

/// The I bit of a request: it is delivered at once and does not advance ExpCmdSN (section 11.2.1.1).
pub(crate) const IMMEDIATE: u8 = 0x40;
/// The F bit of byte 1 (section 11.2.1.3).
pub(crate) const FINAL: u8 = 0x80;
/// The C bit of byte 1 of text and login PDUs (section 11.10.2).
pub(crate) const CONTINUE: u8 = 0x40;
/// CSG in byte 1 of login PDUs (section 11.12.3).
pub(crate) const CURRENT_STAGE: u8 = 0x0c;
/// NSG in byte 1 of login PDUs (section 11.12.3).
pub(crate) const NEXT_STAGE: u8 = 0x03;

/// Offsets of the common fields of a header (section 11.2.1).
pub(crate) mod offset {
    pub(crate) const FLAGS: usize = 1;
    pub(crate) const TOTAL_AHS_LENGTH: usize = 4;
    pub(crate) const DATA_SEGMENT_LENGTH: usize = 5;
    pub(crate) const LUN: usize = 8;
    pub(crate) const ITT: usize = 16;
    pub(crate) const TTT: usize = 20;
    pub(crate) const CMD_SN: usize = 24;
    pub(crate) const STAT_SN: usize = 24;
    pub(crate) const EXP_STAT_SN: usize = 28;
    pub(crate) const EXP_CMD_SN: usize = 28;
    pub(crate) const MAX_CMD_SN: usize = 32;
}

/// A header that [`Writer`](crate::writer::Writer) writes: one of this module's structures. Its lengths are the writer's.
pub trait Header: sealed::Sealed {
    /// The PDU's opcode.
    const OPCODE: Opcode;

    /// Writes all of a header that is zero but for TotalAHSLength.
    fn put(&self, bytes: &mut BasicHeader);

    /// Bytes of the data segment, without padding.
    fn data_length(&self) -> u32;
}

pub(crate) mod sealed {
    /// Keeps [`Header`](super::Header) to the structures of this crate.
    pub trait Sealed {}
}

/// Opcode, I bit and the lengths of a header, whatever PDU it is of (section 11.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonHeader {
    /// Opcode.
    pub opcode: Opcode,
    /// The I bit; reserved in responses.
    pub immediate: bool,
    /// Bytes of the Additional Header Segments, a multiple of 4.
    pub additional_length: u32,
    /// DataSegmentLength: bytes of data, without padding.
    pub data_length: u32,
    /// Initiator Task Tag.
    pub itt: Itt,
}

impl CommonHeader {
    /// Reads the fields that every header has.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        Self {
            opcode: Opcode::from_value(bytes[0] & Opcode::MASK),
            immediate: bytes[0] & IMMEDIATE != 0,
            additional_length: u32::from(bytes[offset::TOTAL_AHS_LENGTH]) * 4,
            data_length: get_u24(bytes, offset::DATA_SEGMENT_LENGTH),
            itt: Itt(get_u32(bytes, offset::ITT)),
        }
    }
}

/// A PDU of an opcode that is reserved or vendor specific. A target answers it with Reject: command not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPdu {
    /// The opcode.
    pub opcode: Opcode,
    /// The I bit.
    pub immediate: bool,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Bytes of data.
    pub data_length: u32,
}

/// One PDU's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pdu {
    /// SCSI Command.
    ScsiCommand(ScsiCommand),
    /// SCSI Data-Out.
    DataOut(DataOut),
    /// NOP-Out.
    NopOut(NopOut),
    /// Task Management Function Request.
    TaskManagementRequest(TaskManagementRequest),
    /// Login Request.
    LoginRequest(LoginRequest),
    /// Text Request.
    TextRequest(TextRequest),
    /// Logout Request.
    LogoutRequest(LogoutRequest),
    /// SNACK Request.
    Snack(Snack),
    /// SCSI Response.
    ScsiResponse(ScsiResponse),
    /// SCSI Data-In.
    DataIn(DataIn),
    /// R2T.
    R2t(R2t),
    /// NOP-In.
    NopIn(NopIn),
    /// Task Management Function Response.
    TaskManagementResponse(TaskManagementResponse),
    /// Login Response.
    LoginResponse(LoginResponse),
    /// Text Response.
    TextResponse(TextResponse),
    /// Logout Response.
    LogoutResponse(LogoutResponse),
    /// Asynchronous Message.
    AsyncMessage(AsyncMessage),
    /// Reject.
    Reject(Reject),
    /// An opcode that is not known.
    Unknown(UnknownPdu),
}

/// Runs the same expression on whichever structure a PDU is.
macro_rules! for_each_pdu {
    ($pdu:expr, $header:ident => $then:expr, $unknown:ident => $other:expr) => {
        match $pdu {
            Pdu::ScsiCommand($header) => $then,
            Pdu::DataOut($header) => $then,
            Pdu::NopOut($header) => $then,
            Pdu::TaskManagementRequest($header) => $then,
            Pdu::LoginRequest($header) => $then,
            Pdu::TextRequest($header) => $then,
            Pdu::LogoutRequest($header) => $then,
            Pdu::Snack($header) => $then,
            Pdu::ScsiResponse($header) => $then,
            Pdu::DataIn($header) => $then,
            Pdu::R2t($header) => $then,
            Pdu::NopIn($header) => $then,
            Pdu::TaskManagementResponse($header) => $then,
            Pdu::LoginResponse($header) => $then,
            Pdu::TextResponse($header) => $then,
            Pdu::LogoutResponse($header) => $then,
            Pdu::AsyncMessage($header) => $then,
            Pdu::Reject($header) => $then,
            Pdu::Unknown($unknown) => $other,
        }
    };
}

impl Pdu {
    /// Reads a basic header. [`ScsiCommand::additional`] is left empty: it is not in these bytes.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        match Opcode::from_value(bytes[0] & Opcode::MASK) {
            Opcode::ScsiCommand => Self::ScsiCommand(ScsiCommand::read(bytes)),
            Opcode::DataOut => Self::DataOut(DataOut::read(bytes)),
            Opcode::ScsiResponse => Self::ScsiResponse(ScsiResponse::read(bytes)),
            Opcode::DataIn => Self::DataIn(DataIn::read(bytes)),
            Opcode::R2t => Self::R2t(R2t::read(bytes)),
            _ => Self::read_rare(bytes),
        }
    }

    fn read_rare(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        match common.opcode {
            Opcode::NopOut => Self::NopOut(NopOut::read(bytes)),
            Opcode::TaskManagementRequest => {
                Self::TaskManagementRequest(TaskManagementRequest::read(bytes))
            }
            Opcode::LoginRequest => Self::LoginRequest(LoginRequest::read(bytes)),
            Opcode::TextRequest => Self::TextRequest(TextRequest::read(bytes)),
            Opcode::LogoutRequest => Self::LogoutRequest(LogoutRequest::read(bytes)),
            Opcode::Snack => Self::Snack(Snack::read(bytes)),
            Opcode::NopIn => Self::NopIn(NopIn::read(bytes)),
            Opcode::TaskManagementResponse => {
                Self::TaskManagementResponse(TaskManagementResponse::read(bytes))
            }
            Opcode::LoginResponse => Self::LoginResponse(LoginResponse::read(bytes)),
            Opcode::TextResponse => Self::TextResponse(TextResponse::read(bytes)),
            Opcode::LogoutResponse => Self::LogoutResponse(LogoutResponse::read(bytes)),
            Opcode::AsyncMessage => Self::AsyncMessage(AsyncMessage::read(bytes)),
            Opcode::Reject => Self::Reject(Reject::read(bytes)),
            _ => Self::Unknown(UnknownPdu {
                opcode: common.opcode,
                immediate: common.immediate,
                itt: common.itt,
                data_length: common.data_length,
            }),
        }
    }

    /// The opcode.
    pub fn opcode(&self) -> Opcode {
        fn of<H: Header>(_: &H) -> Opcode {
            H::OPCODE
        }
        for_each_pdu!(self, header => of(header), unknown => unknown.opcode)
    }

    /// Bytes of data that follow the header, without padding.
    #[inline]
    pub fn data_length(&self) -> u32 {
        for_each_pdu!(self, header => header.data_length(), unknown => unknown.data_length)
    }

    /// The basic header's bytes, with no Additional Header Segments; `None` for an unknown PDU, of which only the common fields are
    /// here. Panics where the data is longer than [`DATA_SEGMENT_SIZE_MAX`].
    pub fn encode(&self) -> Option<BasicHeader> {
        for_each_pdu!(self, header => Some(encode(header)), _unknown => None)
    }
}

/// A header's bytes, with no Additional Header Segments. Panics where the data is longer than [`DATA_SEGMENT_SIZE_MAX`].
#[inline]
pub fn encode(header: &impl Header) -> BasicHeader {
    let mut bytes = [0; BASIC_HEADER_SIZE];
    put_header(header, &mut bytes);
    bytes
}

/// Writes a header over bytes that are zero.
#[inline]
pub(crate) fn put_header<H: Header>(header: &H, bytes: &mut BasicHeader) {
    bytes[0] = H::OPCODE.value();
    header.put(bytes);
    let length = header.data_length();
    assert!(
        length <= DATA_SEGMENT_SIZE_MAX,
        "a data segment of {length} bytes does not fit DataSegmentLength"
    );
    let [_, high, middle, low] = length.to_be_bytes();
    let at = offset::DATA_SEGMENT_LENGTH;
    bytes[at..at + 3].copy_from_slice(&[high, middle, low]);
}

#[cfg(test)]
mod tests;
