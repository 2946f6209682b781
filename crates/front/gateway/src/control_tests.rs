//! A change is carried through whole or undone, whatever fails on its way.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::engine::fake::FakeEngine;
use crate::name::HostName;
use crate::state::{
    Chap, Credentials, ExportName, Host, HostSpec, InitiatorName, IscsiChange, ListenerSpec,
    NamespacePatch, NamespaceSpec, NvmeChange, Secret, SubsystemPatch, SubsystemSpec, TargetSpec,
    Visibility,
};
use crate::store::FileStore;

/// What a store in memory shares with the test.
#[derive(Default)]
struct Shelf {
    stored: Option<State>,
    /// How many of the next saves fail.
    failing: u32,
    /// Number of next saves that are done but may not be durable.
    uncertain: u32,
}

fn shelf_of(stored: Option<State>) -> Shelf {
    Shelf {
        stored,
        ..Shelf::default()
    }
}

/// A store in memory that fails when told to.
struct MemoryStore(Arc<Mutex<Shelf>>);

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Option<State>, StoreError> {
        Ok(lock(&self.0).stored.clone())
    }

    fn save(&mut self, state: &State, expected: Option<u64>) -> Result<(), StoreError> {
        let mut shelf = lock(&self.0);
        let found = shelf.stored.as_ref().map(|state| state.revision);
        assert_eq!(
            found, expected,
            "saved over a revision that it does not know"
        );
        if shelf.failing > 0 {
            shelf.failing -= 1;
            let source = std::io::Error::other("injected");
            return Err(StoreError::System {
                step: "write",
                path: "shelf".into(),
                source,
            });
        }
        shelf.stored = Some(state.clone());
        if shelf.uncertain > 0 {
            shelf.uncertain -= 1;
            let (path, source) = ("shelf".into(), std::io::Error::other("injected"));
            return Err(StoreError::Uncertain { path, source });
        }
        Ok(())
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(work)
}

struct Setup {
    engine: Arc<FakeEngine>,
    shelf: Arc<Mutex<Shelf>>,
    control: Arc<Control>,
}

async fn start_on(engine: FakeEngine, shelf: Shelf) -> Setup {
    let (engine, shelf) = (Arc::new(engine), Arc::new(Mutex::new(shelf)));
    let store = Box::new(MemoryStore(shelf.clone()));
    let control = Control::start(engine.clone(), store).await.unwrap();
    Setup {
        engine,
        shelf,
        control,
    }
}

async fn start() -> Setup {
    start_on(FakeEngine::new(), Shelf::default()).await
}

impl Setup {
    /// What must hold between any two changes.
    fn check(&self) {
        let state = self.control.state();
        let failures = self.control.failures();
        assert_eq!(
            self.engine.applied().unwrap(),
            state,
            "applied is not current"
        );
        let stored = lock(&self.shelf).stored.clone().unwrap_or_default();
        assert_eq!(stored, *state, "stored is not current");
        let open = |name: &&VolumeName| !failures.volumes.contains_key(*name);
        let volumes: Vec<_> = state.volumes.keys().filter(open).cloned().collect();
        assert_eq!(self.engine.open_volumes(), volumes);
        let open = |address: &&ListenerAddress| !failures.listeners.contains_key(*address);
        let listeners: Vec<_> = state.portals.keys().filter(open).cloned().collect();
        assert_eq!(self.engine.open_listeners(), listeners);
    }
}

fn add_volume(name: &str) -> Change {
    Change::AddVolume {
        name: name.parse().unwrap(),
        url: url(name),
    }
}

fn url(name: &str) -> String {
    format!("mem:{name}?size=1M")
}

fn add_listener(port: u16) -> Change {
    let address = ListenerAddress::parse("*", port).unwrap();
    Change::AddListener {
        address,
        spec: ListenerSpec::default(),
    }
}

fn nqn(name: &str) -> crate::name::Nqn {
    format!("nqn.2026-01.com.example:{name}").parse().unwrap()
}

fn add_subsystem(name: &str) -> Change {
    Change::Nvme(NvmeChange::AddSubsystem {
        nqn: nqn(name),
        spec: SubsystemSpec::default(),
    })
}

fn add_namespace(subsystem: &str, volume: &str) -> Change {
    let spec = NamespaceSpec {
        volume: volume.parse().unwrap(),
        uuid: None,
        nguid: None,
        eui64: None,
        read_only: None,
        visible_to: None,
        qos: None,
    };
    Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn(subsystem),
        nsid: None,
        spec,
    })
}

