//! The model against what must hold of any drive, against the truth of its profile, and against what is known of garbage collection.

use proptest::prelude::*;
use weir_reactor::random::Random;
use weir_ssd::{Model, Profile, Smart, TruthPhase};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

fn builtin(name: &str) -> Profile {
    Profile::builtin(name).unwrap_or_else(|| panic!("{name}"))
}

/// Without what is random in its rates: noise and stalls.
fn quiet(mut profile: Profile) -> Profile {
    profile.noise = 0.0;
    profile.stall = None;
    profile
}

/// Bytes of a pass and when they were written.
struct Pass {
    /// Bytes written and the time, after every write.
    course: Vec<(u64, u64)>,
    ends: u64,
}

impl Pass {
    /// Mean rate between two places, in bytes a second.
    fn rate(&self, from: u64, until: u64) -> f64 {
        let at = |bytes: u64| {
            let index = self.course.partition_point(|(written, _)| *written < bytes);
            self.course[index.min(self.course.len() - 1)]
        };
        let ((first, begun), (last, ended)) = (at(from), at(until));
        (last - first) as f64 / ((ended - begun) as f64 / SECOND as f64)
    }
}

/// Writes the whole drive with `depth` writes in flight, and deallocates `ahead` bytes before them.
fn pass(model: &mut Model, begin: u64, block: u64, depth: usize, ahead: u64) -> Pass {
    let capacity = model.capacity_bytes();
    let mut in_flight = std::collections::BinaryHeap::new();
    let mut course = Vec::new();
    let (mut offset, mut done, mut now, mut trimmed) = (0, 0, begin, 0);
    while done < capacity {
        while in_flight.len() < depth && offset < capacity {
            let bytes = block.min(capacity - offset);
            if ahead > 0 && trimmed < (offset + ahead).min(capacity) {
                let until = (offset + ahead + ahead / 2).min(capacity);
                model.deallocate(now, trimmed, until - trimmed);
                trimmed = until;
            }
            let ends = model.write(now, offset, bytes);
            in_flight.push(std::cmp::Reverse((ends, bytes)));
            offset += bytes;
        }
        let std::cmp::Reverse((ends, bytes)) = in_flight.pop().unwrap();
        now = now.max(ends);
        done += bytes;
        course.push((done, now));
    }
    Pass { course, ends: now }
}

/// Every phase's rate is the truth's within 1%, from 1% of the capacity after its beginning to 1% before its end, or from a quarter of it to
/// three where it is short.
fn agrees(what: &str, pass: &Pass, truth: &[TruthPhase], capacity: u64) {
    let margin = capacity / 100;
    assert!(!truth.is_empty(), "{what}");
    for (index, phase) in truth.iter().enumerate() {
        let end = truth
            .get(index + 1)
            .map_or(capacity, |next| next.begins_at_bytes);
        let margin = margin.min((end - phase.begins_at_bytes) / 4);
        let rate = pass.rate(phase.begins_at_bytes + margin, end - margin);
        let error = rate / phase.rate_bytes_per_s - 1.0;
        println!(
            "{what}: {} from {}: {:.1} MB/s, {:+.3}%",
            phase.name,
            phase.begins_at_bytes,
            rate / 1e6,
            100.0 * error
        );
        assert!(error.abs() < 0.01, "{what}: {phase:?} is {rate}");
    }
}

#[test]
fn every_profile_does_what_its_truth_says() {
    for name in Profile::builtins() {
        let profile = quiet(builtin(name)).scaled(64 * GIB).unwrap();
        let truth = profile.truth();
        let mut model = Model::new(&profile, 1);
        let capacity = model.capacity_bytes();
        let fill = pass(&mut model, 0, MIB, 16, 0);
        agrees(&format!("{name} fill"), &fill, &truth.fill, capacity);
        let over = pass(&mut model, fill.ends, MIB, 16, 0);
        agrees(
            &format!("{name} overwrite"),
            &over,
            &truth.overwrite,
            capacity,
        );
        let trimmed = pass(&mut model, over.ends, MIB, 16, 512 * MIB);
        agrees(
            &format!("{name} trimmed"),
            &trimmed,
            &truth.overwrite_trimmed,
            capacity,
        );
    }
}

