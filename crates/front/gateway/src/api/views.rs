//! What the API shows.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::ceph::CephView;
use crate::control::Failures;
use crate::engine::{Engine, ThrottledReport, VolumeReport};
use crate::limits::Budget;
use crate::name::{Eui64, HostName, ListenerAddress, Model, Nguid, Nqn, Serial, VolumeName};
use crate::state::{
    ControllerIds, ExportName, Host, ListenerKind, Namespace, Portal, Protocol, Qos, SocketOptions,
    State, Subsystem, Visibility, Volume,
};

/// Whether a volume can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeStatus {
    /// It is open.
    Online,
    /// It is open, but its medium cannot be reached for now.
    Lost,
    /// It could not be opened; `reason` says why.
    Failed,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    /// Its name.
    pub name: VolumeName,
    /// What it is.
    pub url: String,
    /// Whether it can be used.
    pub status: VolumeStatus,
    /// Why it is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it is like; missing while it is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<VolumeReport>,
    /// The namespaces that serve it.
    pub namespaces: Vec<NamespaceName>,
}

/// Which namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceName {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The NSID.
    pub nsid: u32,
}

impl VolumeView {
    pub(super) fn new(
        state: &State,
        failures: &Failures,
        engine: &dyn Engine,
        name: &VolumeName,
        volume: &Volume,
    ) -> Self {
        let report = engine.volume(name);
        let status = match &report {
            None => VolumeStatus::Failed,
            Some(report) if report.lost => VolumeStatus::Lost,
            Some(_) => VolumeStatus::Online,
        };
        let namespace = |(nqn, nsid): (&Nqn, std::num::NonZeroU32)| NamespaceName {
            subsystem: nqn.clone(),
            nsid: nsid.get(),
        };
        Self {
            name: name.clone(),
            url: volume.url.clone(),
            status,
            reason: failures.volumes.get(name).cloned(),
            report,
            namespaces: state.users_of(name).map(namespace).collect(),
        }
    }
}

/// A subsystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubsystemView {
    /// Its NQN.
    pub nqn: Nqn,
    /// Its serial number.
    pub serial: Serial,
    /// Its model number.
    pub model: Model,
    /// Whether any host may connect.
    pub allow_any_host: bool,
    /// The hosts that may connect.
    pub allowed_hosts: Vec<HostName>,
    /// The controller IDs that are given out.
    pub controller_ids: ControllerIds,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceView>,
}

