//! A network interface as a source.

use std::io;
use std::time::Duration;

use weir_pcap::{Interface, Packet};
use weir_reactor::linux::{Capture, Frame, InterfaceInfo};
use weir_reactor::{Instant, Reactor};

use crate::supply::{LeftOut, Next, SourceError};

/// Bytes of a comment at most.
const COMMENT_BYTES_MAX: usize = 4096;

/// Types of hardware (ARPHRD_ of linux/if_arp.h) and the types of link (LINKTYPE_) of what a packet socket yields of them.
const LINK_TYPES: [(u16, u16); 10] = [
    // Ethernet, and the loopback, which looks like it.
    (1, 1),
    (772, 1),
    // Tunnels and whatever else has no header: IP.
    (512, 101),
    (768, 101),
    (769, 101),
    (776, 101),
    (778, 101),
    (65_534, 101),
    // 802.11 without and with Radiotap.
    (801, 105),
    (803, 127),
];

/// Packets of an interface, of one of its sockets.
pub struct Live {
    capture: Capture,
    interface: Interface,
    is_told: bool,
    is_down: bool,
    /// When it was seen that the interface is gone.
    gone: Option<Instant>,
    left_out: LeftOut,
    /// Counts of the interface when the recording began, where this source tells them.
    began: Option<Began>,
}

/// Counts of an interface when the recording began: packets that it lost, and by the counters' names.
struct Began {
    lost: u64,
    named: Vec<(String, u64)>,
}

impl Live {
    /// The kernel hands over a block that is not full after a tenth of this.
    pub(crate) const LINGER: Duration = Duration::from_millis(100);

    /// A source of what a socket captures of the interface `name`; `filter` is for the description in the recording. Of several
    /// sources of one interface, one tells its counts.
    ///
    /// # Errors
    /// `Unsupported` where the interface has links of a type that no file of packets knows; or the system's.
    pub fn new(
        capture: Capture,
        info: &InterfaceInfo,
        name: &str,
        snap_length: u32,
        filter: Option<String>,
        counts_interface: bool,
    ) -> io::Result<Self> {
        let known = LINK_TYPES
            .iter()
            .find(|(hardware, _)| *hardware == info.hardware);
        let Some(&(_, link_type)) = known else {
            let text = format!(
                "interface {name} cannot be recorded: no link type is known for its hardware type {} (ARPHRD_ in linux/if_arp.h); record another one",
                info.hardware
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let began = match counts_interface {
            true => Some(Began {
                lost: capture.interface_lost()?,
                named: capture.loss_counts()?,
            }),
            false => None,
        };
        // Packets that the kernel counted while the capture was set up are nobody's loss.
        capture.take_lost()?;
        Ok(Live {
            capture,
            interface: Interface {
                link_type,
                snap_length,
                name: Some(name.to_owned()),
                speed: info.speed,
                filter,
                system: Some("linux".to_owned()),
            },
            is_told: false,
            is_down: false,
            gone: None,
            left_out: LeftOut::default(),
            began,
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.interface.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn next(&mut self) -> Next<'_> {
        if !std::mem::replace(&mut self.is_told, true) {
            return Next::Interfaces(std::slice::from_ref(&self.interface));
        }
        match self.capture.next_frame() {
            None => Next::Read,
            Some(Frame { time, length, data }) => Next::Packet(Packet {
                interface: 0,
                time,
                length,
                // The tag of a VLAN comes on top of what the kernel kept.
                data: &data[..data.len().min(self.interface.snap_length as usize)],
                flags: None,
                dropped: None,
            }),
        }
    }

    /// Waits for packets, also while the interface is down. [`SourceError::Gone`] when it was removed.
    pub(crate) async fn wait(&mut self, reactor: &Reactor) -> Result<(), SourceError> {
        if self.is_down && (self.gone.is_some() || self.capture.is_gone()) {
            // The kernel hands its last block over a little later.
            let since = *self.gone.get_or_insert(reactor.now());
            if reactor.now() < since + Self::LINGER {
                reactor.sleep_until(since + Self::LINGER).await;
                return Ok(());
            }
            let name = self.name().to_owned();
            return Err(SourceError::Gone { name });
        }
        match self.capture.ready(reactor).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => {
                self.is_down = true;
                Ok(())
            }
            Err(error) => Err(SourceError::Read {
                name: self.name().to_owned(),
                error,
            }),
        }
    }

    pub(crate) fn left_out(&mut self) -> LeftOut {
        // An interface that is gone is counted no more: waiting for it says so.
        self.left_out.socket += self.capture.take_lost().unwrap_or_default();
        if let Some(began) = &self.began
            && let Ok(lost) = self.capture.interface_lost()
        {
            self.left_out.interface = lost.saturating_sub(began.lost);
        }
        self.left_out
    }

    /// Takes packets that came before a time: their number.
    pub(crate) fn drain(&mut self, before: u64) -> u64 {
        let mut count = 0;
        while self
            .capture
            .next_frame()
            .is_some_and(|frame| frame.time < before)
        {
            count += 1;
        }
        count
    }

    /// Counts of the interface that moved since the recording began, by their names.
    pub(crate) fn named_counts(&self) -> Option<String> {
        let began = self.began.as_ref()?;
        let now = self.capture.loss_counts().ok()?;
        let moved = now.iter().filter_map(|(name, count)| {
            let first = began.named.iter().find(|(first, _)| first == name);
            let moved = count.saturating_sub(first.map_or(0, |(_, count)| *count));
            (moved > 0).then(|| format!("{name} {moved}"))
        });
        let moved: Vec<_> = moved.collect();
        if moved.is_empty() {
            return None;
        }
        let mut text = format!("counters of the interface: {}", moved.join(", "));
        while text.len() > COMMENT_BYTES_MAX {
            text.pop();
        }
        Some(text)
    }

    pub(crate) fn fill(&self) -> f64 {
        self.capture.fill()
    }
}
