//! Rights that are taken away: no request begins without its right, and those under way are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::slow::SlowVolume;
use crate::volumes::slow_subsystem;
use weir_block::{BlockSize, Volume};
use weir_nvme::command::{
    Blocks, CopyCommand, CopyRange, DatasetManagement, DatasetManagementRange, NvmCommand, Verify,
};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Cqe, Status};
use weir_nvme_target::{Allowed, Namespace, Revoked, Subsystem, TargetConfig};
use weir_volume::{Guard, GuardConfig, LimitedVolume, Limits, RateLimit};

const DELAY: Duration = Duration::from_secs(1);

fn assert_status(cqe: &Cqe, status: Status) {
    assert!(cqe.status.is(status), "{:?}, not {status:?}", cqe.status);
}

fn set_read_only(subsystem: &mut Subsystem) {
    subsystem.namespaces[0].read_only = true;
}

fn remove_namespace(subsystem: &mut Subsystem) {
    subsystem.namespaces.clear();
}

/// A command, and the data that it brings.
type Asked = (NvmCommand, Vec<u8>);

/// Of more than one step.
fn long_copy() -> Asked {
    let list = CopyRange::new(0, 2048).encode();
    let copy = CopyCommand {
        destination_lba: 4096,
        ranges: 1,
        ..CopyCommand::default()
    };
    (NvmCommand::Copy(copy), list.to_vec())
}

/// Of more ranges than are under way at a time.
fn long_deallocation() -> Asked {
    let range = |index: u32| DatasetManagementRange {
        blocks: 8,
        lba: u64::from(index) * 8,
        ..DatasetManagementRange::default()
    };
    let ranges = (0..256).flat_map(|index| range(index).encode()).collect();
    let management = DatasetManagement {
        ranges: 256,
        deallocate: true,
        ..DatasetManagement::default()
    };
    (NvmCommand::DatasetManagement(management), ranges)
}

/// Of more than one transfer.
fn long_verify() -> Asked {
    let verify = Verify {
        lba: 0,
        blocks: 8192,
        ..Verify::default()
    };
    (NvmCommand::Verify(verify), Vec::new())
}

/// A command of several steps takes none after the right to it was taken away.
#[test]
fn a_command_of_several_steps_stops_when_its_right_is_taken_away() {
    let protected = Status::NAMESPACE_IS_WRITE_PROTECTED;
    let gone = Status::INVALID_NAMESPACE_OR_FORMAT;
    type Case = (fn() -> Asked, fn(&mut Subsystem), Status);
    let cases: [Case; 5] = [
        (long_copy, set_read_only, protected),
        (long_copy, remove_namespace, gone),
        (long_deallocation, set_read_only, protected),
        (long_deallocation, remove_namespace, gone),
        (long_verify, remove_namespace, gone),
    ];
    for (asked, change, status) in cases {
        let simulation = simulation();
        let remotes = start_reactors(&simulation, 2);
        let server = simulation.address(SERVER);
        simulation.run(CLIENT, move |reactor| async move {
            let (mut subsystem, volume) = slow_subsystem();
            let config = TargetConfig::default();
            let (target, address) = serve(remotes, config, &[], server).await;
            let served = snapshot(2, vec![subsystem.clone()], address);
            target.apply(served).await.expect("applied");
            let options = HostOptions::default();
            let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut io = io_queue(&reactor, address, id, 1, options).await;
            volume.set_delay(DELAY);
            let (command, data) = asked();
            let sqe = command.sqe(0, 1, SglDescriptor::NONE);
            let cid = io.submit(sqe, &data, 0).await.expect("connected");
            eventually(&reactor, "its first step", async || volume.taken() > 0).await;

            change(&mut subsystem);
            let changed = snapshot(3, vec![subsystem], address);
            target.apply(changed).await.expect("applied");
            let begun = volume.taken();
            let (cqe, _) = io.answer(cid).await.expect("connected");
            assert_eq!(volume.taken(), begun, "{command:?} took another step");
            assert_status(&cqe, status);
        });
    }
}

