//! The gateway of a run: its reactors, volumes and target, and what it is told to serve. It can go down and come up again.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Geometry, Volume};
use weir_front::{HubLimits, Hubs};
use weir_iscsi::Name;
use weir_iscsi_target::{Iscsi, IscsiError, Lun};
use weir_nvme::Nqn;
use weir_nvme_target::{
    Allowed, FrontError, ListenerConfig, Namespace, Port, Revoked, Snapshot, Subsystem, Target,
    TargetError,
};
use weir_reactor::sim::{Crash, World};
use weir_reactor::{LocalFuture, PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, System};
use weir_volume::{Access, Guard, GuardConfig, Registry, VolumeUrl};

use crate::check::Promise;
use crate::journal::{Journal, Note, Whose};
use crate::plan::{Medium, Plan, Protocol, VolumePlan};
use crate::plant::{Liar, Plant};
use crate::tap::Tap;
use crate::violation::{Check, Violation};

/// The subsystem that everything is served in.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.org.example:simulated";
/// The host that the gateway runs on.
pub(crate) const GATEWAY: usize = 1;
const PORT: u16 = 4420;
/// The target that everything is served in, too, where hosts speak iSCSI.
pub(crate) const TARGET: &str = "iqn.2026-01.org.example:simulated";
const ISCSI_PORT: u16 = 3260;
/// Namespaces of a seed at most.
const NAMESPACES_MAX: u16 = 2;

/// The port over which hosts of a protocol reach a namespace over one of their paths: where hosts have several, the gateway's end of a
/// connection says whose it is.
pub(crate) fn port_of(plan: &Plan, protocol: Protocol, path: usize, namespace: usize) -> u16 {
    let first = match protocol {
        Protocol::Nvme => PORT,
        Protocol::Iscsi => ISCSI_PORT,
    };
    match plan.paths_max() {
        1 => first,
        _ => first + path as u16 * NAMESPACES_MAX + namespace as u16,
    }
}

/// The first bytes of a member of a set, which hold its label.
const SET_DATA_OFFSET: u64 = 1 << 20;
/// The most starts of a gateway that came up, while its disk fails.
const STARTS_MAX: u32 = 50;
const START_REST: Duration = Duration::from_millis(100);
/// Time between two looks at requests whose right was taken away.
const REVOKED_POLL: Duration = Duration::from_millis(5);
/// Time in which a shutdown lets commands end.
const DRAIN: Duration = Duration::from_secs(1);

/// Every path and namespace.
pub(crate) fn ways(plan: &Plan) -> impl Iterator<Item = (usize, usize)> + use<> {
    let namespaces = plan.volumes.len();
    let of_path = move |path| (0..namespaces).map(move |namespace| (path, namespace));
    (0..plan.paths_max() as usize).flat_map(of_path)
}

/// The name of host `host`.
pub(crate) fn host_nqn(host: usize) -> Nqn {
    weir_nvme_host::HostIdentity::from_random([host as u8 + 1; 16]).nqn
}

/// The name of host `host`, where it speaks iSCSI.
pub(crate) fn host_iqn(host: usize) -> Name {
    let name = weir_iscsi_host::initiator_name(None, [host as u8 + 1; 16]);
    name.expect("a valid name")
}

/// Starts reactors that do what they are told.
pub(crate) fn start_reactors(
    system: &Arc<dyn System>,
    count: u32,
    pool_bytes: usize,
) -> std::io::Result<Vec<Remote>> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("reactor-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) });
        let thread = Arc::clone(system).start_reactor(config, main)?;
        Ok(thread.remote.clone())
    };
    (0..count).map(start).collect()
}

/// The parts of a gateway that is up.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) remotes: Vec<Remote>,
    pub(crate) target: Target,
    /// The iSCSI target, where hosts speak it.
    pub(crate) iscsi: Option<Iscsi>,
    guards: Vec<Arc<Guard>>,
    /// The volumes that the target serves.
    served: Vec<Arc<dyn Volume>>,
}

