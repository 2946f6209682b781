//! One connection: between its socket, its framing, its queue pair, and the volumes.
//!
//! A connection is one task on its reactor. Each time that it runs it takes what was received, what completed and what it was
//! told, hands one batch to each volume, and sends all that is ready at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{Announcement, CompletionSink, Completions, Volume};
use weir_memory::{Gather, View};
use weir_nvme::command::{Connect, ConnectData, ConnectResponse};
use weir_nvme::tcp::FramingError;
use weir_nvme::{Cqe, Nqn, Status};
use weir_reactor::{
    Amount, DetachedStream, Instant, ReceiveInto, Received, Shutdown, SocketReport, TcpStream,
    Timer,
};

use crate::account::{Charge, Kept, Lack};
use crate::config::TargetConfig;
use crate::core::{
    AdminView, ConnectIdentity, ConnectRefusal, Controller, ControllerIdentity, ControllerKind,
    DiscoveryLogs, Effect, Env, FLOW_CONTROL_OFF, QueueKind, QueuePair, SlotIndex,
    check_connect_data, check_connect_fields, flow_control_off,
};
use crate::counters::{IoCounters, IoTotals};
use crate::framing::{DirectReturn, Framing, Progress};
use crate::latency::Latency;
use crate::registry::{Handle, LostQueue, QueueGrant, Shared};
use crate::shard::Shard;
use crate::snapshot::{Snapshot, Subsystem};
use crate::target::{QueueInfo, Source, SubsystemCounters, TargetShared};
use crate::volumes::Namespaces;
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

/// What others tell a connection.
pub(crate) enum Message {
    /// What it sees may have changed. The sender is used when nothing of what it saw before is held any more, but by commands
    /// in flight; of those, the ones that may not run any more are in [`Entry::revoked`] by then.
    Look(weir_reactor::Sender<()>),
    /// Every reactor has the new snapshot: tell the host what changed.
    Announce,
    /// A Connect that waited may go on.
    Retry,
    /// The controller's I/O queues have ended.
    QueuesEnded,
    /// The controller of this I/O queue ends.
    ControllerEnds,
    /// End it.
    End(&'static str),
    /// What this volume has not answered stays so for now.
    Unfenced(Weak<dyn Volume>),
    /// The target is about to shut down.
    ShuttingDown,
    /// Abort a command of this I/O queue.
    Abort {
        cid: u16,
        slot: SlotIndex,
        admin: Handle,
    },
    /// An Abort that this admin queue asked for has its answer.
    AbortEnded { slot: SlotIndex, aborted: bool },
    /// Tell what the system says of the socket.
    Report(weir_reactor::Sender<Option<SocketReport>>),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the host closed it")]
    Closed,
    #[error("the connection was lost: {0}")]
    Lost(#[from] io::Error),
    #[error("{0}")]
    Framing(FramingError),
    #[error("the host sent a termination request")]
    PeerTerminated,
    #[error("its Connect did not come in time")]
    HandshakeTimeout,
    #[error("the keep-alive timer expired")]
    KeepAliveExpired,
    #[error("{0} in time")]
    Stalled(Stall),
    #[error("its controller ended")]
    ControllerEnded,
    #[error("the host disconnected")]
    Disconnected,
    #[error(
        "a volume that is lost has not answered its commands, and cannot say yet that they take no effect any more"
    )]
    Unfenced,
    #[error("{0}")]
    Told(&'static str),
}

/// What became of a connection's task.
enum Outcome {
    Ended(End),
    Moved,
}

/// The part of a connection that its reactor's other tasks see.
pub(crate) struct Entry {
    pub(crate) handle: Handle,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) discovery_only: bool,
    pub(crate) association: RefCell<Option<(Arc<Shared>, u16)>>,
    /// What was agreed with the host; none before its Connect.
    pub(crate) queue: Cell<Option<QueueInfo>>,
    pub(crate) in_flight: Cell<u32>,
    pub(crate) bytes_received: Cell<u64>,
    pub(crate) bytes_sent: Cell<u64>,
    /// Where the time of its commands went; the admin queue's are not counted.
    pub(crate) latency: RefCell<Latency>,
    /// Number of its requests under way whose right was taken away, by NSID.
    pub(crate) revoked: RefCell<BTreeMap<u32, u64>>,
    /// Where it comes from, while it is half open.
    half_open: Cell<Option<Source>>,
    owner: u32,
    completions: Rc<Completions>,
    running: RefCell<Rc<Cell<u32>>>,
}

impl Entry {
    /// Whether no command is in its queue but those that wait for events.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.get() == 0 && self.running.borrow().get() == 0
    }
}

/// A connection on its way to another reactor. Its Connect was granted and is answered there.
pub(crate) struct Moving {
    stream: DetachedStream,
    framing: Framing,
    input: Vec<u8>,
    handle: Handle,
    local: SocketAddr,
    discovery_only: bool,
    granted: Granted,
    bytes: (u64, u64),
}

/// What a Connect led to.
struct Granted {
    shared: Arc<Shared>,
    connect: Connect,
    cid: u16,
}

/// What commands of a connection may look at.
struct Scene {
    shard: Rc<Shard>,
    namespaces: Namespaces,
    generation: u64,
    counters: Option<Arc<SubsystemCounters>>,
    shared: Option<Arc<Shared>>,
    is_admin: bool,
    local: SocketAddr,
    no_counters: IoCounters,
}

impl Scene {
    fn new(shard: &Rc<Shard>, local: SocketAddr) -> Self {
        Scene {
            shard: Rc::clone(shard),
            namespaces: Namespaces::default(),
            generation: 0,
            counters: None,
            shared: None,
            is_admin: false,
            local,
            no_counters: IoCounters::default(),
        }
    }

