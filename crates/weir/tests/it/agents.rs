//! `weir agent`, and `weir bench`, `curve` and `compare` with `--agent`, as processes: one gateway, several agents, and what is told when one of them dies.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use weir_lab::document::Body;

use crate::common::agents::{
    Agent, Running, SUBSYSTEM, UNHURRIED_HERE, bench, count, counted, counted_of, on_agents,
    requests, result, said, served, token, until_agents_work, written,
};
use crate::common::gateway::{WEIR, url};
use crate::common::{by_night, catches, free_port, nightly, retry, until};

#[test]
fn what_agents_measure_is_what_the_gateway_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, url) = served();
    let agents: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|name| Agent::start(folder.path(), name, &[]))
        .collect();
    let stored = folder.path().join("result.json");
    let page = folder.path().join("result.html");
    let arguments = [
        &url,
        "--read-percent",
        "70",
        "--rate",
        "3002",
        "--arrivals",
        "exponential",
        "--duration",
        "1s",
        "--interval",
        "100ms",
        "--destroy-data",
        &url,
        "--output",
        stored.to_str().unwrap(),
        "--report",
        page.to_str().unwrap(),
    ];
    let agents: Vec<_> = agents.iter().collect();
    let output = bench(folder.path(), &agents, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    // What was sent is counted on both sides, and nothing else is.
    assert_eq!(
        count(&report, "/write/requests"),
        requests(&gateway, "write")
    );
    assert_eq!(count(&report, "/read/requests"), requests(&gateway, "read"));
    let total = count(&report, "/total/requests");
    // What is due follows from the seed, however much of it a busy machine gets done.
    let due = |of: &Value, sent: &str| count(of, sent) + count(of, "/unsent");
    let due_of_all = due(&report, "/total/requests");
    assert!(due_of_all.abs_diff(3002) < 400, "{due_of_all}");

    let each = report["agents"]["each"].as_array().expect("a list");
    let sum: u64 = each.iter().map(|agent| count(agent, "/requests")).sum();
    assert_eq!((each.len(), sum), (3, total));
    assert!(
        each.iter()
            .all(|agent| due(agent, "/requests").abs_diff(1000) < 250),
        "{each:?}"
    );
    assert!(
        each.iter()
            .all(|of| count(of, "/seed") == count(&each[0], "/seed"))
    );
    assert!(each.iter().all(|agent| agent["error"].is_null()));
    assert!(
        each.iter()
            .all(|agent| agent["processor_seconds"].as_f64() > Some(0.0))
    );
    assert!(report["agents"]["start_spread_seconds"].as_f64().is_some());
    let intervals = report["intervals"].as_array().expect("a list");
    let in_intervals: u64 = intervals.iter().map(|of| count(of, "/requests")).sum();
    assert_eq!(in_intervals, total);

    assert_eq!(report["result"]["schema"], "weir-result/1");
    // The stored result has whole histograms, of all and of each, and a page shows each.
    let text = fs::read_to_string(&stored).unwrap();
    let document = weir_lab::document::Document::from_json(&text).expect("a result");
    let run = document.runs()[0];
    let parts = run.agents.as_ref().expect("agents");
    let latencies = |of: &weir_lab::document::Operation| of.service.clone().expect("latencies");
    let merged = weir_lab::document::Latency::merged(
        &parts
            .each
            .iter()
            .map(|of| latencies(&of.operations.read))
            .collect::<Vec<_>>(),
    );
    assert_eq!(
        merged.unwrap().unwrap(),
        latencies(&run.operations.read).histogram().unwrap()
    );
    assert!(parts.error.is_none() && run.error().is_none());
    assert_eq!((run.load.queues(), run.load.hosts()), (3, 3));
    let page = fs::read_to_string(&page).unwrap();
    assert!(agents.iter().all(|agent| page.contains(&agent.address)));
}

