//! One connection's session: its framing, its queue pair, and what its host sees.

use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use weir_block::{Announcement, Completion, Completions};
use weir_front::{
    Awaited, Commands, End, GroupCounters, Groups, Handle, IoCounters, IoTotals, Line, News,
    Progress, Protocol, Reservations, Room, Session, Shard, Wants,
};
use weir_memory::{Gather, Segment, View};
use weir_nvme::command::{Connect, ConnectData, ConnectResponse};
use weir_nvme::feature::HostIdentifier;
use weir_nvme::{Cqe, Nqn, Status};
use weir_nvme_core::{
    AdminView, Attached, ConnectIdentity, ConnectRefusal, Controller, ControllerIdentity,
    ControllerKind, CoreConfig, DiscoveryLogs, Effect, Env, FLOW_CONTROL_OFF, LostQueue, Message,
    Namespace, Namespaces, QueueGrant, QueueKind, QueuePair, Registry, Shared, Slot, SlotIndex,
    Snapshot, Subsystem, check_connect_data, check_connect_fields, flow_control_off,
};
use weir_reactor::Amount;
use weir_reservation::{Operation, Registrant};

use crate::config::TargetConfig;
use crate::framing::{DirectReturn, Framing, Received};

/// NVMe over TCP.
pub(crate) struct NvmeTcp;

/// What all reactors share of a target.
pub(crate) struct TargetShared {
    pub(crate) config: TargetConfig,
    pub(crate) core: CoreConfig,
    pub(crate) registry: Arc<Registry>,
    pub(crate) subsystems: Groups<Nqn>,
}

/// What others are told of a connection.
#[derive(Clone, Default)]
pub(crate) struct About {
    /// Its controller, and the number of its queue.
    pub(crate) association: Option<(Arc<Shared>, u16)>,
    /// What was agreed with the host; none before its Connect.
    pub(crate) queue: Option<QueueInfo>,
}

/// What was agreed for a connection's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueInfo {
    /// Entries of the queue (SQSIZE + 1).
    pub entries: u32,
    /// Whether SQ flow control is on.
    pub flow_control: bool,
    /// Whether PDU headers have digests.
    pub header_digest: bool,
    /// Whether data has digests.
    pub data_digest: bool,
}

/// What a connection is told of its listener.
#[derive(Clone)]
pub(crate) struct ListenerPort {
    /// Only the discovery subsystem is served there.
    pub(crate) discovery_only: bool,
}

impl Protocol for NvmeTcp {
    type Message = Message;
    type Group = Nqn;
    type Export = Namespace;
    type Snapshot = Snapshot;
    type Shared = TargetShared;
    type Local = DiscoveryLogs;
    type Port = ListenerPort;
    type About = About;

    fn exports(snapshot: &Snapshot) -> impl Iterator<Item = (&Nqn, &[Namespace])> {
        let subsystems = snapshot.subsystems.iter();
        subsystems.map(|subsystem| (&subsystem.nqn, &subsystem.namespaces[..]))
    }

    fn decline(message: Message) {
        if let Message::Abort { slot, admin, .. } = message {
            let aborted = false;
            let _ = admin.tell(Message::AbortEnded { slot, aborted });
        }
    }

    fn look_again(shared: &TargetShared) {
        shared.registry.retry_waiting();
    }
}

/// A session on its way to another reactor. Its Connect was granted and is answered there.
pub(crate) struct Moving {
    framing: Framing,
    granted: Granted,
}

/// What a Connect led to.
struct Granted {
    shared: Arc<Shared>,
    connect: Connect,
    cid: u16,
}

/// What commands of a connection may look at.
struct Scene {
    line: Line<NvmeTcp>,
    namespaces: Namespaces,
    counters: Option<Arc<GroupCounters>>,
    shared: Option<Arc<Shared>>,
    is_admin: bool,
    no_counters: IoCounters,
}

impl Scene {
    fn shard(&self) -> &Shard<NvmeTcp> {
        &self.line.shard
    }

    fn target(&self) -> &TargetShared {
        &self.line.shard.shared.own
    }

    fn config(&self) -> &TargetConfig {
        &self.target().config
    }

