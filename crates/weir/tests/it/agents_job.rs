//! `weir bench --job --agent`: a job file that several agents carry out together, and what is left of it when one of them dies or the user has enough.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use weir_lab::document::{Document, Latency, Operations, Run};
use weir_load::workload::Kind;

use crate::common::agents::{
    self, Agent, Running, bench, counted, counted_of, result, said, served, serving,
    until_agents_work, written,
};
use crate::common::gateway::{Gateway, WEIR};
use crate::common::{catches, retry, until};

/// A job file, in a folder.
fn job_file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    path
}

fn run(folder: &Path, agents: &[&Agent], file: &Path, more: &[&str]) -> Output {
    let arguments = [&["--job", file.to_str().unwrap()], more].concat();
    bench(folder, agents, &arguments).output().unwrap()
}

/// With what was due, however much of it a busy machine got done.
fn shape(run: &Run) -> (&str, &str, u64) {
    let phase = run.phase.as_deref().expect("it is of a phase");
    (phase, &run.name, run.operations.requests() + run.unsent)
}

#[test]
fn what_agents_make_of_a_job_file_is_what_the_gateway_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, urls) = serving(&[("disk", "mem:?size=64M"), ("other", "mem:?size=32M")]);
    let agents = ["one", "two"].map(|name| Agent::start(folder.path(), name, &[]));
    let agents: Vec<_> = agents.iter().collect();
    let [disk, other] = [&urls[0], &urls[1]];
    let file = job_file(
        folder.path(),
        &format!(
            r#"
            duration = "250ms"
            interval = "50ms"
            seed = 5
            [[phase]]
            name = "fill"
            [[phase.job]]
            name = "writes"
            volume = "{disk}"
            read = 0
            access = "sequential"
            rate = 1600
            [[phase]]
            name = "work"
            [[phase.job]]
            name = "mixed"
            volume = "{disk}"
            read = 70
            rate = 2404
            arrivals = "exponential"
            hosts = 2
            [[phase.job]]
            name = "reads"
            volume = "{other}"
            rate = 1200
            duration = "125ms"
            "#
        ),
    );
    let page = folder.path().join("result.html");
    // Without a look at what is there, which reads too.
    let report = ["--report", page.to_str().unwrap()];
    let more = [
        &["--destroy-data", disk, "--destroy-data", other],
        &report[..],
    ]
    .concat();
    let output = run(folder.path(), &agents, &file, &more);
    assert!(output.status.success(), "{}", said(&output));
    let document = result(&output);
    let runs = document.runs();
    let [writes, mixed, reads] = runs[..] else {
        panic!("{} runs", runs.len());
    };
    assert_eq!(shape(writes), ("fill", "writes", 400));
    assert_eq!(shape(reads), ("work", "reads", 150));
    let (phase, name, requests) = shape(mixed);
    assert_eq!((phase, name), ("work", "mixed"));
    assert!(requests.abs_diff(601) < 150, "{requests}");

    // Each volume did what its jobs sent, and nothing else. What was in flight at a run's end, on a busy machine, is in no number of it.
    let is_done = |counted: Option<u64>, requests: u64, unfinished: u64| {
        let counted = counted.expect("it is counted");
        assert!(
            (requests..=requests + unfinished).contains(&counted),
            "{counted}, {requests} and {unfinished} unfinished"
        );
    };
    let written = writes.operations.write.requests + mixed.operations.write.requests;
    let unfinished = writes.unfinished + mixed.unfinished;
    is_done(counted(&gateway, "write"), written, unfinished);
    let read = mixed.operations.read.requests;
    is_done(counted(&gateway, "read"), read, mixed.unfinished);
    let read = reads.operations.read.requests;
    is_done(counted_of(&gateway, "other", "read"), read, 0);
    assert_eq!(writes.volumes[0].url, *disk, "as it stands in the file");
    assert_eq!(reads.volumes[0].length_bytes, 32 << 20);

    for run in &runs {
        let parts = run.agents.as_ref().expect("agents");
        assert!(parts.error.is_none() && parts.start_spread_seconds.is_some());
        assert_eq!(parts.each.len(), 2);
        let sent = parts.each.iter().map(|of| of.operations.requests());
        assert_eq!(sent.sum::<u64>(), run.operations.requests());
        let due = parts.each.iter();
        let due = due.map(|of| of.operations.requests() + of.unsent);
        let due: Vec<_> = due.collect();
        let all = run.operations.requests() + run.unsent;
        assert_eq!(due.iter().sum::<u64>(), all);
        assert!(due.iter().all(|&of| of.abs_diff(all / 2) < 100), "{due:?}");
        assert!(parts.each.iter().all(|of| of.seed == run.seed));
        for of in [Kind::Read, Kind::Write] {
            let latencies = |of_all: &Operations| match of {
                Kind::Read => of_all.read.service.clone(),
                _ => of_all.write.service.clone(),
            };
            let each = parts.each.iter();
            let each = each.filter_map(|part| latencies(&part.operations));
            let merged = Latency::merged(&each.collect::<Vec<_>>()).unwrap();
            let whole = latencies(&run.operations).map(|of| of.histogram().unwrap());
            assert_eq!(merged, whole);
        }
    }
    // No two jobs ask for the same blocks.
    assert!(writes.seed != mixed.seed && mixed.seed != reads.seed);
    // What all are asked for together.
    assert_eq!((writes.load.queues(), writes.load.hosts()), (2, 2));
    assert_eq!((mixed.load.queues(), mixed.load.hosts()), (4, 4));
    assert_eq!(mixed.load.rate(), Some(2404.0));
    let page = fs::read_to_string(&page).unwrap();
    assert!(agents.iter().all(|agent| page.contains(&agent.address)));

    // For people: the jobs, and below them who made the load of each.
    let mut command = Command::new(WEIR);
    command.args(["bench", "--job"]).arg(&file);
    for agent in &agents {
        command.args(["--agent", &agent.address]);
        command.args(["--agent-fingerprint", &agent.fingerprint]);
    }
    let token = agents::token(folder.path());
    let output = command
        .arg("--agent-token-file")
        .arg(token)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let below = text.split("work, reads\n").nth(1).expect("its agents");
    assert!(
        agents.iter().all(|agent| below.contains(&agent.address)),
        "{text}"
    );
}

