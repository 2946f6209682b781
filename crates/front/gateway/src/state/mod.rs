//! The live state: what the control API changes and the store keeps.
//!
//! A [`State`] is a plain value. A [`Change`] makes the next one from it without any side effect,
//! and every rule about what may be together is here, in [`State::check`] and in the change itself.
//! What a gateway group needs later is in it from the start: controller ID ranges, serial numbers,
//! ANA groups, generation counters.

mod change;
mod error;
mod export;
mod iscsi;
mod nfs;
mod nvme;
mod qos;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_reservation::StoredTable;

pub use self::change::{
    Change, HostPatch, HostSpec, ListenerPatch, ListenerSpec, Outcome, ProtocolName, Random,
};
pub use self::error::{Kind, StateError};
pub use self::export::{Export, ExportName, InitiatorName};
pub use self::iscsi::{
    ALIAS_LENGTH_MAX, Chap, ChapUsers, Credentials, IscsiChange, LUN_MAX, Lun, LunPatch, LunSpec,
    Target, TargetPatch, TargetSpec, USER_LENGTH_MAX,
};
pub use self::nfs::{
    DIRECTORY_SCHEME, ExportPatch, ExportSpec, FileSpec, NfsChange, NfsExport, NfsFile,
    VOLUMES_SOURCE,
};
pub use self::nvme::{
    ANA_GROUP, CONTROLLER_ID_MAX, ControllerIds, ListenerKind, NSID_MAX, Namespace, NamespacePatch,
    NamespaceSpec, NvmeChange, Subsystem, SubsystemPatch, SubsystemSpec, Visibility,
};
pub use self::qos::{Qos, QosLimit, QosLimitPatch, QosPatch};
pub use self::secrets::{ChapSecrets, Secret, Secrets};
use crate::name::{Advertised, ExportPath, HostName, IscsiName, ListenerAddress, Nqn, VolumeName};

/// Most volumes in one state.
pub const VOLUMES_MAX: usize = 4096;
/// Most registered hosts in one state.
pub const HOSTS_MAX: usize = 4096;
/// Most subsystems in one state.
pub const SUBSYSTEMS_MAX: usize = 512;
/// Most targets in one state.
pub const TARGETS_MAX: usize = 512;
/// Most exports in one state.
pub const EXPORTS_MAX: usize = 1024;
/// Most portals in one state.
pub const PORTALS_MAX: usize = 64;
/// Longest volume URL, in bytes.
pub const URL_LENGTH_MAX: usize = 4096;
/// Longest note on a host, in bytes.
pub const NOTE_LENGTH_MAX: usize = 256;

/// Everything that changes live. That of a gateway that was never told anything is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Counts the changes made to this state, ever.
    pub revision: u64,
    /// The discovery log's generation counter: counts the changes that any host could see there
    /// (NVMe Base 2.0, Discovery Log Page, GENCTR).
    pub discovery_generation: u64,
    /// The volumes by name.
    pub volumes: BTreeMap<VolumeName, Volume>,
    /// The registered hosts by name.
    pub hosts: BTreeMap<HostName, Host>,
    /// The subsystems by NQN.
    pub subsystems: BTreeMap<Nqn, Subsystem>,
    /// The iSCSI targets by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<IscsiName, Target>,
    /// The NFS exports by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exports: BTreeMap<ExportPath, NfsExport>,
    /// The last number that an export, or a file of one, was given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_export: u32,
    /// The portals by address.
    pub portals: BTreeMap<ListenerAddress, Portal>,
    /// The secrets; in JSON, the generation of the file that has them.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
}

/// Tells whether a number is none.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A volume that the gateway keeps open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// What the volume is, such as `file:/srv/images?size=10G`.
    pub url: String,
    /// Its identity, under whatever target it is served: serial number and NAA identifier are made of it. It is made when the volume
    /// becomes a logical unit for the first time, and kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// The registrations and the reservation of hosts that are to outlast a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<StoredTable>,
}

impl Volume {
    /// A volume that was no logical unit yet.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            uuid: None,
            reservations: None,
        }
    }
}

/// A host: a machine that may be allowed to use what is served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The NQNs under which it connects; no two hosts share one.
    pub nqns: BTreeSet<Nqn>,
    /// The iSCSI names under which it logs in; no two hosts share one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub iqns: BTreeSet<IscsiName>,
    /// What the operator wants to remember about it.
    pub note: String,
    /// Options of this host's connections; they go before the portal's.
    pub socket_options: SocketOptions,
}

/// A portal: where hosts connect, known by its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Portal {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Where iSCSI hosts are told to connect, where that is not its own address, as behind a NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertised>,
    /// Options of the connections accepted there.
    pub socket_options: SocketOptions,
}

/// A protocol, with what a portal of it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Protocol {
    /// NVMe/TCP: what the API calls a listener.
    Nvme {
        /// What hosts may connect to there.
        kind: ListenerKind,
    },
    /// iSCSI.
    Iscsi,
    /// NFS.
    Nfs,
}

/// Options of TCP connections. What is not given is left to the system or to the next in line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// Send buffer in bytes (`SO_SNDBUF`); the kernel doubles it for its own bookkeeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<u32>,
    /// Receive buffer in bytes (`SO_RCVBUF`); the kernel doubles it for its own bookkeeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u32>,
    /// Congestion control algorithm by its kernel name (`TCP_CONGESTION`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Differentiated services code point, 0 to 63 (`IP_TOS`, `IPV6_TCLASS`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Class of service for the queueing discipline, 0 to 15 (`SO_PRIORITY`); above 6 needs
    /// CAP_NET_ADMIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

