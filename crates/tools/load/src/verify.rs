//! Writes stamped blocks, reads them back, and says of what is wrong which of a volume's faults it is.
//!
//! A run makes passes. In each, every block of the range is overwritten once, in an order that only the seed knows; what is there is
//! looked at before it is overwritten, so that a write that went elsewhere is seen, and other blocks are read meanwhile. The pass
//! ends with a flush and a comparison of everything; the last one's waits until no queue writes any more, so that what strayed last is
//! seen too. A check reads only: it compares with what an earlier run wrote.
//!
//! With the first block that is wrong everything ends: no queue writes any more, what is wrong is read again a few times, also
//! through a queue of its own, and the write that seems lost is searched for on the whole volume. What all that means is told by
//! `diagnosis`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir_block::{BlockSize, Geometry, Operation, Volume};
use weir_memory::{Segment, View, Views};
use weir_reactor::{Call, Instant, Reactor, Receiver, Remote, Sender, oneshot};

use crate::Stop;
use crate::diagnosis::{Before, Evidence, Finding, Holds, Wanted, look};
use crate::lane::{Ended, Lane, LaneError};
use crate::pattern::{self, Stamp};
use crate::plan::{Plan, PlanError, drive, range_blocks, refuse_zero};
use crate::search::{AGAIN_AFTER, Search, filled, for_each_block, read_of};
use crate::shuffle::Shuffle;
use weir_reactor::random::Random;

/// Wrong requests that are looked into; more are counted.
const SUSPECTS_MAX: usize = 16;
/// Blocks that a queue remembers to have seen elsewhere than where they belong, before its first write there.
const STRAYS_MAX: usize = 64;
/// How often, in percent, a request reads what is not being written.
const SPOT_CHECK_PERCENT: u64 = 33;

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
    /// The passes that the run of which only the leavings are checked has made: a block that holds less is a lost write. 0 where it is not
    /// known; then whatever the run wrote is right.
    pub passes_made: u64,
    /// Ends the run early, with a comparison of everything.
    pub stop: Stop,
}

/// Why a volume is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Blocks do not hold what was written to them.
    #[error("{volume} is at fault: {}{}", .findings[0], others(*.requests))]
    Wrong {
        /// The volume's name.
        volume: String,
        /// What was found, by address; one at least, and not more than are looked into.
        findings: Vec<Finding>,
        /// Requests that yielded something wrong.
        requests: u64,
    },
    /// The volume cannot do what was asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A request failed, so that nothing is known of its blocks.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

