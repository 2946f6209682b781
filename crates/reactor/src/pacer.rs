//! Finds out whether a busy reactor does well to pause between two looks at its sockets.
//!
//! A reactor that is faster than its peers finds a request or two at each look, and pays a receive, a send and a wake-up for
//! them. After a pause it finds many, for the same price. But a pause that is longer than what the peers have still to do
//! leaves them without work, and how long that is nobody can know here: it is tried. Spells with one pause and spells with
//! another alternate, and a longer pause is kept where as much is done with it, for less; a shorter one where more is done.
//!
//! Whoever does little is never paused for: its latency is what counts.

use std::time::Duration;

use crate::Instant;

/// The pauses that are tried.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_micros(10),
    Duration::from_micros(20),
    Duration::from_micros(40),
    Duration::from_micros(80),
];
/// How long one spell is.
const SPELL: Duration = Duration::from_millis(2);
/// Units a second below which there is no pause.
const RATE_MIN: u64 = 300_000;
/// Pairs of spells in one trial, one with each of two pauses. The median leaves out those that something disturbed.
const TRIED: usize = 12;
/// Pairs after which a trial may be given up.
const TRIED_MIN: usize = 4;
/// Throughput at which it is; a thousandth.
const HOPELESS: u64 = 900;
/// Spells between trials after one that changed the pause.
const REST_MIN: u32 = 8;
/// The most spells between trials.
const REST_MAX: u32 = 2048;
/// A longer pause may cost so much of the throughput, a thousandth each.
const LOSS_MAX: u64 = 15;
/// A shorter one must bring so much of it, or a longer one save so much of the time; a thousandth each.
const GAIN_MIN: u64 = 25;

/// What was done in a spell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Spell {
    units: u64,
    rested: Duration,
    elapsed: Duration,
}

impl Spell {
    /// Units in a second.
    fn rate(&self) -> u64 {
        per(self.units, self.elapsed)
    }

    /// Nanoseconds awake, for a thousand units.
    fn cost(&self) -> u64 {
        let awake = self.elapsed.saturating_sub(self.rested).as_nanos() as u64;
        awake * 1000 / self.units.max(1)
    }
}

fn per(units: u64, time: Duration) -> u64 {
    units * 1_000_000_000 / (time.as_nanos() as u64).max(1)
}

/// A comparison that goes on.
#[derive(Debug, Clone, Default)]
struct Trial {
    candidate: usize,
    /// Spells so far.
    spells: usize,
    rates: [[u64; TRIED]; 2],
    costs: [[u64; TRIED]; 2],
}

impl Trial {
    /// Whether the next spell is the candidate's. Pairs change their order, so that a drift hits both alike.
    fn is_candidates_turn(&self) -> bool {
        matches!(self.spells % 4, 1 | 2)
    }

    fn note(&mut self, spell: Spell) {
        let side = usize::from(self.is_candidates_turn());
        self.rates[side][self.spells / 2] = spell.rate();
        self.costs[side][self.spells / 2] = spell.cost();
        self.spells += 1;
    }

    fn is_over(&self) -> bool {
        let between_pairs = self.spells.is_multiple_of(2) && self.spells >= 2 * TRIED_MIN;
        self.spells == 2 * TRIED || between_pairs && self.median_ratio(&self.rates) < HOPELESS
    }

    /// Whether the candidate is better than `present`.
    fn is_won(&self, present: usize) -> bool {
        let rate = self.median_ratio(&self.rates);
        let cost = self.median_ratio(&self.costs);
        let cheaper = cost + GAIN_MIN <= 1000;
        let as_fast = rate + LOSS_MAX >= 1000;
        let faster = rate >= 1000 + GAIN_MIN;
        as_fast && cheaper || faster && self.candidate < present
    }

    /// What the candidate had of what the present one had at the same time, in thousandths.
    fn median_ratio(&self, [present, candidate]: &[[u64; TRIED]; 2]) -> u64 {
        let pairs = self.spells / 2;
        let mut ratios: [u64; TRIED] =
            std::array::from_fn(|pair| candidate[pair] * 1000 / present[pair].max(1));
        ratios[..pairs].sort_unstable();
        ratios[pairs / 2]
    }
}

