//! A save is whole or not at all, whatever fails and whenever the process dies.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;
use crate::name::Nqn;
use crate::state::{
    ChapSecrets, ChapUsers, ListenerKind, Protocol, Secret, Secrets, Target, Visibility,
};

fn state_of_revision(revision: u64) -> State {
    let mut state = State {
        revision,
        discovery_generation: revision,
        ..State::default()
    };
    // Length varies with the revision, so that a mix of two states is noticed.
    for index in 0..revision % 23 {
        let volume = crate::state::Volume::new(format!("mem:{revision}?size=1M"));
        state
            .volumes
            .insert(format!("v{index}").parse().unwrap(), volume);
    }
    state
}

/// A state of this revision in which the secrets changed, too.
fn secret_state_of_revision(revision: u64) -> State {
    let mut state = state_of_revision(revision);
    let name = "iqn.2026-01.com.example:t"
        .parse::<crate::name::IscsiName>()
        .unwrap();
    let users = ChapUsers {
        user: "u".to_owned(),
        mutual_user: Some("m".to_owned()),
    };
    let target = Target {
        chap: Some(users),
        ..Target::default()
    };
    state.targets.insert(name.clone(), target);
    let secret = |what| Secret::new("secret", format!("{what} secret of {revision}")).unwrap();
    let secrets = ChapSecrets {
        initiator: secret("their"),
        target: Some(secret("own")),
    };
    state.secrets = Secrets {
        generation: Some(revision),
        chap: [(name, secrets)].into(),
    };
    state
}

fn load(path: &Path) -> Result<Option<State>, StoreError> {
    FileStore::open(path)?.load()
}

/// What a failing disk does at its step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    /// Returns an error without doing the step.
    Error,
    /// Returns an error after doing the step, or half of it where it is a write.
    ErrorAfter,
    /// Ends the process without a trace, half a write done.
    Die,
}

/// A real disk whose step number `at`, counted from 0, fails.
struct FailingDisk {
    at: usize,
    failure: Failure,
    steps: usize,
}

impl FailingDisk {
    fn step<T>(
        &mut self,
        half: impl FnOnce(),
        whole: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let turn = self.steps == self.at;
        self.steps += 1;
        if !turn {
            return whole();
        }
        match self.failure {
            Failure::Error => {}
            Failure::ErrorAfter => half(),
            Failure::Die => {
                half();
                std::process::abort();
            }
        }
        Err(io::Error::other("injected"))
    }
}

impl Disk for FailingDisk {
    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        RealDisk.make_directory(path)
    }

    fn create(&mut self, path: &Path) -> io::Result<File> {
        self.step(|| drop(RealDisk.create(path)), || RealDisk.create(path))
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let mut second = file.try_clone().unwrap();
        self.step(
            || {
                RealDisk
                    .write(&mut second, &bytes[..bytes.len() / 2])
                    .unwrap()
            },
            || RealDisk.write(file, bytes),
        )
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        self.step(|| {}, || RealDisk.sync(file))
    }

    fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(
            || RealDisk.link(from, to).unwrap(),
            || RealDisk.link(from, to),
        )
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(
            || RealDisk.rename(from, to).unwrap(),
            || RealDisk.rename(from, to),
        )
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step(|| RealDisk.remove(path).unwrap(), || RealDisk.remove(path))
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.step(
            || RealDisk.sync_directory(path).unwrap(),
            || RealDisk.sync_directory(path),
        )
    }
}

/// Notes which directories are made, and which are synced.
struct NotingDisk(std::sync::Arc<std::sync::Mutex<Vec<(&'static str, PathBuf)>>>);

impl NotingDisk {
    fn note(&self, what: &'static str, path: &Path) {
        self.0.lock().unwrap().push((what, path.to_owned()));
    }
}

impl Disk for NotingDisk {
    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        self.note("made", path);
        RealDisk.make_directory(path)
    }

    fn create(&mut self, path: &Path) -> io::Result<File> {
        RealDisk.create(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, bytes)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }

    fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.link(from, to)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.note("synced", path);
        RealDisk.sync_directory(path)
    }
}

