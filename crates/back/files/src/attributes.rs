//! Attributes of files, and changes of them.

use rustix::fs::{self, FileType, Stat};

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    Block,
    /// A character device.
    Character,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
    /// A named pipe.
    Pipe,
}

/// A time since the beginning of 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds of the next one.
    pub nanoseconds: u32,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its kind.
    pub kind: Kind,
    /// Its number on its file system.
    pub number: u64,
    /// Its permissions.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Its owner.
    pub owner: u32,
    /// Its group.
    pub group: u32,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes that it takes of its file system.
    pub used: u64,
    /// A device's major and minor number.
    pub device: (u32, u32),
    /// Time of the last read.
    pub accessed: Time,
    /// Time of the last write.
    pub modified: Time,
    /// Time of the last change of anything.
    pub changed: Time,
}

impl From<&Stat> for Attributes {
    fn from(stat: &Stat) -> Self {
        let time = |seconds: i64, nanoseconds: u32| Time {
            seconds,
            nanoseconds,
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::Regular,
            FileType::Directory => Kind::Directory,
            FileType::BlockDevice => Kind::Block,
            FileType::CharacterDevice => Kind::Character,
            FileType::Symlink => Kind::Link,
            FileType::Socket => Kind::Socket,
            _ => Kind::Pipe,
        };
        Attributes {
            kind,
            number: stat.st_ino,
            mode: stat.st_mode & 0o7777,
            links: stat.st_nlink as u32,
            owner: stat.st_uid,
            group: stat.st_gid,
            size: stat.st_size as u64,
            used: stat.st_blocks as u64 * 512,
            device: (fs::major(stat.st_rdev), fs::minor(stat.st_rdev)),
            accessed: time(stat.st_atime, stat.st_atime_nsec as u32),
            modified: time(stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }
}

/// Value that a time is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time that it is.
    Now,
    /// That one.
    To(Time),
}

/// Changes of a file's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Its length in bytes.
    pub size: Option<u64>,
    /// Its permissions.
    pub mode: Option<u32>,
    /// Its owner.
    pub owner: Option<u32>,
    /// Its group.
    pub group: Option<u32>,
    /// Time of the last read.
    pub accessed: Option<SetTime>,
    /// Time of the last write.
    pub modified: Option<SetTime>,
}

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes.
    pub bytes: u64,
    /// Of these, free.
    pub bytes_free: u64,
    /// Of these, free for this user.
    pub bytes_available: u64,
    /// Files that there can be.
    pub files: u64,
    /// Of these, free.
    pub files_free: u64,
    /// Of these, free for this user.
    pub files_available: u64,
    /// Bytes of a name at most.
    pub name_bytes_max: u32,
}
