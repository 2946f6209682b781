//! Rules of the specifications, one by one.

use weir_nvme::feature::HostIdentifier;
use weir_nvme::{HostId, Status};
use weir_reservation::{
    Access, Nexus, Notice, Operation, Proof, REGISTRANTS_MAX, Refused, Registrant, ReservationType,
    Rights, Standing, Table,
};
use weir_scsi::AdditionalSense;

use crate::{History, host, nexus, port};
use Notice::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
use ReservationType as T;

const fn register(key: u64) -> Operation {
    Operation::Register {
        key,
        persistence: None,
    }
}

/// As [`register`], to outlast a loss of power.
const fn persist_of(key: u64) -> Operation {
    Operation::Register {
        key,
        persistence: Some(true),
    }
}

const fn enroll(existing: u64, key: u64) -> Operation {
    Operation::Enroll {
        proof: Proof::Key(existing),
        key,
        persistence: None,
    }
}

const fn persist(existing: u64, key: u64, persistence: bool) -> Operation {
    Operation::Enroll {
        proof: Proof::Key(existing),
        key,
        persistence: Some(persistence),
    }
}

const fn reserve(key: u64, kind: T) -> Operation {
    Operation::Reserve {
        key,
        kind: Some(kind),
    }
}

const fn release(key: u64, kind: T) -> Operation {
    Operation::Release {
        key,
        kind: Some(kind),
    }
}

const fn preempt(key: u64, victims: u64, kind: T) -> Operation {
    Operation::Preempt {
        key,
        victims,
        kind: Some(kind),
        aborts: false,
    }
}

fn move_to(key: u64, other_key: u64, other: Nexus, unregisters: bool) -> Operation {
    Operation::Move {
        key,
        other_key,
        other,
        unregisters,
        persistence: None,
    }
}

/// A nexus with key 1, a host with key 2 and another nexus with key 3; the first holds a reservation.
fn held(kind: T) -> (History, Registrant, Registrant, Registrant) {
    let (first, second, third) = (nexus(1), host(2), nexus(3));
    let history = History::of(&[
        (&first, enroll(0, 1)),
        (&second, register(2)),
        (&third, enroll(0, 3)),
        (&first, reserve(1, kind)),
    ]);
    (history, first, second, third)
}

#[test]
fn nvme_registers_once_and_replaces_with_its_key() {
    let (one, mut history) = (host(1), History::default());
    assert_eq!(history.refuses(&one, register(0)), Refused::ZeroKey);
    history.does(&one, register(5));
    history.does(&one, register(5));
    assert_eq!(history.refuses(&one, register(6)), Refused::WrongKey);
    let replace = |proof| Operation::Replace {
        proof,
        key: 7,
        persistence: None,
    };
    let wrong = replace(Proof::Key(6));
    assert_eq!(history.refuses(&one, wrong), Refused::WrongKey);
    history.does(&one, replace(Proof::Key(5)));
    history.does(&one, replace(Proof::Ignored));
    assert_eq!(history.table.key_of(&one), Some(7));
    let zero = replace(Proof::Key(0));
    assert_eq!(history.refuses(&host(3), zero), Refused::NotRegistered);
    let unregister = |proof| Operation::Unregister {
        proof,
        persistence: None,
    };
    let wrong = unregister(Proof::Key(5));
    assert_eq!(history.refuses(&one, wrong), Refused::WrongKey);
    history.does(&one, unregister(Proof::Ignored));
    assert_eq!(history.table.registrations(), []);
    let again = unregister(Proof::Ignored);
    assert_eq!(history.refuses(&one, again), Refused::NotRegistered);
    assert_eq!(history.table.generation(), 5);
}

#[test]
fn nvme_replaces_without_regard_to_registration_where_it_ignores_keys() {
    let (one, mut history) = (host(1), History::default());
    let replace = |key| Operation::Replace {
        proof: Proof::Ignored,
        key,
        persistence: None,
    };
    assert_eq!(history.refuses(&one, replace(0)), Refused::ZeroKey);
    history.does(&one, replace(7));
    assert_eq!(history.table.key_of(&one), Some(7));
    history.does(&one, replace(8));
    assert_eq!(history.table.key_of(&one), Some(8));
}

