//! Operations of a COMPOUND and what they ask for (RFC 8881, section 18; RFC 7862, section 15).

use std::ops::Range;

use weir_open_enum::open_enum;

use crate::attribute::{AttributeChanges, AttributeError, Bitmap};
use crate::types::{
    ChannelAttributes, FileHandle, HANDLE_BYTES_MAX, NAME_BYTES_MAX, OPAQUE_BYTES_MAX, SessionId,
    StateId,
};
use crate::xdr::{Reader, XdrError};

/// Bytes of a symbolic link at most.
const LINK_BYTES_MAX: u32 = 4096;
/// Stateids that one TEST_STATEID asks for at most.
const STATEIDS_MAX: u32 = 1024;
/// Bytes that one WRITE may have for a reader.
const DATA_BYTES_MAX: u32 = 64 << 20;
/// Bytes of what a client says of its implementation at most.
const IMPLEMENTATION_MAX: u32 = 1024;
/// Servers that a COPY names at most.
const SERVERS_MAX: u32 = 16;
/// Flavors of security of callbacks that are read at most.
const SECURITIES_MAX: u32 = 8;

open_enum! {
    /// Number of an operation (nfs_opnum4).
    pub enum OperationNumber: u32 {
        /// Asks which access there is.
        Access = 3 => "ACCESS",
        /// Ends an open.
        Close = 4 => "CLOSE",
        /// Has written data on stable storage.
        Commit = 5 => "COMMIT",
        /// Makes a file that is not regular.
        Create = 6 => "CREATE",
        /// Ends delegations that wait to be reclaimed.
        Delegpurge = 7 => "DELEGPURGE",
        /// Returns a delegation.
        Delegreturn = 8 => "DELEGRETURN",
        /// Reads attributes.
        Getattr = 9 => "GETATTR",
        /// Yields the current file handle.
        Getfh = 10 => "GETFH",
        /// Makes a hard link.
        Link = 11 => "LINK",
        /// Locks a range.
        Lock = 12 => "LOCK",
        /// Asks whether a range could be locked.
        Lockt = 13 => "LOCKT",
        /// Unlocks a range.
        Locku = 14 => "LOCKU",
        /// Looks a name up.
        Lookup = 15 => "LOOKUP",
        /// Goes to the parent.
        Lookupp = 16 => "LOOKUPP",
        /// Goes on where attributes differ.
        Nverify = 17 => "NVERIFY",
        /// Opens a regular file.
        Open = 18 => "OPEN",
        /// Opens named attributes.
        Openattr = 19 => "OPENATTR",
        /// Confirms an open (version 4.0).
        OpenConfirm = 20 => "OPEN_CONFIRM",
        /// Gives up some of an open's access.
        OpenDowngrade = 21 => "OPEN_DOWNGRADE",
        /// Sets the current file handle.
        Putfh = 22 => "PUTFH",
        /// Goes to the public root.
        Putpubfh = 23 => "PUTPUBFH",
        /// Goes to the root.
        Putrootfh = 24 => "PUTROOTFH",
        /// Reads.
        Read = 25 => "READ",
        /// Lists a directory.
        Readdir = 26 => "READDIR",
        /// Reads a symbolic link.
        Readlink = 27 => "READLINK",
        /// Removes an entry.
        Remove = 28 => "REMOVE",
        /// Renames.
        Rename = 29 => "RENAME",
        /// Renews a lease (version 4.0).
        Renew = 30 => "RENEW",
        /// Makes the saved file handle the current one.
        Restorefh = 31 => "RESTOREFH",
        /// Saves the current file handle.
        Savefh = 32 => "SAVEFH",
        /// Asks which security a name needs.
        Secinfo = 33 => "SECINFO",
        /// Sets attributes.
        Setattr = 34 => "SETATTR",
        /// Introduces a client (version 4.0).
        Setclientid = 35 => "SETCLIENTID",
        /// Confirms it (version 4.0).
        SetclientidConfirm = 36 => "SETCLIENTID_CONFIRM",
        /// Goes on where attributes are the same.
        Verify = 37 => "VERIFY",
        /// Writes.
        Write = 38 => "WRITE",
        /// Forgets the owner of locks (version 4.0).
        ReleaseLockowner = 39 => "RELEASE_LOCKOWNER",
        /// Changes how callbacks are called.
        BackchannelCtl = 40 => "BACKCHANNEL_CTL",
        /// Binds the connection to a session.
        BindConnToSession = 41 => "BIND_CONN_TO_SESSION",
        /// Introduces a client.
        ExchangeId = 42 => "EXCHANGE_ID",
        /// Makes a session.
        CreateSession = 43 => "CREATE_SESSION",
        /// Ends a session.
        DestroySession = 44 => "DESTROY_SESSION",
        /// Frees a stateid that has nothing.
        FreeStateid = 45 => "FREE_STATEID",
        /// Asks for a delegation of a directory.
        GetDirDelegation = 46 => "GET_DIR_DELEGATION",
        /// Asks for a device (pNFS).
        Getdeviceinfo = 47 => "GETDEVICEINFO",
        /// Lists devices (pNFS).
        Getdevicelist = 48 => "GETDEVICELIST",
        /// Commits a layout (pNFS).
        Layoutcommit = 49 => "LAYOUTCOMMIT",
        /// Asks for a layout (pNFS).
        Layoutget = 50 => "LAYOUTGET",
        /// Returns a layout (pNFS).
        Layoutreturn = 51 => "LAYOUTRETURN",
        /// Asks which security the current file needs.
        SecinfoNoName = 52 => "SECINFO_NO_NAME",
        /// Begins a request of a session.
        Sequence = 53 => "SEQUENCE",
        /// Sets a shared secret.
        SetSsv = 54 => "SET_SSV",
        /// Asks which stateids are valid.
        TestStateid = 55 => "TEST_STATEID",
        /// Wishes a delegation.
        WantDelegation = 56 => "WANT_DELEGATION",
        /// Ends a client.
        DestroyClientid = 57 => "DESTROY_CLIENTID",
        /// Says that all is reclaimed.
        ReclaimComplete = 58 => "RECLAIM_COMPLETE",
        /// Reserves space.
        Allocate = 59 => "ALLOCATE",
        /// Copies a range.
        Copy = 60 => "COPY",
        /// Announces a copy to another server.
        CopyNotify = 61 => "COPY_NOTIFY",
        /// Gives space back.
        Deallocate = 62 => "DEALLOCATE",
        /// Tells what will be read.
        IoAdvise = 63 => "IO_ADVISE",
        /// Tells errors of a layout (pNFS).
        Layouterror = 64 => "LAYOUTERROR",
        /// Tells the use of a layout (pNFS).
        Layoutstats = 65 => "LAYOUTSTATS",
        /// Ends a copy.
        OffloadCancel = 66 => "OFFLOAD_CANCEL",
        /// Asks how far a copy is.
        OffloadStatus = 67 => "OFFLOAD_STATUS",
        /// Reads, and tells holes apart.
        ReadPlus = 68 => "READ_PLUS",
        /// Looks for data or a hole.
        Seek = 69 => "SEEK",
        /// Writes a pattern.
        WriteSame = 70 => "WRITE_SAME",
        /// Shares a range of another file.
        Clone = 71 => "CLONE",
        /// Reads an extended attribute.
        Getxattr = 72 => "GETXATTR",
        /// Sets an extended attribute.
        Setxattr = 73 => "SETXATTR",
        /// Lists extended attributes.
        Listxattrs = 74 => "LISTXATTRS",
        /// Removes an extended attribute.
        Removexattr = 75 => "REMOVEXATTR",
        /// The number that answers an operation that is not known.
        Illegal = 10044 => "ILLEGAL",
    }
}

