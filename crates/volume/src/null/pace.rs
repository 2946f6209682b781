//! How fast a volume is that has a limit: one device in front of which the requests of every reactor queue.
//!
//! A request begins when the one before it has had its share of a second, and ends so long after that. Nothing is random, and
//! time is the reactors' own: simulated, it is the same every time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_block::{Completion, CompletionSink};
use weir_reactor::{Instant, Reactor, Task, Timer};

use crate::UrlError;
use crate::url::Parameters;

/// Requests a second at most that can be asked for.
const RATE_MAX: u64 = 1_000_000;
/// The longest that every request can be made to take.
const DELAY_MAX: Duration = Duration::from_secs(60);
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The limit, shared by the queues of a volume.
pub(super) struct Pace {
    /// From the beginning of one request to that of the next, in nanoseconds.
    interval_ns: u64,
    /// How long each takes once it had its turn.
    delay: Duration,
    /// When the next one may begin, in nanoseconds of the reactors' clock.
    next_start: AtomicU64,
}

impl Pace {
    /// What `rate=` and `delay=` say; none where neither is given.
    ///
    /// # Errors
    /// [`UrlError`].
    pub(super) fn of(parameters: &Parameters<'_>) -> Result<Option<Self>, UrlError> {
        let rate = parameters.number("rate", 1..=RATE_MAX)?;
        let delay = parameters.duration("delay", DELAY_MAX)?;
        if rate.is_none() && delay.is_none() {
            return Ok(None);
        }
        Ok(Some(Pace {
            interval_ns: rate.map_or(0, |rate| NANOSECONDS_PER_SECOND / rate),
            delay: delay.unwrap_or_default(),
            next_start: AtomicU64::new(0),
        }))
    }

    /// When a request ends that is submitted `now`, behind all that were submitted before.
    fn end_of_next(&self, now: Instant) -> Instant {
        let begins = |next: u64| next.max(now.as_nanos());
        let after = |next: u64| Some(begins(next).saturating_add(self.interval_ns));
        let before = self
            .next_start
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .unwrap_or_else(|_| unreachable!("there is always a next"));
        Instant::from_nanos(begins(before)) + Duration::from_nanos(self.interval_ns) + self.delay
    }
}

/// Completions of one queue that are handed out when they are due, in the order in which they were submitted.
pub(super) struct Later {
    reactor: Reactor,
    shared: Rc<Shared>,
    _task: Task<()>,
}

struct Shared {
    sink: Rc<dyn CompletionSink>,
    due: RefCell<VecDeque<(Instant, Completion)>>,
    waker: RefCell<Option<Waker>>,
}

impl Later {
    pub(super) fn new(reactor: &Reactor, sink: Rc<dyn CompletionSink>) -> Self {
        let shared = Rc::new(Shared {
            sink,
            due: RefCell::default(),
            waker: RefCell::default(),
        });
        let (kept, own) = (Rc::clone(&shared), reactor.clone());
        let mut timer = Timer::new(reactor);
        let task = reactor.spawn(std::future::poll_fn(move |context| {
            loop {
                while let Some(completion) = kept.take_due(own.now()) {
                    kept.sink.complete(completion);
                }
                match kept.next_due() {
                    Some(at) => timer.set(at),
                    None => timer.clear(),
                }
                if timer.poll_elapsed(context).is_pending() {
                    *kept.waker.borrow_mut() = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        }));
        Later {
            reactor: reactor.clone(),
            shared,
            _task: task,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shared.due.borrow().len()
    }

    /// Keeps the completion of a request that was just submitted.
    pub(super) fn push(&self, pace: &Pace, completion: Completion) {
        let at = pace.end_of_next(self.reactor.now());
        let mut due = self.shared.due.borrow_mut();
        due.push_back((at, completion));
        // What came before is due before, and the task waits for that.
        if due.len() == 1
            && let Some(waker) = &*self.shared.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }
}

impl Shared {
    fn next_due(&self) -> Option<Instant> {
        self.due.borrow().front().map(|(at, _)| *at)
    }

    fn take_due(&self, now: Instant) -> Option<Completion> {
        let mut due = self.due.borrow_mut();
        let is_due = due.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| due.pop_front().expect("just seen").1)
    }
}
