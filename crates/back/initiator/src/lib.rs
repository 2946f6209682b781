//! What every initiator needs: connections, retries after proof, reconnecting, one queue per reactor.
//!
//! A protocol implements [`Wire`](wire::Wire), the state machine of one connection, and [`Protocol`]; [`RemoteVolume`] is a
//! [`weir_block::Volume`] then. Inside, from the wire upwards:
//!
//! * `connection` moves the bytes of a state machine, `calls` asks one command at a time;
//! * `plan` says how a request becomes commands;
//! * `queue` is the volume on one reactor: it spreads requests over its connections and decides what is retried;
//! * `home` keeps the association alive and makes the next one when it is lost;
//! * `durability` knows which acknowledged writes no flush has covered, and keeps them where the protocol is to write them again;
//! * `volume` is what others see.

#![forbid(unsafe_code)]

mod calls;
mod connection;
mod durability;
mod home;
mod lock;
pub mod options;
pub mod plan;
mod protocol;
mod queue;
mod remote;
mod shared;
mod volume;
pub mod wire;

pub use calls::{Caller, Calls};
pub use connection::{CloseOnDrop, Connection, EndReason, Owner, connect, resolve, within};
pub use durability::Retained;
pub use protocol::{
    Association, Command, Ended, Established, Judged, Link, LinkFailure, Next, Protocol, RemoteOf,
    Verdict,
};
pub use queue::CONNECT_TIMEOUT;
pub use remote::{Profile, Remote};
pub use volume::{Opening, RemoteVolume, Volumes};