impl SocketOptions {
    /// Smallest socket buffer, in bytes.
    pub const BUFFER_MIN: u32 = 4 * 1024;
    /// Largest socket buffer, in bytes.
    pub const BUFFER_MAX: u32 = 1024 * 1024 * 1024;
    /// Longest congestion control name, in bytes (`TCP_CA_NAME_MAX` less its NUL).
    pub const CONGESTION_CONTROL_LENGTH_MAX: usize = 15;
    /// Largest differentiated services code point (RFC 2474, 3).
    pub const DSCP_MAX: u8 = 63;
    /// Largest socket priority (`TC_PRIO_MAX`).
    pub const PRIORITY_MAX: u8 = 15;

    /// Checks every given option against its range.
    ///
    /// # Errors
    /// The first option that is out of its range.
    pub fn check(&self) -> Result<(), StateError> {
        let buffers = [
            ("send_buffer", self.send_buffer),
            ("receive_buffer", self.receive_buffer),
        ];
        for (name, buffer) in buffers {
            if buffer.is_some_and(|bytes| !(Self::BUFFER_MIN..=Self::BUFFER_MAX).contains(&bytes)) {
                return Err(StateError::invalid(name, "must be 4 KiB to 1 GiB"));
            }
        }
        if let Some(name) = &self.congestion_control {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            let length = 1..=Self::CONGESTION_CONTROL_LENGTH_MAX;
            if !length.contains(&name.len()) || !name.bytes().all(allowed) {
                let problem =
                    "must be a name from /proc/sys/net/ipv4/tcp_available_congestion_control";
                return Err(StateError::invalid("congestion_control", problem));
            }
        }
        if self.dscp.is_some_and(|dscp| dscp > Self::DSCP_MAX) {
            return Err(StateError::invalid("dscp", "must be 0 to 63"));
        }
        if self
            .priority
            .is_some_and(|priority| priority > Self::PRIORITY_MAX)
        {
            return Err(StateError::invalid("priority", "must be 0 to 15"));
        }
        Ok(())
    }
}

impl State {
    /// Checks everything that must hold in any state, however it was made.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), StateError> {
        self.check_limits()?;
        for (name, volume) in &self.volumes {
            check_url(name, &volume.url)?;
        }
        for (name, host) in &self.hosts {
            check_note(&host.note)?;
            host.socket_options.check()?;
            nvme::check_host(name, &host.nqns)?;
            iscsi::check_host(name, &host.iqns)?;
        }
        for portal in self.portals.values() {
            portal.socket_options.check()?;
            if portal.advertise.is_some() && portal.protocol != Protocol::Iscsi {
                let problem = "is for listeners of iSCSI";
                return Err(StateError::invalid("advertise", problem));
            }
        }
        for (nqn, subsystem) in &self.subsystems {
            self.check_subsystem(nqn, subsystem)?;
        }
        for (name, target) in &self.targets {
            self.check_target(name, target)?;
        }
        self.check_exports()?;
        self.check_secrets()?;
        self.check_identifiers()
    }

    fn check_limits(&self) -> Result<(), StateError> {
        let counts = [
            (Kind::Volume, self.volumes.len(), VOLUMES_MAX),
            (Kind::Host, self.hosts.len(), HOSTS_MAX),
            (Kind::Subsystem, self.subsystems.len(), SUBSYSTEMS_MAX),
            (Kind::Target, self.targets.len(), TARGETS_MAX),
            (Kind::Export, self.exports.len(), EXPORTS_MAX),
            (Kind::Listener, self.portals.len(), PORTALS_MAX),
        ];
        match counts.into_iter().find(|(_, count, limit)| count > limit) {
            Some((kind, _, limit)) => Err(StateError::LimitReached { kind, limit }),
            None => Ok(()),
        }
    }

    /// The volume named `name`.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn volume(&self, name: &VolumeName) -> Result<&Volume, StateError> {
        let unknown = || StateError::unknown(Kind::Volume, name, self.volumes.keys());
        self.volumes.get(name).ok_or_else(unknown)
    }

    /// The host named `name`.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn host(&self, name: &HostName) -> Result<&Host, StateError> {
        let unknown = || StateError::unknown(Kind::Host, name, self.hosts.keys());
        self.hosts.get(name).ok_or_else(unknown)
    }

    /// The NQNs of the hosts of these names.
    pub fn nqns<'a>(&'a self, hosts: &'a BTreeSet<HostName>) -> impl Iterator<Item = &'a Nqn> {
        let found = hosts.iter().filter_map(|name| self.hosts.get(name));
        found.flat_map(|host| &host.nqns)
    }

    /// The portal at `address`.
    ///
    /// # Errors
    /// There is none; the error knows the closest address.
    pub fn portal(&self, address: &ListenerAddress) -> Result<&Portal, StateError> {
        let unknown = || StateError::unknown(Kind::Listener, address, self.portals.keys());
        self.portals.get(address).ok_or_else(unknown)
    }
}

/// Checks what can be said of a volume URL without opening it.
fn check_url(name: &VolumeName, url: &str) -> Result<(), StateError> {
    let refuse = |problem: &str| {
        Err(StateError::invalid(
            format!("URL of volume {name}"),
            problem,
        ))
    };
    if url.is_empty() || url.len() > URL_LENGTH_MAX {
        return refuse("must have 1 to 4096 bytes");
    }
    if url.chars().any(char::is_control) {
        return refuse("must not hold control characters");
    }
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if scheme.is_empty() || !scheme.bytes().all(allowed) {
        return refuse("must start with the kind of volume, as in file:/srv/images?size=10G");
    }
    Ok(())
}

/// Checks a host's note.
fn check_note(note: &str) -> Result<(), StateError> {
    if note.len() > NOTE_LENGTH_MAX || note.chars().any(char::is_control) {
        let problem = "must be one line of at most 256 bytes";
        return Err(StateError::invalid("note", problem));
    }
    Ok(())
}
