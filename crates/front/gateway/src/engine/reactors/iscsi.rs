//! iSCSI as a front end: makes the target's snapshot of the state, and the engine's reports of what the target tells.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{FrontError, FrontStats, Hubs, Latency, Limits, ListenAt};
use weir_iscsi::names::Name;
use weir_iscsi_target::{
    Allowed, Authentication, ConnectionInfo, Credentials, Iscsi, IscsiConfig, ListenerConfig,
    Lun as Offered, Portal, Revoked, SessionInfo, Snapshot, Target as OfferedTarget,
};

use super::counters::io_columns;
use super::front_end::{Answer, Counts, FrontEnd, FrontEndKind, MetricNames, Served, Starting};
use super::listen::{Socket, socket_report};
use crate::config::Config;
use crate::engine::{ConnectionReport, RevokedReport, SessionReport};
use crate::limits::Plan;
use crate::name::{HostName, IscsiName};
use crate::state::{
    ChapSecrets, ChapUsers, ExportName, InitiatorName, Lun, Protocol, State, Target, Visibility,
};

/// iSCSI.
pub(super) const KIND: FrontEndKind = FrontEndKind {
    memory_needs: |config| {
        let in_flight = config.limits.bytes_in_flight_per_connection;
        iscsi_config(config, in_flight).memory_needs()
    },
    start,
};

const NAMES: MetricNames = MetricNames {
    sessions: (
        "weir_iscsi_sessions",
        "iSCSI sessions, those of discovery apart.",
    ),
    group: "target",
    group_columns: io_columns!("weir_target"),
};

/// The front end's configuration, but for the numbers of connections and the bytes of all of them, which are planned. What the
/// configuration says of NVMe's controllers holds for sessions, and of its queues for their command windows.
fn iscsi_config(config: &Config, in_flight: u32) -> IscsiConfig {
    let (limits, defaults) = (&config.limits, IscsiConfig::default());
    let transfer = defaults.transfer_bytes_max.min(in_flight);
    IscsiConfig {
        connections: Limits {
            max_half_open_per_address: limits.half_open_per_address,
            handshake_timeout: limits.handshake_timeout,
            progress_timeout: limits.progress_timeout,
            ..defaults.connections
        },
        sessions_max: limits.controllers,
        sessions_per_initiator_max: limits.controllers_per_host.into(),
        commands_max: limits.queue_depth,
        first_burst_bytes: defaults.first_burst_bytes.min(transfer),
        transfer_bytes_max: transfer,
        bytes_in_flight_per_session: in_flight,
        ..defaults
    }
}

fn start<'a>(hubs: &'a Hubs, config: &'a Config, plan: &'a Plan) -> Starting<'a> {
    let config = iscsi_config(config, plan.bytes_in_flight_per_connection);
    let config = IscsiConfig {
        connections: Limits {
            max_connections: plan.connections,
            max_half_open: plan.half_open_connections,
            max_half_open_per_address: plan.half_open_per_address,
            ..config.connections
        },
        ..config
    };
    Box::pin(async move {
        let target = Iscsi::on(hubs, config).await?;
        let front: Box<dyn FrontEnd> = Box::new(IscsiFront { target });
        Ok(front)
    })
}

/// The target as a front end.
struct IscsiFront {
    target: Iscsi,
}

impl FrontEnd for IscsiFront {
    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Iscsi
    }

    fn apply<'a>(&'a self, served: &'a Served) -> Answer<'a, Result<(), FrontError>> {
        Box::pin(self.target.apply(snapshot(served)))
    }

    fn revoked(&self) -> Answer<'_, Vec<RevokedReport>> {
        let report = |(of, requests): (Revoked, u64)| RevokedReport {
            host: InitiatorName::Iqn(of.initiator.into()),
            export: export(of.target.into(), of.lun),
            requests,
        };
        Box::pin(async move {
            let revoked = self.target.revoked().await.into_iter();
            revoked.map(report).collect()
        })
    }

    fn listen(&self, at: ListenAt<Protocol>) -> Answer<'_, Result<SocketAddr, FrontError>> {
        Box::pin(self.target.add_listener(ListenerConfig {
            address: at.address,
            options: at.options,
            inherited: at.inherited,
        }))
    }

    fn set_options(
        &self,
        address: SocketAddr,
        options: weir_reactor::SocketOptions,
    ) -> Answer<'_, Result<(), FrontError>> {
        Box::pin(self.target.set_listener_options(address, options))
    }

    fn stop_listening(&self, address: SocketAddr) -> Answer<'_, Result<(), FrontError>> {
        Box::pin(self.target.remove_listener(address))
    }

    fn connections(&self) -> Answer<'_, Vec<ConnectionReport>> {
        Box::pin(async {
            let connections = self.target.connections().await;
            connections.into_iter().map(connection_report).collect()
        })
    }

    fn disconnect(&self, id: u64) -> Answer<'_, Result<(), FrontError>> {
        Box::pin(self.target.disconnect(id))
    }

    fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> Answer<'_, BTreeMap<ExportName, Latency>> {
        let is_of_another = |only: &ExportName| only.clone().lun().is_none();
        if only.as_ref().is_some_and(is_of_another) {
            return Box::pin(std::future::ready(BTreeMap::new()));
        }
        let only = only.and_then(ExportName::lun);
        let only = only.map(|(target, lun)| (target.wire().clone(), lun.into()));
        Box::pin(async {
            let all = self.target.lun_latencies(only).await.into_iter();
            all.map(|((target, lun), latency)| (export(target.into(), lun as u16), latency))
                .collect()
        })
    }

    fn connection_latencies(&self, only: Option<u64>) -> Answer<'_, BTreeMap<u64, Latency>> {
        Box::pin(self.target.connection_latencies(only))
    }

    fn volume_latencies<'a>(&'a self, volumes: &'a [Arc<dyn Volume>]) -> Answer<'a, Vec<Latency>> {
        Box::pin(self.target.volume_latencies(volumes))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        Box::pin(async {
            let stats = self.target.stats();
            let groups = stats.targets.into_iter();
            let latencies = self.target.target_latencies().await.into_iter();
            Counts {
                names: &NAMES,
                stats: FrontStats {
                    connections: stats.connections,
                    half_open: stats.half_open,
                    waiting: stats.waiting,
                    reactors: stats.reactors,
                    bytes_in_flight: Vec::new(),
                },
                sessions: stats.sessions,
                groups: groups.map(|(name, io)| (name.to_string(), io)).collect(),
                latencies: latencies.map(|(name, of)| (name.to_string(), of)).collect(),
            }
        })
    }

    fn shutdown(&self, drain: Duration) -> Answer<'_, ()> {
        Box::pin(self.target.shutdown(drain))
    }
}

