//! Slow and dead hosts: each is given its time and no more, what it held comes back, and others do not notice.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::common::*;
use weir_memory::Segment;
use weir_nvme::command::{Abort, AdminCommand, Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{H2cData, R2t};
use weir_nvme_target::{ConnectionCounts, Target, TargetConfig};
use weir_reactor::sim::World;
use weir_reactor::{Reactor, ReceiveInto, Remote, SocketOptions, Task};

const BLOCK: usize = 512;
/// What hosts are given to move on.
const TIMEOUT: Duration = Duration::from_secs(10);
const LONG: usize = 256 << 10;

/// A target with one namespace on one reactor, and a host beside the bad one.
struct Ground {
    reactor: Reactor,
    target: Target,
    remotes: Vec<Remote>,
    world: World,
}

impl Ground {
    /// Bytes in use of the reactor's pool.
    async fn pool_use(&self) -> usize {
        let usage = self.remotes[0].call(|reactor| async move { reactor.pool().usage() });
        usage.await.expect("a reactor that runs").used_bytes
    }

    fn stats(&self) -> ConnectionCounts {
        self.target.stats().reactors[0]
    }

    fn ended(&self) -> u64 {
        let stats = self.stats();
        stats.stalled_arriving + stats.stalled_awaited + stats.stalled_sending + stats.lost
    }

    /// Sleeps until a connection was ended for its host's slowness: after one period at least, and after two at most.
    async fn ends_in_time(&self) {
        assert_eq!(self.ended(), 0);
        self.reactor.sleep(TIMEOUT - Duration::from_secs(1)).await;
        assert_eq!(self.ended(), 0, "a host has its time");
        self.reactor.sleep(TIMEOUT + Duration::from_secs(3)).await;
        assert_eq!(self.ended(), 1, "and no more");
    }

    /// Sleeps through `count` periods.
    async fn periods(&self, count: u32) {
        self.reactor.sleep(count * TIMEOUT).await;
    }
}

/// A host that does as it should, all the time: how many of its commands were answered.
fn good_host(reactor: &Reactor, mut queue: Queue) -> (Rc<Cell<u32>>, Task<()>) {
    let answered = Rc::new(Cell::new(0));
    let (count, own) = (Rc::clone(&answered), reactor.clone());
    let task = reactor.spawn(async move {
        let data = pattern(3, LONG);
        loop {
            let at = Blocks::new(4096, (LONG / BLOCK) as u32);
            for (command, out, reads) in [
                (NvmCommand::Write(at), &data[..], 0),
                (NvmCommand::Read(at), &[][..], LONG as u32),
            ] {
                let before = own.now();
                let (cqe, _) = queue.nvm(command, 1, out, reads).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                assert!(own.now() - before < Duration::from_secs(1), "undisturbed");
                count.set(count.get() + 1);
            }
            own.sleep(Duration::from_millis(300)).await;
        }
    });
    (answered, task)
}

/// Runs `bad` with the I/O queue of a host that is bad; another host on the same reactor goes on undisturbed, and when the bad
/// one is gone nothing is left of it.
fn beside_a_good_host<F: Future<Output = ()>>(
    options: HostOptions,
    bad: impl FnOnce(Rc<Ground>, Queue) -> F + 'static,
) {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server: IpAddr = simulation.address(SERVER);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("8M", BLOCK as u32)];
        let config = TargetConfig {
            progress_timeout: TIMEOUT,
            ..TargetConfig::default()
        };
        let (target, address) = serve(remotes.clone(), config, &volumes, server).await;
        let ground = Rc::new(Ground {
            reactor: reactor.clone(),
            target,

            remotes,
            world,
        });
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
        let other = io_queue(&reactor, address, id, 1, HostOptions::default()).await;
        let (_bad_admin, id) =
            admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
        let before = ground.pool_use().await;
        let queue = io_queue(&reactor, address, id, 1, options).await;
        let (answered, task) = good_host(&reactor, other);
        bad(Rc::clone(&ground), queue).await;
        let so_far = answered.get();
        reactor.sleep(Duration::from_secs(1)).await;
        assert!(so_far > 10 && answered.get() > so_far, "the other goes on");
        let _ = task.cancel().await;
        eventually(&reactor, "the end of the bad host's queue", async || {
            ground.target.stats().connections <= 3
        })
        .await;
        eventually(&reactor, "the return of its buffers", async || {
            ground.pool_use().await <= before
        })
        .await;
        assert_eq!(ground.world.receive_bytes_held(SERVER), 0);
    });
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

