//! Errors of file systems.

use std::io;

use rustix::io::Errno;

/// A reason for which a file system does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file system is not there: the directory is another one than it was, as where its disk is not mounted.
    #[error("the directory that is served is not there")]
    Absent,
    /// There is no such name.
    #[error("there is no file of this name")]
    NotFound,
    /// The name is taken.
    #[error("there is a file of this name")]
    Exists,
    /// The file is gone.
    #[error("the file is gone")]
    Stale,
    /// The user may not.
    #[error("the user may not do this")]
    Access,
    /// Nobody may, or the owner alone.
    #[error("that is not permitted")]
    NotPermitted,
    /// It is no directory.
    #[error("it is not a directory")]
    NotDirectory,
    /// It is a directory.
    #[error("it is a directory")]
    IsDirectory,
    /// It is a symbolic link.
    #[error("it is a symbolic link")]
    IsLink,
    /// It is not regular.
    #[error("it is not a regular file")]
    NotRegular,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// An argument is not valid.
    #[error("an argument is not valid")]
    Invalid,
    /// The name is too long.
    #[error("the name is too long")]
    NameTooLong,
    /// The file would be too large.
    #[error("the file would be too large")]
    TooLarge,
    /// There is no room left.
    #[error("the file system is full")]
    NoSpace,
    /// The user has no room left.
    #[error("the user's quota is used up")]
    Quota,
    /// The file system is read-only.
    #[error("the file system is read-only")]
    ReadOnly,
    /// The file has too many names.
    #[error("the file has too many links")]
    TooManyLinks,
    /// Two file systems are involved.
    #[error("the files are on different file systems")]
    CrossesFileSystems,
    /// The file system cannot.
    #[error("the file system does not support that")]
    NotSupported,
    /// The process has no more descriptors or memory: later it may work.
    #[error("that is not possible now")]
    Busy,
    /// The disk failed, or something that has no other name here.
    #[error("an I/O error: {}", io::Error::from_raw_os_error(*.0))]
    Io(i32),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => FileError::NotFound,
            Errno::EXIST => FileError::Exists,
            Errno::STALE => FileError::Stale,
            // Of a program that runs, and of a directory on which something is mounted: waiting does not help.
            Errno::ACCESS | Errno::TXTBSY => FileError::Access,
            Errno::PERM | Errno::BUSY => FileError::NotPermitted,
            Errno::NOTDIR => FileError::NotDirectory,
            Errno::ISDIR => FileError::IsDirectory,
            Errno::LOOP => FileError::IsLink,
            Errno::NOTEMPTY => FileError::NotEmpty,
            Errno::INVAL => FileError::Invalid,
            Errno::NAMETOOLONG => FileError::NameTooLong,
            Errno::FBIG | Errno::OVERFLOW => FileError::TooLarge,
            Errno::NOSPC => FileError::NoSpace,
            Errno::DQUOT => FileError::Quota,
            Errno::ROFS => FileError::ReadOnly,
            Errno::MLINK => FileError::TooManyLinks,
            Errno::XDEV => FileError::CrossesFileSystems,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => FileError::NotSupported,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => FileError::Busy,
            other => FileError::Io(other.raw_os_error()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None if error.kind() == io::ErrorKind::Unsupported => FileError::NotSupported,
            None => FileError::Io(Errno::IO.raw_os_error()),
        }
    }
}
