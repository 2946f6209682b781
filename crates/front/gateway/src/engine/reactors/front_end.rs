//! A front end as the engine knows it, and all of them together.
//!
//! The engine opens volumes, puts them under limits and keeps the books of what listens. A [`FrontEnd`] makes of the state what its
//! protocol serves. [`FrontEnds`] asks each for what all are asked, and adds up the answers.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{FrontError, FrontStats, Hubs, IoTotals, Latency, ListenAt, MemoryNeeds};
use weir_reactor::SocketOptions;
use weir_volume::LimitedVolume;

use super::counters::Column;
use super::listen::Socket;
use super::reservations::ByVolume;
use crate::config::Config;
use crate::engine::{ConnectionReport, RevokedReport};
use crate::limits::Plan;
use crate::state::{ExportName, Protocol, State};

/// An answer of a front end that comes later.
pub(super) type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An error of a front end that does not start.
pub(super) type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A front end that is starting.
pub(super) type Starting<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn FrontEnd>, StartError>> + 'a>>;

/// A kind of front end that the engine is built with.
pub(super) struct FrontEndKind {
    /// Memory that hosts can make it keep.
    pub(super) memory_needs: fn(&Config) -> MemoryNeeds,
    /// Starts it. It serves nothing yet and listens nowhere.
    pub(super) start: for<'a> fn(&'a Hubs, &'a Config, &'a Plan) -> Starting<'a>,
}

/// A state with what is open of it.
#[derive(Default)]
pub(super) struct Served {
    /// The state.
    pub(super) state: Arc<State>,
    /// Its exports whose volumes are open, each under its limits.
    pub(super) exports: BTreeMap<ExportName, Arc<LimitedVolume>>,
    /// The reservations of its volumes.
    pub(super) reservations: ByVolume,
    /// Every socket that listens, of any protocol.
    pub(super) sockets: Vec<Socket>,
}

/// Names that metrics have for what a protocol serves.
pub(super) struct MetricNames {
    /// Gauge of its sessions, and its help.
    pub(super) sessions: (&'static str, &'static str),
    /// Label of its groups of exports (NVMe: subsystem).
    pub(super) group: &'static str,
    /// Counters of such a group.
    pub(super) group_columns: &'static [Column<IoTotals>],
}

/// Counts of a front end since it started.
pub(super) struct Counts {
    /// Names of its metrics.
    pub(super) names: &'static MetricNames,
    /// Counts of its connections.
    pub(super) stats: FrontStats,
    /// Sessions now (NVMe: controllers).
    pub(super) sessions: u32,
    /// Commands by group of exports, removed groups included.
    pub(super) groups: Vec<(String, IoTotals)>,
    /// Times of groups' commands.
    pub(super) latencies: BTreeMap<String, Latency>,
}

/// Serves what one protocol serves of the state.
pub(super) trait FrontEnd: Send + Sync {
    /// Tells whether portals of this protocol are its own.
    fn speaks(&self, protocol: Protocol) -> bool;

    /// Serves a state from now on. Done when every reactor has it. What hosts may do no more does not begin any more; what of it
    /// is under way is [`FrontEnd::revoked`].
    fn apply<'a>(&'a self, served: &'a Served) -> Answer<'a, Result<(), FrontError>>;

    /// Requests that are under way though their hosts may not do this any more: of each host on each export, until they can no
    /// longer take effect.
    fn revoked(&self) -> Answer<'_, Vec<RevokedReport>>;

    /// Listens, and yields the address with its real port.
    fn listen(&self, at: ListenAt<Protocol>) -> Answer<'_, Result<SocketAddr, FrontError>>;

    /// Gives the connections that are accepted at `address` from now on other options.
    fn set_options(
        &self,
        address: SocketAddr,
        options: SocketOptions,
    ) -> Answer<'_, Result<(), FrontError>>;

    /// Stops listening. Connections that were accepted stay.
    fn stop_listening(&self, address: SocketAddr) -> Answer<'_, Result<(), FrontError>>;

    /// The connections at this moment.
    fn connections(&self) -> Answer<'_, Vec<ConnectionReport>>;

    /// Ends a connection. Numbers of connections are unique among all front ends.
    fn disconnect(&self, id: u64) -> Answer<'_, Result<(), FrontError>>;

    /// Times of exports' commands since they are served: of one export or of all.
    fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> Answer<'_, BTreeMap<ExportName, Latency>>;

    /// Times of connections' commands: of one connection or of all.
    fn connection_latencies(&self, only: Option<u64>) -> Answer<'_, BTreeMap<u64, Latency>>;

