//! The queue of every back end: a table of what is in flight, what waits for a buffer or for its time, fences, cancelling, drop.
//!
//! A back end says how a request starts and what follows when something of it has ended ([`BackEnd`]). It sees one request at a time and
//! calls nobody back. It may hand requests on to volumes below: these carry the key of the request that they are for, so that the table is
//! the only one.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, InFlight, Landing, Operation, Queue,
    ReadBuffers, Request, Token, Volume, VolumeError,
};
use weir_reactor::{Instant, Key, Mailbox, Reactor, Slots, TaskWaker, Timer};

use crate::support::{check, lock};
use crate::when_all::WhenAll;

/// Time after which a request looks for a buffer again, when nothing of its queue ends meanwhile.
const BUFFER_RETRY: Duration = Duration::from_millis(1);

/// The next thing that becomes of a request.
pub enum Next<A> {
    /// It has ended.
    Done(Result<(), VolumeError>),
    /// It has ended, and is answered at this time ([`BackEnd::is_due`]).
    Due(Instant, Result<(), VolumeError>),
    /// It needs a buffer, and the pool has none for now. It is started again later.
    Wait,
    /// This is begun for it.
    Run(A),
    /// Something that was begun for it goes on.
    Running,
}

/// A request in the hands of its back end.
pub struct Work<'a, S> {
    /// The request. Its buffers may be taken out, and must be back when it has ended.
    pub operation: &'a mut Operation,
    /// The back end's state of it.
    pub state: &'a mut S,
    /// Its user wishes that it end early.
    pub is_cancelled: bool,
}

/// Facts that a back end is given with each request.
pub struct Turn<'a> {
    /// The geometry that the request was checked against.
    pub geometry: &'a Geometry,
    /// The queue's reactor.
    pub reactor: &'a Reactor,
    /// Requests of the queue for which something was begun that has not ended.
    pub running: u32,
}

/// One reactor's part of a back end.
pub trait BackEnd: Sized + 'static {
    /// Its state of a request on its way.
    type State: Default;
    /// An action that it begins for a request, once that has its place in the table.
    type Action;
    /// A guard that it holds during a submission, so that its geometry stays as it is.
    type Held<'a>;
    /// Each request of a batch goes below before the next one starts, and has what follows there already where it ends at once.
    const IS_ONE_BY_ONE: bool = false;

    /// Begins a submission: the geometry that its requests are checked against.
    fn hold(&self) -> (Geometry, Self::Held<'_>);

    /// Returns where the data of a write to this range may be received.
    fn landing(&self, lane: &Lane<Self>, lba: u64, blocks: u32) -> Landing;

    /// Starts a request that was checked, or goes on with one that waited for a buffer.
    fn start(
        &self,
        turn: &Turn<'_>,
        held: &Self::Held<'_>,
        work: Work<'_, Self::State>,
    ) -> Next<Self::Action>;

    /// Begins an action. When it ends, [`Lane::ended`] says what follows, or [`BackEnd::after`]; never from within this call.
    fn run(&self, lane: &Lane<Self>, key: Key, action: Self::Action);

    /// Says what follows when a request below has ended, which went to the volume of index `volume`. It begins nothing new: a fence of
    /// the volumes below would not know of it.
    fn after(
        &self,
        turn: &Turn<'_>,
        work: Work<'_, Self::State>,
        volume: usize,
        completion: Completion,
    ) -> Next<Self::Action> {
        let _ = (turn, work, volume, completion);
        unreachable!("a back end that hands nothing on has nothing below")
    }

    /// Asks for an early end of what was begun for a request, where something can be ended.
    fn cancel(&self, lane: &Lane<Self>, key: Key) {
        let _ = (lane, key);
    }

    /// Asks for an early end of all that is under way, for the queue is gone. Returns whether [`Lane::ended`] will still be called for it.
    fn leave(&self, lane: &Lane<Self>) -> bool {
        let _ = lane;
        false
    }

    /// Returns whether what is due at `at` is answered now.
    fn is_due(&self, at: Instant, now: Instant) -> bool {
        at <= now
    }

    /// Returns whether a request that only waits for its time is answered when it is cancelled.
    fn cancel_ends_due(&self) -> bool {
        false
    }

    /// Learns that a request was answered that was due at `at`.
    fn answered(&self, at: Instant) {
        let _ = at;
    }
}