    /// Takes over what the host sees now. False: it may not see the subsystem any more.
    fn renew(&mut self) -> bool {
        if self.shared.is_none() {
            return true;
        }
        let seen = self.seen();
        let sees = seen.is_some();
        self.namespaces = seen.unwrap_or_default();
        sees
    }

    /// Who the host is to reservations.
    fn registrant(&self) -> Option<&Registrant> {
        self.shared.as_ref().map(|shared| &shared.registrant)
    }

    /// Namespaces that the host sees now. None: it may not see the subsystem any more.
    fn seen(&self) -> Option<Namespaces> {
        match &self.shared {
            Some(shared) if shared.kind == ControllerKind::Io => {
                let snapshot = self.shard().snapshot();
                let subsystem = snapshot.subsystem(shared.subsystem_nqn.as_str())?;
                let host = &shared.host.nqn;
                let exports = self.shard().exports_of(&subsystem.nqn);
                subsystem
                    .allowed
                    .allows(host)
                    .then(|| Namespaces::visible_to(exports, host))
            }
            _ => Some(Namespaces::default()),
        }
    }

    fn with_env<R>(&self, work: impl FnOnce(&Env<'_>) -> R) -> R {
        match &self.shared {
            Some(shared) if self.is_admin => {
                self.with_view(shared, |view| work(&self.env(Some(view))))
            }
            _ => work(&self.env(None)),
        }
    }

    fn env<'a>(&'a self, admin: Option<&'a AdminView<'a>>) -> Env<'a> {
        let config = &self.target().core;
        let counters = match &self.counters {
            Some(counters) => &counters.by_reactor[self.shard().index],
            None => &self.no_counters,
        };
        Env {
            namespaces: &self.namespaces,
            pool: self.shard().hub.reactor.pool(),
            transfer_bytes_max: config.mdts_bytes,
            in_capsule_bytes: config.in_capsule_bytes,
            admin_in_capsule_bytes: config.admin_in_capsule_bytes,
            retry_delay: self
                .shared
                .as_ref()
                .is_some_and(|shared| shared.retry_delay()),
            registrant: self.registrant(),
            counters,
            admin,
        }
    }

    fn with_view<R>(&self, shared: &Shared, work: impl FnOnce(&AdminView<'_>) -> R) -> R {
        let shard = self.shard();
        let snapshot = shard.snapshot();
        let totals = || match &self.counters {
            Some(counters) => counters.totals(),
            None => IoTotals::default(),
        };
        work(&AdminView {
            snapshot: &snapshot,
            config: &self.target().core,
            local_address: self.line.entry.local,
            discovery: &shard.local,
            totals: &totals,
            errors: &shared.errors,
            io_queues: self.target().registry.io_queues(shared),
            up: self.line.now() - shard.shared.started,
        })
    }
}

/// A connection's framing and queue pair.
pub(crate) struct NvmeSession {
    scene: Scene,
    framing: Framing,
    queue: QueuePair,
    connect: Option<(SlotIndex, Connect, Box<ConnectData>)>,
    moving: Option<(usize, Granted)>,
    /// Where the segment goes back to that is received into.
    direct: Option<DirectReturn>,
    /// What the registry was told of the controller.
    told: Option<(bool, u16)>,
    /// Nothing begins any more.
    is_over: bool,
}

fn connect_response(granted: &Granted) -> Cqe {
    let response = ConnectResponse {
        controller_id: granted.shared.id,
        authentication: 0,
    };
    let head = if flow_control_off(&granted.connect) {
        FLOW_CONTROL_OFF
    } else {
        1
    };
    Cqe::new(granted.cid, head, Status::SUCCESS).with_result(u64::from(response.to_result()))
}

impl Session for NvmeSession {
    type Protocol = NvmeTcp;
    type Slot = Slot;
    type Moving = Moving;

    const HANDSHAKE_TIMEOUT: &'static str = "its Connect was not granted in time";

    fn accepted(line: Line<NvmeTcp>) -> Self {
        let framing = Framing::new(&line.shard.shared.own.config);
        NvmeSession::new(line, framing)
    }

