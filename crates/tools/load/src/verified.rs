//! A volume of which every block is checked on its way, whatever load runs on it: a wrapper, so that load without it costs nothing more.
//!
//! What is written is replaced by stamped blocks, and what is read is compared with what was written last. So that there is never a
//! doubt what that is, requests that overlap one in flight wait until it has ended, on whichever queue it is. A request that
//! yielded something wrong is held, its blocks are read again a few times, and then the load is asked to stop. At the end
//! everything that was written is read once more.
//!
//! Blocks that the run has not written may hold anything but what belongs to another block. Blocks outside the range that it
//! knows are not looked at.
//!
//! Of several machines that make one load each checks its own blocks ([`Blocks`]), of which no other one writes any: what a machine knows of its writes is all that there is to
//! know. They have one seed and number their writes apart, so that what goes astray from one's blocks to another's is known there for what it is.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, HealthFuture, InFlight, Landing, Operation,
    OperationKind, Queue, Request, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_memory::{Segment, View, Views};
use weir_reactor::Reactor;

use crate::diagnosis::{Before, Evidence, Finding, Holds, Wanted, look};
use crate::lane::{Lane, LaneError};
use crate::pattern::{SEQUENCE_BITS, Stamp, header};
use crate::plan::range_blocks;
use crate::search::{AGAIN_AFTER, Search, filled, for_each_block, read_of};
use crate::{PROGRESS_INTERVAL, Stop};

/// Blocks that can be checked: what is remembered of them takes 16 bytes each.
pub const CHECKED_BLOCKS_MAX: u64 = 1 << 26;
/// Requests that yielded something wrong that are looked into; more are counted.
const SUSPECTS_MAX: usize = 16;
/// Blocks to each side of a read that are looked at for the rest of a write.
const NEIGHBOURS_MAX: u64 = 256;
/// Requests in flight, and bytes of each at most, when everything is read at the end.
const LAST_DEPTH: u32 = 16;
const LAST_BYTES_MAX: u64 = 256 << 10;

/// Why blocks cannot be checked, or are not as they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifiedError {
    /// There are too many.
    #[error(
        "{blocks} blocks are more than the {CHECKED_BLOCKS_MAX} that can be remembered; use a part of the volume"
    )]
    TooManyBlocks {
        /// Number of entries.
        blocks: u64,
    },
    /// Blocks do not hold what was written to them.
    #[error("{volume} is at fault: {}", .findings[0])]
    Wrong {
        /// The volume's name.
        volume: String,
        /// What was found, by address; one at least.
        findings: Vec<Finding>,
        /// Requests that yielded something wrong.
        requests: u64,
    },
    /// Reading everything at the end failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

/// What was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedReport {
    /// Blocks written, each as often as it was.
    pub written_blocks: u64,
    /// Blocks compared with what was written to them, each as often as it was.
    pub compared_blocks: u64,
    /// Whether everything was read once more at the end, and not interrupted.
    pub whole: bool,
}

/// How a conclusion goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConclusionProgress {
    /// Since its start.
    pub elapsed: Duration,
    /// The block that it is at.
    pub block: u64,
    /// Where it ends.
    pub blocks: u64,
    /// Whether something was wrong, and where a write went that seems lost is being searched for; otherwise what was written is read.
    pub searching: bool,
}

/// What is known of one block: the sequence number of what it holds, 0 where that is not known, and who uses it.
struct State;

impl State {
    const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
    const READER: u64 = 1 << SEQUENCE_BITS;
    const READERS_MASK: u64 = 0x7FFF << SEQUENCE_BITS;
    const WRITING: u64 = 1 << 63;
}

/// Which blocks are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Of the volume's.
    pub range: Range<u64>,
    /// Which of several machines that share a volume out among them checks these, from 1 on; 0 where one machine checks all.
    pub writer: u16,
}

struct Shared {
    seed: u64,
    /// The first block that something is remembered of.
    first: u64,
    /// What sequence numbers have above what counts: who wrote.
    mark: u64,
    states: Box<[AtomicU64]>,
    /// The sequence number before the last, for what is torn.
    previous: Box<[AtomicU64]>,
    next_sequence: AtomicU64,
    written: AtomicU64,
    compared: AtomicU64,
    wrong: AtomicU64,
    suspects: Mutex<Vec<Evidence>>,
    stop: Stop,
}

