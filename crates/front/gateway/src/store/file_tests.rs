//! A save is whole or not at all, whatever fails and whenever the process dies.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

fn state_of_revision(revision: u64) -> State {
    let mut state = State {
        revision,
        discovery_generation: revision,
        ..State::default()
    };
    // Length varies with the revision, so that a mix of two states is noticed.
    for index in 0..revision % 23 {
        let volume = crate::state::Volume {
            url: format!("mem:{revision}?size=1M"),
        };
        state
            .volumes
            .insert(format!("v{index}").parse().unwrap(), volume);
    }
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

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.note("synced", path);
        RealDisk.sync_directory(path)
    }
}

/// Steps of one save, once there is a state: create, write, sync, link, rename, sync the directory.
const STEPS: usize = 6;
const LINK_STEP: usize = 3;

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
    fs::write(
        &path,
        "{\"format\": 3, \"crc32c\": \"00000000\", \"state\": {}}",
    )
    .unwrap();
    let error = load(&path).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Newer {
                format: 3,
                known: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_state_that_breaks_a_rule_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut state = state_of_revision(3);
    state.volumes.insert(
        "bad".parse().unwrap(),
        crate::state::Volume { url: String::new() },
    );
    fs::write(&path, encode(&state)).unwrap();
    assert!(matches!(load(&path), Err(StoreError::Invalid { .. })));
}

#[test]
fn migrations_run_in_order_from_the_format_found() {
    let first: Migration = |mut value| {
        value["path"] = Value::from(format!("{}1", value["path"].as_str().unwrap()));
        Ok(value)
    };
    let second: Migration = |mut value| {
        value["path"] = Value::from(format!("{}2", value["path"].as_str().unwrap()));
        Ok(value)
    };
    let start = || serde_json::json!({"path": "-"});
    let path = |format| migrate(start(), format, &[first, second]).unwrap()["path"].clone();
    assert_eq!(path(1), "-12");
    assert_eq!(path(2), "-2");
    assert_eq!(path(3), "-");
    assert!(migrate(start(), 0, &[first]).is_err());
    let fails: Migration = |_| Err("no".into());
    assert_eq!(migrate(start(), 1, &[fails, second]), Err("no".into()));
}

#[test]
fn a_state_without_limits_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let text = r#"{"revision": 2, "discovery_generation": 1, "volumes": {"a": {"url": "mem:?size=1M"}}, "hosts": {},
        "subsystems": {"nqn.2014-08.org.example:a": {"serial": "S", "model": "Weir", "allow_any_host": true, "allowed_hosts": [],
        "controller_ids": {"min": 1, "max": 65519}, "ana_changes": 0, "namespaces": {"1": {"volume": "a",
        "uuid": "11111111-2222-4333-8444-555555555555", "nguid": "11111111222243338444555555555555", "eui64": "1111111122224333",
        "read_only": false, "ana_group": 1, "visible_to": "all"}}}}, "listeners": {}}"#;
    let crc32c = checksum(text);
    fs::write(
        &path,
        format!("{{\"format\": 1, \"crc32c\": \"{crc32c}\", \"state\": {text}}}\n"),
    )
    .unwrap();
    let state = load(&path).unwrap().unwrap();
    let (_, _, namespace) = state.namespaces().next().unwrap();
    assert!(namespace.qos.is_empty());
    // And what is saved from then on is read back.
    let mut store = FileStore::open(&path).unwrap();
    store.load().unwrap();
    let mut limited = state.clone();
    limited.revision += 1;
    for namespace in limited
        .subsystems
        .values_mut()
        .flat_map(|one| one.namespaces.values_mut())
    {
        namespace.qos.write_iops = Some(crate::state::QosLimit {
            limit: 1000,
            burst: 100,
        });
    }
    store.save(&limited, Some(2)).unwrap();
    drop(store);
    assert_eq!(load(&path).unwrap(), Some(limited));
}

#[test]
fn an_error_at_any_step_leaves_the_old_state_or_the_new() {
    for failure in [Failure::Error, Failure::ErrorAfter] {
        for at in 0..STEPS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.json");
            let (old, new) = (state_of_revision(10), state_of_revision(11));
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
            let found = load(&path).unwrap().unwrap();
            let context = format!("{failure:?} at step {at}: {saved:?}");
            match saved {
                Ok(()) => assert_eq!((at, &found), (LINK_STEP, &new), "{context}"),
                Err(StoreError::Uncertain { .. }) => assert_eq!(found, new, "{context}"),
                Err(_) => assert_eq!(found, old, "{context}"),
            }
            // The next save mends whatever was left.
            let mut store = FileStore::open(&path).unwrap();
            let revision = store.load().unwrap().unwrap().revision;
            store.save(&state_of_revision(12), Some(revision)).unwrap();
            drop(store);
            assert_eq!(
                load(&path).unwrap(),
                Some(state_of_revision(12)),
                "{context}"
            );
        }
    }
}

const CHILD_PATH: &str = "WEIR_TEST_STORE_PATH";
const CHILD_STEP: &str = "WEIR_TEST_STORE_STEP";

/// Not a test of its own: the process that the tests below kill. It saves one revision after
/// another and says so after each.
#[test]
fn child_that_saves() {
    let Some(path) = std::env::var_os(CHILD_PATH) else {
        return;
    };
    let mut store = FileStore::open(Path::new(&path)).unwrap();
    let mut stored = store.load().unwrap().map(|state| state.revision);
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
        store.save(&state_of_revision(revision), stored).unwrap();
        stored = Some(revision);
        println!("\nsaved {revision}");
        std::io::stdout().flush().unwrap();
    }
}

fn spawn_child(path: &Path, step: Option<usize>) -> std::process::Child {
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
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let mut last = 0;
    for round in 0..8 {
        let acknowledged = watch_child(spawn_child(&path, None), Some(3 + round * 5));
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
        assert_eq!(found, state_of_revision(found.revision));
        last = found.revision;
    }
}

#[test]
fn death_at_any_step_leaves_a_whole_state() {
    for step in 0..2 * STEPS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let mut store = FileStore::open(&path).unwrap();
        store.load().unwrap();
        store.save(&state_of_revision(20), None).unwrap();
        drop(store);
        let acknowledged = watch_child(spawn_child(&path, Some(step)), None).max(20);
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