/// Steps of one save, once there is a state: create, write, sync, link, rename, sync the directory.
const STEPS: usize = 6;
/// Steps before these where the file is of an earlier format: create, write, sync, rename, sync the directory.
const KEEP_STEPS: usize = 5;
const LINK_STEP: usize = 3;
/// Steps before these where there are other secrets than before: create, write, sync, rename, sync the directory.
const SECRETS_STEPS: usize = 5;

#[test]
fn what_was_saved_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/state.json");
    let mut store = FileStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap(), None);
    store.save(&state_of_revision(1), None).unwrap();
    store.save(&state_of_revision(5), Some(1)).unwrap();
    drop(store);
    assert_eq!(load(&path).unwrap(), Some(state_of_revision(5)));
    assert_eq!(
        load(&beside(&path, ".previous")).unwrap(),
        Some(state_of_revision(1))
    );
}

#[test]
fn a_directory_that_was_made_is_durable_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(directory.path()).unwrap();
    let notes = std::sync::Arc::default();
    let disk = NotingDisk(std::sync::Arc::clone(&notes));
    let mut store = FileStore::open_on(Box::new(disk), &root.join("a/b/state.json")).unwrap();
    store.load().unwrap();
    store.save(&state_of_revision(1), None).unwrap();
    let expected = [
        ("made", root.join("a")),
        ("synced", root.clone()),
        ("made", root.join("a/b")),
        ("synced", root.join("a")),
        ("synced", root.join("a/b")),
    ];
    assert_eq!(*notes.lock().unwrap(), expected);
}

#[test]
fn a_store_has_one_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let first = FileStore::open(&path).unwrap();
    let Err(error) = FileStore::open(&path) else {
        panic!("two gateways have one store")
    };
    let pid = std::process::id();
    assert!(
        error.to_string().contains(&format!("(process {pid})")),
        "{error}"
    );
    let link = directory.path().join("link.json");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    fs::write(&path, encode(&state_of_revision(1))).unwrap();
    assert!(matches!(
        FileStore::open(&link),
        Err(StoreError::Locked { .. })
    ));
    drop(first);
    FileStore::open(&path).unwrap();
}

#[test]
fn saving_needs_the_right_revision_and_a_load() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = FileStore::open(&directory.path().join("state.json")).unwrap();
    let state = state_of_revision(1);
    assert!(matches!(
        store.save(&state, None),
        Err(StoreError::NotLoaded)
    ));
    store.load().unwrap();
    assert!(matches!(
        store.save(&state, Some(1)),
        Err(StoreError::Conflict { .. })
    ));
    store.save(&state, None).unwrap();
    assert!(matches!(
        store.save(&state, None),
        Err(StoreError::Conflict { .. })
    ));
}

#[test]
fn a_damaged_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let good = encode(&state_of_revision(7));
    let mut damaged: Vec<Vec<u8>> = vec![b"".to_vec(), b"{}".to_vec(), vec![0; 100], vec![0xff; 9]];
    damaged.extend((1..20).map(|tenth| good.as_bytes()[..good.len() * tenth / 20].to_vec()));
    damaged.push(good.replace("size=1M", "size=2M").into_bytes());
    damaged.push([good.as_bytes(), b"x"].concat());
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let mut store = FileStore::open(&path).unwrap();
        let error = store.load().unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let saved = store.save(&state_of_revision(8), None);
        assert!(matches!(saved, Err(StoreError::NotLoaded)));
        assert_eq!(
            fs::read(&path).unwrap(),
            bytes,
            "the damaged file was changed"
        );
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let good = encode(&state_of_revision(2)).into_bytes();
    for bit in 0..(good.len() - 1) * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        match load(&path) {
            // Whitespace outside the checked text is no damage.
            Ok(state) => assert_eq!(state, Some(state_of_revision(2)), "bit {bit}"),
            Err(StoreError::Damaged { .. } | StoreError::Newer { .. }) => {}
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
}

#[test]
fn a_later_format_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let text = encode(&state_of_revision(2)).replace(
        &format!("\"format\": {FORMAT}"),
        &format!("\"format\": {}", FORMAT + 1),
    );
    fs::write(&path, text).unwrap();
    let error = load(&path).unwrap_err().to_string();
    let expected = "state.json has format 4, and this version of Weir knows formats up to 3: use the version that wrote it, or a later one";
    assert!(error.ends_with(expected), "{error}");
}

