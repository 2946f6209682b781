//! The target as its owner sees it: what it serves, where it listens, who is connected.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use weir_block::{Volume, VolumeEvent, Watcher};
use weir_nvme::Nqn;
use weir_reactor::{
    Instant, Listener, Mailbox, Reactor, Receiver, Remote, SocketOptions, SocketReport,
    TcpListener, TcpStream, oneshot,
};

use crate::config::{ConfigError, TargetConfig};
use crate::connection::{self, Entry, Message, Moving};
use crate::core::ControllerKind;
use crate::counters::{ConnectionCounters, IoCounters, IoTotals};
use crate::latency::Latency;
use crate::registry::{Handle, Registry};
use crate::shard::{Inbox, Listening, Shard, Work, key_of};
use crate::snapshot::Snapshot;

/// For how long a listener rests after an error that passes, such as no more descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How often it is looked whether connections that wait may be served.
const WAITING_LOOK: Duration = Duration::from_millis(5);
/// How often it is looked whether the host of a connection that waits has hung up.
const HUNG_UP_LOOK: Duration = Duration::from_secs(1);
/// Share of all connections that those of one source may have that are not a queue yet, and that all may have that wait to be
/// served: one in so many. So there is room for others whatever one source does, and for hosts that come back.
const NEWCOMERS_SHARE: u32 = 4;
/// Share of the half-open connections that is kept for sources that have only few: one in so many.
const KEPT_SHARE: u32 = 4;
/// Share of what is kept that is few: one in so many. A host opens all its queues before it connects the first, so these must
/// be more than one or two.
const FEW_SHARE: u32 = 2;
/// How long a shutdown waits at least for connections to close.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// How often a shutdown looks whether commands are still in flight.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// What a target's owner asked for cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The configuration is not allowed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no reactor to run on.
    #[error("a target needs at least one reactor")]
    NoReactor,
    /// A reactor has stopped, and with it this part of the target.
    #[error("reactor {reactor} of the target has stopped")]
    Stopped {
        /// Index of the reactor among the target's.
        reactor: usize,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// There is no such listener.
    #[error("nothing listens on {address}; the listeners are listed by their own addresses")]
    NoListener {
        /// The address.
        address: SocketAddr,
    },
    /// There is no such connection.
    #[error("there is no connection {id}; it may have ended already")]
    NoConnection {
        /// Its number.
        id: u64,
    },
}

/// Where a target is to listen.
#[derive(Debug)]
pub struct ListenerConfig {
    /// The address; port 0 takes one that is free.
    pub address: SocketAddr,
    /// Options of its connections.
    pub options: SocketOptions,
    /// Only the discovery subsystem is served there.
    pub discovery_only: bool,
    /// A socket that listens already, handed down by a service manager.
    pub inherited: Option<Listener>,
}

impl ListenerConfig {
    /// A listener for everything at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        ListenerConfig {
            address,
            options: SocketOptions::default(),
            discovery_only: false,
            inherited: None,
        }
    }
}

/// A connection as it is now.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Its number, unique while the target lives.
    pub id: u64,
    /// Index of its reactor among the target's.
    pub reactor: usize,
    /// The host's address.
    pub peer: SocketAddr,
    /// The address that the host reached.
    pub local: SocketAddr,
    /// What it is connected to; none before its Connect.
    pub association: Option<Association>,
    /// What its queue is like; none before its Connect.
    pub queue: Option<QueueInfo>,
    /// Commands in its queue.
    pub in_flight: u32,
    /// Bytes received so far.
    pub bytes_received: u64,
    /// Bytes sent so far.
    pub bytes_sent: u64,
    /// What the system says of the socket.
    pub socket: Option<SocketReport>,
}

/// What was agreed for a connection's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueInfo {
    /// Entries of the queue (SQSIZE + 1).
    pub entries: u32,
    /// Whether SQ flow control is on.
    pub flow_control: bool,
    /// Whether PDU headers have digests.
    pub header_digest: bool,
    /// Whether data has digests.
    pub data_digest: bool,
}

/// What a connection is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// The host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: weir_nvme::HostId,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The controller.
    pub controller_id: u16,
    /// The queue; 0 is the admin queue.
    pub qid: u16,
}

/// Requests of a host on a namespace whose right was taken away.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revoked {
    /// The host.
    pub host_nqn: Nqn,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The namespace's NSID when the requests came.
    pub nsid: u32,
}

/// A controller as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Its subsystem.
    pub subsystem_nqn: Nqn,
    /// Its identifier.
    pub id: u16,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// Its host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: weir_nvme::HostId,
    /// Index of the reactor of its admin queue.
    pub reactor: usize,
    /// Its I/O queues.
    pub io_queues: Vec<u16>,
}

/// Counts since the target started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetStats {
    /// Connections now.
    pub connections: u32,
    /// Of these, without a granted Connect.
    pub half_open: u32,
    /// Of these, accepted and not served yet: there are too many half-open ones.
    pub waiting: u32,
    /// Controllers now.
    pub controllers: u32,
    /// By reactor.
    pub reactors: Vec<ShardStats>,
    /// By subsystem, those included that were removed.
    pub subsystems: Vec<(Nqn, IoTotals)>,
}

