//! Objectives such as `p99<2ms`: reading them, and the highest rate at which one holds.

use std::fmt;
use std::str::FromStr;

use crate::document::{Latency, LatencyError};

/// What an objective bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// The mean.
    Mean,
    /// The longest.
    Max,
    /// What so many of 100 requests do not exceed.
    Percentile(f64),
}

/// A bound on latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// What is bounded.
    pub quantity: Quantity,
    /// The bound, which itself is not allowed, in nanoseconds.
    pub below_ns: f64,
}

/// Why a text is no objective.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no objective: {wrong}; write QUANTITY<TIME, such as p99<2ms, mean<500us or max<1s, where QUANTITY is mean, max or p0 to p100 and TIME has the unit ns, us, ms or s"
)]
pub struct ObjectiveError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub wrong: String,
}

impl Objective {
    /// What the objective bounds, in nanoseconds, of a run of which `answered` requests have `latency`. It is that of all requests: those that failed, or were
    /// due and never sent, are `missing`, and took longer than any bound. With one of them a mean and a maximum are infinite.
    ///
    /// # Errors
    /// [`LatencyError`], where a stored histogram cannot be read.
    pub fn value_ns(
        &self,
        latency: &Latency,
        answered: u64,
        missing: u64,
    ) -> Result<f64, LatencyError> {
        Ok(match self.quantity {
            Quantity::Mean | Quantity::Max if missing > 0 => f64::INFINITY,
            Quantity::Mean => latency.mean_ns,
            Quantity::Max => latency.max_ns as f64,
            Quantity::Percentile(percentile) => {
                let of_answered = percentile * (1.0 + missing as f64 / answered.max(1) as f64);
                match of_answered <= 100.0 {
                    true => latency.percentile_ns(of_answered)? as f64,
                    false => f64::INFINITY,
                }
            }
        })
    }

    /// Whether a value of it holds.
    #[must_use]
    pub fn holds(&self, value_ns: f64) -> bool {
        value_ns < self.below_ns
    }
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        let error = |wrong: String| ObjectiveError {
            text: text.to_owned(),
            wrong,
        };
        let (quantity, time) = text
            .split_once('<')
            .ok_or_else(|| error("there is no '<'".to_owned()))?;
        let quantity = read_quantity(quantity.trim()).map_err(error)?;
        let below_ns = read_time(time.trim()).map_err(error)?;
        Ok(Objective { quantity, below_ns })
    }
}

fn read_quantity(text: &str) -> Result<Quantity, String> {
    match text {
        "mean" => return Ok(Quantity::Mean),
        "max" => return Ok(Quantity::Max),
        _ => {}
    }
    let percentile = text.strip_prefix('p').and_then(|number| {
        let plain = number.bytes().all(|of| of.is_ascii_digit() || of == b'.');
        number.parse::<f64>().ok().filter(|_| plain)
    });
    match percentile {
        Some(percentile) if percentile <= 100.0 => Ok(Quantity::Percentile(percentile)),
        _ => Err(format!("'{text}' is not mean, max or p0 to p100")),
    }
}

fn read_time(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let digits = text
        .find(|of: char| !of.is_ascii_digit() && of != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = UNITS
        .iter()
        .find(|(name, _)| *name == unit.trim())
        .ok_or_else(|| format!("'{text}' has no unit of time that is known"))?
        .1;
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok(number * scale),
        _ => Err(format!("'{number}' is no number above 0")),
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quantity {
            Quantity::Mean => formatter.write_str("mean<")?,
            Quantity::Max => formatter.write_str("max<")?,
            Quantity::Percentile(percentile) => write!(formatter, "p{percentile}<")?,
        }
        let (scale, unit) = match self.below_ns {
            ns if ns < 1e3 => (1.0, "ns"),
            ns if ns < 1e6 => (1e3, "us"),
            ns if ns < 1e9 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        write!(formatter, "{}{unit}", self.below_ns / scale)
    }
}

/// Where an objective holds, by what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attained {
    /// The highest requests a second at which, and below which, it holds; none where it never does.
    pub rate: Option<f64>,
    /// The value there.
    pub value_ns: Option<f64>,
    /// The lowest requests a second at which it does not; none where it always does.
    pub broken_rate: Option<f64>,
}

