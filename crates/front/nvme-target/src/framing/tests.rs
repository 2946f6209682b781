//! Framing and command core against a scripted peer: any commands, any bytes, in any pieces.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use proptest::prelude::*;
use weir_block::{
    BlockSize, Completion, CompletionSink, DeallocatedRead, FenceReply, Geometry, InFlight,
    Landing, Operation, Queue, ReadBuffers, Request, ResizeError, ResizeFuture, Router, Token,
    Volume, VolumeError, Watcher,
};
use weir_memory::{Pool, Segments};
use weir_nvme::command::{Blocks, ConnectData, CopyCommand, CopyRange, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::tcp::DataPdu;
use weir_nvme::{HostId, Nqn, Sqe};
use weir_reactor::Reactor;

use super::*;
use weir_front::VolumeQueue;
use weir_front::{IoCounters, IoTotals};
use weir_nvme_core::{
    AdminView, Controller, ControllerIdentity, ControllerKind, ErrorLog, QueueKind,
};
use weir_nvme_core::{Attached, Namespaces};
use weir_nvme_core::{Namespace, Snapshot};

const BLOCKS: u64 = 1024;
pub(super) const BLOCK_BYTES: u32 = 512;
const ENTRIES: u32 = 8;
/// Room for a few commands' data only, so that buffers run out.
const POOL_BYTES: usize = 4 << 20;

fn geometry() -> Geometry {
    Geometry {
        generation: 1,
        block_size: BlockSize::B512,
        blocks: BLOCKS,
        transfer_blocks_max: 2048,
        transfer_blocks_optimal: 8,
        memory_alignment: 512,
        deallocate_blocks: 8,
        deallocated_read: DeallocatedRead::Zeroes,
        volatile_cache: true,
        read_only: false,
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: 32,
    }
}

/// A volume that is only asked what it is like.
struct Described;

impl Volume for Described {
    fn geometry(&self) -> Geometry {
        geometry()
    }
    fn name(&self) -> String {
        "described".to_owned()
    }
    fn watch(&self, _: Weak<dyn Watcher>) {}
    fn open_queue(
        self: Arc<Self>,
        _: &Reactor,
        _: u32,
        _: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Err(VolumeError::Lost)
    }
    fn fence(&self, reply: FenceReply) {
        reply(Ok(()));
    }
    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: "described",
        })))
    }
}

pub(super) type Requests = Rc<RefCell<VecDeque<Request>>>;

/// A queue whose requests the test answers.
struct Scripted {
    /// None: data may be anywhere.
    pool: Option<Pool>,
    /// Requests that it takes at once.
    depth: usize,
    requests: Requests,
}

impl Queue for Scripted {
    fn landing(&mut self, _: u64, blocks: u32) -> Landing {
        let Some(pool) = &self.pool else {
            return Landing::Anywhere;
        };
        match pool.segment(blocks as usize * 512) {
            Ok(segment) => Landing::Ready(Segments::from_iter([segment])),
            Err(_) => Landing::Wait,
        }
    }
    fn submit(&mut self, batch: &mut VecDeque<Request>, _: &mut VecDeque<Completion>) {
        let mut requests = self.requests.borrow_mut();
        let taken = batch.len().min(self.depth - requests.len());
        requests.extend(batch.drain(..taken));
    }
    fn cancel(&mut self, _: Token) {}
    fn in_flight(&self, _: &mut dyn FnMut(InFlight)) {}
}

/// Namespace 1, of whose requests up to `depth` are in a list, and whose landings are anywhere or of the reactor's pool.
pub(super) fn attached(pool: &Pool, anywhere: bool, depth: usize, requests: &Requests) -> Attached {
    let landings = (!anywhere).then(|| pool.clone());
    let requests = Rc::clone(requests);
    let open = Box::new(move || {
        let queue: Box<dyn Queue> = Box::new(Scripted {
            pool: landings.clone(),
            depth,
            requests: Rc::clone(&requests),
        });
        Ok(queue)
    });
    let queue = VolumeQueue::new(pool.clone(), Router::new(), open);
    Attached {
        export: Namespace::new(1, Arc::new(Described), [1; 16]),
        geometry: Cell::new(geometry()),
        changes: None,
        queue,
        latency: Rc::default(),
    }
}

/// What a connection and its volume are like.
#[derive(Debug, Clone, Copy)]
struct Setup {
    admin: bool,
    data_digest: bool,
    /// The volume lets data be anywhere.
    anywhere: bool,
    /// Requests that the volume takes at once.
    depth: usize,
}

impl Setup {
    const PLAIN: Setup = Setup {
        admin: false,
        data_digest: false,
        anywhere: false,
        depth: usize::MAX,
    };
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let depth = prop_oneof![Just(usize::MAX), 1_usize..4];
    (any::<bool>(), any::<bool>(), any::<bool>(), depth).prop_map(
        |(admin, data_digest, anywhere, depth)| Setup {
            admin,
            data_digest,
            anywhere,
            depth,
        },
    )
}

/// One connection without a socket.
struct Bench {
    framing: Framing,
    queue: QueuePair,
    namespaces: Namespaces,
    pool: Pool,
    /// What it receives into.
    ring: Pool,
    requests: Requests,
    counters: IoCounters,
    errors: Mutex<ErrorLog>,
    config: TargetConfig,
    out: Gather,
}

impl Bench {
    fn new(setup: Setup) -> Self {
        let (pool, config) = (Pool::new(POOL_BYTES), TargetConfig::default());
        let requests = Requests::default();
        let attached = attached(&pool, setup.anywhere, setup.depth, &requests);
        let mut bench = Bench {
            framing: Framing::new(&config),
            queue: QueuePair::new(0),
            namespaces: Namespaces::new(vec![Rc::new(attached)]),
            requests,
            counters: IoCounters::default(),
            errors: Mutex::default(),
            out: Gather::new(),
            pool,
            ring: Pool::new(Pool::LONGEST),
            config,
        };
        bench.connect(setup.admin);
        bench
    }

