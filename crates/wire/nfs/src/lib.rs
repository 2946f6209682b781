//! ONC RPC and NFS wire types: XDR, records, calls and replies, and the operations of NFS versions 4.1 and 4.2, procedures of version 3 and MOUNT.
//!
//! Bytes in, types out, and back: no I/O, no clock. What has a length is bounded where it is read, before anything is kept of it.
//!
//! Sections cited are those of RFC 4506 (XDR), RFC 5531 (ONC RPC), RFC 8881 (NFS version 4.1), RFC 7862 (version 4.2) and RFC 1813 (version 3).

#![forbid(unsafe_code)]

pub mod attribute;
pub mod mount;
pub mod operation;
pub mod record;
pub mod rpc;
pub mod status;
pub mod types;
pub mod v3;
pub mod xdr;

pub use attribute::{AttributeChanges, AttributeError, Bitmap, SetTime, Time};
pub use operation::{Operation, OperationNumber};
pub use status::Status;
pub use types::{FileHandle, SessionId, StateId};
pub use xdr::{Reader, Writer, XdrError};
