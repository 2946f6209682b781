//! Where a curve bends.
//!
//! Two lines bound what any closed system can do (asymptotic bounds: Denning and Buzen 1978): requests in flight over the latency without load, and the highest
//! throughput. They meet where requests in flight are as many as keep the system just busy: highest throughput × latency without load. That is the knee
//! here, for a curve by depth and for one by rate alike; for one server with random arrivals it is the point at which throughput over latency is highest
//! (Kleinrock 1979). What a curve does at the knee is read off its points, never off the lines.

use crate::document::{Knee, PastSaturation};

/// Beyond the knee by this factor the points show that it is one.
const BEYOND: f64 = 1.25;
/// Points show a knee only if throughput grows by at most this power of the requests in flight at their end: 1 is a system without load, 0 a saturated one.
const GROWTH_MAX: f64 = 0.5;
/// Points show what latency without load is only if they begin at this part of the knee or below, or with one request, which waits for no other.
const BEGINNING: f64 = 0.5;
/// Throughput holds where it stays above this part of the highest.
const HELD: f64 = 0.95;

/// A measured point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Requests in flight: as asked for, or requests a second × mean response time.
    pub outstanding: f64,
    /// Requests that ended per second.
    pub rate: f64,
    /// The mean latency.
    pub latency_ns: f64,
}

/// The knee of a curve whose points are in the order in which load was raised. None where they do not show it: too few, saturated from the beginning, or not saturated at the end.
#[must_use]
pub fn knee(samples: &[Sample]) -> Option<Knee> {
    let [first, .., before, last] = samples else {
        return None;
    };
    let rate_max = highest(samples);
    let latency_unloaded_ns = samples
        .iter()
        .map(|sample| sample.latency_ns)
        .fold(f64::MAX, f64::min);
    let outstanding = rate_max * latency_unloaded_ns / 1e9;
    // Throughput that falls at the end is past its knee, whatever the last two points say of each other.
    let growth = (last.rate / before.rate).ln() / (last.outstanding / before.outstanding).ln();
    let fell = last.rate < rate_max;
    let shown = first.outstanding <= (BEGINNING * outstanding).max(1.0)
        && last.outstanding >= BEYOND * outstanding
        && (fell || growth <= GROWTH_MAX);
    if !shown {
        return None;
    }
    let rate = rate_at(samples, outstanding).filter(|&rate| rate > 0.0)?;
    Some(Knee {
        outstanding,
        rate,
        latency_ns: outstanding / rate * 1e9,
        latency_unloaded_ns,
        rate_max,
    })
}

fn highest(samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| sample.rate).fold(0.0, f64::max)
}

/// Requests a second with so many in flight, between the two points where load first passes that.
fn rate_at(samples: &[Sample], outstanding: f64) -> Option<f64> {
    let above = samples
        .iter()
        .position(|sample| sample.outstanding >= outstanding)?;
    let high = samples[above];
    let Some(low) = above.checked_sub(1).map(|below| samples[below]) else {
        return Some(high.rate);
    };
    let part = (outstanding - low.outstanding) / (high.outstanding - low.outstanding);
    Some(low.rate + part * (high.rate - low.rate))
}