    fn moved_in(line: Line<NvmeTcp>, moving: Moving, out: &mut Gather) -> Self {
        let mut session = NvmeSession::new(line, moving.framing);
        session.become_io_queue(&moving.granted);
        let response = connect_response(&moving.granted);
        session.framing.write_response(&response, out);
        session
    }

    fn lost_on_the_way(target: &TargetShared, moving: Moving) {
        let Granted {
            shared, connect, ..
        } = moving.granted;
        drop(LostQueue::new(&target.registry, &shared, connect.qid));
        target.registry.queue_ended(&shared);
    }

    fn commands(&mut self) -> &mut Commands<Slot> {
        self.queue.commands()
    }

    fn room(&mut self) -> &mut Room {
        self.queue.room()
    }

    fn message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Retry => {
                if let Some((slot, connect, data)) = self.connect.take() {
                    self.connect(slot, connect, data);
                }
            }
            Message::QueuesEnded => {
                if let Some(controller) = self.queue.controller() {
                    for slot in controller.queues_ended() {
                        let aborted = Status::COMMAND_ABORT_REQUESTED;
                        self.queue.answer_waiting(slot, aborted, 0);
                    }
                }
            }
            Message::Reserved { slot, status } => self.queue.answer_waiting(slot, status, 0),
            Message::ControllerEnds => return Err(End::Dismissed("its controller ended")),
            Message::Abort { cid, slot, admin } => {
                let aborted = self.queue.abort(cid);
                let _ = admin.tell(Message::AbortEnded { slot, aborted });
            }
            Message::AbortEnded { slot, aborted } => {
                if let Some(controller) = self.queue.controller() {
                    controller.abort_ended();
                }
                self.queue
                    .answer_waiting(slot, Status::SUCCESS, u64::from(!aborted));
            }
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<(), &'static str> {
        if !self.scene.renew() {
            // The rest ends with the connection, without an answer.
            self.queue
                .revoke(&self.scene.namespaces, self.scene.registrant());
            return Err("the host may not connect to the subsystem");
        }
        self.scene.with_env(|env| self.queue.let_go(env));
        if let Some(controller) = self.queue.controller() {
            controller.take_over(&self.scene.namespaces);
        }
        Ok(())
    }

    fn rights_changed(&mut self, news: &Arc<News>) {
        let registrant = self.scene.registrant();
        if self.is_over {
            let seen = self.scene.seen().unwrap_or_default();
            self.queue.revoke(&seen, registrant);
            return self.queue.keep_news(news, &seen, registrant);
        }
        if let (Some(host), Some(controller)) = (registrant, self.queue.controller()) {
            for namespace in self.scene.namespaces.iter() {
                if news.is_of(namespace.export.reservations.as_ref()) {
                    for notice in news.notices(host) {
                        controller.notify(namespace.export.nsid, notice);
                    }
                }
            }
        }
        self.scene
            .with_env(|env| self.queue.rights_changed(news, env));
        self.queue.deliver_events();
    }

    fn announce(&mut self) {
        let Some(shared) = self.scene.shared.clone() else {
            return;
        };
        if let Some(controller) = self.queue.controller() {
            let namespaces = &self.scene.namespaces;
            self.scene
                .with_view(&shared, |view| controller.announce(namespaces, view));
        }
        self.queue.deliver_events();
    }

    fn shutting_down(&mut self) {
        if let Some(controller) = self.queue.controller() {
            controller.shutting_down();
        }
        self.queue.deliver_events();
    }

    fn completed(&mut self, first: Completion, others: &Completions) {
        self.scene.with_env(|env| {
            self.queue.completed(first, env);
            while let Some(completion) = others.pop() {
                self.queue.completed(completion, env);
            }
        });
    }

    fn heard(&mut self) {
        if let Some(shared) = &self.scene.shared {
            shared.heard();
        }
    }

    fn receive(&mut self, input: &mut View, out: &mut Gather) -> Result<Progress, End> {
        let received = self
            .scene
            .with_env(|env| self.framing.receive(input, &mut self.queue, env, out));
        let damaged = std::mem::take(&mut self.framing.digest_errors.data);
        if damaged > 0 {
            self.scene.shard().counters.data_digest_errors.add(damaged);
        }
        match received {
            Ok(Received::Hungry) => Ok(Progress::Hungry),
            Ok(Received::Blocked) => Ok(Progress::Blocked),
            Ok(Received::PeerTerminated) => {
                Err(End::BrokenOff("the host sent a termination request"))
            }
            Err(error) => Err(End::Broken(Box::new(error))),
        }
    }

    fn act(&mut self) -> Result<(), End> {
        while let Some(effect) = self.queue.next_effect() {
            match effect {
                Effect::Connect {
                    slot,
                    connect,
                    data,
                } => self.connect(slot, connect, data),
                Effect::Abort { slot, sqid, cid } => self.abort_elsewhere(slot, sqid, cid),
                Effect::Reserve {
                    slot,
                    reservations,
                    operation,
                } => self.reserve(slot, &reservations, operation),
                Effect::ReservationReport {
                    slot,
                    reservations,
                    length,
                    is_extended,
                } => {
                    let page = self.reservation_report(&reservations, is_extended);
                    self.queue.answer_with_page(slot, &page, length);
                }
                Effect::EndQueues => {
                    if let Some(shared) = &self.scene.shared {
                        self.scene.target().registry.end_queues(shared);
                    }
                    self.told = None;
                }
                Effect::Disconnect => return Err(End::Disconnected),
            }
        }
        Ok(())
    }

    fn prepare(&mut self) {
        if self.queue.waits_for_buffer() {
            self.scene.with_env(|env| self.queue.retry_buffers(env));
        }
        let reserve = self.scene.config().in_capsule_bytes as usize;
        let pool = self.scene.shard().hub.reactor.pool();
        self.queue.restore_reserve(pool, reserve);
    }

    fn settle(&mut self) {
        if self.queue.has_failures()
            && let Some(shared) = &self.scene.shared
        {
            let mut log = shared.errors.lock().unwrap_or_else(PoisonError::into_inner);
            self.queue
                .failures()
                .for_each(|failure| log.record(failure));
        }
        self.tell_registry();
    }

    fn write(&mut self, out: &mut Gather) {
        let pool = self.scene.line.shard.hub.reactor.pool();
        self.framing.write(&mut self.queue, pool, out);
    }

    fn wants(&mut self, is_blocked: bool) -> Wants {
        // The end of a send clears a backlog and wakes this task. Nothing wakes it for buffers or for room of others: it retries.
        let is_starved = is_blocked && !self.framing.is_backlogged(&self.queue);
        let is_full = is_blocked && self.queue.is_full_of_others();
        let look_again = is_starved || is_full || self.queue.waits_for_buffer();
        if !is_starved {
            self.queue.forget_stalled();
        }
        Wants {
            look_again,
            // A command for which there is no slot waits for its own queue, which is nobody else's affair.
            is_starved: is_starved && self.queue.has_room() && !self.queue.is_stalled_for_bytes(),
            waits: self.queue.lacks_something(),
        }
    }

    fn in_flight(&self) -> u32 {
        self.queue.busy() as u32
    }

    fn takes_input(&self) -> bool {
        self.connect.is_none() && self.moving.is_none()
    }

    fn direct(&mut self) -> Option<(Segment, usize)> {
        let (segment, from, back) = self.framing.direct(&mut self.queue)?.split();
        self.direct = Some(back);
        Some((segment, from))
    }

    fn received_directly(&mut self, segment: Segment, count: usize) {
        let back = self.direct.take().expect("it was lent");
        self.framing
            .received_directly(segment, &back, count, &mut self.queue);
    }

    fn expects(&self, last: usize) -> Amount {
        self.framing.expected(last, &self.queue)
    }

    fn send_began(&mut self) {
        self.framing.send_began(&mut self.queue);
    }

    fn send_ended(&mut self) {
        self.framing.send_ended();
    }

    fn attached(&self, nsid: u32) -> Option<&Rc<Attached>> {
        self.scene.namespaces.get(nsid)
    }

    fn arriving(&self) -> Option<u64> {
        self.framing.arriving()
    }

    fn look_at_awaited(&mut self) -> Option<Awaited> {
        self.framing.look_at_awaited(&self.queue)
    }

    fn keep_alive(&mut self) -> Option<Duration> {
        let controller = self.queue.controller()?;
        let shared = self.scene.shared.as_ref()?;
        let asked = controller.keep_alive();
        match shared.kind {
            ControllerKind::Io => asked,
            ControllerKind::Discovery => {
                Some(asked.unwrap_or(self.scene.config().discovery_keep_alive))
            }
        }
    }

    /// Commands of any queue of the controller restart its timer (Traffic Based Keep Alive).
    fn take_traffic(&mut self) -> bool {
        let shared = self.scene.shared.as_ref();
        shared.is_some_and(|shared| shared.take_traffic())
    }

    fn moves_to(&self) -> Option<usize> {
        self.moving.as_ref().map(|(reactor, _)| *reactor)
    }

    fn move_out(&mut self) -> Moving {
        let (_, granted) = self.moving.take().expect("it is to be moved");
        let framing = Framing::new(self.scene.config());
        Moving {
            framing: std::mem::replace(&mut self.framing, framing),
            granted,
        }
    }

    fn last_words(&mut self, end: &End, out: &mut Gather) {
        self.write(out);
        if let End::Broken(error) = end
            && let Some(error) = error.downcast_ref()
        {
            self.framing.terminate(error, out);
        }
    }

    fn announce_end(&mut self) -> Announcement {
        let (registry, entry) = (&self.scene.target().registry, &self.scene.line.entry);
        match &entry.about.borrow().association {
            Some((shared, 0)) => registry.end_controller(shared),
            Some((shared, qid)) => return Arc::new(LostQueue::new(registry, shared, *qid)),
            None => registry.forget_waiting(entry.handle.id),
        }
        Arc::new(())
    }

    fn give_up(&mut self) {
        self.is_over = true;
        self.scene.namespaces = Namespaces::default();
    }

    fn revoke(&mut self) {
        let seen = self.scene.seen().unwrap_or_default();
        self.queue.revoke(&seen, self.scene.registrant());
    }

    fn ended(&mut self) {
        let association = self.scene.line.entry.about.borrow_mut().association.take();
        if let Some((shared, qid)) = association
            && qid > 0
        {
            self.scene.target().registry.queue_ended(&shared);
        }
    }
}

