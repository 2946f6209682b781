//! The reactor itself: one turn after another of tasks, I/O, and timers.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_memory::Pool;

use crate::executor::{Entered, Tasks};
use crate::foreign::{Inbox, Recipient, Ticket};
use crate::gaps::Gaps;
use crate::pacer::Pacer;
use crate::remote::Shared;
use crate::slots::{Completed, Handler, Owner, Slots};
use crate::time::Timers;
use crate::{Driver, Instant, Op, OpToken, Outcome, Remote, Sleep, System, Task, Wait};

/// A future that stays on its reactor.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// What a reactor runs first. When it is done the reactor stops.
pub type ReactorMain = Box<dyn FnOnce(Reactor) -> LocalFuture<()> + Send>;

/// Number of a reactor, unique within its system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ReactorId(pub u32);

impl fmt::Display for ReactorId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// For how long a reactor that spins asks its sockets, in place of waiting for them to report: they answer sooner, for a system call
/// each time.
const LOOKING: Duration = Duration::from_micros(20);

/// Receives that it asks. Of more, it waits to be told: to ask each one again and again takes longer.
const LOOKED_AT_MAX: usize = 8;

/// What happens when a task panics that was not spawned isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PanicPolicy {
    /// The process ends: a broken invariant outside one connection must not go on serving.
    #[default]
    Abort,
    /// The panic goes on up the reactor's thread, for tests.
    Unwind,
}

/// How a reactor is made.
#[derive(Debug, Clone)]
pub struct ReactorConfig {
    /// Its number, unique within the system.
    pub id: ReactorId,
    /// Name of its thread.
    pub name: String,
    /// The processor that its thread is bound to; none: wherever the kernel puts it.
    pub processor: Option<usize>,
    /// For how long after its last completion it looks for the next one before it sleeps in the kernel. At once, while most
    /// of the last ones came later than that.
    pub spin: Duration,
    /// The longest pause between two looks at busy sockets, by which more is found at each; zero for none. Only where more
    /// than 300,000 units of [`Reactor::note_work`] are done in a second, and as much is done with the pause as without.
    pub pause: Duration,
    /// Bound on the memory of its buffer pool, in bytes.
    pub pool_bytes: usize,
    /// What a panic in a task does.
    pub on_panic: PanicPolicy,
}

impl Default for ReactorConfig {
    fn default() -> Self {
        ReactorConfig {
            id: ReactorId(0),
            name: "weir-reactor".to_owned(),
            processor: None,
            spin: Duration::from_micros(50),
            pause: Duration::from_micros(40),
            pool_bytes: 256 << 20,
            on_panic: PanicPolicy::Abort,
        }
    }
}

/// A reactor that runs on a thread of its own (or, simulated, when the simulation runs it).
pub struct ReactorThread {
    /// How to reach it.
    pub remote: Remote,
    join: Box<dyn FnOnce() + Send>,
}

impl ReactorThread {
    /// For systems: a started reactor, and how to wait for its end.
    #[must_use]
    pub fn new(remote: Remote, join: Box<dyn FnOnce() + Send>) -> Self {
        ReactorThread { remote, join }
    }

    /// Waits until the reactor has stopped.
    pub fn join(self) {
        (self.join)();
    }
}

/// Counters of one reactor since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReactorStats {
    /// Turns of the loop.
    pub turns: u64,
    /// Turns that ran a task or saw an outcome.
    pub busy_turns: u64,
    /// Turns that slept in the kernel.
    pub sleeps: u64,
    /// Operations that ended, and answers that foreign threads delivered.
    pub operations: u64,
    /// Times that a task was run.
    pub tasks_run: u64,
    /// Time spent on work, in nanoseconds.
    pub busy_ns: u64,
    /// Time spent looking for work in vain, in nanoseconds.
    pub spin_ns: u64,
    /// Time spent asleep, in nanoseconds.
    pub sleep_ns: u64,
    /// Pauses between two looks at busy sockets.
    pub pauses: u64,
    /// Time spent in them, in nanoseconds.
    pub pause_ns: u64,
    /// Time for which its thread was ready to run while others had the processor, in nanoseconds; part of the other times. 0 where the kernel does not tell.
    pub processor_wait_ns: u64,
}

