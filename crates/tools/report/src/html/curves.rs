//! Latency against throughput: the points of curves, and of loads beside them.

use maud::{Markup, html};
use weir_lab::document::{self, Body, Curve, Document, Latency, LatencyError, Run};

use super::over_time::{heat_map, key, latency_axis};
use super::plot::{Axis, LEFT, Mark, Plot, Point, RIGHT};
use super::scale::Scale;
use super::subject::{Candidate, Statistic, arrange};
use super::tables::{behind, table};
use crate::measured::{Measured, histogram};
use crate::words;
use crate::{ReportError, Source};

const HEIGHT: f64 = 440.0;

/// Points of one subject, joined by a line or not.
struct Subject<'a> {
    name: String,
    curve: Option<&'a Curve>,
    runs: Vec<&'a Run>,
}

/// The drawing of all documents together; none where there is but one point.
pub(super) fn against_throughput(sources: &[Source]) -> Result<Option<Markup>, ReportError> {
    // What is alike in all but a little is better compared by rounds.
    let compared = |source: &Source| matches!(source.document.body, Body::Comparison(_));
    if sources.iter().all(compared) {
        return Ok(None);
    }
    let subjects: Vec<_> = sources
        .iter()
        .flat_map(|source| subjects(source, sources.len() > 1))
        .collect();
    let points: usize = subjects.iter().map(|subject| subject.runs.len()).sum();
    if points < 2 {
        return Ok(None);
    }
    let mut candidates = Vec::new();
    for (index, subject) in subjects.iter().enumerate() {
        for statistic in Statistic::ALL {
            let failed = |error| ReportError::Histogram {
                run: subject.name.clone(),
                error,
            };
            let points = subject_points(subject, statistic).map_err(failed)?;
            let lines = match subject.curve {
                Some(_) => vec![points],
                None => points.into_iter().map(|point| vec![point]).collect(),
            };
            candidates.push(Candidate {
                subject: index,
                statistic,
                kind: None,
                lines,
                radius: 4.5,
            });
        }
    }
    let names: Vec<_> = subjects
        .iter()
        .map(|subject| subject.name.clone())
        .collect();
    let (series, controls) = arrange(&names, candidates);
    let rates = subjects
        .iter()
        .flat_map(|subject| subject.runs.iter().map(|run| run.rate()));
    let marks = marks(&subjects);
    let plot = Plot {
        kind: "latency-against-throughput",
        described: format!(
            "Latency against requests per second of {}; the table below has the numbers",
            names.join(", ")
        ),
        height: HEIGHT,
        x: Axis {
            name: "requests per second",
            scale: Scale::from_zero(rates, LEFT, RIGHT),
            label: words::round_count,
        },
        y: latency_axis(&series, HEIGHT),
        series: &series,
        marks: &marks,
    };
    Ok(Some(html! {
        section id="latency-against-throughput" {
            figure {
                figcaption {
                    b { "Latency against throughput" }
                    span.quiet.small { "To the right is more, down is faster. Latency is what a user feels: with a rate, from when a request was due." }
                }
                (controls)
                (plot.draw())
            }
            @for subject in &subjects { (remarks(subject)) }
            (behind("The points as a table", points_table(&subjects)?))
        }
    }))
}

fn subjects(source: &Source, several: bool) -> Vec<Subject<'_>> {
    let named = |own: &str| match (several, own) {
        (true, "") => source.name.clone(),
        (true, own) => format!("{}: {own}", source.name),
        (false, "") => "curve".to_owned(),
        (false, own) => own.to_owned(),
    };
    match &source.document.body {
        Body::Bench { runs } => vec![Subject {
            name: named(if several { "" } else { "runs" }),
            curve: None,
            runs: runs.iter().collect(),
        }],
        Body::Curve { curves, .. } => curves
            .iter()
            .map(|curve| Subject {
                name: named(&curve.name),
                curve: Some(curve),
                runs: curve.points.iter().map(|point| &point.run).collect(),
            })
            .collect(),
        Body::Comparison(comparison) => comparison
            .sides
            .iter()
            .enumerate()
            .map(|(index, side)| Subject {
                name: named(&side.name),
                curve: None,
                runs: comparison
                    .stages
                    .iter()
                    .flat_map(|stage| &stage.rounds)
                    .filter_map(|round| round.runs.get(index))
                    .collect(),
            })
            .collect(),
    }
}

