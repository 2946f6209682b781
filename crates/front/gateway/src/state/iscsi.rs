//! iSCSI's part of the state: targets, their logical units, and the changes of both.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::{random, same};
use super::{
    ChapSecrets, ExportName, Kind, Qos, QosPatch, Random, Secret, State, StateError, Visibility,
};
use crate::name::{HostName, IscsiName, OwnName, VolumeName};

/// Largest number of a logical unit, and one less than the most of one target.
pub const LUN_MAX: u16 = 1023;
/// Longest alias of a target, in bytes (TargetAlias; RFC 7143, 13.12).
pub const ALIAS_LENGTH_MAX: usize = 255;
/// Longest user name of CHAP (CHAP_N), in bytes.
pub const USER_LENGTH_MAX: usize = 255;

/// An iSCSI target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A description for people; none where it is empty.
    pub alias: String,
    /// Whether hosts that are not in `allowed_hosts` may log in.
    pub allow_any_host: bool,
    /// The hosts that may log in.
    pub allowed_hosts: BTreeSet<HostName>,
    /// The names in whose proof CHAP consists; none: nothing is to be proved. The secrets stand in [`State::secrets`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapUsers>,
    /// The logical units by number.
    pub luns: BTreeMap<u16, Lun>,
}

/// The names of CHAP at a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapUsers {
    /// The name that initiators give.
    pub user: String,
    /// The name that the target gives to initiators that ask it for proof; none: it gives no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_user: Option<String>,
}

/// A logical unit of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lun {
    /// The volume it serves.
    pub volume: VolumeName,
    /// Whether hosts may only read it.
    pub read_only: bool,
    /// Which of the target's hosts see it.
    pub visible_to: Visibility,
    /// Its limits.
    pub qos: Qos,
}

/// What a target to be added should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// A description for people, which hosts are shown; none unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Whether any host may log in; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_any_host: Option<bool>,
}

/// What to change of a target; what is left out stays.
pub type TargetPatch = TargetSpec;

/// What a logical unit to be added should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LunSpec {
    /// The volume to serve.
    pub volume: VolumeName,
    /// Whether hosts may only read it; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Which of the target's hosts see it; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_to: Option<Visibility>,
    /// Its limits; none unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosPatch>,
}

/// What to change of a logical unit; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LunPatch {
    /// Whether hosts may only read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Which of the target's hosts see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_to: Option<Visibility>,
    /// Its limits; they hold at once for requests that wait, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosPatch>,
}

/// A name and a secret of CHAP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The secret.
    pub secret: Secret,
}

/// What is to be proved at a target's login (CHAP).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chap {
    /// By initiators.
    pub initiator: Credentials,
    /// By the target, to initiators that ask for it; none: it gives no proof.
    pub target: Option<Credentials>,
}

/// One change of targets and logical units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IscsiChange {
    /// Adds a target.
    AddTarget {
        /// Its name.
        target: IscsiName,
        /// What it should be.
        spec: TargetSpec,
    },
    /// Changes a target.
    SetTarget {
        /// Its name.
        target: IscsiName,
        /// What to change.
        patch: TargetPatch,
    },
    /// Removes a target.
    RemoveTarget {
        /// Its name.
        target: IscsiName,
        /// Whether to remove its logical units with it.
        force: bool,
    },
    /// Allows a registered host to log in to a target.
    AllowHost {
        /// The target.
        target: IscsiName,
        /// The host.
        host: HostName,
    },
    /// Takes an allowance back.
    DisallowHost {
        /// The target.
        target: IscsiName,
        /// The host.
        host: HostName,
    },
    /// Says what is to be proved at login from now on. Sessions that there are stay.
    SetChap {
        /// The target.
        target: IscsiName,
        /// What; none: nothing.
        chap: Option<Chap>,
    },
    /// Adds a logical unit to a target.
    AddLun {
        /// The target.
        target: IscsiName,
        /// Its number; without one, a logical unit that already is as asked for, or the lowest free number.
        lun: Option<u16>,
        /// What it should be.
        spec: LunSpec,
    },
    /// Changes a logical unit.
    SetLun {
        /// The target.
        target: IscsiName,
        /// The logical unit's number.
        lun: u16,
        /// What to change.
        patch: LunPatch,
    },
    /// Removes a logical unit; its volume stays.
    RemoveLun {
        /// The target.
        target: IscsiName,
        /// The logical unit's number.
        lun: u16,
    },
}

