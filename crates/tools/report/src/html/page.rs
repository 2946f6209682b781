//! The page: what is said first, the caveats, the drawings, and how it was measured.

use std::collections::{BTreeMap, BTreeSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use weir_lab::compare::differing_things;
use weir_lab::document::{Arrivals, Axis, Body, Caveat, Comparison, Document, Latency, Load, Run};

use super::{compared, curves, details, over_time, tables};
use crate::measured::{Measured, measured};
use crate::words;
use crate::{ReportError, Source};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Nothing is fetched, whatever a name in a document may say.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Of so many runs each has its own drawings.
const DRAWN_MAX: usize = 12;

pub(super) fn page(sources: &[Source]) -> Result<Markup, ReportError> {
    let all = measured(sources);
    let several = sources.len() > 1;
    let title = title(sources);
    let mut bodies = Vec::new();
    for source in sources {
        bodies.push(body(source, &of_source(&all, source), several)?);
    }
    let body = html! {
        @if several { section { (tables::sources(sources)) } }
        (caveats(sources))
        @if !several { (tiles(&sources[0])?) }
        @if let Some(drawing) = curves::against_throughput(sources)? { (drawing) }
        (over_time_section(&all)?)
        @for body in bodies { (body) }
    };
    Ok(framed(&title, &subtitle(sources), &body))
}

/// A whole page with this in it.
pub(super) fn framed(title: &str, subtitle: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content="Weir";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        div {
                            h1 { (title) }
                            div.quiet { (subtitle) }
                        }
                        button.for-script type="button" id="theme" { "Light or dark" }
                    }
                    (body)
                    footer.quiet.small {
                        p { "Drawn by Weir. This page needs no network and no other file." }
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

fn of_source<'a>(all: &'a [Measured<'a>], source: &Source) -> Vec<&'a Measured<'a>> {
    all.iter()
        .filter(|of| std::ptr::eq(of.source, source))
        .collect()
}

/// What a document holds, in a word.
pub(super) fn kind(document: &Document) -> &'static str {
    match document.body {
        Body::Bench { .. } => "load",
        Body::Curve { .. } => "curve",
        Body::Comparison(_) => "comparison",
    }
}

fn title(sources: &[Source]) -> String {
    match sources {
        [one] => {
            let of = details::volumes(&one.document);
            let urls: Vec<_> = of.iter().map(|volume| volume.url.as_str()).collect();
            match (&one.document.body, urls.len()) {
                (Body::Comparison(_), _) => format!("Comparison of {}", urls.join(" and ")),
                (Body::Curve { .. }, 1) => format!("Curve of {}", urls[0]),
                (_, 1) => format!("Load on {}", urls[0]),
                (_, count) => format!(
                    "{} on {count} volumes",
                    if kind(&one.document) == "curve" {
                        "Curves"
                    } else {
                        "Load"
                    }
                ),
            }
        }
        several => format!("{} results side by side", several.len()),
    }
}

fn subtitle(sources: &[Source]) -> String {
    let document = &sources[0].document;
    let runs = document.runs();
    match (sources, runs.first()) {
        ([_], Some(run)) => {
            let workload = match &run.workload.name {
                Some(name) => format!("{name}: {}", run.workload.text),
                None => run.workload.text.clone(),
            };
            format!(
                "{workload}. Measured {}, Weir {}",
                document.started, document.version
            )
        }
        _ => "Drawn together from stored results".to_owned(),
    }
}

fn caveats(sources: &[Source]) -> Markup {
    let own = beside(sources);
    let count = own.len()
        + sources
            .iter()
            .map(|source| source.document.caveats.len())
            .sum::<usize>();
    let item = |of: Option<&str>, caveat: &Caveat| {
        html! {
            li data-caveat=(caveat.code) {
                @if let Some(of) = of { b { (of) ": " } }
                (caveat.text) " " code.small { (caveat.code) }
            }
        }
    };
    html! {
        @if count > 0 {
            section.caveats {
                h2 { "What to know before reading the numbers" }
                ul {
                    @for caveat in &own { (item(None, caveat)) }
                    @for source in sources {
                        @for caveat in &source.document.caveats {
                            (item((sources.len() > 1).then_some(source.name.as_str()), caveat))
                        }
                    }
                }
            }
        }
    }
}

/// What only the putting together of results shows.
fn beside(sources: &[Source]) -> Vec<Caveat> {
    let documents: Vec<_> = sources.iter().map(|source| &source.document).collect();
    let differ = |same: fn(&Document, &Document) -> bool| {
        documents.windows(2).any(|pair| !same(pair[0], pair[1]))
    };
    let mut caveats = Vec::new();
    let mut say = |code, text: &str| caveats.push(Caveat::new(code, text));
    if differ(|a, b| a.machine == b.machine) {
        say(
            "machines-differ",
            "the results come from different machines or systems: what differs may be theirs and not the volumes'",
        );
    }
    if differ(|a, b| a.version == b.version) {
        say(
            "versions-differ",
            "the results were measured by different versions of Weir",
        );
    }
    let of_all: Vec<_> = documents.iter().map(|document| things(document)).collect();
    let load = |of: &BTreeMap<String, String>| of.get("workload").cloned();
    if of_all
        .windows(2)
        .any(|pair| load(&pair[0]) != load(&pair[1]))
    {
        say(
            "workloads-differ",
            "the results have different workloads: their numbers answer different questions",
        );
    }
    // Runs and curves hold one another's figures only where the same was varied.
    let kinds = documents.iter().map(|document| varied(document));
    if kinds.collect::<BTreeSet<_>>().len() == 1 {
        let each: Vec<_> = of_all.iter().collect();
        caveats.extend(differing_things(&each));
    }
    caveats
}

/// What was measured, and along which axis.
fn varied(document: &Document) -> &'static str {
    match &document.body {
        Body::Bench { .. } => "runs",
        Body::Curve { curves, .. } => match curves.first().map(|curve| curve.axis) {
            Some(Axis::Rate) => "a curve by rate",
            Some(Axis::Depth) | None => "a curve by depth",
        },
        Body::Comparison(_) => "a comparison",
    }
}

