//! The machines that a run's load came from, where there were several.

use serde::{Deserialize, Serialize};

use super::Machine;
use super::latency::Latency;
use super::run::{Operations, Processor};

/// What each machine did of a run, and whether all of them did it to the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agents {
    /// In the order in which they were named.
    pub each: Vec<Agent>,
    /// How far apart the first and the last one began; absent where one did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_spread_seconds: Option<f64>,
    /// By how much that may be wrong: nothing is known of their clocks, and a message takes a part of its round trip that nobody can measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_uncertainty_seconds: Option<f64>,
    /// Why the run is not whole. Where this is present its numbers are of what was measured until then, and no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A machine's part of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// As it was named: its address.
    pub name: String,
    /// The version of Weir that it runs.
    #[serde(default)]
    pub version: String,
    /// What it is.
    #[serde(default)]
    pub machine: Machine,
    /// What its randomness started from.
    #[serde(default)]
    pub seed: u64,
    /// By how much later than the first one it began; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_offset_seconds: Option<f64>,
    /// The shortest round trip of a message to it and back, before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_seconds: Option<f64>,
    /// For how long it measured.
    pub elapsed_seconds: f64,
    /// What it did.
    pub operations: Operations,
    /// By how much it issued requests later than they were due; open loads only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Latency>,
    /// Requests that were due and that it never sent.
    #[serde(default)]
    pub unsent: u64,
    /// Processor time that it took.
    #[serde(default)]
    pub processor: Processor,
    /// Why its part is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Agent {
    /// Requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        per_second(self.operations.requests(), self.elapsed_seconds)
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.operations.bytes(), self.elapsed_seconds)
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
