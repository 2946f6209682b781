//! Slots of a session, as they are known from one connection to the next (RFC 8881, section 2.10.6).
//!
//! A request that was sent and not answered may have been done, or be under way, or never come. Its slot is uncertain until a request
//! with the same sequence ID was answered: whatever the answer is, the server executes nothing of the first one any more.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_nfs::SessionId;

/// A slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The next sequence ID; of an uncertain slot that of its request.
    pub(crate) sequence: u32,
    pub(crate) is_uncertain: bool,
}

impl Slot {
    pub(crate) const NEW: Slot = Slot {
        sequence: 1,
        is_uncertain: false,
    };

    /// The server took a request.
    pub(crate) fn advance(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
        self.is_uncertain = false;
    }
}

/// Slots of the connection that keeps watch.
pub(crate) const KEEPER_SLOTS: u32 = 2;
/// Slots that are kept for connections beyond those that were asked for, at most.
const SPARE_MAX: u32 = 64;
/// Connections beyond those that were asked for, at most.
pub(crate) const SPARE_CONNECTIONS: u16 = (SPARE_MAX / SPARE_SHARE) as u16;
/// Slots of each of these.
const SPARE_SHARE: u32 = 2;

/// Division of a session's slots: those of the connection that keeps watch, those of the connections that were asked for, in equal
/// shares, and those of the connections that volume queues beside these open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    wanted: u32,
    share: u32,
    spare: u32,
}

impl Division {
    /// Divides `slots` slots, more than [`KEEPER_SLOTS`], for `wanted` connections of up to `depth` requests.
    pub(crate) fn new(slots: u32, wanted: u32, depth: u32) -> Self {
        let spare = (slots / 8).min(SPARE_MAX) / SPARE_SHARE;
        let left = slots - KEEPER_SLOTS - spare * SPARE_SHARE;
        let wanted = wanted.min(left);
        Division {
            wanted,
            share: (left / wanted).min(depth),
            spare,
        }
    }

    /// Connections for I/O that there can be.
    pub(crate) fn connections(&self) -> u16 {
        (self.wanted + self.spare) as u16
    }

    /// The slots of connection `qid`, counted from 1.
    pub(crate) fn slots(&self, qid: u16) -> Range<u32> {
        let index = u32::from(qid) - 1;
        let (first, share) = match index.checked_sub(self.wanted) {
            None => (index * self.share, self.share),
            Some(extra) => (self.wanted * self.share + extra * SPARE_SHARE, SPARE_SHARE),
        };
        KEEPER_SLOTS + first..KEEPER_SLOTS + first + share
    }
}

/// The slots of a volume's session. A connection takes those that are its own when it begins, and puts them back at its end.
#[derive(Default)]
pub(crate) struct Table(Mutex<Option<(SessionId, Vec<Slot>)>>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, Option<(SessionId, Vec<Slot>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the slots of a new session.
    pub(crate) fn begin(&self, session: SessionId, slots: u32) {
        *self.lock() = Some((session, vec![Slot::NEW; slots as usize]));
    }

    /// The slots of `session` from `first` on, `count` at most; none where there is another session by now.
    pub(crate) fn get(&self, session: SessionId, first: u32, count: u32) -> Vec<Slot> {
        match &*self.lock() {
            Some((known, slots)) if *known == session => {
                let slots = slots.iter().skip(first as usize);
                slots.take(count as usize).copied().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Puts slots back.
    pub(crate) fn put(&self, session: SessionId, first: u32, slots: &[Slot]) {
        if let Some((known, all)) = &mut *self.lock()
            && *known == session
        {
            all[first as usize..][..slots.len()].copy_from_slice(slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_divided_without_overlap() {
        for slots in [3, 5, 16, 64, 160, 1024] {
            for wanted in [1, 2, 16, 256] {
                for depth in [1, 32, 1024] {
                    let division = Division::new(slots, wanted, depth);
                    let mut end = KEEPER_SLOTS;
                    for qid in 1..=division.connections() {
                        let share = division.slots(qid);
                        assert!(share.start == end && !share.is_empty(), "{division:?}");
                        end = share.end;
                    }
                    assert!(end <= slots && division.connections() > 0, "{division:?}");
                }
            }
        }
        assert_eq!(Division::new(1024, 16, 128).slots(16).len(), 59);
        assert_eq!(Division::new(64, 16, 128).slots(1).len(), 3);
    }

    #[test]
    fn a_slot_goes_on_where_it_was() {
        let (table, session) = (Table::default(), SessionId([1; 16]));
        table.begin(session, 4);
        let mut slots = table.get(session, 2, 9);
        assert_eq!(slots, [Slot::NEW; 2]);
        slots[0].advance();
        slots[1].is_uncertain = true;
        table.put(session, 2, &slots);
        assert_eq!(table.get(session, 2, 2), slots);
        let other = SessionId([2; 16]);
        table.begin(other, 4);
        table.put(session, 2, &slots);
        assert!(table.get(session, 0, 4).is_empty());
        assert_eq!(table.get(other, 2, 2), [Slot::NEW; 2], "of another session");
    }
}
