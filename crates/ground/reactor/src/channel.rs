//! A value handed over once, across threads or within one.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_gone: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.waker.take()
        };
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The sending end of [`oneshot`]. Dropping it unsent tells the receiver.
pub struct Sender<T>(Option<Arc<Shared<T>>>);

/// The receiving end of [`oneshot`]: a future of the value, or of `None` when the sender was dropped.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A pair of ends that hand over one value.
#[must_use]
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let state = State {
        value: None,
        waker: None,
        sender_gone: false,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    (Sender(Some(Arc::clone(&shared))), Receiver(shared))
}

impl<T> Sender<T> {
    /// Hands `value` over.
    pub fn send(mut self, value: T) {
        let shared = self.0.take().expect("a sender is used once");
        shared.change(|state| state.value = Some(value));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.change(|state| state.sender_gone = true);
        }
    }
}

impl<T> Receiver<T> {
    /// Blocks the calling thread until the value comes; `None` when the sender was dropped. Not for a reactor's thread.
    /// On a thread that has a simulation, the simulation goes on meanwhile.
    #[must_use]
    pub fn wait(self) -> Option<T> {
        if crate::sim::is_here() {
            crate::sim::drive_until(&|| {
                let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.value.is_some() || state.sender_gone
            });
        }
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.value.is_none() && !state.sender_gone {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.value.take()
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.value.is_some() || state.sender_gone {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
