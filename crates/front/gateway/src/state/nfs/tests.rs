//! Exports.

use super::*;
use crate::state::{Change, InitiatorName, Outcome};

fn path(text: &str) -> ExportPath {
    text.parse().unwrap()
}

fn add(at: &str, source: &str) -> NfsChange {
    NfsChange::AddExport {
        path: path(at),
        spec: ExportSpec {
            source: source.to_owned(),
            ..ExportSpec::default()
        },
        root: "1:00".to_owned(),
    }
}

fn changed(state: &State, change: NfsChange) -> Result<Outcome, StateError> {
    let mut next = state.revision as u8;
    let mut source = |bytes: &mut [u8]| {
        next += 1;
        bytes.fill(next);
    };
    state.changed_by(&Change::Nfs(change), &mut source)
}

#[test]
fn exports_are_added_once_and_numbers_never_used_again() {
    let first = changed(&State::default(), add("/a", "dir:/srv/a")).unwrap();
    assert!(first.changed);
    let state = first.state;
    assert!(!changed(&state, add("/a", "dir:/srv/a")).unwrap().changed);
    let other = changed(&state, add("/a", "dir:/srv/b")).unwrap_err();
    assert_eq!(other.code(), "exists");
    assert_eq!(state.exports[&path("/a")].number, 1);
    let removed = changed(&state, NfsChange::RemoveExport { path: path("/a") });
    let state = removed.unwrap().state;
    let again = changed(&state, add("/a", "dir:/srv/a")).unwrap().state;
    assert_eq!(again.exports[&path("/a")].number, 2);
    let unknown = changed(&state, NfsChange::RemoveExport { path: path("/a") });
    assert_eq!(unknown.unwrap_err().code(), "not_found");
}

#[test]
fn exports_do_not_nest() {
    let state = changed(&State::default(), add("/a/b", "dir:/srv/b"))
        .unwrap()
        .state;
    for (at, source) in [
        ("/a", "dir:/srv/c"),
        ("/a/b/c", "dir:/srv/c"),
        ("/c", "dir:/srv/b"),
        ("/c", "dir:/srv/b/c"),
        ("/c", "dir:/srv"),
        ("/c", "dir:/"),
    ] {
        let refused = changed(&state, add(at, source)).unwrap_err();
        assert!(refused.to_string().contains("do not nest"), "{refused}");
    }
    assert!(changed(&state, add("/a/c", "dir:/srv/bc")).is_ok());
}

#[test]
fn sources_that_are_none_are_refused() {
    for source in [
        "",
        "/srv/a",
        "dir:",
        "dir:srv",
        "dir:/srv/../etc",
        "dir:/srv/",
        "file:/srv/a",
    ] {
        let refused = changed(&State::default(), add("/a", source)).unwrap_err();
        assert_eq!(refused.code(), "invalid", "{source}");
    }
}

#[test]
fn a_change_takes_what_it_forbids() {
    let client = InitiatorName::NfsClients;
    let export = |at: &str| ExportName::Directory { path: path(at) };
    let state = State::default();
    let takes =
        |change: NfsChange, at: &str| Change::Nfs(change).takes_from(&state, &client, &export(at));
    let remove = || NfsChange::RemoveExport { path: path("/a") };
    assert!(takes(remove(), "/a") && !takes(remove(), "/b"));
    let set = |read_only| NfsChange::SetExport {
        path: path("/a"),
        patch: ExportPatch {
            read_only: Some(read_only),
            ..ExportPatch::default()
        },
    };
    assert!(takes(set(true), "/a") && !takes(set(false), "/a"));
}
