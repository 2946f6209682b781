//! What the flash of a drive holds: where each unit is, what is valid in each superblock, and what is in the cache.
//!
//! A unit is mapped as a whole. Of a write that covers only a part of one, the unit moves with the probability of that part, so that as much
//! moves on average as is written; parts of one unit that come one soon after the other are added up, so that one that is written
//! sequentially, in whatever pieces, moves exactly once. The cache counts in units too. It is emptied from its oldest end.
//!
//! Hosts, folding and garbage collection each fill a superblock of their own, so that what is written together is freed together.
//! Nothing here knows time: what is done besides a host's write is added up in [`Work`].

use std::collections::VecDeque;

use crate::layout::Layout;
use crate::profile::WhenFull;
use crate::random::Random;

/// In the map and among owners: nothing.
const NONE: u32 = u32::MAX;
/// In the map: the rest is a place in the cache.
const CACHED: u32 = 1 << 31;
/// Free superblocks below which garbage is collected: those that may have to be begun while one is collected.
const FREE_SUPERBLOCKS_LOW: u64 = 4;
/// Units of which parts are remembered.
const PARTS_MAX: usize = 64;

/// Who fills a superblock.
#[derive(Clone, Copy)]
enum Stream {
    Host,
    Fold,
    Collect,
}
const STREAMS: usize = 3;

/// Why data is no longer valid.
#[derive(Clone, Copy, PartialEq)]
enum Cause {
    Overwritten,
    Deallocated,
}

/// Work besides what hosts wrote, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    /// Moved out of the cache.
    pub(crate) folded: u64,
    /// Moved by garbage collection.
    pub(crate) collected: u64,
    /// Erased before they were written.
    pub(crate) erased: u64,
}

/// One thing that was done while the drive was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tidied {
    /// A unit left the cache; whether it had to be written.
    Folded { moved: bool },
    /// A superblock was collected, of which so many units were written.
    Collected(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Being filled, or collected.
    Open,
    Closed,
}

#[derive(Clone, Copy)]
struct Superblock {
    state: State,
    valid: u32,
    /// Its place among the closed ones with as many valid units.
    place: u32,
}

/// What was lately written, or deallocated, of units in part.
#[derive(Default)]
struct Parts(Vec<Part>);

struct Part {
    unit: u32,
    bytes: u64,
    taken: bool,
}

impl Parts {
    /// Whether so many bytes of a unit of so many decide over the whole of it.
    fn take(&mut self, unit: u32, bytes: u64, of: u64, random: &mut Random) -> bool {
        let found = self.0.iter().position(|part| part.unit == unit);
        if bytes >= of {
            if let Some(index) = found {
                self.0.remove(index);
            }
            return true;
        }
        let mut part = match found {
            Some(index) => self.0.remove(index),
            None => {
                self.0.truncate(PARTS_MAX - 1);
                Part {
                    unit,
                    bytes: 0,
                    taken: false,
                }
            }
        };
        let left = of - part.bytes;
        let now = !part.taken && random.uniform() * (left as f64) < bytes as f64;
        part.taken |= now;
        part.bytes += bytes;
        if part.bytes < of {
            self.0.insert(0, part);
        }
        now
    }
}

/// The flash of one drive.
pub(crate) struct Flash {
    layout: Layout,
    bits: u64,
    when_full: Option<WhenFull>,
    /// Of each unit, where it is: a physical unit, a place in the cache, or nowhere.
    map: Vec<u32>,
    /// Of each physical unit, which unit is there.
    owner: Vec<u32>,
    superblocks: Vec<Superblock>,
    /// Closed superblocks by the number of their valid units.
    closed: Vec<Vec<u32>>,
    free: VecDeque<u32>,
    /// By stream: the superblock and how many units of it are written.
    open: [Option<(u32, u64)>; STREAMS],
    /// Units that are written and not erased, valid or not.
    used_units: u64,
    /// Free units that must be erased before they are written.
    dirty_units: u64,
    mapped_units: u64,
    /// The cache, oldest first: units, and what was in it and is valid no more.
    cached: VecDeque<u32>,
    /// Places in the cache that were given up so far: a place less this is an index.
    cached_before: u64,
    /// Of a cache that is gone past when full: whether it takes anything.
    cache_is_open: bool,
    written: Parts,
    deallocated: Parts,
    work: Work,
}

