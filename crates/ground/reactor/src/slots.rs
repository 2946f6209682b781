//! What is in flight, by slot and generation: a late answer never meets a later request.

/// Entries that keep their number until they are removed. Slots are reused, so that none is allocated in the steady state.
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// Generations after which a place begins anew.
const GENERATION_MAX: u32 = u32::MAX >> 1;

/// Names an entry while it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its place.
    pub slot: u32,
    /// Number of times that the place was used before, modulo 2^31.
    pub generation: u32,
}

impl Key {
    /// Both parts in one word, whose topmost bit is 0.
    #[must_use]
    pub fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The key that [`Key::to_word`] made `word` of.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Key {
            slot: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots::with_capacity(0)
    }
}

impl<T> Slots<T> {
    /// Room for so many entries, and none yet.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Slots {
            slots: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// When a free slot is not empty, which no call brings about.
    pub fn insert(&mut self, entry: T) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                entry: None,
            });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        assert!(place.entry.is_none(), "a free slot is empty");
        place.entry = Some(entry);
        Key {
            slot,
            generation: place.generation,
        }
    }

    /// An entry that is there.
    ///
    /// # Panics
    /// When it was removed.
    pub fn get_mut(&mut self, key: Key) -> &mut T {
        let place = &mut self.slots[key.slot as usize];
        assert_eq!(
            place.generation, key.generation,
            "an entry was used after its end"
        );
        place.entry.as_mut().expect("an entry in flight is there")
    }

    /// An entry; none once it was removed.
    pub fn find(&mut self, key: Key) -> Option<&mut T> {
        let place = self.slots.get_mut(key.slot as usize)?;
        let entry = place.entry.as_mut();
        entry.filter(|_| place.generation == key.generation)
    }

    /// Takes an entry out.
    ///
    /// # Panics
    /// When that was done before.
    pub fn remove(&mut self, key: Key) -> T {
        let place = &mut self.slots[key.slot as usize];
        assert_eq!(
            place.generation, key.generation,
            "a request was completed twice"
        );
        place.generation = (place.generation + 1) & GENERATION_MAX;
        self.free.push(key.slot);
        place.entry.take().expect("a request was completed twice")
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, place)| {
            let key = Key {
                slot: slot as u32,
                generation: place.generation,
            };
            place.entry.as_ref().map(|entry| (key, entry))
        })
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(slot, place)| {
                let key = Key {
                    slot: slot as u32,
                    generation: place.generation,
                };
                place.entry.as_mut().map(|entry| (key, entry))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reused_under_another_generation() {
        let mut slots = Slots::with_capacity(1);
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), 'a');
        let second = slots.insert('b');
        assert_eq!((first.slot, slots.len()), (second.slot, 1));
        assert_ne!(first, second);
        assert_eq!(Key::from_word(second.to_word()), second);
        assert_eq!(*slots.get_mut(second), 'b');
        assert_eq!(slots.find(first), None);
        assert_eq!(slots.find(second), Some(&mut 'b'));
    }

    #[test]
    #[should_panic(expected = "completed twice")]
    fn an_entry_ends_once() {
        let mut slots = Slots::with_capacity(1);
        let key = slots.insert(());
        slots.remove(key);
        slots.remove(key);
    }
}
