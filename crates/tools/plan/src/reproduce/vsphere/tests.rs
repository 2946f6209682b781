//! Tests of the article on two protocols: its arithmetic, and where each figure comes from.

use std::collections::BTreeMap;

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
    let sheet = vsphere();
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
    let sheet = vsphere();
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
