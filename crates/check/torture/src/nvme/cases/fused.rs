//! Fused commands: halves that are missing, do not fit, or fail (group 26).

use weir_nvme::command::{AdminCommand, Blocks, NvmCommand};
use weir_nvme::identify::FusedOperations;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::{Cqe, Sqe, Status};

use super::hosts::{
    Disk, INVALID_FIELD, block_of, judge, nvm, read_sqe, refused, refused_bare, write_sqe,
};
use crate::case::Failure;
use crate::context::QUIET;
use crate::nvme::context::Context;
use crate::nvme::queue::together;

cases! {
    26 fused_first_alone [WRITES] "NVMe Base 2.0c 3.4.2; NVM Command Set 1.0c 3.4"
        : "the first of a fused pair, and a Read in place of the second" => "Command Aborted due to Missing Fused Command, and the Read's data";
    26 fused_second_alone [WRITES] "NVMe Base 2.0c 3.4.2; NVM Command Set 1.0c 3.4"
        : "the second of a fused pair without a first" => "Command Aborted due to Missing Fused Command, and the block as before";
    26 fused_two_firsts [WRITES] "NVMe Base 2.0c 3.4.2"
        : "two firsts and a second" => "Command Aborted due to Missing Fused Command to the first; the others are a pair";
    26 fused_order_turned_around [WRITES] "NVMe Base 2.0c 3.4.2"
        : "the second, the first, and a Read" => "Command Aborted due to Missing Fused Command, twice, and the block as before";
    26 fused_different_blocks [WRITES] "NVM Command Set 1.0c 3.4.1"
        : "a pair of different LBAs" => "Invalid Field in Command to both, or to one and Command Aborted due to Failed Fused Command to the other; both blocks as before";
    26 fused_different_lengths [WRITES] "NVM Command Set 1.0c 3.4.1"
        : "a pair of one and of two blocks" => "as for different LBAs";
    26 fused_different_namespaces [WRITES] "NVMe Base 2.0c 3.4.2; NVM Command Set 1.0c 3.4.1"
        : "a pair whose second has an NSID of nobody" => "Invalid Namespace or Format to it, and Command Aborted due to Failed Fused Command to the other";
    26 fused_first_refused [WRITES] "NVMe Base 2.0c 3.4.2"
        : "a pair whose first is out of range" => "LBA Out of Range, and Command Aborted due to Failed Fused Command";
    26 fused_wrong_commands [WRITES] "NVM Command Set 1.0c 3.4"
        : "Write as first, Read as second, Compare as second" => "Invalid Field in Command, or an aborted fused command";
    26 fused_reserved_value [] "NVMe Base 2.0c 3.3.3.1"
        : "FUSE 11b" => "Invalid Field in Command";
    26 fused_on_the_admin_queue [] "NVMe Base 2.0c 3.4.2, 3.3.3.2.1.1"
        : "an admin command with FUSE 01b" => "Invalid Field in Command";
    26 fused_compare_fails [WRITES] "NVM Command Set 1.0c 3.4.1"
        : "Compare and Write of what is not there" => "Compare Failure, and Command Aborted due to Failed Fused Command; the block as before";
    26 fused_compare_holds [WRITES] "NVM Command Set 1.0c 3.4.1"
        : "Compare and Write of what is there" => "success, twice, and the block written";
    26 fused_above_the_atomic_unit [WRITES] "NVM Command Set 1.0c 3.4.1 (ACWU, NACWU)"
        : "Compare and Write of more blocks than are compared and written atomically" => "Atomic Write Unit Exceeded; nothing written";
    26 fused_end_in_between [WRITES] "NVMe Base 2.0c 3.4.2, 3.3.2.4"
        : "the end of the connection after the first, and while the second's data is awaited, both ways" => "nothing written, nothing left behind";
}

