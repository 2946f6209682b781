//! Random histories of several registrants of both kinds, and what holds after each of their steps.

use proptest::prelude::*;
use weir_reservation::{
    Access, Change, Notice, Operation, Proof, Refused, Registrant, ReservationType, Rights,
    Standing, Table,
};

use crate::{host, nexus, port};

const REGISTRANTS: u8 = 6;
const STRANGER: u8 = 77;

fn registrant(number: u8) -> Registrant {
    if number < REGISTRANTS / 2 {
        nexus(number)
    } else {
        host(number)
    }
}

/// Everybody who takes part, and one of each kind who never registers.
fn everybody() -> Vec<Registrant> {
    let mut everybody: Vec<_> = (0..REGISTRANTS).map(registrant).collect();
    everybody.extend([nexus(STRANGER), host(STRANGER)]);
    everybody
}

/// What one does. Keys are `None` for its own, so that histories get somewhere.
#[derive(Debug, Clone)]
struct Step {
    caller: u8,
    own_key: bool,
    action: u8,
    key: u64,
    kind: usize,
    other: u8,
    flag: bool,
    persistence: Option<bool>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0..REGISTRANTS,
        prop::bool::weighted(0.9),
        0..13_u8,
        0..4_u64,
        0..7_usize,
        0..REGISTRANTS / 2,
        any::<bool>(),
        any::<Option<bool>>(),
    );
    let step = step.prop_map(
        |(caller, own_key, action, key, kind, other, flag, persistence)| Step {
            caller,
            own_key,
            action,
            key,
            kind,
            other,
            flag,
            persistence,
        },
    );
    prop::collection::vec(step, 1..60)
}

impl Step {
    fn operation(&self, table: &Table, caller: &Registrant) -> Operation {
        let own = table.key_of(caller).unwrap_or(0);
        let proved = if self.own_key { own } else { self.key };
        let proof = if self.flag {
            Proof::Ignored
        } else {
            Proof::Key(proved)
        };
        let kind = ReservationType::ALL.get(self.kind).copied();
        let persistence = self.persistence;
        let key = self.key;
        match self.action {
            0 | 1 => Operation::Register { key, persistence },
            2 => Operation::Unregister { proof, persistence },
            3 => Operation::Replace {
                proof,
                key,
                persistence,
            },
            4 => Operation::Enroll {
                proof,
                key,
                persistence,
            },
            5 | 6 => Operation::Reserve { key: proved, kind },
            7 => Operation::Release { key: proved, kind },
            8 => Operation::Clear { key: proved },
            9 | 10 => Operation::Preempt {
                key: proved,
                victims: key,
                kind,
                aborts: self.flag,
            },
            11 => Operation::Move {
                key: proved,
                other_key: key,
                other: port(self.other),
                unregisters: self.flag,
                persistence,
            },
            _ => match self.key {
                0 | 1 => Operation::ReserveUnit,
                2 => Operation::ReleaseUnit,
                _ if self.flag => Operation::LoseNexus,
                _ => match persistence {
                    Some(is_persistent) => Operation::SetPersistence(is_persistent),
                    None => Operation::ResetUnit,
                },
            },
        }
    }
}

/// Class of the command that asks for an operation; `None`: no command does.
fn access(operation: &Operation) -> Option<Access> {
    Some(match operation {
        Operation::Register { .. }
        | Operation::Unregister { .. }
        | Operation::Replace { .. }
        | Operation::Enroll { .. } => Access::Register,
        Operation::Reserve { .. } => Access::Reserve,
        Operation::Release { .. } => Access::Release,
        Operation::Clear { .. } => Access::Clear,
        Operation::Preempt { .. } => Access::Preempt,
        Operation::Move { .. } => Access::Move,
        Operation::ReserveUnit => Access::ReserveUnit,
        Operation::ReleaseUnit => Access::ReleaseUnit,
        Operation::LoseNexus | Operation::ResetUnit | Operation::SetPersistence(_) => return None,
    })
}

fn check_table(table: &Table) {
    let registrations = table.registrations();
    for (index, one) in registrations.iter().enumerate() {
        assert_ne!(one.key, 0);
        let is_again = |other: &weir_reservation::Registration| other.registrant == one.registrant;
        assert!(!registrations[index + 1..].iter().any(is_again));
    }
    match table.reservation() {
        None => assert_eq!(table.reservation_key(), None),
        Some(held) if held.kind.is_all_registrants() => {
            assert_eq!(held.holder, None);
            assert!(!registrations.is_empty());
        }
        Some(held) => {
            let holder = held.holder.as_ref().expect("a holder");
            assert!(table.key_of(holder).is_some(), "the holder is registered");
            assert_eq!(table.standing(holder), Standing::Holder);
        }
    }
    if table.unit_holder().is_some() {
        assert!(registrations.is_empty() && table.reservation().is_none());
    }
}