/// Counts of one reactor since the target started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardStats {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connects that were refused, and connections that were closed as they came.
    pub refused: u64,
    /// Connections that were closed as they came: there were as many as there may be.
    pub over_connections: u64,
    /// Connections that were closed as they came: too many of their address were not a queue yet.
    pub over_address: u64,
    /// Connections that were closed as they came, because too many waited to be served, or when they had waited for too long:
    /// there were too many half-open ones.
    pub over_half_open: u64,
    /// Connects that were refused because there were as many controllers as there may be, of the host or in all.
    pub over_controllers: u64,
    /// Times that a connection's commands had to wait for buffers that others had.
    pub buffer_waits: u64,
    /// Times that a connection's commands had to wait for its own: as much of its data was in flight as may be.
    pub own_waits: u64,
    /// Bytes of data in flight now: what hosts were asked for, and what they were sent and have not taken.
    pub bytes_in_flight: u64,
    /// Connections whose Connect did not come in time.
    pub handshake_timeouts: u64,
    /// Controllers whose keep-alive timer expired.
    pub keep_alive_expiries: u64,
    /// Connections that broke a rule of the transport.
    pub terminated: u64,
    /// Connections that the system gave up: a reset, or a peer that is gone.
    pub lost: u64,
    /// Connections whose host did not send the rest of a PDU in time.
    pub stalled_arriving: u64,
    /// Connections whose host did not send data that it was asked for in time.
    pub stalled_awaited: u64,
    /// Connections whose host did not take in time what it was sent.
    pub stalled_sending: u64,
    /// PDUs whose data was damaged on its way.
    pub data_digest_errors: u64,
    /// Connections that ended by a broken invariant.
    pub panics: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Sends; each may carry many PDUs.
    pub sends: u64,
    /// I/O of the reactor's queues.
    pub io: IoTotals,
}

/// Counts of one subsystem on every reactor.
pub(crate) struct SubsystemCounters {
    pub(crate) by_reactor: Box<[IoCounters]>,
}

impl SubsystemCounters {
    pub(crate) fn totals(&self) -> IoTotals {
        let mut totals = IoTotals::default();
        for counters in &self.by_reactor {
            totals.add(counters);
        }
        totals
    }
}

/// How a reactor's part of the target is reached.
pub(crate) struct ShardHandle {
    work: Arc<Mailbox<Work>>,
    pub(crate) counters: Arc<ConnectionCounters>,
}

struct ListenerEntry {
    id: u64,
    reactor: usize,
    address: SocketAddr,
}

#[derive(Default)]
struct State {
    snapshot: Arc<Snapshot>,
    subsystems: HashMap<Nqn, Arc<SubsystemCounters>>,
    listeners: Vec<ListenerEntry>,
    watches: Vec<Arc<VolumeWatch>>,
}

/// What all reactors share of a target.
pub(crate) struct TargetShared {
    pub(crate) config: TargetConfig,
    pub(crate) shards: Vec<ShardHandle>,
    pub(crate) registry: Registry,
    pub(crate) started: Instant,
    state: Mutex<State>,
    next_id: AtomicU64,
    connections: AtomicU32,
    arrivals: Mutex<Arrivals>,
}

/// Where a connection comes from: an IPv4 address, or an IPv6 network of 64 bits, all of which one host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(peer: SocketAddr) -> Self {
        const HOST_BITS: u32 = 64;
        Source(match peer.ip().to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> HOST_BITS << HOST_BITS).into(),
            ip => ip,
        })
    }
}

/// Connections of one source that are not a queue yet.
#[derive(Debug, Clone, Copy, Default)]
struct Newcomers {
    half_open: u32,
    waiting: u32,
}

/// Connections that are not a queue yet.
#[derive(Debug, Default)]
struct Arrivals {
    all: Newcomers,
    by_source: HashMap<Source, Newcomers>,
}

impl Arrivals {
    fn of(&self, source: Source) -> Newcomers {
        self.by_source.get(&source).copied().unwrap_or_default()
    }

    fn change(&mut self, source: Source, change: impl Fn(&mut Newcomers)) {
        change(&mut self.all);
        let of_source = self.by_source.entry(source).or_default();
        change(of_source);
        if of_source.half_open == 0 && of_source.waiting == 0 {
            self.by_source.remove(&source);
        }
    }

    /// Whether one more of this source may be half open. The last places are for sources that have few: two that take all
    /// that one may have do not keep a third out.
    fn may_serve(&self, source: Source, config: &TargetConfig) -> bool {
        let of_source = self.of(source).half_open;
        let kept = config.max_half_open / KEPT_SHARE;
        let has_few = of_source < (kept / FEW_SHARE).max(1);
        let places = match has_few {
            true => config.max_half_open,
            false => config.max_half_open - kept,
        };
        self.all.half_open < places && of_source < config.max_half_open_per_address
    }
}

/// What becomes of a connection that was accepted.
enum Arrival {
    Serve,
    Wait,
    /// There are as many connections as there may be.
    Full,
    /// As many wait as may.
    RefuseAny,
    /// Its source has as many that are not a queue yet as it may have.
    RefuseSource,
}

