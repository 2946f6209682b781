//! `weir bench` at the command line: what it is told, and what it says.

use std::process::{Command, Output};

use serde_json::Value;

use crate::common::retry;

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
        "mem:?size=16M",
    ]);
    let volumes = report["volumes"].as_array().expect("a list");
    assert_eq!(volumes.len(), 2);
    // What is due follows from the seed, however much of it a busy machine gets done.
    let due = |of: &Value| count(of, "/total/requests") + count(of, "/unsent");
    let each: Vec<_> = volumes.iter().map(due).collect();
    assert_eq!(each.iter().sum::<u64>(), due(&report));
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
    let mean = |of: &Value| of["mean"].as_f64().expect("a number");
    let (service, response) = (
        &report["read"]["service_ns"],
        &report["read"]["response_ns"],
    );
    assert!(mean(service) <= mean(response));
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
    let arguments = [
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
        "300ms",
    ];
    // The process may be stopped for all of so short a time.
    let report = retry("requests of each kind", |_| {
        let report = report(&arguments);
        let some = |name| count(&report, &format!("/{name}/requests")) > 0;
        let all = ["read", "write", "deallocate", "flush"]
            .into_iter()
            .all(some);
        all.then_some(report)
    });
    let stream = &report["workload"]["streams"][0];
    let percents = ["read", "write", "deallocate", "flush"]
        .map(|name| count(stream, &format!("/{name}_percent")));
    assert_eq!(percents, [40, 40, 10, 10]);
    assert_eq!(
        (&stream["access"], &report["pattern"]),
        (&"zipf:1.1".into(), &"zipf:1.1".into())
    );
    assert!(report["block_size_bytes"].is_null());
    assert!(report["read"]["response_ns"].is_null() && report["lag_ns"].is_null());
    for name in ["in_flight", "rate_times_service", "error"] {
        assert!(report["littles_law"][name].is_number(), "{name}");
    }
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
        let offered = ["--rate", "1000", "-t", "50ms", "-d", "4"];
        let report = report(&[&["mem:?size=16M", "-w", name][..], &offered].concat());
        let due = count(&report, "/total/requests") + count(&report, "/unsent");
        assert_eq!(due, 50, "{name}");
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

/// A result that is stored is the one that is printed, and names no secret. (No volume has any; what is unknown is refused, and printed.)
#[test]
fn json_has_the_result_that_is_stored() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let file = folder.path().join("result.json");
    let path = file.to_str().expect("it is text");
    let report = report(&["null:?size=1G", "mem:?size=16M", "-t", "100ms", "-o", path]);
    let stored = std::fs::read_to_string(&file).expect("it is stored");
    let stored: Value = serde_json::from_str(&stored).expect("it is JSON");
    assert_eq!(stored["schema"], "weir-result/1");
    assert_eq!(report["result"], stored);
    let run = &stored["body"]["runs"][0];
    assert_eq!(run["unfinished"], report["unfinished"]);
}

#[test]
fn what_a_volume_is_refused_for_names_no_secret_and_no_reason_twice() {
    let output = bench(&["null:?size=1G&dhchap_secret=hush&psk=quiet"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("dhchap_secret"), "{said}");
    assert!(!said.contains("hush") && !said.contains("quiet"), "{said}");

    let output = bench(&["file:/nonexistent/x"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

/// A file can be open to be read as often as one likes, and to be written to or flushed once.
#[test]
fn a_flush_among_the_requests_opens_the_volume_for_writing() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let file = std::fs::File::create(folder.path().join("image")).expect("a file is made");
    file.set_len(1 << 20).expect("it has a length");
    let url = format!("file:{}", folder.path().join("image").display());
    let run = |volumes: &[&str], arguments: &[&str]| {
        let offered = ["--rate", "100", "-t", "100ms"];
        bench(&[volumes, &offered, arguments].concat())
    };
    let twice = [url.as_str(), &url];
    let read = run(&twice, &[]);
    let said = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{said}");
    for arguments in [["--flush", "10"], ["--write", "10"]] {
        let refused = run(&twice, &arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.contains("opened for writing once"),
            "{arguments:?}: {said}"
        );
    }
    let flushed = run(&twice[..1], &["--flush", "100"]);
    let report: Value = serde_json::from_slice(&flushed.stdout).expect("the report is JSON");
    let due = count(&report, "/flush/requests") + count(&report, "/unsent");
    assert_eq!((due, count(&report, "/errors")), (10, 0));
}

/// The process may not write beyond the first 8 KiB of a file, so that most of its writes fail.
#[test]
fn requests_that_failed_make_the_exit_status_say_so() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let file = folder.path().join("image");
    let made = std::fs::File::create(&file).expect("a file is made");
    made.set_len(1 << 20).expect("it has a length");
    let url = format!("file:{}", file.display());
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh", WEIR, "--json", "bench", &url])
        .args(["--write", "100", "--rate", "1000", "-t", "100ms"])
        .output()
        .expect("the shell runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("requests failed; the first: writing"),
        "{said}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert!(count(&report, "/write/errors") > 0);
    assert!(report["first_error"].is_string());
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

/// Little's law, whether throughput was steady, and what a gateway on this machine took: here the test itself stands for one.
#[test]
fn a_report_for_people_says_how_far_it_can_be_trusted() {
    let this = std::process::id().to_string();
    let volume = "null:?size=1G&rate=1000&delay=1ms";
    let parts = [
        " in flight, ",
        "(Little's law)",
        "steady  ",
        "10 rounds of 0.1s",
        "gateway ",
    ];
    // Nothing is said of a run in which the process was stopped, and nothing ended.
    retry(&format!("{parts:?}"), |_| {
        let output = Command::new(WEIR)
            .args(["bench", volume, "-t", "1s", "--interval", "100ms"])
            .args(["--gateway-pid", &this])
            .output()
            .expect("the tool runs");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("it is text");
        let lacks = parts.iter().find(|part| !text.contains(**part));
        lacks.inspect(|part| println!("{text} lacks {part}"));
        lacks.is_none().then_some(())
    });
    let time = ["-t", "500ms", "--interval", "100ms"];
    let arguments = [&[volume][..], &time, &["--gateway-pid", &this]].concat();
    let report = retry("a request", |_| {
        let report = report(&arguments);
        (count(&report, "/total/requests") > 0).then_some(report)
    });
    let run = &report["result"]["body"]["runs"][0];
    assert!(run["processor"]["gateway_seconds"].is_number(), "{run}");
    let steady = &run["steady_state"];
    assert_eq!(steady["rounds"].as_array().map(Vec::len), Some(5), "{run}");
    let is_told = report["caveats"].to_string().contains("not-steady");
    assert_eq!(is_told, steady["reached"] == false, "{report}");
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
        (
            vec![volume, "--rate", "1000000000000"],
            1,
            "at most 1000000000 can",
        ),
        (vec![volume, "--verify"], 1, "--verify checks what"),
        (
            vec!["mem:?size=1M", "-r", "0", "--verify", "--compress", "50"],
            1,
            "leave out --compress",
        ),
        (
            vec![volume, "--gateway-pid", "4294967295"],
            1,
            "--gateway-pid 4294967295: no process",
        ),
    ] {
        let output = bench(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}
