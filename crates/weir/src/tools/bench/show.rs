//! What `weir bench` shows: for people, and as JSON.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use weir_block::size::Size;
use weir_lab::convert;
use weir_lab::document::{Document, Volume};
use weir_load::bench::{BenchReport, Interval, Job, Latencies, OperationReport};
use weir_load::workload::{Kind, NAMED, Stream, Workload, named, sizes_text};

use super::{BenchArguments, present, without_in_text};

/// Percentiles that a report shows.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// A volume that was driven.
pub(crate) struct Driven {
    /// Its URL.
    pub(crate) name: String,
    pub(crate) volume: Volume,
    /// All that it was driven through.
    pub(crate) queues: u32,
}

impl Driven {
    pub(super) fn of(job: &Job) -> Self {
        let volume = &job.volumes[0];
        Driven {
            name: job.name.clone(),
            volume: convert::volume(&job.name, &volume.name(), &volume.geometry()),
            queues: job.config.queues,
        }
    }
}

/// The workloads that have a name.
pub(super) fn workloads(json: bool) -> anyhow::Result<String> {
    if json {
        let of = |of: &weir_load::workload::Named| json!({"name": of.name, "about": of.about, "source": of.source, "workload": workload_json(&of.workload())});
        let all: Vec<_> = NAMED.iter().map(of).collect();
        return Ok(serde_json::to_string_pretty(&all)? + "\n");
    }
    let width = NAMED.iter().map(|of| of.name.len()).max().unwrap_or(0);
    let line = |of: &weir_load::workload::Named| {
        format!(
            "{:width$}  {}\n{:width$}  from: {}\n",
            of.name, of.about, "", of.source
        )
    };
    Ok(NAMED.iter().map(line).collect())
}

/// A run, to be shown.
pub(super) struct Shown<'a> {
    arguments: &'a BenchArguments,
    workload: &'a Workload,
    volumes: &'a [Driven],
    reports: &'a [BenchReport],
    /// All volumes together.
    pub(super) sum: BenchReport,
}

impl<'a> Shown<'a> {
    /// There is a report for each volume, and at least one.
    pub(super) fn new(
        arguments: &'a BenchArguments,
        workload: &'a Workload,
        volumes: &'a [Driven],
        reports: &'a [BenchReport],
    ) -> Self {
        let mut sum = reports[0].clone();
        reports[1..].iter().for_each(|report| sum.add(report));
        Shown {
            arguments,
            workload,
            volumes,
            reports,
            sum,
        }
    }

    /// For people.
    pub(super) fn text(&self, stored: &Document) -> String {
        let mut text = String::new();
        for driven in self.volumes {
            text += &format!("volume  {}\n", present::volume(&driven.volume));
        }
        text += &format!("load    {}\n", self.load());
        if let Some(source) = self.source() {
            text += &format!("source  {source}\n");
        }
        if self.reports.len() > 1 {
            for (driven, report) in self.volumes.iter().zip(self.reports) {
                text += &format!("\n{}\n{}", driven.name, present::table(&rows(report)));
            }
            text += "\nall volumes\n";
        } else {
            text += "\n";
        }
        text + &present::table(&rows(&self.sum)) + &self.besides(stored)
    }

