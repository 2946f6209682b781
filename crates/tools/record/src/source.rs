//! Sources of a recording: files and streams, and packets that are made up.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use weir_pcap::{Found, Interface, Packet, PcapError, Reader};
use weir_reactor::{Instant, Reactor};

use crate::format::Content;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Why a source cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read.
    #[error("{name} cannot be read: {error}")]
    Read {
        /// The source.
        name: String,
        /// The system's error.
        error: io::Error,
    },
    /// It is no file of packets, or a damaged one.
    #[error("{name} is no file of packets that can be read: {error}")]
    Packets {
        /// The source.
        name: String,
        /// Its defect.
        error: PcapError,
    },
    /// It has interfaces whose descriptions have no room in the ring's chunks.
    #[error("{name} has more interfaces than a recording takes")]
    Interfaces {
        /// The source.
        name: String,
    },
}

/// The pace at which a source yields what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// As fast as it is taken: nothing is lost.
    #[default]
    Full,
    /// Packets at the intervals of their times. What is not taken in time is lost.
    Own,
    /// This many bits a second. What is not taken in time is lost.
    Rate(u64),
}

/// The next thing of a source.
pub(crate) enum Next<'a> {
    /// All interfaces, of which some are new.
    Interfaces(&'a [Interface]),
    Packet(Packet<'a>),
    /// Bytes of a stream.
    Bytes(&'a [u8]),
    /// There is none before this time.
    Wait(Instant),
    /// It is to be read from.
    Read,
    End,
}

/// A source.
pub enum Source {
    /// A file or a stream.
    Input(Box<Input>),
    /// Packets, or bytes, that are made up.
    Generator(Generator),
}

impl Source {
    /// Kind of what it yields.
    #[must_use]
    pub fn content(&self) -> Content {
        match self {
            Source::Input(input) => input.content,
            Source::Generator(generator) => generator.content,
        }
    }

    /// Tells whether what is not taken in time is lost.
    pub(crate) fn is_live(&self) -> bool {
        let pace = match self {
            Source::Input(input) => input.pace,
            Source::Generator(generator) => generator.pace,
        };
        pace != Pace::Full
    }

    pub(crate) fn next(&mut self, now: Instant, wall: Duration) -> Result<Next<'_>, SourceError> {
        match self {
            Source::Input(input) => input.next(now),
            Source::Generator(generator) => Ok(generator.next(now, wall)),
        }
    }

    /// Tells how many bytes were taken: of a stream the next ones follow them.
    pub(crate) fn taken(&mut self, bytes: usize) {
        match self {
            Source::Input(input) if input.content == Content::Bytes => input.taken += bytes,
            Source::Input(_) | Source::Generator(_) => {}
        }
    }

    /// Reads on, in a thread that may block.
    pub(crate) async fn read(&mut self, reactor: &Reactor) -> Result<(), SourceError> {
        match self {
            Source::Input(input) => input.read(reactor).await,
            Source::Generator(_) => Ok(()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Source::Input(input) => &input.name,
            Source::Generator(_) => "the generator",
        }
    }
}

/// Tells when something is due.
#[derive(Debug, Default)]
struct Clock {
    began: Option<Instant>,
    /// The time of the first packet.
    first: Option<u64>,
    bits: u64,
}

impl Clock {
    /// When the next bytes are due, whose own time this is.
    fn due(&mut self, pace: Pace, now: Instant, time: u64) -> Instant {
        let began = *self.began.get_or_insert(now);
        let after = match pace {
            Pace::Full => return now,
            Pace::Own => time.saturating_sub(*self.first.get_or_insert(time)),
            Pace::Rate(rate) => {
                let nanoseconds = u128::from(self.bits) * 1_000_000_000 / u128::from(rate.max(1));
                nanoseconds as u64
            }
        };
        began + Duration::from_nanos(after)
    }
}

/// The thing that was read from, the buffer, and the bytes that came.
type WasRead = (Box<dyn Read + Send>, Vec<u8>, io::Result<usize>);

type Reading = Pin<Box<dyn Future<Output = Option<WasRead>>>>;

/// A file or a stream, of packets (pcap, pcapng) or of any bytes.
pub struct Input {
    name: String,
    content: Content,
    pace: Pace,
    from: Option<Box<dyn Read + Send>>,
    reading: Option<Reading>,
    is_end: bool,
    held: Vec<u8>,
    /// Bytes of `held` that were taken.
    taken: usize,
    reader: Reader,
    /// All interfaces, and which of them those of the present section are.
    interfaces: Vec<Interface>,
    of_section: Vec<u32>,
    clock: Clock,
    /// The next packet, which is not due yet.
    found: Option<FoundPacket>,
}

/// A packet whose data is in what is held.
struct FoundPacket {
    packet: Packet<'static>,
    data: std::ops::Range<usize>,
}

impl Input {
    /// A source of what `from` yields; `name` is for errors.
    #[must_use]
    pub fn new(name: &str, content: Content, pace: Pace, from: Box<dyn Read + Send>) -> Self {
        Input {
            name: name.to_owned(),
            content,
            pace,
            from: Some(from),
            reading: None,
            is_end: false,
            held: Vec::new(),
            taken: 0,
            reader: Reader::new(),
            interfaces: Vec::new(),
            of_section: Vec::new(),
            clock: Clock::default(),
            found: None,
        }
    }

    fn next(&mut self, now: Instant) -> Result<Next<'_>, SourceError> {
        match self.content {
            Content::Bytes => Ok(self.next_bytes(now)),
            Content::Packets => self.next_packet(now),
        }
    }

    fn next_bytes(&mut self, now: Instant) -> Next<'_> {
        let left = &self.held[self.taken..];
        if left.is_empty() {
            return match self.is_end {
                true => Next::End,
                false => Next::Read,
            };
        }
        let due = self.clock.due(self.pace, now, 0);
        if due > now {
            return Next::Wait(due);
        }
        // A stream has no packets: this much at a time is paced.
        let bytes = left.len().min(match self.pace {
            Pace::Full => left.len(),
            _ => 64 << 10,
        });
        self.clock.bits += 8 * bytes as u64;
        Next::Bytes(&left[..bytes])
    }

    fn next_packet(&mut self, now: Instant) -> Result<Next<'_>, SourceError> {
        let fail = |name: &str, error| SourceError::Packets {
            name: name.to_owned(),
            error,
        };
        while self.found.is_none() {
            let mut left = &self.held[self.taken..];
            let found = self.reader.next(&mut left);
            let found = found.map_err(|error| fail(&self.name, error))?;
            let taken = self.held.len() - left.len();
            match found {
                None if self.is_end => {
                    self.reader
                        .end(left)
                        .map_err(|error| fail(&self.name, error))?;
                    return Ok(Next::End);
                }
                None => return Ok(Next::Read),
                Some(Found::Packet(packet)) => {
                    let from = packet.data.as_ptr() as usize - self.held.as_ptr() as usize;
                    self.found = Some(FoundPacket {
                        data: from..from + packet.data.len(),
                        packet: Packet {
                            interface: self.of_section[packet.interface as usize],
                            data: &[],
                            ..packet
                        },
                    });
                }
                Some(Found::Section) => self.of_section.clear(),
                Some(Found::Interface(interface)) => {
                    let known = self.interfaces.iter().position(|one| *one == interface);
                    let number = known.unwrap_or(self.interfaces.len());
                    self.of_section.push(number as u32);
                    if known.is_none() {
                        self.interfaces.push(interface);
                        self.taken = taken;
                        return Ok(Next::Interfaces(&self.interfaces));
                    }
                }
                Some(Found::Statistics(_) | Found::Other) => {}
            }
            self.taken = taken;
        }
        let found = self.found.take().expect("it was found");
        let due = self.clock.due(self.pace, now, found.packet.time);
        if due > now {
            self.found = Some(found);
            return Ok(Next::Wait(due));
        }
        self.clock.bits += 8 * u64::from(found.packet.length);
        Ok(Next::Packet(Packet {
            data: &self.held[found.data],
            ..found.packet
        }))
    }

    async fn read(&mut self, reactor: &Reactor) -> Result<(), SourceError> {
        let reactor = reactor.clone();
        let from = &mut self.from;
        let reading = self.reading.get_or_insert_with(|| {
            let mut from = from.take().expect("it is read by one");
            Box::pin(async move {
                let read = move || {
                    let mut bytes = vec![0; READ_BYTES];
                    let count = from.read(&mut bytes);
                    (from, bytes, count)
                };
                reactor.offload(read).await
            })
        });
        let read = reading.await;
        self.reading = None;
        let lost = || io::Error::other("the thread that reads it ended");
        let fail = |error| SourceError::Read {
            name: self.name.clone(),
            error,
        };
        let (from, bytes, count) = read.ok_or_else(|| fail(lost()))?;
        let count = count.map_err(fail)?;
        self.from = Some(from);
        self.is_end = count == 0;
        self.held.drain(..std::mem::take(&mut self.taken));
        self.held.extend_from_slice(&bytes[..count]);
        Ok(())
    }
}

