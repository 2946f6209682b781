//! Slow hosts over real sockets: what the kernel says of a connection is what its host is judged by.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::H2cData;
use weir_nvme_target::{ConnectionCounts, Target, TargetConfig};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, ReactorId, ReactorThread, System};

const BLOCK: usize = 4096;
const LONG: usize = 256 << 10;
/// Time that hosts have to move on, short enough to expire in a test.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long something may take to come true. Only a bound: nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(300);

fn reactor(system: &Arc<LinuxSystem>, number: u32) -> ReactorThread {
    let config = ReactorConfig {
        id: ReactorId(number),
        name: format!("reactor-{number}"),
        on_panic: PanicPolicy::Unwind,
        pool_bytes: 64 << 20,
        ..ReactorConfig::default()
    };
    let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
        Box::pin(std::future::pending())
    });
    let started = Arc::clone(system).start_reactor(config, main);
    started.expect("a reactor starts")
}

/// Runs `host` with the I/O queue of a host, on a reactor beside the target's, which gives hosts this time-out to move on.
fn over_sockets<F: Future<Output = ()>>(
    timeout: Duration,
    options: HostOptions,
    host: impl FnOnce(Reactor, Target, SocketAddr, Queue) -> F + Send + 'static,
) {
    let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
    let (server, client) = (reactor(&system, 0), reactor(&system, 1));
    let remotes = vec![server.remote.clone()];
    let work = move |reactor: Reactor| async move {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let config = TargetConfig {
            progress_timeout: timeout,
            ..TargetConfig::default()
        };
        let volumes = [memory_volume("8M", BLOCK as u32)];
        let (target, address) = serve_at(remotes, config, &volumes, ip, 0).await;
        let good = HostOptions::default();
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, good).await;
        let queue = io_queue(&reactor, address, id, 1, options).await;
        // Another queue goes on, whatever becomes of that one.
        let mut other = io_queue(&reactor, address, id, 2, good).await;
        host(reactor.clone(), target, address, queue).await;
        let (cqe, _) = other.nvm(NvmCommand::Flush, 1, &[], 0).await;
        assert!(cqe.status.is_success(), "{:?}", cqe.status);
    };
    client.remote.call_blocking(work).expect("it runs");
    for thread in [client, server] {
        thread.remote.stop();
        thread.join();
    }
}

fn stats(target: &Target) -> ConnectionCounts {
    target.stats().reactors[0]
}

async fn comes_true(reactor: &Reactor, what: &str, holds: impl Fn() -> bool) {
    let until = reactor.now() + PATIENCE;
    while !holds() {
        assert!(reactor.now() < until, "{what} did not come true");
        reactor.sleep(Duration::from_millis(20)).await;
    }
}

const BY_R2T: HostOptions = HostOptions {
    header_digest: false,
    data_digest: false,
    alignment: 0,
    flow_control_off: true,
    entries: 32,
    keep_alive_ms: 0,
    in_capsule: 0,
};

/// Asks for a long write, and yields the H2CData PDU of its beginning.
async fn asked(queue: &mut Queue) -> Vec<u8> {
    let data = pattern(1, LONG);
    let write = NvmCommand::Write(Blocks::new(0, (LONG / BLOCK) as u32));
    let sqe = write.sqe(0, 1, SglDescriptor::NONE);
    queue.submit(sqe, &data, 0).await.expect("connected");
    let r2t = queue.receive_r2t().await;
    let length = r2t.length.min(queue.maximum_h2c_data);
    let header = H2cData {
        cid: r2t.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length,
        last: length == r2t.length,
    };
    queue.h2c_data(&header, &data[..length as usize])
}

#[test]
fn data_that_does_not_come_ends_the_connection() {
    over_sockets(
        TIMEOUT,
        BY_R2T,
        |reactor, target, _, mut queue| async move {
            asked(&mut queue).await;
            comes_true(&reactor, "the end", || stats(&target).stalled_awaited == 1).await;
            assert!(queue.step().await.is_err());
        },
    );
}