struct Inner {
    id: ReactorId,
    driver: RefCell<Box<dyn Driver>>,
    slots: RefCell<Slots>,
    timers: Timers,
    tasks: Tasks,
    shared: Arc<Shared>,
    /// For answers from foreign threads; made when the first is awaited.
    foreign: OnceCell<Inbox>,
    pool: Pool,
    system: Arc<dyn System>,
    now: Cell<Instant>,
    last_work: Cell<Instant>,
    spin: Duration,
    gaps: Cell<Gaps>,
    /// The last turn found no work.
    idle: Cell<bool>,
    pacer: RefCell<Pacer>,
    /// Units of work since the last wait.
    units: Cell<u32>,
    /// The last wait was [`Wait::Look`].
    looked: Cell<bool>,
    on_panic: PanicPolicy,
    stopping: Cell<bool>,
    stats: Cell<ReactorStats>,
}

/// A handle to the reactor that the caller runs on. Cheap to clone; it cannot leave its thread.
#[derive(Clone)]
pub struct Reactor(Rc<Inner>);

impl Reactor {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> ReactorId {
        self.0.id
    }

    /// The time at which this turn of the loop began. Constant while a task runs.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.now.get()
    }

    /// The time at this very moment; costs a look at the clock.
    #[must_use]
    pub fn precise_now(&self) -> Instant {
        self.0.driver.borrow().now()
    }

    /// A random number.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.0.driver.borrow_mut().random()
    }

    /// The reactor's buffers.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The system that it belongs to.
    #[must_use]
    pub fn system(&self) -> &Arc<dyn System> {
        &self.0.system
    }

    /// How other threads reach it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote {
            shared: Arc::clone(&self.0.shared),
        }
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> ReactorStats {
        let times = self.0.driver.borrow().processor_times();
        ReactorStats {
            processor_wait_ns: times.map_or(0, |times| times.waited.as_nanos() as u64),
            ..self.0.stats.get()
        }
    }

    /// Notes that so many requests of peers were taken up in this turn, which is what pauses between turns go by.
    pub fn note_work(&self, units: u32) {
        self.0.units.set(self.0.units.get().saturating_add(units));
    }

    /// Runs a task. Dropping the [`Task`] cancels it; detach it to let it run on.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.0.tasks.spawn(&self.0.shared, future)
    }

    /// Runs a task whose panic ends only itself and is its result, unless it was in a [`SharedSection`].
    pub fn spawn_isolated<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> Task<Result<T, Panicked>> {
        self.spawn(Isolated {
            future: Box::pin(future),
        })
    }

    /// Runs blocking work where it holds no reactor up, and yields its result. `None` when the work panicked.
    pub async fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = crate::oneshot();
        self.system().offload(Box::new(move || sender.send(work())));
        receiver.await
    }

    /// A future that is ready after `duration`.
    #[must_use]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::until(self, self.now() + duration)
    }

    /// A future that is ready at `deadline`.
    #[must_use]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::until(self, deadline)
    }

    /// Submits an operation; `handler` is told its outcome.
    pub fn submit(&self, op: Op, handler: Rc<dyn Handler>, user: u64) -> OpToken {
        let token = self
            .0
            .slots
            .borrow_mut()
            .insert(Owner::Handler(handler, user));
        self.0.driver.borrow_mut().submit(token, op);
        token
    }

    /// Submits an operation as a future. Dropping the future cancels the operation, whose buffers come back later.
    pub fn start(&self, op: Op) -> OpFuture {
        let token = self.0.slots.borrow_mut().insert(Owner::Future(None));
        self.0.driver.borrow_mut().submit(token, op);
        OpFuture {
            reactor: self.clone(),
            token: Some(token),
        }
    }

    /// Asks for an early end of an operation that was submitted with a handler. Its outcome still comes.
    pub fn cancel(&self, token: OpToken) {
        self.0.driver.borrow_mut().cancel(token);
    }

    /// Reserves a place for one answer from a foreign thread; `recipient` is told of it, with `user`. None when
    /// [`crate::DELIVERIES_MAX`] are awaited already: try again after one came.
    pub fn reserve(&self, recipient: Rc<dyn Recipient>, user: u64) -> Option<Ticket> {
        let inbox = self
            .0
            .foreign
            .get_or_init(|| Inbox::new(Arc::clone(&self.0.shared)));
        inbox.reserve(recipient, user)
    }

    /// Stops the reactor after this turn: its tasks are dropped, its operations cancelled.
    pub fn stop(&self) {
        self.0.stopping.set(true);
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.0.timers
    }

    fn abandon(&self, token: OpToken) {
        let (in_flight, dropped) = self.0.slots.borrow_mut().abandon(token);
        if in_flight {
            self.0.driver.borrow_mut().cancel(token);
        }
        drop(dropped);
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Reactor({})", self.0.id)
    }
}

