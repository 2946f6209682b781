//! A comparison: what differs by how much, and the rounds that this comes from.

use maud::{Markup, html};
use weir_lab::document::{Comparison, Difference, Metric, Run, Stage, Verdict};

use super::over_time::latency_axis;
use super::plot::{Axis, LEFT, Plot, Point, RIGHT, Range, Ranges, Series, TOP, bottom};
use super::scale::Scale;
use super::subject::{Candidate, Statistic, arrange, switches};
use super::tables::{behind, table};
use crate::ReportError;
use crate::words;

const LATENCY_HEIGHT: f64 = 320.0;
const THROUGHPUT_HEIGHT: f64 = 220.0;

pub(super) fn section(source: &str, comparison: &Comparison) -> Result<Markup, ReportError> {
    let mut stages = Vec::with_capacity(comparison.stages.len());
    for stage in &comparison.stages {
        stages.push(stage_section(source, comparison, stage)?);
    }
    Ok(html! {
        @for stage in stages { (stage) }
    })
}

fn stage_section(
    source: &str,
    comparison: &Comparison,
    stage: &Stage,
) -> Result<Markup, ReportError> {
    let first = &comparison.sides[0].name;
    let ranges: Vec<_> = stage
        .differences
        .iter()
        .map(|difference| range(comparison, difference))
        .collect();
    let drawing = Ranges {
        described: format!(
            "Differences from {first} at {}, with what they may be; the table below has the numbers",
            stage.name
        ),
        axis_name: "difference in percent",
        label: |value| format!("{}%", words::trimmed(value, 2)),
        ranges: &ranges,
    };
    Ok(html! {
        section.stage {
            h2 { (stage.name) }
            figure {
                figcaption {
                    b { "Differences from " (first) }
                    span.quiet.small {
                        "The point is what was measured, the line what it may be: " (words::trimmed(comparison.confidence_percent, 2))
                        "% sure for all of them together. A line across zero shows no difference; one that ends at the edge goes on."
                    }
                }
                (drawing.draw())
                (behind("Differences as a table", differences_table(comparison, stage)))
            }
            (throughput(comparison, stage))
            (latency(source, comparison, stage)?)
        }
    })
}

fn side_name(comparison: &Comparison, side: u32) -> &str {
    comparison
        .sides
        .get(side as usize)
        .map_or("?", |side| &side.name)
}

fn range(comparison: &Comparison, difference: &Difference) -> Range {
    let name = format!(
        "{}: {}",
        side_name(comparison, difference.side),
        difference.metric.name()
    );
    let class = match difference.verdict {
        Verdict::Better => "good",
        Verdict::Worse => "bad",
        Verdict::NoDifferenceShown | Verdict::Fixed | Verdict::Unknown => "neither",
    };
    let size = known(difference).map_or_else(String::new, |of| {
        let between = words::between(of.percent_low, of.percent_high);
        format!("{} ({between}): ", percent(of.percent))
    });
    let label = format!("{name}\n{size}{}", verdict(difference));
    Range {
        name,
        low: difference.percent_low,
        middle: difference.percent,
        high: difference.percent_high,
        class,
        label,
    }
}

fn percent(value: f64) -> String {
    format!("{value:+.2}%")
}

/// In words, with the reason where nothing is known.
fn verdict(difference: &Difference) -> String {
    let name = difference.verdict.name();
    match &difference.reason {
        Some(reason) => format!("{name}: {reason}"),
        None => name.to_owned(),
    }
}

/// A difference of which something is known.
fn known(difference: &Difference) -> Option<&Difference> {
    (difference.verdict != Verdict::Unknown).then_some(difference)
}

fn dash() -> String {
    "-".to_owned()
}

fn differences_table(comparison: &Comparison, stage: &Stage) -> Markup {
    let in_words = |metric: Metric, value: f64| match metric {
        Metric::Throughput => words::per_second(value),
        Metric::LatencyMean | Metric::LatencyP99 => words::latency(value),
    };
    let rows: Vec<Vec<String>> = stage
        .differences
        .iter()
        .map(|difference| {
            vec![
                format!(
                    "{}: {}",
                    side_name(comparison, difference.side),
                    difference.metric.name()
                ),
                in_words(difference.metric, difference.baseline),
                in_words(difference.metric, difference.value),
                known(difference).map_or_else(dash, |of| percent(of.percent)),
                known(difference)
                    .map_or_else(dash, |of| words::between(of.percent_low, of.percent_high)),
                verdict(difference),
            ]
        })
        .collect();
    let first = &comparison.sides[0].name;
    let heading = [
        "What",
        first.as_str(),
        "This side",
        "Difference",
        "It may be",
        "Verdict",
    ];
    table("Differences", &heading.map(str::to_owned), &rows)
}

