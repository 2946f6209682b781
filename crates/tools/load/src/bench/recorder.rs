//! What the lanes of one job on one reactor have measured: an interval at a time, and all of them together.

use std::time::Duration;

use hdrhistogram::Histogram;
use weir_reactor::{Instant, Reactor, ReactorStats};

use super::report::{
    Interval, IntervalOperation, LATENCY_DIGITS, LATENCY_NS_MAX, Latencies, OperationReport,
    histogram,
};
use crate::workload::{Kind, Workload};

/// The time that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Instant,
    pub(super) end: Instant,
}

impl Window {
    #[inline]
    pub(super) fn contains(&self, at: Instant) -> bool {
        at >= self.from && at < self.end
    }
}

/// The intervals of a measured time, and further ones behind its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    pub(super) duration: Duration,
    pub(super) length: Duration,
}

impl Intervals {
    /// How many lie within the measured time; the last one may be shorter than the others.
    pub(super) fn count(&self) -> u128 {
        self.duration.as_nanos().div_ceil(self.length.as_nanos())
    }

    /// Start and length of one.
    pub(super) fn span(&self, index: usize) -> (Duration, Duration) {
        let start = |index: u128| {
            let (within, behind) = (index.min(self.count()), index.saturating_sub(self.count()));
            let of_length = |times: u128| self.length.as_nanos() * times;
            let nanoseconds = of_length(within).min(self.duration.as_nanos()) + of_length(behind);
            Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        };
        let (from, to) = (start(index as u128), start(index as u128 + 1));
        (from, to - from)
    }
}

/// What a lane remembers of a request. It has 16 bytes because it is moved about with each: a few more cost a tenth of the requests that
/// a volume without work of its own can be asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Issued {
    /// When it was handed to the queue.
    pub(super) at: Instant,
    /// How much later that was than it was due, in nanoseconds; closed-loop 0. Seven digits are more than a histogram keeps.
    pub(super) lag_ns: f32,
    pub(super) blocks: u16,
    pub(super) kind: Kind,
    /// Open-loop: whether it was due in the measured time.
    pub(super) counts: bool,
}

const _: () = assert!(
    size_of::<Option<Issued>>() == 16,
    "it is as small as it says"
);

/// Counts of an interval have 32 bits: half of the memory, and no reactor ends 2^32 requests in one.
type Counts = Histogram<u32>;

#[derive(Default)]
struct Current {
    bytes: u64,
    errors: u64,
    service: Option<Counts>,
    response: Option<Counts>,
}

pub(super) struct Recorder {
    open: bool,
    window: Window,
    current: [Current; 4],
    lag: Option<Counts>,
    pub(super) totals: [OperationReport; 4],
    pub(super) total_lag: Option<Histogram<u64>>,
    pub(super) ended: u64,
    pub(super) waited: u64,
    pub(super) late: u64,
    /// By how much such a one was late at most, in nanoseconds, however little that is.
    pub(super) late_ns_max: u64,
    pub(super) unfinished: Unfinished,
    /// Failures of requests that the measured time is not about, because they were of the ramp.
    pub(super) ramp_errors: u64,
    /// What the reactor and the process had done at the beginning of the measured time.
    before: Option<Spent>,
    /// And what it cost.
    pub(super) cost: Option<Cost>,
}

/// Requests of a closed loop that ended well behind the measured time, and are in no figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub(super) requests: u64,
    /// The longest service time of one of them.
    pub(super) ns_max: u64,
}

impl Unfinished {
    pub(super) fn add(&mut self, other: Unfinished) {
        self.requests += other.requests;
        self.ns_max = self.ns_max.max(other.ns_max);
    }
}

/// What the measured time cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Processor time of the process.
    pub(super) processor: Option<Duration>,
    /// For which part of the time the reactor had work.
    pub(super) busy_share: f64,
}

#[derive(Clone, Copy)]
struct Spent {
    processor: Option<Duration>,
    stats: ReactorStats,
}

impl Spent {
    fn of(reactor: &Reactor) -> Self {
        Spent {
            processor: reactor.system().processor_time(),
            stats: reactor.stats(),
        }
    }
}

