//! The live state: what the control API changes and the store keeps.
//!
//! A [`State`] is a plain value. A [`Change`] makes the next one from it without any side effect,
//! and every rule about what may be together is here, in [`State::check`] and in the change itself.
//! What a gateway group needs later is in it from the start: controller ID ranges, serial numbers,
//! ANA groups, generation counters.

mod change;
mod error;
mod qos;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use self::change::{
    Change, HostPatch, HostSpec, ListenerPatch, ListenerSpec, NamespacePatch, NamespaceSpec,
    Outcome, Random, SubsystemPatch, SubsystemSpec,
};
pub use self::error::{Kind, StateError};
pub use self::qos::{Qos, QosLimit, QosLimitPatch, QosPatch};
use crate::name::{Eui64, ListenerAddress, Model, Nguid, Nqn, Serial, VolumeName};

/// Most volumes in one state.
pub const VOLUMES_MAX: usize = 4096;
/// Most registered hosts in one state.
pub const HOSTS_MAX: usize = 4096;
/// Most subsystems in one state.
pub const SUBSYSTEMS_MAX: usize = 512;
/// Most listeners in one state.
pub const LISTENERS_MAX: usize = 64;
/// Largest NSID and most namespaces of one subsystem: what Identify Controller reports as NN.
pub const NSID_MAX: u32 = 1024;
/// The one ANA group of a gateway that is not in a group.
pub const ANA_GROUP: u32 = 1;
/// Largest controller ID: FFF0h and above are reserved (NVMe-oF 1.1, 3.3; NVMe Base 2.0, 3.1.2).
pub const CONTROLLER_ID_MAX: u16 = 0xffef;
/// Longest volume URL, in bytes.
pub const URL_LENGTH_MAX: usize = 4096;
/// Longest note on a host, in bytes.
pub const NOTE_LENGTH_MAX: usize = 256;

/// Everything that changes live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Counts the changes made to this state, ever.
    pub revision: u64,
    /// The discovery log's generation counter: counts the changes that any host could see there
    /// (NVMe Base 2.0, Discovery Log Page, GENCTR).
    pub discovery_generation: u64,
    /// The volumes by name.
    pub volumes: BTreeMap<VolumeName, Volume>,
    /// The registered hosts by HOSTNQN.
    pub hosts: BTreeMap<Nqn, Host>,
    /// The subsystems by NQN.
    pub subsystems: BTreeMap<Nqn, Subsystem>,
    /// The listeners by address.
    pub listeners: BTreeMap<ListenerAddress, Listener>,
}

/// A volume that the gateway keeps open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// What the volume is, such as `file:/srv/images?size=10G`.
    pub url: String,
}

/// A host that may be allowed to connect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// What the operator wants to remember about it.
    pub note: String,
    /// Options of this host's connections; they go before the listener's.
    pub socket_options: SocketOptions,
}

/// An NVM subsystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subsystem {
    /// The serial number, generated once unless given.
    pub serial: Serial,
    /// The model number.
    pub model: Model,
    /// Whether hosts that are not in `allowed_hosts` may connect.
    pub allow_any_host: bool,
    /// The hosts that may connect.
    pub allowed_hosts: BTreeSet<Nqn>,
    /// The controller IDs that this gateway gives out.
    pub controller_ids: ControllerIds,
    /// The ANA log page's change count (NVMe Base 2.0, ANA Log Page).
    pub ana_changes: u64,
    /// The namespaces by NSID.
    pub namespaces: BTreeMap<NonZeroU32, Namespace>,
}

/// An inclusive range of controller IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllerIds {
    /// The lowest ID, at least 1.
    pub min: u16,
    /// The highest ID, at most 65519.
    pub max: u16,
}

impl Default for ControllerIds {
    fn default() -> Self {
        Self {
            min: 1,
            max: CONTROLLER_ID_MAX,
        }
    }
}

