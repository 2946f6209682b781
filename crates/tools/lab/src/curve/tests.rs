//! Curves of devices whose knee is known.

use super::*;
use crate::model::{Device, Model, now};

const SPREAD: Spread = Spread {
    volumes: 1,
    queues: 1,
    hosts: 1,
};

fn config(steps: Steps) -> CurveConfig {
    CurveConfig {
        side: 0,
        steps,
        spread: SPREAD,
        bound: None,
        objectives: Vec::new(),
        refine: true,
        seed: 5,
    }
}

fn doubling(last: u32) -> Steps {
    let depths = std::iter::successors(Some(1), |depth| Some(depth * 2));
    Steps::Depths(depths.take_while(|&depth| depth <= last).collect())
}

fn tens(arrivals: Arrivals) -> Steps {
    Steps::Rates {
        percents: (1..=12).map(|ten| f64::from(ten * 10)).collect(),
        arrivals,
        depth_max: 512,
        maximum: None,
    }
}

fn measured(device: Device, config: &CurveConfig) -> Curve {
    let mut model = Model::new(vec![device], 1);
    now(measure(&mut model, config, |_| {})).unwrap()
}

fn near(value: f64, truth: f64, percent: f64) {
    let off = (value / truth - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{value} is {off:.1}% off {truth}");
}

fn servers(servers: usize) -> Device {
    Device {
        servers,
        service_seconds: 1e-3,
        random: true,
        delay_seconds: 0.0,
        collapses_beyond: None,
        fails_one_of: None,
    }
}

#[test]
fn the_knee_of_a_throttled_device_is_found_by_depth() {
    for (rate, delay) in [(10_000.0, 1e-3), (50_000.0, 0.7e-3), (3_000.0, 10e-3)] {
        let curve = measured(Device::throttled(rate, delay), &config(doubling(256)));
        let knee = curve.knee.unwrap();
        near(knee.outstanding, rate * delay + 1.0, 5.0);
        near(knee.rate, rate, 5.0);
        near(knee.rate_max, rate, 1.0);
        near(knee.latency_unloaded_ns, (delay + 1.0 / rate) * 1e9, 1.0);
        let past = curve.past_saturation.unwrap();
        assert!(past.throughput_held && past.errors == 0, "{past:?}");
    }
}

#[test]
fn the_knee_of_a_throttled_device_is_found_by_rate() {
    for (rate, delay) in [(10_000.0, 1e-3), (50_000.0, 0.7e-3), (3_000.0, 10e-3)] {
        let curve = measured(
            Device::throttled(rate, delay),
            &config(tens(Arrivals::Uniform)),
        );
        near(curve.maximum_rate.unwrap(), rate, 1.0);
        let knee = curve.knee.unwrap();
        near(knee.outstanding, rate * delay + 1.0, 5.0);
        near(knee.rate, rate, 5.0);
        let past = curve.past_saturation.unwrap();
        assert!(past.throughput_held && past.points >= 2, "{past:?}");
    }
}

/// A device of 200 requests a second and 40 ms, for three seconds each, and a generator that is away for a while.
fn away(away: &[(u64, &[f64])]) -> Model {
    let mut model = Model::new(vec![Device::throttled(200.0, 40e-3)], 1);
    model.seconds = 3.0;
    model.away = (away.iter().map(|(rate, each)| (*rate, each.to_vec()))).collect();
    model
}

/// Twelve tenths of a little more than the device does, evenly spread.
fn even(depth_max: u32) -> CurveConfig {
    config(Steps::Rates {
        percents: (1..=12).map(|ten| f64::from(ten * 10)).collect(),
        arrivals: Arrivals::Uniform,
        depth_max,
        maximum: Some(204.0),
    })
}

fn disturbed(seconds: &[(u64, &[f64])]) -> (Curve, Vec<Request>) {
    let mut model = away(seconds);
    let curve = now(measure(&mut model, &even(512), |_| {})).unwrap();
    (curve, model.requests)
}

/// How often each load was measured again.
fn repeats(curve: &Curve) -> Vec<(u64, usize)> {
    let points = curve.points.iter();
    points
        .filter(|point| !point.left_out.is_empty())
        .map(|point| (point.offered as u64, point.left_out.len()))
        .collect()
}

/// Without measuring again the knee is 11% too low here.
#[test]
fn a_late_generator_moves_no_knee() {
    let (curve, requests) = disturbed(&[(184, &[0.2]), (194, &[0.002, 0.06]), (199, &[0.08])]);
    near(curve.knee.as_ref().unwrap().rate, 200.0, 3.0);
    assert_eq!(repeats(&curve), [(184, 1), (194, 1), (199, 1)]);
    let point = curve
        .points
        .iter()
        .find(|of| of.offered as u64 == 194)
        .unwrap();
    assert!(point.refinement);
    let [left_out] = &point.left_out[..] else {
        panic!("{:?}", point.left_out)
    };
    // The later run is the one that is left out.
    assert!(
        left_out.late_ns_max.abs_diff(60_000_000) < 6_000_000,
        "{left_out:?}"
    );
    assert!(left_out.mean_ns.unwrap() > point.run.felt().unwrap().unwrap().mean_ns * 1.1);
    assert!(late_ns_max(&point.run) <= 2_100_000);
    let seeds: std::collections::BTreeSet<u64> = requests.iter().map(|of| of.seed).collect();
    assert_eq!(seeds.len(), requests.len());
}

#[test]
fn what_a_late_generator_hardly_changes_is_not_measured_again() {
    let (curve, _) = disturbed(&[(184, &[0.015]), (194, &[0.005]), (199, &[0.005])]);
    near(curve.knee.as_ref().unwrap().rate, 200.0, 3.0);
    assert_eq!(repeats(&curve), []);
}

/// What waits because the depth is full waits for the volume.
#[test]
fn what_waits_for_room_is_not_measured_again() {
    let mut config = even(9);
    config.objectives = vec!["mean<60ms".parse().unwrap()];
    let curve = now(measure(&mut away(&[]), &config, |_| {})).unwrap();
    let lag = |point: &Point| point.run.lag.as_ref().unwrap().max_ns;
    let beyond = curve.points.iter().filter(|of| of.offered > 210.0);
    assert!(beyond.clone().count() >= 2 && beyond.clone().all(|of| lag(of) > 100_000_000));
    assert_eq!(repeats(&curve), []);
}

/// A second run replaces the first neither where requests of it failed nor where it came to nothing.
#[test]
fn a_run_that_fails_replaces_none() {
    let late: (u64, &[f64]) = (184, &[0.1, 0.2]);
    let mut model = away(&[late]);
    // After the twelve points of the sweep.
    model.idle.insert(12);
    let curve = now(measure(&mut model, &even(512), |_| {})).unwrap();
    let point = curve.points.iter().find(|of| of.offered == 184.0).unwrap();
    assert_eq!((point.run.errors(), point.left_out.len()), (0, 2));
    let errors: Vec<bool> = point.left_out.iter().map(|of| of.errors > 0).collect();
    assert_eq!(errors, [true, false]);
    assert!(late_ns_max(&point.run) < 1_000_000);

    let mut model = away(&[late]);
    model.lost_at = Some(12);
    let curve = now(measure(&mut model, &even(512), |_| {})).unwrap();
    let [failure] = &curve.failures[..] else {
        panic!("{:?}", curve.failures)
    };
    assert_eq!(
        (&*failure.point, &*failure.reason),
        ("90.2%, run 2", "the volume is lost")
    );
    assert_eq!((curve.points.len(), repeats(&curve)), (12, vec![]));
}

#[test]
fn a_late_generator_ends_no_curve() {
    let late: (u64, &[f64]) = (102, &[0.001, 0.5]);
    let mut config = even(512);
    config.bound = Some("p99<150ms".parse().unwrap());
    let curve = now(measure(&mut away(&[late]), &config, |_| {})).unwrap();
    assert!(curve.points.iter().any(|of| of.offered == 204.0));
    assert_eq!(repeats(&curve)[0], (102, 1));
    assert!(curve.stopped.starts_with("109.8%"), "{}", curve.stopped);
    config.refine = false;
    let curve = now(measure(&mut away(&[late]), &config, |_| {})).unwrap();
    assert!(curve.stopped.starts_with("50%"), "{}", curve.stopped);
    assert_eq!(repeats(&curve), []);
}

/// Where it is late always, the least late run of each point is what there is.
#[test]
fn points_are_measured_again_a_few_times_only() {
    let always: &[f64] = &[0.25, 0.2, 0.3, 0.2];
    let rates: Vec<(u64, &[f64])> = (20..250).map(|rate| (rate, always)).collect();
    let (curve, _) = disturbed(&rates);
    let repeats = repeats(&curve);
    assert!(
        repeats
            .iter()
            .all(|&(_, times)| times <= REPEATS_OF_POINT_MAX)
    );
    let sum: usize = repeats.iter().map(|&(_, times)| times).sum();
    assert!((2..=REPEATS_MAX as usize).contains(&sum), "{repeats:?}");
    for point in curve.points.iter().filter(|of| !of.left_out.is_empty()) {
        let shown = late_ns_max(&point.run);
        assert!(point.left_out.iter().all(|of| of.late_ns_max >= shown));
    }
}

/// With random arrivals a queue forms before the maximum. The truth is that of M/D/1 (Pollaczek and Khinchine), with a delay behind it.
#[test]
fn random_arrivals_have_their_knee_earlier() {
    let (rate, delay) = (20_000.0, 0.5e-3);
    let mut model = Model::new(vec![Device::throttled(rate, delay)], 1);
    model.seconds = 10.0;
    let config = config(tens(Arrivals::Exponential));
    let curve = now(measure(&mut model, &config, |_| {})).unwrap();
    // No point, and no step of the search for the maximum, finds in a cache what an earlier one read.
    let seeds: std::collections::BTreeSet<u64> = model.requests.iter().map(|of| of.seed).collect();
    assert_eq!(seeds.len(), model.requests.len());
    let service = 1.0 / rate;
    let in_flight =
        |load: f64| load * rate * (service + delay + service * load / (2.0 * (1.0 - load)));
    let (mut low, mut high) = (0.0, 0.999);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if in_flight(middle) < rate * (service + delay) {
            low = middle;
        } else {
            high = middle;
        }
    }
    near(curve.knee.unwrap().rate, low * rate, 5.0);
}

