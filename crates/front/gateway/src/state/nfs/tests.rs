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

fn volume(text: &str) -> VolumeName {
    text.parse().unwrap()
}

fn add_file(at: &str, name: &str) -> NfsChange {
    NfsChange::AddFile {
        path: path(at),
        volume: volume(name),
        spec: FileSpec::default(),
    }
}

/// Two volumes, an export of volumes and one of a directory.
fn with_volumes() -> State {
    let mut state = State::default();
    for name in ["one", "two"] {
        let new = crate::state::Volume::new("mem:?size=1M");
        state.volumes.insert(volume(name), new);
    }
    let state = changed(&state, add("/disks", "volumes:")).unwrap().state;
    changed(&state, add("/a", "dir:/srv/a")).unwrap().state
}

#[test]
fn volumes_become_files_and_numbers_are_never_used_again() {
    let state = with_volumes();
    let added = changed(&state, add_file("/disks", "one")).unwrap();
    assert!(added.changed);
    let state = added.state;
    assert!(!changed(&state, add_file("/disks", "one")).unwrap().changed);
    let state = changed(&state, add_file("/disks", "two")).unwrap().state;
    let number = |state: &State, name: &str| {
        let file = state.file(&path("/disks"), &volume(name)).unwrap();
        file.number
    };
    assert_eq!((number(&state, "one"), number(&state, "two")), (3, 4));
    let remove = NfsChange::RemoveFile {
        path: path("/disks"),
        volume: volume("two"),
    };
    let state = changed(&state, remove.clone()).unwrap().state;
    assert_eq!(changed(&state, remove).unwrap_err().code(), "not_found");
    let state = changed(&state, add_file("/disks", "two")).unwrap().state;
    assert_eq!(number(&state, "two"), 5);
    for (refused, code, words) in [
        (add_file("/a", "one"), "invalid", "whose source is volumes:"),
        (add_file("/disks", "tow"), "not_found", "did you mean two"),
        (add_file("/b", "one"), "not_found", "no export /b"),
    ] {
        let error = changed(&state, refused).unwrap_err();
        assert_eq!(error.code(), code);
        let text = format!("{error} {:?}", error.hint());
        assert!(text.contains(words), "{text}");
    }
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    let one = Change::RemoveVolume {
        name: volume("one"),
    };
    let in_use = state.changed_by(&one, &mut |_| ()).unwrap_err();
    assert!(
        in_use.to_string().contains("file one of export /disks"),
        "{in_use}"
    );
    let mut doubled = state.clone();
    let files = &mut doubled.exports.get_mut(&path("/disks")).unwrap().files;
    files.get_mut(&volume("one")).unwrap().number = 5;
    assert!(doubled.check().is_err(), "a number of two files");
}

#[test]
fn a_change_of_a_file_takes_what_it_forbids() {
    let state = with_volumes();
    let takes = |change: NfsChange, export: ExportName| {
        Change::Nfs(change).takes_from(&state, &InitiatorName::NfsClients, &export)
    };
    let file = |name: &str| ExportName::File {
        path: path("/disks"),
        volume: volume(name),
    };
    let set = |read_only| NfsChange::SetFile {
        path: path("/disks"),
        volume: volume("one"),
        patch: FileSpec {
            read_only: Some(read_only),
            ..FileSpec::default()
        },
    };
    let remove = || NfsChange::RemoveFile {
        path: path("/disks"),
        volume: volume("one"),
    };
    let whole = || ExportName::Directory {
        path: path("/disks"),
    };
    assert!(takes(remove(), file("one")) && !takes(remove(), file("two")));
    assert!(takes(set(true), file("one")) && !takes(set(false), file("one")));
    assert!(takes(remove(), whole()) && takes(set(true), whole()));
    assert!(!takes(add_file("/disks", "one"), whole()));
}
