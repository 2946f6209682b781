//! One reactor's queue of an image: what is in flight, and what comes next for each request.
//!
//! What librbd was lent stays lent until it calls back, whatever was answered meanwhile: a request that was answered before is an
//! orphan, and there are as many at most as the queue is deep: what would be one more waits for its answer until one has come
//! home. A read may be answered when it has timed out; what may change the image only when its life is over and fenced.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Geometry, Landing, Operation, OperationKind, Queue, ReadBuffers,
    Request, Token, VolumeError, compare_write_halves,
};
use weir_memory::{Segment, Segments, Views, copy_views, segments_len};
use weir_reactor::{Delivery, Instant, Key, Mailbox, Reactor, Recipient, Slots, Timer};
use weir_volume::parts::{
    WhenAll, check, check_range, compare_views, freeze, pool_landing, pool_segments,
};

use crate::error::Fault;
use crate::sys::{COMPARE_WRITE_BYTES, CompareWrite, FreeFrame, Io, Lent};
use crate::usage::QueueTimes;
use crate::volume::{End, Life, Message, RbdVolume, Shared};

/// How long a request waits before it looks for a buffer or a place in the inbox again, when nothing of this queue ends meanwhile.
const RETRY: Duration = Duration::from_millis(1);
/// How long a fence waits for what is in flight before it cuts a client off that no other image shares. Where one does it waits until
/// what is in flight has timed out, as the other is cut off too.
const FENCE_PATIENCE: Duration = Duration::from_secs(2);
/// The longest range that one operation makes read as zeroes, in bytes.
const ZERO_BYTES_MAX: u64 = 64 << 20;
/// The same where they are written as zeroes, which takes as long as a transfer.
const THICK_ZERO_BYTES_MAX: u64 = 4 << 20;
/// The longest range that one operation deallocates, in bytes.
const DISCARD_BYTES_MAX: u64 = 1 << 30;
/// The longest range that one operation reads to verify it, in bytes.
const VERIFY_BYTES_MAX: u64 = 1 << 20;

/// A life as one reactor counts who has it.
type LocalLife = Rc<Arc<Life>>;

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The request's own transfer.
    Transfer,
    /// A range from `next` to `end`, in bytes.
    Zero {
        next: u64,
        end: u64,
        thick: bool,
    },
    Deallocate {
        next: u64,
        end: u64,
        /// The longest range of one operation.
        most: u64,
    },
    Verify {
        next: u64,
        end: u64,
    },
    Flush,
}

/// Where a request stands.
enum Place {
    /// It waits for a life, a buffer, or a place in the inbox.
    Waiting,
    /// librbd has it.
    Below { lent: Lent, life: LocalLife },
    /// librbd gave up on it, and it may be done still, until the life of this number is fenced.
    InDoubt(LocalLife),
    /// It has ended, and is about to be answered.
    Ended(Result<(), VolumeError>),
}

struct Entry {
    token: Token,
    operation: Operation,
    step: Step,
    place: Place,
    /// That of the geometry that it was checked against.
    generation: u64,
    /// Since when it stands there.
    since: Instant,
    /// Order of submission, for fences.
    number: u64,
    /// A step before has changed something.
    changed: bool,
    cancelled: bool,
    /// It was answered; only librbd still has something of it.
    orphan: bool,
}

struct Fence {
    /// Requests with a lower number count.
    limit: u64,
    /// When it stops waiting.
    patience: Instant,
    _all: Arc<WhenAll>,
}

pub(crate) struct RbdQueue {
    lane: Rc<Lane>,
    /// Kept open for as long as the queue is.
    _volume: Arc<RbdVolume>,
}

struct Lane {
    shared: Arc<Shared>,
    reactor: Reactor,
    depth: usize,
    /// None once the queue is dropped.
    sink: RefCell<Option<Rc<dyn CompletionSink>>>,
    life: RefCell<Option<LocalLife>>,
    /// The image is out of reach: what has no effect yet fails.
    lost: Cell<bool>,
    slots: RefCell<Slots<Entry>>,
    orphans: Cell<usize>,
    /// Requests that wait for something, in order.
    waiting: RefCell<VecDeque<Key>>,
    /// Requests that have ended and were not answered yet.
    ended: RefCell<VecDeque<Key>>,
    fences: RefCell<Vec<Fence>>,
    next_number: Cell<u64>,
    /// The last life that is over: nothing is submitted to it.
    detached: Cell<u64>,
    /// The last life of which nothing can land any more.
    fenced: Cell<u64>,
    frames: RefCell<Vec<FreeFrame>>,
    times: Arc<QueueTimes>,
    mailbox: Arc<Mailbox<Message>>,
    waker: RefCell<Option<Waker>>,
    this: std::rc::Weak<Lane>,
}

