//! The steps that a file store makes on a file system, so that tests can fail any one of them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Mode of the state file: the gateway's alone.
const FILE_MODE: u32 = 0o600;

/// Mode of a state directory that had to be made.
const DIRECTORY_MODE: u32 = 0o750;

/// A file system as far as saving needs one.
pub(super) trait Disk: Send {
    /// Makes a directory in one that exists.
    fn make_directory(&mut self, path: &Path) -> io::Result<()>;
    /// Creates the file at `path` or empties it.
    fn create(&mut self, path: &Path) -> io::Result<File>;
    /// Writes all of `bytes`.
    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&mut self, file: &File) -> io::Result<()>;
    /// Gives the file at `from` a second name, in place of whatever has that name.
    fn link(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives the file at `from` the name `to`, in place of whatever has that name.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes the file at `path` away.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&mut self, path: &Path) -> io::Result<()>;
}

/// The real file system.
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(DIRECTORY_MODE).create(path)
    }

    fn create(&mut self, path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::hard_link(from, to)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}
