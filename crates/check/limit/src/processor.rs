//! Processors and their time: binding to one, what a process used, what a processor did.
//!
//! Times of other processes come from `/proc`, in clock ticks (10 ms mostly); one's own are exact.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this process so far, user and system, all threads.
#[must_use]
pub fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Binds the calling thread, and those that it starts later, to one processor.
///
/// # Errors
/// There is no such processor, or the process may not run there.
pub fn bind(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Processor time of a process so far, user and system, all threads, ended ones included.
///
/// # Errors
/// There is no such process, or `/proc` is not as it is on Linux.
pub fn time_of(process: u32) -> io::Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let ticks = process_ticks(&fs::read_to_string(&path)?)
        .ok_or_else(|| io::Error::other(format!("{path} is not as proc(5) says")))?;
    Ok(duration_of(ticks))
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// As [`time_of`].
pub fn resident_bytes(process: u32) -> io::Result<u64> {
    let path = format!("/proc/{process}/status");
    resident(&fs::read_to_string(&path)?)
        .ok_or_else(|| io::Error::other(format!("{path} has no VmRSS")))
}

/// What a processor did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Not idle and not stolen.
    pub busy: Duration,
    /// Idle, or waiting for a disk.
    pub idle: Duration,
    /// Wanted, and given to others by the hypervisor.
    pub stolen: Duration,
}

impl Spent {
    /// What was spent since `before`.
    #[must_use]
    pub fn since(&self, before: &Spent) -> Spent {
        Spent {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }

    /// Which part was busy or stolen, 0 to 1; 0 where no time passed.
    #[must_use]
    pub fn taken_share(&self) -> f64 {
        self.share(self.busy + self.stolen)
    }

    /// Which part was stolen, 0 to 1; 0 where no time passed.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        self.share(self.stolen)
    }

    fn share(&self, part: Duration) -> f64 {
        let all = self.busy + self.idle + self.stolen;
        if all.is_zero() {
            0.0
        } else {
            part.as_secs_f64() / all.as_secs_f64()
        }
    }
}

/// What a processor did since the start.
///
/// # Errors
/// There is no such processor.
pub fn spent(processor: usize) -> io::Result<Spent> {
    processor_ticks(&fs::read_to_string("/proc/stat")?, processor)
        .ok_or_else(|| io::Error::other(format!("there is no processor {processor} here")))
}

fn duration_of(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// utime and stime, the 14th and 15th field. The second is a name in parentheses that may hold anything.
fn process_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// user nice system idle iowait irq softirq steal; guest time is part of user time.
fn processor_ticks(stat: &str, processor: usize) -> Option<Spent> {
    let name = format!("cpu{processor} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    let &[user, nice, system, idle, waiting, irq, softirq, stolen, ..] = ticks.as_slice() else {
        return None;
    };
    Some(Spent {
        busy: duration_of(user + nice + system + irq + softirq),
        idle: duration_of(idle + waiting),
        stolen: duration_of(stolen),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 9 20 0 1 0 100";
        assert_eq!(process_ticks(stat), Some(300));
        assert_eq!(process_ticks("42 (x) S 1"), None);
    }

    #[test]
    fn a_processor_is_read() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu10 100 0 0 100 0 0 0 0 0 0\n";
        let zero = processor_ticks(stat, 0).unwrap();
        assert_eq!(zero.busy, duration_of(19));
        assert_eq!(zero.idle, duration_of(45));
        assert_eq!(zero.stolen, duration_of(8));
        let ten = processor_ticks(stat, 10).unwrap();
        assert!((ten.taken_share() - 0.5).abs() < 1e-9);
        assert_eq!(processor_ticks(stat, 1), None);
    }

    #[test]
    fn shares_of_no_time_are_none() {
        assert_eq!(Spent::default().taken_share(), 0.0);
        assert_eq!(Spent::default().stolen_share(), 0.0);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1024 kB\n"), Some(1 << 20));
        assert_eq!(resident("Name:\tx\n"), None);
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
    }

    #[test]
    fn own_time_passes_and_others_know_it() {
        let before = own_time();
        let mut sum = 0_u64;
        while own_time() - before < Duration::from_millis(30) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let seen = time_of(std::process::id()).unwrap();
        assert!(seen >= Duration::from_millis(20), "{seen:?}");
    }
}
