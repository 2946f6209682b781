//! When the requests of one queue are due. Fixed by the seed before the run: nothing that the volume does changes it.

use std::time::Duration;

use weir_reactor::Instant;

use super::Arrivals;
use weir_reactor::random::{Random, mix};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
/// Exponential arrivals that are counted one by one: beyond them the number that is to be expected of the rest is off by less than a thousandth.
const COUNTED_MAX: u64 = 1 << 20;

/// One queue among those that share a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Requests per second of all queues together.
    pub(super) rate: u64,
    pub(super) queue: u32,
    pub(super) queues: u32,
}

/// The moments at which the requests of one queue are due, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    began: Instant,
    share: Share,
    next: Instant,
    times: Times,
}

#[derive(Debug, Clone)]
enum Times {
    /// Those of all queues together are evenly spaced.
    Uniform { index: u64 },
    /// Those of all queues together are a Poisson process, for each queue's is one of its own.
    Exponential {
        random: Random,
        /// Nanoseconds since the beginning.
        at: f64,
    },
}

impl Schedule {
    pub(super) fn new(began: Instant, share: Share, arrivals: Arrivals, seed: u64) -> Self {
        let times = match arrivals {
            Arrivals::Uniform => Times::Uniform { index: 0 },
            Arrivals::Exponential => {
                // Nothing else draws from this, so that the times depend on the seed alone.
                const ARRIVALS: u64 = 0x6172_7269_7661_6C73;
                let of_queue = mix(u64::from(share.queue) + 1);
                Times::Exponential {
                    random: Random::new(mix(seed ^ ARRIVALS ^ of_queue)),
                    at: 0.0,
                }
            }
        };
        let mut schedule = Schedule {
            began,
            share,
            next: began,
            times,
        };
        match schedule.times {
            Times::Uniform { .. } => schedule.next = schedule.uniform(0),
            Times::Exponential { .. } => schedule.advance(),
        }
        schedule
    }

    /// When the next request is due.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Goes on to the request after it.
    pub(super) fn advance(&mut self) {
        let mean = self.mean_ns();
        match &mut self.times {
            Times::Uniform { index } => {
                *index += 1;
                let index = *index;
                self.next = self.uniform(index);
            }
            Times::Exponential { random, at } => {
                // 1 - u is above 0, so that its logarithm is finite.
                *at -= (1.0 - random.unit()).ln() * mean;
                self.next = self.began + Duration::from_nanos(*at as u64);
            }
        }
    }

    /// The mean time between two requests of this queue, in nanoseconds.
    fn mean_ns(&self) -> f64 {
        let Share { rate, queues, .. } = self.share;
        NANOSECONDS_PER_SECOND as f64 * f64::from(queues) / rate as f64
    }

