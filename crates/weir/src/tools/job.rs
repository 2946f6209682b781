//! `weir bench --job FILE`: load in phases, with a job for each volume, as a file says.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use weir_block::Volume;
use weir_lab::convert::{self, Asked};
use weir_lab::document::{Body, Caveat, Document, Load, Run};
use weir_lab::job::{Job, JobFile, Phase};
use weir_lab::secret;
use weir_load::bench::{self, BenchConfig, BenchProgress, BenchReport, PhaseReports};
use weir_nvme_host::SCHEME;
use weir_volume::VolumeUrl;

use super::ReactorArguments;
use super::bench::tick;
use super::laboratory::{
    Usage, check_hosts, document, grouped, judged, latencies, open_as_hosts, show,
};
use super::live::View;
use super::present::{self, Line, Progress};
use super::report::ResultArguments;
use super::session::Session;

/// What the command line says beside the file.
pub(super) struct JobArguments<'a> {
    pub(super) file: &'a Path,
    pub(super) destroy_data: bool,
    pub(super) result: &'a ResultArguments,
    pub(super) reactors: &'a ReactorArguments,
}

/// A job whose volume stands ready.
struct Ready {
    job: Job,
    volumes: Vec<Arc<dyn Volume>>,
}

pub(super) fn run(arguments: &JobArguments<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let name = arguments.file.display().to_string();
    let text = std::fs::read_to_string(arguments.file)
        .with_context(|| format!("the job file {name} cannot be read"))?;
    let file = JobFile::read(&name, &text)?;
    arguments.result.check(&[arguments.file])?;
    let urls = urls(&name, &file)?;
    let session = start(&file, arguments.reactors)?;
    let phases = open(&session, &name, &file, &urls, arguments.destroy_data)?;
    let PhaseReports { reports, failed } = measure(&session, &name, &file, &phases)?;
    let (runs, mut caveats) = stored(&file, &phases, &reports);
    caveats.extend(cut_short(&file, reports.len(), failed.as_ref()));
    if let (Some(error), true) = (&failed, runs.is_empty()) {
        bail!("phase '{}' failed: {error}", file.phases[0].name);
    }
    let mut document = document(Body::Bench { runs }, started);
    document.caveats = caveats;
    show(&document, json, table)?;
    arguments.result.write(&document)?;
    match failed {
        None => Ok(judged(&document)),
        Some(_) => Ok(ExitCode::FAILURE),
    }
}

