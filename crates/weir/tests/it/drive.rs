//! `weir drive` at the command line: what it is told, what it refuses, and what it leaves.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::gateway::WEIR;
use crate::common::{PATIENCE, catches, until};

fn drive(arguments: &[&str]) -> Output {
    let mut command = Command::new(WEIR);
    command.args(["--json", "drive"]).args(arguments);
    command.output().expect("the tool runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(arguments: &[&str], parts: &[&str]) {
    let output = drive(arguments);
    let said = said(&output);
    assert!(!output.status.success(), "{arguments:?} is taken");
    for part in parts {
        assert!(said.contains(part), "{arguments:?}: no '{part}' in: {said}");
    }
}

fn document(arguments: &[&str]) -> Value {
    let output = drive(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).expect("the result is JSON")
}

fn stored(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("a result was stored");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("r.json").display().to_string();
    let null = "null:?size=64M";
    for (arguments, parts) in [
        (&[null, null][..], &["twice"][..]),
        (
            &[null, "--destroy-data", "file:/other"],
            &["none of the volumes"],
        ),
        (&[null, "--stripe"], &["two drives"]),
        (&[null, "--chunk", "64k"], &["--stripe"]),
        (&[null, "--block-size", "1000"], &["multiples of 4096"]),
        (&[null, "--block-size", "8M"], &["at most 1048576"]),
        (&[null, "--depth", "0"], &["1..=4096"]),
        (&[null, "--size", "1G"], &["--size"]),
        (&[null, "--passes", "fill,fill"], &["none of them twice"]),
        (&[null, "--passes", "read"], &["overwrite-trimmed"]),
        (
            &[null, "--passes", "fill", "--trim-ahead", "16M"],
            &["--trim-ahead is of the pass overwrite-trimmed", "add"],
        ),
        (
            &[null, "--passes", "fill,overwrite", "--idle", "60s"],
            &["--idle is of the pass recovery", "add"],
        ),
        (&[null, "--resume"], &["--output"]),
        (
            &[null, "--resume", "-o", &output],
            &["there is no run to take up"],
        ),
        (
            &[null, "-o", &output, "--report", &output],
            &["would replace"],
        ),
        (&[null, "--simulated"], &["modelled drives"]),
        (&["ssd:nothing", "--simulated"], &["970-evo-plus-1tb"]),
        (
            &["ssd:optane?depth=1", "--simulated"],
            &["size, seed, noise"],
        ),
        (&["ssd:optane", "--simulated", "--seed", "2"], &["--seed"]),
        (&["nonsense:x"], &["nonsense"]),
        (&[], &["URL"]),
    ] {
        refused(arguments, parts);
    }
    assert!(!folder.path().join("r.json").exists());
}

#[test]
fn a_drive_that_holds_anything_is_refused_until_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let url = format!("file:{}", image.display());
    let passes = ["--passes", "fill", "--block-size", "64k"];
    // A file system's mark, and data of no known kind.
    for (offset, bytes, what) in [
        (1080, &[0x53, 0xEF][..], "ext4"),
        (3 << 20, &[7][..], "holds data"),
    ] {
        let mut content = vec![0; 4 << 20];
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        // The place that is looked at begins a block, and the file's last one is among them.
        if what == "holds data" {
            content[(4 << 20) - 1] = 7;
        }
        std::fs::write(&image, &content).unwrap();
        refused(
            &[&[&url[..]], &passes[..]].concat(),
            &[what, "--destroy-data"],
        );
        assert_eq!(
            std::fs::read(&image).unwrap(),
            content,
            "nothing was written"
        );
        let destroyed = [&[&url, "--destroy-data", &url], &passes[..]].concat();
        let result = document(&destroyed);
        assert_eq!(result["drives"][0]["passes"][0]["complete"], true);
        assert_ne!(std::fs::read(&image).unwrap(), content);
    }
    // An empty one is taken as it is.
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    document(&[&[&url[..]], &passes[..]].concat());
}

