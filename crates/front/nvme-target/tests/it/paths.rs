//! Hosts with several paths: what a lost connection wrote comes before what its host does next, by whatever path, and keeps
//! nobody waiting for anything else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::slow::SlowVolume;
use weir_block::Volume;
use weir_nvme::command::{
    Blocks, ConnectData, DatasetManagement, DatasetManagementRange, NvmCommand,
};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{HostId, Status};
use weir_nvme_target::{ControllerModel, Namespace, Subsystem, Target, TargetConfig};
use weir_reactor::{Reactor, Remote};
use weir_volume::{Guard, GuardConfig, LimitedVolume, Limits, RateLimit};

const BLOCK: usize = 512;
/// Blocks that are asked for together: what is deallocated reads as zeroes.
const UNIT_BLOCKS: u32 = 8;
/// The same in bytes.
const UNIT: usize = UNIT_BLOCKS as usize * BLOCK;
/// For how long a volume does not answer.
const HUNG: Duration = Duration::from_secs(5);
/// By then everything has arrived that waits for no volume.
const SOON: Duration = Duration::from_secs(1);

fn guarded(slow: &Arc<SlowVolume>) -> Arc<Guard> {
    Guard::new(slow.clone(), GuardConfig::default()).expect("a guard")
}

/// A subsystem with a volume that is slow, and one beside it.
fn subsystem_of(first: Arc<dyn Volume>) -> Subsystem {
    let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "WEIR-PATHS");
    let second = memory_volume("4M", BLOCK as u32);
    subsystem.namespaces.push(Namespace::new(1, first, [1; 16]));
    subsystem
        .namespaces
        .push(Namespace::new(2, second, [2; 16]));
    subsystem
}

async fn serve_subsystem(
    remotes: Vec<Remote>,
    subsystem: Subsystem,
    config: TargetConfig,
    server: std::net::IpAddr,
) -> (Target, SocketAddr) {
    let (target, address) = serve(remotes, config, &[], server).await;
    let applied = target.apply(snapshot(2, vec![subsystem], address)).await;
    applied.expect("applied");
    (target, address)
}

/// A path: an admin queue, its controller, and one I/O queue.
struct Path {
    admin: Queue,
    controller: u16,
    io: Queue,
}

impl Path {
    async fn open(reactor: &Reactor, address: SocketAddr) -> Self {
        let options = in_capsule();
        let (admin, controller) = admin_queue(reactor, address, SUBSYSTEM, options).await;
        let io = io_queue(reactor, address, controller, 1, options).await;
        Path {
            admin,
            controller,
            io,
        }
    }

    /// One of another host.
    async fn of_another_host(reactor: &Reactor, address: SocketAddr) -> Self {
        let options = in_capsule();
        let host = nqn("nqn.2024-01.org.weir:host-2");
        let data = |id| ConnectData::new(HostId([8; 16]), id, &nqn(SUBSYSTEM), &host);
        let mut admin = Queue::open(reactor, address, options).await.expect("open");
        let any = data(ConnectData::ANY_CONTROLLER);
        let made = admin.connect_as(0, &any).await.expect("an answer");
        assert!(made.status.is_success());
        admin.set_configuration(enabled()).await;
        let controller = made.dw0() as u16;
        let mut io = Queue::open(reactor, address, options).await.expect("open");
        let connected = io.connect_as(1, &data(controller)).await;
        assert!(connected.expect("an answer").status.is_success());
        Path {
            admin,
            controller,
            io,
        }
    }
}

/// Options of hosts that send all their data in capsules.
fn in_capsule() -> HostOptions {
    HostOptions {
        in_capsule: 4 * UNIT as u32,
        ..HostOptions::default()
    }
}

/// Gives the blocks of `count` units.
fn units(first: u64, count: u32) -> Blocks {
    Blocks::new(first * u64::from(UNIT_BLOCKS), count * UNIT_BLOCKS)
}

async fn submit(queue: &mut Queue, command: NvmCommand, data: &[u8], reads: u32) -> u16 {
    let sqe = command.sqe(0, 1, SglDescriptor::NONE);
    queue.submit(sqe, data, reads).await.expect("connected")
}

async fn read(queue: &mut Queue, nsid: u32, unit: u64) -> Vec<u8> {
    let command = NvmCommand::Read(units(unit, 1));
    let (cqe, data) = queue.nvm(command, nsid, &[], UNIT as u32).await;
    assert!(cqe.status.is_success(), "{:?}", cqe.status);
    data
}

async fn write(queue: &mut Queue, nsid: u32, first: u64, data: &[u8]) {
    let command = NvmCommand::Write(units(first, (data.len() / UNIT) as u32));
    let (cqe, _) = queue.nvm(command, nsid, data, 0).await;
    assert!(cqe.status.is_success(), "{:?}", cqe.status);
}