#[test]
fn stalls_take_their_share_of_the_rate() {
    let mut profile = builtin("consumer-qlc");
    profile.noise = 0.0;
    let profile = profile.scaled(512 * GIB).unwrap();
    let mut model = Model::new(&profile, 3);
    let fill = pass(&mut model, 0, 4 * MIB, 16, 0);
    agrees(
        "with stalls",
        &fill,
        &profile.truth().fill,
        model.capacity_bytes(),
    );
    assert!(model.smart(fill.ends).stalls > 100);
}

#[test]
fn noise_changes_rates_from_second_to_second_and_not_their_mean() {
    noise_is_as_said(0.0, 0.02, -0.25..0.25);
}

#[test]
fn noise_lasts_as_long_as_is_said() {
    noise_is_as_said(0.6, 0.04, 0.35..0.8);
}

/// `off` is how far a mean may be, and `found` where the correlation with the second before is.
fn noise_is_as_said(correlation: f64, off: f64, found: std::ops::Range<f64>) {
    let mut profile = quiet(builtin("970-pro-512gb"));
    profile.noise = 0.1;
    profile.noise_correlation = correlation;
    for seed in 0..5 {
        let mut model = Model::new(&profile, seed);
        let fill = pass(&mut model, 0, 4 * MIB, 16, 0);
        let capacity = model.capacity_bytes();
        let mean = fill.rate(0, capacity) / profile.truth().fill[0].rate_bytes_per_s;
        assert!((mean - 1.0).abs() < off, "seed {seed}: {mean}");
        let mut rates = Vec::new();
        let (mut next, mut before) = (SECOND, 0);
        for &(bytes, at) in &fill.course {
            if at >= next {
                rates.push((bytes - before) as f64);
                (next, before) = (next + SECOND, bytes);
            }
        }
        let average = rates.iter().sum::<f64>() / rates.len() as f64;
        let variance = rates
            .iter()
            .map(|rate| (rate / average - 1.0).powi(2))
            .sum::<f64>()
            / rates.len() as f64;
        assert!(
            (0.07..0.13).contains(&variance.sqrt()),
            "seed {seed}: {}",
            variance.sqrt()
        );
        let lasting: f64 = rates
            .windows(2)
            .map(|of| (of[0] / average - 1.0) * (of[1] / average - 1.0))
            .sum();
        let lasting = lasting / rates.len() as f64 / variance;
        assert!(found.contains(&lasting), "seed {seed}: {lasting}");
    }
}

/// The cache is as large as said: the rate falls at its end, and a quarter of it comes back in a quarter of the time that emptying all takes.
#[test]
fn an_idle_drive_empties_its_cache() {
    let profile = quiet(builtin("consumer-tlc")).scaled(64 * GIB).unwrap();
    let cache = profile.cache.unwrap();
    let size = cache.static_bytes + cache.dynamic_bytes;
    let half = profile.capacity_bytes / 2;
    let mut model = Model::new(&profile, 5);
    let mut at = 0;
    let mut written = 0;
    while written < half {
        at = model.write(at, written, MIB);
        written += MIB;
    }
    let smart = model.smart(at);
    assert!(
        smart.cache_bytes_used.abs_diff(size) <= 2 * MIB,
        "{smart:?}"
    );
    // Emptied at its rate after the delay, and no sooner.
    let delay = profile.idle_delay_nanoseconds as u64;
    let quarter = (size as f64 / 4.0 / cache.fold_bytes_per_second * SECOND as f64) as u64;
    let smart = model.smart(at + delay / 2);
    assert!(
        smart.cache_bytes_used.abs_diff(size) <= 2 * MIB,
        "{smart:?}"
    );
    let smart = model.smart(at + delay + quarter);
    assert!(
        smart.cache_bytes_used.abs_diff(size * 3 / 4) <= size / 50,
        "{smart:?}"
    );
    let smart = model.smart(at + delay + 5 * quarter);
    assert_eq!(smart.cache_bytes_used, 0, "{smart:?}");
    assert!(smart.folded_bytes.abs_diff(size) <= 2 * MIB, "{smart:?}");
    assert_eq!(
        smart.collected_bytes, 0,
        "what was written once leaves nothing to collect"
    );
    assert!(
        smart.cache_bytes_size.abs_diff(size) <= 2 * MIB,
        "{smart:?}"
    );
    // On a full drive the static part alone comes back.
    let fill = pass(&mut model, at + 100 * SECOND, MIB, 8, 0);
    let smart = model.smart(fill.ends + 1000 * SECOND);
    assert_eq!(smart.cache_bytes_used, 0);
    let fixed = cache.static_bytes;
    assert!(
        smart.cache_bytes_size.abs_diff(fixed) <= profile.superblock_bytes,
        "{smart:?}"
    );
}

