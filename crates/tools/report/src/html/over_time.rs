//! A run over its time: percentiles, throughput, and where its latencies lay.

use hdrhistogram::Histogram;
use maud::{Markup, html};
use weir_lab::document::{Interval, Latency, LatencyError, Operations, Run};

use super::plot::{Axis, Cell, HeatMap, LEFT, Plot, Point, RIGHT, Series, TOP, bottom};
use super::scale::Scale;
use super::subject::{Candidate, Statistic, arrange, switches};
use super::tables::{behind, table};
use crate::ReportError;
use crate::measured::{Measured, felt, histogram};
use crate::words;

/// As many places as a run has along its time; of longer runs neighbouring intervals are drawn as one.
const PLACES_MAX: usize = 150;
/// Rows that a heat map has, about.
const HEAT_ROWS: f64 = 44.0;
/// Heights of the drawings.
const LATENCY_HEIGHT: f64 = 360.0;
const THROUGHPUT_HEIGHT: f64 = 220.0;
const HEAT_HEIGHT: f64 = 340.0;

/// One or several intervals of a run together.
pub(super) struct Place {
    pub(super) start_seconds: f64,
    pub(super) end_seconds: f64,
    pub(super) operations: Operations,
    /// What a user felt, over all kinds.
    pub(super) felt: Option<Latency>,
    /// Service times, where they are not the same.
    pub(super) service: Option<Latency>,
    pub(super) intervals: usize,
}

impl Place {
    fn middle(&self) -> f64 {
        (self.start_seconds + self.end_seconds) / 2.0
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / (self.end_seconds - self.start_seconds).max(f64::MIN_POSITIVE)
    }
}

/// A run with its places.
pub(super) struct Course<'a> {
    pub(super) of: &'a Measured<'a>,
    pub(super) places: Vec<Place>,
}

pub(super) fn course<'a>(of: &'a Measured<'a>) -> Result<Course<'a>, ReportError> {
    Ok(Course {
        of,
        places: places(of.run).map_err(of.failed())?,
    })
}

fn places(run: &Run) -> Result<Vec<Place>, LatencyError> {
    let together = run.intervals.len().div_ceil(PLACES_MAX).max(1);
    run.intervals.chunks(together).map(place).collect()
}

fn place(intervals: &[Interval]) -> Result<Place, LatencyError> {
    let last = &intervals[intervals.len() - 1];
    let operations = match intervals {
        [one] => one.operations.clone(),
        several => sum(several)?,
    };
    let response = operations.response()?;
    let service = operations.service()?;
    let (felt, service) = match response {
        Some(response) => (Some(response), service),
        None => (service, None),
    };
    Ok(Place {
        start_seconds: intervals[0].start_seconds,
        end_seconds: last.start_seconds + last.length_seconds,
        operations,
        felt,
        service,
        intervals: intervals.len(),
    })
}

fn sum(intervals: &[Interval]) -> Result<Operations, LatencyError> {
    let mut sum = Operations::default();
    let parts: Vec<_> = intervals
        .iter()
        .map(|interval| interval.operations.each())
        .collect();
    let kinds = [
        &mut sum.read,
        &mut sum.write,
        &mut sum.deallocate,
        &mut sum.flush,
    ];
    for (index, kind) in kinds.into_iter().enumerate() {
        let of = || parts.iter().map(|each| each[index].1);
        kind.requests = of().map(|operation| operation.requests).sum();
        kind.bytes = of().map(|operation| operation.bytes).sum();
        kind.errors = of().map(|operation| operation.errors).sum();
        let merged = Latency::merged(of().filter_map(|operation| operation.service.as_ref()))?;
        kind.service = merged.as_ref().and_then(Latency::of);
        let merged = Latency::merged(of().filter_map(|operation| operation.response.as_ref()))?;
        kind.response = merged.as_ref().and_then(Latency::of);
    }
    Ok(sum)
}