/// Where an objective holds, from pairs of requests a second and the objective's value there, in the order in which load was raised. What holds beyond
/// a point where it did not is luck, and does not count.
#[must_use]
pub fn attained(objective: &Objective, points: &[(f64, f64)]) -> Attained {
    let broken = points
        .iter()
        .position(|&(_, value_ns)| !objective.holds(value_ns));
    let holding = &points[..broken.unwrap_or(points.len())];
    let best = holding
        .iter()
        .copied()
        .max_by(|one, other| one.0.total_cmp(&other.0));
    Attained {
        rate: best.map(|best| best.0),
        value_ns: best.map(|best| best.1),
        broken_rate: broken.map(|at| points[at].0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Objective {
        text.parse().unwrap()
    }

    #[test]
    fn what_was_never_answered_took_longer_than_the_rest() {
        let mut histogram = hdrhistogram::Histogram::new(3).unwrap();
        histogram.record_n(1_000, 950).unwrap();
        histogram.record_n(9_000, 50).unwrap();
        let latency = Latency::of(&histogram).unwrap();
        let value = |text, missing| read(text).value_ns(&latency, 1000, missing).unwrap();
        assert!((value("p90<1us", 0) - 1e3).abs() < 10.0);
        assert!((value("p90<1us", 60) - 9e3).abs() < 90.0);
        assert!(value("p90<1us", 120).is_infinite());
        assert!(!read("p90<60s").holds(f64::INFINITY));
        assert!((value("mean<1us", 0) / 1_400.0 - 1.0).abs() < 0.01);
        assert!((value("max<1us", 0) - 9e3).abs() < 90.0);
        for of_all in ["mean<60s", "max<60s"] {
            assert!(value(of_all, 1).is_infinite(), "{of_all}");
        }
    }

    #[test]
    fn objectives_are_read() {
        for (text, quantity, below_ns) in [
            ("p99<2ms", Quantity::Percentile(99.0), 2e6),
            ("p99.9 < 1.5 ms", Quantity::Percentile(99.9), 1.5e6),
            ("mean<500us", Quantity::Mean, 5e5),
            ("max<1s", Quantity::Max, 1e9),
            ("p50<800ns", Quantity::Percentile(50.0), 800.0),
        ] {
            assert_eq!(read(text), Objective { quantity, below_ns }, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_way_out() {
        for (text, part) in [
            ("", "no '<'"),
            ("p99", "no '<'"),
            ("p101<1ms", "p101"),
            ("p<1ms", "'p'"),
            ("p-1<1ms", "p-1"),
            ("pinf<1ms", "pinf"),
            ("median<1ms", "median"),
            ("p99<2", "unit"),
            ("p99<2h", "unit"),
            ("p99<0ms", "above 0"),
            ("p99<ms", "above 0"),
            ("p99<=2ms", "unit"),
            ("p99<-2ms", "unit"),
            ("p99<1.2.3ms", "above 0"),
        ] {
            let error = text.parse::<Objective>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("p99<2ms"), "{text}: {error}");
        }
    }

    #[test]
    fn the_highest_rate_that_holds_is_found() {
        let objective = read("p99<2ms");
        let points = [(1e3, 1e6), (2e3, 1.5e6), (3e3, 2e6), (4e3, 1e6)];
        assert_eq!(
            attained(&objective, &points),
            Attained {
                rate: Some(2e3),
                value_ns: Some(1.5e6),
                broken_rate: Some(3e3),
            }
        );
        assert_eq!(attained(&objective, &points[..2]).broken_rate, None);
        assert_eq!(attained(&objective, &points[2..]).rate, None);
        // Past saturation more load yields less throughput.
        let falling = [(1e3, 1e6), (3e3, 1.5e6), (2.5e3, 1.9e6), (2.4e3, 5e6)];
        assert_eq!(attained(&objective, &falling).rate, Some(3e3));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(percentile in 0u32..1000, ns in 1u64..10_000_000_000) {
            let quantity = Quantity::Percentile(f64::from(percentile) / 10.0);
            let objective = Objective { quantity, below_ns: ns as f64 };
            let again: Objective = objective.to_string().parse().unwrap();
            prop_assert_eq!(again.quantity, objective.quantity);
            prop_assert!((again.below_ns / objective.below_ns - 1.0).abs() < 1e-12);
        }
    }
}
