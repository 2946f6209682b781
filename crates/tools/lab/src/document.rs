//! The stored result of a measurement: one JSON object, `weir-result/1`.
//!
//! It holds what was asked for, on which machine, what came out with whole histograms, and every caveat that the measurement raised,
//! so that a report needs nothing else. Fields that a later version adds are passed over when it is read; what does not apply is
//! absent. Numbers carry their unit in their name. It is a form and no judgement: what a curve or a comparison means is worked out
//! before it is stored.

mod agents;
mod comparison;
mod curve;
mod latency;
mod run;

pub use agents::{Agent, Agents};
pub use comparison::{
    Comparison, Difference, Direction, Metric, NetworkPath, Overhead, Round, Side, Stage, Verdict,
};
pub use curve::{Axis, Curve, Failure, Knee, LeftOut, Objective, PastSaturation, Point};
pub use latency::{Latency, LatencyError, PERCENTILES};
pub use run::{
    Arrivals, Interval, LittlesLaw, Load, Operation, Operations, Processor, Run, SizeShare,
    SteadyState, Stream, Volume, Workload,
};

use std::io;

use serde::{Deserialize, Serialize};

/// What a document of this version begins with.
pub const SCHEMA: &str = "weir-result/1";
/// What a document of any version begins with.
const SCHEMA_FAMILY: &str = "weir-result/";

/// A stored result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was measured.
    #[serde(flatten)]
    pub body: Body,
    /// The command with its arguments; secrets are replaced ([`crate::secret::without`]).
    pub command: Vec<String>,
    /// Weir's version.
    pub version: String,
    /// When the measurement began: RFC 3339, UTC.
    pub started: String,
    /// Where the load came from.
    pub machine: Machine,
    /// What a reader of the numbers must know.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

/// What a document holds. In JSON: `"kind": "bench"` and `"body": {...}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum Body {
    /// Load, in one run or in several.
    Bench {
        /// In the order in which they began.
        runs: Vec<Run>,
    },
    /// How throughput and latency hang together.
    Curve {
        /// One for each series of points: one for `weir curve`, more where something else was varied as well.
        curves: Vec<Curve>,
        /// The settings, side by side at full load in rounds of drawn order, the best first; one stage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<Comparison>,
    },
    /// Volumes side by side.
    Comparison(Comparison),
}

/// The machine that the load came from. What could not be found out is empty, or zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    #[serde(default)]
    pub processor: String,
    /// Processors that the load may use.
    #[serde(default)]
    pub processors: u32,
    /// Memory.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
    /// The operating system's name and version.
    #[serde(default)]
    pub operating_system: String,
    /// What the kernel takes the time from.
    #[serde(default)]
    pub clock_source: String,
}

/// Something that a reader of the numbers must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caveat {
    /// The same for the same matter in every document, such as `generator-saturated`.
    pub code: String,
    /// In words.
    pub text: String,
}

impl Caveat {
    /// A caveat.
    pub fn new(code: impl Into<String>, text: impl Into<String>) -> Self {
        Caveat {
            code: code.into(),
            text: text.into(),
        }
    }
}

/// Why a text is no result.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is no result of any version.
    #[error(
        "this is no stored result of Weir: there is no \"schema\" that begins with {SCHEMA_FAMILY}; what bench, curve and compare write with --output is"
    )]
    NotAResult,
    /// It is one of another version.
    #[error(
        "the result has the form {found}, and this Weir reads {SCHEMA}; read it with the Weir that wrote it ({version}), or a later one"
    )]
    Schema {
        /// Its form.
        found: String,
        /// The version that wrote it, if it says so.
        version: String,
    },
    /// It says that it is of this version, and is not.
    #[error("the result says {SCHEMA} and does not have that form: {0}")]
    Form(serde_json::Error),
    /// It is no JSON.
    #[error("the result is no JSON: {0}")]
    Json(serde_json::Error),
    /// It could not be read or written.
    #[error("the result could not be read or written: {0}")]
    Io(#[from] io::Error),
}

/// What is looked at first.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
    version: Option<String>,
}

impl Document {
    /// A document of this version.
    #[must_use]
    pub fn new(
        body: Body,
        command: Vec<String>,
        version: String,
        started: String,
        machine: Machine,
    ) -> Self {
        Document {
            schema: SCHEMA.to_owned(),
            body,
            command,
            version,
            started,
            machine,
            caveats: Vec::new(),
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        let head: Head = match serde_json::from_str(text) {
            Ok(head) => head,
            Err(error) if error.is_data() => return Err(DocumentError::NotAResult),
            Err(error) => return Err(DocumentError::Json(error)),
        };
        match head.schema {
            Some(schema) if schema == SCHEMA => {
                serde_json::from_str(text).map_err(DocumentError::Form)
            }
            Some(schema) if schema.starts_with(SCHEMA_FAMILY) => Err(DocumentError::Schema {
                found: schema,
                version: head.version.unwrap_or_else(|| "unknown".to_owned()),
            }),
            _ => Err(DocumentError::NotAResult),
        }
    }

    /// Reads a document to the end of `source`.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn read(mut source: impl io::Read) -> Result<Self, DocumentError> {
        let mut text = String::new();
        source.read_to_string(&mut text)?;
        Self::from_json(&text)
    }

    /// Writes the document as JSON, with a newline at its end.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn write(&self, mut sink: impl io::Write) -> Result<(), DocumentError> {
        serde_json::to_writer_pretty(&mut sink, self)
            .map_err(|error| DocumentError::Io(error.into()))?;
        Ok(sink.write_all(b"\n")?)
    }

    /// All runs that the document shows, in the order in which they stand there; not those that only looked for a maximum.
    #[must_use]
    pub fn runs(&self) -> Vec<&Run> {
        match &self.body {
            Body::Bench { runs } => runs.iter().collect(),
            Body::Curve { curves, settings } => {
                let points = curves.iter().flat_map(|curve| &curve.points);
                let compared = settings.iter().flat_map(Comparison::runs);
                points.map(|point| &point.run).chain(compared).collect()
            }
            Body::Comparison(comparison) => comparison.runs().collect(),
        }
    }

    /// Requests that failed in runs which no point of a curve shows.
    #[must_use]
    pub fn left_out_errors(&self) -> u64 {
        let Body::Curve { curves, .. } = &self.body else {
            return 0;
        };
        let points = curves.iter().flat_map(|curve| &curve.points);
        points
            .flat_map(|point| &point.left_out)
            .map(|of| of.errors)
            .sum()
    }

    /// What could not be measured at all, of curves.
    #[must_use]
    pub fn failures(&self) -> Vec<&Failure> {
        match &self.body {
            Body::Curve { curves, .. } => curves.iter().flat_map(|curve| &curve.failures).collect(),
            Body::Bench { .. } | Body::Comparison(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
