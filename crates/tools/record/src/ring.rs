//! A ring of volumes, opened: what is asked of each, and what was found on it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::smallvec;
use uuid::Uuid;
use weir_block::{Geometry, Operation, ReadBuffers, Volume};
use weir_load::{Lane, LaneError, Stop};
use weir_memory::{Segment, Views, copy_views, views_len};
use weir_reactor::{Instant, Reactor, Sender, Task, oneshot};

use crate::format::{
    BLOCK_BYTES, COMMIT_BLOCKS, Commit, Content, Defect, MEMBERS_MAX, NUMBER_MAX, SEGMENT_BYTES,
    SLOTS_AT, SUPERBLOCKS, Superblock,
};
use crate::pressure::{Pressure, Throttle};

/// Requests in flight at most on each volume.
const DEPTH: u32 = 64;
/// Commit records that are read at the same time when a ring is opened, on each volume.
const SCANS: usize = 32;

/// Places without a record that are looked at again and again at most; the newest count.
const PASSED_MAX: usize = 1024;
/// Streams of a recording of which nothing is known yet.
const STREAMS_USUAL: u32 = 64;

/// Longest wait to learn whether a recorder runs, and the poll interval.
const FIND_RECORDER: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The fate of a ring that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The recording stops.
    Stop,
    /// The oldest segments are given up.
    #[default]
    GoRound,
}

/// Properties of a ring that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    /// Kind of what is recorded.
    pub content: Content,
    /// Bytes of a segment; each lies on one volume.
    pub segment_bytes: u32,
}

impl RingConfig {
    /// Bytes of a segment: at least and at most.
    pub const SEGMENT_BYTES: std::ops::RangeInclusive<u32> = SEGMENT_BYTES;
}

/// Why a ring cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// There are no volumes, or too many.
    #[error("a ring has 1 to 1024 volumes, not {0}")]
    Members(usize),
    /// Segments are of a size that none has.
    #[error("a segment has 4 MiB to 1 GiB, a multiple of 4 KiB, and not {0} bytes")]
    SegmentBytes(u32),
    /// A volume is too small.
    #[error(
        "{volume} has {bytes} bytes: too few for two segments of {segment_bytes} bytes and what describes the ring"
    )]
    TooSmall {
        /// The volume.
        volume: String,
        /// Its bytes.
        bytes: u64,
        /// Bytes of a segment.
        segment_bytes: u32,
    },
    /// A volume is read-only, or smaller than it was.
    #[error("{volume} cannot be a part of a ring: {why}")]
    Unfit {
        /// The volume.
        volume: String,
        /// Its lack.
        why: &'static str,
    },
    /// A volume carries no ring.
    #[error("{volume} carries no ring that can be used: {defect}")]
    NoRing {
        /// The volume.
        volume: String,
        /// Defect of what was found.
        defect: Defect,
    },
    /// Volumes are of two rings.
    #[error("{volume} is of another ring ({found}) than {first} ({ring})")]
    OtherRing {
        /// The volume.
        volume: String,
        /// Its ring.
        found: Uuid,
        /// The first volume.
        first: String,
        /// Its ring.
        ring: Uuid,
    },
    /// A volume was given twice.
    #[error("{volume} and {other} are the same volume of the ring")]
    Twice {
        /// One.
        volume: String,
        /// The other.
        other: String,
    },
    /// Volumes are missing.
    #[error("the ring has {members} volumes, and {} of them were not given (numbers {}); name all volumes of the ring", missing.len(), numbers(missing))]
    Missing {
        /// Volumes of the ring.
        members: u32,
        /// Numbers of those that were not given.
        missing: Vec<u32>,
    },
    /// The numbers of segments or superblocks are too large to go on.
    #[error(
        "the ring's numbers of segments or superblocks are too large, so it is damaged; extract what you need, then make a new ring (--new)"
    )]
    UsedUp,
    /// A request failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// Stop was requested before the ring was read.
    #[error("stopped before the ring was read")]
    Stopped,
}

fn numbers(all: &[u32]) -> String {
    let all: Vec<_> = all.iter().map(u32::to_string).collect();
    all.join(", ")
}

/// A request that waits, and where its answer goes.
type Asked = (Operation, Sender<Result<Operation, LaneError>>);

