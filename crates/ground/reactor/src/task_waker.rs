//! The waker of one task that waits for something on its own reactor.

use std::cell::RefCell;
use std::task::{Context, Waker};

/// The waker of the task that waits for what this belongs to. There is one such task at a time; a later one takes the place of the one before.
///
/// Each owner wakes in one of two ways. [`TaskWaker::wake`] keeps the waker, for a task that waits again and again: its next
/// [`TaskWaker::register`] then costs a comparison. [`TaskWaker::take_and_wake`] forgets it, where only a task that waits now is to be woken.
#[derive(Debug, Default)]
pub struct TaskWaker(RefCell<Option<Waker>>);

impl TaskWaker {
    /// Without a task.
    #[must_use]
    pub const fn new() -> Self {
        TaskWaker(RefCell::new(None))
    }

    /// Keeps the waker of the task that is being polled.
    #[inline]
    pub fn register(&self, context: &Context<'_>) {
        let waker = context.waker();
        let is_known = |known: &Waker| known.will_wake(waker);
        if !self.0.borrow().as_ref().is_some_and(is_known) {
            // Dropping the one before may end its task, which may come back here.
            drop(self.0.replace(Some(waker.clone())));
        }
    }

    /// Wakes the task, if there is one, and keeps its waker.
    #[inline]
    pub fn wake(&self) {
        if let Some(waker) = &*self.0.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Wakes the task, if there is one, and forgets it.
    pub fn take_and_wake(&self) {
        let waker = self.0.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Forgets the task.
    pub fn forget(&self) {
        drop(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often a task was woken, and how many wakers of it there are.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn times(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Registers `task` as if it were polled.
    fn register(waker: &TaskWaker, task: &Arc<Woken>) {
        let task = Waker::from(Arc::clone(task));
        waker.register(&Context::from_waker(&task));
    }

    #[test]
    fn a_task_is_woken_until_it_is_forgotten() {
        let (waker, task) = (TaskWaker::new(), Arc::<Woken>::default());
        waker.wake();
        waker.take_and_wake();
        register(&waker, &task);
        waker.wake();
        waker.wake();
        assert_eq!(task.times(), 2);
        waker.take_and_wake();
        waker.take_and_wake();
        waker.wake();
        assert_eq!(task.times(), 3);
        register(&waker, &task);
        waker.forget();
        waker.wake();
        waker.take_and_wake();
        assert_eq!((task.times(), Arc::strong_count(&task)), (3, 1));
    }

    #[test]
    fn the_task_that_registered_last_is_woken() {
        let waker = TaskWaker::default();
        let (first, second) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        register(&waker, &first);
        register(&waker, &first);
        assert_eq!(Arc::strong_count(&first), 2, "one waker is kept");
        register(&waker, &second);
        waker.wake();
        assert_eq!((first.times(), second.times()), (0, 1));
        assert_eq!(Arc::strong_count(&first), 1);
    }
}
