//! The changes of a state.
//!
//! [`State::changed_by`] is pure: it takes the random bits it may need as a parameter and returns
//! the next state, or the same one where the change asks for what is already so. What a request
//! leaves out, it has no opinion on: asking again for an existing thing compares only what is given.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    ANA_GROUP, ControllerIds, Host, Kind, Listener, ListenerKind, NSID_MAX, Namespace, Qos,
    QosPatch, SocketOptions, State, StateError, Subsystem, Visibility, Volume,
};
use crate::name::{Eui64, ListenerAddress, Model, Nguid, Nqn, Serial, VolumeName};

/// What a host to be registered should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// What to remember about it; nothing unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Options of its connections; they go before the listener's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_options: Option<SocketOptions>,
}

/// What to change of a host; what is left out stays.
pub type HostPatch = HostSpec;

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

/// What a listener to be added should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerSpec {
    /// What hosts may connect to there; everything unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ListenerKind>,
    /// Options of the connections accepted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_options: Option<SocketOptions>,
}

/// What to change of a listener; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerPatch {
    /// Options of the connections accepted there from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_options: Option<SocketOptions>,
}

/// One change of the state. Each is idempotent but for [`Change::CountListener`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Adds a volume.
    AddVolume {
        /// Its name.
        name: VolumeName,
        /// What it is.
        url: String,
    },
    /// Changes what a volume is without changing which it is, as a resize does.
    SetVolumeUrl {
        /// Its name.
        name: VolumeName,
        /// What it is from now on.
        url: String,
    },
    /// Removes a volume that no namespace serves.
    RemoveVolume {
        /// Its name.
        name: VolumeName,
    },
    /// Registers a host.
    AddHost {
        /// Its NQN.
        nqn: Nqn,
        /// What it should be.
        spec: HostSpec,
    },
    /// Changes a host.
    SetHost {
        /// Its NQN.
        nqn: Nqn,
        /// What to change.
        patch: HostPatch,
    },
    /// Removes a host.
    RemoveHost {
        /// Its NQN.
        nqn: Nqn,
        /// Whether to remove what refers to it first.
        force: bool,
    },
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
        host: Nqn,
    },
    /// Takes an allowance back.
    DisallowHost {
        /// The subsystem.
        nqn: Nqn,
        /// The host.
        host: Nqn,
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
    /// Adds a listener.
    AddListener {
        /// Where it listens.
        address: ListenerAddress,
        /// What it should be.
        spec: ListenerSpec,
    },
    /// Changes a listener.
    SetListener {
        /// Where it listens.
        address: ListenerAddress,
        /// What to change.
        patch: ListenerPatch,
    },
    /// Says that a listener listens that did not: hosts find more in the discovery log, though
    /// nothing else is another. The one change that is not idempotent.
    CountListener {
        /// Where it listens.
        address: ListenerAddress,
    },
    /// Removes a listener.
    RemoveListener {
        /// Where it listens.
        address: ListenerAddress,
    },
}

impl Change {
    /// Tells whether it takes the right to namespace `nsid` of `subsystem` from `host`, or took it before where it asks for what is
    /// already so.
    pub fn takes_from(&self, host: &Nqn, subsystem: &Nqn, nsid: u32) -> bool {
        match self {
            Change::RemoveHost { nqn, .. } => nqn == host,
            Change::DisallowHost { nqn, host: other } => nqn == subsystem && other == host,
            Change::SetSubsystem { nqn, patch } => {
                nqn == subsystem && patch.allow_any_host == Some(false)
            }
            Change::RemoveSubsystem { nqn, .. } => nqn == subsystem,
            Change::SetNamespace {
                nqn,
                nsid: other,
                patch,
            } => {
                let takes = patch.read_only == Some(true) || patch.visible_to.is_some();
                nqn == subsystem && *other == nsid && takes
            }
            Change::RemoveNamespace { nqn, nsid: other } => nqn == subsystem && *other == nsid,
            Change::AddVolume { .. }
            | Change::SetVolumeUrl { .. }
            | Change::RemoveVolume { .. }
            | Change::AddHost { .. }
            | Change::SetHost { .. }
            | Change::AddSubsystem { .. }
            | Change::AllowHost { .. }
            | Change::AddNamespace { .. }
            | Change::AddListener { .. }
            | Change::SetListener { .. }
            | Change::CountListener { .. }
            | Change::RemoveListener { .. } => false,
        }
    }
}