#[test]
fn a_change_is_opened_stored_and_applied() {
    run(async {
        let setup = start().await;
        for change in [
            add_volume("a"),
            add_subsystem("s"),
            add_namespace("s", "a"),
            add_listener(1),
        ] {
            assert!(setup.control.change(change.clone()).await.unwrap().changed);
            setup.check();
            assert!(!setup.control.change(change).await.unwrap().changed);
            setup.check();
        }
        assert_eq!(setup.engine.created(), ["a".parse().unwrap()]);
    });
}

#[test]
fn what_cannot_be_opened_changes_nothing() {
    run(async {
        let setup = start().await;
        setup.engine.fail_url(&url("a"), true);
        let error = setup.control.change(add_volume("a")).await.unwrap_err();
        assert!(
            matches!(error, ControlError::Engine(EngineError::OpenVolume { .. })),
            "{error}"
        );
        setup.check();
        assert_eq!(setup.control.state().revision, 0);
    });
}

#[test]
fn what_cannot_be_stored_is_closed_again() {
    run(async {
        let setup = start().await;
        lock(&setup.shelf).failing = 1;
        let error = setup.control.change(add_volume("a")).await.unwrap_err();
        assert!(matches!(error, ControlError::Store(_)), "{error}");
        setup.check();
        setup.control.change(add_volume("a")).await.unwrap();
        setup.check();
    });
}

#[test]
fn what_cannot_be_applied_is_rolled_back_in_store_and_engine() {
    run(async {
        let setup = start().await;
        setup.control.change(add_volume("a")).await.unwrap();
        let before = setup.control.state();
        setup.engine.fail_applies(1);
        assert!(setup.control.change(add_subsystem("s")).await.is_err());
        setup.check();
        let after = setup.control.state();
        assert_eq!(after.volumes, before.volumes);
        assert!(after.subsystems.is_empty());
        assert!(
            after.revision > before.revision,
            "reactors may have seen the failed revision"
        );
        assert!(after.discovery_generation > before.discovery_generation);
    });
}

fn chap(secret: &str) -> Change {
    let secret = Secret::new("secret", secret.to_owned()).unwrap();
    let initiator = Credentials {
        user: "u".to_owned(),
        secret,
    };
    Change::Iscsi(IscsiChange::SetChap {
        target: "iqn.2026-01.com.example:t".parse().unwrap(),
        chap: Some(Chap {
            initiator,
            target: None,
        }),
    })
}

#[test]
fn secrets_of_a_change_that_fails_are_rolled_back_and_their_generation_is_no_other_s() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let kept = run(async {
        let store = Box::new(FileStore::open(&path).unwrap());
        let engine = Arc::new(FakeEngine::new());
        let control = Control::start(engine.clone(), store).await.unwrap();
        let add = Change::Iscsi(IscsiChange::AddTarget {
            target: "iqn.2026-01.com.example:t".parse().unwrap(),
            spec: TargetSpec::default(),
        });
        for change in [add, chap("a secret of one")] {
            control.change(change).await.unwrap();
        }
        let before = control.state();
        engine.fail_applies(1);
        assert!(control.change(chap("a secret of two")).await.is_err());
        let after = control.state();
        assert_eq!(after.secrets.chap, before.secrets.chap);
        let failed = before.revision + 1;
        assert_eq!(after.secrets.generation, Some(failed + 1));
        assert_eq!(engine.applied().unwrap(), after);
        after
    });
    run(async {
        let store = Box::new(FileStore::open(&path).unwrap());
        let control = Control::start(Arc::new(FakeEngine::new()), store).await;
        assert_eq!(control.unwrap().state(), kept);
    });
}

/// A start on what another wrote, where the first `refusals` tries to open something find it in use.
async fn start_where_used(refusals: u32) -> (Setup, Duration) {
    let setup = start().await;
    for change in [add_volume("a"), add_volume("b"), add_listener(1)] {
        setup.control.change(change).await.unwrap();
    }
    let stored = lock(&setup.shelf).stored.clone();
    let engine = FakeEngine::new();
    engine.refuse_as_used(refusals);
    let began = tokio::time::Instant::now();
    let setup = start_on(engine, shelf_of(stored)).await;
    setup.check();
    (setup, began.elapsed())
}

#[test]
fn start_waits_for_what_is_still_in_use() {
    run(async {
        let (setup, took) = start_where_used(20).await;
        assert!(setup.control.failures().is_empty());
        assert_eq!(setup.engine.refusals_left(), 0);
        // Two volumes ask at the same time.
        assert_eq!(took, START_POLL * 10);
    });
}

