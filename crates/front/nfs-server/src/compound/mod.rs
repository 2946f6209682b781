//! A call, from its record to its reply.
//!
//! A COMPOUND is a task of its own on its connection's reactor: data goes by the ring, what blocks goes to other threads, and the next
//! operation begins when that has ended. It goes on when its connection is lost, so that its session's slot has the reply.

mod attributes;
mod io;
mod names;
mod opens;
mod ranges;
mod sessions;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use weir_files::{FileError, FileSystem};
use weir_front::{Handle, Shard};
use weir_memory::{Segment, View};
use weir_nfs::rpc::{Call, CallError, Credential, NFS_PROGRAM, RPC_VERSION, Reply as Head};
use weir_nfs::types::StateId;
use weir_nfs::{Operation, OperationNumber, Reader, SessionId, Status, Writer, XdrError};
use weir_reactor::{Instant, LocalFile, Reactor};

use crate::handle::{FileKey, Target};
use crate::protocol::{NfsProtocol, NfsShared, Replied};
use crate::served::{Export, Snapshot};
use crate::state::{Kept, Open, Principal, Session};
use attributes::SUPPORTED;

/// The version of NFS.
/// Bytes of most replies beside data: those of READ and WRITE are shorter.
const REPLY_BYTES: usize = 256;
const VERSION: u32 = 4;
const PROCEDURE_NULL: u32 = 0;
const PROCEDURE_COMPOUND: u32 = 1;
/// Bytes of a call's header before its credential.
const CALL_BYTES_MIN: usize = 24;
/// Bytes of a COMPOUND's tag at most.
const TAG_BYTES_MAX: u32 = 1024;
/// Bytes that the result of an operation that changes something may take at most: a lock that is denied names its owner.
const CHANGE_BYTES_MAX: usize = 1200;
/// The last operation of minor version 1.
const LAST_OF_MINOR_1: u32 = 58;
/// The last operation of minor version 2, with those of RFC 8276.
const LAST_OF_MINOR_2: u32 = 75;
/// Opens that a connection remembers at most.
const OPENS_KNOWN_MAX: usize = 1024;
/// Sessions that a connection remembers at most.
const SESSIONS_KNOWN_MAX: usize = 16;

/// A reply: its bytes, and data in between.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    /// Data, each before the byte of this number.
    pub(crate) data: Vec<(usize, View)>,
    /// Bytes that were taken for the call.
    pub(crate) taken: u64,
}

impl Reply {
    /// Bytes on the wire, without the record's header.
    pub(crate) fn len(&self) -> usize {
        let data = self.data.iter().map(|(_, view)| view.len());
        self.bytes.len() + data.sum::<usize>()
    }
}

/// Replies of a connection's calls.
pub(crate) struct Outbox {
    replies: RefCell<VecDeque<Reply>>,
    handle: Handle<Replied>,
    /// A call ended without a reply: it broke an invariant.
    is_broken: Cell<bool>,
}

impl Outbox {
    pub(crate) fn new(handle: Handle<Replied>) -> Self {
        Outbox {
            replies: RefCell::default(),
            handle,
            is_broken: Cell::new(false),
        }
    }

    /// Tells whether a call ended without a reply.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    fn push(&self, reply: Reply) {
        let is_first = self.replies.borrow().is_empty();
        self.replies.borrow_mut().push_back(reply);
        if is_first {
            // It may have ended meanwhile: nobody reads the reply then.
            let _ = self.handle.tell(Replied);
        }
    }

    pub(crate) fn take(&self) -> Option<Reply> {
        self.replies.borrow_mut().pop_front()
    }
}

/// A thing that reactors share, as the calls of one reactor hold it: they count references to it without touching what is shared.
pub(crate) struct Here<T>(Arc<T>);

impl<T> Here<T> {
    pub(crate) fn new(shared: Arc<T>) -> Rc<Self> {
        Rc::new(Here(shared))
    }
}

impl<T> std::ops::Deref for Here<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Properties that the calls of a connection have in common.
pub(crate) struct Context {
    pub(crate) shard: Rc<Shard<NfsProtocol>>,
    pub(crate) peer: IpAddr,
    pub(crate) snapshot: RefCell<Rc<Here<Snapshot>>>,
    pub(crate) outbox: Outbox,
    /// The client whose session was used last.
    pub(crate) client: Cell<Option<u64>>,
    sessions: RefCell<HashMap<SessionId, Rc<Here<Session>>>>,
    opens: RefCell<HashMap<[u8; 12], Known>>,
}

/// An open that the connection has used.
struct Known {
    open: Arc<Open>,
    seqid: u32,
    file: Rc<LocalFile>,
}