/// A connection that was accepted and waits until it may be served: nothing is received of it, and it is closed when it has
/// waited for too long.
pub(crate) struct Waiting {
    stream: TcpStream,
    local: SocketAddr,
    discovery_only: bool,
    source: Source,
    until: Instant,
    /// When it is looked next whether its host has hung up.
    look_at: Instant,
}

/// Tells the target when a volume changes.
struct VolumeWatch {
    target: Weak<TargetShared>,
    volume: Arc<dyn Volume>,
    /// What the volume has left unanswered may take effect still.
    unfenced: AtomicBool,
}

impl VolumeWatch {
    fn is_of(&self, volume: &Arc<dyn Volume>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.volume), Arc::as_ptr(volume))
    }
}

impl Watcher for VolumeWatch {
    fn notice(&self, event: VolumeEvent) {
        match event {
            VolumeEvent::Resized => {
                if let Some(target) = self.target.upgrade() {
                    target.volume_changed();
                }
            }
            // Requests say so themselves.
            VolumeEvent::Lost | VolumeEvent::Restored | VolumeEvent::CacheLost => {}
            VolumeEvent::Unfenced => {
                self.unfenced.store(true, Ordering::Release);
                if let Some(target) = self.target.upgrade() {
                    target.volume_unfenced(&self.volume);
                }
            }
            VolumeEvent::Fenced => self.unfenced.store(false, Ordering::Release),
        }
    }
}

impl TargetShared {
    fn new(config: TargetConfig, reactors: usize, started: Instant) -> Self {
        let shard = || ShardHandle {
            work: Mailbox::new(),
            counters: Arc::default(),
        };
        TargetShared {
            config,
            shards: std::iter::repeat_with(shard).take(reactors).collect(),
            registry: Registry::new(reactors),
            started,
            state: Mutex::default(),
            next_id: AtomicU64::new(1),
            connections: AtomicU32::new(0),
            arrivals: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subsystem_counters(&self, nqn: &Nqn) -> Option<Arc<SubsystemCounters>> {
        self.lock().subsystems.get(nqn).cloned()
    }

    pub(crate) fn connection_ended(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn half_open_ended(&self, source: Source) {
        self.arrivals()
            .change(source, |newcomers| newcomers.half_open -= 1);
    }

    /// Counts a connection that was accepted, and says what becomes of it. All reactors count under one lock: else each of
    /// them could have the last place.
    fn arrive(&self, source: Source) -> Arrival {
        let mut arrivals = self.arrivals();
        if self.connections.load(Ordering::Relaxed) >= self.config.max_connections {
            return Arrival::Full;
        }
        let newcomers_max = (self.config.max_connections / NEWCOMERS_SHARE).max(1);
        let of_source = arrivals.of(source);
        // Who comes later is not served before those of its source that wait.
        let is_first = of_source.waiting == 0;
        if of_source.half_open + of_source.waiting >= newcomers_max {
            return Arrival::RefuseSource;
        }
        if is_first && arrivals.may_serve(source, &self.config) {
            arrivals.change(source, |newcomers| newcomers.half_open += 1);
            self.connections.fetch_add(1, Ordering::Relaxed);
            return Arrival::Serve;
        }
        if arrivals.all.waiting >= newcomers_max {
            return Arrival::RefuseAny;
        }
        arrivals.change(source, |newcomers| newcomers.waiting += 1);
        self.connections.fetch_add(1, Ordering::Relaxed);
        Arrival::Wait
    }

    /// Takes those out of `waiting` that may be served now; they are counted as half open.
    fn call_in(&self, waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
        // Once for all: many may wait, on every reactor.
        let mut arrivals = self.arrivals();
        let mut called = Vec::new();
        if arrivals.all.half_open >= self.config.max_half_open {
            return called;
        }
        let mut left = VecDeque::with_capacity(waiting.len());
        for one in waiting.drain(..) {
            if arrivals.may_serve(one.source, &self.config) {
                arrivals.change(one.source, |newcomers| {
                    newcomers.waiting -= 1;
                    newcomers.half_open += 1;
                });
                called.push(one);
            } else {
                left.push_back(one);
            }
        }
        *waiting = left;
        called
    }

    fn waits_no_longer(&self, source: Source) {
        self.arrivals()
            .change(source, |newcomers| newcomers.waiting -= 1);
        self.connection_ended();
    }

    /// Sends a connection to the reactor that its queue belongs on.
    pub(crate) fn hand_over(self: &Arc<Self>, reactor: usize, moving: Moving) {
        // A cell, so that the connection is not lost with the work when nobody takes it.
        let cell = Arc::new(Mutex::new(Some(moving)));
        let taken = Arc::clone(&cell);
        let work: Work = Box::new(move |shard| {
            let moving = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            connection::moved_in(shard, moving.expect("work is done once"));
        });
        if self.shards[reactor].work.send(work).is_err()
            && let Some(moving) = cell.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            connection::lost_on_the_way(self, moving);
        }
    }

    /// Runs `work` on one reactor's part; its result comes in the receiver, or none when the reactor stopped.
    fn ask<T: Send + 'static>(
        &self,
        reactor: usize,
        work: impl FnOnce(&Rc<Shard>) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, receiver) = oneshot();
        let work: Work = Box::new(move |shard| sender.send(work(shard)));
        // Where nobody takes the work its sender is dropped, which the receiver sees.
        drop(self.shards[reactor].work.send(work));
        receiver
    }