impl NvmeSession {
    fn new(line: Line<NvmeTcp>, framing: Framing) -> Self {
        let mut queue = QueuePair::new(line.entry.owner);
        let config = &line.shard.shared.own.config;
        let bytes_max = config.bytes_in_flight_per_connection;
        let account = &line.shard.hub.account;
        queue.bound_bytes(account, u64::from(bytes_max), config.in_capsule_bytes);
        NvmeSession {
            framing,
            queue,
            scene: Scene {
                line,
                namespaces: Namespaces::default(),
                counters: None,
                shared: None,
                is_admin: false,
                no_counters: IoCounters::default(),
            },
            connect: None,
            moving: None,
            direct: None,
            told: None,
            is_over: false,
        }
    }

    /// Asks for a change of reservations, which answers the command.
    fn reserve(&mut self, slot: SlotIndex, reservations: &Arc<Reservations>, operation: Operation) {
        let host = self.scene.registrant().expect("it is connected").clone();
        let handle = self.scene.line.entry.handle.clone();
        reservations.ask(host, operation, move |result| {
            let status = result.map_or_else(|refused| refused.status(), |()| Status::SUCCESS);
            // The queue may have ended meanwhile.
            let _ = handle.tell(Message::Reserved { slot, status });
        });
    }

    fn reservation_report(&self, reservations: &Reservations, is_extended: bool) -> Vec<u8> {
        let shared = self.scene.shared.as_ref().expect("it is connected");
        let registry = &self.scene.target().registry;
        let controllers = |host: &HostIdentifier| match host {
            HostIdentifier::Extended(id) => registry.controllers_of(&shared.subsystem_nqn, id),
            HostIdentifier::Short(_) => Vec::new(),
        };
        let report = reservations.table().reservation_report(controllers);
        report.encode(is_extended)
    }

