//! Two Weirs: the initiator against the target, in a simulated world and over the machine's loopback.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Operation, ReadBuffers, Volume, VolumeError, VolumeEvent};
use weir_initiator::options::CommonOptions;
use weir_nvme::Nqn;
use weir_nvme_host::{ConnectError, HostIdentity, NvmeHost, Options, discover};
use weir_nvme_target::{
    Allowed, ListenerConfig, Namespace, Port, Snapshot, Subsystem, Target, TargetConfig,
};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::sim::{Config, Simulation, World, seed_from_env_or_random};
use weir_reactor::{LocalFuture, PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, System};
use weir_testing::initiator;
use weir_testing::initiator::{
    Client, Events, every_command, pattern, random_requests, some_connection, write,
};
use weir_volume::{Access, Guard, GuardConfig, Registry, VolumeUrl};

const SUBSYSTEM: &str = "nqn.2024-01.com.example:two-weirs";
const SERVER: usize = 0;
const CLIENT: usize = 1;

fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

/// How a pair is made.
#[derive(Clone)]
struct Shape {
    server_reactors: u32,
    config: TargetConfig,
    block_size: u32,
    blocks: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            server_reactors: 2,
            config: TargetConfig::default(),
            block_size: 512,
            blocks: 16_384,
        }
    }
}

/// A target with one namespace in memory, and where it is.
#[derive(Clone)]
struct Served {
    reactors: Vec<Remote>,
    target: Rc<Target>,
    address: SocketAddr,
    volume: Arc<Guard>,
}

impl Served {
    fn options(&self) -> Options {
        Options::new(
            &self.address.ip().to_string(),
            self.address.port(),
            nqn(SUBSYSTEM),
        )
    }

    /// The volume behind the target, without the network.
    fn direct(&self) -> Arc<dyn Volume> {
        self.volume.clone()
    }

    fn snapshot(&self, generation: u64, allowed: Allowed, with_namespace: bool) -> Snapshot {
        let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "TWO-WEIRS");
        subsystem.allowed = allowed;
        if with_namespace {
            let volume = self.direct();
            subsystem
                .namespaces
                .push(Namespace::new(1, volume, [7; 16]));
        }
        Snapshot {
            generation,
            subsystems: vec![subsystem],
            hosts: Vec::new(),
            ports: vec![Port {
                address: self.address,
                id: 1,
                discovery_only: false,
            }],
        }
    }
}

async fn memory(reactor: &Reactor, shape: &Shape) -> Arc<Guard> {
    let bytes = shape.blocks * u64::from(shape.block_size);
    let url: VolumeUrl = format!("mem:?size={bytes}&block_size={}", shape.block_size)
        .parse()
        .unwrap();
    let registry = Registry::standard();
    let opened = registry.open(reactor, &url, Access::READ_WRITE);
    Guard::new(opened.await.unwrap(), GuardConfig::default()).unwrap()
}

async fn serve(reactor: &Reactor, reactors: Vec<Remote>, at: SocketAddr, shape: &Shape) -> Served {
    let volume = memory(reactor, shape).await;
    let target = Target::new(reactors.clone(), shape.config.clone())
        .await
        .unwrap();
    let address = target.add_listener(ListenerConfig::new(at)).await.unwrap();
    let served = Served {
        reactors,
        target: Rc::new(target),
        address,
        volume,
    };
    let snapshot = served.snapshot(1, Allowed::Any, true);
    served.target.apply(snapshot).await.unwrap();
    served
}

/// Runs `test` on a host of a simulated world whose other host serves.
fn simulated<F: Future<Output = ()> + 'static>(
    shape: Shape,
    test: impl FnOnce(Reactor, Served, World) -> F + 'static,
) {
    let simulation = initiator::simulation();
    let reactors = initiator::start_reactors(&simulation.system(SERVER), shape.server_reactors);
    let server = SocketAddr::new(simulation.address(SERVER), 4420);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let served = serve(&reactor, reactors, server, &shape).await;
        test(reactor, served, world).await;
    });
}

/// Longer than a machine stands still: no time-out of either end is to expire.
const LONG: Duration = Duration::from_secs(600);

