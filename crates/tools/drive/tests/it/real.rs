//! Drives on the simulated machine: written to the end, interrupted and taken up again, and refused where they are others.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    CompletionSink, FenceReply, Geometry, Health, HealthFuture, HealthReport, Queue, ResizeFuture,
    Volume, VolumeError, Watcher,
};
use weir_drive::document::{HealthSample, Pass};
use weir_drive::real::{self, Held, Progress, Subject};
use weir_drive::simulated;
use weir_drive::{Config, DriveState, PassKind, State};
use weir_load::Stop;
use weir_reactor::Reactor;
use weir_reactor::sim::{Config as SimulationConfig, Simulation, seed_from_env_or_random};
use weir_ssd::{Model, Profile, SCHEME, SsdVolume};
use weir_volume::{Access, Registry, VolumeUrl};

const MIB: u64 = 1 << 20;

fn simulate<T: 'static, F: Future<Output = T> + 'static>(
    main: impl FnOnce(Reactor) -> F + 'static,
) -> T {
    let seed = seed_from_env_or_random();
    println!("seed {seed}");
    let simulation = Simulation::new(SimulationConfig {
        seed,
        ..SimulationConfig::default()
    });
    let host = simulation.host_id("host");
    simulation.run(host, main)
}

async fn open(reactor: &Reactor, url: &str) -> Arc<dyn Volume> {
    let url: VolumeUrl = url.parse().expect("the test's URL is well formed");
    let mut registry = Registry::standard();
    registry.register(SCHEME, SsdVolume::factory());
    let opened = registry.open(reactor, &url, Access::READ_WRITE).await;
    opened.expect("the test's volume opens")
}

fn config() -> Config {
    Config {
        block_bytes: 64 << 10,
        depth: 4,
        idle: Duration::from_secs(3),
        ..Config::default()
    }
}

fn subject(volume: &Arc<dyn Volume>, config: &Config) -> Subject {
    let size = config.check(&real::limits(volume)).expect("it fits");
    let identity = real::identity(volume, volume.name());
    Subject {
        volume: Arc::clone(volume),
        state: DriveState::new(identity, volume.name(), size),
    }
}

async fn run(reactor: &Reactor, subjects: Vec<Subject>, config: &Config, stop: &Stop) -> State {
    let observe = |_: Progress| {};
    let remotes = [reactor.remote()];
    let states = real::run(reactor, &remotes, subjects, config, stop, observe, |_| {}).await;
    State::new(config.clone(), String::new(), states)
}

#[test]
fn a_drive_of_a_known_rate_is_found_to_have_it_in_every_pass() {
    let state = simulate(|reactor| async move {
        // 2,000 writes of 64 KiB a second are 125 MiB/s.
        let volume = open(&reactor, "null:?size=2G&rate=2000&delay=1ms").await;
        let config = Config {
            purge: true,
            ..config()
        };
        run(
            &reactor,
            vec![subject(&volume, &config)],
            &config,
            &Stop::new(),
        )
        .await
    });
    assert!(state.is_complete());
    let drive = state.drives[0].drive(&state.config);
    let kinds: Vec<_> = drive.passes.iter().map(|pass| pass.pass).collect();
    assert_eq!(kinds, PassKind::ALL);
    for pass in &drive.passes {
        assert_eq!(pass.phases.len(), 1, "{:?}", pass.phases);
        let rate = pass.phases[0].rate;
        // What deallocates takes its turn too.
        let most = 2000.0 * 65536.0;
        assert!(
            (0.97 * most..1.005 * most).contains(&rate.median),
            "{rate:?}"
        );
        assert!(pass.complete);
        let expected = match pass.pass {
            PassKind::Recovery => 2048 * MIB / 20 / 65536 * 65536 + 65536,
            _ => 2048 * MIB,
        };
        assert_eq!(pass.bytes(), expected);
    }
    let idle = drive.passes[3].recovery.expect("a recovery").idle_seconds;
    assert!((3.0..3.2).contains(&idle), "{idle}");
    let codes: Vec<_> = state.caveats().into_iter().map(|of| of.code).collect();
    assert_eq!(codes, ["causes-unknown", "discards"]);
    assert!(drive.health_before.is_none() && drive.write_amplification.is_none());
}

