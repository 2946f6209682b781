//! Writes that could land after a failover (group 29), and changes of a gateway's configuration under I/O (group 30).
//!
//! The volume that is slow is a namespace of the same gateway, reached over a path that the case holds up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use weir_nvme::command::{Blocks, ConnectData, FabricsCommand, NvmCommand};
use weir_nvme::identify::{Cns, IdentifyNamespace};
use weir_nvme::property::{ControllerStatus, Property, ShutdownNotification, ShutdownStatus};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::{Cqe, Nqn, Status};

use super::guests::{Annex, Guest, with_guest};
use super::hosts::{
    Attempt, Disk, INVALID_NAMESPACE, connect_refused, nvm, read_sqe, refused, set_queues,
    write_sqe,
};
use super::proxy::Proxy;
use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::nvme::context::Context;
use crate::nvme::peer::{Answer, Got, Peer};
use crate::nvme::queue::{Controller, Queue, QueueOptions, enabled};
use crate::nvme::queue::{answers_to, together};

cases! {
    20 reset_waits_for_the_volume [GATEWAY] "NVMe Base 2.0c 3.1.3.5, 3.7.2"
        : "CC.EN 0 while the volume has not ended a write" => "CSTS.RDY falls when the write has ended, and not before";
    20 shutdown_waits_for_the_volume [GATEWAY] "NVMe Base 2.0c 3.1.3.6 (SHST), 3.6.1"
        : "CC.SHN while the volume has not ended a write" => "CSTS.SHST 01b, and 10b when the write has ended";

    29 write_of_a_lost_connection [GATEWAY] "NVMe Base 2.0c 3.3.2.4, 3.9.1"
        : "a write that the volume has not ended, the end of its connection, and the next I/O queue of the same host" => "the queue is granted at once; what it asks of the block is done when the write has landed, so that nothing can overwrite what is written next";
    29 write_of_a_lost_connection_and_another_host [GATEWAY] "NVMe Base 2.0c 3.3.2.4"
        : "the same, and an I/O queue of another host" => "it is granted at once";
    29 write_of_a_controller_that_expired [GATEWAY] "NVMe Base 2.0c 3.9.1"
        : "a write that the volume has not ended when the keep-alive timer expires" => "as for a lost connection";
    29 write_of_a_queue_that_disconnected [GATEWAY] "NVMe Base 2.0c 3.3.2.4, 6.4"
        : "Disconnect while the volume has not ended a write, and the same queue again" => "success, and as for a lost connection";
    29 write_to_a_path_that_failed not applicable "one gateway has no second path; the commands that fence between gateways are those of a gateway group"
        : "a write that was given up on one gateway, and its repetition on another" => "only the later one lands";

    30 namespace_removed_under_io [GATEWAY] "NVMe Base 2.0c 3.2.1, 3.3.3.2.1.1"
        : "a namespace that is removed while reads and writes of it are in flight" => "one answer to each: success, or Invalid Namespace or Format; the queue goes on";
    30 namespace_removed_with_a_write_awaited [GATEWAY] "NVMe Base 2.0c 3.2.1, 3.3.3.2.1.1"
        : "a namespace that is removed while the data of a write is awaited, which then comes" => "an answer: a failure, or success; the connection goes on";
    30 volume_removed_with_a_write_awaited [GATEWAY] "NVMe Base 2.0c 3.2.1, 3.3.3.2.1.1"
        : "a namespace and its file that are removed and come back while the data of a write is awaited, which never comes" => "Invalid Namespace or Format to the write, and the file can be had again at once; the queue goes on";
    30 volume_removed_with_half_a_pair [GATEWAY] "NVMe Base 2.0c 3.2.1, 3.4.2"
        : "the same, while the first of a fused pair waits for its second" => "as before; the second then: a failure";
    30 volume_removed_with_half_a_capsule [GATEWAY] "NVMe Base 2.0c 3.2.1, 3.3.3.2.1.1"
        : "the same, while half of a write's capsule has come" => "as before, when the other half is there";
    30 namespace_grown_under_io [GATEWAY] "NVMe Base 2.0c 5.2; NVM Command Set 1.0c 4.1.5.1"
        : "a volume that grows under I/O" => "every command succeeds; NSZE and the new blocks are there";
    30 namespace_shrunk_under_io [GATEWAY] "NVMe Base 2.0c 3.3.3.2.1.1"
        : "a volume that shrinks under I/O" => "success or LBA Out of Range to each; behind the new end LBA Out of Range";
    30 namespace_protected_under_io [GATEWAY] "NVMe Base 2.0c 8.12, 3.3.3.2.1.1"
        : "a namespace that becomes read-only under I/O" => "success, and Namespace is Write Protected to writes; reads go on";
    30 namespace_protected_with_a_write_awaited [GATEWAY] "NVMe Base 2.0c 8.12, 3.3.3.2.1.1"
        : "a namespace that becomes read-only while the data of a write is awaited, which then comes" => "Namespace is Write Protected, and the block as before: what was told to be read-only is";
    30 subsystem_removed_under_io [GATEWAY] "NVMe Base 2.0c 3.1, 6.3"
        : "a subsystem that is removed under I/O" => "the end of its connections; then Connect Invalid Parameters, IPO 256 in the data";
    30 subsystem_removed_with_connects_queued [GATEWAY] "NVMe Base 2.0c 3.1, 6.3"
        : "a subsystem that is removed while Connects wait for a volume" => "Connect Invalid Parameters, or the end of the connection, to each";
    30 host_disallowed_under_io [GATEWAY] "NVMe Base 2.0c 6.3"
        : "a host whose allowance is taken back under I/O" => "the end of its connections; then Connect Invalid Host";
    30 two_hosts_with_one_identifier [] "NVMe Base 2.0c 5.27.1.25, 6.3"
        : "two HOSTNQNs with one HOSTID" => "controllers for both, neither has the other's; or Connect Invalid Host or Connect Invalid Parameters to the second";
    30 ana_state_moved_under_io not applicable "the control API has no ANA states yet: every namespace is optimized; the target's own tests move them"
        : "an ANA state that becomes inaccessible under I/O" => "the path related status of the state, and an event";
}

