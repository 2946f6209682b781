//! A drive as a state machine: told what is asked of it and when, it says when that is done.
//!
//! Writes go one after the other through one bandwidth, which stands for the link, the controller and all dies together. What the drive
//! does on its own account (folding, garbage collection, erasing) takes from the same bandwidth; its cost is spread over the writes that
//! follow, about a superblock of them, for a drive works on such things piece by piece. Reads have the bandwidth of the link's other
//! direction to themselves, and wait for dies that are writing. Latency comes on top of both and keeps nobody else waiting.

use std::collections::VecDeque;

use crate::flash::{Flash, Tidied};
use crate::layout::Layout;
use crate::profile::{Heat, Media, Profile, Stall};
use crate::random::Random;

const NANOSECONDS_PER_SECOND: f64 = 1e9;
/// How long the rate of writing keeps one draw of its noise.
const NOISE_NANOSECONDS: u64 = 1_000_000_000;
/// Draws that noise is made of which depends on what was before.
const NOISE_DRAWS: u64 = 16;
/// The least that noise leaves of a rate.
const NOISE_LEAST: f64 = 0.1;
/// 0 degrees Celsius, in kelvin.
const CELSIUS_ZERO_KELVIN: f64 = 273.15;
/// Debts below this, in nanoseconds, are paid at once, so that none is paid in ever smaller parts.
const DEBT_LEAST: f64 = 1.0;
/// Stalls within one write that are drawn one by one; more than that come as their mean.
const STALLS_DRAWN_MAX: f64 = 64.0;
/// Stalls ahead that are remembered for reads: more than fall into what a deep queue has in flight.
const STALLS_KEPT_MAX: usize = 1024;

/// Streams of randomness.
const LATENCIES: u64 = 0;
const MAPPING: u64 = 1;
const STALLS: u64 = 2;
const NOISE: u64 = 3;

/// What the drive's log says. Counters are since it was made.
///
/// Named as in NVMe's SMART / Health Information log page and OCP's extended log page, in bytes and nanoseconds; the rest is what a vendor's own
/// log would have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smart {
    /// Bytes that hosts wrote.
    pub data_units_written_bytes: u64,
    /// Bytes that hosts read.
    pub data_units_read_bytes: u64,
    /// Write commands of hosts.
    pub host_write_commands: u64,
    /// Read commands of hosts.
    pub host_read_commands: u64,
    /// Bytes written to the media: into the cache, where data stays, and there again by garbage collection. Never less than hosts wrote.
    pub media_bytes_written: u64,
    /// What was written where data stays, in percent of what hosts may write in the drive's life. What only went through the cache does
    /// not count: cells of one bit wear out far later.
    pub percentage_used: f64,
    /// Temperature in kelvin.
    pub temperature_kelvin: f64,
    /// For how long heat has slowed it down.
    pub thermal_throttle_nanoseconds: u64,
    /// How often heat began to.
    pub thermal_throttle_transitions: u64,
    /// Bytes moved out of the cache.
    pub folded_bytes: u64,
    /// Bytes moved by garbage collection.
    pub collected_bytes: u64,
    /// Bytes that were erased while a write waited for it.
    pub erased_bytes: u64,
    /// Bytes in the cache.
    pub cache_bytes_used: u64,
    /// How much the cache takes now.
    pub cache_bytes_size: u64,
    /// Bytes that hold data of hosts, to a unit.
    pub mapped_bytes: u64,
    /// How often it stood still.
    pub stalls: u64,
    /// The drive reports its cache, folding and garbage collection to hosts.
    pub has_own_counters: bool,
}

