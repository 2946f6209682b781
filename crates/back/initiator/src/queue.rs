//! The volume on one reactor: requests become commands on the connections of this queue, and are retried when these are
//! lost and another association is made.
//!
//! A request is carried out in pieces ([`crate::plan`]); each piece is a part, which is one command (or a pair). A part
//! is ready to be submitted, in flight, delayed for a retry, or held: sent on an association that was lost, and not to be
//! judged before the home says that no target can execute it any more (see [`crate::home`]).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, InFlight, Operation, ReadBuffers, Request, Token, VolumeError,
};
use weir_memory::{Pool, Segment, Segments, View, Views, slice_views};
use weir_reactor::{Instant, Key, Mailbox, Reactor, Slots, Task, Timer};

use crate::calls::{CALL, Caller, Calls};
use crate::connection::{CloseOnDrop, Connection, EndReason, Owner, connect};
use crate::plan::{Limits, Method, Piece, Plan, force_unit_access};
use crate::protocol::{Association, Command, Judged, LinkFailure, Protocol, Verdict};
use crate::remote::Profile;
use crate::shared::{HomeMessage, Member, QueueMessage, Shared};
use crate::wire::{Commands, Exposure, Wire};

/// How often a command is submitted again after a status that allows it.
const RETRIES_MAX: u32 = 8;
/// The pause before a retry where the target names none; each next one is twice as long.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// For how long an aborted command may take to end before the association is ended.
const ABORT_GRACE: Duration = Duration::from_secs(5);
/// How soon a read whose buffers were not to be had is tried again.
const POOL_POLL: Duration = Duration::from_millis(1);
/// How often Connect of an I/O queue is tried: the target may still know the last connection of that queue.
const QUEUE_CONNECTS: u32 = 5;
/// The pause between these tries.
const QUEUE_CONNECT_DELAY: Duration = Duration::from_millis(100);
/// For how long one address is tried.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One request.
struct Flight {
    token: Token,
    operation: Operation,
    plan: Plan,
    limits: Limits,
    /// Whether the data of a read is read into memory that this queue took.
    lent: bool,
    /// Counts the requests of this queue.
    sequence: u64,
    /// Pieces that became parts.
    started: u64,
    /// Parts that there are.
    parts: u32,
    error: Option<VolumeError>,
    /// Set once a piece of it has changed something, or may have.
    done_in_part: bool,
    cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place<Tag> {
    Ready,
    InFlight {
        generation: u64,
        qid: u16,
        /// Connection, as the queue counts them.
        link: u64,
        tag: Tag,
    },
    Delayed {
        until: Instant,
    },
    Held {
        generation: u64,
        qid: u16,
    },
}

/// One piece of a request, as a command.
struct Part<Tag> {
    flight: Key,
    method: Method,
    piece: Piece,
    place: Place<Tag>,
    /// When it is aborted, or, aborted already, given up with its association.
    deadline: Instant,
    aborted: bool,
    timed_out: bool,
    retries: u32,
    /// Answers to come: two of a pair.
    answers: u8,
    /// The number of a flush that was sent ([`crate::durability`]).
    flush: u64,
    /// What the first command of a pair, or a comparison here, found.
    found: Option<Verdict>,
    /// Whether an earlier try may have been carried out.
    uncertain: bool,
}

struct Link<P: Protocol> {
    index: u64,
    qid: u16,
    generation: u64,
    caller: Caller<P::Wire>,
}

/// Messages of this queue's tasks.
enum Local<P: Protocol> {
    /// A connection is ready for commands.
    Opened(Box<Link<P>>),
    Failed {
        generation: u64,
        reason: String,
    },
    Disconnected,
}

/// A drop of the queue, from then until it is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// What is in flight ends.
    Draining,
    /// Disconnect is on its way.
    Disconnecting,
    Done,
}

struct State<P: Protocol> {
    association: Option<Arc<Association<P>>>,
    profile: Option<Profile<P::Identity>>,
    ended: bool,
    leaving: Leaving,
    links: Vec<Link<P>>,
    opening: Vec<Task<()>>,
    next_link: u64,
    /// Connections whose socket is not closed yet.
    open: u32,
    /// The association whose end was ordered and not yet reported as done.
    closing: Option<u64>,
    flights: Slots<Flight>,
    parts: Slots<Part<P::Tag>>,
    /// Requests with pieces to be started.
    waiting: VecDeque<Key>,
    /// Parts to be submitted again.
    ready: VecDeque<Key>,
    next_sequence: u64,
    /// What was submitted before is not tried again once it may have been carried out.
    fence_before: u64,
    /// Fences not yet reported as done, and before which request they were.
    fences: Vec<(u64, u64)>,
    /// No buffer could be had.
    starved: bool,
    /// The clock is being watched.
    ticking: bool,
    waker: Option<Waker>,
}

/// A volume's queue on one reactor.
pub(crate) struct IoQueue<P: Protocol> {
    reactor: Reactor,
    shared: Arc<Shared<P>>,
    member: Arc<Member<P>>,
    sink: RefCell<Option<Rc<dyn CompletionSink>>>,
    depth: usize,
    local: Arc<Mailbox<Local<P>>>,
    state: RefCell<State<P>>,
}

