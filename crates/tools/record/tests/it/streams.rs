//! A recording of several streams: merged by time, and none in the way of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_block::{Operation, Volume};
use weir_load::Stop;
use weir_reactor::{Reactor, Task};
use weir_record::{
    Content, Ended, Extract, Generator, Pace, Pressure, RecordConfig, Recorded, Ring, RingError,
    Source, Streams, WhenFull, follow, list, record, record_stream,
};
use weir_testing::failing::failing;
use weir_testing::initiator::simulation;
use weir_volume::{LimitedVolume, Limits, RateLimit};

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
    let mut packets = Vec::new();
    each(file, |packet| {
        let number = Generator::number_of(packet.data).expect("it has one");
        packets.push((packet.data.len(), number, packet.time));
    });
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

/// A volume that carries 100 MB/s, reads and writes together.
fn narrow() -> Arc<dyn Volume> {
    let limits = Limits {
        total_bandwidth: Some(RateLimit::new(100_000_000, Some(1 << 20)).expect("a limit")),
        ..Limits::default()
    };
    LimitedVolume::new(memory("120M"), limits)
}

/// Records 80 MB/s for a second while the ring is read again and again: the recording, and the chunks that were read meanwhile.
async fn read_beside(reactor: &Reactor, yields: bool) -> (Recorded, u64) {
    let volumes = vec![narrow()];
    let ring = made(reactor, &volumes, Content::Packets).await;
    recorded(ring, packets(5000, &[1000]), WhenFull::GoRound).await;
    let ring = Ring::open(reactor, &volumes, true).await.expect("it opens");
    let streams = Arc::new(Streams::new(&ring, 1));
    let pressure = Arc::clone(streams.pressure());
    let recording = reactor.spawn(async move {
        let pace = Pace::Rate(8 * 80_000_000);
        let generator = Generator::new(Content::Packets, &[1500], pace, Some(55_000));
        let mut source = Source::Generator(generator);
        let config = RecordConfig {
            buffer_bytes: 16 << 20,
            ..config(WhenFull::GoRound)
        };
        let stop = Stop::new();
        record_stream(ring, (streams, 0), &mut source, &config, &stop, |_| ()).await
    });
    let end = Stop::new();
    let (reader, stop) = (reactor.clone(), end.clone());
    let shared = Arc::clone(&pressure);
    let reading = reactor.spawn(async move {
        let mut chunks = 0;
        while !stop.is_asked() {
            let recorder = |_| match yields {
                true => Arc::clone(&shared),
                false => absent(),
            };
            let ring = Ring::open_behind(&reader, &volumes, recorder, &Stop::new()).await;
            let (_, done) = extracted(&ring.expect("it opens"), &all()).await;
            assert_eq!(done.damaged, []);
            chunks += done.chunks;
        }
        chunks
    });
    let recorded = recording.await.expect("it is recorded");
    end.stop();
    let chunks = reading.await;
    let counts = recorded.counts;
    assert_eq!(counts.kept + counts.slow_lost, 55_000);
    assert!(!pressure.is_high(), "nobody records any more");
    (recorded, chunks)
}

/// Reads wait while the recorder's buffers fill. Without that they cost it a part of what it records.
#[test]
fn a_recording_beside_an_extraction_loses_nothing() {
    simulation().run(0, |reactor: Reactor| async move {
        let (recorded, chunks) = read_beside(&reactor, true).await;
        let counts = recorded.counts;
        assert_eq!((counts.kept, counts.slow_lost), (55_000, 0));
        assert!(chunks > 0, "nothing was read");
        let (recorded, _) = read_beside(&reactor, false).await;
        assert!(recorded.counts.slow_lost > 1000, "{:?}", recorded.counts);
        assert!(!recorded.volumes[0].held_up.is_zero());
    });
}

/// The pressure that a reader finds where no recorder runs.
fn absent() -> Arc<Pressure> {
    let pressure = Arc::new(Pressure::default());
    pressure.set_recording(false);
    pressure
}

