//! A call of version 4: a COMPOUND, whose operations are done one after the other.

pub(crate) mod attributes;
mod io;
mod names;
mod opens;
mod ranges;
mod sessions;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use weir_memory::{Segment, View};
use weir_nfs::rpc::{Call, Reply as Head};
use weir_nfs::types::StateId;
use weir_nfs::{Operation, OperationNumber, Reader, Status, Writer, XdrError};
use weir_reactor::Instant;

use crate::context::{Context, Here, Reply};
use crate::handle::{FileKey, Target};
use crate::seen::Seen;
use crate::state::{Kept, Principal, Session};
use attributes::SUPPORTED;

/// The version of NFS.
pub(crate) const VERSION: u32 = 4;
/// Its procedure that does something.
pub(crate) const COMPOUND: u32 = 1;
/// Bytes of most replies beside data: those of READ and WRITE are shorter.
const REPLY_BYTES: usize = 256;
/// Bytes of a COMPOUND's tag at most.
const TAG_BYTES_MAX: u32 = 1024;
/// Bytes that the result of an operation that changes something may take at most: a lock that is denied names its owner.
const CHANGE_BYTES_MAX: usize = 1200;
/// The last operation of minor version 1.
const LAST_OF_MINOR_1: u32 = 58;
/// The last operation of minor version 2, with those of RFC 8276.
const LAST_OF_MINOR_2: u32 = 75;

/// Tells of each READ of a COMPOUND how many bytes it asks for.
pub(crate) fn find_reads(
    reader: &mut Reader<'_>,
    mut found: impl FnMut(u32),
) -> Result<(), XdrError> {
    reader.opaque(TAG_BYTES_MAX)?;
    reader.u32()?;
    for _ in 0..reader.count(crate::NfsConfig::OPERATIONS_MAX)? {
        let number = OperationNumber::from_value(reader.u32()?);
        match Operation::parse(number, reader, &SUPPORTED)? {
            Operation::Read { count, .. } => found(count),
            Operation::NotServed(_) => break,
            _ => {}
        }
    }
    Ok(())
}

/// The request of a session that a COMPOUND is. Where it is dropped before it was answered its slot is free again.
struct Under {
    session: Rc<Here<Session>>,
    slot: u32,
    is_kept: bool,
    started: Instant,
    is_answered: bool,
}

impl Under {
    fn answer(&mut self, kept: Kept, now: Instant) {
        self.is_answered = true;
        self.session.ended(self.slot, kept, now);
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        if !self.is_answered {
            self.session.ended(self.slot, Kept::NotKept, self.started);
        }
    }
}

/// A reason to stop after an operation.
enum Stop {
    /// It has this status, and no result.
    Failed(Status),
    /// The reply of an earlier request is the whole reply.
    Again(Kept),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Stop::Failed(status)
    }
}

type Done = Result<(), Stop>;

/// An operation whose arguments were read, and that may be done.
enum Step<'a> {
    /// It was.
    Done,
    /// A read of the current file.
    Read {
        stateid: StateId,
        offset: u64,
        count: u32,
    },
    /// A write to the current file.
    Write {
        stateid: StateId,
        offset: u64,
        stable: u32,
        data: Range<usize>,
    },
    /// Any other.
    Other(Box<Operation<'a>>),
}

/// A COMPOUND that is being done.
pub(crate) struct Compound<'a> {
    seen: Seen,
    record: &'a View,
    reader: Reader<'a>,
    principal: Principal,
    minor: u32,
    /// Its operations.
    count: u32,
    out: Writer,
    /// The byte of `out` where what is kept begins.
    body: usize,
    data: Vec<(usize, View)>,
    /// Buffers for reading.
    segments: VecDeque<Segment>,
    under: Option<Under>,
    current: Option<Target>,
    /// The file that was saved, and its stateid.
    saved: Option<Box<(Target, Option<StateId>)>>,
    stateid: Option<StateId>,
    /// Bytes that the reply may have.
    bytes_max: usize,
    /// The operation failed, and has a result all the same.
    keeps_body: bool,
}

