//! What was measured.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::workload::Kind;

/// The longest latency that is told apart from longer ones, in nanoseconds: one hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
pub const LATENCY_DIGITS: u8 = 3;

/// An empty histogram of latencies in nanoseconds. All of them have this shape, so that they add up.
///
/// # Panics
/// Never: its bounds are constants.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
        .expect("the bounds of the histogram are constants that it takes")
}

/// What the requests of one kind did while it was measured.
///
/// Service time runs from the moment at which a request was handed to the volume's queue until its completion was seen,
/// backpressure included. Response time, which only an open loop has, runs from the moment at which it was due.
#[derive(Debug, Clone)]
pub struct OperationReport {
    /// Requests that completed: closed-loop in the time, open-loop of those that were due in it.
    pub requests: u64,
    /// Bytes that they read, wrote or deallocated.
    pub bytes: u64,
    /// Requests that failed, those of the ramp excepted; they are in no other number. Closed-loop what was in flight at the end is among them.
    pub errors: u64,
    /// Service times, in nanoseconds.
    pub service_ns: Histogram<u64>,
    /// Response times, in nanoseconds; none closed-loop.
    pub response_ns: Option<Histogram<u64>>,
}

impl OperationReport {
    /// Nothing yet.
    #[must_use]
    pub fn new(open: bool) -> Self {
        OperationReport {
            requests: 0,
            bytes: 0,
            errors: 0,
            service_ns: histogram(),
            response_ns: open.then(histogram),
        }
    }

    /// What a user of the volume would have felt: the response time, closed-loop the service time.
    #[must_use]
    pub fn latency_ns(&self) -> &Histogram<u64> {
        self.response_ns.as_ref().unwrap_or(&self.service_ns)
    }

    /// Adds what another part of the load did.
    ///
    /// # Panics
    /// Never with histograms of [`histogram`]'s shape.
    pub fn add(&mut self, other: &OperationReport) {
        const ONE_SHAPE: &str = "histograms of one shape add up";
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.service_ns.add(&other.service_ns).expect(ONE_SHAPE);
        match (&mut self.response_ns, &other.response_ns) {
            (Some(sum), Some(other)) => sum.add(other).expect(ONE_SHAPE),
            (None, Some(other)) => self.response_ns = Some(other.clone()),
            (_, None) => {}
        }
    }
}

/// Latencies of an interval: a histogram of which only what is not zero is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latencies {
    count: u64,
    /// Values in ascending order, each as its distance from the last one and how often it was seen, as LEB128 numbers.
    packed: Box<[u8]>,
}

impl Latencies {
    /// Values in ascending order, and how often each was seen.
    #[must_use]
    pub fn pack(values: impl Iterator<Item = (u64, u64)>) -> Self {
        let (mut count, mut last, mut packed) = (0, 0, Vec::new());
        for (value, times) in values {
            write_number(&mut packed, value - last);
            write_number(&mut packed, times);
            (count, last) = (count + times, value);
        }
        Latencies {
            count,
            packed: packed.into_boxed_slice(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Values in nanoseconds, ascending, and how often each was seen. A value is the largest that the histogram does not tell apart from it.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut rest, mut last) = (&*self.packed, 0);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            last += read_number(&mut rest);
            Some((last, read_number(&mut rest)))
        })
    }

    /// The longest; 0 where there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.values().last().map_or(0, |(value, _)| value)
    }

    /// The mean; 0 where there is none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let sum: f64 = self
            .values()
            .map(|(value, times)| value as f64 * times as f64)
            .sum();
        sum / self.count as f64
    }

    /// The value that so many percent are not longer than; 0 where there is none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (value, times) in self.values() {
            seen += times;
            if seen >= wanted {
                return value;
            }
        }
        self.max()
    }

    /// As a histogram of [`histogram`]'s shape.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = histogram();
        for (value, times) in self.values() {
            histogram.saturating_record_n(value, times);
        }
        histogram
    }

    /// Both together.
    #[must_use]
    pub fn merged(&self, other: &Latencies) -> Latencies {
        if other.is_empty() {
            return self.clone();
        }
        let (mut left, mut right) = (self.values().peekable(), other.values().peekable());
        Latencies::pack(std::iter::from_fn(move || {
            match (left.peek(), right.peek()) {
                (Some(&(value, times)), Some(&(same, more))) if value == same => {
                    right.next();
                    left.next();
                    Some((value, times + more))
                }
                (Some(&(value, _)), Some(&(other, _))) if other < value => right.next(),
                (Some(_), _) => left.next(),
                (None, _) => right.next(),
            }
        }))
    }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// What the requests of one kind did in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntervalOperation {
    /// Requests that completed in the interval and count in the report.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Failures.
    pub errors: u64,
    /// Service times.
    pub service: Latencies,
    /// Response times; none closed-loop.
    pub response: Option<Latencies>,
}