/// A namespace of a subsystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// The volume it serves.
    pub volume: VolumeName,
    /// Its UUID, generated once unless given.
    pub uuid: Uuid,
    /// Its NGUID, generated once unless given.
    pub nguid: Nguid,
    /// Its EUI-64, generated once unless given.
    pub eui64: Eui64,
    /// Whether hosts may only read it.
    pub read_only: bool,
    /// Its ANA group.
    pub ana_group: u32,
    /// Which of the subsystem's hosts see it.
    pub visible_to: Visibility,
    /// Its limits.
    pub qos: Qos,
}

/// Which of a subsystem's hosts see a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Every host that may connect.
    #[default]
    All,
    /// These hosts only.
    Hosts(BTreeSet<Nqn>),
}

impl Visibility {
    /// Whether `host` sees the namespace.
    pub fn includes(&self, host: &Nqn) -> bool {
        match self {
            Self::All => true,
            Self::Hosts(hosts) => hosts.contains(host),
        }
    }
}

/// A listener, known by its address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// What hosts may connect to there.
    pub kind: ListenerKind,
    /// Options of the connections accepted there.
    pub socket_options: SocketOptions,
}

/// What hosts may connect to at a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListenerKind {
    /// The NVM subsystems and the discovery subsystem.
    #[default]
    All,
    /// The discovery subsystem only.
    Discovery,
}

impl std::fmt::Display for ListenerKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::All => "all",
            Self::Discovery => "discovery",
        })
    }
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

impl Default for State {
    /// The state of a gateway that was never told anything.
    fn default() -> Self {
        Self {
            revision: 0,
            discovery_generation: 0,
            volumes: BTreeMap::new(),
            hosts: BTreeMap::new(),
            subsystems: BTreeMap::new(),
            listeners: BTreeMap::new(),
        }
    }
}