const BACK: &str = "nqn.2026-01.com.example:torture-back";
const FRONT: &str = "nqn.2026-01.com.example:torture-front";
const BACK_URL: &str = "mem:?size=4M&block_size=512";
const BLOCK: usize = 512;

/// A subsystem whose volume can be held up.
struct Slow {
    proxy: Proxy,
    options: QueueOptions,
}

/// Does `work` with a subsystem whose volume can be held up.
fn with_slow(
    context: &mut Context,
    work: impl FnOnce(&mut Context, &Slow) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let back = Annex::arrive(context, BACK, "torture-back", BACK_URL)?;
    let done = with_front(context, work);
    let left = back.leave(context);
    done.and(left)
}

fn with_front(
    context: &mut Context,
    work: impl FnOnce(&mut Context, &Slow) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let slow = Slow {
        proxy: Proxy::start(context.target.address)?,
        options: QueueOptions {
            subsystem: nqn(FRONT)?,
            ..context.options()
        },
    };
    let url = format!("nvme+tcp://{}/{BACK}?nsid=1&queues=1", slow.proxy.address);
    let front = Annex::arrive(context, FRONT, "torture-front", &url)?;
    let done = work(context, &slow);
    slow.proxy.release();
    let left = front.leave(context);
    done.and(left)
}

fn nqn(name: &str) -> Result<Nqn, Failure> {
    Nqn::new(name).map_err(|error| Failure::preparation(name, error))
}

fn block(seed: u8) -> Vec<u8> {
    (0..BLOCK).map(|index| seed ^ (index % 251) as u8).collect()
}

/// A controller of the slow subsystem with an I/O queue whose block 0 is `block(1)`.
fn slow_disk(context: &Context, options: &QueueOptions) -> Result<(Controller, Queue), Failure> {
    let (controller, mut io) = context.io_with(options)?;
    io.write(1, 0, 1, &block(1))?;
    Ok((controller, io))
}