    /// Takes over what the host sees now. False: it may not see the subsystem any more.
    fn renew(&mut self) -> bool {
        if self.shared.is_none() {
            return true;
        }
        self.generation = self.shard.generation();
        let seen = self.seen();
        let sees = seen.is_some();
        self.namespaces = seen.unwrap_or_default();
        sees
    }

    /// Namespaces that the host sees now. None: it may not see the subsystem any more.
    fn seen(&self) -> Option<Namespaces> {
        match &self.shared {
            Some(shared) if shared.kind == ControllerKind::Io => self
                .shard
                .namespaces_for(&shared.subsystem_nqn, &shared.host.nqn),
            _ => Some(Namespaces::default()),
        }
    }

    fn with_env<R>(&self, work: impl FnOnce(&Env<'_>) -> R) -> R {
        match &self.shared {
            Some(shared) if self.is_admin => {
                self.with_view(shared, |view| work(&self.env(Some(view))))
            }
            _ => work(&self.env(None)),
        }
    }

    fn env<'a>(&'a self, admin: Option<&'a AdminView<'a>>) -> Env<'a> {
        let config = &self.shard.target.config;
        let counters = match &self.counters {
            Some(counters) => &counters.by_reactor[self.shard.index],
            None => &self.no_counters,
        };
        Env {
            namespaces: &self.namespaces,
            pool: self.shard.reactor.pool(),
            transfer_bytes_max: config.mdts_bytes,
            in_capsule_bytes: config.in_capsule_bytes,
            retry_delay: self
                .shared
                .as_ref()
                .is_some_and(|shared| shared.retry_delay()),
            counters,
            admin,
        }
    }

    fn with_view<R>(&self, shared: &Shared, work: impl FnOnce(&AdminView<'_>) -> R) -> R {
        let target = &self.shard.target;
        let snapshot = self.shard.snapshot();
        let totals = || match &self.counters {
            Some(counters) => counters.totals(),
            None => IoTotals::default(),
        };
        work(&AdminView {
            snapshot: &snapshot,
            config: &target.config,
            local_address: self.local,
            discovery: &self.shard.discovery,
            totals: &totals,
            errors: &shared.errors,
            io_queues: target.registry.io_queues(shared),
            up: self.shard.reactor.now() - target.started,
        })
    }
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
    Direct(DirectReturn),
}

struct Connection {
    entry: Rc<Entry>,
    /// None once it was moved or closed.
    stream: Option<TcpStream>,
    framing: Framing,
    queue: QueuePair,
    /// Data in flight of its queue.
    charge: Rc<Charge>,
    scene: Scene,
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
    sending_bytes: u64,
    connect: Option<(SlotIndex, Connect, Box<ConnectData>)>,
    moving: Option<(usize, Granted)>,
    ending: Option<Ending>,
    is_given_up: bool,
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
    /// What the registry was told of the controller.
    told: Option<(bool, u16)>,
    granted_keep_alive: Option<Duration>,
}

/// Serves a connection that was just accepted.
pub(crate) fn accepted(
    shard: &Rc<Shard>,
    stream: TcpStream,
    local: SocketAddr,
    handle: Handle,
    discovery_only: bool,
    source: Source,
) {
    let entry = enter(shard, handle, stream.peer_address(), local, discovery_only);
    entry.half_open.set(Some(source));
    let framing = Framing::new(&shard.target.config);
    let mut connection = Connection::new(shard, Rc::clone(&entry), stream, framing);
    let deadline = shard.reactor.now() + shard.target.config.handshake_timeout;
    connection.timer.set(deadline);
    start(shard, connection);
}

/// Serves a connection that was moved here.
pub(crate) fn moved_in(shard: &Rc<Shard>, moving: Moving) {
    let stream = moving.stream.attach(&shard.reactor);
    moving.handle.mailbox.moved();
    let peer = stream.peer_address();
    let entry = enter(
        shard,
        moving.handle,
        peer,
        moving.local,
        moving.discovery_only,
    );
    entry.bytes_received.set(moving.bytes.0);
    entry.bytes_sent.set(moving.bytes.1);
    let mut connection = Connection::new(shard, entry, stream, moving.framing);
    connection.input = View::copy_of(&moving.input);
    connection.kept.set(moving.input.len());
    connection.become_io_queue(&moving.granted);
    let response = connect_response(&moving.granted);
    connection
        .framing
        .write_response(&response, &mut connection.out);
    start(shard, connection);
}

/// A connection that cannot be moved in is gone.
pub(crate) fn lost_on_the_way(target: &Arc<TargetShared>, moving: Moving) {
    let granted = &moving.granted;
    drop(LostQueue::new(target, &granted.shared, granted.connect.qid));
    target.registry.queue_ended(&granted.shared);
    target.connection_ended();
}

fn connect_response(granted: &Granted) -> Cqe {
    let response = ConnectResponse {
        controller_id: granted.shared.id,
        authentication: 0,
    };
    let head = if flow_control_off(&granted.connect) {
        FLOW_CONTROL_OFF
    } else {
        1
    };
    Cqe::new(granted.cid, head, Status::SUCCESS).with_result(u64::from(response.to_result()))
}

fn enter(
    shard: &Rc<Shard>,
    handle: Handle,
    peer: SocketAddr,
    local: SocketAddr,
    discovery_only: bool,
) -> Rc<Entry> {
    let completions = Completions::new();
    let sink: Rc<dyn CompletionSink> = completions.clone();
    let entry = Rc::new(Entry {
        handle,
        peer,
        local,
        discovery_only,
        association: RefCell::default(),
        queue: Cell::new(None),
        in_flight: Cell::new(0),
        bytes_received: Cell::new(0),
        bytes_sent: Cell::new(0),
        latency: RefCell::default(),
        revoked: RefCell::default(),
        half_open: Cell::new(None),
        owner: shard.router.add(sink),
        completions,
        running: RefCell::default(),
    });
    shard
        .connections
        .borrow_mut()
        .insert(entry.handle.id, Rc::clone(&entry));
    entry
}

