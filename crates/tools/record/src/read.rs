//! Recordings: listed, checked, and extracted by time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use uuid::Uuid;
use weir_digest::Digest;
use weir_load::{LaneError, Stop};
use weir_pcap::{Found, Interface, PcapError, Reader, Statistics, write};
use weir_reactor::Task;

use crate::format::{BLOCK_BYTES, Chunk, Content, Counts};
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
}

/// The recordings of a ring, the earliest first.
#[must_use]
pub fn list(ring: &Ring) -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    for Segments { commit, .. } in &ring.segments {
        let is_new = all
            .last()
            .is_none_or(|last| last.recording != commit.recording);
        if is_new {
            all.push(Listed {
                recording: commit.recording,
                first: u64::MAX,
                last: 0,
                packets: 0,
                bytes: 0,
                segments: 0,
                is_cut: !commit.is_first,
                is_closed: false,
                counts: Counts::default(),
            });
        }
        let listed = all.last_mut().expect("it was added");
        for chunk in &commit.chunks {
            listed.first = listed.first.min(chunk.first);
            listed.last = listed.last.max(chunk.last);
            listed.packets += u64::from(chunk.packets);
            listed.bytes += u64::from(chunk.bytes);
        }
        listed.segments += 1;
        listed.is_closed = commit.is_last;
        listed.counts = commit.counts;
    }
    // One of which nothing is there has no times.
    all.retain(|one| one.bytes > 0);
    all
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
}

/// Why nothing more is extracted.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The output takes no more.
    #[error("the output cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// It was asked to stop.
    #[error("stopped after {0} packets")]
    Stopped(u64),
}

/// Sums of what was extracted, or checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extracted {
    /// Packets.
    pub packets: u64,
    /// Bytes that went to the output.
    pub bytes: u64,
    /// Chunks that were read.
    pub chunks: u64,
    /// Chunks that a recorder gave up meanwhile.
    pub given_up: u64,
    /// Chunks that could not be read, and were left out.
    pub damaged: Vec<Damage>,
}

/// Chunks that are read ahead.
const AHEAD: usize = 8;

/// A chunk that is being read.
struct Reading<'a> {
    segment: &'a Segments,
    chunk: &'a Chunk,
    member: Rc<Member>,
    data: Task<Result<Vec<u8>, LaneError>>,
    /// It is the first of a recording that follows another one; when that one ended.
    follows: Option<u64>,
}

/// Extracts packets as one file of pcapng, or bytes as they came. Chunks that are damaged are named and left out. To check a ring, extract
/// all of it to nothing.
///
/// # Errors
/// [`ReadError`].
pub async fn extract(
    ring: &Ring,
    what: &Extract,
    stop: &Stop,
    out: &mut dyn Output,
) -> Result<Extracted, ReadError> {
    let mut extraction = Extraction::new(what, out);
    let seen = BTreeMap::new();
    let mut wanted = chunks_of(ring, what, &seen);
    let mut readings = VecDeque::new();
    loop {
        while readings.len() < AHEAD
            && let Some(next) = wanted.next()
        {
            readings.push_back(next);
        }
        let is_enough = what
            .count
            .is_some_and(|count| extraction.done.packets >= count);
        let Some(reading) = readings.pop_front().filter(|_| !is_enough) else {
            return extraction.end(ring.content());
        };
        if stop.is_asked() {
            return Err(ReadError::Stopped(extraction.done.packets));
        }
        extraction.chunk(ring, reading).await?;
    }
}

