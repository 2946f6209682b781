//! What a queue does next: drawn from a seed, without memory per request.

use std::ops::Range;
use std::sync::Arc;

use weir_block::{Geometry, Volume};

use super::zipf::Zipf;
use super::{Access, HotArea, Kind, Stream, Workload};
use crate::plan::{PlanError, range_blocks};
use crate::shuffle::Shuffle;
use weir_reactor::random::{Random, mix};

/// One request to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) kind: Kind,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
}

/// Which queue of how many this is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Its place among the queues of all machines.
    pub(crate) queue: u32,
    /// The place of the first of the queues that share blocks with it, and how many these are.
    pub(crate) first: u32,
    pub(crate) queues: u32,
    /// The blocks that they share.
    pub(crate) first_block: u64,
    pub(crate) blocks: u64,
}

/// Draws the requests of one queue. The workload was checked, by itself and against the volume.
pub(crate) struct Generator {
    random: Random,
    /// What most runs are: one kind, one size, evenly spread. Nothing needs to be looked up for it.
    plain: Option<(Kind, u32, Slots)>,
    streams: Choice,
    of: Vec<StreamState>,
}

impl Generator {
    pub(crate) fn new(workload: &Workload, geometry: &Geometry, part: Part, seed: u64) -> Self {
        let streams: Vec<_> = workload
            .streams
            .iter()
            .filter(|stream| stream.share_percent > 0.0)
            .collect();
        let state = |(index, stream): (usize, &&Stream)| {
            let spread = mix(seed ^ mix(index as u64));
            let start = (index as u64, streams.len() as u64);
            StreamState::new(workload, stream, geometry, part, spread, start)
        };
        let of: Vec<_> = streams.iter().enumerate().map(state).collect();
        Generator {
            random: Random::new(mix(seed ^ mix(u64::from(part.queue) + 1))),
            plain: plain(&of),
            streams: Choice::new(streams.iter().map(|stream| stream.share_percent)),
            of,
        }
    }

    /// What comes next.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        if let Some((kind, blocks, slots)) = self.plain {
            let lba = slots.any(&mut self.random);
            return Next { kind, lba, blocks };
        }
        let stream = self.streams.pick(&mut self.random);
        self.of[stream].next(&mut self.random)
    }
}

/// What there is no choice about but the place.
fn plain(streams: &[StreamState]) -> Option<(Kind, u32, Slots)> {
    let [one] = streams else {
        return None;
    };
    match (&one.kind_of[..], &one.of[..]) {
        (
            &[kind],
            &[
                Sized {
                    blocks,
                    place: Place::Uniform(slots),
                },
            ],
        ) if kind != Kind::Flush => Some((kind, blocks, slots)),
        _ => None,
    }
}

/// A choice by shares.
#[derive(Debug, Clone)]
struct Choice {
    /// What lies below each, of 2^32; the last one takes the rest.
    limits: Box<[u32]>,
}

impl Choice {
    /// Of things with these shares, none of which is 0.
    fn new(percents: impl Iterator<Item = f64>) -> Self {
        let percents: Vec<_> = percents.collect();
        let total: f64 = percents.iter().sum();
        let mut below = 0.0;
        let limits = percents
            .split_last()
            .map_or(&[][..], |(_, but_last)| but_last);
        Choice {
            limits: limits
                .iter()
                .map(|percent| {
                    below += percent;
                    (below / total * f64::from(u32::MAX)) as u32
                })
                .collect(),
        }
    }

    #[inline]
    fn pick(&self, random: &mut Random) -> usize {
        if self.limits.is_empty() {
            return 0;
        }
        let draw = (random.next() >> 32) as u32;
        let below = self.limits.iter().position(|&limit| draw < limit);
        below.unwrap_or(self.limits.len())
    }
}

struct StreamState {
    kinds: Choice,
    kind_of: Vec<Kind>,
    sizes: Choice,
    of: Vec<Sized>,
    cursor: Cursor,
}

struct Sized {
    blocks: u32,
    place: Place,
}

/// Where the requests of one size go. Slots are where a request may begin.
enum Place {
    Uniform(Slots),
    Sequential,
    Mixed {
        random: u32,
        slots: Slots,
    },
    Strided {
        stride: u64,
    },
    Zipf {
        zipf: Zipf,
        spread: Shuffle,
        slots: Slots,
    },
    Pareto {
        power: f64,
        spread: Shuffle,
        slots: Slots,
    },
    Hot {
        areas: Choice,
        slots_of: Vec<Slots>,
    },
}

/// Places side by side.
#[derive(Debug, Clone, Copy)]
struct Slots {
    first_block: u64,
    count: u64,
    /// Blocks from one to the next.
    unit: u64,
}

impl Slots {
    fn block(&self, slot: u64) -> u64 {
        self.first_block + slot * self.unit
    }