/// A drive that takes its time to say how it is; or for ever.
struct Slow {
    inner: Arc<dyn Volume>,
    takes: Option<Duration>,
    asked: AtomicU64,
}

impl Volume for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Arc::clone(&self.inner).open_queue(reactor, depth, sink)
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let (reactor, takes) = (reactor.clone(), self.takes);
        Box::pin(async move {
            match takes {
                Some(takes) => reactor.sleep(takes).await,
                None => std::future::pending().await,
            }
            HealthReport {
                health: Some(Health {
                    data_units_written_bytes: Some(asked),
                    ..Health::default()
                }),
                drives: vec!["A Drive".to_owned()],
                unknown: vec!["it is told in part".to_owned()],
            }
        })
    }
}

/// Fills a drive of 125 MiB/s that takes so long to say how it is; how often it was asked.
fn fill_slow(takes: Option<Duration>) -> (State, u64) {
    simulate(move |reactor| async move {
        let slow = Arc::new(Slow {
            inner: open(&reactor, "null:?size=2G&rate=2000&delay=1ms").await,
            takes,
            asked: AtomicU64::new(0),
        });
        let config = Config {
            passes: vec![PassKind::Fill],
            ..config()
        };
        let volume: Arc<dyn Volume> = Arc::<Slow>::clone(&slow);
        let subjects = vec![subject(&volume, &config)];
        let state = run(&reactor, subjects, &config, &Stop::new()).await;
        (state, slow.asked.load(Ordering::Relaxed))
    })
}

fn check_rate(pass: &Pass) {
    let [phase] = &pass.phases[..] else {
        panic!("{:?}", pass.phases)
    };
    let most = 2000.0 * 65536.0;
    let rate = phase.rate;
    assert!((0.97 * most..1.005 * most).contains(&rate.mean), "{rate:?}");
}

#[test]
fn a_drive_is_asked_for_its_health_beside_its_writes_and_the_seldomer_the_longer_it_takes() {
    let (state, asked) = fill_slow(Some(Duration::from_millis(5)));
    // The fill takes 16 s, in which a drive that answers at once is asked 400 times.
    assert!((6..=10).contains(&asked), "{asked}");
    let drive = state.drives[0].drive(&state.config);
    assert_eq!(drive.identified_as, ["A Drive"]);
    assert_eq!(drive.health_unknown, ["it is told in part"]);
    let [pass] = &drive.passes[..] else {
        panic!("{:?}", drive.passes)
    };
    check_rate(pass);
    let counts = |of: &HealthSample| of.health.data_units_written_bytes.expect("it is said");
    let told: Vec<u64> = pass.health.iter().map(counts).collect();
    let asked_in_it: Vec<u64> = (1..asked - 1).collect();
    assert_eq!(told, asked_in_it, "each answer is taken, in order");
    assert!(pass.health.is_sorted_by_key(|of| of.at_bytes));
    let (first, last) = (
        pass.health[0].at_bytes,
        pass.health[told.len() - 1].at_bytes,
    );
    assert_eq!((first, last), (0, 2048 * MIB));
}

#[test]
fn a_drive_that_never_says_how_it_is_is_measured_all_the_same() {
    let (state, asked) = fill_slow(None);
    assert!(state.is_complete());
    // Before and after the run and the pass, and not on the way.
    assert_eq!(asked, 4);
    let drive = state.drives[0].drive(&state.config);
    assert_eq!((drive.health_before, drive.health_after), (None, None));
    let [reason] = &drive.health_unknown[..] else {
        panic!("{:?}", drive.health_unknown)
    };
    assert!(reason.contains("did not say within 10 s"), "{reason}");
    check_rate(&drive.passes[0]);
}

