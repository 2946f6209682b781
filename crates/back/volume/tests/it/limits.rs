//! A namespace's limits, through queues on several reactors of one simulated system.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_block::{Landing, Operation, ReadBuffers, Volume, VolumeError};
use weir_reactor::sim::DiskConfig;
use weir_reactor::{Reactor, oneshot};
use weir_testing::harness::{Client, Harness, compare_write, seed, write};
use weir_volume::{Guard, GuardConfig, LimitedVolume, Limits, RateLimit};

fn limited(harness: &Harness, url: &str, limits: Limits) -> Arc<LimitedVolume> {
    let guard = Guard::new(harness.open(url), GuardConfig::default()).unwrap();
    LimitedVolume::new(guard, limits)
}

fn as_volume(limited: &Arc<LimitedVolume>) -> Arc<dyn Volume> {
    Arc::<LimitedVolume>::clone(limited)
}

fn rate(rate: u64, burst: u64) -> Option<RateLimit> {
    Some(RateLimit::new(rate, Some(burst)).unwrap())
}

fn read(lba: u64) -> Operation {
    Operation::Read {
        lba,
        blocks: 1,
        buffers: ReadBuffers::Lend,
    }
}

/// Changes the limits and waits until they hold.
async fn set(volume: &LimitedVolume, limits: Limits) {
    let (sender, told) = oneshot();
    volume.set_limits(limits, Box::new(move |result| sender.send(result)));
    assert_eq!(told.await, Some(Ok(())));
}

/// Keeps `depth` reads in flight for a time; how many ended.
async fn reads_for(client: &Rc<Client>, reactor: &Reactor, depth: usize, time: Duration) -> u64 {
    let end = reactor.now() + time;
    let mut tokens = VecDeque::new();
    let mut ended = 0;
    while reactor.now() < end {
        while tokens.len() < depth {
            tokens.push_back(client.submit(read(ended % 64)));
        }
        let first = tokens.pop_front().unwrap();
        assert_eq!(client.completion(first).await.0, Ok(()));
        ended += 1;
    }
    // What waits is not worth waiting for.
    tokens.iter().for_each(|&token| client.cancel(token));
    for token in tokens {
        let (result, _) = client.completion(token).await;
        assert!(matches!(result, Ok(()) | Err(VolumeError::Cancelled)));
        ended += u64::from(result.is_ok());
    }
    ended
}

#[test]
fn reactors_together_have_the_rate_and_no_more_and_one_alone_has_all_of_it() {
    let seed = seed("reactors_together_have_the_rate_and_no_more_and_one_alone_has_all_of_it");
    for busy in [1, 2, 4] {
        let harness = Harness::simulated(seed, DiskConfig::default(), 4);
        let limits = Limits {
            total_iops: rate(20_000, 1_000),
            ..Limits::default()
        };
        let volume = limited(&harness, "mem:?size=1M", limits);
        let ended = harness.run_all({
            let volume = Arc::clone(&volume);
            move |index, reactor| {
                let volume = as_volume(&volume);
                async move {
                    let client = Client::open(&volume, &reactor, 128);
                    if index >= busy {
                        // It reads now and then, and holds nothing for long.
                        assert!(client.read(0, 1).await.is_ok());
                        return 1;
                    }
                    reads_for(&client, &reactor, 64, Duration::from_secs(1)).await
                }
            }
        });
        let all: u64 = ended.iter().sum();
        // The last requests may end a little after the second.
        assert!((20_500..=21_400).contains(&all), "{busy} busy: {ended:?}");
        for one in &ended[..busy] {
            let share = all / busy as u64;
            assert!(*one * 10 >= share * 7, "{busy} busy: {ended:?}");
        }
        let throttled = volume.throttled();
        assert!(throttled.requests > 15_000 && throttled.waited_ns > 1_000_000_000);
        assert_eq!(throttled.waiting, 0);
    }
}