enum Place {
    Waiting,
    Running,
    Due(Instant, Result<(), VolumeError>),
}

struct Entry<S> {
    /// As its user gave it: the operation may be below.
    asked: InFlight,
    operation: Operation,
    state: S,
    place: Place,
    is_cancelled: bool,
    /// Order of submission, for fences.
    number: u64,
}

impl<S> Entry<S> {
    fn work(&mut self) -> Work<'_, S> {
        Work {
            operation: &mut self.operation,
            state: &mut self.state,
            is_cancelled: self.is_cancelled,
        }
    }
}

type FenceMailbox = Mailbox<Arc<WhenAll>>;

/// The queues of a volume, for its fences.
#[derive(Default)]
pub struct Fences(Mutex<Vec<Arc<FenceMailbox>>>);

impl Fences {
    /// Adds a queue.
    pub fn add<B: BackEnd>(&self, queue: &LaneQueue<B>) {
        let mut mailboxes = lock(&self.0);
        mailboxes.retain(|mailbox| !mailbox.is_closed());
        mailboxes.push(Arc::clone(&queue.lane.mailbox));
    }

    /// Replies when what was submitted before on any queue has ended, or has gone to a volume below.
    pub fn fence(&self, reply: FenceReply) {
        let all = WhenAll::new(reply);
        let mailboxes = lock(&self.0).clone();
        mailboxes
            .iter()
            .for_each(|mailbox| mailbox.post(Arc::clone(&all)));
    }
}

/// One reactor's queue of a back end. Dropping it ends what has not begun.
pub struct LaneQueue<B: BackEnd> {
    lane: Rc<Lane<B>>,
}

/// The part of a queue that outlives it until its requests have ended.
pub struct Lane<B: BackEnd> {
    back_end: B,
    /// The queue's reactor.
    pub reactor: Reactor,
    /// The queues below, of a back end that hands requests on.
    pub below: Below,
    depth: usize,
    /// None once the queue is dropped.
    sink: RefCell<Option<Rc<dyn CompletionSink>>>,
    slots: RefCell<Slots<Entry<B::State>>>,
    /// Requests that wait for a buffer, in order.
    waiting: RefCell<VecDeque<Key>>,
    /// Requests that wait for their time, by that and by their order.
    due: RefCell<BinaryHeap<Reverse<(Instant, u64, Key)>>>,
    running: Cell<u32>,
    fences: RefCell<Vec<(u64, Arc<WhenAll>)>>,
    next_number: Cell<u64>,
    mailbox: Arc<FenceMailbox>,
    waker: TaskWaker,
    this: Weak<Self>,
}

impl<B: BackEnd> LaneQueue<B> {
    /// A queue of `depth` requests, whose completions go to `sink` where they are not done at once.
    #[must_use]
    pub fn new(back_end: B, reactor: &Reactor, depth: u32, sink: Rc<dyn CompletionSink>) -> Self {
        let lane = Rc::new_cyclic(|this| Lane {
            back_end,
            reactor: reactor.clone(),
            below: Below::default(),
            depth: depth as usize,
            sink: RefCell::new(Some(sink)),
            slots: RefCell::default(),
            waiting: RefCell::default(),
            due: RefCell::default(),
            running: Cell::new(0),
            fences: RefCell::default(),
            next_number: Cell::new(0),
            mailbox: Mailbox::new(),
            waker: TaskWaker::default(),
            this: this.clone(),
        });
        let (attended, mut timer) = (Rc::clone(&lane), Timer::new(reactor));
        let attendant = std::future::poll_fn(move |context| attended.attend(context, &mut timer));
        reactor.spawn(attendant).detach();
        LaneQueue { lane }
    }

    /// A queue whose requests go to queues of these volumes.
    ///
    /// # Errors
    /// The error of the queue that could not be opened.
    pub fn above<'a>(
        back_end: B,
        volumes: impl IntoIterator<Item = &'a Arc<dyn Volume>>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Self, VolumeError> {
        let queue = LaneQueue::new(back_end, reactor, depth, sink);
        for volume in volumes {
            let from_below: Rc<dyn CompletionSink> = Rc::<Lane<B>>::clone(&queue.lane);
            let opened = Arc::clone(volume).open_queue(reactor, depth, from_below)?;
            queue.lane.below.add(opened);
        }
        Ok(queue)
    }
}

