//! Hosts that break the rules, fall silent or vanish: the answer is what the specification names, and nothing is left behind.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::common::*;
use weir_memory::{Gather, Pool};
use weir_nvme::Status;
use weir_nvme::command::{
    AdminCommand, Blocks, Connect, ConnectAttributes, ConnectData, FabricsCommand, Identify,
    NvmCommand,
};
use weir_nvme::identify::Cns;
use weir_nvme::property::Property;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{DigestOptions, FatalErrorStatus, H2cData, InitializeRequest};
use weir_nvme_target::{Target, TargetConfig};
use weir_reactor::sim::{Config, Crash, Simulation, seed_from_env_or_random};
use weir_reactor::{Reactor, Remote, SocketOptions, TcpStream};

const BLOCK: usize = 512;

/// Runs `test` with a target of one namespace.
fn with_target<F: Future<Output = ()>>(
    reactors: u32,
    config: TargetConfig,
    test: impl FnOnce(Reactor, Target, SocketAddr, Vec<Remote>) -> F + 'static,
) {
    with_target_in(simulation(), reactors, config, test);
}

fn with_target_in<F: Future<Output = ()>>(
    simulation: Simulation,
    reactors: u32,
    config: TargetConfig,
    test: impl FnOnce(Reactor, Target, SocketAddr, Vec<Remote>) -> F + 'static,
) {
    let remotes = start_reactors(&simulation, reactors);
    let server: IpAddr = simulation.address(SERVER);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("4M", BLOCK as u32)];
        let (target, address) = serve(remotes.clone(), config, &volumes, server).await;
        test(reactor, target.clone(), address, remotes).await;
        if target.stats().connections == 0 {
            let held = world.receive_bytes_held(SERVER);
            assert_eq!(held, 0, "nothing that was received is left behind");
        }
    });
}

/// Bytes in use of the pools of all reactors.
async fn pool_use(remotes: &[Remote]) -> usize {
    let mut used = 0;
    for remote in remotes {
        let of_one = remote
            .call(|reactor| async move { reactor.pool().usage().used_bytes })
            .await;
        used += of_one.expect("a reactor that runs");
    }
    used
}

/// Waits until the target has no connection, no controller, and no buffer in use.
async fn settles(reactor: &Reactor, target: &Target, remotes: &[Remote]) {
    eventually(reactor, "the end of every connection", async || {
        let stats = target.stats();
        stats.connections == 0 && stats.controllers == 0 && stats.half_open == 0
    })
    .await;
    assert_eq!(pool_use(remotes).await, 0, "no buffer is left behind");
    assert!(target.connections().await.is_empty());
}

/// Sends `bytes` on a new connection and yields what ended it.
async fn end_of(reactor: &Reactor, address: SocketAddr, bytes: &[u8]) -> Broken {
    let mut queue = Queue::raw(reactor, address).await;
    queue.send_bytes(bytes).await.expect("connected");
    loop {
        if let Err(broken) = queue.step().await {
            return broken;
        }
    }
}

fn assert_terminated(broken: &Broken, status: FatalErrorStatus, information: u32) {
    match broken {
        Broken::Terminated(request) => {
            assert_eq!((request.status, request.information), (status, information));
        }
        other => panic!("{other:?} in place of a termination request"),
    }
}

#[test]
fn a_bad_first_pdu_is_answered_with_a_termination() {
    with_target(
        1,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            use FatalErrorStatus::{InvalidPduHeaderField, PduSequenceError, UnsupportedParameter};
            let good = InitializeRequest::new(DigestOptions::NONE).encode();
            let changed = |at: usize, value: u8| {
                let mut bytes = good;
                bytes[at] = value;
                bytes
            };
            for (bytes, status, information) in [
                (changed(0, 0x01), InvalidPduHeaderField, 0),
                (changed(0, 0x04), PduSequenceError, 0),
                (changed(0, 0x7f), InvalidPduHeaderField, 0),
                (changed(2, 127), InvalidPduHeaderField, 2),
                (changed(4, 127), InvalidPduHeaderField, 4),
                (changed(8, 1), UnsupportedParameter, 8),
                (changed(10, 32), InvalidPduHeaderField, 10),
            ] {
                let broken = end_of(&reactor, address, &bytes).await;
                assert_terminated(&broken, status, information);
            }
            settles(&reactor, &target, &remotes).await;
            assert_eq!(target.stats().reactors[0].terminated, 7);
        },
    );
}