/// Sends a write of block 0 and its data: the volume has it, and does not end it while it is held up.
fn stuck_write(queue: &mut Queue, data: &[u8]) -> Result<u16, Failure> {
    let (sqe, capsule) = queue.prepare(write_sqe(1, 0, 1), data, 0);
    queue.send(&capsule)?;
    let r2t = queue.expect_r2t("a write", sqe.cid)?;
    queue.send_data(&r2t, data)?;
    queue.expect_silence("a write that the volume does not end", QUIET)?;
    Ok(sqe.cid)
}

fn status_of(admin: &mut Queue) -> Result<ControllerStatus, Failure> {
    Ok(ControllerStatus(admin.property(Property::Status)? as u32))
}

fn reset_waits_for_the_volume(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        let (mut controller, mut io) = slow_disk(context, &slow.options)?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        let admin = &mut controller.admin;
        admin.configure(enabled().with_enabled(false))?;
        std::thread::sleep(QUIET);
        let status = status_of(admin)?;
        let what = "CSTS.RDY while a write has not ended";
        check(status.ready(), what, "1", "0")?;
        slow.proxy.release();
        admin
            .await_status("CSTS.RDY 0", |status| !status.ready())
            .map(drop)
    })
}

fn shutdown_waits_for_the_volume(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        let (mut controller, mut io) = slow_disk(context, &slow.options)?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        let admin = &mut controller.admin;
        admin.configure(enabled().with_shutdown(ShutdownNotification::Normal))?;
        std::thread::sleep(QUIET);
        let status = status_of(admin)?.shutdown();
        check(
            status == ShutdownStatus::Occurring,
            "CSTS.SHST while a write has not ended",
            "01b",
            format!("{status:?}"),
        )?;
        slow.proxy.release();
        admin
            .await_status("CSTS.SHST 10b", |status| {
                status.shutdown() == ShutdownStatus::Complete
            })
            .map(drop)
    })
}

/// Connects the next I/O queue of the same host, which is granted at once. What it reads waits until the volume goes on, and is then
/// what was written last.
fn next_queue_finds_it(context: &Context, slow: &Slow) -> Result<(), Failure> {
    let controller = context.controller_with(&slow.options)?;
    queue_finds_it(context, slow, &controller)
}

fn queue_finds_it(context: &Context, slow: &Slow, controller: &Controller) -> Result<(), Failure> {
    let mut peer = begin_connect(context, &slow.options, controller.id, 1)?;
    let what = "the Connect while a write has not landed";
    peer.expect_status(what, 1, Status::SUCCESS)?;
    let mut queue = Queue::over(peer);
    queue.qid = 1;
    let (sqe, capsule) = queue.prepare(read_sqe(1, 0, 1), &[], BLOCK as u32);
    queue.send(&capsule)?;
    queue.expect_silence("a read while a write has not landed", QUIET * 2)?;
    slow.proxy.release();
    let (_, read) = queue.answer(&sqe, &[])?;
    let what = "what the lost connection wrote";
    check(read == block(2), what, "it is there", "other data")?;
    queue.write(1, 0, 1, &block(3))?;
    same(&mut queue, "what was written next", &block(3))?;
    std::thread::sleep(QUIET);
    same(
        &mut queue,
        "what was written next, some time later",
        &block(3),
    )
}

fn same(queue: &mut Queue, what: &str, expected: &[u8]) -> Result<(), Failure> {
    let read = queue.read(1, 0, 1, BLOCK as u32)?;
    check(read == expected, what, "it is there", "other data")
}

/// Sends the Connect of an I/O queue and does not wait.
fn begin_connect(
    context: &Context,
    options: &QueueOptions,
    controller: u16,
    qid: u16,
) -> Result<Peer, Failure> {
    let mut peer = context.initialized()?;
    let attempt = Attempt {
        connect: options.connect(qid),
        data: options.connect_data(controller),
    };
    peer.send(&attempt.capsule(&peer, 1))?;
    Ok(peer)
}