    fn source(&self) -> Option<&'static str> {
        let name = self.workload.name?;
        named(name).ok().map(|of| of.source)
    }

    fn load(&self) -> String {
        let arguments = self.arguments;
        let queues = match arguments.queues {
            1 => "1 queue".to_owned(),
            queues => format!("{queues} queues"),
        };
        let hosts = match arguments.hosts {
            1 => String::new(),
            hosts => format!(" of each of {hosts} hosts"),
        };
        let agents = match arguments.agents.count() {
            1 => String::new(),
            agents => format!(" of each of {agents} agents"),
        };
        let rate = match arguments.rate {
            None => String::new(),
            Some(rate) => format!(
                "{} offered per second ({}), ",
                present::grouped(rate),
                arguments.arrivals.name()
            ),
        };
        format!(
            "{}, {rate}depth {} on {queues}{hosts}{agents}, {}, seed {}",
            describe(self.workload),
            arguments.queue_depth,
            humantime::format_duration(arguments.duration),
            arguments.seed,
        )
    }

    /// What is told beside the latencies.
    fn besides(&self, stored: &Document) -> String {
        let mut text = String::new();
        let runs = stored.runs();
        let run = runs[0];
        if let Some(lag) = self.sum.lag_ns.as_ref().filter(|lag| !lag.is_empty()) {
            let at = |percentile| present::latency(lag.value_at_percentile(percentile) as f64);
            text += &format!(
                "\nlag     sent after due: p50 {}, p99 {}, max {}\n",
                at(50.0),
                at(99.0),
                at(100.0)
            );
        }
        if let Some(law) = &run.littles_law {
            let blank = if text.is_empty() { "\n" } else { "" };
            text += &format!(
                "{blank}law     {:.2} in flight, {:.2} by throughput and service time: {:+.2}% (Little's law)\n",
                law.in_flight, law.from_latency, law.error_percent
            );
        }
        if let Some(steady) = run
            .steady_state
            .as_ref()
            .filter(|_| run.load.rate().is_none())
        {
            let blank = if text.is_empty() { "\n" } else { "" };
            let from = f64::from(steady.window_start) * steady.round_seconds;
            let said = match (steady.reached, steady.held) {
                (false, _) => "not reached".to_owned(),
                (true, Some(false)) => format!("from {from}s on, and not to the end"),
                (true, _) => format!("from {from}s on"),
            };
            text += &format!(
                "{blank}steady  {said} (SNIA's rule, {} rounds of {}s)\n",
                steady.rounds.len(),
                steady.round_seconds
            );
        }
        let generator = &self.sum.generator;
        if let Some(processor) = generator.processor {
            let blank = if text.is_empty() { "\n" } else { "" };
            text += &format!(
                "{blank}cost    {:.2} s of processor time, busiest reactor {:.0}%\n",
                processor.as_secs_f64(),
                generator.busy_share_max() * 100.0
            );
        }
        if let Some(seconds) = run.processor.gateway_seconds {
            let blank = if text.is_empty() { "\n" } else { "" };
            text += &format!("{blank}gateway {seconds:.2} s of processor time\n");
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let (arguments, workload) = (self.arguments, self.workload);
        let volumes = self.volumes.iter().zip(self.reports);
        let volumes: Vec<_> = volumes
            .map(|(driven, report)| {
                let volume = &driven.volume;
                let mut shown = report_json(report);
                shown.insert("volume".to_owned(), json!(driven.name));
                shown.insert("length_bytes".to_owned(), json!(volume.length_bytes));
                let block_bytes = volume.block_size_bytes;
                shown.insert("volume_block_bytes".to_owned(), json!(block_bytes));
                Value::Object(shown)
            })
            .collect();
        let mut shown = Map::new();
        let mut put = |name: &str, value| shown.insert(name.to_owned(), value);
        put("volume", json!(self.volumes[0].name));
        put("workload", workload_json(workload));
        put("block_size_bytes", json!(workload.one_size()));
        put("pattern", json!(pattern(workload)));
        put("read_percent", number(workload.percent(Kind::Read)));
        put("queue_depth", json!(arguments.queue_depth));
        put("rate", json!(arguments.rate));
        let arrivals = arguments.rate.map(|_| arguments.arrivals.name());
        put("arrivals", json!(arrivals));
        let queues: u32 = self.volumes.iter().map(|driven| driven.queues).sum();
        put("queues", json!(queues));
        put("hosts", json!(arguments.hosts));
        put("seed", json!(arguments.seed));
        put("ramp_seconds", json!(arguments.ramp.as_secs_f64()));
        shown.extend(report_json(&self.sum));
        shown.insert("volumes".to_owned(), json!(volumes));
        Value::Object(shown)
    }
}

/// A number without a fraction where it has none.
fn number(of: f64) -> Value {
    if of.fract() == 0.0 && of.abs() < 1e15 {
        json!(of as i64)
    } else {
        json!(of)
    }
}

/// Where requests go, in a word or two.
fn pattern(workload: &Workload) -> String {
    match &workload.streams[..] {
        [one] => one.access.to_string(),
        _ => "several streams".to_owned(),
    }
}