#[test]
fn a_curve_and_a_comparison_are_of_all_agents_together() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, url) = served();
    let agents = ["one", "two"].map(|name| Agent::start(folder.path(), name, &[]));
    let agents = agents.iter().collect::<Vec<_>>();
    // An agent that is stopped for all of a run does nothing in it; such a measurement is made again.
    let measured = |tool: &str, arguments: &[&str]| {
        retry("requests in every run", |_| {
            let command = on_agents(tool, folder.path(), &agents, arguments).output();
            let output = command.unwrap();
            if said(&output).contains("no request succeeded") {
                return None;
            }
            assert!(output.status.success(), "{}", said(&output));
            Some(result(&output))
        })
    };
    let hosts = ["--ramp", "0s", "--hosts", "2", "--no-refinement"];

    let depths = ["--depths", "1,4", "--duration", "300ms"];
    let depths = [&[&*url][..], &depths, &hosts].concat();
    retry("requests of each agent", |_| {
        let before = counted(&gateway, "read").unwrap_or_default();
        let document = measured("curve", &depths);
        let Body::Curve { curves, .. } = &document.body else {
            panic!("no curve: {:?}", document.body);
        };
        // Two agents, each with two hosts of one queue.
        let offered: Vec<_> = curves[0].points.iter().map(|of| of.offered).collect();
        if offered != [4.0, 16.0] {
            assert!(!curves[0].failures.is_empty(), "{offered:?}");
            return None;
        }
        let runs: Vec<_> = curves[0].points.iter().map(|of| &of.run).collect();
        let mut all_work = true;
        for run in &runs {
            assert_eq!((run.load.queues(), run.load.hosts()), (4, 4));
            let parts = run.agents.as_ref().expect("agents");
            let each = parts.each.iter().map(|of| of.operations.requests());
            let each: Vec<_> = each.collect();
            assert_eq!(each.len(), 2);
            assert_eq!(each.iter().sum::<u64>(), run.operations.requests());
            all_work &= each.iter().all(|&of| of > 0);
        }
        if !all_work {
            return None;
        }
        // Nothing was sent that is not in a point, but for what was in flight when each ended, or just then did.
        let in_points: u64 = runs.iter().map(|run| run.operations.requests()).sum();
        let served = requests(&gateway, "read") - before;
        // A tool that was refused its measurement before has sent something, too.
        assert!(served >= in_points, "{served}, {in_points} in points");
        (served <= in_points + 40).then_some(())
    });

    let time = if nightly() { "1s" } else { "400ms" };
    let rates = ["--rates", "50,100", "--maximum", "2000", "--duration", time];
    let one = ["--arrivals", "uniform", "--reactors", "1"];
    let document = measured("curve", &[&[&*url][..], &rates, &one, &hosts].concat());
    for (run, rate) in document.runs().iter().zip([1000.0, 2000.0]) {
        assert_eq!(run.load.rate(), Some(rate), "of all together");
        let due = (run.operations.requests() + run.unsent) as f64 / run.elapsed_seconds;
        assert!((0.8 * rate..1.2 * rate).contains(&due), "{due} of {rate}");
    }

    let compared = ["--rounds", "4", "--queue-depth", "2", "--duration", "50ms"];
    let compared = [&[&*url, &*url][..], &compared, &one[2..], &hosts[..4]].concat();
    let document = measured("compare", &compared);
    let Body::Comparison(comparison) = &document.body else {
        panic!("no comparison: {:?}", document.body);
    };
    assert_eq!(comparison.stages.len(), 3);
    let runs = document.runs();
    assert!(runs.len() >= 3 * 4 * 2, "{} runs", runs.len());
    assert!(
        runs.iter()
            .all(|run| run.agents.as_ref().is_some_and(|of| of.each.len() == 2))
    );
}

#[test]
fn a_curve_ends_with_the_points_before_an_agent_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, url) = served();
    let one = Agent::start(folder.path(), "one", &[]);
    // No word is said between the two points: on a machine that stands still the agent may be lost in another one.
    retry("it is lost in the second point", |attempt| {
        let mut two = Agent::start(folder.path(), &format!("two-{attempt}"), &[]);
        let arguments = [&*url, "--depths", "1,2", "--ramp", "0s", "--duration", "2s"];
        let curve = on_agents("curve", folder.path(), &[&one, &two], &arguments);
        let before = counted(&gateway, "read");
        let mut running = Running::start(curve);
        until("the first point began, or all ended", || {
            counted(&gateway, "read") > before || running.has_ended()
        });
        std::thread::sleep(Duration::from_secs(3));
        two.process.kill().unwrap();
        let output = running.output();
        let lost = format!("agent {} is lost", two.address);
        let is_lost = said(&output).contains(&lost);
        // Without a first point there is no curve, and with both of them all is well.
        if !is_lost || output.stdout.is_empty() {
            return None;
        }
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let document = result(&output);
        let Body::Curve { curves, .. } = &document.body else {
            panic!("no curve: {:?}", document.body);
        };
        let (points, failures) = (&curves[0].points, &curves[0].failures);
        assert_eq!((points.len(), failures.len()), (1, 1));
        assert!(
            failures[0].point == "depth 2" && failures[0].reason.contains(&lost),
            "{failures:?}"
        );
        Some(())
    });
}

