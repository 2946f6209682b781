//! The commands of one submission queue: their slots, their data, their answers.
//!
//! A transport hands in each command ([`QueuePair::command`]), fills the landing of those that bring data, and takes out
//! [answers](QueuePair::answers), [data to ask for](QueuePair::next_fetch) and [effects](QueuePair::next_effect).
//! What a command of an I/O queue does is in [`super::nvm`], of an admin queue in [`super::controller`].

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{Completion, Landing, Operation, OperationKind, Request, Token, VolumeError};
use weir_front::{
    Account, Arrival, AtVolume, CommandKind, Commands, IoCounters, News, Reservations, Room, Run,
    Stage,
};
use weir_memory::{Pool, Segment, Segments, View, Views, copy_views, views_len};
use weir_nvme::command::{Connect, ConnectData, FabricsCommand};
use weir_nvme::opcode::FABRICS_OPCODE;
use weir_nvme::sgl::{Payload, SglDescriptor};
use weir_nvme::sqe::Fuse;
use weir_nvme::{Cqe, Sqe, Status};
use weir_reactor::Instant;
use weir_reservation::Registrant;

use super::controller::{AdminOutcome, AdminView, Controller};
use super::error_log::Failure;
use super::nvm::{DEALLOCATES_MAX, Space, Work, data_of};
use super::reserve;
use super::status::{of_ana_state, of_volume_error};
use crate::namespaces::{Attached, Namespaces};
use crate::snapshot::Namespace;

/// Index of a command's slot; TCP uses it as the transfer tag.
pub type SlotIndex = u16;

/// Slots of a queue beyond its depth. A host may reuse a tag at the success flag, a moment before its slot is free here.
const SPARE_SLOTS: usize = 8;
/// Answers that may always wait to be sent, however short the queue is.
const UNSENT_ANSWERS: usize = 256;
/// SQHD in the answer to a Connect whose wish for no SQ flow control is granted (NVMe Base 2.0c, section 6.3).
pub const FLOW_CONTROL_OFF: u16 = 0xffff;
/// Data that a Connect brings, in bytes.
const CONNECT_DATA_BYTES: u32 = ConnectData::SIZE as u32;

/// What the core may look at while it works on a command.
pub struct Env<'a> {
    /// What the host sees of its subsystem.
    pub namespaces: &'a Namespaces,
    /// Buffers for data that is not for a volume.
    pub pool: &'a Pool,
    /// The longest transfer (MDTS), in bytes.
    pub transfer_bytes_max: u32,
    /// In-capsule data that I/O commands may bring, in bytes.
    pub in_capsule_bytes: u32,
    /// In-capsule data that admin and Fabrics commands may bring, in bytes.
    pub admin_in_capsule_bytes: u32,
    /// Who the host is to reservations; none before it is known.
    pub registrant: Option<&'a Registrant>,
    /// Whether the host knows Command Retry Delay (ACRE of Host Behavior Support).
    pub retry_delay: bool,
    /// Where I/O of this queue is counted.
    pub counters: &'a IoCounters,
    /// What admin commands look at; none on other queues.
    pub admin: Option<&'a AdminView<'a>>,
}

/// What kind of queue it is.
pub enum QueueKind {
    /// No Connect was answered yet.
    Unconnected,
    /// An admin queue and its controller.
    Admin(Box<Controller>),
    /// An I/O queue.
    Io,
}

/// What the transport does with the data that came along with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There is none, or it is of no use: it is skipped.
    Skip,
    /// It belongs into this slot's landing.
    Fill(SlotIndex),
}

/// The place of the data that a command brings.
enum Incoming {
    /// Nowhere: there is none, or no buffer for it yet.
    None,
    /// In this landing.
    Landing(Segments),
    /// The segments in which it arrived.
    AsReceived(Views),
}

impl Incoming {
    /// Tells whether there is a landing.
    fn is_landing(&self) -> bool {
        matches!(self, Incoming::Landing(_))
    }
}

/// No slot for the command, or no buffer for the data that comes with it: offer it again after a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled;

/// A command's answer. Its slot is free again.
#[derive(Debug)]
pub struct Answer {
    /// The completion queue entry.
    pub cqe: Cqe,
    /// The data pointer of its command: where a transport with memory of the host's puts the data.
    pub sgl: SglDescriptor,
    /// Data for the host, before the entry.
    pub data: Views,
    /// Bytes of `data`. They are in the queue's [`Room`] until they have left.
    pub data_bytes: u32,
}

/// Data of a command that the transport must ask for, or fetch if it can access the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// The slot, whose landing it goes to.
    pub slot: SlotIndex,
    /// The command.
    pub cid: u16,
    /// The command's data pointer.
    pub sgl: SglDescriptor,
    /// Bytes.
    pub length: u32,
}

/// Something that a command asks for beyond its queue pair.
#[derive(Debug)]
pub enum Effect {
    /// A Connect whose answer is [`QueuePair::answer_waiting`].
    Connect {
        /// The command.
        slot: SlotIndex,
        /// Its fields.
        connect: Connect,
        /// Its data.
        data: Box<ConnectData>,
    },
    /// An Abort of a command of another queue; its answer is [`QueuePair::answer_waiting`].
    Abort {
        /// The Abort.
        slot: SlotIndex,
        /// The queue of the command that is to be aborted.
        sqid: u16,
        /// That command.
        cid: u16,
    },
    /// Reservations are to change; the answer is [`QueuePair::answer_waiting`].
    Reserve {
        /// The command.
        slot: SlotIndex,
        /// The reservations of its volume.
        reservations: Arc<Reservations>,
        /// What it asks for.
        operation: weir_reservation::Operation,
    },
    /// A report on reservations; the answer is [`QueuePair::answer_with_page`].
    ReservationReport {
        /// The command.
        slot: SlotIndex,
        /// The reservations of its volume.
        reservations: Arc<Reservations>,
        /// Bytes that the host wants.
        length: u32,
        /// EDS: with host identifiers of 128 bits.
        is_extended: bool,
    },
    /// The controller's I/O queues are to end; [`Controller::queues_ended`] is told when they have.
    EndQueues,
    /// The connection is to end once the answer has left.
    Disconnect,
}

/// What a slot's command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    /// A buffer for its data, which is asked for then.
    WaitsForBuffer,
    /// Data in its capsule.
    InCapsule,
    /// Data that is to be asked for.
    ToFetch,
    /// Data that was asked for.
    Fetching,
    /// The other one of its fused pair.
    Held,
    /// Its requests.
    Running,
    /// An answer from outside, or an event.
    Waiting,
    /// Answered already; data that was asked for may still come.
    Abandoned,
}

/// The fields that are kept of a command's submission queue entry.
#[derive(Debug, Clone, Copy, Default)]
struct Submitted {
    sgl: SglDescriptor,
    cid: u16,
    opcode: u8,
    nsid: u32,
    /// Command dwords 10 and 11.
    lba: u64,
}

impl Submitted {
    fn of(sqe: &Sqe) -> Self {
        Submitted {
            sgl: sqe.sgl,
            cid: sqe.cid,
            opcode: sqe.opcode,
            nsid: sqe.nsid,
            lba: u64::from(sqe.cdw11) << 32 | u64::from(sqe.cdw10),
        }
    }
}

/// A slot for one command.
pub struct Slot {
    pub(super) at: AtVolume<Namespace>,
    phase: Phase,
    sqe: Submitted,
    pub(super) work: Work,
    /// Ranges of a command that has several, once it has begun.
    pub(super) ranges: Option<View>,
    incoming: Incoming,
    /// Bytes that the host sends.
    pub(super) length: u32,
    /// Bytes of the host's buffer.
    buffer: u32,
    /// Bytes that are in the account for it.
    held: u32,
    /// Whether its data is in the queue's reserve.
    pub(super) reserve: bool,
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) partner: Option<SlotIndex>,
    /// Why the host may not do this any more, where the right to it was taken away while it ran: no further request of it begins.
    pub(super) revoked: Option<Status>,
}

