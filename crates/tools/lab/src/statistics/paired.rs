//! By how much one thing differs from another, measured in alternating rounds: Student's confidence interval of the paired logarithms, with the order
//! of the two within a round as a second variable. Why this and no other: decision 0027.

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
    let positive = |pair: &Pair| {
        let both = [pair.baseline, pair.value];
        both.iter().all(|of| *of > 0.0 && of.is_finite())
    };
    if pairs.len() < PAIRS_MIN || !pairs.iter().all(positive) {
        return None;
    }
    let ratios: Vec<f64> = pairs
        .iter()
        .map(|pair| (pair.value / pair.baseline).ln())
        .collect();
    let later: Vec<f64> = pairs.iter().map(|pair| pair.later).collect();
    let (estimate, deviation, degrees) = fit(&ratios, &later);
    let reach = student_t(degrees, alpha) * deviation;
    let fraction = |ratio: f64| ratio.exp_m1().min(FRACTION_MAX);
    Some(Estimate {
        fraction: fraction(estimate),
        low: fraction(estimate - reach),
        high: fraction(estimate + reach),
    })
}

/// The constant of the line of least squares through `ratios` over `later`, its standard deviation, and the degrees of freedom: what differs when neither
/// was measured later, drift taken out. Where all were measured in one order, drift and difference cannot be told apart, and it is the plain mean.
fn fit(ratios: &[f64], later: &[f64]) -> (f64, f64, u32) {
    let count = ratios.len() as f64;
    let (mean_later, mean_ratio) = (super::mean(later), super::mean(ratios));
    let spread: f64 = later.iter().map(|of| (of - mean_later).powi(2)).sum();
    if spread == 0.0 {
        let square: f64 = ratios.iter().map(|of| (of - mean_ratio).powi(2)).sum();
        let deviation = (square / (count - 1.0) / count).sqrt();
        return (mean_ratio, deviation, ratios.len() as u32 - 1);
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
    (constant, deviation, ratios.len() as u32 - 2)
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
