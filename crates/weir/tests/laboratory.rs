//! `weir curve` and `weir compare` as a user runs them, on volumes whose limits are known: `null:` with a rate and a delay.
//!
//! The volumes are slow, so that a busy machine changes little. How often and how exactly the truth is found is counted by bench/lab.

use std::process::{Command, Output};

use weir_lab::document::{Axis, Body, Comparison, Curve, Document, Metric, Verdict};

/// 500 requests a second, and 20 ms for each on top of its 2.
const SLOW: &str = "null:?size=1G&rate=500&delay=20ms";
/// 100 requests a second, and 100 ms for each on top of its 10: eleven keep it just busy.
const SLOWER: &str = "null:?size=1G&rate=100&delay=100ms";

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn document(arguments: &[&str]) -> Document {
    let output = weir(&[arguments, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Document::from_json(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn curve(arguments: &[&str]) -> Curve {
    let Body::Curve { mut curves } = document(arguments).body else {
        panic!("a curve was expected")
    };
    curves.pop().unwrap()
}

fn comparison(arguments: &[&str]) -> (Comparison, Vec<String>) {
    let document = document(arguments);
    let codes = document.caveats.iter().map(|of| of.code.clone()).collect();
    let Body::Comparison(comparison) = document.body else {
        panic!("a comparison was expected")
    };
    (comparison, codes)
}

fn near(value: f64, truth: f64, percent: f64) {
    let off = (value / truth - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{value} is {off:.1}% off {truth}");
}

#[test]
fn a_curve_by_depth_finds_the_knee() {
    let curve = curve(&["curve", SLOWER, "--depths", "1..32", "-t", "2s"]);
    assert_eq!(curve.axis, Axis::Depth);
    let knee = curve.knee.expect("a knee");
    near(knee.outstanding, 11.0, 5.0);
    near(knee.rate, 100.0, 5.0);
    let past = curve.past_saturation.expect("points beyond the knee");
    assert!(past.throughput_held && past.errors == 0, "{past:?}");
    let offered: Vec<f64> = curve.points.iter().map(|point| point.offered).collect();
    assert_eq!(offered, [1.0, 2.0, 4.0, 8.0, 11.0, 16.0, 32.0]);
    let run = &curve.points[0].run;
    assert!(run.processor.generator_seconds.is_some_and(|of| of > 0.0));
    assert!(
        run.littles_law
            .is_some_and(|law| law.error_percent.abs() < 10.0)
    );
}

#[test]
fn a_curve_by_rate_finds_the_knee_and_what_is_past_it() {
    let rates = ["--rates", "20,40,60,80,90,100,110,120"];
    let uniform = ["--arrivals", "uniform", "--objective", "mean<150ms"];
    let arguments = [&["curve", SLOWER, "-t", "2s"][..], &rates, &uniform].concat();
    let curve = curve(&arguments);
    assert_eq!(curve.axis, Axis::Rate);
    near(curve.maximum_rate.unwrap(), 100.0, 3.0);
    let knee = curve.knee.expect("a knee");
    near(knee.outstanding, 11.0, 5.0);
    near(knee.rate, 100.0, 5.0);
    let held = curve.objectives[0].rate.expect("it holds somewhere");
    assert!((80.0..=104.0).contains(&held), "{held}");
    assert!(curve.objectives[0].broken_rate.is_some());
    let open = curve.points[0].run.load.rate();
    near(open.expect("an open load"), 20.0, 5.0);
}

#[test]
fn the_same_volume_twice_shows_no_difference_and_another_does() {
    let stages = [
        "-d", "16", "--rounds", "6", "-t", "300ms", "--ramp", "100ms",
    ];
    let (same, caveats) = comparison(&[&["compare", SLOW, SLOW][..], &stages].concat());
    assert!(
        same.summary.contains("no difference shown"),
        "{}",
        same.summary
    );
    assert!(!caveats.contains(&"several-differences".to_owned()));
    assert_eq!(same.stages.len(), 3);

    let faster = "null:?size=1G&rate=650&delay=20ms&block_size=512";
    let (other, caveats) = comparison(&[&["compare", SLOW, faster][..], &stages].concat());
    let throughput = other.stages[2]
        .differences
        .iter()
        .find(|of| of.metric == Metric::Throughput)
        .unwrap();
    assert_eq!(throughput.verdict, Verdict::Better, "{throughput:?}");
    assert!((20.0..40.0).contains(&throughput.percent), "{throughput:?}");
    assert!(
        caveats.contains(&"several-differences".to_owned()),
        "{caveats:?}"
    );
}

#[test]
fn results_are_stored_whole_and_shown_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("curve.json");
    let output = weir(&[
        "curve",
        "null:?size=1G&token=x",
        "--depths",
        "1,4",
        "-t",
        "100ms",
    ]);
    assert_eq!(output.status.code(), Some(1), "null: knows no token");
    let path = file.to_str().unwrap();
    let output = weir(&["curve", SLOW, "--depths", "1,4", "-t", "500ms", "-o", path]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for part in ["in flight", "depth 4", "knee       not shown"] {
        assert!(text.contains(part), "{text}");
    }
    let stored = Document::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(stored.runs().len(), 2);
    assert!(stored.command.contains(&"--depths".to_owned()));
    assert!(stored.started.ends_with('Z') && !stored.machine.kernel.is_empty());
    let latency = stored.runs()[1].felt().unwrap().unwrap();
    assert_eq!(latency.histogram().unwrap().len(), latency.count);
}

#[test]
fn a_job_file_is_carried_out_and_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = (
        folder.path().join("night.toml"),
        folder.path().join("out.json"),
    );
    let jobs = r#"
duration = "300ms"

[[phase]]
name = "fill"
[[phase.job]]
name = "writer"
volume = "mem:?size=64M"
read = 0
block_size = "128k"
access = "sequential"

[[phase]]
name = "work"
[[phase.job]]
name = "database"
volume = "mem:?size=64M"
workload = "sql-90-10"
rate = 500
[[phase.job]]
name = "other"
volume = "null:?size=1G&rate=500"
interval = "100ms"
"#;
    std::fs::write(&file, jobs).unwrap();
    let (path, stored) = (file.to_str().unwrap(), output.to_str().unwrap());
    let done = weir(&["bench", "--job", path, "-o", stored]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(
        text.contains("database") && text.contains("writer"),
        "{text}"
    );
    let document = Document::from_json(&std::fs::read_to_string(&output).unwrap()).unwrap();
    let runs = document.runs();
    let named: Vec<_> = runs
        .iter()
        .map(|run| (run.phase.as_deref().unwrap(), run.name.as_str()))
        .collect();
    assert_eq!(
        named,
        [("fill", "writer"), ("work", "database"), ("work", "other")]
    );
    assert!(runs.iter().all(|run| run.operations.requests() > 0));
    assert_eq!(runs[0].operations.read.requests, 0);
    assert_eq!(runs[1].load.rate(), Some(500.0));
    assert!(runs[2].intervals.len() >= 3);

    std::fs::write(&file, jobs.replace("rate = 500", "rates = 500")).unwrap();
    let refused = weir(&["bench", "--job", path]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    for part in ["night.toml:19: ", "'rates'", "it has name, volume"] {
        assert!(errors.contains(part), "{errors}");
    }
    std::fs::write(&file, jobs.replace("null:", "nil:")).unwrap();
    let refused = weir(&["bench", "--job", path]);
    assert!(!refused.status.success());
    let both = weir(&["bench", "--job", path, "mem:?size=1M"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_load_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("load.json");
    let path = output.to_str().unwrap();
    let volumes = ["null:?size=1G", "mem:?size=16M"];
    let done = weir(&[&["bench", "-t", "300ms", "-o", path][..], &volumes].concat());
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let document = Document::from_json(&std::fs::read_to_string(&output).unwrap()).unwrap();
    let run = document.runs()[0];
    assert_eq!(run.volumes.len(), 2);
    let of_volume = |index: usize| run.volumes[index].operations.as_ref().unwrap().requests();
    assert_eq!(of_volume(0) + of_volume(1), run.operations.requests());
    assert!(of_volume(0) > 0 && of_volume(1) > 0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, part) in [
        (&["compare", SLOW][..], "URL"),
        (&["compare", SLOW, SLOW, "--rounds", "3"], "4..=1000"),
        (&["curve", SLOW, "--depths", "8..1"], "more than"),
        (&["curve", SLOW, "--objective", "p99=2ms"], "p99<2ms"),
        (&["curve", SLOW, "--maximum", "5"], "--rates"),
        (&["curve", SLOW, "--hosts", "2"], "nvme+tcp"),
        (&["curve", SLOW, "-o", "/nowhere/at/all"], "/nowhere/at/all"),
    ] {
        let output = weir(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(part), "{arguments:?}: {errors}");
    }
}
