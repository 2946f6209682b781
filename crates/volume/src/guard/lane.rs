//! One reactor's queue of a guarded volume.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_block::{
    Announcement, Completion, CompletionSink, Landing, Operation, OperationKind, Queue, Request,
    Token, VolumeError,
};
use weir_memory::Segments;
use weir_reactor::{Instant, Mailbox, Reactor, Task, Timer, oneshot};

use super::limits::{Account, Class};
use super::meter::{Meter, Waiting};
use super::statistics::Counters;
use super::table::{Acknowledged, LockId, Locked, Message, QueueMailbox, overlaps};
use super::{Guard, complex};
use crate::support::{change_range, check, next_turn, pool_landing, pool_segments};
use crate::when_all::WhenAll;
use weir_reactor::{Key, Slots};

/// How long an emulation waits before it looks for a buffer again.
const BUFFER_RETRY: Duration = Duration::from_millis(1);
/// Holds of one connection on one queue at most: every request of every queue is compared with each of them. What more there are to hold
/// is held together with its neighbours.
const HOLDS_MAX: usize = 64;

/// A request of the queue's user.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) token: Token,
    pub(super) kind: OperationKind,
    /// As the user counts blocks.
    pub(super) range: (u64, u64),
    pub(super) taken: Instant,
}

/// What one part of an emulated request awaits.
struct Part {
    of: Key,
    ended: RefCell<Option<(Result<(), VolumeError>, Operation)>>,
    waker: RefCell<Option<Waker>>,
}

/// For whom a request goes to the volume below.
enum Origin {
    User(User),
    Part(Rc<Part>),
}

/// A request at the volume below, or about to be.
struct Below {
    origin: Origin,
    range: Range<u64>,
    number: u64,
    /// Of a user that is gone.
    hold: Option<Rc<Ticket>>,
}

/// A request that a lock or a hold keeps back. The operation of a user is still as the user gave it.
struct KeptBack {
    origin: Origin,
    operation: Operation,
    range: Range<u64>,
    number: u64,
    /// By a hold of its host, and no lock.
    is_held: bool,
}

/// The cause for which a request is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    Lock,
    Hold,
}

/// How a request of the user ended.
type Ended = (User, Result<(), VolumeError>, Operation);

struct Emulated {
    user: User,
    number: u64,
    cancelled: bool,
    /// A step has changed something: it is not to be ended early any more.
    changed: bool,
    task: Option<Task<()>>,
    /// Of a user that is gone.
    hold: Option<Rc<Ticket>>,
}

/// Someone who waits for what was taken before.
struct Drain {
    /// Requests with a lower number count.
    limit: u64,
    what: DrainOf,
}

enum DrainOf {
    /// What is at the volume below in a range.
    Range(
        Range<u64>,
        #[expect(dead_code, reason = "tells the holder when dropped")] Arc<Acknowledged>,
    ),
    /// Everything.
    All(#[expect(dead_code, reason = "replies when dropped")] Arc<WhenAll>),
}

pub(super) struct GuardQueue {
    lane: Rc<Lane>,
}

pub(super) struct Lane {
    pub(super) guard: Arc<Guard>,
    pub(super) reactor: Reactor,
    depth: u32,
    sink: Rc<dyn CompletionSink>,
    /// None once the queue is dropped.
    inner: RefCell<Option<Box<dyn Queue>>>,
    /// For the volume below, which has not taken it yet.
    outgoing: RefCell<VecDeque<Request>>,
    below: RefCell<Slots<Below>>,
    kept_back: RefCell<VecDeque<KeptBack>>,
    /// Those of them that only a hold keeps back: what one host left behind takes no room from others.
    held: Cell<u32>,
    emulated: RefCell<Slots<Emulated>>,
    /// Ended without the volume below, for the task to hand out.
    ended: RefCell<VecDeque<Ended>>,
    /// Locks and holds, as far as it has read of them.
    locks: RefCell<Vec<Locked>>,
    /// Locks and holds of this queue's own requests.
    tickets: RefCell<Vec<LockId>>,
    drains: RefCell<Vec<Drain>>,
    /// Requests that were taken and have not ended.
    taken: Cell<u32>,
    next_number: Cell<u64>,
    /// Whether the namespace has limits now.
    is_limited: Cell<bool>,
    /// None on a guard itself, and once the queue is dropped.
    meter: RefCell<Option<Meter>>,
    counters: Counters,
    mailbox: Arc<QueueMailbox>,
    waker: RefCell<Option<Waker>>,
    this: std::rc::Weak<Lane>,
}

/// Gives a lock or a hold up when dropped.
pub(super) struct Ticket {
    lane: Rc<Lane>,
    id: LockId,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut tickets = self.lane.tickets.borrow_mut();
        // A queue that was dropped has taken its locks over: it releases them after a fence.
        let Some(at) = tickets.iter().position(|&id| id == self.id) else {
            return;
        };
        tickets.swap_remove(at);
        drop(tickets);
        self.lane.guard.table.release(self.id);
    }
}