impl<P: Protocol> IoQueue<P> {
    /// A queue of `member`, and the task that looks after it, which keeps `alive` until the queue is no more.
    pub(crate) fn start(
        reactor: &Reactor,
        shared: &Arc<Shared<P>>,
        member: Arc<Member<P>>,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
        alive: impl Sized + 'static,
    ) -> Rc<IoQueue<P>> {
        let state = State {
            association: None,
            profile: None,
            ended: false,
            leaving: Leaving::No,
            links: Vec::new(),
            opening: Vec::new(),
            next_link: 0,
            open: 0,
            closing: None,
            flights: Slots::default(),
            parts: Slots::default(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            next_sequence: 0,
            fence_before: 0,
            fences: Vec::new(),
            starved: false,
            ticking: false,
            waker: None,
        };
        let queue = Rc::new(IoQueue {
            reactor: reactor.clone(),
            shared: Arc::clone(shared),
            member,
            sink: RefCell::new(Some(sink)),
            depth: depth.max(1) as usize,
            local: Mailbox::new(),
            state: RefCell::new(state),
        });
        queue.take_messages();
        reactor.spawn(Rc::clone(&queue).look_after(alive)).detach();
        queue
    }

    /// Takes requests for as long as there is room.
    pub(crate) fn submit(
        self: &Rc<Self>,
        batch: &mut VecDeque<Request>,
        done: &mut VecDeque<Completion>,
    ) {
        {
            let state = &mut *self.state.borrow_mut();
            while state.flights.len() < self.depth {
                let Some(request) = batch.pop_front() else {
                    break;
                };
                done.extend(self.take(state, request));
            }
        }
        self.pump();
    }

    /// Takes a request; its completion where it is refused.
    fn take(&self, state: &mut State<P>, request: Request) -> Option<Completion> {
        let Request { token, operation } = request;
        let profile = state.profile.as_ref().filter(|_| !state.ended);
        let plan = match profile {
            Some(profile) => Plan::new(
                &operation,
                &profile.limits,
                profile.geometry.blocks,
                profile.geometry.read_only || self.shared.read_only,
            )
            .map(|plan| (plan, profile.limits)),
            None => Err(VolumeError::Lost),
        };
        let (plan, limits) = match plan {
            Ok(plan) => plan,
            Err(error) => {
                return Some(Completion {
                    token,
                    result: Err(error),
                    operation,
                });
            }
        };
        let lent = matches!(
            operation,
            Operation::Read {
                buffers: ReadBuffers::Lend,
                ..
            }
        );
        let flight = Flight {
            token,
            operation,
            plan,
            limits,
            lent,
            sequence: state.next_sequence,
            started: 0,
            parts: 0,
            error: None,
            done_in_part: false,
            cancelled: false,
        };
        state.next_sequence += 1;
        let index = state.flights.insert(flight);
        state.waiting.push_back(index);
        None
    }

    /// Submits what can be submitted.
    fn pump(self: &Rc<Self>) {
        let state = &mut *self.state.borrow_mut();
        if state.association.is_none() || state.ended {
            return;
        }
        let now = self.reactor.now();
        let starved_before = state.starved;
        let mut submitted = false;
        while let Some(link) = state.best_link() {
            let room = state.links[link].caller.connection.room();
            let Some(part) = self.next_part(state, room) else {
                break;
            };
            self.issue(state, link, part, now);
            submitted = true;
        }
        if submitted && !state.ticking {
            state.ticking = true;
            state.wake();
        }
        if state.starved && !starved_before {
            state.wake();
        }
    }

    /// The next part to be submitted on a connection with `room`.
    fn next_part(&self, state: &mut State<P>, room: usize) -> Option<Key> {
        let needed = P::needs;
        if let Some(&part) = state.ready.front() {
            if needed(state.parts.get_mut(part).method) > room {
                return None;
            }
            return state.ready.pop_front();
        }
        let &index = state.waiting.front()?;
        let flight = state.flights.get_mut(index);
        if needed(flight.plan.method) > room {
            return None;
        }
        if flight.started == 0
            && flight.lent
            && !lend(
                &self.reactor,
                &mut flight.operation,
                flight.limits.block_size.shift(),
            )
        {
            state.starved = true;
            return None;
        }
        let piece = flight.plan.piece(flight.started);
        flight.started += 1;
        flight.parts += 1;
        let part = Part {
            flight: index,
            method: flight.plan.method,
            piece,
            place: Place::Ready,
            deadline: Instant::default(),
            aborted: false,
            timed_out: false,
            retries: 0,
            answers: 0,
            flush: 0,
            found: None,
            uncertain: false,
        };
        state.waiting.pop_front();
        if flight.started < flight.plan.pieces() {
            // The others go on in between.
            state.waiting.push_back(index);
        }
        Some(state.parts.insert(part))
    }

    fn issue(&self, state: &mut State<P>, link: usize, index: Key, now: Instant) {
        let part = state.parts.get_mut(index);
        let flight = state.flights.get_mut(part.flight);
        let command = Command {
            operation: &flight.operation,
            method: part.method,
            lba: flight.plan.lba + part.piece.offset,
            piece: part.piece,
            limits: &flight.limits,
        };
        let link = &state.links[link];
        let user = index.to_word();
        part.found = None;
        if part.method == Method::Flush {
            part.flush = self.shared.durability.send_flush();
        }
        part.answers = P::needs(part.method) as u8;
        let issue = |wire: &mut P::Wire| P::issue(wire, &self.shared.remote, &command, user);
        let tag = link.caller.connection.with(issue);
        part.deadline = now + self.shared.patience.io_timeout;
        part.aborted = false;
        part.place = Place::InFlight {
            generation: link.generation,
            qid: link.qid,
            link: link.index,
            tag,
        };
    }

    /// Wishes that a request end early.
    pub(crate) fn cancel(self: &Rc<Self>, token: Token) {
        let state = &mut *self.state.borrow_mut();
        let found = state
            .flights
            .iter()
            .find(|(_, flight)| flight.token == token && !flight.cancelled);
        let Some((index, _)) = found else {
            return;
        };
        state.flights.get_mut(index).cancelled = true;
        state.stop_starting(index, VolumeError::Cancelled);
        let parts: Vec<(Key, Place<P::Tag>)> = state
            .parts
            .iter()
            .filter(|(_, part)| part.flight == index)
            .map(|(part, value)| (part, value.place))
            .collect();
        for (part, place) in parts {
            match place {
                Place::InFlight { .. } => self.abort(state, part),
                Place::Ready | Place::Delayed { .. } => {
                    self.end_part(state, part, Err(VolumeError::Cancelled));
                }
                Place::Held { .. } => {}
            }
        }
        if let Some(flight) = state.flights.find(index)
            && flight.parts == 0
        {
            flight.error.get_or_insert(VolumeError::Cancelled);
            self.end_flight(state, index);
        }
    }

    /// Visits what was taken and has not ended.
    pub(crate) fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        for (_, flight) in self.state.borrow().flights.iter() {
            visit(InFlight::of(flight.token, &flight.operation));
        }
    }

