//! The initiator, when what the target sends it is damaged on the way.
//!
//! A real initiator talks to the real target through a relay, all on the deterministic simulation. The relay hands on what the
//! host sends, and damages what the target sends, where the program says so. Whatever comes, the initiator does not panic,
//! opening comes to an end, and every request ends, once, in bounded time. With both digests what is read is what was written,
//! and a write that was acknowledged is there; without, nobody could tell.
//!
//! A program has a head of 4 bytes and steps of 8: requests, and damages of one connection's bytes from the target.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Completions, Landing, Operation, Queue, ReadBuffers, Request,
    Token, Volume,
};
use weir_memory::{Gather, View, Views};
use weir_nvme::Nqn;
use weir_nvme_host::{NvmeHost, Options};
use weir_nvme_target::{ListenerConfig, Namespace, Snapshot, Subsystem, Target, TargetConfig};
use weir_reactor::sim::{Config, Simulation};
use weir_reactor::{
    PanicPolicy, Reactor, ReactorConfig, ReactorId, SocketOptions, TcpListener, TcpStream,
};
use weir_volume::{Access, MemVolume, VolumeUrl};

const SUBSYSTEM: &str = "nqn.2024-01.org.weir:fuzz";
const SERVER: usize = 0;
const RELAY: usize = 1;
const CLIENT: usize = 2;
const HEAD_BYTES: usize = 4;
const STEP_BYTES: usize = 8;
const STEPS_MAX: usize = 64;
/// Bytes of a connection that are never damaged where digests are to be relied on: the ICResp says whether there are any.
const RESPONSE_BYTES: u64 = 128;
const BLOCK_BYTES: usize = 512;
/// Blocks of one request; each has its own part of the volume.
const BLOCKS: u32 = 16;
const VOLUME: &str = "mem:?size=1M&block_size=512";
/// How long opening, and afterwards all requests, may take: more than every time-out together.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(20);
const ROUNDS_MAX: u64 = 3_000_000;

/// What happens to bytes from the target.
#[derive(Debug, Clone, Copy)]
struct Damage {
    /// Which connection, in the order in which they are made.
    connection: usize,
    /// At which byte of it.
    at: u64,
    how: u8,
    value: u8,
}

/// One request: what, and in which part of the volume.
#[derive(Debug, Clone, Copy)]
struct Wish {
    what: u8,
    part: u8,
    blocks: u32,
    /// What time passes before it, in units of 100 microseconds.
    pause: u8,
}

struct Program {
    seed: u8,
    digests: bool,
    queues: u16,
    segment_bytes: usize,
    damages: Vec<Damage>,
    wishes: Vec<Wish>,
}

fn decode(data: &[u8]) -> Option<Program> {
    let ([flags, seed, ..], rest) = data.split_first_chunk::<HEAD_BYTES>()?;
    let digests = flags & 1 != 0;
    let mut program = Program {
        seed: *seed,
        digests,
        queues: u16::from(flags >> 1 & 1) + 1,
        segment_bytes: [64 << 10, 1460, 100, 64 << 10][usize::from(flags >> 2 & 3)],
        damages: Vec::new(),
        wishes: Vec::new(),
    };
    let (steps, _) = rest.as_chunks::<STEP_BYTES>();
    for &[kind, one, two, three, four, five, ..] in steps.iter().take(STEPS_MAX) {
        if kind & 1 == 0 {
            program.wishes.push(Wish {
                what: one,
                part: two % 64,
                blocks: u32::from(three) % BLOCKS + 1,
                pause: four,
            });
        } else {
            let at = u64::from(u16::from_le_bytes([two, three]));
            program.damages.push(Damage {
                connection: usize::from(one % 6),
                at: if digests { at + RESPONSE_BYTES } else { at },
                how: four,
                value: five,
            });
        }
    }
    program.damages.sort_by_key(|damage| damage.at);
    Some(program)
}

