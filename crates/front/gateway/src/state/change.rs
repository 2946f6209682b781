//! The changes of a state.
//!
//! [`State::changed_by`] is pure: it takes the random bits it may need as a parameter and returns
//! the next state, or the same one where the change asks for what is already so. What a request
//! leaves out, it has no opinion on: asking again for an existing thing compares only what is given.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    ExportName, Host, InitiatorName, Kind, ListenerKind, NvmeChange, Portal, Protocol,
    SocketOptions, State, StateError, Volume,
};
use crate::name::{HostName, ListenerAddress, Nqn, VolumeName};

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
    /// Registers a host of one NQN, which is its name too.
    AddHost {
        /// Its NQN.
        nqn: Nqn,
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
}

impl Change {
    /// Tells whether it takes the right to `export` from `host`, or took it before where it asks for what is already so. `before` is
    /// the state that it changes.
    pub fn takes_from(&self, before: &State, host: &InitiatorName, export: &ExportName) -> bool {
        let is_host = |name: &HostName| before.hosts.get(name).is_some_and(|named| named.is(host));
        match self {
            Change::RemoveHost { name, .. } => is_host(name),
            Change::Nvme(change) => change.takes_from(is_host, export),
            Change::AddVolume { .. }
            | Change::SetVolumeUrl { .. }
            | Change::RemoveVolume { .. }
            | Change::AddHost { .. }
            | Change::SetHost { .. }
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
            Change::SetHost { name, patch } => next.set_host(name, patch)?,
            Change::RemoveHost { name, force } => next.remove_host(name, *force)?,
            Change::Nvme(change) => nsid = next.change_nvme(change, source)?,
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
                next.portal(address)?;
                next.discovery_generation += 1;
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
        })
    }

    /// Moves the counters on by what differs from `before`.
    fn count_change_since(&mut self, before: &Self) {
        self.revision = before.revision + 1;
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
        let name = HostName::from(nqn.clone());
        if let Some(host) = self.hosts.get(&name) {
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
            nqns: [nqn.clone()].into(),
            note: spec.note.unwrap_or_default(),
            socket_options: spec.socket_options.unwrap_or_default(),
        };
        self.hosts.insert(name, host);
        Ok(())
    }

    fn set_host(&mut self, name: &HostName, patch: &HostPatch) -> Result<(), StateError> {
        let mut host = self.host(name)?.clone();
        host.note = patch.note.clone().unwrap_or(host.note);
        host.socket_options = patch.socket_options.clone().unwrap_or(host.socket_options);
        self.hosts.insert(name.clone(), host);
        Ok(())
    }

    fn remove_host(&mut self, name: &HostName, force: bool) -> Result<(), StateError> {
        self.host(name)?;
        let users = self.users_of_host(name);
        if !users.is_empty() && !force {
            return Err(StateError::InUse {
                kind: Kind::Host,
                name: name.to_string(),
                users,
            });
        }
        self.hosts.remove(name);
        self.forget_host(name);
        Ok(())
    }

    fn add_listener(
        &mut self,
        address: &ListenerAddress,
        spec: &ListenerSpec,
    ) -> Result<(), StateError> {
        if let Some(found) = self.portals.get(address) {
            let Protocol::Nvme { kind } = found.protocol;
            same(Kind::Listener, address, "kind", &kind, spec.kind.as_ref())?;
            let wanted = spec.socket_options.as_ref();
            return same(
                Kind::Listener,
                address,
                "socket options",
                &found.socket_options,
                wanted,
            );
        }
        let kind = spec.kind.unwrap_or_default();
        let portal = Portal {
            protocol: Protocol::Nvme { kind },
            socket_options: spec.socket_options.clone().unwrap_or_default(),
        };
        self.portals.insert(address.clone(), portal);
        Ok(())
    }
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
