//! Range locks over every queue of a volume.
//!
//! A lock excludes every request that overlaps its range, on every reactor, except those of its holder. It is taken in
//! three steps:
//!
//! 1. Among the holders themselves the table decides, in order of asking: two locks that overlap are never held at once.
//! 2. A granted lock is announced to every queue by message. From the moment a queue has read it, the queue keeps
//!    overlapping requests back.
//! 3. A queue lets go of the announcement once what it had in flight in the range, before it read of the lock, has ended.
//!    When the last has let go, the holder may begin.
//!
//! So a request pays for locks only by looking at its own queue's list of them, which is empty as a rule. A queue that is
//! opened meanwhile begins with the locks that are held, and has nothing in flight. One that is dropped lets go when a
//! fence of the volume below has made sure that nothing of it can take effect any more.
//!
//! It cannot deadlock: a holder holds one lock, its own requests pass, and what a queue waits for in step 3 is in flight
//! below and needs no lock.
//!
//! A hold is for requests whose connection was lost: they may end at any time, and what their host submits on another path must not
//! come before them. It is announced as a lock is, excludes requests of that one host that overlap its range, and nobody else's.
//! Nothing has to end before it holds: it takes effect on each queue as that reads of it, at the latest with its next submission, and
//! is released when its requests have ended. What it alone keeps back takes no room from others, and ends where the volume is drained.
//! Holds may overlap one another and locks.
//!
//! With holds neither can it deadlock: a hold keeps back only requests that have not begun, which hold no lock and are not in
//! flight below, so that neither locks nor holds wait for them. Parts of a request that has begun pass holds.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use weir_block::{Announcement, FenceReply, HostNumber};
use weir_reactor::Mailbox;

use super::statistics::{Gathering, VolumeStatistics};
use crate::support::lock;
use crate::when_all::WhenAll;

/// Names a lock.
pub(super) type LockId = u64;

/// A range under a lock or a hold.
#[derive(Clone)]
pub(super) struct Locked {
    pub(super) id: LockId,
    pub(super) range: Range<u64>,
    /// Of a hold: only requests of this host.
    pub(super) host: Option<HostNumber>,
}

/// A message to a queue.
pub(super) enum Message {
    /// Keep requests that overlap a lock's range back, and let go of the announcement when none is in flight; or those of a hold's host, and
    /// let go at once.
    Lock {
        locked: Locked,
        announcement: Announcement,
    },
    /// The lock or hold is gone.
    Unlock { id: LockId },
    /// Let go when everything that was taken before has ended.
    Drain(Arc<WhenAll>),
    /// The limits of the namespace changed; let go when they are taken over.
    Limits(Arc<WhenAll>),
    /// Add your counters.
    Count(Arc<Gathering>),
}

pub(super) type QueueMailbox = Mailbox<Message>;

/// A lock that waits for others, and who is told when it is held.
struct Waiting {
    lock: Locked,
    reply: FenceReply,
}

#[derive(Default)]
struct State {
    queues: Vec<Arc<QueueMailbox>>,
    held: Vec<Locked>,
    waiting: VecDeque<Waiting>,
    next_id: LockId,
    /// Counters of queues that are gone.
    past: VolumeStatistics,
}

/// The queues of a volume and the locks on its ranges.
#[derive(Default)]
pub(super) struct Table(Mutex<State>);

pub(super) fn overlaps(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}

impl Table {
    /// Adds a queue; the locks and holds that it begins with.
    pub(super) fn add_queue(&self, mailbox: &Arc<QueueMailbox>) -> Vec<Locked> {
        let mut state = lock(&self.0);
        state.queues.push(Arc::clone(mailbox));
        state.held.clone()
    }

    /// Removes a queue of which nothing can take effect any more, and lets go of all that it was told.
    pub(super) fn remove_queue(&self, mailbox: &Arc<QueueMailbox>, counted: &VolumeStatistics) {
        let mut state = lock(&self.0);
        state.queues.retain(|queue| !Arc::ptr_eq(queue, mailbox));
        state.past.add(counted);
        drop(state);
        drop(mailbox.close());
    }

    pub(super) fn queues(&self) -> Vec<Arc<QueueMailbox>> {
        lock(&self.0).queues.clone()
    }

    /// The queues, and the counters of those that are gone, at one moment.
    pub(super) fn counted(&self) -> (Vec<Arc<QueueMailbox>>, VolumeStatistics) {
        let state = lock(&self.0);
        (state.queues.clone(), state.past.clone())
    }

    /// Asks for a lock. `reply` tells when it is held; it must be released in any case.
    pub(super) fn acquire(&self, range: Range<u64>, reply: FenceReply) -> LockId {
        let mut state = lock(&self.0);
        let lock = state.locked(range, None);
        let id = lock.id;
        state.waiting.push_back(Waiting { lock, reply });
        state.grant();
        id
    }

    /// Keeps back what `host` submits and overlaps the range, on every queue that has let go of `announcement`; it must be released.
    pub(super) fn hold(
        &self,
        range: Range<u64>,
        host: HostNumber,
        announcement: &Announcement,
    ) -> LockId {
        let mut state = lock(&self.0);
        let held = state.locked(range, Some(host));
        let id = held.id;
        state.announce(held, announcement);
        id
    }

    /// Gives up a lock, held or waited for, or a hold.
    pub(super) fn release(&self, id: LockId) {
        let mut state = lock(&self.0);
        let waiting = state.waiting.len();
        state.waiting.retain(|waiting| waiting.lock.id != id);
        if state.waiting.len() == waiting {
            let before = state.held.len();
            state.held.retain(|held| held.id != id);
            assert_eq!(state.held.len() + 1, before, "a lock is released once");
            let queues = state.queues.iter();
            queues.for_each(|queue| queue.post(Message::Unlock { id }));
        }
        state.grant();
    }
}

impl State {
    fn locked(&mut self, range: Range<u64>, host: Option<HostNumber>) -> Locked {
        let id = self.next_id;
        self.next_id += 1;
        Locked { id, range, host }
    }

    /// Grants what overlaps neither a held lock nor one that waits longer.
    fn grant(&mut self) {
        let mut passed: VecDeque<Waiting> = VecDeque::new();
        while let Some(next) = self.waiting.pop_front() {
            let range = &next.lock.range;
            let mut held = self.held.iter().filter(|held| held.host.is_none());
            let blocked = held.any(|held| overlaps(&held.range, range))
                || passed
                    .iter()
                    .any(|older| overlaps(&older.lock.range, range));
            if blocked {
                passed.push_back(next);
            } else {
                let announcement: Announcement = WhenAll::new(next.reply);
                self.announce(next.lock, &announcement);
            }
        }
        self.waiting = passed;
    }

    fn announce(&mut self, locked: Locked, announcement: &Announcement) {
        for queue in &self.queues {
            queue.post(Message::Lock {
                locked: locked.clone(),
                announcement: Arc::clone(announcement),
            });
        }
        self.held.push(locked);
    }
}
