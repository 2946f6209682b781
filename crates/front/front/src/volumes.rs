//! The way from commands to volumes: one queue per volume and reactor, shared by the connections there.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{
    Announcement, Completion, CompletionSink, Geometry, Landing, Queue, Request, Router, Token,
    Volume, VolumeError,
};
use weir_memory::Pool;
use weir_reactor::{Instant, Reactor, SharedSection};

use crate::changes::ChangeCount;
use crate::latency::Latency;
use crate::reservations::Reservations;

type OpenQueue = Box<dyn Fn() -> Result<Box<dyn Queue>, VolumeError>>;

/// One reactor's queue of one volume. It is opened by the first command that needs it. All connections of the reactor use it: a
/// panic in it is not one connection's.
pub struct VolumeQueue {
    open: OpenQueue,
    /// The reactor's buffers for data.
    pool: Pool,
    queue: RefCell<Option<Box<dyn Queue>>>,
    /// Its users: the connections.
    router: Rc<Router>,
    /// Done at once by the volume, until the submission is over.
    done: RefCell<VecDeque<Completion>>,
    pending: RefCell<VecDeque<Request>>,
    /// The first of `pending`: those that the volume was offered and did not take.
    refused: RefCell<VecDeque<Token>>,
    /// When the volume took those that it had refused at first; until they end.
    taken_late: RefCell<HashMap<Token, Instant>>,
    /// Whether there are any of these.
    any_late: Cell<bool>,
}

impl VolumeQueue {
    /// A queue of the users of `router` that `open` will open. `pool` has the reactor's buffers for data.
    pub fn new(pool: Pool, router: Rc<Router>, open: OpenQueue) -> Rc<Self> {
        Rc::new(VolumeQueue {
            open,
            pool,
            queue: RefCell::new(None),
            router,
            done: RefCell::default(),
            pending: RefCell::default(),
            refused: RefCell::default(),
            taken_late: RefCell::default(),
            any_late: Cell::new(false),
        })
    }

    /// A queue of `volume` on `reactor`, whose completions go to the users of `router`.
    pub fn of_volume(
        volume: Arc<dyn Volume>,
        reactor: &Reactor,
        depth: u32,
        router: &Rc<Router>,
    ) -> Rc<Self> {
        let reactor = reactor.clone();
        let pool = reactor.pool().clone();
        let sink: Rc<dyn CompletionSink> = router.clone();
        VolumeQueue::new(
            pool,
            Rc::clone(router),
            Box::new(move || Arc::clone(&volume).open_queue(&reactor, depth, Rc::clone(&sink))),
        )
    }

    /// Opens the queue where it is not open yet.
    #[inline]
    pub fn ready(&self) -> Result<(), VolumeError> {
        if self.queue.borrow().is_some() {
            return Ok(());
        }
        self.open_now()
    }

    #[cold]
    fn open_now(&self) -> Result<(), VolumeError> {
        let _shared = SharedSection::enter();
        let queue = (self.open)()?;
        *self.queue.borrow_mut() = Some(queue);
        Ok(())
    }

    /// Where data for a write to this range may be received. The queue is open.
    pub fn landing(&self, lba: u64, blocks: u32) -> Landing {
        let _shared = SharedSection::enter();
        let mut queue = self.queue.borrow_mut();
        queue.as_mut().expect("an open queue").landing(lba, blocks)
    }

    /// Whether requests wait here for the volume to take them: another one would wait behind them.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        !self.refused.borrow().is_empty()
    }

    /// Tells whether requests are here that [`VolumeQueue::pump`] would submit.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        !self.pending.borrow().is_empty()
    }

    /// Adds a request to those that [`VolumeQueue::pump`] submits.
    #[inline]
    pub fn push(&self, request: Request) {
        self.pending.borrow_mut().push_back(request);
    }

    /// Submits what waits, as far as the volume takes it `now`, and tells its users what was done at once.
    #[inline]
    pub fn pump(&self, now: Instant) {
        let mut pending = self.pending.borrow_mut();
        if pending.is_empty() {
            return;
        }
        let _shared = SharedSection::enter();
        if let Some(queue) = self.queue.borrow_mut().as_mut() {
            let before = pending.len();
            queue.submit(&mut pending, &mut self.done.borrow_mut());
            let taken = before - pending.len();
            self.note_refused(&mut pending, taken, now);
        }
        drop(pending);
        self.router.complete_all(&mut self.done.borrow_mut());
    }

    /// Notes which of the `taken` first were taken late, and what is refused: all of `pending`.
    ///
    /// What was just refused may wait here for long, and must not keep what other connections receive into: such data is
    /// copied out. It is no more than one receive of a connection brought, for what comes while something
    /// [waits here](VolumeQueue::is_held_up) is received into the pool.
    fn note_refused(&self, pending: &mut VecDeque<Request>, taken: usize, now: Instant) {
        let mut refused = self.refused.borrow_mut();
        if pending.is_empty() && refused.is_empty() {
            return;
        }
        let late = taken.min(refused.len());
        let mut taken_late = self.taken_late.borrow_mut();
        for token in refused.drain(..late) {
            taken_late.insert(token, now);
        }
        self.any_late.set(!taken_late.is_empty());
        for request in pending.iter_mut().skip(refused.len()) {
            refused.push_back(request.token);
            request.operation.copy_out(&self.pool);
        }
        assert_eq!(refused.len(), pending.len(), "what is left was refused");
    }

    /// A request ended: when the volume had taken it, if it had refused it before.
    #[inline]
    pub fn taken_late(&self, token: Token) -> Option<Instant> {
        if !self.any_late.get() {
            return None;
        }
        let mut taken_late = self.taken_late.borrow_mut();
        let taken = taken_late.remove(&token);
        self.any_late.set(!taken_late.is_empty());
        taken
    }

    /// Takes back a request that was not submitted yet, or wishes that a submitted one end early.
    pub fn cancel(&self, token: Token) -> Option<Request> {
        let _shared = SharedSection::enter();
        let mut pending = self.pending.borrow_mut();
        if let Some(index) = pending.iter().position(|request| request.token == token) {
            let mut refused = self.refused.borrow_mut();
            if index < refused.len() {
                refused.remove(index);
            }
            return pending.remove(index);
        }
        drop(pending);
        self.end_early(token);
        None
    }

    /// Takes back all that was not submitted yet of what is `wanted`.
    pub fn withdraw(&self, wanted: impl Fn(Token) -> bool, withdrawn: &mut Vec<Request>) {
        let _shared = SharedSection::enter();
        self.refused.borrow_mut().retain(|&token| !wanted(token));
        let mut pending = self.pending.borrow_mut();
        let (own, left): (Vec<_>, _) = pending.drain(..).partition(|request| wanted(request.token));
        *pending = left.into();
        withdrawn.extend(own);
    }

    /// Wishes that a submitted request ends early.
    pub fn end_early(&self, token: Token) {
        let _shared = SharedSection::enter();
        if let Some(queue) = self.queue.borrow_mut().as_mut() {
            queue.cancel(token);
        }
    }

    /// Has the volume keep what `owner`, whose connection is lost, has left there apart from what its host submits from now on.
    pub fn abandon(&self, owner: u32, announcement: &Announcement) {
        let _shared = SharedSection::enter();
        if let Some(queue) = self.queue.borrow_mut().as_mut() {
            queue.abandon(owner, announcement);
        }
    }
}