/// A drive. See the module.
pub struct Model {
    profile: Profile,
    layout: Layout,
    /// None for media that are written in place.
    flash: Option<Flash>,
    seed: u64,
    latencies: Random,
    mapping: Random,
    stalls: Random,
    /// The first time that was given. All others count from there, so that they are exact however late it is.
    epoch: Option<u64>,
    /// The latest time that was given.
    now: f64,
    /// When what was written so far is done.
    writes_done: f64,
    /// When what was read so far is done.
    reads_done: f64,
    /// Work of the drive's own that is not paid for yet, in nanoseconds.
    debt: f64,
    /// Until when idle time was used, or cannot be used.
    idle_from: f64,
    /// Time of writing until the next stall.
    until_stall: f64,
    /// From when until when it stood still, the latest last; those that are over when a host asks for something are forgotten.
    still: VecDeque<(f64, f64)>,
    heat: Warmth,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    written: u64,
    read: u64,
    write_commands: u64,
    read_commands: u64,
    cached: u64,
    folded_units: u64,
    collected_units: u64,
    erased_units: u64,
    stalls: u64,
}

/// How warm it is, and what it does against it.
struct Warmth {
    /// Above what it has in the end when it does nothing, in kelvin.
    above_idle: f64,
    at: f64,
    throttled: bool,
    throttled_for: f64,
    transitions: u64,
}

impl Model {
    /// An empty drive. The same seed and the same operations at the same times give the same answers.
    #[must_use]
    pub fn new(profile: &Profile, seed: u64) -> Model {
        let layout = Layout::of(profile);
        let when_full = profile.cache.map(|cache| cache.when_full);
        let flash = match profile.media {
            Media::Flash => Some(Flash::new(layout, profile.bits_per_cell, when_full)),
            Media::InPlace => None,
        };
        let mut model = Model {
            layout,
            flash,
            seed,
            latencies: Random::new(seed, LATENCIES),
            mapping: Random::new(seed, MAPPING),
            stalls: Random::new(seed, STALLS),
            epoch: None,
            now: 0.0,
            writes_done: 0.0,
            reads_done: 0.0,
            debt: 0.0,
            idle_from: 0.0,
            until_stall: f64::INFINITY,
            still: VecDeque::new(),
            heat: Warmth {
                above_idle: 0.0,
                at: 0.0,
                throttled: false,
                throttled_for: 0.0,
                transitions: 0,
            },
            counters: Counters::default(),
            profile: profile.clone(),
        };
        model.draw_stall();
        model
    }

