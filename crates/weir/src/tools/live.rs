//! Load as it runs: rate, latency and their course, for each volume and for all together.
//!
//! Knows no terminal: it makes the lines, and who shows them decides how many there is room for. Latencies of several volumes
//! are merged as histograms.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::present::{self, Line};

/// Moments that a spark line shows.
const SPARKS: usize = 30;
/// Volumes that have a row; of more the first.
const ROWS_MAX: usize = 16;
/// Letters of a volume's name.
const NAME_MAX: usize = 28;

/// What a volume did since it was last told.
#[derive(Debug, Clone)]
pub(crate) struct Tick {
    /// Which volume, by its place.
    pub(crate) job: usize,
    /// Since the start.
    pub(crate) elapsed: Duration,
    /// Of the whole run.
    pub(crate) total: Duration,
    /// Whether it is not measured yet.
    pub(crate) ramping: bool,
    /// Since the last tick.
    pub(crate) interval: Duration,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Latencies that were gathered since, in nanoseconds; none where none were.
    pub(crate) latency_ns: Option<Histogram<u64>>,
}

/// What is known of a volume, or of all.
#[derive(Debug, Default)]
struct Row {
    name: String,
    rate: f64,
    bytes_per_second: f64,
    errors: u64,
    latency: Option<Quantiles>,
    rates: VecDeque<f64>,
    longest: VecDeque<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Quantiles {
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |percentile| {
            histogram
                .value_at_percentile(percentile)
                .min(histogram.max())
        };
        Quantiles {
            p50: at(50.0),
            p99: at(99.0),
            p999: at(99.9),
            max: histogram.max(),
        }
    }
}

/// All volumes of a run.
pub(crate) struct View {
    rows: Vec<Row>,
    all: Row,
    /// What the volumes did since the last line.
    requests: u64,
    bytes: u64,
    errors: u64,
    latency_ns: Option<Histogram<u64>>,
}

impl View {
    /// Of so many volumes.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let row = |name| Row {
            name,
            ..Row::default()
        };
        View {
            rows: names.into_iter().map(row).collect(),
            all: row("all".to_owned()),
            requests: 0,
            bytes: 0,
            errors: 0,
            latency_ns: None,
        }
    }

    /// A run begins. What the last one took says nothing of it; the courses go on.
    pub(crate) fn begin(&mut self) {
        for row in self.rows.iter_mut().chain([&mut self.all]) {
            row.latency = None;
        }
        (self.requests, self.bytes, self.errors) = (0, 0, 0);
        self.latency_ns = None;
    }

    /// A line, when the last volume has been told of.
    pub(crate) fn add(&mut self, tick: &Tick) -> Option<Line> {
        // Ticks come from other machines too, as often as they like.
        self.requests = self.requests.saturating_add(tick.requests);
        self.bytes = self.bytes.saturating_add(tick.bytes);
        self.errors = self.errors.saturating_add(tick.errors);
        if let Some(own) = &tick.latency_ns {
            match &mut self.latency_ns {
                None => self.latency_ns = Some(own.clone()),
                Some(sum) => sum.add(own).expect("histograms of one shape add up"),
            }
        }
        if let Some(row) = self.rows.get_mut(tick.job) {
            let latency = tick.latency_ns.as_ref().map(Quantiles::of);
            row.add(
                tick.interval,
                [tick.requests, tick.bytes, tick.errors],
                latency,
            );
        }
        if tick.job + 1 < self.rows.len() {
            return None;
        }
        let counted = [self.requests, self.bytes, self.errors];
        let latency = self.latency_ns.take();
        (self.requests, self.bytes, self.errors) = (0, 0, 0);
        self.all
            .add(tick.interval, counted, latency.as_ref().map(Quantiles::of));
        Some(Line {
            elapsed: tick.elapsed,
            fraction: tick.elapsed.as_secs_f64() / tick.total.as_secs_f64().max(f64::MIN_POSITIVE),
            text: self.text(tick.ramping),
        })
    }

    /// All together, the courses, and a row for each volume where there are several.
    fn text(&self, ramping: bool) -> String {
        let mut lines = vec![
            self.all.line(ramping),
            format!("rate     {}", self.all.rates_drawn()),
            format!("longest  {}", self.all.longest_drawn()),
        ];
        if self.rows.len() < 2 {
            return lines.join("\n");
        }
        let heading = ["", "IOPS", "bandwidth", "p50", "p99", "max", "errors"];
        let mut table = vec![heading.map(str::to_owned).to_vec()];
        table.extend(self.rows.iter().take(ROWS_MAX).map(Row::cells));
        let table = present::table(&table);
        let mut drawn = table.lines();
        lines.extend(drawn.next().map(str::to_owned));
        lines.extend(
            drawn
                .zip(&self.rows)
                .map(|(line, row)| format!("{line}  {}", row.rates_drawn())),
        );
        if self.rows.len() > ROWS_MAX {
            lines.push(format!("and {} more", self.rows.len() - ROWS_MAX));
        }
        lines.join("\n")
    }
}