#[test]
fn scsi_registers_changes_and_unregisters_with_one_service_action() {
    let (one, mut history) = (nexus(1), History::default());
    history.does(&one, persist(0, 0, true));
    assert_eq!(history.table, Table::default(), "it does nothing");
    assert_eq!(history.refuses(&one, enroll(9, 5)), Refused::NotRegistered);
    history.does(&one, enroll(0, 5));
    assert_eq!(history.refuses(&one, enroll(0, 6)), Refused::WrongKey);
    history.does(&one, enroll(5, 6));
    let ignoring = |key| Operation::Enroll {
        proof: Proof::Ignored,
        key,
        persistence: None,
    };
    history.does(&one, ignoring(7));
    assert_eq!(history.table.key_of(&one), Some(7));
    history.does(&one, ignoring(0));
    assert_eq!(history.table.key_of(&one), None);
    history.does(&one, ignoring(0));
    history.does(&one, ignoring(8));
    assert_eq!(history.table.key_of(&one), Some(8));
    assert_eq!(history.table.generation(), 5);
}

#[test]
fn one_machine_on_both_protocols_is_two() {
    let history = History::of(&[(&nexus(1), enroll(0, 1)), (&host(1), register(2))]);
    assert_eq!(history.table.registrations().len(), 2);
    // The same bytes with zeroes behind them are another host.
    let mut padded = [0; 16];
    padded[..8].fill(2);
    let padded = Registrant::Host(HostIdentifier::Extended(HostId(padded)));
    assert_ne!(padded, host(2));
}

#[test]
fn a_host_without_identifier_holds_nothing() {
    let nameless = [
        HostIdentifier::Short([0; 8]),
        HostIdentifier::Extended(HostId([0; 16])),
    ];
    for identifier in nameless {
        let nameless = Registrant::Host(identifier);
        let refused = History::default().refuses(&nameless, register(1));
        assert_eq!(refused, Refused::NamelessHost);
    }
}

#[test]
fn the_number_of_registrants_has_a_bound() {
    let mut history = History::default();
    for number in 0..REGISTRANTS_MAX as u8 {
        history.does(&nexus(number), enroll(0, 1));
    }
    let refused = history.refuses(&host(1), register(1));
    assert_eq!(refused, Refused::TooManyRegistrants);
    // One that hands its reservation over may give its place with it.
    history.does(&nexus(0), reserve(1, T::WriteExclusive));
    let refused = history.refuses(&nexus(0), move_to(1, 2, port(200), false));
    assert_eq!(refused, Refused::TooManyRegistrants);
    history.does(&nexus(0), move_to(1, 2, port(200), true));
    assert!(history.table.holds(&nexus(200)));
}

#[test]
fn a_reservation_is_the_holders_with_its_type() {
    let (mut history, first, second, _) = held(T::WriteExclusive);
    history.does(&first, reserve(1, T::WriteExclusive));
    for (caller, key, kind) in [
        (&first, 1, T::ExclusiveAccess),
        (&second, 2, T::WriteExclusive),
    ] {
        assert_eq!(history.refuses(caller, reserve(key, kind)), Refused::Held);
    }
    let refused = history.refuses(&second, reserve(1, T::WriteExclusive));
    assert_eq!(refused, Refused::WrongKey);
    let refused = history.refuses(&nexus(9), reserve(1, T::WriteExclusive));
    assert_eq!(refused, Refused::NotRegistered);
}

#[test]
fn the_key_of_a_reservation_follows_its_holder() {
    let (mut history, first, ..) = held(T::WriteExclusive);
    assert_eq!(history.table.reservation_key(), Some(1));
    history.does(&first, enroll(1, 11));
    assert_eq!(history.table.reservation_key(), Some(11));
    let (history, ..) = held(T::WriteExclusiveAllRegistrants);
    assert_eq!(history.table.reservation_key(), Some(0));
}

#[test]
fn every_registrant_holds_a_reservation_of_all() {
    let (mut history, _, second, third) = held(T::ExclusiveAccessAllRegistrants);
    assert_eq!(history.table.standing(&second), Standing::Holder);
    history.does(&third, reserve(3, T::ExclusiveAccessAllRegistrants));
    let change = history.does(&second, release(2, T::ExclusiveAccessAllRegistrants));
    assert_eq!(history.table.reservation(), None);
    let told = [
        (nexus(1), ReservationReleased),
        (third, ReservationReleased),
    ];
    assert_eq!(change.notices, told);
}