fn others(requests: u64) -> String {
    match requests {
        0 | 1 => String::new(),
        requests => format!(" ({requests} requests yielded something wrong)"),
    }
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
    /// Whether something was wrong, and where a write went that seems lost is being searched for.
    pub searching: bool,
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
/// [`VerifyError`]: what is wrong, or why nothing can be said.
pub async fn run(
    control: &Reactor,
    reactors: &[Remote],
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
    mut progress: impl FnMut(VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let geometry = volume.geometry();
    check(volume, &geometry, config, reactors.len())?;
    let shared = Arc::new(Shared::new(config.queues));
    let lanes = start(reactors, volume, config, &shared);
    let began = control.now();
    let show = |progress: &mut dyn FnMut(VerifyProgress), searching| {
        let (written_bytes, compared_bytes, pass) = shared.totals();
        let elapsed = control.now() - began;
        progress(VerifyProgress {
            elapsed,
            written_bytes,
            compared_bytes,
            pass,
            searching,
        });
    };
    let outcomes = drive(control, lanes, || show(&mut progress, false)).await;
    // Whatever ended it: the others must not go on writing.
    shared.halt();
    let outcomes = outcomes?;
    let passes = outcomes.iter().map(|outcome| outcome.passes).min();
    let requests = outcomes.iter().map(|outcome| outcome.wrong).sum();
    let (mut findings, mut strays) = (Vec::new(), HashMap::new());
    for outcome in outcomes {
        findings.extend(outcome.findings);
        strays.extend(outcome.strays);
    }
    if !findings.is_empty() {
        if !config.check_only {
            let search = Search::of(config.seed, &findings, strays);
            let goes_on = || !config.stop.is_asked();
            let shown = |_| show(&mut progress, true);
            let places = search.run(control, volume, goes_on, shown).await;
            for finding in &mut findings {
                finding.explain(config.seed, &places);
            }
        }
        findings.sort_by_key(|finding| finding.lba);
        let volume = volume.name();
        return Err(VerifyError::Wrong {
            volume,
            findings,
            requests,
        });
    }
    let (written_bytes, compared_bytes, _) = shared.totals();
    Ok(VerifyReport {
        elapsed: control.now() - began,
        written_bytes,
        compared_bytes,
        passes: passes.unwrap_or(0),
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

/// What the queues of a run have in common.
struct Shared {
    counters: Box<[Counters]>,
    /// Set with the first block that is wrong: nothing is written any more.
    halted: AtomicBool,
}

impl Shared {
    fn new(queues: u32) -> Self {
        Shared {
            counters: (0..queues).map(|_| Counters::default()).collect(),
            halted: AtomicBool::new(false),
        }
    }

    fn halt(&self) {
        self.halted.store(true, Relaxed);
    }

    fn is_halted(&self) -> bool {
        self.halted.load(Relaxed)
    }

    /// Bytes written, bytes compared, and the pass of the slowest.
    fn totals(&self) -> (u64, u64, u64) {
        let sum = |one: fn(&Counters) -> &AtomicU64| {
            self.counters.iter().map(|of| one(of).load(Relaxed)).sum()
        };
        let passes = self.counters.iter().map(|of| of.pass.load(Relaxed));
        (
            sum(|of| &of.written_bytes),
            sum(|of| &of.compared_bytes),
            passes.min().unwrap_or(0),
        )
    }
}

/// What one queue found.
struct Outcome {
    /// Whole passes.
    passes: u64,
    findings: Vec<Finding>,
    /// Requests that yielded something wrong.
    wrong: u64,
    /// Blocks of this run that were seen elsewhere than where they belong, where nothing was expected.
    strays: Vec<(Stamp, u64)>,
}

fn start(
    reactors: &[Remote],
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
    shared: &Arc<Shared>,
) -> Vec<Call<Result<Outcome, VerifyError>>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..config.queues).map(|_| oneshot()).unzip();
    let writing = Arc::new(senders);
    (0..config.queues)
        .zip(receivers)
        .map(|(queue, all_written)| {
            let remote = &reactors[queue as usize % reactors.len()];
            let (volume, config, shared) = (Arc::clone(volume), config.clone(), Arc::clone(shared));
            let last = LastWriter {
                writing: Arc::clone(&writing),
                all_written,
            };
            remote.call(move |reactor| async move {
                let lane = Lane::open(&reactor, &volume, config.depth)?;
                Worker::new(reactor, lane, &volume, config, queue, shared)
                    .run(last)
                    .await
            })
        })
        .collect()
}

/// Tells a queue when no queue writes any more.
struct LastWriter {
    /// Each queue that writes has it. What is in it tells them of its end.
    writing: Arc<Vec<Sender<()>>>,
    all_written: Receiver<()>,
}

impl LastWriter {
    /// This queue writes no more; waits until that is so of all.
    async fn wait(self) {
        drop(self.writing);
        // Nothing is ever sent: the sender is dropped.
        let _ = self.all_written.await;
    }
}

/// What a lane remembers of a request.
#[derive(Debug, Clone, Copy)]
struct Tag {
    unit: u64,
    /// The pass that a write writes, or that a read must find.
    pass: u64,
    step: Step,
}

/// Why a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Reading what is about to be overwritten in this pass.
    Before,
    Write,
    Compare,
    Flush,
    /// Reading once more what was wrong.
    Again,
}

/// A request that yielded something wrong.
struct Suspect {
    unit: u64,
    evidence: Evidence,
}

/// Units are requests' worth of blocks; the last one of a part may be shorter.
struct Worker {
    reactor: Reactor,
    lane: Lane<Tag>,
    volume: Arc<dyn Volume>,
    config: VerifyConfig,
    shared: Arc<Shared>,
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
    suspects: Vec<Suspect>,
    wrong: u64,
    strays: Vec<(Stamp, u64)>,
}

impl Worker {
    fn new(
        reactor: Reactor,
        lane: Lane<Tag>,
        volume: &Arc<dyn Volume>,
        config: VerifyConfig,
        queue: u32,
        shared: Arc<Shared>,
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
            shared,
            queue,
            block_size: geometry.block_size,
            first_lba,
            blocks,
            unit_blocks,
            units: blocks.div_ceil(unit_blocks),
            states: vec![UnitState::default(); blocks.div_ceil(unit_blocks) as usize],
            written_bytes: 0,
            compared_bytes: 0,
            suspects: Vec::new(),
            wrong: 0,
            strays: Vec::new(),
        }
    }

    async fn run(mut self, last: LastWriter) -> Result<Outcome, VerifyError> {
        let worked = if self.config.check_only {
            self.compare_all(true).await.map(|()| 0)
        } else {
            self.make_passes(last).await
        };
        // A request that failed says less than a block that is wrong.
        let passes = match worked {
            Ok(passes) => passes,
            Err(error) if self.suspects.is_empty() => {
                self.shared.halt();
                return Err(error);
            }
            Err(_) => 0,
        };
        let findings = self.examine().await;
        Ok(Outcome {
            passes,
            findings,
            wrong: self.wrong,
            strays: self.strays,
        })
    }

    async fn make_passes(&mut self, last: LastWriter) -> Result<u64, VerifyError> {
        let began = self.reactor.now();
        let mut passes = 0;
        loop {
            let pass = passes + 1;
            self.counters().pass.store(pass, Relaxed);
            let whole = self.overwrite_all(pass, began).await?;
            passes += u64::from(whole);
            if self.shared.is_halted() {
                return Ok(passes);
            }
            let tag = Tag {
                unit: 0,
                pass,
                step: Step::Flush,
            };
            self.lane.alone(tag, Operation::Flush).await?;
            if !whole || self.is_over(passes, began) {
                break;
            }
            self.compare_all(false).await?;
            // It took its time.
            if self.is_over(passes, began) {
                break;
            }
        }
        last.wait().await;
        self.compare_all(false).await?;
        Ok(passes)
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters[self.queue as usize]
    }

    fn is_over(&self, passes: u64, began: Instant) -> bool {
        let done = match self.config.until {
            Until::Passes(wanted) => passes >= wanted,
            Until::Elapsed(wanted) => self.reactor.now() - began >= wanted,
        };
        done || self.config.stop.is_asked() || self.shared.is_halted()
    }

    /// Reads and then writes every unit once in a shuffled order; between them other units are read. False when it was ended before
    /// all were written.
    async fn overwrite_all(&mut self, pass: u64, began: Instant) -> Result<bool, VerifyError> {
        let order = Shuffle::new(
            self.units,
            self.config.seed ^ pass << 20 ^ u64::from(self.queue),
        );
        let mut next = 0;
        while next < self.units && !self.is_over(pass - 1, began) {
            while self.lane.has_room() && next < self.units {
                if self.random.percent(SPOT_CHECK_PERCENT) && self.push_spot_check() {
                    continue;
                }
                let unit = order.at(next);
                if self.states[unit as usize].readers > 0 {
                    break;
                }
                next += 1;
                self.states[unit as usize].writing = true;
                self.push_read(unit, pass, Step::Before);
            }
            self.take_next().await?;
        }
        while !self.lane.is_idle() {
            self.take_next().await?;
        }
        Ok(next == self.units && !self.shared.is_halted())
    }

    fn push_read(&mut self, unit: u64, pass: u64, step: Step) {
        let operation = self.read(unit);
        self.lane.push(Tag { unit, pass, step }, operation);
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
        self.push_read(unit, pass, Step::Compare);
        true
    }

    /// Reads every unit whose contents are known, or with `any_pass` every unit.
    async fn compare_all(&mut self, any_pass: bool) -> Result<(), VerifyError> {
        let mut next = 0;
        while next < self.units && !self.shared.is_halted() || !self.lane.is_idle() {
            while self.lane.has_room() && next < self.units && !self.shared.is_halted() {
                let state = &mut self.states[next as usize];
                if any_pass || state.pass != UNKNOWN_PASS {
                    state.readers += 1;
                    let pass = state.pass;
                    self.push_read(next, pass, Step::Compare);
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
        let Ended {
            tag,
            result,
            operation,
        } = self.lane.next().await;
        let failed = result.map_err(|error| self.lane.error(&operation, error));
        match tag.step {
            Step::Before => {
                failed?;
                self.take_before(tag, filled(&operation));
            }
            Step::Write => {
                let state = &mut self.states[tag.unit as usize];
                state.writing = false;
                state.pass = tag.pass;
                failed?;
                let (_, blocks) = self.unit_range(tag.unit);
                self.written_bytes += u64::from(blocks) << self.block_size.shift();
                let counters = self.counters();
                counters.written_bytes.store(self.written_bytes, Relaxed);
            }
            Step::Compare => {
                self.states[tag.unit as usize].readers -= 1;
                failed?;
                self.compare(tag, filled(&operation));
            }
            Step::Flush | Step::Again => unreachable!("these run alone"),
        }
        Ok(())
    }

    /// What is there before it is overwritten must be what the pass before wrote. Before the first there may be anything; what
    /// belongs elsewhere is noted.
    fn take_before(&mut self, tag: Tag, data: &[View]) {
        let known = self.states[tag.unit as usize].pass;
        if known == UNKNOWN_PASS {
            self.states[tag.unit as usize].before = fingerprint(data);
            self.note_strays(tag.unit, data);
        } else {
            self.compare(Tag { pass: known, ..tag }, data);
        }
        if self.shared.is_halted() {
            self.states[tag.unit as usize].writing = false;
            return;
        }
        let operation = self.write(tag.unit, tag.pass);
        let step = Step::Write;
        self.lane.push(Tag { step, ..tag }, operation);
    }

    fn note_strays(&mut self, unit: u64, data: &[View]) {
        let (mut at, _) = self.unit_range(unit);
        let seed = self.config.seed;
        let strays = &mut self.strays;
        for_each_block(data, self.block_size.bytes() as usize, |block| {
            if strays.len() < STRAYS_MAX
                && let Some(stamp) = pattern::header(block)
                && stamp.seed == seed
                && stamp.lba != at
            {
                strays.push((stamp, at));
            }
            at += 1;
        });
    }

    fn unit_range(&self, unit: u64) -> (u64, u32) {
        let start = unit * self.unit_blocks;
        let blocks = self.unit_blocks.min(self.blocks - start);
        (self.first_lba + start, blocks as u32)
    }

    fn read(&self, unit: u64) -> Operation {
        let (lba, blocks) = self.unit_range(unit);
        read_of(lba, blocks)
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
                sequence: pass,
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

    /// Takes what was read, and ends the run where it is not as it should be.
    fn compare(&mut self, tag: Tag, data: &[View]) {
        self.compared_bytes += weir_memory::views_len(data) as u64;
        let counters = self.counters();
        counters.compared_bytes.store(self.compared_bytes, Relaxed);
        let wanted = self.wanted(tag.pass);
        let first = self.look(tag.unit, wanted, data);
        if first.iter().all(|&holds| holds == Holds::Wanted) {
            return;
        }
        self.shared.halt();
        self.wrong += 1;
        if self.suspects.len() == SUSPECTS_MAX {
            return;
        }
        let (lba, _) = self.unit_range(tag.unit);
        self.suspects.push(Suspect {
            unit: tag.unit,
            evidence: Evidence {
                seed: self.config.seed,
                lba,
                wanted: vec![wanted; first.len()],
                first_write: vec![tag.pass == FIRST_PASS; first.len()],
                first,
                again: Vec::new(),
                before: self.before(tag, data),
                others_there: false,
            },
        });
    }

    fn wanted(&self, pass: u64) -> Wanted {
        match pass {
            UNKNOWN_PASS => Wanted::AtLeast(self.config.passes_made),
            pass => Wanted::Exactly(pass),
        }
    }

    /// What is known of the contents of a unit before the first pass; `data` is what was found in it now.
    fn before(&self, tag: Tag, data: &[View]) -> Before {
        let before = self.states[tag.unit as usize].before;
        let zeroes = || View::zeroes(weir_memory::views_len(data)).collect::<Vec<_>>();
        if tag.pass != FIRST_PASS {
            Before::Unknown
        } else if before == fingerprint(data) {
            Before::Unchanged
        } else if before == fingerprint(&zeroes()) {
            Before::Zeroes
        } else {
            Before::Other
        }
    }

    /// What each block of a unit holds.
    fn look(&self, unit: u64, wanted: Wanted, data: &[View]) -> Vec<Holds> {
        let (mut at, blocks) = self.unit_range(unit);
        let mut all = Vec::with_capacity(blocks as usize);
        for_each_block(data, self.block_size.bytes() as usize, |block| {
            all.push(look(self.config.seed, at, wanted, 0, block));
            at += 1;
        });
        all.resize(blocks as usize, Holds::Missing);
        all
    }

    /// Reads what was wrong a few times more, and says what it means.
    async fn examine(&mut self) -> Vec<Finding> {
        let mut suspects = std::mem::take(&mut self.suspects);
        while !self.lane.is_idle() {
            self.lane.next().await;
        }
        for suspect in &mut suspects {
            for pause in AGAIN_AFTER {
                self.reactor.sleep(pause).await;
                let holds = self.read_again(suspect, None).await;
                suspect.evidence.again.extend(holds);
            }
            let fresh = Lane::open(&self.reactor, &self.volume, 1).ok();
            let holds = self.read_again(suspect, fresh).await;
            suspect.evidence.again.extend(holds);
        }
        let mut findings = Vec::new();
        for finding in suspects.iter().filter_map(|of| of.evidence.diagnose()) {
            // Several reads of a unit that were in flight at once saw the same.
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        findings
    }

    /// What a unit holds now; nothing where it cannot be read.
    async fn read_again(
        &mut self,
        suspect: &Suspect,
        fresh: Option<Lane<Tag>>,
    ) -> Option<Vec<Holds>> {
        let operation = self.read(suspect.unit);
        let tag = Tag {
            unit: suspect.unit,
            pass: UNKNOWN_PASS,
            step: Step::Again,
        };
        let read = match fresh {
            Some(mut lane) => lane.alone(tag, operation).await,
            None => self.lane.alone(tag, operation).await,
        };
        let wanted = suspect.evidence.wanted[0];
        read.ok()
            .map(|read| self.look(suspect.unit, wanted, filled(&read)))
    }
}

/// Of a unit that this run has not written: nothing is known of it, and a check takes whichever pass it finds.
const UNKNOWN_PASS: u64 = 0;
const FIRST_PASS: u64 = 1;

/// A checksum of what a unit holds.
fn fingerprint(data: &[View]) -> u32 {
    data.iter()
        .fold(0, |sum, view| crc32c::crc32c_append(sum, view))
}

/// What is known of one unit.
#[derive(Clone, Default)]
struct UnitState {
    /// The pass that wrote it last; [`UNKNOWN_PASS`] before the first.
    pass: u64,
    /// [`fingerprint`] of what it held before the first.
    before: u32,
    /// Being written, or read in order to be.
    writing: bool,
    readers: u16,
}
