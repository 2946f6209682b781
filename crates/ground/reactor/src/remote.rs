//! Reaching a reactor from another thread. Control path only: it locks.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_task::Runnable;

use crate::channel::oneshot;
use crate::{Notifier, Reactor, ReactorId};

type Message = Box<dyn FnOnce(&Reactor) + Send>;

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) tasks: Vec<Runnable>,
    pub(crate) messages: Vec<Message>,
    refuses_messages: bool,
    refuses_tasks: bool,
}

/// The part of a reactor that other threads see.
pub(crate) struct Shared {
    id: ReactorId,
    inbox: Mutex<Inbox>,
    filled: AtomicBool,
    asleep: AtomicBool,
    notifier: Arc<dyn Notifier>,
}

impl Shared {
    pub(crate) fn new(id: ReactorId, notifier: Arc<dyn Notifier>) -> Arc<Self> {
        let shared = Shared {
            id,
            inbox: Mutex::default(),
            filled: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            notifier,
        };
        Arc::new(shared)
    }

    pub(crate) fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::clone(&self.notifier)
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push_task(&self, task: Runnable) {
        let mut inbox = self.lock();
        if inbox.refuses_tasks {
            // The task belongs to a thread that is gone or going: it can be neither run nor dropped here.
            std::mem::forget(task);
            return;
        }
        inbox.tasks.push(task);
        drop(inbox);
        self.wake();
    }

    fn push_message(&self, message: Message) -> Result<(), Stopped> {
        let mut inbox = self.lock();
        if inbox.refuses_messages {
            return Err(Stopped { reactor: self.id });
        }
        inbox.messages.push(message);
        drop(inbox);
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        self.filled.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.notifier.notify();
        }
    }

    /// Wakes a reactor that sleeps; one that does not will look by itself.
    pub(crate) fn rouse(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.notifier.notify();
        }
    }

    /// What arrived, or nothing at the price of one load.
    pub(crate) fn take(&self) -> Option<Inbox> {
        if !self.filled.load(Ordering::Relaxed) {
            return None;
        }
        self.filled.store(false, Ordering::SeqCst);
        Some(self.empty())
    }

    fn empty(&self) -> Inbox {
        let mut inbox = self.lock();
        let rest = Inbox {
            refuses_messages: inbox.refuses_messages,
            refuses_tasks: inbox.refuses_tasks,
            ..Inbox::default()
        };
        std::mem::replace(&mut *inbox, rest)
    }

    /// Announces sleep; false when something arrived meanwhile, and the reactor must not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = !self.is_filled();
        if !empty {
            self.wake_up();
        }
        empty
    }

    /// Whether something arrived that was not taken yet.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::SeqCst)
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Refuses messages from now on; what was there is returned. Tasks still come home, to be dropped.
    pub(crate) fn refuse_messages(&self) -> Inbox {
        self.lock().refuses_messages = true;
        self.empty()
    }

    /// Refuses everything from now on; what was there is returned.
    pub(crate) fn close(&self) -> Inbox {
        let mut inbox = self.lock();
        inbox.refuses_messages = true;
        inbox.refuses_tasks = true;
        drop(inbox);
        self.empty()
    }
}

/// A reactor as other threads see it.
#[derive(Clone)]
pub struct Remote {
    pub(crate) shared: Arc<Shared>,
}

/// The reactor has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reactor {reactor} has stopped")]
pub struct Stopped {
    /// Which one.
    pub reactor: ReactorId,
}

impl Remote {
    /// Which reactor this is.
    #[must_use]
    pub fn id(&self) -> ReactorId {
        self.shared.id
    }

    /// Runs `work` on the reactor, after what was sent before it from the same thread.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn run(&self, work: impl FnOnce(&Reactor) + Send + 'static) -> Result<(), Stopped> {
        self.shared.push_message(Box::new(work))
    }

    /// Runs a future on the reactor and hands its result back. The work starts also when the answer is not awaited.
    ///
    /// # Errors
    /// [`Stopped`] when the reactor stopped before the work was done.
    pub fn call<T, F>(&self, work: impl FnOnce(Reactor) -> F + Send + 'static) -> Call<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Call {
            answer: self.start(work),
            reactor: self.id(),
        }
    }

    /// As [`Remote::call`], blocking the calling thread. Not for a reactor's thread.
    ///
    /// # Errors
    /// [`Stopped`] when the reactor stopped before the work was done.
    pub fn call_blocking<T, F>(
        &self,
        work: impl FnOnce(Reactor) -> F + Send + 'static,
    ) -> Result<T, Stopped>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.start(work)?
            .wait()
            .ok_or(Stopped { reactor: self.id() })
    }

    fn start<T, F>(
        &self,
        work: impl FnOnce(Reactor) -> F + Send + 'static,
    ) -> Result<crate::Receiver<T>, Stopped>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (sender, receiver) = oneshot();
        self.run(move |reactor| {
            let future = work(reactor.clone());
            reactor
                .spawn(async move { sender.send(future.await) })
                .detach();
        })?;
        Ok(receiver)
    }

    /// Asks the reactor to stop. Its tasks are dropped, its operations cancelled.
    pub fn stop(&self) {
        let _ = self.run(|reactor| reactor.stop());
    }
}

/// The answer to come of [`Remote::call`].
#[must_use = "the work goes on without it, but its result is lost"]
pub struct Call<T> {
    answer: Result<crate::Receiver<T>, Stopped>,
    reactor: ReactorId,
}

impl<T> Future for Call<T> {
    type Output = Result<T, Stopped>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Stopped>> {
        let stopped = Stopped {
            reactor: self.reactor,
        };
        match &mut self.answer {
            Ok(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|answer| answer.ok_or(stopped)),
            Err(stopped) => Poll::Ready(Err(*stopped)),
        }
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Remote({})", self.shared.id)
    }
}
