//! The histogram against a sorted list, and courses step by step.

use proptest::prelude::*;

use super::*;

fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanos(nanoseconds)
}

fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|&value| histogram.record(value, 1));
    histogram
}

/// Times of every size: as many below a microsecond as between a second and a minute.
fn time_ns() -> impl Strategy<Value = u64> {
    (0_u32..41, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
}

#[test]
fn buckets_meet_and_their_width_is_a_quarter_of_their_power() {
    let mut begin = 0;
    for bucket in 0..BUCKETS - 1 {
        let end = end_of(bucket);
        assert_eq!(bucket_of(begin), bucket, "{begin} ns");
        assert_eq!(bucket_of(end - 1), bucket, "{} ns", end - 1);
        assert!(end - begin <= (begin / SPLIT).max(1 << UNIT_SHIFT));
        begin = end;
    }
    assert_eq!(begin, 7 << 36, "where the last one begins");
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

#[test]
fn an_empty_histogram_has_only_zeroes() {
    let empty = Histogram::default();
    let told = (empty.count(), empty.mean_ns(), empty.max_ns());
    assert_eq!(told, (0, 0, 0));
    assert_eq!(empty.quantile_ns(0.5), 0);
    assert_eq!(empty.below_power(38), 0);
}

proptest! {
    #[test]
    fn a_quantile_is_never_short_and_hardly_long(
        mut values in prop::collection::vec(time_ns(), 1..300),
        quantile in 0.0_f64..=1.0,
    ) {
        let histogram = of(&values);
        values.sort_unstable();
        let rank = ((quantile * values.len() as f64).ceil() as usize).max(1);
        let exact = values[rank - 1];
        let told = histogram.quantile_ns(quantile);
        prop_assert!(told >= exact, "{told} for {exact}");
        let longest = match bucket_of(exact) {
            LAST_BUCKET => histogram.max_ns(),
            _ => exact + ((exact as f64 * Histogram::QUANTILE_ERROR) as u64).max(63),
        };
        prop_assert!(told <= longest, "{told} for {exact}");
        prop_assert_eq!(histogram.quantile_ns(1.0), *values.last().expect("one at least"));
    }

    #[test]
    fn counts_sums_and_bounds_are_exact(values in prop::collection::vec(time_ns(), 0..300)) {
        let histogram = of(&values);
        let sum: u64 = values.iter().sum();
        prop_assert_eq!(histogram.count(), values.len() as u64);
        prop_assert_eq!(histogram.sum_ns(), sum);
        prop_assert_eq!(histogram.mean_ns(), sum / (values.len() as u64).max(1));
        prop_assert_eq!(histogram.max_ns(), values.iter().copied().max().unwrap_or(0));
        for exponent in 6..=38 {
            let below = values.iter().filter(|&&value| value < 1 << exponent).count();
            prop_assert_eq!(histogram.below_power(exponent), below as u64);
        }
    }

    #[test]
    fn merging_is_recording_both(
        one in prop::collection::vec(time_ns(), 0..100),
        other in prop::collection::vec(time_ns(), 0..100),
    ) {
        let mut merged = of(&one);
        merged.merge(&of(&other));
        prop_assert_eq!(merged, of(&[one, other].concat()));
    }

    #[test]
    fn what_came_since_is_what_was_recorded_since(
        earlier in prop::collection::vec(time_ns(), 0..100),
        later in prop::collection::vec(time_ns(), 0..100),
    ) {
        let before = of(&earlier);
        let since = of(&[earlier, later.clone()].concat()).since(&before);
        let expected = of(&later);
        prop_assert_eq!(since.buckets, expected.buckets);
        prop_assert_eq!(since.sum_ns(), expected.sum_ns());
        let exact = later.iter().copied().max().unwrap_or(0);
        prop_assert!(since.max_ns() >= exact);
        prop_assert!(bucket_of(since.max_ns()) == bucket_of(exact));
    }

    #[test]
    fn recording_a_run_is_recording_each(value in time_ns(), count in 0_u64..50) {
        let mut at_once = Histogram::default();
        at_once.record(value, count);
        let each = of(&vec![value; count as usize]);
        prop_assert_eq!(at_once.quantile_ns(0.5), if count == 0 { 0 } else { each.quantile_ns(0.5) });
        prop_assert_eq!(at_once.sum_ns(), each.sum_ns());
        prop_assert_eq!(at_once.count(), count);
    }
}

fn course(kind: CommandKind, first: u64) -> Course {
    let arrival = Arrival {
        first: at(first),
        whole: at(first + 3),
    };
    let mut course = Course::default();
    course.begin(arrival, 1, at(first + 10));
    course.ask(kind);
    course
}

fn runs_of(courses: &[Course]) -> Vec<Run> {
    let (mut runs, mut all) = (Runs::default(), Vec::new());
    courses.iter().for_each(|course| runs.add(course));
    runs.drain(|run| all.push(*run));
    assert!(runs.is_empty(), "they are taken once");
    all
}

#[test]
fn stages_add_up_to_the_whole() {
    let mut course = course(CommandKind::Write, 100);
    course.spend(Stage::WireIn, at(150));
    course.spend(Stage::Queue, at(250));
    course.spend(Stage::Volume, at(1250));
    course.spend(Stage::Volume, at(1200));
    let mut latency = Latency::default();
    for run in runs_of(&[course]) {
        latency.record(&run, at(1257));
    }
    let times = latency.kind(CommandKind::Write).expect("a write");
    let sums = Stage::ALL.map(|stage| times.stage(stage).sum_ns());
    assert_eq!(sums, [3 + 40, 7 + 100, 1000, 7, 1157]);
    assert_eq!(times.count(), 1);
    assert!(latency.kind(CommandKind::Read).is_none());
}

/// Those of the next send are new, whatever the last one had.
#[test]
fn a_run_does_not_go_on_in_the_next_send() {
    let (read, write) = (course(CommandKind::Read, 0), course(CommandKind::Write, 0));
    let mut runs = Runs::default();
    for courses in [[read, write], [write, read]] {
        courses.iter().for_each(|course| runs.add(course));
        let mut counts = Vec::new();
        runs.drain(|run| counts.push((run.course, run.count)));
        assert_eq!(counts, courses.map(|course| (course, 1)));
    }
}

#[test]
fn equal_courses_are_one_run_though_kinds_take_turns() {
    let (read, write) = (course(CommandKind::Read, 0), course(CommandKind::Write, 0));
    let mut none = course(CommandKind::Other, 0);
    none.forget();
    let runs = runs_of(&[read, write, none].repeat(100));
    let counts: Vec<_> = runs.iter().map(|run| (run.course, run.count)).collect();
    assert_eq!(counts, [(read, 100), (write, 100)]);
}

/// Whatever differs begins another run, and no command is lost.
#[test]
fn courses_that_differ_are_not_one_run() {
    let one = course(CommandKind::Read, 1000);
    let mut others = vec![course(CommandKind::Read, 1001)];
    for stage in [Stage::WireIn, Stage::Queue, Stage::Volume] {
        let mut other = one;
        other.spend(stage, at(2000));
        others.push(other);
    }
    let mut other = one;
    other.export = 2;
    others.push(other);
    for other in others {
        let runs = runs_of(&[one, one, other, one]);
        let counts: Vec<_> = runs.iter().map(|run| (run.course, run.count)).collect();
        assert_eq!(counts, [(one, 2), (other, 1), (one, 1)]);
    }
}

#[test]
fn latencies_merge_by_kind() {
    let record = |kind, count| {
        let mut latency = Latency::default();
        let course = course(kind, 0);
        latency.record(&Run { course, count }, at(20));
        latency
    };
    let mut merged = record(CommandKind::Read, 2);
    assert!(!merged.is_empty() && Latency::default().is_empty());
    merged.merge(&record(CommandKind::Read, 3));
    merged.merge(&record(CommandKind::Other, 1));
    let count = |kind| merged.kind(kind).map(StageTimes::count);
    assert_eq!(CommandKind::ALL.map(count), [Some(5), None, Some(1)]);
}