/// Submits a long write and yields what the R2T asks for.
async fn asked(queue: &mut Queue, lba: u64, data: &[u8]) -> H2cData {
    let write = NvmCommand::Write(Blocks::new(lba, (data.len() / BLOCK) as u32));
    let sqe = write.sqe(0, 1, SglDescriptor::NONE);
    queue.submit(sqe, data, 0).await.expect("connected");
    let r2t = queue.receive_r2t().await;
    H2cData {
        cid: r2t.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length: r2t.length.min(queue.maximum_h2c_data),
        last: r2t.length <= queue.maximum_h2c_data,
    }
}

#[test]
fn data_that_is_never_sent_ends_the_connection() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let before = ground.pool_use().await;
        asked(&mut queue, 0, &pattern(1, LONG)).await;
        assert!(ground.pool_use().await >= before + LONG / 2, "it is held");
        ground.ends_in_time().await;
        assert_eq!(ground.stats().stalled_awaited, 1);
        assert!(queue.step().await.is_err());
    });
}

#[test]
fn data_that_comes_byte_by_byte_ends_the_connection() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let data = pattern(1, LONG);
        let header = asked(&mut queue, 0, &data).await;
        let bytes = queue.h2c_data(&header, &data[..header.length as usize]);
        // All of the header, so that what follows is received straight into the command's buffer.
        queue.send_bytes(&bytes[..24]).await.expect("connected");
        let mut sent = 24;
        while queue.send_bytes(&bytes[sent..=sent]).await.is_ok() && sent < 60 {
            sent += 1;
            ground.reactor.sleep(Duration::from_secs(1)).await;
        }
        assert!((33..50).contains(&sent), "{sent} bytes");
        assert_eq!(ground.stats().stalled_arriving, 1);
    });
}

#[test]
fn data_that_comes_in_tiny_pdus_ends_the_connection() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let data = pattern(1, LONG);
        let mut header = asked(&mut queue, 0, &data).await;
        (header.length, header.last) = (4, false);
        let mut sent = 0;
        while sent < 60 {
            let at = header.offset as usize;
            let bytes = queue.h2c_data(&header, &data[at..at + 4]);
            // Most of the time one PDU has come in part.
            let begins = queue.send_bytes(&bytes[..10]).await;
            ground.reactor.sleep(Duration::from_millis(900)).await;
            if begins.is_err() || queue.send_bytes(&bytes[10..]).await.is_err() {
                break;
            }
            header.offset += 4;
            sent += 1;
        }
        assert!((8..40).contains(&sent), "{sent} PDUs");
        assert_eq!(ground.stats().stalled_awaited, 1);
    });
}

#[test]
fn one_transfer_that_is_left_behind_ends_the_connection() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let data = pattern(1, LONG);
        asked(&mut queue, 0, &data).await;
        let mut written = 0;
        loop {
            let write = NvmCommand::Write(Blocks::new(1024, (LONG / BLOCK) as u32));
            let sqe = write.sqe(0, 1, SglDescriptor::NONE);
            let Ok(cid) = queue.submit(sqe, &data, 0).await else {
                break;
            };
            let Ok((cqe, _)) = queue.answer(cid).await else {
                break;
            };
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
            written += 1;
            assert!(written < 60, "it goes on for ever");
            ground.reactor.sleep(Duration::from_secs(1)).await;
        }
        assert!(written >= 9, "{written} writes");
        assert_eq!(ground.stats().stalled_awaited, 1);
    });
}

/// Sends as much of the data that an R2T asks for as `pace` lets through, in pieces of a page.
async fn send_paced(queue: &mut Queue, r2t: &R2t, data: &[u8], pace: impl AsyncFn()) {
    let mut bytes = Vec::new();
    let mut offset = 0;
    while offset < r2t.length {
        let length = (r2t.length - offset).min(queue.maximum_h2c_data);
        let header = H2cData {
            cid: r2t.cid,
            transfer_tag: r2t.transfer_tag,
            offset,
            length,
            last: offset + length == r2t.length,
        };
        let part = &data[offset as usize..(offset + length) as usize];
        bytes.extend(queue.h2c_data(&header, part));
        offset += length;
    }
    for part in bytes.chunks(4096) {
        queue.send_bytes(part).await.expect("it is waited for");
        pace().await;
    }
}