impl Row {
    fn add(
        &mut self,
        interval: Duration,
        [requests, bytes, errors]: [u64; 3],
        latency: Option<Quantiles>,
    ) {
        let seconds = interval.as_secs_f64().max(f64::MIN_POSITIVE);
        self.rate = requests as f64 / seconds;
        self.bytes_per_second = bytes as f64 / seconds;
        self.errors = self.errors.saturating_add(errors);
        push(&mut self.rates, self.rate);
        // Latencies come once an interval; the last ones are shown until then.
        if let Some(latency) = latency {
            self.latency = Some(latency);
            push(&mut self.longest, latency.max as f64);
        }
    }

    fn line(&self, ramping: bool) -> String {
        let mut text = format!(
            "{} IOPS, {}",
            present::grouped(self.rate as u64),
            present::rate(self.bytes_per_second)
        );
        if let Some(of) = self.latency {
            let [p50, p99, p999, max] =
                [of.p50, of.p99, of.p999, of.max].map(|ns| present::latency(ns as f64));
            text.push_str(&format!(", p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}"));
        }
        if ramping {
            text.push_str(" (ramp)");
        }
        if self.errors > 0 {
            text.push_str(&format!(", {} errors", present::grouped(self.errors)));
        }
        text
    }

    fn cells(&self) -> Vec<String> {
        let latency = |of: fn(&Quantiles) -> u64| match &self.latency {
            Some(quantiles) => present::latency(of(quantiles) as f64),
            None => "-".to_owned(),
        };
        vec![
            shortened(&self.name),
            present::grouped(self.rate as u64),
            present::rate(self.bytes_per_second),
            latency(|of| of.p50),
            latency(|of| of.p99),
            latency(|of| of.max),
            present::grouped(self.errors),
        ]
    }

    fn rates_drawn(&self) -> String {
        sparks(&self.rates)
    }

    fn longest_drawn(&self) -> String {
        match self.longest.iter().copied().reduce(f64::max) {
            Some(max) => format!("{} up to {}", sparks(&self.longest), present::latency(max)),
            None => String::new(),
        }
    }
}

/// Runs of one sort that have ended, such as the points of a curve or the rounds of a side: what each came to.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    name: String,
    rates: VecDeque<f64>,
    p99_ns: VecDeque<f64>,
}

impl Ended {
    pub(crate) fn new(name: String) -> Self {
        Ended {
            name,
            ..Ended::default()
        }
    }

    pub(crate) fn add(&mut self, rate: f64, p99_ns: Option<f64>) {
        push(&mut self.rates, rate);
        if let Some(p99_ns) = p99_ns {
            push(&mut self.p99_ns, p99_ns);
        }
    }

    /// Both courses, and where they are; none where no run has ended.
    pub(crate) fn line(&self) -> Option<String> {
        let rate = present::grouped(*self.rates.back()? as u64);
        let mut line = format!(
            "{:<7}  {} to {rate} IOPS",
            shortened(&self.name),
            sparks(&self.rates)
        );
        if let Some(&p99) = self.p99_ns.back() {
            let p99 = present::latency(p99);
            line.push_str(&format!(", p99 {} to {p99}", sparks(&self.p99_ns)));
        }
        Some(line)
    }
}

fn push(course: &mut VecDeque<f64>, value: f64) {
    if course.len() == SPARKS {
        course.pop_front();
    }
    course.push_back(value);
}

/// Values as blocks from nothing to the greatest of them.
fn sparks(values: &VecDeque<f64>) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let block = |value: &f64| match greatest > 0.0 {
        true => BLOCKS[((value / greatest * 7.0).round() as usize).min(7)],
        false => BLOCKS[0],
    };
    values.iter().map(block).collect()
}

