//! Comma-separated values: a row for each run, and for each interval of it, by kind of request and for all kinds together.
//!
//! `scope` says which: `run` or `interval`. Latencies are in nanoseconds and empty where there are none; what only a whole run
//! has (lag, processor time) stands in the rows of `scope` run and `operation` all. Where a run is not whole every row of it says why (`error`).

use std::io;

use weir_lab::document::{Latency, LatencyError, Load, Operation, Operations};

use crate::measured::{Measured, measured};
use crate::{ReportError, Source};

/// Percentiles that have a column.
const PERCENTILES: [f64; 7] = [25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99];

/// A row before its latencies.
struct Scope<'a> {
    measured: &'a Measured<'a>,
    name: &'static str,
    start_seconds: f64,
    length_seconds: f64,
}

pub(crate) fn write(sources: &[Source], sink: &mut dyn io::Write) -> Result<(), ReportError> {
    let mut table = csv::Writer::from_writer(sink);
    let written = |error: csv::Error| ReportError::Io(error.into());
    table.write_record(heading()).map_err(written)?;
    for of in &measured(sources) {
        let whole = Scope {
            measured: of,
            name: "run",
            start_seconds: 0.0,
            length_seconds: of.run.elapsed_seconds,
        };
        for row in whole.rows(&of.run.operations).map_err(of.failed())? {
            table.write_record(row).map_err(written)?;
        }
        for interval in &of.run.intervals {
            let part = Scope {
                measured: of,
                name: "interval",
                start_seconds: interval.start_seconds,
                length_seconds: interval.length_seconds,
            };
            for row in part.rows(&interval.operations).map_err(of.failed())? {
                table.write_record(row).map_err(written)?;
            }
        }
    }
    Ok(table.flush()?)
}

fn heading() -> Vec<String> {
    let mut heading: Vec<String> = [
        "source",
        "started",
        "version",
        "run",
        "volumes",
        "workload",
        "loop",
        "queues",
        "hosts",
        "outstanding",
        "offered_per_second",
        "scope",
        "start_seconds",
        "length_seconds",
        "operation",
        "requests",
        "bytes",
        "errors",
        "requests_per_second",
        "bytes_per_second",
    ]
    .map(str::to_owned)
    .to_vec();
    for time in ["service", "response"] {
        heading.extend(["min", "mean", "stddev"].map(|of| format!("{time}_{of}_ns")));
        heading.extend(PERCENTILES.map(|percentile| format!("{time}_p{percentile}_ns")));
        heading.push(format!("{time}_max_ns"));
    }
    heading.extend(
        [
            "unsent",
            "lag_p99_ns",
            "lag_max_ns",
            "littles_law_error_percent",
            "generator_seconds",
            "gateway_seconds",
            "error",
        ]
        .map(str::to_owned),
    );
    heading
}

impl Scope<'_> {
    fn rows(&self, operations: &Operations) -> Result<Vec<Vec<String>>, LatencyError> {
        let kinds: Vec<_> = operations
            .each()
            .into_iter()
            .filter(|(_, of)| !of.is_nothing())
            .collect();
        let mut rows = Vec::with_capacity(kinds.len() + 1);
        for (name, operation) in &kinds {
            rows.push(self.row(name, operation, None)?);
        }
        let all = Operation {
            requests: operations.requests(),
            bytes: operations.bytes(),
            errors: operations.errors(),
            service: operations.service()?,
            response: operations.response()?,
        };
        rows.push(self.row("all", &all, Some(self.name == "run"))?);
        Ok(rows)
    }

    /// `whole` is whether the row is of all kinds, and if so whether of a whole run.
    fn row(
        &self,
        name: &str,
        operation: &Operation,
        whole: Option<bool>,
    ) -> Result<Vec<String>, LatencyError> {
        let (of, run) = (self.measured, self.measured.run);
        let document = &of.source.document;
        let urls: Vec<_> = run
            .volumes
            .iter()
            .map(|volume| volume.url.as_str())
            .collect();
        let workload = run.workload.name.as_deref().unwrap_or(&run.workload.text);
        // A run with an open load counts what was due in its time; its rate is of what ended in it.
        let per_second = |count: u64| count as f64 / self.length_seconds.max(f64::MIN_POSITIVE);
        let (rate, bytes_rate) = match whole {
            Some(true) => (run.rate(), run.bytes_per_second()),
            _ => (per_second(operation.requests), per_second(operation.bytes)),
        };
        let mut row = vec![
            of.source.name.clone(),
            document.started.clone(),
            document.version.clone(),
            of.name.clone(),
            urls.join(" "),
            workload.to_owned(),
            match run.load {
                Load::Closed { .. } => "closed".to_owned(),
                Load::Open { .. } => "open".to_owned(),
            },
            run.load.queues().to_string(),
            run.load.hosts().to_string(),
            run.load.outstanding().to_string(),
            optional(run.load.rate()),
            self.name.to_owned(),
            self.start_seconds.to_string(),
            self.length_seconds.to_string(),
            name.to_owned(),
            operation.requests.to_string(),
            operation.bytes.to_string(),
            operation.errors.to_string(),
            rate.to_string(),
            bytes_rate.to_string(),
        ];
        row.extend(latency(operation.service.as_ref())?);
        row.extend(latency(operation.response.as_ref())?);
        let last = if whole == Some(true) {
            let lag = run.lag.as_ref();
            [
                Some(run.unsent.to_string()),
                lag.map(|lag| lag.percentile_ns(99.0))
                    .transpose()?
                    .map(|ns| ns.to_string()),
                lag.map(|lag| lag.max_ns.to_string()),
                run.littles_law.map(|law| law.error_percent.to_string()),
                run.processor
                    .generator_seconds
                    .map(|seconds| seconds.to_string()),
                run.processor
                    .gateway_seconds
                    .map(|seconds| seconds.to_string()),
            ]
        } else {
            Default::default()
        };
        row.extend(last.map(Option::unwrap_or_default));
        row.push(optional(run.error()));
        Ok(row)
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn latency(latency: Option<&Latency>) -> Result<Vec<String>, LatencyError> {
    let Some(latency) = latency else {
        return Ok(vec![String::new(); PERCENTILES.len() + 4]);
    };
    let mut cells = vec![
        latency.min_ns.to_string(),
        latency.mean_ns.to_string(),
        latency.stddev_ns.to_string(),
    ];
    for percentile in PERCENTILES {
        cells.push(latency.percentile_ns(percentile)?.to_string());
    }
    cells.push(latency.max_ns.to_string());
    Ok(cells)
}