/// A file of `format` with this state.
fn file_of(format: u32, state: &str) -> String {
    let crc32c = checksum(state);
    format!("{{\"format\": {format}, \"crc32c\": \"{crc32c}\", \"state\": {state}}}\n")
}

#[test]
fn what_a_later_version_added_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let known = r#"{"revision": 1, "discovery_generation": 1, "volumes": {}, "subsystems": {},
        "hosts": {"h": {"nqns": [], "note": "", "socket_options": {}}},
        "portals": {"*:4420": {"protocol": {"nvme": {"kind": "all"}}, "socket_options": {}}}}"#;
    fs::write(&path, file_of(FORMAT, known)).unwrap();
    load(&path).unwrap();
    for (from, to, name) in [
        (r#""volumes""#, r#""buckets": {}, "volumes""#, "buckets"),
        (r#""note""#, r#""addresses": [], "note""#, "addresses"),
        (r#"{"nvme": {"kind": "all"}}"#, r#"{"smb": {}}"#, "smb"),
        (r#""kind": "all""#, r#""kind": "all", "rdma": true"#, "rdma"),
    ] {
        let text = file_of(FORMAT, &known.replace(from, to));
        fs::write(&path, &text).unwrap();
        let error = load(&path).unwrap_err();
        assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains(&format!("`{name}`")), "{error}");
        assert!(
            error.ends_with("use the version that wrote it, or a later one"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_state_that_breaks_a_rule_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut state = state_of_revision(3);
    state
        .volumes
        .insert("bad".parse().unwrap(), crate::state::Volume::new(""));
    fs::write(&path, encode(&state)).unwrap();
    assert!(matches!(load(&path), Err(StoreError::Invalid { .. })));
}

#[test]
fn migrations_run_in_order_from_the_format_found() {
    fn mark(state: &mut Members, mark: &str) -> Result<(), String> {
        let path = format!("{}{mark}", state["path"].as_str().unwrap());
        state.insert("path".to_owned(), path.into());
        Ok(())
    }
    let first: Migration = |state| mark(state, "1");
    let second: Migration = |state| mark(state, "2");
    let migrated = |format, migrations: &[Migration]| {
        let mut state = Members::from_iter([("path".to_owned(), "-".into())]);
        migrate(&mut state, format, migrations).map(|()| state["path"].clone())
    };
    assert_eq!(migrated(1, &[first, second]).unwrap(), "-12");
    assert_eq!(migrated(2, &[first, second]).unwrap(), "-2");
    assert_eq!(migrated(3, &[first, second]).unwrap(), "-");
    assert!(migrated(0, &[first]).is_err());
    let fails: Migration = |_| Err("no".into());
    assert_eq!(migrated(1, &[fails, second]), Err("no".into()));
}

#[test]
fn a_state_of_an_earlier_format_is_taken_over_and_kept() {
    let state = |qos: &str| {
        format!(
            r#"{{"revision": 2, "discovery_generation": 1, "volumes": {{"a": {{"url": "mem:?size=1M"}}}},
            "hosts": {{"nqn.2014-08.org.example:h": {{"note": "n", "socket_options": {{"dscp": 1}}}}}},
            "subsystems": {{"nqn.2014-08.org.example:a": {{"serial": "S", "model": "Weir", "allow_any_host": false,
            "allowed_hosts": ["nqn.2014-08.org.example:h"], "controller_ids": {{"min": 1, "max": 65519}}, "ana_changes": 0,
            "namespaces": {{"1": {{"volume": "a", "uuid": "11111111-2222-4333-8444-555555555555",
            "nguid": "11111111222243338444555555555555", "eui64": "1111111122224333", "read_only": false, "ana_group": 1,
            {qos} "visible_to": {{"hosts": ["nqn.2014-08.org.example:h"]}}}}}}}}}},
            "listeners": {{"*:8009": {{"kind": "discovery", "socket_options": {{}}}}}}}}"#
        )
    };
    let limited = r#""qos": {"write_iops": {"limit": 1000, "burst": 100}},"#;
    for (format, qos) in [(1, ""), (2, limited)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let earlier = file_of(format, &state(qos));
        fs::write(&path, &earlier).unwrap();
        let mut store = FileStore::open(&path).unwrap();
        let mut state = store.load().unwrap().unwrap();
        let (_, _, namespace) = state.namespaces().next().unwrap();
        assert_eq!(namespace.qos.is_empty(), format == 1);
        let nqn: Nqn = "nqn.2014-08.org.example:h".parse().unwrap();
        let (name, host) = state.hosts.first_key_value().unwrap();
        assert!(host.nqns.iter().eq([&nqn]), "{host:?}");
        assert_eq!(
            (host.note.as_str(), host.socket_options.dscp),
            ("n", Some(1))
        );
        assert!(
            state.subsystems[&"nqn.2014-08.org.example:a".parse().unwrap()]
                .allowed_hosts
                .iter()
                .eq([name])
        );
        assert_eq!(
            namespace.visible_to,
            Visibility::Hosts([name.clone()].into())
        );
        let portal = &state.portals[&"*:8009".parse().unwrap()];
        assert_eq!(
            portal.protocol,
            Protocol::Nvme {
                kind: ListenerKind::Discovery
            }
        );
        // Nothing is written before there is a change; from then on the file of the earlier format has its own name.
        assert_eq!(fs::read_to_string(&path).unwrap(), earlier);
        for _ in 0..3 {
            let before = state.revision;
            state.revision += 1;
            store.save(&state, Some(before)).unwrap();
            let kept = beside(&path, &format!(".format-{format}"));
            assert_eq!(fs::read_to_string(&kept).unwrap(), earlier);
        }
        drop(store);
        assert_eq!(load(&path).unwrap(), Some(state));
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            4,
            "the file, .lock, .previous and the kept one"
        );
    }
}

/// The file that the version before this one writes of a state without hosts and listeners.
fn in_format_2(state: &State) -> String {
    let text = serde_json::to_string(state).unwrap();
    file_of(2, &text.replace("\"portals\"", "\"listeners\""))
}

/// Files of a state, and the steps of the first save over each.
fn files_of(state: &State) -> [(String, usize); 2] {
    [
        (encode(state), STEPS),
        (in_format_2(state), KEEP_STEPS + STEPS),
    ]
}

/// Checks that the file `before` is there under one of its names, whole, where it is of an earlier format.
fn check_way_back(path: &Path, before: &str) {
    let kept = fs::read_to_string(beside(path, ".format-2"));
    let is_earlier = before.starts_with("{\"format\": 2");
    match kept {
        Ok(kept) => assert!(is_earlier && kept == before),
        Err(_) => assert!(!is_earlier || fs::read_to_string(path).unwrap() == before),
    }
}

#[test]
fn what_was_kept_before_is_not_lost_for_another_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let texts = [10, 20].map(|revision| in_format_2(&state_of_revision(revision)));
    for text in &texts {
        fs::write(&path, text).unwrap();
        let mut store = FileStore::open(&path).unwrap();
        let revision = store.load().unwrap().unwrap().revision;
        let next = state_of_revision(revision + 1);
        store.save(&next, Some(revision)).unwrap();
    }
    let kept = |suffix| fs::read_to_string(beside(&path, suffix)).unwrap();
    assert_eq!(kept(".format-2.previous"), texts[0]);
    assert_eq!(kept(".format-2"), texts[1]);
}

#[test]
fn an_error_at_any_step_leaves_the_old_state_or_the_new() {
    let (old, new) = (state_of_revision(10), state_of_revision(11));
    for (before, steps) in files_of(&old) {
        for (failure, at) in [Failure::Error, Failure::ErrorAfter]
            .into_iter()
            .flat_map(|failure| (0..steps).map(move |at| (failure, at)))
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.json");
            fs::write(&path, &before).unwrap();
            let mut store = FileStore::open(&path).unwrap();
            store.load().unwrap();
            store.disk = Box::new(FailingDisk {
                at,
                failure,
                steps: 0,
            });
            let saved = store.save(&new, Some(10));
            drop(store);
            check_way_back(&path, &before);
            let found = load(&path).unwrap().unwrap();
            let context = format!("{failure:?} at step {at} of {steps}: {saved:?}");
            match saved {
                Ok(()) => assert_eq!((at + STEPS - steps, &found), (LINK_STEP, &new), "{context}"),
                Err(StoreError::Uncertain { .. }) => assert_eq!(found, new, "{context}"),
                Err(_) => assert_eq!(found, old, "{context}"),
            }
            // The next save mends whatever was left.
            let mut store = FileStore::open(&path).unwrap();
            let revision = store.load().unwrap().unwrap().revision;
            store.save(&state_of_revision(12), Some(revision)).unwrap();
            drop(store);
            check_way_back(&path, &before);
            assert_eq!(
                load(&path).unwrap(),
                Some(state_of_revision(12)),
                "{context}"
            );
        }
    }
}

