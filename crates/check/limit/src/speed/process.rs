//! Programs that are started, bound to processors, listened to and ended.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to end once it was asked to.
const END_WITHIN: Duration = Duration::from_secs(15);

/// A command that is bound to processors, such as `0` or `0,1`.
pub(super) fn bound(processors: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(processors).arg(program);
    command.stdin(Stdio::null());
    command
}

/// A shell command that is bound to a processor.
pub(super) fn shell(processor: usize, text: &str) -> Command {
    let mut command = bound(&processor.to_string(), "sh");
    command.arg("-c").arg(text);
    command
}

/// Runs a command to its end; what it wrote to standard output. What it wrote to standard error is told where it fails.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let said = format!("{command:?}");
    let done = command
        .output()
        .with_context(|| format!("cannot be started: {said}"))?;
    finished(&said, done)
}

fn finished(said: &str, done: std::process::Output) -> anyhow::Result<String> {
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(text);
    }
    let complaint = String::from_utf8_lossy(&done.stderr);
    bail!("{said} ended with {}: {}", done.status, complaint.trim());
}

/// A program that runs until it is ended. Dropped, it is killed.
pub(super) struct Running {
    said: String,
    child: Option<Child>,
    lines: Option<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts it, with its standard output to be read from here.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let said = format!("{command:?}");
        command.stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot be started: {said}"))?;
        let lines = child.stdout.take().map(BufReader::new);
        Ok(Running {
            said,
            child: Some(child),
            lines,
        })
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// The next line that it writes; without its end.
    pub(super) fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if let Some(lines) = &mut self.lines {
            lines.read_line(&mut line)?;
        }
        if line.is_empty() {
            bail!("{} ended without a word", self.said);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for its end; the rest of what it wrote.
    pub(super) fn finish(mut self) -> anyhow::Result<String> {
        let mut rest = String::new();
        if let Some(lines) = &mut self.lines {
            std::io::Read::read_to_string(lines, &mut rest)?;
        }
        let mut child = self.child.take().context("a program ends once")?;
        let status = child.wait()?;
        if status.success() {
            return Ok(rest);
        }
        bail!("{} ended with {status}", self.said);
    }

    /// Asks it to end, as SIGTERM does, and waits; the rest of what it wrote.
    pub(super) fn end(self) -> anyhow::Result<String> {
        signal(self.id(), Signal::TERM)?;
        self.finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // It may have ended already; then there is nothing to be done about it.
        let _ = signal(child.id(), Signal::TERM);
        let until = Instant::now() + END_WITHIN;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Sends a signal to a process.
pub(super) fn signal(process: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(process)
        .ok()
        .and_then(Pid::from_raw)
        .with_context(|| format!("{process} is no process"))?;
    kill_process(pid, signal).with_context(|| format!("process {process} cannot be signalled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_is_read_and_its_failure_is_told() {
        assert_eq!(output(&mut shell(0, "echo a; echo b")).unwrap(), "a\nb\n");
        let error = output(&mut shell(0, "echo why >&2; exit 3")).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }

    #[test]
    fn a_program_is_heard_and_ended() {
        let text = "trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
        let mut running = Running::start(&mut shell(0, text)).unwrap();
        assert_eq!(running.line().unwrap(), "ready");
        assert!(!running.has_ended());
        assert_eq!(running.end().unwrap(), "ended\n");
        let mut silent = Running::start(&mut shell(0, "exit 0")).unwrap();
        assert!(silent.line().is_err());
    }
}
