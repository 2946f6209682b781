//! What a host may do no more, it does no more: nothing of it begins, and what is under way is known.

use std::time::Duration;

use crate::common::*;
use crate::volumes::slow_subsystem;
use weir_nvme::command::{
    CopyCommand, CopyRange, DatasetManagement, DatasetManagementRange, NvmCommand, Verify,
};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Cqe, Status};
use weir_nvme_target::{Subsystem, TargetConfig};

const DELAY: Duration = Duration::from_millis(100);

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

/// What the right that was taken away is not needed for goes on.
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
