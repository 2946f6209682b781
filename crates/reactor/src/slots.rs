//! Who is told when an operation is done.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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

struct Slot {
    generation: u32,
    owner: Option<Owner>,
}

/// The operations in flight on one reactor.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, owner: Owner) -> OpToken {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                owner: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.owner.is_none(), "a free slot has no owner");
        slot.owner = Some(owner);
        OpToken {
            slot: index,
            generation: slot.generation,
        }
    }

    fn get(&mut self, token: OpToken) -> &mut Owner {
        let slot = &mut self.slots[token.slot as usize];
        assert_eq!(
            slot.generation, token.generation,
            "an operation's token was used after its end"
        );
        slot.owner
            .as_mut()
            .expect("an operation in flight has an owner")
    }

    fn remove(&mut self, token: OpToken) -> Owner {
        let slot = &mut self.slots[token.slot as usize];
        assert_eq!(
            slot.generation, token.generation,
            "an operation ended twice"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.slot);
        slot.owner.take().expect("an operation ended twice")
    }

    /// Takes an outcome. What must be called afterwards, outside any borrow, is returned.
    pub(crate) fn complete(&mut self, token: OpToken, outcome: Outcome) -> Completed {
        if let owner @ Owner::Future(_) = self.get(token) {
            let Owner::Future(waker) = std::mem::replace(owner, Owner::Done(outcome)) else {
                unreachable!("matched above")
            };
            return waker.map_or(Completed::Nothing, Completed::Wake);
        }
        match self.remove(token) {
            Owner::Handler(handler, user) => Completed::Handle(handler, user, outcome),
            Owner::Abandoned => Completed::Discard(outcome),
            Owner::Future(_) | Owner::Done(_) => unreachable!("an operation ended twice"),
        }
    }

    pub(crate) fn poll(&mut self, token: OpToken, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Owner::Future(waker) = self.get(token) {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match self.remove(token) {
            Owner::Done(outcome) => Poll::Ready(outcome),
            _ => unreachable!("only a future's operation is polled"),
        }
    }

    /// Gives up on an operation. Whether it is still in flight, so that it should be cancelled; and what is to be dropped.
    pub(crate) fn abandon(&mut self, token: OpToken) -> (bool, Option<Owner>) {
        match self.get(token) {
            Owner::Done(_) => (false, Some(self.remove(token))),
            owner => (true, Some(std::mem::replace(owner, Owner::Abandoned))),
        }
    }

    /// Gives up on every operation; the tokens of those in flight.
    pub(crate) fn abandon_all(&mut self) -> (Vec<OpToken>, Vec<Owner>) {
        let live = |(index, slot): (usize, &Slot)| {
            let token = OpToken {
                slot: index as u32,
                generation: slot.generation,
            };
            slot.owner.is_some().then_some(token)
        };
        let tokens: Vec<_> = self.slots.iter().enumerate().filter_map(live).collect();
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
