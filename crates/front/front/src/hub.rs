//! What one reactor has for all that is served there: the queues of the volumes, the memory budget, and whose turn it is.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use weir_block::{Router, Volume};
use weir_reactor::{Instant, Reactor, Remote};
use weir_reservation::StoredTable;

use crate::account::{Account, Turns};
use crate::changes::{AllChanges, ChangeCount, Changes};
use crate::counters::Counter;
use crate::parts::{Inbox, Parts};
use crate::reservations::{Keeper, News, Reservations};
use crate::volumes::VolumeQueue;

/// How often it is told at most that commands wait for buffers.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Identity of a volume while somebody holds it.
pub(crate) type VolumeKey = usize;

pub(crate) fn key_of(volume: &Arc<dyn Volume>) -> VolumeKey {
    Arc::as_ptr(volume).cast::<()>() as usize
}

/// A front end's part on a reactor, as all front ends know it.
pub(crate) trait Told {
    /// Reservations changed: every connection is to hear of it.
    fn rights_changed(&self, news: &Arc<News>);
}

/// One reactor's volume queues and memory. All front ends there have the same.
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
    /// Bytes of the account, for other threads to read.
    in_flight: Arc<InFlight>,
    /// Bytes of input that connections keep outside of all pools.
    pub(crate) kept: Rc<Cell<usize>>,
    /// Queues of volumes, in the order in which they were first served, so that no reactor depends on memory addresses. A queue lives
    /// as long as an export or a command uses it. A volume that is served again before its last command has ended keeps its queue.
    queues: RefCell<Vec<(VolumeKey, Weak<VolumeQueue>)>>,
    /// Parts that all reactors have together.
    common: Arc<Common>,
    /// The reactor's number, and how many there are.
    place: (usize, usize),
    /// The front ends' parts here.
    fronts: RefCell<Vec<Weak<dyn Told>>>,
    /// Requests in flight at most on each of them.
    depth: u32,
    /// How often commands waited for memory.
    waits: Cell<u64>,
    /// When it was last told that commands wait for buffers, and how often they had by then.
    told_of_waits: Cell<Option<(Instant, u64)>>,
    /// Nobody has a handle any more.
    is_left: Cell<bool>,
}

impl Hub {
    fn new(
        reactor: &Reactor,
        limits: &HubLimits,
        in_flight: Arc<InFlight>,
        common: Arc<Common>,
        place: (usize, usize),
    ) -> Rc<Self> {
        Rc::new(Hub {
            reactor: reactor.clone(),
            router: Router::new(),
            account: Account::new(limits.bytes_in_flight),
            turns: Turns::default(),
            account_turns: Turns::default(),
            in_flight,
            kept: Rc::default(),
            queues: RefCell::default(),
            common,
            place,
            fronts: RefCell::default(),
            depth: limits.volume_queue_depth,
            waits: Cell::new(0),
            told_of_waits: Cell::new(None),
            is_left: Cell::new(false),
        })
    }

