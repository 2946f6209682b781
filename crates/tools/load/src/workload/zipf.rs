//! Ranks by Zipf's law, for any number of ranks, without a table.
//!
//! Rejection-inversion (W. Hörmann, G. Derflinger: Rejection-inversion to generate variates from monotone discrete
//! distributions, 1996): exact, with less than 1.2 tries in the mean.

use weir_reactor::random::Random;

#[derive(Debug, Clone)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral of the density at both ends of what is drawn from.
    low: f64,
    high: f64,
    /// Values so near to a rank are taken without a second look.
    near: f64,
}

impl Zipf {
    /// Ranks 1 to `count`, of which rank k is as likely as 1 / k^exponent.
    pub(super) fn new(count: u64, exponent: f64) -> Self {
        assert!(count > 0 && exponent > 0.0, "a distribution over something");
        let mut zipf = Zipf {
            count: count as f64,
            exponent,
            low: 0.0,
            high: 0.0,
            near: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank, from 0 on.
    pub(super) fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let under = self.high + random.unit() * (self.low - self.high);
            let value = self.inverse(under);
            let rank = (value + 0.5).floor().clamp(1.0, self.count);
            let accepted = rank - value <= self.near
                || under >= self.integral(rank + 0.5) - self.density(rank);
            if accepted {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, at: f64) -> f64 {
        (-self.exponent * at.ln()).exp()
    }

    /// The integral of the density from 1: (x^(1-s) - 1) / (1-s), and ln x where s is 1.
    fn integral(&self, at: f64) -> f64 {
        let logarithm = at.ln();
        let power = (1.0 - self.exponent) * logarithm;
        logarithm * ratio(power, power.exp_m1())
    }

    fn inverse(&self, value: f64) -> f64 {
        let power = ((1.0 - self.exponent) * value).max(-1.0);
        (value * ratio(power, power.ln_1p())).exp()
    }
}

/// The quotient of a function that is as x near 0, and x.
fn ratio(of: f64, function: f64) -> f64 {
    const NEAR_ZERO: f64 = 1e-12;
    if of.abs() < NEAR_ZERO {
        1.0
    } else {
        function / of
    }
}