impl<B: BackEnd> Queue for LaneQueue<B> {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        let lane = &self.lane;
        lane.back_end.landing(lane, lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let lane = &self.lane;
        let (geometry, held) = lane.back_end.hold();
        let room = lane.depth - lane.slots.borrow().len();
        for request in batch.drain(..room.min(batch.len())) {
            lane.take(&geometry, &held, request, done);
            if B::IS_ONE_BY_ONE {
                lane.flush(done);
            }
        }
        drop(held);
        lane.flush(done);
    }

    fn cancel(&mut self, token: Token) {
        self.lane.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        for (_, entry) in self.lane.slots.borrow().iter() {
            visit(entry.asked.clone());
        }
    }
}

impl<B: BackEnd> Drop for LaneQueue<B> {
    fn drop(&mut self) {
        let lane = &self.lane;
        let sink = lane.sink.borrow_mut().take();
        drop(sink);
        lane.waiting.borrow_mut().clear();
        lane.due.borrow_mut().clear();
        let comes_back = lane.back_end.leave(lane);
        lane.below.leave();
        let gone = |entry: &Entry<_>| !comes_back || !matches!(entry.place, Place::Running);
        let mut slots = lane.slots.borrow_mut();
        let keys: Vec<_> = slots
            .iter()
            .filter(|(_, entry)| gone(entry))
            .map(|(key, _)| key)
            .collect();
        let dropped: Vec<_> = keys.into_iter().map(|key| slots.remove(key)).collect();
        drop(slots);
        drop(dropped);
        lane.waker.wake();
    }
}

impl<B: BackEnd> Drop for Lane<B> {
    fn drop(&mut self) {
        drop(self.mailbox.close());
    }
}

/// Returns whether a request holds memory while it waits for a buffer.
pub(crate) fn holds_memory(operation: &Operation) -> bool {
    match operation {
        Operation::Read { buffers, .. } => matches!(buffers, ReadBuffers::Into(_)),
        Operation::Compare { .. } | Operation::Write { .. } => true,
        _ => false,
    }
}

impl<B: BackEnd> Lane<B> {
    /// The same lane, for what keeps it.
    pub(crate) fn rc(&self) -> Rc<Self> {
        self.this.upgrade().expect("a lane is borrowed from its Rc")
    }

    /// Returns what the back end remembers of a request for which something was begun.
    pub fn state<T>(&self, key: Key, look: impl FnOnce(&mut B::State) -> T) -> T {
        look(&mut self.slots.borrow_mut().get_mut(key).state)
    }

    /// Shows what the back end remembers of each request that is under way.
    pub(crate) fn for_each_running(&self, mut look: impl FnMut(Key, &B::State)) {
        for (key, entry) in self.slots.borrow().iter() {
            if matches!(entry.place, Place::Running) {
                look(key, &entry.state);
            }
        }
    }

    fn turn<'a>(&'a self, geometry: &'a Geometry) -> Turn<'a> {
        Turn {
            geometry,
            reactor: &self.reactor,
            running: self.running.get(),
        }
    }

    #[inline]
    fn take(
        &self,
        geometry: &Geometry,
        held: &B::Held<'_>,
        request: Request,
        done: &mut VecDeque<Completion>,
    ) {
        let Request {
            token,
            mut operation,
        } = request;
        let mut state = B::State::default();
        let asked = InFlight::of(token, &operation);
        let work = Work {
            operation: &mut operation,
            state: &mut state,
            is_cancelled: false,
        };
        let next = match check(geometry, work.operation) {
            Ok(()) => self.back_end.start(&self.turn(geometry), held, work),
            Err(error) => Next::Done(Err(error)),
        };
        if let Next::Done(result) = next {
            done.push_back(Completion {
                token,
                result,
                operation,
            });
            return;
        }
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let key = self.slots.borrow_mut().insert(Entry {
            asked,
            operation,
            state,
            place: Place::Waiting,
            is_cancelled: false,
            number,
        });
        done.extend(self.go_on(key, next));
    }

