//! Time as a reactor sees it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::Reactor;

/// A moment on a monotonic clock, in nanoseconds since a start that only the clock knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The moment `nanoseconds` after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Instant(nanoseconds)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanoseconds))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// The timers of one reactor, in the order in which they are due.
#[derive(Default)]
pub(crate) struct Timers {
    due: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next_key: std::cell::Cell<u64>,
}

impl Timers {
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.borrow().first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the waker of one timer that is due at `now`.
    pub(crate) fn pop(&self, now: Instant) -> Option<Waker> {
        let mut due = self.due.borrow_mut();
        let entry = due.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    pub(crate) fn take_all(&self) -> BTreeMap<(Instant, u64), Waker> {
        std::mem::take(&mut self.due.borrow_mut())
    }

    fn arm(&self, at: Instant, waker: &Waker) -> u64 {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        self.due.borrow_mut().insert((at, key), waker.clone());
        key
    }

    fn rearm(&self, at: Instant, key: u64, waker: &Waker) {
        let mut due = self.due.borrow_mut();
        match due.get_mut(&(at, key)) {
            Some(armed) => armed.clone_from(waker),
            None => {
                due.insert((at, key), waker.clone());
            }
        }
    }

    fn disarm(&self, at: Instant, key: u64) {
        self.due.borrow_mut().remove(&(at, key));
    }
}

/// A timer that can be set, moved and cleared, for a task that waits for several things.
pub struct Timer {
    reactor: Reactor,
    deadline: Option<Instant>,
    armed: Option<(Instant, u64)>,
}

impl Timer {
    /// A timer that is not set.
    #[must_use]
    pub fn new(reactor: &Reactor) -> Self {
        Timer {
            reactor: reactor.clone(),
            deadline: None,
            armed: None,
        }
    }

    /// Sets the timer to elapse at `deadline`, in place of what was set before.
    pub fn set(&mut self, deadline: Instant) {
        if self.deadline != Some(deadline) {
            self.disarm();
            self.deadline = Some(deadline);
        }
    }

    /// Clears the timer: it will not elapse.
    pub fn clear(&mut self) {
        self.disarm();
        self.deadline = None;
    }

    /// What the timer is set to.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Ready when the timer was set and its deadline has come; it is clear afterwards. Otherwise the task is woken then.
    pub fn poll_elapsed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        if deadline <= self.reactor.now() {
            self.clear();
            return Poll::Ready(());
        }
        let timers = self.reactor.timers();
        match self.armed {
            Some((at, key)) => timers.rearm(at, key, context.waker()),
            None => self.armed = Some((deadline, timers.arm(deadline, context.waker()))),
        }
        Poll::Pending
    }

    fn disarm(&mut self) {
        if let Some((at, key)) = self.armed.take() {
            self.reactor.timers().disarm(at, key);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// A future that is ready at a set time. See [`Reactor::sleep`].
pub struct Sleep {
    timer: Timer,
}

impl Sleep {
    pub(crate) fn until(reactor: &Reactor, deadline: Instant) -> Self {
        let mut timer = Timer::new(reactor);
        timer.set(deadline);
        Sleep { timer }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.timer.poll_elapsed(context)
    }
}