#[test]
fn releasing_what_one_does_not_hold_does_nothing() {
    let (mut history, first, second, _) = held(T::WriteExclusiveRegistrantsOnly);
    let before = history.table.clone();
    history.does(&second, release(2, T::WriteExclusive));
    assert_eq!(history.table, before);
    let refused = history.refuses(&first, release(1, T::WriteExclusive));
    assert_eq!(refused, Refused::OtherType);
    history.does(&first, release(1, T::WriteExclusiveRegistrantsOnly));
    history.does(&first, release(1, T::WriteExclusive));
}

#[test]
fn only_registrants_that_shared_a_reservation_are_told_of_its_release() {
    for kind in T::ALL {
        let (mut history, first, second, third) = held(kind);
        let told: &[_] = match kind {
            T::WriteExclusive | T::ExclusiveAccess => &[],
            _ => &[
                (second.clone(), ReservationReleased),
                (third.clone(), ReservationReleased),
            ],
        };
        let change = history.does(&first, release(1, kind));
        assert_eq!(change.notices, told, "{kind:?}");
    }
}

#[test]
fn a_reservation_leaves_with_its_holder_and_one_of_all_with_the_last() {
    for kind in T::ALL {
        let (mut history, first, second, third) = held(kind);
        let change = history.does(&first, enroll(1, 0));
        if kind.is_all_registrants() {
            assert_eq!(change.notices, []);
            history.does(&second, preempt(2, 3, kind));
            assert_eq!(history.table.rights(), Rights::Held(kind));
            assert!(history.table.holds(&second) && !history.table.holds(&third));
            let last = Operation::Unregister {
                proof: Proof::Key(2),
                persistence: None,
            };
            history.does(&second, last);
        } else if kind.admits_registrants() {
            let told = [(second, ReservationReleased), (third, ReservationReleased)];
            assert_eq!(change.notices, told);
        } else {
            assert_eq!(change.notices, []);
        }
        assert_eq!(history.table.rights(), Rights::Free, "{kind:?}");
    }
}

#[test]
fn preempting_a_key_removes_both_kinds() {
    let (mut history, first, second, third) = held(T::WriteExclusive);
    history.does(&nexus(4), enroll(0, 2));
    let abort = Operation::Preempt {
        key: 3,
        victims: 2,
        kind: None,
        aborts: true,
    };
    let change = history.does(&third, abort);
    let removed = [second, nexus(4)];
    assert_eq!(change.aborts, removed);
    let told = removed.map(|registrant| (registrant, RegistrationPreempted));
    assert_eq!(change.notices, told);
    assert_eq!(history.table.registrations().len(), 2);
    assert!(history.table.holds(&first), "the reservation stays");
    let refused = history.refuses(&third, preempt(3, 2, T::WriteExclusive));
    assert_eq!(refused, Refused::NoSuchKey);
}

#[test]
fn preempting_the_holder_takes_the_reservation_over() {
    let (mut history, first, second, third) = held(T::WriteExclusive);
    let change = history.does(&second, preempt(2, 1, T::ExclusiveAccessRegistrantsOnly));
    assert!(history.table.holds(&second));
    let told = [
        (third.clone(), ReservationReleased),
        (first.clone(), RegistrationPreempted),
    ];
    assert_eq!(change.notices, told);
    assert_eq!(change.losers, [first]);
    assert!(change.strangers_lose, "they might read");
    assert!(change.takes_from(&host(99)) && !change.takes_from(&third));
    // It is not told of a type that stays.
    let change = history.does(&third, preempt(3, 2, T::ExclusiveAccessRegistrantsOnly));
    assert_eq!(change.notices, [(second, RegistrationPreempted)]);
    let refused = history.refuses(
        &third,
        Operation::Preempt {
            key: 3,
            victims: 3,
            kind: None,
            aborts: false,
        },
    );
    assert_eq!(refused, Refused::UnknownType);
}

#[test]
fn a_holder_that_preempts_itself_stays() {
    let (mut history, first, ..) = held(T::WriteExclusive);
    history.does(&host(5), register(1));
    let change = history.does(&first, preempt(1, 1, T::ExclusiveAccess));
    assert_eq!(history.table.key_of(&first), Some(1));
    assert_eq!(history.table.key_of(&host(5)), None);
    assert_eq!(history.table.rights(), Rights::Held(T::ExclusiveAccess));
    assert!(change.notices.contains(&(host(5), RegistrationPreempted)));
}

