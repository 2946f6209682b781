//! What the tests of load have in common: a simulated machine, and volumes on it.

// Not every test needs all of it.
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Faults, Simulation, seed_from_env_or_random};
use weir_volume::{Access, Registry, VolumeUrl};

/// Runs `main` on a simulated machine of its own.
pub(crate) fn simulate_with<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    main: impl FnOnce(Reactor) -> F + 'static,
) -> T {
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let host = simulation.host_id("host");
    simulation.run(host, main)
}

/// As [`simulate_with`], with a seed that differs each time and is printed.
pub(crate) fn simulate<T: 'static, F: Future<Output = T> + 'static>(
    main: impl FnOnce(Reactor) -> F + 'static,
) -> T {
    let seed = seed_from_env_or_random();
    println!("seed {seed}");
    simulate_with(seed, main)
}

/// As [`simulate`], with a disk on which a request takes about 1.5 ms, so that a run has few.
pub(crate) fn simulate_on_slow_disk<T: 'static, F: Future<Output = T> + 'static>(
    main: impl FnOnce(Reactor) -> F + 'static,
) -> T {
    let seed = seed_from_env_or_random();
    println!("seed {seed}");
    let delay = Duration::from_millis(1)..=Duration::from_millis(2);
    let simulation = Simulation::new(Config {
        seed,
        faults: Faults {
            read_delay: delay.clone(),
            write_delay: delay,
            ..Faults::default()
        },
        ..Config::default()
    });
    let host = simulation.host_id("host");
    simulation.run(host, main)
}

/// Opens a volume to read and write.
pub(crate) async fn open(reactor: &Reactor, url: &str) -> Arc<dyn Volume> {
    let url: VolumeUrl = url.parse().expect("the test's URL is well formed");
    let mut registry = Registry::standard();
    weir_faulty::register(&mut registry);
    let opened = registry.open(reactor, &url, Access::READ_WRITE).await;
    opened.expect("the test's volume opens")
}