/// Requests that do not need the right that was taken away go on.
#[test]
fn what_only_reads_goes_on_where_nothing_is_to_be_written_any_more() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let (mut subsystem, volume) = slow_subsystem();
        let (target, address) = serve(remotes, TargetConfig::default(), &[], server).await;
        let served = snapshot(2, vec![subsystem.clone()], address);
        target.apply(served).await.expect("applied");
        let options = HostOptions::default();
        let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let mut io = io_queue(&reactor, address, id, 1, options).await;
        volume.set_delay(DELAY);
        let (command, _) = long_verify();
        let sqe = command.sqe(0, 1, SglDescriptor::NONE);
        let cid = io.submit(sqe, &[], 0).await.expect("connected");
        eventually(&reactor, "its first step", async || volume.taken() > 0).await;
        set_read_only(&mut subsystem);
        let changed = snapshot(3, vec![subsystem], address);
        target.apply(changed).await.expect("applied");
        let (cqe, _) = io.answer(cid).await.expect("connected");
        assert_status(&cqe, Status::SUCCESS);
        assert_eq!(volume.taken(), 4, "4 MiB in steps of 1 MiB");
    });
}

/// Reasons why a write waits.
#[derive(Debug, Clone, Copy)]
enum Behind {
    /// The namespace's limits.
    Limit,
    /// Blocks that another write of the same block below has locked.
    Lock,
    /// A volume that takes few requests at a time.
    Depth,
}

impl Behind {
    /// Serves a slow volume of 4 MiB behind this.
    fn volume(self, slow: &Arc<SlowVolume>) -> Arc<dyn Volume> {
        let block_size = matches!(self, Behind::Lock).then_some(BlockSize::B512);
        let config = GuardConfig {
            block_size,
            ..GuardConfig::default()
        };
        let guard = Guard::new(slow.clone(), config).expect("a guard");
        match self {
            Behind::Limit => {
                let one = RateLimit::new(1, Some(1)).expect("a limit");
                let limits = Limits {
                    total_iops: Some(one),
                    ..Limits::default()
                };
                LimitedVolume::new(guard, limits)
            }
            Behind::Lock | Behind::Depth => guard,
        }
    }

    fn config(self) -> TargetConfig {
        let volume_queue_depth = match self {
            Behind::Depth => 1,
            Behind::Limit | Behind::Lock => TargetConfig::default().volume_queue_depth,
        };
        TargetConfig {
            volume_queue_depth,
            ..TargetConfig::default()
        }
    }

    /// The first of these begins, and the others wait.
    fn writes(self) -> [(u64, u32); 4] {
        match self {
            // Two of parts of a block below, one of a whole one, one of parts of several.
            Behind::Lock => [(1, 2), (4, 2), (0, 8), (7, 2)],
            Behind::Limit | Behind::Depth => [(0, 1), (1, 1), (2, 1), (3, 1)],
        }
    }
}

/// Requests behind a limit, a lock or other requests do not begin once their right was taken away, and are answered at once.
#[test]
fn what_waits_does_not_begin_when_its_right_is_taken_away() {
    type Case = (fn(&mut Subsystem), Status);
    let cases: [Case; 2] = [
        (set_read_only, Status::NAMESPACE_IS_WRITE_PROTECTED),
        (remove_namespace, Status::INVALID_NAMESPACE_OR_FORMAT),
    ];
    for behind in [Behind::Limit, Behind::Lock, Behind::Depth] {
        for (change, status) in cases {
            let simulation = simulation();
            let remotes = start_reactors(&simulation, 2);
            let server = simulation.address(SERVER);
            simulation.run(CLIENT, move |reactor| async move {
                let slow = SlowVolume::new(memory_volume("4M", 4096));
                let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "WEIR-RIGHTS");
                let namespace = Namespace::new(1, behind.volume(&slow), [1; 16]);
                subsystem.namespaces.push(namespace);
                let (target, address) = serve(remotes, behind.config(), &[], server).await;
                let served = snapshot(2, vec![subsystem.clone()], address);
                target.apply(served).await.expect("applied");
                let options = HostOptions::default();
                let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
                let mut io = io_queue(&reactor, address, id, 1, options).await;
                slow.set_delay(DELAY);
                let block = subsystem.namespaces[0].volume.geometry().block_size;
                let mut cids = Vec::new();
                for (lba, blocks) in behind.writes() {
                    let data = vec![1; (blocks << block.shift()) as usize];
                    let write = NvmCommand::Write(Blocks::new(lba, blocks));
                    let sqe = write.sqe(0, 1, SglDescriptor::NONE);
                    cids.push(io.submit(sqe, &data, 0).await.expect("connected"));
                    eventually(&reactor, "the first", async || slow.taken() > 0).await;
                }
                reactor.sleep(DELAY / 2).await;

                change(&mut subsystem);
                let changed = snapshot(3, vec![subsystem], address);
                target.apply(changed).await.expect("applied");
                let mut done = 0;
                for cid in cids {
                    let (cqe, _) = io.answer(cid).await.expect("connected");
                    match cqe.status.is_success() {
                        true => done += 1,
                        false => assert_status(&cqe, status),
                    }
                }
                // An unaligned write that has read what it is to keep does not write.
                let begun = usize::from(!matches!(behind, Behind::Lock));
                assert_eq!(done, begun, "{behind:?}");
                reactor.sleep(DELAY * 100).await;
                assert_eq!(slow.taken(), 1, "{behind:?}: another request began");
            });
        }
    }
}