    fn abort(&self, state: &mut State<P>, index: Key) {
        let part = state.parts.get_mut(index);
        let Place::InFlight {
            generation,
            qid,
            link,
            tag,
        } = part.place
        else {
            return;
        };
        if part.aborted {
            return;
        }
        part.aborted = true;
        part.deadline = self.reactor.now() + ABORT_GRACE;
        let link = state.links.iter().find(|other| other.index == link);
        if link.is_some_and(|link| P::abort_here(&link.caller, tag)) {
            return;
        }
        self.shared.home.post(HomeMessage::Abort {
            generation,
            qid,
            tag,
        });
    }

    /// Data of a read.
    fn part_data(&self, index: Key, offset: u32, bytes: &[u8]) {
        let state = &mut *self.state.borrow_mut();
        let Some(part) = state.parts.find(index) else {
            return;
        };
        let flight = state.flights.get_mut(part.flight);
        let base =
            (part.piece.offset << flight.limits.block_size.shift()) as usize + offset as usize;
        match (&mut flight.operation, part.method) {
            (
                Operation::Read {
                    buffers: ReadBuffers::Into(segments),
                    ..
                },
                Method::Read,
            ) => copy_into(segments, base, bytes),
            (Operation::Compare { data, .. }, Method::ReadAndCompare) => {
                if part.found.is_none()
                    && let Some(at) = first_difference(data, base, bytes)
                {
                    let offset =
                        at as u64 - (part.piece.offset << flight.limits.block_size.shift());
                    part.found = Some(Verdict::Failed(VolumeError::Miscompare { offset }));
                }
            }
            _ => {}
        }
    }

    /// A command was answered.
    fn part_answer(&self, user: u64, answer: &<P::Wire as Wire>::Answer) {
        let state = &mut *self.state.borrow_mut();
        let index = Key::from_word(user);
        if !self.member.active.load(Ordering::Relaxed) {
            self.member.active.store(true, Ordering::Relaxed);
        }
        let part = state.parts.get_mut(index);
        let shift = state.flights.get_mut(part.flight).limits.block_size.shift();
        let bytes = u64::from(part.piece.blocks) << shift;
        let Judged {
            verdict,
            may_have_been_done,
            pause,
            attention,
            write_lost,
            ends,
        } = P::judge(state.association.as_deref(), answer, bytes);
        if write_lost {
            self.shared
                .fail_flushes("the target reports that a write failed which it had acknowledged");
        }
        if attention && let Place::InFlight { generation, .. } = part.place {
            self.shared.home.post(HomeMessage::Attention { generation });
        }
        if let (Some(reason), Place::InFlight { generation, .. }) = (ends, part.place) {
            let reason = reason.to_owned();
            self.shared
                .home
                .post(HomeMessage::Failed { generation, reason });
        }
        part.uncertain |= may_have_been_done && part.method.modifies();
        part.answers -= 1;
        if part.answers > 0 {
            // Of a fused pair the one that failed says why; the other is aborted with it.
            note(part, verdict);
            return;
        }
        if part.method == Method::CompareWrite || verdict == Verdict::Done {
            note(part, verdict);
        } else {
            part.found = Some(verdict);
        }
        let verdict = part.found.take().unwrap_or(Verdict::Done);
        let cancelled = state.flights.get_mut(part.flight).cancelled;
        match verdict {
            Verdict::Done => {
                if self.flush_after(state, index) {
                    return;
                }
                match self.note_done(state, index) {
                    Ok(true) => self.flush_part(state, index),
                    Ok(false) => self.end_part(state, index, Ok(())),
                    Err(error) => self.end_part(state, index, Err(error)),
                }
            }
            // Of a comparison, what it differs from may be what the first try wrote.
            Verdict::Failed(error) => self.end_part(state, index, Err(error)),
            // The other command of the pair did not say why.
            Verdict::AbortedWithOther => self.end_part(state, index, Err(VolumeError::Medium)),
            Verdict::Aborted if part.timed_out => {
                self.end_part(state, index, Err(VolumeError::TimedOut));
            }
            Verdict::Aborted | Verdict::Retry(_) if cancelled => {
                self.end_part(state, index, Err(VolumeError::Cancelled));
            }
            Verdict::Retry(error) if part.retries >= RETRIES_MAX => {
                self.end_part(state, index, Err(error));
            }
            Verdict::Aborted if part.retries >= RETRIES_MAX => {
                self.end_part(state, index, Err(VolumeError::TimedOut));
            }
            Verdict::Aborted | Verdict::Retry(_) => {
                let pause = pause.max(RETRY_DELAY * (1 << part.retries));
                part.retries += 1;
                part.place = Place::Delayed {
                    until: self.reactor.now() + pause,
                };
                state.wake();
            }
        }
    }

