//! fio's JSON, as `--output-format=json+` writes it: one job for each run.
//!
//! Service times are fio's `clat_ns`, what a user feels (response times where the load is open) its `lat_ns`; there is no `slat_ns`, since
//! requests are not made in a system call each. Deallocations are fio's trims, flushes its syncs. What fio counts and Weir does not (page
//! faults, context switches, the depth at each submission) is zero.

use std::io;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use weir_lab::document::{Arrivals, Latency, LatencyError, Load, Operation, Operations, Run};

use super::{Blocks, asked, blocks, distribution, one_size};
use crate::measured::{Measured, histogram, measured, started};
use crate::{ReportError, Source};

/// The longest latency in fio's bins (17 s); its readers take no longer one, so that longer ones are counted there.
pub const LATENCY_NS_MAX: u64 = 17_112_760_320;

/// fio's own list.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// The upper ends of fio's table of latencies, in the unit of each.
const LATENCY_STEPS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

pub(crate) fn write(sources: &[Source], sink: &mut dyn io::Write) -> Result<(), ReportError> {
    let first = &sources[0];
    let began = started(first)?;
    let since = began
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let jobs = measured(sources)
        .iter()
        .enumerate()
        .map(|(index, of)| job(of, index).map_err(of.failed()))
        .collect::<Result<Vec<_>, _>>()?;
    let document = json!({
        "fio version": format!("weir-{}", first.document.version),
        "timestamp": since.as_secs(),
        "timestamp_ms": since.as_millis() as u64,
        "time": first.document.started,
        "global options": {"ioengine": "weir"},
        "jobs": jobs,
        "disk_util": [],
    });
    serde_json::to_writer_pretty(&mut *sink, &document).map_err(io::Error::from)?;
    Ok(sink.write_all(b"\n")?)
}

fn job(of: &Measured<'_>, index: usize) -> Result<Value, LatencyError> {
    let run = of.run;
    let operations = &run.operations;
    let mut job = json!({
        "jobname": of.label,
        "groupid": index,
        "error": if run.errors() > 0 || run.error().is_some() { EIO } else { 0 },
        "eta": 0,
        "elapsed": (run.ramp_seconds + run.elapsed_seconds).round() as u64,
        "job options": options(run, &of.label),
        "read": direction(run, &operations.read, |of| &of.read)?,
        "write": direction(run, &operations.write, |of| &of.write)?,
        "trim": direction(run, &operations.deallocate, |of| &of.deallocate)?,
        "sync": {
            "total_ios": operations.flush.requests,
            "lat_ns": latency(operations.flush.felt())?,
        },
        "job_runtime": milliseconds(run),
        "usr_cpu": 100.0 * run.processor.generator_seconds.unwrap_or_default() / run.elapsed_seconds.max(f64::MIN_POSITIVE),
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
    });
    let fields = job.as_object_mut().expect("a job is an object");
    fields.insert("iodepth_level".to_owned(), depth_levels(run));
    fields.insert("iodepth_submit".to_owned(), depths_at_once());
    fields.insert("iodepth_complete".to_owned(), depths_at_once());
    fields.extend(latency_table(operations)?);
    fields.insert("latency_depth".to_owned(), json!(run.load.outstanding()));
    fields.insert("latency_target".to_owned(), json!(0));
    fields.insert("latency_percentile".to_owned(), json!(100.0));
    fields.insert("latency_window".to_owned(), json!(0));
    Ok(job)
}

/// What fio calls a failure: of some request, or of a machine that was to make a part of the load.
const EIO: i32 = 5;

fn milliseconds(run: &Run) -> u64 {
    (run.elapsed_seconds * 1e3).round() as u64
}