/// One volume of a ring, of which many things may be asked at a time.
pub(crate) struct Member {
    reactor: Reactor,
    name: String,
    geometry: Geometry,
    volume: Arc<dyn Volume>,
    lane: RefCell<Lane<Sender<Result<Operation, LaneError>>>>,
    waiting: RefCell<VecDeque<Asked>>,
    waker: RefCell<Option<Waker>>,
    driver: RefCell<Option<Task<()>>>,
    /// A write failed: nothing is recorded on it any more.
    pub(crate) has_failed: Cell<bool>,
    /// Recorded bytes that were written to it, and buffers that wait for its writes.
    pub(crate) written_bytes: Cell<u64>,
    pub(crate) buffers: Cell<usize>,
    /// Requests in flight, and the total time of all requests up to `waited.1`.
    in_flight: Cell<u32>,
    waited: Cell<(Duration, Instant)>,
    /// Its part of the time for which no buffer was free.
    pub(crate) held_up: Cell<Duration>,
    /// Throttle of reads; set by [`Ring::open_behind`].
    throttle: OnceCell<Throttle>,
}

impl Member {
    fn open(reactor: &Reactor, volume: &Arc<dyn Volume>) -> Result<Rc<Self>, LaneError> {
        let member = Rc::new(Member {
            name: volume.name(),
            geometry: volume.geometry(),
            volume: Arc::clone(volume),
            lane: RefCell::new(Lane::open(reactor, volume, DEPTH)?),
            waiting: RefCell::default(),
            waker: RefCell::default(),
            driver: RefCell::default(),
            has_failed: Cell::new(false),
            written_bytes: Cell::new(0),
            buffers: Cell::new(0),
            in_flight: Cell::new(0),
            waited: Cell::new((Duration::ZERO, reactor.now())),
            reactor: reactor.clone(),
            held_up: Cell::default(),
            throttle: OnceCell::new(),
        });
        let weak = Rc::downgrade(&member);
        let drive = poll_fn(move |context| {
            let Some(member) = weak.upgrade() else {
                return Poll::Ready(());
            };
            *member.waker.borrow_mut() = Some(context.waker().clone());
            loop {
                let ended = match member.lane.borrow_mut().poll_next(context) {
                    Poll::Ready(ended) => ended,
                    Poll::Pending => return Poll::Pending,
                };
                let answer = match ended.result {
                    Ok(()) => Ok(ended.operation),
                    Err(error) => {
                        let lane = member.lane.borrow();
                        Err(lane.error(&ended.operation, error))
                    }
                };
                ended.tag.send(answer);
                member.submit();
            }
        });
        *member.driver.borrow_mut() = Some(reactor.spawn(drive));
        Ok(member)
    }

    /// Hands what waits to the volume, as far as there is room.
    fn submit(&self) {
        let (mut lane, mut waiting) = (self.lane.borrow_mut(), self.waiting.borrow_mut());
        while lane.has_room()
            && let Some((operation, answer)) = waiting.pop_front()
        {
            lane.push(answer, operation);
        }
        lane.submit();
    }

    /// The time that requests to it took, added up, those in flight included.
    pub(crate) fn waited(&self) -> Duration {
        let (waited, at) = self.waited.get();
        waited + (self.reactor.now() - at) * self.in_flight.get()
    }

    fn set_in_flight(&self, count: u32) {
        self.waited.set((self.waited(), self.reactor.now()));
        self.in_flight.set(count);
    }

    /// Asks the volume for something.
    pub(crate) async fn ask(&self, operation: Operation) -> Result<Operation, LaneError> {
        self.set_in_flight(self.in_flight.get() + 1);
        let _in_flight = InFlight(self);
        let (answer, answered) = oneshot();
        self.waiting.borrow_mut().push_back((operation, answer));
        self.submit();
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
        answered
            .await
            .expect("a lane answers as long as it is held")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes >> self.geometry.block_size.shift()
    }

    /// Reads bytes, and yields to a recorder; both numbers are multiples of 4 KiB.
    pub(crate) async fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, LaneError> {
        self.read_throttled(at, bytes, self.throttle.get()).await
    }

    /// Reads a few bytes that cannot wait.
    async fn read_now(&self, at: u64, bytes: usize) -> Result<Vec<u8>, LaneError> {
        self.read_throttled(at, bytes, None).await
    }