/// The lost connection's requests, on four units: a command, its data, and what they hold when it has ended.
type Lost = (NvmCommand, Vec<u8>, Vec<u8>);

fn lost_write() -> Lost {
    let data = pattern(1, 4 * UNIT);
    (NvmCommand::Write(units(0, 4)), data.clone(), data)
}

fn lost_zeroes() -> Lost {
    let mut zeroes = weir_nvme::command::WriteZeroes::default();
    (zeroes.lba, zeroes.blocks) = (0, 4 * UNIT_BLOCKS);
    (
        NvmCommand::WriteZeroes(zeroes),
        Vec::new(),
        vec![0; 4 * UNIT],
    )
}

/// Four ranges under one command.
fn lost_deallocation() -> Lost {
    let range = |unit: u32| DatasetManagementRange {
        blocks: UNIT_BLOCKS,
        lba: u64::from(unit * UNIT_BLOCKS),
        ..DatasetManagementRange::default()
    };
    let management = DatasetManagement {
        ranges: 4,
        deallocate: true,
        ..DatasetManagement::default()
    };
    let ranges = (0..4).flat_map(|unit| range(unit).encode()).collect();
    (
        NvmCommand::DatasetManagement(management),
        ranges,
        vec![0; 4 * UNIT],
    )
}

/// The paths that the host goes on by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    /// One that it has had before.
    Other,
    /// A new association.
    New,
    /// The same queue of the same controller.
    Again,
}

/// Design rule 6: what a lost connection wrote has landed before what overlaps it and its host does next. Nothing else waits for it.
#[test]
fn what_a_lost_connection_wrote_lands_before_what_its_host_does_next() {
    for lost in [lost_write, lost_zeroes, lost_deallocation] {
        for next in [Next::Other, Next::New, Next::Again] {
            lose(lost, next);
        }
    }
}

fn lose(lost: fn() -> Lost, next: Next) {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let slow = SlowVolume::new(memory_volume("4M", BLOCK as u32));
        let subsystem = subsystem_of(guarded(&slow));
        let config = TargetConfig::default();
        let (target, address) = serve_subsystem(remotes, subsystem, config, server).await;
        let mut first = Path::open(&reactor, address).await;
        let mut other = Path::open(&reactor, address).await;
        let mut stranger = Path::of_another_host(&reactor, address).await;
        let before = pattern(7, 8 * UNIT);
        for half in [0, 4] {
            let data = &before[half * UNIT..][..4 * UNIT];
            write(&mut first.io, 1, half as u64, data).await;
        }
        let taken = slow.taken();
        slow.set_delay(HUNG);
        let (command, data, landed) = lost();
        submit(&mut first.io, command, &data, 0).await;
        eventually(&reactor, "it to begin", async || slow.taken() > taken).await;
        slow.set_delay(Duration::ZERO);

        let lost_at = reactor.now();
        let Path {
            admin,
            controller,
            io,
        } = first;
        drop(io);
        let kept = (next == Next::Again).then_some(admin);
        reactor.sleep(SOON / 10).await;
        let options = in_capsule();
        let mut io = match next {
            Next::Other => other.io,
            Next::New => {
                let path = Path::open(&reactor, address).await;
                other = path;
                other.io
            }
            Next::Again => io_queue(&reactor, address, controller, 1, options).await,
        };
        let new = pattern(2, UNIT);
        let reading = NvmCommand::Read(units(0, 2));
        let reading = submit(&mut io, reading, &[], 2 * UNIT as u32).await;
        let writing = submit(&mut io, NvmCommand::Write(units(2, 1)), &new, 0).await;
        // Other blocks, another namespace and another host are not concerned; nor is a flush.
        assert!(read(&mut io, 1, 4).await == before[4 * UNIT..5 * UNIT]);
        write(&mut io, 1, 5, &new).await;
        assert!(read(&mut io, 1, 5).await == new);
        write(&mut io, 2, 0, &new).await;
        assert!(read(&mut io, 2, 0).await == new);
        let (cqe, _) = io.nvm(NvmCommand::Flush, 1, &[], 0).await;
        assert!(cqe.status.is_success());
        assert!(read(&mut stranger.io, 1, 0).await == before[..UNIT]);
        assert!(!io.is_answered(reading) && !io.is_answered(writing));
        assert!(reactor.now() - lost_at < SOON, "{next:?} waited");

        let (cqe, data) = io.answer(reading).await.expect("connected");
        assert!(cqe.status.is_success());
        assert!(data == landed[..2 * UNIT], "{next:?} read what is no more");
        let (cqe, _) = io.answer(writing).await.expect("connected");
        assert!(cqe.status.is_success());
        reactor.sleep(HUNG).await;
        assert!(read(&mut io, 1, 2).await == new, "it was overwritten");
        assert!(read(&mut io, 1, 3).await == landed[3 * UNIT..]);
        drop((io, kept, other.admin, stranger));
        eventually(&reactor, "the end of every connection", async || {
            target.stats().connections == 0
        })
        .await;
        assert_eq!(target.stats().controllers, 0);
    });
}

