//! Where commands' time went, under the simulated clock: what network, disk and host take is what the stages show.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::slow::SlowVolume;
use weir_block::Volume;
use weir_nvme::command::{Abort, AdminCommand, Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Nqn, Sqe};
use weir_nvme_target::{
    CommandKind, Latency, Namespace, QueueInfo, Stage, Subsystem, Target, TargetConfig, TargetStats,
};
use weir_reactor::sim::{Config, Faults, Simulation, seed_from_env_or_random};
use weir_reactor::{Reactor, Remote};
use weir_volume::{Access, Guard, GuardConfig, LimitedVolume, Limits, Registry};

const NETWORK: Duration = Duration::from_millis(1);
const READ: Duration = Duration::from_millis(7);
const WRITE: Duration = Duration::from_millis(11);
const SYNC: Duration = Duration::from_millis(13);
const SLOW: Duration = Duration::from_millis(50);
const NONE: Duration = Duration::ZERO;
const BLOCK: usize = 4096;
const BLOCK_BYTES: u32 = BLOCK as u32;

/// A world in which everything takes as long as is said above, and nothing else takes time.
fn exact_simulation() -> Simulation {
    let always = |time: Duration| time..=time;
    Simulation::new(Config {
        seed: seed_from_env_or_random(),
        faults: Faults {
            network_delay: always(NETWORK),
            read_delay: always(READ),
            write_delay: always(WRITE),
            sync_delay: always(SYNC),
            ..Faults::none()
        },
        ..Config::default()
    })
}

/// A file on the server's disk.
async fn file_volume(server: &Remote) -> Arc<Guard> {
    let open = |reactor: Reactor| async move {
        let url = "file:/volume?size=16M&block_size=4096"
            .parse()
            .expect("a URL");
        let volume: Arc<dyn Volume> = Registry::standard()
            .open(&reactor, &url, Access::READ_WRITE)
            .await
            .expect("a file");
        volume
    };
    let volume = server.call(open).await.expect("it runs");
    Guard::new(volume, GuardConfig::default()).expect("a guard")
}

struct World {
    reactor: Reactor,
    target: Target,
    address: SocketAddr,
    controller: u16,
    /// Ends the controller when it is dropped.
    admin: Queue,
}

impl World {
    async fn queue(&self, qid: u16, options: HostOptions) -> Queue {
        io_queue(&self.reactor, self.address, self.controller, qid, options).await
    }

    async fn of_namespace(&self) -> Latency {
        let mut all = self.target.namespace_latencies(None).await;
        all.remove(&(nqn(SUBSYSTEM), 1)).expect("it is served")
    }

    /// Time of reads at this volume, and their number.
    async fn reads_of(&self, volume: &Arc<Guard>) -> (Duration, u64) {
        let volume: Arc<dyn Volume> = volume.clone();
        let latency = self.target.volume_latencies(&[volume]).await.remove(0);
        let reads = latency.kind(CommandKind::Read);
        reads.map_or((NONE, 0), |reads| {
            let times = reads.stage(Stage::Volume);
            (Duration::from_nanos(times.sum_ns()), times.count())
        })
    }

    /// Waits until no connection is left but the admin queue's.
    async fn last_queue_ended(&self) {
        eventually(&self.reactor, "the end of I/O queues", async || {
            self.target.stats().connections == 1
        })
        .await;
    }

    async fn of_subsystem(&self) -> Latency {
        let mut all = self.target.subsystem_latencies().await;
        all.remove(&nqn(SUBSYSTEM)).expect("it is served")
    }
}

/// Runs `test` in a world with one namespace, which is a file.
fn run<F: Future<Output = ()>>(
    reactors: u32,
    config: TargetConfig,
    test: impl FnOnce(World) -> F + 'static,
) {
    let file = async |remotes: Vec<Remote>| subsystem(&[file_volume(&remotes[0]).await]);
    run_serving(reactors, config, file, test);
}

