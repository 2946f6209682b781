//! Curves, comparisons and sweeps by the load generator itself, of volumes whose limits are known, in simulated time: a busy machine changes nothing.

use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_lab::compare::{self, CompareConfig, SideConfig};
use weir_lab::convert::{self, Asked};
use weir_lab::curve::{self, CurveConfig, Steps};
use weir_lab::document::{Arrivals, Curve, Metric, Run, Verdict};
use weir_lab::runner::{Bench, Request, Spread};
use weir_lab::sweep::{self, SweepConfig};
use weir_load::bench::{self, BenchConfig, BenchError, Job};
use weir_load::workload::{Access as Blocks, Workload};
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
use weir_volume::{Access, Registry, VolumeUrl};

const RATE: f64 = 2_000.0;
/// What a request takes on top of its share of a second: nine in flight keep the volume just busy.
const DELAY: Duration = Duration::from_millis(4);
const KNEE: f64 = 9.0;
const SPREAD: Spread = Spread {
    volumes: 1,
    queues: 1,
    hosts: 1,
};

fn limited(rate: u32) -> String {
    format!("null:?size=1G&rate={rate}&delay={}ms", DELAY.as_millis())
}

/// Volumes on a reactor.
struct Volumes {
    reactor: Reactor,
    volumes: Vec<Arc<dyn Volume>>,
    workload: Workload,
}

impl Bench for Volumes {
    type Error = BenchError;

    async fn run(&mut self, request: &Request) -> Result<Run, BenchError> {
        let volume = &self.volumes[request.side];
        let ramp = Duration::from_millis(100);
        let job = Job {
            name: request.name.clone(),
            volumes: vec![Arc::clone(volume)],
            config: BenchConfig {
                workload: self.workload.clone(),
                load: convert::load(&request.load, 1, 0),
                queues: request.load.queues(),
                among: None,
                duration: Duration::from_millis(500),
                ramp,
                interval: Duration::from_millis(500),
                seed: request.seed,
                stop: weir_load::Stop::new(),
            },
        };
        let remotes = [self.reactor.remote()];
        let reports = bench::run_jobs(&self.reactor, &remotes, &[job], |_| {}).await?;
        let asked = Asked {
            name: &request.name,
            workload: &self.workload,
            load: request.load,
            seed: request.seed,
            ramp,
        };
        let stored = convert::volume(&volume.name(), &volume.name(), &volume.geometry());
        Ok(convert::run(&asked, &[stored], &reports))
    }
}

/// Has the volumes measured in simulated time.
fn measured<T: 'static>(
    urls: &[String],
    measure: impl AsyncFnOnce(&mut Volumes) -> T + 'static,
) -> T {
    let seed = seed_from_env_or_random();
    println!("seed {seed}");
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let host = simulation.host_id("host");
    let urls = urls.to_vec();
    simulation.run(host, move |reactor| async move {
        let mut volumes = Vec::new();
        for url in &urls {
            let url: VolumeUrl = url.parse().expect("the test's URL is well formed");
            let registry = Registry::standard();
            let opened = registry.open(&reactor, &url, Access::READ_ONLY).await;
            volumes.push(opened.expect("the test's volume opens"));
        }
        let mut volumes = Volumes {
            reactor,
            volumes,
            workload: Workload::simple(4096, 100, Blocks::Random),
        };
        measure(&mut volumes).await
    })
}

fn config(steps: Steps) -> CurveConfig {
    CurveConfig {
        side: 0,
        steps,
        spread: SPREAD,
        bound: None,
        objectives: vec!["mean<6ms".parse().expect("an objective")],
        refine: true,
        seed: 5,
    }
}

