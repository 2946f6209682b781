//! The laboratory from end to end: every named workload on every kind of volume, stored, drawn, and the drawing read in a real browser.

use std::path::Path;
use std::process::Command;

use crate::common::gateway::{Gateway, WEIR};
use crate::common::{free_port, nightly, retry};
use serde_json::Value;
use weir_lab::document::{Body, Document, Run};
use weir_testing::webdriver::Browser;

const NQN: &str = "nqn.2026-01.com.example:laboratory";

/// The names of the workloads, as the command lists them.
fn workloads() -> Vec<String> {
    let output = Command::new(WEIR)
        .args(["bench", "--list-workloads", "--json"])
        .output()
        .expect("weir runs");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("a list");
    let names: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|workload| workload["name"].as_str().expect("a name").to_owned())
        .collect();
    assert!(names.len() >= 13, "{names:?}");
    names
}

/// Runs a workload for a moment, in which something ends; what was stored.
fn bench(url: &str, workload: &str, folder: &Path) -> Document {
    retry("a request", |_| {
        let document = bench_once(url, workload, folder);
        let requests = document.runs()[0].operations.requests();
        (requests > 0).then_some(document)
    })
}

fn bench_once(url: &str, workload: &str, folder: &Path) -> Document {
    let output = Command::new(WEIR)
        .args(["bench", url, "--workload", workload, "--duration", "100ms"])
        .args([
            "--interval",
            "25ms",
            "--queue-depth",
            "4",
            "--destroy-data",
            url,
        ])
        .args(["--output", "result.json", "--report", "report.html"])
        .args(["--report", "report.csv"])
        .current_dir(folder)
        .output()
        .expect("weir runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{workload} on {url}: {said}");
    let stored = std::fs::read_to_string(folder.join("result.json")).expect("a result");
    Document::from_json(&stored).expect("a result")
}

/// The page shows the intervals of the result; how many that are in which a request ended.
fn check_page(browser: &Browser, run: &Run, folder: &Path) -> usize {
    browser.open(&folder.join("report.html"));
    let drawn = browser.run(
        "return [...document.querySelectorAll('svg[data-plot=\"latency-over-time\"] g[data-series=\"max\"] circle')]
             .map((point) => [Number(point.dataset.x), Number(point.dataset.y)])",
    );
    let expected: Vec<(f64, f64)> = run
        .intervals
        .iter()
        .filter_map(|interval| {
            let felt = interval.operations.response().expect("a histogram");
            let felt = felt.or(interval.operations.service().expect("a histogram"))?;
            let middle = interval.start_seconds + interval.length_seconds / 2.0;
            Some((middle, felt.max_ns as f64))
        })
        .collect();
    let drawn: Vec<(f64, f64)> = serde_json::from_value(drawn).expect("points");
    let near = |(a, b): (f64, f64), (x, y): (f64, f64)| (a - x).abs() < 1e-9 && b == y;
    assert_eq!(drawn.len(), expected.len());
    assert!(
        drawn.iter().zip(&expected).all(|(a, b)| near(*a, *b)),
        "{drawn:?} and {expected:?}"
    );
    assert!(!drawn.is_empty());
    let counted = browser.run(
        "return [...document.querySelectorAll('svg[data-plot=\"heat\"] rect.cell')]
             .reduce((sum, cell) => sum + Number(cell.dataset.count), 0)",
    );
    let requests: u64 = run
        .intervals
        .iter()
        .map(|interval| interval.operations.requests())
        .sum();
    assert_eq!(counted.as_u64(), Some(requests));
    assert_eq!(browser.console(), Vec::<String>::new());
    let foreign: Vec<_> = browser
        .requested()
        .into_iter()
        .filter(|address| !address.starts_with("file://"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    drawn.len()
}

#[test]
fn every_named_workload_runs_everywhere_and_is_drawn() {
    let mut gateway = Gateway::started();
    let remote = gateway.serve(NQN, "memory", "mem:?size=64M&rate=4000");
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let made = std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20));
    made.expect("a file can be made");
    let file = format!("file:{}", image.display());
    let browser = Browser::start();
    let mut longest = 0;
    let volumes = ["mem:?size=64M&rate=4000", &*file, &*remote];
    for (place, workload) in workloads().into_iter().enumerate() {
        let chosen = match nightly() {
            true => &volumes[..],
            // Each kind of volume has its share of the workloads.
            false => &volumes[place % 3..][..1],
        };
        for &url in chosen {
            let document = bench(url, &workload, folder.path());
            let run = document.runs()[0];
            assert_eq!(run.workload.name.as_deref(), Some(&*workload), "{url}");
            assert_eq!(
                run.errors(),
                0,
                "{workload} on {url}: {:?}",
                run.first_error
            );
            if let Some(browser) = &browser {
                longest = longest.max(check_page(browser, run, folder.path()));
            }
        }
    }
    // On a machine that is busy with something else one run may be a single interval.
    assert!(
        browser.is_none() || longest >= 2,
        "{longest} intervals drawn at most"
    );
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
}