    /// Bytes as they are received.
    fn received(&self, bytes: &[u8]) -> View {
        let mut segment = self.ring.segment(bytes.len()).expect("one at a time");
        segment.copy_from_slice(bytes);
        segment.freeze()
    }

    /// How many bytes of memory to receive into are held.
    fn held(&self) -> usize {
        self.ring.usage().used_bytes
    }

    /// One round of a connection but for completions.
    fn round(&mut self, input: &mut View) -> Result<Received, FramingError> {
        let progress =
            self.with_env(|framing, queue, out, env| framing.receive(input, queue, env, out))?;
        while self.queue.next_effect().is_some() {}
        self.queue.failures().for_each(drop);
        self.queue.commands().pump();
        Ok(progress)
    }

    fn connect(&mut self, admin: bool) {
        let nqn = |name: &str| Nqn::new(name).expect("an NQN");
        let identity = ControllerIdentity {
            kind: ControllerKind::Io,
            id: 1,
            subsystem_nqn: nqn("nqn.2024-01.org.weir:s"),
            host_nqn: nqn("nqn.2024-01.org.weir:h"),
            host_id: HostId([1; 16]),
        };
        let controller = Box::new(Controller::new(identity, 0, &self.config.core()));
        let (kind, reserve) = if admin {
            (QueueKind::Admin(controller), None)
        } else {
            (QueueKind::Io, self.pool.segment(8192).ok())
        };
        self.queue
            .connected(kind, u16::from(!admin), ENTRIES, false, reserve);
        self.framing.set_success_flag(true);
    }

    fn with_env<R>(
        &mut self,
        work: impl FnOnce(&mut Framing, &mut QueuePair, &mut Gather, &Env<'_>) -> R,
    ) -> R {
        let snapshot = Snapshot::default();
        let totals = IoTotals::default;
        let limits = self.config.core();
        let view = AdminView {
            snapshot: &snapshot,
            config: &limits,
            local_address: "10.0.0.1:4420".parse().expect("an address"),
            discovery: &RefCell::default(),
            totals: &totals,
            errors: &self.errors,
            io_queues: 0,
            up: Duration::from_secs(1),
        };
        let env = Env {
            registrant: None,
            namespaces: &self.namespaces,
            pool: &self.pool,
            transfer_bytes_max: self.config.mdts_bytes,
            in_capsule_bytes: self.config.in_capsule_bytes,
            admin_in_capsule_bytes: crate::config::ADMIN_IN_CAPSULE_BYTES,
            retry_delay: true,
            counters: &self.counters,
            admin: Some(&view),
        };
        work(&mut self.framing, &mut self.queue, &mut self.out, &env)
    }

    /// Feeds bytes, answers requests until nothing moves, and yields what was sent.
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, FramingError> {
        let mut input = self.received(bytes);
        loop {
            let progress = self.round(&mut input)?;
            let answered = self.answer_all();
            self.with_env(|framing, queue, out, env| {
                queue.retry_buffers(env);
                framing.write(queue, env.pool, out);
            });
            assert!(self.queue.in_flight() <= ENTRIES as usize + 8, "a bound");
            if progress == Received::PeerTerminated || (!answered && input.is_empty()) {
                break;
            }
            assert!(
                answered || progress != Received::Blocked || self.queue.is_fetching(),
                "a blocked connection waits for something"
            );
            if !answered && progress == Received::Blocked {
                break;
            }
        }
        drop(input);
        assert_eq!(
            self.held(),
            0,
            "what was received is kept for a volume only"
        );
        let sent = self.out.slices().flatten().copied().collect();
        self.out.clear();
        Ok(sent)
    }

    fn answer_all(&mut self) -> bool {
        let mut answered = false;
        while self.answer_one() {
            answered = true;
        }
        answered
    }

    /// Answers the request that came last, for volumes reorder; whether there was one.
    fn answer_one(&mut self) -> bool {
        let Some(request) = self.requests.borrow_mut().pop_back() else {
            return false;
        };
        let completion = Completion {
            token: request.token,
            result: Ok(()),
            operation: done(request.operation),
        };
        self.with_env(|_, queue, _, env| queue.completed(completion, env));
        self.queue.commands().pump();
        true
    }
}

fn done(operation: Operation) -> Operation {
    match operation {
        Operation::Read { lba, blocks, .. } => Operation::Read {
            lba,
            blocks,
            buffers: ReadBuffers::Filled(View::zeroes(blocks as usize * 512).collect()),
        },
        other => other,
    }
}

/// The bytes of a capsule with `data` bytes of data, as a host without header digests sends it.
fn capsule(sqe: &[u8; 64], data: usize, data_digest: bool) -> Vec<u8> {
    const DATA_DIGEST: u8 = 0b10;
    let digest = (data > 0 && data_digest).then(|| digest_of_parts([&vec![0xa5; data][..]]));
    let length = 72 + data + digest.map_or(0, |_| DIGEST_LENGTH);
    let flags = if digest.is_some() { DATA_DIGEST } else { 0 };
    let mut bytes = vec![0x04, flags, 72, if data > 0 { 72 } else { 0 }];
    bytes.extend((length as u32).to_le_bytes());
    bytes.extend(sqe);
    bytes.resize(72 + data, 0xa5);
    bytes.extend(digest.iter().flat_map(|digest| digest.to_bytes()));
    bytes
}

fn icreq(data_digest: bool) -> Vec<u8> {
    let digests = if data_digest {
        DigestOptions::DATA
    } else {
        DigestOptions::NONE
    };
    InitializeRequest::new(digests).encode().to_vec()
}

/// A host's side: reads what was sent and writes the data that is asked for.
struct Peer {
    reader: Reader,
    writer: Writer,
    answers: BTreeMap<u16, u16>,
    /// What it was asked for.
    r2ts: Vec<R2t>,
}

impl Peer {
    fn new(data_digest: bool) -> Self {
        Peer {
            reader: Reader::new(Side::Host),
            writer: Writer {
                data_digest,
                ..Writer::default()
            },
            answers: BTreeMap::new(),
            r2ts: Vec::new(),
        }
    }