/// The files beside a state file, by what comes after its name.
fn suffixes(path: &Path) -> Vec<String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let files = fs::read_dir(path.parent().unwrap()).unwrap();
    let suffix = |file: io::Result<fs::DirEntry>| {
        let file = file.unwrap().file_name();
        file.to_str()
            .unwrap()
            .strip_prefix(name)
            .unwrap()
            .to_owned()
    };
    let mut suffixes: Vec<_> = files.map(suffix).collect();
    suffixes.sort();
    suffixes
}

#[test]
fn a_state_of_this_format_without_iscsi_loads_and_is_written_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let text = r#"{"revision":1,"discovery_generation":1,"volumes":{"a":{"url":"mem:"}},"hosts":{"h":{"nqns":[],"note":"","socket_options":{}}},"subsystems":{},"portals":{"*:4420":{"protocol":{"nvme":{"kind":"all"}},"socket_options":{}}}}"#;
    fs::write(&path, file_of(FORMAT, text)).unwrap();
    let state = load(&path).unwrap().unwrap();
    // The version before this one reads what this one writes.
    assert_eq!(serde_json::to_string(&state).unwrap(), text);
}

#[test]
fn secrets_have_a_file_of_their_own_for_as_long_as_a_state_names_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut store = FileStore::open(&path).unwrap();
    store.load().unwrap();
    let state = secret_state_of_revision(4);
    store.save(&state, None).unwrap();
    let shown = fs::read_to_string(&path).unwrap();
    assert!(shown.contains("\"secrets\": 4"), "{shown}");
    assert!(!shown.contains("secret of"), "{shown}");
    let secrets = beside(&path, ".secrets-4");
    assert!(
        fs::read_to_string(&secrets)
            .unwrap()
            .contains("own secret of 4")
    );
    let mode = fs::metadata(&secrets).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(store);
    assert_eq!(load(&path).unwrap(), Some(state.clone()));

    // A change of something else writes no secrets.
    let mut store = FileStore::open(&path).unwrap();
    store.load().unwrap();
    let written = fs::metadata(&secrets).unwrap().modified().unwrap();
    let mut same = state.clone();
    same.revision = 5;
    store.save(&same, Some(4)).unwrap();
    assert_eq!(suffixes(&path), ["", ".lock", ".previous", ".secrets-4"]);
    assert_eq!(fs::metadata(&secrets).unwrap().modified().unwrap(), written);

    // Replaced ones stay for as long as the state before the last change names them.
    store.save(&secret_state_of_revision(6), Some(5)).unwrap();
    let both = ["", ".lock", ".previous", ".secrets-4", ".secrets-6"];
    assert_eq!(suffixes(&path), both);
    store.save(&state_of_revision(7), Some(6)).unwrap();
    assert_eq!(suffixes(&path), ["", ".lock", ".previous", ".secrets-6"]);
    drop(store);
    let mut store = FileStore::open(&path).unwrap();
    store.load().unwrap();
    store.save(&state_of_revision(8), Some(7)).unwrap();
    assert_eq!(suffixes(&path), ["", ".lock", ".previous"]);
}