/// Runs `test` in a world with a subsystem of choice.
fn run_serving<F: Future<Output = ()>>(
    reactors: u32,
    config: TargetConfig,
    served: impl AsyncFnOnce(Vec<Remote>) -> Subsystem + 'static,
    test: impl FnOnce(World) -> F + 'static,
) {
    let simulation = exact_simulation();
    let remotes = start_reactors(&simulation, reactors);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let subsystem = served(remotes.clone()).await;
        let (target, address) = serve(remotes, config, &[], server).await;
        let snapshot = snapshot(2, vec![subsystem], address);
        target.apply(snapshot).await.expect("applied");
        let options = HostOptions::default();
        let (admin, controller) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        test(World {
            reactor,
            target,
            address,
            controller,
            admin,
        })
        .await;
    });
}

/// The sums of wire-in, queue, volume and wire-out of one kind of command, and how many there were.
fn sums(latency: &Latency, kind: CommandKind) -> ([Duration; 4], u64) {
    let times = latency.kind(kind).expect("there were such commands");
    let sum = |stage| Duration::from_nanos(times.stage(stage).sum_ns());
    let [wire_in, queue, volume, wire_out, total] = Stage::ALL.map(sum);
    let parts = [wire_in, queue, volume, wire_out];
    assert_eq!(
        parts.iter().sum::<Duration>(),
        total,
        "the stages are the whole"
    );
    (parts, times.count())
}

fn read(lba: u64, blocks: u32) -> NvmCommand {
    NvmCommand::Read(Blocks::new(lba, blocks))
}

fn write_sqe(cid: u16, lba: u64, blocks: u32) -> Sqe {
    let length = blocks * BLOCK_BYTES;
    let sgl = SglDescriptor::InCapsule { offset: 0, length };
    NvmCommand::Write(Blocks::new(lba, blocks)).sqe(cid, 1, sgl)
}

async fn read_block(queue: &mut Queue, lba: u64) {
    let (cqe, _) = queue.nvm(read(lba, 1), 1, &[], BLOCK_BYTES).await;
    assert!(cqe.status.is_success(), "{:?}", cqe.status);
}

#[test]
fn a_reads_time_is_the_disks() {
    run(1, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        assert!(world.of_namespace().await.is_empty(), "Connect is no I/O");
        for lba in 0..3 {
            read_block(&mut queue, lba).await;
        }
        let latency = world.of_namespace().await;
        let expected = [NONE, NONE, READ * 3, NONE];
        assert_eq!(sums(&latency, CommandKind::Read), (expected, 3));
        let volume = latency
            .kind(CommandKind::Read)
            .expect("reads")
            .stage(Stage::Volume);
        assert_eq!(volume.max_ns(), READ.as_nanos() as u64);
        assert_eq!(volume.quantile_ns(0.5), READ.as_nanos() as u64);
        assert!(latency.kind(CommandKind::Write).is_none());
        assert!(latency.kind(CommandKind::Other).is_none());
    });
}

#[test]
fn a_flush_is_neither_read_nor_write() {
    run(1, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        // What was written is what a flush has to do.
        queue.expect(write_sqe(0, 0, 1), &[1; BLOCK], 0).await;
        queue.nvm(NvmCommand::Flush, 1, &[], 0).await;
        let latency = world.of_namespace().await;
        let write = ([NONE, NONE, WRITE, NONE], 1);
        assert_eq!(sums(&latency, CommandKind::Write), write);
        let flush = ([NONE, NONE, SYNC, NONE], 1);
        assert_eq!(sums(&latency, CommandKind::Other), flush);
    });
}

