//! Whether a host keeps up: what it has begun to send, what it was asked for and what it is sent must move on.
//!
//! A connection that has any of these looks once in a period, and ends when the same thing was there the last time and has
//! hardly moved since. Nothing is counted for a command, no clock is read here, and a host is given at least one period and at
//! most two.

/// Bytes that must move in a period, where as many are left: half a KiB a second at the default period, slower than any path
/// that a host's own time-outs allow.
pub(crate) const BYTES_MIN: u64 = 16 << 10;

/// Data that was asked for and has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// Which R2T asked for it.
    pub(crate) asked: u32,
    /// Bytes of it that have come, and those of a PDU that is arriving.
    pub(crate) received: u32,
    /// Whether the PDU that is arriving is of it.
    pub(crate) is_arriving: bool,
}

/// What a connection waits for at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// Which PDU has come in part.
    pub(crate) arriving: Option<u64>,
    /// Of the transfers that were asked for, the first.
    pub(crate) awaited: Option<Awaited>,
    /// Which send is under way.
    pub(crate) sending: Option<u64>,
    /// Bytes that came so far.
    pub(crate) received: u64,
    /// Bytes that the host took so far.
    pub(crate) taken: u64,
}

impl Standing {
    /// Whether the host has nothing to do.
    pub(crate) fn is_settled(&self) -> bool {
        self.arriving.is_none() && self.awaited.is_none() && self.sending.is_none()
    }
}

/// What did not move on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stall {
    #[error("the rest of a PDU did not come")]
    Arriving,
    #[error("data that was asked for did not come")]
    Awaited,
    #[error("the host did not take what it was sent")]
    Sending,
}

/// Compares what a connection waits for with what it waited for a period ago.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    before: Standing,
}

impl Watch {
    /// A period has passed. Whether there is something to look for after the next one.
    pub(crate) fn look(&mut self, now: Standing) -> Result<bool, Stall> {
        let before = std::mem::replace(&mut self.before, now);
        let same_pdu = now.arriving.is_some() && now.arriving == before.arriving;
        if same_pdu && now.received.saturating_sub(before.received) < BYTES_MIN {
            return Err(Stall::Arriving);
        }
        if let (Some(now), Some(before)) = (now.awaited, before.awaited)
            && now.asked == before.asked
            // A PDU that is long on its way was looked at above.
            && !(same_pdu && now.is_arriving)
            && u64::from(now.received.saturating_sub(before.received)) < BYTES_MIN
        {
            return Err(Stall::Awaited);
        }
        let same_send = now.sending.is_some() && now.sending == before.sending;
        if same_send && now.taken.saturating_sub(before.taken) < BYTES_MIN {
            return Err(Stall::Sending);
        }
        Ok(!now.is_settled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Standing = Standing {
        arriving: None,
        awaited: None,
        sending: None,
        received: 0,
        taken: 0,
    };

    /// What is found when a connection stands like this, one period after the other.
    fn looks(standings: &[Standing]) -> Result<bool, Stall> {
        let mut watch = Watch::default();
        let mut last = Ok(false);
        for standing in standings {
            last = watch.look(*standing);
            if last.is_err() {
                break;
            }
        }
        last
    }

    fn awaited(asked: u32, received: u32) -> Standing {
        Standing {
            awaited: Some(Awaited {
                asked,
                received,
                is_arriving: false,
            }),
            ..NOTHING
        }
    }

    #[test]
    fn what_waits_for_nothing_is_not_looked_at_again() {
        assert_eq!(looks(&[NOTHING]), Ok(false));
        assert_eq!(looks(&[awaited(1, 0), NOTHING]), Ok(false));
        assert_eq!(looks(&[awaited(1, 0)]), Ok(true));
    }

    #[test]
    fn a_transfer_that_hardly_moves_is_found_and_one_that_moves_is_not() {
        let least = BYTES_MIN as u32;
        assert_eq!(looks(&[awaited(1, 0), awaited(1, 0)]), Err(Stall::Awaited));
        assert_eq!(
            looks(&[awaited(1, 0), awaited(1, least - 1)]),
            Err(Stall::Awaited)
        );
        assert_eq!(looks(&[awaited(1, 0), awaited(1, least)]), Ok(true));
        assert_eq!(looks(&[awaited(1, 0), awaited(2, 0)]), Ok(true));
    }

    #[test]
    fn a_long_pdu_of_a_transfer_counts_by_its_bytes() {
        let at = |received: u64| Standing {
            arriving: Some(9),
            awaited: Some(Awaited {
                asked: 1,
                received: 100_000,
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
        let at = |pdu: u64, received: u32| Standing {
            arriving: Some(pdu),
            awaited: Some(Awaited {
                asked: 1,
                received,
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
