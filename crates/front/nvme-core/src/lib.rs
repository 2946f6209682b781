//! NVMe for any transport: the commands of a submission queue, their slots, data and answers; controllers; and what is served.
//!
//! It sees commands, segments, completions and the time that it is told; no socket, no PDU, no clock. A transport
//!
//! * says what it is like in [`CoreConfig`];
//! * hands in each command and where its data is ([`QueuePair::command`]), fills the places of those that bring data, and takes out
//!   [answers](QueuePair::answers), [data to ask for](QueuePair::next_fetch) and [effects](QueuePair::next_effect);
//! * keeps the controllers of all its connections in a [`Registry`].

#![forbid(unsafe_code)]

mod commands;
mod config;
mod namespaces;
mod registry;
mod snapshot;

pub use commands::{
    AdminView, Answer, ConnectIdentity, ConnectRefusal, Controller, ControllerIdentity,
    ControllerKind, DiscoveryLogs, Effect, Env, ErrorLog, FLOW_CONTROL_OFF, Fetch, Next, QueueKind,
    QueuePair, Slot, SlotIndex, Stalled, check_connect_data, check_connect_fields,
    flow_control_off,
};
pub use config::{CoreConfig, PAGE_BYTES};
pub use namespaces::{Attached, Namespaces};
pub use registry::{Host, LostQueue, Message, QueueGrant, Registry, Shared};
pub use snapshot::{
    Allowed, AnaState, ControllerModel, HostOptions, Namespace, Port, Snapshot, Subsystem,
};
