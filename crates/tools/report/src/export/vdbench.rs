//! The columns of vdbench's `flatfile.html`: a row for each interval of each run, and one for its average.
//!
//! The first line that begins with a blank names the columns, lines that begin with `*` say what they are, and no value has a blank in it; that
//! is all that vdbench's own reader goes by. Times are milliseconds. What does not apply is `n/a`, as vdbench has it.

use std::io;

use weir_lab::document::{Latency, LatencyError, Load, Operations, Run};

use super::{Blocks, asked, blocks, one_size};
use crate::measured::{Measured, duration, felt, measured, started};
use crate::words::trimmed;
use crate::{ReportError, Source};

/// What vdbench has in `reqrate` where as much was asked for as could be had.
pub const RATE_MAXIMUM: u64 = 9_999_988;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// The columns, and what they hold.
const COLUMNS: [(&str, &str); 32] = [
    (
        "Run",
        "The run's name, with _ for what is no letter or digit",
    ),
    ("Interval", "The interval's number, or avg_FIRST-LAST"),
    (
        "reqrate",
        "Requests a second that were asked for; 9999988 is as many as there can be",
    ),
    ("rate", "Requests a second"),
    ("MB/sec", "Bytes a second, in units of 1024*1024"),
    ("bytes/io", "Mean length of a request"),
    ("read%", "Reads of 100 requests"),
    (
        "resp",
        "Mean response time in ms; with an open load from when a request was due",
    ),
    ("read_resp", "Mean response time of reads in ms"),
    ("write_resp", "Mean response time of writes in ms"),
    ("resp_max", "Longest response time in ms"),
    ("read_max", "Longest response time of reads in ms"),
    ("write_max", "Longest response time of writes in ms"),
    ("resp_std", "Standard deviation of response times in ms"),
    (
        "read_std",
        "Standard deviation of response times of reads in ms",
    ),
    (
        "write_std",
        "Standard deviation of response times of writes in ms",
    ),
    ("xfersize", "Length of a request that was asked for"),
    ("threads", "Requests in flight at most"),
    ("rdpct", "Reads of 100 requests that were asked for"),
    ("rhpct", "Read hits of 100 reads that were asked for"),
    ("whpct", "Write hits of 100 writes that were asked for"),
    ("seekpct", "Random requests of 100 that were asked for"),
    ("lunsize", "Size of all volumes, in units of 1024*1024*1024"),
    ("version", "What wrote this"),
    ("compratio", "Compression ratio that was asked for"),
    ("dedupratio", "Deduplication ratio that was asked for"),
    ("queue_depth", "Requests in flight on average"),
    ("cpu_used", "Not measured"),
    ("cpu_user", "Not measured"),
    ("cpu_kernel", "Not measured"),
    ("cpu_wait", "Not measured"),
    ("cpu_idle", "Not measured"),
];

const NOT_AVAILABLE: &str = "n/a";

pub(crate) fn write(sources: &[Source], sink: &mut dyn io::Write) -> Result<(), ReportError> {
    writeln!(
        sink,
        "*\n* Written by Weir in the form of vdbench's flatfile.html.\n*"
    )?;
    for (name, text) in COLUMNS {
        writeln!(sink, "* {name:<16}: {text}")?;
    }
    writeln!(
        sink,
        "* {NOT_AVAILABLE:<16}: Not measured, or not one value"
    )?;
    writeln!(sink, "*")?;
    for of in &measured(sources) {
        if let Some(error) = of.run.error() {
            // A comment is one line.
            let error = error.replace(['\r', '\n'], " ");
            writeln!(sink, "* {} is not whole: {error}\n*", asked_for(of).run)?;
        }
    }
    write!(sink, " {:>12} {:>23}", "tod", "timestamp")?;
    for (name, _) in COLUMNS {
        write!(sink, " {name}")?;
    }
    writeln!(sink)?;
    for of in &measured(sources) {
        write_run(of, sink)?;
    }
    Ok(())
}

fn write_run(of: &Measured<'_>, sink: &mut dyn io::Write) -> Result<(), ReportError> {
    let began = started(of.source)? + duration(of.offset_seconds);
    let run = of.run;
    let asked = asked_for(of);
    for (index, interval) in run.intervals.iter().enumerate() {
        let length = interval.length_seconds;
        let end = began + duration(interval.start_seconds + length);
        let seen = seen(&interval.operations, length, None).map_err(of.failed())?;
        write_row(end, &(index + 1).to_string(), &asked, &seen, sink)?;
    }
    let name = format!("avg_1-{}", run.intervals.len().max(1));
    let end = began + duration(run.elapsed_seconds);
    let seen = seen(&run.operations, run.elapsed_seconds, Some(run)).map_err(of.failed())?;
    write_row(end, &name, &asked, &seen, sink)
}

