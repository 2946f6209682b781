//! Tests of LUNs and their lists.

use proptest::prelude::*;

use super::*;

#[test]
fn numbers_are_in_the_addressing_that_initiators_expect() {
    assert_eq!(Lun::Unit(0).encode(), [0; 8]);
    assert_eq!(Lun::Unit(255).encode()[..2], [0, 255]);
    assert_eq!(Lun::Unit(256).encode()[..2], [0x41, 0]);
    assert_eq!(Lun::Unit(u16::MAX).encode()[..2], [0x7f, 0xff]);
    assert_eq!(Lun::ReportLuns.encode(), [0xc1, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn either_addressing_is_read_for_any_number() {
    assert_eq!(Lun::parse(&[0x40, 7, 0, 0, 0, 0, 0, 0]), Ok(Lun::Unit(7)));
    assert_eq!(Lun::parse(&[0, 7, 0, 0, 0, 0, 0, 0]), Ok(Lun::Unit(7)));
    // Another bus, a second level, logical unit addressing, another well-known unit.
    for bytes in [
        [1, 7, 0, 0, 0, 0, 0, 0],
        [0, 7, 0, 1, 0, 0, 0, 0],
        [0x80, 7, 0, 0, 0, 0, 0, 0],
        [0xc1, 2, 0, 0, 0, 0, 0, 0],
    ] {
        let error = Lun::parse(&bytes).expect_err("it addresses nothing");
        assert_eq!(error, LunError(u64::from_be_bytes(bytes)));
    }
}

#[test]
fn a_list_that_is_cut_keeps_the_length_of_all() {
    let all = report_luns(&[Lun::Unit(0), Lun::Unit(300)]);
    assert_eq!(all[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
    let whole = ReportedLuns::parse(&all).expect("a list");
    assert_eq!(whole.luns, [Lun::Unit(0).encode(), Lun::Unit(300).encode()]);
    let cut = ReportedLuns::parse(&all[..23]).expect("a list");
    assert_eq!((cut.list_length, cut.luns.len()), (16, 1));
    assert!(ReportedLuns::parse(&all[..7]).is_err());
}

proptest! {
    #[test]
    fn numbers_come_back(number in 0..=Lun::NUMBER_MAX) {
        prop_assert_eq!(Lun::parse(&Lun::Unit(number).encode()), Ok(Lun::Unit(number)));
    }
}
