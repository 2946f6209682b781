//! What hosts can make a target hold has bounds, and whoever is over one is told, waits, or is closed; nobody else notices.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use crate::common::*;
use crate::slow::SlowVolume;
use crate::volumes::slow_subsystem;
use weir_nvme::command::{
    AdminCommand, Blocks, ConnectData, CopyCommand, CopyRange, DatasetManagement,
    DatasetManagementRange, FabricsCommand, Identify, NvmCommand, PropertySet, PropertySize,
    SetFeatures, Verify,
};
use weir_nvme::feature::{FeatureId, HostBehaviorSupport};
use weir_nvme::identify::Cns;
use weir_nvme::property::Property;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{DigestOptions, H2cData, InitializeRequest};
use weir_nvme::{HostId, Status};
use weir_nvme_target::{Namespace, Target, TargetConfig};
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
use weir_reactor::{
    PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, SocketOptions, TcpStream,
};

const BLOCK: usize = 512;
/// Another host of the simulated world than the client: it does no good.
const FOE: usize = 2;

/// Runs `test` with a target of one namespace.
fn with_target<F: Future<Output = ()>>(
    simulation: Simulation,
    reactors: u32,
    config: TargetConfig,
    test: impl FnOnce(Reactor, Target, SocketAddr, Vec<Remote>) -> F + 'static,
) {
    let remotes = start_reactors(&simulation, reactors);
    let server: IpAddr = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("64M", BLOCK as u32)];
        let (target, address) = serve(remotes.clone(), config, &volumes, server).await;
        test(reactor, target, address, remotes).await;
    });
}

/// Starts a reactor on a foe's machine, which runs until it is stopped.
fn foe(simulation: &Simulation, host: usize) -> Remote {
    let config = ReactorConfig {
        id: ReactorId(77 + host as u32),
        name: "foe".to_owned(),
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
        Box::pin(std::future::pending())
    });
    let thread = simulation.system(host).start_reactor(config, main);
    thread.expect("a simulated reactor starts").remote.clone()
}

/// Opens connections that say nothing and stay.
async fn open_silent(remote: &Remote, address: SocketAddr, count: usize) {
    let opened = remote.call(move |reactor| async move {
        open_silent_here(&reactor, address, count).await;
    });
    opened.await.expect("it runs");
}

async fn open_silent_here(reactor: &Reactor, address: SocketAddr, count: usize) {
    for _ in 0..count {
        let stream = TcpStream::connect(reactor, address, &SocketOptions::default()).await;
        // Held by a task of its own until the target closes it.
        let stream = stream.expect("it is accepted");
        let held =
            async move { while matches!(stream.receive().await, Ok(view) if !view.is_empty()) {} };
        reactor.spawn(held).detach();
    }
}

#[test]
fn one_address_does_not_use_up_the_half_open_connections() {
    let simulation = simulation();
    let foe = foe(&simulation, FOE);
    let config = TargetConfig {
        max_half_open: 8,
        max_half_open_per_address: 4,
        handshake_timeout: Duration::from_secs(5),
        ..TargetConfig::default()
    };
    with_target(
        simulation,
        1,
        config,
        |reactor, target, address, _| async move {
            open_silent(&foe, address, 20).await;
            eventually(&reactor, "all to be accepted", async || {
                let stats = target.stats();
                (stats.half_open, stats.waiting) == (4, 16)
            })
            .await;
            // Another host is served at once.
            let before = reactor.now();
            let (admin, _) =
                admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
            assert!(reactor.now() - before < Duration::from_secs(1));
            assert_eq!(target.stats().connections, 21);
            // Those that wait have their turn, and are closed in the end.
            eventually(&reactor, "the end of the silent ones", async || {
                target.stats().connections == 1
            })
            .await;
            let stats = target.stats();
            assert_eq!((stats.half_open, stats.waiting), (0, 0));
            let counts = stats.reactors[0];
            assert!(counts.over_half_open >= 8, "{counts:?}");
            assert_eq!(counts.over_half_open + counts.handshake_timeouts, 20);
            assert!(reactor.now() - before < Duration::from_secs(20), "in time");
            drop(admin);
        },
    );
}

#[test]
fn connections_that_wait_are_bounded_for_each_address() {
    let simulation = simulation();
    let foe = foe(&simulation, FOE);
    let config = TargetConfig {
        max_connections: 16,
        max_half_open: 4,
        max_half_open_per_address: 1,
        ..TargetConfig::default()
    };
    with_target(
        simulation,
        1,
        config,
        |reactor, target, address, _| async move {
            open_silent(&foe, address, 12).await;
            eventually(&reactor, "the refusals", async || {
                target.stats().reactors[0].over_address == 8
            })
            .await;
            let stats = target.stats();
            assert_eq!(
                (stats.half_open, stats.waiting, stats.connections),
                (1, 3, 4)
            );
            let (admin, _) =
                admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
            drop(admin);
            target.shutdown(Duration::ZERO).await;
            let stats = target.stats();
            assert_eq!(
                (stats.half_open, stats.waiting, stats.connections),
                (0, 0, 0)
            );
        },
    );
}

