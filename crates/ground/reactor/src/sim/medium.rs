//! The contents of one file or block device: what a reader sees, what is durable, and what a power failure leaves.
//!
//! Contents are kept by units, the size that is written whole or not at all. A unit has a durable content and, newer
//! first, the versions written since. A power failure decides for each write whether it stays whole, is lost, or is torn
//! (each of its units decides for itself); the newest version that stays is what is read afterwards.

use std::collections::{BTreeMap, BTreeSet};

use super::random::Random;

/// Versions of one unit that are not durable; above, the oldest becomes so, as a medium may do at any time.
const VERSIONS_MAX: usize = 16;

/// The bytes of a unit; `None` where nothing is allocated, which reads as zeroes.
type Content = Option<Box<[u8]>>;

struct Version {
    /// The write that made it.
    write: u64,
    /// When it came to be, among all versions of the medium.
    sequence: u64,
    /// It could not be written back, or a sync that should have made it durable failed.
    doomed: bool,
    content: Content,
}

pub(super) struct Medium {
    unit: usize,
    length: u64,
    durable_length: u64,
    durable: BTreeMap<u64, Box<[u8]>>,
    /// Per unit, oldest first; never empty.
    newer: BTreeMap<u64, Vec<Version>>,
    allocated: u64,
    sequence: u64,
}

/// The bytes that a change puts into a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill<'a> {
    Bytes(&'a [u8]),
    Zeroes,
    /// Deallocates whole units, zeroes parts of units.
    Hole,
}