#[test]
fn a_stall_is_told_and_is_no_phase() {
    let state = simulate(|reactor| async move {
        let volume = open(&reactor, "null:?size=4G&rate=1000&stall=2s@30s").await;
        let config = Config {
            passes: vec![PassKind::Fill],
            ..config()
        };
        run(
            &reactor,
            vec![subject(&volume, &config)],
            &config,
            &Stop::new(),
        )
        .await
    });
    let drive = state.drives[0].drive(&state.config);
    let [phase] = &drive.passes[0].phases[..] else {
        panic!("{:?}", drive.passes[0].phases);
    };
    let slowest = phase.slowest_write_seconds;
    assert!((1.9..2.1).contains(&slowest), "{phase:?}");
    let gap = phase.longest_gap_seconds.expect("it is measured");
    assert!((1.9..2.1).contains(&gap), "{phase:?}");
    let worst = drive.passes[0]
        .worst_windows
        .iter()
        .find(|of| of.seconds >= 1.0);
    assert_eq!(worst.expect("a second").bytes_per_second, 0.0);
    assert!(
        phase.rate.p0_1 < 1.0 && phase.rate.median > 60e6,
        "{phase:?}"
    );
}

#[test]
fn a_run_that_is_stopped_is_taken_up_where_it_was() {
    simulate(|reactor| async move {
        let volume = open(&reactor, "mem:?size=256M&rate=1000").await;
        let config = Config {
            passes: vec![PassKind::Fill, PassKind::OverwriteTrimmed],
            ..config()
        };
        let (stop, seen) = (Stop::new(), Arc::new(Mutex::new(0)));
        let observe = {
            let (stop, seen) = (stop.clone(), Arc::clone(&seen));
            move |progress: Progress| {
                *seen.lock().unwrap() += 1;
                if progress.pass == PassKind::OverwriteTrimmed {
                    stop.stop();
                }
            }
        };
        let remotes = [reactor.remote()];
        let kept = Rc::new(RefCell::new(Vec::new()));
        let subjects = vec![subject(&volume, &config)];
        let states = real::run(
            &reactor,
            &remotes,
            subjects,
            &config,
            &stop,
            observe,
            |states| {
                kept.borrow_mut().push(states.to_vec());
            },
        )
        .await;
        assert!(*seen.lock().unwrap() > 3);
        assert_eq!(kept.borrow().len(), 3, "prepared, and two passes");
        let mut text = Vec::new();
        let state = State::new(config.clone(), String::new(), states);
        assert!(!state.is_complete());
        state.write(&mut text).unwrap();
        let state = State::read(&text[..]).unwrap();
        let current = state.drives[0].current.clone().expect("a pass in between");
        assert!(current.position_bytes > 0 && current.position_bytes < 256 * MIB);
        assert_eq!(state.drives[0].keeps_data, Some(true));
        let again = |state: &DriveState, volume: &Arc<dyn Volume>| Subject {
            volume: Arc::clone(volume),
            state: state.clone(),
        };
        // Another drive of the same size, with something else on it.
        let other = open(&reactor, "mem:?size=256M").await;
        let subjects = vec![again(&state.drives[0], &other)];
        let refused = run(&reactor, subjects, &config, &Stop::new()).await;
        let reason = refused.drives[0].failed.clone().expect("it is another");
        assert!(reason.contains("another drive"), "{reason}");
        assert_eq!(refused.drives[0].current, Some(current.clone()));
        // The same one.
        let subjects = vec![again(&state.drives[0], &volume)];
        let state = run(&reactor, subjects, &config, &Stop::new()).await;
        assert!(state.is_complete(), "{:?}", state.drives[0].failed);
        let pass = &state.drives[0].passes[1];
        assert_eq!((pass.bytes(), pass.complete), (256 * MIB, true));
        assert_eq!(pass.interrupted_at_bytes, [current.written_bytes()]);
        let codes: Vec<_> = state.caveats().into_iter().map(|of| of.code).collect();
        assert_eq!(codes, ["not-purged", "interrupted", "causes-unknown"]);
    });
}