impl std::fmt::Display for Change {
    /// As JSON, for logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        formatter.write_str(&text)
    }
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The state after the change.
    pub state: State,
    /// Whether it differs from the state before.
    pub changed: bool,
    /// The namespace that was added or found, where the change is about one.
    pub nsid: Option<NonZeroU32>,
}

/// Fills its argument with random bits.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

fn random<const N: usize>(source: Random<'_>) -> [u8; N] {
    let mut bytes = [0; N];
    source(&mut bytes);
    bytes
}

impl State {
    /// The state after `change`; `source` is asked where an identifier is to be generated.
    ///
    /// # Errors
    /// The change refers to what is not there, contradicts what is, or would break a rule of
    /// [`State::check`].
    pub fn changed_by(&self, change: &Change, source: Random<'_>) -> Result<Outcome, StateError> {
        let mut next = self.clone();
        let mut nsid = None;
        match change {
            Change::AddVolume { name, url } => next.add_volume(name, url)?,
            Change::SetVolumeUrl { name, url } => {
                next.volume(name)?;
                next.volumes
                    .insert(name.clone(), Volume { url: url.clone() });
            }
            Change::RemoveVolume { name } => next.remove_volume(name)?,
            Change::AddHost { nqn, spec } => next.add_host(nqn, spec)?,
            Change::SetHost { nqn, patch } => next.set_host(nqn, patch)?,
            Change::RemoveHost { nqn, force } => next.remove_host(nqn, *force)?,
            Change::AddSubsystem { nqn, spec } => next.add_subsystem(nqn, spec, source)?,
            Change::SetSubsystem { nqn, patch } => {
                let subsystem = next.subsystem_mut(nqn)?;
                subsystem.allow_any_host = patch.allow_any_host.unwrap_or(subsystem.allow_any_host);
            }
            Change::RemoveSubsystem { nqn, force } => next.remove_subsystem(nqn, *force)?,
            Change::AllowHost { nqn, host } => {
                next.host(host)?;
                next.subsystem_mut(nqn)?.allowed_hosts.insert(host.clone());
            }
            Change::DisallowHost { nqn, host } => {
                let allowed = &mut next.subsystem_mut(nqn)?.allowed_hosts;
                if !allowed.remove(host) {
                    return Err(StateError::unknown(Kind::Host, host, allowed.iter()));
                }
            }
            Change::AddNamespace {
                nqn,
                nsid: wanted,
                spec,
            } => {
                nsid = Some(next.add_namespace(nqn, *wanted, spec, source)?);
            }
            Change::SetNamespace { nqn, nsid, patch } => next.set_namespace(nqn, *nsid, patch)?,
            Change::RemoveNamespace { nqn, nsid } => {
                next.namespace(nqn, *nsid)?;
                let namespaces = &mut next.subsystem_mut(nqn)?.namespaces;
                namespaces.retain(|key, _| key.get() != *nsid);
            }
            Change::AddListener { address, spec } => next.add_listener(address, spec)?,
            Change::SetListener { address, patch } => {
                next.listener(address)?;
                if let (Some(listener), Some(options)) =
                    (next.listeners.get_mut(address), &patch.socket_options)
                {
                    listener.socket_options = options.clone();
                }
            }
            Change::CountListener { address } => {
                next.listener(address)?;
                next.discovery_generation += 1;
            }
            Change::RemoveListener { address } => {
                next.listener(address)?;
                next.listeners.remove(address);
            }
        }
        let changed = next != *self;
        if changed {
            next.count_change_since(self);
            next.check()?;
        }
        Ok(Outcome {
            state: next,
            changed,
            nsid,
        })
    }

