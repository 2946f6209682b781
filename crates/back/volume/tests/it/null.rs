//! `null:` and `mem:` with a limit to their speed, on the simulated system, whose clock says exactly how long it took.

use std::time::Duration;

use weir_block::{Operation, ReadBuffers};
use weir_reactor::Instant;
use weir_reactor::sim::DiskConfig;
use weir_volume::Access;

use weir_testing::harness::{Client, Harness, seed};

/// Requests of each queue.
const REQUESTS: u32 = 50;
/// What a simulated reactor may be late by: its turns take time.
const LATE: Duration = Duration::from_millis(5);

fn read(lba: u64) -> Operation {
    Operation::Read {
        lba,
        blocks: 1,
        buffers: ReadBuffers::Lend,
    }
}

/// Has every reactor submit its requests at once: when the first was submitted, and when each ended.
fn run(harness: &Harness, url: &str, depth: u32) -> (Instant, Vec<Instant>) {
    let volume = harness.open(url);
    let ran = harness.run_all(move |_, reactor| {
        let client = Client::open(&volume, &reactor, depth);
        async move {
            let began = reactor.now();
            let tokens: Vec<_> = (0..REQUESTS)
                .map(|index| client.submit(read(u64::from(index))))
                .collect();
            let untaken = REQUESTS.saturating_sub(depth) as usize;
            assert_eq!(client.untaken(), untaken, "no more than the depth is taken");
            let mut ends = Vec::new();
            for token in tokens {
                let (result, _) = client.completion(token).await;
                result.expect("everything succeeds");
                ends.push(reactor.now());
            }
            (began, ends)
        }
    });
    let began = ran.iter().map(|(began, _)| *began).min();
    let mut ends: Vec<_> = ran.into_iter().flat_map(|(_, ends)| ends).collect();
    ends.sort_unstable();
    (began.expect("there is a reactor"), ends)
}

#[test]
fn a_rate_holds_for_all_reactors_together() {
    let seed = seed("a_rate_holds_for_all_reactors_together");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    let (began, ends) = run(&harness, "null:?size=1M&rate=1000&delay=20ms", 128);
    assert_eq!(ends.len() as u32, 2 * REQUESTS);
    for (index, end) in ends.iter().enumerate() {
        let least = Duration::from_millis(20 + 1 + index as u64);
        let took = *end - began;
        assert!(
            took >= least,
            "request {index} ended after {took:?} already"
        );
    }
    let took = *ends.last().expect("requests") - began;
    let most = Duration::from_millis(20 + 2 * u64::from(REQUESTS)) + LATE;
    assert!(took <= most, "{took:?}, more than {most:?}");
}

#[test]
fn a_delay_alone_limits_nothing_else() {
    let seed = seed("a_delay_alone_limits_nothing_else");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let (began, ends) = run(&harness, "null:?size=1M&delay=20ms", 128);
    for end in &ends {
        let took = *end - began;
        assert!(took >= Duration::from_millis(20), "{took:?}");
        assert!(took <= Duration::from_millis(20) + LATE, "{took:?}");
    }
    // What does not fit the depth waits for what is in flight.
    let (began, ends) = run(&harness, "null:?size=1M&delay=20ms", 10);
    let took = *ends.last().expect("requests") - began;
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert!(took <= Duration::from_millis(100) + 5 * LATE, "{took:?}");
}

#[test]
fn a_stall_holds_up_what_comes_into_it_and_nothing_else() {
    let seed = seed("a_stall_holds_up_what_comes_into_it_and_nothing_else");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for kind in ["null", "mem"] {
        // Of fifty requests at one a millisecond the last twenty come after it.
        let url = format!("{kind}:?size=1M&rate=1000&stall=200ms@30ms");
        let (began, ends) = run(&harness, &url, 128);
        for (index, end) in ends.iter().enumerate() {
            let held_up = if index >= 30 { 200 } else { 0 };
            let least = Duration::from_millis(1 + index as u64 + held_up);
            let took = *end - began;
            assert!(
                took >= least,
                "{kind}: request {index} ended after {took:?}"
            );
            assert!(
                took <= least + LATE,
                "{kind}: request {index} ended after {took:?}"
            );
        }
    }
}

#[test]
fn what_is_no_limit_is_refused() {
    let seed = seed("what_is_no_limit_is_refused");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for (parameter, allowed) in [
        ("rate=0", "a whole number from 1 to 1000000"),
        ("rate=fast", "a whole number from 1 to 1000000"),
        ("delay=5", "with us, ms or s"),
        ("delay=-5ms", "with us, ms or s"),
        ("delay=61s", "up to 60s"),
        ("delay=99999999999999999999s", "up to 60s"),
        ("stall=1s", "such as 1s@5s"),
        ("stall=0s@1s", "such as 1s@5s"),
    ] {
        for kind in ["null", "mem"] {
            let url = format!("{kind}:?size=1M&{parameter}");
            let error = harness.try_open(&url, Access::READ_WRITE).err();
            let error = error.expect("it is refused").to_string();
            assert!(error.contains(allowed), "{url}: {error}");
        }
    }
}
