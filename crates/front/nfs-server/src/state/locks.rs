//! Locks of byte ranges (RFC 8881, sections 9 and 18.10 to 18.12). They bind those that ask for locks, not those that read and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_nfs::operation::{Lock, LockRange, Locker};
use weir_nfs::types::share;
use weir_nfs::{StateId, Status};
use weir_reactor::Instant;

use super::files::{Held, Open, OpenFile};
use super::{Inner, State, stateid};
use crate::handle::FileKey;

/// An owner of locks on a file.
pub(super) struct LockOwner {
    pub(super) id: [u8; 12],
    /// The open under which it began.
    pub(super) open: Arc<Open>,
    name: Vec<u8>,
    seqid: AtomicU32,
}

/// A range that is locked.
#[derive(Clone)]
pub(super) struct Range {
    first: u64,
    /// The last byte; the largest number: to the end of the file, wherever that will be.
    last: u64,
    is_exclusive: bool,
    pub(super) owner: Arc<LockOwner>,
}

/// A lock that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) is_exclusive: bool,
    pub(crate) client: u64,
    pub(crate) owner: Vec<u8>,
}

/// Outcome of a LOCK.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// It is held.
    Held(StateId),
    /// It is not.
    Denied(Conflict),
}

impl LockOwner {
    pub(super) fn seqid(&self) -> u32 {
        self.seqid.load(Ordering::Acquire)
    }

    fn advance(&self) -> StateId {
        let next = self.seqid().wrapping_add(1).max(1);
        self.seqid.store(next, Ordering::Release);
        stateid(self.id, next)
    }

    fn is(&self, client: u64, name: &[u8]) -> bool {
        self.open.client == client && self.name == name
    }
}

impl Range {
    fn conflict(&self) -> Conflict {
        let length = match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        };
        Conflict {
            offset: self.first,
            length,
            is_exclusive: self.is_exclusive,
            client: self.owner.open.client,
            owner: self.owner.name.clone(),
        }
    }
}

/// First and last byte of a range.
fn bounds(range: &LockRange) -> Result<(u64, u64), Status> {
    match range.length {
        0 => Err(Status::Inval),
        u64::MAX => Ok((range.offset, u64::MAX)),
        length => {
            let last = range.offset.checked_add(length - 1);
            Ok((range.offset, last.ok_or(Status::Inval)?))
        }
    }
}

impl OpenFile {
    /// A range that is not of the owner `is_own` tells, and stands in the way.
    fn in_the_way(
        &self,
        (first, last): (u64, u64),
        is_exclusive: bool,
        is_own: impl Fn(&LockOwner) -> bool,
    ) -> Option<Conflict> {
        let mut ranges = self.ranges.iter();
        let found = ranges.find(|range| {
            range.first <= last
                && first <= range.last
                && (is_exclusive || range.is_exclusive)
                && !is_own(&range.owner)
        });
        found.map(Range::conflict)
    }

    /// Takes a range out of what an owner has.
    fn cut(&mut self, (first, last): (u64, u64), owner: &LockOwner) {
        let mut rest = Vec::new();
        self.ranges.retain_mut(|range| {
            if range.owner.id != owner.id || range.first > last || first > range.last {
                return true;
            }
            if range.last > last {
                rest.push(Range {
                    first: last + 1,
                    ..range.clone()
                });
            }
            if range.first < first {
                range.last = first - 1;
                return true;
            }
            false
        });
        self.ranges.extend(rest);
    }

    /// Adds a range to what an owner has, as one with those of the same kind that touch it.
    fn add(
        &mut self,
        (mut first, mut last): (u64, u64),
        is_exclusive: bool,
        owner: &Arc<LockOwner>,
    ) {
        self.cut((first, last), owner);
        self.ranges.retain(|range| {
            let touches = range.last.checked_add(1) == Some(first)
                || last.checked_add(1) == Some(range.first);
            if range.owner.id != owner.id || range.is_exclusive != is_exclusive || !touches {
                return true;
            }
            first = first.min(range.first);
            last = last.max(range.last);
            false
        });
        self.ranges.push(Range {
            first,
            last,
            is_exclusive,
            owner: Arc::clone(owner),
        });
    }
}