    fn read(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut more = Vec::new();
        loop {
            let fed = self.reader.feed(bytes).expect("the target's PDUs are good");
            bytes = &bytes[fed.consumed..];
            match fed.event {
                None => return more,
                Some(Event::Pdu(Pdu::InitializeResponse(_))) => {
                    self.reader.establish(ReceiveParameters {
                        data_digest: self.writer.data_digest,
                        maximum_data: u32::MAX,
                        ..ReceiveParameters::INITIAL
                    });
                }
                Some(Event::Pdu(Pdu::CapsuleResponse(cqe))) => {
                    self.answers.insert(cqe.cid, cqe.status.bits());
                }
                Some(Event::DataEnd {
                    pdu: DataPdu::C2hData(data),
                    ..
                }) if data.success => {
                    self.answers.insert(data.cid, 0);
                }
                Some(Event::Pdu(Pdu::R2t(r2t))) => {
                    more.extend(self.data_for(&r2t));
                    self.r2ts.push(r2t);
                }
                Some(_) => {}
            }
        }
    }

    fn data_for(&self, r2t: &R2t) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut offset = 0;
        while offset < r2t.length {
            let length = (r2t.length - offset).min(65536);
            let header = H2cData {
                cid: r2t.cid,
                transfer_tag: r2t.transfer_tag,
                offset,
                length,
                last: offset + length == r2t.length,
            };
            let mut buffer = [0; HEADER_SIZE_MAX];
            let written = self.writer.h2c_data(&mut buffer, &header);
            bytes.extend(&buffer[..written]);
            let data = vec![0x5a; length as usize];
            bytes.extend(&data);
            if self.writer.data_digest {
                bytes.extend(digest_of_parts([&data[..]]).to_bytes());
            }
            offset += length;
        }
        bytes
    }
}

/// Sends `commands` in pieces of up to `piece` bytes; the status of each.
fn converse(commands: &[(Sqe, usize)], piece: usize, setup: Setup) -> BTreeMap<u16, u16> {
    let (mut bench, mut peer) = (Bench::new(setup), Peer::new(setup.data_digest));
    let mut stream: VecDeque<u8> = icreq(setup.data_digest).into();
    for (sqe, data) in commands {
        stream.extend(capsule(&sqe.encode(), *data, setup.data_digest));
        // One command after another, so that each has its slot.
        while !stream.is_empty() {
            let length = piece.min(stream.len());
            let bytes: Vec<u8> = stream.drain(..length).collect();
            let sent = bench.feed(&bytes).expect("a good host");
            stream.extend(peer.read(&sent));
        }
    }
    assert_eq!(bench.queue.in_flight(), 0, "every command was answered");
    peer.answers
}

fn any_command() -> impl Strategy<Value = (Sqe, usize)> {
    use weir_nvme::command::WriteZeroes;
    (0_u8..6, 0..BLOCKS + 4, 1_u32..40, any::<bool>()).prop_map(
        |(kind, lba, blocks, in_capsule)| {
            let length = blocks * 512;
            let at = Blocks::new(lba, blocks);
            let fetched = SglDescriptor::Transport { length };
            let in_capsule = in_capsule && length <= 8192;
            let (sgl, data) = if in_capsule {
                (
                    SglDescriptor::InCapsule { offset: 0, length },
                    length as usize,
                )
            } else {
                (fetched, 0)
            };
            let zeroes = WriteZeroes {
                lba,
                blocks,
                ..WriteZeroes::default()
            };
            match kind {
                0 => (NvmCommand::Read(at).sqe(0, 1, fetched), 0),
                1 | 2 => (NvmCommand::Write(at).sqe(0, 1, sgl), data),
                3 => (NvmCommand::Compare(at).sqe(0, 1, sgl), data),
                4 => (
                    NvmCommand::WriteZeroes(zeroes).sqe(0, 1, SglDescriptor::NONE),
                    0,
                ),
                _ => (NvmCommand::Flush.sqe(0, 1, SglDescriptor::NONE), 0),
            }
        },
    )
}