/// What a drive still has to fold is worked off in the pauses of its host, once, whether its log is looked at meanwhile or not.
#[test]
fn looking_at_the_log_does_no_work() {
    const PAUSE: u64 = 100_000;
    let profile = quiet(builtin("consumer-qlc")).scaled(GIB).unwrap();
    let after = |looks: u64, pause: u64| {
        let mut model = Model::new(&profile, 8);
        let written = model.capacity_bytes() / 2;
        let done = (0..written / MIB)
            .map(|mib| model.write(0, mib * MIB, MIB))
            .max();
        let done = done.unwrap();
        for look in 0..looks {
            model.smart(done + pause * look / looks);
        }
        let begun = done + pause;
        model.write(begun, written, MIB) - begun
    };
    let (at_once, rested) = (after(0, 0), after(0, PAUSE));
    assert!(rested + PAUSE / 4 < at_once, "{rested} {at_once}");
    for looks in [1, 2, 10, 100] {
        let looked = after(looks, PAUSE);
        assert!(looked.abs_diff(rested) <= 1, "{looks}: {looked} {rested}");
    }
}

#[test]
fn a_drive_that_holds_nothing_is_as_new() {
    let profile = quiet(builtin("consumer-tlc")).scaled(8 * GIB).unwrap();
    let mut model = Model::new(&profile, 5);
    let first = pass(&mut model, 0, MIB, 8, 0);
    let second = pass(&mut model, first.ends, MIB, 8, 0);
    let capacity = model.capacity_bytes();
    model.deallocate(second.ends, 0, capacity);
    let smart = model.smart(second.ends);
    assert_eq!((smart.mapped_bytes, smart.cache_bytes_used), (0, 0));
    let again = pass(&mut model, second.ends, MIB, 8, 0);
    let (was, is) = (first.ends, again.ends - second.ends);
    assert!(was.abs_diff(is) < was / 500, "{was} and {is}");
}

/// Lambert's W for arguments from -1/e to 0, by Newton's method.
fn lambert_w(x: f64) -> f64 {
    let mut w: f64 = if x < -0.25 { -0.6 } else { x };
    for _ in 0..200 {
        w -= (w * w.exp() - x) / (w.exp() * (w + 1.0));
    }
    w
}

/// Write amplification of uniform random writes in the steady state, where superblocks are large and the emptiest is collected: with the
/// ratio a of the flash to what it holds, a / (a + W(-a exp(-a))). (Menon 1995; Desnoyers 2012, where greedy collection tends to it.)
fn amplification(ratio: f64) -> f64 {
    ratio / (ratio + lambert_w(-ratio * (-ratio).exp()))
}

/// Writes blocks of a unit of a small drive at random over the whole of it, `drives` times its capacity; the amplification of the last
/// time.
fn amplified(
    profile: &Profile,
    seed: u64,
    drives: u64,
    keep: impl Fn(u64) -> bool,
) -> (f64, Smart) {
    let block = 4096;
    let mut model = Model::new(profile, seed);
    let capacity = model.capacity_bytes();
    let mut now = pass(&mut model, 0, MIB, 8, 0).ends;
    for offset in (0..capacity).step_by(MIB as usize) {
        if !keep(offset / MIB) {
            now = model.deallocate(now, offset, MIB.min(capacity - offset));
        }
    }
    let mut random = Random::new(seed);
    let mut before = model.smart(now);
    for drive in 0..drives {
        if drive + 1 == drives {
            before = model.smart(now);
        }
        for _ in 0..capacity / block {
            let mut at = random.below(capacity / block);
            while !keep(at * block / MIB) {
                at = random.below(capacity / block);
            }
            now = model.write(now, at * block, block);
        }
    }
    let after = model.smart(now);
    let host = after.data_units_written_bytes - before.data_units_written_bytes;
    let media = after.media_bytes_written - before.media_bytes_written;
    (media as f64 / host as f64, after)
}