impl RbdQueue {
    pub(crate) fn new(
        shared: Arc<Shared>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
        mailbox: Arc<Mailbox<Message>>,
        (life, over): (Option<Arc<Life>>, u64),
        volume: Arc<RbdVolume>,
    ) -> Self {
        let depth = depth as usize;
        let times = shared.new_times();
        let lane = Rc::new_cyclic(|this| Lane {
            shared,
            times,
            reactor: reactor.clone(),
            depth,
            sink: RefCell::new(Some(sink)),
            life: RefCell::new(life.map(Rc::new)),
            lost: Cell::new(false),
            slots: RefCell::new(Slots::with_capacity(depth)),
            orphans: Cell::new(0),
            waiting: RefCell::default(),
            ended: RefCell::default(),
            fences: RefCell::default(),
            next_number: Cell::new(0),
            detached: Cell::new(over),
            fenced: Cell::new(0),
            frames: RefCell::default(),
            mailbox,
            waker: RefCell::default(),
            this: this.clone(),
        });
        let attendant = Attendant {
            lane: Rc::clone(&lane),
            timer: Timer::new(reactor),
        };
        reactor.spawn(attendant).detach();
        RbdQueue {
            lane,
            _volume: volume,
        }
    }
}

impl Queue for RbdQueue {
    fn landing(&mut self, _lba: u64, blocks: u32) -> Landing {
        let shift = self.lane.geometry().block_size.shift();
        pool_landing(self.lane.reactor.pool(), (blocks as usize) << shift)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let geometry = self.lane.geometry();
        while self.lane.has_room()
            && let Some(request) = batch.pop_front()
        {
            done.extend(self.lane.begin(&geometry, request));
        }
    }

    fn cancel(&mut self, token: Token) {
        let mut slots = self.lane.slots.borrow_mut();
        let found = slots
            .iter_mut()
            .find(|(_, entry)| entry.token == token && !entry.orphan);
        if let Some((_, entry)) = found {
            entry.cancelled = true;
            drop(slots);
            self.lane.wake();
        }
    }
}

impl Drop for RbdQueue {
    fn drop(&mut self) {
        let lane = &self.lane;
        drop(lane.sink.borrow_mut().take());
        lane.waiting.borrow_mut().clear();
        lane.ended.borrow_mut().clear();
        let mut slots = lane.slots.borrow_mut();
        let idle: Vec<_> = slots
            .iter()
            .filter(|(_, entry)| matches!(entry.place, Place::Waiting | Place::Ended(_)))
            .map(|(key, _)| key)
            .collect();
        let dropped: Vec<_> = idle.into_iter().map(|key| slots.remove(key)).collect();
        drop(slots);
        drop(dropped);
        lane.wake();
    }
}

impl Recipient for Lane {
    fn delivered(&self, delivery: Delivery) {
        let key = Key::from_word(delivery.user());
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        let place = std::mem::replace(&mut entry.place, Place::Waiting);
        let Place::Below { lent, life } = place else {
            unreachable!("only what librbd has is delivered")
        };
        let (io, frame) = lent.reclaim(&delivery);
        self.frames.borrow_mut().push(frame);
        let took = self.reactor.now() - entry.since;
        let bytes = self.transfer_bytes(&entry.operation);
        self.times
            .took(entry.operation.kind(), took.as_nanos() as u64, bytes);
        // A ticket that was dropped says nothing of what became of its operation.
        let value = delivery.value().unwrap_or(-IN_DOUBT);
        if value < 0 && entry.step == Step::Flush && self.geometry().volatile_cache {
            // librbd tells of a cached write that failed once.
            let error = std::io::Error::from_raw_os_error(-value as i32);
            self.shared.failed_sync.note(&self.shared.name, &error);
        }
        if entry.orphan {
            let orphan = slots.remove(key);
            drop(slots);
            self.count_orphans(-1);
            drop((orphan, io));
            // There is room again.
            self.wake();
            return;
        }
        let end = self.after(entry, value, io, &life);
        let gone = self.sink.borrow().is_none();
        if gone && !matches!(entry.place, Place::InDoubt(_)) {
            // What goes on would go on unseen.
            entry.place = Place::Ended(Err(VolumeError::Cancelled));
        }
        let place = match &entry.place {
            Place::Ended(result) => Some(*result),
            _ => None,
        };
        let waits = matches!(entry.place, Place::Waiting);
        drop(slots);
        drop(life);
        if let Some((life, why)) = end {
            self.leave(life.number);
            self.shared.end_life(&life, why);
        }
        if let Some(result) = place {
            self.finish(key, result);
        } else if waits {
            self.go_on(key);
        }
        self.release_fences();
        if !self.waiting.borrow().is_empty() || self.is_over() {
            self.wake();
        }
    }
}

