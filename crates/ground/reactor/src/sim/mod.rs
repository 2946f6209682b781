//! A deterministic simulation: hosts, network, disks, clock and randomness from one seed, in one thread.
//!
//! A [`Simulation`] is a world of hosts, each a [`System`]. Its clock stands still while any reactor has something to do, and
//! then jumps to the next timer or event. Everything that is random (what arrives when and in which pieces, which reactor
//! is turned first, what [`crate::Reactor::random`] yields) comes from [`Config::seed`], so that the same seed gives the
//! same run. What can go wrong is switched on in [`Faults`] and through [`World`]; `docs/fault-model.md` lists it.
//!
//! It models what Linux promises to programs and what hardware does to them, not how: there are no packets, no page cache,
//! no directories, no processes besides reactors, and computing takes no time.

mod disk;
mod driver;
mod injected;
mod medium;
mod network;
mod random;
mod schedule;
mod settings;
mod system;
#[cfg(test)]
mod tests;
mod world;

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use weir_memory::Pool;

pub use injected::{FaultKind, Injected};
pub use network::{Accepted, Connection};
pub use settings::{Config, Crash, DiskConfig, Faults, HostId};
pub use world::World;

use crate::{Driver, LocalFuture, Reactor, ReactorConfig, ReactorId, Runner, Step, System};
use driver::SimulatedDriver;
use random::nanoseconds;
use system::{SimulatedSystem, Starting, new_shared};
use world::{Happened, HostState};

/// Clocks of different hosts differ by at most this.
const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(100_000);
/// Memory of the pool of the reactor of [`Simulation::run`], in bytes.
const RUN_POOL_BYTES: usize = 64 << 20;
/// One in so many turns is left out, so that reactors get ahead of one another.
const TURNS_PER_SKIP: u64 = 8;

thread_local! {
    /// The simulations of this thread, the youngest last.
    static SIMULATIONS: RefCell<Vec<Weak<Inner>>> = const { RefCell::new(Vec::new()) };
}

/// Turns the youngest simulation of this thread until `done`. Without one: panics, since nothing could ever be done.
pub(crate) fn drive_until(done: &dyn Fn() -> bool) {
    if done() {
        return;
    }
    let simulation = current().expect("a simulated reactor is waited for where its simulation is");
    simulation.drive(&mut || done());
}

/// Tells whether this thread has a simulation: blocking it would then block all that could end the wait.
pub(crate) fn is_here() -> bool {
    current().is_some()
}

fn current() -> Option<Rc<Inner>> {
    SIMULATIONS.with_borrow_mut(|simulations| {
        simulations.retain(|simulation| simulation.strong_count() > 0);
        simulations.last().and_then(Weak::upgrade)
    })
}

/// A seed for a randomised test: `WEIR_SEED` from the environment where it is set. Else one of the test's own that
/// follows from `WEIR_SEEDS_OF`, where that is set, so that a whole run can be repeated; else one that differs each time.
///
/// # Panics
/// When `WEIR_SEED` is not a number.
#[must_use]
pub fn seed_from_env_or_random() -> u64 {
    match std::env::var("WEIR_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("WEIR_SEED is a number below 2^64, not {text:?}")),
        Err(_) => match std::env::var_os("WEIR_SEEDS_OF") {
            Some(run) => {
                // A test's thread has the test's name.
                let thread = std::thread::current();
                let keys = BuildHasherDefault::<DefaultHasher>::default();
                keys.hash_one((run, thread.name()))
            }
            None => RandomState::new().hash_one(std::process::id()),
        },
    }
}

struct Seat {
    reactor: usize,
    runner: RefCell<Runner>,
}

struct Inner {
    world: World,
    seed: u64,
    processors: usize,
    rounds_max: u64,
    time_max: Duration,
    systems: RefCell<Vec<Arc<SimulatedSystem>>>,
    seats: RefCell<Vec<Rc<Seat>>>,
    /// It has said what its seed is.
    told: Cell<bool>,
}

/// A simulated world, and what makes it go. Dereferences to its [`World`], through which faults are injected.
pub struct Simulation(Rc<Inner>);

impl Deref for Simulation {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0.world
    }
}

/// The result of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Something happened.
    Went,
    /// Nothing is left to happen before the time that was given.
    Reached,
    /// Nothing is left to happen, ever.
    Stuck,
}

