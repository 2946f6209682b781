//! What the control plane needs of the data path.
//!
//! An [`Engine`] opens volumes and listeners by name, serves whatever state it was last given, and
//! tells what goes on. It keeps nothing over a restart and decides nothing: [`crate::control`] does.

#[cfg(any(test, feature = "fake-engine"))]
pub mod fake;
pub mod reactors;
mod reservations;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
pub use weir_front::{CommandKind, Latency};
use weir_rbd::RbdHost;

pub use self::reservations::{NexusReport, RegistrantReport, ReservationReport, ToKeep};
use crate::config::Config;
use crate::limits::Plan;
use crate::metrics::Family;
use crate::name::{IscsiName, ListenerAddress, Nqn, VolumeName};
use crate::state::{ExportName, InitiatorName, Portal, State};

/// What an engine is asked comes back later.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>;

/// What an engine is started with.
pub struct EngineStart<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// How to use the machine.
    pub plan: Plan,
    /// Listeners for hosts that the service manager handed over, with their names.
    pub listeners: Vec<(String, std::net::TcpListener)>,
}

/// An engine that was started.
pub struct Started {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// The gateway as a user of Ceph, for what is not about a volume.
    pub ceph: Arc<RbdHost>,
}

/// An engine that is starting.
pub type EngineFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Started, Box<dyn std::error::Error + Send + Sync>>> + 'a>>;

/// Whether a volume may be made where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The operator is adding it: a file that is not there is made.
    Create,
    /// It was there before: a file that is not there is an error, since an empty one in its place
    /// would look to hosts as if their data had been erased.
    Existing,
}

/// The data path, seen from the control plane.
pub trait Engine: Send + Sync {
    /// Opens a volume under `name`, which is not open and not being opened. It is served only once a
    /// state that uses it is applied. Its medium may never answer.
    fn open_volume<'a>(
        &'a self,
        name: &'a VolumeName,
        url: &'a str,
        opening: Opening,
    ) -> Reply<'a, ()>;

    /// Closes a volume that the applied state does not use. Done when nothing submitted to it can
    /// take effect any more. A volume that is not open is closed already.
    fn close_volume<'a>(&'a self, name: &'a VolumeName) -> Reply<'a, ()>;

    /// Changes a volume's size; shrinking needs `force`. Returns the URL that opens it at its new
    /// size, made from `url`. Its medium may never answer.
    fn resize_volume<'a>(
        &'a self,
        name: &'a VolumeName,
        url: &'a str,
        size_bytes: u64,
        force: bool,
    ) -> Reply<'a, String>;

    /// What an open volume is like; none if it is not open.
    fn volume(&self, name: &VolumeName) -> Option<VolumeReport>;

    /// Gives up all that hosts have registered and reserved of a volume. Done when that is stored, and hosts have been told.
    fn discard_reservations<'a>(&'a self, name: &'a VolumeName) -> Reply<'a, ()>;

    /// The reservations of a volume that are to be stored next, when there are some: a host waits for it.
    fn next_to_keep(&self) -> Pin<Box<dyn Future<Output = ToKeep> + Send + '_>>;

    /// Opens again what an open volume has given up, such as an image whose lock another gateway has taken. What is lost otherwise
    /// comes back by itself. Its medium may never answer.
    fn reopen_volume<'a>(&'a self, name: &'a VolumeName, url: &'a str) -> Reply<'a, ()>;

    /// Listens at `address`.
    fn open_listener<'a>(
        &'a self,
        address: &'a ListenerAddress,
        listener: &'a Portal,
    ) -> Reply<'a, ()>;

    /// Stops listening at `address`. Connections that were accepted there stay.
    fn close_listener<'a>(&'a self, address: &'a ListenerAddress) -> Reply<'a, ()>;

    /// Looks for the name of a directory's root on its file system: an export of it is known by that.
    fn look_at_directory<'a>(&'a self, path: &'a str) -> Reply<'a, String>;

    /// The open listeners, those inherited from the service manager among them.
    fn listeners(&self) -> Vec<ListenerReport>;

    /// Serves `state` from now on. Done when every reactor has it, and hosts have been or are being
    /// told what changed for them. Exports whose volume is not open are not ready. What hosts may
    /// do no more does not begin any more; what of it is under way is [`Engine::revoked`].
    fn apply(&self, state: Arc<State>) -> Reply<'_, ()>;

    /// The requests that are under way though their hosts may not do this any more.
    fn revoked(&self) -> Reply<'_, Vec<RevokedReport>>;

    /// Requests that waited for an export's limits since it is served; none if it is not served.
    fn throttled(&self, export: &ExportName) -> Option<ThrottledReport>;

    /// The connections at this moment.
    fn connections(&self) -> Reply<'_, Vec<ConnectionReport>>;

    /// Ends a connection.
    fn disconnect(&self, id: u64) -> Reply<'_, ()>;

    /// The reactors and how busy they are.
    fn reactors(&self) -> Reply<'_, Vec<ReactorReport>>;

    /// Times of exports' commands since they are served: of one export or of all. Exports that are not served are
    /// not among them.
    fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> Reply<'_, BTreeMap<ExportName, Latency>>;

    /// Where the time of connections' commands went: of one connection or of all.
    fn connection_latencies(&self, only: Option<u64>) -> Reply<'_, BTreeMap<u64, Latency>>;

    /// Everything that is counted, for the metrics page.
    fn counters(&self) -> Reply<'_, Vec<Family>>;

    /// Stops accepting, lets commands in flight end for as long as `drain`, tells hosts as far as
    /// the protocol can, and ends every connection and reactor.
    fn shutdown(&self, drain: Duration) -> Reply<'_, ()>;
}

