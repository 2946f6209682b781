//! A recording under way, in words: a line, and at a terminal one more for each volume.

use std::time::Duration;

use uuid::Uuid;
use weir_lab::secret::without_in_text;
use weir_plan::units;
use weir_record::{Content, Counts, Progress, Ring, VolumeFigures, WhenFull};

use crate::tools::present::{self, Line, grouped};

/// Volumes that have a line at a terminal.
const ROWS_MAX: usize = 16;
/// Share of the buffers in use, in percent, from which on a loss is near.
const NEAR: usize = 75;
/// A volume is behind the others when its figure is so many times their mean.
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
}

impl About {
    pub(super) fn of(ring: &Ring, when_full: WhenFull) -> Self {
        let names = ring.names();
        About {
            ring: ring.id(),
            content: ring.content(),
            capacity_bytes: ring.capacity_bytes(),
            when_full,
            volumes: names.iter().map(|name| without_in_text(name)).collect(),
        }
    }

    /// The volume that is behind the others by a figure of them; none where they are alike, or where there is only one.
    pub(super) fn behind(
        &self,
        volumes: &[VolumeFigures],
        figure: impl Fn(&VolumeFigures) -> f64,
    ) -> Option<&str> {
        let all: f64 = volumes.iter().map(&figure).sum();
        let mean = all / volumes.len().max(1) as f64;
        let named = self.volumes.iter().zip(volumes);
        let (name, most) =
            named.max_by(|(_, one), (_, other)| figure(one).total_cmp(&figure(other)))?;
        let is_behind = mean > 0.0 && volumes.len() > 1 && figure(most) >= BEHIND * mean;
        is_behind.then_some(name.as_str())
    }
}

/// Packets, or reads, that were lost, by whatever cause.
pub(super) fn lost(counts: &Counts) -> u64 {
    let after = counts.socket_lost + counts.slow_lost + counts.failed_lost;
    counts.source_lost + counts.interface_lost + after
}

/// Seconds of a recording that a ring of so many bytes holds at this rate; none where nothing came.
pub(super) fn holds_seconds(capacity: u64, bytes: u64, seconds: f64) -> Option<f64> {
    (bytes > 0).then(|| capacity as f64 * seconds / bytes as f64)
}

/// Shows figures, and the rates since those before.
#[derive(Default)]
pub(super) struct View {
    last: Option<Progress>,
}

impl View {
    pub(super) fn line(&mut self, about: &About, standing: &Progress) -> Line {
        let last = self.last.replace(standing.clone());
        let since = last.as_ref().map_or(Duration::ZERO, |last| last.elapsed);
        let seconds = (standing.elapsed - since).as_secs_f64().max(1e-9);
        let before = last.as_ref().map_or(0, |last| last.written_bytes);
        let counts = &standing.counts;
        let (used, all) = standing.buffers;
        let mut text = format!(
            "{} kept, {}; buffers {used} of {all}",
            grouped(counts.kept),
            present::rate((standing.written_bytes - before) as f64 / seconds),
        );
        if used * 100 >= all * NEAR
            && let Some(name) = about.behind(&standing.volumes, |one| one.buffers as f64)
        {
            text.push_str(&format!(", most for {name}"));
        }
        if let Some(fill) = standing.source_fill.filter(|&fill| fill >= 0.1) {
            text.push_str(&format!(
                "; {:.0}% of the kernel's buffer waits",
                fill * 100.0
            ));
        }
        let whole = standing.elapsed.as_secs_f64().max(1e-9);
        if let Some(holds) = holds_seconds(about.capacity_bytes, standing.written_bytes, whole) {
            text.push_str(&match about.when_full {
                WhenFull::GoRound => format!("; the ring holds {}", units::time_text(holds)),
                WhenFull::Stop => {
                    let left = (holds - whole).max(0.0);
                    format!("; full in {}", units::time_text(left))
                }
            });
        }
        if lost(counts) > 0 {
            text.push_str(&format!("; {} lost", grouped(lost(counts))));
        }
        let failed = standing.volumes.iter().filter(|one| one.has_failed).count();
        if failed > 0 {
            text.push_str(&format!("; {failed} volumes failed"));
        }
        let volumes = about.volumes.iter().zip(&standing.volumes).enumerate();
        for (number, (name, figures)) in volumes.take(ROWS_MAX) {
            let before = last.as_ref().map(|last| last.volumes[number]);
            let before = before.unwrap_or_default().written_bytes;
            text.push_str(&row(
                name,
                figures,
                (figures.written_bytes - before) as f64 / seconds,
            ));
        }
        if about.volumes.len() > ROWS_MAX {
            let more = about.volumes.len() - ROWS_MAX;
            text.push_str(&format!("\n  and {more} more volumes"));
        }
        Line {
            elapsed: standing.elapsed,
            fraction: standing.written_bytes as f64 / about.capacity_bytes.max(1) as f64,
            text,
        }
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
        }
    }

    fn figures(buffers: &[usize]) -> Vec<VolumeFigures> {
        let figures = |&buffers: &usize| VolumeFigures {
            buffers,
            ..VolumeFigures::default()
        };
        buffers.iter().map(figures).collect()
    }

    #[test]
    fn a_volume_is_behind_only_where_it_stands_out() {
        let behind = |names: &[&str], buffers: &[usize]| {
            let about = about(names);
            let behind = about.behind(&figures(buffers), |one| one.buffers as f64);
            behind.map(str::to_owned)
        };
        assert_eq!(behind(&["a", "b"], &[0, 0]), None);
        assert_eq!(behind(&["a", "b"], &[5, 5]), None);
        assert_eq!(behind(&["a", "b"], &[6, 5]), None);
        assert_eq!(behind(&["a", "b"], &[1, 9]), Some("b".to_owned()));
        assert_eq!(
            behind(&["a", "b", "c", "d"], &[2, 4, 2, 2]),
            Some("b".to_owned())
        );
        assert_eq!(behind(&["a"], &[9]), None);
    }

    #[test]
    fn rates_are_those_since_the_line_before() {
        let about = about(&["a", "b"]);
        let standing = |seconds, written: [u64; 2]| Progress {
            elapsed: Duration::from_secs(seconds),
            counts: Counts::default(),
            written_bytes: written.iter().sum(),
            buffers: (50, 64),
            volumes: written
                .map(|written_bytes| VolumeFigures {
                    written_bytes,
                    buffers: (written_bytes / 10_000_000) as usize,
                    ..VolumeFigures::default()
                })
                .to_vec(),
            source_fill: None,
        };
        let mut view = View::default();
        view.line(&about, &standing(10, [50_000_000, 10_000_000]));
        let text = view
            .line(&about, &standing(11, [350_000_000, 20_000_000]))
            .text;
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].contains("310 MB/s; buffers 50 of 64, most for a"),
            "{text}"
        );
        assert!(
            lines[1].contains("300 MB/s") && lines[1].ends_with("a"),
            "{text}"
        );
        assert!(
            lines[2].contains("10.0 MB/s") && lines[2].ends_with("b"),
            "{text}"
        );
    }
}
