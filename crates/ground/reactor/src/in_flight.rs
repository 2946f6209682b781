//! Operations in flight, and whom their outcomes are for.
//!
//! The driver has the one table of them: what it keeps of an operation stands beside the operation's owner, to whom the reactor
//! hands the outcome.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::slots::Slots;
use crate::{OpToken, Outcome, TaskWaker};

/// Takes the outcomes of operations that were submitted with [`crate::Reactor::submit`].
pub trait Handler {
    /// Operation `user` ended. Called between tasks, never from within a submission.
    fn complete(&self, user: u64, outcome: Outcome);
}

/// Whom the outcome of one operation is for. Drivers keep it with the operation, and give it back with the outcome.
#[derive(Default)]
pub struct Owner {
    /// None once it was given up: the outcome is dropped, and with it its buffers and an accepted socket.
    handler: Option<Rc<dyn Handler>>,
    user: u64,
}

impl Owner {
    pub(crate) fn new(handler: Rc<dyn Handler>, user: u64) -> Self {
        Owner {
            handler: Some(handler),
            user,
        }
    }

    /// Hands the outcome over.
    pub(crate) fn end(self, outcome: Outcome) {
        if let Some(handler) = self.handler {
            handler.complete(self.user, outcome);
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Owner({})", self.user)
    }
}

/// The operations that one driver has in flight: the owner of each, and what the driver keeps of it.
pub struct InFlight<T>(Slots<(Owner, T)>);

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        InFlight(Slots::default())
    }
}

impl<T> InFlight<T> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an operation.
    pub fn insert(&mut self, owner: Owner, operation: T) -> OpToken {
        self.0.insert((owner, operation))
    }

    /// An operation; none once it has ended.
    pub fn find(&mut self, token: OpToken) -> Option<&mut T> {
        self.0.find(token).map(|(_, operation)| operation)
    }

    /// Takes an operation that has ended, and its owner.
    ///
    /// # Panics
    /// When it ended before.
    pub fn remove(&mut self, token: OpToken) -> (Owner, T) {
        self.0.remove(token)
    }

    /// All of them, in the order of their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpToken, &mut T)> {
        let all = self.0.iter_mut();
        all.map(|(token, (_, operation))| (token, operation))
    }

    /// Gives every outcome to come to nobody. The owners are for the caller to drop where it has borrowed nothing that they may use.
    pub fn disown(&mut self) -> Vec<Owner> {
        let owners = self.0.iter_mut().map(|(_, (owner, _))| owner);
        owners.map(std::mem::take).collect()
    }
}

/// The owner of an operation that a future waits for.
#[derive(Default)]
pub(crate) struct Awaited {
    outcome: RefCell<Option<Outcome>>,
    waker: TaskWaker,
}

impl Awaited {
    /// Nobody waits any more. Whether the operation is still in flight, so that it should be cancelled.
    pub(crate) fn give_up(&self) -> bool {
        self.waker.forget();
        self.outcome.borrow().is_none()
    }

    /// Takes the outcome. Until it is there, the task is woken when it comes.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = self.outcome.take();
        if outcome.is_none() {
            self.waker.register(context);
        }
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Handler for Awaited {
    fn complete(&self, _: u64, outcome: Outcome) {
        self.outcome.replace(Some(outcome));
        self.waker.take_and_wake();
    }
}

#[cfg(test)]
impl Owner {
    /// Nobody, of this number.
    pub(crate) fn nobody(user: u64) -> Self {
        Owner {
            handler: None,
            user,
        }
    }

    /// The number under which its handler knows the operation.
    pub(crate) fn user(&self) -> u64 {
        self.user
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::sim::{Config, Simulation};
    use crate::{Op, Output, Socket, SocketOptions};

    /// Counts how often a task was woken.
    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Task {
        fn woken(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// An outcome that holds `socket` open.
    fn outcome(socket: &Rc<Socket>) -> Outcome {
        Outcome {
            result: Ok(Output::Done),
            op: Op::Connect {
                socket: Rc::clone(socket),
                address: ([10, 0, 0, 1], 1).into(),
            },
        }
    }

    fn socket(simulation: &Simulation) -> Rc<Socket> {
        let address = ([10, 0, 0, 1], 1).into();
        let socket = simulation
            .host("host")
            .socket(address, &SocketOptions::default());
        Rc::new(socket.expect("there is room"))
    }

    #[test]
    fn an_awaited_outcome_wakes_its_task_unless_nobody_waits_any_more() {
        let simulation = Simulation::new(Config::default());
        let (socket, task) = (socket(&simulation), Arc::<Task>::default());
        let waker = Waker::from(Arc::clone(&task));
        let context = &mut Context::from_waker(&waker);

        let awaited = Rc::<Awaited>::default();
        assert!(awaited.poll(context).is_pending());
        Owner::new(awaited.clone(), 0).end(outcome(&socket));
        assert_eq!(task.woken(), 1);
        assert!(awaited.poll(context).is_ready());
        assert!(awaited.poll(context).is_pending());

        assert!(awaited.give_up(), "it is in flight");
        let owner = Owner::new(awaited, 0);
        owner.end(outcome(&socket));
        assert_eq!((task.woken(), Rc::strong_count(&socket)), (1, 1));
    }

    #[test]
    fn the_outcome_of_a_disowned_operation_is_dropped() {
        let simulation = Simulation::new(Config::default());
        let socket = socket(&simulation);
        let awaited = Rc::<Awaited>::default();
        let mut in_flight = InFlight::default();
        let token = in_flight.insert(Owner::new(awaited.clone(), 0), ());
        assert_eq!(in_flight.disown().len(), 1);
        assert_eq!((in_flight.len(), Rc::strong_count(&awaited)), (1, 1));
        let (owner, ()) = in_flight.remove(token);
        owner.end(outcome(&socket));
        assert_eq!(Rc::strong_count(&socket), 1);
        assert!(in_flight.is_empty() && in_flight.find(token).is_none());
    }
}