/// The job as fio's options would have it, as far as they can say it.
fn options(run: &Run, name: &str) -> Map<String, Value> {
    let mut options = Map::new();
    let mut set = |option: &str, value: String| options.insert(option.to_owned(), value.into());
    set("name", name.to_owned());
    let urls: Vec<_> = run
        .volumes
        .iter()
        .map(|volume| volume.url.as_str())
        .collect();
    set("filename", urls.join(":"));
    if let Some(direction) = direction_name(run) {
        set("rw", direction);
    }
    match blocks(run) {
        Some(Blocks::Random(percent)) if percent > 0.0 && percent < 100.0 => {
            set("percentage_random", percent.to_string());
        }
        _ => {}
    }
    if let Some(distribution) = distribution(run) {
        set("random_distribution", distribution);
    }
    if let Some(percent) = asked(run, |stream| stream.read_percent) {
        set("rwmixread", format!("{percent:.0}"));
    }
    match one_size(run) {
        Some(bytes) => set("bs", bytes.to_string()),
        None => set("bssplit", split(run)),
    };
    match run.load {
        Load::Closed { depth, .. } => set("iodepth", depth.to_string()),
        Load::Open {
            depth_max,
            rate,
            arrivals,
            ..
        } => {
            set("rate_iops", format!("{rate:.0}"));
            if arrivals == Arrivals::Exponential {
                set("rate_process", "poisson".to_owned());
            }
            set("iodepth", depth_max.to_string())
        }
    };
    set("numjobs", run.load.queues().to_string());
    set(
        "ramp_time",
        format!("{}ms", (run.ramp_seconds * 1e3).round()),
    );
    set("runtime", format!("{}ms", milliseconds(run)));
    set("randseed", run.seed.to_string());
    set("description", run.workload.text.clone());
    options
}

/// fio's name for the mix; none where fio has none.
fn direction_name(run: &Run) -> Option<String> {
    let reads = asked(run, |stream| stream.read_percent)?;
    let writes = asked(run, |stream| stream.write_percent)?;
    let trims = asked(run, |stream| stream.deallocate_percent)?;
    let blocks = blocks(run)?;
    let name = match (reads > 0.0, writes > 0.0, trims > 0.0) {
        (true, false, false) => "read",
        (false, true, false) => "write",
        (false, false, true) => "trim",
        (true, true, false) => "rw",
        _ => return None,
    };
    Some(match blocks {
        Blocks::Random(0.0) => name.to_owned(),
        Blocks::Random(_) => format!("rand{name}"),
        // Behind the colon stands what is left out between two requests.
        Blocks::Strided(bytes) => format!("{name}:{}", bytes.checked_sub(one_size(run)?)?),
    })
}

fn split(run: &Run) -> String {
    let parts: Vec<_> = run
        .workload
        .streams
        .iter()
        .flat_map(|stream| {
            stream
                .sizes
                .iter()
                .map(move |size| (size.bytes, size.percent * stream.share_percent / 100.0))
        })
        .map(|(bytes, percent)| format!("{bytes}/{}", crate::words::trimmed(percent, 2)))
        .collect();
    parts.join(":")
}

fn direction(
    run: &Run,
    operation: &Operation,
    part: fn(&Operations) -> &Operation,
) -> Result<Value, LatencyError> {
    let seconds = run.elapsed_seconds.max(f64::MIN_POSITIVE);
    let bytes_rate = operation.bytes as f64 / seconds;
    let measured = operation.requests > 0;
    let mut value = json!({
        "io_bytes": operation.bytes,
        "io_kbytes": operation.bytes >> 10,
        "bw_bytes": bytes_rate as u64,
        "bw": (bytes_rate / 1024.0) as u64,
        "iops": operation.requests as f64 / seconds,
        "runtime": if measured { milliseconds(run) } else { 0 },
        "total_ios": operation.requests,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": empty(),
        "clat_ns": latency(operation.service.as_ref())?,
        "lat_ns": latency(operation.felt())?,
    });
    let rates = |of: fn(&Operation) -> u64| -> Vec<f64> {
        let intervals = run
            .intervals
            .iter()
            .filter(|interval| interval.length_seconds > 0.0);
        match measured {
            true => intervals
                .map(|interval| of(part(&interval.operations)) as f64 / interval.length_seconds)
                .collect(),
            false => Vec::new(),
        }
    };
    let fields = value.as_object_mut().expect("a direction is an object");
    let bandwidth = Samples::of(&rates(|of| of.bytes >> 10));
    fields.extend([
        ("bw_min".to_owned(), json!(bandwidth.min as u64)),
        ("bw_max".to_owned(), json!(bandwidth.max as u64)),
        (
            "bw_agg".to_owned(),
            json!(if measured { 100.0 } else { 0.0 }),
        ),
        ("bw_mean".to_owned(), json!(bandwidth.mean)),
        ("bw_dev".to_owned(), json!(bandwidth.deviation)),
        ("bw_samples".to_owned(), json!(bandwidth.count)),
    ]);
    let requests = Samples::of(&rates(|of| of.requests));
    fields.extend([
        ("iops_min".to_owned(), json!(requests.min as u64)),
        ("iops_max".to_owned(), json!(requests.max as u64)),
        ("iops_mean".to_owned(), json!(requests.mean)),
        ("iops_stddev".to_owned(), json!(requests.deviation)),
        ("iops_samples".to_owned(), json!(requests.count)),
    ]);
    Ok(value)
}

