//! The state in a local file.
//!
//! The file is JSON: `{"format": F, "crc32c": "XXXXXXXX", "state": {...}}`, where the checksum is
//! that of the text of `state`, byte for byte. This envelope is the same in every format, so that each version can name a format
//! that is later than its own.
//!
//! A later version may add to a format what is left out where there is none of it. So came to format 3, after its first version:
//! `targets`, `secrets`, `iqns` of a host, `uuid` of a volume, `advertise` of a portal, the protocol iSCSI, `exports`,
//! `last_export` and the protocol NFS. There is room for `addresses` of a host and for more protocols. A version that finds in a sound file what it does not know
//! refuses it and names it; one that finds none of it loads it. Only what a version would misread takes another format.
//!
//! Beside the file lie, by suffix:
//!
//! - `.lock`, locked by the gateway that uses the store, with its process number;
//! - `.new`, the next state while it is written;
//! - `.previous`, the state before the last change, for the case that the file is damaged;
//! - `.format-F`, the file as it was when it was last of the earlier format F: the way back to the version that wrote it;
//! - `.secrets-G`, the secrets of generation G, which the state names by its number, in a file that only the gateway's user may read.
//!
//! The first save over a file of an earlier format keeps that under its `.format-F` before all else: `.new` written with its bytes,
//! synced, renamed, the directory synced. Later saves find the format of this version and leave it alone.
//!
//! The order of a save is: `.new` written, synced, the present file linked as `.previous`, `.new`
//! renamed over the file, the directory synced. Up to the rename the old state is what a restart
//! finds; from it on the new one, whole, since its bytes were durable before it had the name. A
//! save is reported as done only after the directory is durable too. A directory that had to be made is durable in its own
//! directory before the store is used.
//!
//! Secrets that differ from the stored ones are saved before the state that names their generation: `.new` written with them, synced,
//! renamed to the name of their generation, the directory synced. A generation is the revision of the state in which the secrets
//! changed, so no two have one name, but for one that no state came to name. So the state and the one before it find theirs,
//! whenever the process dies. After a save the files that neither of the two names are removed: one more change, and replaced secrets are
//! gone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::disk::{Disk, RealDisk};
use super::{Store, StoreError, secrets};
use crate::state::{Secrets, State};

/// The format that this version writes.
const FORMAT: u32 = 3;
/// Largest state file that is read, in bytes.
const FILE_LENGTH_MAX: u64 = 512 * 1024 * 1024;

/// How often a lock that another holds is tried: a gateway that is just ending gets time to end.
const LOCK_ATTEMPTS: u32 = 20;
/// End of the name of a file of secrets, before its generation.
const SECRETS_SUFFIX: &str = ".secrets-";
/// Time between two attempts at a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The members of a JSON object.
type Members = serde_json::Map<String, Value>;

/// Turns a state of one format into one of the next.
type Migration = fn(&mut Members) -> Result<(), String>;

/// The migrations in order: the first takes format 1 to 2. A change of what the state means adds one.
const MIGRATIONS: [Migration; FORMAT as usize - 1] = [add_limits, name_machines];

/// Changes each member of the object `name`, which are objects themselves.
fn each(
    of: &mut Members,
    name: &str,
    mut change: impl FnMut(&str, &mut Members) -> Result<(), String>,
) -> Result<(), String> {
    let members = of.get_mut(name).and_then(Value::as_object_mut);
    for (key, member) in members.ok_or_else(|| format!("it has no object '{name}'"))? {
        let members = member.as_object_mut();
        let members = members.ok_or_else(|| format!("'{key}' in '{name}' is not an object"))?;
        change(key, members)?;
    }
    Ok(())
}

/// Format 2: a namespace has limits.
fn add_limits(state: &mut Members) -> Result<(), String> {
    each(state, "subsystems", |_, subsystem| {
        each(subsystem, "namespaces", |_, namespace| {
            namespace.insert("qos".to_owned(), json!({}));
            Ok(())
        })
    })
}

/// Format 3: a host is a machine that has NQNs, and a listener a portal with a protocol.
fn name_machines(state: &mut Members) -> Result<(), String> {
    each(state, "hosts", |nqn, host| {
        host.insert("nqns".to_owned(), json!([nqn]));
        Ok(())
    })?;
    each(state, "listeners", |_, listener| {
        let kind = listener.remove("kind");
        listener.insert("protocol".to_owned(), json!({"nvme": {"kind": kind}}));
        Ok(())
    })?;
    let portals = state.remove("listeners").unwrap_or_default();
    state.insert("portals".to_owned(), portals);
    Ok(())
}

