//! Published tests beside what was measured or predicted, and what the published figures themselves say of the words that go with them.
//!
//! Every check is arithmetic on the published points, done here and shown; which words agree with them is decided by rules that have names.

mod vsphere;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub use vsphere::vsphere;

use crate::cluster::MeasuredCurve;
use crate::drive::Drive;
use crate::points::Points;
use crate::published::{self, PublishedDrive};
use crate::record::{RecordError, margins_for, needed};
use crate::sheet::{Cell, Chart, Quantity, Row, Section, Series, Sheet, Source};
use crate::units::{SECONDS_OF_DAY, SECONDS_OF_YEAR, percent_text, rate_text, time_text};

/// Words that name a number are held to be true within this part of it.
pub const NEAR: f64 = 0.1;
/// By Little's law the points of a closed loop are off by no more than what is read off a chart: 1% of the rate and, of short latencies, two digits.
const READ: f64 = 0.03;
/// The article's array: drives, and bytes of each.
const ARRAY: (f64, f64) = (12.0, 30e12);
/// Its warranty, in years, at one drive write per day.
const WARRANTY_YEARS: f64 = 5.0;

/// One check of words against figures.
struct Check {
    name: Cow<'static, str>,
    claim: String,
    figures: String,
    agrees: bool,
    arithmetic: String,
}

fn check_section(checks: Vec<Check>) -> Section {
    let rows = checks.into_iter().map(|of| {
        let verdict = if of.agrees { "agrees" } else { "disagrees" };
        Row::new(
            of.name,
            of.claim,
            "",
            vec![
                Cell::word(of.figures, Source::Derived),
                Cell {
                    value: Some(f64::from(u8::from(of.agrees))),
                    ..Cell::word(verdict, Source::Derived)
                },
            ],
        )
        .how(of.arithmetic)
    });
    Section {
        name: "checks".to_owned(),
        title: "Its words against its own figures".to_owned(),
        words: format!(
            "Each from the published points alone. Words that name a number agree with what is within {} of it.",
            percent_text(NEAR)
        ),
        columns: vec!["its figures say".to_owned(), "verdict".to_owned()],
        rows: rows.collect(),
    }
}

fn disagreements(section: &Section) -> String {
    let names: Vec<&str> = section
        .rows
        .iter()
        .filter(|row| row.cells.get(1).and_then(|of| of.value) == Some(0.0))
        .map(|row| row.label.as_str())
        .collect();
    match names.len() {
        0 => "Its words and its figures agree.".to_owned(),
        1 => format!(
            "One of its statements disagrees with its own figures: {}.",
            names[0]
        ),
        count => format!(
            "{count} of its statements disagree with its own figures: {}.",
            names.join("; ")
        ),
    }
}

fn number(value: f64, decimals: usize) -> String {
    weir_report::words::trimmed(value, decimals)
}

/// The recorder's article: the published drives beside what `weir drive` found of the same drives (modelled ones, or others), by the published drive's name.
/// What was given of no published drive stands in columns of its own. `buffer` is bytes.
///
/// # Errors
/// [`RecordError`].
pub fn recorder(
    measured: &BTreeMap<String, Drive>,
    others: &[Drive],
    buffer: f64,
) -> Result<Sheet, RecordError> {
    let published = published::drives();
    let line = published.line();
    let mut sheet = Sheet::new(
        "reproduce",
        "The recorder's article, beside its own figures",
    );
    sheet
        .sections
        .push(rates_section(&published.drives, measured));
    sheet
        .sections
        .push(counts_section(&published.drives, measured, line, buffer)?);
    if !others.is_empty() {
        sheet.sections.push(others_section(others, line, buffer)?);
    }
    let checks = check_section(recorder_checks(&published.drives, line));
    sheet.answer = disagreements(&checks);
    sheet.sections.push(checks);
    let series: Vec<Series> = measured
        .values()
        .chain(others)
        .map(|drive| Series {
            name: drive.name.clone(),
            source: drive.source,
            points: drive
                .windows
                .iter()
                .filter(|of| of.seconds.is_finite())
                .map(|of| [of.seconds, of.rate])
                .collect(),
        })
        .filter(|series| series.points.len() > 1)
        .collect();
    if !series.is_empty() {
        sheet.charts.push(Chart {
            title: "Lowest mean rate over any window".to_owned(),
            x: Quantity::WindowSeconds,
            y: Quantity::BytesPerSecond,
            series,
        });
    }
    sheet
        .caveats
        .push(format!("Published by: {}", published.source));
    for drive in measured.values().chain(others) {
        sheet.tell(drive.caveats.clone());
    }
    Ok(sheet)
}

