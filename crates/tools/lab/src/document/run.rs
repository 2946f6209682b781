//! One run: what was asked for, and what came out.

use serde::{Deserialize, Serialize};

use super::agents::Agents;
use super::latency::{Latency, LatencyError};

/// One load on one or several volumes, from its ramp to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What tells it from the others of the document, such as `depth 32` or a job's name.
    pub name: String,
    /// The phase of the job file that it belongs to; runs of one phase went side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What it worked on. A volume that several hosts used stands here once.
    pub volumes: Vec<Volume>,
    /// What was asked of each.
    pub workload: Workload,
    /// How much of it.
    pub load: Load,
    /// What the randomness started from.
    pub seed: u64,
    /// For how long it ran before it was measured.
    pub ramp_seconds: f64,
    /// For how long it was measured.
    pub elapsed_seconds: f64,
    /// What was done while it was measured.
    pub operations: Operations,
    /// Requests that ended while it was measured, where `operations` counts otherwise: with an open load that is what was due in the time, whenever it
    /// ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The same over time. With an open load there are further ones behind the measured time, for what was due in it and ended later.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// By how much requests were issued later than they were due; open loads only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Latency>,
    /// By how much the generator was late at most: a request was due, there was room for it, and it was not sent; open loads only, and absent in results
    /// of versions that did not tell. What waited for room is in `lag` too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ns_max: Option<u64>,
    /// Requests that were due and never sent; they are in no other number.
    #[serde(default)]
    pub unsent: u64,
    /// Requests of a closed load that were in flight at the end and ended well behind it; they are in no other number.
    #[serde(default)]
    pub unfinished: u64,
    /// Whether the numbers hang together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub littles_law: Option<LittlesLaw>,
    /// Whether it had become steady.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady_state: Option<SteadyState>,
    /// Processor time that it took.
    #[serde(default)]
    pub processor: Processor,
    /// The first request that failed, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// The machines that the load came from, where it was not the one of the document alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Agents>,
}

/// What a run worked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// As it was named; secrets are replaced.
    pub url: String,
    /// As it calls itself.
    pub name: String,
    /// Bytes of a block.
    pub block_size_bytes: u32,
    /// Bytes of all blocks.
    pub length_bytes: u64,
    /// Bytes of one request at most.
    #[serde(default)]
    pub transfer_bytes_max: u64,
    /// Whether what is written stands in a cache that a power failure empties.
    #[serde(default)]
    pub volatile_cache: bool,
    /// Its part of the run, where there were several volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
}

/// What was asked of each volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name, where it has one, such as `sql-90-10`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In words.
    pub text: String,
    /// Where its definition comes from, and what of it is assumed; of a workload with a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What it is mixed from.
    pub streams: Vec<Stream>,
    /// Only the first so many bytes of a volume are used; all of them where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_bytes: Option<u64>,
    /// How much of what is written can be compressed away.
    #[serde(default)]
    pub compressible_percent: f64,
}

/// One part of a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// How many of 100 requests of the workload are its.
    pub share_percent: f64,
    /// How many of 100 of its requests read.
    pub read_percent: f64,
    /// How many of 100 of its requests write.
    pub write_percent: f64,
    /// How many of 100 of its requests deallocate.
    #[serde(default)]
    pub deallocate_percent: f64,
    /// How many of 100 of its requests flush.
    #[serde(default)]
    pub flush_percent: f64,
    /// How long its requests are.
    pub sizes: Vec<SizeShare>,
    /// Which blocks it asks for, as the command line would have it: `random`, `sequential`, `zipf:1.1`, ...
    pub pattern: String,
    /// What the places of its random requests are multiples of; of their own length where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align_bytes: Option<u64>,
    /// Only the first so many bytes of what the workload uses; all of them where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_bytes: Option<u64>,
}

/// How often a length of request comes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SizeShare {
    /// The length.
    pub bytes: u64,
    /// How many of 100 requests have it.
    pub percent: f64,
}

/// How much load. Outstanding requests in all are queues times depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "snake_case")]
pub enum Load {
    /// So many requests in flight, the next as soon as one ends.
    Closed {
        /// Requests in flight of each queue.
        depth: u32,
        /// Queues in all.
        queues: u32,
        /// Hosts that they are spread over.
        hosts: u32,
    },
    /// So many requests a second, whatever becomes of them.
    Open {
        /// Requests a second of all queues together.
        rate: f64,
        /// How they are spread.
        arrivals: Arrivals,
        /// Requests in flight of each queue at most; what is due beyond them waits.
        depth_max: u32,
        /// Queues in all.
        queues: u32,
        /// Hosts that they are spread over.
        hosts: u32,
    },
}

impl Load {
    /// Queues in all.
    #[must_use]
    pub fn queues(&self) -> u32 {
        match *self {
            Load::Closed { queues, .. } | Load::Open { queues, .. } => queues,
        }
    }

    /// Hosts that the queues are spread over.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        match *self {
            Load::Closed { hosts, .. } | Load::Open { hosts, .. } => hosts,
        }
    }

    /// Requests in flight of all queues together: those of a closed load, and at most those of an open one.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        match *self {
            Load::Closed { depth, queues, .. } => u64::from(depth) * u64::from(queues),
            Load::Open {
                depth_max, queues, ..
            } => u64::from(depth_max) * u64::from(queues),
        }
    }

    /// Requests a second that are offered; none where the load is closed.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match *self {
            Load::Closed { .. } => None,
            Load::Open { rate, .. } => Some(rate),
        }
    }
}

/// How arrivals are spread in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Evenly.
    Uniform,
    /// Independently of each other, with exponential times between them.
    Exponential,
}