    fn tell_every(&self, work: impl Fn(&Rc<Shard>) + Clone + Send + 'static) {
        for shard in &self.shards {
            let work = work.clone();
            drop(shard.work.send(Box::new(move |shard| work(shard))));
        }
    }

    /// A volume's geometry changed: every reactor looks at it, and then the hosts are told.
    fn volume_changed(self: &Arc<Self>) {
        let left = Arc::new(AtomicU32::new(self.shards.len() as u32));
        let target = Arc::clone(self);
        self.tell_every(move |shard| {
            shard.renew_geometry();
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                target.announce();
            }
        });
    }

    /// Commands on a volume stay unanswered, and no time can be named: connections that have any are ended, and hosts that wait
    /// to connect to a queue are told why they cannot.
    fn volume_unfenced(&self, volume: &Arc<dyn Volume>) {
        let volume = Arc::downgrade(volume);
        self.tell_every(move |shard| shard.tell_all(|| Message::Unfenced(Weak::clone(&volume))));
        self.registry.retry_waiting();
    }

    /// Whether what `host` sees of a subsystem includes a volume that has left commands unanswered, which may take effect still.
    pub(crate) fn sees_unfenced(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        let state = self.lock();
        let unfenced = |watch: &&Arc<VolumeWatch>| watch.unfenced.load(Ordering::Acquire);
        let mut unfenced = state.watches.iter().filter(unfenced).peekable();
        if unfenced.peek().is_none() {
            return false;
        }
        let Some(subsystem) = state.snapshot.subsystem(subsystem.as_str()) else {
            return false;
        };
        unfenced.any(|watch| {
            let mut namespaces = subsystem.namespaces.iter();
            namespaces.any(|one| one.visible_to.allows(host) && watch.is_of(&one.volume))
        })
    }

    fn announce(&self) {
        self.tell_every(|shard| shard.tell_all(|| Message::Announce));
    }
}

/// An NVMe/TCP target on a number of reactors. Clones are handles of one target, and may be used on any thread.
#[derive(Clone)]
pub struct Target {
    shared: Arc<TargetShared>,
}

impl Target {
    /// A target that serves nothing yet and listens nowhere.
    ///
    /// # Errors
    /// [`TargetError::Config`], [`TargetError::NoReactor`], or [`TargetError::Stopped`].
    pub async fn new(reactors: Vec<Remote>, config: TargetConfig) -> Result<Self, TargetError> {
        config.check()?;
        let first = reactors.first().ok_or(TargetError::NoReactor)?;
        let started = first
            .call(|reactor: Reactor| async move { reactor.now() })
            .await
            .map_err(|_| TargetError::Stopped { reactor: 0 })?;
        let shared = Arc::new(TargetShared::new(config, reactors.len(), started));
        for (index, remote) in reactors.iter().enumerate() {
            let target = Arc::clone(&shared);
            let work = Inbox(Arc::clone(&shared.shards[index].work));
            remote
                .run(move |reactor| {
                    let shard = Shard::new(index, reactor, target);
                    reactor.spawn(shard.run(work)).detach();
                })
                .map_err(|_| TargetError::Stopped { reactor: index })?;
        }
        Ok(Target { shared })
    }

    /// Serves `snapshot` from now on, in place of the one before. Done when every reactor has it; then hosts are told what
    /// changed for them. A volume that is served no more is held only by what is in flight on it. What hosts may do no more does
    /// not begin any more; what of it is under way is in [`Target::revoked`] until it has ended. Calls are to be made one after
    /// another.
    ///
    /// # Errors
    /// [`TargetError::Stopped`].
    pub async fn apply(&self, snapshot: Snapshot) -> Result<(), TargetError> {
        let snapshot = Arc::new(snapshot);
        self.prepare(&snapshot);
        let answers: Vec<_> = (0..self.shared.shards.len())
            .map(|reactor| {
                let snapshot = Arc::clone(&snapshot);
                self.shared.ask(reactor, move |shard| shard.apply(snapshot))
            })
            .collect();
        for (reactor, answer) in answers.into_iter().enumerate() {
            let connections = answer.await.ok_or(TargetError::Stopped { reactor })?;
            for connection in connections {
                // None: the connection has ended.
                let _ = connection.await;
            }
        }
        self.shared.announce();
        Ok(())
    }