impl weir_front::Slot for Slot {
    type Export = Namespace;

    #[inline]
    fn at_volume(&self) -> &AtVolume<Namespace> {
        &self.at
    }

    #[inline]
    fn at_volume_mut(&mut self) -> &mut AtVolume<Namespace> {
        &mut self.at
    }
}

impl Slot {
    fn new() -> Self {
        Slot {
            at: AtVolume::default(),
            phase: Phase::Free,
            sqe: Submitted::default(),
            work: Work::None,
            ranges: None,
            incoming: Incoming::None,
            length: 0,
            buffer: 0,
            held: 0,
            reserve: false,
            status: Status::SUCCESS,
            result: 0,
            partner: None,
            revoked: None,
        }
    }

    /// Makes it free.
    #[inline(always)]
    fn clear(&mut self) {
        assert_ne!(self.phase, Phase::Free, "a slot is released once");
        self.phase = Phase::Free;
        self.at.clear();
        self.work = Work::None;
        if self.ranges.is_some() {
            self.ranges = None;
        }
        self.partner = None;
        self.reserve = false;
        self.incoming = Incoming::None;
    }

    /// The place in which its volume wishes the data to be received. Data that is not for a volume is received into the pool.
    #[inline(always)]
    fn find_landing(&self) -> Option<Landing> {
        match self.work.space() {
            Space::Volume { lba, blocks } => Some(self.at.queue().landing(lba, blocks)),
            Space::None | Space::Buffer => None,
        }
    }
}

/// The first half of a fused pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fused {
    None,
    First(SlotIndex),
    /// The first was refused already.
    Refused,
}

/// One submission queue and its completion queue.
pub struct QueuePair {
    /// The kind of queue.
    pub kind: QueueKind,
    qid: u16,
    slots: Commands<Slot>,
    free: Vec<SlotIndex>,
    /// By the low bits of a CID: the slot of the latest command with such a CID. A power of two of them, as many as slots at least.
    by_cid: Vec<SlotIndex>,
    to_fetch: VecDeque<SlotIndex>,
    waiting_for_buffer: VecDeque<SlotIndex>,
    /// Slots whose data was asked for and has not come.
    fetching: u32,
    /// Those of them that were answered already: their hosts may never send it.
    abandoned: u32,
    answers: Vec<Answer>,
    effects: VecDeque<Effect>,
    failures: Vec<Failure>,
    fused: Fused,
    reserve: Option<Segment>,
    reserve_out: bool,
    /// Bytes that the reserve has room for at least.
    reserve_bytes: usize,
    entries: u32,
    head: u32,
    flow_control: bool,
    /// Its data in flight: of commands, and of answers until their send has ended.
    room: Room,
    is_stalled_for_bytes: bool,
}

impl QueuePair {
    /// A queue pair before its Connect. `owner` names it in the tokens of its requests.
    pub fn new(owner: u32) -> Self {
        let mut queue = QueuePair {
            kind: QueueKind::Unconnected,
            qid: 0,
            slots: Commands::new(owner),
            free: Vec::new(),
            by_cid: Vec::new(),
            to_fetch: VecDeque::new(),
            waiting_for_buffer: VecDeque::new(),
            fetching: 0,
            abandoned: 0,
            answers: Vec::new(),
            effects: VecDeque::new(),
            failures: Vec::new(),
            fused: Fused::None,
            reserve: None,
            reserve_out: false,
            reserve_bytes: 0,
            entries: 1,
            head: 0,
            flow_control: false,
            room: Room::new(&Account::new(u64::MAX), u64::MAX, 0),
            is_stalled_for_bytes: false,
        };
        queue.set_slots(1);
        queue
    }

    /// Bounds its data in flight from now on, before there is any; see [`Room::new`].
    pub fn bound_bytes(&mut self, account: &Rc<Account>, bytes_max: u64, bytes_alone: u32) {
        self.room = Room::new(account, bytes_max, bytes_alone);
    }

    /// Its data in flight. Who sends its answers gives back their bytes when they have left.
    pub fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    /// Tells whether commands wait for room, or for a buffer.
    pub fn lacks_something(&self) -> bool {
        self.waits_for_buffer() || self.is_stalled_for_bytes
    }

    /// Tells whether a command with data in its capsule, offered again and again, lacks room and no buffer.
    pub fn is_stalled_for_bytes(&self) -> bool {
        self.is_stalled_for_bytes
    }

    /// The command that was [`Stalled`] is not offered for now, or never again.
    pub fn forget_stalled(&mut self) {
        self.is_stalled_for_bytes = false;
    }

    /// Whether answers that were not sent are so long that an admin command, whose answer's length is not known before, may
    /// not be taken in. (Commands of I/O queues wait in their slots.)
    #[inline]
    pub fn is_full(&self) -> bool {
        matches!(self.kind, QueueKind::Admin(_)) && self.room.is_full()
    }

    /// Tells whether that is so because of what other queues have.
    #[inline]
    pub fn is_full_of_others(&self) -> bool {
        matches!(self.kind, QueueKind::Admin(_)) && self.room.is_full_of_others()
    }

    /// The time that it was told last.
    pub fn now(&self) -> Instant {
        self.slots.now()
    }

    /// Its commands, as far as volumes work for them.
    pub fn commands(&mut self) -> &mut Commands<Slot> {
        &mut self.slots
    }

    /// Answers of a queue of so many entries that wait to be sent at worst.
    pub fn answers_bound(entries: usize) -> usize {
        (2 * (entries + SPARE_SLOTS)).max(UNSENT_ANSWERS)
    }

    /// Bytes that a queue of so many entries takes at worst, without data; lists grow to `slack` times what is in them.
    pub fn memory_bytes(entries: usize, slack: usize) -> usize {
        let slots = entries + SPARE_SLOTS;
        let answers = Self::answers_bound(entries);
        let indices = 4 * size_of::<SlotIndex>();
        // Where a volume does not take them, or takes them late.
        let request = size_of::<Request>() + 2 * size_of::<Token>() + size_of::<Instant>();
        let requests = (slots + DEALLOCATES_MAX as usize) * request;
        let failures = super::ErrorLog::ENTRIES * size_of::<Failure>();
        let lists = answers * (size_of::<Answer>() + size_of::<Run>()) + failures;
        slots * (size_of::<Slot>() + indices) + slack * (requests + lists) + size_of::<Controller>()
    }

    fn set_slots(&mut self, slots: usize) {
        let from = self.slots.len();
        self.slots.resize_with(slots, Slot::new);
        self.free
            .extend((from..self.slots.len()).rev().map(|slot| slot as SlotIndex));
        self.by_cid.resize(self.slots.len().next_power_of_two(), 0);
        self.answers.reserve(slots);
        self.to_fetch.reserve(slots);
    }

    /// The Connect was granted: the queue has `entries` entries. `reserve` is a buffer for in-capsule data when there is no
    /// other.
    pub fn connected(
        &mut self,
        kind: QueueKind,
        qid: u16,
        entries: u32,
        flow_control: bool,
        reserve: Option<Segment>,
    ) {
        self.kind = kind;
        self.qid = qid;
        self.entries = entries;
        self.flow_control = flow_control;
        self.head = 1 % entries;
        self.reserve_out = reserve.is_none() && matches!(self.kind, QueueKind::Io);
        self.reserve_bytes = reserve.as_ref().map_or(0, Segment::capacity);
        self.reserve = reserve;
        self.set_slots(entries as usize + SPARE_SLOTS);
    }

    /// The controller of an admin queue.
    pub fn controller(&mut self) -> Option<&mut Controller> {
        match &mut self.kind {
            QueueKind::Admin(controller) => Some(controller),
            QueueKind::Unconnected | QueueKind::Io => None,
        }
    }

