//! Where cases of a front end run: in the simulator, and over sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
use weir_reactor::{
    LocalFuture, PanicPolicy, Reactor, ReactorConfig, ReactorId, ReactorThread, Remote, System,
};

/// How long something may take to come true. Only a bound: nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of a server's reactor's pool.
const POOL_BYTES: usize = 32 << 20;

/// Where a case runs.
pub struct World {
    /// The hosts' reactor.
    pub reactor: Reactor,
    /// The two reactors of the front end.
    pub remotes: Vec<Remote>,
    /// The front end's address.
    pub ip: IpAddr,
}

impl World {
    /// Waits until something holds.
    ///
    /// # Panics
    /// When it does not for a long time.
    pub async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let until = self.reactor.now() + PATIENCE;
        while !holds().await {
            assert!(self.reactor.now() < until, "{what} did not come true");
            self.reactor.sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Starts a front end's two reactors.
fn start(system: &Arc<dyn System>) -> Vec<ReactorThread> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("server-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes: POOL_BYTES,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) });
        let started = Arc::clone(system).start_reactor(config, main);
        started.expect("a reactor starts")
    };
    (0..2).map(start).collect()
}

/// Runs a case in the simulator, and then over sockets.
pub fn everywhere<F: Future<Output = ()> + 'static>(
    case: impl Fn(World) -> F + Copy + Send + 'static,
) {
    simulated(case);
    over_sockets(case);
}

/// Runs a case in the simulator, with a seed that a failure prints.
pub fn simulated<F: Future<Output = ()> + 'static>(case: impl Fn(World) -> F + Copy + 'static) {
    let simulation = Simulation::new(Config {
        seed: seed_from_env_or_random(),
        ..Config::default()
    });
    let threads = start(&simulation.system(0));
    let remotes = threads.iter().map(|thread| thread.remote.clone()).collect();
    let ip = simulation.address(0);
    simulation.run(1, move |reactor| {
        case(World {
            reactor,
            remotes,
            ip,
        })
    });
}

/// Runs a case over real sockets.
///
/// # Panics
/// Where io_uring is not to be had.
pub fn over_sockets<F: Future<Output = ()> + 'static>(
    case: impl Fn(World) -> F + Copy + Send + 'static,
) {
    let system: Arc<dyn System> =
        LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
    let threads = start(&system);
    let host = start(&system).remove(0);
    let remotes = threads.iter().map(|thread| thread.remote.clone()).collect();
    let work = move |reactor| {
        case(World {
            reactor,
            remotes,
            ip: Ipv4Addr::LOCALHOST.into(),
        })
    };
    host.remote.call_blocking(work).expect("it runs");
    for thread in threads.into_iter().chain([host]) {
        thread.remote.stop();
        thread.join();
    }
}
