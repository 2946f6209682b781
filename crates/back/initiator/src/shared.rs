//! What the home of a volume and its queues on other reactors know of each other, and the messages between them.
//!
//! The home is a task on the reactor that opened the volume; it owns the admin queue. Each queue is a task on its reactor.
//! They share no state in the I/O path: what changes is sent.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    BlockSize, DeallocatedRead, FenceReply, Geometry, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::{Mailbox, Sender};

use crate::durability::Durability;
use crate::lock::lock;
use crate::options::Patience;
use crate::protocol::{Association, Protocol, RemoteOf};
use crate::remote::{Profile, Remote};

/// From the home to a queue.
pub(crate) enum QueueMessage<P: Protocol> {
    /// Connect, and submit what waits.
    Up(Arc<Association<P>>),
    /// Close every connection of this generation, and say so.
    Down(u64),
    /// No target can execute a command of this generation any more.
    Fenced(u64),
    /// Say when nothing is left that was submitted until now and may change the volume.
    Fence(u64),
    /// The medium is like this now; or it is gone.
    Profile(Option<Profile<P::Identity>>),
    /// The volume has ended: nothing is retried, everything new fails.
    Ended,
}

impl<P: Protocol> Clone for QueueMessage<P> {
    fn clone(&self) -> Self {
        match self {
            QueueMessage::Up(association) => QueueMessage::Up(Arc::clone(association)),
            QueueMessage::Down(generation) => QueueMessage::Down(*generation),
            QueueMessage::Fenced(generation) => QueueMessage::Fenced(*generation),
            QueueMessage::Fence(fence) => QueueMessage::Fence(*fence),
            QueueMessage::Profile(profile) => QueueMessage::Profile(profile.clone()),
            QueueMessage::Ended => QueueMessage::Ended,
        }
    }
}

