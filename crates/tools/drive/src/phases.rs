//! What a finished pass comes to: its phases with their names, its worst windows, and what came of a recovery.
//!
//! A drive's own counters tell what a phase is: heat held it back for most of the time; its cache took the data; its cache became smaller; it moved data
//! out of its cache; or none of these, and data went to where it stays: at the rate of the fastest such phase, and for a cause that is not known where it was slower
//! in a fill. A drive without such counters leaves only the place in the pass: what is fast at
//! the beginning of a fill, and never again in it, is a cache; what else there is has a cause that is not known.

use crate::analysis::{self, STEP_LEAST, Segment};
use crate::course::{Current, longest_gap};
use crate::document::{
    Health, HealthSample, NotMeasured, Pass, PassKind, Phase, Recovery, SEGMENT_BINS, Sample,
};

/// Names of phases, as documents have them.
pub mod name {
    /// What is written goes to a cache that has room.
    pub const CACHE: &str = "cache";
    /// What is written goes to where it stays.
    pub const DIRECT: &str = "direct";
    /// What is in the cache is moved out of it, to make room.
    pub const FOLDING: &str = "folding";
    /// The cache becomes smaller.
    pub const SHRINKING: &str = "shrinking cache";
    /// What is written takes the place of what was there.
    pub const OVERWRITE: &str = "overwrite";
    /// Heat holds the drive back.
    pub const THROTTLED: &str = "throttled by heat";
    /// Nothing tells.
    pub const UNKNOWN: &str = "unknown cause";
}

/// A name came from the drive's counters.
const COUNTERS: &str = "counters";
/// A name came from the place in the pass.
const POSITION: &str = "position";
/// Of a phase's bytes, so much at either end is not looked at: its ends are not known better than that.
const MARGIN: f64 = 0.1;
/// Heat is the cause where it held the drive back for this part of the time.
const THROTTLED_PART: f64 = 0.5;
/// The cache takes the data where its contents grow by this part of it.
const CACHED_PART: f64 = 0.5;
/// The cache shrinks where it loses this part of itself,
const SHRUNK_PART: f64 = 0.02;
/// and this part of what is written: what is stored takes a cell of three bits for each two that the cache gives up. Where room comes and goes, as with what is
/// deallocated ahead, it loses little for much.
const SHRUNK_WRITTEN_PART: f64 = 0.1;
/// Folding is the cause where this part of what is written is moved besides.
const FOLDED_PART: f64 = 0.25;

/// What the cache was in a fill: how much it took, and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cache {
    /// What it took.
    pub bytes: u64,
    /// The median rate meanwhile.
    pub bytes_per_second: f64,
    /// The median rate when it was full.
    pub full_bytes_per_second: f64,
}

impl Cache {
    /// The rate that tells one from the other: as many times below the one as it is above the other.
    fn bytes_per_second_between(&self) -> f64 {
        (self.bytes_per_second * self.full_bytes_per_second).sqrt()
    }
}

/// What the passes made so far show of a cache. None where no fill is among them, or it shows none.
#[must_use]
pub fn cache(passes: &[Pass]) -> Option<Cache> {
    let fill = passes.iter().find(|pass| pass.pass == PassKind::Fill)?;
    let [first, second, ..] = &fill.phases[..] else {
        return None;
    };
    let is_faster = first.rate.median > second.rate.median * (1.0 + STEP_LEAST);
    (is_faster && first.name == name::CACHE).then_some(Cache {
        bytes: first.ends_at_bytes,
        bytes_per_second: first.rate.median,
        full_bytes_per_second: second.rate.median,
    })
}

/// A pass as it is stored. `before` are the passes made before it.
#[must_use]
pub fn pass(current: &Current, trim_ahead_bytes: u64, before: &[Pass]) -> Pass {
    let samples = &current.samples;
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let found = analysis::segments(samples);
    let rate_window_seconds = analysis::window_seconds(seconds);
    let phases: Vec<Phase> = found
        .segments
        .iter()
        .filter_map(|segment| phase(segment, samples, rate_window_seconds))
        .collect();
    let phases = named(phases, current.pass, &current.health);
    Pass {
        pass: current.pass,
        complete: current.position_bytes >= current.end_bytes,
        worst_windows: analysis::worst_windows(samples),
        rate_window_seconds,
        noise: found.noise,
        health: current.health.clone(),
        interrupted_at_bytes: current.interrupted_at_bytes.clone(),
        alone: current.alone,
        trim_ahead_bytes: (current.pass == PassKind::OverwriteTrimmed).then_some(trim_ahead_bytes),
        recovery: (current.pass == PassKind::Recovery)
            .then(|| recovery(current, &phases, &found.segments, cache(before))),
        samples: samples.clone(),
        phases,
    }
}

