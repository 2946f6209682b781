//! One reactor's queue of an image: what is in flight, and what comes next for each request.
//!
//! What librbd was lent stays lent until it calls back, whatever was answered meanwhile: a request that was answered before is an
//! orphan, and there are as many at most as the queue is deep: what would be one more waits for its answer until one has come
//! home. A read may be answered when it has timed out; what may change the image only when its life is over and fenced.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Geometry, InFlight, Landing, Operation, Queue, ReadBuffers,
    Request, Token, VolumeError, compare_write_halves,
};
use weir_memory::{Segment, Segments, Views, copy_views, segments_len};
use weir_reactor::{Delivery, Instant, Key, Mailbox, Reactor, Recipient, Slots, TaskWaker, Timer};
use weir_volume::parts::{
    WhenAll, check, check_range, compare_views, freeze, lock, pool_landing, pool_segments,
};

use crate::error::Fault;
use crate::sys::{COMPARE_WRITE_BYTES, CompareWrite, FreeFrame, Io, Lent};
use crate::usage::QueueTimes;
use crate::volume::{End, Life, Message, Phase, RbdVolume, Shared};

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
    /// A range from `next` to `end`, in bytes, and the longest part of it that one operation takes.
    Range {
        what: Range,
        next: u64,
        end: u64,
        most: u64,
    },
    Flush,
}

/// Kind of work on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    Zero { thick: bool },
    Deallocate,
    Verify,
}

/// Where a request stands.
enum Place {
    /// It waits for a life, a buffer, or a place in the inbox.
    Waiting,
    /// librbd has it.
    Below { lent: Lent, life: LocalLife },
    /// librbd gave up on it, and it may be done still, until the life of this number is fenced.
    InDoubt(u64),
}

/// Result of a request.
type Ended = Result<(), VolumeError>;

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
    fences: RefCell<Vec<Fence>>,
    next_number: Cell<u64>,
    /// The last life of which nothing can land any more.
    fenced: Cell<u64>,
    /// Time by which the next life must begin after a move's drain, or the image is lost.
    moved_by: Cell<Option<Instant>>,
    frames: RefCell<Vec<FreeFrame>>,
    times: Arc<QueueTimes>,
    mailbox: Arc<Mailbox<Message>>,
    waker: TaskWaker,
    this: std::rc::Weak<Lane>,
}

impl RbdQueue {
    pub(crate) fn new(
        volume: Arc<RbdVolume>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
        mailbox: Arc<Mailbox<Message>>,
    ) -> Self {
        let depth = depth as usize;
        let shared = Arc::clone(volume.shared());
        let times = shared.new_times();
        let lane = Rc::new_cyclic(|this| Lane {
            shared,
            times,
            reactor: reactor.clone(),
            depth,
            sink: RefCell::new(Some(sink)),
            life: RefCell::default(),
            lost: Cell::new(false),
            slots: RefCell::new(Slots::with_capacity(depth)),
            orphans: Cell::new(0),
            waiting: RefCell::default(),
            fences: RefCell::default(),
            next_number: Cell::new(0),
            fenced: Cell::new(0),
            moved_by: Cell::new(None),
            frames: RefCell::default(),
            mailbox,
            waker: TaskWaker::new(),
            this: this.clone(),
        });
        lane.look_at_state();
        let (attended, mut timer) = (Rc::clone(&lane), Timer::new(reactor));
        let attendant = std::future::poll_fn(move |context| attended.attend(context, &mut timer));
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

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        let slots = self.lane.slots.borrow();
        for (_, entry) in slots.iter().filter(|(_, entry)| !entry.orphan) {
            visit(InFlight::of(entry.token, &entry.operation));
        }
    }
}

