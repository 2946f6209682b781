//! `weir bench --verify --agent`: agents that write to one volume of a gateway, each to blocks of its own. What the volume does wrong is found and named, whichever agent's
//! blocks it is about, and nothing is where nothing is. Volumes that lie (`lying:`) are in no released binary.

use std::cell::Cell;
use std::path::Path;
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::agents::{
    Agent, Running, SUBSYSTEM, bench, count, counted, said, serving, until_agents_work,
};
use crate::common::gateway::{Gateway, url};
use crate::common::lies::{LIES, lying};
use crate::common::{catches, free_port, nightly, retry, sleeps_of_reactor, until};

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(output)))
}

/// Faults that an agent found, the same ones once.
fn faults(of_agent: &Value) -> Vec<&str> {
    let findings = of_agent["findings"].as_array();
    let findings = findings.map_or(&[][..], Vec::as_slice);
    let each = findings.iter().map(|of| of["fault"].as_str().unwrap());
    let mut each: Vec<_> = each.collect();
    each.dedup();
    each
}

/// A gateway to which volumes of 256 blocks are added that lie about one.
struct Liars {
    gateway: Gateway,
    port: u16,
    volumes: Cell<usize>,
}

impl Liars {
    fn started() -> Self {
        let (gateway, port) = (Gateway::started(), free_port());
        gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
        gateway.ok(&format!("listener add 127.0.0.1:{port}"));
        Liars {
            gateway,
            port,
            volumes: Cell::new(0),
        }
    }

    /// The URL of one more. What is misdirected goes to `to` or comes from there.
    fn add(&self, lie: &str, block: u64, to: u64) -> String {
        let nsid = self.volumes.get() + 1;
        self.volumes.set(nsid);
        let volume = lying(lie, block, to);
        self.gateway.ok(&format!("volume add disk{nsid} {volume}"));
        self.gateway
            .ok(&format!("namespace add {SUBSYSTEM} disk{nsid}"));
        url(self.port, SUBSYSTEM, nsid)
    }
}

/// Two agents write each block of a volume of 256 blocks twice, in requests of 4, the first one blocks 0 to 127, and each time in half of the
/// time. No agent has room for as many requests as lie between the two writes to a block.
fn twice(folder: &Path, agents: &[Agent; 2], url: &str, milliseconds: u32) -> Output {
    let (rate, duration) = (
        (128_000 / milliseconds).to_string(),
        format!("{milliseconds}ms"),
    );
    let arguments = [
        url,
        "--verify",
        "--read-percent",
        "0",
        "--block-size",
        "16k",
        "--sequential",
        "--rate",
        &rate,
        "--duration",
        &duration,
        "--queue-depth",
        "16",
        "--destroy-data",
        url,
    ];
    let agents: Vec<_> = agents.iter().collect();
    bench(folder, &agents, &arguments).output().unwrap()
}

fn two_agents(folder: &Path) -> [Agent; 2] {
    ["one", "two"].map(|name| Agent::start(folder, name, &[]))
}

#[test]
fn every_lie_is_found_by_the_agent_whose_blocks_it_is_about() {
    /// Of the first agent's blocks, and of the second one's. What is misdirected comes from the other's.
    const PLACES: [(usize, u64, u64); 2] = [(0, 62, 190), (1, 190, 62)];
    // Where what is written goes astray, both find it: see the next test.
    let expected = LIES.into_iter().filter(|of| of.0 != "misdirected-write");
    let liars = Liars::started();
    let folder = tempfile::tempdir().unwrap();
    let agents = two_agents(folder.path());
    for (lie, fault, persists) in expected {
        for (finder, block, to) in PLACES {
            // An agent that is stopped at the end of its time does not send all that is due.
            let output = retry("all that is due is sent", |_| {
                let url = liars.add(lie, block, to);
                let output = twice(folder.path(), &agents, &url, 250);
                (json(&output)["unsent"] == 0).then_some(output)
            });
            assert_eq!(output.status.code(), Some(1), "{lie}: {}", said(&output));
            let report = json(&output);
            let verdict = &report["verification"][0];
            assert_eq!(verdict["fault"], fault, "{lie}: {verdict}");
            let each = verdict["agents"].as_array().expect("a list");
            let (found, other) = (&each[finder], &each[1 - finder]);
            assert!(found["ok"] == false && other["ok"] == true, "{verdict}");
            assert_eq!(faults(found), [fault], "{lie}: {verdict}");
            let finding = &found["findings"][0];
            assert_eq!(finding["persists"], persists, "{lie}: {verdict}");
            let lba = count(finding, "/lba");
            assert!(lba.abs_diff(block) < 4, "{lie}: {verdict}");
            if lie == "misdirected-read" {
                assert_eq!(count(finding, "/other_lba"), to, "{verdict}");
            }
            let named = format!("as agent {} found", found["agent"].as_str().unwrap());
            assert!(said(&output).contains(&named), "{}", said(&output));
        }
    }
}