impl Simulation {
    /// A world without hosts, at the beginning of its time.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let inner = Rc::new(Inner {
            world: World::new(&config),
            seed: config.seed,
            processors: config.processors,
            rounds_max: config.rounds_max,
            time_max: config.time_max,
            systems: RefCell::default(),
            seats: RefCell::default(),
            told: Cell::new(false),
        });
        SIMULATIONS.with_borrow_mut(|simulations| simulations.push(Rc::downgrade(&inner)));
        Simulation(inner)
    }

    /// A handle to the world, for tasks that inject faults.
    #[must_use]
    pub fn world(&self) -> World {
        self.0.world.clone()
    }

    /// The seed that everything random comes from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The host of this name; it is made where it does not exist yet. Host number n (from 0) has the addresses 10.0.0.(n+1)
    /// and `fd00::(n+1)`, and the loopback ones within.
    #[must_use]
    pub fn host(&self, name: &str) -> Arc<dyn System> {
        self.system(self.host_id(name))
    }

    /// The number of the host of this name; it is made where it does not exist yet.
    #[must_use]
    pub fn host_id(&self, name: &str) -> HostId {
        let mut state = self.0.world.lock();
        if let Some(found) = state.hosts.iter().position(|host| host.name == name) {
            return HostId(found);
        }
        let host = HostId(state.hosts.len());
        let clock_offset = state.schedule.random.below(nanoseconds(CLOCK_OFFSET_MAX));
        state.hosts.push(HostState {
            name: name.to_owned(),
            up: true,
            clock_offset,
            processors: self.0.processors,
        });
        let system = SimulatedSystem {
            world: self.0.world.clone(),
            host,
        };
        self.0.systems.borrow_mut().push(Arc::new(system));
        host
    }

    /// The host of this number; hosts up to it are made where they do not exist yet, named `host0`, `host1` and so on.
    #[must_use]
    pub fn system(&self, host: impl Into<HostId>) -> Arc<dyn System> {
        let HostId(index) = host.into();
        let existing = self.0.systems.borrow().len();
        for number in existing..=index {
            let _ = self.host_id(&format!("host{number}"));
        }
        let system: Arc<SimulatedSystem> = Arc::clone(&self.0.systems.borrow()[index]);
        system
    }

    /// The IPv4 address of a host.
    #[must_use]
    pub fn address(&self, host: impl Into<HostId>) -> std::net::IpAddr {
        network::address_v4(host.into()).into()
    }

    /// The IPv6 address of a host.
    #[must_use]
    pub fn address_v6(&self, host: impl Into<HostId>) -> std::net::IpAddr {
        network::address_v6(host.into()).into()
    }

    /// Lets the world go on until `done`, which is asked once per round.
    ///
    /// # Panics
    /// When nothing is left that could happen, or [`Config::rounds_max`] or [`Config::time_max`] is passed: with the seed, and
    /// with what every reactor waits for.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) {
        self.0.drive(&mut done);
    }

    /// Lets the world go on for `duration` of its time.
    ///
    /// # Panics
    /// When [`Config::rounds_max`] is passed.
    pub fn run_for(&self, duration: Duration) {
        let _witness = Witness(&self.0);
        let limit = self.0.world.lock().schedule.moment_after(duration);
        for _ in 0..self.0.rounds_max {
            if self.0.round(Some(limit)) != Round::Went {
                self.0.world.lock().schedule.now = limit;
                return;
            }
        }
        self.0.give_up("it takes too many rounds");
    }

    /// Lets the world go on until every reactor has stopped.
    ///
    /// # Panics
    /// As [`Simulation::run_until`].
    pub fn run_to_end(&self) {
        let world = self.world();
        self.run_until(move || {
            let state = world.lock();
            state
                .reactors
                .iter()
                .all(|reactor| reactor.ended || reactor.dead)
        });
    }

    /// Runs one future to its end, on a reactor of its own on `host`.
    ///
    /// # Panics
    /// As [`Simulation::run_until`]; when `host` is down, or goes down meanwhile.
    pub fn run<T, F>(&self, host: impl Into<HostId>, main: impl FnOnce(Reactor) -> F + 'static) -> T
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        let host = host.into();
        let _ = self.system(host);
        let result = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        let main = move |reactor: Reactor| -> LocalFuture<()> {
            Box::pin(async move {
                let value = main(reactor).await;
                slot.borrow_mut().replace(value);
            })
        };
        let reactor = self.0.seat(host, Box::new(main));
        let world = self.world();
        self.run_until(|| world.lock().reactors[reactor].ended);
        let value = result.borrow_mut().take();
        value.expect("the host of a simulation's run stays up while it runs")
    }
}

