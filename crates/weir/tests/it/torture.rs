//! The wire suite against the real gateway: a process of its own with one reactor, so that the cases and the well-behaved host beside
//! them share it. One test for each group, which fails with all that failed in it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use weir_nvme::{HostId, Nqn};
use weir_testing::exposition;
use weir_torture::context::ShortLimits;
use weir_torture::iscsi::{self, Iscsi};
use weir_torture::nvme::{self, Nvme};
use weir_torture::{Case, Context, Needs, Outcome, Protocol, Record, Resources, Runner, Settings};

use crate::common::gateway::{Gateway, WEIR, url};
use crate::common::{PATIENCE, free_port, nightly};

const SUBSYSTEM: &str = "nqn.2026-01.org.example:tortured";
const TARGET: &str = "iqn.2026-01.org.example:tortured";

/// Longest wait for an answer. Above 56 s the suite would not wait for a keep-alive timer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(50);
/// Time that a gateway gives a host. A process that is stopped for a moment, or sends byte by byte, is not too late.
const HOST_TIME_MAX: Duration = PATIENCE;
/// Limits that the cases about them can reach in no time, and honest hosts too.
const SHORT: ShortLimits = ShortLimits {
    handshake_time: Duration::from_millis(500),
    half_open_max: 16,
    progress_time: Duration::from_secs(1),
};
/// Cases in which the target waits for a keep-alive timer of a second; those of short limits are others.
const EXPIRING: [&str; 4] = [
    "keep_alive_expires",
    "keep_alive_expiry_stops_writes",
    "traffic_keeps_alive",
    "write_of_a_controller_that_expired",
];
/// Cases that count on a process being there within half a second: `weir`, or the gateway.
const HURRIED: [&str; 2] = [
    "subsystem_removed_with_connects_queued",
    "event_requests_at_a_reset",
];
/// Gateways on which cases that mostly wait run side by side.
const LANES: usize = 4;

/// A gateway with one reactor unless a test says otherwise, two listeners and a portal, and two namespaces: 1 keeps data in memory, 2
/// keeps none. Logical unit 0 is the same volume as namespace 1.
struct Tortured {
    gateway: Gateway,
    ports: [u16; 2],
    portal: u16,
    limits: Option<ShortLimits>,
}

impl Tortured {
    fn start() -> Self {
        Self::on(1, "mem:?size=16M", "")
    }

    fn with_short_limits() -> Self {
        Self::limited(1, "mem:?size=16M", "", Some(SHORT))
    }

    /// A gateway on so many reactors whose first namespace is this volume, in which `FOLDER` stands for its folder; `more` is added to its
    /// configuration.
    fn on(reactors: u32, volume: &str, more: &str) -> Self {
        Self::limited(reactors, volume, more, None)
    }

    fn limited(reactors: u32, volume: &str, more: &str, limits: Option<ShortLimits>) -> Self {
        let (handshake, progress) = match limits {
            Some(limits) => (limits.handshake_time, limits.progress_time),
            None => (HOST_TIME_MAX, HOST_TIME_MAX),
        };
        let mut config = format!(
            "limits.handshake_timeout = \"{}ms\"\nlimits.progress_timeout = \"{}ms\"\n",
            handshake.as_millis(),
            progress.as_millis(),
        );
        if let Some(limits) = limits {
            config += &format!("limits.half_open_connections = {}\n", limits.half_open_max);
        }
        // What a case waits for is judged, and a disk may keep a process that saves its state waiting for a minute.
        let folder = match volume.contains("FOLDER") {
            true => tempfile::tempdir(),
            false => tempfile::tempdir_in("/dev/shm"),
        };
        let folder = folder.expect("a folder can be made");
        let mut tortured = Tortured {
            gateway: Gateway::prepared_in(folder, reactors, &(config + more)),
            ports: [free_port(), free_port()],
            portal: free_port(),
            limits,
        };
        tortured.gateway.start();
        let folder = tortured.gateway.path("");
        let folder = folder.display().to_string();
        let volume = volume.replace("FOLDER", folder.trim_end_matches('/'));
        tortured.set_up(&volume);
        tortured
    }

