//! Load, and how long each request took: closed-loop, so many requests in flight per queue, or open-loop, so many offered per
//! second.
//!
//! Service time runs from the moment a request is offered to the volume's queue until its completion is seen, backpressure
//! included. Open-loop arrivals are fixed by the seed before the run, and response time runs from the moment at which a request was
//! due, so that what a slow answer holds up counts as slow too. Both are kept, per kind of request, for the whole run and for
//! each interval. What would make the figures something else than they seem to be (a generator at its own limit, requests
//! that were never sent) is in the report as a [`Caveat`].
//!
//! Curves, comparisons and steady states are made of several runs, and are not here.

mod arrivals;
mod config;
mod recorder;
mod report;
mod worker;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_block::{Geometry, Volume};
use weir_memory::{Segment, View};
use weir_reactor::{Instant, Reactor, Receiver, Remote, Sender, Task, oneshot};

pub use config::{
    Among, Arrivals, BenchConfig, BenchError, BenchProgress, INTERVAL, INTERVALS_MAX, Job, Load,
    Phase, RATE_MAX,
};
pub use report::{
    BenchReport, Caveat, GeneratorReport, Interval, IntervalOperation, LATENCY_DIGITS,
    LATENCY_NS_MAX, Latencies, LittlesLaw, OperationReport, histogram,
};

use self::arrivals::{Schedule, Share};
use self::recorder::{Cost, Intervals, Recorder, Unfinished, Window};
use self::worker::{Counters, Data, Done, LaneEnd, Worker};
use crate::lane::{Lane, LaneError};
use crate::plan::{drive, refuse_zero};
use crate::workload::{Generator, Kind, Part, check_volume, deallocates_parts};
use weir_reactor::random::{Random, mix};

/// Random bytes that the writes of a job on one reactor take their data from. Long enough that a medium does not find repetitions
/// easily.
const WRITE_POOL_BYTES: usize = 4 << 20;
const _: () = assert!(
    WRITE_POOL_BYTES >> 9 <= u16::MAX as usize,
    "the blocks of a request are counted in 16 bits"
);
/// Between the moment at which every queue is open and the beginning: long enough for every reactor to hear of it.
const LEAD: Duration = Duration::from_millis(2);
/// A reactor that has work for this part of the time is at its limit.
const SATURATED: f64 = 0.95;
/// Disagreement of the figures that is worth a word.
const LITTLE_ERROR: f64 = 0.05;
/// The part of the requests that may be late without a word.
const LATE_PART: f64 = 0.01;
/// The part of the requests that may be in flight at the end without a word.
const UNFINISHED_PART: f64 = 0.01;
/// How much longer than all others one of them may take without a word.
const UNFINISHED_LONGER: u64 = 2;
/// The schedule's lag grows when it is more than twice what it was, and this.
const LAG_GROWN_NS: f64 = 100_000.0;

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
    progress: impl FnMut(BenchProgress),
) -> Result<BenchReport, BenchError> {
    let job = Job {
        name: String::new(),
        volumes: volumes.to_vec(),
        config: config.clone(),
    };
    let jobs = std::slice::from_ref(&job);
    let mut reports = run_jobs(control, reactors, jobs, progress).await?;
    Ok(reports.pop().expect("a job has a report"))
}

/// What phases came to.
#[derive(Debug)]
pub struct PhaseReports {
    /// A report for each job of each phase that was begun and did not fail; fewer phases than were asked for where one failed or a stop was asked for.
    pub reports: Vec<Vec<BenchReport>>,
    /// Why the phase after these failed.
    pub failed: Option<BenchError>,
}

