//! What the API shows.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::ceph::CephView;
use crate::control::Failures;
use crate::engine::{ConnectionReport, Engine, SessionReport, ThrottledReport, VolumeReport};
use crate::limits::Budget;
use crate::name::{
    AddressRange, Advertised, Eui64, ExportPath, HostName, IscsiName, ListenerAddress, Model,
    Nguid, Nqn, Serial, VolumeName,
};
use crate::state::{
    ChapUsers, ControllerIds, ExportName, Host, ListenerKind, Lun, Namespace, NfsExport, NfsFile,
    Portal, Protocol, ProtocolName, Qos, SocketOptions, State, Subsystem, Target, Visibility,
    Volume,
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
    /// The logical units that serve it.
    #[serde(default)]
    pub luns: Vec<LunName>,
    /// Paths of the NFS exports that have it as a file.
    #[serde(default)]
    pub exports: Vec<ExportPath>,
    /// Its identity as a logical unit, of which serial number and NAA identifier are made; missing until it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
}

/// Which logical unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LunName {
    /// The target.
    pub target: IscsiName,
    /// The number.
    pub lun: u16,
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
        let lun = |(target, lun): (&IscsiName, u16)| LunName {
            target: target.clone(),
            lun,
        };
        Self {
            name: name.clone(),
            url: volume.url.clone(),
            status,
            reason: failures.volumes.get(name).cloned(),
            report,
            namespaces: state.users_of(name).map(namespace).collect(),
            luns: state.luns_of(name).map(lun).collect(),
            exports: state.exports_of(name).cloned().collect(),
            uuid: volume.uuid,
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

/// An iSCSI target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetView {
    /// Its name.
    pub name: IscsiName,
    /// A description for people, which hosts are shown; none where it is empty.
    pub alias: String,
    /// Whether any host may log in.
    pub allow_any_host: bool,
    /// The hosts that may log in.
    pub allowed_hosts: Vec<HostName>,
    /// The names of CHAP; missing where nothing is to be proved. Secrets are never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapUsers>,
    /// Its logical units.
    pub luns: Vec<LunView>,
}

impl TargetView {
    pub(super) fn new(
        state: &State,
        engine: &dyn Engine,
        name: &IscsiName,
        target: &Target,
    ) -> Self {
        let luns = target.luns.iter();
        let view = |(number, lun): (&u16, &Lun)| LunView::new(state, engine, name, *number, lun);
        Self {
            name: name.clone(),
            alias: target.alias.clone(),
            allow_any_host: target.allow_any_host,
            allowed_hosts: target.allowed_hosts.iter().cloned().collect(),
            chap: target.chap.clone(),
            luns: luns.map(view).collect(),
        }
    }
}

/// A logical unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LunView {
    /// Its target.
    pub target: IscsiName,
    /// Its number.
    pub lun: u16,
    /// The volume that it serves.
    pub volume: VolumeName,
    /// The volume's identity, the same under whatever target: serial number and NAA identifier are made of it.
    pub uuid: Option<Uuid>,
    /// Whether hosts may only read it.
    pub read_only: bool,
    /// Which of the target's hosts see it.
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

impl LunView {
    pub(super) fn new(
        state: &State,
        engine: &dyn Engine,
        name: &IscsiName,
        number: u16,
        lun: &Lun,
    ) -> Self {
        let report = engine.volume(&lun.volume);
        let export = ExportName::Lun {
            target: name.clone(),
            lun: number,
        };
        let volume = state.volumes.get(&lun.volume);
        Self {
            target: name.clone(),
            lun: number,
            volume: lun.volume.clone(),
            uuid: volume.and_then(|volume| volume.uuid),
            read_only: lun.read_only,
            visible_to: lun.visible_to.clone(),
            qos: lun.qos,
            throttled: engine.throttled(&export),
            online: report.as_ref().is_some_and(|report| !report.lost),
            size_bytes: report.map(|report| report.size_bytes),
        }
    }
}

/// An NFS export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportView {
    /// Path at which clients see it.
    pub path: ExportPath,
    /// Source of its files.
    pub source: String,
    /// Its identity for clients.
    pub uuid: Uuid,
    /// Lets clients only read.
    pub read_only: bool,
    /// Lets clients use it whatever their address.
    pub allow_any_host: bool,
    /// The addresses of the clients that may use it.
    #[schema(value_type = Vec<String>, example = json!(["192.0.2.0/24"]))]
    pub allowed_addresses: Vec<AddressRange>,
    /// The volumes that are its files, where it is one of volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileView>,
    /// Reason for which clients have to wait: the directory is not there, as where its disk is not mounted. Missing where all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ExportView {
    pub(super) fn new(
        engine: &dyn Engine,
        path: &ExportPath,
        export: &NfsExport,
        problem: Option<String>,
    ) -> Self {
        let files = export.files.iter();
        let view =
            |(volume, file): (&VolumeName, &NfsFile)| FileView::new(engine, path, volume, file);
        Self {
            files: files.map(view).collect(),
            path: path.clone(),
            source: export.source.clone(),
            uuid: export.uuid,
            read_only: export.read_only,
            allow_any_host: export.allow_any_host,
            allowed_addresses: export.allowed_addresses.iter().copied().collect(),
            problem,
        }
    }
}

