//! Time, determinism, reactors, crashes, and what is said when nothing moves.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

#[test]
fn the_clock_moves_only_to_timers() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        let (slept, in_all) = simulation.run(0, |reactor| async move {
            let began = reactor.now();
            reactor.sleep(Duration::from_secs(3600)).await;
            let slept = reactor.now() - began;
            let other = reactor.clone();
            let task = reactor.spawn(async move { other.sleep(Duration::from_millis(1)).await });
            reactor.sleep(Duration::from_millis(2)).await;
            task.await;
            (slept, reactor.now() - began)
        });
        assert_eq!(slept, Duration::from_secs(3600));
        assert_eq!(in_all, Duration::from_secs(3600) + Duration::from_millis(2));
        assert_eq!(simulation.elapsed(), in_all);
        simulation.run_for(Duration::from_secs(1));
        assert_eq!(simulation.elapsed(), in_all + Duration::from_secs(1));
    });
}

#[test]
fn hosts_share_the_wall_clock_and_not_the_monotonic_one() {
    let simulation = Simulation::new(Config::default());
    let clocks = |host: usize| {
        simulation.run(host, |reactor| async move {
            (reactor.now(), reactor.system().wall_clock())
        })
    };
    let (first, second) = (clocks(0), clocks(1));
    assert_ne!(first.0, second.0);
    assert_eq!(first.1, second.1);
    simulation.world().step_wall_clock(-5_000_000_000);
    let set = clocks(0);
    assert_eq!(set.0, first.0);
    assert_eq!(set.1, first.1 - Duration::from_secs(5));
}

/// A run with everything in it; the hash of its trace.
fn busy_run(seed: u64) -> (u64, u64) {
    let simulation = Simulation::new(Config {
        seed,
        faults: Faults {
            delay_spike_probability: 0.01,
            disk_stall_probability: 0.1,
            write_error_probability: 0.1,
            reactor_stall_probability: 0.01,
            ..Faults::default()
        },
        ..Config::default()
    });
    let (address, _) = start_echo(&simulation, 0, 7);
    for client in 1..4 {
        simulation.run(client, move |reactor| async move {
            let stream = connect(&reactor, address).await.unwrap();
            send_all(&stream, &[1; 5000]).await.unwrap();
            receive_exactly(&stream, 5000).await.unwrap();
            reactor.offload(|| ()).await.unwrap();
            let (file, _) = open(reactor.system(), "/file", &create(1 << 20)).unwrap();
            for block in 0..10 {
                let _ = write(&file, &reactor, block * 4096, &[1; 4096], false).await;
            }
            reactor
                .sleep(Duration::from_nanos(reactor.random() % 1000))
                .await;
        });
    }
    simulation.crash(0, Crash::Power);
    simulation.run_for(Duration::from_secs(1));
    (simulation.trace_hash(), simulation.steps())
}

#[test]
fn one_seed_gives_one_run() {
    let seed = seed_from_env_or_random();
    let first = busy_run(seed);
    assert_eq!(first, busy_run(seed), "seed {seed}");
    assert_ne!(first, busy_run(seed.wrapping_add(1)), "seed {seed}");
}

#[test]
fn reactors_are_turned_in_different_orders() {
    let order = |seed| {
        let simulation = Simulation::new(Config {
            seed,
            ..Config::default()
        });
        let log = Arc::new(std::sync::Mutex::new(Vec::new()));
        for id in 0..4 {
            let log = Arc::clone(&log);
            let config = ReactorConfig {
                id: ReactorId(id),
                ..ReactorConfig::default()
            };
            let main: crate::ReactorMain = Box::new(move |reactor| {
                Box::pin(async move { log.lock().unwrap().push(reactor.id().0) })
            });
            simulation.system(0).start_reactor(config, main).unwrap();
        }
        simulation.run_to_end();
        log.lock().unwrap().clone()
    };
    let orders: std::collections::BTreeSet<_> = (0..64).map(order).collect();
    assert!(orders.len() > 10, "only {} orders", orders.len());
    assert!(orders.iter().all(|order| order.len() == 4));
}

fn message_of(result: Result<(), Box<dyn std::any::Any + Send>>) -> String {
    let payload = result.expect_err("it panics");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    })
    .expect("a panic with a message")
}