impl GuardQueue {
    /// A queue that draws from `account`, where its namespace has one.
    pub(super) fn open(
        guard: Arc<Guard>,
        account: Option<Arc<Account>>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Self, VolumeError> {
        let mailbox = Mailbox::new();
        let lane = Rc::new_cyclic(|this| Lane {
            reactor: reactor.clone(),
            depth,
            sink,
            inner: RefCell::default(),
            outgoing: RefCell::default(),
            below: RefCell::new(Slots::with_capacity(depth as usize)),
            kept_back: RefCell::default(),
            held: Cell::new(0),
            emulated: RefCell::new(Slots::with_capacity(0)),
            ended: RefCell::default(),
            locks: RefCell::default(),
            tickets: RefCell::default(),
            drains: RefCell::default(),
            taken: Cell::new(0),
            next_number: Cell::new(0),
            is_limited: Cell::new(false),
            meter: RefCell::default(),
            counters: Counters::default(),
            mailbox: Arc::clone(&mailbox),
            waker: RefCell::default(),
            this: this.clone(),
            guard,
        });
        let from_below: Rc<dyn CompletionSink> = Rc::<Lane>::clone(&lane);
        let inner = Arc::clone(&lane.guard.inner).open_queue(reactor, depth, from_below)?;
        *lane.inner.borrow_mut() = Some(inner);
        *lane.locks.borrow_mut() = lane.guard.table.add_queue(&mailbox);
        if let Some(account) = account {
            let meter = Meter::new(account, &mailbox);
            // A change after this comes as a message.
            lane.is_limited.set(meter.is_limited());
            *lane.meter.borrow_mut() = Some(meter);
        }
        let attendant = Attendant {
            lane: Rc::clone(&lane),
            draw: Timer::new(reactor),
        };
        reactor.spawn(attendant).detach();
        Ok(GuardQueue { lane })
    }
}

impl Queue for GuardQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.lane.read_holds();
        let guard = &self.lane.guard;
        let ratio = 1u64 << guard.ratio_shift;
        let blocks_below = blocks >> guard.ratio_shift;
        let as_it_is = lba.is_multiple_of(ratio)
            && u64::from(blocks).is_multiple_of(ratio)
            && blocks_below <= guard.inner_transfer_blocks_max;
        if as_it_is && let Some(inner) = &mut *self.lane.inner.borrow_mut() {
            let lba = lba >> guard.ratio_shift;
            let landing = inner.landing(lba, blocks_below);
            // Behind a lock or a limit the data would stay for long.
            let kept_back = matches!(landing, Landing::Anywhere)
                && (self.lane.is_limited.get()
                    || self
                        .lane
                        .may_be_kept_back(&(lba..lba + u64::from(blocks_below))));
            if !kept_back {
                return landing;
            }
        }
        let shift = guard.inner_shift - guard.ratio_shift;
        pool_landing(self.lane.reactor.pool(), (blocks as usize) << shift)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let lane = &self.lane;
        lane.read_holds();
        while lane.taken.get() - lane.held.get() < lane.depth
            && let Some(request) = batch.pop_front()
        {
            if let Some(refused) = lane.take(request) {
                done.push_back(refused);
            }
        }
        lane.flush(done);
    }

    fn cancel(&mut self, token: Token) {
        self.lane.cancel(token);
    }

    fn abandon(&mut self, owner: u32, announcement: &Announcement) {
        self.lane.abandon(owner, announcement);
    }
}