impl IntervalOperation {
    /// The response times, closed-loop the service times.
    #[must_use]
    pub fn latency(&self) -> &Latencies {
        self.response.as_ref().unwrap_or(&self.service)
    }

    fn add(&mut self, other: &IntervalOperation) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.service = self.service.merged(&other.service);
        self.response = match (self.response.take(), &other.response) {
            (Some(sum), Some(other)) => Some(sum.merged(other)),
            (sum, other) => sum.or_else(|| other.clone()),
        };
    }
}

/// What happened from one moment to another. Open-loop, what was due in the measured time and ended after it lies in further intervals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interval {
    /// When it began, from the start of the measured time.
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What each kind did, in the order of [`Kind::ALL`].
    pub operations: [IntervalOperation; 4],
    /// How much later than due requests were sent; empty closed-loop.
    pub lag: Latencies,
}

impl Interval {
    /// What one kind did.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &IntervalOperation {
        &self.operations[kind as usize]
    }

    /// Requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|of| of.requests).sum()
    }

    /// Bytes read and written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.of(Kind::Read).bytes + self.of(Kind::Write).bytes
    }

    /// Failures of all kinds.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.operations.iter().map(|of| of.errors).sum()
    }

    /// Response times, closed-loop service times, of all kinds together.
    #[must_use]
    pub fn latency(&self) -> Latencies {
        let all = self.operations.iter().map(IntervalOperation::latency);
        all.fold(Latencies::default(), |sum, of| sum.merged(of))
    }

    /// Adds what another part of the load did in the same interval.
    pub fn add(&mut self, other: &Interval) {
        self.length = self.length.max(other.length);
        for (sum, other) in self.operations.iter_mut().zip(&other.operations) {
            sum.add(other);
        }
        self.lag = self.lag.merged(&other.lag);
    }
}

/// Whether the figures of a run agree with each other: what is in flight on average is throughput times mean service time (J. D. C. Little, 1961).
/// Both sides are measured apart. They differ by what was in flight at the two ends of the measured time, and by what failed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LittlesLaw {
    /// Requests in flight, averaged over the measured time by counting them.
    pub in_flight: f64,
    /// Requests per second times their mean service time in seconds.
    pub rate_times_service: f64,
}

impl LittlesLaw {
    /// By which part of what was in flight the two differ; 0 where nothing was.
    #[must_use]
    pub fn error(&self) -> f64 {
        if self.in_flight <= 0.0 {
            return 0.0;
        }
        (self.in_flight - self.rate_times_service).abs() / self.in_flight
    }
}

/// What making the load cost while it was measured. It is of the whole process: jobs that run side by side share it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeneratorReport {
    /// Processor time of the process, a volume that it holds itself included; none where the system does not tell.
    pub processor: Option<Duration>,
    /// For which part of the time each reactor had work, 0 to 1, in their order; 0 for those that the job has no queue on. Looking for work in
    /// vain and sleeping is not work.
    pub busy_shares: Vec<f64>,
}

