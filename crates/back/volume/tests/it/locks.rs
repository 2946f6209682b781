//! Range locks over several reactors: nothing that overlaps a compare-and-write comes between its halves.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_block::{BlockSize, Operation, ReadBuffers, Volume, VolumeError};
use weir_reactor::random::Random;
use weir_reactor::sim::DiskConfig;
use weir_reactor::{Reactor, oneshot};
use weir_testing::harness::{self, Client, Harness, compare_write, seed};
use weir_volume::{Guard, GuardConfig};

/// Increments of the counter by each reactor.
const INCREMENTS: u64 = 40;
/// Blocks of the counter: each holds it.
const COUNTER_BLOCKS: u32 = 3;
const COUNTER_LBA: u64 = 8;

fn counter(value: u64, block: usize) -> Vec<u8> {
    let words = block / 8 * COUNTER_BLOCKS as usize;
    value.to_le_bytes().repeat(words)
}

/// The counter, when all of its bytes tell the same.
fn value(data: &[u8]) -> u64 {
    let value = u64::from_le_bytes(data[..8].try_into().unwrap());
    let whole = data.chunks(8).all(|word| word == value.to_le_bytes());
    assert!(whole, "a compare-and-write was seen in part");
    value
}

/// Increments the counter by compare-and-write until it was this reactor that did it so many times.
async fn increment(client: Rc<Client>, block: usize, times: u64) {
    for _ in 0..times {
        loop {
            let now = client.read(COUNTER_LBA, COUNTER_BLOCKS).await.unwrap();
            let now = value(&now);
            let (compare, data) = (counter(now, block), counter(now + 1, block));
            let operation = compare_write(COUNTER_LBA, COUNTER_BLOCKS, &compare, &data);
            match client.done(operation).await {
                Ok(()) => break,
                Err(VolumeError::Miscompare { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Writes the blocks around the counter, and over both edges of what a compare-and-write locks beside it.
async fn disturb(client: Rc<Client>, mut random: Random, block: usize, reactor: Reactor, lba: u64) {
    for _ in 0..100 {
        let stamp = random.next() | 1;
        let data = stamp.to_le_bytes().repeat(2 * block / 8);
        client.write(lba, 2, &data).await.unwrap();
        let read = client.read(lba, 2).await.unwrap();
        assert!(read == data, "a neighbour lost its write");
        if random.one_in(8) {
            reactor.sleep(std::time::Duration::from_micros(50)).await;
        }
    }
}

/// Every reactor increments the counter from two tasks, and writes its neighbours meanwhile: no increment is lost.
fn race(harness: &Harness, volume: &Arc<dyn Volume>, seed: u64) {
    let block = volume.geometry().block_size.bytes() as usize;
    let shared = Arc::clone(volume);
    harness.run_all(move |index, reactor| {
        let volume = Arc::clone(&shared);
        async move {
            let client = Client::open(&volume, &reactor, 16);
            let random = Random::new(seed + index as u64);
            // Each reactor has neighbours of its own, two below the counter and two above.
            let lba = [COUNTER_LBA - 2, COUNTER_LBA + u64::from(COUNTER_BLOCKS)][index % 2];
            let lba = if index < 2 { lba } else { lba + 20 };
            let (sender, receiver) = oneshot();
            let disturbing = disturb(Rc::clone(&client), random, block, reactor.clone(), lba);
            reactor
                .spawn(async move {
                    disturbing.await;
                    sender.send(());
                })
                .detach();
            let second = increment(Rc::clone(&client), block, INCREMENTS / 2);
            let (done, second_done) = oneshot();
            reactor
                .spawn(async move {
                    second.await;
                    done.send(());
                })
                .detach();
            increment(client, block, INCREMENTS / 2).await;
            second_done.await.unwrap();
            receiver.await.unwrap();
        }
    });
    let reactors = harness.reactors() as u64;
    let volume = Arc::clone(volume);
    let total = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 1);
        value(&client.read(COUNTER_LBA, COUNTER_BLOCKS).await.unwrap())
    });
    assert_eq!(total, reactors * INCREMENTS, "an increment was lost");
}

fn guarded(harness: &Harness, url: &str) -> Arc<dyn Volume> {
    Guard::new(harness.open(url), GuardConfig::default()).unwrap()
}

#[test]
fn no_increment_is_lost_on_the_real_system() {
    let seed = seed("no_increment_is_lost_on_the_real_system");
    let harness = Harness::real(3);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = directory.path().join("a").display().to_string();
    for url in [
        "mem:?size=1M".to_owned(),
        "mem:?size=1M&block_size=512".to_owned(),
        format!("file:{file}?size=1M"),
    ] {
        race(&harness, &guarded(&harness, &url), seed);
    }
}

#[test]
fn no_increment_is_lost_on_the_simulated_system() {
    let seed = seed("no_increment_is_lost_on_the_simulated_system");
    for round in 0..4 {
        let harness = Harness::simulated(seed + round, DiskConfig::default(), 3);
        race(&harness, &guarded(&harness, "file:/a?size=1M"), seed);
        race(&harness, &guarded(&harness, "mem:?size=1M"), seed);
    }
}

/// 512-byte blocks on 4096: every write of a neighbour is itself a read and a write of the same block below.
#[test]
fn no_write_is_lost_below_the_block() {
    let seed = seed("no_write_is_lost_below_the_block");
    let disk = DiskConfig {
        offset_alignment: 4096,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 3);
    let volume = harness.open("file:/a?size=1M&block_size=512");
    assert_eq!(volume.geometry().block_size, BlockSize::B512);
    race(
        &harness,
        &guarded(&harness, "mem:?size=1M&block_size=512"),
        seed,
    );
    race(&harness, &volume, seed);
}

/// A blind write is ordered wholly before or wholly after a compare-and-write of the same blocks: were it to come between
/// the comparison and the write, it would be lost though it was acknowledged before anything else was written.
#[test]
fn an_ordinary_write_never_comes_between_the_halves() {
    let seed = seed("an_ordinary_write_never_comes_between_the_halves");
    for round in 0..20 {
        let harness = Harness::simulated(seed.wrapping_add(round), DiskConfig::default(), 2);
        let volume = guarded(&harness, "file:/a?size=1M");
        let written = Arc::new(AtomicU64::new(0));
        let (shared, seen) = (Arc::clone(&volume), Arc::clone(&written));
        harness.run_all(move |index, reactor| {
            let (volume, written) = (Arc::clone(&shared), Arc::clone(&seen));
            async move {
                let client = Client::open(&volume, &reactor, 8);
                let pause = reactor.random() % 400_000;
                reactor.sleep(std::time::Duration::from_nanos(pause)).await;
                if index == 0 {
                    // From 0 to 1; when the other was first, nothing.
                    let (from, to) = (counter(0, 4096), counter(1, 4096));
                    let operation = compare_write(COUNTER_LBA, COUNTER_BLOCKS, &from, &to);
                    let _ = client.done(operation).await;
                } else {
                    let data = counter(7, 4096);
                    let done = client.write(COUNTER_LBA, COUNTER_BLOCKS, &data).await;
                    assert_eq!(done, Ok(()));
                    written.store(7, Ordering::SeqCst);
                }
            }
        });
        // Whatever the order: after both, it is 7. Were it 1, the write would have come between the halves.
        let end = harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 1);
            value(&client.read(COUNTER_LBA, COUNTER_BLOCKS).await.unwrap())
        });
        assert_eq!(
            (end, written.load(Ordering::SeqCst)),
            (7, 7),
            "round {round}"
        );
    }
}