    /// Times of these volumes' commands, in their order.
    fn volume_latencies<'a>(&'a self, volumes: &'a [Arc<dyn Volume>]) -> Answer<'a, Vec<Latency>>;

    /// Everything that it has counted.
    fn counts(&self) -> Answer<'_, Counts>;

    /// Stops listening, tells the hosts, lets commands in flight end for as long as `drain`, and ends every connection.
    fn shutdown(&self, drain: Duration) -> Answer<'_, ()>;
}

/// Memory that hosts can make front ends of these kinds keep, all together.
pub(super) fn memory_needs_of(kinds: &[FrontEndKind], config: &Config) -> MemoryNeeds {
    let needs = kinds.iter().map(|kind| (kind.memory_needs)(config));
    needs
        .reduce(MemoryNeeds::with)
        .expect("an engine has a front end")
}

/// All front ends of an engine.
pub(super) struct FrontEnds(Vec<Box<dyn FrontEnd>>);

impl FrontEnds {
    /// Starts one of each kind.
    pub(super) async fn start(
        kinds: &[FrontEndKind],
        hubs: &Hubs,
        config: &Config,
        plan: &Plan,
    ) -> Result<Self, StartError> {
        let mut all = Vec::new();
        for kind in kinds {
            all.push((kind.start)(hubs, config, plan).await?);
        }
        Ok(Self(all))
    }

    /// Tells whether there is a front end whose portals are of this protocol.
    pub(super) fn speak(&self, protocol: Protocol) -> bool {
        self.0.iter().any(|front| front.speaks(protocol))
    }

    /// The front end whose portals are of this protocol.
    pub(super) fn of(&self, protocol: Protocol) -> &dyn FrontEnd {
        let found = self.0.iter().find(|front| front.speaks(protocol));
        &**found.expect("every protocol of the state has a front end")
    }

    /// Has every front end serve a state, one after another.
    pub(super) async fn apply(&self, served: &Served) -> Result<(), FrontError> {
        for front in &self.0 {
            front.apply(served).await?;
        }
        Ok(())
    }

    /// Requests under way in any front end though their hosts may not do this any more.
    pub(super) async fn revoked(&self) -> Vec<RevokedReport> {
        self.each(|front| front.revoked()).await
    }

    /// The connections of all.
    pub(super) async fn connections(&self) -> Vec<ConnectionReport> {
        self.each(|front| front.connections()).await
    }

    /// Ends a connection, whichever front end has it.
    pub(super) async fn disconnect(&self, id: u64) -> Result<(), FrontError> {
        for front in &self.0 {
            match front.disconnect(id).await {
                Err(FrontError::NoConnection { .. }) => {}
                ended => return ended,
            }
        }
        Err(FrontError::NoConnection { id })
    }

    /// Times of exports' commands: of one export or of all.
    pub(super) async fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> BTreeMap<ExportName, Latency> {
        self.each(|front| front.export_latencies(only.clone()))
            .await
    }

    /// Times of connections' commands: of one connection or of all.
    pub(super) async fn connection_latencies(&self, only: Option<u64>) -> BTreeMap<u64, Latency> {
        self.each(|front| front.connection_latencies(only)).await
    }

    /// Times of these volumes' commands, in their order, by whatever protocol they came.
    pub(super) async fn volume_latencies(&self, volumes: &[Arc<dyn Volume>]) -> Vec<Latency> {
        let mut sums = vec![Latency::default(); volumes.len()];
        for front in &self.0 {
            let latencies = front.volume_latencies(volumes).await;
            for (sum, latency) in sums.iter_mut().zip(&latencies) {
                sum.merge(latency);
            }
        }
        sums
    }

    /// Everything that they have counted, by front end.
    pub(super) async fn counts(&self) -> Vec<Counts> {
        let mut all = Vec::new();
        for front in &self.0 {
            all.push(front.counts().await);
        }
        all
    }

    /// Ends all at the same time, so that each has the whole of `drain`.
    pub(super) async fn shutdown(&self, drain: Duration) {
        let mut ending: Vec<_> = self.0.iter().map(|front| front.shutdown(drain)).collect();
        poll_fn(|context| {
            ending.retain_mut(|front| front.as_mut().poll(context).is_pending());
            if ending.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// The answers of all, put together.
    async fn each<'a, T, C>(&'a self, ask: impl Fn(&'a dyn FrontEnd) -> Answer<'a, C>) -> T
    where
        T: Default + Extend<C::Item>,
        C: IntoIterator,
    {
        let mut all = T::default();
        for front in &self.0 {
            all.extend(ask(&**front).await);
        }
        all
    }
}

#[cfg(test)]
mod tests;