fn phase(segment: &Segment, samples: &[Sample], window_seconds: f64) -> Option<Phase> {
    let samples = &samples[segment.first..segment.end];
    let longest_ns = samples.iter().map(|of| of.nanoseconds_longest).max()?;
    // Of a run that an older Weir began, a part has no gaps: then the longest is not known.
    let gap_ns = longest_gap(samples.iter().map(|of| of.nanoseconds_gap));
    Some(Phase {
        name: name::UNKNOWN.to_owned(),
        told_by: POSITION.to_owned(),
        begins_at_bytes: segment.begins_at_bytes,
        ends_at_bytes: segment.ends_at_bytes,
        seconds: samples.iter().map(|of| of.seconds).sum(),
        rate: analysis::rate(samples, window_seconds)?,
        slowest_write_seconds: longest_ns as f64 / 1e9,
        longest_gap_seconds: gap_ns.map(|ns| ns as f64 / 1e9),
    })
}

fn named(mut phases: Vec<Phase>, pass: PassKind, health: &[HealthSample]) -> Vec<Phase> {
    let rates: Vec<f64> = phases.iter().map(|phase| phase.rate.median).collect();
    for (place, phase) in phases.iter_mut().enumerate() {
        let (name, told_by) = match by_counters(phase, pass, health) {
            Some(name) => (name, COUNTERS),
            None => (by_position(place, &rates, pass), POSITION),
        };
        phase.name = name.to_owned();
        phase.told_by = told_by.to_owned();
    }
    // What goes to where it stays has one rate: what is slower in a fill has another cause, which no counter tells.
    let direct = |phase: &&mut Phase| phase.name == name::DIRECT;
    let fastest = phases
        .iter_mut()
        .filter(direct)
        .map(|phase| phase.rate.median);
    let fastest = fastest.fold(0.0, f64::max);
    for phase in phases.iter_mut().filter(direct) {
        if phase.rate.median * (1.0 + STEP_LEAST) < fastest {
            phase.name = name::UNKNOWN.to_owned();
        }
    }
    phases
}

/// Where data goes that goes to no cache.
fn plain(pass: PassKind) -> &'static str {
    match pass {
        PassKind::Fill => name::DIRECT,
        PassKind::Overwrite | PassKind::OverwriteTrimmed | PassKind::Recovery => name::OVERWRITE,
    }
}

fn by_position(place: usize, rates: &[f64], pass: PassKind) -> &'static str {
    match rates {
        [_] => plain(pass),
        [first, later @ ..] if place == 0 && pass == PassKind::Fill => {
            let is_slower = |rate: &f64| *first > rate * (1.0 + STEP_LEAST);
            match later.iter().all(is_slower) {
                true => name::CACHE,
                false => name::UNKNOWN,
            }
        }
        _ => name::UNKNOWN,
    }
}

/// What the counters say; none where they do not say enough.
fn by_counters(phase: &Phase, pass: PassKind, health: &[HealthSample]) -> Option<&'static str> {
    let length = phase.ends_at_bytes.checked_sub(phase.begins_at_bytes)? as f64;
    let from = phase.begins_at_bytes as f64 + MARGIN * length;
    let to = phase.ends_at_bytes as f64 - MARGIN * length;
    let grown = |of: fn(&Health) -> Option<f64>| Some(at(health, to, of)? - at(health, from, of)?);
    let part = 1.0 - 2.0 * MARGIN;
    let (bytes, seconds) = (length * part, phase.seconds * part);
    let throttled = grown(|of| of.thermal_throttle_nanoseconds.map(|ns| ns as f64 / 1e9));
    let throttled_by_time = throttled.is_some_and(|throttled| throttled > THROTTLED_PART * seconds);
    let throttled_by_level =
        part_throttled(health, from, to).is_some_and(|part| part > THROTTLED_PART);
    if throttled_by_time || throttled_by_level {
        return Some(name::THROTTLED);
    }
    let size = |of: &Health| of.cache_bytes_size.map(|bytes| bytes as f64);
    let at_first = at(health, from, size)?;
    if at_first <= 0.0 {
        return Some(plain(pass));
    }
    let cached = grown(|of| of.cache_bytes_used.map(|bytes| bytes as f64))?;
    let folded = grown(|of| of.folded_bytes.map(|bytes| bytes as f64))?;
    let lost = -grown(size)?;
    // What was moved out of the cache had gone into it.
    if cached > CACHED_PART * bytes {
        Some(name::CACHE)
    } else if lost > SHRUNK_PART * at_first && lost > SHRUNK_WRITTEN_PART * bytes {
        Some(name::SHRINKING)
    } else if folded > FOLDED_PART * bytes {
        Some(name::FOLDING)
    } else {
        Some(plain(pass))
    }
}