/// A reader of the blocks sees all of a compare-and-write or nothing of it: `value` asserts it in every race. Here it is
/// held against a volume whose longest transfer is shorter than what is compared and written.
#[test]
fn a_compare_and_write_of_several_transfers_is_seen_whole() {
    let seed = seed("a_compare_and_write_of_several_transfers_is_seen_whole");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    let volume = guarded(&harness, "file:/a?size=1M");
    let geometry = volume.geometry();
    let blocks = geometry.compare_write_blocks;
    let bytes = (blocks as usize) << geometry.block_size.shift();
    harness.run_all(move |index, reactor| {
        let volume = Arc::clone(&volume);
        async move {
            let client = Client::open(&volume, &reactor, 8);
            for round in 0..20u8 {
                if index == 0 {
                    let (compare, data) = (vec![round; bytes], vec![round + 1; bytes]);
                    let done = client.done(compare_write(0, blocks, &compare, &data)).await;
                    assert_eq!(done, Ok(()));
                } else {
                    let read = client.read(0, blocks).await.unwrap();
                    assert!(read.iter().all(|&byte| byte == read[0]));
                }
            }
        }
    });
}

/// What is dropped while it holds a lock, or while others wait for it, holds nobody up.
#[test]
fn a_dropped_queue_lets_its_locks_go() {
    let seed = seed("a_dropped_queue_lets_its_locks_go");
    for round in 0..10 {
        let harness = Harness::simulated(seed.wrapping_add(round), DiskConfig::default(), 2);
        let volume = guarded(&harness, "file:/a?size=1M");
        let ends = harness.run_all(move |index, reactor| {
            let volume = Arc::clone(&volume);
            async move {
                let client = Client::open(&volume, &reactor, 8);
                if index == 0 {
                    let zero = counter(0, 4096);
                    for lba in [COUNTER_LBA, COUNTER_LBA + 1] {
                        client.submit(compare_write(lba, COUNTER_BLOCKS, &zero, &zero));
                    }
                    client.submit(harness::write(COUNTER_LBA, COUNTER_BLOCKS, &zero));
                    let pause = reactor.random() % 800_000;
                    reactor.sleep(std::time::Duration::from_nanos(pause)).await;
                    return true;
                }
                let mut ok = true;
                for _ in 0..5 {
                    let zero = counter(0, 4096);
                    let operation = compare_write(COUNTER_LBA, COUNTER_BLOCKS, &zero, &zero);
                    ok &= client.done(operation).await.is_ok();
                }
                ok
            }
        });
        assert_eq!(ends, [true, true]);
    }
}

