//! Load and its reports as they stand in messages.
//!
//! What is read back is what was written, histograms included: whole numbers stay whole, and of a histogram every count. What cannot be a report is
//! refused, so that nothing that adds reports up can fail on one.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use weir_load::bench::{
    Among, Arrivals, BenchConfig, BenchReport, Caveat, GeneratorReport, INTERVALS_MAX, Interval,
    IntervalOperation, LATENCY_NS_MAX, Latencies, LittlesLaw, Load, OperationReport,
};
use weir_load::verified::VerifiedReport;
use weir_load::workload::{self, Operations, SizeShare, Stream, Workload};
use weir_load::{Fault, Finding, Stop};

use crate::plain::plain;

/// Requests in flight of a queue at most.
const DEPTH_MAX: u32 = 65_536;
/// Queues of a volume at most.
const QUEUES_MAX: u32 = 65_535;
/// The longest latency that a histogram takes: its last bucket goes on to a power of two.
const VALUE_MAX: u64 = LATENCY_NS_MAX.next_power_of_two();

/// What all agents together may tell of one figure at most, so that every sum of it is a number.
const SUM_MAX: u64 = 1 << 62;
/// The longest time that can be told, in nanoseconds: 146 years.
const TIME_NS_MAX: u64 = 1 << 62;
/// Findings of one agent about one volume at most.
const FINDINGS_MAX: usize = 64;
/// Reactors of an agent at most.
const REACTORS_MAX: usize = 65_536;

/// The most that one agent may tell of a figure of one volume: requests, bytes or anything else that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most(u64);

impl Most {
    /// Where so many agents tell of so many volumes each.
    #[must_use]
    pub fn of(agents: usize, volumes: usize) -> Self {
        let parts = agents.saturating_mul(volumes).max(1);
        Most(SUM_MAX / u64::try_from(parts).unwrap_or(u64::MAX))
    }

    /// Whether a figure is not beyond it.
    ///
    /// # Errors
    /// [`WireError`] with what it is of.
    pub fn check(self, what: &'static str, figure: u64) -> Result<u64, WireError> {
        self.check_sum(what, u128::from(figure))?;
        Ok(figure)
    }

    fn check_sum(self, what: &'static str, sum: u128) -> Result<(), WireError> {
        match sum > u128::from(self.0) {
            true => Err(wrong(what, format!("it is above {}", self.0))),
            false => Ok(()),
        }
    }

    /// So that sums of them are numbers too.
    fn check_real(self, what: &'static str, figure: f64) -> Result<f64, WireError> {
        match (0.0..=self.0 as f64).contains(&figure) {
            true => Ok(figure),
            false => Err(wrong(what, format!("it is not within 0 and {}", self.0))),
        }
    }
}

fn time(what: &'static str, ns: u64) -> Result<Duration, WireError> {
    match ns > TIME_NS_MAX {
        true => Err(wrong(what, format!("it is above {TIME_NS_MAX} ns"))),
        false => Ok(Duration::from_nanos(ns)),
    }
}

/// What is counted of requests, those of every kind together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sums {
    requests: u128,
    bytes: u128,
    errors: u128,
    services: u128,
    responses: u128,
    lags: u128,
}

impl Sums {
    fn of_interval(of: &Interval) -> Self {
        let mut sums = Sums {
            lags: of.lag.count().into(),
            ..Sums::default()
        };
        for operation in &of.operations {
            sums.requests += u128::from(operation.requests);
            sums.bytes += u128::from(operation.bytes);
            sums.errors += u128::from(operation.errors);
            sums.services += u128::from(operation.service.count());
            let response = operation.response.as_ref();
            sums.responses += u128::from(response.map_or(0, Latencies::count));
        }
        sums
    }

    fn of_report(of: &BenchReport) -> Self {
        let count = |of: &Option<Histogram<u64>>| u128::from(of.as_ref().map_or(0, Histogram::len));
        let mut sums = Sums {
            lags: count(&of.lag_ns),
            ..Sums::default()
        };
        for operation in &of.operations {
            sums.requests += u128::from(operation.requests);
            sums.bytes += u128::from(operation.bytes);
            sums.errors += u128::from(operation.errors);
            sums.services += u128::from(operation.service_ns.len());
            sums.responses += count(&operation.response_ns);
        }
        sums
    }

    /// Each figure of both, put together so.
    fn with(self, other: Sums, together: impl Fn(u128, u128) -> u128) -> Self {
        Sums {
            requests: together(self.requests, other.requests),
            bytes: together(self.bytes, other.bytes),
            errors: together(self.errors, other.errors),
            services: together(self.services, other.services),
            responses: together(self.responses, other.responses),
            lags: together(self.lags, other.lags),
        }
    }

    fn check(&self, most: Most) -> Result<(), WireError> {
        for (what, sum) in [
            ("the number of requests", self.requests),
            ("the number of bytes", self.bytes),
            ("the number of failures", self.errors),
            ("the number of service times", self.services),
            ("the number of response times", self.responses),
            ("the number of lags", self.lags),
        ] {
            most.check_sum(what, sum)?;
        }
        Ok(())
    }
}

/// Why a message is no job or no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not what it must be: {reason}")]
pub struct WireError {
    what: &'static str,
    reason: String,
}

fn wrong(what: &'static str, reason: impl ToString) -> WireError {
    WireError {
        what,
        reason: reason.to_string(),
    }
}