impl Shared {
    /// The blocks of a range of which something is remembered, by their places there.
    fn known(&self, lba: u64, blocks: u64) -> Range<usize> {
        let length = self.states.len() as u64;
        let place = |lba: u64| lba.saturating_sub(self.first).min(length) as usize;
        place(lba)..place(lba.saturating_add(blocks))
    }

    fn address(&self, place: usize) -> u64 {
        self.first + place as u64
    }

    /// As it stands in a stamp.
    fn marked(&self, sequence: u64) -> u64 {
        match sequence {
            0 => 0,
            sequence => self.mark | sequence,
        }
    }

    fn sequence(&self, block: usize) -> u64 {
        self.states[block].load(SeqCst) & State::SEQUENCE_MASK
    }

    /// Has `change` done to every state of a range, or to none where it is refused for one.
    fn take(
        &self,
        range: Range<usize>,
        change: impl Fn(u64) -> Option<u64>,
        undo: impl Fn(u64) -> u64,
    ) -> bool {
        for block in range.clone() {
            if self.states[block]
                .fetch_update(SeqCst, SeqCst, &change)
                .is_err()
            {
                for taken in &self.states[range.start..block] {
                    let undone = |state| Some(undo(state));
                    // It is never refused.
                    let _ = taken.fetch_update(SeqCst, SeqCst, undone);
                }
                return false;
            }
        }
        true
    }

    fn begin_read(&self, range: Range<usize>) -> bool {
        let begin = |state: u64| {
            let is_free = state & State::WRITING == 0;
            let has_room = state & State::READERS_MASK != State::READERS_MASK;
            (is_free && has_room).then(|| state + State::READER)
        };
        self.take(range, begin, |state| state - State::READER)
    }

    fn end_read(&self, range: Range<usize>) {
        for block in range {
            self.states[block].fetch_sub(State::READER, SeqCst);
        }
    }

    fn begin_write(&self, range: Range<usize>) -> bool {
        let begin = |state: u64| {
            let is_free = state & (State::WRITING | State::READERS_MASK) == 0;
            is_free.then_some(state | State::WRITING)
        };
        self.take(range, begin, |state| state & !State::WRITING)
    }

    /// The write is over, and left this behind; 0: nobody knows what.
    fn end_write(&self, range: Range<usize>, sequence: u64) {
        for block in range {
            self.previous[block].store(self.sequence(block), SeqCst);
            self.states[block].store(sequence, SeqCst);
        }
    }

    /// The write did not happen.
    fn undo_write(&self, range: Range<usize>) {
        for block in range {
            self.states[block].fetch_and(!State::WRITING, SeqCst);
        }
    }

    fn wanted(&self, block: usize) -> Wanted {
        match self.sequence(block) {
            0 => Wanted::Anything,
            sequence => Wanted::Exactly(self.marked(sequence)),
        }
    }

    /// What each block of a range that begins at `lba` holds, of which blocks `known` are remembered.
    fn look(&self, known: Range<usize>, lba: u64, data: &[View], block_bytes: usize) -> Vec<Holds> {
        let mut all = Vec::with_capacity(known.len());
        let mut at = lba;
        for_each_block(data, block_bytes, |bytes| {
            let place = at.checked_sub(self.first).map(|place| place as usize);
            if let Some(place) = place.filter(|place| known.contains(place)) {
                let previous = self.marked(self.previous[place].load(SeqCst));
                all.push(look(self.seed, at, self.wanted(place), previous, bytes));
            }
            at += 1;
        });
        all.resize(known.len(), Holds::Missing);
        all
    }
}

/// A volume that is checked. See the module.
struct VerifiedVolume {
    inner: Arc<dyn Volume>,
    shared: Arc<Shared>,
}

/// Volumes that are checked, and what is known of them.
pub struct Verification {
    shared: Arc<Shared>,
    inner: Arc<dyn Volume>,
    checked: Arc<dyn Volume>,
}

