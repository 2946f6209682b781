//! A controller: what its admin queue's commands work on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_front::{IoTotals, Reservations};
use weir_memory::{View, Views};
use weir_nvme::command::{AdminCommand, CommandError};
use weir_nvme::event::EventType;
use weir_nvme::property::{Configuration, ControllerStatus};
use weir_nvme::{HostId, Nqn, Sqe, Status};
use weir_reservation::Operation;

use super::discovery::{DiscoveryLog, DiscoveryLogs};
use super::error_log::ErrorLog;
use super::events::Events;
use super::features::{self, Features};
use super::nvm::Work;
use super::queue_pair::{Env, SlotIndex};
use super::reserve::Notifications;
use crate::config::CoreConfig;
use crate::namespaces::Namespaces;
use crate::snapshot::{AnaState, Snapshot};

/// Aborts that are carried out at once (ACL + 1).
pub(super) const ABORTS_MAX: u8 = 8;
/// Granularity of the keep-alive timeout (KAS 1), in milliseconds.
const KEEP_ALIVE_GRANULARITY_MS: u32 = 100;

/// Which kind of controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// One with namespaces.
    Io,
    /// One that tells where subsystems are.
    Discovery,
}

/// Who a controller is, and for whom.
#[derive(Debug, Clone)]
pub struct ControllerIdentity {
    /// Its kind.
    pub kind: ControllerKind,
    /// Its identifier.
    pub id: u16,
    /// Its subsystem.
    pub subsystem_nqn: Nqn,
    /// Its host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
}

/// What admin commands look at beyond their controller.
pub struct AdminView<'a> {
    /// All that is served.
    pub snapshot: &'a Snapshot,
    /// Limits.
    pub config: &'a CoreConfig,
    /// The address that the host reached.
    pub local_address: SocketAddr,
    /// The reactor's discovery logs of the snapshot.
    pub discovery: &'a RefCell<DiscoveryLogs>,
    /// What hosts did with the subsystem so far.
    pub totals: &'a dyn Fn() -> IoTotals,
    /// Commands that failed.
    pub errors: &'a Mutex<ErrorLog>,
    /// I/O queues that the controller has now.
    pub io_queues: u16,
    /// For how long the target has been up.
    pub up: Duration,
}

/// What becomes of an admin command.
pub(super) enum AdminOutcome {
    Status(Status),
    /// Success with a result.
    Result(u64),
    /// Success with data and a result.
    Data(Views, u64),
    /// It is answered later.
    Wait,
    /// Another command is to be aborted.
    Abort {
        sqid: u16,
        cid: u16,
    },
    /// Reservations are to change, and it is answered then.
    Reserve(Arc<Reservations>, Operation),
    /// Success, and the I/O queues are to end.
    EndQueues,
}

impl AdminOutcome {
    pub(super) fn bytes(bytes: &[u8]) -> Self {
        AdminOutcome::Data(Views::from_iter([View::copy_of(bytes)]), 0)
    }
}

/// What a host is told of a namespace, to see what changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    nsid: u32,
    geometry_generation: u64,
    blocks: u64,
    uuid: [u8; 16],
    nguid: [u8; 16],
    read_only: bool,
    ana_group: u32,
}

/// The keep-alive timeout that is used for one that a host asks for: rounded up to the granularity, not below the minimum.
pub(super) fn keep_alive_used(asked_ms: u32, config: &CoreConfig) -> u32 {
    if asked_ms == 0 {
        return 0;
    }
    let minimum = u32::try_from(config.keep_alive_min.as_millis()).unwrap_or(u32::MAX);
    asked_ms
        .max(minimum)
        .div_ceil(KEEP_ALIVE_GRANULARITY_MS)
        .saturating_mul(KEEP_ALIVE_GRANULARITY_MS)
}