#[track_caller]
fn near(value: f64, truth: f64, percent: f64) {
    let off = (value / truth - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{value} is {off:.1}% off {truth}");
}

fn check_knee(curve: &Curve) {
    let knee = curve.knee.expect("a knee");
    near(knee.outstanding, KNEE, 5.0);
    near(knee.rate, RATE, 5.0);
    near(knee.latency_unloaded_ns, 4.5e6, 1.0);
    let past = curve
        .past_saturation
        .as_ref()
        .expect("points beyond the knee");
    assert!(past.throughput_held && past.errors == 0, "{past:?}");
    // Where more is offered than can be had, what is in flight grows with time, and the law is not for that.
    let closed = curve
        .points
        .iter()
        .filter(|point| point.run.load.rate().is_none());
    for point in closed {
        let law = point.run.littles_law.expect("requests were in flight");
        assert!(law.error_percent.abs() < 5.0, "{}: {law:?}", point.run.name);
    }
}

#[test]
fn the_knee_is_found_by_depth() {
    let curve = measured(&[limited(2_000)], async |volumes| {
        let depths = vec![1, 2, 4, 8, 16, 32, 64];
        curve::measure(volumes, &config(Steps::Depths(depths)), |_| {}).await
    });
    let curve = curve.expect("it can be measured");
    check_knee(&curve);
    near(curve.points[0].run.rate(), 1e3 / 4.5, 2.0);
    assert!(
        curve
            .points
            .iter()
            .any(|of| of.refinement && of.offered == KNEE)
    );
}

#[test]
fn the_knee_is_found_by_rate() {
    let curve = measured(&[limited(2_000)], async |volumes| {
        let rates = Steps::Rates {
            percents: (1..=12).map(|ten| f64::from(ten * 10)).collect(),
            arrivals: Arrivals::Uniform,
            depth_max: 256,
            maximum: None,
        };
        curve::measure(volumes, &config(rates), |_| {}).await
    });
    let curve = curve.expect("it can be measured");
    near(curve.maximum_rate.expect("it was looked for"), RATE, 2.0);
    check_knee(&curve);
    let held = curve.objectives[0].rate.expect("it holds somewhere");
    near(held, RATE, 5.0);
}

fn side(name: &str) -> SideConfig {
    SideConfig {
        name: name.to_owned(),
        volumes: Vec::new(),
        things: std::collections::BTreeMap::new(),
        link_bytes_per_second: None,
        paths: Vec::new(),
    }
}

/// How the throughput of a second volume differs from that of one of 2,000 requests a second, when each does what it can.
fn compared(rate: u32) -> (Verdict, f64, String) {
    let compared = measured(&[limited(2_000), limited(rate)], async |volumes| {
        let config = CompareConfig {
            sides: vec![side("A"), side("B")],
            spread: SPREAD,
            depth: Some(32),
            depth_max: 256,
            rate: None,
            arrivals: Arrivals::Exponential,
            rounds: 6,
            confidence_percent: 99.0,
            least_difference_percent: 1.0,
            seed: 3,
            processors: 0,
        };
        compare::measure(volumes, &config, |_| {}).await
    });
    let comparison = compared.expect("they can be compared").comparison;
    let mut differences = comparison.stages[2].differences.iter();
    let throughput = differences.find(|of| of.metric == Metric::Throughput);
    let throughput = throughput.expect("throughput is compared");
    (throughput.verdict, throughput.percent, comparison.summary)
}

#[test]
fn a_volume_does_not_differ_from_itself_and_differs_from_one_that_is_three_percent_faster() {
    let (verdict, _, summary) = compared(2_000);
    assert_eq!(verdict, Verdict::NoDifferenceShown, "{summary}");
    assert_eq!(summary, "B against A: no difference shown");
    let (verdict, percent, summary) = compared(2_060);
    assert_eq!(verdict, Verdict::Better, "{summary}");
    near(percent, 3.0, 20.0);
}

#[test]
fn the_best_of_several_settings_is_found() {
    let urls = [1_000, 2_000, 2_000].map(limited);
    let swept = measured(&urls, async |volumes| {
        let config = SweepConfig {
            curve: config(Steps::Depths(vec![1, 4, 16, 32])),
            settings: ["slow", "one", "other"].map(side).to_vec(),
            rounds: 4,
            confidence_percent: 99.0,
            least_difference_percent: 1.0,
        };
        sweep::measure(volumes, &config, |_| {}).await
    });
    let swept = swept.expect("they can be measured");
    assert_eq!(swept.curves.len(), 3);
    let settings = swept.settings.expect("they were compared");
    assert_eq!(settings.sides[2].name, "slow");
    near(settings.sides[0].maximum_rate, RATE, 2.0);
    assert!(
        settings.summary.contains("slow: throughput -50"),
        "{}",
        settings.summary
    );
    assert!(
        settings.summary.contains("no difference shown between it"),
        "{}",
        settings.summary
    );
}
