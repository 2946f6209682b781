//! Recordings: listed, checked, and extracted by time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use uuid::Uuid;
use weir_digest::Digest;
use weir_libpcap::{Filter, FilterError};
use weir_load::{LaneError, Stop};
use weir_pcap::{Found, Interface, PACKET_BYTES_MAX, Packet, PcapError, Reader, Statistics, write};
use weir_reactor::Task;

use crate::format::{BLOCK_BYTES, Chunk, ClockSteps, Commit, Content, Counts};
use crate::ring::{Member, Ring, Segments};

/// A recording in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its identity.
    pub recording: Uuid,
    /// Times of its earliest and its latest packet that are there, in nanoseconds since the beginning of 1970.
    pub first: u64,
    /// The latest.
    pub last: u64,
    /// Packets that are there.
    pub packets: u64,
    /// Bytes that are there, with what describes them.
    pub bytes: u64,
    /// Segments that have some of it.
    pub segments: u64,
    /// Its beginning was given up.
    pub is_cut: bool,
    /// It ended in order.
    pub is_closed: bool,
    /// Counts of what came, and of what became of it, as its last commit record says.
    pub counts: Counts,
    /// Steps of the wall clock while it was recorded.
    pub clock_steps: ClockSteps,
}

/// The recordings of a ring, the earliest first.
#[must_use]
pub fn list(ring: &Ring) -> Vec<Listed> {
    let recordings = recordings_of(&ring.segments).map(listed);
    // One of which nothing is there has no times.
    recordings.filter(|one| one.bytes > 0).collect()
}

/// The segments of each recording: none begins before the one before it has ended.
fn recordings_of(segments: &[Segments]) -> impl Iterator<Item = &[Segments]> {
    segments.chunk_by(|one, next| one.commit.recording == next.commit.recording)
}

fn listed(segments: &[Segments]) -> Listed {
    let newest = &segments[segments.len() - 1].commit;
    let mut listed = Listed {
        recording: newest.recording,
        first: u64::MAX,
        last: 0,
        packets: 0,
        bytes: 0,
        segments: segments.len() as u64,
        is_cut: false,
        is_closed: false,
        counts: Counts::default(),
        clock_steps: ClockSteps::default(),
    };
    let mut begun = 0;
    let mut last: BTreeMap<u32, &Commit> = BTreeMap::new();
    for Segments { commit, .. } in segments {
        for chunk in &commit.chunks {
            listed.first = listed.first.min(chunk.first);
            listed.last = listed.last.max(chunk.last);
            listed.packets += u64::from(chunk.packets);
            listed.bytes += u64::from(chunk.bytes);
        }
        begun += u32::from(commit.is_first);
        last.insert(commit.stream, commit);
    }
    listed.is_cut = begun < newest.streams;
    let ended = last.values().filter(|commit| commit.is_last).count();
    // Of a stream that ended early there may be nothing left.
    listed.is_closed = ended == last.len();
    for commit in last.values() {
        listed.counts += commit.counts;
        listed.clock_steps = listed.clock_steps.later(commit.clock_steps);
    }
    listed
}

/// A chunk that cannot be read as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The volume.
    pub volume: String,
    /// Its first byte there.
    pub at: u64,
    /// Packets that it had.
    pub packets: u64,
    /// Their times, in nanoseconds since the beginning of 1970.
    pub times: Range<u64>,
    /// The defect.
    pub why: String,
}

/// Takes what is extracted.
pub trait Output {
    /// Takes bytes of a file of pcapng, or of a stream.
    ///
    /// # Errors
    /// The system's.
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()>;

    /// Passes on what it has taken.
    ///
    /// # Errors
    /// The system's.
    fn pass_on(&mut self) -> std::io::Result<()>;
}

impl<W: std::io::Write> Output for W {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.write_all(bytes)
    }

    fn pass_on(&mut self) -> std::io::Result<()> {
        self.flush()
    }
}

