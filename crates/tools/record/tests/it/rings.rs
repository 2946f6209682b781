//! Recordings are read back, and losses are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_block::{Operation, Volume};
use weir_load::Stop;
use weir_pcap::{Interface, Packet, write};
use weir_record::{
    Content, Counts, Ended, Extract, Generator, Input, Pace, RecordConfig, RecordError, Ring,
    RingConfig, RingError, Source, WhenFull, extract, follow, list, record,
};
use weir_testing::failing::failing;
use weir_testing::initiator::on_machine;
use weir_volume::{LimitedVolume, Limits, RateLimit};

use crate::scene::*;

#[test]
fn packets_come_back_in_their_order() {
    on_machine(|reactor| async move {
        for count in [1, 3] {
            let volumes = volumes(count, "40M");
            let ring = made(&reactor, &volumes, Content::Packets).await;
            let source = packets(20_000, &Generator::MIX);
            let recorded = recorded(ring, source, WhenFull::Stop).await;
            assert_eq!(recorded.ended, Ended::Source);
            let counts = recorded.counts;
            assert_eq!((counts.received, counts.kept), (20_000, 20_000));
            let ring = opened(&reactor, &volumes).await;
            let (file, done) = extracted(&ring, &all()).await;
            assert_eq!((done.packets, done.damaged.len()), (20_000, 0));
            assert!(numbers(&file).iter().copied().eq(0..20_000));
            let listed = list(&ring);
            assert_eq!(listed.len(), 1);
            assert_eq!(
                (listed[0].recording, listed[0].packets, listed[0].counts),
                (recorded.recording, 20_000, counts)
            );
            assert!(listed[0].is_closed && !listed[0].is_cut);
            // A part, by time.
            let (first, last) = (listed[0].first, listed[0].last);
            let middle = first + (last - first) / 2;
            let part = |times| Extract { times, ..all() };
            let (early, _) = extracted(&ring, &part(0..middle)).await;
            let (late, _) = extracted(&ring, &part(middle..u64::MAX)).await;
            let mut both = numbers(&early);
            both.extend(numbers(&late));
            assert!(both.into_iter().eq(0..20_000));
            let few = Extract {
                count: Some(7),
                ..all()
            };
            assert_eq!(
                numbers(&extracted(&ring, &few).await.0),
                [0, 1, 2, 3, 4, 5, 6]
            );
        }
    });
}

/// A packet: its interface's name, its time, its length and its data.
type Parts = (String, u64, u32, Vec<u8>);

/// A file of two sections, whose interfaces have the same number.
fn file() -> (Vec<u8>, Vec<Parts>) {
    let (mut file, mut expected) = (Vec::new(), Vec::new());
    for (section, name) in ["eth0", "eth1"].iter().enumerate() {
        write::section("test", "Linux", &mut file);
        let interface = Interface {
            link_type: weir_pcap::ETHERNET,
            name: Some((*name).to_owned()),
            ..Interface::default()
        };
        write::interface(&interface, &mut file);
        for number in 0..500_u64 {
            // Empty ones and large ones, out of order.
            let length = match number % 5 {
                0 => 0,
                1 => 200_000,
                _ => number as usize,
            };
            let data = vec![number as u8; length];
            let time = 1_000_000 * (section as u64 + 1) + (number ^ 7);
            let packet = Packet {
                time,
                length: length as u32 + 3,
                data: &data,
                ..Packet::default()
            };
            write::packet(&packet, &mut file);
            expected.push(((*name).to_owned(), time, packet.length, data));
        }
    }
    (file, expected)
}

fn input(file: Vec<u8>, content: Content, pace: Pace) -> Source {
    let from = Box::new(std::io::Cursor::new(file));
    Source::Input(Box::new(Input::new("the file", content, pace, from)))
}