fn round_axis(stage: &Stage) -> Axis {
    Axis {
        name: "round",
        scale: Scale::exactly(0.5, stage.rounds.len() as f64 + 0.5, LEFT, RIGHT),
        label: |value| words::trimmed(value, 0),
    }
}

/// The runs of a side, with the number of their round.
fn rounds(stage: &Stage, side: usize) -> impl Iterator<Item = (f64, &Run)> {
    stage
        .rounds
        .iter()
        .enumerate()
        .filter_map(move |(index, round)| Some((index as f64 + 1.0, round.runs.get(side)?)))
}

fn throughput(comparison: &Comparison, stage: &Stage) -> Markup {
    let mut names = Vec::new();
    let mut series = Vec::new();
    for (index, side) in comparison.sides.iter().enumerate() {
        let id = format!("subject-{index}");
        let points = rounds(stage, index)
            .map(|(round, run)| Point {
                x: round,
                y: run.rate(),
                label: format!(
                    "{}, round {round}\n{} per second",
                    side.name,
                    words::per_second(run.rate())
                ),
            })
            .collect();
        names.push((id.clone(), side.name.clone(), index));
        series.push(Series {
            id,
            choice: None,
            hidden: false,
            colour: index,
            beside: false,
            lines: vec![points],
            radius: 4.0,
        });
    }
    let values = series
        .iter()
        .flat_map(|series| series.lines.iter().flatten());
    let scale = Scale::from_zero(values.map(|point| point.y), bottom(THROUGHPUT_HEIGHT), TOP);
    let plot = Plot {
        kind: "throughput-by-round",
        described: format!(
            "Requests per second of each side in each round at {}; the table of rounds has the numbers",
            stage.name
        ),
        height: THROUGHPUT_HEIGHT,
        x: round_axis(stage),
        y: Axis {
            name: "requests per second",
            scale,
            label: words::round_count,
        },
        series: &series,
        marks: &[],
    };
    html! {
        figure {
            figcaption { b { "Throughput by round" } span.quiet.small { "The sides took turns, so that what drifts drifts for all of them." } }
            div.controls { (switches(&names)) }
            (plot.draw())
        }
    }
}

fn latency(source: &str, comparison: &Comparison, stage: &Stage) -> Result<Markup, ReportError> {
    let names: Vec<_> = comparison
        .sides
        .iter()
        .map(|side| side.name.clone())
        .collect();
    let mut candidates = Vec::new();
    let mut rows = Vec::new();
    for (subject, side) in comparison.sides.iter().enumerate() {
        let failed = |error| ReportError::Histogram {
            run: format!("{source}, {}, {}", stage.name, side.name),
            error,
        };
        let mut points: [Vec<Point>; Statistic::ALL.len()] = Default::default();
        for (round, run) in rounds(stage, subject) {
            let Some(felt) = run.felt().map_err(failed)? else {
                continue;
            };
            let mut row = vec![
                format!("{}, round {round}", side.name),
                words::per_second(run.rate()),
            ];
            for (statistic, points) in Statistic::ALL.into_iter().zip(&mut points) {
                let y = statistic.of(&felt).map_err(failed)?;
                row.push(words::latency(y));
                let label = format!(
                    "{}, round {round}\n{} {}",
                    side.name,
                    statistic.name(),
                    words::latency(y)
                );
                points.push(Point { x: round, y, label });
            }
            row.push(words::grouped(run.errors()));
            rows.push(row);
        }
        for (statistic, points) in Statistic::ALL.into_iter().zip(points) {
            candidates.push(Candidate {
                subject,
                statistic,
                kind: None,
                lines: vec![points],
                radius: 4.0,
            });
        }
    }
    let (series, controls) = arrange(&names, candidates);
    let plot = Plot {
        kind: "latency-by-round",
        described: format!(
            "Latency of each side in each round at {}; the table below has the numbers",
            stage.name
        ),
        height: LATENCY_HEIGHT,
        x: round_axis(stage),
        y: latency_axis(&series, LATENCY_HEIGHT),
        series: &series,
        marks: &[],
    };
    let mut heading = vec!["Run", "Per second"];
    heading.extend(Statistic::ALL.map(Statistic::name));
    heading.push("Failed");
    let heading: Vec<_> = heading.into_iter().map(str::to_owned).collect();
    Ok(html! {
        figure {
            figcaption { b { "Latency by round" } }
            (controls)
            (plot.draw())
            (behind("Rounds as a table", table("Each side in each round", &heading, &rows)))
        }
    })
}