    fn abort_elsewhere(&mut self, slot: SlotIndex, sqid: u16, cid: u16) {
        let shared = self.scene.shared.clone().expect("an admin queue");
        let admin = self.scene.line.entry.handle.clone();
        let queue = self.scene.target().registry.queue(&shared, sqid);
        let message = Message::Abort {
            cid,
            slot,
            admin: admin.clone(),
        };
        let sent = queue.is_some_and(|queue: Handle<Message>| queue.tell(message).is_ok());
        if !sent {
            let aborted = false;
            let _ = admin.tell(Message::AbortEnded { slot, aborted });
        }
    }

    /// Tells the registry what the controller allows now.
    fn tell_registry(&mut self) {
        let Some(controller) = self.queue.controller() else {
            return;
        };
        let Some(shared) = &self.scene.shared else {
            return;
        };
        let target = self.scene.target();
        let state = (
            controller.accepts_queues(),
            controller.io_queues_granted(&target.core),
        );
        shared.set_retry_delay(controller.retry_delay());
        if self.told != Some(state) {
            target.registry.set_state(shared, state.0, state.1);
            self.told = Some(state);
        }
    }

    /// Carries a Connect out, or leaves it waiting.
    fn connect(&mut self, slot: SlotIndex, connect: Connect, data: Box<ConnectData>) {
        match self.try_connect(slot, &connect, &data) {
            Ok(true) => {}
            Ok(false) => self.connect = Some((slot, connect, data)),
            Err(refusal) => {
                let counters = &self.scene.shard().counters;
                counters.refused.add(1);
                if connect.qid == 0 && refusal.status.is(Status::CONNECT_CONTROLLER_BUSY) {
                    counters.over_sessions.add(1);
                }
                let entry = &self.scene.line.entry;
                tracing::info!(
                    connection = entry.handle.id, peer = %entry.peer, status = %refusal.status,
                    "Connect refused: {}", refusal.reason
                );
                self.queue
                    .answer_waiting(slot, refusal.status, u64::from(refusal.result));
            }
        }
    }