#[test]
fn what_hangs_is_named_with_the_seed() {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let simulation = Simulation::new(Config {
            seed: 4711,
            ..Config::default()
        });
        let listener = listen(&simulation.system(0), 7);
        simulation.run(0, move |reactor| async move {
            TcpListener::new(&reactor, listener).accept().await.unwrap();
        });
    }));
    let message = message_of(result);
    assert!(
        message.contains("nothing is left that could happen"),
        "{message}"
    );
    assert!(message.contains("WEIR_SEED=4711"), "{message}");
    assert!(message.contains("accept on handle"), "{message}");
}

#[test]
fn what_never_rests_runs_out_of_rounds() {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let simulation = Simulation::new(Config {
            rounds_max: 1000,
            ..Config::default()
        });
        let spin = |_| {
            std::future::poll_fn(|context: &mut std::task::Context<'_>| {
                context.waker().wake_by_ref();
                std::task::Poll::<()>::Pending
            })
        };
        simulation.run(0, spin);
    }));
    let message = message_of(result);
    assert!(message.contains("too many rounds"), "{message}");
}

#[test]
fn what_takes_too_long_is_given_up() {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let simulation = Simulation::new(Config {
            time_max: Duration::from_secs(10),
            ..Config::default()
        });
        simulation.run(0, |reactor| async move {
            reactor.sleep(Duration::from_secs(11)).await;
        });
    }));
    let message = message_of(result);
    assert!(message.contains("too long"), "{message}");
    assert!(message.contains("has a timer at 11s"), "{message}");
}

#[test]
fn a_panic_in_a_task_is_the_tests() {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let simulation = Simulation::new(Config::default());
        simulation.run(0, |reactor| async move {
            reactor.spawn(async { panic!("a broken invariant") }).await
        })
    }));
    assert_eq!(message_of(result), "a broken invariant");
    // The thread is fit for another simulation.
    assert_eq!(busy_run(1), busy_run(1));
}

#[test]
fn an_isolated_panic_ends_only_its_task() {
    let simulation = Simulation::new(Config::default());
    let ended: Result<(), crate::Panicked> = simulation.run(0, |reactor| async move {
        reactor
            .spawn_isolated(async { panic!("one connection") })
            .await
    });
    assert_eq!(ended.unwrap_err().message, "one connection");
}

#[test]
fn reactors_answer_one_another_and_blocking_callers() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        let (_, started) = start_echo(&simulation, 0, 7);
        let remote = started.remote.clone();
        let id = simulation.run(1, move |_| async move {
            remote.call(|reactor| async move { reactor.id() }).await
        });
        assert_eq!(id, Ok(ReactorId(0)));
        let blocking = started.remote.call_blocking(|reactor| async move {
            reactor.sleep(Duration::from_secs(1)).await;
            reactor.offload(|| 7).await
        });
        assert_eq!(blocking, Ok(Some(7)));
        let remote = started.remote.clone();
        remote.stop();
        started.join();
        let late = remote.call_blocking(|_| async {});
        assert_eq!(
            late,
            Err(crate::Stopped {
                reactor: ReactorId(0)
            })
        );
    });
}

#[test]
fn offloaded_work_runs_later() {
    let simulation = Simulation::new(Config::default());
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    let at_once = simulation.run(0, move |reactor| async move {
        let seen = Arc::clone(&flag);
        reactor
            .system()
            .offload(Box::new(move || flag.store(true, Ordering::Relaxed)));
        seen.load(Ordering::Relaxed)
    });
    assert!(!at_once);
    simulation.run_for(Duration::from_millis(10));
    assert!(ran.load(Ordering::Relaxed));
    let answer = simulation.run(0, |reactor| async move {
        reactor
            .offload(|| -> u32 { panic!("this work alone") })
            .await
    });
    assert_eq!(answer, None);
}

