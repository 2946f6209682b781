//! Writes stamped blocks, reads them back, and names the first block that is wrong.
//!
//! A run makes passes. In each, every block of the range is overwritten once, in an order that only the seed knows, while
//! blocks that are not being written are read and compared with the pass that last wrote them. The pass ends with a flush and
//! a comparison of everything. A check reads only: it compares with what an earlier run wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir_block::{BlockSize, Geometry, Operation, ReadBuffers, Volume};
use weir_memory::{Segment, View, Views};
use weir_reactor::{Call, Instant, Reactor, Remote};

use crate::Stop;
use crate::lane::{Ended, Lane, LaneError};
use crate::pattern::{self, Found, Stamp};
use crate::plan::{Plan, PlanError, drive, range_blocks, refuse_zero};
use crate::random::{Random, Shuffle};

/// When a run ends. It always ends with a whole comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After so many passes.
    Passes(u64),
    /// With the pass in which this long has gone by.
    Elapsed(Duration),
}

/// What to verify.
#[derive(Debug, Clone)]
pub struct VerifyConfig {
    /// Bytes per request; a multiple of the volume's block size.
    pub request_bytes: u64,
    /// Requests in flight per queue.
    pub depth: u32,
    /// Queues, spread evenly over the reactors; each has a part of the range to itself.
    pub queues: u32,
    /// Only the first so many bytes of the volume; all of it when none.
    pub range_bytes: Option<u64>,
    /// What orders and contents start from. A later check needs it.
    pub seed: u64,
    /// When it ends.
    pub until: Until,
    /// Only compare with what a run of this seed left behind; write nothing.
    pub check_only: bool,
    /// Ends the run early, with a comparison of everything.
    pub stop: Stop,
}

/// Why a volume is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A block does not hold what was written to it.
    #[error("block {lba} of {volume} is wrong: expected {expected}, found {found}")]
    Wrong {
        /// The volume's name.
        volume: String,
        /// The first block found wrong.
        lba: u64,
        /// What it should hold.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// The volume cannot do what was asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A request failed, so that nothing is known of its blocks.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

/// How a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Since the start.
    pub elapsed: Duration,
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Bytes read and compared so far.
    pub compared_bytes: u64,
    /// The pass that the slowest queue is in.
    pub pass: u64,
}

/// What was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyReport {
    /// How long it took.
    pub elapsed: Duration,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read and compared.
    pub compared_bytes: u64,
    /// Whole passes over the range (of the queue that made the fewest).
    pub passes: u64,
    /// What the run started from.
    pub seed: u64,
}

