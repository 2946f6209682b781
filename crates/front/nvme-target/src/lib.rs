//! The NVMe over TCP target: serves volumes as namespaces to NVMe hosts.
//!
//! * `framing` turns received bytes into commands of [`weir_nvme_core`] and their data, and answers into PDUs.
//! * `session` is both for one connection, as [`weir_front`] runs it.
//! * [`Target`] is the whole over several reactors; [`Snapshot`] says what it serves.
//!
//! Which commands, log pages and features are supported, and how the others are refused, is in `docs/nvme-conformance.md`.

#![forbid(unsafe_code)]

mod config;
mod framing;
mod memory;
mod session;
mod target;

pub use config::{
    ADMIN_IN_CAPSULE_BYTES, ConfigError, IN_CAPSULE_BYTES_MAX, TRANSFER_BYTES_MAX, TargetConfig,
};
pub use session::QueueInfo;
pub use target::{
    Association, ConnectionInfo, ControllerInfo, ListenerConfig, Revoked, Target, TargetError,
    TargetStats,
};
pub use weir_front::{
    CommandKind, ConnectionCounts, FrontError, Histogram, IoTotals, Latency, Stage, StageTimes,
};
pub use weir_nvme_core::{
    Allowed, AnaState, ControllerModel, HostOptions, Namespace, Port, Snapshot, Subsystem,
};