/// The last write of one agent damages blocks that the other has compared already.
#[test]
fn what_one_agent_writes_beyond_its_blocks_is_found_by_the_other() {
    let liars = Liars::started();
    let folder = tempfile::tempdir().unwrap();
    let agents = two_agents(folder.path());
    for (lie, block, to) in [
        ("overrunning-write", 127, 128),
        ("duplicated-write", 120, 130),
    ] {
        let output = retry("all that is due is sent", |_| {
            let url = liars.add(lie, block, to);
            let output = twice(folder.path(), &agents, &url, 250);
            (json(&output)["unsent"] == 0).then_some(output)
        });
        assert_eq!(output.status.code(), Some(1), "{lie}: {}", said(&output));
        let report = json(&output);
        let each = report["verification"][0]["agents"].as_array();
        let [writer, other] = &each.expect("a list")[..] else {
            panic!("{report}")
        };
        assert!(writer["ok"] == true && other["ok"] == false, "{report}");
        assert_eq!(faults(other), ["misdirected-write"], "{lie}: {report}");
        assert_eq!(count(&other["findings"][0], "/lba"), to, "{report}");
    }
}

/// What one agent wrote goes to the blocks of the other: both find it, and neither takes it for a write that was lost or is stale.
#[test]
fn what_goes_astray_from_one_agents_blocks_to_anothers_is_misdirected_for_both() {
    // The place that it goes to is overwritten first, 28 of 64 requests of each agent before, and not again.
    let places = [(246, 4), (118, 132)];
    let milliseconds = if nightly() { 8000 } else { 2000 };
    let late_max = u64::from(milliseconds) * 1_000_000 * 28 / 64 / 2;
    let liars = Liars::started();
    let folder = tempfile::tempdir().unwrap();
    let agents = two_agents(folder.path());
    for (block, to) in places {
        // Where one of them is late by much of that, it may overwrite what went astray.
        let output = retry("both agents are in time", |_| {
            let url = liars.add("misdirected-write", block, to);
            let output = twice(folder.path(), &agents, &url, milliseconds);
            let report = json(&output);
            let in_time = report["unsent"] == 0 && count(&report, "/lag_ns/max") < late_max;
            in_time.then_some(output)
        });
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let report = json(&output);
        let verdict = &report["verification"][0];
        for agent in verdict["agents"].as_array().expect("a list") {
            assert_eq!(faults(agent), ["misdirected-write"], "{verdict}");
            let finding = &agent["findings"][0];
            let places = [count(finding, "/lba"), count(finding, "/other_lba")];
            let is_near = |place: &u64| place.abs_diff(block) < 4 || place.abs_diff(to) < 4;
            assert!(places.iter().all(is_near), "{verdict}");
        }
    }
}

/// Reads, writes and deallocations anywhere, on several queues of several hosts of each agent, and of two volumes: nothing is wrong.
#[test]
fn an_honest_volume_raises_no_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let honest = "lying:?size=2M&lie=honest";
    let (gateway, urls) = serving(&[("disk", honest), ("other", "mem:?size=4M")]);
    let agents = ["one", "two", "three"].map(|name| Agent::start(folder.path(), name, &[]));
    let agents: Vec<_> = agents.iter().collect();
    let duration = if nightly() { "1s" } else { "200ms" };
    for access in ["random", "sequential", "random:30", "stride:64k"] {
        let arguments = [
            &*urls[0],
            &*urls[1],
            "--verify",
            "--read-percent",
            "40",
            "--deallocate",
            "10",
            "--mix",
            "4k:50,16k:50",
            "--access",
            access,
            "--hosts",
            "2",
            "--queues",
            "2",
            "--queue-depth",
            "4",
            "--duration",
            duration,
            "--destroy-data",
            &urls[0],
            "--destroy-data",
            &urls[1],
        ];
        let (output, report) = retry("each agent writes something", |_| {
            let output = bench(folder.path(), &agents, &arguments).output().unwrap();
            assert!(output.status.success(), "{access}: {}", said(&output));
            let report = json(&output);
            let verdicts = report["verification"].as_array().expect("a list");
            assert_eq!(verdicts.len(), 2);
            let mut all_work = true;
            for verdict in verdicts {
                assert_eq!(verdict["ok"], true, "{verdict}");
                assert_eq!(verdict["whole"], true, "{verdict}");
                let each = verdict["agents"].as_array().expect("a list");
                let written: Vec<_> = each.iter().map(|of| count(of, "/written_blocks")).collect();
                assert_eq!(written.len(), 3, "{verdict}");
                assert_eq!(
                    written.iter().sum::<u64>(),
                    count(verdict, "/written_blocks")
                );
                let works = |of: &Value| {
                    count(of, "/written_blocks") > 0 && count(of, "/compared_blocks") > 0
                };
                all_work &= each.iter().all(works);
            }
            // Everything is measured as without it.
            all_work &= count(&report, "/write/requests") > 0;
            all_work.then_some((output, report))
        });
        let verdicts = &report["verification"];
        assert_ne!(verdicts[0]["seed"], verdicts[1]["seed"]);
        assert!(said(&output).contains("each as it should be"));
        assert_eq!(count(&report, "/errors"), 0);
    }
    assert!(counted(&gateway, "deallocate") > Some(0));
}