/// Two addresses that open as much as they can, again and again, do not keep a third out.
#[test]
fn silent_addresses_do_not_lock_another_out_of_a_small_target() {
    const CONNECTIONS: u32 = 64;
    let simulation = simulation();
    let foes = [FOE, FOE + 1].map(|host| foe(&simulation, host));
    let config = TargetConfig {
        max_connections: CONNECTIONS,
        max_half_open: CONNECTIONS / 2,
        max_half_open_per_address: CONNECTIONS / 4,
        handshake_timeout: Duration::from_secs(5),
        ..TargetConfig::default()
    };
    with_target(
        simulation,
        2,
        config,
        |reactor, target, address, _| async move {
            for foe in foes {
                let again = move |reactor: Reactor| async move {
                    let own = reactor.clone();
                    let opening = async move {
                        loop {
                            open_silent_here(&own, address, 8).await;
                            own.sleep(Duration::from_millis(100)).await;
                        }
                    };
                    reactor.spawn(opening).detach();
                };
                foe.call(again).await.expect("it runs");
            }
            for _ in 0..10 {
                reactor.sleep(Duration::from_millis(1700)).await;
                let before = reactor.now();
                let options = HostOptions::default();
                let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
                let mut queues = Vec::new();
                for qid in 1..=8 {
                    queues.push(io_queue(&reactor, address, id, qid, options).await);
                }
                assert!(reactor.now() - before < Duration::from_secs(1), "at once");
                let stats = target.stats();
                assert!(stats.half_open + stats.waiting >= 16, "they try: {stats:?}");
                assert!(stats.half_open + stats.waiting <= 32, "{stats:?}");
                drop((queues, admin));
            }
        },
    );
}

/// Those that wait are bounded in all, so that hosts that are connected can come back.
#[test]
fn connections_that_wait_are_bounded_in_all() {
    let simulation = simulation();
    let foes = [FOE, FOE + 1, FOE + 2].map(|host| foe(&simulation, host));
    let config = TargetConfig {
        max_connections: 32,
        max_half_open: 4,
        max_half_open_per_address: 4,
        ..TargetConfig::default()
    };
    with_target(
        simulation,
        1,
        config,
        |reactor, target, address, _| async move {
            for foe in foes {
                open_silent(&foe, address, 8).await;
            }
            reactor.sleep(Duration::from_secs(1)).await;
            let stats = target.stats();
            assert_eq!((stats.half_open, stats.waiting), (4, 8));
            let counts = stats.reactors[0];
            assert_eq!(
                counts.over_address + counts.over_half_open,
                12,
                "{counts:?}"
            );
            assert!(counts.over_half_open >= 8, "{counts:?}");
            assert_eq!(counts.refused, 12);
        },
    );
}

/// A connection whose host hangs up while it waits gives its place back at once, by an end in order or a reset.
#[test]
fn who_hangs_up_while_it_waits_has_no_place() {
    let config = TargetConfig {
        max_half_open: 1,
        ..TargetConfig::default()
    };
    with_target(
        simulation(),
        1,
        config,
        |reactor, target, address, _| async move {
            let options = SocketOptions::default();
            let mut streams = Vec::new();
            for _ in 0..9 {
                let stream = TcpStream::connect(&reactor, address, &options).await;
                streams.push(stream.expect("it is accepted"));
            }
            eventually(&reactor, "the others to wait", async || {
                target.stats().waiting == 8
            })
            .await;
            let stays = streams.remove(0);
            let waits = streams.pop();
            for (index, stream) in streams.into_iter().enumerate() {
                if index % 2 == 0 {
                    stream.abort();
                }
            }
            reactor.sleep(Duration::from_secs(2)).await;
            let stats = target.stats();
            assert_eq!((stats.half_open, stats.waiting), (1, 1));
            assert_eq!(stats.connections, 2);
            drop((stays, waits));
        },
    );
}

/// Many good hosts that come at once are all served, though more than may be half open.
#[test]
fn a_storm_of_good_hosts_is_served() {
    const HOSTS: u16 = 40;
    let config = TargetConfig {
        max_half_open: 4,
        max_half_open_per_address: 3,
        controllers_per_host_max: HOSTS,
        ..TargetConfig::default()
    };
    with_target(
        simulation(),
        2,
        config,
        |reactor, target, address, _| async move {
            let connect = |_| {
                let own = reactor.clone();
                reactor.spawn(async move {
                    let options = HostOptions::default();
                    let (mut admin, _) = admin_queue(&own, address, SUBSYSTEM, options).await;
                    admin.identify_controller().await;
                    admin
                })
            };
            let tasks: Vec<_> = (0..HOSTS).map(connect).collect();
            let mut admins = Vec::new();
            for task in tasks {
                admins.push(task.await);
            }
            let stats = target.stats();
            assert_eq!(stats.controllers, u32::from(HOSTS));
            assert_eq!((stats.half_open, stats.waiting), (0, 0));
            drop(admins);
        },
    );
}

