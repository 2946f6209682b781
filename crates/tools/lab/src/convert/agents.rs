//! The part of one machine in a run that several made.

use weir_load::bench::BenchReport;

use super::{operations, processor};
use crate::document::{Agent, Latency};

/// Adds to `agent` what its machine reports of its volumes, one report for each. Where there are none it did nothing.
#[must_use]
pub fn agent(agent: Agent, reports: &[BenchReport]) -> Agent {
    let Some((first, others)) = reports.split_first() else {
        return agent;
    };
    let mut sum = first.clone();
    others.iter().for_each(|report| sum.add(report));
    Agent {
        elapsed_seconds: sum.elapsed.as_secs_f64(),
        operations: operations(&sum),
        lag: sum.lag_ns.as_ref().and_then(Latency::of),
        unsent: sum.unsent,
        processor: processor(&sum),
        ..agent
    }
}