/// What a job writes to is what one machine with all the queues writes to.
#[test]
fn a_job_with_hot_blocks_is_one_load_on_several_agents() {
    let folder = tempfile::tempdir().unwrap();
    let agents = ["one", "two"].map(|name| Agent::start(folder.path(), name, &[]));
    let agents: Vec<_> = agents.iter().collect();
    let mut sets = Vec::new();
    for (machines, queues) in [(&agents[..0], 4), (&agents[..], 2)] {
        let image = |name| folder.path().join(format!("{name}-{queues}"));
        let (hot, zipf) = (image("hot"), image("zipf"));
        let volume = |path: &Path| format!("file:{}?size=64M", path.display());
        let (_gateway, urls) = serving(&[("hot", &volume(&hot)), ("zipf", &volume(&zipf))]);
        // With room for all that is due: what a busy machine is late with is sent at the end.
        let phase = |url, access| {
            format!(
                "[[phase]]\n[[phase.job]]\nvolume = \"{url}\"\nread = 0\naccess = \"{access}\"\nrate = 4800\nqueue_depth = 127\nqueues = {queues}\n"
            )
        };
        let phases = phase(&urls[0], "hot:80/20,20/80") + &phase(&urls[1], "zipf:1.1");
        let file = job_file(folder.path(), &format!("duration = \"100ms\"\n{phases}"));
        let output = match machines {
            [] => Command::new(WEIR)
                .args(["--json", "bench", "--job"])
                .arg(&file)
                .output()
                .unwrap(),
            machines => run(folder.path(), machines, &file, &[]),
        };
        assert!(output.status.success(), "{}", said(&output));
        let sent = result(&output);
        let sent = sent.runs().into_iter().map(|of| of.operations.requests());
        assert_eq!(sent.collect::<Vec<_>>(), [480, 480]);
        sets.push([written(&hot), written(&zipf)]);
    }
    assert_eq!(sets[0], sets[1]);
}

/// Three phases of which the second is long, and under way.
fn under_way(folder: &Path, agents: &[&Agent]) -> (Gateway, Running) {
    let (gateway, urls) = serving(&[("disk", "mem:?size=64M"), ("other", "mem:?size=32M")]);
    let [disk, other] = [&urls[0], &urls[1]];
    let file = job_file(
        folder,
        &format!(
            r#"
            interval = "100ms"
            [[phase]]
            name = "first"
            duration = "100ms"
            [[phase.job]]
            volume = "{disk}"
            rate = 1000
            queue_depth = 127
            [[phase]]
            name = "second"
            duration = "10m"
            [[phase.job]]
            volume = "{disk}"
            read = 0
            rate = 200
            [[phase]]
            name = "third"
            [[phase.job]]
            volume = "{other}"
            "#
        ),
    );
    let arguments = ["--job", file.to_str().unwrap()];
    let running = Running::start(bench(folder, agents, &arguments));
    until("the second phase began", || {
        counted(&gateway, "write") > Some(100)
    });
    until_agents_work(&gateway, agents.len());
    (gateway, running)
}

fn caveat<'a>(document: &'a Document, code: &str) -> &'a str {
    let found = document.caveats.iter().find(|of| of.code == code);
    &found
        .unwrap_or_else(|| panic!("no {code}: {:?}", document.caveats))
        .text
}

