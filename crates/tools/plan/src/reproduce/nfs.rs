//! The article on NFS over one connection and over 16: its figures against one another, and the same measured here with one thing changed at a time.

use super::{Check, Word, agree, number, own_section};
use crate::published::{Connections, ConnectionsRun, connections};
use crate::sheet::{Cell, Row, Section, Sheet, Source};
use crate::units::percent_text;

/// Bytes of a full frame on the wire beyond its MTU: preamble and start, header, frame check, gap.
const FRAME_BYTES: f64 = 38.0;
/// Bytes of IPv4 and of TCP with time stamps in each frame.
const HEADER_BYTES: f64 = 52.0;
/// MTUs: what is usual, and jumbo frames.
const MTUS: [f64; 2] = [1500.0, 9000.0];
/// A part of the link from which it is the limit.
const LINK_SHARE: f64 = 0.9;
/// A part of the time from which the client's thread is the limit.
const BUSY_PERCENT: f64 = 90.0;
/// The version that has no sessions.
const WITHOUT_SESSIONS: &str = "3";
/// A gain from which more connections are said to help.
const GAIN: f64 = 1.1;

/// One load that is run: so many connections, and so many reads in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Version of NFS, as a URL has it.
    pub version: &'static str,
    /// Connections.
    pub connections: u32,
    /// Reads in flight on all of them.
    pub in_flight: u32,
}

/// The loads that are run of a version: both of the article's, and each with the other's reads in flight.
#[must_use]
pub fn cases(version: &'static str) -> Vec<Case> {
    let article = connections();
    let mut cases = Vec::new();
    for depth in &article.runs {
        for run in &article.runs {
            cases.push(Case {
                version,
                connections: run.connections,
                in_flight: article.in_flight(depth) as u32,
            });
        }
    }
    cases
}

/// One run of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseRun {
    /// The case.
    pub case: Case,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Mean latency in seconds.
    pub mean: f64,
    /// Latency that 99 of 100 reads do not exceed, in seconds.
    pub p99: f64,
    /// Reads in flight, as they were counted.
    pub in_flight: f64,
    /// Processor seconds of the client in a second.
    pub client: Option<f64>,
    /// Processor seconds of the server in a second.
    pub server: Option<f64>,
    /// Percent of the time for which the client's busiest thread had work.
    pub busy_percent: f64,
    /// Bits a second of the link, where it is known.
    pub link_bits: Option<f64>,
    /// Bytes on the link for each byte read.
    pub wire_bytes: f64,
}

impl CaseRun {
    /// The part of the link that it takes.
    fn link_share(&self) -> Option<f64> {
        let bits = self.bytes_per_second * self.wire_bytes * 8.0;
        Some(bits / self.link_bits?)
    }
}

/// The article, by its own figures and beside the runs of [`cases`], if there are any. `slots` is what the server grants a session, where it is known.
#[must_use]
pub fn nfs(runs: &[CaseRun], slots: Option<u32>) -> Sheet {
    let article = connections();
    let mut sheet = Sheet::new(
        "reproduce",
        "The article on NFS over one connection and over 16, beside its own figures",
    );
    sheet.sections.push(published_section(&article));
    let versions = versions(runs);
    if !runs.is_empty() {
        let measured = versions.iter();
        let measured = measured.map(|version| measured_section(runs, version, slots));
        sheet.sections.extend(measured);
        let gains = gains_section(&article, runs, &versions);
        sheet.sections.push(gains);
    }
    let (answer, checks) = own_section(checks(&article));
    let gains: Vec<String> = versions
        .iter()
        .filter_map(|version| {
            let times = number(gain(runs, version, 0)?.middle, 2);
            Some(format!("{times}x by version {version}"))
        })
        .collect();
    sheet.answer = match gains.is_empty() {
        true => answer,
        false => format!(
            "16 connections against one, with as many reads in flight, here: {}. {answer}",
            gains.join(", ")
        ),
    };
    sheet.sections.push(checks);
    sheet.sections.push(consequences_section(&article));
    sheet
        .caveats
        .push(format!("Published by: {}", article.source));
    sheet.caveats.extend(
        [
            "No sentence is quoted. The words of this report are Weir's.",
            "The second output of fio carries the first job's name, so that it is not certain which command line it is of.",
            "The article does not name its version.",
            "With version 4 all connections of a mount share the slots of one session. Linux's client asks for 64, and more than 64 requests are then never in flight, however many connections there are: 256 were there only if the version was 3, or if several sessions were.",
        ]
        .map(str::to_owned),
    );
    if let Some(slots) = slots {
        sheet.caveats.push(format!(
            "The server grants a session {slots} slots, which its connections share."
        ));
    }
    sheet
}

