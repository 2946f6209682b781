//! `weir bench --job FILE`: load in phases, with a job for each volume, as a file says.

mod here;
mod on_agents;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use weir_agent::coordinator::Outcome;
use weir_lab::convert::{self, Asked};
use weir_lab::document::{self, Body, Caveat, Document, Load, Run};
use weir_lab::job::{Job, JobFile, Phase};
use weir_lab::secret;
use weir_load::Stop;
use weir_load::bench::{self, BenchConfig, BenchReport};
use weir_volume::VolumeUrl;

use super::ReactorArguments;
use super::agents::{self, AgentsArguments, With};
use super::destroy::DestroyArguments;
use super::knobs::connections_parameter;
use super::laboratory::{Usage, check_hosts, document, grouped, judged, latencies, law, show};
use super::present;
use super::report::ResultArguments;

/// What the command line says beside the file.
pub(super) struct JobArguments<'a> {
    pub(super) file: &'a Path,
    pub(super) destroy: &'a DestroyArguments,
    pub(super) result: &'a ResultArguments,
    pub(super) reactors: &'a ReactorArguments,
    pub(super) agents: &'a AgentsArguments,
}

/// A job file that was read, with the URLs of its volumes.
struct Asking {
    /// What it is called.
    name: String,
    file: JobFile,
    urls: BTreeMap<String, VolumeUrl>,
}

/// What came of the phases that have figures, one after the other.
struct Measured {
    /// The volume of each job.
    volumes: Vec<Vec<document::Volume>>,
    /// A report for each job.
    reports: Vec<Vec<BenchReport>>,
    /// The agents that made them; none where this machine did.
    outcomes: Vec<Outcome>,
    end: End,
}

/// Why there are no more.
enum End {
    /// These are all, or the user wanted no more.
    Asked,
    /// The next one failed.
    Failed(anyhow::Error),
    /// An agent was lost in the last of them.
    Lost,
}

