//! Blocks of pcapng, little-endian.

use crate::{Interface, Packet, Statistics};

/// Block types.
pub(crate) const SECTION: u32 = 0x0A0D_0D0A;
pub(crate) const INTERFACE: u32 = 1;
pub(crate) const SIMPLE_PACKET: u32 = 3;
pub(crate) const STATISTICS: u32 = 5;
pub(crate) const ENHANCED_PACKET: u32 = 6;
/// Tells the order of bytes of a section.
pub(crate) const ORDER: u32 = 0x1A2B_3C4D;

/// Codes of options.
pub(crate) mod option {
    pub(crate) const END: u16 = 0;
    pub(crate) const COMMENT: u16 = 1;
    pub(crate) const SECTION_SYSTEM: u16 = 3;
    pub(crate) const SECTION_APPLICATION: u16 = 4;
    pub(crate) const INTERFACE_NAME: u16 = 2;
    pub(crate) const INTERFACE_SPEED: u16 = 8;
    pub(crate) const INTERFACE_RESOLUTION: u16 = 9;
    pub(crate) const INTERFACE_FILTER: u16 = 11;
    pub(crate) const INTERFACE_SYSTEM: u16 = 12;
    pub(crate) const INTERFACE_OFFSET: u16 = 14;
    pub(crate) const PACKET_FLAGS: u16 = 2;
    pub(crate) const PACKET_DROPPED: u16 = 4;
    pub(crate) const STATISTICS_RECEIVED: u16 = 4;
    pub(crate) const STATISTICS_INTERFACE_DROPPED: u16 = 5;
    pub(crate) const STATISTICS_ACCEPTED: u16 = 6;
    pub(crate) const STATISTICS_SYSTEM_DROPPED: u16 = 7;
    pub(crate) const STATISTICS_DELIVERED: u16 = 8;
}

/// Bytes of a packet's block before its data.
const PACKET_HEAD_BYTES: usize = 28;
/// Bytes of an option's value at most.
const OPTION_BYTES_MAX: usize = u16::MAX as usize - 3;

/// A place that blocks are written to.
pub trait Out {
    /// Adds bytes at the end.
    fn put(&mut self, bytes: &[u8]);

    /// Bytes that it has.
    fn length(&self) -> usize;

    /// Writes over bytes that it has.
    fn patch(&mut self, at: usize, bytes: &[u8]);
}