/// Which part of a ring is extracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extract {
    /// Times, in nanoseconds since the beginning of 1970.
    pub times: Range<u64>,
    /// Of this recording alone.
    pub recording: Option<Uuid>,
    /// Packets at most.
    pub count: Option<u64>,
    /// Only packets that pass this filter of libpcap.
    pub filter: Option<String>,
}

impl Extract {
    /// Everything that a ring has.
    #[must_use]
    pub fn all() -> Self {
        Extract {
            times: 0..u64::MAX,
            recording: None,
            count: None,
            filter: None,
        }
    }
}

/// Why nothing more is extracted.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The output takes no more.
    #[error("the output cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// The filter is invalid, or libpcap is missing.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The filter does not work on the link type of an interface in the ring.
    #[error(
        "the filter does not work on packets of link type {link_type}, and the ring has such packets: {reason}; change --filter, or extract other packets (--recording, --from, --to)"
    )]
    FilterOfLink {
        /// The type of link.
        link_type: u16,
        /// The library's reason.
        reason: FilterError,
    },
    /// A filter was given for a ring of bytes.
    #[error(
        "--filter works on packets, but this ring holds bytes; leave --filter out (`extract` also selects by --from, --to and --last)"
    )]
    FilterOfBytes,
    /// It was asked to stop.
    #[error("stopped after {0} packets")]
    Stopped(u64),
}

/// Sums of what was extracted, or checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extracted {
    /// Packets.
    pub packets: u64,
    /// Packets of the wanted times that the filter rejected.
    pub filtered: u64,
    /// Bytes that went to the output.
    pub bytes: u64,
    /// Chunks that were read.
    pub chunks: u64,
    /// Chunks that a recorder gave up meanwhile.
    pub given_up: u64,
    /// Chunks that could not be read, and were left out.
    pub damaged: Vec<Damage>,
}

/// Chunks of each stream that are read ahead at most, and of all streams, of which each has one at least.
const AHEAD: usize = 8;
const AHEAD_ALL: usize = 64;

/// A chunk that is being read.
struct Reading<'a> {
    segment: &'a Segments,
    chunk: &'a Chunk,
    member: Rc<Member>,
    data: Task<Result<Vec<u8>, LaneError>>,
}

/// A packet, or counts, of a chunk that was read, numbered as in the output.
enum Item {
    Packet(Packet<'static>, Range<usize>),
    Statistics(Statistics),
}

impl Item {
    /// Its place among those of other streams. Counts were taken after packets that stand behind them came.
    fn order(&self) -> u64 {
        match self {
            Item::Packet(packet, _) => packet.time,
            Item::Statistics(_) => 0,
        }
    }

    fn time(&self) -> u64 {
        match self {
            Item::Packet(packet, _) => packet.time,
            Item::Statistics(statistics) => statistics.time,
        }
    }
}

/// A stream of a recording that is read.
struct Feed<'a> {
    stream: u32,
    /// Chunks that are read ahead.
    ahead: usize,
    /// Chunks that are wanted and not being read yet.
    wanted: Box<dyn Iterator<Item = Reading<'a>> + 'a>,
    reading: VecDeque<Reading<'a>>,
    /// The chunk that was read last, and what of it is not written yet.
    data: Vec<u8>,
    items: VecDeque<Item>,
}

impl<'a> Feed<'a> {
    /// The next chunk; more are read meanwhile.
    fn next(&mut self) -> Option<Reading<'a>> {
        while self.reading.len() < self.ahead
            && let Some(next) = self.wanted.next()
        {
            self.reading.push_back(next);
        }
        self.reading.pop_front()
    }
}

/// Extracts packets as one file of pcapng, or bytes as they came. The streams of a recording are merged by time. Chunks that are damaged are named and left out. To check
/// a ring, extract all of it to nothing.
///
/// # Errors
/// [`ReadError`].
pub async fn extract(
    ring: &Ring,
    what: &Extract,
    stop: &Stop,
    out: &mut dyn Output,
) -> Result<Extracted, ReadError> {
    let mut extraction = Extraction::new(ring.content(), what, out)?;
    extraction.all(ring, &BTreeMap::new(), Some(stop)).await?;
    extraction.end(ring.content())
}

