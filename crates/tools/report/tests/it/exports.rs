//! What is exported, read back by the programs that it is for.

use std::path::Path;
use std::process::Command;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;
use weir_lab::document::{Agents, Body};
use weir_report::{Format, ReportError, Source, write};

use crate::samples;
use weir_testing::webdriver;

fn text(format: Format, sources: &[Source]) -> String {
    let mut bytes = Vec::new();
    write(format, sources, &mut bytes).expect("a report");
    String::from_utf8(bytes).expect("text")
}

/// A program of the search path; none, and a line that says so, where this machine has it not.
fn program(name: &str) -> Option<std::path::PathBuf> {
    let found = webdriver::program(name);
    if found.is_none() {
        eprintln!("skipped: no {name} on this machine");
    }
    found
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

fn some() -> Vec<Source> {
    vec![
        samples::closed_bench("closed", 1, 90_000.0),
        samples::open_bench("open"),
    ]
}

/// The keys of an object with those of the objects in it, as paths; those of bins and percentiles are data and not form.
fn keys(value: &Value, path: &str, found: &mut Vec<String>) {
    let Some(object) = value.as_object() else {
        return;
    };
    for (key, value) in object {
        let path = format!("{path}/{key}");
        if !["bins", "percentile", "job options"].contains(&key.as_str()) {
            keys(value, &path, found);
        }
        found.push(path);
    }
}

#[test]
fn fio_json_has_every_key_that_fio_writes() {
    let Some(fio) = program("fio") else { return };
    let folder = tempfile::tempdir().unwrap();
    let theirs = output(
        Command::new(fio)
            .args([
                "--output-format=json+",
                "--ioengine=null",
                "--size=1M",
                "--bs=4k",
            ])
            .args(["--rw=randrw", "--name=keys", "--lat_percentiles=1"])
            .current_dir(folder.path()),
    );
    let theirs: Value = serde_json::from_str(&theirs).expect("JSON of fio");
    let ours: Value = serde_json::from_str(&text(Format::Fio, &some()[..1])).unwrap();
    let of = |value: &Value| {
        let mut found = Vec::new();
        keys(value, "", &mut found);
        keys(&value["jobs"][0], "jobs", &mut found);
        found
    };
    let ours = of(&ours);
    // A version of fio may have more than another, which no reader can count on; these depend on the engine.
    let missing: Vec<_> = of(&theirs)
        .into_iter()
        .filter(|key| !ours.contains(key) && !key.starts_with("/global options/"))
        .collect();
    assert!(missing.is_empty(), "fio writes {missing:?}");
    assert!(ours.len() > 100, "{ours:?}");
}

#[test]
fn fio_json_says_what_the_document_says() {
    let sources = some();
    let json: Value = serde_json::from_str(&text(Format::Fio, &sources)).unwrap();
    let jobs = json["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 2);
    let run = sources[0].document.runs()[0];
    let read = &jobs[0]["read"];
    assert_eq!(jobs[0]["jobname"], "closed: bench");
    assert_eq!(read["total_ios"], run.operations.read.requests);
    assert_eq!(read["io_bytes"], run.operations.read.bytes);
    assert_eq!(read["runtime"], 30_000);
    let iops = read["iops"].as_f64().unwrap();
    assert!((iops - run.operations.read.requests as f64 / 30.0).abs() < 1e-9);
    let service = run.operations.read.service.as_ref().unwrap();
    let percentiles = &read["clat_ns"]["percentile"];
    assert_eq!(
        percentiles["99.000000"],
        service.percentile_ns(99.0).unwrap()
    );
    assert_eq!(
        percentiles["99.990000"],
        service.percentile_ns(99.99).unwrap()
    );
    assert_eq!(read["clat_ns"]["max"], service.max_ns);
    assert_eq!(read["clat_ns"]["N"], service.count);
    assert_eq!(read["iops_samples"], 30);
    let bins = read["clat_ns"]["bins"].as_object().unwrap();
    let counted: u64 = bins.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted, service.count);
    assert_eq!(jobs[0]["job options"]["rw"], "randrw");
    assert_eq!(jobs[0]["job options"]["iodepth"], "32");
    // Every request is in one cell of the tables.
    let share: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|table| jobs[0][table].as_object().unwrap().values())
        .map(|share| share.as_f64().unwrap())
        .sum();
    assert!((share - 100.0).abs() < 1e-6, "{share}");

    // The open load keeps its two times apart.
    let run = sources[1].document.runs()[0];
    let read = &jobs[1]["read"];
    let response = run.operations.read.response.as_ref().unwrap();
    let service = run.operations.read.service.as_ref().unwrap();
    assert_eq!(read["lat_ns"]["max"], response.max_ns);
    assert_eq!(read["clat_ns"]["max"], service.max_ns);
    assert_ne!(response.max_ns, service.max_ns);
    assert_eq!(jobs[1]["job options"]["rate_iops"], "900");
    assert_eq!(jobs[1]["job options"]["rate_process"], "poisson");
    assert_eq!(jobs[1]["write"]["clat_ns"]["N"], 0);
}