/// The end of a long name, which tells it from others more often than its beginning.
fn shortened(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= NAME_MAX {
        return name.to_owned();
    }
    let end: String = name.chars().skip(letters - NAME_MAX + 1).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(job: usize, second: u64, requests: u64, latency_ns: Option<u64>) -> Tick {
        let latency_ns = latency_ns.map(|ns| {
            let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
            histogram.record_n(ns, requests).unwrap();
            histogram
        });
        Tick {
            job,
            elapsed: Duration::from_secs(second),
            total: Duration::from_secs(10),
            ramping: second < 2,
            interval: Duration::from_secs(1),
            requests,
            bytes: requests * 4096,
            errors: u64::from(second == 5),
            latency_ns,
        }
    }

    fn lines(line: &Line) -> Vec<&str> {
        line.text.split('\n').collect()
    }

    #[test]
    fn one_volume_is_a_line_with_its_courses() {
        let mut view = View::new(["null:".to_owned()]);
        let line = view.add(&tick(0, 1, 1000, None)).expect("a line");
        assert_eq!(
            lines(&line),
            ["1,000 IOPS, 3.9 MiB/s (ramp)", "rate     █", "longest  "]
        );
        let line = view.add(&tick(0, 5, 500, Some(100_000))).expect("a line");
        let lines = lines(&line);
        assert_eq!(
            lines[0],
            "500 IOPS, 2.0 MiB/s, p50 100.0 us, p99 100.0 us, p99.9 100.0 us, max 100.0 us, 1 errors"
        );
        assert_eq!(lines[1], "rate     █▅");
        assert!(
            lines[2].starts_with("longest  █ up to 100.0 us"),
            "{lines:?}"
        );
        assert!((line.fraction - 0.5).abs() < 1e-9);
    }

    #[test]
    fn several_volumes_have_a_row_each_and_merged_latencies() {
        let mut view = View::new(["file:/a".to_owned(), "file:/b".to_owned()]);
        assert!(view.add(&tick(0, 3, 900, Some(100_000))).is_none());
        let line = view.add(&tick(1, 3, 100, Some(5_000_000))).expect("a line");
        // A hundred of a thousand are slow: what a mean of two percentiles would hide.
        assert!(line.text.starts_with("1,000 IOPS"), "{}", line.text);
        assert!(
            line.text.contains("p50 100.0 us, p99 5.00 ms"),
            "{}",
            line.text
        );
        let rows = &lines(&line)[3..];
        assert!(rows[0].contains("bandwidth") && rows.len() == 3, "{rows:?}");
        assert!(
            rows[1].starts_with("file:/a") && rows[1].contains("900"),
            "{rows:?}"
        );
        assert!(
            rows[2].starts_with("file:/b") && rows[2].contains("5.00 ms"),
            "{rows:?}"
        );
        assert!(rows[1].ends_with('█'), "{rows:?}");
        // The next round begins anew.
        assert!(view.add(&tick(0, 4, 1, None)).is_none());
        let line = view.add(&tick(1, 4, 1, None)).expect("a line");
        assert!(line.text.starts_with("2 IOPS"), "{}", line.text);
    }

    #[test]
    fn a_course_is_no_longer_than_there_is_room() {
        let mut view = View::new(["null:".to_owned()]);
        let mut last = None;
        for second in 0..100 {
            last = view.add(&tick(0, second, second * 10, None));
        }
        let line = last.expect("a line");
        let drawn = lines(&line)[1].trim_start_matches("rate     ");
        assert_eq!(drawn.chars().count(), SPARKS);
        assert!(drawn.ends_with('█'), "{drawn}");
    }

    #[test]
    fn a_run_begins_without_the_latencies_of_the_last_one() {
        let mut view = View::new(["null:".to_owned()]);
        let line = view.add(&tick(0, 3, 500, Some(100_000))).expect("a line");
        assert!(line.text.contains("p50 100.0 us"), "{}", line.text);
        view.begin();
        let line = view.add(&tick(0, 1, 1000, None)).expect("a line");
        assert_eq!(lines(&line)[0], "1,000 IOPS, 3.9 MiB/s (ramp)");
        assert_eq!(lines(&line)[1], "rate     ▅█", "the course goes on");
    }

    #[test]
    fn runs_that_have_ended_are_a_course_of_points() {
        let mut ended = Ended::new("points".to_owned());
        assert_eq!(ended.line(), None);
        ended.add(1000.0, Some(100_000.0));
        ended.add(2000.0, None);
        ended.add(4000.0, Some(800_000.0));
        let line = ended.line().expect("runs have ended");
        assert_eq!(line, "points   ▃▅█ to 4,000 IOPS, p99 ▂█ to 800.0 us");
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = "nvme+tcp://192.0.2.1:4420/nqn.2026-01.com.example:storage?nsid=7";
        let short = shortened(name);
        assert_eq!(short.chars().count(), NAME_MAX);
        assert!(
            short.starts_with('…') && short.ends_with("nsid=7"),
            "{short}"
        );
    }
}