impl Flash {
    pub(crate) fn new(layout: Layout, bits: u32, when_full: Option<WhenFull>) -> Self {
        let physical = layout.physical_units();
        assert!(
            physical < u64::from(CACHED),
            "a drive has no more units than can be counted"
        );
        let empty = Superblock {
            state: State::Free,
            valid: 0,
            place: 0,
        };
        Flash {
            layout,
            bits: u64::from(bits),
            when_full,
            map: vec![NONE; layout.units as usize],
            owner: vec![NONE; physical as usize],
            superblocks: vec![empty; layout.superblocks as usize],
            closed: vec![Vec::new(); layout.superblock_units as usize + 1],
            free: (0..layout.superblocks as u32).collect(),
            open: [None; STREAMS],
            used_units: 0,
            dirty_units: 0,
            mapped_units: 0,
            cached: VecDeque::new(),
            cached_before: 0,
            cache_is_open: true,
            written: Parts::default(),
            deallocated: Parts::default(),
            work: Work::default(),
        }
    }

    /// What was done since this was last asked.
    pub(crate) fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    /// Units that hold data.
    pub(crate) fn mapped_units(&self) -> u64 {
        self.mapped_units
    }

    /// Units in the cache.
    pub(crate) fn cache_used_units(&self) -> u64 {
        self.cached.len() as u64
    }

    /// Units that the cache may have now.
    pub(crate) fn cache_size_units(&self) -> u64 {
        let unused = self.layout.units.saturating_sub(self.used_units);
        self.layout.static_units + self.layout.dynamic_units.min(unused / self.bits)
    }

    /// Units of the cache that are made of free superblocks.
    fn dynamic_used_units(&self) -> u64 {
        self.cache_used_units()
            .saturating_sub(self.layout.static_units)
    }

    /// A host writes `bytes` of a unit that has `of`; whether they go into the cache.
    pub(crate) fn write(&mut self, unit: u32, bytes: u64, of: u64, random: &mut Random) -> bool {
        let to_cache = self.cache_takes();
        if self.written.take(unit, bytes, of, random) {
            if to_cache {
                self.put_in_cache(unit);
            } else {
                self.place(unit, Stream::Host);
                self.shrink_cache();
            }
        }
        to_cache
    }

    fn cache_takes(&mut self) -> bool {
        match self.when_full {
            None => false,
            Some(WhenFull::Folding) => self.cache_size_units() > 0,
            Some(WhenFull::Direct) => {
                self.cache_is_open &= self.cache_used_units() < self.cache_size_units();
                self.cache_is_open
            }
        }
    }

    fn put_in_cache(&mut self, unit: u32) {
        while self.cache_used_units() + 1 > self.cache_size_units() {
            if self.cached.is_empty() {
                // What was folded took the last of the room.
                return self.place(unit, Stream::Host);
            }
            self.fold_oldest();
        }
        self.invalidate(unit, Cause::Overwritten);
        let place = (self.cached_before + self.cached.len() as u64) & u64::from(CACHED - 1);
        self.cached.push_back(unit);
        self.map[unit as usize] = CACHED | place as u32;
    }

    /// Moves what no longer has a place in the cache.
    fn shrink_cache(&mut self) {
        while self.dynamic_used_units() > 0 && self.cache_used_units() > self.cache_size_units() {
            self.fold_oldest();
        }
    }