pub(super) fn run(arguments: &JobArguments<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let name = arguments.file.display().to_string();
    let text = std::fs::read_to_string(arguments.file)
        .with_context(|| format!("the job file {name} cannot be read"))?;
    let file = JobFile::read(&name, &text)?;
    arguments.result.check(&[arguments.file])?;
    let urls = urls(&name, &file)?;
    arguments.destroy.check(urls.values())?;
    let asking = Asking { name, file, urls };
    let measured = match arguments.agents.are_named() {
        true => on_agents::measure(arguments, &asking)?,
        false => here::measure(arguments, &asking)?,
    };
    let file = &asking.file;
    let (runs, mut caveats) = stored(file, &measured, arguments.agents.count());
    caveats.extend(cut_short(file, &measured));
    if let (End::Failed(error), true) = (&measured.end, runs.is_empty()) {
        bail!("phase '{}' failed: {error:#}", file.phases[0].name);
    }
    let mut document = document(Body::Bench { runs }, started);
    document.caveats = caveats;
    show(&document, json, shown)?;
    arguments.result.write(&document)?;
    match &measured.end {
        End::Asked => Ok(judged(&document)),
        End::Failed(_) => Ok(ExitCode::FAILURE),
        End::Lost => {
            let lost = document.runs().iter().find_map(|run| run.error());
            let lost = lost.unwrap_or("an agent was lost");
            eprintln!("error: the result is not whole: {lost}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// What has to be said where phases are missing, or one is not whole.
fn cut_short(file: &JobFile, measured: &Measured) -> Vec<Caveat> {
    let done = measured.reports.len();
    let mut missing = file.phases[done..].iter();
    let mut caveats = Vec::new();
    if let (End::Failed(error), Some(phase)) = (&measured.end, missing.as_slice().first()) {
        missing.next();
        let error = secret::without_in_text(&format!("{error:#}"));
        let text = format!("phase '{}' failed and has no figures: {error}", phase.name);
        caveats.push(Caveat::new("phase-failed", text));
    }
    let names: Vec<String> = missing.map(|phase| format!("'{}'", phase.name)).collect();
    if !names.is_empty() {
        let why = match measured.end {
            End::Failed(_) | End::Lost => "since one failed",
            End::Asked => "since it was asked to end",
        };
        let text = format!(
            "{} of {} phases were not begun, {why}: {}",
            names.len(),
            file.phases.len(),
            names.join(", ")
        );
        caveats.push(Caveat::new("phases-not-begun", text));
    }
    caveats
}

/// The URLs of all jobs, read. What is wrong with one is told with its line.
fn urls(name: &str, file: &JobFile) -> anyhow::Result<BTreeMap<String, VolumeUrl>> {
    let jobs = file.phases.iter().flat_map(|phase| &phase.jobs);
    jobs.map(|job| {
        let url: VolumeUrl = job
            .volume
            .parse()
            .with_context(|| format!("{name}:{}: volume is no URL", job.volume_line))?;
        check_hosts(&url, job.hosts)
            .with_context(|| format!("{name}:{}: hosts is {}", job.hosts_line, job.hosts))?;
        Ok((job.volume.clone(), url))
    })
    .collect()
}

/// A volume that is opened once: jobs that share it share it as it is open, for whatever any of them does. A medium is opened for writing once.
struct Shared<'a> {
    /// The first of the jobs.
    job: &'a Job,
    url: VolumeUrl,
    usage: Usage,
}

impl Asking {
    /// Each volume once, and for each phase which of them its jobs drive.
    fn shared(&self) -> anyhow::Result<(Vec<Shared<'_>>, Vec<Vec<usize>>)> {
        let mut shared: Vec<Shared<'_>> = Vec::new();
        let mut sides = Vec::with_capacity(self.file.phases.len());
        for phase in &self.file.phases {
            let mut side = Vec::with_capacity(phase.jobs.len());
            for job in &phase.jobs {
                let is_same = |other: &Shared<'_>| shares(other.job, job);
                side.push(match shared.iter().position(is_same) {
                    Some(place) => place,
                    None => {
                        shared.push(self.first_of(job)?);
                        shared.len() - 1
                    }
                });
            }
            sides.push(side);
        }
        Ok((shared, sides))
    }

    fn first_of<'a>(&self, job: &'a Job) -> anyhow::Result<Shared<'a>> {
        let jobs = self.file.phases.iter().flat_map(|phase| &phase.jobs);
        let sharing = jobs.filter(|other| other.volume == job.volume);
        let usage = sharing.map(|other| Usage::of(&other.workload)).max();
        let Some(url) = self.urls.get(&job.volume) else {
            bail!("{} was not read", job.volume);
        };
        Ok(Shared {
            job,
            url: with_queues(url, self.queues_of_host(job))?,
            usage: usage.expect("the job itself is among them"),
        })
    }

    /// The queues that each host of a job's volume needs: those of the jobs that use it side by side.
    fn queues_of_host(&self, job: &Job) -> u32 {
        let of_phase = |phase: &Phase| {
            let sharing = phase.jobs.iter().filter(|other| shares(other, job));
            sharing
                .map(|other| other.queues)
                .fold(0, u32::saturating_add)
        };
        self.file.phases.iter().map(of_phase).max().unwrap_or(1)
    }

    /// Of the phase with the most, what its jobs have together.
    fn together(&self, of: impl Fn(&Job) -> u32) -> u32 {
        let sums = self.file.phases.iter().map(|phase| {
            let each = phase.jobs.iter().map(&of);
            each.fold(0, u32::saturating_add)
        });
        sums.max().unwrap_or(1)
    }

    fn queues_together(&self) -> u32 {
        self.together(|job| job.queues.saturating_mul(job.hosts))
    }

    fn has_rates(&self) -> bool {
        let mut jobs = self.file.phases.iter().flat_map(|phase| &phase.jobs);
        jobs.any(|job| job.load.rate().is_some())
    }
}

/// Whether two jobs use one volume, as it is open for both.
fn shares(one: &Job, other: &Job) -> bool {
    (&one.volume, one.hosts) == (&other.volume, other.hosts)
}

/// The URL with as many queues, sessions or connections as are asked for, where it does not say how many itself.
fn with_queues(url: &VolumeUrl, queues: u32) -> anyhow::Result<VolumeUrl> {
    let Some(parameter) = connections_parameter(url) else {
        return Ok(url.clone());
    };
    match url.parameters().text(parameter)? {
        Some(_) => Ok(url.clone()),
        None => Ok(url.clone().with(parameter, queues)),
    }
}

fn config(job: &Job, stop: &Stop) -> BenchConfig {
    BenchConfig {
        workload: job.workload.clone(),
        load: job.load,
        queues: job.queues * job.hosts,
        among: None,
        duration: job.duration,
        ramp: job.ramp,
        interval: job.interval,
        seed: job.seed,
        stop: stop.clone(),
    }
}

/// A run for each job. Phases that were not begun have none.
fn stored(file: &JobFile, measured: &Measured, machines: u32) -> (Vec<Run>, Vec<Caveat>) {
    let (mut runs, mut caveats, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    caveats.extend(
        measured
            .outcomes
            .first()
            .map(agents::of_versions)
            .unwrap_or_default(),
    );
    for (index, reports) in measured.reports.iter().enumerate() {
        let (phase, outcome) = (&file.phases[index], measured.outcomes.get(index));
        for (place, (job, report)) in phase.jobs.iter().zip(reports).enumerate() {
            let one = std::slice::from_ref(report);
            let name = format!("{}, {}", phase.name, job.name);
            let volume = measured.volumes[index][place].clone();
            let mut run = convert::run(&asked(job, machines), &[volume], one);
            run.phase = Some(phase.name.clone());
            let unsteady = convert::unsteady(&run);
            caveats.extend(unsteady.map(|caveat| (name.clone(), caveat)));
            match outcome {
                None => {
                    let own = convert::caveats(one).into_iter();
                    caveats.extend(own.map(|caveat| (name.clone(), caveat)));
                }
                Some(outcome) => {
                    let with = With::Job(place, job.seed);
                    run.agents = Some(agents::stored(outcome, with));
                    let own = agents::of_parts(outcome, with).into_iter();
                    caveats.extend(own.map(|(of, caveat)| (format!("{name}, {of}"), caveat)));
                }
            }
            runs.push(run);
        }
        if let Some(outcome) = outcome {
            let apart = agents::of_beginning(outcome);
            caveats.extend(apart.map(|caveat| (phase.name.clone(), caveat)));
            let what = format!("phase '{}'", phase.name);
            let error = outcome.error.as_ref();
            lost.extend(error.map(|error| agents::of_loss(&what, error)));
        }
    }
    lost.extend(grouped(&caveats));
    (runs, lost)
}

/// What a job was asked for on so many machines together.
fn asked(job: &Job, machines: u32) -> Asked<'_> {
    let hosts = job.hosts * machines;
    let queues = job.queues * hosts;
    Asked {
        name: &job.name,
        workload: &job.workload,
        load: match job.load {
            bench::Load::Closed { depth } => Load::Closed {
                depth,
                queues,
                hosts,
            },
            bench::Load::Open {
                rate,
                arrivals,
                depth_max,
            } => Load::Open {
                rate: rate as f64,
                arrivals: convert::arrivals(arrivals),
                depth_max,
                queues,
                hosts,
            },
        },
        seed: job.seed,
        ramp: job.ramp,
    }
}

/// Every job, and who made the load of each.
fn shown(document: &Document) -> anyhow::Result<String> {
    let mut text = table(document)?;
    for run in document.runs() {
        if let Some(parts) = &run.agents {
            let phase = run.phase.as_deref().unwrap_or_default();
            text += &format!("\n{phase}, {}\n{}", run.name, agents::table(parts)?);
        }
    }
    Ok(text)
}

fn table(document: &Document) -> anyhow::Result<String> {
    let heads = [
        "phase",
        "job",
        "IOPS",
        "bandwidth",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "max",
        "law",
        "errors",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for run in document.runs() {
        let mut cells = vec![
            run.phase.clone().unwrap_or_default(),
            run.name.clone(),
            present::grouped(run.rate() as u64),
            present::rate(run.bytes_per_second()),
        ];
        cells.extend(latencies(run.felt()?.as_ref())?);
        cells.push(law(run));
        cells.push(present::grouped(run.errors()));
        rows.push(cells);
    }
    Ok(present::table(&rows))
}
