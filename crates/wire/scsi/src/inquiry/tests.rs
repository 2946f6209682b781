//! Tests of INQUIRY data.

use super::*;

fn inquiry() -> Inquiry {
    let text = (*b"WEIR    ", *b"VOLUME          ", *b"0.1 ");
    Inquiry {
        implicit_port_groups: true,
        third_party_copy: true,
        ..Inquiry::block_device(text.0, text.1, text.2)
    }
}

#[test]
fn data_has_its_fields_where_the_standard_says() {
    let bytes = inquiry().encode();
    assert_eq!(bytes[..8], [0x00, 0, 6, 0x12, 91, 0x18, 0, 0x02]);
    assert_eq!(&bytes[8..36], b"WEIR    VOLUME          0.1 ");
    assert_eq!(
        bytes[58..68],
        [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60, 0, 0]
    );
    assert_eq!(Inquiry::parse(&bytes), Ok(inquiry()));
}

#[test]
fn a_unit_that_is_not_there_says_so() {
    let bytes = inquiry().absent().encode();
    assert_eq!((bytes[0], bytes[5]), (0x7f, 0));
    let parsed = Inquiry::parse(&bytes).expect("inquiry data");
    assert_eq!(parsed.peripheral, Peripheral::ABSENT);
    assert_eq!(Peripheral::WELL_KNOWN.encode(), 0x1e);
}

#[test]
fn data_that_is_cut_has_fewer_version_descriptors() {
    let bytes = inquiry().encode();
    let cut = Inquiry::parse(&bytes[..36]).expect("inquiry data");
    assert_eq!(cut.version_descriptors, [VersionDescriptor::None; 8]);
    assert_eq!(cut.product, inquiry().product);
    assert!(Inquiry::parse(&bytes[..35]).is_err());
}
