//! Little's law as a check: throughput, latency and requests in flight were counted apart, and must agree.

use crate::document::LittlesLaw;

/// By how much the requests in flight differ from what throughput times mean latency makes of them, `from_latency`. Of several volumes both are sums.
#[must_use]
pub fn littles_law(in_flight: f64, from_latency: f64) -> LittlesLaw {
    let error_percent = if in_flight > 0.0 {
        (from_latency / in_flight - 1.0) * 100.0
    } else {
        0.0
    };
    LittlesLaw {
        in_flight,
        from_latency,
        error_percent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_agrees_has_no_error_and_what_does_not_has_its() {
        assert_eq!(littles_law(32.0, 16_000.0 * 2e-3).error_percent, 0.0);
        let off = littles_law(32.0, 16_000.0 * 1e-3);
        assert_eq!((off.from_latency, off.error_percent), (16.0, -50.0));
        assert_eq!(littles_law(0.0, 0.0).error_percent, 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// A closed system obeys it: requests that go round, each slot for itself, for times that are random.
        #[test]
        fn a_simulated_system_obeys_it(seed in any::<u64>(), depth in 1usize..20) {
            let mut random = crate::model::Random::new(seed);
            let end = 1e9;
            let (mut ended, mut time) = (0u32, 0.0);
            for _ in 0..depth {
                let mut at = 0.0;
                while at < end {
                    let takes = 1e4 * random.exponential();
                    at += takes;
                    if at < end {
                        ended += 1;
                        time += takes;
                    }
                }
            }
            let (per_second, mean_ns) = (f64::from(ended), time / f64::from(ended));
            let law = littles_law(depth as f64, per_second * mean_ns / 1e9);
            prop_assert!(law.error_percent.abs() < 0.1, "seed {seed}: {law:?}");
        }
    }
}
