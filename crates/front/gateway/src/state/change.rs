//! The changes of a state.
//!
//! [`State::changed_by`] is pure: it takes the random bits it may need as a parameter and returns
//! the next state, or the same one where the change asks for what is already so. What a request
//! leaves out, it has no opinion on: asking again for an existing thing compares only what is given.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_reservation::StoredTable;

use super::{
    ExportName, Host, InitiatorName, IscsiChange, Kind, ListenerKind, NfsChange, NvmeChange,
    Portal, Protocol, SocketOptions, State, StateError, Volume,
};
use crate::name::{Advertised, HostName, IscsiName, ListenerAddress, Nqn, OwnName, VolumeName};

/// What a host to be registered should be. One that is named by an NQN or an iSCSI name has that among its own without being told so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// The NQNs under which it connects; its name unless given, where that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqns: Option<BTreeSet<Nqn>>,
    /// The iSCSI names under which it logs in; its name unless given, where that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iqns: Option<BTreeSet<IscsiName>>,
    /// What to remember about it; nothing unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Options of its connections; they go before the listener's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_options: Option<SocketOptions>,
}

/// What to change of a host; what is left out stays.
pub type HostPatch = HostSpec;

/// What a listener to be added should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerSpec {
    /// What is spoken there; NVMe/TCP unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolName>,
    /// What NVMe hosts may connect to there; everything unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ListenerKind>,
    /// Where iSCSI hosts are told to connect, where that is not the listener's own address, as behind a NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertised>,
    /// Options of the connections accepted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_options: Option<SocketOptions>,
}

/// A protocol by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProtocolName {
    /// NVMe/TCP.
    #[default]
    Nvme,
    /// iSCSI.
    Iscsi,
    /// NFS.
    Nfs,
}

impl std::fmt::Display for ProtocolName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Nvme => "nvme",
            Self::Iscsi => "iscsi",
            Self::Nfs => "nfs",
        })
    }
}

impl From<Protocol> for ProtocolName {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Nvme { .. } => Self::Nvme,
            Protocol::Iscsi => Self::Iscsi,
            Protocol::Nfs => Self::Nfs,
        }
    }
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
    /// Keeps what hosts reserved of a volume. Its exports stay as they are.
    SetReservations {
        /// Its name.
        name: VolumeName,
        /// What is kept; nothing where it is to be forgotten.
        table: Option<StoredTable>,
    },
    /// Removes a volume that is served nowhere.
    RemoveVolume {
        /// Its name.
        name: VolumeName,
    },
    /// Registers a host.
    AddHost {
        /// Its name.
        name: HostName,
        /// What it should be.
        spec: HostSpec,
    },
    /// Changes a host.
    SetHost {
        /// Its name.
        name: HostName,
        /// What to change.
        patch: HostPatch,
    },
    /// Removes a host.
    RemoveHost {
        /// Its name.
        name: HostName,
        /// Whether to remove what refers to it first.
        force: bool,
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
    /// Changes what NVMe serves.
    #[serde(untagged)]
    Nvme(NvmeChange),
    /// Changes what iSCSI serves.
    #[serde(untagged)]
    Iscsi(IscsiChange),
    /// Changes what NFS serves.
    #[serde(untagged)]
    Nfs(NfsChange),
}