/// What fio says of a rate over time.
#[derive(Default)]
struct Samples {
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
    count: usize,
}

impl Samples {
    fn of(rates: &[f64]) -> Self {
        if rates.is_empty() {
            return Samples::default();
        }
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        Samples {
            min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            max: rates.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
            count: rates.len(),
        }
    }
}

fn empty() -> Value {
    json!({"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0})
}

fn latency(latency: Option<&Latency>) -> Result<Value, LatencyError> {
    let (Some(of), Some(histogram)) = (latency, histogram(latency)?) else {
        return Ok(empty());
    };
    let percentiles: Map<String, Value> = PERCENTILES
        .iter()
        .map(|&percentile| {
            let ns = histogram.value_at_percentile(percentile).min(of.max_ns);
            (format!("{percentile:.6}"), json!(ns))
        })
        .collect();
    Ok(json!({
        "min": of.min_ns,
        "max": of.max_ns,
        "mean": of.mean_ns,
        "stddev": of.stddev_ns,
        "N": of.count,
        "percentile": percentiles,
        "bins": bins(&histogram),
    }))
}

/// How many requests took about how long; fio names a bin by its middle.
fn bins(histogram: &Histogram<u64>) -> Map<String, Value> {
    let mut bins = Vec::<(u64, u64)>::new();
    for step in histogram.iter_recorded() {
        let middle = histogram.median_equivalent(step.value_iterated_to());
        let at = middle.min(LATENCY_NS_MAX);
        match bins.last_mut() {
            Some((last, count)) if *last == at => *count += step.count_at_value(),
            _ => bins.push((at, step.count_at_value())),
        }
    }
    bins.into_iter()
        .map(|(at, count)| (at.to_string(), json!(count)))
        .collect()
}

/// fio's table: how many of 100 requests took less than so long, and as long as the step before or longer.
fn latency_table(operations: &Operations) -> Result<Map<String, Value>, LatencyError> {
    let parts = [&operations.read, &operations.write, &operations.deallocate];
    let all = Latency::merged(parts.iter().filter_map(|of| of.felt()))?;
    let mut steps = all
        .iter()
        .flat_map(|all| all.iter_recorded().map(move |step| (all, step)))
        .map(|(all, step)| {
            let middle = all.median_equivalent(step.value_iterated_to());
            (middle, step.count_at_value())
        })
        .peekable();
    let total = all.as_ref().map_or(0, Histogram::len).max(1) as f64;
    let mut share_below = |end: u64| {
        let mut count = 0;
        while let Some((_, here)) = steps.next_if(|(middle, _)| *middle < end) {
            count += here;
        }
        json!(100.0 * count as f64 / total)
    };
    let mut tables = Map::new();
    for (name, unit) in [
        ("latency_ns", 1),
        ("latency_us", 1_000),
        ("latency_ms", 1_000_000),
    ] {
        let mut table = Map::new();
        for step in LATENCY_STEPS {
            table.insert(step.to_string(), share_below(step * unit));
        }
        if unit == 1_000_000 {
            table.insert("2000".to_owned(), share_below(2000 * unit));
            table.insert(">=2000".to_owned(), share_below(u64::MAX));
        }
        tables.insert(name.to_owned(), table.into());
    }
    Ok(tables)
}

/// fio's table of the depths that it found in flight. A closed load has one; what an open one had at each moment is not known.
fn depth_levels(run: &Run) -> Value {
    let depth = match run.load {
        Load::Closed { depth, .. } => Some(u64::from(depth)),
        Load::Open { .. } => None,
    };
    let mut table = Map::new();
    for (low, high, name) in [
        (1, 2, "1"),
        (2, 4, "2"),
        (4, 8, "4"),
        (8, 16, "8"),
        (16, 32, "16"),
        (32, 64, "32"),
        (64, u64::MAX, ">=64"),
    ] {
        let here = depth.is_some_and(|depth| depth >= low && depth < high);
        table.insert(name.to_owned(), json!(if here { 100.0 } else { 0.0 }));
    }
    table.into()
}

/// fio's table of how many requests it submitted or completed at once, which is not known.
fn depths_at_once() -> Value {
    let steps = ["0", "4", "8", "16", "32", "64", ">=64"];
    let table: Map<_, _> = steps
        .iter()
        .map(|&step| (step.to_owned(), json!(0.0)))
        .collect();
    table.into()
}