/// What happened at the points beyond the knee: requests a second at each, and how many failed in all. None where there are none.
#[must_use]
pub fn past_saturation(beyond: &[f64], rate_max: f64, errors: u64) -> Option<PastSaturation> {
    if beyond.is_empty() || rate_max <= 0.0 {
        return None;
    }
    let lowest = beyond.iter().copied().fold(f64::MAX, f64::min);
    let part = lowest / rate_max;
    let held = part >= HELD;
    let throughput = if held {
        format!(
            "throughput held ({:.0}% of the highest at least)",
            part * 100.0
        )
    } else {
        format!("throughput fell to {:.0}% of the highest", part * 100.0)
    };
    let failed = match errors {
        0 => "nothing failed".to_owned(),
        1 => "1 request failed".to_owned(),
        errors => format!("{errors} requests failed"),
    };
    Some(PastSaturation {
        points: beyond.len() as u32,
        throughput_held: held,
        throughput_percent: part * 100.0,
        errors,
        text: format!("past saturation {throughput}; {failed}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A device that does `rate` requests a second and takes `latency` seconds for one, closed loop.
    fn ideal(rate: f64, latency: f64, outstanding: f64) -> Sample {
        let done = (outstanding / latency).min(rate);
        Sample {
            outstanding,
            rate: done,
            latency_ns: outstanding / done * 1e9,
        }
    }

    fn doubling(rate: f64, latency: f64, until: u32) -> Vec<Sample> {
        (0..=until)
            .map(|power| ideal(rate, latency, f64::from(1 << power)))
            .collect()
    }

    proptest! {
        /// The knee of an ideal device is rate × latency, wherever that lies between the points.
        #[test]
        fn the_knee_of_an_ideal_device_is_found(rate in 1e3f64..1e6, knee_at in 4.0f64..150.0) {
            let latency = knee_at / rate;
            let found = knee(&doubling(rate, latency, 10)).unwrap();
            prop_assert!((found.outstanding / knee_at - 1.0).abs() < 1e-9, "{found:?}");
            prop_assert!((found.rate_max / rate - 1.0).abs() < 1e-9);
            // Between points the rate is read off the curve's chord, which lies below it.
            prop_assert!(found.rate <= rate * 1.000_001 && found.rate >= 0.8 * rate);
            let mut finer = doubling(rate, latency, 10);
            finer.push(ideal(rate, latency, knee_at));
            finer.sort_by(|one, other| one.outstanding.total_cmp(&other.outstanding));
            let finer = knee(&finer).unwrap();
            prop_assert!((finer.rate / rate - 1.0).abs() < 1e-6, "{finer:?}");
        }

        /// Where load ends below the knee there is none.
        #[test]
        fn a_curve_that_does_not_bend_has_no_knee(rate in 1e3f64..1e6, knee_at in 70.0f64..1e4) {
            prop_assert_eq!(knee(&doubling(rate, knee_at / rate, 6)), None);
        }
    }

    #[test]
    fn one_server_with_random_arrivals_has_its_knee_at_half_load() {
        let service = 1e-3;
        let samples: Vec<Sample> = (1..100)
            .map(|percent| {
                let load = f64::from(percent) / 100.0;
                Sample {
                    outstanding: load / (1.0 - load),
                    rate: load / service,
                    latency_ns: service / (1.0 - load) * 1e9,
                }
            })
            .collect();
        let found = knee(&samples).unwrap();
        assert!((found.outstanding - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.rate / 500.0 - 1.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn what_is_saturated_from_the_beginning_shows_no_knee() {
        let samples: Vec<_> = [64.0, 128.0, 256.0].map(|of| ideal(1e4, 1e-3, of)).to_vec();
        assert_eq!(knee(&samples), None);
        assert_eq!(knee(&samples[..2]), None);
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn a_curve_that_falls_past_its_knee_has_one() {
        let mut samples = doubling(1e4, 1e-3, 6);
        samples.push(Sample {
            outstanding: 128.0,
            rate: 7e3,
            latency_ns: 18e6,
        });
        let found = knee(&samples).unwrap();
        assert!((found.outstanding - 10.0).abs() < 1e-9);
        let past = past_saturation(&[1e4, 7e3], 1e4, 3).unwrap();
        assert!(!past.throughput_held && past.errors == 3 && past.points == 2);
        assert!(past.text.contains("fell to 70%") && past.text.contains("3 requests failed"));
        let held = past_saturation(&[9.9e3], 1e4, 0).unwrap();
        assert!(
            held.throughput_held && held.text.contains("nothing failed"),
            "{held:?}"
        );
        assert_eq!(past_saturation(&[], 1e4, 0), None);
    }
}
