//! What is shown of drives: how far they are, and what was found.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_drive::config::Config;
use weir_drive::document::{Document, Drive, NotMeasured, Pass, Phase};
use weir_drive::real::Progress;
use weir_drive::{PassKind, State};
use weir_report::{health, words};

use super::keeper::Keep;
use crate::tools::present::{Line, table};

/// How far each drive is.
pub(super) struct View {
    names: Vec<String>,
    /// Bytes of all passes, of each drive.
    all_bytes: Vec<u64>,
    /// Bytes of the passes that were made before, by pass.
    passes: Vec<PassKind>,
    size_bytes: Vec<u64>,
    last: Vec<Option<Progress>>,
    /// The drive whose news make a line: the others' stand with it.
    idle: Duration,
}

impl View {
    pub(super) fn new(config: &Config, state: &State) -> Self {
        let size_bytes: Vec<u64> = state.drives.iter().map(|drive| drive.size_bytes).collect();
        let full = |pass: &&PassKind| **pass != PassKind::Recovery;
        let passes = config.passes.iter().filter(full).count() as u64;
        View {
            names: state
                .drives
                .iter()
                .map(|drive| drive.name.clone())
                .collect(),
            all_bytes: size_bytes
                .iter()
                .map(|bytes| bytes * passes.max(1))
                .collect(),
            passes: config.passes.clone(),
            last: vec![None; size_bytes.len()],
            size_bytes,
            idle: config.idle,
        }
    }

    /// Takes news; a line, where all drives have told something since the last one, or one of them twice.
    fn add(&mut self, progress: Progress, elapsed: Duration) -> Line {
        let place = progress.drive;
        self.last[place] = Some(progress);
        let each: Vec<(String, f64, f64)> = (0..self.names.len())
            .filter_map(|drive| self.of(drive))
            .collect();
        let slowest = each.iter().map(|of| of.2).fold(0.0, f64::max);
        let least = each.iter().map(|of| of.1).fold(1.0, f64::min);
        let mut text = match &each[..] {
            [one] => one.0.clone(),
            several => format!("{} drives", several.len()),
        };
        if slowest > 0.0 {
            let _ = write!(text, ", about {} left", words::seconds(slowest.round()));
        }
        if each.len() > 1 {
            for (name, (words, _, _)) in self.names.iter().zip(&each) {
                let _ = write!(text, "\n{name}: {words}");
            }
        }
        Line {
            elapsed,
            fraction: least,
            text,
        }
    }

    /// In words, the part of all that is done, and the seconds that are left as far as they can be told.
    fn of(&self, drive: usize) -> Option<(String, f64, f64)> {
        let progress = self.last[drive].as_ref()?;
        let pass = progress.pass.name();
        if let Some(left) = progress.idle_left {
            let seconds = words::seconds(left.as_secs_f64().round());
            return Some((
                format!("idle before {pass}, {seconds} to go"),
                1.0,
                left.as_secs_f64(),
            ));
        }
        let seconds = progress.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = progress.fresh_bytes as f64 / seconds;
        let part = progress.written_bytes as f64 / progress.end_bytes.max(1) as f64;
        let place = self.passes.iter().position(|of| *of == progress.pass)?;
        let before = self.passes[..place].iter();
        let before = before.filter(|of| **of != PassKind::Recovery).count() as u64;
        let done = before * self.size_bytes[drive] + progress.written_bytes;
        let recovers = self.passes[place..].contains(&PassKind::Recovery)
            && progress.pass != PassKind::Recovery;
        let left = match progress.pass {
            PassKind::Recovery => progress.end_bytes.saturating_sub(progress.written_bytes),
            _ => self.all_bytes[drive].saturating_sub(done),
        };
        let idle = if recovers {
            self.idle.as_secs_f64()
        } else {
            0.0
        };
        let left = match rate > 0.0 {
            true => left as f64 / rate + idle,
            false => 0.0,
        };
        let words = format!("{pass} {:.0}%, {}", part * 100.0, words::decimal_rate(rate));
        let fraction = done as f64 / self.all_bytes[drive].max(1) as f64;
        Some((words, fraction, left))
    }
}

/// What the drives' reactors call: it shows a line, and hands on what is to be kept.
pub(super) fn observer(
    view: View,
    lines: impl FnMut(Line) + Send + 'static,
    keep: impl Fn(Keep) + Clone + Send + 'static,
    began: Instant,
) -> impl FnMut(Progress) + Clone + Send + 'static {
    let shared = Arc::new(Mutex::new((view, lines)));
    move |mut progress: Progress| {
        if let Some(current) = progress.kept.take() {
            keep(Keep::Pass(progress.drive, current));
        }
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let (view, lines) = &mut *shared;
        let line = view.add(progress, began.elapsed());
        lines(line);
    }
}