    /// Goes on with a request; its completion where it has ended.
    fn go_on(&self, key: Key, next: Next<B::Action>) -> Option<Completion> {
        match next {
            Next::Done(result) => return Some(self.remove(key, result)),
            Next::Due(at, result) => self.wait_until(key, at, result),
            Next::Wait => {
                self.slots.borrow_mut().get_mut(key).place = Place::Waiting;
                self.waiting.borrow_mut().push_back(key);
                self.waker.wake();
            }
            Next::Running => self.begun(key),
            Next::Run(action) => {
                self.begun(key);
                self.back_end.run(self, key, action);
            }
        }
        None
    }

    fn begun(&self, key: Key) {
        self.slots.borrow_mut().get_mut(key).place = Place::Running;
        self.running.set(self.running.get() + 1);
    }

    fn remove(&self, key: Key, result: Result<(), VolumeError>) -> Completion {
        let entry = self.slots.borrow_mut().remove(key);
        Completion {
            token: entry.asked.token,
            result,
            operation: entry.operation,
        }
    }

    fn wait_until(&self, key: Key, at: Instant, result: Result<(), VolumeError>) {
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        entry.place = Place::Due(at, result);
        let item = Reverse((at, entry.number, key));
        drop(slots);
        let mut due = self.due.borrow_mut();
        due.push(item);
        // The task waits for what was the first before.
        if due.peek() == Some(&item) {
            self.waker.wake();
        }
    }

    /// Says what follows for a request of which something has ended. Its completion, where that was all.
    fn resume(
        &self,
        key: Key,
        follow: impl FnOnce(&B, &Turn<'_>, Work<'_, B::State>) -> Next<B::Action>,
    ) -> Option<Completion> {
        self.running.set(self.running.get() - 1);
        let (geometry, _) = self.back_end.hold();
        let mut slots = self.slots.borrow_mut();
        let work = slots.get_mut(key).work();
        let mut next = follow(&self.back_end, &self.turn(&geometry), work);
        drop(slots);
        if self.is_left() && !matches!(next, Next::Running) {
            // The queue is gone: what goes on would go on unseen.
            next = Next::Done(Err(VolumeError::Cancelled));
        }
        self.go_on(key, next)
    }

    /// Says what follows for a request of which something has ended; never from within a call of the queue's. The user is told where that
    /// was all.
    pub fn ended(
        &self,
        key: Key,
        follow: impl FnOnce(&B, &Turn<'_>, Work<'_, B::State>) -> Next<B::Action>,
    ) {
        if let Some(completion) = self.resume(key, follow) {
            self.answer(completion);
        }
        self.release_fences();
        if !self.waiting.borrow().is_empty() || self.is_over() {
            self.waker.wake();
        }
    }

    fn answer(&self, completion: Completion) {
        let sink = self.sink.borrow().clone();
        if let Some(sink) = sink {
            sink.complete(completion);
        }
    }

    fn cancel(&self, token: Token) {
        let mut slots = self.slots.borrow_mut();
        let found = slots
            .iter_mut()
            .find(|(_, entry)| entry.asked.token == token);
        let Some((key, entry)) = found else {
            return;
        };
        entry.is_cancelled = true;
        match entry.place {
            Place::Waiting => self.waker.wake(),
            Place::Running => {
                drop(slots);
                self.back_end.cancel(self, key);
                if self.below.has_done() {
                    self.waker.wake();
                }
            }
            Place::Due(at, result) => {
                drop(slots);
                let now = self.reactor.now();
                if self.back_end.cancel_ends_due() && at > now {
                    self.due
                        .borrow_mut()
                        .retain(|Reverse((.., due))| *due != key);
                    self.wait_until(key, now, result);
                }
            }
        }
    }

    /// Returns whether the queue is gone.
    fn is_left(&self) -> bool {
        self.sink.borrow().is_none()
    }

    /// Returns whether the queue is gone and nothing of it is left.
    fn is_over(&self) -> bool {
        self.is_left() && self.slots.borrow().is_empty()
    }