/// Extracts what is recorded from now on, by this or that recorder, as it is committed, until it is asked to stop. It is looked so often.
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
    let mut extraction = Extraction::new(what, out);
    // Chunks that are there already are left out.
    let mut seen: BTreeMap<u64, usize> = chunks_seen(&ring);
    loop {
        if stop.is_asked() {
            return extraction.end(ring.content());
        }
        reactor.sleep(every).await;
        ring.look_again().await;
        for reading in chunks_of(&ring, what, &seen) {
            extraction.chunk(&ring, reading).await?;
        }
        extraction.flush()?;
        seen = chunks_seen(&ring);
        let is_enough = what
            .count
            .is_some_and(|count| extraction.done.packets >= count);
        if is_enough {
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

/// Begins to read the chunks that are wanted, one after the other, but for the first ones of each segment that were seen.
fn chunks_of<'a>(
    ring: &'a Ring,
    what: &'a Extract,
    seen: &'a BTreeMap<u64, usize>,
) -> impl Iterator<Item = Reading<'a>> {
    let mut before: Option<&Segments> = None;
    let segments = ring.segments.iter().filter(|segment| {
        let recording = segment.commit.recording;
        what.recording.is_none_or(|only| only == recording)
    });
    segments.flat_map(move |segment| {
        let last = before.replace(segment).map(|before| &before.commit);
        let last = last.filter(|last| last.recording != segment.commit.recording);
        let mut follows = last.and_then(|last| Some(last.chunks.last()?.last));
        let member = ring.members[segment.member as usize].clone();
        let seen = seen.get(&segment.commit.sequence).copied();
        let chunks = segment.commit.chunks.iter().skip(seen.unwrap_or_default());
        let chunks =
            chunks.filter(|chunk| chunk.last >= what.times.start && chunk.first < what.times.end);
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
                follows: follows.take(),
            })
        })
    })
}

fn place_of(segment: &Segments, chunk: &Chunk) -> u64 {
    segment.place + u64::from(chunk.block) * BLOCK_BYTES as u64
}

struct Extraction<'a> {
    what: &'a Extract,
    out: &'a mut dyn Output,
    done: Extracted,
    /// Interfaces that the output has.
    known: Vec<Interface>,
    has_begun: bool,
}

impl<'a> Extraction<'a> {
    fn new(what: &'a Extract, out: &'a mut dyn Output) -> Self {
        Extraction {
            what,
            out,
            done: Extracted::default(),
            known: Vec::new(),
            has_begun: false,
        }
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

    async fn chunk(&mut self, ring: &Ring, reading: Reading<'_>) -> Result<(), ReadError> {
        let Reading {
            segment,
            chunk,
            member,
            data,
            follows,
        } = reading;
        if let Some(last) = follows.filter(|_| self.done.packets > 0) {
            self.gap(last)?;
        }
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
        let mut bytes = Vec::new();
        let read = whole.and_then(|data| match ring.content() {
            Content::Bytes => {
                self.done.packets += u64::from(chunk.packets);
                bytes = data;
                Ok(())
            }
            Content::Packets => {
                let read = self.packets(&data, &mut bytes);
                read.map_err(|error| error.to_string())
            }
        });
        self.put(&bytes)?;
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
            times: chunk.first..chunk.last + 1,
            why,
        });
        Ok(())
    }

    /// Writes the packets of a chunk, each at its interface's number in the output.
    fn packets(&mut self, data: &[u8], bytes: &mut Vec<u8>) -> Result<(), PcapError> {
        let (mut reader, mut left) = (Reader::new(), data);
        let mut numbers = Vec::new();
        self.begin(bytes);
        while let Some(found) = reader.next(&mut left)? {
            match found {
                Found::Interface(interface) => {
                    let known = self.known.iter().position(|one| *one == interface);
                    let number = known.unwrap_or(self.known.len());
                    if known.is_none() {
                        write::interface(&interface, bytes);
                        self.known.push(interface);
                    }
                    numbers.push(number as u32);
                }
                Found::Packet(mut packet) => {
                    let is_wanted = self.what.times.contains(&packet.time)
                        && self
                            .what
                            .count
                            .is_none_or(|count| self.done.packets < count);
                    if is_wanted {
                        packet.interface = numbers[packet.interface as usize];
                        write::packet(&packet, bytes);
                        self.done.packets += 1;
                    }
                }
                Found::Statistics(mut statistics) if self.what.times.contains(&statistics.time) => {
                    statistics.interface = numbers[statistics.interface as usize];
                    write::statistics(&statistics, bytes);
                }
                Found::Statistics(_) | Found::Section | Found::Other => {}
            }
        }
        reader.end(left)
    }

    fn begin(&mut self, bytes: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            write::section("weir record extract", std::env::consts::OS, bytes);
        }
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