impl GeneratorReport {
    /// Adds what was measured beside another job: of one process and its reactors, what lasted longer.
    fn add(&mut self, other: &GeneratorReport) {
        self.processor = self.processor.max(other.processor);
        let reactors = self.busy_shares.len().max(other.busy_shares.len());
        self.busy_shares.resize(reactors, 0.0);
        for (share, other) in self.busy_shares.iter_mut().zip(&other.busy_shares) {
            *share = share.max(*other);
        }
    }

    /// The busiest reactor's share; 0 where there is none.
    #[must_use]
    pub fn busy_share_max(&self) -> f64 {
        self.busy_shares.iter().copied().fold(0.0, f64::max)
    }
}

/// What has to be known to read a report rightly.
#[derive(Debug, Clone, PartialEq)]
pub enum Caveat {
    /// The reactors that made the load had work all the time. What was measured may be their limit and not the volume's.
    GeneratorSaturated {
        /// For which part of the time the busiest had work.
        busy_share: f64,
    },
    /// Requests were due and could not be sent before the end. They are in no number, and latencies are too good.
    Unsent {
        /// How many.
        requests: u64,
    },
    /// The open loop was behind its schedule because nothing more fitted into its queues.
    DepthReached {
        /// Requests that waited for room.
        requests: u64,
    },
    /// Requests were sent late though there was room: the generator, or what it ran on, was not there on time.
    Late {
        /// Requests that were sent 100 microseconds or more after they were due and there was room for them.
        requests: u64,
    },
    /// Throughput, latency and what was in flight do not agree.
    LittlesLaw {
        /// By which part.
        error: f64,
    },
    /// Requests shorter than a block or no multiple of it were made longer.
    RoundedUp {
        /// The block size.
        block_bytes: u64,
    },
    /// Closed-loop requests were in flight at the end, and what they took is in no number: it would have changed them.
    Unfinished {
        /// How many.
        requests: u64,
        /// How long the slowest took.
        longest: Duration,
    },
    /// Requests failed before it was measured. They are in no number.
    RampErrors {
        /// How many.
        requests: u64,
    },
    /// Deallocations are not whole units of what the volume deallocates in: it may have done less than it was asked for, or nothing.
    DeallocatedInPart {
        /// The unit.
        granularity_bytes: u64,
    },
    /// The run was ended before its time.
    EndedEarly,
}

impl Caveat {
    /// A word that programs know it by.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Caveat::GeneratorSaturated { .. } => "generator-saturated",
            Caveat::Unsent { .. } => "unsent",
            Caveat::DepthReached { .. } => "depth-reached",
            Caveat::Late { .. } => "late",
            Caveat::LittlesLaw { .. } => "littles-law",
            Caveat::RoundedUp { .. } => "rounded-up",
            Caveat::Unfinished { .. } => "unfinished",
            Caveat::RampErrors { .. } => "ramp-errors",
            Caveat::DeallocatedInPart { .. } => "deallocated-in-part",
            Caveat::EndedEarly => "ended-early",
        }
    }
}