#[test]
fn a_modelled_drive_is_qualified_in_its_own_time_and_its_result_has_the_form_that_plans_read() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = (folder.path().join("r.json"), folder.path().join("r.html"));
    let arguments = [
        "ssd:970-evo-plus-1tb?size=16G&seed=3",
        "--simulated",
        "-o",
        output.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ];
    let told = document(&arguments);
    assert_eq!(told, stored(&output));
    assert_eq!(
        (&told["weir"], &told["version"]),
        (&"drive".into(), &1.into())
    );
    assert_eq!(
        (&told["simulated"], &told["complete"]),
        (&true.into(), &true.into())
    );
    let passes = told["drives"][0]["passes"].as_array().unwrap();
    let names: Vec<_> = passes
        .iter()
        .map(|pass| pass["pass"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["fill", "overwrite", "overwrite-trimmed", "recovery"]
    );
    assert_eq!(passes[0]["phases"][0]["name"], "cache");
    for pass in passes {
        assert!(!pass["worst_windows"].as_array().unwrap().is_empty());
        for number in ["median", "p5", "p0_1", "mean"] {
            assert!(pass["phases"][0]["rate"][number].as_f64().unwrap() > 0.0);
        }
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("rate-over-bytes") && page.contains("ssd:970-evo-plus-1tb"));
    // The same seed says the same again.
    let again = document(&arguments);
    assert_eq!(again["drives"], told["drives"]);
}

