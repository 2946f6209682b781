//! Load, and how long each request took: closed-loop, so many requests in flight per queue, or open-loop, so many offered per
//! second.
//!
//! Closed-loop latency runs from the moment a request is offered to the volume's queue until its completion is seen,
//! backpressure included. Open-loop arrivals are fixed before the run, evenly spaced, and latency runs from the moment at which
//! a request was due, so that what a slow answer holds up counts as slow too. (Curves are not here.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use hdrhistogram::Histogram;
use weir_block::{Geometry, Operation, ReadBuffers, Volume, VolumeError};
use weir_memory::{Segment, View, Views};
use weir_reactor::{Call, Instant, Reactor, Remote, Timer};

use crate::Stop;
use crate::lane::{Ended, Lane, LaneError};
use crate::plan::{Plan, PlanError, drive, range_blocks, refuse_zero};
use crate::random::Random;

/// The longest latency that is told apart from longer ones, in nanoseconds: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;
/// Random bytes that writes take their data from. Long enough that a medium does not find repetitions easily.
const WRITE_POOL_BYTES: usize = 4 << 20;
/// As much of it as all queues together have, where that is less.
const WRITE_POOLS_BYTES_MAX: usize = 256 << 20;

/// Which blocks are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Any, each as likely as another.
    Random,
    /// One after the other, each queue in a part of the volume of its own, from the start again at its end.
    Sequential,
}

/// What load to make.
#[derive(Debug, Clone)]
pub struct BenchConfig {
    /// Bytes per request; a multiple of the volume's block size.
    pub request_bytes: u64,
    /// How many of 100 requests read; the others write.
    pub read_percent: u8,
    /// Which blocks.
    pub pattern: Pattern,
    /// Requests in flight per queue; with a rate at most so many, and what is due beyond them waits.
    pub depth: u32,
    /// Requests offered per second by all queues together; as many as the depth allows when none.
    pub rate: Option<u64>,
    /// Queues, spread evenly over the reactors.
    pub queues: u32,
    /// For how long it is measured.
    pub duration: Duration,
    /// For how long it runs before that, unmeasured.
    pub ramp: Duration,
    /// Only the first so many bytes of the volume; all of it when none.
    pub range_bytes: Option<u64>,
    /// What the randomness starts from.
    pub seed: u64,
    /// Ends the run early.
    pub stop: Stop,
}

/// Why there was no measurement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// The volume cannot do what was asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Part of the work failed as a whole.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

/// What one direction did.
#[derive(Debug, Clone)]
pub struct DirectionReport {
    /// Requests that completed while it was measured.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their latencies, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl DirectionReport {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
            .expect("the bounds of the histogram are constants that it takes");
        DirectionReport {
            requests: 0,
            bytes: 0,
            latency_ns,
        }
    }

    fn record(&mut self, bytes: u64, latency: Duration) {
        self.requests += 1;
        self.bytes += bytes;
        self.latency_ns.saturating_record(latency.as_nanos() as u64);
    }

    fn add(&mut self, other: &DirectionReport) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.latency_ns
            .add(&other.latency_ns)
            .expect("histograms of one shape add up");
    }
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct BenchReport {
    /// For how long, as the clock says.
    pub elapsed: Duration,
    /// Reads.
    pub read: DirectionReport,
    /// Writes.
    pub write: DirectionReport,
    /// Requests that failed; they are in no other number.
    pub errors: u64,
    /// Requests that were due before the end and could not be sent by then; only with a rate. They are in no other number, so
    /// that the latencies are too good where this is not zero.
    pub unsent: u64,
    /// The first failure, in words.
    pub first_error: Option<String>,
    /// Requests that each queue completed while it was measured.
    pub queue_requests: Vec<u64>,
}

impl BenchReport {
    /// Requests per second, of both directions.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.per_second(self.read.requests + self.write.requests)
    }

    /// Bytes per second, of both directions.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(self.read.bytes + self.write.bytes)
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.elapsed.is_zero() {
            0.0
        } else {
            count as f64 / self.elapsed.as_secs_f64()
        }
    }

    /// Latencies of both directions together, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self) -> Histogram<u64> {
        let mut both = self.read.latency_ns.clone();
        both.add(&self.write.latency_ns)
            .expect("histograms of one shape add up");
        both
    }
}