fn published_section(article: &Connections) -> Section {
    let each = |cell: &dyn Fn(&ConnectionsRun) -> Cell| article.runs.iter().map(cell).collect();
    let published = |value: f64, text: String| Cell::new(value, text, Source::Published);
    let derived = |value: f64, text: String| Cell::new(value, text, Source::Derived);
    Section {
        name: "published".to_owned(),
        title: "The published runs".to_owned(),
        words: format!(
            "Reads of {} KiB, {} in flight of each job, from a file of {} GiB, over {} GbE.",
            article.load.block_kibibytes,
            article.load.depth,
            article.load.file_gibibytes,
            article.claims.link_gigabits
        ),
        columns: article
            .runs
            .iter()
            .map(|run| connections_text(run.connections))
            .collect(),
        rows: vec![
            Row::new(
                "jobs",
                "Jobs",
                "",
                each(&|run| Cell::count(run.jobs.into(), Source::Published)),
            ),
            Row::new(
                "in-flight",
                "Reads in flight",
                "",
                each(&|run| derived(article.in_flight(run), number(article.in_flight(run), 0))),
            )
            .how("jobs times the depth of each"),
            Row::new(
                "throughput",
                "Throughput",
                "MiB/s",
                each(&|run| {
                    let rate = run.mebibytes_per_second;
                    published(
                        rate,
                        format!("{} MiB/s", weir_report::words::grouped(rate as u64)),
                    )
                }),
            ),
            Row::new(
                "mean",
                "Mean latency",
                "ms",
                each(&|run| {
                    published(
                        run.mean_milliseconds,
                        format!("{} ms", run.mean_milliseconds),
                    )
                }),
            ),
            Row::new(
                "p99",
                "p99 latency",
                "ms",
                each(&|run| {
                    published(run.p99_milliseconds, format!("{} ms", run.p99_milliseconds))
                }),
            ),
            Row::new(
                "system",
                "Client's processor, in the kernel",
                "percent",
                each(&|run| published(run.system_percent, format!("{}%", run.system_percent))),
            ),
        ],
    }
}

fn connections_text(count: u32) -> String {
    match count {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    }
}

/// Gb/s of data that a link carries with frames of this MTU.
fn carried(link_gigabits: f64, mtu: f64) -> f64 {
    link_gigabits * (mtu - HEADER_BYTES) / (mtu + FRAME_BYTES)
}

fn gigabits(run: &ConnectionsRun) -> f64 {
    run.mebibytes_per_second * 8.0 * 1.048_576e6 / 1e9
}

