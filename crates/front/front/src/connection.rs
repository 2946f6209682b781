//! One connection: between its socket, its session and the volumes.
//!
//! A connection is one task on its reactor. Each time that it runs it takes what was received, what completed and what it was
//! told, hands one batch to each volume, and sends all that is ready at once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{CompletionSink, Completions};
use weir_memory::{Gather, View};
use weir_reactor::{
    Amount, DetachedStream, Instant, ReceiveInto, Received, Shutdown, TcpStream, Timer,
};

use crate::account::{Kept, Lack};
use crate::arrivals::Source;
use crate::entry::{Entry, Handle, Message};
use crate::latency::Latency;
use crate::protocol::Protocol;
use crate::session::{End, Progress, Session};
use crate::shard::{Line, Shard};
use crate::watch::{Stall, Standing, Watch};

/// Rounds that a connection works in one go before the others of its reactor have their turn.
const ROUNDS_MAX: usize = 16;
/// After how long a connection that waits for a buffer looks again.
const BUFFER_RETRY: Duration = Duration::from_millis(1);
/// Bytes of input that the connections of one reactor keep outside of all pools before none is given a large buffer to receive
/// into: beyond these, each keeps a usual receive at most.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// Bytes of large receives that are under way at most when that bound is met.
const LARGE_RECEIVES_BYTES: usize = 2 << 20;
/// Bytes of a receive of usual size at most.
const RECEIVE_BYTES_MAX: usize = 32 << 10;
/// Pieces of a send beyond which the memory of their list is not kept for the next one.
const PIECES_KEPT: usize = 600;
/// For how long a connection that ends waits for the peer to take what was sent last.
const LINGER: Duration = Duration::from_secs(1);

/// What the runtime keeps at worst on one reactor, in bytes, beside the reactor's pool and receive buffers, whatever the number of
/// connections.
pub const REACTOR_BYTES_MAX: usize = KEPT_BYTES_MAX + LARGE_RECEIVES_BYTES;

/// What the runtime keeps at worst for one connection, its session without its lists included, in bytes.
#[must_use]
pub const fn connection_bytes_max<S: Session>() -> usize {
    /// The list that is being sent, and the one that is written meanwhile.
    const GATHERS: usize = 2;
    let own = size_of::<Connection<S>>() + size_of::<Entry<S::Protocol>>() + size_of::<Moving<S>>();
    let pieces = GATHERS * PIECES_KEPT.next_power_of_two() * size_of::<View>();
    own + pieces + RECEIVE_BYTES_MAX + Latency::MEMORY_BYTES_MAX
}

/// What became of a connection's task.
enum Outcome {
    Ended(End),
    Moved,
}

/// A connection on its way to another reactor.
struct Moving<S: Session> {
    stream: DetachedStream,
    input: Vec<u8>,
    handle: Handle<<S::Protocol as Protocol>::Message>,
    local: SocketAddr,
    port: <S::Protocol as Protocol>::Port,
    session: S::Moving,
    bytes: (u64, u64),
}

/// How far a connection that ends has come.
enum Ending {
    /// What was written is being sent.
    Flushing(End),
    /// All was sent; the peer is given time to take it.
    Lingering(End),
}

/// What is being received.
enum Receiving {
    Nothing,
    Ring,
    /// Into a segment of the session's, from this byte on.
    Direct(usize),
}

struct Connection<S: Session> {
    line: Line<S::Protocol>,
    session: S,
    /// None once it was moved or closed.
    stream: Option<TcpStream>,
    input: View,
    /// What of the input is kept outside of all pools.
    kept: Kept,
    /// It is among those that wait for buffers of the reactor.
    waits_for_buffers: bool,
    /// It is among those that wait for room in the account of the reactor.
    waits_for_bytes: bool,
    /// Commands wait for room that its own commands take.
    waits_for_itself: bool,
    /// Bytes of the last receive into the ring.
    last_received: usize,
    receiving: Receiving,
    blocked: bool,
    out: Gather,
    /// The list of the last send, to be written next.
    spare: Gather,
    ending: Option<Ending>,
    is_given_up: bool,
    /// Its handshake is not over.
    is_new: bool,
    /// Handshake, keep-alive or lingering.
    timer: Timer,
    retry: Timer,
    /// When the host's progress is looked at next; set by what it does and is sent.
    progress: Timer,
    /// The timer was set since it was last polled.
    progress_is_new: bool,
    watch: Watch,
    /// Input was not taken at some time since the host's progress was last looked at.
    was_blocked: bool,
    /// Sends so far.
    sends: u64,
    granted_keep_alive: Option<Duration>,
}