    /// Whether it had to be written.
    fn fold_oldest(&mut self) -> bool {
        let oldest = *self.cached.front().expect("the cache holds something");
        let moved = oldest != NONE;
        if moved {
            self.place(oldest, Stream::Fold);
            self.work.folded += 1;
        }
        self.cached.pop_front();
        self.cached_before += 1;
        moved
    }

    /// A host no longer needs `bytes` of a unit that has `of`.
    pub(crate) fn deallocate(&mut self, unit: u32, bytes: u64, of: u64, random: &mut Random) {
        if !self.deallocated.take(unit, bytes, of, random) || self.map[unit as usize] == NONE {
            return;
        }
        self.invalidate(unit, Cause::Deallocated);
        if self.mapped_units == 0 {
            self.become_empty();
        }
    }

    /// A drive that holds nothing is as it was when it was new.
    fn become_empty(&mut self) {
        for stream in 0..STREAMS {
            if let Some((superblock, _)) = self.open[stream].take() {
                self.superblocks[superblock as usize].state = State::Free;
                self.free.push_back(superblock);
            }
        }
        assert_eq!(
            self.free.len() as u64,
            self.layout.superblocks,
            "what holds nothing valid is free"
        );
        (self.used_units, self.dirty_units) = (0, 0);
        self.cached_before += self.cached.len() as u64;
        self.cached.clear();
        self.cache_is_open = true;
    }

    /// What is known of a unit's place is no longer so.
    fn invalidate(&mut self, unit: u32, cause: Cause) {
        let place = std::mem::replace(&mut self.map[unit as usize], NONE);
        if place == NONE {
            self.mapped_units += u64::from(cause == Cause::Overwritten);
            return;
        }
        self.mapped_units -= u64::from(cause == Cause::Deallocated);
        if place & CACHED != 0 {
            let before = (self.cached_before & u64::from(CACHED - 1)) as u32;
            let index = (place & !CACHED).wrapping_sub(before) & (CACHED - 1);
            self.cached[index as usize] = NONE;
            return;
        }
        self.owner[place as usize] = NONE;
        let number = place / self.layout.superblock_units as u32;
        let state = self.superblocks[number as usize].state;
        if state == State::Closed {
            self.remove_closed(number);
        }
        self.superblocks[number as usize].valid -= 1;
        if state == State::Closed {
            self.close(number, cause);
        }
    }

    fn remove_closed(&mut self, number: u32) {
        let Superblock { valid, place, .. } = self.superblocks[number as usize];
        let alike = &mut self.closed[valid as usize];
        alike.swap_remove(place as usize);
        if let Some(&moved) = alike.get(place as usize) {
            self.superblocks[moved as usize].place = place;
        }
    }

    /// A full superblock takes its place among those that can be collected, or is free.
    fn close(&mut self, number: u32, cause: Cause) {
        let superblock = &mut self.superblocks[number as usize];
        if superblock.valid == 0 {
            return self.release(number, cause);
        }
        let alike = &mut self.closed[superblock.valid as usize];
        superblock.state = State::Closed;
        superblock.place = alike.len() as u32;
        alike.push(number);
    }

    /// What a host said that it does not need is erased while the dies wait; what was overwritten, when it is needed.
    fn release(&mut self, number: u32, cause: Cause) {
        self.superblocks[number as usize].state = State::Free;
        self.free.push_back(number);
        self.used_units -= self.layout.superblock_units;
        if cause == Cause::Overwritten {
            self.dirty_units += self.layout.superblock_units;
        }
    }