/// One controller.
pub struct Controller {
    pub(super) identity: ControllerIdentity,
    pub(super) configuration: Configuration,
    pub(super) status: ControllerStatus,
    pub(super) features: Features,
    pub(super) keep_alive_ms: u32,
    pub(super) queue_entries: u16,
    pub(super) events: Events,
    pub(super) notifications: Notifications,
    aborts: u8,
    /// The namespaces as the host sees them, and those that it has seen change and was not told of.
    seen: Vec<Seen>,
    changed: BTreeSet<u32>,
    /// The same of ANA states.
    seen_ana: Vec<(u32, AnaState)>,
    ana_moved: bool,
    /// The discovery log as long as its reactor has it, and the hash of its records when the host was told last.
    discovery: Weak<DiscoveryLog>,
    seen_discovery: u64,
    pub(super) ana_changes: u64,
}

impl Controller {
    /// A controller of an admin queue that was granted, with the keep-alive timeout that its Connect asked for, in milliseconds.
    pub fn new(identity: ControllerIdentity, keep_alive_ms: u32, config: &CoreConfig) -> Self {
        Controller {
            identity,
            configuration: Configuration::default(),
            status: ControllerStatus::default(),
            features: Features::default(),
            keep_alive_ms: keep_alive_used(keep_alive_ms, config),
            queue_entries: config.queue_depth,
            events: Events::default(),
            notifications: Notifications::default(),
            aborts: 0,
            seen: Vec::new(),
            changed: BTreeSet::new(),
            seen_ana: Vec::new(),
            ana_moved: false,
            discovery: Weak::new(),
            seen_discovery: 0,
            ana_changes: 0,
        }
    }

    /// Bytes that a controller takes at worst beside its queues: what it has seen of namespaces, its error log; lists grow to
    /// `slack` times what is in them.
    pub fn memory_bytes(slack: usize) -> usize {
        let namespaces = crate::snapshot::Subsystem::NAMESPACES_MAX as usize;
        let seen = size_of::<Seen>() + size_of::<(u32, AnaState)>() + 4 * size_of::<u32>();
        let errors = ErrorLog::ENTRIES * size_of::<(u64, super::error_log::Failure)>();
        let masks = namespaces * features::MASK_BYTES;
        slack * (namespaces * seen + errors + masks + Notifications::BYTES_MAX)
    }

    /// The keep-alive timeout; none: it never expires.
    pub fn keep_alive(&self) -> Option<Duration> {
        (self.keep_alive_ms > 0).then(|| Duration::from_millis(u64::from(self.keep_alive_ms)))
    }

    /// I/O queues that the host may make.
    pub fn io_queues_granted(&self, config: &CoreConfig) -> u16 {
        self.features.io_queues.unwrap_or(config.io_queues_max)
    }

    /// Whether the host understands Command Retry Delay.
    pub fn retry_delay(&self) -> bool {
        self.features.host_behavior.advanced_command_retry == 1
    }

    pub(super) fn reset_features(&mut self) {
        self.features = Features::default();
    }