impl Inner {
    /// Puts a reactor on `host`, numbered from the last number down.
    fn seat(&self, host: HostId, main: Box<dyn FnOnce(Reactor) -> LocalFuture<()>>) -> usize {
        let system = Arc::clone(&self.systems.borrow()[host.0]);
        let mut state = self.world.lock();
        assert!(state.hosts[host.0].up, "{host:?} is down");
        let config = ReactorConfig {
            name: "run".to_owned(),
            id: ReactorId(u32::MAX - state.reactors.len() as u32),
            pool_bytes: RUN_POOL_BYTES,
            ..ReactorConfig::default()
        };
        let reactor = state.add_reactor(host, &config);
        drop(state);
        self.add_seat(system, reactor, &config, new_shared(&config), main);
        reactor
    }

    fn add_seat(
        &self,
        system: Arc<SimulatedSystem>,
        reactor: usize,
        config: &ReactorConfig,
        shared: Arc<crate::remote::Shared>,
        main: Box<dyn FnOnce(Reactor) -> LocalFuture<()>>,
    ) {
        let config = ReactorConfig {
            // A panic is the test's failure, with the seed; not the process's end.
            on_panic: crate::PanicPolicy::Unwind,
            ..config.clone()
        };
        let pool = Pool::new(config.pool_bytes);
        let receive_pool = Pool::new(self.world.lock().receive_pool_bytes);
        let notifier = shared.notifier();
        let driver: Box<dyn Driver> = Box::new(SimulatedDriver::new(
            Arc::clone(&system),
            reactor,
            receive_pool,
            notifier,
        ));
        let runner = Runner::with_shared(&config, pool, driver, system, shared, main);
        let seat = Seat {
            reactor,
            runner: RefCell::new(runner),
        };
        self.seats.borrow_mut().push(Rc::new(seat));
    }

    fn drive(&self, done: &mut dyn FnMut() -> bool) {
        let _witness = Witness(self);
        let limit = self.world.lock().schedule.moment_after(self.time_max);
        for _ in 0..self.rounds_max {
            if done() {
                return;
            }
            match self.round(Some(limit)) {
                Round::Went => {}
                Round::Reached => self.give_up("it takes too long"),
                Round::Stuck => self.give_up("nothing is left that could happen"),
            }
        }
        self.give_up("it takes too many rounds");
    }

    /// One turn of every reactor; when none had anything to do, the next event.
    fn round(&self, limit: Option<u64>) -> Round {
        self.seat_starting();
        self.unseat_dead();
        if self.turn_all() {
            return Round::Went;
        }
        let next = self.next_moment();
        let mut state = self.world.lock();
        match (next, limit) {
            (Some(next), Some(limit)) if next > limit => {
                state.schedule.now = limit;
                return Round::Reached;
            }
            (Some(next), _) => state.schedule.now = next.max(state.schedule.now),
            (None, _) => return Round::Stuck,
        }
        drop(state);
        self.happen();
        Round::Went
    }

    fn seat_starting(&self) {
        let starting = std::mem::take(&mut self.world.lock().starting);
        for Starting {
            system,
            reactor,
            config,
            shared,
            main,
        } in starting
        {
            self.add_seat(system, reactor, &config, shared, main);
        }
    }

    /// Takes away the reactors of hosts that crashed. What their tasks still do while they are dropped has no effect.
    fn unseat_dead(&self) {
        let is_dead = |seat: &Rc<Seat>| {
            self.world.lock().reactors[seat.reactor].dead && seat.runner.try_borrow_mut().is_ok()
        };
        let dead: Vec<_> = self
            .seats
            .borrow()
            .iter()
            .filter(|seat| is_dead(seat))
            .cloned()
            .collect();
        for seat in dead {
            seat.runner.borrow_mut().stop_now();
            self.unseat(&seat);
        }
    }

    fn unseat(&self, seat: &Rc<Seat>) {
        self.world.lock().reactors[seat.reactor].ended = true;
        self.seats
            .borrow_mut()
            .retain(|other| !Rc::ptr_eq(other, seat));
    }

    /// Turns every reactor, in random order; whether any has, or may have, more to do at once.
    fn turn_all(&self) -> bool {
        let mut seats = self.seats.borrow().clone();
        self.world.lock().schedule.random.shuffle(&mut seats);
        let mut worked = false;
        for seat in seats {
            worked |= self.turn(&seat);
        }
        worked || !self.world.lock().starting.is_empty() || self.has_ready()
    }

