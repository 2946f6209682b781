//! `weir curve` and `weir compare` as a user runs them, on volumes whose limits are known: `null:` with a rate and a delay.
//!
//! A busy machine makes a volume slower than its limits, and never faster: what is asserted of figures here holds on any machine. That knees and differences are found, and
//! how exactly, is tested in simulated time (crates/tools/lab/tests/simulated.rs) and counted on real machines by bench/lab.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use weir_lab::document::{Axis, Body, Comparison, Curve, Document, Metric, Run, Verdict};

use crate::common::{catches, nightly, retry, until};

/// 1,000 requests a second, and 10 ms for each on top of its 1: eleven keep it just busy.
const SLOW: &str = "null:?size=1G&rate=1000&delay=10ms";
/// Shortest time of a request to it, in nanoseconds.
const SLOW_NS: u64 = 9_900_000;

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .output()
        .expect("the command runs")
}

/// Measures until something ended in every run that was measured: the process may be stopped for all of a short one.
fn document(arguments: &[&str]) -> Document {
    retry("requests in every run", |attempt| {
        let arguments = longer(arguments, attempt);
        let output = weir(&[&borrowed(&arguments)[..], &["--json"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("no request succeeded") {
            return None;
        }
        assert!(output.status.success(), "{errors}");
        let document = Document::from_json(&String::from_utf8(output.stdout).unwrap()).unwrap();
        is_whole(&document).then_some(document)
    })
}

/// Gives runs that nothing ended in more time: a process that was stopped for all of a short one may be stopped as long again.
fn longer(arguments: &[&str], attempt: u32) -> Vec<String> {
    let mut longer: Vec<_> = arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    let times = longer.iter().position(|argument| argument == "-t");
    let time = times.and_then(|at| longer.get_mut(at + 1));
    if let Some((time, milliseconds)) = time.and_then(|time| {
        let milliseconds: u32 = time.strip_suffix("ms")?.parse().ok()?;
        Some((time, milliseconds))
    }) {
        *time = format!("{}ms", milliseconds * attempt);
    }
    longer
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Tells whether a request ended in every run, and was in flight in its time: one that was due before a process was stopped until the end is sent, and ends,
/// behind it. A comparison does not need that.
fn is_whole(document: &Document) -> bool {
    let of_curves = match &document.body {
        Body::Comparison(_) => return true,
        Body::Curve { curves, .. } => curves.iter().all(|curve| curve.failures.is_empty()),
        Body::Bench { .. } => true,
    };
    let runs = document.runs();
    let is_seen = |run: &&Run| run.operations.requests() > 0 && run.littles_law.is_some();
    of_curves && runs.iter().all(is_seen)
}

/// A load whose result is stored, until something ended in each of its runs; what it prints beside that.
fn stored(arguments: &[&str], file: &std::path::Path) -> (Document, String) {
    retry("requests in every run", |attempt| {
        let arguments = longer(arguments, attempt);
        let output = ["-o", file.to_str().unwrap()];
        let done = weir(&[&borrowed(&arguments)[..], &output].concat());
        let errors = String::from_utf8_lossy(&done.stderr);
        if errors.contains("no request succeeded") {
            return None;
        }
        assert!(done.status.success(), "{errors}");
        let document = Document::from_json(&std::fs::read_to_string(file).unwrap()).unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        is_whole(&document).then_some((document, text))
    })
}

fn curve(arguments: &[&str]) -> Curve {
    let Body::Curve { mut curves, .. } = document(arguments).body else {
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

/// Every point has what it was asked for, within the limits of its volume: so many requests a second, and so long each.
fn check_points(curve: &Curve, rate_max: f64, least_ns: u64) {
    for point in &curve.points {
        let (run, name) = (&point.run, &point.run.name);
        assert!(run.operations.requests() > 0 && run.errors() == 0, "{name}");
        // What was in flight when the measured time began ends in it, all at once where the process was stopped until then.
        let before = run.load.outstanding().min(32);
        let most = rate_max * run.elapsed_seconds + before as f64 + 16.0;
        assert!(
            run.rate() * run.elapsed_seconds <= most,
            "{name}: {}",
            run.rate()
        );
        let felt = run.felt().unwrap().unwrap();
        assert!(felt.min_ns >= least_ns, "{name}: {}", felt.min_ns);
        assert!(run.processor.generator_seconds.is_some_and(|of| of > 0.0));
        assert!(run.littles_law.is_some(), "{name}");
    }
    if let Some(knee) = curve.knee {
        let points = || curve.points.iter().map(|point| point.run.rate());
        let (low, high) = (
            points().fold(f64::MAX, f64::min),
            points().fold(0.0, f64::max),
        );
        assert!((low..=high).contains(&knee.rate), "{knee:?}");
        assert!(knee.latency_unloaded_ns >= least_ns as f64, "{knee:?}");
    }
    if let Some(past) = &curve.past_saturation {
        assert_eq!(past.errors, 0, "{past:?}");
    }
    assert!(curve.failures.is_empty(), "{:?}", curve.failures);
    assert_eq!(curve.stopped, "all that was asked for was measured");
}

/// The loads that were asked for, without those that were added.
fn asked_for(curve: &Curve) -> Vec<f64> {
    let points = curve.points.iter().filter(|point| !point.refinement);
    points.map(|point| point.offered).collect()
}

#[test]
fn a_curve_by_depth_has_every_depth() {
    let short = ["-t", "200ms", "--ramp", "20ms"];
    let curve = curve(&[&["curve", SLOW, "--depths", "1..32"][..], &short].concat());
    assert_eq!(curve.axis, Axis::Depth);
    assert_eq!(asked_for(&curve), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    check_points(&curve, 1000.0, SLOW_NS);
}

#[test]
fn a_curve_by_rate_has_every_part_of_the_highest() {
    let rates = ["--rates", "20,60,100,120"];
    let uniform = ["--arrivals", "uniform", "--objective", "mean<15ms"];
    let short = ["-t", "100ms", "--ramp", "20ms"];
    let arguments = [&["curve", SLOW][..], &short, &rates, &uniform].concat();
    let curve = curve(&arguments);
    assert_eq!(curve.axis, Axis::Rate);
    let maximum = curve.maximum_rate.expect("it was looked for");
    let found = curve.maximum_runs.iter().map(|run| run.rate());
    assert_eq!(found.fold(0.0, f64::max), maximum);
    let parts = [20.0, 60.0, 100.0, 120.0].map(|percent| (maximum * percent / 100.0).round());
    assert_eq!(asked_for(&curve), parts);
    for point in &curve.points {
        assert_eq!(point.run.load.rate(), Some(point.offered));
    }
    check_points(&curve, 1000.0, SLOW_NS);
    let [objective] = &curve.objectives[..] else {
        panic!("{:?}", curve.objectives)
    };
    assert_eq!(objective.objective, "mean<15ms");
    assert!(
        objective.value_ns.is_none_or(|ns| ns < 15e6),
        "{objective:?}"
    );
}

/// What the summary says is what the differences say.
fn check_comparison(comparison: &Comparison, rounds: usize) {
    assert_eq!(comparison.stages.len(), 3);
    let mut shown = false;
    for stage in &comparison.stages {
        assert_eq!(stage.rounds.len(), rounds, "{}", stage.name);
        let first = stage.rounds.iter().filter(|round| round.order == [0, 1]);
        assert_eq!(first.count(), rounds / 2, "{}", stage.name);
        for round in &stage.rounds {
            assert!([[0, 1], [1, 0]].contains(&[round.order[0], round.order[1]]));
            assert_eq!(round.runs[0].seed, round.runs[1].seed);
        }
        assert_eq!(stage.differences.len(), 3, "{}", stage.name);
        for of in &stage.differences {
            assert!(
                of.percent_low <= of.percent && of.percent <= of.percent_high,
                "{of:?}"
            );
            // Nothing is known where a side did nothing in a round or something disturbed, and that is said too.
            let told = [Verdict::Better, Verdict::Worse, Verdict::Unknown];
            shown |= told.contains(&of.verdict);
        }
    }
    let said = !comparison.summary.contains("no difference shown");
    assert_eq!(said, shown, "{}", comparison.summary);
}

#[test]
fn a_comparison_says_what_its_rounds_say_and_finds_ten_times_as_much() {
    let time = if nightly() { "1s" } else { "50ms" };
    let stages = ["-d", "16", "-t", time, "--ramp", "20ms", "--rounds"];
    let (same, caveats) = comparison(&[&["compare", SLOW, SLOW][..], &stages, &["4"]].concat());
    check_comparison(&same, 4);
    assert!(!caveats.contains(&"several-differences".to_owned()));

    let sides = [
        "null:?size=1G&rate=300&delay=1ms&block_size=512",
        "null:?size=1G&rate=3000&delay=1ms",
    ];
    // Rounds in which a process was stopped may hide even so much.
    retry("ten times as much", |_| {
        let (other, caveats) = comparison(&[&["compare"], &sides[..], &stages, &["6"]].concat());
        check_comparison(&other, 6);
        let mut full = other.stages[2].differences.iter();
        let throughput = full.find(|of| of.metric == Metric::Throughput).unwrap();
        assert!(
            caveats.contains(&"several-differences".to_owned()),
            "{caveats:?}"
        );
        (throughput.verdict == Verdict::Better).then_some(())
    });
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
    let (stored, text) = stored(&["curve", SLOW, "--depths", "1,4", "-t", "300ms"], &file);
    for part in ["in flight", "depth 4", "knee       not shown"] {
        assert!(text.contains(part), "{text}");
    }
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
duration = "500ms"

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
    let path = file.to_str().unwrap();
    let (document, text) = stored(&["bench", "--job", path], &output);
    assert!(
        text.contains("database") && text.contains("writer"),
        "{text}"
    );
    let runs = document.runs();
    let named: Vec<_> = runs
        .iter()
        .map(|run| (run.phase.as_deref().unwrap(), run.name.as_str()))
        .collect();
    assert_eq!(
        named,
        [("fill", "writer"), ("work", "database"), ("work", "other")]
    );
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
    let nameless = jobs.replace("name = \"other\"\n", "");
    for (wrong, parts) in [
        (jobs.replace("null:", "nil:"), ["night.toml:22: ", "nil"]),
        (
            jobs.replace("rate = 500", "hosts = 3"),
            ["night.toml:19: hosts is 3", "nvme+tcp"],
        ),
        (
            jobs.replace("size=64M", "sise=64M"),
            ["night.toml:8: ", "size"],
        ),
        // Each queue needs a part of the volume for itself.
        (
            jobs.replace(
                "\naccess = \"sequential\"",
                "\naccess = \"sequential\"\nqueues = 4096",
            ),
            ["night.toml:6: ", "queue"],
        ),
        (
            nameless.replace("rate=500", "rate=x"),
            ["night.toml:21: ", "rate"],
        ),
    ] {
        std::fs::write(&file, &wrong).unwrap();
        let refused = weir(&["bench", "--job", path]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{wrong}");
        for part in parts {
            assert!(errors.contains(part), "{wrong}\n{errors}");
        }
    }
    // What is measured is not put in the place of what says how.
    std::fs::write(&file, jobs).unwrap();
    let refused = weir(&["bench", "--job", path, "-o", path]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("would replace"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), jobs);
    let both = weir(&["bench", "--job", path, "mem:?size=1M"]);
    assert_eq!(both.status.code(), Some(2));
}

/// A phase that is stopped, and those after it, are told of.
#[test]
fn phases_that_are_not_begun_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = (
        folder.path().join("jobs.toml"),
        folder.path().join("out.json"),
    );
    let phase = "[[phase]]\n[[phase.job]]\nvolume = \"null:?size=1G&rate=500\"\n";
    std::fs::write(&file, format!("duration = \"1h\"\n{phase}{phase}{phase}")).unwrap();
    let mut running = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "--job"])
        .arg(&file)
        .arg("-o")
        .arg(&output)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("it waits for a signal", || {
        catches(running.id(), Signal::INT)
    });
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    let mut told = String::new();
    let mut errors = running.stderr.take().unwrap();
    errors.read_to_string(&mut told).unwrap();
    assert!(running.wait().unwrap().success(), "{told}");
    let document = Document::from_json(&std::fs::read_to_string(&output).unwrap()).unwrap();
    assert_eq!(document.runs().len(), 1, "{told}");
    let mut caveats = document.caveats.iter();
    let missing = caveats
        .find(|of| of.code == "phases-not-begun")
        .expect("it is told");
    assert_eq!(
        missing.text,
        "2 of 3 phases were not begun, since it was asked to end: 'phase 2', 'phase 3'"
    );
    assert!(told.contains(&missing.text), "{told}");
}

#[test]
fn a_load_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("load.json");
    let load = ["bench", "-t", "200ms", "null:?size=1G", "mem:?size=16M"];
    retry("requests to both volumes", |_| {
        let (document, _) = stored(&load, &output);
        let run = document.runs()[0];
        assert_eq!(run.volumes.len(), 2);
        let of_volume = |index: usize| run.volumes[index].operations.as_ref().unwrap().requests();
        assert_eq!(of_volume(0) + of_volume(1), run.operations.requests());
        (of_volume(0) > 0 && of_volume(1) > 0).then_some(())
    });
}

/// Three volumes cannot share one request a second: they are offered three, and the point says so.
#[test]
fn a_small_rate_of_several_volumes_is_what_is_offered() {
    let curve = curve(&[
        "curve",
        SLOW,
        SLOW,
        SLOW,
        "--maximum",
        "10",
        "--rates",
        "10",
        "--arrivals",
        "uniform",
        "--no-refinement",
        "--duration",
        "1s",
    ]);
    let [point] = &curve.points[..] else {
        panic!("one point was asked for: {:?}", curve.points);
    };
    assert_eq!((point.offered, point.percent_of_maximum), (3.0, Some(30.0)));
    assert_eq!(point.run.operations.requests(), 3);
}

/// A depth that is asked for raises the highest one, where that is not said.
#[test]
fn a_comparison_may_be_at_a_greater_depth_than_the_usual_highest() {
    let volume = "null:?size=1G&rate=20000&delay=1ms";
    let (comparison, _) = comparison(&[
        "compare",
        volume,
        volume,
        "-d",
        "300",
        "--rounds",
        "4",
        "--duration",
        "50ms",
        "--ramp",
        "10ms",
    ]);
    let depths: Vec<_> = comparison
        .stages
        .iter()
        .flat_map(|stage| &stage.loads)
        .map(|load| load.outstanding())
        .collect();
    assert!(!depths.is_empty() && depths.iter().all(|depth| *depth == 300));
}

#[test]
fn a_curve_ends_with_the_first_point_beyond_its_bound() {
    let slow = "null:?size=1G&delay=5ms";
    let points = |until: &[&str]| {
        let common = ["curve", slow, "--depths", "1..4", "--no-refinement"];
        let short = ["-t", "100ms", "--ramp", "20ms"];
        curve(&[&common[..], &short, until].concat()).points.len()
    };
    assert_eq!(points(&["--until", "p99<1ms"]), 1);
    assert_eq!(points(&["--until", "p99<3600s"]), 3);
    assert_eq!(points(&[]), 3);
}

#[test]
fn a_comparison_is_as_sure_as_asked_and_knows_the_link_that_it_is_told_of() {
    let stages = ["-d", "8", "--rounds", "4", "-t", "40ms", "--ramp", "10ms"];
    let faster = "null:?size=1G&rate=1600&delay=1ms";
    let compare =
        |more: &[&str]| comparison(&[&["compare", faster, SLOW][..], &stages, more].concat());
    let least = ["--confidence", "90", "--least", "100"];
    let (other, codes) = compare(&least);
    assert_eq!(other.confidence_percent, 90.0);
    // Less by all of it is the most that less can be.
    let throughput = other.stages[2].differences.iter();
    let mut throughput = throughput.filter(|of| of.metric == Metric::Throughput);
    let throughput = throughput.next().unwrap();
    assert_ne!(throughput.verdict, Verdict::Worse, "{throughput:?}");
    assert!(!codes.contains(&"same-limit-link".to_owned()), "{codes:?}");
    // A megabit a second is 30 requests.
    let (_, codes) = compare(&["--link", "0.001"]);
    assert!(codes.contains(&"same-limit-link".to_owned()), "{codes:?}");
}

/// Streams in words are those of a job file.
#[test]
fn several_sorts_of_requests_go_without_a_job_file() {
    let streams = [
        "--stream",
        "share=75 read=100 block_size=8k",
        "--stream",
        "share=25 write=100 block_size=64k access=sequential",
    ];
    let volume = "mem:?size=16M";
    // However late they are sent, there is room for all.
    let offered = ["--rate", "2000", "-t", "200ms", "-d", "400", "--json"];
    let output = weir(&[&["bench", volume][..], &offered, &streams].concat());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let document = Document::from_json(&told["result"].to_string()).unwrap();
    let [run] = document.runs()[..] else {
        panic!("one run was expected")
    };
    let (reads, writes) = (&run.operations.read, &run.operations.write);
    assert_eq!(reads.bytes, reads.requests * 8192);
    assert_eq!(writes.bytes, writes.requests * 65536);
    let share = reads.requests as f64 / run.operations.requests() as f64;
    assert!((0.65..0.85).contains(&share), "{share}");
    let short = ["curve", volume, "--depths", "1", "-t", "200ms"];
    let curve = curve(&[&short[..], &streams].concat());
    assert_eq!(curve.points[0].run.workload.streams.len(), 2);
}

/// Where requests begin shows in a file of which nothing else was written.
#[test]
fn random_requests_begin_at_multiples_of_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    let created = std::fs::File::create(&file).unwrap();
    created.set_len(4 << 20).unwrap();
    let url = format!("file:{}", file.display());
    let output = weir(&[
        "bench",
        &url,
        "--write",
        "100",
        "--block-size",
        "4k",
        "--align",
        "64k",
        "--rate",
        "500",
        "-d",
        "100",
        "-t",
        "200ms",
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let bytes = std::fs::read(&file).unwrap();
    let written = bytes
        .chunks(4096)
        .map(|block| block.iter().any(|&byte| byte != 0));
    let written: Vec<_> = written.collect();
    let (begin, others): (Vec<_>, Vec<_>) = written
        .iter()
        .enumerate()
        .partition(|(block, _)| block % 16 == 0);
    assert!(begin.iter().filter(|of| *of.1).count() > 1, "{begin:?}");
    assert!(others.iter().all(|of| !*of.1));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, part) in [
        (&["compare", SLOW][..], "name another"),
        (
            &["compare", SLOW, SLOW, "--against", SLOW],
            "2 against 1 volumes",
        ),
        (&["compare", SLOW, SLOW, "--rounds", "3"], "4..=1000"),
        (
            &["compare", SLOW, SLOW, "-d", "9", "--depth-max", "8"],
            "a depth of 9 is above the highest depth, 8",
        ),
        (&["curve", SLOW, "--depths", "8..1"], "more than"),
        (&["curve", SLOW, "--objective", "p99=2ms"], "p99<2ms"),
        (&["curve", SLOW, "--maximum", "5"], "--rates"),
        (&["curve", SLOW, "--hosts", "2"], "nvme+tcp"),
        (&["curve", SLOW, "--sweep", "dscp=1,2"], "no TCP connection"),
        (&["curve", SLOW, "--sweep", "dscp=1"], "two at least"),
        (&["curve", SLOW, "--rounds", "8"], "--sweep"),
        (&["curve", SLOW, "--until", "p99>2ms"], "p99<2ms"),
        (
            &["bench", SLOW, "--stream", "shares=7"],
            "it has share, block_size",
        ),
        (
            &[
                "bench", SLOW, "--stream", "share=70", "--stream", "share=20",
            ],
            "the shares of the streams make 90 percent",
        ),
        (
            &[
                "bench",
                SLOW,
                "--stream",
                "share=100",
                "--read-percent",
                "50",
            ],
            "cannot be used with",
        ),
        (
            &["compare", SLOW, SLOW, "--confidence", "100"],
            "50 to 99.999",
        ),
        (&["compare", SLOW, SLOW, "--least", "101"], "0 to 100"),
        (&["compare", SLOW, SLOW, "--link", "0"], "0.001 to 10000"),
        (&["bench", SLOW, "--reactors", "1000"], "ask for at most"),
        (
            &["curve", SLOW, "-o", "a.json", "--report", "a.json"],
            "would replace",
        ),
        (&["curve", SLOW, "-o", "/nowhere/at/all"], "/nowhere/at/all"),
    ] {
        let output = weir(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(part), "{arguments:?}: {errors}");
    }
}
