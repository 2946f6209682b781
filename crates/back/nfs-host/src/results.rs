//! Results of a COMPOUND, as they come.

use std::fmt;

use weir_nfs::attribute::{Bitmap, number};
use weir_nfs::types::HANDLE_BYTES_MAX;
use weir_nfs::{
    FileHandle, OperationNumber, Reader, SessionId, StateId, Status, XdrError, mount, v3,
};

/// Bytes of a COMPOUND's tag at most: this client sends none.
const TAG_BYTES_MAX: u32 = 1024;
/// Bytes of a file's attributes at most, of those that are asked for.
const VALUES_BYTES_MAX: u32 = 1024;

/// An operation of version 4, or a procedure of version 3 or of MOUNT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// An operation.
    Operation(OperationNumber),
    /// A procedure.
    Procedure(v3::Procedure),
    /// A procedure of MOUNT.
    Mount(mount::Procedure),
}

impl From<OperationNumber> for Asked {
    fn from(operation: OperationNumber) -> Self {
        Asked::Operation(operation)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Operation(operation) => operation.fmt(formatter),
            Asked::Procedure(procedure) => procedure.fmt(formatter),
            Asked::Mount(procedure) => procedure.fmt(formatter),
        }
    }
}

/// Failure of an operation, or of its result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server answers so.
    #[error("{operation}: {status}")]
    Status {
        /// The operation.
        operation: Asked,
        /// Its status.
        status: Status,
    },
    /// The result is not what was asked for.
    #[error("the answer to {operation} makes no sense: {error}")]
    Nonsense {
        /// The operation.
        operation: Asked,
        /// The reason.
        error: XdrError,
    },
    /// There are fewer results than operations.
    #[error("there is no answer to {0}")]
    Missing(Asked),
}