impl Out for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn length(&self) -> usize {
        self.len()
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// Writes one block, whose body `body` writes.
fn block<O: Out>(kind: u32, out: &mut O, body: impl FnOnce(&mut O)) {
    let start = out.length();
    out.put(&kind.to_le_bytes());
    out.put(&[0; 4]);
    body(out);
    let length = (out.length() - start + 4) as u32;
    debug_assert!(length.is_multiple_of(4), "blocks are of whole words");
    out.put(&length.to_le_bytes());
    out.patch(start + 4, &length.to_le_bytes());
}

fn write_option(code: u16, value: &[u8], out: &mut impl Out) {
    let value = &value[..value.len().min(OPTION_BYTES_MAX)];
    out.put(&code.to_le_bytes());
    out.put(&(value.len() as u16).to_le_bytes());
    out.put(value);
    out.put(&[0; 3][..padding(value.len())]);
}

fn end_options(start: usize, out: &mut impl Out) {
    if out.length() > start {
        write_option(option::END, &[], out);
    }
}

/// Begins a section: interfaces are numbered from 0 on after this (Section Header Block).
pub fn section(application: &str, system: &str, out: &mut impl Out) {
    block(SECTION, out, |out| {
        out.put(&ORDER.to_le_bytes());
        out.put(&1_u16.to_le_bytes());
        out.put(&0_u16.to_le_bytes());
        // Nobody knows yet how long the section is.
        out.put(&u64::MAX.to_le_bytes());
        write_option(option::SECTION_SYSTEM, system.as_bytes(), out);
        write_option(option::SECTION_APPLICATION, application.as_bytes(), out);
        write_option(option::END, &[], out);
    });
}

/// Describes the next interface, whose times are in nanoseconds.
pub fn interface(interface: &Interface, out: &mut impl Out) {
    block(INTERFACE, out, |out| {
        out.put(&interface.link_type.to_le_bytes());
        out.put(&[0; 2]);
        out.put(&interface.snap_length.to_le_bytes());
        let texts = [
            (option::INTERFACE_NAME, &interface.name),
            (option::INTERFACE_SYSTEM, &interface.system),
        ];
        for (code, text) in texts {
            if let Some(text) = text {
                write_option(code, text.as_bytes(), out);
            }
        }
        if let Some(speed) = interface.speed {
            write_option(option::INTERFACE_SPEED, &speed.to_le_bytes(), out);
        }
        write_option(option::INTERFACE_RESOLUTION, &[9], out);
        if let Some(filter) = &interface.filter {
            // A byte of 0 says that it is text.
            let value = [&[0], filter.as_bytes()].concat();
            write_option(option::INTERFACE_FILTER, &value, out);
        }
        write_option(option::END, &[], out);
    });
}

/// Bytes that [`packet`] writes.
#[must_use]
pub fn packet_bytes(packet: &Packet<'_>) -> usize {
    let data = packet.data.len();
    let flags = if packet.flags.is_some() { 8 } else { 0 };
    let dropped = if packet.dropped.is_some() { 12 } else { 0 };
    let end = if flags + dropped > 0 { 4 } else { 0 };
    PACKET_HEAD_BYTES + data + padding(data) + flags + dropped + end + 4
}

/// Writes a packet.
pub fn packet(packet: &Packet<'_>, out: &mut impl Out) {
    // Most have no options, and there are many: the head is written at once.
    let (start, length) = (out.length(), packet_bytes(packet) as u32);
    let mut head = [0; PACKET_HEAD_BYTES];
    head[0..4].copy_from_slice(&ENHANCED_PACKET.to_le_bytes());
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..12].copy_from_slice(&packet.interface.to_le_bytes());
    head[12..16].copy_from_slice(&((packet.time >> 32) as u32).to_le_bytes());
    head[16..20].copy_from_slice(&(packet.time as u32).to_le_bytes());
    head[20..24].copy_from_slice(&(packet.data.len() as u32).to_le_bytes());
    head[24..28].copy_from_slice(&packet.length.to_le_bytes());
    out.put(&head);
    out.put(packet.data);
    out.put(&[0; 3][..padding(packet.data.len())]);
    let options = out.length();
    if let Some(flags) = packet.flags {
        write_option(option::PACKET_FLAGS, &flags.to_le_bytes(), out);
    }
    if let Some(dropped) = packet.dropped {
        write_option(option::PACKET_DROPPED, &dropped.to_le_bytes(), out);
    }
    end_options(options, out);
    out.put(&length.to_le_bytes());
    debug_assert_eq!(out.length() - start, length as usize);
}

/// Writes the counts of an interface.
pub fn statistics(statistics: &Statistics, out: &mut impl Out) {
    block(STATISTICS, out, |out| {
        out.put(&statistics.interface.to_le_bytes());
        out.put(&((statistics.time >> 32) as u32).to_le_bytes());
        out.put(&(statistics.time as u32).to_le_bytes());
        let options = out.length();
        if let Some(comment) = &statistics.comment {
            write_option(option::COMMENT, comment.as_bytes(), out);
        }
        for (code, count) in [
            (option::STATISTICS_RECEIVED, statistics.received),
            (
                option::STATISTICS_INTERFACE_DROPPED,
                statistics.interface_dropped,
            ),
            (option::STATISTICS_ACCEPTED, statistics.accepted),
            (option::STATISTICS_SYSTEM_DROPPED, statistics.system_dropped),
            (option::STATISTICS_DELIVERED, statistics.delivered),
        ] {
            if let Some(count) = count {
                write_option(code, &count.to_le_bytes(), out);
            }
        }
        end_options(options, out);
    });
}
