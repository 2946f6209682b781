//! The commands of one connection, as far as volumes work for them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{Announcement, Completion, Operation, Request, Token, Volume};
use weir_reactor::{Instant, SharedSection};

use crate::latency::{CommandKind, Course, Run, Runs, Stage};
use crate::reservations::News;
use crate::volumes::{Attached, Export, VolumeQueue};

/// What a command has to do with volumes. It is a part of the protocol's own slot.
pub struct AtVolume<E> {
    generation: u32,
    outstanding: u32,
    is_revoked: bool,
    /// A request of it changes what its volume stores.
    changes: bool,
    /// What its requests go to.
    pub attached: Option<Rc<Attached<E>>>,
    /// How its time was spent.
    pub course: Course,
}

impl<E> Default for AtVolume<E> {
    fn default() -> Self {
        AtVolume {
            generation: 0,
            outstanding: 0,
            is_revoked: false,
            changes: false,
            attached: None,
            course: Course::default(),
        }
    }
}

impl<E> AtVolume<E> {
    /// Number of its requests that have not ended.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Ends the command; the slot's next one is another.
    ///
    /// # Panics
    /// When requests of it have not ended.
    #[inline]
    pub fn clear(&mut self) {
        assert_eq!(self.outstanding, 0, "a command ends after its requests");
        self.generation = self.generation.wrapping_add(1);
        self.is_revoked = false;
        self.changes = false;
        self.attached = None;
    }

    /// Tells whether the right to it was [taken away](Commands::revoke).
    #[inline]
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.is_revoked
    }

    /// The queue of its volume.
    ///
    /// # Panics
    /// When it has none.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> &Rc<VolumeQueue> {
        let attached = self.attached.as_ref();
        &attached.expect("requests go to an export").queue
    }
}

/// A slot for one command of a protocol.
pub trait Slot {
    /// What its requests go to.
    type Export: Export;

    /// Its part that has to do with volumes.
    fn at_volume(&self) -> &AtVolume<Self::Export>;

    /// The same, to be changed.
    fn at_volume_mut(&mut self) -> &mut AtVolume<Self::Export>;
}

/// Answers that leave together: bytes of their data, and their commands' courses.
#[derive(Default)]
struct Answered {
    bytes: u64,
    runs: Runs,
}

/// The slots of one connection, and the requests that their commands have at volumes.
pub struct Commands<T> {
    slots: Vec<T>,
    owner: u32,
    /// Requests that have not ended; shared with whoever looks whether the connection is idle.
    running: Rc<Cell<u32>>,
    /// Queues that have requests to be submitted.
    to_pump: Vec<Rc<VolumeQueue>>,
    /// There may be requests under way whose right was taken away.
    has_revoked: bool,
    /// Changes of reservations that took the right of the command in a slot, and that are answered after its requests.
    news: Vec<(usize, Arc<News>)>,
    /// Since the last send began.
    answered: Answered,
    /// In the send that is under way.
    leaving: Answered,
    now: Instant,
}

impl<T> Deref for Commands<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.slots
    }
}

impl<T> DerefMut for Commands<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.slots
    }
}

impl<T: Slot> Commands<T> {
    /// No slots yet. `owner` names the connection in the tokens of its requests ([`crate::Entry::owner`]).
    #[must_use]
    pub fn new(owner: u32) -> Self {
        Commands {
            slots: Vec::new(),
            owner,
            running: Rc::default(),
            to_pump: Vec::new(),
            has_revoked: false,
            news: Vec::new(),
            answered: Answered::default(),
            leaving: Answered::default(),
            now: Instant::default(),
        }
    }

    /// Makes it as many slots, where there are fewer.
    pub fn resize_with(&mut self, slots: usize, new: impl FnMut() -> T) {
        let slots = slots.max(self.slots.len());
        self.slots.resize_with(slots, new);
    }