impl Failure {
    /// The status of the operation, where there is one.
    pub(crate) fn status(&self) -> Option<Status> {
        match self {
            Failure::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Results, from the first on.
pub(crate) struct Results<'a> {
    reader: Reader<'a>,
    status: Status,
    left: u32,
}

impl<'a> Results<'a> {
    /// Reads the head of results.
    pub(crate) fn parse(mut reader: Reader<'a>) -> Result<Self, XdrError> {
        let status = Status::from_value(reader.u32()?);
        reader.opaque(TAG_BYTES_MAX)?;
        let left = reader.u32()?;
        Ok(Results {
            reader,
            status,
            left,
        })
    }

    /// Reads the head of the next result, which is that of `operation`.
    pub(crate) fn next(&mut self, operation: OperationNumber) -> Result<(), Failure> {
        if self.left == 0 {
            return Err(match self.status {
                Status::Ok => Failure::Missing(operation.into()),
                status => Failure::Status {
                    operation: operation.into(),
                    status,
                },
            });
        }
        self.left -= 1;
        let found = self.read(operation, |reader| Ok((reader.u32()?, reader.u32()?)))?;
        let status = Status::from_value(found.1);
        let is_it = OperationNumber::from_value(found.0) == operation;
        let operation = operation.into();
        match status {
            Status::Ok if is_it => Ok(()),
            Status::Ok => Err(Failure::Nonsense {
                operation,
                error: XdrError::Undefined(found.0),
            }),
            // A server that does not know an operation answers with another one's number.
            status => Err(Failure::Status { operation, status }),
        }
    }

    /// Reads what the result of `operation` has.
    pub(crate) fn read<T>(
        &mut self,
        operation: OperationNumber,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, XdrError>,
    ) -> Result<T, Failure> {
        read(&mut self.reader).map_err(|error| Failure::Nonsense {
            operation: operation.into(),
            error,
        })
    }

    /// Reads the result of a SEQUENCE: the server's word on the client's state.
    pub(crate) fn sequence(&mut self) -> Result<u32, Failure> {
        let operation = OperationNumber::Sequence;
        self.next(operation)?;
        self.read(operation, |reader| {
            let _session: [u8; 16] = reader.fixed()?;
            let [_sequence, _slot, _highest, _target] =
                [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
            reader.u32()
        })
    }

    /// Reads the result of an OPEN.
    pub(crate) fn open(&mut self) -> Result<StateId, Failure> {
        const NO_DELEGATION_BECAUSE: u32 = 3;
        let operation = OperationNumber::Open;
        self.next(operation)?;
        self.read(operation, |reader| {
            let stateid = StateId::parse(reader)?;
            // How the directory changed, and flags.
            let _change: [u8; 20] = reader.fixed()?;
            reader.u32()?;
            Bitmap::parse(reader)?;
            match reader.u32()? {
                0 => {}
                NO_DELEGATION_BECAUSE => {
                    // Contention and want of resources say more.
                    if matches!(reader.u32()?, 1 | 2) {
                        reader.bool()?;
                    }
                }
                other => return Err(XdrError::Undefined(other)),
            }
            Ok(stateid)
        })
    }

    /// Reads the result of a GETFH.
    pub(crate) fn handle(&mut self) -> Result<FileHandle, Failure> {
        let operation = OperationNumber::Getfh;
        self.next(operation)?;
        self.read(operation, |reader| {
            let bytes = reader.opaque(HANDLE_BYTES_MAX as u32)?;
            FileHandle::new(bytes).ok_or(XdrError::Undefined(0))
        })
    }

    /// Reads the result of a GETATTR of [`ATTRIBUTES`].
    pub(crate) fn attributes(&mut self) -> Result<Attributes, Failure> {
        let operation = OperationNumber::Getattr;
        self.next(operation)?;
        self.read(operation, |reader| {
            let found = Bitmap::parse(reader)?;
            let values = reader.opaque(VALUES_BYTES_MAX)?;
            if !found.is_within(&ATTRIBUTES) {
                return Err(XdrError::Undefined(0));
            }
            Attributes::parse(&found, &mut Reader::new(values))
        })
    }

    /// Reads the session that CREATE_SESSION made.
    pub(crate) fn session(&mut self) -> Result<Made, Failure> {
        use weir_nfs::types::ChannelAttributes;
        let operation = OperationNumber::CreateSession;
        self.next(operation)?;
        self.read(operation, |reader| {
            let id = SessionId(reader.fixed()?);
            let (_sequence, _flags) = (reader.u32()?, reader.u32()?);
            let fore = ChannelAttributes::parse(reader)?;
            Ok(Made {
                id,
                slots: fore.slots,
                request_bytes_max: fore.request_bytes_max,
                reply_bytes_max: fore.reply_bytes_max,
            })
        })
    }

    /// Reads the client and the number of its next CREATE_SESSION that EXCHANGE_ID yields.
    pub(crate) fn client(&mut self) -> Result<(u64, u32), Failure> {
        let operation = OperationNumber::ExchangeId;
        self.next(operation)?;
        self.read(operation, |reader| Ok((reader.u64()?, reader.u32()?)))
    }
}

/// A session as the server made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) id: SessionId,
    pub(crate) slots: u32,
    pub(crate) request_bytes_max: u32,
    pub(crate) reply_bytes_max: u32,
}

/// Attributes of a file that are asked for.
pub(crate) const ATTRIBUTES: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::SIZE,
    number::FSID,
    number::LEASE_TIME,
    number::FILEID,
    number::MAXREAD,
    number::MAXWRITE,
]);

/// A file as the server describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attributes {
    pub(crate) kind: u32,
    pub(crate) size: u64,
    pub(crate) fsid: (u64, u64),
    pub(crate) lease_seconds: u32,
    pub(crate) fileid: u64,
    /// None where the server does not say.
    pub(crate) read_bytes_max: Option<u64>,
    pub(crate) write_bytes_max: Option<u64>,
}

impl Attributes {
    fn parse(found: &Bitmap, reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        let mut attributes = Attributes::default();
        for number in found.numbers() {
            match number {
                number::TYPE => attributes.kind = reader.u32()?,
                number::SIZE => attributes.size = reader.u64()?,
                number::FSID => attributes.fsid = (reader.u64()?, reader.u64()?),
                number::LEASE_TIME => attributes.lease_seconds = reader.u32()?,
                number::FILEID => attributes.fileid = reader.u64()?,
                number::MAXREAD => attributes.read_bytes_max = Some(reader.u64()?),
                number::MAXWRITE => attributes.write_bytes_max = Some(reader.u64()?),
                other => return Err(XdrError::Undefined(other)),
            }
        }
        Ok(attributes)
    }
}