fn checks(article: &Connections) -> Vec<Check> {
    let (Some(one), Some(many)) = (article.runs.first(), article.runs.last()) else {
        return Vec::new();
    };
    let in_flight = |run| article.in_flight(run);
    let by_law = |run: &ConnectionsRun| article.iops(run) * run.mean_milliseconds / 1e3;
    let laws = [by_law(one) / in_flight(one), by_law(many) / in_flight(many)];
    let printed = one.kilo_iops.unwrap_or(0.0) * 1e3;
    let passes = many.gibibytes_read.unwrap_or(0.0) / article.load.file_gibibytes;
    let fast = gigabits(many);
    let link = article.claims.link_gigabits;
    let usual = carried(link, MTUS[0]);
    let measured = one.mebibytes_per_second * 1.048_576e6 / 1e9;
    let claimed = article.claims.read_gigabytes;
    vec![
        Check {
            name: "one-change".into(),
            claim: "the two runs differ in the number of connections alone".to_owned(),
            figures: format!("{} and {} reads in flight", in_flight(one), in_flight(many)),
            agrees: in_flight(one).total_cmp(&in_flight(many)).is_eq(),
            arithmetic: format!(
                "{} x {} and {} x {}: the second run has more jobs, too",
                one.jobs, article.load.depth, many.jobs, article.load.depth
            ),
        },
        Check {
            name: "littles-law".into(),
            claim: "throughput, latency and the reads in flight hang together".to_owned(),
            figures: format!("{} and {}", number(by_law(one), 0), number(by_law(many), 0)),
            agrees: agree(Word::Exactly, 1.0, &laws),
            arithmetic: format!(
                "{}/s x {} ms and {}/s x {} ms, against {} and {}",
                number(article.iops(one), 0),
                one.mean_milliseconds,
                number(article.iops(many), 0),
                many.mean_milliseconds,
                in_flight(one),
                in_flight(many)
            ),
        },
        Check {
            name: "iops".into(),
            claim: "the reads a second that are printed are those of the throughput beside them"
                .to_owned(),
            figures: format!(
                "{} against {}",
                number(printed, 0),
                number(article.iops(one), 0)
            ),
            agrees: agree(Word::Exactly, article.iops(one), &[printed]),
            arithmetic: format!(
                "{} MiB/s / {} KiB",
                one.mebibytes_per_second, article.load.block_kibibytes
            ),
        },
        Check {
            name: "drives".into(),
            claim: "what was read came from drives".to_owned(),
            figures: format!("each block was read {} times", number(passes, 1)),
            agrees: passes <= 1.0,
            arithmetic: format!(
                "{} GiB in {} s of a file of {} GiB: after the first pass of {} s it was in the server's memory, if that is large enough",
                number(many.gibibytes_read.unwrap_or(0.0), 0),
                article.load.seconds,
                article.load.file_gibibytes,
                number(
                    article.load.file_gibibytes * 1024.0 / many.mebibytes_per_second,
                    1
                )
            ),
        },
        Check {
            name: "frames".into(),
            claim: "the link had frames of the usual 1,500 bytes".to_owned(),
            figures: format!("{} Gb/s against {}", number(fast, 2), number(usual, 2)),
            agrees: fast <= usual,
            arithmetic: format!(
                "{link} Gb/s x {} / {} is what they carry of data; with jumbo frames {}, of which it took {}: the link was the limit",
                MTUS[0] - HEADER_BYTES,
                MTUS[0] + FRAME_BYTES,
                number(carried(link, MTUS[1]), 2),
                percent_text(fast / carried(link, MTUS[1]))
            ),
        },
        Check {
            name: "stalls-at".into(),
            claim: format!("reads over one connection stall at about {claimed} GB/s"),
            figures: format!("{} GB/s", number(measured, 2)),
            agrees: agree(Word::About, claimed, &[measured]),
            arithmetic: format!("{} MiB/s", one.mebibytes_per_second),
        },
        Check {
            name: "writes".into(),
            claim: format!(
                "writes over one connection stall at about {} GB/s",
                article.claims.write_gigabytes
            ),
            figures: "no write was measured".to_owned(),
            agrees: false,
            arithmetic: "both runs only read".to_owned(),
        },
    ]
}