fn start(shard: &Rc<Shard>, connection: Connection) {
    *connection.entry.running.borrow_mut() = connection.queue.running();
    let life = live(Rc::clone(shard), Rc::new(RefCell::new(connection)));
    shard.reactor.spawn(life).detach();
}

/// The whole life of a connection on one reactor. What it submitted is waited for whatever happens, a panic included.
async fn live(shard: Rc<Shard>, connection: Rc<RefCell<Connection>>) {
    let entry = Rc::clone(&connection.borrow().entry);
    let mut mailbox = OpenMailbox(Some(Rc::clone(&entry)));
    let inner = Rc::clone(&connection);
    let served = shard
        .reactor
        .spawn_isolated(poll_fn(move |context| inner.borrow_mut().poll(context)))
        .await;
    let moved = matches!(served, Ok(Outcome::Moved));
    match served {
        Ok(Outcome::Moved) => {}
        Ok(Outcome::Ended(end)) => log_end(&shard, &entry, &end),
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
    shard.leave_turns(entry.handle.id);
    poll_fn(|context| connection.borrow_mut().poll_run_out(context)).await;
    drop(mailbox);
    leave(&shard, &entry, moved);
    // Its data is in flight no more.
    drop(connection);
    shard.counters.bytes_in_flight.set(shard.account.used());
}

fn log_end(shard: &Shard, entry: &Entry, end: &End) {
    let id = entry.handle.id;
    match end {
        End::Framing(_) => shard.counters.terminated.add(1),
        End::HandshakeTimeout => shard.counters.handshake_timeouts.add(1),
        End::KeepAliveExpired => shard.counters.keep_alive_expiries.add(1),
        End::Lost(_) => shard.counters.lost.add(1),
        End::Stalled(Stall::Arriving) => shard.counters.stalled_arriving.add(1),
        End::Stalled(Stall::Awaited) => shard.counters.stalled_awaited.add(1),
        End::Stalled(Stall::Sending) => shard.counters.stalled_sending.add(1),
        _ => {}
    }
    match end {
        End::Closed | End::Disconnected | End::ControllerEnded => {
            tracing::debug!(connection = id, peer = %entry.peer, "connection ended: {end}");
        }
        _ => tracing::warn!(connection = id, peer = %entry.peer, "connection ended: {end}"),
    }
}

/// The connection serves no more: nobody may start anything with it. What comes back is kept until all know what it left under way.
fn announce_end(shard: &Shard, entry: &Entry) -> Announcement {
    let target = &shard.target;
    match &*entry.association.borrow() {
        Some((shared, 0)) => target.registry.end_controller(shared),
        Some((shared, qid)) => return Arc::new(LostQueue::new(target, shared, *qid)),
        None => target.registry.forget_waiting(entry.handle.id),
    }
    Arc::new(())
}

/// Closes the mailbox of a connection when it is dropped, be it with the reactor: nobody reads messages any more, and who waits
/// for an answer has it.
struct OpenMailbox(Option<Rc<Entry>>);

impl Drop for OpenMailbox {
    fn drop(&mut self) {
        if let Some(entry) = &self.0 {
            entry.handle.mailbox.close().into_iter().for_each(decline);
        }
    }
}

/// A message comes too late; senders of answers are dropped, which says so too.
fn decline(message: Message) {
    if let Message::Abort { slot, admin, .. } = message {
        let aborted = false;
        let _ = admin.mailbox.send(Message::AbortEnded { slot, aborted });
    }
}

fn leave(shard: &Shard, entry: &Entry, moved: bool) {
    shard.router.remove(entry.owner);
    shard.connections.borrow_mut().remove(&entry.handle.id);
    if moved {
        return;
    }
    if let Some((shared, qid)) = entry.association.borrow_mut().take()
        && qid > 0
    {
        shard.target.registry.queue_ended(&shared);
    }
    if let Some(source) = entry.half_open.take() {
        shard.target.half_open_ended(source);
    }
    shard.target.connection_ended();
}

impl Connection {
    fn new(shard: &Rc<Shard>, entry: Rc<Entry>, stream: TcpStream, framing: Framing) -> Self {
        let mut queue = QueuePair::new(entry.owner);
        let bytes_max = shard.target.config.bytes_in_flight_per_connection;
        let bytes_alone = shard.target.config.in_capsule_bytes;
        queue.bound_bytes(&shard.account, u64::from(bytes_max), bytes_alone);
        Connection {
            stream: Some(stream),
            framing,
            charge: Rc::clone(queue.charge()),
            queue,
            kept: Kept::none(&shard.kept),
            waits_for_buffers: false,
            waits_for_bytes: false,
            waits_for_itself: false,
            scene: Scene::new(shard, entry.local),
            entry,
            input: View::empty(),
            last_received: 0,
            receiving: Receiving::Nothing,
            blocked: false,
            out: Gather::new(),
            spare: Gather::new(),
            sending_bytes: 0,
            connect: None,
            moving: None,
            ending: None,
            is_given_up: false,
            timer: Timer::new(&shard.reactor),
            retry: Timer::new(&shard.reactor),
            progress: Timer::new(&shard.reactor),
            progress_is_new: false,
            watch: Watch::new(shard.target.config.progress_timeout),
            was_blocked: false,
            sends: 0,
            told: None,
            granted_keep_alive: None,
        }
    }

    fn shard(&self) -> &Rc<Shard> {
        &self.scene.shard
    }

    fn now(&self) -> Instant {
        self.scene.shard.reactor.now()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        for _ in 0..ROUNDS_MAX {
            if self.ending.is_some() {
                return self.poll_ending(context);
            }
            match self.round(context) {
                Ok(true) => {}
                Ok(false) if self.is_ready_to_move() => {
                    self.move_out();
                    return Poll::Ready(Outcome::Moved);
                }
                Ok(false) => return Poll::Pending,
                Err(end) => self.begin_ending(end),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// One round of work; whether there may be more.
    fn round(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        self.queue.set_now(self.now());
        let (shard, id) = (&self.scene.shard, self.entry.handle.id);
        let may_take_buffers = shard.turns.is_turn_of(id);
        self.queue
            .set_turns(may_take_buffers, shard.account_turns.is_turn_of(id));
        let mut worked = self.take_messages(context)?;
        if self.scene.generation != self.shard().generation() && !self.renew() {
            return Err(End::Told("the host may not connect to the subsystem"));
        }
        worked |= self.take_completions(context);
        worked |= self.take_received(context)?;
        self.process_input()?;
        self.do_effects()?;
        worked |= self.after_commands(context);
        self.poll_timers(context)?;
        worked |= self.send(context)?;
        self.start_receiving();
        Ok(worked)
    }

    /// Takes over what the host sees now. False: it may not see the subsystem any more.
    fn renew(&mut self) -> bool {
        let sees = self.scene.renew();
        if sees {
            self.scene.with_env(|env| self.queue.let_go(env));
            if let Some(controller) = self.queue.controller() {
                controller.take_over(&self.scene.namespaces);
            }
        } else {
            // The rest ends with the connection, without an answer.
            self.queue.revoke(&self.scene.namespaces);
        }
        self.note_revoked();
        sees
    }

    /// Has others see what is under way of what the host may not do any more.
    fn note_revoked(&mut self) {
        if self.queue.has_revoked() {
            *self.entry.revoked.borrow_mut() = self.queue.revoked();
        }
    }

    /// A message comes when the connection serves no more, but something of it may be under way.
    fn message_too_late(&mut self, message: Message) {
        if let Message::Look(_) = &message {
            self.queue.revoke(&self.scene.seen().unwrap_or_default());
            self.note_revoked();
        }
        decline(message);
    }

    fn take_messages(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut worked = false;
        while let Poll::Ready(message) = self.entry.handle.mailbox.poll_next(context) {
            worked = true;
            self.message(message)?;
        }
        Ok(worked)
    }

    fn message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Look(taken_over) => {
                if !self.renew() {
                    return Err(End::Told("the host may not connect to the subsystem"));
                }
                taken_over.send(());
            }
            Message::Announce => self.announce(),
            Message::Retry => {
                if let Some((slot, connect, data)) = self.connect.take() {
                    self.connect(slot, connect, data);
                }
            }
            Message::QueuesEnded => {
                if let Some(controller) = self.queue.controller() {
                    for slot in controller.queues_ended() {
                        let aborted = Status::COMMAND_ABORT_REQUESTED;
                        self.queue.answer_waiting(slot, aborted, 0);
                    }
                }
            }
            Message::ControllerEnds => return Err(End::ControllerEnded),
            Message::End(reason) => return Err(End::Told(reason)),
            Message::Unfenced(volume) => {
                if self.queue.waits_for_volume(&volume) {
                    return Err(End::Unfenced);
                }
            }
            Message::ShuttingDown => {
                if let Some(controller) = self.queue.controller() {
                    controller.shutting_down();
                }
                self.queue.deliver_events();
            }
            Message::Abort { cid, slot, admin } => {
                let aborted = self.queue.abort(cid);
                let _ = admin.mailbox.send(Message::AbortEnded { slot, aborted });
            }
            Message::AbortEnded { slot, aborted } => {
                if let Some(controller) = self.queue.controller() {
                    controller.abort_ended();
                }
                self.queue
                    .answer_waiting(slot, Status::SUCCESS, u64::from(!aborted));
            }
            Message::Report(reply) => {
                let report = self.stream.as_ref().map(TcpStream::report);
                reply.send(report.and_then(Result::ok));
            }
        }
        Ok(())
    }

    fn announce(&mut self) {
        let Some(shared) = self.scene.shared.clone() else {
            return;
        };
        if !self.renew() {
            // The next round sees it.
            self.scene.generation = 0;
            return;
        }
        if let Some(controller) = self.queue.controller() {
            let namespaces = &self.scene.namespaces;
            self.scene
                .with_view(&shared, |view| controller.announce(namespaces, view));
        }
        self.queue.deliver_events();
    }

    fn take_completions(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        let completions = &self.entry.completions;
        while let Poll::Ready(completion) = completions.poll_pop(context) {
            worked = true;
            self.scene.with_env(|env| {
                self.queue.completed(completion, env);
                while let Some(completion) = completions.pop() {
                    self.queue.completed(completion, env);
                }
            });
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
            (Received::Segment(segment, count), Receiving::Direct(back)) => {
                let full = back.from() + count == segment.len();
                self.framing
                    .received_directly(segment, &back, count, &mut self.queue);
                if full { count } else { 0 }
            }
            (received, _) => unreachable!("{received:?} was not asked for"),
        };
        if count == 0 {
            return Err(End::Closed);
        }
        self.watch_progress();
        self.entry
            .bytes_received
            .set(self.entry.bytes_received.get() + count as u64);
        self.shard().counters.bytes_received.add(count as u64);
        if let Some(shared) = &self.scene.shared {
            shared.heard();
        }
        Ok(true)
    }

    fn process_input(&mut self) -> Result<(), End> {
        let progress = self.scene.with_env(|env| {
            self.framing
                .receive(&mut self.input, &mut self.queue, env, &mut self.out)
        });
        let damaged = std::mem::take(&mut self.framing.digest_errors.data);
        if damaged > 0 {
            self.shard().counters.data_digest_errors.add(damaged);
        }
        match progress {
            Ok(Progress::Hungry) => self.blocked = false,
            Ok(Progress::Blocked) => {
                (self.blocked, self.was_blocked) = (true, true);
                self.keep_input_apart();
            }
            Ok(Progress::PeerTerminated) => return Err(End::PeerTerminated),
            Err(error) => return Err(End::Framing(error)),
        }
        Ok(())
    }

    /// What is left of the input stays for as long as the host or a volume likes: it must not keep what other connections
    /// receive into. What it is copied to is no buffer of the reactor's pool, for which the connection may be waiting.
    fn keep_input_apart(&mut self) {
        if self.shard().reactor.pool().is_of_another(&self.input) {
            self.input = View::copy_of(&self.input);
            self.kept.set(self.input.len());
        }
    }

    fn do_effects(&mut self) -> Result<(), End> {
        while let Some(effect) = self.queue.next_effect() {
            match effect {
                Effect::Connect {
                    slot,
                    connect,
                    data,
                } => self.connect(slot, connect, data),
                Effect::Abort { slot, sqid, cid } => self.abort_elsewhere(slot, sqid, cid),
                Effect::EndQueues => {
                    if let Some(shared) = &self.scene.shared {
                        self.shard().target.registry.end_queues(shared);
                    }
                    self.told = None;
                }
                Effect::Disconnect => return Err(End::Disconnected),
            }
        }
        Ok(())
    }

    fn abort_elsewhere(&mut self, slot: SlotIndex, sqid: u16, cid: u16) {
        let shared = self.scene.shared.clone().expect("an admin queue");
        let admin = self.entry.handle.clone();
        let queue = self.shard().target.registry.queue(&shared, sqid);
        let message = Message::Abort { cid, slot, admin };
        let sent = queue.is_some_and(|queue| queue.mailbox.send(message).is_ok());
        if !sent {
            let aborted = false;
            let message = Message::AbortEnded { slot, aborted };
            let _ = self.entry.handle.mailbox.send(message);
        }
    }

    /// Hands the volumes their requests, takes what they do at once, and writes what is to be sent. Whether there may be more to do.
    fn after_commands(&mut self, context: &mut Context<'_>) -> bool {
        let shard = Rc::clone(self.shard());
        if self.queue.waits_for_buffer() {
            self.scene.with_env(|env| self.queue.retry_buffers(env));
        }
        let reserve = shard.target.config.in_capsule_bytes as usize;
        self.queue.restore_reserve(shard.reactor.pool(), reserve);
        self.entry.completions.forget_waker();
        self.queue.pump();
        let worked = self.take_completions(context);
        self.note_revoked();
        if self.queue.has_failures()
            && let Some(shared) = &self.scene.shared
        {
            let mut log = shared.errors.lock().unwrap_or_else(PoisonError::into_inner);
            self.queue
                .failures()
                .for_each(|failure| log.record(failure));
        }
        self.entry.in_flight.set(self.queue.busy() as u32);
        self.tell_registry();
        let pool = shard.reactor.pool();
        self.framing.write(&mut self.queue, pool, &mut self.out);
        // The end of a send ends a backlog; for buffers, and for room that others have in the account, one has to look.
        let starved = self.blocked && !self.framing.is_backlogged(&self.queue);
        let is_full = self.blocked && self.queue.is_full_of_others();
        if starved || is_full || self.queue.waits_for_buffer() {
            if self.retry.deadline().is_none() {
                self.retry.set(shard.reactor.now() + BUFFER_RETRY);
            }
        } else {
            self.retry.clear();
        }
        if !starved {
            self.queue.forget_stalled();
        }
        // A command for which there is no slot waits for its own queue, which is nobody else's affair.
        let starved = starved && self.queue.has_room() && !self.queue.is_stalled_for_bytes();
        self.take_turns(starved, context);
        worked
    }

    /// Waits among the others for what the reactor has too little of, or no longer.
    fn take_turns(&mut self, starved: bool, context: &Context<'_>) {
        let (shard, id) = (&self.scene.shard, self.entry.handle.id);
        let lack = self.queue.lack();
        // Who has come to the front for buffers keeps that place while it waits for room in the account, but not the other way
        // round: those who lack no buffers are not to wait for them.
        let for_buffers = starved
            || lack == Some(Lack::Buffer)
            || lack == Some(Lack::Account) && self.waits_for_buffers;
        let for_bytes = lack == Some(Lack::Account);
        if self.queue.take_grant() {
            // That was its turn: whoever wants all that there is has it no longer than others wait.
            shard.leave_turns(id);
            (self.waits_for_buffers, self.waits_for_bytes) = (false, false);
        }
        let begins = (
            for_buffers && !self.waits_for_buffers,
            for_bytes && !self.waits_for_bytes,
        );
        if begins.0 {
            shard.turns.wait(id, context.waker());
        } else if !for_buffers && self.waits_for_buffers {
            shard.turns.leave(id);
        }
        if begins.1 {
            shard.account_turns.wait(id, context.waker());
        } else if !for_bytes && self.waits_for_bytes {
            shard.account_turns.leave(id);
        }
        if begins != (false, false) {
            shard.counters.buffer_waits.add(1);
            shard.tell_of_waits();
        }
        (self.waits_for_buffers, self.waits_for_bytes) = (for_buffers, for_bytes);
        let for_itself = lack == Some(Lack::Own);
        if for_itself && !self.waits_for_itself {
            shard.counters.own_waits.add(1);
        }
        self.waits_for_itself = for_itself;
        shard.counters.bytes_in_flight.set(shard.account.used());
        // What came back here is another's whose turn it is.
        shard.turns.look(id);
        shard.account_turns.look(id);
    }

    /// Tells the registry what the controller allows now, and follows its keep-alive timeout.
    fn tell_registry(&mut self) {
        let Some(controller) = self.queue.controller() else {
            return;
        };
        let Some(shared) = &self.scene.shared else {
            return;
        };
        let shard = &self.scene.shard;
        let state = (
            controller.accepts_queues(),
            controller.io_queues_granted(&shard.target.config),
        );
        let keep_alive = controller.keep_alive();
        shared.set_retry_delay(controller.retry_delay());
        if self.told != Some(state) {
            shard.target.registry.set_state(shared, state.0, state.1);
            self.told = Some(state);
        }
        let timeout = match shared.kind {
            ControllerKind::Io => keep_alive,
            ControllerKind::Discovery => {
                Some(keep_alive.unwrap_or(shard.target.config.discovery_keep_alive))
            }
        };
        if self.granted_keep_alive != timeout {
            self.granted_keep_alive = timeout;
            match timeout {
                Some(timeout) => self.timer.set(shard.reactor.now() + timeout),
                None => self.timer.clear(),
            }
        }
    }

    fn poll_timers(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        while self.timer.poll_elapsed(context).is_ready() {
            let (Some(shared), Some(timeout)) = (&self.scene.shared, self.granted_keep_alive)
            else {
                return Err(End::HandshakeTimeout);
            };
            // Commands of any queue of the controller restart it (Traffic Based Keep Alive).
            if !shared.take_traffic() {
                return Err(End::KeepAliveExpired);
            }
            let deadline = self.now() + timeout;
            self.timer.set(deadline);
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
        Ok(())
    }

    /// Has the host's progress looked at from now on, until it has nothing to do.
    fn watch_progress(&mut self) {
        if self.progress.deadline().is_none() {
            let deadline = self.now() + self.scene.shard.target.config.progress_timeout;
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
            is_held_up: self.blocked || self.connect.is_some() || self.moving.is_some(),
            was_held_up: std::mem::take(&mut self.was_blocked),
            sending: stream.is_sending().then_some(self.sends),
            unsent: self.framing.unsent_bytes(),
            ..Standing::default()
        };
        if !standing.is_held_up {
            standing.arriving = self.framing.arriving();
            standing.awaited = self.framing.look_at_awaited(&self.queue);
        }
        if !standing.is_settled() {
            // What the kernel has taken in, and handed over: a receive or a send under way tells nothing.
            let report = stream.report().unwrap_or_default();
            standing.received = report.bytes_received;
            standing.taken = report.bytes_acknowledged;
        }
        standing
    }

    /// Sends all that is ready; whether a send ended.
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

    /// A send ended, and with it the commands whose answers it was. The core has done with them since it gave their answers.
    fn sent(&mut self) {
        let now = self.now();
        let mut own = self.entry.latency.borrow_mut();
        let namespaces = &self.scene.namespaces;
        let bytes = self.framing.send_ended(|run| {
            own.record(run, now);
            // One that was removed meanwhile has nobody who would ask.
            if let Some(attached) = namespaces.get(run.nsid()) {
                attached.latency.borrow_mut().record(run, now);
            }
        });
        self.charge.give_back(bytes);
    }

    fn start_send(&mut self, gather: Gather) {
        self.sends += 1;
        self.watch_progress();
        self.framing.send_began(&mut self.queue);
        self.sending_bytes = gather.len() as u64;
        let counters = &self.scene.shard.counters;
        counters.bytes_sent.add(self.sending_bytes);
        counters.sends.add(1);
        self.entry
            .bytes_sent
            .set(self.entry.bytes_sent.get() + self.sending_bytes);
        self.stream
            .as_ref()
            .expect("a connection that sends is open")
            .start_send(gather);
    }

    fn start_receiving(&mut self) {
        let waits = self.blocked || self.connect.is_some() || self.moving.is_some();
        let Some(stream) = &self.stream else {
            return;
        };
        if waits || stream.is_receiving() || !self.input.is_empty() {
            return;
        }
        self.kept.set(0);
        match self.framing.direct(&mut self.queue) {
            Some(direct) => {
                let (segment, from, back) = direct.split();
                self.receiving = Receiving::Direct(back);
                stream.start_receive(ReceiveInto::Segment { segment, from });
            }
            None => {
                self.receiving = Receiving::Ring;
                let amount = match self.framing.expected(self.last_received, &self.queue) {
                    Amount::Bulk if self.kept.of_all() >= KEPT_BYTES_MAX => Amount::Usual,
                    amount => amount,
                };
                stream.start_receive(ReceiveInto::Ring(amount));
            }
        }
    }

    /// Carries a Connect out, or leaves it waiting.
    fn connect(&mut self, slot: SlotIndex, connect: Connect, data: Box<ConnectData>) {
        match self.try_connect(slot, &connect, &data) {
            Ok(true) => {}
            Ok(false) => self.connect = Some((slot, connect, data)),
            Err(refusal) => {
                self.shard().counters.refused.add(1);
                if connect.qid == 0 && refusal.status.is(Status::CONNECT_CONTROLLER_BUSY) {
                    self.shard().counters.over_controllers.add(1);
                }
                tracing::info!(
                    connection = self.entry.handle.id, peer = %self.entry.peer, status = %refusal.status,
                    "Connect refused: {}", refusal.reason
                );
                self.queue
                    .answer_waiting(slot, refusal.status, u64::from(refusal.result));
            }
        }
    }

    /// Whether the Connect was carried out; false: it waits.
    fn try_connect(
        &mut self,
        slot: SlotIndex,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<bool, ConnectRefusal> {
        let shard = Rc::clone(self.shard());
        check_connect_fields(connect, &shard.target.config)?;
        let snapshot = shard.snapshot();
        let (identity, subsystem) =
            check_connect_data(connect, data, &snapshot, self.entry.discovery_only)?;
        let found = if connect.qid == 0 {
            Some(self.make_controller(&identity, subsystem)?)
        } else {
            self.find_controller(&identity, connect.qid)?
        };
        let Some((shared, reactor)) = found else {
            return Ok(false);
        };
        self.set_host_options(&snapshot, &identity.host_nqn);
        tracing::info!(
            connection = self.entry.handle.id, peer = %self.entry.peer, host = %identity.host_nqn,
            subsystem = %identity.subsystem_nqn, controller = shared.id, queue = connect.qid, reactor,
            "connected"
        );
        let granted = Granted {
            shared,
            connect: *connect,
            cid: self.queue.cid_of(slot),
        };
        self.become_what_was_granted(slot, granted, reactor, &identity);
        self.timer.clear();
        if let Some(source) = self.entry.half_open.take() {
            shard.target.half_open_ended(source);
        }
        Ok(true)
    }

    /// A controller for this admin queue, on this reactor.
    fn make_controller(
        &self,
        identity: &ConnectIdentity,
        subsystem: Option<&Subsystem>,
    ) -> Result<(Arc<Shared>, usize), ConnectRefusal> {
        let shard = self.shard();
        let shared = shard.target.registry.create(
            identity,
            subsystem,
            self.entry.local,
            shard.index,
            self.entry.handle.clone(),
            &shard.target.config,
        )?;
        Ok((shared, shard.index))
    }

    /// The controller of this I/O queue, and the reactor that the queue belongs on; none: not yet.
    fn find_controller(
        &self,
        identity: &ConnectIdentity,
        qid: u16,
    ) -> Result<Option<(Arc<Shared>, usize)>, ConnectRefusal> {
        let target = &self.shard().target;
        if target.sees_unfenced(&identity.subsystem_nqn, &identity.host_nqn) {
            return Err(ConnectRefusal::status(
                Status::CONNECT_CONTROLLER_BUSY,
                "commands that a volume has left unanswered may take effect still",
            ));
        }
        let registry = &target.registry;
        let grant = registry.add_queue(identity, qid, self.entry.local, &self.entry.handle)?;
        Ok(match grant {
            QueueGrant::Wait => None,
            QueueGrant::Granted {
                controller,
                reactor,
            } => Some((controller, reactor)),
        })
    }

    fn set_host_options(&self, snapshot: &Snapshot, host: &Nqn) {
        if let Some(options) = snapshot.host_options(host)
            && let Some(stream) = &self.stream
            && let Err(error) = stream.set_options(options)
        {
            let connection = self.entry.handle.id;
            tracing::warn!(connection, %error, "the host's socket options were not set");
        }
    }

    fn become_what_was_granted(
        &mut self,
        slot: SlotIndex,
        granted: Granted,
        reactor: usize,
        identity: &ConnectIdentity,
    ) {
        let qid = granted.connect.qid;
        if reactor != self.shard().index {
            *self.entry.association.borrow_mut() = Some((Arc::clone(&granted.shared), qid));
            self.moving = Some((reactor, granted));
            return;
        }
        if qid > 0 {
            self.become_io_queue(&granted);
        } else {
            self.become_admin_queue(&granted, identity);
        }
        self.answer_connect(slot, &granted);
    }

    fn answer_connect(&mut self, slot: SlotIndex, granted: &Granted) {
        let response = connect_response(granted);
        self.queue
            .answer_waiting(slot, Status::SUCCESS, response.result);
    }

    fn associate(&mut self, granted: &Granted, is_admin: bool) {
        let shared = Arc::clone(&granted.shared);
        *self.entry.association.borrow_mut() = Some((Arc::clone(&shared), granted.connect.qid));
        self.scene.counters = self
            .shard()
            .target
            .subsystem_counters(&shared.subsystem_nqn);
        self.scene.is_admin = is_admin;
        self.scene.shared = Some(shared);
        // The next round renews what it sees, or ends it.
        self.scene.generation = 0;
        let flow_control = !flow_control_off(&granted.connect);
        self.framing.set_success_flag(!flow_control);
        let (header_digest, data_digest) = self.framing.digests();
        self.entry.queue.set(Some(QueueInfo {
            entries: granted.connect.queue_entries(),
            flow_control,
            header_digest,
            data_digest,
        }));
    }

    fn become_io_queue(&mut self, granted: &Granted) {
        self.associate(granted, false);
        let host = granted.shared.host.number();
        self.shard().router.set_host(self.entry.owner, host);
        let shard = Rc::clone(self.shard());
        let bytes = shard.target.config.in_capsule_bytes as usize;
        let reserve = shard.reactor.pool().segment(bytes).ok();
        let connect = &granted.connect;
        self.queue.connected(
            QueueKind::Io,
            connect.qid,
            connect.queue_entries(),
            !flow_control_off(connect),
            reserve,
        );
    }

    fn become_admin_queue(&mut self, granted: &Granted, identity: &ConnectIdentity) {
        self.associate(granted, true);
        self.scene.renew();
        let shared = Arc::clone(&granted.shared);
        let config = &self.scene.shard.target.config;
        let connect = &granted.connect;
        let identity = ControllerIdentity {
            kind: shared.kind,
            id: shared.id,
            subsystem_nqn: identity.subsystem_nqn.clone(),
            host_nqn: identity.host_nqn.clone(),
            host_id: identity.host_id,
        };
        let mut controller = Controller::new(identity, connect.keep_alive_timeout_ms, config);
        self.scene.with_view(&shared, |view| {
            controller.settle(&self.scene.namespaces, view);
        });
        self.queue.connected(
            QueueKind::Admin(Box::new(controller)),
            0,
            connect.queue_entries(),
            !flow_control_off(connect),
            None,
        );
    }

    fn is_ready_to_move(&self) -> bool {
        let at_rest = self
            .stream
            .as_ref()
            .is_some_and(|stream| !stream.is_receiving() && !stream.is_sending());
        self.moving.is_some() && at_rest && self.out.is_empty()
    }

    /// Hands the connection to the reactor that its queue belongs on.
    fn move_out(&mut self) {
        let (reactor, granted) = self.moving.take().expect("it is to be moved");
        let framing = Framing::new(&self.scene.shard.target.config);
        let moving = Moving {
            stream: self.stream.take().expect("it is open").detach(),
            framing: std::mem::replace(&mut self.framing, framing),
            input: self.input.to_vec(),
            handle: self.entry.handle.clone(),
            local: self.entry.local,
            discovery_only: self.entry.discovery_only,
            granted,
            bytes: (self.entry.bytes_received.get(), self.entry.bytes_sent.get()),
        };
        self.scene.shard.target.hand_over(reactor, moving);
    }

    fn begin_ending(&mut self, end: End) {
        let pool = self.scene.shard.reactor.pool();
        self.framing.write(&mut self.queue, pool, &mut self.out);
        if let End::Framing(error) = &end {
            self.framing.terminate(error, &mut self.out);
        }
        self.input = View::empty();
        self.kept.set(0);
        self.scene.shard.leave_turns(self.entry.handle.id);
        (self.waits_for_buffers, self.waits_for_bytes) = (false, false);
        self.give_up();
        self.scene.namespaces = Namespaces::default();
        let deadline = self.now() + LINGER;
        self.timer.set(deadline);
        self.ending = Some(Ending::Flushing(end));
    }

    /// Ends what it has under way as far as that can be done, the first time. The rest its volumes keep apart from what its host does
    /// next.
    fn give_up(&mut self) {
        if std::mem::replace(&mut self.is_given_up, true) {
            return;
        }
        let announcement = announce_end(&self.scene.shard, &self.entry);
        self.queue.withdraw_all(&announcement);
        self.note_revoked();
        let Scene {
            shard, namespaces, ..
        } = &self.scene;
        self.framing.give_up(&mut self.queue, |run| {
            if let Some(attached) = namespaces.get(run.nsid()) {
                shard.record_lost(attached, run);
            }
        });
        // Its last completions may have made room for requests of others, which nobody else would submit.
        self.queue.set_now(self.now());
        self.queue.pump();
    }

    /// Sends what was written last, and lets the peer take it before the connection is closed.
    fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(ending) = self.ending.take() else {
            unreachable!("called while ending")
        };
        while let Poll::Ready(message) = self.entry.handle.mailbox.poll_next(context) {
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
                if !matches!(end, End::Framing(_) | End::Disconnected) {
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
        while self.queue.is_running() {
            if let Poll::Ready(message) = self.entry.handle.mailbox.poll_next(context) {
                self.message_too_late(message);
            } else if !self.take_late_completion(context) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Takes a completion that nobody waits for any more, if there is one.
    fn take_late_completion(&mut self, context: &mut Context<'_>) -> bool {
        let Poll::Ready(completion) = self.entry.completions.poll_pop(context) else {
            return false;
        };
        self.queue.set_now(self.now());
        if let Some((attached, run)) = self.queue.discard(&completion) {
            self.scene.shard.record_lost(&attached, &run);
        }
        self.note_revoked();
        self.scene.shard.pump_all();
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

/// What hosts can make a target keep at worst, in bytes, beside the reactors' pools and receive buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeeds {
    /// Each connection: its queue's slots and answers, its lists, what it keeps of its input, its histograms.
    pub connection_bytes: u64,
    /// Each controller, beside its admin queue's connection.
    pub controller_bytes: u64,
    /// Each reactor: large receives that are kept, discovery logs.
    pub reactor_bytes: u64,
    /// Lists of data in flight take one part in so many of the data itself.
    pub list_share: u64,
}

impl TargetConfig {
    /// What a target with this configuration keeps at worst.
    #[must_use]
    pub fn memory_needs(&self) -> MemoryNeeds {
        /// Lists grow to twice what is in them at most.
        const SLACK: usize = 2;
        /// A page: the least that data of any length is kept in.
        const DATA_BYTES_MIN: u64 = 4096;
        /// The list that is being sent, and the one that is written meanwhile.
        const GATHERS: usize = 2;
        let queue = QueuePair::memory_bytes(usize::from(self.queue_depth), SLACK);
        let framing = SLACK * Framing::memory_bytes(usize::from(self.queue_depth));
        let own = size_of::<Connection>() + size_of::<Entry>() + size_of::<Moving>();
        let pieces = GATHERS * PIECES_KEPT.next_power_of_two() * size_of::<View>();
        let namespaces = Subsystem::NAMESPACES_MAX as usize * size_of::<usize>();
        let lists = own + queue + framing + namespaces + pieces;
        MemoryNeeds {
            connection_bytes: (lists + RECEIVE_BYTES_MAX + Latency::MEMORY_BYTES_MAX) as u64,
            controller_bytes: Controller::memory_bytes(SLACK) as u64,
            reactor_bytes: (KEPT_BYTES_MAX + LARGE_RECEIVES_BYTES + DiscoveryLogs::BYTES_MAX)
                as u64,
            // In an answer, in a send, and as the kernel is told.
            list_share: DATA_BYTES_MIN / (SLACK * 3 * size_of::<View>()) as u64,
        }
    }
}

impl Ending {
    fn end(self) -> End {
        match self {
            Ending::Flushing(end) | Ending::Lingering(end) => end,
        }
    }
}
