//! Tests of target port groups.

use proptest::prelude::*;

use super::*;

fn group() -> PortGroup {
    PortGroup {
        group: 0x0102,
        state: AccessState::ActiveNonOptimized,
        preferred: true,
        supported: SupportedStates {
            active_optimized: true,
            active_non_optimized: true,
            ..SupportedStates::default()
        },
        change: StateChange::Implicit,
        ports: vec![1, 0x0203],
    }
}

#[test]
fn groups_have_their_fields_where_the_standard_says() {
    let bytes = report_groups(&[group()], GroupsFormat::LengthOnly);
    assert_eq!(bytes[..4], [0, 0, 0, 16]);
    assert_eq!(bytes[4..12], [0x81, 0x03, 1, 2, 0, 2, 0, 2]);
    assert_eq!(bytes[12..], [0, 0, 0, 1, 0, 0, 2, 3]);
    let extended = GroupsFormat::Extended {
        implicit_transition_seconds: 9,
    };
    let bytes = report_groups(&[group()], extended);
    assert_eq!(bytes[..8], [0, 0, 0, 20, 0x10, 9, 0, 0]);
    assert_eq!(parse_groups(&bytes, true), Ok(vec![group()]));
}

#[test]
fn groups_that_are_cut_are_left_out() {
    let bytes = report_groups(&[group(), group()], GroupsFormat::LengthOnly);
    assert_eq!(parse_groups(&bytes, false).expect("groups").len(), 2);
    let cut = parse_groups(&bytes[..bytes.len() - 1], false);
    assert_eq!(cut, Ok(vec![group()]));
    assert!(parse_groups(&bytes[..3], false).is_err());
}

proptest! {
    #[test]
    fn states_come_back(byte: u8, change: u8) {
        prop_assert_eq!(AccessState::from_value(byte).value(), byte);
        prop_assert_eq!(StateChange::from_value(change).value(), change);
        let states = SupportedStates::decode(byte);
        prop_assert_eq!(states.encode(), byte & !0x20);
    }

    #[test]
    fn any_bytes_are_groups_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80), extended: bool) {
        let _ = parse_groups(&bytes, extended);
    }
}
