//! Names of what is served and of who uses it, whatever the protocol.

use std::fmt;

use super::{Host, Qos, State};
use crate::name::{ExportPath, IscsiName, Nqn, VolumeName};

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
    /// A logical unit of an iSCSI target.
    Lun {
        /// The target.
        target: IscsiName,
        /// The number.
        lun: u16,
    },
    /// A directory that NFS serves.
    Directory {
        /// Path at which clients see it.
        path: ExportPath,
    },
    /// A file of an NFS export.
    File {
        /// The export.
        path: ExportPath,
        /// The volume, which is the file's name.
        volume: VolumeName,
    },
}

impl ExportName {
    /// The subsystem and the NSID of a namespace.
    pub fn namespace(self) -> Option<(Nqn, u32)> {
        match self {
            Self::Namespace { subsystem, nsid } => Some((subsystem, nsid)),
            _ => None,
        }
    }

    /// The target and the number of a logical unit.
    pub fn lun(self) -> Option<(IscsiName, u16)> {
        match self {
            Self::Lun { target, lun } => Some((target, lun)),
            _ => None,
        }
    }

    /// The export and the volume of a file.
    pub fn file(self) -> Option<(ExportPath, VolumeName)> {
        match self {
            Self::File { path, volume } => Some((path, volume)),
            _ => None,
        }
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace { subsystem, nsid } => {
                write!(formatter, "namespace {nsid} of subsystem {subsystem}")
            }
            Self::Lun { target, lun } => write!(formatter, "LUN {lun} of target {target}"),
            Self::Directory { path } => write!(formatter, "export {path}"),
            Self::File { path, volume } => write!(formatter, "file {volume} of export {path}"),
        }
    }
}

/// The name that a host gives when it connects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InitiatorName {
    /// A host NQN.
    Nqn(Nqn),
    /// An iSCSI name.
    Iqn(IscsiName),
    /// Any client of NFS: these are known by their addresses alone.
    NfsClients,
}

impl fmt::Display for InitiatorName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nqn(nqn) => nqn.fmt(formatter),
            Self::Iqn(name) => name.fmt(formatter),
            Self::NfsClients => formatter.write_str("NFS clients"),
        }
    }
}

impl Host {
    /// Tells whether the host connects under this name.
    pub fn is(&self, name: &InitiatorName) -> bool {
        match name {
            InitiatorName::Nqn(nqn) => self.nqns.contains(nqn),
            InitiatorName::Iqn(name) => self.iqns.contains(name),
            InitiatorName::NfsClients => false,
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
        let namespaces = self.namespaces().map(|(nqn, nsid, namespace)| Export {
            name: ExportName::Namespace {
                subsystem: nqn.clone(),
                nsid: nsid.get(),
            },
            volume: &namespace.volume,
            qos: &namespace.qos,
        });
        let luns = self.luns().map(|(name, number, lun)| Export {
            name: ExportName::Lun {
                target: name.clone(),
                lun: number,
            },
            volume: &lun.volume,
            qos: &lun.qos,
        });
        let files = self.files().map(|(path, volume, file)| Export {
            name: ExportName::File {
                path: path.clone(),
                volume: volume.clone(),
            },
            volume,
            qos: &file.qos,
        });
        namespaces.chain(luns).chain(files)
    }
}