    fn uniform(&self, index: u64) -> Instant {
        let Share {
            rate,
            queue,
            queues,
        } = self.share;
        let before = u128::from(index) * u128::from(queues) + u128::from(queue);
        let nanoseconds = before * u128::from(NANOSECONDS_PER_SECOND) / u128::from(rate);
        self.began + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// How many are due from the next one on and before `end`. The schedule is over with it. Of exponential arrivals the first
    /// [`COUNTED_MAX`] are counted, and of the rest as many as are to be expected: no rate makes this take long.
    pub(super) fn count_before(mut self, end: Instant) -> u64 {
        if let Times::Uniform { index } = self.times {
            return self.uniform_before(end).saturating_sub(index);
        }
        let mut count = 0;
        while self.next < end {
            if count == COUNTED_MAX {
                let left = (end - self.next).as_nanos() as f64 / self.mean_ns();
                return count + 1 + left as u64;
            }
            count += 1;
            self.advance();
        }
        count
    }

    /// How many of evenly spaced requests of this queue are due before `end`, from the beginning on.
    fn uniform_before(&self, end: Instant) -> u64 {
        let Share {
            rate,
            queue,
            queues,
        } = self.share;
        // What is due at x * second / rate, rounded down, is due before `end` where x is below length * rate / second.
        let length = (end - self.began).as_nanos();
        let of_all = (length * u128::from(rate)).div_ceil(u128::from(NANOSECONDS_PER_SECOND));
        let of_queue = of_all.saturating_sub(u128::from(queue));
        u64::try_from(of_queue.div_ceil(u128::from(queues))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(share: Share, arrivals: Arrivals, seed: u64, length: Duration) -> Vec<f64> {
        let began = Instant::from_nanos(77);
        let mut schedule = Schedule::new(began, share, arrivals, seed);
        let mut times = Vec::new();
        while schedule.next() < began + length {
            times.push((schedule.next() - began).as_secs_f64());
            schedule.advance();
        }
        times
    }

    #[test]
    fn queues_together_keep_a_uniform_rate() {
        for (rate, queues) in [(1, 1), (3, 1), (7, 3), (10_000, 4), (100_000, 2)] {
            let mut all: Vec<f64> = (0..queues)
                .flat_map(|queue| {
                    let share = Share {
                        rate,
                        queue,
                        queues,
                    };
                    times(share, Arrivals::Uniform, 0, Duration::from_secs(1))
                })
                .collect();
            all.sort_by(f64::total_cmp);
            assert_eq!(all.len() as u64, rate, "{queues}");
            for (index, at) in all.iter().enumerate() {
                let due = index as f64 / rate as f64;
                assert!(
                    (at - due).abs() < 2e-9,
                    "{rate} {queues} {index}: {at} {due}"
                );
            }
        }
    }

    #[test]
    fn what_is_left_is_counted() {
        for arrivals in [Arrivals::Uniform, Arrivals::Exponential] {
            let share = Share {
                rate: 5000,
                queue: 1,
                queues: 3,
            };
            let all = times(share, arrivals, 3, Duration::from_millis(500));
            let mut schedule = Schedule::new(Instant::from_nanos(77), share, arrivals, 3);
            (0..100).for_each(|_| schedule.advance());
            let end = Instant::from_nanos(77) + Duration::from_millis(500);
            assert_eq!(schedule.count_before(end), all.len() as u64 - 100);
        }
    }

    #[test]
    fn what_is_left_of_any_rate_is_counted_at_once() {
        const DAY: u64 = 24 * 3600;
        let began = Instant::from_nanos(77);
        let end = began + Duration::from_secs(DAY);
        for queues in [1, 3] {
            let share = Share {
                rate: super::super::config::RATE_MAX,
                queue: 0,
                queues,
            };
            let all = (share.rate * DAY).div_ceil(u64::from(queues));
            let uniform = Schedule::new(began, share, Arrivals::Uniform, 3);
            assert_eq!(uniform.count_before(end), all);
            let exponential = Schedule::new(began, share, Arrivals::Exponential, 3);
            let counted = exponential.count_before(end);
            assert!(counted.abs_diff(all) < 10_000_000, "{counted} of {all}");
        }
    }

    #[test]
    fn evenly_spaced_ones_are_counted_as_they_are_drawn() {
        for (rate, queue, queues) in [(1, 0, 1), (7, 2, 3), (3, 3, 4), (999_999_937, 1, 2)] {
            let share = Share {
                rate,
                queue,
                queues,
            };
            for length in [0, 1, 999, 10_000, 333_333_333, 1_000_000_000] {
                let length = match rate {
                    999_999_937 => length.min(10_000),
                    _ => length,
                };
                let length = Duration::from_nanos(length);
                let all = times(share, Arrivals::Uniform, 0, length).len() as u64;
                for advanced in [0, 1, 3] {
                    let mut schedule =
                        Schedule::new(Instant::from_nanos(77), share, Arrivals::Uniform, 0);
                    (0..advanced).for_each(|_| schedule.advance());
                    let left = schedule.count_before(Instant::from_nanos(77) + length);
                    assert_eq!(left, all.saturating_sub(advanced), "{share:?} {length:?}");
                }
            }
        }
    }

    /// Exponential times between two arrivals have their standard deviation for a mean, and counts per interval their mean for a variance: of each
    /// queue, and of all together. Bounds are 6 standard errors.
    #[test]
    fn exponential_arrivals_have_the_mean_and_the_variance_of_a_poisson_process() {
        const RATE: u64 = 20_000;
        const SECONDS: u64 = 10;
        const DEVIATIONS: f64 = 6.0;
        let seed = weir_reactor::sim::seed_from_env_or_random();
        println!("seed {seed}");
        for queues in [1, 4] {
            let of_queue = |queue| {
                let share = Share {
                    rate: RATE,
                    queue,
                    queues,
                };
                times(
                    share,
                    Arrivals::Exponential,
                    seed,
                    Duration::from_secs(SECONDS),
                )
            };
            let each: Vec<_> = (0..queues).map(of_queue).collect();
            assert!(queues == 1 || each[0][0] != each[1][0], "queues differ");
            let mut all = each.concat();
            all.sort_by(f64::total_cmp);
            check_gaps(&each[0], RATE as f64 / f64::from(queues), DEVIATIONS);
            check_gaps(&all, RATE as f64, DEVIATIONS);
            check_counts(&all, RATE as f64, SECONDS, DEVIATIONS);
        }
    }

    fn check_gaps(times: &[f64], rate: f64, deviations: f64) {
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        // The standard error of the mean is mean / sqrt(n); that of the variance is variance * sqrt(8 / n).
        let mean_error = (mean * rate - 1.0) * count.sqrt();
        let variance_error = (variance * rate * rate - 1.0) * (count / 8.0).sqrt();
        assert!(
            mean_error.abs() < deviations,
            "mean off by {mean_error} deviations"
        );
        assert!(
            variance_error.abs() < deviations,
            "variance off by {variance_error} deviations"
        );
        // Arrivals know nothing of each other: neither do gaps that follow each other.
        let together: f64 = gaps
            .windows(2)
            .map(|pair| (pair[0] - mean) * (pair[1] - mean))
            .sum();
        let correlation = together / variance / count;
        assert!(
            correlation.abs() < deviations / count.sqrt(),
            "gaps correlate: {correlation}"
        );
        // The largest distance between the distribution and what was drawn (Kolmogorov).
        let mut sorted = gaps;
        sorted.sort_by(f64::total_cmp);
        let distance = |(index, gap): (usize, &f64)| {
            (1.0 - (-gap * rate).exp() - (index as f64 + 0.5) / count).abs()
        };
        let furthest = sorted.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(furthest * count.sqrt() < 3.3, "not exponential: {furthest}");
    }

    fn check_counts(times: &[f64], rate: f64, seconds: u64, deviations: f64) {
        const PER_SECOND: u64 = 1000;
        let mut counts = vec![0.0; (seconds * PER_SECOND) as usize];
        for at in times {
            counts[(at * PER_SECOND as f64) as usize] += 1.0;
        }
        let intervals = counts.len() as f64;
        let mean = rate / PER_SECOND as f64;
        let variance = counts
            .iter()
            .map(|count| (count - mean).powi(2))
            .sum::<f64>()
            / intervals;
        // The standard error of a Poisson variance: sqrt((2 mean^2 + mean) / n).
        let error = (variance - mean) / ((2.0 * mean * mean + mean) / intervals).sqrt();
        assert!(
            error.abs() < deviations,
            "variance of counts {variance}, mean {mean}"
        );
    }
}