    /// Makes the counters of new subsystems and watches new volumes.
    fn prepare(&self, snapshot: &Arc<Snapshot>) {
        let reactors = self.shared.shards.len();
        let mut state = self.shared.lock();
        let mut watches = Vec::new();
        for subsystem in &snapshot.subsystems {
            state
                .subsystems
                .entry(subsystem.nqn.clone())
                .or_insert_with(|| {
                    let by_reactor = (0..reactors).map(|_| IoCounters::default()).collect();
                    Arc::new(SubsystemCounters { by_reactor })
                });
            for namespace in &subsystem.namespaces {
                let same = |watch: &&Arc<VolumeWatch>| watch.is_of(&namespace.volume);
                if watches.iter().any(|watch| same(&watch)) {
                    continue;
                }
                let kept = state.watches.iter().find(same).cloned();
                watches.push(kept.unwrap_or_else(|| self.watch(&namespace.volume)));
            }
        }
        state.watches = watches;
        state.snapshot = Arc::clone(snapshot);
    }

    fn watch(&self, volume: &Arc<dyn Volume>) -> Arc<VolumeWatch> {
        let watch = Arc::new(VolumeWatch {
            target: Arc::downgrade(&self.shared),
            volume: Arc::clone(volume),
            unfenced: AtomicBool::new(false),
        });
        let watcher: Arc<dyn Watcher> = watch.clone();
        volume.watch(Arc::downgrade(&watcher));
        watch
    }

    /// Listens, and yields the address with its real port.
    ///
    /// # Errors
    /// [`TargetError::Listen`] or [`TargetError::Stopped`].
    pub async fn add_listener(&self, config: ListenerConfig) -> Result<SocketAddr, TargetError> {
        let reactor = self.reactor_for_listener();
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let asked = config.address;
        let answer = self
            .shared
            .ask(reactor, move |shard| listen(shard, id, config));
        let stopped = TargetError::Stopped { reactor };
        let address = answer
            .await
            .ok_or(stopped)?
            .map_err(|error| TargetError::Listen {
                address: asked,
                error,
            })?;
        self.shared.lock().listeners.push(ListenerEntry {
            id,
            reactor,
            address,
        });
        Ok(address)
    }

    /// The reactor with the fewest listeners.
    fn reactor_for_listener(&self) -> usize {
        let state = self.shared.lock();
        let listeners = |reactor: usize| {
            let on = |entry: &&ListenerEntry| entry.reactor == reactor;
            state.listeners.iter().filter(on).count()
        };
        (0..self.shared.shards.len())
            .min_by_key(|&reactor| listeners(reactor))
            .expect("a target has a reactor")
    }

    /// Stops listening. Connections that were accepted stay.
    ///
    /// # Errors
    /// [`TargetError::NoListener`] or [`TargetError::Stopped`].
    pub async fn remove_listener(&self, address: SocketAddr) -> Result<(), TargetError> {
        let entry = {
            let mut state = self.shared.lock();
            let found = state
                .listeners
                .iter()
                .position(|entry| entry.address == address);
            let index = found.ok_or(TargetError::NoListener { address })?;
            state.listeners.remove(index)
        };
        let reactor = entry.reactor;
        let answer = self.shared.ask(reactor, move |shard| {
            drop(shard.listeners.borrow_mut().remove(&entry.id));
        });
        answer.await.ok_or(TargetError::Stopped { reactor })
    }

    /// Gives the connections that are accepted at `address` from now on other options.
    ///
    /// # Errors
    /// [`TargetError::NoListener`] or [`TargetError::Stopped`].
    pub async fn set_listener_options(
        &self,
        address: SocketAddr,
        options: SocketOptions,
    ) -> Result<(), TargetError> {
        let (id, reactor) = {
            let state = self.shared.lock();
            let found = state
                .listeners
                .iter()
                .find(|entry| entry.address == address)
                .ok_or(TargetError::NoListener { address })?;
            (found.id, found.reactor)
        };
        let answer = self.shared.ask(reactor, move |shard| {
            if let Some(listening) = shard.listeners.borrow().get(&id) {
                *listening.options.borrow_mut() = options;
            }
        });
        answer.await.ok_or(TargetError::Stopped { reactor })
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let state = self.shared.lock();
        state.listeners.iter().map(|entry| entry.address).collect()
    }

    /// Every connection. A reactor that has stopped has none.
    pub async fn connections(&self) -> Vec<ConnectionInfo> {
        let answers: Vec<_> = (0..self.shared.shards.len())
            .map(|reactor| self.shared.ask(reactor, describe_connections))
            .collect();
        let mut all = Vec::new();
        for answer in answers {
            for (mut info, report) in answer.await.unwrap_or_default() {
                info.socket = match report {
                    Some(report) => report.await.flatten(),
                    None => None,
                };
                all.push(info);
            }
        }
        all
    }

    /// Where the time of namespaces' commands went since they are served, by subsystem and NSID: of one namespace, or of all.
    pub async fn namespace_latencies(
        &self,
        only: Option<(Nqn, u32)>,
    ) -> BTreeMap<(Nqn, u32), Latency> {
        let ask = move |shard: &Rc<Shard>| shard.namespace_latencies(only.as_ref());
        self.gather_latencies(ask).await
    }

    /// Where the time of connections' commands went, by number: of one connection, or of all. Admin queues have none.
    pub async fn connection_latencies(&self, only: Option<u64>) -> BTreeMap<u64, Latency> {
        let ask = move |shard: &Rc<Shard>| shard.connection_latencies(only);
        self.gather_latencies(ask).await
    }