/// An operation in flight. See [`Reactor::start`].
#[must_use = "dropping it cancels the operation"]
pub struct OpFuture {
    reactor: Reactor,
    token: Option<OpToken>,
}

impl Future for OpFuture {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let token = self
            .token
            .expect("a finished operation is not polled again");
        let outcome = self.reactor.0.slots.borrow_mut().poll(token, context);
        if outcome.is_ready() {
            self.token = None;
        }
        outcome
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.reactor.abandon(token);
        }
    }
}

/// A task that was spawned isolated has panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("panicked: {message}")]
pub struct Panicked {
    /// What the panic said.
    pub message: String,
}

thread_local! {
    /// Whether an isolated task is being run on this thread.
    static ISOLATED: Cell<bool> = const { Cell::new(false) };
    /// Shared sections that this thread is in, or was in when a panic began that is on its way.
    static SHARED_SECTIONS: Cell<u32> = const { Cell::new(0) };
}

/// A part of an isolated task that works on what is not only its own. A panic in it goes on to the reactor's [`PanicPolicy`], for
/// what others use may have been left half changed.
#[derive(Debug)]
#[must_use = "the section ends when it is dropped"]
pub struct SharedSection(());

impl SharedSection {
    /// Begins such a part.
    #[inline]
    pub fn enter() -> Self {
        SHARED_SECTIONS.set(SHARED_SECTIONS.get() + 1);
        SharedSection(())
    }
}

impl Drop for SharedSection {
    #[inline]
    fn drop(&mut self) {
        // Left by a panic, it is still counted for who catches that.
        if !std::thread::panicking() {
            SHARED_SECTIONS.set(SHARED_SECTIONS.get() - 1);
        }
    }
}

/// Whether a panic at this moment would end an isolated task and nothing else. For panic hooks.
#[must_use]
pub fn panic_is_contained() -> bool {
    ISOLATED.get() && SHARED_SECTIONS.get() == 0
}

struct Isolated<F> {
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Isolated<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outer = ISOLATED.replace(true);
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context)));
        ISOLATED.set(outer);
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(payload) if SHARED_SECTIONS.take() > 0 => resume_unwind(payload),
            Err(payload) => Poll::Ready(Err(Panicked {
                message: panic_message(&*payload),
            })),
        }
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// What one turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It ran a task or saw an outcome: there may be more to do at once.
    Worked,
    /// There was nothing to do.
    Idle,
    /// The reactor has stopped; its tasks are gone. Do not turn it again.
    Stopped,
}

/// Turns a reactor. A system has one for each of its reactors: a thread's loop, or the simulation's.
pub struct Runner {
    reactor: Reactor,
    main: Option<Task<()>>,
    outcomes: Vec<(OpToken, Outcome)>,
    stopped: bool,
}

impl Runner {
    /// A reactor on `driver`, about to run `main`. `pool` is its buffers for data; the driver has its own to receive into.
    pub fn new(
        config: &ReactorConfig,
        pool: Pool,
        driver: Box<dyn Driver>,
        system: Arc<dyn System>,
        main: ReactorMain,
    ) -> Self {
        let shared = Shared::new(config.id, driver.notifier());
        Runner::with_shared(config, pool, driver, system, shared, main)
    }