#[test]
fn drives_beside_each_other_are_measured_each_and_together() {
    let state = simulate(|reactor| async move {
        let config = Config {
            passes: vec![PassKind::Fill],
            ..config()
        };
        let mut subjects = Vec::new();
        for rate in [1000, 500] {
            let volume = open(&reactor, &format!("null:?size=2G&rate={rate}")).await;
            subjects.push(subject(&volume, &config));
        }
        run(&reactor, subjects, &config, &Stop::new()).await
    });
    let together = state.together().expect("two drives");
    let rate = together.passes[0].phases[0].rate.median;
    assert!((rate / (1500.0 * 65536.0) - 1.0).abs() < 0.02, "{rate}");
    assert_eq!(together.members.len(), 2);
}

#[test]
fn what_a_drive_cannot_do_ends_it_with_the_reason_and_not_the_others() {
    let state = simulate(|reactor| async move {
        let config = Config {
            passes: vec![PassKind::Fill],
            ..config()
        };
        let good = open(&reactor, "null:?size=1G&rate=1000").await;
        let read_only = Registry::standard()
            .open(
                &reactor,
                &"mem:?size=1G".parse().unwrap(),
                Access::READ_ONLY,
            )
            .await
            .unwrap();
        let refused = config.check(&real::limits(&read_only));
        assert!(refused.unwrap_err().to_string().contains("read-only"));
        let subjects = vec![
            Subject {
                volume: read_only,
                state: subject(&good, &config).state,
            },
            subject(&good, &config),
        ];
        run(&reactor, subjects, &config, &Stop::new()).await
    });
    let reason = state.drives[0]
        .failed
        .clone()
        .expect("it cannot be written");
    assert!(reason.contains("writing"), "{reason}");
    assert_eq!(state.drives[1].failed, None);
    assert!(state.drives[1].is_made(PassKind::Fill));
    let codes: Vec<_> = state.caveats().into_iter().map(|of| of.code).collect();
    assert!(codes.contains(&"failed".to_owned()) && codes.contains(&"unfinished".to_owned()));
}

#[test]
fn a_modelled_drive_is_the_same_as_a_volume_and_on_its_own_clock() {
    const BYTES: u64 = 1 << 30;
    let config = Config {
        depth: 8,
        block_bytes: 256 << 10,
        passes: vec![PassKind::Fill, PassKind::Overwrite],
        ..config()
    };
    let asked = config.clone();
    let as_volume = simulate(|reactor| async move {
        let url = format!("ssd:970-evo-plus-1tb?size={BYTES}&seed=5&noise=0");
        let volume = open(&reactor, &url).await;
        let subjects = vec![subject(&volume, &asked)];
        run(&reactor, subjects, &asked, &Stop::new()).await
    });
    let mut profile = Profile::builtin("970-evo-plus-1tb").expect("it is built in");
    profile.noise = 0.0;
    let profile = profile.scaled(BYTES).expect("a size that a drive may have");
    let mut modelled = DriveState::new(as_volume.drives[0].identity.clone(), String::new(), BYTES);
    let mut model = Model::new(&profile, 5);
    simulated::run(&mut model, &config, &mut modelled, &Stop::new(), |_| {});
    for (one, other) in as_volume.drives[0].passes.iter().zip(&modelled.passes) {
        assert_eq!(one.phases.len(), other.phases.len(), "{:?}", one.pass);
        for (one, other) in one.phases.iter().zip(&other.phases) {
            assert_eq!((&one.name, &one.told_by), (&other.name, &other.told_by));
            let off = one.begins_at_bytes.abs_diff(other.begins_at_bytes);
            assert!(off < BYTES / 50, "{one:?} {other:?}");
            assert!(
                (one.rate.mean / other.rate.mean - 1.0).abs() < 0.05,
                "{one:?} {other:?}"
            );
        }
    }
    let health = as_volume.drives[0]
        .health_after
        .expect("a modelled drive says");
    assert_eq!(health.data_units_written_bytes, Some(2 * BYTES));
    assert!(as_volume.drives[0].drive(&config).write_amplification >= Some(1.0));
}