impl State {
    /// The namespaces that serve `volume`, as subsystem and NSID.
    pub fn users_of<'a>(
        &'a self,
        volume: &'a VolumeName,
    ) -> impl Iterator<Item = (&'a Nqn, NonZeroU32)> {
        self.namespaces()
            .filter(move |(_, _, namespace)| namespace.volume == *volume)
            .map(|(nqn, nsid, _)| (nqn, nsid))
    }

    /// Every namespace with its subsystem's NQN and its NSID.
    pub fn namespaces(&self) -> impl Iterator<Item = (&Nqn, NonZeroU32, &Namespace)> {
        self.subsystems.iter().flat_map(|(nqn, subsystem)| {
            subsystem
                .namespaces
                .iter()
                .map(move |(nsid, namespace)| (nqn, *nsid, namespace))
        })
    }

    /// Whether `host` may connect to the subsystem named `nqn`; false if there is none.
    pub fn admits(&self, nqn: &Nqn, host: &Nqn) -> bool {
        self.subsystems
            .get(nqn)
            .is_some_and(|found| found.allow_any_host || found.allowed_hosts.contains(host))
    }

    /// Checks everything that must hold in any state, however it was made.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), StateError> {
        self.check_limits()?;
        for (name, volume) in &self.volumes {
            check_url(name, &volume.url)?;
        }
        for host in self.hosts.values() {
            check_note(&host.note)?;
            host.socket_options.check()?;
        }
        for listener in self.listeners.values() {
            listener.socket_options.check()?;
        }
        for (nqn, subsystem) in &self.subsystems {
            self.check_subsystem(nqn, subsystem)?;
        }
        self.check_identifiers()
    }

    fn check_limits(&self) -> Result<(), StateError> {
        let counts = [
            (Kind::Volume, self.volumes.len(), VOLUMES_MAX),
            (Kind::Host, self.hosts.len(), HOSTS_MAX),
            (Kind::Subsystem, self.subsystems.len(), SUBSYSTEMS_MAX),
            (Kind::Listener, self.listeners.len(), LISTENERS_MAX),
        ];
        match counts.into_iter().find(|(_, count, limit)| count > limit) {
            Some((kind, _, limit)) => Err(StateError::LimitReached { kind, limit }),
            None => Ok(()),
        }
    }

    fn check_subsystem(&self, nqn: &Nqn, subsystem: &Subsystem) -> Result<(), StateError> {
        if nqn.is_discovery() {
            let problem = "is the discovery subsystem's, which every listener serves by itself";
            return Err(StateError::invalid(format!("subsystem NQN {nqn}"), problem));
        }
        let ControllerIds { min, max } = subsystem.controller_ids;
        if min == 0 || min > max || max > CONTROLLER_ID_MAX {
            let problem = format!("must satisfy 1 <= min <= max <= {CONTROLLER_ID_MAX}");
            return Err(StateError::invalid("controller_ids", problem));
        }
        for host in &subsystem.allowed_hosts {
            self.host(host)?;
        }
        for (nsid, namespace) in &subsystem.namespaces {
            if nsid.get() > NSID_MAX {
                return Err(StateError::NsidOutOfRange { nsid: nsid.get() });
            }
            self.volume(&namespace.volume)?;
            namespace.qos.check()?;
            if namespace.ana_group != ANA_GROUP {
                let problem = format!("must be {ANA_GROUP}: a single gateway has one group");
                return Err(StateError::invalid("ana_group", problem));
            }
            if let Visibility::Hosts(hosts) = &namespace.visible_to {
                hosts
                    .iter()
                    .try_for_each(|host| self.host(host).map(drop))?;
            }
        }
        Ok(())
    }

    /// Checks that no two namespaces share an identifier and no two subsystems a serial number.
    fn check_identifiers(&self) -> Result<(), StateError> {
        let mut seen = BTreeMap::new();
        let mut claim = |field: &'static str, value: String, owner: String| match seen
            .insert((field, value.clone()), owner)
        {
            Some(owner) => Err(StateError::IdentifierTaken {
                field,
                value,
                owner,
            }),
            None => Ok(()),
        };
        for (nqn, subsystem) in &self.subsystems {
            claim(
                "serial",
                subsystem.serial.to_string(),
                format!("subsystem {nqn}"),
            )?;
        }
        for (nqn, nsid, namespace) in self.namespaces() {
            let owner = format!("namespace {nsid} of {nqn}");
            if namespace.uuid.is_nil() {
                return Err(StateError::invalid(
                    "uuid",
                    "must not be nil: nil means none",
                ));
            }
            claim("uuid", namespace.uuid.to_string(), owner.clone())?;
            claim("nguid", namespace.nguid.to_string(), owner.clone())?;
            claim("eui64", namespace.eui64.to_string(), owner)?;
        }
        Ok(())
    }

    /// The volume named `name`.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn volume(&self, name: &VolumeName) -> Result<&Volume, StateError> {
        let unknown = || StateError::unknown(Kind::Volume, name, self.volumes.keys());
        self.volumes.get(name).ok_or_else(unknown)
    }

    /// The host named `nqn`.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn host(&self, nqn: &Nqn) -> Result<&Host, StateError> {
        let unknown = || StateError::unknown(Kind::Host, nqn, self.hosts.keys());
        self.hosts.get(nqn).ok_or_else(unknown)
    }

    /// The subsystem named `nqn`.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn subsystem(&self, nqn: &Nqn) -> Result<&Subsystem, StateError> {
        let unknown = || StateError::unknown(Kind::Subsystem, nqn, self.subsystems.keys());
        self.subsystems.get(nqn).ok_or_else(unknown)
    }

    /// The namespace `nsid` of the subsystem named `nqn`.
    ///
    /// # Errors
    /// There is no such subsystem or namespace; the error knows the closest name.
    pub fn namespace(&self, nqn: &Nqn, nsid: u32) -> Result<&Namespace, StateError> {
        let subsystem = self.subsystem(nqn)?;
        NonZeroU32::new(nsid)
            .and_then(|nsid| subsystem.namespaces.get(&nsid))
            .ok_or_else(|| StateError::UnknownNamespace {
                nqn: nqn.clone(),
                nsid,
            })
    }

    /// The listener at `address`.
    ///
    /// # Errors
    /// There is none; the error knows the closest address.
    pub fn listener(&self, address: &ListenerAddress) -> Result<&Listener, StateError> {
        let unknown = || StateError::unknown(Kind::Listener, address, self.listeners.keys());
        self.listeners.get(address).ok_or_else(unknown)
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