/// What is partly random, or strided, is not called random.
#[test]
fn access_is_called_what_it_is() {
    for (pattern, rw, of_fio, seekpct) in [
        ("random", "randread", None, "100"),
        ("sequential", "read", None, "0"),
        (
            "random:10",
            "randread",
            Some(("percentage_random", "10")),
            "10",
        ),
        ("stride:64KiB", "read:61440", None, "n/a"),
        (
            "zipf:1.1",
            "randread",
            Some(("random_distribution", "zipf:1.1")),
            "100",
        ),
        (
            "hot:90/10,10/90",
            "randread",
            Some(("random_distribution", "zoned:90/10:10/90")),
            "100",
        ),
    ] {
        let mut source = samples::open_bench("open");
        let weir_lab::document::Body::Bench { runs } = &mut source.document.body else {
            unreachable!("it is a load")
        };
        runs[0].workload.streams[0].pattern = pattern.to_owned();
        let sources = [source];
        let json: Value = serde_json::from_str(&text(Format::Fio, &sources)).unwrap();
        let options = json["jobs"][0]["job options"].as_object().unwrap();
        assert_eq!(options["rw"], rw, "{pattern}");
        for name in ["percentage_random", "random_distribution"] {
            let expected = of_fio.filter(|of| of.0 == name).map(|of| of.1);
            let found = options.get(name).map(|value| value.as_str().unwrap());
            assert_eq!(found, expected, "{pattern}: {name}");
        }
        let flat = text(Format::Vdbench, &sources);
        let (heading, rows) = flatfile(&flat);
        let column = heading.iter().position(|name| *name == "seekpct").unwrap();
        assert!(
            rows.iter().all(|row| row[column] == seekpct),
            "{pattern}: {flat}"
        );
    }
}

#[test]
fn fios_own_reader_makes_tables_of_our_json() {
    let Some(reader) = program("fio_jsonplus_clat2csv") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let sources = some();
    std::fs::write(folder.path().join("weir.json"), text(Format::Fio, &sources)).unwrap();
    let ask = |more: &[&str]| {
        output(
            Command::new(&reader)
                .args(["weir.json", "weir.csv"])
                .args(more)
                .current_dir(folder.path()),
        )
    };
    ask(&[]);
    let said = ask(&["--validate"]);
    assert_eq!(said.matches("validated").count(), 2, "{said}");
    let table = std::fs::read_to_string(folder.path().join("weir_job0.csv")).unwrap();
    // The last row in which a read stands counts them all.
    let columns: Vec<_> = table.lines().next().unwrap().split(", ").collect();
    let at = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let cumulative = at("read_clat_ns_cumulative");
    let reads: u64 = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split(", ").nth(cumulative)?.trim().parse().ok())
        .max()
        .expect("reads");
    assert_eq!(
        reads,
        sources[0].document.runs()[0].operations.read.requests
    );
}