    fn turn(&self, seat: &Rc<Seat>) -> bool {
        {
            let state = &mut *self.world.lock();
            let reactor = &state.reactors[seat.reactor];
            if reactor.dead {
                return true;
            }
            if reactor.stalled_until > state.schedule.now {
                return false;
            }
            if state.schedule.random.below(TURNS_PER_SKIP) == 0 {
                return true;
            }
            let probability = state.schedule.faults.reactor_stall_probability;
            if state.schedule.random.chance(probability) {
                let range = state.schedule.faults.reactor_stall.clone();
                let duration = state.schedule.random.span(&range);
                state.stall(seat.reactor, duration);
                return true;
            }
        }
        let Ok(mut runner) = seat.runner.try_borrow_mut() else {
            // It is further up the stack, waiting for what this round may bring.
            return false;
        };
        let step = runner.step(false);
        drop(runner);
        if step == Step::Stopped {
            self.unseat(seat);
        }
        step != Step::Idle
    }

    /// Tells whether an operation of a reactor that may be turned can go on.
    fn has_ready(&self) -> bool {
        let state = self.world.lock();
        let can_run = |seat: &Rc<Seat>| {
            state.schedule.is_ready(seat.reactor)
                && state.reactors[seat.reactor].stalled_until <= state.schedule.now
                && seat.runner.try_borrow().is_ok()
        };
        self.seats.borrow().iter().any(can_run)
    }

    /// When the next event happens or a timer elapses.
    fn next_moment(&self) -> Option<u64> {
        let state = self.world.lock();
        let timer = |seat: &Rc<Seat>| {
            let reactor = &state.reactors[seat.reactor];
            let at = seat.runner.try_borrow().ok()?.next_timer()?.as_nanos();
            let at = at.saturating_sub(state.hosts[reactor.host.0].clock_offset);
            Some(at.max(reactor.stalled_until))
        };
        let timers = self.seats.borrow().iter().filter_map(timer).min();
        timers.into_iter().chain(state.schedule.next_event()).min()
    }

    /// Lets every event happen that is due.
    fn happen(&self) {
        loop {
            let happened = self.world.lock().next_event();
            match happened {
                Happened::Nothing => {}
                Happened::Work(work) => {
                    // As on a real machine, a panic of offloaded work ends that work alone: its answer never comes.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                }
                Happened::NoMore => return,
            }
        }
    }

    fn tell_seed(&self) {
        if !self.told.replace(true) {
            eprintln!("the simulation's seed was {0}: WEIR_SEED={0}", self.seed);
        }
    }

    fn give_up(&self, why: &str) -> ! {
        self.told.set(true);
        panic!("{why}\n{}", self.report());
    }

    /// Describes what every reactor waits for, and what happened last.
    fn report(&self) -> String {
        let state = self.world.lock();
        let now = Duration::from_nanos(state.schedule.now);
        let mut report = format!("seed: WEIR_SEED={}\nsimulated time: {now:?}\n", self.seed);
        let _ = writeln!(report, "events to come: {}", state.schedule.event_count());
        for reactor in state.reactors.iter().filter(|reactor| !reactor.ended) {
            let host = &state.hosts[reactor.host.0].name;
            let _ = writeln!(report, "reactor {} on {host}:", reactor.id);
            for (operation, handle) in reactor.operations.values() {
                let _ = writeln!(report, "  {operation} on handle {}", handle.0);
            }
        }
        for seat in self.seats.borrow().iter() {
            let timer = seat
                .runner
                .try_borrow()
                .ok()
                .and_then(|runner| runner.next_timer());
            let reactor = &state.reactors[seat.reactor];
            if let Some(at) = timer {
                let at = at
                    .as_nanos()
                    .saturating_sub(state.hosts[reactor.host.0].clock_offset);
                let at = Duration::from_nanos(at);
                let _ = writeln!(report, "reactor {} has a timer at {at:?}", reactor.id);
            }
        }
        report.push_str("what happened last:\n");
        for step in state.schedule.last_steps() {
            let _ = writeln!(report, "  {step}");
        }
        report
    }
}

/// Tells the seed when what it watches panics.
struct Witness<'a>(&'a Inner);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tell_seed();
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Tasks may be in any state: they are leaked rather than dropped into a second panic.
            self.0.tell_seed();
            std::mem::forget(std::mem::take(&mut *self.0.seats.borrow_mut()));
            crate::executor::forget_woken();
            return;
        }
        let pending = self.0.world.lock().end();
        drop(pending);
        self.0.unseat_dead();
    }
}
