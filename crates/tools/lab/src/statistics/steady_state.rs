//! Steady state by the rule of SNIA's Solid State Storage Performance Test Specification (version 2.0.2, section 2.1.24): within a window of
//! five rounds, the metric's highest and lowest are at most 20% of its mean apart, and the best straight line through them climbs or
//! falls by at most 10% of the mean; a test ends after 25 rounds.
//!
//! The specification also says how a drive is prepared. That is the user's, and nothing here knows of it.

use super::mean;
use crate::document::Interval;

/// Rounds of a window.
const WINDOW_ROUNDS: usize = 5;
/// Rounds that are looked at.
const ROUNDS_MAX: usize = 25;
/// How far highest and lowest may be apart.
const RANGE_PERCENT_MAX: f64 = 20.0;
/// How far the line may climb or fall over the window.
const SLOPE_PERCENT_MAX: f64 = 10.0;

/// The first steady window, or the last one where none is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Whether it is steady.
    pub reached: bool,
    /// Whether all rounds from its first on, of those looked at, are as near to each other as those of a steady window are.
    pub held: bool,
    /// Its first round, counted from 0.
    pub window_start: usize,
    /// The metric's mean.
    pub mean: f64,
    /// How far highest and lowest are apart, of the mean.
    pub range_percent: f64,
    /// How far the best-fit line climbs or falls, of the mean.
    pub slope_percent: f64,
}

/// Looks for the first steady window. None where there are fewer than five rounds, or nothing was done in all of the last five.
#[must_use]
pub fn steady_state(rounds: &[f64]) -> Option<Steady> {
    let rounds = &rounds[..rounds.len().min(ROUNDS_MAX)];
    let mut last = None;
    for (start, window) in rounds.windows(WINDOW_ROUNDS).enumerate() {
        last = look(start, window);
        if let Some(steady) = last.filter(|window| window.reached) {
            let held = range_percent(&rounds[start..]) <= RANGE_PERCENT_MAX;
            return Some(Steady { held, ..steady });
        }
    }
    last
}

/// How far highest and lowest are apart, of the mean.
fn range_percent(rounds: &[f64]) -> f64 {
    let highest = rounds.iter().copied().fold(f64::MIN, f64::max);
    let lowest = rounds.iter().copied().fold(f64::MAX, f64::min);
    (highest - lowest) / mean(rounds) * 100.0
}

fn look(window_start: usize, window: &[f64]) -> Option<Steady> {
    let mean = mean(window);
    if mean <= 0.0 {
        return None;
    }
    let range_percent = range_percent(window);
    let slope_percent = (slope(window) * (window.len() - 1) as f64).abs() / mean * 100.0;
    Some(Steady {
        reached: range_percent <= RANGE_PERCENT_MAX && slope_percent <= SLOPE_PERCENT_MAX,
        held: false,
        window_start,
        mean,
        range_percent,
        slope_percent,
    })
}

/// The slope of the line of least squares, per round.
fn slope(values: &[f64]) -> f64 {
    let middle = (values.len() - 1) as f64 / 2.0;
    let (mut product, mut square) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let from_middle = index as f64 - middle;
        product += from_middle * value;
        square += from_middle * from_middle;
    }
    product / square
}