/// How a run goes on: what happened since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchProgress {
    /// Since the start of the ramp.
    pub elapsed: Duration,
    /// Ramp and duration together.
    pub total: Duration,
    /// Whether this is still the ramp.
    pub ramping: bool,
    /// Length of the interval.
    pub interval: Duration,
    /// Requests that completed in it.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Failures in it.
    pub errors: u64,
}

/// Makes the load and measures it. `control` runs the tool itself and may be one of `reactors`.
///
/// # Errors
/// [`BenchError`]. Failed requests are no error here: they are counted in the report. Where the volume is gone the run ends
/// early.
pub async fn run(
    control: &Reactor,
    reactors: &[Remote],
    volume: &Arc<dyn Volume>,
    config: &BenchConfig,
    progress: impl FnMut(BenchProgress),
) -> Result<BenchReport, BenchError> {
    let volumes = std::slice::from_ref(volume);
    run_on_several(control, reactors, volumes, config, progress).await
}

/// As [`run`], on several volumes of one size over which the queues are spread: one volume as several hosts see it.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// Where there is no volume.
pub async fn run_on_several(
    control: &Reactor,
    reactors: &[Remote],
    volumes: &[Arc<dyn Volume>],
    config: &BenchConfig,
    mut progress: impl FnMut(BenchProgress),
) -> Result<BenchReport, BenchError> {
    assert!(!volumes.is_empty(), "load needs a volume");
    for volume in volumes {
        check(volume, &volume.geometry(), config, reactors.len())?;
    }
    let counters: Arc<[Counters]> = (0..config.queues).map(|_| Counters::default()).collect();
    let lanes = start_lanes(reactors, volumes, config, &counters);
    let total = config.ramp + config.duration;
    let began = control.now();
    let mut seen = Totals::default();
    let mut last = began;
    let finished = drive(control, lanes, || {
        let now = control.now();
        let totals = Totals::of(&counters);
        let elapsed = now - began;
        progress(BenchProgress {
            elapsed,
            total,
            ramping: elapsed < config.ramp,
            interval: now - last,
            requests: totals.requests - seen.requests,
            bytes: totals.bytes - seen.bytes,
            errors: totals.errors - seen.errors,
        });
        (seen, last) = (totals, now);
    })
    .await?;

    let mut report = BenchReport {
        elapsed: Duration::ZERO,
        read: DirectionReport::new(),
        write: DirectionReport::new(),
        errors: 0,
        unsent: 0,
        first_error: None,
        queue_requests: Vec::with_capacity(finished.len()),
    };
    for lane in finished {
        report.elapsed = report.elapsed.max(lane.elapsed);
        report.read.add(&lane.read);
        report.write.add(&lane.write);
        report.errors += lane.errors;
        report.unsent += lane.unsent;
        report.first_error = report.first_error.or(lane.first_error);
        let requests = lane.read.requests + lane.write.requests;
        report.queue_requests.push(requests);
    }
    Ok(report)
}

fn check(
    volume: &Arc<dyn Volume>,
    geometry: &Geometry,
    config: &BenchConfig,
    reactors: usize,
) -> Result<(), BenchError> {
    refuse_zero(&[
        ("the number of reactors", reactors as u64),
        ("the number of queues", u64::from(config.queues)),
        ("the queue depth", u64::from(config.depth)),
        ("the rate", config.rate.unwrap_or(1)),
        (
            "the duration in nanoseconds",
            config.duration.as_nanos() as u64,
        ),
    ])?;
    let plan = Plan {
        request_bytes: config.request_bytes,
        request_bytes_max: WRITE_POOL_BYTES as u64,
        writes: config.read_percent < 100,
        part_blocks: part(geometry, config, 0).blocks,
    };
    Ok(plan.check(volume, geometry)?)
}