/// Wraps one volume, or one as several hosts see it. `seed` must be one that nobody has used on it before. With the first thing
/// wrong `stop` is asked to end the load. Only the first `range_bytes` are checked, where they are given.
///
/// # Errors
/// [`VerifiedError::TooManyBlocks`].
///
/// # Panics
/// Where there is no volume.
pub fn wrap(
    volumes: &[Arc<dyn Volume>],
    seed: u64,
    range_bytes: Option<u64>,
    stop: &Stop,
) -> Result<(Vec<Arc<dyn Volume>>, Verification), VerifiedError> {
    let blocks = range_blocks(&volumes[0].geometry(), range_bytes);
    let blocks = Blocks {
        range: 0..blocks,
        writer: 0,
    };
    wrap_blocks(volumes, seed, &blocks, stop)
}

/// As [`wrap`], of which `blocks` are checked. All machines that share a volume out among them have one `seed`, and each is another writer.
///
/// # Errors
/// As [`wrap`].
///
/// # Panics
/// As [`wrap`].
pub fn wrap_blocks(
    volumes: &[Arc<dyn Volume>],
    seed: u64,
    blocks: &Blocks,
    stop: &Stop,
) -> Result<(Vec<Arc<dyn Volume>>, Verification), VerifiedError> {
    let Blocks { range, writer } = blocks;
    let length = range.end.saturating_sub(range.start);
    if length > CHECKED_BLOCKS_MAX {
        return Err(VerifiedError::TooManyBlocks { blocks: length });
    }
    let numbers = || (0..length).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared {
        seed,
        first: range.start,
        mark: u64::from(*writer) << SEQUENCE_BITS,
        states: numbers(),
        previous: numbers(),
        next_sequence: AtomicU64::new(1),
        written: AtomicU64::new(0),
        compared: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
        suspects: Mutex::default(),
        stop: stop.clone(),
    });
    let wrapped: Vec<Arc<dyn Volume>> = volumes
        .iter()
        .map(|inner| {
            let (inner, shared) = (Arc::clone(inner), Arc::clone(&shared));
            Arc::new(VerifiedVolume { inner, shared }) as Arc<dyn Volume>
        })
        .collect();
    let verification = Verification {
        shared,
        inner: Arc::clone(&volumes[0]),
        checked: Arc::clone(&wrapped[0]),
    };
    Ok((wrapped, verification))
}

/// Which two of several volumes are the same medium, where some are: each would find what is written through the other wrong. The first block of each is
/// written to for that, and holds afterwards what it held before.
///
/// # Errors
/// [`LaneError`]: a request failed.
pub async fn same_medium(
    control: &Reactor,
    volumes: &[Arc<dyn Volume>],
) -> Result<Option<(usize, usize)>, LaneError> {
    let seed = control.random();
    let (mut lanes, mut before) = (Vec::new(), Vec::new());
    for volume in volumes {
        let mut lane = Lane::open(control, volume, 1)?;
        let block_bytes = volume.geometry().block_size.bytes() as usize;
        before.push(first_block(&mut lane, block_bytes).await?);
        lanes.push(lane);
    }
    let mut same = None;
    for (index, lane) in lanes.iter_mut().enumerate() {
        let stamp = Stamp {
            seed,
            lba: 0,
            sequence: index as u64,
        };
        let data = View::copy_of(&stamp.contents(before[index].len()));
        lane.alone((), write_of_first(data)).await?;
    }
    for (index, lane) in lanes.iter_mut().enumerate() {
        let block = first_block(lane, before[index].len()).await?;
        let stamp = header(&block).filter(|stamp| stamp.seed == seed);
        let other = stamp.map(|stamp| stamp.sequence as usize);
        let other = other.filter(|&other| other != index);
        same = same.or(other.map(|other| (index.min(other), index.max(other))));
    }
    for (lane, before) in lanes.iter_mut().zip(before) {
        lane.alone((), write_of_first(View::copy_of(&before)))
            .await?;
    }
    Ok(same)
}

