//! Opens of files, and what they deny others (RFC 8881, section 9).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_nfs::types::share;
use weir_nfs::{StateId, Status};
use weir_reactor::{File, Instant};

use super::locks::{LockOwner, Range};
use super::{Inner, State, compare_seqid, stateid};
use crate::handle::FileKey;

/// The data of an open file.
#[derive(Clone)]
pub(crate) enum Opened {
    /// It is a file of the machine.
    File(Arc<File>),
    /// It is a volume.
    Volume,
}

/// An open of a file. Connections keep it, and see when it has ended.
pub(crate) struct Open {
    pub(crate) id: [u8; 12],
    pub(crate) client: u64,
    pub(crate) key: FileKey,
    owner: Vec<u8>,
    seqid: AtomicU32,
    access: AtomicU32,
    deny: AtomicU32,
    /// Opens of all files that deny something.
    denials: Arc<AtomicUsize>,
    is_ended: AtomicBool,
    file: Mutex<Opened>,
    is_writable: AtomicBool,
}

/// Bytes of an open, or of an owner of locks, with its name and its places in tables: twice what is in these, since they grow so.
pub(crate) const STATE_BYTES: usize = size_of::<Open>()
    + weir_nfs::types::OPAQUE_BYTES_MAX as usize
    + 2 * (size_of::<Held>() + size_of::<OpenFile>() + size_of::<FileKey>());

/// State that a stateid names.
#[derive(Clone)]
pub(super) enum Held {
    Open(Arc<Open>),
    Locks(Arc<LockOwner>),
}

/// A file that somebody has something of.
#[derive(Default)]
pub(super) struct OpenFile {
    pub(super) opens: Vec<Arc<Open>>,
    pub(super) owners: Vec<Arc<LockOwner>>,
    pub(super) ranges: Vec<Range>,
}

/// A file that is to be opened.
pub(crate) struct OpenRequest<'a> {
    pub(crate) client: u64,
    pub(crate) owner: &'a [u8],
    pub(crate) key: FileKey,
    pub(crate) access: u32,
    pub(crate) deny: u32,
    pub(crate) is_reclaimed: bool,
    /// The file, open for what `access` says.
    pub(crate) file: Opened,
    pub(crate) is_writable: bool,
}

impl Open {
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    pub(crate) fn seqid(&self) -> u32 {
        self.seqid.load(Ordering::Acquire)
    }

    /// Tells whether it is for what `access` says.
    pub(crate) fn allows(&self, access: u32) -> bool {
        self.access.load(Ordering::Acquire) & access == access
    }

    pub(crate) fn file(&self) -> Opened {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone()
    }

    /// Denies others this from now on.
    fn set_deny(&self, deny: u32) {
        match (self.deny.swap(deny, Ordering::AcqRel), deny) {
            (0, 0) => {}
            (0, _) => {
                self.denials.fetch_add(1, Ordering::AcqRel);
            }
            (_, 0) => {
                self.denials.fetch_sub(1, Ordering::AcqRel);
            }
            _ => {}
        }
    }

    fn stateid(&self) -> StateId {
        stateid(self.id, self.seqid())
    }

    /// One more change of it; 0 is left out (RFC 8881, section 8.2.2).
    fn advance(&self) {
        let next = self.seqid().wrapping_add(1).max(1);
        self.seqid.store(next, Ordering::Release);
    }
}

impl Held {
    pub(super) fn client(&self) -> u64 {
        self.open().client
    }

    pub(super) fn key(&self) -> FileKey {
        self.open().key
    }

    pub(super) fn open(&self) -> &Arc<Open> {
        match self {
            Held::Open(open) => open,
            Held::Locks(owner) => &owner.open,
        }
    }

    fn seqid(&self) -> u32 {
        match self {
            Held::Open(open) => open.seqid(),
            Held::Locks(owner) => owner.seqid(),
        }
    }
}

impl OpenFile {
    /// Tells whether others than `but` deny `access`, or have what `deny` denies.
    fn conflicts(&self, access: u32, deny: u32, but: Option<&Open>) -> bool {
        let others = self.opens.iter().filter(|open| {
            let is_it = but.is_some_and(|but| but.id == open.id);
            !is_it
        });
        let mut conflicting = others.filter(|open| {
            open.deny.load(Ordering::Acquire) & access != 0
                || open.access.load(Ordering::Acquire) & deny != 0
        });
        conflicting.next().is_some()
    }

    pub(super) fn is_free(&self) -> bool {
        self.opens.is_empty() && self.owners.is_empty()
    }
}

impl State {
    /// Tells whether the client may open something now.
    pub(crate) fn may_open(
        &self,
        client: u64,
        is_reclaimed: bool,
        now: Instant,
    ) -> Result<(), Status> {
        let mut inner = self.lock();
        let in_grace = inner.look_at_grace(now);
        let client = inner.clients.get(&client).ok_or(Status::Badsession)?;
        match is_reclaimed {
            true if !in_grace || client.is_complete => Err(Status::NoGrace),
            true if !client.may_reclaim => Err(Status::ReclaimBad),
            false if in_grace || !client.is_complete => Err(Status::Grace),
            _ => Ok(()),
        }
    }

