//! Whole iSCSI conversations: several initiators' connections with a target on simulated reactors, by a program.
//!
//! The target is the real one, with its listener, its reactors and its volumes, on the deterministic simulation; what it is sent
//! are bytes. A program has a head of [`HEAD_BYTES`] and steps of [`STEP_BYTES`]: initiators log in, send commands, data, pings,
//! functions and texts, right ones and any others; PDUs are damaged, cut and doubled on their way; initiators stop reading, and
//! connections end; units come and go. After each step is checked that
//!
//! * nothing panicked;
//! * what the target sends to whoever has broken no rule answers a request that is outstanding, once, numbered without a gap;
//!   that data is whole, in order and no longer than asked for; that R2Ts ask for what the command has, no more at a time than
//!   was agreed, and no byte twice; that the window never shrinks;
//! * an initiator beside all this, on a target and a unit of its own, is answered in time, and reads what it has written;
//!
//! and at the end that whoever broke no rule has all its answers, and that nothing is left when all have ended: no connection,
//! session or buffer. What a command that others may have disturbed reads, or with which status it ends, is not judged here.

mod peer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{HubLimits, Hubs};
use weir_iscsi::login::{InitiatorSettings, SessionType};
use weir_iscsi::names::Name;
use weir_iscsi::negotiation::{DigestPolicy, Offer};
use weir_iscsi::pdu::{Cid, Isid, Itt, TaskAttribute, TaskFunction, Tsih, Ttt};
use weir_iscsi::serial::Serial;
use weir_iscsi_target::{Iscsi, IscsiConfig, ListenerConfig, Lun, Portal, Snapshot, Target};
use weir_reactor::sim::{Config, Faults, Simulation};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote};
use weir_volume::{Access, Guard, GuardConfig, MemVolume};

use crate::link::{Farewell, Link};
use peer::{Damage, Peer};

/// Bytes of the head: seed, segments of the network, a socket's buffer, what the target agrees to, room, and three that are not read.
const HEAD_BYTES: usize = 8;
/// Bytes of a step: what, by whom, and six more.
const STEP_BYTES: usize = 8;
/// Steps that are carried out at most.
const STEPS_MAX: usize = 120;
/// Connections that a program has at once at most.
const PEERS: usize = 3;
/// The host of the simulated world that the target runs on, and that of the initiators.
const SERVER: usize = 0;
const CLIENT: usize = 1;
const BLOCK: usize = 512;
/// Blocks of every unit.
const BLOCKS: u64 = 2048;
/// For how long the target may take to answer the initiator that breaks no rule.
const WITNESS_STEPS: u32 = 1000;
const STEP: Duration = Duration::from_millis(2);
/// Steps after which that initiator speaks, at the latest.
const WITNESS_EVERY: usize = 16;
/// For how long all may take that is still under way at the end.
const END_STEPS: u32 = 200;
const END_STEP: Duration = Duration::from_secs(1);
/// Rounds that a simulation may take: more is a loop.
const ROUNDS_MAX: u64 = 3_000_000;

/// Runs one program.
///
/// # Panics
/// When the target breaks a rule: with what it broke.
pub fn iscsi_conversation(data: &[u8]) {
    let Some((head, steps)) = data.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    let (head, steps) = (*head, steps.to_vec());
    let simulation = Simulation::new(Config {
        seed: u64::from(head[0]),
        faults: Faults {
            segment_bytes_max: [1460, 48, 4000, 7][usize::from(head[1] % 4)],
            ..Faults::default()
        },
        socket_buffer: [65_536, 4096, 16_384, 262_144][usize::from(head[2] % 4)],
        rounds_max: ROUNDS_MAX,
        ..Config::default()
    });
    let remotes = start_reactors(&simulation, 1 + u32::from(head[0] & 1));
    let server = SocketAddr::new(simulation.address(SERVER), 3260);
    simulation.run(CLIENT, move |reactor| async move {
        let hubs = Hubs::new(&remotes, &HubLimits::default()).expect("reactors run");
        let iscsi = Iscsi::on(&hubs, config(&head)).await.expect("it starts");
        let address = iscsi.add_listener(ListenerConfig::new(server)).await;
        let mut run = Run {
            reactor,
            remotes,
            iscsi,
            address: address.expect("the port is free"),
            volumes: [memory(), memory()],
            peers: std::array::from_fn(|_| None),
            isids: [0; PEERS],
            witness: None,
            next_damage: [None; PEERS],
            turn: 0,
        };
        run.all(&steps).await;
    });
}

