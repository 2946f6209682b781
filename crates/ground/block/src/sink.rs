//! Where completions go.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_reactor::TaskWaker;

use crate::{Completion, Queue, Request};

/// A host, as whoever serves it tells it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostNumber(pub u64);

/// The [owner](crate::Token::owner) of what a guard submits by itself. No user of a [`Router`] is given this number.
pub const GUARD_OWNER: u32 = u32::MAX;

/// Takes the completions of a queue, but for those that are done at once. It stores them and wakes whoever drains it; it never calls back
/// into the queue.
pub trait CompletionSink {
    /// One request ended.
    fn complete(&self, completion: Completion);

    /// All of these ended: takes every one out of `done`.
    fn complete_all(&self, done: &mut VecDeque<Completion>) {
        while let Some(completion) = done.pop_front() {
            self.complete(completion);
        }
    }

    /// Returns the host for which the user `owner` of the queue ([`crate::Token::owner`]) submits requests; none: for no host that
    /// comes by several paths.
    fn host_of(&self, owner: u32) -> Option<HostNumber> {
        let _ = owner;
        None
    }
}

/// Submits outside of any submission, as a task of a queue does: what is done at once goes to `sink` like the rest.
pub fn submit_to(queue: &mut dyn Queue, batch: &mut VecDeque<Request>, sink: &dyn CompletionSink) {
    let mut done = VecDeque::new();
    queue.submit(batch, &mut done);
    sink.complete_all(&mut done);
}

/// Completions of one user, in the order in which they came, and the task that drains them.
#[derive(Default)]
pub struct Completions {
    queue: RefCell<VecDeque<Completion>>,
    waker: TaskWaker,
    /// The task waits for the next one, and is woken for it.
    is_awaited: Cell<bool>,
    /// Something was done at once since the task last waited.
    done_at_once: Cell<bool>,
}

impl Completions {
    /// None yet.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Submits to a queue whose sink this is, and keeps what is done at once with the rest. [`Completions::poll_pop`] yields it in the task's
    /// next turn, so that who goes on submitting leaves a turn to others.
    pub fn submit(&self, queue: &mut dyn Queue, batch: &mut VecDeque<Request>) {
        let mut completions = self.queue.borrow_mut();
        let before = completions.len();
        queue.submit(batch, &mut completions);
        if completions.len() > before {
            drop(completions);
            self.done_at_once.set(true);
            self.wake();
        }
    }

    /// Takes the oldest completion; pending, and the task woken with the next one, when there is none. Pending too, and the task woken at once,
    /// the first time after [`Completions::submit`] kept something.
    pub fn poll_pop(&self, context: &mut Context<'_>) -> Poll<Completion> {
        if self.done_at_once.take() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(completion) = self.pop() {
            return Poll::Ready(completion);
        }
        self.waker.register(context);
        self.is_awaited.set(true);
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

    /// Has nobody woken by what comes: the task is about to look.
    pub fn forget_waker(&self) {
        self.is_awaited.set(false);
    }

    fn wake(&self) {
        if self.is_awaited.take() {
            self.waker.wake();
        }
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
        self.wake();
    }

    fn complete_all(&self, done: &mut VecDeque<Completion>) {
        self.queue.borrow_mut().append(done);
        self.wake();
    }
}

struct User {
    sink: Rc<dyn CompletionSink>,
    host: Option<HostNumber>,
}

/// Sends the completions of a queue that several users share to the user named by [`crate::Token::owner`].
#[derive(Default)]
pub struct Router {
    users: RefCell<Vec<Option<User>>>,
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
    pub fn add(&self, sink: Rc<dyn CompletionSink>) -> u32 {
        let user = User { sink, host: None };
        let users = &mut *self.users.borrow_mut();
        if let Some(owner) = self.free.borrow_mut().pop() {
            users[owner as usize] = Some(user);
            return owner;
        }
        let owner = users.len() as u32;
        assert!(owner < GUARD_OWNER, "a number is left for a guard");
        users.push(Some(user));
        owner
    }

    /// Names the host for which a user submits requests from now on.
    pub fn set_host(&self, owner: u32, host: HostNumber) {
        let user = &mut self.users.borrow_mut()[owner as usize];
        user.as_mut().expect("a user that was added").host = Some(host);
    }

    /// Removes a user. It must have nothing in flight: its number is given to the next one.
    pub fn remove(&self, owner: u32) {
        let user = self.users.borrow_mut()[owner as usize].take();
        assert!(user.is_some(), "a user is removed once");
        self.free.borrow_mut().push(owner);
    }

    fn sink_of(&self, owner: u32) -> Option<Rc<dyn CompletionSink>> {
        let users = self.users.borrow();
        let user = users.get(owner as usize)?.as_ref()?;
        Some(Rc::clone(&user.sink))
    }

    /// Completions whose user was gone: a defect of that user, counted rather than lost in silence.
    #[must_use]
    pub fn stray(&self) -> u64 {
        self.stray.get()
    }
}

impl CompletionSink for Router {
    fn complete(&self, completion: Completion) {
        match self.sink_of(completion.token.owner) {
            Some(sink) => sink.complete(completion),
            None => self.stray.set(self.stray.get() + 1),
        }
    }

    /// As a rule they are all of one user.
    fn complete_all(&self, done: &mut VecDeque<Completion>) {
        let mut owners = done.iter().map(|completion| completion.token.owner);
        let Some(owner) = owners.next() else { return };
        let is_one = owners.all(|other| other == owner);
        match self.sink_of(owner).filter(|_| is_one) {
            Some(sink) => sink.complete_all(done),
            None => {
                while let Some(completion) = done.pop_front() {
                    self.complete(completion);
                }
            }
        }
    }

    fn host_of(&self, owner: u32) -> Option<HostNumber> {
        let users = self.users.borrow();
        users.get(owner as usize)?.as_ref()?.host
    }
}
