//! Pseudo-random numbers from a seed: what to do next, and what to write.

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and equal on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers that this seed has.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Any 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "it has no end, and no use for what iterators do"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0. Its bias is below bound / 2^64.
    ///
    /// # Panics
    /// Where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to below 1, of 2^53 evenly spaced ones.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Makes all of `bytes` random.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The finalizer of SplitMix64: every bit of the input changes every bit of the output.
#[must_use]
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A permutation of 0..length that needs no memory: a Feistel network over the next even power of two, walked until it
/// lands inside.
#[derive(Debug, Clone)]
pub(crate) struct Shuffle {
    length: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffle {
    pub(crate) fn new(length: u64, seed: u64) -> Self {
        let bits = 64 - length.saturating_sub(1).leading_zeros();
        Shuffle {
            length,
            half_bits: bits.div_ceil(2).max(1),
            seed,
        }
    }

    pub(crate) fn at(&self, index: u64) -> u64 {
        assert!(index < self.length, "an index lies within the permutation");
        let mut value = self.round_trip(index);
        while value >= self.length {
            value = self.round_trip(value);
        }
        value
    }

    fn round_trip(&self, value: u64) -> u64 {
        const ROUNDS: u64 = 4;
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let scrambled = mix(right ^ self.seed.wrapping_add(round << 56)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_visits_everything_once() {
        for length in [1, 2, 3, 7, 64, 1000, 4097] {
            for seed in 0..4 {
                let shuffle = Shuffle::new(length, seed);
                let mut seen = vec![false; length as usize];
                for index in 0..length {
                    let at = shuffle.at(index) as usize;
                    assert!(!seen[at], "{at} twice in {length}, seed {seed}");
                    seen[at] = true;
                }
            }
        }
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_both_ends() {
        let mut random = Random::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| random.below(10)).collect();
        assert!(numbers.iter().all(|&number| number < 10));
        assert!(numbers.contains(&0) && numbers.contains(&9));
        assert!(!(0..100).any(|_| random.percent(0)));
        assert!((0..100).all(|_| random.percent(100)));
    }
}
