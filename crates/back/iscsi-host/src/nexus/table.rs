//! Things under way on a connection, by their Initiator Task Tags.

use weir_iscsi::Itt;

/// Slots, each for one thing that is under way. A tag is a slot and a count of its uses, so that an answer that comes too late
/// meets nothing else. Two tables whose slots have different numbers share the tags of a connection.
pub(super) struct Table<T> {
    /// Number of the first slot.
    first: u32,
    /// Bits of a tag that are its slot's number.
    slot_bits: u32,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    uses: u32,
    held: Option<T>,
}

impl<T> Table<T> {
    /// A table of the slots from `first` on, `slots` of them, where a connection has `all` in its tables together.
    pub(super) fn new(first: u32, slots: u32, all: u32) -> Table<T> {
        Table {
            first,
            slot_bits: u32::BITS - (all - 1).leading_zeros(),
            slots: (0..slots)
                .map(|_| Slot {
                    uses: 0,
                    held: None,
                })
                .collect(),
            free: (0..slots).rev().collect(),
        }
    }

    /// Slots that are free.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Takes a thing, and gives it a tag; `None` where no slot is free.
    pub(super) fn insert(&mut self, thing: T) -> Option<Itt> {
        let index = self.free.pop()?;
        let tag = loop {
            let slot = &mut self.slots[index as usize];
            slot.uses = slot.uses.wrapping_add(1);
            let tag = self.tag(index);
            if tag != Itt::RESERVED {
                break tag;
            }
        };
        self.slots[index as usize].held = Some(thing);
        Some(tag)
    }

    /// The thing of a tag.
    #[inline]
    pub(super) fn get(&mut self, tag: Itt) -> Option<&mut T> {
        let index = self.index(tag)?;
        self.slots[index as usize].held.as_mut()
    }

    /// Frees the slot of a tag. The thing is dropped in place: it is longer than what is wanted of it at its end.
    #[inline]
    pub(super) fn release(&mut self, tag: Itt) {
        let index = self.index(tag).expect("a tag is released once");
        self.slots[index as usize].held = None;
        self.free.push(index);
    }

    /// Takes the thing of a tag, and frees its slot.
    #[cfg(test)]
    pub(super) fn remove(&mut self, tag: Itt) -> Option<T> {
        let index = self.index(tag)?;
        let thing = self.slots[index as usize].held.take()?;
        self.free.push(index);
        Some(thing)
    }

    /// Takes all that is there. Its slots are not used again.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.slots.iter_mut().filter_map(|slot| slot.held.take())
    }

    fn tag(&self, index: u32) -> Itt {
        let uses = self.slots[index as usize].uses;
        Itt(uses << self.slot_bits | (self.first + index))
    }

    /// The index of a tag's slot, where the slot is of this table and the tag its last.
    #[inline]
    fn index(&self, tag: Itt) -> Option<u32> {
        let number = tag.0 & ((1 << self.slot_bits) - 1);
        let index = number.checked_sub(self.first)?;
        let known = (index as usize) < self.slots.len();
        (known && self.tag(index) == tag).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_late_and_is_never_the_reserved_one() {
        for slots in [1, 3, 24, 65_535] {
            let mut table = Table::new(0, slots, slots + 8);
            let mut others = Table::new(slots, 8, slots + 8);
            let mut last: Vec<Itt> = Vec::new();
            for round in 0..70_000 {
                let tag = if round % 2 == 0 {
                    table.insert(()).unwrap()
                } else {
                    others.insert(()).unwrap()
                };
                assert_ne!(tag, Itt::RESERVED);
                assert!(!last.contains(&tag), "used {} uses ago", last.len());
                assert_eq!(table.get(tag).is_some(), round % 2 == 0);
                assert_eq!(others.get(tag).is_some(), round % 2 == 1);
                table.remove(tag).or_else(|| others.remove(tag)).unwrap();
                assert_eq!((table.get(tag), others.get(tag)), (None, None));
                last.push(tag);
                if last.len() > 32 {
                    last.remove(0);
                }
            }
        }
    }

    #[test]
    fn a_full_table_takes_nothing() {
        let mut table = Table::new(0, 2, 4);
        let tags = [table.insert(1), table.insert(2)].map(Option::unwrap);
        assert_eq!((table.insert(3), table.room()), (None, 0));
        assert_eq!(table.get(Itt(0xffff_ffff)), None);
        assert_eq!(table.get(Itt(tags[0].0 ^ 2)), None, "of another table");
        table.release(tags[0]);
        assert_eq!(table.remove(tags[0]), None, "it was released");
        let again = table.insert(4).unwrap();
        assert_ne!(again, tags[0]);
        assert_eq!(table.drain().collect::<Vec<_>>(), [4, 2]);
    }
}