/// Runs `test` on the machine itself.
fn on_loopback<F: Future<Output = ()> + 'static>(
    shape: Shape,
    test: impl FnOnce(Reactor, Served) -> F + Send + 'static,
) {
    let shape = Shape {
        config: TargetConfig {
            handshake_timeout: LONG,
            progress_timeout: LONG,
            ..shape.config
        },
        ..shape
    };
    let system: Arc<dyn System> = LinuxSystem::new(LinuxConfig::default()).unwrap();
    let servers = initiator::start_reactors(&system, shape.server_reactors);
    let config = ReactorConfig {
        id: ReactorId(100),
        name: "client".to_owned(),
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let reactors = servers.clone();
    let (sender, done) = weir_reactor::oneshot();
    let main = Box::new(move |reactor: Reactor| -> LocalFuture<()> {
        Box::pin(async move {
            let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
            let served = serve(&reactor, reactors, at, &shape).await;
            test(reactor, served).await;
            sender.send(());
        })
    });
    let client = system.start_reactor(config, main).unwrap();
    let done = done.wait();
    servers.iter().for_each(Remote::stop);
    client.join();
    assert_eq!(done, Some(()), "the test ended without a panic");
}

fn host(reactors: u16) -> Arc<NvmeHost> {
    NvmeHost::new(HostIdentity::from_random([9; 16]), reactors)
}

async fn open(reactor: &Reactor, options: Options) -> Arc<dyn Volume> {
    host(1).open(reactor, options, false).await.unwrap()
}

fn every_way() -> Vec<(Shape, Options)> {
    let mut ways = Vec::new();
    for digests in 0..4 {
        for (in_capsule_bytes, mdts_bytes, block_size) in [
            (0, 8192, 512),
            (8192, 128 << 10, 4096),
            (65_536, 1 << 20, 512),
        ] {
            for queues in [1, 8] {
                let shape = Shape {
                    config: TargetConfig {
                        in_capsule_bytes,
                        mdts_bytes,
                        ..TargetConfig::default()
                    },
                    block_size,
                    ..Shape::default()
                };
                let options = Options {
                    queues: Some(queues),
                    host_data_alignment: digests * 5,
                    common: CommonOptions {
                        header_digest: digests & 1 != 0,
                        data_digest: digests & 2 != 0,
                        ..Options::new("", 0, nqn(SUBSYSTEM)).common
                    },
                    ..Options::new("", 0, nqn(SUBSYSTEM))
                };
                ways.push((shape, options));
            }
        }
    }
    ways
}

fn patient(mut options: Options) -> Options {
    options.common.keep_alive = LONG;
    options.common.io_timeout = LONG;
    options
}

fn at(served: &Served, options: &Options) -> Options {
    Options {
        host: served.address.ip().to_string(),
        port: served.address.port(),
        ..options.clone()
    }
}

#[test]
fn every_command_in_every_way_simulated() {
    for (shape, options) in every_way() {
        simulated(shape, move |reactor, served, _| async move {
            let options = at(&served, &options);
            let volume = open(&reactor, options).await;
            every_command(reactor, volume, served.direct()).await;
        });
    }
}

#[test]
fn every_command_in_every_way_over_loopback() {
    // Without `WEIR_NIGHTLY` each choice of digests meets one shape of the target, with few queues and with many.
    let is_all = std::env::var_os("WEIR_NIGHTLY").is_some();
    let is_chosen = |&(index, _): &(usize, _)| is_all || index / 2 % 3 == index / 6 % 3;
    let ways = every_way().into_iter().enumerate().filter(is_chosen);
    for (_, (shape, options)) in ways {
        on_loopback(shape, move |reactor, served| async move {
            let options = patient(at(&served, &options));
            let volume = open(&reactor, options).await;
            every_command(reactor, volume, served.direct()).await;
        });
    }
}

#[test]
fn random_requests_simulated() {
    for queues in [1, 8] {
        simulated(Shape::default(), move |reactor, served, _| async move {
            let options = Options {
                queues: Some(queues),
                common: CommonOptions {
                    data_digest: true,
                    ..served.options().common
                },
                ..served.options()
            };
            let volume = open(&reactor, options).await;
            random_requests(reactor, volume, served.direct(), 40).await;
        });
    }
}

#[test]
fn random_requests_over_loopback() {
    for queues in [1, 8] {
        on_loopback(Shape::default(), move |reactor, served| async move {
            let options = patient(Options {
                queues: Some(queues),
                common: CommonOptions {
                    header_digest: true,
                    data_digest: true,
                    ..served.options().common
                },
                ..served.options()
            });
            // More of them where `WEIR_NIGHTLY` is set.
            let is_all = std::env::var_os("WEIR_NIGHTLY").is_some();
            let rounds = if is_all { 100 } else { 20 };
            let volume = open(&reactor, options).await;
            random_requests(reactor, volume, served.direct(), rounds).await;
        });
    }
}

/// Registers over two I/O queues.
async fn registers(reactor: Reactor, served: Served, world: World, trouble: fn(&Reactor, &World)) {
    let options = Options {
        queues: Some(2),
        ..served.options()
    };
    let volume: Arc<dyn Volume> = host(2).open(&reactor, options, false).await.unwrap();
    initiator::registers(reactor, volume, served.direct(), world, trouble).await;
}

#[test]
fn acknowledged_writes_stay_when_connections_are_cut() {
    simulated(Shape::default(), |reactor, served, world| async move {
        registers(reactor, served, world, |reactor, world| {
            if let Some(connection) = some_connection(reactor, world, CLIENT) {
                world.cut(&connection);
            }
        })
        .await;
    });
}

#[test]
fn acknowledged_writes_stay_when_connections_fall_silent() {
    simulated(Shape::default(), |reactor, served, world| async move {
        registers(reactor, served, world, |reactor, world| {
            if reactor.random() % 20 == 0
                && let Some(connection) = some_connection(reactor, world, CLIENT)
            {
                world.silence(&connection);
            }
        })
        .await;
    });
}

#[test]
fn acknowledged_writes_stay_when_the_network_is_parted() {
    simulated(Shape::default(), |reactor, served, world| async move {
        registers(reactor, served, world, |reactor, world| {
            match reactor.random() % 10 {
                0 => world.partition(SERVER, CLIENT),
                1..=4 => world.heal_all(),
                _ => {}
            }
        })
        .await;
    });
}

#[test]
fn queues_on_several_reactors_share_a_volume() {
    let seed = seed_from_env_or_random();
    println!("WEIR_SEED={seed}");
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let servers = initiator::start_reactors(&simulation.system(SERVER), 2);
    let workers = initiator::start_reactors(&simulation.system(CLIENT), 3);
    let server = SocketAddr::new(simulation.address(SERVER), 4420);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let served = serve(&reactor, servers, server, &Shape::default()).await;
        let options = Options {
            queues: Some(6),
            ..served.options()
        };
        let volume: Arc<dyn Volume> = host(3).open(&reactor, options, false).await.unwrap();
        let calls: Vec<_> = workers
            .iter()
            .enumerate()
            .map(|(number, worker)| {
                let volume = Arc::clone(&volume);
                worker.call(move |on: Reactor| async move {
                    let mut client = Client::new(&volume, &on, 16);
                    for round in 0..30u8 {
                        let lba = number as u64 * 1000 + u64::from(round) * 20;
                        let data = pattern(20 * 512, round);
                        client.write(lba, &data, 512).await.unwrap();
                        assert!(client.read(lba, 20).await.unwrap() == data);
                        on.sleep(Duration::from_millis(20)).await;
                    }
                })
            })
            .collect();
        // All of them lose their association together.
        reactor.sleep(Duration::from_millis(200)).await;
        let connection = some_connection(&reactor, &world, CLIENT).unwrap();
        world.cut(&connection);
        for call in calls {
            call.await.unwrap();
        }
        let controllers = served.target.controllers();
        assert_eq!(controllers.len(), 1, "the lost controller is gone");
        // Queues that are given up end by themselves, without their association.
        reactor.sleep(Duration::from_secs(3)).await;
        let after = served.target.controllers();
        assert_eq!((after.len(), after[0].id), (1, controllers[0].id));
    });
}

