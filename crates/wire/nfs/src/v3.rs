//! Version 3: its procedures, their arguments, and the attributes of its files (RFC 1813).

use std::ops::Range;

use weir_open_enum::open_enum;

use crate::attribute::{AttributeChanges, SetTime, Time};
use crate::types::{FileHandle, NAME_BYTES_MAX, file_type};
use crate::xdr::{Reader, Writer, XdrError};

/// The version's number.
pub const VERSION: u32 = 3;
/// Bytes of a file handle at most (NFS3_FHSIZE).
pub const HANDLE_BYTES_MAX: usize = 64;
/// Bytes of the attributes of a file.
pub const ATTRIBUTES_BYTES: usize = 84;

open_enum! {
    /// Number of a procedure (RFC 1813, section 3).
    pub enum Procedure: u32 {
        /// Does nothing.
        Null = 0 => "NULL",
        /// Yields a file's attributes.
        Getattr = 1 => "GETATTR",
        /// Sets a file's attributes.
        Setattr = 2 => "SETATTR",
        /// Looks a name up.
        Lookup = 3 => "LOOKUP",
        /// Asks which access there is.
        Access = 4 => "ACCESS",
        /// Yields the text of a symbolic link.
        Readlink = 5 => "READLINK",
        /// Reads.
        Read = 6 => "READ",
        /// Writes.
        Write = 7 => "WRITE",
        /// Makes a regular file.
        Create = 8 => "CREATE",
        /// Makes a directory.
        Mkdir = 9 => "MKDIR",
        /// Makes a symbolic link.
        Symlink = 10 => "SYMLINK",
        /// Makes a file of another kind.
        Mknod = 11 => "MKNOD",
        /// Removes a file.
        Remove = 12 => "REMOVE",
        /// Removes a directory.
        Rmdir = 13 => "RMDIR",
        /// Gives a file another name in the place of its own.
        Rename = 14 => "RENAME",
        /// Gives a file one more name.
        Link = 15 => "LINK",
        /// Lists a directory.
        Readdir = 16 => "READDIR",
        /// Lists a directory with the attributes and the handles of its files.
        Readdirplus = 17 => "READDIRPLUS",
        /// Tells how much room the file system has.
        Fsstat = 18 => "FSSTAT",
        /// Tells what the file system can do.
        Fsinfo = 19 => "FSINFO",
        /// Tells what names and links may be.
        Pathconf = 20 => "PATHCONF",
        /// Has written data on stable storage.
        Commit = 21 => "COMMIT",
    }
}

impl Procedure {
    /// Tells whether doing it twice may come to something else than doing it once.
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Procedure::Setattr
                | Procedure::Create
                | Procedure::Mkdir
                | Procedure::Symlink
                | Procedure::Mknod
                | Procedure::Remove
                | Procedure::Rmdir
                | Procedure::Rename
                | Procedure::Link
        )
    }

    /// Words that follow the status where it failed: all zero where nothing more is said.
    #[must_use]
    pub fn words_of_failure(self) -> usize {
        match self {
            Procedure::Null | Procedure::Getattr | Procedure::Other(_) => 0,
            Procedure::Lookup
            | Procedure::Access
            | Procedure::Readlink
            | Procedure::Read
            | Procedure::Readdir
            | Procedure::Readdirplus
            | Procedure::Fsstat
            | Procedure::Fsinfo
            | Procedure::Pathconf => 1,
            Procedure::Setattr
            | Procedure::Write
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Commit => 2,
            Procedure::Link => 3,
            Procedure::Rename => 4,
        }
    }
}

/// A name in a directory (diropargs3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The directory; none where the handle has no bytes.
    pub directory: Option<FileHandle>,
    /// The name.
    pub name: &'a [u8],
}

/// Ways to make a regular file (createhow3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowCreated {
    /// Made where it is not there; else only its size is set.
    Unchecked(AttributeChanges),
    /// It must not be there.
    Guarded(AttributeChanges),
    /// It must not be there, unless it was made by the call that this names.
    Exclusive([u8; 8]),
}