fn write_of_a_lost_connection(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        let (controller, mut io) = slow_disk(context, &slow.options)?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        io.into_peer().reset();
        controller.admin.into_peer().reset();
        std::thread::sleep(QUIET);
        next_queue_finds_it(context, slow)
    })
}

fn write_of_a_lost_connection_and_another_host(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        let (controller, mut io) = slow_disk(context, &slow.options)?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        io.into_peer().reset();
        controller.admin.into_peer().reset();
        std::thread::sleep(QUIET);
        let other = QueueOptions {
            host_nqn: nqn("nqn.2026-01.com.example:torture-other-host")?,
            ..slow.options.clone()
        };
        let (_controller, mut queue) = context.io_with(&other)?;
        slow.proxy.release();
        queue.still_works(1, BLOCK as u32)
    })
}

fn write_of_a_controller_that_expired(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        let short = QueueOptions {
            keep_alive_ms: 1000,
            ..slow.options.clone()
        };
        let (mut controller, mut io) = slow_disk(context, &short)?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        let got = controller.admin.receive_within(Duration::from_secs(5));
        let what = "a controller whose keep-alive timer expired";
        controller.admin.judge(what, &[Answer::End], got)?;
        io.expect_end(what)?;
        next_queue_finds_it(context, slow)
    })
}

fn write_of_a_queue_that_disconnected(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        let (controller, mut io) = slow_disk(context, &slow.options)?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        let disconnect = FabricsCommand::Disconnect { record_format: 0 };
        let sqe = disconnect.sqe(0, SglDescriptor::NONE);
        let (sqe, capsule) = io.prepare(sqe, &[], 0);
        io.send(&capsule)?;
        match io.receive() {
            Got::Response(cqe) if cqe.cid == sqe.cid && cqe.status.is_success() => {}
            got => return Err(Failure::differs("Disconnect", "success", got)),
        }
        // The write is not answered any more.
        io.expect_end("a queue with a write in flight after its Disconnect")?;
        queue_finds_it(context, slow, &controller)
    })
}

/// Commands of one batch of the load.
const BATCH: u64 = 8;

/// Batches of reads and writes on a namespace until told to stop; the status of each command.
fn load(queue: &mut Queue, nsid: u32, stop: &AtomicBool) -> Result<Vec<Cqe>, Failure> {
    let data = block(9);
    let mut answers = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let mut commands = Vec::new();
        for lba in 0..BATCH {
            commands.push((write_sqe(nsid, lba, 1), &data[..], 0));
            commands.push((read_sqe(nsid, lba, 1), &[][..], BLOCK as u32));
        }
        answers.extend(together(queue, &commands)?);
    }
    Ok(answers)
}

/// Runs the load while `change` happens, and judges its answers: success, or one of `others`; both must have come.
fn under_load(
    queue: &mut Queue,
    nsid: u32,
    what: &str,
    others: &[Status],
    change: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stop = AtomicBool::new(false);
    let (changed, answers) = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(queue, nsid, &stop));
        std::thread::sleep(QUIET);
        let changed = change();
        std::thread::sleep(QUIET);
        stop.store(true, Ordering::SeqCst);
        (changed, joined(loading))
    });
    changed?;
    for cqe in answers? {
        let expected = cqe.status.is_success() || others.iter().any(|other| *other == plain(cqe));
        check(
            expected,
            what,
            "success, or what fits the change",
            cqe.status,
        )?;
    }
    Ok(())
}

