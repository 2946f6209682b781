//! The way from here to a remote volume: interface, MTU, speed and the overhead of headers.
//!
//! Nothing is sent: the kernel is asked how it would send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
use weir_lab::document::{NetworkPath, Overhead};
use weir_load::workload::{Kind, Workload};
use weir_volume::VolumeUrl;

/// Ethernet: preamble and start, header, frame check, and the gap between frames, in bytes.
const FRAME_BYTES: u64 = 8 + 14 + 4 + 12;
/// TCP's header with time stamps, in bytes.
const TCP_BYTES: u64 = 20 + 12;
/// A digest, in bytes.
const DIGEST_BYTES: u64 = 4;
/// The interface of what never leaves the machine.
const LOOPBACK: &str = "lo";

/// The protocol that carries a volume's data over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Nvme,
    Iscsi,
    Nfs,
}

impl Protocol {
    fn of(url: &VolumeUrl) -> Option<Self> {
        match url.scheme() {
            weir_nvme_host::SCHEME => Some(Protocol::Nvme),
            weir_iscsi_host::SCHEME => Some(Protocol::Iscsi),
            weir_nfs_host::SCHEME => Some(Protocol::Nfs),
            _ => None,
        }
    }

    /// The port where the URL names none.
    fn port(self) -> u16 {
        match self {
            Protocol::Nvme => weir_nvme_host::PORT,
            Protocol::Iscsi => weir_iscsi_host::PORT,
            Protocol::Nfs => weir_nfs_host::PORT,
        }
    }

    /// Headers before a read's data, or a write's in the PDU of its command, in bytes: C2HData (NVMe/TCP 1.0, 3.6.2.10) and CapsuleCmd (3.6.2.6);
    /// Data-In (RFC 7143, 11.7) and SCSI Command (11.3); the record mark, the reply and the results before READ's data, or the call and the
    /// operations before WRITE's, with an empty name of the machine and a handle of 44 bytes (RFC 5531, RFC 8881).
    fn header_bytes(self, kind: Kind) -> u64 {
        match (self, kind) {
            (Protocol::Nvme, Kind::Write) => 8 + 64,
            (Protocol::Nvme, _) => 24,
            (Protocol::Iscsi, _) => 48,
            (Protocol::Nfs, Kind::Write) => 4 + 60 + 12 + 36 + 52 + 36,
            (Protocol::Nfs, _) => 4 + 104,
        }
    }
}

/// Returns the way to a volume and the overhead of headers on a request; none where the volume is local or the route is unknown.
pub(super) fn of(url: &VolumeUrl, workload: &Workload) -> Option<NetworkPath> {
    let protocol = Protocol::of(url)?;
    let authority = url.authority()?;
    let port = authority.port.unwrap_or(protocol.port());
    let address = (authority.host.as_str(), port)
        .to_socket_addrs()
        .ok()?
        .next()?;
    let any: IpAddr = match address.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(address).ok()?;
    let mtu = match address {
        SocketAddr::V4(_) => ip_mtu(&socket),
        SocketAddr::V6(_) => ipv6_mtu(&socket),
    };
    let mtu_bytes = mtu.ok()?;
    let is_here = socket.local_addr().ok()?.ip() == address.ip();
    let interface = match is_here || address.ip().is_loopback() {
        true => LOOPBACK.to_owned(),
        false => interface(address.ip())?,
    };
    let parameters = url.parameters();
    let digests = ["hdgst", "ddgst"].map(|name| parameters.flag(name) == Ok(true));
    let overhead = workload.one_size().and_then(|bytes| {
        let kind = match (workload.percent(Kind::Read), workload.percent(Kind::Write)) {
            (reads, writes) if reads >= writes && reads > 0.0 => Kind::Read,
            (_, writes) if writes > 0.0 => Kind::Write,
            _ => return None,
        };
        let digests = digests.iter().filter(|of| **of).count() as u64 * DIGEST_BYTES;
        let pdu_bytes = bytes + protocol.header_bytes(kind) + digests;
        let frame_bytes = if interface == LOOPBACK {
            0
        } else {
            FRAME_BYTES
        };
        overhead(bytes, pdu_bytes, frame_bytes, mtu_bytes, address.is_ipv6())
    });
    Some(NetworkPath {
        speed_bits_per_second: speed(&interface),
        interface,
        mtu_bytes,
        overhead,
    })
}

/// Overhead of a PDU of `pdu_bytes` that carries `data_bytes`, in full segments.
fn overhead(
    data_bytes: u64,
    pdu_bytes: u64,
    frame_bytes: u64,
    mtu_bytes: u32,
    is_ipv6: bool,
) -> Option<Overhead> {
    let ip_bytes = if is_ipv6 { 40 } else { 20 };
    let segment_bytes = u64::from(mtu_bytes).checked_sub(ip_bytes + TCP_BYTES)?;
    let segments = pdu_bytes.div_ceil((segment_bytes > 0).then_some(segment_bytes)?);
    Some(Overhead {
        data_bytes,
        segments,
        wire_bytes: pdu_bytes + segments * (ip_bytes + TCP_BYTES + frame_bytes),
    })
}

/// Speed of an interface in bits a second; none where it reports none.
fn speed(interface: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let megabits: u64 = text.trim().parse().ok()?;
    Some(megabits * 1_000_000)
}