/// Windows over which measured rates are told beside the published ones, in seconds.
const WINDOWS: [f64; 3] = [1.0, 10.0, 60.0];

fn rate_cell(value: f64, source: Source) -> Cell {
    Cell::new(value, rate_text(value), source)
}

fn absent() -> Cell {
    Cell::word("not run", Source::Derived)
}

fn rates_section(published: &[PublishedDrive], measured: &BTreeMap<String, Drive>) -> Section {
    let row = |name: &str, label: &str, cell: &dyn Fn(&PublishedDrive) -> Cell| {
        Row::new(name, label, "bytes/s", published.iter().map(cell).collect())
    };
    let mut rows = vec![
        row("data-sheet", "Data sheet", &|of| {
            rate_cell(of.data_sheet(), Source::Published)
        }),
        row("peak", "At first", &|of| {
            rate_cell(of.peak(), Source::Published)
        }),
        row("sustained", "Lowest", &|of| {
            rate_cell(of.sustained(), Source::Published)
        }),
        row("words", "In its words", &|of| {
            Cell::word(of.words.clone(), Source::Published)
        }),
        row("mean-run", "Mean of the slowest pass", &|of| {
            measured
                .get(&of.name)
                .map_or_else(absent, |drive| rate_cell(drive.mean, drive.source))
        }),
    ];
    for seconds in WINDOWS {
        rows.push(row(
            &format!("window-{seconds}"),
            &format!("Lowest mean of {}", time_text(seconds)),
            &|of| {
                measured.get(&of.name).map_or_else(absent, |drive| {
                    rate_cell(drive.rate_over(seconds), drive.source)
                })
            },
        ));
    }
    rows.push(row(
        "off",
        "Lowest mean of 10 s, against the published lowest",
        &|of| {
            measured.get(&of.name).map_or_else(absent, |drive| {
                let off = drive.rate_over(10.0) / of.sustained() - 1.0;
                Cell::new(off, format!("{:+.1}%", off * 100.0), Source::Derived)
            })
        },
    ));
    Section {
        name: "rates".to_owned(),
        title: "What the drives sustain".to_owned(),
        words: String::new(),
        columns: published.iter().map(|of| of.title.clone()).collect(),
        rows,
    }
}

