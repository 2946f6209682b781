//! What the target makes of volumes that are slow, wrong or short of buffers, and of who may see them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::slow::SlowVolume;
use weir_block::{Volume, VolumeEvent};
use weir_nvme::command::{AdminCommand, Blocks, ConnectData, NvmCommand, SetFeatures};
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::feature::{AsynchronousEventConfiguration, FeatureId};
use weir_nvme::identify::{Cns, decode_namespace_list};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::{HostId, Status};
use weir_nvme_target::{
    Allowed, AnaState, ControllerModel, HostOptions as PeerOptions, ListenerConfig, Namespace,
    Subsystem, Target, TargetConfig,
};
use weir_reactor::{
    PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, SocketOptions, System, TcpStream,
};
use weir_volume::{Access, Guard, GuardConfig, MemVolume};

const BLOCK: usize = 512;
const OTHER: &str = "nqn.2024-01.org.weir:other";

pub(crate) fn slow_subsystem() -> (Subsystem, Arc<SlowVolume>) {
    let volume = SlowVolume::new(memory_volume("4M", BLOCK as u32));
    let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "WEIR-SLOW");
    let namespace: Arc<dyn Volume> = volume.clone();
    subsystem
        .namespaces
        .push(Namespace::new(1, namespace, [1; 16]));
    (subsystem, volume)
}

async fn serve_subsystem(
    remotes: Vec<Remote>,
    subsystem: Subsystem,
    server: std::net::IpAddr,
) -> (Target, SocketAddr) {
    let (target, address) = serve(remotes, TargetConfig::default(), &[], server).await;
    let applied = target.apply(snapshot(2, vec![subsystem], address)).await;
    applied.expect("applied");
    (target, address)
}

/// An answer says that it is done: neither less nor earlier than the volume says so.
#[test]
fn nothing_is_answered_before_the_volume_has_done_it() {
    const DELAY: Duration = Duration::from_millis(50);
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (subsystem, volume) = slow_subsystem();
        let (_target, address) = serve_subsystem(remotes, subsystem, server).await;
        for in_capsule in [0, 8192] {
            let options = HostOptions {
                in_capsule,
                ..HostOptions::default()
            };
            let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut io = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(1, BLOCK);
            volume.set_delay(DELAY);
            let forced = |on| Blocks {
                force_unit_access: on,
                ..Blocks::new(0, 1)
            };
            let commands = [
                (NvmCommand::Write(forced(false)), &data[..], 0),
                (NvmCommand::Write(forced(true)), &data[..], 1),
                (NvmCommand::Flush, &[], 0),
            ];
            for (command, data, count) in commands {
                let (began, before) = (reactor.now(), volume.forced());
                let (cqe, _) = io.nvm(command, 1, data, 0).await;
                assert!(cqe.status.is_success(), "{command:?}");
                let took = reactor.now() - began;
                assert!(took >= DELAY, "{command:?} was answered after {took:?}");
                assert_eq!(volume.forced() - before, count, "{command:?}");
            }
        }
    });
}

#[test]
fn a_broken_invariant_ends_one_connection() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (subsystem, volume) = slow_subsystem();
        let (target, address) = serve_subsystem(remotes, subsystem, server).await;
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut one = io_queue(&reactor, address, id, 1, options).await;
        let mut other = io_queue(&reactor, address, id, 2, options).await;
        volume.set_delay(Duration::from_millis(20));
        let data = pattern(1, BLOCK);
        for lba in 100..110 {
            let write = NvmCommand::Write(Blocks::new(lba, 1)).sqe(0, 1, SglDescriptor::NONE);
            one.submit(write, &data, 0).await.expect("connected");
        }
        let bad = Blocks::new(SlowVolume::BAD_BLOCK, 1);
        let read = NvmCommand::Read(bad).sqe(0, 1, SglDescriptor::NONE);
        let cid = one.submit(read, &[], BLOCK as u32).await.expect("open");
        assert!(one.answer(cid).await.is_err());
        assert_eq!(target.stats().reactors[0].panics, 1);
        // Its queue can be made again, and the others did not notice.
        let flush = NvmCommand::Flush;
        assert!(other.nvm(flush, 1, &[], 0).await.0.status.is_success());
        drop(one);
        let mut again = io_queue(&reactor, address, id, 1, options).await;
        assert!(again.nvm(flush, 1, &[], 0).await.0.status.is_success());
        drop((admin, other, again));
        eventually(&reactor, "the end of every connection", async || {
            target.stats().connections == 0
        })
        .await;
    });
}

