//! Agents that are processes of their own, a gateway for them, and what is said to and by those that have them make load.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_lab::document::Document;

use crate::common::free_port;
use crate::common::gateway::{Gateway, WEIR, until};

pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.com.example:agents";

/// An agent that is a process of its own.
pub(crate) struct Agent {
    pub(crate) process: Child,
    pub(crate) address: String,
    pub(crate) fingerprint: String,
    log: PathBuf,
}

impl Agent {
    pub(crate) fn start(folder: &Path, name: &str, more: &[&str]) -> Self {
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

/// A tool that goes on, whose errors and progress are read as it tells them.
pub(crate) struct Running {
    process: Option<Child>,
    told: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the tool starts");
        let errors = BufReader::new(process.stderr.take().expect("it is piped"));
        let told = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&told);
        let reader = std::thread::spawn(move || {
            for line in errors.lines() {
                let line = line.expect("it is text");
                *into.lock().unwrap() += &(line + "\n");
            }
        });
        Running {
            process: Some(process),
            told,
            reader: Some(reader),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it goes on");
        kill_process(Pid::from_child(process), signal).expect("it is there");
    }

    /// Waits for its progress, of which it tells every ten seconds, to have this in it. Before it tells of any, it has heard of intervals.
    #[track_caller]
    pub(crate) fn until_told(&mut self, what: &str) {
        let (told, process) = (&self.told, self.process.as_mut().expect("it goes on"));
        until(what, || {
            let told = told.lock().unwrap();
            let ended = process.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "it ended:\n{told}");
            told.contains(what)
        });
    }

    /// Waits for its end.
    pub(crate) fn output(mut self) -> Output {
        let process = self.process.take().expect("it goes on");
        let mut output = process.wait_with_output().expect("it ends");
        // The errors end with the process; what it told is whole when their reader has ended.
        let reader = self.reader.take().expect("it was started");
        reader.join().expect("what it tells can be read");
        output.stderr = self.told.lock().unwrap().clone().into_bytes();
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended; then there is nothing to kill.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn count(of: &Value, pointer: &str) -> u64 {
    let value = of.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number at {pointer} of {of}"))
}

/// A gateway that serves a volume, and the URL of its namespace.
pub(crate) fn served() -> (Gateway, String) {
    let (gateway, mut urls) = serving(&[("disk", "mem:?size=64M")]);
    (gateway, urls.remove(0))
}

/// A gateway that serves these volumes, and the URLs of their namespaces.
pub(crate) fn serving(volumes: &[(&str, &str)]) -> (Gateway, Vec<String>) {
    let mut gateway = Gateway::prepared("");
    gateway.start();
    let port = free_port();
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    let mut urls = Vec::new();
    for (index, (name, volume)) in volumes.iter().enumerate() {
        gateway.ok(&format!("volume add {name} {volume}"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} {name}"));
        let nsid = index + 1;
        urls.push(format!(
            "nvme+tcp://127.0.0.1:{port}/{SUBSYSTEM}?nsid={nsid}"
        ));
    }
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    (gateway, urls)
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
        .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        .map(|(place, _)| place)
        .collect()
}