    async fn read_throttled(
        &self,
        at: u64,
        bytes: usize,
        throttle: Option<&Throttle>,
    ) -> Result<Vec<u8>, LaneError> {
        let mut all = vec![0; bytes];
        let mut step = self.transfer_bytes();
        if let Some(throttle) = throttle {
            step = throttle.read_bytes(step);
        }
        for (index, part) in all.chunks_mut(step).enumerate() {
            let _permit = match throttle {
                Some(throttle) => Some(throttle.permit(part.len()).await),
                None => None,
            };
            let read = Operation::Read {
                lba: self.blocks(at + (index * step) as u64),
                blocks: self.blocks(part.len() as u64) as u32,
                buffers: ReadBuffers::Lend,
            };
            if let Operation::Read {
                buffers: ReadBuffers::Filled(data),
                ..
            } = self.ask(read).await?
            {
                debug_assert_eq!(views_len(&data), part.len());
                copy_views(&data, part);
            }
        }
        Ok(all)
    }

    /// Bytes of one request at most: whole blocks of the ring.
    pub(crate) fn transfer_bytes(&self) -> usize {
        let blocks = u64::from(self.geometry.transfer_blocks_max);
        let bytes = blocks << self.geometry.block_size.shift();
        (bytes as usize / BLOCK_BYTES).max(1) * BLOCK_BYTES
    }

    /// Writes one buffer, in requests that the volume takes.
    pub(crate) async fn write(&self, at: u64, data: Views, fua: bool) -> Result<(), LaneError> {
        let (length, step) = (views_len(&data), self.transfer_bytes());
        let mut from = 0;
        while from < length {
            let bytes = step.min(length - from);
            let write = Operation::Write {
                lba: self.blocks(at + from as u64),
                blocks: self.blocks(bytes as u64) as u32,
                data: weir_memory::slice_views(&data, from, bytes),
                fua,
            };
            self.ask(write).await?;
            from += bytes;
        }
        Ok(())
    }

    /// Writes one block, durably.
    pub(crate) async fn write_block(
        &self,
        at: u64,
        block: &[u8; BLOCK_BYTES],
    ) -> Result<(), LaneError> {
        let data = smallvec![Segment::copy_of(block).freeze()];
        self.write(at, data, true).await
    }

    pub(crate) async fn flush(&self) -> Result<(), LaneError> {
        match self.geometry.volatile_cache {
            true => self.ask(Operation::Flush).await.map(drop),
            false => Ok(()),
        }
    }

    /// Says that blocks are needed no more, where the volume wants to know.
    pub(crate) async fn give_back(&self, at: u64, bytes: u64) {
        if self.geometry.deallocate_blocks == 0 {
            return;
        }
        let operation = Operation::Deallocate {
            lba: self.blocks(at),
            blocks: self.blocks(bytes),
        };
        // It is a hint.
        let _ = self.ask(operation).await;
    }
}

/// Counts a request as in flight until dropped.
struct InFlight<'a>(&'a Member);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.set_in_flight(self.0.in_flight.get() - 1);
    }
}

/// A segment that was found.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    pub(crate) commit: Commit,
    pub(crate) member: u32,
    pub(crate) place: u64,
}

/// A ring, opened on one reactor.
pub struct Ring {
    pub(crate) reactor: Reactor,
    /// By number; none: it is missing.
    pub(crate) members: Vec<Option<Rc<Member>>>,
    pub(crate) superblock: Superblock,
    /// Those that were committed and are not given up, in their order.
    pub(crate) segments: Vec<Segments>,
    /// Slots whose commit records cannot be read: volume and place.
    pub(crate) unreadable: Vec<(String, u64)>,
    /// The first sequence that no segment has, nor a record that was found.
    pub(crate) next: u64,
    /// Sequences before that which had no record when they were looked for.
    passed: BTreeSet<u64>,
}

/// A ring that was opened, on its way to another reactor.
pub struct SharedRing {
    volumes: Vec<Option<Arc<dyn Volume>>>,
    superblock: Superblock,
    next: u64,
}

