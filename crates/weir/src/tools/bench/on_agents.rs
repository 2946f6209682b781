//! `weir bench --agent`: the same load, made on other machines.

mod verified;

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use weir_agent::coordinator::{Coordinator, Outcome};
use weir_agent::message::Open;
use weir_lab::convert::UNSTEADY;
use weir_lab::document::{self, Body, Document};
use weir_load::Stop;
use weir_load::bench::BenchConfig;
use weir_load::workload::{Workload, check_apart};

use self::verified::Verdict;
use super::show::{Driven, Shown};
use super::{ASLEEP, BenchArguments, judge};
use crate::tools::agents::{self, With};
use crate::tools::interrupt::end_on_interrupt;
use crate::tools::laboratory::Usage;
use crate::tools::live::View;
use crate::tools::present::{Line, Progress};
use crate::tools::watched::Watched;
use weir_lab::secret::without_in_text;

/// What came of a run.
struct Done {
    driven: Vec<Driven>,
    outcome: Outcome,
    parts: document::Agents,
    document: Document,
    /// Whether the result could be stored. A full disk does not keep anybody from seeing what was measured.
    written: anyhow::Result<()>,
    /// Of each volume, where blocks are checked.
    verdicts: Vec<Verdict>,
}

/// Measures and tells. A run that an agent did not make to the end is told too, and is a failure.
pub(super) fn run(
    arguments: &BenchArguments,
    workload: &Workload,
    configs: &[BenchConfig],
    watched: Option<Watched>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if arguments.verify && arguments.agents.count() > 1 {
        check_apart(workload).context(
            "--verify over several agents has each write to blocks of its own: what one wrote over another's could not be told from a write that was lost",
        )?;
    }
    let Done {
        driven,
        outcome,
        parts,
        document,
        written,
        verdicts,
    } = measure(arguments, workload, configs, watched)?;
    let caveats = &document.caveats;
    let mut shown = Shown::new(arguments, workload, &driven, &outcome.merged);
    if json {
        let mut json = shown.json();
        json["agents"] = agents::json(&parts)?;
        json["result"] = serde_json::to_value(&document)?;
        json["caveats"] = serde_json::to_value(caveats)?;
        if arguments.verify {
            json["verification"] = verdicts.iter().map(|one| one.json.clone()).collect();
        }
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        print!("{}\n{}", shown.text(&document), agents::table(&parts)?);
    }
    for caveat in caveats {
        eprintln!("note: {}", caveat.text);
    }
    // They were told with the names of the agents that they are about.
    shown.sum.caveats.clear();
    let judged = judge(&shown.sum);
    written?;
    if let Some(error) = &outcome.error {
        let error = without_in_text(&error.to_string());
        eprintln!("error: the run is not whole: {error}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(match verdicts.iter().all(|one| one.is_sound) {
        true => judged,
        false => ExitCode::FAILURE,
    })
}

fn measure(
    arguments: &BenchArguments,
    workload: &Workload,
    configs: &[BenchConfig],
    watched: Option<Watched>,
) -> anyhow::Result<Done> {
    let started = SystemTime::now();
    let agents = arguments.agents.agents()?;
    let stop = Stop::new();
    end_on_interrupt(&stop)?;
    let urls = arguments.urls.iter().map(ToString::to_string).collect();
    let usage = agents::usage(Usage::of(workload));
    let open = Open::of_sides(&[urls], arguments.hosts, arguments.queues, usage);
    let mut open = Open {
        reactors: arguments.reactors.asked(),
        by_rate: arguments.stays_awake(),
        ..open.context("these are too many queues")?
    };
    arguments.destroy.mark(&mut open);
    let seeds = match arguments.verify {
        true => Some(verified::seeds(configs.len())?),
        false => None,
    };
    let progress = Progress::start();
    let mut sink = progress.sink();
    agents::runtime()?.block_on(async {
        let mut coordinator = Coordinator::connect(&agents, &stop).await?;
        let asked = Asked {
            arguments,
            workload,
            configs,
            open: &open,
            seeds: seeds.as_deref(),
            stop: &stop,
            watched,
            started,
        };
        let done = asked.carry_out(&mut coordinator, &mut sink).await;
        coordinator.close().await;
        done
    })
}

/// What agents are to do.
struct Asked<'a> {
    arguments: &'a BenchArguments,
    workload: &'a Workload,
    configs: &'a [BenchConfig],
    open: &'a Open,
    /// Of what is written to each volume, where blocks are checked.
    seeds: Option<&'a [u64]>,
    stop: &'a Stop,
    watched: Option<Watched>,
    started: SystemTime,
}

impl Asked<'_> {
    async fn carry_out(
        &self,
        coordinator: &mut Coordinator,
        sink: &mut impl FnMut(Line),
    ) -> anyhow::Result<Done> {
        let (arguments, stop) = (self.arguments, self.stop);
        let mut sides = coordinator.open(self.open, stop).await?;
        let mut view = View::new(coordinator.names().map(str::to_owned));
        let total = arguments.ramp + arguments.duration;
        let mut tell = |tick| {
            if let Some(line) = view.add(&agents::tick(&tick, total)) {
                sink(line);
            }
        };
        if self.seeds.is_some() {
            verified::refuse_same_medium(coordinator, &self.open.volumes, stop).await?;
        }
        let gateway_before = self.watched.and_then(|of| of.seconds());
        let outcome = match self.seeds {
            None => coordinator.run(0, self.configs, stop, &mut tell).await?,
            Some(seeds) => {
                let run = coordinator.run_verified(0, self.configs, seeds, stop, &mut tell);
                run.await?
            }
        };
        let outcome = agents::check(outcome)?;
        let concluding = stop.for_what_follows();
        let queues = arguments.queues * arguments.hosts * arguments.agents.count();
        let driven: Vec<_> = sides
            .swap_remove(0)
            .into_iter()
            .zip(&arguments.urls)
            .map(|(volume, url)| Driven {
                name: without_in_text(&url.to_string()),
                volume,
                queues,
            })
            .collect();
        let parts = agents::stored(&outcome, With::All);
        let merged = &outcome.merged;
        let mut document = arguments.stored(self.workload, &driven, merged, self.started);
        // Those of the load are told with the names of the agents that they are about.
        let of_all = [UNSTEADY, ASLEEP];
        document.caveats.retain(|of| of_all.contains(&&*of.code));
        arguments.watch(&mut document, self.watched, gateway_before);
        document.caveats.splice(0..0, agents::caveats(&outcome));
        if let Body::Bench { runs } = &mut document.body {
            runs.iter_mut()
                .for_each(|run| run.agents = Some(parts.clone()));
        }
        // Before what was written is read again, which takes long and may fail. Agents want to hear of their coordinator meanwhile.
        let (result, stored) = (arguments.result.clone(), document.clone());
        let written = tokio::task::spawn_blocking(move || result.write(&stored)).await;
        let written = written.context("the result cannot be written")?;
        let verdicts = match self.seeds {
            None => Vec::new(),
            Some(seeds) => verified::conclude(coordinator, &driven, seeds, &concluding, sink).await,
        };
        Ok(Done {
            driven,
            outcome,
            parts,
            document,
            written,
            verdicts,
        })
    }
}
