//! Properties that the calls of a connection have in common, and the way of their replies.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use weir_front::{Course, Handle, Shard};
use weir_memory::View;
use weir_nfs::{SessionId, Status};
use weir_reactor::{Instant, LocalFile, Reactor};

use crate::desk::Desk;
use crate::exports::Exports;
use crate::handle::FileKey;
use crate::protocol::{NfsProtocol, NfsShared, Waiting};
use crate::served::Snapshot;
use crate::state::{Open, Opened, Session};

/// Opens that a connection remembers at most.
pub(crate) const OPENS_KNOWN_MAX: usize = 1024;
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
    handle: Handle<Waiting>,
    /// A call ended without a reply: it broke an invariant.
    is_broken: Cell<bool>,
}

impl Outbox {
    pub(crate) fn new(handle: Handle<Waiting>) -> Self {
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

    /// A call ended without a reply: so does the connection.
    pub(crate) fn break_off(&self) {
        self.is_broken.set(true);
        // It may have ended meanwhile.
        let _ = self.handle.tell(Waiting);
    }

    pub(crate) fn push(&self, reply: Reply) {
        let is_first = self.replies.borrow().is_empty();
        self.replies.borrow_mut().push_back(reply);
        if is_first {
            // It may have ended meanwhile: nobody reads the reply then.
            let _ = self.handle.tell(Waiting);
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

/// The exports of a reactor, as it made them of the snapshot.
fn exports_of(shard: &Shard<NfsProtocol>) -> Rc<Exports> {
    let mut local = shard.local.borrow_mut();
    let exports = local.get_or_insert_with(|| {
        let (snapshot, groups) = (shard.snapshot(), &shard.shared.own.groups);
        let mut exports = Exports::default();
        for export in snapshot.exports() {
            let files = shard.exports_of(&export.path).into_iter();
            let files = files.map(|file| (file.export.number, file));
            exports.files.extend(files);
            let counters = groups.get(&export.path);
            exports
                .counters
                .extend(counters.map(|of| (export.number, of)));
        }
        Rc::new(exports)
    });
    Rc::clone(exports)
}

/// Properties that the calls of a connection have in common.
pub(crate) struct Context {
    pub(crate) shard: Rc<Shard<NfsProtocol>>,
    pub(crate) peer: SocketAddr,
    pub(crate) snapshot: RefCell<Rc<Here<Snapshot>>>,
    pub(crate) outbox: Outbox,
    pub(crate) desk: Desk,
    pub(crate) exports: RefCell<Rc<Exports>>,
    /// Courses of requests of volumes whose replies are about to be written.
    courses: RefCell<Vec<Course>>,
    /// The client whose session was used last.
    pub(crate) client: Cell<Option<u64>>,
    sessions: RefCell<HashMap<SessionId, Rc<Here<Session>>>>,
    pub(crate) opens: RefCell<HashMap<[u8; 12], Known>>,
    pub(crate) files: RefCell<Files>,
}

/// An open that the connection has used.
pub(crate) struct Known {
    pub(crate) open: Arc<Open>,
    pub(crate) seqid: u32,
    pub(crate) data: Data,
}

/// The data of an open file, as calls of one reactor use it.
#[derive(Clone)]
pub(crate) enum Data {
    File(Rc<LocalFile>),
    /// It is a volume, which is asked for anew each time.
    Volume,
}

impl From<Opened> for Data {
    fn from(opened: Opened) -> Self {
        match opened {
            Opened::File(file) => Data::File(LocalFile::new(file)),
            Opened::Volume => Data::Volume,
        }
    }
}

impl Context {
    pub(crate) fn new(
        shard: Rc<Shard<NfsProtocol>>,
        peer: SocketAddr,
        handle: Handle<Waiting>,
    ) -> Rc<Self> {
        let snapshot = RefCell::new(Here::new(shard.snapshot()));
        let exports = RefCell::new(exports_of(&shard));
        Rc::new(Context {
            shard,
            peer,
            snapshot,
            outbox: Outbox::new(handle.clone()),
            desk: Desk::new(handle),
            exports,
            courses: RefCell::default(),
            client: Cell::new(None),
            sessions: RefCell::default(),
            opens: RefCell::default(),
            files: RefCell::default(),
        })
    }

    /// Tells whether it has files open.
    pub(crate) fn knows_opens(&self) -> bool {
        !self.opens.borrow().is_empty() || !self.files.borrow().is_empty()
    }

    /// Forgets opens that have ended, and files that are not used: what was removed meanwhile is gone for good then.
    pub(crate) fn forget_ended(&self) {
        self.files.borrow_mut().forget_idle(self.reactor().now());
        let mut opens = self.opens.borrow_mut();
        opens.retain(|_, known| !known.open.is_ended());
    }

    /// A request of a volume was done, and its reply is written next.
    pub(crate) fn answered(&self, course: Course) {
        self.courses.borrow_mut().push(course);
    }

    pub(crate) fn take_answered(&self) -> Vec<Course> {
        self.courses.take()
    }

    /// Takes over what is served now. Files of exports that are gone are closed at once: somebody may want to unmount them.
    pub(crate) fn renew(&self) {
        self.files.borrow_mut().clear();
        *self.snapshot.borrow_mut() = Here::new(self.shard.snapshot());
        *self.exports.borrow_mut() = exports_of(&self.shard);
    }

    pub(crate) fn shared(&self) -> &NfsShared {
        &self.shard.shared.own
    }

    pub(crate) fn reactor(&self) -> &Reactor {
        &self.shard.hub.reactor
    }

    /// The session of an identifier. Those that the connection has used it knows without asking.
    pub(crate) fn session(&self, id: &SessionId) -> Result<Rc<Here<Session>>, Status> {
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

/// Files that a connection has open for those who have no open of their own.
#[derive(Default)]
pub(crate) struct Files(HashMap<FileKey, Unowned>);

struct Unowned {
    file: Rc<LocalFile>,
    is_writable: bool,
    used: Instant,
}

impl Files {
    /// Files at most.
    const MAX: usize = 256;
    /// A file that was not used for so long is closed.
    const IDLE: std::time::Duration = std::time::Duration::from_secs(5);

    pub(crate) fn get(
        &mut self,
        key: &FileKey,
        writes: bool,
        now: Instant,
    ) -> Option<Rc<LocalFile>> {
        let known = self.0.get_mut(key);
        let known = known.filter(|known| known.is_writable || !writes)?;
        known.used = now;
        Some(Rc::clone(&known.file))
    }

    /// Keeps a file, where there is room for it.
    pub(crate) fn keep(
        &mut self,
        key: FileKey,
        file: Rc<LocalFile>,
        is_writable: bool,
        now: Instant,
    ) {
        if self.0.len() >= Self::MAX {
            self.forget_idle(now);
        }
        if self.0.len() < Self::MAX || self.0.contains_key(&key) {
            let unowned = Unowned {
                file,
                is_writable,
                used: now,
            };
            self.0.insert(key, unowned);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn forget(&mut self, key: &FileKey) {
        self.0.remove(key);
    }

    pub(crate) fn forget_idle(&mut self, now: Instant) {
        self.0.retain(|_, known| now.since(known.used) < Self::IDLE);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