    #[inline]
    fn any(&self, random: &mut Random) -> u64 {
        self.block(random.below(self.count))
    }
}

/// Where a queue that goes on from its last request is. In blocks from the start of its part.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    first_block: u64,
    blocks: u64,
    next: u64,
    lap: u64,
}

impl Cursor {
    #[inline]
    fn sequential(&mut self, blocks: u64) -> u64 {
        let at = match self.next + blocks <= self.blocks {
            true => self.next,
            false => 0,
        };
        self.next = at + blocks;
        self.first_block + at
    }

    fn strided(&mut self, blocks: u64, stride: u64) -> u64 {
        if self.next + blocks > self.blocks {
            self.lap += blocks;
            if self.lap >= stride || self.lap + blocks > self.blocks {
                self.lap = 0;
            }
            self.next = self.lap;
        }
        let at = self.next;
        self.next += stride;
        self.first_block + at
    }
}

impl StreamState {
    fn new(
        workload: &Workload,
        stream: &Stream,
        geometry: &Geometry,
        part: Part,
        spread: u64,
        (index, streams): (u64, u64),
    ) -> Self {
        let shift = geometry.block_size.shift();
        let range = stream_blocks(workload, stream, geometry).min(part.blocks);
        let sizes: Vec<_> = stream
            .sizes
            .iter()
            .filter(|size| size.percent > 0.0)
            .map(|size| (blocks_of(size.bytes, shift), size.percent))
            .collect();
        let longest = sizes.iter().map(|&(blocks, _)| blocks).max().unwrap_or(1);
        let (first_block, of_queue) = part.of(range, longest);
        let start = of_queue / streams * index;
        let cursor = Cursor {
            first_block: part.first_block + first_block,
            blocks: of_queue,
            next: start - start % longest,
            lap: 0,
        };
        let percents = stream.operations.percents();
        let done = |kind: &Kind| percents[*kind as usize] > 0.0;
        let kind_of: Vec<_> = Kind::ALL.into_iter().filter(done).collect();
        let sized = |&(blocks, _): &(u64, f64)| {
            // With an alignment every size has the same places, so that what is hot is so for all.
            let (unit, tail) = match stream.align_bytes {
                Some(align) => (blocks_of(align, shift), longest),
                None => (blocks, blocks),
            };
            let slots = Slots {
                first_block: part.first_block,
                count: (range - tail) / unit + 1,
                unit,
            };
            Sized {
                blocks: blocks as u32,
                place: Place::new(&stream.access, slots, &cursor, (blocks, shift), spread),
            }
        };
        StreamState {
            kinds: Choice::new(kind_of.iter().map(|&kind| percents[kind as usize])),
            kind_of,
            sizes: Choice::new(sizes.iter().map(|&(_, percent)| percent)),
            of: sizes.iter().map(sized).collect(),
            cursor,
        }
    }

    #[inline]
    fn next(&mut self, random: &mut Random) -> Next {
        let kind = self.kind_of[self.kinds.pick(random)];
        if kind == Kind::Flush {
            return Next {
                kind,
                lba: 0,
                blocks: 0,
            };
        }
        let sized = &self.of[self.sizes.pick(random)];
        let lba = match &sized.place {
            Place::Uniform(slots) => slots.any(random),
            place => place.next(random, &mut self.cursor, u64::from(sized.blocks)),
        };
        Next {
            kind,
            lba,
            blocks: sized.blocks,
        }
    }
}

impl Place {
    fn new(
        access: &Access,
        slots: Slots,
        cursor: &Cursor,
        (blocks, shift): (u64, u32),
        spread: u64,
    ) -> Self {
        let spread = || Shuffle::new(slots.count, spread);
        match access {
            Access::Random => Place::Uniform(slots),
            Access::Sequential => Place::Sequential,
            Access::Mixed { random_percent } => Place::Mixed {
                random: (random_percent / 100.0 * f64::from(u32::MAX)) as u32,
                slots: slots_within(cursor, blocks, slots.unit),
            },
            Access::Strided { stride_bytes } => Place::Strided {
                stride: blocks_of(*stride_bytes, shift),
            },
            Access::Zipf { exponent } => Place::Zipf {
                zipf: Zipf::new(slots.count, *exponent),
                spread: spread(),
                slots,
            },
            Access::Pareto { share } => Place::Pareto {
                power: share.ln() / (1.0 - share).ln(),
                spread: spread(),
                slots,
            },
            Access::Hot { areas } => Place::Hot {
                areas: Choice::new(areas.iter().map(|area| area.requests_percent)),
                slots_of: slots_of_areas(areas, slots),
            },
        }
    }

