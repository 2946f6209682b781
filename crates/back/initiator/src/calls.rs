//! Commands one at a time, as futures: beside those of a queue, or on a connection of their own.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_reactor::{Key, Reactor, Slots, TcpStream};

use crate::connection::{Connection, EndReason, Owner};
use crate::wire::{Commands, Exposure, Wire};

/// How often a connection without room is looked at again.
const ROOM_POLL: Duration = Duration::from_millis(1);

/// Marks the user word of a call, on a connection whose other commands are somebody else's.
pub(crate) const CALL: u64 = 1 << 63;

struct Call<Answer> {
    data: Vec<u8>,
    answer: Option<Answer>,
    waker: Option<Waker>,
    /// Nobody waits for the answer any more.
    abandoned: bool,
}

struct State<Answer> {
    calls: Slots<Call<Answer>>,
    ended: Option<EndReason>,
    wakers: Vec<Waker>,
}

/// The call of a user word.
fn call_of(user: u64) -> Key {
    Key::from_word(user & !CALL)
}

/// The calls in flight on one connection. It owns the commands whose user word is marked as theirs.
pub struct Calls<W: Wire>(RefCell<State<W::Answer>>);

impl<W: Wire> Default for Calls<W> {
    fn default() -> Self {
        Calls(RefCell::new(State {
            calls: Slots::default(),
            ended: None,
            wakers: Vec::new(),
        }))
    }
}

impl<W: Wire> Commands<W::Answer> for Calls<W> {
    fn data(&self, user: u64, offset: u32, bytes: &[u8]) {
        let state = &mut *self.0.borrow_mut();
        let call = state.calls.get_mut(call_of(user));
        let start = offset as usize;
        call.data[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn answer(&self, user: u64, answer: W::Answer) {
        let state = &mut *self.0.borrow_mut();
        let call = state.calls.get_mut(call_of(user));
        if call.abandoned {
            state.calls.remove(call_of(user));
            return;
        }
        call.answer = Some(answer);
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
    }
}

impl<W: Wire> Owner<W> for Calls<W> {
    fn settled(&self) {
        let wakers = std::mem::take(&mut self.0.borrow_mut().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn unanswered(&self, user: u64, _: Exposure) {
        let state = &mut *self.0.borrow_mut();
        if state.calls.get_mut(call_of(user)).abandoned {
            state.calls.remove(call_of(user));
        }
    }

    fn ended(&self, reason: EndReason) {
        let state = &mut *self.0.borrow_mut();
        state.ended = Some(reason);
        let wakers = state
            .calls
            .iter_mut()
            .filter_map(|(_, call)| call.waker.take());
        wakers.chain(state.wakers.drain(..)).for_each(Waker::wake);
    }
}

impl<W: Wire> Calls<W> {
    /// Waits for the end of the connection.
    pub async fn end(&self) -> EndReason {
        self.until(|| None::<EndReason>)
            .await
            .unwrap_or_else(|reason| reason)
    }

    /// Waits until `found` finds something, which is asked whenever something was received.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn until<T>(&self, found: impl Fn() -> Option<T>) -> Result<T, EndReason> {
        poll_fn(|context| {
            if let Some(found) = found() {
                return Poll::Ready(Ok(found));
            }
            let state = &mut *self.0.borrow_mut();
            if let Some(reason) = &state.ended {
                return Poll::Ready(Err(reason.clone()));
            }
            // One that waits for long is asked often, and has one waker here.
            if !state
                .wakers
                .iter()
                .any(|waker| waker.will_wake(context.waker()))
            {
                state.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn ended_already(&self) -> Option<EndReason> {
        self.0.borrow().ended.clone()
    }
}

/// One call in flight. Dropping it leaves the command to the target; its answer is then dropped.
struct InFlight<W: Wire> {
    calls: Rc<Calls<W>>,
    index: Option<Key>,
}

impl<W: Wire> Future for InFlight<W> {
    type Output = Result<(W::Answer, Vec<u8>), EndReason>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index.expect("a finished call is not polled again");
        let calls = Rc::clone(&self.calls);
        let state = &mut *calls.0.borrow_mut();
        let call = state.calls.get_mut(index);
        if let Some(answer) = call.answer.take() {
            let data = std::mem::take(&mut call.data);
            state.calls.remove(index);
            self.index = None;
            return Poll::Ready(Ok((answer, data)));
        }
        if let Some(reason) = state.ended.clone() {
            state.calls.remove(index);
            self.index = None;
            return Poll::Ready(Err(reason));
        }
        call.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<W: Wire> Drop for InFlight<W> {
    fn drop(&mut self) {
        let Some(index) = self.index.take() else {
            return;
        };
        let state = &mut *self.calls.0.borrow_mut();
        let call = state.calls.get_mut(index);
        if call.answer.is_some() || state.ended.is_some() {
            state.calls.remove(index);
        } else {
            call.abandoned = true;
            call.waker = None;
        }
    }
}

/// A connection that is asked one command at a time.
pub struct Caller<W: Wire> {
    /// Its reactor.
    pub reactor: Reactor,
    /// The connection.
    pub connection: Rc<Connection<W>>,
    /// The calls in flight on it.
    pub calls: Rc<Calls<W>>,
}

impl<W: Wire> Clone for Caller<W> {
    fn clone(&self) -> Self {
        Caller {
            reactor: self.reactor.clone(),
            connection: Rc::clone(&self.connection),
            calls: Rc::clone(&self.calls),
        }
    }
}

impl<W: Wire> Caller<W> {
    /// Starts a connection on a stream, for calls alone.
    #[must_use]
    pub fn start(reactor: &Reactor, stream: TcpStream, wire: W) -> Self {
        let calls = Rc::<Calls<W>>::default();
        Caller {
            reactor: reactor.clone(),
            connection: Connection::start(reactor, stream, wire, calls.clone()),
            calls,
        }
    }

    /// Waits for room, submits one command by `submit`, which is given its user word, and waits for its answer, with
    /// `receive` bytes of data.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn ask(
        &self,
        receive: usize,
        submit: impl FnOnce(&mut W, u64),
    ) -> Result<(W::Answer, Vec<u8>), EndReason> {
        // These commands are few; waiting for a free slot may poll.
        while self.connection.room() == 0 {
            if let Some(reason) = self.calls.ended_already() {
                return Err(reason);
            }
            self.reactor.sleep(ROOM_POLL).await;
        }
        let submit = |wire: &mut W, user| {
            submit(wire, user);
            true
        };
        self.ask_at_once(receive, submit).await
    }

    /// Does as [`Caller::ask`], for a command that needs no room; `submit` says whether it was taken.
    ///
    /// # Errors
    /// The connection ended, or does not take the command.
    pub async fn ask_at_once(
        &self,
        receive: usize,
        submit: impl FnOnce(&mut W, u64) -> bool,
    ) -> Result<(W::Answer, Vec<u8>), EndReason> {
        if let Some(reason) = self.calls.ended_already() {
            return Err(reason);
        }
        let call = Call {
            data: vec![0; receive],
            answer: None,
            waker: None,
            abandoned: false,
        };
        let index = self.calls.0.borrow_mut().calls.insert(call);
        let user = CALL | index.to_word();
        if !self.connection.with(|wire| submit(wire, user)) {
            self.calls.0.borrow_mut().calls.remove(index);
            let refused = "too much is under way on the connection";
            return Err(EndReason::Fault(refused.to_owned()));
        }
        let calls = Rc::clone(&self.calls);
        let index = Some(index);
        InFlight { calls, index }.await
    }
}