/// `ETIMEDOUT`: librados gave up waiting.
const IN_DOUBT: i64 = 110;

/// A life to be ended, and why.
type EndLife = Option<(LocalLife, End)>;

impl Lane {
    fn geometry(&self) -> Geometry {
        self.shared.geometry.get()
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// How much an operation transfers, in bytes.
    fn transfer_bytes(&self, operation: &Operation) -> u64 {
        match *operation {
            Operation::Read { blocks, .. }
            | Operation::Write { blocks, .. }
            | Operation::Compare { blocks, .. }
            | Operation::CompareWrite { blocks, .. } => {
                u64::from(blocks) << self.geometry().block_size.shift()
            }
            _ => 0,
        }
    }

    /// Whether the queue is gone and nothing of it is left.
    fn is_over(&self) -> bool {
        self.sink.borrow().is_none() && self.slots.borrow().is_empty()
    }

    /// Requests in flight are bounded, and so are orphans beside them.
    fn has_room(&self) -> bool {
        let held = self.slots.borrow().len();
        held - self.orphans.get() < self.depth
    }

    /// Whether another request may be answered of which librbd has the buffers still.
    fn has_room_for_orphans(&self) -> bool {
        self.orphans.get() < self.depth
    }

    fn count_orphans(&self, change: i32) {
        let orphans = self.orphans.get() as i64 + i64::from(change);
        self.orphans.set(orphans as usize);
        // It wraps around where it is lowered.
        self.shared
            .orphans
            .fetch_add(change as u32, Ordering::Relaxed);
    }

    /// Begins a request; its completion where librbd has no part in it.
    fn begin(&self, geometry: &Geometry, request: Request) -> Option<Completion> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let (step, place) = match check(geometry, &request.operation) {
            Ok(()) => first_step(geometry, &request.operation),
            Err(error) => (Step::Transfer, Place::Ended(Err(error))),
        };
        if let Place::Ended(result) = place {
            let Request { token, operation } = request;
            return Some(Completion {
                token,
                result,
                operation,
            });
        }
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            // The task sets its timer.
            self.wake();
        }
        let key = slots.insert(Entry {
            token: request.token,
            operation: request.operation,
            step,
            place,
            generation: geometry.generation,
            since: self.reactor.now(),
            number,
            changed: false,
            cancelled: false,
            orphan: false,
        });
        drop(slots);
        self.go_on(key);
        None
    }

    /// Hands a request that waits to librbd, or has it wait on.
    fn go_on(&self, key: Key) {
        if !self.try_start(key) {
            self.waiting.borrow_mut().push_back(key);
            self.wake();
        }
    }

    /// Whether a request that waits has been handed on, or has ended.
    fn try_start(&self, key: Key) -> bool {
        let life = self.life.borrow().clone();
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        let error = match &life {
            _ if entry.cancelled => Some(VolumeError::Cancelled),
            None if self.lost.get() => Some(VolumeError::Lost),
            _ => None,
        };
        if let Some(error) = error {
            entry.place = Place::Ended(Err(entry.failed(error)));
            self.ended.borrow_mut().push_back(key);
            self.wake();
            return true;
        }
        let Some(life) = life else { return false };
        let geometry = self.geometry();
        let shift = geometry.block_size.shift();
        let refused = match entry.step {
            Step::Flush => self.shared.failed_sync.check(),
            _ if entry.generation != geometry.generation => entry.check_again(&geometry),
            _ => Ok(()),
        };
        if let Err(error) = refused {
            entry.place = Place::Ended(Err(entry.failed(error)));
            self.ended.borrow_mut().push_back(key);
            self.wake();
            return true;
        }
        let Some(io) = entry.io(shift, &self.reactor) else {
            return false;
        };
        let recipient = self
            .this
            .upgrade()
            .expect("the lane is borrowed from its Rc");
        let Some(ticket) = self.reactor.reserve(recipient, key.to_word()) else {
            entry.give_back(io);
            return false;
        };
        let frame = self.frames.borrow_mut().pop();
        let lent = life.image().submit(ticket, key.to_word(), io, frame);
        entry.place = Place::Below { lent, life };
        entry.since = self.reactor.now();
        true
    }

    /// What follows the end of an operation: the entry's next place, and a life that is to be ended.
    fn after(&self, entry: &mut Entry, value: i64, io: Io, life: &LocalLife) -> EndLife {
        if value < 0 {
            return self.after_error(entry, -value as i32, io, life);
        }
        let kind = entry.operation.kind();
        self.shared.succeeded(kind, self.reactor.now());
        entry.changed |= entry.operation.modifies();
        let geometry = self.geometry();
        if entry.step == Step::Flush
            && geometry.volatile_cache
            && life.number <= self.detached.get()
        {
            // What was cached may be lost with its client, whatever librbd says of it.
            entry.place = Place::Ended(Err(entry.failed(VolumeError::Lost)));
            return None;
        }
        // A flush that succeeds beside one that failed proves nothing: librbd reports a failure only once.
        if entry.step == Step::Flush
            && let Err(error) = self.shared.failed_sync.check()
        {
            entry.place = Place::Ended(Err(entry.failed(error)));
            return None;
        }
        entry.place = match entry.advance(value as usize, io, &geometry) {
            Some(result) => Place::Ended(result),
            None => Place::Waiting,
        };
        None
    }

    fn after_error(&self, entry: &mut Entry, errno: i32, io: Io, life: &LocalLife) -> EndLife {
        let end = |why| Some((Rc::clone(life), why));
        let modifies = entry.operation.modifies();
        let mismatch = mismatch_of(&io);
        entry.give_back(io);
        let fault = Fault::of(errno);
        let told = match fault {
            Fault::Full | Fault::Refused | Fault::Gone | Fault::Failed => true,
            // Of what changes the image that ends a life, and its end is told.
            Fault::LockLost | Fault::InDoubt => !modifies,
            Fault::Blocklisted | Fault::Differs => false,
        };
        if told {
            let kind = entry.operation.kind();
            self.shared.failed(kind, errno, self.reactor.now());
        }
        let (error, end) = match fault {
            Fault::Full => (VolumeError::NoSpace, None),
            Fault::Differs => (VolumeError::Miscompare { offset: mismatch }, None),
            Fault::Gone => (VolumeError::Lost, None),
            Fault::Refused if modifies => (VolumeError::ReadOnly, None),
            Fault::Refused => (VolumeError::Lost, None),
            // Every part of it was refused or done by now: nothing of it lands later.
            Fault::Blocklisted if modifies => (VolumeError::TimedOut, end(End::Blocklisted)),
            Fault::Blocklisted => {
                entry.place = Place::Waiting;
                return end(End::Blocklisted);
            }
            Fault::LockLost if modifies => {
                entry.place = Place::Waiting;
                return end(End::LockLost);
            }
            Fault::InDoubt if modifies && life.number > self.fenced.get() => {
                entry.place = Place::InDoubt(Rc::clone(life));
                return end(End::InDoubt);
            }
            Fault::InDoubt => (VolumeError::TimedOut, None),
            Fault::LockLost | Fault::Failed => (VolumeError::Medium, None),
        };
        entry.place = Place::Ended(Err(entry.failed(error)));
        end
    }

    fn finish(&self, key: Key, result: Result<(), VolumeError>) {
        let entry = self.slots.borrow_mut().remove(key);
        self.answer(Completion {
            token: entry.token,
            result,
            operation: entry.operation,
        });
    }

    /// Answers a request of which librbd has the buffers still.
    fn answer_early(&self, key: Key, error: VolumeError) {
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        assert!(!entry.orphan, "a request is answered once");
        entry.orphan = true;
        let operation = std::mem::replace(&mut entry.operation, Operation::Flush);
        let completion = Completion {
            token: entry.token,
            result: Err(entry.failed(error)),
            operation,
        };
        drop(slots);
        self.count_orphans(1);
        self.answer(completion);
    }

    fn answer(&self, completion: Completion) {
        let sink = self.sink.borrow().clone();
        if let Some(sink) = sink {
            sink.complete(completion);
        }
    }

    /// Submits nothing more to lives up to this one: they are over.
    fn leave(&self, number: u64) {
        self.detached.set(self.detached.get().max(number));
        self.let_go(number);
    }

    fn let_go(&self, number: u64) {
        let left = self.life.borrow_mut().take_if(|life| life.number <= number);
        drop(left);
    }

    fn take_message(&self, message: Message) {
        match message {
            Message::Detach(number) => self.leave(number),
            Message::Fenced(number) => {
                self.leave(number);
                self.fenced.set(self.fenced.get().max(number));
            }
            Message::Attach(life) => {
                let newer = self
                    .life
                    .borrow()
                    .as_ref()
                    .is_none_or(|own| own.number < life.number);
                // It may be over by now: who said so was faster.
                if newer && life.number > self.detached.get() {
                    *self.life.borrow_mut() = Some(Rc::new(life));
                    self.lost.set(false);
                }
            }
            Message::Lost => self.lost.set(true),
            Message::Pause(number) => self.let_go(number),
            Message::Drain(all) => self.fences.borrow_mut().push(Fence {
                limit: self.next_number.get(),
                patience: self.reactor.now() + FENCE_PATIENCE,
                _all: all,
            }),
        }
    }

    /// Does what is due; when to look again.
    fn look(&self) -> Option<Instant> {
        let now = self.reactor.now();
        let mut due = Due {
            now,
            detached: self.life.borrow().is_none(),
            fenced: self.fenced.get(),
            early: Vec::new(),
            ended: Vec::new(),
            unanswered: None,
            life: None,
            overdue: false,
            next: None,
        };
        let fences = self.fences.borrow();
        for (key, entry) in self
            .slots
            .borrow()
            .iter()
            .filter(|(_, entry)| !entry.orphan)
        {
            let patience = fences
                .iter()
                .filter(|fence| fence.limit > entry.number)
                .map(|fence| fence.patience)
                .min();
            due.add(key, entry, &self.shared, patience);
        }
        drop(fences);
        for (key, error) in due.early.drain(..) {
            // The others follow when an orphan has come home.
            if self.has_room_for_orphans() {
                self.answer_early(key, error);
            }
        }
        if let Some(kind) = due.unanswered {
            self.shared.failed(kind, IN_DOUBT as i32, now);
        }
        for (key, error) in due.ended.drain(..) {
            self.waiting.borrow_mut().retain(|&waiting| waiting != key);
            let failed = self.slots.borrow_mut().get_mut(key).failed(error);
            self.finish(key, Err(failed));
        }
        if let Some(life) = due.life {
            self.leave(life.number);
            self.shared.end_life(&life, End::TimedOut);
        }
        if due.overdue {
            self.shared.overdue();
        }
        // What is taken from now on is due later than this.
        let later = || now + self.shared.options.io_timeout;
        due.next
            .or_else(|| (!self.slots.borrow().is_empty()).then(later))
    }

    /// Tries again what waits, in order.
    fn retry(&self) {
        let waiting = self.waiting.borrow().len();
        for _ in 0..waiting {
            let Some(key) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if !self.try_start(key) {
                self.waiting.borrow_mut().push_back(key);
            }
        }
    }

    fn answer_ended(&self) {
        loop {
            let Some(key) = self.ended.borrow_mut().pop_front() else {
                return;
            };
            let result = match self.slots.borrow_mut().get_mut(key).place {
                Place::Ended(result) => result,
                _ => unreachable!("it was put there as ended"),
            };
            self.finish(key, result);
        }
    }

    /// Lets go of the fences that nothing older is left for.
    fn release_fences(&self) {
        if self.fences.borrow().is_empty() {
            return;
        }
        let slots = self.slots.borrow();
        let oldest = slots
            .iter()
            .filter(|(_, entry)| !entry.orphan)
            .map(|(_, entry)| entry.number)
            .min();
        drop(slots);
        let fences = std::mem::take(&mut *self.fences.borrow_mut());
        let (kept, released): (Vec<_>, Vec<_>) = fences
            .into_iter()
            .partition(|fence| oldest.is_some_and(|oldest| oldest < fence.limit));
        self.fences.borrow_mut().extend(kept);
        drop(released);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        drop(self.mailbox.close());
        let orphans = self.orphans.get() as u32;
        self.shared.orphans.fetch_sub(orphans, Ordering::Relaxed);
        self.shared.retire_times(&self.times);
    }
}