/// Requests under way when their right is taken away are known until they have ended, also where their connection is gone; what the host may
/// still do is not among it.
#[test]
fn what_is_under_way_without_a_right_is_known_until_it_has_ended() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Connection {
        Stays,
        IsLostBefore,
        IsLostAfterwards,
    }
    fn disallow(subsystem: &mut Subsystem) {
        subsystem.allowed = Allowed::List(BTreeSet::new());
    }
    fn hide(subsystem: &mut Subsystem) {
        subsystem.namespaces[0].visible_to = Allowed::List(BTreeSet::new());
    }
    let changes: [fn(&mut Subsystem); 4] = [set_read_only, remove_namespace, disallow, hide];
    for change in changes {
        for connection in [
            Connection::Stays,
            Connection::IsLostBefore,
            Connection::IsLostAfterwards,
        ] {
            let simulation = simulation();
            let remotes = start_reactors(&simulation, 2);
            let server = simulation.address(SERVER);
            simulation.run(CLIENT, move |reactor| async move {
                let (mut subsystem, volume) = slow_subsystem();
                let (target, address) = serve(remotes, TargetConfig::default(), &[], server).await;
                let served = |generation, subsystem: &Subsystem| {
                    target.apply(snapshot(generation, vec![subsystem.clone()], address))
                };
                served(2, &subsystem).await.expect("applied");
                let options = HostOptions::default();
                let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
                let mut io = io_queue(&reactor, address, id, 1, options).await;
                volume.set_delay(DELAY * 60);
                let write = NvmCommand::Write(Blocks::new(0, 1)).sqe(0, 1, SglDescriptor::NONE);
                io.submit(write, &[1; 512], 0).await.expect("connected");
                eventually(&reactor, "the write", async || volume.taken() > 0).await;
                let mut queues = Some((admin, io));
                if connection == Connection::IsLostBefore {
                    drop(queues.take());
                    reactor.sleep(DELAY).await;
                }
                subsystem.model = "ANOTHER".to_owned();
                served(3, &subsystem).await.expect("applied");
                assert!(target.revoked().await.is_empty(), "{connection:?}");

                change(&mut subsystem);
                served(4, &subsystem).await.expect("applied");
                let under_way = Revoked {
                    host_nqn: nqn(HOST),
                    subsystem_nqn: nqn(SUBSYSTEM),
                    nsid: 1,
                };
                let under_way = BTreeMap::from([(under_way, 1)]);
                assert_eq!(target.revoked().await, under_way, "{connection:?}");
                if connection == Connection::IsLostAfterwards {
                    drop(queues.take());
                }
                reactor.sleep(DELAY * 30).await;
                assert_eq!(target.revoked().await, under_way, "{connection:?}");
                let none = async || target.revoked().await.is_empty();
                eventually(&reactor, "the end of the write", none).await;
                assert_eq!(target.revoked().await, BTreeMap::new());
            });
        }
    }
}