    /// Where the time of subsystems' commands went since they are served; it only grows.
    pub async fn subsystem_latencies(&self) -> BTreeMap<Nqn, Latency> {
        self.gather_latencies(|shard: &Rc<Shard>| shard.subsystem_latencies())
            .await
    }

    /// Latencies of each of these volumes, through all namespaces whose [`Namespace::counted`] it is or was. They only grow while
    /// somebody holds the volume.
    ///
    /// Commands whose connection was lost are among them from when the volume has done them. They say how long the volume took
    /// ([`Stage::Volume`]), and nothing of an answer.
    ///
    /// [`Namespace::counted`]: crate::Namespace::counted
    /// [`Stage::Volume`]: crate::Stage::Volume
    pub async fn volume_latencies(&self, volumes: &[Arc<dyn Volume>]) -> Vec<Latency> {
        let all = self
            .gather_latencies(|shard: &Rc<Shard>| shard.volume_latencies())
            .await;
        let of_volume = |volume| all.get(&key_of(volume)).cloned().unwrap_or_default();
        volumes.iter().map(of_volume).collect()
    }

    /// Sums what the reactors tell. One that has stopped tells nothing.
    async fn gather_latencies<K: Ord + Send + 'static>(
        &self,
        ask: impl Fn(&Rc<Shard>) -> Vec<(K, Latency)> + Clone + Send + 'static,
    ) -> BTreeMap<K, Latency> {
        let answers: Vec<_> = (0..self.shared.shards.len())
            .map(|reactor| self.shared.ask(reactor, ask.clone()))
            .collect();
        let mut all = BTreeMap::<K, Latency>::new();
        for answer in answers {
            for (key, latency) in answer.await.unwrap_or_default() {
                all.entry(key).or_default().merge(&latency);
            }
        }
        all
    }

    /// Number of requests under way on volumes although their hosts may not do this any more, those included whose
    /// connections are gone. A reactor that has stopped has none.
    pub async fn revoked(&self) -> BTreeMap<Revoked, u64> {
        let answers: Vec<_> = (0..self.shared.shards.len())
            .map(|reactor| self.shared.ask(reactor, |shard| shard.revoked()))
            .collect();
        let mut all = BTreeMap::new();
        for answer in answers {
            for (revoked, requests) in answer.await.unwrap_or_default() {
                *all.entry(revoked).or_default() += requests;
            }
        }
        all
    }

    /// Ends a connection; an admin queue's takes its controller with it.
    ///
    /// # Errors
    /// [`TargetError::NoConnection`].
    pub async fn disconnect(&self, id: u64) -> Result<(), TargetError> {
        let answers: Vec<_> = (0..self.shared.shards.len())
            .map(|reactor| {
                self.shared.ask(reactor, move |shard| {
                    let connections = shard.connections.borrow();
                    let end = Message::End("it was ended by command");
                    connections
                        .get(&id)
                        .is_some_and(|entry| entry.handle.mailbox.send(end).is_ok())
                })
            })
            .collect();
        let mut found = false;
        for answer in answers {
            found |= answer.await.unwrap_or(false);
        }
        if found {
            Ok(())
        } else {
            Err(TargetError::NoConnection { id })
        }
    }

    /// Every controller.
    #[must_use]
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        let controllers = self.shared.registry.controllers();
        let describe =
            |(shared, io_queues): (Arc<crate::registry::Shared>, Vec<u16>)| ControllerInfo {
                subsystem_nqn: shared.subsystem_nqn.clone(),
                id: shared.id,
                discovery: shared.kind == ControllerKind::Discovery,
                host_nqn: shared.host.nqn.clone(),
                host_id: shared.host.id,
                reactor: shared.reactor,
                io_queues,
            };
        controllers.into_iter().map(describe).collect()
    }

    /// Counts since the target started.
    #[must_use]
    pub fn stats(&self) -> TargetStats {
        let state = self.shared.lock();
        let reactors = self.shared.shards.iter().enumerate();
        let mut subsystems: Vec<_> = state
            .subsystems
            .iter()
            .map(|(nqn, counters)| (nqn.clone(), counters.totals()))
            .collect();
        subsystems.sort_by(|(one, _), (other, _)| one.cmp(other));
        let newcomers = self.shared.arrivals().all;
        TargetStats {
            connections: self.shared.connections.load(Ordering::Relaxed),
            half_open: newcomers.half_open,
            waiting: newcomers.waiting,
            controllers: self.shared.registry.controllers().len() as u32,
            reactors: reactors
                .map(|(index, shard)| shard_stats(index, &shard.counters, &state))
                .collect(),
            subsystems,
        }
    }

    /// Stops listening, tells the hosts, lets commands end for up to `drain`, and then ends every connection, waiting as long
    /// again, and five seconds at least, for what volumes are still doing. Afterwards the target is of no more use.
    pub async fn shutdown(&self, drain: Duration) {
        self.shared.lock().listeners.clear();
        self.shared.tell_every(|shard| {
            shard.listeners.borrow_mut().clear();
            forget_waiting(shard);
            shard.tell_all(|| Message::ShuttingDown);
        });
        let (sender, drained) = oneshot();
        let shared = Arc::clone(&self.shared);
        let watch = move |shard: &Rc<Shard>| {
            let reactor = shard.reactor.clone();
            let task = async move {
                let deadline = reactor.now() + drain;
                while !is_drained(&shared).await && reactor.now() < deadline {
                    reactor.sleep(DRAIN_POLL).await;
                }
                shared.tell_every(|shard| {
                    shard.tell_all(|| Message::End("the target shuts down"));
                });
                let give_up = reactor.now() + drain.max(CLOSE_TIME);
                while shared.connections.load(Ordering::Relaxed) > 0 && reactor.now() < give_up {
                    reactor.sleep(DRAIN_POLL).await;
                }
                let left = shared.connections.load(Ordering::Relaxed);
                if left > 0 {
                    tracing::warn!(
                        left,
                        "connections wait for volumes that do not answer; left as they are"
                    );
                }
                shared.tell_every(|shard| shard.stopped.set(true));
                sender.send(());
            };
            shard.reactor.spawn(task).detach();
        };
        // Without an answer the reactor stopped, and its connections with it.
        let _ = self.shared.ask(0, watch).await;
        let _ = drained.await;
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Target")
            .field("reactors", &self.shared.shards.len())
            .finish_non_exhaustive()
    }
}

