//! Volumes that lie, and honest ones under load: verification names the lie, and finds none where there is none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Completions, Operation, ReadBuffers, Request, Token, Volume};
use weir_load::copy::{self, CopyConfig, CopyError};
use weir_load::verified::{self, VerifiedError, VerifiedReport};
use weir_load::verify::{self, Until, VerifyConfig, VerifyError, VerifyReport};
use weir_load::{Fault, Finding, Stop};
use weir_memory::View;
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
use weir_volume::{Access, Registry, VolumeUrl};

fn simulate<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    main: impl FnOnce(Reactor) -> F + 'static,
) -> T {
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let host = simulation.host_id("host");
    simulation.run(host, main)
}

async fn open(reactor: &Reactor, url: &str) -> Arc<dyn Volume> {
    let url: VolumeUrl = url.parse().expect("the test's URL is well formed");
    let registry = Registry::standard();
    let opened = registry.open(reactor, &url, Access::READ_WRITE).await;
    opened.expect("the test's volume opens")
}

/// Numbers for a randomised test (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

async fn verified(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
) -> Result<VerifyReport, VerifyError> {
    verify::run(reactor, &[reactor.remote()], volume, config, |_| {}).await
}

fn config(numbers: &mut Numbers, passes: u64) -> VerifyConfig {
    VerifyConfig {
        request_bytes: numbers.of(&[8192, 16_384, 65_536]),
        depth: 1 + numbers.below(16) as u32,
        queues: 1 + numbers.below(4) as u32,
        range_bytes: None,
        seed: numbers.below(u64::MAX),
        until: Until::Passes(passes),
        check_only: false,
        passes_made: 0,
        stop: Stop::new(),
    }
}

const BLOCKS: u64 = 256;

/// What a run finds on a volume that tells one lie, and the block that it is about. What is misdirected goes to, or comes from, block
/// `to`.
fn found(
    seed: u64,
    config: &VerifyConfig,
    lie: &'static str,
    write: u64,
    block: u64,
    to: u64,
) -> Vec<Finding> {
    let url = format!("lying:?size=1M&lie={lie}&block={block}&write={write}&to={to}");
    let config = config.clone();
    let outcome = simulate(seed, move |reactor| async move {
        let volume = open(&reactor, &url).await;
        verified(&reactor, &volume, &config).await
    });
    match outcome {
        Err(VerifyError::Wrong { findings, .. }) => findings,
        other => panic!("seed {seed}, {lie}, block {block}, write {write}: {other:?}"),
    }
}

#[test]
fn every_lie_is_found_and_named() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for (lie, expected, persists) in [
        ("lost-write", Fault::LostWrite, true),
        ("torn-write", Fault::TornWrite, true),
        ("torn-block", Fault::TornWrite, true),
        ("stale-read", Fault::StaleRead, false),
        ("misdirected-read", Fault::MisdirectedRead, false),
        ("bit-flip", Fault::BitFlip, true),
        ("bit-flip-in-read", Fault::BitFlip, false),
    ] {
        for (seed, write) in (0..8).map(|run| (first.wrapping_add(run), 1 + run % 3)) {
            // Nothing that was misdirected can come from where nothing was written yet.
            let write = if lie == "misdirected-read" {
                write.max(2)
            } else {
                write
            };
            let mut numbers = Numbers(seed);
            let config = config(&mut numbers, write.max(2));
            let block = numbers.below(BLOCKS);
            let findings = found(seed, &config, lie, write, block, (block + 64) % BLOCKS);
            let about = format!("seed {seed}, {lie}, write {write}: {findings:?}");
            assert_eq!(findings.len(), 1, "{about}");
            let finding = &findings[0];
            assert_eq!(
                (finding.fault, finding.persists),
                (expected, persists),
                "{about}"
            );
            let request = finding.lba..finding.lba + u64::from(finding.blocks);
            let is_there = request.contains(&block)
                || lie.ends_with("write") && request.start.abs_diff(block) <= 16;
            assert!(is_there, "{about}");
        }
    }
}

