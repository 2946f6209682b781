//! Finds hosts that make no progress with a message that they began, data that they were asked for, or data that they are sent.
//!
//! A connection with any of these is checked once in a period. It ends when the same thing was there at the check before and has
//! hardly moved since. The more it holds, the more must move, so nothing is held for much longer than [`HELD_MAX`]. No command
//! is counted and no clock is read here. A host has at least one period and at most two.

use std::time::Duration;

/// Bytes that must move in a period, where as many are left: half a KiB a second at the default period, slower than any path
/// that a host's own time-outs allow.
pub(crate) const BYTES_MIN: u64 = 16 << 10;
/// In how long all must have moved that is held for a host: for 64 MiB a megabit a second.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(600);

/// Data that was asked for and has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Awaited {
    /// Number of the request that asked for the oldest of it (NVMe/TCP: the R2T).
    pub oldest: u32,
    /// Bytes of the buffers that wait for it.
    pub held: u64,
    /// Bytes that have not come, with all bytes of a message that is arriving.
    pub left: u64,
    /// Bytes that were missing at the look before and still are, without those of a message that is arriving.
    pub left_of_last: u64,
    /// A message that is arriving belongs to it.
    pub is_arriving: bool,
}

/// What a connection waits for at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// This end does not take what comes.
    pub is_held_up: bool,
    /// At some time since the last look it did not.
    pub was_held_up: bool,
    /// Number of the message that has come in part.
    pub arriving: Option<u64>,
    /// What was asked for.
    pub awaited: Option<Awaited>,
    /// Which send is under way.
    pub sending: Option<u64>,
    /// Bytes of data that are to leave, with that send or after it.
    pub unsent: u64,
    /// Bytes that came so far.
    pub received: u64,
    /// Bytes that the host took so far.
    pub taken: u64,
}

impl Standing {
    /// Whether the host has nothing to do.
    pub(crate) fn is_settled(&self) -> bool {
        self.arriving.is_none() && self.awaited.is_none() && self.sending.is_none()
    }
}

/// What did not move on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stall {
    /// The rest of a message that had begun to come.
    #[error("the rest of a message did not come")]
    Arriving,
    /// Data that the host was asked for.
    #[error("data that was asked for did not come")]
    Awaited,
    /// What the host is sent.
    #[error("the host did not take what it was sent")]
    Sending,
}

/// Compares what a connection waits for with what it waited for a period ago.
#[derive(Debug)]
pub(crate) struct Watch {
    period: Duration,
    before: Standing,
    /// The oldest data that is awaited, and at how many looks in a row it was.
    oldest: Option<(u32, u32)>,
}

impl Watch {
    /// A watch that looks once in a `period`.
    pub(crate) fn new(period: Duration) -> Self {
        Watch {
            period,
            before: Standing::default(),
            oldest: None,
        }
    }

    /// A period has passed. Whether there is something to look for after the next one.
    pub(crate) fn look(&mut self, now: Standing) -> Result<bool, Stall> {
        let before = std::mem::replace(&mut self.before, now);
        // What came was not taken: the host is not at fault.
        if !now.is_held_up {
            self.look_at_incoming(&before, &now)?;
        }
        let same_send = now.sending.is_some() && now.sending == before.sending;
        if same_send && now.taken.saturating_sub(before.taken) < self.least(before.unsent) {
            return Err(Stall::Sending);
        }
        Ok(now.is_held_up || !now.is_settled())
    }

    fn look_at_incoming(&mut self, before: &Standing, now: &Standing) -> Result<(), Stall> {
        if self.is_left_behind(now.awaited) {
            return Err(Stall::Awaited);
        }
        if now.was_held_up || before.is_held_up {
            return Ok(());
        }
        let same_message = now.arriving.is_some() && now.arriving == before.arriving;
        let is_of_awaited = now.awaited.is_some_and(|awaited| awaited.is_arriving);
        let held = before.awaited.map_or(0, |awaited| awaited.held);
        if same_message {
            let least = self.least(if is_of_awaited { held } else { 0 });
            if now.received.saturating_sub(before.received) < least {
                return Err(Stall::Arriving);
            }
        }
        if let (Some(now), Some(before)) = (now.awaited, before.awaited)
            // A message that arrives for longer than a period was checked above.
            && !(same_message && is_of_awaited)
            && before.left.saturating_sub(now.left_of_last) < self.least(held).min(before.left)
        {
            return Err(Stall::Awaited);
        }
        Ok(())
    }

    /// Bytes that must move in a period where so many are held.
    fn least(&self, held: u64) -> u64 {
        let share = u128::from(held) * self.period.min(HELD_MAX).as_millis();
        BYTES_MIN.max((share / HELD_MAX.as_millis()) as u64)
    }

