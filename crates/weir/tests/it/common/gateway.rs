//! A gateway that is a process of its own, in a folder of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use weir_testing::exposition;

pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// How long anything may take before a test gives up. Only a bound: nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until `done` says so.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A gateway, and the folder that its state, socket and log are in.
pub(crate) struct Gateway {
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Gateway {
    /// A folder with a configuration, and no process yet. `config` comes before the tables.
    pub(crate) fn prepared(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (state, socket) = (
            folder.path().join("state.json"),
            folder.path().join("weir.sock"),
        );
        let config =
            format!("reactors = 2\nstate = {state:?}\n{config}\n[control]\nsocket = {socket:?}\n");
        std::fs::write(folder.path().join("weir.toml"), config).expect("it can be written to");
        Gateway {
            folder,
            process: None,
        }
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

    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let process = self.process.as_mut().expect("it was started");
        process.try_wait().expect("it can be waited for")
    }

    /// Asks it to end; its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let mut process = self.process.take().expect("it runs");
        kill_process(Pid::from_child(&process), Signal::TERM).expect("it is there");
        process.wait().expect("it ends").code()
    }

    pub(crate) fn weir(&self, arguments: &str) -> Output {
        let mut command = Command::new(WEIR);
        command
            .args(arguments.split_whitespace())
            .env("WEIR_SOCKET", self.path("weir.sock"));
        command.output().expect("the command runs")
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
    }
}

/// Starts a program that may have been copied just now. What another thread forked meanwhile has the copy open for writing until it has become
/// another program, and for so long the copy cannot be run (ETXTBSY).
fn spawn(command: &mut Command) -> Child {
    for _ in 0..500 {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            started => return started.expect("the gateway starts"),
        }
    }
    panic!("the gateway's program is being written to for five seconds");
}
