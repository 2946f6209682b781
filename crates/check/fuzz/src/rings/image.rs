//! Rings as the recorder makes them, as plain blocks: what a program edits.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use weir_block::{Operation, ReadBuffers, Volume};
use weir_load::Lane;
use weir_memory::{View, Views, copy_views};
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Faults, Simulation};
use weir_record::{Content, Pace, Ring, RingConfig, WhenFull};
use weir_volume::{Access, Guard, GuardConfig, MemVolume, VolumeUrl};

use super::edit::check_layout;
use super::{Plan, record};

/// Bytes of a superblock, and of a commit record; chunks begin at multiples of it.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Blocks before the first slot, and blocks of a slot: segments are as small as they may be.
pub(super) const SLOTS_AT: u64 = 256;
pub(super) const SLOT_BLOCKS: u64 = 1024;
/// Blocks of one request.
const TRANSFER_BLOCKS: u64 = 256;

/// One block of a volume.
pub(super) type Block = [u8; BLOCK_BYTES];

/// The blocks of a volume that are not zero.
#[derive(Clone)]
pub(super) struct Disk {
    pub(super) bytes: u64,
    pub(super) blocks: BTreeMap<u64, Box<Block>>,
}

impl Disk {
    /// Slots that fit the volume at its present size.
    pub(super) fn slots(&self) -> u64 {
        (self.bytes / BLOCK_BYTES as u64).saturating_sub(SLOTS_AT) / SLOT_BLOCKS
    }

    pub(super) fn block(&mut self, number: u64) -> &mut Block {
        let block = self.blocks.entry(number);
        block.or_insert_with(|| Box::new([0; BLOCK_BYTES]))
    }

    pub(super) fn get(&self, number: u64) -> Block {
        let block = self.blocks.get(&number);
        block.map_or([0; BLOCK_BYTES], |block| **block)
    }

    /// A volume with this content.
    pub(super) async fn volume(&self, reactor: &Reactor, block_size: u32) -> Arc<dyn Volume> {
        let volume = memory(self.bytes, block_size);
        let mut lane = Lane::open(reactor, &volume, 1).expect("memory has queues");
        let length = volume.geometry().length_bytes();
        let blocks: Vec<_> = self.blocks.iter().collect();
        let runs = blocks.chunk_by(|one, next| one.0 + 1 == *next.0);
        for run in runs.flat_map(|run| run.chunks(TRANSFER_BLOCKS as usize)) {
            let at = run[0].0 * BLOCK_BYTES as u64;
            let mut data: Vec<u8> = Vec::with_capacity(run.len() * BLOCK_BYTES);
            run.iter().for_each(|(_, block)| data.extend(&block[..]));
            data.truncate(length.saturating_sub(at).min(data.len() as u64) as usize);
            if data.is_empty() {
                continue;
            }
            let write = Operation::Write {
                lba: at / u64::from(block_size),
                blocks: data.len() as u32 / block_size,
                data: Views::from_iter([View::copy_of(&data)]),
                fua: false,
            };
            lane.alone((), write).await.expect("memory takes it");
        }
        volume
    }

    /// The content of a volume.
    async fn of(reactor: &Reactor, volume: &Arc<dyn Volume>) -> Self {
        let geometry = volume.geometry();
        let mut lane = Lane::open(reactor, volume, 1).expect("memory has queues");
        let mut disk = Disk {
            bytes: geometry.length_bytes(),
            blocks: BTreeMap::new(),
        };
        let end = disk.bytes / BLOCK_BYTES as u64;
        for from in (0..end).step_by(TRANSFER_BLOCKS as usize) {
            let blocks = TRANSFER_BLOCKS.min(end - from);
            let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
            let read = Operation::Read {
                lba: from * BLOCK_BYTES as u64 / u64::from(geometry.block_size.bytes()),
                blocks: bytes.len() as u32 / geometry.block_size.bytes(),
                buffers: ReadBuffers::Lend,
            };
            let read = lane.alone((), read).await.expect("memory has it");
            if let Operation::Read {
                buffers: ReadBuffers::Filled(data),
                ..
            } = read
            {
                copy_views(&data, &mut bytes);
            }
            let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
            for (number, block) in (from..).zip(blocks) {
                if block.iter().any(|&byte| byte != 0) {
                    disk.blocks.insert(number, Box::new(*block));
                }
            }
        }
        disk
    }
}

fn memory(bytes: u64, block_size: u32) -> Arc<dyn Volume> {
    let url = format!("mem:?size={bytes}&block_size={block_size}");
    let url: VolumeUrl = url.parse().expect("a URL");
    let volume = MemVolume::open(&url, Access::READ_WRITE).expect("memory");
    Guard::new(volume, GuardConfig::default()).expect("it may be guarded")
}

/// History of a ring before it is edited.
struct Past {
    content: Content,
    volumes: usize,
    slots: u64,
    /// Streams of each recording, one after the other.
    recordings: &'static [u32],
}

/// The rings that programs begin with.
const PASTS: [Past; 4] = [
    Past {
        content: Content::Packets,
        volumes: 1,
        slots: 3,
        recordings: &[1, 1],
    },
    // The ring has gone round.
    Past {
        content: Content::Packets,
        volumes: 2,
        slots: 3,
        recordings: &[2, 1, 2, 2],
    },
    Past {
        content: Content::Bytes,
        volumes: 2,
        slots: 2,
        recordings: &[1, 1],
    },
    Past {
        content: Content::Packets,
        volumes: 2,
        slots: 2,
        recordings: &[],
    },
];

/// The volumes of a ring to begin with.
pub(super) fn ring(number: u8) -> Vec<Disk> {
    static RINGS: OnceLock<Vec<Vec<Disk>>> = OnceLock::new();
    let rings = RINGS.get_or_init(|| {
        let rings: Vec<_> = PASTS.iter().map(made).collect();
        rings.iter().for_each(|disks| check_layout(disks));
        rings
    });
    rings[usize::from(number) % rings.len()].clone()
}

fn made(past: &'static Past) -> Vec<Disk> {
    let simulation = Simulation::new(Config {
        seed: 1,
        faults: Faults::none(),
        ..Config::default()
    });
    simulation.run(0, move |reactor| async move {
        let bytes = (SLOTS_AT + past.slots * SLOT_BLOCKS) * BLOCK_BYTES as u64;
        let volumes: Vec<_> = (0..past.volumes).map(|_| memory(bytes, 512)).collect();
        let config = RingConfig {
            content: past.content,
            segment_bytes: SLOT_BLOCKS as u32 * BLOCK_BYTES as u32,
        };
        let mut ring = Ring::make(&reactor, &volumes, &config).await;
        for &streams in past.recordings {
            // A few chunks in each segment.
            let plan = Plan {
                streams,
                when_full: WhenFull::GoRound,
                pace: Pace::Rate(8 * 100 * 100),
                packets: 30,
            };
            let recorded = record(&reactor, ring.expect("a ring"), &plan).await;
            recorded.expect("it is recorded");
            ring = Ring::open(&reactor, &volumes, true).await;
        }
        drop(ring);
        let mut disks = Vec::new();
        for volume in &volumes {
            disks.push(Disk::of(&reactor, volume).await);
        }
        disks
    })
}