/// A volume that completes what it does not have is not one connection's: others' requests may never end.
#[test]
#[should_panic(expected = "which is no request that it has")]
fn a_completion_too_many_is_not_contained() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (subsystem, _volume) = slow_subsystem();
        let (target, address) = serve_subsystem(remotes, subsystem, server).await;
        let options = HostOptions::default();
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut io = io_queue(&reactor, address, id, 1, options).await;
        let twice = NvmCommand::Read(Blocks::new(SlowVolume::TWICE_BLOCK, 1));
        let sqe = twice.sqe(0, 1, SglDescriptor::NONE);
        let cid = io.submit(sqe, &[], BLOCK as u32).await.expect("open");
        let _ = io.answer(cid).await;
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(target.stats().reactors[0].panics, 0, "it was contained");
    });
}

/// A connection that ends waits for its volumes, and keeps nothing that others receive through meanwhile.
#[test]
fn a_connection_that_ends_lets_go_of_what_it_received() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let (subsystem, volume) = slow_subsystem();
        let (target, address) = serve_subsystem(remotes, subsystem, server).await;
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut io = io_queue(&reactor, address, id, 1, options).await;
        volume.set_delay(Duration::from_secs(5));
        let read = NvmCommand::Read(Blocks::new(0, 1)).sqe(0, 1, SglDescriptor::NONE);
        io.submit(read, &[], BLOCK as u32).await.expect("open");
        reactor.sleep(Duration::from_millis(10)).await;
        // Nothing that begins like this is a PDU.
        io.send_bytes(&[0xff; 4096]).await.expect("open");
        for _ in 0..20 {
            reactor.sleep(Duration::from_millis(200)).await;
            assert_eq!(world.receive_bytes_held(SERVER), 0);
        }
        assert_eq!(target.stats().connections, 2, "its read goes on");
        drop((admin, io));
        eventually(&reactor, "the end of every connection", async || {
            target.stats().connections == 0
        })
        .await;
    });
}

