//! What was recorded: listed, checked, and extracted by time.

use std::ops::Range;
use std::rc::Rc;

use uuid::Uuid;
use weir_digest::Digest;
use weir_load::Stop;
use weir_pcap::{Found, Interface, Reader, Statistics, write};

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
    /// What came, and what became of it, as its last commit record says.
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
        listed.is_closed = commit.is_closed;
        listed.counts = commit.counts;
    }
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
    /// What is wrong.
    pub why: String,
}

/// Takes what is extracted.
pub trait Output {
    /// Takes bytes of a file of pcapng, or of a stream.
    ///
    /// # Errors
    /// The system's.
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()>;
}

impl<W: std::io::Write> Output for W {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.write_all(bytes)
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

/// What was extracted, or checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extracted {
    /// Packets.
    pub packets: u64,
    /// Bytes that went to the output.
    pub bytes: u64,
    /// Chunks that were read.
    pub chunks: u64,
    /// What could not be read, and was left out.
    pub damaged: Vec<Damage>,
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
    let mut extraction = Extraction {
        what,
        out,
        done: Extracted::default(),
        known: Vec::new(),
        has_begun: false,
    };
    for (index, segment) in ring.segments.iter().enumerate() {
        let commit = &segment.commit;
        if what.recording.is_some_and(|only| only != commit.recording) {
            continue;
        }
        if commit.is_first && index > 0 && extraction.done.packets > 0 {
            let before = &ring.segments[index - 1].commit;
            extraction.gap(before.chunks.last().map(|chunk| chunk.last));
        }
        let Some(member) = &ring.members[segment.member as usize] else {
            continue;
        };
        for chunk in &commit.chunks {
            if stop.is_asked() {
                return Err(ReadError::Stopped(extraction.done.packets));
            }
            if chunk.last < what.times.start || chunk.first >= what.times.end {
                continue;
            }
            if what
                .count
                .is_some_and(|count| extraction.done.packets >= count)
            {
                return extraction.end(ring.content());
            }
            extraction
                .chunk(member, segment, chunk, ring.content())
                .await?;
        }
    }
    extraction.end(ring.content())
}

struct Extraction<'a> {
    what: &'a Extract,
    out: &'a mut dyn Output,
    done: Extracted,
    /// Interfaces that the output has.
    known: Vec<Interface>,
    has_begun: bool,
}

impl Extraction<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        self.out.put(bytes)?;
        self.done.bytes += bytes.len() as u64;
        Ok(())
    }

    async fn chunk(
        &mut self,
        member: &Rc<Member>,
        segment: &Segments,
        chunk: &Chunk,
        content: Content,
    ) -> Result<(), ReadError> {
        let at = segment.place + u64::from(chunk.block) * BLOCK_BYTES as u64;
        let bytes = (chunk.bytes as usize).next_multiple_of(BLOCK_BYTES);
        self.done.chunks += 1;
        let why = match member.read(at, bytes).await {
            Err(error) => error.to_string(),
            Ok(mut data) => {
                data.truncate(chunk.bytes as usize);
                match Digest::of(&data).value() == chunk.checksum {
                    false => "it does not agree with its checksum".to_owned(),
                    true if content == Content::Bytes => {
                        self.done.packets += u64::from(chunk.packets);
                        return self.put(&data);
                    }
                    true => match self.packets(&data)? {
                        Ok(()) => return Ok(()),
                        Err(error) => error.to_string(),
                    },
                }
            }
        };
        self.done.damaged.push(Damage {
            volume: member.name().to_owned(),
            at,
            packets: chunk.packets.into(),
            times: chunk.first..chunk.last + 1,
            why,
        });
        Ok(())
    }

    /// Writes the packets of a chunk, each at its interface's number in the output.
    fn packets(&mut self, data: &[u8]) -> Result<Result<(), weir_pcap::PcapError>, ReadError> {
        let (mut reader, mut left) = (Reader::new(), data);
        let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
        self.begin(&mut bytes);
        loop {
            let found = match reader.next(&mut left) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            };
            match found {
                Found::Interface(interface) => {
                    let known = self.known.iter().position(|one| *one == interface);
                    let number = known.unwrap_or(self.known.len());
                    if known.is_none() {
                        write::interface(&interface, &mut bytes);
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
                        write::packet(&packet, &mut bytes);
                        self.done.packets += 1;
                    }
                }
                Found::Statistics(mut statistics) => {
                    statistics.interface = numbers[statistics.interface as usize];
                    write::statistics(&statistics, &mut bytes);
                }
                Found::Section | Found::Other => {}
            }
        }
        if let Err(error) = reader.end(left) {
            return Ok(Err(error));
        }
        self.put(&bytes)?;
        Ok(Ok(()))
    }

    fn begin(&mut self, bytes: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            write::section("weir record extract", std::env::consts::OS, bytes);
        }
    }

    /// Says that nothing was recorded for a time.
    fn gap(&mut self, last: Option<u64>) {
        if self.known.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        let statistics = Statistics {
            time: last.unwrap_or_default(),
            comment: Some(
                "the recording ended here, and another one begins: what came in between was not recorded"
                    .to_owned(),
            ),
            ..Statistics::default()
        };
        write::statistics(&statistics, &mut bytes);
        // What cannot be written is met again by the packets that follow.
        let _ = self.put(&bytes);
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