/// Verifies a volume. `control` runs the tool itself and may be one of `reactors`. What the range held is lost, unless it
/// only checks.
///
/// # Errors
/// [`VerifyError`]: the first block that is wrong, or why nothing can be said.
pub async fn run(
    control: &Reactor,
    reactors: &[Remote],
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
    mut progress: impl FnMut(VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let geometry = volume.geometry();
    check(volume, &geometry, config, reactors.len())?;
    let counters: Arc<[Counters]> = (0..config.queues).map(|_| Counters::default()).collect();
    let lanes = start(reactors, volume, config, &counters);
    let began = control.now();
    let passes = drive(control, lanes, || {
        let (written_bytes, compared_bytes, pass) = totals(&counters);
        let elapsed = control.now() - began;
        progress(VerifyProgress {
            elapsed,
            written_bytes,
            compared_bytes,
            pass,
        });
    })
    .await?;
    let passes = passes.into_iter().min().unwrap_or(0);
    let (written_bytes, compared_bytes, _) = totals(&counters);
    let elapsed = control.now() - began;
    Ok(VerifyReport {
        elapsed,
        written_bytes,
        compared_bytes,
        passes,
        seed: config.seed,
    })
}

fn check(
    volume: &Arc<dyn Volume>,
    geometry: &Geometry,
    config: &VerifyConfig,
    reactors: usize,
) -> Result<(), VerifyError> {
    let passes = if let Until::Passes(passes) = config.until {
        passes
    } else {
        1
    };
    refuse_zero(&[
        ("the number of reactors", reactors as u64),
        ("the number of queues", u64::from(config.queues)),
        ("the queue depth", u64::from(config.depth)),
        ("the number of passes", passes),
    ])?;
    let plan = Plan {
        request_bytes: config.request_bytes,
        request_bytes_max: u64::MAX,
        writes: !config.check_only,
        part_blocks: range_blocks(geometry, config.range_bytes) / u64::from(config.queues),
    };
    Ok(plan.check(volume, geometry)?)
}

/// What a lane has done so far. Only the lane's reactor writes it.
#[derive(Default)]
struct Counters {
    written_bytes: AtomicU64,
    compared_bytes: AtomicU64,
    pass: AtomicU64,
}

fn totals(counters: &[Counters]) -> (u64, u64, u64) {
    let written = counters
        .iter()
        .map(|of| of.written_bytes.load(Relaxed))
        .sum();
    let compared = counters
        .iter()
        .map(|of| of.compared_bytes.load(Relaxed))
        .sum();
    let pass = counters
        .iter()
        .map(|of| of.pass.load(Relaxed))
        .min()
        .unwrap_or(0);
    (written, compared, pass)
}

fn start(
    reactors: &[Remote],
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
    counters: &Arc<[Counters]>,
) -> Vec<Call<Result<u64, VerifyError>>> {
    (0..config.queues)
        .map(|queue| {
            let remote = &reactors[queue as usize % reactors.len()];
            let (volume, config, counters) =
                (Arc::clone(volume), config.clone(), Arc::clone(counters));
            remote.call(move |reactor| async move {
                let lane = Lane::open(&reactor, &volume, config.depth)?;
                Worker::new(reactor, lane, &volume, config, queue, counters)
                    .run()
                    .await
            })
        })
        .collect()
}

/// What a lane remembers of a request.
struct Tag {
    unit: u64,
    /// The pass that a write writes, or that a read must find.
    pass: u64,
}

/// Units are requests' worth of blocks; the last one of a part may be shorter.
struct Worker {
    reactor: Reactor,
    lane: Lane<Tag>,
    volume: Arc<dyn Volume>,
    config: VerifyConfig,
    counters: Arc<[Counters]>,
    queue: u32,
    random: Random,
    block_size: BlockSize,
    first_lba: u64,
    blocks: u64,
    unit_blocks: u64,
    units: u64,
    states: Vec<UnitState>,
    written_bytes: u64,
    compared_bytes: u64,
}

impl Worker {
    fn new(
        reactor: Reactor,
        lane: Lane<Tag>,
        volume: &Arc<dyn Volume>,
        config: VerifyConfig,
        queue: u32,
        counters: Arc<[Counters]>,
    ) -> Self {
        let geometry = volume.geometry();
        let range = range_blocks(&geometry, config.range_bytes);
        let share = range / u64::from(config.queues);
        let first_lba = share * u64::from(queue);
        let is_last = queue + 1 == config.queues;
        let blocks = if is_last { range - first_lba } else { share };
        let unit_blocks = config.request_bytes >> geometry.block_size.shift();
        Worker {
            reactor,
            lane,
            volume: Arc::clone(volume),
            random: Random::new(config.seed ^ u64::from(queue) << 40),
            config,
            counters,
            queue,
            block_size: geometry.block_size,
            first_lba,
            blocks,
            unit_blocks,
            units: blocks.div_ceil(unit_blocks),
            states: vec![UnitState::default(); blocks.div_ceil(unit_blocks) as usize],
            written_bytes: 0,
            compared_bytes: 0,
        }
    }

    async fn run(mut self) -> Result<u64, VerifyError> {
        if self.config.check_only {
            self.compare_all(true).await?;
            return Ok(0);
        }
        let began = self.reactor.now();
        let mut passes = 0;
        loop {
            let pass = passes + 1;
            self.counters[self.queue as usize].pass.store(pass, Relaxed);
            let whole = self.overwrite_all(pass, began).await?;
            passes += u64::from(whole);
            self.lane
                .alone(Tag { unit: 0, pass }, Operation::Flush)
                .await?;
            self.compare_all(false).await?;
            if !whole || self.is_over(passes, began) {
                return Ok(passes);
            }
        }
    }

    fn is_over(&self, passes: u64, began: Instant) -> bool {
        let done = match self.config.until {
            Until::Passes(wanted) => passes >= wanted,
            Until::Elapsed(wanted) => self.reactor.now() - began >= wanted,
        };
        done || self.config.stop.is_asked()
    }

    /// Writes every unit once in a shuffled order; about every second request reads a unit that is not being written. False
    /// when it was ended before all were written.
    async fn overwrite_all(&mut self, pass: u64, began: Instant) -> Result<bool, VerifyError> {
        let order = Shuffle::new(
            self.units,
            self.config.seed ^ pass << 20 ^ u64::from(self.queue),
        );
        let mut next = 0;
        while next < self.units && !self.is_over(pass - 1, began) {
            while self.lane.has_room() && next < self.units {
                if self.random.percent(50) && self.push_spot_check() {
                    continue;
                }
                let unit = order.at(next);
                if self.states[unit as usize].readers > 0 {
                    break;
                }
                next += 1;
                self.states[unit as usize].writing = true;
                let operation = self.write(unit, pass);
                self.lane.push(Tag { unit, pass }, operation);
            }
            self.take_next().await?;
        }
        while !self.lane.is_idle() {
            self.take_next().await?;
        }
        Ok(next == self.units)
    }

    /// Reads a unit whose contents are known. False when the one that chance picked is not.
    fn push_spot_check(&mut self) -> bool {
        let unit = self.random.below(self.units);
        let state = &mut self.states[unit as usize];
        if state.writing || state.pass == UNKNOWN_PASS {
            return false;
        }
        state.readers += 1;
        let pass = state.pass;
        let operation = self.read(unit);
        self.lane.push(Tag { unit, pass }, operation);
        true
    }

    /// Reads every unit whose contents are known, or with `any_pass` every unit.
    async fn compare_all(&mut self, any_pass: bool) -> Result<(), VerifyError> {
        let mut next = 0;
        while next < self.units || !self.lane.is_idle() {
            while self.lane.has_room() && next < self.units {
                let state = &mut self.states[next as usize];
                if any_pass || state.pass != UNKNOWN_PASS {
                    state.readers += 1;
                    let tag = Tag {
                        unit: next,
                        pass: state.pass,
                    };
                    let operation = self.read(next);
                    self.lane.push(tag, operation);
                }
                next += 1;
            }
            if !self.lane.is_idle() {
                self.take_next().await?;
            }
        }
        Ok(())
    }

    async fn take_next(&mut self) -> Result<(), VerifyError> {
        let ended = self.lane.next().await;
        let state = &mut self.states[ended.tag.unit as usize];
        match ended.operation {
            Operation::Write { .. } => {
                *state = UnitState {
                    pass: ended.tag.pass,
                    ..UnitState::default()
                }
            }
            _ => state.readers -= 1,
        }
        self.take(ended)
    }

    fn unit_range(&self, unit: u64) -> (u64, u32) {
        let start = unit * self.unit_blocks;
        let blocks = self.unit_blocks.min(self.blocks - start);
        (self.first_lba + start, blocks as u32)
    }

    fn read(&self, unit: u64) -> Operation {
        let (lba, blocks) = self.unit_range(unit);
        Operation::Read {
            lba,
            blocks,
            buffers: ReadBuffers::Lend,
        }
    }

    fn write(&self, unit: u64, pass: u64) -> Operation {
        let (lba, blocks) = self.unit_range(unit);
        let bytes = (blocks as usize) << self.block_size.shift();
        let mut segment = self
            .reactor
            .pool()
            .segment(bytes)
            .unwrap_or_else(|_| Segment::heap(bytes));
        for (index, block) in segment
            .chunks_mut(self.block_size.bytes() as usize)
            .enumerate()
        {
            Stamp {
                seed: self.config.seed,
                lba: lba + index as u64,
                pass,
            }
            .write(block);
        }
        Operation::Write {
            lba,
            blocks,
            data: Views::from_iter([segment.freeze()]),
            fua: false,
        }
    }

    fn take(&mut self, ended: Ended<Tag>) -> Result<(), VerifyError> {
        if let Err(error) = ended.result {
            return Err(self.lane.error(&ended.operation, error).into());
        }
        let counters = &self.counters[self.queue as usize];
        match ended.operation {
            Operation::Write { data, .. } => {
                self.written_bytes += weir_memory::views_len(&data) as u64;
                counters.written_bytes.store(self.written_bytes, Relaxed);
            }
            Operation::Read {
                lba,
                buffers: ReadBuffers::Filled(data),
                ..
            } => {
                self.compared_bytes += weir_memory::views_len(&data) as u64;
                counters.compared_bytes.store(self.compared_bytes, Relaxed);
                self.compare(lba, &data, ended.tag.pass)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn compare(&self, lba: u64, data: &[View], pass: u64) -> Result<(), VerifyError> {
        let block_len = self.block_size.bytes() as usize;
        let mut at = lba;
        for_each_block(data, block_len, |block| {
            let expected = Stamp {
                seed: self.config.seed,
                lba: at,
                pass,
            };
            let result = if pass == UNKNOWN_PASS {
                check_any_pass(&expected, block)
            } else {
                expected.check(block)
            };
            let result = result.map_err(|found| self.wrong(expected, found));
            at += 1;
            result
        })
    }

    fn wrong(&self, expected: Stamp, found: Found) -> VerifyError {
        let shown = match expected.pass {
            UNKNOWN_PASS => format!("block {} of run {:#018x}", expected.lba, expected.seed),
            _ => expected.to_string(),
        };
        let volume = self.volume.name();
        VerifyError::Wrong {
            volume,
            lba: expected.lba,
            expected: shown,
            found: found.to_string(),
        }
    }
}

/// Of a unit that this run has not written: nothing is known of it, and a check takes whichever pass it finds.
const UNKNOWN_PASS: u64 = 0;

fn check_any_pass(expected: &Stamp, block: &[u8]) -> Result<(), Found> {
    match pattern::read(block) {
        Found::Stamped(stamp) if stamp.seed == expected.seed && stamp.lba == expected.lba => Ok(()),
        found => Err(found),
    }
}

/// Calls `visit` with each block of `data`; blocks that lie across two views are put together.
fn for_each_block<E>(
    data: &[View],
    block_len: usize,
    mut visit: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut partial: Vec<u8> = Vec::new();
    for view in data {
        let mut rest: &[u8] = view;
        if !partial.is_empty() {
            let missing = (block_len - partial.len()).min(rest.len());
            let (head, tail) = rest.split_at(missing);
            partial.extend_from_slice(head);
            rest = tail;
            if partial.len() == block_len {
                visit(&partial)?;
                partial.clear();
            }
        }
        let mut blocks = rest.chunks_exact(block_len);
        blocks.by_ref().try_for_each(&mut visit)?;
        partial.extend_from_slice(blocks.remainder());
    }
    assert!(partial.is_empty(), "a read yields whole blocks");
    Ok(())
}

/// What is known of one unit.
#[derive(Clone, Default)]
struct UnitState {
    /// The pass that wrote it last; [`UNKNOWN_PASS`] before the first.
    pass: u64,
    writing: bool,
    readers: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_across_views_are_put_together() {
        let bytes: Vec<u8> = (0..64).collect();
        let whole = View::copy_of(&bytes);
        for cut in 1..63 {
            let views = [whole.slice(0..cut), whole.slice(cut..64)];
            let mut seen = Vec::new();
            for_each_block(&views, 16, |block| {
                assert_eq!(block.len(), 16);
                seen.extend_from_slice(block);
                Ok::<(), ()>(())
            })
            .unwrap();
            assert_eq!(seen, bytes);
        }
    }
}
