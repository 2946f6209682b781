//! A recording as one HTML page, which needs nothing else.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maud::{Markup, html};
use weir_block::size::Size;
use weir_lab::secret;
use weir_plan::units;
use weir_record::{Counts, Progress, Recorded, WhenFull};
use weir_report::drawing::{self, AxisOf, Line};
use weir_report::words;

use super::standing::{About, holds_seconds, lost};
use crate::tools::present::grouped;
use crate::tools::report::{check_place, put};

/// Figures that are kept of a recording, however long it is.
const SAMPLES_MAX: usize = 1024;
/// Volumes whose rates are drawn.
const DRAWN_MAX: usize = 16;

/// Causes of losses: their names, and their counts.
type Cause = (&'static str, fn(&Counts) -> u64);
const CAUSES: [Cause; 5] = [
    ("before the recorder", |counts| counts.source_lost),
    ("slow volumes", |counts| counts.slow_lost),
    ("full kernel buffer", |counts| counts.socket_lost),
    ("interface", |counts| counts.interface_lost),
    ("failed volumes", |counts| counts.failed_lost),
];

/// Figures of a recording over time.
#[derive(Debug)]
struct Course {
    samples: Vec<Progress>,
    /// One in so many figures is kept.
    every: u64,
    seen: u64,
}

impl Course {
    fn add(&mut self, standing: &Progress) {
        if self.seen.is_multiple_of(self.every) {
            self.samples.push(standing.clone());
        }
        self.seen += 1;
        if self.samples.len() == SAMPLES_MAX {
            // Figures are sums since the beginning: what lies between two of them is not lost with those that are.
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
    }
}

/// A report that is to be written, and what it will show.
#[derive(Clone)]
pub(super) struct Report {
    file: PathBuf,
    source: String,
    course: Arc<Mutex<Course>>,
}

impl Report {
    /// Fails where the file cannot be written, before anything is recorded.
    pub(super) fn new(file: PathBuf, source: String) -> anyhow::Result<Self> {
        check_place(&file, &[])?;
        let course = Course {
            samples: Vec::new(),
            every: 1,
            seen: 0,
        };
        Ok(Report {
            file,
            source,
            course: Arc::new(Mutex::new(course)),
        })
    }

    pub(super) fn add(&self, standing: &Progress) {
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        course.add(standing);
    }

    pub(super) fn write(&self, about: &About, recorded: &Recorded) -> anyhow::Result<()> {
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        course.samples.push(Progress {
            elapsed: recorded.elapsed,
            counts: recorded.counts,
            written_bytes: recorded.volumes.iter().map(|one| one.written_bytes).sum(),
            buffers: (0, 0),
            volumes: recorded.volumes.clone(),
            no_segment: recorded.no_segment,
            room_bytes: 0,
            is_live: false,
            source_fill: None,
        });
        let page = page(&self.source, about, recorded, &course.samples);
        put(&self.file, page.as_bytes())
    }
}

fn page(source: &str, about: &About, recorded: &Recorded, samples: &[Progress]) -> String {
    let command = secret::without(&std::env::args().collect::<Vec<_>>());
    let body = html! {
        section {
            p.verdict { (verdict(recorded)) }
            (table("What came, and what became of it", &[], &summary(source, about, recorded)))
        }
        section { (rates(samples)) }
        @if (2..=DRAWN_MAX).contains(&about.volumes.len()) {
            section { (volume_rates(about, samples)) }
        }
        section { (buffers(samples)) }
        @if lost(&recorded.counts) > 0 { section { (losses(samples)) } }
        section {
            h2 { "Volumes" }
            (table(
                "Each volume",
                &["written", "mean rate", "its part of the time without a free buffer", "state"],
                &volumes(about, recorded),
            ))
        }
        @if !recorded.failures.is_empty() {
            section.caveats {
                h2 { "Failures" }
                ul { @for failure in &recorded.failures { li { (secret::without_in_text(&failure.to_string())) } } }
            }
        }
        section.plain {
            h2 { "How it was made" }
            pre { (command.join(" ")) }
            p.quiet.small { "This page needs no network and no other file." }
        }
    };
    let subtitle = format!("Recording of Weir {}", env!("CARGO_PKG_VERSION"));
    drawing::page(&format!("Recording of {source}"), &subtitle, &body)
}

fn verdict(recorded: &Recorded) -> String {
    let counts = &recorded.counts;
    match lost(counts) {
        0 => format!("Nothing was lost of {}.", grouped(counts.received)),
        lost => {
            let first = recorded.first_lost.map_or(String::new(), |at| {
                format!(", the first after {}", words::seconds(at.as_secs_f64()))
            });
            format!(
                "{} were lost of {}{first}.",
                grouped(lost),
                grouped(counts.received)
            )
        }
    }
}

fn summary(source: &str, about: &About, recorded: &Recorded) -> Vec<Vec<String>> {
    let counts = &recorded.counts;
    let seconds = recorded.elapsed.as_secs_f64().max(1e-9);
    let mut rows = vec![
        ["source", source].map(str::to_owned).to_vec(),
        vec!["ring".to_owned(), about.ring.to_string()],
        vec!["recording".to_owned(), recorded.recording.to_string()],
        vec![
            "ended".to_owned(),
            super::ended_text(recorded.ended).to_owned(),
        ],
        vec!["time".to_owned(), words::seconds(seconds)],
        vec!["received".to_owned(), grouped(counts.received)],
        vec!["recorded".to_owned(), grouped(counts.kept)],
        vec![
            "committed".to_owned(),
            Size(recorded.committed_bytes).to_string(),
        ],
        vec![
            "mean rate".to_owned(),
            words::rate(recorded.committed_bytes as f64 / seconds),
        ],
    ];
    if counts.filtered > 0 {
        rows.push(vec![
            "rejected by the filter".to_owned(),
            grouped(counts.filtered),
        ]);
    }
    for (cause, count) in CAUSES {
        if count(counts) > 0 {
            rows.push(vec![format!("lost: {cause}"), grouped(count(counts))]);
        }
    }
    let full = match about.when_full {
        WhenFull::GoRound => "the ring holds, at this rate",
        WhenFull::Stop => "the ring is full after, at this rate",
    };
    if let Some(holds) = holds_seconds(about.capacity_bytes, recorded.committed_bytes, seconds) {
        rows.push(vec![full.to_owned(), units::time_text(holds)]);
    }
    rows
}

fn volumes(about: &About, recorded: &Recorded) -> Vec<Vec<String>> {
    let seconds = recorded.elapsed.as_secs_f64().max(1e-9);
    let named = about.volumes.iter().zip(&recorded.volumes);
    let row = |(name, figures): (&String, &weir_record::VolumeFigures)| {
        vec![
            name.clone(),
            Size(figures.written_bytes).to_string(),
            words::rate(figures.written_bytes as f64 / seconds),
            words::seconds(figures.held_up.as_secs_f64()),
            if figures.has_failed {
                "failed"
            } else {
                "whole"
            }
            .to_owned(),
        ]
    };
    named.map(row).collect()
}

fn table(caption: &str, heading: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table {
                caption { (caption) }
                @if !heading.is_empty() {
                    thead { tr { th {} @for cell in heading { th scope="col" { (cell) } } } }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

const TIME: AxisOf = AxisOf {
    name: "time since the beginning",
    logarithmic: false,
    label: words::seconds,
};
const RATE: AxisOf = AxisOf {
    name: "rate",
    logarithmic: false,
    label: words::decimal_rate,
};
const SHARE: AxisOf = AxisOf {
    name: "share",
    logarithmic: false,
    label: percent,
};
const COUNT: AxisOf = AxisOf {
    name: "lost since the beginning",
    logarithmic: false,
    label: words::round_count,
};

fn percent(share: f64) -> String {
    format!("{}%", words::trimmed(share * 100.0, 1))
}

/// A line of values at times, with words under the pointer.
fn line(name: &str, axis: AxisOf, points: impl Iterator<Item = (Duration, f64)>) -> Line {
    let point = |(time, value): (Duration, f64)| {
        let seconds = time.as_secs_f64();
        let label = format!(
            "{name}\n{}: {}",
            words::seconds(seconds),
            (axis.label)(value)
        );
        (seconds, value, label)
    };
    Line {
        name: name.to_owned(),
        dashed: false,
        points: points.map(point).collect(),
    }
}

/// The rate at which something grew between samples, at the end of each interval.
fn rate_of(
    samples: &[Progress],
    value: impl Fn(&Progress) -> u64,
) -> impl Iterator<Item = (Duration, f64)> {
    let mut before = (Duration::ZERO, 0);
    samples.iter().filter_map(move |sample| {
        let now = (sample.elapsed, value(sample));
        let seconds = now.0.checked_sub(before.0)?.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let rate = now.1.saturating_sub(before.1) as f64 / seconds;
        before = now;
        Some((now.0, rate))
    })
}

fn rates(samples: &[Progress]) -> Markup {
    let lines = [
        line(
            "received",
            RATE,
            rate_of(samples, |one| one.counts.received_bytes),
        ),
        line("written", RATE, rate_of(samples, |one| one.written_bytes)),
    ];
    drawing::lines(
        "record-rates",
        "Rates of the source and of the volumes",
        TIME,
        RATE,
        &lines,
    )
}

fn volume_rates(about: &About, samples: &[Progress]) -> Markup {
    let lines = about.volumes.iter().enumerate().map(|(number, name)| {
        let written = move |one: &Progress| one.volumes[number].written_bytes;
        line(name, RATE, rate_of(samples, written))
    });
    let lines: Vec<_> = lines.collect();
    drawing::lines("record-volumes", "Rate of each volume", TIME, RATE, &lines)
}

fn buffers(samples: &[Progress]) -> Markup {
    let used = samples.iter().filter(|one| one.buffers.1 > 0);
    let used = used.map(|one| (one.elapsed, one.buffers.0 as f64 / one.buffers.1 as f64));
    let mut lines = vec![line("buffers", SHARE, used)];
    let fill = samples
        .iter()
        .filter_map(|one| Some((one.elapsed, one.source_fill?)));
    let fill = line("kernel's buffer", SHARE, fill);
    if !fill.points.is_empty() {
        lines.push(fill);
    }
    drawing::lines("record-buffers", "Buffers in use", TIME, SHARE, &lines)
}

fn losses(samples: &[Progress]) -> Markup {
    let lines = CAUSES.map(|(cause, count)| {
        let counts = samples
            .iter()
            .map(|one| (one.elapsed, count(&one.counts) as f64));
        line(cause, COUNT, counts)
    });
    let some = |line: &Line| line.points.iter().any(|point| point.1 > 0.0);
    let lines: Vec<_> = lines.into_iter().filter(some).collect();
    drawing::lines("record-losses", "Losses by cause", TIME, COUNT, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u64) -> Progress {
        Progress {
            elapsed: Duration::from_secs(seconds),
            counts: Counts::default(),
            written_bytes: seconds * seconds,
            buffers: (1, 4),
            volumes: Vec::new(),
            no_segment: Duration::ZERO,
            room_bytes: 0,
            is_live: false,
            source_fill: None,
        }
    }

    #[test]
    fn a_long_recording_is_drawn_from_few_figures() {
        let mut course = Course {
            samples: Vec::new(),
            every: 1,
            seen: 0,
        };
        for seconds in 0..100_000 {
            course.add(&sample(seconds));
            assert!(course.samples.len() < SAMPLES_MAX);
        }
        let times: Vec<_> = course.samples.iter().map(|one| one.elapsed).collect();
        let step = times[1] - times[0];
        assert_eq!(times[0], Duration::ZERO);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == step));
        assert!(*times.last().unwrap() + step >= Duration::from_secs(99_999));
    }

    #[test]
    fn rates_are_those_between_figures() {
        let samples = [sample(1), sample(3), sample(3), sample(4)];
        let rates: Vec<_> = rate_of(&samples, |one| one.written_bytes).collect();
        let seconds = Duration::from_secs;
        assert_eq!(
            rates,
            [(seconds(1), 1.0), (seconds(3), 4.0), (seconds(4), 7.0)]
        );
    }
}
