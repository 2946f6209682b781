//! File systems that are served: [`FileSystem`], and [`Directory`], a directory of the machine.
//!
//! A file is known by its [`FileId`], which it keeps over renames and restarts. Calls block, and are for threads that may; the data of
//! an open file goes by the reactor's ring.

#![forbid(unsafe_code)]

mod attributes;
mod directory;
mod error;

use std::sync::Arc;

use weir_reactor::File;

pub use attributes::{Attributes, Changes, Kind, SetTime, Space, Time};
pub use directory::Directory;
pub use error::FileError;

/// Name of a file for ever: a kind and some bytes that mean something to its file system alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    kind: i32,
    length: u8,
    bytes: [u8; FileId::BYTES_MAX],
}

impl FileId {
    /// Bytes that it has at most.
    pub const BYTES_MAX: usize = 48;

    /// The name of this kind and these bytes; none where they are too many.
    #[must_use]
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut id = FileId {
            kind,
            length: bytes.len() as u8,
            bytes: [0; FileId::BYTES_MAX],
        };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

/// A file, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub id: FileId,
    /// Its attributes.
    pub attributes: Attributes,
}

/// Rights to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Its data, or its entries, may be read.
    pub read: bool,
    /// Its data, or its entries, may be changed.
    pub write: bool,
    /// It may be run, or names looked up in it.
    pub execute: bool,
}

/// Ways to make a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// Made where there is none.
    Unchecked,
    /// There must be none.
    Guarded,
    /// There must be none, but for one that the same call made: it is known by this.
    Exclusive([u8; 8]),
}

/// A file that was made, or was there.
#[derive(Debug)]
pub struct Created {
    /// It.
    pub found: Found,
    /// It, open for reading and writing, where it was made.
    pub made: Option<Arc<File>>,
}

/// A file that is not regular.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special<'a> {
    /// A directory.
    Directory,
    /// A symbolic link that says this.
    Link(&'a [u8]),
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The number of its file.
    pub number: u64,
    /// Names the place behind it.
    pub cookie: u64,
    /// The file, where it was asked for.
    pub found: Option<Found>,
}

/// Some entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// In the file system's order.
    pub entries: Vec<Entry>,
    /// There are no more.
    pub is_end: bool,
}

/// Files in directories. Everything is done as one user, the process's own.
///
/// Names are single names: neither empty nor `.` nor `..`, without a slash and without a zero byte. What changes names or attributes is
/// on stable storage when the call returns.
pub trait FileSystem: Send + Sync + 'static {
    /// The directory that everything is in.
    ///
    /// # Errors
    /// [`FileError::Absent`] while it is not there.
    fn root(&self) -> Result<Found, FileError>;

    /// Attributes of a file.
    ///
    /// # Errors
    /// [`FileError`].
    fn attributes(&self, file: &FileId) -> Result<Attributes, FileError>;

    /// Rights to a file.
    ///
    /// # Errors
    /// [`FileError`].
    fn access(&self, file: &FileId) -> Result<Access, FileError>;

    /// The file of a name in a directory. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`FileError`].
    fn lookup(&self, directory: &FileId, name: &[u8]) -> Result<Found, FileError>;

    /// The directory that a directory is in.
    ///
    /// # Errors
    /// [`FileError::NotFound`] for the root.
    fn parent(&self, directory: &FileId) -> Result<Found, FileError>;

    /// Entries behind `cookie`, 0 being the beginning, until their names take about `bytes`: one at least, where there are any. Files
    /// that are not of this file system are left out. The directory itself and the one above it (`.`, `..`) are among them where the
    /// file system lists them, without their files, and count for nothing.
    ///
    /// # Errors
    /// [`FileError`].
    fn list(
        &self,
        directory: &FileId,
        cookie: u64,
        bytes: usize,
        with_files: bool,
    ) -> Result<Listing, FileError>;

    /// Text of a symbolic link.
    ///
    /// # Errors
    /// [`FileError`].
    fn read_link(&self, link: &FileId) -> Result<Vec<u8>, FileError>;

    /// Opens a regular file for I/O.
    ///
    /// # Errors
    /// [`FileError`].
    fn open(&self, file: &FileId, write: bool) -> Result<Arc<File>, FileError>;

    /// Opens a regular file for writing, as its owner may whatever its mode says: it was open for writing before the mode was set, as
    /// far as anybody knows.
    ///
    /// # Errors
    /// [`FileError`].
    fn open_as_owner(&self, file: &FileId) -> Result<Arc<File>, FileError> {
        self.open(file, true)
    }

    /// Makes a regular file. Of one that is there only the size is set.
    ///
    /// # Errors
    /// [`FileError`].
    fn create(
        &self,
        directory: &FileId,
        name: &[u8],
        creation: Creation,
        changes: &Changes,
    ) -> Result<Created, FileError>;

    /// Makes a file that is not regular.
    ///
    /// # Errors
    /// [`FileError`].
    fn make(
        &self,
        directory: &FileId,
        name: &[u8],
        special: Special<'_>,
        changes: &Changes,
    ) -> Result<Found, FileError>;

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`FileError`].
    fn link(&self, file: &FileId, directory: &FileId, name: &[u8]) -> Result<(), FileError>;

    /// Removes a name.
    ///
    /// # Errors
    /// [`FileError`].
    fn remove(&self, directory: &FileId, name: &[u8]) -> Result<(), FileError>;

    /// Gives a file another name in the place of that one.
    ///
    /// # Errors
    /// [`FileError`].
    fn rename(&self, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<(), FileError>;

    /// Changes attributes.
    ///
    /// # Errors
    /// [`FileError`].
    fn set(&self, file: &FileId, changes: &Changes) -> Result<(), FileError>;

    /// Looks how much room there is.
    ///
    /// # Errors
    /// [`FileError`].
    fn space(&self) -> Result<Space, FileError>;
}