#[test]
fn without_limits_nothing_waits_and_limits_come_and_go_under_load() {
    let seed = seed("without_limits_nothing_waits_and_limits_come_and_go_under_load");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    let volume = limited(&harness, "file:/a?size=1M", Limits::default());
    let done = Arc::new(AtomicU64::new(0));
    harness.run_all(move |index, reactor| {
        let (volume, done) = (Arc::clone(&volume), Arc::clone(&done));
        async move {
            let client = Client::open(&as_volume(&volume), &reactor, 64);
            if index == 1 {
                // A load that never pauses.
                while done.load(Ordering::SeqCst) == 0 {
                    reads_for(&client, &reactor, 32, Duration::from_millis(20)).await;
                }
                return;
            }
            reads_for(&client, &reactor, 32, Duration::from_millis(20)).await;
            assert_eq!(volume.throttled(), weir_volume::Throttled::default());
            set(
                &volume,
                Limits {
                    read_iops: rate(100, 1),
                    ..Limits::default()
                },
            )
            .await;
            let few = reads_for(&client, &reactor, 32, Duration::from_secs(1)).await;
            assert!((30..=110).contains(&few), "{few}");
            assert!(volume.throttled().waiting > 0, "the other's wait");
            // What waits goes on under the new limits, without waiting for the old ones.
            set(&volume, Limits::default()).await;
            reactor.sleep(Duration::from_micros(10)).await;
            assert_eq!(volume.throttled().waiting, 0);
            let many = reads_for(&client, &reactor, 32, Duration::from_millis(20)).await;
            assert!(many > 100, "{many}");
            done.store(1, Ordering::SeqCst);
        }
    });
}

#[test]
fn each_class_has_its_own_limit_and_flushes_and_deallocates_have_none() {
    let seed = seed("each_class_has_its_own_limit_and_flushes_and_deallocates_have_none");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let limits = Limits {
        write_iops: rate(1, 1),
        read_bandwidth: rate(4096, 4096),
        ..Limits::default()
    };
    let volume = limited(&harness, "mem:?size=1M", limits);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&as_volume(&volume), &reactor, 64);
        let data = vec![7; 4096];
        assert_eq!(client.write(0, 1, &data).await, Ok(()));
        let began = reactor.now();
        let waits = client.submit(write(1, 1, &data));
        for _ in 0..100 {
            let free = Operation::Deallocate { lba: 9, blocks: 1 };
            assert_eq!(client.done(free).await, Ok(()));
            assert_eq!(client.done(Operation::Flush).await, Ok(()));
        }
        // A verify counts as a read, and has no bytes.
        for _ in 0..10 {
            let verify = Operation::Verify { lba: 0, blocks: 64 };
            assert_eq!(client.done(verify).await, Ok(()));
        }
        assert_eq!(client.read(0, 1).await, Ok(data.clone()));
        assert!(reactor.now() - began < Duration::from_millis(100));
        assert_eq!(client.completion(waits).await.0, Ok(()));
        assert!(reactor.now() - began > Duration::from_millis(900));
        let began = reactor.now();
        let zeroes = Operation::WriteZeroes {
            lba: 3,
            blocks: 1,
            deallocate: false,
            fua: false,
        };
        assert_eq!(client.done(zeroes).await, Ok(()));
        let compared = compare_write(1, 1, &data, &data);
        assert_eq!(client.done(compared).await, Ok(()));
        assert!(reactor.now() - began > Duration::from_millis(1_900));
        // 64 KiB at 4 KiB a second are paid off afterwards: the bucket was full.
        let began = reactor.now();
        assert!(client.read(0, 16).await.is_ok());
        assert!(client.read(0, 1).await.is_ok());
        assert!(reactor.now() - began > Duration::from_secs(15));
    });
}

#[test]
fn what_waits_can_be_cancelled_and_a_fence_or_the_end_of_the_volume_ends_it() {
    let seed = seed("what_waits_can_be_cancelled_and_a_fence_or_the_end_of_the_volume_ends_it");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let limits = Limits {
        write_iops: rate(1, 1),
        ..Limits::default()
    };
    let volume = limited(&harness, "file:/a?size=1M", limits);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&as_volume(&volume), &reactor, 64);
        let first = client.submit(write(0, 1, &[1; 4096]));
        let waits: Vec<_> = (1..4)
            .map(|lba| client.submit(write(lba, 1, &[1; 4096])))
            .collect();
        assert_eq!(client.completion(first).await.0, Ok(()));
        client.cancel(waits[1]);
        assert_eq!(
            client.completion(waits[1]).await.0,
            Err(VolumeError::Cancelled)
        );
        assert_eq!(volume.throttled().waiting, 3, "as of the last draw");
        let (sender, fenced) = oneshot();
        volume.fence(Box::new(move |result| sender.send(result)));
        assert_eq!(fenced.await, Some(Ok(())));
        for index in [0, 2] {
            let ended = client.completion(waits[index]).await.0;
            assert_eq!(ended, Err(VolumeError::Cancelled));
        }
        assert_eq!(client.read(1, 3).await, Ok(vec![0; 3 * 4096]));
        let last = client.submit(write(5, 1, &[1; 4096]));
        let after = client.submit(write(6, 1, &[1; 4096]));
        let (sender, retired) = oneshot();
        volume
            .guard()
            .retire(Box::new(move |result| sender.send(result)));
        assert_eq!(retired.await, Some(Ok(())));
        for token in [last, after] {
            let ended = client.completion(token).await.0;
            assert!(
                matches!(ended, Ok(()) | Err(VolumeError::Lost)),
                "{ended:?}"
            );
        }
        let refused = as_volume(&volume).open_queue(&reactor, 1, weir_block::Completions::new());
        assert!(matches!(refused, Err(VolumeError::Lost)));
    });
}