impl SharedRing {
    /// Opens it there.
    ///
    /// # Errors
    /// A volume takes no more queues.
    pub fn open(self, reactor: &Reactor) -> Result<Ring, RingError> {
        let member = |volume: &Option<Arc<dyn Volume>>| {
            let volume = volume.as_ref();
            volume
                .map(|volume| Member::open(reactor, volume))
                .transpose()
        };
        let members = self.volumes.iter().map(member);
        Ok(Ring {
            reactor: reactor.clone(),
            members: members.collect::<Result<_, _>>()?,
            superblock: self.superblock,
            segments: Vec::new(),
            unreadable: Vec::new(),
            next: self.next,
            passed: BTreeSet::new(),
        })
    }
}

fn check_fit(volume: &Arc<dyn Volume>, writes: bool) -> Result<(), RingError> {
    match volume.geometry().read_only && writes {
        true => Err(RingError::Unfit {
            volume: volume.name(),
            why: "it is read-only",
        }),
        false => Ok(()),
    }
}

impl Ring {
    /// Makes a ring on these volumes. What was on them is lost.
    ///
    /// # Errors
    /// [`RingError`].
    pub async fn make(
        reactor: &Reactor,
        volumes: &[Arc<dyn Volume>],
        config: &RingConfig,
    ) -> Result<Self, RingError> {
        if volumes.is_empty() || volumes.len() > MEMBERS_MAX as usize {
            return Err(RingError::Members(volumes.len()));
        }
        let segment_bytes = config.segment_bytes;
        if !RingConfig::SEGMENT_BYTES.contains(&segment_bytes)
            || !segment_bytes.is_multiple_of(BLOCK_BYTES as u32)
        {
            return Err(RingError::SegmentBytes(segment_bytes));
        }
        let mut slots = u64::MAX;
        for volume in volumes {
            check_fit(volume, true)?;
            let bytes = volume.geometry().length_bytes();
            let own = bytes.saturating_sub(SLOTS_AT) / u64::from(config.segment_bytes);
            if own < 2 {
                return Err(RingError::TooSmall {
                    volume: volume.name(),
                    bytes,
                    segment_bytes: config.segment_bytes,
                });
            }
            slots = slots.min(own);
        }
        let mut bytes = [0; 16];
        reactor.system().random_bytes(&mut bytes);
        let superblock = Superblock {
            ring: Uuid::from_bytes(bytes),
            generation: 0,
            member: 0,
            members: volumes.len() as u32,
            segment_bytes: config.segment_bytes,
            slots,
            tail: 0,
            content: config.content,
            made: reactor.system().wall_clock().as_nanos() as u64,
        };
        let members = volumes
            .iter()
            .map(|volume| Member::open(reactor, volume).map(Some))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ring = Ring {
            reactor: reactor.clone(),
            members,
            superblock,
            segments: Vec::new(),
            unreadable: Vec::new(),
            next: 0,
            passed: BTreeSet::new(),
        };
        // The older one of what was there before must not be taken for this ring's.
        for _ in SUPERBLOCKS {
            ring.superblock.generation += 1;
            let failures = write_superblocks(reactor, &ring.members, &ring.superblock).await;
            if let Some(failure) = failures.into_iter().next() {
                return Err(failure.into());
            }
        }
        Ok(ring)
    }

    /// Opens the ring that is on these volumes, and finds what was recorded. To record, all of its volumes are needed.
    ///
    /// # Errors
    /// [`RingError`].
    pub async fn open(
        reactor: &Reactor,
        volumes: &[Arc<dyn Volume>],
        writes: bool,
    ) -> Result<Self, RingError> {
        let mut ring = Self::open_unread(reactor, volumes, writes).await?;
        ring.scan().await;
        if writes && ring.next.max(ring.superblock.generation) > NUMBER_MAX / 2 {
            return Err(RingError::UsedUp);
        }
        Ok(ring)
    }

