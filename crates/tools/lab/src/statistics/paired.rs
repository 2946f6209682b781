//! By how much one thing differs from another, measured in rounds: Student's confidence interval of the paired logarithms, with the order
//! of the two within a round as a second variable; and whether what is left follows a pattern in time. Why this and no other: decision 0027.

use super::student::student_t;

/// Fewer pairs say nothing.
pub const PAIRS_MIN: usize = 4;

/// The ends of an interval are at most so large. What is beyond says no more, and results are stored as JSON, which knows no infinity.
pub const FRACTION_MAX: f64 = 1e9;

/// One round: both measured once, close in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// What the others are measured against.
    pub baseline: f64,
    /// What is measured against it.
    pub value: f64,
    /// How many runs later than the baseline the value was measured; negative where it was first.
    pub later: f64,
}

/// By how much a value is more than its baseline, as a fraction: 0.03 for 3%.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The best guess.
    pub fraction: f64,
    /// The lower end of the confidence interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Estimate {
    /// Whether the interval leaves zero out.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// The difference, with a confidence interval that misses the truth with probability `alpha`. None where there are fewer than
/// [`PAIRS_MIN`] pairs or a number is not above 0: of such there is no ratio.
///
/// # Panics
/// Where `alpha` is not between 0 and 1.
#[must_use]
pub fn difference(pairs: &[Pair], alpha: f64) -> Option<Estimate> {
    let (ratios, later) = ratios(pairs)?;
    let line = fit(&ratios, &later);
    let reach = student_t(line.degrees, alpha) * line.deviation;
    let fraction = |ratio: f64| ratio.exp_m1().min(FRACTION_MAX);
    Some(Estimate {
        fraction: fraction(line.constant),
        low: fraction(line.constant - reach),
        high: fraction(line.constant + reach),
    })
}

/// Tells whether the second run of a round differs from the first by something that comes and goes in step, beside the difference and the
/// drift: Fisher's test of the largest ordinate of the periodogram (R. A. Fisher, Tests of significance in harmonic analysis, 1929), which
/// finds one where there is none with probability `alpha` at most. What comes and goes by less than `least`, as a fraction, is none.
///
/// # Panics
/// Where `alpha` is not between 0 and 1.
#[must_use]
pub fn is_disturbed(pairs: &[Pair], alpha: f64, least: f64) -> bool {
    assert!(
        alpha > 0.0 && alpha < 1.0,
        "a probability of error lies between 0 and 1, not at {alpha}"
    );
    let Some((ratios, later)) = ratios(pairs) else {
        return false;
    };
    let line = fit(&ratios, &later);
    let in_time: Vec<f64> = ratios
        .iter()
        .zip(&later)
        .map(|(ratio, later)| (ratio - line.constant - line.slope * later) * later.signum())
        .collect();
    let powers = periodogram(&in_time);
    let (all, largest) = powers
        .iter()
        .fold((0.0, 0.0), |(all, largest): (f64, f64), &power| {
            (all + power, largest.max(power))
        });
    let amplitude = 2.0 * largest.sqrt() / in_time.len() as f64;
    // The first term of the probability that the largest of so many shares is as large, which is more than the whole; each takes two of the
    // degrees of freedom that the line left.
    let rest = f64::from(line.degrees) / 2.0 - 1.0;
    let chance = powers.len() as f64 * (1.0 - largest / all).powf(rest);
    amplitude >= least && chance < alpha
}

/// The squares of the sizes of the Fourier coefficients, without the constant's. The fastest one's of an even number of values, which is
/// one number and no two, is halved.
fn periodogram(values: &[f64]) -> Vec<f64> {
    let count = values.len();
    let power = |frequency: usize| {
        let (mut cosines, mut sines) = (0.0, 0.0);
        for (index, value) in values.iter().enumerate() {
            let angle = std::f64::consts::TAU * (frequency * index % count) as f64 / count as f64;
            cosines += value * angle.cos();
            sines += value * angle.sin();
        }
        let square = cosines * cosines + sines * sines;
        match 2 * frequency == count {
            true => square / 2.0,
            false => square,
        }
    };
    (1..=count / 2).map(power).collect()
}

