//! SCSI wire types: commands, sense data and parameter data of primary and block commands.
//!
//! Bytes in, types out, and back where an initiator or a test needs it: no I/O, no clock, and no
//! allocation for READ and WRITE. Transports are not known here, and no command is carried out here.
//!
//! Sections cited are those of SPC-4 revision 37 and SBC-3 revision 36, unless another document is
//! named. Bits are numbered from the least significant.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod cdb;
pub mod copy;
pub mod inquiry;
pub mod lun;
pub mod mode;
pub mod opcodes;
pub mod ports;
pub mod reservation;
pub mod sense;
pub mod task;
pub mod unmap;
pub mod vpd;
mod wire;

pub use cdb::Command;
pub use lun::Lun;
pub use sense::{AdditionalSense, Sense, SenseKey, Status};
pub use wire::{TooShort, text_field, truncate};