#[test]
fn controllers_are_bounded_in_all() {
    let config = TargetConfig {
        controllers_max: 2,
        ..TargetConfig::default()
    };
    with_target(
        simulation(),
        1,
        config,
        |reactor, target, address, _| async move {
            let options = HostOptions::default();
            let (first, _) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let (second, _) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            // Another host is over the limit as well.
            let name = nqn("nqn.2024-01.org.weir:another");
            let other = ConnectData::new(
                HostId([9; 16]),
                ConnectData::ANY_CONTROLLER,
                &nqn(SUBSYSTEM),
                &name,
            );
            let mut queue = Queue::open(&reactor, address, options).await.expect("open");
            let cqe = queue.connect_as(0, &other).await.expect("an answer");
            assert!(
                cqe.status.is(Status::CONNECT_CONTROLLER_BUSY),
                "{:?}",
                cqe.status
            );
            assert!(!cqe.status.do_not_retry(), "there may be room later");
            assert_eq!(target.stats().reactors[0].over_sessions, 1);
            drop(first);
            eventually(&reactor, "room", async || target.stats().controllers == 1).await;
            let cqe = queue.connect_as(0, &other).await.expect("an answer");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
            drop(second);
        },
    );
}

const LONG: usize = 256 << 10;

#[test]
fn data_in_flight_of_a_connection_is_bounded_and_nothing_is_lost() {
    const COMMANDS: usize = 24;
    const MOST: u64 = 1 << 20;
    let config = TargetConfig {
        bytes_in_flight_per_connection: MOST as u32,
        ..TargetConfig::default()
    };
    with_target(
        simulation(),
        1,
        config,
        |reactor, target, address, _| async move {
            let in_flight = || target.stats().bytes_in_flight[0];
            let (admin, id) =
                admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
            let by_r2t = HostOptions {
                in_capsule: 0,
                ..HostOptions::default()
            };
            let mut queue = io_queue(&reactor, address, id, 1, by_r2t).await;
            let data = pattern(7, LONG);
            let blocks = Blocks::new(0, (LONG / BLOCK) as u32);
            // Writes: no more is asked for than there is room.
            let mut cids = Vec::new();
            for _ in 0..COMMANDS {
                let write = NvmCommand::Write(blocks).sqe(0, 1, SglDescriptor::NONE);
                cids.push(queue.submit(write, &data, 0).await.expect("connected"));
            }
            reactor.sleep(Duration::from_secs(1)).await;
            assert_eq!(in_flight(), MOST);
            for cid in cids {
                let (cqe, _) = queue.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                assert!(in_flight() <= MOST, "{}", in_flight());
            }
            assert_eq!(in_flight(), 0);
            // Reads: no more is read than there is room, until the host takes it.
            let mut cids = Vec::new();
            for _ in 0..COMMANDS {
                let read = NvmCommand::Read(blocks).sqe(0, 1, SglDescriptor::NONE);
                cids.push(
                    queue
                        .submit(read, &[], LONG as u32)
                        .await
                        .expect("connected"),
                );
            }
            reactor.sleep(Duration::from_secs(1)).await;
            assert_eq!(in_flight(), MOST);
            for cid in cids {
                let (cqe, read) = queue.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                assert!(read == data, "read back");
                assert!(in_flight() <= MOST, "{}", in_flight());
            }
            eventually(&reactor, "the end of the last send", async || {
                in_flight() == 0
            })
            .await;
            // One that is lost with all in flight gives all back.
            for _ in 0..COMMANDS {
                let read = NvmCommand::Read(blocks).sqe(0, 1, SglDescriptor::NONE);
                queue
                    .submit(read, &[], LONG as u32)
                    .await
                    .expect("connected");
            }
            reactor.sleep(Duration::from_secs(1)).await;
            assert_eq!(in_flight(), MOST);
            drop((queue, admin));
            eventually(&reactor, "the end", async || {
                target.stats().connections == 0
            })
            .await;
            assert_eq!(in_flight(), 0);
        },
    );
}

/// A Verify has a volume read, and a Copy moves data: as long as they run, that is data in flight as well.
#[test]
fn what_verifies_and_copies_move_is_bounded() {
    const COMMANDS: usize = 24;
    const MOST: u64 = 1 << 20;
    const STEP: u64 = 256 << 10;
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (subsystem, volume) = slow_subsystem();
        let config = TargetConfig {
            bytes_in_flight_per_connection: MOST as u32,
            ..TargetConfig::default()
        };
        let (target, address) = serve(remotes, config, &[], server).await;
        let applied = target.apply(snapshot(2, vec![subsystem], address)).await;
        applied.expect("applied");
        let in_flight = || target.stats().bytes_in_flight[0];
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let by_r2t = HostOptions {
            in_capsule: 0,
            ..options
        };
        volume.set_delay(Duration::from_millis(100));

        // Each Verify is carried out in steps of one transfer.
        let mut queue = io_queue(&reactor, address, id, 1, options).await;
        let mut cids = Vec::new();
        for _ in 0..COMMANDS {
            let verify = Verify {
                lba: 0,
                blocks: 2 * (MOST as usize / BLOCK) as u32 + 1,
                ..Verify::default()
            };
            let sqe = NvmCommand::Verify(verify).sqe(0, 1, SglDescriptor::NONE);
            cids.push(queue.submit(sqe, &[], 0).await.expect("connected"));
        }
        eventually(&reactor, "a Verify", async || in_flight() > 0).await;
        for cid in cids {
            assert!(in_flight() <= MOST, "{}", in_flight());
            let (cqe, _) = queue.answer(cid).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        }
        assert_eq!(in_flight(), 0);

        // A Copy has its list beside what it moves.
        for (qid, options) in [(2, options), (3, by_r2t)] {
            let mut queue = io_queue(&reactor, address, id, qid, options).await;
            let waits = || target.stats().reactors[0].own_waits;
            let before = waits();
            let range = CopyRange::new(0, 2 * (STEP as usize / BLOCK) as u32);
            let copy = CopyCommand {
                destination_lba: 4096,
                ranges: 1,
                ..CopyCommand::default()
            };
            let mut cids = Vec::new();
            for _ in 0..COMMANDS {
                let sqe = NvmCommand::Copy(copy).sqe(0, 1, SglDescriptor::NONE);
                let sent = queue.submit(sqe, &range.encode(), 0).await;
                cids.push(sent.expect("connected"));
            }
            eventually(&reactor, "three copies", async || in_flight() >= 3 * STEP).await;
            for cid in cids {
                assert!(in_flight() <= MOST, "{}", in_flight());
                let (cqe, _) = queue.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            assert_eq!(in_flight(), 0);
            assert!(waits() > before);
        }
        drop(admin);
    });
}