#[test]
fn a_second_icreq_ends_the_connection() {
    with_target(
        1,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions::default();
            let mut queue = Queue::open(&reactor, address, options).await.expect("open");
            let again = InitializeRequest::new(DigestOptions::NONE).encode();
            queue.send_bytes(&again).await.expect("connected");
            let broken = queue.step().await.expect_err("terminated");
            assert_terminated(&broken, FatalErrorStatus::PduSequenceError, 0);
            drop(queue);
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn silence_before_connect_ends_in_time_and_half_open_connections_are_bounded() {
    let config = TargetConfig {
        max_half_open: 3,
        handshake_timeout: Duration::from_secs(5),
        ..TargetConfig::default()
    };
    with_target(1, config, |reactor, target, address, remotes| async move {
        let options = SocketOptions::default();
        let mut silent = Vec::new();
        for _ in 0..5 {
            let stream = TcpStream::connect(&reactor, address, &options).await;
            silent.push(stream.expect("the backlog takes it"));
        }
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(target.stats().half_open, 3);
        // Those that wait have their turn when the silent ones are gone.
        let (_admin, _) = admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
        eventually(&reactor, "the end of the silent ones", async || {
            target.stats().reactors[0].handshake_timeouts == 5
        })
        .await;
        assert_eq!(target.stats().half_open, 0);
        drop((_admin, silent));
        settles(&reactor, &target, &remotes).await;
    });
}

#[test]
fn connections_above_the_limit_are_closed() {
    let config = TargetConfig {
        max_connections: 1,
        ..TargetConfig::default()
    };
    with_target(1, config, |reactor, target, address, remotes| async move {
        let options = HostOptions::default();
        let (admin, _) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let refused = Queue::open(&reactor, address, options).await;
        assert!(matches!(refused, Err(Broken::Closed | Broken::Lost(_))));
        assert_eq!(target.stats().reactors[0].refused, 1);
        drop(admin);
        settles(&reactor, &target, &remotes).await;
    });
}

#[test]
fn connects_that_cannot_be_granted_say_why() {
    let config = TargetConfig {
        controllers_per_host_max: 2,
        ..TargetConfig::default()
    };
    with_target(2, config, |reactor, target, address, remotes| async move {
        let options = HostOptions::default();
        let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let (second, _) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let good = connect_data(id, SUBSYSTEM);
        let any = connect_data(ConnectData::ANY_CONTROLLER, SUBSYSTEM);
        let mut unnamed = any;
        unnamed.host_nqn = [b'x'; 256];
        let mut other_host = good;
        other_host.host_nqn = nqn("nqn.2024-01.org.weir:another").to_field();
        let missing = connect_data(ConnectData::ANY_CONTROLLER, "nqn.2024-01.org.weir:none");
        let connect = |qid, sqsize| Connect {
            record_format: 0,
            qid,
            sqsize,
            attributes: ConnectAttributes::NONE,
            keep_alive_timeout_ms: 0,
        };
        let format = Connect {
            record_format: 1,
            ..connect(0, 31)
        };
        let long = Connect {
            keep_alive_timeout_ms: u32::MAX,
            ..connect(0, 31)
        };
        let invalid = Status::CONNECT_INVALID_PARAMETERS;
        const DATA: u32 = 1 << 16;
        for (connect, data, status, result) in [
            (format, any, Status::CONNECT_INCOMPATIBLE_FORMAT, 40),
            (connect(0, 0), any, invalid, 44),
            (connect(0, 128), any, invalid, 44),
            (connect(129, 31), good, invalid, 42),
            (long, any, invalid, 48),
            (connect(0, 31), unnamed, invalid, DATA | 512),
            (connect(0, 31), missing, invalid, DATA | 256),
            (connect(0, 31), good, invalid, DATA | 16),
            (connect(1, 31), any, invalid, DATA | 16),
            (connect(1, 31), other_host, invalid, DATA | 512),
            (connect(0, 31), any, Status::CONNECT_CONTROLLER_BUSY, 0),
        ] {
            let mut queue = Queue::open(&reactor, address, options).await.expect("open");
            let sqe = FabricsCommand::Connect(connect).sqe(0, SglDescriptor::NONE);
            let (cqe, _) = queue.command(sqe, &data.encode(), 0).await;
            assert!(cqe.status.is(status), "{connect:?}: {:?}", cqe.status);
            assert_eq!(cqe.dw0(), result, "{connect:?}");
        }
        // Data of another length; another command first; a queue twice; a controller that is not enabled.
        let mut queue = Queue::open(&reactor, address, options).await.expect("open");
        let sqe = FabricsCommand::Connect(connect(0, 31)).sqe(0, SglDescriptor::NONE);
        let (cqe, _) = queue.command(sqe, &[0; 1020], 0).await;
        assert!(cqe.status.is(Status::DATA_SGL_LENGTH_INVALID));
        let (cqe, _) = queue.admin(AdminCommand::KeepAlive, &[], 0).await;
        assert!(cqe.status.is(Status::COMMAND_SEQUENCE_ERROR));
        let io = io_queue(&reactor, address, id, 1, options).await;
        let cqe = queue.connect_as(1, &good).await.expect("an answer");
        assert!(cqe.status.is(Status::INVALID_QUEUE_IDENTIFIER));
        admin.set_configuration(enabled().with_enabled(false)).await;
        let cqe = queue.connect_as(2, &good).await.expect("an answer");
        assert!(cqe.status.is(Status::COMMAND_SEQUENCE_ERROR));
        drop((admin, second, io, queue));
        settles(&reactor, &target, &remotes).await;
    });
}

/// What is wrong with an H2CData header.
type Change = fn(&mut H2cData);

#[test]
fn data_that_was_not_asked_for_ends_the_connection() {
    with_target(
        1,
        TargetConfig {
            mdts_bytes: 128 << 10,
            ..TargetConfig::default()
        },
        |reactor, target, address, remotes| async move {
            use FatalErrorStatus::{DataTransferOutOfRange, InvalidPduHeaderField, LimitExceeded};
            let options = HostOptions {
                in_capsule: 0,
                ..HostOptions::default()
            };
            let (admin, id) =
                admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
            let length = 128 * 1024_u32;
            let changes: [(Change, FatalErrorStatus, u32); 7] = [
                (|data| data.transfer_tag = 77, InvalidPduHeaderField, 10),
                (|data| data.cid ^= 1, InvalidPduHeaderField, 8),
                (|data| data.offset = 4, DataTransferOutOfRange, 0),
                (|data| data.offset = u32::MAX - 3, DataTransferOutOfRange, 0),
                (|data| data.last = true, InvalidPduHeaderField, 1),
                (|data| data.length = 131_076, LimitExceeded, 0),
                // Before any R2T: the tag of no command.
                (
                    |data| data.transfer_tag = u16::MAX,
                    InvalidPduHeaderField,
                    10,
                ),
            ];
            for (qid, (change, status, information)) in (1..).zip(changes) {
                let mut queue = io_queue(&reactor, address, id, qid, options).await;
                let write = NvmCommand::Write(Blocks::new(0, length / BLOCK as u32));
                let data = pattern(1, length as usize);
                let sqe = write.sqe(0, 1, SglDescriptor::NONE);
                queue.submit(sqe, &data, 0).await.expect("connected");
                let r2t = queue.receive_r2t().await;
                let mut header = H2cData {
                    cid: r2t.cid,
                    transfer_tag: r2t.transfer_tag,
                    offset: 0,
                    length: 4096,
                    last: false,
                };
                change(&mut header);
                let bytes = queue.h2c_data(&header, &pattern(1, header.length as usize));
                queue.send_bytes(&bytes).await.expect("connected");
                let broken = queue.step().await.expect_err("terminated");
                assert_terminated(&broken, status, information);
            }
            drop(admin);
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn damaged_data_fails_its_command_alone_and_a_damaged_header_the_connection() {
    with_target(
        1,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions {
                header_digest: true,
                data_digest: true,
                ..HostOptions::default()
            };
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queue = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(1, BLOCK);
            let sgl = SglDescriptor::InCapsule {
                offset: 0,
                length: BLOCK as u32,
            };
            let sqe = NvmCommand::Write(Blocks::new(0, 1)).sqe(0x5000, 1, sgl);
            let mut bytes = queue.capsule(&sqe, &data);
            let last = bytes.len() - 1;
            bytes[last] ^= 0x80;
            queue.expect_answer_for(0x5000);
            queue.send_bytes(&bytes).await.expect("connected");
            let (cqe, _) = queue.answer(0x5000).await.expect("connected");
            assert!(cqe.status.is(Status::TRANSIENT_TRANSPORT_ERROR));
            assert!(!cqe.status.do_not_retry());
            // A command that fails anyway, with damaged data.
            let mut bad = sqe;
            bad.nsid = 99;
            let mut bytes = queue.capsule(&bad, &data);
            bytes[last] ^= 0x80;
            queue.expect_answer_for(0x5000);
            queue.send_bytes(&bytes).await.expect("connected");
            let (cqe, _) = queue.answer(0x5000).await.expect("connected");
            assert!(cqe.status.is(Status::INVALID_NAMESPACE_OR_FORMAT));
            let read = NvmCommand::Read(Blocks::new(0, 1));
            let (cqe, data) = queue.nvm(read, 1, &[], BLOCK as u32).await;
            assert!(cqe.status.is_success());
            assert_eq!(data, vec![0; BLOCK], "damaged data was not written");
            // A refused command is answered before its data has come; the read came after both.
            assert_eq!(target.stats().reactors[0].data_digest_errors, 2);

            let mut bytes = queue.capsule(&sqe, &data);
            bytes[20] ^= 1;
            let digest = u32::from_le_bytes(bytes[72..76].try_into().expect("four bytes"));
            queue.send_bytes(&bytes).await.expect("connected");
            let broken = queue.step().await.expect_err("terminated");
            assert_terminated(&broken, FatalErrorStatus::HeaderDigestError, digest);
            drop((admin, queue));
            settles(&reactor, &target, &remotes).await;
        },
    );
}

/// The same for data that was asked for: in one PDU, and in the first, the second or both of two.
#[test]
fn damaged_data_that_was_asked_for_fails_its_command_alone() {
    with_target(
        1,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions {
                data_digest: true,
                in_capsule: 0,
                ..HostOptions::default()
            };
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queue = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(1, 8 * BLOCK);
            let (write, read) = (
                NvmCommand::Write(Blocks::new(0, 8)),
                NvmCommand::Read(Blocks::new(0, 8)),
            );
            for damaged in [&[true][..], &[true, false], &[false, true], &[true, true]] {
                let sqe = write.sqe(0, 1, SglDescriptor::NONE);
                let cid = queue.submit(sqe, &data, 0).await.expect("connected");
                let r2t = queue.receive_r2t().await;
                let length = data.len() / damaged.len();
                for (index, damaged) in damaged.iter().enumerate() {
                    let header = H2cData {
                        cid,
                        transfer_tag: r2t.transfer_tag,
                        offset: (index * length) as u32,
                        length: length as u32,
                        last: (index + 1) * length == data.len(),
                    };
                    let mut bytes = queue.h2c_data(&header, &data[index * length..][..length]);
                    bytes[1000] ^= u8::from(*damaged);
                    queue.send_bytes(&bytes).await.expect("connected");
                }
                let (cqe, _) = queue.answer(cid).await.expect("connected");
                assert!(
                    cqe.status.is(Status::TRANSIENT_TRANSPORT_ERROR),
                    "{damaged:?}: {:?}",
                    cqe.status
                );
                assert!(!cqe.status.do_not_retry());
                let (cqe, held) = queue.nvm(read, 1, &[], data.len() as u32).await;
                assert!(cqe.status.is_success());
                assert!(
                    held.iter().all(|byte| *byte == 0),
                    "{damaged:?} was written"
                );
            }
            assert_eq!(target.stats().reactors[0].data_digest_errors, 5);
            let (cqe, _) = queue.nvm(write, 1, &data, 0).await;
            assert!(cqe.status.is_success(), "the queue goes on");
            drop((admin, queue));
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn a_silent_host_loses_its_controller_and_every_queue() {
    with_target(
        3,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions {
                keep_alive_ms: 10_000,
                ..HostOptions::default()
            };
            let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queues = Vec::new();
            for qid in 1..=4 {
                queues.push(io_queue(&reactor, address, id, qid, options).await);
            }
            // Traffic on one I/O queue is enough.
            for _ in 0..10 {
                reactor.sleep(Duration::from_secs(6)).await;
                let (cqe, _) = queues[2].nvm(NvmCommand::Flush, 1, &[], 0).await;
                assert!(cqe.status.is_success());
            }
            // And so are keep-alives.
            for _ in 0..5 {
                reactor.sleep(Duration::from_secs(6)).await;
                let (cqe, _) = admin.admin(AdminCommand::KeepAlive, &[], 0).await;
                assert!(cqe.status.is_success());
            }
            reactor.sleep(Duration::from_secs(21)).await;
            for queue in &mut queues {
                assert!(matches!(
                    queue.step().await,
                    Err(Broken::Closed | Broken::Lost(_))
                ));
            }
            assert!(admin.step().await.is_err());
            let expiries: u64 = target
                .stats()
                .reactors
                .iter()
                .map(|reactor| reactor.keep_alive_expiries)
                .sum();
            assert_eq!(expiries, 1);
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn queues_are_spread_over_the_reactors() {
    with_target(
        3,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions::default();
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queues = Vec::new();
            for qid in 1..=6 {
                queues.push(io_queue(&reactor, address, id, qid, options).await);
            }
            let mut by_reactor = [0; 3];
            for connection in target.connections().await {
                let association = connection.association.expect("all are connected");
                assert_eq!(association.controller_id, id);
                assert!(connection.socket.is_some());
                if association.qid > 0 {
                    by_reactor[connection.reactor] += 1;
                }
            }
            assert_eq!(by_reactor, [2, 2, 2]);
            let controllers = target.controllers();
            assert_eq!(controllers[0].io_queues, [1, 2, 3, 4, 5, 6]);
            // Ending the admin queue ends them all.
            let admins = target.connections().await;
            let of_admin = admins
                .iter()
                .find(|connection| connection.association.as_ref().is_some_and(|a| a.qid == 0))
                .expect("the admin queue");
            target.disconnect(of_admin.id).await.expect("it is there");
            drop((admin, queues));
            settles(&reactor, &target, &remotes).await;
            assert!(target.disconnect(of_admin.id).await.is_err());
        },
    );
}

/// Where in its life a connection is cut.
#[derive(Debug, Clone, Copy)]
enum Cut {
    InIcreq,
    BeforeConnect,
    InConnect,
    InHeader,
    InCapsuleData,
    BeforeR2tData,
    InR2tData,
    WithReadsInFlight,
    WithWritesInFlight,
    InFusedPair,
}

/// Brings a connection to where it is cut.
async fn bring_to(cut: Cut, reactor: &Reactor, address: SocketAddr, id: u16) -> Queue {
    let options = HostOptions::default();
    if let Cut::InIcreq = cut {
        let mut queue = Queue::raw(reactor, address).await;
        queue.send_bytes(&[0, 0, 128, 0, 128]).await.expect("open");
        return queue;
    }
    if let Cut::BeforeConnect | Cut::InConnect = cut {
        let mut queue = Queue::open(reactor, address, options).await.expect("open");
        if let Cut::InConnect = cut {
            let sgl = SglDescriptor::InCapsule {
                offset: 0,
                length: 1024,
            };
            let connect = FabricsCommand::Connect(Connect::default()).sqe(0, sgl);
            let bytes = queue.capsule(&connect, &[0; 1024]);
            queue.send_bytes(&bytes[..500]).await.expect("open");
        }
        return queue;
    }
    let mut queue = io_queue(reactor, address, id, 1, options).await;
    let data = pattern(1, 64 * BLOCK);
    let write = NvmCommand::Write(Blocks::new(0, 64)).sqe(0, 1, SglDescriptor::NONE);
    let small = NvmCommand::Write(Blocks::new(0, 8));
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: 4096,
    };
    let capsule = queue.capsule(&small.sqe(9, 1, sgl), &data[..4096]);
    match cut {
        Cut::InHeader => queue.send_bytes(&capsule[..40]).await.expect("open"),
        Cut::InCapsuleData => queue.send_bytes(&capsule[..2000]).await.expect("open"),
        Cut::BeforeR2tData | Cut::InR2tData => {
            queue.submit(write, &data, 0).await.expect("open");
            let r2t = queue.receive_r2t().await;
            if let Cut::InR2tData = cut {
                let header = H2cData {
                    cid: r2t.cid,
                    transfer_tag: r2t.transfer_tag,
                    offset: 0,
                    length: r2t.length,
                    last: true,
                };
                let bytes = queue.h2c_data(&header, &data);
                queue.send_bytes(&bytes[..20_000]).await.expect("open");
            }
        }
        Cut::WithReadsInFlight | Cut::WithWritesInFlight => {
            for _ in 0..30 {
                let command = match cut {
                    Cut::WithReadsInFlight => NvmCommand::Read(Blocks::new(0, 64)),
                    _ => small,
                };
                let (out, reads) = match cut {
                    Cut::WithReadsInFlight => (&[][..], 64 * BLOCK as u32),
                    _ => (&data[..4096], 0),
                };
                let sqe = command.sqe(0, 1, SglDescriptor::NONE);
                queue.submit(sqe, out, reads).await.expect("open");
            }
        }
        _ => {
            let mut first = NvmCommand::Compare(Blocks::new(0, 1)).sqe(0, 1, SglDescriptor::NONE);
            first.fuse = weir_nvme::sqe::Fuse::First;
            queue.submit(first, &data[..512], 0).await.expect("open");
        }
    }
    queue
}

#[test]
fn a_connection_cut_anywhere_leaves_nothing_behind() {
    with_target(
        2,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            for cut in [
                Cut::InIcreq,
                Cut::BeforeConnect,
                Cut::InConnect,
                Cut::InHeader,
                Cut::InCapsuleData,
                Cut::BeforeR2tData,
                Cut::InR2tData,
                Cut::WithReadsInFlight,
                Cut::WithWritesInFlight,
                Cut::InFusedPair,
            ] {
                for pause in [0, 1, 200] {
                    let options = HostOptions::default();
                    let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
                    let queue = bring_to(cut, &reactor, address, id).await;
                    reactor.sleep(Duration::from_micros(pause)).await;
                    drop(queue);
                    // The controller lives on, and the queue can be made again.
                    eventually(&reactor, "the end of the queue", async || {
                        target.controllers()[0].io_queues.is_empty()
                    })
                    .await;
                    let mut again = io_queue(&reactor, address, id, 1, options).await;
                    let (cqe, _) = again.nvm(NvmCommand::Flush, 1, &[], 0).await;
                    assert!(cqe.status.is_success(), "{cut:?}");
                    assert_eq!(admin.property(Property::Status).await, 1);
                    drop((again, admin));
                    settles(&reactor, &target, &remotes).await;
                }
            }
            let panics: u64 = target.stats().reactors.iter().map(|r| r.panics).sum();
            assert_eq!(panics, 0);
        },
    );
}

#[test]
fn a_host_that_does_not_read_its_answers_is_not_read_from() {
    const COMMANDS: u16 = 3000;
    with_target(
        1,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions::default();
            let (mut admin, _) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut bytes = Vec::new();
            for cid in 100..100 + COMMANDS {
                admin.expect_answer_for(cid);
                let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
                let mut sqe = identify.sqe(cid, SglDescriptor::Transport { length: 4096 });
                sqe.cid = cid;
                bytes.extend(admin.capsule(&sqe, &[]));
            }
            let mut gather = Gather::new();
            gather.push_view(weir_memory::View::copy_of(&bytes));
            admin.stream.start_send(gather);
            reactor.sleep(Duration::from_secs(5)).await;
            let received = target.connections().await[0].bytes_received;
            assert!(
                received < bytes.len() as u64 / 2,
                "{received} bytes of commands were taken though no answer was read"
            );
            for cid in 100..100 + COMMANDS {
                let (cqe, data) = admin.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                assert_eq!(data.len(), 4096);
            }
            drop(admin);
            settles(&reactor, &target, &remotes).await;
        },
    );
}

/// What was received and cannot be taken yet does not keep the memory that others receive through.
#[test]
fn hosts_that_do_not_read_their_answers_do_not_stop_others() {
    // What a reactor receives into, and hosts that each could hold one.
    const BUFFERS: usize = 16;
    const HOSTS: u16 = 24;
    let simulation = Simulation::new(Config {
        seed: seed_from_env_or_random(),
        receive_buffer: Pool::CHUNK / BUFFERS,
        receive_pool_bytes: Pool::CHUNK,
        ..Config::default()
    });
    let world = simulation.world();
    with_target_in(
        simulation,
        1,
        TargetConfig {
            controllers_per_host_max: 2 * HOSTS,
            ..TargetConfig::default()
        },
        |reactor, target, address, remotes| async move {
            let options = HostOptions::default();
            let mut deaf = Vec::new();
            for _ in 0..HOSTS {
                let (mut admin, _) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
                let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
                let mut bytes = Vec::new();
                let sqe = identify.sqe(0, SglDescriptor::NONE);
                let cids: Vec<u16> = (0..1000)
                    .map(|_| admin.prepare(sqe, &[], 4096, &mut bytes))
                    .collect();
                let mut gather = Gather::new();
                gather.push_header(&bytes);
                admin.stream.start_send(gather);
                deaf.push((admin, cids));
            }
            reactor.sleep(Duration::from_secs(5)).await;
            let held = world.receive_bytes_held(SERVER);
            assert_eq!(held, 0, "by hosts that do not read");
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queue = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(1, 16 * BLOCK);
            let write = NvmCommand::Write(Blocks::new(0, 16)).sqe(0, 1, SglDescriptor::NONE);
            let cid = queue.submit(write, &data, 0).await.expect("connected");
            let (cqe, _) = queue.answer(cid).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
            // What was kept is all there.
            let (mut first, cids) = deaf.swap_remove(0);
            for cid in cids {
                let (cqe, _) = first.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            drop((admin, queue, deaf, first));
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn more_commands_than_the_queue_holds_wait_and_are_all_answered() {
    with_target(
        1,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions {
                entries: 4,
                ..HostOptions::default()
            };
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut queue = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(2, 16 * BLOCK);
            let mut cids = Vec::new();
            for index in 0..200 {
                let at = Blocks::new(index % 64 * 16, 16);
                let (command, out, reads) = if index % 2 == 0 {
                    (NvmCommand::Write(at), &data[..], 0)
                } else {
                    (NvmCommand::Read(at), &[][..], data.len() as u32)
                };
                let sqe = command.sqe(0, 1, SglDescriptor::NONE);
                cids.push(queue.submit(sqe, out, reads).await.expect("connected"));
            }
            for cid in cids {
                let (cqe, _) = queue.answer(cid).await.expect("connected");
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
            }
            drop((admin, queue));
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn a_host_that_may_not_connect_any_more_is_disconnected() {
    with_target(
        2,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions::default();
            let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut io = io_queue(&reactor, address, id, 1, options).await;
            target
                .apply(snapshot(2, Vec::new(), address))
                .await
                .expect("applied");
            assert!(admin.step().await.is_err());
            assert!(io.step().await.is_err());
            settles(&reactor, &target, &remotes).await;
        },
    );
}

#[test]
fn a_shutdown_lets_commands_end_and_closes_everything() {
    with_target(
        2,
        TargetConfig::default(),
        |reactor, target, address, remotes| async move {
            let options = HostOptions::default();
            let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut io = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(1, 1024 * BLOCK);
            let write = NvmCommand::Write(Blocks::new(0, 1024)).sqe(0, 1, SglDescriptor::NONE);
            let cid = io.submit(write, &data, 0).await.expect("connected");
            // The R2T has come, so that the write is in flight.
            let r2t = io.receive_r2t().await;
            let handle = target.clone();
            let down = reactor.spawn(async move { handle.shutdown(Duration::from_secs(30)).await });
            reactor.sleep(Duration::from_millis(50)).await;
            io.send_data(&r2t).await.expect("still served");
            let (cqe, _) = io.answer(cid).await.expect("still served");
            assert!(cqe.status.is_success());
            down.await;
            assert!(io.step().await.is_err());
            drop(admin);
            assert_eq!(target.stats().connections, 0);
            assert_eq!(pool_use(&remotes).await, 0);
            let refused = TcpStream::connect(&reactor, address, &SocketOptions::default()).await;
            assert!(refused.is_err(), "nobody listens any more");
        },
    );
}

#[test]
fn who_asks_a_target_whose_reactors_are_gone_hears_that_they_tell_nothing() {
    for crash in [None, Some(Crash::Process), Some(Crash::Power)] {
        let simulation = Simulation::new(Config {
            seed: seed_from_env_or_random(),
            ..Config::default()
        });
        let world = simulation.world();
        with_target_in(
            simulation,
            2,
            TargetConfig::default(),
            move |reactor, target, address, remotes| async move {
                let options = HostOptions::default();
                let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
                let _io = io_queue(&reactor, address, id, 1, options).await;
                assert_eq!(target.connections().await.len(), 2);
                let mut asked = pin!(target.connections());
                let early = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
                assert!(early.is_pending(), "reactors answer in their own time");
                match crash {
                    Some(crash) => world.crash(SERVER, crash),
                    None => remotes.iter().for_each(Remote::stop),
                }
                // A reactor that is told to stop may answer before it does.
                assert!(asked.await.len() <= 2);
                reactor.sleep(Duration::from_millis(1)).await;
                assert_eq!(target.connections().await.len(), 0);
            },
        );
    }
}