/// What is stored comes back, and a change says when it is another.
fn check_stored(before: &Table, change: &Change) {
    let stored = change.table.stored();
    assert_eq!(stored.is_some(), change.table.is_persistent());
    assert_eq!(change.stores, before.stored() != stored);
    let Some(stored) = stored else { return };
    let text = serde_json::to_string(&stored).expect("a form");
    assert_eq!(serde_json::from_str(&text).ok(), Some(stored.clone()));
    let table = Table::from(stored);
    assert_eq!(table.registrations(), change.table.registrations());
    assert_eq!(table.reservation(), change.table.reservation());
    assert!(table.is_persistent() && table.unit_holder().is_none());
}

fn check_refusal(before: &Table, caller: &Registrant, operation: &Operation) {
    if access(operation).is_some_and(|access| !before.allows(caller, access)) {
        let refused = before.apply(caller, operation).expect_err("verdicts hold");
        // Nothing is said of a shut unit to one that could not reserve it at all.
        assert!(refused.is_conflict() || refused == Refused::NoNexus);
    }
}

fn check_losers(before: &Table, change: &Change) {
    for one in everybody() {
        let may = |table: &Table, access| table.allows(&one, access);
        let lost = [Access::Read, Access::Write]
            .into_iter()
            .any(|access| may(before, access) && !may(&change.table, access));
        assert_eq!(change.takes_from(&one), lost, "{one:?}");
    }
}

fn check_notices(before: &Table, caller: &Registrant, change: &Change) {
    for (told, notice) in &change.notices {
        assert_ne!(told, caller);
        assert!(before.key_of(told).is_some());
        let stays = change.table.key_of(told).is_some();
        assert_eq!(stays, *notice == Notice::ReservationReleased);
        let others = change.notices.iter().filter(|(other, _)| other == told);
        assert_eq!(others.count(), 1);
    }
    let removed = before.registrations().iter().map(|one| &one.registrant);
    let removed = removed.filter(|&one| change.table.key_of(one).is_none() && one != caller);
    for one in removed {
        let is_told = |(told, _): &(Registrant, Notice)| told == one;
        assert!(change.notices.iter().any(is_told), "{one:?}");
    }
}

fn check_operation(before: &Table, caller: &Registrant, operation: &Operation, change: &Change) {
    let after = &change.table;
    match *operation {
        Operation::Clear { .. } => {
            assert!(after.registrations().is_empty());
            assert_eq!(after.rights(), Rights::Free);
        }
        Operation::Preempt {
            victims, aborts, ..
        } => {
            for one in after.registrations() {
                let is_callers = one.registrant == *caller;
                assert!(is_callers || (victims != 0 && one.key != victims));
            }
            for one in before.registrations() {
                let is_gone = after.key_of(&one.registrant).is_none();
                let is_other = one.registrant != *caller;
                let is_aborted = change.aborts.contains(&one.registrant);
                assert_eq!(is_aborted, aborts && is_gone && is_other);
            }
        }
        Operation::Reserve { kind, .. } => {
            let kind = kind.expect("others are refused");
            assert_eq!(after.rights(), Rights::Held(kind));
            assert!(after.holds(caller));
        }
        Operation::Move { ref other, .. } => {
            assert!(after.holds(&Registrant::Nexus(other.clone())));
            assert_eq!(after.rights(), before.rights());
        }
        _ => assert_eq!(change.aborts, []),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_step_leaves_a_table_in_order(steps in steps()) {
        let mut table = Table::default();
        for step in steps {
            let caller = registrant(step.caller);
            let operation = step.operation(&table, &caller);
            let before = table.clone();
            check_refusal(&before, &caller, &operation);
            let outcome = table.apply(&caller, &operation);
            prop_assert_eq!(&table, &before, "a table is not changed where it stands");
            let Ok(change) = outcome else { continue };
            check_table(&change.table);
            check_losers(&before, &change);
            check_stored(&before, &change);
            check_notices(&before, &caller, &change);
            check_operation(&before, &caller, &operation, &change);
            let steps = change.table.generation() - before.generation();
            prop_assert!(steps <= 1);
            prop_assert!(before.is_persistent() || change.table.is_persistent() || !change.stores);
            table = change.table;
        }
    }
}
