//! The reactor itself: one turn after another of tasks, I/O, and timers.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_memory::Pool;

use crate::executor::{Entered, Tasks};
use crate::foreign::{Inbox, Recipient, Ticket};
use crate::in_flight::{Awaited, Handler, Owner};
use crate::remote::Shared;
use crate::time::Timers;
use crate::waiting::{Gap, Spin, Waiting};
use crate::{Driver, Instant, Op, OpToken, Outcome, Output, Remote, Sleep, System, Task, Wait};

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

/// For how long a reactor that waits awake asks its sockets, in place of waiting for them to report: they answer sooner, for a
/// system call each time.
const LOOKING: Duration = Duration::from_micros(20);

/// Work that comes neither through the driver nor in messages, such as that of a completion queue in memory. The reactor polls it.
pub trait Source {
    /// Does the work that there is. Returns how much.
    fn poll(&self) -> usize;

    /// Sees to it that what comes from now on wakes the reactor, for it is about to sleep. Returns whether it may: there is no
    /// work yet.
    fn arm(&self) -> bool;
}

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
    /// For how long it waits awake when it has nothing to do, before it sleeps in the kernel.
    pub spin: Spin,
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
            spin: Spin::Auto,
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
    /// What a wake-up from sleep takes, in nanoseconds, as it was measured lately.
    pub wake_up_ns: u64,
    /// Time for which its thread was ready to run while others had the processor, in nanoseconds; part of the other times. 0 where the kernel does not tell.
    pub processor_wait_ns: u64,
}

struct Inner {
    id: ReactorId,
    driver: RefCell<Box<dyn Driver>>,
    /// For operations that are awaited, to be used again.
    awaited: RefCell<Vec<Rc<Awaited>>>,
    timers: Timers,
    tasks: Tasks,
    shared: Arc<Shared>,
    /// For answers from foreign threads; made when the first is awaited.
    foreign: OnceCell<Rc<Inbox>>,
    sources: RefCell<Vec<Weak<dyn Source>>>,
    pool: Pool,
    system: Arc<dyn System>,
    now: Cell<Instant>,
    waiting: RefCell<Waiting>,
    /// For how long it has had nothing to do since work came from outside, and whether it slept at the end of that.
    idle: Cell<(Duration, bool)>,
    /// Bytes, and what had none, that came from outside since it had nothing to do last.
    work: Cell<u64>,
    on_panic: PanicPolicy,
    stopping: Cell<bool>,
    stats: RefCell<ReactorStats>,
}

impl Inner {
    /// Gives the source of this index, and removes those that their owners have dropped.
    fn source(&self, index: usize) -> Option<Rc<dyn Source>> {
        loop {
            let source = self.sources.borrow().get(index)?.upgrade();
            if source.is_some() {
                return source;
            }
            self.sources.borrow_mut().remove(index);
        }
    }

    fn sources(&self) -> impl Iterator<Item = Rc<dyn Source>> {
        (0..).map_while(|index| self.source(index))
    }
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
            wake_up_ns: self.0.waiting.borrow().wake_up().as_nanos() as u64,
            ..*self.0.stats.borrow()
        }
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
        let owner = Owner::new(handler, user);
        self.0.driver.borrow_mut().submit(owner, op)
    }

    /// Submits an operation as a future. Dropping the future cancels the operation, whose buffers come back later.
    pub fn start(&self, op: Op) -> OpFuture {
        let awaited = self.0.awaited.borrow_mut().pop().unwrap_or_default();
        OpFuture {
            reactor: self.clone(),
            token: self.submit(op, awaited.clone(), 0),
            awaited: Some(awaited),
        }
    }

    /// Asks for an early end of an operation. Its outcome still comes. Does nothing to one that has ended.
    pub fn cancel(&self, token: OpToken) {
        self.0.driver.borrow_mut().cancel(token);
    }

    /// Reserves a place for one answer from a foreign thread; `recipient` is told of it, with `user`. None when
    /// [`crate::DELIVERIES_MAX`] are awaited already: try again after one came.
    pub fn reserve(&self, recipient: Rc<dyn Recipient>, user: u64) -> Option<Ticket> {
        let inbox = self.0.foreign.get_or_init(|| {
            let inbox = Rc::new(Inbox::new(Arc::clone(&self.0.shared)));
            let source: Rc<dyn Source> = inbox.clone();
            self.add_source(&source);
            inbox
        });
        inbox.reserve(recipient, user)
    }

    /// Polls `source` with every turn from now on, until its owner drops it.
    pub fn add_source(&self, source: &Rc<dyn Source>) {
        self.0.sources.borrow_mut().push(Rc::downgrade(source));
    }

    /// Stops the reactor after this turn: its tasks are dropped, its operations cancelled.
    pub fn stop(&self) {
        self.0.stopping.set(true);
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.0.timers
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
    token: OpToken,
    /// None once the outcome was taken.
    awaited: Option<Rc<Awaited>>,
}