fn counts_section(
    published: &[PublishedDrive],
    measured: &BTreeMap<String, Drive>,
    line: f64,
    buffer: f64,
) -> Result<Section, RecordError> {
    let count = |value: u64, source| Cell::count(value, source);
    let row = |name: &str, label: &str, cells: Vec<Cell>| Row::new(name, label, "drives", cells);
    let each =
        |cell: &dyn Fn(&PublishedDrive) -> Cell| published.iter().map(cell).collect::<Vec<_>>();
    let mut by_rule = Vec::new();
    let mut by_run = Vec::new();
    let mut margins = Vec::new();
    for of in published {
        let drives = needed(&of.drive(), line, 0.0)?.drives;
        by_rule.push(count(drives, Source::Derived));
        by_run.push(match measured.get(&of.name) {
            // A window that is too slow for any array is a finding of the run, and no reason to lose the rest of it.
            Some(drive) => match needed(drive, line, buffer) {
                Ok(of) => count(of.drives, Source::Derived),
                Err(error) => Cell::word(error.to_string(), Source::Derived),
            },
            None => absent(),
        });
        let (above, to) = margins_for(of.needed, of.sustained(), line);
        let text = format!("above {} to {}", percent_text(above), percent_text(to));
        margins.push(Cell::new(to, text, Source::Derived).within(above, to));
    }
    let data_sheet = each(&|of| count((line / of.data_sheet()).ceil() as u64, Source::Derived));
    Ok(Section {
        name: "counts".to_owned(),
        title: format!("Drives in RAID0 for {}", rate_text(line)),
        words: String::new(),
        columns: published.iter().map(|of| of.title.clone()).collect(),
        rows: vec![
            row(
                "by-data-sheet",
                "By the data sheet, as published",
                each(&|of| count(of.by_data_sheet, Source::Published)),
            ),
            row(
                "by-data-sheet-derived",
                "By the data sheet, computed",
                data_sheet,
            ),
            row(
                "needed",
                "Needed, as published",
                each(&|of| count(of.needed, Source::Published)),
            ),
            row(
                "by-rule",
                "By the lowest published rate, no margin",
                by_rule,
            )
            .how("the line divided by the rate, rounded up"),
            row("by-run", "By the worst window of the run", by_run).how(format!(
                "the rule of weir plan record, with a buffer of {}",
                crate::units::bytes_text(buffer)
            )),
            Row::new(
                "margins",
                "Margins that give the published count",
                "fraction",
                margins,
            )
            .how("n - 1 < line (1 + m) / rate <= n"),
        ],
    })
}

fn others_section(others: &[Drive], line: f64, buffer: f64) -> Result<Section, RecordError> {
    let mut drives = Vec::new();
    for drive in others {
        drives.push(match needed(drive, line, buffer) {
            Ok(of) => Cell::count(of.drives, Source::Derived),
            Err(error) => Cell::word(error.to_string(), Source::Derived),
        });
    }
    let each = |cell: &dyn Fn(&Drive) -> Cell| others.iter().map(cell).collect::<Vec<_>>();
    let mut rows = vec![Row::new(
        "mean",
        "Mean of the slowest pass",
        "bytes/s",
        each(&|of| rate_cell(of.mean, of.source)),
    )];
    rows.extend(WINDOWS.map(|seconds| {
        let label = format!("Lowest mean of {}", time_text(seconds));
        Row::new(
            format!("window-{seconds}"),
            label,
            "bytes/s",
            each(&|of| rate_cell(of.rate_over(seconds), of.source)),
        )
    }));
    rows.push(Row::new(
        "drives",
        "Drives by the worst window",
        "drives",
        drives,
    ));
    Ok(Section {
        name: "others".to_owned(),
        title: format!("The same test on other drives, for {}", rate_text(line)),
        words: String::new(),
        columns: others.iter().map(|of| of.name.clone()).collect(),
        rows,
    })
}