/// A reader beside a recorder that is always short of buffers goes on, and one that is stopped ends soon.
#[test]
fn a_reader_does_not_wait_for_ever() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes = vec![memory("40M") as Arc<dyn Volume>];
        let ring = made(&reactor, &volumes, Content::Packets).await;
        recorded(ring, packets(5000, &[1000]), WhenFull::GoRound).await;
        let pressure = Arc::new(Pressure::recording());
        pressure.raise();
        let stop = Stop::new();
        let recorder = || {
            let pressure = Arc::clone(&pressure);
            move |_| pressure
        };
        let began = reactor.now();
        let opened = Ring::open_behind(&reactor, &volumes, recorder(), &stop).await;
        let opened = opened.expect("it opens");
        let (_, done) = extracted(&opened, &all()).await;
        assert_eq!(done.packets, 5000);
        let took = reactor.now() - began;
        assert!(took > Duration::from_secs(5), "reads went first: {took:?}");
        // A reader that is stopped while it waits reads no more.
        let ring = Ring::open_behind(&reactor, &volumes, recorder(), &stop);
        let (stopping, asked) = (reactor.clone(), stop.clone());
        let stops = reactor.spawn(async move {
            stopping.sleep(Duration::from_millis(20)).await;
            asked.stop();
        });
        let began = reactor.now();
        assert!(matches!(ring.await, Err(RingError::Stopped)));
        assert!(reactor.now() - began < Duration::from_millis(60));
        stops.await;
        // Without a recorder nothing waits, and a reader that does not learn whether there is one goes on.
        pressure.set_recording(false);
        let began = reactor.now();
        let opened = Ring::open_behind(&reactor, &volumes, recorder(), &Stop::new()).await;
        extracted(&opened.expect("it opens"), &all()).await;
        assert!(reactor.now() - began < Duration::from_secs(1));
        let unknown = |_| Arc::new(Pressure::default());
        let opened = Ring::open_behind(&reactor, &volumes, unknown, &Stop::new()).await;
        extracted(&opened.expect("it opens"), &all()).await;
    });
}

/// Few buffers are as good as many for readers: one that is being filled is no pressure.
#[test]
fn a_recorder_that_keeps_up_does_not_hold_readers_back() {
    simulation().run(0, |reactor: Reactor| async move {
        for buffers in [4, 5, 7, 8, 16, 64] {
            let volumes = vec![narrow()];
            let ring = made(&reactor, &volumes, Content::Packets).await;
            let streams = Arc::new(Streams::new(&ring, 1));
            let pressure = Arc::clone(streams.pressure());
            let highs = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&highs);
            pressure.on_change(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            let pace = Pace::Rate(8 * 10_000_000);
            let generator = Generator::new(Content::Packets, &[1500], pace, Some(7000));
            let mut source = Source::Generator(generator);
            let config = RecordConfig {
                buffer_bytes: buffers << 20,
                ..config(WhenFull::GoRound)
            };
            let stop = Stop::new();
            let recorded = record_stream(ring, (streams, 0), &mut source, &config, &stop, |_| ());
            assert_eq!(recorded.await.expect("it is recorded").counts.kept, 7000);
            assert_eq!(highs.load(Ordering::Relaxed), 0, "with {buffers} buffers");
        }
    });
}

/// A recording that fails, or is dropped in the middle, leaves no pressure behind.
#[test]
fn no_pressure_is_left_behind() {
    simulation().run(0, |reactor: Reactor| async move {
        for is_dropped in [false, true] {
            let left = Arc::new(AtomicU64::new(30));
            let volumes = vec![failing_after(&left, narrow())];
            let ring = made(&reactor, &volumes, Content::Packets).await;
            let streams = Arc::new(Streams::new(&ring, 1));
            let pressure = Arc::clone(streams.pressure());
            let pace = Pace::Rate(8 * 800_000_000);
            let generator = Generator::new(Content::Packets, &[1500], pace, None);
            let config = RecordConfig {
                buffer_bytes: 16 << 20,
                ..config(WhenFull::GoRound)
            };
            let recording = reactor.spawn(async move {
                let mut source = Source::Generator(generator);
                let stop = Stop::new();
                record_stream(ring, (streams, 0), &mut source, &config, &stop, |_| ()).await
            });
            while !pressure.is_high() {
                reactor.sleep(Duration::from_millis(1)).await;
            }
            if is_dropped {
                drop(recording);
            } else {
                left.store(0, Ordering::Relaxed);
                let recorded = recording.await.expect("it is recorded");
                assert_eq!(recorded.ended, Ended::Failed);
            }
            // Writes that are under way end by themselves.
            let until = reactor.now() + Duration::from_secs(10);
            while pressure.is_high() && reactor.now() < until {
                reactor.sleep(Duration::from_millis(1)).await;
            }
            assert!(!pressure.is_high(), "dropped: {is_dropped}");
        }
    });
}