proptest! {
    #[test]
    fn pieces_change_nothing(
        mut commands in proptest::collection::vec(any_command(), 1..12),
        piece in prop_oneof![1_usize..300, 300_usize..9000],
        setup in any_setup(),
    ) {
        let setup = Setup { admin: false, ..setup };
        for (cid, (sqe, _)) in (0..).zip(&mut commands) {
            sqe.cid = cid;
        }
        let whole = converse(&commands, usize::MAX, Setup::PLAIN);
        prop_assert_eq!(whole.len(), commands.len());
        prop_assert_eq!(converse(&commands, piece, setup), whole.clone());
        prop_assert_eq!(converse(&commands, usize::MAX, setup), whole);
    }

    #[test]
    fn no_entry_breaks_a_queue(
        entries in proptest::collection::vec((any::<[u8; 64]>(), 0_u8..0x20, 0_u32..4), 1..40),
        setup in any_setup(),
        plausible: bool,
        data in 0_usize..3,
    ) {
        let mut bench = Bench::new(setup);
        let _ = bench.feed(&icreq(setup.data_digest));
        for (mut bytes, opcode, nsid) in entries {
            if plausible {
                // Opcodes that there are, SGLs, small namespaces and ranges.
                bytes[0] = opcode;
                bytes[1] = 0x40 | bytes[1] & 3;
                bytes[4..8].copy_from_slice(&nsid.to_le_bytes());
                bytes[39] = [0x00, 0x01, 0x5a][data];
                bytes[24..32].fill(0);
                bytes[34..36].fill(0);
                bytes[41..48].fill(0);
                bytes[49] = 0;
            }
            let in_capsule = if data == 1 { 512 } else { 0 };
            if bench.feed(&capsule(&bytes, in_capsule, setup.data_digest)).is_err() {
                break;
            }
        }
    }

    #[test]
    fn no_bytes_break_a_connection(
        mut commands in proptest::collection::vec(any_command(), 1..6),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        piece in prop_oneof![1_usize..5000, 5000_usize..100_000],
        setup in any_setup(),
    ) {
        let mut bytes = icreq(setup.data_digest);
        for (cid, (sqe, data)) in (0..).zip(&mut commands) {
            sqe.cid = cid;
            bytes.extend(capsule(&sqe.encode(), *data, setup.data_digest));
        }
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let mut bench = Bench::new(setup);
        for part in bytes.chunks(piece) {
            match bench.feed(part) {
                Ok(_) => {}
                Err(error) => {
                    bench.framing.terminate(&error, &mut bench.out);
                    break;
                }
            }
        }
    }

    #[test]
    fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 8..600)) {
        let mut bench = Bench::new(Setup::PLAIN);
        if bytes[0] != 0 {
            prop_assert!(bench.feed(&bytes).is_err());
        } else {
            let _ = bench.feed(&bytes);
        }
    }
}

#[test]
fn a_connect_is_an_effect_and_nothing_is_read_behind_it() {
    use weir_nvme::command::{Connect, FabricsCommand};
    let mut bench = Bench::new(Setup::PLAIN);
    bench.queue = QueuePair::new(0);
    bench.feed(&icreq(false)).expect("a good host");
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: ConnectData::SIZE as u32,
    };
    let connect = FabricsCommand::Connect(Connect::default()).sqe(5, sgl);
    let mut bytes = capsule(&connect.encode(), ConnectData::SIZE, false);
    bytes.extend(capsule(&connect.encode(), ConnectData::SIZE, false));
    let mut input = View::copy_of(&bytes);
    let progress = bench
        .with_env(|framing, queue, out, env| framing.receive(&mut input, queue, env, out))
        .expect("a good host");
    assert_eq!(progress, Received::Blocked);
    assert_eq!(input.len(), ConnectData::SIZE, "the second one's data");
    let effect = bench.queue.next_effect().expect("an effect");
    assert!(matches!(
        effect,
        weir_nvme_core::Effect::Connect { slot: 0, .. }
    ));
    assert!(bench.queue.next_effect().is_none());
}

/// A command with `bytes` of data in its capsule, each the low byte of its CID.
fn with_data(command: &NvmCommand, cid: u16, fuse: Fuse, bytes: u32) -> Vec<u8> {
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: bytes,
    };
    let sqe = Sqe {
        fuse,
        ..command.sqe(cid, 1, sgl)
    };
    let mut bytes = capsule(&sqe.encode(), bytes as usize, false);
    bytes[72..].fill(cid as u8);
    bytes
}

/// A write of 4 KiB.
fn write_capsule(cid: u16) -> Vec<u8> {
    let at = Blocks::new(u64::from(cid) * 8, 8);
    with_data(&NvmCommand::Write(at), cid, Fuse::Normal, 4096)
}

/// The CID of a write of [`write_capsule`], by its data.
fn written(request: &Request) -> u16 {
    let Operation::Write { data, .. } = &request.operation else {
        panic!("a write, not {request:?}")
    };
    let bytes: Vec<u8> = data.iter().flat_map(|view| view.iter().copied()).collect();
    assert_eq!(bytes, vec![bytes[0]; 4096]);
    u16::from(bytes[0])
}

#[test]
fn what_a_volume_does_not_take_is_not_kept_where_it_was_received() {
    let mut bench = Bench::new(Setup {
        anywhere: true,
        depth: 1,
        ..Setup::PLAIN
    });
    bench.feed(&icreq(false)).expect("a good host");
    for (first, held) in [(1, true), (4, false)] {
        let bytes: Vec<u8> = (first..first + 3).flat_map(write_capsule).collect();
        let mut input = bench.received(&bytes);
        let pooled = bench.pool.usage().used_bytes;
        let progress = bench.round(&mut input).expect("a good host");
        assert_eq!(progress, Received::Hungry);
        drop(input);
        let pooled = bench.pool.usage().used_bytes - pooled;
        assert_eq!(pooled, if held { 0 } else { 3 * 4096 });
        // The one that the volume took is as it was received; behind the others more is not.
        assert_eq!(bench.held() > 0, held);
        let taken = bench.requests.borrow().front().map(written);
        assert_eq!(taken, Some(if held { 1 } else { 2 }));
        assert!(bench.answer_one());
        assert_eq!(bench.held(), 0, "two or more have not been answered");
    }
    let mut order = Vec::new();
    loop {
        let taken = bench.requests.borrow().front().map(written);
        let Some(cid) = taken else { break };
        order.push(cid);
        assert!(bench.answer_one());
    }
    assert_eq!(order, [3, 4, 5, 6]);
    assert_eq!(bench.queue.in_flight(), 0);
}

