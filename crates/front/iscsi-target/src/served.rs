//! What a target serves, and to whom: an immutable description that is replaced as a whole.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_block::Volume;
use weir_front::{Export, Reservations};
use weir_iscsi::names::Name;

/// Everything that is served over iSCSI. Given to [`crate::Iscsi::apply`], which replaces the one before.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The targets, in the order in which discovery lists them.
    pub targets: Vec<Target>,
    /// The portals that discovery tells of.
    pub portals: Vec<Portal>,
}

impl Snapshot {
    /// The target of that name.
    #[must_use]
    pub fn target(&self, name: &Name) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == *name)
    }
}

/// The initiators that may use something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Allowed {
    /// Every initiator.
    #[default]
    Any,
    /// These initiators.
    List(BTreeSet<Name>),
}

impl Allowed {
    /// Tells whether `initiator` is one of them.
    #[must_use]
    pub fn allows(&self, initiator: &Name) -> bool {
        match self {
            Allowed::Any => true,
            Allowed::List(initiators) => initiators.contains(initiator),
        }
    }
}

/// A user and a secret of CHAP.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name (CHAP_N).
    pub user: String,
    /// The secret. It is shown nowhere.
    pub secret: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Proof that initiators give, and are given, at login.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Authentication {
    /// None is asked for.
    #[default]
    None,
    /// The initiator proves that it knows a secret (CHAP).
    Chap {
        /// What initiators prove themselves with.
        initiator: Credentials,
        /// What the target proves itself with, to initiators that ask for it.
        target: Option<Credentials>,
    },
}

/// An iSCSI target.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name.
    pub name: Name,
    /// A description for people (TargetAlias).
    pub alias: Option<String>,
    /// Who may log in.
    pub allowed: Allowed,
    /// What they prove.
    pub authentication: Authentication,
    /// Its logical units.
    pub luns: Vec<Lun>,
}

impl Target {
    /// The most logical units of a target, and one more than the largest number of one.
    pub const LUNS_MAX: u16 = 1024;

    /// A target without logical units, open to every initiator.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Target {
            name,
            alias: None,
            allowed: Allowed::Any,
            authentication: Authentication::None,
            luns: Vec::new(),
        }
    }
}

/// A logical unit: a volume under a number.
#[derive(Clone)]
pub struct Lun {
    /// Its number, below [`Target::LUNS_MAX`].
    pub number: u16,
    /// What it stores in. It checks its own bounds and splits what is too long, as the guard of weir-volume does.
    pub volume: Arc<dyn Volume>,
    /// The volume that its latencies are counted for: `volume`, or the one below it where each of several has a wrapper of its own.
    pub counted: Arc<dyn Volume>,
    /// Identity of the volume, the same under whatever target: serial number and NAA identifier are made of it.
    pub identity: [u8; 16],
    /// Whether writing is refused here, whatever the volume allows.
    pub read_only: bool,
    /// Who sees it.
    pub visible_to: Allowed,
    /// The reservations of the volume, the same ones under whatever target and protocol; none: hosts cannot reserve it.
    pub reservations: Option<Arc<Reservations>>,
}

impl Lun {
    /// A logical unit that every initiator of its target sees.
    #[must_use]
    pub fn new(number: u16, volume: Arc<dyn Volume>, identity: [u8; 16]) -> Self {
        Lun {
            number,
            counted: Arc::clone(&volume),
            volume,
            identity,
            read_only: false,
            visible_to: Allowed::Any,
            reservations: None,
        }
    }
}

impl Export for Lun {
    fn number(&self) -> u32 {
        self.number.into()
    }

    fn identity(&self) -> [u8; 16] {
        self.identity
    }

    fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    fn counted(&self) -> &Arc<dyn Volume> {
        &self.counted
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn reservations(&self) -> Option<&Arc<Reservations>> {
        self.reservations.as_ref()
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Lun")
            .field("number", &self.number)
            .field("volume", &self.volume.name())
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// A portal as discovery tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portal {
    /// Where initiators connect to. A wildcard address stands for the one that the asking initiator reached.
    pub address: SocketAddr,
    /// What initiators are told in its place: `HOST:PORT` as they reach it, where that is another one.
    pub advertise: Option<String>,
}