impl Caveat {
    /// Takes another one of the same sort into it.
    fn add(&mut self, other: &Caveat) {
        use Caveat::{
            DeallocatedInPart, DepthReached, GeneratorSaturated, Late, LittlesLaw, RampErrors,
            RoundedUp, Unfinished, Unsent,
        };
        match (self, other) {
            (Unsent { requests }, Unsent { requests: more })
            | (DepthReached { requests }, DepthReached { requests: more })
            | (RampErrors { requests }, RampErrors { requests: more })
            | (Late { requests }, Late { requests: more }) => *requests += more,
            (
                Unfinished { requests, longest },
                Unfinished {
                    requests: more,
                    longest: other,
                },
            ) => {
                *requests += more;
                *longest = (*longest).max(*other);
            }
            (
                DeallocatedInPart { granularity_bytes },
                DeallocatedInPart {
                    granularity_bytes: other,
                },
            ) => *granularity_bytes = (*granularity_bytes).max(*other),
            (LittlesLaw { error }, LittlesLaw { error: other }) => *error = error.max(*other),
            (GeneratorSaturated { busy_share }, GeneratorSaturated { busy_share: other }) => {
                *busy_share = busy_share.max(*other);
            }
            (RoundedUp { block_bytes }, RoundedUp { block_bytes: other }) => {
                *block_bytes = (*block_bytes).max(*other);
            }
            _ => {}
        }
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::GeneratorSaturated { busy_share } => write!(
                formatter,
                "the load generator had work {:.0}% of the time: the limit that was measured may be its own; try more reactors, or queues for them",
                busy_share * 100.0
            ),
            Caveat::Unsent { requests } => write!(
                formatter,
                "{requests} requests were due and not sent by the end, and are in no number here: the volume is slower than the rate, and latencies are too good"
            ),
            Caveat::DepthReached { requests } => write!(
                formatter,
                "{requests} requests waited because as many were in flight as the depth allows; their response times say so, their service times do not"
            ),
            Caveat::Late { requests } => write!(
                formatter,
                "the load generator was late: {requests} requests were sent 100 us or more after they were due, though there was room for them"
            ),
            Caveat::LittlesLaw { error } => write!(
                formatter,
                "what was in flight is not throughput times service time, by {:.1}%: the run is too short for its latencies, or much failed",
                error * 100.0
            ),
            Caveat::RoundedUp { block_bytes } => write!(
                formatter,
                "requests that are no multiple of the volume's {block_bytes}-byte blocks were made the next multiple"
            ),
            Caveat::Unfinished { requests, longest } => write!(
                formatter,
                "{requests} requests were in flight at the end and are in no number here, the slowest of {longest:.1?}: latencies are too good; run for longer"
            ),
            Caveat::RampErrors { requests } => write!(
                formatter,
                "{requests} requests failed before it was measured, and are in no number here"
            ),
            Caveat::DeallocatedInPart { granularity_bytes } => write!(
                formatter,
                "the volume deallocates units of {granularity_bytes} bytes, and was asked for parts of them: deallocations may have done nothing, and took no longer than that"
            ),
            Caveat::EndedEarly => formatter.write_str("the run was ended before its time"),
        }
    }
}

/// What was measured on one volume.
#[derive(Debug, Clone)]
pub struct BenchReport {
    /// For how long, as the clock says.
    pub elapsed: Duration,
    /// What each kind did, in the order of [`Kind::ALL`].
    pub operations: [OperationReport; 4],
    /// Requests that were due before the end and could not be sent by then; only open-loop. They are in no other number, so
    /// that the latencies are too good where this is not zero.
    pub unsent: u64,
    /// Requests that were in flight at the end and ended well behind it, closed-loop; and what was cancelled when the run was stopped. They are in no
    /// other number.
    pub unfinished: u64,
    /// The longest service time of one of them, in nanoseconds.
    pub unfinished_ns_max: u64,
    /// Requests that failed in the ramp. They are in no other number.
    pub ramp_errors: u64,
    /// The first failure, of the ramp too, in words.
    pub first_error: Option<String>,
    /// Requests that each queue completed while it was measured.
    pub queue_requests: Vec<u64>,
    /// The measured time in pieces, in order, without gaps.
    pub intervals: Vec<Interval>,
    /// How much later than due requests were sent, in nanoseconds; none closed-loop.
    pub lag_ns: Option<Histogram<u64>>,
    /// Requests that ended well in the measured time, whenever they were due: what throughput is where an open loop asks for more than there is.
    pub ended: u64,
    /// Requests that were due when nothing more fitted into their queue, and waited for room; 0 closed-loop.
    pub waited: u64,
    /// By how much a request was sent later than it was due and there was room for it, at most, in nanoseconds: the generator, or what it ran on,
    /// was not there on time. 0 closed-loop.
    pub late_ns_max: u64,
    /// Whether the figures agree.
    pub littles_law: LittlesLaw,
    /// What making the load cost.
    pub generator: GeneratorReport,
    /// What has to be known to read this rightly.
    pub caveats: Vec<Caveat>,
}

