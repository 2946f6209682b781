//! Documents for tests: measured by nobody, the same every time.

use std::f64::consts::PI;

use hdrhistogram::Histogram;
use weir_lab::document::{
    Arrivals, Axis, Body, Caveat, Comparison, Curve, Difference, Document, Interval, Knee, Latency,
    LeftOut, LittlesLaw, Load, Machine, Metric, Objective, Operation, Operations, PastSaturation,
    Point, Processor, Round, Run, Side, SizeShare, Stage, SteadyState, Stream, Verdict, Volume,
    Workload,
};
use weir_report::Source;

/// Numbers that look drawn by chance, and are the same every time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to 1, neither included.
    pub(crate) fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

/// Latencies about `median_ns` with a long tail; one in 500 takes twenty times as long.
pub(crate) fn latencies(dice: &mut Dice, count: u64, median_ns: f64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    for _ in 0..count {
        let (first, second) = (dice.roll(), dice.roll());
        let normal = (-2.0 * first.ln()).sqrt() * (2.0 * PI * second).cos();
        let slow = if dice.roll() < 0.002 { 20.0 } else { 1.0 };
        let ns = median_ns * (0.25 * normal).exp() * slow;
        histogram.record(ns as u64).unwrap();
    }
    histogram
}

fn operation(histograms: &[Histogram<u64>], bytes: u64, open: bool) -> Operation {
    let mut all = histograms[0].clone();
    for other in &histograms[1..] {
        all.add(other).unwrap();
    }
    let mut late = all.clone();
    late.clear();
    for step in all.iter_recorded() {
        let ns = step.value_iterated_to() + 7_000;
        late.record_n(ns, step.count_at_value()).unwrap();
    }
    Operation {
        requests: all.len(),
        bytes: all.len() * bytes,
        errors: 0,
        service: Latency::of(&all),
        response: if open { Latency::of(&late) } else { None },
    }
}

pub(crate) fn volume(url: &str) -> Volume {
    Volume {
        url: url.to_owned(),
        name: url.to_owned(),
        block_size_bytes: 4096,
        length_bytes: 8 << 30,
        transfer_bytes_max: 1 << 20,
        volatile_cache: true,
        operations: None,
    }
}

/// A run of so many intervals of a second.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) url: &'static str,
    pub(crate) load: Load,
    pub(crate) intervals: u64,
    /// Reads in an interval.
    pub(crate) reads: u64,
    /// Writes in an interval.
    pub(crate) writes: u64,
    pub(crate) median_ns: f64,
    pub(crate) seed: u64,
}

pub(crate) fn run(shape: &Shape) -> Run {
    let open = shape.load.rate().is_some();
    let mut dice = Dice::new(shape.seed);
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut intervals = Vec::new();
    for index in 0..shape.intervals {
        // The volume stalls for a moment, twice in the run.
        let stalls = shape.intervals > 10 && index % 17 == 11;
        let median = shape.median_ns * if stalls { 6.0 } else { 1.0 };
        let share = if stalls { 2 } else { 1 };
        let read = latencies(&mut dice, shape.reads / share, median);
        let write = latencies(&mut dice, shape.writes / share, median * 1.8);
        let kind = |histogram: &Histogram<u64>| match histogram.is_empty() {
            true => Operation::default(),
            false => operation(std::slice::from_ref(histogram), 4096, open),
        };
        intervals.push(Interval {
            start_seconds: index as f64,
            length_seconds: 1.0,
            operations: Operations {
                read: kind(&read),
                write: kind(&write),
                ..Operations::default()
            },
            lag_ns_max: if open { 55_000 } else { 0 },
        });
        reads.push(read);
        writes.push(write);
    }
    let kind = |histograms: &[Histogram<u64>]| match histograms.iter().all(Histogram::is_empty) {
        true => Operation::default(),
        false => operation(histograms, 4096, open),
    };
    let operations = Operations {
        read: kind(&reads),
        write: kind(&writes),
        ..Operations::default()
    };
    let all = (shape.reads + shape.writes) as f64;
    Run {
        name: shape.name.to_owned(),
        phase: None,
        volumes: vec![volume(shape.url)],
        workload: Workload {
            name: None,
            text: "4 KiB random, 70% read".to_owned(),
            source: None,
            streams: vec![Stream {
                share_percent: 100.0,
                read_percent: 100.0 * shape.reads as f64 / all,
                write_percent: 100.0 * shape.writes as f64 / all,
                sizes: vec![SizeShare {
                    bytes: 4096,
                    percent: 100.0,
                }],
                pattern: "random".to_owned(),
                ..Stream::default()
            }],
            range_bytes: None,
            compressible_percent: 50.0,
        },
        load: shape.load,
        seed: shape.seed,
        ramp_seconds: 2.0,
        elapsed_seconds: shape.intervals as f64,
        ended: open.then(|| operations.requests()),
        operations,
        intervals,
        lag: open
            .then(|| latencies(&mut dice, 500, 9_000.0))
            .as_ref()
            .and_then(Latency::of),
        late_ns_max: None,
        unsent: 0,
        unfinished: 0,
        littles_law: Some(LittlesLaw {
            in_flight: shape.load.outstanding() as f64,
            from_latency: shape.load.outstanding() as f64 * 0.997,
            error_percent: -0.3,
        }),
        steady_state: Some(SteadyState {
            held: Some(true),
            metric: "requests per second".to_owned(),
            round_seconds: 1.0,
            rounds: vec![all; shape.intervals as usize],
            reached: true,
            window_start: 0,
            mean: all,
            range_percent: 4.2,
            slope_percent: 0.8,
        }),
        processor: Processor {
            generator_seconds: Some(0.4 * shape.intervals as f64),
            generator_busy_percent: vec![40.0],
            gateway_seconds: Some(0.7 * shape.intervals as f64),
            generator_saturated: false,
        },
        first_error: None,
        agents: None,
    }
}