/// The interface by which the kernel would send to an address.
fn interface(to: IpAddr) -> Option<String> {
    match to {
        IpAddr::V4(to) => longest(&std::fs::read_to_string("/proc/net/route").ok()?, |line| {
            ipv4_route(line, to)
        }),
        IpAddr::V6(to) => longest(
            &std::fs::read_to_string("/proc/net/ipv6_route").ok()?,
            |line| ipv6_route(line, to),
        ),
    }
}

/// The interface of the route with the longest prefix; of equal ones that with the least metric.
fn longest(table: &str, matches: impl Fn(&str) -> Option<(u32, u32, String)>) -> Option<String> {
    let found = table.lines().filter_map(matches);
    let best = found.max_by_key(|(prefix, metric, _)| (*prefix, u32::MAX - metric));
    best.map(|(_, _, interface)| interface)
}

/// A line of `/proc/net/route` that leads there: prefix length, metric, interface. Addresses stand there as the machine has them in memory.
fn ipv4_route(line: &str, to: Ipv4Addr) -> Option<(u32, u32, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [interface, destination, _, _, _, _, metric, mask, ..] = fields[..] else {
        return None;
    };
    let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
    let (destination, mask) = (hexadecimal(destination)?, hexadecimal(mask)?);
    let to = u32::from_ne_bytes(to.octets());
    (to & mask == destination).then_some((
        mask.count_ones(),
        metric.parse().ok()?,
        interface.to_owned(),
    ))
}

/// The same of `/proc/net/ipv6_route`.
fn ipv6_route(line: &str, to: Ipv6Addr) -> Option<(u32, u32, String)> {
    const LOCAL: u32 = 0x8000_0000;
    const REJECT: u32 = 0x0200;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [destination, prefix, _, _, _, metric, _, _, flags, interface] = fields[..] else {
        return None;
    };
    let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
    let destination = u128::from_str_radix(destination, 16).ok()?;
    let (prefix, flags) = (hexadecimal(prefix)?, hexadecimal(flags)?);
    let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
    let leads_there = u128::from(to) & mask == destination && flags & (LOCAL | REJECT) == 0;
    leads_there.then_some((prefix, hexadecimal(metric)?, interface.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_load::workload::Access;

    fn read(bytes: u64) -> Workload {
        Workload::simple(bytes, 100, Access::Random)
    }

    #[test]
    fn loopback_has_a_path_without_frames_and_no_path_leads_to_what_is_here() {
        let url = |text: &str| text.parse::<VolumeUrl>().unwrap();
        let path = of(&url("nvme+tcp://127.0.0.1:4420/nqn?nsid=1"), &read(4096)).unwrap();
        assert_eq!(
            (path.interface.as_str(), path.speed_bits_per_second),
            ("lo", None)
        );
        let overhead = path.overhead.unwrap();
        // 24 bytes of C2HData, 20 of IP and 32 of TCP for each segment.
        assert_eq!(overhead.wire_bytes, 4096 + 24 + overhead.segments * 52);
        assert_eq!(of(&url("mem:?size=1M"), &read(4096)), None);
        let iscsi = of(
            &url("iscsi://127.0.0.1/iqn.2026-01.org.example:a/0?hdgst=yes&ddgst=yes"),
            &read(4096),
        );
        let overhead = iscsi.unwrap().overhead.unwrap();
        assert_eq!(overhead.wire_bytes, 4096 + 48 + 8 + overhead.segments * 52);
    }

    #[test]
    fn headers_are_those_of_full_segments() {
        // 1,500 - 20 - 32 = 1,448 bytes a segment; 38 + 20 + 32 = 90 bytes each.
        let four = overhead(4096, 4120, FRAME_BYTES, 1500, false).unwrap();
        assert_eq!((four.segments, four.wire_bytes), (3, 4120 + 3 * 90));
        let jumbo = overhead(65536, 65560, FRAME_BYTES, 9000, true).unwrap();
        assert_eq!((jumbo.segments, jumbo.wire_bytes), (8, 65560 + 8 * 110));
        assert_eq!(overhead(4096, 4120, 0, 52, false), None);
        assert_eq!(overhead(4096, 4120, 0, 10, false), None);
    }

    #[test]
    fn the_route_with_the_longest_prefix_leads_there() {
        let hexadecimal = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |interface: &str, to: [u8; 4], mask: [u8; 4], metric: u32| {
            format!(
                "{interface}\t{}\t00000000\t0003\t0\t0\t{metric}\t{}\t0\t0\t0\n",
                hexadecimal(to),
                hexadecimal(mask)
            )
        };
        let table =
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                .to_owned()
                + &line("eth0", [0; 4], [0; 4], 100)
                + &line("eth1", [10, 1, 0, 0], [255, 255, 0, 0], 0)
                + &line("eth2", [10, 1, 0, 0], [255, 255, 0, 0], 50);
        let to = |address: [u8; 4]| longest(&table, |line| ipv4_route(line, address.into()));
        assert_eq!(to([10, 1, 2, 3]).as_deref(), Some("eth1"));
        assert_eq!(to([10, 2, 2, 3]).as_deref(), Some("eth0"));
        let six = "20010db8000000000000000000000000 20 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth3\n\
                   00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth4\n\
                   00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n";
        let to = |address: &str| longest(six, |line| ipv6_route(line, address.parse().unwrap()));
        assert_eq!(to("2001:db8::1").as_deref(), Some("eth3"));
        assert_eq!(to("2001:db9::1").as_deref(), Some("eth4"));
    }
}