fn subject_points(subject: &Subject<'_>, statistic: Statistic) -> Result<Vec<Point>, LatencyError> {
    let mut points = Vec::with_capacity(subject.runs.len());
    for run in &subject.runs {
        let Some(felt) = run.felt()? else { continue };
        let (x, y) = (run.rate(), statistic.of(&felt)?);
        points.push(Point {
            x,
            y,
            label: format!(
                "{}, {}\n{} per second, {} {}",
                subject.name,
                run.name,
                words::per_second(x),
                statistic.name(),
                words::latency(y)
            ),
        });
    }
    Ok(points)
}

fn marks(subjects: &[Subject<'_>]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (index, subject) in subjects.iter().enumerate() {
        let Some(curve) = subject.curve else { continue };
        let own = if subjects.len() > 1 {
            Some(index)
        } else {
            None
        };
        let of = match own {
            Some(_) => format!(" of {}", subject.name),
            None => String::new(),
        };
        if let Some(knee) = &curve.knee {
            marks.push(Mark {
                at: knee.rate,
                text: format!("knee{of}: {}", words::per_second(knee.rate)),
                kind: "knee",
                colour: own,
                row: marks.len(),
            });
        }
        for objective in &curve.objectives {
            let Some(rate) = objective.rate else { continue };
            marks.push(Mark {
                at: rate,
                text: format!("{}{of} to {}", objective.objective, words::per_second(rate)),
                kind: "objective",
                colour: own,
                row: marks.len(),
            });
        }
    }
    marks
}

/// What the document says of a curve.
fn remarks(subject: &Subject<'_>) -> Markup {
    let Some(curve) = subject.curve else {
        return html! {};
    };
    html! {
        h3 { (subject.name) }
        dl {
            @if let Some(rate) = curve.maximum_rate {
                dt { "Highest throughput" } dd { (words::per_second(rate)) " requests per second, with a closed load" }
            }
            dt { "Knee" }
            dd {
                @match &curve.knee {
                    Some(knee) => {
                        (words::per_second(knee.rate)) " requests per second at " (words::latency(knee.latency_ns)) " on average, with "
                        (words::trimmed(knee.outstanding, 1)) " in flight; without load a request takes "
                        (words::latency(knee.latency_unloaded_ns))
                    }
                    None => "these points do not show one",
                }
            }
            @for objective in &curve.objectives {
                dt { "Objective " (objective.objective) }
                dd { (objective_text(objective)) }
            }
            @for point in &curve.points {
                @if let Some(text) = point.left_out_text(words::latency) {
                    dt { "Measured again" } dd { (point.run.name) ": " (text) }
                }
            }
            @for failure in &curve.failures {
                dt { "Not measured" } dd { (failure.point) ": " (failure.reason) }
            }
            @if let Some(past) = &curve.past_saturation {
                dt { "Past saturation" } dd { (past.text) }
            }
            dt { "The end" } dd { (curve.stopped) }
        }
    }
}

pub(super) fn objective_text(objective: &document::Objective) -> String {
    let broken = match objective.broken_rate {
        Some(rate) => format!("; broken at {}", words::per_second(rate)),
        None => String::new(),
    };
    match (objective.rate, objective.value_ns) {
        (Some(rate), Some(value)) => format!(
            "holds to {} requests per second ({}){broken}",
            words::per_second(rate),
            words::latency(value)
        ),
        (Some(rate), None) => {
            format!(
                "holds to {} requests per second{broken}",
                words::per_second(rate)
            )
        }
        _ => format!("was met at no point{broken}"),
    }
}

