//! A target with one unit, and how it is reached.

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{HubLimits, Hubs};
use weir_iscsi::Name;
use weir_iscsi_host::{IscsiHost, Options};
use weir_iscsi_target::{Iscsi, IscsiConfig, ListenerConfig, Lun, Portal, Snapshot, Target};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::sim::World;
use weir_reactor::{LocalFuture, PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, System};
pub(crate) use weir_testing::initiator::{simulation, start_reactors};
use weir_volume::{Access, Guard, GuardConfig, MemVolume};

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disks";
pub(crate) const INITIATOR: &str = "iqn.2026-01.org.example:host";
pub(crate) const SERVER: usize = 0;
pub(crate) const CLIENT: usize = 1;
/// Longer than a machine stands still: no time-out of either end is to expire.
const LONG: Duration = Duration::from_secs(600);

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// How a pair is made.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) config: IscsiConfig,
    pub(crate) block_size: u32,
    pub(crate) blocks: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            config: IscsiConfig::default(),
            block_size: 512,
            blocks: 16_384,
        }
    }
}

/// A target with one unit in memory.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) iscsi: Rc<Iscsi>,
    pub(crate) address: SocketAddr,
    pub(crate) volume: Arc<dyn Volume>,
}

impl Served {
    pub(crate) fn options(&self) -> Options {
        let host = self.address.ip().to_string();
        Options::new(&host, self.address.port(), name(TARGET), 0)
    }

    /// The target with its unit, and what `change` makes of it.
    pub(crate) async fn apply(&self, change: impl FnOnce(&mut Target)) {
        let mut target = Target::new(name(TARGET));
        target.luns = vec![Lun::new(0, Arc::clone(&self.volume), [7; 16])];
        change(&mut target);
        let portal = Portal {
            address: self.address,
            advertise: None,
        };
        let snapshot = Snapshot {
            targets: vec![target],
            portals: vec![portal],
        };
        self.iscsi.apply(snapshot).await.expect("it serves");
    }
}

pub(crate) fn memory(block_size: u32, blocks: u64) -> Arc<dyn Volume> {
    let bytes = blocks * u64::from(block_size);
    let url = format!("mem:?size={bytes}&block_size={block_size}");
    let volume = MemVolume::open(&url.parse().expect("a URL"), Access::READ_WRITE);
    Guard::new(volume.expect("memory"), GuardConfig::default()).expect("a guard")
}

pub(crate) async fn serve(reactors: &[Remote], at: SocketAddr, shape: &Shape) -> Served {
    let hubs = Hubs::new(reactors, &HubLimits::default()).expect("reactors run");
    let iscsi = Iscsi::on(&hubs, shape.config.clone()).await;
    let iscsi = iscsi.expect("it starts");
    let listener = ListenerConfig::new(at);
    let address = iscsi.add_listener(listener).await.expect("it listens");
    let served = Served {
        iscsi: Rc::new(iscsi),
        address,
        volume: memory(shape.block_size, shape.blocks),
    };
    served.apply(|_| {}).await;
    served
}

/// Runs `test` on a host of a simulated world whose other host serves.
pub(crate) fn simulated<F: Future<Output = ()> + 'static>(
    shape: Shape,
    test: impl FnOnce(Reactor, Served, World) -> F + 'static,
) {
    let simulation = simulation();
    let reactors = start_reactors(&simulation.system(SERVER), 2);
    let server = SocketAddr::new(simulation.address(SERVER), 3260);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let served = serve(&reactors, server, &shape).await;
        test(reactor, served, world).await;
    });
}

/// Runs `test` on the machine itself.
pub(crate) fn on_loopback<F: Future<Output = ()> + 'static>(
    shape: Shape,
    test: impl FnOnce(Reactor, Served) -> F + Send + 'static,
) {
    let system: Arc<dyn System> = LinuxSystem::new(LinuxConfig::default()).unwrap();
    let servers = start_reactors(&system, 2);
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
            let at = SocketAddr::from(([127, 0, 0, 1], 0));
            let served = serve(&reactors, at, &shape).await;
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

pub(crate) fn host(reactors: u16) -> Arc<IscsiHost> {
    IscsiHost::new(name(INITIATOR), reactors)
}

pub(crate) async fn open(reactor: &Reactor, options: Options) -> Arc<dyn Volume> {
    host(1)
        .open(reactor, options, false)
        .await
        .expect("it opens")
}

/// Options whose time-outs do not expire while a machine stands still.
pub(crate) fn patient(mut options: Options) -> Options {
    options.common.keep_alive = LONG;
    options.common.io_timeout = LONG;
    options
}