#[test]
fn data_that_may_wait_long_has_a_buffer_of_its_own() {
    let seed = seed("data_that_may_wait_long_has_a_buffer_of_its_own");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = limited(&harness, "null:?size=1M", Limits::default());
    harness.run(0, move |reactor| async move {
        let client = Client::open(&as_volume(&volume), &reactor, 4);
        assert!(matches!(client.queue().landing(0, 1), Landing::Anywhere));
        let limits = Limits {
            total_bandwidth: rate(1 << 20, 1 << 20),
            ..Limits::default()
        };
        set(&volume, limits).await;
        assert!(matches!(client.queue().landing(0, 1), Landing::Ready(_)));
        set(&volume, Limits::default()).await;
        assert!(matches!(client.queue().landing(0, 1), Landing::Anywhere));
    });
}

#[test]
fn two_namespaces_of_a_volume_have_limits_apart_and_locks_together() {
    let seed = seed("two_namespaces_of_a_volume_have_limits_apart_and_locks_together");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    let slow = limited(
        &harness,
        "file:/a?size=1M",
        Limits {
            write_iops: rate(200, 2),
            ..Limits::default()
        },
    );
    let fast = LimitedVolume::new(Arc::clone(slow.guard()), Limits::default());
    let counts = harness.run_all(move |index, reactor| {
        let volume = as_volume(if index == 0 { &slow } else { &fast });
        async move {
            let client = Client::open(&volume, &reactor, 16);
            let end = reactor.now() + Duration::from_secs(1);
            let mut added = 0_u64;
            while reactor.now() < end {
                let there = client.read(0, 1).await.unwrap();
                let count = u64::from_le_bytes(there[..8].try_into().unwrap());
                let mut next = vec![0; 4096];
                next[..8].copy_from_slice(&(count + 1).to_le_bytes());
                match client.done(compare_write(0, 1, &there, &next)).await {
                    Ok(()) => added += 1,
                    Err(VolumeError::Miscompare { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let there = client.read(0, 1).await.unwrap();
            (added, u64::from_le_bytes(there[..8].try_into().unwrap()))
        }
    });
    let [(slow, _), (fast, _)] = counts[..] else {
        unreachable!("there are two reactors")
    };
    let last = counts.iter().map(|(_, last)| *last).max().unwrap();
    assert_eq!(slow + fast, last, "no update was lost");
    assert!(slow <= 203 && fast > 1_000, "{counts:?}");
}

#[test]
fn what_waits_for_tokens_holds_no_depth_of_another_namespace() {
    const DEPTH: u32 = 4;
    let seed = seed("what_waits_for_tokens_holds_no_depth_of_another_namespace");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let limits = Limits {
        read_iops: rate(1, 1),
        ..Limits::default()
    };
    let slow = limited(&harness, "file:/a?size=1M", limits);
    let fast = LimitedVolume::new(Arc::clone(slow.guard()), Limits::default());
    harness.run(0, move |reactor| async move {
        let open = |volume| Client::open(&as_volume(volume), &reactor, DEPTH);
        let (waiting, quick) = (open(&slow), open(&fast));
        // One has the burst; its line takes as many as its depth, and no more.
        let tokens: Vec<_> = (0..20).map(|lba| waiting.submit(read(lba))).collect();
        assert_eq!(waiting.completion(tokens[0]).await.0, Ok(()));
        assert_eq!(waiting.untaken(), tokens.len() - 1 - DEPTH as usize);
        let began = reactor.now();
        let ended = reads_for(&quick, &reactor, DEPTH as usize, Duration::from_millis(100));
        assert!(ended.await > 100);
        let late = reactor.now().since(began);
        assert!(late < Duration::from_millis(200), "{late:?}");
        assert_eq!(waiting.answered(), 1, "all others wait for tokens");
        waiting.abandon(&tokens[1..]).await;
    });
}
