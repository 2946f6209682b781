//! What `bench/instructions` counts as `path-read` and `path-write`: a command's whole way through the target but for the kernel. Reactor,
//! connection, command core, framing, guard and `null:` are the real ones; the driver below them hands over bytes that were made before, and
//! counts what is sent. Run under callgrind with two numbers of commands, the difference is what one costs.
//!
//! As tests they see to it that the commands succeed.

#[path = "it/common.rs"]
mod common;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{HostOptions, SUBSYSTEM, admin_queue, io_queue, serve_at};
use weir_memory::{Pool, View};
use weir_nvme::Sqe;
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme_target::TargetConfig;
use weir_reactor::{
    Driver, File, FileInfo, Handle, Instant, Listener, LocalFuture, Notifier, Op, OpToken,
    OpenOptions, Outcome, Output, PanicPolicy, Reactor, ReactorConfig, ReactorId, ReactorMain,
    ReactorThread, ReceiveInto, Runner, Shutdown, Socket, SocketOptions, SocketReport, Step,
    System, Wait,
};
use weir_volume::{Access, Guard, GuardConfig, NullVolume};

/// Commands that come with one receive, and leave with one send.
const TOGETHER: u16 = 8;
const SHORT: u32 = 4096;
/// Commands to do unless the environment says so.
const COMMANDS: usize = 64;
/// Turns of the reactor within which a batch must have been answered.
const TURNS_MAX: usize = 16;
/// What a response capsule has, and the header of a C2HData PDU (NVMe/TCP Transport 1.0c, sections 3.6.2.7 and 3.6.2.9), in bytes.
const HEADER: usize = 24;
/// PDU types of these two (NVMe/TCP Transport 1.0c, section 3.6.2).
const RESPONSE: u8 = 5;
const DATA: u8 = 7;
/// The flag of a C2HData PDU that says that its command has succeeded (section 3.6.2.9).
const SUCCESS: u8 = 1 << 3;

/// How many commands to do.
fn commands() -> usize {
    let told = std::env::var("WEIR_COMMANDS").ok();
    told.map_or(COMMANDS, |count| count.parse().expect("a number"))
}

/// Connections between reactors of this thread.
#[derive(Default)]
struct Wires {
    /// The other end of a socket.
    peers: BTreeMap<Handle, Handle>,
    /// What came for a socket and was not received.
    inbound: BTreeMap<Handle, VecDeque<View>>,
    /// Sockets whose connection nobody has accepted.
    arrivals: VecDeque<Handle>,
    /// The socket whose bytes are counted, and go nowhere.
    counted: Option<Handle>,
    /// The last that was accepted.
    accepted: Option<Handle>,
    sent: usize,
    /// What was sent, where it is looked at.
    looked_at: Option<Vec<u8>>,
}

/// A driver whose clock goes on by ten microseconds a turn.
struct Wired {
    wires: Rc<RefCell<Wires>>,
    machine: Arc<Machine>,
    pending: Vec<(OpToken, Op)>,
    cancelled: Vec<OpToken>,
    now: Cell<Instant>,
}

impl Wired {
    fn new(wires: &Rc<RefCell<Wires>>, machine: &Arc<Machine>) -> Box<Self> {
        Box::new(Wired {
            wires: Rc::clone(wires),
            machine: Arc::clone(machine),
            pending: Vec::new(),
            cancelled: Vec::new(),
            now: Cell::default(),
        })
    }

