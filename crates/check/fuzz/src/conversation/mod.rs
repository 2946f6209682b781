//! Whole conversations: several hosts' connections with a target on simulated reactors, by a program.
//!
//! The target is the real one, with its listener, its reactors and its volumes, on the deterministic simulation; what it is
//! sent are bytes. A program builds valid PDUs, damages them, cuts them anywhere, leaves data unsent, stops reading, ends
//! connections, and lets volumes answer late, wrongly and in any order. After each step is checked that
//!
//! * nothing panicked;
//! * what the target sends are PDUs that a host may get, in an order in which it may get them, with good digests; that each
//!   answers a command that is outstanding, once; that data is whole, in order, and as long as was asked for at most, and
//!   that R2Ts ask for what the command has, no more at a time than was agreed, under tags of their own;
//! * volumes are asked to write what an outstanding command says, and nothing else, once, and within their bounds; that a
//!   Write is acknowledged when all of it was written; that what is read was there since the Read was sent; that nothing of
//!   a connection that ended changes what the same host has read or written since over its next I/O queue;
//! * a well-behaved host beside all this is answered in time;
//! * commands in a queue are within its bound;
//!
//! and at the end, when volumes answer and all data that was asked for is sent, that every connection that broke no rule is
//! there, with all its commands answered, and that nothing is left behind when all have ended: no connection, controller,
//! buffer or request.

mod ledger;
mod medium;
mod peer;
mod program;
mod seeds;
mod steps;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_nvme::Nqn;
use weir_nvme::command::{
    AdminCommand, Blocks, Connect, ConnectAttributes, ConnectData, FabricsCommand, NvmCommand,
};
use weir_nvme::property::{Configuration, Property};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{DigestOptions, InitializeRequest};
use weir_nvme::{HostId, command::PropertySet, command::PropertySize};
use weir_nvme_target::{
    ListenerConfig, Namespace, Port, Snapshot, Subsystem, Target, TargetConfig,
};
use weir_reactor::sim::{Config, Faults, Simulation, World};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote};
use weir_volume::{Guard, GuardConfig};

use crate::link::{self, Link};
use ledger::SharedLedger;
use medium::{BLOCKS, Fates, Medium};
use peer::{Granted, Peer};
use program::{Head, PEERS, Step};
pub use seeds::seeds;

const SUBSYSTEM: &str = "nqn.2024-01.org.weir:fuzz";
/// The host of the simulated world that the target runs on, and that of the hosts.
const SERVER: usize = 0;
const CLIENT: usize = 1;
/// Which host the well-behaved one is.
const WITNESS: usize = 9;
/// Its namespace; programs have those before it, of which the second is read-only.
const WITNESS_NSID: u32 = 3;
/// In how many steps of [`PATIENCE`] the well-behaved host must be answered.
const WITNESS_PATIENCE: u32 = 1000;
const PATIENCE: Duration = Duration::from_millis(2);
/// Steps after which the well-behaved host speaks, at the latest.
const WITNESS_EVERY: usize = 24;
/// Bytes that a program sends at most.
const BYTES_MAX: usize = 1 << 20;
/// Slots of a queue beyond its entries, of which the target's own documentation speaks.
const SPARE_SLOTS: u32 = 8;
/// For how long all may take that is still under way at the end: longer than any fate.
const END_STEPS: u32 = 120;
const END_STEP: Duration = Duration::from_secs(1);
/// Rounds that a simulation may take: more is a loop.
const ROUNDS_MAX: u64 = 3_000_000;