/// Packets of these sizes in turn, or blocks of bytes, that are made up: each has its number in it.
pub struct Generator {
    content: Content,
    pace: Pace,
    sizes: VecDeque<usize>,
    left: Option<u64>,
    number: u64,
    data: Vec<u8>,
    interfaces: Vec<Interface>,
    is_told: bool,
    clock: Clock,
}

/// The checksum of a header (RFC 1071).
fn internet_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}

/// Bytes of Ethernet, IPv4 and UDP before the number.
const HEADERS: usize = 42;

impl Generator {
    /// Bytes of one packet: at least, and at most.
    pub const SIZES: std::ops::RangeInclusive<usize> = (HEADERS + 8)..=(256 << 10);
    /// The sizes of Internet traffic, in their usual mix (IMIX, frames without their check sequence).
    pub const MIX: [usize; 12] = [60, 60, 60, 60, 60, 60, 60, 590, 590, 590, 590, 1514];

    /// A source of `count` packets of these sizes, or without an end.
    #[must_use]
    pub fn new(content: Content, sizes: &[usize], pace: Pace, count: Option<u64>) -> Self {
        let longest = sizes.iter().copied().max().unwrap_or(64);
        let mut data: Vec<u8> = (0..longest).map(|index| (index % 251) as u8).collect();
        if content == Content::Packets {
            let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
            data[..14].copy_from_slice(&ethernet);
            data[14..34].copy_from_slice(&[
                0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
            ]);
            // From and to the port for discarding.
            data[34..42].copy_from_slice(&[0, 9, 0, 9, 0, 0, 0, 0]);
        }
        Generator {
            content,
            pace,
            sizes: sizes.iter().copied().collect(),
            left: count,
            number: 0,
            data,
            interfaces: vec![Interface {
                link_type: weir_pcap::ETHERNET,
                name: Some("generator".to_owned()),
                ..Interface::default()
            }],
            is_told: content == Content::Bytes,
            clock: Clock::default(),
        }
    }

