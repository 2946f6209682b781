//! For `bench/instructions`, which counts these tests as `path-read` and `path-write`: a command's whole way through the target but for the kernel. Reactor,
//! connection, command core, framing, guard and `null:` are the real ones; the driver below them hands over bytes that were made before, and
//! counts what is sent. Run under callgrind with two numbers of commands, the difference is what one costs.
//!
//! As tests they see to it that the commands succeed.

#[path = "it/common.rs"]
mod common;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use common::{CLIENT, HostOptions, SERVER, SUBSYSTEM, admin_queue, io_queue, serve, volume};
use weir_memory::{Pool, View};
use weir_nvme::Sqe;
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme_target::TargetConfig;
use weir_reactor::sim::{Config, Simulation};
use weir_reactor::{
    Driver, Handle, InFlight, Instant, LocalFuture, Notifier, Op, OpToken, Outcome, Output, Owner,
    PanicPolicy, Reactor, ReactorConfig, ReactorMain, ReceiveInto, Runner, Socket, SocketOptions,
    Step, System, Wait,
};

/// Commands that come with one receive, and leave with one send.
const TOGETHER: u16 = 8;
const SHORT: u32 = 4096;
/// Commands to do unless the environment says so.
const COMMANDS: usize = 64;
/// Turns of the reactor within which a batch must have been answered.
const TURNS_MAX: usize = 16;
/// Bytes of a response capsule, and of the header of a C2HData PDU (NVMe/TCP Transport 1.0c, sections 3.6.2.7 and 3.6.2.9).
const HEADER: usize = 24;
/// PDU types of these two (NVMe/TCP Transport 1.0c, section 3.6.2).
const RESPONSE: u8 = 5;
const DATA: u8 = 7;
/// The flag of a C2HData PDU that says that its command has succeeded (section 3.6.2.9).
const SUCCESS: u8 = 1 << 3;

/// The number of commands to do.
fn commands() -> usize {
    let told = std::env::var("WEIR_COMMANDS").ok();
    told.map_or(COMMANDS, |count| count.parse().expect("a number"))
}

/// Connections between reactors of this thread.
#[derive(Default)]
struct Wires {
    /// The other end of a socket.
    peers: BTreeMap<Handle, Handle>,
    /// Bytes for a socket that it has not received.
    inbound: BTreeMap<Handle, VecDeque<View>>,
    /// Sockets whose connection nobody has accepted.
    arrivals: VecDeque<Socket>,
    /// The socket whose bytes are counted, and go nowhere.
    counted: Option<Handle>,
    /// The last that was accepted.
    accepted: Option<Handle>,
    sent: usize,
    /// The bytes that were sent, while they are looked at.
    looked_at: Option<Vec<u8>>,
}

/// A driver whose clock goes on by ten microseconds a turn.
struct Wired {
    wires: Rc<RefCell<Wires>>,
    system: Arc<dyn System>,
    in_flight: InFlight<Op>,
    /// Operations in flight, in the order in which they are tried.
    pending: VecDeque<OpToken>,
    now: Cell<Instant>,
}

impl Wired {
    fn new_socket(system: &Arc<dyn System>, address: SocketAddr) -> Socket {
        let socket = Arc::clone(system).socket(address, &SocketOptions::default());
        socket.expect("there is room")
    }

    /// The outcome of an operation that has ended.
    fn try_end(wires: &mut Wires, system: &Arc<dyn System>, op: &mut Op) -> Option<Output> {
        match op {
            Op::Connect { socket, address } => {
                let there = Self::new_socket(system, *address);
                wires.peers.insert(socket.handle(), there.handle());
                wires.peers.insert(there.handle(), socket.handle());
                wires.arrivals.push_back(there);
                Some(Output::Done)
            }
            Op::Accept { listener } => {
                let arrived = wires.arrivals.pop_front()?;
                wires.accepted = Some(arrived.handle());
                Some(Output::Accepted(arrived, listener.address()))
            }
            Op::Send { socket, gather } if wires.counted == Some(socket.handle()) => {
                wires.sent += gather.len();
                if let Some(seen) = &mut wires.looked_at {
                    gather
                        .slices()
                        .for_each(|slice| seen.extend_from_slice(slice));
                }
                Some(Output::Done)
            }
            Op::Send { socket, gather } => {
                let bytes = gather.slices().collect::<Vec<_>>().concat();
                let peer = wires.peers[&socket.handle()];
                let inbound = wires.inbound.entry(peer).or_default();
                inbound.push_back(View::copy_of(&bytes));
                Some(Output::Done)
            }
            Op::Receive { socket, into } => {
                let came = wires.inbound.get_mut(&socket.handle())?.pop_front()?;
                match into {
                    ReceiveInto::Ring(_) => Some(Output::Received(came)),
                    ReceiveInto::Segment { .. } => panic!("nothing here is longer than a capsule"),
                }
            }
            op => panic!("there are no files here: {op:?}"),
        }
    }
}