/// Of the times that the drive said how much heat holds it back, in how many parts of all it did. None where it never said it.
fn part_throttled(health: &[HealthSample], from: f64, to: f64) -> Option<f64> {
    let there = |sample: &&HealthSample| (from..=to).contains(&(sample.at_bytes as f64));
    let levels = health.iter().filter(there);
    let levels: Vec<u8> = levels
        .filter_map(|sample| sample.health.throttling_level)
        .collect();
    let throttled = levels.iter().filter(|&&level| level > 0).count();
    (!levels.is_empty()).then(|| throttled as f64 / levels.len() as f64)
}

/// A counter at a place between two samples of it. None where it is not known there.
fn at(health: &[HealthSample], bytes: f64, of: fn(&Health) -> Option<f64>) -> Option<f64> {
    let after = health.partition_point(|sample| (sample.at_bytes as f64) < bytes);
    let after = after.clamp(1, health.len().checked_sub(1)?.max(1));
    let (one, other) = (health.get(after - 1)?, health.get(after)?);
    let (from, to) = (of(&one.health)?, of(&other.health)?);
    let (begin, end) = (one.at_bytes as f64, other.at_bytes as f64);
    match end > begin {
        true => Some(from + (to - from) * (bytes - begin) / (end - begin)),
        false => Some(to),
    }
}

fn recovery(
    current: &Current,
    phases: &[Phase],
    segments: &[Segment],
    cache: Option<Cache>,
) -> Recovery {
    let is_made = current.position_bytes >= current.end_bytes;
    // So few samples are one phase, whatever they are, and one of them is a large part of the burst.
    let are_few = current.samples.len() < SEGMENT_BINS;
    let returned = match cache {
        None => Err(NotMeasured::NoCache),
        Some(_) if are_few && is_made => Err(NotMeasured::TooFewSamples),
        Some(_) if are_few => Err(NotMeasured::Unfinished),
        Some(cache) => {
            let returned = returned_bytes(&current.samples, phases, segments, cache);
            match is_made || shows_an_end(&current.samples, returned) {
                true => Ok(returned),
                false => Err(NotMeasured::Unfinished),
            }
        }
    };
    Recovery {
        idle_seconds: current.idled_nanoseconds.unwrap_or_default() as f64 / 1e9,
        returned_bytes: returned.ok(),
        not_measured: returned.err(),
        cache_bytes: cache.map(|cache| cache.bytes),
    }
}

/// Whether so many samples are beyond a place that they are a phase: fewer may be a stall, after which more would have come at the cache's rate.
fn shows_an_end(samples: &[Sample], at_bytes: u64) -> bool {
    let ends = samples.iter().scan(0, |ends_at_bytes, sample| {
        *ends_at_bytes += sample.bytes;
        Some(*ends_at_bytes)
    });
    ends.filter(|end| *end > at_bytes).count() >= SEGMENT_BINS
}

fn returned_bytes(samples: &[Sample], phases: &[Phase], segments: &[Segment], cache: Cache) -> u64 {
    let between = cache.bytes_per_second_between();
    let cached = phases
        .iter()
        .take_while(|phase| phase.rate.median >= between);
    let Some(last) = cached.count().checked_sub(1) else {
        let first = segments.first().map_or(0, |segment| segment.end);
        return returned_at_first(&samples[..first], cache);
    };
    // A phase is six samples long at least, and what came back may be less: what is slow at its end is not of it.
    let (first, end) = (segments[last].first, segments[last].end);
    let slow = (samples[first..end].iter().rev())
        .take_while(|sample| sample.rate() < between)
        .map(|sample| sample.bytes)
        .sum::<u64>();
    segments[last].ends_at_bytes - slow
}