impl SubsystemView {
    pub(super) fn new(engine: &dyn Engine, nqn: &Nqn, subsystem: &Subsystem) -> Self {
        let view = |(nsid, namespace): (&std::num::NonZeroU32, &Namespace)| {
            NamespaceView::new(engine, nqn, nsid.get(), namespace)
        };
        Self {
            nqn: nqn.clone(),
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            allow_any_host: subsystem.allow_any_host,
            allowed_hosts: subsystem.allowed_hosts.iter().cloned().collect(),
            controller_ids: subsystem.controller_ids,
            namespaces: subsystem.namespaces.iter().map(view).collect(),
        }
    }
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceView {
    /// Its subsystem.
    pub subsystem: Nqn,
    /// Its NSID.
    pub nsid: u32,
    /// The volume that it serves.
    pub volume: VolumeName,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its NGUID.
    pub nguid: Nguid,
    /// Its EUI-64.
    pub eui64: Eui64,
    /// Whether hosts may only read it.
    pub read_only: bool,
    /// Its ANA group.
    pub ana_group: u32,
    /// Which of the subsystem's hosts see it.
    pub visible_to: Visibility,
    /// Its limits.
    pub qos: Qos,
    /// What waited for them; missing while its volume is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<ThrottledReport>,
    /// Whether its volume is open, so that hosts can use it.
    pub online: bool,
    /// Its size in bytes; missing while its volume is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

impl NamespaceView {
    pub(super) fn new(engine: &dyn Engine, nqn: &Nqn, nsid: u32, namespace: &Namespace) -> Self {
        let report = engine.volume(&namespace.volume);
        let export = ExportName::Namespace {
            subsystem: nqn.clone(),
            nsid,
        };
        Self {
            subsystem: nqn.clone(),
            nsid,
            volume: namespace.volume.clone(),
            uuid: namespace.uuid,
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            read_only: namespace.read_only,
            ana_group: namespace.ana_group,
            visible_to: namespace.visible_to.clone(),
            qos: namespace.qos,
            throttled: engine.throttled(&export),
            online: report.as_ref().is_some_and(|report| !report.lost),
            size_bytes: report.map(|report| report.size_bytes),
        }
    }
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// Its NQN.
    pub nqn: HostName,
    /// What to remember about it.
    pub note: String,
    /// Options of its connections.
    pub socket_options: SocketOptions,
    /// The subsystems that allow it by name.
    pub subsystems: Vec<Nqn>,
}

impl HostView {
    pub(super) fn new(state: &State, name: &HostName, host: &Host) -> Self {
        let allows = |(_, subsystem): &(&Nqn, &Subsystem)| subsystem.allowed_hosts.contains(name);
        Self {
            nqn: name.clone(),
            note: host.note.clone(),
            socket_options: host.socket_options.clone(),
            subsystems: state
                .subsystems
                .iter()
                .filter(allows)
                .map(|(nqn, _)| nqn.clone())
                .collect(),
        }
    }
}

/// Whether a listener listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListenerStatus {
    /// It does.
    Listening,
    /// It could not be opened; `reason` says why.
    Failed,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListenerView {
    /// Where it was told to listen, or the name that the service manager gave an inherited one.
    pub address: String,
    /// Whether it was inherited from the service manager. Such a listener is not in the state, and
    /// cannot be changed or removed here.
    pub inherited: bool,
    /// What hosts may connect to there.
    pub kind: ListenerKind,
    /// Options of the connections accepted there.
    pub socket_options: SocketOptions,
    /// Whether it listens.
    pub status: ListenerStatus,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The addresses at which it listens.
    #[schema(value_type = Vec<String>)]
    pub bound: Vec<SocketAddr>,
}

impl ListenerView {
    pub(super) fn new(
        failures: &Failures,
        engine: &dyn Engine,
        address: &ListenerAddress,
        portal: &Portal,
    ) -> Self {
        let mut reports = engine.listeners().into_iter();
        let report = reports.find(|report| report.address.as_ref() == Some(address));
        let Protocol::Nvme { kind } = portal.protocol;
        Self {
            address: address.to_string(),
            inherited: false,
            kind,
            socket_options: portal.socket_options.clone(),
            status: match report {
                Some(_) => ListenerStatus::Listening,
                None => ListenerStatus::Failed,
            },
            reason: failures.listeners.get(address).cloned(),
            bound: report.map(|report| report.bound).unwrap_or_default(),
        }
    }

    /// The listeners that were inherited.
    pub(super) fn inherited(engine: &dyn Engine) -> impl Iterator<Item = Self> {
        engine.listeners().into_iter().filter_map(|report| {
            Some(Self {
                address: report.inherited?,
                inherited: true,
                kind: ListenerKind::All,
                socket_options: SocketOptions::default(),
                status: ListenerStatus::Listening,
                reason: None,
                bound: report.bound,
            })
        })
    }
}

/// The gateway as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// The version of the program.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Where the state is kept.
    pub state: String,
    /// How many changes were made to the state, ever.
    pub revision: u64,
    /// The discovery log's generation counter.
    pub discovery_generation: u64,
    /// Volumes.
    pub volumes: usize,
    /// Subsystems.
    pub subsystems: usize,
    /// Namespaces of all subsystems.
    pub namespaces: usize,
    /// Namespaces that have limits.
    pub limited_namespaces: usize,
    /// What waited for the limits of these.
    pub throttled: ThrottledReport,
    /// Registered hosts.
    pub hosts: usize,
    /// Listeners.
    pub listeners: usize,
    /// Connections.
    pub connections: usize,
    /// Reactors.
    pub reactors: usize,
    /// The memory that the gateway takes at worst.
    pub memory: Budget,
    /// Memory of its process that is in the machine's now, in bytes; none where the system does not tell.
    pub resident_bytes: Option<u64>,
    /// The clients of Ceph clusters, and the images that they serve.
    #[serde(default)]
    pub ceph: CephView,
    /// What an operator should look at, a sentence each; empty if all is well.
    pub problems: Vec<String>,
}