/// A volume as a protocol serves it: a namespace, a LUN, a file of an export.
pub trait Export: Clone + Send + Sync + 'static {
    /// Its number among what a [group](crate::Protocol::Group) has: an NSID, a LUN.
    fn number(&self) -> u32;

    /// What tells it from another one that has the same number later.
    fn identity(&self) -> [u8; 16] {
        [0; 16]
    }

    /// What it stores in.
    fn volume(&self) -> &Arc<dyn Volume>;

    /// The volume that its latencies are counted for: [`Export::volume`], or the one below it where each of several exports has a
    /// wrapper of its own.
    fn counted(&self) -> &Arc<dyn Volume> {
        self.volume()
    }

    /// Tells whether writing is refused here, whatever the volume allows.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The reservations of its volume, the same ones under whatever export; none: it has none.
    fn reservations(&self) -> Option<&Arc<Reservations>> {
        None
    }
}

/// An export on one reactor.
pub struct Attached<E> {
    /// What is served.
    pub export: E,
    /// Its volume's geometry as this reactor knows it.
    pub geometry: Cell<Geometry>,
    /// The reactor's queue of the volume.
    pub queue: Rc<VolumeQueue>,
    /// Counts the changes of its volume; none: nobody wants to know.
    pub changes: Option<ChangeCount>,
    /// Where its commands on this reactor spent their time; stays when a new snapshot has the export too.
    pub latency: Rc<RefCell<Latency>>,
}

impl<E: Export> Attached<E> {
    /// Counts a change of what its volume stores.
    #[inline]
    pub(crate) fn count_change(&self) {
        if let Some(changes) = &self.changes {
            changes.count();
        }
    }

    /// Tells whether writing is refused.
    pub fn is_read_only(&self) -> bool {
        self.export.is_read_only() || self.geometry.get().read_only
    }
}

#[cfg(test)]
mod tests {
    use weir_block::{InFlight, Operation};

    use super::*;

    /// Takes so many requests, and no more.
    struct Takes(usize);

    impl Queue for Takes {
        fn landing(&mut self, _lba: u64, _blocks: u32) -> Landing {
            Landing::Anywhere
        }

        fn submit(&mut self, batch: &mut VecDeque<Request>, _: &mut VecDeque<Completion>) {
            batch.drain(..self.0.min(batch.len()));
            self.0 = 0;
        }

        fn cancel(&mut self, _token: Token) {}

        fn in_flight(&self, _: &mut dyn FnMut(InFlight)) {}
    }

    #[test]
    fn what_one_owner_withdraws_is_its_own_alone() {
        let pool = Pool::new(1 << 20);
        let queue = VolumeQueue::new(pool, Router::new(), Box::new(|| Ok(Box::new(Takes(1)))));
        queue.ready().expect("it opens");
        let token = |slot| Token {
            owner: slot % 3,
            slot,
            generation: 0,
        };
        let push = |slots: std::ops::Range<u32>| {
            for slot in slots {
                let operation = Operation::Flush;
                queue.push(Request {
                    token: token(slot),
                    operation,
                });
            }
        };
        // One is taken, the next ones are refused, and the last ones were not offered yet.
        push(0..10);
        queue.pump(Instant::default());
        push(10..20);
        let mut withdrawn = Vec::new();
        queue.withdraw(|token| token.owner == 1, &mut withdrawn);
        let withdrawn: Vec<u32> = withdrawn.iter().map(|one| one.token.slot).collect();
        assert_eq!(withdrawn, [1, 4, 7, 10, 13, 16, 19]);
        let refused: Vec<u32> = queue.refused.borrow().iter().map(|one| one.slot).collect();
        assert_eq!(refused, [2, 3, 5, 6, 8, 9]);
        let left: Vec<u32> = queue
            .pending
            .borrow()
            .iter()
            .map(|one| one.token.slot)
            .collect();
        assert_eq!(left[..6], refused, "refused are the first");
        assert_eq!(left[6..], [11, 12, 14, 15, 17, 18]);
        queue.pump(Instant::default());
        assert_eq!(queue.refused.borrow().len(), 12);
    }
}
