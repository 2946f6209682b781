//! A comparison: the same work on several volumes, in rounds of drawn order.

use serde::{Deserialize, Serialize};

use super::run::{Load, Run, Volume};

/// Volumes side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What is compared; the first is what the others are measured against.
    pub sides: Vec<Side>,
    /// One for each kind of load.
    pub stages: Vec<Stage>,
    /// How sure the intervals of all differences together are.
    pub confidence_percent: f64,
    /// Differences below this are not shown, however sure.
    pub least_difference_percent: f64,
    /// The whole in a sentence.
    pub summary: String,
}

impl Comparison {
    /// All runs, in the order in which they stand there.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        let rounds = self.stages.iter().flat_map(|stage| &stage.rounds);
        rounds.flat_map(|round| &round.runs)
    }
}

/// One of what is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// What it is called: `A`, `B`, ...
    pub name: String,
    /// What it is.
    pub volumes: Vec<Volume>,
    /// Ways from the machine that makes the load to remote volumes, each once; empty where there is none, or it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<NetworkPath>,
    /// Requests a second at most: the mean of the rounds of the stage that finds it, without those in which nothing succeeded.
    pub maximum_rate: f64,
}

/// The way to a remote volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPath {
    /// The interface by which it begins; `lo` where it does not leave the machine.
    pub interface: String,
    /// The largest packet on it, in bytes.
    pub mtu_bytes: u32,
    /// Speed of the interface in each direction, in bits a second; none where it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bits_per_second: Option<u64>,
    /// Overhead of headers; none where requests are of several sizes, or carry no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
}

/// Overhead of headers on the data of one request, computed for full segments with TCP time stamps. Commands and answers without
/// data are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overhead {
    /// The data, in bytes.
    pub data_bytes: u64,
    /// TCP segments that carry it.
    pub segments: u64,
    /// All that is on the wire for it, in bytes: headers of the protocol, TCP and IP, and Ethernet frames where it leaves the machine.
    pub wire_bytes: u64,
}

impl NetworkPath {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let speed = match self.speed_bits_per_second {
            Some(bits) => format!("{} Gb/s", bits as f64 / 1e9),
            None if self.interface == "lo" => "within the machine".to_owned(),
            None => "of unknown speed".to_owned(),
        };
        let mut text = format!("{} ({speed}), MTU {}", self.interface, self.mtu_bytes);
        if let Some(of) = self.overhead {
            let percent = (of.wire_bytes as f64 / of.data_bytes as f64 - 1.0) * 100.0;
            let segments = if of.segments == 1 {
                "segment"
            } else {
                "segments"
            };
            text += &format!(
                ", headers add {percent:.1}% to {} bytes of data ({} {segments})",
                of.data_bytes, of.segments
            );
        }
        text
    }
}

/// One kind of load, in several rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Such as `80% of each maximum`.
    pub name: String,
    /// The load of each side.
    pub loads: Vec<Load>,
    /// In the order in which they were run.
    pub rounds: Vec<Round>,
    /// What came of it: for each side but the first, each metric.
    pub differences: Vec<Difference>,
}

/// Each side once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// In which order the sides ran, by index.
    pub order: Vec<u32>,
    /// By side, not in the order of running.
    pub runs: Vec<Run>,
}

/// By how much a side differs from the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The side, by index.
    pub side: u32,
    /// What differs.
    pub metric: Metric,
    /// What the first side has: requests a second or nanoseconds.
    pub baseline: f64,
    /// What this side has.
    pub value: f64,
    /// By how much that is more; 0 where nothing is known of it.
    pub percent: f64,
    /// The lower end of the confidence interval of that.
    pub percent_low: f64,
    /// Its upper end.
    pub percent_high: f64,
    /// What to say about it.
    pub verdict: Verdict,
    /// Why nothing is known of it; with [`Verdict::Unknown`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Requests a second.
    Throughput,
    /// The mean of what a user feels.
    LatencyMean,
    /// Its 99th percentile.
    LatencyP99,
}

/// What is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// More.
    Higher,
    /// Less.
    Lower,
}

impl Metric {
    /// What is better.
    #[must_use]
    pub fn better(self) -> Direction {
        match self {
            Metric::Throughput => Direction::Higher,
            Metric::LatencyMean | Metric::LatencyP99 => Direction::Lower,
        }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::LatencyMean => "mean latency",
            Metric::LatencyP99 => "p99 latency",
        }
    }
}

/// What to say about a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is better than the first.
    Better,
    /// It is worse than the first.
    Worse,
    /// No difference was shown.
    NoDifferenceShown,
    /// The load fixes the metric, so that it says nothing; the same offered rate on both sides, which both sustained.
    Fixed,
    /// Nothing can be said: there was a round in which a side did nothing, so that there is no ratio, or something disturbed the measurement.
    Unknown,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifferenceShown => "no difference shown",
            Verdict::Fixed => "as offered",
            Verdict::Unknown => "unknown",
        }
    }
}
