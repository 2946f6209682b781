//! `weir bench`: load, and what the volume made of it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use weir_block::size::Size;
use weir_load::bench::{self, BenchConfig, BenchProgress, BenchReport, DirectionReport, Pattern};
use weir_nvme_host::SCHEME;
use weir_volume::{Access, VolumeUrl};

use super::present::{self, Line, Progress};
use super::session::Session;
use super::{ReactorArguments, duration, size};

/// Percentiles that a report shows.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Drive a volume with load and measure it
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// The volume, such as file:/path/to/image or nvme+tcp://HOST:4420/NQN?nsid=1
    url: VolumeUrl,
    /// Bytes per request
    #[arg(long, short = 'b', value_name = "SIZE", default_value = "4k", value_parser = size)]
    block_size: u64,
    /// How many of 100 requests read; the others write
    #[arg(long, short = 'r', value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    read_percent: u8,
    /// Blocks in random order (the default)
    #[arg(long, conflicts_with = "sequential")]
    random: bool,
    /// Blocks one after the other
    #[arg(long)]
    sequential: bool,
    /// Requests in flight per queue
    #[arg(long, short = 'd', value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: u32,
    /// Offer so many requests per second in all, evenly spaced, whatever becomes of them; latency is then from the moment
    /// at which a request was due, and the depth is the most that is in flight
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Queues
    #[arg(long, short = 'q', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: u32,
    /// Connect to an nvme+tcp: volume as so many hosts, each with a name and a controller of its own, over which the queues
    /// are spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    hosts: u32,
    /// For how long to measure
    #[arg(long, short = 't', value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// For how long to run unmeasured before
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    ramp: Duration,
    /// Use only the first so many bytes of the volume
    #[arg(long, value_name = "SIZE", value_parser = size)]
    range: Option<u64>,
    /// What the randomness starts from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write even where the volume carries data (a file system, a partition table)
    #[arg(long)]
    destroy_data: bool,
    #[command(flatten)]
    reactors: ReactorArguments,
}

pub(crate) fn run(arguments: BenchArguments, json: bool) -> anyhow::Result<ExitCode> {
    arguments.check_hosts()?;
    let (queues, hosts) = (arguments.queues, arguments.hosts);
    let session = match arguments.rate {
        None => Session::start_for(&arguments.reactors, queues, hosts)?,
        Some(_) => Session::start_awake(&arguments.reactors, queues, hosts)?,
    };
    let writes = arguments.read_percent < 100;
    let access = if writes {
        Access::READ_WRITE
    } else {
        Access::READ_ONLY
    };
    let volumes = arguments
        .urls(&session)
        .iter()
        .map(|url| session.open(url, access))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let volume = Arc::clone(&volumes[0]);
    if writes {
        session.check_overwritable(&volume, arguments.destroy_data)?;
    }
    let geometry = volume.geometry();
    let config = arguments.config(&session);
    let (remotes, described) = (session.remotes(), config.clone());
    let progress = Progress::start();
    let mut sink = progress.sink();
    let report = session.run(move |control| async move {
        let mut show = |progress: BenchProgress| sink(line(&progress));
        bench::run_on_several(&control, &remotes, &volumes, &config, &mut show).await
    })??;
    drop(progress);

    if json {
        let text = serde_json::to_string_pretty(&to_json(&arguments.url, &described, &report))?;
        println!("{text}");
    } else {
        println!("volume  {}", present::volume(&volume.name(), &geometry));
        println!("load    {}", describe(&described));
        print!("\n{}", present::table(&rows(&report)));
    }
    if report.unsent > 0 {
        eprintln!(
            "note: {} requests were due and not sent by the end, and are in no number here; {} is slower than the rate",
            present::grouped(report.unsent),
            volume.name()
        );
    }
    if report.errors == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let first = report.first_error.as_deref().unwrap_or("unknown");
    eprintln!(
        "weir: {} requests failed; the first: {first}",
        present::grouped(report.errors)
    );
    Ok(ExitCode::FAILURE)
}

impl BenchArguments {
    /// Refuses more hosts than there can be.
    fn check_hosts(&self) -> anyhow::Result<()> {
        if self.hosts == 1 {
            return Ok(());
        }
        if self.url.scheme() != SCHEME {
            bail!(
                "{} knows no hosts: --hosts goes with {SCHEME}: volumes",
                self.url
            );
        }
        if self.hosts > self.queues {
            bail!(
                "{} hosts need as many queues at least, and --queues is {}",
                self.hosts,
                self.queues
            );
        }
        let parameters = self.url.parameters();
        for name in ["hostnqn", "hostid"] {
            if parameters.text(name)?.is_some() {
                bail!(
                    "{name}= names one host, and --hosts asks for {}",
                    self.hosts
                );
            }
        }
        Ok(())
    }

    /// The volume as each host names it.
    fn urls(&self, session: &Session) -> Vec<VolumeUrl> {
        let mut urls = vec![self.url.clone()];
        urls.extend((1..self.hosts).map(|_| {
            let host = session.another_host();
            let named = self.url.clone().with("hostnqn", &host.nqn);
            named.with("hostid", host.id)
        }));
        urls
    }