    /// Starts what waited for a buffer again, in order; what was cancelled meanwhile ends wherever it stands. Once one waits on, only
    /// those are tried that hold memory: all of the pool may be held by these.
    fn retry(&self) {
        let waiting = self.waiting.borrow().len();
        if waiting == 0 {
            return;
        }
        let (geometry, held) = self.back_end.hold();
        let mut is_exhausted = false;
        for _ in 0..waiting {
            let Some(key) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            let mut slots = self.slots.borrow_mut();
            let work = slots.get_mut(key).work();
            let next = if work.is_cancelled {
                Next::Done(Err(VolumeError::Cancelled))
            } else if is_exhausted && !holds_memory(work.operation) {
                Next::Wait
            } else {
                self.back_end.start(&self.turn(&geometry), &held, work)
            };
            drop(slots);
            if matches!(next, Next::Wait) {
                is_exhausted = true;
                self.waiting.borrow_mut().push_back(key);
            } else if let Some(completion) = self.go_on(key, next) {
                self.answer(completion);
            }
        }
    }

    /// Answers what is due; when the next is.
    fn answer_due(&self) -> Option<Instant> {
        loop {
            let mut due = self.due.borrow_mut();
            let &Reverse((at, _, key)) = due.peek()?;
            if !self.back_end.is_due(at, self.reactor.now()) {
                return Some(at);
            }
            due.pop();
            drop(due);
            let Place::Due(_, result) = self.slots.borrow_mut().get_mut(key).place else {
                unreachable!("it waits for its time")
            };
            self.back_end.answered(at);
            let completion = self.remove(key, result);
            self.answer(completion);
        }
    }

    /// Lets go of the fences that nothing older is in flight for.
    fn release_fences(&self) {
        if self.fences.borrow().is_empty() {
            return;
        }
        let numbers =
            |entries: &Slots<Entry<_>>| entries.iter().map(|(_, entry)| entry.number).min();
        let oldest = numbers(&self.slots.borrow()).unwrap_or(u64::MAX);
        let mut fences = self.fences.borrow_mut();
        let released: Vec<_> = fences
            .extract_if(.., |(limit, _)| *limit <= oldest)
            .collect();
        drop(fences);
        drop(released);
    }

    /// The task of a queue. It lives until the queue is dropped and everything of it has ended.
    fn attend(&self, context: &mut Context<'_>, timer: &mut Timer) -> Poll<()> {
        self.waker.register(context);
        let fences = self.mailbox.take(context);
        self.retry();
        self.flush_by_itself();
        if self.below.is_empty() {
            let limit = self.next_number.get();
            let fences = fences.into_iter().map(|fence| (limit, fence));
            self.fences.borrow_mut().extend(fences);
        } else if !fences.is_empty() {
            self.cut_off_untaken();
            drop(fences);
        }
        let due = self.answer_due();
        self.release_fences();
        if self.is_over() {
            self.waker.forget();
            drop(self.mailbox.close());
            return Poll::Ready(());
        }
        let waits = !self.waiting.borrow().is_empty();
        let retry = waits.then(|| self.reactor.now() + BUFFER_RETRY);
        match [due, retry].into_iter().flatten().min() {
            Some(at) => timer.set(at),
            None => timer.clear(),
        }
        if timer.poll_elapsed(context).is_ready() {
            self.waker.wake();
        }
        Poll::Pending
    }

    /// Submits below what is meant for there; what has ended at once is pushed onto `done`.
    fn flush(&self, done: &mut VecDeque<Completion>) {
        if self.below.is_empty() {
            return;
        }
        self.below.submit(&self.reactor);
        while let Some(completion) = self.below.pop_done() {
            done.extend(self.ended_below(completion));
        }
    }

    /// The same from outside of any submission.
    fn flush_by_itself(&self) {
        let mut done = VecDeque::new();
        self.flush(&mut done);
        done.drain(..)
            .for_each(|completion| self.answer(completion));
    }

    /// Ends what a fence of the volumes below knows nothing of, since none has taken it.
    fn cut_off_untaken(&self) {
        self.below.withdraw_all();
        self.flush_by_itself();
        loop {
            let Some(key) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            let completion = self.remove(key, Err(VolumeError::Cancelled));
            self.answer(completion);
        }
    }