/// A Copy in a capsule that finds no room waits without a slot; where what it waits for lies behind it, it is refused, and
/// waits among the connections no more.
#[test]
fn a_copy_that_is_refused_for_want_of_room_holds_nobody_up() {
    const MOST: usize = 1 << 20;
    let config = TargetConfig {
        bytes_in_flight: MOST as u64,
        ..TargetConfig::default()
    };
    with_target(
        simulation(),
        1,
        config,
        |reactor, target, address, _| async move {
            let options = HostOptions {
                in_capsule: 4096,
                ..HostOptions::default()
            };
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queue = io_queue(&reactor, address, id, 1, options).await;
            let mut other = io_queue(&reactor, address, id, 2, options).await;
            let data = pattern(3, LONG);
            let blocks = Blocks::new(0, (LONG / BLOCK) as u32);
            let mut writes = Vec::new();
            let mut r2ts = Vec::new();
            for _ in 0..MOST / LONG {
                let write = NvmCommand::Write(blocks).sqe(0, 1, SglDescriptor::NONE);
                writes.push(queue.submit(write, &data, 0).await.expect("connected"));
                r2ts.push(queue.receive_r2t().await);
            }
            let copy = NvmCommand::Copy(CopyCommand {
                destination_lba: 4096,
                ranges: 1,
                ..CopyCommand::default()
            });
            let list = CopyRange::new(0, 1).encode();
            let (cqe, _) = queue.nvm(copy, 1, &list, 0).await;
            assert!(
                cqe.status.is(Status::COMMAND_INTERRUPTED),
                "{:?}",
                cqe.status
            );
            for r2t in r2ts {
                queue.send_data(&r2t).await.expect("connected");
            }
            for cid in writes {
                let (cqe, _) = queue.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            for queue in [&mut other, &mut queue] {
                let read = NvmCommand::Read(blocks);
                let (cqe, there) = queue.nvm(read, 1, &[], LONG as u32).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                assert!(there == data, "read back");
            }
            let (cqe, _) = queue.nvm(copy, 1, &list, 0).await;
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
            eventually(&reactor, "the end of the last send", async || {
                target.stats().bytes_in_flight[0] == 0
            })
            .await;
            drop(admin);
        },
    );
}

/// An admin command that has no room, because others have all of it, goes on when they have ended: nothing else would wake its
/// connection, which waits for data that lies behind the command.
#[test]
fn an_admin_command_goes_on_when_others_have_made_room() {
    const MOST: usize = 1 << 20;
    let config = TargetConfig {
        bytes_in_flight: MOST as u64,
        ..TargetConfig::default()
    };
    with_target(
        simulation(),
        1,
        config,
        |reactor, target, address, _| async move {
            let options = HostOptions::default();
            let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            admin.options.in_capsule = 0;
            let behavior = SetFeatures::new(FeatureId::HostBehaviorSupport, 0);
            let set = AdminCommand::SetFeatures(behavior).sqe(0, SglDescriptor::NONE);
            let data = HostBehaviorSupport::default().encode();
            let set = admin.submit(set, &data, 0).await.expect("connected");
            let asked = admin.receive_r2t().await;

            // Others take the rest, and a short command that is alone on its queue a little more than there is.
            let by_r2t = HostOptions {
                in_capsule: 0,
                ..options
            };
            let mut large = io_queue(&reactor, address, id, 1, by_r2t).await;
            let mut small = io_queue(&reactor, address, id, 2, by_r2t).await;
            let mut writes = Vec::new();
            for (queue, length) in [(&mut large, MOST - 4096), (&mut small, 4096)] {
                let write = NvmCommand::Write(Blocks::new(0, (length / BLOCK) as u32));
                let sqe = write.sqe(0, 1, SglDescriptor::NONE);
                let cid = queue.submit(sqe, &pattern(1, length), 0).await;
                writes.push((cid.expect("connected"), queue.receive_r2t().await));
            }
            assert!(target.stats().bytes_in_flight[0] > MOST as u64);

            let identify = Identify::new(Cns::Controller, 0);
            let identify = AdminCommand::Identify(identify).sqe(0, SglDescriptor::NONE);
            let identify = admin.submit(identify, &[], 4096).await.expect("connected");
            reactor.sleep(Duration::from_millis(100)).await;
            for ((cid, r2t), queue) in writes.into_iter().zip([&mut large, &mut small]) {
                queue.send_data(&r2t).await.expect("connected");
                let (cqe, _) = queue.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            let room = reactor.now();
            let (cqe, _) = admin.answer(identify).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
            let waited = reactor.now() - room;
            assert!(waited < Duration::from_millis(100), "for {waited:?}");
            admin.send_data(&asked).await.expect("connected");
            let (cqe, _) = admin.answer(set).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        },
    );
}

/// The ranges of Dataset Management become requests as others end.
#[test]
fn ranges_to_deallocate_come_to_the_volume_a_few_at_a_time() {
    const COMMANDS: u64 = 8;
    const RANGES: u64 = 256;
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (subsystem, volume) = slow_subsystem();
        let (target, address) = serve(remotes, TargetConfig::default(), &[], server).await;
        let applied = target.apply(snapshot(2, vec![subsystem], address)).await;
        applied.expect("applied");
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut queue = io_queue(&reactor, address, id, 1, options).await;
        let data = pattern(1, 1 << 20);
        let whole = Blocks::new(0, (data.len() / BLOCK) as u32);
        let (cqe, _) = queue.nvm(NvmCommand::Write(whole), 1, &data, 0).await;
        assert!(cqe.status.is_success(), "{:?}", cqe.status);

        volume.set_delay(Duration::from_secs(1));
        let before = volume.taken();
        let range = |index: u64| DatasetManagementRange {
            lba: 8 * (index % RANGES),
            blocks: 7 * u32::from(!index.is_multiple_of(5)),
            ..DatasetManagementRange::default()
        };
        let list: Vec<u8> = (0..RANGES)
            .flat_map(|index| range(index).encode())
            .collect();
        let management = NvmCommand::DatasetManagement(DatasetManagement {
            ranges: RANGES as u16,
            deallocate: true,
            ..DatasetManagement::default()
        });
        let mut cids = Vec::new();
        for _ in 0..COMMANDS {
            let sqe = management.sqe(0, 1, SglDescriptor::NONE);
            cids.push(queue.submit(sqe, &list, 0).await.expect("connected"));
        }
        eventually(&reactor, "the first requests", async || {
            volume.taken() > before
        })
        .await;
        reactor.sleep(Duration::from_millis(500)).await;
        let asked = volume.taken() - before;
        assert!((COMMANDS..=64).contains(&asked), "{asked} requests at once");
        volume.set_delay(Duration::ZERO);
        for cid in cids {
            let (cqe, _) = queue.answer(cid).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        }
        let empty = RANGES.div_ceil(5);
        assert_eq!(volume.taken() - before, COMMANDS * (RANGES - empty));
        let read = NvmCommand::Read(whole);
        let (_, there) = queue.nvm(read, 1, &[], data.len() as u32).await;
        for (index, block) in there.chunks(BLOCK).enumerate() {
            let deallocated = index % 8 < 7 && !(index as u64 / 8).is_multiple_of(5);
            let kept = &data[index * BLOCK..][..BLOCK];
            assert!(deallocated || block == kept, "block {index}");
        }
        drop(admin);
    });
}