impl Running {
    /// Tells whether something is under way that was taken away.
    async fn has_revoked(&self, whose: Whose) -> bool {
        let of_nvme = |revoked: &Revoked| match whose {
            Whose::Namespace(index) => revoked.nsid == index as u32 + 1,
            Whose::Host(host) => revoked.host_nqn == host_nqn(host),
        };
        let of_iscsi = |revoked: &weir_iscsi_target::Revoked| match whose {
            Whose::Namespace(index) => usize::from(revoked.lun) == index,
            Whose::Host(host) => revoked.initiator == host_iqn(host),
        };
        if self.target.revoked().await.keys().any(of_nvme) {
            return true;
        }
        match &self.iscsi {
            Some(iscsi) => iscsi.revoked().await.keys().any(of_iscsi),
            None => false,
        }
    }
}

pub(crate) struct Gateway {
    plan: Arc<Plan>,
    journal: Journal,
    world: World,
    system: Arc<dyn System>,
    plant: Option<Plant>,
    pub(crate) address: IpAddr,
    running: RefCell<Option<Running>>,
    /// Which namespaces are served, which of them may only be read, and which hosts may connect.
    present: RefCell<Vec<bool>>,
    read_only: RefCell<Vec<bool>>,
    allowed: RefCell<Vec<bool>>,
    generation: Cell<u64>,
    promises: RefCell<Vec<Promise>>,
    /// By namespace, how many blocks it may have after a start: several while it is resized, and where that failed.
    sizes: RefCell<Vec<Vec<u64>>>,
    /// By namespace, whether it is being resized.
    resizing: RefCell<Vec<bool>>,
}

impl Gateway {
    pub(crate) fn new(
        plan: &Arc<Plan>,
        journal: &Journal,
        world: &World,
        system: Arc<dyn System>,
        address: IpAddr,
        plant: Option<Plant>,
    ) -> Self {
        Gateway {
            plan: Arc::clone(plan),
            journal: journal.clone(),
            world: world.clone(),
            system,
            plant,
            address,
            running: RefCell::default(),
            present: RefCell::new(vec![true; plan.volumes.len()]),
            read_only: RefCell::new(vec![false; plan.volumes.len()]),
            allowed: RefCell::new(vec![true; plan.hosts.len()]),
            generation: Cell::new(0),
            promises: RefCell::default(),
            sizes: RefCell::default(),
            resizing: RefCell::new(vec![false; plan.volumes.len()]),
        }
    }

    /// The gateway, while it is up.
    pub(crate) fn running(&self) -> Option<Running> {
        self.running.borrow().clone()
    }

    /// Returns what the volumes promise.
    pub(crate) fn promises(&self) -> Vec<Promise> {
        self.promises.borrow().clone()
    }

    /// Makes the devices that volumes are on.
    pub(crate) fn make_media(&self) {
        for (index, volume) in self.plan.volumes.iter().enumerate() {
            for (path, bytes) in media_of(index, volume) {
                let is_device = matches!(
                    volume.medium,
                    Medium::Device | Medium::Set { devices: true, .. }
                );
                if is_device {
                    self.world.add_block_device(GATEWAY, path, bytes);
                }
            }
        }
    }

    /// Starts the gateway: for the first time, or again after it went down.
    pub(crate) async fn start(&self, first: bool, reactor: &Reactor) {
        for _ in 0..STARTS_MAX {
            match self.try_start(first).await {
                Ok(()) => return self.journal.say("the gateway is up"),
                Err(reason) => self
                    .journal
                    .say(format!("the gateway does not start: {reason}")),
            }
            reactor.sleep(START_REST).await;
        }
        let message = format!("the gateway did not start in {STARTS_MAX} attempts");
        self.journal
            .accuse(Violation::new(Check::Progress, message));
    }

