//! The model on what is known: planted clusters, the published curves, and curves that show nothing.

use proptest::prelude::*;

use super::fit::{FitError, bootstrap, fit};
use super::*;
use crate::points::{Points, premises};

fn published() -> (Vec<MeasuredCurve>, Premises) {
    let points = Points::published();
    (
        points.curves(Source::Published),
        points.premises(Source::Published),
    )
}

/// The curve of a cluster whose truth is known.
fn planted(
    name: &str,
    values: &Values,
    configuration: Configuration,
    noise: impl Fn(usize) -> f64,
) -> MeasuredCurve {
    let network = network(values, &configuration, &premises());
    let readings = (0..9).map(|at| {
        let in_flight = f64::from(32u32 << at);
        let rate = network.rate(in_flight) * (1.0 + noise(at));
        Reading {
            in_flight,
            rate,
            latency: None,
        }
    });
    MeasuredCurve {
        name: name.to_owned(),
        configuration,
        readings: readings.collect(),
        source: Source::Measured,
    }
}

fn configuration(reactors: u32, bdevs_per_cluster: u32, nodes: u32) -> Configuration {
    Configuration {
        gateways: 4,
        reactors,
        bdevs_per_cluster,
        nodes,
        osds: nodes * 24,
    }
}

fn truth() -> Values {
    let mut values = Values::none();
    values.set(Parameter::Delay, 3e-4);
    values.set(Parameter::Reactor, 4e-5);
    values.set(Parameter::Host, 1.2e-4);
    values.set(Parameter::HostQueues, 40.0);
    values
}

#[test]
fn a_planted_cluster_is_found_and_a_configuration_that_was_not_measured_predicted() {
    let values = truth();
    let curves = [
        configuration(4, 32, 4),
        configuration(10, 2, 4),
        configuration(12, 1, 8),
    ]
    .into_iter()
    .enumerate()
    .map(|(at, of)| {
        let noise =
            |point: usize| [0.01, -0.008, 0.004, -0.01, 0.006, -0.003, 0.007][(4 * at + point) % 7];
        planted(&at.to_string(), &values, of, noise)
    })
    .collect::<Vec<_>>();
    let found = fit(&curves, &premises(), &[]).unwrap();
    assert!(
        (found.values.get(Parameter::Reactor) / 4e-5 - 1.0).abs() < 0.05,
        "{found:?}"
    );
    assert!(found.dropped.contains(&Parameter::Context), "{found:?}");
    let target = configuration(12, 1, 12);
    let rate = |values: &Values| network(values, &target, &premises()).rate(8192.0);
    assert!((rate(&found.values) / rate(&values) - 1.0).abs() < 0.04);
    let mut drawn: Vec<f64> = bootstrap(&curves, &premises(), 20, 1)
        .iter()
        .map(rate)
        .collect();
    drawn.sort_by(f64::total_cmp);
    assert!(
        drawn[0] < rate(&values) && rate(&values) < drawn[drawn.len() - 1],
        "{drawn:?}"
    );
    let again: Vec<f64> = bootstrap(&curves, &premises(), 20, 1)
        .iter()
        .map(rate)
        .collect();
    let mut again = again;
    again.sort_by(f64::total_cmp);
    assert_eq!(drawn, again, "the same seed draws the same");
}

#[test]
fn what_shows_nothing_is_refused() {
    assert_eq!(fit(&[], &premises(), &[]), Err(FitError::Nothing));
    let (mut curves, premises) = published();
    curves.truncate(1);
    // Far from saturation every station explains a latency as well as any other.
    curves[0].readings.truncate(2);
    let refused = fit(&curves, &premises, &[]).unwrap_err();
    assert!(matches!(refused, FitError::TooFew { .. }), "{refused}");
    let flat = MeasuredCurve {
        readings: (0..9)
            .map(|at| {
                let in_flight = f64::from(32u32 << at);
                Reading {
                    in_flight,
                    rate: in_flight / 1e-3,
                    latency: None,
                }
            })
            .collect(),
        ..curves[0].clone()
    };
    let refused = fit(&[flat], &premises, &[]).unwrap_err();
    assert!(
        matches!(refused, FitError::Unidentified { .. }),
        "{refused}"
    );
    let mut wrong = published().0;
    wrong[1].configuration.nodes = 0;
    assert!(matches!(
        fit(&wrong, &premises, &[]),
        Err(FitError::Senseless { .. })
    ));
}

#[test]
fn the_published_12_nodes_follow_from_the_other_curves() {
    let (curves, premises) = published();
    let (seen, held) = curves.split_at(3);
    let found = fit(seen, &premises, &[]).unwrap();
    let network = network(&found.values, &held[0].configuration, &premises);
    let peak = network.rate(held[0].in_flight_max()) / held[0].peak() - 1.0;
    let within =
        network.rate_within(2e-3, 8192.0).unwrap() / held[0].rate_within(2e-3).unwrap() - 1.0;
    assert!(peak.abs() < 0.10, "{peak}");
    // The bar of bench/plan is 0.10, and the model is short of it (docs/plans.md).
    assert!((-0.13..-0.09).contains(&within), "{within}");
    // Fewer parameters than curves have bends: a model that passed through its points would have no error.
    assert!(found.found.len() <= 5 && found.error > 0.005, "{found:?}");
}

