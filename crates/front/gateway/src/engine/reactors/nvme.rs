//! NVMe/TCP as a front end: makes the target's snapshot of the state, and the engine's reports of what the target tells.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{FrontError, FrontStats, Hubs, Latency, ListenAt};
use weir_nvme_target::{
    Allowed, AnaState, ConnectionInfo, HostOptions, ListenerConfig, Namespace as Offered, Port,
    Revoked, Snapshot, Subsystem as OfferedSubsystem, Target, TargetConfig,
};

use super::counters::io_columns;
use super::front_end::{Answer, Counts, FrontEnd, FrontEndKind, MetricNames, Served, Starting};
use super::listen::{Socket, socket_options, socket_report};
use crate::config::Config;
use crate::engine::{ConnectionReport, QueueReport, RevokedReport};
use crate::limits::Plan;
use crate::name::{HostName, Nqn};
use crate::state::{
    ExportName, InitiatorName, ListenerKind, Namespace, Protocol, State, Subsystem, Visibility,
};

/// NVMe/TCP.
pub(super) const KIND: FrontEndKind = FrontEndKind {
    memory_needs: |config| target_config(config).memory_needs(),
    start,
};

/// The protocol of a listener for everything.
pub(super) const PROTOCOL: Protocol = Protocol::Nvme {
    kind: ListenerKind::All,
};

const NAMES: MetricNames = MetricNames {
    sessions: ("weir_controllers", "Controllers."),
    group: "subsystem",
    group_columns: io_columns!("weir_subsystem"),
};

/// The target's configuration, but for the numbers of connections and the bytes of all of them, which are planned.
fn target_config(config: &Config) -> TargetConfig {
    let (limits, transport) = (&config.limits, &config.transport);
    TargetConfig {
        max_half_open_per_address: limits.half_open_per_address,
        controllers_max: limits.controllers,
        bytes_in_flight_per_connection: limits.bytes_in_flight_per_connection,
        handshake_timeout: limits.handshake_timeout,
        progress_timeout: limits.progress_timeout,
        queue_depth: limits.queue_depth,
        io_queues_max: limits.io_queues,
        controllers_per_host_max: limits.controllers_per_host,
        in_capsule_bytes: transport.in_capsule_size,
        mdts_bytes: transport.data_transfer_size_max,
        ..TargetConfig::default()
    }
}

fn start<'a>(hubs: &'a Hubs, config: &'a Config, plan: &'a Plan) -> Starting<'a> {
    let config = TargetConfig {
        max_connections: plan.connections,
        max_half_open: plan.half_open_connections,
        max_half_open_per_address: plan.half_open_per_address,
        io_queues_max: plan.io_queues,
        bytes_in_flight: plan.pool_bytes,
        bytes_in_flight_per_connection: plan.bytes_in_flight_per_connection,
        ..target_config(config)
    };
    Box::pin(async move {
        let target = Target::on(hubs, config).await?;
        let front: Box<dyn FrontEnd> = Box::new(NvmeTcp { target });
        Ok(front)
    })
}

/// The target as a front end.
struct NvmeTcp {
    target: Target,
}

impl FrontEnd for NvmeTcp {
    fn speaks(&self, protocol: Protocol) -> bool {
        matches!(protocol, Protocol::Nvme { .. })
    }

    fn apply<'a>(&'a self, served: &'a Served) -> Answer<'a, Result<(), FrontError>> {
        Box::pin(self.target.apply(snapshot(served)))
    }

    fn revoked(&self) -> Answer<'_, Vec<RevokedReport>> {
        let report = |(of, requests): (Revoked, u64)| RevokedReport {
            host: InitiatorName::Nqn(of.host_nqn.into()),
            export: export(of.subsystem_nqn.into(), of.nsid),
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
            discovery_only: is_discovery(at.port),
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
        let is_of_another = |only: &ExportName| only.clone().namespace().is_none();
        if only.as_ref().is_some_and(is_of_another) {
            return Box::pin(std::future::ready(BTreeMap::new()));
        }
        let only = only.and_then(ExportName::namespace);
        let only = only.map(|(nqn, nsid)| (nqn.wire().clone(), nsid));
        Box::pin(async {
            let all = self.target.namespace_latencies(only).await.into_iter();
            all.map(|((nqn, nsid), latency)| (export(nqn.into(), nsid), latency))
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
            let groups = stats.subsystems.into_iter();
            let latencies = self.target.subsystem_latencies().await.into_iter();
            Counts {
                names: &NAMES,
                stats: FrontStats {
                    connections: stats.connections,
                    half_open: stats.half_open,
                    waiting: stats.waiting,
                    reactors: stats.reactors,
                    bytes_in_flight: stats.bytes_in_flight,
                },
                sessions: stats.controllers,
                groups: groups.map(|(nqn, io)| (nqn.to_string(), io)).collect(),
                latencies: latencies.map(|(nqn, of)| (nqn.to_string(), of)).collect(),
            }
        })
    }

    fn shutdown(&self, drain: Duration) -> Answer<'_, ()> {
        Box::pin(self.target.shutdown(drain))
    }
}

fn export(subsystem: Nqn, nsid: u32) -> ExportName {
    ExportName::Namespace { subsystem, nsid }
}