#[test]
fn random_overwrites_amplify_as_is_known_of_greedy_collection() {
    // In units of 4 KiB, so that a write is one of them, and 256 of them in a superblock.
    for spare in [0.12, 0.25, 0.5] {
        let mut profile = quiet(builtin("enterprise-tlc")).scaled(GIB).unwrap();
        profile.spare = spare;
        profile.superblock_bytes = MIB;
        let (found, _) = amplified(&profile, 11, 5, |_| true);
        // What is kept free for collecting does not take part.
        let superblocks = GIB as f64 / MIB as f64;
        let ratio = 1.0 + spare - 5.0 / superblocks;
        let known = amplification(ratio);
        println!("spare {spare}: {found:.3}, known {known:.3}");
        assert!(
            (found / known - 1.0).abs() < 0.05,
            "spare {spare}: {found}, known {known}"
        );
    }
}

#[test]
fn what_was_deallocated_is_spare() {
    let mut profile = quiet(builtin("enterprise-tlc")).scaled(GIB).unwrap();
    profile.spare = 0.1;
    let (full, _) = amplified(&profile, 1, 3, |_| true);
    let (three_quarters, _) = amplified(&profile, 1, 3, |mib| mib % 4 != 0);
    println!("{full:.2} when full, {three_quarters:.2} with a quarter deallocated");
    assert!(full > 3.0, "{full}");
    assert!(
        three_quarters < 0.6 * full,
        "{three_quarters} against {full}"
    );
}

/// Superblocks that hold little are collected when there is time, so that there is room for the cache again.
#[test]
fn an_idle_drive_makes_room_for_its_cache() {
    let profile = quiet(builtin("consumer-tlc")).scaled(GIB).unwrap();
    let cache = profile.cache.unwrap();
    let mut model = Model::new(&profile, 6);
    let mut now = pass(&mut model, 0, MIB, 8, 0).ends;
    let mut random = Random::new(6);
    for _ in 0..GIB / 4096 {
        now = model.write(now, random.below(GIB / 4096) * 4096, 4096);
    }
    // Everything is mixed up; then a quarter of it is left, and no time passes.
    for block in 0..GIB / 4096 {
        if random.below(4) > 0 {
            model.deallocate(now, block * 4096, 4096);
        }
    }
    let before = model.smart(now);
    let after = model.smart(now + 100 * SECOND);
    println!("{before:?}\n{after:?}");
    assert!(before.cache_bytes_size < cache.static_bytes + cache.dynamic_bytes / 2);
    assert!(after.cache_bytes_size > cache.static_bytes + cache.dynamic_bytes * 9 / 10);
    assert!(after.collected_bytes > before.collected_bytes);
    assert_eq!(after.mapped_bytes, before.mapped_bytes);
}

#[test]
fn sequential_overwrites_amplify_little() {
    for name in ["970-pro-512gb", "enterprise-tlc", "1725b-1.6tb"] {
        let profile = quiet(builtin(name)).scaled(16 * GIB).unwrap();
        let mut model = Model::new(&profile, 2);
        let mut at = 0;
        for _ in 0..4 {
            at = pass(&mut model, at, 256 * 1024, 8, 0).ends;
        }
        let smart = model.smart(at);
        let amplification =
            smart.media_bytes_written as f64 / smart.data_units_written_bytes as f64;
        assert!(amplification < 1.01, "{name}: {amplification}");
    }
}

#[test]
fn endurance_is_used_up_by_what_is_written() {
    let profile = quiet(builtin("970-pro-512gb")).scaled(16 * GIB).unwrap();
    let mut model = Model::new(&profile, 2);
    let filled = pass(&mut model, 0, MIB, 8, 0);
    let used = model.smart(filled.ends).percentage_used;
    let expected = 100.0 * model.capacity_bytes() as f64 / profile.rated_write_bytes as f64;
    assert!((used / expected - 1.0).abs() < 1e-9, "{used} {expected}");
}

