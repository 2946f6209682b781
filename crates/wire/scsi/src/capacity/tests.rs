//! Tests of READ CAPACITY data.

use proptest::prelude::*;

use super::*;

#[test]
fn a_capacity_has_its_fields_where_the_standard_says() {
    let capacity = Capacity {
        last_lba: 0x0102_0304_0506,
        block_length: 512,
        physical_block_exponent: 3,
        lowest_aligned_lba: 0x0102,
        provisioning_managed: true,
        unmapped_reads_zeroes: true,
        has_protection: true,
    };
    assert_eq!(capacity.encode_10(), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    let bytes = capacity.encode_16();
    assert_eq!(bytes[..12], [0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 2, 0]);
    assert_eq!(bytes[12..16], [1, 3, 0xc1, 2]);
    assert!(bytes[16..].iter().all(|&byte| byte == 0));
}

proptest! {
    #[test]
    fn capacities_come_back(
        last_lba: u64,
        block_length: u32,
        physical_block_exponent in 0_u8..16,
        lowest_aligned_lba in 0_u16..0x4000,
        provisioning_managed: bool,
        unmapped_reads_zeroes: bool,
        has_protection: bool,
    ) {
        let capacity = Capacity {
            last_lba,
            block_length,
            physical_block_exponent,
            lowest_aligned_lba,
            provisioning_managed,
            unmapped_reads_zeroes,
            has_protection,
        };
        prop_assert_eq!(Capacity::parse_16(&capacity.encode_16()), Ok(capacity));
        prop_assert!(Capacity::parse_16(&capacity.encode_16()[..31]).is_err());
        let short = Capacity::parse_10(&capacity.encode_10()).expect("a capacity");
        prop_assert_eq!(short.last_lba, last_lba.min(u32::MAX.into()));
        prop_assert!(Capacity::parse_10(&capacity.encode_10()[..7]).is_err());
    }
}