/// A volume that fails to write when no writes are left.
fn failing_after(left: &Arc<AtomicU64>, inner: Arc<dyn Volume>) -> Arc<dyn Volume> {
    let left = Arc::clone(left);
    failing(inner, move |operation| {
        matches!(operation, Operation::Write { .. }) && left.load(Ordering::Relaxed) == 0
    })
}

/// The volume that is slow is the one that held the recorder up.
#[test]
fn a_slow_volume_is_told_apart() {
    simulation().run(0, |reactor: Reactor| async move {
        let volumes: Vec<Arc<dyn Volume>> = vec![memory("120M"), memory("120M"), narrow()];
        let ring = made(&reactor, &volumes, Content::Packets).await;
        assert_eq!(ring.names().len(), 3);
        let generator = Generator::new(Content::Packets, &[1500], Pace::Full, Some(100_000));
        let mut source = Source::Generator(generator);
        let config = RecordConfig {
            buffer_bytes: 16 << 20,
            ..config(WhenFull::GoRound)
        };
        let recorded = record(ring, &mut source, &config, &Stop::new(), |_| ()).await;
        let volumes = recorded.expect("it is recorded").volumes;
        let [a, b, slow] = volumes[..] else {
            panic!("three volumes")
        };
        assert!(slow.held_up > Duration::from_millis(100), "{volumes:?}");
        assert!(slow.held_up > 4 * (a.held_up + b.held_up), "{volumes:?}");
        assert!(slow.waited > 4 * (a.waited + b.waited), "{volumes:?}");
        let written = volumes.iter().map(|one| one.written_bytes);
        assert!(written.sum::<u64>() > 150_000_000, "{volumes:?}");
        assert!(
            volumes
                .iter()
                .all(|one| one.buffers == 0 && !one.has_failed)
        );
    });
}

/// Sets the clock back by an hour, then forward by a day.
#[test]
fn packets_are_kept_and_found_when_the_clock_is_set() {
    const HOUR: i64 = 3_600_000_000_000;
    let simulation = simulation();
    let world = simulation.world();
    simulation.run(0, move |reactor| async move {
        let volumes = volumes(2, "40M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let (own, began) = (reactor.clone(), reactor.system().wall_clock());
        let setting = reactor.spawn(async move {
            for step in [-HOUR, 24 * HOUR] {
                own.sleep(Duration::from_millis(500)).await;
                world.step_wall_clock(step);
            }
        });
        // 8 Mb/s of packets of 1,000 bytes: 1,000 a second.
        let streams = [(1000, 1500, 8_000_000), (1001, 1500, 8_008_000)];
        let config = RecordConfig {
            sync: Duration::from_millis(200),
            ..config(WhenFull::Stop)
        };
        let recorded = record_all(&reactor, ring, &streams, config).await;
        setting.await;
        for one in &recorded {
            assert_eq!((one.counts.kept, one.clock_steps.count), (1500, 2));
            let seconds = one.clock_steps.nanoseconds as f64 / 1e9;
            assert!((seconds - 23.0 * 3600.0).abs() < 0.001, "{seconds}");
        }
        let ring = opened(&reactor, &volumes).await;
        let listed = list(&ring);
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].clock_steps, recorded[0].clock_steps);
        assert!(listed[0].is_closed && !listed[0].is_cut);
        let (file, done) = extracted(&ring, &all()).await;
        assert_eq!((done.packets, done.damaged.len()), (3000, 0));
        for text in ["stepped by -3600.000 s", "stepped by +86400.000 s"] {
            let is_there = file.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(is_there, "no statistics say '{text}'");
        }
        // Each part by its own times, within the 4 ms that a turn of the recorder may take.
        let began = began.as_nanos() as u64;
        for (from, to) in [(0, 500_i64), (500, 1000), (1000, 1500)] {
            let step = match from {
                0 => 0,
                500 => -HOUR,
                _ => 23 * HOUR,
            };
            let at = |milliseconds| began.wrapping_add_signed(step + milliseconds * 1_000_000);
            let part = Extract {
                times: at(from - 100)..at(to + 100),
                ..all()
            };
            let (file, done) = extracted(&ring, &part).await;
            assert!(done.packets.abs_diff(1000) <= 8, "{} packets", done.packets);
            for packet in packets_of(&file) {
                assert!(part.times.contains(&packet.2));
            }
        }
    });
}