/// What a volume cannot answer for as long as it is not fenced ends the connections that wait for it, and no I/O queue is opened
/// to it meanwhile, by whatever host.
#[test]
fn what_a_volume_leaves_unanswered_ends_connections_and_refuses_queues() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (mut subsystem, volume) = slow_subsystem();
        let beside = memory_volume("4M", BLOCK as u32);
        subsystem
            .namespaces
            .push(Namespace::new(2, beside, [2; 16]));
        let mut another = Subsystem::new(nqn(OTHER), "WEIR-OTHER");
        let beside = memory_volume("4M", BLOCK as u32);
        another.namespaces.push(Namespace::new(1, beside, [3; 16]));
        const QUEUES: u16 = 4;
        let config = TargetConfig {
            io_queues_max: QUEUES,
            ..TargetConfig::default()
        };
        let (target, address) = serve(remotes, config, &[], server).await;
        let served = snapshot(2, vec![subsystem, another], address);
        target.apply(served).await.expect("applied");
        let options = HostOptions::default();
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut waits = io_queue(&reactor, address, id, 1, options).await;
        let mut idle = io_queue(&reactor, address, id, 2, options).await;
        volume.set_delay(Duration::from_secs(2));
        let write = NvmCommand::Write(Blocks::new(0, 1)).sqe(0, 1, SglDescriptor::NONE);
        let data = pattern(1, BLOCK);
        let cid = waits.submit(write, &data, 0).await.expect("open");
        // Its host has given up as many already as it may have, and waits to be let in again.
        for _ in 0..QUEUES {
            let mut gone = io_queue(&reactor, address, id, 3, options).await;
            gone.submit(write, &data, 0).await.expect("open");
            reactor.sleep(Duration::from_millis(10)).await;
        }
        let again = |qid: u16, subsystem: &'static str, id| {
            let reactor = reactor.clone();
            async move {
                let opened = Queue::open(&reactor, address, options).await;
                let mut queue = opened.expect("open");
                let connect = queue.connect_as(qid, &connect_data(id, subsystem)).await;
                (connect.expect("an answer").status, queue)
            }
        };
        let waiting = reactor.spawn(again(3, SUBSYSTEM, id));
        reactor.sleep(Duration::from_millis(10)).await;
        assert_eq!(
            target.connections().await.len(),
            4 + usize::from(QUEUES),
            "one waits"
        );

        volume.tell(VolumeEvent::Lost);
        volume.tell(VolumeEvent::Unfenced);
        assert!(waits.answer(cid).await.is_err(), "it was answered");
        let busy = Status::CONNECT_CONTROLLER_BUSY;
        let (refused, _queue) = waiting.await;
        assert!(refused.is(busy) && !refused.do_not_retry(), "{refused:?}");
        let (refused, _queue) = again(4, SUBSYSTEM, id).await;
        assert!(refused.is(busy), "{refused:?}");
        assert_eq!(
            target
                .stats()
                .reactors
                .iter()
                .map(|r| r.over_sessions)
                .sum::<u64>(),
            0
        );
        // Who waits for nothing there goes on; and so does what another host has to do with another subsystem.
        let flush = NvmCommand::Flush;
        assert!(idle.nvm(flush, 2, &[], 0).await.0.status.is_success());
        for (subsystem, is_refused) in [(SUBSYSTEM, true), (OTHER, false)] {
            let host = nqn("nqn.2024-01.org.weir:host-2");
            let data = |id| ConnectData::new(HostId([8; 16]), id, &nqn(subsystem), &host);
            let mut admin = Queue::open(&reactor, address, options).await.expect("open");
            let any = data(ConnectData::ANY_CONTROLLER);
            let made = admin.connect_as(0, &any).await.expect("an answer");
            assert!(made.status.is_success());
            admin.set_configuration(enabled()).await;
            let mut queue = Queue::open(&reactor, address, options).await.expect("open");
            let connected = queue.connect_as(1, &data(made.dw0() as u16)).await;
            let status = connected.expect("an answer").status;
            assert_eq!(status.is(busy), is_refused, "{subsystem}: {status:?}");
        }

        volume.tell(VolumeEvent::Fenced);
        let (granted, mut queue) = again(1, SUBSYSTEM, id).await;
        assert!(granted.is_success(), "{granted:?}");
        volume.set_delay(Duration::ZERO);
        assert!(queue.nvm(flush, 1, &[], 0).await.0.status.is_success());
    });
}

