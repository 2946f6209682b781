//! One reactor's queue of a guarded volume.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{
    Announcement, Completion, CompletionSink, GUARD_OWNER, InFlight, Landing, Operation,
    OperationKind, Queue, Request, Token, VolumeError,
};
use weir_memory::Segments;
use weir_reactor::{Instant, Key, Mailbox, Reactor, Slots, Task, TaskWaker, Timer, oneshot};

use super::limits::{Account, Class};
use super::meter::{Meter, Waiting};
use super::statistics::Counters;
use super::table::{LockId, Locked, Message, QueueMailbox, overlaps};
use super::{Guard, complex};
use crate::support::{change_range, check, pool_landing, pool_segments};

mod ties;

use ties::Tie;

/// How long an emulation waits before it looks for a buffer again.
const BUFFER_RETRY: Duration = Duration::from_millis(1);

/// A request of the queue's user that the guard has taken for itself: one that waits, or that goes below in another form.
pub(super) struct User {
    /// As the user counts blocks.
    pub(super) request: InFlight,
    ties: Vec<Tie>,
}

impl User {
    pub(super) fn new(token: Token, operation: &Operation) -> Self {
        User {
            request: InFlight::of(token, operation),
            ties: Vec::new(),
        }
    }
}

/// What one part of an emulated request awaits.
struct Part {
    of: Key,
    ended: RefCell<Option<(Result<(), VolumeError>, Operation)>>,
    waker: TaskWaker,
}

/// For whom a request goes to the volume below.
enum Origin {
    User(User),
    Part(Rc<Part>),
}

/// A request of the guard's own at the volume below, or about to be.
struct Below {
    origin: Origin,
    range: Range<u64>,
    /// Locks that wait for it.
    locks: Vec<Tie>,
}

/// A request that is to begin, or is kept back. The operation of a user is still as the user gave it.
struct Beginning {
    origin: Origin,
    operation: Operation,
    /// In blocks below.
    range: Range<u64>,
    keeper: Option<Keeper>,
}

/// The cause for which a request is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    Lock,
    /// A hold of its host, and no lock.
    Hold,
}

/// How a request of the user ended.
type Ended = (User, Result<(), VolumeError>, Operation);