/// What the file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    format: u32,
    crc32c: String,
    #[serde(borrow)]
    state: &'a RawValue,
}

/// A store in a local file, locked for as long as this value lives.
pub struct FileStore {
    path: PathBuf,
    disk: Box<dyn Disk>,
    /// Which revision is stored; none before loading.
    stored: Option<Option<u64>>,
    /// Format and text of what was loaded, where the format is an earlier one: to be kept before the next save.
    earlier: Option<(u32, String)>,
    /// Generations of the secrets that are stored: those of the state, and those of the state before it.
    secrets: [Option<u64>; 2],
    _lock: File,
}

impl FileStore {
    /// Takes the store at `path`; its directory is made if there is none.
    ///
    /// # Errors
    /// Another gateway has it, or the system refuses.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_on(Box::new(RealDisk), path)
    }

    fn open_on(mut disk: Box<dyn Disk>, path: &Path) -> Result<Self, StoreError> {
        let path = resolve(&mut *disk, path)?;
        let lock = lock(&path)?;
        Ok(Self {
            path,
            disk,
            stored: None,
            earlier: None,
            secrets: [None; 2],
            _lock: lock,
        })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        beside(&self.path, suffix)
    }

    fn system(&self, step: &'static str, path: &Path, source: io::Error) -> StoreError {
        StoreError::System {
            step,
            path: path.to_owned(),
            source,
        }
    }

    fn damaged(&self, reason: impl Into<String>) -> StoreError {
        let previous = self.beside(".previous");
        let way_out = if previous.exists() {
            format!(
                "the state before the last change is in {}: look at both, and move the better \
                     one to {}",
                previous.display(),
                self.path.display()
            )
        } else {
            format!(
                "restore {} from a backup, or move it away to start afresh",
                self.path.display()
            )
        };
        StoreError::Damaged {
            path: self.path.clone(),
            reason: reason.into(),
            way_out,
        }
    }

    /// The file of secrets of a generation.
    fn secrets_path(&self, generation: u64) -> PathBuf {
        self.beside(&format!("{SECRETS_SUFFIX}{generation}"))
    }

    /// Reads the secrets that the state names.
    fn read_secrets(&self, generation: u64) -> Result<Secrets, StoreError> {
        let path = self.secrets_path(generation);
        let read = match fs::read_to_string(&path) {
            Ok(text) => secrets::decode(&text, generation).map_err(str::to_owned),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err("it is not there".into()),
            Err(error) => Err(format!("it cannot be read ({error})")),
        };
        read.map_err(|reason| StoreError::Secrets {
            state: self.path.clone(),
            path,
            reason,
        })
    }

    /// Stores secrets beside those that are named now, durably.
    fn save_secrets(&mut self, secrets: &Secrets) -> Result<(), StoreError> {
        let Some(generation) = secrets.generation else {
            return Ok(());
        };
        if self.secrets[0] == Some(generation) {
            return Ok(());
        }
        let (new, path) = (self.beside(".new"), self.secrets_path(generation));
        self.write_new(&new, &secrets::encode(secrets, generation))?;
        let renamed = self.disk.rename(&new, &path);
        let durable = renamed.and_then(|()| self.disk.sync_directory(directory_of(&self.path)));
        durable.map_err(|error| self.system("write the secrets to", &path, error))
    }

    /// Removes the files of secrets that neither the state nor the one before it names.
    fn remove_secrets(&mut self) {
        for (generation, path) in generations(&self.path) {
            if self.secrets.contains(&Some(generation)) {
                continue;
            }
            // The next save tries it again.
            if let Err(error) = self.disk.remove(&path) {
                tracing::warn!(path = %path.display(), %error, "secrets that were replaced stay in a file");
            }
        }
    }

    fn read(&self) -> Result<Option<String>, StoreError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| self.system("open", &self.path, error))?,
        };
        let mut bytes = Vec::new();
        let mut limited = file.take(FILE_LENGTH_MAX + 1);
        limited
            .read_to_end(&mut bytes)
            .map_err(|error| self.system("read", &self.path, error))?;
        if bytes.len() as u64 > FILE_LENGTH_MAX {
            return Err(self.damaged("it is longer than any state can be"));
        }
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| self.damaged("it is not text"))
    }

    /// The state that `text` holds, and the format that it had.
    fn decode(&self, text: &str) -> Result<(u32, State), StoreError> {
        let envelope: Envelope<'_> =
            serde_json::from_str(text).map_err(|error| self.damaged(error.to_string()))?;
        if envelope.format > FORMAT {
            let (path, format) = (self.path.clone(), envelope.format);
            return Err(StoreError::Newer {
                path,
                format,
                known: FORMAT,
            });
        }
        let found = checksum(envelope.state.get());
        if found != envelope.crc32c {
            let reason = format!("its checksum is {found} and should be {}", envelope.crc32c);
            return Err(self.damaged(reason));
        }
        let mut members: Members = serde_json::from_str(envelope.state.get())
            .map_err(|error| self.damaged(error.to_string()))?;
        migrate(&mut members, envelope.format, &MIGRATIONS)
            .map_err(|reason| self.damaged(reason))?;
        let path = self.path.clone();
        let mut state: State = match serde_json::from_value(Value::Object(members)) {
            // What is sound and is not understood, another version wrote.
            Err(source) if envelope.format == FORMAT => {
                return Err(StoreError::Unknown { path, source });
            }
            read => read.map_err(|error| self.damaged(error.to_string()))?,
        };
        if let Some(generation) = state.secrets.generation {
            state.secrets = self.read_secrets(generation)?;
        }
        state
            .check()
            .map_err(|source| StoreError::Invalid { path, source })?;
        Ok((envelope.format, state))
    }

    /// Keeps what was loaded of an earlier format beside the file, durably.
    fn keep_earlier(&mut self) -> Result<(), StoreError> {
        let Some((format, text)) = self.earlier.clone() else {
            return Ok(());
        };
        let (new, kept) = (
            self.beside(".new"),
            self.beside(&format!(".format-{format}")),
        );
        self.write_new(&new, &text)?;
        // One that was kept before is not lost for that of another time.
        let is_another = std::fs::read(&kept).is_ok_and(|before| before != text.as_bytes());
        let aside = self.beside(&format!(".format-{format}.previous"));
        let moved = match is_another {
            true => self.disk.rename(&kept, &aside),
            false => Ok(()),
        };
        let renamed = moved.and_then(|()| self.disk.rename(&new, &kept));
        let durable = renamed.and_then(|()| self.disk.sync_directory(directory_of(&self.path)));
        durable.map_err(|error| self.system("keep the earlier format in", &kept, error))?;
        tracing::info!(path = %kept.display(), "kept the state file of the earlier format");
        self.earlier = None;
        Ok(())
    }

    /// Writes the new file beside the old one, durably.
    fn write_new(&mut self, new: &Path, text: &str) -> Result<(), StoreError> {
        let result = (|| {
            let mut file = self.disk.create(new)?;
            self.disk.write(&mut file, text.as_bytes())?;
            self.disk.sync(&file)
        })();
        result.map_err(|error| self.system("write", new, error))
    }

    /// Tells whether the file holds this text.
    fn holds(&self, text: &str) -> bool {
        self.read()
            .is_ok_and(|found| found.as_deref() == Some(text))
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Option<State>, StoreError> {
        let text = self.read()?;
        let decoded = text.as_deref().map(|text| self.decode(text)).transpose()?;
        let (format, state) = decoded.unzip();
        self.earlier = format.filter(|format| *format < FORMAT).zip(text);
        self.stored = Some(state.as_ref().map(|state| state.revision));
        let named = state.as_ref().and_then(|state| state.secrets.generation);
        self.secrets = [named, generation_of(&self.beside(".previous"))];
        Ok(state)
    }

    fn save(&mut self, state: &State, expected: Option<u64>) -> Result<(), StoreError> {
        let found = self.stored.ok_or(StoreError::NotLoaded)?;
        if found != expected {
            return Err(StoreError::Conflict { expected, found });
        }
        self.keep_earlier()?;
        self.save_secrets(&state.secrets)?;
        let (new, text) = (self.beside(".new"), encode(state));
        self.write_new(&new, &text)?;
        if found.is_some() {
            let previous = self.beside(".previous");
            let kept = self.disk.link(&self.path, &previous);
            // The previous state is a convenience; a file system without links still serves.
            match kept {
                Ok(()) => self.secrets[1] = self.secrets[0],
                Err(error) => {
                    tracing::warn!(path = %previous.display(), %error, "cannot keep the previous state");
                }
            }
        }
        let renamed = match self.disk.rename(&new, &self.path) {
            Err(error) if !self.holds(&text) => {
                return Err(self.system("replace", &self.path, error));
            }
            // One that fails may have been done all the same.
            renamed => renamed,
        };
        self.stored = Some(Some(state.revision));
        self.secrets[0] = state.secrets.generation;
        let synced = renamed.and_then(|()| self.disk.sync_directory(directory_of(&self.path)));
        synced.map_err(|source| StoreError::Uncertain {
            path: self.path.clone(),
            source,
        })?;
        self.remove_secrets();
        Ok(())
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// The files of secrets beside a state file, with their generations.
fn generations(path: &Path) -> Vec<(u64, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}{SECRETS_SUFFIX}");
    let Ok(files) = fs::read_dir(directory_of(path)) else {
        return Vec::new();
    };
    let generation = |file: fs::DirEntry| {
        let generation = file
            .file_name()
            .to_str()?
            .strip_prefix(&prefix)?
            .parse()
            .ok()?;
        Some((generation, file.path()))
    };
    files.filter_map(|file| generation(file.ok()?)).collect()
}

/// The generation of the secrets that a state file names, where it can be read.
fn generation_of(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let envelope: Envelope<'_> = serde_json::from_str(&text).ok()?;
    let members: Members = serde_json::from_str(envelope.state.get()).ok()?;
    members.get("secrets")?.as_u64()
}

pub(super) fn checksum(text: &str) -> String {
    format!("{:08x}", crc32c::crc32c(text.as_bytes()))
}

fn encode(state: &State) -> String {
    let text = serde_json::to_string_pretty(state).expect("a state is plain JSON");
    let crc32c = checksum(&text);
    format!("{{\"format\": {FORMAT}, \"crc32c\": \"{crc32c}\", \"state\": {text}}}\n")
}

/// Takes a state of `format` to the format after the last of `migrations`.
fn migrate(state: &mut Members, format: u32, migrations: &[Migration]) -> Result<(), String> {
    let done = (format as usize)
        .checked_sub(1)
        .ok_or("there is no format 0")?;
    let mut left = migrations.iter().skip(done);
    left.try_for_each(|migration| migration(state))
}

/// Returns the directory that holds a file or directory.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Makes a directory, and those above it that are not there, durably.
fn make_directory(disk: &mut dyn Disk, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = directory_of(path);
    make_directory(disk, parent)?;
    match disk.make_directory(path) {
        // Another made it meanwhile.
        Err(_) if path.is_dir() => {}
        made => made?,
    }
    disk.sync_directory(parent)
}

/// Makes the directory if need be, and follows links, so that two names of one file are one store.
fn resolve(disk: &mut dyn Disk, path: &Path) -> Result<PathBuf, StoreError> {
    let fail = |step, source| StoreError::System {
        step,
        path: path.to_owned(),
        source,
    };
    if let Ok(found) = fs::canonicalize(path) {
        return Ok(found);
    }
    let Some(name) = path.file_name() else {
        return Err(fail("use", io::Error::other("it does not name a file")));
    };
    let parent = directory_of(path);
    let made = make_directory(disk, parent);
    made.map_err(|error| fail("make the directory of", error))?;
    let parent = fs::canonicalize(parent).map_err(|error| fail("find the directory of", error))?;
    Ok(parent.join(name))
}

/// Locks the store and leaves this process's number in the lock file.
fn lock(path: &Path) -> Result<File, StoreError> {
    let name = beside(path, ".lock");
    let fail = |source| StoreError::System {
        step: "lock",
        path: name.clone(),
        source,
    };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut file = options.open(&name).map_err(fail)?;
    for attempt in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = file.read_to_string(&mut text);
                let holder = read.ok().and_then(|_| text.trim().parse().ok());
                return Err(StoreError::Locked {
                    path: path.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
    }
    file.set_len(0).map_err(fail)?;
    writeln!(file, "{}", std::process::id()).map_err(fail)?;
    Ok(file)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
