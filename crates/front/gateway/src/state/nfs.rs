//! NFS's part of the state: exports, and the changes of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::{random, same};
use super::{ExportName, Kind, Random, State, StateError};
use crate::name::{AddressRange, ExportPath, is_path_within};

/// Beginning of the source of an export that is a directory.
pub const DIRECTORY_SCHEME: &str = "dir:";
/// Longest source of an export, in bytes.
const SOURCE_LENGTH_MAX: usize = 4096;
/// Most ranges of addresses of one export.
const ADDRESSES_MAX: usize = 1024;

/// An NFS export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsExport {
    /// Its number, which its file handles have in them; no other export of this gateway ever has it.
    pub number: u32,
    /// Its identity for clients (fsid).
    pub uuid: Uuid,
    /// Source of its files, such as `dir:/srv/share`.
    pub source: String,
    /// Name of its root on its file system. Where it is another one, as where a disk is not mounted, nothing is served.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// Lets clients only read.
    pub read_only: bool,
    /// Lets clients use it whatever their address.
    pub allow_any_host: bool,
    /// The addresses of the clients that may use it.
    pub allowed_addresses: BTreeSet<AddressRange>,
}

impl NfsExport {
    /// The path of the directory that it serves.
    pub fn directory(&self) -> &str {
        directory_of(&self.source).unwrap_or_default()
    }
}

/// The path of the directory that a source names.
fn directory_of(source: &str) -> Option<&str> {
    let path = source.strip_prefix(DIRECTORY_SCHEME)?;
    path.starts_with('/').then_some(path)
}

/// Properties of an export to be added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportSpec {
    /// Source of its files: a directory of the gateway's machine, as in `dir:/srv/share`.
    #[schema(example = "dir:/srv/share")]
    pub source: String,
    /// Lets clients only read; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Lets clients use it whatever their address; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_any_host: Option<bool>,
    /// The addresses of the clients that may use it; none unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["192.0.2.0/24"]))]
    pub allowed_addresses: Option<BTreeSet<AddressRange>>,
}

/// Changes of an export; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportPatch {
    /// Lets clients only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Lets clients use it whatever their address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_any_host: Option<bool>,
    /// The addresses of the clients that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["192.0.2.0/24"]))]
    pub allowed_addresses: Option<BTreeSet<AddressRange>>,
}

/// One change of exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NfsChange {
    /// Adds an export.
    AddExport {
        /// Path at which clients see it.
        path: ExportPath,
        /// Its properties.
        spec: ExportSpec,
        /// Name of its root on its file system.
        root: String,
    },
    /// Changes an export.
    SetExport {
        /// Path at which clients see it.
        path: ExportPath,
        /// Changes.
        patch: ExportPatch,
    },
    /// Removes an export. What it serves stays.
    RemoveExport {
        /// Path at which clients see it.
        path: ExportPath,
    },
}

impl NfsChange {
    /// Tells whether it takes a right to `export` from clients, or took it before where it asks for what is already so.
    pub(super) fn takes_from(&self, export: &ExportName) -> bool {
        let ExportName::Directory { path: of } = export else {
            return false;
        };
        match self {
            Self::RemoveExport { path } => path == of,
            Self::SetExport { path, patch } => {
                let takes = patch.read_only == Some(true)
                    || patch.allow_any_host == Some(false)
                    || patch.allowed_addresses.is_some();
                path == of && takes
            }
            Self::AddExport { .. } => false,
        }
    }
}

impl State {
    /// The export at `path`.
    ///
    /// # Errors
    /// There is none; the error knows the closest path.
    pub fn export(&self, path: &ExportPath) -> Result<&NfsExport, StateError> {
        let unknown = || StateError::unknown(Kind::Export, path, self.exports.keys());
        self.exports.get(path).ok_or_else(unknown)
    }

    pub(super) fn check_exports(&self) -> Result<(), StateError> {
        for (path, export) in &self.exports {
            check_source(&export.source)?;
            if export.allowed_addresses.len() > ADDRESSES_MAX {
                let problem = "must be at most 1024 ranges";
                return Err(StateError::invalid("allowed_addresses", problem));
            }
            if export.number == 0 || export.number > self.last_export {
                let what = format!("number of export {path}");
                return Err(StateError::invalid(
                    what,
                    "is none that was given to an export",
                ));
            }
            self.check_alone(path, export)?;
        }
        Ok(())
    }