/// What an open volume is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeReport {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its block size in bytes.
    pub block_size: u32,
    /// Whether its medium cannot be written.
    pub read_only: bool,
    /// Whether writes may be lost at a power failure until they are flushed.
    pub volatile_cache: bool,
    /// Whether its medium cannot be reached for now.
    pub lost: bool,
    /// What should be known of it though it was opened, such as I/O through the page cache.
    #[serde(default)]
    pub notices: Vec<String>,
    /// The hosts that have registered on it, and what they reserved; missing where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationReport>,
}

/// What waited for a namespace's limits since it is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThrottledReport {
    /// Requests that had to wait and went on.
    pub requests: u64,
    /// How long they waited, all together, in nanoseconds.
    pub waited_ns: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

/// Requests of a host that are under way on a volume though it may not do this any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedReport {
    /// The host.
    pub host: InitiatorName,
    /// The export that they came for, which may be gone or another one by now.
    pub export: ExportName,
    /// Number of requests.
    pub requests: u64,
}

impl std::fmt::Display for RevokedReport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            host,
            export,
            requests,
        } = self;
        write!(formatter, "{requests} of host {host} on {export}")
    }
}

/// What an open listener is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListenerReport {
    /// The listener in the state; none where it was inherited.
    pub address: Option<ListenerAddress>,
    /// The name that the service manager gave an inherited listener.
    pub inherited: Option<String>,
    /// The addresses at which it listens.
    #[schema(value_type = Vec<String>)]
    pub bound: Vec<SocketAddr>,
}

/// A connection: a host's queue or session, or one that is becoming one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionReport {
    /// Its number, never used again while the gateway runs.
    pub id: u64,
    /// The host's address.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// The address that the host reached.
    #[schema(value_type = String)]
    pub local: SocketAddr,
    /// The reactor that it belongs to.
    pub reactor: u32,
    /// The NVMe queue that it is; none until its Connect command is answered.
    pub queue: Option<QueueReport>,
    /// The iSCSI session that it is; none until its login has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionReport>,
    /// The NFS client that it is of; none until it used a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientReport>,
    /// Commands in flight.
    pub in_flight: u32,
    /// Bytes received from the host.
    pub received_bytes: u64,
    /// Bytes sent to the host.
    pub sent_bytes: u64,
    /// What the kernel says of the socket; none where it was closing.
    pub socket: Option<SocketReport>,
}