#[test]
fn heat_throttles_and_lets_go() {
    let mut profile = quiet(builtin("970-pro-512gb")).scaled(1 << 40).unwrap();
    let throttle = profile.heat.throttle.as_mut().unwrap();
    throttle.at_celsius = 60.0;
    let throttle = *throttle;
    assert!(profile.truth().throttles);
    let mut model = Model::new(&profile, 4);
    let capacity = model.capacity_bytes();
    let (mut now, mut written) = (0, 0);
    let (mut hot, mut slow) = (None, 0);
    while written < capacity / 2 {
        let before = now;
        now = model.write(now, written, 64 * MIB);
        written += 64 * MIB;
        let smart = model.smart(now);
        let celsius = smart.temperature_kelvin - 273.15;
        assert!(celsius < 60.5, "{celsius}");
        if hot.is_none() && smart.thermal_throttle_transitions > 0 {
            hot = Some(now);
        }
        let rate = 64.0 * MIB as f64 / ((now - before) as f64 / SECOND as f64);
        slow += u64::from(rate < 1.1 * throttle.bytes_per_second);
    }
    // The dies are busy for 2.2 of 2.4 parts: 35 K of rise come to 32, of which 20 are reached after ln(32 / 12) time constants.
    let rise = 35.0 * 2.2 / 2.4;
    let expected = (rise / (rise - 20.0_f64)).ln() * profile.heat.time_constant_nanoseconds;
    let hot = hot.expect("it gets hot") as f64;
    assert!((hot / expected - 1.0).abs() < 0.02, "{hot} {expected}");
    let smart = model.smart(now);
    assert!(slow > 5, "{slow}");
    assert!(
        smart.thermal_throttle_nanoseconds > 10 * SECOND,
        "{smart:?}"
    );
    let later = model.smart(now + 3600 * SECOND);
    assert!((later.temperature_kelvin - 273.15 - profile.heat.idle_celsius).abs() < 0.1);
    let even_later = model.smart(now + 7200 * SECOND);
    assert_eq!(
        later.thermal_throttle_nanoseconds,
        even_later.thermal_throttle_nanoseconds
    );
}

/// How warm a drive is after writes of so many bytes each, all asked for at once, for about a time constant.
fn warmed(profile: &Profile, bytes: u64) -> f64 {
    let mut model = Model::new(profile, 4);
    let mut now = 0;
    for offset in (0..8 * GIB).step_by(bytes as usize) {
        now = model.write(0, offset, bytes);
    }
    model.smart(now).temperature_kelvin - 273.15 - profile.heat.idle_celsius
}

#[test]
fn one_long_write_heats_as_many_short_ones() {
    let mut profile = quiet(builtin("970-pro-512gb"));
    profile.heat.time_constant_nanoseconds = 3.0 * SECOND as f64;
    let (short, long) = (warmed(&profile, MIB), warmed(&profile, 8 * GIB));
    assert!(short > 15.0, "{short}");
    assert!((long / short - 1.0).abs() < 0.02, "{long} {short}");
}

#[test]
fn emptying_the_cache_warms_the_drive() {
    let mut profile = quiet(builtin("consumer-tlc")).scaled(64 * GIB).unwrap();
    profile.heat.time_constant_nanoseconds = SECOND as f64 / 10.0;
    let mut model = Model::new(&profile, 5);
    let mut at = 0;
    for offset in (0..profile.capacity_bytes / 8).step_by(MIB as usize) {
        at = model.write(at, offset, MIB);
    }
    let delay = profile.idle_delay_nanoseconds as u64;
    let rested = model.smart(at + delay).temperature_kelvin;
    let cached = model.smart(at + delay).cache_bytes_used;
    let folding = model.smart(at + delay + SECOND);
    assert!(folding.cache_bytes_used < cached && folding.cache_bytes_used > 0);
    let warmer = folding.temperature_kelvin - rested;
    let rise = profile.heat.rise_kelvin;
    assert!((warmer / rise - 1.0).abs() < 0.01, "{warmer} of {rise}");
}

