//! Randomness that follows from a seed, and is the same on every machine: [`weir_reactor::random`], and of floating point only what IEEE 754 says exactly.

/// A sequence of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(weir_reactor::random::Random);

/// Uniform variates that a normal one is made of; their sum has this less a half as its mean and a variance of 1.
const UNIFORMS_OF_A_NORMAL: u32 = 12;

impl Random {
    /// The sequence of `seed`; `stream` tells sequences of one seed apart.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Random(weir_reactor::random::Random::of_stream(seed, stream))
    }

    /// At least 0 and less than 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0.unit()
    }

    /// Exponential with a mean of 1. By von Neumann's method (1951), which compares and needs no logarithm.
    pub(crate) fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.uniform();
            let mut before = first;
            let mut falls_odd_times = true;
            loop {
                let next = self.uniform();
                if next >= before {
                    break;
                }
                before = next;
                falls_odd_times = !falls_odd_times;
            }
            if falls_odd_times {
                return whole + first;
            }
            whole += 1.0;
        }
    }

    /// Normal with a mean of 0 and a standard deviation of 1, as a sum of uniforms; never beyond 6.
    pub(crate) fn normal(&mut self) -> f64 {
        let sum: f64 = (0..UNIFORMS_OF_A_NORMAL).map(|_| self.uniform()).sum();
        sum - f64::from(UNIFORMS_OF_A_NORMAL) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u32 = 200_000;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..MANY {
            let value = draw();
            sum += value;
            squares += value * value;
        }
        let mean = sum / f64::from(MANY);
        (mean, squares / f64::from(MANY) - mean * mean)
    }

    #[test]
    fn variates_have_their_moments() {
        let mut random = Random::new(7, 0);
        let (mean, variance) = moments(|| random.exponential());
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        let (mean, variance) = moments(|| random.normal());
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn a_tenth_of_exponentials_is_beyond_the_decimal_logarithm() {
        let mut random = Random::new(8, 0);
        let beyond = (0..MANY)
            .filter(|_| random.exponential() > std::f64::consts::LN_10)
            .count();
        let share = beyond as f64 / f64::from(MANY);
        assert!((share - 0.1).abs() < 0.003, "{share}");
    }
}
