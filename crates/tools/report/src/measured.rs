//! The runs of documents one after the other, each with a name that tells it from all others and the time at which it began.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use weir_lab::document::{Body, Comparison, Latency, LatencyError, Operations, Run};

use crate::{ReportError, Source};

/// A run in its place.
pub(crate) struct Measured<'a> {
    pub(crate) source: &'a Source,
    pub(crate) run: &'a Run,
    /// Its name within its document.
    pub(crate) name: String,
    /// Its name among all documents.
    pub(crate) label: String,
    /// When its measured time began, in seconds after the document's beginning. A document does not say that of each run: this is
    /// reckoned from the lengths of those before it.
    pub(crate) offset_seconds: f64,
}

/// All runs of all documents.
pub(crate) fn measured(sources: &[Source]) -> Vec<Measured<'_>> {
    let mut all: Vec<Measured<'_>> = Vec::new();
    for source in sources {
        let mut clock = 0.0;
        let mut phase: Option<(&str, f64)> = None;
        for (name, run) in named(source) {
            // Runs of one phase went side by side.
            let began = match (&run.phase, phase) {
                (Some(name), Some((last, began))) if name == last => began,
                _ => clock,
            };
            phase = run.phase.as_deref().map(|name| (name, began));
            clock = f64::max(clock, began + run.ramp_seconds + run.elapsed_seconds);
            let label = if sources.len() == 1 {
                name.clone()
            } else {
                format!("{}: {name}", source.name)
            };
            all.push(Measured {
                source,
                run,
                name,
                label,
                offset_seconds: began + run.ramp_seconds,
            });
        }
    }
    tell_apart(&mut all);
    all
}

fn named(source: &Source) -> Vec<(String, &Run)> {
    match &source.document.body {
        Body::Bench { runs } => runs.iter().map(|run| (run.name.clone(), run)).collect(),
        Body::Curve { curves, settings } => curves
            .iter()
            .flat_map(|curve| {
                let points = curve.points.iter().map(|point| &point.run);
                let runs = curve.maximum_runs.iter().chain(points);
                runs.map(move |run| (curve, run))
            })
            .map(|(curve, run)| match curve.name.as_str() {
                "" => (run.name.clone(), run),
                name => (format!("{name}, {}", run.name), run),
            })
            .chain(settings.iter().flat_map(compared))
            .collect(),
        Body::Comparison(comparison) => compared(comparison),
    }
}

fn compared(comparison: &Comparison) -> Vec<(String, &Run)> {
    let mut runs = Vec::new();
    for stage in &comparison.stages {
        for (index, round) in stage.rounds.iter().enumerate() {
            for (side, run) in comparison.sides.iter().zip(&round.runs) {
                let name = format!("{}, round {}, {}", stage.name, index + 1, side.name);
                runs.push((name, run));
            }
        }
    }
    runs
}

/// Numbers the runs that are called the same.
fn tell_apart(all: &mut [Measured<'_>]) {
    for index in 1..all.len() {
        let (before, rest) = all.split_at_mut(index);
        let twin = |label: &str| before.iter().any(|other| other.label == label);
        if twin(&rest[0].label) {
            let number = (2..)
                .find(|number| !twin(&format!("{} ({number})", rest[0].label)))
                .expect("there are fewer runs than numbers");
            rest[0].label = format!("{} ({number})", rest[0].label);
            rest[0].name = format!("{} ({number})", rest[0].name);
        }
    }
}

impl Measured<'_> {
    /// What a failure to read one of its histograms becomes.
    pub(crate) fn failed(&self) -> impl Fn(LatencyError) -> ReportError {
        let run = self.label.clone();
        move |error| ReportError::Histogram {
            run: run.clone(),
            error,
        }
    }
}

/// When a document was begun.
pub(crate) fn started(source: &Source) -> Result<SystemTime, ReportError> {
    humantime::parse_rfc3339_weak(&source.document.started).map_err(|_| ReportError::Started {
        source_name: source.name.clone(),
        started: source.document.started.clone(),
    })
}

/// A length of time from what a document says, which may be anything.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// What a user felt, over all kinds of requests; none where nothing ended.
pub(crate) fn felt(operations: &Operations) -> Result<Option<Latency>, LatencyError> {
    match operations.response()? {
        Some(response) => Ok(Some(response)),
        None => operations.service(),
    }
}

/// The histogram of what is there.
pub(crate) fn histogram(latency: Option<&Latency>) -> Result<Option<Histogram<u64>>, LatencyError> {
    latency.map(Latency::histogram).transpose()
}