    /// Whether a command can be taken in.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Answers that are ready to be sent, in order. Who writes them takes them out.
    pub fn answers(&mut self) -> &mut Vec<Answer> {
        &mut self.answers
    }

    /// Tells whether there are answers, or data to ask for.
    #[inline]
    pub fn has_output(&self) -> bool {
        !(self.answers.is_empty() && self.to_fetch.is_empty())
    }

    /// Number of answers that are ready to be sent.
    pub fn answers_ready(&self) -> usize {
        self.answers.len()
    }

    /// Answers that may wait to be sent, wherever they are, before no more commands are taken in.
    pub fn answers_max(&self) -> usize {
        (2 * self.slots.len()).max(UNSENT_ANSWERS)
    }

    /// Whether data was asked for that has not come.
    pub fn is_fetching(&self) -> bool {
        self.fetching > 0
    }

    /// Whether data was asked for that the host is likely to send next.
    pub fn expects_data(&self) -> bool {
        self.fetching > self.abandoned
    }

    /// Commands in the queue.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Commands in the queue but for those that wait for events.
    pub fn busy(&self) -> usize {
        let events = match &self.kind {
            QueueKind::Admin(controller) => controller.event_requests(),
            QueueKind::Unconnected | QueueKind::Io => 0,
        };
        self.in_flight() - events
    }

    /// Number of requests on volumes that have not ended.
    pub fn requests_running(&self) -> u32 {
        self.slots.running()
    }

    /// Takes a command in. `payload` is where its data is, or the status that refuses its data pointer; `all_here`: the
    /// data in its capsule has arrived.
    #[inline(always)]
    pub fn command(
        &mut self,
        sqe: &Sqe,
        payload: Result<Payload, Status>,
        all_here: bool,
        arrival: Arrival,
        env: &Env<'_>,
    ) -> Result<Next, Stalled> {
        self.is_stalled_for_bytes = false;
        let Some(&slot) = self.free.last() else {
            return Err(Stalled);
        };
        let planned = if self.is_in_flight(sqe.cid) {
            Err(Status::COMMAND_ID_CONFLICT)
        } else {
            payload.and_then(|payload| self.plan(slot, sqe, payload, env).map(|()| payload))
        };
        let payload = match planned {
            Ok(payload) => payload,
            Err(status) => return Ok(self.refuse(sqe, status)),
        };
        let entry = &self.slots[usize::from(slot)];
        let mut phase = Phase::Running;
        if entry.length > 0 {
            phase = Phase::WaitsForBuffer;
            if matches!(payload, Payload::InCapsule { length: 1.. }) {
                if !self.make_room(slot, all_here, env) {
                    self.forget_plan(slot);
                    if self.first_holds_reserve() && !self.is_stalled_for_bytes {
                        return Ok(self.refuse(sqe, Status::COMMAND_INTERRUPTED));
                    }
                    return Err(Stalled);
                }
                phase = Phase::InCapsule;
            }
        }
        let (by_cid, now) = (self.index_by_cid(sqe.cid), self.now());
        self.by_cid[by_cid] = slot;
        let (_, entry) = self.take_slot(sqe);
        entry.phase = phase;
        entry.buffer = match payload {
            Payload::Transport { length } => length,
            Payload::None | Payload::InCapsule { .. } => 0,
        };
        entry.at.course.begin(arrival, sqe.nsid, now);
        if self.fused != Fused::None || sqe.fuse != Fuse::Normal {
            self.settle_fused(sqe, Some(slot));
            if self.slots[usize::from(slot)].phase == Phase::Free {
                return Ok(Next::Skip);
            }
        }
        self.begin(slot, phase, sqe.fuse, env);
        Ok(match phase {
            Phase::InCapsule => Next::Fill(slot),
            _ => Next::Skip,
        })
    }

    #[inline]
    fn index_by_cid(&self, cid: u16) -> usize {
        usize::from(cid) & (self.by_cid.len() - 1)
    }

    /// Whether a command with this CID has no answer yet. Only the latest of those whose low bits are the same is looked at: how many
    /// are searched is the controller's affair (NVMe Base 2.0c, section 3.3.3.2.1.1, Command ID Conflict), and of hosts that
    /// number their commands by the entries of the queue it is the only one.
    #[inline]
    fn is_in_flight(&self, cid: u16) -> bool {
        let latest = &self.slots[usize::from(self.by_cid[self.index_by_cid(cid)])];
        latest.sqe.cid == cid && !matches!(latest.phase, Phase::Free | Phase::Abandoned)
    }