/// The result in words.
pub(super) fn text(document: &Document) -> String {
    let mut text = String::new();
    for drive in &document.drives {
        drive_text(&mut text, drive);
    }
    if let Some(together) = &document.together {
        drive_text(&mut text, together);
    }
    text
}

fn drive_text(text: &mut String, drive: &Drive) {
    if !text.is_empty() {
        text.push('\n');
    }
    let of_all = match drive.written_bytes == drive.capacity_bytes {
        true => "all".to_owned(),
        false => words::decimal_bytes(drive.written_bytes as f64),
    };
    let _ = writeln!(text, "drive    {}", drive.name);
    if drive.modelled {
        let _ = writeln!(
            text,
            "modelled these figures are a model's (ssd:), and no drive's"
        );
    }
    for identified_as in &drive.identified_as {
        let _ = writeln!(text, "model    {identified_as}");
    }
    let _ = writeln!(
        text,
        "written  {of_all} of {}, {} a write, {} in flight",
        words::decimal_bytes(drive.capacity_bytes as f64),
        weir_block::size::Size(drive.block_bytes),
        drive.depth
    );
    for pass in &drive.passes {
        pass_text(text, pass);
    }
    let is_told = drive.health_before.is_some() || !drive.health_unknown.is_empty();
    if drive.members.is_empty() || is_told {
        health_text(text, drive);
    }
}

fn pass_text(text: &mut String, pass: &Pass) {
    let end = match pass.complete {
        true => "",
        false => ", not to its end",
    };
    let _ = writeln!(
        text,
        "\n{}: {} in {}{end}; noise {:.1}%",
        pass.pass.name(),
        words::decimal_bytes(pass.bytes() as f64),
        words::seconds(pass.seconds().round()),
        pass.noise * 100.0
    );
    let heads = [
        "phase",
        "from",
        "to",
        "time",
        "median",
        "p5",
        "p0.1",
        "mean",
        "slowest write",
        "longest gap",
        "told by",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(pass.phases.iter().map(row));
    *text += &table(&rows);
    let windows: Vec<String> = pass
        .worst_windows
        .iter()
        .filter(|window| is_told(window.seconds, pass))
        .map(|window| {
            format!(
                "{} over {}",
                words::decimal_rate(window.bytes_per_second),
                words::seconds(window.seconds)
            )
        })
        .collect();
    if !windows.is_empty() {
        let _ = writeln!(text, "worst    {}", windows.join(", "));
    }
    if let Some(recovery) = pass.recovery {
        let idle = words::seconds(recovery.idle_seconds.round());
        let came = match (recovery.returned_bytes, recovery.cache_bytes) {
            (Some(returned), Some(cache)) => format!(
                "{} of the {} of cache that the fill showed came back",
                words::decimal_bytes(returned as f64),
                words::decimal_bytes(cache as f64)
            ),
            _ => recovery
                .not_measured
                .unwrap_or(NotMeasured::NoCache)
                .words(),
        };
        let _ = writeln!(text, "recovery after {idle} idle: {came}");
    }
}

/// Of the many windows a few are told.
fn is_told(seconds: f64, pass: &Pass) -> bool {
    let last = pass.worst_windows.last().map_or(0.0, |last| last.seconds);
    [1.0, 10.0, 100.0, 1000.0, last]
        .iter()
        .any(|told| (seconds - told).abs() < 1e-9)
}

/// For how long the drive took no byte at most.
fn gap(phase: &Phase) -> String {
    match phase.longest_gap_seconds {
        Some(seconds) => words::latency(seconds * 1e9),
        None => "unknown".to_owned(),
    }
}

fn row(phase: &Phase) -> Vec<String> {
    let rate = words::decimal_rate;
    vec![
        phase.name.clone(),
        words::decimal_bytes(phase.begins_at_bytes as f64),
        words::decimal_bytes(phase.ends_at_bytes as f64),
        words::seconds(phase.seconds.round()),
        rate(phase.rate.median),
        rate(phase.rate.p5),
        rate(phase.rate.p0_1),
        rate(phase.rate.mean),
        words::latency(phase.slowest_write_seconds * 1e9),
        gap(phase),
        phase.told_by.clone(),
    ]
}

fn health_text(text: &mut String, drive: &Drive) {
    let mut cells = vec![["health", "before", "after"].map(str::to_owned).to_vec()];
    cells.extend(health::rows(drive).into_iter().map(Vec::from));
    let _ = write!(text, "\n{}", table(&cells));
    for reason in &drive.health_unknown {
        let _ = writeln!(text, "unknown: {reason}");
    }
}
