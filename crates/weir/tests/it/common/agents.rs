//! Agents that are processes of their own, a gateway for them, and what is said to and by those that have them make load.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_lab::document::Document;

use crate::common::gateway::{Gateway, Load, WEIR, url};
use crate::common::{free_port, until};

pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.com.example:agents";

/// An agent that is a process of its own.
pub(crate) struct Agent {
    pub(crate) process: Child,
    pub(crate) address: String,
    pub(crate) fingerprint: String,
    log: PathBuf,
}

impl Agent {
    /// Starts one that opens volumes of gateways, where `more` says nothing else.
    pub(crate) fn start(folder: &Path, name: &str, more: &[&str]) -> Self {
        let usual = ["--allow", "nvme+tcp:", "--allow", "null:"];
        Self::start_as_told(folder, name, if more.is_empty() { &usual } else { more })
    }

    pub(crate) fn start_as_told(folder: &Path, name: &str, more: &[&str]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let mut process = Command::new(WEIR)
            .args(["--json", "agent", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(token(folder))
            .arg("--state-folder")
            .arg(folder.join(name))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("the log can be written"))
            .spawn()
            .expect("the agent starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says where it is");
        let said: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{line}: {}", fs::read_to_string(&log).unwrap()));
        let text = |key: &str| said[key].as_str().expect("a text").to_owned();
        Agent {
            address: text("address"),
            fingerprint: text("fingerprint"),
            process,
            log,
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Number of coordinators that have had it so far.
    pub(crate) fn coordinators(&self) -> usize {
        self.log().matches("has this agent now").count()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it is there");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The token file, which is made if it is not there.
pub(crate) fn token(folder: &Path) -> PathBuf {
    let path = folder.join("token");
    if !path.exists() {
        fs::write(&path, "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    path
}

/// `weir bench` with agents.
pub(crate) fn bench(folder: &Path, agents: &[&Agent], arguments: &[&str]) -> Command {
    on_agents("bench", folder, agents, arguments)
}

/// A tool with agents.
pub(crate) fn on_agents(
    tool: &str,
    folder: &Path,
    agents: &[&Agent],
    arguments: &[&str],
) -> Command {
    let mut command = Command::new(WEIR);
    command.args(["--json", tool]).args(arguments);
    for agent in agents {
        command.args(["--agent", &agent.address]);
        command.args(["--agent-fingerprint", &agent.fingerprint]);
    }
    command.arg("--agent-token-file").arg(token(folder));
    command
}

/// A tool that goes on.
pub(crate) struct Running {
    process: Load,
    /// Readers of its standard output and its errors.
    readers: [JoinHandle<Vec<u8>>; 2],
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the tool starts");
        let (output, errors) = (process.stdout.take(), process.stderr.take());
        Running {
            readers: [
                reader(output.expect("it is piped")),
                reader(errors.expect("it is piped")),
            ],
            process: Load(process),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).expect("it is there");
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Tells whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn output(self) -> Output {
        self.output_while(|| {})
    }

    /// Waits for its end, and meanwhile does something again and again.
    #[track_caller]
    pub(crate) fn output_while(mut self, mut meanwhile: impl FnMut()) -> Output {
        until("the tool ends", || {
            meanwhile();
            self.has_ended()
        });
        let status = self.process.0.wait().expect("it has ended");
        let [stdout, stderr] = self
            .readers
            .map(|reader| reader.join().expect("it is read to its end"));
        Output {
            status,
            stdout,
            stderr,
        }
    }
}

/// Reads all that there is, from a thread of its own.
fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("it can be read");
        all
    })
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn count(of: &Value, pointer: &str) -> u64 {
    let value = of.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number at {pointer} of {of}"))
}

/// A volume that closed loops without an end keep busy, and no processor: so many requests a second are enough for all that is looked for.
pub(crate) const UNHURRIED: &str = "mem:?size=64M&rate=4000";
/// The same of a volume that agents open themselves.
pub(crate) const UNHURRIED_HERE: &str = "null:?size=1G&rate=1000";

/// A gateway that serves a volume, and the URL of its namespace.
pub(crate) fn served() -> (Gateway, String) {
    let (gateway, mut urls) = serving(&[("disk", UNHURRIED)]);
    (gateway, urls.remove(0))
}

/// A gateway that serves these volumes, and the URLs of their namespaces.
pub(crate) fn serving(volumes: &[(&str, &str)]) -> (Gateway, Vec<String>) {
    let gateway = Gateway::started();
    let port = free_port();
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    let mut urls = Vec::new();
    for (index, (name, volume)) in volumes.iter().enumerate() {
        gateway.ok(&format!("volume add {name} {volume}"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} {name}"));
        urls.push(url(port, SUBSYSTEM, index + 1));
    }
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    (gateway, urls)
}

/// Waits until this many agents have moved data, each with a controller of its own, and a moment more, in which they tell what they did in an
/// interval.
#[track_caller]
pub(crate) fn until_agents_work(gateway: &Gateway, agents: usize) {
    const BYTES: u64 = 256 << 10;
    until("every agent is at work", || {
        let connections = gateway.json("connection list");
        let connections = connections.as_array().expect("a list").iter();
        let busy = connections.filter(|one| {
            let bytes = count(one, "/received_bytes") + count(one, "/sent_bytes");
            one["queue"]["queue_id"].as_u64() > Some(0) && bytes > BYTES
        });
        let controllers = busy.map(|one| count(one, "/queue/controller_id"));
        controllers.collect::<BTreeSet<_>>().len() >= agents
    });
    std::thread::sleep(Duration::from_secs(1));
}

/// Requests of an operation that the gateway's volume `disk` has carried out.
pub(crate) fn requests(gateway: &Gateway, operation: &str) -> u64 {
    counted(gateway, operation).expect("the gateway counts what its volume did")
}

/// The same; none before the first.
pub(crate) fn counted(gateway: &Gateway, operation: &str) -> Option<u64> {
    counted_of(gateway, "disk", operation)
}

/// Requests of an operation that one of the gateway's volumes has carried out; none before the first.
pub(crate) fn counted_of(gateway: &Gateway, volume: &str, operation: &str) -> Option<u64> {
    let text = gateway.page();
    let series = format!(
        "weir_volume_requests_total{{volume=\"{volume}\",operation=\"{operation}\",result=\"succeeded\"}} "
    );
    let mut values = text.lines().filter_map(|line| line.strip_prefix(&series));
    values.next().map(|value| value.parse().expect("a number"))
}

/// A result on standard output.
pub(crate) fn result(output: &Output) -> Document {
    Document::from_json(std::str::from_utf8(&output.stdout).expect("text")).expect("a result")
}

/// Blocks of a file that something was written to.
pub(crate) fn written(file: &Path) -> Vec<usize> {
    let bytes = fs::read(file).unwrap();
    let blocks = bytes.chunks(4096).enumerate();
    blocks
        .filter(|(_, block)| *block != [0; 4096])
        .map(|(place, _)| place)
        .collect()
}