impl Medium {
    pub(super) fn new(unit: u32, length: u64) -> Self {
        Medium {
            unit: unit as usize,
            length,
            durable_length: length,
            durable: BTreeMap::new(),
            newer: BTreeMap::new(),
            allocated: 0,
            sequence: 0,
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that it occupies.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated * self.unit as u64
    }

    /// Marks all that a sync which starts now makes durable.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            sequence: self.sequence,
            length: self.length,
        }
    }

    /// Sets the length, durably. What lies beyond is gone.
    pub(super) fn set_length(&mut self, length: u64) {
        self.length = length;
        self.durable_length = length;
        self.drop_tail();
    }

    /// Forgets what lies beyond the length: it reads as zeroes when the medium grows again.
    fn drop_tail(&mut self) {
        let end = self.length.div_ceil(self.unit as u64);
        self.durable.split_off(&end);
        self.newer.split_off(&end);
        let (last, used) = (
            self.length / self.unit as u64,
            self.length % self.unit as u64,
        );
        let used = used as usize;
        if used > 0 {
            let newer = self.newer.get_mut(&last).into_iter().flatten();
            let contents = newer.filter_map(|version| version.content.as_mut());
            for content in contents.chain(self.durable.get_mut(&last)) {
                content[used..].fill(0);
            }
        }
        let newer = self
            .newer
            .values()
            .filter(|versions| is_allocated(versions));
        let only_durable = self
            .durable
            .keys()
            .filter(|index| !self.newer.contains_key(index));
        self.allocated = (newer.count() + only_durable.count()) as u64;
    }

    /// Grows to `length`, not durably.
    pub(super) fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    fn content(&self, index: u64) -> Option<&[u8]> {
        match self.newer.get(&index) {
            Some(versions) => versions.last().expect("never empty").content.as_deref(),
            None => self.durable.get(&index).map(|content| &**content),
        }
    }

    pub(super) fn read(&self, offset: u64, target: &mut [u8]) {
        for part in self.parts(offset, target.len() as u64) {
            let target = &mut target[part.at..part.at + part.length];
            match self.content(part.index) {
                Some(content) => {
                    target.copy_from_slice(&content[part.start..part.start + part.length]);
                }
                None => target.fill(0),
            }
        }
    }

    /// The bytes that a change would add to the allocation.
    pub(super) fn needs(&self, offset: u64, length: u64) -> u64 {
        let missing = self
            .parts(offset, length)
            .filter(|part| self.content(part.index).is_none());
        missing.count() as u64 * self.unit as u64
    }

    /// Changes a range, visibly at once and not durably, on behalf of `write`.
    pub(super) fn change(&mut self, write: u64, offset: u64, length: u64, fill: Fill<'_>) {
        if fill == Fill::Hole {
            return self.deallocate(write, offset, length);
        }
        for part in self.parts(offset, length) {
            let content = self.changed(&part, fill);
            self.add_version(part.index, write, content);
        }
    }

    /// Visits only what is allocated: the range may be far larger.
    fn deallocate(&mut self, write: u64, offset: u64, length: u64) {
        let unit = self.unit as u64;
        let end = offset.saturating_add(length);
        let range = offset / unit..end.div_ceil(unit);
        let durable = self.durable.range(range.clone()).map(|(index, _)| *index);
        let newer = self.newer.range(range).map(|(index, _)| *index);
        let indices: BTreeSet<u64> = durable.chain(newer).collect();
        for index in indices {
            let start = offset.max(index * unit);
            let stop = end.min((index + 1) * unit);
            for part in self.parts(start, stop - start) {
                // What is not there now may be there again after a power failure, while it is not durable that it went.
                if self.content(index).is_some() || self.newer.contains_key(&index) {
                    let content = self.changed(&part, Fill::Hole);
                    self.add_version(index, write, content);
                }
            }
        }
    }

    fn changed(&self, part: &Part, fill: Fill<'_>) -> Content {
        if fill == Fill::Hole && part.length == self.unit {
            return None;
        }
        let before = self.content(part.index);
        let mut content: Box<[u8]> = match before {
            Some(before) => before.into(),
            None => vec![0; self.unit].into(),
        };
        let target = &mut content[part.start..part.start + part.length];
        match fill {
            Fill::Bytes(bytes) => target.copy_from_slice(&bytes[part.at..part.at + part.length]),
            Fill::Zeroes | Fill::Hole => target.fill(0),
        }
        Some(content)
    }

    fn add_version(&mut self, index: u64, write: u64, content: Content) {
        let before = self.content(index).is_some();
        self.allocated = self.allocated + u64::from(content.is_some()) - u64::from(before);
        self.sequence += 1;
        let version = Version {
            write,
            sequence: self.sequence,
            doomed: false,
            content,
        };
        let versions = self.newer.entry(index).or_default();
        versions.push(version);
        if versions.len() > VERSIONS_MAX {
            let oldest = versions.remove(0);
            self.set_durable(index, oldest.content);
        }
    }

    /// A sync that began at `mark` has succeeded.
    pub(super) fn make_durable_up_to(&mut self, mark: Mark) {
        self.settle(|version| version.sequence <= mark.sequence && !version.doomed);
        self.durable_length = self.durable_length.max(mark.length).min(self.length);
    }

    /// A durable write has succeeded.
    pub(super) fn make_durable(&mut self, write: u64, offset: u64, length: u64) {
        for part in self.parts(offset, length) {
            self.settle_unit(part.index, &|version| version.write == write);
        }
        self.durable_length = self.durable_length.max(self.length.min(offset + length));
    }

    /// A sync that began at `mark` has failed: no later one makes durable what it should have.
    pub(super) fn doom_up_to(&mut self, mark: Mark) {
        for versions in self.newer.values_mut() {
            for version in versions {
                version.doomed |= version.sequence <= mark.sequence;
            }
        }
    }

    /// Notes that `write` was not written back: no sync makes it durable.
    pub(super) fn doom(&mut self, write: u64, offset: u64, length: u64) {
        for part in self.parts(offset, length) {
            let versions = self.newer.get_mut(&part.index).into_iter().flatten();
            versions
                .filter(|version| version.write == write)
                .for_each(|version| version.doomed = true);
        }
    }

    fn settle(&mut self, is_durable: impl Fn(&Version) -> bool) {
        let indices: Vec<u64> = self.newer.keys().copied().collect();
        for index in indices {
            self.settle_unit(index, &is_durable);
        }
    }

    /// The newest version that is durable replaces all older ones.
    fn settle_unit(&mut self, index: u64, is_durable: &impl Fn(&Version) -> bool) {
        let Some(versions) = self.newer.get_mut(&index) else {
            return;
        };
        let Some(newest) = versions.iter().rposition(is_durable) else {
            return;
        };
        let settled = versions.drain(..=newest).next_back().expect("not empty");
        if versions.is_empty() {
            self.newer.remove(&index);
        }
        self.set_durable(index, settled.content);
    }

    fn set_durable(&mut self, index: u64, content: Content) {
        match content {
            Some(content) => self.durable.insert(index, content),
            None => self.durable.remove(&index),
        };
    }

    /// Decides what is left of what was not durable.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        const PARTS: u64 = 4;
        let (whole, torn) = (random.below(PARTS + 1), random.below(PARTS + 1));
        let mut fates = BTreeMap::new();
        for (index, versions) in std::mem::take(&mut self.newer) {
            let mut kept = None;
            for version in versions {
                let fate = *fates.entry(version.write).or_insert_with(|| {
                    if random.below(PARTS) < whole {
                        Fate::Whole
                    } else if random.below(PARTS) < torn {
                        Fate::Torn
                    } else {
                        Fate::Lost
                    }
                });
                if fate == Fate::Whole || (fate == Fate::Torn && random.coin()) {
                    kept = Some(version.content);
                }
            }
            if let Some(content) = kept {
                self.set_durable(index, content);
            }
        }
        if random.coin() {
            self.durable_length = self.length;
        }
        self.length = self.durable_length;
        self.drop_tail();
    }

    /// The range, by units.
    fn parts(&self, offset: u64, length: u64) -> impl Iterator<Item = Part> + use<> {
        let unit = self.unit as u64;
        let end = offset.saturating_add(length);
        let mut position = offset;
        std::iter::from_fn(move || {
            if position >= end {
                return None;
            }
            let (index, start) = (position / unit, position % unit);
            let next = end.min((index + 1) * unit);
            let part = Part {
                index,
                start: start as usize,
                length: (next - position) as usize,
                at: (position - offset) as usize,
            };
            position = next;
            Some(part)
        })
    }
}