#[test]
fn a_target_that_comes_back_is_found_again() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = open(&reactor, served.options()).await;
        let events = Events::watch(&volume);
        let mut client = Client::new(&volume, &reactor, 4);
        client.write(0, &pattern(4096, 1), 512).await.unwrap();
        served.target.shutdown(Duration::from_secs(1)).await;
        let token = client.submit(write(8, &pattern(4096, 2), 512));
        reactor.sleep(Duration::from_secs(5)).await;
        assert!(client.completions.is_empty(), "it waits");
        let target = Target::new(served.reactors.clone(), TargetConfig::default())
            .await
            .unwrap();
        target
            .add_listener(ListenerConfig::new(served.address))
            .await
            .unwrap();
        target
            .apply(served.snapshot(2, Allowed::Any, true))
            .await
            .unwrap();
        let completion = client.next().await;
        assert_eq!((completion.token, completion.result), (token, Ok(())));
        assert!(client.read(8, 8).await.unwrap() == pattern(4096, 2));
        // Nothing says that the first write was kept meanwhile.
        let seen = [
            VolumeEvent::Lost,
            VolumeEvent::CacheLost,
            VolumeEvent::Restored,
        ];
        assert_eq!(events.seen(), seen);
        let flushed = client.call(Operation::Flush).await.result;
        assert_eq!(flushed, Err(VolumeError::Medium));
    });
}