    fn ended_below(&self, completion: Completion) -> Option<Completion> {
        if self.is_left() {
            return None;
        }
        let Token {
            owner: volume,
            slot,
            generation,
        } = completion.token;
        let ended = self.resume(Key { slot, generation }, |back_end, turn, work| {
            back_end.after(turn, work, volume as usize, completion)
        });
        // There may be room for what was not taken, and a buffer.
        if self.below.has_untaken() || !self.waiting.borrow().is_empty() {
            self.waker.wake();
        }
        ended
    }
}

impl<B: BackEnd> CompletionSink for Lane<B> {
    /// Called by a queue below, which must not be called back.
    fn complete(&self, completion: Completion) {
        if let Some(completion) = self.ended_below(completion) {
            self.answer(completion);
        }
    }
}

/// Queues of volumes below, and what these have not taken yet.
#[derive(Default)]
pub struct Below {
    /// Empty once the queue above is dropped.
    queues: RefCell<Vec<Box<dyn Queue>>>,
    outgoing: RefCell<Vec<VecDeque<Request>>>,
    /// Ended within a submission, or without a volume below, until the lane has looked at it.
    done: RefCell<VecDeque<Completion>>,
}

impl Below {
    /// Has a request done by a volume below, once the submission that it belongs to is over.
    pub fn send(&self, volume: usize, key: Key, operation: Operation) {
        let token = token_of(volume, key);
        self.outgoing.borrow_mut()[volume].push_back(Request { token, operation });
    }

    /// Returns where a volume below would have data received.
    pub fn landing(&self, volume: usize, lba: u64, blocks: u32) -> Landing {
        self.queues.borrow_mut()[volume].landing(lba, blocks)
    }

    /// Wishes that a request below end early.
    pub fn cancel(&self, volume: usize, key: Key) {
        let token = token_of(volume, key);
        let mut outgoing = self.outgoing.borrow_mut();
        let left = &mut outgoing[volume];
        if let Some(at) = left.iter().position(|request| request.token == token) {
            self.done
                .borrow_mut()
                .extend(left.remove(at).map(withdrawn));
        } else {
            self.queues.borrow_mut()[volume].cancel(token);
        }
    }

    fn has_done(&self) -> bool {
        !self.done.borrow().is_empty()
    }

    fn add(&self, queue: Box<dyn Queue>) {
        self.queues.borrow_mut().push(queue);
        self.outgoing.borrow_mut().push(VecDeque::new());
    }

    fn is_empty(&self) -> bool {
        self.queues.borrow().is_empty()
    }

    fn has_untaken(&self) -> bool {
        let outgoing = self.outgoing.borrow();
        outgoing.iter().any(|left| !left.is_empty())
    }

    /// Drops the queues. What is in flight there does not come back.
    fn leave(&self) {
        let queues = std::mem::take(&mut *self.queues.borrow_mut());
        let outgoing = std::mem::take(&mut *self.outgoing.borrow_mut());
        drop((queues, outgoing));
    }

    fn submit(&self, reactor: &Reactor) {
        let (mut queues, mut outgoing) = (self.queues.borrow_mut(), self.outgoing.borrow_mut());
        let mut done = self.done.borrow_mut();
        for (queue, left) in queues.iter_mut().zip(outgoing.iter_mut()) {
            if !left.is_empty() {
                queue.submit(left, &mut done);
                // Data may have been received into what others receive into, and stays here for longer.
                for request in left {
                    request.operation.copy_out(reactor.pool());
                }
            }
        }
    }

    fn pop_done(&self) -> Option<Completion> {
        self.done.borrow_mut().pop_front()
    }

    fn withdraw_all(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        let untaken = outgoing.iter_mut().flat_map(|left| left.drain(..));
        self.done.borrow_mut().extend(untaken.map(withdrawn));
    }
}

/// The end of a request that no volume below has taken: it has had no effect.
fn withdrawn(Request { token, operation }: Request) -> Completion {
    Completion {
        token,
        result: Err(VolumeError::Cancelled),
        operation,
    }
}

fn token_of(volume: usize, key: Key) -> Token {
    Token {
        owner: volume as u32,
        slot: key.slot,
        generation: key.generation,
    }
}