/// Serves a connection that was just accepted.
pub(crate) fn accepted<S: Session>(
    shard: &Rc<Shard<S::Protocol>>,
    stream: TcpStream,
    local: SocketAddr,
    port: <S::Protocol as Protocol>::Port,
    source: Source,
) {
    let handle = Handle::new(shard.shared.next_id());
    let line = enter(shard, handle, stream.peer_address(), local, port);
    line.entry.half_open.set(Some(source));
    let session = S::accepted(line.clone());
    let mut connection = Connection::new(line, session, stream);
    let deadline = connection.now() + shard.shared.limits.handshake_timeout;
    connection.timer.set(deadline);
    connection.is_new = true;
    start(connection);
}

/// Sends a connection to the reactor that it belongs on.
fn hand_over<S: Session>(shard: &Shard<S::Protocol>, reactor: usize, moving: Moving<S>) {
    // A cell, so that the connection is not lost with the work when nobody takes it.
    let cell = Arc::new(Mutex::new(Some(moving)));
    let taken = Arc::clone(&cell);
    let sent = shard.parts.send(reactor, move |shard| {
        let moving = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        moved_in(shard, moving.expect("work is done once"));
    });
    if !sent && let Some(moving) = cell.lock().unwrap_or_else(PoisonError::into_inner).take() {
        S::lost_on_the_way(&shard.shared.own, moving.session);
        shard.shared.admission.connection_ended();
    }
}

/// Serves a connection that was moved here.
fn moved_in<S: Session>(shard: &Rc<Shard<S::Protocol>>, moving: Moving<S>) {
    let stream = moving.stream.attach(&shard.hub.reactor);
    moving.handle.mailbox.moved();
    let peer = stream.peer_address();
    let line = enter(shard, moving.handle, peer, moving.local, moving.port);
    line.entry.bytes_received.set(moving.bytes.0);
    line.entry.bytes_sent.set(moving.bytes.1);
    let mut out = Gather::new();
    let session = S::moved_in(line.clone(), moving.session, &mut out);
    let mut connection = Connection::new(line, session, stream);
    connection.out = out;
    connection.input = View::copy_of(&moving.input);
    connection.kept.set(moving.input.len());
    start(connection);
}

fn enter<P: Protocol>(
    shard: &Rc<Shard<P>>,
    handle: Handle<P::Message>,
    peer: SocketAddr,
    local: SocketAddr,
    port: P::Port,
) -> Line<P> {
    let completions = Completions::new();
    let sink: Rc<dyn CompletionSink> = completions.clone();
    let entry = Rc::new(Entry {
        handle,
        peer,
        local,
        port,
        about: RefCell::default(),
        owner: shard.hub.router.add(sink),
        latency: RefCell::default(),
        in_flight: Cell::new(0),
        bytes_received: Cell::new(0),
        bytes_sent: Cell::new(0),
        revoked: RefCell::default(),
        half_open: Cell::new(None),
        seen: Cell::new(0),
        options: RefCell::default(),
        completions,
        running: RefCell::default(),
    });
    shard
        .connections
        .borrow_mut()
        .insert(entry.handle.id, Rc::clone(&entry));
    Line {
        shard: Rc::clone(shard),
        entry,
    }
}

fn start<S: Session>(mut connection: Connection<S>) {
    let line = connection.line.clone();
    *line.entry.running.borrow_mut() = connection.session.commands().shared_running();
    let reactor = line.shard.hub.reactor.clone();
    let life = live(line, Rc::new(RefCell::new(connection)));
    reactor.spawn(life).detach();
}