    /// Writes a unit where it stays.
    fn place(&mut self, unit: u32, stream: Stream) {
        let (number, filled) = match self.open[stream as usize] {
            Some(open) => open,
            None => (self.begin_superblock(stream), 0),
        };
        let taken = self.used_units + self.dynamic_used_units() * self.bits + self.dirty_units;
        if taken >= self.layout.physical_units() && self.dirty_units > 0 {
            self.dirty_units -= 1;
            self.work.erased += 1;
        }
        self.invalidate(unit, Cause::Overwritten);
        let per_superblock = self.layout.superblock_units;
        let physical = u64::from(number) * per_superblock + filled;
        self.map[unit as usize] = physical as u32;
        self.owner[physical as usize] = unit;
        self.superblocks[number as usize].valid += 1;
        self.used_units += 1;
        self.open[stream as usize] = Some((number, filled + 1));
        if filled + 1 == per_superblock {
            self.open[stream as usize] = None;
            self.close(number, Cause::Overwritten);
        }
    }

    fn begin_superblock(&mut self, stream: Stream) -> u32 {
        // What is collected goes into superblocks that were kept free for it.
        if !matches!(stream, Stream::Collect) {
            let in_cache =
                (self.dynamic_used_units() * self.bits).div_ceil(self.layout.superblock_units);
            while self.free.len() as u64 <= FREE_SUPERBLOCKS_LOW + in_cache {
                let Some(victim) = self.victim() else { break };
                self.collect(victim);
            }
        }
        let number = self.free.pop_front().expect("superblocks are kept free");
        self.superblocks[number as usize].state = State::Open;
        number
    }

    /// The closed superblock with the fewest valid units, unless all of its are.
    fn victim(&self) -> Option<u32> {
        let some_invalid = &self.closed[..self.closed.len() - 1];
        let alike = some_invalid.iter().find(|alike| !alike.is_empty())?;
        alike.last().copied()
    }

    /// Frees a superblock; how many units had to be written.
    fn collect(&mut self, number: u32) -> u64 {
        self.remove_closed(number);
        self.superblocks[number as usize].state = State::Open;
        let moved = u64::from(self.superblocks[number as usize].valid);
        let first = u64::from(number) * self.layout.superblock_units;
        for physical in first..first + self.layout.superblock_units {
            let unit = self.owner[physical as usize];
            if unit != NONE {
                self.place(unit, Stream::Collect);
            }
        }
        self.work.collected += moved;
        self.release(number, Cause::Overwritten);
        moved
    }

    /// Does one thing that a drive does when it has nothing else to do; none where all is tidy.
    pub(crate) fn tidy(&mut self) -> Option<Tidied> {
        if !self.cached.is_empty() {
            let moved = self.fold_oldest();
            self.cache_is_open = true;
            return Some(Tidied::Folded { moved });
        }
        let cache_most = self.layout.static_units + self.layout.dynamic_units;
        if self.cache_size_units() >= cache_most {
            return None;
        }
        // Room for the cache, where it costs less than it yields.
        let victim = self.victim()?;
        let valid = u64::from(self.superblocks[victim as usize].valid);
        (valid <= self.layout.superblock_units / 2).then(|| Tidied::Collected(self.collect(victim)))
    }

    /// Units that are free and must be erased.
    pub(crate) fn dirty_units(&self) -> u64 {
        self.dirty_units
    }

