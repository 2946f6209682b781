//! The page of drives that were qualified: the rate over the bytes written as the white paper draws it, with the passes in colours and the phases marked; the slowest
//! writes; and what each drive sustains over any time.

use maud::{Markup, html};
use weir_drive::PassKind;
use weir_drive::document::{Document, Drive, Pass, Sample};

use super::plot::{Axis, LEFT, Mark, Plot, Point, RIGHT, Series, TOP, bottom};
use super::scale::Scale;
use super::subject::switches;
use super::tables::{behind, table};
use super::{details, page};
use crate::{health, words};

/// Points that a pass has in a drawing; neighbouring samples of a longer one are drawn as one.
const POINTS_MAX: usize = 400;
/// Heights of the drawings.
const RATE_HEIGHT: f64 = 420.0;
const STALL_HEIGHT: f64 = 240.0;
const WINDOW_HEIGHT: f64 = 280.0;
/// Words of marks stand in so many lines, in turn.
const MARK_ROWS: usize = 4;
/// The colour of what is not of one pass.
const PHASE_COLOUR: usize = 7;

pub(super) fn page(document: &Document) -> Markup {
    let drives: Vec<&Drive> = document.drives.iter().chain(&document.together).collect();
    let title = match &document.drives[..] {
        [one] => format!("What {} sustains", one.name),
        several => format!("What {} drives sustain", several.len()),
    };
    let modelled = drives.iter().filter(|drive| drive.modelled).count();
    let how = match document.simulated || modelled == drives.len() {
        true => "Modelled",
        false => "Measured",
    };
    let subtitle = format!("{how} {}, Weir {}", document.started, document.weir_version);
    let body = html! {
        (caveats(document))
        @for drive in drives { (section(drive)) }
        (measured(document))
    };
    page::framed(&title, &subtitle, &body)
}

fn caveats(document: &Document) -> Markup {
    html! {
        @if !document.caveats.is_empty() {
            section.caveats {
                h2 { "What to know before reading the numbers" }
                ul {
                    @for caveat in &document.caveats {
                        li data-caveat=(caveat.code) { (caveat.text) " " code.small { (caveat.code) } }
                    }
                }
            }
        }
    }
}

fn section(drive: &Drive) -> Markup {
    let written = format!(
        "{} of {}, {} a write, {} in flight",
        words::decimal_bytes(drive.written_bytes as f64),
        words::decimal_bytes(drive.capacity_bytes as f64),
        details::size(drive.block_bytes),
        drive.depth
    );
    html! {
        section {
            h2 { (drive.name) }
            p.quiet { (written) }
            @if drive.modelled {
                p.quiet data-modelled { "A modelled drive (ssd:): its figures are the model's, and no drive's" }
            }
            @if !drive.members.is_empty() {
                p.quiet.small { "Of " (drive.members.join(", ")) }
            }
            (tiles(drive))
            (rate(drive))
            (stalls(drive))
            (windows(drive))
            (told(drive))
        }
    }
}

fn tiles(drive: &Drive) -> Markup {
    let mut tiles = Vec::new();
    for pass in &drive.passes {
        let slowest = pass
            .phases
            .iter()
            .min_by(|one, other| one.rate.mean.total_cmp(&other.rate.mean));
        if let Some(slowest) = slowest {
            tiles.push(page::tile(
                &format!("Slowest phase, {}", pass.pass.name()),
                words::decimal_rate(slowest.rate.mean),
                slowest.name.clone(),
            ));
        }
        if let Some(recovery) = pass.recovery
            && let Some(cache) = recovery.cache_bytes
        {
            let of = format!(
                "of {}, after {}",
                words::decimal_bytes(cache as f64),
                words::seconds(recovery.idle_seconds.round())
            );
            let (returned, behind) = match (recovery.returned_bytes, recovery.not_measured) {
                (Some(returned), _) => (words::decimal_bytes(returned as f64), of),
                (None, Some(why)) => ("unknown".to_owned(), format!("{of}: {}", why.words())),
                (None, None) => continue,
            };
            tiles.push(page::tile("Cache that came back", returned, behind));
        }
    }
    html! { ul.tiles { @for tile in tiles { (tile) } } }
}

/// Passes one after the other, each with the bytes that were written before it.
fn passes(drive: &Drive) -> impl Iterator<Item = (usize, u64, &Pass)> {
    drive.passes.iter().scan(0, |written, pass| {
        let before = *written;
        *written += pass.bytes();
        Some((colour(pass.pass), before, pass))
    })
}