/// Extracts what is recorded from now on, by this or that recorder, as it is committed, until it is asked to stop. It is looked so often; the streams of
/// a recording are merged as far as they were committed by then.
///
/// # Errors
/// [`ReadError`].
pub async fn follow(
    mut ring: Ring,
    what: &Extract,
    every: Duration,
    stop: &Stop,
    out: &mut dyn Output,
) -> Result<Extracted, ReadError> {
    let reactor = ring.reactor.clone();
    let mut extraction = Extraction::new(ring.content(), what, out)?;
    // Chunks that are there already are left out.
    let mut seen: BTreeMap<u64, usize> = chunks_seen(&ring);
    loop {
        if stop.is_asked() {
            return extraction.end(ring.content());
        }
        reactor.sleep(every).await;
        ring.look_again().await;
        match extraction.all(&ring, &seen, Some(stop)).await {
            // The rest is left out.
            Err(ReadError::Stopped(_)) => return extraction.end(ring.content()),
            done => done?,
        }
        extraction.flush()?;
        seen = chunks_seen(&ring);
        if extraction.is_enough() {
            return extraction.end(ring.content());
        }
    }
}

/// Chunks of each segment that a ring is known to have.
fn chunks_seen(ring: &Ring) -> BTreeMap<u64, usize> {
    let segments = ring.segments.iter();
    segments
        .map(|one| (one.commit.sequence, one.commit.chunks.len()))
        .collect()
}

/// The streams of a recording, but for the chunks of each segment that were seen.
fn feeds<'a>(
    ring: &'a Ring,
    segments: &'a [Segments],
    times: &'a Range<u64>,
    seen: &'a BTreeMap<u64, usize>,
) -> Vec<Feed<'a>> {
    let streams: BTreeSet<u32> = segments.iter().map(|one| one.commit.stream).collect();
    let ahead = (AHEAD_ALL / streams.len().max(1)).clamp(1, AHEAD);
    let feed = |stream| Feed {
        stream,
        ahead,
        wanted: Box::new(chunks_of(ring, segments, stream, times, seen)),
        reading: VecDeque::new(),
        data: Vec::new(),
        items: VecDeque::new(),
    };
    streams.into_iter().map(feed).collect()
}

/// Begins to read the chunks of a stream that are wanted, one after the other.
fn chunks_of<'a>(
    ring: &'a Ring,
    segments: &'a [Segments],
    stream: u32,
    times: &'a Range<u64>,
    seen: &'a BTreeMap<u64, usize>,
) -> impl Iterator<Item = Reading<'a>> {
    let segments = segments
        .iter()
        .filter(move |one| one.commit.stream == stream);
    segments.flat_map(move |segment| {
        let member = ring.members[segment.member as usize].clone();
        let seen = seen.get(&segment.commit.sequence).copied();
        let chunks = segment.commit.chunks.iter().skip(seen.unwrap_or_default());
        let chunks = chunks.filter(|chunk| chunk.last >= times.start && chunk.first < times.end);
        chunks.filter_map(move |chunk| {
            let member = member.clone()?;
            let reader = Rc::clone(&member);
            let at = place_of(segment, chunk);
            let bytes = (chunk.bytes as usize).next_multiple_of(BLOCK_BYTES);
            let read = async move { reader.read(at, bytes).await };
            Some(Reading {
                segment,
                chunk,
                member,
                data: ring.reactor.spawn(read),
            })
        })
    })
}

fn place_of(segment: &Segments, chunk: &Chunk) -> u64 {
    segment.place + u64::from(chunk.block) * BLOCK_BYTES as u64
}

/// Link types (LINKTYPE values) for which a filter is checked before any packet is read: Ethernet, IP, 802.11 without and with radiotap, and
/// Linux cooked captures.
const LINK_TYPES: [u16; 6] = [1, 101, 105, 127, 113, 276];