/// The blocks that one queue works on.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: u64,
    blocks: u64,
}

fn part(geometry: &Geometry, config: &BenchConfig, queue: u32) -> Part {
    let range = range_blocks(geometry, config.range_bytes);
    match config.pattern {
        Pattern::Random => Part {
            first: 0,
            blocks: range,
        },
        Pattern::Sequential => {
            let blocks = range / u64::from(config.queues);
            Part {
                first: blocks * u64::from(queue),
                blocks,
            }
        }
    }
}

/// What a lane has done so far. Only the lane's reactor writes it.
#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    requests: u64,
    bytes: u64,
    errors: u64,
}

impl Totals {
    fn of(counters: &[Counters]) -> Self {
        let sum = |one: fn(&Counters) -> &AtomicU64| {
            counters.iter().map(|of| one(of).load(Relaxed)).sum()
        };
        Totals {
            requests: sum(|of| &of.requests),
            bytes: sum(|of| &of.bytes),
            errors: sum(|of| &of.errors),
        }
    }
}

struct LaneReport {
    elapsed: Duration,
    read: DirectionReport,
    write: DirectionReport,
    errors: u64,
    unsent: u64,
    first_error: Option<String>,
}

fn start_lanes(
    reactors: &[Remote],
    volumes: &[Arc<dyn Volume>],
    config: &BenchConfig,
    counters: &Arc<[Counters]>,
) -> Vec<Call<Result<LaneReport, LaneError>>> {
    (0..config.queues)
        .map(|queue| {
            let remote = &reactors[queue as usize % reactors.len()];
            let volume = Arc::clone(&volumes[queue as usize % volumes.len()]);
            let (config, counters) = (config.clone(), Arc::clone(counters));
            remote.call(move |reactor| async move {
                let lane = Lane::open(&reactor, &volume, config.depth)?;
                let geometry = volume.geometry();
                Worker::new(reactor, lane, geometry, config, queue, counters)
                    .run()
                    .await
            })
        })
        .collect()
}

/// Bytes that the writes of one queue take their data from: a multiple of what one writes.
fn write_pool_bytes(config: &BenchConfig) -> usize {
    let each = WRITE_POOL_BYTES.min(WRITE_POOLS_BYTES_MAX / config.queues as usize);
    let request = config.request_bytes as usize;
    (each / request).max(1) * request
}

/// What a lane remembers of a request.
struct Issued {
    at: Instant,
    reads: bool,
}

/// The time that is measured.
#[derive(Clone, Copy)]
struct Window {
    from: Instant,
    end: Instant,
}

impl Window {
    fn of(config: &BenchConfig, began: Instant) -> Self {
        let from = began + config.ramp;
        Window {
            from,
            end: from + config.duration,
        }
    }

    fn contains(&self, at: Instant) -> bool {
        at >= self.from && at < self.end
    }
}

/// When the requests of one queue are due: those of all queues together are evenly spaced.
#[derive(Clone, Copy)]
struct Schedule {
    began: Instant,
    rate: u64,
    queue: u32,
    queues: u32,
}