    /// Opens a ring for reading. `recorder` returns the back-pressure of the recorder of this ring, to which reads yield until `stop` is asked for.
    ///
    /// # Errors
    /// [`RingError`]; [`RingError::Stopped`] after a stop request.
    pub async fn open_behind(
        reactor: &Reactor,
        volumes: &[Arc<dyn Volume>],
        recorder: impl FnOnce(Uuid) -> Arc<Pressure>,
        stop: &Stop,
    ) -> Result<Self, RingError> {
        let mut ring = Self::open_unread(reactor, volumes, false).await?;
        let pressure = recorder(ring.id());
        let until = reactor.now() + FIND_RECORDER;
        while !pressure.is_known() && !stop.is_asked() && reactor.now() < until {
            reactor.sleep(POLL_INTERVAL).await;
        }
        for member in ring.members.iter().flatten() {
            let throttle = Throttle::new(reactor, Arc::clone(&pressure), stop.clone());
            let _ = member.throttle.set(throttle);
        }
        ring.scan().await;
        if stop.is_asked() {
            return Err(RingError::Stopped);
        }
        Ok(ring)
    }

    async fn open_unread(
        reactor: &Reactor,
        volumes: &[Arc<dyn Volume>],
        writes: bool,
    ) -> Result<Self, RingError> {
        if volumes.is_empty() || volumes.len() > MEMBERS_MAX as usize {
            return Err(RingError::Members(volumes.len()));
        }
        let mut found: BTreeMap<u32, (Rc<Member>, Superblock)> = BTreeMap::new();
        let mut newest: Option<(String, Superblock)> = None;
        for volume in volumes {
            check_fit(volume, writes)?;
            let member = Member::open(reactor, volume)?;
            let own = read_superblock(&member).await?;
            if let Some((first, ring)) = &newest
                && ring.ring != own.ring
            {
                return Err(RingError::OtherRing {
                    volume: volume.name(),
                    found: own.ring,
                    first: first.clone(),
                    ring: ring.ring,
                });
            }
            let number = own.member;
            if let Some((other, _)) = found.get(&number) {
                return Err(RingError::Twice {
                    volume: volume.name(),
                    other: other.name().to_owned(),
                });
            }
            let is_newer = newest
                .as_ref()
                .is_none_or(|(_, before)| before.generation < own.generation);
            if is_newer {
                newest = Some((volume.name(), own.clone()));
            }
            found.insert(number, (member, own));
        }
        let (_, mut superblock) = newest.expect("there is a volume");
        // The tail only moves forward, so the largest of all volumes is the newest.
        let tails = found.values().map(|(_, own)| own.tail);
        superblock.tail = tails.max().expect("there is a volume");
        let members = (0..superblock.members).map(|number| {
            let member = found.remove(&number);
            member.map(|(member, _)| member)
        });
        let members: Vec<_> = members.collect();
        let missing = members.iter().zip(0..).filter(|(one, _)| one.is_none());
        let missing: Vec<u32> = missing.map(|(_, number)| number).collect();
        if writes && !missing.is_empty() {
            return Err(RingError::Missing {
                members: superblock.members,
                missing,
            });
        }
        Ok(Ring {
            reactor: reactor.clone(),
            members,
            superblock,
            segments: Vec::new(),
            unreadable: Vec::new(),
            next: 0,
            passed: BTreeSet::new(),
        })
    }

    /// The same for another reactor, which is to record a stream of its own. It does not know what was recorded.
    #[must_use]
    pub fn share(&self) -> SharedRing {
        let members = self.members.iter();
        SharedRing {
            volumes: members
                .map(|one| Some(Arc::clone(&one.as_ref()?.volume)))
                .collect(),
            superblock: self.superblock.clone(),
            next: self.next,
        }
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.superblock.ring
    }

