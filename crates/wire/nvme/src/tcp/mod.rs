//! NVMe/TCP: protocol data units, the rules of their lengths, a reader that takes bytes in any pieces
//! and a writer of headers (NVMe/TCP Transport 1.0c section 3.6).
//!
//! No sockets and no commands: what a PDU leads to is the command core's affair.
//!
//! A connection reads with a [`Reader`] and writes with a [`Writer`]; both start without digests
//! and learn what was negotiated from the ICReq and ICResp.

mod layout;
mod pdu;
mod reader;
mod writer;

pub use layout::{CloseReason, FramingError, Layout, ReceiveParameters, Side, Termination};
pub use pdu::{
    Alignment, C2hData, CapsuleCommand, CommonHeader, DigestOptions, FatalErrorStatus, H2cData,
    InitializeRequest, InitializeResponse, MAXIMUM_H2C_DATA_MIN, PDU_FORMAT_VERSION, Pdu, PduFlags,
    PduType, R2t, TERMINATION_DATA_MAX, TERMINATION_SIZE_MAX, TerminationRequest,
};
pub use reader::{DataPdu, Event, Fed, Reader, Wanted};
pub use writer::{HEADER_SIZE_MAX, Writer, encode_termination};
