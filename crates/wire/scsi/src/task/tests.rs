//! Tests of task management functions.

use proptest::prelude::*;

use super::*;

#[test]
fn functions_are_the_bits_that_the_standard_says() {
    let functions = TaskFunctions {
        abort_task: true,
        logical_unit_reset: true,
        i_t_nexus_reset: true,
        ..TaskFunctions::default()
    };
    assert_eq!(functions.encode(), [0x88, 0x01, 0, 0]);
    let timeouts = TaskTimeouts { long: 7, short: 8 };
    let bytes = functions.encode_extended(Some(timeouts));
    assert_eq!(bytes[..8], [0x88, 0x01, 0, 12, 1, 0, 0, 0]);
    assert_eq!(bytes[8..], [0, 0, 0, 7, 0, 0, 0, 8]);
    assert_eq!(
        TaskFunctions::parse(&bytes),
        Ok((functions, Some(timeouts)))
    );
    let bytes = functions.encode_extended(None);
    assert_eq!(TaskFunctions::parse(&bytes), Ok((functions, None)));
}

proptest! {
    #[test]
    fn functions_come_back(first: u8, second in 0_u8..8) {
        let (functions, _) = TaskFunctions::parse(&[first, second, 0, 0]).expect("functions");
        prop_assert_eq!(functions.encode(), [first & 0xfe, second, 0, 0]);
    }

    #[test]
    fn any_bytes_are_functions_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
        prop_assert_eq!(TaskFunctions::parse(&bytes).is_ok(), bytes.len() >= BASIC_LENGTH);
    }
}