    async fn try_start(&self, first: bool) -> Result<(), String> {
        let (count, pool) = (self.plan.gateway_reactors, self.plan.gateway_pool);
        let remotes = start_reactors(&self.system, count, pool).map_err(|e| e.to_string())?;
        let mut guards = Vec::new();
        for index in 0..self.plan.volumes.len() {
            let opened = self.open(index, first, &remotes[0]).await;
            match opened {
                Ok(guard) => guards.push(guard),
                Err(reason) => {
                    remotes.iter().for_each(Remote::stop);
                    return Err(reason);
                }
            }
        }
        if !first {
            self.check_lengths();
        }
        *self.sizes.borrow_mut() = guards
            .iter()
            .map(|guard| vec![guard.geometry().blocks])
            .collect();
        if first {
            *self.promises.borrow_mut() = guards
                .iter()
                .zip(&self.plan.volumes)
                .map(|(guard, volume)| promise(&guard.geometry(), volume.used))
                .collect();
        }
        self.serve(remotes, guards).await.map_err(|e| e.to_string())
    }

    /// A file is as long as its volume was made last: a start takes its length for the volume's size.
    pub(crate) fn check_lengths(&self) {
        for (index, volume) in self.plan.volumes.iter().enumerate() {
            if volume.medium != Medium::File || self.resizing.borrow()[index] {
                continue;
            }
            let (path, _) = &media_of(index, volume)[0];
            let length = self.world.file_length(GATEWAY, path);
            let may = &self.sizes.borrow()[index];
            let bytes = |blocks: &u64| blocks * u64::from(volume.block);
            if !may.iter().any(|blocks| Some(bytes(blocks)) == length) {
                let (namespace, block) = (index + 1, volume.block);
                let what = format!(
                    "the file of namespace {namespace} has {length:?} bytes, and was made {may:?} blocks of {block}"
                );
                self.journal.accuse(Violation::new(Check::Sizes, what));
            }
        }
    }

    /// Listens, and serves what it is to serve.
    async fn serve(
        &self,
        remotes: Vec<Remote>,
        guards: Vec<Arc<Guard>>,
    ) -> Result<(), TargetError> {
        let config = &self.plan.target;
        let limits = HubLimits {
            bytes_in_flight: config.bytes_in_flight,
            volume_queue_depth: config.volume_queue_depth,
        };
        let hubs = Hubs::new(&remotes, &limits);
        let hubs = hubs.map_err(|reactor| FrontError::Stopped { reactor })?;
        let target = Target::on(&hubs, config.clone()).await?;
        for address in self.addresses(Protocol::Nvme) {
            target.add_listener(ListenerConfig::new(address)).await?;
        }
        let iscsi = match self.plan.speaks(Protocol::Iscsi) {
            true => Some(self.start_iscsi(&hubs).await?),
            false => None,
        };
        let served = guards.iter().map(|guard| self.served(guard)).collect();
        let running = Running {
            remotes,
            target,
            iscsi,
            guards,
            served,
        };
        *self.running.borrow_mut() = Some(running);
        Ok(self.apply().await?)
    }

    async fn start_iscsi(&self, hubs: &Hubs) -> Result<Iscsi, FrontError> {
        let iscsi = Iscsi::on(hubs, self.plan.iscsi.clone()).await;
        let iscsi = iscsi.map_err(|error| match error {
            IscsiError::Front(error) => error,
            IscsiError::Config(error) => unreachable!("plans are right: {error}"),
        })?;
        for address in self.addresses(Protocol::Iscsi) {
            let listener = weir_iscsi_target::ListenerConfig::new(address);
            iscsi.add_listener(listener).await?;
        }
        Ok(iscsi)
    }

    /// Returns the addresses at which the gateway listens for hosts of a protocol.
    fn addresses(&self, protocol: Protocol) -> Vec<SocketAddr> {
        let ways = ways(&self.plan)
            .map(|(path, namespace)| port_of(&self.plan, protocol, path, namespace));
        let mut ports: Vec<u16> = ways.collect();
        ports.dedup();
        let address = |port| SocketAddr::new(self.address, port);
        ports.into_iter().map(address).collect()
    }