/// What waits for a lock can be cancelled, and comes back as it was.
#[test]
fn what_waits_for_a_lock_can_be_cancelled() {
    let seed = seed("what_waits_for_a_lock_can_be_cancelled");
    let disk = DiskConfig {
        offset_alignment: 4096,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 1);
    let volume = harness.open("file:/a?size=1M&block_size=512");
    let waited = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 8);
        let half = vec![1; 512];
        let locking = client.submit(harness::write(3, 1, &half));
        // The lock is announced within a turn of the loop.
        reactor.sleep(std::time::Duration::from_nanos(1)).await;
        let waiting = client.submit(Operation::Read {
            lba: 0,
            blocks: 8,
            buffers: ReadBuffers::Lend,
        });
        client.cancel(waiting);
        let (result, operation) = client.completion(waiting).await;
        assert_eq!(operation.range(), Some((0, 8)));
        assert_eq!(client.completion(locking).await.0, Ok(()));
        result
    });
    assert_eq!(waited, Err(VolumeError::Cancelled));
}

/// A write of a part of a block below reads and writes all of it; a write of the whole must not be undone by that.
#[test]
fn a_write_of_a_part_undoes_no_write_of_the_whole() {
    let seed = seed("a_write_of_a_part_undoes_no_write_of_the_whole");
    let disk = DiskConfig {
        offset_alignment: 4096,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 2);
    let volume = harness.open("file:/a?size=1M&block_size=512");
    for round in 1..60u8 {
        let shared = Arc::clone(&volume);
        harness.run_all(move |index, reactor| {
            let volume = Arc::clone(&shared);
            async move {
                let client = Client::open(&volume, &reactor, 4);
                let pause = reactor.random() % 300_000;
                reactor.sleep(std::time::Duration::from_nanos(pause)).await;
                if index == 0 {
                    let whole = vec![round; 4096];
                    assert_eq!(client.write(8, 8, &whole).await, Ok(()));
                } else {
                    let part = vec![0xF0; 512];
                    assert_eq!(client.write(10, 1, &part).await, Ok(()));
                }
            }
        });
        let shared = Arc::clone(&volume);
        let read = harness.run(0, move |reactor| async move {
            let client = Client::open(&shared, &reactor, 1);
            client.read(8, 8).await.unwrap()
        });
        let (part, rest): (Vec<_>, Vec<_>) = (0..4096).partition(|at| (1024..1536).contains(at));
        assert!(rest.iter().all(|&at| read[at] == round), "round {round}");
        let last = read[1024];
        assert!(last == round || last == 0xF0, "round {round}");
        assert!(part.iter().all(|&at| read[at] == last), "round {round}");
    }
}