#[test]
fn start_does_not_wait_for_ever_for_what_stays_in_use() {
    run(async {
        let (setup, took) = start_where_used(u32::MAX).await;
        let failures = setup.control.failures();
        // All of them together get the time that one of them would.
        assert_eq!(failures.volumes.len() + failures.listeners.len(), 3);
        assert_eq!(took, START_PATIENCE);
    });
}

#[test]
fn start_goes_on_without_what_cannot_be_opened() {
    run(async {
        let setup = start().await;
        let changes = [
            add_volume("a"),
            add_volume("b"),
            add_subsystem("s"),
            add_namespace("s", "a"),
            add_listener(1),
            add_listener(2),
        ];
        for change in changes {
            setup.control.change(change).await.unwrap();
        }
        let stored = lock(&setup.shelf).stored.clone();
        let engine = FakeEngine::new();
        let (name, address): (VolumeName, _) = ("a".parse().unwrap(), "*:1".parse().unwrap());
        engine.fail_url(&url("a"), true);
        engine.fail_listener(&address, true);
        let setup = start_on(engine, shelf_of(stored)).await;
        setup.check();
        let failures = setup.control.failures();
        assert_eq!(failures.volumes.len() + failures.listeners.len(), 2);
        assert!(failures.volumes[&name].contains("told to fail"));
        assert!(setup.control.retry_volume(name.clone()).await.is_err());
        setup.engine.fail_url(&url("a"), false);
        setup.control.retry_volume(name.clone()).await.unwrap();
        setup.check();
        setup.control.retry_volume(name).await.unwrap();
        setup.engine.fail_listener(&address, false);
        let generation = setup.control.state().discovery_generation;
        let retrying = tokio::spawn(setup.control.clone().retry_forever());
        tokio::time::sleep(RETRY_PAUSE_MIN * 2).await;
        retrying.abort();
        assert!(setup.control.failures().is_empty());
        setup.check();
        let counted = setup.control.state().discovery_generation;
        assert_eq!(
            counted,
            generation + 1,
            "hosts are not told of the late listener"
        );
        assert!(
            setup.engine.created().is_empty(),
            "a restart made a volume anew"
        );
    });
}

#[test]
fn a_failed_volume_can_be_removed() {
    run(async {
        let setup = start().await;
        setup.control.change(add_volume("a")).await.unwrap();
        let stored = lock(&setup.shelf).stored.clone();
        let engine = FakeEngine::new();
        engine.fail_url(&url("a"), true);
        let setup = start_on(engine, shelf_of(stored)).await;
        let remove = Change::RemoveVolume {
            name: "a".parse().unwrap(),
        };
        setup.control.change(remove).await.unwrap();
        assert!(setup.control.failures().is_empty());
        setup.check();
    });
}

#[test]
fn a_change_that_may_not_be_stored_for_good_is_undone_in_the_store_too() {
    run(async {
        // The state before is put back, for good or not.
        for uncertain in [1, 2] {
            let setup = start().await;
            setup.control.change(add_volume("a")).await.unwrap();
            let before = setup.control.state();
            lock(&setup.shelf).uncertain = uncertain;
            let error = setup.control.change(add_volume("b")).await.unwrap_err();
            assert!(
                matches!(error, ControlError::Store(StoreError::Uncertain { .. })),
                "{error}"
            );
            setup.check();
            assert_eq!(setup.control.state().volumes, before.volumes);
            setup.control.change(add_volume("b")).await.unwrap();
            setup.check();
        }
    });
}

#[test]
fn a_resize_that_may_not_be_stored_for_good_is_in_the_state() {
    run(async {
        let setup = start().await;
        let name: VolumeName = "a".parse().unwrap();
        setup.control.change(add_volume("a")).await.unwrap();
        lock(&setup.shelf).uncertain = 1;
        let resized = setup.control.resize(name.clone(), 2 << 20, false).await;
        let error = resized.unwrap_err();
        assert!(
            matches!(error, ControlError::ResizeNotStored { .. }),
            "{error}"
        );
        setup.check();
        let url = setup.control.state().volume(&name).unwrap().url.clone();
        assert_eq!(url, "mem:a?size=2097152");
    });
}

