//! iSCSI wire types: PDUs, framing, text keys and their negotiation, login and CHAP.
//!
//! Structures and state machines over bytes: no sockets, no clock, no random numbers, no allocation on the data path. A CDB, a LUN and a
//! status are bytes here; their meaning is SCSI's.
//!
//! Sections cited are those of RFC 7143, unless another document is named.
#![forbid(unsafe_code)]

pub mod chap;
pub mod keys;
pub mod login;
pub mod names;
pub mod negotiation;
pub mod pdu;
pub mod reader;
pub mod send_targets;
pub mod serial;
pub mod status;
pub mod text;
mod wire;
pub mod writer;

pub use names::Name;
pub use pdu::{Cid, Isid, Itt, Pdu, Side, Tsih, Ttt};
pub use serial::{CommandWindow, Serial};
pub use status::LoginStatus;
