//! What `weir curve` and `weir compare` have in common: their arguments, volumes that are measured again and again, and the result.

use std::cell::Cell;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use weir_block::Volume;
use weir_lab::convert::{self, Asked};
use weir_lab::document::{self, Body, Caveat, Document, Latency, Machine, Run};
use weir_lab::runner::{Bench, Request, Spread, Step};
use weir_lab::secret;
use weir_load::Stop;
use weir_load::bench::{self, BenchConfig, BenchError, BenchProgress, Job};
use weir_load::workload::{Kind, Workload};
use weir_nvme_host::SCHEME;
use weir_reactor::{Reactor, Remote};
use weir_volume::{Access, VolumeUrl};

use super::bench::RequestArguments;
use super::present::{self, Line, Progress};
use super::report::ResultArguments;
use super::session::Session;
use super::{ReactorArguments, duration};

/// Ticks of `/proc/PID/stat` in a second: USER_HZ, which is the same on every machine that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;
/// So many runs are named where a caveat concerns several.
const NAMED_RUNS_MAX: usize = 3;

/// What is done in each run, and what becomes of the result.
#[derive(Debug, clap::Args)]
pub(crate) struct LaboratoryArguments {
    #[command(flatten)]
    pub(super) requests: RequestArguments,
    /// Queues of each volume, and where there are several hosts, of each host
    #[arg(long, short = 'q', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: u32,
    /// Connect to nvme+tcp: volumes as so many hosts, each with a name, a controller and queues of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    hosts: u32,
    /// For how long to measure in each run
    #[arg(long, short = 't', value_name = "TIME", default_value = "2s", value_parser = duration)]
    duration: Duration,
    /// For how long to run unmeasured before each
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration)]
    ramp: Duration,
    /// What the randomness starts from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write even where a volume carries data (a file system, a partition table)
    #[arg(long)]
    destroy_data: bool,
    #[command(flatten)]
    result: ResultArguments,
    /// Tell the processor time of this process too: a gateway on the same machine
    #[arg(long, value_name = "PID")]
    gateway_pid: Option<u32>,
    #[command(flatten)]
    reactors: ReactorArguments,
}

/// One side of a comparison, or what a curve is of: volumes that are driven at the same time.
#[derive(Clone)]
struct Opened {
    urls: Vec<String>,
    /// Of each URL, the volume once as each host sees it.
    volumes: Vec<Vec<Arc<dyn Volume>>>,
}

/// Volumes that stand ready to be measured.
pub(super) struct Laboratory {
    arguments: LaboratoryArguments,
    session: Session,
    workload: Workload,
    sides: Vec<Opened>,
    started: SystemTime,
}

impl Laboratory {
    /// Opens all sides. Where load is offered by rate, reactors do not sleep much.
    pub(super) fn open(
        arguments: LaboratoryArguments,
        sides: &[Vec<VolumeUrl>],
        by_rate: bool,
    ) -> anyhow::Result<Self> {
        for url in sides.iter().flatten() {
            check_hosts(url, arguments.hosts)?;
        }
        arguments.result.check(&[])?;
        let started = SystemTime::now();
        let workload = arguments.requests.workload()?;
        let volumes = sides.iter().map(Vec::len).max().unwrap_or(1) as u32 * arguments.hosts;
        let Some(queues) = arguments.queues.checked_mul(volumes) else {
            bail!("{volumes} times {} queues are too many", arguments.queues);
        };
        let session = if by_rate {
            Session::start_awake(&arguments.reactors, queues, volumes)?
        } else {
            Session::start_for(&arguments.reactors, queues, volumes)?
        };
        let opened = sides
            .iter()
            .map(|urls| arguments.open(&session, urls, &workload))
            .collect::<anyhow::Result<_>>()?;
        Ok(Laboratory {
            arguments,
            session,
            workload,
            sides: opened,
            started,
        })
    }

    /// The volumes of a side, as they are stored.
    pub(super) fn stored(&self, side: usize) -> Vec<document::Volume> {
        self.sides[side].stored()
    }

    /// Over what the load is spread, all volumes of a side together.
    pub(super) fn spread(&self) -> Spread {
        let volumes = self.sides[0].urls.len() as u32;
        Spread {
            volumes,
            queues: self.arguments.queues * self.arguments.hosts * volumes,
            hosts: self.arguments.hosts,
        }
    }

