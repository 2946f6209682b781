//! A recorder whose machine loses its power, or that is killed, at any moment.

use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_load::Stop;
use weir_reactor::sim::Crash;
use weir_reactor::{Reactor, System};
use weir_record::{
    Content, Generator, Pace, RecordConfig, Ring, RingConfig, Source, Streams, WhenFull, list,
    record_stream,
};
use weir_testing::initiator::{simulation, start_reactors};
use weir_volume::{Access, Guard, GuardConfig, Registry, VolumeUrl};

use crate::scene::*;

const RECORDER: usize = 0;
const OTHER: usize = 1;
/// Cuts of one simulation.
const CUTS: usize = 15;
/// Simulations every night: more than a thousand cuts with the two tests.
const NIGHTLY: usize = 34;
const SYNC: Duration = Duration::from_millis(200);
/// Time that writes, syncs and commit records take at most, beside `SYNC`.
const SLACK: Duration = Duration::from_millis(150);
const RATE: u64 = 40_000_000;
const PACKET: usize = 8000;

async fn disks(reactor: Reactor) -> Vec<Arc<dyn Volume>> {
    let registry = Registry::standard();
    let mut all: Vec<Arc<dyn Volume>> = Vec::new();
    for number in 0..2 {
        let path = format!("/disk{number}");
        let url = VolumeUrl::new("file", &path).with("size", 13 << 20);
        let access = Access { read_only: false };
        let volume = registry.open(&reactor, &url, access).await;
        let guard = Guard::new(volume.expect("it opens"), GuardConfig::default());
        all.push(guard.expect("a guard"));
    }
    all
}

/// Records without an end, in so many streams. Their packets differ in size.
async fn recording(reactor: Reactor, is_new: bool, streams: usize) {
    let volumes = disks(reactor.clone()).await;
    let ring = match is_new {
        true => {
            let config = RingConfig {
                content: Content::Packets,
                segment_bytes: SEGMENT,
            };
            Ring::make(&reactor, &volumes, &config).await
        }
        false => Ring::open(&reactor, &volumes, true).await,
    };
    let ring = ring.expect("a ring");
    let shared = Arc::new(Streams::new(&ring, streams as u32));
    let mut tasks = Vec::new();
    for number in 0..streams {
        let pace = Pace::Rate(RATE);
        let generator = Generator::new(Content::Packets, &[PACKET + number], pace, None);
        let ring = ring.share().open(&reactor).expect("it opens again");
        let stream = (Arc::clone(&shared), number as u32);
        tasks.push(reactor.spawn(async move {
            let mut source = Source::Generator(generator);
            let config = RecordConfig {
                when_full: WhenFull::GoRound,
                sync: SYNC,
                ..RecordConfig::default()
            };
            let _ = record_stream(ring, stream, &mut source, &config, &Stop::new(), |_| ()).await;
        }));
    }
    for task in tasks {
        task.await;
    }
}

/// Number, time and losses before it of each packet of a file, by stream.
fn by_stream(file: &[u8], streams: usize) -> Vec<Vec<(u64, u64, u64)>> {
    let (mut found, mut numbers) = (vec![Vec::new(); streams], numbers(file).into_iter());
    each(file, |packet| {
        let number = numbers.next().expect("each has one");
        found[packet.data.len() - PACKET].push((number, packet.time, packet.dropped.unwrap_or(0)));
    });
    found
}

/// Each time the newest recording is there without a hole, but for its last moments.
#[test]
fn what_was_synced_is_there_after_any_cut() {
    cut_again_and_again(1);
}

/// The same test with two streams, whose segments alternate.
#[test]
fn what_was_synced_of_two_streams_is_there_after_any_cut() {
    cut_again_and_again(2);
}

fn cut_again_and_again(streams: usize) {
    let is_nightly = std::env::var_os("WEIR_NIGHTLY").is_some_and(|value| !value.is_empty());
    for _ in 0..if is_nightly { NIGHTLY } else { 1 } {
        cut_in_a_simulation(streams);
    }
}

fn cut_in_a_simulation(streams: usize) {
    let simulation = simulation();
    let (world, system) = (simulation.world(), simulation.system(RECORDER));
    simulation.run(OTHER, move |reactor| async move {
        let mut last_seen = 0;
        for cut in 0..CUTS {
            let remote = start(&system);
            let recorded = remote.call(move |reactor| recording(reactor, cut == 0, streams));
            let running = reactor.spawn(async move {
                let _ = recorded.await;
            });
            // Up to once around the ring and more.
            let time = Duration::from_millis(reactor.random() % 6000);
            reactor.sleep(time).await;
            let now = system.wall_clock();
            let crash = match cut % 3 {
                0 => Crash::Process,
                _ => Crash::Power,
            };
            world.crash(RECORDER, crash);
            drop(running);
            world.restart(RECORDER);
            if cut == 0 && time < Duration::from_millis(500) {
                // There may be no ring yet.
                let made = start(&system).call(move |reactor| async move {
                    let volumes = disks(reactor.clone()).await;
                    made(&reactor, &volumes, Content::Packets).await;
                });
                made.await.expect("the reactor runs");
                continue;
            }
            let looked = start(&system).call(move |reactor| async move {
                let volumes = disks(reactor.clone()).await;
                let ring = opened(&reactor, &volumes).await;
                let listed = list(&ring);
                let newest = listed.last().cloned();
                let (file, done) = extracted(&ring, &all()).await;
                assert_eq!(done.damaged, [], "what a record names is there");
                (newest, by_stream(&file, streams))
            });
            let (newest, found) = looked.await.expect("the reactor runs");
            let Some(newest) = newest else {
                assert!(time < SYNC + SLACK, "nothing is there after {time:?}");
                continue;
            };
            assert!(newest.last >= last_seen, "nothing that was there is gone");
            last_seen = newest.last;
            // Packet numbers of a recording are contiguous, except for losses while another stream moved the tail. They begin with 0, or with the oldest
            // packet left.
            for packets in &found {
                for pair in packets.windows(2) {
                    let lost = if streams == 1 { 0 } else { pair[1].2 };
                    let follows = pair[1].0 == pair[0].0 + 1 + lost || pair[1].0 == 0;
                    let is_cut = pair[0].1 < newest.first;
                    assert!(follows || is_cut, "a hole: {pair:?}");
                }
                if time > 2 * (SYNC + SLACK) {
                    let last = packets.last().expect("it has packets").1;
                    let lost = now - Duration::from_nanos(last);
                    assert!(lost < SYNC + SLACK, "{lost:?} were lost");
                }
            }
        }
    });
}

fn start(system: &Arc<dyn System>) -> weir_reactor::Remote {
    start_reactors(system, 1).remove(0)
}