/// Runs phases one after the other, each when all jobs of the last one are done. `progress` is told the phase, by its place. A stop that was asked for
/// ends what runs, and what comes after it is not begun; so too where a phase fails.
///
/// # Errors
/// As [`check_job`]. Nothing is run where one of the jobs is wrong.
///
/// # Panics
/// Where a job has no volume.
pub async fn run_phases(
    control: &Reactor,
    reactors: &[Remote],
    phases: &[Phase],
    mut progress: impl FnMut(usize, BenchProgress),
) -> Result<PhaseReports, BenchError> {
    for job in phases.iter().flat_map(|phase| &phase.jobs) {
        check_job(job, reactors.len())?;
    }
    let mut done = PhaseReports {
        reports: Vec::with_capacity(phases.len()),
        failed: None,
    };
    for (index, phase) in phases.iter().enumerate() {
        let tell = |of_job| progress(index, of_job);
        match run_jobs(control, reactors, &phase.jobs, tell).await {
            Ok(reports) => done.reports.push(reports),
            Err(error) => {
                done.failed = Some(error);
                break;
            }
        }
        if phase.jobs.iter().any(|job| job.config.stop.is_asked()) {
            break;
        }
    }
    Ok(done)
}

/// Whether a job can be run at all, on so many reactors.
///
/// # Errors
/// [`BenchError`]: the first thing that is wrong.
///
/// # Panics
/// Where it has no volume.
pub fn check_job(job: &Job, reactors: usize) -> Result<(), BenchError> {
    check(job, reactors).map(drop)
}

/// Runs jobs side by side on the same reactors; all begin at the same moment. A report for each, in their order.
///
/// # Errors
/// As [`run`]. Nothing is run where one of them is wrong.
///
/// # Panics
/// Where a job has no volume.
pub async fn run_jobs(
    control: &Reactor,
    reactors: &[Remote],
    jobs: &[Job],
    progress: impl FnMut(BenchProgress),
) -> Result<Vec<BenchReport>, BenchError> {
    let soon = async || Some(control.precise_now() + LEAD);
    run_jobs_from(control, reactors, jobs, soon, progress).await
}

/// As [`run_jobs`], beginning at the moment that `beginning` yields. It is asked when every queue is open. Where it yields none, nothing is run, and
/// the reports are empty.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// Where a job has no volume.
pub async fn run_jobs_from(
    control: &Reactor,
    reactors: &[Remote],
    jobs: &[Job],
    beginning: impl AsyncFnOnce() -> Option<Instant>,
    mut progress: impl FnMut(BenchProgress),
) -> Result<Vec<BenchReport>, BenchError> {
    let mut gatherings = Vec::with_capacity(jobs.len());
    for job in jobs {
        let caveats = check(job, reactors.len())?;
        gatherings.push(Gathering::new(job, caveats));
    }
    let seats = seat(jobs, reactors.len());
    for seat in seats.iter().flatten() {
        gatherings[seat.job].stations += 1;
    }
    let (mut calls, mut readies, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (remote, seats)) in reactors.iter().zip(seats).enumerate() {
        if seats.is_empty() {
            continue;
        }
        let stations: Vec<_> = seats
            .into_iter()
            .map(|seat| StationPlan::new(index, seat, jobs, &gatherings))
            .collect();
        let ((ready, is_ready), (start, begin)) = (oneshot(), oneshot());
        readies.push(is_ready);
        starts.push(start);
        calls.push(remote.call(move |reactor| run_reactor(reactor, stations, ready, begin)));
    }
    let began = start_together(readies, starts, beginning).await;
    let began = began.unwrap_or_else(|| control.precise_now());
    let mut last = began;
    let ended = drive(control, calls, || {
        let now = control.now();
        for (index, (job, gathering)) in jobs.iter().zip(&mut gatherings).enumerate() {
            progress(gathering.progress(index, &job.config, now - began, now - last));
        }
        last = now;
    })
    .await?;
    for station in ended.into_iter().flatten() {
        gatherings[station.job].stations_ended.push(station);
    }
    let reports = jobs.iter().zip(gatherings);
    Ok(reports
        .map(|(job, gathering)| gathering.report(&job.config, began, reactors.len()))
        .collect())
}