#[test]
fn an_agent_that_is_killed_in_a_phase_fails_it_by_name_and_those_before_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let one = Agent::start(folder.path(), "one", &[]);
    // An agent that did not get to tell of an interval before it died counts for nothing.
    let (two, gateway, output) = retry("both have told something", |attempt| {
        let mut two = Agent::start(folder.path(), &format!("two-{attempt}"), &[]);
        let (gateway, running) = under_way(folder.path(), &[&one, &two]);
        two.process.kill().unwrap();
        let output = running.output();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let document = result(&output);
        let runs = document.runs();
        let each = &runs[1].agents.as_ref().expect("agents").each;
        let all_told = each.iter().all(|of| of.operations.requests() > 0);
        all_told.then_some((two, gateway, output))
    });
    let lost = format!("agent {} is lost", two.address);
    assert!(said(&output).contains(&format!("error: the result is not whole: {lost}")));
    let document = result(&output);
    let runs = document.runs();
    let [first, second] = runs[..] else {
        panic!("{} runs", runs.len());
    };
    assert!(first.error().is_none(), "{:?}", first.error());
    assert_eq!(first.operations.requests(), 100);
    let error = second.error().expect("it is not whole");
    assert!(error.contains(&lost), "{error}");
    let each = &second.agents.as_ref().expect("agents").each;
    assert!(each[0].error.is_none() && each[1].error.is_some());
    let text = caveat(&document, "agent-lost");
    assert!(
        text.starts_with("phase 'second'") && text.contains(&lost),
        "{text}"
    );
    let text = caveat(&document, "phases-not-begun");
    assert!(text.contains("since one failed: 'third'"), "{text}");
    assert_eq!(counted_of(&gateway, "other", "read"), None);
    // The other one is free.
    until("it is free", || one.log().contains("it is done"));
}

#[test]
fn a_job_file_that_is_interrupted_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let one = Agent::start(folder.path(), "one", &[]);
    let (gateway, running) = under_way(folder.path(), &[&one]);
    until("it waits for a signal", || {
        catches(running.id(), Signal::INT)
    });
    running.signal(Signal::INT);
    let output = running.output();
    assert!(output.status.success(), "{}", said(&output));
    let document = result(&output);
    let runs = document.runs();
    let phases: Vec<_> = runs
        .iter()
        .map(|run| run.phase.as_deref().unwrap())
        .collect();
    assert_eq!(phases, ["first", "second"]);
    assert!(runs.iter().all(|run| run.error().is_none()));
    assert_eq!(runs[0].operations.requests(), 100);
    // All that was sent until then is there.
    let sent = runs[1].operations.write.requests;
    assert_eq!(counted(&gateway, "write"), Some(sent));
    let early = caveat(&document, "ended-early");
    assert!(
        early.contains("second") && early.contains(&one.address),
        "{early}"
    );
    let text = caveat(&document, "phases-not-begun");
    assert!(
        text.contains("since it was asked to end: 'third'"),
        "{text}"
    );
    assert_eq!(counted_of(&gateway, "other", "read"), None);
}

#[test]
fn a_job_that_cannot_be_run_is_refused_with_its_line_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, url) = served();
    let one = Agent::start(folder.path(), "one", &[]);
    let text = format!(
        "[[phase]]\n[[phase.job]]\nvolume = \"{url}\"\n[[phase]]\n[[phase.job]]\nvolume = \"{url}\"\nblock_size = 1000\n"
    );
    let file = job_file(folder.path(), &text);
    let output = run(folder.path(), &[&one], &file, &[]);
    assert_eq!(output.status.code(), Some(1));
    let errors = said(&output);
    assert!(
        errors.contains("job.toml:5: the job cannot be run") && errors.contains(&one.address),
        "{errors}"
    );
    assert_eq!(counted(&gateway, "read"), None);
}

/// A medium is opened for writing once, and by jobs of several phases, one of which only reads.
#[test]
fn jobs_of_several_phases_share_a_volume() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let allow = format!("file:{}/", data.display());
    let one = Agent::start(folder.path(), "one", &["--allow", &allow]);
    let volume = format!("file:{}/image?size=16M", data.display());
    let phase = |read: u32| {
        format!(
            "[[phase]]\nduration = \"200ms\"\n[[phase.job]]\nvolume = \"{volume}\"\nread = {read}\nrate = 1000\nqueue_depth = 127\n"
        )
    };
    let file = job_file(folder.path(), &(phase(100) + &phase(0) + &phase(50)));
    let output = run(folder.path(), &[&one], &file, &[]);
    assert!(output.status.success(), "{}", said(&output));
    let document = result(&output);
    let written = document
        .runs()
        .into_iter()
        .map(|run| run.operations.write.requests > 0);
    assert_eq!(written.collect::<Vec<_>>(), [false, true, true]);
}
