//! Published tests beside what was measured or predicted, and what the published figures themselves say of the words that go with them.
//!
//! Every check is arithmetic on the published points, done here and shown; which words agree with them is decided by rules that have names.

mod ceph;
mod checks;
mod nfs;
mod vsphere;

use std::collections::BTreeMap;

pub use ceph::{Beside, ceph};
pub use nfs::{Case, CaseRun, cases, nfs};
pub use vsphere::{Measured, vsphere};

use checks::{Check, Word, agree, check_section, disagreements, own_section};

use crate::drive::Drive;
use crate::published::{self, PublishedDrive};
use crate::record::{RecordError, first_loss, margins_for, needed};
use crate::sheet::{Cell, Chart, Quantity, Row, Section, Series, Sheet, Source};
use crate::units::{SECONDS_OF_DAY, SECONDS_OF_YEAR, percent_text, rate_text, time_text};

/// The article's array: drives, and bytes of each.
const ARRAY: (f64, f64) = (12.0, 30e12);
/// Its warranty, in years, at one drive write per day.
const WARRANTY_YEARS: f64 = 5.0;

fn number(value: f64, decimals: usize) -> String {
    weir_report::words::trimmed(value, decimals)
}

/// A run of the recorder itself on modelled drives, in simulated time.
#[derive(Debug, Clone, PartialEq)]
pub struct RecorderRun {
    /// Reason for this number of drives; the column's heading.
    pub why: String,
    /// Drives.
    pub drives: u64,
    /// One of them, as `weir drive` found it.
    pub drive: Drive,
    /// Bytes of its buffer.
    pub buffer: f64,
    /// Bytes that the line brought.
    pub received_bytes: f64,
    /// The share of these that was lost.
    pub lost: f64,
    /// When the first of them was, in seconds.
    pub first_lost: Option<f64>,
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
    ran: &[RecorderRun],
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
    if !ran.is_empty() {
        sheet.sections.push(ran_section(ran, line));
    }
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
        row("found", "Measured, in Weir's words", &|of| {
            Cell::word(of.found.clone(), Source::Published)
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
            row("by-data-sheet", "By the data sheet", data_sheet)
                .how("the line divided by the data sheet's rate, rounded up; the paper prints no such counts"),
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

fn ran_section(ran: &[RecorderRun], line: f64) -> Section {
    let each = |cell: &dyn Fn(&RecorderRun) -> Cell| ran.iter().map(cell).collect::<Vec<_>>();
    let seconds = |of: Option<f64>, source| match of {
        Some(of) => Cell::new(of, time_text(of), source),
        None => Cell::word("nothing is lost", source),
    };
    let row = |name: &str, label: &str, unit: &str, cells| Row::new(name, label, unit, cells);
    Section {
        name: "ran".to_owned(),
        title: format!("The recorder itself, simulated, at {}", rate_text(line)),
        words: String::new(),
        columns: ran.iter().map(|of| of.why.clone()).collect(),
        rows: vec![
            row("drives", "Drives", "drives", each(&|of| Cell::count(of.drives, Source::Derived))),
            row("received", "Bytes that came", "bytes", each(&|of| {
                let text = crate::units::bytes_text(of.received_bytes);
                Cell::new(of.received_bytes, text, Source::Given)
            })),
            row("lost", "Lost", "fraction", each(&|of| {
                Cell::new(of.lost, percent_text(of.lost), Source::Modelled)
            })),
            row("first-lost", "First loss after", "seconds", each(&|of| {
                seconds(of.first_lost, Source::Modelled)
            })),
            row("first-lost-planned", "First loss by arithmetic", "seconds", each(&|of| {
                let at = first_loss(&of.drive, of.drives, line, of.buffer);
                seconds(at, Source::Derived)
            }))
            .how("time until the buffer is full, each phase of weir drive at its measured rate; as in the plan's row 'First loss with one drive fewer'"),
        ],
    }
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
            name: "hours".into(),
            claim: "12 drives of 30 TB hold the line for about 8 hours".to_owned(),
            figures: format!("{} hours", number(hours, 2)),
            agrees: agree(Word::About, 8.0, &[hours]),
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
            agrees: agree(Word::About, 1800.0, &[overwrites]),
            arithmetic: "5 years of 365.25 days".to_owned(),
        },
        Check {
            name: "years".into(),
            claim: "at 1 drive write per day these wear out in a little over 1.5 years".to_owned(),
            figures: format!("{} years", number(years, 2)),
            agrees: agree(Word::LittleOver, 1.5, &[years]),
            arithmetic: format!(
                "{} overwrites of {} hours each",
                number(overwrites, 0),
                number(hours, 2),
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Points;

    /// The article's own words, as they were handed down; whatever else stands in double quotes was made up.
    const QUOTED: [&str; 9] = [
        "over 450,000 IOPS",
        "over 100K IOPS per node on average",
        "almost 1,000,000 IOPS",
        "scales linearly",
        "may seem to improve performance only slightly",
        "almost double",
        "t-shirt sizes",
        "does not become unstable or fail",
        "plateaus",
    ];

    #[test]
    fn only_an_articles_own_words_stand_as_its_words() {
        let points = Points::published();
        for quote in points.quotes.values() {
            assert!(QUOTED.contains(&quote.as_str()), "{quote}");
        }
        let curve = points.curves(Source::Measured).remove(0);
        let told = crate::text::text(&ceph(&Beside::Measured(vec![curve]), 2e-3));
        let quoted: Vec<&str> = told.split('"').skip(1).step_by(2).collect();
        assert!(quoted.len() >= 7, "{quoted:?}");
        for quote in quoted {
            assert!(QUOTED.contains(&quote), "{quote} in\n{told}");
        }
        // Of these two no sentence is kept, so that none is printed.
        let others = [
            recorder(&BTreeMap::new(), &[], 0.0, &[]).unwrap(),
            vsphere(&Measured::new()),
            nfs(&[], None),
        ];
        for mut sheet in others {
            let checks = sheet.sections.iter_mut().find(|of| of.name == "checks");
            checks.unwrap().words.clear();
            let told = crate::text::text(&sheet);
            for word in ["\"", "n its words", "only the protocol changes"] {
                assert!(!told.contains(word), "{word} in\n{told}");
            }
        }
    }

    #[test]
    fn what_is_derived_is_not_called_published() {
        let sheet = recorder(&BTreeMap::new(), &[], 0.0, &[]).unwrap();
        let counts = sheet.sections.iter().find(|of| of.name == "counts");
        for row in &counts.unwrap().rows {
            let is_published = row.cells.iter().any(|of| of.source == Source::Published);
            assert_eq!(is_published, row.name == "needed", "{}", row.label);
        }
        let counts = (0..5).map(|at| sheet.cell("counts", "by-data-sheet", at).unwrap().value);
        assert!(counts.eq([4.0, 6.0, 7.0, 6.0, 4.0].map(Some)));
        let curve = Points::published().curves(Source::Measured).remove(0);
        let sheet = ceph(&Beside::Measured(vec![curve]), 2e-3);
        let each = (0..4).map(|at| sheet.cell("published", "per-node", at).unwrap());
        assert!(each.clone().all(|of| of.source == Source::Derived));
        let thousand = each.map(|of| (of.value.unwrap() / 1e3).round());
        assert!(thousand.eq([91.0, 144.0, 99.0, 79.0]));
    }

    #[test]
    fn gateways_stand_beside_what_tuning_gained() {
        let points = Points::published();
        let curve = |name: &str, called: &str| {
            let curves = points.curves(Source::Measured);
            let mut curve = curves.into_iter().find(|of| of.name == name).unwrap();
            called.clone_into(&mut curve.name);
            curve
        };
        let measured = vec![curve("4-default", "a.toml"), curve("4-tuned", "b.toml")];
        let sheet = ceph(&Beside::Measured(measured), 2e-3);
        let cell = |row, at| sheet.cell("gateways", row, at).unwrap();
        assert_eq!(
            (&*cell("gateway-0", 1).text, &*cell("gateway-1", 1).text),
            ("1x", "1.59x")
        );
        // The published row says the same of the same curves.
        for at in [1, 3] {
            assert_eq!(cell("gateway-1", at), cell("published-tuning", at));
        }
        assert_eq!(cell("gateway-1", 0).source, Source::Measured);
        let one = ceph(&Beside::Measured(vec![curve("8", "one")]), 2e-3);
        assert!(one.cell("gateways", "gateway-0", 0).is_none());
    }

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
        let sheet = recorder(&BTreeMap::new(), &[], 0.0, &[]).unwrap();
        let found = verdicts(&sheet);
        assert!(!found["one-rule"]);
        for name in ["hours", "overwrites", "years"] {
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
        let sheet = recorder(&measured, &[other], 0.0, &[]).unwrap();
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
        let sheet = ceph(&Beside::Measured(vec![curve]), 2e-3);
        let found = verdicts(&sheet);
        assert!(!found["linear"] && !found["doubles"]);
        for name in ["per-node", "linear-within", "more-osds"] {
            assert!(!found[name], "{name}");
        }
        for name in ["four-nodes", "twelve-nodes", "littles-law", "saturation"] {
            assert!(found[name], "{name}");
        }
        let text = crate::text::text(&sheet);
        for part in [
            "1 : 1.38 : 1.64",
            "1.59x at the peak",
            "390k with 16 OSDs, 363k with 96: -7%",
            "91k, 144k, 99k, 79k",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }
}
