//! Losses in the kernel, placed among the packets that are recorded.

use std::collections::VecDeque;

/// Maximum number of entries; further losses are added to the last one.
const TIMES_MAX: usize = 64;

/// Losses in the kernel that no packet has reported yet, each with the time at which it was found. A loss lies after all packets with earlier
/// timestamps.
#[derive(Debug, Default)]
pub(crate) struct Losses(VecDeque<(u64, u64)>);

impl Losses {
    /// Adds losses that were found at a time.
    pub(crate) fn add(&mut self, time: u64, count: u64) {
        let is_full = self.0.len() >= TIMES_MAX;
        match self.0.back_mut().filter(|_| is_full) {
            // No packet has reported these. (Bytes never report losses.)
            Some(last) => *last = (time, last.1 + count),
            None => self.0.push_back((time, count)),
        }
    }

    /// Returns the losses that lie before a packet of this time.
    pub(crate) fn before(&self, time: u64) -> u64 {
        let before = self.0.iter().take_while(|one| one.0 <= time);
        before.map(|one| one.1).sum()
    }

    /// Removes the `count` earliest losses, because a packet has reported them.
    pub(crate) fn report(&mut self, mut count: u64) {
        while count > 0
            && let Some(first) = self.0.front_mut()
        {
            let reported = first.1.min(count);
            count -= reported;
            first.1 -= reported;
            if first.1 == 0 {
                self.0.pop_front();
            }
        }
    }

    /// Moves all times by a step of the clock, in nanoseconds.
    pub(crate) fn shift(&mut self, step: i64) {
        for (time, _) in &mut self.0 {
            *time = time.saturating_add_signed(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_once_by_the_first_packet_behind_them() {
        let mut losses = Losses::default();
        losses.add(100, 3);
        losses.add(200, 5);
        assert_eq!(losses.before(99), 0);
        assert_eq!(losses.before(150), 3);
        // A waiting packet already carries its losses; more are found meanwhile.
        let reported = losses.before(150);
        losses.add(120, 7);
        losses.report(reported);
        assert_eq!(losses.before(300), 12);
        losses.report(12);
        assert_eq!(losses.before(u64::MAX), 0);
    }

    #[test]
    fn losses_keep_their_place_when_the_clock_is_set() {
        for step in [-50, 1_000_000] {
            let mut losses = Losses::default();
            losses.add(100, 3);
            losses.shift(step);
            let at = |time: u64| time.saturating_add_signed(step);
            assert_eq!(losses.before(at(99)), 0);
            assert_eq!(losses.before(at(100)), 3);
        }
    }

    #[test]
    fn many_losses_without_a_packet_are_kept_together() {
        let mut losses = Losses::default();
        for time in 1..=1000 {
            losses.add(time, 2);
        }
        assert_eq!(losses.0.len(), TIMES_MAX);
        assert_eq!(losses.before(1000), 2000);
        assert_eq!(losses.before(TIMES_MAX as u64), 2 * (TIMES_MAX as u64 - 1));
        losses.report(2000);
        assert!(losses.0.is_empty());
    }
}