fn describe(workload: &Workload) -> String {
    let of_stream = |stream: &Stream| {
        let percents = stream.operations.percents();
        let kinds = Kind::ALL.iter().zip(percents);
        let kinds: Vec<_> = kinds
            .filter(|(kind, percent)| **kind == Kind::Read || *percent > 0.0)
            .map(|(kind, percent)| format!("{percent}% {}", kind.name()))
            .collect();
        // What is neither read nor named is written.
        let kinds = match &kinds[..] {
            [read, write] if write.ends_with("write") => read.clone(),
            _ => kinds.join(" "),
        };
        format!("{} {}, {kinds}", sizes_text(&stream.sizes), stream.access)
    };
    let mut text = match (workload.name, &workload.streams[..]) {
        (Some(name), _) => match named(name) {
            Ok(of) => format!("{name}: {}", of.about),
            Err(_) => name.to_owned(),
        },
        (None, streams) => {
            let all: Vec<_> = streams.iter().map(of_stream).collect();
            all.join("; ")
        }
    };
    if workload.compressible_percent > 0 {
        text += &format!(", {}% of the data zeroes", workload.compressible_percent);
    }
    if let Some(bytes) = workload.range_bytes {
        text += &format!(", within {}", Size(bytes));
    }
    text
}

fn workload_json(workload: &Workload) -> Value {
    let streams: Vec<_> = workload.streams.iter().map(stream_json).collect();
    let source = workload.name.and_then(|name| named(name).ok());
    json!({
        "name": workload.name,
        "source": source.map(|of| of.source),
        "range_bytes": workload.range_bytes,
        "compressible_percent": workload.compressible_percent,
        "streams": streams,
    })
}

fn stream_json(stream: &Stream) -> Value {
    let sizes = stream.sizes.iter();
    let sizes: Vec<_> = sizes
        .map(|size| json!({"bytes": size.bytes, "percent": number(size.percent)}))
        .collect();
    let [read, write, deallocate, flush] = stream.operations.percents().map(number);
    json!({
        "share_percent": number(stream.share_percent),
        "read_percent": read,
        "write_percent": write,
        "deallocate_percent": deallocate,
        "flush_percent": flush,
        "sizes": sizes,
        "align_bytes": stream.align_bytes,
        "access": stream.access.to_string(),
        "range_bytes": stream.range_bytes,
    })
}

fn rows(report: &BenchReport) -> Vec<Vec<String>> {
    let mut head: Vec<_> = ["", "IOPS", "bandwidth", "mean", "min"]
        .map(str::to_owned)
        .to_vec();
    let percentile = |percentile: &f64| format!("p{percentile}");
    head.extend(PERCENTILES.iter().map(percentile));
    head.push("max".to_owned());
    let mut rows = vec![head];
    let done = Kind::ALL.map(|kind| (kind.name(), report.of(kind)));
    let done: Vec<_> = done.into_iter().filter(|(_, of)| of.requests > 0).collect();
    for (name, of) in &done {
        rows.extend(rows_of(report, name, of));
    }
    if done.len() > 1 {
        rows.extend(rows_of(report, "total", &report.total()));
    }
    rows
}

/// What one kind did; open-loop with its service times in a row of their own.
fn rows_of(report: &BenchReport, name: &str, of: &OperationReport) -> Vec<Vec<String>> {
    let per_second = |count: u64| match report.elapsed.as_secs_f64() {
        0.0 => 0.0,
        seconds => count as f64 / seconds,
    };
    let mut row = vec![
        name.to_owned(),
        present::grouped(per_second(of.requests) as u64),
        present::rate(per_second(of.bytes)),
    ];
    row.extend(latency_cells(of.latency_ns()));
    let mut rows = vec![row];
    if of.response_ns.is_some() {
        let mut row = vec![format!("{name} (service)"), String::new(), String::new()];
        row.extend(latency_cells(&of.service_ns));
        rows.push(row);
    }
    rows
}

fn latency_cells(latency: &Histogram<u64>) -> Vec<String> {
    let mut cells = vec![
        present::latency(latency.mean()),
        present::latency(latency.min() as f64),
    ];
    let at = |percentile: &f64| present::latency(latency.value_at_percentile(*percentile) as f64);
    cells.extend(PERCENTILES.iter().map(at));
    cells.push(present::latency(latency.max() as f64));
    cells
}