impl Drop for GuardQueue {
    /// Gives up what is in flight. Locks that it holds, or holds up, and its holds are let go after a fence below has made sure that
    /// nothing of it can take effect any more.
    fn drop(&mut self) {
        let lane = &self.lane;
        drop(lane.inner.borrow_mut().take());
        drop(lane.meter.borrow_mut().take());
        let in_flight = !lane.below.borrow().is_empty();
        let tickets = std::mem::take(&mut *lane.tickets.borrow_mut());
        for (_, below) in lane.below.borrow_mut().iter_mut() {
            below.hold = None;
        }
        let emulated = std::mem::replace(&mut *lane.emulated.borrow_mut(), Slots::with_capacity(0));
        let kept_back = std::mem::take(&mut *lane.kept_back.borrow_mut());
        let outgoing = std::mem::take(&mut *lane.outgoing.borrow_mut());
        let ended = std::mem::take(&mut *lane.ended.borrow_mut());
        drop((emulated, kept_back, outgoing, ended));
        let drains = std::mem::take(&mut *lane.drains.borrow_mut());
        let (guard, mailbox) = (Arc::clone(&lane.guard), Arc::clone(&lane.mailbox));
        let mut counted = lane.counters.get();
        counted.forget_in_flight();
        let let_go = move || {
            tickets.iter().for_each(|&id| guard.table.release(id));
            guard.table.remove_queue(&mailbox, &counted);
            drop(drains);
        };
        if in_flight {
            lane.guard.inner.fence(Box::new(move |_| let_go()));
        } else {
            let_go();
        }
        lane.wake();
    }
}

impl CompletionSink for Lane {
    /// Called by the queue below. It must not be called back, so whatever needs it is left to the task.
    fn complete(&self, mut completion: Completion) {
        match self.ended_below(&mut completion) {
            Whose::User => self.sink.complete(completion),
            others => self.go_on(others, completion),
        }
        self.after_ends();
    }
}

/// Whose completion the one of a request below is.
enum Whose {
    /// The user's: it says what the user is told.
    User,
    /// That of a part of an emulated request.
    Part(Rc<Part>),
    /// Nobody's: the volume below does not support the request, which is done by other means.
    Emulation(User, u64),
}

impl Lane {
    /// A request ended below. Makes the user's completion of the one below where the user is to be told.
    fn ended_below(&self, completion: &mut Completion) -> Whose {
        let key = Key {
            slot: completion.token.slot,
            generation: completion.token.generation,
        };
        let below = self.below.borrow_mut().remove(key);
        let user = match below.origin {
            Origin::Part(part) => return Whose::Part(part),
            Origin::User(user) => user,
        };
        if self.guard.ratio_shift > 0 {
            change_range(&mut completion.operation, |_, _| user.range);
        }
        let is_unsupported = completion.result == Err(VolumeError::Unsupported);
        if is_unsupported && below.hold.is_none() && complex::can_emulate(user.kind) {
            return Whose::Emulation(user, below.number);
        }
        completion.token = user.token;
        self.count_end(&user, &completion.result);
        Whose::User
    }

    /// Goes on with what is not the user's to know.
    #[cold]
    fn go_on(&self, whose: Whose, completion: Completion) {
        match whose {
            Whose::Part(part) => part.end(completion.result, completion.operation),
            Whose::Emulation(user, number) => self.emulate(user, number, completion.operation),
            Whose::User => unreachable!("the user is told"),
        }
    }

    /// Requests have ended below: somebody may have waited for that, or for room.
    fn after_ends(&self) {
        self.release_drains();
        if !self.outgoing.borrow().is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        number
    }

    /// Takes a request of the user; its completion where it is refused.
    fn take(&self, request: Request) -> Option<Completion> {
        let Request { token, operation } = request;
        let user = User {
            token,
            kind: operation.kind(),
            range: operation.range().unwrap_or((0, 0)),
            taken: self.reactor.now(),
        };
        self.taken.set(self.taken.get() + 1);
        self.counters.taken(user.kind);
        let number = self.number();
        if self.passes(&operation) {
            // The volume below checks it.
            self.send(Origin::User(user), operation, range_of(user.range), number);
            return None;
        }
        let checked = if self.guard.retired.load(Ordering::Relaxed) {
            Err(VolumeError::Lost)
        } else {
            check(&self.guard.geometry.get(), &operation)
        };
        if let Err(error) = checked {
            return Some(self.end(user, Err(error), operation));
        }
        if self.is_limited.get() {
            self.begin_within_limits(user, number, operation);
        } else {
            self.begin(user, number, operation);
        }
        None
    }

