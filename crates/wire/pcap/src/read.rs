//! Packets of a file that comes in pieces.

use crate::write::{ENHANCED_PACKET, INTERFACE, ORDER, SECTION, SIMPLE_PACKET, STATISTICS, option};
use crate::{BLOCK_BYTES_MAX, Interface, PACKET_BYTES_MAX, Packet, Statistics};

/// Interfaces of one section at most.
const INTERFACES_MAX: usize = 4096;
/// Bytes of pcap's header, and of its header of a packet.
const PCAP_HEADER_BYTES: usize = 24;
const PCAP_PACKET_BYTES: usize = 16;

/// A file that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// It is of another kind.
    #[error("it begins with none of the signatures of pcap and pcapng")]
    Unknown,
    /// A version that nobody knows.
    #[error("it is of version {0}.{1}, which is not known")]
    Version(u16, u16),
    /// A part that breaks a rule.
    #[error("{what} at byte {at}")]
    Broken {
        /// Its defect.
        what: &'static str,
        /// First byte of the part in the file.
        at: u64,
    },
    /// It ends within a part.
    #[error("it ends at byte {at} within a packet or a block")]
    Cut {
        /// First byte of the part.
        at: u64,
    },
}

/// A thing that was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A section begins: interfaces are numbered anew.
    Section,
    /// An interface.
    Interface(Interface),
    /// A packet.
    Packet(Packet<'a>),
    /// Counts of an interface.
    Statistics(Statistics),
    /// A block of another kind.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8]) -> u16 {
        let bytes = [bytes[0], bytes[1]];
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: &[u8]) -> u64 {
        let bytes: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// Units of an interface's times.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// Units in a second.
    per_second: u64,
    /// Seconds to add.
    offset: i64,
    snap_length: u32,
}

impl Clock {
    const MICROSECONDS: Clock = Clock {
        per_second: 1_000_000,
        offset: 0,
        snap_length: 0,
    };

    /// Nanoseconds since the beginning of 1970; times before that are 0.
    fn nanoseconds(&self, units: u64) -> u64 {
        let per_second = u128::from(self.per_second);
        let nanoseconds = u128::from(units) * 1_000_000_000 / per_second;
        let offset = i128::from(self.offset) * 1_000_000_000;
        let sum = nanoseconds.cast_signed() + offset;
        sum.clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[derive(Debug)]
enum Kind {
    /// Nothing came yet.
    New,
    /// Pcap; whether its one interface was told.
    Pcap {
        order: Order,
        clock: Clock,
        interface: Option<Interface>,
    },
    Pcapng {
        order: Order,
        clocks: Vec<Clock>,
    },
}

/// Finds what is in a file.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    /// Bytes that were taken.
    at: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Reader::new()
    }
}

impl Reader {
    /// Of a file of which nothing came yet.
    #[must_use]
    pub fn new() -> Self {
        Reader {
            kind: Kind::New,
            at: 0,
        }
    }

