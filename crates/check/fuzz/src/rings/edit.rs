//! Edits of a ring's volumes: fields of superblocks, commit records and chunks, with a right checksum or without, and whole blocks.

use weir_digest::Digest;
use weir_pcap::{Interface, Packet, Statistics, write};
use weir_reactor::random::Random;

use super::image::{BLOCK_BYTES, Block, Disk, SLOT_BLOCKS, SLOTS_AT};

pub(super) const STEP_BYTES: usize = 16;
/// Volumes of a ring, and bytes of each, at most.
const DISKS_MAX: usize = 4;
const DISK_BYTES_MAX: u64 = 40 << 20;
/// Largest number of times that an edit repeats its pieces of pcapng.
const REPEATS_MAX: u16 = 64;

/// Places of a volume's superblocks, in blocks.
const SUPERBLOCKS: [u64; 2] = [0, 16];
const SUPERBLOCK_MAGIC: &[u8; 8] = b"WEIRRING";
const COMMIT_MAGIC: &[u8; 8] = b"WEIRSEGM";
const VERSION: u32 = 1;
const CHECKSUM: std::ops::Range<usize> = 12..16;
/// Blocks of a segment before its first chunk.
const COMMIT_BLOCKS: u64 = 2;
/// Place of the list of chunks in a commit record, bytes of one, and their number at most.
const CHUNKS_AT: usize = 256;
const CHUNK_BYTES: usize = 32;
const CHUNKS_MAX: usize = (BLOCK_BYTES - CHUNKS_AT) / CHUNK_BYTES;

/// A number in a block: its place, and its bytes.
type Field = (usize, usize);

const RING: Field = (16, 8);
const RING_REST: Field = (24, 8);
const GENERATION: Field = (32, 8);
const MEMBER: Field = (40, 4);
const MEMBERS: Field = (44, 4);
const SEGMENT_BYTES: Field = (48, 4);
const CONTENT: Field = (52, 4);
const SLOTS: Field = (56, 8);
const TAIL: Field = (64, 8);
const MADE: Field = (72, 8);
const SUPERBLOCK_FIELDS: &[Field] = &[
    GENERATION,
    MEMBER,
    MEMBERS,
    SEGMENT_BYTES,
    CONTENT,
    SLOTS,
    TAIL,
    MADE,
    RING,
    RING_REST,
    (0, 8),
    (8, 4),
];

const SEQUENCE: Field = (32, 8);
const RECORDING: Field = (40, 8);
const EDITION: Field = (56, 4);
const FLAGS: Field = (60, 4);
const CHUNKS: Field = (120, 4);
const STREAM: Field = (148, 4);
const STREAMS: Field = (152, 4);
const COMMIT_FIELDS: &[Field] = &[
    SEQUENCE,
    RECORDING,
    EDITION,
    FLAGS,
    CHUNKS,
    STREAM,
    STREAMS,
    // The clock, and counts.
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (104, 8),
    (112, 8),
    (124, 8),
    (132, 8),
    (140, 8),
    (156, 4),
    (160, 8),
    RING,
    RING_REST,
    (48, 8),
    (0, 8),
    (8, 4),
];

const FIRST_BLOCK: Field = (0, 4);
const BYTES: Field = (4, 4);
const DATA_CHECKSUM: Field = (8, 4);
const PACKETS: Field = (12, 4);
const FIRST: Field = (16, 8);
const LAST: Field = (24, 8);
const CHUNK_FIELDS: &[Field] = &[FIRST_BLOCK, BYTES, DATA_CHECKSUM, PACKETS, FIRST, LAST];

fn get(block: &[u8], (at, bytes): Field) -> u64 {
    let mut value = [0; 8];
    value[..bytes].copy_from_slice(&block[at..at + bytes]);
    u64::from_le_bytes(value)
}