fn colour(pass: PassKind) -> usize {
    PassKind::ALL
        .iter()
        .position(|of| *of == pass)
        .unwrap_or(PHASE_COLOUR)
}

/// Samples that are drawn as one.
struct Place {
    begins_at_bytes: u64,
    bytes: u64,
    seconds: f64,
    lowest: f64,
    longest_ns: u64,
    gap_ns: Option<u64>,
}

impl Place {
    fn middle(&self, before: u64) -> f64 {
        (before + self.begins_at_bytes) as f64 + self.bytes as f64 / 2.0
    }

    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

fn places(samples: &[Sample]) -> Vec<Place> {
    let together = samples.len().div_ceil(POINTS_MAX).max(1);
    let mut written = 0;
    let place = |samples: &[Sample]| {
        let bytes = samples.iter().map(|of| of.bytes).sum();
        let begins_at_bytes = written;
        written += bytes;
        Place {
            begins_at_bytes,
            bytes,
            seconds: samples.iter().map(|of| of.seconds).sum(),
            lowest: samples
                .iter()
                .map(Sample::rate)
                .fold(f64::INFINITY, f64::min),
            longest_ns: samples
                .iter()
                .map(|of| of.nanoseconds_longest)
                .max()
                .unwrap_or(0),
            gap_ns: samples
                .iter()
                .try_fold(0, |longest, of| Some(of.nanoseconds_gap?.max(longest))),
        }
    };
    samples.chunks(together).map(place).collect()
}

fn names(drive: &Drive) -> Vec<(String, String, usize)> {
    passes(drive)
        .map(|(colour, _, pass)| {
            (
                pass.pass.name().to_owned(),
                pass.pass.name().to_owned(),
                colour,
            )
        })
        .collect()
}

fn series(id: &str, colour: usize, lines: Vec<Vec<Point>>, radius: f64) -> Series {
    Series {
        id: id.to_owned(),
        choice: None,
        hidden: false,
        colour,
        beside: false,
        lines,
        radius,
    }
}

/// All bytes that were written, from zero.
fn bytes_axis(drive: &Drive) -> Axis {
    let bytes: u64 = drive.passes.iter().map(Pass::bytes).sum();
    Axis {
        name: "bytes written since the first pass began",
        scale: Scale::exactly(0.0, bytes as f64, LEFT, RIGHT),
        label: words::decimal_bytes,
    }
}

fn rate_axis(rates: impl Iterator<Item = f64>, height: f64) -> Axis {
    Axis {
        name: "rate",
        scale: Scale::from_zero(rates, bottom(height), TOP),
        label: words::decimal_rate,
    }
}

/// The rate over the bytes written.
fn rate(drive: &Drive) -> Markup {
    let mut all = Vec::new();
    let (mut marks, mut phases) = (Vec::new(), Vec::new());
    for (colour, before, pass) in passes(drive) {
        let point = |place: &Place| Point {
            x: place.middle(before),
            y: place.rate(),
            label: format!(
                "{} at {}: {}\nlowest sample {}, slowest write {}, longest gap {}",
                pass.pass.name(),
                words::decimal_bytes(place.begins_at_bytes as f64),
                words::decimal_rate(place.rate()),
                words::decimal_rate(place.lowest),
                words::latency(place.longest_ns as f64),
                gap(place.gap_ns.map(|ns| ns as f64))
            ),
        };
        let line = places(&pass.samples).iter().map(point).collect();
        all.push(series(pass.pass.name(), colour, vec![line], 1.5));
        for (index, phase) in pass.phases.iter().enumerate() {
            let end = |bytes: u64| Point {
                x: (before + bytes) as f64,
                y: phase.rate.mean,
                label: format!(
                    "{}, {}: {}",
                    pass.pass.name(),
                    phase.name,
                    words::decimal_rate(phase.rate.mean)
                ),
            };
            phases.push(vec![end(phase.begins_at_bytes), end(phase.ends_at_bytes)]);
            marks.push(Mark {
                at: (before + phase.begins_at_bytes) as f64,
                text: match index {
                    0 => format!("{}: {}", pass.pass.name(), phase.name),
                    _ => phase.name.clone(),
                },
                kind: if index == 0 { "pass" } else { "change" },
                colour: Some(colour),
                row: marks.len() % MARK_ROWS,
            });
        }
    }
    all.push(series("phases", PHASE_COLOUR, phases, 2.5));
    let rates = all
        .iter()
        .flat_map(|of| of.lines.iter().flatten())
        .map(|point| point.y);
    let plot = Plot {
        kind: "rate-over-bytes",
        described: format!(
            "Rate over bytes written of {}; the table below has the phases",
            drive.name
        ),
        height: RATE_HEIGHT,
        x: bytes_axis(drive),
        y: rate_axis(rates, RATE_HEIGHT),
        series: &all,
        marks: &marks,
    };
    let mut names = names(drive);
    names.push((
        "phases".to_owned(),
        "means of phases".to_owned(),
        PHASE_COLOUR,
    ));
    html! {
        figure.over-time {
            figcaption {
                b { "Rate over bytes written" }
                span.quiet.small { "Each pass follows the one before. Lines across mark where a pass begins, and where its rate changes." }
            }
            div.controls { (switches(&names)) }
            (plot.draw())
        }
        (phase_table(drive))
    }
}

fn phase_table(drive: &Drive) -> Markup {
    let heading = [
        "Phase",
        "Pass",
        "From",
        "To",
        "Time",
        "Median",
        "p5",
        "p0.1",
        "Mean",
        "Slowest write",
        "Longest gap between completions",
        "Told by",
    ]
    .map(str::to_owned);
    let mut rows = Vec::new();
    for pass in &drive.passes {
        for phase in &pass.phases {
            let bytes = |bytes: u64| words::decimal_bytes(bytes as f64);
            let rate = words::decimal_rate;
            rows.push(vec![
                phase.name.clone(),
                pass.pass.name().to_owned(),
                bytes(phase.begins_at_bytes),
                bytes(phase.ends_at_bytes),
                words::seconds(phase.seconds.round()),
                rate(phase.rate.median),
                rate(phase.rate.p5),
                rate(phase.rate.p0_1),
                rate(phase.rate.mean),
                words::latency(phase.slowest_write_seconds * 1e9),
                gap(phase.longest_gap_seconds.map(|seconds| seconds * 1e9)),
                phase.told_by.clone(),
            ]);
        }
    }
    table(
        "Phases: percentiles are of windows of a second, or less in a pass of a few seconds. A write waits behind those in flight; for the longest gap the drive took no byte",
        &heading,
        &rows,
    )
}

/// A time without an answer, which results did not always have.
fn gap(nanoseconds: Option<f64>) -> String {
    nanoseconds.map_or_else(|| "unknown".to_owned(), words::latency)
}

/// The slowest write of each place.
fn stalls(drive: &Drive) -> Markup {
    let mut all = Vec::new();
    for (colour, before, pass) in passes(drive) {
        let point = |place: &Place| Point {
            x: place.middle(before),
            y: place.longest_ns as f64,
            label: format!(
                "{} at {}: {}",
                pass.pass.name(),
                words::decimal_bytes(place.begins_at_bytes as f64),
                words::latency(place.longest_ns as f64)
            ),
        };
        let told = places(&pass.samples);
        let line = told
            .iter()
            .filter(|place| place.longest_ns > 0)
            .map(point)
            .collect();
        all.push(series(pass.pass.name(), colour, vec![line], 1.5));
    }
    let values = all
        .iter()
        .flat_map(|of| of.lines.iter().flatten())
        .map(|point| point.y);
    let plot = Plot {
        kind: "longest-over-bytes",
        described: format!("The slowest write over bytes written of {}", drive.name),
        height: STALL_HEIGHT,
        x: bytes_axis(drive),
        y: Axis {
            name: "slowest write",
            scale: Scale::logarithmic(values, bottom(STALL_HEIGHT), TOP),
            label: words::round_latency,
        },
        series: &all,
        marks: &[],
    };
    html! {
        figure.over-time {
            figcaption { b { "Slowest write" } }
            div.controls { (switches(&names(drive))) }
            (plot.draw())
        }
    }
}

/// The lowest mean rate over any time, by its length.
fn windows(drive: &Drive) -> Markup {
    let mut all = Vec::new();
    let mut rows = Vec::new();
    for (colour, _, pass) in passes(drive) {
        let mut line = Vec::new();
        for window in &pass.worst_windows {
            let (seconds, rate) = (window.seconds, window.bytes_per_second);
            let words = (words::seconds(seconds), words::decimal_rate(rate));
            line.push(Point {
                x: seconds,
                y: rate,
                label: format!(
                    "{}: never below {} over {}",
                    pass.pass.name(),
                    words.1,
                    words.0
                ),
            });
            rows.push(vec![pass.pass.name().to_owned(), words.0, words.1]);
        }
        all.push(series(pass.pass.name(), colour, vec![line], 3.0));
    }
    let points = || all.iter().flat_map(|of| of.lines.iter().flatten());
    let plot = Plot {
        kind: "worst-window",
        described: format!(
            "The lowest mean rate over any time of {}; the table below has the numbers",
            drive.name
        ),
        height: WINDOW_HEIGHT,
        x: Axis {
            name: "over any time of this length",
            scale: Scale::logarithmic(points().map(|point| point.x), LEFT, RIGHT),
            label: |seconds| format!("{} s", words::trimmed(seconds, 3)),
        },
        y: rate_axis(points().map(|point| point.y), WINDOW_HEIGHT),
        series: &all,
        marks: &[],
    };
    let heading = ["Pass", "Over any time of", "At least"].map(str::to_owned);
    html! {
        figure {
            figcaption {
                b { "What is sustained at worst" }
                span.quiet.small { "The lowest mean rate over any time of this length: what a buffer has to bridge." }
            }
            div.controls { (switches(&names(drive))) }
            (plot.draw())
            (behind("What is sustained at worst, as a table", table("The lowest mean rates", &heading, &rows)))
        }
    }
}

/// What the drive said of itself.
fn told(drive: &Drive) -> Markup {
    let rows: Vec<Vec<String>> = health::rows(drive)
        .into_iter()
        .map(|[name, before, after]| vec![capitalised(&name), before, after])
        .collect();
    let heading = ["Health", "Before", "After"].map(str::to_owned);
    html! {
        (table("What the drive says of itself", &heading, &rows))
        @for drive in &drive.identified_as { p.quiet.small { "The drive calls itself " (drive) } }
        @for reason in &drive.health_unknown { p.quiet.small data-unknown { "Unknown: " (reason) } }
    }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

fn measured(document: &Document) -> Markup {
    let machine = &document.machine;
    let unknown = |text: &str| match text {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    };
    html! {
        section.details {
            h2 { "How it was measured" }
            pre.command { code { (details::shell(&document.command)) } }
            dl {
                dt { "Weir" } dd { (document.weir_version) }
                dt { "Began" } dd { (document.started) }
                dt { "Machine" }
                dd {
                    (unknown(&machine.processor)) ", " (machine.processors) " processors, "
                    (details::size(machine.memory_bytes)) " of memory"
                }
                dt { "System" } dd { (unknown(&machine.operating_system)) ", Linux " (unknown(&machine.kernel)) }
                @for drive in &document.drives {
                    dt { "Drive" } dd { code { (drive.url) } ": " (words::decimal_bytes(drive.capacity_bytes as f64)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_drive::course::Current;
    use weir_drive::phases;

    /// A pass of a second for each rate, in kilobytes a second.
    fn pass_of(pass: PassKind, rates: &[u64], before: &[Pass]) -> Pass {
        let sample = |rate: &u64| Sample {
            seconds: 1.0,
            bytes: rate * 1000,
            nanoseconds_longest: 1_000_000,
            nanoseconds_gap: Some(100_000),
        };
        let samples: Vec<Sample> = rates.iter().map(sample).collect();
        let bytes = samples.iter().map(|of| of.bytes).sum();
        let current = Current {
            position_bytes: bytes,
            samples,
            ..Current::new(pass, bytes)
        };
        phases::pass(&current, 0, before)
    }

    #[test]
    fn a_recovery_that_was_not_measured_is_no_zero() {
        let fill = pass_of(PassKind::Fill, &[[30; 50], [16; 50]].concat(), &[]);
        let page = |rates: &[u64]| {
            let burst = pass_of(PassKind::Recovery, rates, std::slice::from_ref(&fill));
            let drive = Drive {
                name: "a drive".to_owned(),
                passes: vec![fill.clone(), burst],
                ..Drive::default()
            };
            let mut page = Vec::new();
            crate::html::write_drives(&Document::new(vec![drive]), &mut page).unwrap();
            String::from_utf8(page).unwrap()
        };
        let why = "fewer than 6 samples";
        let short = page(&[30, 30, 16, 16, 16]);
        assert!(short.contains("Cache that came back") && short.contains(why));
        let long = page(&[30, 30, 16, 16, 16, 16]);
        assert!(long.contains("Cache that came back") && !long.contains(why));
    }
}
