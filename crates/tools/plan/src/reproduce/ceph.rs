//! The article on Ceph's NVMe/TCP gateway: its curves beside what was measured or predicted, and what it says against them.

use super::checks::{Check, Word, agree, check_section, disagreements};
use super::{absent, number};
use crate::cluster::MeasuredCurve;
use crate::points::Points;
use crate::sheet::{Cell, Chart, Quantity, Row, Section, Sheet, Source};
use crate::units::percent_text;

/// Figures that stand beside the published curves of Ceph's gateway.
pub enum Beside {
    /// Curves that were measured, of one target or of one gateway after the other: one at least.
    Measured(Vec<MeasuredCurve>),
    /// Predictions of the model for each published curve from the others.
    Predicted(Box<Sheet>),
}

/// The caveat of gains from single curves.
const ONE_CURVE_EACH: &str = "Gateways: one curve each, one after the other, with clients on the same machine: a gain that is no larger than what the machine's speed wanders by is none; weir compare tells which.";

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
        Beside::Measured(measured) => {
            if measured.len() > 1 {
                let gateways = gateways_section(measured, &Curves::of(&curves), latency);
                sheet.sections.push(gateways);
                sheet.caveats.push(ONE_CURVE_EACH.to_owned());
            }
            sheet.sections.push(measured_section(measured, &curves));
            sheet.charts.push(chart(&curves, measured));
            for caveat in measured.iter().flat_map(MeasuredCurve::caveats) {
                if !sheet.caveats.contains(&caveat) {
                    sheet.caveats.push(caveat);
                }
            }
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
            each("per-node", "Highest rate for each node", &|of| {
                iops(of.peak() / nodes(of), Source::Derived)
            }),
        ],
    }
}

/// Gains of the measured gateways over the first, beside the gain of the article's tuning.
fn gateways_section(measured: &[MeasuredCurve], of: &Curves<'_>, latency: f64) -> Section {
    let row = |name: String, label: &str, curve: &MeasuredCurve, first: &MeasuredCurve| {
        let rate = |rate: Option<f64>, source| {
            rate.map_or_else(
                || Cell::word("not crossed", source),
                |rate| iops(rate, source),
            )
        };
        let gain = |rate: Option<f64>, of: Option<f64>| match (rate, of) {
            (Some(rate), Some(of)) => {
                let gain = rate / of;
                Cell::new(gain, format!("{}x", number(gain, 2)), Source::Derived)
            }
            _ => Cell::word("-", Source::Derived),
        };
        let within = curve.rate_within(latency);
        let cells = vec![
            rate(Some(curve.peak()), curve.source),
            gain(Some(curve.peak()), Some(first.peak())),
            rate(within, Source::Derived),
            gain(within, first.rate_within(latency)),
        ];
        Row::new(name, label, "", cells)
    };
    let mut rows: Vec<Row> = (measured.iter().enumerate())
        .map(|(at, curve)| row(format!("gateway-{at}"), &curve.name, curve, &measured[0]))
        .collect();
    let label = "published: 4 nodes, tuned against defaults";
    rows.push(row(
        "published-tuning".to_owned(),
        label,
        of.tuned,
        of.default,
    ));
    let milliseconds = weir_report::words::latency(latency * 1e9);
    Section {
        name: "gateways".to_owned(),
        title: "Gateways, and what each gains on the first".to_owned(),
        words: String::new(),
        columns: vec![
            "highest rate".to_owned(),
            "of the first's".to_owned(),
            format!("rate at {milliseconds}"),
            "of the first's".to_owned(),
        ],
        rows,
    }
}