#[test]
fn an_agent_that_is_killed_fails_the_run_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, url) = served();
    let one = Agent::start(folder.path(), "one", &[]);
    let stored = folder.path().join("result.json");
    let page = folder.path().join("result.html");
    let arguments = [
        &url,
        "--queue-depth",
        "2",
        "--duration",
        "10m",
        "--interval",
        "100ms",
        "--output",
        stored.to_str().unwrap(),
        "--report",
        page.to_str().unwrap(),
    ];
    // An agent that did not get to tell of an interval before it died counts for nothing.
    let (two, report, errors) = retry("both have told something", |attempt| {
        let mut two = Agent::start(folder.path(), &format!("two-{attempt}"), &[]);
        let running = Running::start(bench(folder.path(), &[&one, &two], &arguments));
        until_agents_work(&gateway, 2);
        two.process.kill().unwrap();
        let output = running.output();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let each = report["agents"]["each"].as_array().expect("a list");
        let all_told = each.iter().all(|agent| count(agent, "/requests") > 0);
        all_told.then(|| (two, report, said(&output)))
    });
    assert!(
        errors.contains(&format!("agent {} is lost", two.address)),
        "{errors}"
    );
    let error = report["agents"]["error"].as_str().expect("an error");
    assert!(error.contains(&two.address), "{error}");
    let each = report["agents"]["each"].as_array().expect("a list");
    assert!(
        each[0]["error"].is_null() && each[1]["error"].is_string(),
        "{each:?}"
    );
    let text = fs::read_to_string(&stored).unwrap();
    let document = weir_lab::document::Document::from_json(&text).expect("a result");
    assert!(
        document.runs()[0]
            .error()
            .expect("an error")
            .contains(&two.address)
    );
    assert_eq!(document.caveats[0].code, "agent-lost");
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("is lost"), "the page does not say so");
    // The other one is free, and does not go on.
    until("it is free", || one.log().contains("it is done"));
    let output = bench(
        folder.path(),
        &[&one],
        &["null:?size=1G", "--duration", "200ms"],
    )
    .output();
    assert!(output.as_ref().unwrap().status.success(), "{output:?}");
}

#[test]
fn an_agent_that_falls_silent_fails_the_run_by_name_and_is_free_when_it_is_back() {
    by_night!("an agent counts as silent after ten seconds");
    let folder = tempfile::tempdir().unwrap();
    let (gateway, url) = served();
    let agents = ["one", "two", "three"].map(|name| Agent::start(folder.path(), name, &[]));
    let [one, two, three] = &agents;
    let arguments = [
        &*url,
        "--queue-depth",
        "2",
        "--duration",
        "10m",
        "--interval",
        "100ms",
    ];
    let report = retry("all have told something", |_| {
        let running = Running::start(bench(folder.path(), &[one, two, three], &arguments));
        until_agents_work(&gateway, 3);
        // Something else may let it go on, and then it is silent again.
        let output = running.output_while(|| two.signal(Signal::STOP));
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let lost = format!("agent {} is lost: nothing was heard of it", two.address);
        assert!(said(&output).contains(&lost), "{}", said(&output));
        // The silent one finds its coordinator gone, and serves the next.
        two.signal(Signal::CONT);
        until("it lets go", || {
            let short = ["null:?size=1G", "--duration", "200ms"];
            let output = bench(folder.path(), &[two], &short).output().unwrap();
            output.status.success()
        });
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let each = report["agents"]["each"].as_array().expect("a list");
        let all_told = each.iter().all(|agent| count(agent, "/requests") > 0);
        all_told.then_some(report)
    });
    let error = report["agents"]["error"].as_str().expect("an error");
    assert!(error.contains(&two.address), "{error}");
    let each = report["agents"]["each"].as_array().expect("a list");
    let failed: Vec<_> = each.iter().map(|of| of["error"].is_string()).collect();
    assert_eq!(failed, [false, true, false], "{each:?}");
    // The others are stopped, and told all that they measured.
    for other in [one, three] {
        until("it is free", || other.log().contains("it is done"));
    }
    let sum: u64 = each.iter().map(|of| count(of, "/requests")).sum();
    assert_eq!(count(&report, "/total/requests"), sum);
}