impl Context {
    pub(crate) fn new(
        shard: Rc<Shard<NfsProtocol>>,
        peer: IpAddr,
        handle: Handle<Replied>,
    ) -> Rc<Self> {
        let snapshot = RefCell::new(Here::new(shard.snapshot()));
        Rc::new(Context {
            shard,
            peer,
            snapshot,
            outbox: Outbox::new(handle),
            client: Cell::new(None),
            sessions: RefCell::default(),
            opens: RefCell::default(),
        })
    }

    /// Tells whether it knows opens.
    pub(crate) fn knows_opens(&self) -> bool {
        !self.opens.borrow().is_empty()
    }

    /// Forgets opens that have ended: what was removed meanwhile is gone for good then.
    pub(crate) fn forget_ended(&self) {
        let mut opens = self.opens.borrow_mut();
        opens.retain(|_, known| !known.open.is_ended());
    }

    fn shared(&self) -> &NfsShared {
        &self.shard.shared.own
    }

    fn reactor(&self) -> &Reactor {
        &self.shard.hub.reactor
    }

    /// The session of an identifier. Those that the connection has used it knows without asking.
    fn session(&self, id: &SessionId) -> Result<Rc<Here<Session>>, Status> {
        if let Some(session) = self.sessions.borrow().get(id)
            && !session.is_ended()
        {
            return Ok(Rc::clone(session));
        }
        let mut known = self.sessions.borrow_mut();
        known.retain(|_, session| !session.is_ended());
        let session = self.shared().state.session(id).ok_or(Status::Badsession)?;
        let session = Here::new(session);
        if known.len() < SESSIONS_KNOWN_MAX {
            known.insert(*id, Rc::clone(&session));
        }
        Ok(session)
    }
}

/// The lengths of the buffers that a record's calls to READ need, at most `max` each.
///
/// # Errors
/// It is no call that could be answered: the connection ends.
pub(crate) fn lengths_to_read(record: &[u8], max: u32) -> Result<Vec<u32>, CallError> {
    let mut lengths = Vec::new();
    let mut reader = Reader::new(record);
    let call = match Call::parse(&mut reader) {
        // Its credential may be longer than the whole: that is answered.
        Err(CallError::Header(_)) if record.len() >= CALL_BYTES_MIN => return Ok(lengths),
        parsed => parsed?,
    };
    if (call.program, call.version, call.procedure) != (NFS_PROGRAM, VERSION, PROCEDURE_COMPOUND) {
        return Ok(lengths);
    }
    // What is not whole is answered when its turn comes.
    let _ = find_reads(&mut reader, |count| lengths.push(count.clamp(1, max)));
    // All that a reply may have, and no more.
    let mut left = max;
    lengths.retain_mut(|length| {
        *length = (*length).min(left);
        left -= *length;
        *length > 0
    });
    Ok(lengths)
}

/// Tells of each READ of a COMPOUND how many bytes it asks for.
fn find_reads(reader: &mut Reader<'_>, mut found: impl FnMut(u32)) -> Result<(), XdrError> {
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

/// A call whose reply is awaited. Where it is dropped without one its connection ends.
struct Awaited {
    context: Rc<Context>,
    is_answered: bool,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.is_answered {
            let outbox = &self.context.outbox;
            outbox.is_broken.set(true);
            // It may have ended meanwhile.
            let _ = outbox.handle.tell(Replied);
        }
    }
}

/// Does a call, and hands its reply to the connection. `taken` is what was taken of the connection's room for it. A panic in it is the
/// connection's end, and nobody else's.
pub(crate) async fn serve(context: Rc<Context>, record: View, segments: Vec<Segment>, taken: u64) {
    let mut awaited = Awaited {
        context,
        is_answered: false,
    };
    let mut reply = call(&awaited.context, &record, segments).await;
    reply.taken = taken;
    awaited.is_answered = true;
    awaited.context.outbox.push(reply);
}

fn head(xid: u32, head: Head) -> Reply {
    let mut writer = Writer::new();
    head.write(xid, &mut writer);
    Reply {
        bytes: writer.into_bytes(),
        ..Reply::default()
    }
}

async fn call(context: &Rc<Context>, record: &View, segments: Vec<Segment>) -> Reply {
    // It stays where it is while it is done: what is moved takes memory of the call twice.
    let mut asked = compound(context, record, segments);
    if let Ok((compound, tag)) = &mut asked {
        compound.run(tag).await;
    }
    match asked {
        Ok((compound, _)) => compound.into_reply(),
        Err(refused) => refused,
    }
}