/// The capsule of a Copy of the first 32 KiB, with its list of ranges in it.
fn copy_capsule(cid: u16) -> Vec<u8> {
    let copy = NvmCommand::Copy(CopyCommand {
        destination_lba: 512,
        ranges: 1,
        ..CopyCommand::default()
    });
    let mut bytes = with_data(&copy, cid, Fuse::Normal, CopyRange::SIZE as u32);
    bytes[72..].copy_from_slice(&CopyRange::new(0, COPY_BLOCKS).encode());
    bytes
}

const COPY_BLOCKS: u32 = 64;

impl Bench {
    /// Answers the request that came last, a read, with these buffers.
    fn answer_read(&mut self, buffers: ReadBuffers) {
        let request = self.requests.borrow_mut().pop_back().expect("a request");
        let Operation::Read { lba, blocks, .. } = request.operation else {
            panic!("{request:?} is no read")
        };
        let operation = Operation::Read {
            lba,
            blocks,
            buffers,
        };
        let completion = Completion {
            token: request.token,
            result: Ok(()),
            operation,
        };
        self.with_env(|_, queue, _, env| queue.completed(completion, env));
        self.queue.commands().pump();
    }
}

/// The memory that a volume lends to a Copy could be the reserve: it is of the pool, and long enough.
#[test]
fn an_aborted_copy_leaves_nothing_of_a_volumes_as_the_reserve() {
    let mut bench = Bench::new(Setup {
        depth: 1,
        ..Setup::PLAIN
    });
    bench.feed(&icreq(false)).expect("a good host");
    let used = |bench: &Bench| bench.pool.usage().used_bytes;
    let before = used(&bench);
    // Others have their turn at buffers: its list is received into the reserve.
    bench.queue.room().set_turns(false, true);
    let mut input = bench.received(&copy_capsule(1));
    bench.round(&mut input).expect("a good host");
    assert_eq!(used(&bench), before, "the reserve");
    // A flush is before its write.
    let flush = NvmCommand::Flush.sqe(2, 1, SglDescriptor::NONE);
    let mut input = bench.received(&capsule(&flush.encode(), 0, false));
    bench.round(&mut input).expect("a good host");
    drop(input);
    let lent = bench.pool.segment(COPY_BLOCKS as usize * 512);
    let mut data = Views::new();
    data.push(lent.expect("there is room").freeze());
    bench.answer_read(ReadBuffers::Filled(data));
    assert!(bench.queue.abort(1), "its write was not begun");
    bench.queue.restore_reserve(&bench.pool, 8192);
    assert_eq!(used(&bench), before);
    assert!(bench.answer_one());
    assert_eq!(bench.queue.in_flight(), 0);
}

/// A read that a volume gives back without data, or with less than was asked for, is not written, and is not the end of a write.
#[test]
fn a_copy_ends_where_a_read_is_not_whole() {
    let short = View::zeroes(512 * (COPY_BLOCKS as usize - 1)).collect();
    for buffers in [ReadBuffers::Lend, ReadBuffers::Filled(short)] {
        let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
        peer.read(&bench.feed(&icreq(false)).expect("a good host"));
        let mut input = bench.received(&copy_capsule(1));
        bench.round(&mut input).expect("a good host");
        drop(input);
        bench.answer_read(buffers);
        assert!(bench.requests.borrow().is_empty(), "nothing is written");
        let sent = bench.feed(&[]).expect("a good host");
        assert!(peer.read(&sent).is_empty());
        let status = Status::INTERNAL_ERROR.with_more().bits();
        assert_eq!(peer.answers, BTreeMap::from([(1, status)]));
        assert_eq!(bench.queue.in_flight(), 0);
        assert_eq!(bench.counters.failed_commands.get(), 1);
    }
}

#[test]
fn data_that_may_never_come_does_not_keep_receives_short() {
    let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
    peer.read(&bench.feed(&icreq(false)).expect("a good host"));
    let write = |cid| {
        let fetched = SglDescriptor::Transport { length: 4096 };
        let sqe = NvmCommand::Write(Blocks::new(0, 8)).sqe(cid, 1, fetched);
        capsule(&sqe.encode(), 0, false)
    };
    let expected = |bench: &Bench| bench.framing.expected(0, &bench.queue);
    assert_eq!(expected(&bench), Amount::Usual);
    let first = bench.feed(&write(1)).expect("a good host");
    let second = bench.feed(&write(2)).expect("a good host");
    assert_eq!(expected(&bench), Amount::Headers);
    assert!(bench.queue.abort(1));
    assert_eq!(expected(&bench), Amount::Headers, "the second one's comes");
    bench.feed(&peer.read(&second)).expect("a good host");
    assert_eq!(expected(&bench), Amount::Usual, "the first one's may not");
    assert!(bench.queue.is_fetching());
    // It comes after all.
    bench.feed(&peer.read(&first)).expect("a good host");
    assert_eq!(expected(&bench), Amount::Usual);
    assert!(!bench.queue.is_fetching());
    assert_eq!(bench.queue.in_flight(), 0);
    bench.feed(&write(3)).expect("a good host");
    assert_eq!(expected(&bench), Amount::Headers);
}