    /// Runs what drives the measurement, and shows how far it is. Also what must be said with its runs.
    pub(super) fn run<T: Send + 'static, E>(
        &self,
        measure: impl AsyncFnOnce(&mut Runner, &mut dyn FnMut(Step<'_>)) -> Result<T, E>
        + Send
        + 'static,
    ) -> anyhow::Result<(T, Vec<Caveat>)>
    where
        E: Send + Into<anyhow::Error> + 'static,
    {
        let arguments = &self.arguments;
        let plan = Plan {
            remotes: self.session.remotes(),
            sides: self.sides.clone(),
            workload: self.workload.clone(),
            queues: arguments.queues * arguments.hosts,
            duration: arguments.duration,
            ramp: arguments.ramp,
            stop: self.session.stop.clone(),
            gateway_pid: arguments.gateway_pid,
        };
        let progress = Progress::start();
        let sink = progress.sink();
        let outcome = self.session.run(move |control| async move {
            let far = Rc::new(Cell::new((0, 0)));
            let told = Rc::clone(&far);
            let mut observe = move |step: Step<'_>| {
                if let Step::Begins { done, planned, .. } = step {
                    told.set((done, planned));
                }
            };
            let mut runner = Runner {
                control,
                plan,
                sink: Box::new(sink),
                far,
                before: Duration::ZERO,
                caveats: Vec::new(),
            };
            let measured = measure(&mut runner, &mut observe).await;
            measured.map(|measured| (measured, grouped(&runner.caveats)))
        })?;
        drop(progress);
        outcome.map_err(Into::into)
    }

    /// Stores the result and shows it: as JSON, or as `text` says.
    pub(super) fn finish(
        &self,
        body: Body,
        caveats: Vec<Caveat>,
        json: bool,
        text: impl FnOnce(&Document) -> anyhow::Result<String>,
    ) -> anyhow::Result<ExitCode> {
        let mut document = document(body, self.started);
        document.caveats = caveats;
        // Shown first: what took hours is not lost with a full disk.
        show(&document, json, text)?;
        self.arguments.result.write(&document)?;
        Ok(judged(&document))
    }
}

/// A result of this command on this machine, without caveats yet.
pub(super) fn document(body: Body, started: SystemTime) -> Document {
    let arguments: Vec<String> = std::env::args().collect();
    Document::new(
        body,
        secret::without(&arguments),
        env!("CARGO_PKG_VERSION").to_owned(),
        humantime::format_rfc3339_seconds(started).to_string(),
        Machine::this(std::thread::available_parallelism().map_or(1, usize::from) as u32),
    )
}

/// Success, unless a request failed or a point could not be measured, which is said.
pub(super) fn judged(document: &Document) -> ExitCode {
    let runs = document.runs();
    let failures = document.failures();
    for failure in &failures {
        eprintln!(
            "weir: {} could not be measured: {}",
            failure.point, failure.reason
        );
    }
    let errors: u64 = runs.iter().map(|run| run.errors()).sum();
    if errors == 0 && failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    if errors == 0 {
        return ExitCode::FAILURE;
    }
    let first = runs.iter().find_map(|run| run.first_error.as_deref());
    eprintln!(
        "weir: {} requests failed; the first: {}",
        present::grouped(errors),
        first.unwrap_or("unknown")
    );
    ExitCode::FAILURE
}

/// Shows a result, as JSON or as `text` says, and what must be said with it.
pub(super) fn show(
    document: &Document,
    json: bool,
    text: impl FnOnce(&Document) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    if json {
        document.write(io::stdout().lock())?;
    } else {
        print!("{}", text(document)?);
    }
    for caveat in &document.caveats {
        eprintln!("note: {}", caveat.text);
    }
    Ok(())
}

/// Cells of a table: mean, p50, p99, p99.9, max.
pub(super) fn latencies(latency: Option<&Latency>) -> anyhow::Result<Vec<String>> {
    let Some(latency) = latency else {
        return Ok(vec!["-".to_owned(); 5]);
    };
    let mut cells = vec![present::latency(latency.mean_ns)];
    for percentile in [50.0, 99.0, 99.9] {
        cells.push(present::latency(latency.percentile_ns(percentile)? as f64));
    }
    cells.push(present::latency(latency.max_ns as f64));
    Ok(cells)
}