fn recorder_checks(drives: &[PublishedDrive], line: f64) -> Vec<Check> {
    // The margins at which each published count comes out: above the first, up to the second.
    let margins: Vec<(f64, f64)> = drives
        .iter()
        .map(|of| margins_for(of.needed, of.sustained(), line))
        .collect();
    let above = margins
        .iter()
        .map(|of| of.0)
        .fold(f64::NEG_INFINITY, f64::max);
    let to = margins.iter().map(|of| of.1).fold(f64::INFINITY, f64::min);
    // Equal ends leave nothing: one is not reached and the other is.
    const ROUNDING: f64 = 1e-12;
    let one_margin = above + ROUNDING < to;
    let at = |drives: &[PublishedDrive], margin: f64| -> Vec<String> {
        drives
            .iter()
            .map(|of| {
                let quotient = line * (1.0 + margin) / of.sustained();
                format!("{}", (quotient - 1e-9).ceil())
            })
            .collect()
    };
    let published: Vec<String> = drives.iter().map(|of| of.needed.to_string()).collect();
    let sheets = drives
        .iter()
        .all(|of| (line / of.data_sheet()).ceil() as u64 == of.by_data_sheet);
    let sheet_counts: Vec<String> = drives
        .iter()
        .map(|of| format!("{}", (line / of.data_sheet()).ceil()))
        .collect();
    let hours = ARRAY.0 * ARRAY.1 / line / 3600.0;
    let overwrites = WARRANTY_YEARS * SECONDS_OF_YEAR / SECONDS_OF_DAY;
    let years = overwrites * hours * 3600.0 / SECONDS_OF_YEAR;
    vec![
        Check {
            name: "one-rule".into(),
            claim: "the last column follows from what was measured".to_owned(),
            figures: if one_margin {
                format!(
                    "a margin above {} and up to {}",
                    percent_text(above),
                    percent_text(to)
                )
            } else {
                "no single margin gives it".to_owned()
            },
            agrees: one_margin,
            arithmetic: format!(
                "published {}; without margin {}; the published counts take margins {}; a margin above {} is wanted by one and up to {} allowed by another, with 2.5% it is {}",
                published.join(", "),
                at(drives, 0.0).join(", "),
                drives
                    .iter()
                    .zip(&margins)
                    .map(|(of, (above, to))| format!(
                        "{} above {} to {}",
                        of.name,
                        percent_text(*above),
                        percent_text(*to)
                    ))
                    .collect::<Vec<_>>()
                    .join(", "),
                percent_text(above),
                percent_text(to),
                at(drives, 0.025).join(", "),
            ),
        },
        Check {
            name: "data-sheet".into(),
            claim: "drives by the data sheet".to_owned(),
            figures: sheet_counts.join(", "),
            agrees: sheets,
            arithmetic: format!(
                "{} divided by each data sheet's rate, rounded up",
                rate_text(line)
            ),
        },
        Check {
            name: "hours".into(),
            claim: "12 drives of 30 TB hold the line for about 8 hours".to_owned(),
            figures: format!("{} hours", number(hours, 2)),
            agrees: (hours / 8.0 - 1.0).abs() <= NEAR,
            arithmetic: format!(
                "12 x 30 TB / {} = {} s",
                rate_text(line),
                number(hours * 3600.0, 0)
            ),
        },
        Check {
            name: "overwrites".into(),
            claim: "1 drive write per day over the warranty is about 1,800 overwrites".to_owned(),
            figures: number(overwrites, 0),
            agrees: (overwrites / 1800.0 - 1.0).abs() <= NEAR,
            arithmetic: "5 years of 365.25 days".to_owned(),
        },
        Check {
            name: "years".into(),
            claim: "at 1 DWPD they wear out in a little over 1.5 years".to_owned(),
            figures: format!("{} years", number(years, 2)),
            agrees: years > 1.5 && years <= 1.5 * (1.0 + 2.0 * NEAR),
            arithmetic: format!(
                "{} overwrites of {} hours each; 'a little over' is up to {} more",
                number(overwrites, 0),
                number(hours, 2),
                percent_text(2.0 * NEAR)
            ),
        },
    ]
}

/// What stands beside the published curves of Ceph's gateway.
pub enum Beside {
    /// A curve that was measured.
    Measured(Box<MeasuredCurve>),
    /// What the model predicts of each published curve from the others.
    Predicted(Box<Sheet>),
}

/// The article on Ceph's gateway.
#[must_use]
pub fn ceph(beside: &Beside, latency: f64) -> Sheet {
    let points = Points::published();
    let curves = points.curves(Source::Published);
    let mut sheet = Sheet::new(
        "reproduce",
        "The article on Ceph's NVMe/TCP gateway, beside its own figures",
    );
    let mut section = published_section(&points, &curves, latency);
    match beside {
        Beside::Measured(curve) => {
            let in_flight: Vec<f64> = curve.readings.iter().map(|of| of.in_flight).collect();
            sheet
                .sections
                .push(measured_section(curve, &curves, &in_flight));
            sheet.charts.push(chart(&curves, Some(curve)));
            sheet.caveats.extend(curve.caveats());
        }
        Beside::Predicted(plan) => {
            for (row, label) in [
                ("peak-predicted", "Predicted from the other curves"),
                ("peak-error", "Off by"),
                ("peak-inside", "Published lies inside"),
                ("within-predicted", "Predicted from the other curves"),
                ("within-error", "Off by"),
                ("within-inside", "Published lies inside"),
                ("refused", "Would be refused as a target"),
            ] {
                let left = plan.sections.iter().find(|of| of.name == "left-out");
                if let Some(found) = left.and_then(|of| of.rows.iter().find(|of| of.name == row)) {
                    section.rows.push(Row {
                        label: label.to_owned(),
                        ..found.clone()
                    });
                }
            }
            sheet.charts.extend(plan.charts.clone());
            sheet.caveats.extend(plan.caveats.clone());
        }
    }
    sheet.sections.insert(0, section);
    let checks = check_section(ceph_checks(&points, &curves, latency));
    sheet.answer = disagreements(&checks);
    sheet.sections.push(checks);
    if let Some(source) = &points.source {
        sheet.caveats.push(format!("Published by: {source}"));
    }
    sheet
}

