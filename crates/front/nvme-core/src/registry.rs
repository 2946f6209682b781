//! The controllers of a target and their queues, over all reactors. For the control path: it locks.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_block::HostNumber;
use weir_front::Handle;
use weir_nvme::command::{ConnectData, ConnectParameter};
use weir_nvme::feature::HostIdentifier;
use weir_nvme::{HostId, Nqn, Status};
use weir_reactor::SharedSection;
use weir_reservation::Registrant;

use crate::commands::{ConnectIdentity, ConnectRefusal, ControllerKind, ErrorLog, SlotIndex};
use crate::config::CoreConfig;
use crate::snapshot::{ControllerModel, Subsystem};

/// Identifiers of discovery controllers.
const DISCOVERY_IDS: std::ops::RangeInclusive<u16> = 1..=0xffef;

/// A host: name and identifier.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Its name.
    pub nqn: Nqn,
    /// Its identifier.
    pub id: HostId,
}

impl Host {
    /// Returns the number by which volumes tell it from others. Were two hosts to have the same, one would wait for what the other's
    /// lost connections have left, and nothing else.
    pub fn number(&self) -> HostNumber {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        HostNumber(hasher.finish())
    }
}

/// What connections tell one another.
pub enum Message {
    /// A Connect that waited may go on.
    Retry,
    /// The controller's I/O queues have ended.
    QueuesEnded,
    /// The controller of this I/O queue ends.
    ControllerEnds,
    /// Abort a command of this I/O queue.
    Abort {
        /// The command.
        cid: u16,
        /// The Abort's slot at the admin queue.
        slot: SlotIndex,
        /// The admin queue, which is told.
        admin: Handle<Message>,
    },
    /// Reservations have changed, or stay as they are, because of a command of this queue.
    Reserved {
        /// The command.
        slot: SlotIndex,
        /// What it is answered.
        status: Status,
    },
    /// An Abort that this admin queue asked for has its answer.
    AbortEnded {
        /// The Abort.
        slot: SlotIndex,
        /// Whether the command was aborted.
        aborted: bool,
    },
}

/// What all reactors know of a controller.
pub struct Shared {
    /// Its identifier.
    pub id: u16,
    /// Its kind.
    pub kind: ControllerKind,
    /// Its subsystem.
    pub subsystem_nqn: Nqn,
    /// Its host.
    pub host: Host,
    /// Who the host is to reservations.
    pub registrant: Registrant,
    /// The address that its admin queue reached.
    pub local_address: SocketAddr,
    /// The reactor of its admin queue.
    pub reactor: usize,
    admin: Handle<Message>,
    /// A command came since the keep-alive timer last looked. A reactor that finds it set does not write it.
    traffic: AtomicBool,
    /// The host understands Command Retry Delay.
    retry_delay: AtomicBool,
    /// Commands of it that failed.
    pub errors: Mutex<ErrorLog>,
}