    /// Has a flush follow a part that was done, where only that makes it durable.
    fn flush_after(&self, state: &mut State<P>, index: Key) -> bool {
        let Some(profile) = &state.profile else {
            return false;
        };
        let part = state.parts.get_mut(index);
        let operation = &state.flights.get_mut(part.flight).operation;
        if !profile.geometry.volatile_cache || !profile.limits.needs_flush(operation, part.method) {
            return false;
        }
        self.shared.durability.note_write();
        self.flush_part(state, index);
        true
    }

    /// Goes on with a part that was done as a flush.
    fn flush_part(&self, state: &mut State<P>, index: Key) {
        let part = state.parts.get_mut(index);
        part.method = Method::Flush;
        part.uncertain = true;
        self.requeue(state, index);
    }

    /// Notes what a part that the target did says of durability. True where a flush is to follow it.
    fn note_done(&self, state: &mut State<P>, index: Key) -> Result<bool, VolumeError> {
        let durability = &self.shared.durability;
        let part = state.parts.get_mut(index);
        let flight = state.flights.get_mut(part.flight);
        let operation = &flight.operation;
        if part.method == Method::Flush {
            durability.note_flush(part.flush);
            if P::RETAINS {
                durability.release(part.flush);
            }
            if durability.has_failed() {
                return Err(VolumeError::Medium);
            }
        } else if part.method.modifies() && !force_unit_access(operation) {
            let is_volatile = state
                .association
                .as_ref()
                .is_none_or(|association| association.profile.geometry.volatile_cache);
            if is_volatile && P::RETAINS {
                let command = Command {
                    operation,
                    method: part.method,
                    lba: flight.plan.lba + part.piece.offset,
                    piece: part.piece,
                    limits: &flight.limits,
                };
                return Ok(durability.retain(command.lba, &command.written()));
            }
            if is_volatile {
                durability.note_write();
            }
        }
        Ok(false)
    }

    /// A command will not be answered: its connection ended.
    fn part_unanswered(&self, user: u64, exposure: Exposure, generation: u64, qid: u16) {
        let state = &mut *self.state.borrow_mut();
        let index = Key::from_word(user);
        let part = state.parts.get_mut(index);
        let exposed = part.method.modifies() && exposure == Exposure::Possible;
        if exposed {
            part.uncertain = true;
            part.place = Place::Held { generation, qid };
        } else if !matches!(part.place, Place::Held { .. }) {
            part.place = Place::Ready;
        }
        part.answers -= 1;
        if part.answers > 0 || matches!(part.place, Place::Held { .. }) {
            return;
        }
        self.requeue(state, index);
    }

    /// A part that has had no effect, or can have none any more, is tried again, or ends.
    fn requeue(&self, state: &mut State<P>, index: Key) {
        let ended = state.ended || state.profile.is_none();
        let fence_before = state.fence_before;
        let part = state.parts.get_mut(index);
        let flight = state.flights.get_mut(part.flight);
        let fenced = flight.sequence < fence_before && part.method.modifies();
        let error = if part.timed_out {
            VolumeError::TimedOut
        } else if flight.cancelled || fenced {
            VolumeError::Cancelled
        } else if ended {
            VolumeError::Lost
        } else if let Some(error) = flight.error {
            // Another piece failed: this one need not be tried again.
            error
        } else {
            part.place = Place::Ready;
            state.ready.push_back(index);
            return;
        };
        self.end_part(state, index, Err(error));
    }

    fn end_part(&self, state: &mut State<P>, index: Key, result: Result<(), VolumeError>) {
        let part = state.parts.remove(index);
        // An earlier try may have been carried out, whatever is said of the last one.
        let result = result.map_err(|error| match part.uncertain {
            true => error.after_a_part(),
            false => error,
        });
        if part.place == Place::Ready {
            state.ready.retain(|&other| other != index);
        }
        let flight_index = part.flight;
        let flight = state.flights.get_mut(flight_index);
        let is_durable = part.method == Method::Flush
            || part.method.modifies() && force_unit_access(&flight.operation);
        if is_durable && matches!(result, Err(VolumeError::Medium | VolumeError::NoSpace)) {
            // The target may tell of writes that it could not keep once, and of none by name.
            self.shared
                .fail_flushes("the target failed a durable write or a flush");
        }
        flight.parts -= 1;
        if let Err(error) = result {
            let bytes = part.piece.offset << flight.limits.block_size.shift();
            let error = match error {
                // It counts from the start of the piece.
                VolumeError::Miscompare { offset } => VolumeError::Miscompare {
                    offset: bytes + offset,
                },
                error => error,
            };
            flight.error.get_or_insert(error);
            state.stop_starting(flight_index, error);
        }
        let flight = state.flights.get_mut(flight_index);
        let had_no_effect = result.is_err_and(VolumeError::had_no_effect);
        flight.done_in_part |= part.method.modifies() && !had_no_effect;
        if flight.parts == 0 && flight.started == flight.plan.pieces() {
            self.end_flight(state, flight_index);
        }
    }

