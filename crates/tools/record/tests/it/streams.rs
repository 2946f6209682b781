//! A recording of several streams: merged by time, and none in the way of the others.

use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_load::Stop;
use weir_reactor::{Reactor, Task};
use weir_record::{
    Content, Ended, Extract, Generator, Pace, RecordConfig, Recorded, Ring, Source, Streams,
    WhenFull, follow, list, record_stream,
};
use weir_testing::initiator::simulation;

use crate::scene::*;

/// Packets of one stream: their size, their number, and bits a second.
type Stream = (usize, u64, u64);
/// Instead of a rate: it waits for room.
const WAITS: u64 = 0;

/// Records streams side by side.
async fn record_all(
    reactor: &Reactor,
    ring: Ring,
    streams: &[Stream],
    config: RecordConfig,
) -> Vec<Recorded> {
    let shared = Arc::new(Streams::new(&ring, streams.len() as u32));
    let mut tasks: Vec<Task<Recorded>> = Vec::new();
    for (number, &(size, count, rate)) in streams.iter().enumerate() {
        let ring = ring.share().open(reactor).expect("it opens again");
        let stream = (Arc::clone(&shared), number as u32);
        let pace = match rate {
            WAITS => Pace::Full,
            rate => Pace::Rate(rate),
        };
        let generator = Generator::new(Content::Packets, &[size], pace, Some(count));
        tasks.push(reactor.spawn(async move {
            let mut source = Source::Generator(generator);
            let stop = Stop::new();
            let recorded = record_stream(ring, stream, &mut source, &config, &stop, |_| ());
            recorded.await.expect("it is recorded")
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await);
    }
    all
}

/// Size, number and time of each packet of a file.
fn packets_of(file: &[u8]) -> Vec<(usize, u64, u64)> {
    let (mut packets, numbers) = (Vec::new(), numbers(file));
    each(file, |packet| {
        packets.push((packet.data.len(), 0, packet.time))
    });
    for (packet, number) in packets.iter_mut().zip(numbers) {
        packet.1 = number;
    }
    packets
}

fn check_order(packets: &[(usize, u64, u64)]) {
    let times = packets.windows(2);
    assert!(
        times.into_iter().all(|pair| pair[0].2 <= pair[1].2),
        "by time"
    );
}

#[test]
fn streams_are_merged_by_time() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes = volumes(3, "60M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let streams: [Stream; 3] = [
            (1000, 20_000, 400_000_000),
            (600, 5000, 60_000_000),
            (300, 10, 60_000),
        ];
        let config = config(WhenFull::Stop);
        let recorded = record_all(&reactor, ring, &streams, config).await;
        let ring = opened(&reactor, &volumes).await;
        let (file, done) = extracted(&ring, &all()).await;
        assert_eq!((done.packets, done.damaged.len()), (25_010, 0));
        let found = packets_of(&file);
        check_order(&found);
        for (size, count, _) in streams {
            let own = found.iter().filter(|packet| packet.0 == size);
            assert!(
                own.map(|packet| packet.1).eq(0..count),
                "packets of {size} bytes"
            );
        }
        let listed = list(&ring);
        assert_eq!(listed.len(), 1);
        assert!(listed[0].is_closed && !listed[0].is_cut);
        assert_eq!((listed[0].packets, listed[0].counts.kept), (25_010, 25_010));
        assert!(
            recorded
                .iter()
                .all(|one| one.recording == listed[0].recording)
        );
        // A part of it, by time and by number.
        let half = Extract {
            times: 0..found[12_000].2,
            ..all()
        };
        let (early, _) = extracted(&ring, &half).await;
        assert_eq!(packets_of(&early), found[..packets_of(&early).len()]);
        let few = Extract {
            count: Some(100),
            ..all()
        };
        assert_eq!(packets_of(&extracted(&ring, &few).await.0), found[..100]);
    });
}

/// One stream goes round the ring many times, the others write next to nothing.
#[test]
fn a_slow_stream_is_in_nobodys_way() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes: Vec<Arc<dyn Volume>> = volumes(2, "33M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        // 14 segments of 4 MiB; 240 MB come.
        let streams: [Stream; 3] = [
            (1000, 240_000, 600_000_000),
            (600, 30, 48_000),
            (300, 1, 1_000_000),
        ];
        let config = config(WhenFull::GoRound);
        let recorded = record_all(&reactor, ring, &streams, config).await;
        for (one, (size, count, _)) in recorded.iter().zip(streams) {
            assert_eq!(
                (one.ended, one.counts.kept),
                (Ended::Source, count),
                "{size}"
            );
            assert_eq!(one.counts.slow_lost, 0, "{size}");
        }
        let ring = opened(&reactor, &volumes).await;
        let (file, done) = extracted(&ring, &all()).await;
        assert_eq!((done.damaged.len(), done.given_up), (0, 0));
        let found = packets_of(&file);
        check_order(&found);
        let fast: Vec<u64> = found
            .iter()
            .filter(|of| of.0 == 1000)
            .map(|of| of.1)
            .collect();
        assert_eq!(fast.last(), Some(&239_999));
        assert!(
            fast.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "without a hole"
        );
        let listed = &list(&ring)[0];
        assert!(listed.is_closed, "each stream says that it ended in order");
        assert!(listed.is_cut);
        // Of the one that ended long before, nothing is left.
        assert_eq!(listed.counts.kept, 240_030);
    });
}