impl Drop for RbdQueue {
    fn drop(&mut self) {
        let lane = &self.lane;
        drop(lane.sink.borrow_mut().take());
        let idle = lane.waiting.take();
        let mut slots = lane.slots.borrow_mut();
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
        let blocks = match entry.step {
            Step::Transfer => entry.operation.range().map_or(0, |(_, blocks)| blocks),
            _ => 0,
        };
        let bytes = blocks << self.geometry().block_size.shift();
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
        let (mut ended, end) = match value {
            0.. => (self.after(entry, value as usize, io, life.number), None),
            _ => self.after_error(entry, -value as i32, io, life.number),
        };
        let waits = ended.is_none() && matches!(entry.place, Place::Waiting);
        if waits && self.sink.borrow().is_none() {
            // What goes on would go on unseen.
            ended = Some(Err(VolumeError::Cancelled));
        }
        drop(slots);
        if let Some(end) = end {
            self.end_life(&life, end);
        }
        drop(life);
        let ended = match ended {
            Some(result) => Some(self.take(key, result)),
            None if waits => self.go_on(key),
            None => None,
        };
        if let Some(ended) = ended {
            self.answer(ended);
        }
        self.release_fences();
        if !self.waiting.borrow().is_empty() || self.is_over() {
            self.wake();
        }
    }
}

/// `ETIMEDOUT`: librados gave up waiting.
const IN_DOUBT: i64 = 110;

impl Lane {
    fn geometry(&self) -> Geometry {
        self.shared.geometry.get()
    }