/// Latencies beyond what fio has bins for must not hang its readers.
#[test]
fn fios_own_reader_takes_latencies_longer_than_its_own() {
    let mut source = samples::closed_bench("long", 3, 90_000.0);
    let weir_lab::document::Body::Bench { runs } = &mut source.document.body else {
        unreachable!("it is a bench")
    };
    let mut histogram = runs[0]
        .operations
        .read
        .service
        .as_ref()
        .unwrap()
        .histogram()
        .unwrap();
    histogram.record(60_000_000_000).unwrap();
    histogram.record(90_000_000_000).unwrap();
    runs[0].operations.read.service = weir_lab::document::Latency::of(&histogram);
    let json: Value =
        serde_json::from_str(&text(Format::Fio, std::slice::from_ref(&source))).unwrap();
    let bins = &json["jobs"][0]["read"]["clat_ns"]["bins"];
    assert_eq!(bins[weir_report::FIO_LATENCY_NS_MAX.to_string()], 2);
    let Some(reader) = program("fio_jsonplus_clat2csv") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.json"), json.to_string()).unwrap();
    output(
        Command::new("timeout")
            .arg("300")
            .arg(reader)
            .args(["weir.json", "weir.csv"])
            .current_dir(folder.path()),
    );
}

/// The rows of a flat file by the rules of vdbench's own reader: the first line that begins with a blank has the columns; what comes after and
/// does not begin with `*` is a row; blanks part the values.
fn flatfile(text: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let mut lines = text.lines();
    let heading = lines
        .by_ref()
        .find(|line| line.starts_with(' '))
        .expect("a heading");
    let columns: Vec<_> = heading.split_whitespace().collect();
    let rows = lines
        .filter(|line| !line.starts_with('*'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    (columns, rows)
}

#[test]
fn a_flat_file_has_the_columns_and_values_of_vdbench() {
    let sources = some();
    let text = text(Format::Vdbench, &sources);
    let (columns, rows) = flatfile(&text);
    // In the order of vdbench 5.04.07; readers count them.
    let expected = "tod timestamp Run Interval reqrate rate MB/sec bytes/io read% resp read_resp write_resp resp_max read_max write_max \
        resp_std read_std write_std xfersize threads rdpct rhpct whpct seekpct lunsize version compratio dedupratio queue_depth cpu_used \
        cpu_user cpu_kernel cpu_wait cpu_idle";
    assert_eq!(columns, expected.split_whitespace().collect::<Vec<_>>());
    assert_eq!(rows.len(), 30 + 1 + 20 + 1);
    for row in &rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
    }
    let value = |row: &[&str], column: &str| -> String {
        row[columns.iter().position(|name| *name == column).unwrap()].to_owned()
    };
    let number = |row: &[&str], column: &str| -> f64 { value(row, column).parse().unwrap() };
    let run = sources[0].document.runs()[0];
    let average = &rows[30];
    assert_eq!(value(average, "Interval"), "avg_1-30");
    assert_eq!(value(average, "Run"), "closed__bench");
    assert_eq!(
        value(average, "reqrate"),
        weir_report::VDBENCH_RATE_MAXIMUM.to_string()
    );
    assert!((number(average, "rate") - run.rate()).abs() < 1e-3);
    let felt = run.felt().unwrap().unwrap();
    assert!((number(average, "resp") - felt.mean_ns / 1e6).abs() < 1e-3);
    assert!((number(average, "resp_max") - felt.max_ns as f64 / 1e6).abs() < 1e-3);
    assert_eq!(number(average, "xfersize"), 4096.0);
    assert_eq!(number(average, "threads"), 32.0);
    assert_eq!(number(average, "seekpct"), 100.0);
    assert_eq!(number(average, "lunsize"), 8.0);
    assert_eq!(number(average, "compratio"), 2.0);
    assert!((number(average, "rdpct") - 70.0).abs() < 1e-3);
    assert_eq!(value(average, "cpu_used"), "n/a");
    assert_eq!(value(&rows[0], "tod"), "12:00:03.000");
    assert_eq!(value(&rows[0], "timestamp"), "01/31/2026-12:00:03-UTC");
    assert_eq!(value(&rows[0], "Interval"), "1");
    assert_eq!(number(&rows[51], "reqrate"), 900.0);
}

#[test]
fn csv_has_a_row_for_each_run_interval_and_kind() {
    let sources = some();
    let text = text(Format::Csv, &sources);
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let heading = table.headers().unwrap().clone();
    let rows: Vec<_> = table.records().map(Result::unwrap).collect();
    // The first run has three kinds (read, write, all), the second two.
    assert_eq!(rows.len(), 31 * 3 + 21 * 2);
    let at = |name: &str| heading.iter().position(|column| column == name).unwrap();
    let run = sources[0].document.runs()[0];
    let whole = rows
        .iter()
        .find(|row| &row[at("scope")] == "run" && &row[at("operation")] == "all")
        .unwrap();
    assert_eq!(whole[at("requests")], run.operations.requests().to_string());
    assert_eq!(whole[at("volumes")], run.volumes[0].url);
    let felt = run.felt().unwrap().unwrap();
    assert_eq!(
        whole[at("service_p99.9_ns")],
        felt.percentile_ns(99.9).unwrap().to_string()
    );
    assert_eq!(&whole[at("response_p99.9_ns")], "");
    let summed: u64 = rows
        .iter()
        .filter(|row| &row[at("source")] == "closed" && &row[at("scope")] == "interval")
        .filter(|row| &row[at("operation")] == "write")
        .map(|row| row[at("requests")].parse::<u64>().unwrap())
        .sum();
    assert_eq!(summed, run.operations.write.requests);
}

#[test]
fn a_run_that_is_not_whole_does_not_look_whole() {
    let whole = samples::closed_bench("whole", 1, 90_000.0);
    let mut lost = samples::closed_bench("lost", 2, 90_000.0);
    let Body::Bench { runs } = &mut lost.document.body else {
        panic!("it is another sort")
    };
    runs[0].operations.read.errors = 0;
    runs[0].operations.write.errors = 0;
    runs[0].agents = Some(Agents {
        error: Some("agent two is lost:\nit broke".to_owned()),
        ..Agents::default()
    });
    let sources = [whole, lost];
    let json: Value = serde_json::from_str(&text(Format::Fio, &sources)).unwrap();
    assert_eq!(
        (&json["jobs"][0]["error"], &json["jobs"][1]["error"]),
        (&0.into(), &5.into())
    );
    let csv = text(Format::Csv, &sources);
    let mut table = csv::Reader::from_reader(csv.as_bytes());
    let error = table
        .headers()
        .unwrap()
        .iter()
        .position(|name| name == "error");
    for row in table.records() {
        let row = row.unwrap();
        assert_eq!(
            &row[0] == "lost",
            row[error.expect("a column")].contains("two is lost")
        );
    }
    let flat = text(Format::Vdbench, &sources);
    assert!(
        flat.contains("* lost__bench is not whole: agent two is lost: it broke\n"),
        "{flat}"
    );
    assert_eq!(flatfile(&flat).1.len(), 2 * 31);
    let log = text(Format::Hdr, &sources);
    assert!(
        log.contains("#[lost: bench is not whole: agent two is lost: it broke]\n"),
        "{log}"
    );
}

#[test]
fn the_histogram_log_holds_the_histograms() {
    let sources = some();
    let log = text(Format::Hdr, &sources[1..]);
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let mut starts = Vec::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        let LogEntry::Interval(line) = entry.expect("an entry") else {
            continue;
        };
        starts.push(line.start_timestamp());
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            line.encoded_histogram(),
        )
        .unwrap();
        let histogram: hdrhistogram::Histogram<u64> =
            hdrhistogram::serialization::Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .unwrap();
        let tag = line
            .tag()
            .map(|tag| tag.as_str().to_owned())
            .unwrap_or_default();
        *counts.entry(tag).or_default() += histogram.len();
    }
    let requests = sources[1].document.runs()[0].operations.requests();
    let expected = ["", "read.response", "read.service"].map(|tag| (tag.to_owned(), requests));
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    assert!(starts.is_sorted(), "it goes on in time: {starts:?}");
    starts.dedup();
    let intervals = sources[1].document.runs()[0].intervals.len();
    assert_eq!(starts.len(), intervals, "each begins at its own time");
}