/// Hosts whose commands could use every buffer that comes back do not keep another from having its turn.
#[test]
fn hosts_that_use_all_buffers_do_not_starve_another() {
    hogs_starve_nobody(3, false, 1 << 20, TargetConfig::default());
}

/// Nor do hosts that read as much as may be in flight.
#[test]
fn hosts_that_read_all_that_may_be_in_flight_do_not_starve_another() {
    // So many that all together may have all, and more: these wait themselves.
    for hogs in [4, 6] {
        let config = TargetConfig {
            bytes_in_flight: 2 << 20,
            bytes_in_flight_per_connection: 512 << 10,
            mdts_bytes: 256 << 10,
            ..TargetConfig::default()
        };
        hogs_starve_nobody(hogs, true, 256 << 10, config);
    }
}

/// `large` is the length of their requests, in bytes.
fn hogs_starve_nobody(hogs: u16, read: bool, large: usize, config: TargetConfig) {
    const DEPTH: usize = 30;
    let simulation = Simulation::new(Config {
        seed: seed_from_env_or_random(),
        time_max: Duration::from_secs(30),
        ..Config::default()
    });
    let count = hogs;
    with_target(
        simulation,
        1,
        config,
        move |reactor, target, address, remotes| async move {
            let (admin, id) =
                admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
            let by_r2t = HostOptions {
                in_capsule: 0,
                ..HostOptions::default()
            };
            let mut hogs = Vec::new();
            for qid in 1..=count {
                let mut queue = io_queue(&reactor, address, id, qid, by_r2t).await;
                hogs.push(reactor.spawn(async move {
                    let blocks = Blocks::new(0, (large / BLOCK) as u32);
                    let (command, data, reads) = match read {
                        true => (NvmCommand::Read(blocks), Vec::new(), large as u32),
                        false => (NvmCommand::Write(blocks), pattern(1, large), 0),
                    };
                    let sqe = command.sqe(0, 1, SglDescriptor::NONE);
                    let mut cids = std::collections::VecDeque::new();
                    loop {
                        while cids.len() < DEPTH {
                            cids.push_back(queue.submit(sqe, &data, reads).await.expect("open"));
                        }
                        let first = cids.pop_front().expect("just filled");
                        let (cqe, _) = queue.answer(first).await.expect("connected");
                        assert!(cqe.status.is_success(), "{:?}", cqe.status);
                    }
                }));
            }
            let mut queue = io_queue(&reactor, address, id, count + 1, by_r2t).await;
            let mut small =
                io_queue(&reactor, address, id, count + 2, HostOptions::default()).await;
            eventually(&reactor, "the end of all buffers", async || {
                let stats = target.stats().reactors[0];
                stats.buffer_waits + stats.own_waits > 0
            })
            .await;
            let data = pattern(2, large);
            let blocks = Blocks::new(4096, (large / BLOCK) as u32);
            let little = pattern(3, 4096);
            for _ in 0..20 {
                let before = reactor.now();
                let (cqe, _) = queue.nvm(NvmCommand::Write(blocks), 1, &data, 0).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                // A write in its capsule needs no more than the queue's own buffer.
                let at = Blocks::new(8192, 8);
                let (cqe, _) = small.nvm(NvmCommand::Write(at), 1, &little, 0).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                let waited = reactor.now() - before;
                assert!(waited < Duration::from_secs(5), "it waited for {waited:?}");
            }
            let usage = remotes[0].call(|reactor| async move { reactor.pool().usage() });
            let usage = usage.await.expect("it runs");
            assert!(usage.held_bytes <= usage.limit_bytes);
            for hog in hogs {
                let _ = hog.cancel().await;
            }
            drop((queue, small, admin));
        },
    );
}