/// Connections under each of several settings, of the initiator and of the listener: a curve for each in one picture, and which is the best.
#[test]
fn settings_of_connections_are_swept_and_drawn_together() {
    let mut gateway = Gateway::started();
    let ports = [free_port(), free_port()];
    gateway.ok("volume add memory mem:?size=64M&rate=4000");
    gateway.ok(&format!("subsystem add {NQN} --allow-any-host"));
    gateway.ok(&format!("namespace add {NQN} memory"));
    let listeners = ports.map(|port| format!("127.0.0.1:{port}"));
    gateway.ok(&format!("listener add {} --send-buffer 64K", listeners[0]));
    gateway.ok(&format!("listener add {} --send-buffer 1M", listeners[1]));
    let folder = tempfile::tempdir().expect("a folder");
    let remote = format!("nvme+tcp://{}/{NQN}?nsid=1&kato=300s", listeners[0]);
    let sweep = |more: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(["curve", &remote, "--depths", "1,4", "-t", "50ms"]);
        command.args(["--ramp", "10ms", "--no-refinement", "--rounds", "4"]);
        command.args(["-o", "sweep.json", "--report", "sweep.html"]);
        let output = command.args(more).current_dir(folder.path()).output();
        output.expect("weir runs")
    };
    let both = format!("listener={},{}", listeners[0], listeners[1]);
    let (done, curves, settings) = retry("requests in every run", |_| {
        let done = sweep(&["--sweep", &both, "--sweep", "receive-buffer=128KiB,1MiB"]);
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("no request succeeded") {
            return None;
        }
        assert!(done.status.success(), "{said}");
        let stored = std::fs::read_to_string(folder.path().join("sweep.json")).expect("a result");
        let document = Document::from_json(&stored).expect("a result");
        let is_whole = document
            .runs()
            .iter()
            .all(|run| run.operations.requests() > 0);
        let Body::Curve { curves, settings } = document.body else {
            panic!("curves were measured")
        };
        is_whole.then_some((done, curves, settings))
    });
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    let expected: Vec<String> = listeners
        .iter()
        .flat_map(|at| {
            ["128KiB", "1MiB"].map(|size| format!("listener={at}, receive-buffer={size}"))
        })
        .collect();
    assert_eq!(names, expected);
    for (curve, at) in curves.iter().zip([0, 0, 1, 1]) {
        let url = &curve.points[0].run.volumes[0].url;
        assert!(
            url.contains(&listeners[at]) && url.contains("rcvbuf="),
            "{url}"
        );
        assert_eq!(curve.points.len(), 2);
    }
    let settings = settings.expect("the settings were compared");
    assert_eq!(
        (settings.sides.len(), settings.stages[0].differences.len()),
        (4, 9)
    );
    // The table on the terminal says the same.
    let shown = String::from_utf8_lossy(&done.stdout);
    assert!(shown.contains(&settings.summary), "{shown}");
    let best = format!("\n{} ", settings.sides[0].name);
    assert!(shown.contains(&best), "{shown}");

    let refused = sweep(&["--sweep", "congestion-control=cubic,nonesuch"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("nonesuch"),
        "{said}"
    );
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());

    let Some(browser) = Browser::start() else {
        return;
    };
    browser.open(&folder.path().join("sweep.html"));
    for (index, curve) in curves.iter().enumerate() {
        let drawn = browser.run(&format!(
            "return [...document.querySelectorAll('svg[data-plot=\"latency-against-throughput\"] g[data-series=\"subject-{index}\"][data-choice=\"p99\"] circle')]
                 .map((point) => Number(point.dataset.x))"
        ));
        let rates: Vec<f64> = curve.points.iter().map(|point| point.run.rate()).collect();
        let drawn: Vec<f64> = serde_json::from_value(drawn).expect("points");
        assert_eq!(drawn, rates, "{}", curve.name);
    }
    let ranges = browser.run("return document.querySelectorAll('[data-difference]').length");
    assert_eq!(ranges.as_u64(), Some(9));
    let text = browser.run("return document.body.innerText");
    let text = text.as_str().expect("text");
    assert!(text.contains(&settings.summary), "{text}");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// What a drawing of latency against throughput shows of a statistic: requests per second and nanoseconds.