/// A host may send what it was asked for in any order: what comes last was not left behind.
#[test]
fn a_slow_host_may_serve_its_last_request_first() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let data = pattern(1, LONG);
        let write = NvmCommand::Write(Blocks::new(0, (LONG / BLOCK) as u32));
        let sqe = write.sqe(0, 1, SglDescriptor::NONE);
        let mut asked = Vec::new();
        for _ in 0..2 {
            let cid = queue.submit(sqe, &data, 0).await.expect("connected");
            asked.push((cid, queue.receive_r2t().await));
        }
        while let Some((cid, r2t)) = asked.pop() {
            let pace = async || ground.reactor.sleep(Duration::from_secs(1)).await;
            send_paced(&mut queue, &r2t, &data, pace).await;
            let (cqe, _) = queue.answer(cid).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        }
        assert_eq!(ground.ended(), 0);
    });
}

/// A moment in which a host's input was not taken is no excuse for what it does afterwards.
#[test]
fn a_host_that_was_held_up_once_is_ended_when_it_stops() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        // More than there are slots for.
        let (mut bytes, mut cids) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let flush = NvmCommand::Flush.sqe(0, 1, SglDescriptor::NONE);
            cids.push(queue.prepare(flush, &[], 0, &mut bytes));
        }
        queue.send_bytes(&bytes).await.expect("connected");
        for cid in cids {
            let (cqe, _) = queue.answer(cid).await.expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        }
        asked(&mut queue, 0, &pattern(1, LONG)).await;
        ground.periods(3).await;
        assert_eq!(ground.stats().stalled_awaited, 1);
    });
}

#[test]
fn a_slow_host_that_moves_on_is_waited_for() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let data = pattern(1, LONG);
        let write = NvmCommand::Write(Blocks::new(0, (LONG / BLOCK) as u32));
        let sqe = write.sqe(0, 1, SglDescriptor::NONE);
        let cid = queue.submit(sqe, &data, 0).await.expect("connected");
        let r2t = queue.receive_r2t().await;
        let pace = async || ground.reactor.sleep(Duration::from_secs(1)).await;
        send_paced(&mut queue, &r2t, &data, pace).await;
        let (cqe, _) = queue.answer(cid).await.expect("connected");
        assert!(cqe.status.is_success(), "{:?}", cqe.status);
        assert_eq!(ground.ended(), 0);
        // A queue without a command may be silent for as long as it likes.
        ground.periods(6).await;
        let (cqe, _) = queue.nvm(NvmCommand::Flush, 1, &[], 0).await;
        assert!(cqe.status.is_success());
        assert_eq!(ground.ended(), 0);
    });
}

#[test]
fn a_header_and_a_capsule_that_are_not_finished_end_the_connection() {
    for cut in [1, 40, 72 + 2000] {
        let options = HostOptions::default();
        beside_a_good_host(options, move |ground, queue| async move {
            let mut queue = queue;
            let sgl = SglDescriptor::InCapsule {
                offset: 0,
                length: 4096,
            };
            let write = NvmCommand::Write(Blocks::new(0, 8)).sqe(9, 1, sgl);
            let bytes = queue.capsule(&write, &pattern(1, 4096));
            queue.send_bytes(&bytes[..cut]).await.expect("connected");
            ground.ends_in_time().await;
            assert_eq!(ground.stats().stalled_arriving, 1);
        });
    }
}

