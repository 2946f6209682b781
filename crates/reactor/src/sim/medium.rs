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
    /// A sync that should have made it durable failed.
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

/// What a change puts into a range.
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

    /// What a sync that starts now makes durable.
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

    /// How many bytes a change would add to what is allocated.
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
                if self.content(index).is_some() {
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

/// How far a medium had come when a sync began.
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