/// Whether a job can be run, and what has to be said of it.
fn check(job: &Job, reactors: usize) -> Result<Vec<Caveat>, BenchError> {
    let config = &job.config;
    assert!(!job.volumes.is_empty(), "load needs a volume");
    refuse_zero(&[
        ("the number of reactors", reactors as u64),
        ("the number of queues", u64::from(config.queues)),
        ("the queue depth", u64::from(config.load.depth())),
        ("the rate", config.load.rate().unwrap_or(1)),
        (
            "the duration in nanoseconds",
            config.duration.as_nanos() as u64,
        ),
        (
            "the interval in nanoseconds",
            config.interval.as_nanos() as u64,
        ),
    ])?;
    let among = config.among();
    if among
        .before
        .checked_add(config.queues)
        .is_none_or(|end| end > among.queues)
    {
        return Err(BenchError::Among {
            among,
            queues: config.queues,
        });
    }
    config.workload.check()?;
    if let Some(rate) = config.load.rate()
        && rate > RATE_MAX
    {
        return Err(BenchError::Rate { rate });
    }
    if intervals(config).count() > INTERVALS_MAX {
        let least = config.duration.as_nanos().div_ceil(INTERVALS_MAX);
        return Err(BenchError::Intervals {
            duration: config.duration,
            interval: config.interval,
            least: Duration::from_nanos(least as u64),
        });
    }
    let mut caveats = Vec::new();
    for volume in &job.volumes {
        let geometry = volume.geometry();
        let bytes_max = WRITE_POOL_BYTES as u64;
        let own = config.own_blocks(&geometry)?;
        let queues = match among.apart {
            true => config.queues,
            false => among.queues,
        };
        let rounded = check_volume(
            &config.workload,
            volume,
            &geometry,
            (own.end - own.start, queues),
            bytes_max,
        )?;
        let block_bytes = u64::from(geometry.block_size.bytes());
        let granularity_bytes = u64::from(geometry.deallocate_blocks) * block_bytes;
        let found = [
            rounded.then_some(Caveat::RoundedUp { block_bytes }),
            deallocates_parts(&config.workload, granularity_bytes)
                .then_some(Caveat::DeallocatedInPart { granularity_bytes }),
        ];
        // The volumes of a job are one, as several hosts see it.
        if caveats.is_empty() {
            caveats.extend(found.into_iter().flatten());
        }
    }
    Ok(caveats)
}

fn intervals(config: &BenchConfig) -> Intervals {
    Intervals {
        duration: config.duration,
        length: config.interval,
    }
}

/// The queues of one job on one reactor.
struct Seat {
    job: usize,
    queues: Vec<u32>,
}

/// Spreads the queues of all jobs over the reactors, one after the other.
fn seat(jobs: &[Job], reactors: usize) -> Vec<Vec<Seat>> {
    let mut seats: Vec<Vec<Seat>> = (0..reactors).map(|_| Vec::new()).collect();
    let mut next = 0;
    for (index, job) in jobs.iter().enumerate() {
        for queue in 0..job.config.queues {
            let seats = &mut seats[next % reactors];
            next += 1;
            match seats.last_mut().filter(|seat| seat.job == index) {
                Some(seat) => seat.queues.push(queue),
                None => seats.push(Seat {
                    job: index,
                    queues: vec![queue],
                }),
            }
        }
    }
    seats
}

/// Tells every reactor the moment to begin, once all of them are ready. Where one is not, or there is no such moment, nobody is told, and each ends with
/// its own result.
async fn start_together(
    readies: Vec<Receiver<()>>,
    starts: Vec<Sender<Instant>>,
    beginning: impl AsyncFnOnce() -> Option<Instant>,
) -> Option<Instant> {
    let mut all_ready = true;
    for ready in readies {
        all_ready &= ready.await.is_some();
    }
    if !all_ready {
        return None;
    }
    let began = beginning().await?;
    starts.into_iter().for_each(|start| start.send(began));
    Some(began)
}