/// What is to be done at one moment.
struct Due {
    now: Instant,
    /// There is no life to submit to.
    detached: bool,
    /// As [`Lane::fenced`].
    fenced: u64,
    early: Vec<(Key, VolumeError)>,
    ended: Vec<(Key, VolumeError)>,
    /// Of what kind something was that is answered as timed out though its life goes on, or it had none.
    unanswered: Option<OperationKind>,
    life: Option<LocalLife>,
    overdue: bool,
    next: Option<Instant>,
}

impl Due {
    fn add(&mut self, key: Key, entry: &Entry, shared: &Shared, patience: Option<Instant>) {
        let (now, detached) = (self.now, self.detached);
        let timeout = entry.since + shared.options.io_timeout;
        let cuts_others_off = match &entry.place {
            Place::Below { life, .. } => entry.operation.modifies() && life.client().images() > 1,
            _ => false,
        };
        let timeout = match patience {
            Some(patience) if !cuts_others_off => patience.min(timeout),
            _ => timeout,
        };
        match &entry.place {
            Place::Below { .. } if entry.cancelled && !entry.operation.modifies() => {
                self.early.push((key, VolumeError::Cancelled));
            }
            // It may have been done, and can no longer be.
            Place::Below { life, .. }
                if life.number <= self.fenced && entry.operation.modifies() =>
            {
                self.early.push((key, VolumeError::TimedOut));
            }
            Place::InDoubt(life) if life.number <= self.fenced => {
                self.ended.push((key, VolumeError::TimedOut));
            }
            Place::Below { .. } if now < timeout => self.later(timeout),
            Place::Below { life, .. } => {
                if !entry.operation.modifies() {
                    self.early.push((key, VolumeError::TimedOut));
                    self.unanswered = Some(entry.operation.kind());
                    return;
                }
                if self
                    .life
                    .as_ref()
                    .is_none_or(|other| other.number < life.number)
                {
                    self.life = Some(Rc::clone(life));
                }
                self.bound(timeout + shared.options.fence_timeout);
            }
            Place::InDoubt(_) => self.bound(entry.since + shared.options.fence_timeout),
            Place::Waiting if entry.cancelled => self.ended.push((key, VolumeError::Cancelled)),
            Place::Waiting if detached && now >= timeout => {
                self.ended.push((key, VolumeError::TimedOut));
                self.unanswered = Some(entry.operation.kind());
            }
            Place::Waiting if detached => self.later(timeout),
            Place::Waiting | Place::Ended(_) => {}
        }
    }

