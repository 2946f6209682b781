//! What `weir curve` and `weir compare` have in common: their arguments, volumes that are measured again and again, and the result.

use std::cell::{Cell, RefCell};
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use tokio::runtime::Runtime;
use weir_agent::coordinator::{AgentError, Coordinator, Tick};
use weir_agent::message::Open;
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

use super::agents::{self, AgentsArguments, With};
use super::bench::{self as tool, RequestArguments};
use super::destroy::DestroyArguments;
use super::interrupt::end_on_interrupt;
use super::live::{self, Ended, View};
use super::path;
use super::present::{self, Line, Progress};
use super::report::ResultArguments;
use super::session::Session;
use super::watched::{WatchArguments, Watched};
use super::{ReactorArguments, duration};

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
    #[command(flatten)]
    destroy: DestroyArguments,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    watch: WatchArguments,
    #[command(flatten)]
    reactors: ReactorArguments,
    #[command(flatten)]
    agents: AgentsArguments,
}

/// One side of a comparison, or what a curve is of: of each URL, the volume once as each host sees it.
type Opened = Vec<Vec<Arc<dyn Volume>>>;

/// Volumes that stand ready to be measured.
pub(super) struct Laboratory {
    arguments: LaboratoryArguments,
    workload: Workload,
    /// Of each side, volumes that are driven at the same time.
    sides: Vec<Vec<document::Volume>>,
    place: Place,
    watched: Option<Watched>,
    stop: Stop,
    started: SystemTime,
}

/// Where the volumes are open, and the load is made.
enum Place {
    /// On reactors of this process.
    Here {
        session: Session,
        opened: Vec<Opened>,
    },
    /// On other machines.
    There {
        runtime: Runtime,
        /// Taken by what is run.
        coordinator: RefCell<Option<Coordinator>>,
    },
}

impl Place {
    fn here(
        arguments: &LaboratoryArguments,
        sides: &[Vec<VolumeUrl>],
        workload: &Workload,
        by_rate: bool,
    ) -> anyhow::Result<Self> {
        let volumes = sides.iter().map(Vec::len).max().unwrap_or(1) as u32 * arguments.hosts;
        let Some(queues) = arguments.queues.checked_mul(volumes) else {
            bail!("{volumes} times {} queues are too many", arguments.queues);
        };
        let session = if by_rate {
            Session::start_awake(&arguments.reactors, queues, volumes)?
        } else {
            Session::start_for(&arguments.reactors, queues, volumes)?
        };
        let usage = Usage::of(workload);
        let open = |url| {
            open_as_hosts(
                &session,
                url,
                arguments.hosts,
                usage,
                arguments.destroy.names(url),
            )
        };
        let opened = sides.iter().map(|urls| urls.iter().map(open).collect());
        let opened = opened.collect::<anyhow::Result<_>>()?;
        Ok(Place::Here { session, opened })
    }

