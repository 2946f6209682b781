//! A recording under way, in words: a line, at a terminal one more for each volume, and warnings.

use std::collections::VecDeque;
use std::time::Duration;

use uuid::Uuid;
use weir_lab::secret::without_in_text;
use weir_plan::units;
use weir_record::{ClockSteps, Content, Progress, Ring, VolumeFigures, WhenFull};

use super::things;
use crate::tools::present::{self, Line, grouped};

/// Volumes that have a line at a terminal.
const ROWS_MAX: usize = 16;
/// Percent of the buffers in use at which a warning is given, and below which it may be given again.
const NEAR: usize = 75;
const OVER: usize = 50;
/// Time without a segment since the last figures that causes a warning.
const STUCK: Duration = Duration::from_millis(100);
/// Seconds before a full ring at which a warning is given.
const FULL_SOON: f64 = 60.0;
/// Time after which the rate is steady enough to say what the ring holds.
const STEADY_AFTER: Duration = Duration::from_secs(5);
/// Figures over which the rate is taken that says when a ring is full.
const RATE_FIGURES: usize = 10;
/// A volume is behind the others when its figure is so many times the mean.
const BEHIND: f64 = 1.5;

/// Properties of a ring that stay the same while it is recorded to.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) ring: Uuid,
    pub(super) content: Content,
    pub(super) capacity_bytes: u64,
    pub(super) when_full: WhenFull,
    /// Names of the volumes without their secrets, in the ring's order.
    pub(super) volumes: Vec<String>,
    /// Time that the ring must hold (--retain).
    pub(super) retain: Option<Duration>,
}

impl About {
    pub(super) fn of(ring: &Ring, when_full: WhenFull, retain: Option<Duration>) -> Self {
        let names = ring.names();
        About {
            ring: ring.id(),
            content: ring.content(),
            capacity_bytes: ring.capacity_bytes(),
            when_full,
            volumes: names.iter().map(|name| without_in_text(name)).collect(),
            retain,
        }
    }

    /// The volume whose figure stands out from those of the others; none where they are alike, or where there is only one. Volumes that failed do not
    /// count.
    pub(super) fn behind(&self, volumes: &[VolumeFigures], figures: &[f64]) -> Option<&str> {
        let named = self.volumes.iter().zip(volumes).zip(figures);
        let named: Vec<_> = named.filter(|((_, one), _)| !one.has_failed).collect();
        let mean = named.iter().map(|(_, figure)| *figure).sum::<f64>() / named.len().max(1) as f64;
        let ((name, _), most) = named.iter().max_by(|one, other| one.1.total_cmp(other.1))?;
        let is_behind = mean > 0.0 && named.len() > 1 && **most >= BEHIND * mean;
        is_behind.then_some(name.as_str())
    }
}

/// Seconds of a recording that a ring of so many bytes holds at this rate; none where nothing came.
pub(super) fn holds_seconds(capacity: u64, bytes: u64, seconds: f64) -> Option<f64> {
    (bytes > 0).then(|| capacity as f64 * seconds / bytes as f64)
}

/// Warnings already given. A warning is repeated only after its cause has gone; that of a loss is given once.
#[derive(Default)]
struct Warned {
    buffers: bool,
    segment: bool,
    /// Losses that were last warned of.
    lost: u64,
    full: bool,
    retain: bool,
    failed: usize,
    clock_steps: ClockSteps,
}

/// Shows figures, and the rates since those before.
#[derive(Default)]
pub(super) struct View {
    last: Option<Progress>,
    /// Times of the last figures, and the bytes that were written by then.
    written: VecDeque<(Duration, u64)>,
    warned: Warned,
}

/// Figures of a recording, as they are shown.
struct Status<'a> {
    now: &'a Progress,
    /// Bytes a second that were written since the figures before, to all volumes and to each.
    rate: f64,
    rates: Vec<f64>,
    /// Time since then for which there was no segment to write to.
    no_segment: Duration,
    /// The volume that was behind the others since then.
    behind: Option<&'a str>,
    /// Seconds until the ring is full, at the rate of the last figures; none where nothing was written.
    left: Option<f64>,
    /// Seconds that the ring holds, at the rate of the whole recording.
    holds: Option<f64>,
    failed: usize,
}

impl View {
    /// Bytes a second over the last figures; none where nothing was written.
    fn rate(&mut self, now: &Progress) -> Option<f64> {
        self.written.push_back((now.elapsed, now.written_bytes));
        if self.written.len() > RATE_FIGURES {
            self.written.pop_front();
        }
        let (since, before) = self.written[0];
        let (since, before) = match self.written.len() {
            1 => (Duration::ZERO, 0),
            _ => (since, before),
        };
        let seconds = now.elapsed.saturating_sub(since).as_secs_f64();
        let bytes = now.written_bytes - before;
        (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds)
    }