#[test]
fn a_resize_is_in_the_url_after_a_restart() {
    run(async {
        let setup = start().await;
        let name: VolumeName = "a".parse().unwrap();
        setup.control.change(add_volume("a")).await.unwrap();
        setup
            .control
            .resize(name.clone(), 2 << 20, false)
            .await
            .unwrap();
        setup.check();
        assert_eq!(
            setup.control.state().volume(&name).unwrap().url,
            "mem:a?size=2097152"
        );
        let error = setup
            .control
            .resize(name.clone(), 1 << 20, false)
            .await
            .unwrap_err();
        assert!(matches!(
            error,
            ControlError::Engine(EngineError::WouldShrink { .. })
        ));
        setup
            .control
            .resize(name.clone(), 1 << 20, true)
            .await
            .unwrap();
        lock(&setup.shelf).failing = 1;
        let error = setup
            .control
            .resize(name, 4 << 20, false)
            .await
            .unwrap_err();
        assert!(
            matches!(error, ControlError::ResizeNotStored { .. }),
            "{error}"
        );
    });
}

#[test]
fn a_change_ends_even_if_nobody_waits() {
    run(async {
        let setup = start().await;
        let control = setup.control.clone();
        let caller = tokio::spawn(async move { control.change(add_volume("a")).await });
        tokio::task::yield_now().await;
        caller.abort();
        // Saving is on another thread; the next change waits for the one that was left alone.
        setup.control.change(add_volume("b")).await.unwrap();
        assert_eq!(setup.control.state().volumes.len(), 2);
        setup.check();
    });
}

#[test]
fn nothing_changes_after_shutdown() {
    run(async {
        let setup = start().await;
        setup
            .control
            .shut_down(Duration::from_secs(3))
            .await
            .unwrap();
        let error = setup.control.change(add_volume("a")).await.unwrap_err();
        assert!(matches!(error, ControlError::ShuttingDown));
        assert_eq!(setup.engine.shut_down(), Some(Duration::from_secs(3)));
        setup.check();
    });
}

/// A start on what has volumes a and b, where the medium of a does not answer.
async fn start_where_one_hangs() -> Setup {
    let setup = start().await;
    let changes = [
        add_volume("a"),
        add_volume("b"),
        add_subsystem("s"),
        add_namespace("s", "a"),
        add_namespace("s", "b"),
        add_listener(1),
    ];
    for change in changes {
        setup.control.change(change).await.unwrap();
    }
    let stored = lock(&setup.shelf).stored.clone();
    let engine = FakeEngine::new();
    engine.hang_url(&url("a"), true);
    let began = Instant::now();
    let setup = start_on(engine, shelf_of(stored)).await;
    assert_eq!(began.elapsed(), START_TIME_MAX);
    setup
}

fn remove_volume(name: &str) -> Change {
    Change::RemoveVolume {
        name: name.parse().unwrap(),
    }
}

fn remove_namespace(subsystem: &str, nsid: u32) -> Change {
    Change::Nvme(NvmeChange::RemoveNamespace {
        nqn: nqn(subsystem),
        nsid,
    })
}