/// What to do with one volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOnWire {
    workload: WorkloadOnWire,
    load: LoadOnWire,
    /// Of this agent.
    queues: u32,
    /// Queues of all agents together, and how many of them stand before this agent's.
    queues_of_all: u32,
    first_queue: u32,
    /// Whether each agent has blocks of its own.
    apart: bool,
    duration_ns: u64,
    ramp_ns: u64,
    interval_ns: u64,
    seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "snake_case")]
enum LoadOnWire {
    Closed {
        depth: u32,
    },
    Open {
        rate: u64,
        exponential: bool,
        depth_max: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WorkloadOnWire {
    name: Option<String>,
    streams: Vec<StreamOnWire>,
    range_bytes: Option<u64>,
    compressible_percent: u8,
    round_up: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StreamOnWire {
    share_percent: f64,
    percents: [f64; 4],
    sizes: Vec<(u64, f64)>,
    align_bytes: Option<u64>,
    access: AccessOnWire,
    range_bytes: Option<u64>,
}

/// Numbers and no text, which would round them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AccessOnWire {
    Random,
    Sequential,
    Mixed(f64),
    Strided(u64),
    Zipf(f64),
    Pareto(f64),
    Hot(Vec<(f64, f64)>),
}

impl JobOnWire {
    /// A job, without who stops it.
    #[must_use]
    pub fn of(config: &BenchConfig) -> Self {
        JobOnWire {
            workload: WorkloadOnWire::of(&config.workload),
            load: match config.load {
                Load::Closed { depth } => LoadOnWire::Closed { depth },
                Load::Open {
                    rate,
                    arrivals,
                    depth_max,
                } => LoadOnWire::Open {
                    rate,
                    exponential: arrivals == Arrivals::Exponential,
                    depth_max,
                },
            },
            queues: config.queues,
            queues_of_all: config.among().queues,
            first_queue: config.among().before,
            apart: config.among().apart,
            duration_ns: nanoseconds(config.duration),
            ramp_ns: nanoseconds(config.ramp),
            interval_ns: nanoseconds(config.interval),
            seed: config.seed,
        }
    }

    /// What to do, until `stop` says otherwise.
    ///
    /// # Errors
    /// [`WireError`]. Whether the workload makes sense is checked by whoever runs it.
    pub fn config(&self, stop: &Stop) -> Result<BenchConfig, WireError> {
        let load = match self.load {
            LoadOnWire::Closed { depth } => Load::Closed { depth },
            LoadOnWire::Open {
                rate,
                exponential,
                depth_max,
            } => Load::Open {
                rate,
                arrivals: match exponential {
                    true => Arrivals::Exponential,
                    false => Arrivals::Uniform,
                },
                depth_max,
            },
        };
        if load.depth() > DEPTH_MAX {
            return Err(wrong("the depth", format!("it is above {DEPTH_MAX}")));
        }
        if self.queues > QUEUES_MAX {
            return Err(wrong(
                "the number of queues",
                format!("it is above {QUEUES_MAX}"),
            ));
        }
        Ok(BenchConfig {
            workload: self.workload.workload()?,
            load,
            queues: self.queues,
            among: Some(Among {
                before: self.first_queue,
                queues: self.queues_of_all,
                apart: self.apart,
            }),
            duration: Duration::from_nanos(self.duration_ns),
            ramp: Duration::from_nanos(self.ramp_ns),
            interval: Duration::from_nanos(self.interval_ns),
            seed: self.seed,
            stop: stop.clone(),
        })
    }
}

impl WorkloadOnWire {
    fn of(of: &Workload) -> Self {
        WorkloadOnWire {
            name: of.name.map(str::to_owned),
            streams: of.streams.iter().map(StreamOnWire::of).collect(),
            range_bytes: of.range_bytes,
            compressible_percent: of.compressible_percent,
            round_up: of.round_up,
        }
    }

    fn workload(&self) -> Result<Workload, WireError> {
        // A name that this version does not know is only a name: what to do is told beside it.
        let name = self.name.as_deref().and_then(|name| {
            let known = workload::named(name).ok()?;
            Some(known.name)
        });
        let workload = Workload {
            name,
            streams: self.streams.iter().map(StreamOnWire::stream).collect(),
            range_bytes: self.range_bytes,
            compressible_percent: self.compressible_percent,
            round_up: self.round_up,
        };
        workload
            .check()
            .map_err(|error| wrong("the workload", error))?;
        Ok(workload)
    }
}

impl StreamOnWire {
    fn of(of: &Stream) -> Self {
        use workload::Access;
        StreamOnWire {
            share_percent: of.share_percent,
            percents: of.operations.percents(),
            sizes: of
                .sizes
                .iter()
                .map(|size| (size.bytes, size.percent))
                .collect(),
            align_bytes: of.align_bytes,
            access: match &of.access {
                Access::Random => AccessOnWire::Random,
                Access::Sequential => AccessOnWire::Sequential,
                Access::Mixed { random_percent } => AccessOnWire::Mixed(*random_percent),
                Access::Strided { stride_bytes } => AccessOnWire::Strided(*stride_bytes),
                Access::Zipf { exponent } => AccessOnWire::Zipf(*exponent),
                Access::Pareto { share } => AccessOnWire::Pareto(*share),
                Access::Hot { areas } => AccessOnWire::Hot(
                    areas
                        .iter()
                        .map(|area| (area.requests_percent, area.space_percent))
                        .collect(),
                ),
            },
            range_bytes: of.range_bytes,
        }
    }

    fn stream(&self) -> Stream {
        use workload::{Access, HotArea};
        let [
            read_percent,
            write_percent,
            deallocate_percent,
            flush_percent,
        ] = self.percents;
        Stream {
            share_percent: self.share_percent,
            operations: Operations {
                read_percent,
                write_percent,
                deallocate_percent,
                flush_percent,
            },
            sizes: self
                .sizes
                .iter()
                .map(|&(bytes, percent)| SizeShare { bytes, percent })
                .collect(),
            align_bytes: self.align_bytes,
            access: match &self.access {
                AccessOnWire::Random => Access::Random,
                AccessOnWire::Sequential => Access::Sequential,
                &AccessOnWire::Mixed(random_percent) => Access::Mixed { random_percent },
                &AccessOnWire::Strided(stride_bytes) => Access::Strided { stride_bytes },
                &AccessOnWire::Zipf(exponent) => Access::Zipf { exponent },
                &AccessOnWire::Pareto(share) => Access::Pareto { share },
                AccessOnWire::Hot(areas) => Access::Hot {
                    areas: areas
                        .iter()
                        .map(|&(requests_percent, space_percent)| HotArea {
                            requests_percent,
                            space_percent,
                        })
                        .collect(),
                },
            },
            range_bytes: self.range_bytes,
        }
    }
}

/// What was measured on one volume, without intervals.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReportOnWire {
    elapsed_ns: u64,
    operations: [OperationOnWire; 4],
    unsent: u64,
    #[serde(default)]
    unfinished: u64,
    #[serde(default)]
    unfinished_ns_max: u64,
    #[serde(default)]
    ramp_errors: u64,
    pub(crate) first_error: Option<String>,
    queue_requests: Vec<u64>,
    lag: Option<Vec<u64>>,
    ended: u64,
    waited: u64,
    late_ns_max: u64,
    in_flight: f64,
    rate_times_service: f64,
    processor_ns: Option<u64>,
    busy_shares: Vec<f64>,
    caveats: Vec<CaveatOnWire>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OperationOnWire {
    requests: u64,
    bytes: u64,
    errors: u64,
    /// As in [`IntervalOnWire`].
    service: Vec<u64>,
    response: Option<Vec<u64>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaveatOnWire {
    GeneratorSaturated(f64),
    Unsent(u64),
    DepthReached(u64),
    Late(u64),
    LittlesLaw(f64),
    RoundedUp(u64),
    /// How many, and how long the slowest took in nanoseconds.
    Unfinished(u64, u64),
    RampErrors(u64),
    DeallocatedInPart(u64),
    EndedEarly,
}

impl ReportOnWire {
    /// A report without its intervals.
    #[must_use]
    pub fn of(of: &BenchReport) -> Self {
        ReportOnWire {
            elapsed_ns: nanoseconds(of.elapsed),
            operations: of.operations.each_ref().map(|of| OperationOnWire {
                requests: of.requests,
                bytes: of.bytes,
                errors: of.errors,
                service: numbers(&of.service_ns),
                response: of.response_ns.as_ref().map(numbers),
            }),
            unsent: of.unsent,
            unfinished: of.unfinished,
            unfinished_ns_max: of.unfinished_ns_max,
            ramp_errors: of.ramp_errors,
            first_error: of.first_error.clone(),
            queue_requests: of.queue_requests.clone(),
            lag: of.lag_ns.as_ref().map(numbers),
            ended: of.ended,
            waited: of.waited,
            late_ns_max: of.late_ns_max,
            in_flight: of.littles_law.in_flight,
            rate_times_service: of.littles_law.rate_times_service,
            processor_ns: of.generator.processor.map(nanoseconds),
            busy_shares: of.generator.busy_shares.clone(),
            caveats: of.caveats.iter().map(CaveatOnWire::of).collect(),
        }
    }

    /// The report, without intervals.
    ///
    /// # Errors
    /// [`WireError`] with what is above `most`, or what else cannot be.
    pub fn report(self, most: Most) -> Result<BenchReport, WireError> {
        let [read, write, deallocate, flush] = self.operations;
        let operations = [
            read.report()?,
            write.report()?,
            deallocate.report()?,
            flush.report()?,
        ];
        let lag_ns = self.lag.as_deref().map(histogram_of).transpose()?;
        let of_queues = self.queue_requests.iter().map(|of| u128::from(*of));
        most.check_sum("the number of requests of queues", of_queues.sum())?;
        let slowest = time("the slowest unfinished request", self.unfinished_ns_max)?;
        let processor = self.processor_ns.map(|ns| time("the processor time", ns));
        if self.busy_shares.len() > REACTORS_MAX {
            let reason = format!("it is above {REACTORS_MAX}");
            return Err(wrong("the number of reactors", reason));
        }
        for share in &self.busy_shares {
            most.check_real("a reactor's share of work", *share)?;
        }
        let caveats = self.caveats.into_iter().map(|of| of.caveat(most));
        let report = BenchReport {
            elapsed: time("the measured time", self.elapsed_ns)?,
            operations,
            unsent: most.check("the number of unsent requests", self.unsent)?,
            unfinished: most.check("the number of unfinished requests", self.unfinished)?,
            unfinished_ns_max: nanoseconds(slowest),
            ramp_errors: most.check("the number of failures of the ramp", self.ramp_errors)?,
            first_error: self.first_error,
            queue_requests: self.queue_requests,
            intervals: Vec::new(),
            lag_ns,
            ended: most.check("the number of requests that ended", self.ended)?,
            waited: most.check("the number of requests that waited", self.waited)?,
            late_ns_max: nanoseconds(time("the latest request", self.late_ns_max)?),
            littles_law: LittlesLaw {
                in_flight: most.check_real("what was in flight", self.in_flight)?,
                rate_times_service: most
                    .check_real("the rate times the service time", self.rate_times_service)?,
            },
            generator: GeneratorReport {
                processor: processor.transpose()?,
                busy_shares: self.busy_shares,
            },
            caveats: caveats.collect::<Result<_, _>>()?,
        };
        Sums::of_report(&report).check(most)?;
        Ok(report)
    }
}

impl OperationOnWire {
    fn report(self) -> Result<OperationReport, WireError> {
        Ok(OperationReport {
            requests: self.requests,
            bytes: self.bytes,
            errors: self.errors,
            service_ns: histogram_of(&self.service)?,
            response_ns: self.response.as_deref().map(histogram_of).transpose()?,
        })
    }
}

impl CaveatOnWire {
    fn of(of: &Caveat) -> Self {
        match *of {
            Caveat::GeneratorSaturated { busy_share } => Self::GeneratorSaturated(busy_share),
            Caveat::Unsent { requests } => Self::Unsent(requests),
            Caveat::DepthReached { requests } => Self::DepthReached(requests),
            Caveat::Late { requests } => Self::Late(requests),
            Caveat::LittlesLaw { error } => Self::LittlesLaw(error),
            Caveat::RoundedUp { block_bytes } => Self::RoundedUp(block_bytes),
            Caveat::Unfinished { requests, longest } => {
                Self::Unfinished(requests, nanoseconds(longest))
            }
            Caveat::RampErrors { requests } => Self::RampErrors(requests),
            Caveat::DeallocatedInPart { granularity_bytes } => {
                Self::DeallocatedInPart(granularity_bytes)
            }
            Caveat::EndedEarly => Self::EndedEarly,
        }
    }

    fn caveat(self, most: Most) -> Result<Caveat, WireError> {
        let counted = |requests| most.check("the number of requests of a caveat", requests);
        let real = |figure| most.check_real("the figure of a caveat", figure);
        Ok(match self {
            Self::GeneratorSaturated(busy_share) => Caveat::GeneratorSaturated {
                busy_share: real(busy_share)?,
            },
            Self::Unsent(requests) => Caveat::Unsent {
                requests: counted(requests)?,
            },
            Self::DepthReached(requests) => Caveat::DepthReached {
                requests: counted(requests)?,
            },
            Self::Late(requests) => Caveat::Late {
                requests: counted(requests)?,
            },
            Self::LittlesLaw(error) => Caveat::LittlesLaw {
                error: real(error)?,
            },
            Self::RoundedUp(block_bytes) => Caveat::RoundedUp { block_bytes },
            Self::Unfinished(requests, longest_ns) => Caveat::Unfinished {
                requests: counted(requests)?,
                longest: time("the longest of a caveat", longest_ns)?,
            },
            Self::RampErrors(requests) => Caveat::RampErrors {
                requests: counted(requests)?,
            },
            Self::DeallocatedInPart(granularity_bytes) => {
                Caveat::DeallocatedInPart { granularity_bytes }
            }
            Self::EndedEarly => Caveat::EndedEarly,
        })
    }
}

/// A part of the measured time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IntervalOnWire {
    start_ns: u64,
    length_ns: u64,
    operations: [IntervalOperationOnWire; 4],
    /// Latencies: distances between values that follow each other, and after each how often the value was seen.
    lag: Vec<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct IntervalOperationOnWire {
    requests: u64,
    bytes: u64,
    errors: u64,
    service: Vec<u64>,
    response: Option<Vec<u64>>,
}

impl IntervalOnWire {
    /// An interval.
    #[must_use]
    pub fn of(of: &Interval) -> Self {
        IntervalOnWire {
            start_ns: nanoseconds(of.start),
            length_ns: nanoseconds(of.length),
            operations: of.operations.each_ref().map(|of| IntervalOperationOnWire {
                requests: of.requests,
                bytes: of.bytes,
                errors: of.errors,
                service: spread(&of.service),
                response: of.response.as_ref().map(spread),
            }),
            lag: spread(&of.lag),
        }
    }

    /// The interval.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn interval(self) -> Result<Interval, WireError> {
        let [read, write, deallocate, flush] = self.operations;
        Ok(Interval {
            start: time("the beginning of an interval", self.start_ns)?,
            length: time("the length of an interval", self.length_ns)?,
            operations: [
                read.operation()?,
                write.operation()?,
                deallocate.operation()?,
                flush.operation()?,
            ],
            lag: gathered(&self.lag)?,
        })
    }

    /// How many numbers it is made of.
    fn numbers(&self) -> usize {
        let of = |operation: &IntervalOperationOnWire| {
            operation.service.len() + operation.response.as_ref().map_or(0, Vec::len)
        };
        self.lag.len() + self.operations.iter().map(of).sum::<usize>() + 16
    }
}

impl IntervalOperationOnWire {
    fn operation(self) -> Result<IntervalOperation, WireError> {
        Ok(IntervalOperation {
            requests: self.requests,
            bytes: self.bytes,
            errors: self.errors,
            service: gathered(&self.service)?,
            response: self.response.as_deref().map(gathered).transpose()?,
        })
    }
}

/// Numbers of one message of intervals, unless a single interval has more.
const NUMBERS_MAX: usize = 20_000;

/// Intervals in parts of which each is short enough for a message, with the place of its first, the whole's first being `first`.
#[must_use]
pub fn in_parts(first: usize, intervals: &[Interval]) -> Vec<(usize, Vec<IntervalOnWire>)> {
    let mut parts: Vec<(usize, Vec<IntervalOnWire>)> = Vec::new();
    let mut room = 0;
    for (place, interval) in (first..).zip(intervals) {
        let interval = IntervalOnWire::of(interval);
        let numbers = interval.numbers();
        match parts.last_mut().filter(|_| numbers <= room) {
            Some((_, part)) => part.push(interval),
            None => {
                parts.push((place, vec![interval]));
                room = NUMBERS_MAX;
            }
        }
        room = room.saturating_sub(numbers);
    }
    parts
}

/// The intervals of a volume that one agent has told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    intervals: Vec<Interval>,
    sums: Sums,
}

impl Told {
    /// One after the other.
    #[must_use]
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_intervals(self) -> Vec<Interval> {
        self.intervals
    }

