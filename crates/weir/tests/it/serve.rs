//! The real gateway and the real initiator, each a process of its own, over loopback.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::common::gateway::{Gateway, WEIR, recovering};
use crate::common::{nightly, retry, until};

const SUBSYSTEM: &str = "nqn.2026-01.org.example:served";

/// A gateway that serves one file of `size`, and its URL.
fn serving(size: &str) -> (Gateway, String) {
    let gateway = Gateway::started();
    let image = gateway.path("image");
    let volume = format!("file:{}?size={size}", image.display());
    let url = gateway.serve(SUBSYSTEM, "image", &volume);
    (gateway, url)
}

/// The configuration as the gateway tells it, without what changes by itself.
fn configuration(gateway: &Gateway) -> Vec<String> {
    ["volume", "subsystem", "namespace", "listener", "host"]
        .map(|kind| gateway.ok(&format!("--json {kind} list")))
        .to_vec()
}

/// Starts a tool that reports as JSON.
fn start_tool(arguments: &[&str]) -> Child {
    Command::new(WEIR)
        .arg("--json")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts")
}

#[track_caller]
fn report(tool: Child, gateway: &Gateway) -> serde_json::Value {
    let output = tool.wait_with_output().expect("the tool ends");
    assert!(output.status.success(), "{output:?}\n{}", gateway.log());
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

#[test]
fn one_and_eight_queues_with_both_digests_verify_and_take_load() {
    let (gateway, url) = serving("32M");
    let url = url + "&hdgst=1&ddgst=1";
    for queues in ["1", "8"] {
        let verified = report(
            start_tool(&["verify", &url, "--queues", queues, "--block-size", "128k"]),
            &gateway,
        );
        assert_eq!(verified["written_bytes"], 32 << 20);
        let load = [
            "bench",
            &url,
            "--queues",
            queues,
            "--duration",
            "300ms",
            "-b",
            "16k",
            "-r",
            "70",
            "--destroy-data",
            &url,
        ];
        retry("reads and writes", |_| {
            let load = report(start_tool(&load), &gateway);
            assert_eq!(load["errors"], 0);
            let some = |kind: &str| load[kind]["requests"].as_u64() > Some(0);
            (some("read") && some("write")).then_some(())
        });
    }
}

#[test]
fn a_gateway_killed_under_load_comes_back_as_it_was_and_the_load_goes_on() {
    let (kills, seconds) = if nightly() { (5, 6) } else { (2, 2) };
    let (mut gateway, url) = serving("64M");
    let before = configuration(&gateway);
    // What a killed process acknowledged the system has.
    let url = recovering(&url) + "&hdgst=1&ddgst=1&flush_after_reconnect=trust";
    retry("the load is there for every kill", |attempt| {
        let duration = format!("{}s", seconds * attempt);
        let mut tool = start_tool(&[
            "verify",
            &url,
            "--queues",
            "2",
            "--block-size",
            "32k",
            "--duration",
            &duration,
            "--destroy-data",
            &url,
        ]);
        let mut has_load = true;
        let mut written = gateway_writes(&gateway);
        for _ in 0..kills {
            until("the load goes on, or has ended", || {
                has_load = gateway_writes(&gateway) > written;
                has_load || tool.try_wait().expect("a child of ours").is_some()
            });
            if !has_load {
                break;
            }
            gateway.kill();
            gateway.start();
            written = 0;
            assert_eq!(configuration(&gateway), before);
        }
        let verified = report(tool, &gateway);
        assert_eq!(verified["ok"], true);
        (has_load && verified["compared_bytes"].as_u64() > Some(0)).then_some(())
    });
}

/// Writes of hosts since the gateway's process began.
fn gateway_writes(gateway: &Gateway) -> u64 {
    gateway.metric("weir_subsystem_writes_total") as u64
}

#[test]
fn a_tool_whose_flush_fails_over_a_lost_gateway_says_why() {
    let (mut gateway, url) = serving("64M");
    let url = recovering(&url);
    // A load that had written nothing yet, or was done, lost nothing.
    let errors = retry("a flush that fails", |attempt| {
        let duration = format!("{}s", 2 * attempt);
        let written = gateway_writes(&gateway);
        let mut tool = start_tool(&[
            "verify",
            &url,
            "--block-size",
            "32k",
            "--duration",
            &duration,
            "--destroy-data",
            &url,
        ]);
        until("the load goes on, or has ended", || {
            gateway_writes(&gateway) > written
                || tool.try_wait().expect("a child of ours").is_some()
        });
        gateway.kill();
        gateway.start();
        let output = tool.wait_with_output().expect("the tool ends");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        errors.contains("flushing").then_some(errors)
    });
    let words = [SUBSYSTEM, "may be lost", "flush_after_reconnect=trust"];
    assert!(words.iter().all(|word| errors.contains(word)), "{errors}");
}

#[test]
fn what_was_acknowledged_just_before_a_kill_is_there_after_it() {
    let (mut gateway, _) = serving("1M");
    for round in 0..5 {
        let nqn = format!("nqn.2026-01.org.example:round-{round}");
        gateway.ok(&format!("subsystem add {nqn}"));
        gateway.kill();
        gateway.start();
        let listed = gateway.ok("subsystem list");
        assert!(
            (0..=round).all(|round| listed.contains(&format!("round-{round}"))),
            "{listed}"
        );
    }
}

#[test]
fn a_gateway_asked_to_end_finishes_and_exits_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut gateway, url) = serving("8M");
        let url = url + "&ctrl_loss_timeout=1";
        let _load = gateway.background(&format!("bench {url} --duration 600s"));
        until("the tool is connected", || {
            gateway.ok("connection list").contains("127.0.0.1")
        });
        let code = gateway.end_by(signal);
        assert_eq!(code, Some(0), "{signal:?}:\n{}", gateway.log());
        assert!(
            !gateway.path("weir.sock").exists(),
            "the control socket is taken away"
        );
    }
}

