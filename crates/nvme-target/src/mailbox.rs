//! Messages from any thread to one task.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    messages: VecDeque<T>,
    waker: Option<Waker>,
    closed: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// The reader's waker is in place, and nothing came since: looking again needs no lock.
    quiet: AtomicBool,
}

/// A queue of messages whose clones, on any thread, put in, and whose one reading task takes out. For the control path: the
/// reader pays one load when nothing came.
pub(crate) struct Mailbox<T>(Arc<Shared<T>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            messages: VecDeque::new(),
            waker: None,
            closed: false,
        };
        Mailbox(Arc::new(Shared {
            state: Mutex::new(state),
            quiet: AtomicBool::new(false),
        }))
    }

    fn with<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        change(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a message in; gives it back when nobody will read it any more.
    pub(crate) fn send(&self, message: T) -> Result<(), T> {
        let waker = self.with(|state| {
            if state.closed {
                return Err(message);
            }
            state.messages.push_back(message);
            self.0.quiet.store(false, Ordering::Release);
            Ok(state.waker.take())
        })?;
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// The next message; pending, and the task woken with the next one, where there is none. One task only may call this,
    /// until [`Mailbox::moved`] says that another will.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<T> {
        if self.0.quiet.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.with(|state| match state.messages.pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                state.waker = Some(context.waker().clone());
                self.0.quiet.store(true, Ordering::Release);
                Poll::Pending
            }
        })
    }

    /// Another task reads from now on.
    pub(crate) fn moved(&self) {
        self.with(|state| {
            state.waker = None;
            self.0.quiet.store(false, Ordering::Release);
        });
    }

    /// The next message.
    pub(crate) async fn next(&self) -> T {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Refuses messages from now on; those that nobody took are returned.
    pub(crate) fn close(&self) -> VecDeque<T> {
        self.with(|state| {
            state.closed = true;
            state.waker = None;
            std::mem::take(&mut state.messages)
        })
    }
}

/// The reader's end of a mailbox: when it is dropped nobody reads any more, and what was not taken is dropped with it.
pub(crate) struct Inbox<T>(Mailbox<T>);

impl<T> Inbox<T> {
    /// The one reader's end of `mailbox`.
    pub(crate) fn of(mailbox: &Mailbox<T>) -> Self {
        Inbox(mailbox.clone())
    }

    /// The next message.
    pub(crate) async fn next(&self) -> T {
        self.0.next().await
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}