impl IscsiChange {
    /// Tells whether it takes the right to `export` from the host that `is_host` names, or took it before where it asks for what is
    /// already so.
    pub(super) fn takes_from(
        &self,
        is_host: impl Fn(&HostName) -> bool,
        export: &ExportName,
    ) -> bool {
        let ExportName::Lun {
            target: of,
            lun: number,
        } = export
        else {
            return false;
        };
        match self {
            Self::DisallowHost { target, host } => target == of && is_host(host),
            Self::SetTarget { target, patch } => {
                target == of && patch.allow_any_host == Some(false)
            }
            Self::RemoveTarget { target, .. } => target == of,
            Self::SetLun { target, lun, patch } => {
                let takes = patch.read_only == Some(true) || patch.visible_to.is_some();
                target == of && lun == number && takes
            }
            Self::RemoveLun { target, lun } => target == of && lun == number,
            Self::AddTarget { .. }
            | Self::AllowHost { .. }
            | Self::SetChap { .. }
            | Self::AddLun { .. } => false,
        }
    }
}

impl State {
    /// The target named `name`.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn target(&self, name: &IscsiName) -> Result<&Target, StateError> {
        let unknown = || StateError::unknown(Kind::Target, name, self.targets.keys());
        self.targets.get(name).ok_or_else(unknown)
    }

    /// The logical unit `lun` of the target named `name`.
    ///
    /// # Errors
    /// There is no such target or logical unit; the error knows the closest name.
    pub fn lun(&self, name: &IscsiName, lun: u16) -> Result<&Lun, StateError> {
        let unknown = || StateError::UnknownLun {
            target: name.clone(),
            lun,
        };
        self.target(name)?.luns.get(&lun).ok_or_else(unknown)
    }

    /// Every logical unit with its target's name and its number.
    pub fn luns(&self) -> impl Iterator<Item = (&IscsiName, u16, &Lun)> {
        self.targets.iter().flat_map(|(name, target)| {
            let luns = target.luns.iter();
            luns.map(move |(number, lun)| (name, *number, lun))
        })
    }

    /// The logical units that serve `volume`, as target and number.
    pub fn luns_of<'a>(
        &'a self,
        volume: &'a VolumeName,
    ) -> impl Iterator<Item = (&'a IscsiName, u16)> {
        self.luns()
            .filter(move |(_, _, lun)| lun.volume == *volume)
            .map(|(name, number, _)| (name, number))
    }

    /// The iSCSI names of the hosts of these names.
    pub fn iqns<'a>(
        &'a self,
        hosts: &'a BTreeSet<HostName>,
    ) -> impl Iterator<Item = &'a IscsiName> {
        let found = hosts.iter().filter_map(|name| self.hosts.get(name));
        found.flat_map(|host| &host.iqns)
    }

    pub(super) fn check_target(&self, name: &IscsiName, target: &Target) -> Result<(), StateError> {
        if target.alias.len() > ALIAS_LENGTH_MAX || target.alias.chars().any(char::is_control) {
            let problem = "must be one line of at most 255 bytes";
            return Err(StateError::invalid("alias", problem));
        }
        for host in &target.allowed_hosts {
            self.host(host)?;
        }
        self.check_chap(name, target)?;
        for (number, lun) in &target.luns {
            valid_lun(*number)?;
            let volume = self.volume(&lun.volume)?;
            if volume.uuid.is_none() {
                let what = format!("volume {}", lun.volume);
                let problem = "is a logical unit, and has no UUID";
                return Err(StateError::invalid(what, problem));
            }
            lun.qos.check()?;
            if let Visibility::Hosts(hosts) = &lun.visible_to {
                hosts
                    .iter()
                    .try_for_each(|host| self.host(host).map(drop))?;
            }
        }
        Ok(())
    }

    /// Checks that there is a secret for each name of CHAP, and that the two of a target differ: who has the one could otherwise
    /// pretend to be the other (RFC 7143, 9.2.1).
    fn check_chap(&self, name: &IscsiName, target: &Target) -> Result<(), StateError> {
        let secrets = self.secrets.chap.get(name);
        let mutual_secret = secrets.and_then(|secrets| secrets.target.as_ref());
        let users = target.chap.as_ref();
        let mutual_user = users.and_then(|users| users.mutual_user.as_ref());
        if users.is_some() != secrets.is_some() || mutual_user.is_some() != mutual_secret.is_some()
        {
            let problem = "do not fit to its users of CHAP";
            return Err(StateError::invalid(
                format!("secrets of target {name}"),
                problem,
            ));
        }
        let (Some(users), Some(secrets)) = (users, secrets) else {
            return Ok(());
        };
        check_user("user", &users.user)?;
        mutual_user.map_or(Ok(()), |user| check_user("mutual_user", user))?;
        if mutual_secret == Some(&secrets.initiator) {
            let problem = "must differ from secret: who knows the one must not pass for the other";
            return Err(StateError::invalid("mutual_secret", problem));
        }
        Ok(())
    }

    /// Checks that each secret has its target.
    pub(super) fn check_secrets(&self) -> Result<(), StateError> {
        match self
            .secrets
            .chap
            .keys()
            .find(|name| !self.targets.contains_key(*name))
        {
            Some(name) => {
                let what = format!("secrets of target {name}");
                Err(StateError::invalid(
                    what,
                    "are there, and the target is not",
                ))
            }
            None => Ok(()),
        }
    }

    /// Carries `change` out. Returns the number of the logical unit that was added or found, where it is about one.
    pub(super) fn change_iscsi(
        &mut self,
        change: &IscsiChange,
        source: Random<'_>,
    ) -> Result<Option<u16>, StateError> {
        match change {
            IscsiChange::AddTarget { target, spec } => self.add_target(target, spec)?,
            IscsiChange::SetTarget { target, patch } => {
                let target = self.target_mut(target)?;
                target.allow_any_host = patch.allow_any_host.unwrap_or(target.allow_any_host);
                if let Some(alias) = &patch.alias {
                    target.alias.clone_from(alias);
                }
            }
            IscsiChange::RemoveTarget { target, force } => self.remove_target(target, *force)?,
            IscsiChange::AllowHost { target, host } => {
                self.host(host)?;
                self.target_mut(target)?.allowed_hosts.insert(host.clone());
            }
            IscsiChange::DisallowHost { target, host } => {
                let allowed = &mut self.target_mut(target)?.allowed_hosts;
                if !allowed.remove(host) {
                    return Err(StateError::unknown(Kind::Host, host, allowed.iter()));
                }
            }
            IscsiChange::SetChap { target, chap } => self.set_chap(target, chap.as_ref())?,
            IscsiChange::AddLun { target, lun, spec } => {
                return self.add_lun(target, *lun, spec, source).map(Some);
            }
            IscsiChange::SetLun { target, lun, patch } => self.set_lun(target, *lun, patch)?,
            IscsiChange::RemoveLun { target, lun } => {
                self.lun(target, *lun)?;
                self.target_mut(target)?.luns.remove(lun);
            }
        }
        Ok(None)
    }

    /// Takes `host` off every target and logical unit that names it.
    pub(super) fn forget_initiator(&mut self, host: &HostName) {
        for target in self.targets.values_mut() {
            target.allowed_hosts.remove(host);
            for lun in target.luns.values_mut() {
                if let Visibility::Hosts(hosts) = &mut lun.visible_to {
                    hosts.remove(host);
                }
            }
        }
    }

    pub(super) fn users_of_initiator(&self, host: &HostName) -> Vec<String> {
        let mut users = Vec::new();
        for (name, target) in &self.targets {
            if target.allowed_hosts.contains(host) {
                users.push(format!("target {name}"));
            }
            for (number, lun) in &target.luns {
                if let Visibility::Hosts(hosts) = &lun.visible_to
                    && hosts.contains(host)
                {
                    users.push(format!("LUN {number} of target {name}"));
                }
            }
        }
        users
    }

    fn target_mut(&mut self, name: &IscsiName) -> Result<&mut Target, StateError> {
        self.target(name)?;
        Ok(self.targets.get_mut(name).expect("it was just found"))
    }

    fn add_target(&mut self, name: &IscsiName, spec: &TargetSpec) -> Result<(), StateError> {
        if let Some(found) = self.targets.get(name) {
            let kind = Kind::Target;
            same(kind, name, "alias", &found.alias, spec.alias.as_ref())?;
            let wanted = spec.allow_any_host.as_ref();
            return same(kind, name, "allow_any_host", &found.allow_any_host, wanted);
        }
        let target = Target {
            alias: spec.alias.clone().unwrap_or_default(),
            allow_any_host: spec.allow_any_host.unwrap_or(false),
            ..Target::default()
        };
        self.targets.insert(name.clone(), target);
        Ok(())
    }

    fn remove_target(&mut self, name: &IscsiName, force: bool) -> Result<(), StateError> {
        let luns = &self.target(name)?.luns;
        if !luns.is_empty() && !force {
            return Err(StateError::InUse {
                kind: Kind::Target,
                name: name.to_string(),
                users: luns.keys().map(|number| format!("LUN {number}")).collect(),
            });
        }
        self.targets.remove(name);
        self.secrets.chap.remove(name);
        Ok(())
    }

    fn set_chap(&mut self, name: &IscsiName, chap: Option<&Chap>) -> Result<(), StateError> {
        let target = self.target_mut(name)?;
        let Some(Chap {
            initiator,
            target: own,
        }) = chap
        else {
            target.chap = None;
            self.secrets.chap.remove(name);
            return Ok(());
        };
        target.chap = Some(ChapUsers {
            user: initiator.user.clone(),
            mutual_user: own.as_ref().map(|own| own.user.clone()),
        });
        let secrets = ChapSecrets {
            initiator: initiator.secret.clone(),
            target: own.as_ref().map(|own| own.secret.clone()),
        };
        self.secrets.chap.insert(name.clone(), secrets);
        Ok(())
    }

    fn add_lun(
        &mut self,
        name: &IscsiName,
        wanted: Option<u16>,
        spec: &LunSpec,
        source: Random<'_>,
    ) -> Result<u16, StateError> {
        let luns = &self.target(name)?.luns;
        self.volume(&spec.volume)?;
        let number = match wanted {
            Some(number) => valid_lun(number)?,
            None => {
                let as_asked = |(number, found): &(&u16, &Lun)| {
                    spec.agrees_with(name, **number, found).is_ok()
                };
                if let Some((number, _)) = luns.iter().find(as_asked) {
                    return Ok(*number);
                }
                let full = StateError::LimitReached {
                    kind: Kind::Lun,
                    limit: usize::from(LUN_MAX) + 1,
                };
                let free = |number: &u16| !luns.contains_key(number);
                (0..=LUN_MAX).find(free).ok_or(full)?
            }
        };
        if let Some(found) = luns.get(&number) {
            spec.agrees_with(name, number, found)?;
            return Ok(number);
        }
        let lun = Lun {
            volume: spec.volume.clone(),
            read_only: spec.read_only.unwrap_or(false),
            visible_to: spec.visible_to.clone().unwrap_or_default(),
            qos: spec.qos.unwrap_or_default().applied_to(&Qos::default()),
        };
        self.identify(&spec.volume, source);
        self.target_mut(name)?.luns.insert(number, lun);
        Ok(number)
    }

    /// Gives a volume that is there an identity, if it has none: under whatever target, it is one disk.
    fn identify(&mut self, name: &VolumeName, source: Random<'_>) {
        if let Some(volume) = self.volumes.get_mut(name) {
            let new = || -> Uuid { uuid::Builder::from_random_bytes(random(source)).into_uuid() };
            volume.uuid.get_or_insert_with(new);
        }
    }

    fn set_lun(
        &mut self,
        name: &IscsiName,
        number: u16,
        patch: &LunPatch,
    ) -> Result<(), StateError> {
        let mut lun = self.lun(name, number)?.clone();
        lun.read_only = patch.read_only.unwrap_or(lun.read_only);
        lun.visible_to = patch.visible_to.clone().unwrap_or(lun.visible_to);
        lun.qos = patch.qos.unwrap_or_default().applied_to(&lun.qos);
        self.target_mut(name)?.luns.insert(number, lun);
        Ok(())
    }
}