    /// As [`Runner::new`], for a reactor whose remote exists already.
    pub(crate) fn with_shared(
        config: &ReactorConfig,
        pool: Pool,
        driver: Box<dyn Driver>,
        system: Arc<dyn System>,
        shared: Arc<Shared>,
        main: Box<dyn FnOnce(Reactor) -> LocalFuture<()>>,
    ) -> Self {
        let now = driver.now();
        let inner = Inner {
            id: config.id,
            driver: RefCell::new(driver),
            slots: RefCell::default(),
            timers: Timers::default(),
            tasks: Tasks::default(),
            shared,
            foreign: OnceCell::new(),
            pool,
            system,
            now: Cell::new(now),
            last_work: Cell::new(now),
            spin: config.spin,
            gaps: Cell::new(Gaps::new()),
            idle: Cell::new(false),
            pacer: RefCell::new(Pacer::new(config.pause, now)),
            units: Cell::new(0),
            looked: Cell::new(false),
            on_panic: config.on_panic,
            stopping: Cell::new(false),
            stats: Cell::default(),
        };
        let reactor = Reactor(Rc::new(inner));
        let entered = Entered::new(&reactor.0.shared);
        let until_done = {
            let reactor = reactor.clone();
            async move {
                main(reactor.clone()).await;
                reactor.stop();
            }
        };
        let main = reactor.spawn(until_done);
        reactor.0.tasks.take_woken();
        drop(entered);
        Runner {
            reactor,
            main: Some(main),
            outcomes: Vec::new(),
            stopped: false,
        }
    }