    /// Answers a command that may not run.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, sqe: &Sqe, status: Status) -> Next {
        let (slot, _) = self.take_slot(sqe);
        self.settle_fused(sqe, None);
        self.finish(slot, status);
        Next::Skip
    }

    /// Sets a command going that does not wait for data in its capsule. One that needs room waits behind those of its queue that
    /// do, for short ones could take what comes back before there is enough for a long one.
    #[inline]
    fn begin(&mut self, slot: SlotIndex, phase: Phase, fuse: Fuse, env: &Env<'_>) {
        match phase {
            Phase::Running if !self.may_begin(slot, env) => self.wait_for_buffer(slot),
            Phase::Running => self.run(slot, env),
            // Its data is asked for when its second half is there.
            Phase::WaitsForBuffer if fuse == Fuse::First => {
                self.slots[usize::from(slot)].phase = Phase::Held;
            }
            Phase::WaitsForBuffer if self.waits_for_buffer() && !self.is_part_of_held(slot) => {
                self.wait_for_buffer(slot);
            }
            Phase::WaitsForBuffer => self.ask_for_buffer(slot, env),
            _ => {}
        }
    }

    fn wait_for_buffer(&mut self, slot: SlotIndex) {
        self.slots[usize::from(slot)].phase = Phase::WaitsForBuffer;
        self.waiting_for_buffer.push_back(slot);
    }

    /// Whether a command that brings no data may run before those that wait.
    #[inline]
    fn may_begin(&mut self, slot: SlotIndex, env: &Env<'_>) -> bool {
        if !self.slots[usize::from(slot)].work.only_reads() {
            return true;
        }
        !self.waits_for_buffer() && self.take_room(slot, env)
    }

    /// Takes room for the data that a read is to yield, or for what a Verify reads at a time.
    #[inline]
    fn take_room(&mut self, slot: SlotIndex, env: &Env<'_>) -> bool {
        let entry = &mut self.slots[usize::from(slot)];
        let bytes = match entry.work {
            Work::Read { .. } | Work::ReservationReport { .. } => entry.buffer,
            _ => entry.verify_step_bytes(env),
        };
        let taken = self.room.take(u64::from(bytes));
        if taken {
            entry.held = bytes;
        }
        taken
    }

    /// Reads a command into its slot, which is not taken yet: what it does, and what it needs. Or the status that refuses it.
    #[inline]
    fn plan(
        &mut self,
        slot: SlotIndex,
        sqe: &Sqe,
        payload: Payload,
        env: &Env<'_>,
    ) -> Result<(), Status> {
        let entry = &mut self.slots[usize::from(slot)];
        match &self.kind {
            QueueKind::Io if !sqe.is_fabrics() => entry.plan_nvm(sqe, payload, env),
            kind => {
                (entry.work, entry.length) = if sqe.is_fabrics() {
                    plan_fabrics(kind, sqe, payload)?
                } else if let QueueKind::Admin(controller) = kind {
                    controller.plan(sqe)?
                } else {
                    return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
                };
                check_payload(entry.length, payload, env.admin_in_capsule_bytes)
            }
        }
    }

    /// The command whose plan is in this slot does not get it.
    #[inline]
    fn forget_plan(&mut self, slot: SlotIndex) {
        let entry = &mut self.slots[usize::from(slot)];
        entry.work = Work::None;
        entry.at.attached = None;
    }

    #[inline]
    fn advance_head(&mut self) {
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
        }
    }

    /// Answers a command without giving it a slot.
    pub fn refuse_without_slot(&mut self, sqe: &Sqe, status: Status) -> Cqe {
        self.advance_head();
        self.settle_fused(sqe, None);
        self.forget_stalled();
        let mut status = status;
        // As in `finish`.
        if !matches!(self.kind, QueueKind::Unconnected) {
            status = status.with_more();
            if self.failures.len() < super::ErrorLog::ENTRIES {
                let failure = failure_of(self.qid, &Submitted::of(sqe), status);
                self.failures.push(failure);
            }
        }
        let head = match self.flow_control {
            true => self.head as u16,
            false => 0,
        };
        Cqe::new(sqe.cid, head, status)
    }

    #[inline]
    fn take_slot(&mut self, sqe: &Sqe) -> (SlotIndex, &mut Slot) {
        let slot = self.free.pop().expect("the transport asked for room");
        self.advance_head();
        let entry = &mut self.slots[usize::from(slot)];
        assert_eq!(entry.phase, Phase::Free, "a free slot is free");
        entry.phase = Phase::Waiting;
        entry.sqe = Submitted::of(sqe);
        entry.status = Status::SUCCESS;
        entry.revoked = None;
        entry.result = 0;
        entry.at.course.forget();
        (slot, entry)
    }

    /// Finds room for the data in a capsule, or none: it is offered again.
    #[inline]
    fn make_room(&mut self, slot: SlotIndex, all_here: bool, env: &Env<'_>) -> bool {
        let beside = self.slots[usize::from(slot)].work.copy_step_bytes(env);
        self.is_stalled_for_bytes = beside > 0 && !self.room.take(u64::from(beside));
        if self.is_stalled_for_bytes {
            return false;
        }
        let found = self.find_room(slot, all_here, env);
        if beside > 0 {
            if found {
                self.slots[usize::from(slot)].held = beside;
            } else {
                self.room.give_back(u64::from(beside));
            }
        }
        found
    }

    #[inline]
    fn find_room(&mut self, slot: SlotIndex, all_here: bool, env: &Env<'_>) -> bool {
        let entry = &mut self.slots[usize::from(slot)];
        let landing = entry.find_landing();
        // What other connections receive into must not be held for as long as a host likes: until the rest of the data
        // comes, or the second half of a fused pair; nor behind requests that the volume has not taken.
        let soon = all_here && !entry.work.is_fused();
        if soon && matches!(landing, Some(Landing::Anywhere)) && !entry.at.queue().is_held_up() {
            entry.incoming = Incoming::AsReceived(Views::new());
            return true;
        }
        if self.room.may_take_buffers() {
            let landing = landing.unwrap_or(Landing::Anywhere);
            if let Some(place) = self.room.place(landing, entry.length as usize, env.pool) {
                entry.incoming = Incoming::Landing(place);
                self.room.grant();
                return true;
            }
        }
        // There is none, or others wait: it has its reserve.
        self.take_reserve(slot)
    }

    /// Whether the first half of a fused pair has the reserve, so that its second half could wait for it for ever.
    fn first_holds_reserve(&self) -> bool {
        matches!(self.fused, Fused::First(first) if self.slots[usize::from(first)].reserve)
    }

    /// Finds buffers for data that commands of one length bring, by the bounds and in turn: for all of them or for none. The halves of
    /// a fused pair are asked for together, for each of them could have what the other, or another pair's, waits for.
    #[inline(always)]
    fn take_buffers(&mut self, slots: &[SlotIndex], env: &Env<'_>) -> bool {
        if !self.room.may_take_buffers() {
            return false;
        }
        let first = &self.slots[usize::from(slots[0])];
        let length = first.length;
        let held = length + first.work.copy_step_bytes(env);
        let bytes = slots.len() as u64 * u64::from(held);
        if !self.room.take(bytes) {
            return false;
        }
        for &slot in slots {
            let entry = &mut self.slots[usize::from(slot)];
            assert_eq!(entry.length, length, "halves of a pair are of one range");
            let landing = entry.find_landing().unwrap_or(Landing::Anywhere);
            let Some(place) = self.room.place(landing, length as usize, env.pool) else {
                self.room.give_back(bytes);
                for &slot in slots {
                    let entry = &mut self.slots[usize::from(slot)];
                    (entry.incoming, entry.held) = (Incoming::None, 0);
                }
                return false;
            };
            entry.incoming = Incoming::Landing(place);
            entry.held = held;
        }
        true
    }

    /// The other half of this one's pair, where its data was not asked for either.
    fn held_with(&self, slot: SlotIndex) -> Option<SlotIndex> {
        let partner = self.slots[usize::from(slot)].partner?;
        let other = &self.slots[usize::from(partner)];
        (other.phase == Phase::Held && !other.incoming.is_landing()).then_some(partner)
    }

    /// Whether it belongs to a pair whose other half has its room already, so that it may not wait for its own.
    fn is_part_of_held(&self, slot: SlotIndex) -> bool {
        self.slots[usize::from(slot)].partner.is_some() && self.held_with(slot).is_none()
    }

    fn ask_for_buffer(&mut self, slot: SlotIndex, env: &Env<'_>) {
        let entry = &self.slots[usize::from(slot)];
        if entry.work.only_reads() {
            if self.take_room(slot, env) {
                self.slots[usize::from(slot)].phase = Phase::Running;
                self.run(slot, env);
            } else {
                self.waiting_for_buffer.push_back(slot);
            }
            return;
        }
        if entry.partner.is_some() {
            return self.ask_for_buffer_of_pair(slot, env);
        }
        if self.take_buffers(&[slot], env) {
            self.fetch(slot);
        } else {
            self.wait_for_buffer(slot);
        }
    }

    /// As [`QueuePair::ask_for_buffer`], for half of a fused pair.
    #[cold]
    #[inline(never)]
    fn ask_for_buffer_of_pair(&mut self, slot: SlotIndex, env: &Env<'_>) {
        if let Some(first) = self.held_with(slot) {
            if self.take_buffers(&[first, slot], env) {
                self.fetch(first);
                self.fetch(slot);
            } else {
                self.wait_for_buffer(slot);
            }
            return;
        }
        // Its pair's other half has its room already, so that it may not wait for its own.
        if self.take_buffers(&[slot], env) || self.take_reserve(slot) {
            self.fetch(slot);
        } else {
            self.interrupt_pair(slot);
        }
    }

    /// Has the data of a command asked for, whose landing is there.
    #[inline]
    fn fetch(&mut self, slot: SlotIndex) {
        let now = self.now();
        let entry = &mut self.slots[usize::from(slot)];
        entry.phase = Phase::ToFetch;
        entry.at.course.spend(Stage::Queue, now);
        self.to_fetch.push_back(slot);
    }

    /// Has a command's data received into the reserve, where that is there and long enough.
    fn take_reserve(&mut self, slot: SlotIndex) -> bool {
        let entry = &mut self.slots[usize::from(slot)];
        let length = entry.length as usize;
        let fits = |reserve: &mut Segment| reserve.capacity() >= length;
        let Some(mut reserve) = self.reserve.take_if(fits) else {
            return false;
        };
        reserve.set_len(length);
        self.reserve_out = true;
        entry.reserve = true;
        entry.incoming = Incoming::Landing(list_of(reserve));
        true
    }

    /// Ends a pair of which one half has its room, and this one would have to wait for its own: many such would wait for each other.
    #[cold]
    fn interrupt_pair(&mut self, slot: SlotIndex) {
        let status = Status::COMMAND_INTERRUPTED;
        let partner = self.slots[usize::from(slot)]
            .partner
            .expect("half of a pair");
        if self.slots[usize::from(partner)].phase == Phase::InCapsule {
            // It keeps its slot until all of it is there, and then fails together with this one.
            self.slots[usize::from(slot)].phase = Phase::Held;
            self.slots[usize::from(partner)].status = status;
        } else {
            self.fail_with_partner(slot, status);
        }
    }

    /// Looks for buffers for the commands that wait for one, in their order.
    pub fn retry_buffers(&mut self, env: &Env<'_>) {
        for _ in 0..self.waiting_for_buffer.len() {
            let Some(slot) = self.waiting_for_buffer.pop_front() else {
                return;
            };
            self.ask_for_buffer(slot, env);
            if self.waiting_for_buffer.back() == Some(&slot) {
                // Those behind it wait for the same thing; keep the order.
                self.waiting_for_buffer.rotate_right(1);
                return;
            }
            self.room.grant();
        }
    }

    /// Whether a command waits for a buffer.
    pub fn waits_for_buffer(&self) -> bool {
        !self.waiting_for_buffer.is_empty()
    }

    /// Where in its landing the data of a slot at `offset` goes: the rest of one segment. Empty: it is not kept.
    #[inline]
    pub fn landing_at(&mut self, slot: SlotIndex, offset: usize) -> &mut [u8] {
        let Incoming::Landing(landing) = &mut self.slots[usize::from(slot)].incoming else {
            return &mut [];
        };
        let mut start = 0;
        for segment in landing {
            let length = segment.len();
            if offset < start + length {
                return &mut segment[offset - start..];
            }
            start += length;
        }
        &mut []
    }

    /// Where the data of a slot is kept as it arrives, if it is.
    #[inline]
    pub fn received(&mut self, slot: SlotIndex) -> Option<&mut Views> {
        match &mut self.slots[usize::from(slot)].incoming {
            Incoming::AsReceived(views) => Some(views),
            Incoming::Landing(_) | Incoming::None => None,
        }
    }

    /// Takes out the segment of a landing that `offset` is in, to be received into: the segment, its index and the offset in
    /// it. [`QueuePair::put_segment`] puts it back.
    #[inline]
    pub fn take_segment(
        &mut self,
        slot: SlotIndex,
        offset: usize,
    ) -> Option<(Segment, usize, usize)> {
        let Incoming::Landing(landing) = &mut self.slots[usize::from(slot)].incoming else {
            return None;
        };
        let mut start = 0;
        for index in 0..landing.len() {
            let length = landing[index].len();
            if offset < start + length {
                // Most often it is the only one.
                let segment = match landing.len() {
                    1 => landing.pop()?,
                    _ => landing.remove(index),
                };
                return Some((segment, index, offset - start));
            }
            start += length;
        }
        None
    }

    /// Puts a segment back that [`QueuePair::take_segment`] took out.
    #[inline]
    pub fn put_segment(&mut self, slot: SlotIndex, index: usize, segment: Segment) {
        // The command may have been given up meanwhile, and its buffer with it.
        if let Incoming::Landing(landing) = &mut self.slots[usize::from(slot)].incoming {
            if index == landing.len() {
                landing.push(segment);
            } else {
                landing.insert(index, segment);
            }
        }
    }

    /// The next command whose data is to be asked for.
    #[inline]
    pub fn next_fetch(&mut self) -> Option<Fetch> {
        let slot = self.to_fetch.pop_front()?;
        let entry = &mut self.slots[usize::from(slot)];
        assert_eq!(entry.phase, Phase::ToFetch, "data is asked for once");
        entry.phase = Phase::Fetching;
        self.fetching += 1;
        Some(Fetch {
            slot,
            cid: entry.sqe.cid,
            sgl: entry.sqe.sgl,
            length: entry.length,
        })
    }

    /// The CID and length of data that was asked for under `slot`.
    #[inline]
    pub fn fetching(&self, slot: SlotIndex) -> Option<(u16, u32)> {
        let entry = self.slots.get(usize::from(slot))?;
        matches!(entry.phase, Phase::Fetching | Phase::Abandoned)
            .then_some((entry.sqe.cid, entry.length))
    }

    /// Whether data was asked for under `slot` that the host is to send: whose command was not answered meanwhile.
    pub fn is_owed(&self, slot: SlotIndex) -> bool {
        let entry = self.slots.get(usize::from(slot));
        entry.is_some_and(|entry| entry.phase == Phase::Fetching)
    }

    /// All the data of a command is in its landing.
    #[inline]
    pub fn filled(&mut self, slot: SlotIndex, env: &Env<'_>) {
        self.count_fetched(slot);
        let now = self.now();
        let entry = &mut self.slots[usize::from(slot)];
        entry.at.course.spend(Stage::WireIn, now);
        match entry.phase {
            Phase::Abandoned => self.release(slot),
            Phase::InCapsule if !entry.status.is_success() => {
                // Its namespace went while it was arriving.
                let status = entry.status;
                entry.phase = Phase::Running;
                self.fail_with_partner(slot, status);
            }
            Phase::InCapsule | Phase::Fetching if entry.work.is_fused() => {
                entry.phase = Phase::Held;
                self.run_fused(slot);
            }
            Phase::InCapsule | Phase::Fetching => {
                entry.phase = Phase::Running;
                self.run(slot, env);
            }
            other => unreachable!("data for a command in phase {other:?}"),
        }
    }

    #[inline]
    fn count_fetched(&mut self, slot: SlotIndex) {
        let phase = self.slots[usize::from(slot)].phase;
        self.fetching -= u32::from(matches!(phase, Phase::Fetching | Phase::Abandoned));
        self.abandoned -= u32::from(phase == Phase::Abandoned);
    }

    /// The data of a command arrived damaged: it alone fails.
    pub fn damaged(&mut self, slot: SlotIndex) {
        self.count_fetched(slot);
        let entry = &mut self.slots[usize::from(slot)];
        if entry.phase == Phase::Abandoned {
            self.release(slot);
            return;
        }
        entry.phase = Phase::Running;
        self.fail_with_partner(slot, Status::TRANSIENT_TRANSPORT_ERROR);
    }

    /// What the host sees has changed. Commands that wait for the host, and that would be refused now, fail: by what it does not send
    /// a host must not keep a volume that was removed, and what comes late must not write where nothing is to be written any more.
    /// Those that run, and would be refused, begin no further request, and what of them has not begun on a volume is cancelled.
    pub fn let_go(&mut self, env: &Env<'_>) {
        for index in 0..self.slots.len() {
            let entry = &self.slots[index];
            let Some(namespace) = &entry.at.attached else {
                continue;
            };
            // Of a pair that waits for its volume, the other half runs for both.
            if matches!(entry.phase, Phase::Running | Phase::Waiting) {
                continue;
            }
            let now = env.namespaces.get(entry.sqe.nsid);
            if let Some(status) = refusal_now(&entry.work, namespace, now, env.registrant) {
                self.let_go_of(index as SlotIndex, status);
            }
        }
        let revoked = self.revoke(env.namespaces, env.registrant);
        self.end_revoked(&revoked, env);
    }

    /// Takes back what volumes do not have yet of these slots, and has the rest end early.
    fn end_revoked(&mut self, revoked: &[usize], env: &Env<'_>) {
        for request in self.slots.withdraw(revoked) {
            let Request { token, operation } = request;
            let now = self.now();
            let entry = self.slot(token.slot as SlotIndex);
            entry.at.course.spend(Stage::Queue, now);
            let result = Err(VolumeError::Cancelled);
            self.completed(
                Completion {
                    token,
                    result,
                    operation,
                },
                env,
            );
        }
        self.slots.end_early(revoked);
    }

    /// Reservations changed. Commands that may not be done any more end as far as that can be had, and the change is answered when
    /// the rest of them has ended.
    pub fn rights_changed(&mut self, news: &Arc<News>, env: &Env<'_>) {
        if env.registrant.is_some_and(|host| news.aborts(host)) {
            self.abort_preempted(news, env);
        }
        self.let_go(env);
        self.keep_news(news, env.namespaces, env.registrant);
    }

    /// Aborts all commands on a volume (Preempt and Abort).
    fn abort_preempted(&mut self, news: &Arc<News>, env: &Env<'_>) {
        let status = Status::ABORTED_PREEMPT_AND_ABORT.with_do_not_retry();
        let mut running = Vec::new();
        for index in 0..self.slots.len() {
            let entry = &mut self.slots[index];
            if !is_of(entry, news) {
                continue;
            }
            match entry.phase {
                Phase::Waiting => {}
                Phase::Running => {
                    entry.revoked.get_or_insert(status);
                    running.push(index);
                }
                _ => self.let_go_of(index as SlotIndex, status),
            }
        }
        for &slot in &running {
            self.slots.revoke(slot);
        }
        self.end_revoked(&running, env);
    }

    /// Has the commands that run and may not, or were to be aborted, keep the news of that until they have ended.
    pub fn keep_news(
        &mut self,
        news: &Arc<News>,
        namespaces: &Namespaces,
        registrant: Option<&Registrant>,
    ) {
        let aborts = registrant.is_some_and(|host| news.aborts(host));
        for index in 0..self.slots.len() {
            let entry = &self.slots[index];
            let Some(namespace) = entry.at.attached.as_ref().filter(|_| is_of(entry, news)) else {
                continue;
            };
            let now = namespaces.get(entry.sqe.nsid);
            if aborts || refusal_now(&entry.work, namespace, now, registrant).is_some() {
                self.slots.keep_news(index, news);
            }
        }
    }

    /// Marks the commands that run and would be refused now. Those that were not marked before.
    pub fn revoke(
        &mut self,
        namespaces: &Namespaces,
        registrant: Option<&Registrant>,
    ) -> Vec<usize> {
        let mut revoked = Vec::new();
        for (index, entry) in self.slots.iter_mut().enumerate() {
            let Some(namespace) = &entry.at.attached else {
                continue;
            };
            let is_new = entry.phase == Phase::Running && entry.revoked.is_none();
            let now = namespaces.get(entry.sqe.nsid);
            if is_new && let Some(status) = refusal_now(&entry.work, namespace, now, registrant) {
                entry.revoked = Some(status);
                revoked.push(index);
            }
        }
        for &slot in &revoked {
            self.slots.revoke(slot);
        }
        revoked
    }

    fn let_go_of(&mut self, slot: SlotIndex, status: Status) {
        let is_arriving = |slot: &Slot| slot.phase == Phase::InCapsule;
        let entry = &self.slots[usize::from(slot)];
        let partner = entry
            .partner
            .map(|partner| &self.slots[usize::from(partner)]);
        // What is arriving in a capsule keeps its slot until all of it is there, and fails then, with the other half of its pair.
        if !is_arriving(entry) && !partner.is_some_and(is_arriving) {
            return self.fail_with_partner(slot, status);
        }
        let entry = &mut self.slots[usize::from(slot)];
        entry.at.attached = None;
        if is_arriving(entry) {
            entry.status = status;
        }
        if entry.phase == Phase::WaitsForBuffer {
            entry.phase = Phase::Held;
            self.waiting_for_buffer.retain(|other| *other != slot);
        }
    }

    fn fail_with_partner(&mut self, slot: SlotIndex, status: Status) {
        if self.fused == Fused::First(slot) {
            self.fused = Fused::Refused;
        }
        let partner = self.slots[usize::from(slot)].partner;
        self.finish(slot, status);
        if let Some(partner) = partner {
            self.slots[usize::from(partner)].partner = None;
            self.finish(partner, Status::ABORTED_FAILED_FUSED_COMMAND);
        }
    }

    /// Pairs a command with the first half of a fused pair before it, or fails that half.
    fn settle_fused(&mut self, sqe: &Sqe, slot: Option<SlotIndex>) {
        let before = std::mem::replace(&mut self.fused, Fused::None);
        match (before, sqe.fuse) {
            (Fused::First(first), Fuse::Second) => match slot {
                Some(second) if self.matches_first(first, second) => self.pair(first, second),
                Some(second) => {
                    let status = Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry();
                    self.finish(first, status);
                    self.finish(second, status);
                }
                None => self.finish(first, Status::ABORTED_FAILED_FUSED_COMMAND),
            },
            (Fused::First(first), _) => {
                self.finish(first, Status::ABORTED_MISSING_FUSED_COMMAND);
            }
            (Fused::Refused, Fuse::Second) => {
                if let Some(slot) = slot {
                    self.finish(slot, Status::ABORTED_FAILED_FUSED_COMMAND);
                }
            }
            (Fused::None, Fuse::Second) => {
                if let Some(slot) = slot {
                    self.finish(slot, Status::ABORTED_MISSING_FUSED_COMMAND);
                }
            }
            (Fused::Refused | Fused::None, _) => {}
        }
        if sqe.fuse == Fuse::First {
            self.fused = slot.map_or(Fused::Refused, Fused::First);
        }
    }

    fn matches_first(&self, first: SlotIndex, second: SlotIndex) -> bool {
        let (first, second) = (
            &self.slots[usize::from(first)],
            &self.slots[usize::from(second)],
        );
        first.sqe.nsid == second.sqe.nsid && first.work.fused_range() == second.work.fused_range()
    }

    fn pair(&mut self, first: SlotIndex, second: SlotIndex) {
        self.slots[usize::from(first)].partner = Some(second);
        self.slots[usize::from(second)].partner = Some(first);
        let comes_in_capsule = self.slots[usize::from(second)].phase == Phase::InCapsule;
        let entry = &mut self.slots[usize::from(first)];
        // Its data was not asked for while it was alone; now it is, together with that of the second.
        if comes_in_capsule && entry.phase == Phase::Held && !entry.incoming.is_landing() {
            entry.phase = Phase::WaitsForBuffer;
            self.waiting_for_buffer.push_back(first);
        }
    }

    /// Runs a fused pair when the data of both is there.
    fn run_fused(&mut self, slot: SlotIndex) {
        let Some(partner) = self.slots[usize::from(slot)].partner else {
            return;
        };
        let other = &self.slots[usize::from(partner)];
        if other.phase != Phase::Held || !other.incoming.is_landing() {
            return;
        }
        let (first, second) = match self.slots[usize::from(slot)].work {
            Work::FusedCompare { .. } => (slot, partner),
            _ => (partner, slot),
        };
        let mut data = self.take_data(first);
        data.extend(self.take_data(second));
        self.slots[usize::from(first)].phase = Phase::Waiting;
        self.slots[usize::from(second)].phase = Phase::Running;
        let Work::FusedWrite { lba, blocks, fua } = self.slots[usize::from(second)].work else {
            unreachable!("a pair's second half is a write")
        };
        let operation = Operation::CompareWrite {
            lba,
            blocks,
            data,
            fua,
        };
        self.submit(second, CommandKind::Write, operation);
    }

    /// Takes the data that a command brought.
    pub(super) fn take_data(&mut self, slot: SlotIndex) -> Views {
        let entry = &mut self.slots[usize::from(slot)];
        match std::mem::replace(&mut entry.incoming, Incoming::None) {
            Incoming::AsReceived(views) => views,
            Incoming::Landing(segments) => freeze(segments),
            Incoming::None => Views::new(),
        }
    }

    pub(super) fn slot(&mut self, slot: SlotIndex) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    /// Adds a request of a command to what goes to its volume.
    pub(super) fn submit(&mut self, slot: SlotIndex, kind: CommandKind, operation: Operation) {
        self.submit_now(slot, kind, operation);
    }

    /// As [`QueuePair::submit`]. Where the operation is made right before, it is made in its place.
    #[inline(always)]
    pub(super) fn submit_now(&mut self, slot: SlotIndex, kind: CommandKind, operation: Operation) {
        self.slots.submit(usize::from(slot), kind, operation);
    }

    /// Starts a command that is neither a read nor a write.
    #[inline(never)]
    pub(super) fn run_other(&mut self, slot: SlotIndex, env: &Env<'_>) {
        match self.slots[usize::from(slot)].work {
            Work::Connect(connect) => self.run_connect(slot, connect),
            Work::Disconnect => {
                self.effects.push_back(Effect::Disconnect);
                self.finish(slot, Status::SUCCESS);
            }
            Work::PropertyGet(_) | Work::PropertySet(_) | Work::Admin(_) => {
                self.run_admin(slot, env);
            }
            _ => self.run_nvm(slot, env),
        }
    }

    fn run_connect(&mut self, slot: SlotIndex, connect: Connect) {
        let mut bytes = [0; ConnectData::SIZE];
        copy_views(&self.take_data(slot), &mut bytes);
        self.slots[usize::from(slot)].phase = Phase::Waiting;
        self.effects.push_back(Effect::Connect {
            slot,
            connect,
            data: Box::new(ConnectData::decode(&bytes)),
        });
    }

    fn run_admin(&mut self, slot: SlotIndex, env: &Env<'_>) {
        let data = self.take_data(slot);
        let entry = &self.slots[usize::from(slot)];
        let (work, buffer) = (entry.work, entry.buffer);
        let QueueKind::Admin(controller) = &mut self.kind else {
            unreachable!("admin commands are of an admin queue")
        };
        let outcome = match work {
            Work::PropertyGet(get) => controller.property_get(get),
            Work::PropertySet(set) => controller.property_set(set),
            Work::Admin(command) => controller.execute(&command, slot, &data, buffer, env),
            _ => unreachable!("not an admin command"),
        };
        self.admin_outcome(slot, outcome);
        self.deliver_events();
    }

    fn admin_outcome(&mut self, slot: SlotIndex, outcome: AdminOutcome) {
        match outcome {
            AdminOutcome::Status(status) => self.finish(slot, status),
            AdminOutcome::Result(result) => {
                self.slots[usize::from(slot)].result = result;
                self.finish(slot, Status::SUCCESS);
            }
            AdminOutcome::Data(data, result) => {
                let entry = &mut self.slots[usize::from(slot)];
                let length = views_len(&data);
                if length > entry.buffer as usize {
                    let status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
                    return self.finish(slot, status);
                }
                entry.result = result;
                self.finish_with(slot, Status::SUCCESS, data, length as u32);
            }
            AdminOutcome::Wait => self.slots[usize::from(slot)].phase = Phase::Waiting,
            AdminOutcome::Reserve(reservations, operation) => {
                self.wait_for(slot, |slot| Effect::Reserve {
                    slot,
                    reservations,
                    operation,
                });
            }
            AdminOutcome::Abort { sqid: 0, cid } => {
                let aborted = self.abort(cid);
                self.slots[usize::from(slot)].result = u64::from(!aborted);
                self.finish(slot, Status::SUCCESS);
            }
            AdminOutcome::Abort { sqid, cid } => {
                self.slots[usize::from(slot)].phase = Phase::Waiting;
                self.effects.push_back(Effect::Abort { slot, sqid, cid });
            }
            AdminOutcome::EndQueues => {
                self.effects.push_back(Effect::EndQueues);
                self.finish(slot, Status::SUCCESS);
            }
        }
    }

    /// Answers Asynchronous Event Requests with the events that there are.
    pub fn deliver_events(&mut self) {
        while let QueueKind::Admin(controller) = &mut self.kind
            && let Some((slot, event)) = controller.next_event()
        {
            self.slots[usize::from(slot)].result = u64::from(event);
            self.finish(slot, Status::SUCCESS);
        }
    }

    /// Answers a command that waited for something outside.
    pub fn answer_waiting(&mut self, slot: SlotIndex, status: Status, result: u64) {
        assert_eq!(
            self.slots[usize::from(slot)].phase,
            Phase::Waiting,
            "only a waiting command is answered from outside"
        );
        self.slots[usize::from(slot)].result = result;
        self.finish(slot, status);
    }

    /// Answers a command that waited for something outside, with data.
    pub(super) fn answer_waiting_with(&mut self, slot: SlotIndex, data: Views, bytes: u32) {
        assert_eq!(
            self.slots[usize::from(slot)].phase,
            Phase::Waiting,
            "only a waiting command is answered from outside"
        );
        self.finish_with(slot, Status::SUCCESS, data, bytes);
    }

    /// Has a command wait for what is asked for outside.
    pub(super) fn wait_for(&mut self, slot: SlotIndex, effect: impl FnOnce(SlotIndex) -> Effect) {
        self.slots[usize::from(slot)].phase = Phase::Waiting;
        self.effects.push_back(effect(slot));
    }

    /// Aborts the command with this CID where that can be done before it takes effect: whether it was.
    pub fn abort(&mut self, cid: u16) -> bool {
        let found = self.slots.iter().position(|slot| {
            slot.sqe.cid == cid && !matches!(slot.phase, Phase::Free | Phase::Abandoned)
        });
        let Some(slot) = found.map(|slot| slot as SlotIndex) else {
            return false;
        };
        let entry = &self.slots[usize::from(slot)];
        if entry.partner.is_some() || entry.work.is_fused() {
            return false;
        }
        match entry.phase {
            Phase::WaitsForBuffer | Phase::ToFetch | Phase::Fetching => {
                self.finish(slot, Status::COMMAND_ABORT_REQUESTED);
                true
            }
            Phase::Waiting => self.abort_waiting(slot),
            Phase::Running => self.abort_running(slot),
            Phase::InCapsule | Phase::Held | Phase::Free | Phase::Abandoned => false,
        }
    }

    fn abort_waiting(&mut self, slot: SlotIndex) -> bool {
        let QueueKind::Admin(controller) = &mut self.kind else {
            return false;
        };
        let withdrawn = controller.withdraw_event_request(slot);
        if withdrawn {
            self.finish(slot, Status::COMMAND_ABORT_REQUESTED);
        }
        withdrawn
    }

    /// Takes back the one request of a command from the volume's queue; what the volume has already is only asked to end
    /// early, so that the command counts as not aborted.
    fn abort_running(&mut self, slot: SlotIndex) -> bool {
        let entry = &self.slots[usize::from(slot)];
        if entry.at.outstanding() != 1 {
            return false;
        }
        let Some(operation) = self.slots.cancel(usize::from(slot)) else {
            return false;
        };
        if let Some(data) = data_of(operation) {
            self.recover_reserve(slot, data);
        }
        self.finish(slot, Status::COMMAND_ABORT_REQUESTED);
        true
    }

    /// A request ended.
    pub fn completed(&mut self, completion: Completion, env: &Env<'_>) {
        let slot = self.slots.completed(completion.token) as SlotIndex;
        self.completed_nvm(slot, completion, env);
    }

    /// Puts the reserve back, when it was the data of this command.
    pub(super) fn recover_reserve(&mut self, slot: SlotIndex, mut data: Views) {
        if !std::mem::take(&mut self.slots[usize::from(slot)].reserve) {
            return;
        }
        while let Some(view) = data.pop() {
            self.take_back_reserve(view);
        }
    }

    fn take_back_reserve(&mut self, view: View) {
        if self.reserve.is_some() || !self.reserve_out {
            return;
        }
        // The other half's of a fused pair may be shorter.
        if let Ok(mut segment) = view.try_into_segment()
            && segment.capacity() >= self.reserve_bytes
        {
            segment.set_len(segment.capacity());
            self.reserve = Some(segment);
            self.reserve_out = false;
        }
    }

    /// Ends a command: its answer is ready. Data that was asked for is swallowed when it comes.
    pub(super) fn finish(&mut self, slot: SlotIndex, status: Status) {
        self.finish_with(slot, status, Views::new(), 0);
    }

    /// As [`QueuePair::finish`], with data for the host, of so many bytes.
    #[inline]
    pub(super) fn finish_with(&mut self, slot: SlotIndex, status: Status, data: Views, bytes: u32) {
        self.slots.answered(usize::from(slot), bytes);
        let entry = &mut self.slots[usize::from(slot)];
        let connected = matches!(entry.work, Work::Connect(_)) && status.is_success();
        let head = match self.flow_control {
            true => self.head as u16,
            false if connected => FLOW_CONTROL_OFF,
            false => 0,
        };
        assert_eq!(
            entry.at.outstanding(),
            0,
            "a command ends after its requests"
        );
        let mut cqe = Cqe::new(entry.sqe.cid, head, status).with_result(entry.result);
        // Before its Connect there is no controller, and no log to tell more in.
        if !status.is_success() && !matches!(self.kind, QueueKind::Unconnected) {
            cqe.status = status.with_more();
            if self.failures.len() < super::ErrorLog::ENTRIES {
                let failure = failure_of(self.qid, &entry.sqe, cqe.status);
                self.failures.push(failure);
            }
        }
        self.answers.push(Answer {
            cqe,
            sgl: entry.sqe.sgl,
            data,
            data_bytes: bytes,
        });
        let held = std::mem::take(&mut entry.held);
        if held > bytes {
            self.room.give_back(u64::from(held - bytes));
        } else if held < bytes {
            // Of an admin queue, which takes no command while it is full.
            self.room.add(u64::from(bytes - held));
        }
        if entry.phase == Phase::Running && !entry.reserve {
            entry.clear();
            self.free.push(slot);
        } else {
            self.leave(slot);
        }
    }

    /// A command was answered that did not run: it is not to be waited for any more.
    fn leave(&mut self, slot: SlotIndex) {
        let entry = &mut self.slots[usize::from(slot)];
        match entry.phase {
            Phase::Fetching => {
                entry.phase = Phase::Abandoned;
                entry.at.attached = None;
                self.abandoned += 1;
                // The host may never send it: only the reserve, which is the queue's own, waits for that.
                if !entry.reserve {
                    entry.incoming = Incoming::None;
                }
                return;
            }
            Phase::ToFetch => self.to_fetch.retain(|other| *other != slot),
            Phase::WaitsForBuffer => self.waiting_for_buffer.retain(|other| *other != slot),
            _ => {}
        }
        self.release(slot);
    }

    fn release(&mut self, slot: SlotIndex) {
        if self.slots[usize::from(slot)].reserve {
            // Its data never went to a volume.
            for view in self.take_data(slot) {
                self.take_back_reserve(view);
            }
        }
        self.slots[usize::from(slot)].clear();
        self.free.push(slot);
    }

    /// Makes sure that the reserve is there when it was lent for good: a volume may keep the memory that it was given.
    pub fn restore_reserve(&mut self, pool: &Pool, bytes: usize) {
        if !self.reserve_out || self.slots.iter().any(|slot| slot.reserve) {
            return;
        }
        if let Ok(segment) = pool.segment(bytes) {
            self.reserve_bytes = segment.capacity();
            self.reserve = Some(segment);
            self.reserve_out = false;
        }
    }

    /// The next thing to do beyond the queue.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The CID of a command in the queue.
    pub fn cid_of(&self, slot: SlotIndex) -> u16 {
        self.slots[usize::from(slot)].sqe.cid
    }

    /// Whether commands failed since [`QueuePair::failures`].
    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Commands that failed since the last call.
    pub fn failures(&mut self) -> std::vec::Drain<'_, Failure> {
        self.failures.drain(..)
    }
}