    fn end_flight(&self, state: &mut State<P>, index: Key) {
        let flight = state.flights.remove(index);
        let result = flight
            .error
            .map_or(Ok(()), |error| match flight.done_in_part {
                true => Err(error.after_a_part()),
                false => Err(error),
            });
        let mut operation = flight.operation;
        if let Operation::Read { buffers, .. } = &mut operation {
            finish_buffers(buffers, result.is_ok(), flight.lent);
        }
        if let Some(sink) = &*self.sink.borrow() {
            sink.complete(Completion {
                token: flight.token,
                result,
                operation,
            });
        }
        if !state.fences.is_empty() || state.leaving != Leaving::No {
            state.wake();
        }
    }

    /// The queue's user is gone: what is in flight ends without a completion, then the queue is disconnected.
    pub(crate) fn leave(self: &Rc<Self>) {
        self.sink.borrow_mut().take();
        let state = &mut *self.state.borrow_mut();
        state.leaving = Leaving::Draining;
        let unstarted: Vec<Key> = state.flights.iter().map(|(index, _)| index).collect();
        for index in unstarted {
            let flight = state.flights.get_mut(index);
            flight.cancelled = true;
            flight.error.get_or_insert(VolumeError::Cancelled);
            state.stop_starting(index, VolumeError::Cancelled);
            if state.flights.get_mut(index).parts == 0 {
                self.end_flight(state, index);
            }
        }
        let idle: Vec<Key> = state
            .parts
            .iter()
            .filter(|(_, part)| matches!(part.place, Place::Ready | Place::Delayed { .. }))
            .map(|(index, _)| index)
            .collect();
        for index in idle {
            self.end_part(state, index, Err(VolumeError::Cancelled));
        }
        state.wake();
    }

    async fn look_after(self: Rc<Self>, alive: impl Sized + 'static) {
        let mut timer = Timer::new(&self.reactor);
        poll_fn(|context| self.poll(context, &mut timer)).await;
        self.shared.leave(&self.member);
        drop(alive);
    }

    fn poll(self: &Rc<Self>, context: &mut Context<'_>, timer: &mut Timer) -> Poll<()> {
        self.state.borrow_mut().waker = Some(context.waker().clone());
        while let Poll::Ready(message) = self.member.inbox.poll_next(context) {
            self.message(message);
        }
        while let Poll::Ready(local) = self.local.poll_next(context) {
            self.local(local);
        }
        if timer.poll_elapsed(context).is_ready() {
            self.look_at_clock();
        }
        self.pump();
        self.report();
        if self.advance_leaving() {
            return Poll::Ready(());
        }
        match self.next_time() {
            Some(time) => {
                timer.set(timer.deadline().map_or(time, |deadline| deadline.min(time)));
                if timer.poll_elapsed(context).is_ready() {
                    context.waker().wake_by_ref();
                    self.look_at_clock();
                }
            }
            None => timer.clear(),
        }
        Poll::Pending
    }

    fn take_messages(self: &Rc<Self>) {
        for message in self.member.inbox.take_those(|_| true) {
            self.message(message);
        }
    }

    fn message(self: &Rc<Self>, message: QueueMessage<P>) {
        match message {
            QueueMessage::Up(association) => self.connect_links(&association),
            QueueMessage::Down(generation) => {
                let state = &mut *self.state.borrow_mut();
                state.association = None;
                state.closing = Some(generation);
                state.abort_links();
            }
            QueueMessage::Fenced(fenced) => {
                self.release(|generation, _| generation == fenced);
            }
            QueueMessage::Fence(fence) => self.fence(fence),
            QueueMessage::Profile(profile) => self.set_profile(profile),
            QueueMessage::Ended => self.end(),
        }
    }

    fn local(self: &Rc<Self>, local: Local<P>) {
        match local {
            Local::Opened(link) => {
                if P::replaces(&self.shared.remote.options) {
                    let (opened, of) = (link.generation, link.qid);
                    self.release(|generation, qid| qid == of && generation < opened);
                }
                let state = &mut *self.state.borrow_mut();
                let current = state
                    .association
                    .as_ref()
                    .is_some_and(|association| association.generation == link.generation);
                if !current || state.leaving != Leaving::No {
                    link.caller.connection.close();
                }
                if !link.caller.connection.is_closed() {
                    state.links.push(*link);
                }
            }
            Local::Failed { generation, reason } => {
                self.shared
                    .home
                    .post(HomeMessage::Failed { generation, reason });
            }
            Local::Disconnected => {
                let state = &mut *self.state.borrow_mut();
                state.leaving = Leaving::Done;
                state.close_links();
            }
        }
    }

    fn connect_links(self: &Rc<Self>, association: &Arc<Association<P>>) {
        let state = &mut *self.state.borrow_mut();
        state.association = Some(Arc::clone(association));
        state.opening.clear();
        for &qid in &self.member.qids {
            let index = state.next_link;
            state.next_link += 1;
            let opened = open_link(Rc::downgrade(self), Arc::clone(association), qid, index);
            state.opening.push(self.reactor.spawn(opened));
        }
    }

    fn set_profile(&self, profile: Option<Profile<P::Identity>>) {
        let state = &mut *self.state.borrow_mut();
        let before = std::mem::replace(&mut state.profile, profile);
        if state.profile.is_some() || before.is_none() {
            return;
        }
        // The medium is gone: what was not sent fails; what was sent is answered.
        let waiting: Vec<Key> = state.waiting.iter().copied().collect();
        for index in waiting {
            state.stop_starting(index, VolumeError::Lost);
            if state.flights.get_mut(index).parts == 0 {
                self.end_flight(state, index);
            }
        }
        self.end_idle(state, VolumeError::Lost);
    }

