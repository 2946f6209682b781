//! `weir-speed` with initiators whose figures are known: what it runs, what it says, and how it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity};
use tempfile::TempDir;

/// A `weir` that claims 2000 requests in a second, whatever it is asked for.
const CLAIMS: &str = r#"#!/bin/sh
echo '{"elapsed_seconds": 1.0, "unsent": 0, "total": {"requests": 2000, "latency_ns": {"mean": 9000.0, "percentile": {"99": 12000}}}}'
"#;
const FAILS: &str = "#!/bin/sh\necho 'no such luck' >&2\nexit 1\n";

/// Two processors that this process may run on, where there are as many.
fn processors() -> Option<[String; 2]> {
    let set = sched_getaffinity(None).unwrap();
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number));
    Some([allowed.next()?.to_string(), allowed.next()?.to_string()])
}

/// Held while a program is written, and while a process starts: a child has every descriptor of this process until it executes its program,
/// and what is open to be written cannot be executed.
static WRITING_OR_STARTING: Mutex<()> = Mutex::new(());

fn output_of(command: &mut Command) -> Output {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let turn = WRITING_OR_STARTING.lock();
    let turn = turn.unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn().unwrap();
    drop(turn);
    child.wait_with_output().unwrap()
}

fn speed(weir: &str, arguments: &[&str]) -> Option<Output> {
    let Some([target, initiator]) = processors() else {
        eprintln!("skipped: there is one processor only");
        return None;
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir");
    let turn = WRITING_OR_STARTING.lock();
    let turn = turn.unwrap_or_else(PoisonError::into_inner);
    fs::write(&path, weir).unwrap();
    drop(turn);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-speed"));
    command.args(["--limit", env!("CARGO_BIN_EXE_weir-limit"), "--force"]);
    command.args([
        "--target-processor",
        &target,
        "--initiator-processor",
        &initiator,
    ]);
    command.args([
        "--rounds",
        "2",
        "--seconds",
        "1",
        "--only",
        "initiator-4k-read",
    ]);
    command.arg("--weir").arg(&path);
    Some(output_of(command.args(arguments)))
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let bars = text.lines().filter(|line| !line.starts_with('#'));
    bars.map(str::to_owned).collect()
}

#[test]
fn bars_that_hold_end_with_success() {
    let Some(output) = speed(
        CLAIMS,
        &["--peer-initiator", "echo heading; echo 1000 {size}"],
    ) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = [
        "initiator-4k-read-iops 2 1.2 ok",
        "initiator-4k-read-responder-busy 0 0.95 ok",
    ];
    assert_eq!(lines(&output), expected, "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("# 2 ok, 0 short, 0 failed, 0 skipped, 0 void"),
        "{text}"
    );
}

#[test]
fn a_short_bar_ends_with_one_and_json_holds_every_run() {
    let arguments = ["--json", "--peer-initiator", "echo 5000 20 30"];
    let Some(output) = speed(CLAIMS, &arguments) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &report["rows"][0];
    assert_eq!(row["bars"][0]["verdict"], "short");
    assert_eq!(row["bars"][0]["value"]["median"], 0.4);
    let samples = row["contestants"][1]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2);
    assert_eq!(
        (&samples[1]["mean_us"], &samples[1]["p99_us"]),
        (&20.0.into(), &30.0.into())
    );
    assert_eq!(report["count"]["short"], 1);
}

#[test]
fn what_is_not_there_is_skipped_and_what_breaks_has_failed() {
    let Some(output) = speed(CLAIMS, &[]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lines(&output)[0], "initiator-4k-read-iops - 1.2 skipped");
    let Some(output) = speed(FAILS, &[]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(lines(&output)[0], "initiator-4k-read-iops - 1.2 failed");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("no such luck"),
        "{output:?}"
    );
}

#[test]
fn nothing_to_run_ends_with_two() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-speed"));
    let output = output_of(command.args(["--only", "nothing-is-called-so"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--list"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-speed"));
    let output = output_of(command.args(["--list", "--only", "idle"]));
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("idle-busy-percent 0.5"));
}
