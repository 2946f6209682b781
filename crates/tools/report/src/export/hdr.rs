//! A log of HdrHistogram's, version 1.3: the histograms of each interval, compressed, in nanoseconds.
//!
//! Of one run, the lines without a tag hold all kinds of requests, as a user felt them, and those with a tag one kind each: `read`, `write`,
//! `deallocate`, `flush`, and with an open load `read.response` and `read.service` and so on. Of several runs every tag begins
//! with the run's name. The largest value of a line, which is for people, is in milliseconds.

use std::io;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use weir_lab::document::{LatencyError, Operations};

use crate::measured::{Measured, duration, felt, histogram, measured, started};
use crate::{ReportError, Source};

/// Nanoseconds in what the largest value of a line is written in.
const MAX_DIVISOR: f64 = 1e6;
/// What Java's readers look for.
const VERSION: &str = "[Histogram log format version 1.3]";
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// A line of the log.
struct Line {
    start_seconds: f64,
    length_seconds: f64,
    tag: Option<String>,
    histogram: Histogram<u64>,
}

pub(crate) fn write(sources: &[Source], sink: &mut dyn io::Write) -> Result<(), ReportError> {
    let began = started(&sources[0])?;
    let all = measured(sources);
    let mut lines = Vec::new();
    for of in &all {
        // Documents that were made one after the other keep their distance.
        let later = started(of.source)?
            .duration_since(began)
            .unwrap_or_default();
        let prefix = (all.len() > 1).then(|| tag(&of.label));
        let offset = later.as_secs_f64() + of.offset_seconds;
        lines.extend(run_lines(of, offset, prefix.as_deref()).map_err(of.failed())?);
    }
    lines.sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds));

    let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut head = IntervalLogWriterBuilder::new();
    head.add_comment("[Logged with Weir; values are nanoseconds]")
        .add_comment(VERSION)
        .with_start_time(began)
        .with_base_time(began);
    for of in &all {
        if let Some(error) = of.run.error() {
            // A comment is one line.
            let error = error.replace(['\r', '\n'], " ");
            head.add_comment(&format!("[{} is not whole: {error}]", of.label));
        }
    }
    head.begin_log_with(&mut text, &mut serializer)?;
    text.extend_from_slice(LEGEND.as_bytes());
    // The legend stands between the head and the lines, where Java's writer has it.
    let mut body = Vec::new();
    let mut log = IntervalLogWriterBuilder::new()
        .with_max_value_divisor(MAX_DIVISOR)
        .begin_log_with(&mut body, &mut serializer)?;
    for line in &lines {
        let tag = line
            .tag
            .as_deref()
            .map(|tag| Tag::new(tag).expect("a tag has no blank and no comma"));
        log.write_histogram(
            &line.histogram,
            duration(line.start_seconds),
            duration(line.length_seconds),
            tag,
        )
        .map_err(io::Error::other)?;
    }
    sink.write_all(&text)?;
    Ok(sink.write_all(&body)?)
}

fn run_lines(
    of: &Measured<'_>,
    offset: f64,
    prefix: Option<&str>,
) -> Result<Vec<Line>, LatencyError> {
    let run = of.run;
    let whole = [(0.0, run.elapsed_seconds, &run.operations)];
    let parts: Vec<_> = run
        .intervals
        .iter()
        .map(|part| (part.start_seconds, part.length_seconds, &part.operations))
        .collect();
    // A run that was kept without its course is one interval.
    let parts = if parts.is_empty() { &whole[..] } else { &parts };
    let mut lines = Vec::new();
    for &(start, length, operations) in parts {
        for (tag, histogram) in kinds(operations)? {
            let tag = match (prefix, tag) {
                (None, tag) => tag,
                (Some(prefix), None) => Some(prefix.to_owned()),
                (Some(prefix), Some(tag)) => Some(format!("{prefix}.{tag}")),
            };
            lines.push(Line {
                start_seconds: offset + start,
                length_seconds: length,
                tag,
                histogram,
            });
        }
    }
    Ok(lines)
}

/// Histograms with their tags.
type Tagged = Vec<(Option<String>, Histogram<u64>)>;

/// The histograms of some operations.
fn kinds(operations: &Operations) -> Result<Tagged, LatencyError> {
    let mut kinds = Vec::new();
    if let Some(all) = histogram(felt(operations)?.as_ref())? {
        kinds.push((None, all));
    }
    for (name, operation) in operations.each() {
        let service = histogram(operation.service.as_ref())?;
        let response = histogram(operation.response.as_ref())?;
        match (service, response) {
            (Some(service), Some(response)) => {
                kinds.push((Some(format!("{name}.service")), service));
                kinds.push((Some(format!("{name}.response")), response));
            }
            (Some(only), None) | (None, Some(only)) => kinds.push((Some(name.to_owned()), only)),
            (None, None) => (),
        }
    }
    Ok(kinds)
}

/// A name as a tag may be: without blanks, commas and line ends.
fn tag(name: &str) -> String {
    let plain = |letter: char| match letter {
        letter if letter.is_whitespace() || letter == ',' || letter.is_control() => '_',
        letter => letter,
    };
    name.chars().map(plain).collect()
}
