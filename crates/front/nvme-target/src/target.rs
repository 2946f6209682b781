//! The target as its owner sees it: what it serves, where it listens, who is connected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{
    ConnectionCounts, ConnectionState, Front, FrontError, Groups, Hubs, IoTotals, Latency, ListenAt,
};
use weir_nvme::Nqn;
use weir_nvme_core::{ControllerKind, Registry, Shared, Snapshot};
use weir_reactor::{Listener, Remote, SocketOptions, SocketReport};

use crate::config::{ConfigError, TargetConfig};
use crate::session::{About, ListenerPort, NvmeSession, QueueInfo, TargetShared};

/// What a target's owner asked for cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The configuration is not allowed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its connections' part cannot do it.
    #[error(transparent)]
    Front(#[from] FrontError),
}

/// Where a target is to listen.
#[derive(Debug)]
pub struct ListenerConfig {
    /// The address; port 0 takes one that is free.
    pub address: SocketAddr,
    /// Options of its connections.
    pub options: SocketOptions,
    /// Only the discovery subsystem is served there.
    pub discovery_only: bool,
    /// A socket that listens already, handed down by a service manager.
    pub inherited: Option<Listener>,
}

impl ListenerConfig {
    /// A listener for everything at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        ListenerConfig {
            address,
            options: SocketOptions::default(),
            discovery_only: false,
            inherited: None,
        }
    }
}

/// A connection as it is now.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Its number, unique while the target lives.
    pub id: u64,
    /// Index of its reactor among the target's.
    pub reactor: usize,
    /// The host's address.
    pub peer: SocketAddr,
    /// The address that the host reached.
    pub local: SocketAddr,
    /// What it is connected to; none before its Connect.
    pub association: Option<Association>,
    /// What its queue is like; none before its Connect.
    pub queue: Option<QueueInfo>,
    /// Commands in its queue.
    pub in_flight: u32,
    /// Bytes received so far.
    pub bytes_received: u64,
    /// Bytes sent so far.
    pub bytes_sent: u64,
    /// What the system says of the socket.
    pub socket: Option<SocketReport>,
}

impl From<ConnectionState<About>> for ConnectionInfo {
    fn from(state: ConnectionState<About>) -> Self {
        ConnectionInfo {
            id: state.id,
            reactor: state.reactor,
            peer: state.peer,
            local: state.local,
            association: state.about.association.map(|of| Association {
                host_nqn: of.0.host.nqn.clone(),
                host_id: of.0.host.id,
                subsystem_nqn: of.0.subsystem_nqn.clone(),
                controller_id: of.0.id,
                qid: of.1,
            }),
            queue: state.about.queue,
            in_flight: state.in_flight,
            bytes_received: state.bytes_received,
            bytes_sent: state.bytes_sent,
            socket: state.socket,
        }
    }
}

/// What a connection is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// The host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: weir_nvme::HostId,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The controller.
    pub controller_id: u16,
    /// The queue; 0 is the admin queue.
    pub qid: u16,
}

/// Requests of a host on a namespace whose right was taken away.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revoked {
    /// The host.
    pub host_nqn: Nqn,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The namespace's NSID when the requests came.
    pub nsid: u32,
}

/// A controller as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Its subsystem.
    pub subsystem_nqn: Nqn,
    /// Its identifier.
    pub id: u16,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// Its host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: weir_nvme::HostId,
    /// Index of the reactor of its admin queue.
    pub reactor: usize,
    /// Its I/O queues.
    pub io_queues: Vec<u16>,
}

/// Counts since the target started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetStats {
    /// Connections now.
    pub connections: u32,
    /// Of these, without a granted Connect.
    pub half_open: u32,
    /// Of these, accepted and not served yet: there are too many half-open ones.
    pub waiting: u32,
    /// Controllers now.
    pub controllers: u32,
    /// By reactor.
    pub reactors: Vec<ConnectionCounts>,
    /// Data in flight now, by reactor, as [`Hubs::bytes_in_flight`].
    pub bytes_in_flight: Vec<u64>,
    /// By subsystem, those included that were removed.
    pub subsystems: Vec<(Nqn, IoTotals)>,
}

/// An NVMe/TCP target on a number of reactors. Clones are handles of one target, and may be used on any thread.
#[derive(Clone)]
pub struct Target {
    front: Front<NvmeSession>,
}

impl Target {
    /// A target on hubs of its own, as [`Target::on`].
    ///
    /// # Errors
    /// As [`Target::on`].
    pub async fn new(reactors: Vec<Remote>, config: TargetConfig) -> Result<Self, TargetError> {
        let hubs = Hubs::new(&reactors, &config.hub_limits());
        let hubs = hubs.map_err(|reactor| FrontError::Stopped { reactor })?;
        Self::on(&hubs, config).await
    }

    /// A target that serves nothing yet and listens nowhere. Other front ends may be on the same hubs. Their limits hold in place
    /// of the configuration's `bytes_in_flight` and `volume_queue_depth`.
    ///
    /// # Errors
    /// [`TargetError::Config`], [`FrontError::NoReactor`], or [`FrontError::Stopped`].
    pub async fn on(hubs: &Hubs, config: TargetConfig) -> Result<Self, TargetError> {
        config.check()?;
        let limits = config.limits();
        let own = TargetShared {
            core: config.core(),
            config,
            registry: Arc::new(Registry::new(hubs.reactors())),
            subsystems: Groups::default(),
        };
        let front = Front::new(hubs, limits, Arc::new(own)).await?;
        Ok(Target { front })
    }

    fn own(&self) -> &TargetShared {
        &self.front.shared.own
    }