/// A status without More, which says only that the error log has an entry.
fn plain(cqe: Cqe) -> Status {
    let bare = Status::from_bits(cqe.status.bits() & 0x7ff);
    if cqe.status.do_not_retry() {
        bare.with_do_not_retry()
    } else {
        bare
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

const GUEST: &str = "torture-guest";
const GUEST_URL: &str = "mem:?size=4M&block_size=512";

fn namespace_removed_under_io(context: &mut Context) -> Result<(), Failure> {
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        let mut disk = Disk::new(context)?;
        let what = "a namespace that is removed";
        let others = [INVALID_NAMESPACE];
        let nsid = guest.nsid;
        under_load(&mut disk.io, nsid, what, &others, || guest.retire(context))?;
        let sqe = read_sqe(nsid, 0, 1);
        refused(
            &mut disk.io,
            what,
            sqe,
            &[],
            BLOCK as u32,
            &[INVALID_NAMESPACE],
        )?;
        disk.still_works()
    })
}

fn namespace_removed_with_a_write_awaited(context: &mut Context) -> Result<(), Failure> {
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        let mut disk = Disk::new(context)?;
        let data = block(4);
        let (sqe, capsule) = disk.io.prepare(write_sqe(guest.nsid, 0, 1), &data, 0);
        disk.io.send(&capsule)?;
        let r2t = disk.io.expect_r2t("a write", sqe.cid)?;
        // Whether the gateway waits for the command or ends it is its own affair; it must not wait for ever.
        let retired = guest.retire(context);
        disk.io.send_data(&r2t, &data)?;
        retired?;
        match disk.io.receive() {
            Got::Response(cqe) if cqe.cid == sqe.cid => {}
            got => return Err(Failure::differs("the write", "its answer", got)),
        }
        disk.still_works()
    })
}

/// A file that a gateway on this machine can make, gone with this.
struct Image(std::path::PathBuf);

impl Image {
    fn new() -> Self {
        // Several suites may run in a process.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (process, made) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        Image(std::env::temp_dir().join(format!("torture-{process}-{made}.img")))
    }

