//! `--gateway-pid`: the processor time of a gateway on this machine, while load is made.

use std::time::Duration;
use std::{fs, io};

use anyhow::bail;
use weir_lab::document::{Caveat, Run};

/// Of the times in `/proc/PID/stat`: USER_HZ, which is this on all architectures that Weir is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Options of what makes load.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct WatchArguments {
    /// Tell the processor time of this process too: a gateway on the same machine
    #[arg(long, value_name = "PID")]
    gateway_pid: Option<u32>,
}

impl WatchArguments {
    /// The process that is watched.
    pub(super) fn pid(&self) -> Option<u32> {
        self.gateway_pid
    }

    /// Looks at the process for the first time.
    pub(super) fn watched(&self) -> anyhow::Result<Option<Watched>> {
        let Some(pid) = self.gateway_pid else {
            return Ok(None);
        };
        match looked_at(pid) {
            Ok(looked) => Ok(Some(Watched {
                pid,
                began: looked.began,
            })),
            Err(error) => bail!(
                "--gateway-pid {pid}: no process of this machine's that can be looked at ({error}); weir status tells the gateway's"
            ),
        }
    }
}

/// A process whose processor time is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    pid: u32,
    /// When it was started, in ticks: another one may get its number.
    began: u64,
}

struct Looked {
    /// Processor time that it has had.
    seconds: f64,
    began: u64,
}

impl Watched {
    /// Processor time that the process has had. None where there is none any more.
    pub(super) fn seconds(&self) -> Option<f64> {
        let looked = looked_at(self.pid).ok()?;
        (looked.began == self.began).then_some(looked.seconds)
    }

    /// Adds to the run what the process took since it had had `before`, or says why that is not known. What the ramp took is not told apart, and is
    /// taken to be its part of the time.
    pub(super) fn tell(
        &self,
        before: Option<f64>,
        run: &mut Run,
        ramp: Duration,
        measured: Duration,
    ) -> Option<Caveat> {
        let part = measured.as_secs_f64() / (ramp + measured).as_secs_f64();
        let took = before.zip(self.seconds());
        run.processor.gateway_seconds = took.map(|(before, after)| (after - before) * part);
        took.is_none().then(|| {
            let text = format!(
                "process {}, of which --gateway-pid asks, is gone: what it took is not known",
                self.pid
            );
            Caveat::new("gateway-gone", text)
        })
    }
}

fn looked_at(pid: u32) -> io::Result<Looked> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    of_stat(&stat).ok_or_else(|| io::Error::other("its stat has another form"))
}

/// User and system time, and the start, of a line of `/proc/PID/stat` (proc_pid_stat(5), fields 14, 15 and 22). The second field may hold anything, in
/// parentheses.
fn of_stat(stat: &str) -> Option<Looked> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    let began = fields.nth(6)?.parse().ok()?;
    Some(Looked {
        seconds: (user + system) / TICKS_PER_SECOND,
        began,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_be_called_anything() {
        let stat = "7 (a) b) R) S 1 7 7 0 -1 4194560 90 0 0 0 150 50 3 4 20 0 5 0 99 1000 1";
        let looked = of_stat(stat).unwrap();
        assert_eq!((looked.seconds, looked.began), (2.0, 99));
        assert!(of_stat("7 (a) S 1").is_none() && of_stat("").is_none());
    }

    #[test]
    fn this_process_is_watched_and_another_of_its_number_is_not() {
        let arguments = WatchArguments {
            gateway_pid: Some(std::process::id()),
        };
        let watched = arguments.watched().unwrap().unwrap();
        assert!(watched.seconds().is_some());
        let other = Watched {
            began: watched.began + 1,
            ..watched
        };
        assert_eq!(other.seconds(), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        let arguments = WatchArguments {
            gateway_pid: Some(u32::MAX),
        };
        let error = arguments.watched().unwrap_err().to_string();
        assert!(error.contains("--gateway-pid 4294967295"), "{error}");
        assert!(WatchArguments::default().watched().unwrap().is_none());
    }
}
