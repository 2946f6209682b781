//! Files of packets (pcap, pcapng), as a recorder gets them.

use weir_pcap::{Found, Packet, Reader, write};

/// A file, whole and in pieces: the same is found, data lies within the file, and packets that are written again are read the same.
pub fn packets(data: &[u8]) {
    let whole = found(data, data.len().max(1));
    let step = data.first().map_or(1, |&byte| usize::from(byte) + 1);
    assert_eq!(found(data, step), whole);
    let (mut reader, mut left) = (Reader::new(), data);
    while let Ok(Some(found)) = reader.next(&mut left) {
        let Found::Packet(packet) = found else {
            continue;
        };
        assert!(packet.data.len() <= data.len());
        let own = Packet {
            interface: 0,
            ..packet
        };
        let mut file = Vec::new();
        write::section("", "", &mut file);
        write::interface(&weir_pcap::Interface::default(), &mut file);
        write::packet(&own, &mut file);
        let (mut again, mut file) = (Reader::new(), &file[..]);
        for _ in 0..2 {
            assert!(matches!(again.next(&mut file), Ok(Some(_))));
        }
        assert_eq!(again.next(&mut file), Ok(Some(Found::Packet(own))));
    }
    assert!(reader.position() <= data.len() as u64);
}

/// All that a file has, in words, and how it ends.
fn found(data: &[u8], step: usize) -> (Vec<String>, String) {
    let mut reader = Reader::new();
    let (mut all, mut held) = (Vec::new(), Vec::new());
    for piece in data.chunks(step) {
        held.extend_from_slice(piece);
        let mut left = &held[..];
        loop {
            match reader.next(&mut left) {
                Ok(Some(found)) => all.push(format!("{found:?}")),
                Ok(None) => break,
                Err(error) => return (all, error.to_string()),
            }
        }
        let taken = held.len() - left.len();
        held.drain(..taken);
    }
    let end = reader.end(&held);
    (all, format!("{end:?}"))
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut pcapng = Vec::new();
    write::section("weir", "Linux", &mut pcapng);
    let interface = weir_pcap::Interface {
        link_type: weir_pcap::ETHERNET,
        name: Some("eth0".to_owned()),
        speed: Some(100_000_000_000),
        filter: Some("udp".to_owned()),
        ..weir_pcap::Interface::default()
    };
    write::interface(&interface, &mut pcapng);
    let packet = Packet {
        time: 1_764_000_000_000_000_000,
        length: 60,
        data: &[7; 33],
        flags: Some(1),
        dropped: Some(2),
        ..Packet::default()
    };
    write::packet(&packet, &mut pcapng);
    let statistics = weir_pcap::Statistics {
        received: Some(3),
        comment: Some("a word".to_owned()),
        ..weir_pcap::Statistics::default()
    };
    write::statistics(&statistics, &mut pcapng);
    let mut pcap = Vec::new();
    for word in [0xA1B2_3C4D_u32, 4 << 16 | 2, 0, 0, 65_535, 1, 10, 5, 3, 60] {
        pcap.extend_from_slice(&word.to_le_bytes());
    }
    pcap.extend_from_slice(b"abc");
    vec![pcapng, pcap]
}