/// Where dies are not always busy, the drive does not get as warm as its heat allows.
#[test]
fn dies_that_wait_for_the_controller_do_not_throttle() {
    let mut profile = quiet(builtin("970-pro-512gb")).scaled(64 * GIB).unwrap();
    profile.program_bytes_per_second = 2.0 * profile.direct_bytes_per_second;
    profile.heat.time_constant_nanoseconds = SECOND as f64;
    let rise = profile.heat.rise_kelvin;
    for (share, throttles) in [(0.55, false), (0.45, true)] {
        let at_celsius = profile.heat.idle_celsius + share * rise;
        profile.heat.throttle.as_mut().unwrap().at_celsius = at_celsius;
        assert_eq!(profile.truth().throttles, throttles, "{share}");
        let mut model = Model::new(&profile, 4);
        let filled = pass(&mut model, 0, MIB, 8, 0);
        let smart = model.smart(filled.ends);
        assert_eq!(
            smart.thermal_throttle_transitions > 0,
            throttles,
            "{smart:?}"
        );
    }
}

/// Temperatures come in closed form: a year costs what a second does, with whatever time constant, and heat lets go when it must.
#[test]
fn years_of_throttling_take_no_time() {
    let mut profile = quiet(builtin("970-pro-512gb")).scaled(GIB).unwrap();
    let heat = &mut profile.heat;
    heat.time_constant_nanoseconds = 1e6;
    let throttle = heat.throttle.as_mut().unwrap();
    throttle.at_celsius = heat.idle_celsius + heat.rise_kelvin / 2.0;
    throttle.hysteresis_kelvin = heat.rise_kelvin / 4.0;
    // Hot, until it has cooled to a half: ln 2 time constants after the rise of the last write's dies, if that ends at the limit.
    let mut model = Model::new(&profile, 1);
    let now = model.write(0, 0, 64 * MIB);
    let at_once = model.smart(now);
    assert_eq!(at_once.thermal_throttle_transitions, 1, "{at_once:?}");
    let later = model.smart(now + 365 * 86_400 * SECOND);
    let cooling = later.thermal_throttle_nanoseconds - at_once.thermal_throttle_nanoseconds;
    let above = at_once.temperature_kelvin - 273.15 - profile.heat.idle_celsius;
    let expected = (above / (profile.heat.rise_kelvin / 4.0)).ln() * 1e6;
    assert!(
        (cooling as f64 / expected - 1.0).abs() < 0.01,
        "{cooling} {expected}"
    );
    // A throttle below what its own rate heats to does not let go for as long as it is written.
    profile.heat.throttle.as_mut().unwrap().bytes_per_second = 1.0;
    let mut model = Model::new(&profile, 1);
    let now = model.write(0, 0, 64 * MIB);
    let ends = model.write(now, 0, 64 * MIB);
    assert!(ends - now > 64 * MIB * SECOND / 2);
    assert_eq!(model.smart(ends).thermal_throttle_transitions, 1);
}

#[test]
fn reads_wait_for_any_stall_that_is_ahead() {
    let mut profile = quiet(builtin("970-pro-512gb")).scaled(GIB).unwrap();
    profile.stall = Some(weir_ssd::Stall {
        every_nanoseconds: 20e6,
        mean_nanoseconds: 5e6,
    });
    let mut model = Model::new(&profile, 7);
    // All at once: the stalls fall into one another's future.
    let mut stood = Vec::new();
    let mut before = model.write(0, 0, 4096);
    for write in 1..(GIB / MIB) {
        let ends = model.write(0, write * MIB, MIB);
        if ends > before + 4_000_000 {
            stood.push((before, ends));
        }
        before = ends;
    }
    assert!(stood.len() > 3, "{stood:?}");
    let mut waited = 0;
    for (begins, ends) in &stood {
        // The stall is the later part of the write's time.
        let asked = ends - 1_000_000;
        let done = model.read(asked, 0, 4096);
        assert!(asked > *begins);
        waited += u64::from(done + 500_000 > *ends);
    }
    assert_eq!(waited, stood.len() as u64);
}