/// Writes behind a lock wait for as long as whoever holds it takes: they keep nothing that others receive through.
#[test]
fn writes_behind_a_lock_keep_no_receive_buffer() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let url = "mem:?size=4M&block_size=512".parse().expect("a URL");
        let memory = MemVolume::open(&url, Access { read_only: false }).expect("memory");
        let slow = SlowVolume::new(memory);
        let guard = Guard::new(slow.clone(), GuardConfig::default()).expect("a guard");
        let (target, address) = serve(remotes, TargetConfig::default(), &[guard], server).await;
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut io = io_queue(&reactor, address, id, 1, options).await;
        let mut other = io_queue(&reactor, address, id, 2, options).await;
        // A pair that the volume cannot do as one: its data is read under a lock, which takes five seconds.
        slow.set_delay(Duration::from_secs(5));
        let at = Blocks::new(8, 2);
        let mut bytes = Vec::new();
        let halves = [
            (NvmCommand::Compare(at), Fuse::First, 0),
            (NvmCommand::Write(at), Fuse::Second, 1),
        ];
        let mut cids = Vec::new();
        for (command, fuse, data) in halves {
            let sqe = weir_nvme::Sqe {
                fuse,
                ..command.sqe(0, 1, SglDescriptor::NONE)
            };
            cids.push(io.prepare(sqe, &[data; 2 * BLOCK], 0, &mut bytes));
        }
        io.send_bytes(&bytes).await.expect("open");
        reactor.sleep(Duration::from_millis(10)).await;
        slow.set_delay(Duration::ZERO);
        let sixteen = NvmCommand::Write(Blocks::new(0, 16)).sqe(0, 1, SglDescriptor::NONE);
        for data in 2..10 {
            let data = [data; 16 * BLOCK];
            cids.push(io.submit(sixteen, &data, 0).await.expect("open"));
        }
        for _ in 0..20 {
            reactor.sleep(Duration::from_millis(200)).await;
            assert_eq!(world.receive_bytes_held(SERVER), 0);
            let beside = NvmCommand::Write(Blocks::new(100, 16));
            let (cqe, _) = other.nvm(beside, 1, &[1; 16 * BLOCK], 0).await;
            assert!(cqe.status.is_success());
        }
        assert!(cids.iter().all(|&cid| !io.is_answered(cid)));
        for cid in cids {
            let (cqe, _) = io.answer(cid).await.expect("open");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        }
        let read = NvmCommand::Read(Blocks::new(0, 16));
        let (_, data) = other.nvm(read, 1, &[], 16 * BLOCK as u32).await;
        assert_eq!(data, [9; 16 * BLOCK]);
        drop((admin, io, other));
        eventually(&reactor, "the end of every connection", async || {
            target.stats().connections == 0
        })
        .await;
    });
}

/// Reactors with a pool that has room for very few large transfers.
fn starved_reactors(system: &Arc<dyn System>, count: u32) -> Vec<Remote> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("starved-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes: 1 << 20,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
            Box::pin(std::future::pending())
        });
        let thread = Arc::clone(system).start_reactor(config, main);
        thread.expect("a simulated reactor starts").remote.clone()
    };
    (0..count).map(start).collect()
}

/// Design rule 2: when buffers run out commands wait, and none is lost.
#[test]
fn commands_wait_when_buffers_run_out() {
    let simulation = simulation();
    let system = simulation.system(SERVER);
    let remotes = starved_reactors(&system, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("32M", BLOCK as u32)];
        let config = TargetConfig::default();
        let (target, address) = serve(remotes, config, &volumes, server).await;
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut tasks = Vec::new();
        for qid in 1..=6_u16 {
            let mut queue = io_queue(&reactor, address, id, qid, options).await;
            tasks.push(reactor.spawn(async move {
                let mut cids = Vec::new();
                for index in 0..24_u64 {
                    // Large ones by R2T, small ones in the capsule, in turns.
                    let blocks = if index % 3 == 0 { 8 } else { 512 };
                    let lba = u64::from(qid) * 8192 + index * 512;
                    let data = pattern(lba, blocks as usize * BLOCK);
                    let command = NvmCommand::Write(Blocks::new(lba, blocks));
                    let sqe = command.sqe(0, 1, SglDescriptor::NONE);
                    let cid = queue.submit(sqe, &data, 0).await.expect("connected");
                    cids.push((cid, lba, data));
                }
                for (cid, _, _) in &cids {
                    let (cqe, _) = queue.answer(*cid).await.expect("connected");
                    assert!(cqe.status.is_success(), "{:?}", cqe.status);
                }
                for (_, lba, data) in cids {
                    let read = Blocks::new(lba, (data.len() / BLOCK) as u32);
                    let read = NvmCommand::Read(read);
                    let (_, read) = queue.nvm(read, 1, &[], data.len() as u32).await;
                    assert!(read == data, "what was written at {lba} came back");
                }
            }));
        }
        for task in tasks {
            task.await;
        }
        drop(admin);
        assert_eq!(target.stats().subsystems[0].1.failed_commands, 0);
    });
}