    /// Ends the parts that are neither in flight nor held.
    fn end_idle(&self, state: &mut State<P>, error: VolumeError) {
        let idle: Vec<Key> = state
            .parts
            .iter()
            .filter(|(_, part)| matches!(part.place, Place::Ready | Place::Delayed { .. }))
            .map(|(index, _)| index)
            .collect();
        for index in idle {
            self.end_part(state, index, Err(error));
        }
    }

    /// The volume has ended. What was sent and may have had an effect is answered when that is certain.
    fn end(&self) {
        let state = &mut *self.state.borrow_mut();
        state.ended = true;
        let waiting: Vec<Key> = state.waiting.iter().copied().collect();
        for index in waiting {
            state.stop_starting(index, VolumeError::Lost);
            if state.flights.get_mut(index).parts == 0 {
                self.end_flight(state, index);
            }
        }
        self.end_idle(state, VolumeError::Lost);
        state.wake();
    }

    /// Nothing can take effect any more of the connections, by generation and number, that `over` names.
    fn release(&self, over: impl Fn(u64, u16) -> bool) {
        let state = &mut *self.state.borrow_mut();
        let held: Vec<Key> = state
            .parts
            .iter()
            .filter(|(_, part)| match part.place {
                Place::Held { generation, qid } => over(generation, qid),
                _ => false,
            })
            .map(|(index, _)| index)
            .collect();
        held.into_iter()
            .for_each(|index| self.requeue(state, index));
    }

    fn fence(&self, fence: u64) {
        let state = &mut *self.state.borrow_mut();
        state.fence_before = state.next_sequence;
        state.fences.push((fence, state.next_sequence));
        if state.association.is_some() {
            return;
        }
        // Nothing can be sent now, so nothing that waits need be.
        let waiting: Vec<Key> = state.waiting.iter().copied().collect();
        for index in waiting {
            let flight = state.flights.get_mut(index);
            if flight.plan.method.modifies() {
                state.stop_starting(index, VolumeError::Cancelled);
                if state.flights.get_mut(index).parts == 0 {
                    self.end_flight(state, index);
                }
            }
        }
        let idle: Vec<Key> = state
            .parts
            .iter()
            .filter(|(_, part)| part.method.modifies())
            .filter(|(_, part)| matches!(part.place, Place::Ready | Place::Delayed { .. }))
            .map(|(index, _)| index)
            .collect();
        idle.into_iter()
            .for_each(|index| self.requeue(state, index));
    }

    /// Tells the home what it waits for.
    fn report(&self) {
        let state = &mut *self.state.borrow_mut();
        let member = self.member.id;
        if let Some(generation) = state.closing
            && state.open == 0
            && state.links.is_empty()
        {
            state.closing = None;
            self.shared
                .home
                .post(HomeMessage::Closed { member, generation });
        }
        if state.fences.is_empty() {
            return;
        }
        let oldest = state
            .flights
            .iter()
            .filter(|(_, flight)| flight.plan.method.modifies())
            .map(|(_, flight)| flight.sequence)
            .min()
            .unwrap_or(u64::MAX);
        for (fence, _) in state.fences.extract_if(.., |(_, before)| *before <= oldest) {
            self.shared
                .home
                .post(HomeMessage::FenceDone { member, fence });
        }
    }

    /// What is due: retries, aborts, and associations whose commands do not end.
    fn look_at_clock(&self) {
        let now = self.reactor.now();
        let state = &mut *self.state.borrow_mut();
        state.starved = false;
        let mut in_flight = false;
        let (mut retry, mut abort, mut fail) = (Vec::new(), Vec::new(), None);
        for (index, part) in state.parts.iter_mut() {
            match part.place {
                Place::Delayed { until } if until <= now => retry.push(index),
                Place::InFlight { generation, .. } => {
                    in_flight = true;
                    if part.deadline > now {
                        continue;
                    }
                    match part.aborted {
                        false => {
                            part.timed_out = true;
                            abort.push(index);
                        }
                        true => {
                            part.deadline = now + ABORT_GRACE;
                            fail = Some(generation);
                        }
                    }
                }
                _ => {}
            }
        }
        state.ticking = in_flight;
        retry
            .into_iter()
            .for_each(|index| self.requeue(state, index));
        abort.into_iter().for_each(|index| self.abort(state, index));
        if let Some(generation) = fail {
            let reason = "a command ends neither by itself nor by Abort".to_owned();
            self.shared
                .home
                .post(HomeMessage::Failed { generation, reason });
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let state = self.state.borrow();
        let now = self.reactor.now();
        let delayed = state.parts.iter().filter_map(|(_, part)| match part.place {
            Place::Delayed { until } => Some(until),
            _ => None,
        });
        let tick = state.ticking.then(|| {
            let tick = self.shared.patience.io_timeout / 8;
            now + tick.clamp(Duration::from_millis(20), Duration::from_secs(1))
        });
        let starved = state.starved.then(|| now + POOL_POLL);
        delayed.chain(tick).chain(starved).min()
    }

    /// Goes on with leaving; true when the queue is no more.
    fn advance_leaving(self: &Rc<Self>) -> bool {
        let state = &mut *self.state.borrow_mut();
        match state.leaving {
            Leaving::No => false,
            Leaving::Draining if !state.parts.is_empty() || !state.fences.is_empty() => false,
            Leaving::Draining => {
                state.leaving = Leaving::Disconnecting;
                state.opening.clear();
                let association = state.association.clone();
                let callers = state.links.iter().filter(|_| association.is_some());
                let callers: Vec<Caller<P::Wire>> =
                    callers.map(|link| link.caller.clone()).collect();
                let queue = Rc::downgrade(self);
                self.reactor
                    .spawn(async move {
                        for caller in callers {
                            if let Some(association) = &association {
                                P::farewell(&caller, association).await;
                            }
                        }
                        if let Some(queue) = queue.upgrade() {
                            queue.local.post(Local::Disconnected);
                        }
                    })
                    .detach();
                false
            }
            Leaving::Disconnecting => false,
            Leaving::Done => state.open == 0 && state.links.is_empty() && state.closing.is_none(),
        }
    }

    fn link_ended(&self, index: u64, generation: u64, reason: &EndReason) {
        let state = &mut *self.state.borrow_mut();
        state.open -= 1;
        state.links.retain(|link| link.index != index);
        state.wake();
        // A target closes what was disconnected; that ends this queue alone.
        let expected = matches!(state.leaving, Leaving::Disconnecting | Leaving::Done);
        if *reason != EndReason::Closed && !expected {
            let reason = format!("I/O queue: {reason}");
            self.shared
                .home
                .post(HomeMessage::Failed { generation, reason });
        }
    }
}

impl<P: Protocol> State<P> {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The connection with the most room.
    fn best_link(&self) -> Option<usize> {
        let room = |link: &Link<P>| link.caller.connection.room();
        let links = self.links.iter().enumerate();
        let rooms = links.map(|(index, link)| (room(link), index));
        rooms
            .filter(|(room, _)| *room > 0)
            .max_by_key(|&(room, index)| (room, std::cmp::Reverse(index)))
            .map(|(_, index)| index)
    }

