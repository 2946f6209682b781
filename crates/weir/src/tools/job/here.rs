//! The phases of a job file on reactors of this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use weir_block::Volume;
use weir_lab::convert;
use weir_lab::document;
use weir_load::bench::{self, BenchProgress, PhaseReports};

use super::{Asking, End, JobArguments, Measured, config};
use crate::tools::bench::tick;
use crate::tools::destroy::DestroyArguments;
use crate::tools::laboratory::open_as_hosts;
use crate::tools::live::View;
use crate::tools::present::{Line, Progress};
use crate::tools::session::Session;

pub(super) fn measure(arguments: &JobArguments<'_>, asking: &Asking) -> anyhow::Result<Measured> {
    let session = start(arguments, asking)?;
    let (phases, volumes) = open(&session, asking, arguments.destroy)?;
    let remotes = session.remotes();
    let jobs = phases.iter().flat_map(|phase| &phase.jobs);
    let asked = asking.file.phases.iter().flat_map(|phase| &phase.jobs);
    for (job, asked) in jobs.zip(asked) {
        bench::check_job(job, remotes.len())
            .with_context(|| format!("{}:{}: the job cannot be run", asking.name, asked.line))?;
    }
    let progress = Progress::start();
    let mut sink = progress.sink();
    let PhaseReports { reports, failed } = session.run(move |control| async move {
        let mut before = Duration::ZERO;
        let (mut at, mut total) = (0, Duration::ZERO);
        let names = |phase: &bench::Phase| -> Vec<String> {
            phase.jobs.iter().map(|job| job.name.clone()).collect()
        };
        let mut views: Vec<_> = phases.iter().map(|phase| View::new(names(phase))).collect();
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
        bench::run_phases(&control, &remotes, &phases, tell).await
    })??;
    drop(progress);
    Ok(Measured {
        volumes,
        reports,
        outcomes: Vec::new(),
        end: failed.map_or(End::Asked, |error| End::Failed(error.into())),
    })
}

/// Reactors for the phase with the most queues.
fn start(arguments: &JobArguments<'_>, asking: &Asking) -> anyhow::Result<Session> {
    let queues = asking.queues_together();
    let volumes = asking.together(|job| job.hosts);
    match asking.has_rates() {
        true => Session::start_awake(arguments.reactors, queues, volumes),
        false => Session::start_for(arguments.reactors, queues, volumes),
    }
}

/// Opens every job's volume, a volume that several jobs name once for each; also what they are. Refused before anything runs where one that is to be changed
/// carries something.
fn open(
    session: &Session,
    asking: &Asking,
    destroy: &DestroyArguments,
) -> anyhow::Result<(Vec<bench::Phase>, Vec<Vec<document::Volume>>)> {
    let (shared, sides) = asking.shared()?;
    let mut opened: Vec<Vec<Arc<dyn Volume>>> = Vec::with_capacity(shared.len());
    for of in &shared {
        let volumes = open_as_hosts(
            session,
            &of.url,
            of.job.hosts,
            of.usage,
            destroy.names(&of.url),
        );
        let line = of.job.volume_line;
        let volumes = volumes
            .with_context(|| format!("{}:{line}: the volume cannot be used", asking.name))?;
        opened.push(volumes);
    }
    let (mut phases, mut stored) = (Vec::new(), Vec::new());
    for (phase, side) in asking.file.phases.iter().zip(&sides) {
        let jobs = phase.jobs.iter().zip(side).map(|(job, &place)| bench::Job {
            name: job.name.clone(),
            volumes: opened[place].clone(),
            config: config(job, &session.stop),
        });
        phases.push(bench::Phase {
            name: phase.name.clone(),
            jobs: jobs.collect(),
        });
        let volumes = phase.jobs.iter().zip(side).map(|(job, &place)| {
            let volume = &opened[place][0];
            convert::volume(&job.volume, &volume.name(), &volume.geometry())
        });
        stored.push(volumes.collect());
    }
    Ok((phases, stored))
}