/// An operation with its arguments. Names and data stay where they came.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of RFC 8881, section 18")]
pub enum Operation<'a> {
    Access {
        access: u32,
    },
    Close {
        stateid: StateId,
    },
    Commit {
        offset: u64,
        count: u32,
    },
    Create(Create<'a>),
    Getattr {
        wanted: Bitmap,
    },
    Getfh,
    Link {
        name: &'a [u8],
    },
    Lock(Lock<'a>),
    Lockt {
        range: LockRange,
        client: u64,
        owner: &'a [u8],
    },
    Locku {
        range: LockRange,
        stateid: StateId,
    },
    Lookup {
        name: &'a [u8],
    },
    Lookupp,
    /// VERIFY, or NVERIFY where `is_negated`. The attributes are as they came.
    Verify {
        is_negated: bool,
        wanted: Bitmap,
        values: &'a [u8],
    },
    Open(Open<'a>),
    OpenDowngrade {
        stateid: StateId,
        access: u32,
        deny: u32,
    },
    /// None: the handle has a length that none has.
    Putfh {
        handle: Option<FileHandle>,
    },
    Putpubfh,
    Putrootfh,
    Read {
        stateid: StateId,
        offset: u64,
        count: u32,
    },
    Readdir(Readdir),
    Readlink,
    Remove {
        name: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Restorefh,
    Savefh,
    Secinfo {
        name: &'a [u8],
    },
    SecinfoNoName {
        style: u32,
    },
    Setattr {
        stateid: StateId,
        changes: Result<AttributeChanges, AttributeError>,
    },
    /// The data is at these bytes of what was read from.
    Write {
        stateid: StateId,
        offset: u64,
        stable: u32,
        data: Range<usize>,
    },
    BackchannelCtl {
        program: u32,
    },
    BindConnToSession {
        session: SessionId,
        direction: u32,
        rdma: bool,
    },
    ExchangeId(ExchangeId<'a>),
    CreateSession(CreateSession),
    DestroySession {
        session: SessionId,
    },
    FreeStateid {
        stateid: StateId,
    },
    Sequence(Sequence),
    TestStateid {
        stateids: Vec<StateId>,
    },
    DestroyClientid {
        client: u64,
    },
    ReclaimComplete {
        one_file_system: bool,
    },
    /// ALLOCATE, or DEALLOCATE where `is_given_back`.
    Allocate {
        is_given_back: bool,
        stateid: StateId,
        offset: u64,
        length: u64,
    },
    Seek {
        stateid: StateId,
        offset: u64,
        content: u32,
    },
    Copy(CopyRange),
    Clone(CopyRange),
    /// One that is known and is not served: its arguments are not read, since nothing after it is done.
    NotServed(OperationNumber),
}

/// A file that is not regular is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create<'a> {
    /// Its kind ([`crate::types::file_type`]).
    pub kind: u32,
    /// Text of a symbolic link.
    pub link: &'a [u8],
    /// A device's major and minor number.
    pub device: (u32, u32),
    /// Its name.
    pub name: &'a [u8],
    /// Its attributes.
    pub changes: Result<AttributeChanges, AttributeError>,
}

/// A range that is locked, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes; all ones: to the end of the file.
    pub length: u64,
    /// Forbids other locks that overlap.
    pub is_exclusive: bool,
}

/// Whose lock it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locker<'a> {
    /// The owner's first on the file.
    New {
        /// The open under which it is.
        open: StateId,
        /// The owner.
        owner: &'a [u8],
    },
    /// One more.
    Known {
        /// The locks so far.
        stateid: StateId,
    },
}

/// A lock is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock<'a> {
    /// The range.
    pub range: LockRange,
    /// Says that it was held before the server started.
    pub is_reclaimed: bool,
    /// Whose.
    pub locker: Locker<'a>,
}