async fn first_block(lane: &mut Lane<()>, block_bytes: usize) -> Result<Vec<u8>, LaneError> {
    let read = lane.alone((), read_of(0, 1)).await?;
    let mut bytes = Vec::with_capacity(block_bytes);
    filled(&read)
        .iter()
        .for_each(|view| bytes.extend_from_slice(view));
    bytes.resize(block_bytes, 0);
    Ok(bytes)
}

fn write_of_first(data: View) -> Operation {
    Operation::Write {
        lba: 0,
        blocks: 1,
        data: Views::from_iter([data]),
        fua: false,
    }
}

impl Verification {
    /// After the load: reads everything that was written once more, unless something was wrong already, and says what was found. `stop` ends
    /// both this and the search for what went elsewhere; what was found until then is the result. Where it is the one that ended the load, give [`Stop::for_what_follows`],
    /// once for everything that is concluded.
    ///
    /// # Errors
    /// [`VerifiedError`].
    pub async fn conclude(
        self,
        control: &Reactor,
        stop: &Stop,
        mut progress: impl FnMut(ConclusionProgress),
    ) -> Result<VerifiedReport, VerifiedError> {
        let began = control.now();
        let goes_on = || !stop.is_asked();
        let mut show = |block, blocks, searching| {
            progress(ConclusionProgress {
                elapsed: control.now() - began,
                block,
                blocks,
                searching,
            });
        };
        let mut whole = true;
        if self.shared.wrong.load(SeqCst) == 0 {
            let length = self.shared.states.len() as u64;
            let shown = |block| show(block, length, false);
            whole = self.read_everything(control, goes_on, shown).await?;
        }
        let evidence = std::mem::take(
            &mut *self
                .shared
                .suspects
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let mut findings: Vec<_> = evidence.iter().filter_map(Evidence::diagnose).collect();
        if findings.is_empty() {
            return Ok(VerifiedReport {
                written_blocks: self.shared.written.load(SeqCst),
                compared_blocks: self.shared.compared.load(SeqCst),
                whole,
            });
        }
        let search = Search::of(self.shared.seed, &findings, HashMap::new());
        let blocks = self.inner.geometry().blocks;
        let shown = |block| show(block, blocks, true);
        let places = search.run(control, &self.inner, goes_on, shown).await;
        for finding in &mut findings {
            finding.explain(self.shared.seed, &places);
        }
        findings.sort_by_key(|finding| finding.lba);
        Err(VerifiedError::Wrong {
            volume: self.inner.name(),
            findings,
            requests: self.shared.wrong.load(SeqCst),
        })
    }

    /// Whether it got to the end.
    async fn read_everything(
        &self,
        control: &Reactor,
        goes_on: impl Fn() -> bool,
        mut shown: impl FnMut(u64),
    ) -> Result<bool, LaneError> {
        let geometry = self.checked.geometry();
        let most = (LAST_BYTES_MAX >> geometry.block_size.shift())
            .min(u64::from(geometry.transfer_blocks_max)) as usize;
        let mut lane = Lane::open(control, &self.checked, LAST_DEPTH)?;
        let length = self.shared.states.len();
        let is_written = |block: usize| block < length && self.shared.sequence(block) != 0;
        let (mut next, mut whole, mut last) = (0, true, control.now());
        loop {
            if next < length && !goes_on() {
                (next, whole) = (length, false);
            }
            while lane.has_room() && next < length {
                if !is_written(next) {
                    next += 1;
                    continue;
                }
                let blocks = (1..most)
                    .take_while(|&more| is_written(next + more))
                    .count()
                    + 1;
                lane.push((), read_of(self.shared.address(next), blocks as u32));
                next += blocks;
            }
            if lane.is_idle() {
                return Ok(whole);
            }
            let ended = lane.next().await;
            ended
                .result
                .map_err(|error| lane.error(&ended.operation, error))?;
            if control.now() - last >= PROGRESS_INTERVAL {
                last = control.now();
                shown(next as u64);
            }
            if self.shared.wrong.load(SeqCst) > 0 {
                next = length;
            }
        }
    }
}

impl Volume for VerifiedVolume {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let covers = Rc::new(Covers {
            sink,
            reactor: reactor.clone(),
            inner: Arc::clone(&self.inner),
            shared: Arc::clone(&self.shared),
            block_bytes: self.inner.geometry().block_size.bytes() as usize,
            sequences: RefCell::default(),
            own: RefCell::default(),
        });
        *covers.own.borrow_mut() = Rc::downgrade(&covers);
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, Rc::clone(&covers) as _)?;
        Ok(Box::new(VerifiedQueue {
            inner,
            covers,
            admitted: VecDeque::new(),
            done_below: VecDeque::new(),
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.inner.health(reactor)
    }
}

/// Whether a request leaves behind something else than it finds.
fn changes(operation: &Operation) -> bool {
    operation.modifies() && operation.kind() != OperationKind::Flush
}

struct VerifiedQueue {
    inner: Box<dyn Queue>,
    covers: Rc<Covers>,
    admitted: VecDeque<Request>,
    /// Done at once by the volume below.
    done_below: VecDeque<Completion>,
}

impl Queue for VerifiedQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    /// What overlaps a request in flight stays in the batch.
    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let mut left = VecDeque::new();
        for request in batch.drain(..) {
            match self.covers.admit(request) {
                Ok(request) => self.admitted.push_back(request),
                Err(request) => left.push_back(request),
            }
        }
        self.inner.submit(&mut self.admitted, &mut self.done_below);
        for request in self.admitted.drain(..).rev() {
            self.covers.dismiss(&request);
            left.push_front(request);
        }
        *batch = left;
        while let Some(completion) = self.done_below.pop_front() {
            done.extend(self.covers.judge(completion));
        }
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}

/// Checks completions, and hands them on.
struct Covers {
    sink: Rc<dyn CompletionSink>,
    reactor: Reactor,
    inner: Arc<dyn Volume>,
    shared: Arc<Shared>,
    block_bytes: usize,
    /// Of the writes in flight.
    sequences: RefCell<HashMap<Token, u64>>,
    /// Itself, for what goes on after a completion.
    own: RefCell<std::rc::Weak<Covers>>,
}

impl Covers {
    fn known(&self, operation: &Operation) -> Range<usize> {
        operation
            .range()
            .map_or(0..0, |(lba, blocks)| self.shared.known(lba, blocks))
    }

