//! `weir bench --agent`: the same load, made on other machines.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use weir_agent::coordinator::{AgentError, Coordinator, Outcome};
use weir_agent::message::Open;
use weir_lab::document::{Body, Volume};
use weir_load::Stop;
use weir_load::bench::BenchConfig;
use weir_load::workload::Workload;

use super::show::{Driven, Shown};
use super::{BenchArguments, judge};
use crate::tools::agents::{self, With};
use crate::tools::laboratory::Usage;
use crate::tools::live::View;
use crate::tools::present::Progress;
use crate::tools::session::end_on_interrupt;
use crate::tools::watched::Watched;
use weir_lab::convert::UNSTEADY;
use weir_lab::secret::without_in_text;

/// Measures and tells. A run that an agent did not make to the end is told too, and is a failure.
pub(super) fn run(
    arguments: &BenchArguments,
    workload: &Workload,
    configs: &[BenchConfig],
    watched: Option<Watched>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let gateway_before = watched.and_then(|of| of.seconds());
    let (volumes, outcome) = measure(arguments, workload, configs)?;
    let queues = arguments.queues * arguments.hosts * arguments.agents.count();
    let driven: Vec<_> = volumes
        .into_iter()
        .zip(&arguments.urls)
        .map(|(volume, url)| Driven {
            name: without_in_text(&url.to_string()),
            volume,
            queues,
        })
        .collect();
    let parts = agents::stored(&outcome, With::All);
    let mut document = arguments.stored(workload, &driven, &outcome.merged, started);
    // Those of the load are told with the names of the agents that they are about.
    document.caveats.retain(|of| of.code == UNSTEADY);
    arguments.watch(&mut document, watched, gateway_before);
    document.caveats.splice(0..0, agents::caveats(&outcome));
    let caveats = document.caveats.clone();
    if let Body::Bench { runs } = &mut document.body {
        runs.iter_mut()
            .for_each(|run| run.agents = Some(parts.clone()));
    }
    // A full disk does not keep anybody from seeing what was measured.
    let written = arguments.result.write(&document);
    let mut shown = Shown::new(arguments, workload, &driven, &outcome.merged);
    if json {
        let mut json = shown.json();
        json["agents"] = agents::json(&parts)?;
        json["result"] = serde_json::to_value(&document)?;
        json["caveats"] = serde_json::to_value(&caveats)?;
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        print!("{}\n{}", shown.text(&document), agents::table(&parts)?);
    }
    for caveat in &caveats {
        eprintln!("note: {}", caveat.text);
    }
    // They were told with the names of the agents that they are about.
    shown.sum.caveats.clear();
    let judged = judge(&shown.sum);
    written?;
    Ok(match &outcome.error {
        None => judged,
        Some(error) => {
            let error = without_in_text(&error.to_string());
            eprintln!("error: the run is not whole: {error}");
            ExitCode::FAILURE
        }
    })
}

fn measure(
    arguments: &BenchArguments,
    workload: &Workload,
    configs: &[BenchConfig],
) -> anyhow::Result<(Vec<Volume>, Outcome)> {
    let agents = arguments.agents.agents()?;
    let stop = Stop::new();
    end_on_interrupt(&stop)?;
    let urls = arguments.urls.iter().map(ToString::to_string).collect();
    let usage = agents::usage(Usage::of(workload));
    let open = Open::of_sides(&[urls], arguments.hosts, arguments.queues, usage);
    let open = Open {
        destroy_data: arguments.destroy_data,
        reactors: arguments.reactors.asked(),
        by_rate: arguments.rate.is_some(),
        ..open.context("these are too many queues")?
    };
    let total = arguments.ramp + arguments.duration;
    let progress = Progress::start();
    let mut sink = progress.sink();
    agents::runtime()?.block_on(async {
        let mut coordinator = Coordinator::connect(&agents, &stop).await?;
        let measured = async {
            let mut sides = coordinator.open(&open, &stop).await?;
            let mut view = View::new(coordinator.names().map(str::to_owned));
            let mut tell = |tick| {
                if let Some(line) = view.add(&agents::tick(&tick, total)) {
                    sink(line);
                }
            };
            let outcome = coordinator.run(0, configs, &stop, &mut tell).await?;
            Ok::<_, AgentError>((sides.swap_remove(0), outcome))
        };
        let measured = measured.await;
        coordinator.close().await;
        let (side, outcome) = measured?;
        Ok((side, agents::check(outcome)?))
    })
}