#[test]
fn files_come_back_as_they_were() {
    on_machine(|reactor| async move {
        let (file, expected) = file();
        let volumes = volumes(2, "100M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let source = input(file, Content::Packets, Pace::Full);
        let recorded = recorded(ring, source, WhenFull::Stop).await;
        assert_eq!(recorded.counts.kept, 1000);
        let ring = opened(&reactor, &volumes).await;
        let (file, _) = extracted(&ring, &all()).await;
        let mut found = Vec::new();
        let names = ["eth0", "eth1"];
        each(&file, |packet| {
            let name = names[packet.interface as usize].to_owned();
            found.push((name, packet.time, packet.length, packet.data.to_vec()));
        });
        assert!(found == expected);
        // Some of them by time, wherever they stand.
        let times = 1_000_100..2_000_300;
        let part = Extract {
            times: times.clone(),
            ..all()
        };
        let (part, done) = extracted(&ring, &part).await;
        let mut found = Vec::new();
        each(&part, |packet| found.push((packet.time, packet.length)));
        let wanted = expected.iter().filter(|one| times.contains(&one.1));
        let wanted: Vec<_> = wanted.map(|one| (one.1, one.2)).collect();
        assert_eq!(done.packets, wanted.len() as u64);
        assert!(found == wanted);
        // A file that is cut says so, and what came before is kept.
        let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
        let mut source = input(
            file[..file.len() - 5].to_vec(),
            Content::Packets,
            Pace::Full,
        );
        let config = config(WhenFull::Stop);
        let cut = record(ring, &mut source, &config, &Stop::new(), |_| ()).await;
        let error = cut.expect_err("it is cut").to_string();
        assert!(error.contains("it ends at byte"), "{error}");
        let ring = opened(&reactor, &volumes).await;
        let listed = list(&ring);
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[1].packets, 1000);
        let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
        let mut bytes = input(vec![1], Content::Bytes, Pace::Full);
        let refused = record(ring, &mut bytes, &config, &Stop::new(), |_| ()).await;
        assert!(matches!(refused, Err(RecordError::Content { .. })));
    });
}