    /// Also what the volumes are.
    fn there(
        arguments: &LaboratoryArguments,
        sides: &[Vec<VolumeUrl>],
        workload: &Workload,
        by_rate: bool,
        stop: &Stop,
    ) -> anyhow::Result<(Self, Vec<Vec<document::Volume>>)> {
        let agents = arguments.agents.agents()?;
        end_on_interrupt(stop)?;
        let texts = |urls: &Vec<VolumeUrl>| urls.iter().map(ToString::to_string).collect();
        let texts: Vec<Vec<String>> = sides.iter().map(texts).collect();
        let usage = agents::usage(Usage::of(workload));
        let open = Open::of_sides(&texts, arguments.hosts, arguments.queues, usage);
        let mut open = Open {
            reactors: arguments.reactors.asked(),
            by_rate,
            ..open.context("these are too many queues")?
        };
        arguments.destroy.mark(&mut open);
        let runtime = agents::runtime()?;
        let (coordinator, opened) = runtime.block_on(async {
            let mut coordinator = Coordinator::connect(&agents, stop).await?;
            match coordinator.open(&open, stop).await {
                Ok(opened) => Ok((coordinator, opened)),
                Err(error) => {
                    coordinator.close().await;
                    Err(error)
                }
            }
        })?;
        let coordinator = RefCell::new(Some(coordinator));
        let place = Place::There {
            runtime,
            coordinator,
        };
        Ok((place, opened))
    }
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
        arguments.destroy.check(sides.iter().flatten())?;
        arguments.result.check(&[])?;
        let watched = arguments.watch.watched()?;
        let started = SystemTime::now();
        let workload = arguments.requests.workload()?;
        let (place, stop, stored);
        if arguments.agents.are_named() {
            stop = Stop::new();
            (place, stored) = Place::there(&arguments, sides, &workload, by_rate, &stop)?;
        } else {
            place = Place::here(&arguments, sides, &workload, by_rate)?;
            let Place::Here { session, opened } = &place else {
                unreachable!("it was just made so")
            };
            stop = session.stop.clone();
            stored = sides
                .iter()
                .zip(opened)
                .map(|(urls, opened)| self::stored(urls, opened))
                .collect();
        }
        Ok(Laboratory {
            arguments,
            workload,
            sides: stored,
            place,
            watched,
            stop,
            started,
        })
    }

    /// The volumes of a side, as they are stored.
    pub(super) fn stored(&self, side: usize) -> Vec<document::Volume> {
        self.sides[side].clone()
    }

    /// Ways from this machine to remote volumes, each once; none where other machines make the load.
    pub(super) fn paths(&self, urls: &[VolumeUrl]) -> Vec<document::NetworkPath> {
        let mut paths = Vec::new();
        if matches!(self.place, Place::Here { .. }) {
            for path in urls.iter().filter_map(|url| path::of(url, &self.workload)) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// Over what the load is spread, all volumes of a side and all machines together.
    pub(super) fn spread(&self) -> Spread {
        let volumes = self.sides[0].len() as u32;
        let hosts = self.arguments.hosts * self.arguments.agents.count();
        Spread {
            volumes,
            queues: self.arguments.queues * hosts * volumes,
            hosts,
        }
    }

    fn plan(&self) -> Plan {
        let arguments = &self.arguments;
        Plan {
            sides: self.sides.clone(),
            workload: self.workload.clone(),
            queues: arguments.queues * arguments.hosts,
            duration: arguments.duration,
            ramp: arguments.ramp,
            stop: self.stop.clone(),
            watched: self.watched,
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
        let plan = self.plan();
        let progress = Progress::start();
        let sink = progress.sink();
        let outcome = match &self.place {
            Place::Here { session, opened } => {
                let (remotes, opened) = (session.remotes(), opened.clone());
                session.run(move |control| async move {
                    let maker = Maker::Here {
                        control,
                        remotes,
                        opened,
                    };
                    Runner::new(maker, plan, Box::new(sink))
                        .drive(measure)
                        .await
                        .0
                })?
            }
            Place::There {
                runtime,
                coordinator,
            } => {
                let Some(coordinator) = coordinator.take() else {
                    bail!("the agents have done what they were connected for");
                };
                runtime.block_on(async {
                    let maker = Maker::There(coordinator);
                    let runner = Runner::new(maker, plan, Box::new(sink));
                    let (outcome, maker) = runner.drive(measure).await;
                    if let Maker::There(coordinator) = maker {
                        coordinator.close().await;
                    }
                    outcome
                })
            }
        };
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
    let errors = runs.iter().map(|run| run.errors()).sum::<u64>() + document.left_out_errors();
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

/// By how much Little's law is missed.
pub(super) fn law(run: &Run) -> String {
    match &run.littles_law {
        Some(law) => format!("{:+.1}%", law.error_percent),
        None => "-".to_owned(),
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

/// Volumes of this process, as they are stored.
fn stored(urls: &[VolumeUrl], opened: &Opened) -> Vec<document::Volume> {
    let each = urls.iter().zip(opened);
    each.map(|(url, seen)| convert::volume(&url.to_string(), &seen[0].name(), &seen[0].geometry()))
        .collect()
}

/// What is the same in every run.
struct Plan {
    sides: Vec<Vec<document::Volume>>,
    workload: Workload,
    /// Of each volume, on each machine.
    queues: u32,
    duration: Duration,
    ramp: Duration,
    stop: Stop,
    watched: Option<Watched>,
}

impl Plan {
    /// What to do with each volume.
    fn configs(&self, request: &Request) -> Vec<BenchConfig> {
        let count = self.sides[request.side].len() as u64;
        let config = |index| BenchConfig {
            workload: self.workload.clone(),
            load: convert::load(&request.load, count, index),
            queues: self.queues,
            among: None,
            duration: self.duration,
            ramp: self.ramp,
            interval: bench::INTERVAL.min(self.duration),
            seed: request.seed.wrapping_add(index),
            stop: self.stop.clone(),
        };
        (0..count).map(config).collect()
    }
}

/// Who makes the load.
enum Maker {
    /// The tool's own reactors.
    Here {
        control: Reactor,
        remotes: Vec<Remote>,
        opened: Vec<Opened>,
    },
    /// Other machines.
    There(Coordinator),
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The load could not be made here.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// An agent was lost, or could not make its part. What was measured until then is no result.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Measures opened volumes.
pub(super) struct Runner {
    maker: Maker,
    plan: Plan,
    sink: Box<dyn FnMut(Line)>,
    /// Runs that have ended, and how many there will be.
    far: Rc<Cell<(u32, u32)>>,
    shown: Shown,
    caveats: Vec<(String, Caveat)>,
}

impl Bench for Runner {
    type Error = RunError;

    async fn run(&mut self, request: &Request) -> Result<Run, RunError> {
        let configs = self.plan.configs(request);
        let watched = self.plan.watched;
        let gateway_before = watched.and_then(|of| of.seconds());
        self.shown.begin(request, self.far.get());
        let (shown, sink, stop) = (&mut self.shown, &mut self.sink, &self.plan.stop);
        let volumes = &self.plan.sides[request.side];
        let (reports, parts) = match &mut self.maker {
            Maker::Here {
                control,
                remotes,
                opened,
            } => {
                let jobs = jobs(configs, volumes, &opened[request.side]);
                let tell = |progress: BenchProgress| {
                    if let Some(line) = shown.line(request.side, &tool::tick(&progress)) {
                        sink(line);
                    }
                };
                let reports = bench::run_jobs(control, remotes, &jobs, tell).await?;
                (reports, None)
            }
            Maker::There(coordinator) => {
                let total = self.plan.ramp + self.plan.duration;
                let mut tell = |tick: Tick| {
                    if let Some(line) = shown.line(request.side, &agents::tick(&tick, total)) {
                        sink(line);
                    }
                };
                let outcome = coordinator
                    .run(request.side, &configs, stop, &mut tell)
                    .await?;
                let parts = agents::stored(&outcome, With::All);
                let caveats = agents::caveats(&outcome);
                // Less than was asked for is no point of a curve, and no side of a comparison.
                if let Some(error) = outcome.error {
                    return Err(error.into());
                }
                (outcome.merged, Some((parts, caveats)))
            }
        };
        let asked = Asked {
            name: &request.name,
            workload: &self.plan.workload,
            load: request.load,
            seed: request.seed,
            ramp: self.plan.ramp,
        };
        let mut run = convert::run(&asked, volumes, &reports);
        let took = self.plan.ramp + self.plan.duration;
        self.shown.ended(request.side, &run, took);
        let caveats = match parts {
            None => convert::caveats(&reports),
            Some((parts, caveats)) => {
                run.agents = Some(parts);
                caveats
            }
        };
        for caveat in caveats {
            self.caveats.push((request.name.clone(), caveat));
        }
        let (ramp, measured) = (self.plan.ramp, self.plan.duration);
        let gone = watched.and_then(|of| of.tell(gateway_before, &mut run, ramp, measured));
        let unsteady = convert::unsteady(&run);
        for caveat in gone.into_iter().chain(unsteady) {
            self.caveats.push((request.name.clone(), caveat));
        }
        Ok(run)
    }

    fn is_stopped(&self) -> bool {
        self.plan.stop.is_asked()
    }
}

/// The volumes of this process, each with what to do.
fn jobs(configs: Vec<BenchConfig>, volumes: &[document::Volume], opened: &Opened) -> Vec<Job> {
    let each = volumes.iter().zip(opened).zip(configs);
    each.map(|((volume, seen), config)| Job {
        name: volume.url.clone(),
        volumes: seen.clone(),
        config,
    })
    .collect()
}

impl Runner {
    fn new(maker: Maker, plan: Plan, sink: Box<dyn FnMut(Line)>) -> Self {
        let machines = match &maker {
            Maker::Here { .. } => None,
            Maker::There(coordinator) => Some(coordinator.names().map(str::to_owned).collect()),
        };
        Runner {
            shown: Shown::new(&plan.sides, machines),
            maker,
            plan,
            sink,
            far: Rc::new(Cell::new((0, 0))),
            caveats: Vec::new(),
        }
    }

    /// Measures; also what must be said with its runs, and who made the load.
    async fn drive<T, E>(
        mut self,
        measure: impl AsyncFnOnce(&mut Runner, &mut dyn FnMut(Step<'_>)) -> Result<T, E>,
    ) -> (Result<(T, Vec<Caveat>), E>, Maker) {
        let told = Rc::clone(&self.far);
        let mut observe = move |step: Step<'_>| {
            if let Step::Begins { done, planned, .. } = step {
                told.set((done, planned));
            }
        };
        let measured = measure(&mut self, &mut observe).await;
        let outcome = measured.map(|measured| (measured, grouped(&self.caveats)));
        (outcome, self.maker)
    }
}

/// Sides whose runs that have ended are shown; of more the first.
const SIDES_SHOWN_MAX: usize = 16;

/// What is shown while runs last.
struct Shown {
    /// Of each side what its volumes do, or the machines that drive them.
    views: Vec<View>,
    /// Of each side what its runs came to.
    ended: Vec<Ended>,
    /// Which run of how many it is, before the figures.
    count: String,
    name: String,
    /// Runs that have ended, and how many there will be.
    far: (u32, u32),
    /// What they took.
    before: Duration,
}

impl Shown {
    fn new(sides: &[Vec<document::Volume>], machines: Option<Vec<String>>) -> Self {
        let named = |side: &Vec<document::Volume>| match &machines {
            Some(names) => View::new(names.iter().cloned()),
            None => View::new(side.iter().map(|volume| volume.url.clone())),
        };
        let ended = |side: &Vec<document::Volume>| {
            let name = side.first().filter(|_| sides.len() > 1);
            Ended::new(name.map_or("runs".to_owned(), |volume| volume.url.clone()))
        };
        Shown {
            views: sides.iter().map(named).collect(),
            ended: sides.iter().map(ended).collect(),
            count: String::new(),
            name: String::new(),
            far: (0, 0),
            before: Duration::ZERO,
        }
    }

    fn begin(&mut self, request: &Request, far: (u32, u32)) {
        self.count = match far {
            (_, 0) => String::new(),
            (done, planned) => format!("{} of {planned}: ", done + 1),
        };
        self.name.clone_from(&request.name);
        self.far = far;
        self.views[request.side].begin();
    }

    /// The next line, when the last volume or machine has been told of.
    fn line(&mut self, side: usize, tick: &live::Tick) -> Option<Line> {
        let line = self.views[side].add(tick)?;
        let (done, planned) = self.far;
        let (first, rest) = line.text.split_once('\n').unwrap_or((&line.text, ""));
        // The figures first: beside the bar there is not room for all of it. What a long run is called stands below, too.
        let (count, name) = (&self.count, &self.name);
        let mut text = format!("{count}{first}; {name}\nrun      {name}\n{rest}");
        let ended = self.ended.iter().take(SIDES_SHOWN_MAX);
        for line in ended.filter_map(Ended::line) {
            text.push('\n');
            text.push_str(&line);
        }
        Some(Line {
            elapsed: self.before + line.elapsed,
            fraction: (f64::from(done) + line.fraction.min(1.0)) / f64::from(planned.max(1)),
            text,
        })
    }

    fn ended(&mut self, side: usize, run: &Run, took: Duration) {
        self.before += took;
        // What cannot be read is told with the result.
        let p99_ns = run
            .felt()
            .ok()
            .flatten()
            .and_then(|felt| felt.percentile_ns(99.0).ok());
        self.ended[side].add(run.rate(), p99_ns.map(|ns| ns as f64));
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