impl LaboratoryArguments {
    fn open(
        &self,
        session: &Session,
        urls: &[VolumeUrl],
        workload: &Workload,
    ) -> anyhow::Result<Opened> {
        let volumes = urls
            .iter()
            .map(|url| {
                let usage = Usage::of(workload);
                open_as_hosts(session, url, self.hosts, usage, self.destroy_data)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Opened {
            urls: urls.iter().map(VolumeUrl::to_string).collect(),
            volumes,
        })
    }
}

/// What a load needs of a volume, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Usage {
    Reads,
    /// A volume that is opened for reading has nothing to flush, and answers at once.
    Flushes,
    Overwrites,
}

impl Usage {
    pub(super) fn of(workload: &Workload) -> Self {
        match (workload.modifies(), workload.does(Kind::Flush)) {
            (true, _) => Usage::Overwrites,
            (false, true) => Usage::Flushes,
            (false, false) => Usage::Reads,
        }
    }
}

/// The volume, once as each host sees it. Refused where it is to be changed and carries something.
pub(super) fn open_as_hosts(
    session: &Session,
    url: &VolumeUrl,
    hosts: u32,
    usage: Usage,
    destroy_data: bool,
) -> anyhow::Result<Vec<Arc<dyn Volume>>> {
    check_hosts(url, hosts)?;
    let access = match usage {
        Usage::Reads => Access::READ_ONLY,
        Usage::Flushes | Usage::Overwrites => Access::READ_WRITE,
    };
    let mut urls = vec![url.clone()];
    urls.extend((1..hosts).map(|_| {
        let host = session.another_host();
        let named = url.clone().with("hostnqn", &host.nqn);
        named.with("hostid", host.id)
    }));
    let open = |url| session.open(url, access);
    let volumes = urls.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    if usage == Usage::Overwrites {
        session.check_overwritable(&volumes[0], url, destroy_data)?;
    }
    Ok(volumes)
}

/// Refuses more hosts than there can be.
pub(super) fn check_hosts(url: &VolumeUrl, hosts: u32) -> anyhow::Result<()> {
    if hosts == 1 {
        return Ok(());
    }
    if url.scheme() != SCHEME {
        bail!("{url} knows no hosts: several go with {SCHEME}: volumes");
    }
    let parameters = url.parameters();
    for name in ["hostnqn", "hostid"] {
        if parameters.text(name)?.is_some() {
            bail!("{name}= names one host, and {hosts} are asked for");
        }
    }
    Ok(())
}

impl Opened {
    fn stored(&self) -> Vec<document::Volume> {
        let each = self.urls.iter().zip(&self.volumes);
        each.map(|(url, volumes)| convert::volume(url, &volumes[0].name(), &volumes[0].geometry()))
            .collect()
    }
}

/// What is the same in every run.
struct Plan {
    remotes: Vec<Remote>,
    sides: Vec<Opened>,
    workload: Workload,
    /// Of each volume.
    queues: u32,
    duration: Duration,
    ramp: Duration,
    stop: Stop,
    gateway_pid: Option<u32>,
}

impl Plan {
    fn jobs(&self, request: &Request) -> Vec<Job> {
        let opened = &self.sides[request.side];
        let count = opened.urls.len() as u64;
        let each = opened.urls.iter().zip(&opened.volumes).zip(0..);
        each.map(|((url, volumes), index)| Job {
            name: url.clone(),
            volumes: volumes.clone(),
            config: BenchConfig {
                workload: self.workload.clone(),
                load: convert::load(&request.load, count, index),
                queues: self.queues,
                among: None,
                duration: self.duration,
                ramp: self.ramp,
                interval: bench::INTERVAL.min(self.duration),
                seed: request.seed.wrapping_add(index),
                stop: self.stop.clone(),
            },
        })
        .collect()
    }
}

/// Measures opened volumes, on the tool's reactors.
pub(super) struct Runner {
    control: Reactor,
    plan: Plan,
    sink: Box<dyn FnMut(Line)>,
    /// Runs that have ended, and how many there will be.
    far: Rc<Cell<(u32, u32)>>,
    /// What the runs before took.
    before: Duration,
    caveats: Vec<(String, Caveat)>,
}

impl Bench for Runner {
    type Error = BenchError;

