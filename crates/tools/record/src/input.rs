//! Files and streams as sources.

use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;

use weir_libpcap::Filter;
use weir_pcap::{Found, Interface, Packet, Reader};
use weir_reactor::{Instant, Reactor};

use crate::format::Content;
use crate::supply::{Clock, Next, Pace, SourceError};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// The thing that was read from, the buffer, and the bytes that came.
type WasRead = (Box<dyn Read + Send>, Vec<u8>, io::Result<usize>);

type Reading = Pin<Box<dyn Future<Output = Option<WasRead>>>>;

/// A file or a stream, of packets (pcap, pcapng) or of any bytes.
pub struct Input {
    pub(crate) name: String,
    pub(crate) content: Content,
    pub(crate) pace: Pace,
    pub(crate) is_live: bool,
    from: Option<Box<dyn Read + Send>>,
    reading: Option<Reading>,
    is_end: bool,
    held: Vec<u8>,
    /// Bytes of `held` that were taken.
    pub(crate) taken: usize,
    reader: Reader,
    /// All interfaces, and which of them those of the present section are.
    interfaces: Vec<Interface>,
    of_section: Vec<u32>,
    clock: Clock,
    /// The next packet, which is not due yet.
    found: Option<FoundPacket>,
    /// The filter's expression, and what it is for each interface; packets that it left out.
    expression: Option<String>,
    filters: Vec<Filter>,
    pub(crate) filtered: u64,
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
            is_live: false,
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
            expression: None,
            filters: Vec::new(),
            filtered: 0,
        }
    }

    /// Says whether a sender is at the other end, which may lose data when it is read slowly.
    #[must_use]
    pub fn live(mut self, is_live: bool) -> Self {
        self.is_live = is_live;
        self
    }

    /// Leaves out what does not pass a filter of libpcap.
    #[must_use]
    pub fn filtered_by(mut self, expression: Option<String>) -> Self {
        self.expression = expression;
        self
    }

    pub(crate) fn next(&mut self, now: Instant) -> Result<Next<'_>, SourceError> {
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
        Next::Bytes(&left[..bytes], None)
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
                    let filter = self
                        .filters
                        .get(self.of_section[packet.interface as usize] as usize);
                    if filter.is_some_and(|filter| !filter.passes(packet.length, packet.data)) {
                        self.filtered += 1;
                        self.taken = taken;
                        continue;
                    }
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
                Some(Found::Interface(mut interface)) => {
                    if let Some(expression) = &self.expression {
                        interface.filter = Some(expression.clone());
                    }
                    let known = self.interfaces.iter().position(|one| *one == interface);
                    let number = known.unwrap_or(self.interfaces.len());
                    self.of_section.push(number as u32);
                    if known.is_none() {
                        if let Some(expression) = &self.expression {
                            let snap = weir_pcap::PACKET_BYTES_MAX as u32;
                            let filter = Filter::for_link(expression, interface.link_type, snap)?;
                            self.filters.push(filter);
                        }
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

    pub(crate) async fn read(&mut self, reactor: &Reactor) -> Result<(), SourceError> {
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