pub(crate) const CLOSED: Load = Load::Closed {
    depth: 32,
    queues: 1,
    hosts: 1,
};

pub(crate) fn open(rate: f64) -> Load {
    Load::Open {
        rate,
        arrivals: Arrivals::Exponential,
        depth_max: 256,
        queues: 2,
        hosts: 1,
    }
}

pub(crate) fn document(body: Body, command: &[&str]) -> Document {
    let machine = Machine {
        processor: "Example Processor 9000 <8-core>".to_owned(),
        processors: 8,
        memory_bytes: 32 << 30,
        kernel: "6.1.0-example".to_owned(),
        operating_system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        clock_source: "tsc".to_owned(),
    };
    Document::new(
        body,
        command.iter().map(|&word| word.to_owned()).collect(),
        "0.1.0".to_owned(),
        "2026-01-31T12:00:00Z".to_owned(),
        machine,
    )
}

fn source(name: &str, document: Document) -> Source {
    Source {
        name: name.to_owned(),
        document,
    }
}

/// Mixed load at a fixed depth.
pub(crate) fn closed_bench(name: &str, seed: u64, median_ns: f64) -> Source {
    let run = run(&Shape {
        name: "bench",
        url: "file:/srv/images/disk1?direct=on&a=\"<b>\"",
        load: CLOSED,
        intervals: 30,
        reads: 700,
        writes: 300,
        median_ns,
        seed,
    });
    let mut document = document(
        Body::Bench { runs: vec![run] },
        &[
            "weir",
            "bench",
            "file:/srv/images/disk 1",
            "--read-percent",
            "70",
        ],
    );
    document.caveats.push(Caveat::new(
        "volatile-cache",
        "the volume has a volatile write cache: writes that were not flushed are lost with the power <script>alert(1)</script>",
    ));
    source(name, document)
}

/// Load at a fixed rate.
pub(crate) fn open_bench(name: &str) -> Source {
    let run = run(&Shape {
        name: "bench",
        url: "nvme+tcp://192.0.2.7:4420/nqn.2026-01.com.example:storage?nsid=1",
        load: open(900.0),
        intervals: 20,
        reads: 900,
        writes: 0,
        median_ns: 210_000.0,
        seed: 7,
    });
    source(
        name,
        document(
            Body::Bench { runs: vec![run] },
            &[
                "weir",
                "bench",
                "nvme+tcp://192.0.2.7:4420/...",
                "--rate",
                "900",
            ],
        ),
    )
}