    /// Moves the counters on by what differs from `before`.
    fn count_change_since(&mut self, before: &Self) {
        self.revision = before.revision + 1;
        if !self.discovery_looks_like(before) {
            self.discovery_generation = before.discovery_generation + 1;
        }
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

    /// Whether every host finds in `other`'s discovery log what it finds in this one's.
    fn discovery_looks_like(&self, other: &Self) -> bool {
        let subsystems = |state: &Self| {
            let entry = |(nqn, subsystem): (&Nqn, &Subsystem)| {
                (
                    nqn.clone(),
                    subsystem.allow_any_host,
                    subsystem.allowed_hosts.clone(),
                )
            };
            state.subsystems.iter().map(entry).collect::<Vec<_>>()
        };
        let listeners = |state: &Self| {
            let entry = |(address, listener): (&ListenerAddress, &Listener)| {
                (address.clone(), listener.kind)
            };
            state.listeners.iter().map(entry).collect::<Vec<_>>()
        };
        subsystems(self) == subsystems(other) && listeners(self) == listeners(other)
    }

    fn subsystem_mut(&mut self, nqn: &Nqn) -> Result<&mut Subsystem, StateError> {
        self.subsystem(nqn)?;
        Ok(self.subsystems.get_mut(nqn).expect("it was just found"))
    }

    fn add_volume(&mut self, name: &VolumeName, url: &str) -> Result<(), StateError> {
        if let Some(volume) = self.volumes.get(name) {
            return same(
                Kind::Volume,
                name,
                "URL",
                &volume.url,
                Some(&url.to_owned()),
            );
        }
        self.volumes.insert(
            name.clone(),
            Volume {
                url: url.to_owned(),
            },
        );
        Ok(())
    }

    fn remove_volume(&mut self, name: &VolumeName) -> Result<(), StateError> {
        self.volume(name)?;
        let user = |(nqn, nsid)| format!("namespace {nsid} of {nqn}");
        let users: Vec<_> = self.users_of(name).map(user).collect();
        if !users.is_empty() {
            return Err(StateError::InUse {
                kind: Kind::Volume,
                name: name.to_string(),
                users,
            });
        }
        self.volumes.remove(name);
        Ok(())
    }

    fn add_host(&mut self, nqn: &Nqn, spec: &HostSpec) -> Result<(), StateError> {
        if let Some(host) = self.hosts.get(nqn) {
            same(Kind::Host, nqn, "note", &host.note, spec.note.as_ref())?;
            let wanted = spec.socket_options.as_ref();
            return same(
                Kind::Host,
                nqn,
                "socket options",
                &host.socket_options,
                wanted,
            );
        }
        if nqn.is_discovery() {
            let problem = "is the discovery subsystem's, not a host's";
            return Err(StateError::invalid(format!("host NQN {nqn}"), problem));
        }
        let spec = spec.clone();
        let host = Host {
            note: spec.note.unwrap_or_default(),
            socket_options: spec.socket_options.unwrap_or_default(),
        };
        self.hosts.insert(nqn.clone(), host);
        Ok(())
    }

    fn set_host(&mut self, nqn: &Nqn, patch: &HostPatch) -> Result<(), StateError> {
        let mut host = self.host(nqn)?.clone();
        host.note = patch.note.clone().unwrap_or(host.note);
        host.socket_options = patch.socket_options.clone().unwrap_or(host.socket_options);
        self.hosts.insert(nqn.clone(), host);
        Ok(())
    }

    fn remove_host(&mut self, nqn: &Nqn, force: bool) -> Result<(), StateError> {
        self.host(nqn)?;
        let users = self.users_of_host(nqn);
        if !users.is_empty() && !force {
            return Err(StateError::InUse {
                kind: Kind::Host,
                name: nqn.to_string(),
                users,
            });
        }
        self.hosts.remove(nqn);
        for subsystem in self.subsystems.values_mut() {
            subsystem.allowed_hosts.remove(nqn);
            for namespace in subsystem.namespaces.values_mut() {
                if let Visibility::Hosts(hosts) = &mut namespace.visible_to {
                    hosts.remove(nqn);
                }
            }
        }
        Ok(())
    }

    fn users_of_host(&self, host: &Nqn) -> Vec<String> {
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

    fn add_listener(
        &mut self,
        address: &ListenerAddress,
        spec: &ListenerSpec,
    ) -> Result<(), StateError> {
        if let Some(found) = self.listeners.get(address) {
            same(
                Kind::Listener,
                address,
                "kind",
                &found.kind,
                spec.kind.as_ref(),
            )?;
            let wanted = spec.socket_options.as_ref();
            return same(
                Kind::Listener,
                address,
                "socket options",
                &found.socket_options,
                wanted,
            );
        }
        let listener = Listener {
            kind: spec.kind.unwrap_or_default(),
            socket_options: spec.socket_options.clone().unwrap_or_default(),
        };
        self.listeners.insert(address.clone(), listener);
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

/// Passes if nothing is wanted of a field or it holds what is wanted.
fn same<T: PartialEq + Serialize>(
    kind: Kind,
    name: &impl std::fmt::Display,
    field: &'static str,
    existing: &T,
    wanted: Option<&T>,
) -> Result<(), StateError> {
    let Some(wanted) = wanted.filter(|wanted| *wanted != existing) else {
        return Ok(());
    };
    let text = |value: &T| serde_json::to_string(value).expect("state values are plain JSON");
    let (existing, wanted) = (text(existing), text(wanted));
    Err(StateError::Exists {
        kind,
        name: name.to_string(),
        field,
        existing,
        wanted,
    })
}