/// Fails if a filter works on none of [`LINK_TYPES`], with the error for the first.
fn check_filter(expression: &str) -> Result<(), FilterError> {
    let translated =
        |link_type| Filter::for_link(expression, link_type, PACKET_BYTES_MAX as u32).map(|_| ());
    let first = translated(LINK_TYPES[0]);
    match LINK_TYPES[1..]
        .iter()
        .any(|&other| translated(other).is_ok())
    {
        true => Ok(()),
        false => first,
    }
}

struct Extraction<'a> {
    what: &'a Extract,
    out: &'a mut dyn Output,
    done: Extracted,
    /// Interfaces that the output has, or has to get before what is at hand.
    known: Vec<Interface>,
    /// Their numbers, by what describes them: a damaged ring may have very many.
    numbers: HashMap<Vec<u8>, u32>,
    new_interfaces: Vec<u8>,
    /// Filters, one for each known interface; empty without a filter.
    filters: Vec<Filter>,
    /// Packets that each stream lost before rejected packets. The next packet that passes reports them.
    dropped: BTreeMap<u32, u64>,
    /// The recording that was last extracted, and its newest time.
    last: Option<(Uuid, u64)>,
    /// The latest counts of the recording, by interface and stream.
    counted: BTreeMap<(u32, u32), Statistics>,
    has_begun: bool,
}

impl<'a> Extraction<'a> {
    fn new(
        content: Content,
        what: &'a Extract,
        out: &'a mut dyn Output,
    ) -> Result<Self, ReadError> {
        if content == Content::Bytes && what.filter.is_some() {
            return Err(ReadError::FilterOfBytes);
        }
        if let Some(expression) = &what.filter {
            check_filter(expression)?;
        }
        Ok(Extraction {
            what,
            out,
            done: Extracted::default(),
            known: Vec::new(),
            numbers: HashMap::new(),
            new_interfaces: Vec::new(),
            filters: Vec::new(),
            dropped: BTreeMap::new(),
            last: None,
            counted: BTreeMap::new(),
            has_begun: false,
        })
    }

