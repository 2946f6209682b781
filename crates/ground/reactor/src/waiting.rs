//! Whether a reactor with nothing to do sleeps at once, or waits awake for a while first.
//!
//! Between two pieces of work from outside (received bytes, the disk, other threads) there is a gap. To sleep through it costs a
//! wake-up. To wait awake, for up to [`REACH`] wake-ups, costs the time until the work comes, and a wake-up as well where that
//! is later. Both are known of every gap, also of one that was slept through: it would have been shorter by the wake-up. The
//! choice goes by the mean of the recent gaps.
//!
//! A peer may sleep because this side does. So a reactor that sleeps tries now and then what the gaps are like when it is
//! awake: each trial that fails makes the time to the next one twice as long. Time for which its thread waited for a
//! processor while it was awake is what it took from others, and is added to what being awake costs.

use std::time::Duration;

use crate::Instant;

/// For how long a reactor with nothing to do waits awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spin {
    /// As long as it costs less than to sleep, as the gaps of the last while tell.
    #[default]
    Auto,
    /// So long after it had work last, whatever that costs.
    For(Duration),
}

/// Wake-ups for which it waits awake at most.
const REACH: u32 = 3;
/// Gaps that a mean goes by: one counts for so much less.
const MEMORY: f64 = 12.0;
/// The same of the work that comes with a gap.
const WORK_MEMORY: f64 = 8.0;
/// The mean of what it costs to be awake is at most so many wake-ups, so that a few short gaps bring it down again.
const AWAKE_MAX: f64 = 1.5;
/// Gaps of one trial: time for a peer to see that it is answered otherwise, and for this side to see what the peer does then.
const TRIAL: u32 = 32;
/// Gaps from one trial to the next, at first and at most.
const REST_MIN: u32 = 32;
const REST_MAX: u32 = 1024;
/// Wake-ups to the next trial at most, once there were the fewest gaps: a load may have changed without a sign of it.
const REST_FOR: u32 = 500;
/// The part of a wake-up below which being awake costs so little that sleep is not tried.
const TRIED_FROM: f64 = 0.4;
/// Gaps awake between two looks at the time for which the thread waited for a processor.
const LOOK: u32 = 256;
/// What a wake-up takes before one was measured, and at most: what takes longer is a machine that has no time.
const WAKE_UP: Duration = Duration::from_micros(10);
const WAKE_UP_MAX: Duration = Duration::from_micros(500);
/// Wake-ups that are remembered; the median counts.
const WAKE_UPS: usize = 7;
/// A wake-up by another processor takes so many times as long as one by the timer, by which it is measured. A time that is too
/// short keeps a reactor and its peer asleep; one that is too long costs a little.
const BY_ANOTHER: f64 = 1.5;
/// From one measurement of a wake-up to the next.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// A sleep that measures one is as long as this, or shorter where work comes sooner.
const MEASURED_BY_MAX: Duration = Duration::from_micros(200);
const MEASURED_BY_MIN: Duration = Duration::from_micros(10);

/// A gap that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    /// From when nothing was left to do until work was taken up that came from outside.
    pub(crate) time: Duration,
    /// The reactor had to wake up for that work.
    pub(crate) slept: bool,
    /// Bytes received between the gap before and this one; what has no bytes counts as one.
    pub(crate) work: u64,
}

/// What a reactor's loop asks how to wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    spin: Spin,
    is_awake: bool,
    /// Gaps until a trial of the other choice begins; within one, until it ends.
    left: u32,
    is_trial: bool,
    rest: u32,
    /// Time of the gaps since the last trial or change.
    rested: Duration,
    /// What a gap costs awake, in nanoseconds: the mean of the recent ones.
    awake: f64,
    /// What it costs others on top.
    others: f64,
    /// The work that comes with a gap asleep, and awake: means of its logarithm, to which one large request among small ones is
    /// little.
    work: [f64; 2],
    /// Gaps awake since the last look at others, and the time for which the thread had waited by then.
    looked: (u32, Duration),
    wake_ups: [Duration; WAKE_UPS],
    wake_up: Duration,
    measured: u64,
    measure_at: Instant,
    measure_by: Duration,
}

impl Waiting {
    pub(crate) fn new(spin: Spin, now: Instant) -> Self {
        Waiting {
            spin,
            is_awake: true,
            left: REST_MIN,
            is_trial: false,
            rest: REST_MIN,
            rested: Duration::ZERO,
            awake: 0.0,
            others: 0.0,
            work: [0.0; 2],
            looked: (0, Duration::ZERO),
            wake_ups: [WAKE_UP; WAKE_UPS],
            wake_up: WAKE_UP,
            measured: 0,
            measure_at: now,
            measure_by: MEASURED_BY_MAX,
        }
    }

    /// For how long of a gap to wait awake.
    pub(crate) fn awake_for(&self) -> Duration {
        match self.spin {
            Spin::For(time) => time,
            Spin::Auto if self.is_awake => REACH * self.wake_up,
            Spin::Auto => Duration::ZERO,
        }
    }

    /// Whether it was told for how long to wait awake, after work of any kind.
    pub(crate) fn is_fixed(&self) -> bool {
        self.spin != Spin::Auto
    }