#[test]
fn the_reserve_stays_as_long_as_it_was() {
    const LENGTHS: [usize; 4] = [1 << 20, 64 << 10, 8192, 4096];
    let mut bench = Bench::new(Setup::PLAIN);
    bench.feed(&icreq(false)).expect("a good host");
    let mut taken = Vec::new();
    let exhaust = |bench: &Bench, taken: &mut Vec<Segment>| {
        for length in LENGTHS {
            taken.extend(std::iter::from_fn(|| bench.pool.segment(length).ok()));
        }
    };
    let at = Blocks::new(0, 8);
    for round in 0..2 {
        let short = bench.pool.segment(4096).expect("room");
        // The first half's data has the reserve, the second's a buffer that is half as long.
        exhaust(&bench, &mut taken);
        let first = with_data(&NvmCommand::Compare(at), 1, Fuse::First, 4096);
        bench.feed(&first).expect("a good host");
        drop(short);
        let second = with_data(&NvmCommand::Write(at), 2, Fuse::Second, 4096);
        bench.feed(&second).expect("a good host");
        assert_eq!(bench.queue.in_flight(), 0, "round {round}");
        // The reserve has room for whatever comes in a capsule.
        exhaust(&bench, &mut taken);
        let long = with_data(
            &NvmCommand::Write(Blocks::new(0, 16)),
            3,
            Fuse::Normal,
            8192,
        );
        let mut input = bench.received(&long);
        let progress = bench.round(&mut input).expect("a good host");
        assert_eq!(progress, Received::Hungry, "round {round}");
        assert!(bench.answer_one());
        taken.clear();
    }
}

/// A read or write of `blocks` whose data does not come in its capsule.
fn by_request(command: fn(Blocks) -> NvmCommand, cid: u16, blocks: u32) -> Vec<u8> {
    let sgl = SglDescriptor::Transport {
        length: blocks * BLOCK_BYTES,
    };
    let sqe = command(Blocks::new(0, blocks)).sqe(cid, 1, sgl);
    capsule(&sqe.encode(), 0, false)
}

/// All that is written leaves.
fn leave(bench: &mut Bench) -> Vec<u8> {
    bench.with_env(|framing, queue, out, env| {
        queue.retry_buffers(env);
        framing.write(queue, env.pool, out);
        framing.send_began(queue);
        queue.commands().send_began();
        framing.send_ended();
        let (left, _) = queue.commands().send_ended();
        queue.room().give_back(left);
    });
    bench.queue.commands().pump();
    let sent = bench.out.slices().flatten().copied().collect();
    bench.out.clear();
    sent
}

/// What waits for room in a queue is not overtaken by what comes later and needs less.
#[test]
fn short_reads_do_not_take_the_room_that_a_long_write_waits_for() {
    const BLOCKS: u32 = 64;
    let mut bench = Bench::new(Setup::PLAIN);
    bench.feed(&icreq(false)).expect("a good host");
    let room = u64::from(2 * BLOCKS * BLOCK_BYTES);
    let account = weir_front::Account::new(u64::MAX);
    bench.queue.bound_bytes(&account, room, 0);
    let take = |bench: &mut Bench, bytes: Vec<u8>| {
        let mut input = bench.received(&bytes);
        let progress = bench.round(&mut input).expect("a good host");
        assert_eq!(progress, Received::Hungry);
    };
    for cid in 1..=2 {
        take(&mut bench, by_request(NvmCommand::Read, cid, BLOCKS));
    }
    take(&mut bench, by_request(NvmCommand::Write, 3, 2 * BLOCKS));
    assert_eq!(bench.requests.borrow().len(), 2, "there was room for these");
    for cid in 4..=5 {
        assert!(bench.answer_one());
        leave(&mut bench);
        take(&mut bench, by_request(NvmCommand::Read, cid, BLOCKS));
    }
    assert!(bench.requests.borrow().is_empty(), "they wait behind it");
    assert!(!bench.queue.is_fetching());
    leave(&mut bench);
    assert!(bench.queue.is_fetching(), "it has all the room");
    assert_eq!(account.used(), room);
}

/// An H2CData PDU without digests, and as much data as it says.
fn h2c_data(header: &H2cData) -> Vec<u8> {
    let mut buffer = [0; HEADER_SIZE_MAX];
    let written = Writer::default().h2c_data(&mut buffer, header);
    let mut bytes = buffer[..written].to_vec();
    bytes.resize(written + header.length as usize, 0x5a);
    bytes
}

/// A connection with two writes whose data was asked for, of the first of which `came` bytes have come, and the H2CData that brings
/// the rest of these; and what was asked for of the second.
fn two_awaited(came: u32) -> (Bench, H2cData, R2t) {
    let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
    peer.read(&bench.feed(&icreq(false)).expect("a good host"));
    for cid in AWAITED {
        let write = by_request(NvmCommand::Write, cid, AWAITED_BYTES / BLOCK_BYTES);
        peer.read(&bench.feed(&write).expect("a good host"));
    }
    let [first, second] = peer.r2ts[..] else {
        panic!("an R2T for each write, not {:?}", peer.r2ts)
    };
    assert_eq!([first.cid, second.cid], AWAITED);
    assert_eq!((first.offset, first.length), (0, AWAITED_BYTES));
    assert_ne!(first.transfer_tag, second.transfer_tag);
    let header = |offset, length| H2cData {
        cid: first.cid,
        transfer_tag: first.transfer_tag,
        offset,
        length,
        last: offset + length == AWAITED_BYTES,
    };
    if came > 0 {
        bench
            .feed(&h2c_data(&header(0, came)))
            .expect("a good host");
    }
    (bench, header(came, AWAITED_BYTES - came), second)
}

const AWAITED: [u16; 2] = [1, 2];
const AWAITED_BYTES: u32 = 4096;