/// What a reactor's loop asks how long to pause.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// How many of [`PAUSES`] are allowed.
    allowed: usize,
    /// The one that is used, unless it is a candidate's turn.
    present: usize,
    trial: Option<Trial>,
    /// Whether the next trial is of a longer pause.
    longer: bool,
    /// Spells until it, and after it if it changes nothing.
    rest: u32,
    rest_next: u32,
    began: Instant,
    spell: Spell,
}

impl Pacer {
    /// No pause is longer than `longest`.
    pub(crate) fn new(longest: Duration, now: Instant) -> Self {
        Pacer {
            allowed: PAUSES.iter().filter(|&&pause| pause <= longest).count(),
            present: 0,
            trial: None,
            longer: true,
            rest: REST_MIN,
            rest_next: REST_MIN,
            began: now,
            spell: Spell::default(),
        }
    }

    /// How long to pause where nothing is left to do after work.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let pause = match &self.trial {
            Some(trial) if trial.is_candidates_turn() => trial.candidate,
            _ => self.present,
        };
        (pause > 0).then(|| PAUSES[pause])
    }

    /// Notes that `units` were done by `now`, and that this long of the time was rest, a pause or sleep.
    pub(crate) fn note(&mut self, now: Instant, units: u32, rested: Duration) {
        self.spell.units += u64::from(units);
        self.spell.rested += rested;
        let elapsed = now.since(self.began);
        if elapsed < SPELL {
            return;
        }
        let spell = Spell {
            elapsed,
            ..std::mem::take(&mut self.spell)
        };
        self.began = now;
        if self.allowed > 1 {
            self.spell_ended(spell);
        }
    }

    fn spell_ended(&mut self, spell: Spell) {
        if spell.rate() < RATE_MIN {
            self.present = 0;
            self.trial = None;
            (self.longer, self.rest, self.rest_next) = (true, REST_MIN, REST_MIN);
            return;
        }
        let Some(trial) = &mut self.trial else {
            self.rest -= 1;
            if self.rest == 0 {
                self.trial = Some(self.next_trial());
            }
            return;
        };
        trial.note(spell);
        if !trial.is_over() {
            return;
        }
        if trial.is_won(self.present) {
            self.present = trial.candidate;
            (self.rest, self.rest_next) = (REST_MIN, REST_MIN);
        } else {
            self.longer = !self.longer;
            self.rest = self.rest_next;
            self.rest_next = (4 * self.rest_next).min(REST_MAX);
        }
        self.trial = None;
    }

    fn next_trial(&mut self) -> Trial {
        if self.present == 0 {
            self.longer = true;
        } else if self.present + 1 == self.allowed {
            self.longer = false;
        }
        let candidate = if self.longer {
            self.present + 1
        } else {
            self.present - 1
        };
        Trial {
            candidate,
            ..Trial::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers that keep `depth` requests in flight and need `theirs` for each, against a reactor that needs `turn` for a look
    /// and `ours` for each request; all in nanoseconds.
    #[derive(Debug, Clone, Copy)]
    struct Model {
        depth: u64,
        theirs: u64,
        turn: u64,
        ours: u64,
    }

    /// What a look in vain costs, and what a pause does beside its length; in nanoseconds.
    const VAIN: u64 = 200;
    const PAUSING: u64 = 500;

    /// The peers: how many requests lie with them, how many were sent, and how long they have been at the next.
    struct Peers {
        model: Model,
        have: u64,
        sent: u64,
        spent: u64,
    }

    impl Peers {
        fn go_on(&mut self, time: u64) {
            self.spent += time;
            let sent = (self.spent / self.model.theirs).min(self.have);
            self.have -= sent;
            self.sent += sent;
            self.spent -= sent * self.model.theirs;
            if self.have == 0 {
                self.spent = 0;
            }
        }
    }

    impl Model {
        /// Runs the two against each other for `time`; units in a second, and the share of the time that was paused.
        fn run(self, pacer: &mut Pacer, now: &mut Instant, time: Duration) -> (u64, f64) {
            let began = *now;
            let end = began + time;
            let (mut units, mut paused) = (0, Duration::ZERO);
            let mut peers = Peers {
                model: self,
                have: self.depth,
                sent: 0,
                spent: 0,
            };
            let mut looked = false;
            while *now < end {
                let found = std::mem::take(&mut peers.sent);
                let mut rested = Duration::ZERO;
                let spent = if found > 0 {
                    self.turn + found * self.ours
                } else if let Some(pause) = pacer.pause().filter(|_| looked) {
                    rested = pause;
                    pause.as_nanos() as u64 + PAUSING
                } else {
                    VAIN
                };
                looked = found > 0;
                peers.go_on(spent);
                peers.have += found;
                *now = *now + Duration::from_nanos(spent);
                pacer.note(*now, found as u32, rested);
                units += found;
                paused += rested;
            }
            let elapsed = now.since(began);
            (
                per(units, elapsed),
                paused.as_secs_f64() / elapsed.as_secs_f64(),
            )
        }

        /// What comes of it with pauses up to `longest`, once the pacer has had its time.
        fn settled(self, longest: Duration) -> (u64, f64) {
            let mut now = Instant::from_nanos(0);
            let mut pacer = Pacer::new(longest, now);
            self.run(&mut pacer, &mut now, Duration::from_secs(1));
            self.run(&mut pacer, &mut now, Duration::from_secs(2))
        }
    }

    const LONGEST: Duration = PAUSES[PAUSES.len() - 1];

    #[test]
    fn many_in_flight_are_paused_for() {
        let model = Model {
            depth: 128,
            theirs: 1200,
            turn: 700,
            ours: 300,
        };
        let (without, _) = model.settled(Duration::ZERO);
        let (with, paused) = model.settled(LONGEST);
        assert!(paused > 0.2, "{paused} of the time was paused");
        assert!(
            with * 100 >= without * 97,
            "{with} a second, {without} without"
        );
    }

    #[test]
    fn few_in_flight_are_not() {
        let model = Model {
            depth: 4,
            theirs: 1000,
            turn: 1000,
            ours: 500,
        };
        let (without, _) = model.settled(Duration::ZERO);
        let (with, paused) = model.settled(LONGEST);
        assert!(paused < 0.1, "{paused} of the time was paused");
        assert!(
            with * 100 >= without * 97,
            "{with} a second, {without} without"
        );
    }

    #[test]
    fn who_does_little_is_not_paused_for() {
        let model = Model {
            depth: 1,
            theirs: 10_000,
            turn: 1000,
            ours: 1000,
        };
        let (_, paused) = model.settled(LONGEST);
        assert!(paused == 0.0, "{paused} of the time was paused");
    }

    #[test]
    fn a_pause_ends_with_the_load_that_it_was_for() {
        let heavy = Model {
            depth: 128,
            theirs: 1200,
            turn: 700,
            ours: 300,
        };
        let mut now = Instant::from_nanos(0);
        let mut pacer = Pacer::new(LONGEST, now);
        heavy.run(&mut pacer, &mut now, Duration::from_secs(1));
        assert!(pacer.pause().is_some());
        let light = Model {
            depth: 1,
            theirs: 20_000,
            ..heavy
        };
        light.run(&mut pacer, &mut now, 3 * SPELL);
        assert_eq!(pacer.pause(), None);
    }

    #[test]
    fn no_pause_is_longer_than_allowed() {
        let model = Model {
            depth: 512,
            theirs: 1200,
            turn: 5000,
            ours: 300,
        };
        for longest in [Duration::ZERO, Duration::from_micros(15)] {
            let mut now = Instant::from_nanos(0);
            let mut pacer = Pacer::new(longest, now);
            for _ in 0..1000 {
                model.run(&mut pacer, &mut now, Duration::from_millis(1));
                assert!(pacer.pause() <= Some(longest));
            }
        }
    }
}
