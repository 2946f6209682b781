//! Comparisons of devices whose difference is known.

use super::*;
use crate::document::{Operation, Operations};
use crate::model::{Device, Model, now};

fn side(name: &str) -> SideConfig {
    SideConfig {
        name: name.to_owned(),
        volumes: Vec::new(),
        things: BTreeMap::new(),
        link_bytes_per_second: None,
        paths: Vec::new(),
    }
}

fn config(rounds: u32) -> CompareConfig {
    CompareConfig {
        sides: vec![side("A"), side("B")],
        spread: Spread {
            volumes: 1,
            queues: 1,
            hosts: 1,
        },
        depth: None,
        depth_max: 256,
        rate: None,
        arrivals: Arrivals::Exponential,
        rounds,
        confidence_percent: 99.0,
        least_difference_percent: 1.0,
        seed: 3,
        processors: 2,
    }
}

fn device(faster: f64) -> Device {
    Device::throttled(2_000.0 * faster, 2e-3)
}

/// Noise of 1% from run to run, and a drift of 0.3% with every run.
fn noisy(faster: f64, seed: u64) -> Model {
    let mut model = Model::new(vec![device(1.0), device(faster)], seed);
    model.noise = 0.01;
    model.trend = 0.003;
    model.seconds = 0.25;
    model
}

fn compared(model: &mut Model, config: &CompareConfig) -> Compared {
    now(measure(model, config, |_| {})).unwrap()
}

fn is_shown(compared: &Compared) -> bool {
    let mut differences = compared
        .comparison
        .stages
        .iter()
        .flat_map(|stage| &stage.differences);
    differences.any(|of| matches!(of.verdict, Verdict::Better | Verdict::Worse))
}

fn of(compared: &Compared, stage: usize, metric: Metric) -> &Difference {
    let mut differences = compared.comparison.stages[stage].differences.iter();
    differences.find(|of| of.metric == metric).unwrap()
}

#[test]
fn the_same_thing_twice_shows_no_difference() {
    let shown = (0..20)
        .filter(|&seed| {
            let compared = compared(&mut noisy(1.0, seed), &config(8));
            if is_shown(&compared) {
                println!("seed {seed}: {}", compared.comparison.summary);
            }
            is_shown(&compared)
        })
        .count();
    assert!(shown <= 1, "{shown} of 20");
}

/// Other load that comes once in two rounds falls on whichever side is next.
#[test]
fn bursts_of_other_load_are_told_and_are_no_difference() {
    let (mut shown, mut told) = (0, 0);
    for seed in 0..20 {
        let mut model = noisy(1.0, seed);
        model.burst_every = 4;
        let compared = compared(&mut model, &CompareConfig { seed, ..config(16) });
        if is_shown(&compared) {
            println!("seed {seed}: {}", compared.comparison.summary);
        }
        shown += usize::from(is_shown(&compared));
        let is_told = compared.comparison.summary.contains("disturbed");
        assert_eq!(
            is_told,
            compared
                .caveats
                .iter()
                .any(|of| of.code == "unknown-difference")
        );
        told += usize::from(is_told);
    }
    assert!(
        shown <= 1 && told >= 19,
        "{shown} shown, {told} told, of 20"
    );
}