fn iops(value: f64, source: Source) -> Cell {
    Cell::new(
        value,
        format!("{} IOPS", weir_report::words::grouped(value.round() as u64)),
        source,
    )
}

fn published_section(points: &Points, curves: &[MeasuredCurve], latency: f64) -> Section {
    let each = |name: &str, label: &str, cell: &dyn Fn(&MeasuredCurve) -> Cell| {
        Row::new(name, label, "requests/s", curves.iter().map(cell).collect())
    };
    let milliseconds = weir_report::words::latency(latency * 1e9);
    Section {
        name: "published".to_owned(),
        title: "The published curves".to_owned(),
        words: String::new(),
        columns: curves.iter().map(|of| points.title(&of.name)).collect(),
        rows: vec![
            each("peak", "Highest rate", &|of| {
                iops(of.peak(), Source::Published)
            }),
            each("within", &format!("Rate at {milliseconds}"), &|of| {
                of.rate_within(latency).map_or_else(
                    || Cell::word("not crossed", Source::Published),
                    |rate| iops(rate, Source::Derived),
                )
            })
            .how("between two points on a line in logarithms"),
        ],
    }
}

fn measured_section(
    curve: &MeasuredCurve,
    published: &[MeasuredCurve],
    in_flight: &[f64],
) -> Section {
    let peak = curve.peak();
    let part = |rate: Option<f64>, of: f64, source| {
        rate.map_or_else(
            || Cell::word("-", source),
            |rate| Cell::new(rate / of, percent_text(rate / of), source),
        )
    };
    let mut rows = Vec::new();
    for &population in in_flight {
        let at = |of: &MeasuredCurve| {
            of.readings
                .iter()
                .find(|of| of.in_flight == population)
                .map(|of| of.rate)
        };
        let mut cells = vec![
            at(curve).map_or_else(absent, |rate| iops(rate, curve.source)),
            part(at(curve), peak, Source::Derived),
        ];
        cells.extend(
            published
                .iter()
                .map(|of| part(at(of), of.peak(), Source::Published)),
        );
        rows.push(Row::new(
            format!("in-flight-{population}"),
            format!("{population} in flight"),
            "",
            cells,
        ));
    }
    let columns = ["measured", "of its peak"].map(str::to_owned).into_iter();
    Section {
        name: "measured".to_owned(),
        title: "The same curve here, as parts of each one's peak".to_owned(),
        words: "Sizes differ; shapes can be compared.".to_owned(),
        columns: columns
            .chain(
                published
                    .iter()
                    .map(|of| format!("{}, of its peak", of.name)),
            )
            .collect(),
        rows,
    }
}

fn chart(published: &[MeasuredCurve], measured: Option<&MeasuredCurve>) -> Chart {
    let series = published.iter().chain(measured).map(|curve| Series {
        name: curve.name.clone(),
        source: curve.source,
        points: curve
            .readings
            .iter()
            .map(|of| [of.rate, of.latency.unwrap_or(of.in_flight / of.rate) * 1e9])
            .collect(),
    });
    Chart {
        title: "Mean latency against requests a second".to_owned(),
        x: Quantity::RequestsPerSecond,
        y: Quantity::LatencyNanoseconds,
        series: series.collect(),
    }
}

