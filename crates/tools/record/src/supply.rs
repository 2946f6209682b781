//! Parts that all sources have: what they yield, at what pace, and why they cannot go on.

use std::io;
use std::time::Duration;

use weir_libpcap::FilterError;
use weir_pcap::{Interface, Packet, PcapError};
use weir_reactor::Instant;

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
    #[error("{name} is not a readable pcap or pcapng file: {error}")]
    Packets {
        /// The source.
        name: String,
        /// Its defect.
        error: PcapError,
    },
    /// Its filter cannot be had.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// An interface was removed.
    #[error(
        "the interface {name} was removed; packets before that are recorded; start again when it is back"
    )]
    Gone {
        /// The interface.
        name: String,
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
    /// Bytes of a stream, and their time where the source knows it.
    Bytes(&'a [u8], Option<u64>),
    /// This number of bytes came at this time, and is not recorded.
    LeftOut(usize, u64),
    /// There is none before this time.
    Wait(Instant),
    /// It is to be read from.
    Read,
    End,
}

/// Packets that a source itself, or what brings them to it, left out, since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LeftOut {
    pub(crate) filtered: u64,
    /// The kernel had no room for them.
    pub(crate) socket: u64,
    pub(crate) interface: u64,
}

/// Tells when something is due.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    began: Option<Instant>,
    /// The time of the first packet.
    first: Option<u64>,
    pub(crate) bits: u64,
}

impl Clock {
    /// When the next bytes are due, whose own time this is.
    pub(crate) fn due(&mut self, pace: Pace, now: Instant, time: u64) -> Instant {
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
