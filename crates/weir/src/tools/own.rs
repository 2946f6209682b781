//! Commands of this program that one of its commands runs, as processes of their own: what a signal asks of the one, it asks of the other.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::interrupt::{RUN_BY, end_signals};

/// Runs commands, one after the other, in the process group of this one: what a terminal asks of all of it, each is told, and told of twice it takes for the same. What asks this
/// process alone to end is passed on, and where it ends all the same, what runs ends in order.
pub(super) struct Own {
    /// What runs.
    child: Arc<Mutex<Option<OwnedFd>>>,
}

impl Own {
    /// From now on signals go to what runs, and do what they do anyway where nothing runs.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut signals = Signals::new(end_signals()).context("cannot listen for signals")?;
        let child = Arc::new(Mutex::new(None));
        let told = Arc::clone(&child);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                pass_on(&lock(&told), signal);
            }
        });
        Ok(Own { child })
    }

    /// What a command prints with --json; it shows its progress itself. It is asked to end when the thread ends that calls this.
    pub(super) fn run(&self, arguments: &[String]) -> anyhow::Result<String> {
        let shown = weir_lab::secret::without(arguments).join(" ");
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(arguments).arg("--json");
        command.env(RUN_BY, std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // A signal waits until it is known whom it is for.
        let mut told = lock(&self.child);
        let mut child = command.spawn().with_context(|| format!("weir {shown}"))?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(process) => *told = Some(process),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error).with_context(|| format!("weir {shown}"));
            }
        }
        drop(told);
        let output = child.wait_with_output();
        *lock(&self.child) = None;
        let output = output.with_context(|| format!("weir {shown}"))?;
        if !output.status.success() {
            bail!("weir {shown} failed");
        }
        String::from_utf8(output.stdout).with_context(|| format!("weir {shown}"))
    }
}

fn lock(child: &Mutex<Option<OwnedFd>>) -> MutexGuard<'_, Option<OwnedFd>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells what runs; what has ended meanwhile is not told, and then the signal is this process's.
fn pass_on(child: &Option<OwnedFd>, signal: i32) {
    let passed = match signal {
        SIGHUP => Signal::HUP,
        SIGINT => Signal::INT,
        _ => Signal::TERM,
    };
    let is_told = (child.as_ref()).is_some_and(|child| pidfd_send_signal(child, passed).is_ok());
    if !is_told {
        let _ = emulate_default_handler(signal);
    }
}
