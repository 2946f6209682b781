//! Datagrams that come to a UDP socket as a source: as packets with the headers of IP and UDP, or only their payloads as bytes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weir_libpcap::{Filter, FilterError};
use weir_pcap::{Interface, Packet};
use weir_reactor::Reactor;
use weir_reactor::linux::{Datagram, DatagramSocket};

use crate::format::Content;
use crate::generator::internet_checksum;
use crate::supply::{LeftOut, Next, SourceError};

/// LINKTYPE_RAW: packets begin with the IP header.
const RAW: u16 = 101;
/// Bytes of the UDP header.
const UDP_HEADER: usize = 8;
/// Protocol number of UDP.
const UDP: u8 = 17;
/// Time to live, or hop limit, in the made-up header. The real one is not asked for.
const HOPS: u8 = 64;

/// Datagrams of a UDP socket.
pub struct Udp {
    socket: DatagramSocket,
    pub(crate) content: Content,
    interface: Interface,
    is_told: bool,
    filter: Option<Filter>,
    left_out: LeftOut,
    /// Bytes of the datagram in hand that were not taken yet; for [`Content::Bytes`].
    left: usize,
}

impl Udp {
    /// Time that packets may wait for room after a stop request. The kernel itself holds none back.
    pub(crate) const LINGER: Duration = Duration::from_millis(100);

    /// A source of datagrams, or with [`Content::Bytes`] of their payloads. Packets that do not pass the filter are left out.
    ///
    /// # Errors
    /// Those of the filter.
    pub fn new(
        socket: DatagramSocket,
        content: Content,
        snap_length: u32,
        filter: Option<String>,
    ) -> Result<Self, FilterError> {
        let longest = weir_pcap::PACKET_BYTES_MAX as u32;
        let compiled = filter
            .as_deref()
            .map(|expression| Filter::for_link(expression, RAW, longest));
        Ok(Udp {
            interface: Interface {
                link_type: RAW,
                snap_length,
                name: Some(format!("udp:{}", socket.address())),
                speed: None,
                filter,
                system: Some("linux".to_owned()),
            },
            socket,
            content,
            is_told: content == Content::Bytes,
            filter: compiled.transpose()?,
            left_out: LeftOut::default(),
            left: 0,
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.interface.name.as_deref().unwrap_or_default()
    }

    fn failed(&self, error: io::Error) -> SourceError {
        SourceError::Read {
            name: self.name().to_owned(),
            error,
        }
    }

    pub(crate) fn next(&mut self) -> Result<Next<'_>, SourceError> {
        if !std::mem::replace(&mut self.is_told, true) {
            return Ok(Next::Interfaces(std::slice::from_ref(&self.interface)));
        }
        match self.content {
            Content::Packets => self.next_packet(),
            Content::Bytes => self.next_bytes(),
        }
    }

    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        if !self.advance()? {
            return Ok(Next::Read);
        }
        let (start, passes) = self.prepare();
        let datagram = self.socket.current().expect("it is at one");
        let packet = &mut datagram.room[start..];
        if !passes {
            return Ok(Next::LeftOut(packet.len(), datagram.time));
        }
        put_checksum(packet);
        Ok(Next::Packet(Packet {
            interface: 0,
            time: datagram.time,
            length: packet.len() as u32,
            data: &packet[..packet.len().min(self.interface.snap_length as usize)],
            ..Packet::default()
        }))
    }

