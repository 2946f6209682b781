//! Tests of mode parameters.

use proptest::prelude::*;

use super::*;

const MODE: Mode = Mode {
    write_protected: false,
    write_cache: true,
    blocks: 0x1_0000_0001,
    block_length: 4096,
};

fn asked(page: u8) -> ModeSense {
    ModeSense {
        is_long: false,
        no_descriptor: true,
        long_lba: false,
        control: PageControl::Current,
        page,
        subpage: 0,
        allocation_length: 255,
    }
}

#[test]
fn one_page_comes_behind_its_header() {
    let data = MODE.sense(&asked(CACHING)).expect("a page");
    assert_eq!(data.len(), 24);
    assert_eq!(data[..4], [23, 0, 0x10, 0]);
    assert_eq!(data[4..7], [0x08, 18, 0x04]);
    let protected = Mode {
        write_protected: true,
        ..MODE
    };
    let data = protected.sense(&asked(CONTROL)).expect("a page");
    assert_eq!(data[2], 0x90);
    assert_eq!(data[4..9], [0x0a, 10, 0x20, 0x10, 0x08]);
}

#[test]
fn all_pages_come_in_order_behind_a_block_descriptor() {
    let long = ModeSense {
        is_long: true,
        no_descriptor: false,
        long_lba: true,
        subpage: ALL_SUBPAGES,
        ..asked(ALL_PAGES)
    };
    let data = MODE.sense(&long).expect("pages");
    assert_eq!(usize::from(u16_at(&data, 0)), data.len() - 2);
    assert_eq!(data[4..8], [1, 0, 0, 16]);
    assert_eq!(data[8..16], MODE.blocks.to_be_bytes());
    assert_eq!(data[20..24], 4096_u32.to_be_bytes());
    let mut rest = &data[24..];
    let mut codes = Vec::new();
    while let Some(&code) = rest.first() {
        codes.push(code);
        rest = &rest[2 + usize::from(rest[1])..];
    }
    assert_eq!(codes, [0x01, 0x08, 0x0a, 0x1c]);
    // Four bytes have no room for the number of blocks.
    let short = ModeSense {
        no_descriptor: false,
        ..asked(CONTROL)
    };
    let data = MODE.sense(&short).expect("a page");
    assert_eq!(data[3..12], [8, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]);
}

#[test]
fn nothing_can_be_changed_and_nothing_is_saved() {
    let changeable = ModeSense {
        control: PageControl::Changeable,
        ..asked(CONTROL)
    };
    let data = MODE.sense(&changeable).expect("a page");
    assert_eq!(data[4..6], [0x0a, 10]);
    assert!(data[6..].iter().all(|&byte| byte == 0));
    let saved = ModeSense {
        control: PageControl::Saved,
        ..asked(CONTROL)
    };
    let sense = MODE.sense(&saved).expect_err("nothing is saved");
    let expected = AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED;
    assert_eq!(sense.additional, expected);
}

#[test]
fn pages_that_are_not_there_are_refused() {
    let sense = MODE.sense(&asked(0x02)).expect_err("there is none");
    assert_eq!(sense, Sense::invalid_field(FieldPointer::cdb_bit(2, 5)));
    let subpage = ModeSense {
        subpage: 1,
        ..asked(CONTROL)
    };
    let sense = MODE.sense(&subpage).expect_err("there is none");
    assert_eq!(sense, Sense::invalid_field(FieldPointer::cdb(3)));
}

/// What MODE SENSE yields, as MODE SELECT takes it.
fn list(is_long: bool, page: u8) -> Vec<u8> {
    let asked = ModeSense {
        is_long,
        no_descriptor: false,
        ..asked(page)
    };
    let mut list = MODE.sense(&asked).expect("pages");
    let lengths = if is_long { 2 } else { 1 };
    list[..lengths].fill(0);
    list
}