/// Waits until something is so.
async fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(600);
    while !is() {
        assert!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[track_caller]
fn is_busy(result: Result<impl std::fmt::Debug, ControlError>, is: Doing) {
    match result {
        Err(ControlError::VolumeBusy(busy)) => assert_eq!(busy.doing, is),
        other => panic!("{other:?}"),
    }
}

#[test]
fn start_goes_on_without_what_does_not_answer_and_serves_it_when_it_does() {
    run(async {
        let setup = start_where_one_hangs().await;
        // All the rest is open and applied.
        setup.check();
        let name: VolumeName = "a".parse().unwrap();
        let reason = setup.control.failures().volumes[&name].clone();
        assert!(reason.contains("not answered within 6 seconds"), "{reason}");
        // Everything else can be changed, and it is not opened twice.
        let began = Instant::now();
        setup.control.change(add_volume("c")).await.unwrap();
        setup
            .control
            .change(remove_namespace("s", 2))
            .await
            .unwrap();
        setup.control.change(remove_volume("b")).await.unwrap();
        is_busy(
            setup.control.retry_volume(name.clone()).await,
            Doing::Opening,
        );
        assert_eq!(began.elapsed(), Duration::ZERO, "something has waited");
        setup.check();
        let retrying = tokio::spawn(setup.control.clone().retry_forever());
        tokio::time::sleep(RETRY_PAUSE_MAX * 10).await;
        retrying.abort();
        setup.check();
        setup.engine.hang_url(&url("a"), false);
        until("it is open", || setup.control.failures().is_empty()).await;
        setup.check();
        assert!(
            !setup.engine.created().contains(&name),
            "a restart made a volume anew"
        );
    });
}

#[test]
fn a_volume_that_does_not_answer_can_be_removed_and_is_closed_when_it_opens() {
    run(async {
        let setup = start_where_one_hangs().await;
        setup
            .control
            .change(remove_namespace("s", 1))
            .await
            .unwrap();
        setup.control.change(remove_volume("a")).await.unwrap();
        assert!(setup.control.failures().is_empty());
        setup.check();
        is_busy(setup.control.change(add_volume("a")).await, Doing::Opening);
        setup.engine.hang_url(&url("a"), false);
        let busy = || !lock(&setup.control.busy).is_empty();
        until("it has opened, and is closed", || !busy()).await;
        setup.check();
        setup.control.change(add_volume("a")).await.unwrap();
        setup.check();
    });
}

#[test]
fn the_end_does_not_wait_for_what_does_not_answer() {
    run(async {
        let setup = start_where_one_hangs().await;
        setup.engine.hang_url(&url("c"), true);
        let control = setup.control.clone();
        let adding = tokio::spawn(async move { control.change(add_volume("c")).await });
        until("it opens", || lock(&setup.control.busy).len() == 2).await;
        let began = Instant::now();
        setup
            .control
            .shut_down(Duration::from_secs(3))
            .await
            .unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        // What opens now ends with all the rest, or is closed.
        setup.engine.hang_url(&url("a"), false);
        setup.engine.hang_url(&url("c"), false);
        let added = adding.await.unwrap();
        assert!(
            matches!(added, Err(ControlError::ShuttingDown)),
            "{added:?}"
        );
        let busy = || !lock(&setup.control.busy).is_empty();
        until("it is done with both", || !busy()).await;
        let open = setup.engine.open_volumes();
        assert!(!open.contains(&"c".parse().unwrap()), "{open:?}");
    });
}

#[test]
fn an_added_volume_that_does_not_answer_changes_nothing_and_is_closed_when_it_does() {
    run(async {
        let setup = start().await;
        setup.engine.hang_url(&url("a"), true);
        let began = Instant::now();
        let control = setup.control.clone();
        let adding = tokio::spawn(async move { control.change(add_volume("a")).await });
        until("it opens", || !lock(&setup.control.busy).is_empty()).await;
        // Others go on meanwhile; who wants the same is refused.
        setup.control.change(add_volume("b")).await.unwrap();
        is_busy(setup.control.change(add_volume("a")).await, Doing::Opening);
        assert!(began.elapsed() < Duration::from_secs(1));
        let error = adding.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("not answered within 40 seconds"), "{error}");
        assert_eq!(began.elapsed(), OPEN_TIME_MAX);
        setup.check();
        setup.engine.hang_url(&url("a"), false);
        until("it is closed", || lock(&setup.control.busy).is_empty()).await;
        setup.check();
        assert_eq!(setup.control.state().volumes.len(), 1);
        setup.control.change(add_volume("a")).await.unwrap();
        setup.check();
    });
}

#[test]
fn a_retry_waits_for_a_time_and_its_volume_is_served_whenever_it_opens() {
    run(async {
        let setup = start().await;
        setup.control.change(add_volume("a")).await.unwrap();
        let stored = lock(&setup.shelf).stored.clone();
        let engine = FakeEngine::new();
        engine.fail_url(&url("a"), true);
        let setup = start_on(engine, shelf_of(stored)).await;
        setup.engine.fail_url(&url("a"), false);
        setup.engine.hang_url(&url("a"), true);
        let name: VolumeName = "a".parse().unwrap();
        let began = Instant::now();
        let error = setup.control.retry_volume(name.clone()).await.unwrap_err();
        assert_eq!(began.elapsed(), OPEN_TIME_MAX);
        assert!(error.to_string().contains("not answered"), "{error}");
        let reason = setup.control.failures().volumes[&name].clone();
        assert!(
            reason.contains("not answered within 40 seconds"),
            "{reason}"
        );
        setup.engine.hang_url(&url("a"), false);
        until("it is open", || setup.control.failures().is_empty()).await;
        setup.control.retry_volume(name).await.unwrap();
        setup.check();
    });
}