fn against_throughput(browser: &Browser, statistic: &str) -> Vec<(f64, f64)> {
    let drawn = browser.run(&format!(
        "return [...document.querySelectorAll('svg[data-plot=\"latency-against-throughput\"] g[data-series=\"{statistic}\"] circle')]
             .map((point) => [Number(point.dataset.x), Number(point.dataset.y)])"
    ));
    serde_json::from_value(drawn).expect("points")
}

#[test]
fn a_curve_and_a_comparison_draw_themselves() {
    let folder = tempfile::tempdir().expect("a folder");
    let weir = |arguments: &[&str]| {
        let output = Command::new(WEIR)
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .expect("weir runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_nothing = said.contains("no request succeeded");
        assert!(
            output.status.success() || is_nothing,
            "{arguments:?}: {said}"
        );
        !is_nothing
    };
    let read = |name: &str| {
        let stored = std::fs::read_to_string(folder.path().join(name)).expect("a result");
        Document::from_json(&stored).expect("a result")
    };
    let slow = "null:?size=1G&rate=2000&delay=2ms";
    let short = ["-t", "50ms", "--ramp", "10ms", "--output"];
    let curve = ["curve.json", "--report", "curve.html"];
    let curve = [&["curve", slow, "--depths", "1..16"][..], &short, &curve].concat();
    retry("requests in every run", |_| {
        let all_work = |document: &Document| {
            let runs = document.runs();
            runs.iter().all(|run| run.operations.requests() > 0)
        };
        (weir(&curve) && all_work(&read("curve.json"))).then_some(())
    });
    let compare = ["compare.json", "--report", "compare.html"];
    let sides = ["compare", slow, slow, "--rounds", "4"];
    let compare = [&sides[..], &short, &compare].concat();
    retry("requests on both sides", |_| weir(&compare).then_some(()));
    weir(&["report", "curve.json", "compare.json", "-o", "both.html"]);
    weir(&["report", "curve.json", "compare.json", "-o", "both.csv"]);
    let Some(browser) = Browser::start() else {
        return;
    };
    let Body::Curve { curves, .. } = read("curve.json").body else {
        panic!("a curve was measured")
    };
    browser.open(&folder.path().join("curve.html"));
    let expected: Vec<_> = curves[0]
        .points
        .iter()
        .map(|point| {
            let felt = point
                .run
                .felt()
                .expect("a histogram")
                .expect("requests ended");
            (
                point.run.rate(),
                felt.percentile_ns(99.0).expect("a histogram") as f64,
            )
        })
        .collect();
    assert_eq!(against_throughput(&browser, "p99"), expected);
    assert!(expected.len() >= 5, "{expected:?}");
    browser.open(&folder.path().join("compare.html"));
    let Body::Comparison(comparison) = read("compare.json").body else {
        panic!("a comparison was measured")
    };
    let said = browser.run("return document.body.innerText");
    assert!(
        said.as_str().expect("text").contains(&comparison.summary),
        "{said}"
    );
    let drawn = browser.run("return document.querySelectorAll('[data-difference]').length");
    let differences: usize = comparison
        .stages
        .iter()
        .map(|stage| stage.differences.len())
        .sum();
    assert_eq!(drawn.as_u64(), Some(differences as u64));
    browser.open(&folder.path().join("both.html"));
    let series = browser.run(
        "return document.querySelectorAll('svg[data-plot=\"latency-against-throughput\"] g[data-choice=\"p99\"]').length",
    );
    assert_eq!(series.as_u64(), Some(3), "the curve and two sides");
    assert_eq!(browser.console(), Vec::<String>::new());
}