    /// Takes the request's blocks for it, and puts stamps into what it writes. It comes back where it overlaps another.
    fn admit(&self, mut request: Request) -> Result<Request, Request> {
        let known = self.known(&request.operation);
        let is_taken = match changes(&request.operation) {
            true => self.shared.begin_write(known),
            false => self.shared.begin_read(known),
        };
        if !is_taken {
            return Err(request);
        }
        if let Operation::Write { lba, data, .. } = &mut request.operation {
            let sequence = self.shared.next_sequence.fetch_add(1, Relaxed);
            let marked = self.shared.marked(sequence);
            *data = self.stamped(*lba, marked, weir_memory::views_len(data));
            let mut sequences = self.sequences.borrow_mut();
            sequences.insert(request.token, sequence);
        }
        Ok(request)
    }

    fn stamped(&self, lba: u64, sequence: u64, bytes: usize) -> Views {
        let segment = self.reactor.pool().segment(bytes);
        let mut segment = segment.unwrap_or_else(|_| Segment::heap(bytes));
        for (block, at) in segment.chunks_mut(self.block_bytes).zip(lba..) {
            Stamp {
                seed: self.shared.seed,
                lba: at,
                sequence,
            }
            .write(block);
        }
        Views::from_iter([segment.freeze()])
    }

