//! The SCSI commands of one session: their slots and order, their data, their answers, and the functions that end them.
//!
//! Commands are numbered, and the window says which numbers may come: those for which there is a slot, and room for the data that an
//! initiator may send unasked. So what comes can always be taken in, and the connection is always read. What a command needs beside
//! that, room for what it reads or for data that it asks for, it waits for, in turn.

pub(crate) mod device;
pub(crate) mod task;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{Completion, Landing, Request};
use weir_front::{Arrival, Awaited, CommandKind, Commands, News, Reservations, Room, Stage};
use weir_iscsi::pdu::{DataOut, Itt, Residual, ScsiCommand, TaskAttribute, TaskResponse, Ttt};
use weir_iscsi::serial::{CommandOrder, CommandWindow, Serial};
use weir_memory::{Pool, Segment, Segments, View, Views, slice_views, views_len};
use weir_reactor::Instant;
use weir_reservation::{Access, Notice, Refused};
use weir_scsi::sense::{AdditionalSense, Sense, Status};

use crate::attention::Attentions;
use crate::registry::ResetWait;
use crate::scene::{AttachedLun, Scene};
use crate::tasks::device::Work;
use crate::tasks::task::{Answer, Incoming, Outcome, Phase, SlotIndex, Task, slot_of};

/// Commands that may come before the first answer.
pub(crate) const FIRST_WINDOW: u32 = 1;
/// Slots for immediate commands, which the window does not count.
const SPARE_SLOTS: usize = 8;
/// Commands that an idle initiator may send at once.
const WINDOW_MIN: u32 = 8;
/// Task management functions under way at most.
const FUNCTIONS_MAX: usize = 16;

/// What becomes of the data that comes with a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is of no use: it is skipped.
    Skip,
    /// It belongs to this slot's task, from this byte on.
    Fill {
        slot: SlotIndex,
        uses: u16,
        offset: u32,
    },
}

/// A rule of the protocol was broken, so that what follows makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(
        "the initiator sent data with a command that takes none so (ImmediateData, FirstBurstLength, the W bit)"
    )]
    ImmediateData,
    #[error("the initiator announced data that it may not send unasked (InitialR2T)")]
    Unsolicited,
    #[error(
        "a Data-Out begins at byte {offset} of its command's data, and byte {expected} is the next"
    )]
    Offset { offset: u32, expected: u32 },
    #[error("a Data-Out has more data than may come: up to byte {end} of {allowed}")]
    TooMuch { end: u32, allowed: u32 },
    #[error("a sequence of Data-Out PDUs ends at byte {end}, and not at byte {expected}")]
    SequenceEnd { end: u32, expected: u32 },
}

/// What was agreed at login, as far as tasks are concerned.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Agreed {
    pub(crate) first_burst: u32,
    pub(crate) max_burst: u32,
    pub(crate) outstanding_r2t: u16,
    pub(crate) immediate_data: bool,
    pub(crate) initial_r2t: bool,
}

impl Agreed {
    /// Room that a command may need before it has said what it does.
    fn unsolicited(&self) -> u32 {
        match self.immediate_data || !self.initial_r2t {
            true => self.first_burst,
            false => 0,
        }
    }
}

/// Whom a function is done for.
enum AskedBy {
    /// The initiator.
    Initiator(Itt),
    /// Another session's reset.
    Other { _wait: Arc<ResetWait> },
}

/// A task management function that is under way.
struct Function {
    number: u32,
    asked_by: AskedBy,
    /// Tasks that it ended and that may still take effect.
    tasks: Vec<(SlotIndex, u16)>,
    /// Other sessions have to do it too.
    waits_for_others: bool,
    response: TaskResponse,
}

/// Which tasks a function ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One, if it is there.
    Task(Itt),
    /// All of a logical unit.
    Lun(u16),
    /// All.
    All,
}

/// Why an initiator may not have a task done any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It does not see the logical unit any more.
    Gone,
    /// It may not write there any more.
    ReadOnly,
    /// Reservations were taken.
    Reserved,
}

impl From<Loss> for Outcome {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Gone => Outcome::check(device::NO_SUCH_LUN),
            Loss::ReadOnly => Outcome::check(Sense::write_protected()),
            Loss::Reserved => Outcome::conflict(),
        }
    }
}

/// The commands of one session.
pub(crate) struct Tasks {
    slots: Commands<Task>,
    room: Room,
    free: Vec<SlotIndex>,
    /// Those that wait for room, in order.
    waiting: VecDeque<SlotIndex>,
    /// Those that stand behind ordered ones, in order.
    barred: VecDeque<SlotIndex>,
    /// Ordered tasks that have not ended.
    ordered: u32,
    /// Immediate commands that have not ended.
    immediate: usize,
    orders: u64,
    window: CommandWindow,
    /// Commands of the window that keep room for unsolicited data. One may have none: its room is in what each connection needs.
    reserved: u32,
    commands_max: u32,
    agreed: Agreed,
    pub(crate) attentions: Attentions,
    functions: Vec<Function>,
    next_function: u32,
    answers: Vec<Answer>,
    /// R2Ts so far.
    asked: u32,
    /// Where RESERVE (6) or (10) was asked for: the end of the session is its end.
    shut: Vec<Arc<Reservations>>,
    /// Nothing begins any more.
    is_over: bool,
}

