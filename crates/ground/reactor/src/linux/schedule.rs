//! What the scheduler did with a thread.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::ProcessorTimes;

/// The scheduler's figures for one thread (proc_pid_schedstat(5)).
#[derive(Debug)]
pub(super) struct Schedule {
    /// None where the kernel keeps none.
    figures: Option<File>,
}

impl Schedule {
    /// Those of the thread that asks.
    pub(super) fn of_this_thread() -> Self {
        Schedule {
            figures: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// What it did since the thread started.
    pub(super) fn times(&self) -> Option<ProcessorTimes> {
        let mut text = [0; 96];
        let length = self.figures.as_ref()?.read_at(&mut text, 0).ok()?;
        // Nanoseconds that it ran, nanoseconds that it waited, and how often it ran.
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let mut nanoseconds = text.split_ascii_whitespace().map(|word| word.parse().ok());
        Some(ProcessorTimes {
            ran: Duration::from_nanos(nanoseconds.next()??),
            waited: Duration::from_nanos(nanoseconds.next()??),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::super::{LinuxConfig, LinuxSystem, bind_to};
    use super::*;
    use crate::System;

    const WAITED: Duration = Duration::from_millis(20);

    #[test]
    fn a_thread_waits_where_another_takes_its_processor() {
        let allowed = LinuxSystem::new(LinuxConfig::default());
        let processor = allowed.expect("io_uring works here").processors()[0];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind_to(processor).expect("it is one of ours");
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let waits = scope.spawn(|| {
                bind_to(processor).expect("it is one of ours");
                let schedule = Schedule::of_this_thread();
                let times = || schedule.times().expect("the kernel keeps these figures");
                // In this order: another may take the processor between the two, and that wait is to be within the time.
                let (began, before) = (Instant::now(), times());
                let mut after = before;
                while after.waited - before.waited < WAITED && began.elapsed().as_secs() < 300 {
                    std::hint::spin_loop();
                    after = times();
                }
                done.store(true, Ordering::Relaxed);
                let took = (after.ran - before.ran, after.waited - before.waited);
                (took, began.elapsed())
            });
            let ((ran, waited), elapsed) = waits.join().expect("it looked");
            assert!(waited >= WAITED && !ran.is_zero(), "{ran:?} {waited:?}");
            // What it ran is brought up to date with the scheduler's ticks only.
            let tick = Duration::from_millis(10);
            assert!(
                ran + waited <= elapsed + tick,
                "{ran:?} {waited:?} of {elapsed:?}"
            );
        });
    }
}
