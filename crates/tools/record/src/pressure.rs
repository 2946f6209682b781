//! Back-pressure of a recorder, and a throttle for reads of its ring, which yield to it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_load::Stop;
use weir_reactor::Reactor;

/// Reads of one volume in flight at most while a recorder writes to it.
const READS: usize = 4;
/// Maximum bytes of such a read: a write waits behind at most `READS` of them.
const READ_BYTES: usize = 128 << 10;
/// Interval at which a waiting read looks at the pressure.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Longest wait of a read for low pressure, so that a reader always makes progress.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The same for a read of so many bytes or fewer, such as a commit record.
const SHORT_BYTES: usize = 16 << 10;
const SHORT_WAIT_MAX: Duration = Duration::from_millis(50);

type OnChange = Box<dyn Fn(&Pressure) + Send + Sync>;

/// The state of a recorder as readers of its ring see it: whether it runs, and how many of its streams run short of buffers.
#[derive(Default)]
pub struct Pressure {
    is_known: AtomicBool,
    is_recording: AtomicBool,
    streams: AtomicU32,
    on_change: OnceLock<OnChange>,
}

impl Pressure {
    /// Returns the pressure of a running recorder.
    #[must_use]
    pub fn recording() -> Self {
        let pressure = Pressure::default();
        pressure.set_recording(true);
        pressure
    }

    /// Says whether a recorder runs. Until this is called it is not known.
    pub fn set_recording(&self, is_recording: bool) {
        self.is_recording.store(is_recording, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Release);
    }

    /// Returns whether [`Pressure::set_recording`] was called.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// Tells whether any stream runs short of buffers.
    #[must_use]
    pub fn is_high(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    /// Sets a function that is called whenever [`Pressure::is_high`] may have changed, on the thread that changed it. Only the first call counts.
    pub fn on_change(&self, on_change: impl Fn(&Pressure) + Send + Sync + 'static) {
        let _ = self.on_change.set(Box::new(on_change));
    }

    /// Counts one more stream as short of buffers.
    pub fn raise(&self) {
        if self.streams.fetch_add(1, Ordering::Relaxed) == 0 {
            self.changed();
        }
    }

    /// Counts one stream less as short of buffers.
    pub fn lower(&self) {
        if self.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.changed();
        }
    }

    fn changed(&self) {
        if let Some(on_change) = self.on_change.get() {
            on_change(self);
        }
    }
}

/// Holds reads of one volume back while a recorder writes to the ring: few are in flight, and they wait while the pressure is high.
pub(crate) struct Throttle {
    reactor: Reactor,
    pressure: Arc<Pressure>,
    /// After a stop request, reads no longer wait.
    pub(crate) stop: Stop,
    free: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

/// Permit for one read, held until dropped. Empty when no recorder runs.
pub(crate) struct Permit<'a>(Option<&'a Throttle>);

impl Throttle {
    pub(crate) fn new(reactor: &Reactor, pressure: Arc<Pressure>, stop: Stop) -> Self {
        Throttle {
            reactor: reactor.clone(),
            pressure,
            stop,
            free: Cell::new(READS),
            waiting: RefCell::default(),
        }
    }

    fn is_on(&self) -> bool {
        self.pressure.is_recording.load(Ordering::Relaxed) && !self.stop.is_asked()
    }

    /// Bytes of one read at most, of a volume that takes `bytes` at once.
    pub(crate) fn read_bytes(&self, bytes: usize) -> usize {
        if self.is_on() {
            bytes.min(READ_BYTES)
        } else {
            bytes
        }
    }

    /// Waits until so many bytes may be read.
    pub(crate) async fn permit(&self, bytes: usize) -> Permit<'_> {
        if !self.is_on() {
            return Permit(None);
        }
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
        let permit = Permit(Some(self));
        let longest = if bytes <= SHORT_BYTES {
            SHORT_WAIT_MAX
        } else {
            WAIT_MAX
        };
        let until = self.reactor.now() + longest;
        while self.pressure.is_high() && self.is_on() && self.reactor.now() < until {
            self.reactor.sleep(POLL_INTERVAL).await;
        }
        permit
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Some(throttle) = self.0 else { return };
        throttle.free.set(throttle.free.get() + 1);
        // Wake all: a woken read may be dropped before it runs.
        for waker in throttle.waiting.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn changes_between_none_and_some_are_reported() {
        let pressure = Pressure::recording();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&seen);
        pressure.on_change(move |pressure| heard.lock().unwrap().push(pressure.is_high()));
        pressure.raise();
        pressure.raise();
        pressure.lower();
        pressure.lower();
        pressure.raise();
        pressure.lower();
        assert_eq!(*seen.lock().unwrap(), [true, false, true, false]);
    }
}
