//! What the connections of every front end need: who is let in, memory in turns, time-outs, moving between reactors, queues of
//! volumes, latencies and counts.
//!
//! A protocol is two traits. [`Protocol`] names its types; [`Session`] does one connection: it takes bytes, completions and messages,
//! and gives requests and bytes. [`Front`] runs it over several reactors. There is a copy of the runtime for each protocol, made by the
//! compiler: nothing on a command's way is called through a pointer but the volume's queue.
//!
//! * `accept` and `arrivals` let connections in; `connection` is the task of one; `watch` says when a host does not keep up.
//! * `hub` is what a reactor has for all that is served there: its queues of volumes (`volumes`) and its memory (`account`).
//! * `reservations` are those of a volume, which hosts of every front end share.
//! * `shard` is what one front end has on one reactor; `parts` is how that is reached from elsewhere.

#![forbid(unsafe_code)]

mod accept;
mod account;
mod arrivals;
mod changes;
mod commands;
mod connection;
mod counters;
mod entry;
mod front;
mod groups;
mod hub;
mod latency;
mod limits;
mod parts;
mod protocol;
mod reservations;
mod session;
mod shard;
mod shared;
mod volumes;
mod watch;
mod watches;

pub use accept::ListenAt;
pub use account::{Account, Room};
pub use changes::{ChangeCount, Changes};
pub use commands::{AtVolume, Commands, Slot, broken_by_volume};
pub use connection::{REACTOR_BYTES_MAX, connection_bytes_max};
pub use counters::{ConnectionCounters, ConnectionCounts, Counter, IoCounters, IoTotals};
pub use entry::{Entry, Handle, Message};
pub use front::{ConnectionState, Front, FrontError, FrontStats};
pub use groups::{GroupCounters, Groups};
pub use hub::{Hub, HubLimits, Hubs};
pub use latency::{Arrival, CommandKind, Course, Histogram, Latency, Run, Runs, Stage, StageTimes};
pub use limits::{Limits, MemoryNeeds};
pub use parts::Parts;
pub use protocol::Protocol;
pub use reservations::{Keeper, Kept, News, Reservations};
pub use session::{End, ExportOf, Progress, Session, Wants};
pub use shard::{ExportKey, Line, Shard};
pub use shared::Shared;
pub use volumes::{Attached, Export, VolumeQueue};
pub use watch::{Awaited, Stall};
pub use watches::Watches;
