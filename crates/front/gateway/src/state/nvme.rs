//! NVMe's part of the state: subsystems, their namespaces, and the changes of both.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::{random, same};
use super::{ExportName, Kind, Portal, Protocol, Qos, QosPatch, Random, State, StateError};
use crate::name::{Eui64, HostName, ListenerAddress, Model, Nguid, Nqn, Serial, VolumeName};

/// Largest NSID and most namespaces of one subsystem: what Identify Controller reports as NN.
pub const NSID_MAX: u32 = 1024;
/// The one ANA group of a gateway that is not in a group.
pub const ANA_GROUP: u32 = 1;
/// Largest controller ID: FFF0h and above are reserved (NVMe-oF 1.1, 3.3; NVMe Base 2.0, 3.1.2).
pub const CONTROLLER_ID_MAX: u16 = 0xffef;

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
    pub allowed_hosts: BTreeSet<HostName>,
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
    Hosts(BTreeSet<HostName>),
}

impl Visibility {
    /// Whether `host` sees the namespace.
    pub fn includes(&self, host: &HostName) -> bool {
        match self {
            Self::All => true,
            Self::Hosts(hosts) => hosts.contains(host),
        }
    }
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

/// What a subsystem to be added should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubsystemSpec {
    /// Its serial number; generated unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Serial>,
    /// Its model number; `Weir` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// Whether any host may connect; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_any_host: Option<bool>,
    /// The controller IDs to give out; 1 to 65519 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_ids: Option<ControllerIds>,
}

/// What to change of a subsystem; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubsystemPatch {
    /// Whether any host may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_any_host: Option<bool>,
}

/// What a namespace to be added should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// The volume to serve.
    pub volume: VolumeName,
    /// Its UUID; generated unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Its NGUID; generated unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
    /// Its EUI-64; generated unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eui64: Option<Eui64>,
    /// Whether hosts may only read it; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Which of the subsystem's hosts see it; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_to: Option<Visibility>,
    /// Its limits; none unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosPatch>,
}

/// What to change of a namespace; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespacePatch {
    /// Whether hosts may only read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Which of the subsystem's hosts see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_to: Option<Visibility>,
    /// Its limits; they hold at once for requests that wait, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosPatch>,
}

/// One change of subsystems and namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmeChange {
    /// Adds a subsystem.
    AddSubsystem {
        /// Its NQN.
        nqn: Nqn,
        /// What it should be.
        spec: SubsystemSpec,
    },
    /// Changes a subsystem.
    SetSubsystem {
        /// Its NQN.
        nqn: Nqn,
        /// What to change.
        patch: SubsystemPatch,
    },
    /// Removes a subsystem.
    RemoveSubsystem {
        /// Its NQN.
        nqn: Nqn,
        /// Whether to remove its namespaces with it.
        force: bool,
    },
    /// Allows a registered host to connect to a subsystem.
    AllowHost {
        /// The subsystem.
        nqn: Nqn,
        /// The host.
        host: HostName,
    },
    /// Takes an allowance back.
    DisallowHost {
        /// The subsystem.
        nqn: Nqn,
        /// The host.
        host: HostName,
    },
    /// Adds a namespace to a subsystem.
    AddNamespace {
        /// The subsystem.
        nqn: Nqn,
        /// Its NSID; without one, a namespace that already is as asked for, or the lowest free NSID.
        nsid: Option<u32>,
        /// What it should be.
        spec: NamespaceSpec,
    },
    /// Changes a namespace.
    SetNamespace {
        /// The subsystem.
        nqn: Nqn,
        /// The NSID.
        nsid: u32,
        /// What to change.
        patch: NamespacePatch,
    },
    /// Removes a namespace; its volume stays.
    RemoveNamespace {
        /// The subsystem.
        nqn: Nqn,
        /// The NSID.
        nsid: u32,
    },
}