#[test]
fn a_modelled_drive_is_served_and_the_volume_below_keeps_its_data() {
    let (gateway, url) = serving("1M");
    let below = gateway.path("below");
    let drive = format!(
        "ssd:consumer-tlc?size=16M&over=file:{}%3Fsize%3D16M",
        below.display()
    );
    gateway.ok(&format!("volume add drive {drive}"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} drive"));
    let url = url.replace("nsid=1", "nsid=2");
    let verify = ["verify", &url, "--block-size", "64k", "--passes", "1"];
    let verified = report(start_tool(&verify), &gateway);
    assert_eq!(verified["ok"], true);
    assert!(verified["compared_bytes"].as_u64() > Some(0));
    assert!(read(&below).iter().any(|&byte| byte != 0));
    // What is below is in use, and is looked for in the URL of what is above it.
    let output = gateway.weir(&format!("bench {drive} --write 100 -t 1s"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("in use"),
        "{said}"
    );
}

#[test]
fn a_volume_with_a_file_system_is_overwritten_only_when_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let image = folder.path().join("image");
    let mut bytes = vec![0; 16 << 20];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xEF]);
    std::fs::write(&image, &bytes).expect("the image can be written");
    let url = format!("file:{}", image.display());
    let run = |arguments: &[&str]| {
        Command::new(WEIR)
            .args(arguments)
            .output()
            .expect("the tool runs")
    };
    let drive = format!("ssd:optane?over={url}");
    let other = "mem:?size=1M".to_owned();
    for refused in [
        run(&["verify", &url]),
        run(&["bench", &url, "-r", "50", "-t", "1s"]),
        run(&["copy", "null:?size=1M", &url]),
        run(&["verify", &drive]),
        run(&["curve", &url, "-r", "0", "--depths", "1", "-t", "10ms"]),
        run(&["compare", "null:?size=1M", &url, "-r", "0", "-t", "10ms"]),
        // Another volume's loss is no word about this one's.
        run(&[
            "bench",
            &other,
            &url,
            "-r",
            "0",
            "-t",
            "10ms",
            "--destroy-data",
            &other,
        ]),
    ] {
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(
            said.contains("ext4") && said.contains("--destroy-data"),
            "{said}"
        );
    }
    assert!(read(&image) == bytes, "a refused tool has written");
    let output = run(&["bench", &url, "-t", "1s"]);
    assert!(output.status.success(), "reading is harmless: {output:?}");
    let misspelt = format!("{url}?size=1M");
    for command in [
        &["verify", &url][..],
        &["bench", &url, "-r", "0"],
        &["copy", "null:?size=1M", &url],
        &["curve", &url, "-r", "0"],
        &["compare", &url, "null:?size=1M", "-r", "0"],
    ] {
        let output = run(&[command, &["--destroy-data", &misspelt]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("none of the volumes"), "{command:?}: {said}");
    }
    assert!(read(&image) == bytes, "a refused tool has written");
    let output = run(&["verify", &url, "--destroy-data", &url]);
    assert!(output.status.success(), "{output:?}");
    assert!(read(&image) != bytes);
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the image can be read")
}

#[test]
fn tools_say_what_is_wrong_with_their_arguments_and_how_to_mend_it() {
    for (arguments, code, says) in [
        (vec!["bench"], 2, "<URL>"),
        (
            vec!["bench", "floppy:/a"],
            1,
            "there are no floppy: volumes",
        ),
        (vec!["bench", "mem:?size=10X"], 1, "10X"),
        (
            vec!["bench", "mem:?size=1M", "-b", "10X"],
            2,
            "powers of 1024",
        ),
        (
            vec!["bench", "mem:?size=1M", "-b", "5000"],
            1,
            "multiples of 4096",
        ),
        (vec!["bench", "mem:?size=1M", "-r", "101"], 2, "0..=100"),
        (
            vec!["bench", "mem:?size=1M", "-t", "soon"],
            2,
            "such as 500ms, 10s or 2m",
        ),
        (vec!["bench", "mem:?sise=1M"], 1, "size"),
        (vec!["bench", "file:/no/such/file"], 1, "/no/such/file"),
        (
            vec![
                "bench",
                "nvme+tcp://127.0.0.1:1/nqn.2026-01.org.example:x?nsid=1",
            ],
            1,
            "127.0.0.1:1",
        ),
        (vec!["copy", "mem:?size=2M", "mem:?size=1M"], 1, "less than"),
        (vec!["verify", "mem:?size=1M", "--check"], 2, "--seed"),
        (vec!["verify", "mem:?size=1M", "--seed", "x"], 2, "2^64"),
    ] {
        let output = Command::new(WEIR)
            .args(&arguments)
            .output()
            .expect("the tool runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}