/// The COMPOUND that a call asks for, with its tag; or the reply to a call of something else.
fn compound<'a>(
    context: &Rc<Context>,
    record: &'a View,
    segments: Vec<Segment>,
) -> Result<(Compound<'a>, &'a [u8]), Reply> {
    let mut reader = Reader::new(record);
    let Ok(call) = Call::parse(&mut reader) else {
        let xid = Reader::new(record).u32().unwrap_or_default();
        return Err(head(xid, Head::BadCredential));
    };
    let refused = match (call.program, call.version, call.procedure) {
        _ if call.rpc_version != RPC_VERSION => Some(Head::RpcMismatch),
        (NFS_PROGRAM, VERSION, PROCEDURE_NULL) => Some(Head::Success),
        (NFS_PROGRAM, VERSION, PROCEDURE_COMPOUND) => None,
        (NFS_PROGRAM, VERSION, _) => Some(Head::ProcedureUnavailable),
        (NFS_PROGRAM, ..) => Some(Head::ProgramMismatch(VERSION, VERSION)),
        _ => Some(Head::ProgramUnavailable),
    };
    if let Some(refused) = refused {
        return Err(head(call.xid, refused));
    }
    let principal = match &call.credential {
        Credential::None => Principal(None),
        Credential::Sys(sys) => Principal(Some(sys.uid)),
        Credential::Other(_) => return Err(head(call.xid, Head::TooWeak)),
    };
    let start = || -> Result<(&'a [u8], u32, u32), XdrError> {
        Ok((reader.opaque(TAG_BYTES_MAX)?, reader.u32()?, reader.u32()?))
    };
    let mut start = start;
    let Ok((tag, minor, count)) = start() else {
        return Err(head(call.xid, Head::GarbageArguments));
    };
    let mut out = Writer::with_capacity(REPLY_BYTES);
    Head::Success.write(call.xid, &mut out);
    let body = out.len();
    let snapshot = Rc::clone(&context.snapshot.borrow());
    let compound = Compound {
        context: Rc::clone(context),
        snapshot,
        record,
        reader,
        principal,
        minor,
        count,
        out,
        body,
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
struct Compound<'a> {
    context: Rc<Context>,
    snapshot: Rc<Here<Snapshot>>,
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
    async fn run(&mut self, tag: &[u8]) {
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

    fn into_reply(mut self) -> Reply {
        let now = self.now();
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

    fn now(&self) -> Instant {
        self.context.reactor().now()
    }

    fn shared(&self) -> &NfsShared {
        self.context.shared()
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

    /// The export that a file is of.
    fn export(&self, key: &FileKey) -> Result<&Export, Status> {
        let export = self.snapshot.export(key.export).ok_or(Status::Stale)?;
        match export.allowed.has(self.context.peer) {
            true => Ok(export),
            false => Err(Status::Access),
        }
    }

    /// The same, where something is to be changed.
    fn export_to_change(&self, key: &FileKey) -> Result<&Export, Status> {
        let export = self.export(key)?;
        match export.is_read_only {
            true => Err(Status::Rofs),
            false => Ok(export),
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

    /// Has a file system do something that may block.
    async fn on<T: Send + 'static>(
        &self,
        export: &Export,
        work: impl FnOnce(&dyn FileSystem) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Status> {
        let files = Arc::clone(&export.files);
        let done = self.context.reactor().offload(move || work(&*files)).await;
        done.ok_or(Status::Serverfault)?.map_err(status_of)
    }
}

/// Status that a client is told of an error of a file system.
pub(crate) fn status_of(error: FileError) -> Status {
    match error {
        FileError::Absent | FileError::Busy => Status::Delay,
        FileError::NotFound => Status::Noent,
        FileError::Exists => Status::Exist,
        FileError::Stale => Status::Stale,
        FileError::Access => Status::Access,
        FileError::NotPermitted => Status::Perm,
        FileError::NotDirectory => Status::Notdir,
        FileError::IsDirectory => Status::Isdir,
        FileError::IsLink => Status::Symlink,
        FileError::NotRegular => Status::WrongType,
        FileError::NotEmpty => Status::Notempty,
        FileError::Invalid => Status::Inval,
        FileError::NameTooLong => Status::Nametoolong,
        FileError::TooLarge => Status::Fbig,
        FileError::NoSpace => Status::Nospc,
        FileError::Quota => Status::Dquot,
        FileError::ReadOnly => Status::Rofs,
        FileError::TooManyLinks => Status::Mlink,
        FileError::CrossesFileSystems => Status::Xdev,
        FileError::NotSupported => Status::Notsupp,
        FileError::Io(_) => Status::Io,
    }
}