/// The state as the target serves it. A namespace whose volume is not open is left out: hosts see it when the volume is open again.
fn snapshot(served: &Served) -> Snapshot {
    let state = &*served.state;
    let hosts = state
        .hosts
        .values()
        .filter(|host| host.socket_options != Default::default());
    Snapshot {
        generation: state.discovery_generation,
        subsystems: state
            .subsystems
            .iter()
            .map(|(nqn, found)| subsystem(served, nqn, found))
            .collect(),
        hosts: hosts
            .flat_map(|host| host.nqns.iter().map(move |nqn| (nqn, host)))
            .map(|(nqn, host)| HostOptions {
                nqn: nqn.wire().clone(),
                options: socket_options(&host.socket_options),
            })
            .collect(),
        ports: ports(&served.sockets),
    }
}

fn subsystem(served: &Served, nqn: &Nqn, subsystem: &Subsystem) -> OfferedSubsystem {
    let mut offered = OfferedSubsystem::new(nqn.wire().clone(), subsystem.serial.as_str());
    offered.model = subsystem.model.to_string();
    offered.allowed = if subsystem.allow_any_host {
        Allowed::Any
    } else {
        Allowed::List(wire(&served.state, &subsystem.allowed_hosts))
    };
    offered.controller_ids = subsystem.controller_ids.min..=subsystem.controller_ids.max;
    let namespaces = subsystem.namespaces.iter();
    offered.namespaces = namespaces
        .filter_map(|(nsid, found)| namespace(served, nqn, *nsid, found))
        .collect();
    offered
}

fn namespace(
    served: &Served,
    nqn: &Nqn,
    nsid: NonZeroU32,
    namespace: &Namespace,
) -> Option<Offered> {
    let volume = served.exports.get(&export(nqn.clone(), nsid.get()))?;
    Some(Offered {
        nsid: nsid.get(),
        volume: volume.clone(),
        counted: volume.guard().clone(),
        uuid: namespace.uuid.into_bytes(),
        nguid: namespace.nguid.bytes(),
        eui64: namespace.eui64.bytes(),
        read_only: namespace.read_only,
        visible_to: match &namespace.visible_to {
            Visibility::All => Allowed::Any,
            Visibility::Hosts(hosts) => Allowed::List(wire(&served.state, hosts)),
        },
        ana_group: namespace.ana_group,
        ana_state: AnaState::Optimized,
        reservations: served.reservations.get(&namespace.volume).cloned(),
    })
}

fn wire(state: &State, hosts: &BTreeSet<HostName>) -> BTreeSet<weir_nvme::Nqn> {
    state.nqns(hosts).map(|nqn| nqn.wire().clone()).collect()
}

/// Every socket of NVMe that listens is a port of the discovery log.
fn ports(sockets: &[Socket]) -> Vec<Port> {
    let own = |socket: &&Socket| matches!(socket.protocol, Protocol::Nvme { .. });
    let port = |(socket, id): (&Socket, _)| Port {
        address: socket.address,
        id,
        discovery_only: is_discovery(socket.protocol),
    };
    sockets.iter().filter(own).zip(1..).map(port).collect()
}

fn is_discovery(protocol: Protocol) -> bool {
    let kind = ListenerKind::Discovery;
    protocol == Protocol::Nvme { kind }
}

fn connection_report(info: ConnectionInfo) -> ConnectionReport {
    let queue = info.association.zip(info.queue);
    let queue = queue.map(|(association, agreed)| QueueReport {
        host: association.host_nqn.into(),
        subsystem: association.subsystem_nqn.into(),
        controller_id: association.controller_id,
        queue_id: association.qid,
        queue_depth: agreed.entries,
        flow_control: agreed.flow_control,
        header_digest: agreed.header_digest,
        data_digest: agreed.data_digest,
    });
    ConnectionReport {
        id: info.id,
        peer: info.peer,
        local: info.local,
        reactor: info.reactor as u32,
        queue,
        session: None,
        client: None,
        in_flight: info.in_flight,
        received_bytes: info.bytes_received,
        sent_bytes: info.bytes_sent,
        socket: info.socket.map(socket_report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_all_of_its_nqns() {
        let nqn = |name: &str| -> Nqn { format!("nqn.2026-01.a:{name}").parse().unwrap() };
        let text = r#"{"revision": 1, "discovery_generation": 1, "volumes": {}, "portals": {},
            "hosts": {"m": {"nqns": ["nqn.2026-01.a:h", "nqn.2026-01.a:i"], "note": "", "socket_options": {"dscp": 1}}},
            "subsystems": {"nqn.2026-01.a:s": {"serial": "S", "model": "M", "allow_any_host": false, "allowed_hosts": ["m"],
            "controller_ids": {"min": 1, "max": 9}, "ana_changes": 0, "namespaces": {}}}}"#;
        let state: State = serde_json::from_str(text).unwrap();
        let snapshot = snapshot(&Served {
            state: Arc::new(state),
            ..Served::default()
        });
        let both = BTreeSet::from(["h", "i"].map(|name| nqn(name).wire().clone()));
        assert!(snapshot.hosts.iter().map(|host| &host.nqn).eq(&both));
        let Allowed::List(allowed) = &snapshot.subsystems[0].allowed else {
            panic!("not everybody is allowed");
        };
        assert_eq!(allowed, &both);
    }
}