/// What went at the cache's rate at the beginning of a phase that did not, because that was too short to be a phase of its own. The two rates are known from the fill, so that one
/// sample tells: the cut is where it costs least that those before it are off the one on the logarithm, and those behind it off the other.
fn returned_at_first(samples: &[Sample], cache: Cache) -> u64 {
    let between = cache.bytes_per_second_between();
    let most = (cache.bytes_per_second / between).ln();
    let (mut sum, mut bytes) = (0.0, 0);
    let (mut highest, mut returned) = (0.0, 0);
    for sample in samples {
        // Of a sample without a byte the logarithm is none, and it is as slow as can be.
        sum += (sample.rate() / between).ln().clamp(-most, most);
        bytes += sample.bytes;
        if sum > highest {
            (highest, returned) = (sum, bytes);
        }
    }
    returned
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_BYTES: u64 = 1000;

    /// So many seconds at each rate.
    fn current(pass: PassKind, rates: &[(u64, u64)]) -> Current {
        let samples: Vec<Sample> = rates
            .iter()
            .flat_map(|&(seconds, rate)| {
                (0..seconds).map(move |_| Sample {
                    seconds: 1.0,
                    bytes: rate * SECOND_BYTES,
                    nanoseconds_longest: 1_000_000,
                    nanoseconds_gap: Some(100_000),
                })
            })
            .collect();
        let bytes = samples.iter().map(|of| of.bytes).sum();
        Current {
            position_bytes: bytes,
            samples,
            ..Current::new(pass, bytes)
        }
    }

    fn names(pass: &Pass) -> Vec<(&str, &str)> {
        pass.phases
            .iter()
            .map(|phase| (phase.name.as_str(), phase.told_by.as_str()))
            .collect()
    }

    #[test]
    fn without_counters_the_place_is_all_that_tells() {
        let fill = pass(
            &current(PassKind::Fill, &[(50, 30), (100, 16), (100, 9)]),
            0,
            &[],
        );
        let expected = [name::CACHE, name::UNKNOWN, name::UNKNOWN];
        assert_eq!(names(&fill), expected.map(|name| (name, POSITION)));
        assert!(fill.complete);
        let flat = pass(&current(PassKind::Fill, &[(100, 22)]), 0, &[]);
        assert_eq!(names(&flat), [(name::DIRECT, POSITION)]);
        let over = pass(&current(PassKind::Overwrite, &[(100, 16)]), 0, &[]);
        assert_eq!(names(&over), [(name::OVERWRITE, POSITION)]);
        assert_eq!((cache(&[flat, over.clone()]), over.recovery), (None, None));
        // What is fast at first and again later is no cache, and what an overwrite begins with is none either.
        let dips = pass(
            &current(PassKind::Fill, &[(100, 17), (50, 13), (100, 17)]),
            0,
            &[],
        );
        assert_eq!(names(&dips), [(name::UNKNOWN, POSITION); 3]);
        assert_eq!(cache(&[dips]), None);
        let over = pass(
            &current(PassKind::Overwrite, &[(50, 30), (100, 16)]),
            0,
            &[],
        );
        assert_eq!(names(&over), [(name::UNKNOWN, POSITION); 2]);
    }

    /// Counters at the ends of stretches: (bytes, cache used, cache size, folded, throttled seconds).
    fn with_health(mut of: Current, counters: &[(u64, u64, u64, u64, u64)]) -> Current {
        of.health = counters
            .iter()
            .map(|&(seconds, used, size, folded, throttled)| HealthSample {
                at_bytes: seconds * SECOND_BYTES,
                health: Health {
                    cache_bytes_used: Some(used * SECOND_BYTES),
                    cache_bytes_size: Some(size * SECOND_BYTES),
                    folded_bytes: Some(folded * SECOND_BYTES),
                    thermal_throttle_nanoseconds: Some(throttled * 1_000_000_000),
                    ..Health::default()
                },
            })
            .collect();
        of
    }

    #[test]
    fn counters_tell_what_a_phase_is() {
        let fill = current(
            PassKind::Fill,
            &[(50, 30), (100, 16), (100, 9), (100, 5), (100, 16)],
        );
        let fill = with_health(
            fill,
            &[
                (0, 0, 1500, 0, 0),
                (1500, 1500, 1500, 0, 0),
                (3100, 1500, 1500, 0, 0),
                (4000, 1500, 1500, 900, 0),
                (4500, 1000, 1000, 1400, 0),
                (6100, 1000, 1000, 1400, 80),
            ],
        );
        let found = pass(&fill, 0, &[]);
        let expected = [
            name::CACHE,
            name::DIRECT,
            name::FOLDING,
            name::SHRINKING,
            name::THROTTLED,
        ];
        assert_eq!(names(&found), expected.map(|name| (name, COUNTERS)));
        // A drive without a cache says so, and what is slower at times has a cause that it does not tell.
        let dips = current(PassKind::Fill, &[(100, 17), (50, 13), (100, 17)]);
        let dips = with_health(dips, &[(0, 0, 0, 0, 0), (4050, 0, 0, 0, 0)]);
        let expected = [name::DIRECT, name::UNKNOWN, name::DIRECT];
        let found = pass(&dips, 0, &[]);
        assert_eq!(names(&found), expected.map(|name| (name, COUNTERS)));
        assert_eq!(cache(std::slice::from_ref(&found)), None);
        // Nor does a cache shrink that is a little smaller at the end of a long pass.
        let trimmed = current(PassKind::OverwriteTrimmed, &[(100, 10)]);
        let trimmed = with_health(trimmed, &[(0, 0, 600, 0, 0), (1000, 0, 580, 0, 0)]);
        let found = pass(&trimmed, 0, &[]);
        assert_eq!(names(&found), [(name::OVERWRITE, COUNTERS)]);
        let over = current(PassKind::Overwrite, &[(100, 10)]);
        let over = with_health(over, &[(0, 0, 0, 0, 0), (1000, 0, 0, 0, 0)]);
        assert_eq!(names(&pass(&over, 0, &[])), [(name::OVERWRITE, COUNTERS)]);
    }

    #[test]
    fn heat_is_told_by_the_drive_that_counts_it_or_says_its_level_and_by_no_other() {
        let of = |levels: &[(u64, Option<u8>)], seconds: &[(u64, u64)]| {
            let mut fill = current(PassKind::Fill, &[(100, 30), (100, 9)]);
            let sample = |at_bytes: u64, health| HealthSample { at_bytes, health };
            let levels = levels.iter().map(|&(at, throttling_level)| {
                let health = Health {
                    throttling_level,
                    ..Health::default()
                };
                sample(at * SECOND_BYTES, health)
            });
            let seconds = seconds.iter().map(|&(at, seconds)| {
                let health = Health {
                    thermal_throttle_nanoseconds: Some(seconds * 1_000_000_000),
                    ..Health::default()
                };
                sample(at * SECOND_BYTES, health)
            });
            fill.health = levels.chain(seconds).collect();
            let pass = pass(&fill, 0, &[]);
            let names = names(&pass).into_iter();
            names
                .map(|(name, by)| (name.to_owned(), by.to_owned()))
                .collect::<Vec<_>>()
        };
        let heat = |by: &str| {
            vec![
                (name::CACHE.to_owned(), POSITION.to_owned()),
                (name::THROTTLED.to_owned(), by.to_owned()),
            ]
        };
        let level = |level| {
            [
                (0, Some(0)),
                (1500, Some(0)),
                (3300, Some(level)),
                (3600, Some(level)),
            ]
        };
        assert_eq!(of(&level(1), &[]), heat(COUNTERS));
        assert_eq!(of(&[], &[(0, 5), (3000, 5), (3900, 95)]), heat(COUNTERS));
        // A drive that says that it is not held back, or not for long, and one that does not say it.
        for told in [
            of(&level(0), &[]),
            of(&[(3300, Some(0)), (3500, Some(0)), (3600, Some(3))], &[]),
            of(&[(3300, None), (3600, None)], &[]),
            of(&[], &[(0, 5), (3000, 5), (3900, 25)]),
        ] {
            assert_eq!(told[1], (name::UNKNOWN.to_owned(), POSITION.to_owned()));
        }
    }

    #[test]
    fn what_came_back_is_what_goes_at_the_caches_rate() {
        let fill = pass(&current(PassKind::Fill, &[(50, 30), (200, 16)]), 0, &[]);
        let found = cache(std::slice::from_ref(&fill)).unwrap();
        assert_eq!((found.bytes, found.bytes_per_second), (1_500_000, 30_000.0));
        for (burst, returned) in [
            (vec![(20, 29), (150, 16)], 580_000),
            (vec![(100, 30)], 3_000_000),
            (vec![(150, 16)], 0),
        ] {
            let mut burst = current(PassKind::Recovery, &burst);
            burst.idled_nanoseconds = Some(5_000_000_000);
            let recovery = pass(&burst, 0, std::slice::from_ref(&fill))
                .recovery
                .unwrap();
            assert_eq!(recovery.returned_bytes, Some(returned));
            assert_eq!(
                (recovery.idle_seconds, recovery.cache_bytes),
                (5.0, Some(1_500_000))
            );
        }
        // Three seconds are too short to be a phase of their own.
        let mut burst = current(PassKind::Recovery, &[(3, 29), (150, 16)]);
        burst.idled_nanoseconds = Some(5_000_000_000);
        let of = pass(&burst, 0, std::slice::from_ref(&fill));
        let returned = of.recovery.unwrap().returned_bytes;
        assert_eq!(returned, Some(87_000));
        // Nor is one that is as slow as what is behind it, between stalls.
        let mut burst = current(PassKind::Recovery, &[(1, 0), (150, 16), (1, 0), (9, 16)]);
        burst.idled_nanoseconds = Some(5_000_000_000);
        let of = pass(&burst, 0, std::slice::from_ref(&fill));
        assert_eq!(of.recovery.unwrap().returned_bytes, Some(0));
        // Of so few that they are one phase nothing is said, but why.
        for few in [
            vec![(2, 29), (3, 16)],
            vec![(5, 16)],
            vec![(5, 30)],
            vec![(1, 16)],
        ] {
            let mut burst = current(PassKind::Recovery, &few);
            burst.idled_nanoseconds = Some(5_000_000_000);
            let of = pass(&burst, 0, std::slice::from_ref(&fill));
            let recovery = of.recovery.unwrap();
            assert_eq!(recovery.returned_bytes, None, "{few:?}");
            assert_eq!(recovery.not_measured, Some(NotMeasured::TooFewSamples));
            assert_eq!(recovery.cache_bytes, Some(1_500_000));
        }
        // Where a burst that was stopped has shown the end of the cache, it is known. To write more of the drive is no way out where it has not.
        for (stopped, returned, not_measured) in [
            (vec![(3, 29)], None, Some(NotMeasured::Unfinished)),
            (vec![(20, 29)], None, Some(NotMeasured::Unfinished)),
            (vec![(20, 29), (1, 5)], None, Some(NotMeasured::Unfinished)),
            (vec![(20, 29), (3, 16)], None, Some(NotMeasured::Unfinished)),
            (vec![(20, 29), (20, 16)], Some(580_000), None),
            (vec![(2, 29), (3, 16)], None, Some(NotMeasured::Unfinished)),
            (vec![(2, 29), (6, 16)], Some(58_000), None),
            (vec![(20, 16)], Some(0), None),
        ] {
            let mut burst = current(PassKind::Recovery, &stopped);
            burst.end_bytes += 1_000_000;
            let of = pass(&burst, 0, std::slice::from_ref(&fill));
            let recovery = of.recovery.unwrap();
            assert_eq!(
                (recovery.returned_bytes, recovery.not_measured),
                (returned, not_measured)
            );
        }
        let enough = pass(
            &current(PassKind::Recovery, &[(2, 29), (4, 16)]),
            0,
            std::slice::from_ref(&fill),
        );
        let recovery = enough.recovery.unwrap();
        assert_eq!(recovery.returned_bytes, Some(58_000));
        assert_eq!(recovery.not_measured, None);
        // A cliff of a tenth is one too: what goes at the rate beyond it did not come back.
        let small = pass(&current(PassKind::Fill, &[(50, 120), (200, 110)]), 0, &[]);
        let mut burst = current(PassKind::Recovery, &[(20, 120), (150, 110)]);
        burst.idled_nanoseconds = Some(5_000_000_000);
        let recovery = pass(&burst, 0, std::slice::from_ref(&small)).recovery;
        assert_eq!(recovery.unwrap().returned_bytes, Some(2_400_000));
        let burst = pass(&current(PassKind::Recovery, &[(20, 29)]), 0, &[]);
        assert_eq!(burst.recovery.unwrap().returned_bytes, None);
        assert_eq!(
            burst.recovery.unwrap().not_measured,
            Some(NotMeasured::NoCache)
        );
    }
}