    /// What hosts can store.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.profile.capacity_bytes
    }

    /// What it is a model of.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Takes a write that is submitted at `now` (ns, never decreasing; an earlier time counts as the latest one given). Returns the time
    /// at which it completes.
    ///
    /// # Panics
    /// When the range is not within the drive.
    pub fn write(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        self.check(offset, bytes);
        let now = self.advance(now);
        let (link, dies) = self.time_of_data(offset, bytes);
        let repaid = self.repay(bytes);
        let begins = now.max(self.writes_done);
        let at_rate = link
            .max(dies + repaid)
            .max(bytes as f64 / self.rate_limit() * NANOSECONDS_PER_SECOND);
        let noisy = at_rate / self.noise_at(begins);
        let takes = noisy.max(nanoseconds(bytes, self.profile.interface_bytes_per_second));
        self.counters.written += bytes;
        self.counters.write_commands += 1;
        self.writes_done = self.past_stalls(begins, takes);
        self.idle_from = self.writes_done + self.profile.idle_delay_nanoseconds;
        self.warm_up(begins, dies + repaid, takes);
        let latency = self.profile.write_latency;
        let jitter = self.latencies.exponential() * latency.jitter_nanoseconds;
        self.completion(self.writes_done + latency.minimum_nanoseconds + jitter)
    }

    /// As [`Model::write`], for a read.
    ///
    /// # Panics
    /// When the range is not within the drive.
    pub fn read(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        self.check(offset, bytes);
        let now = self.advance(now);
        let mut begins = now.max(self.reads_done);
        for (from, until) in &self.still {
            if (*from..*until).contains(&begins) {
                begins = *until;
            }
        }
        let rate = self.profile.read_bytes_per_second;
        let rate = rate.min(self.profile.interface_bytes_per_second);
        self.reads_done = begins + nanoseconds(bytes, rate);
        let mut latency = self.profile.read_latency.minimum_nanoseconds
            + self.latencies.exponential() * self.profile.read_latency.jitter_nanoseconds;
        if self.writes_done > begins {
            latency += self.latencies.uniform() * self.profile.program_nanoseconds;
        }
        self.counters.read += bytes;
        self.counters.read_commands += 1;
        let delay = self.profile.idle_delay_nanoseconds;
        self.idle_from = self.idle_from.max(self.reads_done + delay);
        self.completion(self.reads_done + latency)
    }

    /// As [`Model::write`], for a host's word that it does not need a range any more (Dataset Management, Deallocate). It takes the
    /// latency of a write.
    ///
    /// # Panics
    /// When the range is not within the drive.
    pub fn deallocate(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        self.check(offset, bytes);
        let now = self.advance(now);
        if let Some(flash) = &mut self.flash {
            for part in parts(&self.layout, self.profile.capacity_bytes, offset, bytes) {
                flash.deallocate(part.unit, part.bytes, part.of, &mut self.mapping);
            }
            if flash.mapped_units() == 0 {
                // What was to be tidied up is gone.
                self.debt = 0.0;
            }
        }
        let latency = self.profile.write_latency;
        let jitter = self.latencies.exponential() * latency.jitter_nanoseconds;
        self.completion(now + latency.minimum_nanoseconds + jitter)
    }

    /// As [`Model::write`], for a flush: done when every write before it is.
    pub fn flush(&mut self, now: u64) -> u64 {
        let now = self.advance(now);
        self.completion(now.max(self.writes_done) + self.profile.write_latency.minimum_nanoseconds)
    }

    /// What the drive's log says at `now`.
    pub fn smart(&mut self, now: u64) -> Smart {
        let now = self.advance(now);
        self.cool_down(now);
        let unit = self.layout.unit_bytes;
        let counters = &self.counters;
        let (folded, collected) = (
            counters.folded_units * unit,
            counters.collected_units * unit,
        );
        let stays = counters.written - counters.cached + folded + collected;
        let of_flash = |ask: fn(&Flash) -> u64| self.flash.as_ref().map_or(0, ask) * unit;
        Smart {
            data_units_written_bytes: counters.written,
            data_units_read_bytes: counters.read,
            host_write_commands: counters.write_commands,
            host_read_commands: counters.read_commands,
            media_bytes_written: counters.written + folded + collected,
            percentage_used: stays as f64 / self.profile.rated_write_bytes as f64 * 100.0,
            temperature_kelvin: self.celsius() + CELSIUS_ZERO_KELVIN,
            thermal_throttle_nanoseconds: self.heat.throttled_for as u64,
            thermal_throttle_transitions: self.heat.transitions,
            folded_bytes: folded,
            collected_bytes: collected,
            erased_bytes: counters.erased_units * unit,
            cache_bytes_used: of_flash(Flash::cache_used_units),
            cache_bytes_size: of_flash(Flash::cache_size_units),
            mapped_bytes: of_flash(Flash::mapped_units),
            stalls: counters.stalls,
            has_own_counters: self.profile.has_own_counters,
        }
    }

    /// Times are given in whole nanoseconds: the first one at which it is done.
    fn completion(&self, at: f64) -> u64 {
        self.epoch.unwrap_or(0).saturating_add(at.ceil() as u64)
    }

    fn check(&self, offset: u64, bytes: u64) {
        let capacity = self.profile.capacity_bytes;
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= capacity),
            "{bytes} bytes at {offset} are not within {capacity}"
        );
    }

    /// Does what a drive does in the time in which nothing was asked of it.
    fn advance(&mut self, now: u64) -> f64 {
        let epoch = *self.epoch.get_or_insert(now);
        self.now = self.now.max(now.saturating_sub(epoch) as f64);
        let now = self.now;
        while self.still.front().is_some_and(|(_, until)| *until <= now) {
            self.still.pop_front();
        }
        // What is owed is worked off as soon as hosts leave time for it.
        let delay = self.profile.idle_delay_nanoseconds;
        let free_from = self.writes_done.max(self.idle_from - delay);
        if self.debt > 0.0 && free_from < now {
            let paid = self.debt.min(now - free_from);
            self.debt -= paid;
            self.idle_from = free_from + paid + delay;
            self.warm_up(free_from, paid, paid);
        }
        if self.idle_from < now {
            self.tidy_until(now);
        }
        now
    }

    fn tidy_until(&mut self, now: f64) {
        let Some(flash) = &mut self.flash else { return };
        let unit = self.layout.unit_bytes;
        let fold_rate = self
            .profile
            .cache
            .map_or(1.0, |cache| cache.fold_bytes_per_second);
        let fold = nanoseconds(unit, fold_rate);
        let program = nanoseconds(unit, self.profile.program_bytes_per_second);
        let begins = self.idle_from;
        let mut at = begins;
        // The last thing may end later than now; what is left of it keeps no host waiting.
        while at < now {
            match flash.tidy() {
                Some(Tidied::Folded { moved: true }) => at += fold,
                Some(Tidied::Folded { moved: false }) => {}
                Some(Tidied::Collected(units)) => at += program * units as f64,
                None => break,
            }
        }
        let worked = at - begins;
        if let Some(rate) = self.profile.erase_bytes_per_second
            && at < now
            && flash.dirty_units() > 0
        {
            let erase = nanoseconds(unit, rate);
            let units = (((now - at) / erase) as u64).min(flash.dirty_units());
            flash.erase(units);
            at += erase * units as f64;
        }
        let work = flash.take_work();
        self.counters.folded_units += work.folded;
        self.counters.collected_units += work.collected;
        let is_tidy = flash.dirty_units() == 0 || self.profile.erase_bytes_per_second.is_none();
        self.idle_from = if is_tidy { at.max(now) } else { at };
        self.warm_up(begins, worked, worked);
    }

    /// Where the data goes, and how long that takes the link and the controller, and the dies.
    fn time_of_data(&mut self, offset: u64, bytes: u64) -> (f64, f64) {
        let profile = &self.profile;
        let Some(flash) = &mut self.flash else {
            let time = nanoseconds(bytes, profile.direct_bytes_per_second);
            return (time, time);
        };
        let mut cached = 0;
        for part in parts(&self.layout, profile.capacity_bytes, offset, bytes) {
            if flash.write(part.unit, part.bytes, part.of, &mut self.mapping) {
                cached += part.bytes;
            }
        }
        let work = flash.take_work();
        let unit = self.layout.unit_bytes;
        if let Some(cache) = profile.cache {
            self.debt += nanoseconds(work.folded * unit, cache.fold_bytes_per_second);
        }
        self.debt += nanoseconds(work.collected * unit, profile.program_bytes_per_second);
        if let Some(rate) = profile.erase_bytes_per_second {
            self.debt += nanoseconds(work.erased * unit, rate);
        }
        self.counters.cached += cached;
        self.counters.folded_units += work.folded;
        self.counters.collected_units += work.collected;
        self.counters.erased_units += work.erased;
        let direct = bytes - cached;
        let into_cache = profile
            .cache
            .map_or(0.0, |cache| nanoseconds(cached, cache.bytes_per_second));
        (
            into_cache + nanoseconds(direct, profile.direct_bytes_per_second),
            into_cache + nanoseconds(direct, profile.program_bytes_per_second),
        )
    }

    /// The share of what is owed that this write pays.
    fn repay(&mut self, bytes: u64) -> f64 {
        let spread = (self.layout.superblock_units * self.layout.unit_bytes) as f64;
        let share = (bytes as f64 / spread).min(1.0);
        let repaid = match self.debt {
            debt if debt < DEBT_LEAST => debt,
            debt => debt * share,
        };
        self.debt -= repaid;
        repaid
    }

    /// The lowest of the rates that background work and heat leave, in bytes a second.
    fn rate_limit(&self) -> f64 {
        let background = self.profile.background.filter(|background| {
            let within = self.counters.written % background.every_bytes;
            within >= background.every_bytes - background.length_bytes
        });
        let background = background.map_or(f64::INFINITY, |background| background.bytes_per_second);
        match self.profile.heat.throttle {
            Some(throttle) if self.heat.throttled => background.min(throttle.bytes_per_second),
            _ => background,
        }
    }

    /// What noise makes of the rate of a write that begins then.
    fn noise_at(&self, begins: f64) -> f64 {
        if self.profile.noise == 0.0 {
            return 1.0;
        }
        let interval = self.completion(begins) / NOISE_NANOSECONDS;
        let draw =
            |interval: u64| Random::new(self.seed ^ interval.rotate_left(32), NOISE).normal();
        let normal = match self.profile.noise_correlation {
            0.0 => draw(interval),
            // Of draws that count the less the longer ago they were.
            correlation => {
                let (mut sum, mut squares, mut weight) = (0.0, 0.0, 1.0);
                for before in 0..NOISE_DRAWS {
                    sum += weight * draw(interval.wrapping_sub(before));
                    squares += weight * weight;
                    weight *= correlation;
                }
                sum / f64::sqrt(squares)
            }
        };
        (1.0 + self.profile.noise * normal).max(NOISE_LEAST)
    }

    fn draw_stall(&mut self) {
        if let Some(stall) = self.profile.stall {
            self.until_stall = self.stalls.exponential() * stall.every_nanoseconds;
        }
    }

    /// When a write ends that begins then and takes so long, with the stalls that fall into it.
    fn past_stalls(&mut self, begins: f64, takes: f64) -> f64 {
        let Some(stall) = self.profile.stall else {
            return begins + takes;
        };
        let mut ends = begins + takes;
        self.until_stall -= takes;
        let behind = -self.until_stall / stall.every_nanoseconds;
        if behind > STALLS_DRAWN_MAX {
            let length = takes * stall.share();
            self.stand_still(ends, length, behind as u64);
            self.draw_stall();
            return ends + length;
        }
        while self.until_stall < 0.0 {
            let length = self.stalls.exponential().min(Stall::LONGEST) * stall.mean_nanoseconds;
            self.stand_still(ends, length, 1);
            ends += length;
            let behind = self.until_stall;
            self.draw_stall();
            self.until_stall += behind;
        }
        ends
    }

    fn stand_still(&mut self, from: f64, length: f64, times: u64) {
        self.counters.stalls += times;
        if self.still.len() == STALLS_KEPT_MAX {
            self.still.pop_front();
        }
        self.still.push_back((from, from + length));
    }

    fn celsius(&self) -> f64 {
        self.profile.heat.idle_celsius + self.heat.above_idle
    }

    /// Work of the dies heats the drive over the time that it takes.
    fn warm_up(&mut self, begins: f64, work: f64, takes: f64) {
        self.cool_down(begins);
        if takes > 0.0 {
            let heat = self.profile.heat;
            let busy = (work / takes).min(1.0);
            self.heat
                .tend(&heat, heat.rise_kelvin * busy, begins + takes);
        }
    }

    /// Lets it become as warm as it is at `at`, when nothing heats it.
    fn cool_down(&mut self, at: f64) {
        self.heat.tend(&self.profile.heat, 0.0, at);
    }
}