    async fn run(&mut self, request: &Request) -> Result<Run, BenchError> {
        let jobs = self.plan.jobs(request);
        let gateway_before = self.gateway_seconds();
        let (far, before) = (self.far.get(), self.before);
        let mut sums = (0, 0);
        let sink = &mut self.sink;
        let tell = |progress: BenchProgress| {
            sums = (sums.0 + progress.requests, sums.1 + progress.bytes);
            if progress.job + 1 == jobs.len() {
                sink(line(&request.name, far, before, &progress, sums));
                sums = (0, 0);
            }
        };
        let reports = bench::run_jobs(&self.control, &self.plan.remotes, &jobs, tell).await?;
        let took = self.plan.ramp + self.plan.duration;
        self.before += took;
        for caveat in convert::caveats(&reports) {
            self.caveats.push((request.name.clone(), caveat));
        }
        let asked = Asked {
            name: &request.name,
            workload: &self.plan.workload,
            load: request.load,
            seed: request.seed,
            ramp: self.plan.ramp,
        };
        let mut run = convert::run(&asked, &self.plan.sides[request.side].stored(), &reports);
        // What the ramp took is not told apart, and is taken to be its part of the time.
        let measured = self.plan.duration.as_secs_f64() / took.as_secs_f64();
        run.processor.gateway_seconds = gateway_before
            .zip(self.gateway_seconds())
            .map(|(before, after)| (after - before) * measured);
        Ok(run)
    }

    fn is_stopped(&self) -> bool {
        self.plan.stop.is_asked()
    }
}

impl Runner {
    /// Processor time that the watched gateway has had; none where there is none any more.
    fn gateway_seconds(&self) -> Option<f64> {
        let pid = self.plan.gateway_pid?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        processor_seconds(&text)
    }
}

/// User and system time of a line of `/proc/PID/stat` (proc_pid_stat(5), fields 14 and 15). The second field may hold anything, in parentheses.
fn processor_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn line(
    name: &str,
    (done, planned): (u32, u32),
    before: Duration,
    progress: &BenchProgress,
    (requests, bytes): (u64, u64),
) -> Line {
    let seconds = progress.interval.as_secs_f64();
    let part = progress.elapsed.as_secs_f64() / progress.total.as_secs_f64();
    let count = match planned {
        0 => String::new(),
        planned => format!("{} of {planned}: ", done + 1),
    };
    Line {
        elapsed: before + progress.elapsed,
        fraction: (f64::from(done) + part.min(1.0)) / f64::from(planned.max(1)),
        text: format!(
            "{count}{name}: {} IOPS, {}",
            present::grouped((requests as f64 / seconds) as u64),
            present::rate(bytes as f64 / seconds)
        ),
    }
}

/// Caveats of one sort become one, which names the runs that it is about.
pub(super) fn grouped(caveats: &[(String, Caveat)]) -> Vec<Caveat> {
    let mut grouped: Vec<(Vec<&str>, &Caveat)> = Vec::new();
    for (run, caveat) in caveats {
        match grouped.iter_mut().find(|(_, of)| of.code == caveat.code) {
            Some((runs, _)) => runs.push(run),
            None => grouped.push((vec![run], caveat)),
        }
    }
    let each = grouped.into_iter().map(|(runs, caveat)| {
        let named = runs[..runs.len().min(NAMED_RUNS_MAX)].join("; ");
        let more = match runs.len().saturating_sub(NAMED_RUNS_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Caveat::new(
            caveat.code.clone(),
            format!("at {named}{more}: {}", caveat.text),
        )
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_whatever_the_process_is_called() {
        let stat = "12 (a ) b) S 1 12 12 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0";
        assert_eq!(processor_seconds(stat), Some(2.0));
        assert_eq!(processor_seconds("12 (a"), None);
    }

    #[test]
    fn caveats_of_one_sort_are_one() {
        let of = |run: &str, code: &str| (run.to_owned(), Caveat::new(code, format!("{code}!")));
        let caveats = [
            of("depth 1", "late"),
            of("depth 2", "late"),
            of("depth 2", "unsent"),
            of("depth 4", "late"),
            of("depth 8", "late"),
        ];
        let grouped = grouped(&caveats);
        assert_eq!(grouped.len(), 2);
        assert_eq!(
            grouped[0].text,
            "at depth 1; depth 2; depth 4 and 1 more: late!"
        );
        assert_eq!(grouped[1].text, "at depth 2: unsent!");
    }
}
