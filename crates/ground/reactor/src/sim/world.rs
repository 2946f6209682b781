//! All that is simulated, behind one lock that nobody ever waits for, and the handle to it from which faults are injected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use super::disk::Disks;
use super::injected::{FaultKind, Injected};
use super::network::{Accepted, Connection, Network};
use super::random::nanoseconds;
use super::schedule::{Event, Schedule, Step};
use super::settings::{Config, Crash, DiskConfig, Faults, HostId};
use super::system::Starting;
use crate::{Handle, Instant, ReactorId};

pub(super) type Work = Box<dyn FnOnce() + Send>;

/// A reactor as the world knows it.
pub(super) struct ReactorState {
    pub(super) host: HostId,
    pub(super) id: ReactorId,
    /// Its host crashed: nothing that it does has an effect any more.
    pub(super) dead: bool,
    pub(super) ended: bool,
    /// It is not turned before this moment.
    pub(super) stalled_until: u64,
    /// Memory of its ring receives that readers hold, in bytes.
    pub(super) receive_bytes_held: usize,
    /// Operations that it waits for, by number, to be shown when nothing moves any more.
    pub(super) operations: BTreeMap<u64, (&'static str, Handle)>,
}

pub(super) struct HostState {
    pub(super) name: String,
    pub(super) up: bool,
    /// The lead of its monotonic clock over the world's: hosts do not share one.
    pub(super) clock_offset: u64,
    /// The number of its processors.
    pub(super) processors: usize,
}

pub(super) struct State {
    pub(super) schedule: Schedule,
    pub(super) network: Network,
    pub(super) disks: Disks,
    pub(super) hosts: Vec<HostState>,
    pub(super) reactors: Vec<ReactorState>,
    pub(super) starting: Vec<Starting>,
    /// Sum of the steps of the wall clock, in nanoseconds.
    pub(super) wall_clock_step: i64,
    pub(super) receive_buffer: usize,
    pub(super) receive_pool_bytes: usize,
    offloaded: BTreeMap<u64, (HostId, Work)>,
    offloads: u64,
    /// Handles that a crash closed; their owners may still close them.
    orphans: BTreeSet<Handle>,
}

/// A simulated world. Cheap to clone; faults are injected through it, from anywhere in the simulation.
#[derive(Clone)]
pub struct World(pub(super) Arc<Mutex<State>>);

impl World {
    pub(super) fn new(config: &Config) -> Self {
        let state = State {
            schedule: Schedule::new(config.seed, config.faults.clone()),
            network: Network::new(
                config.socket_buffer,
                config.connect_timeout,
                config.retransmission_timeout,
            ),
            disks: Disks::new(config.disk),
            hosts: Vec::new(),
            reactors: Vec::new(),
            starting: Vec::new(),
            wall_clock_step: 0,
            receive_buffer: config.receive_buffer,
            receive_pool_bytes: config.receive_pool_bytes,
            offloaded: BTreeMap::new(),
            offloads: 0,
            orphans: BTreeSet::new(),
        };
        World(Arc::new(Mutex::new(state)))
    }