#[test]
fn a_write_that_went_elsewhere_is_no_lost_one() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for seed in (0..24).map(|run| first.wrapping_add(run)) {
        let mut numbers = Numbers(seed);
        let write = 1 + numbers.below(3);
        let mut config = config(&mut numbers, write.max(2));
        let unit = config.request_bytes / 4096;
        let block = numbers.below(BLOCKS / 2);
        let to = BLOCKS / 2 + numbers.below(BLOCKS / 4) / unit * unit;
        if numbers.below(2) == 0 {
            // It goes to where nothing is written and nothing is compared.
            config.range_bytes = Some(BLOCKS / 2 * 4096);
        } else {
            // What it overwrote is not being overwritten itself just then: that would be the end of every trace.
            (config.depth, config.queues) = (1, 1);
        }
        let findings = found(seed, &config, "misdirected-write", write, block, to);
        for finding in &findings {
            let about = format!("seed {seed}, write {write}, {block} to {to}: {findings:?}");
            assert_eq!(finding.fault, Fault::MisdirectedWrite, "{about}");
            assert!(finding.counterpart.is_some(), "{about}");
        }
    }
}

#[test]
fn an_honest_volume_under_load_raises_no_alarm() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for seed in (0..8).map(|run| first.wrapping_add(run)) {
        let mut numbers = Numbers(seed);
        let url = numbers.of(&[
            "mem:?size=1M",
            "mem:?size=1000k&block_size=512",
            "file:/image?size=1M",
            "file:/image?size=1000k&block_size=512",
            "lying:?size=1M",
            "stripe:?create=1&chunk=16k&member=file:/a%3Fsize%3D3M&member=file:/b%3Fsize%3D3M",
        ]);
        let passes = 1 + numbers.below(3);
        let config = config(&mut numbers, passes);
        let outcome = simulate(seed, move |reactor| async move {
            let volume = open(&reactor, url).await;
            // All of it is read besides, again and again, through a queue of its own.
            let (source, own) = (Arc::clone(&volume), reactor.clone());
            let target = open(&reactor, "null:?size=1G").await;
            let stop = Stop::new();
            let ends = stop.clone();
            let load = reactor.spawn(async move {
                let config = CopyConfig {
                    request_bytes: 32 << 10,
                    depth: 4,
                };
                loop {
                    match copy::run(&own, &source, &target, &config, &ends, |_| {}).await {
                        Ok(_) => {}
                        Err(CopyError::Stopped { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            let outcome = verified(&reactor, &volume, &config).await;
            stop.stop();
            load.await;
            // What it left is what a later check finds.
            let passes_made = outcome.as_ref().map_or(0, |report| report.passes);
            let check = VerifyConfig {
                check_only: true,
                passes_made,
                queues: 1,
                ..config
            };
            if passes_made > 0 {
                let checked = verified(&reactor, &volume, &check).await;
                checked.unwrap_or_else(|error| panic!("{url}, checked: {error}"));
            }
            outcome
        });
        outcome.unwrap_or_else(|error| panic!("seed {seed}, {url}: {error}"));
    }
}

const WRITES: u64 = 400;

/// Random reads and writes of 1 to 4 blocks through a checked volume, 8 in flight on each of two queues, and then its conclusion.
async fn loaded(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    seed: u64,
) -> Result<VerifiedReport, VerifiedError> {
    let stop = Stop::new();
    let stamps = seed ^ 0x5EED_5EED;
    let (volumes, verification) =
        verified::wrap(&[Arc::clone(volume)], stamps, None, &stop).expect("it is small");
    let queues: Vec<_> = (0..2)
        .map(|queue| {
            let (own, volume) = (reactor.clone(), Arc::clone(&volumes[0]));
            let (stop, numbers) = (stop.clone(), Numbers(seed ^ (queue << 32)));
            reactor.spawn(async move { drive(&own, &volume, numbers, &stop).await })
        })
        .collect();
    for queue in queues {
        queue.await;
    }
    verification.conclude(reactor).await
}

async fn drive(reactor: &Reactor, volume: &Arc<dyn Volume>, mut numbers: Numbers, stop: &Stop) {
    let completions = Completions::new();
    let queue = Arc::clone(volume).open_queue(reactor, 8, completions.clone());
    let mut queue = queue.expect("a queue opens");
    let geometry = volume.geometry();
    let (mut batch, mut sent, mut ended) = (VecDeque::new(), 0, 0);
    let is_over = |sent: u64| sent == WRITES || stop.is_asked();
    while ended < sent || !is_over(sent) {
        while sent - ended < 8 && !is_over(sent) {
            let blocks = 1 + numbers.below(4) as u32;
            let lba = numbers.below(geometry.blocks - 4);
            let bytes = (blocks as usize) << geometry.block_size.shift();
            let operation = match numbers.below(2) {
                0 => Operation::Read {
                    lba,
                    blocks,
                    buffers: ReadBuffers::Lend,
                },
                _ => Operation::Write {
                    lba,
                    blocks,
                    data: View::zeroes(bytes).collect(),
                    fua: false,
                },
            };
            let slot = sent as u32;
            let token = Token {
                slot,
                ..Token::default()
            };
            batch.push_back(Request { token, operation });
            sent += 1;
        }
        queue.submit(&mut batch);
        // What overlaps what is in flight on the other queue waits for that, and is to be offered again.
        reactor.sleep(Duration::from_micros(20)).await;
        while let Some(completion) = completions.pop() {
            completion.result.expect("nothing fails");
            ended += 1;
        }
    }
}

#[test]
fn checked_load_on_an_honest_volume_raises_no_alarm() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for seed in (0..8).map(|run| first.wrapping_add(run)) {
        for url in [
            "mem:?size=256k",
            "file:/image?size=1M",
            "mem:?size=64k&block_size=512",
        ] {
            let report = simulate(seed, move |reactor| async move {
                let volume = open(&reactor, url).await;
                loaded(&reactor, &volume, seed).await
            });
            let report = report.unwrap_or_else(|error| panic!("seed {seed}, {url}: {error}"));
            assert!(report.written_blocks > WRITES, "{report:?}");
            assert!(report.compared_blocks > WRITES, "{report:?}");
        }
    }
}

#[test]
fn checked_load_names_every_lie() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for (lie, expected) in [
        ("lost-write", Fault::LostWrite),
        ("torn-block", Fault::TornWrite),
        ("stale-read", Fault::StaleRead),
        ("misdirected-read", Fault::MisdirectedRead),
        ("bit-flip", Fault::BitFlip),
        ("bit-flip-in-read", Fault::BitFlip),
    ] {
        for seed in (0..6).map(|run| first.wrapping_add(run)) {
            // A place that is written to and read again and again.
            let url = format!("lying:?size=64k&lie={lie}&block=5&write=20&to=9");
            let outcome = simulate(seed, move |reactor| async move {
                let volume = open(&reactor, &url).await;
                loaded(&reactor, &volume, seed).await
            });
            let about = format!("seed {seed}, {lie}: {outcome:?}");
            match outcome {
                Err(VerifiedError::Wrong { findings, .. }) => {
                    assert!(findings.iter().all(|one| one.fault == expected), "{about}");
                }
                // Overwritten before anybody looked.
                Ok(_) => assert!(
                    expected != Fault::StaleRead && !lie.ends_with("read"),
                    "{about}"
                ),
                Err(_) => panic!("{about}"),
            }
        }
    }
}

#[test]
fn a_check_that_knows_the_passes_finds_a_lost_write() {
    simulate(7, |reactor| async move {
        let volume = open(&reactor, "mem:?size=1M").await;
        let mut numbers = Numbers(1);
        let run = VerifyConfig {
            queues: 1,
            ..config(&mut numbers, 2)
        };
        verified(&reactor, &volume, &run)
            .await
            .expect("the run is sound");
        let check = |passes_made| VerifyConfig {
            check_only: true,
            passes_made,
            ..run.clone()
        };
        for passes in [0, 1, 2] {
            let checked = verified(&reactor, &volume, &check(passes)).await;
            checked.expect("the volume holds what the second pass wrote");
        }
        let Err(VerifyError::Wrong { findings, .. }) = verified(&reactor, &volume, &check(3)).await
        else {
            panic!("nothing of a third pass is there");
        };
        assert_eq!(findings[0].fault, Fault::LostWrite, "{}", findings[0]);
    });
}
