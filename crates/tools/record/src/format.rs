//! Parts of a ring as they lie on its volumes. All numbers are little-endian.
//!
//! A volume of a ring has two superblocks, which are written in turn, and slots of one size behind them. A slot holds a segment: two
//! blocks for its commit record, which are written in turn too, and chunks. A chunk is written once, and is there when a commit record
//! names it: its data was on stable storage before that was written. So what a record says is always true, and a cut costs what no
//! record names yet.

use uuid::Uuid;
use weir_digest::Digest;

/// Bytes of a superblock, and of a commit record; chunks begin at multiples of it.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Smallest and largest segment, in bytes.
pub(crate) const SEGMENT_BYTES: std::ops::RangeInclusive<u32> = (4 << 20)..=(1 << 30);
/// Largest chunk, in bytes.
pub(crate) const CHUNK_DATA_BYTES_MAX: u32 = 1 << 20;
/// Largest sequence, and largest generation of a superblock; a larger number is damage. The recorder refuses rings beyond half of it.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Volumes of a ring at most.
pub(crate) const MEMBERS_MAX: u32 = 1024;
/// Places of the two superblocks.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, 64 << 10];
/// Place of the first slot.
pub(crate) const SLOTS_AT: u64 = 1 << 20;
/// Part of the ring that is given up ahead of what is written, and segments of that at most.
const AHEAD_PART: u64 = 16;
const AHEAD_MAX: u64 = 64;
/// Streams of a recording at most.
pub(crate) const STREAMS_MAX: u32 = 1024;
/// Blocks of a segment before its first chunk: its commit records.
pub(crate) const COMMIT_BLOCKS: u32 = 2;
/// Chunks of one segment at most: as many as a commit record names.
pub(crate) const CHUNKS_MAX: usize = (BLOCK_BYTES - COMMIT_HEAD_BYTES) / CHUNK_BYTES;

const VERSION: u32 = 1;
const SUPERBLOCK_MAGIC: [u8; 8] = *b"WEIRRING";
const COMMIT_MAGIC: [u8; 8] = *b"WEIRSEGM";
/// Bytes of a commit record before the list of its chunks.
const COMMIT_HEAD_BYTES: usize = 256;
/// Bytes of a chunk in that list.
const CHUNK_BYTES: usize = 32;
/// Place of the checksum in both kinds of block.
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// A defect of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It is none of a ring.
    #[error("there is none")]
    Absent,
    /// It is of a version that this program does not know.
    #[error("it is of version {0}, which this program does not know")]
    Version(u32),
    /// It does not agree with its checksum, or with itself.
    #[error("it is damaged")]
    Damaged,
}

/// Content of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Packets: each chunk is a section of pcapng.
    Packets,
    /// Bytes of a stream.
    Bytes,
}

impl Content {
    fn number(self) -> u32 {
        match self {
            Content::Packets => 1,
            Content::Bytes => 2,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Content::Packets),
            2 => Some(Content::Bytes),
            _ => None,
        }
    }
}

/// Writes fields one after the other.
struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (own, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        own.copy_from_slice(bytes);
        self.0 = rest;
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
}

/// Reads fields one after the other. A block has room for all.
struct Read<'a>(&'a [u8]);

impl Read<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (own, rest) = self.0.split_at(N);
        self.0 = rest;
        own.try_into().expect("so many bytes")
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

fn checksum(block: &[u8]) -> [u8; 4] {
    let mut digest = Digest::of(&block[..CHECKSUM.start]);
    digest.update(&[0; 4]);
    digest.update(&block[CHECKSUM.end..]);
    digest.value().to_le_bytes()
}

/// Reads the head of a block that has its magic, and checks it.
fn checked(block: &[u8], magic: [u8; 8]) -> Result<Read<'_>, Defect> {
    if block[..8] != magic {
        return Err(Defect::Absent);
    }
    let version = u32::from_le_bytes(block[8..12].try_into().expect("four bytes"));
    if block[CHECKSUM] != checksum(block) {
        return Err(Defect::Damaged);
    }
    if version != VERSION {
        return Err(Defect::Version(version));
    }
    Ok(Read(&block[CHECKSUM.end..]))
}