    /// The state. Nothing that may call back (tasks, destructors of operations, offloaded work) runs under the lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                panic!("a simulated world belongs to one thread and is entered once at a time")
            }
        }
    }

    /// Simulated time since the world began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.lock().schedule.now)
    }

    /// Returns the faults that are on now.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.lock().schedule.faults.clone()
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().schedule.faults = faults;
    }

    /// Changes what goes wrong from now on.
    pub fn change_faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut faults = self.faults();
        change(&mut faults);
        self.set_faults(faults);
    }

    /// Changes what the disks are like: their capacity, for one.
    ///
    /// # Panics
    /// When the physical block would change.
    pub fn change_disks(&self, change: impl FnOnce(&mut DiskConfig)) {
        self.lock().disks.set_config(change);
    }

    /// Steps the wall clock of all hosts by this many nanoseconds; a negative number sets it back.
    pub fn step_wall_clock(&self, nanoseconds: i64) {
        self.lock().wall_clock_step += nanoseconds;
    }

    /// A random number from the world's seed, for tests that make choices.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.lock().schedule.random.next()
    }

    /// A hash of all that has happened: equal seeds give equal hashes.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.lock().schedule.trace_hash()
    }

    /// The number of steps in the trace.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock().schedule.steps()
    }

    /// The faults that were carried out so far, in the order in which they began.
    #[must_use]
    pub fn injected(&self) -> Vec<Injected> {
        self.lock().schedule.injected.clone()
    }

    /// The life of each connection at the end that accepted it, in the order in which they were requested.
    #[must_use]
    pub fn accepted(&self) -> Vec<Accepted> {
        self.lock().network.accepted()
    }

    /// The established connections, oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.lock().network.connections()
    }

    /// Memory of the buffers for ring receives that readers on a host hold, in bytes. A reactor that has ended, or died, holds none.
    #[must_use]
    pub fn receive_bytes_held(&self, host: impl Into<HostId>) -> usize {
        let (host, state) = (host.into(), self.lock());
        let lives =
            |reactor: &&ReactorState| reactor.host == host && !reactor.dead && !reactor.ended;
        let of_host = state.reactors.iter().filter(lives);
        of_host.map(|reactor| reactor.receive_bytes_held).sum()
    }

    /// Cuts a connection: what is on its way is lost, and both ends soon see `ECONNRESET`.
    pub fn cut(&self, connection: &Connection) {
        let state = &mut *self.lock();
        state.network.cut(&mut state.schedule, connection);
    }

    /// Nothing arrives on a connection any more, in neither direction, and neither end is told.
    pub fn silence(&self, connection: &Connection) {
        let state = &mut *self.lock();
        state.network.silence(&mut state.schedule, connection);
    }

    /// Nothing passes between two hosts until it is healed. What was sent meanwhile is repeated then.
    pub fn partition(&self, one: impl Into<HostId>, other: impl Into<HostId>) {
        let (one, other) = (one.into(), other.into());
        let state = &mut *self.lock();
        let step = Step::Control("partition", one.0 as u64, other.0 as u64);
        state.schedule.record(step);
        state.network.part(&mut state.schedule, one, other);
    }

    /// Ends a partition between two hosts.
    pub fn heal(&self, one: impl Into<HostId>, other: impl Into<HostId>) {
        let (one, other) = (one.into(), other.into());
        let state = &mut *self.lock();
        state
            .schedule
            .record(Step::Control("heal", one.0 as u64, other.0 as u64));
        state.network.heal(&mut state.schedule, one, other);
    }

    /// Ends all partitions.
    pub fn heal_all(&self) {
        let state = &mut *self.lock();
        state.schedule.record(Step::Control("heal all", 0, 0));
        state.network.heal_all(&mut state.schedule);
    }

    /// Puts a block device, all zeroes, on a host.
    ///
    /// # Panics
    /// When the path exists.
    pub fn add_block_device(&self, host: impl Into<HostId>, path: impl AsRef<Path>, length: u64) {
        self.lock()
            .disks
            .add_device(host.into(), path.as_ref(), length);
    }

    /// A file or device is silent for the first half of `duration`: operations on it neither take effect nor end. Those that were in
    /// flight do so in random order in the second half.
    ///
    /// # Panics
    /// When there is no file at `path`.
    pub fn silence_disk(
        &self,
        host: impl Into<HostId>,
        path: impl AsRef<Path>,
        duration: Duration,
    ) {
        let (host, state) = (host.into(), &mut *self.lock());
        let duration = nanoseconds(duration);
        let step = Step::Control("silence disk", host.0 as u64, duration);
        state.schedule.record(step);
        let schedule = &mut state.schedule;
        state.disks.silence(schedule, host, path.as_ref(), duration);
    }

    /// Gives a file another name, as a hard link does.
    ///
    /// # Panics
    /// When there is no file at `path`.
    pub fn link(&self, host: impl Into<HostId>, path: impl AsRef<Path>, name: impl AsRef<Path>) {
        self.lock()
            .disks
            .link(host.into(), path.as_ref(), name.as_ref());
    }

    /// The length of a file or block device, in bytes; none where there is none at `path`.
    pub fn file_length(&self, host: impl Into<HostId>, path: impl AsRef<Path>) -> Option<u64> {
        self.lock().disks.length_at(host.into(), path.as_ref())
    }

    /// The reactors of a host stand still for `duration`.
    pub fn stall(&self, host: impl Into<HostId>, duration: Duration) {
        let host = host.into();
        let state = &mut *self.lock();
        for index in 0..state.reactors.len() {
            if state.reactors[index].host == host {
                state.stall(index, nanoseconds(duration));
            }
        }
    }

    /// A host goes down. Its reactors vanish before they run again; what they do until then has no effect.
    pub fn crash(&self, host: impl Into<HostId>, crash: Crash) {
        let host = host.into();
        let dropped = self.lock().crash(host, crash);
        drop(dropped);
    }

    /// A host that crashed is up again: with an empty process table, its disk as the crash left it, and its addresses.
    pub fn restart(&self, host: impl Into<HostId>) {
        let host = host.into();
        let state = &mut *self.lock();
        let step = Step::Control("restart", host.0 as u64, 0);
        state.schedule.record(step);
        state.hosts[host.0].up = true;
        state.network.host_up(&mut state.schedule, host);
    }
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "World")
    }
}

/// The work that one event has left to do outside the lock.
pub(super) enum Happened {
    Nothing,
    Work(Work),
    /// No event is due.
    NoMore,
}