const MISSING: Status = Status::ABORTED_MISSING_FUSED_COMMAND;
const FAILED: Status = Status::ABORTED_FAILED_FUSED_COMMAND;

fn fused(mut sqe: Sqe, fuse: Fuse) -> Sqe {
    sqe.fuse = fuse;
    sqe
}

fn compare(disk: &Disk, lba: u64, blocks: u32) -> Sqe {
    let sqe = nvm(NvmCommand::Compare(Blocks::new(lba, blocks)), disk.nsid);
    fused(sqe, Fuse::First)
}

fn write(disk: &Disk, lba: u64, blocks: u32) -> Sqe {
    fused(write_sqe(disk.nsid, lba, blocks), Fuse::Second)
}

/// A disk that has fused Compare and Write, whose block 0 is the data returned.
fn disk(context: &Context) -> Result<(Disk, Vec<u8>), Failure> {
    let offered = context.facts.controller.fused_operations;
    if !offered.contains(FusedOperations::COMPARE_AND_WRITE) {
        return Err(Failure::NotOffered("fused Compare and Write".into()));
    }
    let mut disk = Disk::new(context)?;
    let old = block_of(context, 0x41);
    disk.write(0, &old)?;
    Ok((disk, old))
}

/// Queues to send a case's commands on: one whose data is fetched, and one that has it in its capsules where the target takes it there.
fn both_ways(
    context: &Context,
    disk: &mut Disk,
    mut work: impl FnMut(&mut Disk) -> Result<(), Failure>,
) -> Result<(), Failure> {
    work(disk)?;
    if context.facts.in_capsule_bytes < 2 * disk.block_bytes {
        return Ok(());
    }
    let mut options = context.options();
    options.in_capsule_bytes = context.facts.in_capsule_bytes;
    disk.io = disk.controller.io_with(2, &options)?;
    work(disk)
}

fn judge_all(
    disk: &mut Disk,
    what: &str,
    answers: &[Cqe],
    expected: &[&[Status]],
) -> Result<(), Failure> {
    for (cqe, statuses) in answers.iter().zip(expected) {
        judge(&mut disk.io, what, *cqe, statuses)?;
    }
    Ok(())
}

fn fused_first_alone(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    both_ways(context, &mut disk, |disk| {
        let commands = [
            (compare(disk, 0, 1), &old[..], 0),
            (read_sqe(disk.nsid, 0, 1), &[], disk.block_bytes),
        ];
        let answers = together(&mut disk.io, &commands)?;
        judge_all(
            disk,
            "a first alone",
            &answers,
            &[&[MISSING], &[Status::SUCCESS]],
        )?;
        disk.still_works()
    })
}

fn fused_second_alone(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x42);
    both_ways(context, &mut disk, |disk| {
        let sqe = write(disk, 0, 1);
        refused(&mut disk.io, "a second alone", sqe, &new, 0, &[MISSING])?;
        disk.holds("a second alone", 0, &old)
    })
}

fn fused_two_firsts(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x43);
    let commands = [
        (compare(&disk, 0, 1), &old[..], 0),
        (compare(&disk, 0, 1), &old, 0),
        (write(&disk, 0, 1), &new, 0),
    ];
    let answers = together(&mut disk.io, &commands)?;
    let success = &[Status::SUCCESS][..];
    let what = "two firsts and a second";
    judge_all(&mut disk, what, &answers, &[&[MISSING], success, success])?;
    disk.holds(what, 0, &new)
}

fn fused_order_turned_around(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x44);
    let commands = [
        (write(&disk, 0, 1), &new[..], 0),
        (compare(&disk, 0, 1), &old, 0),
        (read_sqe(disk.nsid, 0, 1), &[], disk.block_bytes),
    ];
    let answers = together(&mut disk.io, &commands)?;
    let what = "the second before the first";
    let success = &[Status::SUCCESS][..];
    judge_all(
        &mut disk,
        what,
        &answers,
        &[&[MISSING], &[MISSING], success],
    )?;
    disk.holds(what, 0, &old)
}

