//! Modelled drives: what is found is what their profiles say, with seeds that nothing was chosen by.

use weir_drive::document::{Drive, Pass, TruthPhase};
use weir_drive::phases::name;
use weir_drive::simulated::{self, Device, Striped};
use weir_drive::{Config, DriveState, Identity, PassKind, State};
use weir_load::Stop;
use weir_reactor::sim::seed_from_env_or_random;
use weir_ssd::{Model, Profile};

/// Drives are modelled at this size, with writes of this length: what is a part of the capacity stays the same part.
const CAPACITY: u64 = 64 << 30;
const BLOCK: u64 = 256 << 10;
/// Writes of a drive in its own size.
const LONG_BLOCK: u64 = 8 << 20;

/// A seed, which is printed.
fn seed() -> u64 {
    let seed = seed_from_env_or_random();
    println!("WEIR_SEED={seed}");
    seed
}

fn qualify(device: &mut dyn Device, capacity: u64, profile: Option<&Profile>) -> (State, Drive) {
    qualify_in_blocks(device, capacity, profile, BLOCK)
}

fn qualify_in_blocks(
    device: &mut dyn Device,
    capacity: u64,
    profile: Option<&Profile>,
    block_bytes: u64,
) -> (State, Drive) {
    let config = Config {
        block_bytes,
        ..Config::default()
    };
    let identity = Identity {
        url: "ssd:".to_owned(),
        capacity_bytes: capacity,
        block_size_bytes: 4096,
    };
    let mut state = DriveState::new(identity, "modelled".to_owned(), capacity);
    state.truth = profile.map(|profile| profile.truth().into());
    simulated::run(device, &config, &mut state, &Stop::new(), |_| {});
    let drive = state.drive(&config);
    (State::new(config, String::new(), vec![state]), drive)
}

fn profile(name: &str, noise: Option<f64>) -> Profile {
    let mut profile = Profile::builtin(name).expect("it is built in");
    if let Some(noise) = noise {
        profile.noise = noise;
    }
    profile
        .scaled(CAPACITY)
        .expect("a size that a drive may have")
}

fn pass(drive: &Drive, kind: PassKind) -> &Pass {
    let found = drive.passes.iter().find(|pass| pass.pass == kind);
    found.expect("the pass was made")
}

/// Without phases that may be too short to be told apart (docs/drives.md), and with what is the same on both sides of one as one.
fn told_apart(truth: &[TruthPhase], capacity: u64) -> Vec<TruthPhase> {
    let ends = truth.iter().skip(1).map(|of| of.begins_at_bytes);
    let long = truth
        .iter()
        .zip(ends.chain([capacity]))
        .filter(|(of, end)| end - of.begins_at_bytes > capacity / 50);
    let mut shown: Vec<TruthPhase> = long.map(|(of, _)| of.clone()).collect();
    shown.dedup_by(|next, before| next.bytes_per_second == before.bytes_per_second);
    shown
}

/// Every phase of the truth is found where it begins, at its rate and by its name, and no other.
fn compare(what: &str, pass: &Pass, truth: &[TruthPhase], capacity: u64, folds: bool) {
    let shown = told_apart(truth, capacity);
    let truth = match pass.phases.len() == truth.len() {
        true => truth,
        false => &shown[..],
    };
    let found: Vec<_> = pass
        .phases
        .iter()
        .map(|of| (of.begins_at_bytes, of.rate.mean))
        .collect();
    // The sample in which a phase begins or ends belongs to the one whose rate it is nearer to: at most half of it is the other's.
    let mixed = pass.phases.iter().map(|of| 0.5 / of.seconds);
    assert_eq!(found.len(), truth.len(), "{what}: {found:?} {truth:?}");
    for (phase, truth) in pass.phases.iter().zip(truth) {
        // No counter tells of a drive's own work; an overwrite has more than one rate without it too. What goes through a cache is folded in whatever pass, and
        // what goes past it overwrites what was there, whether for that anything is erased or not.
        let expected = match (&*truth.name, pass.pass) {
            ("background work", PassKind::Fill) => name::UNKNOWN,
            ("background work", _) => name::OVERWRITE,
            ("overwrite", _) if folds => name::FOLDING,
            ("direct", PassKind::Overwrite) => name::OVERWRITE,
            (other, _) => other,
        };
        assert_eq!(phase.name, expected, "{what}: {found:?} {truth:?}");
    }
    let ends = truth.iter().skip(1).map(|of| of.begins_at_bytes);
    let ends = ends.chain([capacity]);
    for ((((begins, rate), mixed), truth), end) in found.iter().zip(mixed).zip(truth).zip(ends) {
        let off = begins.abs_diff(truth.begins_at_bytes) as f64 / capacity as f64;
        assert!(off < 0.03, "{what}: {begins}, {truth:?}");
        // Of a phase that is told apart in some runs only there are too few seconds for the noise to cancel out.
        let is_short = end - truth.begins_at_bytes <= capacity / 50;
        let off = (rate / truth.bytes_per_second - 1.0).abs();
        let most = if is_short { 0.10 } else { 0.03 + mixed };
        assert!(off < most, "{what}: {rate}, {truth:?}");
    }
}