impl Future for OpFuture {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let awaited = self.awaited.as_ref();
        let outcome = awaited
            .expect("a finished operation is not polled again")
            .poll(context);
        if outcome.is_ready() {
            let awaited = self.awaited.take();
            self.reactor.0.awaited.borrow_mut().extend(awaited);
        }
        outcome
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        if self.awaited.take().is_some_and(|awaited| awaited.give_up()) {
            self.reactor.cancel(self.token);
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
    outcomes: Vec<(Owner, Outcome)>,
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
            awaited: RefCell::default(),
            timers: Timers::default(),
            tasks: Tasks::default(),
            shared,
            foreign: OnceCell::new(),
            sources: RefCell::default(),
            pool,
            system,
            now: Cell::new(now),
            waiting: RefCell::new(Waiting::new(config.spin, now)),
            idle: Cell::default(),
            work: Cell::new(0),
            on_panic: config.on_panic,
            stopping: Cell::new(false),
            stats: RefCell::default(),
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
        let inner = &*self.reactor.0;
        let _entered = Entered::new(&inner.shared);
        // Where turn follows turn, the last one ended just now.
        let began = if may_sleep {
            inner.now.get()
        } else {
            inner.driver.borrow().now()
        };
        inner.now.set(began);
        let told = self.take_messages();
        let delivered: usize = inner
            .sources()
            .map(|source| self.guarded(|_| source.poll()))
            .sum();
        self.work_came((told + delivered) as u64);
        let ran = self.guarded(|reactor| reactor.0.tasks.run());
        if inner.stopping.get() {
            self.shut_down();
            return Step::Stopped;
        }

        let before_wait = if told + ran + delivered > 0 {
            inner.driver.borrow().now()
        } else {
            began
        };
        let wait = if may_sleep {
            self.choose_wait(before_wait)
        } else {
            Wait::No
        };
        let asleep_from = match wait {
            Wait::Until(_) => inner.driver.borrow().now(),
            Wait::No | Wait::Look => before_wait,
        };
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.guarded(|reactor| reactor.0.driver.borrow_mut().turn(wait, &mut outcomes));
        let after_wait = inner.driver.borrow().now();
        inner.now.set(after_wait);
        let ended = outcomes.len();
        if let Wait::Until(deadline) = wait {
            inner.shared.wake_up();
            let nothing_came = ended == 0 && !inner.shared.is_filled();
            // Where the deadline had passed, nobody slept.
            let late = deadline.filter(|&deadline| {
                nothing_came && deadline > asleep_from && after_wait >= deadline
            });
            let late = late.map(|deadline| after_wait.since(deadline));
            inner.waiting.borrow_mut().woke_up(after_wait, late);
        }
        let mut work = 0;
        self.guarded(|_| {
            for (owner, outcome) in outcomes.drain(..) {
                work += work_of(&outcome);
                owner.end(outcome);
            }
        });
        self.outcomes = outcomes;
        while let Some(waker) = inner.timers.pop(after_wait) {
            waker.wake();
        }
        inner.tasks.take_woken();

        let worked = ran + delivered + ended > 0 || !inner.tasks.is_empty();
        let sleeps = matches!(wait, Wait::Until(_));
        if worked && inner.waiting.borrow().is_fixed() {
            inner.idle.set((Duration::ZERO, false));
        } else if sleeps || !worked {
            let (idle, _) = inner.idle.get();
            let more = match worked || told > 0 {
                true => after_wait - before_wait,
                false => after_wait - began,
            };
            inner.idle.set((idle + more, sleeps));
        }
        self.work_came(work);
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

    /// Takes what other threads sent: messages, and tasks that they woke. How many.
    fn take_messages(&self) -> usize {
        let Some(inbox) = self.reactor.0.shared.take() else {
            return 0;
        };
        let told = inbox.tasks.len() + inbox.messages.len();
        self.reactor.0.tasks.extend(inbox.tasks);
        self.guarded(|reactor| {
            for message in inbox.messages {
                message(reactor);
            }
        });
        told
    }

    /// Notes work from outside: the first of it ends a gap.
    fn work_came(&self, work: u64) {
        if work == 0 {
            return;
        }
        let inner = &*self.reactor.0;
        let (idle, slept) = inner.idle.take();
        if idle > Duration::ZERO {
            let gap = Gap {
                time: idle,
                slept,
                work: inner.work.take(),
            };
            let waited = || {
                let times = inner.driver.borrow().processor_times();
                times.map_or(Duration::ZERO, |times| times.waited)
            };
            inner.waiting.borrow_mut().gap_ended(gap, waited);
        }
        inner.work.set(inner.work.get() + work);
    }

    fn choose_wait(&self, now: Instant) -> Wait {
        let inner = &*self.reactor.0;
        if !inner.tasks.is_empty() {
            return Wait::No;
        }
        let waiting = inner.waiting.borrow();
        let (idle, _) = inner.idle.get();
        if idle < waiting.awake_for() {
            return if idle < LOOKING { Wait::Look } else { Wait::No };
        }
        if !inner.shared.fall_asleep() {
            return Wait::No;
        }
        // What came before this reactor was seen to sleep woke nobody.
        let is_armed = self.guarded(|_| inner.sources().all(|source| source.arm()));
        inner.tasks.take_woken();
        if !is_armed || !inner.tasks.is_empty() {
            inner.shared.wake_up();
            return Wait::No;
        }
        let measured = waiting.measure(now);
        let timer = inner.timers.next();
        Wait::Until(timer.into_iter().chain(measured).min())
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
        let mut stats = self.reactor.0.stats.borrow_mut();
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
            Wait::No | Wait::Look if worked => stats.busy_ns += running + waiting,
            Wait::No | Wait::Look => stats.spin_ns += running + waiting,
        }
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
            self.drop_tasks();
            let inner = &*self.reactor.0;
            let mut driver = inner.driver.borrow_mut();
            if driver.in_flight() == 0 && inner.tasks.alive() == 0 {
                drop(driver);
                drop(inner.shared.close());
                return;
            }
            let until = driver.now() + SHUT_DOWN_POLL;
            driver.turn(Wait::Until(Some(until)), &mut self.outcomes);
            drop(driver);
            for (owner, outcome) in self.outcomes.drain(..) {
                owner.end(outcome);
            }
        }
    }

    /// Drops every task, message and timer, and gives up on every operation.
    fn drop_tasks(&mut self) {
        let inner = Rc::clone(&self.reactor.0);
        drop(self.main.take());
        let inbox = inner.shared.refuse_messages();
        inner.tasks.extend(inbox.tasks);
        drop(inbox.messages);
        inner.tasks.clear();
        let owners = inner.driver.borrow_mut().abandon_all();
        drop(owners);
        drop(inner.timers.take_all());
        if let Some(inbox) = inner.foreign.get() {
            inbox.abandon();
        }
        inner.tasks.clear();
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
        self.drop_tasks();
        drop(shared.close());
    }
}

