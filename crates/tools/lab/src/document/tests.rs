//! Documents survive being stored, and what is none is said to be none.

use hdrhistogram::Histogram;
use proptest::prelude::*;

use super::*;

fn histogram(values: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    for &value in values {
        histogram.record(value).unwrap();
    }
    histogram
}

fn operation(values: &[u64]) -> Operation {
    Operation {
        requests: values.len() as u64,
        bytes: values.len() as u64 * 4096,
        errors: 1,
        service: Latency::of(&histogram(values)),
        response: None,
    }
}

fn run(name: &str, values: &[u64]) -> Run {
    Run {
        name: name.to_owned(),
        phase: None,
        volumes: vec![Volume {
            url: "mem:?size=1G".to_owned(),
            name: "mem".to_owned(),
            block_size_bytes: 4096,
            length_bytes: 1 << 30,
            transfer_bytes_max: 1 << 20,
            volatile_cache: false,
            operations: None,
        }],
        workload: Workload {
            name: Some("16k-70-30".to_owned()),
            text: "16 KiB random, 70% read".to_owned(),
            streams: vec![Stream {
                share_percent: 100.0,
                read_percent: 70.0,
                write_percent: 30.0,
                sizes: vec![SizeShare {
                    bytes: 16384,
                    percent: 100.0,
                }],
                pattern: "random".to_owned(),
                ..Stream::default()
            }],
            ..Workload::default()
        },
        load: Load::Open {
            rate: 1000.5,
            arrivals: Arrivals::Exponential,
            depth_max: 128,
            queues: 4,
            hosts: 2,
        },
        seed: u64::MAX,
        ramp_seconds: 0.0,
        elapsed_seconds: 2.0,
        operations: Operations {
            read: operation(values),
            ..Operations::default()
        },
        ended: None,
        intervals: vec![Interval {
            start_seconds: 0.0,
            length_seconds: 1.0,
            operations: Operations {
                write: operation(values),
                ..Operations::default()
            },
            lag_ns_max: 17,
        }],
        lag: Latency::of(&histogram(&[1, 2, 3])),
        late_ns_max: Some(3),
        unsent: 0,
        unfinished: 0,
        littles_law: Some(LittlesLaw {
            in_flight: 1.0,
            from_latency: 1.01,
            error_percent: 1.0,
        }),
        steady_state: None,
        processor: Processor::default(),
        first_error: None,
        agents: None,
    }
}

fn document(body: Body) -> Document {
    let command = ["weir", "bench", "mem:?size=1G"]
        .map(str::to_owned)
        .to_vec();
    let mut document = Document::new(
        body,
        command,
        "0.1.0".to_owned(),
        "2026-01-02T03:04:05Z".to_owned(),
        Machine::default(),
    );
    document.caveats.push(Caveat::new("unsent", "some"));
    document
}

#[test]
fn a_point_says_which_runs_it_does_not_show() {
    let Body::Curve { mut curves, .. } = curve() else {
        unreachable!("it is one")
    };
    let mut point = curves.remove(0).points.remove(0);
    let text = |point: &Point| point.left_out_text(|ns| format!("{} ms", ns / 1e6));
    let one = text(&point).unwrap();
    assert!(
        one.starts_with("a run") && one.contains("64 ms late is left out"),
        "{one}"
    );
    let later = LeftOut {
        late_ns_max: 81_000_000,
        ..point.left_out[0].clone()
    };
    point.left_out.insert(0, later);
    let two = text(&point).unwrap();
    assert!(
        two.starts_with("2 runs") && two.contains("81 ms late are left out"),
        "{two}"
    );
    point.left_out[1].errors = 3;
    let failed = text(&point).unwrap();
    assert!(
        failed.contains("81 ms late, with 3 requests that failed, are left out"),
        "{failed}"
    );
    point.left_out.clear();
    assert_eq!(text(&point), None);
}

fn curve() -> Body {
    Body::Curve {
        curves: vec![Curve {
            name: String::new(),
            axis: Axis::Depth,
            maximum_rate: None,
            maximum_runs: Vec::new(),
            points: vec![Point {
                offered: 1.0,
                percent_of_maximum: None,
                refinement: false,
                run: run("depth 1", &[5]),
                left_out: vec![LeftOut {
                    seed: 3,
                    late_ns_max: 64_000_000,
                    errors: 0,
                    rate: 195.0,
                    mean_ns: Some(65.5e6),
                }],
            }],
            failures: vec![Failure {
                point: "depth 2".to_owned(),
                offered: 2.0,
                reason: "no request succeeded".to_owned(),
            }],
            knee: None,
            objectives: Vec::new(),
            past_saturation: None,
            stopped: "the last depth that was asked for".to_owned(),
        }],
        settings: None,
    }
}