#[test]
fn drives_that_were_swapped_are_refused_and_so_is_what_something_else_wrote() {
    simulate(|reactor| async move {
        let config = Config {
            passes: vec![PassKind::Fill],
            ..config()
        };
        let mut volumes = Vec::new();
        for _ in 0..2 {
            volumes.push(open(&reactor, "mem:?size=64M&rate=1000").await);
        }
        let subjects = volumes.iter().map(|of| subject(of, &config)).collect();
        let stop = Stop::new();
        let asked = stop.clone();
        let observe = move |progress: Progress| {
            if progress.written_bytes > 16 * MIB {
                asked.stop();
            }
        };
        let remotes = [reactor.remote()];
        let states = real::run(
            &reactor,
            &remotes,
            subjects,
            &config,
            &stop,
            observe,
            |_| {},
        )
        .await;
        // As it is kept on the way, when nothing was read back yet.
        let states: Vec<_> = states
            .into_iter()
            .map(|state| DriveState {
                keeps_data: None,
                ..state
            })
            .collect();
        assert!(states.iter().all(|of| of.is_begun() && of.mark.is_some()));
        let data = real::data(&config, &states);
        let empty = open(&reactor, "mem:?size=64M").await;
        for (volume, state, expected) in [
            (&volumes[0], &states[0], Held::Written),
            (&volumes[1], &states[1], Held::Written),
            (&volumes[1], &states[0], Held::Other(0)),
            (&empty, &states[0], Held::Zeroes),
        ] {
            let held = real::held(&reactor, volume, &config, &data, state).await;
            assert_eq!(held.unwrap(), expected);
        }
        let swapped = [1, 0].map(|place: usize| Subject {
            volume: Arc::clone(&volumes[place]),
            state: states[1 - place].clone(),
        });
        let refused = run(&reactor, swapped.into(), &config, &Stop::new()).await;
        assert!(!refused.is_complete());
        for drive in &refused.drives {
            assert!(
                drive
                    .failed
                    .as_ref()
                    .is_some_and(|of| of.contains("another drive"))
            );
        }
        // Each where it was.
        let again = volumes.iter().zip(&states).map(|(volume, state)| Subject {
            volume: Arc::clone(volume),
            state: state.clone(),
        });
        let state = run(&reactor, again.collect(), &config, &Stop::new()).await;
        assert!(state.is_complete());
        let mut failed = state.clone();
        failed.drives[1].failed = Some("it did not flush".to_owned());
        assert!(!failed.is_complete(), "what failed at its end is not whole");
    });
}

#[test]
fn a_purge_is_of_the_whole_drive_and_one_that_was_stopped_is_none() {
    simulate(|reactor| async move {
        let volume = open(&reactor, "mem:?size=64M").await;
        let fill = Config {
            passes: vec![PassKind::Fill],
            ..config()
        };
        let state = run(&reactor, vec![subject(&volume, &fill)], &fill, &Stop::new()).await;
        let purge = Config {
            purge: true,
            size_bytes: Some(16 * MIB),
            ..fill.clone()
        };
        let stop = Stop::new();
        stop.stop();
        let stopped = run(&reactor, vec![subject(&volume, &purge)], &purge, &stop).await;
        assert!(!stopped.drives[0].purged);
        let data = real::data(&fill, &state.drives);
        let held = real::held(&reactor, &volume, &fill, &data, &state.drives[0]).await;
        assert_eq!(held.unwrap(), Held::Written);
        let purged = run(
            &reactor,
            vec![subject(&volume, &purge)],
            &purge,
            &Stop::new(),
        )
        .await;
        assert!(purged.drives[0].purged);
        // What lies behind the part that is written is gone too.
        let mark = purged.drives[0].mark;
        assert_ne!(mark, state.drives[0].mark);
        let written = DriveState {
            mark,
            ..state.drives[0].clone()
        };
        let data = real::data(&fill, &purged.drives);
        let held = real::held(&reactor, &volume, &fill, &data, &written).await;
        assert!(matches!(held.unwrap(), Held::Other(offset) if offset >= 16 * MIB));
        let config = Config {
            passes: vec![PassKind::Fill, PassKind::OverwriteTrimmed],
            ..fill
        };
        let held = real::held(&reactor, &volume, &config, &data, &written).await;
        assert_eq!(held.unwrap(), Held::Written, "all else is zero");
    });
}