#[test]
fn a_registrant_that_preempts_its_own_key_alone_leaves() {
    let (mut history, first, second, _) = held(T::WriteExclusive);
    let change = history.does(&second, preempt(2, 2, T::WriteExclusive));
    assert_eq!(history.table.key_of(&second), None);
    assert_eq!(change.notices, []);
    assert!(history.table.holds(&first));
}

#[test]
fn key_zero_preempts_all_others_only_where_all_hold() {
    for kind in T::ALL {
        let (mut history, first, second, third) = held(kind);
        let all = preempt(2, 0, T::WriteExclusive);
        if !kind.is_all_registrants() {
            assert_eq!(history.refuses(&second, all), Refused::ZeroKey, "{kind:?}");
            continue;
        }
        let change = history.does(&second, all);
        let told = [first, third].map(|registrant| (registrant, RegistrationPreempted));
        assert_eq!(change.notices, told);
        assert_eq!(history.table.registrations().len(), 1);
        assert_eq!(history.table.rights(), Rights::Held(T::WriteExclusive));
        assert!(history.table.holds(&second));
    }
    let free = History::of(&[(&host(1), register(1))]);
    let refused = free.refuses(&host(1), preempt(1, 0, T::WriteExclusive));
    assert_eq!(refused, Refused::ZeroKey);
}

#[test]
fn clearing_ends_everything() {
    let (mut history, first, second, third) = held(T::ExclusiveAccess);
    let refused = history.refuses(&nexus(9), Operation::Clear { key: 3 });
    assert_eq!(refused, Refused::NotRegistered);
    let change = history.does(&third, Operation::Clear { key: 3 });
    let told = [first, second].map(|registrant| (registrant, ReservationPreempted));
    assert_eq!(change.notices, told);
    assert_eq!(history.table.rights(), Rights::Free);
    assert_eq!(history.table.registrations(), []);
    assert_eq!(change.losers, []);
}

#[test]
fn a_holder_moves_its_reservation() {
    let (mut history, first, second, third) = held(T::WriteExclusive);
    let refused = history.refuses(&second, move_to(2, 7, port(3), false));
    assert_eq!(refused, Refused::NotHolder);
    let refused = history.refuses(&first, move_to(1, 7, port(1), false));
    assert_eq!(refused, Refused::MoveToSelf);
    let refused = history.refuses(&first, move_to(1, 0, port(3), false));
    assert_eq!(refused, Refused::ZeroKey);
    let change = history.does(&first, move_to(1, 7, port(3), false));
    assert!(history.table.holds(&third));
    assert_eq!(history.table.key_of(&third), Some(7));
    assert_eq!(history.table.standing(&first), Standing::Registered);
    assert_eq!(change.losers, [first]);
    let change = history.does(&third, move_to(7, 8, port(4), true));
    assert_eq!(history.table.key_of(&third), None);
    assert_eq!(history.table.reservation_key(), Some(8));
    assert_eq!((change.losers, change.notices), (vec![third], vec![]));
    let (history, first, ..) = held(T::WriteExclusiveAllRegistrants);
    let refused = history.refuses(&first, move_to(1, 7, port(4), false));
    assert_eq!(refused, Refused::HeldByAll);
}

#[test]
fn reserving_takes_from_strangers_and_registrants() {
    let (second, third) = (host(2), nexus(3));
    let mut history = History::of(&[(&second, register(2)), (&third, enroll(0, 3))]);
    let change = history.does(&second, reserve(2, T::WriteExclusiveRegistrantsOnly));
    assert_eq!((change.losers, change.strangers_lose), (vec![], true));
    history.does(&second, release(2, T::WriteExclusiveRegistrantsOnly));
    let change = history.does(&second, reserve(2, T::WriteExclusive));
    assert_eq!((change.losers, change.strangers_lose), (vec![third], true));
}