impl NvmeChange {
    /// Tells whether it takes the right to `export` from the host that `is_host` names, or took it before where it asks for what is
    /// already so.
    pub(super) fn takes_from(
        &self,
        is_host: impl Fn(&HostName) -> bool,
        export: &ExportName,
    ) -> bool {
        let ExportName::Namespace { subsystem, nsid } = export else {
            return false;
        };
        match self {
            Self::DisallowHost { nqn, host } => nqn == subsystem && is_host(host),
            Self::SetSubsystem { nqn, patch } => {
                nqn == subsystem && patch.allow_any_host == Some(false)
            }
            Self::RemoveSubsystem { nqn, .. } => nqn == subsystem,
            Self::SetNamespace {
                nqn,
                nsid: other,
                patch,
            } => {
                let takes = patch.read_only == Some(true) || patch.visible_to.is_some();
                nqn == subsystem && other == nsid && takes
            }
            Self::RemoveNamespace { nqn, nsid: other } => nqn == subsystem && other == nsid,
            Self::AddSubsystem { .. } | Self::AllowHost { .. } | Self::AddNamespace { .. } => false,
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

    pub(super) fn check_subsystem(
        &self,
        nqn: &Nqn,
        subsystem: &Subsystem,
    ) -> Result<(), StateError> {
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

    /// Checks that no two namespaces or volumes share an identifier, no two subsystems a serial number, and no two hosts a name under
    /// which they connect.
    pub(super) fn check_identifiers(&self) -> Result<(), StateError> {
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
        for (name, host) in &self.hosts {
            for nqn in &host.nqns {
                claim("HOSTNQN", nqn.to_string(), format!("host {name}"))?;
            }
            for iqn in &host.iqns {
                claim("iSCSI name", iqn.to_string(), format!("host {name}"))?;
            }
        }
        for (name, volume) in &self.volumes {
            if let Some(uuid) = volume.uuid {
                claim("volume UUID", uuid.to_string(), format!("volume {name}"))?;
            }
        }
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

    /// Carries `change` out. Returns the namespace that was added or found, where it is about one.
    pub(super) fn change_nvme(
        &mut self,
        change: &NvmeChange,
        source: Random<'_>,
    ) -> Result<Option<NonZeroU32>, StateError> {
        match change {
            NvmeChange::AddSubsystem { nqn, spec } => self.add_subsystem(nqn, spec, source)?,
            NvmeChange::SetSubsystem { nqn, patch } => {
                let subsystem = self.subsystem_mut(nqn)?;
                subsystem.allow_any_host = patch.allow_any_host.unwrap_or(subsystem.allow_any_host);
            }
            NvmeChange::RemoveSubsystem { nqn, force } => self.remove_subsystem(nqn, *force)?,
            NvmeChange::AllowHost { nqn, host } => {
                self.host(host)?;
                self.subsystem_mut(nqn)?.allowed_hosts.insert(host.clone());
            }
            NvmeChange::DisallowHost { nqn, host } => {
                let allowed = &mut self.subsystem_mut(nqn)?.allowed_hosts;
                if !allowed.remove(host) {
                    return Err(StateError::unknown(Kind::Host, host, allowed.iter()));
                }
            }
            NvmeChange::AddNamespace { nqn, nsid, spec } => {
                return self.add_namespace(nqn, *nsid, spec, source).map(Some);
            }
            NvmeChange::SetNamespace { nqn, nsid, patch } => {
                self.set_namespace(nqn, *nsid, patch)?;
            }
            NvmeChange::RemoveNamespace { nqn, nsid } => {
                self.namespace(nqn, *nsid)?;
                let namespaces = &mut self.subsystem_mut(nqn)?.namespaces;
                namespaces.retain(|key, _| key.get() != *nsid);
            }
        }
        Ok(None)
    }

    /// Moves the counters of ANA logs on by what differs from `before`.
    pub(super) fn count_ana_changes_since(&mut self, before: &Self) {
        for (nqn, subsystem) in &mut self.subsystems {
            let groups = |subsystem: &Subsystem| {
                let group =
                    |(nsid, namespace): (&NonZeroU32, &Namespace)| (*nsid, namespace.ana_group);
                subsystem.namespaces.iter().map(group).collect::<Vec<_>>()
            };
            if let Some(old) = before.subsystems.get(nqn)
                && groups(old) != groups(subsystem)
            {
                subsystem.ana_changes = old.ana_changes + 1;
            }
        }
    }

    /// Tells whether every host finds in `other`'s discovery log what it finds in this one's.
    pub(super) fn discovery_looks_like(&self, other: &Self) -> bool {
        self.discoverable().eq(other.discoverable()) && self.ports().eq(other.ports())
    }

    /// The portals of NVMe, and what hosts may connect to there.
    fn ports(&self) -> impl Iterator<Item = (&ListenerAddress, ListenerKind)> {
        let kind = |(address, portal): (_, &Portal)| match portal.protocol {
            Protocol::Nvme { kind } => Some((address, kind)),
            Protocol::Iscsi | Protocol::Nfs => None,
        };
        self.portals.iter().filter_map(kind)
    }

    /// Each subsystem, and the hosts that find it in the discovery log.
    fn discoverable(&self) -> impl Iterator<Item = (&Nqn, bool, BTreeSet<&Nqn>)> {
        self.subsystems.iter().map(|(nqn, subsystem)| {
            let allowed = self.nqns(&subsystem.allowed_hosts).collect();
            (nqn, subsystem.allow_any_host, allowed)
        })
    }

    /// Takes `host` off every subsystem and namespace that names it.
    pub(super) fn forget_host(&mut self, host: &HostName) {
        for subsystem in self.subsystems.values_mut() {
            subsystem.allowed_hosts.remove(host);
            for namespace in subsystem.namespaces.values_mut() {
                if let Visibility::Hosts(hosts) = &mut namespace.visible_to {
                    hosts.remove(host);
                }
            }
        }
    }

    fn subsystem_mut(&mut self, nqn: &Nqn) -> Result<&mut Subsystem, StateError> {
        self.subsystem(nqn)?;
        Ok(self.subsystems.get_mut(nqn).expect("it was just found"))
    }

    pub(super) fn users_of_host(&self, host: &HostName) -> Vec<String> {
        let mut users = Vec::new();
        for (nqn, subsystem) in &self.subsystems {
            if subsystem.allowed_hosts.contains(host) {
                users.push(format!("subsystem {nqn}"));
            }
            for (nsid, namespace) in &subsystem.namespaces {
                if let Visibility::Hosts(hosts) = &namespace.visible_to
                    && hosts.contains(host)
                {
                    users.push(format!("namespace {nsid} of {nqn}"));
                }
            }
        }
        users
    }

    fn add_subsystem(
        &mut self,
        nqn: &Nqn,
        spec: &SubsystemSpec,
        source: Random<'_>,
    ) -> Result<(), StateError> {
        if let Some(found) = self.subsystems.get(nqn) {
            let kind = Kind::Subsystem;
            same(
                kind,
                nqn,
                "serial number",
                &found.serial,
                spec.serial.as_ref(),
            )?;
            same(kind, nqn, "model number", &found.model, spec.model.as_ref())?;
            let wanted = spec.allow_any_host.as_ref();
            same(kind, nqn, "allow_any_host", &found.allow_any_host, wanted)?;
            let wanted = spec.controller_ids.as_ref();
            return same(kind, nqn, "controller IDs", &found.controller_ids, wanted);
        }
        let subsystem = Subsystem {
            serial: spec
                .serial
                .clone()
                .unwrap_or_else(|| Serial::from_random(random(source))),
            model: spec.model.clone().unwrap_or_default(),
            allow_any_host: spec.allow_any_host.unwrap_or(false),
            allowed_hosts: BTreeSet::new(),
            controller_ids: spec.controller_ids.unwrap_or_default(),
            ana_changes: 0,
            namespaces: std::collections::BTreeMap::new(),
        };
        self.subsystems.insert(nqn.clone(), subsystem);
        Ok(())
    }

    fn remove_subsystem(&mut self, nqn: &Nqn, force: bool) -> Result<(), StateError> {
        let namespaces = &self.subsystem(nqn)?.namespaces;
        if !namespaces.is_empty() && !force {
            let users = namespaces
                .keys()
                .map(|nsid| format!("namespace {nsid}"))
                .collect();
            return Err(StateError::InUse {
                kind: Kind::Subsystem,
                name: nqn.to_string(),
                users,
            });
        }
        self.subsystems.remove(nqn);
        Ok(())
    }

    fn add_namespace(
        &mut self,
        nqn: &Nqn,
        wanted: Option<u32>,
        spec: &NamespaceSpec,
        source: Random<'_>,
    ) -> Result<NonZeroU32, StateError> {
        let namespaces = &self.subsystem(nqn)?.namespaces;
        self.volume(&spec.volume)?;
        let nsid = match wanted {
            Some(nsid) => valid_nsid(nsid)?,
            None => {
                let as_asked = |(nsid, namespace)| spec.agrees_with(nqn, nsid, namespace).is_ok();
                if let Some((nsid, _)) = namespaces
                    .iter()
                    .find(|&(nsid, found)| as_asked((*nsid, found)))
                {
                    return Ok(*nsid);
                }
                let free = |nsid: &NonZeroU32| !namespaces.contains_key(nsid);
                let nsids = (1..=NSID_MAX).filter_map(NonZeroU32::new);
                let limit = NSID_MAX as usize;
                let full = StateError::LimitReached {
                    kind: Kind::Namespace,
                    limit,
                };
                nsids.into_iter().find(free).ok_or(full)?
            }
        };
        if let Some(found) = namespaces.get(&nsid) {
            spec.agrees_with(nqn, nsid, found)?;
            return Ok(nsid);
        }
        let namespace = Namespace {
            volume: spec.volume.clone(),
            uuid: spec
                .uuid
                .unwrap_or_else(|| uuid::Builder::from_random_bytes(random(source)).into_uuid()),
            nguid: spec
                .nguid
                .unwrap_or_else(|| Nguid::from_random(random(source))),
            eui64: spec
                .eui64
                .unwrap_or_else(|| Eui64::from_random(random(source))),
            read_only: spec.read_only.unwrap_or(false),
            ana_group: ANA_GROUP,
            visible_to: spec.visible_to.clone().unwrap_or_default(),
            qos: spec.qos.unwrap_or_default().applied_to(&Qos::default()),
        };
        self.subsystem_mut(nqn)?.namespaces.insert(nsid, namespace);
        Ok(nsid)
    }

    fn set_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        patch: &NamespacePatch,
    ) -> Result<(), StateError> {
        let mut namespace = self.namespace(nqn, nsid)?.clone();
        namespace.read_only = patch.read_only.unwrap_or(namespace.read_only);
        namespace.visible_to = patch.visible_to.clone().unwrap_or(namespace.visible_to);
        namespace.qos = patch.qos.unwrap_or_default().applied_to(&namespace.qos);
        self.subsystem_mut(nqn)?
            .namespaces
            .insert(valid_nsid(nsid)?, namespace);
        Ok(())
    }
}

impl NamespaceSpec {
    /// Whether `found` is what this asks for, as far as it has an opinion.
    fn agrees_with(
        &self,
        nqn: &Nqn,
        nsid: NonZeroU32,
        found: &Namespace,
    ) -> Result<(), StateError> {
        let kind = Kind::Namespace;
        let name = format!("{nsid} of {nqn}");
        same(kind, &name, "volume", &found.volume, Some(&self.volume))?;
        same(kind, &name, "UUID", &found.uuid, self.uuid.as_ref())?;
        same(kind, &name, "NGUID", &found.nguid, self.nguid.as_ref())?;
        same(kind, &name, "EUI-64", &found.eui64, self.eui64.as_ref())?;
        same(
            kind,
            &name,
            "read_only",
            &found.read_only,
            self.read_only.as_ref(),
        )?;
        same(
            kind,
            &name,
            "visible_to",
            &found.visible_to,
            self.visible_to.as_ref(),
        )?;
        let qos = self.qos.map(|asked| asked.applied_to(&found.qos));
        same(kind, &name, "qos", &found.qos, qos.as_ref())
    }
}

fn valid_nsid(nsid: u32) -> Result<NonZeroU32, StateError> {
    match NonZeroU32::new(nsid) {
        Some(valid) if nsid <= NSID_MAX => Ok(valid),
        _ => Err(StateError::NsidOutOfRange { nsid }),
    }
}

/// Checks the NQNs of a host. Where its name is an NQN it is one of them: an operator who names a host by an NQN means the machine that
/// connects with it.
pub(super) fn check_host(name: &HostName, nqns: &BTreeSet<Nqn>) -> Result<(), StateError> {
    let text = name.to_string();
    if let Ok(nqn) = text.parse::<Nqn>()
        && !nqns.contains(&nqn)
    {
        let problem = "is called by an NQN that is none of its own";
        return Err(StateError::invalid(format!("host {name}"), problem));
    }
    match nqns.iter().find(|nqn| nqn.is_discovery()) {
        Some(nqn) => {
            let problem = "is the discovery subsystem's, not a host's";
            Err(StateError::invalid(format!("host NQN {nqn}"), problem))
        }
        None => Ok(()),
    }
}