/// Whether no command is in flight but those that wait for events.
async fn is_drained(shared: &TargetShared) -> bool {
    let answers: Vec<_> = (0..shared.shards.len())
        .map(|reactor| {
            shared.ask(reactor, |shard| {
                let connections = shard.connections.borrow();
                connections.values().all(|entry| entry.is_idle())
            })
        })
        .collect();
    let mut drained = true;
    for answer in answers {
        drained &= answer.await.unwrap_or(true);
    }
    drained
}

fn shard_stats(index: usize, counters: &ConnectionCounters, state: &State) -> ShardStats {
    let mut io = IoTotals::default();
    for subsystem in state.subsystems.values() {
        io.add(&subsystem.by_reactor[index]);
    }
    ShardStats {
        accepted: counters.accepted.get(),
        refused: counters.refused.get(),
        over_connections: counters.over_connections.get(),
        over_address: counters.over_address.get(),
        over_half_open: counters.over_half_open.get(),
        over_controllers: counters.over_controllers.get(),
        buffer_waits: counters.buffer_waits.get(),
        own_waits: counters.own_waits.get(),
        bytes_in_flight: counters.bytes_in_flight.get(),
        handshake_timeouts: counters.handshake_timeouts.get(),
        keep_alive_expiries: counters.keep_alive_expiries.get(),
        terminated: counters.terminated.get(),
        lost: counters.lost.get(),
        stalled_arriving: counters.stalled_arriving.get(),
        stalled_awaited: counters.stalled_awaited.get(),
        stalled_sending: counters.stalled_sending.get(),
        data_digest_errors: counters.data_digest_errors.get(),
        panics: counters.panics.get(),
        bytes_received: counters.bytes_received.get(),
        bytes_sent: counters.bytes_sent.get(),
        sends: counters.sends.get(),
        io,
    }
}

type Described = (ConnectionInfo, Option<Receiver<Option<SocketReport>>>);

fn describe_connections(shard: &Rc<Shard>) -> Vec<Described> {
    let describe = |entry: &Rc<Entry>| {
        let association = entry.association.borrow();
        let association = association.as_ref().map(|(shared, qid)| Association {
            host_nqn: shared.host.nqn.clone(),
            host_id: shared.host.id,
            subsystem_nqn: shared.subsystem_nqn.clone(),
            controller_id: shared.id,
            qid: *qid,
        });
        let info = ConnectionInfo {
            id: entry.handle.id,
            reactor: shard.index,
            peer: entry.peer,
            local: entry.local,
            association,
            queue: entry.queue.get(),
            in_flight: entry.in_flight.get(),
            bytes_received: entry.bytes_received.get(),
            bytes_sent: entry.bytes_sent.get(),
            socket: None,
        };
        let (sender, receiver) = oneshot();
        let asked = entry.handle.mailbox.send(Message::Report(sender));
        (info, asked.is_ok().then_some(receiver))
    };
    let connections = shard.connections.borrow();
    connections.values().map(describe).collect()
}

/// Opens a listener on this reactor and starts to accept.
fn listen(shard: &Rc<Shard>, id: u64, config: ListenerConfig) -> std::io::Result<SocketAddr> {
    let reactor = &shard.reactor;
    let listener = match config.inherited {
        Some(listener) => listener,
        None => Arc::clone(reactor.system()).listen(config.address, &config.options)?,
    };
    let address = listener.address();
    let listener = TcpListener::new(reactor, listener);
    let options = Rc::new(RefCell::new(config.options));
    let accepting = reactor.spawn(accept(
        Rc::clone(shard),
        listener,
        Rc::clone(&options),
        config.discovery_only,
    ));
    let listening = Listening {
        _accepting: accepting,
        options,
    };
    shard.listeners.borrow_mut().insert(id, listening);
    Ok(address)
}