#[test]
fn what_is_removed_while_it_is_tried_again_has_not_failed() {
    run(async {
        let setup = start().await;
        setup.control.change(add_volume("a")).await.unwrap();
        let stored = lock(&setup.shelf).stored.clone();
        let engine = FakeEngine::new();
        engine.fail_url(&url("a"), true);
        let setup = start_on(engine, shelf_of(stored)).await;
        setup.engine.hang_url(&url("a"), true);
        let control = setup.control.clone();
        let retried = "a".parse().unwrap();
        let trying = tokio::spawn(async move { control.retry_volume(retried).await });
        until("it opens", || !lock(&setup.control.busy).is_empty()).await;
        setup.control.change(remove_volume("a")).await.unwrap();
        assert!(trying.await.unwrap().is_err());
        assert!(setup.control.failures().is_empty());
        setup.check();
    });
}

#[test]
fn a_resize_that_does_not_answer_holds_up_nothing_and_is_kept_when_it_is_done() {
    run(async {
        let setup = start().await;
        let name: VolumeName = "a".parse().unwrap();
        setup.control.change(add_volume("a")).await.unwrap();
        setup.engine.hang_url(&url("a"), true);
        let (control, resized) = (setup.control.clone(), name.clone());
        let began = Instant::now();
        let resizing = tokio::spawn(async move { control.resize(resized, 2 << 20, false).await });
        until("it resizes", || !lock(&setup.control.busy).is_empty()).await;
        setup.control.change(add_volume("b")).await.unwrap();
        setup.check();
        let refused = setup.control.resize(name.clone(), 3 << 20, false).await;
        is_busy(refused, Doing::Resizing);
        is_busy(
            setup.control.change(remove_volume("a")).await,
            Doing::Resizing,
        );
        assert!(began.elapsed() < Duration::from_secs(1));
        setup.check();
        let error = resizing.await.unwrap().unwrap_err();
        assert!(
            matches!(error, ControlError::ResizeUnanswered { .. }),
            "{error}"
        );
        assert_eq!(began.elapsed(), RESIZE_TIME_MAX);
        setup.engine.hang_url(&url("a"), false);
        until("it is done", || lock(&setup.control.busy).is_empty()).await;
        let state = setup.control.state();
        assert_eq!(state.volume(&name).unwrap().url, "mem:a?size=2097152");
        setup.check();
    });
}

#[test]
fn the_end_keeps_the_size_of_what_is_resized_and_waits_for_no_other_for_long() {
    for answers in [true, false] {
        run(async {
            let setup = start().await;
            let name: VolumeName = "a".parse().unwrap();
            setup.control.change(add_volume("a")).await.unwrap();
            setup.engine.hang_url(&url("a"), true);
            let (control, resized) = (setup.control.clone(), name.clone());
            tokio::spawn(async move { control.resize(resized, 2 << 20, false).await });
            until("it resizes", || !lock(&setup.control.busy).is_empty()).await;
            let began = Instant::now();
            let engine = setup.engine.clone();
            if answers {
                tokio::spawn(async move {
                    tokio::time::sleep(RESIZE_END_MAX / 2).await;
                    engine.hang_url(&url("a"), false);
                });
            }
            setup
                .control
                .shut_down(Duration::from_secs(3))
                .await
                .unwrap();
            let stored = lock(&setup.shelf).stored.clone().unwrap();
            let kept = stored.volume(&name).unwrap().url.clone();
            if answers {
                assert_eq!(kept, "mem:a?size=2097152");
                assert!(began.elapsed() < RESIZE_END_MAX);
            } else {
                assert_eq!(kept, url("a"));
                assert_eq!(began.elapsed(), RESIZE_END_MAX);
            }
        });
    }
}

/// A change that may be asked for, and what goes wrong on its way.
#[derive(Debug, Clone)]
struct Attempt {
    change: Change,
    store_fails: bool,
    apply_fails: bool,
}

fn any_attempt() -> impl Strategy<Value = Attempt> {
    let name = || prop_oneof![Just("a"), Just("b")];
    let change = prop_oneof![
        name().prop_map(add_volume),
        name().prop_map(|name| Change::RemoveVolume {
            name: name.parse().unwrap()
        }),
        name().prop_map(add_subsystem),
        name().prop_map(|name| Change::Nvme(NvmeChange::RemoveSubsystem {
            nqn: nqn(name),
            force: true
        })),
        (name(), name()).prop_map(|(subsystem, volume)| add_namespace(subsystem, volume)),
        name().prop_map(|name| Change::Nvme(NvmeChange::RemoveNamespace {
            nqn: nqn(name),
            nsid: 1
        })),
        name().prop_map(|name| Change::AddHost {
            name: nqn(name).into(),
            spec: HostSpec::default()
        }),
        (1_u16..3).prop_map(add_listener),
        (1_u16..3).prop_map(|port| Change::RemoveListener {
            address: ListenerAddress::parse("*", port).unwrap()
        }),
    ];
    let rarely = || proptest::bool::weighted(0.15);
    (change, rarely(), rarely()).prop_map(|(change, store_fails, apply_fails)| Attempt {
        change,
        store_fails,
        apply_fails,
    })
}

