//! `weir bench`: load, and what volumes made of it.

mod on_agents;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use weir_lab::convert::{self, Asked};
use weir_lab::document::{self, Body, Document};
use weir_load::Stop;
use weir_load::bench::{self, Arrivals, BenchConfig, BenchProgress, BenchReport, Caveat, Job};
use weir_load::workload::{
    Access as Blocks, Named, Operations, SizeShare, Stream, Workload, named, parse_sizes,
};
use weir_volume::VolumeUrl;

use super::agents::AgentsArguments;
use super::checked::{self, Checked};
use super::destroy::DestroyArguments;
use super::job::{self, JobArguments};
use super::laboratory::{self, Usage, check_hosts, open_as_hosts};
use super::live::{Tick, View};
use super::present::{self, Progress};
use super::report::ResultArguments;
use super::session::Session;
use super::watched::{WatchArguments, Watched};
use super::{ReactorArguments, duration, size};
use weir_lab::secret::without_in_text;

/// The size of requests where nothing else is asked for.
const REQUEST_BYTES: u64 = 4 << 10;
/// The code of the caveat of a run at a rate that sleeps between its requests.
const ASLEEP: &str = "asleep-between-requests";

/// Drive volumes with load and measure them
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// The volumes, such as file:/path/to/image or nvme+tcp://HOST:4420/NQN?nsid=1. Several are driven at the same time, each with
    /// queues of its own
    #[arg(value_name = "URL", required_unless_present_any = ["list_workloads", "job"])]
    urls: Vec<VolumeUrl>,
    #[command(flatten)]
    requests: RequestArguments,
    /// Requests in flight per queue
    #[arg(long, short = 'd', value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: u32,
    /// Offer so many requests per second in all, whatever becomes of them; latency is then from the moment at which a request was
    /// due, and the depth is the most that is in flight
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// How the requests of a rate are spread over time: `uniform` is evenly, `exponential` as many independent users would
    #[arg(long, value_name = "HOW", requires = "rate", value_parser = arrivals, default_value = "uniform")]
    arrivals: Arrivals,
    /// Queues of each volume, and where there are several hosts, of each host
    #[arg(long, short = 'q', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: u32,
    /// Connect to nvme+tcp: volumes as so many hosts, each with a name, a controller and queues of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    hosts: u32,
    /// For how long to measure
    #[arg(long, short = 't', value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// For how long to run unmeasured before
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    ramp: Duration,
    /// The length of the intervals that the report has latencies of
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// What the randomness starts from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Check that every block read holds what was written to it last. What is written are then stamped blocks; requests that overlap one
    /// in flight wait for it, and everything is read once more at the end. The first thing wrong ends the run. With several agents each has
    /// blocks of its own
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    destroy: DestroyArguments,
    /// List the workloads that have a name
    #[arg(long)]
    list_workloads: bool,
    /// Do what a job file says, in phases and with a job for each volume; see docs/laboratory.md. With --agent each phase is made by all agents together
    #[arg(long, value_name = "FILE", conflicts_with_all = ["urls", "RequestArguments", "verify", "queue_depth", "rate", "queues", "hosts", "duration", "ramp", "interval", "seed", "gateway_pid"])]
    job: Option<PathBuf>,
    #[command(flatten)]
    watch: WatchArguments,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    reactors: ReactorArguments,
    #[command(flatten)]
    agents: AgentsArguments,
}

/// Which requests.
#[derive(Debug, clap::Args)]
pub(super) struct RequestArguments {
    /// A workload that has a name; see --list-workloads
    #[arg(long, short = 'w', value_name = "NAME", value_parser = workload, conflicts_with_all = ["block_size", "mix", "align", "read_percent", "write", "deallocate", "flush", "random", "sequential", "access"])]
    workload: Option<&'static Named>,
    /// Bytes per request [default: 4k]
    #[arg(long, short = 'b', value_name = "SIZE", value_parser = size, conflicts_with = "mix")]
    block_size: Option<u64>,
    /// Several sizes, each with its share of 100 requests, such as 4k:70,64k:30
    #[arg(long, value_name = "SIZE:PERCENT,...", value_parser = mix)]
    mix: Option<Sizes>,
    /// Random requests begin at multiples of this [default: of their own size]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    align: Option<u64>,
    /// How many of 100 requests read [default: those that do nothing else]
    #[arg(long, short = 'r', visible_alias = "read", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    read_percent: Option<u8>,
    /// How many of 100 requests write [default: those that do nothing else, where --read-percent is given]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    write: Option<u8>,
    /// How many of 100 requests deallocate
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    deallocate: u8,
    /// How many of 100 requests flush
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    flush: u8,
    /// Blocks in random order (the default)
    #[arg(long, conflicts_with_all = ["sequential", "access"])]
    random: bool,
    /// Blocks one after the other
    #[arg(long, conflicts_with = "access")]
    sequential: bool,
    /// Which blocks: random, sequential, random:PERCENT (the rest sequential), stride:SIZE, zipf:EXPONENT, pareto:SHARE,
    /// hot:REQUESTS/SPACE,... in percent
    #[arg(long, value_name = "HOW", value_parser = access)]
    access: Option<Blocks>,
    /// Several sorts of requests: one --stream for each, such as 'share=70 read=100 block_size=8k access=zipf:1.1', with the keys that a [[phase.job.stream]] of a
    /// job file has. Shares make 100 together
    #[arg(long, value_name = "KEY=VALUE ...", value_parser = stream, conflicts_with_all = ["workload", "block_size", "mix", "align", "read_percent", "write", "deallocate", "flush", "random", "sequential", "access"])]
    stream: Vec<Stream>,
    /// How much of the data written is zeroes, in percent, for media that compress
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    compress: u8,
    /// Use only the first so many bytes of each volume
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) range: Option<u64>,
}