#[test]
fn the_knee_of_several_servers_is_their_number() {
    for count in [1, 4, 16] {
        let mut model = Model::new(vec![servers(count)], 1);
        model.seconds = 10.0;
        let curve = now(measure(&mut model, &config(doubling(256)), |_| {})).unwrap();
        let knee = curve.knee.unwrap();
        near(knee.outstanding, count as f64, 5.0);
        near(knee.rate_max, count as f64 * 1e3, 3.0);
    }
}

#[test]
fn points_are_in_order_and_added_only_where_wanted() {
    let device = || Device::throttled(10_000.0, 1e-3);
    let mut plain = config(doubling(64));
    plain.refine = false;
    let curve = measured(device(), &plain);
    let offered: Vec<f64> = curve.points.iter().map(|point| point.offered).collect();
    assert_eq!(offered, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
    assert!(curve.points.iter().all(|point| !point.refinement));
    plain.refine = true;
    let curve = measured(device(), &plain);
    let added: Vec<_> = curve.points.iter().filter(|of| of.refinement).collect();
    assert_eq!(added.len(), 1);
    assert_eq!(added[0].offered, 11.0);
    assert_eq!(added[0].run.name, "depth 11");
    assert!(curve.points.is_sorted_by_key(|of| of.offered as u64));
}

/// A point is what was offered, and not what could not be: three volumes are offered three requests a second at least.
#[test]
fn each_volume_is_offered_a_request_a_second_at_least() {
    let mut config = config(Steps::Rates {
        percents: vec![10.0, 20.0, 30.0, 50.0, 100.0],
        arrivals: Arrivals::Uniform,
        depth_max: 8,
        maximum: Some(10.0),
    });
    config.spread.volumes = 3;
    let curve = measured(Device::throttled(10_000.0, 1e-3), &config);
    let points: Vec<_> = curve
        .points
        .iter()
        .filter(|point| !point.refinement)
        .map(|point| (point.offered, &*point.run.name))
        .collect();
    assert_eq!(points, [(3.0, "30%"), (5.0, "50%"), (10.0, "100%")]);
    assert!(curve.points.iter().all(|point| point.offered >= 3.0));
}

#[test]
fn outstanding_requests_are_spread_over_the_queues() {
    let mut config = config(Steps::Depths(vec![1, 8, 64]));
    config.spread = Spread {
        volumes: 1,
        queues: 4,
        hosts: 2,
    };
    let mut model = Model::new(vec![Device::throttled(10_000.0, 1e-3)], 1);
    let curve = now(measure(&mut model, &config, |_| {})).unwrap();
    assert_eq!(
        model.requests[1].load,
        Load::Closed {
            depth: 8,
            queues: 4,
            hosts: 2
        }
    );
    // 11 are the knee, and 12 the nearest that four queues share evenly.
    let offered: Vec<f64> = curve.points.iter().map(|point| point.offered).collect();
    assert_eq!(offered, [4.0, 12.0, 32.0, 256.0]);
}

#[test]
fn an_objective_is_found_to_two_per_cent() {
    let rate = 10_000.0;
    for steps in [tens(Arrivals::Exponential), doubling(512)] {
        let by_depth = matches!(steps, Steps::Depths(_));
        let mut config = config(steps);
        config.objectives = vec!["mean<2ms".parse().unwrap(), "max<1us".parse().unwrap()];
        let curve = measured(Device::throttled(rate, 1.5e-3), &config);
        let [reachable, not] = &curve.objectives[..] else {
            panic!("{:?}", curve.objectives)
        };
        assert_eq!(reachable.objective, "mean<2ms");
        let (held, broken) = (reachable.rate.unwrap(), reachable.broken_rate.unwrap());
        assert!(reachable.value_ns.unwrap() < 2e6);
        // 0.4 ms of waiting: load / (2 (1 - load)) = 4, so that the load is 8/9; by depth it is reached at the maximum.
        let truth = if by_depth { rate } else { rate * 8.0 / 9.0 };
        near(held, truth, 3.0);
        assert!(broken >= held * 0.99, "{held} {broken}");
        assert_eq!((not.rate, not.value_ns), (None, None));
        assert!(not.broken_rate.is_some());
    }
}

#[test]
fn a_bound_ends_the_curve() {
    let mut config = config(doubling(1 << 12));
    config.bound = Some("p99<5ms".parse().unwrap());
    let curve = measured(Device::throttled(10_000.0, 1e-3), &config);
    assert_eq!(curve.points.last().unwrap().offered, 64.0);
    assert_eq!(curve.stopped, "depth 64 does not hold p99<5ms");
    config.bound = None;
    config.steps = doubling(64);
    let curve = measured(Device::throttled(10_000.0, 1e-3), &config);
    assert_eq!(curve.stopped, "all that was asked for was measured");
}

#[test]
fn what_collapses_past_saturation_is_said_to() {
    let mut device = Device::throttled(10_000.0, 1e-3);
    device.collapses_beyond = Some(40);
    let curve = measured(device, &config(doubling(256)));
    let past = curve.past_saturation.unwrap();
    assert!(
        !past.throughput_held && past.throughput_percent < 40.0,
        "{past:?}"
    );
    near(curve.knee.unwrap().outstanding, 11.0, 5.0);
}

#[test]
fn a_curve_that_is_stopped_has_what_was_measured() {
    let mut model = Model::new(vec![Device::throttled(10_000.0, 1e-3)], 1);
    model.stop_after = Some(3);
    let mut steps = Vec::new();
    let curve = now(measure(&mut model, &config(doubling(256)), |step| {
        if let Step::Begins { done, planned, .. } = step {
            steps.push((done, planned));
        }
    }))
    .unwrap();
    assert_eq!(curve.points.len(), 3);
    assert_eq!(curve.stopped, "it was asked to end");
    assert_eq!(curve.knee, None);
    assert_eq!(steps, [(0, 9), (1, 9), (2, 9)]);
}

/// Also where the last point was being measured, and where a run that was only being prepared came to nothing.
#[test]
fn whatever_was_being_done_when_it_was_stopped_it_was_asked_to_end() {
    for (lost_at, points) in [(None, 3), (Some(2), 2)] {
        let mut model = Model::new(vec![Device::throttled(10_000.0, 1e-3)], 1);
        model.stop_after = Some(3);
        model.lost_at = lost_at;
        let curve = now(measure(&mut model, &config(doubling(4)), |_| {})).unwrap();
        assert_eq!((curve.points.len(), curve.failures.len()), (points, 0));
        assert_eq!(curve.stopped, "it was asked to end");
    }
}

/// A volume that ends in the middle costs the points behind it, and none before.
#[test]
fn a_point_that_cannot_be_measured_ends_the_curve_and_loses_no_other() {
    for lost in [false, true] {
        let mut model = Model::new(vec![Device::throttled(10_000.0, 1e-3)], 1);
        match lost {
            true => model.lost_at = Some(5),
            false => drop(model.idle.insert(5)),
        }
        let mut config = config(doubling(256));
        config.bound = Some("p99<20s".parse().unwrap());
        config.objectives = vec!["p99<10s".parse().unwrap()];
        let curve = now(measure(&mut model, &config, |_| {})).unwrap();
        let [failure] = &curve.failures[..] else {
            panic!("{:?}", curve.failures)
        };
        assert_eq!(
            (failure.point.as_str(), failure.offered),
            ("depth 32", 32.0)
        );
        assert_eq!(curve.stopped, "depth 32 could not be measured");
        let offered: Vec<f64> = curve.points.iter().map(|point| point.offered).collect();
        if lost {
            assert_eq!(failure.reason, "the volume is lost");
            assert_eq!(offered, [1.0, 2.0, 4.0, 8.0, 16.0]);
        } else {
            assert_eq!(failure.reason, "no request succeeded: the medium failed");
            // What failed was asked for, and is counted.
            assert_eq!(offered, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
            assert!(curve.points[5].run.errors() > 0);
            assert_eq!(curve.objectives[0].broken_rate, Some(0.0));
        }
        assert!(curve.objectives[0].rate.unwrap() > 9_000.0);
        assert_eq!(model.requests.len(), 6, "nothing is asked of it afterwards");
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), curve);
    }
}