/// The same blocks are hot for all: two agents write to the blocks that one machine with all their queues writes to, and to no other.
#[test]
fn a_load_with_hot_blocks_is_one_load_on_several_agents() {
    const BLOCKS: usize = 16_384;
    let folder = tempfile::tempdir().unwrap();
    let (gateway, _) = served();
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    let agents = ["one", "two"].map(|name| Agent::start(folder.path(), name, &[]));
    let agents: Vec<_> = agents.iter().collect();
    for (number, access) in ["hot:80/20,20/80", "zipf:1.1", "pareto:0.2"]
        .into_iter()
        .enumerate()
    {
        let mut sets = Vec::new();
        for (machines, queues) in [(&agents[..0], "4"), (&agents[..], "2")] {
            let name = format!("disk{number}-{queues}");
            let file = gateway.path(&name);
            let subsystem = format!("{SUBSYSTEM}-{number}-{queues}");
            gateway.ok(&format!(
                "volume add {name} file:{}?size=64M",
                file.display()
            ));
            gateway.ok(&format!("subsystem add {subsystem} --allow-any-host"));
            gateway.ok(&format!("namespace add {subsystem} {name}"));
            let url = url(port, &subsystem, 1);
            let arguments = [
                &*url,
                "--read-percent",
                "0",
                "--access",
                access,
                "--rate",
                "4800",
                "--queues",
                queues,
                // Room for all that is due: what a busy machine is late with is sent at the end.
                "--queue-depth",
                "127",
                "--duration",
                "100ms",
                "--seed",
                "11",
            ];
            let mut command = match machines {
                [] => {
                    let mut command = Command::new(WEIR);
                    command.args(["--json", "bench"]).args(arguments);
                    command
                }
                machines => bench(folder.path(), machines, &arguments),
            };
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let sent = (count(&report, "/write/requests"), count(&report, "/unsent"));
            assert_eq!(sent, (480, 0), "{access}");
            sets.push(written(&file));
        }
        assert_eq!(sets[0], sets[1], "{access}");
        if number == 0 {
            let hot = sets[1].iter().filter(|block| **block < BLOCKS / 5).count();
            let share = hot as f64 / sets[1].len() as f64;
            assert!((0.7..0.9).contains(&share), "{share} of the blocks are hot");
        }
    }
}

#[test]
fn an_agent_says_who_has_it_and_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = Agent::start(folder.path(), "one", &[]);
    let long = [UNHURRIED_HERE, "--queue-depth", "1", "--duration", "10m"];
    let mut first = bench(folder.path(), &[&one], &long)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the first has it", || {
        one.log().contains("has this agent now")
    });
    let second = bench(folder.path(), &[&one], &long).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let errors = said(&second);
    assert!(
        errors.contains("it works for") && errors.contains(&format!("process {}", first.id())),
        "{errors}"
    );
    assert!(first.try_wait().unwrap().is_none());
    one.signal(Signal::TERM);
    let output = first.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("was told to end"),
        "{}",
        said(&output)
    );
    assert_eq!(one.process.wait().unwrap().code(), Some(0), "{}", one.log());
}

#[test]
fn an_interrupted_coordinator_stops_its_agents_and_tells_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let one = Agent::start(folder.path(), "one", &[]);
    let long = [UNHURRIED_HERE, "--queue-depth", "1", "--duration", "10m"];
    let report = retry("it did something before the interrupt", |attempt| {
        let command = bench(folder.path(), &[&one], &long);
        let before = one.coordinators();
        let running = Running::start(command);
        until("it works", || {
            one.coordinators() > before && catches(running.id(), Signal::INT)
        });
        std::thread::sleep(Duration::from_secs(attempt.into()));
        running.signal(Signal::INT);
        let output = running.output();
        assert!(output.status.success(), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (count(&report, "/total/requests") > 0).then_some(report)
    });
    let caveats = report["caveats"].as_array().expect("a list");
    let early = caveats.iter().find(|of| of["code"] == "ended-early");
    let text = early.expect("it ended early")["text"]
        .as_str()
        .expect("words");
    assert!(text.contains(&one.address), "{text}");
}