    /// What an admin command needs, or the status that refuses it.
    pub(super) fn plan(&self, sqe: &Sqe) -> Result<(Work, u32), Status> {
        let command = AdminCommand::parse(sqe).map_err(CommandError::status)?;
        let discovery = self.identity.kind == ControllerKind::Discovery;
        if discovery && matches!(command, AdminCommand::Abort(_)) {
            return Err(Status::INVALID_COMMAND_OPCODE.with_do_not_retry());
        }
        let ready = self.status.ready() && self.configuration.enabled();
        // A controller that is not enabled keeps its association alive, no more.
        if !ready && command != AdminCommand::KeepAlive {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        if sqe.fuse != weir_nvme::sqe::Fuse::Normal {
            return Err(Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry());
        }
        let length = match command {
            AdminCommand::SetFeatures(set) => features::data_length(set.feature),
            _ => 0,
        };
        Ok((Work::Admin(command), length))
    }

    /// Carries an admin command out. `buffer` is the length of the host's buffer for data to come.
    pub(super) fn execute(
        &mut self,
        command: &AdminCommand,
        slot: SlotIndex,
        data: &Views,
        buffer: u32,
        env: &Env<'_>,
    ) -> AdminOutcome {
        let view = env.admin.expect("an admin queue has a view");
        let outcome = match command {
            AdminCommand::Identify(identify) => {
                self.identify(identify, buffer, env.namespaces, view)
            }
            AdminCommand::GetLogPage(get) => self.get_log_page(get, buffer, env, view),
            AdminCommand::GetFeatures(get) => self.get_features(get, env.namespaces, view),
            AdminCommand::SetFeatures(set) => self.set_features(set, data, env.namespaces, view),
            AdminCommand::KeepAlive => Ok(AdminOutcome::Status(Status::SUCCESS)),
            AdminCommand::AsynchronousEventRequest => {
                self.events.request(slot).map(|()| AdminOutcome::Wait)
            }
            AdminCommand::Abort(abort) => self.begin_abort(abort.sqid, abort.cid),
        };
        outcome.unwrap_or_else(AdminOutcome::Status)
    }

    fn begin_abort(&mut self, sqid: u16, cid: u16) -> Result<AdminOutcome, Status> {
        if sqid > 0 {
            if self.aborts == ABORTS_MAX {
                return Err(Status::ABORT_COMMAND_LIMIT_EXCEEDED);
            }
            self.aborts += 1;
        }
        Ok(AdminOutcome::Abort { sqid, cid })
    }

    /// An Abort of another queue's command was answered.
    pub fn abort_ended(&mut self) {
        self.aborts -= 1;
    }

    pub(super) fn withdraw_event_request(&mut self, slot: SlotIndex) -> bool {
        self.events.withdraw(slot)
    }

    /// Asynchronous Event Requests outstanding.
    pub(super) fn event_requests(&self) -> usize {
        self.events.requests()
    }

    pub(super) fn next_event(&mut self) -> Option<(SlotIndex, u32)> {
        self.events.next(self.features.events)
    }

    /// The whole subsystem is about to shut down.
    pub fn shutting_down(&mut self) {
        self.events.raise(EventType::NormalSubsystemShutdown);
    }

    /// Looks at what the host sees now and raises events for what changed since it last looked.
    pub fn announce(&mut self, namespaces: &Namespaces, view: &AdminView<'_>) {
        match self.identity.kind {
            ControllerKind::Io => {
                self.take_over(namespaces);
                self.announce_changes();
            }
            ControllerKind::Discovery => self.announce_discovery(view),
        }
    }

    /// The host sees these namespaces from now on. It may have looked at those before, so that what changes back is a change, too.
    pub fn take_over(&mut self, namespaces: &Namespaces) {
        if self.identity.kind == ControllerKind::Io {
            self.sees(seen(namespaces), ana_states(namespaces));
        }
    }

    fn sees(&mut self, now: Vec<Seen>, ana: Vec<(u32, AnaState)>) {
        self.changed.extend(changed(&self.seen, &now));
        self.seen = now;
        // A namespace that came or went is told of by its own event; a state that moved by this one.
        let before = &self.seen_ana;
        self.ana_moved |= ana
            .iter()
            .any(|(group, state)| before.iter().any(|(g, s)| g == group && s != state));
        self.seen_ana = ana;
    }

    fn announce_changes(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        self.events.namespaces_changed(changed);
        if std::mem::take(&mut self.ana_moved) {
            self.ana_changes += 1;
            self.events.raise(EventType::AnaChange);
        }
    }

    fn announce_discovery(&mut self, view: &AdminView<'_>) {
        let now = self.discovery_log(view).records_hash();
        if now != self.seen_discovery {
            self.events.raise(EventType::DiscoveryLogChange);
        }
        self.seen_discovery = now;
    }

    /// The discovery log as the host sees it.
    pub(super) fn discovery_log(&mut self, view: &AdminView<'_>) -> Rc<DiscoveryLog> {
        if let Some(log) = self.discovery.upgrade() {
            return log;
        }
        let mut logs = view.discovery.borrow_mut();
        let log = logs.of(&self.identity.host_nqn, view);
        self.discovery = Rc::downgrade(&log);
        log
    }

    /// Takes what the host sees now as what it knows.
    pub fn settle(&mut self, namespaces: &Namespaces, view: &AdminView<'_>) {
        match self.identity.kind {
            ControllerKind::Io => {
                self.seen = seen(namespaces);
                self.seen_ana = ana_states(namespaces);
            }
            ControllerKind::Discovery => {
                self.seen_discovery = self.discovery_log(view).records_hash();
            }
        }
    }
}

fn seen(namespaces: &Namespaces) -> Vec<Seen> {
    let of = |attached: &std::rc::Rc<crate::namespaces::Attached>| {
        let geometry = attached.geometry.get();
        let namespace = &attached.export;
        Seen {
            nsid: namespace.nsid,
            geometry_generation: geometry.generation,
            blocks: geometry.blocks,
            uuid: namespace.uuid,
            nguid: namespace.nguid,
            read_only: attached.is_read_only(),
            ana_group: namespace.ana_group,
        }
    };
    namespaces.iter().map(of).collect()
}

fn ana_states(namespaces: &Namespaces) -> Vec<(u32, AnaState)> {
    let of = |attached: &std::rc::Rc<crate::namespaces::Attached>| {
        let namespace = &attached.export;
        (namespace.ana_group, namespace.ana_state)
    };
    namespaces.iter().map(of).collect()
}

/// The NSIDs that came, went, or are not what they were.
fn changed(before: &[Seen], now: &[Seen]) -> Vec<u32> {
    let differs = |one: &Seen, others: &[Seen]| !others.contains(one);
    let gone_or_other = before.iter().filter(|seen| differs(seen, now));
    let new_or_other = now.iter().filter(|seen| differs(seen, before));
    gone_or_other
        .chain(new_or_other)
        .map(|seen| seen.nsid)
        .collect()
}

#[cfg(test)]
mod tests {
    use weir_nvme::event::AsynchronousEvent;
    use weir_nvme::feature::AsynchronousEventConfiguration;