/// Pieces of a capsule with pauses between them: in the header, and in the data.
#[test]
fn a_capsule_in_pieces_is_time_on_the_wire() {
    const PAUSE: Duration = Duration::from_millis(3);
    run(1, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        let mut pauses = 0;
        for (cid, cuts) in [(500, vec![10]), (501, vec![100]), (502, vec![5, 70, 2000])] {
            let bytes = queue.capsule(&write_sqe(cid, 0, 1), &[7; BLOCK]);
            queue.expect_answer_for(cid);
            let mut from = 0;
            for cut in cuts {
                queue
                    .send_bytes(&bytes[from..cut])
                    .await
                    .expect("connected");
                world.reactor.sleep(PAUSE).await;
                pauses += 1;
                from = cut;
            }
            queue.send_bytes(&bytes[from..]).await.expect("connected");
            queue.answer(cid).await.expect("an answer");
        }
        let expected = [PAUSE * pauses, NONE, WRITE * 3, NONE];
        let latency = world.of_namespace().await;
        assert_eq!(sums(&latency, CommandKind::Write), (expected, 3));
    });
}

/// A command that ends in the middle of a receive, and one that begins there: each has its own first byte.
#[test]
fn a_command_behind_a_late_one_is_not_late() {
    const PAUSE: Duration = Duration::from_millis(3);
    run(1, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        let write = queue.capsule(&write_sqe(600, 0, 1), &[7; BLOCK]);
        let sgl = SglDescriptor::Transport {
            length: BLOCK_BYTES,
        };
        let read = queue.capsule(&read(9, 1).sqe(601, 1, sgl), &[]);
        queue.expect_answer_for(600);
        queue.expect_answer_for(601);
        let bytes = [write, read].concat();
        queue.send_bytes(&bytes[..3000]).await.expect("connected");
        world.reactor.sleep(PAUSE).await;
        queue.send_bytes(&bytes[3000..]).await.expect("connected");
        queue.answer(600).await.expect("an answer");
        queue.answer(601).await.expect("an answer");
        let latency = world.of_namespace().await;
        let write = ([PAUSE, NONE, WRITE, NONE], 1);
        assert_eq!(sums(&latency, CommandKind::Write), write);
        let read = ([NONE, NONE, READ, NONE], 1);
        assert_eq!(sums(&latency, CommandKind::Read), read);
    });
}

/// Data that is asked for: there and back again.
#[test]
fn fetching_data_is_time_on_the_wire() {
    run(1, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        queue.expect(write_sqe(0, 0, 8), &[1; 8 * BLOCK], 0).await;
        let latency = world.of_namespace().await;
        let expected = [NETWORK * 2, NONE, WRITE, NONE];
        assert_eq!(sums(&latency, CommandKind::Write), (expected, 1));
    });
}

/// A volume that takes one request at a time: those behind it queue.
#[test]
fn waiting_for_the_volume_is_queueing() {
    let config = TargetConfig {
        volume_queue_depth: 1,
        ..TargetConfig::default()
    };
    run(1, config, async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        for turn in 1..=2_u32 {
            let mut bytes = Vec::new();
            for cid in 700..704 {
                let sgl = SglDescriptor::Transport {
                    length: BLOCK_BYTES,
                };
                bytes.extend(queue.capsule(&read(u64::from(cid), 1).sqe(cid, 1, sgl), &[]));
                queue.expect_answer_for(cid);
            }
            queue.send_bytes(&bytes).await.expect("connected");
            for cid in 700..704 {
                queue.answer(cid).await.expect("an answer");
            }
            let latency = world.of_namespace().await;
            let expected = [NONE, READ * (1 + 2 + 3) * turn, READ * 4 * turn, NONE];
            let count = 4 * u64::from(turn);
            assert_eq!(sums(&latency, CommandKind::Read), (expected, count));
        }
    });
}