/// A volume of 10,000 requests a second at 400 us, by depth.
pub(crate) fn curve(name: &str, rate_max: f64) -> Source {
    let unloaded_ns = 400_000.0;
    let points = [1u32, 2, 4, 8, 16, 32, 64]
        .into_iter()
        .map(|depth| {
            let rate = rate_max.min(f64::from(depth) / (unloaded_ns / 1e9));
            let run = run(&Shape {
                name: Box::leak(format!("depth {depth}").into_boxed_str()),
                url: "null:?rate=10000&delay=400us",
                load: Load::Closed {
                    depth,
                    queues: 1,
                    hosts: 1,
                },
                intervals: 5,
                reads: rate as u64 / 5,
                writes: 0,
                median_ns: f64::from(depth) / rate * 1e9,
                seed: u64::from(depth),
            });
            let left_out = LeftOut {
                seed: 9,
                late_ns_max: 64_000_000,
                errors: 0,
                rate: rate * 0.9,
                mean_ns: Some(65.5e6),
            };
            let mut point = Point {
                offered: f64::from(depth),
                percent_of_maximum: None,
                refinement: depth == 4,
                run,
                left_out: (depth == 4).then_some(left_out).into_iter().collect(),
            };
            // What was counted is a fifth of it, so that the test is quick.
            point.run.ended = Some(point.run.operations.requests() * 5);
            point
        })
        .collect();
    let curve = Curve {
        name: String::new(),
        axis: Axis::Depth,
        maximum_rate: Some(rate_max),
        maximum_runs: Vec::new(),
        points,
        failures: Vec::new(),
        knee: Some(Knee {
            outstanding: rate_max * unloaded_ns / 1e9,
            rate: rate_max * 0.98,
            latency_ns: 430_000.0,
            latency_unloaded_ns: unloaded_ns,
            rate_max,
        }),
        objectives: vec![Objective {
            objective: "p99<2ms".to_owned(),
            rate: Some(rate_max * 0.9),
            value_ns: Some(1_700_000.0),
            broken_rate: Some(rate_max * 0.99),
        }],
        past_saturation: Some(PastSaturation {
            points: 4,
            throughput_held: true,
            throughput_percent: 99.1,
            errors: 0,
            text: "throughput held: 99.1% of its highest at the least, and no errors".to_owned(),
        }),
        stopped: "the last depth was measured".to_owned(),
    };
    source(
        name,
        document(
            Body::Curve {
                curves: vec![curve],
                settings: None,
            },
            &[
                "weir",
                "curve",
                "null:?rate=10000&delay=400us",
                "--depths",
                "1..64",
            ],
        ),
    )
}

/// Two volumes of which the second is better by a little.
pub(crate) fn comparison(name: &str) -> Source {
    let rounds = 6;
    let stage = |stage: &str, load: Load| {
        let rounds: Vec<Round> = (0..rounds)
            .map(|round: u64| Round {
                order: if round.is_multiple_of(2) {
                    vec![0, 1]
                } else {
                    vec![1, 0]
                },
                runs: (0..2)
                    .map(|side: u64| {
                        run(&Shape {
                            name: if side == 0 { "A" } else { "B" },
                            url: if side == 0 {
                                "mem:?size=1G"
                            } else {
                                "file:/srv/b"
                            },
                            load,
                            intervals: 4,
                            reads: 500 + 20 * side + 3 * round,
                            writes: 0,
                            median_ns: 200_000.0 - 9_000.0 * side as f64,
                            seed: 100 + 10 * round + side,
                        })
                    })
                    .collect(),
            })
            .collect();
        let difference = |metric, percent: f64, verdict| Difference {
            side: 1,
            metric,
            baseline: 500.0,
            value: 500.0 * (1.0 + percent / 100.0),
            percent,
            percent_low: percent - 1.25,
            percent_high: percent + 1.5,
            verdict,
            reason: None,
        };
        Stage {
            name: stage.to_owned(),
            loads: vec![load; 2],
            rounds,
            differences: vec![
                difference(Metric::Throughput, 3.9, Verdict::Better),
                difference(Metric::LatencyMean, -4.25, Verdict::Better),
                difference(Metric::LatencyP99, 0.5, Verdict::NoDifferenceShown),
            ],
        }
    };
    let side = |name: &str, url, maximum_rate| Side {
        name: name.to_owned(),
        volumes: vec![volume(url)],
        paths: Vec::new(),
        maximum_rate,
    };
    let comparison = Comparison {
        sides: vec![
            side("A", "mem:?size=1G", 1000.0),
            side("B", "file:/srv/b", 1040.0),
        ],
        stages: vec![
            stage("depth 32", CLOSED),
            stage("80% of each maximum", open(400.0)),
        ],
        confidence_percent: 95.0,
        least_difference_percent: 1.0,
        summary: "B has 3.9% more throughput than A (2.7% to 5.4%)".to_owned(),
    };
    source(
        name,
        document(
            Body::Comparison(comparison),
            &["weir", "compare", "mem:?size=1G", "file:/srv/b"],
        ),
    )
}