fn arriving(arrivals: Arrivals) -> &'static str {
    match arrivals {
        Arrivals::Uniform => "evenly spaced",
        Arrivals::Exponential => "with exponential gaps",
    }
}

/// What could make a difference between results, by name. Of a curve what it varies is not among it, and of a comparison how much load there was, which
/// it looks for itself.
fn things(document: &Document) -> BTreeMap<String, String> {
    let runs = document.runs();
    let one = |of: &dyn Fn(&Run) -> String| {
        let all: BTreeSet<_> = runs.iter().map(|run| of(run)).collect();
        all.into_iter().collect::<Vec<_>>().join(" + ")
    };
    let mut things = BTreeMap::from([
        (
            "volume",
            one(&|run| {
                let urls = run.volumes.iter().map(|volume| volume.url.as_str());
                urls.collect::<Vec<_>>().join(", ")
            }),
        ),
        (
            "workload",
            one(&|run| {
                let of = &run.workload;
                let share = words::trimmed(of.compressible_percent, 2);
                let within = of
                    .range_bytes
                    .map(|bytes| format!(", within {bytes} bytes"));
                let streams: Vec<_> = of.streams.iter().map(details::stream_text).collect();
                format!(
                    "{}{}, {share}% compressible",
                    streams.join("; "),
                    within.unwrap_or_default()
                )
            }),
        ),
        ("queues", one(&|run| run.load.queues().to_string())),
        ("hosts", one(&|run| run.load.hosts().to_string())),
        (
            "time measured",
            one(&|run| words::seconds((run.elapsed_seconds * 10.0).round() / 10.0)),
        ),
        ("ramp", one(&|run| words::seconds(run.ramp_seconds))),
    ]);
    match &document.body {
        Body::Bench { .. } => {
            things.insert(
                "load",
                one(&|run| match run.load {
                    Load::Closed { depth, .. } => format!("closed loop, depth {depth}"),
                    Load::Open { rate, arrivals, .. } => {
                        format!("{rate} a second, {}", arriving(arrivals))
                    }
                }),
            );
        }
        Body::Curve { .. } => {
            things.insert(
                "arrivals",
                one(&|run| match run.load {
                    Load::Closed { .. } => "closed loop".to_owned(),
                    Load::Open { arrivals, .. } => arriving(arrivals).to_owned(),
                }),
            );
        }
        Body::Comparison(_) => {}
    }
    things
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn tiles(source: &Source) -> Result<Markup, ReportError> {
    let document = &source.document;
    let tiles = match &document.body {
        Body::Bench { runs } => match &runs[..] {
            [one] => run_tiles(one)?,
            _ => Vec::new(),
        },
        Body::Curve { .. } => curve_tiles(document),
        Body::Comparison(comparison) => comparison
            .sides
            .iter()
            .map(|side| {
                let urls = side.volumes.iter().map(|volume| volume.url.clone());
                let paths = side.paths.iter().map(|path| format!("by {}", path.words()));
                let told: Vec<_> = urls.chain(paths).collect();
                tile(
                    &format!("{}: requests per second at most", side.name),
                    words::per_second(side.maximum_rate),
                    told.join(", "),
                )
            })
            .collect(),
    };
    Ok(html! {
        @if let Some(comparison) = comparison(document) {
            section { h2 { "In a sentence" } p.verdict { (comparison.summary) } }
        }
        @if !tiles.is_empty() { ul.tiles { @for tile in tiles { (tile) } } }
    })
}

/// What a document compares: volumes, or settings of a curve.
fn comparison(document: &Document) -> Option<&Comparison> {
    match &document.body {
        Body::Comparison(comparison) => Some(comparison),
        Body::Curve { settings, .. } => settings.as_ref(),
        Body::Bench { .. } => None,
    }
}

pub(super) fn tile(name: &str, value: String, beside: String) -> Markup {
    html! {
        li {
            span.name { (name) }
            span.value { (value) }
            span.beside { (beside) }
        }
    }
}

fn run_tiles(run: &Run) -> Result<Vec<Markup>, ReportError> {
    let failed = |error| ReportError::Histogram {
        run: run.name.clone(),
        error,
    };
    let errors = run.errors();
    let mut tiles = vec![tile(
        "Requests per second",
        words::per_second(run.rate()),
        words::rate(run.bytes_per_second()),
    )];
    let felt: Option<Latency> = run.felt().map_err(failed)?;
    if let Some(felt) = felt {
        let time = match run.load.rate() {
            Some(_) => "response time",
            None => "service time",
        };
        let at = |percentile: f64| -> Result<String, ReportError> {
            Ok(words::latency(
                felt.percentile_ns(percentile).map_err(failed)? as f64,
            ))
        };
        tiles.push(tile("Half take at most", at(50.0)?, format!("p50 {time}")));
        tiles.push(tile(
            "99 of 100 take at most",
            at(99.0)?,
            format!("p99 {time}"),
        ));
        tiles.push(tile(
            "The longest took",
            words::latency(felt.max_ns as f64),
            format!("of {}", words::grouped(felt.count)),
        ));
    }
    tiles.push(tile(
        "Failed",
        words::grouped(errors),
        "requests".to_owned(),
    ));
    Ok(tiles)
}

fn curve_tiles(document: &Document) -> Vec<Markup> {
    let mut tiles = Vec::new();
    for curve in curves::curves(document).iter().take(2) {
        let of = |text: &str| match curve.name.as_str() {
            "" => text.to_owned(),
            name => format!("{text}, {name}"),
        };
        let highest = curve.points.iter().map(|point| point.run.rate());
        let highest = highest.chain(curve.maximum_rate).reduce(f64::max);
        if let Some(rate) = highest {
            tiles.push(tile(
                &of("Requests per second at most"),
                words::per_second(rate),
                "the highest of all points".to_owned(),
            ));
        }
        if let Some(knee) = &curve.knee {
            tiles.push(tile(
                &of("Requests per second at the knee"),
                words::per_second(knee.rate),
                format!(
                    "{} on average, {} in flight",
                    words::latency(knee.latency_ns),
                    words::trimmed(knee.outstanding, 1)
                ),
            ));
        }
        for objective in &curve.objectives {
            let value = match objective.rate {
                Some(rate) => format!("{} per second", words::per_second(rate)),
                None => "never met".to_owned(),
            };
            tiles.push(tile(
                &of(&objective.objective),
                value,
                curves::objective_text(objective),
            ));
        }
    }
    tiles
}

/// Loads over their time, all in one drawing.
fn over_time_section(all: &[Measured<'_>]) -> Result<Markup, ReportError> {
    let loads: Vec<_> = all
        .iter()
        .filter(|of| matches!(of.source.document.body, Body::Bench { .. }))
        .filter(|of| !of.run.intervals.is_empty())
        .collect();
    if loads.is_empty() {
        return Ok(html! {});
    }
    let mut courses = Vec::with_capacity(loads.len());
    for of in loads.iter().take(DRAWN_MAX) {
        courses.push(over_time::course(of)?);
    }
    let mut heats = Vec::new();
    for course in &courses {
        heats.push((course.of.label.clone(), over_time::heat(course)?));
    }
    Ok(html! {
        section id="over-time" {
            @if loads.len() > DRAWN_MAX {
                p.quiet { "Drawn are the first " (DRAWN_MAX) " of " (loads.len()) " runs." }
            }
            (over_time::latency(&courses)?)
            (over_time::throughput(&courses))
        }
        @for (name, heat) in &heats {
            section.heat-section {
                @if heats.len() > 1 { h2 { (name) } }
                (heat)
            }
        }
    })
}

fn body(source: &Source, runs: &[&Measured<'_>], several: bool) -> Result<Markup, ReportError> {
    let drawings = match &source.document.body {
        Body::Bench { .. } if runs.len() <= DRAWN_MAX => {
            html! { section { (over_time::distribution(runs)?) } }
        }
        Body::Bench { .. } => html! {},
        Body::Curve { settings, .. } => html! {
            @if let Some(settings) = settings { (compared::section(&source.name, settings)?) }
            section { (curves::heat(&source.name, runs)?) }
        },
        Body::Comparison(comparison) => compared::section(&source.name, comparison)?,
    };
    let summary = match &source.document.body {
        Body::Comparison(_) => html! {},
        _ => html! { section { h2 { "Numbers" } (tables::summary(runs)?) } },
    };
    Ok(html! {
        @if several { h2.source { (source.name) } }
        (drawings)
        (summary)
        (details::section(source, runs, several)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::document::{Machine, Operations, Processor, Stream, Volume, Workload};

    fn source(change: impl FnOnce(&mut Run)) -> Source {
        let mut run = Run {
            name: "load".to_owned(),
            phase: None,
            volumes: vec![Volume {
                url: "mem:?size=1G".to_owned(),
                name: "mem".to_owned(),
                block_size_bytes: 4096,
                length_bytes: 1 << 30,
                transfer_bytes_max: 1 << 20,
                volatile_cache: false,
                operations: None,
            }],
            workload: Workload {
                streams: vec![Stream::default()],
                ..Workload::default()
            },
            load: Load::Closed {
                depth: 32,
                queues: 1,
                hosts: 1,
            },
            seed: 1,
            ramp_seconds: 0.0,
            elapsed_seconds: 10.0,
            operations: Operations::default(),
            ended: None,
            intervals: Vec::new(),
            lag: None,
            late_ns_max: None,
            unsent: 0,
            unfinished: 0,
            littles_law: None,
            steady_state: None,
            processor: Processor::default(),
            first_error: None,
            agents: None,
        };
        change(&mut run);
        let document = Document::new(
            Body::Bench { runs: vec![run] },
            Vec::new(),
            "1.0".to_owned(),
            String::new(),
            Machine::default(),
        );
        Source {
            name: "a".to_owned(),
            document,
        }
    }

    fn said(change: fn(&mut Run)) -> Vec<String> {
        let another_volume = |run: &mut Run| {
            run.volumes[0].url = "null:?size=1G".to_owned();
            change(run);
        };
        let caveats = beside(&[source(|_| {}), source(another_volume)]);
        caveats.into_iter().map(|of| of.code).collect()
    }

    #[test]
    fn what_differs_beside_the_volume_is_said_of_results_that_stand_together() {
        assert!(said(|_| {}).is_empty());
        let several = ["several-differences"];
        assert_eq!(
            said(|run| run.load = Load::Closed {
                depth: 64,
                queues: 1,
                hosts: 1
            }),
            several
        );
        assert_eq!(
            said(|run| run.load = Load::Closed {
                depth: 32,
                queues: 4,
                hosts: 1
            }),
            several
        );
        assert_eq!(
            said(|run| run.load = Load::Closed {
                depth: 32,
                queues: 1,
                hosts: 2
            }),
            several
        );
        assert_eq!(said(|run| run.ramp_seconds = 2.0), several);
        assert_eq!(said(|run| run.elapsed_seconds = 20.0), several);
        let workload = ["workloads-differ", "several-differences"];
        assert_eq!(
            said(|run| run.workload.range_bytes = Some(1 << 20)),
            workload
        );
        assert_eq!(
            said(|run| run.workload.compressible_percent = 50.0),
            workload
        );
        assert_eq!(
            said(|run| run.workload.streams[0].read_percent = 70.0),
            workload
        );
    }

    /// One thing that differs is what is compared.
    #[test]
    fn one_difference_is_no_caveat() {
        let deeper = |run: &mut Run| {
            run.load = Load::Closed {
                depth: 64,
                queues: 1,
                hosts: 1,
            };
        };
        assert!(beside(&[source(|_| {}), source(deeper)]).is_empty());
    }

    #[test]
    fn other_versions_are_said() {
        let mut other = source(|_| {});
        other.document.version = "2.0".to_owned();
        let caveats = beside(&[source(|_| {}), other]);
        assert_eq!(caveats[0].code, "versions-differ");
    }
}