fn config(head: &[u8; HEAD_BYTES]) -> IscsiConfig {
    let (agrees, room) = (head[3], usize::from(head[4] % 3));
    IscsiConfig {
        immediate_data: agrees & 1 == 0,
        initial_r2t: agrees & 2 != 0,
        first_burst_bytes: [65_536, 4096, 8192][room],
        max_burst_bytes: [262_144, 8192, 16_384][room],
        outstanding_r2t: 1 + u16::from(agrees >> 2 & 3),
        receive_segment_bytes: [65_536, 512, 4096][room],
        bytes_in_flight_per_session: [8 << 20, 1 << 20, 2 << 20][room],
        transfer_bytes_max: 1 << 20,
        ..IscsiConfig::default()
    }
}

fn start_reactors(simulation: &Simulation, count: u32) -> Vec<Remote> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("server-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes: 16 << 20,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
            Box::pin(std::future::pending())
        });
        let thread = simulation.system(SERVER).start_reactor(config, main);
        thread.expect("a simulated reactor starts").remote.clone()
    };
    (0..count).map(start).collect()
}

fn memory() -> Arc<dyn Volume> {
    let url = format!("mem:?size={}&block_size={BLOCK}", BLOCKS * BLOCK as u64);
    let url = url.parse().expect("a URL");
    let volume = MemVolume::open(&url, Access { read_only: false }).expect("memory");
    Guard::new(volume, GuardConfig::default()).expect("blocks of its own size")
}

fn name(of: &str) -> Name {
    let text = format!("iqn.2026-01.org.example:{of}");
    text.parse().expect("a name")
}

/// The target of programs, and that of the initiator that breaks no rule.
const TARGETS: [&str; 2] = ["disks", "witness"];

/// A command that moves so many blocks, READ (16), WRITE (16) or others of their shape.
fn transfer(operation: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Bytes that differ from turn to turn.
fn pattern(bytes: usize, turn: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at / 97) as u8 ^ turn).collect()
}

/// A program in its world.
struct Run {
    reactor: Reactor,
    remotes: Vec<Remote>,
    iscsi: Iscsi,
    address: SocketAddr,
    /// Of programs, and of the initiator that breaks no rule.
    volumes: [Arc<dyn Volume>; 2],
    peers: [Option<Peer>; PEERS],
    /// With which ISID each has connected.
    isids: [u8; PEERS],
    witness: Option<Peer>,
    /// Damage to the first PDU of the next connection.
    next_damage: [Option<Damage>; PEERS],
    turn: u8,
}

impl Run {
    async fn all(&mut self, steps: &[u8]) {
        self.serve(true, false).await;
        let settings = self.settings(PEERS as u8, name("witness"), 0);
        self.witness = self.log_in(settings, None).await;
        for (number, step) in steps.chunks_exact(STEP_BYTES).take(STEPS_MAX).enumerate() {
            self.step(step).await;
            self.pass(STEP).await;
            if number % WITNESS_EVERY == WITNESS_EVERY - 1 {
                self.ask_witness().await;
            }
        }
        self.settle().await;
        self.end().await;
    }

    /// Serves both targets; that of programs with its unit or without.
    async fn serve(&self, has_unit: bool, read_only: bool) {
        let target = |at: usize| {
            let mut target = Target::new(name(TARGETS[at]));
            let mut lun = Lun::new(0, Arc::clone(&self.volumes[at]), [at as u8 + 1; 16]);
            lun.read_only = read_only && at == 0;
            target.luns = if has_unit || at == 1 {
                vec![lun]
            } else {
                Vec::new()
            };
            target
        };
        let snapshot = Snapshot {
            targets: vec![target(0), target(1)],
            portals: vec![Portal {
                address: self.address,
                advertise: None,
            }],
        };
        self.iscsi.apply(snapshot).await.expect("it serves");
    }