async fn accept(
    shard: Rc<Shard>,
    listener: TcpListener,
    options: Rc<RefCell<SocketOptions>>,
    discovery_only: bool,
) {
    loop {
        match listener.accept().await {
            Ok(stream) => admit(&shard, stream, &options.borrow(), discovery_only),
            Err(error) => {
                tracing::warn!(address = %listener.address(), %error, "a connection was not accepted");
                shard.reactor.sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Serves connections that wait, as soon as they may be, or closes them when their host has hung up or they have waited for too
/// long.
async fn call_in(shard: Rc<Shard>) {
    loop {
        let now = shard.reactor.now();
        let mut waiting = std::mem::take(&mut *shard.waiting.borrow_mut());
        waiting.retain_mut(|one| waits_on(&shard, one, now));
        for one in shard.target.call_in(&mut waiting) {
            serve(&shard, one);
        }
        let is_over = waiting.is_empty();
        *shard.waiting.borrow_mut() = waiting;
        if is_over {
            return;
        }
        shard.reactor.sleep(WAITING_LOOK).await;
    }
}

/// Whether a connection goes on waiting; it is counted no more otherwise.
fn waits_on(shard: &Shard, one: &mut Waiting, now: Instant) -> bool {
    if one.until <= now {
        shard.counters.over_half_open.add(1);
        tracing::warn!(
            peer = %one.stream.peer_address(), limit = shard.target.config.max_half_open,
            limit_per_address = shard.target.config.max_half_open_per_address,
            "a connection was closed: too many before it are not connected to a queue yet"
        );
        shard.target.waits_no_longer(one.source);
        return false;
    }
    if one.look_at <= now {
        one.look_at = now + HUNG_UP_LOOK;
        if one.stream.has_peer_ended() {
            tracing::debug!(peer = %one.stream.peer_address(), "a host hung up before it was served");
            shard.target.waits_no_longer(one.source);
            return false;
        }
    }
    true
}

/// Closes the connections that wait to be served.
fn forget_waiting(shard: &Shard) {
    for one in std::mem::take(&mut *shard.waiting.borrow_mut()) {
        shard.target.waits_no_longer(one.source);
    }
}

fn serve(shard: &Rc<Shard>, arrived: Waiting) {
    let handle = Handle {
        id: shard.target.next_id.fetch_add(1, Ordering::Relaxed),
        mailbox: Mailbox::new(),
    };
    let Waiting {
        stream,
        local,
        discovery_only,
        source,
        ..
    } = arrived;
    connection::accepted(shard, stream, local, handle, discovery_only, source);
}

/// Serves a new connection, has it wait, or closes it when there are too many.
fn admit(shard: &Rc<Shard>, stream: TcpStream, options: &SocketOptions, discovery_only: bool) {
    let target = &shard.target;
    shard.counters.accepted.add(1);
    let peer = stream.peer_address();
    let local = match stream.local_address() {
        Ok(local) => local,
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection was gone before it was served");
            return;
        }
    };
    if let Err(error) = stream.set_options(options) {
        tracing::warn!(%peer, %error, "the listener's socket options were not set");
    }
    let (source, now) = (Source::of(peer), shard.reactor.now());
    let arrived = Waiting {
        stream,
        local,
        discovery_only,
        source,
        until: now + 2 * target.config.handshake_timeout,
        look_at: now + HUNG_UP_LOOK,
    };
    match target.arrive(source) {
        Arrival::Serve => serve(shard, arrived),
        Arrival::Wait => {
            let mut waiting = shard.waiting.borrow_mut();
            waiting.push_back(arrived);
            if waiting.len() == 1 {
                shard.reactor.spawn(call_in(Rc::clone(shard))).detach();
            }
        }
        Arrival::Full => {
            shard.counters.refused.add(1);
            shard.counters.over_connections.add(1);
            tracing::warn!(%peer, limit = target.config.max_connections, "a connection too many was closed");
        }
        Arrival::RefuseAny => {
            shard.counters.refused.add(1);
            shard.counters.over_half_open.add(1);
            tracing::warn!(%peer, "a connection was closed: too many wait to be served");
        }
        Arrival::RefuseSource => {
            shard.counters.refused.add(1);
            shard.counters.over_address.add(1);
            tracing::warn!(%peer, "a connection too many of its address was closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactors_that_accept_at_once_have_no_connection_too_many() {
        const MOST: u32 = 2;
        const REACTORS: u8 = 4;
        let config = TargetConfig {
            max_connections: MOST,
            ..TargetConfig::default()
        };
        let target = TargetShared::new(config, 0, Instant::default());
        std::thread::scope(|scope| {
            for number in 0..REACTORS {
                let target = &target;
                scope.spawn(move || {
                    let source = Source(IpAddr::from([192, 0, 2, number]));
                    for _ in 0..100_000 {
                        if let Arrival::Serve = target.arrive(source) {
                            let now = target.connections.load(Ordering::Relaxed);
                            target.half_open_ended(source);
                            target.connection_ended();
                            assert!(now <= MOST, "{now} connections");
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_source_is_an_ipv4_address_however_it_is_written_or_an_ipv6_network() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.1:1"), of("192.0.2.1:2"));
        assert_eq!(of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:1"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:0:0:1]:1"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
    }
}