/// The whole life of a connection on one reactor. What it submitted is waited for whatever happens, a panic included.
async fn live<S: Session>(line: Line<S::Protocol>, connection: Rc<RefCell<Connection<S>>>) {
    let Line { shard, entry } = &line;
    let mut mailbox = OpenMailbox(Some(Rc::clone(entry)));
    let inner = Rc::clone(&connection);
    let served = shard
        .hub
        .reactor
        .spawn_isolated(poll_fn(move |context| inner.borrow_mut().poll(context)))
        .await;
    let moved = matches!(served, Ok(Outcome::Moved));
    match served {
        Ok(Outcome::Moved) => {}
        Ok(Outcome::Ended(end)) => log_end(shard, entry, &end),
        Err(panicked) => {
            shard.counters.panics.add(1);
            tracing::error!(
                connection = entry.handle.id, peer = %entry.peer, panic = panicked.message,
                "a broken invariant ended a connection"
            );
        }
    }
    if moved {
        // Its messages are read where it goes on.
        mailbox.0 = None;
    } else {
        connection.borrow_mut().give_up();
        // From here on this task reads them.
        entry.handle.mailbox.moved();
    }
    {
        // Nothing is held any more but by what runs.
        let connection = &mut *connection.borrow_mut();
        connection.stream = None;
        connection.input = View::empty();
        connection.kept.set(0);
    }
    shard.hub.leave_turns(entry.owner);
    poll_fn(|context| connection.borrow_mut().poll_run_out(context)).await;
    drop(mailbox);
    shard.hub.router.remove(entry.owner);
    shard.forget(entry);
    if !moved {
        connection.borrow_mut().session.ended();
        line.leave_half_open();
        shard.shared.admission.connection_ended();
    }
    // Its data is in flight no more.
    drop(connection);
    shard.hub.count_in_flight();
}

fn log_end<P: Protocol>(shard: &Shard<P>, entry: &Entry<P>, end: &End) {
    let (id, counters) = (entry.handle.id, &shard.counters);
    match end {
        End::Broken(_) => counters.terminated.add(1),
        End::Handshake(_) => counters.handshake_timeouts.add(1),
        End::KeepAliveExpired => counters.keep_alive_expiries.add(1),
        End::Lost(_) => counters.lost.add(1),
        End::Stalled(Stall::Arriving) => counters.stalled_arriving.add(1),
        End::Stalled(Stall::Awaited) => counters.stalled_awaited.add(1),
        End::Stalled(Stall::Sending) => counters.stalled_sending.add(1),
        _ => {}
    }
    match end {
        End::Closed | End::Disconnected | End::Dismissed(_) => {
            tracing::debug!(connection = id, peer = %entry.peer, "connection ended: {end}");
        }
        _ => tracing::warn!(connection = id, peer = %entry.peer, "connection ended: {end}"),
    }
}

/// Closes the mailbox of a connection when it is dropped, also when the reactor stops. Messages that are left are declined, so
/// that no sender waits for ever.
struct OpenMailbox<P: Protocol>(Option<Rc<Entry<P>>>);

impl<P: Protocol> Drop for OpenMailbox<P> {
    fn drop(&mut self) {
        if let Some(entry) = &self.0 {
            let left = entry.handle.mailbox.close();
            left.into_iter().for_each(decline::<P>);
        }
    }
}

/// A message comes too late; senders of answers are dropped, which says so too.
fn decline<P: Protocol>(message: Message<P::Message>) {
    if let Message::Own(message) = message {
        P::decline(message);
    }
}