/// The queue that a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueReport {
    /// The host.
    pub host: Nqn,
    /// The subsystem; for discovery, the well-known NQN.
    pub subsystem: Nqn,
    /// The controller ID.
    pub controller_id: u16,
    /// The queue ID; 0 is the admin queue.
    pub queue_id: u16,
    /// Entries of the queue.
    pub queue_depth: u32,
    /// Whether submission queue flow control is on.
    pub flow_control: bool,
    /// Whether PDU headers have digests.
    pub header_digest: bool,
    /// Whether data has digests.
    pub data_digest: bool,
}

/// The session that a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionReport {
    /// The initiator.
    pub initiator: IscsiName,
    /// What the initiator calls itself for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The initiator's part of the session's identity (ISID), in hexadecimal digits.
    pub isid: String,
    /// The target; missing in a session of discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<IscsiName>,
    /// The target's part of the session's identity (TSIH); 0 in a session of discovery.
    pub tsih: u16,
    /// The name under which the initiator proved itself (CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether headers have digests.
    pub header_digest: bool,
    /// Whether data has digests.
    pub data_digest: bool,
}

/// The NFS client that a connection is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientReport {
    /// Name that it gives itself.
    pub name: String,
    /// Its implementation, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// Its sessions.
    pub sessions: u32,
    /// Files that it has open, and owners of its locks.
    pub states: u32,
}

/// What the kernel says of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SocketReport {
    /// Send buffer in bytes (`SO_SNDBUF`: twice what was asked for).
    pub send_buffer: u32,
    /// Receive buffer in bytes (`SO_RCVBUF`: twice what was asked for).
    pub receive_buffer: u32,
    /// Congestion control algorithm.
    pub congestion_control: String,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Class of service.
    pub priority: u32,
    /// Smoothed round-trip time in microseconds.
    pub round_trip_us: u64,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Congestion window in segments.
    pub congestion_window: u32,
}

/// A reactor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReactorReport {
    /// Its number.
    pub id: u32,
    /// The processor that it is bound to; none if it is not bound.
    pub processor: Option<u32>,
    /// Connections that belong to it.
    pub connections: u32,
    /// Turns of its loop.
    pub turns: u64,
    /// Turns that found work.
    pub busy_turns: u64,
    /// Times that it slept in the kernel.
    pub sleeps: u64,
    /// Time spent on work, in nanoseconds.
    pub busy_ns: u64,
    /// Time spent looking for work in vain, in nanoseconds.
    pub spin_ns: u64,
    /// Time spent asleep, in nanoseconds.
    pub sleep_ns: u64,
    /// 0: reactors do not pause any more. The field goes with the next release.
    pub pause_ns: u64,
    /// What a wake-up from sleep takes, in nanoseconds, as it was measured lately.
    pub wake_up_ns: u64,
    /// Time for which it was ready to run while others had its processor, in nanoseconds, as the kernel's scheduler counts it; it is part of the other
    /// times. 0 where the kernel keeps no count.
    pub processor_wait_ns: u64,
    /// I/O operations that ended.
    pub operations: u64,
    /// Memory of its buffer pool in use, in bytes.
    pub pool_used_bytes: u64,
    /// Memory that its buffer pool has from the system, in bytes.
    pub pool_held_bytes: u64,
    /// Bound on the memory of its buffer pool, in bytes.
    pub pool_limit_bytes: u64,
}

