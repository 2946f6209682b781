//! Names of what is served and of who uses it, whatever the protocol.

use std::fmt;

use super::{Host, Qos, State};
use crate::name::{Nqn, VolumeName};

/// A place in which a volume is served. It may be gone by now, or serve another volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExportName {
    /// A namespace of an NVM subsystem.
    Namespace {
        /// The subsystem.
        subsystem: Nqn,
        /// The NSID.
        nsid: u32,
    },
}

impl ExportName {
    /// The subsystem and the NSID of a namespace.
    pub fn namespace(self) -> Option<(Nqn, u32)> {
        match self {
            Self::Namespace { subsystem, nsid } => Some((subsystem, nsid)),
        }
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace { subsystem, nsid } => {
                write!(formatter, "namespace {nsid} of subsystem {subsystem}")
            }
        }
    }
}

/// The name that a host gives when it connects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InitiatorName {
    /// A host NQN.
    Nqn(Nqn),
}

impl fmt::Display for InitiatorName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nqn(nqn) => nqn.fmt(formatter),
        }
    }
}

impl Host {
    /// Tells whether the host connects under this name.
    pub fn is(&self, name: &InitiatorName) -> bool {
        match name {
            InitiatorName::Nqn(nqn) => self.nqns.contains(nqn),
        }
    }
}

/// A volume as a state serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export<'a> {
    /// Its place.
    pub name: ExportName,
    /// The volume.
    pub volume: &'a VolumeName,
    /// Its limits there.
    pub qos: &'a Qos,
}

impl State {
    /// All that is served, by any protocol.
    pub fn exports(&self) -> impl Iterator<Item = Export<'_>> {
        self.namespaces().map(|(nqn, nsid, namespace)| Export {
            name: ExportName::Namespace {
                subsystem: nqn.clone(),
                nsid: nsid.get(),
            },
            volume: &namespace.volume,
            qos: &namespace.qos,
        })
    }
}