/// As a run here does, and the result of all says so.
#[test]
fn agents_that_verify_sleep_between_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (_gateway, urls) = serving(&[("disk", "mem:?size=1M")]);
    let agents = two_agents(folder.path());
    let both: Vec<_> = agents.iter().collect();
    let load = "--verify --read-percent 50 --rate 400 --duration 10m";
    let arguments: Vec<_> = [&*urls[0]].into_iter().chain(load.split(' ')).collect();
    let running = Running::start(bench(folder.path(), &both, &arguments));
    until("each slept between requests", || {
        let mut ids = agents.iter().map(|agent| agent.process.id());
        catches(running.id(), Signal::INT) && ids.all(|id| sleeps_of_reactor(id) > 300)
    });
    running.signal(Signal::INT);
    let output = running.output();
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let told = report["caveats"].to_string();
    assert!(told.contains("asleep-between-requests"), "{told}");
    assert!(said(&output).contains("include wake-ups"));
}

#[test]
fn what_no_agent_can_have_for_itself_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, urls) = serving(&[("disk", "mem:?size=1M")]);
    let agents = two_agents(folder.path());
    let both: Vec<_> = agents.iter().collect();
    let run = |agents: &[&Agent], urls: &[&str], more: &[&str]| {
        let common = ["--verify", "--read-percent", "0", "--duration", "200ms"];
        let arguments = [urls, &common[..], more].concat();
        bench(folder.path(), agents, &arguments).output().unwrap()
    };
    let url = &*urls[0];
    for access in ["zipf:1.1", "pareto:0.2", "hot:80/20,20/80"] {
        let output = run(&both, &[url], &["--access", access]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let errors = said(&output);
        let (reason, out) = ("could not be told from a write that was lost", "sequential");
        assert!(
            errors.contains(access) && errors.contains(reason) && errors.contains(out),
            "{errors}"
        );
        assert_eq!(counted(&gateway, "write"), None);
    }
    // One agent has everything to itself.
    let output = run(&both[..1], &[url], &["--access", "zipf:1.1"]);
    assert!(output.status.success(), "{}", said(&output));
    // One medium by two names.
    let output = run(&both, &[url, &format!("{url}&queues=1")], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let errors = said(&output);
    assert!(
        errors.contains("are the same medium") && errors.contains(&agents[0].address),
        "{errors}"
    );
    let output = run(&both, &[url], &["--block-size", "1M"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("2 machines cannot share out 256 blocks"));
}

/// An interrupt ends the load, and everything that was written until then is checked.
#[test]
fn an_interrupt_loses_nothing_and_a_lost_agents_blocks_are_not_called_sound() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, urls) = serving(&[("disk", "mem:?size=8M&rate=4000")]);
    let one = Agent::start(folder.path(), "one", &[]);
    let mut two = Agent::start(folder.path(), "two", &[]);
    // Both write, so that blocks of each can be compared.
    let arguments = [
        &*urls[0],
        "--verify",
        "--read-percent",
        "50",
        "--queue-depth",
        "2",
        "--duration",
        "10m",
        "--destroy-data",
        &*urls[0],
    ];
    let start = |two: &Agent| {
        let running = Running::start(bench(folder.path(), &[&one, two], &arguments));
        until("it waits for a signal", || {
            catches(running.id(), Signal::INT)
        });
        until_agents_work(&gateway, 2);
        running
    };
    let running = start(&two);
    running.signal(Signal::INT);
    let output = running.output();
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let verdict = &report["verification"][0];
    assert!(
        verdict["ok"] == true && verdict["whole"] == true,
        "{verdict}"
    );
    // Of requests of one block, those that were in flight at the end too.
    let written = count(verdict, "/written_blocks");
    let measured = count(&report, "/write/requests");
    assert!(
        (measured..=measured + 4).contains(&written),
        "{written}, {measured} measured"
    );

    let running = start(&two);
    two.process.kill().unwrap();
    let output = running.output();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report = json(&output);
    let verdict = &report["verification"][0];
    assert!(
        verdict["ok"] == false && verdict["whole"] == false,
        "{verdict}"
    );
    assert!(verdict["fault"].is_null(), "{verdict}");
    let each = verdict["agents"].as_array().expect("a list");
    assert!(each[0]["ok"] == true && count(&each[0], "/compared_blocks") > 0);
    let error = each[1]["error"].as_str().expect("an error");
    assert!(error.contains(&two.address), "{error}");
}