/// What was done, by kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    /// Reads.
    #[serde(default, skip_serializing_if = "Operation::is_nothing")]
    pub read: Operation,
    /// Writes.
    #[serde(default, skip_serializing_if = "Operation::is_nothing")]
    pub write: Operation,
    /// Deallocations.
    #[serde(default, skip_serializing_if = "Operation::is_nothing")]
    pub deallocate: Operation,
    /// Flushes.
    #[serde(default, skip_serializing_if = "Operation::is_nothing")]
    pub flush: Operation,
}

impl Operations {
    /// The kinds with their names.
    #[must_use]
    pub fn each(&self) -> [(&'static str, &Operation); 4] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("deallocate", &self.deallocate),
            ("flush", &self.flush),
        ]
    }

    /// Requests of all kinds that succeeded.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.each().iter().map(|(_, of)| of.requests).sum()
    }

    /// Bytes read and written. What is deallocated goes nowhere.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// Requests of all kinds that failed.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.each().iter().map(|(_, of)| of.errors).sum()
    }

    /// Service times of all kinds; none where nothing ended.
    ///
    /// # Errors
    /// [`LatencyError`], where the document was not written by Weir.
    pub fn service(&self) -> Result<Option<Latency>, LatencyError> {
        together(self.each().map(|(_, of)| of.service.as_ref()))
    }

    /// Response times of all kinds; none where the load was closed or nothing ended.
    ///
    /// # Errors
    /// [`LatencyError`], where the document was not written by Weir.
    pub fn response(&self) -> Result<Option<Latency>, LatencyError> {
        together(self.each().map(|(_, of)| of.response.as_ref()))
    }
}

fn together(parts: [Option<&Latency>; 4]) -> Result<Option<Latency>, LatencyError> {
    let present: Vec<_> = parts.into_iter().flatten().collect();
    match present[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        _ => Ok(Latency::merged(present)?.as_ref().and_then(Latency::of)),
    }
}

/// One kind of request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Requests that succeeded.
    pub requests: u64,
    /// Their bytes; those of flushes are none.
    pub bytes: u64,
    /// Requests that failed; they are in no other number.
    #[serde(default)]
    pub errors: u64,
    /// From issuing a request to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Latency>,
    /// From when a request was due to its end; open loads only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Latency>,
}

impl Operation {
    /// Whether there was no such request.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Operation::default()
    }

    /// What a user feels: the response time, and the service time where the load is closed.
    #[must_use]
    pub fn felt(&self) -> Option<&Latency> {
        self.response.as_ref().or(self.service.as_ref())
    }
}

/// A part of the measured time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it begins, from the beginning of what is measured.
    pub start_seconds: f64,
    /// How long it is.
    pub length_seconds: f64,
    /// Requests that ended in it.
    pub operations: Operations,
    /// By how much requests were issued later than they were due, at most; open loads only.
    #[serde(default)]
    pub lag_ns_max: u64,
}

/// Little's law: requests in flight = requests a second × time that each takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LittlesLaw {
    /// Requests in flight, as the mean over time.
    pub in_flight: f64,
    /// What throughput and latency make of it.
    pub from_latency: f64,
    /// By how much that differs.
    pub error_percent: f64,
}

/// Whether a run was steady, by the rule of SNIA's Solid State Storage Performance Test Specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// What was looked at, with its unit, such as `requests per second`.
    pub metric: String,
    /// How long a round is.
    pub round_seconds: f64,
    /// The metric in each round.
    pub rounds: Vec<f64>,
    /// Whether there is a window of five rounds that is steady.
    pub reached: bool,
    /// Whether it stayed so: from the first round of that window to the last of all, highest and lowest are as near to each other as in the
    /// window. Absent in results that did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The first round, counted from 0, of the first steady window, or of the last window where none is.
    pub window_start: u32,
    /// The metric's mean in that window.
    pub mean: f64,
    /// How far highest and lowest are apart in that window, of the mean.
    pub range_percent: f64,
    /// How far the best-fit line climbs or falls in that window, of the mean.
    pub slope_percent: f64,
}

/// Processor time while it was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// What the generator took, with volumes that it holds itself; absent where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_seconds: Option<f64>,
    /// For how many hundredths of the time each of the generator's threads had work.
    #[serde(default)]
    pub generator_busy_percent: Vec<f64>,
    /// What a gateway on the same machine took, where one was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_seconds: Option<f64>,
    /// Whether the generator itself was the limit.
    #[serde(default)]
    pub generator_saturated: bool,
}

impl Run {
    /// Requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        per_second(
            self.ended.unwrap_or_else(|| self.operations.requests()),
            self.elapsed_seconds,
        )
    }

    /// Bytes read and written a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.directions_bytes_per_second().iter().sum()
    }

    /// Bytes read a second, and written: what a link carries in each of its directions.
    #[must_use]
    pub fn directions_bytes_per_second(&self) -> [f64; 2] {
        let requests = self.operations.requests();
        [&self.operations.read, &self.operations.write].map(|of| match requests {
            0 => 0.0,
            _ => self.rate() * of.bytes as f64 / requests as f64,
        })
    }

    /// Requests that failed.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.operations.errors()
    }

    /// Why it is not whole, where a machine that was to make a part of the load did not do so to the end.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.agents.as_ref()?.error.as_deref()
    }

    /// What a user feels: response times of all kinds, and service times where the load was closed. None where nothing ended.
    ///
    /// # Errors
    /// [`LatencyError`], where the document was not written by Weir.
    pub fn felt(&self) -> Result<Option<Latency>, LatencyError> {
        match self.operations.response()? {
            Some(response) => Ok(Some(response)),
            None => self.operations.service(),
        }
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
