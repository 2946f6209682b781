//! What the home of a volume and its queues on other reactors know of each other, and the messages between them.
//!
//! The home is a task on the reactor that opened the volume; it owns the admin queue. Each queue is a task on its reactor.
//! They share no state in the I/O path: what changes is sent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use weir_block::{
    BlockSize, DeallocatedRead, FenceReply, Geometry, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::{Mailbox, Sender};

use crate::durability::Durability;
use crate::options::{HostIdentity, Options};
use crate::profile::{Identity, NamespaceError, Profile};

/// One association with a controller: from Connect on the admin queue to its end. It does not change; a new one has the
/// next generation.
#[derive(Debug, Clone)]
pub(crate) struct Association {
    /// Counts the associations of the volume from 1.
    pub(crate) generation: u64,
    /// Where the admin queue connected to, and the I/O queues are to.
    pub(crate) address: SocketAddr,
    /// CNTLID.
    pub(crate) controller_id: u16,
    /// The namespace.
    pub(crate) profile: Profile,
    /// The longest data that may go with an I/O command in its capsule (IOCCSZ).
    pub(crate) in_capsule_bytes: u32,
    /// Outstanding commands per I/O queue.
    pub(crate) depth: u16,
    /// I/O queues that the controller has for this host.
    pub(crate) queues: u16,
    /// Whether Disconnect deletes an I/O queue (OFCS).
    pub(crate) disconnect: bool,
    /// CRDT1 to CRDT3.
    pub(crate) retry_delays: [Duration; 3],
}

/// From the home to a queue.
#[derive(Debug, Clone)]
pub(crate) enum QueueMessage {
    /// Connect, and submit what waits.
    Up(Arc<Association>),
    /// Close every connection of this generation, and say so.
    Down(u64),
    /// No controller can execute a command of this generation any more.
    Fenced(u64),
    /// Say when nothing is left that was submitted until now and may change the volume.
    Fence(u64),
    /// The namespace is like this now; or it is gone.
    Profile(Option<Profile>),
    /// The volume has ended: nothing is retried, everything new fails.
    Ended,
}

/// To the home.
pub(crate) enum HomeMessage {
    /// A connection of this generation ended, or a command does not.
    Failed { generation: u64, reason: String },
    /// A queue has closed its connections of this generation.
    Closed { member: u64, generation: u64 },
    /// Abort a command of an I/O queue.
    Abort { generation: u64, qid: u16, cid: u16 },
    /// Nothing is left of what a fence waits for.
    FenceDone { member: u64, fence: u64 },
    /// A queue is no more.
    Left { member: u64 },
    /// Fence the volume.
    Fence(FenceReply),
    /// End the volume; say when it has.
    Close(Option<Sender<()>>),
}

/// A queue as the home sees it.
pub(crate) struct Member {
    pub(crate) id: u64,
    /// The I/O queues that it may connect: one connection each.
    pub(crate) qids: Vec<u16>,
    pub(crate) inbox: Arc<Mailbox<QueueMessage>>,
    /// Whether a command was answered since the home last looked.
    pub(crate) active: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    members: Vec<Arc<Member>>,
    qids_used: BTreeSet<u16>,
    /// I/O queues that the controller granted at last.
    queues: u16,
    next_member: u64,
    association: Option<Arc<Association>>,
    /// The namespace, or that it is gone.
    profile: Option<Profile>,
    ended: bool,
}