/// Runs one program.
///
/// # Panics
/// When the target breaks a rule: with what it broke.
pub fn conversation(data: &[u8]) {
    let Some((head, steps)) = program::decode(data) else {
        return;
    };
    let simulation = Simulation::new(config(&head));
    let remotes = start_reactors(&simulation, &head);
    let server = SocketAddr::new(simulation.address(SERVER), 4420);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let ledger = SharedLedger::new(
            head.block_bytes(),
            &[(BLOCKS, true), (BLOCKS, false), (BLOCKS, true)],
            head.guarded,
        );
        let fates = Fates::default();
        let target = Target::new(remotes.clone(), target_config(&head)).await;
        let target = target.expect("the configuration is allowed");
        let address = target.add_listener(ListenerConfig::new(server)).await;
        let mut run = Run {
            address: address.expect("the port is free"),
            volumes: volumes(&head, &ledger, &fates),
            head,
            reactor,
            world,
            target,
            remotes,
            ledger,
            fates,
            peers: std::array::from_fn(|_| None),
            witness: Vec::new(),
            controllers: HashMap::new(),
            disturbed: HashSet::new(),
            serial: 0,
            bytes_left: BYTES_MAX,
            generation: 0,
            hidden: false,
        };
        run.all(&steps).await;
    });
}

fn config(head: &Head) -> Config {
    Config {
        seed: u64::from(head.seed),
        faults: Faults {
            segment_bytes_max: head.segment_bytes,
            ..Faults::default()
        },
        socket_buffer: head.socket_bytes,
        receive_pool_bytes: head.receive_bytes,
        rounds_max: ROUNDS_MAX,
        ..Config::default()
    }
}

fn target_config(head: &Head) -> TargetConfig {
    TargetConfig {
        max_connections: 12,
        max_half_open: 3,
        max_half_open_per_address: 3,
        controllers_max: 5,
        bytes_in_flight_per_connection: head.bytes_in_flight,
        queue_depth: 32,
        io_queues_max: 4,
        controllers_per_host_max: 3,
        in_capsule_bytes: head.in_capsule,
        mdts_bytes: head.mdts,
        max_c2h_data: head.max_c2h,
        volume_queue_depth: head.volume_depth,
        ..TargetConfig::default()
    }
}

fn start_reactors(simulation: &Simulation, head: &Head) -> Vec<Remote> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("server-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes: head.pool_bytes,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
            Box::pin(std::future::pending())
        });
        let thread = simulation.system(SERVER).start_reactor(config, main);
        thread.expect("a simulated reactor starts").remote.clone()
    };
    (0..head.reactors).map(start).collect()
}

fn volumes(head: &Head, ledger: &SharedLedger, fates: &Fates) -> Vec<Arc<dyn Volume>> {
    let volume = |(nsid, read_only, fates): (u32, bool, Fates)| -> Arc<dyn Volume> {
        let medium = Medium::new(nsid, head, read_only, ledger.clone(), fates);
        if head.guarded {
            Guard::new(medium, GuardConfig::default()).expect("blocks of its own size")
        } else {
            medium
        }
    };
    let of_programs = [(1, false, fates.clone()), (2, true, fates.clone())];
    let of_witness = [(WITNESS_NSID, false, Fates::default())];
    of_programs
        .into_iter()
        .chain(of_witness)
        .map(volume)
        .collect()
}

fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("an NQN")
}

/// The name of a host.
fn host_nqn(host: usize) -> Nqn {
    nqn(&format!("nqn.2024-01.org.weir:host-{host}"))
}

fn connect_data(host: usize, controller: u16, subsystem: &Nqn) -> ConnectData {
    let id = HostId([host as u8 + 1; 16]);
    ConnectData::new(id, controller, subsystem, &host_nqn(host))
}

fn enabled() -> Configuration {
    Configuration::default()
        .with_entry_sizes(6, 4)
        .with_enabled(true)
}

/// How a queue is brought up.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    host: usize,
    qid: u16,
    sqsize: u16,
    request: InitializeRequest,
    flow_control_off: bool,
    keep_alive_ms: u32,
}

/// A program in its world.
struct Run {
    head: Head,
    reactor: Reactor,
    world: World,
    target: Target,
    address: SocketAddr,
    remotes: Vec<Remote>,
    ledger: SharedLedger,
    fates: Fates,
    volumes: Vec<Arc<dyn Volume>>,
    peers: [Option<Peer>; PEERS],
    /// The admin queue and the I/O queue of the well-behaved host.
    witness: Vec<Peer>,
    /// The controller that each host got last.
    controllers: HashMap<usize, u16>,
    /// Controllers whose queues may end through no fault of their own.
    disturbed: HashSet<u16>,
    serial: u64,
    bytes_left: usize,
    generation: u64,
    /// The first namespace is taken away.
    hidden: bool,
}