/// Sizes of requests with their shares.
#[derive(Debug, Clone)]
struct Sizes(Vec<SizeShare>);

fn mix(text: &str) -> Result<Sizes, String> {
    let sizes = parse_sizes(text).map_err(|error| error.to_string())?;
    Ok(Sizes(sizes))
}

fn stream(text: &str) -> Result<Stream, String> {
    weir_lab::job::stream(text).map_err(|error| error.to_string())
}

fn access(text: &str) -> Result<Blocks, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn workload(text: &str) -> Result<&'static Named, String> {
    named(text).map_err(|error| error.to_string())
}

pub(super) fn arrivals(text: &str) -> Result<Arrivals, String> {
    [Arrivals::Uniform, Arrivals::Exponential]
        .into_iter()
        .find(|of| of.name() == text)
        .ok_or_else(|| format!("'{text}' is no way to arrive; uniform and exponential are"))
}

pub(crate) fn run(arguments: BenchArguments, json: bool) -> anyhow::Result<ExitCode> {
    if arguments.list_workloads {
        print!("{}", show::workloads(json)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &arguments.job {
        let arguments = JobArguments {
            file,
            destroy: &arguments.destroy,
            result: &arguments.result,
            reactors: &arguments.reactors,
            agents: &arguments.agents,
        };
        return job::run(&arguments, json);
    }
    for url in &arguments.urls {
        check_hosts(url, arguments.hosts)?;
    }
    arguments.destroy.check(&arguments.urls)?;
    let started = SystemTime::now();
    arguments.result.check(&[])?;
    let watched = arguments.watch.watched()?;
    let workload = arguments.requests.workload()?;
    let configs = arguments.configs(&workload)?;
    if arguments.verify && !workload.modifies() {
        bail!(
            "--verify checks what the run writes, and it only reads: say --read-percent below 100"
        );
    }
    if arguments.verify && arguments.requests.compress > 0 {
        bail!("--verify writes stamps, which do not compress: leave out --compress, or --verify");
    }
    if arguments.agents.are_named() {
        return on_agents::run(&arguments, &workload, &configs, watched, json);
    }
    let volumes = arguments.urls.len() as u32 * arguments.hosts;
    let Some(queues) = arguments.queues.checked_mul(volumes) else {
        bail!("{volumes} times {} queues are too many", arguments.queues);
    };
    let session = match arguments.stays_awake() {
        true => Session::start_awake(&arguments.reactors, queues, volumes)?,
        false => Session::start_for(&arguments.reactors, queues, volumes)?,
    };
    // What is found wrong ends the load, and must not be taken for an interrupt of the user's.
    let stop = session.stop.within();
    let mut jobs = Vec::with_capacity(configs.len());
    for (url, config) in arguments.urls.iter().zip(configs) {
        let (hosts, usage) = (arguments.hosts, Usage::of(&workload));
        jobs.push(Job {
            name: without_in_text(&url.to_string()),
            volumes: open_as_hosts(&session, url, hosts, usage, arguments.destroy.names(url))?,
            config: BenchConfig {
                stop: stop.clone(),
                ..config
            },
        });
    }
    let checked = match arguments.verify {
        true => arguments.check(&session, &mut jobs, &stop)?,
        false => jobs.iter().map(|_| Checked::nothing()).collect(),
    };
    let (remotes, driven) = (session.remotes(), jobs.clone());
    let gateway_before = watched.and_then(|of| of.seconds());
    let progress = Progress::start();
    let mut sink = progress.sink();
    let reports = session.run(move |control| async move {
        let mut view = View::new(driven.iter().map(|job| job.name.clone()));
        let tell = |progress: BenchProgress| {
            if let Some(line) = view.add(&tick(&progress)) {
                sink(line);
            }
        };
        bench::run_jobs(&control, &remotes, &driven, tell).await
    })??;
    drop(progress);
    let driven: Vec<_> = jobs.iter().map(show::Driven::of).collect();
    let mut document = arguments.stored(&workload, &driven, &reports, started);
    arguments.watch(&mut document, watched, gateway_before);
    // Before what was written is read again, which takes long and may fail. A full disk does not keep anybody from seeing what was measured.
    let written = arguments.result.write(&document);
    let stop = session.stop.for_what_follows();
    let conclusions = checked
        .into_iter()
        .map(|checked| checked.conclude(&session, &stop));
    let conclusions = conclusions.collect::<anyhow::Result<Vec<_>>>();
    let (conclusions, unchecked) = match conclusions {
        Ok(conclusions) => (conclusions, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let shown = show::Shown::new(&arguments, &workload, &driven, &reports);
    if json {
        let mut json = shown.json();
        json["caveats"] = serde_json::to_value(&document.caveats)?;
        json["result"] = serde_json::to_value(&document)?;
        if arguments.verify {
            json["verification"] = conclusions.iter().map(|one| one.json.clone()).collect();
        }
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        print!("{}", shown.text(&document));
    }
    let judged = judge(&shown.sum);
    say_beside(&document, &reports);
    written?;
    if let Some(error) = unchecked {
        return Err(error);
    }
    Ok(match conclusions.iter().all(|one| one.sound) {
        true => judged,
        false => ExitCode::FAILURE,
    })
}

/// Says what the document has to say beyond the load's own reports.
fn say_beside(document: &Document, reports: &[BenchReport]) {
    let told = convert::caveats(reports);
    for caveat in &document.caveats {
        if !told.contains(caveat) {
            eprintln!("note: {}", caveat.text);
        }
    }
}

/// Says what has to be known, and whether all went well.
fn judge(sum: &BenchReport) -> ExitCode {
    for caveat in &sum.caveats {
        match caveat {
            Caveat::Unsent { .. } | Caveat::GeneratorSaturated { .. } => {
                eprintln!("warning: {caveat}");
            }
            caveat => eprintln!("note: {caveat}"),
        }
    }
    if sum.errors() == 0 {
        return ExitCode::SUCCESS;
    }
    let first = sum.first_error.as_deref().unwrap_or("unknown");
    eprintln!(
        "weir: {} requests failed; the first: {}",
        present::grouped(sum.errors()),
        without_in_text(first)
    );
    ExitCode::FAILURE
}

impl RequestArguments {
    pub(super) fn workload(&self) -> anyhow::Result<Workload> {
        let workload = match self.workload {
            Some(named) => named.workload(),
            None if !self.stream.is_empty() => Workload {
                streams: self.stream.clone(),
                ..Workload::simple(REQUEST_BYTES, 100, Blocks::Random)
            },
            None => Workload::of(Stream {
                share_percent: 100.0,
                operations: self.operations()?,
                sizes: self.sizes(),
                align_bytes: self.align,
                access: self.blocks(),
                range_bytes: None,
            }),
        };
        let workload = Workload {
            range_bytes: self.range,
            compressible_percent: self.compress,
            ..workload
        };
        workload.check()?;
        Ok(workload)
    }

    /// What is not said is the rest; writes are, where reads are.
    fn operations(&self) -> anyhow::Result<Operations> {
        let others = u32::from(self.deallocate) + u32::from(self.flush);
        let said = |percent: Option<u8>| percent.map_or(0, u32::from);
        let sum = others + said(self.read_percent) + said(self.write);
        let all_said = self.read_percent.is_some() && self.write.is_some();
        if sum > 100 || (all_said && sum < 100) {
            bail!(
                "reads, writes, deallocations and flushes make {sum} percent together; they must make 100 (what is left out of --read-percent and --write is filled in)"
            );
        }
        let rest = 100 - sum;
        let (read, write) = match (self.read_percent, self.write) {
            (Some(read), Some(write)) => (u32::from(read), u32::from(write)),
            (Some(read), None) => (u32::from(read), rest),
            (None, write) => (rest, said(write)),
        };
        Ok(Operations {
            read_percent: f64::from(read),
            write_percent: f64::from(write),
            deallocate_percent: f64::from(self.deallocate),
            flush_percent: f64::from(self.flush),
        })
    }

    fn sizes(&self) -> Vec<SizeShare> {
        match &self.mix {
            Some(Sizes(sizes)) => sizes.clone(),
            None => vec![SizeShare {
                bytes: self.block_size.unwrap_or(REQUEST_BYTES),
                percent: 100.0,
            }],
        }
    }

    fn blocks(&self) -> Blocks {
        match &self.access {
            Some(access) => access.clone(),
            None if self.sequential => Blocks::Sequential,
            None => Blocks::Random,
        }
    }
}

impl BenchArguments {
    /// Tells whether reactors are to hold their processors between the requests of a rate. A run that checks blocks may last for days, so it sleeps,
    /// and says so of its latencies.
    fn stays_awake(&self) -> bool {
        self.rate.is_some() && !self.verify
    }

    /// Says that latencies are not the volume's alone, where requests come at a rate and the reactors sleep between them.
    fn of_sleep(&self) -> Option<document::Caveat> {
        let sleeps = self.rate.is_some() && !self.stays_awake();
        sleeps.then(|| {
            document::Caveat::new(
                ASLEEP,
                "with --verify a run at a rate sleeps between requests, so its lag and its latencies include wake-ups; to measure the volume alone, leave out --verify",
            )
        })
    }

    /// Has every volume checked.
    fn check(
        &self,
        session: &Session,
        jobs: &mut [Job],
        stop: &Stop,
    ) -> anyhow::Result<Vec<Checked>> {
        if jobs.len() > 1 {
            let first = |job: &Job| (job.name.clone(), Arc::clone(&job.volumes[0]));
            checked::refuse_same_medium(session, jobs.iter().map(first).collect())?;
        }
        jobs.iter_mut()
            .map(|job| Checked::wrap(session, &mut job.volumes, self.requests.range, stop))
            .collect()
    }

    /// The run, as it is stored.
    fn stored(
        &self,
        workload: &Workload,
        driven: &[show::Driven],
        reports: &[BenchReport],
        started: SystemTime,
    ) -> Document {
        let volumes: Vec<_> = driven.iter().map(|of| of.volume.clone()).collect();
        let machines = self.agents.count();
        let hosts = self.hosts * machines;
        let queues = driven.iter().map(|of| of.queues).sum();
        let load = self.load(queues, hosts);
        let asked = Asked {
            name: workload.name.unwrap_or("load"),
            workload,
            load,
            seed: self.seed,
            ramp: self.ramp,
        };
        let runs = vec![convert::run(&asked, &volumes, reports)];
        let mut document = laboratory::document(Body::Bench { runs }, started);
        document.caveats = convert::caveats(reports);
        let unsteady = document.runs().into_iter().find_map(convert::unsteady);
        document.caveats.extend(unsteady);
        document.caveats.extend(self.of_sleep());
        document
    }

    /// Adds what the watched gateway took since it had had `before`.
    fn watch(&self, document: &mut Document, watched: Option<Watched>, before: Option<f64>) {
        let Body::Bench { runs } = &mut document.body else {
            return;
        };
        let tell = |run| watched?.tell(before, run, self.ramp, self.duration);
        document.caveats.extend(runs.iter_mut().find_map(tell));
    }

    /// How much, of all volumes together.
    fn load(&self, queues: u32, hosts: u32) -> document::Load {
        let depth = self.queue_depth;
        match self.rate {
            None => document::Load::Closed {
                depth,
                queues,
                hosts,
            },
            Some(rate) => document::Load::Open {
                rate: rate as f64,
                arrivals: convert::arrivals(self.arrivals),
                depth_max: depth,
                queues,
                hosts,
            },
        }
    }

    /// What to do with each volume: of a rate each gets the same part.
    fn configs(&self, workload: &Workload) -> anyhow::Result<Vec<BenchConfig>> {
        let volumes = self.urls.len() as u64;
        if let Some(rate) = self.rate
            && rate < volumes
        {
            bail!("--rate {rate} is less than one request a second for each of {volumes} volumes");
        }
        let load = self.load(self.queues * self.hosts * volumes as u32, self.hosts);
        let config = |index| BenchConfig {
            workload: workload.clone(),
            load: convert::load(&load, volumes, index),
            queues: self.queues * self.hosts,
            among: None,
            duration: self.duration,
            ramp: self.ramp,
            interval: self.interval,
            // Volumes that are driven together do not get the same requests at the same times.
            seed: self.seed.wrapping_add(index),
            stop: Stop::new(),
        };
        Ok((0..volumes).map(config).collect())
    }
}

/// What the live view is told of a volume.
pub(super) fn tick(progress: &BenchProgress) -> Tick {
    let gathered = progress
        .intervals
        .iter()
        .map(|interval| interval.latency())
        .reduce(|sum, next| sum.merged(&next));
    Tick {
        job: progress.job,
        elapsed: progress.elapsed,
        total: progress.total,
        ramping: progress.ramping,
        interval: progress.interval,
        requests: progress.requests,
        bytes: progress.bytes,
        errors: progress.errors,
        latency_ns: gathered
            .filter(|latencies| !latencies.is_empty())
            .map(|latencies| latencies.histogram()),
    }
}