    fn wake(&self) {
        self.waker.wake();
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
        let first = check(geometry, &request.operation);
        let first = first.map(|()| first_step(geometry, &request.operation));
        let step = match first {
            Ok(Some(step)) => step,
            done => {
                return Some(Completion {
                    token: request.token,
                    result: done.map(drop),
                    operation: request.operation,
                });
            }
        };
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            // The task sets its timer.
            self.wake();
        }
        let key = slots.insert(Entry {
            token: request.token,
            operation: request.operation,
            step,
            place: Place::Waiting,
            generation: geometry.generation,
            since: self.reactor.now(),
            number,
            changed: false,
            cancelled: false,
            orphan: false,
        });
        drop(slots);
        let ended = self.go_on(key);
        if !self.waiting.borrow().is_empty() {
            self.wake();
        }
        ended
    }

    /// Hands a request on to librbd, or has it wait until someone wakes the task; its completion where it may not go on.
    fn go_on(&self, key: Key) -> Option<Completion> {
        match self.try_start(key) {
            Ok(true) => None,
            Ok(false) => {
                self.waiting.borrow_mut().push_back(key);
                None
            }
            Err(error) => Some(self.take(key, Err(error))),
        }
    }

    /// Refuses a request that may not go to librbd now, for all that is known here.
    fn may_start(&self, entry: &mut Entry, has_life: bool) -> Result<(), VolumeError> {
        let geometry = self.geometry();
        match entry.step {
            _ if entry.cancelled => Err(VolumeError::Cancelled),
            _ if !has_life && self.lost.get() => Err(VolumeError::Lost),
            _ if !has_life => Ok(()),
            Step::Flush => self.shared.failed_sync.check(),
            // It was resized while the request waited.
            _ if entry.generation != geometry.generation => {
                entry.generation = geometry.generation;
                check_range(&geometry, &entry.operation)
            }
            _ => Ok(()),
        }
    }

    /// Hands a request to librbd; returns false where it has to wait, and an error where it may not go on.
    fn try_start(&self, key: Key) -> Result<bool, VolumeError> {
        let life = self.life.borrow().clone();
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        let may = self.may_start(entry, life.is_some());
        may.map_err(|error| entry.failed(error))?;
        let Some(life) = life else { return Ok(false) };
        let shift = self.geometry().block_size.shift();
        let Some(io) = entry.io(shift, &self.reactor) else {
            return Ok(false);
        };
        let recipient = self
            .this
            .upgrade()
            .expect("the lane is borrowed from its Rc");
        let Some(ticket) = self.reactor.reserve(recipient, key.to_word()) else {
            entry.give_back(io);
            return Ok(false);
        };
        let frame = self.frames.borrow_mut().pop();
        let lent = life.image().submit(ticket, key.to_word(), io, frame);
        entry.place = Place::Below { lent, life };
        entry.since = self.reactor.now();
        Ok(true)
    }

    /// Returns the result of a request, if it has one, after an operation that succeeded.
    fn after(&self, entry: &mut Entry, count: usize, io: Io, life: u64) -> Option<Ended> {
        let kind = entry.operation.kind();
        self.shared.succeeded(kind, self.reactor.now());
        entry.changed |= kind.modifies();
        let geometry = self.geometry();
        if entry.step != Step::Flush {
            return entry.advance(count, io, &geometry);
        }
        // What was cached may be lost with its client, whatever librbd says of it. And a flush that succeeds beside one that failed
        // proves nothing: librbd reports a failure only once.
        let is_current = |now: &LocalLife| now.number == life;
        let is_gone = !self.life.borrow().as_ref().is_some_and(is_current);
        let is_lost = self.shared.has_volatile_cache() && is_gone;
        let flushed = if is_lost {
            Err(VolumeError::Lost)
        } else {
            self.shared.failed_sync.check()
        };
        Some(flushed.map_err(|error| entry.failed(error)))
    }

    /// Returns the same after an operation that failed, and why its life has to end, if so.
    fn after_error(
        &self,
        entry: &mut Entry,
        errno: i32,
        io: Io,
        life: u64,
    ) -> (Option<Ended>, Option<End>) {
        let modifies = entry.operation.modifies();
        let mismatch = mismatch_of(&io);
        entry.give_back(io);
        let fault = Fault::of(errno);
        // Of what changes the image, these two end a life, and its end is told.
        let ends_a_life = modifies && matches!(fault, Fault::LockLost | Fault::InDoubt);
        if !ends_a_life && !matches!(fault, Fault::Blocklisted | Fault::Differs) {
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
            Fault::Blocklisted if modifies => (VolumeError::TimedOut, Some(End::Blocklisted)),
            Fault::Blocklisted => return (None, Some(End::Blocklisted)),
            Fault::LockLost if modifies => return (None, Some(End::LockLost)),
            Fault::InDoubt if modifies && life > self.fenced.get() => {
                entry.place = Place::InDoubt(life);
                return (None, Some(End::InDoubt));
            }
            Fault::InDoubt => (VolumeError::TimedOut, None),
            Fault::LockLost | Fault::Failed => (VolumeError::Medium, None),
        };
        (Some(Err(entry.failed(error))), end)
    }

    /// Takes a request out that has ended.
    fn take(&self, key: Key, result: Ended) -> Completion {
        let entry = self.slots.borrow_mut().remove(key);
        Completion {
            token: entry.token,
            result,
            operation: entry.operation,
        }
    }

    /// Answers a request though librbd may have it still.
    fn answer_now(&self, key: Key, error: VolumeError) {
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        assert!(!entry.orphan, "a request is answered once");
        let error = entry.failed(error);
        if !matches!(entry.place, Place::Below { .. }) {
            drop(slots);
            self.waiting.borrow_mut().retain(|&waiting| waiting != key);
            return self.answer(self.take(key, Err(error)));
        }
        if self.orphans.get() == self.depth {
            // It follows when an orphan has come home.
            return;
        }
        entry.orphan = true;
        let completion = Completion {
            token: entry.token,
            result: Err(error),
            operation: std::mem::replace(&mut entry.operation, Operation::Flush),
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

    fn end_life(&self, life: &Arc<Life>, end: End) {
        self.shared.end_life(life, end);
        self.look_at_state();
    }

    /// Goes on with the life that there is now, if there is one.
    fn look_at_state(&self) {
        let mut state = lock(&self.shared.state);
        self.fenced.set(state.fenced);
        self.lost.set(state.lost || state.phase == Phase::Closed);
        if state.drained {
            let bound = || self.reactor.now() + self.shared.options.fence_timeout;
            state.moved_by.get_or_insert_with(bound);
        }
        self.moved_by.set(state.moved_by);
        let life = state.life.clone();
        drop(state);
        let left = self.life.replace(life.map(Rc::new));
        drop(left);
    }

    fn take_message(&self, message: Message) {
        match message {
            Message::Changed => self.look_at_state(),
            Message::Drain(all) => self.fences.borrow_mut().push(Fence {
                limit: self.next_number.get(),
                patience: self.reactor.now() + FENCE_PATIENCE,
                _all: all,
            }),
        }
    }

    /// Does what is due; returns when to look again.
    fn look(&self) -> Option<Instant> {
        let now = self.reactor.now();
        let (mut answers, mut next) = (Vec::new(), None::<Instant>);
        let (mut unanswered, mut silent) = (None, None);
        let mut moved_by = self.moved_by.get();
        let mut overdue = moved_by.take_if(|at| now >= *at).is_some();
        for (key, entry) in self.slots.borrow().iter() {
            let at = match self.due(entry, now) {
                Due::Nothing => continue,
                Due::At(at) => at,
                Due::Answer(error) => {
                    answers.push((key, error));
                    continue;
                }
                Due::Unanswered => {
                    unanswered = Some(entry.operation.kind());
                    answers.push((key, VolumeError::TimedOut));
                    continue;
                }
                Due::Silent(life, bound) => {
                    // That of a closed volume is over, and ends here all the same.
                    silent = life.or(silent);
                    overdue |= now >= bound;
                    bound
                }
            };
            if at > now {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        if let Some(kind) = unanswered {
            self.shared.failed(kind, IN_DOUBT as i32, now);
        }
        for (key, error) in answers {
            self.answer_now(key, error);
        }
        if let Some(life) = silent {
            self.end_life(&life, End::TimedOut);
        }
        if overdue {
            self.shared.overdue();
        }
        // What is taken from now on is due later than this.
        let later = || now + self.shared.options.io_timeout;
        let next = next.or_else(|| (!self.slots.borrow().is_empty()).then(later));
        [next, moved_by].into_iter().flatten().min()
    }

    /// Decides what is due of a request.
    fn due(&self, entry: &Entry, now: Instant) -> Due {
        let (options, modifies) = (&self.shared.options, entry.operation.modifies());
        let io_timeout = entry.since + options.io_timeout;
        // A fence waits for no longer than this, but for what cuts others off.
        let fences = self.fences.borrow();
        let of_entry = fences.iter().filter(|fence| fence.limit > entry.number);
        let patience = of_entry.map(|fence| fence.patience).min();
        let cuts_others_off = match &entry.place {
            Place::Below { life, .. } => modifies && life.client().images() > 1,
            _ => false,
        };
        let patience = patience.filter(|_| !cuts_others_off);
        let timeout = patience.map_or(io_timeout, |patience| patience.min(io_timeout));
        match &entry.place {
            _ if entry.orphan => Due::Nothing,
            Place::Below { .. } if entry.cancelled && !modifies => {
                Due::Answer(VolumeError::Cancelled)
            }
            // It may have been done, and can no longer be.
            Place::Below { life, .. } if modifies && life.number <= self.fenced.get() => {
                Due::Answer(VolumeError::TimedOut)
            }
            Place::Below { .. } if now < timeout => Due::At(timeout),
            Place::Below { .. } if !modifies => Due::Unanswered,
            Place::Below { life, .. } => {
                Due::Silent(Some(Rc::clone(life)), timeout + options.fence_timeout)
            }
            Place::InDoubt(life) if *life <= self.fenced.get() => {
                Due::Answer(VolumeError::TimedOut)
            }
            Place::InDoubt(_) => Due::Silent(None, entry.since + options.fence_timeout),
            Place::Waiting if entry.cancelled => Due::Answer(VolumeError::Cancelled),
            // It waits for a buffer.
            Place::Waiting if self.life.borrow().is_some() => Due::Nothing,
            Place::Waiting if now >= timeout => Due::Unanswered,
            Place::Waiting => Due::At(timeout),
        }
    }

    /// Tries again what waits, in order.
    fn retry(&self) {
        let waiting = self.waiting.borrow().len();
        for _ in 0..waiting {
            let Some(key) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if let Some(ended) = self.go_on(key) {
                self.answer(ended);
            }
        }
    }

    /// The queue's task: takes messages, tries again what waits, and looks after time-outs. It ends when the queue is dropped and librbd has
    /// given everything back.
    fn attend(&self, context: &mut Context<'_>, timer: &mut Timer) -> Poll<()> {
        self.waker.register(context);
        for message in self.mailbox.take(context) {
            self.take_message(message);
        }
        loop {
            self.retry();
            let next = self.look();
            self.release_fences();
            if self.is_over() {
                self.waker.forget();
                drop(self.mailbox.close());
                return Poll::Ready(());
            }
            let waits = !self.waiting.borrow().is_empty() && self.life.borrow().is_some();
            let retry = waits.then(|| self.reactor.now() + RETRY);
            match [next, retry].into_iter().flatten().min() {
                Some(at) => timer.set(at),
                None => timer.clear(),
            }
            if timer.poll_elapsed(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Lets go of the fences that nothing older is left for.
    fn release_fences(&self) {
        if self.fences.borrow().is_empty() {
            return;
        }
        let slots = self.slots.borrow();
        let open = slots.iter().filter(|(_, entry)| !entry.orphan);
        let oldest = open.map(|(_, entry)| entry.number).min();
        let is_over = |fence: &mut Fence| oldest.is_none_or(|oldest| oldest >= fence.limit);
        let mut fences = self.fences.borrow_mut();
        let released: Vec<_> = fences.extract_if(.., is_over).collect();
        drop((slots, fences));
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

/// Decision about one request at one moment.
enum Due {
    Nothing,
    /// Nothing before this time.
    At(Instant),
    Answer(VolumeError),
    /// Answer that it has timed out, though its life goes on, or it had none.
    Unanswered,
    /// Fence its life, if that has not begun; it should be done by this time.
    Silent(Option<LocalLife>, Instant),
}

/// The first step of a request; none where it is done.
fn first_step(geometry: &Geometry, operation: &Operation) -> Option<Step> {
    let shift = geometry.block_size.shift();
    let range = |what, most| {
        let (lba, blocks) = operation.range()?;
        Some(Step::Range {
            what,
            next: lba << shift,
            end: (lba + blocks) << shift,
            most,
        })
    };
    match *operation {
        Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Compare { .. }
        | Operation::CompareWrite { .. } => Some(Step::Transfer),
        Operation::WriteZeroes {
            deallocate: true, ..
        } => range(Range::Zero { thick: false }, ZERO_BYTES_MAX),
        Operation::WriteZeroes { .. } => range(Range::Zero { thick: true }, THICK_ZERO_BYTES_MAX),
        Operation::Deallocate { lba, blocks } => {
            let unit = u64::from(geometry.deallocate_blocks) << shift;
            let next = (lba << shift).next_multiple_of(unit);
            let end = ((lba + blocks) << shift) / unit * unit;
            // It was a hint.
            (next < end).then_some(Step::Range {
                what: Range::Deallocate,
                next,
                end,
                // Each operation is of whole units, or librbd would skip what two share.
                most: (DISCARD_BYTES_MAX / unit * unit).max(unit),
            })
        }
        Operation::Verify { .. } => range(Range::Verify, VERIFY_BYTES_MAX),
        Operation::Flush => Some(Step::Flush),
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

impl Entry {
    /// What an error says of a request of which a part may be done.
    fn failed(&self, error: VolumeError) -> VolumeError {
        if self.changed {
            error.after_a_part()
        } else {
            error
        }
    }

    /// The next operation; none where there is no buffer for it now.
    fn io(&mut self, shift: u32, reactor: &Reactor) -> Option<Io> {
        match self.step {
            Step::Transfer => self.transfer(shift, reactor),
            Step::Range {
                what,
                next,
                end,
                most,
            } => {
                let (offset, length) = (next, (end - next).min(most));
                Some(match what {
                    Range::Zero { thick } => Io::WriteZeroes {
                        offset,
                        length: length as usize,
                        thick,
                    },
                    Range::Deallocate => Io::Discard { offset, length },
                    Range::Verify => Io::Read {
                        offset,
                        into: pool_segments(reactor.pool(), length as usize)?,
                    },
                })
            }
            Step::Flush => Some(Io::Flush),
        }
    }

    fn transfer(&mut self, shift: u32, reactor: &Reactor) -> Option<Io> {
        let (lba, blocks) = self.operation.range()?;
        let (offset, bytes) = (lba << shift, (blocks << shift) as usize);
        let pooled = || pool_segments(reactor.pool(), bytes);
        Some(match &mut self.operation {
            Operation::Read { buffers, .. } => {
                let into = match std::mem::replace(buffers, ReadBuffers::Lend) {
                    ReadBuffers::Into(segments) => segments,
                    _ => pooled()?,
                };
                Io::Read { offset, into }
            }
            Operation::Compare { .. } => {
                // It holds memory while it waits: where the pool has none, it takes its own.
                let own = || Segments::from_iter([Segment::heap(bytes)]);
                let into = pooled().unwrap_or_else(own);
                Io::Read { offset, into }
            }
            Operation::Write { data, .. } => {
                let data = std::mem::take(data);
                Io::Write { offset, data }
            }
            Operation::CompareWrite { data, .. } => {
                let (compare, write) = compare_write_halves(data);
                let mut what = Box::new(CompareWrite {
                    compare: [0; COMPARE_WRITE_BYTES],
                    data: [0; COMPARE_WRITE_BYTES],
                    mismatch: 0,
                });
                copy_views(&compare, &mut what.compare);
                copy_views(&write, &mut what.data);
                Io::CompareWrite { offset, what }
            }
            _ => unreachable!("only these are transfers"),
        })
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
    fn advance(&mut self, count: usize, io: Io, geometry: &Geometry) -> Option<Ended> {
        let Step::Range {
            what,
            next,
            end,
            most,
        } = &mut self.step
        else {
            return self.after_transfer(count, io, geometry);
        };
        let length = (*end - *next).min(*most);
        *next += length;
        match what {
            Range::Verify if count as u64 != length => Some(Err(VolumeError::Medium)),
            _ if next < end => None,
            Range::Zero { .. } => self.durable(geometry),
            Range::Deallocate | Range::Verify => Some(Ok(())),
        }
    }

    fn after_transfer(&mut self, count: usize, io: Io, geometry: &Geometry) -> Option<Ended> {
        // librbd reads less where the image has become shorter.
        let is_whole = |into: &Segments| count == segments_len(into);
        match (&mut self.operation, io) {
            (Operation::Read { buffers, .. }, Io::Read { into, .. }) if is_whole(&into) => {
                *buffers = ReadBuffers::Filled(freeze(into));
                Some(Ok(()))
            }
            (Operation::Compare { data, .. }, Io::Read { into, .. }) if is_whole(&into) => {
                let there: Views = freeze(into);
                Some(compare_views(data, &there))
            }
            (_, io @ Io::Read { .. }) => {
                self.give_back(io);
                Some(Err(VolumeError::Medium))
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
    fn durable(&mut self, geometry: &Geometry) -> Option<Ended> {
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
