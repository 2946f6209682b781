//! Tests of copy lists and operating parameters.

use proptest::prelude::*;

use super::*;

const BOUNDS: CopyBounds = CopyBounds {
    targets: 4,
    segments: 3,
};
const NAA: [u8; 16] = *b"\x60bcdefghijklmnop";
const TARGET: CopyTarget<'static> = CopyTarget {
    code_set: 1,
    designator_type: 3,
    association: 0,
    designator: &NAA,
    block_length: 4096,
};
const SEGMENT: CopySegment = CopySegment {
    source: 0,
    destination: 1,
    blocks: 0x1234,
    counts_destination: false,
    source_lba: 0x0102_0304_0506_0708,
    destination_lba: 9,
};

fn list() -> CopyList<'static> {
    CopyList {
        targets: vec![TARGET, TARGET],
        segments: vec![SEGMENT],
    }
}

fn sense(bytes: &[u8]) -> AdditionalSense {
    let error = CopyList::parse(bytes, BOUNDS).expect_err("it is refused");
    Sense::from(error).additional
}

#[test]
fn a_list_has_its_fields_where_the_standard_says() {
    let bytes = list().encode();
    assert_eq!(bytes[2..4], [0, 64]);
    assert_eq!(bytes[8..12], [0, 0, 0, 28]);
    let target = &bytes[16..48];
    assert_eq!(target[..8], [0xe4, 0, 0, 0, 1, 3, 0, 16]);
    assert_eq!(target[8..24], NAA);
    assert_eq!(target[28..32], [0, 0, 0x10, 0]);
    let segment = &bytes[80..];
    assert_eq!(segment[..8], [2, 0, 0, 0x18, 0, 0, 0, 1]);
    assert_eq!(segment[8..12], [0, 0, 0x12, 0x34]);
    assert_eq!(segment[12..20], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(segment[20..28], [0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(CopyList::parse(&bytes, BOUNDS), Ok(list()));
}

#[test]
fn no_bytes_copy_nothing() {
    let empty = CopyList::parse(&[], BOUNDS).expect("a list");
    assert!(empty.targets.is_empty() && empty.segments.is_empty());
}

#[test]
fn a_list_that_is_cut_is_refused_with_its_length() {
    let whole = list().encode();
    for length in 1..whole.len() {
        let error = CopyList::parse(&whole[..length], BOUNDS);
        assert_eq!(error, Err(CopyError::Length(length)));
    }
    assert_eq!(
        sense(&whole[..40]),
        AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
    );
}

#[test]
fn lists_have_bounds() {
    let mut many = list();
    many.targets = vec![TARGET; 5];
    let expected = AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS;
    assert_eq!(sense(&many.encode()), expected);
    let mut many = list();
    many.segments = vec![SEGMENT; 4];
    let expected = AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS;
    assert_eq!(sense(&many.encode()), expected);
    many.segments.pop();
    many.targets = vec![TARGET; 4];
    let bytes = many.encode();
    assert_eq!(bytes.len(), BOUNDS.list_length());
    assert_eq!(CopyList::parse(&bytes, BOUNDS), Ok(many));
}

#[test]
fn what_is_not_known_is_refused() {
    let whole = list().encode();
    let changed = |index: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[index] = value;
        sense(&bytes)
    };
    let target = AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE;
    assert_eq!(changed(48, 0xe0), target);
    let segment = AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE;
    assert_eq!(changed(80, 0x00), segment);
    assert_eq!(changed(15, 1), AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED);
    // Lengths that hold no whole number of descriptors.
    let field = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
    assert_eq!(changed(3, 63), field);
    assert_eq!(changed(11, 27), field);
}

#[test]
fn operating_parameters_tell_the_descriptors() {
    let parameters = OperatingParameters {
        bounds: BOUNDS,
        segment_length_max: 0x0102_0304,
        concurrent_copies_total: 5,
        concurrent_copies_max: 6,
        granularity_exponent: 9,
    };
    let bytes = parameters.encode();
    assert_eq!(bytes[..5], [0, 0, 0, 42, 1]);
    assert_eq!(bytes[8..12], [0, 4, 0, 3]);
    assert_eq!(bytes[12..16], 212_u32.to_be_bytes());
    assert_eq!(bytes[43..], [2, 0x02, 0xe4]);
    assert_eq!(OperatingParameters::parse(&bytes), Ok(parameters));
    assert!(OperatingParameters::parse(&bytes[..43]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_list_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(list) = CopyList::parse(&bytes, BOUNDS) {
            prop_assert!(list.targets.len() <= 4 && list.segments.len() <= 3);
        }
    }

    #[test]
    fn segments_come_back(source: u16, destination: u16, blocks: u16, counts_destination: bool, source_lba: u64, destination_lba: u64) {
        let segment = CopySegment { source, destination, blocks, counts_destination, source_lba, destination_lba };
        let list = CopyList { targets: vec![TARGET], segments: vec![segment] };
        let bytes = list.encode();
        prop_assert_eq!(CopyList::parse(&bytes, BOUNDS), Ok(list));
    }
}