/// A directory is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readdir {
    /// The entry after which it goes on; 0: from the first.
    pub cookie: u64,
    /// Verifier that came with that entry.
    pub verifier: [u8; 8],
    /// Bytes of names and cookies at most.
    pub directory_bytes_max: u32,
    /// Bytes of the answer at most.
    pub bytes_max: u32,
    /// Attributes of each entry.
    pub wanted: Bitmap,
}

/// Ways to make a file that is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HowCreated {
    /// Made where it is not there; else only its size is set.
    Unchecked(Result<AttributeChanges, AttributeError>),
    /// It must not be there.
    Guarded(Result<AttributeChanges, AttributeError>),
    /// It must not be there, unless it was made by the same call.
    Exclusive {
        /// Names the call.
        verifier: [u8; 8],
        /// Its attributes.
        changes: Result<AttributeChanges, AttributeError>,
    },
}

/// Choice of the file that is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim<'a> {
    /// The one of this name in the current directory.
    Null(&'a [u8]),
    /// The current one, as it was before the server started.
    Previous,
    /// The current one.
    FileHandle,
    /// By a delegation, of which there are none.
    Delegation,
}

/// A file is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open<'a> {
    /// Access that is asked for ([`crate::types::share`]).
    pub access: u32,
    /// Access that is denied others.
    pub deny: u32,
    /// The owner's client, which is that of the session whatever it says.
    pub client: u64,
    /// The owner.
    pub owner: &'a [u8],
    /// The way in which it is made; none: it must be there.
    pub create: Option<HowCreated>,
    /// The file.
    pub claim: Claim<'a>,
}