/// Arguments of a procedure. A file is none where its handle has no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// NULL.
    Null,
    /// GETATTR, READLINK, FSSTAT, FSINFO or PATHCONF: a file.
    File(Option<FileHandle>),
    /// SETATTR.
    Setattr {
        /// File.
        file: Option<FileHandle>,
        /// Changes.
        changes: AttributeChanges,
        /// Time of the last change that the file must have.
        guard: Option<Time>,
    },
    /// LOOKUP, REMOVE or RMDIR: a name.
    Place(Place<'a>),
    /// ACCESS.
    Access {
        /// File.
        file: Option<FileHandle>,
        /// Rights that are asked for.
        access: u32,
    },
    /// READ.
    Read {
        /// File.
        file: Option<FileHandle>,
        /// First byte.
        offset: u64,
        /// Bytes.
        count: u32,
    },
    /// WRITE.
    Write {
        /// File.
        file: Option<FileHandle>,
        /// First byte.
        offset: u64,
        /// Demand on the data before the answer (stable_how).
        stable: u32,
        /// Place of the data in what was read.
        data: Range<usize>,
    },
    /// CREATE.
    Create {
        /// Name.
        place: Place<'a>,
        /// Way to make it.
        how: HowCreated,
    },
    /// MKDIR, SYMLINK or MKNOD.
    Make {
        /// Name.
        place: Place<'a>,
        /// Kind of file (ftype3).
        kind: u32,
        /// Text of a symbolic link.
        link: &'a [u8],
        /// Attributes.
        changes: AttributeChanges,
    },
    /// RENAME.
    Rename {
        /// Its name.
        from: Place<'a>,
        /// The name that it gets.
        to: Place<'a>,
    },
    /// LINK.
    Link {
        /// File.
        file: Option<FileHandle>,
        /// The name that it gets.
        place: Place<'a>,
    },
    /// READDIR or READDIRPLUS.
    Readdir {
        /// Directory.
        directory: Option<FileHandle>,
        /// Place where the last answer ended.
        cookie: u64,
        /// Verifier of that cookie.
        verifier: [u8; 8],
        /// Bytes of names and cookies at most; none: as many as fit.
        names_bytes_max: Option<u32>,
        /// Bytes of the answer at most.
        bytes_max: u32,
    },
    /// COMMIT.
    Commit {
        /// File.
        file: Option<FileHandle>,
        /// First byte.
        offset: u64,
        /// Bytes; 0: all to the end.
        count: u32,
    },
}

impl<'a> Arguments<'a> {
    /// Reads the arguments of a procedure; none: it is not one of this version.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse(procedure: Procedure, reader: &mut Reader<'a>) -> Result<Option<Self>, XdrError> {
        Ok(Some(match procedure {
            Procedure::Null => Arguments::Null,
            Procedure::Getattr
            | Procedure::Readlink
            | Procedure::Fsstat
            | Procedure::Fsinfo
            | Procedure::Pathconf => Arguments::File(handle(reader)?),
            Procedure::Setattr => Arguments::Setattr {
                file: handle(reader)?,
                changes: parse_changes(reader)?,
                guard: match reader.bool()? {
                    true => Some(parse_time(reader)?),
                    false => None,
                },
            },
            Procedure::Lookup | Procedure::Remove | Procedure::Rmdir => {
                Arguments::Place(Place::parse(reader)?)
            }
            Procedure::Access => Arguments::Access {
                file: handle(reader)?,
                access: reader.u32()?,
            },
            Procedure::Read => Arguments::Read {
                file: handle(reader)?,
                offset: reader.u64()?,
                count: reader.u32()?,
            },
            Procedure::Write => Self::parse_write(reader)?,
            Procedure::Create => Arguments::Create {
                place: Place::parse(reader)?,
                how: match reader.u32()? {
                    0 => HowCreated::Unchecked(parse_changes(reader)?),
                    1 => HowCreated::Guarded(parse_changes(reader)?),
                    2 => HowCreated::Exclusive(reader.fixed()?),
                    other => return Err(XdrError::Undefined(other)),
                },
            },
            Procedure::Mkdir => Arguments::Make {
                place: Place::parse(reader)?,
                kind: file_type::DIRECTORY,
                changes: parse_changes(reader)?,
                link: &[],
            },
            Procedure::Symlink => Arguments::Make {
                place: Place::parse(reader)?,
                kind: file_type::LINK,
                changes: parse_changes(reader)?,
                link: reader.opaque(NAME_BYTES_MAX)?,
            },
            Procedure::Mknod => Self::parse_special(reader)?,
            Procedure::Rename => Arguments::Rename {
                from: Place::parse(reader)?,
                to: Place::parse(reader)?,
            },
            Procedure::Link => Arguments::Link {
                file: handle(reader)?,
                place: Place::parse(reader)?,
            },
            Procedure::Readdir | Procedure::Readdirplus => Arguments::Readdir {
                directory: handle(reader)?,
                cookie: reader.u64()?,
                verifier: reader.fixed()?,
                names_bytes_max: match procedure {
                    Procedure::Readdirplus => Some(reader.u32()?),
                    _ => None,
                },
                bytes_max: reader.u32()?,
            },
            Procedure::Commit => Arguments::Commit {
                file: handle(reader)?,
                offset: reader.u64()?,
                count: reader.u32()?,
            },
            Procedure::Other(_) => return Ok(None),
        }))
    }

    fn parse_write(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let (file, offset) = (handle(reader)?, reader.u64()?);
        let (count, stable) = (reader.u32()?, reader.u32()?);
        if stable > crate::types::stable::FILE_SYNC {
            return Err(XdrError::Undefined(stable));
        }
        let first = reader.position() + 4;
        // More than is to be written may have come, and no less (RFC 1813, section 3.3.7).
        if reader.opaque(u32::MAX)?.len() < count as usize {
            return Err(XdrError::Short);
        }
        Ok(Arguments::Write {
            file,
            offset,
            stable,
            data: first..first + count as usize,
        })
    }

    fn parse_special(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let (place, kind) = (Place::parse(reader)?, reader.u32()?);
        let changes = match kind {
            file_type::BLOCK | file_type::CHARACTER => {
                let changes = parse_changes(reader)?;
                reader.u64()?;
                changes
            }
            file_type::SOCKET | file_type::PIPE => parse_changes(reader)?,
            _ => AttributeChanges::default(),
        };
        Ok(Arguments::Make {
            place,
            kind,
            link: &[],
            changes,
        })
    }
}