    /// Names of its volumes that are there, in the ring's order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let members = self.members.iter().flatten();
        members.map(|member| member.name().to_owned()).collect()
    }

    /// Kind of what it holds.
    #[must_use]
    pub fn content(&self) -> Content {
        self.superblock.content
    }

    /// Bytes of data that it has room for, about.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        let own = self.superblock.segment_bytes - COMMIT_BLOCKS * BLOCK_BYTES as u32;
        self.superblock.capacity() * u64::from(own)
    }

    /// Bytes that a recorder that goes round gives up ahead of what it writes, at least.
    #[must_use]
    pub fn ahead_bytes(&self) -> u64 {
        self.superblock.ahead() * u64::from(self.superblock.segment_bytes)
    }

    /// Numbers of volumes that are missing.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        let missing = self
            .members
            .iter()
            .zip(0..)
            .filter(|(one, _)| one.is_none());
        missing.map(|(_, number)| number).collect()
    }

    /// Tells whether a segment that was found is none any more, as the superblock says by now.
    pub(crate) async fn is_given_up(&self, segment: &Segments) -> bool {
        let Some(member) = &self.members[segment.member as usize] else {
            return false;
        };
        let sequence = segment.commit.sequence;
        match read_superblock(member).await {
            Ok(now) => now.ring != self.superblock.ring || now.tail > sequence,
            Err(_) => false,
        }
    }

    /// Finds what was committed since it was opened, or since the last call, and lets go of what was given up.
    pub(crate) async fn look_again(&mut self) {
        for member in self.members.iter().flatten() {
            if let Ok(now) = read_superblock(member).await
                && now.ring == self.superblock.ring
            {
                self.superblock.tail = self.superblock.tail.max(now.tail);
            }
        }
        let tail = self.superblock.tail;
        self.next = self.next.max(tail);
        self.segments.retain(|one| one.commit.sequence >= tail);
        for index in 0..self.segments.len() {
            let segment = &self.segments[index];
            if segment.commit.is_closed {
                continue;
            }
            if let Some(now) = self.commit_of(segment.commit.sequence).await {
                self.segments[index].commit = now;
            }
        }
        // A stream that has nothing to commit yet holds a place before those of others.
        for sequence in std::mem::take(&mut self.passed) {
            if sequence >= tail && !self.find(sequence).await {
                self.passed.insert(sequence);
            }
        }
        // A new recording leaves slots free, and so do volumes that failed and streams without packets.
        let streams = self.segments.last().map_or(1, |one| one.commit.streams);
        let streams = u64::from(streams.max(STREAMS_USUAL));
        let misses_max = 4 * u64::from(self.superblock.members) + streams;
        let (mut sequence, mut missed) = (self.next, Vec::new());
        while missed.len() as u64 <= misses_max {
            match self.find(sequence).await {
                true => {
                    self.next = sequence + 1;
                    self.passed.extend(missed.drain(..));
                }
                false => missed.push(sequence),
            }
            sequence += 1;
        }
        // Places that the ring has come round to since are those of others.
        let oldest = self.next.saturating_sub(self.superblock.capacity());
        self.passed.retain(|&sequence| sequence >= oldest);
        while self.passed.len() > PASSED_MAX {
            self.passed.pop_first();
        }
        self.segments.sort_by_key(|one| one.commit.sequence);
    }

    /// Looks for a segment that was committed; false: it was not.
    async fn find(&mut self, sequence: u64) -> bool {
        let Some(commit) = self.commit_of(sequence).await else {
            return false;
        };
        let (member, place) = self.superblock.place(sequence);
        self.segments.push(Segments {
            commit,
            member,
            place,
        });
        true
    }

    /// The newest commit record of a segment, where it has one.
    async fn commit_of(&self, sequence: u64) -> Option<Commit> {
        let (number, place) = self.superblock.place(sequence);
        let member = self.members[number as usize].as_ref()?;
        let blocks = member.read(place, COMMIT_BLOCKS as usize * BLOCK_BYTES);
        let blocks = blocks.await.ok()?;
        let commit = newest_commit(&blocks, &self.superblock, (number, place))?;
        (commit.sequence == sequence).then_some(commit)
    }

    /// Finds the segments that were committed.
    async fn scan(&mut self) {
        let shared = Rc::new(Scan {
            superblock: self.superblock.clone(),
            found: RefCell::default(),
        });
        let mut tasks = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            let Some(member) = member else { continue };
            let next = Rc::new(Cell::new(0));
            for _ in 0..SCANS {
                let look = look_at_slots(
                    Rc::clone(member),
                    number as u32,
                    Rc::clone(&next),
                    Rc::clone(&shared),
                );
                tasks.push(self.reactor.spawn(look));
            }
        }
        for task in tasks {
            task.await;
        }
        let found = shared.found.take();
        // All segments before the tail are given up. It may lie beyond the last record that was found.
        self.next = found.next.max(self.superblock.tail);
        // The ring holds its last `capacity` segments: a record of an older one is stale or damaged.
        let oldest = self.next.saturating_sub(self.superblock.capacity());
        self.superblock.tail = self.superblock.tail.max(oldest);
        self.unreadable = found.unreadable;
        self.unreadable.sort();
        self.segments = found.segments;
        let tail = self.superblock.tail;
        self.segments.retain(|one| one.commit.sequence >= tail);
        self.segments.sort_by_key(|one| one.commit.sequence);
    }
}