/// The place in a medium's changes at which a sync began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    sequence: u64,
    length: u64,
}

fn is_allocated(versions: &[Version]) -> bool {
    versions
        .last()
        .is_some_and(|version| version.content.is_some())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Whole,
    Torn,
    Lost,
}

/// The part of a range that lies in one unit.
struct Part {
    index: u64,
    /// First byte within the unit.
    start: usize,
    length: usize,
    /// First byte within the range.
    at: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 512;
    const UNITS: usize = 24;
    const LENGTH: u64 = (UNIT * UNITS) as u64;

    /// One state of a unit: what it held, since which sequence, on behalf of which write. The oracle keeps whole states
    /// and never forgets one.
    #[derive(Clone)]
    struct Past {
        sequence: u64,
        write: u64,
        doomed: bool,
        content: [u8; UNIT],
    }

    /// A slow and obvious twin: per unit, everything that it ever held, and the oldest state that may still come back.
    struct Oracle {
        units: Vec<Vec<Past>>,
        oldest: [usize; UNITS],
    }

    impl Oracle {
        fn new() -> Self {
            let blank = Past {
                sequence: 0,
                write: 0,
                doomed: false,
                content: [0; UNIT],
            };
            Oracle {
                units: vec![vec![blank]; UNITS],
                oldest: [0; UNITS],
            }
        }

        fn now(&self, unit: usize) -> &[u8; UNIT] {
            &self.units[unit].last().expect("never empty").content
        }

        fn change(&mut self, sequence: &mut u64, write: u64, offset: usize, bytes: &[u8]) {
            for unit in offset / UNIT..(offset + bytes.len()).div_ceil(UNIT) {
                let mut content = *self.now(unit);
                for (position, byte) in content.iter_mut().enumerate() {
                    let at = (unit * UNIT + position).wrapping_sub(offset);
                    *byte = bytes.get(at).copied().unwrap_or(*byte);
                }
                *sequence += 1;
                self.units[unit].push(Past {
                    sequence: *sequence,
                    write,
                    doomed: false,
                    content,
                });
            }
        }

        fn settle(&mut self, is_durable: impl Fn(&Past) -> bool) {
            for (unit, oldest) in self.units.iter().zip(&mut self.oldest) {
                if let Some(newest) = unit.iter().rposition(&is_durable) {
                    *oldest = newest.max(*oldest);
                }
            }
        }

        /// Checks what a power failure left, and goes on from it.
        fn lose_power(&mut self, seed: u64, left: &[u8]) -> usize {
            let mut lost = 0;
            for unit in 0..UNITS {
                let left: [u8; UNIT] = left[unit * UNIT..][..UNIT].try_into().expect("a unit");
                let allowed = &self.units[unit][self.oldest[unit]..];
                let known = allowed.iter().any(|past| past.content == left);
                assert!(known, "seed {seed}: unit {unit} holds what it must not");
                lost += usize::from(left != *self.now(unit));
                self.units[unit] = vec![Past {
                    sequence: 0,
                    write: 0,
                    doomed: false,
                    content: left,
                }];
                self.oldest[unit] = 0;
            }
            lost
        }
    }

    fn take_any<T>(random: &mut Random, items: &mut Vec<T>) -> Option<T> {
        let index = random.below((items.len() as u64).max(1)) as usize;
        (!items.is_empty()).then(|| items.swap_remove(index))
    }

