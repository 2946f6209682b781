//! Serves volumes over NVMe/TCP without the gateway: `serve ADDRESS:PORT NQN URL...`, one namespace for each URL.
//!
//! For trying the target alone; it keeps nothing, and ends when it is killed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_nvme::Nqn;
use weir_nvme_target::{
    ListenerConfig, Namespace, Port, Snapshot, Subsystem, Target, TargetConfig,
};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{LocalFuture, Reactor, ReactorConfig, ReactorId, Remote, System};
use weir_volume::{Access, Guard, GuardConfig, Registry, VolumeUrl};

type Failure = Box<dyn std::error::Error>;

/// Reactors that serve.
const REACTORS: u32 = 2;

fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .init();
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(nqn)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve ADDRESS:PORT NQN URL...".into());
    };
    let (address, nqn): (SocketAddr, Nqn) = (address.parse()?, nqn.parse()?);
    let urls = arguments
        .map(|url| url.parse())
        .collect::<Result<Vec<VolumeUrl>, _>>()?;
    let system = LinuxSystem::new(LinuxConfig::default())?;
    let mut threads = Vec::new();
    for number in 0..REACTORS {
        let config = ReactorConfig {
            id: ReactorId(number),
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) });
        threads.push(Arc::clone(&system).start_reactor(config, main)?);
    }
    let remotes: Vec<Remote> = threads.iter().map(|thread| thread.remote.clone()).collect();
    let first = remotes[0].clone();
    let served = first.call_blocking(move |reactor| async move {
        serve(reactor, remotes, address, nqn, urls)
            .await
            .map_err(|error| error.to_string())
    })?;
    let target = served?;
    println!("listening on {:?}", target.listeners());
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

async fn serve(
    reactor: Reactor,
    remotes: Vec<Remote>,
    address: SocketAddr,
    nqn: Nqn,
    urls: Vec<VolumeUrl>,
) -> Result<Target, Failure> {
    let target = Target::new(remotes, TargetConfig::default()).await?;
    let registry = Registry::standard();
    let mut subsystem = Subsystem::new(nqn, "WEIR-EXAMPLE");
    for (index, url) in urls.iter().enumerate() {
        let access = Access { read_only: false };
        let volume = registry.open(&reactor, url, access).await?;
        let guard: Arc<dyn Volume> = Guard::new(volume, GuardConfig::default())?;
        let nsid = index as u32 + 1;
        let mut uuid = [0x77; 16];
        uuid[15] = nsid as u8;
        subsystem.namespaces.push(Namespace::new(nsid, guard, uuid));
    }
    let listening = target.add_listener(ListenerConfig::new(address)).await?;
    let snapshot = Snapshot {
        generation: 1,
        subsystems: vec![subsystem],
        hosts: Vec::new(),
        ports: vec![Port {
            address: listening,
            id: 1,
            discovery_only: false,
        }],
    };
    target.apply(snapshot).await?;
    Ok(target)
}
