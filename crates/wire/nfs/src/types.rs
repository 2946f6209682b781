//! Values that operations have in common.

use std::fmt;

use crate::xdr::{Reader, Writer, XdrError};

/// Bytes of a file handle at most (NFS4_FHSIZE).
pub const HANDLE_BYTES_MAX: usize = 128;
/// Bytes of a client's or of an owner's name at most (NFS4_OPAQUE_LIMIT).
pub const OPAQUE_BYTES_MAX: u32 = 1024;
/// Bytes of a file's name at most: file systems have no longer ones, and answer so.
pub const NAME_BYTES_MAX: u32 = 4096;

/// Name of a file for clients (RFC 8881, section 4.2): bytes that mean something to the server alone.
#[derive(Debug, Clone, Copy)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl FileHandle {
    /// A handle of these bytes; none where there are too many, or none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > HANDLE_BYTES_MAX {
            return None;
        }
        let mut handle = FileHandle {
            length: bytes.len() as u8,
            bytes: [0; HANDLE_BYTES_MAX],
        };
        handle.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(handle)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for FileHandle {}

impl std::hash::Hash for FileHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

/// A session's identifier (RFC 8881, section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionId({self})")
    }
}

/// Name of an open, or of locks, of a client on a file (RFC 8881, section 8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Counts the changes of the state; 0 stands for the newest.
    pub seqid: u32,
    /// Names the state.
    pub other: [u8; 12],
}

impl StateId {
    /// Nobody's: whoever has it may read and write as far as no share reservation forbids it.
    pub const ANONYMOUS: StateId = StateId {
        seqid: 0,
        other: [0; 12],
    };
    /// The same, but reading is not kept from it by share reservations.
    pub const BYPASS: StateId = StateId {
        seqid: u32::MAX,
        other: [0xff; 12],
    };
    /// The one that an operation before it in the same COMPOUND yielded.
    pub const CURRENT: StateId = StateId {
        seqid: 1,
        other: [0; 12],
    };
    /// None: of nothing.
    pub const INVALID: StateId = StateId {
        seqid: u32::MAX,
        other: [0; 12],
    };

    /// Reads one.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(StateId {
            seqid: reader.u32()?,
            other: reader.fixed()?,
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.u32(self.seqid);
        writer.fixed(&self.other);
    }
}

/// Properties of one direction of a session (RFC 8881, section 18.36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelAttributes {
    /// Bytes that are put before each request.
    pub header_pad: u32,
    /// Bytes of a request at most.
    pub request_bytes_max: u32,
    /// Bytes of a reply at most.
    pub reply_bytes_max: u32,
    /// Bytes of a reply that is kept at most.
    pub kept_reply_bytes_max: u32,
    /// Operations of a COMPOUND at most.
    pub operations_max: u32,
    /// Slots.
    pub slots: u32,
}

impl ChannelAttributes {
    /// Reads them.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        let attributes = ChannelAttributes {
            header_pad: reader.u32()?,
            request_bytes_max: reader.u32()?,
            reply_bytes_max: reader.u32()?,
            kept_reply_bytes_max: reader.u32()?,
            operations_max: reader.u32()?,
            slots: reader.u32()?,
        };
        // RDMA's read depth, where one is said.
        for _ in 0..reader.count(1)? {
            reader.u32()?;
        }
        Ok(attributes)
    }

    /// Writes them.
    pub fn write(&self, writer: &mut Writer) {
        for word in [
            self.header_pad,
            self.request_bytes_max,
            self.reply_bytes_max,
            self.kept_reply_bytes_max,
            self.operations_max,
            self.slots,
            0,
        ] {
            writer.u32(word);
        }
    }
}

/// Kinds of files (nfs_ftype4).
pub mod file_type {
    /// A regular file.
    pub const REGULAR: u32 = 1;
    /// A directory.
    pub const DIRECTORY: u32 = 2;
    /// A block device.
    pub const BLOCK: u32 = 3;
    /// A character device.
    pub const CHARACTER: u32 = 4;
    /// A symbolic link.
    pub const LINK: u32 = 5;
    /// A socket.
    pub const SOCKET: u32 = 6;
    /// A named pipe.
    pub const PIPE: u32 = 7;
}

/// Rights that ACCESS asks for (RFC 8881, section 18.1).
pub mod access {
    /// Read a file, or list a directory.
    pub const READ: u32 = 0x01;
    /// Look a name up.
    pub const LOOKUP: u32 = 0x02;
    /// Change a file's data, or a directory's entries.
    pub const MODIFY: u32 = 0x04;
    /// Make a file longer, or add entries.
    pub const EXTEND: u32 = 0x08;
    /// Remove an entry.
    pub const DELETE: u32 = 0x10;
    /// Run a file.
    pub const EXECUTE: u32 = 0x20;
    /// All of these.
    pub const ALL: u32 = 0x3f;
}

/// Access that an OPEN is for, and that it denies others (RFC 8881, section 18.16).
pub mod share {
    /// Reading.
    pub const READ: u32 = 1;
    /// Writing.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
    /// The bits beside these that say which delegation is wished, and when.
    pub const WANTS: u32 = 0x3_ff00;
}

/// Contents that SEEK looks for (data_content4).
pub mod content {
    /// Data.
    pub const DATA: u32 = 0;
    /// A hole.
    pub const HOLE: u32 = 1;
}

/// Demands on written data before it is answered (stable_how4).
pub mod stable {
    /// It need not be.
    pub const UNSTABLE: u32 = 0;
    /// The data must be, and what it takes to read it.
    pub const DATA_SYNC: u32 = 1;
    /// All must be.
    pub const FILE_SYNC: u32 = 2;
}
