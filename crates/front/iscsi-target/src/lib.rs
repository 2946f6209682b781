//! The iSCSI target: serves volumes as logical units to iSCSI initiators (RFC 7143, SPC-4, SBC-3).
//!
//! * `login` lets an initiator in; `registry` knows the sessions of all reactors.
//! * `framing` turns received bytes into PDUs and their data, and answers into PDUs.
//! * `tasks` has the commands of a session: their order, their data, their ends. `tasks::device` is what they do.
//! * `session` is all of it for one connection, as [`weir_front`] runs it.
//! * [`Iscsi`] is the whole over several reactors; [`Snapshot`] says what it serves.
//!
//! One connection is one session, at error recovery level 0: what is lost with a connection the initiator does again.

#![forbid(unsafe_code)]

mod attention;
mod config;
mod framing;
mod iscsi;
mod login;
mod memory;
mod protocol;
mod registry;
mod scene;
mod served;
mod session;
mod tasks;
mod text;

pub use config::{ConfigError, IscsiConfig, PORTAL_GROUP, TRANSFER_BYTES_MAX};
pub use iscsi::{ConnectionInfo, Iscsi, IscsiError, IscsiStats, ListenerConfig, Revoked};
pub use protocol::SessionInfo;
pub use served::{Allowed, Authentication, Credentials, Lun, Portal, Snapshot, Target};
