//! A gateway that is a process of its own, in a folder of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use weir_testing::exposition;

use crate::common::{free_port, until};

pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// The URL of a namespace of a gateway here. Its keep-alive timer is long: a process that is stopped for a moment loses no connection. A host
/// that loses one all the same goes on after that time: see [`recovering`].
pub(crate) fn url(port: u16, subsystem: &str, nsid: usize) -> String {
    format!("nvme+tcp://127.0.0.1:{port}/{subsystem}?nsid={nsid}&kato=300s")
}

/// The same for a host that is to lose its connections. What it sent may take effect until its keep-alive timer has run out at the gateway, and
/// so long it waits before it sends that again.
pub(crate) fn recovering(url: &str) -> String {
    url.replace("kato=300s", "kato=1s&reconnect_delay=1")
}

/// A gateway, and the folder that its state, socket and log are in.
pub(crate) struct Gateway {
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Gateway {
    /// A folder with a configuration, and no process yet. `config` comes before the table of the control socket.
    pub(crate) fn prepared(config: &str) -> Self {
        Self::prepared_on(2, config)
    }

    /// As [`Gateway::prepared`], on so many reactors.
    pub(crate) fn prepared_on(reactors: u32, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Self::prepared_in(folder, reactors, config)
    }

    /// As [`Gateway::prepared_on`], in this folder.
    pub(crate) fn prepared_in(folder: tempfile::TempDir, reactors: u32, config: &str) -> Self {
        let (state, socket) = (
            folder.path().join("state.json"),
            folder.path().join("weir.sock"),
        );
        let config = format!(
            "reactors = {reactors}\nstate = {state:?}\n{config}\n[control]\nsocket = {socket:?}\n"
        );
        std::fs::write(folder.path().join("weir.toml"), config).expect("it can be written to");
        Gateway {
            folder,
            process: None,
        }
    }

    pub(crate) fn started() -> Self {
        let mut gateway = Self::prepared("");
        gateway.start();
        gateway
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// `program` is to serve, with its log in the folder.
    pub(crate) fn serving(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let mut command = Command::new(program);
        command
            .args(["serve", "--config"])
            .arg(self.path("weir.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("the log can be written"));
        command
    }

    pub(crate) fn start(&mut self) {
        self.start_with(self.serving(WEIR));
    }

    pub(crate) fn start_with(&mut self, mut command: Command) {
        self.process = Some(spawn(&mut command));
        until("the gateway answers", || {
            assert!(self.ended().is_none(), "it ended:\n{}", self.log());
            self.weir("status").status.success()
        });
    }

    /// Takes a process that was started otherwise as this gateway's.
    pub(crate) fn adopt(&mut self, process: Child) {
        self.process = Some(process);
    }

    /// Tries to serve where that must fail; what it says.
    #[track_caller]
    pub(crate) fn fails_to_start(&self) -> String {
        let mut command = self.serving(WEIR);
        let output = command.stderr(Stdio::piped()).output();
        let output = output.expect("the command runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        text
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let process = self.process.as_mut().expect("it was started");
        process.try_wait().expect("it can be waited for")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill_process(Pid::from_child(process), signal).expect("it is there");
    }

    /// Asks it to end; its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.end_by(Signal::TERM)
    }

    /// Asks it to end by a signal; its exit code.
    pub(crate) fn end_by(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        until("the gateway ends", || self.ended().is_some());
        let status = self.ended();
        self.process = None;
        status.and_then(|status| status.code())
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let mut process = self.process.take().expect("it runs");
        process.wait().expect("it ends");
    }

    pub(crate) fn weir(&self, arguments: &str) -> Output {
        let mut command = self.weir_command(arguments);
        command.output().expect("the command runs")
    }

    pub(crate) fn weir_command(&self, arguments: &str) -> Command {
        let mut command = Command::new(WEIR);
        command
            .args(arguments.split_whitespace())
            .env("WEIR_SOCKET", self.path("weir.sock"));
        command
    }

    /// A tool at work, of which nothing is heard.
    pub(crate) fn background(&self, arguments: &str) -> Load {
        let mut command = self.weir_command(arguments);
        command.stdin(Stdio::null());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Load(command.spawn().expect("the command runs"))
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &str) -> String {
        let output = self.weir(arguments);
        let log = self.log();
        assert!(
            output.status.success(),
            "weir {arguments}: {output:?}\n{log}"
        );
        String::from_utf8(output.stdout).expect("the answer is text")
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{arguments} --json"))).expect("JSON")
    }

    #[track_caller]
    pub(crate) fn fails(&self, arguments: &str, pieces: &[&str]) {
        let output = self.weir(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert_eq!(code, Some(1), "weir {arguments}: {output:?}");
        for piece in pieces {
            assert!(
                text.contains(piece),
                "weir {arguments} does not say {piece:?}:\n{text}"
            );
        }
    }

    /// Serves a volume as namespace 1 at a port of 127.0.0.1; the URL at which it is found.
    #[track_caller]
    pub(crate) fn serve(&self, subsystem: &str, name: &str, volume: &str) -> String {
        self.ok(&format!("volume add {name} {volume}"));
        self.ok(&format!("subsystem add {subsystem} --allow-any-host"));
        self.ok(&format!("namespace add {subsystem} {name}"));
        let port = free_port();
        self.ok(&format!("listener add 127.0.0.1:{port}"));
        url(port, subsystem, 1)
    }

    /// The metrics page, with its head. A scrape takes it.
    #[track_caller]
    pub(crate) fn page(&self) -> String {
        let mut stream = UnixStream::connect(self.path("weir.sock")).expect("it listens");
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n")
            .expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let (_, page) = text.split_once("\r\n\r\n").expect("a head");
        exposition::assert_scrapes(page);
        text
    }

    /// The sum of a metric over its labels.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.page();
        let values = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let of = series.split('{').next()?;
            (of == name).then(|| value.parse::<f64>().expect("a number"))
        });
        let values: Vec<_> = values.collect();
        assert!(!values.is_empty(), "there is no metric {name}:\n{text}");
        values.iter().sum()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended; then there is nothing to kill.
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("the gateway's log:\n{}", self.log());
        }
    }
}

/// A process that goes on until this is dropped.
pub(crate) struct Load(pub(crate) Child);

impl Load {
    /// Tells whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.0.try_wait().expect("it can be waited for");
        status.is_some()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that may have been copied just now. A child that another thread forked meanwhile has the copy open for writing until it
/// runs its own program, and until then the copy cannot be run (ETXTBSY).
pub(crate) fn spawn(command: &mut Command) -> Child {
    let mut process = None;
    until("nothing writes to the gateway's program", || {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            started => process = Some(started.expect("the gateway starts")),
        }
        process.is_some()
    });
    process.expect("it was started")
}
