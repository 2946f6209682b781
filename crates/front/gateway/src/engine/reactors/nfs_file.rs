//! The file beside the state that NFS keeps over a restart: the key of its file handles, its name for clients, and which clients may
//! reclaim what they had. There is none before something is exported.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_nfs_server::{HandleKey, Keeper, Persistent};
use weir_reactor::System;

use crate::digits::{digits, parse_digits};

/// End of the file's name, behind the state's.
const SUFFIX: &str = ".nfs";
/// Mode of the file: whoever reads it can make file handles.
const MODE: u32 = 0o600;
/// Bytes of the file at most.
const LENGTH_MAX: u64 = 64 << 20;

/// Reason for which the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NfsFileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds something else.
    #[error(
        "{} is damaged: {reason}; restore it from a backup. Without it (remove it) clients of NFS must mount anew, and what they had \
         open is lost", path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
}

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// Key of the checksums of file handles.
    key: Uuid,
    /// Name of the server for clients.
    name: Uuid,
    /// The clients that may reclaim, in hexadecimal digits.
    clients: BTreeSet<String>,
}

/// The file.
pub(super) struct NfsFile {
    path: PathBuf,
    content: Mutex<Kept>,
}

/// Content that is kept.
struct Kept {
    content: Content,
    /// True once the file holds it.
    is_stored: bool,
}

impl NfsFile {
    /// The file beside the state at `state`; what is new in it is drawn where there is none.
    pub(super) fn load(state: &Path, system: &dyn System) -> Result<Self, NfsFileError> {
        let mut name = state.as_os_str().to_owned();
        name.push(SUFFIX);
        let path = PathBuf::from(name);
        let draw = || {
            let mut bytes = [0; 16];
            system.random_bytes(&mut bytes);
            uuid::Builder::from_random_bytes(bytes).into_uuid()
        };
        let (content, is_stored) = match read(&path) {
            Ok(text) => (parse(&path, &text)?, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let clients = BTreeSet::new();
                let (key, name) = (draw(), draw());
                (Content { key, name, clients }, false)
            }
            Err(source) => return Err(NfsFileError::Read { path, source }),
        };
        Ok(NfsFile {
            path,
            content: Mutex::new(Kept { content, is_stored }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Properties with which the server is started.
    pub(super) fn persistent(self: &Arc<Self>) -> Persistent {
        let content = self.lock().content.clone();
        Persistent {
            key: HandleKey(content.key.into_bytes()),
            name: content.name.into_bytes().to_vec(),
            keeper: Arc::clone(self) as Arc<dyn Keeper>,
            reclaiming: content
                .clients
                .iter()
                .filter_map(|name| parse_digits(name))
                .collect(),
        }
    }

    /// Stores what is kept, where it is not stored. Blocks.
    pub(super) fn store(&self) -> io::Result<()> {
        let mut kept = self.lock();
        if !kept.is_stored {
            self.write(&kept.content)?;
            kept.is_stored = true;
        }
        Ok(())
    }

    /// Writes a new file, and gives it the name of the present one.
    fn write(&self, content: &Content) -> io::Result<()> {
        let mut new = self.path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let text = serde_json::to_vec(content).expect("names and numbers are plain JSON");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(MODE);
        let mut file = options.open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Keeper for NfsFile {
    fn keep(&self, clients: &BTreeSet<Vec<u8>>) -> io::Result<()> {
        let mut kept = self.lock();
        let content = Content {
            clients: clients.iter().map(|name| digits(name)).collect(),
            ..kept.content.clone()
        };
        if kept.is_stored && kept.content == content {
            return Ok(());
        }
        self.write(&content)?;
        *kept = Kept {
            content,
            is_stored: true,
        };
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > LENGTH_MAX {
        return Err(io::Error::other(format!("{length} bytes are too many")));
    }
    fs::read_to_string(path)
}

fn parse(path: &Path, text: &str) -> Result<Content, NfsFileError> {
    let damaged = |reason: String| NfsFileError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let content: Content =
        serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    match content
        .clients
        .iter()
        .find(|name| parse_digits(name).is_none())
    {
        Some(name) => Err(damaged(format!("{name:?} is no name of a client"))),
        None => Ok(content),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use weir_reactor::linux::{LinuxConfig, LinuxSystem};

    use super::*;

    fn load(state: &Path) -> Result<Arc<NfsFile>, NfsFileError> {
        let system = LinuxSystem::new(LinuxConfig::default()).unwrap();
        NfsFile::load(state, &*system).map(Arc::new)
    }

    #[test]
    fn what_is_kept_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        let file = load(&state).unwrap();
        let path = folder.path().join("state.json.nfs");
        assert!(!path.exists(), "nothing is exported");
        file.store().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let names = BTreeSet::from([b"Linux NFSv4.2 client".to_vec(), vec![0, 255]]);
        file.keep(&names).unwrap();
        let (before, after) = (file.persistent(), load(&state).unwrap().persistent());
        assert_eq!(after.reclaiming, names);
        assert_eq!((after.key, after.name), (before.key, before.name));
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        load(&state).unwrap().store().unwrap();
        let path = folder.path().join("state.json.nfs");
        let text = fs::read_to_string(&path).unwrap();
        for damaged in [
            "",
            "{}",
            &text[..text.len() - 1],
            &text.replace("[]", "[\"abc\"]"),
        ] {
            fs::write(&path, damaged).unwrap();
            let error = load(&state).err().expect("it is refused").to_string();
            assert!(error.contains("state.json.nfs is damaged"), "{error}");
        }
    }
}
