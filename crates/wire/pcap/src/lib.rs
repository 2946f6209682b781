//! Packets in files: pcapng (draft-ietf-opsawg-pcapng), read and written, and pcap (draft-ietf-opsawg-pcap), read. No I/O.
//!
//! [`Reader`] takes a file in pieces of any size and finds its packets. [`mod@write`] makes blocks of pcapng, little-endian, with
//! times in nanoseconds.

#![forbid(unsafe_code)]

mod read;
pub mod write;

pub use read::{Found, PcapError, Reader};

/// Link type of Ethernet.
pub const ETHERNET: u16 = 1;
/// Bytes of one packet at most that are read or written (the largest snap length that libpcap takes).
pub const PACKET_BYTES_MAX: usize = 256 << 10;
/// Bytes of one block at most: of the largest packet, with room for options.
pub const BLOCK_BYTES_MAX: usize = PACKET_BYTES_MAX + (64 << 10);

/// An interface on which packets were seen (Interface Description Block).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Type of its link (LINKTYPE_).
    pub link_type: u16,
    /// Bytes of a packet that were kept at most; 0: all.
    pub snap_length: u32,
    /// Its name (if_name).
    pub name: Option<String>,
    /// Bits a second (if_speed).
    pub speed: Option<u64>,
    /// The filter that packets passed (if_filter), as text.
    pub filter: Option<String>,
    /// The operating system that it is on (if_os).
    pub system: Option<String>,
}

/// A packet (Enhanced Packet Block).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packet<'a> {
    /// Number of its interface in its section.
    pub interface: u32,
    /// Its time in nanoseconds since the beginning of 1970.
    pub time: u64,
    /// Bytes that it had.
    pub length: u32,
    /// Bytes that were kept.
    pub data: &'a [u8],
    /// Direction, and errors of the link (epb_flags).
    pub flags: Option<u32>,
    /// Packets that were lost between the one before on this interface and this one (epb_dropcount).
    pub dropped: Option<u64>,
}

/// Counts of an interface (Interface Statistics Block).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Number of the interface in its section.
    pub interface: u32,
    /// When they were taken, in nanoseconds since the beginning of 1970.
    pub time: u64,
    /// Packets that came (isb_ifrecv).
    pub received: Option<u64>,
    /// Packets that the interface lost (isb_ifdrop).
    pub interface_dropped: Option<u64>,
    /// Packets that passed the filter (isb_filteraccept).
    pub accepted: Option<u64>,
    /// Packets that the system, or the recorder, lost (isb_osdrop).
    pub system_dropped: Option<u64>,
    /// Packets that were kept (isb_usrdeliv).
    pub delivered: Option<u64>,
    /// A word to people (opt_comment).
    pub comment: Option<String>,
}

#[cfg(test)]
mod tests;