impl Recorder {
    pub(super) fn new(workload: &Workload, open: bool, window: Window) -> Self {
        let current = |kind| Current {
            service: workload.does(kind).then(counts),
            response: (open && workload.does(kind)).then(counts),
            ..Current::default()
        };
        Recorder {
            open,
            window,
            current: Kind::ALL.map(current),
            lag: open.then(counts),
            totals: Kind::ALL.map(|_| OperationReport::new(open)),
            total_lag: open.then(histogram),
            ended: 0,
            waited: 0,
            late: 0,
            late_ns_max: 0,
            unfinished: Unfinished::default(),
            ramp_errors: 0,
            before: None,
            cost: None,
        }
    }

    /// Records a request of so many bytes that ended well, seen at `now`; whether it counts. Closed-loop what ended in the time counts, open-loop
    /// what was due in it, however late it ended. `window` is the time in which its lane was at work.
    #[inline]
    pub(super) fn record(
        &mut self,
        issued: &Issued,
        bytes: u64,
        now: Instant,
        window: Window,
    ) -> bool {
        let in_time = window.contains(now);
        self.ended += u64::from(in_time);
        let counts = match self.open {
            true => issued.counts,
            false => in_time,
        };
        if !counts {
            self.pass_over(issued, now, window);
            return false;
        }
        let current = &mut self.current[issued.kind as usize];
        current.bytes += bytes;
        let service = (now - issued.at).as_nanos() as u64;
        put(&mut current.service, service);
        if self.open {
            let lag = issued.lag_ns as u64;
            put(&mut current.response, service + lag);
            put(&mut self.lag, lag);
        }
        true
    }

    /// Notes what is in no figure. A closed loop has requests in flight when the time ends, and more so the slower they are.
    #[cold]
    fn pass_over(&mut self, issued: &Issued, now: Instant, window: Window) {
        let was_measured = window.end > window.from;
        if !self.open && was_measured && now >= window.end {
            self.unfinished.add(Unfinished {
                requests: 1,
                ns_max: (now - issued.at).as_nanos() as u64,
            });
        }
    }

    /// Notes what was cancelled when the run was stopped.
    #[cold]
    pub(super) fn give_up(&mut self, issued: &Issued, now: Instant) {
        self.unfinished.add(Unfinished {
            requests: 1,
            ns_max: (now - issued.at).as_nanos() as u64,
        });
    }

    /// Notes a failure that was seen at `now`. It counts, unless it is of the ramp: what was in flight at the end and failed is not passed over.
    #[cold]
    pub(super) fn fail(&mut self, issued: &Issued, now: Instant) {
        let counts = match self.open {
            true => issued.counts,
            false => now >= self.window.from,
        };
        match counts {
            true => self.current[issued.kind as usize].errors += 1,
            false => self.ramp_errors += 1,
        }
    }

    /// Notes a request that is sent now and was due earlier: it waited for room, or the generator was late although there was some. Whether it counts.
    #[inline]
    pub(super) fn note_sent(&mut self, due: Instant, room_since: Instant, now: Instant) -> bool {
        /// So much later than it could have been sent makes a request late.
        const LATE: Duration = Duration::from_micros(100);
        if !self.window.contains(due) {
            return false;
        }
        self.waited += u64::from(due < room_since);
        let late = now - due.max(room_since);
        self.late += u64::from(late >= LATE);
        self.late_ns_max = self.late_ns_max.max(late.as_nanos() as u64);
        true
    }

    /// The measured time begins.
    pub(super) fn begin(&mut self, reactor: &Reactor) {
        self.before = Some(Spent::of(reactor));
    }

    /// The measured time ends, unless it has already.
    pub(super) fn end(&mut self, reactor: &Reactor) {
        let (Some(before), None) = (self.before, self.cost) else {
            return;
        };
        let after = Spent::of(reactor);
        let since = |of: fn(&ReactorStats) -> u64| of(&after.stats) - of(&before.stats);
        let busy = since(|stats| stats.busy_ns);
        let all = busy + since(|stats| stats.spin_ns) + since(|stats| stats.sleep_ns);
        let processor = after.processor.zip(before.processor);
        self.cost = Some(Cost {
            processor: processor.map(|(after, before)| after.saturating_sub(before)),
            busy_share: busy as f64 / all.max(1) as f64,
        });
    }

