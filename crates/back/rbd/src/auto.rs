//! When a shared client is a volume's limit: what `bdevs_per_cluster=auto` decides, from figures alone.
//!
//! A client is looked at again and again ([`Look`]). Where several looks one after another find one of its bounds reached, the volume
//! that has the largest part in that gets a client of its own, if it may. Nothing is measured here, and nothing moved.

use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

/// Of how much of a processor the busiest thread of a client has use before the client is a limit, in percent. Two threads take what has
/// ended, and three the network: what has to pass one of them cannot be spread, and above this much it waits noticeably longer.
const BUSY_PERCENT: u32 = 75;
/// How many looks one after another must find a bound reached: what is over before has no use of a client of its own.
const LOOKS: u32 = 5;
/// Between two looks, while there is something to see.
const LOOK: Duration = Duration::from_secs(1);
/// What a volume must have of a client's load, and leave of it to others, as a part: one that has less does not help others by going
/// elsewhere, and one that has it all has the client to itself already.
const PART_MIN: u64 = 10;

/// When a volume gets a client of its own, and how many may have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoLimits {
    /// Between two looks at a shared client while operations flow; in steps of 10 ms.
    pub look: Duration,
    /// How many looks one after another must find a bound reached.
    pub looks: u32,
    /// Of how much of a processor its busiest thread has use then, in percent.
    pub busy_percent: u32,
    /// Volumes that have a client of their own by measurement, at most, in the whole process.
    pub own_clients_max: usize,
}

impl Default for AutoLimits {
    /// As documented for users: as many clients as there are processors.
    fn default() -> Self {
        AutoLimits {
            look: LOOK,
            looks: LOOKS,
            busy_percent: BUSY_PERCENT,
            own_clients_max: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Why a volume has a client of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A thread of the client that it shared was busy.
    Thread {
        /// The thread's name.
        name: String,
        /// Of a processor, in the mean.
        percent: u32,
        /// From when on that is a limit.
        bound_percent: u32,
    },
    /// As many operations were under way on the client that it shared as such a client has at once.
    Operations {
        /// In the mean.
        mean: u64,
        /// `objecter_inflight_ops`.
        bound: u64,
    },
    /// Likewise with their bytes.
    Bytes {
        /// In the mean.
        mean: u64,
        /// `objecter_inflight_op_bytes`.
        bound: u64,
    },
    /// Its watch was lost on the client that it had.
    Unwatched,
    /// Someone asked for it.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Thread {
                name,
                percent,
                bound_percent,
            } => write!(
                formatter,
                "thread {name} of the shared client had {percent}% of a processor (limit {bound_percent}%)"
            ),
            Reason::Operations { mean, bound } => write!(
                formatter,
                "{mean} operations were under way on the shared client (limit {bound})"
            ),
            Reason::Bytes { mean, bound } => write!(
                formatter,
                "operations of {mean} bytes were under way on the shared client (limit {bound})"
            ),
            Reason::Unwatched => formatter.write_str(
                "the image's watch was lost on the client before, and did not come back",
            ),
            Reason::Asked => formatter.write_str("asked for"),
        }
    }
}

/// What librados lets be under way at once, of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightMax {
    /// `objecter_inflight_ops`.
    pub(crate) operations: u64,
    /// `objecter_inflight_op_bytes`.
    pub(crate) bytes: u64,
}

/// What an image did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Operations that ended.
    pub(crate) operations: u64,
    /// For how long librbd had them, all together, in nanoseconds.
    pub(crate) nanoseconds: u64,
    /// Their bytes, each for as long as librbd had it, in KiB times microseconds.
    pub(crate) kibibyte_microseconds: u64,
}

impl Load {
    /// What came since `before`.
    pub(crate) fn since(&self, before: &Load) -> Load {
        Load {
            operations: self.operations.saturating_sub(before.operations),
            nanoseconds: self.nanoseconds.saturating_sub(before.nanoseconds),
            kibibyte_microseconds: self
                .kibibyte_microseconds
                .saturating_sub(before.kibibyte_microseconds),
        }
    }

