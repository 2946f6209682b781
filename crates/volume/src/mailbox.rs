//! How a queue is told something from another thread, and how an answer of many is awaited. Control path only: it locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use weir_block::{FenceReply, VolumeError};

use crate::support::lock;

/// Messages to one queue. The queue's task takes them on its reactor.
pub struct Mailbox<M> {
    state: Mutex<State<M>>,
    /// There are messages.
    filled: AtomicBool,
}

struct State<M> {
    messages: Vec<M>,
    waker: Option<Waker>,
    closed: bool,
}

impl<M> Mailbox<M> {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::new(Mailbox {
            state: Mutex::new(State {
                messages: Vec::new(),
                waker: None,
                closed: false,
            }),
            filled: AtomicBool::new(false),
        })
    }

    /// Leaves a message. A closed mailbox drops it.
    pub fn post(&self, message: M) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            drop(message);
            return;
        }
        state.messages.push(message);
        self.filled.store(true, Ordering::Release);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what is there; the task is woken when more comes.
    pub fn take(&self, context: &mut Context<'_>) -> Vec<M> {
        let mut state = lock(&self.state);
        if !state
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            state.waker = Some(context.waker().clone());
        }
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut state.messages)
    }

    /// Returns whether there is anything to take. What was posted before whatever the caller saw last is there.
    #[inline]
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes those that are `wanted`; the others stay, in order, for the task.
    pub fn take_those(&self, wanted: impl Fn(&M) -> bool) -> Vec<M> {
        let mut state = lock(&self.state);
        let taken = state.messages.extract_if(.., |message| wanted(message));
        let taken = taken.collect();
        self.filled
            .store(!state.messages.is_empty(), Ordering::Release);
        taken
    }

    /// Takes what is there, and drops what comes later.
    pub fn close(&self) -> Vec<M> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.waker = None;
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut state.messages)
    }

    /// Whether it drops what comes.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }
}

/// Replies to a fence when its last clone is dropped: everybody who had to wait for something holds one.
pub struct WhenAll {
    reply: Mutex<Option<FenceReply>>,
    result: Mutex<Result<(), VolumeError>>,
}

impl WhenAll {
    /// The first of those who hold `reply` back.
    pub fn new(reply: FenceReply) -> Arc<Self> {
        Arc::new(WhenAll {
            reply: Mutex::new(Some(reply)),
            result: Mutex::new(Ok(())),
        })
    }

    /// One of those waited for failed.
    pub fn fail(&self, error: VolumeError) {
        *lock(&self.result) = Err(error);
    }
}

impl Drop for WhenAll {
    fn drop(&mut self) {
        if let Some(reply) = lock(&self.reply).take() {
            reply(*lock(&self.result));
        }
    }
}