    fn next(&mut self, now: Instant, wall: Duration) -> Next<'_> {
        if !std::mem::replace(&mut self.is_told, true) {
            return Next::Interfaces(&self.interfaces);
        }
        if self.left == Some(0) {
            return Next::End;
        }
        let due = self.clock.due(self.pace, now, 0);
        if due > now {
            return Next::Wait(due);
        }
        self.left = self.left.map(|left| left - 1);
        self.sizes.rotate_left(1);
        let size = self.sizes.back().copied().unwrap_or(64);
        self.clock.bits += 8 * size as u64;
        let number = self.number.to_be_bytes();
        self.number += 1;
        if self.content == Content::Bytes {
            self.data[..8].copy_from_slice(&number);
            return Next::Bytes(&self.data[..size]);
        }
        self.data[HEADERS..HEADERS + 8].copy_from_slice(&number);
        let length = ((size - 14).min(65_535) as u16).to_be_bytes();
        self.data[16..18].copy_from_slice(&length);
        self.data[24..26].fill(0);
        let sum = internet_checksum(&self.data[14..34]);
        self.data[24..26].copy_from_slice(&sum.to_be_bytes());
        let length = ((size - 34).min(65_515) as u16).to_be_bytes();
        self.data[38..40].copy_from_slice(&length);
        Next::Packet(Packet {
            interface: 0,
            time: wall.as_nanos() as u64,
            length: size as u32,
            data: &self.data[..size],
            ..Packet::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_their_checksum() {
        // The example of RFC 1071, section 3.
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&example), !0xddf2);
        let sizes = [64, 1500];
        let mut generator = Generator::new(Content::Packets, &sizes, Pace::Full, None);
        let now = Instant::default();
        for _ in 0..5 {
            if let Next::Packet(packet) = generator.next(now, Duration::ZERO) {
                assert_eq!(internet_checksum(&packet.data[14..34]), 0);
            }
        }
    }
}