impl Driver for Wired {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, owner: Owner, op: Op) -> OpToken {
        let token = self.in_flight.insert(owner, op);
        self.pending.push_back(token);
        token
    }

    fn cancel(&mut self, _: OpToken) {}

    fn turn(&mut self, _: Wait, outcomes: &mut Vec<(Owner, Outcome)>) {
        self.now.set(self.now.get() + Duration::from_micros(10));
        let wires = &mut *self.wires.borrow_mut();
        for _ in 0..self.pending.len() {
            let token = self.pending.pop_front().expect("as many as were counted");
            let op = self.in_flight.find(token).expect("it has not ended");
            match Self::try_end(wires, &self.system, op) {
                Some(output) => {
                    let (owner, op) = self.in_flight.remove(token);
                    let result = Ok(output);
                    outcomes.push((owner, Outcome { result, op }));
                }
                None => self.pending.push_back(token),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn abandon_all(&mut self) -> Vec<Owner> {
        self.in_flight.disown()
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(Awake)
    }
}

/// Nobody sleeps here.
struct Awake;

impl Notifier for Awake {
    fn notify(&self) {}
}

fn runner(wires: &Rc<RefCell<Wires>>, system: Arc<dyn System>, main: ReactorMain) -> Runner {
    let config = ReactorConfig {
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let driver = Wired {
        wires: Rc::clone(wires),
        system: Arc::clone(&system),
        in_flight: InFlight::default(),
        pending: VecDeque::new(),
        now: Cell::default(),
    };
    Runner::new(&config, Pool::new(16 << 20), Box::new(driver), system, main)
}

/// A queue that is connected, and capsules of eight commands for it.
struct Connected {
    server: Runner,
    wires: Rc<RefCell<Wires>>,
    /// The target's end.
    socket: Handle,
    capsules: View,
    _host: Runner,
}

fn connected(
    command: impl Fn(Blocks) -> NvmCommand + Send + 'static,
    data: &'static [u8],
) -> Connected {
    let simulation = Simulation::new(Config::default());
    let (wires, ip) = (Rc::default(), simulation.address(SERVER));
    let pending = |_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) };
    let mut server = runner(&wires, simulation.system(SERVER), Box::new(pending));
    let remote = server.remote();
    let (sender, receiver) = std::sync::mpsc::channel();
    let set_up = move |reactor: Reactor| -> LocalFuture<()> {
        Box::pin(async move {
            let config = TargetConfig::default();
            let volumes = &[volume("null")];
            let (_target, address) = serve(vec![remote], config, volumes, ip).await;
            let options = HostOptions {
                entries: 64,
                ..HostOptions::default()
            };
            let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let queue = io_queue(&reactor, address, id, 1, options).await;
            let capsule = |cid: u16| {
                let blocks = Blocks::new(u64::from(cid) * 8, SHORT / 4096);
                let sgl = match data.is_empty() {
                    true => SglDescriptor::Transport { length: SHORT },
                    false => SglDescriptor::InCapsule {
                        offset: 0,
                        length: SHORT,
                    },
                };
                let sqe: Sqe = command(blocks).sqe(cid, 1, sgl);
                queue.capsule(&sqe, data)
            };
            let capsules: Vec<u8> = (0..TOGETHER).flat_map(capsule).collect();
            sender.send(capsules).expect("someone waits");
            std::future::pending().await
        })
    };
    let mut host = runner(&wires, simulation.system(CLIENT), Box::new(set_up));
    let capsules = loop {
        for one in [&mut host, &mut server] {
            assert_ne!(one.step(false), Step::Stopped);
        }
        if let Ok(capsules) = receiver.try_recv() {
            break capsules;
        }
    };
    let socket = wires.borrow().accepted.expect("the queue's");
    wires.borrow_mut().counted = Some(socket);
    Connected {
        server,
        wires,
        socket,
        capsules: View::copy_of(&capsules),
        _host: host,
    }
}

impl Connected {
    /// Does the commands, whose answers have so many bytes each. Those of the first eight are looked at; the others are the same.
    fn work(mut self, answer: usize) {
        self.wires.borrow_mut().looked_at = Some(Vec::new());
        self.batch(answer);
        let seen = self.wires.borrow_mut().looked_at.take();
        for pdu in seen.expect("just put in").chunks(answer) {
            match answer {
                // The status of its completion queue entry (NVMe Base 2.0c, section 3.3.3.2).
                HEADER => assert_eq!((pdu[0], &pdu[22..24]), (RESPONSE, &[0, 0][..])),
                _ => assert_eq!((pdu[0], pdu[1] & SUCCESS), (DATA, SUCCESS)),
            }
        }
        for _ in 1..commands() / usize::from(TOGETHER) {
            self.batch(answer);
        }
    }

    fn batch(&mut self, answer: usize) {
        let expected = {
            let wires = &mut *self.wires.borrow_mut();
            let inbound = wires.inbound.entry(self.socket).or_default();
            inbound.push_back(self.capsules.clone());
            wires.sent + usize::from(TOGETHER) * answer
        };
        let mut turns = 0;
        while self.wires.borrow().sent < expected {
            turns += 1;
            assert!(turns <= TURNS_MAX, "the commands are answered");
            self.server.step(false);
        }
        assert_eq!(self.wires.borrow().sent, expected);
    }
}

#[test]
fn read() {
    connected(NvmCommand::Read, &[]).work(HEADER + SHORT as usize);
}

#[test]
fn write() {
    connected(NvmCommand::Write, &[0x5a; SHORT as usize]).work(HEADER);
}