impl<'a> Place<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Place {
            directory: handle(reader)?,
            name: reader.opaque(NAME_BYTES_MAX)?,
        })
    }
}

/// Reads a file handle (nfs_fh3); none: it has no bytes.
///
/// # Errors
/// [`XdrError`].
pub fn handle(reader: &mut Reader<'_>) -> Result<Option<FileHandle>, XdrError> {
    Ok(FileHandle::new(reader.opaque(HANDLE_BYTES_MAX as u32)?))
}

/// Reads a time (nfstime3).
fn parse_time(reader: &mut Reader<'_>) -> Result<Time, XdrError> {
    Ok(Time {
        seconds: reader.u32()?.into(),
        nanoseconds: reader.u32()?,
    })
}

/// The time that is told of one: before 1970 and after 2106 there is none.
#[must_use]
pub fn told(time: Time) -> Time {
    Time {
        seconds: time.seconds.clamp(0, u32::MAX.into()),
        nanoseconds: time.nanoseconds,
    }
}

/// Writes a time (nfstime3).
pub fn write_time(time: Time, writer: &mut Writer) {
    writer.u32(told(time).seconds as u32);
    writer.u32(time.nanoseconds);
}

fn parse_set_time(reader: &mut Reader<'_>) -> Result<Option<SetTime>, XdrError> {
    match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Server)),
        2 => match parse_time(reader)? {
            time if time.nanoseconds < 1_000_000_000 => Ok(Some(SetTime::Client(time))),
            time => Err(XdrError::Undefined(time.nanoseconds)),
        },
        other => Err(XdrError::Undefined(other)),
    }
}

/// Reads changes of a file's attributes (sattr3).
///
/// # Errors
/// [`XdrError`].
pub fn parse_changes(reader: &mut Reader<'_>) -> Result<AttributeChanges, XdrError> {
    let word = |reader: &mut Reader<'_>| match reader.bool()? {
        true => reader.u32().map(Some),
        false => Ok(None),
    };
    Ok(AttributeChanges {
        mode: word(reader)?,
        owner: word(reader)?,
        group: word(reader)?,
        size: match reader.bool()? {
            true => Some(reader.u64()?),
            false => None,
        },
        access_time: parse_set_time(reader)?,
        modify_time: parse_set_time(reader)?,
    })
}

/// Writes changes of a file's attributes (sattr3).
pub fn write_changes(changes: &AttributeChanges, writer: &mut Writer) {
    for word in [changes.mode, changes.owner, changes.group] {
        writer.bool(word.is_some());
        word.into_iter().for_each(|word| writer.u32(word));
    }
    writer.bool(changes.size.is_some());
    changes.size.into_iter().for_each(|size| writer.u64(size));
    for time in [changes.access_time, changes.modify_time] {
        match time {
            None => writer.u32(0),
            Some(SetTime::Server) => writer.u32(1),
            Some(SetTime::Client(time)) => {
                writer.u32(2);
                write_time(time, writer);
            }
        }
    }
}