impl State {
    pub(super) fn clock(&self, host: HostId) -> Instant {
        Instant::from_nanos(self.schedule.now + self.hosts[host.0].clock_offset)
    }

    pub(super) fn offload(&mut self, host: HostId, work: Work) -> Option<Work> {
        if !self.hosts[host.0].up {
            return Some(work);
        }
        self.offloads += 1;
        self.offloaded.insert(self.offloads, (host, work));
        let range = self.schedule.faults.offload_delay.clone();
        let delay = self.schedule.random.span(&range);
        self.schedule.after(delay, Event::Offload(self.offloads));
        None
    }

    pub(super) fn next_event(&mut self) -> Happened {
        let Some(event) = self.schedule.pop_due() else {
            return Happened::NoMore;
        };
        if let Some(at) = self.disks.kept_back(&mut self.schedule, event) {
            self.schedule.at(at, event);
            return Happened::Nothing;
        }
        let (schedule, network) = (&mut self.schedule, &mut self.network);
        match event {
            Event::Arrive(to) => network.on_arrive(schedule, to),
            Event::Request { client, attempt } => network.on_request(schedule, client, attempt),
            Event::Established(client) => network.on_established(schedule, client),
            Event::Refused(client) => network.on_refused(schedule, client),
            Event::ConnectTimeout(client) => network.on_connect_timeout(schedule, client),
            Event::CheckProgress(of) => network.on_check_progress(schedule, of),
            Event::CheckAlive(of) => network.on_check_alive(schedule, of),
            Event::DiskEffect { of, part } => self.disks.on_effect(schedule, of, part),
            Event::DiskDone(of) => self.disks.on_done(schedule, of),
            Event::Offload(number) => {
                if let Some((_, work)) = self.offloaded.remove(&number) {
                    return Happened::Work(work);
                }
            }
            Event::StallEnd(_) => {}
        }
        Happened::Nothing
    }

    pub(super) fn stall(&mut self, reactor: usize, duration: u64) {
        let step = Step::Control("stall", reactor as u64, duration);
        self.schedule.record(step);
        let host = self.reactors[reactor].host;
        let hosts = (host, host);
        self.schedule
            .inject(FaultKind::ReactorStall, hosts, Some(duration));
        let until = self.schedule.now.saturating_add(duration);
        let stalled_until = &mut self.reactors[reactor].stalled_until;
        *stalled_until = until.max(*stalled_until);
        self.schedule.at(until, Event::StallEnd(reactor));
    }

    pub(super) fn close(&mut self, handle: Handle) {
        let closed = self.network.close(&mut self.schedule, handle) || self.disks.close(handle);
        assert!(
            closed || self.orphans.remove(&handle),
            "{handle:?} was closed twice"
        );
    }

    /// Takes a host down. The caller drops the result outside the lock.
    fn crash(&mut self, host: HostId, crash: Crash) -> (Vec<Work>, Vec<Starting>) {
        let step = Step::Control("crash", host.0 as u64, crash as u64);
        self.schedule.record(step);
        self.schedule.inject(FaultKind::Crash, (host, host), None);
        self.hosts[host.0].up = false;
        for reactor in &mut self.reactors {
            if reactor.host == host && !reactor.ended {
                reactor.dead = true;
            }
        }
        let sockets = match crash {
            Crash::Process => self.network.kill(&mut self.schedule, host),
            Crash::Power => self.network.lose_power(&mut self.schedule, host),
        };
        let files = self.disks.kill(&mut self.schedule, host);
        if crash == Crash::Power {
            self.disks.lose_power(&mut self.schedule, host);
        }
        self.orphans.extend(sockets.into_iter().chain(files));
        self.take_pending(|of| of == host)
    }

    /// Takes the offloaded work and the starting reactors of some hosts.
    pub(super) fn take_pending(
        &mut self,
        is_meant: impl Fn(HostId) -> bool,
    ) -> (Vec<Work>, Vec<Starting>) {
        let numbers: Vec<u64> = self
            .offloaded
            .iter()
            .filter(|(_, (host, _))| is_meant(*host))
            .map(|(number, _)| *number)
            .collect();
        let work = numbers
            .iter()
            .filter_map(|number| self.offloaded.remove(number))
            .map(|(_, work)| work)
            .collect();
        let (gone, starting) = std::mem::take(&mut self.starting)
            .into_iter()
            .partition(|starting| is_meant(starting.host()));
        self.starting = starting;
        (work, gone)
    }

    /// Ends the world: nothing has an effect any more.
    pub(super) fn end(&mut self) -> (Vec<Work>, Vec<Starting>) {
        for host in &mut self.hosts {
            host.up = false;
        }
        for reactor in &mut self.reactors {
            reactor.dead = true;
        }
        self.take_pending(|_| true)
    }
}
