//! The verdict table against a model that is written as the specifications' text.

use weir_reservation::{Access, ReservationType, Rights, Standing};

/// Verdict by rules one after another, for every command while a reservation is held.
fn model(kind: ReservationType, access: Access, standing: Standing) -> bool {
    use ReservationType as T;
    let holds = standing == Standing::Holder;
    let is_registered = standing != Standing::Stranger;
    // What is allowed to everybody.
    if access == Access::Exempt || access == Access::Status {
        return true;
    }
    if access == Access::Report || access == Access::Register {
        return true;
    }
    // RESERVE and RELEASE of SPC-2 conflict with a registration, and there is one.
    if access == Access::ReserveUnit || access == Access::ReleaseUnit {
        return false;
    }
    // Commands of registrants.
    if access == Access::Release || access == Access::Preempt || access == Access::Clear {
        return is_registered;
    }
    if access == Access::Reserve {
        return holds;
    }
    if access == Access::Move {
        if kind == T::WriteExclusiveAllRegistrants || kind == T::ExclusiveAccessAllRegistrants {
            return false;
        }
        return holds;
    }
    // Blocks.
    if holds {
        return true;
    }
    let writes = access == Access::Write;
    if kind == T::WriteExclusive {
        return !writes;
    }
    if kind == T::ExclusiveAccess {
        return false;
    }
    if is_registered {
        return true;
    }
    if kind == T::WriteExclusiveRegistrantsOnly || kind == T::WriteExclusiveAllRegistrants {
        return !writes;
    }
    false
}

/// Verdict while a nexus has reserved the unit with RESERVE of SPC-2.
fn unit_model(access: Access, standing: Standing) -> bool {
    if access == Access::Exempt {
        return true;
    }
    if access == Access::ReleaseUnit {
        return true;
    }
    if access == Access::Status
        || access == Access::Read
        || access == Access::Write
        || access == Access::ReserveUnit
    {
        return standing == Standing::Holder;
    }
    false
}

const STANDINGS: [Standing; 3] = [Standing::Stranger, Standing::Registered, Standing::Holder];

#[test]
fn verdicts_are_those_of_the_model() {
    for access in Access::ALL {
        for standing in STANDINGS {
            assert!(Rights::Free.allows(access, standing));
            let verdict = Rights::Unit.allows(access, standing);
            assert_eq!(
                verdict,
                unit_model(access, standing),
                "{access:?} {standing:?}"
            );
            for kind in ReservationType::ALL {
                let verdict = Rights::Held(kind).allows(access, standing);
                let expected = model(kind, access, standing);
                assert_eq!(verdict, expected, "{access:?} {kind:?} {standing:?}");
            }
        }
    }
}

#[test]
fn a_higher_standing_allows_no_less() {
    for access in Access::ALL {
        for kind in ReservationType::ALL {
            let rights = Rights::Held(kind);
            let verdicts = STANDINGS.map(|standing| rights.allows(access, standing));
            assert!(verdicts.is_sorted(), "{access:?} {kind:?}");
        }
    }
}

#[test]
fn types_have_the_numbers_of_both_protocols() {
    let nvme = ReservationType::ALL.map(ReservationType::to_nvme);
    assert_eq!(nvme, [1, 2, 3, 4, 5, 6]);
    let scsi = ReservationType::ALL.map(ReservationType::to_scsi);
    assert_eq!(scsi, [1, 3, 5, 6, 7, 8]);
    for value in 0..=u8::MAX {
        let from_nvme = ReservationType::from_nvme(value).map(ReservationType::to_nvme);
        assert_eq!(from_nvme, nvme.contains(&value).then_some(value));
        let from_scsi = ReservationType::from_scsi(value).map(ReservationType::to_scsi);
        assert_eq!(from_scsi, scsi.contains(&value).then_some(value));
    }
}