/// Each interval is as much surer as there are more of them.
#[test]
fn all_intervals_together_are_as_sure_as_is_asked() {
    let config = config(8);
    let pairs: Vec<Pair> = (0..8)
        .map(|round| Pair {
            baseline: 100.0,
            value: 100.0 + f64::from(round * round % 5),
            later: if round % 3 == 0 { -1.0 } else { 1.0 },
        })
        .collect();
    for intervals in [1, 9, 90] {
        let judge = Judge::of(&config, intervals);
        let found = judge.difference(1, Metric::Throughput, &pairs);
        let alone = difference(&pairs, 0.01 / intervals as f64).expect("there are ratios");
        assert!(
            (found.percent_low - alone.low * 100.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!(
            (found.percent_high - alone.high * 100.0).abs() < 1e-9,
            "{found:?}"
        );
    }
}

#[test]
fn three_per_cent_are_found() {
    let found = (100..120)
        .filter(|&seed| {
            let compared = compared(&mut noisy(1.03, seed), &config(16));
            let throughput = of(&compared, 2, Metric::Throughput);
            if throughput.verdict != Verdict::Better {
                println!("seed {seed}: {throughput:?}");
            }
            throughput.verdict == Verdict::Better
        })
        .count();
    assert!(found >= 19, "{found} of 20");
}

#[test]
fn each_stage_says_what_it_can() {
    let mut model = Model::new(vec![device(1.0), device(1.25)], 1);
    let compared = compared(&mut model, &config(8));
    let names: Vec<_> = compared
        .comparison
        .stages
        .iter()
        .map(|stage| stage.name.as_str())
        .collect();
    assert_eq!(names[1], "80% of each side's maximum");
    assert_eq!(names[2], "100%: each side's maximum");
    let maxima: Vec<_> = compared
        .comparison
        .sides
        .iter()
        .map(|side| side.maximum_rate.round())
        .collect();
    assert_eq!(maxima, [2_000.0, 2_500.0]);
    // The same rate on both: throughput says nothing, and what is less loaded answers sooner.
    let same = of(&compared, 0, Metric::Throughput);
    assert_eq!(same.verdict, Verdict::Fixed);
    assert!(
        compared.comparison.stages[0]
            .loads
            .iter()
            .all(|load| load.rate() == Some(1_000.0))
    );
    let latency = of(&compared, 0, Metric::LatencyMean);
    assert_eq!(latency.verdict, Verdict::Better);
    assert!(latency.percent < 0.0 && latency.percent_high < 0.0);
    // At 80% of each the throughput differs as the maxima do.
    let part = of(&compared, 1, Metric::Throughput);
    assert_eq!(part.verdict, Verdict::Better);
    assert!((part.percent - 25.0).abs() < 1.0, "{part:?}");
    assert!((part.value / part.baseline - 1.25).abs() < 0.02, "{part:?}");
    let full = of(&compared, 2, Metric::Throughput);
    assert!((full.percent - 25.0).abs() < 1.0, "{full:?}");
    assert!(
        compared.comparison.summary.contains("throughput +25"),
        "{}",
        compared.comparison.summary
    );
}

#[test]
fn rounds_are_in_drawn_order_and_sides_share_their_randomness() {
    let mut model = Model::new(vec![device(1.0), device(1.0), device(1.0)], 1);
    let mut config = config(4);
    config.sides.push(side("C"));
    config.depth = Some(16);
    let compared = compared(&mut model, &config);
    let stages = &compared.comparison.stages;
    // The full load, of which the other loads are made, is run first.
    let run = [&stages[2], &stages[1], &stages[0]];
    let told: Vec<&Round> = run.into_iter().flat_map(|stage| &stage.rounds).collect();
    for (round, told) in model.requests.chunks(3).zip(&told) {
        assert!(round.iter().all(|of| of.seed == round[0].seed));
        let sides: Vec<u32> = round.iter().map(|of| of.side as u32).collect();
        assert_eq!(sides, told.order);
    }
    assert!(told.iter().any(|round| round.order != told[0].order));
    // No round finds in a cache what an earlier one read, of whatever stage.
    let rounds = model.requests.chunks(3);
    let seeds: std::collections::BTreeSet<u64> = rounds.map(|round| round[0].seed).collect();
    assert_eq!(seeds.len(), 12);
    assert_eq!(compared.comparison.stages[0].differences.len(), 6);
    assert!(!is_shown(&compared), "{}", compared.comparison.summary);
    assert_eq!(
        compared.comparison.summary,
        "B against A: no difference shown; C against A: no difference shown"
    );
}

#[test]
fn where_no_difference_in_the_maximum_is_shown_both_get_one_load() {
    let compared = compared(&mut noisy(1.0, 2), &config(8));
    let rates: Vec<_> = compared.comparison.stages[1]
        .loads
        .iter()
        .map(Load::rate)
        .collect();
    assert_eq!(rates[0], rates[1]);
    assert_eq!(of(&compared, 1, Metric::Throughput).verdict, Verdict::Fixed);
}

#[test]
fn a_side_that_does_not_sustain_the_rate_is_worse_in_throughput() {
    let mut model = Model::new(vec![device(1.0), device(0.5)], 1);
    let mut config = config(6);
    config.rate = Some(1_500.0);
    let compared = compared(&mut model, &config);
    assert_eq!(of(&compared, 0, Metric::Throughput).verdict, Verdict::Worse);
}

/// What failed was asked for and not done.
#[test]
fn a_side_that_fails_half_of_its_requests_does_not_sustain_the_rate() {
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    model.devices[1].fails_one_of = Some(2);
    let mut config = config(6);
    config.rate = Some(500.0);
    let compared = compared(&mut model, &config);
    let throughput = of(&compared, 0, Metric::Throughput);
    assert_eq!(throughput.verdict, Verdict::Worse, "{throughput:?}");
    assert!((throughput.percent + 50.0).abs() < 5.0, "{throughput:?}");
}

/// Of a round in which a side did nothing there is no ratio: neither a difference nor none is shown, and no load is made of it.
#[test]
fn a_round_without_figures_leaves_the_difference_unknown() {
    let mut model = Model::new(vec![device(1.0), device(1.2)], 1);
    let mut config = config(4);
    config.depth = Some(32);
    // In the third round of the first stage one does nothing.
    model.idle.insert(5);
    let compared = compared(&mut model, &config);
    for metric in METRICS {
        let difference = of(&compared, 2, metric);
        assert_eq!(difference.verdict, Verdict::Unknown, "{difference:?}");
        let reason = difference.reason.as_deref().unwrap();
        assert_eq!(
            reason,
            "no request succeeded in round 3 (the medium failed)"
        );
    }
    // B's own maximum is that of the other rounds, and A's is A's.
    let maxima: Vec<f64> = compared
        .comparison
        .sides
        .iter()
        .map(|side| side.maximum_rate.round())
        .collect();
    assert_eq!(maxima, [2_000.0, 2_400.0]);
    let loads = &compared.comparison.stages[1].loads;
    assert_eq!(
        (loads[0].rate(), loads[1].rate()),
        (Some(1_600.0), Some(1_920.0))
    );
    let part = of(&compared, 1, Metric::Throughput);
    assert_eq!(part.verdict, Verdict::Unknown, "{part:?}");
    assert!(part.reason.as_ref().unwrap().contains("maxima"), "{part:?}");
    let summary = &compared.comparison.summary;
    assert!(summary.contains("unknown at 100% (no request"), "{summary}");
    assert!(!summary.contains("no difference shown"), "{summary}");
    let codes: Vec<_> = compared.caveats.iter().map(|of| of.code.as_str()).collect();
    assert_eq!(codes, ["unknown-difference", "errors"]);
}

/// What cannot be told is stored all the same, and read again.
#[test]
fn whatever_was_compared_can_be_stored_and_read() {
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    model.noise = 0.5;
    model.idle.insert(5);
    let mut config = config(4);
    config.depth = Some(4);
    let compared = compared(&mut model, &config);
    let text = serde_json::to_string(&compared.comparison).unwrap();
    assert!(!text.contains("null"), "{text}");
    let again: Comparison = serde_json::from_str(&text).unwrap();
    assert_eq!(again, compared.comparison);
}

#[test]
fn a_small_difference_is_not_shown_however_sure() {
    let mut model = Model::new(vec![device(1.0), device(1.005)], 1);
    model.seconds = 4.0;
    let mut config = config(8);
    config.arrivals = Arrivals::Uniform;
    let compared = compared(&mut model, &config);
    let throughput = of(&compared, 2, Metric::Throughput);
    assert!(throughput.percent_low > 0.0, "{throughput:?}");
    assert_eq!(throughput.verdict, Verdict::NoDifferenceShown);
}

#[test]
fn things_that_differ_are_counted() {
    let things = |of: &[(&str, &str)]| -> BTreeMap<String, String> {
        of.iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    let one = things(&[("protocol", "nvme+tcp"), ("queues", "1")]);
    let two = things(&[("protocol", "iscsi"), ("queues", "1")]);
    let three = things(&[("protocol", "iscsi"), ("queues", "16"), ("digest", "on")]);
    assert_eq!(differing_things(&[&one, &one]), None);
    assert_eq!(differing_things(&[&one, &two]), None);
    let caveat = differing_things(&[&one, &three]).unwrap();
    assert_eq!(caveat.code, "several-differences");
    for part in [
        "3 things",
        "protocol (nvme+tcp, iscsi)",
        "queues (1, 16)",
        "digest (none, on)",
    ] {
        assert!(caveat.text.contains(part), "{}", caveat.text);
    }
}

#[test]
fn a_limit_that_all_share_is_told() {
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    let mut config = config(4);
    // 2,000 requests of 4 KiB a second.
    for (side, link) in config.sides.iter_mut().zip([8.2e6, 8.5e6]) {
        side.link_bytes_per_second = Some(link);
    }
    let codes = |compared: &Compared| -> Vec<String> {
        let caveats = compared.caveats.iter();
        caveats.map(|of| of.code.clone()).collect()
    };
    assert_eq!(codes(&compared(&mut model, &config)), ["same-limit-link"]);
    config.sides[1].link_bytes_per_second = Some(1e9);
    assert!(codes(&compared(&mut model, &config)).is_empty());
}

/// A link that is half full in both directions is not full, and what is deallocated does not pass over it.
#[test]
fn each_direction_of_a_link_has_its_own_limit() {
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    let stages = compared(&mut model, &config(4)).comparison.stages;
    let full = stages.last().expect("at their maximum is the last");
    // 2,000 requests of 4 KiB a second, of which a part is of another kind.
    let is_full = |kind: fn(&mut Operations) -> &mut Operation, part: u64, link: f64| {
        let mut stage = full.clone();
        for run in stage.rounds.iter_mut().flat_map(|round| &mut round.runs) {
            let all = run.operations.read.clone();
            let read = &mut run.operations.read;
            (read.requests, read.bytes) = (all.requests - part, all.bytes - part * 4096);
            let other = kind(&mut run.operations);
            (other.requests, other.bytes) = (part, part * 4096);
        }
        let mut sides = config(4).sides;
        sides
            .iter_mut()
            .for_each(|side| side.link_bytes_per_second = Some(link));
        !same_limit(&sides, 2, &stage).is_empty()
    };
    let written: fn(&mut Operations) -> &mut Operation = |of| &mut of.write;
    let deallocated: fn(&mut Operations) -> &mut Operation = |of| &mut of.deallocate;
    assert!(is_full(written, 0, 8.2e6));
    assert!(!is_full(written, 1000, 8.2e6));
    assert!(is_full(written, 1000, 4.2e6));
    assert!(!is_full(deallocated, 1000, 8.2e6));
    assert!(is_full(deallocated, 1000, 4.2e6));
}

/// The generator, and the processors of a machine on which a gateway runs too.
#[test]
fn processors_that_all_share_are_told() {
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    let stages = compared(&mut model, &config(4)).comparison.stages;
    let full = stages.last().expect("at their maximum is the last");
    let codes = |change: &dyn Fn(usize, &mut Run), processors: u32| -> Vec<String> {
        let mut stage = full.clone();
        for round in &mut stage.rounds {
            let runs = round.runs.iter_mut().enumerate();
            runs.for_each(|(side, run)| change(side, run));
        }
        let caveats = same_limit(&config(4).sides, processors, &stage);
        caveats.into_iter().map(|of| of.code).collect()
    };
    let saturated = |_: usize, run: &mut Run| run.processor.generator_saturated = true;
    assert_eq!(codes(&saturated, 2), ["same-limit-generator"]);
    let one_side = |side, run: &mut Run| run.processor.generator_saturated = side == 0;
    assert!(codes(&one_side, 2).is_empty());
    let busy = |generator: f64, gateway: f64| {
        move |_: usize, run: &mut Run| {
            run.processor.generator_seconds = Some(generator * run.elapsed_seconds);
            run.processor.gateway_seconds = Some(gateway * run.elapsed_seconds);
        }
    };
    assert_eq!(codes(&busy(0.9, 0.95), 2), ["same-limit-processors"]);
    assert!(codes(&busy(0.9, 0.95), 4).is_empty());
    assert!(codes(&busy(0.9, 0.95), 0).is_empty());
    assert!(codes(&busy(0.5, 0.95), 2).is_empty());
    let unwatched = |_: usize, run: &mut Run| {
        run.processor.generator_seconds = Some(2.0 * run.elapsed_seconds);
        run.processor.gateway_seconds = None;
    };
    assert!(codes(&unwatched, 2).is_empty());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    let refused = |model: &mut Model, config: &CompareConfig| {
        now(measure(model, config, |_| {})).unwrap_err().to_string()
    };
    assert!(refused(&mut model, &config(3)).contains("4 are needed"));
    let mut deep = config(4);
    (deep.depth, deep.depth_max) = (Some(9), 8);
    let said = refused(&mut model, &deep);
    assert!(said.contains("a depth of 9 is above"), "{said}");
    let mut alone = config(4);
    alone.sides.pop();
    assert!(refused(&mut model, &alone).contains("two at least"));
    assert!(model.requests.is_empty());
    model.devices.pop();
    assert_eq!(refused(&mut model, &config(4)), "there is no side 1");
}

#[test]
fn a_comparison_that_is_stopped_has_its_whole_stages() {
    let mut config = config(4);
    config.depth = Some(32);
    let mut model = Model::new(vec![device(1.0), device(1.0)], 1);
    model.stop_after = Some(13);
    // Also where the run that was being prepared came to nothing.
    for lost_at in [None, Some(12)] {
        model.requests.clear();
        model.lost_at = lost_at;
        let compared = compared(&mut model, &config);
        assert_eq!(compared.comparison.stages.len(), 1);
        assert_eq!(compared.caveats[0].code, "ended-early");
    }
    model.requests.clear();
    model.lost_at = None;
    model.stop_after = Some(5);
    let error = now(measure(&mut model, &config, |_| {})).unwrap_err();
    assert!(matches!(error, CompareError::Stopped));
}