    /// Login settings of an initiator.
    fn settings(&self, isid: u8, target: Name, wishes: u8) -> InitiatorSettings {
        let digest = |bit: u8| match wishes & bit {
            0 => DigestPolicy::Allowed,
            _ => DigestPolicy::Required,
        };
        InitiatorSettings {
            initiator: name("host"),
            alias: None,
            session: match wishes & 4 {
                0 => SessionType::Normal(target),
                _ => SessionType::Discovery,
            },
            isid: Isid::random([1, 2, 3], u16::from(isid)),
            tsih: Tsih::NONE,
            cid: Cid(u16::from(wishes)),
            itt: Itt(1),
            cmd_sn: Serial(u32::MAX - u32::from(wishes & 7)),
            chap: None,
            offer: Offer {
                header_digest: digest(1),
                data_digest: digest(2),
                initial_r2t: wishes & 8 != 0,
                immediate_data: wishes & 16 == 0,
                max_recv_data_segment_length: [65_536, 512, 8192][usize::from(wishes >> 5) % 3],
                max_outstanding_r2t: 4,
                ..Offer::default()
            },
        }
    }

    async fn log_in(&self, settings: InitiatorSettings, damage: Option<Damage>) -> Option<Peer> {
        let link = Link::connect(&self.reactor, self.address).await?;
        Some(Peer::new(link, settings, damage))
    }

    async fn pass(&mut self, time: Duration) {
        self.reactor.sleep(time).await;
        for peer in self.peers.iter_mut().flatten() {
            peer.judge();
        }
        if let Some(witness) = &mut self.witness {
            witness.judge();
        }
    }

    fn forget(&mut self, place: usize, farewell: Farewell) {
        if let Some(peer) = self.peers[place].take() {
            peer.end(farewell);
        }
    }

    async fn step(&mut self, step: &[u8]) {
        let [what, who, a, b, c, d, e, f] = step else {
            unreachable!("steps have {STEP_BYTES} bytes");
        };
        let (place, a, b) = (usize::from(*who) % PEERS, *a, *b);
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        match what % 16 {
            0 => self.connect(place, a, b).await,
            1 => {
                return self
                    .reactor
                    .sleep(Duration::from_millis(u64::from(a % 40)))
                    .await;
            }
            2 => return self.serve(a & 1 == 1, b & 1 == 1).await,
            3 => {
                let farewell = [Farewell::Close, Farewell::Reset, Farewell::Finish];
                return self.forget(place, farewell[usize::from(a) % 3]);
            }
            4 => {
                let damage = match a % 3 {
                    0 => Damage::Turn {
                        at: usize::from(b),
                        bits: *c | 1,
                    },
                    1 => Damage::Cut { to: usize::from(b) },
                    _ => Damage::Twice,
                };
                match &mut self.peers[place] {
                    Some(peer) => peer.set_damage(Some(damage)),
                    None => self.next_damage[place] = Some(damage),
                }
            }
            5 if a % 8 < 2 => {
                // Other sessions' commands end with these.
                let function = [
                    TaskFunction::LogicalUnitReset,
                    TaskFunction::TargetWarmReset,
                ];
                for peer in self.peers.iter_mut().flatten() {
                    peer.excused = true;
                }
                let peer = self.peers[place].as_mut().filter(|peer| peer.is_in());
                if let Some(peer) = peer {
                    peer.manage(function[usize::from(a % 8)], Itt::RESERVED);
                }
            }
            _ => {}
        }
        let Some(peer) = self.peers[place].as_mut().filter(|peer| peer.is_in()) else {
            return;
        };
        let lba = u64::from(u16::from_be_bytes([a, b])) % BLOCKS;
        let blocks = (u32::from(*c) % 64).min((BLOCKS - lba) as u32);
        let bytes = blocks as usize * BLOCK;
        match what % 16 {
            5 if a % 8 >= 2 => {
                // CLEAR TASK SET ends those of others too, as any number that is none may.
                let tag = peer.some_tag(b);
                let function = TaskFunction::from_value(a % 14);
                peer.manage(function, tag);
                for peer in self.peers.iter_mut().flatten() {
                    peer.excused = true;
                }
            }
            6 => peer.pause(a & 1 == 0),
            7 if blocks > 0 && peer.may_begin() => {
                let attribute = [
                    TaskAttribute::Simple,
                    TaskAttribute::Ordered,
                    TaskAttribute::HeadOfQueue,
                ];
                peer.read(
                    transfer(0x88, lba, blocks),
                    bytes as u32,
                    attribute[usize::from(d % 3)],
                );
            }
            8 if blocks > 0 && peer.may_begin() => {
                peer.write(
                    transfer(0x8a, lba, blocks),
                    pattern(bytes, turn),
                    d & 1 == 0,
                );
            }
            9 => {
                peer.answer_r2t();
            }
            10 => peer.ping(pattern(usize::from(a) * 2, turn)),
            11 => peer.send_raw(&[
                (usize::from(a), b),
                (usize::from(*c), *d),
                (usize::from(*e), *f),
            ]),
            12 => peer.send_raw(&[
                (0, a),
                (1, b),
                (4 + usize::from(*c % 4), *d),
                (32, *e),
                (33, *f),
            ]),
            13 => {
                let tag = peer.some_tag(a);
                let ttt = if b & 1 == 0 {
                    Ttt::RESERVED
                } else {
                    Ttt(u32::from(b))
                };
                let offset = u32::from(*c) * 256 + u32::from(*d);
                peer.send_stray_data(tag, ttt, offset, &pattern(usize::from(*e) * 4, turn));
            }
            14 => peer.send_garbage(vec![a, b, *c, *d, *e, *f]),
            // Any command: right in its number and its length, and nothing else.
            15 => {
                let mut changes = vec![(0, 0x01), (1, 0x80 | b & 0x60), (32, a)];
                changes.extend([(33, *c), (34, *d), (40, *e), (45, *f)]);
                peer.send_raw(&changes);
            }
            _ => {}
        }
    }