    /// Puts intervals where they belong: those from `first` on are replaced.
    ///
    /// # Errors
    /// [`WireError`], where there would be a gap, or too many, or all together have more than `most` of anything.
    pub fn put(
        &mut self,
        first: usize,
        part: Vec<IntervalOnWire>,
        most: Most,
    ) -> Result<(), WireError> {
        // Behind the measured time lie those of what ended late; there are never more than of the time itself.
        let longest = 2 * INTERVALS_MAX as usize;
        let there = self.intervals.len();
        if first > there || first + part.len() > longest {
            let reason = format!("there are {there} before the one of place {first}");
            return Err(wrong("a list of intervals", reason));
        }
        for replaced in self.intervals.drain(first..) {
            let sums = Sums::of_interval(&replaced);
            self.sums = self.sums.with(sums, |sum, less| sum - less);
        }
        for interval in part {
            let interval = interval.interval()?;
            let sums = Sums::of_interval(&interval);
            let sums = self.sums.with(sums, |sum, more| sum + more);
            // What was told before is kept, and added up.
            sums.check(most)?;
            self.sums = sums;
            self.intervals.push(interval);
        }
        Ok(())
    }
}

/// What came of checking the blocks of one volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConclusionOnWire {
    #[serde(default)]
    written_blocks: u64,
    #[serde(default)]
    compared_blocks: u64,
    #[serde(default)]
    whole: bool,
    /// Present where something is.
    wrong: Option<WrongOnWire>,
    /// Present where it could not be read to the end.
    error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WrongOnWire {
    requests: u64,
    findings: Vec<FindingOnWire>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FindingOnWire {
    fault: String,
    lba: u64,
    blocks: u32,
    sequence: u64,
    found: String,
    counterpart: Option<u64>,
    persists: bool,
}

/// Blocks that are not as they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Requests that yielded something wrong.
    pub requests: u64,
    /// What was found; one at least.
    pub findings: Vec<Finding>,
}

/// Why blocks are not known to be as they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsound {
    /// They are not.
    Wrong(Wrong),
    /// They could not be read to the end.
    Unread(String),
}