impl<'a> Compound<'a> {
    /// The COMPOUND that a call asks for, with its tag; none: its arguments are none.
    pub(crate) fn parse(
        context: &Rc<Context>,
        call: &Call<'a>,
        principal: Principal,
        record: &'a View,
        mut reader: Reader<'a>,
        segments: Vec<Segment>,
    ) -> Result<(Self, &'a [u8]), XdrError> {
        let (tag, minor) = (reader.opaque(TAG_BYTES_MAX)?, reader.u32()?);
        let count = reader.u32()?;
        let mut out = Writer::with_capacity(REPLY_BYTES);
        Head::Success.write(call.xid, &mut out);
        let compound = Compound {
            seen: Seen::new(context),
            record,
            reader,
            principal,
            minor,
            count,
            body: out.len(),
            out,
            data: Vec::new(),
            segments: segments.into(),
            under: None,
            current: None,
            saved: None,
            stateid: None,
            bytes_max: context.shared().config.message_bytes_max() as usize,
            keeps_body: false,
        };
        Ok((compound, tag))
    }

    pub(crate) async fn run(&mut self, tag: &[u8]) {
        let status_at = self.out.len();
        self.out.u32(0);
        self.out.opaque(tag);
        let results_at = self.out.len();
        self.out.u32(0);
        if !(1..=2).contains(&self.minor) {
            self.out
                .u32_at(status_at, Status::MinorVersMismatch.value());
            return;
        }
        let (mut results, mut last) = (0, Status::Ok);
        for index in 0..self.count {
            results += 1;
            let done = self.operation(index).await;
            last = match done {
                Ok(()) => Status::Ok,
                Err(Stop::Failed(status)) => status,
                Err(Stop::Again(kept)) => return self.again(kept, results_at),
            };
            if last != Status::Ok {
                break;
            }
        }
        self.out.u32_at(status_at, last.value());
        self.out.u32_at(results_at, results);
    }

    /// Writes the reply of a request that was done before.
    fn again(&mut self, kept: Kept, results_at: usize) {
        match kept {
            Kept::Reply(bytes) => {
                self.out.truncate(self.body);
                self.out.raw(&bytes);
            }
            Kept::NotKept => {
                // SEQUENCE succeeds, as it did, and what follows it says why there is no more (RFC 8881, section 2.10.6.1.3).
                let mut results = 1;
                if let Ok(number) = self.reader.u32()
                    && self.count > 1
                {
                    results = 2;
                    self.out.u32(number);
                    self.out.u32(Status::RetryUncachedRep.value());
                    self.out.u32_at(self.body, Status::RetryUncachedRep.value());
                }
                self.out.u32_at(results_at, results);
            }
        }
    }

    pub(crate) fn into_reply(mut self) -> Reply {
        let now = self.seen.now();
        if let Some(under) = &mut self.under {
            let kept = match under.is_kept && self.data.is_empty() {
                true => Kept::Reply(self.out.bytes()[self.body..].into()),
                false => Kept::NotKept,
            };
            under.answer(kept, now);
        }
        Reply {
            bytes: self.out.into_bytes(),
            data: self.data,
            taken: 0,
        }
    }

    /// Bytes of the reply so far.
    fn length(&self) -> usize {
        let data = self.data.iter().map(|(_, view)| view.len());
        self.out.len() + data.sum::<usize>()
    }

    /// Does the next operation and writes its result.
    async fn operation(&mut self, index: u32) -> Done {
        let start = self.out.len();
        let number = match self.reader.u32() {
            Ok(number) => OperationNumber::from_value(number),
            Err(_) => {
                self.out.u32(OperationNumber::Illegal.value());
                self.out.u32(Status::Badxdr.value());
                return Err(Status::Badxdr.into());
            }
        };
        let last = if self.minor == 1 {
            LAST_OF_MINOR_1
        } else {
            LAST_OF_MINOR_2
        };
        let is_known = (3..=last).contains(&number.value());
        let written = match is_known {
            true => number,
            false => OperationNumber::Illegal,
        };
        self.out.u32(written.value());
        self.out.u32(Status::Ok.value());
        self.keeps_body = false;
        let done = match is_known {
            true => self.known(number, index).await,
            false => Err(Status::OpIllegal.into()),
        };
        let done = done.and_then(|()| {
            let fits = self.check_length(self.length());
            if fits.is_err() {
                self.keeps_body = false;
                self.data.retain(|(at, _)| *at <= start);
            }
            fits.map_err(Stop::from)
        });
        if let Err(Stop::Failed(status)) = &done {
            if !self.keeps_body {
                self.out.truncate(start + 8);
            }
            self.out.u32_at(start + 4, status.value());
        }
        done
    }