#[test]
fn a_header_that_comes_a_byte_a_minute_ends_the_connection() {
    beside_a_good_host(HostOptions::default(), |ground, mut queue| async move {
        let flush = NvmCommand::Flush.sqe(9, 1, SglDescriptor::NONE);
        let bytes = queue.capsule(&flush, &[]);
        let mut sent = 0;
        while queue.send_bytes(&bytes[sent..=sent]).await.is_ok() {
            sent += 1;
            assert!(sent < 3, "{sent} bytes");
            ground.reactor.sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(ground.stats().stalled_arriving, 1);
    });
}

/// Submits reads of more than the sockets hold.
async fn ask_for_much(queue: &mut Queue) {
    let mut bytes = Vec::new();
    for _ in 0..8 {
        let read = NvmCommand::Read(Blocks::new(0, (LONG / BLOCK) as u32));
        queue.prepare(
            read.sqe(0, 1, SglDescriptor::NONE),
            &[],
            LONG as u32,
            &mut bytes,
        );
    }
    queue.send_bytes(&bytes).await.expect("connected");
}

#[test]
fn a_host_that_stops_reading_is_ended() {
    beside_a_good_host(HostOptions::default(), |ground, mut queue| async move {
        ask_for_much(&mut queue).await;
        ground.ends_in_time().await;
        assert_eq!(ground.stats().stalled_sending, 1);
        assert!(queue.stream.report().is_ok(), "it is still there");
    });
}

#[test]
fn a_host_that_reads_a_byte_a_second_is_ended() {
    beside_a_good_host(HostOptions::default(), |ground, mut queue| async move {
        ask_for_much(&mut queue).await;
        for second in 0.. {
            let segment = Segment::heap(1);
            let stream = &queue.stream;
            stream.start_receive(ReceiveInto::Segment { segment, from: 0 });
            let received = std::future::poll_fn(|context| stream.poll_received(context)).await;
            if received.is_err() || ground.ended() > 0 {
                break;
            }
            assert!(second < 60, "it goes on for ever");
            ground.reactor.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(ground.stats().stalled_sending, 1);
    });
}

/// Receives `length` bytes at most, whatever they are; false: the connection has ended.
async fn take_bytes(queue: &Queue, length: usize) -> bool {
    let segment = Segment::heap(length);
    let stream = &queue.stream;
    stream.start_receive(ReceiveInto::Segment { segment, from: 0 });
    let received = std::future::poll_fn(|context| stream.poll_received(context)).await;
    received.is_ok()
}

/// The more is held for a host the more it must take, though a host that is sent little may be as slow.
#[test]
fn a_host_that_holds_much_and_reads_little_is_ended() {
    const MUCH: usize = 1 << 20;
    beside_a_good_host(HostOptions::default(), |ground, mut queue| async move {
        let mut bytes = Vec::new();
        for _ in 0..8 {
            let read = NvmCommand::Read(Blocks::new(0, (MUCH / BLOCK) as u32));
            let sqe = read.sqe(0, 1, SglDescriptor::NONE);
            queue.prepare(sqe, &[], MUCH as u32, &mut bytes);
        }
        queue.send_bytes(&bytes).await.expect("connected");
        let mut seconds = 0;
        // Eight MiB at this pace are half an hour's.
        while ground.ended() == 0 && take_bytes(&queue, 4096).await {
            seconds += 1;
            assert!(seconds < 60, "it goes on for ever");
            ground.reactor.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(ground.stats().stalled_sending, 1);
    });
}

/// A host is not asked for data before the request for it has left.
#[test]
fn a_request_for_data_behind_much_that_is_read_slowly_is_no_stall() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        ask_for_much(&mut queue).await;
        ground.reactor.sleep(Duration::from_millis(100)).await;
        let write = NvmCommand::Write(Blocks::new(0, (LONG / BLOCK) as u32));
        let sqe = write.sqe(0, 1, SglDescriptor::NONE);
        let data = pattern(1, LONG);
        queue.submit(sqe, &data, 0).await.expect("connected");
        let until = ground.reactor.now() + 3 * TIMEOUT;
        while ground.reactor.now() < until {
            assert!(take_bytes(&queue, 32 << 10).await, "it is waited for");
            ground.reactor.sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(ground.ended(), 0);
    });
}

#[test]
fn a_host_that_reads_slowly_but_reads_is_waited_for() {
    beside_a_good_host(HostOptions::default(), |ground, mut queue| async move {
        ask_for_much(&mut queue).await;
        let mut left = 8 * LONG;
        while left > 0 {
            let segment = Segment::heap((32 << 10).min(left));
            let stream = &queue.stream;
            stream.start_receive(ReceiveInto::Segment { segment, from: 0 });
            let received = std::future::poll_fn(|context| stream.poll_received(context)).await;
            assert!(received.is_ok(), "it is waited for");
            left -= (32 << 10).min(left);
            ground.reactor.sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(ground.ended(), 0);
        // It has read no more than the data; the end is its own.
        drop(queue);
    });
}

#[test]
fn a_host_that_vanishes_without_a_keep_alive_timer_is_noticed() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("8M", BLOCK as u32)];
        let config = TargetConfig::default();
        let (target, address) = serve(remotes, config, &volumes, server).await;
        let options = SocketOptions {
            keep_alive: Some(Duration::from_secs(30)),
            ..SocketOptions::default()
        };
        target
            .set_listener_options(address, options)
            .await
            .expect("a listener");
        let options = HostOptions::default();
        assert_eq!(options.keep_alive_ms, 0, "KATO 0");
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let io = io_queue(&reactor, address, id, 1, options).await;
        // A silent host that is there stays for as long as it likes.
        reactor.sleep(Duration::from_secs(600)).await;
        assert_eq!(target.stats().connections, 2);
        for connection in world.connections() {
            world.silence(&connection);
        }
        reactor.sleep(Duration::from_secs(100)).await;
        let stats = target.stats();
        assert_eq!((stats.connections, stats.controllers), (0, 0));
        let lost: u64 = stats.reactors.iter().map(|reactor| reactor.lost).sum();
        assert!(lost >= 1, "{lost}");
        drop((admin, io));
    });
}