    fn add(&mut self, other: &Load) {
        self.operations += other.operations;
        self.nanoseconds += other.nanoseconds;
        self.kibibyte_microseconds += other.kibibyte_microseconds;
    }
}

/// What an image did between two looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Which volume.
    pub(crate) volume: u64,
    pub(crate) load: Load,
    /// Whether it is to have a client of its own where that helps, and can have one.
    pub(crate) may_move: bool,
}

/// A thread, and how long it had a processor between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) name: String,
    pub(crate) time: Duration,
}

/// What was seen of a client since the look before.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) elapsed: Duration,
    /// The busiest of its threads; none where they cannot be told from others.
    pub(crate) busiest: Option<Busy>,
    pub(crate) in_flight_max: InFlightMax,
    /// The images that it serves.
    pub(crate) shares: Vec<Share>,
}

impl Reason {
    /// Weighs an image's load by this reason: by its operations where a thread is the limit, else by what the reason names.
    fn weight(&self, load: &Load) -> u64 {
        match self {
            Reason::Thread { .. } => load.operations,
            Reason::Operations { .. } => load.nanoseconds,
            Reason::Bytes { .. } => load.kibibyte_microseconds,
            Reason::Unwatched | Reason::Asked => 0,
        }
    }
}

impl Look {
    /// Adds what was seen after it of the same images.
    fn add(&mut self, next: &Look) {
        self.elapsed += next.elapsed;
        if let (Some(busy), Some(next)) = (&mut self.busiest, &next.busiest) {
            busy.name.clone_from(&next.name);
            busy.time += next.time;
        }
        for (share, next) in self.shares.iter_mut().zip(&next.shares) {
            share.load.add(&next.load);
            share.may_move = next.may_move;
        }
    }

    fn all(&self) -> Load {
        let mut all = Load::default();
        self.shares.iter().for_each(|share| all.add(&share.load));
        all
    }

    /// Returns the bound of the client that was reached, if one was.
    fn reached(&self, limits: &AutoLimits) -> Option<Reason> {
        let (all, most) = (self.all(), self.in_flight_max);
        let busiest = self.busiest.as_ref().filter(|_| all.operations > 0);
        if let Some(busy) = busiest
            && percent(busy.time, self.elapsed) >= limits.busy_percent
        {
            return Some(Reason::Thread {
                name: busy.name.clone(),
                percent: percent(busy.time, self.elapsed),
                bound_percent: limits.busy_percent,
            });
        }
        let (mean, bytes) = in_flight(&all, self.elapsed);
        if mean >= most.operations {
            let bound = most.operations;
            return Some(Reason::Operations { mean, bound });
        }
        let (mean, bound) = (bytes, most.bytes);
        (mean >= bound).then_some(Reason::Bytes { mean, bound })
    }

    /// Returns the volume that moves: the one with the largest part of those that may, where that is enough to help, and others are left.
    fn mover(&self, reason: &Reason) -> Option<u64> {
        let weight = |share: &&Share| reason.weight(&share.load);
        let all: u64 = self.shares.iter().map(|share| weight(&share)).sum();
        let may = self.shares.iter().filter(|share| share.may_move);
        let most = may.max_by_key(weight)?;
        let part = weight(&most);
        let enough = |part: u64| part > 0 && part.saturating_mul(PART_MIN) >= all;
        (enough(part) && enough(all - part)).then_some(most.volume)
    }
}

/// Verdict on one client, look by look.
#[derive(Default)]
pub(crate) struct Judge {
    /// The last ones, one after another, that found the same bound reached: how many they are, and their sum.
    run: Option<(Discriminant<Reason>, u32, Look)>,
}