impl Warmth {
    /// Until `until` it tends to `end` kelvin above what it has when it does nothing, and meets no limit more than once on the way.
    fn tend(&mut self, heat: &Heat, end: f64, until: f64) {
        let time = until - self.at;
        if time <= 0.0 {
            return;
        }
        let (begin, constant) = (self.above_idle, heat.time_constant_nanoseconds);
        let after = |time: f64| end + (begin - end) * decay(time / constant);
        let was_throttled = self.throttled;
        let mut crossed = None;
        if let Some(throttle) = heat.throttle {
            let limit = throttle.at_celsius - heat.idle_celsius;
            let beyond = |above: f64| match was_throttled {
                true => above <= limit - throttle.hysteresis_kelvin,
                false => above >= limit,
            };
            if beyond(begin) || beyond(after(time)) {
                crossed = Some(first(time, |time| beyond(after(time))));
            }
        }
        if let Some(crossed) = crossed {
            self.throttled = !was_throttled;
            self.transitions += u64::from(self.throttled);
            self.throttled_for += match was_throttled {
                true => crossed,
                false => time - crossed,
            };
        } else if was_throttled {
            self.throttled_for += time;
        }
        self.above_idle = after(time);
        self.at = until;
    }
}

/// The first time up to `end` at which `holds`, which from then on goes on to hold, to one part in 2^50 of `end`.
fn first(end: f64, holds: impl Fn(f64) -> bool) -> f64 {
    const HALVINGS: u32 = 50;
    let (mut before, mut at) = (0.0, end);
    if holds(before) {
        return before;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(before, at);
        match holds(middle) {
            true => at = middle,
            false => before = middle,
        }
    }
    at
}