/// To the home.
pub(crate) enum HomeMessage<P: Protocol> {
    /// A connection of this generation ended, or a command does not.
    Failed { generation: u64, reason: String },
    /// A queue has closed its connections of this generation.
    Closed { member: u64, generation: u64 },
    /// Abort a command of an I/O queue.
    Abort {
        generation: u64,
        qid: u16,
        tag: P::Tag,
    },
    /// The target says that the medium may have changed.
    Attention { generation: u64 },
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
pub(crate) struct Member<P: Protocol> {
    pub id: u64,
    /// The I/O queues that it may connect: one connection each.
    pub qids: Vec<u16>,
    pub inbox: Arc<Mailbox<QueueMessage<P>>>,
    /// Whether a command was answered since the home last looked.
    pub active: AtomicBool,
}

struct State<P: Protocol> {
    members: Vec<Arc<Member<P>>>,
    qids_used: BTreeSet<u16>,
    /// I/O queues that the target granted at last.
    queues: u16,
    next_member: u64,
    association: Option<Arc<Association<P>>>,
    /// The medium, or that it is gone.
    profile: Option<Profile<P::Identity>>,
    ended: bool,
}

/// All that reactors know of a volume in common.
pub(crate) struct Shared<P: Protocol> {
    pub(crate) remote: RemoteOf<P>,
    pub(crate) patience: Patience,
    /// Connections that one [`weir_block::Queue`] takes.
    pub(crate) queues_share: u16,
    pub(crate) home: Arc<Mailbox<HomeMessage<P>>>,
    pub(crate) read_only: bool,
    pub(crate) durability: Durability,
    geometry: Mutex<Geometry>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    state: Mutex<State<P>>,
}

impl<P: Protocol> Shared<P> {
    /// A volume that was not reached yet, to be used on up to `reactors` reactors. `queues` is how many connections for I/O are
    /// spread over these: at least one for each.
    pub(crate) fn new(
        options: P::Options,
        host: P::Host,
        queues: Option<u16>,
        reactors: u16,
        read_only: bool,
    ) -> Self {
        let queues_wanted = queues.unwrap_or(reactors).max(reactors);
        Shared {
            queues_share: queues_wanted.div_ceil(reactors),
            patience: P::common(&options).patience(),
            remote: Remote::new(options, host, queues_wanted),
            read_only,
            durability: Durability::default(),
            home: Mailbox::new(),
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
            state: Mutex::new(State {
                members: Vec::new(),
                qids_used: BTreeSet::new(),
                queues: 0,
                next_member: 0,
                association: None,
                profile: None,
                ended: false,
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

    /// Takes over what the medium is like; whether anything changed.
    fn set_geometry(&self, profile: &Profile<P::Identity>) -> bool {
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
    pub(crate) fn join(&self) -> Result<Arc<Member<P>>, VolumeError> {
        let state = &mut *lock(&self.state);
        if state.ended {
            return Err(VolumeError::Lost);
        }
        let free =
            |qids: std::ops::RangeInclusive<u16>| qids.filter(|qid| !state.qids_used.contains(qid));
        let spread = free(1..=state.queues.min(self.remote.queues_wanted));
        let mut qids: Vec<u16> = spread.take(self.queues_share.into()).collect();
        if qids.is_empty() {
            // One more than were meant to be: it shares nothing, but works.
            qids.extend(free(1..=state.queues).next());
        }
        if qids.is_empty() {
            tracing::warn!(
                volume = %self.name(), queues = state.queues,
                "every I/O queue that the target grants is in use"
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
        member
            .inbox
            .post(QueueMessage::Profile(state.profile.clone()));
        if let Some(association) = &state.association {
            member.inbox.post(QueueMessage::Up(Arc::clone(association)));
        }
        state.members.push(Arc::clone(&member));
        Ok(member)
    }

    /// Removes a queue. Its connections are closed.
    pub(crate) fn leave(&self, member: &Member<P>) {
        let state = &mut *lock(&self.state);
        state.members.retain(|other| other.id != member.id);
        member.qids.iter().for_each(|qid| {
            state.qids_used.remove(qid);
        });
        self.home.post(HomeMessage::Left { member: member.id });
    }

    /// The association in use.
    pub(crate) fn association(&self) -> Option<Arc<Association<P>>> {
        lock(&self.state).association.clone()
    }

    /// The queues that there are.
    pub(crate) fn members(&self) -> Vec<Arc<Member<P>>> {
        lock(&self.state).members.clone()
    }

    /// The highest I/O queue in use; an association with fewer is of no use.
    pub(crate) fn queues_used(&self) -> u16 {
        lock(&self.state).qids_used.last().copied().unwrap_or(0)
    }

    /// Sends `message` to every queue; which ones.
    pub(crate) fn broadcast(&self, message: &QueueMessage<P>) -> Vec<u64> {
        let state = lock(&self.state);
        send(&state, message)
    }

    /// Makes `association` the one to use, and tells every queue. Whether the geometry changed.
    pub(crate) fn set_up(&self, association: &Arc<Association<P>>) -> bool {
        let changed = self.set_geometry(&association.profile);
        let state = &mut *lock(&self.state);
        state.queues = association.queues;
        state.profile = Some(association.profile.clone());
        state.association = Some(Arc::clone(association));
        send(state, &QueueMessage::Profile(state.profile.clone()));
        send(state, &QueueMessage::Up(Arc::clone(association)));
        changed
    }

    /// Ends the association in use; the queues that are to close their connections.
    pub(crate) fn set_down(&self, generation: u64) -> Vec<u64> {
        let state = &mut *lock(&self.state);
        state.association = None;
        send(state, &QueueMessage::Down(generation))
    }

    /// Takes over what the medium is like now. Whether the geometry changed, and whether it was there before.
    pub(crate) fn set_profile(&self, profile: Option<Profile<P::Identity>>) -> (bool, bool) {
        let changed = profile
            .as_ref()
            .is_some_and(|profile| self.set_geometry(profile));
        let state = &mut *lock(&self.state);
        let before = state.profile.is_some();
        state.profile.clone_from(&profile);
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
        P::name(&self.remote.options)
    }
}

fn send<P: Protocol>(state: &State<P>, message: &QueueMessage<P>) -> Vec<u64> {
    let tell = |member: &Arc<Member<P>>| {
        member.inbox.post(message.clone());
        member.id
    };
    state.members.iter().map(tell).collect()
}