    /// The line of these figures, and warnings of what they announce.
    pub(super) fn line(&mut self, about: &About, now: &Progress) -> (Line, Vec<String>) {
        let last = self.last.replace(now.clone());
        let since = last.as_ref().map_or(Duration::ZERO, |last| last.elapsed);
        let seconds = now.elapsed.saturating_sub(since).as_secs_f64().max(1e-9);
        let before = |number: usize| {
            let last = last.as_ref().and_then(|last| last.volumes.get(number));
            last.copied().unwrap_or_default()
        };
        let numbered = || now.volumes.iter().enumerate();
        let rate = |(number, one): (usize, &VolumeFigures)| {
            (one.written_bytes - before(number).written_bytes) as f64 / seconds
        };
        let waited = |(number, one): (usize, &VolumeFigures)| {
            (one.waited - before(number).waited).as_secs_f64()
        };
        let rates: Vec<_> = numbered().map(rate).collect();
        let waited: Vec<_> = numbered().map(waited).collect();
        let rate = rates.iter().sum();
        let status = Status {
            now,
            rate,
            rates,
            no_segment: now
                .no_segment
                .saturating_sub(last.as_ref().map_or(Duration::ZERO, |last| last.no_segment)),
            behind: about.behind(&now.volumes, &waited),
            left: self.rate(now).map(|rate| now.room_bytes as f64 / rate),
            holds: holds_seconds(
                about.capacity_bytes,
                now.written_bytes,
                now.elapsed.as_secs_f64(),
            ),
            failed: now.volumes.iter().filter(|one| one.has_failed).count(),
        };
        let line = Line {
            elapsed: now.elapsed,
            fraction: now.written_bytes as f64 / about.capacity_bytes.max(1) as f64,
            text: status.text(about),
        };
        (line, self.warned.warnings(about, &status))
    }
}

impl Status<'_> {
    fn text(&self, about: &About) -> String {
        let Progress {
            counts, buffers, ..
        } = self.now;
        let mut text = format!(
            "{} kept, {}; buffers {} of {}",
            grouped(counts.kept),
            present::rate(self.rate),
            buffers.0,
            buffers.1
        );
        if let Some(fill) = self.now.source_fill.filter(|&fill| fill >= 0.1) {
            text.push_str(&format!("; kernel buffer {:.0}% full", fill * 100.0));
        }
        if about.when_full == WhenFull::GoRound
            && let Some(holds) = self.holds
        {
            text.push_str(&format!("; the ring holds {}", units::time_text(holds)));
        }
        if about.when_full == WhenFull::Stop
            && let Some(left) = self.left
        {
            text.push_str(&format!("; full in {}", units::time_text(left)));
        }
        if counts.lost() > 0 {
            text.push_str(&format!("; {} lost", grouped(counts.lost())));
        }
        if self.failed > 0 {
            text.push_str(&format!("; failed volumes: {}", self.failed));
        }
        let volumes = about.volumes.iter().zip(&self.now.volumes).zip(&self.rates);
        for ((name, figures), rate) in volumes.take(ROWS_MAX) {
            text.push_str(&row(name, figures, *rate));
        }
        if about.volumes.len() > ROWS_MAX {
            let more = about.volumes.len() - ROWS_MAX;
            text.push_str(&format!("\n  volumes not shown: {more}"));
        }
        text
    }
}