impl Change {
    /// Tells whether it takes the right to `export` from `host`, or took it before where it asks for what is already so. `before` is
    /// the state that it changes.
    pub fn takes_from(&self, before: &State, host: &InitiatorName, export: &ExportName) -> bool {
        let is_host = |name: &HostName| before.hosts.get(name).is_some_and(|named| named.is(host));
        match self {
            Change::RemoveHost { name, .. } => is_host(name),
            Change::SetHost { name, patch } => is_host(name) && patch.takes_name(host),
            Change::Nvme(change) => change.takes_from(is_host, export),
            Change::Iscsi(change) => change.takes_from(is_host, export),
            Change::Nfs(change) => change.takes_from(export),
            Change::AddVolume { .. }
            | Change::SetVolumeUrl { .. }
            | Change::SetReservations { .. }
            | Change::RemoveVolume { .. }
            | Change::AddHost { .. }
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
    /// The logical unit that was added or found, where the change is about one.
    pub lun: Option<u16>,
}

/// Fills its argument with random bits.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

pub(super) fn random<const N: usize>(source: Random<'_>) -> [u8; N] {
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
        let (mut nsid, mut lun) = (None, None);
        match change {
            Change::AddVolume { name, url } => next.add_volume(name, url)?,
            Change::SetVolumeUrl { name, url } => {
                next.volume(name)?;
                if let Some(volume) = next.volumes.get_mut(name) {
                    volume.url.clone_from(url);
                }
            }
            Change::SetReservations { name, table } => {
                next.volume(name)?;
                if let Some(volume) = next.volumes.get_mut(name) {
                    volume.reservations.clone_from(table);
                }
            }
            Change::RemoveVolume { name } => next.remove_volume(name)?,
            Change::AddHost { name, spec } => next.add_host(name, spec)?,
            Change::SetHost { name, patch } => next.set_host(name, patch)?,
            Change::RemoveHost { name, force } => next.remove_host(name, *force)?,
            Change::Nvme(change) => nsid = next.change_nvme(change, source)?,
            Change::Iscsi(change) => lun = next.change_iscsi(change, source)?,
            Change::Nfs(change) => next.change_nfs(change, source)?,
            Change::AddListener { address, spec } => next.add_listener(address, spec)?,
            Change::SetListener { address, patch } => {
                next.portal(address)?;
                if let (Some(portal), Some(options)) =
                    (next.portals.get_mut(address), &patch.socket_options)
                {
                    portal.socket_options = options.clone();
                }
            }
            Change::CountListener { address } => {
                // Other protocols have no log whose counter tells.
                if let Protocol::Nvme { .. } = next.portal(address)?.protocol {
                    next.discovery_generation += 1;
                }
            }
            Change::RemoveListener { address } => {
                next.portal(address)?;
                next.portals.remove(address);
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
            lun,
        })
    }

    /// Moves the counters on by what differs from `before`.
    fn count_change_since(&mut self, before: &Self) {
        self.revision = before.revision + 1;
        let revision = self.revision;
        self.secrets.count_change_since(&before.secrets, revision);
        if !self.discovery_looks_like(before) {
            self.discovery_generation = before.discovery_generation + 1;
        }
        self.count_ana_changes_since(before);
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
        self.volumes.insert(name.clone(), Volume::new(url));
        Ok(())
    }

    fn remove_volume(&mut self, name: &VolumeName) -> Result<(), StateError> {
        self.volume(name)?;
        let users = self.exports().filter(|export| export.volume == name);
        let users: Vec<_> = users.map(|export| export.name.to_string()).collect();
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

    fn add_host(&mut self, name: &HostName, spec: &HostSpec) -> Result<(), StateError> {
        if let Some(host) = self.hosts.get(name) {
            let kind = Kind::Host;
            same(kind, name, "note", &host.note, spec.note.as_ref())?;
            same(kind, name, "NQNs", &host.nqns, spec.nqns.as_ref())?;
            same(kind, name, "iSCSI names", &host.iqns, spec.iqns.as_ref())?;
            let wanted = spec.socket_options.as_ref();
            let options = &host.socket_options;
            return same(kind, name, "socket options", options, wanted);
        }
        let (nqn, iqn) = own_names(name)?;
        let spec = spec.clone();
        let host = Host {
            nqns: spec.nqns.unwrap_or_else(|| nqn.into_iter().collect()),
            iqns: spec.iqns.unwrap_or_else(|| iqn.into_iter().collect()),
            note: spec.note.unwrap_or_default(),
            socket_options: spec.socket_options.unwrap_or_default(),
        };
        check_names(name, &host)?;
        self.hosts.insert(name.clone(), host);
        Ok(())
    }

    fn set_host(&mut self, name: &HostName, patch: &HostPatch) -> Result<(), StateError> {
        let mut host = self.host(name)?.clone();
        let patch = patch.clone();
        host.nqns = patch.nqns.unwrap_or(host.nqns);
        host.iqns = patch.iqns.unwrap_or(host.iqns);
        host.note = patch.note.unwrap_or(host.note);
        host.socket_options = patch.socket_options.unwrap_or(host.socket_options);
        check_names(name, &host)?;
        self.hosts.insert(name.clone(), host);
        Ok(())
    }

    fn remove_host(&mut self, name: &HostName, force: bool) -> Result<(), StateError> {
        self.host(name)?;
        let mut users = self.users_of_host(name);
        users.extend(self.users_of_initiator(name));
        if !users.is_empty() && !force {
            return Err(StateError::InUse {
                kind: Kind::Host,
                name: name.to_string(),
                users,
            });
        }
        self.hosts.remove(name);
        self.forget_host(name);
        self.forget_initiator(name);
        Ok(())
    }

    fn add_listener(
        &mut self,
        address: &ListenerAddress,
        spec: &ListenerSpec,
    ) -> Result<(), StateError> {
        if let Some(found) = self.portals.get(address) {
            return spec.agrees_with(address, found);
        }
        let portal = Portal {
            protocol: spec.protocol(spec.protocol.unwrap_or_default())?,
            advertise: spec.advertise.clone(),
            socket_options: spec.socket_options.clone().unwrap_or_default(),
        };
        self.portals.insert(address.clone(), portal);
        Ok(())
    }
}

impl HostSpec {
    /// Tells whether it leaves a host without this name, which it had.
    fn takes_name(&self, name: &InitiatorName) -> bool {
        match name {
            InitiatorName::Nqn(nqn) => self.nqns.as_ref().is_some_and(|all| !all.contains(nqn)),
            InitiatorName::Iqn(iqn) => self.iqns.as_ref().is_some_and(|all| !all.contains(iqn)),
            InitiatorName::NfsClients => false,
        }
    }
}

impl ListenerSpec {
    /// The protocol of that name, as far as this says how.
    fn protocol(&self, name: ProtocolName) -> Result<Protocol, StateError> {
        match (name, self.kind) {
            (ProtocolName::Nvme, kind) => Ok(Protocol::Nvme {
                kind: kind.unwrap_or_default(),
            }),
            (ProtocolName::Iscsi, None) => Ok(Protocol::Iscsi),
            (ProtocolName::Nfs, None) => Ok(Protocol::Nfs),
            (ProtocolName::Iscsi | ProtocolName::Nfs, Some(_)) => {
                let problem =
                    "is for listeners of NVMe: one of another protocol serves all that it has";
                Err(StateError::invalid("kind", problem))
            }
        }
    }

    /// Whether `found` is what this asks for, as far as it has an opinion.
    fn agrees_with(&self, address: &ListenerAddress, found: &Portal) -> Result<(), StateError> {
        let kind = Kind::Listener;
        let name = ProtocolName::from(found.protocol);
        same(kind, address, "protocol", &name, self.protocol.as_ref())?;
        if let Protocol::Nvme { kind: found } = found.protocol {
            same(kind, address, "kind", &found, self.kind.as_ref())?;
        } else {
            self.protocol(name)?;
        }
        let advertise = self.advertise.as_ref().map(|given| Some(given.clone()));
        same(
            kind,
            address,
            "advertise",
            &found.advertise,
            advertise.as_ref(),
        )?;
        let wanted = self.socket_options.as_ref();
        let options = &found.socket_options;
        same(kind, address, "socket options", options, wanted)
    }
}

/// The NQN or iSCSI name that a host's name is.
fn own_names(name: &HostName) -> Result<(Option<Nqn>, Option<IscsiName>), StateError> {
    let own = name.own_name();
    let own = own.map_err(|error| StateError::invalid("host name:", error.to_string()))?;
    Ok(match own {
        Some(OwnName::Nqn(nqn)) => (Some(nqn), None),
        Some(OwnName::Iscsi(iqn)) => (None, Some(iqn)),
        None => (None, None),
    })
}

/// Checks that a host has a name under which it connects: one that is mistyped would never be seen.
fn check_names(name: &HostName, host: &Host) -> Result<(), StateError> {
    if host.nqns.is_empty() && host.iqns.is_empty() {
        let problem =
            "has no name under which it connects: give it nqns or iqns, or call it by one";
        return Err(StateError::invalid(format!("host {name}"), problem));
    }
    Ok(())
}

/// Passes if nothing is wanted of a field or it holds what is wanted.
pub(super) fn same<T: PartialEq + Serialize>(
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