impl State {
    /// Locks a range.
    pub(crate) fn lock_range(
        &self,
        client: u64,
        key: &FileKey,
        request: &Lock<'_>,
        now: Instant,
    ) -> Result<Locked, Status> {
        let range = bounds(&request.range)?;
        let is_exclusive = request.range.is_exclusive;
        self.may_open(client, request.is_reclaimed, now)?;
        let mut inner = self.lock();
        let known = match &request.locker {
            Locker::Known { stateid } => Some(self.held_locks(&inner, client, stateid)?),
            Locker::New { open, owner } => {
                let open = self.held_open(&inner, client, open)?;
                if open.key != *key {
                    return Err(Status::BadStateid);
                }
                let file = inner.files.get(key).expect("it is open");
                let mut owners = file.owners.iter();
                owners.find(|known| known.is(client, owner)).cloned()
            }
        };
        let open = match (&known, &request.locker) {
            (_, Locker::New { open, .. }) => self.held_open(&inner, client, open)?,
            (Some(known), Locker::Known { .. }) => Arc::clone(&known.open),
            (None, Locker::Known { .. }) => unreachable!("it is held"),
        };
        if open.key != *key {
            return Err(Status::BadStateid);
        }
        let needed = if is_exclusive {
            share::WRITE
        } else {
            share::READ
        };
        if !open.allows(needed) {
            return Err(Status::Openmode);
        }
        let name = match &request.locker {
            Locker::New { owner, .. } => owner.to_vec(),
            Locker::Known { .. } => known.as_ref().expect("it is held").name.clone(),
        };
        let in_the_way = |inner: &Inner| {
            let file = inner.files.get(key).expect("it is open");
            file.in_the_way(range, is_exclusive, |owner| owner.is(client, &name))
        };
        if in_the_way(&inner).is_some() {
            inner.expire(now, &self.config);
        }
        if let Some(conflict) = in_the_way(&inner) {
            return Ok(Locked::Denied(conflict));
        }
        let states = inner.clients.get(&client).map_or(0, |client| client.states);
        let is_full = inner.held.len() >= self.config.all_max();
        let file = inner.files.get(key).expect("it is open");
        if file.ranges.len() >= self.config.locks_per_file_max as usize
            || known.is_none() && (is_full || states >= self.config.states_per_client_max)
        {
            return Err(Status::Delay);
        }
        let owner = match known {
            Some(known) => known,
            None => {
                let owner = Arc::new(LockOwner {
                    id: inner.next_state(self.boot),
                    open,
                    name,
                    seqid: AtomicU32::new(0),
                });
                inner.held.insert(owner.id, Held::Locks(Arc::clone(&owner)));
                inner.count_states(client, 1);
                let file = inner.files.get_mut(key).expect("it is open");
                file.owners.push(Arc::clone(&owner));
                owner
            }
        };
        let file = inner.files.get_mut(key).expect("it is open");
        file.add(range, is_exclusive, &owner);
        Ok(Locked::Held(owner.advance()))
    }

    /// Finds the lock that stands in the way of one.
    pub(crate) fn test_range(
        &self,
        client: u64,
        key: &FileKey,
        range: &LockRange,
        name: &[u8],
        now: Instant,
    ) -> Result<Option<Conflict>, Status> {
        let bounds = bounds(range)?;
        let mut inner = self.lock();
        if inner.look_at_grace(now) {
            return Err(Status::Grace);
        }
        let in_the_way = |inner: &Inner| {
            let file = inner.files.get(key)?;
            file.in_the_way(bounds, range.is_exclusive, |owner| owner.is(client, name))
        };
        if in_the_way(&inner).is_some() {
            inner.expire(now, &self.config);
        }
        Ok(in_the_way(&inner))
    }

    /// Unlocks a range.
    pub(crate) fn unlock_range(
        &self,
        client: u64,
        key: &FileKey,
        asked: &StateId,
        range: &LockRange,
    ) -> Result<StateId, Status> {
        let bounds = bounds(range)?;
        let mut inner = self.lock();
        let owner = self.held_locks(&inner, client, asked)?;
        if owner.open.key != *key {
            return Err(Status::BadStateid);
        }
        let file = inner.files.get_mut(key).expect("it is open");
        file.cut(bounds, &owner);
        Ok(owner.advance())
    }
}
