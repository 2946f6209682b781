//! Sweeps over settings whose truth is known.

use std::collections::BTreeMap;

use super::*;
use crate::document::Metric;
use crate::model::{Device, Model, now};
use crate::runner::Spread;

fn config(settings: &[&str], steps: Steps) -> SweepConfig {
    let setting = |name: &&str| SideConfig {
        name: (*name).to_owned(),
        volumes: Vec::new(),
        things: BTreeMap::new(),
        link_bytes_per_second: None,
        paths: Vec::new(),
    };
    SweepConfig {
        curve: CurveConfig {
            side: 0,
            steps,
            spread: Spread {
                volumes: 1,
                queues: 2,
                hosts: 1,
            },
            bound: None,
            objectives: Vec::new(),
            refine: true,
            seed: 9,
        },
        settings: settings.iter().map(setting).collect(),
        rounds: 8,
        confidence_percent: 99.0,
        least_difference_percent: 1.0,
    }
}

fn depths() -> Steps {
    Steps::Depths(vec![1, 2, 4, 8, 16, 32])
}

/// Settings of which each is so much faster, with noise of 1% from run to run, and a drift of 0.2% with every run.
fn noisy(faster: &[f64], seed: u64) -> Model {
    let device = |faster: &f64| Device::throttled(2_000.0 * faster, 2e-3);
    let mut model = Model::new(faster.iter().map(device).collect(), seed);
    model.noise = 0.01;
    model.trend = 0.002;
    model.seconds = 0.25;
    model
}

#[test]
fn the_best_setting_is_named_with_those_that_are_as_good() {
    let names = ["small", "large", "middle", "huge"];
    let mut model = noisy(&[0.7, 1.0, 0.85, 1.0], 4);
    let swept = now(measure(&mut model, &config(&names, depths()), |_| {})).unwrap();
    let curves: Vec<&str> = swept.curves.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(curves, names);
    let compared = swept.settings.unwrap();
    let mut best = [
        compared.sides[0].name.as_str(),
        compared.sides[1].name.as_str(),
    ];
    best.sort_unstable();
    assert_eq!(best, ["huge", "large"]);
    assert_eq!(
        (
            compared.sides[2].name.as_str(),
            compared.sides[3].name.as_str()
        ),
        ("middle", "small")
    );
    assert!(
        compared.summary.starts_with("the best is "),
        "{}",
        compared.summary
    );
    assert!(
        compared
            .summary
            .contains("no difference shown between it and"),
        "{}",
        compared.summary
    );
    let throughput = |side: u32| {
        let mut all = compared.stages[0].differences.iter();
        all.find(|of| of.side == side && of.metric == Metric::Throughput)
            .unwrap()
    };
    assert_eq!(throughput(1).verdict, Verdict::NoDifferenceShown);
    assert_eq!(throughput(3).verdict, Verdict::Worse);
    assert!(
        (throughput(3).percent + 30.0).abs() < 3.0,
        "{:?}",
        throughput(3)
    );
    // What is said of a side is what its own runs say, in whatever order they were made.
    let stage = &compared.stages[0];
    for round in &stage.rounds {
        assert!(
            round.runs[3].name.starts_with("small,"),
            "{}",
            round.runs[3].name
        );
    }
    assert_eq!(stage.rounds.len(), 8);
    // No run of the whole finds in a cache what another setting's read, but for those of one round.
    let seeds: std::collections::BTreeSet<u64> = model.requests.iter().map(|of| of.seed).collect();
    assert_eq!(seeds.len(), model.requests.len() - 8 * 3);
}

#[test]
fn settings_that_do_not_matter_show_no_difference() {
    let shown = (0..20)
        .filter(|&seed| {
            let mut model = noisy(&[1.0; 4], seed);
            let config = config(&["a", "b", "c", "d"], Steps::Depths(vec![32]));
            let swept = now(measure(&mut model, &config, |_| {})).unwrap();
            let summary = swept.settings.unwrap().summary;
            let shown = !summary.starts_with("no difference shown between ");
            if shown {
                println!("seed {seed}: {summary}");
            }
            shown
        })
        .count();
    assert!(shown <= 1, "{shown} of 20");
}

#[test]
fn settings_are_compared_at_a_depth_that_is_enough_for_each() {
    for (steps, expected) in [
        (depths(), 3..=4),
        (
            Steps::Rates {
                percents: vec![50.0, 90.0],
                arrivals: Arrivals::Uniform,
                depth_max: 64,
                maximum: None,
            },
            // Where the search for a maximum begins.
            8..=8,
        ),
    ] {
        let mut model = noisy(&[1.0, 0.5], 1);
        (model.noise, model.trend) = (0.0, 0.0);
        let swept = now(measure(&mut model, &config(&["a", "b"], steps), |_| {})).unwrap();
        // Five in flight keep the faster one just busy: three for each of two queues, or four, which are measured before.
        let outstanding = swept.settings.unwrap().stages[0].loads[0].outstanding();
        assert!(expected.contains(&(outstanding / 2)), "{outstanding}");
    }
}

#[test]
fn a_setting_that_cannot_be_measured_loses_no_other() {
    let mut model = noisy(&[1.0, 1.0], 1);
    model.lost_at = Some(7);
    let mut config = config(&["a", "b"], depths());
    config.curve.refine = false;
    let swept = now(measure(&mut model, &config, |_| {})).unwrap();
    assert_eq!(
        (swept.curves[0].points.len(), swept.curves[1].points.len()),
        (6, 1)
    );
    assert_eq!(swept.curves[1].failures[0].reason, "the volume is lost");
    assert_eq!(
        (swept.settings, swept.caveats[0].code.as_str()),
        (None, "settings-not-compared")
    );
    // Not even its first point.
    let mut model = noisy(&[1.0, 1.0], 1);
    model.lost_at = Some(6);
    let swept = now(measure(&mut model, &config, |_| {})).unwrap();
    assert_eq!(swept.curves[1].name, "b");
    assert!(swept.curves[1].points.is_empty() && !swept.curves[1].failures.is_empty());
    // Where there is none at all, there is no sweep.
    let mut model = Model::new(Vec::new(), 1);
    let error = now(measure(&mut model, &config, |_| {})).unwrap_err();
    assert_eq!(error.to_string(), "a: there is no side 0");
}

#[test]
fn a_sweep_that_is_stopped_has_what_was_measured() {
    let mut model = noisy(&[1.0, 1.0], 1);
    model.stop_after = Some(9);
    let swept = now(measure(&mut model, &config(&["a", "b"], depths()), |_| {})).unwrap();
    assert!(swept.curves[0].points.len() >= 6);
    assert!(swept.settings.is_none());
    assert_eq!(swept.caveats[0].code, "settings-not-compared");
}