/// A command that is aborted before the volume took it: it queued until then, and those behind it do not get lost.
#[test]
fn an_aborted_command_only_queued() {
    const PATIENCE: Duration = Duration::from_millis(3);
    let config = TargetConfig {
        volume_queue_depth: 1,
        ..TargetConfig::default()
    };
    run(1, config, async |mut world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        let mut bytes = Vec::new();
        for cid in 800..804 {
            let length = BLOCK_BYTES;
            let sgl = SglDescriptor::Transport { length };
            bytes.extend(queue.capsule(&read(u64::from(cid), 1).sqe(cid, 1, sgl), &[]));
            queue.expect_answer_for(cid);
        }
        queue.send_bytes(&bytes).await.expect("connected");
        world.reactor.sleep(PATIENCE).await;
        let abort = AdminCommand::Abort(Abort { sqid: 1, cid: 802 });
        let (cqe, _) = world.admin.admin(abort, &[], 0).await;
        assert_eq!(cqe.dw0() & 1, 0, "it was aborted");
        for cid in 800..804 {
            let (cqe, _) = queue.answer(cid).await.expect("an answer");
            assert_eq!(cqe.status.is_success(), cid != 802, "{:?}", cqe.status);
        }
        let latency = world.of_namespace().await;
        let expected = [NONE, READ * (1 + 2) + PATIENCE, READ * 3, NONE];
        assert_eq!(sums(&latency, CommandKind::Read), (expected, 4));
    });
}

/// The last completion of a connection, which it takes together with what ends it, may make room on the volume for others.
#[test]
fn the_last_completion_of_a_connection_makes_room_for_others() {
    let config = TargetConfig {
        volume_queue_depth: 1,
        ..TargetConfig::default()
    };
    run(1, config, async |world| {
        let mut other = world.queue(1, HostOptions::default()).await;
        // Whether a completion and what was received are taken in one round is the seed's affair.
        for qid in 2..10 {
            let mut ends = world.queue(qid, HostOptions::default()).await;
            let sqe = read(0, 1).sqe(0, 1, SglDescriptor::NONE);
            ends.submit(sqe, &[], BLOCK_BYTES).await.expect("connected");
            let waits = other.submit(sqe, &[], BLOCK_BYTES).await;
            world.reactor.sleep(READ).await;
            // Nothing that begins like this is a PDU. It comes at the moment at which the read ends.
            ends.send_bytes(&[0xff; 64]).await.expect("connected");
            let began = world.reactor.now();
            let (cqe, _) = other
                .answer(waits.expect("connected"))
                .await
                .expect("connected");
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
            assert!(world.reactor.now() - began <= 2 * NETWORK + READ);
        }
    });
}

/// A host that does not take its answer: more than the socket holds waits.
#[test]
fn a_host_that_does_not_read_is_time_on_the_wire() {
    const PAUSE: Duration = Duration::from_millis(50);
    const BLOCKS: u32 = 256;
    run(1, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        let sqe = read(0, BLOCKS).sqe(0, 1, SglDescriptor::NONE);
        let bytes = BLOCKS * BLOCK_BYTES;
        let cid = queue.submit(sqe, &[], bytes).await.expect("connected");
        world.reactor.sleep(PAUSE).await;
        queue.answer(cid).await.expect("an answer");
        let latency = world.of_namespace().await;
        let ([wire_in, queue, volume, wire_out], count) = sums(&latency, CommandKind::Read);
        assert_eq!((wire_in, queue, volume, count), (NONE, NONE, READ, 1));
        // The command took NETWORK to arrive; the last bytes were sent before the answer was whole here.
        let since = PAUSE - NETWORK - READ;
        assert!(wire_out >= since, "{wire_out:?}");
        assert!(wire_out <= since + NETWORK * 40, "{wire_out:?}");
    });
}

