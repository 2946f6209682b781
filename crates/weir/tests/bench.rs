//! `weir bench` at the command line: what it is told, and what it says.

use std::process::{Command, Output};

use serde_json::Value;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(WEIR);
    command.args(["--json", "bench"]).args(arguments);
    command.output().expect("the tool runs")
}

fn report(arguments: &[&str]) -> Value {
    let output = bench(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

fn count(report: &Value, pointer: &str) -> u64 {
    let value = report.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number at {pointer} of {report}"))
}

#[test]
fn several_volumes_share_a_rate_and_have_a_report_each() {
    let report = report(&[
        "null:?size=1G",
        "mem:?size=16M",
        "--workload",
        "sql-90-10",
        "--rate",
        "2001",
        "--arrivals",
        "exponential",
        "--duration",
        "500ms",
        "--interval",
        "100ms",
        "--destroy-data",
    ]);
    let volumes = report["volumes"].as_array().expect("a list");
    assert_eq!(volumes.len(), 2);
    let each: Vec<_> = volumes
        .iter()
        .map(|of| count(of, "/total/requests"))
        .collect();
    assert_eq!(each.iter().sum::<u64>(), count(&report, "/total/requests"));
    // 500 are due on each, and 6 standard deviations of a Poisson count are 134.
    assert!(each.iter().all(|of| of.abs_diff(500) < 140), "{each:?}");
    assert_eq!(report["workload"]["name"], "sql-90-10");
    assert_eq!(report["arrivals"], "exponential");
    assert_eq!(
        (
            count(&report, "/block_size_bytes"),
            count(&report, "/read_percent")
        ),
        (8192, 90)
    );
    for name in ["read", "write", "total"] {
        for time in ["service_ns", "response_ns", "latency_ns"] {
            assert!(report[name][time]["mean"].is_number(), "{name} {time}");
        }
    }
    assert!(report["read"]["service_ns"] != report["read"]["response_ns"]);
    assert_eq!(report["read"]["latency_ns"], report["read"]["response_ns"]);
    let intervals = report["intervals"].as_array().expect("a list");
    assert!(intervals.len() >= 5);
    let sum: u64 = intervals.iter().map(|of| count(of, "/requests")).sum();
    assert_eq!(sum, count(&report, "/total/requests"));
    assert!(report["lag_ns"]["percentile"]["99"].is_number());
    assert!(report["generator"]["processor_seconds"].as_f64() > Some(0.0));
}

#[test]
fn kinds_sizes_and_access_are_as_they_were_asked_for() {
    let report = report(&[
        "mem:?size=16M",
        "--mix",
        "4k:50,16k:50",
        "-r",
        "40",
        "--deallocate",
        "10",
        "--flush",
        "10",
        "--access",
        "zipf:1.1",
        "--compress",
        "50",
        "-t",
        "200ms",
    ]);
    let stream = &report["workload"]["streams"][0];
    let percents = ["read", "write", "deallocate", "flush"]
        .map(|name| count(stream, &format!("/{name}_percent")));
    assert_eq!(percents, [40, 40, 10, 10]);
    assert_eq!(
        (&stream["access"], &report["pattern"]),
        (&"zipf:1.1".into(), &"zipf:1.1".into())
    );
    assert!(report["block_size_bytes"].is_null());
    for name in ["read", "write", "deallocate", "flush"] {
        assert!(count(&report, &format!("/{name}/requests")) > 0, "{name}");
    }
    assert!(report["read"]["response_ns"].is_null() && report["lag_ns"].is_null());
    assert!(
        report["littles_law"]["error"].as_f64() < Some(0.05),
        "{}",
        report["littles_law"]
    );
}

#[test]
fn every_named_workload_is_listed_and_runs() {
    let list = bench(&["--list-workloads"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("the list is JSON");
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), 14);
    for of in list {
        let name = of["name"].as_str().expect("a name");
        assert!(of["source"].is_string() && of["about"].is_string());
        let report = report(&["mem:?size=16M", "-w", name, "-t", "50ms", "-d", "4"]);
        assert!(count(&report, "/total/requests") > 0, "{name}");
        assert_eq!(count(&report, "/errors"), 0, "{name}");
    }
    let shown = Command::new(WEIR)
        .args(["bench", "--list-workloads"])
        .output();
    let shown = String::from_utf8(shown.expect("the tool runs").stdout).expect("it is text");
    assert!(
        shown.contains("oltp1") && shown.contains("from: JEDEC"),
        "{shown}"
    );
}

#[test]
fn a_report_for_people_names_what_was_done() {
    let output = Command::new(WEIR)
        .args([
            "bench",
            "null:?size=1G",
            "null:?size=2G",
            "--rate",
            "1000",
            "-t",
            "200ms",
        ])
        .output()
        .expect("the tool runs");
    let text = String::from_utf8(output.stdout).expect("it is text");
    for part in [
        "4KiB random, 100% read, 1,000 offered per second (uniform)",
        "read (service)",
        "all volumes",
        "lag     sent after due",
        "cost    ",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
}

#[test]
fn wrong_arguments_are_named_with_what_is_allowed() {
    let volume = "null:?size=1G";
    for (arguments, code, says) in [
        (
            vec![volume, "-w", "sql-70-30"],
            2,
            "there are 4k-random-read, ",
        ),
        (
            vec![volume, "-w", "sql", "-b", "4k"],
            2,
            "cannot be used with",
        ),
        (vec![volume, "--mix", "4k:50,8k"], 2, "4k:70,64k:30"),
        (
            vec![volume, "--mix", "4k:50,8k:40"],
            1,
            "the shares of the sizes make 90 percent",
        ),
        (vec![volume, "--access", "zipf:x"], 2, "pareto:SHARE"),
        (vec![volume, "--access", "zipf:7"], 2, "above 0, at most 5"),
        (
            vec![volume, "-r", "60", "--write", "50"],
            1,
            "make 110 percent",
        ),
        (
            vec![volume, "-r", "60", "--write", "30"],
            1,
            "make 90 percent",
        ),
        (
            vec![volume, "--flush", "70", "--deallocate", "70"],
            1,
            "make 140 percent",
        ),
        (vec![volume, "--arrivals", "exponential"], 2, "--rate"),
        (
            vec![volume, "--rate", "10", "--arrivals", "bursts"],
            2,
            "uniform and exponential are",
        ),
        (
            vec![volume, volume, "--rate", "1"],
            1,
            "one request a second for each of 2 volumes",
        ),
        (vec![volume, "--hosts", "2"], 1, "knows no hosts"),
        (
            vec![volume, "--interval", "10us"],
            1,
            "intervals of 50µs or longer",
        ),
    ] {
        let output = bench(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}