fn write_row(
    end: std::time::SystemTime,
    interval: &str,
    asked: &Asked,
    seen: &[String],
    sink: &mut dyn io::Write,
) -> Result<(), ReportError> {
    let (tod, timestamp) = times(end);
    write!(
        sink,
        " {tod:>12} {timestamp:>23} {} {interval} {}",
        asked.run, asked.rate
    )?;
    // The average depth stands between what was asked for and what is not measured.
    let (depth, before) = seen.split_last().expect("there are values");
    for value in before.iter().chain(&asked.rest).chain([depth]) {
        write!(sink, " {value}")?;
    }
    for _ in 0..5 {
        write!(sink, " {NOT_AVAILABLE}")?;
    }
    Ok(writeln!(sink)?)
}

/// Time of day, and date with time, of Greenwich.
fn times(at: std::time::SystemTime) -> (String, String) {
    let text = humantime::format_rfc3339_millis(at).to_string();
    // 2026-01-31T12:00:00.123Z
    let (year, month, day) = (&text[0..4], &text[5..7], &text[8..10]);
    (
        text[11..23].to_owned(),
        format!("{month}/{day}/{year}-{}-UTC", &text[11..19]),
    )
}

/// The columns that are the same in every row of a run.
struct Asked {
    run: String,
    rate: String,
    /// From `xfersize` to `dedupratio`.
    rest: Vec<String>,
}

fn asked_for(of: &Measured<'_>) -> Asked {
    let run = of.run;
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    let or_not =
        |value: Option<f64>| value.map_or(NOT_AVAILABLE.to_owned(), |value| trimmed(value, 4));
    let bytes: u64 = run.volumes.iter().map(|volume| volume.length_bytes).sum();
    // Of 100 bytes that are written so many can be saved.
    let ratio = 100.0 / (100.0 - run.workload.compressible_percent.clamp(0.0, 99.9));
    Asked {
        run: of.label.chars().map(plain).collect(),
        rate: match run.load {
            Load::Closed { .. } => RATE_MAXIMUM.to_string(),
            Load::Open { rate, .. } => trimmed(rate, 4),
        },
        rest: vec![
            or_not(one_size(run).map(|bytes| bytes as f64)),
            run.load.outstanding().to_string(),
            or_not(asked(run, |stream| stream.read_percent)),
            "0".to_owned(),
            "0".to_owned(),
            or_not(match blocks(run) {
                Some(Blocks::Random(percent)) => Some(percent),
                // vdbench has strides too, and no column for them.
                Some(Blocks::Strided(_)) | None => None,
            }),
            trimmed(bytes as f64 / GIB, 4),
            format!("weir-{}", of.source.document.version),
            trimmed(ratio, 4),
            "1".to_owned(),
        ],
    }
}

/// From `rate` to `write_std`, and the depth at the end.
fn seen(
    operations: &Operations,
    seconds: f64,
    run: Option<&Run>,
) -> Result<Vec<String>, LatencyError> {
    let seconds = seconds.max(f64::MIN_POSITIVE);
    let requests = operations.requests();
    let rate = run.map_or(requests as f64 / seconds, Run::rate);
    let bytes_rate = run.map_or(operations.bytes() as f64 / seconds, Run::bytes_per_second);
    let part = |of: u64, all: u64| {
        if all == 0 {
            0.0
        } else {
            of as f64 / all as f64
        }
    };
    let all = felt(operations)?;
    let kinds = [
        all.as_ref(),
        operations.read.felt(),
        operations.write.felt(),
    ];
    let milliseconds = |of: fn(&Latency) -> f64| {
        kinds.map(|latency| latency.map_or(0.0, |latency| of(latency) / 1e6))
    };
    let service = operations.service()?;
    let depth = rate * service.map_or(0.0, |service| service.mean_ns / 1e9);
    let mut values = vec![
        rate,
        bytes_rate / MIB,
        part(operations.bytes(), requests),
        100.0 * part(operations.read.requests, requests),
    ];
    values.extend(milliseconds(|latency| latency.mean_ns));
    values.extend(milliseconds(|latency| latency.max_ns as f64));
    values.extend(milliseconds(|latency| latency.stddev_ns));
    values.push(depth);
    Ok(values.into_iter().map(|value| trimmed(value, 4)).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_as_vdbench_writes_them() {
        let at = std::time::UNIX_EPOCH + Duration::from_millis(1_769_860_803_042);
        let (tod, timestamp) = times(at);
        assert_eq!(tod, "12:00:03.042");
        assert_eq!(timestamp, "01/31/2026-12:00:03-UTC");
    }
}
