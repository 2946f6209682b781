//! What one reactor has for all that is served there: the queues of the volumes, the memory budget, and whose turn it is.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Router, Volume};
use weir_reactor::{Instant, Reactor};

use crate::account::{Account, Turns};
use crate::volumes::VolumeQueue;

/// How often it is told at most that commands wait for buffers.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Identity of a volume while somebody holds it.
pub(crate) type VolumeKey = usize;

pub(crate) fn key_of(volume: &Arc<dyn Volume>) -> VolumeKey {
    Arc::as_ptr(volume).cast::<()>() as usize
}

/// One reactor's volume queues and memory.
pub struct Hub {
    /// The reactor.
    pub reactor: Reactor,
    /// Its connections, as users of the volume queues.
    pub router: Rc<Router>,
    /// Data in flight of all connections here.
    pub account: Rc<Account>,
    /// Whose turn it is to take buffers.
    pub(crate) turns: Turns,
    /// Whose turn it is to take room in the account.
    pub(crate) account_turns: Turns,
    /// Bytes of input that connections keep outside of all pools.
    pub(crate) kept: Rc<Cell<usize>>,
    /// In the order in which they were first served: what a reactor does follows from what it was told, and not from where memory
    /// lies. They live as long as an export or a command uses them.
    queues: RefCell<Vec<(VolumeKey, Weak<VolumeQueue>)>>,
    /// Requests in flight at most on each of them.
    depth: u32,
    /// When it was last told that commands wait for buffers, and how often they had by then.
    told_of_waits: Cell<Option<(Instant, u64)>>,
}

impl Hub {
    /// A hub without volumes, for `bytes_in_flight` of data and queues of volumes that are `depth` deep.
    pub(crate) fn new(reactor: &Reactor, bytes_in_flight: u64, depth: u32) -> Rc<Self> {
        Rc::new(Hub {
            reactor: reactor.clone(),
            router: Router::new(),
            account: Account::new(bytes_in_flight),
            turns: Turns::default(),
            account_turns: Turns::default(),
            kept: Rc::default(),
            queues: RefCell::default(),
            depth,
            told_of_waits: Cell::new(None),
        })
    }

    /// The reactor's queue of a volume.
    pub(crate) fn queue_of(&self, volume: &Arc<dyn Volume>) -> Rc<VolumeQueue> {
        let key = key_of(volume);
        let mut queues = self.queues.borrow_mut();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        let found = queues.iter().find(|(other, _)| *other == key);
        if let Some(queue) = found.and_then(|(_, queue)| queue.upgrade()) {
            return queue;
        }
        let volume = Arc::clone(volume);
        let queue = VolumeQueue::of_volume(volume, &self.reactor, self.depth, &self.router);
        queues.push((key, Rc::downgrade(&queue)));
        queue
    }

    /// Submits what waits in any volume's queue.
    pub(crate) fn pump_all(&self) {
        for (_, queue) in &*self.queues.borrow() {
            if let Some(queue) = queue.upgrade() {
                queue.pump(self.reactor.now());
            }
        }
    }

    /// Connection `id` waits for nothing any more.
    pub(crate) fn leave_turns(&self, id: u64) {
        self.turns.leave(id);
        self.account_turns.leave(id);
    }

    /// Tells that commands wait for buffers, as they did `waits` times: the first time, and then now and then.
    pub(crate) fn tell_of_waits(&self, index: usize, waits: u64) {
        let now = self.reactor.now();
        let told = self.told_of_waits.get();
        if told.is_some_and(|(at, _)| now < at + TELL_AGAIN) {
            return;
        }
        self.told_of_waits.set(Some((now, waits)));
        let usage = self.reactor.pool().usage();
        tracing::warn!(
            reactor = index,
            times = waits - told.map_or(0, |(_, before)| before),
            used = usage.used_bytes,
            limit = usage.limit_bytes,
            in_flight = self.account.used(),
            "commands wait for memory: as much data is in flight on the reactor as may be, or all its buffers are in use (limits.memory)"
        );
    }
}