    fn served(&self, guard: &Arc<Guard>) -> Arc<dyn Volume> {
        let guard: Arc<dyn Volume> = guard.clone();
        match self.plant.filter(|plant| plant.is_in_the_target()) {
            Some(plant) => Liar::of(guard, plant),
            None => guard,
        }
    }

    async fn open(&self, index: usize, first: bool, remote: &Remote) -> Result<Arc<Guard>, String> {
        let url = self.url(index, first);
        let opened = remote
            .call(move |reactor: Reactor| async move {
                let registry = match first {
                    true => Registry::standard(),
                    false => Registry::standard().for_existing(),
                };
                let opened = registry.open(&reactor, &url, Access::READ_WRITE).await;
                opened.map_err(|error| error.to_string())
            })
            .await;
        let mut volume: Arc<dyn Volume> = opened.map_err(|stopped| stopped.to_string())??;
        if let Some(plant) = self.plant.filter(|plant| plant.is_behind_the_target()) {
            volume = Liar::of(volume, plant);
        }
        let tap = Tap::new(volume, self.journal.clone(), index);
        Guard::new(tap, GuardConfig::default()).map_err(|error| error.to_string())
    }

    fn url(&self, index: usize, first: bool) -> VolumeUrl {
        let volume = &self.plan.volumes[index];
        let block = volume.block;
        let file = |path: &str, bytes: u64, devices: bool| {
            let url = VolumeUrl::new("file", path).with("block_size", block);
            match first && !devices {
                true => url.with("size", bytes),
                false => url,
            }
        };
        let media = media_of(index, volume);
        match volume.medium {
            Medium::Memory => VolumeUrl::new("mem", "")
                .with("size", (volume.used + volume.tail) * u64::from(block))
                .with("block_size", block),
            Medium::File => file(&media[0].0, media[0].1, false),
            Medium::Device => file(&media[0].0, media[0].1, true),
            Medium::Set { chunk, devices, .. } => {
                let url = match chunk {
                    Some(chunk) => VolumeUrl::new("stripe", "").with("chunk", chunk),
                    None => VolumeUrl::new("concat", ""),
                };
                let url = match first {
                    true => url.with("create", 1),
                    false => url,
                };
                media.iter().fold(url, |url, (path, bytes)| {
                    url.with("member", file(path, *bytes, devices))
                })
            }
        }
    }

    /// Serves what is to be served now.
    pub(crate) async fn apply(&self) -> Result<(), FrontError> {
        let Some(running) = self.running() else {
            return Ok(());
        };
        self.generation.set(self.generation.get() + 1);
        let nqn = Nqn::new(SUBSYSTEM).expect("a valid name");
        let mut subsystem = Subsystem::new(nqn, "SIMULATED");
        subsystem.allowed = self.allowed_hosts();
        for (index, volume) in running.served.iter().enumerate() {
            if self.present.borrow()[index] {
                let volume = Arc::clone(volume);
                let uuid = [index as u8 + 1; 16];
                let mut namespace = Namespace::new(index as u32 + 1, volume, uuid);
                namespace.read_only = self.read_only.borrow()[index];
                subsystem.namespaces.push(namespace);
            }
        }
        let snapshot = Snapshot {
            generation: self.generation.get(),
            subsystems: vec![subsystem],
            hosts: Vec::new(),
            ports: (1..)
                .zip(self.addresses(Protocol::Nvme))
                .map(port)
                .collect(),
        };
        running.target.apply(snapshot).await?;
        match &running.iscsi {
            Some(iscsi) => iscsi.apply(self.iscsi_snapshot(&running)).await,
            None => Ok(()),
        }
    }