fn points_table(subjects: &[Subject<'_>]) -> Result<Markup, ReportError> {
    let mut heading = vec!["Point", "Per second", "Bytes"];
    if subjects.len() > 1 {
        heading.insert(0, "Of");
    }
    heading.extend(Statistic::ALL.map(Statistic::name));
    heading.extend([
        "Lag p99",
        "Unsent",
        "Failed",
        "Little's law",
        "Generator",
        "Gateway",
        "CPU per request",
    ]);
    let mut rows = Vec::new();
    for subject in subjects {
        let failed = |error| ReportError::Histogram {
            run: subject.name.clone(),
            error,
        };
        for run in &subject.runs {
            let mut row = point_row(run).map_err(failed)?;
            if subjects.len() > 1 {
                row.insert(0, subject.name.clone());
            }
            rows.push(row);
        }
    }
    let heading: Vec<_> = heading.into_iter().map(str::to_owned).collect();
    Ok(table(
        "Processors are those kept busy on average",
        &heading,
        &rows,
    ))
}

fn point_row(run: &Run) -> Result<Vec<String>, LatencyError> {
    let dash = || "-".to_owned();
    let felt = run.felt()?;
    let mut row = vec![
        run.name.clone(),
        words::per_second(run.rate()),
        words::rate(run.bytes_per_second()),
    ];
    for statistic in Statistic::ALL {
        let ns = felt.as_ref().map(|felt| statistic.of(felt)).transpose()?;
        row.push(ns.map_or_else(dash, words::latency));
    }
    let lag = run
        .lag
        .as_ref()
        .map(|lag| lag.percentile_ns(99.0))
        .transpose()?;
    let busy =
        |seconds: f64| words::trimmed(seconds / run.elapsed_seconds.max(f64::MIN_POSITIVE), 2);
    let processor = &run.processor;
    let spent = processor.generator_seconds.unwrap_or_default()
        + processor.gateway_seconds.unwrap_or_default();
    let requests = run.rate() * run.elapsed_seconds;
    row.extend([
        lag.map_or_else(dash, |ns| words::latency(ns as f64)),
        words::grouped(run.unsent),
        words::grouped(run.errors()),
        run.littles_law
            .map_or_else(dash, |law| format!("{:+.1}%", law.error_percent)),
        processor.generator_seconds.map_or_else(dash, busy),
        processor.gateway_seconds.map_or_else(dash, busy),
        if requests > 0.0 {
            words::latency(spent / requests * 1e9)
        } else {
            dash()
        },
    ]);
    Ok(row)
}

/// Where the latencies of each point of a curve lay: a column for each.
pub(super) fn heat(name: &str, runs: &[&Measured<'_>]) -> Result<Markup, ReportError> {
    let mut columns = Vec::new();
    let points: Vec<_> = runs.iter().filter(|of| is_point(of)).collect();
    for (index, of) in points.iter().enumerate() {
        let felt: Option<Latency> = of.run.felt().map_err(of.failed())?;
        if let Some(histogram) = histogram(felt.as_ref()).map_err(of.failed())? {
            let at = index as f64;
            columns.push(((at + 0.5, at + 1.5), of.name.clone(), histogram));
        }
    }
    let described = format!(
        "How many requests took how long at each point of {name}; the table of points has percentiles"
    );
    let x = Axis {
        name: "point",
        scale: Scale::exactly(0.5, points.len() as f64 + 0.5, LEFT, RIGHT),
        label: |value| words::trimmed(value, 0),
    };
    Ok(html! {
        figure {
            figcaption {
                b { "Where the latencies lay at each point" }
                span.quiet.small { "Points are numbered in their order. Each cell counts the requests that took about so long." }
            }
            div.controls { (key()) }
            (heat_map(described, x, columns))
        }
    })
}

/// Whether a run is a point, and not one of those that looked for the highest throughput.
fn is_point(of: &Measured<'_>) -> bool {
    curves(&of.source.document)
        .iter()
        .flat_map(|curve| &curve.points)
        .any(|point| std::ptr::eq(&point.run, of.run))
}

/// The curves of a document.
pub(super) fn curves(document: &Document) -> &[Curve] {
    match &document.body {
        Body::Curve { curves, .. } => curves,
        _ => &[],
    }
}