/// H2CData is taken as its R2T asked for it, to the byte (NVMe/TCP Transport 1.0c, section 3.6.2.8).
#[test]
fn data_is_taken_only_as_it_was_asked_for() {
    type Change = fn(&mut H2cData);
    let out_of_range = Termination::out_of_range;
    let (flags, cccid, ttag) = (1, 8, 10);
    let field = Termination::invalid_field;
    let changes: [(u32, Change, Termination); 16] = [
        (0, |data| data.offset = 1, out_of_range()),
        (
            0,
            |data| (data.offset, data.length) = (1, 4095),
            out_of_range(),
        ),
        (
            0,
            |data| (data.offset, data.length) = (4, 4092),
            out_of_range(),
        ),
        (1024, |data| data.offset -= 1, out_of_range()),
        (
            1024,
            |data| (data.offset, data.length) = (1025, 3071),
            out_of_range(),
        ),
        (1024, |data| data.offset = 0, out_of_range()),
        (1024, |data| data.offset = u32::MAX - 3, out_of_range()),
        (0, |data| data.length += 1, out_of_range()),
        (
            0,
            |data| (data.length, data.last) = (4097, false),
            out_of_range(),
        ),
        (
            0,
            |data| (data.length, data.last) = (4100, false),
            out_of_range(),
        ),
        (
            1024,
            |data| (data.length, data.last) = (3076, false),
            out_of_range(),
        ),
        (0, |data| data.last = false, field(flags)),
        (1024, |data| data.length = 512, field(flags)),
        (0, |data| data.cid = AWAITED[1], field(cccid)),
        (0, |data| data.cid = 77, field(cccid)),
        (0, |data| data.transfer_tag = 77, field(ttag)),
    ];
    for (number, (came, change, expected)) in changes.into_iter().enumerate() {
        let (mut bench, mut header, _) = two_awaited(came);
        change(&mut header);
        let refused = bench.feed(&h2c_data(&header));
        assert_eq!(
            refused.expect_err("it was not asked for"),
            FramingError::Terminate(expected),
            "change {number}: {header:?}"
        );
    }
    let (mut bench, mut header, other) = two_awaited(0);
    header.transfer_tag = other.transfer_tag;
    let refused = bench.feed(&h2c_data(&header));
    let expected = FramingError::Terminate(field(cccid));
    assert_eq!(refused.expect_err("the other's tag"), expected);
    for came in [0, 4, 1024] {
        let (mut bench, header, _) = two_awaited(came);
        bench.feed(&h2c_data(&header)).expect("it was asked for");
        assert_eq!(bench.queue.in_flight(), 1, "the first write is answered");
    }
}

/// The progress of what comes is that of one PDU, from its first byte to its last.
#[test]
fn each_pdu_that_arrives_has_a_number_of_its_own() {
    let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
    peer.read(&bench.feed(&icreq(false)).expect("a good host"));
    let mut bytes = with_data(&NvmCommand::Write(Blocks::new(0, 8)), 1, Fuse::Normal, 4096);
    bytes.extend(write_capsule(2));
    let mut numbers = Vec::new();
    let mut input = View::copy_of(&bytes);
    for length in [20, 100, 4000, 48 + 50, 100] {
        let mut part = input.split_to(length);
        bench.round(&mut part).expect("a good host");
        numbers.push(bench.framing.arriving().expect("in the middle of a PDU"));
    }
    assert_eq!(numbers[0], numbers[1], "one PDU");
    assert_eq!(numbers[1], numbers[2], "one PDU");
    assert_ne!(numbers[2], numbers[3], "the next one's header");
    assert_eq!(numbers[3], numbers[4], "the next one");
}

/// A host is asked for data when the request for it has left, and no sooner.
#[test]
fn what_has_not_left_is_not_awaited() {
    let mut bench = Bench::new(Setup::PLAIN);
    bench.feed(&icreq(false)).expect("a good host");
    let looked = |bench: &mut Bench| bench.framing.look_at_awaited(&bench.queue);
    for cid in 1..=2 {
        bench
            .feed(&by_request(NvmCommand::Write, cid, 8))
            .expect("a good host");
    }
    assert_eq!(looked(&mut bench), None);
    bench.framing.send_began(&mut bench.queue);
    bench.queue.commands().send_began();
    bench
        .feed(&by_request(NvmCommand::Write, 3, 8))
        .expect("a good host");
    assert_eq!(looked(&mut bench), None, "they are on their way");
    bench.framing.send_ended();
    let (left, _) = bench.queue.commands().send_ended();
    bench.queue.room().give_back(left);
    let two = Awaited {
        oldest: 1,
        held: 2 * 4096,
        left: 2 * 4096,
        left_of_last: 0,
        is_arriving: false,
    };
    assert_eq!(looked(&mut bench), Some(two), "but for the third");
    leave(&mut bench);
    let three = Awaited {
        held: 3 * 4096,
        left: 3 * 4096,
        left_of_last: 2 * 4096,
        ..two
    };
    assert_eq!(looked(&mut bench), Some(three));
    assert!(bench.queue.abort(1));
    let rest = Awaited {
        oldest: 2,
        held: 2 * 4096,
        left: 2 * 4096,
        left_of_last: 2 * 4096,
        is_arriving: false,
    };
    assert_eq!(looked(&mut bench), Some(rest), "an aborted one is not owed");
}

/// A half of a fused pair whose data does not come in its capsule.
fn half(command: fn(Blocks) -> NvmCommand, cid: u16, fuse: Fuse) -> Vec<u8> {
    half_of(AWAITED_BYTES, command, cid, fuse)
}

fn half_of(length: u32, command: fn(Blocks) -> NvmCommand, cid: u16, fuse: Fuse) -> Vec<u8> {
    let sgl = SglDescriptor::Transport { length };
    let at = Blocks::new(0, length / BLOCK_BYTES);
    let sqe = Sqe {
        fuse,
        ..command(at).sqe(cid, 1, sgl)
    };
    capsule(&sqe.encode(), 0, false)
}