#[test]
fn a_state_without_its_secrets_is_refused_and_tells_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut store = FileStore::open(&path).unwrap();
    store.load().unwrap();
    store.save(&secret_state_of_revision(4), None).unwrap();
    drop(store);
    let secrets = beside(&path, ".secrets-4");
    let good = fs::read_to_string(&secrets).unwrap();
    let mut bad: Vec<String> = (0..20)
        .map(|part| good[..good.len() * part / 20].to_owned())
        .collect();
    bad.push(good.replace("own secret", "odd secret"));
    bad.push(secrets::encode(&secret_state_of_revision(5).secrets, 5));
    for text in bad {
        fs::write(&secrets, &text).unwrap();
        let error = load(&path).unwrap_err();
        assert!(
            matches!(error, StoreError::Secrets { .. }),
            "{error}: {text}"
        );
        assert!(!error.to_string().contains("secret of"), "{error}");
    }
    fs::remove_file(&secrets).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(
        error.contains("state.json.secrets-4 should hold, and it is not there"),
        "{error}"
    );
    assert!(error.contains(".previous"), "{error}");
}

#[test]
fn an_error_at_any_step_leaves_a_state_with_its_secrets() {
    let (old, new) = (secret_state_of_revision(10), secret_state_of_revision(11));
    let steps = SECRETS_STEPS + STEPS;
    for (failure, at) in [Failure::Error, Failure::ErrorAfter]
        .into_iter()
        .flat_map(|failure| (0..steps).map(move |at| (failure, at)))
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let mut store = FileStore::open(&path).unwrap();
        store.load().unwrap();
        store.save(&old, None).unwrap();
        store.disk = Box::new(FailingDisk {
            at,
            failure,
            steps: 0,
        });
        let saved = store.save(&new, Some(10));
        drop(store);
        let context = format!("{failure:?} at step {at}: {saved:?}");
        let found = load(&path).expect(&context).unwrap();
        let is_new = matches!(saved, Ok(()) | Err(StoreError::Uncertain { .. }));
        assert_eq!(&found, if is_new { &new } else { &old }, "{context}");
        // The next saves mend whatever was left.
        let mut store = FileStore::open(&path).unwrap();
        let revision = store.load().unwrap().unwrap().revision;
        store
            .save(&secret_state_of_revision(12), Some(revision))
            .unwrap();
        store.save(&secret_state_of_revision(13), Some(12)).unwrap();
        drop(store);
        let expected = ["", ".lock", ".previous", ".secrets-12", ".secrets-13"];
        assert_eq!(suffixes(&path), expected, "{context}");
        assert_eq!(load(&path).unwrap(), Some(secret_state_of_revision(13)));
    }
}

