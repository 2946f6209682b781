//! The laboratory from end to end: every named workload on every kind of volume, stored, drawn, and the drawing read in a real browser.

mod common;
#[path = "common/gateway.rs"]
mod gateway;
#[path = "../../report/tests/reports/webdriver.rs"]
mod webdriver;

use std::path::Path;
use std::process::Command;

use common::free_port;
use gateway::{Gateway, WEIR};
use serde_json::Value;
use webdriver::Browser;
use weir_lab::document::{Body, Document, Run};

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

/// Runs a workload for a moment; what was stored.
fn bench(url: &str, workload: &str, folder: &Path) -> Document {
    let output = Command::new(WEIR)
        .args(["bench", url, "--workload", workload, "--duration", "400ms"])
        .args([
            "--interval",
            "100ms",
            "--queue-depth",
            "4",
            "--destroy-data",
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

/// The page shows the intervals of the result.
fn check_page(browser: &Browser, run: &Run, folder: &Path) {
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
    assert!(drawn.len() >= 2, "{drawn:?}");
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
}

#[test]
fn every_named_workload_runs_everywhere_and_is_drawn() {
    let mut gateway = Gateway::prepared("");
    gateway.start();
    let port = free_port();
    gateway.ok("volume add memory mem:?size=64M");
    gateway.ok(&format!("subsystem add {NQN} --allow-any-host"));
    gateway.ok(&format!("namespace add {NQN} memory"));
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let made = std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20));
    made.expect("a file can be made");
    let file = format!("file:{}", image.display());
    let remote = format!("nvme+tcp://127.0.0.1:{port}/{NQN}?nsid=1");
    let browser = Browser::start();
    for workload in workloads() {
        for url in ["mem:?size=64M", &file, &remote] {
            let document = bench(url, &workload, folder.path());
            let run = document.runs()[0];
            assert_eq!(run.workload.name.as_deref(), Some(&*workload), "{url}");
            assert_eq!(
                run.errors(),
                0,
                "{workload} on {url}: {:?}",
                run.first_error
            );
            assert!(run.operations.requests() > 0, "{workload} on {url}");
            if let Some(browser) = &browser {
                check_page(browser, run, folder.path());
            }
        }
    }
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
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
        assert!(output.status.success(), "{arguments:?}: {said}");
    };
    let read = |name: &str| {
        let stored = std::fs::read_to_string(folder.path().join(name)).expect("a result");
        Document::from_json(&stored).expect("a result")
    };
    let slow = "null:?size=1G&rate=2000&delay=2ms";
    let short = ["-t", "200ms", "--ramp", "50ms"];
    weir(
        &[
            &[
                "curve",
                slow,
                "--depths",
                "1..16",
                "--output",
                "curve.json",
                "--report",
                "curve.html",
            ][..],
            &short,
        ]
        .concat(),
    );
    weir(
        &[
            &[
                "compare",
                slow,
                slow,
                "--rounds",
                "4",
                "--output",
                "compare.json",
                "--report",
                "compare.html",
            ][..],
            &short,
        ]
        .concat(),
    );
    weir(&["report", "curve.json", "compare.json", "-o", "both.html"]);
    weir(&["report", "curve.json", "compare.json", "-o", "both.csv"]);
    let Some(browser) = Browser::start() else {
        return;
    };
    let Body::Curve { curves } = read("curve.json").body else {
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