    /// What happened since the last call, as interval `index`; it is in the totals from now on.
    pub(super) fn take(&mut self, intervals: &Intervals, index: usize) -> Interval {
        let (start, length) = intervals.span(index);
        let mut operations: [IntervalOperation; 4] = Default::default();
        let all = self
            .current
            .iter_mut()
            .zip(&mut self.totals)
            .zip(&mut operations);
        for ((current, total), operation) in all {
            operation.bytes = std::mem::take(&mut current.bytes);
            operation.errors = std::mem::take(&mut current.errors);
            operation.service = drain(&mut current.service, Some(&mut total.service_ns));
            operation.requests = operation.service.count();
            if self.open {
                let response = drain(&mut current.response, total.response_ns.as_mut());
                operation.response = Some(response);
            }
            total.requests += operation.requests;
            total.bytes += operation.bytes;
            total.errors += operation.errors;
        }
        Interval {
            start,
            length,
            operations,
            lag: drain(&mut self.lag, self.total_lag.as_mut()),
        }
    }
}

fn counts() -> Counts {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
        .expect("the bounds of the histogram are constants that it takes")
}

#[inline]
fn put(counts: &mut Option<Counts>, nanoseconds: u64) {
    if let Some(counts) = counts {
        counts.saturating_record(nanoseconds);
    }
}

