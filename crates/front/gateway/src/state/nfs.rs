//! NFS's part of the state: exports, and the changes of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::{random, same};
use super::{ExportName, Kind, Qos, QosPatch, Random, State, StateError};
use crate::name::{AddressRange, ExportPath, VolumeName, is_path_within};

/// Beginning of the source of an export that is a directory.
pub const DIRECTORY_SCHEME: &str = "dir:";
/// Source of an export whose files are volumes.
pub const VOLUMES_SOURCE: &str = "volumes:";
/// Longest source of an export, in bytes.
const SOURCE_LENGTH_MAX: usize = 4096;
/// Most volumes that are files of one export.
const FILES_MAX: usize = 1024;
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
    /// Source of its files, such as `dir:/srv/share` or `volumes:`.
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
    /// The volumes that are its files, where it is one of volumes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<VolumeName, NfsFile>,
}

impl NfsExport {
    /// The path of the directory that it serves; none: it is one of volumes.
    pub fn directory(&self) -> Option<&str> {
        directory_of(&self.source)
    }
}

/// A volume that is a file of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsFile {
    /// Its number, which its file handles have in them; no other file and no export of this gateway ever has it.
    pub number: u32,
    /// Lets clients only read.
    pub read_only: bool,
    /// Its limits.
    #[serde(default, skip_serializing_if = "Qos::is_empty")]
    pub qos: Qos,
}

/// Properties of a volume as a file. When it is added, what is left out has its default; when it is changed, that stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// Lets clients only read; not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Its limits; none unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosPatch>,
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
    /// Source of its files: a directory of the gateway's machine, as in `dir:/srv/share`, or `volumes:`, whose files are volumes that
    /// are added one by one.
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
    /// Makes a volume a file of an export.
    AddFile {
        /// Path of the export.
        path: ExportPath,
        /// The volume.
        volume: VolumeName,
        /// Its properties there.
        spec: FileSpec,
    },
    /// Changes a volume's properties as a file.
    SetFile {
        /// Path of the export.
        path: ExportPath,
        /// The volume.
        volume: VolumeName,
        /// Changes.
        patch: FileSpec,
    },
    /// Removes a file of an export. Its volume stays.
    RemoveFile {
        /// Path of the export.
        path: ExportPath,
        /// The volume.
        volume: VolumeName,
    },
}

impl NfsChange {
    /// Tells whether it takes a right to `export` from clients, or took it before where it asks for what is already so.
    pub(super) fn takes_from(&self, export: &ExportName) -> bool {
        let (of, file) = match export {
            ExportName::Directory { path } => (path, None),
            ExportName::File { path, volume } => (path, Some(volume)),
            _ => return false,
        };
        // Calls under way are known by the export alone.
        let is_of = |path: &ExportPath, volume: &VolumeName| {
            path == of && file.is_none_or(|file| file == volume)
        };
        match self {
            Self::RemoveExport { path } => path == of,
            Self::SetExport { path, patch } => {
                let takes = patch.read_only == Some(true)
                    || patch.allow_any_host == Some(false)
                    || patch.allowed_addresses.is_some();
                path == of && takes
            }
            Self::SetFile {
                path,
                volume,
                patch,
            } => is_of(path, volume) && patch.read_only == Some(true),
            Self::RemoveFile { path, volume } => is_of(path, volume),
            Self::AddExport { .. } | Self::AddFile { .. } => false,
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

    /// The volume that is a file of an export.
    ///
    /// # Errors
    /// There is none; the error knows the closest name.
    pub fn file(&self, path: &ExportPath, volume: &VolumeName) -> Result<&NfsFile, StateError> {
        let files = &self.export(path)?.files;
        let unknown = || StateError::unknown(Kind::File, volume, files.keys());
        files.get(volume).ok_or_else(unknown)
    }

    /// All volumes that are files, with their exports.
    pub fn files(&self) -> impl Iterator<Item = (&ExportPath, &VolumeName, &NfsFile)> {
        self.exports.iter().flat_map(|(path, export)| {
            let files = export.files.iter();
            files.map(move |(volume, file)| (path, volume, file))
        })
    }

    /// Paths of the exports that have a volume as a file.
    pub fn exports_of<'a>(
        &'a self,
        volume: &'a VolumeName,
    ) -> impl Iterator<Item = &'a ExportPath> {
        let exports = self.exports.iter();
        exports.filter_map(|(path, export)| export.files.contains_key(volume).then_some(path))
    }