fn export(target: IscsiName, lun: u16) -> ExportName {
    ExportName::Lun { target, lun }
}

/// The state as the target serves it. A logical unit whose volume is not open is left out: hosts see it when the volume is open again.
fn snapshot(served: &Served) -> Snapshot {
    let targets = served.state.targets.iter();
    Snapshot {
        targets: targets
            .map(|(name, found)| target(served, name, found))
            .collect(),
        portals: portals(&served.sockets),
    }
}

fn target(served: &Served, name: &IscsiName, target: &Target) -> OfferedTarget {
    let state = &*served.state;
    let mut offered = OfferedTarget::new(name.wire().clone());
    offered.alias = Some(target.alias.clone()).filter(|alias| !alias.is_empty());
    offered.allowed = if target.allow_any_host {
        Allowed::Any
    } else {
        Allowed::List(wire(state, &target.allowed_hosts))
    };
    if let Some(users) = &target.chap {
        match state.secrets.chap.get(name) {
            Some(secrets) => offered.authentication = authentication(users, secrets),
            // A state is refused without its secrets. Were they to be missing all the same, nobody would be let in.
            None => offered.allowed = Allowed::List(BTreeSet::new()),
        }
    }
    let luns = target.luns.iter();
    offered.luns = luns
        .filter_map(|(number, found)| lun(served, name, *number, found))
        .collect();
    offered
}

fn authentication(users: &ChapUsers, secrets: &ChapSecrets) -> Authentication {
    let own = users.mutual_user.as_ref().zip(secrets.target.as_ref());
    Authentication::Chap {
        initiator: Credentials {
            user: users.user.clone(),
            secret: secrets.initiator.expose().to_owned(),
        },
        target: own.map(|(user, secret)| Credentials {
            user: user.clone(),
            secret: secret.expose().to_owned(),
        }),
    }
}

fn lun(served: &Served, name: &IscsiName, number: u16, lun: &Lun) -> Option<Offered> {
    let volume = served.exports.get(&export(name.clone(), number))?;
    let identity = served.state.volumes.get(&lun.volume)?.uuid?;
    Some(Offered {
        number,
        volume: volume.clone(),
        counted: volume.guard().clone(),
        identity: identity.into_bytes(),
        read_only: lun.read_only,
        visible_to: match &lun.visible_to {
            Visibility::All => Allowed::Any,
            Visibility::Hosts(hosts) => Allowed::List(wire(&served.state, hosts)),
        },
        reservations: served.reservations.get(&lun.volume).cloned(),
    })
}

fn wire(state: &State, hosts: &BTreeSet<HostName>) -> BTreeSet<Name> {
    state.iqns(hosts).map(|name| name.wire().clone()).collect()
}

/// Every socket of iSCSI that listens is a portal that discovery tells of.
fn portals(sockets: &[Socket]) -> Vec<Portal> {
    let own = sockets
        .iter()
        .filter(|socket| socket.protocol == Protocol::Iscsi);
    let portal = |socket: &Socket| Portal {
        address: socket.address,
        advertise: socket.advertise.as_ref().map(ToString::to_string),
    };
    own.map(portal).collect()
}

fn connection_report(info: ConnectionInfo) -> ConnectionReport {
    ConnectionReport {
        id: info.id,
        peer: info.peer,
        local: info.local,
        reactor: info.reactor as u32,
        queue: None,
        session: info.session.map(session_report),
        client: None,
        in_flight: info.in_flight,
        received_bytes: info.bytes_received,
        sent_bytes: info.bytes_sent,
        socket: info.socket.map(socket_report),
    }
}

fn session_report(info: SessionInfo) -> SessionReport {
    SessionReport {
        initiator: info.initiator.into(),
        alias: info.alias,
        isid: info.isid.to_string(),
        target: info.target.map(Into::into),
        tsih: info.tsih.0,
        user: info.user,
        header_digest: info.header_digest,
        data_digest: info.data_digest,
    }
}

#[cfg(test)]
mod tests;