impl<S: Session> Connection<S> {
    fn new(line: Line<S::Protocol>, session: S, stream: TcpStream) -> Self {
        let hub = &line.shard.hub;
        Connection {
            session,
            stream: Some(stream),
            input: View::empty(),
            kept: Kept::none(&hub.kept),
            waits_for_buffers: false,
            waits_for_bytes: false,
            waits_for_itself: false,
            last_received: 0,
            receiving: Receiving::Nothing,
            blocked: false,
            out: Gather::new(),
            spare: Gather::new(),
            ending: None,
            is_given_up: false,
            is_new: false,
            timer: Timer::new(&hub.reactor),
            retry: Timer::new(&hub.reactor),
            progress: Timer::new(&hub.reactor),
            progress_is_new: false,
            watch: Watch::new(line.shard.shared.limits.progress_timeout),
            was_blocked: false,
            sends: 0,
            granted_keep_alive: None,
            line,
        }
    }

    fn shard(&self) -> &Shard<S::Protocol> {
        &self.line.shard
    }

    fn now(&self) -> Instant {
        self.line.now()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        for _ in 0..ROUNDS_MAX {
            if self.ending.is_some() {
                return self.poll_ending(context);
            }
            match self.round(context) {
                Ok(true) => {}
                Ok(false) => match self.ready_to_move() {
                    Some(reactor) => {
                        self.move_out(reactor);
                        return Poll::Ready(Outcome::Moved);
                    }
                    None => return Poll::Pending,
                },
                Err(end) => self.begin_ending(end),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// One round of work; whether there may be more.
    fn round(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let now = self.now();
        self.session.commands().set_now(now);
        let (hub, owner) = (&self.line.shard.hub, self.line.entry.owner);
        self.session.room().set_turns(
            hub.turns.is_turn_of(owner),
            hub.account_turns.is_turn_of(owner),
        );
        let mut worked = self.take_messages(context)?;
        if self.line.entry.seen.get() != self.shard().generation() {
            self.renew().map_err(End::Told)?;
        }
        worked |= self.take_completions(context);
        worked |= self.take_received(context)?;
        self.process_input()?;
        self.act()?;
        worked |= self.after_commands(context);
        worked |= self.poll_timers(context)?;
        worked |= self.send(context)?;
        self.start_receiving();
        Ok(worked)
    }

    /// Has the session take over what its host sees now.
    fn renew(&mut self) -> Result<(), &'static str> {
        self.line.entry.seen.set(self.shard().generation());
        let renewed = self.session.renew();
        self.note_revoked();
        renewed
    }

    /// Has others see what is under way of what the host may not do any more.
    fn note_revoked(&mut self) {
        if let Some(revoked) = self.session.commands().revoked() {
            *self.line.entry.revoked.borrow_mut() = revoked;
        }
    }

    /// A message comes when the connection serves no more, but something of it may be under way.
    fn message_too_late(&mut self, message: Message<<S::Protocol as Protocol>::Message>) {
        if let Message::Look(_) = &message {
            self.session.revoke();
            self.note_revoked();
        }
        if let Message::Rights(news) = &message {
            self.session.rights_changed(news);
            self.note_revoked();
        }
        if let Message::Own(message) = message {
            self.session.late_message(message);
        }
    }

    fn take_messages(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut worked = false;
        while let Poll::Ready(message) = self.line.entry.handle.mailbox.poll_next(context) {
            worked = true;
            self.message(message)?;
        }
        Ok(worked)
    }

    fn message(&mut self, message: Message<<S::Protocol as Protocol>::Message>) -> Result<(), End> {
        match message {
            Message::Look(taken_over) => {
                self.renew().map_err(End::Told)?;
                taken_over.send(());
            }
            Message::Announce => {
                if self.renew().is_ok() {
                    self.session.announce();
                } else {
                    // The next round sees it.
                    self.line.look_again();
                }
            }
            Message::End(reason) => return Err(End::Told(reason)),
            Message::Unfenced(volume) => {
                if self.session.commands().waits_for_volume(&volume) {
                    return Err(End::Unfenced);
                }
            }
            Message::Rights(news) => {
                self.session.rights_changed(&news);
                self.note_revoked();
            }
            Message::ShuttingDown => self.session.shutting_down(),
            Message::Report(reply) => {
                let report = self.stream.as_ref().map(TcpStream::report);
                reply.send(report.and_then(Result::ok));
            }
            Message::Own(message) => self.session.message(message)?,
        }
        Ok(())
    }

    fn take_completions(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        let completions = &self.line.entry.completions;
        while let Poll::Ready(completion) = completions.poll_pop(context) {
            worked = true;
            self.session.completed(completion, completions);
        }
        worked
    }

    fn take_received(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let Some(stream) = &self.stream else {
            return Ok(false);
        };
        let Poll::Ready(received) = stream.poll_received(context) else {
            return Ok(false);
        };
        let receiving = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        let count = match (received?, receiving) {
            (Received::Ring(view), _) => {
                let count = view.len();
                self.last_received = count;
                self.input = view;
                count
            }
            (Received::Segment(segment, count), Receiving::Direct(from)) => {
                let full = from + count == segment.len();
                self.session.received_directly(segment, count);
                if full { count } else { 0 }
            }
            (received, _) => unreachable!("{received:?} was not asked for"),
        };
        if count == 0 {
            return Err(End::Closed);
        }
        self.watch_progress();
        let entry = &self.line.entry;
        entry
            .bytes_received
            .set(entry.bytes_received.get() + count as u64);
        self.shard().counters.bytes_received.add(count as u64);
        self.session.heard();
        Ok(true)
    }

    fn process_input(&mut self) -> Result<(), End> {
        match self.session.receive(&mut self.input, &mut self.out)? {
            Progress::Hungry => self.blocked = false,
            Progress::Blocked => {
                (self.blocked, self.was_blocked) = (true, true);
                self.keep_input_apart();
            }
        }
        Ok(())
    }

    /// What is left of the input stays for as long as the host or a volume likes: it must not keep what other connections
    /// receive into. What it is copied to is no buffer of the reactor's pool, for which the connection may be waiting.
    fn keep_input_apart(&mut self) {
        if self.shard().hub.reactor.pool().is_of_another(&self.input) {
            self.input = View::copy_of(&self.input);
            self.kept.set(self.input.len());
        }
    }

    fn act(&mut self) -> Result<(), End> {
        self.session.act()?;
        if self.is_new && self.line.entry.half_open.get().is_none() {
            self.is_new = false;
            self.timer.clear();
        }
        self.set_options();
        Ok(())
    }

    /// Gives the socket the options that the session wants.
    fn set_options(&self) {
        if let Some(options) = self.line.entry.take_options()
            && let Some(stream) = &self.stream
            && let Err(error) = stream.set_options(&options)
        {
            let connection = self.line.entry.handle.id;
            tracing::warn!(connection, %error, "the host's socket options were not set");
        }
    }

    /// Hands the volumes their requests, takes what they do at once, and writes what is to be sent. Whether there may be more to do.
    fn after_commands(&mut self, context: &mut Context<'_>) -> bool {
        self.session.prepare();
        self.line.entry.completions.forget_waker();
        self.session.commands().pump();
        let worked = self.take_completions(context);
        self.note_revoked();
        self.session.settle();
        self.line.entry.in_flight.set(self.session.in_flight());
        if !self.is_new {
            self.follow_keep_alive();
        }
        self.session.write(&mut self.out);
        self.take_turns(context);
        worked
    }

    /// Waits among the others for what the reactor has too little of, or no longer.
    fn take_turns(&mut self, context: &Context<'_>) {
        let wants = self.session.wants(self.blocked);
        let room = self.session.room();
        let (lack, had_its_turn) = (wants.waits.then(|| room.lack()), room.take_grant());
        let (shard, owner) = (&*self.line.shard, self.line.entry.owner);
        let hub = &shard.hub;
        if !wants.look_again {
            self.retry.clear();
        } else if self.retry.deadline().is_none() {
            self.retry.set(hub.reactor.now() + BUFFER_RETRY);
        }
        // A connection at the front for buffers keeps that place while it waits for room in the account. The reverse does not hold:
        // a connection that lacks no buffer must not wait for one.
        let for_buffers = wants.is_starved
            || lack == Some(Lack::Buffer)
            || lack == Some(Lack::Account) && self.waits_for_buffers;
        let for_bytes = lack == Some(Lack::Account);
        if had_its_turn {
            // A grant ends this connection's turn, so a greedy one cannot starve the rest.
            hub.leave_turns(owner);
            (self.waits_for_buffers, self.waits_for_bytes) = (false, false);
        }
        let begins = (
            for_buffers && !self.waits_for_buffers,
            for_bytes && !self.waits_for_bytes,
        );
        if begins.0 {
            hub.turns.wait(owner, context.waker());
        } else if !for_buffers && self.waits_for_buffers {
            hub.turns.leave(owner);
        }
        if begins.1 {
            hub.account_turns.wait(owner, context.waker());
        } else if !for_bytes && self.waits_for_bytes {
            hub.account_turns.leave(owner);
        }
        if begins != (false, false) {
            shard.counters.buffer_waits.add(1);
            hub.count_wait(shard.index);
        }
        (self.waits_for_buffers, self.waits_for_bytes) = (for_buffers, for_bytes);
        let for_itself = lack == Some(Lack::Own);
        if for_itself && !self.waits_for_itself {
            shard.counters.own_waits.add(1);
        }
        self.waits_for_itself = for_itself;
        hub.count_in_flight();
        // What came back here is another's whose turn it is.
        hub.turns.look(owner);
        hub.account_turns.look(owner);
    }

    /// Lets the host be silent for as long as the session says.
    fn follow_keep_alive(&mut self) {
        let timeout = self.session.keep_alive();
        if self.granted_keep_alive != timeout {
            self.granted_keep_alive = timeout;
            match timeout {
                Some(timeout) => self.timer.set(self.now() + timeout),
                None => self.timer.clear(),
            }
        }
    }

    /// Looks at what is due; whether there may be more to do.
    fn poll_timers(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut worked = false;
        while self.timer.poll_elapsed(context).is_ready() {
            let Some(timeout) = self.granted_keep_alive else {
                return Err(End::Handshake(S::HANDSHAKE_TIMEOUT));
            };
            if !self.session.take_traffic() {
                return Err(End::KeepAliveExpired);
            }
            let deadline = self.now() + timeout;
            self.timer.set(deadline);
            worked = true;
        }
        if self.retry.poll_elapsed(context).is_ready() {
            context.waker().wake_by_ref();
        }
        let due = self.progress.deadline().is_some_and(|at| at <= self.now());
        if due && self.progress.poll_elapsed(context).is_ready() {
            self.look_at_progress()?;
        }
        // Once is enough: it is always the same task that it wakes.
        if std::mem::take(&mut self.progress_is_new) {
            let _ = self.progress.poll_elapsed(context);
        }
        Ok(worked)
    }

    /// Has the host's progress looked at from now on, until it has nothing to do.
    fn watch_progress(&mut self) {
        if self.progress.deadline().is_none() {
            let deadline = self.now() + self.shard().shared.limits.progress_timeout;
            self.progress.set(deadline);
            self.progress_is_new = true;
        }
    }

    fn look_at_progress(&mut self) -> Result<(), End> {
        let standing = self.standing();
        if self.watch.look(standing).map_err(End::Stalled)? {
            self.watch_progress();
        }
        Ok(())
    }

    /// What the host has to do now.
    fn standing(&mut self) -> Standing {
        let Some(stream) = &self.stream else {
            return Standing::default();
        };
        let mut standing = Standing {
            is_held_up: self.blocked || !self.session.takes_input(),
            was_held_up: std::mem::take(&mut self.was_blocked),
            sending: stream.is_sending().then_some(self.sends),
            unsent: self.session.commands().unsent_bytes(),
            ..Standing::default()
        };
        if !standing.is_held_up {
            standing.arriving = self.session.arriving();
            standing.awaited = self.session.look_at_awaited();
        }
        if !standing.is_settled() {
            // What the kernel has taken in, and handed over: a receive or a send under way tells nothing.
            let report = stream.report().unwrap_or_default();
            standing.received = report.bytes_received;
            standing.taken = report.bytes_acknowledged;
        }
        standing
    }

    /// Sends all that is ready. Returns whether a send ended or began: then there may be more to do.
    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let Some(stream) = &self.stream else {
            return Ok(false);
        };
        let mut worked = false;
        if stream.is_sending()
            && let Poll::Ready((result, mut gather)) = stream.poll_sent(context)
        {
            result?;
            self.sent();
            worked = true;
            if gather.slice_count() > PIECES_KEPT {
                gather = Gather::new();
            }
            gather.clear();
            self.spare = gather;
        }
        let idle = self
            .stream
            .as_ref()
            .is_some_and(|stream| !stream.is_sending());
        if idle && !self.out.is_empty() {
            let spare = std::mem::take(&mut self.spare);
            let ready = std::mem::replace(&mut self.out, spare);
            self.start_send(ready);
            // The task must be woken at its end.
            worked = true;
        }
        Ok(worked)
    }

    /// A send ended, and with it the commands whose answers it was.
    fn sent(&mut self) {
        let now = self.now();
        self.session.send_ended();
        let (bytes, mut runs) = self.session.commands().send_ended();
        runs.drain(|run| {
            let attached = self.session.attached(run.export());
            self.line
                .record(run, attached.map(|attached| &**attached), now);
        });
        self.session.commands().keep_runs(runs);
        self.session.room().give_back(bytes);
    }

    fn start_send(&mut self, gather: Gather) {
        self.sends += 1;
        self.watch_progress();
        self.session.send_began();
        self.session.commands().send_began();
        let bytes = gather.len() as u64;
        let Line { shard, entry } = &self.line;
        shard.counters.bytes_sent.add(bytes);
        shard.counters.sends.add(1);
        entry.bytes_sent.set(entry.bytes_sent.get() + bytes);
        self.stream
            .as_ref()
            .expect("a connection that sends is open")
            .start_send(gather);
    }

    fn start_receiving(&mut self) {
        let waits = self.blocked || !self.session.takes_input();
        let Some(stream) = &self.stream else {
            return;
        };
        if waits || stream.is_receiving() || !self.input.is_empty() {
            return;
        }
        self.kept.set(0);
        match self.session.direct() {
            Some((segment, from)) => {
                self.receiving = Receiving::Direct(from);
                stream.start_receive(ReceiveInto::Segment { segment, from });
            }
            None => {
                self.receiving = Receiving::Ring;
                let amount = match self.session.expects(self.last_received) {
                    Amount::Bulk if self.kept.of_all() >= KEPT_BYTES_MAX => Amount::Usual,
                    amount => amount,
                };
                stream.start_receive(ReceiveInto::Ring(amount));
            }
        }
    }

    /// The reactor to move to, once nothing is under way on the socket.
    fn ready_to_move(&mut self) -> Option<usize> {
        let reactor = self.session.moves_to()?;
        if self.session.commands().running() > 0 {
            return None;
        }
        let stream = self.stream.as_ref()?;
        let is_at_rest = !stream.is_receiving() && !stream.is_sending() && self.out.is_empty();
        is_at_rest.then_some(reactor)
    }

    /// Hands the connection to the reactor that it belongs on.
    fn move_out(&mut self, reactor: usize) {
        let Line { shard, entry } = &self.line;
        assert!(entry.half_open.get().is_none(), "it is established");
        let moving = Moving::<S> {
            stream: self.stream.take().expect("it is open").detach(),
            input: self.input.to_vec(),
            handle: entry.handle.clone(),
            local: entry.local,
            port: entry.port.clone(),
            session: self.session.move_out(),
            bytes: (entry.bytes_received.get(), entry.bytes_sent.get()),
        };
        hand_over(shard, reactor, moving);
    }

    fn begin_ending(&mut self, end: End) {
        self.session.last_words(&end, &mut self.out);
        self.input = View::empty();
        self.kept.set(0);
        self.shard().hub.leave_turns(self.line.entry.owner);
        (self.waits_for_buffers, self.waits_for_bytes) = (false, false);
        self.give_up();
        let deadline = self.now() + LINGER;
        self.timer.set(deadline);
        self.ending = Some(Ending::Flushing(end));
    }

    /// Ends what it has under way as far as that can be done, the first time.
    fn give_up(&mut self) {
        if std::mem::replace(&mut self.is_given_up, true) {
            return;
        }
        let announcement = self.session.announce_end();
        self.session.commands().withdraw_all(&announcement);
        drop(announcement);
        for mut runs in self.session.commands().take_unsent() {
            runs.drain(|run| {
                if let Some(attached) = self.session.attached(run.export()) {
                    self.line.shard.record_lost(attached, run);
                }
            });
        }
        self.session.give_up();
        self.note_revoked();
        // Its last completions may have made room for requests of others, which nobody else would submit.
        let now = self.now();
        self.session.commands().set_now(now);
        self.session.commands().pump();
    }

    /// Sends what was written last, and lets the peer take it before the connection is closed.
    fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(ending) = self.ending.take() else {
            unreachable!("called while ending")
        };
        while let Poll::Ready(message) = self.line.entry.handle.mailbox.poll_next(context) {
            self.message_too_late(message);
        }
        // The host may be slow to leave: its volumes are not to look slow for that.
        while self.take_late_completion(context) {}
        if self.timer.poll_elapsed(context).is_ready() {
            return Poll::Ready(Outcome::Ended(ending.end()));
        }
        match ending {
            Ending::Flushing(end @ End::Stalled(_)) => {
                // What the host does not take is not kept for it by the kernel either.
                if let Some(stream) = &self.stream {
                    stream.abort();
                }
                Poll::Ready(Outcome::Ended(end))
            }
            Ending::Flushing(end @ (End::Closed | End::Lost(_))) => {
                Poll::Ready(Outcome::Ended(end))
            }
            Ending::Flushing(end) => {
                while let Ok(true) = self.send(context) {}
                let stream = self.stream.as_ref().expect("it is open");
                if stream.is_sending() {
                    self.ending = Some(Ending::Flushing(end));
                    return Poll::Pending;
                }
                if !matches!(end, End::Broken(_) | End::Refused(_) | End::Disconnected) {
                    return Poll::Ready(Outcome::Ended(end));
                }
                stream.shutdown(Shutdown::Write);
                self.ending = Some(Ending::Lingering(end));
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ending::Lingering(end) => {
                if self.poll_gone(context) {
                    return Poll::Ready(Outcome::Ended(end));
                }
                self.ending = Some(Ending::Lingering(end));
                Poll::Pending
            }
        }
    }

    /// Waits for what runs when the connection is gone.
    fn poll_run_out(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.session.commands().running() > 0 {
            if let Poll::Ready(message) = self.line.entry.handle.mailbox.poll_next(context) {
                self.message_too_late(message);
            } else if !self.take_late_completion(context) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Takes a completion that nobody waits for any more, if there is one.
    fn take_late_completion(&mut self, context: &mut Context<'_>) -> bool {
        let Poll::Ready(completion) = self.line.entry.completions.poll_pop(context) else {
            return false;
        };
        let now = self.now();
        self.session.commands().set_now(now);
        if let Some((attached, run)) = self.session.commands().discard(&completion) {
            self.shard().record_lost(&attached, &run);
        }
        self.note_revoked();
        self.shard().hub.pump_all();
        true
    }

    /// Throws away what still comes; whether the peer has closed.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> bool {
        let stream = self.stream.as_ref().expect("it is open");
        for _ in 0..ROUNDS_MAX {
            if !stream.is_receiving() {
                stream.start_receive(ReceiveInto::Ring(Amount::Usual));
            }
            match stream.poll_received(context) {
                Poll::Pending => return false,
                Poll::Ready(Ok(Received::Ring(view))) if !view.is_empty() => {}
                Poll::Ready(Ok(Received::Segment(_, 1..))) => {}
                Poll::Ready(_) => return true,
            }
        }
        context.waker().wake_by_ref();
        false
    }
}

impl Ending {
    fn end(self) -> End {
        match self {
            Ending::Flushing(end) | Ending::Lingering(end) => end,
        }
    }
}