    /// Tells whether somebody else's open stands in the way of one.
    pub(crate) fn check_share(
        &self,
        request: (u64, &[u8]),
        key: &FileKey,
        access: u32,
        deny: u32,
        now: Instant,
    ) -> Result<(), Status> {
        let mut inner = self.lock();
        let conflicts = |inner: &Inner| {
            let file = inner.files.get(key);
            file.is_some_and(|file| {
                let own = file.opens.iter();
                let mut own = own.filter(|open| (open.client, &open.owner[..]) == request);
                file.conflicts(access, deny, own.next().map(|open| &**open))
            })
        };
        if conflicts(&inner) {
            inner.expire(now, &self.config);
        }
        match conflicts(&inner) {
            true => Err(Status::ShareDenied),
            false => Ok(()),
        }
    }

    /// Opens a file, or adds to what the owner has of it.
    pub(crate) fn open(&self, request: OpenRequest<'_>, now: Instant) -> Result<StateId, Status> {
        let whose = (request.client, request.owner);
        self.check_share(whose, &request.key, request.access, request.deny, now)?;
        let mut inner = self.lock();
        let inner = &mut *inner;
        let client = inner.clients.get(&request.client);
        let states = client.ok_or(Status::Badsession)?.states;
        let is_full = inner.held.len() >= self.config.all_max();
        let file = inner.files.entry(request.key).or_default();
        let own = file
            .opens
            .iter()
            .find(|open| (open.client, &open.owner[..]) == whose);
        // Somebody else may have opened it just now.
        if file.conflicts(request.access, request.deny, own.map(|open| &**open)) {
            return Err(match request.is_reclaimed {
                true => Status::ReclaimConflict,
                false => Status::ShareDenied,
            });
        }
        if let Some(open) = own {
            open.access.fetch_or(request.access, Ordering::AcqRel);
            open.set_deny(open.deny.load(Ordering::Acquire) | request.deny);
            if request.is_writable && !open.is_writable.swap(true, Ordering::AcqRel) {
                *open.file.lock().unwrap_or_else(PoisonError::into_inner) = request.file;
            }
            open.advance();
            return Ok(open.stateid());
        }
        if is_full || states >= self.config.states_per_client_max {
            if file.is_free() {
                inner.files.remove(&request.key);
            }
            return Err(Status::Delay);
        }
        let id = inner.next_state(self.boot);
        let open = Arc::new(Open {
            id,
            client: request.client,
            key: request.key,
            owner: request.owner.to_vec(),
            seqid: AtomicU32::new(1),
            access: AtomicU32::new(request.access),
            deny: AtomicU32::new(0),
            denials: Arc::clone(&self.denials),
            is_ended: AtomicBool::new(false),
            file: Mutex::new(request.file),
            is_writable: AtomicBool::new(request.is_writable),
        });
        open.set_deny(request.deny);
        let file = inner.files.entry(request.key).or_default();
        file.opens.push(Arc::clone(&open));
        inner.held.insert(id, Held::Open(Arc::clone(&open)));
        inner.count_states(request.client, 1);
        Ok(open.stateid())
    }

    /// Finds what a client's stateid names.
    fn held(&self, inner: &Inner, client: u64, asked: &StateId) -> Result<Held, Status> {
        let boot = u32::from_be_bytes(asked.other[..4].try_into().expect("four bytes"));
        if boot != self.boot {
            return Err(Status::BadStateid);
        }
        let held = inner.held.get(&asked.other).ok_or(Status::BadStateid)?;
        if held.client() != client {
            return Err(Status::BadStateid);
        }
        compare_seqid(asked.seqid, held.seqid())?;
        Ok(held.clone())
    }

    /// The client's open of a stateid, and no locks.
    pub(super) fn held_open(
        &self,
        inner: &Inner,
        client: u64,
        asked: &StateId,
    ) -> Result<Arc<Open>, Status> {
        match self.held(inner, client, asked)? {
            Held::Open(open) => Ok(open),
            Held::Locks(_) => Err(Status::BadStateid),
        }
    }

    /// The client's locks of a stateid.
    pub(super) fn held_locks(
        &self,
        inner: &Inner,
        client: u64,
        asked: &StateId,
    ) -> Result<Arc<LockOwner>, Status> {
        match self.held(inner, client, asked)? {
            Held::Locks(owner) => Ok(owner),
            Held::Open(_) => Err(Status::BadStateid),
        }
    }