fn sealed(magic: [u8; 8], write: impl FnOnce(&mut Fields<'_>)) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    let mut fields = Fields(&mut block[..]);
    fields.put(&magic);
    fields.u32(VERSION);
    fields.u32(0);
    write(&mut fields);
    let sum = checksum(&block[..]);
    block[CHECKSUM].copy_from_slice(&sum);
    block
}

/// The description of a ring, on each of its volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) ring: Uuid,
    /// Grows each time that it is written; the first block has the even ones.
    pub(crate) generation: u64,
    /// The volume's number in the ring, and how many there are.
    pub(crate) member: u32,
    pub(crate) members: u32,
    pub(crate) segment_bytes: u32,
    /// Slots of each volume.
    pub(crate) slots: u64,
    /// Segments before this one are given up.
    pub(crate) tail: u64,
    pub(crate) content: Content,
    /// When the ring was made, in nanoseconds since the beginning of 1970.
    pub(crate) made: u64,
}

impl Superblock {
    /// Segments that the ring holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.slots * u64::from(self.members)
    }

    /// Segments that are given up ahead of what is written, at least.
    pub(crate) fn ahead(&self) -> u64 {
        (self.capacity() / AHEAD_PART).clamp(1, AHEAD_MAX)
    }

    /// Bytes of each volume that the ring uses.
    pub(crate) fn end(&self) -> u64 {
        let slots = self.slots.saturating_mul(self.segment_bytes.into());
        slots.saturating_add(SLOTS_AT)
    }

    /// The volume and the place on it of a segment.
    pub(crate) fn place(&self, sequence: u64) -> (u32, u64) {
        let members = u64::from(self.members);
        let slot = sequence / members % self.slots;
        let place = SLOTS_AT + slot * u64::from(self.segment_bytes);
        ((sequence % members) as u32, place)
    }

    pub(crate) fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        sealed(SUPERBLOCK_MAGIC, |fields| {
            fields.put(self.ring.as_bytes());
            fields.u64(self.generation);
            for word in [
                self.member,
                self.members,
                self.segment_bytes,
                self.content.number(),
            ] {
                fields.u32(word);
            }
            fields.u64(self.slots);
            fields.u64(self.tail);
            fields.u64(self.made);
        })
    }

    pub(crate) fn parse(block: &[u8]) -> Result<Self, Defect> {
        let mut read = checked(block, SUPERBLOCK_MAGIC)?;
        let ring = Uuid::from_bytes(read.take());
        let generation = read.u64();
        let (member, members) = (read.u32(), read.u32());
        let segment_bytes = read.u32();
        let content = Content::from_number(read.u32()).ok_or(Defect::Damaged)?;
        let superblock = Superblock {
            ring,
            generation,
            member,
            members,
            segment_bytes,
            content,
            slots: read.u64(),
            tail: read.u64(),
            made: read.u64(),
        };
        let is_sound = member < members
            && members <= MEMBERS_MAX
            && superblock.slots > 0
            && superblock.slots <= 1 << 40
            && superblock.generation <= NUMBER_MAX
            && superblock.tail <= NUMBER_MAX
            && segment_bytes.is_multiple_of(BLOCK_BYTES as u32)
            && SEGMENT_BYTES.contains(&segment_bytes);
        match is_sound {
            true => Ok(superblock),
            false => Err(Defect::Damaged),
        }
    }
}

/// Counts of a recording since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Packets, or reads of a stream, that came.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Those that were kept.
    pub kept: u64,
    /// Those that were lost before they came, as the source says.
    pub source_lost: u64,
    /// Those that were lost because no buffer was free: the volumes were too slow.
    pub slow_lost: u64,
    /// Those that were lost with a volume that failed.
    pub failed_lost: u64,
    /// Those that the kernel had no room for, with volumes that were fast enough: the recorder's processor was not.
    pub socket_lost: u64,
    /// Those that the interface lost, as the kernel counts them.
    pub interface_lost: u64,
    /// Those that a filter left out, where the recorder knows of them. They are none of those that came.
    pub filtered: u64,
}