#[derive(Default)]
struct FoundSegments {
    segments: Vec<Segments>,
    unreadable: Vec<(String, u64)>,
    next: u64,
}

struct Scan {
    superblock: Superblock,
    found: RefCell<FoundSegments>,
}

/// Looks at slots of a volume, one after the other, beside others who do.
async fn look_at_slots(member: Rc<Member>, number: u32, next: Rc<Cell<u64>>, scan: Rc<Scan>) {
    let superblock = &scan.superblock;
    loop {
        let slot = next.get();
        let is_stopped = || member.throttle.get().is_some_and(|one| one.stop.is_asked());
        if slot >= superblock.slots || is_stopped() {
            return;
        }
        next.set(slot + 1);
        let place = SLOTS_AT + slot * u64::from(superblock.segment_bytes);
        let bytes = COMMIT_BLOCKS as usize * BLOCK_BYTES;
        let Ok(blocks) = member.read(place, bytes).await else {
            let unreadable = (member.name().to_owned(), place);
            scan.found.borrow_mut().unreadable.push(unreadable);
            continue;
        };
        let newest = newest_commit(&blocks, superblock, (number, place));
        let Some(commit) = newest else { continue };
        let mut found = scan.found.borrow_mut();
        found.next = found.next.max(commit.sequence + 1);
        if commit.sequence >= superblock.tail {
            found.segments.push(Segments {
                commit,
                member: number,
                place,
            });
        }
    }
}

/// The newest of the commit records of a slot that are this ring's.
fn newest_commit(blocks: &[u8], superblock: &Superblock, at: (u32, u64)) -> Option<Commit> {
    let records = blocks.chunks(BLOCK_BYTES);
    let records = records.filter_map(|block| {
        let commit = Commit::parse(block, superblock.segment_bytes).ok()?;
        let is_own = commit.ring == superblock.ring && superblock.place(commit.sequence) == at;
        is_own.then_some(commit)
    });
    records.max_by_key(|commit| (commit.sequence, commit.edition))
}

async fn read_superblock(member: &Rc<Member>) -> Result<Superblock, RingError> {
    let (mut best, mut worst): (Option<Superblock>, _) = (None, Defect::Absent);
    for place in SUPERBLOCKS {
        if place + BLOCK_BYTES as u64 > member.geometry().length_bytes() {
            continue;
        }
        match Superblock::parse(&member.read_now(place, BLOCK_BYTES).await?) {
            Ok(found)
                if best
                    .as_ref()
                    .is_none_or(|best| best.generation < found.generation) =>
            {
                best = Some(found);
            }
            Ok(_) | Err(Defect::Absent) => {}
            Err(defect) => worst = defect,
        }
    }
    let name = || member.name().to_owned();
    let superblock = best.ok_or_else(|| RingError::NoRing {
        volume: name(),
        defect: worst,
    })?;
    match superblock.end() <= member.geometry().length_bytes() {
        true => Ok(superblock),
        false => Err(RingError::Unfit {
            volume: name(),
            why: "it is smaller than it was when the ring was made",
        }),
    }
}

/// Writes the superblocks of all volumes that have not failed, in turn with the ones before. A volume on which that fails has failed: the
/// failures.
pub(crate) async fn write_superblocks(
    reactor: &Reactor,
    members: &[Option<Rc<Member>>],
    superblock: &Superblock,
) -> Vec<LaneError> {
    let place = SUPERBLOCKS[(superblock.generation % 2) as usize];
    let writes = members.iter().enumerate().filter_map(|(number, member)| {
        let member = Rc::clone(member.as_ref()?);
        let own = Superblock {
            member: number as u32,
            ..superblock.clone()
        };
        let write = async move {
            let written = member.write_block(place, &own.encode()).await;
            written.inspect_err(|_| member.has_failed.set(true))
        };
        let has_failed = members[number].as_ref()?.has_failed.get();
        (!has_failed).then(|| reactor.spawn(write))
    });
    let writes: Vec<_> = writes.collect();
    let mut failures = Vec::new();
    for write in writes {
        failures.extend(write.await.err());
    }
    failures
}