    /// Finds the open that a stateid of READ or WRITE (`access`) on a file stands for. None: it is nobody's, and no share reservation
    /// stands in the way.
    pub(crate) fn for_io(
        &self,
        client: u64,
        asked: &StateId,
        key: &FileKey,
        access: u32,
        now: Instant,
    ) -> Result<Option<Arc<Open>>, Status> {
        if matches!(*asked, StateId::ANONYMOUS | StateId::BYPASS) {
            let reads_anyway = *asked == StateId::BYPASS && access == share::READ;
            if !reads_anyway {
                self.check_unowned(key, access, now)?;
            }
            return Ok(None);
        }
        let inner = self.lock();
        let held = self.held(&inner, client, asked)?;
        let open = held.open();
        if open.key != *key {
            return Err(Status::BadStateid);
        }
        // Reading under an open for writing is allowed where others may read (RFC 8881, section 9.1.2).
        if !open.allows(access) && access != share::READ {
            return Err(Status::Openmode);
        }
        if !open.allows(access) && !open.is_writable.load(Ordering::Acquire) {
            return Err(Status::Openmode);
        }
        Ok(Some(Arc::clone(open)))
    }

    /// Tells whether an open denies `access` to those who have none. Where no open denies anything nothing is waited for.
    pub(crate) fn check_unowned(
        &self,
        key: &FileKey,
        access: u32,
        now: Instant,
    ) -> Result<(), Status> {
        if self.denials.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut inner = self.lock();
        let is_denied = |inner: &Inner| {
            let file = inner.files.get(key);
            file.is_some_and(|file| file.conflicts(access, 0, None))
        };
        if is_denied(&inner) {
            inner.expire(now, &self.config);
        }
        match is_denied(&inner) {
            true => Err(Status::Locked),
            false => Ok(()),
        }
    }

    /// Some open of a file, whoever has it.
    pub(crate) fn any_open(&self, key: &FileKey) -> Option<Arc<Open>> {
        let inner = self.lock();
        let file = inner.files.get(key)?;
        let writable = |open: &&Arc<Open>| open.is_writable.load(Ordering::Acquire);
        file.opens.iter().find(writable).cloned()
    }

    /// Gives up some of what an open is for.
    pub(crate) fn downgrade(
        &self,
        client: u64,
        asked: &StateId,
        key: &FileKey,
        access: u32,
        deny: u32,
    ) -> Result<StateId, Status> {
        let inner = self.lock();
        let open = self.held_open(&inner, client, asked)?;
        if open.key != *key {
            return Err(Status::BadStateid);
        }
        let now = (
            open.access.load(Ordering::Acquire),
            open.deny.load(Ordering::Acquire),
        );
        if access == 0 || access & !now.0 != 0 || deny & !now.1 != 0 {
            return Err(Status::Inval);
        }
        open.access.store(access, Ordering::Release);
        open.set_deny(deny);
        open.advance();
        Ok(open.stateid())
    }

    /// Ends an open. Locks under it must have been given back.
    pub(crate) fn close(&self, client: u64, asked: &StateId, key: &FileKey) -> Result<(), Status> {
        let mut inner = self.lock();
        let open = self.held_open(&inner, client, asked)?;
        if open.key != *key {
            return Err(Status::BadStateid);
        }
        let file = inner.files.get(key).expect("it is open");
        let has_locks = file
            .ranges
            .iter()
            .any(|range| range.owner.open.id == open.id);
        if has_locks {
            return Err(Status::LocksHeld);
        }
        inner.remove_held(&open.id);
        Ok(())
    }

    /// Says of a stateid whether it is valid.
    pub(crate) fn test(&self, client: u64, asked: &StateId) -> Status {
        let inner = self.lock();
        match self.held(&inner, client, asked) {
            Ok(_) => Status::Ok,
            Err(status) => status,
        }
    }

    /// Frees a stateid that has nothing.
    pub(crate) fn free(&self, client: u64, asked: &StateId) -> Result<(), Status> {
        let mut inner = self.lock();
        match self.held(&inner, client, asked)? {
            Held::Open(_) => Err(Status::LocksHeld),
            Held::Locks(owner) => {
                let file = inner.files.get(&owner.open.key).expect("it is open");
                if file.ranges.iter().any(|range| range.owner.id == owner.id) {
                    return Err(Status::LocksHeld);
                }
                inner.remove_held(&owner.id);
                Ok(())
            }
        }
    }
}

impl Inner {
    pub(super) fn count_states(&mut self, client: u64, change: i32) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.states = client.states.saturating_add_signed(change);
        }
    }

    /// Ends an open with the locks under it, or an owner's locks.
    pub(super) fn remove_held(&mut self, id: &[u8; 12]) {
        let Some(held) = self.held.remove(id) else {
            return;
        };
        let (client, key) = (held.client(), held.key());
        self.count_states(client, -1);
        let Some(file) = self.files.get_mut(&key) else {
            return;
        };
        let mut below = Vec::new();
        match &held {
            Held::Open(open) => {
                open.is_ended.store(true, Ordering::Release);
                open.set_deny(0);
                file.opens.retain(|other| other.id != *id);
                let own = file.owners.iter().filter(|owner| owner.open.id == *id);
                below.extend(own.map(|owner| owner.id));
            }
            Held::Locks(_) => {
                file.owners.retain(|other| other.id != *id);
                file.ranges.retain(|range| range.owner.id != *id);
            }
        }
        if file.is_free() {
            self.files.remove(&key);
        }
        for id in below {
            self.remove_held(&id);
        }
    }
}