    fn url(&self) -> String {
        format!("file:{}?size=4M&block_size=512", self.0.display())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Where the gateway did not make it there is none.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Takes namespace and volume away and brings them back between the two halves of something.
fn file_comes_back<T>(
    context: &mut Context,
    begin: impl FnOnce(&mut Disk, &Guest) -> Result<T, Failure>,
    finish: impl FnOnce(&mut Disk, &Guest, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let image = Image::new();
    let url = image.url();
    with_guest(context, GUEST, &url, |context, guest| {
        let mut disk = Disk::new(context)?;
        let begun = begin(&mut disk, guest)?;
        guest.retire(context)?;
        context.weir(&["volume", "remove", guest.volume])?;
        context.weir(&["volume", "add", guest.volume, &url])?;
        guest.serve(context)?;
        finish(&mut disk, guest, begun)?;
        disk.io.read(guest.nsid, 0, 1, BLOCK as u32)?;
        disk.still_works()
    })
}

/// The next answer of a queue is that its namespace is not there.
fn expect_gone(queue: &mut Queue, cid: u16) -> Result<(), Failure> {
    let what = "a command on a namespace that went";
    queue.expect_status(what, cid, INVALID_NAMESPACE).map(drop)
}

fn volume_removed_with_a_write_awaited(context: &mut Context) -> Result<(), Failure> {
    file_comes_back(
        context,
        |disk, guest| {
            let (sqe, capsule) = disk.io.prepare(write_sqe(guest.nsid, 0, 1), &block(6), 0);
            disk.io.send(&capsule)?;
            let r2t = disk.io.expect_r2t("a write", sqe.cid)?;
            Ok(r2t)
        },
        |disk, guest, r2t| {
            expect_gone(&mut disk.io, r2t.cid)?;
            // The data comes all the same, and goes nowhere.
            disk.io.send_data(&r2t, &block(6))?;
            let now = disk.io.read(guest.nsid, 0, 1, BLOCK as u32)?;
            check(now != block(6), "the block", "as before", "written")
        },
    )
}

fn volume_removed_with_half_a_capsule(context: &mut Context) -> Result<(), Failure> {
    file_comes_back(
        context,
        |disk, guest| {
            let options = QueueOptions {
                in_capsule_bytes: 8192,
                ..disk.controller.options.clone()
            };
            disk.io = disk.controller.io_with(2, &options)?;
            let (sqe, capsule) = disk.io.prepare(write_sqe(guest.nsid, 0, 1), &block(8), 0);
            let (first, second) = capsule.split_at(capsule.len() - BLOCK / 2);
            disk.io.send(first)?;
            std::thread::sleep(QUIET);
            Ok((sqe.cid, second.to_vec()))
        },
        |disk, guest, (cid, rest)| {
            disk.io.send(&rest)?;
            expect_gone(&mut disk.io, cid)?;
            let now = disk.io.read(guest.nsid, 0, 1, BLOCK as u32)?;
            check(now != block(8), "the block", "as before", "written")
        },
    )
}

fn volume_removed_with_half_a_pair(context: &mut Context) -> Result<(), Failure> {
    let data = block(7);
    let zeroes = vec![0; BLOCK];
    file_comes_back(
        context,
        |disk, guest| {
            let compare = NvmCommand::Compare(Blocks::new(0, 1));
            let mut sqe = nvm(compare, guest.nsid);
            sqe.fuse = Fuse::First;
            let (_, capsule) = disk.io.prepare(sqe, &zeroes, 0);
            disk.io.send(&capsule)?;
            disk.io.expect_silence("half a pair", QUIET)
        },
        |disk, guest, ()| {
            let mut sqe = write_sqe(guest.nsid, 0, 1);
            sqe.fuse = Fuse::Second;
            let (sqe, capsule) = disk.io.prepare(sqe, &data, 0);
            disk.io.send(&capsule)?;
            // The half that is there compares with what is gone.
            let first = sqe.cid - 1;
            for cqe in answers_to(&mut disk.io, &[(first, &zeroes), (sqe.cid, &data)])? {
                let what = "a pair across a change of its namespace";
                check(!cqe.status.is_success(), what, "a failure", cqe.status)?;
            }
            Ok(())
        },
    )
}

/// Identify Namespace of a guest.
fn identified(admin: &mut Queue, guest: &Guest) -> Result<IdentifyNamespace, Failure> {
    let data = admin.identify(Cns::Namespace, guest.nsid)?;
    Ok(IdentifyNamespace::decode(&data))
}

fn namespace_grown_under_io(context: &mut Context) -> Result<(), Failure> {
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        let mut disk = Disk::new(context)?;
        let what = "a namespace that grows";
        under_load(&mut disk.io, guest.nsid, what, &[], || {
            context
                .weir(&["volume", "resize", guest.volume, "8M"])
                .map(drop)
        })?;
        let size = identified(&mut disk.controller.admin, guest)?.size;
        let expected = (8 << 20) / BLOCK as u64;
        check(size == expected, "NSZE", expected.to_string(), size)?;
        disk.io
            .read(guest.nsid, expected - 1, 1, BLOCK as u32)
            .map(drop)
    })
}

fn namespace_shrunk_under_io(context: &mut Context) -> Result<(), Failure> {
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        let mut disk = Disk::new(context)?;
        let what = "a namespace that shrinks";
        let others = [Status::LBA_OUT_OF_RANGE.with_do_not_retry()];
        under_load(&mut disk.io, guest.nsid, what, &others, || {
            context
                .weir(&["volume", "resize", guest.volume, "1M", "--force"])
                .map(drop)
        })?;
        let size = identified(&mut disk.controller.admin, guest)?.size;
        let expected = (1 << 20) / BLOCK as u64;
        check(size == expected, "NSZE", expected.to_string(), size)?;
        for lba in [expected, 2 * expected] {
            let what = format!("a read of block {lba} of {expected}");
            let sqe = read_sqe(guest.nsid, lba, 1);
            refused(&mut disk.io, &what, sqe, &[], BLOCK as u32, &others)?;
        }
        disk.still_works()
    })
}