/// Empties counts into a total, and what they were.
fn drain(counts: &mut Option<Counts>, total: Option<&mut Histogram<u64>>) -> Latencies {
    let (Some(counts), Some(total)) = (counts, total) else {
        return Latencies::default();
    };
    if counts.is_empty() {
        return Latencies::default();
    }
    let recorded = counts
        .iter_recorded()
        .map(|of| (of.value_iterated_to(), u64::from(of.count_at_value())));
    let latencies = Latencies::pack(recorded.inspect(|&(value, times)| {
        total.saturating_record_n(value, times);
    }));
    counts.reset();
    latencies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Access;

    #[test]
    fn intervals_fill_the_measured_time_and_go_on_behind_it() {
        let milliseconds = Duration::from_millis;
        let intervals = Intervals {
            duration: milliseconds(2500),
            length: milliseconds(1000),
        };
        assert_eq!(intervals.count(), 3);
        let spans: Vec<_> = (0..5).map(|index| intervals.span(index)).collect();
        assert_eq!(
            spans,
            [
                (0, 1000),
                (1000, 1000),
                (2000, 500),
                (2500, 1000),
                (3500, 1000)
            ]
            .map(|(start, length)| (milliseconds(start), milliseconds(length)))
        );
    }

    #[test]
    fn what_is_recorded_is_in_one_interval_and_in_the_total() {
        let at = |microseconds: u64| Instant::from_nanos(microseconds * 1000);
        let window = Window {
            from: at(1000),
            end: at(3000),
        };
        let intervals = Intervals {
            duration: Duration::from_millis(2),
            length: Duration::from_millis(1),
        };
        let workload = Workload::simple(4096, 50, Access::Random);
        let issued = |at: Instant, due: Instant, kind| Issued {
            at,
            lag_ns: (at - due).as_nanos() as f32,
            blocks: 1,
            kind,
            counts: window.contains(due),
        };

        let mut closed = Recorder::new(&workload, false, window);
        let read_at_900 = issued(at(900), at(900), Kind::Read);
        assert!(!closed.record(&read_at_900, 4096, at(990), window));
        closed.fail(&read_at_900, at(990));
        assert!(closed.record(&read_at_900, 4096, at(1100), window));
        let first = closed.take(&intervals, 0);
        assert_eq!((first.requests(), first.bytes()), (1, 4096));
        assert!((first.of(Kind::Read).service.max() as i64 - 200_000).abs() < 300);
        let write_at = |sent| issued(at(sent), at(sent), Kind::Write);
        assert!(closed.record(&write_at(1100), 4096, at(1150), window));
        assert_eq!(closed.unfinished, Unfinished::default());
        assert!(!closed.record(&write_at(2990), 4096, at(3000), window));
        assert!(!closed.record(&write_at(2000), 4096, at(7000), window));
        let unfinished = Unfinished {
            requests: 2,
            ns_max: 5_000_000,
        };
        assert_eq!(closed.unfinished, unfinished);
        closed.fail(&write_at(2990), at(3100));
        assert_eq!(closed.ramp_errors, 1);
        let second = closed.take(&intervals, 1);
        assert_eq!((second.requests(), second.errors()), (1, 1));
        assert_eq!(closed.take(&intervals, 2).requests(), 0);
        let requests = closed
            .totals
            .each_ref()
            .map(|of| (of.requests, of.errors, of.service_ns.len()));
        assert_eq!(requests, [(1, 0, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0)]);

        let mut open = Recorder::new(&workload, true, window);
        let due_before = issued(at(1000), at(999), Kind::Read);
        assert!(!open.record(&due_before, 4096, at(1500), window));
        let due_in_time = issued(at(2100), at(1100), Kind::Read);
        assert!(open.record(&due_in_time, 4096, at(9000), window));
        open.fail(&due_before, at(1500));
        open.fail(&due_in_time, at(9000));
        assert_eq!((open.ramp_errors, open.unfinished.requests), (1, 0));
        let late = open.take(&intervals, 3);
        let read = late.of(Kind::Read);
        let near =
            |value: u64, microseconds: u64| value.abs_diff(microseconds * 1000) * 500 < value;
        assert!(near(read.service.max(), 6900), "{}", read.service.max());
        assert!(near(read.latency().max(), 7900), "{}", read.latency().max());
        assert!(near(late.lag.max(), 1000), "{}", late.lag.max());
        assert_eq!(open.total_lag.as_ref().map(Histogram::len), Some(1));
        // What was due before and ended in the time is throughput, and what ended behind it is not.
        assert_eq!(open.ended, 1);
        assert_eq!(late.errors(), 1);
    }

    #[test]
    fn a_lane_that_stopped_early_has_left_unfinished_what_ended_behind_that() {
        let at = |microseconds: u64| Instant::from_nanos(microseconds * 1000);
        let from = at(1000);
        let window = Window {
            from,
            end: at(3000),
        };
        let issued = Issued {
            at: at(1900),
            lag_ns: 0.0,
            blocks: 1,
            kind: Kind::Read,
            counts: true,
        };
        let workload = Workload::simple(4096, 100, Access::Random);
        let until = |end| Window { from, end };
        let mut closed = Recorder::new(&workload, false, window);
        assert!(!closed.record(&issued, 4096, at(2100), until(at(2000))));
        assert_eq!(closed.unfinished.requests, 1);
        // Nothing was measured yet.
        assert!(!closed.record(&issued, 4096, at(2100), until(at(500))));
        assert_eq!(closed.unfinished.requests, 1);
    }

    #[test]
    fn what_waited_for_room_is_not_late() {
        let at = Instant::from_nanos;
        let window = Window {
            from: at(0),
            end: at(1 << 40),
        };
        let mut recorder =
            Recorder::new(&Workload::simple(4096, 100, Access::Random), true, window);
        assert!(recorder.note_sent(at(10_000_000), at(0), at(10_050_000)));
        let told = |of: &Recorder| (of.waited, of.late, of.late_ns_max);
        assert_eq!(told(&recorder), (0, 0, 50_000));
        recorder.note_sent(at(10_000_000), at(50_000_000), at(50_010_000));
        assert_eq!(told(&recorder), (1, 0, 50_000));
        recorder.note_sent(at(10_000_000), at(5_000_000), at(10_100_000));
        assert_eq!(told(&recorder), (1, 1, 100_000));
        assert!(!recorder.note_sent(at(1 << 41), at(0), at(1 << 42)));
        assert_eq!(told(&recorder), (1, 1, 100_000));
    }
}
