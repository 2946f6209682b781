//! The NVMe over TCP target: serves volumes as namespaces to NVMe hosts.
//!
//! * `core` does commands. It sees commands, segments, completions and the time; no socket, no PDU.
//! * `framing` turns received bytes into commands and their data, and answers into PDUs.
//! * `connection` stands between a socket, a framing, a queue pair and the volumes; `watch` says when its host does not keep up.
//! * [`Target`] is the whole over several reactors; [`Snapshot`] says what it serves.
//!
//! Which commands, log pages and features are supported, and how the others are refused, is in `docs/nvme-conformance.md`.

#![forbid(unsafe_code)]

mod account;
mod config;
mod connection;
mod core;
mod counters;
mod framing;
mod latency;
mod registry;
mod shard;
mod snapshot;
mod target;
mod volumes;
mod watch;

pub use config::{
    ADMIN_IN_CAPSULE_BYTES, ConfigError, IN_CAPSULE_BYTES_MAX, TRANSFER_BYTES_MAX, TargetConfig,
};
pub use connection::MemoryNeeds;
pub use counters::IoTotals;
pub use latency::{CommandKind, Histogram, Latency, Stage, StageTimes};
pub use snapshot::{
    Allowed, AnaState, ControllerModel, HostOptions, Namespace, Port, Snapshot, Subsystem,
};
pub use target::{
    Association, ConnectionInfo, ControllerInfo, ListenerConfig, QueueInfo, Revoked, ShardStats,
    Target, TargetError, TargetStats,
};
