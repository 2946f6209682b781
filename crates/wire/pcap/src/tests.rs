//! Blocks that are written are read back, and whatever is read ends in an answer.

use proptest::prelude::*;

use super::*;

/// All that a file has, read in pieces of `piece` bytes at most.
fn read(file: &[u8], piece: usize) -> Result<Vec<String>, PcapError> {
    let mut reader = Reader::new();
    let (mut found, mut held) = (Vec::new(), Vec::new());
    for piece in file.chunks(piece.max(1)) {
        held.extend_from_slice(piece);
        let mut left = &held[..];
        while let Some(next) = reader.next(&mut left)? {
            found.push(format!("{next:?}"));
        }
        let taken = held.len() - left.len();
        held.drain(..taken);
    }
    reader.end(&held)?;
    Ok(found)
}

/// Time, length, data, flags and losses of a packet.
type Parts = (u64, u32, Vec<u8>, Option<u32>, Option<u64>);

fn packets() -> impl Strategy<Value = Vec<Parts>> {
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    let packet = (
        any::<u64>(),
        any::<u32>(),
        data,
        any::<Option<u32>>(),
        any::<Option<u64>>(),
    );
    proptest::collection::vec(packet, 0..20)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        all in packets(), name in any::<Option<String>>(), speed in any::<Option<u64>>(), piece in 1..300_usize,
    ) {
        // Texts end at a byte of 0.
        let text = |text: Option<String>| text.map(|text| text.replace('\0', ""));
        let interface = Interface {
            link_type: ETHERNET,
            snap_length: 1000,
            name: text(name.clone()),
            speed,
            filter: text(name),
            system: Some("Linux".to_owned()),
        };
        let mut file = Vec::new();
        write::section("weir", "Linux", &mut file);
        write::interface(&interface, &mut file);
        let mut expected = vec!["Section".to_owned(), format!("{:?}", Found::Interface(interface))];
        for (time, length, data, flags, dropped) in &all {
            let packet = Packet {
                interface: 0,
                time: *time,
                length: *length,
                data,
                flags: *flags,
                dropped: *dropped,
            };
            let before = file.len();
            write::packet(&packet, &mut file);
            prop_assert_eq!(file.len() - before, write::packet_bytes(&packet));
            expected.push(format!("{:?}", Found::Packet(packet)));
        }
        let statistics = Statistics {
            time: 7,
            received: Some(8),
            interface_dropped: Some(9),
            accepted: Some(10),
            system_dropped: Some(11),
            delivered: Some(12),
            comment: Some("a gap".to_owned()),
            ..Statistics::default()
        };
        write::statistics(&statistics, &mut file);
        expected.push(format!("{:?}", Found::Statistics(statistics)));
        prop_assert_eq!(read(&file, piece), Ok(expected));
        // Nowhere else does it end.
        for end in (1..file.len()).step_by(13) {
            let cut = read(&file[..end], 1 << 20);
            prop_assert!(matches!(cut, Ok(_) | Err(PcapError::Cut { .. } | PcapError::Unknown)), "{cut:?}");
        }
    }

    #[test]
    fn bytes_of_any_kind_end_in_an_answer(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..4_u8) {
        let magic: &[u8] = match kind {
            0 => &[0x0A, 0x0D, 0x0D, 0x0A],
            1 => &[0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0],
            2 => &[0xA1, 0xB2, 0x3C, 0x4D, 0, 2, 0, 4],
            _ => &[],
        };
        let length = magic.len().min(bytes.len());
        bytes[..length].copy_from_slice(&magic[..length]);
        let _ = read(&bytes, 64);
    }

    #[test]
    fn damaged_files_end_in_an_answer(place in 0..2000_usize, value in any::<u8>()) {
        let mut file = Vec::new();
        write::section("weir", "Linux", &mut file);
        write::interface(&Interface::default(), &mut file);
        for number in 0..10_u8 {
            let data = [number; 100];
            write::packet(&Packet { data: &data, length: 100, ..Packet::default() }, &mut file);
        }
        let place = place % file.len();
        file[place] = value;
        let _ = read(&file, 1 << 20);
    }
}

/// A file of pcap: header and one packet, by order of bytes and unit.
fn pcap(magic: u32, is_little: bool, fraction: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut word = |word: u32| {
        file.extend(match is_little {
            true => word.to_le_bytes(),
            false => word.to_be_bytes(),
        });
    };
    word(magic);
    word(if is_little { 4 << 16 | 2 } else { 2 << 16 | 4 });
    for value in [0, 0, 65_535, u32::from(ETHERNET), 10, fraction, 3, 60] {
        word(value);
    }
    file.extend_from_slice(b"abc");
    file
}

#[test]
fn pcap_is_read_in_both_orders_and_units() {
    for (magic, is_little, fraction) in [
        (0xA1B2_C3D4, true, 5),
        (0xA1B2_C3D4, false, 5),
        (0xA1B2_3C4D, true, 5000),
        (0xA1B2_3C4D, false, 5000),
    ] {
        let found = read(&pcap(magic, is_little, fraction), 7).unwrap();
        let interface = Interface {
            link_type: ETHERNET,
            snap_length: 65_535,
            ..Interface::default()
        };
        let packet = Packet {
            time: 10_000_005_000,
            length: 60,
            data: b"abc",
            ..Packet::default()
        };
        let expected = [
            Found::Section,
            Found::Interface(interface),
            Found::Packet(packet),
        ];
        assert_eq!(found, expected.map(|one| format!("{one:?}")));
    }
    let mut later = pcap(0xA1B2_C3D4, true, 5);
    later[4] = 3;
    assert_eq!(read(&later, 100), Err(PcapError::Version(3, 4)));
    assert_eq!(read(b"", 1), Err(PcapError::Unknown));
    assert_eq!(read(b"GIF89a", 1), Err(PcapError::Unknown));
}

/// An interface's description with these options, and a packet of it at `units`.
fn section(options: &[u8], units: u64) -> Vec<u8> {
    let mut file = Vec::new();
    write::section("other", "", &mut file);
    let length = 20 + options.len() as u32;
    for word in [1, length, 1, 0] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    file.extend_from_slice(options);
    file.extend_from_slice(&length.to_le_bytes());
    let packet = Packet {
        time: units,
        ..Packet::default()
    };
    write::packet(&packet, &mut file);
    file
}

#[test]
fn times_are_in_the_interfaces_own_units() {
    let time = |options: &[u8], units| {
        let file = section(options, units);
        let mut reader = Reader::new();
        let mut left = &file[..];
        while let Some(found) = reader.next(&mut left).unwrap() {
            if let Found::Packet(packet) = found {
                return packet.time;
            }
        }
        panic!("there is a packet");
    };
    assert_eq!(time(&[], 7), 7000, "microseconds");
    assert_eq!(time(&[9, 0, 1, 0, 9, 0, 0, 0], 7), 7);
    assert_eq!(time(&[9, 0, 1, 0, 3, 0, 0, 0], 7), 7_000_000);
    assert_eq!(
        time(&[9, 0, 1, 0, 0x81, 0, 0, 0], 3),
        1_500_000_000,
        "halves of a second"
    );
    let offset = [14, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(time(&offset, 7), 2_000_007_000);
    let mut reader = Reader::new();
    let file = section(&[9, 0, 1, 0, 20, 0, 0, 0], 7);
    let mut left = &file[..];
    reader.next(&mut left).unwrap();
    assert!(reader.next(&mut left).is_err(), "finer than 64 bits tell");
}
