//! NVMe and NVMe-oF wire types and TCP framing.
//!
//! Structures, enumerations and state machines over bytes: no sockets, no clock, no allocation on
//! the data path. What a command does is not decided here; what its bytes mean is.
//!
//! Sections cited are those of NVM Express Base 2.0c, NVM Command Set 1.0c and NVMe/TCP Transport
//! 1.0c, unless another document is named.
#![forbid(unsafe_code)]

pub mod command;
pub mod cqe;
pub mod event;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod opcode;
pub mod property;
pub mod reservation;
pub mod sgl;
pub mod sqe;
pub mod status;
pub mod tcp;
mod wire;

pub use cqe::Cqe;
pub use nqn::{HostId, Nqn};
pub use sgl::SglDescriptor;
pub use sqe::Sqe;
pub use status::Status;
pub use wire::{WrongLength, ascii, ascii_text};