fn namespace_protected_under_io(context: &mut Context) -> Result<(), Failure> {
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        let mut disk = Disk::new(context)?;
        let subsystem = context.target.subsystem.to_string();
        let nsid = guest.nsid.to_string();
        let what = "a namespace that becomes read-only";
        let others = [Status::NAMESPACE_IS_WRITE_PROTECTED.with_do_not_retry()];
        under_load(&mut disk.io, guest.nsid, what, &others, || {
            let set = ["namespace", "set", &subsystem, &nsid, "--read-only", "on"];
            context.weir(&set).map(drop)
        })?;
        let sqe = write_sqe(guest.nsid, 0, 1);
        refused(&mut disk.io, what, sqe, &block(5), 0, &others)?;
        disk.io.read(guest.nsid, 0, 1, BLOCK as u32).map(drop)
    })
}

fn namespace_protected_with_a_write_awaited(context: &mut Context) -> Result<(), Failure> {
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        let mut disk = Disk::new(context)?;
        disk.io.write(guest.nsid, 0, 1, &block(1))?;
        let (sqe, capsule) = disk.io.prepare(write_sqe(guest.nsid, 0, 1), &block(2), 0);
        disk.io.send(&capsule)?;
        let r2t = disk.io.expect_r2t("a write", sqe.cid)?;
        let subsystem = context.target.subsystem.to_string();
        let nsid = guest.nsid.to_string();
        context.weir(&["namespace", "set", &subsystem, &nsid, "--read-only", "on"])?;
        disk.io.send_data(&r2t, &block(2))?;
        let what = "a write whose data came when the namespace was read-only";
        let protected = Status::NAMESPACE_IS_WRITE_PROTECTED.with_do_not_retry();
        disk.io.expect_status(what, sqe.cid, protected)?;
        let now = disk.io.read(guest.nsid, 0, 1, BLOCK as u32)?;
        check(now == block(1), what, "the block as before", "written")
    })
}

/// Batches of reads until the connection ends.
fn read_until_end(queue: &mut Queue) -> Result<(), Failure> {
    loop {
        let mut bytes = Vec::new();
        for lba in 0..BATCH {
            let (_, capsule) = queue.prepare(read_sqe(1, lba, 1), &[], BLOCK as u32);
            bytes.extend(capsule);
        }
        queue.send(&bytes)?;
        let mut answered = 0;
        while answered < BATCH {
            match queue.receive() {
                Got::Response(_) => answered += 1,
                Got::Data(data, _) => answered += u64::from(data.success),
                got => {
                    let what = "a queue of what is taken away";
                    return queue.judge(what, &[Answer::End], got).map(drop);
                }
            }
        }
    }
}

/// Reads on a queue while `change` takes it away: it and its admin queue end.
fn ends_under_load(
    controller: Controller,
    queue: &mut Queue,
    change: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (changed, ended) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_until_end(queue));
        std::thread::sleep(QUIET);
        (change(), joined(reading))
    });
    changed?;
    ended?;
    let mut admin = controller.admin;
    admin.expect_end("the admin queue of what is taken away")
}

fn subsystem_removed_under_io(context: &mut Context) -> Result<(), Failure> {
    let annex = Annex::arrive(context, BACK, "torture-back", BACK_URL)?;
    let options = QueueOptions {
        subsystem: nqn(BACK)?,
        ..context.options()
    };
    let done = (|| {
        let (controller, mut io) = context.io_with(&options)?;
        ends_under_load(controller, &mut io, || {
            context
                .weir(&["subsystem", "remove", BACK, "--force"])
                .map(drop)
        })?;
        refused_afterwards(
            context,
            &options,
            Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry(),
        )
    })();
    let left = annex.leave(context);
    done.and(left)
}

fn refused_afterwards(
    context: &Context,
    options: &QueueOptions,
    status: Status,
) -> Result<(), Failure> {
    let mut peer = begin_connect(context, options, ConnectData::ANY_CONTROLLER, 0)?;
    peer.expect_status("a Connect afterwards", 1, status)
        .map(drop)
}

