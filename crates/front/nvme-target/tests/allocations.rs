//! The steady state allocates nothing: commands of every kind that a host sends all day, over the whole path of the target,
//! with sockets and io_uring. Counted is the reactor's thread alone; what the host here allocates is its own affair.

#[path = "it/common.rs"]
mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::*;
use weir_nvme::command::{
    AdminCommand, Blocks, DatasetManagement, DatasetManagementRange, GetLogPage, NvmCommand,
};
use weir_nvme::log::LogId;
use weir_nvme::nqn::DISCOVERY_NQN;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme_target::{Subsystem, Target, TargetConfig};
use weir_reactor::heap::{CountingHeap, allocations, tell_next};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, ReactorId, ReactorThread, Remote, System};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const BLOCK: u32 = 4096;
const LONG: u32 = 128 << 10;
const RANGES: u16 = 256;
/// Commands at once: what is measured, after twice as many at once.
const TOGETHER: [usize; 3] = [1, 4, 16];
const ROUNDS: usize = 40;
/// Times that this is measured, of which one must be without an allocation: lists grow to the most that they ever held at
/// once, which depends on what meets on the way. What a command allocates is seen each time.
const TRIES: usize = 3;
/// Places that are named where something was allocated.
const TOLD: u32 = 3;

/// One kind of command, again and again.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Read(u32),
    /// In the capsule or by R2T, as its length is.
    Write(u32),
    Compare(u32),
    Flush,
    /// Of 256 ranges.
    Deallocate,
    /// Writes and reads of one block by turns, so that a write meets a page that is being sent.
    Same,
}

const KINDS: [Kind; 9] = [
    Kind::Write(BLOCK),
    Kind::Read(BLOCK),
    Kind::Compare(BLOCK),
    Kind::Flush,
    Kind::Deallocate,
    Kind::Write(LONG),
    Kind::Read(LONG),
    Kind::Same,
    Kind::Write(BLOCK),
];

impl Kind {
    /// The `index`th command of this kind: its data, and how much it reads.
    fn command(self, index: usize) -> (NvmCommand, usize, u32) {
        let at = |bytes: u32| Blocks::new(index as u64 * u64::from(LONG / BLOCK), bytes / BLOCK);
        match self {
            Kind::Read(bytes) => (NvmCommand::Read(at(bytes)), 0, bytes),
            Kind::Write(bytes) => (NvmCommand::Write(at(bytes)), bytes as usize, 0),
            Kind::Compare(bytes) => (NvmCommand::Compare(at(bytes)), bytes as usize, 0),
            Kind::Flush => (NvmCommand::Flush, 0, 0),
            Kind::Deallocate => {
                let management = DatasetManagement {
                    ranges: RANGES,
                    deallocate: true,
                    ..DatasetManagement::default()
                };
                let bytes = usize::from(RANGES) * DatasetManagementRange::SIZE;
                (NvmCommand::DatasetManagement(management), bytes, 0)
            }
            Kind::Same if index.is_multiple_of(2) => Kind::Write(BLOCK).command(0),
            Kind::Same => Kind::Read(BLOCK).command(0),
        }
    }
}

fn reactor(system: &Arc<LinuxSystem>, number: u32) -> ReactorThread {
    let config = ReactorConfig {
        id: ReactorId(number),
        name: format!("reactor-{number}"),
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
        Box::pin(std::future::pending())
    });
    Arc::clone(system)
        .start_reactor(config, main)
        .expect("a reactor starts")
}

/// So many commands of a kind, sent at once.
async fn together(queue: &mut Queue, kind: Kind, count: usize, zeroes: &[u8]) {
    // Where nothing is written.
    let range = |index| DatasetManagementRange {
        lba: 8192 + u64::from(index),
        blocks: 1,
        ..DatasetManagementRange::default()
    };
    let ranges: &[u8] = &(0..RANGES)
        .flat_map(|index| range(index).encode())
        .collect::<Vec<u8>>();
    let mut bytes = Vec::new();
    let prepared: Vec<u16> = (0..count)
        .map(|index| {
            let (command, writes, reads) = kind.command(index);
            let sqe = command.sqe(0, 1, SglDescriptor::NONE);
            let data = match kind {
                Kind::Deallocate => ranges,
                _ => &zeroes[..writes],
            };
            queue.prepare(sqe, data, reads, &mut bytes)
        })
        .collect();
    queue.send_bytes(&bytes).await.expect("connected");
    for cid in prepared {
        let (cqe, _) = queue.answer(cid).await.expect("connected");
        assert!(cqe.status.is_success(), "{kind:?}: {:?}", cqe.status);
    }
}

