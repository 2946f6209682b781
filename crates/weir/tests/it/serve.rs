//! The real gateway and the real initiator, each a process of its own, over loopback.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::free_port;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
const SUBSYSTEM: &str = "nqn.2026-01.org.example:served";

/// How long a process may take to come up or to end before the test gives it up. Only a bound: nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A gateway with a folder of its own, which outlives its process.
struct Gateway {
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl Gateway {
    /// A gateway that serves one file of `size`.
    fn serving(size: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let config = format!(
            "reactors = 2\nstate = {:?}\n[control]\nsocket = {:?}\n",
            folder.path().join("state.json"),
            folder.path().join("weir.sock"),
        );
        std::fs::write(folder.path().join("weir.toml"), config).expect("the folder can be written");
        let mut gateway = Gateway {
            folder,
            port: free_port(),
            process: None,
        };
        gateway.start();
        let image = gateway.path("image");
        gateway.ok(&[
            "volume",
            "add",
            "image",
            &format!("file:{}?size={size}", image.display()),
        ]);
        gateway.ok(&["subsystem", "add", SUBSYSTEM, "--allow-any-host"]);
        gateway.ok(&["namespace", "add", SUBSYSTEM, "image"]);
        let address = format!("127.0.0.1:{}", gateway.port);
        gateway.ok(&["listener", "add", &address]);
        gateway
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let process = Command::new(WEIR)
            .args(["serve", "--config"])
            .arg(self.path("weir.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("the log can be written"))
            .spawn()
            .expect("the gateway starts");
        self.process = Some(process);
        let began = Instant::now();
        while !self.weir(&["status"]).status.success() {
            assert!(
                began.elapsed() < PATIENCE,
                "the gateway does not answer:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn weir(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(WEIR);
        command
            .arg("--socket")
            .arg(self.path("weir.sock"))
            .args(arguments);
        command.output().expect("the command runs")
    }

    /// Runs a command that must succeed; what it prints.
    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.weir(arguments);
        assert!(
            output.status.success(),
            "weir {arguments:?}: {output:?}\n{}",
            self.log()
        );
        String::from_utf8(output.stdout).expect("the answer is text")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the gateway runs");
        kill_process(Pid::from_child(process), signal).expect("the gateway's process is there");
    }

    /// Ends the gateway at once, as a crash would.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        let mut process = self.process.take().expect("the gateway runs");
        process.wait().expect("the gateway's process ends");
    }

    fn url(&self, parameters: &str) -> String {
        format!(
            "nvme+tcp://127.0.0.1:{}/{SUBSYSTEM}?nsid=1{parameters}",
            self.port
        )
    }

    /// The configuration as the gateway tells it, without what changes by itself.
    fn configuration(&self) -> Vec<String> {
        ["volume", "subsystem", "namespace", "listener", "host"]
            .map(|kind| self.ok(&["--json", kind, "list"]))
            .to_vec()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
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
    let gateway = Gateway::serving("32M");
    for queues in ["1", "8"] {
        let url = gateway.url("&hdgst=1&ddgst=1");
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
            "1s",
            "-b",
            "16k",
            "-r",
            "70",
        ];
        let load = report(start_tool(&load), &gateway);
        assert_eq!(load["errors"], 0);
        assert!(
            load["read"]["requests"].as_u64() > Some(0)
                && load["write"]["requests"].as_u64() > Some(0)
        );
    }
}

#[test]
fn a_gateway_killed_under_load_comes_back_as_it_was_and_the_load_goes_on() {
    let mut gateway = Gateway::serving("64M");
    let before = gateway.configuration();
    let url = gateway.url("&reconnect_delay=1&hdgst=1&ddgst=1");
    let tool = start_tool(&[
        "verify",
        &url,
        "--queues",
        "2",
        "--block-size",
        "32k",
        "--duration",
        "8s",
    ]);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_secs(1));
        gateway.kill();
        gateway.start();
        assert_eq!(gateway.configuration(), before);
    }
    let verified = report(tool, &gateway);
    assert_eq!(verified["ok"], true);
    assert!(verified["compared_bytes"].as_u64() > Some(0));
}

#[test]
fn what_was_acknowledged_just_before_a_kill_is_there_after_it() {
    let mut gateway = Gateway::serving("1M");
    for round in 0..5 {
        let nqn = format!("nqn.2026-01.org.example:round-{round}");
        gateway.ok(&["subsystem", "add", &nqn]);
        gateway.kill();
        gateway.start();
        let listed = gateway.ok(&["subsystem", "list"]);
        assert!(
            (0..=round).all(|round| listed.contains(&format!("round-{round}"))),
            "{listed}"
        );
    }
}

#[test]
fn a_gateway_asked_to_end_finishes_and_exits_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = Gateway::serving("8M");
        let url = gateway.url("&ctrl_loss_timeout=1");
        let mut tool = start_tool(&["bench", &url, "--duration", "30s"]);
        let began = Instant::now();
        while !gateway.ok(&["connection", "list"]).contains("127.0.0.1") {
            assert!(began.elapsed() < PATIENCE, "the tool does not connect");
            std::thread::sleep(Duration::from_millis(50));
        }
        gateway.signal(signal);
        let mut process = gateway.process.take().expect("the gateway runs");
        let status = process.wait().expect("the gateway ends");
        assert_eq!(status.code(), Some(0), "{signal:?}:\n{}", gateway.log());
        assert!(
            !gateway.path("weir.sock").exists(),
            "the control socket is taken away"
        );
        let _ = tool.kill();
        tool.wait().expect("the tool ends");
    }
}

#[test]
fn a_modelled_drive_is_served_and_the_volume_below_keeps_its_data() {
    let gateway = Gateway::serving("1M");
    let below = gateway.path("below");
    let drive = format!(
        "ssd:consumer-tlc?size=16M&over=file:{}%3Fsize%3D16M",
        below.display()
    );
    gateway.ok(&["volume", "add", "drive", &drive]);
    gateway.ok(&["namespace", "add", SUBSYSTEM, "drive"]);
    let url = gateway.url("").replace("nsid=1", "nsid=2");
    let tool = start_tool(&["verify", &url, "--block-size", "64k", "--duration", "1s"]);
    let verified = report(tool, &gateway);
    assert_eq!(verified["ok"], true);
    assert!(verified["compared_bytes"].as_u64() > Some(0));
    assert!(read(&below).iter().any(|&byte| byte != 0));
    // What is below is in use, and is looked for in the URL of what is above it.
    let output = gateway.weir(&["bench", &drive, "--write", "100", "-t", "1s"]);
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