impl Shared {
    /// A command of the controller arrived.
    pub fn heard(&self) {
        if !self.traffic.load(Ordering::Relaxed) {
            self.traffic.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a command arrived since the last call.
    pub fn take_traffic(&self) -> bool {
        self.traffic.swap(false, Ordering::Relaxed)
    }

    /// Tells whether its host understands Command Retry Delay.
    pub fn retry_delay(&self) -> bool {
        self.retry_delay.load(Ordering::Relaxed)
    }

    /// Notes whether its host understands Command Retry Delay.
    pub fn set_retry_delay(&self, on: bool) {
        self.retry_delay.store(on, Ordering::Relaxed);
    }
}

struct Queue {
    connection: Handle<Message>,
    reactor: usize,
    ending: bool,
}

struct Controller {
    shared: Arc<Shared>,
    accepts_queues: bool,
    granted: u16,
    queues: BTreeMap<u16, Queue>,
    /// Queues that end or are lost, and of which requests may be under way.
    draining: u16,
    /// The admin queue is gone; the entry goes with the last I/O queue.
    ended: bool,
    /// The admin queue waits to be told that the I/O queues have ended.
    tell_ended: bool,
}

impl Controller {
    fn is(&self, shared: &Shared) -> bool {
        std::ptr::eq(&*self.shared, shared)
    }

    /// Returns whether this is a controller of `host`'s and of that subsystem.
    fn is_of(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        self.shared.subsystem_nqn == *subsystem && self.shared.host.nqn == *host
    }
}

type Key = (Nqn, u16);

/// An I/O queue that is lost. Dropped when every queue of every volume knows what it may have left under way there: then the same
/// host may have its next one.
pub struct LostQueue {
    registry: Weak<Registry>,
    shared: Arc<Shared>,
    qid: u16,
}

impl LostQueue {
    /// Queue `qid` is lost from now on.
    pub fn new(registry: &Arc<Registry>, shared: &Arc<Shared>, qid: u16) -> Self {
        registry.queue_ends(shared, qid);
        LostQueue {
            registry: Arc::downgrade(registry),
            shared: Arc::clone(shared),
            qid,
        }
    }
}

impl Drop for LostQueue {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.queue_known(&self.shared, self.qid);
        }
    }
}

#[derive(Default)]
struct State {
    controllers: BTreeMap<Key, Controller>,
    /// Controllers that are gone but for requests that volumes have not ended: their identifiers are free.
    draining: Vec<Controller>,
    /// Next identifier to try, by subsystem: those of the recent past are not used again soon.
    next_id: HashMap<Nqn, u16>,
    /// I/O queues on each reactor.
    load: Vec<u32>,
    /// Queues of a host that are ending: not every reactor knows what they may have left under way on volumes.
    ending: HashMap<Host, u32>,
    /// Connections whose Connect waits until that is known of queues, or until their requests have ended.
    waiting: Vec<Handle<Message>>,
}

/// What is to be done with the Connect of an I/O queue.
pub enum QueueGrant {
    /// The queue belongs on this reactor.
    Granted {
        /// Its controller.
        controller: Arc<Shared>,
        /// The reactor.
        reactor: usize,
    },
    /// Queues of the host are ending: [`Message::Retry`] comes when it is to be tried again.
    Wait,
}

/// All controllers.
pub struct Registry {
    state: Mutex<State>,
}