/// The class path of HdrHistogram for Java, as Debian has it.
const HDR_JAR: &str = "/usr/share/java/hdrhistogram.jar";

#[test]
fn hdrhistograms_own_reader_finds_our_percentiles() {
    let Some(java) = program("java") else { return };
    if !Path::new(HDR_JAR).is_file() {
        eprintln!("skipped: no HdrHistogram for Java (libhdrhistogram-java) on this machine");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = some();
    for (source, requests_tag) in sources.iter().zip(["read", "read.service"]) {
        let log = folder.path().join("weir.hlog");
        std::fs::write(&log, text(Format::Hdr, std::slice::from_ref(source))).unwrap();
        let ask = |tag: Option<&str>| {
            let mut command = Command::new(&java);
            command
                .args([
                    "-cp",
                    HDR_JAR,
                    "org.HdrHistogram.HistogramLogProcessor",
                    "-csv",
                ])
                .args(["-outputValueUnitRatio", "1.0", "-i"])
                .arg(&log);
            if let Some(tag) = tag {
                command.args(["-tag", tag]);
            }
            let said = output(&mut command);
            percentiles(&said)
        };
        let run = source.document.runs()[0];
        let felt = run.felt().unwrap().unwrap();
        let (count, table) = ask(None);
        assert_eq!(count, felt.count);
        for percentile in [50.0, 90.0] {
            // Its table has a row at each half of what is left: the value at 50% and, between others, at 90%.
            let theirs = table
                .iter()
                .find(|(at, _)| *at >= percentile / 100.0)
                .expect("a row")
                .1;
            let ours = felt.percentile_ns(percentile).unwrap() as f64;
            assert!(
                (theirs - ours).abs() / ours < 0.01,
                "p{percentile}: {theirs} and {ours}"
            );
        }
        let longest = table.last().unwrap().1;
        let ours = felt.max_ns as f64;
        assert!(
            (longest - ours).abs() / ours < 0.001,
            "{longest} and {ours}"
        );
        let (reads, _) = ask(Some(requests_tag));
        assert_eq!(reads, run.operations.read.requests);
    }
}

/// Of what HistogramLogProcessor writes after its intervals: how many values there were, and the value at each part of 1.
fn percentiles(said: &str) -> (u64, Vec<(f64, f64)>) {
    let mut count = 0;
    let mut rows = Vec::new();
    for line in said.lines() {
        let cells: Vec<f64> = line
            .split(',')
            .filter_map(|cell| cell.trim().parse().ok())
            .collect();
        if let [value, at, total, ..] = cells[..] {
            count = total as u64;
            rows.push((at, value));
        }
    }
    (count, rows)
}

#[test]
fn there_is_no_report_of_nothing() {
    let body = weir_lab::document::Body::Bench { runs: Vec::new() };
    let nothing = Source {
        name: "nothing".to_owned(),
        document: samples::document(body, &["weir", "bench"]),
    };
    for format in Format::ALL {
        let result = write(format, std::slice::from_ref(&nothing), &mut Vec::new());
        assert!(matches!(result, Err(ReportError::Nothing)), "{format:?}");
    }
}
