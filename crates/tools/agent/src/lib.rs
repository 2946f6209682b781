//! Load from several machines: an agent on each of them makes it, and a coordinator starts it everywhere at once and merges what came out.
//!
//! The two speak [messages](message) in [frames](frame) over TLS; the coordinator shows a [token], and the agent a certificate. What the
//! messages are and who trusts whom with what is in docs/agents.md. Results are merged as histograms ([merge]). This crate opens no volume and
//! makes no load: an agent's [`server::Worker`] does.

#![forbid(unsafe_code)]

pub mod allow;
pub mod coordinator;
pub mod frame;
pub mod merge;
pub mod message;
mod plain;
pub mod server;
pub mod tls;
pub mod token;
pub mod wire;

use std::time::Duration;

/// The protocol that both sides must speak. Another number is another protocol.
pub const PROTOCOL: &str = "weir-agent/3";
/// How often a coordinator says that it is there.
pub const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Who has said nothing for so long is gone.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Agents of one run at most.
pub const AGENTS_MAX: usize = 256;
/// Volumes that an agent opens at most, and jobs of all runs that these are for.
pub const VOLUMES_MAX: usize = 1024;