proptest! {
    /// Whatever is asked for and whatever fails: what is stored, applied, open and shown agree, and
    /// a restart finds the same.
    #[test]
    fn stored_applied_and_open_always_agree(
        attempts in proptest::collection::vec(any_attempt(), 1..30),
    ) {
        run(async {
            let setup = start().await;
            for attempt in attempts {
                lock(&setup.shelf).failing = attempt.store_fails.into();
                setup.engine.fail_applies(attempt.apply_fails.into());
                let _ = setup.control.change(attempt.change).await;
                lock(&setup.shelf).failing = 0;
                setup.engine.fail_applies(0);
                setup.check();
            }
            let stored = lock(&setup.shelf).stored.clone();
            let again = start_on(FakeEngine::new(), shelf_of(stored)).await;
            again.check();
            assert_eq!(again.control.state(), setup.control.state());
        });
    }
}

#[test]
fn a_file_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let acknowledged = run(async {
        let store = Box::new(FileStore::open(&path).unwrap());
        let control = Control::start(Arc::new(FakeEngine::new()), store)
            .await
            .unwrap();
        for change in [add_volume("a"), add_subsystem("s"), add_namespace("s", "a")] {
            control.change(change).await.unwrap();
        }
        control.state()
    });
    run(async {
        let store = Box::new(FileStore::open(&path).unwrap());
        let control = Control::start(Arc::new(FakeEngine::new()), store)
            .await
            .unwrap();
        assert_eq!(control.state(), acknowledged);
    });
}

fn namespace(subsystem: &str, nsid: u32) -> ExportName {
    ExportName::Namespace {
        subsystem: nqn(subsystem),
        nsid,
    }
}

fn under_way(host: &str, subsystem: &str, nsid: u32) -> RevokedReport {
    RevokedReport {
        host: InitiatorName::Nqn(nqn(host)),
        export: namespace(subsystem, nsid),
        requests: 3,
    }
}

#[test]
fn a_change_waits_for_what_it_took_away_and_says_what_has_not_ended() {
    run(async {
        let setup = start().await;
        let change = |change| setup.control.change(change);
        for first in [add_volume("a"), add_subsystem("s")] {
            change(first).await.unwrap();
        }
        change(add_namespace("s", "a")).await.unwrap();
        let read_only = || {
            Change::Nvme(NvmeChange::SetNamespace {
                nqn: nqn("s"),
                nsid: 1,
                patch: NamespacePatch {
                    read_only: Some(true),
                    ..NamespacePatch::default()
                },
            })
        };
        let engine = setup.engine.clone();
        engine.set_revoked(vec![under_way("h", "s", 1), under_way("h", "t", 1)]);
        // Where it is so already, what it took away may be under way still.
        for _ in 0..2 {
            let began = Instant::now();
            let error = change(read_only()).await.unwrap_err();
            assert!(began.elapsed() >= REVOKED_TIME_MAX);
            let told = error.to_string();
            assert!(told.contains("3 of host") && told.contains(":s"), "{told}");
            assert!(!told.contains(":t"), "{told}");
            assert!(
                setup
                    .control
                    .state()
                    .namespace(&nqn("s"), 1)
                    .unwrap()
                    .read_only
            );
            setup.check();
        }
        // It keeps no other change waiting.
        let (control, began) = (setup.control.clone(), Instant::now());
        let waiting = tokio::spawn(async move { control.change(read_only()).await });
        change(add_subsystem("u")).await.unwrap();
        assert!(began.elapsed() < REVOKED_TIME_MAX);
        engine.set_revoked(Vec::new());
        waiting.await.unwrap().unwrap();
        assert!(began.elapsed() < REVOKED_TIME_MAX);
    });
}

