//! Damaged and forged rings of the recorder.
//!
//! A program edits a small ring that the recorder itself has made, in plain memory. Most edits correct the checksum, or the reader would
//! reject them all there. Then the ring is opened on the deterministic simulation, listed, extracted, recorded onto, and extracted again.
//!
//! A program has a head of 8 bytes (the ring, and what to do with it) and edits of 16 bytes each.

mod edit;
mod image;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use edit::{STEP_BYTES, Step};
use image::Disk;
use uuid::Uuid;
use weir_block::Volume;
use weir_load::Stop;
use weir_pcap::{Found, Reader};
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Faults, Simulation};
use weir_record::{
    Content, Ended, Extract, Extracted, Generator, Listed, Output, Pace, Pressure, ReadError,
    RecordConfig, RecordError, Recorded, Ring, Source, Streams, WhenFull, extract, follow, list,
    record_stream,
};

const HEAD_BYTES: usize = 8;
const STEPS_MAX: usize = 100;
/// Rounds of the simulation for one program: tens of times what any needs.
const ROUNDS_MAX: u64 = 300_000;
const PACKET_BYTES: usize = 64;
/// Extracted bytes for each byte of a chunk, and beside that, at most: small blocks are written again with options.
const GROWTH: u64 = 8;
const GROWTH_BESIDE: u64 = 1 << 20;
/// Interval at which a reader that follows looks for more.
const FOLLOW: Duration = Duration::from_millis(10);

/// Choices of one program: the ring, and what to do with it.
#[derive(Debug, Clone, Copy)]
struct Head {
    ring: u8,
    /// Recordings onto the ring, one after the other.
    recordings: u8,
    plan: Plan,
    block_size: u32,
    follows: bool,
    /// Readers yield to a recorder.
    yields: bool,
    /// Bytes that an output takes before it fails.
    room: u64,
    /// Part of the time, in 256ths, at which a ring is extracted in two parts.
    part: u8,
    /// Smallest length of packets that pass the filter; none: no filter.
    filter: Option<u8>,
}

/// Settings of a recording to make.
#[derive(Debug, Clone, Copy)]
struct Plan {
    streams: u32,
    when_full: WhenFull,
    pace: Pace,
    /// Packets of each stream.
    packets: u64,
}

fn decode(data: &[u8]) -> Option<(Head, Vec<Step>)> {
    let ([ring, flags, packets, room, part, filter, ..], rest) =
        data.split_first_chunk::<HEAD_BYTES>()?;
    let head = Head {
        ring: *ring,
        recordings: flags & 3,
        plan: Plan {
            streams: if flags & 4 == 0 { 1 } else { 2 },
            when_full: match flags & 8 {
                0 => WhenFull::GoRound,
                _ => WhenFull::Stop,
            },
            pace: match flags & 16 {
                0 => Pace::Full,
                _ => Pace::Rate(8 * 100 * PACKET_BYTES as u64),
            },
            packets: u64::from(packets % 64),
        },
        block_size: if flags & 32 == 0 { 512 } else { 4096 },
        follows: flags & 64 != 0,
        yields: flags & 128 != 0,
        room: u64::from(*room) * 16,
        part: *part,
        filter: filter.checked_sub(1),
    };
    let (steps, _) = rest.as_chunks::<STEP_BYTES>();
    let steps = steps.iter().take(STEPS_MAX).map(Step::decode);
    Some((head, steps.collect()))
}

/// Runs one program.
///
/// # Panics
/// When the recorder breaks a rule.
pub fn rings(data: &[u8]) {
    let Some((head, steps)) = decode(data) else {
        return;
    };
    let mut disks = image::ring(head.ring);
    for step in steps {
        step.apply(&mut disks);
    }
    let simulation = Simulation::new(Config {
        rounds_max: ROUNDS_MAX,
        faults: Faults::none(),
        ..Config::default()
    });
    simulation.run(0, move |reactor| async move {
        work(&reactor, head, &disks).await;
    });
}

async fn work(reactor: &Reactor, head: Head, disks: &[Disk]) {
    let mut volumes = Vec::new();
    for disk in disks {
        volumes.push(disk.volume(reactor, head.block_size).await);
    }
    let Some(ring) = opened(reactor, &volumes, head.yields).await else {
        let refused = Ring::open(reactor, &volumes, true).await.map(drop);
        says(&refused.expect_err("a ring that cannot be read cannot be recorded onto"));
        return;
    };
    check_read(&ring, head).await;
    drop(ring);
    for _ in 0..head.recordings {
        if !recorded(reactor, head, &volumes).await {
            break;
        }
    }
}

/// Checks that an error has words.
fn says(error: &dyn std::error::Error) {
    assert!(!error.to_string().is_empty(), "an error has no message");
}

async fn opened(reactor: &Reactor, volumes: &[Arc<dyn Volume>], yields: bool) -> Option<Ring> {
    let opened = match yields {
        true => {
            let pressure = |_| Arc::new(Pressure::recording());
            Ring::open_behind(reactor, volumes, pressure, &Stop::new()).await
        }
        false => Ring::open(reactor, volumes, false).await,
    };
    opened.inspect_err(|error| says(error)).ok()
}