fn ceph_checks(points: &Points, curves: &[MeasuredCurve], latency: f64) -> Vec<Check> {
    let curve = |name: &str| {
        curves
            .iter()
            .find(|of| of.name == name)
            .expect("the published data has it")
    };
    let (default, tuned, eight, twelve) = (
        curve("4-default"),
        curve("4-tuned"),
        curve("8"),
        curve("12"),
    );
    let thousand = |rate: f64| format!("{}k", number(rate / 1e3, 0));
    let words = |name: &str| points.words.get(name).cloned().unwrap_or_default();
    let within = |of: &MeasuredCurve| of.rate_within(latency).unwrap_or(f64::NAN);
    let nodes = |of: &MeasuredCurve| f64::from(of.configuration.nodes);
    let grown = nodes(twelve) / nodes(tuned);
    let (by_peak, by_latency) = (twelve.peak() / tuned.peak(), within(twelve) / within(tuned));
    let milliseconds = weir_report::words::latency(latency * 1e9);
    let tuning = tuned.peak() / default.peak();
    let off = curves
        .iter()
        .flat_map(|curve| &curve.readings)
        .filter_map(|of| Some((of.rate * of.latency? / of.in_flight - 1.0).abs()))
        .fold(0.0, f64::max);
    let past = curves
        .iter()
        .map(|curve| {
            let last = curve.readings.last().map_or(0.0, |of| of.rate);
            last / curve.peak()
        })
        .fold(f64::INFINITY, f64::min);
    let first = points.peaks.iter().min_by_key(|of| of.osds);
    let last = points.peaks.iter().max_by_key(|of| of.osds);
    let mut checks = vec![
        Check {
            name: "linear".into(),
            claim: format!("'{}' in nodes", words("scaling")),
            figures: format!(
                "1 : {} : {} for 1 : {} : {} nodes",
                number(eight.peak() / tuned.peak(), 2),
                number(by_peak, 2),
                number(nodes(eight) / nodes(tuned), 0),
                number(grown, 0)
            ),
            agrees: (by_peak / grown - 1.0).abs() <= NEAR,
            arithmetic: format!(
                "peaks of {}, {} and {}: {} of what is in proportion, and reactors (10, 12, 12) and bdevs (2, 1, 1) changed as well; {} at {milliseconds}",
                thousand(tuned.peak()),
                thousand(eight.peak()),
                thousand(twelve.peak()),
                percent_text(by_peak / grown),
                format_args!(
                    "1 : {} : {}",
                    number(within(eight) / within(tuned), 2),
                    number(by_latency, 2)
                ),
            ),
        },
        Check {
            name: "doubles".into(),
            claim: format!("tuning '{}' what 4 nodes do", words("tuning")),
            figures: format!(
                "{}x at the peak, {}x at {milliseconds}",
                number(tuning, 2),
                number(within(tuned) / within(default), 2)
            ),
            agrees: tuning >= 2.0 * (1.0 - NEAR),
            arithmetic: format!(
                "{} / {}; {} / {}",
                thousand(tuned.peak()),
                thousand(default.peak()),
                thousand(within(tuned)),
                thousand(within(default))
            ),
        },
        Check {
            name: "four-nodes".into(),
            claim: words("4-nodes"),
            figures: format!(
                "{} tuned, {} with defaults",
                thousand(tuned.peak()),
                thousand(default.peak())
            ),
            agrees: tuned.peak() > 450e3,
            arithmetic: format!(
                "tuned it is; {} of it is at a mean of {milliseconds} or less; with defaults it is not reached",
                thousand(within(tuned))
            ),
        },
        Check {
            name: "twelve-nodes".into(),
            claim: words("12-nodes"),
            figures: thousand(twelve.peak()),
            agrees: (twelve.peak() / 1e6 - 1.0).abs() <= NEAR,
            arithmetic: format!(
                "{} of a million, at {}; at {milliseconds} it is {}",
                percent_text(twelve.peak() / 1e6),
                weir_report::words::latency(
                    twelve
                        .readings
                        .last()
                        .and_then(|of| of.latency)
                        .unwrap_or(0.0)
                        * 1e9
                ),
                thousand(within(twelve))
            ),
        },
        Check {
            name: "littles-law".into(),
            claim: "depths of 1 to 256 from 32 clients, closed loop".to_owned(),
            figures: format!("off by {} at most", percent_text(off)),
            agrees: off <= READ,
            arithmetic: format!(
                "rate times latency of every point against 32 times its depth; what is read off a chart is off by up to {}",
                percent_text(READ)
            ),
        },
        Check {
            name: "saturation".into(),
            claim: "at saturation throughput holds".to_owned(),
            figures: format!(
                "at the greatest depth {} of the peak or more",
                percent_text(past)
            ),
            agrees: past >= 1.0 - NEAR,
            arithmetic: "the last point of each curve against its highest".to_owned(),
        },
    ];
    if let (Some(first), Some(last)) = (first, last) {
        checks.push(Check {
            name: "more-osds".into(),
            claim: "more OSDs behind default gateways add nothing".to_owned(),
            figures: format!(
                "{} with {} OSDs, {} with {}",
                thousand(first.iops),
                first.osds,
                thousand(last.iops),
                last.osds
            ),
            agrees: last.iops <= first.iops * (1.0 + NEAR),
            arithmetic: points
                .peaks
                .iter()
                .map(|of| format!("{} OSDs {}", of.osds, thousand(of.iops)))
                .collect::<Vec<_>>()
                .join(", "),
        });
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(sheet: &Sheet) -> BTreeMap<String, bool> {
        let section = sheet
            .sections
            .iter()
            .find(|of| of.name == "checks")
            .unwrap();
        section
            .rows
            .iter()
            .map(|row| (row.name.clone(), row.cells[1].value == Some(1.0)))
            .collect()
    }

    #[test]
    fn the_recorders_last_column_follows_from_no_single_rule() {
        let sheet = recorder(&BTreeMap::new(), &[], 0.0).unwrap();
        let found = verdicts(&sheet);
        assert!(!found["one-rule"]);
        for name in ["data-sheet", "hours", "overwrites", "years"] {
            assert!(found[name], "{name}");
        }
        let rule = &sheet.sections.last().unwrap().rows[0];
        assert!(
            rule.how.contains("without margin 8, 6, 10, 6, 4"),
            "{}",
            rule.how
        );
        assert!(
            rule.how.contains("with 2.5% it is 9, 6, 10, 6, 5"),
            "{}",
            rule.how
        );
        assert!(
            sheet.answer.starts_with("One of its statements"),
            "{}",
            sheet.answer
        );
    }

    #[test]
    fn a_run_stands_beside_what_was_published() {
        let run = Drive::steady("a run", 1.5e9, Some(1e12), Source::Measured);
        let other = Drive::steady("another", 5e9, None, Source::Measured);
        let measured = BTreeMap::from([("970-evo-plus".to_owned(), run)]);
        let sheet = recorder(&measured, &[other], 0.0).unwrap();
        assert_eq!(sheet.cell("counts", "by-run", 0).unwrap().value, Some(9.0));
        assert_eq!(sheet.cell("counts", "by-run", 1).unwrap().text, "not run");
        assert_eq!(sheet.cell("others", "drives", 0).unwrap().value, Some(3.0));
        let off = sheet.cell("rates", "off", 0).unwrap().value.unwrap();
        assert!((off + 0.0625).abs() < 1e-12);
    }

    #[test]
    fn the_articles_words_are_held_against_its_points() {
        let points = Points::published();
        let curve = points.curves(Source::Measured).remove(0);
        let sheet = ceph(&Beside::Measured(Box::new(curve)), 2e-3);
        let found = verdicts(&sheet);
        assert!(!found["linear"] && !found["doubles"]);
        for name in [
            "four-nodes",
            "twelve-nodes",
            "littles-law",
            "saturation",
            "more-osds",
        ] {
            assert!(found[name], "{name}");
        }
        let text = crate::text::text(&sheet);
        for part in [
            "1 : 1.38 : 1.64",
            "1.59x at the peak",
            "390k with 16 OSDs, 363k with 96",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }
}