fn sweep() -> Body {
    match (curve(), comparison()) {
        (Body::Curve { curves, .. }, Body::Comparison(compared)) => Body::Curve {
            curves,
            settings: Some(compared),
        },
        _ => unreachable!("they are what they are called"),
    }
}

fn comparison() -> Body {
    let load = Load::Closed {
        depth: 32,
        queues: 1,
        hosts: 1,
    };
    Body::Comparison(Comparison {
        sides: ["A", "B"]
            .map(|name| Side {
                name: name.to_owned(),
                volumes: run("", &[1]).volumes,
                paths: vec![NetworkPath {
                    interface: "eth0".to_owned(),
                    mtu_bytes: 1500,
                    speed_bits_per_second: Some(25_000_000_000),
                    overhead: Some(Overhead {
                        data_bytes: 4096,
                        segments: 3,
                        wire_bytes: 4390,
                    }),
                }],
                maximum_rate: 1e5,
            })
            .to_vec(),
        stages: vec![Stage {
            name: "100%".to_owned(),
            loads: vec![load; 2],
            rounds: vec![Round {
                order: vec![1, 0],
                runs: vec![run("A", &[7]), run("B", &[8])],
            }],
            differences: vec![Difference {
                side: 1,
                metric: Metric::Throughput,
                baseline: 1e5,
                value: 1.1e5,
                percent: 10.0,
                percent_low: 9.0,
                percent_high: 11.0,
                verdict: Verdict::Better,
                reason: None,
            }],
        }],
        confidence_percent: 99.0,
        least_difference_percent: 1.0,
        summary: "B is faster".to_owned(),
    })
}

fn bodies() -> [Body; 4] {
    let runs = vec![run("a", &[1, 1000, 1_000_000]), run("b", &[])];
    [Body::Bench { runs }, curve(), sweep(), comparison()]
}