/// What all reactors know of a volume.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) identity: HostIdentity,
    /// I/O queues that are spread over the queues of the volume; each of these has at least one, also when there are more.
    pub(crate) queues_wanted: u16,
    /// I/O queues that one [`weir_block::Queue`] takes.
    pub(crate) queues_share: u16,
    pub(crate) home: Arc<Mailbox<HomeMessage>>,
    pub(crate) read_only: bool,
    pub(crate) durability: Durability,
    /// The namespace that the volume is; it stays that one.
    recognised: OnceLock<(Identity, BlockSize)>,
    geometry: Mutex<Geometry>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    state: Mutex<State>,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        identity: HostIdentity,
        reactors: u16,
        read_only: bool,
    ) -> Self {
        let queues_wanted = options.queues.unwrap_or(reactors).max(reactors);
        Shared {
            queues_share: queues_wanted.div_ceil(reactors),
            queues_wanted,
            options,
            identity,
            read_only,
            durability: Durability::default(),
            home: Mailbox::new(),
            recognised: OnceLock::new(),
            // Replaced before anybody sees it: a volume is not handed out before its first association.
            geometry: Mutex::new(Geometry {
                generation: 0,
                block_size: BlockSize::B512,
                blocks: 0,
                transfer_blocks_max: 1,
                transfer_blocks_optimal: 1,
                memory_alignment: 1,
                deallocate_blocks: 0,
                deallocated_read: DeallocatedRead::Unknown,
                volatile_cache: true,
                read_only,
                atomic_blocks: 1,
                atomic_blocks_power_fail: 1,
                compare_write_blocks: 0,
            }),
            watchers: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Refuses a namespace that is another one than the first that was seen.
    ///
    /// # Errors
    /// [`NamespaceError::Other`].
    pub(crate) fn recognise(&self, profile: &Profile) -> Result<(), NamespaceError> {
        let found = (profile.identity, profile.geometry.block_size);
        match *self.recognised.get_or_init(|| found) == found {
            true => Ok(()),
            false => Err(NamespaceError::Other {
                nsid: self.options.nsid,
            }),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        *lock(&self.geometry)
    }

    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(watcher);
    }

    pub(crate) fn tell_watchers(&self, event: VolumeEvent) {
        let watchers: Vec<_> = lock(&self.watchers)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        watchers.iter().for_each(|watcher| watcher.notice(event));
    }

    /// Writes that were acknowledged may be lost: from now on every Flush fails. Says so once.
    pub(crate) fn fail_flushes(&self, reason: &str) {
        if self.durability.fail() {
            tracing::error!(
                volume = %self.name(),
                "{reason}: what was written before may be lost; every flush fails until the volume is opened again"
            );
            self.tell_watchers(VolumeEvent::CacheLost);
        }
    }

    /// Takes over what the namespace is like; whether anything changed.
    fn set_geometry(&self, profile: &Profile) -> bool {
        let mut geometry = lock(&self.geometry);
        let next = Geometry {
            generation: geometry.generation,
            read_only: profile.geometry.read_only || self.read_only,
            ..profile.geometry
        };
        if *geometry == next {
            return false;
        }
        *geometry = Geometry {
            generation: geometry.generation + 1,
            ..next
        };
        true
    }

    /// Adds a queue and gives it its share of I/O queues.
    ///
    /// # Errors
    /// [`VolumeError::Busy`] when no I/O queue is left, [`VolumeError::Lost`] when the volume has ended.
    pub(crate) fn join(&self) -> Result<Arc<Member>, VolumeError> {
        let state = &mut *lock(&self.state);
        if state.ended {
            return Err(VolumeError::Lost);
        }
        let free =
            |qids: std::ops::RangeInclusive<u16>| qids.filter(|qid| !state.qids_used.contains(qid));
        let spread = free(1..=state.queues.min(self.queues_wanted));
        let mut qids: Vec<u16> = spread.take(self.queues_share.into()).collect();
        if qids.is_empty() {
            // One more than were meant to be: it shares nothing, but works.
            qids.extend(free(1..=state.queues).next());
        }
        if qids.is_empty() {
            tracing::warn!(
                volume = %self.name(), queues = state.queues,
                "every I/O queue that the controller grants is in use"
            );
            return Err(VolumeError::Busy);
        }
        state.qids_used.extend(&qids);
        state.next_member += 1;
        let member = Arc::new(Member {
            id: state.next_member,
            qids,
            inbox: Mailbox::new(),
            active: AtomicBool::new(false),
        });
        member.inbox.post(QueueMessage::Profile(state.profile));
        if let Some(association) = &state.association {
            member.inbox.post(QueueMessage::Up(Arc::clone(association)));
        }
        state.members.push(Arc::clone(&member));
        Ok(member)
    }

    /// Removes a queue. Its connections are closed.
    pub(crate) fn leave(&self, member: &Member) {
        let state = &mut *lock(&self.state);
        state.members.retain(|other| other.id != member.id);
        member.qids.iter().for_each(|qid| {
            state.qids_used.remove(qid);
        });
        self.home.post(HomeMessage::Left { member: member.id });
    }

    /// The queues that there are.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        lock(&self.state).members.clone()
    }

    /// The highest I/O queue in use; an association with fewer is of no use.
    pub(crate) fn queues_used(&self) -> u16 {
        lock(&self.state).qids_used.last().copied().unwrap_or(0)
    }

    /// Sends `message` to every queue; which ones.
    pub(crate) fn broadcast(&self, message: &QueueMessage) -> Vec<u64> {
        let state = lock(&self.state);
        send(&state, message)
    }

    /// Makes `association` the one to use, and tells every queue. Whether the geometry changed.
    pub(crate) fn set_up(&self, association: &Arc<Association>) -> bool {
        let changed = self.set_geometry(&association.profile);
        let state = &mut *lock(&self.state);
        state.queues = association.queues;
        state.profile = Some(association.profile);
        state.association = Some(Arc::clone(association));
        send(state, &QueueMessage::Profile(state.profile));
        send(state, &QueueMessage::Up(Arc::clone(association)));
        changed
    }

    /// Ends the association in use; the queues that are to close their connections.
    pub(crate) fn set_down(&self, generation: u64) -> Vec<u64> {
        let state = &mut *lock(&self.state);
        state.association = None;
        send(state, &QueueMessage::Down(generation))
    }

    /// Takes over what the namespace is like now. Whether the geometry changed, and whether it was there before.
    pub(crate) fn set_profile(&self, profile: Option<Profile>) -> (bool, bool) {
        let changed = profile.is_some_and(|profile| self.set_geometry(&profile));
        let state = &mut *lock(&self.state);
        let before = state.profile.is_some();
        state.profile = profile;
        send(state, &QueueMessage::Profile(profile));
        (changed, before)
    }

    /// Ends the volume for every queue, present and future.
    pub(crate) fn set_ended(&self) {
        let state = &mut *lock(&self.state);
        state.ended = true;
        send(state, &QueueMessage::Ended);
    }

    /// The volume as a person knows it.
    pub(crate) fn name(&self) -> String {
        let Options {
            host,
            port,
            subsystem,
            nsid,
            ..
        } = &self.options;
        match host.contains(':') {
            true => format!("nvme+tcp://[{host}]:{port}/{subsystem}?nsid={nsid}"),
            false => format!("nvme+tcp://{host}:{port}/{subsystem}?nsid={nsid}"),
        }
    }
}

fn send(state: &State, message: &QueueMessage) -> Vec<u64> {
    let tell = |member: &Arc<Member>| {
        member.inbox.post(message.clone());
        member.id
    };
    state.members.iter().map(tell).collect()
}

/// Locks `mutex`. What it guards is consistent between statements, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