    fn set_up(&self, volume: &str) {
        let gateway = &self.gateway;
        gateway.ok(&format!("volume add kept {volume}"));
        gateway.ok("volume add dropped null:?size=16M");
        gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} kept"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} dropped"));
        for port in self.ports {
            gateway.ok(&format!("listener add 127.0.0.1:{port}"));
        }
        gateway.ok(&format!("target add {TARGET} --allow-any-host"));
        gateway.ok(&format!("lun add {TARGET} kept"));
        let portal = self.portal;
        gateway.ok(&format!("listener add 127.0.0.1:{portal} --protocol iscsi"));
    }

    fn log(&self) -> String {
        self.gateway.log()
    }

    fn target(&self) -> nvme::Target {
        let nqn = |name: &str| Nqn::new(name).expect("an NQN");
        nvme::Target {
            address: address(self.ports[0]),
            second: Some(address(self.ports[1])),
            subsystem: nqn(SUBSYSTEM),
            nsid: 1,
            host_nqn: nqn("nqn.2026-01.org.example:hostile"),
            host_id: HostId([1; 16]),
            witness_nqn: nqn("nqn.2026-01.org.example:witness"),
            witness_id: HostId([2; 16]),
        }
    }

    fn iscsi_target(&self) -> iscsi::Target {
        let name = |end: &str| format!("iqn.2026-01.org.example:{end}");
        iscsi::Target {
            address: address(self.portal),
            second: None,
            name: TARGET.to_owned(),
            lun: 0,
            initiator: name("hostile"),
            witness: name("witness"),
        }
    }

    fn url(&self) -> String {
        url(self.ports[0], SUBSYSTEM, 1)
    }

    fn iscsi_url(&self) -> String {
        format!("iscsi://127.0.0.1:{}/{TARGET}/0", self.portal)
    }

    fn control(&self) -> Box<dyn weir_torture::Gateway> {
        Box::new(Control {
            socket: self.gateway.path("weir.sock"),
            process: self.gateway.id(),
        })
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The suite's bounds are on the loss of an answer, and not on speed: the witness itself gives an answer up after half a minute.
fn settings() -> Settings {
    Settings {
        patience: ANSWER_TIME_MAX,
        stall_max: PATIENCE,
        ..Settings::default()
    }
}

fn weir(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(WEIR);
    command.arg("--socket").arg(socket).args(arguments);
    command.output().expect("the command runs")
}

/// What the suite asks of the gateway.
struct Control {
    socket: PathBuf,
    process: u32,
}

impl Control {
    fn page(&self, path: &str) -> Result<String, String> {
        let page = || {
            let mut stream = UnixStream::connect(&self.socket)?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = page().map_err(|error| format!("{path}: {error}"))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.starts_with("HTTP/1.1 200") {
            Ok(body.to_owned())
        } else {
            Err(format!("{path}: {head}"))
        }
    }

    /// Sums of the metrics by name, over their labels.
    fn metrics(&self) -> Result<BTreeMap<String, f64>, String> {
        let page = self.page("/metrics")?;
        exposition::scrape(&page)?;
        let mut sums = BTreeMap::new();
        for line in page.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let name = name.split('{').next().unwrap_or(name);
            if let Ok(value) = value.parse::<f64>() {
                *sums.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
        Ok(sums)
    }

    /// Commands in flight of all connections.
    fn commands(&self) -> Result<u64, String> {
        let list = self.page("/v1/connections")?;
        let list: serde_json::Value =
            serde_json::from_str(&list).map_err(|error| format!("connections: {error}"))?;
        let connections = list.as_array().ok_or("connections: no list")?;
        Ok(connections
            .iter()
            .filter_map(|connection| connection["in_flight"].as_u64())
            .sum())
    }

    fn resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.process);
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| format!("{path} has no VmRSS: the process has ended"))
    }

    /// Open files, but for the control API's own connections, which come and go.
    fn descriptors(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/fd", self.process);
        let entries = std::fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok(entries.count() as u64)
    }
}

impl weir_torture::Gateway for Control {
    fn resources(&mut self) -> Result<Resources, String> {
        let metrics = self.metrics()?;
        let metric = |name: &str| match metrics.get(name) {
            Some(value) => Ok(*value as u64),
            None => Err(format!("/metrics has no {name}")),
        };
        Ok(Resources {
            connections: metric("weir_connections")?,
            half_open: metric("weir_half_open_connections")?,
            controllers: metric("weir_controllers")?,
            commands: self.commands()?,
            requests: metric("weir_volume_in_flight")?,
            buffer_bytes: metric("weir_reactor_pool_used_bytes")?,
            descriptors: self.descriptors()?,
            resident_bytes: self
                .resident_bytes()?
                .saturating_sub(metric("weir_reactor_pool_held_bytes")?),
            panics: metric("weir_connection_panics_total")?,
        })
    }