    fn next_bytes(&mut self) -> Result<Next<'_>, SourceError> {
        let is_new = self.left == 0;
        if is_new && !self.advance()? {
            return Ok(Next::Read);
        }
        if is_new {
            self.left = self.current_bytes();
        }
        let datagram = self.socket.current().expect("it is at one");
        if self.left == 0 {
            return Ok(Next::LeftOut(0, datagram.time));
        }
        let from = datagram.room.len() - self.left;
        Ok(Next::Bytes(&datagram.room[from..], Some(datagram.time)))
    }

    /// Bytes of the current datagram.
    fn current_bytes(&mut self) -> usize {
        let datagram = self.socket.current().expect("it is at one");
        datagram.room.len() - DatagramSocket::HEADROOM
    }

    /// Writes the headers of the current datagram. Returns the packet's offset in the room, and false if the filter rejects (and counts) it.
    fn prepare(&mut self) -> (usize, bool) {
        let mut datagram = self.socket.current().expect("it is at one");
        let start = put_headers(&mut datagram);
        let packet = &datagram.room[start..];
        let filter = self.filter.as_ref();
        let passes = filter.is_none_or(|filter| filter.passes(packet.len() as u32, packet));
        self.left_out.filtered += u64::from(!passes);
        (start, passes)
    }

    fn advance(&mut self) -> Result<bool, SourceError> {
        self.socket.advance().map_err(|error| self.failed(error))
    }

    /// Tells how many bytes of the datagram were taken. The others follow.
    pub(crate) fn taken(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    pub(crate) async fn wait(&mut self, reactor: &Reactor) -> Result<(), SourceError> {
        let ready = self.socket.ready(reactor).await;
        ready.map_err(|error| self.failed(error))
    }

    pub(crate) fn left_out(&mut self) -> LeftOut {
        self.left_out.socket += self.socket.take_lost().unwrap_or_default();
        self.left_out
    }

    /// Takes datagrams that came before a time: the number of those that would be recorded.
    pub(crate) fn drain(&mut self, before: u64) -> u64 {
        let mut count = 0;
        while self.socket.advance().unwrap_or_default()
            && (self.socket.current()).is_some_and(|datagram| datagram.time < before)
        {
            count += u64::from(match self.content {
                Content::Packets => self.prepare().1,
                Content::Bytes => self.current_bytes() > 0,
            });
        }
        count
    }

    pub(crate) fn fill(&self) -> f64 {
        self.socket.fill()
    }
}

/// Puts the headers of IP and of UDP before the payload of a datagram, without the checksum of UDP; the place in its room at which the packet
/// begins.
fn put_headers(datagram: &mut Datagram<'_>) -> usize {
    let (from, to) = (datagram.from, datagram.to);
    let udp = DatagramSocket::HEADROOM - UDP_HEADER;
    let length = (datagram.room.len() - udp) as u16;
    let header = &mut datagram.room[udp..];
    header[..2].copy_from_slice(&from.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header[6..8].fill(0);
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (from.ip(), to.ip()) {
        let start = udp - 20;
        let header = &mut datagram.room[start..udp];
        header.copy_from_slice(&[
            0x45, 0, 0, 0, 0, 0, 0, 0, HOPS, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]);
        header[2..4].copy_from_slice(&(length + 20).to_be_bytes());
        header[12..16].copy_from_slice(&from.octets());
        header[16..20].copy_from_slice(&to.octets());
        let sum = internet_checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        return start;
    }
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let start = udp - 40;
    let packet = &mut datagram.room[start..];
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, UDP, HOPS]);
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[8..24].copy_from_slice(&octets(from));
    packet[24..40].copy_from_slice(&octets(to));
    start
}

