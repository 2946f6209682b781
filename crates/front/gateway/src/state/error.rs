//! Why a change of the state is refused, and the way out.

use std::fmt;

use crate::name::{IscsiName, Nqn};

/// The kinds of things in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A volume.
    Volume,
    /// A registered host.
    Host,
    /// A subsystem.
    Subsystem,
    /// A namespace of a subsystem.
    Namespace,
    /// An iSCSI target.
    Target,
    /// A logical unit of a target.
    Lun,
    /// An NFS export.
    Export,
    /// A volume that is a file of an export.
    File,
    /// A listener.
    Listener,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Volume => "volume",
            Self::Host => "host",
            Self::Subsystem => "subsystem",
            Self::Namespace => "namespace",
            Self::Target => "target",
            Self::Lun => "LUN",
            Self::Export => "export",
            Self::File => "file",
            Self::Listener => "listener",
        })
    }
}

/// Why a change of the state is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A reference to something that is not there.
    #[error("there is no {kind} {name}")]
    Unknown {
        /// What was looked for.
        kind: Kind,
        /// By which name.
        name: String,
        /// The name that is most like it, if one is.
        closest: Option<String>,
    },
    /// A reference to a namespace that is not there.
    #[error("subsystem {nqn} has no namespace {nsid}")]
    UnknownNamespace {
        /// The subsystem.
        nqn: Nqn,
        /// The NSID.
        nsid: u32,
    },
    /// A reference to a logical unit that is not there.
    #[error("target {target} has no LUN {lun}")]
    UnknownLun {
        /// The target.
        target: IscsiName,
        /// The number.
        lun: u16,
    },
    /// Something of this name is there already, and is not the same.
    #[error("{kind} {name} exists, with {field} {existing} instead of {wanted}")]
    Exists {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// The field that differs.
        field: &'static str,
        /// What the field holds.
        existing: String,
        /// What was asked for.
        wanted: String,
    },
    /// Something else refers to it.
    #[error("{kind} {name} is in use by {}", users.join(", "))]
    InUse {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// What refers to it.
        users: Vec<String>,
    },
    /// An identifier that must be unique belongs to another.
    #[error("{field} {value} already belongs to {owner}")]
    IdentifierTaken {
        /// The field that holds it.
        field: &'static str,
        /// The identifier.
        value: String,
        /// Whose it is.
        owner: String,
    },
    /// An NSID that no namespace can have.
    #[error("NSID {nsid} is out of range: it must be 1 to {}", super::NSID_MAX)]
    NsidOutOfRange {
        /// The NSID.
        nsid: u32,
    },
    /// A number that no logical unit can have.
    #[error("LUN {lun} is out of range: it must be 0 to {}", super::LUN_MAX)]
    LunOutOfRange {
        /// The number.
        lun: u16,
    },
    /// There is no room for another one.
    #[error("there are already {limit} of the kind {kind}, which is the most there may be")]
    LimitReached {
        /// What there are too many of.
        kind: Kind,
        /// How many there may be.
        limit: usize,
    },
    /// A value that is not allowed, whatever else there is.
    #[error("{what} {problem}")]
    Invalid {
        /// The field or thing.
        what: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl StateError {
    pub(super) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            what: what.into(),
            problem: problem.into(),
        }
    }

    pub(super) fn unknown<'a, T: fmt::Display + 'a>(
        kind: Kind,
        name: &T,
        candidates: impl Iterator<Item = &'a T>,
    ) -> Self {
        let name = name.to_string();
        let closest = closest(&name, candidates.map(ToString::to_string));
        Self::Unknown {
            kind,
            name,
            closest,
        }
    }

    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::UnknownNamespace { .. } | Self::UnknownLun { .. } => {
                "not_found"
            }
            Self::Exists { .. } => "exists",
            Self::InUse { .. } => "in_use",
            Self::IdentifierTaken { .. } => "identifier_taken",
            Self::NsidOutOfRange { .. } => "nsid_out_of_range",
            Self::LunOutOfRange { .. } => "lun_out_of_range",
            Self::LimitReached { .. } => "limit_reached",
            Self::Invalid { .. } => "invalid",
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown {
                closest: Some(closest),
                ..
            } => Some(format!("did you mean {closest}?")),
            Self::Unknown {
                kind: Kind::Host,
                name,
                ..
            } => Some(format!("register it first: weir host add {name}")),
            Self::Unknown { kind, .. } => Some(format!("see what there is: weir {kind} list")),
            Self::UnknownNamespace { nqn, .. } => {
                Some(format!("see what there is: weir namespace list {nqn}"))
            }
            Self::UnknownLun { target, .. } => {
                Some(format!("see what there is: weir lun list {target}"))
            }
            Self::Exists { kind, name, .. } => Some(format!(
                "choose another name, or remove {kind} {name} first if it is not wanted"
            )),
            Self::InUse {
                kind: Kind::Subsystem,
                ..
            } => Some("remove its namespaces first, or use --force to remove them with it".into()),
            Self::InUse {
                kind: Kind::Target, ..
            } => Some("remove its LUNs first, or use --force to remove them with it".into()),
            Self::InUse {
                kind: Kind::Host, ..
            } => Some("disallow it there first, or use --force to do so everywhere".into()),
            Self::InUse { .. } => Some("remove what uses it first".into()),
            Self::IdentifierTaken { .. } => {
                Some("leave it out to have one generated, or remove the other".into())
            }
            Self::LimitReached { kind, .. } => Some(format!("remove a {kind} that is not needed")),
            Self::NsidOutOfRange { .. } | Self::LunOutOfRange { .. } | Self::Invalid { .. } => None,
        }
    }
}

/// The candidate most like `name`, if it is near enough that a slip of the hand explains it.
pub(crate) fn closest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let slips_max = (name.chars().count() / 4).clamp(1, 4);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(name, &candidate), candidate))
        .filter(|(slips, _)| *slips <= slips_max)
        .min()
        .map(|(_, candidate)| candidate)
}
