//! Tests of reservation commands and of what they carry.

use proptest::prelude::*;

use super::*;
use crate::feature::HostIdentifier;
use crate::nqn::HostId;
use crate::status::Status;
use crate::wire::check::round_trip;

fn entry(cdw10: u32) -> Sqe {
    Sqe {
        cdw10,
        ..Sqe::default()
    }
}

#[test]
fn register_has_its_fields_where_the_specification_says() {
    let register = ReservationRegister {
        action: RegisterAction::Replace,
        ignores_existing_key: true,
        persistence: Some(true),
    };
    assert_eq!(register.to_cdw10(), 0xc000_000a);
    for (cdw10, persistence) in [
        (0, None),
        (0x8000_0000, Some(false)),
        (0xc000_0000, Some(true)),
    ] {
        let register = ReservationRegister::from_sqe(&entry(cdw10)).expect("fields");
        assert_eq!(register.persistence, persistence);
        assert_eq!(register.action, RegisterAction::Register);
    }
    let keys = ReservationRegisterKeys { current: 1, new: 2 };
    let expected = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(keys.encode(), expected);
}

#[test]
fn acquire_and_release_have_their_fields_where_the_specification_says() {
    let acquire = ReservationAcquire {
        action: AcquireAction::PreemptAndAbort,
        kind: 6,
    };
    assert_eq!(acquire.to_cdw10(), 0x602);
    let release = ReservationRelease {
        action: ReleaseAction::Clear,
        kind: 3,
    };
    assert_eq!(release.to_cdw10(), 0x301);
    let keys = ReservationAcquireKeys {
        current: 1,
        preempted: 2,
    };
    let expected = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(keys.encode(), expected);
    let key = ReservationReleaseKey { current: 3 };
    assert_eq!(key.encode(), [3, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn reserved_values_are_refused_by_name() {
    let register = |cdw10| ReservationRegister::from_sqe(&entry(cdw10)).err();
    let acquire = |cdw10| ReservationAcquire::from_sqe(&entry(cdw10)).err();
    let release = |cdw10| ReservationRelease::from_sqe(&entry(cdw10)).err();
    for action in 0..8 {
        let named = |field| Some(reserved(field, action));
        let is_reserved = action > 2;
        assert_eq!(register(action), named("RREGA").filter(|_| is_reserved));
        assert_eq!(acquire(action), named("RACQA").filter(|_| is_reserved));
        assert_eq!(release(action), named("RRELA").filter(|_| action > 1));
    }
    let error = register(0x4000_0000);
    assert_eq!(error, Some(reserved("CPTPL", 1)));
    // IEKEY is for Reservation Register alone.
    assert_eq!(register(1 << 3), None);
    assert_eq!(acquire(1 << 3), Some(reserved("IEKEY", 1)));
    assert_eq!(release(1 << 3), Some(reserved("IEKEY", 1)));
    let invalid = Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry();
    let status = error.map(|error| (error.status(), error.byte()));
    assert_eq!(status, Some((invalid, 40)));
}

#[test]
fn a_report_says_how_much_is_asked_for_and_in_which_form() {
    let sqe = Sqe {
        cdw10: 1023,
        cdw11: 1,
        ..Sqe::default()
    };
    let report = ReservationReportCommand::from_sqe(&sqe);
    assert_eq!((report.length(), report.is_extended), (4096, true));
    assert_eq!(report.to_dwords(), [1023, 1]);
    let all = ReservationReportCommand::from_sqe(&entry(u32::MAX));
    assert_eq!((all.length(), all.is_extended), (1 << 34, false));
}

fn report(host: HostIdentifier) -> ReservationReport {
    ReservationReport {
        generation: 0x0102_0304,
        kind: 5,
        persists: true,
        controllers: vec![
            RegisteredController {
                controller: 0x0506,
                holds: true,
                key: 0x1112_1314_1516_1718,
                host,
            },
            RegisteredController {
                controller: CONTROLLER_NOT_ATTACHED,
                holds: false,
                key: 1,
                host,
            },
        ],
    }
}

const KEY: [u8; 8] = [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11];

#[test]
fn the_short_report_has_its_fields_where_the_specification_says() {
    let short = report(HostIdentifier::Short([9, 8, 7, 6, 5, 4, 3, 2]));
    let bytes = short.encode(false);
    assert_eq!(bytes[..12], [4, 3, 2, 1, 5, 2, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bytes[12..24], [0; 12]);
    assert_eq!(bytes[24..32], [6, 5, 1, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[32..40], [9, 8, 7, 6, 5, 4, 3, 2]);
    assert_eq!(bytes[40..48], KEY);
    assert_eq!(bytes[48..51], [0xff, 0xff, 0]);
    assert_eq!(bytes.len(), 24 + 2 * 24);
    assert_eq!(ReservationReport::parse(&bytes, false), Ok(short));
}

#[test]
fn the_extended_report_has_its_fields_where_the_specification_says() {
    let host: [u8; 16] = core::array::from_fn(|index| index as u8 + 1);
    let extended = report(HostIdentifier::Extended(HostId(host)));
    let bytes = extended.encode(true);
    assert_eq!(bytes[..12], [4, 3, 2, 1, 5, 2, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bytes[12..64], [0; 52]);
    assert_eq!(bytes[64..72], [6, 5, 1, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[72..80], KEY);
    assert_eq!(bytes[80..96], host);
    assert_eq!(bytes[96..128], [0; 32]);
    assert_eq!(bytes.len(), 64 + 2 * 64);
    assert_eq!(ReservationReport::parse(&bytes, true), Ok(extended.clone()));
    let cut = extended.encode(false);
    assert_eq!(cut[32..40], host[..8]);
    // A cut report has the entries that are whole.
    let cut = ReservationReport::parse(&bytes[..191], true).expect("a header");
    assert_eq!(cut.controllers, extended.controllers[..1]);
    assert!(ReservationReport::parse(&bytes[..63], true).is_err());
    let short = report(HostIdentifier::Short([7; 8])).encode(true);
    assert_eq!(
        short[80..96],
        [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn structures_survive() {
    round_trip::<ReservationRegisterKeys>();
    round_trip::<ReservationAcquireKeys>();
    round_trip::<ReservationReleaseKey>();
    round_trip::<ReservationReportHeader>();
    round_trip::<RegisteredControllerEntry>();
    round_trip::<RegisteredControllerEntryExtended>();
}

proptest! {
    #[test]
    fn any_entry_is_refused_or_survives(cdw10: u32, cdw11: u32) {
        let sqe = Sqe { cdw10, cdw11, ..Sqe::default() };
        if let Ok(register) = ReservationRegister::from_sqe(&sqe) {
            prop_assert_eq!(register.to_cdw10(), cdw10 & 0xc000_000f);
        }
        if let Ok(acquire) = ReservationAcquire::from_sqe(&sqe) {
            prop_assert_eq!(acquire.to_cdw10(), cdw10 & 0xff07);
        }
        if let Ok(release) = ReservationRelease::from_sqe(&sqe) {
            prop_assert_eq!(release.to_cdw10(), cdw10 & 0xff07);
        }
        let report = ReservationReportCommand::from_sqe(&sqe);
        prop_assert_eq!(report.to_dwords(), [cdw10, cdw11 & 1]);
    }

    #[test]
    fn any_bytes_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for is_extended in [false, true] {
            if let Ok(report) = ReservationReport::parse(&bytes, is_extended) {
                let again = ReservationReport::parse(&report.encode(is_extended), is_extended);
                prop_assert_eq!(again, Ok(report));
            }
        }
    }
}
