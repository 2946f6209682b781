//! A simulated server of one file, and how it is reached.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_block::Volume;
use weir_front::{HubLimits, Hubs, ListenAt};
use weir_nfs_host::{ConnectError, NfsHost, Options, User};
use weir_nfs_server::{
    Allowed, Export, HandleKey, Keeper, Nfs, NfsConfig, Persistent, Source, VolumeFile, VolumeFiles,
};
use weir_reactor::sim::{Crash, World};
use weir_reactor::{Reactor, Remote, SocketOptions, System};
use weir_testing::initiator::{simulation, start_reactors};
use weir_volume::{Guard, GuardConfig, Registry, VolumeUrl};

use crate::files::{NAME, OneFile};

pub(crate) const SERVER: usize = 0;
pub(crate) const CLIENT: usize = 1;
/// The file on the server's disk.
const PATH: &str = "/disk";
/// Bytes of the file.
pub(crate) const BYTES: u64 = 8 << 20;

/// Names of clients that may reclaim.
#[derive(Default)]
struct Names(Mutex<BTreeSet<Vec<u8>>>);

impl Keeper for Names {
    fn keep(&self, clients: &BTreeSet<Vec<u8>>) -> io::Result<()> {
        *self.0.lock().unwrap() = clients.clone();
        Ok(())
    }
}

/// The server, which may crash and come back.
#[derive(Clone)]
pub(crate) struct Server {
    system: Arc<dyn System>,
    world: World,
    pub(crate) address: SocketAddr,
    names: Arc<Names>,
    nfs: Rc<RefCell<Option<Nfs>>>,
    config: NfsConfig,
    serves: Serves,
}

/// Source of the file that a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// A file of a directory.
    File,
    /// A volume.
    Volume,
}

pub(crate) fn config() -> NfsConfig {
    NfsConfig {
        lease: Duration::from_secs(10),
        ..NfsConfig::default()
    }
}

impl Server {
    /// Starts it, with what it has kept.
    pub(crate) async fn start(&self) {
        let reactors = start_reactors(&self.system, 2);
        let hubs = Hubs::new(&reactors, &HubLimits::default()).expect("reactors run");
        let persistent = Persistent {
            key: HandleKey(*b"the key of tests"),
            name: b"a server".to_vec(),
            reclaiming: self.names.0.lock().unwrap().clone(),
            keeper: Arc::clone(&self.names) as Arc<dyn Keeper>,
        };
        let nfs = Nfs::on(&hubs, self.config.clone(), persistent)
            .await
            .unwrap();
        let export = Export {
            number: 1,
            path: "exports/share".into(),
            source: match self.serves {
                Serves::File => Source::Files(OneFile::new(&self.system, PATH)),
                Serves::Volume => Source::Volumes(self.volumes(&reactors[0], &hubs).await),
            },
            fsid: (7, 7),
            is_read_only: false,
            allowed: Allowed::Any,
        };
        nfs.apply(vec![export]).await.unwrap();
        let listener = ListenAt {
            address: self.address,
            options: SocketOptions::default(),
            port: (),
            inherited: None,
        };
        nfs.add_listener(listener).await.unwrap();
        *self.nfs.borrow_mut() = Some(nfs);
    }

    /// A directory that has the file as a volume.
    async fn volumes(&self, reactor: &Remote, hubs: &Hubs) -> Arc<VolumeFiles> {
        let opened = reactor.call(|reactor| async move {
            let url = VolumeUrl::new("file", PATH).with("size", BYTES);
            let access = weir_volume::Access { read_only: false };
            let registry = Registry::standard();
            let volume = registry.open(&reactor, &url, access).await;
            Guard::new(volume.expect("it opens"), GuardConfig::default())
        });
        let volume: Arc<dyn Volume> = opened.await.expect("the reactor runs").expect("a guard");
        let now = self.system.wall_clock();
        let file = VolumeFile {
            number: 2,
            name: NAME.to_owned(),
            changes: hubs.changes(&volume, now),
            counted: Arc::clone(&volume),
            volume,
            identity: [2; 16],
            is_read_only: false,
            reservations: None,
        };
        Arc::new(VolumeFiles::new(vec![file], BTreeMap::new(), now))
    }

    /// Lets the host go down, and starts the server anew.
    pub(crate) async fn crash(&self, reactor: &Reactor, crash: Crash) {
        self.world.crash(SERVER, crash);
        self.nfs.borrow_mut().take();
        reactor
            .sleep(Duration::from_millis(reactor.random() % 3000))
            .await;
        self.world.restart(SERVER);
        self.start().await;
    }

    pub(crate) fn options(&self) -> Options {
        let host = self.address.ip().to_string();
        Options {
            size: Some(BYTES),
            ..Options::new(&host, self.address.port(), &["exports", "share", NAME])
        }
    }

    /// Content of the file, past the server.
    pub(crate) async fn behind(&self) -> Vec<u8> {
        let registry = Registry::standard();
        let system = Arc::clone(&self.system);
        let remote = start_reactors(&system, 1).remove(0);
        let read = remote.call(move |reactor: Reactor| async move {
            let url = VolumeUrl::new("file", PATH);
            let access = weir_volume::Access { read_only: true };
            let volume = registry
                .open(&reactor, &url, access)
                .await
                .expect("it is there");
            let mut client = weir_testing::initiator::Client::new(&volume, &reactor, 1);
            let blocks = volume.geometry().blocks as u32;
            let mut bytes = Vec::new();
            for lba in (0..blocks).step_by(64) {
                let count = 64.min(blocks - lba);
                bytes.extend(client.read(lba.into(), count).await.expect("it is read"));
            }
            bytes
        });
        read.await.expect("the reactor runs")
    }
}

/// Runs `test` on a host of a simulated world whose other host serves.
pub(crate) fn simulated<F: Future<Output = ()> + 'static>(
    config: NfsConfig,
    test: impl FnOnce(Reactor, Server, World) -> F + 'static,
) {
    simulated_with(config, Serves::File, test);
}

/// The same, where the other host serves this.
pub(crate) fn simulated_with<F: Future<Output = ()> + 'static>(
    config: NfsConfig,
    serves: Serves,
    test: impl FnOnce(Reactor, Server, World) -> F + 'static,
) {
    let simulation = simulation();
    let server = Server {
        system: simulation.system(SERVER),
        world: simulation.world(),
        address: SocketAddr::new(simulation.address(SERVER), 2049),
        names: Arc::default(),
        nfs: Rc::default(),
        config,
        serves,
    };
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        server.start().await;
        test(reactor, server, world).await;
    });
}

pub(crate) fn host(reactors: u16) -> Arc<NfsHost> {
    let user = User {
        machine: "client".to_owned(),
        uid: 0,
        gid: 0,
    };
    NfsHost::new(user, reactors)
}

pub(crate) async fn try_open(
    reactor: &Reactor,
    options: Options,
) -> Result<Arc<dyn Volume>, ConnectError> {
    let opened = host(1).open(reactor, options, false).await;
    opened.map(|volume| volume as Arc<dyn Volume>)
}

pub(crate) async fn open(reactor: &Reactor, options: Options) -> Arc<dyn Volume> {
    try_open(reactor, options).await.expect("it opens")
}