    async fn connect(&mut self, place: usize, wishes: u8, b: u8) {
        self.forget(place, Farewell::Close);
        // With the ISID of another its session is made again.
        let isid = b % (PEERS as u8);
        self.isids[place] = isid;
        for (peer, of) in self.peers.iter_mut().zip(self.isids) {
            if let Some(peer) = peer {
                peer.excused |= of == isid;
            }
        }
        let damage = self.next_damage[place].take();
        let settings = self.settings(isid, name("disks"), wishes);
        let peer = self.log_in(settings, damage).await;
        self.peers[place] = peer;
        // In time, and beside what others do.
        for _ in 0..8 {
            self.pass(STEP).await;
        }
    }

    /// The initiator that breaks no rule writes, pings and reads.
    async fn ask_witness(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.answered("its login").await;
        let data = pattern(24 * BLOCK, self.turn);
        let lba = u64::from(self.turn) * 4;
        let witness = self.witness.as_mut().expect("it connected");
        witness.write(transfer(0x8a, lba, 24), data.clone(), true);
        witness.ping(vec![7; 20]);
        self.answered("a Write and a ping").await;
        let witness = self.witness.as_mut().expect("it connected");
        let bytes = data.len() as u32;
        witness.read(transfer(0x88, lba, 24), bytes, TaskAttribute::Simple);
        self.answered("a Read").await;
        let witness = self.witness.as_mut().expect("it connected");
        assert!(
            witness.last_read.take() == Some(data),
            "what was written was not read"
        );
    }

    async fn answered(&mut self, what: &str) {
        for _ in 0..WITNESS_STEPS {
            self.pass(STEP).await;
            let witness = self.witness.as_mut().expect("it connected");
            assert!(
                !witness.is_gone(),
                "the initiator that breaks no rule lost its connection"
            );
            if !witness.answer_r2t() && witness.unanswered() == 0 {
                assert!(witness.is_in() && witness.clean && !witness.excused);
                return;
            }
        }
        panic!("{what} of the initiator that breaks no rule was not answered in time");
    }

    /// Units are there, initiators read, and send what they are asked for: who broke no rule has all its answers then.
    async fn settle(&mut self) {
        self.ask_witness().await;
        self.serve(true, false).await;
        for place in 0..PEERS {
            let peer = self.peers[place].as_ref();
            if peer.is_some_and(|peer| !peer.clean || peer.excused) {
                self.forget(place, Farewell::Close);
            }
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.set_damage(None);
        }
        for step in 0..END_STEPS {
            for peer in self.peers.iter_mut().flatten() {
                while peer.answer_r2t() {}
            }
            self.pass(if step < 100 { STEP } else { END_STEP }).await;
            let owed = |peer: &Peer| peer.unanswered() > 0 && !peer.excused;
            if !self.peers.iter().flatten().any(owed) {
                break;
            }
        }
        for peer in self.peers.iter().flatten().filter(|peer| !peer.excused) {
            let state = (peer.is_gone(), peer.unanswered());
            assert_eq!(
                state,
                (false, 0),
                "it broke no rule: gone, and requests without an answer"
            );
        }
        self.ask_witness().await;
    }