/// The logarithm of each ratio, and how much later its value was measured. None as [`difference`] says.
fn ratios(pairs: &[Pair]) -> Option<(Vec<f64>, Vec<f64>)> {
    let positive = |pair: &Pair| {
        let both = [pair.baseline, pair.value];
        both.iter().all(|of| *of > 0.0 && of.is_finite())
    };
    if pairs.len() < PAIRS_MIN || !pairs.iter().all(positive) {
        return None;
    }
    let of = |pair: &Pair| ((pair.value / pair.baseline).ln(), pair.later);
    Some(pairs.iter().map(of).unzip())
}

/// A line of least squares through logarithms of ratios over how much later their values were measured.
struct Line {
    /// Difference when neither was measured later.
    constant: f64,
    /// Change for each run later.
    slope: f64,
    /// The constant's standard deviation.
    deviation: f64,
    /// Degrees of freedom.
    degrees: u32,
}

/// The line, with drift taken out. Where all were measured in one order, drift and difference cannot be told apart, and it is the plain mean.
fn fit(ratios: &[f64], later: &[f64]) -> Line {
    let count = ratios.len() as f64;
    let (mean_later, mean_ratio) = (super::mean(later), super::mean(ratios));
    let spread: f64 = later.iter().map(|of| (of - mean_later).powi(2)).sum();
    if spread == 0.0 {
        let square: f64 = ratios.iter().map(|of| (of - mean_ratio).powi(2)).sum();
        let deviation = (square / (count - 1.0) / count).sqrt();
        return Line {
            constant: mean_ratio,
            slope: 0.0,
            deviation,
            degrees: ratios.len() as u32 - 1,
        };
    }
    let product: f64 = ratios
        .iter()
        .zip(later)
        .map(|(ratio, later)| (ratio - mean_ratio) * (later - mean_later))
        .sum();
    let slope = product / spread;
    let constant = mean_ratio - slope * mean_later;
    let square: f64 = ratios
        .iter()
        .zip(later)
        .map(|(ratio, later)| (ratio - constant - slope * later).powi(2))
        .sum();
    let variance = square / (count - 2.0);
    let deviation = (variance * (1.0 / count + mean_later.powi(2) / spread)).sqrt();
    Line {
        constant,
        slope,
        deviation,
        degrees: ratios.len() as u32 - 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Random;
    use proptest::prelude::*;

    /// Rounds of a thing that drifts and is noisy: a trend over the whole, a wandering level, and noise of each run.
    struct Noisy {
        random: Random,
        level: f64,
        trend: f64,
        wander: f64,
        noise: f64,
    }

    impl Noisy {
        fn measure(&mut self, truth: f64) -> f64 {
            self.level += self.trend + self.wander * self.random.normal();
            truth * (self.level + self.noise * self.random.normal()).exp()
        }

        fn pairs(&mut self, count: usize, planted: f64) -> Vec<Pair> {
            (0..count)
                .map(|round| {
                    if round % 2 == 0 {
                        let baseline = self.measure(1000.0);
                        let value = self.measure(1000.0 * planted);
                        Pair {
                            baseline,
                            value,
                            later: 1.0,
                        }
                    } else {
                        let value = self.measure(1000.0 * planted);
                        let baseline = self.measure(1000.0);
                        Pair {
                            baseline,
                            value,
                            later: -1.0,
                        }
                    }
                })
                .collect()
        }
    }

    /// How many of 1,000 comparisons find a difference.
    fn found(seed: u64, rounds: usize, planted: f64, alpha: f64, trend: f64) -> usize {
        let mut noisy = Noisy {
            random: Random::new(seed),
            level: 0.0,
            trend,
            wander: 0.002,
            noise: 0.01,
        };
        (0..1000)
            .filter(|_| {
                noisy.level = 0.0;
                let pairs = noisy.pairs(rounds, planted);
                difference(&pairs, alpha).unwrap().excludes_zero()
            })
            .count()
    }

    #[test]
    fn the_same_thing_twice_is_rarely_found_different() {
        for seed in [1, 2, 3] {
            for trend in [0.0, 0.01, -0.03] {
                let wrong = found(seed, 10, 1.0, 0.05, trend);
                // 50 are expected; 80 are four standard deviations more.
                assert!(wrong <= 80, "seed {seed}, trend {trend}: {wrong} of 1000");
                let strict = found(seed, 10, 1.0, 0.01, trend);
                assert!(strict <= 25, "seed {seed}, trend {trend}: {strict} of 1000");
            }
        }
    }

    #[test]
    fn three_per_cent_are_found() {
        for seed in [1, 2, 3] {
            for (planted, trend) in [(1.03, 0.0), (1.0 / 1.03, 0.01), (1.03, -0.03)] {
                let right = found(seed, 16, planted, 0.01 / 9.0, trend);
                assert!(right >= 950, "seed {seed}, trend {trend}: {right} of 1000");
            }
        }
    }

    /// The interval is as sure as it says, whatever the truth.
    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let seed = 7;
        let mut noisy = Noisy {
            random: Random::new(seed),
            level: 0.0,
            trend: 0.005,
            wander: 0.0,
            noise: 0.02,
        };
        let covered = (0..4000)
            .filter(|_| {
                let estimate = difference(&noisy.pairs(8, 1.1), 0.1).unwrap();
                (estimate.low..=estimate.high).contains(&0.1)
            })
            .count();
        // 3,600 are expected, with a standard deviation of 19.
        assert!(
            (3520..=3680).contains(&covered),
            "seed {seed}: {covered} of 4000"
        );
    }

    /// Load that comes and goes by itself, an eighth of the time.
    struct Bursts {
        /// From the beginning of one to that of the next, in runs.
        period: f64,
        /// When the first begins.
        first: f64,
        /// Share of the speed that a burst takes away.
        slowdown: f64,
    }

    impl Bursts {
        const PART: f64 = 0.125;

        /// Runs' worth of bursts until `time`.
        fn until(&self, time: f64) -> f64 {
            let periods = (time - self.first) / self.period;
            let whole = periods.floor();
            (whole * Self::PART + (periods - whole).min(Self::PART)) * self.period
        }
    }

    /// Results of 16 successive rounds of the same thing, or of one that does `planted` times as much. Noise of 1%, a drift and a
    /// wandering level are in it.
    struct Series {
        noisy: Noisy,
        orders: weir_reactor::random::Random,
    }

    impl Series {
        const ROUNDS: usize = 16;
        /// As sure as `weir compare` is of each of its nine intervals.
        const ALPHA: f64 = 0.01 / 9.0;
        const DISTURBED_ALPHA: f64 = 0.05 / 9.0;

        fn new(seed: u64) -> Series {
            Series {
                noisy: Noisy {
                    random: Random::new(seed),
                    level: 0.0,
                    trend: 0.003,
                    wander: 0.002,
                    noise: 0.01,
                },
                orders: weir_reactor::random::Random::new(seed),
            }
        }

        fn pairs(&mut self, planted: f64, bursts: Option<&Bursts>) -> Vec<Pair> {
            self.noisy.level = 0.0;
            let mut time = 0.0;
            let mut measure = |noisy: &mut Noisy, truth: f64| {
                let burst = bursts.map_or(0.0, |bursts| {
                    (bursts.until(time + 1.0) - bursts.until(time)) * bursts.slowdown
                });
                time += 1.0;
                noisy.measure(truth) * (1.0 - burst)
            };
            let orders = crate::statistics::orders(2, Self::ROUNDS, &mut self.orders);
            let mut pair = |order: Vec<u32>| {
                let mut values = [0.0; 2];
                for &side in &order {
                    let truth = [1.0, planted][side as usize];
                    values[side as usize] = measure(&mut self.noisy, truth);
                }
                Pair {
                    baseline: values[0],
                    value: values[1],
                    later: if order == [0, 1] { 1.0 } else { -1.0 },
                }
            };
            orders.into_iter().map(&mut pair).collect()
        }

        /// Returns "a difference is shown" and "the series is called disturbed".
        fn verdict(&mut self, planted: f64, bursts: Option<&Bursts>) -> (bool, bool) {
            let pairs = self.pairs(planted, bursts);
            let is_disturbed = is_disturbed(&pairs, Self::DISTURBED_ALPHA, 0.01);
            let estimate = difference(&pairs, Self::ALPHA).expect("there are ratios");
            let is_shown = estimate.excludes_zero() && estimate.fraction.abs() >= 0.01;
            (is_shown && !is_disturbed, is_disturbed)
        }
    }

    /// Counts which of 10,000 series with bursts of one period show a difference, and which are called disturbed. The bursts of each begin
    /// at another time, and slow everything by a tenth to nine tenths.
    fn with_bursts(seed: u64, period: impl Fn(&mut Random) -> f64) -> (usize, usize) {
        let mut series = Series::new(seed);
        let mut random = Random::new(!seed);
        let (mut shown, mut disturbed) = (0, 0);
        for _ in 0..10_000 {
            let period = period(&mut random);
            let bursts = Bursts {
                period,
                first: -period * random.unit(),
                slowdown: 0.1 + 0.8 * random.unit(),
            };
            let (is_shown, is_disturbed) = series.verdict(1.0, Some(&bursts));
            shown += usize::from(is_shown);
            disturbed += usize::from(is_disturbed);
        }
        (shown, disturbed)
    }

    #[test]
    fn bursts_of_other_load_are_no_difference() {
        let seed = 11;
        let any = |random: &mut Random| 0.5 * (32.0_f64.ln() * random.unit()).exp();
        let (shown, disturbed) = with_bursts(seed, any);
        println!("any period: {shown} shown, {disturbed} disturbed");
        // Of three stages of three metrics all nine together are to show no more than 500.
        assert!(shown <= 500 / 9, "seed {seed}: {shown} of 10000");
        for period in [
            0.5,
            1.0,
            2.0,
            8.0 / 3.0,
            3.0,
            4.0,
            5.0,
            6.0,
            8.0,
            12.0,
            16.0,
        ] {
            let (shown, disturbed) = with_bursts(seed, |_| period);
            println!("every {period:.2} runs: {shown} shown, {disturbed} disturbed");
            // The metrics of a stage are slowed together, its three stages each for themselves.
            assert!(
                shown <= 500 / 3,
                "seed {seed}, period {period}: {shown} of 10000"
            );
        }
    }

    /// A burst that comes once in two rounds, as the drive's own housekeeping may, is what order alone cannot take out.
    #[test]
    fn bursts_in_step_with_every_other_round_are_called_so() {
        let (_, disturbed) = with_bursts(12, |_| 4.0);
        assert!(disturbed >= 8_000, "{disturbed} of 10000");
    }

    #[test]
    fn what_is_quiet_is_comparable_and_three_per_cent_are_found_in_it() {
        for seed in [13, 77] {
            let mut series = Series::new(seed);
            let mut quiet = |planted: f64| {
                let verdicts = (0..10_000).map(|_| series.verdict(planted, None));
                verdicts.fold((0, 0), |(shown, disturbed), verdict| {
                    (
                        shown + usize::from(verdict.0),
                        disturbed + usize::from(verdict.1),
                    )
                })
            };
            let (shown, disturbed) = quiet(1.0);
            println!("quiet: {shown} shown, {disturbed} disturbed");
            // Of three stages of three metrics.
            assert!(disturbed <= 500 / 9, "seed {seed}: {disturbed} of 10000");
            assert!(shown <= 100 / 9 + 20, "seed {seed}: {shown} of 10000");
            let (shown, _) = quiet(1.03);
            println!("3%: {shown} shown");
            assert!(shown >= 9_500, "seed {seed}: {shown} of 10000");
        }
    }

    /// A constant is no pattern, and neither is rounding.
    #[test]
    fn what_does_not_come_and_go_disturbs_nothing() {
        let pair = |round: usize, value: f64| Pair {
            baseline: 1.0,
            value,
            later: [1.0, -1.0][round % 2],
        };
        for pattern in [[1.1; 4], [1.0, 0.9, 1.0, 0.9], [1.0, 1.0 + 1e-9, 1.0, 1.0]] {
            let pairs: Vec<Pair> = (0..16)
                .map(|round| pair(round, pattern[round % 4]))
                .collect();
            assert!(!is_disturbed(&pairs, 0.01, 0.01), "{pattern:?}");
        }
        let comes = [1.2, 1.0, 1.0, 1.0];
        let pairs: Vec<Pair> = (0..16).map(|round| pair(round, comes[round % 4])).collect();
        assert!(is_disturbed(&pairs, 0.01, 0.01));
        assert!(!is_disturbed(&pairs[..3], 0.01, 0.01), "too few");
    }

    #[test]
    fn what_has_no_ratio_has_no_difference() {
        let pair = |baseline, value| Pair {
            baseline,
            value,
            later: 1.0,
        };
        assert_eq!(difference(&[pair(1.0, 1.0); 3], 0.05), None);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut pairs = [pair(1.0, 1.0); 6];
            pairs[3].value = wrong;
            assert_eq!(difference(&pairs, 0.05), None, "{wrong}");
        }
        let same = difference(&[pair(5.0, 5.0); 6], 0.05).unwrap();
        assert_eq!((same.low, same.fraction, same.high), (0.0, 0.0, 0.0));
        assert!(!same.excludes_zero());
    }

    /// What is wildly noisy has a wide interval, and not one that cannot be stored.
    #[test]
    fn no_interval_is_infinite() {
        for (count, later) in [(4, 1.0), (6, -1.0)] {
            let pairs: Vec<Pair> = (0..count)
                .map(|round| Pair {
                    baseline: 1.0,
                    value: if round % 2 == 0 { 1e-300 } else { 1e300 },
                    later: if round % 2 == 0 { later } else { -later },
                })
                .collect();
            let estimate = difference(&pairs, 0.001).unwrap();
            let ends = [estimate.low, estimate.fraction, estimate.high];
            assert!(ends.iter().all(|end| end.is_finite()), "{estimate:?}");
            assert!(!estimate.excludes_zero(), "{estimate:?}");
        }
    }

    proptest! {
        /// A steady drift of any size is taken out wholly, and exchanging the two turns the answer round.
        #[test]
        fn a_steady_drift_is_taken_out(drift in -0.5f64..0.5, planted in 0.5f64..2.0, half in 2usize..8) {
            let mut at = 0.0;
            let mut measure = |truth: f64| {
                at += drift;
                truth * f64::exp(at)
            };
            let mut pairs = Vec::new();
            for _ in 0..half {
                let baseline = measure(10.0);
                let value = measure(10.0 * planted);
                pairs.push(Pair { baseline, value, later: 1.0 });
                let value = measure(10.0 * planted);
                let baseline = measure(10.0);
                pairs.push(Pair { baseline, value, later: -1.0 });
            }
            let estimate = difference(&pairs, 0.05).unwrap();
            prop_assert!((estimate.fraction + 1.0 - planted).abs() < 1e-9, "{estimate:?}");
            let exchanged: Vec<Pair> = pairs
                .iter()
                .map(|pair| Pair { baseline: pair.value, value: pair.baseline, later: -pair.later })
                .collect();
            let exchanged = difference(&exchanged, 0.05).unwrap();
            prop_assert!(((exchanged.fraction + 1.0) * (estimate.fraction + 1.0) - 1.0).abs() < 1e-9);
        }
    }
}