/// Latency over time, of several runs together.
pub(super) fn latency(courses: &[Course<'_>]) -> Result<Markup, ReportError> {
    let subjects: Vec<_> = courses
        .iter()
        .map(|course| course.of.label.clone())
        .collect();
    let mut candidates = Vec::new();
    for (subject, course) in courses.iter().enumerate() {
        for statistic in Statistic::ALL {
            let line = line(course, statistic, None, |place| place.felt.as_ref());
            candidates.push(Candidate {
                subject,
                statistic,
                kind: None,
                lines: line.map_err(course.of.failed())?,
                radius: 2.0,
            });
        }
        if courses.len() == 1 && course.places.iter().any(|place| place.service.is_some()) {
            for statistic in [Statistic::P99, Statistic::Max] {
                let kind = Some("service");
                let line = line(course, statistic, kind, |place| place.service.as_ref());
                candidates.push(Candidate {
                    subject,
                    statistic,
                    kind,
                    lines: line.map_err(course.of.failed())?,
                    radius: 2.0,
                });
            }
        }
    }
    let rows = latency_rows(courses)?;
    let (series, controls) = arrange(&subjects, candidates);
    let plot = Plot {
        kind: "latency-over-time",
        described: format!(
            "Latency over time of {}; the table below has the numbers",
            subjects.join(", ")
        ),
        height: LATENCY_HEIGHT,
        x: time_axis(courses),
        y: latency_axis(&series, LATENCY_HEIGHT),
        series: &series,
        marks: &[],
    };
    let open = courses
        .iter()
        .any(|course| course.places.iter().any(|place| place.service.is_some()));
    Ok(html! {
        figure.over-time {
            figcaption {
                b { "Latency over time" }
                span.quiet.small {
                    @if open {
                        "Response times, from when a request was due, for loads with a rate; service times for others. "
                    }
                    (together(courses))
                }
            }
            (controls)
            (plot.draw())
            (behind("Latency over time as a table", rows))
        }
    })
}

fn line(
    course: &Course<'_>,
    statistic: Statistic,
    kind: Option<&str>,
    of: fn(&Place) -> Option<&Latency>,
) -> Result<Vec<Vec<Point>>, LatencyError> {
    let mut lines = vec![Vec::new()];
    for place in &course.places {
        let Some(latency) = of(place) else {
            // Where nothing ended there is no latency, and the line is broken.
            lines.push(Vec::new());
            continue;
        };
        let y = statistic.of(latency)?;
        let label = format!(
            "{}\n{} to {}: {}{} {}",
            course.of.label,
            words::seconds(place.start_seconds),
            words::seconds(place.end_seconds),
            statistic.name(),
            kind.map(|kind| format!(" {kind}")).unwrap_or_default(),
            words::latency(y),
        );
        lines.last_mut().expect("there is a line").push(Point {
            x: place.middle(),
            y,
            label,
        });
    }
    Ok(lines)
}

fn latency_rows(courses: &[Course<'_>]) -> Result<Markup, ReportError> {
    let mut rows = Vec::new();
    for course in courses {
        for place in &course.places {
            let mut row = vec![span(place)];
            if courses.len() > 1 {
                row.insert(0, course.of.label.clone());
            }
            row.push(words::per_second(
                place.per_second(place.operations.requests()),
            ));
            for statistic in Statistic::ALL {
                let ns = place
                    .felt
                    .as_ref()
                    .map(|latency| statistic.of(latency))
                    .transpose();
                let ns = ns.map_err(course.of.failed())?;
                row.push(ns.map_or_else(|| "-".to_owned(), words::latency));
            }
            row.push(words::grouped(place.operations.errors()));
            rows.push(row);
        }
    }
    let mut heading = vec!["From", "Per second"];
    if courses.len() > 1 {
        heading.insert(0, "Run");
    }
    heading.extend(Statistic::ALL.map(Statistic::name));
    heading.push("Failed");
    let heading: Vec<_> = heading.into_iter().map(str::to_owned).collect();
    Ok(table(
        "Requests per second and latency over time",
        &heading,
        &rows,
    ))
}

fn span(place: &Place) -> String {
    format!(
        "{} to {}",
        words::seconds(place.start_seconds),
        words::seconds(place.end_seconds)
    )
}

/// Whether what is drawn is what was counted, in words.
fn together(courses: &[Course<'_>]) -> String {
    let most = courses
        .iter()
        .flat_map(|course| &course.places)
        .map(|place| place.intervals)
        .max()
        .unwrap_or(1);
    match most {
        1 => "Each point is one interval.".to_owned(),
        most => format!(
            "Each point is {most} intervals together; their histograms are merged, so that a longest latency is in none lost."
        ),
    }
}

/// Throughput over time: by kind of request where there is one run, by run where there are several.
pub(super) fn throughput(courses: &[Course<'_>]) -> Markup {
    let (names, series) = match courses {
        [one] => by_kind(one),
        several => by_run(several),
    };
    let values = series
        .iter()
        .flat_map(|series| series.lines.iter().flatten());
    let scale = Scale::from_zero(values.map(|point| point.y), bottom(THROUGHPUT_HEIGHT), TOP);
    let plot = Plot {
        kind: "throughput-over-time",
        described: "Requests per second over time; the table of latency over time has the numbers"
            .to_owned(),
        height: THROUGHPUT_HEIGHT,
        x: time_axis(courses),
        y: Axis {
            name: "requests per second",
            scale,
            label: words::round_count,
        },
        series: &series,
        marks: &[],
    };
    html! {
        figure.over-time {
            figcaption { b { "Throughput over time" } }
            div.controls { (switches(&names)) }
            (plot.draw())
        }
    }
}

type Named = (Vec<(String, String, usize)>, Vec<Series>);

fn by_kind(course: &Course<'_>) -> Named {
    let kinds = course.of.run.operations.each();
    let present: Vec<_> = (0..kinds.len())
        .filter(|&kind| kinds[kind].1.requests > 0)
        .collect();
    let mut names = Vec::new();
    let mut series = Vec::new();
    for (colour, &kind) in present.iter().enumerate() {
        let name = kinds[kind].0;
        names.push((name.to_owned(), name.to_owned(), colour));
        let points = rate_points(course, name, |operations| {
            operations.each()[kind].1.requests
        });
        series.push(rate_series(name.to_owned(), colour, points));
    }
    (names, series)
}

fn by_run(courses: &[Course<'_>]) -> Named {
    let mut names = Vec::new();
    let mut series = Vec::new();
    for (colour, course) in courses.iter().enumerate() {
        let id = format!("subject-{colour}");
        names.push((id.clone(), course.of.label.clone(), colour));
        let points = rate_points(course, &course.of.label, Operations::requests);
        series.push(rate_series(id, colour, points));
    }
    (names, series)
}

fn rate_points(course: &Course<'_>, name: &str, count: impl Fn(&Operations) -> u64) -> Vec<Point> {
    course
        .places
        .iter()
        .map(|place| {
            let y = place.per_second(count(&place.operations));
            Point {
                x: place.middle(),
                y,
                label: format!(
                    "{name}\n{}: {} per second",
                    span(place),
                    words::per_second(y)
                ),
            }
        })
        .collect()
}

fn rate_series(id: String, colour: usize, points: Vec<Point>) -> Series {
    Series {
        id,
        choice: None,
        hidden: false,
        colour,
        beside: false,
        lines: vec![points],
        radius: 2.0,
    }
}

/// Where the latencies of a run lay over its time.
pub(super) fn heat(course: &Course<'_>) -> Result<Markup, ReportError> {
    let failed = course.of.failed();
    let mut columns = Vec::with_capacity(course.places.len());
    for place in &course.places {
        if let Some(histogram) = histogram(place.felt.as_ref()).map_err(&failed)? {
            columns.push((
                (place.start_seconds, place.end_seconds),
                span(place),
                histogram,
            ));
        }
    }
    let described = format!(
        "How many requests of {} took how long, over time; the table of latency over time has percentiles",
        course.of.label
    );
    let map = heat_map(described, time_axis(std::slice::from_ref(course)), columns);
    Ok(html! {
        figure {
            figcaption {
                b { "Where the latencies lay" }
                span.quiet.small { "Each cell counts the requests of one time that took about so long; the tail shows as well as the bulk." }
            }
            div.controls { (key()) }
            (map)
        }
    })
}

pub(super) fn key() -> Markup {
    html! {
        span.heat-key.quiet.small { "few" span.ramp aria-hidden="true" {} "many (logarithmic)" }
    }
}

/// A heat map of columns: from where to where, in words, and what lies in it.
pub(super) fn heat_map(
    described: String,
    x: Axis,
    columns: Vec<((f64, f64), String, Histogram<u64>)>,
) -> Markup {
    let ends = columns
        .iter()
        .flat_map(|(_, _, histogram)| [histogram.min().max(1) as f64, histogram.max() as f64]);
    let scale = Scale::logarithmic(ends, bottom(HEAT_HEIGHT), TOP);
    let decades = (scale.high() / scale.low()).log10();
    let per_decade = (HEAT_ROWS / decades).clamp(4.0, 40.0).floor();
    let edge = |row: i64| scale.low() * 10f64.powf(row as f64 / per_decade);
    let mut cells = Vec::new();
    for (ends, name, histogram) in columns {
        let mut counts = std::collections::BTreeMap::<i64, u64>::new();
        for step in histogram.iter_recorded() {
            let middle = histogram.median_equivalent(step.value_iterated_to()).max(1) as f64;
            let row = ((middle / scale.low()).log10() * per_decade).floor() as i64;
            *counts.entry(row).or_default() += step.count_at_value();
        }
        for (row, count) in counts {
            let (low, high) = (edge(row), edge(row + 1));
            cells.push(Cell {
                x: ends,
                y: (low, high),
                count,
                label: format!(
                    "{name}\n{} to {}: {} requests",
                    words::latency(low),
                    words::latency(high),
                    words::grouped(count)
                ),
            });
        }
    }
    let map = HeatMap {
        described,
        height: HEAT_HEIGHT,
        x,
        y: Axis {
            name: "latency",
            scale,
            label: words::round_latency,
        },
        cells: &cells,
    };
    map.draw()
}

/// Time from the beginning to the end of the longest.
fn time_axis(courses: &[Course<'_>]) -> Axis {
    let end = courses
        .iter()
        .flat_map(|course| &course.places)
        .map(|place| place.end_seconds)
        .fold(0.0, f64::max);
    Axis {
        name: "time since the measurement began",
        scale: Scale::exactly(0.0, end, LEFT, RIGHT),
        label: words::seconds,
    }
}

/// The logarithmic axis of everything that series show, hidden or not, so that it stays as it is when one is chosen.
pub(super) fn latency_axis(series: &[Series], height: f64) -> Axis {
    let values = series
        .iter()
        .flat_map(|series| series.lines.iter().flatten())
        .map(|point| point.y);
    Axis {
        name: "latency",
        scale: Scale::logarithmic(values, bottom(height), TOP),
        label: words::round_latency,
    }
}

/// How latencies of runs are distributed: the value that each part of the requests does not exceed, to the last request.
pub(super) fn distribution(runs: &[&Measured<'_>]) -> Result<Markup, ReportError> {
    let mut names = Vec::new();
    let mut series = Vec::new();
    let mut rows = Vec::new();
    for of in runs {
        for (name, latency) in distributions(of.run, runs.len() > 1).map_err(of.failed())? {
            let name = match (runs.len(), name) {
                (1, Some(name)) => name,
                (1, None) => "all".to_owned(),
                _ => of.label.clone(),
            };
            let histogram = latency.histogram().map_err(of.failed())?;
            let colour = series.len();
            let points = quantiles(&name, &histogram);
            let mut row = vec![name.clone()];
            row.extend(
                TABLE_PARTS.map(|part| words::latency(histogram.value_at_quantile(part) as f64)),
            );
            rows.push(row);
            names.push((format!("line-{colour}"), name, colour));
            series.push(rate_series(format!("line-{colour}"), colour, points));
        }
    }
    let most = series
        .iter()
        .flat_map(|series: &Series| series.lines.iter().flatten())
        .map(|point| point.x)
        .fold(10.0, f64::max);
    let plot = Plot {
        kind: "distribution",
        described: "The latency that each part of the requests does not exceed; the table below has the numbers".to_owned(),
        height: LATENCY_HEIGHT,
        x: Axis {
            name: "requests that took no longer",
            scale: Scale::logarithmic([1.0, most], LEFT, RIGHT),
            label: percent_of_rest,
        },
        y: latency_axis(&series, LATENCY_HEIGHT),
        series: &series,
        marks: &[],
    };
    let mut heading = vec!["Requests".to_owned()];
    heading.extend(TABLE_PARTS.map(|part| format!("{}%", words::trimmed(part * 100.0, 4))));
    Ok(html! {
        figure.over-time {
            figcaption { b { "Distribution of latency" } span.quiet.small { "To the right each step of the axis leaves a tenth of the requests." } }
            div.controls { (switches(&names)) }
            (plot.draw())
            (behind("Distribution as a table", table("The latency that so many requests do not exceed", &heading, &rows)))
        }
    })
}

/// Parts of 1 in the table of distributions.
const TABLE_PARTS: [f64; 9] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999];

fn distributions(
    run: &Run,
    together: bool,
) -> Result<Vec<(Option<String>, Latency)>, LatencyError> {
    if together {
        return Ok(felt(&run.operations)?
            .into_iter()
            .map(|all| (None, all))
            .collect());
    }
    let mut parts = Vec::new();
    for (name, operation) in run.operations.each() {
        let open = operation.response.is_some();
        if let Some(response) = &operation.response {
            parts.push((Some(format!("{name}, response")), response.clone()));
        }
        if let Some(service) = &operation.service {
            let name = if open {
                format!("{name}, service")
            } else {
                name.to_owned()
            };
            parts.push((Some(name), service.clone()));
        }
    }
    Ok(parts)
}

/// Points of a distribution: x is one over the part of the requests that took longer.
fn quantiles(name: &str, histogram: &Histogram<u64>) -> Vec<Point> {
    const STEPS_PER_DECADE: i32 = 12;
    let count = histogram.len() as f64;
    let last = (count.log10() * f64::from(STEPS_PER_DECADE)).ceil() as i32;
    (0..=last)
        .map(|step| {
            let x = 10f64
                .powf(f64::from(step) / f64::from(STEPS_PER_DECADE))
                .min(count);
            // The last is of all requests.
            let part = if step == last { 1.0 } else { 1.0 - 1.0 / x };
            let y = histogram.value_at_quantile(part).max(1) as f64;
            Point {
                x,
                y,
                label: format!(
                    "{name}\n{}% took at most {}",
                    words::trimmed(part * 100.0, 4),
                    words::latency(y)
                ),
            }
        })
        .collect()
}

/// `10` is 90%, `100` is 99%.
fn percent_of_rest(rest: f64) -> String {
    format!("{}%", words::trimmed(100.0 - 100.0 / rest, 6))
}

#[cfg(test)]
mod tests {
    use weir_lab::document::Operation;

    use super::*;

    fn interval(second: u64, latency_ns: u64) -> Interval {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1 << 40, 3).unwrap();
        histogram.record_n(100_000, 9).unwrap();
        histogram.record(latency_ns).unwrap();
        let read = Operation {
            requests: 10,
            bytes: 40_960,
            errors: u64::from(second == 17),
            service: Latency::of(&histogram),
            response: None,
        };
        Interval {
            start_seconds: second as f64,
            length_seconds: 1.0,
            operations: Operations {
                read,
                ..Operations::default()
            },
            lag_ns_max: 0,
        }
    }

    /// A day of intervals has as many points as there is room for, and the one slow request is still seen.
    #[test]
    fn a_long_run_loses_no_longest_latency() {
        let slow = 900_000_000;
        let intervals: Vec<_> = (0..1000)
            .map(|second| interval(second, if second == 777 { slow } else { 200_000 }))
            .collect();
        let together = intervals.len().div_ceil(PLACES_MAX);
        let places: Vec<_> = intervals
            .chunks(together)
            .map(|chunk| place(chunk).unwrap())
            .collect();
        assert!(places.len() <= PLACES_MAX && places.len() > PLACES_MAX / 2);
        let requests: u64 = places.iter().map(|place| place.operations.requests()).sum();
        assert_eq!(requests, 10_000);
        let errors: u64 = places.iter().map(|place| place.operations.errors()).sum();
        assert_eq!(errors, 1);
        let longest: Vec<_> = places
            .iter()
            .filter(|place| place.felt.as_ref().unwrap().max_ns >= slow)
            .collect();
        assert_eq!(longest.len(), 1);
        assert!(longest[0].start_seconds <= 777.0 && longest[0].end_seconds > 777.0);
        assert_eq!(places.last().unwrap().end_seconds, 1000.0);
        // Neighbours touch, and the first point is of as much time as it says.
        assert!(
            places
                .windows(2)
                .all(|pair| pair[0].end_seconds == pair[1].start_seconds)
        );
        assert_eq!(places[0].per_second(places[0].operations.requests()), 10.0);
    }
}
