//! Tests of the article on two protocols: its arithmetic, and where each figure comes from.

use std::collections::BTreeMap;

use weir_lab::document::{Arrivals, Comparison, Difference, Load, Metric, Stage, Verdict};

use super::*;

fn verdicts(sheet: &Sheet) -> BTreeMap<String, bool> {
    let section = sheet
        .sections
        .iter()
        .find(|of| of.name == "checks")
        .unwrap();
    let rows = section.rows.iter();
    rows.map(|row| (row.name.clone(), row.cells[1].value == Some(1.0)))
        .collect()
}

#[test]
fn the_articles_contradictions_follow_from_its_figures() {
    let sheet = vsphere(&Measured::new());
    let expected = [
        ("equal-load-4k-random-read", false),
        ("equal-load-64k-sequential-read", false),
        ("size", true),
        ("transport", false),
    ];
    let expected = expected.map(|(name, agrees)| (name.to_owned(), agrees));
    assert_eq!(verdicts(&sheet), BTreeMap::from(expected));
    let text = crate::text::text(&sheet);
    for part in [
        "1.146 x 0.786 = 0.901",
        "1.813 x 0.632 = 1.146",
        "goes with +27.2% of throughput, and not with +14.6%",
        "goes with +58.2% of throughput, and not with +81.3%",
        "80% x 1.813 = 145%, more than iSCSI can",
        "4.59 against 1.15",
        "-80.0% or more, -78.2% at most in",
        "27.6 Gb/s of 50",
        "By its own figures 3 of 4 things",
        "no sentence is quoted",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

/// A published figure is never told as ours, nor one of ours as published.
#[test]
fn each_figure_says_where_it_comes_from() {
    let article = protocols();
    let sheet = vsphere(&Measured::new());
    let section = sheet
        .sections
        .iter()
        .find(|of| of.name == "differences")
        .unwrap();
    for (row, of) in section.rows.iter().zip(&article.differences) {
        let [throughput, latency, less, in_flight] = &row.cells[..] else {
            panic!("{row:?}");
        };
        assert_eq!(
            (throughput.value, throughput.source),
            (of.throughput_percent, Source::Published)
        );
        assert_eq!(
            (latency.value, latency.source),
            (Some(of.latency_percent), Source::Published)
        );
        assert_eq!(
            (less.source, in_flight.source),
            (Source::Derived, Source::Derived)
        );
    }
    for (name, source) in [
        ("setup", Source::Published),
        ("checks", Source::Derived),
        ("consequences", Source::Derived),
    ] {
        let section = sheet.sections.iter().find(|of| of.name == name).unwrap();
        let mut cells = section.rows.iter().flat_map(|row| &row.cells);
        assert!(cells.all(|cell| cell.source == source), "{name}");
    }
}

/// The checks follow the figures: with other figures they say otherwise.
#[test]
fn figures_that_agree_are_told_to_agree() {
    let mut article = protocols();
    for of in &mut article.differences {
        of.throughput_percent = of.throughput_percent.map(|_| 0.0);
        of.latency_percent = 0.0;
    }
    article.setup.machines = 9;
    let wrong: Vec<String> = (checks(&article).into_iter())
        .filter(|of| !of.agrees)
        .map(|of| of.name.into_owned())
        .collect();
    assert_eq!(wrong, ["size", "transport"]);
}

/// A comparison whose stages differ by so many percent.
fn comparison(percents: [f64; 3]) -> Comparison {
    let difference = |metric, percent: f64, verdict| Difference {
        side: 1,
        metric,
        baseline: 100.0,
        value: 100.0 + percent,
        percent,
        percent_low: percent - 1.0,
        percent_high: percent + 1.0,
        verdict,
        reason: None,
    };
    let stage = |(at, percent): (usize, f64)| Stage {
        name: String::new(),
        loads: vec![
            Load::Open {
                rate: 5000.0,
                arrivals: Arrivals::Exponential,
                depth_max: 8,
                queues: 1,
                hosts: 1,
            };
            2
        ],
        rounds: Vec::new(),
        differences: vec![
            match at {
                0 => difference(Metric::Throughput, 0.0, Verdict::Fixed),
                _ => difference(Metric::Throughput, percent, Verdict::Better),
            },
            difference(Metric::LatencyMean, -percent, Verdict::Better),
            difference(Metric::LatencyP99, 0.0, Verdict::Unknown),
        ],
    };
    Comparison {
        sides: Vec::new(),
        stages: percents.into_iter().enumerate().map(stage).collect(),
        confidence_percent: 99.0,
        least_difference_percent: 1.0,
        summary: "B is better".to_owned(),
    }
}

#[test]
fn what_was_measured_stands_beside_what_was_published() {
    let one = comparison([30.0, 20.0, 10.0]);
    let measured = Measured::from([("sql-90-10".to_owned(), one)]);
    let sheet = vsphere(&measured);
    let text = |section, row, at| sheet.cell(section, row, at).unwrap().text.clone();
    assert_eq!(
        text("differences", "sql-90-10-at-100", 4),
        "+10.0% (+9.00% to +11.00%)"
    );
    assert_eq!(
        text("differences", "sql-90-10-at-80", 5),
        "-20.0% (-21.00% to -19.00%)"
    );
    assert_eq!(text("differences", "oracle-90-10-at-80", 4), "not run");
    assert_eq!(
        sheet
            .cell("differences", "sql-90-10-at-80", 5)
            .unwrap()
            .source,
        Source::Measured
    );
    assert_eq!(text("equal-rate", "equal-rate-sql-90-10", 0), "5,000 IOPS");
    assert_eq!(
        text("equal-rate", "equal-rate-sql-90-10", 1),
        "-30.0% (-31.00% to -29.00%)"
    );
    assert_eq!(text("equal-rate", "equal-rate-sql-90-10", 2), "unknown");
    assert!(
        sheet
            .caveats
            .iter()
            .any(|of| of == "sql-90-10: B is better")
    );
    let none = vsphere(&Measured::new());
    assert!(none.cell("equal-rate", "equal-rate-sql-90-10", 0).is_none());
    assert!(none.cell("differences", "sql-90-10-at-80", 4).is_none());
}
