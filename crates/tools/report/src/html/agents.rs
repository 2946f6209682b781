//! The machines that a run's load came from, where there were several: a row for each, and what became of those that were lost.

use maud::{Markup, html};
use weir_lab::document::{Agent, Agents, LatencyError};

use super::tables;
use crate::words;

/// The agents of a run; nothing where it was one machine's.
pub(super) fn section(agents: Option<&Agents>) -> Result<Markup, LatencyError> {
    let Some(agents) = agents else {
        return Ok(html! {});
    };
    let rows = agents.each.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let heading = [
        "Agent",
        "Per second",
        "Bytes",
        "p50",
        "p99",
        "Max",
        "Failed",
        "Processors",
        "Began",
        "Weir",
        "Machine",
        "Error",
    ]
    .map(str::to_owned);
    Ok(html! {
        @if let Some(error) = &agents.error {
            p.caveats { strong { "The run is not whole: " } (error) }
        }
        (tables::table(&caption(agents), &heading, &rows))
    })
}

fn caption(agents: &Agents) -> String {
    let nanoseconds = |seconds: f64| words::latency(seconds * 1e9);
    match (
        agents.start_spread_seconds,
        agents.start_uncertainty_seconds,
    ) {
        (Some(spread), Some(uncertainty)) => format!(
            "The load came from {} agents. First and last began {} apart, which may be off by {}.",
            agents.each.len(),
            nanoseconds(spread),
            nanoseconds(uncertainty)
        ),
        _ => format!("The load was to come from {} agents.", agents.each.len()),
    }
}

fn row(agent: &Agent) -> Result<Vec<String>, LatencyError> {
    let latency = match agent.operations.response()? {
        Some(response) => Some(response),
        None => agent.operations.service()?,
    };
    let mut row = vec![
        agent.name.clone(),
        words::per_second(agent.rate()),
        words::rate(agent.bytes_per_second()),
    ];
    match latency {
        None => row.extend(["-", "-", "-"].map(str::to_owned)),
        Some(latency) => {
            for percentile in [50.0, 99.0] {
                row.push(words::latency(latency.percentile_ns(percentile)? as f64));
            }
            row.push(words::latency(latency.max_ns as f64));
        }
    }
    let busy = agent
        .processor
        .generator_seconds
        .filter(|_| agent.elapsed_seconds > 0.0);
    row.push(words::grouped(agent.operations.errors()));
    row.push(busy.map_or("unknown".to_owned(), |seconds| {
        words::trimmed(seconds / agent.elapsed_seconds, 2)
    }));
    row.push(
        agent
            .start_offset_seconds
            .map_or("never".to_owned(), |seconds| {
                format!("+{}", words::latency(seconds * 1e9))
            }),
    );
    row.push(agent.version.clone());
    row.push(agent.machine.processor.clone());
    row.push(agent.error.clone().unwrap_or_default());
    Ok(row)
}