impl Schedule {
    /// When request `index` of the queue is due.
    fn due(&self, index: u64) -> Instant {
        let before = u128::from(index) * u128::from(self.queues) + u128::from(self.queue);
        let nanoseconds = before * 1_000_000_000 / u128::from(self.rate);
        self.began + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// How many are due before `end`.
    fn due_before(&self, end: Instant) -> u64 {
        let nanoseconds = (end - self.began).as_nanos();
        let of_all = (nanoseconds * u128::from(self.rate)).div_ceil(1_000_000_000);
        let of_this = of_all.saturating_sub(u128::from(self.queue));
        u64::try_from(of_this.div_ceil(u128::from(self.queues))).unwrap_or(u64::MAX)
    }
}

struct Worker {
    reactor: Reactor,
    lane: Lane<Issued>,
    config: BenchConfig,
    counters: Arc<[Counters]>,
    queue: u32,
    random: Random,
    part: Part,
    next_sequential: u64,
    request_blocks: u32,
    block_shift: u32,
    write_pool: View,
    report: LaneReport,
    done: Totals,
    fatal: bool,
}

impl Worker {
    fn new(
        reactor: Reactor,
        lane: Lane<Issued>,
        geometry: Geometry,
        config: BenchConfig,
        queue: u32,
        counters: Arc<[Counters]>,
    ) -> Self {
        let mut random = Random::new(config.seed ^ (u64::from(queue) + 1) << 32);
        let write_pool = match config.read_percent {
            100.. => View::empty(),
            _ => {
                let mut pool = Segment::heap(write_pool_bytes(&config));
                random.fill(&mut pool);
                pool.freeze()
            }
        };
        let block_shift = geometry.block_size.shift();
        let report = LaneReport {
            elapsed: Duration::ZERO,
            read: DirectionReport::new(),
            write: DirectionReport::new(),
            errors: 0,
            unsent: 0,
            first_error: None,
        };
        Worker {
            part: part(&geometry, &config, queue),
            request_blocks: (config.request_bytes >> block_shift) as u32,
            reactor,
            lane,
            config,
            counters,
            queue,
            random,
            next_sequential: 0,
            block_shift,
            write_pool,
            report,
            done: Totals::default(),
            fatal: false,
        }
    }

    async fn run(mut self) -> Result<LaneReport, LaneError> {
        // What came before (the data of writes) may have taken long.
        let began = self.reactor.precise_now();
        let window = Window::of(&self.config, began);
        match self.config.rate {
            None => self.run_closed(window).await,
            Some(rate) => {
                let schedule = Schedule {
                    began,
                    rate,
                    queue: self.queue,
                    queues: self.config.queues,
                };
                self.run_open(window, schedule).await;
            }
        }
        self.report.elapsed = self.reactor.now().min(window.end) - window.from;
        while !self.lane.is_idle() {
            let ended = self.lane.next().await;
            self.take_all(ended, window);
        }
        Ok(self.report)
    }

    async fn run_closed(&mut self, window: Window) {
        while self.reactor.now() < window.end && !self.is_over() {
            self.fill();
            let ended = self.lane.next().await;
            self.take_all(ended, window);
        }
    }

    async fn run_open(&mut self, window: Window, schedule: Schedule) {
        let mut sent = 0;
        let mut timer = Timer::new(&self.reactor);
        while self.reactor.precise_now() < window.end && !self.is_over() {
            sent = self.send_due(schedule, sent, window);
            // Where there is no room the next completion makes some; nothing is due before that.
            timer.set(match self.lane.has_room() {
                true => schedule.due(sent).min(window.end),
                false => window.end,
            });
            if let Some(ended) = self.next_or(&mut timer).await {
                self.take_all(ended, window);
            }
        }
        if !self.is_over() {
            self.report.unsent = schedule.due_before(window.end) - sent;
        }
    }

    fn is_over(&self) -> bool {
        self.fatal || self.config.stop.is_asked()
    }

    /// Sends what is due, as far as there is room; how many requests were sent so far, with `sent` before.
    fn send_due(&mut self, schedule: Schedule, mut sent: u64, window: Window) -> u64 {
        let now = self.reactor.precise_now();
        while self.lane.has_room() {
            let at = schedule.due(sent);
            if at > now || at >= window.end {
                break;
            }
            self.push(at);
            sent += 1;
        }
        self.lane.submit();
        sent
    }

    /// The next request that ends, if one does before the timer elapses.
    async fn next_or(&mut self, timer: &mut Timer) -> Option<Ended<Issued>> {
        std::future::poll_fn(|context| {
            if !self.lane.is_idle()
                && let Poll::Ready(ended) = self.lane.poll_next(context)
            {
                return Poll::Ready(Some(ended));
            }
            timer.poll_elapsed(context).map(|()| None)
        })
        .await
    }

    /// Keeps the lane full. All requests of one batch carry the moment at which the batch was put together.
    fn fill(&mut self) {
        let at = self.reactor.precise_now();
        while self.lane.has_room() {
            self.push(at);
        }
        self.lane.submit();
    }