/// The same for reads: what others have in flight keeps nobody from its turn, and a short read waits for nobody.
#[test]
fn hosts_that_have_all_in_flight_do_not_starve_another() {
    const HOGS: u16 = 3;
    const DEPTH: usize = 30;
    let simulation = Simulation::new(Config {
        seed: seed_from_env_or_random(),
        time_max: Duration::from_secs(10),
        ..Config::default()
    });
    let config = TargetConfig {
        bytes_in_flight: 4 << 20,
        ..TargetConfig::default()
    };
    with_target(
        simulation,
        1,
        config,
        |reactor, target, address, _| async move {
            let options = HostOptions::default();
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let read = |bytes: usize| {
                let blocks = Blocks::new(0, (bytes / BLOCK) as u32);
                NvmCommand::Read(blocks).sqe(0, 1, SglDescriptor::NONE)
            };
            let mut hogs = Vec::new();
            for qid in 1..=HOGS {
                let mut queue = io_queue(&reactor, address, id, qid, options).await;
                hogs.push(reactor.spawn(async move {
                    let mut cids = std::collections::VecDeque::new();
                    loop {
                        while cids.len() < DEPTH {
                            let sent = queue.submit(read(LONG), &[], LONG as u32).await;
                            cids.push_back(sent.expect("open"));
                        }
                        let first = cids.pop_front().expect("just filled");
                        let (cqe, _) = queue.answer(first).await.expect("connected");
                        assert!(cqe.status.is_success(), "{:?}", cqe.status);
                    }
                }));
            }
            // And one that does not read at all, for as long as it may.
            let mut deaf = io_queue(&reactor, address, id, HOGS + 1, options).await;
            for _ in 0..4 {
                let sent = deaf.submit(read(LONG), &[], LONG as u32).await;
                sent.expect("open");
            }
            let mut queue = io_queue(&reactor, address, id, HOGS + 2, options).await;
            let mut small = io_queue(&reactor, address, id, HOGS + 3, options).await;
            eventually(&reactor, "the end of all room", async || {
                target.stats().reactors[0].buffer_waits > 0
            })
            .await;
            for _ in 0..20 {
                let before = reactor.now();
                let (cqe, _) = queue.command(read(LONG), &[], LONG as u32).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                let (cqe, _) = small.command(read(4096), &[], 4096).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                let waited = reactor.now() - before;
                assert!(
                    waited < Duration::from_millis(500),
                    "it waited for {waited:?}"
                );
            }
            for hog in hogs {
                let _ = hog.cancel().await;
            }
            drop((queue, small, deaf, admin));
        },
    );
}