/// Why a command that was admitted on `before` would be refused as things are now; none: it would not.
fn refusal_now(
    work: &Work,
    before: &Attached,
    now: Option<&Rc<Attached>>,
    registrant: Option<&Registrant>,
) -> Option<Status> {
    let there = now.filter(|now| Rc::ptr_eq(&now.queue, &before.queue));
    let Some(now) = there else {
        return Some(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry());
    };
    let protected = work.writes() && now.is_read_only();
    of_ana_state(now.export.ana_state)
        .or_else(|| protected.then(|| Status::NAMESPACE_IS_WRITE_PROTECTED.with_do_not_retry()))
        .or_else(|| reserve::refusal(before, || work.access(), registrant))
}

/// Tells whether a command is for the volume whose reservations changed.
fn is_of(entry: &Slot, news: &News) -> bool {
    let namespace = entry.at.attached.as_ref();
    namespace.is_some_and(|namespace| news.is_of(namespace.export.reservations.as_ref()))
}

/// The work of a Fabrics command on a queue of this kind, and the bytes that it brings.
fn plan_fabrics(kind: &QueueKind, sqe: &Sqe, payload: Payload) -> Result<(Work, u32), Status> {
    let command = FabricsCommand::parse(sqe).map_err(weir_nvme::command::CommandError::status)?;
    let work = match (command, kind) {
        (FabricsCommand::Connect(connect), QueueKind::Unconnected) => {
            if payload.length() != CONNECT_DATA_BYTES {
                return Err(Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry());
            }
            return Ok((Work::Connect(connect), CONNECT_DATA_BYTES));
        }
        (_, QueueKind::Unconnected) | (FabricsCommand::Connect(_), _) => {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        (FabricsCommand::Disconnect { record_format: 0 }, QueueKind::Io) => Work::Disconnect,
        (FabricsCommand::Disconnect { .. }, QueueKind::Io) => {
            return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_do_not_retry());
        }
        (FabricsCommand::Disconnect { .. }, QueueKind::Admin(_)) => {
            return Err(Status::INVALID_QUEUE_TYPE.with_do_not_retry());
        }
        (FabricsCommand::PropertyGet(get), QueueKind::Admin(_)) => Work::PropertyGet(get),
        (FabricsCommand::PropertySet(set), QueueKind::Admin(_)) => Work::PropertySet(set),
        _ => return Err(Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry()),
    };
    Ok((work, 0))
}