/// What came of checking the blocks of one volume.
pub type Conclusion = Result<VerifiedReport, Unsound>;

impl ConclusionOnWire {
    /// As it is sent.
    #[must_use]
    pub fn of(of: &Conclusion) -> Self {
        match of {
            Ok(report) => ConclusionOnWire {
                written_blocks: report.written_blocks,
                compared_blocks: report.compared_blocks,
                whole: report.whole,
                ..ConclusionOnWire::default()
            },
            Err(Unsound::Wrong(wrong)) => ConclusionOnWire {
                wrong: Some(WrongOnWire {
                    requests: wrong.requests,
                    findings: wrong.findings.iter().map(FindingOnWire::of).collect(),
                }),
                ..ConclusionOnWire::default()
            },
            Err(Unsound::Unread(error)) => ConclusionOnWire {
                error: Some(error.clone()),
                ..ConclusionOnWire::default()
            },
        }
    }

    /// What came of it.
    ///
    /// # Errors
    /// [`WireError`] with what is above `most`, or what else cannot be.
    pub fn conclusion(self, most: Most) -> Result<Conclusion, WireError> {
        let Some(found) = self.wrong else {
            if let Some(error) = self.error {
                return Ok(Err(Unsound::Unread(plain(&error))));
            }
            return Ok(Ok(VerifiedReport {
                written_blocks: most.check("the number of written blocks", self.written_blocks)?,
                compared_blocks: most
                    .check("the number of compared blocks", self.compared_blocks)?,
                whole: self.whole,
            }));
        };
        if found.findings.is_empty() || found.findings.len() > FINDINGS_MAX {
            let reason = format!("it is not within 1 and {FINDINGS_MAX}");
            return Err(wrong("the number of findings", reason));
        }
        let findings = found.findings.into_iter().map(FindingOnWire::finding);
        Ok(Err(Unsound::Wrong(Wrong {
            requests: most.check("the number of wrong requests", found.requests)?,
            findings: findings.collect::<Result<_, _>>()?,
        })))
    }
}