#[test]
fn secrets_that_cannot_be_removed_do_not_fail_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut store = FileStore::open(&path).unwrap();
    store.load().unwrap();
    store.save(&secret_state_of_revision(1), None).unwrap();
    store.save(&secret_state_of_revision(2), Some(1)).unwrap();
    store.disk = Box::new(FailingDisk {
        at: SECRETS_STEPS + STEPS,
        failure: Failure::Error,
        steps: 0,
    });
    store.save(&secret_state_of_revision(3), Some(2)).unwrap();
    assert!(beside(&path, ".secrets-1").exists());
    store.save(&secret_state_of_revision(4), Some(3)).unwrap();
    assert!(!beside(&path, ".secrets-1").exists());
}

const CHILD_PATH: &str = "WEIR_TEST_STORE_PATH";
const CHILD_STEP: &str = "WEIR_TEST_STORE_STEP";
const CHILD_SECRETS: &str = "WEIR_TEST_STORE_SECRETS";

/// What a child saves at each revision.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Saves {
    /// A state without secrets.
    Plain,
    /// One in which the secrets changed.
    Secrets,
}

impl Saves {
    fn state(self, revision: u64) -> State {
        match self {
            Self::Plain => state_of_revision(revision),
            Self::Secrets => secret_state_of_revision(revision),
        }
    }
}

