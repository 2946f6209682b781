//! Load and its reports as they stand in messages.
//!
//! What is read back is what was written, histograms included: whole numbers stay whole, and of a histogram every count. What cannot be a report is
//! refused, so that nothing that adds reports up can fail on one.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use weir_load::Stop;
use weir_load::bench::{
    Among, Arrivals, BenchConfig, BenchReport, Caveat, GeneratorReport, INTERVALS_MAX, Interval,
    IntervalOperation, LATENCY_NS_MAX, Latencies, LittlesLaw, Load, OperationReport,
};
use weir_load::workload::{self, Operations, SizeShare, Stream, Workload};

/// Requests in flight of a queue at most.
const DEPTH_MAX: u32 = 65_536;
/// Queues of a volume at most.
const QUEUES_MAX: u32 = 65_535;
/// The longest latency that a histogram takes: its last bucket goes on to a power of two.
const VALUE_MAX: u64 = LATENCY_NS_MAX.next_power_of_two();

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
            in_flight: of.littles_law.in_flight,
            rate_times_service: of.littles_law.rate_times_service,
            processor_ns: of.generator.processor.map(nanoseconds),
            busy_shares: of.generator.busy_shares.clone(),
            caveats: of.caveats.iter().map(CaveatOnWire::of).collect(),
        }
    }

    /// The report, with these intervals.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn report(self, intervals: Vec<Interval>) -> Result<BenchReport, WireError> {
        let [read, write, deallocate, flush] = self.operations;
        let operations = [
            read.report()?,
            write.report()?,
            deallocate.report()?,
            flush.report()?,
        ];
        let lag_ns = self.lag.as_deref().map(histogram_of).transpose()?;
        Ok(BenchReport {
            elapsed: Duration::from_nanos(self.elapsed_ns),
            operations,
            unsent: self.unsent,
            unfinished: self.unfinished,
            unfinished_ns_max: self.unfinished_ns_max,
            ramp_errors: self.ramp_errors,
            first_error: self.first_error,
            queue_requests: self.queue_requests,
            intervals,
            lag_ns,
            ended: self.ended,
            waited: self.waited,
            littles_law: LittlesLaw {
                in_flight: self.in_flight,
                rate_times_service: self.rate_times_service,
            },
            generator: GeneratorReport {
                processor: self.processor_ns.map(Duration::from_nanos),
                busy_shares: self.busy_shares,
            },
            caveats: self.caveats.into_iter().map(CaveatOnWire::caveat).collect(),
        })
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

    fn caveat(self) -> Caveat {
        match self {
            Self::GeneratorSaturated(busy_share) => Caveat::GeneratorSaturated { busy_share },
            Self::Unsent(requests) => Caveat::Unsent { requests },
            Self::DepthReached(requests) => Caveat::DepthReached { requests },
            Self::Late(requests) => Caveat::Late { requests },
            Self::LittlesLaw(error) => Caveat::LittlesLaw { error },
            Self::RoundedUp(block_bytes) => Caveat::RoundedUp { block_bytes },
            Self::Unfinished(requests, longest_ns) => Caveat::Unfinished {
                requests,
                longest: Duration::from_nanos(longest_ns),
            },
            Self::RampErrors(requests) => Caveat::RampErrors { requests },
            Self::DeallocatedInPart(granularity_bytes) => {
                Caveat::DeallocatedInPart { granularity_bytes }
            }
            Self::EndedEarly => Caveat::EndedEarly,
        }
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
            start: Duration::from_nanos(self.start_ns),
            length: Duration::from_nanos(self.length_ns),
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

/// Puts intervals where they belong: those from `first` on are replaced.
///
/// # Errors
/// [`WireError`], where there would be a gap, or too many.
pub fn put(
    all: &mut Vec<Interval>,
    first: usize,
    part: Vec<IntervalOnWire>,
) -> Result<(), WireError> {
    // Behind the measured time lie those of what ended late; there are never more than of the time itself.
    let most = 2 * INTERVALS_MAX as usize;
    if first > all.len() || first + part.len() > most {
        let reason = format!("there are {} before the one of place {first}", all.len());
        return Err(wrong("a list of intervals", reason));
    }
    all.truncate(first);
    for interval in part {
        all.push(interval.interval()?);
    }
    Ok(())
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
        let mut all = Vec::new();
        assert!(put(&mut all, 1, Vec::new()).is_err());
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

    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(prop_oneof![1..2000u64, 1..LATENCY_NS_MAX], 0..60)
    }

    fn packed(values: &[u64]) -> Latencies {
        let mut of = histogram();
        values.iter().for_each(|value| of.record(*value).unwrap());
        let seen = of.iter_recorded();
        Latencies::pack(seen.map(|of| (of.value_iterated_to(), of.count_at_value())))
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
            let mut all = Vec::new();
            for (first, part) in in_parts(0, &sent) {
                put(&mut all, first, there_and_back(&part)).unwrap();
            }
            prop_assert_eq!(&all, &sent);
            // A second telling of the last ones changes nothing.
            for (first, part) in in_parts(parts - 1, &sent[parts - 1..]) {
                put(&mut all, first, part).unwrap();
            }
            prop_assert_eq!(all, sent);
        }
    }
}
