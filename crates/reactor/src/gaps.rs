//! Remembers how long a reactor lately waited for its next work, and says whether it is worth while to wait awake.
//!
//! Who waits awake is there at once, and pays for the time; so that it pays only while the next work mostly comes within the time that
//! it would wait. The gaps are known whether it was awake or not.

use std::time::Duration;

/// Gaps that are remembered, one bit each.
const REMEMBERED: u32 = u8::BITS;
/// So many of them short: the next will be short.
const SHORT_MIN: u32 = REMEMBERED * 3 / 4;

/// The last gaps between work and work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gaps {
    /// A bit for each, the last one lowest: whether it was short.
    short: u8,
}

impl Gaps {
    /// Nothing is known yet: the next one will be short.
    pub(crate) fn new() -> Self {
        Gaps { short: u8::MAX }
    }

    /// Remembers a gap; it was short if `spin` would have covered it.
    pub(crate) fn note(&mut self, gap: Duration, spin: Duration) {
        self.short = self.short << 1 | u8::from(gap <= spin);
    }

    /// Whether to wait for the next work awake.
    pub(crate) fn next_is_short(self) -> bool {
        self.short.count_ones() >= SHORT_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);
    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_micros(100);

    fn after(gaps: impl IntoIterator<Item = Duration>) -> Gaps {
        let mut known = Gaps::new();
        gaps.into_iter().for_each(|gap| known.note(gap, SPIN));
        known
    }

    #[test]
    fn it_follows_what_the_gaps_are_mostly_like() {
        assert!(Gaps::new().next_is_short());
        assert!(after([SHORT; 100]).next_is_short());
        assert!(!after([LONG; 100]).next_is_short());
        assert!(after([LONG].into_iter().chain([SHORT; 3])).next_is_short());
        let few_short = [LONG; 100].into_iter().chain([SHORT; 3]);
        assert!(!after(few_short).next_is_short());
    }

    #[test]
    fn it_changes_its_mind_within_as_many_gaps_as_it_remembers() {
        let busy_again = [LONG; 100].into_iter().chain([SHORT; REMEMBERED as usize]);
        assert!(after(busy_again).next_is_short());
        let idle_again = [SHORT; 100].into_iter().chain([LONG; REMEMBERED as usize]);
        assert!(!after(idle_again).next_is_short());
    }

    #[test]
    fn a_gap_that_just_fits_is_short() {
        assert!(after([SPIN; 100]).next_is_short());
        assert!(!after([SPIN + Duration::from_nanos(1); 100]).next_is_short());
    }
}