    /// Serves `snapshot` from now on, in place of the one before. Returns when every reactor and every connection has taken it over;
    /// then hosts are told what changed for them. A volume that is no longer served is held only by its requests in flight. Commands
    /// that their host may no longer run do not begin. [`Target::revoked`] counts their requests under way until these have ended.
    /// Calls must be made one after another.
    ///
    /// # Errors
    /// [`FrontError::Stopped`].
    pub async fn apply(&self, snapshot: Snapshot) -> Result<(), FrontError> {
        let reactors = self.front.reactors();
        let subsystems = snapshot.subsystems.iter();
        let names = subsystems.map(|subsystem| &subsystem.nqn);
        self.own().subsystems.add_new(names, reactors);
        self.front.apply(Arc::new(snapshot)).await
    }

    /// Listens, and yields the address with its real port.
    ///
    /// # Errors
    /// [`FrontError::Listen`] or [`FrontError::Stopped`].
    pub async fn add_listener(&self, config: ListenerConfig) -> Result<SocketAddr, FrontError> {
        let at = ListenAt {
            address: config.address,
            options: config.options,
            port: ListenerPort {
                discovery_only: config.discovery_only,
            },
            inherited: config.inherited,
        };
        self.front.add_listener(at).await
    }

    /// Stops listening. Connections that were accepted stay.
    ///
    /// # Errors
    /// [`FrontError::NoListener`] or [`FrontError::Stopped`].
    pub async fn remove_listener(&self, address: SocketAddr) -> Result<(), FrontError> {
        self.front.remove_listener(address).await
    }

    /// Gives the connections that are accepted at `address` from now on other options.
    ///
    /// # Errors
    /// [`FrontError::NoListener`] or [`FrontError::Stopped`].
    pub async fn set_listener_options(
        &self,
        address: SocketAddr,
        options: SocketOptions,
    ) -> Result<(), FrontError> {
        self.front.set_listener_options(address, options).await
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.front.listeners()
    }

    /// Every connection. A reactor that has stopped has none.
    pub async fn connections(&self) -> Vec<ConnectionInfo> {
        let connections = self.front.connections().await;
        connections.into_iter().map(ConnectionInfo::from).collect()
    }

    /// Where the time of namespaces' commands went since they are served, by subsystem and NSID: of one namespace, or of all.
    pub async fn namespace_latencies(
        &self,
        only: Option<(Nqn, u32)>,
    ) -> BTreeMap<(Nqn, u32), Latency> {
        self.front.export_latencies(only).await
    }

    /// Where the time of connections' commands went, by number: of one connection, or of all. Admin queues have none.
    pub async fn connection_latencies(&self, only: Option<u64>) -> BTreeMap<u64, Latency> {
        self.front.connection_latencies(only).await
    }

    /// Where the time of subsystems' commands went since they are served; it only grows.
    pub async fn subsystem_latencies(&self) -> BTreeMap<Nqn, Latency> {
        self.front.group_latencies().await
    }

    /// Latencies of each of these volumes, through all namespaces whose [`Namespace::counted`] it is or was. They only grow while
    /// somebody holds the volume.
    ///
    /// Commands whose connection was lost are among them from when the volume has done them. They say how long the volume took
    /// ([`Stage::Volume`]), and nothing of an answer.
    ///
    /// [`Namespace::counted`]: crate::Namespace::counted
    /// [`Stage::Volume`]: crate::Stage::Volume
    pub async fn volume_latencies(&self, volumes: &[Arc<dyn Volume>]) -> Vec<Latency> {
        self.front.volume_latencies(volumes).await
    }

    /// Number of requests under way on volumes although their hosts may not do this any more, those included whose
    /// connections are gone. A reactor that has stopped has none.
    pub async fn revoked(&self) -> BTreeMap<Revoked, u64> {
        let mut all = BTreeMap::new();
        for (about, nsid, requests) in self.front.revoked().await {
            let Some((shared, _)) = about.association else {
                continue;
            };
            let revoked = Revoked {
                host_nqn: shared.host.nqn.clone(),
                subsystem_nqn: shared.subsystem_nqn.clone(),
                nsid,
            };
            *all.entry(revoked).or_default() += requests;
        }
        all
    }

    /// Ends a connection; an admin queue's takes its controller with it.
    ///
    /// # Errors
    /// [`FrontError::NoConnection`].
    pub async fn disconnect(&self, id: u64) -> Result<(), FrontError> {
        self.front.disconnect(id).await
    }

    /// Every controller.
    #[must_use]
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        let describe = |(shared, io_queues): (Arc<Shared>, Vec<u16>)| ControllerInfo {
            subsystem_nqn: shared.subsystem_nqn.clone(),
            id: shared.id,
            discovery: shared.kind == ControllerKind::Discovery,
            host_nqn: shared.host.nqn.clone(),
            host_id: shared.host.id,
            reactor: shared.reactor,
            io_queues,
        };
        let controllers = self.own().registry.controllers();
        controllers.into_iter().map(describe).collect()
    }

    /// Counts since the target started.
    #[must_use]
    pub fn stats(&self) -> TargetStats {
        let stats = self.front.stats();
        TargetStats {
            connections: stats.connections,
            half_open: stats.half_open,
            waiting: stats.waiting,
            controllers: self.own().registry.controllers().len() as u32,
            reactors: stats.reactors,
            bytes_in_flight: stats.bytes_in_flight,
            subsystems: self.own().subsystems.totals(),
        }
    }

    /// Stops listening, tells the hosts, lets commands end for up to `drain`, and then ends every connection, waiting as long
    /// again, and five seconds at least, for what volumes are still doing. Afterwards the target is of no more use.
    pub async fn shutdown(&self, drain: Duration) {
        self.front.shutdown(drain).await;
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Target")
            .field("reactors", &self.front.reactors())
            .finish_non_exhaustive()
    }
}