    /// Bytes of the file that were taken.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Finds the first thing in `bytes`, which follow those that were taken before, and takes it from their front. None: more bytes
    /// are needed.
    ///
    /// # Errors
    /// [`PcapError`]: nothing behind it can be read.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Found<'a>>, PcapError> {
        let before = bytes.len();
        let found = match self.kind {
            Kind::New => self.begin(bytes),
            Kind::Pcap { .. } => self.next_of_pcap(bytes),
            Kind::Pcapng { .. } => self.next_of_pcapng(bytes),
        };
        self.at += (before - bytes.len()) as u64;
        found
    }

    /// Checks, at the end of the file, that `left` is nothing.
    ///
    /// # Errors
    /// [`PcapError::Cut`], or [`PcapError::Unknown`] of an empty file.
    pub fn end(&self, left: &[u8]) -> Result<(), PcapError> {
        match (&self.kind, left) {
            (Kind::New, _) => Err(PcapError::Unknown),
            (_, []) => Ok(()),
            _ => Err(PcapError::Cut { at: self.at }),
        }
    }

    fn broken(&self, what: &'static str) -> PcapError {
        PcapError::Broken { what, at: self.at }
    }

    fn begin<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Found<'a>>, PcapError> {
        let Some(magic) = bytes.get(..4) else {
            return Ok(None);
        };
        let (order, per_second) = match Order::Little.u32(magic) {
            SECTION => return self.next_of_pcapng(bytes),
            0xA1B2_C3D4 => (Order::Little, 1_000_000),
            0xD4C3_B2A1 => (Order::Big, 1_000_000),
            0xA1B2_3C4D => (Order::Little, 1_000_000_000),
            0x4D3C_B2A1 => (Order::Big, 1_000_000_000),
            _ => return Err(PcapError::Unknown),
        };
        let Some((header, rest)) = bytes.split_at_checked(PCAP_HEADER_BYTES) else {
            return Ok(None);
        };
        let version = (order.u16(&header[4..]), order.u16(&header[6..]));
        if version != (2, 4) {
            return Err(PcapError::Version(version.0, version.1));
        }
        let snap_length = order.u32(&header[16..]);
        let interface = Interface {
            // Other bits say how long frame check sequences are.
            link_type: order.u32(&header[20..]) as u16,
            snap_length,
            ..Interface::default()
        };
        *bytes = rest;
        self.kind = Kind::Pcap {
            order,
            clock: Clock {
                per_second,
                offset: 0,
                snap_length,
            },
            interface: Some(interface),
        };
        Ok(Some(Found::Section))
    }

    fn next_of_pcap<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Found<'a>>, PcapError> {
        let Kind::Pcap {
            order,
            clock,
            interface,
        } = &mut self.kind
        else {
            unreachable!("it is pcap")
        };
        if let Some(interface) = interface.take() {
            return Ok(Some(Found::Interface(interface)));
        }
        let (order, clock) = (*order, *clock);
        let Some((head, rest)) = bytes.split_at_checked(PCAP_PACKET_BYTES) else {
            return Ok(None);
        };
        let captured = order.u32(&head[8..]) as usize;
        if captured > PACKET_BYTES_MAX {
            return Err(self.broken("a packet is longer than 262144 bytes"));
        }
        let Some((data, rest)) = rest.split_at_checked(captured) else {
            return Ok(None);
        };
        let fraction = order.u32(&head[4..]).into();
        let seconds = u64::from(order.u32(head)) * 1_000_000_000;
        *bytes = rest;
        Ok(Some(Found::Packet(Packet {
            interface: 0,
            time: seconds + clock.nanoseconds(fraction),
            length: order.u32(&head[12..]),
            data,
            ..Packet::default()
        })))
    }

    fn next_of_pcapng<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Found<'a>>, PcapError> {
        let Some(head) = bytes.get(..12) else {
            return Ok(None);
        };
        let is_section = Order::Little.u32(head) == SECTION;
        let order = match (&self.kind, is_section) {
            (_, true) => match Order::Little.u32(&head[8..]) {
                ORDER => Order::Little,
                order if order.swap_bytes() == ORDER => Order::Big,
                _ => return Err(self.broken("a section says no order of bytes")),
            },
            (Kind::Pcapng { order, .. }, false) => *order,
            _ => unreachable!("the first block is a section's"),
        };
        let length = order.u32(&head[4..]) as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err(self.broken("a block has a length that none has"));
        }
        if length > BLOCK_BYTES_MAX {
            return Err(self.broken("a block is longer than any that is read"));
        }
        let Some((block, rest)) = bytes.split_at_checked(length) else {
            return Ok(None);
        };
        if order.u32(&block[length - 4..]) as usize != length {
            return Err(self.broken("a block does not end with its length"));
        }
        let kind = order.u32(block);
        let body = &block[8..length - 4];
        let found = match kind {
            _ if is_section => self.section(order, body)?,
            INTERFACE => self.interface(order, body)?,
            ENHANCED_PACKET => self.packet(order, body)?,
            SIMPLE_PACKET => self.simple_packet(order, body)?,
            STATISTICS => self.statistics(order, body)?,
            _ => Found::Other,
        };
        *bytes = rest;
        Ok(Some(found))
    }

    fn section<'a>(&mut self, order: Order, body: &'a [u8]) -> Result<Found<'a>, PcapError> {
        if body.len() < 16 {
            return Err(self.broken("a section is cut"));
        }
        let version = (order.u16(&body[4..]), order.u16(&body[6..]));
        // 1.2 is read as 1.0 (section 4.1).
        if version.0 != 1 || !matches!(version.1, 0 | 2) {
            return Err(PcapError::Version(version.0, version.1));
        }
        self.kind = Kind::Pcapng {
            order,
            clocks: Vec::new(),
        };
        Ok(Found::Section)
    }

    fn clocks(&mut self) -> &mut Vec<Clock> {
        match &mut self.kind {
            Kind::Pcapng { clocks, .. } => clocks,
            _ => unreachable!("it is pcapng"),
        }
    }

    fn clock(&mut self, interface: u32) -> Result<Clock, PcapError> {
        let clock = self.clocks().get(interface as usize).copied();
        clock.ok_or_else(|| self.broken("a block is of an interface that was not described"))
    }

    fn interface<'a>(&mut self, order: Order, body: &'a [u8]) -> Result<Found<'a>, PcapError> {
        if body.len() < 8 {
            return Err(self.broken("the description of an interface is cut"));
        }
        if self.clocks().len() >= INTERFACES_MAX {
            return Err(self.broken("a section has more than 4096 interfaces"));
        }
        let mut interface = Interface {
            link_type: order.u16(body),
            snap_length: order.u32(&body[4..]),
            ..Interface::default()
        };
        let mut clock = Clock {
            snap_length: interface.snap_length,
            ..Clock::MICROSECONDS
        };
        let text = |value: &[u8]| {
            let end = value.iter().position(|&byte| byte == 0);
            let value = &value[..end.unwrap_or(value.len())];
            Some(String::from_utf8_lossy(value).into_owned())
        };
        for (code, value) in self.options(order, &body[8..])? {
            match (code, value) {
                (option::INTERFACE_NAME, value) => interface.name = text(value),
                (option::INTERFACE_SYSTEM, value) => interface.system = text(value),
                (option::INTERFACE_SPEED, value) if value.len() == 8 => {
                    interface.speed = Some(order.u64(value));
                }
                (option::INTERFACE_FILTER, [0, value @ ..]) => interface.filter = text(value),
                (option::INTERFACE_RESOLUTION, [resolution]) => {
                    let power = u32::from(resolution & 0x7f);
                    let per_second = match resolution & 0x80 {
                        0 => 10_u64.checked_pow(power),
                        _ => 1_u64.checked_shl(power),
                    };
                    let per_second = per_second.ok_or_else(|| {
                        self.broken("an interface has times finer than 64 bits tell")
                    });
                    clock.per_second = per_second?;
                }
                (option::INTERFACE_OFFSET, value) if value.len() == 8 => {
                    clock.offset = order.u64(value).cast_signed();
                }
                _ => {}
            }
        }
        self.clocks().push(clock);
        Ok(Found::Interface(interface))
    }

    fn packet<'a>(&mut self, order: Order, body: &'a [u8]) -> Result<Found<'a>, PcapError> {
        if body.len() < 20 {
            return Err(self.broken("a packet is cut"));
        }
        let interface = order.u32(body);
        let clock = self.clock(interface)?;
        let units = u64::from(order.u32(&body[4..])) << 32 | u64::from(order.u32(&body[8..]));
        let captured = order.u32(&body[12..]) as usize;
        if captured > PACKET_BYTES_MAX {
            return Err(self.broken("a packet is longer than 262144 bytes"));
        }
        let Some((data, rest)) = body[20..].split_at_checked(captured) else {
            return Err(self.broken("a packet is longer than its block"));
        };
        let mut packet = Packet {
            interface,
            time: clock.nanoseconds(units),
            length: order.u32(&body[16..]),
            data,
            ..Packet::default()
        };
        let padding = captured.wrapping_neg() % 4;
        for (code, value) in self.options(order, rest.get(padding..).unwrap_or_default())? {
            match code {
                option::PACKET_FLAGS if value.len() == 4 => packet.flags = Some(order.u32(value)),
                option::PACKET_DROPPED if value.len() == 8 => {
                    packet.dropped = Some(order.u64(value));
                }
                _ => {}
            }
        }
        Ok(Found::Packet(packet))
    }

    /// A packet without a time.
    fn simple_packet<'a>(&mut self, order: Order, body: &'a [u8]) -> Result<Found<'a>, PcapError> {
        if body.len() < 4 {
            return Err(self.broken("a packet is cut"));
        }
        let clock = self.clock(0)?;
        let length = order.u32(body);
        let snapped = match clock.snap_length {
            0 => length,
            snap_length => length.min(snap_length),
        };
        let captured = body[4..].len().min(snapped as usize);
        if captured > PACKET_BYTES_MAX {
            return Err(self.broken("a packet is longer than 262144 bytes"));
        }
        Ok(Found::Packet(Packet {
            length,
            data: &body[4..4 + captured],
            ..Packet::default()
        }))
    }

    fn statistics<'a>(&mut self, order: Order, body: &'a [u8]) -> Result<Found<'a>, PcapError> {
        if body.len() < 12 {
            return Err(self.broken("counts are cut"));
        }
        let interface = order.u32(body);
        let clock = self.clock(interface)?;
        let units = u64::from(order.u32(&body[4..])) << 32 | u64::from(order.u32(&body[8..]));
        let mut statistics = Statistics {
            interface,
            time: clock.nanoseconds(units),
            ..Statistics::default()
        };
        for (code, value) in self.options(order, &body[12..])? {
            if code == option::COMMENT {
                statistics.comment = Some(String::from_utf8_lossy(value).into_owned());
            }
            if value.len() != 8 {
                continue;
            }
            let count = Some(order.u64(value));
            match code {
                option::STATISTICS_RECEIVED => statistics.received = count,
                option::STATISTICS_INTERFACE_DROPPED => statistics.interface_dropped = count,
                option::STATISTICS_ACCEPTED => statistics.accepted = count,
                option::STATISTICS_SYSTEM_DROPPED => statistics.system_dropped = count,
                option::STATISTICS_DELIVERED => statistics.delivered = count,
                _ => {}
            }
        }
        Ok(Found::Statistics(statistics))
    }

    /// The options of a block: code and value of each.
    fn options<'a>(
        &self,
        order: Order,
        mut bytes: &'a [u8],
    ) -> Result<Vec<(u16, &'a [u8])>, PcapError> {
        let mut options = Vec::new();
        while bytes.len() >= 4 {
            let (code, length) = (order.u16(bytes), order.u16(&bytes[2..]) as usize);
            if code == option::END {
                break;
            }
            let padded = length + length.wrapping_neg() % 4;
            let Some(value) = bytes.get(4..4 + length) else {
                return Err(self.broken("an option is longer than its block"));
            };
            options.push((code, value));
            bytes = bytes.get(4 + padded..).unwrap_or_default();
        }
        Ok(options)
    }
}
