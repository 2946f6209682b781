//! The one source of randomness of a simulated world: xoshiro256**, seeded through splitmix64.

use std::ops::RangeInclusive;
use std::time::Duration;

pub(super) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut seeds = crate::random::Random::new(seed);
        Random {
            state: std::array::from_fn(|_| seeds.next()),
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let (start, end) = (*range.start(), *range.end());
        assert!(start <= end, "a range that is not empty");
        match (end - start).checked_add(1) {
            Some(bound) => start + self.below(bound),
            None => self.next(),
        }
    }

    /// A time span within `range`, in nanoseconds.
    pub(super) fn span(&mut self, range: &RangeInclusive<Duration>) -> u64 {
        self.within(&(nanoseconds(*range.start())..=nanoseconds(*range.end())))
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        const FRACTION_BITS: u32 = 53;
        let fraction =
            (self.next() >> (64 - FRACTION_BITS)) as f64 / (1u64 << FRACTION_BITS) as f64;
        fraction < probability
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The first output for state [1, 2, 3, 4], as published with it.
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        assert_eq!(random.next(), 11520);
        assert_eq!(random.next(), 0);
        assert_eq!(random.next(), 1509978240);
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[random.below(5) as usize] = true;
            assert!((3..=4).contains(&random.within(&(3..=4))));
            assert!(!random.chance(0.0));
            assert!(random.chance(1.0));
        }
        assert_eq!(seen, [true; 5]);
        let mut items: Vec<_> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