    fn check_files(&self, path: &ExportPath, export: &NfsExport) -> Result<(), StateError> {
        if export.files.len() > FILES_MAX {
            return Err(StateError::LimitReached {
                kind: Kind::File,
                limit: FILES_MAX,
            });
        }
        for (volume, file) in &export.files {
            check_is_of_volumes(path, export)?;
            self.volume(volume)?;
            file.qos.check()?;
            if file.number == 0 || file.number > self.last_export {
                let what = format!("number of file {volume} of export {path}");
                return Err(StateError::invalid(
                    what,
                    "is none that was given to a file",
                ));
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), StateError> {
        let mut known = BTreeSet::new();
        let exports = self.exports.values().map(|export| export.number);
        let files = self.files().map(|(_, _, file)| file.number);
        for number in exports.chain(files) {
            if !known.insert(number) {
                return Err(StateError::invalid(
                    format!("number {number} of an export or of a file"),
                    "is another one's already",
                ));
            }
        }
        Ok(())
    }

    pub(super) fn check_exports(&self) -> Result<(), StateError> {
        self.check_numbers()?;
        for (path, export) in &self.exports {
            check_source(&export.source)?;
            self.check_files(path, export)?;
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
            let directories = export.directory().zip(other.directory());
            if directories.is_some_and(|(one, other)| is_path_within(one, other)) {
                let problem = format!(
                    "is within {}, which export {other_path} serves: exports do not nest",
                    other.source
                );
                return Err(StateError::invalid(&export.source, problem));
            }
            if export.uuid == other.uuid {
                return Err(StateError::IdentifierTaken {
                    field: "UUID",
                    value: export.uuid.to_string(),
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
            NfsChange::AddFile { path, volume, spec } => self.add_file(path, volume, spec),
            NfsChange::SetFile {
                path,
                volume,
                patch,
            } => {
                let mut file = self.file(path, volume)?.clone();
                file.read_only = patch.read_only.unwrap_or(file.read_only);
                file.qos = patch.qos.unwrap_or_default().applied_to(&file.qos);
                self.export_mut(path)?.files.insert(volume.clone(), file);
                Ok(())
            }
            NfsChange::RemoveFile { path, volume } => {
                self.file(path, volume)?;
                self.export_mut(path)?.files.remove(volume);
                Ok(())
            }
        }
    }

    fn export_mut(&mut self, path: &ExportPath) -> Result<&mut NfsExport, StateError> {
        self.export(path)?;
        Ok(self.exports.get_mut(path).expect("it is there"))
    }

    fn add_file(
        &mut self,
        path: &ExportPath,
        volume: &VolumeName,
        spec: &FileSpec,
    ) -> Result<(), StateError> {
        let export = self.export(path)?;
        check_is_of_volumes(path, export)?;
        self.volume(volume)?;
        if let Some(found) = export.files.get(volume) {
            let (kind, name) = (Kind::File, format!("{volume} of export {path}"));
            let wanted = spec.read_only.as_ref();
            same(kind, &name, "read_only", &found.read_only, wanted)?;
            let qos = spec.qos.map(|asked| asked.applied_to(&found.qos));
            return same(kind, &name, "qos", &found.qos, qos.as_ref());
        }
        self.last_export += 1;
        let file = NfsFile {
            number: self.last_export,
            read_only: spec.read_only.unwrap_or(false),
            qos: spec.qos.unwrap_or_default().applied_to(&Qos::default()),
        };
        self.export_mut(path)?.files.insert(volume.clone(), file);
        Ok(())
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
            files: BTreeMap::new(),
        };
        self.exports.insert(path.clone(), export);
        Ok(())
    }
}

/// Checks that files of an export may be volumes.
fn check_is_of_volumes(path: &ExportPath, export: &NfsExport) -> Result<(), StateError> {
    match &export.source[..] {
        VOLUMES_SOURCE => Ok(()),
        source => Err(StateError::invalid(
            format!("export {path}"),
            format!(
                "serves {source}: volumes are files of exports whose source is {VOLUMES_SOURCE}"
            ),
        )),
    }
}

/// Checks what can be said of an export's source without looking at it.
fn check_source(source: &str) -> Result<(), StateError> {
    let refuse = |problem: &str| Err(StateError::invalid("source", problem));
    if source.len() > SOURCE_LENGTH_MAX || source.chars().any(char::is_control) {
        return refuse("must have at most 4096 bytes, and no control characters");
    }
    if source == VOLUMES_SOURCE {
        return Ok(());
    }
    let Some(path) = directory_of(source) else {
        return refuse(
            "must be a directory by its whole path, as in dir:/srv/share, or volumes: for volumes as files",
        );
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