    use super::*;

    const NAMESPACE: Seen = Seen {
        nsid: 7,
        geometry_generation: 0,
        blocks: 1,
        uuid: [1; 16],
        nguid: [1; 16],
        read_only: false,
        ana_group: 1,
    };

    fn controller() -> Controller {
        let identity = ControllerIdentity {
            kind: ControllerKind::Io,
            id: 1,
            subsystem_nqn: Nqn::new("nqn.2026-01.org.example:subsystem").expect("a name"),
            host_nqn: Nqn::new("nqn.2026-01.org.example:host").expect("a name"),
            host_id: HostId([1; 16]),
        };
        let mut controller = Controller::new(identity, 0, &CoreConfig::example());
        controller.sees(vec![NAMESPACE], vec![(1, AnaState::Optimized)]);
        controller.announce_changes();
        controller.events.reset();
        controller.events.clear_changed_namespaces();
        controller.features.events = AsynchronousEventConfiguration(u32::MAX);
        controller
    }

    /// What the controller tells now.
    fn told(controller: &mut Controller) -> Vec<EventType> {
        for slot in 0..4 {
            controller.events.request(slot).expect("room");
        }
        let events = std::iter::from_fn(|| controller.next_event());
        let events = events.map(|(_, dword)| AsynchronousEvent::from_dword(dword).event);
        let events = events.collect();
        controller.events.reset();
        events
    }

    #[test]
    fn what_changed_back_before_it_was_told_is_told() {
        let mut controller = controller();
        assert_eq!(told(&mut controller), []);
        // The host may look while it is away, and keeps what it saw until it is told.
        controller.sees(vec![], vec![]);
        controller.sees(vec![NAMESPACE], vec![(1, AnaState::Optimized)]);
        controller.announce_changes();
        assert_eq!(
            told(&mut controller),
            [EventType::NamespaceAttributeChanged]
        );
        assert_eq!(controller.events.changed_namespaces(), [7]);
        controller.events.clear_changed_namespaces();
        controller.announce_changes();
        assert_eq!(told(&mut controller), []);
        for state in [AnaState::Inaccessible, AnaState::Optimized] {
            controller.sees(vec![NAMESPACE], vec![(1, state)]);
        }
        controller.announce_changes();
        assert_eq!(told(&mut controller), [EventType::AnaChange]);
        assert_eq!(controller.ana_changes, 1);
    }
}