#[test]
fn data_that_stops_in_a_pdu_ends_the_connection() {
    over_sockets(
        TIMEOUT,
        BY_R2T,
        |reactor, target, _, mut queue| async move {
            let bytes = asked(&mut queue).await;
            queue.send_bytes(&bytes[..1000]).await.expect("connected");
            comes_true(&reactor, "the end", || stats(&target).stalled_arriving == 1).await;
        },
    );
}

/// The whole PDU is received with one operation: only the kernel knows that it comes.
#[test]
fn data_that_comes_slowly_is_waited_for() {
    let was_steady = Arc::new(AtomicBool::new(false));
    let mut timeout = TIMEOUT;
    // With longer and longer time-outs, until the host itself has stood still for no more than a part of one.
    while timeout < PATIENCE {
        let is_steady = Arc::clone(&was_steady);
        over_sockets(
            timeout,
            BY_R2T,
            move |reactor, target, _, mut queue| async move {
                let mut last = reactor.now();
                let bytes = asked(&mut queue).await;
                let (mut longest, mut is_sent) = (Duration::ZERO, true);
                for part in bytes.chunks(bytes.len() / 5 + 1) {
                    is_sent &= queue.send_bytes(part).await.is_ok();
                    reactor.sleep(timeout / 2).await;
                    let now = reactor.now();
                    longest = longest.max(now.since(last));
                    last = now;
                }
                // A host that stands still for longer may be ended.
                if longest > timeout * 3 / 4 {
                    return;
                }
                assert!(is_sent, "it is waited for");
                let counts = stats(&target);
                assert_eq!((counts.stalled_arriving, counts.lost), (0, 0));
                drop(queue);
                is_steady.store(true, Ordering::Relaxed);
            },
        );
        if was_steady.load(Ordering::Relaxed) {
            return;
        }
        timeout *= 2;
    }
    panic!("the machine always stood still");
}

/// Submits reads of more than sockets hold, again and again the same.
async fn ask_for_much(queue: &mut Queue) {
    let mut bytes = Vec::new();
    for _ in 0..30 {
        let read = NvmCommand::Read(Blocks::new(0, (1 << 20) / BLOCK as u32));
        let sqe = read.sqe(0, 1, SglDescriptor::NONE);
        queue.prepare(sqe, &[], 1 << 20, &mut bytes);
    }
    queue.send_bytes(&bytes).await.expect("connected");
}

#[test]
fn a_host_that_stops_reading_is_ended() {
    over_sockets(
        TIMEOUT,
        HostOptions::default(),
        |reactor, target, _, mut queue| async move {
            ask_for_much(&mut queue).await;
            comes_true(&reactor, "the end", || stats(&target).stalled_sending == 1).await;
            comes_true(&reactor, "the return of what it held", || {
                target.stats().bytes_in_flight[0] == 0
            })
            .await;
        },
    );
}

#[test]
fn a_socket_without_a_word_asks_for_one() {
    over_sockets(
        TIMEOUT,
        HostOptions::default(),
        |reactor, target, address, queue| async move {
            let options = weir_reactor::SocketOptions {
                keep_alive: Some(Duration::from_secs(33)),
                ..weir_reactor::SocketOptions::default()
            };
            let set = target.set_listener_options(address, options).await;
            set.expect("a listener");
            let good = HostOptions::default();
            let (_admin, _) = admin_queue(&reactor, address, SUBSYSTEM, good).await;
            let connections = target.connections().await;
            let newest = connections.iter().max_by_key(|connection| connection.id);
            let report = newest.and_then(|newest| newest.socket.clone());
            let report = report.expect("a connection and its socket");
            assert_eq!(report.keep_alive, Duration::from_secs(33));
            assert!(report.bytes_received > 0 && report.bytes_acknowledged > 0);
            drop(queue);
        },
    );
}