/// A client introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeId<'a> {
    /// Differs after the client's restart.
    pub verifier: [u8; 8],
    /// Names the client.
    pub owner: &'a [u8],
    /// Flags (EXCHGID4_FLAG).
    pub flags: u32,
    /// Protection of its state (state_protect_how4).
    pub protection: u32,
    /// Implementation of the client, as it says.
    pub implementation: &'a [u8],
}

/// A session is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateSession {
    /// The client.
    pub client: u64,
    /// Counts its sessions.
    pub sequence: u32,
    /// Flags (CREATE_SESSION4_FLAG).
    pub flags: u32,
    /// Calls of the client.
    pub fore: ChannelAttributes,
    /// Calls to the client.
    pub back: ChannelAttributes,
    /// The program of callbacks.
    pub program: u32,
}

/// A range of the saved file is copied to the current one, or shared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// The open of the saved file.
    pub source: StateId,
    /// The open of the current file.
    pub destination: StateId,
    /// First byte in the saved file.
    pub source_offset: u64,
    /// First byte in the current file.
    pub destination_offset: u64,
    /// Bytes; 0: to the end of the saved file.
    pub count: u64,
    /// The saved file is at another server.
    pub is_remote: bool,
}

/// A request of a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The session.
    pub session: SessionId,
    /// Counts the slot's requests.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot in use.
    pub highest: u32,
    /// Asks for the reply to be kept.
    pub is_kept: bool,
}