    /// No further piece of this request is started; where that leaves one undone, the request fails with `error`, however
    /// those that were started end.
    fn stop_starting(&mut self, index: Key, error: VolumeError) {
        let flight = self.flights.get_mut(index);
        let pieces = flight.plan.pieces();
        if flight.started < pieces {
            flight.started = pieces;
            flight.error.get_or_insert(error);
            self.waiting.retain(|&other| other != index);
        }
    }

    fn abort_links(&mut self) {
        self.opening.clear();
        for link in &self.links {
            link.caller.connection.abort();
        }
    }

    fn close_links(&mut self) {
        self.opening.clear();
        for link in &self.links {
            link.caller.connection.close();
        }
    }
}

/// Makes the connection of I/O queue `qid`, and says so, or that it failed.
async fn open_link<P: Protocol>(
    queue: Weak<IoQueue<P>>,
    association: Arc<Association<P>>,
    qid: u16,
    index: u64,
) {
    let generation = association.generation;
    let result = try_open_link(&queue, &association, qid, index).await;
    if let (Err(reason), Some(queue)) = (result, queue.upgrade()) {
        let reason = format!("I/O queue {qid}: {reason}");
        queue.local.post(Local::Failed { generation, reason });
    }
}

async fn try_open_link<P: Protocol>(
    queue: &Weak<IoQueue<P>>,
    association: &Arc<Association<P>>,
    qid: u16,
    index: u64,
) -> Result<(), String> {
    let mut last = String::new();
    for attempt in 0..QUEUE_CONNECTS {
        let Some(strong) = queue.upgrade() else {
            return Ok(());
        };
        let (reactor, shared) = (strong.reactor.clone(), Arc::clone(&strong.shared));
        drop(strong);
        if attempt > 0 {
            reactor.sleep(QUEUE_CONNECT_DELAY).await;
        }
        let stream = connect(
            &reactor,
            &[association.address],
            &P::common(&shared.remote.options).socket_options(),
            CONNECT_TIMEOUT,
        )
        .await
        .map_err(|error| error.to_string())?;
        let Some(strong) = queue.upgrade() else {
            return Ok(());
        };
        let calls = Rc::<Calls<P::Wire>>::default();
        let owner = Rc::new(LinkOwner {
            queue: queue.clone(),
            calls: Rc::clone(&calls),
            index,
            generation: association.generation,
            qid,
        });
        let wire = P::wire(&reactor, &shared.remote, association, qid);
        strong.state.borrow_mut().open += 1;
        let connection = Connection::start(&reactor, stream, wire, owner);
        drop(strong);
        let caller = Caller {
            reactor: reactor.clone(),
            connection,
            calls,
        };
        let guard = CloseOnDrop::new(&caller.connection);
        match P::greet(&caller, &shared.remote, association, qid).await {
            Ok(()) => {
                let Some(queue) = queue.upgrade() else {
                    return Ok(());
                };
                guard.disarm();
                queue.local.post(Local::Opened(Box::new(Link {
                    index,
                    qid,
                    generation: association.generation,
                    caller,
                })));
                queue.state.borrow_mut().wake();
                return Ok(());
            }
            Err(LinkFailure { reason, again }) if again => last = reason,
            Err(LinkFailure { reason, .. }) => return Err(reason),
        }
    }
    Err(last)
}

/// What a link's connection tells, to the queue or to its calls.
struct LinkOwner<P: Protocol> {
    queue: Weak<IoQueue<P>>,
    calls: Rc<Calls<P::Wire>>,
    index: u64,
    generation: u64,
    qid: u16,
}

impl<P: Protocol> Commands<<P::Wire as Wire>::Answer> for LinkOwner<P> {
    fn data(&self, user: u64, offset: u32, bytes: &[u8]) {
        if user & CALL != 0 {
            self.calls.data(user, offset, bytes);
        } else if let Some(queue) = self.queue.upgrade() {
            queue.part_data(Key::from_word(user), offset, bytes);
        }
    }