/// Runs one program.
///
/// # Panics
/// When the initiator breaks a rule.
pub fn initiator(data: &[u8]) {
    let Some(program) = decode(data) else { return };
    let mut config = Config {
        seed: u64::from(program.seed),
        rounds_max: ROUNDS_MAX,
        ..Config::default()
    };
    config.faults.segment_bytes_max = program.segment_bytes;
    let simulation = Simulation::new(config);
    let server = ReactorConfig {
        id: ReactorId(0),
        name: "server".to_owned(),
        on_panic: PanicPolicy::Unwind,
        pool_bytes: 16 << 20,
        ..ReactorConfig::default()
    };
    let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
        Box::pin(std::future::pending())
    });
    let started = simulation.system(SERVER).start_reactor(server, main);
    let remote = started.expect("a simulated reactor starts").remote.clone();
    let target_address = SocketAddr::new(simulation.address(SERVER), 4420);
    let relay_address = SocketAddr::new(simulation.address(RELAY), 4420);
    let url: VolumeUrl = VOLUME.parse().expect("a URL");
    let volume = MemVolume::open(&url, Access::READ_WRITE).expect("memory");
    let relay = ReactorConfig {
        id: ReactorId(1),
        name: "relay".to_owned(),
        on_panic: PanicPolicy::Unwind,
        pool_bytes: 16 << 20,
        ..ReactorConfig::default()
    };
    let damages = program.damages.clone();
    let main = Box::new(move |reactor: Reactor| -> weir_reactor::LocalFuture<()> {
        Box::pin(relay_all(reactor, relay_address, target_address, damages))
    });
    let started = simulation.system(RELAY).start_reactor(relay, main);
    let _relay = started.expect("a simulated reactor starts");
    simulation.run(CLIENT, move |reactor| async move {
        let target = Target::new(vec![remote], TargetConfig::default()).await;
        let target = target.expect("the configuration is allowed");
        let listener = ListenerConfig::new(target_address);
        target.add_listener(listener).await.expect("a free port");
        let mut subsystem = Subsystem::new(nqn(), "WEIR-FUZZ-1");
        let served: Arc<dyn Volume> = volume.clone();
        let namespace = Namespace::new(1, served, [1; 16]);
        subsystem.namespaces.push(namespace);
        let snapshot = Snapshot {
            generation: 1,
            subsystems: vec![subsystem],
            ..Snapshot::default()
        };
        target.apply(snapshot).await.expect("it is served");
        work(&reactor, relay_address, &program, volume).await;
    });
}

fn nqn() -> Nqn {
    Nqn::new(SUBSYSTEM).expect("an NQN")
}

// ------------------------------------------------------------------- relay --

async fn relay_all(reactor: Reactor, at: SocketAddr, target: SocketAddr, damages: Vec<Damage>) {
    let system = Arc::clone(reactor.system());
    let listener = system.listen(at, &SocketOptions::default());
    let listener = TcpListener::new(&reactor, listener.expect("a free port"));
    let mut number = 0;
    while let Ok(host) = listener.accept().await {
        let options = SocketOptions::default();
        let mine = damages.iter().filter(|damage| damage.connection == number);
        let mine: VecDeque<Damage> = mine.copied().collect();
        number += 1;
        let Ok(target) = TcpStream::connect(&reactor, target, &options).await else {
            continue;
        };
        let (host, target) = (Rc::new(host), Rc::new(target));
        let there = hand_on(Rc::clone(&host), Rc::clone(&target), VecDeque::new());
        reactor.spawn(there).detach();
        reactor.spawn(hand_on(target, host, mine)).detach();
    }
}

/// Hands bytes on until one end is gone, and then ends the other.
async fn hand_on(from: Rc<TcpStream>, to: Rc<TcpStream>, mut damages: VecDeque<Damage>) {
    let mut at = 0;
    while let Ok(view) = from.receive().await {
        if view.is_empty() {
            break;
        }
        let mut bytes = view.to_vec();
        drop(view);
        let start = at;
        at += bytes.len() as u64;
        let mut cut = false;
        while let Some(damage) = damages.front().copied()
            && damage.at < at
        {
            damages.pop_front();
            let place = damage.at.saturating_sub(start) as usize;
            let place = place.min(bytes.len().saturating_sub(1));
            cut |= harm(&mut bytes, place, &damage);
        }
        let mut gather = Gather::new();
        gather.push_header(&bytes);
        if !gather.is_empty() && to.send(gather).await.0.is_err() || cut {
            break;
        }
    }
    from.shutdown(weir_reactor::Shutdown::Both);
    to.shutdown(weir_reactor::Shutdown::Both);
}

/// Damages bytes; whether the connection ends behind them.
fn harm(bytes: &mut Vec<u8>, place: usize, damage: &Damage) -> bool {
    if bytes.is_empty() {
        return false;
    }
    match damage.how % 8 {
        0 => bytes[place] ^= 1 << (damage.value & 7),
        1 => bytes[place] = damage.value,
        2 => {
            bytes.remove(place);
        }
        3 => bytes.insert(place, damage.value),
        4 => {
            let end = (place + usize::from(damage.value) + 1).min(bytes.len());
            let again = bytes[place..end].to_vec();
            bytes.splice(place..place, again);
        }
        5 => {
            let end = (place + usize::from(damage.value) + 1).min(bytes.len());
            bytes.drain(place..end);
        }
        6 => {
            let end = (place + 8).min(bytes.len());
            bytes[place..end].fill(damage.value);
        }
        _ => {
            bytes.truncate(place);
            return true;
        }
    }
    false
}