    /// What a wake-up takes.
    pub(crate) fn wake_up(&self) -> Duration {
        self.wake_up
    }

    /// Work came from outside. `waited` tells for how long the reactor's thread has waited for a processor since it started.
    pub(crate) fn gap_ended(&mut self, gap: Gap, waited: impl FnOnce() -> Duration) {
        if self.is_fixed() {
            return;
        }
        let time = match gap.slept {
            true => gap.time.saturating_sub(self.wake_up),
            false => gap.time,
        };
        let reach = REACH * self.wake_up;
        let cost = match time <= reach {
            true => time,
            false => reach + self.wake_up,
        };
        // In a trial of sleep the peers may sleep too, and their wake-ups are in the gaps: nothing is learnt about being awake.
        if self.is_awake || !self.is_trial {
            self.awake += (cost.as_nanos() as f64 - self.awake) / MEMORY;
            self.awake = self.awake.min(AWAKE_MAX * self.asleep_cost());
        }
        let work = &mut self.work[usize::from(self.is_awake)];
        *work += ((gap.work.max(1) as f64).log2() - *work) / WORK_MEMORY;
        self.rested += gap.time;
        self.choose(time > reach, waited);
    }

    /// Whether being awake is the better choice.
    fn awake_is_cheaper(&self) -> bool {
        // What comes while a reactor wakes up needs no wake-up of its own.
        let [asleep, awake] = self.work;
        self.awake + self.others <= self.asleep_cost() * (awake - asleep).min(0.0).exp2()
    }

    fn asleep_cost(&self) -> f64 {
        self.wake_up.as_nanos() as f64
    }

    fn choose(&mut self, is_out_of_reach: bool, waited: impl FnOnce() -> Duration) {
        self.left = self.left.saturating_sub(1);
        self.looked.0 += u32::from(self.is_awake);
        let was_awake = self.is_awake;
        let in_vain = was_awake && is_out_of_reach;
        if self.is_trial && self.left > 0 && !in_vain {
            return;
        }
        let mut waited = Some(waited);
        if was_awake && (self.is_trial || self.looked.0 >= LOOK) {
            let waited = waited.take().map_or(Duration::ZERO, |waited| waited());
            let (gaps, before) = std::mem::replace(&mut self.looked, (0, waited));
            let others = waited.saturating_sub(before).as_nanos() as f64;
            self.others = others / f64::from(gaps.max(1));
        }
        let better = self.awake_is_cheaper();
        if self.is_trial {
            let is_won = better == self.is_awake;
            self.rest = if is_won {
                REST_MIN
            } else {
                (2 * self.rest).min(REST_MAX)
            };
            self.rest_as(better);
        } else if better != self.is_awake {
            self.rest_as(better);
        } else if self.left == 0
            || self.rested >= REST_FOR * self.wake_up && self.left + REST_MIN <= self.rest
        {
            self.begin_trial();
        }
        // What it waits for a processor when it wakes up, it takes from nobody.
        if self.is_awake
            && !was_awake
            && let Some(waited) = waited
        {
            self.looked = (0, waited());
        }
    }

    fn begin_trial(&mut self) {
        if self.is_awake && self.awake < TRIED_FROM * self.asleep_cost() {
            self.rest_as(true);
            return;
        }
        (self.is_awake, self.is_trial, self.left) = (!self.is_awake, true, TRIAL);
        self.others = 0.0;
        // Both choices are as good, until it is seen.
        self.work = [self.work[usize::from(!self.is_awake)]; 2];
        if self.is_awake {
            self.awake = self.asleep_cost();
        }
    }

    /// Goes on awake or asleep until the next trial.
    fn rest_as(&mut self, awake: bool) {
        (self.is_awake, self.is_trial, self.left) = (awake, false, self.rest);
        self.rested = Duration::ZERO;
    }

    /// When a sleep that begins `now` is to end at the latest, so that it is seen how much later it does.
    pub(crate) fn measure(&self, now: Instant) -> Option<Instant> {
        (now >= self.measure_at).then(|| now + self.measure_by)
    }

    /// A sleep with a deadline ended, so much after it; before it where there is none.
    pub(crate) fn woke_up(&mut self, now: Instant, late: Option<Duration>) {
        let Some(late) = late else {
            if now >= self.measure_at {
                self.measure_by = (self.measure_by / 2).max(MEASURED_BY_MIN);
            }
            return;
        };
        if self.measured == 0 {
            self.wake_ups = [late; WAKE_UPS];
        }
        self.wake_ups[(self.measured % WAKE_UPS as u64) as usize] = late;
        self.measured += 1;
        let mut sorted = self.wake_ups;
        sorted.sort_unstable();
        let median = sorted[WAKE_UPS / 2].min(WAKE_UP_MAX);
        self.wake_up = median.mul_f64(BY_ANOTHER).min(WAKE_UP_MAX);
        if now >= self.measure_at && self.measured >= WAKE_UPS as u64 {
            self.measure_at = now + MEASURED_FOR;
            self.measure_by = MEASURED_BY_MAX;
        }
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
