//! Sources of a recording.

use std::time::Duration;

use weir_reactor::{Instant, Reactor};

use crate::capture::Live;
use crate::format::Content;
use crate::generator::Generator;
use crate::input::Input;
use crate::supply::{LeftOut, Next, Pace, SourceError};
use crate::udp::Udp;

/// A source.
pub enum Source {
    /// A file or a stream.
    Input(Box<Input>),
    /// Packets, or bytes, that are made up.
    Generator(Generator),
    /// An interface.
    Live(Box<Live>),
    /// A UDP socket.
    Udp(Box<Udp>),
}

impl Source {
    /// Kind of what it yields.
    #[must_use]
    pub fn content(&self) -> Content {
        match self {
            Source::Input(input) => input.content,
            Source::Generator(generator) => generator.content,
            Source::Live(_) => Content::Packets,
            Source::Udp(udp) => udp.content,
        }
    }

    /// Returns whether slow volumes may cost data: in the recorder, in the kernel, or at the sender.
    pub(crate) fn is_live(&self) -> bool {
        let is_live = matches!(self, Source::Input(input) if input.is_live);
        is_live || self.loses_when_late() || self.linger().is_some()
    }

    /// Tells whether the recorder drops items that find no free buffer. False for sources that can wait, and for interfaces and UDP sockets:
    /// their packets wait in the kernel.
    pub(crate) fn loses_when_late(&self) -> bool {
        let pace = match self {
            Source::Input(input) => input.pace,
            Source::Generator(generator) => generator.pace,
            Source::Live(_) | Source::Udp(_) => Pace::Full,
        };
        pace != Pace::Full
    }

    pub(crate) fn next(&mut self, now: Instant, wall: Duration) -> Result<Next<'_>, SourceError> {
        match self {
            Source::Input(input) => input.next(now),
            Source::Generator(generator) => Ok(generator.next(now, wall)),
            Source::Live(live) => Ok(live.next()),
            Source::Udp(udp) => udp.next(),
        }
    }

    /// Tells how many bytes were taken: of a stream the next ones follow them.
    pub(crate) fn taken(&mut self, bytes: usize) {
        match self {
            Source::Input(input) if input.content == Content::Bytes => input.taken += bytes,
            Source::Udp(udp) => udp.taken(bytes),
            Source::Input(_) | Source::Generator(_) | Source::Live(_) => {}
        }
    }

    /// Reads on, in a thread that may block.
    pub(crate) async fn read(&mut self, reactor: &Reactor) -> Result<(), SourceError> {
        match self {
            Source::Input(input) => input.read(reactor).await,
            Source::Generator(_) => Ok(()),
            Source::Live(live) => live.wait(reactor).await,
            Source::Udp(udp) => udp.wait(reactor).await,
        }
    }

    /// Packets that were left out so far.
    pub(crate) fn left_out(&mut self) -> LeftOut {
        match self {
            Source::Input(input) => LeftOut {
                filtered: input.filtered,
                ..LeftOut::default()
            },
            Source::Generator(_) => LeftOut::default(),
            Source::Live(live) => live.left_out(),
            Source::Udp(udp) => udp.left_out(),
        }
    }

    /// Takes all that came before a time, in nanoseconds since the beginning of 1970, from the source's own buffer: its number.
    pub(crate) fn drain(&mut self, before: u64) -> u64 {
        match self {
            Source::Live(live) => live.drain(before),
            Source::Udp(udp) => udp.drain(before),
            Source::Input(_) | Source::Generator(_) => 0,
        }
    }

    /// Text with the interface's own loss counters that moved; none if none did.
    pub(crate) fn named_counts(&self) -> Option<String> {
        match self {
            Source::Live(live) => live.named_counts(),
            Source::Input(_) | Source::Generator(_) | Source::Udp(_) => None,
        }
    }

    /// Longest time that the source may hold a packet before it hands it over; none if it holds none.
    pub(crate) fn linger(&self) -> Option<Duration> {
        match self {
            Source::Live(_) => Some(Live::LINGER),
            Source::Udp(_) => Some(Udp::LINGER),
            Source::Input(_) | Source::Generator(_) => None,
        }
    }

    /// Share of the source's own buffer that waits to be taken, from 0 to 1, where it has one.
    pub(crate) fn fill(&self) -> Option<f64> {
        match self {
            Source::Live(live) => Some(live.fill()),
            Source::Udp(udp) => Some(udp.fill()),
            Source::Input(_) | Source::Generator(_) => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Source::Input(input) => &input.name,
            Source::Generator(_) => "the generator",
            Source::Live(live) => live.name(),
            Source::Udp(udp) => udp.name(),
        }
    }
}