/// Intervals that a reactor has finished, by their place.
type Finished = Arc<Mutex<Vec<(usize, Interval)>>>;

/// What a reactor needs to know to run the queues of one job.
struct StationPlan {
    /// Which reactor, by its place.
    reactor: usize,
    seat: Seat,
    volumes: Vec<Arc<dyn Volume>>,
    config: BenchConfig,
    counters: Arc<[Counters]>,
    finished: Finished,
}

impl StationPlan {
    fn new(reactor: usize, seat: Seat, jobs: &[Job], gatherings: &[Gathering]) -> Self {
        let (job, gathering) = (&jobs[seat.job], &gatherings[seat.job]);
        StationPlan {
            reactor,
            seat,
            volumes: job.volumes.clone(),
            config: job.config.clone(),
            counters: Arc::clone(&gathering.counters),
            finished: Arc::clone(&gathering.finished),
        }
    }
}

/// What the queues of one job on one reactor did.
struct StationEnd {
    reactor: usize,
    job: usize,
    lanes: Vec<LaneEnd>,
    totals: [OperationReport; 4],
    lag: Option<hdrhistogram::Histogram<u64>>,
    ended: u64,
    waited: u64,
    late: u64,
    late_ns_max: u64,
    unfinished: Unfinished,
    ramp_errors: u64,
    cost: Option<Cost>,
}

/// Opens what a reactor is to run, waits for the beginning, and runs it.
async fn run_reactor(
    reactor: Reactor,
    plans: Vec<StationPlan>,
    ready: Sender<()>,
    begin: Receiver<Instant>,
) -> Result<Vec<StationEnd>, LaneError> {
    let mut opened = Vec::with_capacity(plans.len());
    for plan in plans {
        let lanes = open_lanes(&reactor, &plan)?;
        let pool = write_pool(&plan);
        opened.push((plan, lanes, pool));
    }
    ready.send(());
    let Some(began) = begin.await else {
        // Another reactor could not open its queues, and says so.
        return Ok(Vec::new());
    };
    let start = |(plan, lanes, pool)| Station::start(&reactor, plan, lanes, pool, began);
    let stations: Vec<_> = opened.into_iter().map(start).collect();
    let mut ended = Vec::with_capacity(stations.len());
    for station in stations {
        ended.push(station.end(&reactor).await);
    }
    Ok(ended)
}

type OpenLane = (u32, Geometry, Lane<recorder::Issued>);

fn open_lanes(reactor: &Reactor, plan: &StationPlan) -> Result<Vec<OpenLane>, LaneError> {
    let depth = plan.config.load.depth();
    let open = |&queue: &u32| {
        let volume = &plan.volumes[queue as usize % plan.volumes.len()];
        let lane = Lane::open(reactor, volume, depth)?;
        Ok((queue, volume.geometry(), lane))
    };
    plan.seat.queues.iter().map(open).collect()
}

/// What the writes of a job take their data from: of each block as many bytes random as the data is not compressible, the others zero.
fn write_pool(plan: &StationPlan) -> View {
    let workload = &plan.config.workload;
    if !workload.does(Kind::Write) {
        return View::empty();
    }
    let first = u64::from(plan.config.among().before) + u64::from(plan.seat.queues[0]);
    let mut random = Random::new(mix(plan.config.seed ^ mix(!first)));
    let mut pool = Segment::heap(WRITE_POOL_BYTES);
    let block_bytes = plan.volumes[0].geometry().block_size.bytes() as usize;
    let random_percent = 100 - usize::from(workload.compressible_percent);
    for block in pool.chunks_mut(block_bytes) {
        let (filled, zeroes) = block.split_at_mut(block_bytes * random_percent / 100);
        random.fill(filled);
        zeroes.fill(0);
    }
    pool.freeze()
}