/// What is known of all controllers, which a panic must not leave half changed to the other connections.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    _shared: SharedSection,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Registry {
    /// No controllers, of a target on so many reactors.
    pub fn new(reactors: usize) -> Self {
        let state = State {
            load: vec![0; reactors],
            ..State::default()
        };
        Registry {
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            _shared: SharedSection::enter(),
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Makes a controller for an admin queue.
    pub fn create(
        &self,
        identity: &ConnectIdentity,
        subsystem: Option<&Subsystem>,
        local_address: SocketAddr,
        reactor: usize,
        admin: Handle<Message>,
        config: &CoreConfig,
    ) -> Result<Arc<Shared>, ConnectRefusal> {
        let host = Host {
            nqn: identity.host_nqn.clone(),
            id: identity.host_id,
        };
        let mut state = self.lock();
        let controllers = state.controllers.len() + state.draining.len();
        if controllers >= config.controllers_max as usize {
            return Err(ConnectRefusal::status(
                Status::CONNECT_CONTROLLER_BUSY,
                "there are as many controllers as there may be",
            ));
        }
        let all = state.controllers.values().chain(&state.draining);
        let of_host = all.filter(|one| one.is_of(&identity.subsystem_nqn, &host.nqn));
        if of_host.count() >= usize::from(config.controllers_per_host_max) {
            return Err(ConnectRefusal::status(
                Status::CONNECT_CONTROLLER_BUSY,
                "the host has as many controllers as it may have",
            ));
        }
        let id = state.choose_id(identity, subsystem)?;
        let shared = Arc::new(Shared {
            id,
            kind: subsystem.map_or(ControllerKind::Discovery, |_| ControllerKind::Io),
            subsystem_nqn: identity.subsystem_nqn.clone(),
            registrant: Registrant::Host(HostIdentifier::Extended(host.id)),
            host,
            local_address,
            reactor,
            admin,
            traffic: AtomicBool::new(true),
            retry_delay: AtomicBool::new(false),
            errors: Mutex::default(),
        });
        let controller = Controller {
            shared: Arc::clone(&shared),
            accepts_queues: false,
            granted: config.io_queues_max,
            queues: BTreeMap::new(),
            draining: 0,
            ended: false,
            tell_ended: false,
        };
        state
            .controllers
            .insert((identity.subsystem_nqn.clone(), id), controller);
        Ok(shared)
    }

    /// Adds an I/O queue to a controller and chooses its reactor: that with the fewest of the controller's queues, and then the
    /// fewest of all.
    pub fn add_queue(
        &self,
        identity: &ConnectIdentity,
        qid: u16,
        local_address: SocketAddr,
        connection: &Handle<Message>,
    ) -> Result<QueueGrant, ConnectRefusal> {
        let mut state = self.lock();
        let state = &mut *state;
        let key = (identity.subsystem_nqn.clone(), identity.controller_id);
        let no_controller = || {
            ConnectRefusal::parameter(
                ConnectParameter::CONTROLLER_ID,
                "there is no such controller",
            )
        };
        let controller = state
            .controllers
            .get_mut(&key)
            .filter(|controller| !controller.ended)
            .ok_or_else(no_controller)?;
        check_queue(controller, identity, qid, local_address)?;
        let closing = match controller.queues.get(&qid) {
            Some(queue) if !queue.ending => {
                return Err(ConnectRefusal::status(
                    Status::INVALID_QUEUE_IDENTIFIER.with_do_not_retry(),
                    "the queue identifier is in use",
                ));
            }
            Some(_) => true,
            None => false,
        };
        // One that is lost again and again does not leave more behind than it may have.
        let leaves_too_much = controller.draining >= controller.granted;
        if closing || leaves_too_much || state.ending.contains_key(&controller.shared.host) {
            state.waiting.push(connection.clone());
            return Ok(QueueGrant::Wait);
        }
        let mut own = vec![0_u32; state.load.len()];
        for queue in controller.queues.values() {
            own[queue.reactor] += 1;
        }
        let reactor = (0..state.load.len())
            .min_by_key(|&reactor| (own[reactor], state.load[reactor]))
            .expect("a target has a reactor");
        state.load[reactor] += 1;
        controller.queues.insert(
            qid,
            Queue {
                connection: connection.clone(),
                reactor,
                ending: false,
            },
        );
        Ok(QueueGrant::Granted {
            controller: Arc::clone(&controller.shared),
            reactor,
        })
    }

    /// An admin queue tells what it allows.
    pub fn set_state(&self, shared: &Shared, accepts_queues: bool, granted: u16) {
        let mut state = self.lock();
        if let Some(controller) = state.controllers.get_mut(&key_of(shared)) {
            controller.accepts_queues = accepts_queues;
            controller.granted = granted;
        }
    }

    /// I/O queues that a controller has.
    pub fn io_queues(&self, shared: &Shared) -> u16 {
        let state = self.lock();
        let controller = state.controllers.get(&key_of(shared));
        controller.map_or(0, |controller| controller.queues.len() as u16)
    }

    /// The connection of one of a controller's I/O queues.
    pub fn queue(&self, shared: &Shared, qid: u16) -> Option<Handle<Message>> {
        let state = self.lock();
        let queue = state.controllers.get(&key_of(shared))?.queues.get(&qid)?;
        Some(queue.connection.clone())
    }

    /// Ends a controller's I/O queues; its admin queue is told when they have: [`Message::QueuesEnded`].
    pub fn end_queues(&self, shared: &Shared) {
        let mut state = self.lock();
        let Some(controller) = state.controllers.get_mut(&key_of(shared)) else {
            return;
        };
        controller.accepts_queues = false;
        controller.tell_ended = true;
        state.end_queues_of(&key_of(shared));
        state.settle(&key_of(shared));
    }

    /// A controller ends with its admin queue.
    pub fn end_controller(&self, shared: &Shared) {
        let mut state = self.lock();
        let key = key_of(shared);
        if let Some(controller) = state.controllers.get_mut(&key) {
            controller.ended = true;
            state.end_queues_of(&key);
            state.settle(&key);
        }
    }

    /// An I/O queue begins to end: what it wrote may take effect until [`Registry::queue_ended`].
    fn queue_ends(&self, shared: &Shared, qid: u16) {
        let mut state = self.lock();
        let state = &mut *state;
        let controller = state.controllers.get_mut(&key_of(shared));
        let controller = controller.expect("a controller has its queues");
        end_queue(controller, qid, &mut state.ending);
    }

    /// Every reactor keeps what an I/O queue that ends may have left under way apart from what its host does next.
    fn queue_known(&self, shared: &Shared, qid: u16) {
        let mut state = self.lock();
        let key = key_of(shared);
        let controller = state.controllers.get_mut(&key);
        let controller = controller.expect("a controller has its queues");
        let queue = controller.queues.remove(&qid).expect("it was ending");
        state.load[queue.reactor] -= 1;
        let left = state.ending.get_mut(&shared.host).expect("it was ending");
        *left -= 1;
        if *left == 0 {
            state.ending.remove(&shared.host);
        }
        state.settle(&key);
        drop(state);
        self.retry_waiting();
    }

    /// No request of an I/O queue that ended is under way any more.
    pub fn queue_ended(&self, shared: &Shared) {
        let mut state = self.lock();
        let key = key_of(shared);
        if let Some(at) = state.draining.iter().position(|one| one.is(shared)) {
            state.draining[at].draining -= 1;
            if state.draining[at].draining == 0 {
                state.draining.swap_remove(at);
            }
        } else {
            let controller = state.controllers.get_mut(&key);
            controller.expect("a controller has its queues").draining -= 1;
            state.settle(&key);
        }
        drop(state);
        self.retry_waiting();
    }

    /// Has every Connect that waits tried again.
    pub fn retry_waiting(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for waiting in waiting {
            let _ = waiting.tell(Message::Retry);
        }
    }

    /// A connection waits no longer.
    pub fn forget_waiting(&self, connection: u64) {
        self.lock()
            .waiting
            .retain(|waiting| waiting.id != connection);
    }

    /// The controllers of a subsystem that a host has, by its identifier.
    pub fn controllers_of(&self, subsystem: &Nqn, host: &HostId) -> Vec<u16> {
        let state = self.lock();
        let is_its = |controller: &&Controller| {
            let shared = &controller.shared;
            !controller.ended && shared.subsystem_nqn == *subsystem && shared.host.id == *host
        };
        let its = state.controllers.values().filter(is_its);
        its.map(|controller| controller.shared.id).collect()
    }

    /// Every controller, with how many I/O queues it has.
    pub fn controllers(&self) -> Vec<(Arc<Shared>, Vec<u16>)> {
        let state = self.lock();
        let of = |controller: &Controller| {
            let queues = controller.queues.keys().copied().collect();
            (Arc::clone(&controller.shared), queues)
        };
        state
            .controllers
            .values()
            .filter(|controller| !controller.ended)
            .map(of)
            .collect()
    }
}

fn key_of(shared: &Shared) -> Key {
    (shared.subsystem_nqn.clone(), shared.id)
}

/// Checks that the controller may have this queue. The host identifier of its Connect may be another one: other targets go by the
/// NQN and the controller identifier, and hosts rely on that. The controller keeps its admin queue's.
fn check_queue(
    controller: &Controller,
    identity: &ConnectIdentity,
    qid: u16,
    local_address: SocketAddr,
) -> Result<(), ConnectRefusal> {
    let shared = &controller.shared;
    let refuse = |parameter, reason| Err(ConnectRefusal::parameter(parameter, reason));
    if shared.host.nqn != identity.host_nqn {
        return refuse(
            ConnectParameter::HOST_NQN,
            "the host NQN is not that of the admin queue",
        );
    }
    if canonical(shared.local_address) != canonical(local_address) {
        return refuse(
            ConnectParameter::CONTROLLER_ID,
            "the admin queue is on another port",
        );
    }
    if !controller.accepts_queues {
        return Err(ConnectRefusal::status(
            Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry(),
            "the controller is not enabled",
        ));
    }
    if qid > controller.granted {
        return refuse(
            ConnectParameter::QUEUE_ID,
            "the queue identifier is above the number of queues granted",
        );
    }
    Ok(())
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

impl State {
    fn choose_id(
        &mut self,
        identity: &ConnectIdentity,
        subsystem: Option<&Subsystem>,
    ) -> Result<u16, ConnectRefusal> {
        let nqn = &identity.subsystem_nqn;
        let busy = || {
            ConnectRefusal::status(
                Status::CONNECT_CONTROLLER_BUSY,
                "no controller identifier is free",
            )
        };
        let is_free = |state: &State, id| !state.controllers.contains_key(&(nqn.clone(), id));
        let asked = identity.controller_id;
        let is_static = subsystem.is_some_and(|s| s.controller_model == ControllerModel::Static);
        if is_static && asked != ConnectData::ANY_STATIC_CONTROLLER {
            return is_free(self, asked).then_some(asked).ok_or_else(busy);
        }
        let ids = subsystem.map_or(DISCOVERY_IDS, |subsystem| subsystem.controller_ids.clone());
        let next = self.next_id.get(nqn).copied().unwrap_or(*ids.start());
        let from = if ids.contains(&next) {
            next
        } else {
            *ids.start()
        };
        let id = (from..=*ids.end())
            .chain(*ids.start()..from)
            .find(|id| is_free(self, *id))
            .ok_or_else(busy)?;
        self.next_id.insert(nqn.clone(), id.wrapping_add(1));
        Ok(id)
    }

    fn end_queues_of(&mut self, key: &Key) {
        let Some(controller) = self.controllers.get_mut(key) else {
            return;
        };
        let qids: Vec<u16> = controller.queues.keys().copied().collect();
        for qid in qids {
            end_queue(controller, qid, &mut self.ending);
            let connection = &controller.queues[&qid].connection;
            let _ = connection.tell(Message::ControllerEnds);
        }
    }

    /// Does what waits for a controller's last I/O queue.
    fn settle(&mut self, key: &Key) {
        let Some(controller) = self.controllers.get_mut(key) else {
            return;
        };
        if !controller.queues.is_empty() {
            return;
        }
        if controller.draining == 0 && std::mem::take(&mut controller.tell_ended) {
            let _ = controller.shared.admin.tell(Message::QueuesEnded);
        }
        if controller.ended {
            let controller = self.controllers.remove(key);
            let draining = controller.filter(|controller| controller.draining > 0);
            self.draining.extend(draining);
        }
    }
}

/// Notes that a queue ends, the first time.
fn end_queue(controller: &mut Controller, qid: u16, ending: &mut HashMap<Host, u32>) {
    let queue = controller
        .queues
        .get_mut(&qid)
        .expect("a queue of the controller");
    if !std::mem::replace(&mut queue.ending, true) {
        controller.draining += 1;
        let host = controller.shared.host.clone();
        *ending.entry(host).or_default() += 1;
    }
}