    /// Whether the Connect was carried out; false: it waits.
    fn try_connect(
        &mut self,
        slot: SlotIndex,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<bool, ConnectRefusal> {
        let line = self.scene.line.clone();
        check_connect_fields(connect, &self.scene.target().core)?;
        let snapshot = line.shard.snapshot();
        let discovery_only = line.entry.port.discovery_only;
        let (identity, subsystem) = check_connect_data(connect, data, &snapshot, discovery_only)?;
        let found = if connect.qid == 0 {
            Some(self.make_controller(&identity, subsystem)?)
        } else {
            self.find_controller(&identity, connect.qid)?
        };
        let Some((shared, reactor)) = found else {
            return Ok(false);
        };
        if let Some(options) = snapshot.host_options(&identity.host_nqn) {
            line.set_options(options);
        }
        tracing::info!(
            connection = line.entry.handle.id, peer = %line.entry.peer, host = %identity.host_nqn,
            subsystem = %identity.subsystem_nqn, controller = shared.id, queue = connect.qid, reactor,
            "connected"
        );
        let granted = Granted {
            shared,
            connect: *connect,
            cid: self.queue.cid_of(slot),
        };
        self.become_what_was_granted(slot, granted, reactor, &identity);
        line.established();
        Ok(true)
    }

    /// A controller for this admin queue, on this reactor.
    fn make_controller(
        &self,
        identity: &ConnectIdentity,
        subsystem: Option<&Subsystem>,
    ) -> Result<(Arc<Shared>, usize), ConnectRefusal> {
        let (target, entry) = (self.scene.target(), &self.scene.line.entry);
        let reactor = self.scene.shard().index;
        let shared = target.registry.create(
            identity,
            subsystem,
            entry.local,
            reactor,
            entry.handle.clone(),
            &target.core,
        )?;
        Ok((shared, reactor))
    }

    /// The controller of this I/O queue, and the reactor that the queue belongs on; none: not yet.
    fn find_controller(
        &self,
        identity: &ConnectIdentity,
        qid: u16,
    ) -> Result<Option<(Arc<Shared>, usize)>, ConnectRefusal> {
        if self.sees_unfenced(&identity.subsystem_nqn, &identity.host_nqn) {
            return Err(ConnectRefusal::status(
                Status::CONNECT_CONTROLLER_BUSY,
                "commands that a volume has left unanswered may take effect still",
            ));
        }
        let (registry, entry) = (&self.scene.target().registry, &self.scene.line.entry);
        let grant = registry.add_queue(identity, qid, entry.local, &entry.handle)?;
        Ok(match grant {
            QueueGrant::Wait => None,
            QueueGrant::Granted {
                controller,
                reactor,
            } => Some((controller, reactor)),
        })
    }

    /// Whether what `host` sees of a subsystem includes a volume that has left commands unanswered, which may take effect still.
    fn sees_unfenced(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        let shard = self.scene.shard();
        let snapshot = shard.snapshot();
        let Some(subsystem) = snapshot.subsystem(subsystem.as_str()) else {
            return false;
        };
        shard.shared.watches.any_unfenced(|volume| {
            let mut namespaces = subsystem.namespaces.iter();
            namespaces.any(|one| {
                let is_of = std::ptr::addr_eq(Arc::as_ptr(volume), Arc::as_ptr(&one.volume));
                is_of && one.visible_to.allows(host)
            })
        })
    }

    fn become_what_was_granted(
        &mut self,
        slot: SlotIndex,
        granted: Granted,
        reactor: usize,
        identity: &ConnectIdentity,
    ) {
        let qid = granted.connect.qid;
        if reactor != self.scene.shard().index {
            let association = Some((Arc::clone(&granted.shared), qid));
            self.scene.line.entry.about.borrow_mut().association = association;
            self.moving = Some((reactor, granted));
            return;
        }
        if qid > 0 {
            self.become_io_queue(&granted);
        } else {
            self.become_admin_queue(&granted, identity);
        }
        let response = connect_response(&granted);
        self.queue
            .answer_waiting(slot, Status::SUCCESS, response.result);
    }

    fn associate(&mut self, granted: &Granted, is_admin: bool) {
        let shared = Arc::clone(&granted.shared);
        let flow_control = !flow_control_off(&granted.connect);
        self.framing.set_success_flag(!flow_control);
        let (header_digest, data_digest) = self.framing.digests();
        *self.scene.line.entry.about.borrow_mut() = About {
            association: Some((Arc::clone(&shared), granted.connect.qid)),
            queue: Some(QueueInfo {
                entries: granted.connect.queue_entries(),
                flow_control,
                header_digest,
                data_digest,
            }),
        };
        self.scene.counters = self.scene.target().subsystems.get(&shared.subsystem_nqn);
        self.scene.is_admin = is_admin;
        self.scene.shared = Some(shared);
        // The next round renews what it sees, or ends it.
        self.scene.line.look_again();
    }

    fn become_io_queue(&mut self, granted: &Granted) {
        self.associate(granted, false);
        let hub = Rc::clone(&self.scene.line.shard.hub);
        let host = granted.shared.host.number();
        hub.router.set_host(self.scene.line.entry.owner, host);
        let bytes = self.scene.config().in_capsule_bytes as usize;
        let reserve = hub.reactor.pool().segment(bytes).ok();
        let connect = &granted.connect;
        self.queue.connected(
            QueueKind::Io,
            connect.qid,
            connect.queue_entries(),
            !flow_control_off(connect),
            reserve,
        );
    }

    fn become_admin_queue(&mut self, granted: &Granted, identity: &ConnectIdentity) {
        self.associate(granted, true);
        self.scene.renew();
        let shared = Arc::clone(&granted.shared);
        let connect = &granted.connect;
        let identity = ControllerIdentity {
            kind: shared.kind,
            id: shared.id,
            subsystem_nqn: identity.subsystem_nqn.clone(),
            host_nqn: identity.host_nqn.clone(),
            host_id: identity.host_id,
        };
        let timeout = connect.keep_alive_timeout_ms;
        let mut controller = Controller::new(identity, timeout, &self.scene.target().core);
        self.scene.with_view(&shared, |view| {
            controller.settle(&self.scene.namespaces, view);
        });
        self.queue.connected(
            QueueKind::Admin(Box::new(controller)),
            0,
            connect.queue_entries(),
            !flow_control_off(connect),
            None,
        );
    }
}