#[test]
fn connections_have_their_own_and_a_namespace_has_all() {
    run(2, TargetConfig::default(), async |world| {
        let options = HostOptions {
            header_digest: true,
            entries: 17,
            ..HostOptions::default()
        };
        let mut one = world.queue(1, options).await;
        let mut two = world.queue(2, HostOptions::default()).await;
        for lba in 0..3 {
            read_block(&mut one, lba).await;
        }
        read_block(&mut two, 0).await;

        let connections = world.target.connections().await;
        let id = |qid| {
            let of = |one: &&weir_nvme_target::ConnectionInfo| {
                one.association.as_ref().is_some_and(|to| to.qid == qid)
            };
            connections.iter().find(of).expect("connected").id
        };
        assert_ne!(
            connections.iter().filter(|one| one.reactor == 0).count(),
            connections.len(),
            "queues are on both reactors"
        );
        let all = world.target.connection_latencies(None).await;
        let count = |id: u64| all[&id].kind(CommandKind::Read).map(|times| times.count());
        assert_eq!((count(id(1)), count(id(2))), (Some(3), Some(1)));
        assert!(all[&id(0)].is_empty(), "an admin queue has no I/O");
        let only = world.target.connection_latencies(Some(id(2))).await;
        assert_eq!(
            only.into_iter().collect::<Vec<_>>(),
            [(id(2), all[&id(2)].clone())]
        );
        let expected = ([NONE, NONE, READ * 4, NONE], 4);
        assert_eq!(
            sums(&world.of_namespace().await, CommandKind::Read),
            expected
        );

        let agreed = |qid: u16| {
            let id = id(qid);
            let of = |one: &&weir_nvme_target::ConnectionInfo| one.id == id;
            connections.iter().find(of).expect("connected").queue
        };
        let told = QueueInfo {
            entries: 17,
            flow_control: false,
            header_digest: true,
            data_digest: false,
        };
        assert_eq!(agreed(1), Some(told));
        assert_eq!(
            agreed(2).map(|queue| (queue.entries, queue.header_digest)),
            Some((32, false))
        );
    });
}

/// What a subsystem counted stays when a connection and when a namespace goes; what a namespace counted, until it goes.
#[test]
fn counts_outlive_connections_and_a_subsystems_its_namespaces() {
    run(2, TargetConfig::default(), async |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        read_block(&mut queue, 0).await;
        drop(queue);
        eventually(&world.reactor, "the end of a connection", async || {
            let TargetStats { connections, .. } = world.target.stats();
            connections == 1
        })
        .await;
        let expected = ([NONE, NONE, READ, NONE], 1);
        assert_eq!(
            sums(&world.of_namespace().await, CommandKind::Read),
            expected
        );

        // Another snapshot with the same namespace, and one without.
        let volume = memory_volume("1M", 512);
        let mut with = subsystem(&[memory_volume("1M", 512), volume]);
        let kept = world
            .target
            .namespace_latencies(Some((nqn(SUBSYSTEM), 1)))
            .await;
        assert_eq!(kept.len(), 1);
        let apply = async |generation, subsystem| {
            let snapshot = snapshot(generation, vec![subsystem], world.address);
            world.target.apply(snapshot).await.expect("applied");
        };
        apply(3, with.clone()).await;
        assert_eq!(
            world
                .target
                .namespace_latencies(Some((nqn(SUBSYSTEM), 1)))
                .await,
            kept
        );
        assert_eq!(
            sums(&world.of_subsystem().await, CommandKind::Read),
            expected
        );
        with.namespaces.remove(0);
        apply(4, with.clone()).await;
        let left: Vec<(Nqn, u32)> = world
            .target
            .namespace_latencies(None)
            .await
            .into_keys()
            .collect();
        assert_eq!(left, [(nqn(SUBSYSTEM), 2)]);
        apply(5, with).await;
        assert_eq!(
            sums(&world.of_subsystem().await, CommandKind::Read),
            expected
        );
    });
}

/// A volume that takes [`SLOW`] for everything, and a subsystem with two namespaces, each of which has a wrapper of its own around it.
fn slow_volume() -> (Arc<Guard>, Subsystem) {
    let slow = SlowVolume::new(memory_volume("1M", BLOCK_BYTES));
    slow.set_delay(SLOW);
    let guard = Guard::new(slow, GuardConfig::default()).expect("a guard");
    let namespace = |nsid| {
        let volume = LimitedVolume::new(guard.clone(), Limits::default());
        Namespace {
            counted: guard.clone(),
            ..Namespace::new(nsid, volume, [nsid as u8; 16])
        }
    };
    let mut served = subsystem(&[]);
    served.namespaces = (1..=2).map(namespace).collect();
    (guard, served)
}

