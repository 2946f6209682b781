//! Traces whose truth is known: what is in them is found, and nothing else.

use proptest::prelude::*;

use super::*;
use weir_reactor::random::Random;

/// Mean 0, standard deviation 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

const GB: f64 = 1e9;

/// Phases as (bytes at which it begins, bytes per second), over a capacity.
struct Trace {
    phases: Vec<(f64, f64)>,
    capacity: f64,
    noise: f64,
    /// Correlation of the noise from one second to the next.
    correlation: f64,
    /// One of so many seconds has a stall.
    stall_one_in: Option<u64>,
}

impl Trace {
    fn flat(capacity: f64, rate: f64, noise: f64) -> Self {
        Trace {
            phases: vec![(0.0, rate)],
            capacity,
            noise,
            correlation: 0.0,
            stall_one_in: None,
        }
    }

    /// Samples of `seconds` each, with a change of the rate within a sample as it would be.
    fn samples(&self, seconds: f64, seed: u64) -> Vec<Sample> {
        let mut random = Random::new(seed);
        let (mut samples, mut written, mut wander) = (Vec::new(), 0.0, 0.0);
        while written < self.capacity {
            let fresh = normal(&mut random) * (1.0 - self.correlation.powi(2)).sqrt();
            wander = self.correlation * wander + fresh;
            let mut factor = (1.0 + self.noise * wander).max(0.05);
            if self
                .stall_one_in
                .is_some_and(|one_in| random.below(one_in) == 0)
            {
                factor *= 0.1;
            }
            let (mut left, mut bytes) = (seconds, 0.0);
            while left > 0.0 && written + bytes < self.capacity {
                let at = written + bytes;
                let phase = self.phases.iter().rposition(|of| of.0 <= at).unwrap();
                let rate = self.phases[phase].1 * factor;
                let end = self.phases.get(phase + 1).map_or(self.capacity, |of| of.0);
                let takes = ((end - at) / rate).min(left);
                bytes += takes * rate;
                left -= takes;
                if end - (written + bytes) < 1.0 {
                    bytes = end - written;
                }
            }
            written += bytes;
            samples.push(Sample {
                seconds: seconds - left,
                bytes: bytes as u64,
                nanoseconds_longest: 0,
                nanoseconds_gap: None,
            });
        }
        samples
    }
}

/// The five drives of the white paper and what follows the cache's end, as far as it tells it.
fn cliff() -> Trace {
    Trace {
        phases: vec![(0.0, 2.75 * GB), (42.0 * GB, 1.6 * GB)],
        capacity: 1000.0 * GB,
        noise: 0.02,
        correlation: 0.0,
        stall_one_in: None,
    }
}

#[test]
fn what_follows_a_fast_phase_of_long_samples_is_no_phase_for_being_cut_finely() {
    // A cache of 40 samples that are longer than a bin, and then a rate that comes down to its level within some seconds.
    let sample = |bytes| Sample {
        seconds: 1.0,
        bytes,
        nanoseconds_longest: 0,
        nanoseconds_gap: None,
    };
    let noise = |at: usize| 1.0 + 0.02 * ((at * 7919 % 101) as f64 / 50.0 - 1.0);
    let mut samples: Vec<Sample> = (0..40).map(|at| sample((3e9 * noise(at)) as u64)).collect();
    samples.extend((0..2400).map(|at| {
        let more = 1.0 + 0.7 * (-(at as f64) / 3.0).exp();
        sample((0.35e9 * more * noise(at)) as u64)
    }));
    let found = segments(&samples).segments;
    let firsts: Vec<usize> = found.iter().map(|of| of.first).collect();
    assert_eq!(firsts.len(), 2, "{firsts:?}");
    assert!((39..=44).contains(&firsts[1]), "{firsts:?}");
}

/// An eighth of the seeds; all of them where `WEIR_NIGHTLY` is set.
fn seeds(all: u64) -> u64 {
    let is_all = std::env::var_os("WEIR_NIGHTLY").is_some();
    if is_all { all } else { all / 8 }
}

#[test]
fn ten_percent_of_noise_makes_no_cliff() {
    let seeds = seeds(200);
    for (capacity, rate) in [(1000.0, 1.6), (480.0, 2.2), (3840.0, 3.2)] {
        for seed in 0..seeds {
            let trace = Trace::flat(capacity * GB, rate * GB, 0.10);
            let found = segments(&trace.samples(1.0, seed));
            assert_eq!(found.segments.len(), 1, "{capacity} GB, seed {seed}");
            assert!((0.03..0.15).contains(&found.noise), "{}", found.noise);
        }
    }
}

#[test]
fn noise_that_lasts_makes_no_cliff() {
    for seed in 0..seeds(200) {
        let trace = Trace {
            correlation: 0.6,
            ..Trace::flat(1000.0 * GB, 1.6 * GB, 0.10)
        };
        let found = segments(&trace.samples(1.0, seed));
        assert_eq!(found.segments.len(), 1, "seed {seed}");
    }
}