    /// Tells whether a request goes below as it is, now: in blocks of the same size, and neither limited nor kept back.
    #[inline]
    fn passes(&self, operation: &Operation) -> bool {
        let guard = &*self.guard;
        let is_refused = guard.config.read_only && operation.modifies();
        !is_refused
            && guard.ratio_shift == 0
            && !guard.retired.load(Ordering::Relaxed)
            && !self.is_limited.get()
            && self.locks.borrow().is_empty()
            && self.is_simple(operation)
    }

    /// Begins a request of the user, or keeps it back.
    #[inline]
    fn begin(&self, user: User, number: u64, operation: Operation) {
        let is_simple = self.is_simple(&operation);
        if is_simple && self.locks.borrow().is_empty() {
            let range = self.range_below(user.range);
            self.send(Origin::User(user), operation, range, number);
        } else {
            self.begin_or_wait(user, number, operation, is_simple);
        }
    }

    /// Begins a request that takes several steps, or may have to wait.
    #[inline(never)]
    fn begin_or_wait(&self, user: User, number: u64, operation: Operation, is_simple: bool) {
        let (origin, range) = (Origin::User(user), self.range_below(user.range));
        if let Some(keeper) = self.keeper(&origin, is_simple, &range) {
            self.keep_back(KeptBack {
                origin,
                operation,
                range,
                number,
                is_held: keeper == Keeper::Hold,
            });
        } else if is_simple {
            self.send(origin, operation, range, number);
        } else {
            self.emulate(user, number, operation);
        }
    }

    /// Begins a request when its namespace's limits allow it.
    fn begin_within_limits(&self, user: User, number: u64, operation: Operation) {
        let shift = self.guard.inner_shift - self.guard.ratio_shift;
        let Some(costs) = Class::of(&operation, shift) else {
            self.begin(user, number, operation);
            return;
        };
        let mut meter = self.meter.borrow_mut();
        let meter = meter.as_mut().expect("what is limited has a meter");
        match meter.pay(user, number, operation, costs) {
            Ok(operation) => self.begin(user, number, operation),
            Err(true) => self.wake(),
            Err(false) => {}
        }
    }

    /// Begins what the limits allow now; when to come again.
    fn draw(&self) -> Option<Instant> {
        let mut go_on = Vec::new();
        let next = match &mut *self.meter.borrow_mut() {
            Some(meter) => meter.draw(self.reactor.now(), &mut go_on),
            None => None,
        };
        for waiting in go_on {
            let Waiting {
                user,
                operation,
                number,
                ..
            } = waiting;
            self.begin(user, number, operation);
        }
        next
    }

    /// Ends what waits for a limit, or for what its host has left behind: it has had no effect.
    fn give_up_waiting(&self) {
        let error = match self.guard.is_retired() {
            true => VolumeError::Lost,
            false => VolumeError::Cancelled,
        };
        while let Some(kept) = self.take_kept(|kept| kept.is_held) {
            let Origin::User(user) = kept.origin else {
                unreachable!("parts pass holds")
            };
            let ended = (user, Err(error), kept.operation);
            self.ended.borrow_mut().push_back(ended);
        }
        if let Some(meter) = &mut *self.meter.borrow_mut() {
            let ended = meter.cancel_all();
            let ended = ended.map(|waiting| (waiting.user, Err(error), waiting.operation));
            self.ended.borrow_mut().extend(ended);
        }
    }

    fn take_limits(&self) {
        if let Some(meter) = &mut *self.meter.borrow_mut() {
            meter.renew();
            self.is_limited.set(meter.is_limited());
        }
    }

    /// Returns whether the volume below can do it in one request.
    fn is_simple(&self, operation: &Operation) -> bool {
        let Some((lba, blocks)) = operation.range() else {
            return true;
        };
        let guard = &*self.guard;
        let ratio = 1u64 << guard.ratio_shift;
        if !(lba | blocks).is_multiple_of(ratio) {
            return false;
        }
        let below = blocks >> guard.ratio_shift;
        match operation.kind() {
            OperationKind::Read | OperationKind::Write | OperationKind::Compare => {
                below <= u64::from(guard.inner_transfer_blocks_max)
            }
            OperationKind::CompareWrite => below <= u64::from(guard.inner_compare_write_blocks),
            _ => true,
        }
    }

