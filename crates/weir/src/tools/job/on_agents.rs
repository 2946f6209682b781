//! The phases of a job file on other machines: each begins on all agents together when the one before has ended on all of them.

use std::time::Duration;

use anyhow::Context;
use weir_agent::coordinator::{AgentError, Coordinator, Tick};
use weir_agent::message::{Open, OpenVolume};
use weir_lab::secret;
use weir_load::Stop;
use weir_load::bench::BenchConfig;

use super::{Asking, End, JobArguments, Measured, config};
use crate::tools::agents;
use crate::tools::interrupt::end_on_interrupt;
use crate::tools::live::View;
use crate::tools::present::{Line, Progress};

pub(super) fn measure(arguments: &JobArguments<'_>, asking: &Asking) -> anyhow::Result<Measured> {
    let agents = arguments.agents.agents()?;
    let stop = Stop::new();
    end_on_interrupt(&stop)?;
    let open = open(arguments, asking)?;
    let progress = Progress::start();
    let mut sink = progress.sink();
    agents::runtime()?.block_on(async {
        let mut coordinator = Coordinator::connect(&agents, &stop).await?;
        let measured = phases(&mut coordinator, asking, &open, &stop, &mut sink).await;
        coordinator.close().await;
        measured
    })
}

/// What the agents open: each volume once, for all phases.
fn open(arguments: &JobArguments<'_>, asking: &Asking) -> anyhow::Result<Open> {
    let (shared, sides) = asking.shared()?;
    let volumes = shared.iter().map(|of| OpenVolume {
        url: of.url.to_string(),
        hosts: of.job.hosts,
        usage: agents::usage(of.usage),
        destroy_data: arguments.destroy.names(&of.url),
    });
    Ok(Open {
        volumes: volumes.collect(),
        sides,
        queues: asking.queues_together(),
        reactors: arguments.reactors.asked(),
        by_rate: asking.has_rates(),
    })
}

async fn phases(
    coordinator: &mut Coordinator,
    asking: &Asking,
    open: &Open,
    stop: &Stop,
    sink: &mut impl FnMut(Line),
) -> anyhow::Result<Measured> {
    let file = &asking.file;
    let mut volumes = coordinator.open(open, stop).await?;
    for (phase, opened) in file.phases.iter().zip(&mut volumes) {
        for (job, volume) in phase.jobs.iter().zip(opened) {
            // As it stands in the file.
            volume.url = secret::without_in(&job.volume);
        }
    }
    let configs = file.phases.iter().map(|phase| {
        let each = phase.jobs.iter().map(|job| config(job, stop));
        each.collect::<Vec<BenchConfig>>()
    });
    let configs: Vec<_> = configs.collect();
    for (side, of_phase) in configs.iter().enumerate() {
        check(coordinator, asking, side, of_phase, stop).await?;
    }
    let mut measured = Measured {
        volumes,
        reports: Vec::new(),
        outcomes: Vec::new(),
        end: End::Asked,
    };
    let mut before = Duration::ZERO;
    for (side, of_phase) in configs.iter().enumerate() {
        let total = of_phase.iter().map(|config| config.ramp + config.duration);
        let total = total.max().unwrap_or_default();
        let mut view = View::new(coordinator.names().map(str::to_owned));
        let mut tell = |tick: Tick| {
            if let Some(line) = view.add(&agents::tick(&tick, total)) {
                sink(Line {
                    elapsed: before + line.elapsed,
                    text: format!("phase {}: {}", side + 1, line.text),
                    ..line
                });
            }
        };
        let ran = coordinator.run(side, of_phase, stop, &mut tell).await;
        match ran.and_then(agents::check) {
            Ok(outcome) => {
                if outcome.error.is_some() {
                    measured.end = End::Lost;
                }
                measured.reports.push(outcome.merged.clone());
                measured.outcomes.push(outcome);
            }
            Err(error) if side == 0 => return Err(error.into()),
            // What was measured before is there.
            Err(AgentError::Interrupted) => break,
            Err(error) => measured.end = End::Failed(error.into()),
        }
        if stop.is_asked() || !matches!(measured.end, End::Asked) {
            break;
        }
        before += total;
    }
    Ok(measured)
}

/// Has the agents say whether they can run a phase. What is wrong is told with its line.
async fn check(
    coordinator: &mut Coordinator,
    asking: &Asking,
    side: usize,
    configs: &[BenchConfig],
    stop: &Stop,
) -> anyhow::Result<()> {
    let checked = coordinator.check(side, configs, stop).await;
    let Err(AgentError::Job { job, .. }) = &checked else {
        return Ok(checked?);
    };
    let line = asking.file.phases[side].jobs[*job].line;
    checked.with_context(|| format!("{}:{line}: the job cannot be run", asking.name))
}
