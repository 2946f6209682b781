//! Packets, and bytes, that are made up.

use std::collections::VecDeque;
use std::time::Duration;

use weir_pcap::{Interface, Packet};
use weir_reactor::Instant;

use crate::format::Content;
use crate::supply::{Clock, Next, Pace};

/// Packets of these sizes in turn, or blocks of bytes, that are made up: each has its number in it.
pub struct Generator {
    pub(crate) content: Content,
    pub(crate) pace: Pace,
    sizes: VecDeque<usize>,
    left: Option<u64>,
    number: u64,
    data: Vec<u8>,
    interfaces: Vec<Interface>,
    is_told: bool,
    clock: Clock,
}

/// The checksum of so many bytes, up to 64 KiB and some (RFC 1071).
pub(crate) fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first();
    let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>() + last.map_or(0, |&last| u32::from(last) << 8);
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

    /// Returns the number in a generated packet; none where it is too short to have one.
    #[must_use]
    pub fn number_of(packet: &[u8]) -> Option<u64> {
        let number = packet.get(HEADERS..HEADERS + 8)?;
        Some(u64::from_be_bytes(number.try_into().ok()?))
    }

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

    pub(crate) fn next(&mut self, now: Instant, wall: Duration) -> Next<'_> {
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
            return Next::Bytes(&self.data[..size], None);
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