impl Warned {
    fn warnings(&mut self, about: &About, status: &Status<'_>) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |is_so: bool, warned: &mut bool, text: &dyn Fn() -> String| {
            if is_so && !std::mem::replace(warned, true) {
                warnings.push(format!("warning: {}", text()));
            }
        };
        let (used, all) = status.now.buffers;
        let behind = |before: &str, after: &str| {
            let name = status.behind.map(|name| format!("{before} {name}{after}"));
            name.unwrap_or_default()
        };
        self.buffers &= used * 100 >= all * OVER;
        // At the end slow volumes can no longer cost data.
        let is_live = status.now.is_live && !status.now.has_ended;
        let is_near = is_live && used * 100 >= all * NEAR;
        warn(is_near, &mut self.buffers, &|| {
            let most = behind(", more of them for", " than for any other");
            format!("{used} of {all} buffers are in use{most}; when none is free, data may be lost")
        });
        self.segment &= !status.no_segment.is_zero();
        let is_stuck = is_live && status.no_segment >= STUCK;
        warn(is_stuck, &mut self.segment, &|| {
            let most = behind("; the slowest volume is", "");
            format!(
                "no segment is free to write to, because the oldest are not freed fast enough; data may be lost{most}"
            )
        });
        let lost = status.now.counts.lost();
        let slowest = if status.now.counts.slow_lost > 0 {
            behind("; the slowest volume is", "")
        } else {
            String::new()
        };
        // Again when they have grown by much.
        let mut is_warned = lost < self.lost.saturating_mul(10);
        warn(lost > 0, &mut is_warned, &|| {
            let things = things(about.content);
            format!("{} {things} lost so far{slowest}", grouped(lost))
        });
        if lost >= self.lost.saturating_mul(10) {
            self.lost = lost;
        }
        let left = status.left.filter(|_| !status.now.has_ended);
        let ends = about.when_full == WhenFull::Stop && status.now.elapsed >= STEADY_AFTER;
        self.full &= left.is_none_or(|left| left < 2.0 * FULL_SOON);
        let is_soon = ends && left.is_some_and(|left| left < FULL_SOON);
        warn(is_soon, &mut self.full, &|| {
            let left = units::time_text(left.unwrap_or_default());
            format!("the ring is full in {left}, and the recording ends then")
        });
        let retain = about.retain.map(|retain| retain.as_secs_f64());
        let retain = retain.filter(|_| status.now.elapsed >= STEADY_AFTER);
        let short = status.holds.zip(retain);
        let short = short.filter(|(holds, retain)| holds < retain);
        self.retain &= short.is_some();
        warn(short.is_some(), &mut self.retain, &|| {
            let (holds, retain) = short.unwrap_or_default();
            let (holds, retain) = (units::time_text(holds), units::time_text(retain));
            format!("at this rate the ring holds {holds}, less than --retain {retain}")
        });
        let steps = status.now.clock_steps;
        let new = steps.since(std::mem::replace(&mut self.clock_steps, steps));
        if new.count > 0 {
            let things = things(about.content);
            warnings.push(format!(
                "warning: {new}; {things} stamped by this machine have the new time from now on"
            ));
        }
        if status.failed > std::mem::replace(&mut self.failed, status.failed) {
            let volumes = about.volumes.iter().zip(&status.now.volumes);
            let failed = volumes.filter(|(_, one)| one.has_failed);
            let names: Vec<_> = failed.map(|(name, _)| name.as_str()).collect();
            let names = names.join(", ");
            warnings.push(format!(
                "warning: {names}: a write failed; nothing more is recorded there"
            ));
        }
        warnings
    }
}