/// A packet that passes reports the losses before rejected packets. A filter may work on one interface and not on another.
#[test]
fn a_filter_rejects_packets_and_keeps_losses() {
    on_machine(|reactor| async move {
        let mut file = Vec::new();
        write::section("test", "Linux", &mut file);
        for link_type in [weir_pcap::ETHERNET, 101] {
            let interface = Interface {
                link_type,
                ..Interface::default()
            };
            write::interface(&interface, &mut file);
        }
        // Lengths, and losses before each.
        let packets = [(60, 3), (300, 0), (60, 1), (60, 4), (300, 2), (60, 9)];
        for (time, (length, lost)) in (1_000_000..).zip(packets) {
            let packet = Packet {
                time,
                length,
                data: &vec![0; length as usize],
                dropped: (lost > 0).then_some(lost),
                ..Packet::default()
            };
            write::packet(&packet, &mut file);
        }
        let other = Packet {
            interface: 1,
            time: 2_000_000,
            length: 300,
            data: &[0x45; 300],
            ..Packet::default()
        };
        write::packet(&other, &mut file);
        let volumes = volumes(1, "40M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let source = input(file, Content::Packets, Pace::Full);
        recorded(ring, source, WhenFull::Stop).await;
        let ring = opened(&reactor, &volumes).await;
        let only = |filter: &str, times| Extract {
            times,
            filter: Some(filter.to_owned()),
            ..all()
        };
        let (file, done) = extracted(&ring, &only("greater 100", 0..u64::MAX)).await;
        assert_eq!((done.packets, done.filtered), (3, 4));
        let mut found = Vec::new();
        each(&file, |packet| found.push((packet.length, packet.dropped)));
        assert_eq!(found, [(300, Some(3)), (300, Some(7)), (300, Some(9))]);
        for (filter, words) in [
            ("greater", "invalid filter 'greater'"),
            ("ether src 0:0:0:0:0:0", "packets of link type 101"),
        ] {
            let what = only(filter, 0..u64::MAX);
            let done = extract(&ring, &what, &Stop::new(), &mut Vec::new()).await;
            let error = done.expect_err(filter).to_string();
            assert!(error.contains(words), "{error}");
        }
    });
}

/// The reactor's time is that at which its turn began, which is stale on a busy thread.
#[test]
fn a_busy_thread_is_no_step_of_the_clock() {
    on_machine(|reactor| async move {
        let volumes = volumes(1, "40M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let pace = Pace::Rate(8_000_000);
        let mut source =
            Source::Generator(Generator::new(Content::Packets, &[1000], pace, Some(400)));
        let (own, busy) = (reactor.clone(), AtomicBool::new(true));
        let busy = Arc::new(busy);
        let is_busy = Arc::clone(&busy);
        let blocking = reactor.spawn(async move {
            while is_busy.load(Ordering::Relaxed) {
                own.sleep(Duration::from_millis(7)).await;
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        let config = config(WhenFull::Stop);
        let done = record(ring, &mut source, &config, &Stop::new(), |_| ()).await;
        busy.store(false, Ordering::Relaxed);
        blocking.await;
        assert_eq!(done.expect("it is recorded").clock_steps.count, 0);
    });
}

#[test]
fn bytes_come_back_as_they_came() {
    on_machine(|reactor| async move {
        let volumes = volumes(2, "40M");
        let ring = made(&reactor, &volumes, Content::Bytes).await;
        let bytes: Vec<u8> = (0..5_000_001_u32)
            .map(|index| (index % 249) as u8)
            .collect();
        let source = input(bytes.clone(), Content::Bytes, Pace::Full);
        recorded(ring, source, WhenFull::Stop).await;
        let ring = opened(&reactor, &volumes).await;
        let (found, _) = extracted(&ring, &all()).await;
        assert!(found == bytes);
    });
}

#[test]
fn a_full_ring_stops_or_goes_round() {
    on_machine(|reactor| async move {
        let volumes = volumes(2, "13M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        assert!(ring.capacity_bytes() < 6 * u64::from(SEGMENT));
        let full = recorded(ring, packets(100_000, &[1500]), WhenFull::Stop).await;
        assert_eq!(full.ended, Ended::Full);
        assert!(full.counts.kept > 12_000 && full.counts.received == full.counts.kept);
        let ring = opened(&reactor, &volumes).await;
        let (file, done) = extracted(&ring, &all()).await;
        assert_eq!(done.packets, full.counts.kept);
        assert!(numbers(&file).into_iter().eq(0..full.counts.kept));
        // Another one finds no room, and then goes round over the first.
        let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
        let none = recorded(ring, packets(10, &[100]), WhenFull::Stop).await;
        assert_eq!((none.ended, none.counts.kept), (Ended::Full, 0));
        for count in [20_000, 100_000] {
            let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
            let round = recorded(ring, packets(count, &[1500]), WhenFull::GoRound).await;
            assert_eq!((round.ended, round.counts.kept), (Ended::Source, count));
            let ring = opened(&reactor, &volumes).await;
            let listed = list(&ring);
            let last = listed.last().expect("it is there");
            assert_eq!(last.recording, round.recording);
            assert!(last.is_cut && last.is_closed);
            let only = Extract {
                recording: Some(round.recording),
                ..all()
            };
            let (file, done) = extracted(&ring, &only).await;
            assert_eq!(done.damaged, []);
            let numbers = numbers(&file);
            assert!(numbers.len() > 5_000, "{} packets are there", numbers.len());
            let first = numbers[0];
            assert!(
                numbers.into_iter().eq(first..count),
                "the newest, without a hole"
            );
        }
    });
}

#[test]
fn rings_are_known_by_their_volumes() {
    on_machine(|reactor| async move {
        let volumes = volumes(3, "20M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        let id = ring.id();
        recorded(ring, packets(30_000, &[500]), WhenFull::Stop).await;
        // In another order it is the same ring.
        let turned = [
            Arc::clone(&volumes[2]),
            Arc::clone(&volumes[0]),
            Arc::clone(&volumes[1]),
        ];
        let ring = opened(&reactor, &turned).await;
        assert_eq!((ring.id(), ring.missing()), (id, Vec::new()));
        let (file, _) = extracted(&ring, &all()).await;
        assert!(numbers(&file).into_iter().eq(0..30_000));
        // Without one, what is on the others is read, and nothing is recorded.
        let ring = opened(&reactor, &turned[..2]).await;
        assert_eq!(ring.missing(), [1]);
        let (file, _) = extracted(&ring, &all()).await;
        let numbers = numbers(&file);
        assert!(numbers.len() < 30_000 && !numbers.is_empty());
        let error = Ring::open(&reactor, &turned[..2], true).await.map(drop);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("1 of them were not given (numbers 1)"),
            "{error}"
        );
        let twice = [Arc::clone(&volumes[0]), Arc::clone(&volumes[0])];
        let error = Ring::open(&reactor, &twice, false).await.map(drop);
        assert!(matches!(error, Err(RingError::Twice { .. })));
        let foreign = crate::scene::volumes(1, "20M");
        let error = Ring::open(&reactor, &foreign, true).await.map(drop);
        assert!(matches!(error, Err(RingError::NoRing { .. })));
        made(&reactor, &foreign, Content::Packets).await;
        let mixed = [Arc::clone(&volumes[0]), Arc::clone(&foreign[0])];
        let error = Ring::open(&reactor, &mixed, false).await.map(drop);
        assert!(matches!(error, Err(RingError::OtherRing { .. })));
        let small = crate::scene::volumes(1, "5M");
        let config = weir_record::RingConfig {
            content: Content::Packets,
            segment_bytes: SEGMENT,
        };
        let error = Ring::make(&reactor, &small, &config).await.map(drop);
        assert!(matches!(error, Err(RingError::TooSmall { .. })));
        // A ring that is made anew has nothing of the one before.
        made(&reactor, &volumes, Content::Packets).await;
        let ring = opened(&reactor, &volumes).await;
        assert!(ring.id() != id && list(&ring).is_empty());
    });
}

#[test]
fn damage_is_named_and_left_out() {
    on_machine(|reactor| async move {
        let volumes = volumes(1, "40M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        recorded(ring, packets(10_000, &[1000]), WhenFull::Stop).await;
        // A byte of the second chunk of the first segment.
        let mut client = weir_testing::initiator::Client::new(&volumes[0], &reactor, 1);
        let lba = ((1 << 20) + (2 << 12) + (1 << 20) + 50_000) / 512;
        let mut block = client.read(lba, 1).await.unwrap();
        block[100] ^= 1;
        client.write(lba, &block, 512).await.unwrap();
        let ring = opened(&reactor, &volumes).await;
        let (file, done) = extracted(&ring, &all()).await;
        assert_eq!(done.damaged.len(), 1);
        let damage = &done.damaged[0];
        assert!(damage.why.contains("checksum") && damage.at == (1 << 20) + (2 << 12) + (1 << 20));
        assert_eq!(done.packets + damage.packets, 10_000);
        let numbers = numbers(&file);
        assert_eq!(numbers.len() as u64, done.packets);
        let holes = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1);
        assert_eq!(holes.count(), 1);
    });
}

#[test]
fn what_is_recorded_is_followed() {
    on_machine(|reactor| async move {
        let volumes = volumes(2, "40M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        recorded(ring, packets(1000, &[1000]), WhenFull::GoRound).await;
        let (follower, stop) = (opened(&reactor, &volumes).await, Stop::new());
        let asked = stop.clone();
        let following = reactor.spawn(async move {
            let mut file = Vec::new();
            let (what, every) = (all(), Duration::from_millis(20));
            let done = follow(follower, &what, every, &asked, &mut file).await;
            (file, done.expect("it follows"))
        });
        // Two recordings, one after the other, each with its own numbers.
        for count in [3000, 5000] {
            let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
            let pace = Pace::Rate(200_000_000);
            let generator = Generator::new(Content::Packets, &[1000], pace, Some(count));
            let mut source = Source::Generator(generator);
            let config = RecordConfig {
                sync: Duration::from_millis(30),
                ..config(WhenFull::GoRound)
            };
            let done = record(ring, &mut source, &config, &Stop::new(), |_| ()).await;
            assert_eq!(done.unwrap().counts.kept, count);
        }
        reactor.sleep(Duration::from_millis(500)).await;
        stop.stop();
        let (file, done) = following.await;
        assert_eq!((done.damaged.len(), done.packets), (0, 8000));
        assert!(numbers(&file).into_iter().eq((0..3000).chain(0..5000)));
    });
}

/// Segments that a recorder goes over while they are read are no damage.
#[test]
fn what_is_given_up_meanwhile_is_told_apart() {
    on_machine(|reactor| async move {
        let volumes = volumes(1, "40M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        recorded(ring, packets(20_000, &[1000]), WhenFull::GoRound).await;
        let before = opened(&reactor, &volumes).await;
        let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
        recorded(ring, packets(100_000, &[1000]), WhenFull::GoRound).await;
        let (_, done) = extracted(&before, &all()).await;
        assert_eq!((done.damaged.len(), done.packets), (0, 0));
        assert!(done.given_up > 10, "{} chunks", done.given_up);
    });
}

/// A volume that takes 4 MiB a second.
fn slow() -> Vec<Arc<dyn Volume>> {
    let limits = Limits {
        write_bandwidth: Some(RateLimit::new(4 << 20, Some(4 << 20)).unwrap()),
        ..Limits::default()
    };
    vec![LimitedVolume::new(memory("100M"), limits)]
}

fn short_of_buffers() -> RecordConfig {
    RecordConfig {
        buffer_bytes: 4 << 20,
        ..config(WhenFull::Stop)
    }
}

#[test]
fn what_slow_volumes_lose_is_counted() {
    on_machine(|reactor| async move {
        let slow = slow();
        let ring = made(&reactor, &slow, Content::Packets).await;
        // 400 MB/s for a fifth of a second, through 4 MiB of buffers.
        let pace = Pace::Rate(3_200_000_000);
        let generator = Generator::new(Content::Packets, &[1500], pace, Some(53_000));
        let mut source = Source::Generator(generator);
        let config = short_of_buffers();
        let recorded = record(ring, &mut source, &config, &Stop::new(), |_| ()).await;
        let Counts {
            received,
            kept,
            slow_lost,
            ..
        } = recorded.unwrap().counts;
        assert_eq!(received, 53_000);
        assert_eq!(kept + slow_lost, 53_000);
        assert!(
            slow_lost > 1000 && kept > 1000,
            "{kept} kept, {slow_lost} lost"
        );
        let ring = opened(&reactor, &slow).await;
        let (file, done) = extracted(&ring, &all()).await;
        assert_eq!(done.packets, kept);
        let mut dropped = Vec::new();
        each(&file, |packet| dropped.push(packet.dropped.unwrap_or(0)));
        let numbers = numbers(&file);
        // Each packet tells how many were lost before it.
        let gaps = numbers.windows(2).zip(&dropped[1..]);
        for (pair, dropped) in gaps {
            assert_eq!(pair[1] - pair[0], 1 + dropped, "before packet {}", pair[1]);
        }
        assert_eq!(dropped[0], numbers[0]);
        assert_eq!(list(&ring)[0].counts.slow_lost, slow_lost);
    });
}

/// A volume that fails to write after so many writes.
fn failing_after(left: Arc<AtomicU64>, inner: Arc<dyn Volume>) -> Arc<dyn Volume> {
    failing(inner, move |operation| {
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let take = |left: u64| left.checked_sub(1);
        let is_write = matches!(operation, Operation::Write { .. });
        is_write && left.fetch_update(set, get, take).is_err()
    })
}

#[test]
fn a_volume_that_fails_costs_its_own() {
    on_machine(|reactor| async move {
        for writes in [2, 3, 5, 7, 9, 12] {
            let left = Arc::new(AtomicU64::new(u64::MAX));
            let mut volumes = volumes(2, "60M");
            volumes.push(failing_after(Arc::clone(&left), memory("60M")));
            let ring = made(&reactor, &volumes, Content::Packets).await;
            left.store(writes, Ordering::Release);
            let recorded = recorded(ring, packets(60_000, &[1000]), WhenFull::Stop).await;
            assert_eq!(recorded.ended, Ended::Source);
            assert!(!recorded.failures.is_empty());
            assert!(recorded.failures[0].to_string().contains("failing"));
            let counts = recorded.counts;
            assert_eq!(counts.received, 60_000);
            assert_eq!(counts.kept + counts.failed_lost, 60_000, "{counts:?}");
            assert!(counts.failed_lost < 10_000, "{counts:?}");
            let ring = opened(&reactor, &volumes).await;
            let (file, done) = extracted(&ring, &all()).await;
            assert_eq!((done.packets, done.damaged.len()), (counts.kept, 0));
            assert!(numbers(&file).windows(2).all(|pair| pair[0] < pair[1]));
        }
    });
}

/// A volume that fails to write its superblocks from some time on.
fn failing_to_tell(from_now: Arc<AtomicBool>, inner: Arc<dyn Volume>) -> Arc<dyn Volume> {
    failing(inner, move |operation| {
        let is_told = matches!(operation, Operation::Write { lba, .. } if lba * 512 < 1 << 20);
        is_told && from_now.load(Ordering::Acquire)
    })
}

#[test]
fn a_tail_that_cannot_be_written_is_a_volume_that_fails() {
    on_machine(|reactor| async move {
        for failing_count in [1, 2] {
            let fails = Arc::new(AtomicBool::new(false));
            let mut volumes = volumes(2, "13M");
            for volume in &mut volumes[..failing_count] {
                *volume = failing_to_tell(Arc::clone(&fails), Arc::clone(volume));
            }
            let ring = made(&reactor, &volumes, Content::Packets).await;
            fails.store(true, Ordering::Release);
            let recorded = recorded(ring, packets(50_000, &[1500]), WhenFull::GoRound).await;
            let is_all = failing_count == 2;
            assert_eq!(recorded.ended == Ended::Failed, is_all, "{recorded:?}");
            assert_eq!(recorded.failures.len(), failing_count, "{recorded:?}");
            // Nor is a ring made on it.
            let config = RingConfig {
                content: Content::Packets,
                segment_bytes: SEGMENT,
            };
            let refused = Ring::make(&reactor, &volumes, &config).await;
            assert!(matches!(refused, Err(RingError::Lane(_))));
        }
    });
}

/// Room is made before the source begins.
#[test]
fn a_full_ring_costs_a_live_source_nothing() {
    on_machine(|reactor| async move {
        let volumes = volumes(2, "13M");
        let ring = made(&reactor, &volumes, Content::Packets).await;
        recorded(ring, packets(20_000, &[1500]), WhenFull::GoRound).await;
        for _ in 0..5 {
            let ring = Ring::open(&reactor, &volumes, true).await.unwrap();
            let pace = Pace::Rate(100_000_000);
            let generator = Generator::new(Content::Packets, &[1500], pace, Some(500));
            let source = Source::Generator(generator);
            let counts = recorded(ring, source, WhenFull::GoRound).await.counts;
            assert_eq!((counts.received, counts.kept), (500, 500), "{counts:?}");
        }
    });
}

#[test]
fn what_is_not_taken_any_more_is_not_lost() {
    on_machine(|reactor| async move {
        let slow = slow();
        let ring = made(&reactor, &slow, Content::Packets).await;
        let (config, stop) = (short_of_buffers(), Stop::new());
        let asked = stop.clone();
        let later = reactor.clone();
        let stopping = reactor.spawn(async move {
            later.sleep(Duration::from_millis(300)).await;
            asked.stop();
        });
        let mut source = packets(u64::MAX, &[1500]);
        let recorded = record(ring, &mut source, &config, &stop, |_| ()).await;
        let recorded = recorded.unwrap();
        stopping.await;
        let counts = recorded.counts;
        assert_eq!(recorded.ended, Ended::Stopped);
        assert_eq!((counts.received, counts.slow_lost), (counts.kept, 0));
    });
}