    /// Where the next request begins.
    fn next(&self, random: &mut Random, cursor: &mut Cursor, blocks: u64) -> u64 {
        match self {
            Place::Uniform(slots) => slots.any(random),
            Place::Sequential => cursor.sequential(blocks),
            Place::Mixed {
                random: share,
                slots,
            } => {
                if ((random.next() >> 32) as u32) < *share {
                    cursor.next = slots.any(random) - cursor.first_block;
                }
                cursor.sequential(blocks)
            }
            Place::Strided { stride } => cursor.strided(blocks, *stride),
            Place::Zipf {
                zipf,
                spread,
                slots,
            } => slots.block(spread.at(zipf.rank(random))),
            Place::Pareto {
                power,
                spread,
                slots,
            } => {
                let rank = (random.unit().powf(*power) * slots.count as f64) as u64;
                slots.block(spread.at(rank.min(slots.count - 1)))
            }
            Place::Hot { areas, slots_of } => slots_of[areas.pick(random)].any(random),
        }
    }
}

/// The places of each area. On a volume with few places an area still has one.
fn slots_of_areas(areas: &[HotArea], all: Slots) -> Vec<Slots> {
    let mut space = 0.0;
    areas
        .iter()
        .map(|area| {
            let edge = |space: f64| (space / 100.0 * all.count as f64).round() as u64;
            let first = edge(space).min(all.count - 1);
            space += area.space_percent;
            let end = edge(space).clamp(first + 1, all.count);
            Slots {
                first_block: all.block(first),
                count: end - first,
                unit: all.unit,
            }
        })
        .collect()
}

/// Blocks that so many bytes take.
fn blocks_of(bytes: u64, shift: u32) -> u64 {
    bytes.div_ceil(1 << shift)
}

/// Blocks that a stream works on.
fn stream_blocks(workload: &Workload, stream: &Stream, geometry: &Geometry) -> u64 {
    range_blocks(geometry, workload.range_bytes).min(range_blocks(geometry, stream.range_bytes))
}

impl Part {
    /// First of the blocks that the queue goes through one after the other, and how many: whole requests, and together all that there are.
    fn of(self, range: u64, longest: u64) -> (u64, u64) {
        let queue = u128::from(self.queue - self.first);
        let queues = u128::from(self.queues);
        let requests = u128::from(range / longest);
        let edge = |queue: u128| (requests * queue / queues) as u64 * longest;
        (edge(queue), edge(queue + 1) - edge(queue))
    }
}

/// Where a queue may begin anew in its part: at multiples of `unit` of the volume, as random requests do elsewhere; of its part where that has none.
fn slots_within(part: &Cursor, blocks: u64, unit: u64) -> Slots {
    let first_block = part.first_block.next_multiple_of(unit);
    let last_block = part.first_block + part.blocks - blocks;
    match last_block.checked_sub(first_block) {
        Some(behind) => Slots {
            first_block,
            count: behind / unit + 1,
            unit,
        },
        None => Slots {
            first_block: part.first_block,
            count: 1,
            unit,
        },
    }
}

/// Why several machines cannot have blocks of their own.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApartError {
    /// Some blocks are asked for more often than others, by all.
    #[error(
        "with access {access} the same blocks are asked for most by all machines, and none can have them for itself; random, sequential, random:PERCENT and stride:SIZE can be shared out"
    )]
    Hot {
        /// The access.
        access: Access,
    },
    /// A stream that works on a part of the blocks.
    #[error(
        "a stream that works on {range_bytes} bytes alone cannot be shared out; leave its range out, or let one machine make the load"
    )]
    Range {
        /// The stream's part.
        range_bytes: u64,
    },
    /// Fewer blocks than requests of all machines take.
    #[error(
        "{machines} machines cannot share out {blocks} blocks in units of {unit}, of which every request is a part; use more of the volume, or fewer sizes of requests"
    )]
    Small {
        /// Machines.
        machines: u32,
        /// Blocks that there are.
        blocks: u64,
        /// The least that each must have.
        unit: u64,
    },
}

/// Whether machines can have blocks of their own in this workload, whatever the volume.
///
/// # Errors
/// [`ApartError`].
pub fn check_apart(workload: &Workload) -> Result<(), ApartError> {
    for stream in workload.streams.iter().filter(|of| of.share_percent > 0.0) {
        match &stream.access {
            Access::Random | Access::Sequential | Access::Mixed { .. } | Access::Strided { .. } => {
            }
            access @ (Access::Zipf { .. } | Access::Pareto { .. } | Access::Hot { .. }) => {
                let access = access.clone();
                return Err(ApartError::Hot { access });
            }
        }
        if let Some(range_bytes) = stream.range_bytes {
            return Err(ApartError::Range { range_bytes });
        }
    }
    Ok(())
}