#[test]
fn an_agent_opens_what_it_may_and_looks_before_it_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let allow = format!("file:{}/", data.display());
    let default = Agent::start_as_told(folder.path(), "default", &[]);
    let files = Agent::start(
        folder.path(),
        "files",
        &["--allow", &allow, "--allow", "stripe:", "--allow", "rbd:"],
    );
    let inside = format!("file:{}/image?size=16M", data.display());
    let outside = format!("file:{}/outside?size=16M", folder.path().display());
    let short = ["--duration", "200ms", "--read-percent", "0"];
    let refused = |agent: &Agent, url: &str, more: &[&str]| {
        let arguments = [&[url][..], &short, more].concat();
        let output = bench(folder.path(), &[agent], &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{url}: {}", said(&output));
        let errors = said(&output);
        assert!(errors.contains(&agent.address), "{errors}");
        errors
    };
    let errors = refused(&default, &inside, &[]);
    assert!(
        errors.contains("opens null: only") && errors.contains("--allow file:"),
        "{errors}"
    );
    assert!(refused(&default, "mem:?size=1G", &[]).contains("--allow mem:"));
    // What a target lets this machine do is no coordinator's.
    let remote = "nvme+tcp://127.0.0.1:1/nqn.2026-01.com.example:a?nsid=1";
    assert!(refused(&default, remote, &[]).contains("--allow nvme+tcp:"));
    assert!(refused(&files, &outside, &[]).contains(&allow));
    // Links lead out of no folder.
    fs::write(folder.path().join("secret"), vec![0; 1 << 20]).unwrap();
    symlink("../secret", data.join("link")).unwrap();
    let linked = format!("file:{}/link", data.display());
    let errors = refused(&files, &linked, &[]);
    assert!(errors.contains("leads out of"), "{errors}");
    // Members are looked at too.
    let member = outside
        .replace(':', "%3A")
        .replace('?', "%3F")
        .replace('=', "%3D");
    let striped = format!("stripe:?chunk=64k&member={member}&member={member}");
    let errors = refused(&files, &striped, &[]);
    assert!(errors.contains("this agent opens"), "{errors}");
    assert!(!folder.path().join("outside").exists());
    // Nor is any other file read because it is said to configure something.
    let errors = refused(&files, "rbd:pool/image?conf=/etc/hostname", &[]);
    assert!(errors.contains("conf, id, keyring must be"), "{errors}");
    let member = "rbd%3Apool/image%3Fkeyring%3D/etc/hostname";
    let striped = format!("stripe:?chunk=64k&member={member}&member={member}");
    let errors = refused(&files, &striped, &[]);
    assert!(errors.contains("conf, id, keyring must be"), "{errors}");

    let ran = |more: &[&str]| {
        let arguments = [&[&*inside][..], &short, more].concat();
        bench(folder.path(), &[&files], &arguments)
            .output()
            .unwrap()
    };
    let output = ran(&[]);
    assert!(output.status.success(), "{}", said(&output));
    let mut image = fs::read(data.join("image")).unwrap();
    image[510..512].copy_from_slice(&[0x55, 0xAA]);
    image[65_600..65_608].copy_from_slice(b"_BHRfS_M");
    fs::write(data.join("image"), &image).unwrap();
    let errors = refused(&files, &inside, &[]);
    assert!(errors.contains("--destroy-data"), "{errors}");
    assert_eq!(fs::read(data.join("image")).unwrap(), image);
    let output = ran(&["--destroy-data", &inside]);
    assert!(output.status.success(), "{}", said(&output));
}