    fn weir(&mut self, arguments: &[&str]) -> Result<String, String> {
        let output = weir(&self.socket, arguments);
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

/// A protocol whose suite is run against the gateway.
trait Suite: Protocol {
    /// Groups whose cases mostly wait.
    const LONG: &[u8];

    fn target(gateway: &Tortured) -> Self::Target;
}

impl Suite for Nvme {
    const LONG: &[u8] = &[29, 30];

    fn target(gateway: &Tortured) -> nvme::Target {
        gateway.target()
    }
}

impl Suite for Iscsi {
    const LONG: &[u8] = &[];

    fn target(gateway: &Tortured) -> iscsi::Target {
        gateway.iscsi_target()
    }
}

type Cases<P> = Vec<&'static Case<Context<P>>>;

/// Tells whether the target ends connections in a case because a host was silent for a second or so. The suite's process may be stopped for longer.
fn waits<P: Suite>(case: &Case<Context<P>>) -> bool {
    is_about_limits(case) || EXPIRING.contains(&case.name)
}

fn is_about_limits<P: Suite>(case: &Case<Context<P>>) -> bool {
    case.needs.contains(Needs::SHORT_LIMITS)
}

fn of_groups<P: Suite>(groups: &[u8]) -> Cases<P> {
    let all = P::cases().into_iter();
    all.filter(|case| groups.contains(&case.group)).collect()
}

/// Runs every case of a group against the gateway as it is by default, and those that mostly wait side by side.
fn torture<P: Suite>(group: u8) {
    let (waiting, others): (Cases<P>, Cases<P>) = of_groups(&[group])
        .into_iter()
        .partition(|case| waits(case));
    let (limited, waiting): (Cases<P>, Cases<P>) =
        waiting.into_iter().partition(|case| is_about_limits(case));
    let lanes = match P::LONG.contains(&group) {
        true => LANES,
        false => 1,
    };
    let passed = side_by_side(lanes, &others, Tortured::start)
        + side_by_side(LANES, &waiting, Tortured::start)
        + side_by_side(LANES, &limited, Tortured::with_short_limits);
    assert!(passed > 0, "nothing of group {group} ran");
}

/// Runs cases on so many gateways at once; how many were as expected.
fn side_by_side<P: Suite>(
    lanes: usize,
    cases: &[&'static Case<Context<P>>],
    start: impl Fn() -> Tortured + Sync,
) -> usize {
    let start = &start;
    std::thread::scope(|scope| {
        let lanes = (0..lanes.min(cases.len())).map(|lane| {
            let cases: Vec<_> = cases.iter().skip(lane).step_by(lanes).copied().collect();
            scope.spawn(move || torture_at(&start(), &cases, true))
        });
        let lanes: Vec<_> = lanes.collect();
        let passed = lanes.into_iter().map(|lane| lane.join());
        passed
            .map(|passed| passed.expect("each case is as expected"))
            .sum()
    })
}

/// Tries of a case that depends on time.
const TRIES: usize = 8;

/// A runner; tried again where the gateway's limits are short, and a process may have been stopped for longer.
fn runner<P: Suite>(gateway: &Tortured, settings: Settings) -> Runner<P> {
    for tries_left in (0..TRIES).rev() {
        match Runner::new(P::target(gateway), settings, Some(gateway.control())) {
            Ok(runner) => return runner,
            Err(error) if gateway.limits.is_some() && tries_left > 0 => {
                println!("a runner once more: {error}");
            }
            Err(error) => panic!("{error}\n{}", gateway.log()),
        }
    }
    unreachable!("the last try returns or panics")
}

/// Runs a case; again where it failed, and that may be because a process was stopped for a moment.
fn run<P: Suite>(runner: &mut Runner<P>, case: &'static Case<Context<P>>) -> Record<P> {
    let is_timed = waits(case) || HURRIED.contains(&case.name);
    let mut record = runner.run(case);
    for _ in 1..TRIES {
        if !is_timed || !record.outcome.is_failure() {
            break;
        }
        println!("{} once more: {}", case.name, record.got);
        record = runner.run(case);
    }
    record
}

/// Runs these cases; `all`: none may be skipped. How many were as expected.
fn torture_at<P: Suite>(
    gateway: &Tortured,
    cases: &[&'static Case<Context<P>>],
    all: bool,
) -> usize {
    let settings = Settings {
        destroy_data: true,
        own: Some(true),
        limits: gateway.limits,
        ..settings()
    };
    let mut runner: Runner<P> = runner(gateway, settings);
    let mut failed: Vec<String> = Vec::new();
    let mut passed = 0;
    for case in cases {
        let record = run(&mut runner, case);
        let line = format!(
            "{:<48} {:<16} {} ({:?}, the witness waited {:?} at most)",
            case.name,
            record.outcome.name(),
            record.got,
            record.took,
            record.seen.worst,
        );
        println!("{line}");
        match record.outcome {
            Outcome::Ok => passed += 1,
            Outcome::NotApplicable => {}
            Outcome::Skipped if !all => {}
            // What this gateway does not give, no gateway would.
            _ => failed.push(line),
        }
    }
    assert!(
        failed.is_empty(),
        "{} cases failed:\n{}\nthe gateway's log:\n{}",
        failed.len(),
        failed.join("\n"),
        gateway.log()
    );
    passed
}

macro_rules! groups {
    ($protocol:ident $all:ident: $($name:ident $group:literal;)*) => {
        $(#[test]
        fn $name() {
            torture::<$protocol>($group);
        })*

        #[test]
        fn $all() {
            let tested = [$($group),*];
            for case in $protocol::cases() {
                assert!(tested.contains(&case.group), "group {} has no test", case.group);
            }
        }
    };
}

#[test]
fn cases_that_depend_on_time_are_there() {
    for name in EXPIRING.iter().chain(&HURRIED) {
        let mut all = Nvme::cases().into_iter();
        assert!(
            all.any(|case| case.name == *name),
            "there is no case {name}"
        );
    }
}

/// A session begins on the reactor that it belongs on: here are the groups in which that can matter.
#[test]
fn iscsi_sessions_that_move_between_reactors() {
    let cases: Cases<Iscsi> = of_groups(&[1, 9, 10])
        .into_iter()
        .filter(|case| !is_about_limits(case))
        .collect();
    let passed = side_by_side(2, &cases, || Tortured::on(3, "mem:?size=16M", ""));
    assert!(passed > 0, "nothing ran");
}

/// With several reactors an I/O queue moves with the answer to its Connect; here are the groups in which that can matter.
#[test]
fn queues_that_move_between_reactors() {
    let mut cases: Cases<Nvme> = of_groups(&[16, 17, 20, 21, 28, 29, 30]);
    if !nightly() {
        cases.retain(|case| !waits(case));
    }
    let passed = side_by_side(LANES, &cases, || Tortured::on(3, "mem:?size=16M", ""));
    assert!(passed > 0, "nothing ran");
}

groups! {
    Nvme every_group_with_cases_has_a_test:
    group_01_icreq_fields 1;
    group_02_first_pdu 2;
    group_03_pieces_and_silence 3;
    group_04_icreq_racing_close 4;
    group_05_alignment 5;
    group_06_lengths 6;
    group_07_digests 7;
    group_08_terminations 8;
    group_09_endings 9;
    group_10_data_not_asked_for 10;
    group_11_data_offsets 11;
    group_12_abort_while_data_is_awaited 12;
    group_13_in_capsule_data 13;
    group_14_sgl 14;
    group_15_queue_depth 15;
    group_16_connect 16;
    group_17_connect_races 17;
    group_18_discovery_log 18;
    group_19_authentication 19;
    group_20_properties 20;
    group_21_keep_alive 21;
    group_22_events 22;
    group_23_identify 23;
    group_24_number_of_queues 24;
    group_25_ranges 25;
    group_26_fused 26;
    group_27_reservations 27;
    group_28_abort 28;
    group_29_stale_writes 29;
    group_30_changes 30;
}

groups! {
    Iscsi every_group_of_iscsi_has_a_test:
    iscsi_group_01_login 1;
    iscsi_group_02_login_text 2;
    iscsi_group_03_requests 3;
    iscsi_group_04_lengths_and_digests 4;
    iscsi_group_05_numbers 5;
    iscsi_group_06_data 6;
    iscsi_group_07_residuals 7;
    iscsi_group_08_commands 8;
    iscsi_group_09_task_management 9;
    iscsi_group_10_endings 10;
    iscsi_group_11_discovery 11;
}

/// Where data goes depends on the medium and on the limits: the groups about data once more with others.
#[test]
fn data_on_a_file_under_other_limits() {
    let limits = "[transport]\nin_capsule_size = \"4k\"\ndata_transfer_size_max = \"4M\"\n";
    let gateway = Tortured::on(1, "file:FOLDER/image?size=16M", limits);
    let passed = torture_at::<Nvme>(&gateway, &of_groups(&[7, 10, 11, 12, 13, 14, 15]), false);
    assert!(passed > 0, "nothing ran");
}

#[test]
fn data_without_capsules_under_small_limits() {
    let limits = "[transport]\nin_capsule_size = 0\ndata_transfer_size_max = \"64k\"\n";
    let gateway = Tortured::on(1, "mem:?size=16M&block_size=512", limits);
    let passed = torture_at::<Nvme>(&gateway, &of_groups(&[7, 10, 11, 12, 13, 14, 15]), false);
    assert!(passed > 0, "nothing ran");
}

/// Runs the command itself.
fn command(arguments: &[&str]) -> Output {
    Command::new(WEIR)
        .arg("torture")
        .args(arguments)
        .output()
        .expect("the command runs")
}

#[test]
fn the_command_prints_a_table_and_a_report() {
    let gateway = Tortured::start();
    let url = gateway.url();
    let output = command(&[
        &url,
        "--only",
        "icreq_pfv",
        "--only",
        "8",
        "--stall",
        "300s",
    ]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}\n{}", gateway.log());
    assert!(
        table.contains("icreq_pfv_1") && table.contains("as expected"),
        "{table}"
    );
    // Without leave to write the cases that write are skipped, and say so.
    assert!(table.contains("needs leave to write"), "{table}");

    let output = command(&[
        &url,
        "--only",
        "tls_alert_inside_a_transfer",
        "--only",
        "1",
        "--json",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["model"], "Weir");
    assert_eq!(report["counts"]["not applicable"], 1, "{report}");
    assert!(report["counts"]["ok"].as_u64() > Some(10), "{report}");
    let first = &report["cases"][0];
    assert_eq!(
        (&first["group"], &first["outcome"]),
        (&1.into(), &"ok".into())
    );

    let url = gateway.iscsi_url();
    let output = command(&[
        &url,
        "--only",
        "login_is_",
        "--only",
        "8",
        "--stall",
        "300s",
    ]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}\n{}", gateway.log());
    let parts = [
        "login_is_not_final",
        "(WEIR VOLUME)",
        "needs leave to write",
    ];
    assert!(parts.iter().all(|part| table.contains(part)), "{table}");
}

#[test]
fn a_target_that_a_case_ended_is_started_again() {
    let mut gateway = Tortured::start();
    let runner = Runner::<Nvme>::new(gateway.target(), settings(), None);
    let mut runner = runner.expect("it serves");
    let case = |name: &str| {
        let all = Nvme::cases();
        *all.iter().find(|case| case.name == name).expect("a case")
    };
    gateway.gateway.kill();
    assert_eq!(runner.run(case("icreq_pfv_1")).outcome, Outcome::TargetGone);
    let record = runner.run(case("icreq_pfv_1"));
    assert_eq!(record.outcome, Outcome::Skipped, "{}", record.got);
    runner.set_restart(Box::new(|| Err("it is broken".into())));
    let record = runner.run(case("icreq_pfv_1"));
    assert_eq!(record.outcome, Outcome::Skipped);
    assert!(record.got.ends_with("it is broken"), "{}", record.got);
    let mut command = gateway.gateway.serving(WEIR);
    let (send, receive) = std::sync::mpsc::channel();
    runner.set_restart(Box::new(move || {
        let process = command.spawn().map_err(|error| error.to_string())?;
        send.send(process).map_err(|error| error.to_string())
    }));
    let record = runner.run(case("icreq_pfv_1"));
    gateway
        .gateway
        .adopt(receive.try_recv().expect("it was started"));
    assert_eq!(record.outcome, Outcome::Ok, "{}", record.got);
    assert!(record.seen.commands > 0, "the witness is back, too");
}

#[test]
fn the_command_refuses_what_may_not_be_tortured() {
    for (arguments, says) in [
        (
            vec!["nvme+tcp://192.0.2.1/nqn.2026-01.org.example:a?nsid=1"],
            "--i-own-this-target",
        ),
        (vec!["mem:?size=1M"], "no NVMe/TCP and no iSCSI target"),
        (
            vec!["iscsi://192.0.2.1/iqn.2026-01.org.example:a/0"],
            "--i-own-this-target",
        ),
        (
            vec!["iscsi://127.0.0.1:1/iqn.2026-01.org.example:a/0?user=a"],
            "no CHAP",
        ),
        (
            vec!["nvme+tcp://127.0.0.1:1/nqn.2026-01.org.example:a?nsid=1"],
            "a well-behaved host cannot use",
        ),
        (
            vec![
                "nvme+tcp://127.0.0.1:1/nqn.2026-01.org.example:a?nsid=1",
                "--only",
                "nothing",
            ],
            "--list",
        ),
    ] {
        let output = command(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let output = command(&["--list"]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success()
            && listed.contains("icreq_plen_127")
            && listed.contains("reinstatement_race"),
        "{listed}"
    );
    assert_eq!(
        command(&[]).status.code(),
        Some(2),
        "a target must be named"
    );
}
