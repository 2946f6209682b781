//! Tests of sense data.

use proptest::prelude::*;

use super::*;

#[test]
fn fixed_format_has_its_fields_where_the_standard_says() {
    let sense = Sense::read_error(0x0102_0304);
    let bytes = sense.encode(SenseFormat::Fixed);
    assert_eq!(bytes.len(), 18);
    assert_eq!(bytes[..8], [0xf0, 0, 0x03, 1, 2, 3, 4, 10]);
    assert_eq!(bytes[12..14], [0x11, 0x00]);
    let pointer = FieldPointer::cdb_bit(1, 4);
    let bytes = Sense::invalid_field(pointer).encode(SenseFormat::Fixed);
    assert_eq!((bytes[0], bytes[2]), (0x70, 0x05));
    assert_eq!(bytes[12..18], [0x24, 0x00, 0, 0xcc, 0, 1]);
}

#[test]
fn descriptor_format_has_its_fields_where_the_standard_says() {
    let bytes = Sense::read_error(0x0102_0304_0506).encode(SenseFormat::Descriptor);
    assert_eq!(bytes[..8], [0x72, 0x03, 0x11, 0x00, 0, 0, 0, 12]);
    assert_eq!(bytes[8..], [0, 10, 0x80, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_fixed_format_has_no_room_for_is_left_out() {
    let bytes = Sense::read_error(1 << 32).encode(SenseFormat::Fixed);
    assert_eq!(bytes[0], 0x70, "VALID is zero");
    let parsed = Sense::parse(&bytes).expect("sense data");
    assert_eq!(parsed.information, None);
    assert_eq!(parsed.additional, AdditionalSense::UNRECOVERED_READ_ERROR);
}

#[test]
fn codes_have_names() {
    let sense = Sense::unit_not_supported();
    assert_eq!(sense.additional.to_string(), "LOGICAL UNIT NOT SUPPORTED");
    let unknown = AdditionalSense {
        code: 0xab,
        qualifier: 0xcd,
    };
    assert_eq!(unknown.to_string(), "abh/cdh");
    let mut seen = std::collections::HashSet::new();
    assert!(AdditionalSense::NAMED.iter().all(|code| seen.insert(*code)));
}

#[test]
fn bytes_that_are_no_sense_data_are_refused() {
    assert_eq!(Sense::parse(&[]), Err(SenseError::TooShort(0)));
    assert_eq!(
        Sense::parse(&[0x7f; 18]),
        Err(SenseError::ResponseCode(0x7f))
    );
}

fn specific() -> impl Strategy<Value = Option<KeySpecific>> {
    let bit = proptest::option::of(0_u8..8);
    let field = (any::<bool>(), any::<u16>(), bit)
        .prop_map(|(in_cdb, byte, bit)| KeySpecific::Field(FieldPointer { in_cdb, byte, bit }));
    proptest::option::of(field)
}

proptest! {
    #[test]
    fn sense_data_comes_back(
        code: u8,
        qualifier: u8,
        information in proptest::option::of(any::<u64>()),
        specific in specific(),
        deferred: bool,
    ) {
        let sense = Sense {
            key: SenseKey::IllegalRequest,
            additional: AdditionalSense { code, qualifier },
            information,
            command_specific: None,
            specific,
            deferred,
        };
        prop_assert_eq!(Sense::parse(&sense.encode(SenseFormat::Descriptor)), Ok(sense));
        let short = Sense { information: information.filter(|&one| u32::try_from(one).is_ok()), ..sense };
        prop_assert_eq!(Sense::parse(&sense.encode(SenseFormat::Fixed)), Ok(short));
    }

    #[test]
    fn any_bytes_are_sense_data_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), format in 0x70_u8..0x74) {
        let _ = Sense::parse(&bytes);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = format;
        }
        let _ = Sense::parse(&bytes);
    }

    #[test]
    fn values_of_status_and_key_come_back(byte: u8) {
        prop_assert_eq!(Status::from_value(byte).value(), byte);
        prop_assert_eq!(SenseKey::from_low_bits(byte) as u8, byte & 0xf);
    }
}
