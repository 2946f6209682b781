//! Tools end in order when they are asked to, and at once when they are asked again.

use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use weir_load::Stop;

/// Within this time of the first a signal asks for the same: timeout(1) tells a process and then its group, and who ends all of `weir reproduce` tells also what that
/// runs, which it tells as well.
const SAME: Duration = Duration::from_secs(1);
/// The number of the process that runs this one as a part of itself ([`super::own`]).
pub(super) const RUN_BY: &str = "WEIR_RUN_BY";

/// The process that runs this one as a part of itself.
fn run_by() -> Option<Pid> {
    let parent = std::env::var(RUN_BY).ok()?;
    Pid::from_raw(parent.parse().ok()?)
}

/// The end of the process that runs this one, if there is one, asks this one to end with this signal.
fn end_with(parent: Pid, signal: Signal) -> anyhow::Result<bool> {
    set_parent_process_death_signal(Some(signal))
        .context("cannot learn of the end of what runs this")?;
    // It may have ended before that.
    Ok(getppid() != Some(parent))
}

/// Has a gateway end in order when what runs it as a part of itself has ended.
pub(crate) fn end_with_what_runs_this() -> anyhow::Result<()> {
    match run_by() {
        Some(parent) if end_with(parent, Signal::TERM)? => {
            anyhow::bail!("what runs this has ended")
        }
        _ => Ok(()),
    }
}

/// SIGINT, SIGTERM, SIGHUP unless who started this wants it ignored (nohup), and the end of the process that runs this one ask it to stop; SIGINT and SIGTERM end it at once
/// where it was asked before.
pub(crate) fn end_on_interrupt(stop: &Stop) -> anyhow::Result<()> {
    let parent = run_by();
    let mut listened = end_signals();
    listened.extend(parent.map(|_| SIGUSR1));
    let mut signals = Signals::new(listened).context("cannot listen for signals")?;
    let (mut asked, told) = (Asked::default(), stop.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if asked.ends_at_once(signal, Instant::now()) {
                signal_hook::low_level::exit(130);
            }
            told.stop();
        }
    });
    if let Some(parent) = parent
        && end_with(parent, Signal::USR1)?
    {
        stop.stop();
    }
    Ok(())
}

/// The signals that ask a process to end, of those that are its own to act on.
pub(super) fn end_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hangup = (!is_ignored(&status, SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Whether a signal is ignored, by proc_pid_status(5).
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Since when it has been asked for.
#[derive(Debug, Default)]
struct Asked {
    since: Option<Instant>,
}

impl Asked {
    fn ends_at_once(&mut self, signal: i32, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        // Nobody hangs up twice on purpose.
        [SIGINT, SIGTERM].contains(&signal) && now.duration_since(since) >= SAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_at_once_when_it_is_asked_again_and_not_when_it_is_told_of_the_same_twice() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        for (told, ends) in [
            (&[(SIGINT, 0)][..], false),
            (&[(SIGINT, 0), (SIGINT, 0), (SIGINT, 999)], false),
            (&[(SIGTERM, 0), (SIGINT, 20)], false),
            (&[(SIGINT, 0), (SIGINT, 1000)], true),
            (&[(SIGINT, 0), (SIGINT, 1), (SIGTERM, 5000)], true),
            (&[(SIGHUP, 0), (SIGHUP, 5000)], false),
            (&[(SIGHUP, 0), (SIGINT, 5000)], true),
            (&[(SIGTERM, 0), (SIGUSR1, 5000)], false),
        ] {
            let mut asked = Asked::default();
            let each = told
                .iter()
                .map(|&(signal, when)| asked.ends_at_once(signal, at(when)));
            assert_eq!(each.last(), Some(ends), "{told:?}");
        }
    }

    #[test]
    fn what_is_ignored_is_read_of_the_kernels_own_words() {
        let status = "Name:\tweir\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tx", SIGHUP));
    }
}