    /// All connections end; nothing is left.
    async fn end(&mut self) {
        for place in 0..PEERS {
            self.forget(place, Farewell::Close);
        }
        if let Some(witness) = self.witness.take() {
            witness.end(Farewell::Close);
        }
        let mut left = String::new();
        for _ in 0..END_STEPS {
            self.reactor.sleep(END_STEP).await;
            left = self.left().await;
            if left.is_empty() {
                return;
            }
        }
        panic!("left behind: {left}");
    }

    async fn left(&self) -> String {
        let stats = self.iscsi.stats();
        let mut used = 0;
        for remote in &self.remotes {
            let of_one = remote.call(|reactor| async move { reactor.pool().usage().used_bytes });
            used += of_one.await.expect("a reactor that runs");
        }
        let counts = [
            ("connections", stats.connections as usize),
            ("half-open connections", stats.half_open as usize),
            ("sessions", stats.sessions as usize),
            ("bytes of pools", used),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let left: Vec<_> = left
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        left.join(", ")
    }
}

/// Programs to begin with, by name.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let program = |head: [u8; HEAD_BYTES], steps: &[[u8; STEP_BYTES]]| {
        let mut data = head.to_vec();
        data.extend(steps.iter().flatten());
        data
    };
    let usual = [1, 0, 0, 0, 0, 0, 0, 0];
    let login = |place, wishes| [0, place, wishes, place, 0, 0, 0, 0];
    let (read, write) = (
        |lba, blocks| [7, 0, 0, lba, blocks, 0, 0, 0],
        |lba, blocks, later| [8, 0, 0, lba, blocks, later, 0, 0],
    );
    let answer = [9, 0, 0, 0, 0, 0, 0, 0];
    let seeds = vec![
        (
            "reads-and-writes",
            program(
                usual,
                &[
                    login(0, 0),
                    write(1, 40, 0),
                    write(9, 8, 1),
                    answer,
                    read(1, 40),
                    [10, 0, 30, 0, 0, 0, 0, 0],
                    answer,
                ],
            ),
        ),
        (
            "digests-and-small-segments",
            program(
                [2, 1, 1, 2, 1, 0, 0, 0],
                &[
                    login(0, 0x2b),
                    write(3, 60, 0),
                    answer,
                    answer,
                    answer,
                    read(3, 60),
                ],
            ),
        ),
        (
            "made-again",
            program(
                usual,
                &[
                    login(0, 0),
                    login(1, 0),
                    write(2, 20, 1),
                    [0, 2, 0, 0, 0, 0, 0, 0],
                    read(2, 20),
                    answer,
                ],
            ),
        ),
        (
            "resets",
            program(
                usual,
                &[
                    login(0, 0),
                    login(1, 0),
                    read(0, 60),
                    [5, 1, 0, 0, 0, 0, 0, 0],
                    write(5, 5, 0),
                    [5, 0, 9, 1, 0, 0, 0, 0],
                ],
            ),
        ),
        (
            "discovery",
            program(
                usual,
                &[
                    login(0, 4),
                    [10, 0, 3, 0, 0, 0, 0, 0],
                    [12, 0, 0x44, 0x80, 0, 0, 0, 0],
                ],
            ),
        ),
        (
            "damage",
            program(
                [4, 0, 2, 0, 2, 0, 0, 0],
                &[
                    login(0, 3),
                    [4, 0, 0, 60, 1, 0, 0, 0],
                    write(7, 30, 0),
                    login(1, 0),
                    [4, 1, 1, 20, 0, 0, 0, 0],
                    [7, 1, 0, 1, 4, 0, 0, 0],
                    [11, 1, 5, 9, 0, 0, 0, 0],
                ],
            ),
        ),
        (
            "units-go",
            program(
                usual,
                &[
                    login(0, 0),
                    write(0, 30, 1),
                    [2, 0, 0, 0, 0, 0, 0, 0],
                    answer,
                    read(0, 3),
                    [2, 0, 1, 1, 0, 0, 0, 0],
                    write(0, 3, 0),
                ],
            ),
        ),
    ];
    let named = seeds.into_iter();
    named.map(|(name, data)| (name.to_owned(), data)).collect()
}
