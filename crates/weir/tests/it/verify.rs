//! `weir verify` and `weir bench --verify` as processes: what a volume does wrong is found, named, and makes the exit status say so, in
//! process and through a gateway. Volumes that lie (`lying:`) are in no released binary.

use std::cell::Cell;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::agents::Running;
use crate::common::gateway::{Gateway, WEIR, url};
use crate::common::lies::{LIES, lying};
use crate::common::{catches, free_port, retry, sleeps_of_reactor, until};

const SUBSYSTEM: &str = "nqn.2025-01.org.example:lies";
/// The block lied about, and where what is misdirected goes to or comes from, of 256. Of load that goes from the first to the last, a place
/// that is not written to again before it is looked at, and is far away from it.
const BLOCK: u64 = 190;
const TO: u64 = 4;
fn volume(lie: &str) -> String {
    lying(lie, BLOCK, TO)
}

fn weir(arguments: &[&str]) -> Output {
    Command::new(WEIR)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(output)))
}

/// Every block twice, and everything compared. Where something goes astray one after another: in a block that is just being overwritten it is lost, and not
/// misdirected.
fn verified(url: &str, lie: &str) -> Output {
    let depth = match lie.starts_with("misdirected") {
        true => "1",
        false => "16",
    };
    let passes = [
        "--passes",
        "2",
        "--block-size",
        "16k",
        "--queue-depth",
        depth,
    ];
    weir(
        &[
            &["verify", url, "--json", "--destroy-data", url],
            &passes[..],
        ]
        .concat(),
    )
}

/// Every block twice, and everything compared at the end. There is room for fewer requests than lie between the second write to a block that
/// goes astray and the second one to the block where it goes. Where the process is stopped at the end of its time, it does not send all, and
/// a volume that nothing was written to yet is driven.
fn driven(volume: impl Fn() -> String) -> Output {
    retry("all that is due is sent", |_| {
        let url = volume();
        let load = "--verify --read-percent 0 --block-size 16k --sequential --rate 512 --duration 250ms --queue-depth 32";
        let load: Vec<_> = load.split(' ').collect();
        let output = weir(
            &[
                &["bench", &url, "--json", "--destroy-data", &url],
                &load[..],
            ]
            .concat(),
        );
        (json(&output)["unsent"] == 0).then_some(output)
    })
}

/// What both tell of one volume that is at fault.
fn assert_found(lie: &str, output: &Output, verdict: &Value) {
    let (_, fault, persists) = LIES.into_iter().find(|of| of.0 == lie).expect("a lie");
    assert_eq!(output.status.code(), Some(1), "{lie}: {}", said(output));
    assert_eq!(verdict["ok"], false, "{lie}: {verdict}");
    let findings = verdict["findings"].as_array().expect("a list");
    // What is misdirected is found at both places.
    for finding in findings {
        assert_eq!(finding["fault"], fault, "{lie}: {verdict}");
        let lba = finding["lba"].as_u64().expect("a number");
        let is_near = [BLOCK, TO].iter().any(|place| lba.abs_diff(*place) < 4);
        assert!(is_near, "{lie}: {verdict}");
    }
    assert_eq!(findings[0]["persists"], persists, "{lie}: {verdict}");
    assert_eq!(verdict["fault"], fault, "{lie}: {verdict}");
}

#[test]
fn verify_finds_and_names_every_lie() {
    for (lie, ..) in LIES {
        let output = verified(&volume(lie), lie);
        assert_found(lie, &output, &json(&output));
        let named = lie.replace('-', " ").replace("torn block", "torn write");
        let named = named.trim_end_matches(" in read");
        let text = json(&output)["error"].as_str().expect("a text").to_owned();
        assert!(
            text.contains("is at fault: ") && text.contains(named),
            "{text}"
        );
    }
    let output = verified(&volume("honest"), "honest");
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    assert_eq!(report["ok"], true);
    assert_eq!(report["written_bytes"], 2 << 20);
}

#[test]
fn load_that_verifies_finds_and_names_every_lie() {
    for (lie, fault, _) in LIES {
        let output = driven(|| volume(lie));
        let report = json(&output);
        assert_found(lie, &output, &report["verification"][0]);
        let text = said(&output);
        let named = format!("  {}: block ", fault.replace('-', " "));
        assert!(
            text.contains("is at fault (seed ") && text.contains(&named),
            "{text}"
        );
    }
    let output = driven(|| volume("honest"));
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let verdict = &report["verification"][0];
    assert!(
        verdict["ok"] == true && verdict["whole"] == true,
        "{verdict}"
    );
    assert_eq!(verdict["written_blocks"], 512);
    assert!(said(&output).contains("each as it should be"));
}

/// A reactor that holds its processor between the requests of a rate does not sleep. A run that checks blocks may last for days.
#[test]
fn load_that_verifies_sleeps_between_its_requests_and_says_so() {
    let mut command = Command::new(WEIR);
    command.args(["--json", "bench", "mem:?size=1M", "--verify"]);
    command.args(["--read-percent", "50", "--rate", "200", "--duration", "10m"]);
    let running = Running::start(command);
    until("it slept between requests", || {
        catches(running.id(), Signal::INT) && sleeps_of_reactor(running.id()) > 200
    });
    running.signal(Signal::INT);
    let output = running.output();
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let codes = report["caveats"].as_array().expect("a list").iter();
    let codes: Vec<_> = codes.map(|of| of["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"asleep-between-requests"), "{codes:?}");
    assert_eq!(report["caveats"], report["result"]["caveats"]);
    assert!(
        said(&output).contains("its lag and its latencies include wake-ups"),
        "{}",
        said(&output)
    );
}

/// The gateway's volume lies; the host says so.
#[test]
fn what_a_gateways_volume_does_wrong_is_found_from_afar() {
    let gateway = Gateway::started();
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    let volumes = Cell::new(0);
    let target = |lie| {
        let nsid = volumes.get() + 1;
        volumes.set(nsid);
        gateway.ok(&format!("volume add v{nsid} {}", volume(lie)));
        gateway.ok(&format!("namespace add {SUBSYSTEM} v{nsid}"));
        url(port, SUBSYSTEM, nsid)
    };
    for (lie, ..) in LIES {
        let output = verified(&target(lie), lie);
        assert_found(lie, &output, &json(&output));
        let output = driven(|| target(lie));
        assert_found(lie, &output, &json(&output)["verification"][0]);
    }
}