impl<'a> Operation<'a> {
    /// Reads an operation's arguments. `supported` are the attributes that can be set at all.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse(
        number: OperationNumber,
        reader: &mut Reader<'a>,
        supported: &Bitmap,
    ) -> Result<Self, XdrError> {
        use OperationNumber as Number;
        Ok(match number {
            Number::Access => Operation::Access {
                access: reader.u32()?,
            },
            Number::Close => {
                reader.u32()?;
                Operation::Close {
                    stateid: StateId::parse(reader)?,
                }
            }
            Number::Commit => Operation::Commit {
                offset: reader.u64()?,
                count: reader.u32()?,
            },
            Number::Create => Operation::Create(Create::parse(reader, supported)?),
            Number::Getattr => Operation::Getattr {
                wanted: Bitmap::parse(reader)?,
            },
            Number::Getfh => Operation::Getfh,
            Number::Link => Operation::Link {
                name: name(reader)?,
            },
            Number::Lock => Operation::Lock(Lock::parse(reader)?),
            Number::Lockt => {
                let is_exclusive = lock_type(reader)?;
                Operation::Lockt {
                    range: LockRange::parse(reader, is_exclusive)?,
                    client: reader.u64()?,
                    owner: reader.opaque(OPAQUE_BYTES_MAX)?,
                }
            }
            Number::Locku => {
                let is_exclusive = lock_type(reader)?;
                reader.u32()?;
                let stateid = StateId::parse(reader)?;
                Operation::Locku {
                    range: LockRange::parse(reader, is_exclusive)?,
                    stateid,
                }
            }
            Number::Lookup => Operation::Lookup {
                name: name(reader)?,
            },
            Number::Lookupp => Operation::Lookupp,
            Number::Verify | Number::Nverify => Operation::Verify {
                is_negated: number == Number::Nverify,
                wanted: Bitmap::parse(reader)?,
                values: reader.opaque(1 << 16)?,
            },
            Number::Open => Operation::Open(Open::parse(reader, supported)?),
            Number::OpenDowngrade => {
                let stateid = StateId::parse(reader)?;
                reader.u32()?;
                Operation::OpenDowngrade {
                    stateid,
                    access: reader.u32()?,
                    deny: reader.u32()?,
                }
            }
            Number::Putfh => Operation::Putfh {
                handle: FileHandle::new(reader.opaque(HANDLE_BYTES_MAX as u32)?),
            },
            Number::Putpubfh => Operation::Putpubfh,
            Number::Putrootfh => Operation::Putrootfh,
            Number::Read => Operation::Read {
                stateid: StateId::parse(reader)?,
                offset: reader.u64()?,
                count: reader.u32()?,
            },
            Number::Readdir => Operation::Readdir(Readdir {
                cookie: reader.u64()?,
                verifier: reader.fixed()?,
                directory_bytes_max: reader.u32()?,
                bytes_max: reader.u32()?,
                wanted: Bitmap::parse(reader)?,
            }),
            Number::Readlink => Operation::Readlink,
            Number::Remove => Operation::Remove {
                name: name(reader)?,
            },
            Number::Rename => Operation::Rename {
                from: name(reader)?,
                to: name(reader)?,
            },
            Number::Restorefh => Operation::Restorefh,
            Number::Savefh => Operation::Savefh,
            Number::Secinfo => Operation::Secinfo {
                name: name(reader)?,
            },
            Number::SecinfoNoName => Operation::SecinfoNoName {
                style: reader.u32()?,
            },
            Number::Setattr => Operation::Setattr {
                stateid: StateId::parse(reader)?,
                changes: AttributeChanges::parse(reader, supported)?,
            },
            Number::Write => {
                let (stateid, offset) = (StateId::parse(reader)?, reader.u64()?);
                let stable = match reader.u32()? {
                    stable @ 0..=2 => stable,
                    other => return Err(XdrError::Undefined(other)),
                };
                let first = reader.position() + 4;
                let length = reader.opaque(DATA_BYTES_MAX)?.len();
                Operation::Write {
                    stateid,
                    offset,
                    stable,
                    data: first..first + length,
                }
            }
            Number::BackchannelCtl => {
                let program = reader.u32()?;
                callback_security(reader)?;
                Operation::BackchannelCtl { program }
            }
            Number::BindConnToSession => Operation::BindConnToSession {
                session: SessionId(reader.fixed()?),
                direction: reader.u32()?,
                rdma: reader.bool()?,
            },
            Number::ExchangeId => Operation::ExchangeId(ExchangeId::parse(reader)?),
            Number::CreateSession => {
                let arguments = CreateSession {
                    client: reader.u64()?,
                    sequence: reader.u32()?,
                    flags: reader.u32()?,
                    fore: ChannelAttributes::parse(reader)?,
                    back: ChannelAttributes::parse(reader)?,
                    program: reader.u32()?,
                };
                callback_security(reader)?;
                Operation::CreateSession(arguments)
            }
            Number::DestroySession => Operation::DestroySession {
                session: SessionId(reader.fixed()?),
            },
            Number::FreeStateid => Operation::FreeStateid {
                stateid: StateId::parse(reader)?,
            },
            Number::Sequence => Operation::Sequence(Sequence {
                session: SessionId(reader.fixed()?),
                sequence: reader.u32()?,
                slot: reader.u32()?,
                highest: reader.u32()?,
                is_kept: reader.bool()?,
            }),
            Number::TestStateid => {
                let count = reader.count(STATEIDS_MAX)?;
                let stateids = (0..count).map(|_| StateId::parse(reader));
                Operation::TestStateid {
                    stateids: stateids.collect::<Result<_, _>>()?,
                }
            }
            Number::DestroyClientid => Operation::DestroyClientid {
                client: reader.u64()?,
            },
            Number::ReclaimComplete => Operation::ReclaimComplete {
                one_file_system: reader.bool()?,
            },
            Number::Allocate | Number::Deallocate => Operation::Allocate {
                is_given_back: number == Number::Deallocate,
                stateid: StateId::parse(reader)?,
                offset: reader.u64()?,
                length: reader.u64()?,
            },
            Number::Seek => Operation::Seek {
                stateid: StateId::parse(reader)?,
                offset: reader.u64()?,
                content: reader.u32()?,
            },
            Number::Clone => Operation::Clone(CopyRange::parse(reader)?),
            Number::Copy => {
                let copy = CopyRange::parse(reader)?;
                // In order, and before the answer: that is how it is done, whatever is asked for.
                let (_, _) = (reader.bool()?, reader.bool()?);
                let servers = reader.count(SERVERS_MAX)?;
                (0..servers).try_for_each(|_| skip_server(reader))?;
                Operation::Copy(CopyRange {
                    is_remote: servers > 0,
                    ..copy
                })
            }
            other => Operation::NotServed(other),
        })
    }
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], XdrError> {
    reader.opaque(NAME_BYTES_MAX)
}

