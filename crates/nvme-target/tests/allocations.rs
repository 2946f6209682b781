//! The steady state allocates nothing: commands of every kind that a host sends all day, over the whole path of the target,
//! with sockets and io_uring. Counted is the reactor's thread alone; what the host here allocates is its own affair.

#[path = "it/common.rs"]
mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::*;
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme_target::TargetConfig;
use weir_reactor::heap::{CountingHeap, allocations, tell_next};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, ReactorId, ReactorThread, Remote, System};
use weir_volume::{Access, Guard, GuardConfig, MemVolume, NullVolume};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const BLOCK: u32 = 4096;
const LONG: u32 = 128 << 10;
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
    /// Writes and reads of one block by turns, so that a write meets a page that is being sent.
    Same,
}

const KINDS: [Kind; 8] = [
    Kind::Write(BLOCK),
    Kind::Read(BLOCK),
    Kind::Compare(BLOCK),
    Kind::Flush,
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
            Kind::Same if index.is_multiple_of(2) => Kind::Write(BLOCK).command(0),
            Kind::Same => Kind::Read(BLOCK).command(0),
        }
    }
}

fn volume(kind: &str) -> Arc<Guard> {
    let url = format!("{kind}:?size=64M&block_size={BLOCK}");
    let url = url.parse().expect("a URL");
    let access = Access { read_only: false };
    match kind {
        "mem" => Guard::new(
            MemVolume::open(&url, access).expect("memory"),
            GuardConfig::default(),
        ),
        _ => Guard::new(
            NullVolume::open(&url, access).expect("nothing"),
            GuardConfig::default(),
        ),
    }
    .expect("a guard")
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
    let mut bytes = Vec::new();
    let prepared: Vec<u16> = (0..count)
        .map(|index| {
            let (command, writes, reads) = kind.command(index);
            let sqe = command.sqe(0, 1, SglDescriptor::NONE);
            queue.prepare(sqe, &zeroes[..writes], reads, &mut bytes)
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

/// Runs everything on one volume, with these options of the host.
fn allocates_nothing(kind: &'static str, options: HostOptions) {
    let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
    let (server, host) = (reactor(&system, 0), reactor(&system, 1));
    let served = server.remote.clone();
    let work = move |reactor: Reactor| async move {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let config = TargetConfig::default();
        let remotes = vec![served.clone()];
        let (_target, address) = serve_at(remotes, config, &[volume(kind)], address, 0).await;
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut queue = io_queue(&reactor, address, id, 1, options).await;
        measure(&reactor, &mut queue, &served, kind).await;
    };
    host.remote.call_blocking(work).expect("it runs");
    for thread in [host, server] {
        thread.remote.stop();
        thread.join();
    }
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