    /// Adds a request to the batch.
    fn push(&mut self, at: Instant) {
        let reads = self.random.percent(self.config.read_percent);
        let lba = self.next_lba();
        let operation = if reads {
            self.read(lba)
        } else {
            self.write(lba)
        };
        self.lane.push(Issued { at, reads }, operation);
    }

    fn next_lba(&mut self) -> u64 {
        let requests = self.part.blocks / u64::from(self.request_blocks);
        let index = match self.config.pattern {
            Pattern::Random => self.random.below(requests),
            Pattern::Sequential => {
                let index = self.next_sequential;
                self.next_sequential = (index + 1) % requests;
                index
            }
        };
        self.part.first + index * u64::from(self.request_blocks)
    }

    fn read(&self, lba: u64) -> Operation {
        Operation::Read {
            lba,
            blocks: self.request_blocks,
            buffers: ReadBuffers::Lend,
        }
    }

    fn write(&mut self, lba: u64) -> Operation {
        let length = self.config.request_bytes as usize;
        let starts = ((self.write_pool.len() - length) >> self.block_shift) as u64 + 1;
        let start = (self.random.below(starts) as usize) << self.block_shift;
        let data = Views::from_iter([self.write_pool.slice(start..start + length)]);
        Operation::Write {
            lba,
            blocks: self.request_blocks,
            data,
            fua: false,
        }
    }

    /// Takes a completion, and all that are there with it.
    fn take_all(&mut self, ended: Ended<Issued>, window: Window) {
        let seen = self.reactor.precise_now();
        self.take(ended, seen, window);
        while let Some(ended) = self.lane.try_next() {
            self.take(ended, seen, window);
        }
        self.publish();
    }

    /// Takes a completion that was seen at `now`.
    fn take(&mut self, ended: Ended<Issued>, now: Instant, window: Window) {
        if let Err(error) = ended.result {
            self.fail(&ended.operation, error);
            return;
        }
        let bytes = self.config.request_bytes;
        self.done.requests += 1;
        self.done.bytes += bytes;
        // Closed-loop: what completed in the time. Open-loop: what was due in it, however late it completed.
        let counts_from = match self.config.rate {
            None => now,
            Some(_) => ended.tag.at,
        };
        if window.contains(counts_from) {
            let direction = if ended.tag.reads {
                &mut self.report.read
            } else {
                &mut self.report.write
            };
            direction.record(bytes, now - ended.tag.at);
        }
    }

    fn fail(&mut self, operation: &Operation, error: VolumeError) {
        self.done.errors += 1;
        self.report.errors += 1;
        if self.report.first_error.is_none() {
            self.report.first_error = Some(self.lane.error(operation, error).to_string());
        }
        self.fatal |= matches!(
            error,
            VolumeError::Lost
                | VolumeError::ReadOnly
                | VolumeError::OutOfRange
                | VolumeError::Unsupported
                | VolumeError::Invalid
                | VolumeError::NoSpace
        );
    }

    fn publish(&self) {
        let counters = &self.counters[self.queue as usize];
        counters.requests.store(self.done.requests, Relaxed);
        counters.bytes.store(self.done.bytes, Relaxed);
        counters.errors.store(self.done.errors, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_counts_what_it_says_is_due() {
        for (rate, queues) in [(1, 1), (3, 1), (7, 3), (10_000, 4), (1_000_000_000, 2)] {
            for queue in 0..queues {
                let began = Instant::default();
                let schedule = Schedule {
                    began,
                    rate,
                    queue,
                    queues,
                };
                for nanoseconds in [0, 1, 999, 100_000, 333_333_333, 333_333_334, 1_000_000_000] {
                    let end = began + Duration::from_nanos(nanoseconds);
                    let count = schedule.due_before(end);
                    assert!(
                        count == 0 || schedule.due(count - 1) < end,
                        "{rate} {queues} {queue} {nanoseconds}"
                    );
                    assert!(
                        schedule.due(count) >= end,
                        "{rate} {queues} {queue} {nanoseconds}"
                    );
                }
            }
        }
    }
}