    /// How to reach the reactor.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.reactor.remote()
    }

    /// When the next timer is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        self.reactor.0.timers.next()
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.reactor.0.slots.borrow().in_flight()
    }

    /// Turns the reactor until it stops, sleeping when there is nothing to do.
    pub fn run_to_end(mut self) {
        while self.step(true) != Step::Stopped {}
    }

    /// Stops the reactor between two turns: its tasks are dropped, its operations cancelled. Do not turn it again.
    pub(crate) fn stop_now(&mut self) {
        let shared = Arc::clone(&self.reactor.0.shared);
        let _entered = Entered::new(&shared);
        self.shut_down();
    }

    /// One turn: messages, ready tasks, I/O, timers. Where `may_sleep`, it spins and then sleeps when there is nothing to do, and
    /// the caller does nothing but call it again.
    pub fn step(&mut self, may_sleep: bool) -> Step {
        let reactor = self.reactor.clone();
        let inner = &*reactor.0;
        let _entered = Entered::new(&inner.shared);
        // Where turn follows turn, the last one ended just now.
        let began = if may_sleep {
            inner.now.get()
        } else {
            inner.driver.borrow().now()
        };
        inner.now.set(began);
        self.take_messages();
        let delivered = match inner.foreign.get() {
            Some(inbox) => self.guarded(|_| inbox.hand_out()),
            None => 0,
        };
        let ran = self.guarded(|reactor| reactor.0.tasks.run());
        if inner.stopping.get() {
            self.shut_down();
            return Step::Stopped;
        }

        let before_wait = if ran + delivered > 0 {
            inner.driver.borrow().now()
        } else {
            began
        };
        let wait = if may_sleep {
            self.choose_wait(before_wait)
        } else {
            Wait::No
        };
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.guarded(|reactor| reactor.0.driver.borrow_mut().turn(wait, &mut outcomes));
        let after_wait = inner.driver.borrow().now();
        if matches!(wait, Wait::Until(_)) {
            inner.shared.wake_up();
        }
        inner.now.set(after_wait);

        let ended = outcomes.len();
        self.guarded(|reactor| {
            for (token, outcome) in outcomes.drain(..) {
                reactor.dispatch(token, outcome);
            }
        });
        self.outcomes = outcomes;
        while let Some(waker) = inner.timers.pop(after_wait) {
            waker.wake();
        }
        inner.tasks.take_woken();

        let worked = ran + delivered + ended > 0 || !inner.tasks.is_empty();
        if worked {
            let waited = matches!(wait, Wait::Until(_));
            if inner.idle.replace(false) || waited {
                let gap = after_wait.since(inner.last_work.get());
                let mut gaps = inner.gaps.get();
                gaps.note(gap, inner.spin);
                inner.gaps.set(gaps);
            }
            inner.last_work.set(after_wait);
        } else {
            inner.idle.set(true);
        }
        self.count(
            wait,
            worked,
            ran,
            ended + delivered,
            before_wait - began,
            after_wait - before_wait,
        );
        if worked { Step::Worked } else { Step::Idle }
    }

    fn take_messages(&self) {
        if let Some(inbox) = self.reactor.0.shared.take() {
            self.reactor.0.tasks.extend(inbox.tasks);
            self.guarded(|reactor| {
                for message in inbox.messages {
                    message(reactor);
                }
            });
        }
    }

    fn choose_wait(&self, now: Instant) -> Wait {
        let inner = &*self.reactor.0;
        let looked = inner.looked.replace(false);
        if let Some(pause) = inner.pacer.borrow().pause() {
            if inner.units.get() > 0 {
                inner.looked.set(true);
                return Wait::Look(usize::MAX);
            }
            if looked && inner.tasks.is_empty() {
                return Wait::Pause(pause);
            }
        }
        if !inner.tasks.is_empty() {
            return Wait::No;
        }
        let idle = now.since(inner.last_work.get());
        if inner.gaps.get().next_is_short() && idle < inner.spin {
            return if idle < LOOKING {
                Wait::Look(LOOKED_AT_MAX)
            } else {
                Wait::No
            };
        }
        if !inner.shared.fall_asleep() {
            return Wait::No;
        }
        // What was delivered before this reactor was seen to sleep woke nobody.
        if inner.foreign.get().is_some_and(|inbox| !inbox.is_empty()) {
            inner.shared.wake_up();
            return Wait::No;
        }
        Wait::Until(inner.timers.next())
    }

    fn count(
        &self,
        wait: Wait,
        worked: bool,
        ran: usize,
        ended: usize,
        running: Duration,
        waiting: Duration,
    ) {
        let mut stats = self.reactor.0.stats.get();
        let rested = match wait {
            Wait::Until(_) => waiting,
            Wait::Pause(pause) => waiting.min(pause),
            Wait::No | Wait::Look(_) => Duration::ZERO,
        };
        let (running, waiting) = (running.as_nanos() as u64, waiting.as_nanos() as u64);
        stats.turns += 1;
        stats.busy_turns += u64::from(worked);
        stats.operations += ended as u64;
        stats.tasks_run += ran as u64;
        match wait {
            Wait::Until(_) => {
                stats.sleeps += 1;
                stats.sleep_ns += waiting;
                stats.busy_ns += running;
            }
            Wait::Pause(_) => {
                let paused = rested.as_nanos() as u64;
                stats.pauses += 1;
                stats.pause_ns += paused;
                stats.busy_ns += running + waiting - paused;
            }
            Wait::No | Wait::Look(_) if worked => stats.busy_ns += running + waiting,
            Wait::No | Wait::Look(_) => stats.spin_ns += running + waiting,
        }
        self.reactor.0.stats.set(stats);
        let inner = &*self.reactor.0;
        let units = inner.units.take();
        inner
            .pacer
            .borrow_mut()
            .note(inner.now.get(), units, rested);
    }

    /// Runs what may panic, under the reactor's policy.
    fn guarded<T>(&self, work: impl FnOnce(&Reactor) -> T) -> T {
        match self.reactor.0.on_panic {
            PanicPolicy::Unwind => work(&self.reactor),
            PanicPolicy::Abort => match catch_unwind(AssertUnwindSafe(|| work(&self.reactor))) {
                Ok(result) => result,
                Err(payload) => {
                    let message = panic_message(&*payload);
                    tracing::error!(reactor = %self.reactor.0.id, panic = message, "a panic outside any connection ends the process");
                    std::process::abort();
                }
            },
        }
    }

    /// Drops every task and waits for every operation.
    fn shut_down(&mut self) {
        self.stopped = true;
        loop {
            let in_flight = self.drop_tasks();
            let inner = &*self.reactor.0;
            if in_flight.is_empty() && inner.tasks.alive() == 0 {
                drop(inner.shared.close());
                return;
            }
            let mut driver = inner.driver.borrow_mut();
            in_flight.into_iter().for_each(|token| driver.cancel(token));
            let until = driver.now() + SHUT_DOWN_POLL;
            driver.turn(Wait::Until(Some(until)), &mut self.outcomes);
            drop(driver);
            for (token, outcome) in self.outcomes.drain(..) {
                self.reactor.dispatch(token, outcome);
            }
        }
    }

    /// Drops every task, message and timer, and gives up on every operation; those that are still in flight.
    fn drop_tasks(&mut self) -> Vec<OpToken> {
        let inner = Rc::clone(&self.reactor.0);
        drop(self.main.take());
        let inbox = inner.shared.refuse_messages();
        inner.tasks.extend(inbox.tasks);
        drop(inbox.messages);
        inner.tasks.clear();
        let (in_flight, dropped) = inner.slots.borrow_mut().abandon_all();
        drop(dropped);
        drop(inner.timers.take_all());
        if let Some(inbox) = inner.foreign.get() {
            inbox.abandon();
        }
        inner.tasks.clear();
        in_flight
    }
}