/// Why the data path refuses or fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A volume cannot be opened.
    #[error("volume {name} cannot be opened: {reason}")]
    OpenVolume {
        /// The volume.
        name: VolumeName,
        /// Why not.
        reason: String,
        /// Someone else has its medium now, and may let go of it.
        in_use: bool,
    },
    /// A volume does not end its work.
    #[error("volume {name} cannot be closed: {reason}")]
    CloseVolume {
        /// The volume.
        name: VolumeName,
        /// Why not.
        reason: String,
    },
    /// A volume is not open, so that nothing can be done with it.
    #[error("volume {name} is not open")]
    VolumeNotOpen {
        /// The volume.
        name: VolumeName,
    },
    /// A smaller size was asked for without force.
    #[error(
        "volume {name} would be shrunk from {from_bytes} to {to_bytes} bytes, which destroys \
             what lies behind the new end"
    )]
    WouldShrink {
        /// The volume.
        name: VolumeName,
        /// Its size now.
        from_bytes: u64,
        /// The size asked for.
        to_bytes: u64,
    },
    /// A volume cannot have the size asked for.
    #[error("volume {name} cannot be resized: {reason}")]
    ResizeVolume {
        /// The volume.
        name: VolumeName,
        /// Why not.
        reason: String,
    },
    /// A listener cannot be opened.
    #[error("cannot listen at {address}: {reason}")]
    Listen {
        /// Where.
        address: ListenerAddress,
        /// Why not.
        reason: String,
        /// Someone else has the address now, and may let go of it.
        in_use: bool,
    },
    /// A directory cannot be served.
    #[error("directory {path} cannot be served: {reason}")]
    OpenDirectory {
        /// Its path.
        path: String,
        /// Why not.
        reason: String,
        /// The gateway has not the right that serving directories takes.
        needs_right: bool,
    },
    /// There is no such connection.
    #[error("there is no connection {id}")]
    UnknownConnection {
        /// Its number.
        id: u64,
    },
    /// The data path is not as it should be, or did not end.
    #[error("the data path fails: {reason}")]
    Failed {
        /// What it says.
        reason: String,
    },
    /// A reactor does not answer any more.
    #[error("reactor {id} does not answer")]
    ReactorLost {
        /// Its number.
        id: u32,
    },
}

impl EngineError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OpenVolume { .. } => "volume_open_failed",
            Self::CloseVolume { .. } => "volume_close_failed",
            Self::VolumeNotOpen { .. } => "volume_not_open",
            Self::WouldShrink { .. } => "would_shrink",
            Self::ResizeVolume { .. } => "resize_failed",
            Self::Listen { .. } => "listen_failed",
            Self::OpenDirectory { .. } => "directory_open_failed",
            Self::UnknownConnection { .. } => "not_found",
            Self::Failed { .. } => "data_path_failed",
            Self::ReactorLost { .. } => "reactor_lost",
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::VolumeNotOpen { name } => {
                Some(format!("see why, mend it, then: weir volume retry {name}"))
            }
            Self::WouldShrink { .. } => Some("use --force if that is meant".into()),
            Self::Listen { .. } => Some(
                "see which addresses this machine has (ip address) and which ports are taken \
                 (ss -ltn); ports below 1024 need CAP_NET_BIND_SERVICE"
                    .into(),
            ),
            Self::OpenDirectory {
                needs_right: true, ..
            } => Some(
                "give it CAP_DAC_READ_SEARCH: as a service with docs/systemd/weir-nfs.conf, in a container with --cap-add \
                 DAC_READ_SEARCH and without `user`"
                    .into(),
            ),
            Self::OpenDirectory { .. } => None,
            Self::UnknownConnection { .. } => {
                Some("it may have ended: see weir connection list".into())
            }
            Self::OpenVolume { .. } | Self::CloseVolume { .. } | Self::ResizeVolume { .. } => None,
            Self::Failed { .. } => None,
            Self::ReactorLost { .. } => Some("restart the gateway; its state is kept".into()),
        }
    }
}