fn consequences_section(article: &Connections) -> Section {
    let mut rows = Vec::new();
    if let (Some(one), Some(many)) = (article.runs.first(), article.runs.last()) {
        let mut row =
            |name: &str, label: &str, unit: &str, value: f64, text: String, how: String| {
                let cells = vec![Cell::new(value, text, Source::Derived)];
                rows.push(Row::new(name, label, unit, cells).how(how));
            };
        let equal = article.in_flight(one) / article.iops(many) * 1e3;
        row(
            "equal-latency",
            "Mean latency over 16 connections with the first run's reads in flight, if the link stays full",
            "ms",
            equal,
            format!("{} ms", number(equal, 1)),
            format!(
                "{} / {}/s (Little's law): half of what the second run shows comes of its own queue",
                article.in_flight(one),
                number(article.iops(many), 0)
            ),
        );
        let cost = |run: &ConnectionsRun| run.system_percent / run.mebibytes_per_second * 1024.0;
        row(
            "processor",
            "The client's processor time for a GiB, 16 connections against one",
            "ratio",
            cost(many) / cost(one),
            format!("{}x", number(cost(many) / cost(one), 2)),
            format!(
                "{}% / {} MiB/s against {}% / {} MiB/s: percent of how many processors is not said, and cancels out if it is of the same",
                many.system_percent,
                many.mebibytes_per_second,
                one.system_percent,
                one.mebibytes_per_second
            ),
        );
        let gain = many.mebibytes_per_second / one.mebibytes_per_second;
        row(
            "gain",
            "The published gain",
            "ratio",
            gain,
            format!("{}x or more", number(gain, 2)),
            "the second run is at the link's limit: what 16 connections can do is not known from it".to_owned(),
        );
    }
    Section {
        name: "consequences".to_owned(),
        title: "What follows from its figures".to_owned(),
        words: String::new(),
        columns: vec!["derived".to_owned()],
        rows,
    }
}

/// The middle of some values, the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    low: f64,
    middle: f64,
    high: f64,
}

impl Spread {
    /// None where there are no values.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Some(Spread {
            low: *values.first()?,
            middle: values[values.len() / 2],
            high: *values.last()?,
        })
    }

    fn cell(self, text: impl Fn(f64) -> String) -> Cell {
        let Spread { low, middle, high } = self;
        let shown = format!("{} ({} to {})", text(middle), text(low), text(high));
        Cell::new(middle, shown, Source::Measured).within(low, high)
    }
}

fn of_case(runs: &[CaseRun], case: Case) -> impl Iterator<Item = &CaseRun> {
    runs.iter().filter(move |run| run.case == case)
}

/// The versions that were run, in order.
fn versions(runs: &[CaseRun]) -> Vec<&'static str> {
    let mut versions: Vec<&str> = runs.iter().map(|run| run.case.version).collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

fn measured_section(runs: &[CaseRun], version: &'static str, slots: Option<u32>) -> Section {
    let cases: Vec<Case> = cases(version)
        .into_iter()
        .filter(|case| of_case(runs, *case).next().is_some())
        .collect();
    let row = |name: &str,
               label: &str,
               unit: &str,
               value: &dyn Fn(&CaseRun) -> Option<f64>,
               text: &dyn Fn(f64) -> String| {
        let cell = |&case: &Case| {
            let spread = Spread::of(of_case(runs, case).filter_map(value));
            spread.map_or_else(
                || Cell::word("not known", Source::Measured),
                |spread| spread.cell(text),
            )
        };
        Row::new(name, label, unit, cases.iter().map(cell).collect())
    };
    let milliseconds = |seconds: f64| number(seconds * 1e3, 2);
    let processors = |of: f64| number(of, 2);
    let limits = cases
        .iter()
        .map(|&case| Cell::word(limit(runs, case, slots), Source::Derived));
    Section {
        name: format!("measured-{version}"),
        title: format!("Measured here, by version {version}"),
        words: "Each run is the middle of its rounds, and the least and the most of them in parentheses; the order within a round is drawn.".to_owned(),
        columns: cases
            .iter()
            .map(|case| format!("{}, {} reads", connections_text(case.connections), case.in_flight))
            .collect(),
        rows: vec![
            row("throughput", "Throughput, MiB/s", "MiB/s", &|run| Some(run.bytes_per_second / 1_048_576.0), &|of| number(of, 0)),
            row("mean", "Mean latency, ms", "s", &|run| Some(run.mean), &milliseconds),
            row("p99", "p99 latency, ms", "s", &|run| Some(run.p99), &milliseconds),
            row("in-flight", "Reads in flight", "", &|run| Some(run.in_flight), &|of| number(of, 0)),
            row("client", "Client's processors", "s/s", &|run| run.client, &processors),
            row("server", "Server's processors", "s/s", &|run| run.server, &processors),
            row("link", "Of the link", "fraction", &|run| run.link_share(), &percent_text),
            Row::new("limit", "Limit", "", limits.collect())
                .how("the link from 90% of it; the client where its busiest thread has work for 90% of the time; the session's slots where they are fewer than the reads; one connection where as many reads over 16 do 1.1 times as much; else the server, its processors or its drives"),
        ],
    }
}