impl BenchReport {
    /// What one kind did.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &OperationReport {
        &self.operations[kind as usize]
    }

    /// Requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|of| of.requests).sum()
    }

    /// Bytes read and written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.of(Kind::Read).bytes + self.of(Kind::Write).bytes
    }

    /// Failures of all kinds.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.operations.iter().map(|of| of.errors).sum()
    }

    /// Requests per second, of all kinds.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.per_second(self.requests())
    }

    /// Bytes read and written per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second(self.bytes())
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.elapsed.is_zero() {
            0.0
        } else {
            count as f64 / self.elapsed.as_secs_f64()
        }
    }

    /// Adds the report of another volume that was driven at the same time. Intervals are added up where those of both have the same lengths,
    /// and dropped where they have not.
    ///
    /// # Panics
    /// Never with histograms of [`histogram`]'s shape.
    pub fn add(&mut self, other: &BenchReport) {
        self.elapsed = self.elapsed.max(other.elapsed);
        for (sum, other) in self.operations.iter_mut().zip(&other.operations) {
            sum.add(other);
        }
        self.unsent += other.unsent;
        self.unfinished += other.unfinished;
        self.unfinished_ns_max = self.unfinished_ns_max.max(other.unfinished_ns_max);
        self.ramp_errors += other.ramp_errors;
        self.ended += other.ended;
        self.waited += other.waited;
        self.late_ns_max = self.late_ns_max.max(other.late_ns_max);
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.queue_requests.extend(&other.queue_requests);
        self.add_intervals(&other.intervals);
        match (&mut self.lag_ns, &other.lag_ns) {
            (Some(sum), Some(other)) => sum.add(other).expect("histograms of one shape add up"),
            (None, Some(other)) => self.lag_ns = Some(other.clone()),
            (_, None) => {}
        }
        self.littles_law.in_flight += other.littles_law.in_flight;
        self.littles_law.rate_times_service += other.littles_law.rate_times_service;
        self.generator.add(&other.generator);
        for caveat in &other.caveats {
            let same = |of: &&mut Caveat| of.code() == caveat.code();
            match self.caveats.iter_mut().find(same) {
                Some(sum) => sum.add(caveat),
                None => self.caveats.push(caveat.clone()),
            }
        }
    }

    fn add_intervals(&mut self, others: &[Interval]) {
        let mut both = self.intervals.iter().zip(others);
        if both.any(|(one, other)| one.start != other.start) {
            self.intervals.clear();
            return;
        }
        let shared = self.intervals.len().min(others.len());
        for (sum, other) in self.intervals.iter_mut().zip(others) {
            sum.add(other);
        }
        self.intervals.extend_from_slice(&others[shared..]);
    }

    /// Every kind together; its bytes are those read and written.
    #[must_use]
    pub fn total(&self) -> OperationReport {
        let mut total = OperationReport::new(self.lag_ns.is_some());
        self.operations.iter().for_each(|of| total.add(of));
        total.bytes = self.bytes();
        total
    }

    /// Response times, closed-loop service times, of all kinds together, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self) -> Histogram<u64> {
        self.total().latency_ns().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_reactor::random::Random;

    #[test]
    fn so_many_percent_are_not_longer_than_a_percentile() {
        let hundred = Latencies::pack((1..=100).map(|value| (value, 1)));
        for percent in [1_u32, 50, 90, 99, 100] {
            assert_eq!(hundred.percentile(f64::from(percent)), percent.into());
        }
        assert_eq!(hundred.percentile(99.1), 100);
        assert_eq!(hundred.percentile(0.0), 1);
        let two = Latencies::pack([(10, 1), (20, 1)].into_iter());
        assert_eq!((two.percentile(50.0), two.percentile(51.0)), (10, 20));
        assert_eq!(Latencies::default().percentile(50.0), 0);
    }

    #[test]
    fn latencies_are_the_histogram_they_were_made_from_also_when_merged() {
        let seed = weir_reactor::sim::seed_from_env_or_random();
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for _ in 0..50 {
            let (mut both, mut parts) = (histogram(), Vec::new());
            for _ in 0..2 {
                let mut part = histogram();
                for _ in 0..random.below(300) {
                    let longest = 1 << (random.below(41) + 1);
                    let (value, times) = (random.below(longest), random.below(1000) + 1);
                    part.saturating_record_n(value, times);
                    both.saturating_record_n(value, times);
                }
                parts.push(pack(&part));
                assert_eq!(parts.last().expect("one is there").histogram(), part);
            }
            let merged = parts[0].merged(&parts[1]);
            assert_eq!(merged, parts[1].merged(&parts[0]));
            assert_eq!(merged, pack(&both));
            assert_eq!(merged.count(), both.len());
            assert_eq!(merged.max(), both.max());
            for percent in [0.0, 1.0, 50.0, 99.0, 99.9, 100.0] {
                let of_histogram = both.highest_equivalent(both.value_at_percentile(percent));
                assert_eq!(merged.percentile(percent), of_histogram, "{percent}");
            }
            let off = (merged.mean() - both.mean()).abs();
            assert!(
                off <= both.mean() / 900.0,
                "{} {}",
                merged.mean(),
                both.mean()
            );
        }
    }

    fn pack(histogram: &Histogram<u64>) -> Latencies {
        let recorded = histogram.iter_recorded();
        Latencies::pack(recorded.map(|of| (of.value_iterated_to(), of.count_at_value())))
    }

    /// The report of an open loop of one kind of request: service times, and response times a microsecond longer.
    fn report(kind: Kind, service_ns: &[u64], starts_ms: &[u64]) -> BenchReport {
        let mut operations = Kind::ALL.map(|_| OperationReport::new(true));
        let of = &mut operations[kind as usize];
        for &nanoseconds in service_ns {
            of.requests += 1;
            of.bytes += 4096;
            of.service_ns.saturating_record(nanoseconds);
            let response = of.response_ns.as_mut().expect("the loop is open");
            response.saturating_record(nanoseconds + 1000);
        }
        let interval = |&start: &u64| Interval {
            start: Duration::from_millis(start),
            length: Duration::from_millis(10),
            ..Interval::default()
        };
        BenchReport {
            elapsed: Duration::from_millis(10 * starts_ms.len() as u64),
            operations,
            unsent: 1,
            unfinished: 2,
            unfinished_ns_max: service_ns.iter().sum(),
            ramp_errors: 3,
            first_error: None,
            queue_requests: vec![service_ns.len() as u64],
            intervals: starts_ms.iter().map(interval).collect(),
            lag_ns: Some(histogram()),
            ended: 4,
            waited: 5,
            late_ns_max: 7,
            littles_law: LittlesLaw {
                in_flight: 6.0,
                rate_times_service: 7.0,
            },
            generator: GeneratorReport {
                processor: Some(Duration::from_millis(8)),
                busy_shares: vec![0.25, 0.75],
            },
            caveats: Vec::new(),
        }
    }

    #[test]
    fn reports_of_volumes_that_were_driven_together_add_up() {
        let mut sum = report(Kind::Read, &[10_000, 20_000], &[0, 10]);
        sum.lag_ns = None;
        sum.caveats = vec![
            Caveat::EndedEarly,
            Caveat::Unsent { requests: 1 },
            Caveat::GeneratorSaturated { busy_share: 0.96 },
            Caveat::RoundedUp { block_bytes: 512 },
        ];
        let mut other = report(Kind::Write, &[70_000], &[0, 10, 20]);
        other.first_error = Some("it failed".to_owned());
        other.operations[Kind::Read as usize].errors = 9;
        other.lag_ns.as_mut().expect("one").saturating_record(5);
        other.generator.busy_shares = vec![0.5];
        other.caveats = vec![
            Caveat::Unsent { requests: 10 },
            Caveat::GeneratorSaturated { busy_share: 0.99 },
            Caveat::RoundedUp { block_bytes: 4096 },
            Caveat::Late { requests: 2 },
            Caveat::EndedEarly,
        ];
        sum.add(&other);
        assert_eq!(sum.elapsed, Duration::from_millis(30), "they ran together");
        assert_eq!(
            (sum.requests(), sum.bytes(), sum.errors()),
            (3, 3 * 4096, 9)
        );
        assert_eq!((sum.unsent, sum.unfinished, sum.ramp_errors), (2, 4, 6));
        assert_eq!((sum.ended, sum.waited, sum.late_ns_max), (8, 10, 7));
        assert_eq!(sum.unfinished_ns_max, 70_000);
        assert_eq!(sum.first_error.as_deref(), Some("it failed"));
        assert_eq!(sum.queue_requests, [2, 1]);
        assert_eq!(sum.lag_ns.as_ref().map(Histogram::len), Some(1));
        let (law, generator) = (sum.littles_law, &sum.generator);
        assert_eq!((law.in_flight, law.rate_times_service), (12.0, 14.0));
        // Of one process: it is not counted twice.
        assert_eq!(generator.processor, Some(Duration::from_millis(8)));
        assert_eq!(generator.busy_shares, [0.5, 0.75]);
        let total = sum.total();
        assert_eq!(
            (total.service_ns.len(), total.service_ns.min()),
            (3, 10_000)
        );
        assert_eq!(total.latency_ns().len(), 3, "response times, all of them");
        assert_eq!(sum.intervals.len(), 3);
        assert_eq!(
            sum.caveats,
            [
                Caveat::EndedEarly,
                Caveat::Unsent { requests: 11 },
                Caveat::GeneratorSaturated { busy_share: 0.99 },
                Caveat::RoundedUp { block_bytes: 4096 },
                Caveat::Late { requests: 2 },
            ]
        );
        // Intervals of other lengths are not put together.
        sum.add(&report(Kind::Flush, &[1], &[0, 7]));
        assert!(sum.intervals.is_empty());
    }

    #[test]
    fn caveats_of_one_sort_are_one_with_what_both_say() {
        let milliseconds = Duration::from_millis;
        let unfinished = |requests, longest| Caveat::Unfinished {
            requests,
            longest: milliseconds(longest),
        };
        let (depth, ramp) = (
            |requests| Caveat::DepthReached { requests },
            |requests| Caveat::RampErrors { requests },
        );
        let (law, part) = (
            |error| Caveat::LittlesLaw { error },
            |granularity_bytes| Caveat::DeallocatedInPart { granularity_bytes },
        );
        for (one, other, both) in [
            (unfinished(1, 9), unfinished(2, 3), unfinished(3, 9)),
            (depth(1), depth(2), depth(3)),
            (ramp(1), ramp(2), ramp(3)),
            (law(0.1), law(0.2), law(0.2)),
            (part(4096), part(512), part(4096)),
        ] {
            let mut sum = one.clone();
            sum.add(&other);
            assert_eq!((sum.code(), &sum), (one.code(), &both));
        }
    }

    #[test]
    fn littles_law_is_off_by_a_part_of_what_is_in_flight() {
        let law = |in_flight, rate_times_service| LittlesLaw {
            in_flight,
            rate_times_service,
        };
        assert_eq!(law(32.0, 31.0).error(), 1.0 / 32.0);
        assert_eq!(law(32.0, 40.0).error(), 0.25);
        assert_eq!(law(0.0, 0.0).error(), 0.0);
    }
}