/// A line for a volume.
fn row(name: &str, figures: &VolumeFigures, bytes_per_second: f64) -> String {
    let mut row = format!(
        "\n  {:>10}  {:>4} buffers wait  {name}",
        present::rate(bytes_per_second),
        figures.buffers,
    );
    if figures.held_up >= Duration::from_millis(50) {
        let held_up = figures.held_up.as_secs_f64();
        row.push_str(&format!("; held the recorder up {held_up:.1} s"));
    }
    if figures.has_failed {
        row.push_str("; failed");
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(volumes: &[&str]) -> About {
        About {
            ring: Uuid::nil(),
            content: Content::Packets,
            capacity_bytes: 1 << 30,
            when_full: WhenFull::GoRound,
            volumes: volumes.iter().map(|&name| name.to_owned()).collect(),
            retain: None,
        }
    }

    #[test]
    fn a_volume_is_behind_only_where_it_stands_out() {
        let behind = |names: &[&str], figures: &[f64]| {
            let about = about(names);
            let volumes = vec![VolumeFigures::default(); figures.len()];
            about.behind(&volumes, figures).map(str::to_owned)
        };
        assert_eq!(behind(&["a", "b"], &[0.0, 0.0]), None);
        assert_eq!(behind(&["a", "b"], &[5.0, 5.0]), None);
        assert_eq!(behind(&["a", "b"], &[6.0, 5.0]), None);
        assert_eq!(behind(&["a", "b"], &[1.0, 9.0]), Some("b".to_owned()));
        let four = behind(&["a", "b", "c", "d"], &[2.0, 4.0, 2.0, 2.0]);
        assert_eq!(four, Some("b".to_owned()));
        assert_eq!(behind(&["a"], &[9.0]), None);
        let has_failed = VolumeFigures {
            has_failed: true,
            ..VolumeFigures::default()
        };
        let whole = VolumeFigures::default();
        let three = about(&["a", "b", "c"]);
        let volumes = [has_failed, whole, whole];
        assert_eq!(three.behind(&volumes, &[99.0, 5.0, 5.0]), None);
    }

    /// Figures after some seconds, of which each volume wrote so many MiB.
    fn figures(seconds: u64, mebibytes: [u64; 2]) -> Progress {
        let written = mebibytes.map(|count| count << 20);
        Progress {
            elapsed: Duration::from_secs(seconds),
            written_bytes: written.iter().sum(),
            buffers: (40, 64),
            volumes: written
                .map(|written_bytes| VolumeFigures {
                    written_bytes,
                    ..VolumeFigures::default()
                })
                .to_vec(),
            room_bytes: 600 << 20,
            is_live: true,
            ..Progress::default()
        }
    }

    #[test]
    fn rates_are_those_since_the_line_before() {
        let about = about(&["a", "b"]);
        let mut view = View::default();
        view.line(&about, &figures(10, [50, 10]));
        let (line, _) = view.line(&about, &figures(11, [350, 20]));
        let text = line.text;
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("310.0 MiB/s; buffers 40 of 64"), "{text}");
        let ends = |line: &str, rate: &str, name| line.contains(rate) && line.ends_with(name);
        assert!(ends(lines[1], " 300.0 MiB/s", "a"), "{text}");
        assert!(ends(lines[2], " 10.0 MiB/s", "b"), "{text}");
    }

    #[test]
    fn each_warning_is_given_once() {
        let mut about = about(&["a", "b"]);
        about.retain = Some(Duration::from_secs(3600));
        let mut view = View::default();
        let mut warnings = |now: &Progress| view.line(&about, now).1.join("\n");
        assert_eq!(warnings(&figures(1, [1, 0])), "");
        let mut now = figures(2, [2, 0]);
        now.buffers.0 = 50;
        now.volumes[1].waited = Duration::from_secs(5);
        let text = warnings(&now);
        let words = "50 of 64 buffers are in use, more of them for b than for any other;";
        assert!(text.contains(words), "{text}");
        now.elapsed = Duration::from_secs(3);
        assert_eq!(warnings(&now), "");
        now.no_segment = Duration::from_millis(200);
        let text = warnings(&now);
        assert!(
            text.contains("the oldest are not freed fast enough"),
            "{text}"
        );
        now.volumes[0].has_failed = true;
        let text = warnings(&now);
        assert!(
            text.contains("a: a write failed; nothing more is recorded there"),
            "{text}"
        );
        now.counts.slow_lost = 7;
        let text = warnings(&now);
        assert!(text.contains("7 packets lost so far"), "{text}");
        now.elapsed = Duration::from_secs(6);
        now.volumes[0].written_bytes = 6 << 20;
        now.written_bytes = 6 << 20;
        let text = warnings(&now);
        assert!(text.contains("less than --retain 60 min"), "{text}");
        assert_eq!(warnings(&now), "");
        // It was over, and comes again.
        now.buffers.0 = 3;
        assert_eq!(warnings(&now), "");
        now.buffers.0 = 64;
        assert!(warnings(&now).contains("64 of 64 buffers"));
        // Nothing more is taken, so nothing more can be lost.
        let mut last = now.clone();
        last.buffers.0 = 3;
        assert_eq!(warnings(&last), "");
        (last.buffers.0, last.has_ended) = (64, true);
        assert_eq!(warnings(&last), "");
        now.clock_steps = ClockSteps {
            count: 1,
            nanoseconds: -1_500_000_000,
        };
        let text = warnings(&now);
        assert!(
            text.contains("the wall clock stepped by -1.500 s;"),
            "{text}"
        );
        assert_eq!(warnings(&now), "");
        // A source that waits loses nothing.
        now.clock_steps = ClockSteps::default();
        now.is_live = false;
        now.counts.slow_lost = 0;
        now.volumes[0].has_failed = false;
        about.retain = None;
        assert!(View::default().line(&about, &now).1.is_empty());
    }

    #[test]
    fn a_ring_that_stops_is_full_after_its_room() {
        let mut about = about(&["a", "b"]);
        about.when_full = WhenFull::Stop;
        let mut view = View::default();
        view.line(&about, &figures(1, [1, 0]));
        let (line, warnings) = view.line(&about, &figures(2, [2, 0]));
        assert!(line.text.contains("full in 10 min"), "{}", line.text);
        assert!(warnings.is_empty());
        let mut soon = figures(6, [6, 0]);
        soon.room_bytes = 30 << 20;
        let text = view.line(&about, &soon).1.join("\n");
        assert!(text.contains("the ring is full in 30 s"), "{text}");
        // It is said once, even if nothing is written for a time, and not when the recording has ended.
        soon.elapsed = Duration::from_secs(30);
        assert!(view.line(&about, &soon).1.is_empty());
        let mut view = View::default();
        soon.has_ended = true;
        assert!(view.line(&about, &soon).1.is_empty());
    }
}