    /// The blocks below that a range touches as the user counts blocks.
    fn range_below(&self, (lba, blocks): (u64, u64)) -> Range<u64> {
        let shift = self.guard.ratio_shift;
        let rest = (1 << shift) - 1;
        lba >> shift..lba.saturating_add(blocks).saturating_add(rest) >> shift
    }

    /// Keeps a request back that is new here. Its data may have been received before a hold was announced, into what others
    /// receive into: that is copied out.
    fn keep_back(&self, mut kept: KeptBack) {
        self.counters.waited_for_lock();
        kept.operation.copy_out(self.reactor.pool());
        self.push_kept(kept);
    }

    fn push_kept(&self, kept: KeptBack) {
        self.held.set(self.held.get() + u32::from(kept.is_held));
        self.kept_back.borrow_mut().push_back(kept);
    }

    /// Takes the first request that is kept back of those that `is_it` names.
    fn take_kept(&self, is_it: impl Fn(&KeptBack) -> bool) -> Option<KeptBack> {
        let mut kept_back = self.kept_back.borrow_mut();
        let at = kept_back.iter().position(is_it)?;
        let kept = kept_back.remove(at)?;
        self.held.set(self.held.get() - u32::from(kept.is_held));
        Some(kept)
    }

    /// Finds what keeps a request back: a lock, or else a hold. One that takes several steps is kept back by a hold as a whole, and by
    /// locks in its steps: these pass holds, for it has begun.
    fn keeper(&self, origin: &Origin, is_simple: bool, range: &Range<u64>) -> Option<Keeper> {
        let locks = self.locks.borrow();
        let mut keeper = None;
        for locked in locks.iter().filter(|lock| overlaps(&lock.range, range)) {
            match (locked.host, origin) {
                (None, _) if is_simple => return Some(Keeper::Lock),
                (None, _) | (Some(_), Origin::Part(_)) => {}
                (host, Origin::User(user)) if host == self.sink.host_of(user.token.owner) => {
                    keeper = Some(Keeper::Hold);
                }
                _ => {}
            }
        }
        keeper
    }

    /// Returns whether a request of some host would be kept back.
    fn may_be_kept_back(&self, range: &Range<u64>) -> bool {
        let locks = self.locks.borrow();
        !locks.is_empty() && locks.iter().any(|locked| overlaps(&locked.range, range))
    }

    /// Sends a request below. The operation of a user is still as the user gave it.
    fn send(&self, origin: Origin, mut operation: Operation, range: Range<u64>, number: u64) {
        let shift = self.guard.ratio_shift;
        if shift > 0 && matches!(origin, Origin::User(_)) {
            change_range(&mut operation, |lba, blocks| {
                (lba >> shift, blocks >> shift)
            });
        }
        let below = Below {
            origin,
            range,
            number,
            hold: None,
        };
        let mut slots = self.below.borrow_mut();
        let key = slots.insert(below);
        let token = Token {
            owner: 0,
            slot: key.slot,
            generation: key.generation,
        };
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.push_back(Request { token, operation });
    }

    /// Hands the volume below what is meant for it. What it does not take is tried again after its next completion.
    fn flush(&self, done: &mut VecDeque<Completion>) {
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.is_empty() {
            return;
        }
        let before = done.len();
        if let Some(inner) = &mut *self.inner.borrow_mut() {
            inner.submit(&mut outgoing, done);
        }
        drop(outgoing);
        if done.len() == before {
            return;
        }
        let mut at = before;
        while at < done.len() {
            match self.ended_below(&mut done[at]) {
                Whose::User => at += 1,
                others => {
                    let completion = done.remove(at).expect("it is there");
                    self.go_on(others, completion);
                }
            }
        }
        self.after_ends();
    }

    /// The same from a task, outside of any submission.
    fn flush_by_itself(&self) {
        let mut done = VecDeque::new();
        self.flush(&mut done);
        self.sink.complete_all(&mut done);
    }