fn failure_of(qid: u16, sqe: &Submitted, status: Status) -> Failure {
    Failure {
        qid,
        cid: sqe.cid,
        status,
        parameter: Failure::NO_PARAMETER,
        lba: if qid == 0 { 0 } else { sqe.lba },
        nsid: if sqe.opcode == FABRICS_OPCODE {
            0
        } else {
            sqe.nsid
        },
        opcode: sqe.opcode,
    }
}

/// Checks that the data pointer fits the bytes that the command needs.
pub(super) fn check_payload(
    needed: u32,
    payload: Payload,
    in_capsule_max: u32,
) -> Result<(), Status> {
    let invalid_length = Err(Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry());
    if let Payload::InCapsule { length } = payload
        && length > in_capsule_max
    {
        return invalid_length;
    }
    if needed > 0 && payload.length() != needed {
        return invalid_length;
    }
    Ok(())
}

fn list_of(segment: Segment) -> Segments {
    let mut segments = Segments::new();
    segments.push(segment);
    segments
}

/// Data was received into these.
#[inline]
fn freeze(mut segments: Segments) -> Views {
    let mut views = Views::new();
    // Most often it is one, which needs no loop.
    if segments.len() == 1
        && let Some(segment) = segments.pop()
    {
        views.push(segment.freeze());
    } else {
        views.extend(segments.into_iter().map(Segment::freeze));
    }
    views
}

/// The status for a failed request, with a retry delay for hosts that know it.
pub(super) fn status_of(error: VolumeError, kind: OperationKind, env: &Env<'_>) -> Status {
    let status = of_volume_error(error, kind);
    if status.is(Status::COMMAND_INTERRUPTED) && env.retry_delay {
        status.with_command_retry_delay(1)
    } else {
        status
    }
}
