//! The tasks of one reactor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use async_task::Runnable;

use crate::remote::Shared;

/// A spawned task. Awaiting it yields its result; dropping it cancels the task; see `detach` to let it run on.
pub type Task<T> = async_task::Task<T>;

/// Tasks that run in one turn at most, so that I/O is looked after in between.
const TASKS_PER_TURN_MAX: usize = 256;

thread_local! {
    /// The inbox of the reactor that runs on this thread now; null outside.
    static CURRENT: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// Marks a reactor as the one that runs on this thread, until dropped.
pub(crate) struct Entered(*const Shared);

impl Entered {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Entered(CURRENT.replace(Arc::as_ptr(shared)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

thread_local! {
    /// Tasks woken by the reactor that runs on this thread, until the reactor takes them.
    static WOKEN: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// Puts a woken task where its reactor will find it. A wake from its own reactor touches nothing shared.
fn schedule(home: &Arc<Shared>, task: Runnable) {
    if std::ptr::eq(CURRENT.get(), Arc::as_ptr(home)) {
        WOKEN.with_borrow_mut(|woken| woken.push_back(task));
    } else {
        home.push_task(task);
    }
}

/// The tasks that are ready on one reactor.
#[derive(Default)]
pub(crate) struct Ready {
    queue: RefCell<VecDeque<Runnable>>,
}

impl Ready {
    pub(crate) fn spawn<T: 'static>(
        home: &Arc<Shared>,
        future: impl Future<Output = T> + 'static,
    ) -> Task<T> {
        let shared = Arc::clone(home);
        let (runnable, task) =
            async_task::spawn_local(future, move |runnable| schedule(&shared, runnable));
        runnable.schedule();
        task
    }

    pub(crate) fn extend(&self, tasks: impl IntoIterator<Item = Runnable>) {
        self.queue.borrow_mut().extend(tasks);
    }

    /// Takes over what was woken on this thread. Called by the entered reactor, so that all of it is its own.
    pub(crate) fn take_woken(&self) {
        WOKEN.with_borrow_mut(|woken| self.queue.borrow_mut().append(woken));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Runs ready tasks; how many.
    pub(crate) fn run(&self) -> usize {
        for ran in 0..TASKS_PER_TURN_MAX {
            self.take_woken();
            let Some(task) = self.queue.borrow_mut().pop_front() else {
                return ran;
            };
            task.run();
        }
        self.take_woken();
        TASKS_PER_TURN_MAX
    }

    /// Drops every ready task unrun, and what that wakes.
    pub(crate) fn clear(&self) {
        loop {
            self.take_woken();
            let Some(task) = self.queue.borrow_mut().pop_front() else {
                return;
            };
            drop(task);
        }
    }
}
