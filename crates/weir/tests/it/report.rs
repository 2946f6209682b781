//! `weir report` as a user calls it: stored results in, a page or a table out, and words that help where something is wrong.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use weir_lab::document::{
    Body, Document, Latency, Load, Machine, Operation, Operations, Processor, Run, SizeShare,
    Stream, Volume, Workload,
};

fn weir(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("weir runs")
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn result(latency_ns: u64) -> Document {
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    histogram.record_n(latency_ns, 1000).unwrap();
    let run = Run {
        name: "bench".to_owned(),
        phase: None,
        volumes: vec![Volume {
            url: "null:?size=1G".to_owned(),
            name: "null".to_owned(),
            block_size_bytes: 4096,
            length_bytes: 1 << 30,
            transfer_bytes_max: 1 << 20,
            volatile_cache: false,
            operations: None,
        }],
        workload: Workload {
            text: "4 KiB random read".to_owned(),
            streams: vec![Stream {
                share_percent: 100.0,
                read_percent: 100.0,
                sizes: vec![SizeShare {
                    bytes: 4096,
                    percent: 100.0,
                }],
                pattern: "random".to_owned(),
                ..Stream::default()
            }],
            ..Workload::default()
        },
        load: Load::Closed {
            depth: 1,
            queues: 1,
            hosts: 1,
        },
        seed: 1,
        ramp_seconds: 0.0,
        elapsed_seconds: 1.0,
        operations: Operations {
            read: Operation {
                requests: 1000,
                bytes: 4_096_000,
                errors: 0,
                service: Latency::of(&histogram),
                response: None,
            },
            ..Operations::default()
        },
        ended: None,
        intervals: Vec::new(),
        lag: None,
        late_ns_max: None,
        unsent: 0,
        unfinished: 0,
        littles_law: None,
        steady_state: None,
        processor: Processor::default(),
        first_error: None,
        agents: None,
    };
    Document::new(
        Body::Bench { runs: vec![run] },
        vec!["weir".to_owned(), "bench".to_owned()],
        "0.1.0".to_owned(),
        "2026-01-31T12:00:00Z".to_owned(),
        Machine::default(),
    )
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, latency_ns) in [("a.json", 100_000), ("b.json", 200_000)] {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        result(latency_ns).write(file).unwrap();
    }
    folder
}

#[test]
fn results_are_drawn_together() {
    let folder = folder();
    let output = weir(
        &["report", "a.json", "b.json", "-o", "both.html"],
        folder.path(),
    );
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(folder.path().join("both.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("2 results side by side"));
    // Without --output the page goes to whoever reads it.
    let output = weir(&["report", "a.json", "b.json"], folder.path());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), page);
}

#[test]
fn the_ending_of_the_file_or_the_format_says_what_is_written() {
    let folder = folder();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(
        weir(&["report", "a.json", "-o", "a.csv"], folder.path())
            .status
            .success()
    );
    assert_eq!(read("a.csv").lines().count(), 3);
    assert!(
        weir(&["report", "a.json", "-o", "a.hlog"], folder.path())
            .status
            .success()
    );
    assert!(read("a.hlog").contains("[Histogram log format version 1.3]"));
    assert!(
        weir(&["report", "a.json", "-f", "fio", "-o", "x"], folder.path())
            .status
            .success()
    );
    let fio: serde_json::Value = serde_json::from_str(&read("x")).unwrap();
    assert_eq!(fio["jobs"][0]["read"]["total_ios"], 1000);
    let flat = weir(
        &["report", "a.json", "b.json", "--format", "vdbench"],
        folder.path(),
    );
    let flat = String::from_utf8(flat.stdout).unwrap();
    assert!(
        flat.contains(" a__bench avg_1-1 ") && flat.contains(" b__bench avg_1-1 "),
        "{flat}"
    );
}

#[test]
fn what_is_wrong_is_said_with_the_file() {
    let folder = folder();
    let said = error(&weir(&["report", "absent.json"], folder.path()));
    assert!(said.contains("absent.json"), "{said}");
    fs::write(folder.path().join("other.json"), "{\"jobs\": []}").unwrap();
    let said = error(&weir(&["report", "a.json", "other.json"], folder.path()));
    assert!(
        said.contains("other.json") && said.contains("no stored result"),
        "{said}"
    );
    let later = fs::read_to_string(folder.path().join("a.json")).unwrap();
    let later = later.replace("weir-result/1", "weir-result/9");
    fs::write(folder.path().join("later.json"), later).unwrap();
    let said = error(&weir(&["report", "later.json"], folder.path()));
    assert!(
        said.contains("later.json") && said.contains("weir-result/9"),
        "{said}"
    );
    let said = error(&weir(&["report", "a.json", "-f", "pdf"], folder.path()));
    assert!(said.contains("html, fio, vdbench, csv, hdr"), "{said}");
    let said = error(&weir(
        &["report", "a.json", "-o", "no/such/a.html"],
        folder.path(),
    ));
    assert!(said.contains("no/such/a.html"), "{said}");
    let broken = fs::read_to_string(folder.path().join("a.json")).unwrap();
    let broken = broken.replace("\"histogram\": \"H", "\"histogram\": \"!");
    fs::write(folder.path().join("broken.json"), broken).unwrap();
    let said = error(&weir(&["report", "broken.json"], folder.path()));
    assert!(said.contains("histogram"), "{said}");
}