/// Attributes of a file (fattr3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Kind of file (ftype3).
    pub kind: u32,
    /// Permissions.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Owner.
    pub owner: u32,
    /// Group.
    pub group: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that it takes.
    pub used: u64,
    /// Numbers of a device.
    pub device: (u32, u32),
    /// Its file system.
    pub fsid: u64,
    /// Its number there.
    pub number: u64,
    /// Time of the last read.
    pub accessed: Time,
    /// Time of the last write.
    pub modified: Time,
    /// Time of the last change of anything.
    pub changed: Time,
}

impl Attributes {
    /// Reads them.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Attributes {
            kind: reader.u32()?,
            mode: reader.u32()?,
            links: reader.u32()?,
            owner: reader.u32()?,
            group: reader.u32()?,
            size: reader.u64()?,
            used: reader.u64()?,
            device: (reader.u32()?, reader.u32()?),
            fsid: reader.u64()?,
            number: reader.u64()?,
            accessed: parse_time(reader)?,
            modified: parse_time(reader)?,
            changed: parse_time(reader)?,
        })
    }

    /// Reads them where they were told (post_op_attr).
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse_told(reader: &mut Reader<'_>) -> Result<Option<Self>, XdrError> {
        match reader.bool()? {
            true => Self::parse(reader).map(Some),
            false => Ok(None),
        }
    }

    /// Writes them.
    pub fn write(&self, writer: &mut Writer) {
        for word in [self.kind, self.mode, self.links, self.owner, self.group] {
            writer.u32(word);
        }
        writer.u64(self.size);
        writer.u64(self.used);
        writer.u32(self.device.0);
        writer.u32(self.device.1);
        writer.u64(self.fsid);
        writer.u64(self.number);
        for time in [self.accessed, self.modified, self.changed] {
            write_time(time, writer);
        }
    }
}

/// Reads what a file was like before a change and after it (wcc_data): the attributes after it.
///
/// # Errors
/// [`XdrError`].
pub fn parse_change(reader: &mut Reader<'_>) -> Result<Option<Attributes>, XdrError> {
    if reader.bool()? {
        reader.u64()?;
        parse_time(reader)?;
        parse_time(reader)?;
    }
    Attributes::parse_told(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        let time = |seconds| Time {
            seconds,
            nanoseconds: 9,
        };
        Attributes {
            kind: file_type::REGULAR,
            mode: 0o640,
            links: 2,
            owner: 3,
            group: 4,
            size: 1 << 40,
            used: 6,
            device: (7, 8),
            fsid: 9,
            number: 10,
            accessed: time(11),
            modified: time(12),
            changed: time(13),
        }
    }

    #[test]
    fn attributes_come_back() {
        let mut writer = Writer::new();
        attributes().write(&mut writer);
        assert_eq!(writer.len(), ATTRIBUTES_BYTES);
        let read = Attributes::parse(&mut Reader::new(writer.bytes()));
        assert_eq!(read, Ok(attributes()));
    }

    #[test]
    fn times_that_do_not_fit_are_told_as_the_nearest() {
        let seconds = |seconds| {
            let time = Time {
                seconds,
                nanoseconds: 0,
            };
            told(time).seconds
        };
        assert_eq!(seconds(-5), 0);
        assert_eq!(seconds(1 << 33), u32::MAX.into());
    }

    #[test]
    fn changes_come_back() {
        let changes = AttributeChanges {
            size: Some(5),
            mode: Some(0o600),
            owner: None,
            group: Some(7),
            access_time: Some(SetTime::Server),
            modify_time: Some(SetTime::Client(Time {
                seconds: 8,
                nanoseconds: 9,
            })),
        };
        for changes in [changes, AttributeChanges::default()] {
            let mut writer = Writer::new();
            write_changes(&changes, &mut writer);
            let mut reader = Reader::new(writer.bytes());
            assert_eq!(parse_changes(&mut reader), Ok(changes));
            assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn a_write_has_the_data_that_it_counts() {
        let write = |count: u32, data: &[u8]| {
            let mut writer = Writer::new();
            writer.opaque(b"handle");
            writer.u64(4096);
            writer.u32(count);
            writer.u32(2);
            writer.opaque(data);
            let parsed = Arguments::parse(Procedure::Write, &mut Reader::new(writer.bytes()));
            parsed.map(|arguments| match arguments {
                Some(Arguments::Write { data, .. }) => writer.bytes()[data].to_vec(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(write(5, b"hello"), Ok(b"hello".to_vec()));
        assert_eq!(write(2, b"hello"), Ok(b"he".to_vec()));
        assert_eq!(write(6, b"hello"), Err(XdrError::Short));
    }
}