    /// The queue had no room for it.
    fn dismiss(&self, request: &Request) {
        let known = self.known(&request.operation);
        match changes(&request.operation) {
            true => self.shared.undo_write(known),
            false => self.shared.end_read(known),
        }
        self.sequences.borrow_mut().remove(&request.token);
    }
}

impl CompletionSink for Covers {
    fn complete(&self, completion: Completion) {
        if let Some(completion) = self.judge(completion) {
            self.sink.complete(completion);
        }
    }
}

impl Covers {
    /// Checks what ended; none where a read is examined first.
    fn judge(&self, completion: Completion) -> Option<Completion> {
        let known = self.known(&completion.operation);
        if changes(&completion.operation) {
            let written = self.sequences.borrow_mut().remove(&completion.token);
            let sequence = written.filter(|_| completion.result.is_ok());
            if sequence.is_some() {
                self.shared.written.fetch_add(known.len() as u64, Relaxed);
            }
            self.shared.end_write(known, sequence.unwrap_or(0));
            return Some(completion);
        }
        let is_read = completion.operation.kind() == OperationKind::Read;
        if completion.result.is_err() || !is_read {
            self.shared.end_read(known);
            return Some(completion);
        }
        let data = filled(&completion.operation);
        let lba = completion.operation.range().map_or(0, |(lba, _)| lba);
        let first = self.shared.look(known.clone(), lba, data, self.block_bytes);
        self.shared.compared.fetch_add(known.len() as u64, Relaxed);
        if first.iter().all(|&holds| holds == Holds::Wanted) {
            self.shared.end_read(known);
            return Some(completion);
        }
        self.shared.wrong.fetch_add(1, SeqCst);
        self.shared.stop.stop();
        let own = self.own.borrow().upgrade();
        let own = own.expect("what completes is there");
        let examined = async move { own.examine(known, first, completion).await };
        self.reactor.spawn(examined).detach();
        None
    }

    /// Reads blocks again that did not hold what they should, which nothing writes meanwhile; then the read is over.
    async fn examine(&self, known: Range<usize>, first: Vec<Holds>, completion: Completion) {
        let wanted = known.clone().map(|block| self.shared.wanted(block));
        let previous = |block: usize| self.shared.previous[block].load(SeqCst);
        let is_first = known.clone().map(|block| previous(block) == 0);
        let mut evidence = Evidence {
            seed: self.shared.seed,
            lba: self.shared.address(known.start),
            wanted: wanted.collect(),
            first_write: is_first.collect(),
            first,
            again: Vec::new(),
            before: Before::Unknown,
            others_there: false,
        };
        for pause in AGAIN_AFTER {
            self.reactor.sleep(pause).await;
            evidence.again.extend(self.read_again(known.clone()).await);
        }
        evidence.others_there = self.has_others(&evidence).await;
        let mut suspects = self
            .shared
            .suspects
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if suspects.len() < SUSPECTS_MAX {
            suspects.push(evidence);
        }
        drop(suspects);
        self.shared.end_read(known);
        self.sink.complete(completion);
    }

    /// What blocks hold now, by a queue of its own; nothing where they cannot be read.
    async fn read_again(&self, known: Range<usize>) -> Option<Vec<Holds>> {
        let mut lane = Lane::open(&self.reactor, &self.inner, 1).ok()?;
        let lba = self.shared.address(known.start);
        let read = lane.alone((), read_of(lba, known.len() as u32)).await;
        let read = read.ok()?;
        Some(
            self.shared
                .look(known, lba, filled(&read), self.block_bytes),
        )
    }

    /// Whether the write of the first wrong block had an effect on blocks next to those that were read.
    async fn has_others(&self, evidence: &Evidence) -> bool {
        let wrong = evidence
            .first
            .iter()
            .position(|&holds| holds != Holds::Wanted);
        let Some(wrong) = wrong else { return false };
        let Wanted::Exactly(sequence) = evidence.wanted[wrong] else {
            return false;
        };
        let start = (evidence.lba - self.shared.first) as usize;
        let end = start + evidence.first.len();
        let is_of_it = |place: &usize| self.shared.marked(self.shared.sequence(*place)) == sequence;
        let most = NEIGHBOURS_MAX as usize;
        let before = (0..start).rev().take(most).take_while(is_of_it).count();
        let after = (end..self.shared.states.len())
            .take(most)
            .take_while(is_of_it)
            .count();
        for side in [start - before..start, end..end + after] {
            if side.is_empty() || !self.shared.begin_read(side.clone()) {
                continue;
            }
            let holds = self.read_again(side.clone()).await;
            self.shared.end_read(side);
            if holds.is_some_and(|holds| holds.contains(&Holds::Wanted)) {
                return true;
            }
        }
        false
    }
}
