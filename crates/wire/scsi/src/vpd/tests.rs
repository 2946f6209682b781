//! Tests of vital product data.

use proptest::prelude::*;

use super::*;

const PORT: Port<'static> = Port {
    target: "iqn.2026-01.org.example:disks",
    portal_group: 1,
    relative: 2,
    port_group: 3,
};

#[test]
fn pages_have_a_header_with_their_length() {
    let limits = BlockLimits::default().encode();
    let pages = [
        supported_pages(&[0x00, 0x80]),
        serial_number("0123"),
        device_identification(*b"WEIR    ", "0123", &naa([9; 16]), &PORT),
        extended_inquiry(true),
        mode_page_policy(),
        scsi_ports(&PORT),
        limits,
        block_characteristics(),
        Provisioning::default().encode(),
    ];
    let codes = [0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0xb0, 0xb1, 0xb2];
    for (bytes, code) in pages.iter().zip(codes) {
        let page = parse_page(bytes).expect("a page");
        assert_eq!((bytes[0], page), (0, (code, &bytes[4..])));
        assert_eq!(parse_page(&bytes[..5]), Ok((code, &bytes[4..5])));
    }
    assert!(parse_page(&[0, 0x80, 0]).is_err());
    assert_eq!(pages[3].len(), 64);
    assert_eq!(pages[3][4..8], [0, 7, 1, 1]);
    assert_eq!(pages[7][4..6], [0, 1]);
}

#[test]
fn an_identifier_is_locally_administered_and_as_different_as_identities() {
    let bytes = naa([0xff; 16]);
    assert_eq!(bytes[..2], [0x6f, 0xff]);
    let bytes = naa([0; 16]);
    assert_eq!(bytes[..3], [0x60, 0x20, 0]);
    let mut other = [0; 16];
    other[15] = 1;
    assert_ne!(naa(other), bytes);
}

#[test]
fn a_unit_is_designated_with_its_port_and_target() {
    let naa = naa([9; 16]);
    let bytes = device_identification(*b"WEIR    ", "0123", &naa, &PORT);
    let (_, data) = parse_page(&bytes).expect("a page");
    let designators = designators(data);
    let kinds: Vec<_> = designators
        .iter()
        .map(|one| (one.association, one.designator_type, one.code_set))
        .collect();
    assert_eq!(
        kinds,
        [
            (0, 3, 1),
            (0, 1, 2),
            (1, 4, 1),
            (1, 5, 1),
            (1, 8, 3),
            (2, 8, 3)
        ]
    );
    assert_eq!(designators[0].value, naa);
    let of_unit = designators.iter().filter(|one| one.is_of_unit());
    assert_eq!(of_unit.count(), 2);
    assert_eq!(designators[1].value, b"WEIR    0123");
    assert_eq!(designators[2].value, [0, 0, 0, 2]);
    assert_eq!(designators[3].value, [0, 0, 0, 3]);
    let name = b"iqn.2026-01.org.example:disks,t,0x0001";
    assert_eq!(&designators[4].value[..name.len()], name);
    for designator in &designators[4..] {
        assert!(designator.value.len().is_multiple_of(4));
        assert_eq!(designator.value.last(), Some(&0));
    }
    // PIV and the protocol, which only ports and targets have.
    assert_eq!((data[0] >> 4, data[1] >> 7), (0, 0));
    let port = 4 + 16 + 4 + 12;
    assert_eq!((data[port] >> 4, data[port + 1] >> 7), (5, 1));
}

#[test]
fn ports_have_their_names() {
    let bytes = scsi_ports(&PORT);
    assert_eq!(bytes[4..8], [0, 0, 0, 2]);
    let length = usize::from(u16_at(&bytes, 14));
    assert_eq!(bytes.len(), 16 + length);
    let designators = designators(&bytes[16..]);
    assert_eq!((designators.len(), designators[0].association), (1, 1));
}

proptest! {
    #[test]
    fn block_limits_come_back(
        write_same_not_zero: bool,
        compare_and_write_max: u8,
        granularity: u16,
        transfer_max: u32,
        transfer_optimal: u32,
        unmap_max: u32,
        unmap_descriptors_max: u32,
        unmap_granularity: u32,
        unmap_alignment in proptest::option::of(0_u32..1 << 31),
        write_same_max: u64,
    ) {
        let limits = BlockLimits {
            write_same_not_zero,
            compare_and_write_max,
            granularity,
            transfer_max,
            transfer_optimal,
            unmap_max,
            unmap_descriptors_max,
            unmap_granularity,
            unmap_alignment,
            write_same_max,
        };
        let bytes = limits.encode();
        let (_, data) = parse_page(&bytes).expect("a page");
        prop_assert_eq!(BlockLimits::parse(data), Ok(limits));
        let old = BlockLimits { granularity, transfer_max, transfer_optimal, ..BlockLimits::default() };
        let cut = BlockLimits { write_same_not_zero: false, compare_and_write_max: 0, ..BlockLimits::parse(&data[..12]).expect("limits") };
        prop_assert_eq!(cut, old);
        prop_assert!(BlockLimits::parse(&data[..11]).is_err());
    }

    #[test]
    fn provisioning_comes_back(unmap: bool, write_same: bool, reads_zeroes: bool, thin: bool) {
        let provisioning = Provisioning { unmap, write_same, reads_zeroes, thin };
        let bytes = provisioning.encode();
        let (_, data) = parse_page(&bytes).expect("a page");
        prop_assert_eq!(Provisioning::parse(data), Ok(provisioning));
    }

    #[test]
    fn any_bytes_are_designators_as_far_as_they_go(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let length: usize = designators(&bytes).iter().map(|one| 4 + one.value.len()).sum();
        prop_assert!(length <= bytes.len());
    }
}