    /// Random changes, syncs, failed syncs, durable writes and power failures, each followed by a comparison. How many
    /// units were lost.
    fn compare(seed: u64) -> usize {
        let mut random = Random::new(seed);
        let mut medium = Medium::new(UNIT as u32, LENGTH);
        let mut oracle = Oracle::new();
        let mut marks = Vec::new();
        let (mut sequence, mut lost) = (0, 0);
        for write in 1..600 {
            // Most changes meet in a few units, whose versions become many.
            let hot = random.below(4) > 0;
            let offset = random.below(if hot { LENGTH / 8 } else { LENGTH });
            let length = 1 + random.below((LENGTH - offset).min(2000));
            let stamp = [write as u8, random.next() as u8];
            let bytes: Vec<u8> = stamp.into_iter().cycle().take(length as usize).collect();
            match random.below(128) {
                0..100 => {
                    medium.change(write, offset, length, Fill::Bytes(&bytes));
                    oracle.change(&mut sequence, write, offset as usize, &bytes);
                    if random.below(64) == 0 {
                        medium.make_durable(write, offset, length);
                        oracle.settle(|past| past.write == write);
                    }
                }
                100..108 => {
                    let fill = [Fill::Hole, Fill::Zeroes][random.below(2) as usize];
                    medium.change(write, offset, length, fill);
                    let zeroes = vec![0; length as usize];
                    oracle.change(&mut sequence, write, offset as usize, &zeroes);
                    // The medium counts no version of what was not there; marks are compared by its own count.
                    sequence = medium.sequence.max(sequence);
                    medium.sequence = sequence;
                }
                108..118 => marks.push((medium.mark(), sequence)),
                118..125 => {
                    if let Some((mark, upto)) = take_any(&mut random, &mut marks) {
                        medium.make_durable_up_to(mark);
                        oracle.settle(|past| past.sequence <= upto && !past.doomed);
                    }
                }
                125 => {
                    if let Some((mark, upto)) = take_any(&mut random, &mut marks) {
                        medium.doom_up_to(mark);
                        for past in oracle.units.iter_mut().flatten() {
                            past.doomed |= past.sequence <= upto;
                        }
                    }
                }
                _ => {
                    medium.lose_power(&mut random);
                    let mut left = vec![0; LENGTH as usize];
                    medium.read(0, &mut left);
                    lost += oracle.lose_power(seed, &left);
                    marks.clear();
                }
            }
            let mut seen = vec![0; LENGTH as usize];
            medium.read(0, &mut seen);
            for unit in 0..UNITS {
                let seen = &seen[unit * UNIT..][..UNIT];
                assert!(
                    seen == oracle.now(unit),
                    "seed {seed}, write {write}, unit {unit}"
                );
            }
            let units = (0..UNITS as u64).filter(|unit| medium.content(*unit).is_some());
            assert_eq!(
                medium.allocated(),
                (units.count() * UNIT) as u64,
                "seed {seed}"
            );
        }
        lost
    }

    #[test]
    fn what_a_failed_sync_covered_may_be_lost_after_a_later_sync() {
        let left = (0..100).map(|seed| {
            let mut medium = Medium::new(UNIT as u32, LENGTH);
            medium.change(1, 0, UNIT as u64, Fill::Bytes(&[1; UNIT]));
            medium.doom_up_to(medium.mark());
            medium.change(2, UNIT as u64, UNIT as u64, Fill::Bytes(&[2; UNIT]));
            medium.make_durable_up_to(medium.mark());
            medium.lose_power(&mut Random::new(seed));
            let mut left = [0; 2 * UNIT];
            medium.read(0, &mut left);
            assert_eq!(left[UNIT..], [2; UNIT]);
            usize::from(left[0])
        });
        assert!((10..=90).contains(&left.sum::<usize>()));
    }

    #[test]
    fn a_length_that_was_not_synced_may_be_lost_and_a_set_one_is_not() {
        let grown = (0..100).filter(|&seed| {
            let mut medium = Medium::new(UNIT as u32, 100);
            medium.set_length(200);
            medium.change(1, 150, 100, Fill::Bytes(&[1; 100]));
            medium.grow(250);
            medium.lose_power(&mut Random::new(seed));
            assert!(medium.length() == 200 || medium.length() == 250);
            medium.set_length(UNIT as u64);
            let mut beyond = [9; 100];
            medium.read(250, &mut beyond);
            assert_eq!(beyond, [0; 100]);
            medium.content(0).is_some_and(|unit| unit[249] == 1)
        });
        assert!((10..=90).contains(&grown.count()));
    }

    #[test]
    fn what_is_deallocated_twice_is_gone_for_good_once_the_second_is_durable() {
        for seed in 0..100 {
            let mut medium = Medium::new(UNIT as u32, LENGTH);
            medium.change(1, 0, UNIT as u64, Fill::Bytes(&[1; UNIT]));
            medium.change(2, 0, UNIT as u64, Fill::Hole);
            medium.doom_up_to(medium.mark());
            medium.change(3, 0, UNIT as u64, Fill::Hole);
            medium.make_durable_up_to(medium.mark());
            medium.lose_power(&mut Random::new(seed));
            assert!(medium.content(0).is_none(), "seed {seed}");
        }
    }

    #[test]
    fn a_medium_agrees_with_its_oracle() {
        let first = super::super::seed_from_env_or_random();
        let lost = (0..24).map(|number| compare(first.wrapping_add(number)));
        assert!(lost.sum::<usize>() > 100, "power failures lose something");
    }
}