#[test]
fn every_drive_is_found_to_be_what_its_profile_says() {
    let seed = seed();
    assert_eq!(Profile::builtins().len(), 9);
    for name in Profile::builtins() {
        // With its own noise and stalls, and in its own size: of a smaller drive a phase is a second or two, too few for what these do to cancel out.
        let profile = Profile::builtin(name).expect("it is built in");
        let capacity = profile.capacity_bytes;
        let mut model = Model::new(&profile, seed);
        let (state, drive) = qualify_in_blocks(&mut model, capacity, Some(&profile), LONG_BLOCK);
        assert!(
            state.is_complete() && state.caveats().is_empty(),
            "{:?}",
            state.caveats()
        );
        let truth = drive.truth.clone().expect("a profile tells");
        let folds = truth.fill.iter().any(|of| of.name == name::FOLDING);
        for (kind, truth) in [
            (PassKind::Fill, &truth.fill),
            (PassKind::Overwrite, &truth.overwrite),
            (PassKind::OverwriteTrimmed, &truth.overwrite_trimmed),
        ] {
            compare(
                &format!("{name} {}", kind.name()),
                pass(&drive, kind),
                truth,
                capacity,
                folds,
            );
        }
        let recovery = pass(&drive, PassKind::Recovery)
            .recovery
            .expect("a recovery");
        if let Some(returned) = recovery.returned_bytes {
            let burst = pass(&drive, PassKind::Recovery);
            // Where the cache ends is known to a sample on either side, and what comes behind it comes down to its rate within one more.
            let sample = burst.samples.iter().map(|of| of.bytes).max().unwrap_or(0);
            let off = returned.abs_diff(truth.recovered_cache_bytes);
            let most = truth.recovered_cache_bytes / 33 + 2 * sample;
            assert!(
                off <= most,
                "{name}: {returned} of {}",
                truth.recovered_cache_bytes
            );
        }
        let written = drive
            .health_after
            .and_then(|of| of.data_units_written_bytes);
        let bytes: u64 = drive.passes.iter().map(Pass::bytes).sum();
        assert_eq!(written, Some(bytes));
        assert!(drive.write_amplification.expect("it counts both") >= 1.0);
    }
}

#[test]
fn a_cache_is_named_and_what_comes_back_of_it_is_measured() {
    let seed = seed();
    let profile = profile("970-evo-plus-1tb", Some(0.0));
    let (_, drive) = qualify(&mut Model::new(&profile, seed), CAPACITY, Some(&profile));
    let fill = pass(&drive, PassKind::Fill);
    let names: Vec<_> = fill
        .phases
        .iter()
        .map(|of| (&*of.name, &*of.told_by))
        .collect();
    assert_eq!(
        names,
        [(name::CACHE, "counters"), (name::DIRECT, "counters")]
    );
    let recovery = pass(&drive, PassKind::Recovery)
        .recovery
        .expect("a recovery");
    let truth = drive.truth.clone().expect("a profile tells");
    let truth = truth.recovered_cache_bytes;
    let returned = recovery.returned_bytes.expect("the fill shows a cache");
    assert!(
        returned.abs_diff(truth) < CAPACITY / 100,
        "{returned}, {truth}"
    );
    assert_eq!(recovery.cache_bytes, Some(fill.phases[0].ends_at_bytes));
}

#[test]
fn a_stripe_is_as_fast_as_its_slowest_member_times_their_number() {
    let seed = seed();
    let (fast, slow) = (
        profile("optane-480gb", Some(0.0)),
        profile("970-pro-512gb", Some(0.0)),
    );
    let models = vec![Model::new(&fast, seed), Model::new(&slow, seed)];
    let chunk = 128 << 10;
    let (state, drive) = qualify(&mut Striped::new(models, chunk), 2 * CAPACITY, None);
    assert!(state.is_complete());
    let expected = 2.0 * slow.truth().fill[0].rate_bytes_per_s;
    let rate = pass(&drive, PassKind::Fill).phases[0].rate.mean;
    assert!((rate / expected - 1.0).abs() < 0.03, "{rate}, {expected}");
    let health = drive.health_after.expect("both say");
    let bytes: u64 = drive.passes.iter().map(Pass::bytes).sum();
    assert_eq!(health.data_units_written_bytes, Some(bytes));
}

