//! Messages to one task, from any thread. Control path only: it locks.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    messages: VecDeque<T>,
    waker: Option<Waker>,
}

/// A queue of messages and the task that reads it.
pub(crate) struct Inbox<T>(Mutex<State<T>>);

impl<T> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox(Mutex::new(State {
            messages: VecDeque::new(),
            waker: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message and wakes the reader.
    pub(crate) fn push(&self, message: T) {
        let waker = {
            let mut state = self.lock();
            state.messages.push_back(message);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The oldest message; pending, and the task woken with the next one, when there is none.
    pub(crate) fn poll_pop(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.lock();
        if let Some(message) = state.messages.pop_front() {
            return Poll::Ready(message);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Locks `mutex`. What it guards is consistent between statements, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
