//! The command core: what commands do, for any transport.
//!
//! It sees commands, segments, completions and the time that it is told; no socket, no PDU, no clock. A [`QueuePair`] holds
//! the commands of one submission queue; [`Controller`] is what an admin queue's commands work on.

mod connect;
mod controller;
mod discovery;
mod error_log;
mod events;
mod features;
mod identify;
mod log_pages;
mod nvm;
mod properties;
mod queue_pair;
mod reserve;
mod status;

pub use connect::{
    ConnectIdentity, ConnectRefusal, check_connect_data, check_connect_fields, flow_control_off,
};
pub use controller::{AdminView, Controller, ControllerIdentity, ControllerKind};
pub use discovery::DiscoveryLogs;
pub use error_log::ErrorLog;
pub use queue_pair::{
    Answer, Effect, Env, FLOW_CONTROL_OFF, Fetch, Next, QueueKind, QueuePair, Slot, SlotIndex,
    Stalled,
};