/// Requests a second in rounds of whole intervals: as many rounds as [`steady_state`] looks at, or one for each interval where there are
/// fewer. An interval of another length than the first is the cut-off end of a run and is left out. Also how long a round is, in seconds.
#[must_use]
pub fn rounds_of(intervals: &[Interval]) -> (f64, Vec<f64>) {
    let Some(first) = intervals.first() else {
        return (0.0, Vec::new());
    };
    let length = first.length_seconds;
    let same = |interval: &&Interval| (interval.length_seconds / length - 1.0).abs() < 0.1;
    let whole: Vec<_> = intervals.iter().take_while(same).collect();
    let together = whole.len().div_ceil(ROUNDS_MAX).max(1);
    let rounds = whole.chunks_exact(together).map(|round| {
        let requests: u64 = round.iter().map(|of| of.operations.requests()).sum();
        let seconds: f64 = round.iter().map(|of| of.length_seconds).sum();
        requests as f64 / seconds
    });
    (length * together as f64, rounds.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Operation, Operations};
    use proptest::prelude::*;

    #[test]
    fn a_level_metric_is_steady_at_once() {
        let steady = steady_state(&[100.0, 101.0, 99.0, 100.0, 100.0, 500.0]).unwrap();
        assert!(steady.reached && !steady.held);
        assert_eq!((steady.window_start, steady.mean), (0, 100.0));
        assert_eq!(steady.range_percent, 2.0);
        let level = steady_state(&[100.0, 101.0, 99.0, 100.0, 100.0, 103.0]).unwrap();
        assert!(level.reached && level.held);
    }

    /// As long as its cache lasts a drive is steady.
    #[test]
    fn a_cache_that_fills_up_is_no_steady_state_that_held() {
        let mut rounds = vec![500.0; 8];
        rounds.extend([90.0; 8]);
        let steady = steady_state(&rounds).unwrap();
        assert!(steady.reached && steady.window_start == 0 && !steady.held);
    }

    #[test]
    fn a_fresh_drive_becomes_steady_when_it_has_come_down() {
        let rounds = [
            300.0, 250.0, 200.0, 160.0, 130.0, 110.0, 102.0, 100.0, 100.0, 101.0, 99.0,
        ];
        let steady = steady_state(&rounds).unwrap();
        assert!(steady.reached && steady.held);
        assert_eq!(steady.window_start, 5);
    }

    #[test]
    fn both_parts_of_the_rule_count() {
        // Apart by 21%, without a slope.
        let apart = steady_state(&[100.0, 110.5, 100.0, 89.5, 100.0]).unwrap();
        assert!(!apart.reached && apart.range_percent > 20.0 && apart.slope_percent < 10.0 + 6.0);
        // Apart by 12% only, all of it slope.
        let climbing = steady_state(&[94.0, 97.0, 100.0, 103.0, 106.0]).unwrap();
        assert!(!climbing.reached && climbing.range_percent < 20.0);
        assert!((climbing.slope_percent - 12.0).abs() < 1e-9);
        // At the bounds it is steady.
        let bound = steady_state(&[95.0, 97.5, 100.0, 102.5, 105.0]).unwrap();
        assert!(bound.reached, "{bound:?}");
    }

    #[test]
    fn too_little_says_nothing_and_too_much_is_not_looked_at() {
        assert_eq!(steady_state(&[1.0; 4]), None);
        assert_eq!(steady_state(&[0.0; 9]), None);
        let mut late: Vec<f64> = (0..25).map(|round| 1.5f64.powi(round)).collect();
        late.extend([1e5; 10]);
        let unsteady = steady_state(&late).unwrap();
        assert!(!unsteady.reached && !unsteady.held);
        assert_eq!(unsteady.window_start, 20);
    }

    proptest! {
        /// The rule knows no unit, and a noisy level metric with less than a tenth of noise is always steady.
        #[test]
        fn it_knows_no_unit(noise in prop::collection::vec(-0.02f64..0.02, 5..30), scale in 1e-6f64..1e9) {
            let values: Vec<f64> = noise.iter().map(|by| scale * (1.0 + by)).collect();
            let steady = steady_state(&values).unwrap();
            prop_assert!(steady.reached && steady.held && steady.window_start == 0);
            let one: Vec<f64> = noise.iter().map(|by| 1.0 + by).collect();
            let unscaled = steady_state(&one).unwrap();
            prop_assert!((steady.range_percent - unscaled.range_percent).abs() < 1e-6);
        }
    }

    fn interval(requests: u64, length_seconds: f64) -> Interval {
        Interval {
            start_seconds: 0.0,
            length_seconds,
            operations: Operations {
                read: Operation {
                    requests,
                    ..Operation::default()
                },
                ..Operations::default()
            },
            lag_ns_max: 0,
        }
    }

    #[test]
    fn intervals_become_rounds() {
        assert_eq!(rounds_of(&[]), (0.0, Vec::new()));
        let few = [interval(10, 1.0), interval(20, 1.0), interval(1, 0.2)];
        assert_eq!(rounds_of(&few), (1.0, vec![10.0, 20.0]));
        let many: Vec<_> = (0..60).map(|_| interval(50, 0.5)).collect();
        let (length, rounds) = rounds_of(&many);
        assert_eq!(length, 1.5);
        assert_eq!(rounds, [100.0; 20]);
    }
}