    fn end(&self, user: User, result: Result<(), VolumeError>, operation: Operation) -> Completion {
        self.count_end(&user, &result);
        Completion {
            token: user.token,
            result,
            operation,
        }
    }

    fn count_end(&self, user: &User, result: &Result<(), VolumeError>) {
        self.taken.set(self.taken.get() - 1);
        let took = self.reactor.now() - user.taken;
        self.counters
            .ended(user.kind, user.range.1, result.is_ok(), took);
    }

    /// Has a request done in several steps by a task of its own.
    fn emulate(&self, user: User, number: u64, operation: Operation) {
        let lane = self
            .this
            .upgrade()
            .expect("the lane is borrowed from its Rc");
        let key = self.emulated.borrow_mut().insert(Emulated {
            user,
            number,
            cancelled: false,
            changed: false,
            task: None,
            hold: None,
        });
        let task = self.reactor.spawn(async move {
            let mut operation = operation;
            let result = complex::run(&lane, key, &mut operation).await;
            let emulated = lane.emulated.borrow_mut().remove(key);
            if let Some(task) = emulated.task {
                task.detach();
            }
            let completion = lane.end(emulated.user, result, operation);
            lane.sink.complete(completion);
            lane.release_drains();
        });
        self.emulated.borrow_mut().get_mut(key).task = Some(task);
    }

    /// Returns whether the user wishes an emulated request to end.
    pub(super) fn is_cancelled(&self, key: Key) -> bool {
        self.emulated.borrow_mut().get_mut(key).cancelled
    }

    /// Returns whether a step of an emulated request has changed something.
    pub(super) fn has_changed(&self, key: Key) -> bool {
        self.emulated.borrow_mut().get_mut(key).changed
    }

    /// A step of an emulated request has changed something.
    pub(super) fn note_changed(&self, key: Key) {
        self.emulated.borrow_mut().get_mut(key).changed = true;
    }

    /// One request below as part of the emulated one `of`. `under` is the lock that the emulated one holds, which lets it pass:
    /// no other lock overlaps that one.
    pub(super) async fn call(
        &self,
        of: Key,
        operation: Operation,
        under: Option<&Ticket>,
    ) -> (Result<(), VolumeError>, Operation) {
        let part = Rc::new(Part {
            of,
            ended: RefCell::default(),
            waker: RefCell::default(),
        });
        let (origin, number) = (Origin::Part(Rc::clone(&part)), self.number());
        let range = range_of(operation.range().unwrap_or_default());
        if under.is_none() && self.keeper(&origin, true, &range).is_some() {
            self.keep_back(KeptBack {
                origin,
                operation,
                range,
                number,
                is_held: false,
            });
        } else {
            self.send(origin, operation, range, number);
        }
        self.flush_by_itself();
        if part.ended.borrow().is_some() {
            next_turn().await;
        }
        std::future::poll_fn(|context| part.poll(context)).await
    }

    /// Locks a range, in blocks below, against everyone else.
    pub(super) async fn lock(self: &Rc<Self>, range: Range<u64>) -> Ticket {
        let (sender, receiver) = oneshot();
        let ticket = self.ticket(self.guard.table.acquire(range, sender));
        receiver
            .await
            .expect("a lock that is waited for is granted");
        ticket
    }

    /// Buffers of `bytes` together; waits, holding none, until there are some.
    pub(super) async fn segments(&self, bytes: usize) -> Segments {
        loop {
            if let Some(segments) = pool_segments(self.reactor.pool(), bytes) {
                return segments;
            }
            self.reactor.sleep(BUFFER_RETRY).await;
        }
    }

