//! Tells whether others want the processor that a reactor would wait awake on.
//!
//! Who waits awake takes time that nobody misses, as long as nobody else is ready to run. A thread does not see who waits behind it. It does see for how long it
//! waited itself, ready to run, while others ran: where that is a multiple of the time that it ran, there are so many before it whenever it wants to run, and what
//! it spends on nothing keeps as many from their work.

use crate::{Instant, ProcessorTimes};

/// How long a look is good for: each costs a system call.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
/// It is crowded where a thread waits for so many times as long as it runs. With fewer before it, being there at once is worth more than what it costs.
const CROWDED_TIMES: u32 = 3;

/// The last look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    looked: Instant,
    /// What the thread had had by then; none where the kernel does not tell.
    times: Option<ProcessorTimes>,
    crowded: bool,
}

impl Crowd {
    /// Nothing is known yet: nobody else is there.
    pub(crate) fn new(now: Instant, times: Option<ProcessorTimes>) -> Self {
        Crowd {
            looked: now,
            times,
            crowded: false,
        }
    }

    /// Whether it is time for another look.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.times.is_some() && now.since(self.looked) >= LOOK
    }

    /// Takes a look: what the thread has had since it started.
    pub(crate) fn look(&mut self, now: Instant, times: Option<ProcessorTimes>) {
        self.crowded = match (self.times, times) {
            (Some(before), Some(after)) => {
                let ran = after.ran.saturating_sub(before.ran);
                let waited = after.waited.saturating_sub(before.waited);
                !waited.is_zero() && waited >= ran * CROWDED_TIMES
            }
            _ => false,
        };
        (self.looked, self.times) = (now, times);
    }

    /// Whether others wanted the processor when it last looked.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::from_nanos(milliseconds * 1_000_000)
    }

    fn times(ran: u64, waited: u64) -> Option<ProcessorTimes> {
        Some(ProcessorTimes {
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
        })
    }

    #[test]
    fn three_times_what_it_ran_is_crowded_until_a_look_finds_less() {
        let mut crowd = Crowd::new(at(0), times(0, 0));
        assert!(!crowd.is_crowded(), "nothing is known yet");
        assert!(!crowd.is_due(at(49)) && crowd.is_due(at(50)));
        crowd.look(at(100), times(10, 29));
        assert!(!crowd.is_crowded());
        crowd.look(at(200), times(20, 59));
        assert!(crowd.is_crowded());
        assert!(!crowd.is_due(at(249)), "a look is good for a while");
        crowd.look(at(300), times(30, 60));
        assert!(!crowd.is_crowded(), "the others have gone");
        crowd.look(at(400), times(30, 60));
        assert!(!crowd.is_crowded(), "nobody waited for anything");
    }

    #[test]
    fn where_the_kernel_does_not_tell_nobody_asks_again() {
        let mut crowd = Crowd::new(at(0), None);
        assert!(!crowd.is_due(at(1000)) && !crowd.is_crowded());
        crowd = Crowd::new(at(0), times(0, 0));
        crowd.look(at(100), times(1, 50));
        assert!(crowd.is_crowded());
        crowd.look(at(200), None);
        assert!(!crowd.is_crowded() && !crowd.is_due(at(1000)));
    }
}
