//! Pseudo-random numbers from a seed: equal on every machine, and not for secrets.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers that this seed has.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// One of many sequences of a seed: `stream` tells them apart.
    #[must_use]
    pub fn of_stream(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407));
        random.next();
        random
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

    /// True once in `bound` times.
    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// True in `of` of 100 cases.
    pub fn percent(&mut self, of: u64) -> bool {
        self.below(100) < of
    }

    /// A number from 0 to below 1, of 2^53 evenly spaced ones.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number above 0 and at most 1, which has a logarithm.
    pub fn unit_above_zero(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Makes all of `bytes` random.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// So many random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }
}

/// The finalizer of SplitMix64: every bit of the input changes every bit of the output.
#[must_use]
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_generator() {
        // Its first output for state 0, as published with it.
        assert_eq!(Random::new(0).next(), 0xE220_A839_7B1D_CDAF);
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

    #[test]
    fn streams_of_a_seed_differ() {
        let first = |stream| Random::of_stream(7, stream).next();
        assert_ne!(first(0), first(1));
        assert_eq!(first(1), first(1));
    }
}
