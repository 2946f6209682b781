//! An order of all numbers below another, from a seed.

use weir_reactor::random::mix;

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
}