/// The blocks to which the requests of machine `machine` of so many go, where each has blocks of its own: together all of the working set, and each as many as another but for
/// a request. They begin where a request of every size may, so that a request is wholly of one machine. One machine has all.
///
/// # Errors
/// [`ApartError`].
pub fn own_blocks(
    workload: &Workload,
    geometry: &Geometry,
    machine: u32,
    machines: u32,
) -> Result<Range<u64>, ApartError> {
    let blocks = range_blocks(geometry, workload.range_bytes);
    if machines <= 1 {
        return Ok(0..blocks);
    }
    check_apart(workload)?;
    let shift = geometry.block_size.shift();
    let streams = workload.streams.iter().filter(|of| of.share_percent > 0.0);
    let units = streams.flat_map(|stream| {
        let sizes = stream.sizes.iter().filter(|size| size.percent > 0.0);
        sizes.map(|size| size.bytes).chain(stream.align_bytes)
    });
    let unit = units
        .map(|bytes| blocks_of(bytes, shift))
        .try_fold(1, multiple_of_both)
        .unwrap_or(u64::MAX);
    let count = blocks / unit;
    if count < u64::from(machines) || machine >= machines {
        return Err(ApartError::Small {
            machines,
            blocks,
            unit,
        });
    }
    let edge = |machine: u32| match machine == machines {
        true => blocks,
        false => (u128::from(count) * u128::from(machine) / u128::from(machines)) as u64 * unit,
    };
    Ok(edge(machine)..edge(machine + 1))
}

/// The least number that both divide; none where it cannot be counted.
fn multiple_of_both(one: u64, other: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (one / divisor).checked_mul(other)
}

/// Whether deallocations are asked for that are no whole units of `granularity_bytes`, in which the volume deallocates.
pub(crate) fn deallocates_parts(workload: &Workload, granularity_bytes: u64) -> bool {
    let is_whole = |bytes: u64| bytes.is_multiple_of(granularity_bytes.max(1));
    workload.streams.iter().any(|stream| {
        let deallocates = stream.share_percent > 0.0 && stream.operations.deallocate_percent > 0.0;
        let stride = match stream.access {
            Access::Strided { stride_bytes } => stride_bytes,
            _ => granularity_bytes,
        };
        let mut sizes = stream.sizes.iter().filter(|size| size.percent > 0.0);
        let whole = sizes.all(|size| is_whole(size.bytes))
            && is_whole(stride)
            && stream.align_bytes.is_none_or(is_whole);
        deallocates && !whole
    })
}

/// Whether the volume can do this within so many of its blocks and with so many queues, with requests of at most `bytes_max`. Says whether a size has to be
/// rounded up.
///
/// # Errors
/// [`PlanError`].
pub(crate) fn check_volume(
    workload: &Workload,
    volume: &Arc<dyn Volume>,
    geometry: &Geometry,
    (blocks, queues): (u64, u32),
    bytes_max: u64,
) -> Result<bool, PlanError> {
    let name = || volume.name();
    if geometry.read_only && workload.modifies() {
        return Err(PlanError::ReadOnly { volume: name() });
    }
    if geometry.deallocate_blocks == 0 && workload.does(Kind::Deallocate) {
        return Err(PlanError::NoDeallocate { volume: name() });
    }
    let block_bytes = u64::from(geometry.block_size.bytes());
    let transfer_bytes = u64::from(geometry.transfer_blocks_max) * block_bytes;
    let mut rounded = false;
    for stream in &workload.streams {
        let range = stream_blocks(workload, stream, geometry).min(blocks);
        for size in &stream.sizes {
            let whole = size.bytes.is_multiple_of(block_bytes);
            rounded |= !whole;
            let asked = size.bytes.next_multiple_of(block_bytes);
            let of_queue = match stream.access {
                Access::Sequential | Access::Mixed { .. } | Access::Strided { .. } => {
                    range / u64::from(queues)
                }
                _ => range,
            };
            let length_bytes = of_queue * block_bytes;
            let max_bytes = transfer_bytes.min(bytes_max);
            if !(whole || workload.round_up) || asked > max_bytes.min(length_bytes) {
                return Err(PlanError::RequestSize {
                    request_bytes: size.bytes,
                    volume: name(),
                    block_bytes,
                    max_bytes,
                    length_bytes,
                });
            }
        }
        let stride = match stream.access {
            Access::Strided { stride_bytes } => Some(("the stride", stride_bytes)),
            _ => None,
        };
        let align = stream
            .align_bytes
            .map(|align| ("the alignment of requests", align));
        for (what, bytes) in stride.into_iter().chain(align) {
            if !bytes.is_multiple_of(block_bytes) {
                return Err(PlanError::Multiple {
                    what,
                    bytes,
                    volume: name(),
                    block_bytes,
                });
            }
        }
    }
    Ok(rounded)
}

#[cfg(test)]
mod tests;