fn subsystem_removed_with_connects_queued(context: &mut Context) -> Result<(), Failure> {
    with_slow(context, |context, slow| {
        // As many of its queues are lost as it may have: further ones wait.
        let mut controller = context.controller_with(&slow.options)?;
        set_queues(&mut controller.admin, 1)?;
        let mut io = controller.io(1)?;
        io.write(1, 0, 1, &block(1))?;
        slow.proxy.hold();
        stuck_write(&mut io, &block(2))?;
        io.into_peer().reset();
        std::thread::sleep(QUIET);
        let mut waiting = (0..4)
            .map(|_| begin_connect(context, &slow.options, controller.id, 1))
            .collect::<Result<Vec<_>, _>>()?;
        waiting[0].expect_silence("a Connect while a write has not landed", QUIET)?;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(QUIET * 2);
                slow.proxy.release();
            });
            context.weir(&["subsystem", "remove", FRONT, "--force"])
        })?;
        for peer in &mut waiting {
            match peer.receive() {
                Got::Closed | Got::Reset => {}
                got => {
                    let refusal = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
                    let what = "a Connect that waited";
                    peer.judge(what, &[Answer::Status(1, refusal)], got)?;
                }
            }
        }
        let refusal = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
        refused_afterwards(context, &slow.options, refusal)
    })
}

fn host_disallowed_under_io(context: &mut Context) -> Result<(), Failure> {
    const HOST: &str = "nqn.2026-01.com.example:torture-passing-host";
    let annex = Annex::arrive(context, BACK, "torture-back", BACK_URL)?;
    let options = QueueOptions {
        subsystem: nqn(BACK)?,
        host_nqn: nqn(HOST)?,
        ..context.options()
    };
    let done = (|| {
        context.weir(&["host", "add", HOST])?;
        context.weir(&["subsystem", "allow-any-host", BACK, "off"])?;
        let refusal = Status::CONNECT_INVALID_HOST.with_do_not_retry();
        refused_afterwards(context, &options, refusal)?;
        // A host without a name is none of those that are allowed.
        let nameless = Attempt {
            connect: options.connect(0),
            data: options.connect_data(ConnectData::ANY_CONTROLLER),
        };
        let nameless = nameless.with_host(&[]);
        connect_refused(context, "a host without a name", &nameless, &[refusal])?;
        context.weir(&["subsystem", "allow-host", BACK, HOST])?;
        let (controller, mut io) = context.io_with(&options)?;
        ends_under_load(controller, &mut io, || {
            context
                .weir(&["subsystem", "disallow-host", BACK, HOST])
                .map(drop)
        })?;
        refused_afterwards(context, &options, refusal)
    })();
    let left = annex.leave(context);
    // The case may have ended before the host was there.
    let _ = context.weir(&["host", "remove", HOST, "--force"]);
    done.and(left)
}

fn two_hosts_with_one_identifier(context: &mut Context) -> Result<(), Failure> {
    let mut first = Disk::new(context)?;
    let other = QueueOptions {
        host_nqn: nqn("nqn.2026-01.com.example:torture-twin")?,
        ..context.options()
    };
    let connected = Controller::connected(context.target.address, &other, context.manner);
    if connected.is_err() && !context.manner.exact {
        return Err(Failure::NotOffered("a second host".into()));
    }
    drop(connected?);
    let (second, mut io) = context.io_with(&other)?;
    check(
        second.id != first.controller.id,
        "the controllers of two hosts",
        "two",
        "one",
    )?;
    // A queue of the one's controller is not the other's.
    let mut peer = begin_connect(context, &other, first.controller.id, 2)?;
    let got = peer.receive();
    let refusal = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
    let answers = [
        Answer::Status(1, refusal),
        Answer::Status(1, Status::CONNECT_INVALID_HOST),
    ];
    peer.judge("a queue of the other host's controller", &answers, got)?;
    first.still_works()?;
    drop(first);
    io.still_works(context.target.nsid, context.facts.block_bytes)?;
    drop((second, io));
    let (_controller, mut again) = context.io_with(&other)?;
    again.still_works(context.target.nsid, context.facts.block_bytes)
}