    fn answer(&self, user: u64, answer: <P::Wire as Wire>::Answer) {
        if user & CALL != 0 {
            self.calls.answer(user, answer);
        } else if let Some(queue) = self.queue.upgrade() {
            queue.part_answer(user, &answer);
        }
    }
}

impl<P: Protocol> Owner<P::Wire> for LinkOwner<P> {
    fn settled(&self) {
        self.calls.settled();
        if let Some(queue) = self.queue.upgrade() {
            queue.pump();
        }
    }

    fn unanswered(&self, user: u64, exposure: Exposure) {
        if user & CALL != 0 {
            self.calls.unanswered(user, exposure);
        } else if let Some(queue) = self.queue.upgrade() {
            queue.part_unanswered(user, exposure, self.generation, self.qid);
        }
    }

    fn ended(&self, reason: EndReason) {
        self.calls.ended(reason.clone());
        if let Some(queue) = self.queue.upgrade() {
            queue.link_ended(self.index, self.generation, &reason);
        }
    }
}

/// Keeps the verdict that says most: a failure rather than that of the command that was aborted with it, whichever is answered first.
fn note<Tag>(part: &mut Part<Tag>, verdict: Verdict) {
    let says_why = !matches!(part.found, None | Some(Verdict::AbortedWithOther));
    if !says_why && verdict != Verdict::Done {
        part.found = Some(verdict);
    }
}

/// Takes memory for the data of a read; false when there is none now.
fn lend(reactor: &Reactor, operation: &mut Operation, shift: u32) -> bool {
    let Operation::Read {
        blocks, buffers, ..
    } = operation
    else {
        return true;
    };
    let mut left = (*blocks as usize) << shift;
    let mut segments = Segments::new();
    while left > 0 {
        let length = left.min(Pool::LONGEST);
        let Ok(segment) = reactor.pool().segment(length) else {
            return false;
        };
        segments.push(segment);
        left -= length;
    }
    *buffers = ReadBuffers::Into(segments);
    true
}

/// What a read's buffers become at its end: the data, or what they were.
fn finish_buffers(buffers: &mut ReadBuffers, succeeded: bool, lent: bool) {
    if !succeeded {
        if lent {
            *buffers = ReadBuffers::Lend;
        }
        return;
    }
    if let ReadBuffers::Into(segments) = buffers {
        let views: Views = segments.drain(..).map(Segment::freeze).collect();
        *buffers = ReadBuffers::Filled(views);
    }
}

/// Copies `bytes` to where they belong, `at` bytes from the start of the segments.
fn copy_into(segments: &mut Segments, mut at: usize, mut bytes: &[u8]) {
    for segment in segments {
        if at >= segment.len() {
            at -= segment.len();
            continue;
        }
        let length = bytes.len().min(segment.len() - at);
        let (head, rest) = bytes.split_at(length);
        segment[at..at + length].copy_from_slice(head);
        bytes = rest;
        at = 0;
        if bytes.is_empty() {
            return;
        }
    }
    assert!(bytes.is_empty(), "a part's data lies within its request's");
}

/// The first byte, counted from the start of `views`, that differs from `bytes`, which belong `at` bytes from it.
fn first_difference(views: &[View], at: usize, bytes: &[u8]) -> Option<usize> {
    let expected = slice_views(views, at, bytes.len());
    let mut done = 0;
    for view in expected {
        let found = &bytes[done..done + view.len()];
        if *view != *found {
            let differs = view.iter().zip(found).position(|(one, other)| one != other);
            return differs.map(|position| at + done + position);
        }
        done += view.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_memory::Gather;
    use weir_reactor::sim::{Config, Simulation};
    use weir_reactor::{SocketOptions, TcpListener, TcpStream};

    use super::*;

    /// A protocol that says nothing.
    struct Silent;

    impl Wire for Silent {
        type Answer = ();
        type Fault = String;

        fn room(&self) -> usize {
            1
        }

        fn fault(&self) -> Option<&String> {
            None
        }

        fn has_output(&self) -> bool {
            false
        }

        fn transmit(&mut self, _: &mut Gather) {}

        fn receive(&mut self, _: &[u8], _: &dyn Commands<()>) {}

        fn take_unanswered(&mut self) -> Vec<(u64, Exposure)> {
            Vec::new()
        }
    }

    #[test]
    fn a_connection_that_was_left_open_is_gone_when_it_has_ended() {
        let simulation = Simulation::new(Config::default());
        simulation.run(0, |reactor| async move {
            let address = "127.0.0.1:4420".parse().unwrap();
            let options = SocketOptions::default();
            let system = Arc::clone(reactor.system());
            let listener = system.listen(address, &options).unwrap();
            let listener = TcpListener::new(&reactor, listener);
            let stream = TcpStream::connect(&reactor, address, &options).await;
            let _target = listener.accept().await.unwrap();
            let calls = Rc::<Calls<Silent>>::default();
            let connection = Connection::start(&reactor, stream.unwrap(), Silent, calls);
            CloseOnDrop::new(&connection).disarm();
            assert!(!connection.is_closed());
            let weak = Rc::downgrade(&connection);
            connection.close();
            drop(connection);
            reactor.sleep(Duration::from_secs(1)).await;
            assert!(weak.upgrade().is_none(), "something holds on to it");
        });
    }
}
