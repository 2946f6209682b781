//! Messages from any thread to one task. For the control path: who sends locks, and the reader pays one load when nothing came.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Messages to one task, its reader, from any thread.
pub struct Mailbox<M> {
    state: Mutex<State<M>>,
    /// The reader's waker is in place, and nothing came since: looking again needs no lock.
    quiet: AtomicBool,
}

struct State<M> {
    messages: VecDeque<M>,
    waker: Option<Waker>,
    closed: bool,
}

impl<M> Mailbox<M> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Mailbox {
            state: Mutex::new(State {
                messages: VecDeque::new(),
                waker: None,
                closed: false,
            }),
            quiet: AtomicBool::new(false),
        })
    }

    fn with<R>(&self, change: impl FnOnce(&mut State<M>) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Leaves a message, and wakes the reader.
    ///
    /// # Errors
    /// The message, when nobody will read it any more.
    pub fn send(&self, message: M) -> Result<(), M> {
        let waker = self.with(|state| {
            if state.closed {
                return Err(message);
            }
            state.messages.push_back(message);
            self.quiet.store(false, Ordering::Release);
            Ok(state.waker.take())
        })?;
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Leaves a message, which is dropped when nobody will read it any more.
    pub fn post(&self, message: M) {
        drop(self.send(message));
    }

    /// Takes the oldest message; pending, and the task woken with the next one, where there is none. One task only may read, until
    /// [`Mailbox::moved`] says that another will.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<M> {
        if self.quiet.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.with(|state| match state.messages.pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                self.wait(state, context);
                Poll::Pending
            }
        })
    }

    fn wait(&self, state: &mut State<M>, context: &Context<'_>) {
        state.waker = Some(context.waker().clone());
        self.quiet.store(true, Ordering::Release);
    }

    /// Waits for the next message.
    pub async fn next(&self) -> M {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Takes all that is there; the task is woken when more comes.
    pub fn take(&self, context: &mut Context<'_>) -> VecDeque<M> {
        if self.quiet.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        self.with(|state| {
            self.wait(state, context);
            std::mem::take(&mut state.messages)
        })
    }

    /// Returns whether there may be something to take. What was sent before whatever the caller saw last is there.
    #[inline]
    pub fn may_have_some(&self) -> bool {
        !self.quiet.load(Ordering::Acquire)
    }

    /// Takes those that are `wanted`; the others stay, in order, for the task.
    pub fn take_those(&self, wanted: impl Fn(&M) -> bool) -> Vec<M> {
        self.with(|state| {
            let (taken, left) = std::mem::take(&mut state.messages)
                .into_iter()
                .partition(|message| wanted(message));
            state.messages = left;
            Vec::from(taken)
        })
    }

    /// Another task reads from now on.
    pub fn moved(&self) {
        self.with(|state| {
            state.waker = None;
            self.quiet.store(false, Ordering::Release);
        });
    }

    /// Refuses messages from now on; those that nobody took are returned.
    pub fn close(&self) -> VecDeque<M> {
        self.with(|state| {
            state.closed = true;
            state.waker = None;
            std::mem::take(&mut state.messages)
        })
    }

    /// Returns whether it refuses messages.
    pub fn is_closed(&self) -> bool {
        self.with(|state| state.closed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_message_wakes_the_reader_once() {
        let (mailbox, woken) = (Mailbox::new(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let context = &mut Context::from_waker(&waker);
        assert!(mailbox.may_have_some(), "nobody has looked yet");
        assert_eq!(mailbox.poll_next(context), Poll::Pending);
        assert!(!mailbox.may_have_some());
        let sender = Arc::clone(&mailbox);
        let sending = std::thread::spawn(move || (0..3).for_each(|one| sender.post(one)));
        sending.join().expect("it ends");
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "of three messages");
        assert!(mailbox.may_have_some());
        assert_eq!(mailbox.take_those(|one| *one == 1), [1]);
        assert_eq!(mailbox.poll_next(context), Poll::Ready(0));
        assert_eq!(mailbox.take(context), [2]);
        mailbox.post(3);
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert_eq!(mailbox.take(context), [3]);
    }

    #[test]
    fn another_reader_is_woken_in_place_of_the_first() {
        let mailbox = Mailbox::new();
        let woken = [(); 2].map(|()| Arc::new(Woken::default()));
        for reader in &woken {
            let waker = Waker::from(Arc::clone(reader));
            mailbox.moved();
            assert_eq!(
                mailbox.poll_next(&mut Context::from_waker(&waker)),
                Poll::Pending
            );
        }
        mailbox.post(());
        let times = woken.map(|reader| reader.0.load(Ordering::SeqCst));
        assert_eq!(times, [0, 1]);
    }

    #[test]
    fn a_closed_one_gives_back_what_nobody_took_and_what_comes() {
        let mailbox = Mailbox::new();
        mailbox.post('a');
        assert!(!mailbox.is_closed());
        assert_eq!(mailbox.close(), ['a']);
        assert_eq!(mailbox.send('b'), Err('b'));
        assert!(mailbox.is_closed());
    }
}