/// Limit of a case, in words.
fn limit(runs: &[CaseRun], case: Case, slots: Option<u32>) -> String {
    let share = Spread::of(of_case(runs, case).filter_map(CaseRun::link_share));
    let busy = Spread::of(of_case(runs, case).map(|run| run.busy_percent));
    if share.is_some_and(|share| share.middle >= LINK_SHARE) {
        return "link".to_owned();
    }
    if busy.is_some_and(|busy| busy.middle >= BUSY_PERCENT) {
        return "client".to_owned();
    }
    let has_sessions = case.version != WITHOUT_SESSIONS;
    if has_sessions && slots.is_some_and(|slots| slots < case.in_flight) {
        return "slots".to_owned();
    }
    let all = cases(case.version);
    let depth = all.iter().position(|of| of.in_flight == case.in_flight);
    let gain = depth.and_then(|at| gain(runs, case.version, at / 2));
    match gain {
        Some(gain) if case.connections == 1 && gain.middle >= GAIN => "connection".to_owned(),
        _ => "server".to_owned(),
    }
}

/// Throughput of the article's many connections as a multiple of one's, with the reads in flight of its run `index`, round by round.
fn gain(runs: &[CaseRun], version: &'static str, index: usize) -> Option<Spread> {
    let cases = cases(version);
    let (one, many) = (cases.get(2 * index)?, cases.get(2 * index + 1)?);
    let rounds = of_case(runs, *one).zip(of_case(runs, *many));
    Spread::of(rounds.map(|(one, many)| many.bytes_per_second / one.bytes_per_second))
}

/// The same as the article compares, which is with other reads in flight.
fn unequal_gain(runs: &[CaseRun], version: &'static str) -> Option<Spread> {
    let cases = cases(version);
    let (one, many) = (cases.first()?, cases.last()?);
    let rounds = of_case(runs, *one).zip(of_case(runs, *many));
    Spread::of(rounds.map(|(one, many)| many.bytes_per_second / one.bytes_per_second))
}