fn measured_section(measured: &[MeasuredCurve], published: &[MeasuredCurve]) -> Section {
    let mut in_flight: Vec<f64> = (measured.iter())
        .flat_map(|curve| curve.readings.iter().map(|of| of.in_flight))
        .collect();
    in_flight.sort_by(f64::total_cmp);
    in_flight.dedup();
    let part = |rate: Option<f64>, of: f64, source| {
        rate.map_or_else(
            || Cell::word("-", source),
            |rate| Cell::new(rate / of, percent_text(rate / of), source),
        )
    };
    let mut rows = Vec::new();
    for population in in_flight {
        let at = |of: &MeasuredCurve| {
            of.readings
                .iter()
                .find(|of| of.in_flight == population)
                .map(|of| of.rate)
        };
        let mut cells = Vec::new();
        for curve in measured {
            cells.push(at(curve).map_or_else(absent, |rate| iops(rate, curve.source)));
            cells.push(part(at(curve), curve.peak(), Source::Derived));
        }
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
    let columns = measured.iter().flat_map(|curve| {
        let name = match measured.len() {
            1 => "measured".to_owned(),
            _ => curve.name.clone(),
        };
        [name, "of its peak".to_owned()]
    });
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

fn chart(published: &[MeasuredCurve], measured: &[MeasuredCurve]) -> Chart {
    let series = published.iter().chain(measured).map(MeasuredCurve::series);
    Chart {
        title: "Mean latency against requests a second".to_owned(),
        x: Quantity::RequestsPerSecond,
        y: Quantity::LatencyNanoseconds,
        series: series.collect(),
    }
}

/// The four curves that the article shows.
struct Curves<'a> {
    default: &'a MeasuredCurve,
    tuned: &'a MeasuredCurve,
    eight: &'a MeasuredCurve,
    twelve: &'a MeasuredCurve,
}

impl<'a> Curves<'a> {
    fn of(curves: &'a [MeasuredCurve]) -> Self {
        let curve = |name: &str| {
            let found = curves.iter().find(|of| of.name == name);
            found.expect("the published data has it")
        };
        Curves {
            default: curve("4-default"),
            tuned: curve("4-tuned"),
            eight: curve("8"),
            twelve: curve("12"),
        }
    }

    fn all(&self) -> [&'a MeasuredCurve; 4] {
        [self.default, self.tuned, self.eight, self.twelve]
    }
}

fn thousand(rate: f64) -> String {
    format!("{}k", number(rate / 1e3, 0))
}

fn nodes(of: &MeasuredCurve) -> f64 {
    f64::from(of.configuration.nodes)
}

/// Statements of the article on rates, against the peaks of its curves and their rates within the latency.
fn ceph_checks(points: &Points, curves: &[MeasuredCurve], latency: f64) -> Vec<Check> {
    let of = Curves::of(curves);
    let quote = |name: &str| format!("\"{}\"", points.quotes.get(name).map_or("", |of| of));
    let milliseconds = weir_report::words::latency(latency * 1e9);
    let within = |of: &MeasuredCurve| of.rate_within(latency).unwrap_or(f64::NAN);
    let peak = MeasuredCurve::peak;
    let mut checks = vec![
        linear_check(
            "linear",
            format!("peaks, as nodes and drives are added: {}", quote("scaling")),
            &of,
            &peak,
        ),
        linear_check(
            "linear-within",
            format!(
                "rates at {milliseconds}, as nodes and drives are added: {}",
                quote("scaling")
            ),
            &of,
            &within,
        ),
        tuning_check(
            format!("tuning of 4 nodes: {}", quote("tuning")),
            &of,
            latency,
        ),
        Check {
            name: "four-nodes".into(),
            claim: format!("4 nodes: {}", quote("4-nodes")),
            figures: format!(
                "{} tuned, {} with defaults",
                thousand(of.tuned.peak()),
                thousand(of.default.peak())
            ),
            agrees: agree(Word::Over, 450e3, &[of.tuned.peak()]),
            arithmetic: format!(
                "the tuned curve's highest; {} of it is at a mean of {milliseconds} or less; with defaults it is not reached",
                thousand(within(of.tuned))
            ),
        },
        per_node_check(format!("each configuration: {}", quote("per-node")), &of),
        Check {
            name: "twelve-nodes".into(),
            claim: format!("12 nodes: {}", quote("12-nodes")),
            figures: thousand(of.twelve.peak()),
            agrees: agree(Word::Almost, 1e6, &[of.twelve.peak()]),
            arithmetic: format!(
                "{} of a million, at {}; at {milliseconds} it is {}",
                percent_text(of.twelve.peak() / 1e6),
                weir_report::words::latency(slowest(of.twelve) * 1e9),
                thousand(within(of.twelve))
            ),
        },
        littles_law_check(curves),
        saturation_check(
            format!("past saturation it {}", quote("saturation")),
            curves,
        ),
    ];
    checks.extend(drives_check(
        format!(
            "drives added behind default gateways: {}",
            quote("more-drives")
        ),
        points,
    ));
    checks
}

/// The latency of a curve's last point.
fn slowest(of: &MeasuredCurve) -> f64 {
    let last = of.readings.last();
    last.and_then(|of| of.latency).unwrap_or(0.0)
}

fn linear_check(
    name: &'static str,
    claim: String,
    of: &Curves<'_>,
    rate: &dyn Fn(&MeasuredCurve) -> f64,
) -> Check {
    let grown = [of.eight, of.twelve].map(|more| nodes(more) / nodes(of.tuned));
    let gained = [of.eight, of.twelve].map(|more| rate(more) / rate(of.tuned));
    let parts = [gained[0] / grown[0], gained[1] / grown[1]];
    Check {
        name: name.into(),
        claim,
        figures: format!(
            "1 : {} : {} for 1 : {} : {} nodes",
            number(gained[0], 2),
            number(gained[1], 2),
            number(grown[0], 0),
            number(grown[1], 0)
        ),
        agrees: agree(Word::About, 1.0, &parts),
        arithmetic: format!(
            "{}, {} and {}: {} of what is in proportion on 12 nodes, and reactors (10, 12, 12) and bdevs (2, 1, 1) changed as well",
            thousand(rate(of.tuned)),
            thousand(rate(of.eight)),
            thousand(rate(of.twelve)),
            percent_text(parts[1]),
        ),
    }
}

fn tuning_check(claim: String, of: &Curves<'_>, latency: f64) -> Check {
    let within = |of: &MeasuredCurve| of.rate_within(latency).unwrap_or(f64::NAN);
    let gained = of.tuned.peak() / of.default.peak();
    Check {
        name: "doubles".into(),
        claim,
        figures: format!(
            "{}x at the peak, {}x at {}",
            number(gained, 2),
            number(within(of.tuned) / within(of.default), 2),
            weir_report::words::latency(latency * 1e9)
        ),
        agrees: agree(Word::Almost, 2.0, &[gained]),
        arithmetic: format!(
            "{} / {}; {} / {}",
            thousand(of.tuned.peak()),
            thousand(of.default.peak()),
            thousand(within(of.tuned)),
            thousand(within(of.default))
        ),
    }
}

fn per_node_check(claim: String, of: &Curves<'_>) -> Check {
    const SAID: f64 = 100e3;
    let each = of.all().map(|of| of.peak() / nodes(of));
    let above = each.iter().filter(|of| **of > SAID).count();
    Check {
        name: "per-node".into(),
        claim,
        figures: format!(
            "{}: above 100k in {above} of {}",
            each.map(thousand).join(", "),
            each.len()
        ),
        agrees: agree(Word::Over, SAID, &each),
        arithmetic: of
            .all()
            .map(|of| format!("{}: {} / {}", of.name, thousand(of.peak()), nodes(of)))
            .join("; "),
    }
}

fn littles_law_check(curves: &[MeasuredCurve]) -> Check {
    let kept = |of: &crate::cluster::Reading| Some(of.rate * of.latency? / of.in_flight);
    let kept: Vec<f64> = (curves.iter())
        .flat_map(|curve| &curve.readings)
        .filter_map(kept)
        .collect();
    let off = kept.iter().map(|of| (of - 1.0).abs()).fold(0.0, f64::max);
    Check {
        name: "littles-law".into(),
        claim: "a closed loop of 32 clients at depths of 1 to 256".to_owned(),
        figures: format!("off by {} at most", percent_text(off)),
        agrees: agree(Word::Exactly, 1.0, &kept),
        arithmetic: "rate times latency of every point against 32 times its depth".to_owned(),
    }
}

fn saturation_check(claim: String, curves: &[MeasuredCurve]) -> Check {
    let last = |of: &MeasuredCurve| of.readings.last().map_or(0.0, |last| last.rate / of.peak());
    let held: Vec<f64> = curves.iter().map(last).collect();
    Check {
        name: "saturation".into(),
        claim,
        figures: format!(
            "at the greatest depth {} of the peak or more",
            percent_text(held.iter().copied().fold(f64::INFINITY, f64::min))
        ),
        agrees: agree(Word::About, 1.0, &held),
        arithmetic: "the last point of each curve against its highest".to_owned(),
    }
}

/// The peaks of default gateways by OSDs; none where the data has no two.
fn drives_check(claim: String, points: &Points) -> Option<Check> {
    let first = points.peaks.iter().min_by_key(|of| of.osds)?;
    let last = points.peaks.iter().max_by_key(|of| of.osds)?;
    let gained = last.iops / first.iops;
    let each = points.peaks.iter();
    let each = each.map(|of| format!("{} OSDs {}", of.osds, thousand(of.iops)));
    Some(Check {
        name: "more-osds".into(),
        claim,
        figures: format!(
            "{} with {} OSDs, {} with {}: {:+.0}%",
            thousand(first.iops),
            first.osds,
            thousand(last.iops),
            last.osds,
            (gained - 1.0) * 100.0
        ),
        agrees: agree(Word::LittleOver, 1.0, &[gained]),
        arithmetic: each.collect::<Vec<_>>().join(", "),
    })
}