    /// Does what is sent to it, until nobody has a handle any more, or the reactor stops.
    async fn run(self: Rc<Self>, inbox: Inbox<Self>) {
        while !self.is_left.get() {
            let work = inbox.next().await;
            work(&self);
        }
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

    /// Counts the changes of a volume on this reactor.
    pub(crate) fn count_changes(&self, volume: &Arc<dyn Volume>) -> ChangeCount {
        let (index, reactors) = self.place;
        let now = self.reactor.system().wall_clock();
        ChangeCount::new(self.common.changes.of(volume, reactors, now), index)
    }

    /// A front end's part is there, and hears of what concerns all.
    pub(crate) fn enter(&self, front: Weak<dyn Told>) {
        let mut fronts = self.fronts.borrow_mut();
        fronts.retain(|other| other.strong_count() > 0);
        fronts.push(front);
    }

    /// Tells every connection of every front end here of a change of reservations.
    pub(crate) fn tell_fronts(&self, news: &Arc<News>) {
        for front in &*self.fronts.borrow() {
            if let Some(front) = front.upgrade() {
                front.rights_changed(news);
            }
        }
    }

    /// Submits what waits in any volume's queue.
    pub(crate) fn pump_all(&self) {
        for (_, queue) in &*self.queues.borrow() {
            if let Some(queue) = queue.upgrade() {
                queue.pump(self.reactor.now());
            }
        }
    }

    /// A connection, which has this number among the users of the volume queues, waits for nothing any more.
    pub(crate) fn leave_turns(&self, owner: u32) {
        self.turns.leave(owner);
        self.account_turns.leave(owner);
    }

    /// Publishes how much data is in flight.
    pub(crate) fn count_in_flight(&self) {
        self.in_flight.0.set(self.account.used());
    }

    /// Counts that a connection's commands wait for memory, and tells of it: the first time, and then now and then.
    pub(crate) fn count_wait(&self, index: usize) {
        let waits = self.waits.get() + 1;
        self.waits.set(waits);
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

/// Data in flight on one reactor, in bytes; on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct InFlight(Counter);

/// What each hub may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubLimits {
    /// Data in flight of all connections of one reactor, in bytes.
    pub bytes_in_flight: u64,
    /// Requests in flight at most on one reactor's queue of one volume.
    pub volume_queue_depth: u32,
}

impl Default for HubLimits {
    fn default() -> Self {
        HubLimits {
            bytes_in_flight: 1 << 30,
            volume_queue_depth: 512,
        }
    }
}

/// The hubs of a number of reactors, which all front ends there share. Clones are handles of the same ones.
#[derive(Clone)]
pub struct Hubs(Arc<Handles>);

struct Handles {
    parts: Arc<Parts<Hub>>,
    /// By reactor.
    in_flight: Vec<Arc<InFlight>>,
    common: Arc<Common>,
}

/// Counts that all front ends on the hubs have together.
pub(crate) struct Common {
    /// Number of the next connection or listener.
    pub(crate) next_id: AtomicU64,
    /// Connections now.
    pub(crate) connections: AtomicU32,
    /// Changes of volumes.
    changes: AllChanges,
}

impl std::fmt::Debug for Common {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Common")
            .field("next_id", &self.next_id)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl Default for Common {
    fn default() -> Self {
        Common {
            next_id: AtomicU64::new(1),
            connections: AtomicU32::new(0),
            changes: AllChanges::default(),
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.parts.tell_every(|hub| hub.is_left.set(true));
    }
}

impl Hubs {
    /// A hub on each of these reactors.
    ///
    /// # Errors
    /// The index of a reactor that has stopped.
    pub fn new(reactors: &[Remote], limits: &HubLimits) -> Result<Self, usize> {
        let parts = Parts::new(reactors.len());
        let (mut in_flight, common) = (Vec::new(), Arc::<Common>::default());
        for (index, remote) in reactors.iter().enumerate() {
            let (inbox, limits) = (parts.inbox(index), limits.clone());
            let (common, place) = (Arc::clone(&common), (index, reactors.len()));
            let counted = Arc::<InFlight>::default();
            in_flight.push(Arc::clone(&counted));
            let started = remote.run(move |reactor| {
                let hub = Hub::new(reactor, &limits, counted, common, place);
                reactor.spawn(hub.run(inbox)).detach();
            });
            started.map_err(|_| index)?;
        }
        Ok(Hubs(Arc::new(Handles {
            parts,
            in_flight,
            common,
        })))
    }

    /// Number of reactors.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.parts().count()
    }

    /// Data in flight now on each reactor, of all front ends, in bytes: asked for and not received, or sent and not taken.
    #[must_use]
    pub fn bytes_in_flight(&self) -> Vec<u64> {
        let used = |of: &Arc<InFlight>| of.0.get();
        self.0.in_flight.iter().map(used).collect()
    }

    /// Asks the first reactor. None when that has stopped.
    pub async fn of_first<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Reactor) -> T + Send + 'static,
    ) -> Option<T> {
        self.parts().ask(0, |hub| ask(&hub.reactor)).await
    }

    pub(crate) fn parts(&self) -> &Parts<Hub> {
        &self.0.parts
    }

    /// The reservations of a volume, beginning with what was stored of them, for all front ends here.
    #[must_use]
    pub fn reservations(
        &self,
        stored: Option<StoredTable>,
        keeper: impl Keeper,
    ) -> Arc<Reservations> {
        let parts = Arc::clone(&self.0.parts);
        let tell = move |news| parts.tell_every(move |hub| hub.tell_fronts(&news));
        Reservations::new(Box::new(tell), stored, keeper)
    }

    /// The count of the changes of a volume by all front ends here, which begins `now`, since the beginning of 1970, where there is
    /// none.
    #[must_use]
    pub fn changes(&self, volume: &Arc<dyn Volume>, now: Duration) -> Arc<Changes> {
        self.0.common.changes.of(volume, self.reactors(), now)
    }

    pub(crate) fn common(&self) -> Arc<Common> {
        Arc::clone(&self.0.common)
    }
}