/// The halves do not fit: both are refused, and nothing is written.
fn misfit(context: &Context, what: &str, second: (u64, u32)) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let other = block_of(context, 0x45);
    disk.write(1, &other)?;
    let new = block_of(context, 0x46).repeat(second.1 as usize);
    both_ways(context, &mut disk, |disk| {
        let commands = [
            (compare(disk, 0, 1), &old[..], 0),
            (write(disk, second.0, second.1), &new, 0),
        ];
        let answers = together(&mut disk.io, &commands)?;
        let statuses = &[INVALID_FIELD, FAILED][..];
        judge_all(disk, what, &answers, &[statuses, statuses])?;
        disk.holds(what, 0, &old)?;
        disk.holds(what, 1, &other)
    })
}

fn fused_different_blocks(context: &mut Context) -> Result<(), Failure> {
    misfit(context, "a pair of different LBAs", (1, 1))
}

fn fused_different_lengths(context: &mut Context) -> Result<(), Failure> {
    misfit(context, "a pair of different lengths", (0, 2))
}

fn fused_different_namespaces(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x47);
    let elsewhere = Sqe {
        nsid: 0xffff_fffe,
        ..write(&disk, 0, 1)
    };
    let commands = [(compare(&disk, 0, 1), &old[..], 0), (elsewhere, &new, 0)];
    let answers = together(&mut disk.io, &commands)?;
    let what = "a pair of different namespaces";
    let expected: [&[Status]; 2] = [
        &[FAILED, INVALID_FIELD],
        &[
            Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry(),
            INVALID_FIELD,
            FAILED,
        ],
    ];
    judge_all(&mut disk, what, &answers, &expected)?;
    disk.holds(what, 0, &old)
}

fn fused_first_refused(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x48);
    let behind = context.facts.blocks;
    let commands = [
        (compare(&disk, behind, 1), &old[..], 0),
        (write(&disk, 0, 1), &new, 0),
    ];
    let answers = together(&mut disk.io, &commands)?;
    let what = "a pair whose first is out of range";
    let expected: [&[Status]; 2] = [
        &[
            Status::LBA_OUT_OF_RANGE.with_do_not_retry(),
            INVALID_FIELD,
            FAILED,
        ],
        &[FAILED, INVALID_FIELD],
    ];
    judge_all(&mut disk, what, &answers, &expected)?;
    disk.holds(what, 0, &old)
}

fn fused_wrong_commands(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x49);
    let statuses = [INVALID_FIELD, MISSING, FAILED];
    let what = "Write as the first";
    let sqe = fused(write_sqe(disk.nsid, 0, 1), Fuse::First);
    refused(&mut disk.io, what, sqe, &new, 0, &statuses)?;
    let what = "Read as the second";
    let sqe = fused(read_sqe(disk.nsid, 0, 1), Fuse::Second);
    refused(&mut disk.io, what, sqe, &[], disk.block_bytes, &statuses)?;
    let what = "Compare as the second";
    let sqe = fused(compare(&disk, 0, 1), Fuse::Second);
    refused(&mut disk.io, what, sqe, &old, 0, &statuses)?;
    disk.holds("after wrong pairs", 0, &old)
}

fn fused_reserved_value(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let sqe = fused(read_sqe(disk.nsid, 0, 1), Fuse::Reserved);
    let reads = disk.block_bytes;
    refused(&mut disk.io, "FUSE 11b", sqe, &[], reads, &[INVALID_FIELD])?;
    disk.still_works()
}

fn fused_on_the_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for fuse in [Fuse::First, Fuse::Second] {
        let sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
        let what = format!("Keep Alive, {fuse:?} of a pair");
        refused_bare(&mut admin, &what, fused(sqe, fuse), &[INVALID_FIELD])?;
    }
    admin.still_works(0, 0)
}

