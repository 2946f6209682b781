//! Choices that follow from a number: [`weir_reactor::random`]. It decides the plan of a seed and what clients do, so that a change of the
//! world's own randomness does not change the plan.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A sequence of choices.
#[derive(Debug, Clone)]
pub(crate) struct Random(weir_reactor::random::Random);

impl Random {
    /// The sequence of `seed`; `stream` tells sequences of one seed apart.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Random(weir_reactor::random::Random::of_stream(seed, stream))
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (start, end) = (*range.start(), *range.end());
        start + self.below(end - start + 1)
    }

    /// True in `of` of 100 cases.
    pub(crate) fn percent(&mut self, of: u64) -> bool {
        self.0.percent(of)
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// A time within `range`, in microseconds.
    pub(crate) fn time(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let microseconds = |time: &Duration| time.as_micros() as u64;
        let range = microseconds(range.start())..=microseconds(range.end());
        Duration::from_micros(self.within(range))
    }

    /// A time between two, as often within each factor of two.
    pub(crate) fn magnitude(&mut self, least: Duration, most: Duration) -> Duration {
        let doublings = (most.as_secs_f64() / least.as_secs_f64()).log2();
        let fraction = self.below(1 << 20) as f64 / f64::from(1 << 20);
        least.mul_f64((doublings * fraction).exp2())
    }

    /// One of `of`, each as often as its weight says; some weight is not 0.
    pub(crate) fn weighted<T: Copy>(&mut self, of: &[(T, u32)]) -> T {
        let total = of.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut left = self.below(total);
        for (value, weight) in of {
            if left < u64::from(*weight) {
                return *value;
            }
            left -= u64::from(*weight);
        }
        unreachable!("it is below the sum of all weights")
    }
}