impl Counts {
    /// Returns the losses by all causes.
    #[must_use]
    pub fn lost(&self) -> u64 {
        // A damaged ring may have any counts.
        let all = [
            self.source_lost,
            self.interface_lost,
            self.socket_lost,
            self.slow_lost,
            self.failed_lost,
        ];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        // A damaged ring may have any counts.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.received, other.received);
        add(&mut self.received_bytes, other.received_bytes);
        add(&mut self.kept, other.kept);
        add(&mut self.source_lost, other.source_lost);
        add(&mut self.slow_lost, other.slow_lost);
        add(&mut self.failed_lost, other.failed_lost);
        add(&mut self.socket_lost, other.socket_lost);
        add(&mut self.interface_lost, other.interface_lost);
        add(&mut self.filtered, other.filtered);
    }
}

/// Changes of the wall clock against the monotonic clock since a recording began, as when the clock is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockSteps {
    /// Number of steps of a millisecond or more.
    pub count: u32,
    /// Their sum, in nanoseconds.
    pub nanoseconds: i64,
}

impl ClockSteps {
    /// Returns the steps that came after `earlier`.
    #[must_use]
    pub fn since(self, earlier: ClockSteps) -> ClockSteps {
        ClockSteps {
            count: self.count.wrapping_sub(earlier.count),
            nanoseconds: self.nanoseconds.wrapping_sub(earlier.nanoseconds),
        }
    }

    /// Returns the newer of two streams' steps. All streams see the same clock.
    #[must_use]
    pub fn later(self, other: ClockSteps) -> ClockSteps {
        if other.count > self.count {
            other
        } else {
            self
        }
    }

    /// Returns their sum in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }
}

impl std::fmt::Display for ClockSteps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.seconds();
        match self.count {
            0 => f.write_str("the wall clock did not step"),
            1 => write!(f, "the wall clock stepped by {seconds:+.3} s"),
            count => write!(
                f,
                "the wall clock stepped {count} times, by {seconds:+.3} s in all"
            ),
        }
    }
}

/// A chunk of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Its first block in the segment.
    pub(crate) block: u32,
    pub(crate) bytes: u32,
    pub(crate) checksum: u32,
    pub(crate) packets: u32,
    /// Times of its earliest and its latest packet, in nanoseconds since the beginning of 1970.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A commit record: what a segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) ring: Uuid,
    pub(crate) sequence: u64,
    /// The recording that it is of.
    pub(crate) recording: Uuid,
    /// The stream of it, from 0 on, and how many it has.
    pub(crate) stream: u32,
    pub(crate) streams: u32,
    /// Grows with each record of the segment.
    pub(crate) edition: u32,
    /// Nothing is added any more.
    pub(crate) is_closed: bool,
    /// It is the first of its recording.
    pub(crate) is_first: bool,
    /// It is the last of its recording, which ended in order.
    pub(crate) is_last: bool,
    /// Nanoseconds since the beginning of 1970, less those of the machine's monotonic clock.
    pub(crate) clock_offset: u64,
    pub(crate) clock_steps: ClockSteps,
    pub(crate) counts: Counts,
    pub(crate) chunks: Vec<Chunk>,
}

