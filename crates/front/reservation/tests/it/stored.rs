//! The stored form: its text, and what is refused.

use serde_json::{Value, json};
use weir_reservation::{
    Operation, Proof, REGISTRANTS_MAX, ReservationType, Rights, StoredTable, Table,
};

use crate::{History, host, nexus};

fn form() -> Value {
    json!({
        "registrations": [
            {
                "key": "00000000000000a1",
                "nexus": {
                    "initiator": "iqn.2026-01.example:host",
                    "isid": "800000000001",
                    "target": "iqn.2026-01.example:target",
                    "portal_group": 1,
                },
            },
            {"key": "fedcba9876543210", "host": "0202020202020202"},
            {"key": "0000000000000001", "host": "03030303030303030303030303030303"},
        ],
        "reservation": {"type": "exclusive_access_registrants_only", "holder": 1},
    })
}

fn history() -> History {
    let enroll = |key| Operation::Enroll {
        proof: Proof::Key(0),
        key,
        persistence: Some(true),
    };
    let key = 0xfedc_ba98_7654_3210;
    let reserve = Operation::Reserve {
        key,
        kind: Some(ReservationType::ExclusiveAccessRegistrantsOnly),
    };
    History::of(&[
        (&nexus(1), enroll(0xa1)),
        (&host(2), enroll(key)),
        (&host(3), enroll(1)),
        (&host(2), reserve),
    ])
}

#[test]
fn a_table_is_stored_with_its_names_and_numbers() {
    let stored = history().table.stored().expect("it is persistent");
    assert_eq!(serde_json::to_value(&stored).expect("a form"), form());
    let read: StoredTable = serde_json::from_value(form()).expect("a table");
    assert_eq!(read, stored);
    let table = Table::from(read);
    assert!(table.holds(&host(2)));
    assert_eq!(table.generation(), 0, "it counts from a power on");
}

#[test]
fn every_type_has_a_name() {
    let names = [
        "write_exclusive",
        "exclusive_access",
        "write_exclusive_registrants_only",
        "exclusive_access_registrants_only",
        "write_exclusive_all_registrants",
        "exclusive_access_all_registrants",
    ];
    for (kind, name) in ReservationType::ALL.into_iter().zip(names) {
        let mut form = form();
        form["reservation"]["type"] = name.into();
        if kind.is_all_registrants() {
            form["reservation"] = json!({ "type": name });
        }
        let stored: StoredTable = serde_json::from_value(form).expect("a table");
        assert_eq!(Table::from(stored).rights(), Rights::Held(kind));
    }
}

#[test]
fn what_is_not_persistent_is_not_stored() {
    assert_eq!(Table::default().stored(), None);
    let mut history = history();
    let off = Operation::Register {
        key: 1,
        persistence: Some(false),
    };
    assert!(history.does(&host(3), off).stores);
    assert_eq!(history.table.stored(), None);
}

/// Error of a form after an edit.
fn refused(edit: impl FnOnce(&mut Value)) -> String {
    let mut form = form();
    edit(&mut form);
    let read: Result<StoredTable, _> = serde_json::from_value(form);
    read.expect_err("it is refused").to_string()
}

#[test]
fn a_form_that_is_no_table_is_refused_by_name() {
    let hosts = "16 or 32 hexadecimal digits";
    let key =
        |text: &'static str| move |form: &mut Value| form["registrations"][1]["key"] = text.into();
    assert!(refused(key("0000000000000000")).contains("registration 1 has a key of zero"));
    for text in [
        "",
        "0",
        "00000000000000a",
        "000000000000000g",
        "+000000000000001",
    ] {
        assert!(
            refused(key(text)).contains("16 hexadecimal digits"),
            "{text}"
        );
    }
    let host =
        |text: &'static str| move |form: &mut Value| form["registrations"][1]["host"] = text.into();
    assert!(refused(host("000102")).contains(hosts));
    assert!(refused(host("0000000000000000")).contains("without an identifier"));
    let same = "03030303030303030303030303030303";
    assert!(refused(host(same)).contains("registration 2 is of a registrant"));
    let short = refused(|form| form["registrations"][0]["nexus"]["isid"] = "80".into());
    assert!(short.contains("12 hexadecimal digits"));
    let both = refused(|form| form["registrations"][0]["host"] = same.into());
    assert!(both.contains("registration 0 must have either"));
    let neither = refused(|form| form["registrations"][1] = json!({"key": "0000000000000001"}));
    assert!(neither.contains("registration 1 must have either"));
    let unknown = refused(|form| form["generation"] = 1.into());
    assert!(unknown.contains("unknown field"));
}

#[test]
fn a_reservation_without_its_holder_is_refused() {
    let not_held = "not held by one registration, or by all";
    for reservation in [
        json!({"type": "write_exclusive"}),
        json!({"type": "write_exclusive", "holder": 3}),
        json!({"type": "write_exclusive_all_registrants", "holder": 0}),
    ] {
        let error = refused(|form| form["reservation"] = reservation);
        assert!(error.contains(not_held), "{error}");
    }
    let error = refused(|form| {
        *form = json!({
            "registrations": [],
            "reservation": {"type": "write_exclusive_all_registrants"},
        });
    });
    assert!(error.contains(not_held), "{error}");
}

#[test]
fn more_registrations_than_a_table_has_are_refused() {
    let error = refused(|form| {
        let one = form["registrations"][1].clone();
        form["registrations"] = vec![one; REGISTRANTS_MAX + 1].into();
    });
    assert!(error.contains("at most 128 registrations"), "{error}");
}