// -------------------------------------------------------------------- host --

/// What became of a request.
struct Running {
    wish: Wish,
    data: Vec<u8>,
}

async fn work(reactor: &Reactor, at: SocketAddr, program: &Program, memory: Arc<MemVolume>) {
    let mut options = Options::new(&at.ip().to_string(), at.port(), nqn());
    options.common.header_digest = program.digests;
    options.common.data_digest = program.digests;
    options.queues = Some(program.queues);
    options.common.depth = 8;
    options.common.io_timeout = Duration::from_secs(2);
    options.common.keep_alive = Duration::from_secs(2);
    options.common.controller_loss_timeout = Some(Duration::from_secs(15));
    options.common.reconnect_delay = Duration::from_millis(200);
    let host = NvmeHost::random(&**reactor.system(), 1);
    let opened = Rc::new(RefCell::new(None));
    let over = Rc::new(Cell::new(false));
    let open = {
        let (host, opened, over) = (Arc::clone(&host), Rc::clone(&opened), Rc::clone(&over));
        let reactor = reactor.clone();
        async move {
            *opened.borrow_mut() = host.open(&reactor, options, false).await.ok();
            over.set(true);
        }
    };
    reactor.spawn(open).detach();
    wait(reactor, "opening", || over.get()).await;
    let Some(volume) = opened.borrow_mut().take() else {
        return;
    };
    let completions = Completions::new();
    let sink: Rc<dyn CompletionSink> = completions.clone();
    if let Ok(mut queue) = Arc::clone(&volume).open_queue(reactor, 32, sink) {
        requests(reactor, program, &mut *queue, &completions, memory).await;
    }
    let over = Rc::new(Cell::new(false));
    let close = {
        let (volume, over) = (Arc::clone(&volume), Rc::clone(&over));
        async move {
            volume.close().await;
            over.set(true);
        }
    };
    reactor.spawn(close).detach();
    wait(reactor, "closing", || over.get()).await;
}

async fn wait(reactor: &Reactor, what: &str, mut done: impl FnMut() -> bool) {
    let looks = PATIENCE.as_millis() / LOOK.as_millis();
    for _ in 0..looks {
        if done() {
            return;
        }
        reactor.sleep(LOOK).await;
    }
    panic!("{what} does not come to an end");
}

async fn requests(
    reactor: &Reactor,
    program: &Program,
    queue: &mut dyn Queue,
    completions: &Completions,
    memory: Arc<MemVolume>,
) {
    let mut running: HashMap<u32, Running> = HashMap::new();
    // What each part holds that was acknowledged; none where it may hold one thing or another.
    let mut parts: HashMap<u8, Option<Vec<u8>>> = HashMap::new();
    let mut batch = VecDeque::new();
    for (number, wish) in (0..).zip(&program.wishes) {
        // One request at a time in each part, so that it is known what is there.
        let part = wish.part;
        let taken =
            |running: &HashMap<u32, Running>| running.values().any(|other| other.wish.part == part);
        wait(reactor, "a request", || {
            settle(program, completions, &mut running, &mut parts);
            completions.submit(queue, &mut batch);
            !taken(&running)
        })
        .await;
        let (operation, data) = operation(number, wish, queue);
        running.insert(number, Running { wish: *wish, data });
        batch.push_back(Request {
            token: Token {
                owner: 0,
                slot: number,
                generation: 0,
            },
            operation,
        });
        completions.submit(queue, &mut batch);
        reactor
            .sleep(Duration::from_micros(u64::from(wish.pause) * 100))
            .await;
        settle(program, completions, &mut running, &mut parts);
    }
    wait(reactor, "the last requests", || {
        settle(program, completions, &mut running, &mut parts);
        completions.submit(queue, &mut batch);
        running.is_empty()
    })
    .await;
    check_memory(reactor, program, &parts, memory).await;
}

fn lba_of(part: u8) -> u64 {
    u64::from(part) * u64::from(BLOCKS)
}

fn operation(number: u32, wish: &Wish, queue: &mut dyn Queue) -> (Operation, Vec<u8>) {
    let (lba, blocks) = (lba_of(wish.part), wish.blocks);
    let length = blocks as usize * BLOCK_BYTES;
    let data: Vec<u8> = (0..length)
        .map(|at| (at * 7) as u8 ^ number as u8 ^ (at >> 8) as u8)
        .collect();
    let write = Operation::Write {
        lba,
        blocks,
        data: landed(queue, lba, blocks, &data),
        fua: wish.what & 0x80 != 0,
    };
    match wish.what % 8 {
        0..=2 => (write, data),
        3..=5 => {
            let buffers = ReadBuffers::Lend;
            let read = Operation::Read {
                lba,
                blocks,
                buffers,
            };
            (read, Vec::new())
        }
        6 => (Operation::Flush, Vec::new()),
        _ => {
            let verify = Operation::Verify {
                lba,
                blocks: u64::from(blocks),
            };
            (verify, Vec::new())
        }
    }
}