#[test]
fn what_heat_does_is_told_as_that() {
    let seed = seed();
    let text = r#"
name = "hot"
description = "a drive that gets too warm"
capacity = { value = "64GiB", source = "assumed" }
media = { value = "in-place", source = "assumed" }
interface_rate = { value = "3.5GB/s", source = "assumed" }
direct_rate = { value = "2GB/s", source = "assumed" }
read_rate = { value = "2GB/s", source = "assumed" }
write_latency = { value = "15us", source = "assumed" }
read_latency = { value = "15us", source = "assumed" }
idle_celsius = { value = 40, source = "assumed" }
rise_kelvin = { value = 60, source = "assumed" }
thermal_time = { value = "20s", source = "assumed" }
throttle_celsius = { value = 75, source = "assumed" }
throttle_hysteresis_kelvin = { value = 30, source = "assumed" }
throttle_rate = { value = "0.5GB/s", source = "assumed" }
rated_writes = { value = "1PB", source = "assumed" }
"#;
    let profile = Profile::parse(text, "hot.toml").expect("it is a profile");
    let (_, drive) = qualify(&mut Model::new(&profile, seed), CAPACITY, Some(&profile));
    let fill = pass(&drive, PassKind::Fill);
    let names: Vec<_> = fill.phases.iter().map(|of| &*of.name).collect();
    assert_eq!(
        names[..2],
        [name::DIRECT, name::THROTTLED],
        "{:?}",
        fill.phases
    );
}

/// What the model's own counters say that its cache took of the burst, known to a part in 400 of it.
fn taken_by_the_cache(burst: &Pass) -> u64 {
    let used = burst
        .health
        .iter()
        .filter_map(|of| of.health.cache_bytes_used);
    let used: Vec<u64> = used.collect();
    let most = used.iter().max().expect("a model says it");
    most - used[0]
}

#[test]
fn what_is_said_to_have_come_back_is_what_the_models_cache_takes() {
    let seed = seed();
    let (mut short, mut all) = (0, 0);
    for name in ["970-evo-plus-1tb", "consumer-tlc", "consumer-qlc"] {
        // From none of what there may be to all of it: a cache is emptied from idle_delay on, which is a second.
        for (at, idle) in [0.5, 1.2, 3.0, 4.0, 60.0].into_iter().enumerate() {
            for noise in [Some(0.0), None] {
                let mut profile = Profile::builtin(name).expect("it is built in");
                if let Some(noise) = noise {
                    (profile.noise, profile.stall) = (noise, None);
                }
                let capacity = 256 << 30;
                let profile = profile.scaled(capacity).expect("a drive may have it");
                let mut model = Model::new(&profile, seed.wrapping_add(at as u64));
                let config = Config {
                    block_bytes: 4 << 20,
                    passes: vec![PassKind::Fill, PassKind::Overwrite, PassKind::Recovery],
                    idle: std::time::Duration::from_secs_f64(idle),
                    ..Config::default()
                };
                let identity = Identity {
                    url: "ssd:".to_owned(),
                    capacity_bytes: capacity,
                    block_size_bytes: 4096,
                };
                let mut state = DriveState::new(identity, "modelled".to_owned(), capacity);
                simulated::run(&mut model, &config, &mut state, &Stop::new(), |_| {});
                let drive = state.drive(&config);
                let burst = pass(&drive, PassKind::Recovery);
                let taken = taken_by_the_cache(burst);
                let returned = burst.recovery.and_then(|of| of.returned_bytes);
                let returned = returned.expect("the fill shows a cache");
                // Where the cache ends is known to a sample, and its own counters to a part in 400 of the burst.
                let sample = burst.samples.iter().map(|of| of.bytes).max().unwrap_or(0);
                let most = taken / 20 + sample + burst.bytes() / 200;
                let what =
                    format!("{name}, {noise:?} of noise, idle for {idle} s, sample {sample}");
                println!("{what}: {returned} of {taken}");
                assert!(
                    returned.abs_diff(taken) <= most,
                    "{what}: {returned} of {taken}"
                );
                short += u32::from(taken > 0 && taken < 6 * sample);
                all += 1;
            }
        }
    }
    assert!(short >= 4, "{short} of {all} were shorter than a phase");
}