#[test]
fn the_last_bit_wins_and_decides_what_is_stored() {
    let (one, two) = (nexus(1), host(2));
    let mut history = History::default();
    assert!(!history.does(&one, persist(0, 1, false)).stores);
    let on = Operation::Register {
        key: 2,
        persistence: Some(true),
    };
    assert!(history.does(&two, on).stores);
    assert!(history.table.is_persistent());
    assert!(!history.does(&two, register(2)).stores, "nothing changes");
    assert!(
        history
            .does(&one, reserve(1, T::WriteExclusiveAllRegistrants))
            .stores
    );
    assert!(
        history.does(&one, persist(1, 1, false)).stores,
        "it is erased"
    );
    assert!(!history.table.is_persistent());
    assert!(!history.does(&one, Operation::Clear { key: 1 }).stores);
}

#[test]
fn reserve_of_old_shuts_all_others_out() {
    let (one, other, mut history) = (nexus(1), nexus(2), History::default());
    let change = history.does(&one, Operation::ReserveUnit);
    assert_eq!((&change.losers, change.strangers_lose), (&vec![], true));
    assert!(change.takes_from(&host(1)) && !change.takes_from(&one));
    history.does(&one, Operation::ReserveUnit);
    let refused = history.refuses(&other, Operation::ReserveUnit);
    assert_eq!(refused, Refused::UnitReserved);
    for caller in [&one, &host(1)] {
        assert_eq!(history.refuses(caller, register(1)), Refused::UnitReserved);
        assert!(!history.table.allows(caller, Access::Report));
    }
    assert!(history.table.allows(&one, Access::Write));
    assert!(!history.table.allows(&host(1), Access::Read));
    history.does(&other, Operation::ReleaseUnit);
    history.does(&other, Operation::LoseNexus);
    assert_eq!(history.table.rights(), Rights::Unit);
    for end in [
        Operation::ReleaseUnit,
        Operation::LoseNexus,
        Operation::ResetUnit,
    ] {
        history.does(&one, Operation::ReserveUnit);
        history.does(&one, end);
        assert_eq!(history.table.rights(), Rights::Free);
    }
    history.does(&one, Operation::ReserveUnit);
    history.does(&other, Operation::ResetUnit);
    assert_eq!(history.table, Table::default());
}

#[test]
fn reserve_of_old_conflicts_with_any_registration() {
    let history = History::of(&[(&host(1), register(1))]);
    for operation in [Operation::ReserveUnit, Operation::ReleaseUnit] {
        let refused = history.refuses(&nexus(1), operation);
        assert_eq!(refused, Refused::Registrations);
        assert!(refused.is_conflict());
    }
    let refused = history.refuses(&host(1), Operation::ReserveUnit);
    assert_eq!(refused, Refused::NoNexus);
}

#[test]
fn what_an_operator_takes_away_is_told_to_all_that_had_it() {
    let hosts = [(&host(1), persist_of(1)), (&nexus(1), enroll(0, 2))];
    let mut history = History::of(&hosts);
    history.does(&host(1), reserve(1, T::ExclusiveAccess));
    let change = history.table.discard();
    assert!(change.stores);
    assert_eq!(change.table.rights(), Rights::Free);
    assert!(change.table.registrations().is_empty());
    let told = |registrant: Registrant| (registrant, ReservationPreempted);
    assert_eq!(change.notices, [told(host(1)), told(nexus(1))]);
    // Nobody may do less than before.
    assert!(change.losers.is_empty() && !change.strangers_lose && change.aborts.is_empty());

    let mut unit = History::of(&[]);
    unit.does(&nexus(1), Operation::ReserveUnit);
    assert_eq!(unit.table.discard().table.rights(), Rights::Free);
    let nothing = Table::default().discard();
    assert!(!nothing.stores && nothing.notices.is_empty());
}

#[test]
fn refusals_are_said_in_each_protocol() {
    let conflict = Status::RESERVATION_CONFLICT.with_do_not_retry();
    assert_eq!(
        (Refused::Held.status(), Refused::Held.sense()),
        (conflict, None)
    );
    let invalid = Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry();
    for (refused, additional) in [
        (
            Refused::ZeroKey,
            AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        ),
        (Refused::UnknownType, AdditionalSense::INVALID_FIELD_IN_CDB),
        (
            Refused::OtherType,
            AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION,
        ),
    ] {
        assert_eq!(refused.status(), invalid);
        assert_eq!(
            refused.sense().map(|sense| sense.additional),
            Some(additional)
        );
    }
    let many = Refused::TooManyRegistrants
        .sense()
        .map(|sense| sense.additional);
    assert_eq!(
        many,
        Some(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES)
    );
}