    fn cancel(&self, token: Token) {
        let is_it = |origin: &Origin| matches!(origin, Origin::User(user) if user.token == token);
        if let Some(kept) = self.take_kept(|kept| is_it(&kept.origin)) {
            let Origin::User(user) = kept.origin else {
                unreachable!("just matched")
            };
            let ended = (user, Err(VolumeError::Cancelled), kept.operation);
            self.ended.borrow_mut().push_back(ended);
            self.wake();
            return;
        }
        let mut meter = self.meter.borrow_mut();
        let waiting = meter.as_mut().and_then(|meter| meter.cancel(token));
        drop(meter);
        if let Some(waiting) = waiting {
            let ended = (waiting.user, Err(VolumeError::Cancelled), waiting.operation);
            self.ended.borrow_mut().push_back(ended);
            self.wake();
            return;
        }
        let mut emulated = self.emulated.borrow_mut();
        let found = emulated
            .iter_mut()
            .find(|(_, entry)| entry.user.token == token);
        if let Some((key, entry)) = found {
            entry.cancelled = true;
            let is_changed = entry.changed;
            drop(emulated);
            // Once something has changed, an end would leave the request done in part.
            if !is_changed {
                self.cancel_kept_back_part(key);
                self.cancel_below(|origin| matches!(origin, Origin::Part(part) if part.of == key));
            }
            return;
        }
        drop(emulated);
        self.cancel_below(is_it);
    }

    /// Ends the part of an emulated request that a lock keeps back.
    fn cancel_kept_back_part(&self, of: Key) {
        let is_it = |origin: &Origin| matches!(origin, Origin::Part(part) if part.of == of);
        let kept = self.take_kept(|kept| is_it(&kept.origin));
        if let Some(kept) = kept
            && let Origin::Part(part) = kept.origin
        {
            part.end(Err(VolumeError::Cancelled), kept.operation);
        }
    }

    /// Has the volume below end the request that `is_it` names, if it has it.
    fn cancel_below(&self, is_it: impl Fn(&Origin) -> bool) {
        let below = self.below.borrow();
        let found = below.iter().find(|(_, below)| is_it(&below.origin));
        let key = found.map(|(key, _)| key);
        drop(below);
        if let (Some(key), Some(inner)) = (key, &mut *self.inner.borrow_mut()) {
            inner.cancel(Token {
                owner: 0,
                slot: key.slot,
                generation: key.generation,
            });
        }
    }

    fn take_message(&self, message: Message) {
        match message {
            Message::Lock {
                id,
                range,
                acknowledged,
            } => {
                self.locks.borrow_mut().push(Locked {
                    id,
                    range: range.clone(),
                    host: None,
                });
                self.drains.borrow_mut().push(Drain {
                    limit: self.next_number.get(),
                    what: DrainOf::Range(range, acknowledged),
                });
            }
            Message::Hold {
                locked,
                announcement,
            } => {
                self.locks.borrow_mut().push(locked);
                drop(announcement);
            }
            Message::Unlock { id } => {
                self.locks.borrow_mut().retain(|locked| locked.id != id);
                self.let_through();
            }
            Message::Drain(all) => {
                self.give_up_waiting();
                self.drains.borrow_mut().push(Drain {
                    limit: self.next_number.get(),
                    what: DrainOf::All(all),
                });
            }
            Message::Limits(told) => {
                self.take_limits();
                drop(told);
            }
            Message::Count(gathering) => gathering.add(&self.counters),
        }
    }

    /// Reads of the holds that were announced by now, though the queue's task has not had its turn: whoever saw that a connection
    /// was lost may be here already.
    #[inline]
    fn read_holds(&self) {
        if self.mailbox.may_have_some() {
            self.read_holds_now();
        }
    }

    #[cold]
    fn read_holds_now(&self) {
        let is_hold = |message: &Message| matches!(message, Message::Hold { .. });
        for message in self.mailbox.take_those(is_hold) {
            self.take_message(message);
        }
    }

    /// Has everything that `owner` has left here hold its range: what has not begun was cancelled.
    fn abandon(&self, owner: u32, announcement: &Announcement) {
        let Some(host) = self.sink.host_of(owner) else {
            return;
        };
        let (mut below, mut emulated) = (self.below.borrow_mut(), self.emulated.borrow_mut());
        let of_below = below
            .iter_mut()
            .filter_map(|(_, below)| match &below.origin {
                Origin::User(user) => Some((*user, &mut below.hold)),
                Origin::Part(_) => None,
            });
        let of_emulated = emulated
            .iter_mut()
            .map(|(_, entry)| (entry.user, &mut entry.hold));
        let mut left: Vec<_> = of_below
            .chain(of_emulated)
            .filter(|(user, _)| user.token.owner == owner && user.kind.modifies())
            .map(|(user, hold)| (self.range_below(user.range), hold))
            .collect();
        left.sort_by_key(|(range, _)| range.start);
        let each = left.len().div_ceil(HOLDS_MAX).max(1);
        for together in left.chunks_mut(each) {
            let ends = together.iter().map(|(range, _)| range.end);
            let range = together[0].0.start..ends.max().expect("a chunk has one at least");
            let ticket = Rc::new(self.ticket(self.guard.table.hold(range, host, announcement)));
            for (_, hold) in together {
                **hold = Some(Rc::clone(&ticket));
            }
        }
    }