/// Halves of a fused pair end together, though one of them finds every slot taken (NVMe Base 2.0c, section 3.4.2: fused operations).
#[test]
fn a_half_that_finds_no_slot_ends_the_other() {
    const SLOTS: u16 = ENTRIES as u16 + 8;
    const FIRST: u16 = 100;
    const SECOND: u16 = 101;
    for has_slot in [true, false] {
        let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
        peer.read(&bench.feed(&icreq(false)).expect("a good host"));
        let mut awaited = Vec::new();
        for cid in 0..SLOTS - u16::from(has_slot) {
            let write = by_request(NvmCommand::Write, cid, AWAITED_BYTES / BLOCK_BYTES);
            awaited.extend(peer.read(&bench.feed(&write).expect("within its slots")));
        }
        let first = half(NvmCommand::Compare, FIRST, Fuse::First);
        peer.read(&bench.feed(&first).expect("a host that asks too much"));
        assert_eq!(peer.answers.contains_key(&FIRST), !has_slot);
        if !has_slot {
            // From now on there are slots again, and room for the second half.
            peer.read(&bench.feed(&awaited).expect("a good host"));
        }
        let second = half(NvmCommand::Write, SECOND, Fuse::Second);
        peer.read(&bench.feed(&second).expect("a host that asks too much"));
        let (full, failed) = (
            Status::COMMAND_INTERRUPTED,
            Status::ABORTED_FAILED_FUSED_COMMAND,
        );
        let expected = if has_slot {
            [failed, full]
        } else {
            [full, failed]
        };
        for (cid, status) in [FIRST, SECOND].into_iter().zip(expected) {
            let answer = peer.answers.get(&cid).copied().expect("both are answered");
            assert!(
                Status::from_bits(answer).is(status),
                "CID {cid} of {has_slot}: {answer:#x}"
            );
        }
        if has_slot {
            peer.read(&bench.feed(&awaited).expect("a good host"));
        }
        assert_eq!(bench.queue.in_flight(), 0);
    }
}

/// As many pairs as would have all the room by one of their halves each, and so would wait for each other for ever.
#[test]
fn fused_pairs_do_not_wait_for_each_other() {
    const PAIRS: u16 = 4;
    // Longer than a queue's reserve.
    const BYTES: u32 = 16 << 10;
    // Room for so many halves: of one queue, of all queues; not enough for one pair, and for one and a half.
    for (own, all) in [(1, 8), (3, 8), (8, 1), (8, 3)] {
        let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
        peer.read(&bench.feed(&icreq(false)).expect("a good host"));
        let account = weir_front::Account::new(all * u64::from(BYTES));
        let own = own * u64::from(BYTES);
        bench.queue.bound_bytes(&account, own, 0);
        let mut asked = Vec::new();
        for pair in 0..PAIRS {
            let first = half_of(BYTES, NvmCommand::Compare, 2 * pair, Fuse::First);
            let second = half_of(BYTES, NvmCommand::Write, 2 * pair + 1, Fuse::Second);
            asked.extend(peer.read(&bench.feed(&first).expect("a good host")));
            asked.extend(peer.read(&bench.feed(&second).expect("a good host")));
        }
        for _ in 0..PAIRS {
            let sent = bench
                .feed(&std::mem::take(&mut asked))
                .expect("a good host");
            asked.extend(peer.read(&sent));
            asked.extend(peer.read(&leave(&mut bench)));
        }
        assert_eq!(bench.queue.in_flight(), 0, "room for {own} of {all}");
        assert_eq!(peer.answers.len(), usize::from(2 * PAIRS));
        assert!(peer.answers.values().all(|status| *status == 0));
        assert_eq!(account.used(), 0);
    }
}

/// A pair of which one half has a buffer, and the other would have to wait for one, is to be sent again: many such could have all
/// buffers by one half each.
#[test]
fn a_pair_of_which_half_is_there_does_not_wait() {
    let at = Blocks::new(0, AWAITED_BYTES / BLOCK_BYTES);
    let arrives = |command: fn(Blocks) -> NvmCommand, cid, fuse| {
        with_data(&command(at), cid, fuse, AWAITED_BYTES)
    };
    for first_arrives in [true, false] {
        let (mut bench, mut peer) = (Bench::new(Setup::PLAIN), Peer::new(false));
        peer.read(&bench.feed(&icreq(false)).expect("a good host"));
        let mut taken = Vec::new();
        for length in [1 << 20, 64 << 10, 8192, AWAITED_BYTES as usize] {
            taken.extend(std::iter::from_fn(|| bench.pool.segment(length).ok()));
        }
        let [first, second] = if first_arrives {
            let second = half(NvmCommand::Write, 2, Fuse::Second);
            [arrives(NvmCommand::Compare, 1, Fuse::First), second]
        } else {
            let first = half(NvmCommand::Compare, 1, Fuse::First);
            [first, arrives(NvmCommand::Write, 2, Fuse::Second)]
        };
        // The half that arrives has the queue's reserve.
        peer.read(&bench.feed(&first).expect("a good host"));
        peer.read(&bench.feed(&second).expect("a good host"));
        let answer = |cid| Status::from_bits(peer.answers[&cid]);
        // The one that would have waited; when the second arrives whole it has its room at once.
        let (interrupted, failed) = if first_arrives { (2, 1) } else { (1, 2) };
        assert!(answer(interrupted).is(Status::COMMAND_INTERRUPTED));
        assert!(answer(failed).is(Status::ABORTED_FAILED_FUSED_COMMAND));
        assert_eq!(bench.queue.in_flight(), 0);
        // The next one goes.
        drop(taken);
        let first = peer.read(
            &bench
                .feed(&half(NvmCommand::Compare, 3, Fuse::First))
                .expect("a good host"),
        );
        assert!(first.is_empty());
        let data = peer.read(
            &bench
                .feed(&half(NvmCommand::Write, 4, Fuse::Second))
                .expect("a good host"),
        );
        peer.read(&bench.feed(&data).expect("a good host"));
        assert_eq!((peer.answers[&3], peer.answers[&4]), (0, 0));
    }
}