/// Reads a type of lock (nfs_lock_type4), and yields whether it is a write lock. Whether its owner would wait is left to the owner.
fn lock_type(reader: &mut Reader<'_>) -> Result<bool, XdrError> {
    match reader.u32()? {
        1 | 3 => Ok(false),
        2 | 4 => Ok(true),
        other => Err(XdrError::Undefined(other)),
    }
}

/// Reads how callbacks would prove themselves. None are made.
fn callback_security(reader: &mut Reader<'_>) -> Result<(), XdrError> {
    for _ in 0..reader.count(SECURITIES_MAX)? {
        match reader.u32()? {
            0 => {}
            1 => {
                reader.u32()?;
                reader.opaque(255)?;
                reader.u32()?;
                reader.u32()?;
                for _ in 0..reader.count(16)? {
                    reader.u32()?;
                }
            }
            6 => {
                reader.u32()?;
                reader.opaque(OPAQUE_BYTES_MAX)?;
                reader.opaque(OPAQUE_BYTES_MAX)?;
            }
            other => return Err(XdrError::Undefined(other)),
        }
    }
    Ok(())
}

impl<'a> Create<'a> {
    fn parse(reader: &mut Reader<'a>, supported: &Bitmap) -> Result<Self, XdrError> {
        use crate::types::file_type;
        let kind = reader.u32()?;
        let (mut link, mut device) = (&[][..], (0, 0));
        match kind {
            file_type::LINK => link = reader.opaque(LINK_BYTES_MAX)?,
            file_type::BLOCK | file_type::CHARACTER => device = (reader.u32()?, reader.u32()?),
            _ => {}
        }
        Ok(Create {
            kind,
            link,
            device,
            name: name(reader)?,
            changes: AttributeChanges::parse(reader, supported)?,
        })
    }
}

impl CopyRange {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(CopyRange {
            source: StateId::parse(reader)?,
            destination: StateId::parse(reader)?,
            source_offset: reader.u64()?,
            destination_offset: reader.u64()?,
            count: reader.u64()?,
            is_remote: false,
        })
    }
}

/// Skips the place of a server (netloc4).
fn skip_server(reader: &mut Reader<'_>) -> Result<(), XdrError> {
    match reader.u32()? {
        // A name or a URL.
        1 | 2 => reader.opaque(OPAQUE_BYTES_MAX).map(drop),
        3 => {
            reader.opaque(OPAQUE_BYTES_MAX)?;
            reader.opaque(OPAQUE_BYTES_MAX).map(drop)
        }
        other => Err(XdrError::Undefined(other)),
    }
}

impl LockRange {
    fn parse(reader: &mut Reader<'_>, is_exclusive: bool) -> Result<Self, XdrError> {
        Ok(LockRange {
            offset: reader.u64()?,
            length: reader.u64()?,
            is_exclusive,
        })
    }
}