// -------------------------------------------------------------------- read --

/// Lists a ring and extracts it in several ways.
async fn check_read(ring: &Ring, head: Head) {
    let listed = list(ring);
    check_list(ring, &listed);
    let whole = extracted(ring, &Extract::all(), &listed).await;
    if let Some(least) = head.filter
        && ring.content() == Content::Packets
    {
        check_filter(ring, least, &whole).await;
    }
    let (first, last) = times(&listed);
    let middle = first + (u128::from(last - first) * u128::from(head.part) / 256) as u64;
    for times in [0..middle, middle..u64::MAX, middle..first] {
        let part = extracted(
            ring,
            &Extract {
                times,
                ..Extract::all()
            },
            &listed,
        )
        .await;
        assert!(
            part.packets <= whole.packets,
            "a part has more packets than the whole"
        );
    }
    let only = Extract {
        recording: listed.last().map(|one| one.recording),
        count: Some(u64::from(head.part % 8)),
        ..Extract::all()
    };
    extracted(ring, &only, &listed).await;
    let mut narrow = Narrow { room: head.room };
    let ended = extract(ring, &Extract::all(), &Stop::new(), &mut narrow).await;
    match ended {
        Ok(done) => assert!(done.bytes <= head.room, "more came than there was room for"),
        Err(ReadError::Output(error)) => says(&error),
        Err(other) => panic!("the output failed, and not: {other}"),
    }
    let stop = Stop::new();
    stop.stop();
    let stopped = extract(ring, &Extract::all(), &stop, &mut Vec::new()).await;
    let _ = stopped.inspect_err(|error| says(error));
}

/// Extracts with a filter, which needs libpcap.
async fn check_filter(ring: &Ring, least: u8, whole: &Extracted) {
    let what = Extract {
        filter: Some(format!("greater {least}")),
        ..Extract::all()
    };
    let mut file = Vec::new();
    match extract(ring, &what, &Stop::new(), &mut file).await {
        Ok(done) => {
            check_extracted(Content::Packets, &what, &file, &done);
            let both = done.packets + done.filtered;
            assert_eq!(both, whole.packets, "a packet passes or does not");
        }
        Err(error) => says(&error),
    }
}

fn check_list(ring: &Ring, listed: &[Listed]) {
    assert!(!ring.names().is_empty(), "there is a volume");
    let mut bytes = 0_u64;
    for one in listed {
        assert!(one.first <= one.last && one.segments > 0 && one.bytes > 0);
        bytes += one.bytes;
    }
    assert!(
        bytes <= ring.capacity_bytes(),
        "more than there is room for"
    );
}

/// Bytes of each recording.
fn bytes_of(listed: &[Listed]) -> BTreeMap<Uuid, u64> {
    let mut bytes = BTreeMap::new();
    for one in listed {
        *bytes.entry(one.recording).or_default() += one.bytes;
    }
    bytes
}

/// Times of the earliest and the latest packet.
fn times(listed: &[Listed]) -> (u64, u64) {
    let first = listed.iter().map(|one| one.first).min();
    let last = listed.iter().map(|one| one.last).max();
    (first.unwrap_or_default(), last.unwrap_or_default())
}

/// An output that fails when it has no more room.
struct Narrow {
    room: u64,
}

