//! Tells whether a recorder's buffers fill, for readers of its ring: their reads wait meanwhile.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_load::Stop;
use weir_reactor::Reactor;

/// Reads of a ring that are under way at a time beside its recorder.
const READS: usize = 4;
/// Interval at which a read that waits looks whether the buffers still fill.
const LOOK: Duration = Duration::from_millis(1);
/// Longest time that a read waits: a reader beside a recorder that is always short of buffers goes on, if slowly.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A callback that is told of changes.
type Told = Box<dyn Fn(&Crowd) + Send + Sync>;

/// The number of streams of a recording whose buffers fill.
#[derive(Default)]
pub struct Crowd {
    streams: AtomicU32,
    told: OnceLock<Told>,
}

impl Crowd {
    /// Tells whether the buffers of any stream fill.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    /// Has `told` called, on the thread that changes it, whenever [`Crowd::is_there`] may have changed. The first one counts.
    pub fn on_change(&self, told: impl Fn(&Crowd) + Send + Sync + 'static) {
        let _ = self.told.set(Box::new(told));
    }

    /// The buffers of one more stream fill, or those of one do so no more.
    pub fn change(&self, is_more: bool) {
        let before = match is_more {
            true => self.streams.fetch_add(1, Ordering::Relaxed),
            false => self.streams.fetch_sub(1, Ordering::Relaxed),
        };
        let changes = before == u32::from(!is_more);
        if let Some(told) = self.told.get().filter(|_| changes) {
            told(self);
        }
    }
}

/// Has the reads of a ring wait while its recorder's buffers fill, and lets few through at a time.
pub(crate) struct Behind {
    reactor: Reactor,
    crowd: Arc<Crowd>,
    /// Who stops reading does not wait for it.
    stop: Stop,
    free: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

/// A read that may go on; the next one may when this is dropped.
pub(crate) struct Turn<'a>(&'a Behind);

impl Behind {
    pub(crate) fn new(reactor: &Reactor, crowd: Arc<Crowd>, stop: Stop) -> Self {
        Behind {
            reactor: reactor.clone(),
            crowd,
            stop,
            free: Cell::new(READS),
            waiting: RefCell::default(),
        }
    }

    pub(crate) async fn turn(&self) -> Turn<'_> {
        poll_fn(|context| match self.free.get().checked_sub(1) {
            Some(left) => {
                self.free.set(left);
                Poll::Ready(())
            }
            None => {
                self.waiting.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await;
        let turn = Turn(self);
        let until = self.reactor.now() + WAIT_MAX;
        while self.crowd.is_there() && !self.stop.is_asked() && self.reactor.now() < until {
            self.reactor.sleep(LOOK).await;
        }
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        // All of them: one that was woken may be dropped before it goes on.
        for waker in self.0.waiting.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn changes_between_none_and_some_are_told() {
        let crowd = Crowd::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        crowd.on_change(move |crowd| heard.lock().unwrap().push(crowd.is_there()));
        for is_more in [true, true, false, false, true, false] {
            crowd.change(is_more);
        }
        assert_eq!(*told.lock().unwrap(), [true, false, true, false]);
    }
}