#[test]
fn a_refinement_that_fails_loses_no_point() {
    let mut model = Model::new(vec![Device::throttled(10_000.0, 1e-3)], 1);
    model.lost_at = Some(7);
    let curve = now(measure(&mut model, &config(doubling(64)), |_| {})).unwrap();
    assert_eq!(curve.points.len(), 7);
    assert_eq!(curve.failures[0].point, "depth 11");
    assert!(curve.knee.is_some());
}

/// A maximum that was given and is too low is passed without saturating anything.
#[test]
fn nothing_is_said_to_be_past_saturation_where_nothing_saturated() {
    for (maximum, saturates) in [(1_000.0, false), (10_000.0, true), (50_000.0, true)] {
        let mut config = config(Steps::Rates {
            percents: (1..=16).map(|ten| f64::from(ten * 10)).collect(),
            arrivals: Arrivals::Uniform,
            depth_max: 512,
            maximum: Some(maximum),
        });
        config.refine = false;
        let curve = measured(Device::throttled(10_000.0, 1e-3), &config);
        let past = curve.past_saturation;
        assert_eq!(past.is_some(), saturates, "{maximum}: {past:?}");
        assert!(past.is_none_or(|past| past.throughput_held), "{maximum}");
    }
}

#[test]
fn what_fails_is_told() {
    let mut model = Model::new(Vec::new(), 1);
    let error = now(measure(&mut model, &config(doubling(4)), |_| {})).unwrap_err();
    assert_eq!(error.to_string(), "there is no side 0");
}