fn gains_section(article: &Connections, runs: &[CaseRun], versions: &[&'static str]) -> Section {
    let ratio = |of: f64| format!("{}x", number(of, 2));
    let missing = || Cell::word("not run", Source::Measured);
    let here = |published: Cell, gain: &dyn Fn(&'static str) -> Option<Spread>| {
        let cell =
            |version: &&'static str| gain(version).map_or_else(missing, |gain| gain.cell(ratio));
        let measured = versions.iter().map(cell);
        std::iter::once(published).chain(measured).collect()
    };
    let equal = article.runs.iter().enumerate().map(|(index, run)| {
        let in_flight = number(article.in_flight(run), 0);
        let published = Cell::word("not published", Source::Published);
        Row::new(
            format!("equal-{in_flight}"),
            format!("16 connections against one, both with {in_flight} reads in flight"),
            "ratio",
            here(published, &|version| gain(runs, version, index)),
        )
    });
    let published =
        article
            .runs
            .first()
            .zip(article.runs.last())
            .map_or_else(missing, |(one, many)| {
                let gain = many.mebibytes_per_second / one.mebibytes_per_second;
                Cell::new(gain, ratio(gain), Source::Derived)
            });
    let unequal = Row::new(
        "unequal",
        "As the article compares: 16 connections and 256 reads against one and 128",
        "ratio",
        here(published, &|version| unequal_gain(runs, version)),
    );
    Section {
        name: "gains".to_owned(),
        title: "What 16 connections gain".to_owned(),
        words: "Of runs of one round each, and the middle of these.".to_owned(),
        columns: std::iter::once("article".to_owned())
            .chain(versions.iter().map(|version| format!("version {version}")))
            .collect(),
        rows: equal.chain([unequal]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: Case, mebibytes: f64) -> CaseRun {
        CaseRun {
            case,
            bytes_per_second: mebibytes * 1_048_576.0,
            mean: 1e-3,
            p99: 2e-3,
            in_flight: case.in_flight.into(),
            client: Some(0.5),
            server: None,
            busy_percent: 50.0,
            link_bits: None,
            wire_bytes: 1.01,
        }
    }

    fn verdict(sheet: &Sheet, name: &str) -> Option<f64> {
        sheet.cell("checks", name, 1)?.value
    }

    #[test]
    fn the_article_contradicts_itself_where_it_does() {
        let sheet = nfs(&[], None);
        for (name, agrees) in [
            ("one-change", 0.0),
            ("littles-law", 1.0),
            ("iops", 0.0),
            ("drives", 0.0),
            ("frames", 0.0),
            ("stalls-at", 0.0),
            ("writes", 0.0),
        ] {
            assert_eq!(verdict(&sheet, name), Some(agrees), "{name}");
        }
        let text = crate::text::text(&sheet);
        for part in [
            "11000 against 11968",
            "13.8 times",
            "39.47 Gb/s against 37.66",
            "1.57 GB/s",
            "128 and 256 reads in flight",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn each_load_is_run_over_one_connection_and_over_many() {
        let all: Vec<(u32, u32)> = cases("4.1")
            .iter()
            .map(|of| (of.connections, of.in_flight))
            .collect();
        assert_eq!(all, [(1, 128), (16, 128), (1, 256), (16, 256)]);
    }

    #[test]
    fn gains_are_those_of_equal_loads_and_the_limit_has_a_name() {
        let mut runs = Vec::new();
        for (version, times) in [("4.1", 1.0), ("3", 2.0)] {
            for round in 0..3 {
                for (case, rate) in cases(version).iter().zip([1000.0, 3000.0, 1100.0, 4400.0]) {
                    let times = if case.connections == 1 { 1.0 } else { times };
                    runs.push(run(*case, times * rate * (1.0 + f64::from(round) / 100.0)));
                }
            }
        }
        let sheet = nfs(&runs, Some(1024));
        let value = |row, at| sheet.cell("gains", row, at).unwrap().value.unwrap();
        assert!((value("equal-128", 2) - 3.0).abs() < 1e-9);
        assert!((value("equal-256", 2) - 4.0).abs() < 1e-9);
        assert!((value("unequal", 2) - 4.4).abs() < 1e-9);
        assert!(
            (value("equal-128", 1) - 6.0).abs() < 1e-9,
            "version 3 is first"
        );
        let limits = |runs: &[CaseRun], version: &str, slots| {
            let sheet = nfs(runs, slots);
            let section = format!("measured-{version}");
            let row = (0..4).map(|at| sheet.cell(&section, "limit", at).unwrap().text.clone());
            row.collect::<Vec<_>>()
        };
        let by_connections = ["connection", "server", "connection", "server"];
        assert_eq!(limits(&runs, "4.1", Some(1024)), by_connections);
        assert_eq!(
            limits(&runs, "4.1", Some(128)),
            ["connection", "server", "slots", "slots"]
        );
        assert_eq!(limits(&runs, "3", Some(128)), by_connections);
        runs.iter_mut().for_each(|run| run.link_bits = Some(40e9));
        assert_eq!(limits(&runs, "4.1", None)[3], "link");
        runs.iter_mut().for_each(|run| run.busy_percent = 97.0);
        assert_eq!(limits(&runs, "4.1", None)[0], "client");
    }
}