impl Tasks {
    pub(crate) fn new(owner: u32, room: Room) -> Self {
        Tasks {
            slots: Commands::new(owner),
            room,
            free: Vec::new(),
            waiting: VecDeque::new(),
            barred: VecDeque::new(),
            ordered: 0,
            immediate: 0,
            orders: 0,
            window: CommandWindow::new(Serial(0), 0),
            reserved: 0,
            commands_max: 0,
            agreed: Agreed::default(),
            attentions: Attentions::default(),
            functions: Vec::new(),
            next_function: 0,
            answers: Vec::new(),
            asked: 0,
            shut: Vec::new(),
            is_over: false,
        }
    }

    /// The session begins: `next` is the number of its first command.
    pub(crate) fn begin(&mut self, next: Serial, commands_max: u16, agreed: Agreed) {
        self.window = CommandWindow::new(next, FIRST_WINDOW);
        self.commands_max = commands_max.into();
        self.agreed = agreed;
        let slots = usize::from(commands_max) + SPARE_SLOTS;
        self.slots.resize_with(slots, Task::default);
        self.free = (0..slots as SlotIndex).rev().collect();
    }

    /// Bytes that a session with so many commands keeps at worst, without data; lists grow to `slack` times what is in them.
    pub(crate) fn memory_bytes(commands_max: usize, slack: usize) -> usize {
        let slots = commands_max + SPARE_SLOTS;
        let request = size_of::<Request>() + 2 * size_of::<weir_block::Token>();
        let requests = (slots + device::REQUESTS_MAX as usize) * request;
        let answers = Self::answers_bound(commands_max)
            * (size_of::<Answer>() + size_of::<weir_front::Run>());
        slots * (size_of::<Task>() + 3 * size_of::<SlotIndex>()) + slack * (requests + answers)
    }

    /// Answers of a session of so many commands that wait to be sent at worst.
    pub(crate) fn answers_bound(commands_max: usize) -> usize {
        (2 * (commands_max + SPARE_SLOTS)).max(ANSWERS_MIN)
    }

    /// The time that it was told last.
    pub(crate) fn now(&self) -> Instant {
        self.slots.now()
    }

    pub(crate) fn commands(&mut self) -> &mut Commands<Task> {
        &mut self.slots
    }

    pub(crate) fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    pub(crate) fn task(&mut self, slot: SlotIndex) -> &mut Task {
        &mut self.slots[usize::from(slot)]
    }

    /// Commands under way.
    pub(crate) fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    pub(crate) fn answers(&mut self) -> &mut Vec<Answer> {
        &mut self.answers
    }

    pub(crate) fn push(&mut self, answer: Answer) {
        self.answers.push(answer);
    }

    /// Answers a ping with what came with it.
    pub(crate) fn ping(&mut self, itt: Itt, data: &[u8]) {
        // What it holds until it has left is counted as a command's data is.
        if !data.is_empty()
            && let Some(&slot) = self.free.last()
        {
            self.room.add(data.len() as u64);
            self.slots[usize::from(slot)].at.course.forget();
            self.slots.answered(slot.into(), data.len() as u32);
        }
        let data = View::copy_of(data);
        self.answers.push(Answer::NopIn { itt, data });
    }

    /// Tells whether so much waits to be sent, with `written` answers that wait for a send, that no more is taken in.
    pub(crate) fn is_backlogged(&self, written: usize) -> bool {
        let answers = self.answers.len() + written;
        answers > (2 * self.slots.len()).max(ANSWERS_MIN) || self.free.is_empty() && answers > 0
    }