/// Not a test of its own: the process that the tests below kill. It saves one revision after
/// another and says so after each.
#[test]
fn child_that_saves() {
    let Some(path) = std::env::var_os(CHILD_PATH) else {
        return;
    };
    let mut store = FileStore::open(Path::new(&path)).unwrap();
    let mut stored = store.load().unwrap().map(|state| state.revision);
    let saves = match std::env::var_os(CHILD_SECRETS) {
        Some(_) => Saves::Secrets,
        None => Saves::Plain,
    };
    if let Ok(step) = std::env::var(CHILD_STEP) {
        let at = step.parse().unwrap();
        store.disk = Box::new(FailingDisk {
            at,
            failure: Failure::Die,
            steps: 0,
        });
    }
    loop {
        let revision = stored.unwrap_or(0) + 1;
        store.save(&saves.state(revision), stored).unwrap();
        stored = Some(revision);
        println!("\nsaved {revision}");
        std::io::stdout().flush().unwrap();
    }
}

fn spawn_child(path: &Path, saves: Saves, step: Option<usize>) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "store::file::tests::child_that_saves",
        "--nocapture",
    ]);
    command
        .env(CHILD_PATH, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if saves == Saves::Secrets {
        command.env(CHILD_SECRETS, "1");
    }
    if let Some(step) = step {
        command.env(CHILD_STEP, step.to_string());
    }
    command.spawn().unwrap()
}

/// Reads what a child said it saved; kills it after `saves` of them, if ever.
fn watch_child(mut child: std::process::Child, saves: Option<u64>) -> u64 {
    let (mut acknowledged, mut seen) = (0, 0);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        if let Some(revision) = line.strip_prefix("saved ") {
            acknowledged = revision.parse().unwrap();
            seen += 1;
            if Some(seen) == saves {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    for saves in [Saves::Plain, Saves::Secrets] {
        survives_kill_9(saves);
    }
}

fn survives_kill_9(saves: Saves) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut last = 0;
    for round in 0..8 {
        let acknowledged = watch_child(spawn_child(&path, saves, None), Some(3 + round * 5));
        assert!(
            acknowledged > last,
            "the child saved nothing in round {round}"
        );
        let found = load(&path).unwrap().unwrap();
        assert!(
            found.revision >= acknowledged,
            "{} < {acknowledged}",
            found.revision
        );
        assert_eq!(found, saves.state(found.revision));
        last = found.revision;
    }
}

#[test]
fn death_at_any_step_leaves_a_whole_state() {
    for (before, steps) in files_of(&state_of_revision(20)) {
        // A second save too.
        for step in 0..steps + STEPS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.json");
            fs::write(&path, &before).unwrap();
            let acknowledged =
                watch_child(spawn_child(&path, Saves::Plain, Some(step)), None).max(20);
            check_way_back(&path, &before);
            let found = load(&path).unwrap().unwrap();
            assert_eq!(found, state_of_revision(found.revision), "step {step}");
            let lost = found.revision < acknowledged;
            assert!(
                !lost,
                "step {step}: {acknowledged} was acknowledged, {} found",
                found.revision
            );
            assert!(found.revision <= acknowledged + 1, "step {step}");
        }
    }
}

#[test]
fn death_at_any_step_leaves_a_state_and_the_one_before_with_their_secrets() {
    // The second save and those after it remove secrets, too.
    let step_count = SECRETS_STEPS + STEPS + 2 * (SECRETS_STEPS + STEPS + 1);
    for step in 0..step_count {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let mut store = FileStore::open(&path).unwrap();
        store.load().unwrap();
        store.save(&secret_state_of_revision(20), None).unwrap();
        drop(store);
        let child = spawn_child(&path, Saves::Secrets, Some(step));
        let acknowledged = watch_child(child, None).max(20);
        let found = load(&path).unwrap().unwrap();
        assert_eq!(
            found,
            secret_state_of_revision(found.revision),
            "step {step}"
        );
        let expected = acknowledged..=acknowledged + 1;
        assert!(
            expected.contains(&found.revision),
            "step {step}: {} of {expected:?}",
            found.revision
        );
        // The way back from a damaged file.
        let previous = beside(&path, ".previous");
        if previous.exists() {
            fs::rename(&previous, &path).unwrap();
            let before = load(&path).unwrap().unwrap();
            assert_eq!(
                before,
                secret_state_of_revision(before.revision),
                "step {step}"
            );
        }
    }
}
