//! The tasks of one reactor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

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

/// Forgets what was woken by a reactor that panicked, so that no other reactor of this thread takes it for its own.
pub(crate) fn forget_woken() {
    std::mem::forget(WOKEN.take());
}

/// Puts a woken task where its reactor will find it. A wake from its own reactor touches nothing shared.
fn schedule(home: &Arc<Shared>, task: Runnable) {
    if std::ptr::eq(CURRENT.get(), Arc::as_ptr(home)) {
        WOKEN.with_borrow_mut(|woken| woken.push_back(task));
    } else {
        home.push_task(task);
    }
}

/// The tasks of one reactor.
#[derive(Default)]
pub(crate) struct Tasks {
    queue: RefCell<VecDeque<Runnable>>,
    alive: Rc<RefCell<Alive>>,
}

/// The wakers of all tasks that have not ended. A task may be reachable from nothing but itself (its waker kept by what it
/// waits for, and that by the task), so that only this finds it when the reactor stops.
#[derive(Default)]
struct Alive {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// Takes a task off the list of those alive when its future is dropped.
struct AliveEntry {
    alive: Rc<RefCell<Alive>>,
    index: usize,
}

impl Drop for AliveEntry {
    fn drop(&mut self) {
        let mut alive = self.alive.borrow_mut();
        let waker = alive.wakers[self.index].take();
        alive.free.push(self.index);
        drop(alive);
        drop(waker);
    }
}

impl Tasks {
    pub(crate) fn spawn<T: 'static>(
        &self,
        home: &Arc<Shared>,
        future: impl Future<Output = T> + 'static,
    ) -> Task<T> {
        let entry = self.reserve();
        let index = entry.index;
        let shared = Arc::clone(home);
        let tracked = async move {
            let _entry = entry;
            future.await
        };
        let (runnable, task) =
            async_task::spawn_local(tracked, move |runnable| schedule(&shared, runnable));
        self.alive.borrow_mut().wakers[index] = Some(runnable.waker());
        runnable.schedule();
        task
    }

    fn reserve(&self) -> AliveEntry {
        let mut alive = self.alive.borrow_mut();
        let index = alive.free.pop().unwrap_or_else(|| {
            alive.wakers.push(None);
            alive.wakers.len() - 1
        });
        AliveEntry {
            alive: Rc::clone(&self.alive),
            index,
        }
    }

    /// Tasks that have not ended.
    pub(crate) fn alive(&self) -> usize {
        let alive = self.alive.borrow();
        alive.wakers.len() - alive.free.len()
    }

    pub(crate) fn extend(&self, tasks: impl IntoIterator<Item = Runnable>) {
        self.queue.borrow_mut().extend(tasks);
    }

    /// Takes over what was woken on this thread. Called by the entered reactor, so that all of it is its own.
    pub(crate) fn take_woken(&self) {
        WOKEN.with_borrow_mut(|woken| {
            if woken.is_empty() {
                return;
            }
            let queue = &mut *self.queue.borrow_mut();
            if queue.is_empty() {
                std::mem::swap(queue, woken);
            } else {
                queue.append(woken);
            }
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// The next task to run. Those that were woken meanwhile come behind those that were there.
    fn next(&self) -> Option<Runnable> {
        let next = self.queue.borrow_mut().pop_front();
        next.or_else(|| {
            self.take_woken();
            self.queue.borrow_mut().pop_front()
        })
    }

    /// Runs ready tasks; how many.
    pub(crate) fn run(&self) -> usize {
        for ran in 0..TASKS_PER_TURN_MAX {
            let Some(task) = self.next() else {
                return ran;
            };
            task.run();
        }
        self.take_woken();
        TASKS_PER_TURN_MAX
    }

    /// Drops every task, except one that another thread is waking at this very moment: it comes through the inbox.
    pub(crate) fn clear(&self) {
        loop {
            let alive: Vec<_> = self
                .alive
                .borrow()
                .wakers
                .iter()
                .flatten()
                .cloned()
                .collect();
            alive.into_iter().for_each(Waker::wake);
            self.take_woken();
            let tasks = std::mem::take(&mut *self.queue.borrow_mut());
            if tasks.is_empty() {
                return;
            }
            drop(tasks);
        }
    }
}