    /// Tells the time, by which commands' courses are measured from here on.
    #[inline]
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// The time that it was told last.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of requests on volumes that have not ended.
    #[inline]
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running.get()
    }

    pub(crate) fn shared_running(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.running)
    }

    fn token_of(&self, slot: usize) -> Token {
        Token {
            owner: self.owner,
            slot: slot as u32,
            generation: self.slots[slot].at_volume().generation,
        }
    }

    /// Adds a request of a command to what goes to its volume.
    #[inline(always)]
    pub fn submit(&mut self, slot: usize, kind: CommandKind, operation: Operation) {
        let at = self.slots[slot].at_volume_mut();
        at.course.ask(kind);
        at.changes |= match kind {
            CommandKind::Read => false,
            CommandKind::Write => true,
            CommandKind::Other => operation.modifies(),
        };
        at.course.spend(Stage::Queue, self.now);
        let token = Token {
            owner: self.owner,
            slot: slot as u32,
            generation: at.generation,
        };
        at.outstanding += 1;
        let queue = at.queue();
        queue.push(Request { token, operation });
        // Only what was handed on has an end that can be waited for.
        self.running.set(self.running.get() + 1);
        pump_later(&mut self.to_pump, queue);
    }

    /// Hands what was added since to the volumes: one batch each.
    #[inline]
    pub fn pump(&mut self) {
        if !self.to_pump.is_empty() {
            self.pump_all();
        }
    }

    fn pump_all(&mut self) {
        for queue in &self.to_pump {
            queue.pump(self.now);
        }
        self.to_pump.clear();
    }

    /// Notes that a request has left its volume. Returns the slot of its command.
    #[inline]
    pub fn ended(&mut self, token: Token) -> usize {
        self.running.set(self.running.get() - 1);
        end_one(&mut self.slots, token);
        self.let_go_of_news(token.slot as usize);
        token.slot as usize
    }

    /// Notes that a volume completed a request, and when. Returns the slot of its command.
    #[inline]
    pub fn completed(&mut self, token: Token) -> usize {
        let now = self.now;
        self.running.set(self.running.get() - 1);
        let at = end_one(&mut self.slots, token);
        // What waits in the volume's queue for room can go on now.
        let attached = at.attached.as_ref().expect("it had a request");
        if at.changes {
            attached.count_change();
        }
        let queue = &attached.queue;
        if let Some(taken) = queue.taken_late(token) {
            at.course.spend(Stage::Queue, taken);
        }
        at.course.spend(Stage::Volume, now);
        if queue.is_waiting() {
            pump_later(&mut self.to_pump, queue);
        }
        self.let_go_of_news(token.slot as usize);
        token.slot as usize
    }

    /// A request of a command has ended; with the last one the command lets go of the news that it kept.
    #[inline(always)]
    fn let_go_of_news(&mut self, slot: usize) {
        if !self.news.is_empty() {
            self.let_go_of_some_news(slot);
        }
    }

    #[cold]
    fn let_go_of_some_news(&mut self, slot: usize) {
        if self.slots[slot].at_volume().outstanding == 0 {
            self.news.retain(|(keeper, _)| *keeper != slot);
        }
    }

    /// A command has its answer, which is to be written before the next send: with so many bytes of data, which are in the
    /// [`crate::Room`] until it has left.
    #[inline]
    pub fn answered(&mut self, slot: usize, bytes: u32) {
        self.answered.bytes += u64::from(bytes);
        self.answered.runs.add(&self.slots[slot].at_volume().course);
    }

    /// As [`Commands::answered`], of a command that has left its slot.
    pub fn answered_by(&mut self, course: &Course) {
        self.answered.runs.add(course);
    }

    /// All that was answered is being sent.
    #[inline]
    pub fn send_began(&mut self) {
        debug_assert!(self.leaving.runs.is_empty(), "one send at a time");
        std::mem::swap(&mut self.answered, &mut self.leaving);
    }

    /// Ends a send: returns the bytes of the answers' data, and the courses of their commands, whose memory is to be
    /// [kept](Commands::keep_runs).
    #[inline]
    #[must_use]
    pub fn send_ended(&mut self) -> (u64, Runs) {
        let Answered { bytes, runs } = std::mem::take(&mut self.leaving);
        (bytes, runs)
    }

    /// Gives courses back that were drained, for the next send.
    #[inline]
    pub fn keep_runs(&mut self, runs: Runs) {
        self.leaving.runs = runs;
    }

    /// Bytes of answers' data that have not left.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        self.answered.bytes + self.leaving.bytes
    }

    /// Takes out the courses of the commands whose answers have not left, and never will.
    pub(crate) fn take_unsent(&mut self) -> [Runs; 2] {
        let of = |answered: &mut Answered| std::mem::take(&mut answered.runs);
        [of(&mut self.leaving), of(&mut self.answered)]
    }

    /// Takes back the one request of a command that the volume does not have yet, or wishes that it end early.
    pub fn cancel(&mut self, slot: usize) -> Option<Operation> {
        let token = self.token_of(slot);
        let queue = Rc::clone(self.slots[slot].at_volume().queue());
        let request = queue.cancel(token)?;
        self.ended(token);
        let now = self.now;
        let at = self.slots[slot].at_volume_mut();
        at.course.spend(Stage::Queue, now);
        Some(request.operation)
    }

    /// Takes back the requests of these slots, which are in order, that no volume has yet: each is to be [ended](Commands::ended).
    #[must_use]
    pub fn withdraw(&self, slots: &[usize]) -> Vec<Request> {
        let has_requests = |slot: &&usize| self.slots[**slot].at_volume().outstanding > 0;
        let slots_of = slots.iter().filter(has_requests);
        let tokens: Vec<_> = slots_of.map(|&slot| self.token_of(slot)).collect();
        let mut withdrawn = Vec::new();
        for queue in self.queues_of(slots) {
            queue.withdraw(|token| tokens.binary_search(&token).is_ok(), &mut withdrawn);
        }
        withdrawn
    }

    /// Asks the volumes to end early what they have of these slots.
    pub fn end_early(&self, slots: &[usize]) {
        for &slot in slots {
            let at = self.slots[slot].at_volume();
            for _ in 0..at.outstanding {
                at.queue().end_early(self.token_of(slot));
            }
        }
    }

    /// The volumes' queues to which requests of these slots went that have not ended.
    fn queues_of(&self, slots: &[usize]) -> Vec<&Rc<VolumeQueue>> {
        let mut queues: Vec<&Rc<VolumeQueue>> = Vec::new();
        for &slot in slots {
            let at = self.slots[slot].at_volume();
            if at.outstanding == 0 {
                continue;
            }
            let queue = at.queue();
            if !queues.iter().any(|other| Rc::ptr_eq(other, queue)) {
                queues.push(queue);
            }
        }
        queues
    }

    /// The connection is lost: takes back what no volume has yet, and asks the volumes to end the rest early, and to keep it apart from
    /// what the host does next. Each of their queues that has still to do so holds `announcement`.
    pub(crate) fn withdraw_all(&mut self, announcement: &Announcement) {
        let all: Vec<_> = (0..self.slots.len()).collect();
        for request in self.withdraw(&all) {
            self.ended(request.token);
        }
        self.end_early(&all);
        for queue in self.queues_of(&all) {
            queue.abandon(self.owner, announcement);
        }
    }

    /// A request ended after the connection was lost: no host is told. Where it was the last of its command, returns the command's
    /// course, and its export.
    pub(crate) fn discard(
        &mut self,
        completion: &Completion,
    ) -> Option<(Rc<Attached<T::Export>>, Run)> {
        let slot = self.ended(completion.token);
        let now = self.now;
        let at = self.slots[slot].at_volume_mut();
        let attached = at.attached.as_ref()?;
        if at.changes {
            attached.count_change();
        }
        if let Some(taken) = attached.queue.taken_late(completion.token) {
            at.course.spend(Stage::Queue, taken);
        }
        at.course.spend(Stage::Volume, now);
        attached.queue.pump(now);
        (at.outstanding == 0).then(|| (Rc::clone(attached), Run::of(&at.course)))
    }

    /// Whether a request has not ended that went to this volume.
    pub(crate) fn waits_for_volume(&self, volume: &Weak<dyn Volume>) -> bool {
        let waits = |slot: &T| {
            let at = slot.at_volume();
            let attached = at.attached.as_ref().filter(|_| at.outstanding > 0);
            attached.is_some_and(|attached| {
                std::ptr::addr_eq(volume.as_ptr(), Arc::as_ptr(attached.export.volume()))
            })
        };
        self.slots.iter().any(waits)
    }

    /// The right to a command was taken away while volumes work for it.
    pub fn revoke(&mut self, slot: usize) {
        self.has_revoked = true;
        self.slots[slot].at_volume_mut().is_revoked = true;
    }

    /// Has a command keep the news of what took its right, until its requests have ended: nothing of it takes effect after that.
    /// One of which no request is under way has none to keep.
    pub fn keep_news(&mut self, slot: usize, news: &Arc<News>) {
        let keeps =
            |(keeper, kept): &(usize, Arc<News>)| *keeper == slot && Arc::ptr_eq(kept, news);
        if self.slots[slot].at_volume().outstanding > 0 && !self.news.iter().any(keeps) {
            self.news.push((slot, Arc::clone(news)));
        }
    }

    /// Number of requests under way whose right was taken away, by the number of the export; none: there were none and are none.
    pub(crate) fn revoked(&mut self) -> Option<BTreeMap<u32, u64>> {
        if !self.has_revoked {
            return None;
        }
        let mut revoked = BTreeMap::new();
        for slot in &self.slots {
            let at = slot.at_volume();
            if at.is_revoked && at.outstanding > 0 {
                let number = at.course.export();
                *revoked.entry(number).or_default() += u64::from(at.outstanding);
            }
        }
        self.has_revoked = !revoked.is_empty();
        Some(revoked)
    }
}

/// A request of one of these slots ended.
#[inline(always)]
fn end_one<T: Slot>(slots: &mut [T], token: Token) -> &mut AtVolume<T::Export> {
    match slots.get_mut(token.slot as usize).map(T::at_volume_mut) {
        Some(at) if at.generation == token.generation && at.outstanding > 0 => {
            at.outstanding -= 1;
            at
        }
        _ => broken_by_volume(token),
    }
}

/// Has a volume's queue pumped with the others that are to be.
#[inline]
fn pump_later(to_pump: &mut Vec<Rc<VolumeQueue>>, queue: &Rc<VolumeQueue>) {
    if !to_pump.iter().any(|other| Rc::ptr_eq(other, queue)) {
        to_pump.push(Rc::clone(queue));
    }
}

/// Ends the process: a volume completed a request that it does not have. Other connections use the volume too, and their requests
/// may never end now, so ending this connection is not enough.
///
/// # Panics
/// Always: the process ends.
#[cold]
#[inline(never)]
pub fn broken_by_volume(token: Token) -> ! {
    let _shared = SharedSection::enter();
    panic!("a volume completed {token:?}, which is no request that it has");
}