    fn config(&self, session: &Session) -> BenchConfig {
        BenchConfig {
            request_bytes: self.block_size,
            read_percent: self.read_percent,
            pattern: if self.sequential {
                Pattern::Sequential
            } else {
                Pattern::Random
            },
            depth: self.queue_depth,
            rate: self.rate,
            queues: self.queues,
            duration: self.duration,
            ramp: self.ramp,
            range_bytes: self.range,
            seed: self.seed,
            stop: session.stop.clone(),
        }
    }
}

fn line(progress: &BenchProgress) -> Line {
    let seconds = progress.interval.as_secs_f64();
    let ramping = if progress.ramping { " (ramp)" } else { "" };
    let errors = match progress.errors {
        0 => String::new(),
        errors => format!(", {} errors", present::grouped(errors)),
    };
    Line {
        elapsed: progress.elapsed,
        fraction: progress.elapsed.as_secs_f64() / progress.total.as_secs_f64(),
        text: format!(
            "{} IOPS, {}{ramping}{errors}",
            present::grouped((progress.requests as f64 / seconds) as u64),
            present::rate(progress.bytes as f64 / seconds),
        ),
    }
}

fn pattern_name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Random => "random",
        Pattern::Sequential => "sequential",
    }
}

fn describe(config: &BenchConfig) -> String {
    let queues = if config.queues == 1 {
        "queue"
    } else {
        "queues"
    };
    let rate = match config.rate {
        None => String::new(),
        Some(rate) => format!("{} offered per second, ", present::grouped(rate)),
    };
    format!(
        "{} {}, {}% read, {rate}depth {} on {} {queues}, {}, seed {}",
        Size(config.request_bytes),
        pattern_name(config.pattern),
        config.read_percent,
        config.depth,
        config.queues,
        humantime::format_duration(config.duration),
        config.seed,
    )
}

fn rows(report: &BenchReport) -> Vec<Vec<String>> {
    let mut head = vec!["", "IOPS", "bandwidth", "mean", "min"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    head.extend(
        PERCENTILES
            .iter()
            .map(|percentile| format!("p{percentile}")),
    );
    head.push("max".to_owned());
    let mut rows = vec![head];
    for (name, of) in [("read", &report.read), ("write", &report.write)] {
        if of.requests > 0 {
            rows.push(row(report, name, of));
        }
    }
    if report.read.requests > 0 && report.write.requests > 0 {
        rows.push(row(report, "total", &total(report)));
    }
    rows
}

fn total(report: &BenchReport) -> DirectionReport {
    DirectionReport {
        requests: report.read.requests + report.write.requests,
        bytes: report.read.bytes + report.write.bytes,
        latency_ns: report.latency_ns(),
    }
}

fn row(report: &BenchReport, name: &str, of: &DirectionReport) -> Vec<String> {
    let seconds = report.elapsed.as_secs_f64();
    let latency = &of.latency_ns;
    let mut cells = vec![
        name.to_owned(),
        present::grouped((of.requests as f64 / seconds) as u64),
        present::rate(of.bytes as f64 / seconds),
        present::latency(latency.mean()),
        present::latency(latency.min() as f64),
    ];
    let at = |percentile: &f64| present::latency(latency.value_at_percentile(*percentile) as f64);
    cells.extend(PERCENTILES.iter().map(at));
    cells.push(present::latency(latency.max() as f64));
    cells
}

fn to_json(url: &VolumeUrl, config: &BenchConfig, report: &BenchReport) -> Value {
    json!({
        "volume": url.to_string(),
        "block_size_bytes": config.request_bytes,
        "pattern": pattern_name(config.pattern),
        "read_percent": config.read_percent,
        "queue_depth": config.depth,
        "rate": config.rate,
        "queues": config.queues,
        "seed": config.seed,
        "elapsed_seconds": report.elapsed.as_secs_f64(),
        "iops": report.iops(),
        "bytes_per_second": report.bytes_per_second(),
        "read": direction_json(report, &report.read),
        "write": direction_json(report, &report.write),
        "total": direction_json(report, &total(report)),
        "errors": report.errors,
        "unsent": report.unsent,
        "first_error": report.first_error,
        "queue_requests": {
            "least": report.queue_requests.iter().min(),
            "mean": report.queue_requests.iter().sum::<u64>() as f64
                / report.queue_requests.len() as f64,
            "most": report.queue_requests.iter().max(),
        },
    })
}

fn direction_json(report: &BenchReport, of: &DirectionReport) -> Value {
    let per_second = |count: u64| match report.elapsed.as_secs_f64() {
        0.0 => 0.0,
        seconds => count as f64 / seconds,
    };
    json!({
        "requests": of.requests,
        "bytes": of.bytes,
        "iops": per_second(of.requests),
        "bytes_per_second": per_second(of.bytes),
        "latency_ns": latency_json(&of.latency_ns),
    })
}

/// Null where nothing was measured.
fn latency_json(latency: &Histogram<u64>) -> Value {
    if latency.is_empty() {
        return Value::Null;
    }
    let percentiles: serde_json::Map<String, Value> = PERCENTILES
        .iter()
        .map(|&percentile| {
            (
                percentile.to_string(),
                json!(latency.value_at_percentile(percentile)),
            )
        })
        .collect();
    json!({
        "min": latency.min(),
        "mean": latency.mean(),
        "stddev": latency.stdev(),
        "max": latency.max(),
        "percentile": percentiles,
    })
}
