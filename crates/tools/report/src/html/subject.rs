//! What a drawing shows side by side, and of each which statistic: a colour per statistic where there is one subject, a colour per
//! subject and a choice of the statistic where there are several.

use maud::{Markup, html};
use weir_lab::document::{Latency, LatencyError};

use super::plot::{Point, Series, colour};

/// A number that stands for a distribution of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistic {
    Mean,
    P50,
    P99,
    P999,
    Max,
}

impl Statistic {
    pub(super) const ALL: [Statistic; 5] = [
        Statistic::Mean,
        Statistic::P50,
        Statistic::P99,
        Statistic::P999,
        Statistic::Max,
    ];
    /// What is shown first where one is chosen.
    pub(super) const FIRST: Statistic = Statistic::P99;

    pub(super) fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P50 => "p50",
            Statistic::P99 => "p99",
            Statistic::P999 => "p99.9",
            Statistic::Max => "max",
        }
    }

    pub(super) fn of(self, latency: &Latency) -> Result<f64, LatencyError> {
        Ok(match self {
            Statistic::Mean => latency.mean_ns,
            Statistic::P50 => latency.percentile_ns(50.0)? as f64,
            Statistic::P99 => latency.percentile_ns(99.0)? as f64,
            Statistic::P999 => latency.percentile_ns(99.9)? as f64,
            Statistic::Max => latency.max_ns as f64,
        })
    }
}

/// A line that may be drawn.
pub(super) struct Candidate {
    pub(super) subject: usize,
    pub(super) statistic: Statistic,
    /// What tells it from another of the same statistic, such as `service`.
    pub(super) kind: Option<&'static str>,
    pub(super) lines: Vec<Vec<Point>>,
    pub(super) radius: f64,
}

/// What is drawn of `subjects`, and the buttons for it.
pub(super) fn arrange(subjects: &[String], candidates: Vec<Candidate>) -> (Vec<Series>, Markup) {
    if subjects.len() == 1 {
        by_statistic(candidates)
    } else {
        by_subject(subjects, candidates)
    }
}

fn by_statistic(candidates: Vec<Candidate>) -> (Vec<Series>, Markup) {
    let mut names = Vec::with_capacity(candidates.len());
    let mut series = Vec::with_capacity(candidates.len());
    for (index, candidate) in candidates.into_iter().enumerate() {
        let id = match candidate.kind {
            Some(kind) => format!("{} {kind}", candidate.statistic.name()),
            None => candidate.statistic.name().to_owned(),
        };
        names.push((id.clone(), id.clone(), index));
        series.push(Series {
            id,
            choice: None,
            hidden: false,
            colour: index,
            beside: candidate.kind.is_some(),
            lines: candidate.lines,
            radius: candidate.radius,
        });
    }
    (series, html! { div.controls { (switches(&names)) } })
}

fn by_subject(subjects: &[String], candidates: Vec<Candidate>) -> (Vec<Series>, Markup) {
    let names: Vec<_> = subjects
        .iter()
        .enumerate()
        .map(|(index, name)| (format!("subject-{index}"), name.clone(), index))
        .collect();
    // A statistic of another kind (service beside response) is in no choice: there would be too many.
    let series = candidates
        .into_iter()
        .filter(|candidate| candidate.kind.is_none())
        .map(|candidate| Series {
            id: format!("subject-{}", candidate.subject),
            choice: Some(candidate.statistic.name()),
            hidden: candidate.statistic != Statistic::FIRST,
            colour: candidate.subject,
            beside: false,
            lines: candidate.lines,
            radius: candidate.radius,
        })
        .collect();
    let controls = html! {
        div.controls { (switches(&names)) }
        div.controls.choices.for-script role="group" aria-label="Statistic" {
            span.label { "Latency:" }
            @for statistic in Statistic::ALL {
                button type="button" data-choice=(statistic.name())
                    aria-pressed=(if statistic == Statistic::FIRST { "true" } else { "false" }) { (statistic.name()) }
            }
        }
    };
    (series, controls)
}

/// A button for each series that switches it off and on, and is its key; without a script it is a key alone.
pub(super) fn switches(names: &[(String, String, usize)]) -> Markup {
    html! {
        @for (id, name, index) in names {
            button type="button" class=(colour(*index)) data-series=(id) aria-pressed="true" {
                span.swatch aria-hidden="true" {} (name)
            }
        }
    }
}