/// A volume that is a file of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Path of its export.
    pub export: ExportPath,
    /// The volume, whose name is the file's.
    pub volume: VolumeName,
    /// Lets clients only read it.
    pub read_only: bool,
    /// Its limits.
    pub qos: Qos,
    /// Requests that waited for them; missing while its volume is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<ThrottledReport>,
    /// Says that its volume is open, so that clients can use it.
    pub online: bool,
    /// Its size in bytes; missing while its volume is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

impl FileView {
    pub(super) fn new(
        engine: &dyn Engine,
        path: &ExportPath,
        volume: &VolumeName,
        file: &NfsFile,
    ) -> Self {
        let report = engine.volume(volume);
        let export = ExportName::File {
            path: path.clone(),
            volume: volume.clone(),
        };
        Self {
            export: path.clone(),
            volume: volume.clone(),
            read_only: file.read_only,
            qos: file.qos,
            throttled: engine.throttled(&export),
            online: report.as_ref().is_some_and(|report| !report.lost),
            size_bytes: report.map(|report| report.size_bytes),
        }
    }
}

/// An iSCSI session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Its connection.
    pub connection: u64,
    /// The host's address.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// The reactor that it belongs to.
    pub reactor: u32,
    /// Commands in flight.
    pub in_flight: u32,
    /// Who talks to what, and how.
    #[serde(flatten)]
    pub session: SessionReport,
}

impl SessionView {
    /// The session that a connection is, if it is one.
    pub(super) fn of(connection: ConnectionReport) -> Option<Self> {
        Some(Self {
            connection: connection.id,
            peer: connection.peer,
            reactor: connection.reactor,
            in_flight: connection.in_flight,
            session: connection.session?,
        })
    }
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// Its name.
    pub name: HostName,
    /// The first of its NQNs; missing where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<Nqn>,
    /// The NQNs under which it connects.
    #[serde(default)]
    pub nqns: Vec<Nqn>,
    /// The iSCSI names under which it logs in.
    #[serde(default)]
    pub iqns: Vec<IscsiName>,
    /// What to remember about it.
    pub note: String,
    /// Options of its connections.
    pub socket_options: SocketOptions,
    /// The subsystems that allow it by name.
    pub subsystems: Vec<Nqn>,
    /// The targets that allow it by name.
    #[serde(default)]
    pub targets: Vec<IscsiName>,
}

impl HostView {
    pub(super) fn new(state: &State, name: &HostName, host: &Host) -> Self {
        let allows = |(_, subsystem): &(&Nqn, &Subsystem)| subsystem.allowed_hosts.contains(name);
        let lets_in = |(_, target): &(&IscsiName, &Target)| target.allowed_hosts.contains(name);
        let targets = state.targets.iter().filter(lets_in);
        Self {
            name: name.clone(),
            nqn: host.nqns.first().cloned(),
            nqns: host.nqns.iter().cloned().collect(),
            iqns: host.iqns.iter().cloned().collect(),
            targets: targets.map(|(name, _)| name.clone()).collect(),
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
    /// What is spoken there.
    #[serde(default)]
    pub protocol: ProtocolName,
    /// Kind of what NVMe hosts may connect to there; missing where another protocol is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ListenerKind>,
    /// Where iSCSI hosts are told to connect, where that is not the listener's own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertised>,
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
        let kind = match portal.protocol {
            Protocol::Nvme { kind } => Some(kind),
            Protocol::Iscsi | Protocol::Nfs => None,
        };
        Self {
            address: address.to_string(),
            inherited: false,
            protocol: portal.protocol.into(),
            kind,
            advertise: portal.advertise.clone(),
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
                protocol: ProtocolName::Nvme,
                kind: Some(ListenerKind::All),
                advertise: None,
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
    /// iSCSI targets.
    #[serde(default)]
    pub targets: usize,
    /// NFS exports.
    #[serde(default)]
    pub exports: usize,
    /// Logical units of all targets.
    #[serde(default)]
    pub luns: usize,
    /// Logical units that have limits.
    #[serde(default)]
    pub limited_luns: usize,
    /// Volumes that are files of NFS exports.
    #[serde(default)]
    pub files: usize,
    /// Of these, those with limits.
    #[serde(default)]
    pub limited_files: usize,
    /// iSCSI sessions, those of discovery among them.
    #[serde(default)]
    pub sessions: usize,
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
