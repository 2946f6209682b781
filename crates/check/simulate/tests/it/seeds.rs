//! Whole systems: seeds that pass, and planted defects that the checkers find.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weir_reactor::sim::seed_from_env_or_random;
use weir_simulate::{Check, Plan, Plant, run, run_twice};

/// Seeds that always run, and how many of them by night and for planted faults (`WEIR_NIGHTLY`). The release build of
/// `weir-simulate` runs 50 of them in `scripts/test`, and many in `scripts/nightly`.
const SEEDS: u64 = 8;
const SEEDS_BY_NIGHT: u64 = 40;
/// Seeds in which paths are replaced, which few are.
const REPLACING_SEEDS: usize = 1;
const REPLACING_SEEDS_BY_NIGHT: usize = 8;
/// Seeds that are others each time.
const OTHER_SEEDS: u64 = 2;
const OTHER_SEEDS_BY_NIGHT: u64 = 8;
/// Seeds that found a defect of Weir or of a check, in the order in which they were understood.
const FOUND: &[u64] = &[
    127, 265, 298, 169, 78, 162, 154, 323, 700, 1807, 3978, 7300, 8363, 8630, 9919, 6184, 3442,
    3267, 4527, 10156, 11187, 20443, 1086, 41946, 43440, 44218, 8818, 238, 1256, 2872,
];
/// Seeds of which a planted defect must be found in one.
const PLANTED_SEEDS: usize = 60;

fn by_night<T>(always: T, by_night: T) -> T {
    match std::env::var_os("WEIR_NIGHTLY") {
        Some(_) => by_night,
        None => always,
    }
}

/// Runs seeds on two threads, and panics with what they violate.
fn pass(seeds: impl IntoIterator<Item = u64>) {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let report = run(&Plan::of(seed), None);
                    assert!(report.commands >= 1000, "seed {seed}: {}", report.commands);
                    for violation in &report.violations {
                        println!("seed {seed}: {violation}");
                    }
                    if !report.violations.is_empty() {
                        println!(
                            "repeat it: cargo run --release -p weir-simulate -- --seed {seed} --trace"
                        );
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "seeds failed");
}

#[test]
fn seeds_pass() {
    let first = 0..by_night(SEEDS, SEEDS_BY_NIGHT);
    let others = (first.end..).filter(|seed| Plan::of(*seed).replaces_paths());
    let replacing = by_night(REPLACING_SEEDS, REPLACING_SEEDS_BY_NIGHT);
    pass(first.chain(others.take(replacing)));
}

#[test]
fn seeds_that_found_a_defect_pass() {
    pass(FOUND.iter().copied().step_by(2));
}

#[test]
fn other_seeds_that_found_a_defect_pass() {
    pass(FOUND.iter().copied().skip(1).step_by(2));
}

#[test]
fn other_seeds_pass() {
    let first = seed_from_env_or_random() >> 1;
    println!("seeds from {first}");
    pass(first..first + by_night(OTHER_SEEDS, OTHER_SEEDS_BY_NIGHT));
}

#[test]
fn a_seed_is_the_same_twice() {
    for seed in 0..4 {
        let report = run_twice(&Plan::of(seed), None);
        assert_eq!(report.violations, [], "seed {seed}");
    }
}

/// One of the first seeds finds `plant` by one of `checks`.
fn is_found(plant: Plant, checks: &[Check]) {
    is_found_where(plant, checks, |_| true);
}

/// One of the first seeds whose plan can show it finds `plant` by one of `checks`.
fn is_found_where(plant: Plant, checks: &[Check], can_show: impl Fn(&Plan) -> bool) {
    let plans = (0..).map(|seed| (seed, Plan::of(seed)));
    let plans = plans.filter(|(_, plan)| can_show(plan));
    for (seed, plan) in plans.take(PLANTED_SEEDS) {
        let report = match plant {
            Plant::Coin => run_twice(&plan, Some(plant)),
            _ => run(&plan, Some(plant)),
        };
        let found = report.violations.iter();
        if let Some(found) = found.clone().find(|one| checks.contains(&one.check)) {
            println!("{plant} is found by seed {seed}: {found}");
            return;
        }
    }
    panic!("{plant} is not found in {PLANTED_SEEDS} seeds");
}

#[test]
fn a_flush_that_is_not_done_is_found() {
    is_found(Plant::DropFlush, &[Check::FlushedWrites]);
}

#[test]
fn a_failed_write_with_fua_that_hides_a_failed_flush_is_found() {
    // Few seeds lose a write without a word and the power as well.
    is_found_where(
        Plant::ForgetFailedFua,
        &[Check::FlushedWrites],
        Plan::loses_unwritten_data,
    );
}

#[test]
fn a_write_that_is_not_done_is_found() {
    is_found(Plant::LoseWrite, &[Check::Reads, Check::CompareWrites]);
}

#[test]
fn a_write_that_is_answered_early_is_found() {
    is_found(
        Plant::AcknowledgeEarly,
        &[Check::Reads, Check::FlushedWrites, Check::CompareWrites],
    );
}

#[test]
fn a_write_that_lands_late_is_found() {
    is_found(Plant::LandLate, &[Check::StaleWrites]);
}

#[test]
fn a_right_that_is_made_use_of_after_it_was_taken_away_is_found() {
    is_found(Plant::AcknowledgeRevocationEarly, &[Check::RevokedWrites]);
}

#[test]
fn a_compare_and_write_that_does_not_compare_is_found() {
    is_found(Plant::SkipCompare, &[Check::CompareWrites]);
}

#[test]
fn a_torn_block_is_found() {
    is_found(Plant::TearBlock, &[Check::Atomicity, Check::Reads]);
}

#[test]
fn a_second_completion_is_found() {
    is_found(Plant::CompleteTwice, &[Check::ExactlyOnce]);
}

#[test]
fn a_completion_that_does_not_come_is_found() {
    is_found(Plant::Swallow, &[Check::Progress]);
}

#[test]
fn a_status_that_is_not_true_is_found() {
    is_found(Plant::WrongStatus, &[Check::HonestStatus]);
}

#[test]
fn a_time_out_for_nothing_is_found() {
    is_found(Plant::TimeOutForNothing, &[Check::HonestStatus]);
}

#[test]
fn a_flush_that_hides_what_a_lost_gateway_lost_is_found() {
    is_found(Plant::TrustReconnect, &[Check::FlushedWrites]);
}

#[test]
fn a_replaced_path_that_writes_is_found() {
    is_found_where(
        Plant::AbandonNothing,
        &[Check::ReplacedPath],
        Plan::replaces_paths,
    );
}

#[test]
fn troubles_that_are_not_made_are_found() {
    is_found(Plant::SkipTroubles, &[Check::Exercised]);
}

#[test]
fn a_bound_that_is_passed_is_found() {
    is_found(Plant::LooseBounds, &[Check::Bounds]);
}

#[test]
fn what_the_seed_does_not_decide_is_found() {
    is_found(Plant::Coin, &[Check::Determinism]);
}