#[test]
fn a_run_that_is_interrupted_is_kept_and_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let (image, output) = (folder.path().join("image"), folder.path().join("r.json"));
    let kept = folder.path().join("r.json.kept");
    let url = format!("file:{}?size=16M", image.display());
    let arguments = [
        url.as_str(),
        "--passes",
        "fill,recovery",
        "--idle",
        "1h",
        "-o",
        output.to_str().unwrap(),
    ];
    let mut run = Command::new(WEIR)
        .args(["--json", "drive"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    // It is idle after the fill, for an hour.
    while !std::fs::read_to_string(&kept)
        .is_ok_and(|text| text.contains("\"pass\":\"fill\",\"complete\":true"))
    {
        assert!(run.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    let interrupt = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(interrupt.expect("kill").success());
    assert!(!run.wait().unwrap().success());
    let part = stored(&output);
    assert_eq!(part["complete"], false);
    let codes: Vec<_> = part["caveats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["code"].as_str().unwrap())
        .collect();
    assert!(codes.contains(&"unfinished"), "{codes:?}");
    refused(&arguments, &["--resume"]);
    refused(
        &[&arguments[..], &["--resume", "--depth", "7"]].concat(),
        &["--depth"],
    );
    refused(
        &[&arguments[..], &["--resume", "--purge"]].concat(),
        &["--purge"],
    );
    // Something wrote to the drive meanwhile.
    let content = std::fs::read(&image).unwrap();
    std::fs::write(&image, vec![9; content.len()]).unwrap();
    let again = [&arguments[..], &["--resume"]].concat();
    refused(&again, &["another drive"]);
    std::fs::write(&image, content).unwrap();
    assert!(kept.exists());
    let mut run = Command::new(WEIR)
        .args(["--json", "drive"])
        .args(&again)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    until("it waits for a signal", || catches(run.id(), Signal::INT));
    std::thread::sleep(Duration::from_millis(500));
    assert!(run.try_wait().unwrap().is_none(), "it goes on idling");
    let interrupt = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(interrupt.expect("kill").success());
    run.wait().unwrap();
    let passes = &stored(&output)["drives"][0]["passes"];
    assert_eq!(
        passes.as_array().unwrap().len(),
        1,
        "the fill was not made again"
    );
}

/// Takes a loop device away when it is dropped.
struct Loop(String);

impl Loop {
    /// One over this file; none, and a line that says why, where this machine gives none.
    fn over(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match made {
            Ok(output) if output.status.success() => {
                let name = String::from_utf8(output.stdout).expect("a name");
                Some(Loop(name.trim().to_owned()))
            }
            _ => {
                // Not through the test's own output, which is shown of those that fail.
                let why = "no loop device is to be had here: it takes root, and losetup";
                let _ = writeln!(std::io::stderr(), "\nskipped: {why}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_qualified_end_to_end_and_not_where_it_carries_a_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let (image, report) = (folder.path().join("image"), folder.path().join("r.html"));
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(64 << 20).unwrap();
    let Some(device) = Loop::over(&image) else {
        return;
    };
    let url = format!("file:{}", device.0);
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", &device.0])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "\nskipped: there is no mkfs.ext4 here");
        return;
    }
    refused(&[&url], &["ext4 file system", "--destroy-data"]);
    let told = document(&[
        &url,
        "--destroy-data",
        &url,
        "--purge",
        "--idle",
        "1s",
        "--report",
        report.to_str().unwrap(),
    ]);
    assert_eq!(told["complete"], true);
    let drive = &told["drives"][0];
    assert_eq!(drive["capacity_bytes"], 64 << 20);
    let passes = drive["passes"].as_array().unwrap();
    let bytes = |pass: &Value| -> u64 {
        let samples = pass["samples"].as_array().unwrap();
        samples
            .iter()
            .map(|sample| sample["bytes"].as_u64().unwrap())
            .sum()
    };
    assert_eq!(passes.len(), 4);
    for pass in &passes[..3] {
        assert_eq!(bytes(pass), 64 << 20, "{}", pass["pass"]);
    }
    assert_eq!(
        drive["health_before"],
        Value::Null,
        "a loop device says nothing of itself"
    );
    let unknown = drive["health_unknown"].as_array().unwrap();
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    let reason = unknown[0].as_str().unwrap();
    assert!(
        reason.starts_with(&device.0) && reason.contains("a loop device, not an NVMe drive"),
        "{reason}"
    );
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains(reason), "the report says why");
    // A loop device counts nothing, and nothing else is said against the run.
    let caveats = told["caveats"].as_array().unwrap();
    assert_eq!(caveats.len(), 1, "{caveats:?}");
    assert_eq!(caveats[0]["code"], "causes-unknown");
    assert!(
        std::fs::read_to_string(&report)
            .unwrap()
            .contains("rate-over-bytes")
    );
}

#[test]
fn a_file_that_something_has_hold_of_is_refused_though_its_data_may_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    let url = format!("file:{}", image.display());
    let arguments = [&url, "--destroy-data", &url, "--passes", "fill"];
    let Some(device) = Loop::over(&image) else {
        return;
    };
    refused(&arguments, &["image is", &device.0]);
    assert!(!is_begun(&image), "it was written to");
    drop(device);
    document(&arguments);
    assert!(is_begun(&image));
}

/// A run of the tool that goes on.
struct Running(std::process::Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(WEIR);
        command.args(["--json", "drive"]).args(arguments);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the tool runs"))
    }

    /// Waits for something that comes while it runs.
    fn until(&mut self, is_there: impl Fn() -> bool) {
        until("it is there", || {
            assert!(self.0.try_wait().unwrap().is_none(), "it ended");
            is_there()
        });
    }

    fn end(mut self, signal: &str) {
        let signalled = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        assert!(signalled.expect("kill").success());
        assert!(!self.0.wait().unwrap().success());
    }
}

/// Whether the first byte of a file is not zero.
fn is_begun(file: &Path) -> bool {
    use std::io::Read;
    let mut byte = [0; 64];
    std::fs::File::open(file).is_ok_and(|mut file| file.read_exact(&mut byte).is_ok())
        && byte != [0; 64]
}

#[test]
fn a_run_that_was_killed_goes_on_and_no_other_drive_is_taken_for_its_own() {
    const BYTES: usize = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (image, output) = (folder.path().join("image"), folder.path().join("r.json"));
    let url = format!("file:{}", image.display());
    let arguments = [
        url.as_str(),
        "--passes",
        "fill",
        "--depth",
        "1",
        "--block-size",
        "4k",
        "-o",
        output.to_str().unwrap(),
    ];
    // What a run writes is its own, also where the seed is the same.
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    document(&arguments);
    let of_another = std::fs::read(&image).unwrap();
    let kept = folder.path().join("r.json.kept");
    let began = Instant::now();
    // On a busy machine it may have written everything before it is killed: then once more.
    let content = loop {
        std::fs::write(&image, vec![0; BYTES]).unwrap();
        let mut run = Running::start(&arguments).0;
        while !is_begun(&image) && run.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        run.kill().unwrap();
        run.wait().unwrap();
        assert!(is_begun(&image), "it wrote nothing");
        let content = std::fs::read(&image).unwrap();
        if content[BYTES - 4096..].iter().all(|&byte| byte == 0) {
            break content;
        }
        assert!(began.elapsed() < PATIENCE, "it is never killed in time");
        // It may have ended by itself.
        let _ = std::fs::remove_file(&kept);
    };
    assert!(kept.exists());
    let again = [&arguments[..], &["--resume"]].concat();
    let mut marked = vec![0; BYTES];
    marked[1080..1082].copy_from_slice(&[0x53, 0xEF]);
    let mut of_another = of_another;
    of_another.resize(BYTES, 0);
    for (other, what) in [(marked, "ext4"), (of_another, "data")] {
        std::fs::write(&image, &other).unwrap();
        refused(&again, &[what]);
        assert!(std::fs::read(&image).unwrap() == other, "it was written to");
    }
    std::fs::write(&image, &content).unwrap();
    let result = document(&again);
    assert_eq!(result["complete"], true);
    assert!(!kept.exists());
    let whole = std::fs::read(&image).unwrap();
    assert_eq!(whole[..4096], content[..4096]);
    assert!(whole[BYTES - 4096..].iter().any(|&byte| byte != 0));
}

#[test]
fn a_stripe_is_taken_up_only_on_its_own_members_and_no_other_file_is_labelled() {
    const BYTES: usize = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let images = ["a", "b"].map(|name| folder.path().join(name));
    let output = folder.path().join("r.json");
    let kept = folder.path().join("r.json.kept");
    let urls = images
        .each_ref()
        .map(|image| format!("file:{}", image.display()));
    let put = |content: &[Vec<u8>]| {
        for (image, content) in images.iter().zip(content) {
            std::fs::write(image, content).unwrap();
        }
    };
    let read = || images.each_ref().map(|image| std::fs::read(image).unwrap());
    let empty = [vec![0; BYTES], vec![0; BYTES]];
    put(&empty);
    let arguments = [
        &urls[0],
        &urls[1],
        "--stripe",
        "--passes",
        "fill,recovery",
        "--idle",
        "1h",
        "-o",
        output.to_str().unwrap(),
    ];
    refused(
        &[&arguments[..], &["--block-size", "1000"]].concat(),
        &["multiples of"],
    );
    refused(&[&arguments[..], &["--size", "1G"]].concat(), &["--size"]);
    assert!(read() == empty, "it was labelled before it was refused");
    let is_filled = || {
        std::fs::read_to_string(&kept)
            .is_ok_and(|text| text.contains("\"pass\":\"fill\",\"complete\":true"))
    };
    let mut run = Running::start(&arguments);
    run.until(is_filled);
    run.end("-INT");
    let content = read();
    let again = [&arguments[..], &["--resume"]].concat();
    refused(&[&again[..], &["--depth", "7"]].concat(), &["--depth"]);
    refused(&[&again[..], &["--chunk", "64k"]].concat(), &[]);
    assert!(read() == content);
    let marked = empty.clone().map(|mut content| {
        content[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        content
    });
    // The labels alone make no stripe that of the run.
    let labels = content.clone().map(|mut content| {
        content[1 << 20..].fill(0);
        content
    });
    for other in [&empty, &marked, &labels] {
        put(other);
        refused(&again, &[]);
        assert!(&read() == other, "it was written to");
    }
    put(&content);
    let mut run = Running::start(&again);
    let id = run.0.id();
    run.until(|| catches(id, Signal::INT));
    std::thread::sleep(Duration::from_millis(500));
    run.until(|| true);
    run.end("-INT");
    let result = stored(&output);
    assert_eq!(result["drives"][0]["members"].as_array().unwrap().len(), 2);
    assert_eq!(result["drives"][0]["passes"][0]["complete"], true);
}

#[test]
fn a_result_that_cannot_be_stored_is_told_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("r.json");
    std::os::unix::fs::symlink("/dev/full", &output).unwrap();
    let arguments = [
        "null:?size=64M",
        "--passes",
        "fill",
        "--report",
        "/dev/full",
        "-o",
        output.to_str().unwrap(),
    ];
    let run = drive(&arguments);
    assert!(!run.status.success());
    assert!(
        said(&run).contains("r.json cannot be written"),
        "{}",
        said(&run)
    );
    assert!(
        said(&run).contains("/dev/full cannot be written"),
        "{}",
        said(&run)
    );
    let told: Value = serde_json::from_slice(&run.stdout).expect("the result is told");
    assert_eq!(told["complete"], true);
    std::fs::remove_file(&output).unwrap();
    let again = [&arguments[..3], &arguments[5..], &["--resume"]].concat();
    assert_eq!(
        document(&again)["drives"][0]["passes"],
        told["drives"][0]["passes"]
    );
    assert_eq!(stored(&output)["complete"], true);
    assert!(!folder.path().join("r.json.kept").exists());
}