/// A request that waited for its namespace's limits when its connection was lost never begins.
#[test]
fn what_a_lost_connection_had_behind_limits_never_lands() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let slow = SlowVolume::new(memory_volume("4M", BLOCK as u32));
        let limits = Limits {
            write_iops: Some(RateLimit::new(1, Some(1)).expect("a limit")),
            ..Limits::default()
        };
        let subsystem = subsystem_of(LimitedVolume::new(guarded(&slow), limits));
        let config = TargetConfig::default();
        let (_target, address) = serve_subsystem(remotes, subsystem, config, server).await;
        let mut first = Path::open(&reactor, address).await;
        let mut other = Path::open(&reactor, address).await;
        let (old, new) = (pattern(1, UNIT), pattern(2, UNIT));
        for unit in 0..4 {
            let command = NvmCommand::Write(units(unit, 1));
            submit(&mut first.io, command, &old, 0).await;
        }
        eventually(&reactor, "the first", async || slow.taken() == 1).await;
        drop(first.io);
        write(&mut other.io, 1, 3, &new).await;
        reactor.sleep(100 * SOON).await;
        assert_eq!(slow.taken(), 2, "one of each path");
        for (unit, expected) in [(0, &old), (1, &vec![0; UNIT]), (3, &new)] {
            assert!(
                read(&mut other.io, 1, unit).await == *expected,
                "unit {unit}"
            );
        }
        drop((first.admin, other.admin));
    });
}

/// A host that asks for the same controller again has it while a volume still hangs.
#[test]
fn a_static_controller_is_free_when_its_queues_are_lost() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        const ID: u16 = 11;
        let slow = SlowVolume::new(memory_volume("4M", BLOCK as u32));
        let mut subsystem = subsystem_of(guarded(&slow));
        subsystem.controller_model = ControllerModel::Static;
        subsystem.controller_ids = 10..=12;
        let config = TargetConfig {
            controllers_per_host_max: 2,
            ..TargetConfig::default()
        };
        let (target, address) = serve_subsystem(remotes, subsystem, config, server).await;
        let options = in_capsule();
        slow.set_delay(HUNG);
        let connect = async || {
            let mut admin = Queue::open(&reactor, address, options).await.expect("open");
            let data = connect_data(ID, SUBSYSTEM);
            let connected = admin.connect_as(0, &data).await.expect("an answer");
            (connected.status, admin)
        };
        for _ in 0..2 {
            let (status, mut admin) = connect().await;
            assert!(status.is_success(), "{status:?}");
            admin.set_configuration(enabled()).await;
            let mut io = io_queue(&reactor, address, ID, 1, options).await;
            let taken = slow.taken();
            let command = NvmCommand::Write(units(taken, 1));
            submit(&mut io, command, &pattern(1, UNIT), 0).await;
            eventually(&reactor, "it to begin", async || slow.taken() > taken).await;
            drop((admin, io));
            eventually(&reactor, "its end", async || {
                target.controllers().is_empty()
            })
            .await;
        }
        // What they have left counts until it has ended.
        let (status, _admin) = connect().await;
        assert!(status.is(Status::CONNECT_CONTROLLER_BUSY), "{status:?}");
        eventually(&reactor, "the end of every request", async || {
            target.stats().connections <= 1
        })
        .await;
        let (status, _admin) = connect().await;
        assert!(status.is_success(), "{status:?}");
    });
}

/// A queue that is lost again and again while a volume hangs leaves no more behind than its controller may have queues.
#[test]
fn a_queue_that_is_lost_again_and_again_waits_in_the_end() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        const QUEUES: u16 = 3;
        let slow = SlowVolume::new(memory_volume("4M", BLOCK as u32));
        let subsystem = subsystem_of(guarded(&slow));
        let config = TargetConfig {
            io_queues_max: QUEUES,
            ..TargetConfig::default()
        };
        let (target, address) = serve_subsystem(remotes, subsystem, config, server).await;
        let options = in_capsule();
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        slow.set_delay(HUNG);
        let began = reactor.now();
        for lost in 0..=u64::from(QUEUES) {
            let mut io = io_queue(&reactor, address, id, 1, options).await;
            let waited = reactor.now() - began >= HUNG;
            assert_eq!(waited, lost == u64::from(QUEUES), "after {lost}");
            let command = NvmCommand::Write(units(lost, 1));
            submit(&mut io, command, &pattern(1, UNIT), 0).await;
            eventually(&reactor, "it to begin", async || slow.taken() > lost).await;
            drop(io);
        }
        assert_eq!(target.controllers().len(), 1);
    });
}