    /// Tells whether a command lacks room or a buffer.
    pub(crate) fn lacks_something(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells whether data is likely to come next that was asked for.
    pub(crate) fn expects_data(&self) -> bool {
        self.slots.iter().any(Task::is_owed)
    }

    // -------------------------------------------------------------- the window --

    /// The numbers that may come.
    pub(crate) fn window(&self) -> &CommandWindow {
        &self.window
    }

    /// Opens the window as far as there are slots and room, but no further than twice what the initiator has under way, so that idle
    /// sessions keep little.
    pub(crate) fn open_window(&mut self) {
        let free = self.free.len().saturating_sub(SPARE_SLOTS) as u32;
        let used = WINDOW_MIN + 2 * self.in_flight();
        let wanted = free.min(used).min(self.commands_max);
        let bytes = u64::from(self.agreed.unsolicited());
        let mut open = self.window.size();
        while open < wanted {
            if open > self.reserved {
                if bytes > 0 && !self.room.set_aside(bytes) {
                    break;
                }
                self.reserved += 1;
            }
            open += 1;
        }
        self.window.open(open);
    }

    /// A numbered PDU came. Returns how it stands to the window.
    ///
    /// Linux keeps the widest window that it was told over a new login, whatever that login says, and sends as many commands at once.
    /// So the next number is taken in beyond the window too, as long as there is room for it.
    pub(crate) fn arrives(&mut self, number: Serial) -> CommandOrder {
        let mut order = self.window.order(number);
        if order == CommandOrder::Outside
            && number == self.window.expected()
            && self.free.len() > SPARE_SLOTS
            && self.has_room_for_one()
        {
            self.window.open(1);
            order = CommandOrder::Next;
        }
        if order == CommandOrder::Next {
            self.window.advance();
            if self.reserved > 0 {
                self.reserved -= 1;
                self.room.free(self.agreed.unsolicited().into());
            }
        }
        order
    }

    /// Tells whether another immediate command has a slot, and room for the data that may come with it.
    pub(crate) fn takes_immediate(&mut self) -> bool {
        self.immediate < SPARE_SLOTS && self.has_room_for_one()
    }

    /// Tells whether there is room for what comes unasked with a command, which is counted as it comes.
    fn has_room_for_one(&mut self) -> bool {
        let bytes = u64::from(self.agreed.unsolicited());
        if bytes > 0 {
            if !self.room.take(bytes) {
                return false;
            }
            self.room.give_back(bytes);
        }
        true
    }

    // ------------------------------------------------------------- commands come --

    /// Takes a command in. `all_here`: the data that comes with it has arrived.
    pub(crate) fn command(
        &mut self,
        command: &ScsiCommand,
        all_here: bool,
        arrival: Arrival,
        scene: &Scene,
    ) -> Result<Next, TaskError> {
        let (immediate, expected) = (command.data_length, command.expected_data_length);
        let unsolicited_max = match command.write {
            true => expected.min(self.agreed.first_burst),
            false => 0,
        };
        if immediate > unsolicited_max || (immediate > 0 && !self.agreed.immediate_data) {
            return Err(TaskError::ImmediateData);
        }
        if !command.is_final && (!command.write || self.agreed.initial_r2t) {
            return Err(TaskError::Unsolicited);
        }
        let Some(slot) = self.free.pop() else {
            // There are slots for all that the window admits. It came beyond that.
            self.refuse(command, Status::TaskSetFull);
            return Ok(Next::Skip);
        };
        let now = self.slots.now();
        self.orders += 1;
        let order = self.orders;
        let task = &mut self.slots[usize::from(slot)];
        assert_eq!(task.phase, Phase::Free, "a free slot is free");
        task.itt = command.itt;
        task.lun = command.lun;
        task.number = device::lun_number(command.lun);
        task.attribute = command.attribute;
        task.immediate = command.immediate;
        self.immediate += usize::from(command.immediate);
        task.cdb = command.cdb;
        task.order = order;
        task.expected = expected;
        (task.reads, task.writes) = (command.read, command.write);
        task.is_unsolicited = !command.is_final;
        task.unsolicited_max = unsolicited_max;
        (task.brings, task.wanted) = (0, 0);
        (task.received, task.asked) = (0, 0);
        (task.r2ts, task.outstanding) = (0, 0);
        task.is_damaged = false;
        task.phase = Phase::Filling;
        let number = task.number.unwrap_or_default();
        task.at.course.forget();
        task.at.course.begin(arrival, number.into(), now);
        let comes = match task.is_unsolicited {
            true => unsolicited_max,
            false => immediate,
        };
        let is_odd = command.additional.refuse().is_err() || command.read && command.write;
        if is_odd {
            let additional = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
            let outcome = Outcome::check(Sense::illegal_request(additional));
            self.slots[usize::from(slot)].outcome = Some(outcome);
        } else if self.is_barred(slot) {
            self.slots[usize::from(slot)].phase = Phase::Barred;
            self.barred.push_back(slot);
        } else {
            self.plan(slot, scene);
        }
        self.ordered += u32::from(command.attribute == TaskAttribute::Ordered);
        if comes == 0 {
            self.go_on(slot, scene);
            return Ok(Next::Skip);
        }
        let whole = all_here && immediate == comes;
        self.place_unsolicited(slot, comes, whole, scene.pool());
        if immediate == 0 {
            return Ok(Next::Skip);
        }
        let task = &self.slots[usize::from(slot)];
        Ok(Next::Fill {
            slot,
            uses: task.uses,
            offset: 0,
        })
    }

    /// Answers a command without giving it a slot.
    #[cold]
    fn refuse(&mut self, command: &ScsiCommand, status: Status) {
        self.answers.push(Answer::Command {
            itt: command.itt,
            status,
            sense: None,
            residual: match command.expected_data_length {
                0 => Residual::None,
                length => Residual::Underflow(length),
            },
            data: Views::new(),
            data_bytes: 0,
            r2ts: 0,
        });
    }

    /// Looks what a task is to do, and what it needs.
    fn plan(&mut self, slot: SlotIndex, scene: &Scene) {
        let Tasks {
            slots, attentions, ..
        } = self;
        let task = &mut slots[usize::from(slot)];
        if let Err(outcome) = device::plan(task, scene, attentions) {
            task.outcome = Some(outcome);
        }
    }

    /// Finds the place for data that comes unasked, up to `comes` bytes: there always is one. `whole`: all of it is here.
    fn place_unsolicited(&mut self, slot: SlotIndex, comes: u32, whole: bool, pool: &Pool) {
        let task = &mut self.slots[usize::from(slot)];
        let is_planned = task.phase != Phase::Barred;
        if is_planned && (task.outcome.is_some() || task.wanted == 0) {
            return;
        }
        let keeps = match is_planned {
            true => comes.min(task.wanted),
            false => comes,
        };
        task.held += keeps;
        task.aside += keeps;
        self.room.add_aside(keeps.into());
        let landing = match is_planned && keeps == task.wanted {
            true => task.landing(),
            false => None,
        };
        if whole
            && comes == keeps
            && matches!(landing, Some(Landing::Anywhere))
            && !task.at.queue().is_held_up()
        {
            task.incoming = Incoming::AsReceived(Views::new());
            return;
        }
        let landing = match landing {
            Some(landing @ Landing::Ready(_)) => landing,
            _ => Landing::Anywhere,
        };
        let place = self.room.place(landing, keeps as usize, pool);
        let place = place.unwrap_or_else(|| {
            // The pool is exhausted, and it is in the account.
            let mut segments = Segments::new();
            segments.push(Segment::heap(keeps as usize));
            segments
        });
        task.incoming = Incoming::Landing(place);
    }

    /// Takes a Data-Out in.
    pub(crate) fn data_out(&self, data: &DataOut) -> Result<Next, TaskError> {
        let (offset, length, tag) = (data.buffer_offset, data.data_length, data.ttt);
        let slot = match tag {
            Ttt::RESERVED => self.unsolicited_slot(data.itt),
            tag => self.solicited_slot(data.itt, tag),
        };
        let Some(slot) = slot else {
            // Its task was ended meanwhile.
            return Ok(Next::Skip);
        };
        let task = &self.slots[usize::from(slot)];
        if offset != task.received {
            return Err(TaskError::Offset {
                offset,
                expected: task.received,
            });
        }
        let allowed = match tag {
            Ttt::RESERVED => task.unsolicited_max,
            _ => task.sequence_end,
        };
        let end = offset.saturating_add(length);
        if end > allowed {
            return Err(TaskError::TooMuch { end, allowed });
        }
        Ok(Next::Fill {
            slot,
            uses: task.uses,
            offset,
        })
    }

    fn unsolicited_slot(&self, itt: Itt) -> Option<SlotIndex> {
        let is_it =
            |task: &Task| task.itt == itt && task.is_unsolicited && task.phase != Phase::Free;
        let found = self.slots.iter().position(is_it);
        found.map(|slot| slot as SlotIndex)
    }

    fn solicited_slot(&self, itt: Itt, tag: Ttt) -> Option<SlotIndex> {
        let slot = slot_of(tag);
        let task = self.slots.get(usize::from(slot))?;
        let is_it = task.itt == itt && task.transfer_tag(slot) == tag && task.is_owed();
        is_it.then_some(slot)
    }

    /// The task of a slot, if it is still the one that was meant.
    fn same(&mut self, slot: SlotIndex, uses: u16) -> Option<&mut Task> {
        let task = &mut self.slots[usize::from(slot)];
        (task.uses == uses && task.phase != Phase::Free).then_some(task)
    }

    /// Where data of a task at `offset` goes: the rest of one segment. Empty: it is not kept.
    pub(crate) fn landing_at(&mut self, slot: SlotIndex, uses: u16, offset: usize) -> &mut [u8] {
        let Some(task) = self.same(slot, uses) else {
            return &mut [];
        };
        let Incoming::Landing(landing) = &mut task.incoming else {
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

    /// Where data of a task is kept as it arrives, if it is.
    pub(crate) fn received(&mut self, slot: SlotIndex, uses: u16) -> Option<&mut Views> {
        match &mut self.same(slot, uses)?.incoming {
            Incoming::AsReceived(views) => Some(views),
            Incoming::Landing(_) | Incoming::Nowhere => None,
        }
    }

    /// Takes out the segment that `offset` of a task's data is in, to be received into: the segment, its index and the offset in it.
    pub(crate) fn take_segment(
        &mut self,
        slot: SlotIndex,
        uses: u16,
        offset: usize,
    ) -> Option<(Segment, usize, usize)> {
        let Incoming::Landing(landing) = &mut self.same(slot, uses)?.incoming else {
            return None;
        };
        let mut start = 0;
        for index in 0..landing.len() {
            let length = landing[index].len();
            if offset < start + length {
                return Some((landing.remove(index), index, offset - start));
            }
            start += length;
        }
        None
    }

    /// Puts a segment back that was taken out.
    pub(crate) fn put_segment(
        &mut self,
        slot: SlotIndex,
        uses: u16,
        index: usize,
        segment: Segment,
    ) {
        // The task may have been ended meanwhile, and its place with it.
        if let Some(task) = self.same(slot, uses)
            && let Incoming::Landing(landing) = &mut task.incoming
        {
            landing.insert(index, segment);
        }
    }

    /// All data of a PDU has come: `length` bytes. `is_last`: of its sequence.
    pub(crate) fn data_ended(
        &mut self,
        slot: SlotIndex,
        uses: u16,
        length: u32,
        is_last: bool,
        is_good: bool,
        scene: &Scene,
    ) -> Result<(), TaskError> {
        let max_burst = self.agreed.max_burst;
        let Some(task) = self.same(slot, uses) else {
            return Ok(());
        };
        let sequence_end = task.sequence_end;
        task.received += length;
        task.is_damaged |= !is_good;
        if task.is_unsolicited {
            if !is_last {
                return Ok(());
            }
            task.is_unsolicited = false;
        } else if task.outstanding > 0 {
            let at_end = task.received == sequence_end;
            if is_last != at_end {
                return Err(TaskError::SequenceEnd {
                    end: task.received,
                    expected: sequence_end,
                });
            }
            if !is_last {
                return Ok(());
            }
            task.outstanding -= 1;
            task.sequence_end = (sequence_end + max_burst).min(task.wanted);
        }
        match task.phase {
            Phase::Aborted | Phase::Barred => {}
            _ => self.go_on(slot, scene),
        }
        Ok(())
    }

    // ---------------------------------------------------------------- they run --

    /// Has a planned task do what comes next, now that nothing comes unasked any more.
    fn go_on(&mut self, slot: SlotIndex, scene: &Scene) {
        let task = &mut self.slots[usize::from(slot)];
        if task.phase == Phase::Barred {
            return;
        }
        if task.is_damaged && task.outcome.is_none() && task.received >= task.wanted {
            task.outcome = Some(Outcome::check(Sense::aborted_command(
                AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR,
            )));
        }
        if task.is_unsolicited {
            task.phase = match task.outcome {
                Some(_) => Phase::Swallowing,
                None => Phase::Filling,
            };
            return;
        }
        if task.outcome.is_some() {
            return self.end(slot, scene);
        }
        if task.received < task.wanted && task.asked > 0 {
            return self.ask(slot);
        }
        // What needs room waits behind those that do.
        let needs = task.received < task.wanted || task.room_bytes() > 0;
        if needs && !self.waiting.is_empty() || !self.try_on(slot, scene) {
            self.slots[usize::from(slot)].phase = Phase::WaitsForRoom;
            self.waiting.push_back(slot);
        }
    }

    /// Begins to run a task, or to ask for its data. False: there is no room.
    fn try_on(&mut self, slot: SlotIndex, scene: &Scene) -> bool {
        let now = self.slots.now();
        let Tasks { slots, room, .. } = self;
        let task = &mut slots[usize::from(slot)];
        if task.received >= task.wanted {
            let bytes = task.room_bytes();
            if bytes > 0 && !room.take(bytes.into()) {
                return false;
            }
            task.held += bytes;
            task.use_aside(room);
            task.phase = Phase::Running;
            task.at.course.spend(Stage::WireIn, now);
            device::run(self, slot, scene);
            return true;
        }
        let more = task.wanted.saturating_sub(task.incoming.length() as u32);
        if more > 0 && !find_place(task, more, room, scene.pool()) {
            return false;
        }
        task.use_aside(room);
        task.phase = Phase::Filling;
        task.at.course.spend(Stage::Queue, now);
        task.asked = task.received;
        task.sequence_end = (task.received + self.agreed.max_burst).min(task.wanted);
        self.ask(slot);
        true
    }

    /// Asks for as much of a task's data as may be under way.
    fn ask(&mut self, slot: SlotIndex) {
        let Tasks {
            slots,
            agreed,
            answers,
            asked,
            ..
        } = self;
        let task = &mut slots[usize::from(slot)];
        while task.outstanding < agreed.outstanding_r2t && task.asked < task.wanted {
            let length = (task.wanted - task.asked).min(agreed.max_burst);
            answers.push(Answer::R2t {
                itt: task.itt,
                tag: task.transfer_tag(slot),
                lun: task.lun,
                number: task.r2ts,
                offset: task.asked,
                length,
            });
            *asked = asked.wrapping_add(1);
            task.asked += length;
            task.r2ts += 1;
            task.outstanding += 1;
        }
    }

    /// Looks for room for those that wait, in their order.
    pub(crate) fn prepare(&mut self, scene: &Scene) {
        while let Some(&slot) = self.waiting.front() {
            if !self.try_on(slot, scene) {
                return;
            }
            self.waiting.pop_front();
            self.room.grant();
        }
    }

    /// Adds a request of a task to what goes to its volume.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        slot: SlotIndex,
        kind: CommandKind,
        operation: weir_block::Operation,
    ) {
        self.slots.submit(slot.into(), kind, operation);
    }

    /// A request ended.
    #[inline]
    pub(crate) fn completed(&mut self, completion: Completion, scene: &Scene) {
        let slot = self.slots.completed(completion.token) as SlotIndex;
        self.request_ended(slot, completion, scene);
    }

    fn request_ended(&mut self, slot: SlotIndex, completion: Completion, scene: &Scene) {
        let task = &self.slots[usize::from(slot)];
        if task.phase == Phase::Aborted {
            if task.has_ended() {
                self.release(slot, scene);
            }
            return;
        }
        device::completed(self, slot, completion, scene);
    }

    /// Ends a task with an outcome.
    #[inline]
    pub(crate) fn finish(&mut self, slot: SlotIndex, outcome: Outcome, scene: &Scene) {
        self.slots[usize::from(slot)].outcome = Some(outcome);
        self.end(slot, scene);
    }

    /// Ends a task that has its outcome. Nothing is to come any more that was not asked for.
    #[inline]
    fn end(&mut self, slot: SlotIndex, scene: &Scene) {
        let task = &mut self.slots[usize::from(slot)];
        let mut outcome = task.outcome.take().expect("it has its outcome");
        let residual = task.residual(&mut outcome);
        let keeps = outcome.data_bytes;
        task.use_aside(&mut self.room);
        let held = std::mem::replace(&mut task.held, 0);
        task.incoming = Incoming::Nowhere;
        if held >= keeps {
            self.room.give_back((held - keeps).into());
        } else {
            self.room.add((keeps - held).into());
        }
        let (itt, r2ts) = (task.itt, task.r2ts);
        self.slots.answered(slot.into(), keeps);
        self.answers.push(Answer::Command {
            itt,
            status: outcome.status,
            sense: outcome.sense,
            residual,
            data: outcome.data,
            data_bytes: keeps,
            r2ts,
        });
        self.release(slot, scene);
    }

    /// Frees a slot.
    #[inline]
    fn release(&mut self, slot: SlotIndex, scene: &Scene) {
        let task = &mut self.slots[usize::from(slot)];
        task.use_aside(&mut self.room);
        self.room.give_back(task.held.into());
        task.held = 0;
        task.incoming = Incoming::Nowhere;
        task.outcome = None;
        task.work = Work::None;
        task.is_unsolicited = false;
        task.phase = Phase::Free;
        task.uses = task.uses.wrapping_add(1);
        task.at.clear();
        let was_ordered = task.attribute == TaskAttribute::Ordered;
        self.immediate -= usize::from(task.immediate);
        self.free.push(slot);
        self.ordered -= u32::from(was_ordered);
        if !self.functions.is_empty() {
            self.look_at_functions();
        }
        if !self.barred.is_empty() {
            self.unbar(scene);
        }
    }

    // --------------------------------------------------------------- their order --

    /// Tells whether a task has to wait for earlier ones of its logical unit: for all of them, if it is ordered, and else for those that
    /// are (SAM-5, section 8.6.2).
    fn is_barred(&self, slot: SlotIndex) -> bool {
        let task = &self.slots[usize::from(slot)];
        let is_ordered = task.attribute == TaskAttribute::Ordered;
        if !is_ordered && self.ordered == 0 || task.attribute == TaskAttribute::HeadOfQueue {
            return false;
        }
        self.slots.iter().any(|other| {
            other.phase != Phase::Free
                && other.number == task.number
                && other.order < task.order
                && (is_ordered || other.attribute == TaskAttribute::Ordered)
        })
    }

    /// Lets those go on that wait for no earlier one any more.
    fn unbar(&mut self, scene: &Scene) {
        let all = std::mem::take(&mut self.barred);
        for slot in all {
            let task = &self.slots[usize::from(slot)];
            if task.phase != Phase::Barred {
                continue;
            }
            if self.is_barred(slot) {
                self.barred.push_back(slot);
                continue;
            }
            self.slots[usize::from(slot)].phase = Phase::Filling;
            self.plan(slot, scene);
            self.go_on(slot, scene);
        }
    }

    // ------------------------------------------------------------ they are ended --

    /// Tells whether functions are under way.
    pub(crate) fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Tells whether another function may begin.
    pub(crate) fn may_begin_function(&self) -> bool {
        self.functions.len() < FUNCTIONS_MAX
    }

    /// Ends tasks for the initiator, which is answered when nothing of them can take effect any more. Where `others`, other sessions do
    /// the same: returns the number by which they say that they have.
    pub(crate) fn end_for_initiator(
        &mut self,
        itt: Itt,
        extent: Extent,
        others: bool,
        scene: &Scene,
    ) -> u32 {
        let tasks = self.abort(extent, scene);
        let response = match (extent, tasks.found) {
            (Extent::Task(_), false) => TaskResponse::TaskDoesNotExist,
            _ => TaskResponse::Complete,
        };
        self.begin_function(AskedBy::Initiator(itt), tasks.left, others, response)
    }

    /// Ends all tasks without an answer.
    pub(crate) fn abort_all(&mut self, scene: &Scene) {
        self.abort(Extent::All, scene);
    }

    /// Ends tasks because another session reset their logical unit.
    pub(crate) fn end_for_other(&mut self, extent: Extent, wait: Arc<ResetWait>, scene: &Scene) {
        let tasks = self.abort(extent, scene);
        let asked_by = AskedBy::Other { _wait: wait };
        let response = TaskResponse::Complete;
        self.begin_function(asked_by, tasks.left, false, response);
    }

    fn begin_function(
        &mut self,
        asked_by: AskedBy,
        tasks: Vec<(SlotIndex, u16)>,
        waits_for_others: bool,
        response: TaskResponse,
    ) -> u32 {
        self.next_function = self.next_function.wrapping_add(1);
        let number = self.next_function;
        self.functions.push(Function {
            number,
            asked_by,
            tasks,
            waits_for_others,
            response,
        });
        self.look_at_functions();
        number
    }

    /// The other sessions have done their part of a function.
    pub(crate) fn others_ended(&mut self, number: u32) {
        if let Some(function) = self.functions.iter_mut().find(|one| one.number == number) {
            function.waits_for_others = false;
        }
        self.look_at_functions();
    }

    /// Answers the functions that are done.
    fn look_at_functions(&mut self) {
        let Tasks {
            functions,
            slots,
            answers,
            ..
        } = self;
        functions.retain_mut(|function| {
            function.tasks.retain(|&(slot, uses)| {
                let task = &slots[usize::from(slot)];
                task.uses == uses && task.phase != Phase::Free
            });
            let is_done = function.tasks.is_empty() && !function.waits_for_others;
            if is_done && let AskedBy::Initiator(itt) = function.asked_by {
                let response = function.response;
                answers.push(Answer::Management { itt, response });
            }
            !is_done
        });
    }

    /// Ends tasks without an answer.
    fn abort(&mut self, extent: Extent, scene: &Scene) -> Aborted {
        let mut slots: Vec<SlotIndex> = Vec::new();
        for (slot, task) in self.slots.iter().enumerate() {
            let is_meant = match extent {
                Extent::Task(itt) => task.itt == itt,
                Extent::Lun(number) => task.number == Some(number),
                Extent::All => true,
            };
            if is_meant && !matches!(task.phase, Phase::Free) {
                slots.push(slot as SlotIndex);
            }
        }
        // None of them may go on because another one of them ends.
        for &slot in &slots {
            self.stop(slot);
        }
        let aborted = slots.iter().map(|&slot| (slot, self.task(slot).uses));
        let left: Vec<_> = aborted.collect();
        for &slot in &slots {
            let task = &self.slots[usize::from(slot)];
            // Unless it went with another one.
            if task.phase == Phase::Aborted && task.has_ended() {
                self.release(slot, scene);
            }
        }
        Aborted {
            found: !slots.is_empty(),
            left,
        }
    }

    /// Has a task end: what its volume does not have yet is taken back, and the rest is to end early.
    fn stop(&mut self, slot: SlotIndex) {
        let index = usize::from(slot);
        let before = std::mem::replace(&mut self.slots[index].phase, Phase::Aborted);
        match before {
            Phase::Barred => self.barred.retain(|other| *other != slot),
            Phase::WaitsForRoom => self.waiting.retain(|other| *other != slot),
            Phase::Running => {
                for request in self.slots.withdraw(&[index]) {
                    self.slots.ended(request.token);
                }
                self.slots.end_early(&[index]);
            }
            _ => {}
        }
        let task = &mut self.slots[index];
        task.incoming = Incoming::Nowhere;
        task.outstanding = 0;
        // Initiators stop sending data of what they abort; where it comes nevertheless, it is skipped.
        task.is_unsolicited = false;
    }

    /// What the initiator sees has changed. Tasks on what it may not use any more end, and those that run begin no further request.
    pub(crate) fn let_go(&mut self, scene: &Scene) {
        let revoked = self.revoke(scene);
        for request in self.slots.withdraw(&revoked) {
            let Request { token, operation } = request;
            let slot = self.slots.ended(token) as SlotIndex;
            let completion = Completion {
                token,
                result: Err(weir_block::VolumeError::Cancelled),
                operation,
            };
            self.request_ended(slot, completion, scene);
        }
        self.slots.end_early(&revoked);
        for slot in 0..self.slots.len() as SlotIndex {
            let task = &mut self.slots[usize::from(slot)];
            let waits = matches!(task.phase, Phase::WaitsForRoom | Phase::Filling);
            if !waits || task.outcome.is_some() {
                continue;
            }
            let Some(loss) = task.loss(scene) else {
                continue;
            };
            task.outcome = Some(loss.into());
            task.outstanding = 0;
            self.waiting.retain(|other| *other != slot);
            self.go_on(slot, scene);
        }
        self.attentions.retain(|lun| scene.lun(lun).is_some());
    }

    /// Marks the tasks that run and that the initiator may not have run any more. Those that were not marked before, in order.
    pub(crate) fn revoke(&mut self, scene: &Scene) -> Vec<usize> {
        let mut revoked = Vec::new();
        for slot in 0..self.slots.len() {
            let task = &self.slots[slot];
            let runs = matches!(task.phase, Phase::Running | Phase::Aborted);
            if runs && !task.at.is_revoked() && task.loss(scene).is_some() {
                revoked.push(slot);
                self.slots.revoke(slot);
            }
        }
        revoked
    }

    // ------------------------------------------------------------- reservations --

    /// RESERVE (6) or (10) is asked for.
    pub(crate) fn may_shut(&mut self, reservations: &Arc<Reservations>) {
        if !self
            .shut
            .iter()
            .any(|other| Arc::ptr_eq(other, reservations))
        {
            self.shut.push(Arc::clone(reservations));
        }
    }

    /// Where RESERVE (6) or (10) was asked for.
    pub(crate) fn shut(&self) -> &[Arc<Reservations>] {
        &self.shut
    }

    /// The reservations of a volume have answered a task.
    pub(crate) fn reserved(
        &mut self,
        slot: SlotIndex,
        uses: u16,
        result: Result<(), Refused>,
        scene: &Scene,
    ) {
        let Some(task) = self.same(slot, uses) else {
            return;
        };
        let was_aborted = task.phase == Phase::Aborted;
        task.work = Work::None;
        if was_aborted {
            return self.release(slot, scene);
        }
        scene.counters().other_commands.add(1);
        self.finish(slot, device::outcome_of(result), scene);
    }

    /// Reservations changed: what the initiator may not have done any more ends, and it is to be told. The change is answered when
    /// no request of that is under way.
    pub(crate) fn rights_changed(&mut self, news: &Arc<News>, scene: &Scene) {
        let Some(registrant) = &scene.registrant else {
            return;
        };
        let mut aborted = Vec::new();
        if !self.is_over {
            for lun in scene.luns() {
                if !news.is_of(lun.export.reservations.as_ref()) {
                    continue;
                }
                let number = lun.export.number;
                if news.aborts(registrant) {
                    let tasks = self.abort(Extent::Lun(number), scene);
                    aborted.extend(tasks.left);
                    if tasks.found {
                        let cleared = AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR;
                        self.attentions.add(number, cleared);
                    }
                }
                for notice in news.notices(registrant) {
                    self.attentions.add(number, condition_of(notice));
                }
            }
            self.let_go(scene);
        } else {
            self.revoke(scene);
        }
        for (slot, _) in aborted {
            self.slots.keep_news(slot.into(), news);
        }
        for slot in 0..self.slots.len() {
            let task = &self.slots[slot];
            let attached = task.at.attached.as_ref();
            let is_there = attached.is_some_and(|lun| news.is_of(lun.export.reservations.as_ref()));
            if is_there && (task.loss(scene).is_some() || self.is_over && news.aborts(registrant)) {
                self.slots.keep_news(slot, news);
            }
        }
    }

    /// Drops what tasks hold, except what volumes have.
    pub(crate) fn give_up(&mut self) {
        self.is_over = true;
        self.answers.clear();
        self.waiting.clear();
        self.barred.clear();
        for slot in 0..self.slots.len() {
            let task = &mut self.slots[slot];
            task.incoming = Incoming::Nowhere;
            task.outcome = None;
        }
    }

    /// The session is over: functions that others wait for are done, since nothing of its tasks is under way.
    pub(crate) fn ended(&mut self) {
        self.functions.clear();
    }

    /// What the initiator owes of data that it was asked for, and up to which task that is. Those up to `looked` owed it at the look
    /// before. `arriving`: the slot that a PDU's data is coming for, and the bytes of that.
    pub(crate) fn awaited(
        &self,
        looked: u64,
        arriving: Option<(SlotIndex, u32)>,
    ) -> Option<(Awaited, u64)> {
        let mut awaited = Awaited::default();
        let (mut oldest, mut newest) = (None, looked);
        for (slot, task) in self.slots.iter().enumerate() {
            if !task.is_owed() {
                continue;
            }
            let coming = match arriving {
                Some((of, bytes)) if usize::from(of) == slot => {
                    awaited.is_arriving = true;
                    bytes
                }
                _ => 0,
            };
            let left = task.wanted - task.received.min(task.wanted);
            awaited.held += u64::from(task.wanted);
            awaited.left += u64::from(left);
            if task.order <= looked {
                awaited.left_of_last += u64::from(left.saturating_sub(coming));
            }
            oldest = Some(oldest.map_or(task.order, |oldest: u64| oldest.min(task.order)));
            newest = newest.max(task.order);
        }
        awaited.oldest = oldest? as u32;
        Some((awaited, newest))
    }
}

/// What an initiator is told of a change of reservations (SPC-4, section 5.12).
fn condition_of(notice: Notice) -> AdditionalSense {
    match notice {
        Notice::RegistrationPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
        Notice::ReservationReleased => AdditionalSense::RESERVATIONS_RELEASED,
        Notice::ReservationPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
    }
}

/// Answers that may always wait to be sent.
const ANSWERS_MIN: usize = 256;

/// What became of tasks that were to be ended.
struct Aborted {
    found: bool,
    left: Vec<(SlotIndex, u16)>,
}

/// Finds the place for all of a task's data, of which `more` bytes are without one, and moves there what has come.
fn find_place(task: &mut Task, more: u32, room: &mut Room, pool: &Pool) -> bool {
    if !room.may_take_buffers() || !room.take(more.into()) {
        return false;
    }
    let landing = task.landing().unwrap_or(Landing::Anywhere);
    let Some(mut place) = room.place(landing, task.wanted as usize, pool) else {
        room.give_back(more.into());
        return false;
    };
    let before = task.incoming.take();
    let before = slice_views(&before, 0, views_len(&before).min(task.received as usize));
    copy_into(&before, &mut place);
    task.incoming = Incoming::Landing(place);
    task.held += more;
    true
}

/// Copies views to the front of segments.
fn copy_into(views: &Views, segments: &mut Segments) {
    let mut bytes = views.iter().flat_map(|view| view.iter().copied());
    for segment in segments {
        for (to, from) in segment.iter_mut().zip(&mut bytes) {
            *to = from;
        }
    }
}

impl Task {
    /// Where its volume wants data for it. None: it is not for a volume's blocks.
    fn landing(&self) -> Option<Landing> {
        let (lba, blocks) = self.work.blocks_written()?;
        Some(self.at.queue().landing(lba, blocks))
    }

    /// It has room for all that it needs, or ends.
    #[inline]
    fn use_aside(&mut self, room: &mut Room) {
        room.use_aside(std::mem::take(&mut self.aside).into());
    }

    /// Takes out the data that it brought.
    pub(crate) fn take_data(&mut self) -> Views {
        let data = self.incoming.take();
        let wanted = self.wanted as usize;
        match views_len(&data) == wanted {
            true => data,
            false => slice_views(&data, 0, wanted),
        }
    }

    /// How what is transferred differs from what the initiator expected. Cuts data that is too long.
    fn residual(&self, outcome: &mut Outcome) -> Residual {
        let expected = self.expected;
        if self.writes && self.brings > expected {
            return Residual::Overflow(self.brings - expected);
        }
        if outcome.data_bytes > 0 || !self.writes {
            let available = outcome.data_bytes;
            let allowed = if self.reads { expected } else { 0 };
            if available > allowed {
                outcome.data = slice_views(&outcome.data, 0, allowed as usize);
                outcome.data_bytes = allowed;
                return Residual::Overflow(available - allowed);
            }
            return match expected - available {
                0 => Residual::None,
                fewer => Residual::Underflow(fewer),
            };
        }
        if outcome.status == Status::Good {
            return match expected - self.wanted {
                0 => Residual::None,
                fewer => Residual::Underflow(fewer),
            };
        }
        match expected - self.received.min(expected) {
            0 => Residual::None,
            fewer => Residual::Underflow(fewer),
        }
    }

    /// Tells whether nothing that was begun for it is under way.
    fn has_ended(&self) -> bool {
        self.at.outstanding() == 0 && !matches!(self.work, Work::Asked)
    }

    /// Why the initiator may not have it done any more; none: it may.
    fn loss(&self, scene: &Scene) -> Option<Loss> {
        let attached = self.at.attached.as_ref()?;
        let loss = |before: &AttachedLun, modifies: bool, access: Access| {
            let now = scene.lun(before.export.number);
            match now.filter(|now| Rc::ptr_eq(&now.queue, &before.queue)) {
                None => Some(Loss::Gone),
                Some(now) if modifies && now.is_read_only() => Some(Loss::ReadOnly),
                Some(_) => (!scene.allows(before, access)).then_some(Loss::Reserved),
            }
        };
        match &self.work {
            Work::Copying(copying) => copying.loss(loss),
            work => loss(attached, work.modifies(), work.access()),
        }
    }

    /// What it is answered when it was revoked.
    pub(crate) fn revoked_outcome(&self, scene: &Scene) -> Outcome {
        match self.loss(scene) {
            Some(loss) => loss.into(),
            // It may be done again: the initiator tries it again.
            None => Outcome::status(Status::Busy),
        }
    }
}