fn landed(queue: &mut dyn Queue, lba: u64, blocks: u32, data: &[u8]) -> Views {
    let Landing::Ready(segments) = queue.landing(lba, blocks) else {
        return Views::from_iter([View::copy_of(data)]);
    };
    let mut at = 0;
    let mut views = Views::new();
    for mut segment in segments {
        let length = segment.len();
        segment.copy_from_slice(&data[at..at + length]);
        at += length;
        views.push(segment.freeze());
    }
    views
}

/// Takes what ended.
fn settle(
    program: &Program,
    completions: &Completions,
    running: &mut HashMap<u32, Running>,
    parts: &mut HashMap<u8, Option<Vec<u8>>>,
) {
    while let Some(Completion {
        token,
        result,
        operation,
    }) = completions.pop()
    {
        let ended = running.remove(&token.slot);
        let ended = ended.expect("a request ends once");
        let part = ended.wish.part;
        match operation {
            Operation::Write { .. } => {
                parts.insert(part, result.is_ok().then_some(ended.data));
            }
            Operation::Read {
                buffers: ReadBuffers::Filled(views),
                blocks,
                ..
            } if result.is_ok() => {
                let bytes: Vec<u8> = views.iter().flat_map(|view| view.iter().copied()).collect();
                assert_eq!(
                    bytes.len(),
                    blocks as usize * BLOCK_BYTES,
                    "all that was read"
                );
                let known = parts.get(&part).and_then(Option::as_ref);
                if let (true, Some(known)) = (program.digests, known) {
                    let both = known.len().min(bytes.len());
                    assert_eq!(bytes[..both], known[..both], "what was written is read");
                }
            }
            Operation::Read { .. } => assert!(result.is_err(), "a read yields what was read"),
            _ => {}
        }
    }
}

/// What was acknowledged is on the volume behind the target.
async fn check_memory(
    reactor: &Reactor,
    program: &Program,
    parts: &HashMap<u8, Option<Vec<u8>>>,
    memory: Arc<MemVolume>,
) {
    if !program.digests {
        return;
    }
    let completions = Completions::new();
    let sink: Rc<dyn CompletionSink> = completions.clone();
    let mut queue = memory
        .open_queue(reactor, 8, sink)
        .expect("memory is there");
    for (&part, data) in parts {
        let Some(data) = data else { continue };
        let operation = Operation::Read {
            lba: lba_of(part),
            blocks: (data.len() / BLOCK_BYTES) as u32,
            buffers: ReadBuffers::Lend,
        };
        let token = Token::default();
        let mut batch = VecDeque::from([Request { token, operation }]);
        completions.submit(&mut *queue, &mut batch);
        let Operation::Read {
            buffers: ReadBuffers::Filled(views),
            ..
        } = completions.next().await.operation
        else {
            panic!("memory is read");
        };
        let bytes: Vec<u8> = views.iter().flat_map(|view| view.iter().copied()).collect();
        assert_eq!(&bytes, data, "what was acknowledged is there");
    }
}

/// Programs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let wish = |what: u8, part: u8, blocks: u8, pause: u8| [0, what, part, blocks, pause, 0, 0, 0];
    let damage = |connection: u8, at: u16, how: u8, value: u8| {
        let [low, high] = at.to_le_bytes();
        [1, connection, low, high, how, value, 0, 0]
    };
    let work = [
        wish(0, 1, 3, 0),
        wish(3, 1, 3, 0),
        wish(1, 2, 15, 5),
        wish(6, 0, 0, 0),
        wish(4, 2, 15, 0),
        wish(7, 1, 3, 0),
    ];
    let mut seeds = Vec::new();
    for flags in [0, 1, 7, 10] {
        for (connection, at, how, value) in [
            (5, 60_000, 0, 0),
            (0, 200, 0, 3),
            (0, 4200, 1, 255),
            (1, 160, 2, 0),
            (1, 700, 3, 9),
            (1, 300, 7, 0),
            (2, 40, 6, 255),
        ] {
            let mut program = vec![flags, 1, 0, 0];
            program.extend(damage(connection, at, how, value));
            program.extend(work.concat());
            seeds.push(program);
        }
    }
    seeds
}