/// A host that fills its queue, and more, with commands that take long waits for itself and has nobody else wait.
#[test]
fn a_host_that_overfills_its_queue_holds_nobody_up() {
    with_target(
        simulation(),
        1,
        TargetConfig::default(),
        |reactor, target, address, _| async move {
            let slow = SlowVolume::new(memory_volume("8M", BLOCK as u32));
            slow.set_delay(Duration::from_secs(20));
            let mut served = subsystem(&[memory_volume("8M", BLOCK as u32)]);
            served.namespaces.push(Namespace::new(2, slow, [2; 16]));
            target
                .apply(snapshot(2, vec![served], address))
                .await
                .expect("applied");
            let (admin, id) =
                admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
            let few = HostOptions {
                entries: 2,
                ..HostOptions::default()
            };
            let mut full = io_queue(&reactor, address, id, 1, few).await;
            let data = pattern(1, 4096);
            let write = NvmCommand::Write(Blocks::new(0, 8));
            let mut bytes = Vec::new();
            let cids: Vec<u16> = (0..30)
                .map(|_| {
                    let sqe = write.sqe(0, 2, SglDescriptor::NONE);
                    full.prepare(sqe, &data, 0, &mut bytes)
                })
                .collect();
            let mut gather = weir_memory::Gather::new();
            gather.push_header(&bytes);
            full.stream.start_send(gather);
            reactor.sleep(Duration::from_secs(1)).await;
            let by_r2t = HostOptions {
                in_capsule: 0,
                ..HostOptions::default()
            };
            let mut queue = io_queue(&reactor, address, id, 2, by_r2t).await;
            let before = reactor.now();
            for _ in 0..10 {
                let at = Blocks::new(0, (LONG / BLOCK) as u32);
                let data = pattern(2, LONG);
                let (cqe, _) = queue.nvm(NvmCommand::Write(at), 1, &data, 0).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            assert!(reactor.now() - before < Duration::from_secs(1));
            assert_eq!(target.stats().reactors[0].buffer_waits, 0);
            for cid in cids {
                let (cqe, _) = full.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            drop((full, queue, admin));
        },
    );
}

/// What a client of the mix does.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Silent,
    HalfRequest,
    HalfConnect,
    NeverSendsData,
    NeverReads,
    CutsOff,
    Works,
}

const MANNERS: [Manner; 7] = [
    Manner::Silent,
    Manner::HalfRequest,
    Manner::HalfConnect,
    Manner::NeverSendsData,
    Manner::NeverReads,
    Manner::CutsOff,
    Manner::Works,
];

/// One client of the mix, for some time. Whatever the target does to it is right: it asked for it.
async fn client(reactor: Reactor, address: SocketAddr, manner: Manner) -> Option<()> {
    let below = |most: u64| reactor.random() % most;
    let pause = Duration::from_millis(below(40_000));
    let options = HostOptions {
        in_capsule: if below(2) == 0 { 0 } else { 8192 },
        entries: 2 + below(30) as u16,
        keep_alive_ms: if below(2) == 0 { 0 } else { 20_000 },
        ..HostOptions::default()
    };
    if let Manner::Silent | Manner::HalfRequest = manner {
        let options = SocketOptions::default();
        let stream = TcpStream::connect(&reactor, address, &options).await;
        let stream = stream.ok()?;
        if let Manner::HalfRequest = manner {
            let mut gather = weir_memory::Gather::new();
            let request = InitializeRequest::new(DigestOptions::NONE).encode();
            gather.push_header(&request[..1 + below(126) as usize]);
            stream.send(gather).await.0.ok()?;
        }
        reactor.sleep(pause).await;
        return Some(());
    }
    let mut admin = Queue::open(&reactor, address, options).await.ok()?;
    let data = connect_data(ConnectData::ANY_CONTROLLER, SUBSYSTEM);
    if let Manner::HalfConnect = manner {
        let sgl = SglDescriptor::InCapsule {
            offset: 0,
            length: 1024,
        };
        let flush = NvmCommand::Flush.sqe(1, 1, sgl);
        let bytes = admin.capsule(&flush, &data.encode());
        let cut = 1 + below(bytes.len() as u64 - 1) as usize;
        admin.send_bytes(&bytes[..cut]).await.ok()?;
        reactor.sleep(pause).await;
        return Some(());
    }
    let cqe = admin.connect_as(0, &data).await.ok()?;
    if !cqe.status.is_success() {
        return None;
    }
    let id = cqe.dw0() as u16;
    let enable = FabricsCommand::PropertySet(PropertySet {
        size: PropertySize::FourBytes,
        offset: Property::Configuration.value(),
        value: u64::from(enabled().0),
    });
    let cid = admin
        .submit(enable.sqe(0, SglDescriptor::NONE), &[], 0)
        .await
        .ok()?;
    admin.answer(cid).await.ok()?;
    let mut queue = Queue::open(&reactor, address, options).await.ok()?;
    let cqe = queue
        .connect_as(1, &connect_data(id, SUBSYSTEM))
        .await
        .ok()?;
    if !cqe.status.is_success() {
        return None;
    }
    // As many commands at once as the queue has entries for, or more.
    let count = 1 + below(u64::from(options.entries) + 4);
    let mut cids = Vec::new();
    let mut bytes = Vec::new();
    for index in 0..count {
        let length = BLOCK << below(10);
        let at = Blocks::new(below(1000), (length / BLOCK) as u32);
        let verify = Verify {
            lba: at.lba,
            blocks: 10 * at.blocks,
            ..Verify::default()
        };
        let copy = CopyCommand {
            destination_lba: below(1000),
            ranges: 1,
            ..CopyCommand::default()
        };
        let range = CopyRange::new(at.lba, at.blocks).encode();
        let (command, out, reads) = match below(12) {
            0 => (NvmCommand::Verify(verify), Vec::new(), 0),
            1 => (NvmCommand::Copy(copy), range.to_vec(), 0),
            2..7 if !matches!(manner, Manner::NeverReads) => {
                (NvmCommand::Write(at), pattern(index, length), 0)
            }
            _ => (NvmCommand::Read(at), Vec::new(), length as u32),
        };
        let sqe = command.sqe(0, 1, SglDescriptor::NONE);
        cids.push(queue.prepare(sqe, &out, reads, &mut bytes));
    }
    match manner {
        Manner::Works => {
            queue.send_bytes(&bytes).await.ok()?;
            for cid in cids {
                queue.answer(cid).await.ok()?;
            }
        }
        Manner::CutsOff => {
            let cut = below(bytes.len() as u64) as usize;
            queue.send_bytes(&bytes[..cut]).await.ok()?;
            reactor.sleep(pause / 100).await;
        }
        Manner::NeverSendsData => {
            queue.send_bytes(&bytes).await.ok()?;
            let header = H2cData {
                cid: 0,
                transfer_tag: 0,
                offset: 0,
                length: 4,
                last: false,
            };
            let small = queue.h2c_data(&header, &[0; 4]);
            reactor.sleep(pause).await;
            if below(4) == 0 {
                queue.send_bytes(&small).await.ok()?;
            }
            reactor.sleep(pause).await;
        }
        _ => {
            let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
            let mut more = Vec::new();
            for _ in 0..below(600) {
                let sqe = identify.sqe(0, SglDescriptor::NONE);
                admin.prepare(sqe, &[], 4096, &mut more);
            }
            let mut gather = weir_memory::Gather::new();
            gather.push_header(&more);
            if !more.is_empty() {
                admin.stream.start_send(gather);
            }
            queue.send_bytes(&bytes).await.ok()?;
            reactor.sleep(pause).await;
        }
    }
    Some(())
}

/// Bounds at random, and a mix of clients of which most mean no good: no count ever passes its bound, and in the end nothing is
/// left of them.
fn bounds_hold(seed: u64) {
    const CLIENTS: usize = 60;
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let foe = foe(&simulation, FOE);
    let mut state = seed | 1;
    let mut draw = move |from: u64, to: u64| {
        // xorshift: all that is asked of it is to differ from seed to seed.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        from + state % (to - from)
    };
    let config = TargetConfig {
        max_connections: draw(4, 60) as u32,
        max_half_open: draw(1, 12) as u32,
        max_half_open_per_address: draw(1, 8) as u32,
        handshake_timeout: Duration::from_secs(draw(1, 10)),
        progress_timeout: Duration::from_secs(draw(1, 20)),
        controllers_max: draw(1, 20) as u32,
        controllers_per_host_max: draw(1, 20) as u16,
        mdts_bytes: 256 << 10,
        bytes_in_flight_per_connection: draw(256 << 10, 4 << 20) as u32,
        bytes_in_flight: draw(256 << 10, 8 << 20),
        keep_alive_max: Duration::from_secs(60),
        ..TargetConfig::default()
    };
    let reactors = draw(1, 4) as u32;
    let (bounds, mut pick) = (config.clone(), draw);
    with_target(
        simulation,
        reactors,
        config,
        move |reactor, target, address, remotes| async move {
            let running = Rc::new(RefCell::new(0));
            for _ in 0..CLIENTS {
                let manner = MANNERS[pick(0, MANNERS.len() as u64) as usize];
                if pick(0, 3) == 0 {
                    let task = move |reactor: Reactor| async move {
                        let own = reactor.clone();
                        own.spawn(async move {
                            let _ = client(reactor, address, manner).await;
                        })
                        .detach();
                    };
                    foe.call(task).await.expect("it runs");
                } else {
                    *running.borrow_mut() += 1;
                    let (own, count) = (reactor.clone(), Rc::clone(&running));
                    let life = async move {
                        let _ = client(own, address, manner).await;
                        *count.borrow_mut() -= 1;
                    };
                    reactor.spawn(life).detach();
                }
                reactor.sleep(Duration::from_millis(pick(0, 300))).await;
                check_bounds(&target, &remotes, &bounds).await;
            }
            while *running.borrow() > 0 || target.stats().connections > 0 {
                reactor.sleep(Duration::from_millis(pick(1, 2000))).await;
                check_bounds(&target, &remotes, &bounds).await;
            }
            let stats = target.stats();
            let left = (stats.half_open, stats.waiting, stats.controllers);
            assert_eq!(left, (0, 0, 0));
            assert_eq!(stats.bytes_in_flight.iter().sum::<u64>(), 0);
            let panics: u64 = stats.reactors.iter().map(|reactor| reactor.panics).sum();
            assert_eq!(panics, 0);
            for remote in &remotes {
                let usage = remote.call(|reactor| async move { reactor.pool().usage() });
                assert_eq!(usage.await.expect("it runs").used_bytes, 0);
            }
        },
    );
}

async fn check_bounds(target: &Target, remotes: &[Remote], bounds: &TargetConfig) {
    let stats = target.stats();
    assert!(stats.connections <= bounds.max_connections, "{stats:?}");
    assert!(stats.half_open <= bounds.max_half_open, "{stats:?}");
    assert!(stats.controllers <= bounds.controllers_max, "{stats:?}");
    for in_flight in &stats.bytes_in_flight {
        // Each admin queue may have one answer beyond it, and each other one a short read.
        let alone = u64::from(bounds.max_connections) * u64::from(bounds.in_capsule_bytes);
        let most = bounds.bytes_in_flight + alone;
        assert!(*in_flight <= most, "{stats:?}");
    }
    for remote in remotes {
        let usage = remote.call(|reactor| async move { reactor.pool().usage() });
        let usage = usage.await.expect("it runs");
        assert!(usage.held_bytes <= usage.limit_bytes, "{usage:?}");
    }
}

#[test]
fn bounds_hold_whatever_hosts_do() {
    let first = seed_from_env_or_random();
    let count = if std::env::var_os("WEIR_SEED").is_some() {
        1
    } else {
        6
    };
    for seed in (first..).take(count) {
        bounds_hold(seed);
    }
}
