//! A recording as one HTML page, which needs nothing else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use maud::{Markup, html};
use uuid::Uuid;
use weir_block::size::Size;
use weir_lab::secret;
use weir_plan::units;
use weir_record::{ClockSteps, Counts, Progress, Recorded, VolumeFigures, WhenFull};
use weir_report::drawing::{self, AxisOf, Line};
use weir_report::words;
use weir_volume::VolumeUrl;

use super::status::{About, holds_seconds};
use crate::tools::present::grouped;
use crate::tools::report::{check_place, put};

/// Figures that are kept of a recording, however long it is.
const SAMPLES_MAX: usize = 1024;
/// Shortest time between the last two figures.
const SAMPLE_MIN: Duration = Duration::from_millis(500);
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
struct History {
    samples: Vec<Progress>,
    /// One in so many figures is kept.
    every: u64,
    seen: u64,
}

impl History {
    fn add(&mut self, progress: &Progress) {
        if self.seen.is_multiple_of(self.every) {
            self.samples.push(progress.clone());
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
    history: Arc<Mutex<History>>,
}

impl Report {
    /// Fails where the file cannot be written, before anything is recorded.
    pub(super) fn new(
        file: PathBuf,
        source: &VolumeUrl,
        volumes: &[VolumeUrl],
    ) -> anyhow::Result<Self> {
        let urls = || volumes.iter().chain([source]);
        let others: Vec<_> = urls().map(|url| Path::new(url.path())).collect();
        let same = |other: &&Path| match (file.canonicalize(), other.canonicalize()) {
            (Ok(file), Ok(other)) => file == other,
            _ => false,
        };
        // A device among them, too.
        if let Some(other) = others.iter().find(|other| same(other)) {
            bail!(
                "--report {} would replace {}; name another file",
                file.display(),
                other.display()
            );
        }
        check_place(&file, &others)?;
        let history = History {
            samples: Vec::new(),
            every: 1,
            seen: 0,
        };
        Ok(Report {
            file,
            source: source.to_string(),
            history: Arc::new(Mutex::new(history)),
        })
    }

    pub(super) fn add(&self, progress: &Progress) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.add(progress);
    }

    /// Writes the page of a recording that ended, or that failed.
    pub(super) fn write(
        &self,
        about: &About,
        recorded: Result<&Recorded, &anyhow::Error>,
    ) -> anyhow::Result<()> {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = &mut history.samples;
        let outcome = match recorded {
            Ok(recorded) => {
                // A rate over a very short time says nothing.
                let is_near = |last: &Progress| last.elapsed + SAMPLE_MIN > recorded.elapsed;
                samples.pop_if(|last| is_near(last));
                samples.push(Progress {
                    elapsed: recorded.elapsed,
                    counts: recorded.counts,
                    written_bytes: recorded.volumes.iter().map(|one| one.written_bytes).sum(),
                    volumes: recorded.volumes.clone(),
                    no_segment: recorded.no_segment,
                    clock_steps: recorded.clock_steps,
                    has_ended: true,
                    ..Progress::default()
                });
                Outcome {
                    recording: Some(recorded.recording),
                    ended: super::ended_text(recorded.ended).to_owned(),
                    counts: recorded.counts,
                    bytes: recorded.committed_bytes,
                    elapsed: recorded.elapsed,
                    first_lost: recorded.first_lost,
                    clock_steps: recorded.clock_steps,
                    volumes: recorded.volumes.clone(),
                    failures: recorded.failures.iter().map(ToString::to_string).collect(),
                }
            }
            Err(error) => {
                let last = samples.last();
                Outcome {
                    recording: None,
                    ended: "it failed".to_owned(),
                    counts: last.map(|last| last.counts).unwrap_or_default(),
                    bytes: last.map_or(0, |last| last.written_bytes),
                    elapsed: last.map_or(Duration::ZERO, |last| last.elapsed),
                    first_lost: None,
                    clock_steps: last.map(|last| last.clock_steps).unwrap_or_default(),
                    volumes: last.map_or(Vec::new(), |last| last.volumes.clone()),
                    failures: vec![format!("{error:#}")],
                }
            }
        };
        let page = page(&self.source, about, &outcome, samples);
        put(&self.file, page.as_bytes())
    }
}

/// The end of a recording.
struct Outcome {
    /// None where it failed.
    recording: Option<Uuid>,
    ended: String,
    counts: Counts,
    bytes: u64,
    elapsed: Duration,
    first_lost: Option<Duration>,
    clock_steps: ClockSteps,
    volumes: Vec<VolumeFigures>,
    failures: Vec<String>,
}

fn page(source: &str, about: &About, outcome: &Outcome, samples: &[Progress]) -> String {
    let command = secret::without(&std::env::args().collect::<Vec<_>>());
    let body = html! {
        section {
            p.verdict { (verdict(outcome)) }
            (drawing::table("Received, recorded and lost", &["figure", "value"], &summary(source, about, outcome)))
        }
        section { (rates(samples)) }
        @if (2..=DRAWN_MAX).contains(&about.volumes.len()) {
            section { (volume_rates(about, samples)) }
        }
        section { (buffers(samples)) }
        @if outcome.counts.lost() > 0 { section { (losses(samples)) } }
        section {
            h2 { "Volumes" }
            (drawing::table(
                "Each volume",
                &["volume", "written", "mean rate", "its share of the time without a free buffer", "state"],
                &volumes(about, outcome),
            ))
        }
        @if !outcome.failures.is_empty() {
            section.caveats {
                h2 { "Failures" }
                ul { @for failure in &outcome.failures { li { (secret::without_in_text(failure)) } } }
            }
        }
        section.plain {
            h2 { "Command" }
            pre { (command.join(" ")) }
            p.quiet.small { "This page needs no network and no other file." }
        }
    };
    let subtitle = format!("Recording of Weir {}", env!("CARGO_PKG_VERSION"));
    drawing::page(&format!("Recording of {source}"), &subtitle, &body)
}

fn verdict(outcome: &Outcome) -> String {
    let counts = &outcome.counts;
    match counts.lost() {
        0 => format!("No losses; {} received.", grouped(counts.received)),
        lost => {
            let first = outcome.first_lost.map_or(String::new(), |at| {
                format!(", the first after {}", words::seconds(at.as_secs_f64()))
            });
            format!(
                "{} of {} lost{first}.",
                grouped(lost),
                grouped(counts.received)
            )
        }
    }
}

fn summary(source: &str, about: &About, outcome: &Outcome) -> Vec<Vec<String>> {
    let counts = &outcome.counts;
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    let mut rows = vec![
        ["source", source].map(str::to_owned).to_vec(),
        vec!["ring".to_owned(), about.ring.to_string()],
        vec![
            "recording".to_owned(),
            outcome
                .recording
                .map_or("-".to_owned(), |id| id.to_string()),
        ],
        vec!["ended".to_owned(), outcome.ended.clone()],
        vec!["time".to_owned(), words::seconds(seconds)],
        vec!["received".to_owned(), grouped(counts.received)],
        vec!["recorded".to_owned(), grouped(counts.kept)],
        vec!["committed".to_owned(), Size(outcome.bytes).to_string()],
        vec![
            "mean rate".to_owned(),
            words::rate(outcome.bytes as f64 / seconds),
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
    if outcome.clock_steps.count > 0 {
        rows.push(vec!["clock".to_owned(), outcome.clock_steps.to_string()]);
    }
    let full = match about.when_full {
        WhenFull::GoRound => "recording time that fits the ring at this rate",
        WhenFull::Stop => "time to fill an empty ring at this rate",
    };
    if let Some(holds) = holds_seconds(about.capacity_bytes, outcome.bytes, seconds) {
        rows.push(vec![full.to_owned(), units::time_text(holds)]);
    }
    rows
}

fn volumes(about: &About, outcome: &Outcome) -> Vec<Vec<String>> {
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    let named = about.volumes.iter().zip(&outcome.volumes);
    let row = |(name, figures): (&String, &VolumeFigures)| {
        vec![
            name.clone(),
            Size(figures.written_bytes).to_string(),
            words::rate(figures.written_bytes as f64 / seconds),
            words::seconds(figures.held_up.as_secs_f64()),
            if figures.has_failed { "failed" } else { "ok" }.to_owned(),
        ]
    };
    named.map(row).collect()
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
            written_bytes: seconds * seconds,
            buffers: (1, 4),
            ..Progress::default()
        }
    }

    #[test]
    fn a_long_recording_is_drawn_from_few_figures() {
        let mut history = History {
            samples: Vec::new(),
            every: 1,
            seen: 0,
        };
        for seconds in 0..100_000 {
            history.add(&sample(seconds));
            assert!(history.samples.len() < SAMPLES_MAX);
        }
        let times: Vec<_> = history.samples.iter().map(|one| one.elapsed).collect();
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