impl Drop for Runner {
    /// A reactor that did not run to its end, because a panic went through it or its simulation is over, drops its tasks
    /// where they belong. Operations that are in flight are the driver's to call back when it is dropped.
    fn drop(&mut self) {
        if self.stopped {
            return;
        }
        let shared = Arc::clone(&self.reactor.0.shared);
        let _entered = Entered::new(&shared);
        let in_flight = self.drop_tasks();
        let mut driver = self.reactor.0.driver.borrow_mut();
        in_flight.into_iter().for_each(|token| driver.cancel(token));
        drop(shared.close());
    }
}

/// How long shutting down waits for outcomes before it asks for cancellation again.
const SHUT_DOWN_POLL: Duration = Duration::from_millis(10);

impl Reactor {
    fn dispatch(&self, token: OpToken, outcome: Outcome) {
        let completed = self.0.slots.borrow_mut().complete(token, outcome);
        match completed {
            Completed::Nothing | Completed::Discard(_) => {}
            Completed::Wake(waker) => waker.wake(),
            Completed::Handle(handler, user, outcome) => handler.complete(user, outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::{LinuxConfig, LinuxSystem};
    use crate::{Notifier, OpToken};

    /// A driver with nothing to do, whose clock goes on by a microsecond a turn, or to the end of a wait.
    struct Clock(Cell<Instant>);

    struct Nobody;

    impl Notifier for Nobody {
        fn notify(&self) {}
    }

    impl Driver for Clock {
        fn now(&self) -> Instant {
            self.0.get()
        }

        fn random(&mut self) -> u64 {
            0
        }

        fn submit(&mut self, _: OpToken, op: Op) {
            panic!("nobody submits: {op:?}");
        }

        fn cancel(&mut self, _: OpToken) {}

        fn turn(&mut self, wait: Wait, _: &mut Vec<(OpToken, Outcome)>) {
            let now = self.0.get();
            self.0.set(match wait {
                Wait::Until(Some(end)) => end.max(now),
                _ => now + Duration::from_micros(1),
            });
        }

        fn notifier(&self) -> Arc<dyn Notifier> {
            Arc::new(Nobody)
        }
    }

    #[test]
    fn it_waits_awake_only_while_work_mostly_comes_in_time() {
        const SLEEPS: u32 = 20;
        let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
        let config = ReactorConfig {
            spin: Duration::from_micros(50),
            on_panic: PanicPolicy::Unwind,
            ..ReactorConfig::default()
        };
        let spun = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&spun);
        let main = move |reactor: Reactor| -> LocalFuture<()> {
            Box::pin(async move {
                for gap_us in [20, 100, 20] {
                    let mut before = 0;
                    for sleep in 0..SLEEPS {
                        // What it learnt of the gaps before is forgotten by then.
                        if sleep == SLEEPS / 2 {
                            before = reactor.stats().spin_ns;
                        }
                        reactor.sleep(Duration::from_micros(gap_us)).await;
                    }
                    let after = reactor.stats().spin_ns;
                    noted.borrow_mut().push(after - before);
                }
            })
        };
        let runner = Runner::with_shared(
            &config,
            Pool::new(1 << 20),
            Box::new(Clock(Cell::new(Instant::from_nanos(0)))),
            system,
            Shared::new(config.id, Arc::new(Nobody)),
            Box::new(main),
        );
        runner.run_to_end();
        let spun = spun.borrow();
        let [quick, slow, quick_again] = spun[..] else {
            panic!("three spells: {spun:?}");
        };
        assert!(quick > 0, "it slept through short gaps");
        assert_eq!(slow, 0, "it was awake for long ones");
        assert!(quick_again > 0, "it did not see that they are short again");
    }
}