impl<'a> Lock<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let is_exclusive = lock_type(reader)?;
        let is_reclaimed = reader.bool()?;
        let range = LockRange::parse(reader, is_exclusive)?;
        let locker = if reader.bool()? {
            reader.u32()?;
            let open = StateId::parse(reader)?;
            reader.u32()?;
            reader.u64()?;
            Locker::New {
                open,
                owner: reader.opaque(OPAQUE_BYTES_MAX)?,
            }
        } else {
            let stateid = StateId::parse(reader)?;
            reader.u32()?;
            Locker::Known { stateid }
        };
        Ok(Lock {
            range,
            is_reclaimed,
            locker,
        })
    }
}

impl<'a> Open<'a> {
    fn parse(reader: &mut Reader<'a>, supported: &Bitmap) -> Result<Self, XdrError> {
        reader.u32()?;
        let (access, deny) = (reader.u32()?, reader.u32()?);
        let (client, owner) = (reader.u64()?, reader.opaque(OPAQUE_BYTES_MAX)?);
        let create = match reader.u32()? {
            0 => None,
            1 => Some(HowCreated::parse(reader, supported)?),
            other => return Err(XdrError::Undefined(other)),
        };
        let claim = match reader.u32()? {
            0 => Claim::Null(name(reader)?),
            1 => {
                reader.u32()?;
                Claim::Previous
            }
            4 => Claim::FileHandle,
            2 => {
                StateId::parse(reader)?;
                name(reader)?;
                Claim::Delegation
            }
            3 => {
                name(reader)?;
                Claim::Delegation
            }
            5 => {
                StateId::parse(reader)?;
                Claim::Delegation
            }
            6 => Claim::Delegation,
            other => return Err(XdrError::Undefined(other)),
        };
        Ok(Open {
            access,
            deny,
            client,
            owner,
            create,
            claim,
        })
    }
}

impl HowCreated {
    fn parse(reader: &mut Reader<'_>, supported: &Bitmap) -> Result<Self, XdrError> {
        Ok(match reader.u32()? {
            0 => HowCreated::Unchecked(AttributeChanges::parse(reader, supported)?),
            1 => HowCreated::Guarded(AttributeChanges::parse(reader, supported)?),
            2 => HowCreated::Exclusive {
                verifier: reader.fixed()?,
                changes: Ok(AttributeChanges::default()),
            },
            3 => HowCreated::Exclusive {
                verifier: reader.fixed()?,
                changes: AttributeChanges::parse(reader, supported)?,
            },
            other => return Err(XdrError::Undefined(other)),
        })
    }
}