#[test]
fn changes_know_what_they_take_away() {
    let host: HostName = "machine".parse().unwrap();
    let machine = Host {
        nqns: [nqn("h"), nqn("also-h")].into(),
        ..Host::default()
    };
    let before = State {
        hosts: [(host.clone(), machine)].into(),
        ..State::default()
    };
    let takes_of = |change: &Change, own: &str| {
        let cases = [(own, "s", 1), ("g", "s", 1), (own, "t", 1), (own, "s", 2)];
        cases.map(|(host, subsystem, nsid)| {
            let host = InitiatorName::Nqn(nqn(host));
            change.takes_from(&before, &host, &namespace(subsystem, nsid))
        })
    };
    let set_subsystem = |allow_any_host| {
        Change::Nvme(NvmeChange::SetSubsystem {
            nqn: nqn("s"),
            patch: SubsystemPatch { allow_any_host },
        })
    };
    let set_namespace = |patch| {
        Change::Nvme(NvmeChange::SetNamespace {
            nqn: nqn("s"),
            nsid: 1,
            patch,
        })
    };
    let nothing = NamespacePatch::default();
    let yes = |read_only| NamespacePatch {
        read_only: Some(read_only),
        ..nothing.clone()
    };
    let visible = NamespacePatch {
        visible_to: Some(Visibility::Hosts(BTreeSet::new())),
        ..nothing.clone()
    };
    let cases = [
        (
            Change::RemoveHost {
                name: host.clone(),
                force: true,
            },
            [true, false, true, true],
        ),
        (
            Change::Nvme(NvmeChange::DisallowHost {
                nqn: nqn("s"),
                host,
            }),
            [true, false, false, true],
        ),
        (set_subsystem(Some(false)), [true, true, false, true]),
        (set_subsystem(Some(true)), [false; 4]),
        (
            Change::Nvme(NvmeChange::RemoveSubsystem {
                nqn: nqn("s"),
                force: true,
            }),
            [true, true, false, true],
        ),
        (set_namespace(yes(true)), [true, true, false, false]),
        (set_namespace(visible), [true, true, false, false]),
        (set_namespace(yes(false)), [false; 4]),
        (set_namespace(nothing.clone()), [false; 4]),
        (remove_namespace("s", 1), [true, true, false, false]),
        (add_volume("a"), [false; 4]),
    ];
    for (change, expected) in cases {
        assert_eq!(takes_of(&change, "h"), expected, "{change}");
        assert_eq!(takes_of(&change, "also-h"), expected, "{change}");
    }
}

/// A table with one registrant that is to outlast a restart.
fn reserved(key: u64) -> Option<StoredTable> {
    use weir_nvme::feature::HostIdentifier;
    use weir_reservation::{Operation, Registrant, Table};

    let register = Operation::Register {
        key,
        persistence: Some(true),
    };
    let host = Registrant::Host(HostIdentifier::Short([1; 8]));
    Table::default()
        .apply(&host, &register)
        .unwrap()
        .table
        .stored()
}

#[test]
fn reservations_are_stored_before_a_host_is_answered_or_stay_as_they_were() {
    run(async {
        let setup = start().await;
        setup.control.change(add_volume("a")).await.unwrap();
        let keeping = tokio::spawn(setup.control.clone().keep_reservations_forever());
        let name: VolumeName = "a".parse().unwrap();
        let stored = || {
            let state = lock(&setup.shelf).stored.clone().unwrap();
            assert_eq!(*setup.control.state(), state, "stored is not current");
            state.volumes[&name].reservations.clone()
        };
        assert!(setup.engine.reserve(&name, reserved(1)).await);
        assert_eq!(stored(), reserved(1));
        // What is not stored, or perhaps is, is not in force.
        lock(&setup.shelf).failing = 1;
        assert!(!setup.engine.reserve(&name, reserved(2)).await);
        assert_eq!(stored(), reserved(1));
        lock(&setup.shelf).uncertain = 1;
        assert!(!setup.engine.reserve(&name, None).await);
        assert_eq!(stored(), reserved(1));
        // Other changes keep it, and a restart finds it.
        setup.control.change(add_volume("b")).await.unwrap();
        assert_eq!(stored(), reserved(1));
        let shelf = shelf_of(lock(&setup.shelf).stored.clone());
        let again = start_on(FakeEngine::new(), shelf).await;
        assert_eq!(
            again.control.state().volumes[&name].reservations,
            reserved(1)
        );
        assert!(setup.engine.reserve(&name, None).await);
        assert_eq!(stored(), None);
        // A volume that is gone has none.
        setup
            .control
            .change(Change::RemoveVolume { name: name.clone() })
            .await
            .unwrap();
        assert!(!setup.engine.reserve(&name, reserved(3)).await);
        keeping.abort();
    });
}