/// Has the reactor's thread say something. Asking allocates nothing there.
async fn ask(host: &Reactor, server: &Remote, what: impl Fn() -> u64 + Send + 'static) -> u64 {
    let answer = Arc::new(OnceLock::new());
    let theirs = Arc::clone(&answer);
    server
        .run(move |_| theirs.set(what()).expect("it is asked once"))
        .expect("it runs");
    loop {
        if let Some(answer) = answer.get() {
            return *answer;
        }
        host.sleep(Duration::from_micros(50)).await;
    }
}

/// All kinds, one after the other, each at several depths.
async fn measure(host: &Reactor, queue: &mut Queue, server: &Remote, what: &str) {
    // A compare compares with what was written, and null: is all zeroes.
    let zeroes = vec![0; LONG as usize];
    let deepest = TOGETHER[TOGETHER.len() - 1];
    for _ in 0..4 {
        for kind in KINDS {
            together(queue, kind, 2 * deepest, &zeroes).await;
        }
    }
    for kind in KINDS {
        for count in TOGETHER {
            let mut allocated = u64::MAX;
            for _ in 0..TRIES {
                let before = ask(host, server, begin).await;
                for _ in 0..ROUNDS {
                    together(queue, kind, count, &zeroes).await;
                }
                allocated = allocated.min(ask(host, server, end).await - before);
            }
            let commands = ROUNDS * count;
            assert_eq!(
                allocated, 0,
                "at least, in {commands} commands of {kind:?}, {count} at once, to {what}"
            );
        }
    }
}

/// Counts from now on; where it comes from is told.
fn begin() -> u64 {
    tell_next(TOLD);
    allocations()
}

fn end() -> u64 {
    tell_next(0);
    allocations()
}

/// Runs `work` with a target of one such volume, whose reactor is the last argument.
fn with_target<F: Future<Output = ()>>(
    kind: &'static str,
    work: impl FnOnce(Reactor, Target, SocketAddr, Remote) -> F + Send + 'static,
) {
    let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
    let (server, host) = (reactor(&system, 0), reactor(&system, 1));
    let served = server.remote.clone();
    let all = move |reactor: Reactor| async move {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let config = TargetConfig::default();
        let remotes = vec![served.clone()];
        let (target, address) = serve_at(remotes, config, &[volume(kind)], address, 0).await;
        work(reactor, target, address, served).await;
    };
    host.remote.call_blocking(all).expect("it runs");
    for thread in [host, server] {
        thread.remote.stop();
        thread.join();
    }
}

/// Runs everything on one volume, with these options of the host.
fn allocates_nothing(kind: &'static str, options: HostOptions) {
    with_target(kind, move |reactor, _target, address, served| async move {
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut queue = io_queue(&reactor, address, id, 1, options).await;
        measure(&reactor, &mut queue, &served, kind).await;
    });
}

const OPTIONS: HostOptions = HostOptions {
    header_digest: false,
    data_digest: false,
    alignment: 0,
    flow_control_off: true,
    entries: 64,
    keep_alive_ms: 0,
    in_capsule: 8192,
};

#[test]
fn null_allocates_nothing() {
    allocates_nothing("null", OPTIONS);
}

/// A log is built once, however many reads it takes to have all of it.
#[test]
fn a_read_of_the_discovery_log_costs_the_same_however_long_it_is() {
    const BYTES: u32 = 4096;
    with_target("null", |reactor, target, address, served| async move {
        let (mut queue, _) = admin_queue(&reactor, address, DISCOVERY_NQN, OPTIONS).await;
        let mut costs = Vec::new();
        for (generation, count) in [(2, 4), (3, 400)] {
            let named = |number: u32| Subsystem::new(nqn(&format!("{SUBSYSTEM}-{number}")), "1");
            let subsystems = (0..count).map(named).collect();
            let applied = target.apply(snapshot(generation, subsystems, address));
            applied.await.expect("applied");
            let get = GetLogPage::new(LogId::Discovery, 0, u64::from(BYTES));
            let command = AdminCommand::GetLogPage(get);
            queue.admin(command, &[], BYTES).await;
            let mut allocated = u64::MAX;
            for _ in 0..TRIES {
                let before = ask(&reactor, &served, allocations).await;
                for _ in 0..ROUNDS {
                    let (cqe, _) = queue.admin(command, &[], BYTES).await;
                    assert!(cqe.status.is_success(), "{:?}", cqe.status);
                }
                let after = ask(&reactor, &served, allocations).await;
                allocated = allocated.min(after - before);
            }
            costs.push(allocated);
        }
        // Less than one more for each read.
        let most = costs[0] + ROUNDS as u64;
        assert!(costs[1] < most, "allocations of {ROUNDS} reads: {costs:?}");
    });
}

#[test]
fn mem_allocates_nothing() {
    allocates_nothing("mem", OPTIONS);
}

#[test]
fn mem_with_digests_allocates_nothing() {
    let options = HostOptions {
        header_digest: true,
        data_digest: true,
        alignment: 3,
        flow_control_off: false,
        ..OPTIONS
    };
    allocates_nothing("mem", options);
}