impl Run {
    async fn all(&mut self, steps: &[Step]) {
        self.apply().await;
        self.start_witness().await;
        for (number, step) in steps.iter().enumerate() {
            self.step(step).await;
            self.check();
            if number % WITNESS_EVERY == WITNESS_EVERY - 1 {
                self.ask_witness().await;
                self.check_bounds().await;
            }
        }
        self.ask_witness().await;
        self.settle().await;
        self.end().await;
    }

    /// Fails when anything was found.
    fn check(&self) {
        let stats = self.target.stats();
        let panics: u64 = stats.reactors.iter().map(|one| one.panics).sum();
        assert_eq!(panics, 0, "a connection ended by a panic");
        if let Some(report) = self.ledger.lock().report() {
            panic!("the target broke a rule:\n{report}");
        }
    }

    /// Tells the target what it serves.
    async fn apply(&mut self) {
        self.generation += 1;
        let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "WEIR-FUZZ-1");
        for (nsid, volume) in (1..).zip(&self.volumes) {
            if nsid > 1 || !self.hidden {
                let namespace = Namespace::new(nsid, Arc::clone(volume), [nsid as u8; 16]);
                subsystem.namespaces.push(namespace);
            }
        }
        let snapshot = Snapshot {
            generation: self.generation,
            subsystems: vec![subsystem],
            hosts: Vec::new(),
            ports: vec![Port {
                address: self.address,
                id: 1,
                discovery_only: false,
            }],
        };
        self.target.apply(snapshot).await.expect("it is served");
    }

    /// Lets time pass, and takes what came meanwhile.
    async fn pass(&mut self, duration: Duration) {
        self.reactor.sleep(duration).await;
        for place in 0..PEERS {
            let Some(peer) = &mut self.peers[place] else {
                continue;
            };
            peer.receive();
            peer.note_time(duration);
            for news in peer.take_news() {
                self.granted(place, news);
            }
        }
        for peer in &mut self.witness {
            peer.receive();
        }
        self.note_disturbed();
    }

    fn granted(&mut self, place: usize, news: Granted) {
        let peer = self.peers[place].as_ref().expect("it has news");
        let (host, clean) = (peer.host, peer.clean);
        if news.qid == 0 {
            self.controllers.insert(host, news.controller);
        } else if clean {
            self.ledger.lock().queue_granted(host, news.sent);
        }
    }

    /// Queues end with their controller, which ends with its admin queue.
    fn note_disturbed(&mut self) {
        for peer in self.peers.iter().flatten() {
            if let Some(granted) = peer.granted
                && granted.qid == 0
                && (!peer.clean || peer.may_end || peer.link.is_gone())
            {
                self.disturbed.insert(granted.controller);
            }
        }
    }

    /// A connection is given up.
    fn forget(&mut self, place: usize, farewell: link::Farewell) {
        if let Some(peer) = self.peers[place].take() {
            if let Some(granted) = peer.granted
                && granted.qid == 0
            {
                self.disturbed.insert(granted.controller);
            }
            peer.link.end(farewell);
            self.ledger.lock().peers[peer.id].ended = true;
        }
    }

    async fn open(&mut self, host: usize) -> Option<Peer> {
        let link = Link::connect(&self.reactor, self.address).await?;
        Some(Peer::new(link, host, &self.head, self.ledger.clone()))
    }

    /// Brings a queue up, as a good host does. What comes of it is in the peer.
    async fn bring_up(&mut self, place: usize, wishes: &Wishes) {
        self.forget(place, link::Farewell::Close);
        let Some(mut peer) = self.open(wishes.host).await else {
            return;
        };
        peer.stage_request(&wishes.request);
        peer.flush(usize::MAX);
        self.peers[place] = Some(peer);
        self.pass_until(place, |peer| peer.initialized).await;
        let controller = match wishes.qid {
            0 => ConnectData::ANY_CONTROLLER,
            _ => self.controllers.get(&wishes.host).copied().unwrap_or(1),
        };
        let data = connect_data(wishes.host, controller, &nqn(SUBSYSTEM));
        if let Some(peer) = &mut self.peers[place] {
            stage_connect(peer, wishes, &data);
            peer.flush(usize::MAX);
        }
        self.pass_until(place, |peer| peer.unanswered() == 0).await;
        if let Some(peer) = &mut self.peers[place]
            && peer.granted.is_some_and(|granted| granted.qid == 0)
        {
            stage_configuration(peer, enabled());
            peer.flush(usize::MAX);
        }
        self.pass_until(place, |peer| peer.unanswered() == 0).await;
    }

    /// Waits for a while until something holds for a peer.
    async fn pass_until(&mut self, place: usize, holds: impl Fn(&Peer) -> bool) {
        for _ in 0..40 {
            match &self.peers[place] {
                Some(peer) if !holds(peer) && !peer.link.is_gone() => {}
                _ => return,
            }
            self.pass(Duration::from_micros(500)).await;
        }
    }

    // ---------------------------------------------------------------- witness --

    async fn start_witness(&mut self) {
        let wishes = |qid| Wishes {
            host: WITNESS,
            qid,
            sqsize: 31,
            request: InitializeRequest::new(DigestOptions::HEADER | DigestOptions::DATA),
            flow_control_off: true,
            keep_alive_ms: 0,
        };
        for qid in [0, 1] {
            self.bring_up(0, &wishes(qid)).await;
            let peer = self.peers[0].take().expect("it was brought up");
            self.check();
            assert!(peer.granted.is_some(), "a good host is let in");
            self.witness.push(peer);
        }
    }

    /// The well-behaved host writes, reads and asks; it must be answered.
    async fn ask_witness(&mut self) {
        self.serial += 1;
        let (serial, block) = (self.serial, self.head.block_bytes());
        let data = steps::pattern(serial, block);
        let at = Blocks::new(serial % BLOCKS, 1);
        let (read, write) = (NvmCommand::Read(at), NvmCommand::Write(at));
        let io = &mut self.witness[1];
        // Without data in capsules a write may wait for a buffer, for as long as others have them all.
        if self.head.in_capsule as usize >= block {
            let sqe = write.sqe(0, WITNESS_NSID, SglDescriptor::NONE);
            let cid = io.stage_command(sqe, Some(data), true, 0);
            io.sound.insert(cid);
        }
        let sqe = read.sqe(0, WITNESS_NSID, SglDescriptor::NONE);
        io.stage_command(sqe, None, false, block as u32);
        io.flush(usize::MAX);
        let admin = &mut self.witness[0];
        let keep_alive = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
        admin.stage_command(keep_alive, None, false, 0);
        admin.flush(usize::MAX);
        for _ in 0..WITNESS_PATIENCE {
            self.pass(PATIENCE).await;
            self.check();
            if self.witness.iter().all(|peer| peer.unanswered() == 0) {
                return;
            }
            assert!(
                !self.witness.iter().any(|peer| peer.link.is_gone()),
                "the well-behaved host lost a connection"
            );
        }
        panic!("the well-behaved host was not answered within two seconds");
    }

    // -------------------------------------------------------------------- end --

    /// Commands of each queue, against its bound.
    async fn check_bounds(&mut self) {
        for connection in self.target.connections().await {
            let entries = connection.queue.map_or(1, |queue| queue.entries);
            assert!(
                connection.in_flight <= entries + SPARE_SLOTS,
                "more commands than slots: {connection:?}"
            );
        }
        let held = self.world.receive_bytes_held(SERVER);
        let bound = self.head.receive_bytes * self.remotes.len();
        assert!(
            held <= bound,
            "{held} bytes to receive into are held, of {bound}"
        );
    }

    /// Volumes answer, hosts read and send what they are asked for: who broke no rule has all its answers then.
    async fn settle(&mut self) {
        self.fates.clear();
        // Rules are broken, and ends announced, by what is still held back, too.
        for peer in self.peers.iter_mut().flatten() {
            peer.flush(usize::MAX);
        }
        for place in 0..PEERS {
            let broken = |peer: &Peer| !peer.clean || peer.may_end || peer.granted.is_none();
            if self.peers[place].as_ref().is_some_and(broken) {
                self.forget(place, link::Farewell::Close);
            }
        }
        // The first half of a fused pair waits for whatever comes behind it.
        let flush = NvmCommand::Flush.sqe(0, 1, SglDescriptor::NONE);
        for peer in self.peers.iter_mut().flatten() {
            peer.stage_command(flush, None, false, 0);
        }
        for step in 0..END_STEPS {
            for peer in self.peers.iter_mut().flatten() {
                peer.pause(false);
                for which in 0..peer.r2ts.len() {
                    peer.stage_data(which, u32::MAX, usize::MAX);
                }
                peer.flush(usize::MAX);
            }
            // At first in short steps, for there may be many R2Ts to be answered.
            let step = if step < 60 { PATIENCE } else { END_STEP };
            self.pass(step).await;
            self.check();
            if !self.peers.iter().flatten().any(|peer| self.owes(peer)) {
                break;
            }
        }
        for peer in self.peers.iter().flatten() {
            let state = (peer.link.is_gone(), peer.unanswered());
            assert!(
                !self.owes(peer),
                "connection {} broke no rule: gone and commands unanswered: {state:?}, CIDs {:?}, granted {:?}",
                peer.id,
                peer.outstanding_cids(),
                peer.granted
            );
        }
        self.ask_witness().await;
    }

    /// Whether the target owes a peer something: an answer, or a connection.
    fn owes(&self, peer: &Peer) -> bool {
        let excused = peer
            .granted
            .is_none_or(|granted| self.disturbed.contains(&granted.controller));
        if peer.link.is_gone() {
            return !excused;
        }
        peer.unanswered() > 0 || !peer.staged.is_empty()
    }

    /// All connections end; nothing is left.
    async fn end(&mut self) {
        for place in 0..PEERS {
            self.forget(place, link::Farewell::Close);
        }
        for peer in self.witness.drain(..) {
            peer.link.end(link::Farewell::Close);
        }
        let mut left = String::new();
        for _ in 0..END_STEPS {
            self.reactor.sleep(END_STEP).await;
            left = self.left().await;
            if left.is_empty() {
                return self.check();
            }
        }
        panic!("left behind: {left}");
    }

    async fn left(&self) -> String {
        let stats = self.target.stats();
        let mut used = 0;
        for remote in &self.remotes {
            let of_one = remote.call(|reactor| async move { reactor.pool().usage().used_bytes });
            used += of_one.await.expect("a reactor that runs");
        }
        let held = self.world.receive_bytes_held(SERVER);
        let in_flight = self.ledger.lock().in_flight;
        let counts = [
            ("connections", stats.connections as usize),
            ("half-open connections", stats.half_open as usize),
            ("controllers", stats.controllers as usize),
            ("bytes of pools", used),
            ("bytes to receive into", held),
            ("requests on volumes", in_flight),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let left: Vec<_> = left
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        left.join(", ")
    }
}

fn stage_connect(peer: &mut Peer, wishes: &Wishes, data: &ConnectData) {
    let connect = Connect {
        record_format: 0,
        qid: wishes.qid,
        sqsize: wishes.sqsize,
        attributes: if wishes.flow_control_off {
            ConnectAttributes::DISABLE_SQ_FLOW_CONTROL
        } else {
            ConnectAttributes::NONE
        },
        keep_alive_timeout_ms: wishes.keep_alive_ms,
    };
    let sqe = FabricsCommand::Connect(connect).sqe(0, SglDescriptor::NONE);
    peer.stage_command(sqe, Some(data.encode().to_vec()), true, 0);
}

fn stage_configuration(peer: &mut Peer, configuration: Configuration) {
    let set = FabricsCommand::PropertySet(PropertySet {
        size: PropertySize::FourBytes,
        offset: Property::Configuration.value(),
        value: u64::from(configuration.0),
    });
    peer.stage_command(set.sqe(0, SglDescriptor::NONE), None, false, 0);
}
