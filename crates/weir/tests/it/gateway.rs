//! The real gateway as its operator meets it: what it says, what it refuses, what the service
//! manager sees, what the kernel reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Instant;

use command_fds::{CommandFdExt, FdMapping};
use serde_json::Value;

use crate::common::gateway::{Gateway, WEIR, recovering, url};
use crate::common::{PATIENCE, free_port, retry, until};

const SUBSYSTEM: &str = "nqn.2026-01.com.example:s";
const HOST: &str = "nqn.2026-01.com.example:host-1";
const OTHER_HOST: &str = "nqn.2026-01.com.example:host-2";

/// Serves a volume in memory, and returns the URL at which it is found. Its rate is enough for all that is looked for, and keeps a load that goes on
/// without an end from taking all processors.
fn serve_memory(gateway: &Gateway, size: &str) -> String {
    gateway.serve(SUBSYSTEM, "memory", &format!("mem:?size={size}&rate=2000"))
}

#[test]
fn a_host_discovers_what_it_may_connect_to_and_no_more() {
    let gateway = Gateway::started();
    let port = free_port();
    gateway.ok(&format!("subsystem add {SUBSYSTEM}"));
    gateway.ok(&format!("host add {HOST}"));
    gateway.ok(&format!("subsystem allow-host {SUBSYSTEM} {HOST}"));
    gateway.ok(&format!("listener add *:{port}"));
    let seen = |host: &str, address: &str| {
        let found = gateway.json(&format!("discover {address}:{port} --hostnqn {host}"));
        let entries = found.as_array().unwrap().iter();
        let of_subsystem = entries.filter(|entry| entry["subsystem"] == SUBSYSTEM);
        of_subsystem
            .map(|entry| entry["address"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // The wildcard advertises the address that the host reached.
    assert_eq!(seen(HOST, "127.0.0.1"), ["127.0.0.1"]);
    assert_eq!(seen(HOST, "[::1]"), ["::1"]);
    assert!(seen(OTHER_HOST, "127.0.0.1").is_empty());
    gateway.ok(&format!("subsystem allow-any-host {SUBSYSTEM} on"));
    assert_eq!(seen(OTHER_HOST, "127.0.0.1"), ["127.0.0.1"]);
    gateway.ok(&format!("listener remove *:{port}"));
    let refused = gateway.weir(&format!("discover 127.0.0.1:{port}"));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        text.contains("is the target running and listening there?"),
        "{text}"
    );
}

#[test]
fn socket_options_are_what_the_kernel_reports() {
    let gateway = Gateway::started();
    let url = serve_memory(&gateway, "64M");
    let port = url
        .split([':', '/'])
        .find_map(|part| part.parse::<u16>().ok())
        .unwrap();
    gateway.ok(&format!(
        "listener set 127.0.0.1:{port} --send-buffer 256k --dscp 10 --priority 3"
    ));
    gateway.ok(&format!("host add {HOST}"));
    gateway.ok(&format!(
        "host set {HOST} --dscp 20 --congestion-control reno"
    ));
    for (host, dscp, congestion_control) in [(OTHER_HOST, 10, None), (HOST, 20, Some("reno"))] {
        let url = format!("{url}&hostnqn={host}");
        let client = gateway.background(&format!("verify --duration 600 {url}"));
        let mut reported = Vec::new();
        until("the host is connected with its I/O queue", || {
            let connections = gateway.json("connection list");
            // A connection that ends while it is asked about has no socket to report on: the one through which the tool looked
            // at what the volume carries, for one.
            let of_host = |connection: &&Value| {
                connection["queue"]["host"] == host && !connection["socket"].is_null()
            };
            reported = connections
                .as_array()
                .unwrap()
                .iter()
                .filter(of_host)
                .cloned()
                .collect();
            reported
                .iter()
                .any(|connection| connection["queue"]["queue_id"] != 0)
        });
        drop(client);
        for connection in &reported {
            let socket = &connection["socket"];
            assert_eq!(socket["dscp"], dscp, "{connection}");
            assert_eq!(socket["priority"], 3, "{connection}");
            // Linux reports twice what was set, as far as net.core.wmem_max lets it.
            let limit = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap();
            let limit: u64 = limit.trim().parse().unwrap();
            assert_eq!(
                socket["send_buffer"],
                2 * limit.min(256 << 10),
                "{connection}"
            );
            if let Some(name) = congestion_control {
                assert_eq!(socket["congestion_control"], name, "{connection}");
            }
        }
    }
}

#[test]
fn what_hosts_do_is_counted() {
    let gateway = Gateway::started();
    let url = serve_memory(&gateway, "4M");
    gateway.ok(&format!("verify {url}"));
    let page = gateway.page();
    assert!(
        page.contains("content-type: text/plain; version=0.0.4"),
        "{page}"
    );
    let number = |start: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start} in\n{page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let subsystem = format!("{{subsystem=\"{SUBSYSTEM}\"}}");
    let written = number(&format!("weir_subsystem_written_bytes_total{subsystem}"));
    let read = number(&format!("weir_subsystem_read_bytes_total{subsystem}"));
    assert!(
        written >= f64::from(4 << 20) && read >= f64::from(4 << 20),
        "{written} {read}"
    );
    let labels = "volume=\"memory\",operation=\"write\"";
    let of_volume = number(&format!("weir_volume_bytes_total{{{labels}}}"));
    assert_eq!(of_volume, written);
    let ended = number(&format!(
        "weir_volume_requests_total{{{labels},result=\"succeeded\"}}"
    ));
    let counted = number(&format!("weir_volume_latency_seconds_count{{{labels}}}"));
    let below = number(&format!(
        "weir_volume_latency_seconds_bucket{{{labels},le=\"+Inf\"}}"
    ));
    assert!(
        ended > 0.0 && ended == counted && counted == below,
        "{ended} {counted} {below}"
    );
    assert_eq!(
        number(&format!("weir_subsystem_failed_commands_total{subsystem}")),
        0.0
    );
    assert_eq!(number("weir_volume_online{volume=\"memory\"}"), 1.0);
}

/// A namespace's limits hold for its hosts, change under load, are shown, and are kept.
#[test]
fn limits_of_a_namespace_hold_and_change_live_and_are_kept() {
    let mut gateway = Gateway::started();
    let url = serve_memory(&gateway, "4M");
    let namespace = format!("{SUBSYSTEM} 1");
    let throttled = |gateway: &Gateway| {
        gateway.json(&format!("namespace show {namespace}"))["throttled"].clone()
    };
    let reads = |gateway: &Gateway| {
        let statistics = gateway.json("latency");
        let commands = statistics[0]["commands"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let reads = commands.iter().find(|one| one["command"] == "read");
        reads.map_or(0, |reads| reads["count"].as_u64().unwrap())
    };
    gateway.ok(&format!("bench {url} -r 100 -d 8 -t 200ms"));
    assert_eq!(
        throttled(&gateway)["requests"],
        0,
        "without limits nothing waits"
    );
    gateway.ok(&format!(
        "namespace set {namespace} --read-iops 400 --read-iops-burst 40 --write-bandwidth 1M"
    ));
    let text = gateway.ok(&format!("namespace show {namespace}"));
    assert!(text.contains("read IOPS 400, burst 40"), "{text}");
    assert!(text.contains("write bandwidth 1 MiB/s, burst"), "{text}");

    let (before, began) = (reads(&gateway), Instant::now());
    until("reads that the limit holds up", || {
        gateway.ok(&format!("bench {url} -r 100 -d 32 -t 500ms"));
        let waited = throttled(&gateway);
        waited["requests"].as_u64() > Some(100)
            && waited["waited_ns"].as_u64() > Some(1_000_000_000)
    });
    // A machine that does much else makes it fewer reads in the same time, and never more.
    let (done, seconds) = (reads(&gateway) - before, began.elapsed().as_secs_f64());
    assert!(
        (done as f64) <= 400.0 * seconds + 40.0,
        "{done} in {seconds} s"
    );
    let status = gateway.ok("status");
    assert!(status.contains("1 namespaces; "), "{status}");
    let page = gateway.page();
    let labels = format!("subsystem=\"{SUBSYSTEM}\",nsid=\"1\"");
    for line in [
        format!("weir_namespace_limit{{{labels},limit=\"read_iops\"}} 400"),
        format!("weir_namespace_limit_burst{{{labels},limit=\"read_iops\"}} 40"),
        format!("weir_namespace_limit{{{labels},limit=\"write_bandwidth\"}} 1048576"),
        format!("weir_namespace_throttled_waiting{{{labels}}} 0"),
    ] {
        assert!(page.lines().any(|one| one == line), "no {line} in\n{page}");
    }

    // A load that could not end for a day goes on at once when its limit is taken away.
    gateway.ok(&format!("namespace set {namespace} --read-iops 1"));
    let start = || gateway.background(&format!("bench {url} -r 100 -d 16 -t 200ms"));
    let mut load = start();
    until("requests that wait", || {
        // Where it was stopped for all of its time it sent nothing.
        if load.has_ended() {
            load = start();
        }
        throttled(&gateway)["waiting"].as_u64().unwrap() >= 8
    });
    gateway.ok(&format!("namespace set {namespace} --read-iops 0"));
    until("the end of the load", || load.has_ended());
    assert!(load.0.wait().unwrap().success());
    gateway.fails(
        &format!("namespace set {namespace} --total-iops 1000 --total-iops-burst 9"),
        &["total_iops", "a burst of 10"],
    );
    gateway.fails(
        &format!("namespace set {namespace} --total-bandwidth 2048T"),
        &["total_bandwidth", "must be 1 to"],
    );

    gateway.kill();
    gateway.start();
    let shown = gateway.json(&format!("namespace show {namespace}"));
    let kept = serde_json::json!({"write_bandwidth": {"limit": 1048576, "burst": 104858}});
    assert_eq!(shown["qos"], kept);
}

/// Each host of a load has a name of its own, and as many I/O queues as were asked for.
#[test]
fn the_hosts_of_a_load_are_so_many_hosts_to_the_gateway() {
    let gateway = Gateway::started();
    let url = serve_memory(&gateway, "4M");
    let load = gateway.background(&format!(
        "bench {url} --hosts 4 --queues 2 -r 100 -d 2 -t 600s"
    ));
    let mut queues = BTreeMap::new();
    until("eight I/O queues", || {
        queues.clear();
        for connection in gateway.json("connection list").as_array().unwrap() {
            let queue = &connection["queue"];
            if queue["queue_id"].as_u64().is_some_and(|of| of > 0) {
                let host = queue["host"].as_str().unwrap().to_owned();
                *queues.entry(host).or_insert(0) += 1;
            }
        }
        queues.values().sum::<u32>() == 8
    });
    drop(load);
    assert_eq!(queues.len(), 4, "{queues:?}");
    assert!(queues.values().all(|&of| of == 2), "{queues:?}");
}

/// Where commands' time went, as seen by API, command line and metrics: every command of a load is in each.
#[test]
fn where_time_went_is_shown() {
    let gateway = Gateway::started();
    let url = serve_memory(&gateway, "4M");
    assert_eq!(gateway.ok("latency").lines().count(), 1, "no command yet");
    let load = gateway.background(&format!(
        "bench {url} -r 70 -d 2 -t 600s --destroy-data {url}"
    ));
    until("commands of the load", || {
        gateway.ok("latency").contains("write")
    });
    // An interval in which the load had a processor.
    let mut over = Value::Null;
    until("reads and writes in an interval", || {
        over = gateway.json("latency --interval 1");
        let commands = over[0]["commands"].as_array();
        ["read", "write"].iter().all(|command| {
            let is_it = |one: &Value| one["command"] == *command && one["count"].as_u64() > Some(0);
            commands.is_some_and(|all| all.iter().any(is_it))
        })
    });
    let whole = gateway.json("latency");
    let times = |of: &Value, command: &str| -> Value {
        let commands = of[0]["commands"].as_array().unwrap();
        let of_command = commands.iter().find(|one| one["command"] == command);
        of_command
            .unwrap_or_else(|| panic!("no {command} in {of}"))
            .clone()
    };
    for command in ["read", "write"] {
        let (over, whole) = (times(&over, command), times(&whole, command));
        let number = |of: &Value, field: &str| of[field].as_u64().unwrap();
        assert!(number(&over, "count") > 0, "{over}");
        assert!(
            number(&over, "count") < number(&whole, "count"),
            "{over} {whole}"
        );
        let mean = |stage: &str| number(&whole[stage], "mean_ns");
        let stages: u64 = ["wire_in", "queue", "volume", "wire_out"]
            .into_iter()
            .map(mean)
            .sum();
        assert!(
            mean("total").abs_diff(stages) <= 4,
            "the stages are the whole: {whole}"
        );
        assert!(mean("total") > 0, "{whole}");
        let total = &whole["total"];
        assert!(
            number(total, "p50_ns") <= number(total, "p99_ns"),
            "{whole}"
        );
        assert!(
            number(total, "p99_ns") <= number(total, "max_ns"),
            "{whole}"
        );
    }
    // Of its connections the one with an I/O queue has times, and says what was agreed.
    let connections = gateway.json("latency --connections");
    let connections = connections.as_array().unwrap();
    let busy: Vec<_> = connections
        .iter()
        .filter(|one| !one["commands"].as_array().unwrap().is_empty())
        .collect();
    assert_eq!(busy.len(), 1, "{connections:?}");
    let id = &busy[0]["connection"];
    let queue = &gateway.json(&format!("connection show {id}"))["queue"];
    assert_eq!(queue["queue_id"], 1, "{queue}");
    assert_eq!(queue["header_digest"], false, "{queue}");
    assert!(queue["queue_depth"].as_u64().unwrap() >= 2, "{queue}");
    drop(load);

    until("the end of the connection", || {
        gateway
            .json("connection list")
            .as_array()
            .unwrap()
            .is_empty()
    });
    let shown = gateway.json(&format!("latency --namespace {SUBSYSTEM} 1"));
    let shown = Value::Array(vec![shown]);
    let page = gateway.page();
    for command in ["read", "write"] {
        let labels = format!("subsystem=\"{SUBSYSTEM}\",command=\"{command}\"");
        for stage in ["wire_in", "queue", "volume", "wire_out", "total"] {
            let start = format!("weir_command_seconds_count{{{labels},stage=\"{stage}\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(&start));
            let count: u64 = line
                .unwrap_or_else(|| panic!("no {start} in {page}"))
                .parse()
                .unwrap();
            assert_eq!(count, times(&shown, command)["count"], "{command} {stage}");
        }
    }
}

#[test]
fn a_host_goes_on_over_disconnects_resizes_and_other_changes() {
    let gateway = Gateway::started();
    // A gateway that ends a connection loses nothing that it acknowledged.
    let url = recovering(&serve_memory(&gateway, "16M")) + "&queues=2&flush_after_reconnect=trust";
    let connections = || -> BTreeSet<u64> {
        let listed = gateway.json("connection list");
        let each = listed.as_array().unwrap().iter();
        each.map(|one| one["id"].as_u64().unwrap()).collect()
    };
    retry("the host is there for three disconnects", |attempt| {
        let mut verify = gateway
            .weir_command(&format!(
                "verify --range 8M --duration {} {url} --destroy-data {url}",
                2 * attempt
            ))
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut seen, mut times) = (BTreeSet::new(), 0);
        for round in 0..3 {
            let mut there = BTreeSet::new();
            until("the host is connected anew, or done", || {
                there = &connections() - &seen;
                !there.is_empty() || verify.try_wait().unwrap().is_some()
            });
            if round == 0 {
                gateway.ok("volume resize memory 32M");
                gateway.ok("volume add second mem:?size=1M");
                gateway.ok(&format!("namespace add {SUBSYSTEM} second"));
            }
            times += u32::from(!there.is_empty());
            // Which connections there are changes as the host comes back.
            for id in connections() {
                gateway.weir(&format!("connection disconnect {id}"));
                seen.insert(id);
            }
        }
        gateway.ok(&format!("namespace remove {SUBSYSTEM} 2"));
        gateway.ok("volume remove second");
        let output = verify.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (times == 3).then_some(())
    });
    assert_eq!(gateway.json("namespace list")[0]["size_bytes"], 32 << 20);
}

/// Connections of `host` as the gateway lists them.
fn connections_of(gateway: &Gateway, host: &str) -> usize {
    let connections = gateway.json("connection list");
    let of_host = |connection: &&Value| connection["queue"]["host"] == host;
    connections
        .as_array()
        .unwrap()
        .iter()
        .filter(of_host)
        .count()
}

#[test]
fn a_host_that_may_no_longer_connect_is_disconnected_and_others_stay() {
    let gateway = Gateway::started();
    gateway.ok("volume add memory mem:?size=64M&rate=2000");
    gateway.ok(&format!("subsystem add {SUBSYSTEM}"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} memory"));
    for host in [HOST, OTHER_HOST] {
        gateway.ok(&format!("host add {host}"));
        gateway.ok(&format!("subsystem allow-host {SUBSYSTEM} {host}"));
    }
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    let load = |host: &str| {
        let url = url(port, SUBSYSTEM, 1);
        gateway.background(&format!("bench --duration 600 {url}&hostnqn={host}"))
    };
    let clients = [HOST, OTHER_HOST].map(load);
    let connected = |host| connections_of(&gateway, host) >= 2;
    until("both hosts are connected", || {
        connected(HOST) && connected(OTHER_HOST)
    });
    gateway.ok(&format!("subsystem disallow-host {SUBSYSTEM} {HOST}"));
    until("the host is disconnected", || {
        connections_of(&gateway, HOST) == 0
    });
    assert!(connected(OTHER_HOST), "the other host was disconnected too");
    gateway.ok(&format!("subsystem remove {SUBSYSTEM} --force"));
    until("nobody is connected", || {
        connections_of(&gateway, OTHER_HOST) == 0
    });
    gateway.ok("volume remove memory");
    drop(clients);
}

#[test]
fn a_namespace_is_there_for_those_who_may_see_it() {
    let gateway = Gateway::started();
    let url = serve_memory(&gateway, "1M");
    gateway.ok(&format!("host add {HOST}"));
    gateway.ok(&format!("namespace set {SUBSYSTEM} 1 --visible-to {HOST}"));
    let sees = |host: &str| {
        let url = format!("{url}&hostnqn={host}");
        let output = gateway.weir(&format!("verify {url} --destroy-data {url}"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    let (seen, text) = sees(HOST);
    assert!(seen, "{text}");
    let (seen, text) = sees(OTHER_HOST);
    assert!(!seen && text.contains("namespace"), "{text}");
    gateway.ok(&format!(
        "namespace set {SUBSYSTEM} 1 --visible-to-all --read-only on"
    ));
    let (written, text) = sees(OTHER_HOST);
    assert!(!written && text.contains("read-only"), "{text}");
}

#[test]
fn a_volume_removed_under_load_ends_the_load_and_frees_its_file() {
    let gateway = Gateway::started();
    let file = gateway.path("image");
    gateway.ok(&format!(
        "volume add image file:{}?size=16M",
        file.display()
    ));
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} image"));
    let port = free_port();
    gateway.ok(&format!("listener add localhost:{port}"));
    let url = url(port, SUBSYSTEM, 1).replace("127.0.0.1", "localhost");
    let _load = gateway.background(&format!("bench {url} --duration 600 --destroy-data {url}"));
    let served = || {
        gateway
            .page()
            .contains("operation=\"read\",result=\"succeeded\"")
    };
    until("there is load", served);
    gateway.ok(&format!("namespace remove {SUBSYSTEM} 1"));
    gateway.ok("volume remove image");
    // The file is not held any more: another may open it for writing.
    gateway.ok(&format!("volume add again file:{}", file.display()));
    assert_eq!(gateway.json("volume show again")["status"], "online");
}

#[test]
fn a_volume_that_is_missing_at_start_is_failed_and_comes_back() {
    let mut gateway = Gateway::started();
    let file = gateway.path("image");
    gateway.ok(&format!("volume add image file:{}?size=1M", file.display()));
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} image"));
    let uuid = gateway.json("namespace list")[0]["uuid"].clone();
    assert_eq!(gateway.end(), Some(0));
    let away = gateway.path("away");
    std::fs::rename(&file, &away).unwrap();
    gateway.start();
    let volume = gateway.json("volume show image");
    assert_eq!(volume["status"], "failed");
    assert!(
        volume["reason"]
            .as_str()
            .unwrap()
            .contains("is not made anew"),
        "{volume}"
    );
    assert!(!file.exists(), "an empty file took the place of data");
    assert_eq!(gateway.json("namespace list")[0]["online"], false);
    assert!(
        gateway
            .ok("status")
            .contains("volume image cannot be opened")
    );
    gateway.fails("volume retry image", &["image cannot be opened"]);
    gateway.fails(
        "volume resize image 2M",
        &["volume image is not open", "weir volume retry image"],
    );
    std::fs::rename(&away, &file).unwrap();
    gateway.ok("volume retry image");
    let namespace = &gateway.json("namespace list")[0];
    assert_eq!(
        (&namespace["online"], &namespace["uuid"]),
        (&Value::Bool(true), &uuid)
    );
}

#[test]
fn listeners_that_cannot_be_had_say_why() {
    let gateway = Gateway::started();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    gateway.fails(
        &format!("listener add 127.0.0.1:{port}"),
        &["in use", "ss -ltn"],
    );
    gateway.fails(
        "listener add 192.0.2.1:4420",
        &["192.0.2.1:4420", "ip address"],
    );
    gateway.fails(
        "listener add no-such-host.invalid:4420",
        &["cannot resolve", "no-such-host"],
    );
    gateway.fails(
        &format!(
            "listener add 127.0.0.1:{} --congestion-control nonsense",
            free_port()
        ),
        &["cannot listen at"],
    );
    assert_eq!(gateway.json("listener list"), serde_json::json!([]));
}

#[test]
fn volumes_that_cannot_be_had_say_why() {
    let gateway = Gateway::started();
    let file = gateway.path("image");
    gateway.ok(&format!("volume add first file:{}?size=1M", file.display()));
    let again = format!("volume add second file:{}", file.display());
    gateway.fails(
        &again,
        &["volume second cannot be opened", "opened for writing once"],
    );
    gateway.fails(
        "volume add x memory:?size=1M",
        &["there are no memory: volumes", "mem:"],
    );
    gateway.fails(
        "volume add x mem:?size=1M&blok_size=512",
        &["did you mean block_size=?"],
    );
    gateway.fails("volume add x mem:?size=10X", &["10X"]);
    gateway.fails("volume add x mem:", &["size="]);
    gateway.fails(
        "volume add x file:/nonexistent/folder/image?size=1M",
        &["/nonexistent/folder"],
    );
    gateway.fails("volume resize first 1000", &["not a whole number"]);
    gateway.fails("volume resize first 512k", &["destroys", "--force"]);
    gateway.ok("volume resize first 512k --force");
    assert_eq!(
        gateway.json("volume show first")["report"]["size_bytes"],
        512 << 10
    );
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 512 << 10);
}

#[test]
fn a_resize_holds_over_a_restart_by_kill_9() {
    let mut gateway = Gateway::started();
    let file = gateway.path("image");
    gateway.ok(&format!("volume add image file:{}?size=1M", file.display()));
    gateway.ok("volume resize image 4M");
    gateway.kill();
    gateway.start();
    assert_eq!(
        gateway.json("volume show image")["report"]["size_bytes"],
        4 << 20
    );
    // A kill between the medium's new size and the state's leaves the medium larger.
    gateway.kill();
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    gateway.start();
    assert_eq!(
        gateway.json("volume show image")["report"]["size_bytes"],
        8 << 20
    );
}

#[test]
fn a_gateway_does_not_start_where_it_must_not() {
    let gateway = Gateway::started();
    let text = gateway.fails_to_start();
    assert!(
        text.contains("in use by another gateway (process "),
        "{text}"
    );

    let damaged = Gateway::prepared("");
    std::fs::write(damaged.path("state.json"), "{\"format\": 1, \"crc").unwrap();
    let text = damaged.fails_to_start();
    assert!(text.contains("is damaged and was left as it is"), "{text}");
    assert_eq!(
        std::fs::read(damaged.path("state.json")).unwrap(),
        b"{\"format\": 1, \"crc"
    );

    let newer = Gateway::prepared("");
    let later = "{\"format\": 999, \"crc32c\": \"00000000\", \"state\": {}}";
    std::fs::write(newer.path("state.json"), later).unwrap();
    let text = newer.fails_to_start();
    assert!(text.contains("has format 999"), "{text}");

    let wrong = Gateway::prepared("spin = \"1h\"");
    let text = wrong.fails_to_start();
    assert!(
        text.contains("line 3") && text.contains("0us to 10ms"),
        "{text}"
    );
    assert!(text.contains("docs/weir.toml"), "{text}");

    let greedy = Gateway::prepared("limits.memory = \"999T\"");
    let text = greedy.fails_to_start();
    assert!(
        text.contains("limits.memory is 999 TiB, more than the"),
        "{text}"
    );

    let wide = Gateway::prepared("limits.connections = 65536\nlimits.queue_depth = 4096");
    let text = wide.fails_to_start();
    assert!(text.contains("lower limits.connections to "), "{text}");
    assert!(text.contains("memory at worst:"), "{text}");

    let occupied = Gateway::prepared("");
    std::fs::write(occupied.path("weir.sock"), "precious").unwrap();
    let text = occupied.fails_to_start();
    assert!(text.contains("is not a socket"), "{text}");

    let filtered = Gateway::prepared("");
    let mut command = filtered.serving(WEIR);
    let output = command
        .env("WEIR_LOG", "a=b=c")
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("WEIR_LOG=\"a=b=c\" is not a log filter"),
        "{text}"
    );
}

#[test]
fn a_configuration_is_checked_without_starting() {
    let gateway = Gateway::prepared("");
    let config = gateway.path("weir.toml");
    let checked = gateway.ok(&format!("serve --check --config {}", config.display()));
    assert!(checked.contains("right"), "{checked}");
    let checked = gateway.json(&format!("serve --check --config {}", config.display()));
    assert!(
        checked["reactors"]
            .as_u64()
            .is_some_and(|count| (1..=2).contains(&count))
    );
    gateway.fails("serve --json", &["--json goes with --check", "log.format"]);
    assert!(
        !gateway.path("state.json.lock").exists(),
        "the check touched the state"
    );
    gateway.fails(
        "serve --config /nonexistent/weir.toml",
        &["cannot read", "/nonexistent"],
    );
    let wrong = Gateway::prepared("reactor = 4");
    let config = wrong.path("weir.toml");
    let check = format!("serve --check --config {}", config.display());
    wrong.fails(&check, &["line 3", "unknown field `reactor`"]);
}

#[test]
fn the_service_manager_is_told_and_its_watchdog_fed() {
    let mut gateway = Gateway::prepared("");
    let manager = UnixDatagram::bind(gateway.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = gateway.serving(WEIR);
    command.env("NOTIFY_SOCKET", gateway.path("notify"));
    command.env("WATCHDOG_USEC", "300000");
    gateway.start_with(command);
    let mut told = Vec::new();
    let mut wait_for = |what: &str| {
        while !told.iter().any(|text: &String| text.contains(what)) {
            let mut buffer = [0; 1024];
            let length = manager.recv(&mut buffer).unwrap();
            told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        told.clear();
    };
    wait_for("READY=1");
    wait_for("WATCHDOG=1");
    wait_for("WATCHDOG=1");
    assert_eq!(gateway.end(), Some(0));
    wait_for("STOPPING=1");
}

#[test]
fn inherited_sockets_are_served() {
    let mut gateway = Gateway::prepared("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let control = UnixListener::bind(gateway.path("inherited.sock")).unwrap();
    let mut command = gateway.serving(WEIR);
    let handed: [OwnedFd; 2] = [listener.into(), control.into()];
    let mappings = handed.into_iter().zip(3..);
    let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping {
        parent_fd,
        child_fd,
    });
    command.fd_mappings(mappings.collect()).unwrap();
    command
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", "hosts:control");
    let socket = gateway.path("inherited.sock");
    gateway.adopt(command.spawn().unwrap());
    drop(command);
    let weir = |arguments: &str| {
        let mut command = Command::new(WEIR);
        command
            .args(arguments.split_whitespace())
            .env("WEIR_SOCKET", &socket);
        command.output().unwrap()
    };
    until("the gateway answers at the inherited socket", || {
        weir("status").status.success()
    });
    assert!(
        !gateway.path("weir.sock").exists(),
        "it made a socket of its own too"
    );
    let listed = weir("listener list --json");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed[0]["address"], "hosts");
    assert_eq!(listed[0]["inherited"], true);
    assert_eq!(listed[0]["bound"][0], address.to_string());
    assert!(
        weir(&format!("subsystem add {SUBSYSTEM} --allow-any-host"))
            .status
            .success()
    );
    let found = weir(&format!("discover {address} --json"));
    assert!(
        String::from_utf8_lossy(&found.stdout).contains(SUBSYSTEM),
        "{found:?}"
    );
    assert_eq!(gateway.end(), Some(0));
    assert!(socket.exists(), "the service manager's socket was removed");
}

#[test]
fn the_soft_limit_on_open_files_is_raised() {
    let mut gateway = Gateway::prepared("");
    let serve = gateway.serving(WEIR);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -S -n 256 && exec \"$0\" \"$@\"", WEIR])
        .args(serve.get_args());
    command.stderr(Stdio::null());
    gateway.start_with(command);
    let id = gateway.id();
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let fields: Vec<_> = line.split_whitespace().collect();
    assert_eq!(fields[3], fields[4], "{line}");
    assert_ne!(
        fields[3], "256",
        "the hard limit of this test is too low to tell"
    );
}

#[test]
fn kernel_features_can_be_forced_off_and_logs_can_be_json() {
    let mut gateway = Gateway::prepared("features_off = [\"no-iowait\"]\nlog.format = \"json\"");
    gateway.start();
    assert_eq!(gateway.end(), Some(0));
    let lines: Vec<Value> = gateway
        .log()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let off = lines
        .iter()
        .any(|line| line["feature"] == "no-iowait" && line["state"] == "forced off");
    assert!(off, "{lines:#?}");
    assert!(
        lines.iter().any(|line| line["message"] == "ended"),
        "{lines:#?}"
    );
}

/// The most that an idle gateway with 100 namespaces may have in memory, in KiB.
const IDLE_MEMORY_KIB_MAX: u64 = 64 * 1024;

#[test]
fn an_idle_gateway_with_100_namespaces_is_small() {
    let gateway = Gateway::started();
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    for index in 0..100 {
        let image = gateway.path(&format!("image-{index}"));
        gateway.ok(&format!(
            "volume add v{index} file:{}?size=1M",
            image.display()
        ));
        gateway.ok(&format!("namespace add {SUBSYSTEM} v{index}"));
    }
    let id = gateway.id();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(resident < IDLE_MEMORY_KIB_MAX, "{resident} KiB");
}