/// The queues of one job on one reactor, at work.
struct Station {
    reactor: usize,
    job: usize,
    lanes: Vec<Task<LaneEnd>>,
    recorder: Rc<RefCell<Recorder>>,
    /// The next interval to be finished.
    next: Rc<std::cell::Cell<usize>>,
    intervals: Intervals,
    finished: Finished,
    time: Task<()>,
}

impl Station {
    fn start(
        reactor: &Reactor,
        plan: StationPlan,
        lanes: Vec<OpenLane>,
        pool: View,
        began: Instant,
    ) -> Self {
        let config = &plan.config;
        let from = began + config.ramp;
        let window = Window {
            from,
            end: from + config.duration,
        };
        let open = config.load.rate().is_some();
        let recorder = Rc::new(RefCell::new(Recorder::new(&config.workload, open, window)));
        let lanes = lanes
            .into_iter()
            .map(|lane| start_lane(reactor, &plan, lane, &pool, &recorder, (began, window)))
            .collect();
        let next = Rc::new(std::cell::Cell::new(0));
        let intervals = intervals(config);
        let time = keep_time(
            reactor.clone(),
            Rc::clone(&recorder),
            Rc::clone(&next),
            (window, intervals),
            Arc::clone(&plan.finished),
        );
        Station {
            reactor: plan.reactor,
            job: plan.seat.job,
            lanes,
            recorder,
            next,
            intervals,
            finished: plan.finished,
            time: reactor.spawn(time),
        }
    }

    async fn end(self, reactor: &Reactor) -> StationEnd {
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes {
            lanes.push(lane.await);
        }
        drop(self.time);
        let mut recorder = self.recorder.borrow_mut();
        recorder.end(reactor);
        let last = recorder.take(&self.intervals, self.next.get());
        lock(&self.finished).push((self.next.get(), last));
        let recorder = &mut *recorder;
        StationEnd {
            reactor: self.reactor,
            job: self.job,
            lanes,
            totals: recorder.totals.clone(),
            lag: recorder.total_lag.take(),
            ended: recorder.ended,
            waited: recorder.waited,
            late: recorder.late,
            late_ns_max: recorder.late_ns_max,
            unfinished: recorder.unfinished,
            ramp_errors: recorder.ramp_errors,
            cost: recorder.cost,
        }
    }
}

fn start_lane(
    reactor: &Reactor,
    plan: &StationPlan,
    (queue, geometry, lane): OpenLane,
    pool: &View,
    recorder: &Rc<RefCell<Recorder>>,
    (began, window): (Instant, Window),
) -> Task<LaneEnd> {
    let config = &plan.config;
    let Among {
        before,
        queues,
        apart,
    } = config.among();
    // What is drawn depends on the place among all queues, and not on the machine.
    let place = before + queue;
    let own = config.own_blocks(&geometry);
    let own = own.expect("it was checked before anything was opened");
    let (of, first) = match apart {
        true => (config.queues, before),
        false => (queues, 0),
    };
    let part = Part {
        queue: place,
        first,
        queues: of,
        first_block: own.start,
        blocks: own.end - own.start,
    };
    let generator = Generator::new(&config.workload, &geometry, part, config.seed);
    let schedule = match config.load {
        Load::Closed { .. } => None,
        Load::Open { rate, arrivals, .. } => {
            let share = Share {
                rate,
                queue: place,
                queues,
            };
            Some(Schedule::new(began, share, arrivals, config.seed))
        }
    };
    let worker = Worker {
        reactor: reactor.clone(),
        lane,
        generator,
        data: Data {
            pool: pool.clone(),
            random: Random::new(mix(config.seed ^ mix(u64::from(place) << 32 | 1))),
        },
        recorder: Rc::clone(recorder),
        counters: Arc::clone(&plan.counters),
        queue,
        block_shift: geometry.block_size.shift(),
        stop: config.stop.clone(),
    };
    let waiting = reactor.clone();
    reactor.spawn(async move {
        waiting.sleep_until(began).await;
        worker.run(window, schedule).await
    })
}

