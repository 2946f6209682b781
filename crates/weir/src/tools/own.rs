//! Commands of this program that one of its commands runs, as processes of their own: what a signal asks of the one, it asks of the other.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Runs commands, one after the other. Each is a process group of its own: it is told of a signal once, whoever else a terminal would have told of it, so that what
/// ends orderly when it is asked once does. It never outlives what runs it because that alone was asked to end.
pub(super) struct Own {
    /// What runs.
    child: Arc<Mutex<Option<OwnedFd>>>,
}

impl Own {
    /// From now on signals go to what runs, and do what they do anyway where nothing runs.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP])
            .context("cannot listen for signals")?;
        let child = Arc::new(Mutex::new(None));
        let told = Arc::clone(&child);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                pass_on(&lock(&told), signal);
            }
        });
        Ok(Own { child })
    }

    /// What a command prints with --json; it shows its progress itself.
    pub(super) fn run(&self, arguments: &[String]) -> anyhow::Result<String> {
        let shown = weir_lab::secret::without(arguments).join(" ");
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(arguments).arg("--json").process_group(0);
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
    let tell = |signal| {
        child
            .as_ref()
            .is_some_and(|child| pidfd_send_signal(child, signal).is_ok())
    };
    let is_told = match signal {
        SIGHUP => tell(Signal::HUP),
        SIGINT => tell(Signal::INT),
        SIGQUIT => tell(Signal::QUIT),
        SIGTERM => tell(Signal::TERM),
        // Both stand still.
        _ => {
            tell(Signal::STOP);
            false
        }
    };
    if !is_told {
        let _ = emulate_default_handler(signal);
    }
    if signal == SIGTSTP {
        tell(Signal::CONT);
    }
}
