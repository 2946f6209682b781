//! Where completions go.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::Completion;

/// Takes the completions of a queue. It stores them and wakes whoever drains it; it never calls back into the queue.
pub trait CompletionSink {
    /// One request ended.
    fn complete(&self, completion: Completion);
}

/// Completions of one user, in the order in which they came, and the task that drains them.
#[derive(Default)]
pub struct Completions {
    queue: RefCell<VecDeque<Completion>>,
    waker: RefCell<Option<Waker>>,
}

impl Completions {
    /// None yet.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Takes the oldest completion; pending, and the task woken with the next one, when there is none.
    pub fn poll_pop(&self, context: &mut Context<'_>) -> Poll<Completion> {
        if let Some(completion) = self.pop() {
            return Poll::Ready(completion);
        }
        *self.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes the oldest completion, if there is one.
    pub fn pop(&self) -> Option<Completion> {
        self.queue.borrow_mut().pop_front()
    }

    /// Waits for the next completion.
    pub async fn next(&self) -> Completion {
        std::future::poll_fn(|context| self.poll_pop(context)).await
    }

    /// How many wait to be taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }
}

impl CompletionSink for Completions {
    fn complete(&self, completion: Completion) {
        self.queue.borrow_mut().push_back(completion);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Sends the completions of a queue that several users share to the user named by [`crate::Token::owner`].
#[derive(Default)]
pub struct Router {
    users: RefCell<Vec<Option<Rc<dyn CompletionSink>>>>,
    free: RefCell<Vec<u32>>,
    stray: Cell<u64>,
}

impl Router {
    /// Without users.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Adds a user; the number is the owner of its tokens.
    pub fn add(&self, user: Rc<dyn CompletionSink>) -> u32 {
        let users = &mut *self.users.borrow_mut();
        if let Some(owner) = self.free.borrow_mut().pop() {
            users[owner as usize] = Some(user);
            return owner;
        }
        users.push(Some(user));
        (users.len() - 1) as u32
    }

    /// Removes a user. It must have nothing in flight: its number is given to the next one.
    pub fn remove(&self, owner: u32) {
        let user = self.users.borrow_mut()[owner as usize].take();
        assert!(user.is_some(), "a user is removed once");
        self.free.borrow_mut().push(owner);
    }

    /// Completions whose user was gone: a defect of that user, counted rather than lost in silence.
    #[must_use]
    pub fn stray(&self) -> u64 {
        self.stray.get()
    }
}

impl CompletionSink for Router {
    fn complete(&self, completion: Completion) {
        let user = self
            .users
            .borrow()
            .get(completion.token.owner as usize)
            .cloned()
            .flatten();
        match user {
            Some(user) => user.complete(completion),
            None => self.stray.set(self.stray.get() + 1),
        }
    }
}