/// How much work from outside an operation brought: bytes, or one where it has none. A send that ended brought nothing.
fn work_of(outcome: &Outcome) -> u64 {
    match (&outcome.op, &outcome.result) {
        (Op::Send { .. }, _) => 0,
        (_, Ok(Output::Count(bytes))) => (*bytes as u64).max(1),
        (_, Ok(Output::Received(view))) => (view.len() as u64).max(1),
        _ => 1,
    }
}

/// How long shutting down waits for outcomes before it asks for cancellation again.
const SHUT_DOWN_POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::{LinuxConfig, LinuxSystem};
    use crate::{Notifier, OpToken};

    /// What a sleep takes beyond what ends it, and how long the work of each gap keeps away.
    const WAKE_UP: Duration = Duration::from_micros(30);

    /// A driver with nothing to do, whose clock goes on by a microsecond a turn. Now and then it sends its own reactor work,
    /// as another thread would.
    struct Clock {
        now: Cell<Instant>,
        shared: Arc<Shared>,
        gap: Rc<Cell<Option<Duration>>>,
        next: Option<Instant>,
    }

    struct Nobody;

    impl Notifier for Nobody {
        fn notify(&self) {}
    }

    impl Driver for Clock {
        fn now(&self) -> Instant {
            self.now.get()
        }

        fn random(&mut self) -> u64 {
            0
        }

        fn submit(&mut self, _: Owner, op: Op) -> OpToken {
            panic!("nobody submits: {op:?}");
        }

        fn cancel(&mut self, _: OpToken) {}

        fn in_flight(&self) -> usize {
            0
        }

        fn abandon_all(&mut self) -> Vec<Owner> {
            Vec::new()
        }

        fn turn(&mut self, wait: Wait, _: &mut Vec<(Owner, Outcome)>) {
            let mut now = self.now.get();
            if self.next.is_none() {
                self.next = self.gap.get().map(|gap| now + gap);
            }
            now = match wait {
                Wait::No | Wait::Look => now + Duration::from_micros(1),
                Wait::Until(deadline) => {
                    let end = deadline.into_iter().chain(self.next).min();
                    end.expect("it sleeps for ever").max(now) + WAKE_UP
                }
            };
            if self.next.is_some_and(|next| next <= now) {
                self.next = None;
                let remote = Remote {
                    shared: Arc::clone(&self.shared),
                };
                remote.run(|_| {}).expect("it runs");
            }
            self.now.set(now);
        }

        fn notifier(&self) -> Arc<dyn Notifier> {
            Arc::new(Nobody)
        }
    }

    /// Lets work come from outside with these gaps for so long each, and timers end every so often; the share of the second
    /// half of each spell that it waited awake.
    fn shares_awake(gaps: &[Option<u64>], timer: Duration, spell: Duration) -> Vec<f64> {
        let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
        let config = ReactorConfig {
            on_panic: PanicPolicy::Unwind,
            ..ReactorConfig::default()
        };
        let (gap, shares) = (Rc::new(Cell::new(None)), Rc::new(RefCell::new(Vec::new())));
        let shared = Shared::new(config.id, Arc::new(Nobody));
        let clock = Clock {
            now: Cell::new(Instant::from_nanos(0)),
            shared: Arc::clone(&shared),
            gap: Rc::clone(&gap),
            next: None,
        };
        let (gaps, noted) = (gaps.to_vec(), Rc::clone(&shares));
        let main = move |reactor: Reactor| -> LocalFuture<()> {
            Box::pin(async move {
                let wait = async |time: Duration| {
                    let end = reactor.now() + time;
                    while reactor.now() < end {
                        reactor.sleep(timer).await;
                    }
                };
                for us in gaps {
                    gap.set(us.map(Duration::from_micros));
                    wait(spell / 2).await;
                    let (began, before) = (reactor.now(), reactor.stats().spin_ns);
                    wait(spell / 2).await;
                    let spun = (reactor.stats().spin_ns - before) as f64;
                    let all = reactor.now().since(began).as_nanos() as f64;
                    noted.borrow_mut().push(spun / all);
                }
            })
        };
        let pool = Pool::new(1 << 20);
        let runner = Runner::with_shared(
            &config,
            pool,
            Box::new(clock),
            system,
            shared,
            Box::new(main),
        );
        runner.run_to_end();
        shares.take()
    }

    #[test]
    fn it_waits_awake_while_work_comes_sooner_than_it_would_wake_up() {
        let spell = Duration::from_millis(50);
        let shares = shares_awake(&[Some(10), Some(400), Some(10)], spell / 2, spell);
        let [quick, slow, quick_again] = shares[..] else {
            panic!("three spells: {shares:?}");
        };
        assert!(quick > 0.5, "it slept through short gaps: {shares:?}");
        assert!(slow < 0.1, "it was awake for long ones: {shares:?}");
        assert!(
            quick_again > 0.5,
            "it did not see that they are short again: {shares:?}"
        );
    }

    #[test]
    fn timers_are_no_work_that_it_waits_awake_for() {
        let timer = Duration::from_micros(10);
        let shares = shares_awake(&[None], timer, Duration::from_millis(20));
        assert_eq!(shares, [0.0]);
    }
}