/// A write that is slow beyond reason meets stalls as their mean, and ends.
#[test]
fn absurd_rates_end() {
    let mut profile = quiet(builtin("consumer-qlc")).scaled(1 << 50).unwrap();
    profile.stall = Some(weir_ssd::Stall {
        every_nanoseconds: 1e6,
        mean_nanoseconds: 1e6,
    });
    profile.interface_bytes_per_second = 1.0;
    profile.cache.as_mut().unwrap().bytes_per_second = 1.0;
    let mut model = Model::new(&profile, 1);
    let ends = model.write(0, 0, 64 * MIB);
    let seconds = ends / SECOND;
    // As long in stalls as in writing, but for those that are cut off.
    assert!(seconds.abs_diff(2 * 64 * MIB) < 64 * MIB / 50, "{seconds}");
    assert!(model.smart(ends).stalls > 64 * MIB * 900);
    let capacity = model.capacity_bytes();
    assert_eq!(model.write(ends, 0, capacity), u64::MAX);
    assert_eq!(model.write(u64::MAX, 0, MIB), u64::MAX);
}

/// A drive does the same whether it was made today or after a thousand years of its clock.
#[test]
fn times_are_exact_however_late_it_is() {
    let mut profile = builtin("consumer-qlc").scaled(GIB).unwrap();
    // Which is drawn for each second of the clock.
    profile.noise = 0.0;
    let course = |begin: u64| {
        let mut model = Model::new(&profile, 3);
        let mut now = begin;
        let mut times = Vec::new();
        for write in 0..200u64 {
            let ends = model.write(now, write * MIB, 4096 * (1 + write % 7));
            times.push(ends - begin);
            now += 1_001 * (1 + write % 3);
        }
        times
    };
    assert_eq!(course(0), course(5_000_000_000_000_000_001));
}

#[test]
fn thirty_terabytes_are_filled() {
    let profile = builtin("enterprise-tlc")
        .scaled(30_720_000_000_000)
        .unwrap();
    let mut model = Model::new(&profile, 9);
    let capacity = model.capacity_bytes();
    let (mut now, mut offset) = (0, 0);
    while offset < capacity {
        let bytes = (4 * MIB).min(capacity - offset);
        now = model.write(now, offset, bytes);
        offset += bytes;
    }
    let rate = capacity as f64 / (now as f64 / SECOND as f64);
    println!("{rate}");
    // One at a time each pays its latency too.
    assert!((0.95..1.0).contains(&(rate / 4e9)), "{rate}");
}

/// One operation of a property test.
#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64),
    Read(u64, u64),
    Deallocate(u64, u64),
    Flush,
    Wait(u64),
}

const SMALL: u64 = 64 * MIB;

fn step() -> impl Strategy<Value = Step> {
    // Ranges of whole blocks, from one to 2 MiB; offsets that crowd at the beginning too.
    let range = (0..SMALL / 4096, 1..=512u64, any::<bool>()).prop_map(|(block, blocks, near)| {
        let block = if near { block % 1024 } else { block };
        let offset = block * 4096;
        (offset, (blocks * 4096).min(SMALL - offset))
    });
    prop_oneof![
        8 => range.clone().prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        2 => range.clone().prop_map(|(offset, bytes)| Step::Read(offset, bytes)),
        2 => range.prop_map(|(offset, bytes)| Step::Deallocate(offset, bytes)),
        1 => Just(Step::Flush),
        1 => (0..3_000_000_000u64).prop_map(Step::Wait),
    ]
}

fn run(profile: &Profile, seed: u64, steps: &[Step]) -> (Vec<u64>, Smart) {
    run_looking(profile, seed, steps, 0)
}