#[test]
fn targets_that_the_curves_do_not_show_are_refused() {
    let (curves, premises) = published();
    let request = |curves: Vec<MeasuredCurve>, target| Request {
        curves,
        premises,
        latency: 2e-3,
        targets: vec![target],
        wanted: None,
        held_out: Vec::new(),
        leave_out: false,
        samples: 0,
        seed: 1,
    };
    let one = plan(&request(curves[..1].to_vec(), configuration(4, 32, 8))).unwrap();
    assert!(one.answer.contains("refused"), "{}", one.answer);
    let all = plan(&request(curves.clone(), configuration(12, 1, 16))).unwrap();
    assert!(!all.answer.contains("refused"), "{}", all.answer);
    let other_ratio = Configuration {
        osds: 12,
        ..configuration(12, 1, 12)
    };
    let refused = plan(&request(curves.clone(), other_ratio)).unwrap();
    assert!(
        refused.answer.contains("OSDs of a node"),
        "{}",
        refused.answer
    );
    for (target, why) in [
        (
            Configuration {
                gateways: 8,
                ..configuration(12, 1, 12)
            },
            "other gateways than 4",
        ),
        (configuration(10, 32, 12), "change together"),
        (configuration(12, 1, 1000), "times beyond"),
    ] {
        let refused = plan(&request(curves.clone(), target)).unwrap();
        assert!(refused.answer.contains(why), "{}", refused.answer);
    }
    let mut quick = request(curves.clone(), configuration(12, 1, 12));
    quick.latency = 2e-4;
    let alone = plan(&quick).unwrap();
    assert!(
        alone.answer.contains("a single request takes"),
        "{}",
        alone.answer
    );
    quick.latency = 1.0;
    let deep = plan(&quick).unwrap();
    assert!(
        deep.answer.contains("in flight, not by the latency"),
        "{}",
        deep.answer
    );
    let mut unknown = request(curves, configuration(12, 1, 12));
    unknown.held_out = vec!["x".to_owned()];
    assert!(
        plan(&unknown)
            .unwrap_err()
            .to_string()
            .contains("4-default")
    );
}

#[test]
fn a_plan_says_what_binds_what_to_measure_and_which_designs_do() {
    let (curves, premises) = published();
    let request = Request {
        curves,
        premises,
        latency: 2e-3,
        targets: vec![configuration(12, 1, 16)],
        wanted: Some(600e3),
        held_out: vec!["12".to_owned()],
        leave_out: false,
        samples: 8,
        seed: 1,
    };
    let sheet = plan(&request).unwrap();
    assert_eq!(sheet.cell("binding", "binds", 0).unwrap().text, "reactors");
    assert!(
        sheet
            .cell("held-out", "peak-error", 0)
            .unwrap()
            .value
            .unwrap()
            .abs()
            < 0.1
    );
    let nodes = |column| sheet.cell("sizes", "nodes", column).unwrap().value.unwrap();
    assert!(nodes(0) >= 4.0);
    // Every curve has 4 gateways, and a node that is lost takes one with it.
    for text in [
        &sheet.cell("sizes", "nodes", 1).unwrap().text,
        &sheet.cell("sizes", "nodes", 2).unwrap().text,
        &sheet.cell("failures", "node", 0).unwrap().text,
        &sheet.cell("failures", "gateway", 0).unwrap().text,
    ] {
        assert!(
            text.contains("no curve has other gateways than 4"),
            "{text}"
        );
    }
    // Whether the truth lies in the interval is said, and so is what other premises give.
    let inside = &sheet.cell("held-out", "within-inside", 0).unwrap().text;
    assert!(inside == "yes" || inside == "no", "{inside}");
    let separate = sheet.cell("held-out", "peak-other-colocated", 0).unwrap();
    assert!(separate.value.unwrap() < -0.10, "{separate:?}");
    let interval = sheet.cell("held-out", "peak-predicted", 0).unwrap();
    let measured = sheet.cell("held-out", "peak", 0).unwrap().value.unwrap();
    assert!(
        interval.low.unwrap() <= measured * (1.0 + separate.value.unwrap()) * (1.0 + 1e-9),
        "the interval has what the other explanation says"
    );
    assert!(
        sheet.cell("law", "refused", 0).is_some(),
        "two numbers of nodes"
    );
    let (now, after) = ("deviation-now", "deviation-after");
    let deviation = |name| sheet.cell("next", name, 0).unwrap().value.unwrap();
    assert!(deviation(after) <= deviation(now));
    assert_eq!(
        plan(&request).unwrap(),
        sheet,
        "the same seed gives the same plan"
    );
}

proptest! {
    #[test]
    fn more_of_anything_is_never_slower(reactors in 1u32..32, nodes in 4u32..32, in_flight in 32.0f64..8192.0) {
        let values = truth();
        let rate = |of: Configuration| network(&values, &of, &premises()).rate(in_flight);
        let base = rate(configuration(reactors, 1, nodes));
        prop_assert!(rate(configuration(reactors + 1, 1, nodes)) >= base * (1.0 - 1e-9));
        prop_assert!(rate(configuration(reactors, 1, nodes + 1)) >= base * (1.0 - 1e-9));
    }
}

#[test]
fn a_latency_is_no_reading_of_its_own() {
    let (mut curves, premises) = published();
    let with = fit(&curves[..3], &premises, &[]).unwrap();
    assert_eq!(with.readings, 25, "one of each point");
    for reading in curves.iter_mut().flat_map(|of| &mut of.readings) {
        reading.latency = None;
    }
    let without = fit(&curves[..3], &premises, &[]).unwrap();
    assert_eq!(with, without, "a curve of weir curve weighs the same");
}
