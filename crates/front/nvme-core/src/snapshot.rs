//! What a target serves, and to whom: an immutable description that is replaced as a whole.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use weir_block::Volume;
use weir_front::{Export, Reservations};
use weir_nvme::Nqn;
use weir_reactor::SocketOptions;

/// Everything that a target serves. Given to `Target::apply`, which replaces the one before.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Grows with every change, over restarts too: the generation counter of the discovery log (GENCTR).
    pub generation: u64,
    /// The subsystems, in the order in which discovery lists them.
    pub subsystems: Vec<Subsystem>,
    /// Options that connections of single hosts get on top of their listener's.
    pub hosts: Vec<HostOptions>,
    /// The ports that discovery tells of.
    pub ports: Vec<Port>,
}

impl Snapshot {
    /// The subsystem of that name.
    #[must_use]
    pub fn subsystem(&self, nqn: &str) -> Option<&Subsystem> {
        self.subsystems
            .iter()
            .find(|subsystem| subsystem.nqn.as_str() == nqn)
    }

    /// Socket options of one host's connections.
    #[must_use]
    pub fn host_options(&self, nqn: &Nqn) -> Option<&SocketOptions> {
        let host = self.hosts.iter().find(|host| host.nqn == *nqn)?;
        Some(&host.options)
    }
}

/// Who may connect, or who sees a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Allowed {
    /// Every host.
    #[default]
    Any,
    /// These hosts.
    List(BTreeSet<Nqn>),
}

impl Allowed {
    /// Whether `host` is meant.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Allowed::Any => true,
            Allowed::List(hosts) => hosts.contains(host),
        }
    }
}

/// How a host comes by a controller (NVMe Base 2.0c, section 3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControllerModel {
    /// Each association gets a controller made for it.
    #[default]
    Dynamic,
    /// The host may ask for a controller by its identifier, or for any.
    Static,
}

/// An NVM subsystem.
#[derive(Debug, Clone)]
pub struct Subsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number (SN), up to 20 ASCII characters; stable.
    pub serial: String,
    /// Model number (MN), up to 40 ASCII characters.
    pub model: String,
    /// Firmware revision (FR), up to 8 ASCII characters.
    pub firmware: String,
    /// Who may connect.
    pub allowed: Allowed,
    /// Identifiers that its controllers get, within 1 to FFEFh.
    pub controller_ids: RangeInclusive<u16>,
    /// How hosts come by its controllers.
    pub controller_model: ControllerModel,
    /// Its namespaces.
    pub namespaces: Vec<Namespace>,
}

impl Subsystem {
    /// The most namespaces that a subsystem can have, and the largest NSID (NN).
    pub const NAMESPACES_MAX: u32 = 1024;

    /// A subsystem without namespaces, open to every host.
    #[must_use]
    pub fn new(nqn: Nqn, serial: &str) -> Self {
        Subsystem {
            nqn,
            serial: serial.to_owned(),
            model: "Weir".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            allowed: Allowed::Any,
            controller_ids: 1..=0xffef,
            controller_model: ControllerModel::Dynamic,
            namespaces: Vec::new(),
        }
    }
}

/// Asymmetric namespace access state (NVMe Base 2.0c, section 8.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnaState {
    /// Served, on the best path.
    #[default]
    Optimized,
    /// Served, on a path that is not the best.
    NonOptimized,
    /// Not served here for now.
    Inaccessible,
    /// Not served here any more.
    PersistentLoss,
    /// Between states.
    Change,
}

/// A namespace: a volume under a number.
#[derive(Clone)]
pub struct Namespace {
    /// Its number, 1 to [`Subsystem::NAMESPACES_MAX`].
    pub nsid: u32,
    /// What it stores in. It checks its own bounds and splits what is too long, as the guard of weir-volume does.
    pub volume: Arc<dyn Volume>,
    /// The volume that its latencies are counted for: `volume`, or the one below it where each of several namespaces has a wrapper
    /// of its own.
    pub counted: Arc<dyn Volume>,
    /// UUID, stable.
    pub uuid: [u8; 16],
    /// NGUID, stable and not zero.
    pub nguid: [u8; 16],
    /// EUI-64, stable; zero where there is none.
    pub eui64: [u8; 8],
    /// Whether writing is refused here, whatever the volume allows.
    pub read_only: bool,
    /// Who sees it.
    pub visible_to: Allowed,
    /// Its ANA group, from 1.
    pub ana_group: u32,
    /// The state of that group here.
    pub ana_state: AnaState,
    /// The reservations of the volume, the same ones in whatever subsystem and protocol; none: hosts cannot reserve it.
    pub reservations: Option<Arc<Reservations>>,
}

impl Namespace {
    /// A namespace that every host sees, in ANA group 1, optimized.
    #[must_use]
    pub fn new(nsid: u32, volume: Arc<dyn Volume>, uuid: [u8; 16]) -> Self {
        Namespace {
            nsid,
            counted: Arc::clone(&volume),
            volume,
            uuid,
            nguid: uuid,
            eui64: [0; 8],
            read_only: false,
            visible_to: Allowed::Any,
            ana_group: 1,
            ana_state: AnaState::Optimized,
            reservations: None,
        }
    }
}

impl Export for Namespace {
    fn number(&self) -> u32 {
        self.nsid
    }

    fn identity(&self) -> [u8; 16] {
        self.uuid
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

impl fmt::Debug for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Namespace")
            .field("nsid", &self.nsid)
            .field("volume", &self.volume.name())
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// Socket options of one host's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// The host.
    pub nqn: Nqn,
    /// What its connections get, from the answer to Connect on.
    pub options: SocketOptions,
}

/// A port as discovery tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Where hosts connect to. A wildcard address stands for the one that the asking host reached.
    pub address: SocketAddr,
    /// PORTID, unique within the snapshot.
    pub id: u16,
    /// Whether only discovery is to be had there.
    pub discovery_only: bool,
}
