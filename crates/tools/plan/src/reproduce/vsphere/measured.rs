//! The article's comparison made here: what was measured beside the published differences, and at one rate for both sides.

use std::collections::BTreeMap;

use weir_lab::document::{Comparison, Difference, Metric, Stage, Verdict};

use super::{PublishedDifference, signed};
use crate::published::Protocols;
use crate::sheet::{Cell, Row, Section, Source};

/// Comparisons of two sides by the name of the workload, with the stages that [`weir_lab::compare`] tells: one rate for both sides, 80% of
/// each side's maximum, and the maxima.
pub type Measured = BTreeMap<String, Comparison>;

/// The stage in which both sides have one rate.
const EQUAL_RATE: usize = 0;

/// The stage in which each side does so many percent of what it can.
fn stage(comparison: &Comparison, load_percent: u32) -> Option<&Stage> {
    comparison.stages.get(match load_percent {
        80 => 1,
        100 => 2,
        _ => return None,
    })
}

fn difference(stage: &Stage, metric: Metric) -> Option<&Difference> {
    let mut found = stage.differences.iter();
    found.find(|of| of.side == 1 && of.metric == metric)
}

/// A difference with what it may be; words where there is none.
fn cell(difference: Option<&Difference>) -> Cell {
    match difference {
        None => Cell::word("not run", Source::Measured),
        Some(of) if matches!(of.verdict, Verdict::Fixed | Verdict::Unknown) => {
            Cell::word(of.verdict.name(), Source::Measured)
        }
        Some(of) => {
            let between = weir_report::words::between(of.percent_low, of.percent_high);
            let text = format!("{} ({between})", signed(of.percent));
            Cell::new(of.percent, text, Source::Measured)
        }
    }
}

/// The measured counterpart of a published difference: throughput and mean latency.
pub(super) fn beside(measured: &Measured, of: &PublishedDifference) -> [Cell; 2] {
    let comparison = measured.get(&of.workload);
    let stage = comparison.and_then(|found| stage(found, of.load_percent));
    [Metric::Throughput, Metric::LatencyMean]
        .map(|metric| cell(stage.and_then(|stage| difference(stage, metric))))
}

/// Both sides at one rate, which the article does not have.
pub(super) fn equal_rate_section(article: &Protocols, measured: &Measured) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    for of in &article.differences {
        let name = format!("equal-rate-{}", of.workload);
        let stage = measured
            .get(&of.workload)
            .and_then(|of| of.stages.get(EQUAL_RATE));
        if let (Some(stage), false) = (stage, rows.iter().any(|row| row.name == name)) {
            let rate = stage.loads.first().and_then(|load| load.rate());
            let rate = rate.map_or_else(super::super::absent, |rate| {
                let text = format!("{} IOPS", weir_report::words::grouped(rate.round() as u64));
                Cell::new(rate, text, Source::Derived)
            });
            let latencies = [Metric::LatencyMean, Metric::LatencyP99];
            let latencies = latencies.map(|metric| cell(difference(stage, metric)));
            let cells = [rate].into_iter().chain(latencies).collect();
            rows.push(Row::new(name, of.title.clone(), "", cells));
        }
    }
    Section {
        name: "equal-rate".to_owned(),
        title: "Measured at one offered rate for both sides".to_owned(),
        words: "Half of what the slower side can. The article has no such row: parts of each side's own maximum are different loads.".to_owned(),
        columns: ["offered", "mean latency", "p99 latency"].map(str::to_owned).to_vec(),
        rows,
    }
}

/// The sides that were compared, and the summary of each comparison.
pub(super) fn caveats(measured: &Measured) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(comparison) = measured.values().next() {
        for side in &comparison.sides {
            let urls = side.volumes.iter().map(|of| of.url.as_str());
            let mut text = format!(
                "{} here: {}",
                side.name,
                urls.collect::<Vec<_>>().join(", ")
            );
            for path in &side.paths {
                text += &format!("; by {}", path.words());
            }
            told.push(text);
        }
        told.push("Measured differences are of B from A, as the published ones are of NVMe over RoCE v2 from iSCSI; in parentheses what they may be, 99% sure for all of a workload together.".to_owned());
    }
    for (workload, comparison) in measured {
        told.push(format!("{workload}: {}", comparison.summary));
    }
    told
}
