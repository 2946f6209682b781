//! Threads for blocking work: started when there is work for them, at most so many, gone after a while without.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// Threads at most. Work beyond them waits.
const THREADS_MAX: usize = 16;
/// A thread ends after so long without work.
const IDLE_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
pub(super) struct Offload {
    state: Mutex<State>,
    arrived: Condvar,
}

impl Offload {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run(self: &Arc<Self>, work: Work) {
        let mut state = self.lock();
        state.work.push_back(work);
        if state.idle >= state.work.len() {
            self.arrived.notify_one();
            return;
        }
        if state.threads == THREADS_MAX {
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = Arc::clone(self);
        let started = super::start_thread("weir-offload", move || pool.serve());
        if let Err(error) = started {
            self.do_without(&error);
        }
    }

    /// No thread could be started: where there is none at all, the caller does the work, late being better than never.
    fn do_without(&self, error: &std::io::Error) {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads > 0 {
            return;
        }
        let work: Vec<Work> = state.work.drain(..).collect();
        drop(state);
        tracing::warn!(%error, "no thread for blocking work: it holds up the reactor");
        work.into_iter().for_each(perform);
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.work.pop_front() {
                drop(state);
                perform(work);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (woken, wait) = self
                .arrived
                .wait_timeout(state, IDLE_MAX)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if wait.timed_out() && state.work.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// A panic of one piece of work is its own: whoever waits for its answer sees that none comes.
fn perform(work: Work) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}
