//! A curve: the same work under more and more load.

use serde::{Deserialize, Serialize};

use super::run::Run;

/// A series of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What tells it from the others of the document; empty where it is the only one.
    #[serde(default)]
    pub name: String,
    /// What was raised from point to point.
    pub axis: Axis,
    /// Requests a second at most, as a closed load found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_rate: Option<f64>,
    /// How that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maximum_runs: Vec<Run>,
    /// In the order of what was raised.
    pub points: Vec<Point>,
    /// What could not be measured; the curve ends with the first. Where requests were made and none succeeded, their run is among the points too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Where more load begins to buy latency and not throughput; none where the points do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// What was asked for with `--objective`.
    #[serde(default)]
    pub objectives: Vec<Objective>,
    /// What happened beyond the knee; none where no point is beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past_saturation: Option<PastSaturation>,
    /// Why there are no further points.
    pub stopped: String,
}

/// What is raised along a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Requests in flight, closed loop.
    Depth,
    /// Requests offered per second, open loop.
    Rate,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests in flight of all queues together, or requests offered per second.
    pub offered: f64,
    /// The same in hundredths of the curve's `maximum_rate`; curves by rate only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_of_maximum: Option<f64>,
    /// Whether it was added afterwards, to see more of the knee or of an objective.
    #[serde(default)]
    pub refinement: bool,
    /// What came out.
    pub run: Run,
    /// Other runs of the same load: in each of them the generator was no less late than in the one that is shown, or requests failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

impl Point {
    /// What to say of the runs that it does not show, with the words for a time in nanoseconds. None where there are none.
    #[must_use]
    pub fn left_out_text(&self, words: impl Fn(f64) -> String) -> Option<String> {
        let latest = self.left_out.iter().map(|of| of.late_ns_max).max()?;
        let late = words(latest as f64);
        let (runs, are) = match self.left_out.len() {
            1 => ("a run".to_owned(), "is"),
            runs => (format!("{runs} runs"), "are"),
        };
        let failed = match self.left_out.iter().map(|of| of.errors).sum::<u64>() {
            0 => String::new(),
            errors => format!(", with {errors} requests that failed,"),
        };
        Some(format!(
            "{runs} in which the load generator was up to {late} late{failed} {are} left out"
        ))
    }
}

/// A run that a point does not show: the generator was no less late in it than in the one that is shown, or requests failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// What the randomness started from.
    pub seed: u64,
    /// By how much the generator was late at most, as [`Run::late_ns_max`].
    pub late_ns_max: u64,
    /// Requests that failed.
    #[serde(default)]
    pub errors: u64,
    /// Requests a second.
    pub rate: f64,
    /// Mean response time; absent where nothing succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
}

/// A point that could not be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What the run was to be called, such as `depth 32`.
    pub point: String,
    /// As [`Point::offered`].
    pub offered: f64,
    /// Why.
    pub reason: String,
}

/// Where more load begins to buy latency and not throughput: requests in flight are as many as keep the volume just busy, highest throughput
/// times latency without load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Requests in flight there.
    pub outstanding: f64,
    /// Requests a second there, between measured points where need be.
    pub rate: f64,
    /// Mean latency there.
    pub latency_ns: f64,
    /// Mean latency without load.
    pub latency_unloaded_ns: f64,
    /// Highest requests a second.
    pub rate_max: f64,
}

/// What became of an objective, such as `p99<2ms`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As it was asked for.
    pub objective: String,
    /// The highest measured requests a second at which, and below which, it held; none where it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What the metric was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_ns: Option<f64>,
    /// The lowest measured requests a second at which it did not hold; none where it always did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_rate: Option<f64>,
}

/// What happened when more was asked for than could be had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastSaturation {
    /// Points beyond the knee.
    pub points: u32,
    /// Whether throughput held.
    pub throughput_held: bool,
    /// The lowest throughput there, of the highest of the curve.
    pub throughput_percent: f64,
    /// Requests that failed there.
    pub errors: u64,
    /// In words.
    pub text: String,
}