impl Judge {
    /// Takes a look; the volume that is to have a client of its own, and why, where there have been enough.
    pub(crate) fn look(&mut self, look: &Look, limits: &AutoLimits) -> Option<(u64, Reason)> {
        let run = self.run.take();
        let bound = discriminant(&look.reached(limits)?);
        let (looks, seen) = match run {
            Some((of, looks, mut seen)) if of == bound => {
                seen.add(look);
                (looks + 1, seen)
            }
            _ => (1, look.clone()),
        };
        if looks < limits.looks {
            self.run = Some((bound, looks, seen));
            return None;
        }
        // From here on it begins anew, whatever comes of it.
        let reason = seen.reached(limits)?;
        Some((seen.mover(&reason)?, reason))
    }
}

/// A time as a part of another, in percent.
pub(crate) fn percent(part: Duration, whole: Duration) -> u32 {
    let percent = part.as_nanos() * 100 / whole.as_nanos().max(1);
    u32::try_from(percent).unwrap_or(u32::MAX)
}

/// How many operations, and bytes of them, were under way in the mean, by Little's law: what each took, together, over the time.
fn in_flight(load: &Load, elapsed: Duration) -> (u64, u64) {
    let over = |sum: u128, elapsed: u128| u64::try_from(sum / elapsed.max(1)).unwrap_or(u64::MAX);
    let bytes = u128::from(load.kibibyte_microseconds) << 10;
    (
        over(u128::from(load.nanoseconds), elapsed.as_nanos()),
        over(bytes, elapsed.as_micros()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AutoLimits = AutoLimits {
        look: Duration::from_secs(1),
        looks: 5,
        busy_percent: 75,
        own_clients_max: 2,
    };
    const IN_FLIGHT_MAX: InFlightMax = InFlightMax {
        operations: 1024,
        bytes: 100 << 20,
    };

    /// A look of a second: how long the busiest thread had a processor, and what each image did, by number from 0; all may move.
    fn look(busy_ms: u64, operations: &[u64]) -> Look {
        let share = |(volume, operations): (usize, &u64)| Share {
            volume: volume as u64,
            load: Load {
                operations: *operations,
                // A millisecond, and 4 KiB, for each.
                nanoseconds: operations * 1_000_000,
                kibibyte_microseconds: operations * 4 * 1000,
            },
            may_move: true,
        };
        Look {
            elapsed: Duration::from_secs(1),
            busiest: Some(Busy {
                name: "msgr-worker-1".to_owned(),
                time: Duration::from_millis(busy_ms),
            }),
            in_flight_max: IN_FLIGHT_MAX,
            shares: operations.iter().enumerate().map(share).collect(),
        }
    }

    /// What the last of several looks comes to; the others come to nothing.
    fn judged(looks: &[Look]) -> Option<(u64, Reason)> {
        let mut judge = Judge::default();
        let (last, first) = looks.split_last().unwrap();
        for (number, look) in first.iter().enumerate() {
            assert_eq!(judge.look(look, &LIMITS), None, "look {number}");
        }
        judge.look(last, &LIMITS)
    }

    #[test]
    fn who_has_most_of_a_busy_client_gets_its_own() {
        let looks = vec![look(830, &[4000, 11_000, 300]); 5];
        let reason = Reason::Thread {
            name: "msgr-worker-1".to_owned(),
            percent: 83,
            bound_percent: 75,
        };
        assert_eq!(judged(&looks), Some((1, reason)));
        // Over all looks, not in the last alone.
        let mut swinging = vec![look(800, &[9000, 1000]); 4];
        swinging.push(look(800, &[1000, 9000]));
        assert_eq!(judged(&swinging).unwrap().0, 0);
    }

    #[test]
    fn a_client_that_is_not_busy_for_long_is_left_alone() {
        assert_eq!(judged(&vec![look(740, &[4000, 11_000]); 20]), None);
        let busy = || look(900, &[4000, 11_000]);
        let pause = || look(100, &[400, 1100]);
        let looks = [
            busy(),
            busy(),
            busy(),
            busy(),
            pause(),
            busy(),
            busy(),
            busy(),
            busy(),
        ];
        assert_eq!(judged(&looks), None);
        // A thread that works though nothing is done for images is none of theirs.
        assert_eq!(judged(&vec![look(900, &[0, 0]); 20]), None);
        // Threads that cannot be told apart say nothing.
        let unknown = Look {
            busiest: None,
            ..busy()
        };
        assert_eq!(judged(&vec![unknown; 20]), None);
    }

    #[test]
    fn an_image_that_has_the_client_to_itself_stays() {
        assert_eq!(judged(&vec![look(990, &[11_000]); 5]), None);
        assert_eq!(judged(&vec![look(990, &[11_000, 0, 0]); 5]), None);
        assert_eq!(judged(&vec![look(990, &[11_000, 1000, 0]); 5]), None);
        let reason = judged(&vec![look(990, &[11_000, 1500, 0]); 5]);
        assert_eq!(reason.unwrap().0, 0);
    }

    #[test]
    fn who_may_not_move_stays_and_the_next_goes_where_that_helps() {
        let but = |fixed: u64, operations: &[u64]| {
            let mut look = look(900, operations);
            look.shares[fixed as usize].may_move = false;
            look
        };
        assert_eq!(judged(&vec![but(1, &[4000, 11_000]); 5]).unwrap().0, 0);
        assert_eq!(judged(&vec![but(1, &[400, 11_000]); 5]), None);
        let none: Vec<Look> = vec![but(0, &[4000]); 5];
        assert_eq!(judged(&none), None);
    }

    #[test]
    fn what_librados_lets_be_under_way_is_a_limit_too() {
        // A millisecond each: so many thousands a second are so many under way.
        let deep = look(300, &[1_000_000, 200_000]);
        let reason = Reason::Operations {
            mean: 1200,
            bound: 1024,
        };
        assert_eq!(judged(&vec![deep.clone(); 5]), Some((0, reason)));
        let wide = |kibibytes: u64| {
            let mut look = look(300, &[100_000, 400_000]);
            // The first has less under way, and more bytes.
            look.shares[0].load.kibibyte_microseconds = kibibytes * 1_000_000;
            look.shares[1].load.kibibyte_microseconds = 40 * 1024 * 1_000_000;
            look
        };
        let reason = Reason::Bytes {
            mean: 110 << 20,
            bound: 100 << 20,
        };
        assert_eq!(judged(&vec![wide(70 * 1024); 5]), Some((0, reason)));
        assert_eq!(judged(&vec![wide(59 * 1024); 5]), None);
        // Bounds that take turns are none for long enough.
        let mut mixed = vec![deep; 4];
        mixed.push(wide(70 * 1024));
        assert_eq!(judged(&mixed), None);
    }

    #[test]
    fn after_a_verdict_it_begins_anew() {
        let mut judge = Judge::default();
        let verdicts = (0..20).filter_map(|_| judge.look(&look(900, &[5, 5]), &LIMITS));
        assert_eq!(verdicts.count(), 4);
    }

    #[test]
    fn reasons_say_the_figure_and_the_limit() {
        let thread = Reason::Thread {
            name: "io_context_pool".to_owned(),
            percent: 91,
            bound_percent: 75,
        };
        for (reason, told) in [
            (
                thread,
                "io_context_pool of the shared client had 91% of a processor (limit 75%)",
            ),
            (
                Reason::Operations {
                    mean: 1100,
                    bound: 1024,
                },
                "1100 operations were under way on the shared client (limit 1024)",
            ),
            (Reason::Bytes { mean: 9, bound: 8 }, "operations of 9 bytes"),
        ] {
            assert!(reason.to_string().contains(told), "{reason}");
        }
    }
}