    /// Erases so many of them ahead of time.
    pub(crate) fn erase(&mut self, units: u64) {
        self.dirty_units -= units.min(self.dirty_units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Flash {
        /// Everything that must hold, at a cost that only tests can bear.
        fn check(&self) {
            let mut valid = vec![0u32; self.superblocks.len()];
            let (mut mapped, mut in_cache) = (0, 0);
            for (unit, &place) in self.map.iter().enumerate() {
                if place == NONE {
                    continue;
                }
                mapped += 1;
                if place & CACHED != 0 {
                    in_cache += 1;
                    continue;
                }
                assert_eq!(self.owner[place as usize], unit as u32);
                valid[place as usize / self.layout.superblock_units as usize] += 1;
            }
            assert_eq!(mapped, self.mapped_units);
            let held = self.cached.iter().filter(|&&unit| unit != NONE).count();
            assert_eq!(held, in_cache);
            let mut used = self
                .open
                .iter()
                .flatten()
                .map(|(_, filled)| filled)
                .sum::<u64>();
            for (number, superblock) in self.superblocks.iter().enumerate() {
                assert_eq!(superblock.valid, valid[number], "superblock {number}");
                if superblock.state == State::Closed {
                    used += self.layout.superblock_units;
                    let alike = &self.closed[superblock.valid as usize];
                    assert_eq!(alike[superblock.place as usize], number as u32);
                }
            }
            assert_eq!(used, self.used_units);
            let dynamic = self.dynamic_used_units() * self.bits;
            assert!(used + dynamic <= self.layout.physical_units());
            assert!(self.dirty_units + used <= self.layout.physical_units());
            assert!(
                self.dynamic_used_units() == 0
                    || self.cache_used_units() <= self.cache_size_units()
            );
        }
    }

    fn layout(static_units: u64, dynamic_units: u64) -> Layout {
        Layout {
            unit_bytes: 4096,
            units: 1000,
            superblock_units: 16,
            superblocks: 1000 / 16 + 1 + crate::layout::SPARE_SUPERBLOCKS_MIN,
            static_units,
            dynamic_units,
        }
    }

    #[test]
    fn everything_stays_accounted_for() {
        let kinds = [
            (layout(0, 0), 3, None),
            (layout(20, 200), 3, Some(WhenFull::Direct)),
            (layout(20, 200), 4, Some(WhenFull::Folding)),
            (layout(0, 333), 3, Some(WhenFull::Folding)),
            (layout(0, 500), 2, Some(WhenFull::Direct)),
            (layout(100, 0), 1, Some(WhenFull::Folding)),
        ];
        for (kind, (layout, bits, when_full)) in kinds.into_iter().enumerate() {
            for seed in 0..8 {
                let mut random = Random::new(seed, kind as u64);
                let mut flash = Flash::new(layout, bits, when_full);
                for step in 0..6000 {
                    let below = |bound: f64, random: &mut Random| (random.uniform() * bound) as u32;
                    let unit = below(1000.0, &mut random);
                    let bytes = u64::from(below(4.0, &mut random) + 1) * 1024;
                    match below(40.0, &mut random) {
                        0 => {
                            flash.tidy();
                        }
                        1 => flash.erase(10),
                        2..6 => flash.deallocate(unit, bytes, 4096, &mut random),
                        _ => {
                            flash.write(unit, bytes, 4096, &mut random);
                        }
                    }
                    if step % 7 == 0 {
                        flash.check();
                    }
                }
                while flash.tidy().is_some() {}
                flash.check();
                for unit in 0..1000 {
                    flash.deallocate(unit, 4096, 4096, &mut random);
                }
                flash.check();
                assert_eq!((flash.mapped_units(), flash.used_units), (0, 0));
            }
        }
    }

    #[test]
    fn a_unit_written_in_parts_moves_once() {
        let mut random = Random::new(3, 3);
        let mut parts = Parts::default();
        for unit in 0..200 {
            // Two streams whose parts alternate, and whose order within a unit is turned around.
            let taken = (0..8).map(|_| {
                u32::from(parts.take(unit, 512, 4096, &mut random))
                    + u32::from(parts.take(1000 + unit, 512, 4096, &mut random))
            });
            assert_eq!(taken.sum::<u32>(), 2, "unit {unit}");
        }
        assert!(parts.0.is_empty());
    }

    #[test]
    fn of_parts_as_much_moves_as_is_written() {
        let mut random = Random::new(4, 4);
        let mut parts = Parts::default();
        let many = 100_000;
        let moved = (0..many)
            .filter(|_| {
                let unit = (random.uniform() * 1e6) as u32;
                parts.take(unit, 512, 4096, &mut random)
            })
            .count();
        let share = moved as f64 / f64::from(many);
        assert!((share - 0.125).abs() < 0.005, "{share}");
    }
}