#[test]
fn a_queue_that_is_cut_costs_no_flush() {
    simulated(Shape::default(), |reactor, served, world| async move {
        let volume = open(&reactor, served.options()).await;
        let events = Events::watch(&volume);
        let mut client = Client::new(&volume, &reactor, 4);
        client.write(0, &pattern(4096, 1), 512).await.unwrap();
        let connections = world.connections();
        // The admin queue was connected first.
        world.cut(connections.last().unwrap());
        assert!(client.read(0, 8).await.unwrap() == pattern(4096, 1));
        assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
        assert_eq!(events.seen(), [VolumeEvent::Lost, VolumeEvent::Restored]);
    });
}

#[test]
fn a_namespace_grows_goes_and_comes_under_io() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = open(&reactor, served.options()).await;
        let events = Events::watch(&volume);
        let mut client = Client::new(&volume, &reactor, 4);
        let end = volume.geometry().blocks;
        assert_eq!(client.read(end, 1).await, Err(VolumeError::OutOfRange));
        let grown = Arc::clone(&served.volume).resize(&reactor, end + 64, false);
        grown.await.unwrap();
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(volume.geometry().blocks, end + 64);
        client.write(end, &pattern(512, 1), 512).await.unwrap();
        assert_eq!(events.seen(), [VolumeEvent::Resized]);
        served
            .target
            .apply(served.snapshot(2, Allowed::Any, false))
            .await
            .unwrap();
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
        served
            .target
            .apply(served.snapshot(3, Allowed::Any, true))
            .await
            .unwrap();
        reactor.sleep(Duration::from_secs(1)).await;
        assert!(client.read(end, 1).await.unwrap() == pattern(512, 1));
    });
}

#[test]
fn discovery_shows_a_host_its_own() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let identity = HostIdentity::from_random([3; 16]);
        let address = served.address.ip().to_string();
        let found = discover(&reactor, &address, None, &identity).await.unwrap();
        let of_subsystem: Vec<_> = found
            .iter()
            .filter(|entry| entry.subsystem.as_str() == SUBSYSTEM)
            .collect();
        assert_eq!(of_subsystem.len(), 1);
        let url: VolumeUrl = of_subsystem[0].url(1).unwrap().parse().unwrap();
        // What discovery tells can be opened as it is.
        let mut registry = Registry::standard();
        registry.register(weir_nvme_host::SCHEME, host(1).factory());
        let volume = registry
            .open(&reactor, &url, Access::READ_WRITE)
            .await
            .unwrap();
        let mut client = Client::new(&volume, &reactor, 4);
        client.write(0, &pattern(512, 1), 512).await.unwrap();

        let other: Allowed = Allowed::List([nqn("nqn.2024-01.com.example:somebody")].into());
        served
            .target
            .apply(served.snapshot(2, other, true))
            .await
            .unwrap();
        let found = discover(&reactor, &address, None, &identity).await.unwrap();
        assert!(
            !found
                .iter()
                .any(|entry| entry.subsystem.as_str() == SUBSYSTEM)
        );
        let refused = host(1)
            .open(&reactor, served.options(), false)
            .await
            .err()
            .unwrap();
        assert!(
            matches!(refused, ConnectError::HostRefused { .. }),
            "{refused}"
        );
        let text = refused.to_string();
        assert!(text.contains("uuid:09090909"), "{text}");
    });
}

#[test]
fn disconnecting_leaves_no_controller_behind() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = open(&reactor, served.options()).await;
        let mut client = Client::new(&volume, &reactor, 4);
        client.write(0, &pattern(512, 1), 512).await.unwrap();
        assert_eq!(served.target.controllers().len(), 1);
        drop((client, volume));
        reactor.sleep(Duration::from_secs(2)).await;
        assert_eq!(served.target.controllers().len(), 0);
        assert_eq!(served.target.stats().connections, 0);
        assert_eq!(
            served
                .target
                .stats()
                .reactors
                .iter()
                .map(|reactor| reactor.terminated)
                .sum::<u64>(),
            0
        );
    });
}

#[test]
fn buffers_come_back() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = open(&reactor, served.options()).await;
        let before = reactor.pool().usage().used_bytes;
        let mut client = Client::new(&volume, &reactor, 32);
        for lba in 0..32 {
            client.submit(Operation::Read {
                lba,
                blocks: 300,
                buffers: ReadBuffers::Lend,
            });
        }
        for _ in 0..32 {
            drop(client.next().await);
        }
        // A queue that is dropped under its requests gives their buffers back too.
        for lba in 0..32 {
            client.submit(Operation::Read {
                lba,
                blocks: 300,
                buffers: ReadBuffers::Lend,
            });
        }
        drop(client);
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(reactor.pool().usage().used_bytes, before);
    });
}
