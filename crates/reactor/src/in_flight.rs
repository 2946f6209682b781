//! Who is told when an operation is done.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::slots::Slots;
use crate::{OpToken, Outcome};

/// Takes the outcomes of operations that were submitted with [`crate::Reactor::submit`].
pub trait Handler {
    /// Operation `user` ended. Called between tasks, never from within a submission.
    fn complete(&self, user: u64, outcome: Outcome);
}

pub(crate) enum Owner {
    Handler(Rc<dyn Handler>, u64),
    Future(Option<Waker>),
    Done(Outcome),
    /// Nobody waits any more; the outcome is dropped, and with it its buffers and an accepted socket.
    Abandoned,
}

/// The operations in flight on one reactor.
#[derive(Default)]
pub(crate) struct InFlight(Slots<Owner>);

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn insert(&mut self, owner: Owner) -> OpToken {
        self.0.insert(owner)
    }

    /// Takes an outcome. What must be called afterwards, outside any borrow, is returned.
    pub(crate) fn complete(&mut self, token: OpToken, outcome: Outcome) -> Completed {
        if let owner @ Owner::Future(_) = self.0.get_mut(token) {
            let Owner::Future(waker) = std::mem::replace(owner, Owner::Done(outcome)) else {
                unreachable!("matched above")
            };
            return waker.map_or(Completed::Nothing, Completed::Wake);
        }
        match self.0.remove(token) {
            Owner::Handler(handler, user) => Completed::Handle(handler, user, outcome),
            Owner::Abandoned => Completed::Discard(outcome),
            Owner::Future(_) | Owner::Done(_) => unreachable!("an operation ended twice"),
        }
    }

    pub(crate) fn poll(&mut self, token: OpToken, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Owner::Future(waker) = self.0.get_mut(token) {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match self.0.remove(token) {
            Owner::Done(outcome) => Poll::Ready(outcome),
            _ => unreachable!("only a future's operation is polled"),
        }
    }

    /// Gives up on an operation. Whether it is still in flight, so that it should be cancelled; and what is to be dropped.
    pub(crate) fn abandon(&mut self, token: OpToken) -> (bool, Option<Owner>) {
        match self.0.get_mut(token) {
            Owner::Done(_) => (false, Some(self.0.remove(token))),
            owner => (true, Some(std::mem::replace(owner, Owner::Abandoned))),
        }
    }

    /// Gives up on every operation; the tokens of those in flight.
    pub(crate) fn abandon_all(&mut self) -> (Vec<OpToken>, Vec<Owner>) {
        let tokens: Vec<_> = self.0.iter().map(|(token, _)| token).collect();
        let (mut in_flight, mut dropped) = (Vec::new(), Vec::new());
        for token in tokens {
            let (pending, owner) = self.abandon(token);
            in_flight.extend(pending.then_some(token));
            dropped.extend(owner);
        }
        (in_flight, dropped)
    }
}

pub(crate) enum Completed {
    Nothing,
    Wake(Waker),
    Handle(Rc<dyn Handler>, u64, Outcome),
    Discard(#[expect(dead_code, reason = "dropped by the caller, outside the borrow")] Outcome),
}
