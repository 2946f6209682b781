//! Operations of a COMPOUND, as they are sent.

use weir_nfs::attribute::{AttributeChanges, Bitmap};
use weir_nfs::types::{ChannelAttributes, share};
use weir_nfs::{FileHandle, OperationNumber as Number, SessionId, StateId, Writer};

/// The name of the owner of this client's opens.
const OPEN_OWNER: &[u8] = b"weir";
/// Asks for no delegation (OPEN4_SHARE_ACCESS_WANT_NO_DELEG).
const NO_DELEGATION: u32 = 0x0400;
/// Calls of the client alone (CDFC4_FORE).
const FORE: u32 = 1;
/// CLAIM_NULL, CLAIM_PREVIOUS and CLAIM_FH.
const BY_NAME: u32 = 0;
const PREVIOUS: u32 = 1;
const BY_HANDLE: u32 = 4;
/// GUARDED4.
const GUARDED: u32 = 1;

/// The file of an OPEN.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    /// The one of this name in the current directory.
    Named(&'a [u8]),
    /// The current one.
    Current,
    /// The current one, which was open before the server started.
    Previous,
}

/// Operations, one behind the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    writer: Writer,
    count: u32,
}

impl Arguments {
    /// The bytes of the operations.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.writer.bytes()
    }

    /// Number of operations.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn operation(mut self, number: Number, write: impl FnOnce(&mut Writer)) -> Self {
        self.writer.u32(number.value());
        write(&mut self.writer);
        self.count += 1;
        self
    }

    pub(crate) fn exchange_id(self, verifier: [u8; 8], owner: &[u8]) -> Self {
        self.operation(Number::ExchangeId, |writer| {
            writer.fixed(&verifier);
            writer.opaque(owner);
            // No flags, no protection of state, and no word on what this is.
            for word in [0, 0, 0] {
                writer.u32(word);
            }
        })
    }

    pub(crate) fn create_session(
        self,
        client: u64,
        sequence: u32,
        fore: &ChannelAttributes,
        back: &ChannelAttributes,
    ) -> Self {
        self.operation(Number::CreateSession, |writer| {
            writer.u64(client);
            writer.u32(sequence);
            writer.u32(0);
            fore.write(writer);
            back.write(writer);
            // The program of callbacks, which take no credentials.
            for word in [0, 1, 0] {
                writer.u32(word);
            }
        })
    }

    pub(crate) fn bind(self, session: SessionId) -> Self {
        self.operation(Number::BindConnToSession, |writer| {
            writer.fixed(&session.0);
            writer.u32(FORE);
            writer.bool(false);
        })
    }

    pub(crate) fn destroy_session(self, session: SessionId) -> Self {
        self.operation(Number::DestroySession, |writer| writer.fixed(&session.0))
    }

    pub(crate) fn destroy_client(self, client: u64) -> Self {
        self.operation(Number::DestroyClientid, |writer| writer.u64(client))
    }

    /// A SEQUENCE, whose reply need not be kept.
    pub(crate) fn sequence(
        self,
        session: SessionId,
        sequence: u32,
        slot: u32,
        highest: u32,
    ) -> Self {
        self.operation(Number::Sequence, |writer| {
            write_sequence(writer, session, sequence, slot, highest);
        })
    }

    pub(crate) fn reclaim_complete(self) -> Self {
        self.operation(Number::ReclaimComplete, |writer| writer.bool(false))
    }

    pub(crate) fn root(self) -> Self {
        self.operation(Number::Putrootfh, |_| {})
    }

    pub(crate) fn lookup(self, name: &[u8]) -> Self {
        self.operation(Number::Lookup, |writer| writer.opaque(name))
    }

    pub(crate) fn put(self, handle: &FileHandle) -> Self {
        self.operation(Number::Putfh, |writer| writer.opaque(handle.bytes()))
    }

    pub(crate) fn get(self) -> Self {
        self.operation(Number::Getfh, |_| {})
    }

    pub(crate) fn attributes(self, wanted: &Bitmap) -> Self {
        self.operation(Number::Getattr, |writer| wanted.write(writer))
    }

    pub(crate) fn change(self, stateid: &StateId, changes: &AttributeChanges) -> Self {
        self.operation(Number::Setattr, |writer| {
            stateid.write(writer);
            changes.write(writer);
        })
    }

    /// An OPEN, by client `client`; makes the file where there are changes, and then it must not be there.
    pub(crate) fn open(
        self,
        client: u64,
        read_only: bool,
        which: Which<'_>,
        create: Option<&AttributeChanges>,
    ) -> Self {
        let access = match read_only {
            true => share::READ,
            false => share::BOTH,
        };
        self.operation(Number::Open, |writer| {
            for word in [0, access | NO_DELEGATION, 0] {
                writer.u32(word);
            }
            writer.u64(client);
            writer.opaque(OPEN_OWNER);
            match create {
                None => writer.u32(0),
                Some(changes) => {
                    writer.u32(1);
                    writer.u32(GUARDED);
                    changes.write(writer);
                }
            }
            match which {
                Which::Named(name) => {
                    writer.u32(BY_NAME);
                    writer.opaque(name);
                }
                Which::Current => writer.u32(BY_HANDLE),
                Which::Previous => {
                    writer.u32(PREVIOUS);
                    writer.u32(0);
                }
            }
        })
    }

    pub(crate) fn close(self, stateid: &StateId) -> Self {
        self.operation(Number::Close, |writer| {
            writer.u32(0);
            stateid.write(writer);
        })
    }

    pub(crate) fn write(self, stateid: &StateId, offset: u64, stable: u32, data: &[u8]) -> Self {
        self.operation(Number::Write, |writer| {
            stateid.write(writer);
            writer.u64(offset);
            writer.u32(stable);
            writer.opaque(data);
        })
    }

    pub(crate) fn commit(self) -> Self {
        self.operation(Number::Commit, write_commit)
    }
}

/// Writes the arguments of a SEQUENCE, whose reply need not be kept.
pub(crate) fn write_sequence(
    writer: &mut Writer,
    session: SessionId,
    sequence: u32,
    slot: u32,
    highest: u32,
) {
    writer.fixed(&session.0);
    writer.u32(sequence);
    writer.u32(slot);
    writer.u32(highest);
    writer.bool(false);
}

/// Writes the arguments of a COMMIT of the whole file.
pub(crate) fn write_commit(writer: &mut Writer) {
    writer.u64(0);
    writer.u32(0);
}