    /// Lets the output pass on what it has.
    fn flush(&mut self) -> Result<(), ReadError> {
        Ok(self.out.pass_on()?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        self.out.put(bytes)?;
        self.done.bytes += bytes.len() as u64;
        Ok(())
    }

    fn is_enough(&self) -> bool {
        let count = self.what.count;
        count.is_some_and(|count| self.done.packets >= count)
    }

    /// Tells whether there is enough; who asked to stop is told so.
    fn ends(&self, stop: Option<&Stop>) -> Result<bool, ReadError> {
        match stop.is_some_and(Stop::is_asked) {
            true => Err(ReadError::Stopped(self.done.packets)),
            false => Ok(self.is_enough()),
        }
    }

    /// Extracts all recordings that are wanted, one after the other.
    async fn all(
        &mut self,
        ring: &Ring,
        seen: &BTreeMap<u64, usize>,
        stop: Option<&Stop>,
    ) -> Result<(), ReadError> {
        let what = self.what;
        for segments in recordings_of(&ring.segments) {
            let recording = segments[0].commit.recording;
            if what.recording.is_some_and(|only| only != recording) {
                continue;
            }
            let mut feeds = feeds(ring, segments, &what.times, seen);
            if ring.content() == Content::Bytes {
                for feed in &mut feeds {
                    while let Some(reading) = feed.next() {
                        self.chunk(ring, reading, feed).await?;
                        if self.ends(stop)? {
                            return Ok(());
                        }
                    }
                }
                continue;
            }
            if !self.fill(ring, &mut feeds).await? {
                continue;
            }
            let newest = segments.iter().flat_map(|one| &one.commit.chunks);
            let newest = newest.map(|chunk| chunk.last).max().unwrap_or_default();
            let before = self.last.replace((recording, newest));
            if let Some((before, end)) = before
                && before != recording
            {
                self.counted.clear();
                self.dropped.clear();
                if self.done.packets > 0 {
                    self.gap(end)?;
                }
            }
            while self.next(ring, &mut feeds).await? {
                if self.ends(stop)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads a chunk of each stream of which nothing is at hand; false: nothing is at hand of any.
    async fn fill(&mut self, ring: &Ring, feeds: &mut [Feed<'_>]) -> Result<bool, ReadError> {
        let mut has_any = false;
        for feed in feeds {
            while feed.items.is_empty()
                && let Some(reading) = feed.next()
            {
                self.chunk(ring, reading, feed).await?;
            }
            has_any |= !feed.items.is_empty();
        }
        Ok(has_any)
    }

    /// Writes the earliest of what is at hand, until a stream has none; false: there is none left.
    async fn next(&mut self, ring: &Ring, feeds: &mut [Feed<'_>]) -> Result<bool, ReadError> {
        if !self.fill(ring, feeds).await? {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        self.begin(&mut bytes);
        if let [only] = feeds {
            // As it came, whatever its times are.
            while let Some(item) = only.items.pop_front() {
                self.item(&item, only.stream, &only.data, &mut bytes);
            }
        }
        let with_items =
            |feeds: &[Feed<'_>]| feeds.iter().filter(|one| !one.items.is_empty()).count();
        let open = with_items(feeds);
        while open > 0 && with_items(feeds) == open {
            let earliest = feeds.iter_mut().filter(|one| !one.items.is_empty());
            let earliest = earliest.min_by_key(|one| one.items[0].order());
            let feed = earliest.expect("there is one");
            let item = feed.items.pop_front().expect("it has one");
            self.item(&item, feed.stream, &feed.data, &mut bytes);
        }
        self.put(&bytes)?;
        Ok(true)
    }

    /// Writes a packet, or counts, where it is wanted.
    fn item(&mut self, item: &Item, stream: u32, data: &[u8], bytes: &mut Vec<u8>) {
        if !self.what.times.contains(&item.time()) {
            return;
        }
        match item {
            Item::Packet(..) if self.is_enough() => {}
            Item::Packet(packet, range) => {
                let data = &data[range.clone()];
                let filter = self.filters.get(packet.interface as usize);
                if filter.is_some_and(|filter| !filter.passes(packet.length, data)) {
                    self.done.filtered += 1;
                    if let Some(dropped) = packet.dropped {
                        let before = self.dropped.entry(stream).or_default();
                        *before = before.saturating_add(dropped);
                    }
                    return;
                }
                let mut packet = Packet {
                    data,
                    ..packet.clone()
                };
                if let Some(dropped) = self.dropped.remove(&stream) {
                    let own = packet.dropped.unwrap_or_default();
                    packet.dropped = Some(dropped.saturating_add(own));
                }
                write::packet(&packet, bytes);
                self.done.packets += 1;
            }
            Item::Statistics(statistics) => {
                let of = (statistics.interface, stream);
                self.counted.insert(of, statistics.clone());
                write::statistics(&self.counts_of(statistics), bytes);
            }
        }
    }

    /// The counts of an interface, of all streams together as they were last told.
    fn counts_of(&self, told: &Statistics) -> Statistics {
        let streams = (told.interface, 0)..=(told.interface, u32::MAX);
        let all = self.counted.range(streams);
        let all: Vec<&Statistics> = all.map(|(_, counts)| counts).collect();
        let sum = |count: fn(&Statistics) -> Option<u64>| {
            all.iter()
                .filter_map(|one| count(one))
                .reduce(u64::saturating_add)
        };
        Statistics {
            received: sum(|one| one.received),
            interface_dropped: sum(|one| one.interface_dropped),
            accepted: sum(|one| one.accepted),
            system_dropped: sum(|one| one.system_dropped),
            delivered: sum(|one| one.delivered),
            ..told.clone()
        }
    }

    /// Reads a chunk. What has no packets is written at once.
    async fn chunk(
        &mut self,
        ring: &Ring,
        reading: Reading<'_>,
        feed: &mut Feed<'_>,
    ) -> Result<(), ReadError> {
        let Reading {
            segment,
            chunk,
            member,
            data,
        } = reading;
        let whole = match data.await {
            Ok(mut data) => {
                data.truncate(chunk.bytes as usize);
                match Digest::of(&data).value() == chunk.checksum {
                    true => Ok(data),
                    false => Err("it does not agree with its checksum".to_owned()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        let read = match whole {
            Ok(data) if ring.content() == Content::Bytes => {
                self.put(&data)?;
                self.done.packets += u64::from(chunk.packets);
                Ok(())
            }
            Ok(data) => {
                feed.data = data;
                let read = self.packets(feed);
                self.make_filters()?;
                read.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        let Err(why) = read else {
            self.done.chunks += 1;
            return Ok(());
        };
        // A recorder may have gone round meanwhile.
        if ring.is_given_up(segment).await {
            self.done.given_up += 1;
            return Ok(());
        }
        self.done.chunks += 1;
        self.done.damaged.push(Damage {
            volume: member.name().to_owned(),
            at: place_of(segment, chunk),
            packets: chunk.packets.into(),
            times: chunk.first..chunk.last.saturating_add(1),
            why,
        });
        Ok(())
    }

    /// Finds the packets of a chunk, each with its interface's number in the output.
    fn packets(&mut self, feed: &mut Feed<'_>) -> Result<(), PcapError> {
        let (mut reader, mut left) = (Reader::new(), &feed.data[..]);
        let start = feed.data.as_ptr() as usize;
        let mut numbers = Vec::new();
        while let Some(found) = reader.next(&mut left)? {
            match found {
                Found::Interface(interface) => {
                    let mut description = Vec::new();
                    write::interface(&interface, &mut description);
                    let number = self.numbers.entry(description);
                    let number = number.or_insert_with_key(|description| {
                        self.new_interfaces.extend_from_slice(description);
                        self.known.push(interface);
                        self.known.len() as u32 - 1
                    });
                    numbers.push(*number);
                }
                Found::Packet(packet) => {
                    let from = packet.data.as_ptr() as usize - start;
                    let range = from..from + packet.data.len();
                    let packet = Packet {
                        interface: numbers[packet.interface as usize],
                        data: &[],
                        ..packet
                    };
                    feed.items.push_back(Item::Packet(packet, range));
                }
                Found::Statistics(mut statistics) => {
                    statistics.interface = numbers[statistics.interface as usize];
                    feed.items.push_back(Item::Statistics(statistics));
                }
                Found::Section => numbers.clear(),
                Found::Other => {}
            }
        }
        reader.end(left)
    }

    /// Compiles the filter for new interfaces.
    fn make_filters(&mut self) -> Result<(), ReadError> {
        let Some(expression) = &self.what.filter else {
            return Ok(());
        };
        for interface in &self.known[self.filters.len()..] {
            let link_type = interface.link_type;
            let filter = Filter::for_link(expression, link_type, PACKET_BYTES_MAX as u32);
            let filter = filter.map_err(|reason| ReadError::FilterOfLink { link_type, reason })?;
            self.filters.push(filter);
        }
        Ok(())
    }

    fn begin(&mut self, bytes: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            write::section("weir record extract", std::env::consts::OS, bytes);
        }
        bytes.append(&mut self.new_interfaces);
    }

    /// Says that nothing was recorded for a time.
    fn gap(&mut self, last: u64) -> Result<(), ReadError> {
        if self.known.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let statistics = Statistics {
            time: last,
            comment: Some(
                "the recording ended here, and another one begins: what came in between was not recorded"
                    .to_owned(),
            ),
            ..Statistics::default()
        };
        write::statistics(&statistics, &mut bytes);
        self.put(&bytes)
    }

    fn end(mut self, content: Content) -> Result<Extracted, ReadError> {
        if content == Content::Packets {
            let mut bytes = Vec::new();
            self.begin(&mut bytes);
            self.put(&bytes)?;
        }
        Ok(self.done)
    }
}