/// A command whose host gave up counts for the volume when the volume has done it, with the time that it took there and no other.
#[test]
fn commands_of_lost_connections_count_for_their_volume() {
    let (guard, served) = slow_volume();
    let serve = async move |_| served;
    run_serving(1, TargetConfig::default(), serve, async move |world| {
        for (index, breaks_rules) in [false, true].into_iter().enumerate() {
            let mut queue = world.queue(1, HostOptions::default()).await;
            let sqe = read(0, 1).sqe(0, 1, SglDescriptor::NONE);
            queue.submit(sqe, &[], BLOCK_BYTES).await.expect("open");
            world.reactor.sleep(SLOW / 5).await;
            if breaks_rules {
                // Nothing that begins like this is a PDU. The host is given time to take the answer, which is longer than the read's.
                queue.send_bytes(&[0xff; 64]).await.expect("open");
                world.reactor.sleep(2 * SLOW).await;
            }
            drop(queue);
            world.last_queue_ended().await;
            let count = index as u32 + 1;
            let expected = (count * SLOW, u64::from(count));
            assert_eq!(world.reads_of(&guard).await, expected);
        }
        let answered = world.of_namespace().await;
        assert!(answered.kind(CommandKind::Read).is_none());
    });
}

/// Commands that the volume has done count for it, though their host does not take the answers before it is gone.
#[test]
fn answers_that_do_not_leave_count_for_their_volume() {
    const READS: u64 = 4;
    let (guard, served) = slow_volume();
    let serve = async move |_| served;
    run_serving(1, TargetConfig::default(), serve, async move |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        for _ in 0..READS {
            let sqe = read(0, 256).sqe(0, 1, SglDescriptor::NONE);
            queue.submit(sqe, &[], 1 << 20).await.expect("open");
            world.reactor.sleep(2 * SLOW).await;
        }
        let left = world.of_namespace().await;
        let left = left
            .kind(CommandKind::Read)
            .map_or(0, |reads| reads.count());
        assert!(left < READS, "{left} answers left though nobody takes them");
        drop(queue);
        world.last_queue_ended().await;
        let (_, count) = world.reads_of(&guard).await;
        assert_eq!(count, READS);
    });
}

/// Counts of a volume stay when one of its namespaces goes, when the last one goes, and when their subsystem does.
#[test]
fn a_volumes_counts_outlive_its_namespaces() {
    let (guard, served) = slow_volume();
    let with = served.clone();
    let serve = async move |_| served;
    run_serving(2, TargetConfig::default(), serve, async move |world| {
        let mut queue = world.queue(1, HostOptions::default()).await;
        for nsid in 1..=2 {
            let (cqe, _) = queue.nvm(read(0, 1), nsid, &[], BLOCK_BYTES).await;
            assert!(cqe.status.is_success(), "{:?}", cqe.status);
        }
        let expected = (2 * SLOW, 2);
        assert_eq!(world.reads_of(&guard).await, expected);
        for (generation, left) in [(3, Some(1)), (4, Some(0)), (5, None), (6, Some(2))] {
            let subsystem = left.map(|left| {
                let mut subsystem = with.clone();
                subsystem.namespaces.truncate(left);
                subsystem
            });
            let snapshot = snapshot(generation, subsystem.into_iter().collect(), world.address);
            world.target.apply(snapshot).await.expect("applied");
            let counted = world.reads_of(&guard).await;
            assert_eq!(counted, expected, "with {left:?} namespaces");
        }
        let unknown = volume("null");
        assert_eq!(world.reads_of(&unknown).await, (NONE, 0));
    });
}