fn report_json(report: &BenchReport) -> Map<String, Value> {
    let mut shown = Map::new();
    let mut put = |name: &str, value| shown.insert(name.to_owned(), value);
    put("elapsed_seconds", json!(report.elapsed.as_secs_f64()));
    put("iops", json!(report.iops()));
    put("bytes_per_second", json!(report.bytes_per_second()));
    for kind in Kind::ALL {
        put(kind.name(), operation_json(report, report.of(kind)));
    }
    put("total", operation_json(report, &report.total()));
    put("errors", json!(report.errors()));
    put("unsent", json!(report.unsent));
    put("unfinished", json!(report.unfinished));
    put("ramp_errors", json!(report.ramp_errors));
    put("waited", json!(report.waited));
    put("late_ns_max", json!(report.late_ns_max));
    let first = report.first_error.as_deref().map(without_in_text);
    put("first_error", json!(first));
    let lag = report.lag_ns.as_ref().map(latency_json);
    put("lag_ns", json!(lag));
    put(
        "littles_law",
        json!({
            "in_flight": report.littles_law.in_flight,
            "rate_times_service": report.littles_law.rate_times_service,
            "error": report.littles_law.error(),
        }),
    );
    let processor = report.generator.processor.map(|of| of.as_secs_f64());
    put(
        "generator",
        json!({
            "processor_seconds": processor,
            "busy_shares": report.generator.busy_shares,
        }),
    );
    put(
        "queue_requests",
        json!({
            "least": report.queue_requests.iter().min(),
            "mean": report.queue_requests.iter().sum::<u64>() as f64
                / report.queue_requests.len() as f64,
            "most": report.queue_requests.iter().max(),
        }),
    );
    let intervals: Vec<_> = report.intervals.iter().map(interval_json).collect();
    put("intervals", json!(intervals));
    let caveats = report.caveats.iter();
    let caveats: Vec<_> = caveats
        .map(|of| json!({"code": of.code(), "text": of.to_string()}))
        .collect();
    put("caveats", json!(caveats));
    shown
}

fn operation_json(report: &BenchReport, of: &OperationReport) -> Value {
    let per_second = |count: u64| match report.elapsed.as_secs_f64() {
        0.0 => 0.0,
        seconds => count as f64 / seconds,
    };
    json!({
        "requests": of.requests,
        "bytes": of.bytes,
        "errors": of.errors,
        "iops": per_second(of.requests),
        "bytes_per_second": per_second(of.bytes),
        "latency_ns": latency_json(of.latency_ns()),
        "service_ns": latency_json(&of.service_ns),
        "response_ns": of.response_ns.as_ref().map(latency_json),
    })
}

/// Null where nothing was measured.
fn latency_json(latency: &Histogram<u64>) -> Value {
    if latency.is_empty() {
        return Value::Null;
    }
    let percentile = |percentile: &f64| {
        let value = latency.value_at_percentile(*percentile);
        (percentile.to_string(), json!(value))
    };
    let percentiles: Map<String, Value> = PERCENTILES.iter().map(percentile).collect();
    json!({
        "min": latency.min(),
        "mean": latency.mean(),
        "stddev": latency.stdev(),
        "max": latency.max(),
        "percentile": percentiles,
    })
}

fn interval_json(interval: &Interval) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value| shown.insert(name.to_owned(), value);
    put("start_seconds", json!(interval.start.as_secs_f64()));
    put("length_seconds", json!(interval.length.as_secs_f64()));
    put("requests", json!(interval.requests()));
    put("bytes", json!(interval.bytes()));
    put("errors", json!(interval.errors()));
    put("latency_ns", latencies_json(&interval.latency()));
    put("lag_ns", latencies_json(&interval.lag));
    for kind in Kind::ALL {
        let of = interval.of(kind);
        if of.requests > 0 {
            let value = json!({
                "requests": of.requests,
                "bytes": of.bytes,
                "latency_ns": latencies_json(of.latency()),
            });
            put(kind.name(), value);
        }
    }
    Value::Object(shown)
}

/// Null where there is none.
fn latencies_json(latencies: &Latencies) -> Value {
    if latencies.is_empty() {
        return Value::Null;
    }
    let percentile = |percentile: &f64| {
        let value = latencies.percentile(*percentile);
        (percentile.to_string(), json!(value))
    };
    let percentiles: Map<String, Value> = PERCENTILES.iter().map(percentile).collect();
    json!({
        "mean": latencies.mean(),
        "max": latencies.max(),
        "percentile": percentiles,
    })
}
