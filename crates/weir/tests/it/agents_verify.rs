//! `weir bench --verify --agent`: agents that write to one volume of a gateway, each to blocks of its own. What the volume does wrong is found and named, whichever agent's
//! blocks it is about, and nothing is where nothing is. Volumes that lie (`lying:`) are in no released binary.

use crate::common::lies;
use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::agents::{Agent, bench, count, counted, said, serving};
use crate::common::gateway::{Gateway, until};
use crate::common::lies::LIES;

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

/// Volumes that lie about a block, with where what is misdirected goes to or comes from; each is of 256 blocks.
fn lying(lies: &[(&str, u64, u64)]) -> (Gateway, Vec<String>) {
    let named = lies
        .iter()
        .enumerate()
        .map(|(place, (lie, block, to))| (format!("disk{place}"), lies::lying(lie, *block, *to)));
    let named: Vec<_> = named.collect();
    let volumes = named.iter().map(|(name, of)| (name.as_str(), of.as_str()));
    serving(&volumes.collect::<Vec<_>>())
}

/// Two agents write each block of a volume of 256 blocks twice, in requests of 4, the first one blocks 0 to 127. Slowly, so that the
/// last of them are sent in time on a machine that does much else: each time in half of `seconds`.
fn twice(folder: &Path, agents: &[Agent; 2], url: &str, seconds: u32) -> Output {
    let (rate, duration) = ((128 / seconds).to_string(), format!("{seconds}s"));
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
        "64",
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
    let lies = expected
        .clone()
        .flat_map(|(lie, ..)| PLACES.map(|(_, block, to)| (lie, block, to)));
    let (_gateway, urls) = lying(&lies.collect::<Vec<_>>());
    let mut urls = urls.iter();
    let folder = tempfile::tempdir().unwrap();
    let agents = two_agents(folder.path());
    for (lie, fault, persists) in expected {
        for (finder, block, to) in PLACES {
            let output = twice(folder.path(), &agents, urls.next().unwrap(), 2);
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

/// What one agent wrote goes to the blocks of the other: both find it, and neither takes it for a write that was lost or is stale.
#[test]
fn what_goes_astray_from_one_agents_blocks_to_anothers_is_misdirected_for_both() {
    // The place that it goes to is overwritten first, seconds before, and not again.
    let places = [(246, 4), (118, 132)];
    let lies = places.map(|(block, to)| ("misdirected-write", block, to));
    let (_gateway, urls) = lying(&lies);
    let folder = tempfile::tempdir().unwrap();
    let agents = two_agents(folder.path());
    for ((block, to), url) in places.into_iter().zip(&urls) {
        let output = twice(folder.path(), &agents, url, 8);
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
            "1s",
            "--destroy-data",
            &urls[0],
            "--destroy-data",
            &urls[1],
        ];
        let output = bench(folder.path(), &agents, &arguments).output().unwrap();
        assert!(output.status.success(), "{access}: {}", said(&output));
        let report = json(&output);
        let verdicts = report["verification"].as_array().expect("a list");
        assert_eq!(verdicts.len(), 2);
        for verdict in verdicts {
            assert_eq!(verdict["ok"], true, "{verdict}");
            assert_eq!(verdict["whole"], true, "{verdict}");
            let each = verdict["agents"].as_array().expect("a list");
            let written: Vec<_> = each.iter().map(|of| count(of, "/written_blocks")).collect();
            assert!(written.len() == 3 && !written.contains(&0), "{verdict}");
            assert_eq!(
                written.iter().sum::<u64>(),
                count(verdict, "/written_blocks")
            );
            let compared = |of: &Value| count(of, "/compared_blocks") > 0;
            assert!(each.iter().all(compared), "{verdict}");
        }
        assert_ne!(verdicts[0]["seed"], verdicts[1]["seed"]);
        assert!(said(&output).contains("each as it should be"));
        // Everything was measured as without it.
        assert!(count(&report, "/write/requests") > 0);
        assert_eq!(count(&report, "/errors"), 0);
    }
    assert!(counted(&gateway, "deallocate") > Some(0));
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
    let (gateway, urls) = serving(&[("disk", "mem:?size=8M")]);
    let one = Agent::start(folder.path(), "one", &[]);
    let mut two = Agent::start(folder.path(), "two", &[]);
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
    let start = || {
        let mut command = bench(folder.path(), &[&one, &two], &arguments);
        let before = counted(&gateway, "write");
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = running.spawn().unwrap();
        until("it writes", || counted(&gateway, "write") > before);
        std::thread::sleep(std::time::Duration::from_secs(3));
        running
    };
    let running = start();
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    let output = running.wait_with_output().unwrap();
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

    let running = start();
    two.process.kill().unwrap();
    let output = running.wait_with_output().unwrap();
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