impl LunSpec {
    /// Whether `found` is what this asks for, as far as it has an opinion.
    fn agrees_with(&self, name: &IscsiName, number: u16, found: &Lun) -> Result<(), StateError> {
        let kind = Kind::Lun;
        let name = format!("{number} of target {name}");
        same(kind, &name, "volume", &found.volume, Some(&self.volume))?;
        let wanted = self.read_only.as_ref();
        same(kind, &name, "read_only", &found.read_only, wanted)?;
        let wanted = self.visible_to.as_ref();
        same(kind, &name, "visible_to", &found.visible_to, wanted)?;
        let qos = self.qos.map(|asked| asked.applied_to(&found.qos));
        same(kind, &name, "qos", &found.qos, qos.as_ref())
    }
}

fn valid_lun(lun: u16) -> Result<u16, StateError> {
    if lun > LUN_MAX {
        return Err(StateError::LunOutOfRange { lun });
    }
    Ok(lun)
}

fn check_user(field: &'static str, user: &str) -> Result<(), StateError> {
    if user.is_empty() || user.len() > USER_LENGTH_MAX || user.chars().any(char::is_control) {
        let problem = "must have 1 to 255 bytes, and no control characters";
        return Err(StateError::invalid(field, problem));
    }
    Ok(())
}

/// Checks the iSCSI names of a host. Where its name is one it is among them, as with NQNs.
pub(super) fn check_host(name: &HostName, iqns: &BTreeSet<IscsiName>) -> Result<(), StateError> {
    match name.own_name() {
        Ok(Some(OwnName::Iscsi(own))) if !iqns.contains(&own) => {
            let problem = "is called by an iSCSI name that is none of its own";
            Err(StateError::invalid(format!("host {name}"), problem))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