#[test]
fn the_values_that_there_are_can_be_set() {
    for is_long in [false, true] {
        for page in [CACHING, CONTROL, ALL_PAGES] {
            let list = list(is_long, page);
            assert_eq!(MODE.select(&list, is_long), Ok(()));
            for length in 1..list.len() {
                let cut = MODE.select(&list[..length], is_long);
                // What ends behind a whole page, or behind the descriptor, is whole.
                let is_whole = cut.is_ok();
                assert!(
                    is_whole || cut == Err(ModeError::Length(length)),
                    "{length}"
                );
            }
        }
    }
    assert_eq!(MODE.select(&[], false), Ok(()));
}

#[test]
fn others_are_refused_with_their_place() {
    let whole = list(false, CONTROL);
    for byte in 13..whole.len() {
        let mut changed = whole.clone();
        changed[byte] ^= 0x02;
        let error = MODE
            .select(&changed, false)
            .expect_err("it would change something");
        assert_eq!(error, ModeError::Field(byte));
        let pointer = FieldPointer::list(byte as u16);
        assert_eq!(Sense::from(error), Sense::invalid_field(pointer));
    }
    let mut changed = whole.clone();
    changed[12] = 0x02;
    assert_eq!(MODE.select(&changed, false), Err(ModeError::Field(12)));
    let mut changed = whole;
    changed[10] = 2;
    assert_eq!(MODE.select(&changed, false), Err(ModeError::Field(4)));
}

/// MODE SENSE data of a unit in either length.
fn sensed(mode: &Mode, asked: ModeSense) -> SensedMode {
    let data = mode.sense(&asked).expect("pages");
    SensedMode::parse(&data, asked.is_long).expect("whole data")
}

#[test]
fn an_initiator_reads_what_a_target_tells() {
    for (write_protected, write_cache, is_long, no_descriptor) in [
        (false, true, false, true),
        (true, false, false, false),
        (false, false, true, false),
        (true, true, true, true),
    ] {
        let mode = Mode {
            write_protected,
            write_cache,
            ..MODE
        };
        for (page, told) in [
            (CACHING, Some(write_cache)),
            (ALL_PAGES, Some(write_cache)),
            (CONTROL, None),
        ] {
            let asked = ModeSense {
                is_long,
                no_descriptor,
                long_lba: is_long,
                ..asked(page)
            };
            let expected = SensedMode {
                write_protected,
                force_unit_access: true,
                write_cache: told,
            };
            assert_eq!(sensed(&mode, asked), expected);
        }
    }
}

#[test]
fn pages_are_read_behind_subpages_and_as_far_as_they_go() {
    // A subpage of the control page, and then the caching page with PS.
    let mut data = vec![0, 0, 0x80, 0, 0x4a, 1, 0, 2, 9, 9, 0x88, 2, 0x04, 0];
    data[0] = data.len() as u8 - 1;
    let mode = SensedMode::parse(&data, false).expect("whole data");
    assert_eq!((mode.write_protected, mode.write_cache), (true, Some(true)));
    assert!(!mode.force_unit_access);
    for length in 4..data.len() {
        let cut = SensedMode::parse(&data[..length], false).expect("a header");
        assert_eq!(cut.write_cache, None, "{length}");
    }
    // The data is shorter than what was received.
    data[0] = 3;
    let mode = SensedMode::parse(&data, false).expect("a header");
    assert_eq!(mode.write_cache, None);
    assert!(SensedMode::parse(&data[..3], false).is_err());
    assert!(SensedMode::parse(&data[..7], true).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_mode_data_or_too_short(bytes in proptest::collection::vec(any::<u8>(), 0..80), is_long: bool) {
        let header_length = if is_long { LONG_HEADER_LENGTH } else { SHORT_HEADER_LENGTH };
        prop_assert_eq!(SensedMode::parse(&bytes, is_long).is_ok(), bytes.len() >= header_length);
    }

    #[test]
    fn any_bytes_are_a_list_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80), is_long: bool) {
        let _ = MODE.select(&bytes, is_long);
    }
}
