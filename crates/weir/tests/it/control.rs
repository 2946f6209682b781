//! The real command against a real control socket, behind which an engine without a data path is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use weir_gateway::api::socket::ControlSocket;
use weir_gateway::api::{self, About};
use weir_gateway::control::Control;
use weir_gateway::engine::fake::FakeEngine;
use weir_gateway::engine::{CommandKind, ConnectionReport, Latency, QueueReport, SocketReport};
use weir_gateway::state::ExportName;
use weir_gateway::store::FileStore;

const SUBSYSTEM: &str = "nqn.2026-01.com.example:s";
const HOST: &str = "nqn.2026-01.com.example:host-1";

/// A control plane that is served from a thread until this is dropped.
pub(super) struct Gateway {
    pub(super) directory: tempfile::TempDir,
    pub(super) engine: Arc<FakeEngine>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Gateway {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = Arc::new(FakeEngine::new());
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (path, store) = (
            directory.path().join("weir.sock"),
            directory.path().join("state"),
        );
        let served = engine.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let store = Box::new(FileStore::open(&store).unwrap());
                let control = Control::start(served, store).await.unwrap();
                let started = Instant::now();
                let about = About {
                    budget: weir_gateway::limits::Budget::default(),
                    version: "0.0.0",
                    state: "here".into(),
                    started,
                };
                let socket = ControlSocket::bind(&path).unwrap();
                ready.send(()).unwrap();
                let router = api::router(control, about);
                socket
                    .serve(router, async { drop(ended.await) })
                    .await
                    .unwrap();
            });
        });
        is_ready.recv().unwrap();
        Self {
            directory,
            engine,
            end: Some(end),
            thread: Some(thread),
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("weir.sock")
    }

    /// Runs `weir` with `arguments`, separated by spaces.
    fn weir(&self, arguments: &str) -> Output {
        weir(&self.socket(), arguments)
    }

    /// Runs a command that must succeed, and returns what it prints.
    #[track_caller]
    pub(super) fn ok(&self, arguments: &str) -> String {
        let output = self.weir(arguments);
        assert_eq!(
            output.status.code(),
            Some(0),
            "weir {arguments}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must succeed with `--json`, and returns its answer.
    #[track_caller]
    pub(super) fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{arguments} --json"))).unwrap()
    }

    /// Runs a command that must fail with this exit code and say each of `pieces`.
    #[track_caller]
    pub(super) fn fails(&self, arguments: &str, code: i32, pieces: &[&str]) {
        fails(&self.weir(arguments), arguments, code, pieces);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn weir(socket: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(arguments.split_whitespace())
        .env("WEIR_SOCKET", socket)
        .output()
        .unwrap()
}

#[track_caller]
pub(super) fn fails(output: &Output, arguments: &str, code: i32, pieces: &[&str]) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "weir {arguments}: {output:?}"
    );
    assert!(
        output.stdout.is_empty(),
        "weir {arguments} prints and fails: {output:?}"
    );
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    // Help is wrapped to the terminal's width.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for piece in pieces {
        assert!(
            flat.contains(piece),
            "weir {arguments} does not say {piece:?}:\n{text}"
        );
    }
}

pub(super) fn connection() -> ConnectionReport {
    ConnectionReport {
        client: None,
        id: 7,
        peer: "192.0.2.1:50000".parse().unwrap(),
        local: "192.0.2.2:4420".parse().unwrap(),
        reactor: 1,
        session: None,
        queue: Some(QueueReport {
            host: HOST.parse().unwrap(),
            subsystem: SUBSYSTEM.parse().unwrap(),
            controller_id: 3,
            queue_id: 2,
            queue_depth: 64,
            flow_control: false,
            header_digest: true,
            data_digest: true,
        }),
        in_flight: 3,
        received_bytes: 4096,
        sent_bytes: 5,
        socket: Some(SocketReport {
            send_buffer: 131072,
            receive_buffer: 65536,
            congestion_control: "cubic".into(),
            dscp: 10,
            priority: 2,
            round_trip_us: 45,
            retransmits: 0,
            congestion_window: 10,
        }),
    }
}