    /// What an operation yields, if it has ended.
    fn try_end(&self, op: &mut Op) -> Option<Output> {
        let wires = &mut *self.wires.borrow_mut();
        match op {
            Op::Connect { socket, .. } => {
                let there = self.machine.next_handle();
                wires.peers.insert(socket.handle(), there);
                wires.peers.insert(there, socket.handle());
                wires.arrivals.push_back(there);
                Some(Output::Done)
            }
            Op::Accept { .. } => {
                let arrived = wires.arrivals.pop_front()?;
                wires.accepted = Some(arrived);
                let socket = Socket::new(arrived, self.machine.clone());
                Some(Output::Accepted(socket, ADDRESS))
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

    fn submit(&mut self, token: OpToken, op: Op) {
        self.pending.push((token, op));
    }

    fn cancel(&mut self, token: OpToken) {
        self.cancelled.push(token);
    }

    fn turn(&mut self, _: Wait, outcomes: &mut Vec<(OpToken, Outcome)>) {
        self.now.set(self.now.get() + Duration::from_micros(10));
        let mut index = 0;
        while index < self.pending.len() {
            let mut one = self.pending.swap_remove(index);
            let cancelled = self.cancelled.iter().position(|token| *token == one.0);
            let result = match cancelled {
                Some(place) => {
                    self.cancelled.swap_remove(place);
                    Err(io::Error::from_raw_os_error(125))
                }
                None => match self.try_end(&mut one.1) {
                    Some(output) => Ok(output),
                    None => {
                        self.pending.push(one);
                        let last = self.pending.len() - 1;
                        self.pending.swap(index, last);
                        index += 1;
                        continue;
                    }
                },
            };
            let (token, op) = one;
            outcomes.push((token, Outcome { result, op }));
        }
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

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);

/// A machine that has sockets only.
#[derive(Default)]
struct Machine(AtomicU32);

impl Machine {
    fn next_handle(&self) -> Handle {
        Handle(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn no_file<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl System for Machine {
    fn wall_clock(&self) -> Duration {
        Duration::ZERO
    }

    fn random_bytes(&self, bytes: &mut [u8]) {
        bytes.fill(4);
    }

    fn processors(&self) -> Vec<usize> {
        vec![0]
    }

    fn start_reactor(
        self: Arc<Self>,
        _: ReactorConfig,
        _: ReactorMain,
    ) -> io::Result<ReactorThread> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn offload(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn open_file(self: Arc<Self>, _: &Path, _: &OpenOptions) -> io::Result<(Arc<File>, FileInfo)> {
        no_file()
    }

    fn file_length(&self, _: Handle) -> io::Result<u64> {
        no_file()
    }

    fn set_file_length(&self, _: Handle, _: u64) -> io::Result<()> {
        no_file()
    }

    fn sync_file(&self, _: Handle) -> io::Result<()> {
        no_file()
    }

    fn listen(self: Arc<Self>, address: SocketAddr, _: &SocketOptions) -> io::Result<Listener> {
        let handle = self.next_handle();
        Ok(Listener::new(Socket::new(handle, self), address))
    }

    fn socket(self: Arc<Self>, _: SocketAddr, _: &SocketOptions) -> io::Result<Socket> {
        let handle = self.next_handle();
        Ok(Socket::new(handle, self))
    }

    fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![ADDRESS])
    }

    fn set_socket_options(&self, _: Handle, _: &SocketOptions) -> io::Result<()> {
        Ok(())
    }

    fn socket_report(&self, _: Handle) -> io::Result<SocketReport> {
        Ok(SocketReport::default())
    }

    fn local_address(&self, _: Handle) -> io::Result<SocketAddr> {
        Ok(ADDRESS)
    }

    fn shutdown(&self, _: Handle, _: Shutdown) {}

    fn close(&self, _: Handle) {}
}

fn runner(
    number: u32,
    wires: &Rc<RefCell<Wires>>,
    machine: &Arc<Machine>,
    main: ReactorMain,
) -> Runner {
    let config = ReactorConfig {
        id: ReactorId(number),
        name: format!("reactor-{number}"),
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let driver = Wired::new(wires, machine);
    Runner::new(&config, Pool::new(16 << 20), driver, machine.clone(), main)
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
    let (wires, machine) = (Rc::default(), Arc::default());
    let pending = |_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) };
    let mut server = runner(0, &wires, &machine, Box::new(pending));
    let remote = server.remote();
    let (sender, receiver) = std::sync::mpsc::channel();
    let set_up = move |reactor: Reactor| -> LocalFuture<()> {
        Box::pin(async move {
            let url = "null:?size=64M&block_size=4096".parse().expect("a URL");
            let volume = NullVolume::open(&url, Access { read_only: false }).expect("nothing");
            let volume = Guard::new(volume, GuardConfig::default()).expect("a guard");
            let config = TargetConfig::default();
            let (_target, address) = serve_at(
                vec![remote],
                config,
                &[volume],
                ADDRESS.ip(),
                ADDRESS.port(),
            )
            .await;
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
    let mut host = runner(1, &wires, &machine, Box::new(set_up));
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