    async fn known(&mut self, number: OperationNumber, index: u32) -> Done {
        match self.step(number, index)? {
            Step::Done => Ok(()),
            Step::Read {
                stateid,
                offset,
                count,
            } => self.read(&stateid, offset, count).await,
            Step::Write {
                stateid,
                offset,
                stable,
                data,
            } => Box::pin(self.write(&stateid, offset, stable, data)).await,
            Step::Other(operation) => Box::pin(self.other(*operation, index)).await,
        }
    }

    /// Reads an operation's arguments, checks that it may be done, and does it where nothing is waited for.
    fn step(&mut self, number: OperationNumber, index: u32) -> Result<Step<'a>, Stop> {
        let operation = Operation::parse(number, &mut self.reader, &SUPPORTED);
        let operation = operation.map_err(|_| Status::Badxdr)?;
        self.check_place(&operation, index)?;
        self.check_room(&operation)?;
        Ok(match operation {
            Operation::Sequence(request) => {
                self.sequence(&request)?;
                Step::Done
            }
            Operation::Putfh { handle } => {
                self.put(handle.as_ref())?;
                Step::Done
            }
            Operation::Read {
                stateid,
                offset,
                count,
            } => Step::Read {
                stateid,
                offset,
                count,
            },
            Operation::Write {
                stateid,
                offset,
                stable,
                data,
            } => Step::Write {
                stateid,
                offset,
                stable,
                data,
            },
            operation => Step::Other(Box::new(operation)),
        })
    }

    /// Does one of the operations that have memory of their own: a call that only reads or writes would take theirs, too.
    async fn other(&mut self, operation: Operation<'a>, index: u32) -> Done {
        match operation {
            Operation::ExchangeId(request) => self.exchange_id(&request),
            Operation::CreateSession(request) => self.create_session(&request),
            Operation::DestroySession { session } => self.destroy_session(&session, index),
            Operation::DestroyClientid { client } => self.destroy_client(client),
            Operation::BindConnToSession {
                session, direction, ..
            } => self.bind(&session, direction),
            Operation::BackchannelCtl { .. } => Ok(()),
            Operation::ReclaimComplete { one_file_system } => {
                self.reclaim_complete(one_file_system).await
            }
            Operation::TestStateid { stateids } => self.test_stateids(&stateids),
            Operation::FreeStateid { stateid } => self.free_stateid(&stateid),
            Operation::Putrootfh | Operation::Putpubfh => self.put_root(),
            Operation::Getfh => self.get_handle(),
            Operation::Savefh => self.save(),
            Operation::Restorefh => self.restore(),
            Operation::Lookup { name } => self.lookup(name).await,
            Operation::Lookupp => self.lookup_parent().await,
            Operation::Secinfo { name } => self.secinfo(name).await,
            Operation::SecinfoNoName { style } => self.secinfo_no_name(style).await,
            Operation::Getattr { wanted } => self.get_attributes(&wanted).await,
            Operation::Setattr { stateid, changes } => self.set_attributes(&stateid, changes).await,
            Operation::Verify {
                is_negated,
                wanted,
                values,
            } => self.verify(is_negated, &wanted, values).await,
            Operation::Access { access } => self.access(access).await,
            Operation::Readdir(request) => self.read_directory(&request).await,
            Operation::Readlink => self.read_link().await,
            Operation::Create(request) => self.create(request).await,
            Operation::Link { name } => self.link(name).await,
            Operation::Remove { name } => self.remove(name).await,
            Operation::Rename { from, to } => self.rename(from, to).await,
            Operation::Open(request) => self.open(request).await,
            Operation::OpenDowngrade {
                stateid,
                access,
                deny,
            } => self.downgrade(&stateid, access, deny),
            Operation::Close { stateid } => self.close(&stateid),
            Operation::Lock(request) => self.lock(&request),
            Operation::Lockt { range, owner, .. } => self.test_lock(&range, owner),
            Operation::Locku { range, stateid } => self.unlock(&range, &stateid),
            Operation::Commit { .. } => self.commit().await,
            Operation::Allocate {
                is_given_back,
                stateid,
                offset,
                length,
            } => self.allocate(is_given_back, &stateid, offset, length).await,
            Operation::Seek {
                stateid,
                offset,
                content,
            } => self.seek(&stateid, offset, content).await,
            Operation::Copy(request) => self.copy(&request).await,
            Operation::Clone(request) => self.clone_range(&request).await,
            Operation::Sequence(_)
            | Operation::Putfh { .. }
            | Operation::Read { .. }
            | Operation::Write { .. } => unreachable!("it is done without memory of its own"),
            Operation::NotServed(_) => Err(Status::Notsupp.into()),
        }
    }

    /// Checks that an operation may stand where it does (RFC 8881, section 2.10.6).
    fn check_place(&self, operation: &Operation<'_>, index: u32) -> Result<(), Status> {
        let is_alone = self.count == 1;
        let is_first = index == 0;
        match operation {
            Operation::Sequence(_) if is_first => Ok(()),
            Operation::Sequence(_) => Err(Status::SequencePos),
            Operation::BindConnToSession { .. } if is_alone => Ok(()),
            Operation::BindConnToSession { .. } => Err(Status::NotOnlyOp),
            Operation::ExchangeId(_)
            | Operation::CreateSession(_)
            | Operation::DestroySession { .. }
            | Operation::DestroyClientid { .. }
                if self.under.is_none() =>
            {
                match is_alone {
                    true => Ok(()),
                    false => Err(Status::NotOnlyOp),
                }
            }
            _ if self.under.is_none() => Err(Status::OpNotInSession),
            _ => Ok(()),
        }
    }

    /// Checks, before something is changed, that the reply will have room to say so.
    fn check_room(&self, operation: &Operation<'_>) -> Result<(), Status> {
        let changes = matches!(
            operation,
            Operation::Create(_)
                | Operation::Link { .. }
                | Operation::Lock(_)
                | Operation::Locku { .. }
                | Operation::Open(_)
                | Operation::OpenDowngrade { .. }
                | Operation::Close { .. }
                | Operation::Remove { .. }
                | Operation::Rename { .. }
                | Operation::Setattr { .. }
                | Operation::Write { .. }
                | Operation::Allocate { .. }
                | Operation::Copy(_)
                | Operation::Clone(_)
        );
        if !changes {
            return Ok(());
        }
        self.check_length(self.length() + CHANGE_BYTES_MAX)
    }

    /// Checks that a reply of so many bytes can be sent, and kept where that is asked for.
    fn check_length(&self, length: usize) -> Result<(), Status> {
        let is_kept = self.under.as_ref().is_some_and(|under| under.is_kept);
        if is_kept && length > crate::NfsConfig::KEPT_BYTES_MAX as usize {
            return Err(Status::RepTooBigToCache);
        }
        if length > self.bytes_max {
            return Err(Status::RepTooBig);
        }
        Ok(())
    }

    /// The client whose request it is.
    fn client(&self) -> u64 {
        let under = self.under.as_ref().expect("it is of a session");
        under.session.client
    }

    fn current(&self) -> Result<Target, Status> {
        self.current.ok_or(Status::Nofilehandle)
    }

    fn set_current(&mut self, target: Target) {
        self.current = Some(target);
        self.stateid = None;
    }

    /// The current file, of an export.
    fn file(&self) -> Result<FileKey, Status> {
        match self.current()? {
            Target::File(key) => Ok(key),
            // Nothing can be done with such a directory but look at it.
            Target::Place(_) => Err(Status::Rofs),
        }
    }

    /// The current file, where it is to be read, written, opened or locked.
    fn regular(&self) -> Result<FileKey, Status> {
        match self.current()? {
            Target::File(key) => Ok(key),
            Target::Place(_) => Err(Status::Isdir),
        }
    }

    /// The stateid that is meant by one.
    fn meant(&self, stateid: &StateId) -> Result<StateId, Status> {
        match *stateid {
            StateId::CURRENT => self.stateid.ok_or(Status::BadStateid),
            StateId::INVALID => Err(Status::BadStateid),
            stateid => Ok(stateid),
        }
    }
}