impl Commit {
    pub(crate) fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        debug_assert!(self.chunks.len() <= CHUNKS_MAX);
        sealed(COMMIT_MAGIC, |fields| {
            fields.put(self.ring.as_bytes());
            fields.u64(self.sequence);
            fields.put(self.recording.as_bytes());
            fields.u32(self.edition);
            let flags = [self.is_closed, self.is_first, self.is_last];
            let flags = flags
                .iter()
                .zip(0..)
                .map(|(&flag, bit)| u32::from(flag) << bit);
            fields.u32(flags.sum());
            fields.u64(self.clock_offset);
            let counts = &self.counts;
            for count in [
                counts.received,
                counts.received_bytes,
                counts.kept,
                counts.source_lost,
                counts.slow_lost,
                counts.failed_lost,
            ] {
                fields.u64(count);
            }
            fields.u32(self.chunks.len() as u32);
            for count in [counts.socket_lost, counts.interface_lost, counts.filtered] {
                fields.u64(count);
            }
            fields.u32(self.stream);
            fields.u32(self.streams);
            fields.u32(self.clock_steps.count);
            fields.u64(self.clock_steps.nanoseconds as u64);
            let list = &mut std::mem::take(&mut fields.0);
            // The rest of the head is kept free.
            let rest = std::mem::take(list);
            let skipped = rest.len() - CHUNKS_MAX * CHUNK_BYTES;
            fields.0 = &mut rest[skipped..];
            for chunk in &self.chunks {
                for word in [chunk.block, chunk.bytes, chunk.checksum, chunk.packets] {
                    fields.u32(word);
                }
                fields.u64(chunk.first);
                fields.u64(chunk.last);
            }
        })
    }

    /// Reads a record of a segment of `segment_bytes`.
    pub(crate) fn parse(block: &[u8], segment_bytes: u32) -> Result<Self, Defect> {
        let mut read = checked(block, COMMIT_MAGIC)?;
        let mut commit = Commit {
            ring: Uuid::from_bytes(read.take()),
            sequence: read.u64(),
            recording: Uuid::from_bytes(read.take()),
            stream: 0,
            streams: 0,
            edition: read.u32(),
            is_closed: false,
            is_first: false,
            is_last: false,
            clock_offset: 0,
            clock_steps: ClockSteps::default(),
            counts: Counts::default(),
            chunks: Vec::new(),
        };
        let flags = read.u32();
        (commit.is_closed, commit.is_first) = (flags & 1 != 0, flags & 2 != 0);
        commit.is_last = flags & 4 != 0;
        commit.clock_offset = read.u64();
        commit.counts = Counts {
            received: read.u64(),
            received_bytes: read.u64(),
            kept: read.u64(),
            source_lost: read.u64(),
            slow_lost: read.u64(),
            failed_lost: read.u64(),
            ..Counts::default()
        };
        let count = read.u32() as usize;
        commit.counts.socket_lost = read.u64();
        commit.counts.interface_lost = read.u64();
        commit.counts.filtered = read.u64();
        commit.stream = read.u32();
        commit.streams = read.u32().max(1);
        commit.clock_steps = ClockSteps {
            count: read.u32(),
            nanoseconds: read.u64() as i64,
        };
        if commit.stream >= commit.streams || commit.streams > STREAMS_MAX {
            return Err(Defect::Damaged);
        }
        if count > CHUNKS_MAX || commit.sequence > NUMBER_MAX {
            return Err(Defect::Damaged);
        }
        let mut read = Read(&block[BLOCK_BYTES - CHUNKS_MAX * CHUNK_BYTES..]);
        let mut next = COMMIT_BLOCKS;
        for _ in 0..count {
            let chunk = Chunk {
                block: read.u32(),
                bytes: read.u32(),
                checksum: read.u32(),
                packets: read.u32(),
                first: read.u64(),
                last: read.u64(),
            };
            let blocks = chunk.bytes.div_ceil(BLOCK_BYTES as u32);
            let end = chunk.block.checked_add(blocks);
            let end = end.filter(|&end| end <= segment_bytes / BLOCK_BYTES as u32);
            let is_sized = (1..=CHUNK_DATA_BYTES_MAX).contains(&chunk.bytes);
            if chunk.block < next || !is_sized || chunk.first > chunk.last {
                return Err(Defect::Damaged);
            }
            next = end.ok_or(Defect::Damaged)?;
            commit.chunks.push(chunk);
        }
        Ok(commit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            ring: Uuid::from_u128(7),
            generation: 8,
            member: 1,
            members: 3,
            segment_bytes: 16 << 20,
            slots: 100,
            tail: 250,
            content: Content::Packets,
            made: 9,
        }
    }

    fn commit(chunks: usize) -> Commit {
        let chunk = |index: usize| Chunk {
            block: COMMIT_BLOCKS + 2 * index as u32,
            bytes: 4097 + index as u32,
            checksum: 77,
            packets: 5,
            first: 100,
            last: 200,
        };
        Commit {
            ring: Uuid::from_u128(7),
            sequence: 1 << 33,
            recording: Uuid::from_u128(8),
            stream: 1,
            streams: 2,
            edition: 3,
            is_closed: true,
            is_first: false,
            is_last: true,
            clock_offset: 10,
            clock_steps: ClockSteps {
                count: 2,
                nanoseconds: -3,
            },
            counts: Counts {
                received: 1,
                received_bytes: 2,
                kept: 3,
                source_lost: 4,
                slow_lost: 5,
                failed_lost: 6,
                socket_lost: 7,
                interface_lost: 8,
                filtered: 9,
            },
            chunks: (0..chunks).map(chunk).collect(),
        }
    }

    #[test]
    fn blocks_come_back_and_damage_is_seen() {
        let block = superblock().encode();
        assert_eq!(Superblock::parse(&block[..]), Ok(superblock()));
        for bit in 0..120 * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::parse(&damaged[..]).is_err(), "bit {bit}");
        }
        for chunks in [0, 1, CHUNKS_MAX] {
            let block = commit(chunks).encode();
            assert_eq!(Commit::parse(&block[..], 16 << 20), Ok(commit(chunks)));
            let mut torn = block.clone();
            torn[512..].fill(0);
            let is_whole = torn == block;
            assert_eq!(Commit::parse(&torn[..], 16 << 20).is_ok(), is_whole);
        }
        assert_eq!(Superblock::parse(&[0; BLOCK_BYTES]), Err(Defect::Absent));
        assert_eq!(
            Commit::parse(&commit(CHUNKS_MAX).encode()[..], 64 << 10),
            Err(Defect::Damaged),
            "chunks beyond the segment's end"
        );
    }

    #[test]
    fn numbers_that_no_recorder_writes_are_damage() {
        let superblocks: [fn(&mut Superblock); 5] = [
            |ring| ring.generation = NUMBER_MAX + 1,
            |ring| ring.tail = u64::MAX,
            |ring| ring.segment_bytes = 12 << 10,
            |ring| ring.segment_bytes = 2 << 30,
            |ring| ring.slots = u64::MAX,
        ];
        for change in superblocks {
            let mut ring = superblock();
            change(&mut ring);
            let parsed = Superblock::parse(&ring.encode()[..]);
            assert_eq!(parsed, Err(Defect::Damaged), "{ring:?}");
        }
        let commits: [fn(&mut Commit); 3] = [
            |commit| commit.sequence = u64::MAX,
            |commit| commit.chunks[0].bytes = CHUNK_DATA_BYTES_MAX + 1,
            |commit| commit.chunks[0].last = commit.chunks[0].first - 1,
        ];
        for change in commits {
            let mut commit = commit(1);
            change(&mut commit);
            let parsed = Commit::parse(&commit.encode()[..], 16 << 20);
            assert_eq!(parsed, Err(Defect::Damaged), "{commit:?}");
        }
        let mut ring = superblock();
        (ring.slots, ring.segment_bytes) = (1 << 40, 1 << 30);
        assert_eq!(ring.end(), u64::MAX, "no volume is as large");
    }

    #[test]
    fn a_later_version_says_so() {
        let mut block = superblock().encode();
        block[8] = 9;
        let sum = checksum(&block[..]);
        block[CHECKSUM].copy_from_slice(&sum);
        assert_eq!(Superblock::parse(&block[..]), Err(Defect::Version(9)));
    }

    #[test]
    fn segments_take_turns_on_the_volumes() {
        let ring = superblock();
        let segment = 16_u64 << 20;
        assert_eq!(ring.place(0), (0, SLOTS_AT));
        assert_eq!(ring.place(2), (2, SLOTS_AT));
        assert_eq!(ring.place(3), (0, SLOTS_AT + segment));
        assert_eq!(ring.place(ring.capacity() + 4), (1, SLOTS_AT + segment));
    }

    proptest! {
        #[test]
        fn blocks_of_any_bytes_end_in_an_answer(
            mut bytes in proptest::collection::vec(any::<u8>(), BLOCK_BYTES), is_commit in any::<bool>(),
        ) {
            let magic = if is_commit { COMMIT_MAGIC } else { SUPERBLOCK_MAGIC };
            bytes[..8].copy_from_slice(&magic);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            let sum = checksum(&bytes);
            bytes[CHECKSUM].copy_from_slice(&sum);
            let _ = Superblock::parse(&bytes);
            if let Ok(commit) = Commit::parse(&bytes, 16 << 20) {
                prop_assert!(commit.chunks.iter().all(|chunk| chunk.bytes <= 16 << 20));
            }
        }
    }
}