/// A command that was aborted while its data was awaited holds no buffer for data that may never come, and data that comes
/// all the same is swallowed.
#[test]
fn an_aborted_write_holds_no_buffer() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("8M", BLOCK as u32)];
        let config = TargetConfig {
            progress_timeout: TIMEOUT,
            ..TargetConfig::default()
        };
        let (target, address) = serve(remotes.clone(), config, &volumes, server).await;
        let (mut admin, id) =
            admin_queue(&reactor, address, SUBSYSTEM, HostOptions::default()).await;
        let pool_use = async || {
            let usage = remotes[0].call(|reactor| async move { reactor.pool().usage() });
            usage.await.expect("a reactor that runs").used_bytes
        };
        for (qid, ahead) in (1..).zip([0, 24, 5000, 50_000, 100_000]) {
            let mut queue = io_queue(&reactor, address, id, qid, BY_R2T).await;
            let before = pool_use().await;
            let data = pattern(1, LONG);
            let header = asked(&mut queue, 0, &data).await;
            let bytes = queue.h2c_data(&header, &data[..header.length as usize]);
            queue.send_bytes(&bytes[..ahead]).await.expect("connected");
            reactor.sleep(Duration::from_millis(10)).await;
            let abort = AdminCommand::Abort(Abort {
                sqid: qid,
                cid: header.cid,
            });
            let (cqe, _) = admin.admin(abort, &[], 0).await;
            assert_eq!(cqe.dw0() & 1, 0, "it was aborted");
            let (cqe, _) = queue.answer(header.cid).await.expect("connected");
            assert!(!cqe.status.is_success());
            if ahead == 0 {
                // Once a PDU is being received into the buffer, that waits for its end, which has a time of its own.
                eventually(&reactor, "the return of the buffer", async || {
                    pool_use().await == before
                })
                .await;
            }
            if ahead == 0 {
                // The host need not send it, and is not held to it.
                reactor.sleep(3 * TIMEOUT).await;
            }
            queue.send_bytes(&bytes[ahead..]).await.expect("connected");
            let (cqe, _) = queue.nvm(NvmCommand::Flush, 1, &[], 0).await;
            assert!(cqe.status.is_success());
            assert_eq!(pool_use().await, before);
            let (cqe, read) = queue
                .nvm(
                    NvmCommand::Read(Blocks::new(0, 8)),
                    1,
                    &[],
                    8 * BLOCK as u32,
                )
                .await;
            assert!(cqe.status.is_success());
            assert_eq!(read, vec![0; 8 * BLOCK], "nothing of it was written");
        }
        assert_eq!(target.stats().reactors[0].stalled_awaited, 0);
    });
}

/// What is sent in one go is no slowness: a host that does much at once is not ended, however long the run.
#[test]
fn a_busy_host_is_not_taken_for_a_slow_one() {
    beside_a_good_host(BY_R2T, |ground, mut queue| async move {
        let data = pattern(1, LONG);
        let until = ground.reactor.now() + 5 * TIMEOUT;
        while ground.reactor.now() < until {
            let at = Blocks::new(0, (LONG / BLOCK) as u32);
            let (cqe, _) = queue.nvm(NvmCommand::Write(at), 1, &data, 0).await;
            assert!(cqe.status.is_success());
            ground.reactor.sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(ground.ended(), 0);
    });
}
