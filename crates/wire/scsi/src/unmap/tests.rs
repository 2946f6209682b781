//! Tests of UNMAP lists.

use proptest::prelude::*;

use super::*;

const RANGES: [UnmapDescriptor; 2] = [
    UnmapDescriptor {
        lba: 0x0102_0304_0506_0708,
        blocks: 9,
    },
    UnmapDescriptor { lba: 1, blocks: 0 },
];

#[test]
fn a_list_has_its_fields_where_the_standard_says() {
    let bytes = encode(&RANGES);
    assert_eq!(bytes[..8], [0, 38, 0, 32, 0, 0, 0, 0]);
    assert_eq!(
        bytes[8..24],
        [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 0]
    );
}

#[test]
fn descriptors_end_where_any_of_the_lengths_does() {
    let whole = encode(&RANGES);
    let count = |bytes: &[u8]| UnmapList::parse(bytes).expect("a list").len();
    assert_eq!(count(&whole), 2);
    assert_eq!(count(&whole[..39]), 1);
    let mut shorter = whole.clone();
    shorter[3] = 31;
    assert_eq!(count(&shorter), 1);
    let mut shorter = whole.clone();
    shorter[1] = 22;
    assert_eq!(count(&shorter), 1);
    assert_eq!(count(&[]), 0);
    for length in 1..8 {
        assert_eq!(UnmapList::parse(&whole[..length]), Err(UnmapError(length)));
    }
}

proptest! {
    #[test]
    fn ranges_come_back(ranges in proptest::collection::vec((any::<u64>(), any::<u32>()), 0..9)) {
        let ranges: Vec<_> = ranges.iter().map(|&(lba, blocks)| UnmapDescriptor { lba, blocks }).collect();
        let bytes = encode(&ranges);
        let list = UnmapList::parse(&bytes).expect("a list");
        prop_assert_eq!(list.is_empty(), ranges.is_empty());
        prop_assert_eq!(list.descriptors().collect::<Vec<_>>(), ranges);
    }

    #[test]
    fn any_bytes_are_a_list_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(list) = UnmapList::parse(&bytes) {
            prop_assert!(list.len() * UNMAP_DESCRIPTOR_LENGTH <= bytes.len());
        }
    }
}