/// What has to be said where phases are missing: `done` have their figures, and the one after them failed or was not begun.
fn cut_short(file: &JobFile, done: usize, failed: Option<&bench::BenchError>) -> Vec<Caveat> {
    let mut missing = file.phases[done..].iter();
    let mut caveats = Vec::new();
    if let (Some(error), Some(phase)) = (failed, missing.as_slice().first()) {
        missing.next();
        let error = secret::without_in_text(&error.to_string());
        let text = format!("phase '{}' failed and has no figures: {error}", phase.name);
        caveats.push(Caveat::new("phase-failed", text));
    }
    let names: Vec<String> = missing.map(|phase| format!("'{}'", phase.name)).collect();
    if !names.is_empty() {
        let why = match failed {
            Some(_) => "since one failed",
            None => "since it was asked to end",
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

/// Reactors for the phase with the most queues.
fn start(file: &JobFile, reactors: &ReactorArguments) -> anyhow::Result<Session> {
    let most = |of: &dyn Fn(&Job) -> u32| {
        let sums = file.phases.iter().map(|phase| {
            let each = phase.jobs.iter().map(of);
            each.fold(0, u32::saturating_add)
        });
        sums.max().unwrap_or(1)
    };
    let queues = most(&|job| job.queues.saturating_mul(job.hosts));
    let volumes = most(&|job| job.hosts);
    let mut jobs = file.phases.iter().flat_map(|phase| &phase.jobs);
    if jobs.any(|job| job.load.rate().is_some()) {
        Session::start_awake(reactors, queues, volumes)
    } else {
        Session::start_for(reactors, queues, volumes)
    }
}

/// Opens every job's volume, a volume that several jobs name once for each. Refused before anything runs where one that is to be changed
/// carries something.
fn open(
    session: &Session,
    name: &str,
    file: &JobFile,
    urls: &BTreeMap<String, VolumeUrl>,
    destroy_data: bool,
) -> anyhow::Result<Vec<Vec<Ready>>> {
    // A medium is opened for writing once: jobs that share it share its volumes, opened for whatever any of them does.
    let mut opened: BTreeMap<(String, u32), Vec<Arc<dyn Volume>>> = BTreeMap::new();
    let jobs = || file.phases.iter().flat_map(|phase| &phase.jobs);
    for job in jobs() {
        let key = (job.volume.clone(), job.hosts);
        if opened.contains_key(&key) {
            continue;
        }
        let sharing = jobs().filter(|other| other.volume == job.volume);
        let usage = sharing.map(|other| Usage::of(&other.workload)).max();
        let usage = usage.expect("the job itself is among them");
        let Some(url) = urls.get(&job.volume) else {
            bail!("{} was not read", job.volume);
        };
        let opening = with_queues(url, queues_of_host(file, job))
            .and_then(|url| open_as_hosts(session, &url, job.hosts, usage, destroy_data));
        let volumes = opening
            .with_context(|| format!("{name}:{}: the volume cannot be used", job.volume_line))?;
        opened.insert(key, volumes);
    }
    let ready = |job: &Job| Ready {
        volumes: opened[&(job.volume.clone(), job.hosts)].clone(),
        job: job.clone(),
    };
    let phases = file.phases.iter();
    Ok(phases
        .map(|phase| phase.jobs.iter().map(ready).collect())
        .collect())
}

/// The queues that each host of a job's volume needs: those of the jobs that use it side by side.
fn queues_of_host(file: &JobFile, job: &Job) -> u32 {
    let of_phase = |phase: &Phase| {
        let sharing = phase
            .jobs
            .iter()
            .filter(|other| (&other.volume, other.hosts) == (&job.volume, job.hosts));
        sharing
            .map(|other| other.queues)
            .fold(0, u32::saturating_add)
    };
    file.phases.iter().map(of_phase).max().unwrap_or(1)
}

/// Where the URL does not say how many queues a controller has, it has as many as are asked for.
fn with_queues(url: &VolumeUrl, queues: u32) -> anyhow::Result<VolumeUrl> {
    if url.scheme() != SCHEME || url.parameters().text("queues")?.is_some() {
        return Ok(url.clone());
    }
    Ok(url.clone().with("queues", queues))
}

fn measure(
    session: &Session,
    name: &str,
    file: &JobFile,
    phases: &[Vec<Ready>],
) -> anyhow::Result<PhaseReports> {
    let names = file.phases.iter().map(|phase| phase.name.clone());
    let driven: Vec<bench::Phase> = names
        .zip(phases)
        .map(|(name, jobs)| bench::Phase {
            name,
            jobs: jobs.iter().map(|ready| driven(ready, session)).collect(),
        })
        .collect();
    let remotes = session.remotes();
    let jobs = driven.iter().flat_map(|phase| &phase.jobs);
    for (job, asked) in jobs.zip(file.phases.iter().flat_map(|phase| &phase.jobs)) {
        bench::check_job(job, remotes.len())
            .with_context(|| format!("{name}:{}: the job cannot be run", asked.line))?;
    }
    let progress = Progress::start();
    let mut sink = progress.sink();
    let reports = session.run(move |control| async move {
        let mut before = Duration::ZERO;
        let (mut at, mut total) = (0, Duration::ZERO);
        let names = |phase: &bench::Phase| -> Vec<String> {
            phase.jobs.iter().map(|job| job.name.clone()).collect()
        };
        let mut views: Vec<_> = driven.iter().map(|phase| View::new(names(phase))).collect();
        let tell = |phase: usize, progress: BenchProgress| {
            if phase != at {
                (at, before) = (phase, before + total);
            }
            total = progress.total;
            if let Some(line) = views[phase].add(&tick(&progress)) {
                sink(Line {
                    elapsed: before + line.elapsed,
                    text: format!("phase {}: {}", phase + 1, line.text),
                    ..line
                });
            }
        };
        bench::run_phases(&control, &remotes, &driven, tell).await
    })??;
    drop(progress);
    Ok(reports)
}

fn driven(ready: &Ready, session: &Session) -> bench::Job {
    let job = &ready.job;
    bench::Job {
        name: job.name.clone(),
        volumes: ready.volumes.clone(),
        config: BenchConfig {
            workload: job.workload.clone(),
            load: job.load,
            queues: job.queues * job.hosts,
            among: None,
            duration: job.duration,
            ramp: job.ramp,
            interval: job.interval,
            seed: job.seed,
            stop: session.stop.clone(),
        },
    }
}

/// A run for each job. Phases that were not begun have none.
fn stored(
    file: &JobFile,
    phases: &[Vec<Ready>],
    reports: &[Vec<BenchReport>],
) -> (Vec<Run>, Vec<Caveat>) {
    let (mut runs, mut caveats) = (Vec::new(), Vec::new());
    for ((phase, ready), reports) in file.phases.iter().zip(phases).zip(reports) {
        for (ready, report) in ready.iter().zip(reports) {
            let one = std::slice::from_ref(report);
            for caveat in convert::caveats(one) {
                caveats.push((format!("{}, {}", phase.name, ready.job.name), caveat));
            }
            let run = convert::run(&asked(&ready.job), &[volume(ready)], one);
            runs.push(Run {
                phase: Some(phase.name.clone()),
                ..run
            });
        }
    }
    (runs, grouped(&caveats))
}

fn volume(ready: &Ready) -> weir_lab::document::Volume {
    let volume = &ready.volumes[0];
    convert::volume(&ready.job.volume, &volume.name(), &volume.geometry())
}

fn asked(job: &Job) -> Asked<'_> {
    let (queues, hosts) = (job.queues * job.hosts, job.hosts);
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
        cells.push(present::grouped(run.errors()));
        rows.push(cells);
    }
    Ok(present::table(&rows))
}