    /// The second bound of what stays unanswered.
    fn bound(&mut self, bound: Instant) {
        if self.now < bound {
            self.later(bound);
        } else {
            self.overdue = true;
        }
    }

    fn later(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// The first step of a request, and where it stands.
fn first_step(geometry: &Geometry, operation: &Operation) -> (Step, Place) {
    let shift = geometry.block_size.shift();
    let bytes = |lba: u64, blocks: u64| (lba << shift, (lba + blocks) << shift);
    match *operation {
        Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Compare { .. }
        | Operation::CompareWrite { .. } => (Step::Transfer, Place::Waiting),
        Operation::WriteZeroes {
            lba,
            blocks,
            deallocate,
            ..
        } => {
            let (next, end) = bytes(lba, blocks);
            let thick = !deallocate;
            (Step::Zero { next, end, thick }, Place::Waiting)
        }
        Operation::Deallocate { lba, blocks } => {
            let unit = u64::from(geometry.deallocate_blocks) << shift;
            let (start, end) = bytes(lba, blocks);
            let (next, end) = (start.next_multiple_of(unit), end / unit * unit);
            // Each operation is of whole units, or librbd would skip what two share.
            let most = (DISCARD_BYTES_MAX / unit * unit).max(unit);
            match next < end {
                true => (Step::Deallocate { next, end, most }, Place::Waiting),
                // It was a hint.
                false => (Step::Transfer, Place::Ended(Ok(()))),
            }
        }
        Operation::Verify { lba, blocks } => {
            let (next, end) = bytes(lba, blocks);
            (Step::Verify { next, end }, Place::Waiting)
        }
        Operation::Flush => (Step::Flush, Place::Waiting),
    }
}

/// Where a native compare-and-write differs, counted from the start of its data. librbd counts from the start of the image or of an
/// object, by version; both are sectors away from it.
fn mismatch_of(io: &Io) -> u64 {
    match io {
        Io::CompareWrite { what, .. } => what.mismatch % COMPARE_WRITE_BYTES as u64,
        _ => 0,
    }
}

/// The longest range that one operation makes read as zeroes, in bytes.
fn zero_bytes_max(thick: bool) -> u64 {
    match thick {
        true => THICK_ZERO_BYTES_MAX,
        false => ZERO_BYTES_MAX,
    }
}

impl Entry {
    /// Whether it is still within an image that was resized while it waited.
    fn check_again(&mut self, geometry: &Geometry) -> Result<(), VolumeError> {
        check_range(geometry, &self.operation)?;
        self.generation = geometry.generation;
        Ok(())
    }

    /// What an error says of a request of which a part may be done.
    fn failed(&self, error: VolumeError) -> VolumeError {
        match self.changed {
            true => error.after_a_part(),
            false => error,
        }
    }

    /// The next operation; none where there is no buffer for it now.
    fn io(&mut self, shift: u32, reactor: &Reactor) -> Option<Io> {
        match self.step {
            Step::Transfer => self.transfer(shift, reactor),
            Step::Zero { next, end, thick } => Some(Io::WriteZeroes {
                offset: next,
                length: (end - next).min(zero_bytes_max(thick)) as usize,
                thick,
            }),
            Step::Deallocate { next, end, most } => Some(Io::Discard {
                offset: next,
                length: (end - next).min(most),
            }),
            Step::Verify { next, end } => {
                let bytes = (end - next).min(VERIFY_BYTES_MAX) as usize;
                Some(Io::Read {
                    offset: next,
                    into: pool_segments(reactor.pool(), bytes)?,
                })
            }
            Step::Flush => Some(Io::Flush),
        }
    }

    fn transfer(&mut self, shift: u32, reactor: &Reactor) -> Option<Io> {
        match &mut self.operation {
            Operation::Read {
                lba,
                blocks,
                buffers,
            } => {
                let into = match std::mem::replace(buffers, ReadBuffers::Lend) {
                    ReadBuffers::Into(segments) => segments,
                    _ => pool_segments(reactor.pool(), (*blocks as usize) << shift)?,
                };
                Some(Io::Read {
                    offset: *lba << shift,
                    into,
                })
            }
            Operation::Compare { lba, blocks, .. } => {
                let bytes = (*blocks as usize) << shift;
                // It holds memory while it waits: where the pool has none, it takes its own.
                let into = pool_segments(reactor.pool(), bytes)
                    .unwrap_or_else(|| Segments::from_iter([Segment::heap(bytes)]));
                Some(Io::Read {
                    offset: *lba << shift,
                    into,
                })
            }
            Operation::Write { lba, data, .. } => Some(Io::Write {
                offset: *lba << shift,
                data: std::mem::take(data),
            }),
            Operation::CompareWrite { lba, data, .. } => {
                let (compare, write) = compare_write_halves(data);
                let mut what = Box::new(CompareWrite {
                    compare: [0; COMPARE_WRITE_BYTES],
                    data: [0; COMPARE_WRITE_BYTES],
                    mismatch: 0,
                });
                copy_views(&compare, &mut what.compare);
                copy_views(&write, &mut what.data);
                Some(Io::CompareWrite {
                    offset: *lba << shift,
                    what,
                })
            }
            _ => unreachable!("only these are transfers"),
        }
    }

    /// Gives the memory of an operation that yielded nothing back to its request.
    fn give_back(&mut self, io: Io) {
        match (&mut self.operation, io) {
            (Operation::Read { buffers, .. }, Io::Read { into, .. }) => {
                *buffers = ReadBuffers::Into(into);
            }
            (Operation::Write { data, .. }, Io::Write { data: views, .. }) => *data = views,
            _ => {}
        }
    }

    /// Takes the outcome of an operation that succeeded; the request's result where that was its last.
    fn advance(
        &mut self,
        count: usize,
        io: Io,
        geometry: &Geometry,
    ) -> Option<Result<(), VolumeError>> {
        match &mut self.step {
            Step::Transfer => return self.after_transfer(count, io, geometry),
            Step::Flush => return Some(Ok(())),
            Step::Verify { next, end } => {
                let bytes = (*end - *next).min(VERIFY_BYTES_MAX);
                *next += bytes;
                match (count as u64 == bytes, next == end) {
                    (false, _) => return Some(Err(VolumeError::Medium)),
                    (true, true) => return Some(Ok(())),
                    (true, false) => {}
                }
            }
            Step::Zero { next, end, thick } => {
                *next += (*end - *next).min(zero_bytes_max(*thick));
                if next == end {
                    return self.durable(geometry);
                }
            }
            Step::Deallocate { next, end, most } => {
                *next += (*end - *next).min(*most);
                if next == end {
                    return Some(Ok(()));
                }
            }
        }
        None
    }

    fn after_transfer(
        &mut self,
        count: usize,
        io: Io,
        geometry: &Geometry,
    ) -> Option<Result<(), VolumeError>> {
        match (&mut self.operation, io) {
            (Operation::Read { buffers, .. }, Io::Read { into, .. }) => {
                // librbd reads less where the image has become shorter.
                if count != segments_len(&into) {
                    *buffers = ReadBuffers::Into(into);
                    return Some(Err(VolumeError::Medium));
                }
                *buffers = ReadBuffers::Filled(freeze(into));
                Some(Ok(()))
            }
            (Operation::Compare { data, .. }, Io::Read { into, .. }) => {
                if count != segments_len(&into) {
                    return Some(Err(VolumeError::Medium));
                }
                let there: Views = freeze(into);
                Some(compare_views(data, &there))
            }
            (Operation::Write { data, .. }, Io::Write { data: views, .. }) => {
                *data = views;
                self.durable(geometry)
            }
            (Operation::CompareWrite { .. }, _) => Some(Ok(())),
            _ => unreachable!("an operation returns its own memory"),
        }
    }

    /// What follows a change that was done: with force unit access a flush, where there is a cache.
    fn durable(&mut self, geometry: &Geometry) -> Option<Result<(), VolumeError>> {
        let fua = matches!(
            self.operation,
            Operation::Write { fua: true, .. } | Operation::WriteZeroes { fua: true, .. }
        );
        if fua && geometry.volatile_cache {
            self.step = Step::Flush;
            return None;
        }
        Some(Ok(()))
    }
}

/// The task of a queue: it takes messages, hands out what ended within a submission, tries again what waits, and looks after
/// time-outs. It lives until the queue is dropped and librbd has given everything back.
struct Attendant {
    lane: Rc<Lane>,
    timer: Timer,
}

impl Future for Attendant {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let lane = Rc::clone(&self.lane);
        let known = lane
            .waker
            .borrow()
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()));
        if !known {
            *lane.waker.borrow_mut() = Some(context.waker().clone());
        }
        for message in lane.mailbox.take(context) {
            lane.take_message(message);
        }
        loop {
            lane.answer_ended();
            lane.retry();
            let next = lane.look();
            lane.answer_ended();
            lane.release_fences();
            if lane.is_over() {
                drop(lane.waker.borrow_mut().take());
                drop(lane.mailbox.close());
                return Poll::Ready(());
            }
            let waits = !lane.waiting.borrow().is_empty() && lane.life.borrow().is_some();
            let retry = waits.then(|| lane.reactor.now() + RETRY);
            match [next, retry].into_iter().flatten().min() {
                Some(at) => self.timer.set(at),
                None => self.timer.clear(),
            }
            if self.timer.poll_elapsed(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
