//! Packets and bytes into segments, and segments onto the ring.
//!
//! One segment is open. What comes fills a chunk; a full chunk is written at once, while the next one is filled. A segment is closed when
//! no further chunk fits. Commit records follow the chunks that they name: those of closed segments, and of the open one now and then.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::smallvec;
use uuid::Uuid;
use weir_digest::Digest;
use weir_load::LaneError;
use weir_memory::Segment;
use weir_pcap::write::{self, Out};
use weir_pcap::{Interface, Packet, Statistics};
use weir_reactor::{Instant, Reactor};

use crate::format::{
    BLOCK_BYTES, CHUNK_DATA_BYTES_MAX, CHUNKS_MAX, COMMIT_BLOCKS, Chunk, Commit, Content, Counts,
    Superblock,
};
use crate::ring::{Member, Ring, WhenFull, write_superblocks};
use crate::streams::{Place, Streams};

/// Bytes of a chunk at most.
pub(crate) const CHUNK_BYTES: usize = CHUNK_DATA_BYTES_MAX as usize;
/// Bytes that a chunk has room for at least: of packets, for the largest one behind the descriptions of all interfaces.
const PACKETS_CHUNK_BYTES_MIN: usize = 512 << 10;
const BYTES_CHUNK_BYTES_MIN: usize = 64 << 10;
/// Time after which it is looked whether another stream has moved the tail.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of an interface's counts at most, without a comment.
const STATISTICS_BYTES: usize = 256;
/// Pressure rises when more than 1/4 of the buffers wait for the volumes, and falls at 1/8 or less.
const PRESSURE_HIGH: usize = 4;
const PRESSURE_LOW: usize = 8;
/// Bytes of the descriptions of all interfaces at most.
const PREAMBLE_BYTES_MAX: usize = 128 << 10;

/// A buffer that a chunk is written to.
struct Filling {
    segment: Segment,
    length: usize,
    packets: u32,
    first: u64,
    last: u64,
}

impl Filling {
    fn new(mut segment: Segment) -> Self {
        let capacity = segment.capacity();
        segment.set_len(capacity);
        Filling {
            segment,
            length: 0,
            packets: 0,
            first: u64::MAX,
            last: 0,
        }
    }

    fn room(&self) -> usize {
        self.segment.len() - self.length
    }

    fn count(&mut self, time: u64) {
        self.packets += 1;
        self.note(time);
    }

    fn note(&mut self, time: u64) {
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }
}