#[test]
fn stalls_make_no_cliff() {
    for seed in 0..seeds(200) {
        let trace = Trace {
            stall_one_in: Some(30),
            ..Trace::flat(1000.0 * GB, 1.6 * GB, 0.03)
        };
        let found = segments(&trace.samples(1.0, seed));
        assert_eq!(found.segments.len(), 1, "seed {seed}: {found:?}");
    }
}

#[test]
fn a_rate_without_any_noise_has_no_cliff_and_less_than_a_step_is_none() {
    let flat = Trace::flat(480.0 * GB, 2.2 * GB, 0.0);
    assert_eq!(segments(&flat.samples(1.0, 0)).segments.len(), 1);
    let step = Trace {
        phases: vec![(0.0, 2.2 * GB), (200.0 * GB, 2.12 * GB)],
        ..flat
    };
    assert_eq!(segments(&step.samples(1.0, 0)).segments.len(), 1);
}

#[test]
fn a_cliff_is_found_where_it_is_also_in_much_noise() {
    for noise in [0.0, 0.02, 0.05, 0.10] {
        for seed in 0..seeds(100) {
            let trace = Trace { noise, ..cliff() };
            let samples = trace.samples(1.0, seed);
            let found = segments(&samples).segments;
            assert_eq!(found.len(), 2, "noise {noise}, seed {seed}: {found:?}");
            let error = found[1].begins_at_bytes as f64 - 42.0 * GB;
            assert!(error.abs() < 0.01 * 1000.0 * GB, "{noise}, {seed}: {error}");
            let rate = rate(&samples[found[1].first..], 1.0).unwrap();
            assert!((rate.median / (1.6 * GB) - 1.0).abs() < 0.02, "{rate:?}");
        }
    }
}

#[test]
fn three_thresholds_are_three_changes() {
    for seed in 0..100 {
        let truth = [
            (0.0, 5.0 * GB),
            (120.0 * GB, 2.0 * GB),
            (500.0 * GB, 1.4 * GB),
            (700.0 * GB, 0.4 * GB),
        ];
        let trace = Trace {
            phases: truth.to_vec(),
            noise: 0.05,
            ..cliff()
        };
        let samples = trace.samples(1.0, seed);
        let found = segments(&samples).segments;
        assert_eq!(found.len(), 4, "seed {seed}: {found:?}");
        for (segment, (begins, _)) in found.iter().zip(truth) {
            let error = segment.begins_at_bytes as f64 - begins;
            assert!(error.abs() < 0.01 * 1000.0 * GB, "seed {seed}: {error}");
        }
    }
}

#[test]
fn the_best_partition_is_that_of_a_search_through_all() {
    // All ways to cut a few values, each with its cost as the definition has it.
    let cost = |values: &[f64], ends: &[usize], noise: f64| {
        let scale = noise * (2.0 / std::f64::consts::PI).sqrt();
        let mut first = 0;
        let mut sum = PENALTY * (values.len() as f64).ln() * (ends.len() - 1) as f64;
        for &end in ends {
            let middle = median(&values[first..end]);
            let off = values[first..end]
                .iter()
                .map(|value| (value - middle).abs());
            sum += off.sum::<f64>() / scale;
            first = end;
        }
        sum
    };
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let values: Vec<f64> = (0..18)
            .map(|at| normal(&mut random) + if at >= 7 { 9.0 } else { 0.0 })
            .collect();
        let found = cost(&values, &partition(&values, 0.7), 0.7);
        for cuts in 0_u32..1 << 17 {
            let inner = (1..18).filter(|at| cuts >> (at - 1) & 1 == 1);
            let ends: Vec<usize> = inner.chain([18]).collect();
            let lengths = ends
                .iter()
                .scan(0, |last, &end| Some(end - std::mem::replace(last, end)));
            if lengths.min().unwrap() >= SEGMENT_BINS {
                assert!(found <= cost(&values, &ends, 0.7) + 1e-9, "seed {seed}");
            }
        }
    }
}

#[test]
fn nothing_and_little_are_analysed_too() {
    assert!(segments(&[]).segments.is_empty());
    assert!(worst_windows(&[]).is_empty());
    assert_eq!(rate(&[], 1.0), None);
    let sample = |bytes| Sample {
        seconds: 0.5,
        bytes,
        nanoseconds_longest: 0,
        nanoseconds_gap: None,
    };
    assert!(segments(&[sample(0), sample(0)]).segments.is_empty());
    let found = segments(&[sample(0), sample(8), sample(0)]).segments;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].first, found[0].end, found[0].ends_at_bytes),
        (0, 3, 8)
    );
}

