//! The front end as its owner sees it: what it serves, where it listens, who has a session.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{
    ConnectionCounts, ConnectionState, Front, FrontError, Groups, Hubs, IoTotals, Latency, ListenAt,
};
use weir_iscsi::names::Name;
use weir_reactor::{Listener, SocketOptions, SocketReport};

use crate::config::{ConfigError, IscsiConfig};
use crate::protocol::{About, IscsiShared, ListenerPort, SessionInfo};
use crate::registry::Registry;
use crate::served::Snapshot;
use crate::session::IscsiSession;

/// What the front end's owner asked for cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum IscsiError {
    /// The configuration is not allowed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its connections' part cannot do it.
    #[error(transparent)]
    Front(#[from] FrontError),
}

/// Where to listen.
#[derive(Debug)]
pub struct ListenerConfig {
    /// The address; port 0 takes one that is free.
    pub address: SocketAddr,
    /// Options of its connections.
    pub options: SocketOptions,
    /// A socket that listens already, handed down by a service manager.
    pub inherited: Option<Listener>,
}

impl ListenerConfig {
    /// A listener at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        ListenerConfig {
            address,
            options: SocketOptions::default(),
            inherited: None,
        }
    }
}

/// A connection as it is now.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Its number, unique while the front end lives.
    pub id: u64,
    /// Index of its reactor.
    pub reactor: usize,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// The address that the initiator reached.
    pub local: SocketAddr,
    /// Its session; none before the login has ended.
    pub session: Option<SessionInfo>,
    /// Commands under way.
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
            session: state
                .about
                .session
                .map(|session| SessionInfo::clone(&session)),
            in_flight: state.in_flight,
            bytes_received: state.bytes_received,
            bytes_sent: state.bytes_sent,
            socket: state.socket,
        }
    }
}

/// Requests of an initiator on a logical unit whose right was taken away.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revoked {
    /// The initiator.
    pub initiator: Name,
    /// The target.
    pub target: Name,
    /// The logical unit's number when the requests came.
    pub lun: u16,
}

/// Counts since the front end started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IscsiStats {
    /// Connections now.
    pub connections: u32,
    /// Of these, without a login that has ended.
    pub half_open: u32,
    /// Of these, accepted and not served yet: there are too many half-open ones.
    pub waiting: u32,
    /// Sessions now, discovery sessions apart.
    pub sessions: u32,
    /// By reactor.
    pub reactors: Vec<ConnectionCounts>,
    /// By target, those included that were removed.
    pub targets: Vec<(Name, IoTotals)>,
}

/// The iSCSI front end on a number of reactors. Clones are handles of one front end, and may be used on any thread.
#[derive(Clone)]
pub struct Iscsi {
    front: Front<IscsiSession>,
}

impl Iscsi {
    /// A front end on the reactors of `hubs` that serves nothing yet and listens nowhere.
    ///
    /// # Errors
    /// [`IscsiError::Config`], [`FrontError::NoReactor`] or [`FrontError::Stopped`].
    pub async fn on(hubs: &Hubs, config: IscsiConfig) -> Result<Self, IscsiError> {
        config.check()?;
        let limits = config.connections.clone();
        let own = IscsiShared {
            config,
            registry: Arc::new(Registry::new(hubs.reactors())),
            groups: Groups::default(),
        };
        let front = Front::new(hubs, limits, Arc::new(own)).await?;
        Ok(Iscsi { front })
    }

    fn own(&self) -> &IscsiShared {
        &self.front.shared.own
    }

    /// Serves `snapshot` from now on, in place of the one before. Returns when every reactor and every session has taken it over;
    /// then initiators are told what changed for them. A volume that is no longer served is held only by its requests in flight.
    /// Commands that their initiator may no longer run do not begin. [`Iscsi::revoked`] counts their requests under way until these
    /// have ended. Calls must be made one after another.
    ///
    /// # Errors
    /// [`FrontError::Stopped`].
    pub async fn apply(&self, snapshot: Snapshot) -> Result<(), FrontError> {
        let names = snapshot.targets.iter().map(|target| &target.name);
        self.own().groups.add_new(names, self.front.reactors());
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
            port: ListenerPort,
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

    /// Where the time of logical units' commands went since they are served, by target and number: of one, or of all.
    pub async fn lun_latencies(&self, only: Option<(Name, u32)>) -> BTreeMap<(Name, u32), Latency> {
        self.front.export_latencies(only).await
    }

    /// Where the time of connections' commands went, by number: of one connection, or of all.
    pub async fn connection_latencies(&self, only: Option<u64>) -> BTreeMap<u64, Latency> {
        self.front.connection_latencies(only).await
    }

    /// Where the time of targets' commands went since they are served; it only grows.
    pub async fn target_latencies(&self) -> BTreeMap<Name, Latency> {
        self.front.group_latencies().await
    }

    /// Latencies of each of these volumes, through all logical units whose [`crate::Lun::counted`] it is or was. They only grow while
    /// somebody holds the volume.
    pub async fn volume_latencies(&self, volumes: &[Arc<dyn Volume>]) -> Vec<Latency> {
        self.front.volume_latencies(volumes).await
    }

    /// Number of requests under way on volumes although their initiators may not do this any more, those included whose
    /// sessions are gone. A reactor that has stopped has none.
    pub async fn revoked(&self) -> BTreeMap<Revoked, u64> {
        let mut all = BTreeMap::new();
        for (about, lun, requests) in self.front.revoked().await {
            let Some((session, target)) = about
                .session
                .and_then(|session| session.target.clone().map(|target| (session, target)))
            else {
                continue;
            };
            let revoked = Revoked {
                initiator: session.initiator.clone(),
                target,
                lun: lun as u16,
            };
            *all.entry(revoked).or_default() += requests;
        }
        all
    }

    /// Ends a connection, and its session with it.
    ///
    /// # Errors
    /// [`FrontError::NoConnection`].
    pub async fn disconnect(&self, id: u64) -> Result<(), FrontError> {
        self.front.disconnect(id).await
    }

    /// Counts since the front end started.
    #[must_use]
    pub fn stats(&self) -> IscsiStats {
        let stats = self.front.stats();
        IscsiStats {
            connections: stats.connections,
            half_open: stats.half_open,
            waiting: stats.waiting,
            sessions: self.own().registry.count(),
            reactors: stats.reactors,
            targets: self.own().groups.totals(),
        }
    }

    /// Stops listening, asks the initiators to log out, lets commands end for up to `drain`, and then ends every connection, waiting
    /// as long again, and five seconds at least, for what volumes are still doing. Afterwards the front end is of no more use.
    pub async fn shutdown(&self, drain: Duration) {
        self.front.shutdown(drain).await;
    }
}

impl std::fmt::Debug for Iscsi {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Iscsi")
            .field("reactors", &self.front.reactors())
            .finish_non_exhaustive()
    }
}