    fn iscsi_snapshot(&self, running: &Running) -> weir_iscsi_target::Snapshot {
        let mut target = weir_iscsi_target::Target::new(TARGET.parse().expect("a valid name"));
        let hosts = self.allowed.borrow();
        let allowed = hosts.iter().enumerate().filter(|(_, allowed)| **allowed);
        let allowed = allowed.map(|(host, _)| host_iqn(host)).collect();
        target.allowed = weir_iscsi_target::Allowed::List(allowed);
        for (index, volume) in running.served.iter().enumerate() {
            if self.present.borrow()[index] {
                let identity = [index as u8 + 1; 16];
                let mut lun = Lun::new(index as u16, Arc::clone(volume), identity);
                lun.read_only = self.read_only.borrow()[index];
                target.luns.push(lun);
            }
        }
        weir_iscsi_target::Snapshot {
            targets: vec![target],
            portals: Vec::new(),
        }
    }

    fn allowed_hosts(&self) -> Allowed {
        let hosts = self.allowed.borrow();
        let allowed = hosts.iter().enumerate().filter(|(_, allowed)| **allowed);
        Allowed::List(allowed.map(|(host, _)| host_nqn(host)).collect())
    }

    /// Takes a namespace away, or brings it back.
    pub(crate) async fn set_present(&self, reactor: &Reactor, index: usize, present: bool) {
        self.present.borrow_mut()[index] = present;
        let what = if present { "added" } else { "removed" };
        let what = format!("namespace {} is {what}", index + 1);
        self.set_right(reactor, &what, Whose::Namespace(index), present)
            .await;
    }

    /// Has a namespace only be read, or written too.
    pub(crate) async fn set_read_only(&self, reactor: &Reactor, index: usize, read_only: bool) {
        self.read_only.borrow_mut()[index] = read_only;
        let what = if read_only { "only read" } else { "written" };
        let what = format!("namespace {} may be {what}", index + 1);
        self.set_right(reactor, &what, Whose::Namespace(index), !read_only)
            .await;
    }

    /// Lets a host connect, or no more.
    pub(crate) async fn set_allowed(&self, reactor: &Reactor, host: usize, allowed: bool) {
        self.allowed.borrow_mut()[host] = allowed;
        let what = if allowed { "allowed" } else { "removed" };
        let what = format!("host {host} is {what}");
        self.set_right(reactor, &what, Whose::Host(host), allowed)
            .await;
    }

    /// Gives a right, or takes it away: that is acknowledged when nothing makes use of it any more.
    async fn set_right(&self, reactor: &Reactor, what: &str, whose: Whose, given: bool) {
        let begins = format!("soon {what}");
        if given {
            self.journal
                .with(|history, now| history.give_back(now, begins, whose));
        } else {
            self.journal.say(begins);
        }
        if let Err(error) = self.apply().await {
            return self.journal.say(format!("{what}: {error}"));
        }
        if given {
            return self.journal.say(what);
        }
        if self.plant != Some(Plant::AcknowledgeRevocationEarly) {
            self.end_revoked(reactor, whose).await;
        }
        let what = what.to_owned();
        self.journal
            .with(|history, now| history.revoke(now, what, whose));
    }

    /// Waits until nothing is under way any more that was taken away.
    async fn end_revoked(&self, reactor: &Reactor, whose: Whose) {
        let Some(running) = self.running() else {
            return;
        };
        let limit = self.plan.progress_limit();
        let end = self.journal.elapsed() + limit;
        while running.has_revoked(whose).await {
            if self.journal.elapsed() > end {
                let message = format!("what was taken away did not end within {limit:?}");
                self.journal
                    .accuse(Violation::new(Check::Progress, message));
                return;
            }
            reactor.sleep(REVOKED_POLL).await;
        }
    }