/// As `run`, with so many looks at the drive's log while nothing is asked of it.
fn run_looking(profile: &Profile, seed: u64, steps: &[Step], looks: u64) -> (Vec<u64>, Smart) {
    let mut model = Model::new(profile, seed);
    let mut now = 1;
    let mut answers = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let answer = match *step {
            Step::Write(offset, bytes) => model.write(now, offset, bytes),
            Step::Read(offset, bytes) => model.read(now, offset, bytes),
            Step::Deallocate(offset, bytes) => model.deallocate(now, offset, bytes),
            Step::Flush => model.flush(now),
            Step::Wait(time) => {
                for look in 0..looks {
                    model.smart(now + time * look / looks);
                }
                now += time;
                continue;
            }
        };
        let minimum = match step {
            Step::Read(_, bytes) => {
                profile.read_latency.minimum_nanoseconds
                    + *bytes as f64 / profile.read_bytes_per_second * 1e9
            }
            Step::Write(_, bytes) => {
                profile.write_latency.minimum_nanoseconds
                    + *bytes as f64 / profile.interface_bytes_per_second * 1e9
            }
            _ => profile.write_latency.minimum_nanoseconds,
        };
        assert!(
            answer as f64 >= now as f64 + minimum,
            "{step:?} ends at {answer}, begun at {now}"
        );
        answers.push(answer);
        // Sometimes one waits for it, sometimes not.
        if index % 3 == 0 {
            now = now.max(answer);
        }
    }
    let smart = model.smart(now);
    (answers, smart)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn random_operations_keep_the_rules(
        steps in proptest::collection::vec(step(), 1..400),
        seed in any::<u64>(),
        which in 0..Profile::builtins().len(),
    ) {
        let profile = builtin(Profile::builtins()[which]).scaled(SMALL).unwrap();
        let (answers, smart) = run(&profile, seed, &steps);
        let (again, smart_again) = run(&profile, seed, &steps);
        prop_assert_eq!(&answers, &again, "the same seed gives the same answers");
        prop_assert_eq!(smart, smart_again);
        let (looked, smart_looked) = run_looking(&profile, seed, &steps, 50);
        for (answer, looked) in answers.iter().zip(&looked) {
            // Sums of times are rounded where they are taken in parts.
            prop_assert!(answer.abs_diff(*looked) <= 1, "looking changes nothing");
        }
        let changes = |smart: &Smart| (smart.media_bytes_written, smart.cache_bytes_used, smart.erased_bytes);
        prop_assert_eq!(changes(&smart), changes(&smart_looked));
        let (other, _) = run(&profile, !seed, &steps);
        let has_jitter = steps.iter().any(|step| matches!(step, Step::Write(..) | Step::Read(..)));
        prop_assert!(!has_jitter || other != answers, "another seed gives others");
        let sum = |of: fn(&Step) -> u64| steps.iter().map(of).sum::<u64>();
        let written = sum(|step| match step { Step::Write(_, bytes) => *bytes, _ => 0 });
        let read = sum(|step| match step { Step::Read(_, bytes) => *bytes, _ => 0 });
        prop_assert_eq!(smart.data_units_written_bytes, written);
        prop_assert_eq!(smart.data_units_read_bytes, read);
        let own = smart.folded_bytes + smart.collected_bytes;
        prop_assert_eq!(smart.media_bytes_written, written + own);
        prop_assert!(smart.mapped_bytes <= SMALL);
        prop_assert!(smart.cache_bytes_used <= smart.cache_bytes_size);
        let used = (written + own) as f64 / profile.rated_write_bytes as f64 * 100.0;
        prop_assert!(smart.percentage_used <= used, "{} of {}", smart.percentage_used, used);
        if profile.cache.is_none() {
            prop_assert_eq!(smart.percentage_used, used, "all of it stays where it is written");
        }
    }

    /// From the first submission on, never more is written, or read, than the link carries.
    #[test]
    fn nothing_is_faster_than_the_link(
        blocks in proptest::collection::vec((0..SMALL / MIB - 1, 1..=MIB / 4096, any::<bool>()), 1..300),
        seed in any::<u64>(),
        which in 0..Profile::builtins().len(),
        noise in 0.0..0.5,
    ) {
        let mut profile = builtin(Profile::builtins()[which]).scaled(SMALL).unwrap();
        profile.noise = noise;
        let mut model = Model::new(&profile, seed);
        let (mut written, mut read) = (0, 0);
        for (mib, blocks, is_write) in blocks {
            let bytes = blocks * 4096;
            let (sum, ends) = match is_write {
                true => (&mut written, model.write(0, mib * MIB, bytes)),
                false => (&mut read, model.read(0, mib * MIB, bytes)),
            };
            *sum += bytes;
            let least = *sum as f64 / profile.interface_bytes_per_second * 1e9;
            prop_assert!(ends as f64 >= least, "{} bytes by {}", *sum, ends);
        }
    }
}