#[test]
fn namespaces_are_shown_to_those_who_may_see_them_in_their_state() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes: Vec<_> = (0..3).map(|_| memory_volume("1M", 512)).collect();
        let mut subsystem = subsystem(&volumes);
        let other = nqn("nqn.2024-01.org.weir:other");
        subsystem.namespaces[1].visible_to = Allowed::List(BTreeSet::from([other]));
        subsystem.namespaces[2].ana_state = AnaState::Inaccessible;
        subsystem.namespaces[2].ana_group = 2;
        let (target, address) = serve_subsystem(remotes, subsystem.clone(), server).await;
        let options = HostOptions::default();
        let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut io = io_queue(&reactor, address, id, 1, options).await;
        let (_, list) = admin.identify(Cns::ActiveNamespaceList, 0).await;
        let list: [u8; 4096] = list.try_into().expect("4096 bytes");
        assert_eq!(decode_namespace_list(&list).collect::<Vec<_>>(), [1, 3]);
        let mut read = async |nsid| {
            let read = NvmCommand::Read(Blocks::new(0, 1));
            io.nvm(read, nsid, &[], 512).await.0.status
        };
        assert!(read(1).await.is_success());
        assert!(read(2).await.is(Status::INVALID_NAMESPACE_OR_FORMAT));
        let inaccessible = read(3).await;
        assert!(inaccessible.is(Status::ASYMMETRIC_ACCESS_INACCESSIBLE));
        assert!(!inaccessible.do_not_retry());
        subsystem.namespaces[2].ana_state = AnaState::Optimized;
        let applied = target.apply(snapshot(3, vec![subsystem], address)).await;
        applied.expect("applied");
        assert!(read(3).await.is_success());
    });
}

/// What is in flight when an ANA state moves ends as it would have; what has not begun, for want of its data, must not begin: another
/// path may serve by then.
#[test]
fn an_ana_state_that_moves_under_io_stops_what_has_not_begun() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (mut subsystem, volume) = slow_subsystem();
        let (target, address) = serve_subsystem(remotes, subsystem.clone(), server).await;
        let options = HostOptions::default();
        let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let wanted = AsynchronousEventConfiguration::ANA_CHANGE.0;
        let set = SetFeatures::new(FeatureId::AsynchronousEventConfiguration, wanted);
        let (cqe, _) = admin.admin(AdminCommand::SetFeatures(set), &[], 0).await;
        assert!(cqe.status.is_success());
        let event = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
        let event = admin.submit(event, &[], 0).await.expect("connected");
        let mut io = io_queue(&reactor, address, id, 1, options).await;
        let fetched = HostOptions {
            in_capsule: 0,
            ..options
        };
        let mut late = io_queue(&reactor, address, id, 2, fetched).await;

        let write = |lba| NvmCommand::Write(Blocks::new(lba, 1)).sqe(0, 1, SglDescriptor::NONE);
        let (old, new) = (vec![0; BLOCK], pattern(2, BLOCK));
        let owed = late.submit(write(1), &new, 0).await.expect("connected");
        let r2t = late.receive_r2t().await;
        volume.set_delay(Duration::from_secs(2));
        let begun = io.submit(write(0), &new, 0).await.expect("connected");
        reactor.sleep(Duration::from_millis(100)).await;

        subsystem.namespaces[0].ana_state = AnaState::Inaccessible;
        let moved = target.apply(snapshot(3, vec![subsystem.clone()], address));
        moved.await.expect("applied");
        volume.set_delay(Duration::ZERO);
        let (cqe, _) = admin.answer(event).await.expect("connected");
        assert_eq!(
            cqe.dw0(),
            AsynchronousEvent::new(EventType::AnaChange).to_dword()
        );
        late.send_data(&r2t).await.expect("connected");
        let inaccessible = Status::ASYMMETRIC_ACCESS_INACCESSIBLE;
        let (cqe, _) = late.answer(owed).await.expect("connected");
        assert!(cqe.status.is(inaccessible), "{:?}", cqe.status);
        assert!(!cqe.status.do_not_retry());
        let read = NvmCommand::Read(Blocks::new(0, 1));
        let (cqe, _) = late.nvm(read, 1, &[], BLOCK as u32).await;
        assert!(cqe.status.is(inaccessible), "{:?}", cqe.status);
        let (cqe, _) = io.answer(begun).await.expect("connected");
        assert!(cqe.status.is_success(), "{:?}", cqe.status);

        subsystem.namespaces[0].ana_state = AnaState::Optimized;
        let moved = target.apply(snapshot(4, vec![subsystem], address));
        moved.await.expect("applied");
        for (lba, expected) in [(0, &new), (1, &old)] {
            let read = NvmCommand::Read(Blocks::new(lba, 1));
            let (cqe, data) = io.nvm(read, 1, &[], BLOCK as u32).await;
            assert!(cqe.status.is_success() && data == *expected, "block {lba}");
        }
    });
}