fn fused_compare_fails(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x4a);
    both_ways(context, &mut disk, |disk| {
        let commands = [
            (compare(disk, 0, 1), &new[..], 0),
            (write(disk, 0, 1), &new, 0),
        ];
        let answers = together(&mut disk.io, &commands)?;
        let what = "Compare and Write of what is not there";
        let failure = Status::COMPARE_FAILURE.with_do_not_retry();
        judge_all(disk, what, &answers, &[&[failure], &[FAILED]])?;
        disk.holds(what, 0, &old)
    })
}

fn fused_compare_holds(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, old) = disk(context)?;
    let new = block_of(context, 0x4b);
    both_ways(context, &mut disk, |disk| {
        disk.write(0, &old)?;
        let commands = [
            (compare(disk, 0, 1), &old[..], 0),
            (write(disk, 0, 1), &new, 0),
        ];
        let answers = together(&mut disk.io, &commands)?;
        let what = "Compare and Write";
        let success = &[Status::SUCCESS][..];
        judge_all(disk, what, &answers, &[success, success])?;
        disk.holds(what, 0, &new)
    })
}

fn fused_above_the_atomic_unit(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, _) = disk(context)?;
    let namespace = &context.facts.namespace;
    let blocks = u32::from(namespace.atomic_compare_and_write_unit) + 2;
    let bytes = u64::from(blocks) * u64::from(disk.block_bytes);
    let too_long = context
        .facts
        .transfer_bytes_max
        .is_some_and(|most| bytes > most);
    if too_long || u64::from(blocks) > context.case_blocks() {
        return Err(Failure::NotOffered("an NACWU below MDTS".into()));
    }
    let old: Vec<u8> = block_of(context, 0x4c).repeat(blocks as usize);
    disk.write(0, &old)?;
    let new: Vec<u8> = block_of(context, 0x4d).repeat(blocks as usize);
    let commands = [
        (compare(&disk, 0, blocks), &old[..], 0),
        (write(&disk, 0, blocks), &new, 0),
    ];
    let answers = together(&mut disk.io, &commands)?;
    let exceeded = Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_do_not_retry();
    let what = "Compare and Write above the atomic unit";
    let statuses = [exceeded, FAILED, INVALID_FIELD];
    // Weir refuses each half by itself.
    judge(&mut disk.io, what, answers[0], &statuses)?;
    judge(&mut disk.io, what, answers[1], &statuses)?;
    disk.holds(what, 0, &old)
}

fn fused_end_in_between(context: &mut Context) -> Result<(), Failure> {
    let (mut keeper, old) = disk(context)?;
    let new = block_of(context, 0x4e);
    let mut options = context.options();
    options.in_capsule_bytes = context.facts.in_capsule_bytes;
    for (in_capsule, with_second, reset) in [
        (true, false, false),
        (false, false, true),
        (false, true, false),
        (false, true, true),
    ] {
        let options = if in_capsule {
            &options
        } else {
            &context.options()
        };
        let mut queue = keeper.controller.io_again(2, options)?;
        let (_, mut bytes) = queue.prepare(compare(&keeper, 0, 1), &old, 0);
        if with_second {
            let (_, second) = queue.prepare(write(&keeper, 0, 1), &new, 0);
            bytes.extend(second);
        }
        queue.send(&bytes)?;
        if with_second {
            // Their data is asked for now.
            queue.receive();
        } else if context.manner.exact {
            queue.expect_silence("the first of a pair", QUIET)?;
        } else {
            // Others may ask for its data already.
            queue.receive_within(QUIET);
        }
        let peer = queue.into_peer();
        if reset {
            peer.reset();
        } else {
            peer.finish_sending();
            drop(peer);
        }
        // The queue identifier is free again once all of it has ended.
        keeper.controller.io_again(2, options)?;
        keeper.holds("after the end of a connection", 0, &old)?;
    }
    Ok(())
}