fn text_of(document: &Document) -> String {
    let mut bytes = Vec::new();
    document.write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn documents_are_read_as_they_were_written() {
    for body in bodies() {
        let document = document(body);
        let text = text_of(&document);
        assert!(text.starts_with("{\n  \"schema\": \"weir-result/1\",\n  \"kind\": \""));
        assert!(text.ends_with("}\n"));
        assert_eq!(Document::from_json(&text).unwrap(), document);
        assert_eq!(Document::read(text.as_bytes()).unwrap(), document);
    }
}

#[test]
fn all_runs_of_a_document_are_found() {
    let names = |body| {
        let document = document(body);
        let names: Vec<_> = document.runs().iter().map(|run| run.name.clone()).collect();
        names.join(" ")
    };
    let [bench, curve, sweep, comparison] = bodies();
    assert_eq!(names(bench), "a b");
    assert_eq!(names(curve), "depth 1");
    assert_eq!(names(sweep), "depth 1 A B");
    assert_eq!(names(comparison), "A B");
}

#[test]
fn what_a_later_version_adds_is_passed_over() {
    let [bench, ..] = bodies();
    let document = document(bench);
    let mut value = serde_json::to_value(&document).unwrap();
    value["new"] = serde_json::json!({"deep": [1]});
    value["machine"]["new"] = 1.into();
    value["body"]["runs"][0]["new"] = "x".into();
    value["body"]["runs"][0]["operations"]["read"]["service"]["new"] = 1.5.into();
    assert_eq!(Document::from_json(&value.to_string()).unwrap(), document);
}

#[test]
fn what_is_no_result_is_said_to_be_none() {
    let refused = |text: &str| Document::from_json(text).unwrap_err();
    for text in ["{}", "[1]", "{\"schema\": \"other/1\"}", "{\"schema\": 1}"] {
        assert!(matches!(refused(text), DocumentError::NotAResult), "{text}");
    }
    for text in ["", "{", "schema"] {
        assert!(matches!(refused(text), DocumentError::Json(_)), "{text}");
    }
    let later = refused("{\"schema\": \"weir-result/2\", \"version\": \"9.1.0\"}").to_string();
    for part in ["weir-result/2", "weir-result/1", "9.1.0"] {
        assert!(later.contains(part), "{later}");
    }
    let form = refused("{\"schema\": \"weir-result/1\", \"kind\": \"bench\", \"body\": {}}");
    assert!(matches!(form, DocumentError::Form(_)), "{form}");
    let [bench, ..] = bodies();
    let mut unknown = serde_json::to_value(document(bench)).unwrap();
    unknown["kind"] = "dance".into();
    let kind = refused(&unknown.to_string());
    assert!(matches!(kind, DocumentError::Form(_)), "{kind}");
    assert!(kind.to_string().contains("dance"), "{kind}");
}

#[test]
fn a_latency_agrees_with_its_histogram() {
    let histogram = histogram(&[1_000, 2_000, 3_000, 1_000_000]);
    let latency = Latency::of(&histogram).unwrap();
    assert_eq!(latency.count, 4);
    assert_eq!(latency.min_ns, histogram.min());
    assert_eq!(latency.max_ns, histogram.max());
    let percentile = |of: f64| latency.percentile_ns(of).unwrap();
    assert_eq!(percentile(50.0), histogram.value_at_percentile(50.0));
    assert_eq!(
        percentile(60.0),
        histogram.value_at_percentile(60.0),
        "one that is not stored"
    );
    assert_eq!(latency.histogram().unwrap(), histogram);
    assert!(latency.percentiles_ns.contains_key("99.9"));
}

#[test]
fn nothing_has_no_latency() {
    assert_eq!(Latency::of(&histogram(&[])), None);
    assert!(Latency::merged([]).unwrap().is_none());
    let run = run("b", &[]);
    assert!(run.operations.service().unwrap().is_none());
    assert_eq!(run.rate(), 0.0);
    assert_eq!(run.bytes_per_second(), 0.0);
}

#[test]
fn a_broken_histogram_is_an_error() {
    let mut latency = Latency::of(&histogram(&[1])).unwrap();
    for broken in [
        "",
        "***",
        "AAAA",
        "HISTFAAAACF42pNpmSzMwMDAxAABzFCaEUoz2X+AMEaxAABVvAPy==",
    ] {
        latency.histogram = broken.to_owned();
        assert!(latency.histogram().is_err(), "{broken}");
    }
}

#[test]
fn kinds_of_requests_add_up() {
    let mut run = run("a", &[1_000, 1_000]);
    run.operations.write = operation(&[3_000, 3_000]);
    run.operations.write.response = Latency::of(&histogram(&[9_000]));
    assert_eq!(run.operations.requests(), 4);
    assert_eq!(run.errors(), 2);
    assert_eq!(run.rate(), 2.0);
    assert_eq!(run.bytes_per_second(), 8192.0);
    let service = run.operations.service().unwrap().unwrap();
    assert_eq!(service.count, 4);
    assert!((service.mean_ns - 2_000.0).abs() < 2.0);
    assert_eq!(run.felt().unwrap().unwrap().count, 1);
    run.ended = Some(20);
    assert_eq!(run.rate(), 10.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Histograms of any values, and merged ones, come back as they were.
    #[test]
    fn histograms_survive(
        a in prop::collection::vec(1u64..3_600_000_000_000, 1..200),
        b in prop::collection::vec(1u64..3_600_000_000_000, 1..200),
    ) {
        let (first, second) = (histogram(&a), histogram(&b));
        let stored = [&first, &second].map(|of| Latency::of(of).unwrap());
        prop_assert_eq!(&stored[0].histogram().unwrap(), &first);
        let both: Vec<u64> = a.iter().chain(&b).copied().collect();
        let merged = Latency::merged(&stored).unwrap().unwrap();
        prop_assert_eq!(Latency::of(&merged), Latency::of(&histogram(&both)));
    }

    /// Numbers survive exactly.
    #[test]
    fn numbers_survive(rate in 0.0f64..1e12, seed in any::<u64>(), seconds in 0.0f64..1e6) {
        let mut run = run("a", &[1]);
        run.seed = seed;
        run.elapsed_seconds = seconds;
        run.littles_law.as_mut().unwrap().in_flight = rate;
        let document = document(Body::Bench { runs: vec![run] });
        prop_assert_eq!(Document::from_json(&text_of(&document)).unwrap(), document);
    }
}