impl Output for Narrow {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let left = self.room.checked_sub(bytes.len() as u64);
        self.room = left.ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(())
    }

    fn pass_on(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn extracted(ring: &Ring, what: &Extract, listed: &[Listed]) -> Extracted {
    let mut file = Vec::new();
    let done = extract(ring, what, &Stop::new(), &mut file).await;
    let done = done.expect("memory takes all");
    check_extracted(ring.content(), what, &file, &done);
    let listed: u64 = listed.iter().map(|one| one.bytes).sum();
    assert!(
        done.bytes <= GROWTH * listed + GROWTH_BESIDE,
        "{} bytes of {listed}",
        done.bytes
    );
    done
}

/// Checks that the extracted bytes are a valid file, and that the reported sums match it.
fn check_extracted(content: Content, what: &Extract, file: &[u8], done: &Extracted) {
    assert_eq!(done.bytes, file.len() as u64, "bytes are counted");
    for damage in &done.damaged {
        assert!(!damage.volume.is_empty() && !damage.why.is_empty());
        assert!(damage.times.start <= damage.times.end);
    }
    if content == Content::Bytes {
        return;
    }
    let packets = packets(file, &what.times).len() as u64;
    assert_eq!(done.packets, packets, "packets are counted");
    assert!(what.count.is_none_or(|count| packets <= count));
}

/// Returns the number of each packet of a file; none where a packet is too short to have one.
fn packets(file: &[u8], times: &Range<u64>) -> Vec<Option<u64>> {
    let (mut reader, mut left) = (Reader::new(), file);
    let (mut packets, mut sections) = (Vec::new(), 0);
    while let Some(found) = reader.next(&mut left).expect("a file of pcapng") {
        match found {
            Found::Section => sections += 1,
            Found::Packet(packet) => {
                assert!(
                    times.contains(&packet.time),
                    "a packet outside the requested times"
                );
                packets.push(Generator::number_of(packet.data));
            }
            Found::Statistics(counts) => {
                assert!(times.contains(&counts.time) || counts.comment.is_some())
            }
            Found::Interface(_) => {}
            Found::Other => panic!("a block of a kind that is not written"),
        }
    }
    reader.end(left).expect("it is whole");
    assert_eq!(sections, 1, "a file is one section");
    packets
}

// ------------------------------------------------------------------ record --

/// Records the packets of a plan, in each of its streams.
async fn record(reactor: &Reactor, ring: Ring, plan: &Plan) -> Result<Vec<Recorded>, RecordError> {
    let shared = Arc::new(Streams::new(&ring, plan.streams));
    let Plan {
        when_full,
        pace,
        packets,
        ..
    } = *plan;
    let content = ring.content();
    let mut tasks = Vec::new();
    for number in 0..plan.streams {
        let own = ring.share().open(reactor);
        let own = own.expect("memory has queues");
        let shared = Arc::clone(&shared);
        tasks.push(reactor.spawn(async move {
            let sizes = [PACKET_BYTES];
            let mut source =
                Source::Generator(Generator::new(content, &sizes, pace, Some(packets)));
            let config = RecordConfig {
                when_full,
                sync: Duration::from_millis(100),
                buffer_bytes: 4 << 20,
            };
            let stop = Stop::new();
            record_stream(own, (shared, number), &mut source, &config, &stop, |_| ()).await
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await?);
    }
    Ok(all)
}

/// Records onto a ring that can be read, and checks that the recording is found again. Returns false if it cannot be recorded onto.
async fn recorded(reactor: &Reactor, head: Head, volumes: &[Arc<dyn Volume>]) -> bool {
    let ring = match Ring::open(reactor, volumes, true).await {
        Ok(ring) => ring,
        Err(error) => {
            says(&error);
            return false;
        }
    };
    let content = ring.content();
    let before = bytes_of(&list(&ring));
    let follower = match head.follows {
        true => opened(reactor, volumes, head.yields).await,
        false => None,
    };
    let stop = Stop::new();
    let following = follower.map(|ring| {
        let stop = stop.clone();
        reactor.spawn(async move {
            let mut file = Vec::new();
            let done = follow(ring, &Extract::all(), FOLLOW, &stop, &mut file).await;
            (file, done.expect("memory takes all"))
        })
    });
    let recorded = record(reactor, ring, &head.plan).await;
    reactor.sleep(4 * FOLLOW).await;
    stop.stop();
    let followed = match following {
        Some(following) => Some(following.await),
        None => None,
    };
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            says(&error);
            return false;
        }
    };
    let mut kept = 0;
    for one in &recorded {
        one.failures.iter().for_each(|failure| says(failure));
        let counts = one.counts;
        let lost = counts.slow_lost + counts.failed_lost;
        assert_eq!(counts.received, counts.kept + lost, "all are counted");
        if one.ended == Ended::Source {
            assert_eq!(counts.received, head.plan.packets, "the source was taken");
        }
        kept += counts.kept;
    }
    if let Some((file, done)) = &followed {
        check_extracted(content, &Extract::all(), file, done);
        assert_eq!(done.packets, kept, "all that was recorded is seen");
    }
    let ring = opened(reactor, volumes, false).await;
    let ring = ring.expect("a ring that was recorded onto can be read");
    check_read(&ring, head).await;
    if head.plan.when_full == WhenFull::Stop {
        let after = bytes_of(&list(&ring));
        for (recording, bytes) in before {
            let now = after.get(&recording).copied();
            assert_eq!(now, Some(bytes), "what was there stays: {recording}");
        }
    }
    let only = Extract {
        recording: Some(recorded[0].recording),
        ..Extract::all()
    };
    let mut file = Vec::new();
    let done = extract(&ring, &only, &Stop::new(), &mut file).await;
    let done = done.expect("memory takes all");
    assert_eq!(done.damaged, [], "what was recorded is there");
    assert_eq!(done.packets, kept, "all that was recorded is there");
    if content == Content::Bytes {
        assert_eq!(done.bytes, kept * PACKET_BYTES as u64);
    }
    true
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for ring in 0..4_u8 {
        for flags in [1, 2 | 4, 1 | 8, 2 | 16, 1 | 4 | 32 | 64, 3 | 64 | 128] {
            seeds.push(vec![ring, flags, 20, 100, 128, flags & 8, 0, 0]);
        }
    }
    for (number, steps) in (0..).zip(edit::seeds()) {
        let ring: u8 = number % 2;
        let flags = [1, 2 | 64, 1 | 4][usize::from(number) % 3];
        seeds.push([vec![ring, flags, 20, 200, 100, 0, 0, 0], steps].concat());
    }
    seeds
}