/// A request of the user that is done in several steps.
pub(super) struct Emulated {
    user: User,
    /// Its user wishes that it end.
    pub(super) cancelled: bool,
    /// A step has changed something: it is not to be ended early any more.
    pub(super) changed: bool,
    task: Option<Task<()>>,
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
    kept_back: RefCell<VecDeque<Beginning>>,
    /// Those of them that only a hold keeps back: what one host left behind takes no room from others.
    held: Cell<u32>,
    emulated: RefCell<Slots<Emulated>>,
    /// Ended without the volume below, for the task to hand out.
    ended: RefCell<VecDeque<Ended>>,
    /// Locks and holds, as far as it has read of them.
    locks: RefCell<Vec<Locked>>,
    /// Locks and holds of this queue's own requests.
    tickets: RefCell<Vec<LockId>>,
    /// Requests of the user that went below as they were, under its own tokens, and have not ended.
    passed: Cell<u32>,
    /// Those that wait for some of these.
    ties: RefCell<BTreeMap<Token, Vec<Tie>>>,
    /// Those that waited for requests that have ended: the users of these are told first.
    loosened: RefCell<Vec<Tie>>,
    /// Requests of the user that the guard has taken for itself, and that have not ended.
    taken: Cell<u32>,
    /// Whether the namespace has limits now.
    is_limited: Cell<bool>,
    /// None on a guard itself, and once the queue is dropped.
    meter: RefCell<Option<Meter>>,
    counters: Counters,
    mailbox: Arc<QueueMailbox>,
    waker: TaskWaker,
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
            below: RefCell::new(Slots::with_capacity(0)),
            kept_back: RefCell::default(),
            held: Cell::new(0),
            emulated: RefCell::new(Slots::with_capacity(0)),
            ended: RefCell::default(),
            locks: RefCell::default(),
            tickets: RefCell::default(),
            passed: Cell::new(0),
            ties: RefCell::default(),
            loosened: RefCell::default(),
            taken: Cell::new(0),
            is_limited: Cell::new(false),
            meter: RefCell::default(),
            counters: Counters::default(),
            mailbox: Arc::clone(&mailbox),
            waker: TaskWaker::new(),
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
        let (attended, mut draw) = (Rc::clone(&lane), Timer::new(reactor));
        let attendant = poll_fn(move |context| attended.attend(context, &mut draw));
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
        if lane.passes_all(batch) {
            lane.pass_all(batch, done);
            return;
        }
        while lane.room() > 0
            && let Some(request) = batch.pop_front()
        {
            done.extend(lane.take(request));
        }
        lane.flush(done);
    }

    fn cancel(&mut self, token: Token) {
        self.lane.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.lane.in_flight(visit);
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
        let in_flight = lane.passed.get() > 0 || !lane.below.borrow().is_empty();
        let tickets = std::mem::take(&mut *lane.tickets.borrow_mut());
        let ties = lane.take_ties();
        let emulated = std::mem::replace(&mut *lane.emulated.borrow_mut(), Slots::with_capacity(0));
        let kept_back = std::mem::take(&mut *lane.kept_back.borrow_mut());
        let outgoing = std::mem::take(&mut *lane.outgoing.borrow_mut());
        let ended = std::mem::take(&mut *lane.ended.borrow_mut());
        drop((emulated, kept_back, outgoing, ended));
        let (guard, mailbox) = (Arc::clone(&lane.guard), Arc::clone(&lane.mailbox));
        let counted = lane.counters.past();
        let let_go = move || {
            tickets.iter().for_each(|&id| guard.table.release(id));
            guard.table.remove_queue(&mailbox, &counted);
            drop(ties);
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
    fn complete(&self, completion: Completion) {
        if self.ends_plainly(&completion) {
            self.sink.complete(completion);
        } else if let Some(completion) = self.ended_otherwise(completion) {
            self.sink.complete(completion);
        }
        self.after_ends();
    }
}

fn own_token(key: Key) -> Token {
    Token {
        owner: GUARD_OWNER,
        slot: key.slot,
        generation: key.generation,
    }
}

impl Lane {
    #[inline]
    fn one_passed_ended(&self) {
        let left = self.passed.get().checked_sub(1);
        self.passed.set(left.expect("a request ends once"));
    }

    /// Counts the end of a request that passed, where its user is to be told of it and nothing else is to be done.
    #[inline]
    fn ends_plainly(&self, completion: &Completion) -> bool {
        let is_plain = completion.token.owner != GUARD_OWNER
            && completion.result != Err(VolumeError::Unsupported)
            && self.ties.borrow().is_empty();
        if is_plain {
            self.one_passed_ended();
            self.count(completion);
        }
        is_plain
    }

    /// A request ended below in another way; the completion that its user is told, if it is told now.
    #[inline(never)]
    fn ended_otherwise(&self, mut completion: Completion) -> Option<Completion> {
        let user = if completion.token.owner == GUARD_OWNER {
            let key = Key {
                slot: completion.token.slot,
                generation: completion.token.generation,
            };
            let below = self.below.borrow_mut().remove(key);
            drop(below.locks);
            let user = match below.origin {
                Origin::User(user) => user,
                Origin::Part(part) => {
                    part.end(completion.result, completion.operation);
                    return None;
                }
            };
            let Range { start, end } = user.request.range;
            change_range(&mut completion.operation, |_, _| (start, end - start));
            user
        } else {
            self.one_passed_ended();
            self.taken.set(self.taken.get() + 1);
            let mut user = User::new(completion.token, &completion.operation);
            let ties = self.ties.borrow_mut().remove(&completion.token);
            user.ties = ties.unwrap_or_default();
            user.ties.retain(|tie| !matches!(tie, Tie::Lock(_)));
            user
        };
        // For who is gone nothing is done by other means.
        let is_held = user.ties.iter().any(|tie| matches!(tie, Tie::Hold(_)));
        if completion.result == Err(VolumeError::Unsupported)
            && complex::can_emulate(user.request.kind)
            && !is_held
        {
            self.emulate(user, completion.operation);
            return None;
        }
        Some(self.end(user, completion.result, completion.operation))
    }

    /// Requests have ended below: there is room for what waits to go there.
    fn after_ends(&self) {
        if !self.outgoing.borrow().is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.waker.wake();
    }

    /// Number of further requests that it may take.
    fn room(&self) -> u32 {
        self.depth - (self.passed.get() + self.taken.get() - self.held.get()).min(self.depth)
    }

    /// Tells whether all of a batch goes below as it is, now, and nothing of this queue waits to go there before it.
    #[inline]
    fn passes_all(&self, batch: &VecDeque<Request>) -> bool {
        self.is_open()
            && batch.len() <= self.room() as usize
            && self.outgoing.borrow().is_empty()
            && batch.iter().all(|request| self.passes(request))
    }

    /// Hands the volume below a batch as it is, which checks it. What is left is backpressure.
    #[inline]
    fn pass_all(&self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let before = done.len();
        let offered = batch.len() as u32;
        if let Some(inner) = &mut *self.inner.borrow_mut() {
            inner.submit(batch, done);
        }
        let went = offered - batch.len() as u32;
        self.passed.set(self.passed.get() + went);
        self.sort_out(before, done);
    }

    /// Takes a request of the user; its completion where it is refused.
    fn take(&self, request: Request) -> Option<Completion> {
        if self.is_open() && self.passes(&request) {
            self.passed.set(self.passed.get() + 1);
            self.outgoing.borrow_mut().push_back(request);
            return None;
        }
        let Request { token, operation } = request;
        let user = User::new(token, &operation);
        self.taken.set(self.taken.get() + 1);
        let checked = if self.guard.retired.load(Ordering::Relaxed) {
            Err(VolumeError::Lost)
        } else {
            check(&self.guard.geometry.get(), &operation)
        };
        if let Err(error) = checked {
            return Some(self.end(user, Err(error), operation));
        }
        if self.is_limited.get() {
            self.begin_within_limits(user, operation);
        } else {
            self.begin(user, operation);
        }
        None
    }

    /// Tells whether nothing stands between the user and the volume below now: blocks of the same size, no limit, no lock, no hold.
    #[inline]
    fn is_open(&self) -> bool {
        self.guard.ratio_shift == 0
            && !self.guard.retired.load(Ordering::Relaxed)
            && !self.is_limited.get()
            && self.locks.borrow().is_empty()
    }

    /// Tells whether a request then goes below as it is.
    #[inline]
    fn passes(&self, request: &Request) -> bool {
        let is_refused = self.guard.config.read_only && request.operation.modifies();
        !is_refused
            && self.is_short(&request.operation)
            && keeps_token(request.token, request.operation.kind())
    }

    /// Begins a request of the user, or keeps it back.
    fn begin(&self, user: User, operation: Operation) {
        self.begin_or_keep_back(Beginning {
            range: self.range_below(&user.request),
            origin: Origin::User(user),
            operation,
            keeper: None,
        });
    }

    /// Begins a request unless something keeps it back. One that is new here may have data that was received before a hold was announced,
    /// into what others receive into: that is copied out.
    fn begin_or_keep_back(&self, mut request: Beginning) {
        let is_simple = match &request.origin {
            Origin::User(_) => self.is_simple(&request.operation),
            Origin::Part(_) => true,
        };
        let keeper = self.keeper(&request.origin, is_simple, &request.range);
        if keeper.is_some() {
            if request.keeper.is_none() {
                self.counters.waited_for_lock();
                request.operation.copy_out(self.reactor.pool());
            }
            request.keeper = keeper;
            self.held.set(self.held.get() + request.held());
            self.kept_back.borrow_mut().push_back(request);
            return;
        }
        match request.origin {
            Origin::User(user) if !is_simple => self.emulate(user, request.operation),
            origin => self.send(origin, request.operation, request.range),
        }
    }

    /// Begins a request when its namespace's limits allow it.
    fn begin_within_limits(&self, user: User, operation: Operation) {
        let shift = self.guard.inner_shift - self.guard.ratio_shift;
        let Some(costs) = Class::of(&operation, shift) else {
            self.begin(user, operation);
            return;
        };
        let mut meter = self.meter.borrow_mut();
        let meter = meter.as_mut().expect("what is limited has a meter");
        match meter.pay(user, operation, costs, self.reactor.now()) {
            Ok((user, operation)) => self.begin(user, operation),
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
        for Waiting {
            user, operation, ..
        } in go_on
        {
            self.begin(user, operation);
        }
        next
    }

    /// Ends what waits for a limit, or for what its host has left behind: it has had no effect.
    fn give_up_waiting(&self) {
        let error = match self.guard.is_retired() {
            true => VolumeError::Lost,
            false => VolumeError::Cancelled,
        };
        while let Some(kept) = self.take_kept(|kept| kept.keeper == Some(Keeper::Hold)) {
            self.give_up(kept.origin, kept.operation, error);
        }
        if let Some(meter) = &mut *self.meter.borrow_mut() {
            for waiting in meter.cancel_all() {
                self.give_up(Origin::User(waiting.user), waiting.operation, error);
            }
        }
    }

    /// Ends what has not begun.
    fn give_up(&self, origin: Origin, operation: Operation, error: VolumeError) {
        match origin {
            Origin::Part(part) => part.end(Err(error), operation),
            Origin::User(user) => {
                let ended = (user, Err(error), operation);
                self.ended.borrow_mut().push_back(ended);
            }
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
        let (lba, blocks) = operation.range().unwrap_or_default();
        let ratio = 1u64 << self.guard.ratio_shift;
        (lba | blocks).is_multiple_of(ratio) && self.is_short(operation)
    }

    /// Returns whether it is no longer than the volume below takes.
    #[inline]
    fn is_short(&self, operation: &Operation) -> bool {
        let guard = &*self.guard;
        match *operation {
            Operation::Read { blocks, .. }
            | Operation::Write { blocks, .. }
            | Operation::Compare { blocks, .. } => {
                blocks >> guard.ratio_shift <= guard.inner_transfer_blocks_max
            }
            Operation::CompareWrite { blocks, .. } => {
                blocks >> guard.ratio_shift <= guard.inner_compare_write_blocks
            }
            _ => true,
        }
    }

    /// The blocks below that a request of the user touches.
    fn range_below(&self, request: &InFlight) -> Range<u64> {
        let shift = self.guard.ratio_shift;
        let rest = (1 << shift) - 1;
        request.range.start >> shift..request.range.end.saturating_add(rest) >> shift
    }

    /// Takes the first request that is kept back of those that `is_it` names.
    fn take_kept(&self, is_it: impl Fn(&Beginning) -> bool) -> Option<Beginning> {
        let mut kept_back = self.kept_back.borrow_mut();
        let at = kept_back.iter().position(is_it)?;
        let kept = kept_back.remove(at)?;
        self.held.set(self.held.get() - kept.held());
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
                (host, Origin::User(user))
                    if host == self.sink.host_of(user.request.token.owner) =>
                {
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
    fn send(&self, origin: Origin, mut operation: Operation, range: Range<u64>) {
        let shift = self.guard.ratio_shift;
        let token = match origin {
            Origin::User(user)
                if shift == 0 && keeps_token(user.request.token, user.request.kind) =>
            {
                self.pass(user)
            }
            origin => {
                if matches!(origin, Origin::User(_)) {
                    change_range(&mut operation, |lba, blocks| {
                        (lba >> shift, blocks >> shift)
                    });
                }
                let locks = Vec::new();
                own_token(self.below.borrow_mut().insert(Below {
                    origin,
                    range,
                    locks,
                }))
            }
        };
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.push_back(Request { token, operation });
    }

    /// Has a request go on as one that passed; its token.
    fn pass(&self, user: User) -> Token {
        self.taken.set(self.taken.get() - 1);
        self.passed.set(self.passed.get() + 1);
        let token = user.request.token;
        if !user.ties.is_empty() {
            self.ties.borrow_mut().insert(token, user.ties);
        }
        token
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
        // Data may have been received into what others receive into, and stays here for longer.
        for request in &mut *outgoing {
            request.operation.copy_out(self.reactor.pool());
        }
        drop(outgoing);
        self.sort_out(before, done);
    }

    /// Makes the user's completions of those that the volume below has pushed, from the place `before` on.
    #[inline]
    fn sort_out(&self, before: usize, done: &mut VecDeque<Completion>) {
        if done.len() == before {
            return;
        }
        let mut at = before;
        while at < done.len() {
            if !self.ends_plainly(&done[at]) {
                let completion = done.remove(at).expect("it is there");
                let Some(completion) = self.ended_otherwise(completion) else {
                    continue;
                };
                done.insert(at, completion);
            }
            at += 1;
        }
        self.after_ends();
    }

    /// The same from a task, outside of any submission.
    fn flush_by_itself(&self) {
        let mut done = VecDeque::new();
        self.flush(&mut done);
        self.sink.complete_all(&mut done);
    }

    /// Ends a request that the guard has taken for itself. Who waits for that is told by the task, after the user.
    fn end(&self, user: User, result: Result<(), VolumeError>, operation: Operation) -> Completion {
        self.taken.set(self.taken.get() - 1);
        if !user.ties.is_empty() {
            self.loosened.borrow_mut().extend(user.ties);
            self.wake();
        }
        let completion = Completion {
            token: user.request.token,
            result,
            operation,
        };
        self.count(&completion);
        completion
    }

    #[inline]
    fn count(&self, completion: &Completion) {
        self.counters
            .ended(&completion.operation, completion.result.is_ok());
    }

    /// Has a request done in several steps by a task of its own.
    fn emulate(&self, user: User, operation: Operation) {
        let lane = self
            .this
            .upgrade()
            .expect("the lane is borrowed from its Rc");
        let key = self.emulated.borrow_mut().insert(Emulated {
            user,
            cancelled: false,
            changed: false,
            task: None,
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
        });
        self.emulated.borrow_mut().get_mut(key).task = Some(task);
    }

    /// Looks at an emulated request.
    pub(super) fn emulated<T>(&self, key: Key, look: impl FnOnce(&mut Emulated) -> T) -> T {
        look(self.emulated.borrow_mut().get_mut(key))
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
            waker: TaskWaker::new(),
        });
        let origin = Origin::Part(Rc::clone(&part));
        let InFlight { range, .. } = InFlight::of(Token::default(), &operation);
        match under {
            Some(_) => self.send(origin, operation, range),
            None => self.begin_or_keep_back(Beginning {
                origin,
                operation,
                range,
                keeper: None,
            }),
        }
        self.flush_by_itself();
        let mut leaves_a_turn = part.ended.borrow().is_some();
        poll_fn(|context| {
            part.waker.register(context);
            if std::mem::take(&mut leaves_a_turn) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let ended = part.ended.borrow_mut().take();
            ended.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Locks a range, in blocks below, against everyone else.
    pub(super) async fn lock(self: &Rc<Self>, range: Range<u64>) -> Ticket {
        let (sender, receiver) = oneshot();
        let reply = Box::new(move |_| sender.send(()));
        let ticket = self.ticket(self.guard.table.acquire(range, reply));
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

    /// Has all requests end early that the user gave this token: a command's deallocations have one.
    fn cancel(&self, token: Token) {
        let mut unchanged = Vec::new();
        let mut is_known = false;
        for (key, entry) in self.emulated.borrow_mut().iter_mut() {
            if entry.user.request.token == token {
                (entry.cancelled, is_known) = (true, true);
                // Once something has changed, an end would leave the request done in part.
                unchanged.extend((!entry.changed).then_some(key));
            }
        }
        let is_it = |origin: &Origin| match origin {
            Origin::User(user) => user.request.token == token,
            Origin::Part(part) => unchanged.contains(&part.of),
        };
        while let Some(kept) = self.take_kept(|kept| is_it(&kept.origin)) {
            self.give_up(kept.origin, kept.operation, VolumeError::Cancelled);
            is_known = true;
        }
        if let Some(meter) = &mut *self.meter.borrow_mut()
            && let Some(waiting) = meter.cancel(token)
        {
            let origin = Origin::User(waiting.user);
            self.give_up(origin, waiting.operation, VolumeError::Cancelled);
            is_known = true;
        }
        if !self.ended.borrow().is_empty() {
            self.wake();
        }
        let below = self.below.borrow();
        let found = below.iter().filter(|(_, below)| is_it(&below.origin));
        let keys: Vec<_> = found.map(|(key, _)| key).collect();
        drop(below);
        for &key in &keys {
            self.cancel_at_inner(own_token(key));
        }
        if keys.is_empty() && !is_known && token.owner != GUARD_OWNER {
            self.cancel_at_inner(token);
        }
    }

    fn cancel_at_inner(&self, token: Token) {
        if let Some(inner) = &mut *self.inner.borrow_mut() {
            inner.cancel(token);
        }
    }

    fn take_message(&self, message: Message) {
        match message {
            Message::Lock {
                locked,
                announcement,
            } => {
                let Locked { range, host, .. } = locked.clone();
                self.locks.borrow_mut().push(locked);
                if host.is_none() {
                    self.tie_lock(&range, &announcement);
                }
            }
            Message::Unlock { id } => {
                self.locks.borrow_mut().retain(|locked| locked.id != id);
                self.let_through();
            }
            Message::Drain(all) => {
                self.give_up_waiting();
                self.tie_drain(&(all as Announcement));
                self.hand_out_ended();
            }
            Message::Limits(told) => {
                self.take_limits();
                drop(told);
            }
            Message::Count(gathering) => {
                gathering.add(&self.counters.now(|visit| self.in_flight(visit)));
            }
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
        let is_hold = |message: &Message| matches!(message, Message::Lock { locked, .. } if locked.host.is_some());
        for message in self.mailbox.take_those(is_hold) {
            self.take_message(message);
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
            if let Some(kept) = self.take_kept(|_| true) {
                self.begin_or_keep_back(kept);
            }
        }
    }

    /// Tells the user of what has ended here.
    fn hand_out_ended(&self) {
        loop {
            let ended = self.ended.borrow_mut().pop_front();
            let Some((user, result, operation)) = ended else {
                return;
            };
            self.sink.complete(self.end(user, result, operation));
        }
    }

    /// The task of a queue: messages, what was cancelled or given up, what waited for a limit, what the volume below
    /// did not take, and whoever waits for what the user has been told of by now.
    fn attend(&self, context: &mut Context<'_>, draw: &mut Timer) -> Poll<()> {
        if self.inner.borrow().is_none() {
            self.waker.forget();
            return Poll::Ready(());
        }
        self.waker.register(context);
        for message in self.mailbox.take(context) {
            self.take_message(message);
        }
        self.hand_out_ended();
        loop {
            match self.draw() {
                Some(next) => draw.set(next),
                None => draw.clear(),
            }
            if draw.poll_elapsed(context).is_pending() {
                break;
            }
        }
        self.flush_by_itself();
        let loosened = self.loosened.take();
        drop(loosened);
        Poll::Pending
    }
}

impl Beginning {
    /// 1 where a hold alone keeps it back, and else 0.
    fn held(&self) -> u32 {
        u32::from(self.keeper == Some(Keeper::Hold))
    }
}

impl Part {
    fn end(&self, result: Result<(), VolumeError>, operation: Operation) {
        *self.ended.borrow_mut() = Some((result, operation));
        self.waker.take_and_wake();
    }
}

/// Tells whether a request that is not changed goes below under the user's token. Those of another guard, above this one, look like
/// this one's own, and deallocations of one command have one token, by which the volume below could not tell them apart.
fn keeps_token(token: Token, kind: OperationKind) -> bool {
    token.owner != GUARD_OWNER && kind != OperationKind::Deallocate
}