impl Out for Filling {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.segment[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    #[inline]
    fn length(&self) -> usize {
        self.length
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.segment[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Wakes whoever waits for something to change.
#[derive(Default)]
struct Bell(RefCell<Option<Waker>>);

impl Bell {
    fn ring(&self) {
        if let Some(waker) = self.0.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until `is_so`.
    async fn wait(&self, is_so: impl Fn() -> bool) {
        poll_fn(|context| match is_so() {
            true => Poll::Ready(()),
            false => {
                *self.0.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }
}

/// A segment that is being written.
struct Open {
    sequence: u64,
    member: Rc<Member>,
    place: u64,
    is_first: bool,
    /// The first block that no chunk has.
    next_block: Cell<u32>,
    chunks: RefCell<Vec<Chunk>>,
    /// Which of them are on the volume.
    written: RefCell<Vec<bool>>,
    /// Chunks that a commit record names, and that one is to name.
    committed: Cell<usize>,
    wanted: Cell<usize>,
    is_closed: Cell<bool>,
    /// A record says so, or its volume failed.
    is_done: Cell<bool>,
    has_failed: Cell<bool>,
    /// The recording ends in order with it, and a record says so.
    is_last: Cell<bool>,
    said_last: Cell<bool>,
    is_committing: Cell<bool>,
    /// Chunks whose writes are under way.
    flying: Cell<usize>,
    is_released: Cell<bool>,
    edition: Cell<u32>,
    counts: Cell<Counts>,
}

impl Open {
    /// Chunks from the first on that are on the volume.
    fn written_prefix(&self) -> usize {
        let written = self.written.borrow();
        written.iter().take_while(|&&is_written| is_written).count()
    }

    fn room_bytes(&self, segment_bytes: u32) -> usize {
        segment_bytes as usize - self.next_block.get() as usize * BLOCK_BYTES
    }
}

/// Parts of a writer that its tasks share.
struct Shared {
    reactor: Reactor,
    streams: Arc<Streams>,
    /// Number of this one.
    stream: u32,
    superblock: Superblock,
    members: Vec<Option<Rc<Member>>>,
    /// Number of buffers.
    buffers: usize,
    /// Buffers that are free.
    free: RefCell<Vec<Segment>>,
    /// Buffers not allocated yet.
    unmade: Cell<usize>,
    /// Readers of the ring yield to this recorder.
    has_pressure: bool,
    /// The last pressure that was reported.
    is_pressure_high: Cell<bool>,
    /// Time of the first take that found no buffer.
    held_up_since: Cell<Option<Instant>>,
    /// Start of the current wait for a segment, and the total of earlier waits.
    no_segment_since: Cell<Option<Instant>>,
    no_segment: Cell<Duration>,
    counts: Cell<Counts>,
    /// Segments that are not done, and chunks under way.
    under_way: Cell<usize>,
    committed_bytes: Cell<u64>,
    written_bytes: Cell<u64>,
    bell: Bell,
    failures: RefCell<Vec<LaneError>>,
}

impl Shared {
    fn lose(&self, member: &Member, packets: u64, error: LaneError) {
        member.has_failed.set(true);
        self.failures.borrow_mut().push(error);
        let mut counts = self.counts.get();
        counts.failed_lost += packets;
        counts.kept -= packets.min(counts.kept);
        self.counts.set(counts);
    }

    /// Packets that were counted as lost are committed.
    fn recover(&self, packets: u64) {
        let mut counts = self.counts.get();
        counts.failed_lost -= packets.min(counts.failed_lost);
        counts.kept += packets;
        self.counts.set(counts);
    }

    /// Lets go of a segment that is done, as soon as nothing is being written to it.
    fn release(&self, open: &Open) {
        let is_quiet = open.flying.get() == 0 && !open.is_committing.get();
        if open.is_done.get() && is_quiet && !open.is_released.replace(true) {
            self.streams.done(open.sequence);
            self.ends(1);
        }
    }

    fn buffers_in_use(&self) -> usize {
        self.buffers - self.free.borrow().len() - self.unmade.get()
    }

    fn update_pressure(&self) {
        // One of them is being filled.
        let waiting = self.buffers_in_use().saturating_sub(1);
        let low = (self.buffers / PRESSURE_LOW).max(1);
        let high = (self.buffers / PRESSURE_HIGH).max(low);
        let limit = if self.is_pressure_high.get() {
            low
        } else {
            high
        };
        self.set_pressure(waiting > limit || self.no_segment_since.get().is_some());
    }

    fn set_pressure(&self, is_high: bool) {
        if !self.has_pressure || self.is_pressure_high.replace(is_high) == is_high {
            return;
        }
        if is_high {
            self.streams.pressure.raise();
        } else {
            self.streams.pressure.lower();
        }
    }

    /// Notes whether there is a segment to write to, or none is waited for.
    fn set_has_segment(&self, has_segment: bool) {
        let now = self.reactor.now();
        match (has_segment, self.no_segment_since.get()) {
            (true, Some(since)) => {
                self.no_segment.set(self.no_segment.get() + (now - since));
                self.no_segment_since.set(None);
            }
            (false, None) => self.no_segment_since.set(Some(now)),
            _ => return,
        }
        self.update_pressure();
    }

    fn take_buffer(&self) -> Option<Segment> {
        let free = self.free.borrow_mut().pop();
        let buffer = free.or_else(|| {
            self.unmade.set(self.unmade.get().checked_sub(1)?);
            Some(Segment::heap(CHUNK_BYTES))
        });
        match buffer {
            Some(_) => self.update_pressure(),
            None if self.held_up_since.get().is_none() => {
                self.held_up_since.set(Some(self.reactor.now()));
            }
            None => {}
        }
        buffer
    }

    /// Returns a buffer to the pool. `None`: its memory is still shared, so a new one is allocated later.
    fn give_back(&self, buffer: Option<Segment>) {
        if self.held_up_since.get().is_some() {
            for (member, part) in self.parts_of_wait() {
                member.held_up.set(member.held_up.get() + part);
            }
            self.held_up_since.set(None);
        }
        match buffer {
            Some(buffer) => self.free.borrow_mut().push(buffer),
            None => self.unmade.set(self.unmade.get() + 1),
        }
        self.update_pressure();
        self.bell.ring();
    }

    /// Splits the current wait for a buffer among the volumes, in proportion to the buffers that wait for each.
    fn parts_of_wait(&self) -> impl Iterator<Item = (&Rc<Member>, Duration)> {
        let since = self.held_up_since.get();
        let waited = since.map_or(Duration::ZERO, |since| self.reactor.now() - since);
        let members = || self.members.iter().flatten();
        let all = members().map(|member| member.buffers.get()).sum::<usize>();
        members().map(move |member| {
            let share = member.buffers.get() as f64 / all.max(1) as f64;
            (member, waited.mul_f64(share))
        })
    }

    fn ends(&self, count: usize) {
        self.under_way.set(self.under_way.get() - count);
        self.bell.ring();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.set_pressure(false);
    }
}

/// Why nothing more can be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No buffer is free, or the tail moves: later.
    Later,
    /// The ring is full, and stays so.
    Full,
    /// Every volume has failed.
    Failed,
}

/// Figures of one volume of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolumeFigures {
    /// Bytes that were written to it.
    pub written_bytes: u64,
    /// Buffers that wait for its writes.
    pub buffers: usize,
    /// Total time of all requests to it. It grows fastest for the slowest volume.
    pub waited: Duration,
    /// Its part of the time for which no buffer was free, by the buffers that waited for it; added over the streams.
    pub held_up: Duration,
    /// A write failed: nothing is recorded on it any more.
    pub has_failed: bool,
}

impl std::ops::AddAssign for VolumeFigures {
    fn add_assign(&mut self, other: Self) {
        self.written_bytes += other.written_bytes;
        self.buffers += other.buffers;
        self.waited += other.waited;
        self.held_up += other.held_up;
        self.has_failed |= other.has_failed;
    }
}

/// Figures of a writer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) counts: Counts,
    pub(crate) written_bytes: u64,
    pub(crate) committed_bytes: u64,
    /// Buffers that are in use, and all.
    pub(crate) buffers: (usize, usize),
    /// In the ring's order.
    pub(crate) volumes: Vec<VolumeFigures>,
    /// Time for which there was no segment to write to.
    pub(crate) no_segment: Duration,
    /// Bytes until the ring is full.
    pub(crate) room_bytes: u64,
}

/// Reads the figures of a writer.
pub(crate) struct Gauge(Rc<Shared>);

impl Gauge {
    pub(crate) fn figures(&self) -> Figures {
        let shared = &self.0;
        let volume = |(member, part): (&Rc<Member>, Duration)| VolumeFigures {
            written_bytes: member.written_bytes.get(),
            buffers: member.buffers.get(),
            waited: member.waited(),
            held_up: member.held_up.get() + part,
            has_failed: member.has_failed.get(),
        };
        let no_segment = shared.no_segment_since.get();
        let no_segment = no_segment.map_or(Duration::ZERO, |since| shared.reactor.now() - since);
        Figures {
            counts: shared.counts.get(),
            written_bytes: shared.written_bytes.get(),
            committed_bytes: shared.committed_bytes.get(),
            buffers: (shared.buffers_in_use(), shared.buffers),
            volumes: shared.parts_of_wait().map(volume).collect(),
            no_segment: shared.no_segment.get() + no_segment,
            room_bytes: shared.streams.room_bytes(),
        }
    }
}

/// Settings of a writer.
pub(crate) struct WriterConfig {
    pub(crate) when_full: WhenFull,
    pub(crate) sync: Duration,
    /// Buffers of 1 MiB.
    pub(crate) buffers: usize,
    /// Readers of the ring yield to it.
    pub(crate) has_pressure: bool,
}

/// Writes a recording.
pub(crate) struct Writer {
    shared: Rc<Shared>,
    when_full: WhenFull,
    content: Content,
    /// Beginning of each chunk of packets: the section and its interfaces.
    preamble: Vec<u8>,
    open: Option<Rc<Open>>,
    /// The one that was closed last.
    closed: Option<Rc<Open>>,
    filling: Option<Filling>,
    is_first: bool,
    synced: Instant,
    sync: Duration,
}

impl Writer {
    /// Begins stream number `stream` of a recording.
    pub(crate) fn new(
        ring: Ring,
        (streams, stream): (Arc<Streams>, u32),
        config: &WriterConfig,
    ) -> Self {
        let reactor = ring.reactor.clone();
        let now = reactor.now();
        let shared = Shared {
            streams,
            stream,
            buffers: config.buffers,
            free: RefCell::default(),
            unmade: Cell::new(config.buffers),
            has_pressure: config.has_pressure,
            is_pressure_high: Cell::new(false),
            held_up_since: Cell::new(None),
            no_segment_since: Cell::new(None),
            no_segment: Cell::default(),
            counts: Cell::default(),
            under_way: Cell::new(0),
            committed_bytes: Cell::new(0),
            written_bytes: Cell::new(0),
            bell: Bell::default(),
            failures: RefCell::default(),
            superblock: ring.superblock,
            members: ring.members,
            reactor,
        };
        let content = shared.superblock.content;
        Writer {
            shared: Rc::new(shared),
            when_full: config.when_full,
            content,
            preamble: Vec::new(),
            open: None,
            closed: None,
            filling: None,
            is_first: true,
            synced: now,
            sync: config.sync,
        }
    }

    /// Describes the interfaces of all packets that come from now on; false: these are too many.
    pub(crate) fn set_interfaces(&mut self, interfaces: &[Interface]) -> bool {
        self.finish_chunk();
        self.preamble.clear();
        write::section("weir record", std::env::consts::OS, &mut self.preamble);
        for interface in interfaces {
            write::interface(interface, &mut self.preamble);
        }
        self.preamble.len() <= PREAMBLE_BYTES_MAX
    }

    /// Returns a gauge, which reads the figures even while the writer waits.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(Rc::clone(&self.shared))
    }

    pub(crate) fn figures(&self) -> Figures {
        self.gauge().figures()
    }

    pub(crate) fn take_failures(&self) -> Vec<LaneError> {
        self.shared.failures.take()
    }

    pub(crate) fn recording(&self) -> Uuid {
        self.shared.streams.recording
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.shared.counts.get();
        change(&mut counts);
        self.shared.counts.set(counts);
    }

    /// Takes a packet.
    pub(crate) fn packet(&mut self, packet: &Packet<'_>) -> Result<(), Refused> {
        let bytes = write::packet_bytes(packet);
        let filling = self.filling(bytes)?;
        write::packet(packet, filling);
        filling.count(packet.time);
        self.count(|counts| counts.kept += 1);
        Ok(())
    }

    /// Takes counts of an interface.
    pub(crate) fn statistics(&mut self, statistics: &Statistics) -> Result<(), Refused> {
        let comment = statistics.comment.as_ref().map_or(0, String::len);
        let filling = self.filling(STATISTICS_BYTES + comment)?;
        write::statistics(statistics, filling);
        filling.note(statistics.time);
        Ok(())
    }

    /// Takes bytes of a stream that came then, as many as there is room for in one chunk; their number.
    pub(crate) fn bytes(&mut self, bytes: &[u8], time: u64) -> Result<usize, Refused> {
        let filling = self.filling(1)?;
        let count = bytes.len().min(filling.room());
        filling.put(&bytes[..count]);
        filling.count(time);
        self.count(|counts| counts.kept += 1);
        Ok(count)
    }

    /// The chunk that has room for so many bytes.
    fn filling(&mut self, bytes: usize) -> Result<&mut Filling, Refused> {
        if self.filling.as_ref().is_some_and(|one| one.room() < bytes) {
            self.finish_chunk();
        }
        if self.filling.is_none() {
            self.begin_chunk()?;
        }
        Ok(self.filling.as_mut().expect("it was begun"))
    }

    fn begin_chunk(&mut self) -> Result<(), Refused> {
        self.open_segment()?;
        let shared = &self.shared;
        let buffer = shared.take_buffer().ok_or(Refused::Later)?;
        let mut filling = Filling::new(buffer);
        let room = self.open.as_ref().expect("it is open");
        let segment_bytes = shared.superblock.segment_bytes;
        let room = room.room_bytes(segment_bytes).min(CHUNK_BYTES);
        filling.segment.set_len(room);
        if self.content == Content::Packets {
            filling.put(&self.preamble);
        }
        self.filling = Some(filling);
        Ok(())
    }

    /// Makes room for the first segment, so that nothing is lost to that once the source yields.
    pub(crate) async fn begin(&mut self) {
        while self.open_segment() == Err(Refused::Later) {
            // Another stream may be what moves the tail.
            self.shared.reactor.sleep(LOOK).await;
        }
    }

    /// Opens the next segment where none is open.
    fn open_segment(&mut self) -> Result<(), Refused> {
        if self.open.is_some() {
            return Ok(());
        }
        if self
            .shared
            .members
            .iter()
            .flatten()
            .all(|one| one.has_failed.get())
        {
            self.shared.set_has_segment(true);
            return Err(Refused::Failed);
        }
        let (place, moves) = self.shared.streams.place(self.when_full);
        if let Some((tail, superblock)) = moves {
            self.move_tail(tail, superblock);
        }
        let sequence = match place {
            Place::Segment(sequence) => sequence,
            Place::Later => {
                self.shared.set_has_segment(false);
                return Err(Refused::Later);
            }
            Place::Full => {
                self.shared.set_has_segment(true);
                return Err(Refused::Full);
            }
        };
        self.shared.set_has_segment(true);
        let (number, place) = self.shared.superblock.place(sequence);
        let member = self.shared.members[number as usize].clone();
        let member = member.expect("a ring that is written has all its volumes");
        if member.has_failed.get() {
            self.shared.streams.done(sequence);
            return self.open_segment();
        }
        self.shared.under_way.set(self.shared.under_way.get() + 1);
        self.open = Some(Rc::new(Open {
            sequence,
            member,
            place,
            is_first: std::mem::take(&mut self.is_first),
            next_block: Cell::new(COMMIT_BLOCKS),
            chunks: RefCell::default(),
            written: RefCell::default(),
            committed: Cell::new(0),
            wanted: Cell::new(0),
            is_closed: Cell::new(false),
            is_done: Cell::new(false),
            has_failed: Cell::new(false),
            is_last: Cell::new(false),
            said_last: Cell::new(false),
            is_committing: Cell::new(false),
            flying: Cell::new(0),
            is_released: Cell::new(false),
            edition: Cell::new(0),
            counts: Cell::default(),
        }));
        Ok(())
    }

    /// Gives the oldest segments up: first on the volumes' superblocks, then they are overwritten.
    fn move_tail(&self, tail: u64, superblock: Superblock) {
        let shared = Rc::clone(&self.shared);
        shared.under_way.set(shared.under_way.get() + 1);
        let moving = async move {
            let failures = write_superblocks(&shared.reactor, &shared.members, &superblock).await;
            shared.failures.borrow_mut().extend(failures);
            let given_up = tail..superblock.tail;
            let given_back = given_up.filter_map(|sequence| {
                let (number, place) = superblock.place(sequence);
                let member = shared.members[number as usize].clone();
                let member = member.filter(|member| !member.has_failed.get())?;
                let bytes = superblock.segment_bytes.into();
                let give_back = async move { member.give_back(place, bytes).await };
                Some(shared.reactor.spawn(give_back))
            });
            let given_back: Vec<_> = given_back.collect();
            for one in given_back {
                one.await;
            }
            // From here on the slots may be written: all volumes that have not failed say so.
            shared.streams.tail_moved();
            shared.ends(1);
        };
        self.shared.reactor.spawn(moving).detach();
    }

    /// Writes the chunk that is being filled, and closes the segment where no further one would fit.
    fn finish_chunk(&mut self) {
        let Some(mut filling) = self.filling.take() else {
            return;
        };
        let shared = Rc::clone(&self.shared);
        let is_empty = filling.packets == 0 && filling.length <= self.preamble.len();
        if is_empty {
            shared.give_back(Some(filling.segment));
            return;
        }
        let open = Rc::clone(self.open.as_ref().expect("a chunk is of a segment"));
        if open.has_failed.get() {
            // Its volume failed.
            let packets = u64::from(filling.packets);
            self.count(|counts| {
                counts.failed_lost += packets;
                counts.kept -= packets;
            });
            shared.give_back(Some(filling.segment));
            self.open = None;
            return;
        }
        let blocks = filling.length.div_ceil(BLOCK_BYTES);
        filling.segment[filling.length..blocks * BLOCK_BYTES].fill(0);
        filling.segment.set_len(blocks * BLOCK_BYTES);
        let checksum = Digest::of(&filling.segment[..filling.length]).value();
        let block = open.next_block.get();
        open.next_block.set(block + blocks as u32);
        let index = open.chunks.borrow().len();
        open.chunks.borrow_mut().push(Chunk {
            block,
            bytes: filling.length as u32,
            checksum,
            packets: filling.packets,
            first: filling.first,
            last: filling.last,
        });
        open.written.borrow_mut().push(false);
        shared.under_way.set(shared.under_way.get() + 1);
        open.flying.set(open.flying.get() + 1);
        open.member.buffers.set(open.member.buffers.get() + 1);
        let (data, on) = (filling.segment.freeze(), Rc::clone(&open));
        let write = async move {
            let at = on.place + u64::from(block) * BLOCK_BYTES as u64;
            let written = on.member.write(at, smallvec![data.clone()], false).await;
            shared.give_back(data.try_into_segment().ok());
            on.member.buffers.set(on.member.buffers.get() - 1);
            on.flying.set(on.flying.get() - 1);
            match written {
                Ok(()) => {
                    on.written.borrow_mut()[index] = true;
                    let bytes = (blocks * BLOCK_BYTES) as u64;
                    let written = &on.member.written_bytes;
                    written.set(written.get() + bytes);
                    shared.written_bytes.set(shared.written_bytes.get() + bytes);
                    commit(&shared, &on).await;
                }
                Err(error) => fail(&shared, &on, error),
            }
            shared.release(&on);
            shared.ends(1);
        };
        self.shared.reactor.spawn(write).detach();
        let segment_bytes = self.shared.superblock.segment_bytes;
        let least = match self.content {
            Content::Packets => PACKETS_CHUNK_BYTES_MIN,
            Content::Bytes => BYTES_CHUNK_BYTES_MIN,
        };
        let is_full = open.room_bytes(segment_bytes) < least
            || open.chunks.borrow().len() >= CHUNKS_MAX
            || open.member.has_failed.get();
        if is_full {
            self.close_segment();
        }
    }

    fn close_segment(&mut self) {
        let Some(open) = self.open.take() else { return };
        open.is_closed.set(true);
        self.want_commit(&open);
        self.closed = Some(open);
    }

    /// Has a commit record name all chunks of a segment that there are.
    fn want_commit(&self, open: &Rc<Open>) {
        open.wanted.set(open.chunks.borrow().len());
        open.counts.set(self.shared.counts.get());
        let (shared, open) = (Rc::clone(&self.shared), Rc::clone(open));
        shared.under_way.set(shared.under_way.get() + 1);
        let commits = async move {
            commit(&shared, &open).await;
            shared.ends(1);
        };
        self.shared.reactor.spawn(commits).detach();
    }

    /// Puts what there is on stable storage where that is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        if now < self.next_sync() {
            return;
        }
        self.synced = now;
        self.finish_chunk();
        if let Some(open) = self.open.clone() {
            self.want_commit(&open);
        }
    }

    /// Closes a segment that is in the way of other streams, which come round to it.
    pub(crate) fn make_way(&mut self) {
        let shared = &self.shared;
        if shared.no_segment_since.get().is_some() && shared.streams.has_place() {
            shared.set_has_segment(true);
        }
        let open = self.open.as_ref().map(|open| open.sequence);
        if open.is_some_and(|open| self.shared.streams.is_in_the_way(open)) {
            self.finish_chunk();
            self.close_segment();
        }
    }

    /// When something is due to be put on stable storage.
    pub(crate) fn next_sync(&self) -> Instant {
        self.synced + self.sync
    }

    /// Waits until there may be room for more.
    pub(crate) async fn room(&self) {
        let shared = &self.shared;
        let has_open = self.open.is_some();
        let has_room = || {
            let has_buffer = !shared.free.borrow().is_empty() || shared.unmade.get() > 0;
            has_buffer && (has_open || shared.streams.has_place())
        };
        shared.bell.wait(has_room).await;
    }

    /// Commits all that was taken.
    pub(crate) async fn finish(&mut self) {
        self.finish_chunk();
        self.close_segment();
        let streams = Arc::clone(&self.shared.streams);
        self.closed.take_if(|last| !streams.take_up(last.sequence));
        if self.closed.is_none() {
            // Other streams came round to it meanwhile: an empty one says that this stream has ended.
            self.begin().await;
            self.close_segment();
        }
        let last = self.closed.take();
        if let Some(last) = &last {
            last.is_last.set(true);
            self.want_commit(last);
        }
        let shared = &self.shared;
        shared.bell.wait(|| shared.under_way.get() == 0).await;
        if let Some(last) = last {
            streams.done(last.sequence);
        }
    }
}

/// Writes commit records of a segment for as long as there is something to say.
async fn commit(shared: &Rc<Shared>, open: &Rc<Open>) {
    loop {
        let (wanted, written) = (open.wanted.get(), open.written_prefix());
        let closes = open.is_closed.get() && written == open.chunks.borrow().len();
        let is_last = open.is_last.get() && closes;
        let is_due = wanted > open.committed.get() && written >= wanted || closes;
        let says_more = is_due && !open.is_done.get() || is_last && !open.said_last.get();
        if !says_more || open.has_failed.get() || open.is_committing.replace(true) {
            return;
        }
        let clock = shared.streams.clock();
        let record = Commit {
            ring: shared.superblock.ring,
            sequence: open.sequence,
            recording: shared.streams.recording,
            stream: shared.stream,
            streams: shared.streams.count,
            edition: open.edition.get(),
            is_closed: closes,
            is_first: open.is_first,
            is_last,
            clock_offset: clock.offset,
            clock_steps: clock.steps,
            counts: open.counts.get(),
            chunks: open.chunks.borrow()[..written].to_vec(),
        };
        open.edition.set(record.edition + 1);
        let place = open.place + u64::from(record.edition % COMMIT_BLOCKS) * BLOCK_BYTES as u64;
        let mut done = open.member.flush().await;
        if done.is_ok() {
            done = open.member.write_block(place, &record.encode()).await;
        }
        open.is_committing.set(false);
        match done {
            Ok(()) => {
                let new = &record.chunks[open.committed.get()..];
                let bytes: u64 = new.iter().map(|chunk| u64::from(chunk.bytes)).sum();
                let bytes = shared.committed_bytes.get() + bytes;
                shared.committed_bytes.set(bytes);
                if open.has_failed.get() {
                    // They were counted with the volume that failed meanwhile.
                    let packets = new.iter().map(|chunk| u64::from(chunk.packets)).sum();
                    shared.recover(packets);
                }
                open.committed.set(written);
                open.said_last.set(is_last);
                if closes {
                    open.is_done.set(true);
                }
            }
            Err(error) => fail(shared, open, error),
        }
        shared.release(open);
    }
}

/// A segment is lost, but for what a commit record names.
fn fail(shared: &Shared, open: &Open, error: LaneError) {
    if open.has_failed.replace(true) {
        return;
    }
    if open.is_done.replace(true) {
        // All that it has is committed, but not that the recording ended.
        return shared.lose(&open.member, 0, error);
    }
    let chunks = open.chunks.borrow();
    let lost = &chunks[open.committed.get()..];
    let packets = lost.iter().map(|chunk| u64::from(chunk.packets)).sum();
    shared.lose(&open.member, packets, error);
    shared.release(open);
}