/// Streams that had closed their segment long before the end, and whose slots others have had since, end in order all the same.
#[test]
fn a_stream_that_was_idle_for_rounds_ends_in_order() {
    simulation().run(0, |reactor: Reactor| async move {
        for _ in 0..3 {
            let volumes = volumes(2, "33M");
            let ring = made(&reactor, &volumes, Content::Packets).await;
            // The second one has a packet at once, and its second and last one when the first one has been round a few times.
            let streams: [Stream; 2] = [(1000, 200_000, 800_000_000), (1000, 2, 4000)];
            let config = config(WhenFull::GoRound);
            let recorded = record_all(&reactor, ring, &streams, config).await;
            let kept = recorded.iter().map(|one| one.counts.kept);
            assert!(kept.eq([200_000, 2]));
            let ring = opened(&reactor, &volumes).await;
            let (_, done) = extracted(&ring, &all()).await;
            assert_eq!((done.damaged.len(), done.given_up), (0, 0));
            assert!(list(&ring)[0].is_closed);
        }
    });
}

/// The buffer has room for more than the ring: whoever waits for a place lets those write that make it.
#[test]
fn sources_that_wait_get_round_a_small_ring() {
    simulation().run(0, |reactor: Reactor| async move {
        for (count, size) in [(1, "9M"), (2, "13M"), (3, "17M")] {
            let volumes = volumes(1, size);
            let ring = made(&reactor, &volumes, Content::Packets).await;
            let streams = vec![(1000, 40_000, WAITS); count];
            let config = config(WhenFull::GoRound);
            let recorded = record_all(&reactor, ring, &streams, config).await;
            for one in recorded {
                assert_eq!((one.ended, one.counts.kept), (Ended::Source, 40_000));
            }
            let ring = opened(&reactor, &volumes).await;
            let (_, done) = extracted(&ring, &all()).await;
            assert_eq!((done.damaged.len(), done.given_up), (0, 0));
        }
    });
}

/// A stream that has nothing to commit holds a place before those of the others.
#[test]
fn all_streams_are_followed() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes = volumes(1, "80M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        // The last one is the fastest, and the others commit long after it.
        let streams: [Stream; 8] = [
            (300, 3, 4000),
            (301, 3, 4000),
            (302, 3, 4000),
            (303, 3, 4000),
            (304, 3, 4000),
            (305, 3, 4000),
            (306, 3, 4000),
            (1000, 20_000, 160_000_000),
        ];
        let (stop, what) = (Stop::new(), all());
        let following = {
            let (reactor, stop) = (reactor.clone(), stop.clone());
            let ring = opened(&reactor, &volumes).await;
            let every = Duration::from_millis(20);
            reactor.clone().spawn(async move {
                let mut file = Vec::new();
                let done = follow(ring, &what, every, &stop, &mut file).await;
                (file, done.expect("it is followed"))
            })
        };
        record_all(&reactor, ring, &streams, config(WhenFull::Stop)).await;
        // It looks once more for what was committed last.
        reactor.sleep(Duration::from_millis(500)).await;
        stop.stop();
        let (file, done) = following.await;
        assert_eq!(done.packets, 20_021);
        let found = packets_of(&file);
        for (size, count, _) in streams {
            let own = found.iter().filter(|packet| packet.0 == size);
            assert!(own.map(|packet| packet.1).eq(0..count), "{size}");
        }
    });
}

/// Two streams that write little to a ring of three segments leave one another's alone.
#[test]
fn streams_that_write_little_keep_all_in_a_small_ring() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes = volumes(1, "13M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        // Three seconds, so that each is synced several times.
        let streams: [Stream; 2] = [(1000, 100, 250_000), (600, 100, 150_000)];
        record_all(&reactor, ring, &streams, config(WhenFull::GoRound)).await;
        let ring = opened(&reactor, &volumes).await;
        let (_, done) = extracted(&ring, &all()).await;
        assert_eq!((done.packets, done.damaged.len()), (200, 0));
        assert!(list(&ring).iter().all(|one| !one.is_cut));
    });
}

#[test]
fn a_ring_has_more_segments_than_a_recording_has_streams() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes = volumes(1, "13M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let streams = Arc::new(Streams::new(&ring, 3));
        let (mut source, stop) = (packets(10, &[100]), Stop::new());
        let config = config(WhenFull::GoRound);
        let recorded = record_stream(ring, (streams, 2), &mut source, &config, &stop, |_| ());
        let error = recorded.await.unwrap_err().to_string();
        assert!(
            error.starts_with("the ring has 3 segments, too few for 3 reactors"),
            "{error}"
        );
    });
}