    /// Gives a namespace another length, no shorter than what clients use. The gateway may die meanwhile.
    pub(crate) async fn resize(&self, index: usize, tail: u64) {
        let Some(running) = self.running() else {
            return;
        };
        self.check_lengths();
        if std::mem::replace(&mut self.resizing.borrow_mut()[index], true) {
            return;
        }
        let (namespace, blocks) = (index + 1, self.plan.volumes[index].used + tail);
        self.journal.say(format!(
            "namespace {namespace} is being resized to {blocks} blocks"
        ));
        self.sizes.borrow_mut()[index].push(blocks);
        self.promise_size(index, blocks);
        let guard = Arc::clone(&running.guards[index]);
        let resized = running.remotes[0]
            .call(move |reactor: Reactor| async move { guard.resize(&reactor, blocks, true).await })
            .await;
        self.journal.say(match &resized {
            Ok(Ok(_)) => format!("namespace {namespace} is resized"),
            Ok(Err(error)) => format!("namespace {namespace} is not resized: {error}"),
            Err(_) => format!("namespace {namespace} was being resized when the gateway died"),
        });
        if let Ok(Ok(geometry)) = resized {
            self.sizes.borrow_mut()[index] = vec![geometry.blocks];
        }
        self.resizing.borrow_mut()[index] = false;
    }

    /// A namespace may have so many blocks from now on.
    fn promise_size(&self, index: usize, blocks: u64) {
        let promise = &mut self.promises.borrow_mut()[index];
        promise.blocks_least = promise.blocks_least.min(blocks);
        promise.blocks_most = promise.blocks_most.max(blocks);
    }

    /// The gateway's process, or its machine, dies.
    pub(crate) fn crash(&self, crash: Crash) {
        self.world.crash(GATEWAY, crash);
        self.journal.with(|history, now| {
            history.all_over(now);
            let note = match crash {
                Crash::Power => Note::PowerLoss,
                Crash::Process => Note::Words("the gateway is killed".to_owned()),
            };
            history.note(now, note);
        });
        drop(self.running.borrow_mut().take());
    }

    /// The gateway's host is up again, and the gateway starts.
    pub(crate) async fn come_back(&self, reactor: &Reactor) {
        self.world.restart(GATEWAY);
        self.start(false, reactor).await;
    }

    /// Shuts the target down in an orderly way, and starts another one on the same volumes after `pause`.
    pub(crate) async fn restart(&self, reactor: &Reactor, pause: Duration) {
        let Some(running) = self.running() else {
            return;
        };
        self.journal.say("the target shuts down");
        running.target.shutdown(DRAIN).await;
        let mut left = running.target.stats().connections;
        if let Some(iscsi) = &running.iscsi {
            iscsi.shutdown(DRAIN).await;
            left += iscsi.stats().connections;
        }
        self.journal
            .say(format!("the target is down, {left} connections left"));
        reactor.sleep(pause).await;
        let Running {
            remotes, guards, ..
        } = running;
        if let Err(error) = self.serve(remotes, guards).await {
            let message = format!("the target does not start again: {error}");
            self.journal
                .accuse(Violation::new(Check::Progress, message));
        }
        self.journal.say("the target is up");
    }
}

fn port((id, address): (u16, SocketAddr)) -> Port {
    Port {
        address,
        id,
        discovery_only: false,
    }
}

fn promise(geometry: &Geometry, used: u64) -> Promise {
    Promise {
        used,
        blocks_first: geometry.blocks,
        blocks_least: geometry.blocks,
        blocks_most: geometry.blocks,
        volatile_cache: geometry.volatile_cache,
        atomic_blocks: geometry.atomic_blocks.into(),
    }
}

/// Paths and lengths of what a volume is on.
pub(crate) fn media_of(index: usize, volume: &VolumePlan) -> Vec<(String, u64)> {
    let bytes = (volume.used + volume.tail) * u64::from(volume.block);
    match volume.medium {
        Medium::Memory => Vec::new(),
        Medium::File => vec![(format!("/volume{index}"), bytes)],
        Medium::Device => vec![(format!("/dev/volume{index}"), bytes)],
        Medium::Set { members, chunk, .. } => {
            let of_member = bytes
                .div_ceil(members.into())
                .next_multiple_of(chunk.unwrap_or(4096));
            (0..members)
                .map(|member| {
                    let path = format!("/volume{index}.{member}");
                    (path, SET_DATA_OFFSET + of_member)
                })
                .collect()
        }
    }
}
