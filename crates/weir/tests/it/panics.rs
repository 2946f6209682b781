//! A broken invariant within one connection ends that connection, and any other the process: seen from outside, on a gateway
//! whose volume breaks invariants at certain blocks (`planted:`, which no released binary knows).

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::gateway::{Gateway, WEIR};
use crate::common::until;

const SUBSYSTEM: &str = "nqn.2026-01.org.example:planted";
/// A process that aborts ends by this signal.
const SIGABRT: i32 = 6;

/// A gateway that serves 256 blocks, three of which break something; its URL.
fn serving() -> (Gateway, String) {
    let gateway = Gateway::started();
    let url = gateway.serve(SUBSYSTEM, "planted", "planted:?size=1M&delay=1ms");
    (gateway, url)
}

/// A load of one host that goes through the volume from its start, and does not connect again when it lost its connection.
fn load(url: &str, arguments: &str) -> Child {
    let url = format!("{url}&ctrl_loss_timeout=0s");
    Command::new(WEIR)
        .args(["--json", "bench", &url, "--sequential", "--queue-depth=1"])
        .args(["--destroy-data", &url])
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts")
}

fn outcome(load: Child) -> Output {
    load.wait_with_output().expect("the load ends")
}

#[test]
fn one_connection_ends_by_its_broken_invariant_and_the_others_go_on() {
    let (mut gateway, url) = serving();
    let mut bystander = load(&url, "--range 128k --duration 900s");
    until("the bystander is connected", || {
        gateway.metric("weir_connections") >= 2.0
    });
    assert_eq!(gateway.metric("weir_connection_panics_total"), 0.0);

    // It reads block 100, of which the volume yields too little.
    let victim = outcome(load(&url, "--block-size 4k --duration 900s"));
    assert!(!victim.status.success(), "{victim:?}");

    assert!(gateway.ended().is_none(), "{}", gateway.log());
    assert!(gateway.metric("weir_connection_panics_total") >= 1.0);
    let log = gateway.log();
    assert!(
        log.contains("a broken invariant ended a connection"),
        "{log}"
    );
    assert!(log.contains("a volume yields all that was read"), "{log}");
    // It would have failed, had its connection ended.
    assert!(bystander.try_wait().expect("a child of ours").is_none());
    kill_process(Pid::from_child(&bystander), Signal::INT).expect("it is there");
    let bystander = outcome(bystander);
    assert!(bystander.status.success(), "{bystander:?}\n{log}");
    // What the victim had is free again.
    until("only nobody is connected", || {
        gateway.metric("weir_connections") == 0.0
    });
    let again = outcome(load(&url, "--range 128k --duration 100ms"));
    assert!(again.status.success(), "{again:?}");
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
}

/// The process aborts, says why, and comes back with what it was told.
fn ends_the_process(writes: &str, message: &str) {
    let (mut gateway, url) = serving();
    let told = gateway.ok("--json namespace list");
    let mut victim = load(&url, writes);
    until("the gateway is gone", || gateway.ended().is_some());
    victim.kill().expect("it is there");
    outcome(victim);
    let status = gateway.ended().expect("it ended");
    let log = gateway.log();
    assert_eq!(status.signal(), Some(SIGABRT), "{status}\n{log}");
    assert!(log.contains("outside any connection"), "{log}");
    assert!(log.contains(message), "{log}");
    gateway.start();
    assert_eq!(gateway.ok("--json namespace list"), told);
}

#[test]
fn a_broken_invariant_of_a_volume_ends_the_process() {
    ends_the_process(
        "--block-size 4k --read-percent 0 --duration 900s",
        "planted: a volume's invariant broke",
    );
}

/// The connection whose task it was is not the only one that uses the volume's queue.
#[test]
fn a_broken_invariant_of_a_queue_ends_the_process_though_a_connection_found_it() {
    ends_the_process(
        "--block-size 8k --read-percent 0 --duration 900s",
        "planted: a queue's invariant broke",
    );
}