#[test]
fn static_controllers_are_had_by_their_identifier() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let mut subsystem = subsystem(&[memory_volume("1M", 512)]);
        subsystem.controller_model = ControllerModel::Static;
        subsystem.controller_ids = 10..=12;
        let (_target, address) = serve_subsystem(remotes, subsystem, server).await;
        let mut kept = Vec::new();
        for (asked, expected) in [
            (11, Ok(11)),
            (11, Err(Status::CONNECT_CONTROLLER_BUSY)),
            (ConnectData::ANY_STATIC_CONTROLLER, Ok(10)),
            (
                ConnectData::ANY_CONTROLLER,
                Err(Status::CONNECT_INVALID_PARAMETERS),
            ),
            (9, Err(Status::CONNECT_INVALID_PARAMETERS)),
            (ConnectData::ANY_STATIC_CONTROLLER, Ok(12)),
            (
                ConnectData::ANY_STATIC_CONTROLLER,
                Err(Status::CONNECT_CONTROLLER_BUSY),
            ),
        ] {
            let options = HostOptions::default();
            let mut queue = Queue::open(&reactor, address, options).await.expect("open");
            let data = connect_data(asked, SUBSYSTEM);
            let cqe = queue.connect_as(0, &data).await.expect("an answer");
            match expected {
                Ok(id) => assert_eq!((cqe.status, cqe.dw0()), (Status::SUCCESS, id)),
                Err(status) => assert!(cqe.status.is(status), "{asked}: {:?}", cqe.status),
            }
            kept.push(queue);
        }
    });
}

#[test]
fn listeners_come_and_go_and_hosts_have_options_of_their_own() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("1M", 512)];
        let config = TargetConfig::default();
        let (target, address) = serve(remotes, config, &volumes, server).await;
        let discovery = ListenerConfig {
            discovery_only: true,
            ..ListenerConfig::new(SocketAddr::new(server, 8009))
        };
        let second = target.add_listener(discovery).await.expect("a listener");
        let taken = ListenerConfig::new(address);
        assert!(target.add_listener(taken).await.is_err());
        let options = HostOptions::default();
        let mut queue = Queue::open(&reactor, second, options).await.expect("open");
        let data = connect_data(ConnectData::ANY_CONTROLLER, SUBSYSTEM);
        let cqe = queue.connect_as(0, &data).await.expect("an answer");
        assert!(cqe.status.is(Status::CONNECT_INVALID_PARAMETERS));
        target.remove_listener(second).await.expect("it was there");
        assert!(target.remove_listener(second).await.is_err());
        eventually(&reactor, "the end of the listener", async || {
            TcpStream::connect(&reactor, second, &SocketOptions::default())
                .await
                .is_err()
        })
        .await;
        assert_eq!(target.listeners(), [address]);

        let mut served = snapshot(2, vec![subsystem(&volumes)], address);
        served.hosts.push(PeerOptions {
            nqn: nqn(HOST),
            options: SocketOptions {
                dscp: Some(34),
                ..SocketOptions::default()
            },
        });
        target.apply(served).await.expect("applied");
        let _admin = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let connections = target.connections().await;
        let admin = connections
            .iter()
            .find(|connection| connection.association.is_some())
            .expect("the admin queue");
        assert_eq!(admin.socket.as_ref().expect("a report").dscp, 34);
    });
}