/// Puts the checksum into a packet over IPv6, where there must be one. (Over IPv4 it stays 0: there is none.)
fn put_checksum(packet: &mut [u8]) {
    if packet[0] >> 4 != 6 {
        return;
    }
    let length = u16::from_be_bytes([packet[4], packet[5]]);
    // The pseudo-header (RFC 8200, section 8.1) is the addresses, which stand before the header of UDP, the length and the number of
    // UDP. The checksum field holds the sum of these two meanwhile.
    let (rest, carry) = length.overflowing_add(UDP.into());
    packet[46..48].copy_from_slice(&(rest + u16::from(carry)).to_be_bytes());
    let sum = match internet_checksum(&packet[8..]) {
        // 0 would say that there is none.
        0 => u16::MAX,
        sum => sum,
    };
    packet[46..48].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use weir_reactor::linux::DatagramOptions;

    use super::*;

    fn packet_of(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let mut room = vec![0xee; DatagramSocket::HEADROOM];
        room.extend(payload);
        let mut datagram = Datagram {
            time: 0,
            from: from.parse().expect("an address"),
            to: to.parse().expect("an address"),
            room: &mut room,
        };
        let start = put_headers(&mut datagram);
        let mut packet = room.split_off(start);
        put_checksum(&mut packet);
        packet
    }

    /// A payload whose packet in the test below has a checksum of 0.
    fn zero_sum() -> Vec<u8> {
        let packet = packet_of("[2001:db8::1]:7", "[2001:db8::2]:9", &[0, 0]);
        packet[46..48].to_vec()
    }

    #[test]
    fn headers_say_who_sent_a_datagram_and_have_their_checksums() {
        let longest = vec![0xff; 65_507];
        // The last one has a sum of 0, which is written as 0xffff.
        for payload in [&b""[..], b"a", b"ab", &longest, &zero_sum()] {
            let length = (payload.len() + 8) as u16;
            let packet = packet_of("192.0.2.1:7", "192.0.2.2:9", payload);
            assert_eq!(packet[2..4], (length + 20).to_be_bytes());
            assert_eq!(packet[12..24], [192, 0, 2, 1, 192, 0, 2, 2, 0, 7, 0, 9]);
            assert_eq!(packet[24..26], length.to_be_bytes());
            assert_eq!(
                (internet_checksum(&packet[..20]), &packet[26..28]),
                (0, &[0, 0][..])
            );
            assert_eq!(&packet[28..], payload);

            let packet = packet_of("[2001:db8::1]:7", "[2001:db8::2]:9", payload);
            assert_eq!((packet[0], packet[6]), (0x60, 17));
            assert_eq!(packet[4..6], length.to_be_bytes());
            assert_eq!((packet[23], packet[39]), (1, 2));
            assert_eq!(
                packet[40..46],
                [[0, 7], [0, 9], length.to_be_bytes()].concat()
            );
            assert_ne!(packet[46..48], [0, 0]);
            assert_eq!(&packet[48..], payload);
            let mut checked = packet[8..40].to_vec();
            checked.extend([length.to_be_bytes(), [0, 17]].concat());
            checked.extend(&packet[40..]);
            assert_eq!(internet_checksum(&checked), 0, "{} bytes", payload.len());
            if payload == zero_sum() {
                assert_eq!(packet[46..48], [0xff, 0xff]);
            }
        }
    }

    /// The recorder gets control, and the time, after each datagram that is left out.
    #[test]
    fn left_out_datagrams_are_returned_one_by_one() {
        for (content, filter) in [
            (Content::Bytes, None),
            (Content::Packets, Some("udp port 1".to_owned())),
        ] {
            let options = DatagramOptions {
                address: "127.0.0.1:0".parse().expect("an address"),
                interface: None,
                buffer_bytes: 64 << 10,
                sockets: 1,
            };
            let socket = DatagramSocket::open(&options).expect("it opens").remove(0);
            let out = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
            for _ in 0..40 {
                out.send_to(&[], socket.address()).expect("it is sent");
            }
            let mut udp = match Udp::new(socket, content, 65_535, filter) {
                Ok(udp) => udp,
                Err(error) => {
                    println!("skipped: {error}");
                    continue;
                }
            };
            if content == Content::Packets {
                assert!(matches!(udp.next(), Ok(Next::Interfaces(_))));
            }
            let mut last = 0;
            for _ in 0..40 {
                let Ok(Next::LeftOut(bytes, time)) = udp.next() else {
                    panic!("it is left out")
                };
                assert_eq!(bytes, if content == Content::Bytes { 0 } else { 28 });
                assert!(time >= last);
                last = time;
            }
            assert!(matches!(udp.next(), Ok(Next::Read)));
            let filtered = if content == Content::Bytes { 0 } else { 40 };
            assert_eq!(udp.left_out().filtered, filtered);
        }
    }
}