    /// Has this queue give up the lock or hold `id`.
    fn ticket(&self, id: LockId) -> Ticket {
        self.tickets.borrow_mut().push(id);
        let lane = self
            .this
            .upgrade()
            .expect("the lane is borrowed from its Rc");
        Ticket { lane, id }
    }

    /// Begins what nothing keeps back any more.
    fn let_through(&self) {
        let kept_back = self.kept_back.borrow().len();
        for _ in 0..kept_back {
            let Some(mut kept) = self.take_kept(|_| true) else {
                return;
            };
            let is_simple = match &kept.origin {
                Origin::User(_) => self.is_simple(&kept.operation),
                Origin::Part(_) => true,
            };
            if let Some(keeper) = self.keeper(&kept.origin, is_simple, &kept.range) {
                kept.is_held = keeper == Keeper::Hold;
                self.push_kept(kept);
                continue;
            }
            match kept.origin {
                Origin::User(user) if !is_simple => {
                    self.emulate(user, kept.number, kept.operation);
                }
                origin => self.send(origin, kept.operation, kept.range, kept.number),
            }
        }
    }

    /// Lets go of the drains that nothing is left for.
    fn release_drains(&self) {
        if self.drains.borrow().is_empty() {
            return;
        }
        let drains = std::mem::take(&mut *self.drains.borrow_mut());
        let (kept, released): (Vec<_>, Vec<_>) =
            drains.into_iter().partition(|drain| self.is_pending(drain));
        self.drains.borrow_mut().extend(kept);
        drop(released);
    }

    fn is_pending(&self, drain: &Drain) -> bool {
        let below = self.below.borrow();
        match &drain.what {
            DrainOf::Range(range, _) => below
                .iter()
                .any(|(_, below)| below.number < drain.limit && overlaps(&below.range, range)),
            DrainOf::All(_) => {
                let older = |number: u64| number < drain.limit;
                below.iter().any(|(_, below)| older(below.number))
                    || self
                        .kept_back
                        .borrow()
                        .iter()
                        .any(|kept| older(kept.number))
                    || self
                        .emulated
                        .borrow()
                        .iter()
                        .any(|(_, entry)| older(entry.number))
            }
        }
    }

    fn take_ended(&self) -> Option<Ended> {
        self.ended.borrow_mut().pop_front()
    }

    fn is_over(&self) -> bool {
        self.inner.borrow().is_none()
    }
}

impl Part {
    fn end(&self, result: Result<(), VolumeError>, operation: Operation) {
        *self.ended.borrow_mut() = Some((result, operation));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<(Result<(), VolumeError>, Operation)> {
        if let Some(ended) = self.ended.borrow_mut().take() {
            return Poll::Ready(ended);
        }
        *self.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The task of a queue: messages, what was cancelled or given up, what waited for a limit, what the volume below
/// did not take.
struct Attendant {
    lane: Rc<Lane>,
    draw: Timer,
}

impl Future for Attendant {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let lane = Rc::clone(&self.lane);
        if lane.is_over() {
            drop(lane.waker.borrow_mut().take());
            return Poll::Ready(());
        }
        let mut waker = lane.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        for message in lane.mailbox.take(context) {
            lane.take_message(message);
        }
        while let Some((user, result, operation)) = lane.take_ended() {
            lane.sink.complete(lane.end(user, result, operation));
        }
        loop {
            match lane.draw() {
                Some(next) => self.draw.set(next),
                None => self.draw.clear(),
            }
            if self.draw.poll_elapsed(context).is_pending() {
                break;
            }
        }
        lane.flush_by_itself();
        lane.release_drains();
        Poll::Pending
    }
}

/// The blocks of a request, which nobody may have checked.
fn range_of((lba, blocks): (u64, u64)) -> Range<u64> {
    lba..lba.saturating_add(blocks)
}