impl<'a> ExchangeId<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let (verifier, owner) = (reader.fixed()?, reader.opaque(OPAQUE_BYTES_MAX)?);
        let (flags, protection) = (reader.u32()?, reader.u32()?);
        let mut implementation = &[][..];
        // What follows is of the protection, which is refused where there is one.
        if protection == 0 {
            for _ in 0..reader.count(1)? {
                reader.opaque(IMPLEMENTATION_MAX)?;
                implementation = reader.opaque(IMPLEMENTATION_MAX)?;
                reader.i64()?;
                reader.u32()?;
            }
        }
        Ok(ExchangeId {
            verifier,
            owner,
            flags,
            protection,
            implementation,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attribute::SETTABLE;
    use crate::xdr::Writer;

    fn parse(
        number: OperationNumber,
        write: impl FnOnce(&mut Writer),
        check: impl FnOnce(Operation<'_>),
    ) {
        let mut writer = Writer::new();
        write(&mut writer);
        let mut reader = Reader::new(writer.bytes());
        check(Operation::parse(number, &mut reader, &SETTABLE).expect("it is whole"));
        assert_eq!(reader.remaining(), 0, "all was read");
    }

    const STATE: StateId = StateId {
        seqid: 3,
        other: *b"other state!",
    };

    #[test]
    fn the_data_of_a_write_is_told_by_its_place() {
        let write = |writer: &mut Writer| {
            STATE.write(writer);
            writer.u64(4096);
            writer.u32(2);
            writer.opaque(b"hello");
        };
        parse(OperationNumber::Write, write, |operation| {
            let expected = Operation::Write {
                stateid: STATE,
                offset: 4096,
                stable: 2,
                data: 32..37,
            };
            assert_eq!(operation, expected);
        });
    }

    #[test]
    fn an_open_that_makes_a_file_is_read() {
        let changes = AttributeChanges {
            mode: Some(0o600),
            ..AttributeChanges::default()
        };
        let write = |writer: &mut Writer| {
            for word in [0, 3, 0] {
                writer.u32(word);
            }
            writer.u64(9);
            writer.opaque(b"owner");
            writer.u32(1);
            writer.u32(3);
            writer.fixed(b"verifier");
            changes.write(writer);
            writer.u32(0);
            writer.opaque(b"name");
        };
        parse(OperationNumber::Open, write, |operation| {
            let expected = Open {
                access: 3,
                deny: 0,
                client: 9,
                owner: b"owner",
                create: Some(HowCreated::Exclusive {
                    verifier: *b"verifier",
                    changes: Ok(changes),
                }),
                claim: Claim::Null(b"name"),
            };
            assert_eq!(operation, Operation::Open(expected));
        });
    }

    #[test]
    fn a_first_lock_names_its_open() {
        let write = |writer: &mut Writer| {
            writer.u32(4);
            writer.bool(false);
            writer.u64(10);
            writer.u64(u64::MAX);
            writer.bool(true);
            writer.u32(0);
            STATE.write(writer);
            writer.u32(0);
            writer.u64(9);
            writer.opaque(b"locker");
        };
        parse(OperationNumber::Lock, write, |operation| {
            let expected = Lock {
                range: LockRange {
                    offset: 10,
                    length: u64::MAX,
                    is_exclusive: true,
                },
                is_reclaimed: false,
                locker: Locker::New {
                    open: STATE,
                    owner: b"locker",
                },
            };
            assert_eq!(operation, Operation::Lock(expected));
        });
    }

    #[test]
    fn a_copy_says_where_its_data_is() {
        let copy = CopyRange {
            source: STATE,
            destination: StateId::CURRENT,
            source_offset: 1 << 40,
            destination_offset: 4096,
            count: 0,
            is_remote: false,
        };
        let write_range = |writer: &mut Writer| {
            STATE.write(writer);
            StateId::CURRENT.write(writer);
            for word in [1 << 40, 4096, 0] {
                writer.u64(word);
            }
        };
        parse(OperationNumber::Clone, write_range, |operation| {
            assert_eq!(operation, Operation::Clone(copy));
        });
        for is_remote in [false, true] {
            let write = |writer: &mut Writer| {
                write_range(writer);
                writer.bool(true);
                writer.bool(false);
                writer.u32(2 * u32::from(is_remote));
                if is_remote {
                    writer.u32(2);
                    writer.opaque(b"nfs://elsewhere/file");
                    writer.u32(3);
                    writer.opaque(b"tcp");
                    writer.opaque(b"192.0.2.1.8.1");
                }
            };
            parse(OperationNumber::Copy, write, |operation| {
                assert_eq!(operation, Operation::Copy(CopyRange { is_remote, ..copy }));
            });
        }
    }

    #[test]
    fn what_is_not_served_is_known() {
        for number in [OperationNumber::ReadPlus, OperationNumber::Layoutget] {
            parse(
                number,
                |_| {},
                |operation| {
                    assert_eq!(operation, Operation::NotServed(number));
                },
            );
        }
    }

    proptest! {
        /// Whatever comes is read or refused, and no more is kept of it than came.
        #[test]
        fn any_bytes_are_read_or_refused(number in 0u32..80, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let number = OperationNumber::from_value(number);
            let mut reader = Reader::new(&bytes);
            if let Ok(Operation::Write { data, .. }) = Operation::parse(number, &mut reader, &SETTABLE) {
                prop_assert!(data.end <= bytes.len());
            }
            prop_assert!(reader.position() <= bytes.len());
        }
    }
}