/// A target lets hosts in by their names: an agent has its own, and no other that somebody tells it.
#[test]
fn an_agent_is_no_host_that_it_was_not_allowed_to_be() {
    const HOST: &str = "nqn.2026-01.com.example:allowed";
    const OTHER: &str = "nqn.2026-01.com.example:other";
    const ID: &str = "00112233-4455-6677-8899-aabbccddeeff";
    const GUARDED: &str = "nqn.2026-01.com.example:guarded";
    let folder = tempfile::tempdir().unwrap();
    let (gateway, open) = served();
    gateway.ok("volume add guarded mem:?size=8M");
    gateway.ok(&format!("subsystem add {GUARDED}"));
    gateway.ok(&format!("namespace add {GUARDED} guarded"));
    for host in [HOST, OTHER] {
        gateway.ok(&format!("host add {host}"));
        gateway.ok(&format!("subsystem allow-host {GUARDED} {host}"));
    }
    let guarded = open.replace(SUBSYSTEM, GUARDED);
    let default = Agent::start(
        folder.path(),
        "default",
        &["--allow", "nvme+tcp:", "--allow", "stripe:"],
    );
    let named = format!("nvme+tcp://127.0.0.1/?hostnqn={HOST}");
    let one = Agent::start(folder.path(), "one", &["--allow", &named]);
    let run = |agent: &Agent, url: &str, more: &[&str]| {
        // However late they are sent, there is room for some.
        let offered = ["--rate", "1000", "--duration", "200ms"];
        let arguments = [&[url][..], &offered, more].concat();
        bench(folder.path(), &[agent], &arguments).output().unwrap()
    };
    let refused = |agent: &Agent, url: &str| {
        let output = run(agent, url, &[]);
        assert_eq!(output.status.code(), Some(1), "{url}: {}", said(&output));
        let errors = said(&output);
        let words = [
            "hostnqn, hostid must be",
            "--allow 'nvme+tcp:?hostnqn=",
            &agent.address,
        ];
        assert!(
            words.iter().all(|word| errors.contains(word)),
            "{url}: {errors}"
        );
    };
    let with = |url: &str, more: &str| format!("{url}&{more}");
    let as_host = format!("hostnqn={HOST}");
    refused(&default, &with(&guarded, &as_host));
    refused(&default, &with(&open, &as_host));
    refused(&default, &with(&open, &format!("hostid={ID}")));
    // Nor by way of a volume that is made of others.
    let member = with(&guarded, &as_host);
    let member = ["%25", "%3A", "%3F", "%3D", "%26"]
        .into_iter()
        .zip(["%", ":", "?", "=", "&"])
        .fold(member, |text, (escape, letter)| {
            text.replace(letter, escape)
        });
    refused(
        &default,
        &format!("stripe:?chunk=64k&member={member}&member={member}"),
    );
    refused(&one, &with(&guarded, &format!("hostnqn={OTHER}")));
    refused(&one, &with(&guarded, &format!("{as_host}&hostid={ID}")));
    refused(&one, &open);
    assert_eq!(counted_of(&gateway, "guarded", "read"), None);

    let output = run(&one, &with(&guarded, &as_host), &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(counted_of(&gateway, "guarded", "read") > Some(0));
    // Hosts that it makes up are its own, as many as are asked for.
    let output = run(&default, &open, &["--hosts", "3"]);
    assert!(output.status.success(), "{}", said(&output));
    // One that may be one host only makes up no others.
    let output = run(&one, &open, &["--hosts", "3"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn neither_side_starts_without_a_token_that_nobody_else_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let loose = folder.path().join("loose");
    fs::write(&loose, "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::set_permissions(&loose, fs::Permissions::from_mode(0o644)).unwrap();
    let run = |arguments: &[&str]| Command::new(WEIR).args(arguments).output().unwrap();
    let loose = loose.to_str().unwrap();
    let output = run(&["agent", "--listen", "127.0.0.1:0", "--token-file", loose]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("chmod 600"), "{}", said(&output));
    assert_eq!(
        run(&["agent", "--listen", "127.0.0.1:0"]).status.code(),
        Some(2)
    );
    let to = [
        "bench",
        "null:",
        "--agent",
        "127.0.0.1:1",
        "--agent-token-file",
        loose,
    ];
    let output = run(&to);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("chmod 600"), "{}", said(&output));
    let token = token(folder.path());
    let to = [
        "bench",
        "null:",
        "--agent",
        "127.0.0.1:1",
        "--agent-token-file",
        token.to_str().unwrap(),
    ];
    let output = run(&to);
    assert!(
        said(&output).contains("--agent-fingerprint"),
        "{}",
        said(&output)
    );
    assert_eq!(
        run(&["bench", "null:", "--agent", "127.0.0.1:1"])
            .status
            .code(),
        Some(2)
    );
}
