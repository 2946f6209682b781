//! The NFS server: serves directories and volumes to clients of versions 4.1 and 4.2 (RFC 8881, RFC 7862) and 3 (RFC 1813).
//!
//! * `framing` finds calls in received bytes; `session` is a connection, as [`weir_front`] runs it.
//! * `call` is a call: a task of its own, which may outlive its connection. `compound` does those of version 4, `v3` those of version 3
//!   and of MOUNT; what they do to files alike is in `seen` and `actions`.
//! * `state` is what clients have on the server: sessions and their slots, opens, locks; all reactors share it.
//! * `volumes` has volumes as files; their data goes by `blocks`, and by the connection's `desk` to the volumes.
//! * `handle` makes file handles, and knows its own.
//! * [`Rpcbind`] tells clients of version 3 where the server is.
//! * [`Nfs`] is the whole over several reactors; [`Export`] is what it serves.
//!
//! Everything is done as one user, the gateway's own. There are no delegations and no layouts, and so no calls to clients.

#![forbid(unsafe_code)]

mod actions;
mod blocks;
mod call;
mod compound;
mod config;
mod context;
mod desk;
mod exports;
mod framing;
mod handle;
mod memory;
mod nfs;
mod protocol;
mod replies;
mod rpcbind;
mod seen;
mod served;
mod session;
mod state;
mod v3;
mod volumes;

pub use config::NfsConfig;
pub use handle::HandleKey;
pub use nfs::{Nfs, Persistent};
pub use protocol::ClientInfo;
pub use rpcbind::{Registration, Rpcbind};
pub use served::{Allowed, Export, Network, Source};
pub use state::Keeper;
pub use volumes::{VolumeFile, VolumeFiles};