impl FindingOnWire {
    fn of(of: &Finding) -> Self {
        FindingOnWire {
            fault: of.fault.code().to_owned(),
            lba: of.lba,
            blocks: of.blocks,
            sequence: of.sequence,
            found: of.found.clone(),
            counterpart: of.counterpart,
            persists: of.persists,
        }
    }

    fn finding(self) -> Result<Finding, WireError> {
        let fault = Fault::ALL.into_iter().find(|of| of.code() == self.fault);
        Ok(Finding {
            fault: fault.ok_or_else(|| wrong("a finding", "its fault is of an unknown kind"))?,
            lba: self.lba,
            blocks: self.blocks,
            sequence: self.sequence,
            found: plain(&self.found),
            counterpart: self.counterpart,
            persists: self.persists,
        })
    }
}

fn nanoseconds(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

/// A histogram's values and counts: it is as long as what stands in it, whatever its writer says.
fn numbers(histogram: &Histogram<u64>) -> Vec<u64> {
    let seen = histogram.iter_recorded();
    let values = seen.map(|of| (of.value_iterated_to(), of.count_at_value()));
    spread(&Latencies::pack(values))
}

/// A histogram of the shape that all have, so that it can be added to others.
fn histogram_of(numbers: &[u64]) -> Result<Histogram<u64>, WireError> {
    Ok(gathered(numbers)?.histogram())
}

fn spread(latencies: &Latencies) -> Vec<u64> {
    let mut last = 0;
    latencies
        .values()
        .flat_map(|(value, times)| {
            let distance = value - last;
            last = value;
            [distance, times]
        })
        .collect()
}

fn gathered(numbers: &[u64]) -> Result<Latencies, WireError> {
    const WHAT: &str = "a list of latencies";
    if !numbers.len().is_multiple_of(2) {
        return Err(wrong(WHAT, "a count is missing"));
    }
    let (mut value, mut count) = (0u64, 0u64);
    let mut values = Vec::with_capacity(numbers.len() / 2);
    for pair in numbers.chunks_exact(2) {
        let (distance, times) = (pair[0], pair[1]);
        let sums = value.checked_add(distance).zip(count.checked_add(times));
        let Some((next, sum)) = sums.filter(|(next, _)| *next <= VALUE_MAX && times > 0) else {
            return Err(wrong(WHAT, "its values cannot be measured"));
        };
        (value, count) = (next, sum);
        values.push((value, times));
    }
    Ok(Latencies::pack(values.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_load::bench::histogram;
    use weir_load::workload::NAMED;

    fn there_and_back<T: Serialize + serde::de::DeserializeOwned>(of: &T) -> T {
        serde_json::from_str(&serde_json::to_string(of).unwrap()).unwrap()
    }

    #[test]
    fn every_workload_arrives_as_it_was_sent() {
        let mut workloads: Vec<Workload> = NAMED.iter().map(|of| of.workload()).collect();
        for access in [
            "random:33.3",
            "stride:64k",
            "zipf:1.1",
            "pareto:0.2",
            "hot:50/5,30/15,20/80",
            "sequential",
        ] {
            workloads.push(Workload::simple(4096, 70, access.parse().unwrap()));
        }
        for workload in workloads {
            let config = BenchConfig {
                workload,
                load: Load::Open {
                    rate: 1001,
                    arrivals: Arrivals::Exponential,
                    depth_max: 64,
                },
                queues: 3,
                among: Some(Among {
                    before: 6,
                    queues: 12,
                    apart: true,
                }),
                duration: Duration::from_millis(1500),
                ramp: Duration::from_millis(7),
                interval: Duration::from_millis(100),
                seed: u64::MAX - 1,
                stop: Stop::new(),
            };
            let sent = there_and_back(&JobOnWire::of(&config));
            let read = sent.config(&Stop::new()).expect("it makes sense");
            assert_eq!(read.workload, config.workload);
            assert_eq!((read.load, read.seed), (config.load, config.seed));
            assert_eq!(read.among, config.among);
            assert_eq!(
                (read.duration, read.ramp, read.interval, read.queues),
                (config.duration, config.ramp, config.interval, config.queues)
            );
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(gathered(&[1]).is_err());
        assert!(gathered(&[u64::MAX, 1]).is_err());
        assert!(gathered(&[1, 0]).is_err());
        assert!(gathered(&[1, u64::MAX, 1, 1]).is_err());
        assert!(gathered(&[1, 2, 3, 4]).is_ok());
        assert!(histogram_of(&[VALUE_MAX + 1, 1]).is_err());
        let mut wide = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 3).unwrap();
        wide.record(u64::MAX / 2).unwrap();
        assert!(histogram_of(&numbers(&wide)).is_err());
        assert!(Told::default().put(1, Vec::new(), Most::of(1, 1)).is_err());
        let job = JobOnWire::of(&BenchConfig {
            workload: Workload::simple(4096, 70, workload::Access::Random),
            load: Load::Closed { depth: 1 << 20 },
            queues: 1,
            among: None,
            duration: Duration::from_secs(1),
            ramp: Duration::ZERO,
            interval: Duration::from_secs(1),
            seed: 1,
            stop: Stop::new(),
        });
        assert!(job.config(&Stop::new()).is_err());
    }

    /// A report in which every figure may be set, as an agent could send it.
    fn empty_report() -> serde_json::Value {
        let report = crate::merge::from_intervals(Vec::new(), true);
        serde_json::to_value(ReportOnWire::of(&report)).unwrap()
    }

    fn read(report: &serde_json::Value, most: Most) -> Result<BenchReport, WireError> {
        let report: ReportOnWire = serde_json::from_value(report.clone()).unwrap();
        report.report(most)
    }

    #[test]
    fn a_figure_that_is_too_great_is_refused_by_name() {
        use serde_json::{Value, json};
        let most = Most::of(3, 5);
        let above = most.0 + 1;
        let figures: [(&str, Value, &str); 21] = [
            ("/elapsed_ns", json!(TIME_NS_MAX + 1), "measured time"),
            ("/operations/0/requests", json!(above), "number of requests"),
            ("/operations/1/bytes", json!(above), "number of bytes"),
            ("/operations/2/errors", json!(above), "number of failures"),
            ("/operations/3/service", json!([1, above]), "service times"),
            (
                "/operations/3/response",
                json!([1, above]),
                "response times",
            ),
            ("/unsent", json!(above), "unsent"),
            ("/unfinished", json!(above), "unfinished requests"),
            ("/unfinished_ns_max", json!(u64::MAX), "slowest unfinished"),
            ("/ramp_errors", json!(above), "failures of the ramp"),
            (
                "/queue_requests",
                json!([u64::MAX, 1]),
                "requests of queues",
            ),
            ("/lag", json!([5, above]), "number of lags"),
            ("/ended", json!(above), "requests that ended"),
            ("/waited", json!(above), "requests that waited"),
            ("/late_ns_max", json!(u64::MAX), "latest request"),
            ("/in_flight", json!(1e300), "what was in flight"),
            ("/rate_times_service", json!(-1.0), "the rate times"),
            ("/processor_ns", json!(u64::MAX), "processor time"),
            ("/busy_shares", json!([0.5, 1e300]), "share of work"),
            ("/caveats", json!([{"late": above}]), "requests of a caveat"),
            (
                "/caveats",
                json!([{"littles_law": 1e300}]),
                "figure of a caveat",
            ),
        ];
        assert!(read(&empty_report(), most).is_ok());
        for (place, figure, what) in figures {
            let mut report = empty_report();
            *report.pointer_mut(place).unwrap() = figure;
            let error = read(&report, most).unwrap_err().to_string();
            assert!(error.contains(what), "{place}: {error}");
        }
        // What is just possible is, and more of another kind is not.
        let mut report = empty_report();
        report["operations"][0]["requests"] = json!(most.0 - 1);
        report["operations"][1]["requests"] = json!(1);
        assert_eq!(read(&report, most).unwrap().requests(), most.0);
        report["operations"][1]["requests"] = json!(2);
        assert!(read(&report, most).is_err());
    }

    #[test]
    fn conclusions_arrive_as_they_were_sent_and_what_cannot_be_is_refused() {
        let most = Most::of(2, 1);
        let report = VerifiedReport {
            written_blocks: 7,
            compared_blocks: 9,
            whole: true,
        };
        let finding = |fault| Finding {
            fault,
            lba: 5,
            blocks: 2,
            sequence: 1 << 48 | 3,
            found: "zeroes".to_owned(),
            counterpart: Some(77),
            persists: true,
        };
        let findings = Fault::ALL.map(finding).to_vec();
        let wrong = Wrong {
            requests: 40,
            findings,
        };
        let unread = Unsound::Unread("a read failed".to_owned());
        for conclusion in [Ok(report), Err(Unsound::Wrong(wrong.clone())), Err(unread)] {
            let sent = there_and_back(&ConclusionOnWire::of(&conclusion));
            assert_eq!(sent.conclusion(most), Ok(conclusion));
        }
        let many = Wrong {
            findings: vec![finding(Fault::TornWrite); FINDINGS_MAX + 1],
            ..wrong.clone()
        };
        let none = Wrong {
            findings: Vec::new(),
            ..wrong.clone()
        };
        let boastful = VerifiedReport {
            written_blocks: u64::MAX,
            ..report
        };
        let [many, none] = [many, none].map(|of| Err(Unsound::Wrong(of)));
        for wrong in [many, none, Ok(boastful)] {
            assert!(ConclusionOnWire::of(&wrong).conclusion(most).is_err());
        }
        let mut sent = ConclusionOnWire::of(&Err(Unsound::Wrong(wrong)));
        let findings = &mut sent.wrong.as_mut().unwrap().findings;
        findings[0].found = "red \u{1b}[31m".to_owned();
        let read = sent.clone().conclusion(most).unwrap().unwrap_err();
        assert!(matches!(read, Unsound::Wrong(of) if of.findings[0].found == "red  [31m"));
        let coloured = Unsound::Unread("red \u{1b}[31m".to_owned());
        let read = ConclusionOnWire::of(&Err(coloured)).conclusion(most);
        assert_eq!(read, Ok(Err(Unsound::Unread("red  [31m".to_owned()))));
        sent.wrong.as_mut().unwrap().findings[0].fault = "lost-hope".to_owned();
        assert!(sent.conclusion(most).is_err());
    }

    #[test]
    fn intervals_that_come_to_too_much_are_refused_and_those_before_kept() {
        let most = Most::of(2, 1);
        let interval = |requests| {
            let mut interval = Interval::default();
            interval.operations[1].requests = requests;
            IntervalOnWire::of(&interval)
        };
        let mut told = Told::default();
        told.put(0, vec![interval(most.0 - 1)], most).unwrap();
        told.put(1, vec![interval(1)], most).unwrap();
        let error = told.put(2, vec![interval(1)], most).unwrap_err();
        assert!(error.to_string().contains("number of requests"), "{error}");
        assert_eq!(told.intervals().len(), 2);
        // What is replaced no longer counts.
        told.put(0, vec![interval(most.0)], most).unwrap();
        assert_eq!(told.intervals().len(), 1);
    }

    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(prop_oneof![1..2000u64, 1..LATENCY_NS_MAX], 0..60)
    }

    fn packed(values: &[u64]) -> Latencies {
        let mut of = histogram();
        values.iter().for_each(|value| of.record(*value).unwrap());
        let seen = of.iter_recorded();
        Latencies::pack(seen.map(|of| (of.value_iterated_to(), of.count_at_value())))
    }

    /// Any figure at all, great ones more often than by chance.
    fn figure() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..1000u64,
            Just(u64::MAX),
            (0..64u32).prop_map(|shift| 1 << shift),
            any::<u64>()
        ]
    }

    /// An eighth of the cases; all of them where `WEIR_NIGHTLY` is set.
    fn some_cases() -> ProptestConfig {
        let all = ProptestConfig::default();
        let is_all = std::env::var_os("WEIR_NIGHTLY").is_some();
        ProptestConfig {
            cases: if is_all { all.cases } else { all.cases / 8 },
            ..all
        }
    }

    proptest! {
        #![proptest_config(some_cases())]

        /// Whatever agents tell: either it is refused, or it can be added up and drawn.
        #[test]
        fn what_is_not_refused_can_be_added_up(
            each in proptest::collection::vec(proptest::collection::vec(figure(), 16), 1..6),
        ) {
            use serde_json::json;
            let most = Most::of(each.len(), 1);
            let mut reports = Vec::new();
            for of in &each {
                let mut sent = empty_report();
                let place = (of[15] % 4) as usize;
                sent["operations"][place]["requests"] = json!(of[0]);
                sent["operations"][place]["bytes"] = json!(of[1]);
                sent["operations"][0]["errors"] = json!(of[2]);
                sent["operations"][1]["errors"] = json!(of[3]);
                sent["operations"][place]["service"] = json!([of[4] >> 22, of[5].max(1)]);
                sent["queue_requests"] = json!([of[6], of[7]]);
                sent["ended"] = json!(of[8]);
                sent["elapsed_ns"] = json!(of[9]);
                sent["processor_ns"] = json!(of[10]);
                sent["in_flight"] = json!(of[11] as f64);
                sent["caveats"] = json!([{"late": of[12]}]);
                let mut told = Told::default();
                for requests in [of[13], of[14]] {
                    let mut interval = Interval::default();
                    interval.operations[place].requests = requests;
                    let place = told.intervals().len();
                    // What was told before it stays.
                    let _ = told.put(place, vec![IntervalOnWire::of(&interval)], most);
                }
                let intervals = told.into_intervals();
                reports.push(crate::merge::from_intervals(intervals.clone(), true));
                if let Ok(report) = read(&sent, most) {
                    *reports.last_mut().unwrap() = BenchReport { intervals, ..report };
                }
            }
            let sum = crate::merge::merged(&reports).unwrap();
            let _ = (sum.total(), sum.requests(), sum.errors(), sum.bytes(), sum.latency_ns());
            prop_assert!(sum.littles_law.in_flight.is_finite());
            prop_assert!(sum.queue_requests.iter().sum::<u64>() <= SUM_MAX);
            prop_assert!(sum.requests() <= SUM_MAX && sum.bytes() <= SUM_MAX);
        }
    }

    proptest! {
        #[test]
        fn histograms_and_intervals_arrive_as_they_were_sent(
            values in latencies(), lag in latencies(), parts in 1..5usize, start in 0..1_000_000u64,
        ) {
            let mut of = histogram();
            values.iter().for_each(|value| of.record(*value).unwrap());
            let read = histogram_of(&numbers(&of)).unwrap();
            prop_assert_eq!(&read, &of);
            prop_assert_eq!((read.max(), read.min(), read.mean()), (of.max(), of.min(), of.mean()));

            let mut interval = Interval {
                start: Duration::from_nanos(start),
                length: Duration::from_secs(1),
                lag: packed(&lag),
                ..Interval::default()
            };
            interval.operations[1].requests = values.len() as u64;
            interval.operations[1].service = packed(&values);
            interval.operations[1].response = Some(packed(&lag));
            let sent = vec![interval; parts];
            let (mut all, most) = (Told::default(), Most::of(1, 1));
            for (first, part) in in_parts(0, &sent) {
                all.put(first, there_and_back(&part), most).unwrap();
            }
            prop_assert_eq!(all.intervals(), &sent);
            let whole = all.clone();
            // A second telling of the last ones changes nothing.
            for (first, part) in in_parts(parts - 1, &sent[parts - 1..]) {
                all.put(first, part, most).unwrap();
            }
            prop_assert_eq!(&all, &whole);
            prop_assert_eq!(all.into_intervals(), sent);
        }
    }
}