/// Notes the beginning and the end of the measured time, and finishes intervals when they are over. Goes on behind the end, for what ends late.
async fn keep_time(
    reactor: Reactor,
    recorder: Rc<RefCell<Recorder>>,
    next: Rc<std::cell::Cell<usize>>,
    (window, intervals): (Window, Intervals),
    finished: Finished,
) {
    reactor.sleep_until(window.from).await;
    recorder.borrow_mut().begin(&reactor);
    loop {
        let (start, length) = intervals.span(next.get());
        let end = window.from + (start + length);
        reactor.sleep_until(end).await;
        let mut recorder = recorder.borrow_mut();
        if end >= window.end {
            recorder.end(&reactor);
        }
        let interval = recorder.take(&intervals, next.get());
        lock(&finished).push((next.get(), interval));
        next.set(next.get() + 1);
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a job from all reactors.
struct Gathering {
    counters: Arc<[Counters]>,
    seen: Done,
    finished: Finished,
    /// Each with the number of reactors that it is from.
    intervals: Vec<(usize, Interval)>,
    /// Intervals that were told of.
    told: usize,
    /// Reactors that the job runs on.
    stations: usize,
    stations_ended: Vec<StationEnd>,
    caveats: Vec<Caveat>,
}

impl Gathering {
    fn new(job: &Job, caveats: Vec<Caveat>) -> Self {
        let counters = (0..job.config.queues).map(|_| Counters::default());
        Gathering {
            counters: counters.collect(),
            seen: Done::default(),
            finished: Finished::default(),
            intervals: Vec::new(),
            told: 0,
            stations: 0,
            stations_ended: Vec::new(),
            caveats,
        }
    }

    /// Takes up what the reactors have finished.
    fn gather(&mut self) {
        let finished = std::mem::take(&mut *lock(&self.finished));
        for (index, interval) in finished {
            match self.intervals.get_mut(index) {
                Some((reactors, sum)) => {
                    *reactors += 1;
                    sum.add(&interval);
                }
                None => self.intervals.push((1, interval)),
            }
        }
    }

    fn progress(
        &mut self,
        job: usize,
        config: &BenchConfig,
        elapsed: Duration,
        interval: Duration,
    ) -> BenchProgress {
        self.gather();
        let done = Done::of_all(&self.counters);
        let seen = std::mem::replace(&mut self.seen, done);
        let whole = self.intervals[self.told..]
            .iter()
            .take_while(|(reactors, _)| *reactors == self.stations);
        let intervals: Vec<_> = whole.map(|(_, interval)| interval.clone()).collect();
        self.told += intervals.len();
        BenchProgress {
            job,
            elapsed,
            total: config.ramp + config.duration,
            ramping: elapsed < config.ramp,
            interval,
            requests: done.requests - seen.requests,
            bytes: done.bytes - seen.bytes,
            errors: done.errors - seen.errors,
            intervals,
        }
    }

    fn report(mut self, config: &BenchConfig, began: Instant, reactors: usize) -> BenchReport {
        self.gather();
        let open = config.load.rate().is_some();
        let mut report = BenchReport {
            elapsed: Duration::ZERO,
            operations: Kind::ALL.map(|_| OperationReport::new(open)),
            unsent: 0,
            unfinished: 0,
            unfinished_ns_max: 0,
            ramp_errors: 0,
            first_error: None,
            queue_requests: vec![0; config.queues as usize],
            intervals: Vec::new(),
            lag_ns: open.then(histogram),
            ended: 0,
            waited: 0,
            late_ns_max: 0,
            littles_law: LittlesLaw::default(),
            generator: GeneratorReport {
                processor: None,
                busy_shares: vec![0.0; reactors],
            },
            caveats: self.caveats,
        };
        let (mut in_flight_sum, mut late) = (0u128, 0);
        for station in self.stations_ended {
            late += station.late;
            for lane in &station.lanes {
                in_flight_sum += u128::from(lane.in_flight_sum);
                let ran = lane.sent_until - (began + config.ramp);
                report.elapsed = report.elapsed.max(ran);
            }
            add_station(&mut report, station);
        }
        report.intervals = trim(self.intervals, report.elapsed);
        let nanoseconds = report.elapsed.as_nanos().max(1) as f64;
        let mean_ns = report.total().service_ns.mean();
        report.littles_law = LittlesLaw {
            in_flight: in_flight_sum as f64 / nanoseconds,
            rate_times_service: report.requests() as f64 / nanoseconds * mean_ns,
        };
        add_caveats(&mut report, config, late);
        report
    }
}

fn add_station(report: &mut BenchReport, station: StationEnd) {
    for (sum, of) in report.operations.iter_mut().zip(&station.totals) {
        sum.add(of);
    }
    if let (Some(sum), Some(of)) = (&mut report.lag_ns, &station.lag) {
        sum.add(of).expect("histograms of one shape add up");
    }
    report.ended += station.ended;
    report.waited += station.waited;
    report.late_ns_max = report.late_ns_max.max(station.late_ns_max);
    report.unfinished += station.unfinished.requests;
    report.unfinished_ns_max = report.unfinished_ns_max.max(station.unfinished.ns_max);
    report.ramp_errors += station.ramp_errors;
    if let Some(cost) = station.cost {
        report.generator.busy_shares[station.reactor] = cost.busy_share;
        report.generator.processor = report.generator.processor.max(cost.processor);
    }
    for lane in station.lanes {
        report.queue_requests[lane.queue as usize] = lane.requests;
        report.unsent += lane.unsent;
        report.first_error = report.first_error.take().or(lane.first_error);
    }
}

/// The intervals of the time that there was, and those behind it in which something happened.
fn trim(intervals: Vec<(usize, Interval)>, elapsed: Duration) -> Vec<Interval> {
    let mut intervals: Vec<_> = intervals.into_iter().map(|(_, of)| of).collect();
    let is_over = |of: &Interval| of.start >= elapsed && of.requests() + of.errors() == 0;
    while intervals.last().is_some_and(is_over) {
        intervals.pop();
    }
    if let Some(last) = intervals.last_mut()
        && last.start < elapsed
    {
        last.length = last.length.min(elapsed - last.start);
    }
    intervals
}

fn add_caveats(report: &mut BenchReport, config: &BenchConfig, late: u64) {
    let busy_share = report.generator.busy_share_max();
    let limited = match config.load {
        Load::Closed { .. } => true,
        Load::Open { .. } => report.unsent > 0 || lag_grew(&report.intervals),
    };
    let requests = report.requests();
    let late_part = late as f64 / requests.max(1) as f64;
    let little = report.littles_law.error();
    let caveats = [
        (busy_share >= SATURATED && limited).then_some(Caveat::GeneratorSaturated { busy_share }),
        (report.unsent > 0).then_some(Caveat::Unsent {
            requests: report.unsent,
        }),
        is_cut_off(report).then_some(Caveat::Unfinished {
            requests: report.unfinished,
            longest: Duration::from_nanos(report.unfinished_ns_max),
        }),
        (report.ramp_errors > 0).then_some(Caveat::RampErrors {
            requests: report.ramp_errors,
        }),
        (report.waited > 0).then_some(Caveat::DepthReached {
            requests: report.waited,
        }),
        (late_part > LATE_PART).then_some(Caveat::Late { requests: late }),
        (little > LITTLE_ERROR).then_some(Caveat::LittlesLaw { error: little }),
        (report.elapsed < config.duration).then_some(Caveat::EndedEarly),
    ];
    report.caveats.extend(caveats.into_iter().flatten());
}

/// Whether what was in flight at the end would have changed the figures: because it was much, or because it took longer than anything that is in them.
fn is_cut_off(report: &BenchReport) -> bool {
    let unfinished = report.unfinished as f64;
    let longest = report.total().service_ns.max();
    unfinished > UNFINISHED_PART * report.requests() as f64
        || report.unfinished_ns_max > longest.saturating_mul(UNFINISHED_LONGER)
}

/// Whether requests were sent later and later.
fn lag_grew(intervals: &[Interval]) -> bool {
    let mut lags = intervals
        .iter()
        .map(|of| &of.lag)
        .filter(|lag| !lag.is_empty());
    match (lags.next(), lags.next_back()) {
        (Some(first), Some(last)) => last.mean() > 2.0 * first.mean() + LAG_GROWN_NS,
        (Some(only), None) => only.mean() > LAG_GROWN_NS,
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stop;
    use crate::workload::{Access, Workload};

    fn config(load: Load) -> BenchConfig {
        BenchConfig {
            workload: Workload::simple(4096, 100, Access::Random),
            load,
            queues: 1,
            among: None,
            duration: Duration::from_secs(1),
            ramp: Duration::ZERO,
            interval: INTERVAL,
            seed: 1,
            stop: Stop::new(),
        }
    }

    /// The report of a second in which a reactor had work for a part of the time, with the mean lag of its first and last interval.
    fn report(busy_share: f64, unsent: u64, lags_ns: &[u64]) -> BenchReport {
        let interval = |&lag: &u64| Interval {
            lag: Latencies::pack(std::iter::once((lag, 100))),
            ..Interval::default()
        };
        let mut operations = Kind::ALL.map(|_| OperationReport::new(false));
        operations[0].requests = 1000;
        BenchReport {
            elapsed: Duration::from_secs(1),
            operations,
            unsent,
            unfinished: 0,
            unfinished_ns_max: 0,
            ramp_errors: 0,
            first_error: None,
            queue_requests: vec![1000],
            intervals: lags_ns.iter().map(interval).collect(),
            lag_ns: None,
            ended: 1000,
            waited: 0,
            late_ns_max: 0,
            littles_law: LittlesLaw::default(),
            generator: GeneratorReport {
                processor: None,
                busy_shares: vec![0.2, busy_share],
            },
            caveats: Vec::new(),
        }
    }

    #[test]
    fn a_generator_counts_as_saturated_where_the_limit_may_be_its_own() {
        let closed = Load::Closed { depth: 4 };
        let open = Load::Open {
            rate: 1000,
            arrivals: Arrivals::Uniform,
            depth_max: 4,
        };
        for (load, busy_share, unsent, lags_ns, saturated) in [
            (closed, 0.94, 0, &[][..], false),
            (closed, 0.95, 0, &[], true),
            // On time, however much it had to do.
            (open, 1.0, 0, &[], false),
            (open, 1.0, 0, &[1000, 1500, 2000], false),
            (open, 1.0, 0, &[50_000, 900_000], true),
            (open, 1.0, 0, &[200_000], true),
            (open, 0.94, 0, &[50_000, 900_000], false),
            (open, 0.95, 1, &[1000, 1000], true),
            // What was not sent is the volume's doing.
            (open, 0.5, 1, &[1000, 1000], false),
        ] {
            let mut report = report(busy_share, unsent, lags_ns);
            add_caveats(&mut report, &config(load), 0);
            let expected = Caveat::GeneratorSaturated { busy_share };
            let told = report.caveats.contains(&expected);
            assert_eq!(
                told, saturated,
                "{load:?} {busy_share} {unsent} {lags_ns:?}"
            );
            let unsent_told = report.caveats.contains(&Caveat::Unsent { requests: 1 });
            assert_eq!(unsent_told, unsent > 0);
        }
    }
}