    /// Checks that an export is not within another one, nor what it serves within what another one serves: a file has one place.
    fn check_alone(&self, path: &ExportPath, export: &NfsExport) -> Result<(), StateError> {
        for (other_path, other) in self.exports.iter().filter(|(other, _)| *other != path) {
            if path.is_within(other_path) {
                let problem = format!("is within export {other_path}: exports do not nest");
                return Err(StateError::invalid(format!("export {path}"), problem));
            }
            if is_path_within(export.directory(), other.directory()) {
                let problem = format!(
                    "is within {}, which export {other_path} serves: exports do not nest",
                    other.source
                );
                return Err(StateError::invalid(&export.source, problem));
            }
            if export.number == other.number || export.uuid == other.uuid {
                return Err(StateError::IdentifierTaken {
                    field: "number or UUID",
                    value: export.number.to_string(),
                    owner: format!("export {other_path}"),
                });
            }
        }
        Ok(())
    }

    /// Carries `change` out.
    pub(super) fn change_nfs(
        &mut self,
        change: &NfsChange,
        source: Random<'_>,
    ) -> Result<(), StateError> {
        match change {
            NfsChange::AddExport { path, spec, root } => self.add_export(path, spec, root, source),
            NfsChange::SetExport { path, patch } => {
                let mut export = self.export(path)?.clone();
                let patch = patch.clone();
                export.read_only = patch.read_only.unwrap_or(export.read_only);
                export.allow_any_host = patch.allow_any_host.unwrap_or(export.allow_any_host);
                export.allowed_addresses =
                    patch.allowed_addresses.unwrap_or(export.allowed_addresses);
                self.exports.insert(path.clone(), export);
                Ok(())
            }
            NfsChange::RemoveExport { path } => {
                self.export(path)?;
                self.exports.remove(path);
                Ok(())
            }
        }
    }

    fn add_export(
        &mut self,
        path: &ExportPath,
        spec: &ExportSpec,
        root: &str,
        source: Random<'_>,
    ) -> Result<(), StateError> {
        if let Some(found) = self.exports.get(path) {
            let kind = Kind::Export;
            same(kind, path, "source", &found.source, Some(&spec.source))?;
            let wanted = spec.read_only.as_ref();
            same(kind, path, "read_only", &found.read_only, wanted)?;
            let wanted = spec.allow_any_host.as_ref();
            same(kind, path, "allow_any_host", &found.allow_any_host, wanted)?;
            let wanted = spec.allowed_addresses.as_ref();
            let addresses = &found.allowed_addresses;
            return same(kind, path, "allowed_addresses", addresses, wanted);
        }
        check_source(&spec.source)?;
        self.last_export += 1;
        let export = NfsExport {
            number: self.last_export,
            uuid: uuid::Builder::from_random_bytes(random(source)).into_uuid(),
            source: spec.source.clone(),
            root: root.to_owned(),
            read_only: spec.read_only.unwrap_or(false),
            allow_any_host: spec.allow_any_host.unwrap_or(false),
            allowed_addresses: spec.allowed_addresses.clone().unwrap_or_default(),
        };
        self.exports.insert(path.clone(), export);
        Ok(())
    }
}

/// Checks what can be said of an export's source without looking at it.
fn check_source(source: &str) -> Result<(), StateError> {
    let refuse = |problem: &str| Err(StateError::invalid("source", problem));
    if source.len() > SOURCE_LENGTH_MAX || source.chars().any(char::is_control) {
        return refuse("must have at most 4096 bytes, and no control characters");
    }
    let Some(path) = directory_of(source) else {
        return refuse("must be a directory by its whole path, as in dir:/srv/share");
    };
    let is_plain = |name: &str| !matches!(name, "" | "." | "..");
    if path != "/" && !path[1..].split('/').all(is_plain) {
        return refuse(
            "must be a path without empty names, without '.' and '..', and without a slash at its end",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