fn put(block: &mut [u8], (at, bytes): Field, value: u64) {
    block[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// The same field of a chunk in its commit record.
fn of_chunk(index: usize, (at, bytes): Field) -> Field {
    (CHUNKS_AT + index * CHUNK_BYTES + at, bytes)
}

fn seal(block: &mut Block) {
    block[CHECKSUM].fill(0);
    let sum = Digest::of(&block[..]).to_bytes();
    block[CHECKSUM].copy_from_slice(&sum);
}

/// Checks that blocks which the recorder wrote lie as is said here.
pub(super) fn check_layout(disks: &[Disk]) {
    for (number, disk) in disks.iter().enumerate() {
        let block = disk.get(SUPERBLOCKS[0]);
        let mut again = block;
        seal(&mut again);
        assert!(block == again, "a superblock's checksum");
        let fields = [MEMBER, MEMBERS, SEGMENT_BYTES, SLOTS].map(|field| get(&block, field));
        let segment_bytes = SLOT_BLOCKS * BLOCK_BYTES as u64;
        let expected = [
            number as u64,
            disks.len() as u64,
            segment_bytes,
            disk.slots(),
        ];
        assert_eq!(fields, expected, "the fields of a superblock");
    }
}

/// One edit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    kind: u8,
    /// The volume, and the slot on it.
    disk: u8,
    slot: u8,
    /// Selects one of two blocks that are written in turn.
    copy: u8,
    field: u8,
    how: u8,
    /// A place in a block, a chunk, or a number of repeats.
    extra: u16,
    value: u64,
}

/// Flags of [`Step::how`].
const UNSEALED: u8 = 0x80;
const EVERYWHERE: u8 = 0x40;

impl Step {
    pub(super) fn decode(bytes: &[u8; STEP_BYTES]) -> Self {
        let [kind, disk, slot, copy, field, how, low, high, value @ ..] = *bytes;
        Step {
            kind,
            disk,
            slot,
            copy,
            field,
            how,
            extra: u16::from_le_bytes([low, high]),
            value: u64::from_le_bytes(value),
        }
    }

    fn encode(self) -> [u8; STEP_BYTES] {
        let [low, high] = self.extra.to_le_bytes();
        let mut bytes = [0; STEP_BYTES];
        bytes[..8].copy_from_slice(&[
            self.kind, self.disk, self.slot, self.copy, self.field, self.how, low, high,
        ]);
        bytes[8..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    pub(super) fn apply(self, disks: &mut Vec<Disk>) {
        if disks.is_empty() {
            return;
        }
        match self.kind % 11 {
            0 => self.superblock(disks),
            1 => self.commit(disks),
            2 => self.chunk(disks),
            3 => self.data(disks),
            4 => self.bytes(disks),
            5 => self.garbage(disks),
            6 => self.copy_blocks(disks),
            7 => self.resize(disks),
            8 => self.volumes(disks),
            9 => self.plant(disks),
            _ => self.add_chunk(disks),
        }
    }

    fn disk(self, disks: &mut [Disk]) -> &mut Disk {
        let number = usize::from(self.disk) % disks.len();
        &mut disks[number]
    }

    /// Changes a field, and corrects the checksum unless `UNSEALED` is set.
    fn change(self, block: &mut Block, field: Field) {
        let before = get(block, field);
        let value = match self.how & 3 {
            0 => self.value,
            1 => before.wrapping_add(self.value),
            2 => before ^ self.value,
            _ => 1_u64.wrapping_shl(self.value as u32).wrapping_sub(1),
        };
        put(block, field, value);
        if self.how & UNSEALED == 0 {
            seal(block);
        }
    }

    fn superblock(self, disks: &mut [Disk]) {
        let field = SUPERBLOCK_FIELDS[usize::from(self.field) % SUPERBLOCK_FIELDS.len()];
        if self.how & EVERYWHERE != 0 {
            for disk in disks {
                for place in SUPERBLOCKS {
                    self.change(disk.block(place), field);
                }
            }
            return;
        }
        let block = self
            .disk(disks)
            .block(SUPERBLOCKS[usize::from(self.copy & 1)]);
        self.change(block, field);
    }

    /// First block of its slot.
    fn slot_at(self, disks: &mut [Disk]) -> u64 {
        let slots = self.disk(disks).slots().max(1);
        SLOTS_AT + u64::from(self.slot) % slots * SLOT_BLOCKS
    }

    /// Block of a commit record: the newest one of the slot or, with bit 1 of `copy`, the one that bit 0 selects.
    fn commit_at(self, disks: &mut [Disk]) -> u64 {
        let at = self.slot_at(disks);
        if self.copy & 2 != 0 {
            return at + u64::from(self.copy & 1);
        }
        let disk = self.disk(disks);
        let edition = |at| get(&disk.get(at), EDITION);
        let is_second = disk.blocks.contains_key(&(at + 1)) && edition(at + 1) > edition(at);
        at + u64::from(is_second)
    }

    fn commit(self, disks: &mut [Disk]) {
        let at = self.commit_at(disks);
        let field = COMMIT_FIELDS[usize::from(self.field) % COMMIT_FIELDS.len()];
        self.change(self.disk(disks).block(at), field);
    }

    fn chunk(self, disks: &mut [Disk]) {
        let at = self.commit_at(disks);
        let block = self.disk(disks).block(at);
        let count = get(block, CHUNKS).clamp(1, CHUNKS_MAX as u64);
        let index = usize::from(self.extra) % count as usize;
        let field = CHUNK_FIELDS[usize::from(self.field) % CHUNK_FIELDS.len()];
        self.change(block, of_chunk(index, field));
    }

    /// Overwrites 8 bytes of a chunk, and corrects its checksum unless `UNSEALED` is set.
    fn data(self, disks: &mut [Disk]) {
        let at = self.commit_at(disks);
        let slot_at = self.slot_at(disks);
        let disk = self.disk(disks);
        let record = disk.get(at);
        let count = get(&record, CHUNKS).clamp(1, CHUNKS_MAX as u64);
        let index = usize::from(self.field) % count as usize;
        let first = get(&record, of_chunk(index, FIRST_BLOCK));
        let bytes = get(&record, of_chunk(index, BYTES)).min(SLOT_BLOCKS * BLOCK_BYTES as u64);
        let end = first + bytes.div_ceil(BLOCK_BYTES as u64);
        if bytes < 8 || end > SLOT_BLOCKS {
            return;
        }
        let place = u64::from(self.extra) % (bytes - 7);
        for (offset, byte) in (place..).zip(self.value.to_le_bytes()) {
            let block = disk.block(slot_at + first + offset / BLOCK_BYTES as u64);
            block[offset as usize % BLOCK_BYTES] = byte;
        }
        if self.how & UNSEALED != 0 {
            return;
        }
        let blocks = (first..end).map(|number| disk.get(slot_at + number));
        let mut data: Vec<u8> = blocks.flatten().collect();
        data.truncate(bytes as usize);
        let sum = Digest::of(&data).value();
        let record = disk.block(at);
        put(record, of_chunk(index, DATA_CHECKSUM), sum.into());
        seal(record);
    }

    /// Place of a superblock or of a commit record.
    fn block_at(self, disks: &mut [Disk]) -> u64 {
        if self.field & 1 == 0 {
            return SUPERBLOCKS[usize::from(self.copy & 1)];
        }
        self.commit_at(disks)
    }

    fn bytes(self, disks: &mut [Disk]) {
        let at = self.block_at(disks);
        let place = usize::from(self.extra) % (BLOCK_BYTES - 7);
        let block = self.disk(disks).block(at);
        block[place..place + 8].copy_from_slice(&self.value.to_le_bytes());
    }

    fn garbage(self, disks: &mut [Disk]) {
        let at = self.block_at(disks);
        let bytes = match self.how & 1 {
            0 => vec![self.value as u8; BLOCK_BYTES],
            _ => Random::new(self.value).bytes(BLOCK_BYTES),
        };
        let block = self.disk(disks).block(at);
        block.copy_from_slice(&bytes);
        if self.how & UNSEALED == 0 {
            let magic = match self.field & 1 {
                0 => SUPERBLOCK_MAGIC,
                _ => COMMIT_MAGIC,
            };
            block[..8].copy_from_slice(magic);
            put(block, (8, 4), VERSION.into());
            seal(block);
        }
    }

    /// Copies or swaps blocks, or whole slots. The value names the other place.
    fn copy_blocks(self, disks: &mut [Disk]) {
        let [disk, slot, copy, field, ..] = self.value.to_le_bytes();
        let other = Step {
            disk,
            slot,
            copy,
            field,
            ..self
        };
        let (from, to, count) = match self.how & 1 {
            0 => (self.block_at(disks), other.block_at(disks), 1),
            _ => (self.slot_at(disks), other.slot_at(disks), SLOT_BLOCKS),
        };
        let taken = |disk: &Disk, at: u64| -> Vec<(u64, Box<Block>)> {
            let blocks = disk.blocks.range(at..at + count);
            let blocks = blocks.map(|(number, block)| (number - at, block.clone()));
            blocks.collect()
        };
        let source = taken(self.disk(disks), from);
        let target = taken(other.disk(disks), to);
        let mut set = |step: Step, at: u64, blocks: Vec<(u64, Box<Block>)>| {
            let disk = step.disk(disks);
            disk.blocks
                .retain(|number, _| !(at..at + count).contains(number));
            let blocks = blocks.into_iter();
            disk.blocks
                .extend(blocks.map(|(number, block)| (at + number, block)));
        };
        set(other, to, source);
        if self.how & 2 != 0 {
            set(self, from, target);
        }
    }

    fn resize(self, disks: &mut [Disk]) {
        let bytes = &mut self.disk(disks).bytes;
        let wanted = match self.how & 3 {
            0 => self.value,
            1 => bytes.saturating_sub(self.value % *bytes),
            2 => bytes.saturating_add(self.value % DISK_BYTES_MAX),
            _ => (self.value % 16) * SLOT_BLOCKS * BLOCK_BYTES as u64,
        };
        let unit = BLOCK_BYTES as u64;
        *bytes = wanted.clamp(unit, DISK_BYTES_MAX) / unit * unit;
    }

    /// Swaps, replaces, adds, removes or reverses volumes.
    fn volumes(self, disks: &mut Vec<Disk>) {
        let one = usize::from(self.disk) % disks.len();
        let other = usize::from(self.slot) % disks.len();
        match self.how % 5 {
            0 => disks.swap(one, other),
            1 => disks[other] = disks[one].clone(),
            2 if disks.len() < DISKS_MAX => disks.push(disks[one].clone()),
            3 => drop(disks.remove(one)),
            _ => disks.reverse(),
        }
    }

    /// Writes a commit record without chunks that looks genuine: its sequence is the slot's, `value` rounds later.
    fn plant(self, disks: &mut [Disk]) {
        let at = self.slot_at(disks) + u64::from(self.copy & 1);
        let slot = (at - SLOTS_AT) / SLOT_BLOCKS;
        let disk = self.disk(disks);
        let ring = disk.get(SUPERBLOCKS[0]);
        let (member, members) = (get(&ring, MEMBER), get(&ring, MEMBERS));
        let round = self
            .value
            .wrapping_mul(members.wrapping_mul(get(&ring, SLOTS)));
        let sequence = slot.wrapping_mul(members).wrapping_add(member);
        let mut record = [0; BLOCK_BYTES];
        record[..8].copy_from_slice(COMMIT_MAGIC);
        put(&mut record, (8, 4), VERSION.into());
        put(&mut record, RING, get(&ring, RING));
        put(&mut record, RING_REST, get(&ring, RING_REST));
        put(&mut record, SEQUENCE, sequence.wrapping_add(round));
        put(&mut record, RECORDING, u64::from(self.field & 3));
        put(&mut record, EDITION, u64::from(self.extra >> 8));
        put(&mut record, FLAGS, u64::from(self.how));
        put(&mut record, STREAM, u64::from(self.extra & 0xf));
        put(&mut record, STREAMS, u64::from(self.extra >> 4 & 0xf));
        seal(&mut record);
        *disk.block(at) = record;
    }

    /// Adds a chunk of packets to a segment, behind those that it has.
    fn add_chunk(self, disks: &mut [Disk]) {
        let (at, slot_at) = (self.commit_at(disks), self.slot_at(disks));
        let disk = self.disk(disks);
        let record = disk.get(at);
        let count = get(&record, CHUNKS) as usize;
        if count >= CHUNKS_MAX {
            return;
        }
        let end = |index: usize| {
            let bytes = get(&record, of_chunk(index, BYTES));
            get(&record, of_chunk(index, FIRST_BLOCK)) + bytes.div_ceil(BLOCK_BYTES as u64)
        };
        let first = (0..count).map(end).max().unwrap_or_default();
        let first = first.max(COMMIT_BLOCKS);
        let data = self.pieces();
        if first + data.len().div_ceil(BLOCK_BYTES) as u64 > SLOT_BLOCKS {
            return;
        }
        for (number, part) in (slot_at + first..).zip(data.chunks(BLOCK_BYTES)) {
            let block = disk.block(number);
            block.fill(0);
            block[..part.len()].copy_from_slice(part);
        }
        let record = disk.block(at);
        let fields = [
            (FIRST_BLOCK, first),
            (BYTES, data.len() as u64),
            (DATA_CHECKSUM, Digest::of(&data).value().into()),
            (PACKETS, u64::from(self.field)),
            (FIRST, 0),
            (LAST, u64::MAX),
        ];
        for (field, value) in fields {
            put(record, of_chunk(count, field), value);
        }
        put(record, CHUNKS, count as u64 + 1);
        seal(record);
    }

    /// A section of pcapng: each byte of the value is a part of it.
    fn pieces(self) -> Vec<u8> {
        let mut data = Vec::new();
        if self.how & 1 == 0 {
            write::section("weir record", "linux", &mut data);
            piece(1, &mut data);
        }
        for _ in 0..=self.extra % REPEATS_MAX {
            for byte in self.value.to_le_bytes() {
                piece(byte, &mut data);
            }
        }
        data
    }
}

/// Writes a block of pcapng, or malformed bytes.
fn piece(byte: u8, data: &mut Vec<u8>) {
    let (kind, variant) = (byte & 7, byte >> 3);
    let time = match variant & 3 {
        0 => 1_764_000_000_000_000_000,
        1 => u64::MAX,
        2 => 0,
        _ => 1_764_000_000_500_000_000,
    };
    let interface = u32::from(variant >> 2 & 3);
    match kind {
        0 => write::section("", "", data),
        1 => {
            let described = Interface {
                link_type: weir_pcap::ETHERNET,
                snap_length: u32::from(variant & 1),
                name: (variant > 1).then(|| "x".repeat(variant.into())),
                ..Interface::default()
            };
            write::interface(&described, data);
        }
        2 | 3 => {
            let packet = Packet {
                interface,
                time,
                length: if kind == 2 { 60 } else { u32::MAX },
                data: &[7; 40][..usize::from(variant)],
                flags: (kind == 3).then_some(1),
                dropped: (kind == 3).then_some(u64::MAX),
            };
            write::packet(&packet, data);
        }
        4 | 5 => {
            let counts = Statistics {
                interface,
                time,
                received: (kind == 4).then_some(u64::MAX),
                system_dropped: Some(u64::from(variant)),
                comment: (kind == 5).then(|| "a word".to_owned()),
                ..Statistics::default()
            };
            write::statistics(&counts, data);
        }
        6 => {
            // A block of an unknown type, whose two lengths may differ.
            for word in [0x0BAD, 16, 7, 16_u32.wrapping_sub(variant.into())] {
                data.extend(word.to_le_bytes());
            }
        }
        _ => data.extend([variant, 0, 0, 0]),
    }
}

/// Edits of the seed programs: one or a few of each kind.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let none = Step {
        kind: 0,
        disk: 0,
        slot: 0,
        copy: 0,
        field: 0,
        how: 0,
        extra: 0,
        value: 0,
    };
    let superblock = |field, how, value| Step {
        field,
        how: how | EVERYWHERE,
        value,
        ..none
    };
    let commit = |field, how, value| Step {
        kind: 1,
        field,
        how,
        value,
        ..none
    };
    let chunk = |field, how, value| Step {
        kind: 2,
        field,
        how,
        value,
        ..none
    };
    let of = |kind, how, value| Step {
        kind,
        how,
        value,
        ..none
    };
    let planted = |slot, value| Step {
        kind: 9,
        slot,
        how: 2,
        value,
        ..none
    };
    let added = |slot, value| Step {
        kind: 10,
        slot,
        value,
        ..none
    };
    let all = [
        vec![superblock(0, 1, 1)],
        vec![superblock(2, 1, 1)],
        vec![superblock(3, 1, 1 << 22)],
        vec![superblock(4, 2, 3)],
        vec![superblock(5, 2, 1)],
        vec![superblock(6, 1, 3)],
        vec![Step {
            how: 1,
            value: 1,
            ..none
        }],
        vec![commit(0, 1, 3)],
        vec![commit(1, 1, 1), commit(3, 2, 7)],
        vec![commit(4, 1, 1)],
        vec![commit(5, 0, 1), commit(6, 0, 2)],
        vec![commit(0, UNSEALED, 9)],
        vec![chunk(0, 1, 1)],
        vec![chunk(1, 1, 4096)],
        vec![chunk(4, 1, 1_000_000), chunk(5, 1, 1_000_000)],
        vec![of(3, 0, 5), of(3, UNSEALED, 5)],
        vec![of(4, 0, 5)],
        vec![of(5, 1, 5)],
        vec![of(6, 2, 0x0100), of(6, 1, 0x0100)],
        vec![of(7, 1, 4096)],
        vec![of(7, 2, 4 << 20)],
        vec![of(8, 0, 0), of(8, 2, 0)],
        vec![planted(2, 3)],
        vec![planted(0, 5), added(0, 0x0a0c_0209_1a03_0205)],
        vec![added(0, 0x0205_0400_0603_0201), added(1, 0x07)],
    ];
    let encoded = |steps: &Vec<Step>| steps.iter().flat_map(|step| step.encode()).collect();
    all.iter().map(encoded).collect()
}