/// What of an operation lies in one unit.
struct Part {
    unit: u32,
    bytes: u64,
    /// What the unit has: the last one of a drive may be short.
    of: u64,
}

fn parts(layout: &Layout, capacity: u64, offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let unit_bytes = layout.unit_bytes;
    let end = offset + bytes;
    let units = offset / unit_bytes..end.div_ceil(unit_bytes);
    units.filter(move |_| bytes > 0).map(move |unit| {
        let (from, until) = (unit * unit_bytes, ((unit + 1) * unit_bytes).min(capacity));
        Part {
            unit: unit as u32,
            bytes: until.min(end) - from.max(offset),
            of: until - from,
        }
    })
}

fn nanoseconds(bytes: u64, bytes_per_second: f64) -> f64 {
    bytes as f64 * (NANOSECONDS_PER_SECOND / bytes_per_second)
}

/// About e to the power of `-x`, by operations that are the same on every machine.
fn decay(x: f64) -> f64 {
    const TERMS: u32 = 12;
    // The series converges quickly where x is small; elsewhere it is taken in parts.
    let parts = (2.0 * x).ceil().clamp(1.0, 128.0);
    let small = x / parts;
    let mut series = 1.0;
    for term in (1..=TERMS).rev() {
        series = 1.0 + series * small / f64::from(term);
    }
    let one = 1.0 / series;
    (0..parts as u32).fold(1.0, |product, _| product * one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_is_exponential() {
        for x in [0.0, 1e-9, 0.01, 0.5, 1.0, 3.3, 20.0, 60.0] {
            let exact = f64::exp(-x);
            assert!((decay(x) - exact).abs() <= 1e-9 * exact, "{x}");
        }
        assert!(decay(1e6) < 1e-20);
    }

    #[test]
    fn parts_cover_an_operation_once() {
        let layout = Layout {
            unit_bytes: 4096,
            units: 3,
            superblock_units: 8,
            superblocks: 13,
            static_units: 0,
            dynamic_units: 0,
        };
        let found: Vec<_> = parts(&layout, 10_000, 4000, 6000)
            .map(|part| (part.unit, part.bytes, part.of))
            .collect();
        assert_eq!(found, [(0, 96, 4096), (1, 4096, 4096), (2, 1808, 1808)]);
        assert_eq!(parts(&layout, 10_000, 4000, 0).count(), 0);
    }
}