#[test]
fn from_a_volume_to_a_namespace_and_back() {
    let gateway = Gateway::start();
    let added = gateway.ok("volume add images mem:?size=1G");
    assert!(added.starts_with("added volume images\n"), "{added}");
    let again = gateway.ok("volume add images mem:?size=1G");
    assert!(
        again.starts_with("nothing to do: there already is volume images\n"),
        "{again}"
    );
    gateway.ok(&format!("subsystem add {SUBSYSTEM}"));
    gateway.ok(&format!("host add {HOST} --note rack-7"));
    gateway.ok(&format!("subsystem allow-host {SUBSYSTEM} {HOST}"));
    let added = gateway.ok(&format!(
        "namespace add {SUBSYSTEM} images --visible-to {HOST}"
    ));
    assert!(added.contains("nsid        1\n"), "{added}");
    gateway.ok("listener add *");
    assert_eq!(gateway.json("volume list")[0]["name"], "images");
    let table = gateway.ok("volume list");
    let mut lines = table.lines();
    let heading = "NAME    SIZE   BLOCK  STATUS  NAMESPACES  LUNS  EXPORTS  URL";
    assert_eq!(lines.next(), Some(heading));
    assert_eq!(
        lines.next(),
        Some("images  1 GiB  4096   online  1           0     0        mem:?size=1G")
    );
    assert!(gateway.ok("subsystem list").contains(SUBSYSTEM));
    assert!(
        gateway
            .ok(&format!("subsystem show {SUBSYSTEM}"))
            .contains("1 images online")
    );
    assert!(gateway.ok("namespace list").contains("1 hosts"));
    assert_eq!(gateway.json("namespace list")[0]["volume"], "images");
    let all = gateway.ok(&format!(
        "namespace set {SUBSYSTEM} 1 --visible-to-all --read-only on"
    ));
    assert!(all.contains("all hosts of the subsystem"), "{all}");
    assert!(
        gateway
            .ok(&format!("namespace list {SUBSYSTEM}"))
            .contains("read-only")
    );
    assert!(gateway.ok(&format!("host show {HOST}")).contains("rack-7"));
    assert!(gateway.ok("listener list").contains("*:4420"));
    assert!(
        gateway
            .ok("volume resize images 2G")
            .contains("2 GiB (2147483648 bytes)")
    );
    let status = gateway.ok("status");
    assert!(status.contains("problems     none"), "{status}");
    gateway.ok("listener remove *:4420");
    gateway.ok(&format!("namespace remove {SUBSYSTEM} 1"));
    gateway.ok(&format!("subsystem disallow-host {SUBSYSTEM} {HOST}"));
    gateway.ok(&format!("subsystem allow-any-host {SUBSYSTEM} on"));
    gateway.ok(&format!("subsystem remove {SUBSYSTEM}"));
    gateway.ok(&format!("host remove {HOST}"));
    assert_eq!(gateway.json("volume remove images"), serde_json::json!({}));
    let state = gateway.engine.applied().unwrap();
    assert!(state.volumes.is_empty() && state.subsystems.is_empty() && state.hosts.is_empty());
}

#[test]
fn every_option_reaches_the_state() {
    let gateway = Gateway::start();
    gateway.ok("volume add a mem:");
    let subsystem = "--serial S1 --model M1 --allow-any-host --controller-ids 10-20";
    gateway.ok(&format!("subsystem add {SUBSYSTEM} {subsystem}"));
    let identity = "--uuid 4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11 --nguid \
                    00112233445566778899aabbccddeeff --eui64 0011223344556677";
    gateway.ok(&format!(
        "namespace add {SUBSYSTEM} a --nsid 7 --read-only {identity}"
    ));
    let options = "--send-buffer 1M --receive-buffer 64k --congestion-control reno --dscp 10 \
                   --priority 3";
    gateway.ok(&format!("host add {HOST} {options}"));
    gateway.ok(&format!("listener add [::1]:4444 {options}"));
    gateway.ok("listener add gw.example.com --discovery");
    let state = gateway.engine.applied().unwrap();
    let subsystem = &state.subsystems[&SUBSYSTEM.parse().unwrap()];
    assert_eq!(
        (subsystem.serial.as_str(), subsystem.model.as_str()),
        ("S1", "M1")
    );
    assert!(subsystem.allow_any_host);
    assert_eq!(
        (subsystem.controller_ids.min, subsystem.controller_ids.max),
        (10, 20)
    );
    let namespace = state.namespace(&SUBSYSTEM.parse().unwrap(), 7).unwrap();
    assert!(namespace.read_only);
    assert_eq!(
        namespace.uuid.to_string(),
        "4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11"
    );
    assert_eq!(
        namespace.nguid.to_string(),
        "00112233445566778899aabbccddeeff"
    );
    assert_eq!(namespace.eui64.to_string(), "0011223344556677");
    let host = &state.hosts[&HOST.parse().unwrap()].socket_options;
    let listener = &state.portals[&"[::1]:4444".parse().unwrap()].socket_options;
    assert_eq!(host, listener);
    assert_eq!(
        (host.send_buffer, host.receive_buffer),
        (Some(1 << 20), Some(64 << 10))
    );
    assert_eq!(host.congestion_control.as_deref(), Some("reno"));
    assert_eq!((host.dscp, host.priority), (Some(10), Some(3)));
    assert!(
        state
            .portals
            .contains_key(&"gw.example.com:8009".parse().unwrap())
    );
    gateway.ok(&format!("host set {HOST} --dscp 20 --note x"));
    gateway.ok("listener set [::1]:4444 --reset-socket-options --priority 1");
    let state = gateway.engine.applied().unwrap();
    let host = &state.hosts[&HOST.parse().unwrap()];
    assert_eq!(
        (host.socket_options.dscp, host.socket_options.priority),
        (Some(20), Some(3))
    );
    assert_eq!(host.note, "x");
    let listener = &state.portals[&"[::1]:4444".parse().unwrap()].socket_options;
    assert_eq!((listener.dscp, listener.priority), (None, Some(1)));
}