    /// Whether a host that sends other data has left the oldest behind.
    fn is_left_behind(&mut self, awaited: Option<Awaited>) -> bool {
        let looks = match (self.oldest, awaited) {
            (Some((oldest, looks)), Some(awaited)) if awaited.oldest == oldest => looks + 1,
            _ => 0,
        };
        self.oldest = awaited.map(|awaited| (awaited.oldest, looks));
        looks > 0 && self.period.saturating_mul(looks) >= HELD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Standing = Standing {
        is_held_up: false,
        was_held_up: false,
        arriving: None,
        awaited: None,
        sending: None,
        unsent: 0,
        received: 0,
        taken: 0,
    };
    const PERIOD: Duration = Duration::from_secs(30);
    const MANY: u64 = 64 << 20;

    /// What is found when a connection stands like this, one period after the other.
    fn looks(standings: &[Standing]) -> Result<bool, Stall> {
        let mut watch = Watch::new(PERIOD);
        let mut last = Ok(false);
        for standing in standings {
            last = watch.look(*standing);
            if last.is_err() {
                break;
            }
        }
        last
    }

    /// Of `held` bytes that were asked for before the look before, so many have not come.
    fn awaited(held: u64, left: u64) -> Standing {
        Standing {
            awaited: Some(Awaited {
                oldest: 1,
                held,
                left,
                left_of_last: left,
                is_arriving: false,
            }),
            ..NOTHING
        }
    }

    fn all_of(standing: Standing, count: usize) -> Result<bool, Stall> {
        looks(&vec![standing; count])
    }

    #[test]
    fn what_waits_for_nothing_is_not_looked_at_again() {
        assert_eq!(looks(&[NOTHING]), Ok(false));
        assert_eq!(looks(&[awaited(100, 100), NOTHING]), Ok(false));
        assert_eq!(looks(&[awaited(100, 100)]), Ok(true));
    }

    #[test]
    fn what_is_held_up_is_looked_at_again_and_is_no_stall() {
        let held_up = Standing {
            is_held_up: true,
            ..NOTHING
        };
        assert_eq!(looks(&[held_up]), Ok(true));
        let still = awaited(1 << 20, 1 << 20);
        assert_eq!(looks(&[still, held_up, still]), Ok(true));
        assert_eq!(looks(&[held_up, still, still]), Err(Stall::Awaited));
        let was_held_up = Standing {
            was_held_up: true,
            ..still
        };
        assert_eq!(looks(&[still, was_held_up]), Ok(true));
        assert_eq!(looks(&[was_held_up, still]), Err(Stall::Awaited));
    }

    #[test]
    fn a_transfer_that_hardly_moves_is_found_and_one_that_moves_is_not() {
        let (all, least) = (256 << 10, BYTES_MIN);
        let at = |received: u64| awaited(all, all - received);
        assert_eq!(looks(&[at(0), at(0)]), Err(Stall::Awaited));
        assert_eq!(looks(&[at(0), at(least - 1)]), Err(Stall::Awaited));
        assert_eq!(looks(&[at(0), at(least)]), Ok(true));
        // The rest of it.
        assert_eq!(looks(&[at(all - 100), at(all)]), Ok(true));
        assert_eq!(looks(&[at(all - 100), at(all - 1)]), Err(Stall::Awaited));
    }

    #[test]
    fn a_host_may_serve_in_any_order_but_leaves_nothing_behind_for_good() {
        // Of what it owes at each look all but the oldest comes until the next.
        let busy = |oldest: u32| Standing {
            awaited: Some(Awaited {
                oldest,
                held: 2 << 20,
                left: 2 << 20,
                left_of_last: 1 << 20,
                is_arriving: false,
            }),
            ..NOTHING
        };
        let most = (HELD_MAX.as_secs() / PERIOD.as_secs()) as usize;
        assert_eq!(all_of(busy(1), most), Ok(true));
        assert_eq!(all_of(busy(1), most + 1), Err(Stall::Awaited));
        let others: Vec<Standing> = (0..100).map(busy).collect();
        assert_eq!(looks(&others), Ok(true));
    }

    #[test]
    fn the_more_is_held_the_more_must_move() {
        let least = MANY / 20;
        let at = |received: u64| awaited(MANY, MANY - received);
        assert_eq!(looks(&[at(0), at(least - 1)]), Err(Stall::Awaited));
        assert_eq!(looks(&[at(0), at(least)]), Ok(true));
        let send = |taken: u64| Standing {
            sending: Some(1),
            unsent: MANY,
            taken,
            ..NOTHING
        };
        assert_eq!(looks(&[send(0), send(least - 1)]), Err(Stall::Sending));
        assert_eq!(looks(&[send(0), send(least)]), Ok(true));
    }

    #[test]
    fn a_long_pdu_of_a_transfer_counts_by_its_bytes() {
        let at = |received: u64| Standing {
            arriving: Some(9),
            awaited: Some(Awaited {
                oldest: 1,
                held: 200_000,
                left: 100_000,
                left_of_last: 0,
                is_arriving: true,
            }),
            received,
            ..NOTHING
        };
        assert_eq!(looks(&[at(0), at(BYTES_MIN)]), Ok(true));
        assert_eq!(looks(&[at(0), at(BYTES_MIN - 1)]), Err(Stall::Arriving));
    }

    #[test]
    fn small_pdus_without_end_are_no_movement() {
        let at = |pdu: u64, received: u64| Standing {
            arriving: Some(pdu),
            awaited: Some(Awaited {
                oldest: 1,
                held: 1 << 20,
                left: (1 << 20) - received,
                left_of_last: (1 << 20) - received - 4,
                is_arriving: true,
            }),
            received: pdu * 28,
            ..NOTHING
        };
        assert_eq!(looks(&[at(1, 4), at(31, 124)]), Err(Stall::Awaited));
    }

    #[test]
    fn a_pdu_and_a_send_must_move_and_others_may_follow() {
        let pdu = |number: u64, received: u64| Standing {
            arriving: Some(number),
            received,
            ..NOTHING
        };
        assert_eq!(looks(&[pdu(1, 5), pdu(1, 6)]), Err(Stall::Arriving));
        assert_eq!(looks(&[pdu(1, 5), pdu(2, 6)]), Ok(true));
        let send = |number: u64, taken: u64| Standing {
            sending: Some(number),
            taken,
            ..NOTHING
        };
        assert_eq!(looks(&[send(1, 5), send(1, 6)]), Err(Stall::Sending));
        assert_eq!(looks(&[send(1, 5), send(1, 5 + BYTES_MIN)]), Ok(true));
        assert_eq!(looks(&[send(1, 5), send(2, 5)]), Ok(true));
    }
}
