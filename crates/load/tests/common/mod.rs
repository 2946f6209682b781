//! What the tests of load have in common: a simulated machine, and volumes on it.

// Not every test needs all of it.
#![allow(dead_code)]

use std::sync::Arc;

use weir_block::Volume;
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
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

/// Opens a volume to read and write.
pub(crate) async fn open(reactor: &Reactor, url: &str) -> Arc<dyn Volume> {
    let url: VolumeUrl = url.parse().expect("the test's URL is well formed");
    let registry = Registry::standard();
    let opened = registry.open(reactor, &url, Access::READ_WRITE).await;
    opened.expect("the test's volume opens")
}
