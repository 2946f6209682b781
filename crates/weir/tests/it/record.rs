//! `weir record` as a process: what was recorded is read back, by the tools of others too, whatever ended the recording.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use weir_testing::webdriver::Browser;

use crate::common::gateway::WEIR;
use crate::common::{catches, nightly, until};

fn weir(arguments: &str) -> Output {
    Command::new(WEIR)
        .arg("record")
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

#[track_caller]
fn ok(arguments: &str) -> String {
    let output = weir(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weir record {arguments}: {text}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[track_caller]
fn json(arguments: &str) -> Value {
    serde_json::from_str(&ok(&format!("{arguments} --json"))).expect("it is JSON")
}

#[track_caller]
fn fails(arguments: &str, words: &[&str]) {
    let output = weir(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "weir record {arguments} succeeds");
    for word in words {
        assert!(
            text.contains(word),
            "{arguments} does not say {word:?}: {text}"
        );
    }
}

/// A folder, and a ring of two files in it.
fn ring(size: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let volume = |name: &str| format!("file:{}/{name}?size={size}", folder.path().display());
    let volumes = format!("{} {}", volume("a"), volume("b"));
    (folder, volumes)
}

#[test]
fn what_is_recorded_is_extracted_and_read_by_others() {
    let (folder, volumes) = ring("40M");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let all = path("all.pcapng");
    fails(
        &format!("generate:packets?count=10 {volumes}"),
        &["carries no ring", "say --new"],
    );
    let recorded = json(&format!("generate:packets?count=20000 {volumes} --new"));
    assert_eq!(
        (&recorded["ended"], &recorded["counts"]["kept"]),
        (&Value::from("source"), &Value::from(20_000))
    );
    let listed = ok(&format!("list {volumes}"));
    for piece in ["RECORDING", "20,000", "whole"] {
        assert!(listed.contains(piece), "{listed}");
    }
    ok(&format!("extract {volumes} --out {all}"));
    let mode = std::fs::metadata(&all).expect("it is there").permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
    assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
    fails(&format!("extract {volumes} --out {all}"), &["exists"]);
    // A file in, the same packets out.
    let copy = path("copy.pcapng");
    let other = format!("file:{}?size=40M", path("c"));
    ok(&format!("pcap:{all} {other} --new --when-full stop"));
    ok(&format!("extract {other} --out {copy}"));
    let found = json(&format!(
        "extract {other} --out {} --count 100",
        path("few.pcapng")
    ));
    assert_eq!(found["packets"], 100);
    // Any bytes, by standard input too.
    let bytes = format!("file:{}?size=40M", path("d"));
    ok(&format!("bytes:{all} {bytes} --new"));
    let whole = path("whole");
    ok(&format!("extract {bytes} --out {whole}"));
    let [before, after] = [&all, &whole].map(|path| std::fs::read(path).expect("it is there"));
    assert!(before == after, "bytes come back as they came");
    assert!(ok(&format!("verify {volumes}")).contains("checked 20,000"));
    fails(
        &format!("generate:packets?count=1 {volumes} --new"),
        &["carries a recorder's ring", "--destroy-data"],
    );
    fails(
        &format!("bytes:{all} {volumes}"),
        &["holds packets", "yields bytes"],
    );
    fails(
        &format!("pcap:/etc/hostname {volumes}"),
        &["signatures of pcap"],
    );
    let Ok(looked) = Command::new("capinfos")
        .args(["-Mcu", &all, &copy])
        .output()
    else {
        println!("skipped: capinfos is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&looked.stdout).into_owned();
    assert!(looked.status.success(), "{text}");
    let counts = text
        .lines()
        .filter(|line| line.starts_with("Number of packets:"));
    let counts: Vec<_> = counts
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(counts, ["20000", "20000"], "{text}");
    let fields = |path: &str| {
        let tshark = Command::new("tshark")
            .args([
                "-r",
                path,
                "-T",
                "fields",
                "-e",
                "frame.time_epoch",
                "-e",
                "frame.len",
                "-e",
                "data.data",
            ])
            .output()
            .expect("tshark comes with capinfos");
        assert!(tshark.status.success(), "{tshark:?}");
        tshark.stdout
    };
    assert!(
        fields(&all) == fields(&copy),
        "times, lengths and data are the same"
    );
}

/// The last byte of a made-up packet's number is byte 15 of UDP.
#[test]
fn packets_are_extracted_by_a_filter() {
    let (folder, volumes) = ring("40M");
    ok(&format!(
        "generate:packets?count=1000&size=200 {volumes} --new"
    ));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let out = path("some.pcapng");
    fails(
        &format!("extract {volumes} --out {out} --filter udp[15"),
        &["invalid filter 'udp[15'", "man 7 pcap-filter"],
    );
    assert!(
        !Path::new(&out).exists(),
        "a failed extraction leaves no file"
    );
    let found = json(&format!(
        "extract {volumes} --out {out} --filter udp[15]==7"
    ));
    assert_eq!(
        (&found["packets"], &found["filtered"]),
        (&4.into(), &996.into()),
        "7, 263, 519 and 775"
    );
    let file = std::fs::read(&out).expect("it is there");
    let (mut reader, mut left, mut numbers) = (weir_pcap::Reader::new(), &file[..], Vec::new());
    while let Some(found) = reader.next(&mut left).expect("a file of packets") {
        if let weir_pcap::Found::Packet(packet) = found {
            numbers.extend(weir_record::Generator::number_of(packet.data));
        }
    }
    assert_eq!(numbers, [7, 263, 519, 775]);
    let few = path("few.pcapng");
    let text = ok(&format!(
        "extract {volumes} --out {few} --filter udp[15]==7 --count 2"
    ));
    assert!(text.starts_with("extracted 2 packets, "), "{text}");
    let (_other, bytes) = ring("40M");
    ok(&format!("generate:bytes?count=10 {bytes} --new"));
    fails(
        &format!("extract {bytes} --out {out}.bytes --filter udp"),
        &["this ring holds bytes"],
    );
    assert!(!Path::new(&format!("{out}.bytes")).exists());
}

#[test]
fn a_stream_is_recorded_until_it_ends() {
    let (folder, volumes) = ring("40M");
    let mut child = Command::new(WEIR)
        .arg("record")
        .args(format!("tcp:127.0.0.1:0 {volumes} --new").split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    stderr.read_line(&mut said).expect("it says where");
    let address = said.trim_end().rsplit(' ').next().expect("an address");
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|index| (index % 247) as u8)
        .collect();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&bytes).expect("it takes all");
    drop(stream);
    assert!(child.wait().expect("it ends").success());
    let out = folder.path().join("out");
    ok(&format!("extract {volumes} --out {}", out.display()));
    assert!(std::fs::read(out).expect("it is there") == bytes);
}

#[test]
fn a_killed_recorder_loses_its_last_moments_at_most() {
    let (folder, volumes) = ring("24M");
    ok(&format!(
        "generate:packets?count=10 {volumes} --new --segment-size 4M"
    ));
    let kills = if nightly() { 20 } else { 4 };
    let mut kept = Vec::new();
    for kill in 0..kills {
        let mut child = Command::new(WEIR)
            .arg("record")
            .args(
                format!("generate:packets?rate=80Mb/s&size=1000 {volumes} --sync 100ms").split(' '),
            )
            .env("RUNTIME_DIRECTORY", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let before = kept.len();
        until("something is committed", || {
            std::thread::sleep(Duration::from_millis(50 + 37 * kill));
            let listed = weir(&format!("list {volumes} --json"));
            let Ok(listed) = serde_json::from_slice::<Value>(&listed.stdout) else {
                return false;
            };
            let recordings = listed["recordings"].as_array().expect("a list").clone();
            let newest = recordings.last().expect("there is one");
            let id = newest["recording"].to_string();
            let is_new = !kept.contains(&id) && newest["packets"].as_u64() > Some(100);
            if is_new {
                kept.push(id);
            }
            is_new
        });
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
        assert_eq!(kept.len(), before + 1);
        let checked = json(&format!("verify {volumes}"));
        assert_eq!(checked["damaged"], serde_json::json!([]), "{checked}");
        let listed = json(&format!("list {volumes}"));
        let recordings = listed["recordings"].as_array().expect("a list");
        let newest = recordings.last().expect("there is one");
        assert_eq!(newest["recording"].to_string(), kept[before]);
        assert_eq!(newest["is_closed"], false, "it did not end in order");
    }
}

#[test]
fn on_modelled_drives_enough_of_them_lose_nothing_and_too_few_do() {
    let recorded = |drives: usize| {
        let drives: Vec<_> = (1..=drives)
            .map(|seed| format!("ssd:970-evo-plus-1tb?size=1GiB&seed={seed}"))
            .collect();
        let source = format!(
            "generate:bytes?rate=100Gb/s&size=256k&count={}",
            drives.len() * 4096
        );
        json(&format!(
            "{source} {} --new --simulated --buffer 256M --segment-size 4M",
            drives.join(" ")
        ))
    };
    let enough = recorded(8);
    assert_eq!(enough["counts"]["lost_slow"], 0, "{enough}");
    assert_eq!(enough["first_lost_seconds"], Value::Null);
    let few = recorded(4);
    let (lost, at) = (&few["counts"]["lost_slow"], &few["first_lost_seconds"]);
    assert!(lost.as_u64() > Some(0) && at.as_f64() > Some(0.0), "{few}");
    fails(
        "generate:bytes?count=1 null:?size=1G --new --simulated",
        &["null:?size=1G is not one"],
    );
    fails(
        "bytes:- ssd:970-evo-plus-1tb?size=1GiB --new --simulated",
        &["needs a generate: source"],
    );
}

#[test]
fn a_plan_is_told_before_it_is_recorded() {
    let (folder, volumes) = ring("40M");
    let result = folder.path().join("drive.json");
    let drive = "ssd:970-evo-plus-1tb?size=1GiB";
    let found = Command::new(WEIR)
        .args(["drive", drive, "--simulated", "--json"])
        .args(["--passes", "fill,overwrite-trimmed"])
        .output()
        .expect("the command runs");
    assert!(found.status.success(), "{found:?}");
    std::fs::write(&result, &found.stdout).expect("it is stored");
    let plan = result.display();
    let said = |arguments: &str| {
        let output = weir(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments}: {text}");
        text
    };
    let fits = said(&format!(
        "generate:packets?count=10&rate=1Gb/s {volumes} --new --plan {plan}"
    ));
    assert!(fits.contains("note: by the plan ("), "{fits}");
    assert!(fits.contains("2 drives keep up"), "{fits}");
    let fast = said(&format!(
        "generate:packets?count=10 {volumes} --plan {plan} --line 100Gb/s"
    ));
    assert!(fast.contains("warning: by the plan ("), "{fast}");
    let kept = said(&format!(
        "generate:packets?count=10 {volumes} --plan {plan} --line 1Gb/s --retain 1d"
    ));
    assert!(kept.contains("warning: by the plan ("), "{kept}");
    assert!(kept.contains("do not keep the 24 hours"), "{kept}");
    fails(
        &format!("generate:packets?count=10 {volumes} --plan {plan}"),
        &["say --line"],
    );
    fails(
        &format!("generate:packets?count=10 {volumes} --line 1Gb/s"),
        &["--plan"],
    );
}

/// A recorder that was started, and ends when it is dropped.
struct Running(Child);

impl Running {
    fn start(folder: &Path, arguments: &str) -> Self {
        let mut command = Command::new(WEIR);
        command.arg("record").args(arguments.split_whitespace());
        command.env("RUNTIME_DIRECTORY", folder);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Running(child.expect("it runs"))
    }

    /// The page of its figures. It must be started with `--metrics`.
    fn pages(&mut self) -> Pages {
        let mut said = BufReader::new(self.0.stderr.take().expect("it is piped"));
        let mut line = String::new();
        loop {
            line.clear();
            assert!(said.read_line(&mut line).expect("text") > 0, "it ended");
            if let Some(page) = line.strip_prefix("metrics at ") {
                return Pages(page.trim_end().to_owned(), said);
            }
        }
    }

    /// Asks it to stop: what it printed.
    fn stop(mut self) -> Value {
        let process = self.0.id();
        until("it handles the signal", || catches(process, Signal::INT));
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("it runs");
        let mut told = String::new();
        let mut stdout = self.0.stdout.take().expect("it is piped");
        stdout.read_to_string(&mut told).expect("text");
        assert!(self.0.wait().expect("it ends").success());
        serde_json::from_str(&told).expect("it is JSON")
    }
}

/// The address of a recorder's figures, and the rest of what it says.
struct Pages(String, BufReader<ChildStderr>);

impl Pages {
    fn text(&self) -> String {
        let mut answer = ureq::get(&self.0).call().expect("it answers");
        answer.body_mut().read_to_string().expect("text")
    }

    fn value(&self, name: &str) -> Option<f64> {
        value_of(&self.text(), name)
    }
}

/// A sample of a page of metrics.
fn value_of(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines.find(|(of, _)| *of == name)?.1.parse().ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The control socket of a ring in a folder.
fn socket_of(folder: &Path) -> Option<PathBuf> {
    let mut files = folder.read_dir().expect("a folder").flatten();
    let socket = files.find(|file| file.path().extension().is_some_and(|end| end == "sock"));
    socket.map(|file| file.path())
}

#[test]
fn a_recorder_tells_readers_when_its_buffers_fill() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    // Many times as fast as the volume.
    let source = "generate:bytes?rate=8Gb/s mem:?size=64M&rate=20 --buffer 8M --new --json";
    let mut recorder = Running::start(path, &format!("{source} --metrics 127.0.0.1:0"));
    let pages = recorder.pages();
    until("there is a control socket", || {
        socket_of(path).is_some_and(|socket| UnixStream::connect(socket).is_ok())
    });
    let socket = socket_of(path).expect("it is there");
    let mode = std::fs::metadata(&socket).expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o600, "it is its user's own");
    let mut stream = UnixStream::connect(&socket).expect("it answers");
    let limit = Some(Duration::from_secs(120));
    stream.set_read_timeout(limit).expect("a time limit");
    let mut byte = [0];
    let mut heard = Vec::new();
    while byte != *b"1" {
        stream.read_exact(&mut byte).expect("it goes on");
        heard.push(byte[0]);
    }
    assert!(heard.iter().all(|byte| b"01".contains(byte)), "{heard:?}");
    until("something is lost", || {
        pages.value("weir_record_lost_total{cause=\"slow\"}") > Some(0.0)
    });
    let told = recorder.stop();
    assert!(told["counts"]["lost_slow"].as_u64() > Some(0), "{told}");
    let volume = &told["volumes"][0];
    assert!(volume["held_up_seconds"].as_f64() > Some(0.0), "{told}");
    assert!(volume["written_bytes"].as_u64() > Some(0), "{told}");
    // Readers hear the end, and nothing is left.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("it ends");
    assert!(!socket.exists());
}

/// Readers connect to a running recorder, and to its successor.
#[test]
fn readers_listen_to_the_recorder_of_the_ring() {
    let (folder, volumes) = ring("24M");
    let made = json(&format!(
        "generate:packets?count=1000 {volumes} --new --segment-size 4M"
    ));
    let ring = made["ring"].as_str().expect("an identity");
    let socket = folder.path().join(format!("{ring}.sock"));
    let recorder = UnixListener::bind(&socket).expect("a socket");
    let out = folder.path().join("out.pcapng");
    let reader = Running::start(
        folder.path(),
        &format!("follow {volumes} --out {} --json", out.display()),
    );
    recorder.set_nonblocking(true).expect("it is set");
    for _ in 0..2 {
        let mut connection = None;
        until("the reader connects", || {
            connection = recorder.accept().ok();
            connection.is_some()
        });
        // On a slow machine the reader may have given up; it reconnects.
        let (mut stream, _) = connection.expect("there is one");
        let _ = stream.write_all(b"0101");
    }
    drop(recorder);
    std::fs::remove_file(&socket).expect("it is there");
    let out = folder.path().join("all.pcapng").display().to_string();
    assert_eq!(
        json(&format!("extract {volumes} --out {out}"))["packets"],
        1000
    );
    assert_eq!(reader.stop()["packets"], 0);
}

/// A socket left by a killed recorder is replaced.
#[test]
fn a_stale_control_socket_is_replaced() {
    let (folder, volumes) = ring("24M");
    let made = json(&format!(
        "generate:packets?count=10 {volumes} --new --segment-size 4M"
    ));
    let ring = made["ring"].as_str().expect("an identity");
    let socket = folder.path().join(format!("{ring}.sock"));
    drop(UnixListener::bind(&socket).expect("a socket"));
    let source = format!("generate:packets?rate=8Mb/s&size=1000 {volumes} --json");
    let recorder = Running::start(folder.path(), &source);
    until("it answers", || UnixStream::connect(&socket).is_ok());
    assert_eq!(recorder.stop()["ended"], "stopped");
    assert!(!socket.exists());
}

#[test]
fn figures_are_served_while_it_records() {
    let (folder, volumes) = ring("24M");
    let source =
        format!("generate:packets?rate=80Mb/s&size=1000 {volumes} --new --segment-size 4M");
    let arguments = format!("{source} --json --metrics 127.0.0.1:0");
    let mut recorder = Running::start(folder.path(), &arguments);
    let pages = recorder.pages();
    until("something was written", || {
        pages.value("weir_record_written_bytes_total") > Some(0.0)
    });
    let text = pages.text();
    let kept = value_of(&text, "weir_record_kept_total").expect("it is there");
    assert!(
        kept > 0.0 && Some(kept) <= value_of(&text, "weir_record_received_total"),
        "{text}"
    );
    for cause in ["before", "slow", "socket", "interface", "failed"] {
        let name = format!("weir_record_lost_total{{cause=\"{cause}\"}}");
        assert!(value_of(&text, &name).is_some(), "{text}");
    }
    for (number, name) in ["a", "b"].iter().enumerate() {
        let file = folder.path().join(name);
        let name = format!(
            "weir_record_volume_failed{{number=\"{number}\",volume=\"file:{}?size=24M\"}}",
            file.display()
        );
        assert_eq!(value_of(&text, &name), Some(0.0), "{text}");
    }
    let used = value_of(&text, "weir_record_buffers{state=\"used\"}");
    let free = value_of(&text, "weir_record_buffers{state=\"free\"}");
    assert_eq!(used.zip(free).map(|(used, free)| used + free), Some(64.0));
    // Silent connections do not block the page.
    let address = pages.0.trim_start_matches("http://");
    let address = address.trim_end_matches("/metrics");
    let connect = |_| TcpStream::connect(address).expect("it listens");
    let silent: Vec<_> = (0..8).map(connect).collect();
    assert!(pages.value("weir_record_kept_total").is_some());
    drop(silent);
    let other = ureq::get(&format!("http://{address}/other")).call();
    assert!(
        matches!(other, Err(ureq::Error::StatusCode(404))),
        "{other:?}"
    );
    assert_eq!(recorder.stop()["ended"], "stopped");
    fails(
        &format!("generate:packets?count=1 {volumes} --metrics nowhere"),
        &["--metrics nowhere", "cannot listen there"],
    );
}

/// The report of a session shows what came, what was lost and when, and which drive was slow.
#[test]
fn a_report_shows_rates_and_losses() {
    let (folder, volumes) = ring("24M");
    let page = folder.path().join("report.html");
    let file = page.display();
    ok(&format!(
        "generate:packets?count=5000 {volumes} --new --segment-size 4M --report {file}"
    ));
    let text = std::fs::read_to_string(&page).expect("it is there");
    for words in [
        "No losses; 5,000 received.",
        "generate:packets",
        "record-rates",
        "record-volumes",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("record-losses"), "nothing was lost");
    // Two modelled drives, one of which is much slower than the other, in simulated time.
    let drives = "ssd:970-evo-plus-1tb?size=1GiB&seed=1 ssd:consumer-qlc?size=1GiB&seed=2";
    let source = "generate:bytes?rate=12Gb/s&size=256k&count=24000";
    ok(&format!(
        "{source} {drives} --new --simulated --segment-size 4M --report {file}"
    ));
    let text = std::fs::read_to_string(&page).expect("it is there");
    for words in [
        " of 24,000 lost, the first after",
        "lost: slow volumes",
        "record-losses",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let Some(browser) = Browser::start() else {
        return;
    };
    browser.open(&page);
    let points = |plot: &str, series: usize| {
        let script = format!(
            "return [...document.querySelectorAll('svg[data-plot=\"{plot}\"] g[data-series=\"{series}\"] circle')]
                 .map((point) => [Number(point.dataset.x), Number(point.dataset.y)])"
        );
        let points: Vec<(f64, f64)> = serde_json::from_value(browser.run(&script)).expect("points");
        points
    };
    let losses = points("record-losses", 0);
    assert!(
        losses.windows(2).all(|pair| pair[0].1 <= pair[1].1),
        "{losses:?}"
    );
    assert!(losses.last().is_some_and(|last| last.1 > 0.0), "{losses:?}");
    let drawn = points("record-volumes", 1).len();
    assert!(drawn > 3 && drawn == points("record-rates", 0).len());
    // It replaces nothing that the recording is made from, or is.
    let copy = folder.path().join("copy.pcapng").display().to_string();
    ok(&format!("extract {volumes} --out {copy}"));
    let before = std::fs::read(&copy).expect("it is there");
    for (source, report) in [
        (format!("pcap:{copy}"), copy.clone()),
        (
            "generate:packets?count=1".to_owned(),
            folder.path().join("a").display().to_string(),
        ),
    ] {
        fails(
            &format!("{source} {volumes} --report {report}"),
            &["would replace", "name another file"],
        );
    }
    assert!(std::fs::read(&copy).expect("it is there") == before);
    ok(&format!("verify {volumes}"));
    // A recording that fails is reported, too.
    std::fs::write(&copy, &before[..before.len() - 5]).expect("it is written");
    std::fs::remove_file(&page).expect("it is there");
    fails(
        &format!("pcap:{copy} {volumes} --report {file}"),
        &["it ends at byte"],
    );
    let text = std::fs::read_to_string(&page).expect("it is there");
    assert!(text.contains("it ends at byte"), "{text}");
    fails(
        &format!(
            "generate:packets?count=1 {volumes} --report {}/no/report.html",
            folder.path().display()
        ),
        &["cannot be written"],
    );
}

/// While a volume does not answer, the figures go on and say so, and there is a warning.
#[test]
fn a_volume_that_stalls_is_seen_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let volumes = "mem:?size=64M mem:?size=64M&stall=600s@1s --new --segment-size 4M";
    let mut sender = Command::new("cat");
    let mut sender = sender
        .arg("/dev/zero")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut command = Command::new(WEIR);
    command
        .args(["record", "bytes:-"])
        .args(volumes.split(' '))
        .args(["--buffer", "8M", "--json", "--metrics", "127.0.0.1:0"])
        .env("RUNTIME_DIRECTORY", folder.path())
        .stdin(sender.stdout.take().expect("it is piped"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut recorder = Running(command.spawn().expect("it runs"));
    let mut pages = recorder.pages();
    // Which of the two comes first depends on where in the ring it writes then.
    until("the volume that stalls holds the recorder up", || {
        let text = pages.text();
        let volumes = [
            "number=\"0\",volume=\"mem:?size=64M\"",
            "number=\"1\",volume=\"mem:?size=64M&stall=600s@1s\"",
        ];
        let figure = |name: &str| value_of(&text, name).unwrap_or_default();
        let waited = volumes.map(|labels| {
            figure(&format!(
                "weir_record_volume_waited_seconds_total{{{labels}}}"
            ))
        });
        let stalled = format!("weir_record_volume_held_up_seconds_total{{{}}}", volumes[1]);
        let held_up = figure(&stalled) + figure("weir_record_no_segment_seconds_total");
        held_up > 3.0 && waited[1] > 2.0 * waited[0]
    });
    let (mut line, words) = (String::new(), "mem:?size=64M&stall=600s@1s");
    while !line.contains(words) {
        line.clear();
        assert!(pages.1.read_line(&mut line).expect("text") > 0, "it ended");
    }
    let starts = [
        "warning: no segment is free to write to",
        "warning: 7 of 8",
        "warning: 8 of 8",
    ];
    assert!(starts.iter().any(|start| line.starts_with(start)), "{line}");
    sender.kill().expect("it runs");
    sender.wait().expect("it has ended");
}