#[test]
fn percentiles_are_of_windows_of_a_second() {
    // Of halves of a second, one is slow.
    let samples: Vec<Sample> = (0..200)
        .map(|index| Sample {
            seconds: 0.5,
            bytes: if index == 50 { 0 } else { 50 },
            nanoseconds_longest: 0,
            nanoseconds_gap: None,
        })
        .collect();
    let rate = rate(&samples, 1.0).unwrap();
    assert_eq!((rate.median, rate.p5, rate.p0_1), (100.0, 100.0, 50.0));
    assert!((rate.mean - 99.5).abs() < 1e-9);
    assert_eq!((window_seconds(300.0), window_seconds(2.0)), (1.0, 0.1));
    // Each rate from 1 to 100 in one window, and not in order.
    let samples: Vec<Sample> = (0..100)
        .map(|index| Sample {
            seconds: 1.0,
            bytes: index * 37 % 100 + 1,
            nanoseconds_longest: 0,
            nanoseconds_gap: None,
        })
        .collect();
    let rate = super::rate(&samples, 1.0).unwrap();
    assert_eq!((rate.p5, rate.p0_1, rate.mean), (5.0, 1.0, 50.5));
}

fn some_samples() -> impl Strategy<Value = Vec<Sample>> {
    let sample = (1_u32..40, 0_u64..1000).prop_map(|(tenths, bytes)| Sample {
        seconds: f64::from(tenths) / 10.0,
        bytes,
        nanoseconds_longest: 0,
        nanoseconds_gap: None,
    });
    proptest::collection::vec(sample, 1..60)
}

proptest! {
    #[test]
    fn no_window_is_worse_than_the_worst(samples in some_samples(), place in 0.0..1.0) {
        let course = Course::of(&samples);
        for window in worst_windows(&samples) {
            let begin = place * (course.seconds() - window.seconds).max(0.0);
            let bytes = Cursor::default().at(&course, begin + window.seconds) - Cursor::default().at(&course, begin);
            prop_assert!(bytes / window.seconds >= window.bytes_per_second - 1e-6);
        }
        let windows = worst_windows(&samples);
        let last = windows.last().unwrap();
        let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
        prop_assert!((last.bytes_per_second * last.seconds - bytes as f64).abs() < 1e-3);
        prop_assert!(windows.is_sorted_by(|one, other| one.seconds < other.seconds));
    }

    #[test]
    fn segments_cover_all_samples_in_their_order(samples in some_samples()) {
        let found = segments(&samples).segments;
        let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
        if bytes == 0 {
            prop_assert!(found.is_empty());
        } else {
            let (mut at, mut written) = (0, 0);
            for segment in &found {
                prop_assert_eq!((segment.first, segment.begins_at_bytes), (at, written));
                prop_assert!(segment.end > segment.first);
                (at, written) = (segment.end, segment.ends_at_bytes);
            }
            prop_assert_eq!((at, written), (samples.len(), bytes));
        }
    }
}

#[test]
fn worst_windows_are_attained_and_nothing_is_worse() {
    let seed = weir_reactor::sim::seed_from_env_or_random();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for _ in 0..50 {
        let count = 20 + random.below(60);
        let mut samples: Vec<Sample> = (0..count)
            .map(|_| Sample {
                seconds: 1.0,
                bytes: random.below(1000),
                nanoseconds_longest: 0,
                nanoseconds_gap: None,
            })
            .collect();
        // A scrap was added to the last one, or it is short.
        samples.last_mut().unwrap().seconds = 0.3 + 0.94 * random.unit();
        let mut ends = vec![(0.0, 0.0)];
        for sample in &samples {
            let (seconds, bytes) = ends[ends.len() - 1];
            ends.push((seconds + sample.seconds, bytes + sample.bytes as f64));
        }
        let whole = ends[ends.len() - 1].0;
        let by = |at: f64| {
            let next = ends
                .iter()
                .position(|end| end.0 >= at)
                .unwrap_or(ends.len() - 1);
            let (from, to) = (ends[next.max(1) - 1], ends[next.max(1)]);
            from.1 + (to.1 - from.1) * (at - from.0) / (to.0 - from.0)
        };
        let windows = worst_windows(&samples);
        assert_eq!(windows[0].seconds, 1.0, "{:?}", samples.last());
        for window in windows {
            let length = window.seconds;
            let rate = |from: f64| (by(from + length) - by(from)) / length;
            let begins = ends.iter().flat_map(|end| [end.0, end.0 - length]);
            let begins = begins.filter(|&from| from >= 0.0 && from + length <= whole);
            let least = begins.map(rate).fold(f64::INFINITY, f64::min);
            let least = if least.is_finite() { least } else { rate(0.0) };
            assert!(
                (window.bytes_per_second - least).abs() < 1e-6 * (1.0 + least),
                "{length}"
            );
            for _ in 0..50 {
                let from = random.unit() * (whole - length);
                assert!(
                    rate(from) > window.bytes_per_second - 1e-6,
                    "{length} {from}"
                );
            }
        }
    }
}