#[test]
fn wrong_input_is_answered_with_the_way_out() {
    let gateway = Gateway::start();
    gateway.ok("volume add images mem:?size=1M");
    gateway.ok(&format!("subsystem add {SUBSYSTEM}"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} images"));
    gateway.ok("listener add *:4420");
    let cases: &[(&str, i32, &[&str])] = &[
        // The command line itself.
        (
            "volume resize images 10X",
            2,
            &["'10X' is not a size", "16k or 1.5GiB"],
        ),
        ("volume add -x mem:", 2, &["unexpected argument"]),
        (
            "volume add a/b mem:",
            2,
            &["volume name \"a/b\" may hold only letters"],
        ),
        ("volume add a", 2, &["<URL>"]),
        ("volume lst", 2, &["list"]),
        ("volumes list", 2, &["volume"]),
        (
            "subsystem add iqn.2026-01.x:y",
            2,
            &["must have the form nqn.YYYY-MM"],
        ),
        (
            "subsystem add nqn.2026-01.com.example:t --controller-ids 5",
            2,
            &["1-1000"],
        ),
        (
            "subsystem add nqn.2026-01.com.example:t --serial 123456789012345678901",
            2,
            &["1 to 20"],
        ),
        (
            &format!("subsystem allow-any-host {SUBSYSTEM} maybe"),
            2,
            &["write on or off"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} images --nguid 12"),
            2,
            &["32 hexadecimal digits"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} images --uuid 12"),
            2,
            &["invalid value '12'"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} images --visible-to {HOST} --visible-to-all"),
            2,
            &["cannot be used with"],
        ),
        ("listener show 4420", 2, &["has no port: add :PORT"]),
        (
            "listener add * --send-buffer 8T",
            2,
            &["more than a socket buffer can be"],
        ),
        ("connection show x", 2, &["invalid digit"]),
        // What the gateway refuses.
        (
            "volume show imagse",
            1,
            &["there is no volume imagse", "did you mean images?"],
        ),
        (
            "volume show nothing-like-it",
            1,
            &["there is no volume", "weir volume list"],
        ),
        ("volume retry nothing", 1, &["there is no volume nothing"]),
        (
            "volume add images null:",
            1,
            &["volume images exists", "choose another name"],
        ),
        (
            "volume add b nothing",
            1,
            &["must start with the kind of volume", "file:/srv"],
        ),
        (
            "volume remove images",
            1,
            &["in use by namespace 1", "remove what uses it first"],
        ),
        (
            "volume resize images 4k",
            1,
            &["destroys what lies behind", "--force"],
        ),
        (
            "volume resize images 1025k",
            1,
            &["not a whole number of blocks"],
        ),
        (
            &format!("subsystem remove {SUBSYSTEM}"),
            1,
            &["in use by namespace 1", "--force"],
        ),
        (
            &format!("subsystem show {SUBSYSTEM}2"),
            1,
            &["did you mean", SUBSYSTEM],
        ),
        (
            "subsystem add nqn.2026-01.com.example:t --controller-ids 5-4",
            1,
            &["controller_ids must satisfy 1 <= min <= max <= 65519"],
        ),
        (
            "subsystem add nqn.2014-08.org.nvmexpress.discovery",
            1,
            &["is the discovery subsystem's"],
        ),
        (
            &format!("subsystem allow-host {SUBSYSTEM} {HOST}"),
            1,
            &["there is no host", "register it first: weir host add", HOST],
        ),
        (
            &format!("subsystem disallow-host {SUBSYSTEM} {HOST}"),
            1,
            &["there is no host"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} imges"),
            1,
            &["did you mean images?"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} images --nsid 0"),
            1,
            &["must be 1 to 1024"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} images --nsid 5000"),
            1,
            &["must be 1 to 1024"],
        ),
        (
            &format!("namespace add {SUBSYSTEM} images --nsid 1 --read-only"),
            1,
            &[
                "namespace 1 of",
                "exists, with read_only false instead of true",
            ],
        ),
        (
            &format!("namespace show {SUBSYSTEM} 9"),
            1,
            &["has no namespace 9", "namespace list"],
        ),
        (
            &format!("namespace set {SUBSYSTEM} 1"),
            1,
            &["nothing to change", "--read-only"],
        ),
        (
            &format!("namespace set {SUBSYSTEM} 1 --visible-to {HOST}"),
            1,
            &["weir host add"],
        ),
        (
            &format!("namespace remove {SUBSYSTEM} 9"),
            1,
            &["has no namespace 9"],
        ),
        (
            "host add nqn.2014-08.org.nvmexpress.discovery",
            1,
            &["not a host's"],
        ),
        (
            &format!("host set {HOST}"),
            1,
            &["nothing to change", "--note"],
        ),
        (
            &format!("host set {HOST} --note x"),
            1,
            &["there is no host"],
        ),
        (&format!("host remove {HOST}"), 1, &["there is no host"]),
        (
            "listener add 1.2.3",
            1,
            &["is not an address", "IPv6 address in []"],
        ),
        ("listener add *:0", 1, &["a port that is not 1 to 65535"]),
        ("listener add *:1 --dscp 64", 1, &["dscp must be 0 to 63"]),
        (
            "listener add *:1 --send-buffer 1",
            1,
            &["send_buffer must be 4 KiB to 1 GiB"],
        ),
        (
            "listener add *:4420 --discovery",
            1,
            &["listener *:4420 exists, with kind"],
        ),
        ("listener set *:4420", 1, &["nothing to change"]),
        (
            "listener remove *:4421",
            1,
            &["there is no listener", "did you mean *:4420?"],
        ),
        (
            "connection disconnect 5",
            1,
            &["there is no connection 5", "weir connection list"],
        ),
        ("connection show 5", 1, &["there is no connection 5"]),
    ];
    for (arguments, code, pieces) in cases {
        gateway.fails(arguments, *code, pieces);
    }
    gateway.engine.fail_url("mem:bad", true);
    gateway.fails(
        "volume add b mem:bad",
        1,
        &["volume b cannot be opened: it was told to fail"],
    );
    gateway.engine.fail_listener(&"*:5".parse().unwrap(), true);
    gateway.fails("listener add *:5", 1, &["cannot listen at *:5", "ss -ltn"]);
}

#[test]
fn what_goes_on_is_shown() {
    let gateway = Gateway::start();
    gateway.engine.add_connection(connection());
    let list = gateway.ok("connection list");
    assert!(
        list.contains("192.0.2.1:50000") && list.contains("IN FLIGHT"),
        "{list}"
    );
    assert!(
        list.contains("DEPTH") && list.contains("header, data"),
        "{list}"
    );
    let show = gateway.ok("connection show 7");
    for piece in ["cubic", "45 us", "4 KiB", "128 KiB", "64", HOST] {
        assert!(show.contains(piece), "{show}");
    }
    assert!(gateway.ok("reactor list").contains("PROCESSOR"));
    assert_eq!(gateway.json("reactor list")[0]["id"], 0);
    gateway.ok("connection disconnect 7");
    assert_eq!(gateway.json("connection list"), serde_json::json!([]));
    gateway.ok(&format!("subsystem add {SUBSYSTEM}"));
    let status = gateway.ok("status");
    assert!(
        status.contains("no host may connect to subsystem"),
        "{status}"
    );
}

#[test]
fn latencies_are_tables() {
    let gateway = Gateway::start();
    let mut latency = Latency::default();
    latency.add(CommandKind::Read, [0, 640, 81_920, 2_000], 7);
    latency.add(CommandKind::Other, [0, 0, 12_000_000, 0], 1);
    let export = ExportName::Namespace {
        subsystem: SUBSYSTEM.parse().unwrap(),
        nsid: 1,
    };
    gateway.engine.set_export_latency(export, latency.clone());
    gateway.engine.set_connection_latency(7, latency);
    gateway.engine.set_connection_latency(8, Latency::default());
    let words = |text: &str| -> Vec<Vec<String>> {
        let line = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().map(line).collect()
    };
    let text = gateway.ok("latency");
    let lines = words(&text);
    assert_eq!(
        lines[0].join(" "),
        "SUBSYSTEM NSID COMMAND COUNT STAGE MEAN P50 P99 P99.9 MAX"
    );
    assert_eq!(lines.len(), 1 + 2 * 5, "{text}");
    let first = format!("{SUBSYSTEM} 1 read 7 wire-in 0 ns 0 ns 0 ns 0 ns 0 ns");
    assert_eq!(lines[1].join(" "), first);
    assert_eq!(
        lines[3].join(" "),
        "volume 81.9 us 81.9 us 81.9 us 81.9 us 81.9 us"
    );
    assert_eq!(
        lines[8].join(" "),
        "volume 12.0 ms 12.0 ms 12.0 ms 12.0 ms 12.0 ms"
    );
    assert!(lines[6].join(" ").starts_with("other 1 wire-in"), "{text}");
    let text = gateway.ok("latency --connections");
    let lines = words(&text);
    assert_eq!(lines.len(), 1 + 2 * 5, "{text}");
    assert!(lines[1].join(" ").starts_with("7 read 7 wire-in"), "{text}");
    assert_eq!(gateway.ok("latency --connection 7"), text);
    assert_eq!(
        gateway.json("latency --connection 7")["commands"][0]["count"],
        7
    );
    assert_eq!(gateway.json("latency --connections")[1]["connection"], 8);

    gateway.fails("latency --connection 9", 1, &["no connection 9"]);
    let of_missing = format!("latency --namespace {SUBSYSTEM} 1");
    gateway.fails(&of_missing, 1, &[SUBSYSTEM]);
    gateway.fails(
        "latency --namespace nqn.2026-01.com.example:s",
        2,
        &["2 values required"],
    );
    gateway.fails(
        "latency --connections --connection 7",
        2,
        &["cannot be used with"],
    );
    gateway.fails("latency --interval 61", 2, &["61", "1..=60"]);
}

#[test]
fn a_gateway_that_is_not_there_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.sock");
    let output = weir(&missing, "status");
    fails(
        &output,
        "status",
        1,
        &["no gateway is running", "missing.sock", "weir serve"],
    );
    let stale = directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    fails(
        &weir(&stale, "status"),
        "status",
        1,
        &["nobody answers at", "weir serve"],
    );
    let silent = directory.path().join("silent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let closing = std::thread::spawn(move || drop(listener.accept()));
    fails(
        &weir(&silent, "status"),
        "status",
        1,
        &["broke the connection off", "see its log"],
    );
    closing.join().unwrap();
}

/// Root may use every socket, so the command runs as nobody. Skipped where the test is not root.
#[test]
fn a_socket_that_one_may_not_use_says_who_may() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    let gateway = Gateway::start();
    let open = |path: &Path| {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    };
    open(gateway.directory.path());
    // A copy of the command where nobody can run it.
    let command = gateway.directory.path().join("weir");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &command).unwrap();
    open(&command);
    let mut command = Command::new(command);
    command.arg("status").env("WEIR_SOCKET", gateway.socket());
    command.uid(NOBODY).gid(NOBODY);
    // While another test starts a process, that one holds the copy open for writing for a moment.
    let output = loop {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => break other.unwrap(),
        }
    };
    fails(
        &output,
        "status",
        1,
        &["you may not use the control socket", "as root"],
    );
}

#[test]
fn help_and_version() {
    let gateway = Gateway::start();
    assert!(gateway.ok("--version").starts_with("weir "));
    for arguments in [
        "--help",
        "volume --help",
        "listener add --help",
        "namespace add --help",
    ] {
        assert!(
            gateway.ok(arguments).contains("Usage: weir"),
            "weir {arguments}"
        );
    }
    let output = gateway.weir("");
    assert_eq!(output.status.code(), Some(2));
}