/// Counts its drops.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A reactor with a task that waits for ever, one that ticks, and a file operation that goes on and on.
fn start_ticking(simulation: &Simulation, ticks: &Arc<AtomicU64>, drops: &Arc<AtomicU64>) {
    let (ticks, drops) = (Arc::clone(ticks), Counted(Arc::clone(drops)));
    let system = simulation.system(0);
    let main: crate::ReactorMain = Box::new(move |reactor| {
        Box::pin(async move {
            let waiting = reactor.clone();
            let keep = async move {
                let _drops = drops;
                let _sockets = pair(&waiting, &options()).await;
                let (file, _) = open(waiting.system(), "/f", &create(4096)).unwrap();
                while write(&file, &waiting, 0, &[1; 4096], false).await.is_ok() {}
            };
            reactor.spawn(keep).detach();
            loop {
                reactor.sleep(Duration::from_millis(1)).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    system
        .start_reactor(ReactorConfig::default(), main)
        .unwrap();
}

#[test]
fn a_crash_ends_reactors_and_drops_their_tasks() {
    for crash in [Crash::Process, Crash::Power] {
        for_seeds(4, |config| {
            let simulation = Simulation::new(config);
            let (ticks, drops) = Default::default();
            start_ticking(&simulation, &ticks, &drops);
            simulation.run_for(Duration::from_millis(10));
            let before = ticks.load(Ordering::Relaxed);
            assert!((9..=10).contains(&before), "{before} ticks");
            simulation.crash(0, crash);
            simulation.run_for(Duration::from_millis(10));
            assert_eq!(ticks.load(Ordering::Relaxed), before);
            assert_eq!(drops.load(Ordering::Relaxed), 1);
            let refused = simulation.system(0);
            let refused = Arc::clone(&refused).open_file(Path::new("/f"), &create(1));
            assert!(refused.unwrap_err().to_string().contains("host0 is down"));

            simulation.restart(0);
            start_ticking(&simulation, &ticks, &drops);
            simulation.run_for(Duration::from_millis(10));
            assert!(ticks.load(Ordering::Relaxed) > before);
        });
    }
}

#[test]
fn a_task_may_crash_its_own_host() {
    let simulation = Simulation::new(Config::default());
    let world = simulation.world();
    let after = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&after);
    let main: crate::ReactorMain = Box::new(move |reactor| {
        Box::pin(async move {
            let (file, _) = open(reactor.system(), "/f", &create(4096)).unwrap();
            world.crash(0, Crash::Power);
            // Without effect: the power is gone.
            let _ = write(&file, &reactor, 0, &[1; 4096], true).await;
            seen.store(true, Ordering::Relaxed);
        })
    });
    let started = simulation
        .system(0)
        .start_reactor(ReactorConfig::default(), main);
    started.unwrap().join();
    simulation.run_for(Duration::from_secs(1));
    assert!(!after.load(Ordering::Relaxed));
    simulation.restart(0);
    let contents = simulation.run(0, |reactor| async move {
        let (file, _) = open(reactor.system(), "/f", &OpenOptions::default()).unwrap();
        read(&file, &reactor, 0, 4096).await.unwrap()
    });
    assert!(contents.iter().all(|&byte| byte == 0));
}

#[test]
fn a_stalled_host_does_nothing_and_then_goes_on() {
    let simulation = Simulation::new(Config::default());
    let (ticks, drops) = Default::default();
    start_ticking(&simulation, &ticks, &drops);
    simulation.run_for(Duration::from_millis(10));
    let before = ticks.load(Ordering::Relaxed);
    simulation.stall(0, Duration::from_millis(100));
    simulation.run_for(Duration::from_millis(99));
    assert_eq!(ticks.load(Ordering::Relaxed), before);
    simulation.run_for(Duration::from_millis(10));
    assert!(ticks.load(Ordering::Relaxed) > before);
}

#[test]
fn a_stopping_reactor_gives_everything_back() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let (ticks, drops) = Default::default();
        start_ticking(&simulation, &ticks, &drops);
        simulation.run_for(Duration::from_millis(10));
        drop(simulation);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn dropping_a_future_ends_its_operation() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let (client, _server) = pair(&reactor, &options()).await;
            let polled = Rc::new(Cell::new(false));
            let flag = Rc::clone(&polled);
            let task = reactor.spawn(async move {
                flag.set(true);
                let _ = client.receive().await;
            });
            reactor.sleep(Duration::from_millis(1)).await;
            assert!(polled.get());
            drop(task);
            reactor.sleep(Duration::from_millis(1)).await;
        });
        // The socket was closed with its last operation, and its peer with its task.
        simulation.run_for(Duration::from_secs(1));
        assert_eq!(simulation.connections(), []);
    });
}
