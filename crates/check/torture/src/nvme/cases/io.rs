//! Ranges of logical blocks: past the end, wrapping, too many, overlapping (group 25).

use weir_nvme::command::{
    Blocks, CopyCommand, CopyRange, DatasetManagement, DatasetManagementRange, NvmCommand, Verify,
    WriteZeroes,
};
use weir_nvme::identify::OptionalNvmCommands;
use weir_nvme::{Sqe, Status};

use super::hosts::{
    Disk, INVALID_FIELD, INVALID_LENGTH, INVALID_NAMESPACE, INVALID_OPCODE, block_of, nvm,
    read_sqe, refused, refused_bare, write_sqe,
};
use crate::case::Failure;
use crate::context::WITNESS_BLOCKS;
use crate::nvme::context::Context;

cases! {
    25 read_past_the_end [] "NVM Command Set 1.0c 3.2.4; NVMe Base 2.0c 3.3.3.2.1.1"
        : "Read of the last block and the one behind it" => "LBA Out of Range";
    25 read_wrapping [] "NVM Command Set 1.0c 3.2.4; NVMe Base 2.0c 3.3.3.2.1.1"
        : "Read whose SLBA and NLB wrap, and from SLBA 2^63 and 2^64 - 1" => "LBA Out of Range";
    25 read_of_the_last_block [] "NVM Command Set 1.0c 3.2.4"
        : "Read of the last block, and of the one behind it" => "its data, and LBA Out of Range";
    25 write_past_the_end [WRITES] "NVM Command Set 1.0c 3.2.6; NVMe Base 2.0c 3.3.3.2.1.1"
        : "Write that begins in the namespace and ends behind it" => "LBA Out of Range, and every block as before";
    25 write_wrapping [WRITES] "NVM Command Set 1.0c 3.2.6; NVMe Base 2.0c 3.3.3.2.1.1"
        : "Write of two blocks from SLBA 2^64 - 1" => "LBA Out of Range, and block 0 as before";
    25 compare_past_the_end [] "NVM Command Set 1.0c 3.2.1"
        : "Compare across the end" => "LBA Out of Range";
    25 verify_past_the_end [] "NVM Command Set 1.0c 3.2.5"
        : "Verify across the end, and wrapping" => "LBA Out of Range";
    25 write_zeroes_past_the_end [WRITES] "NVM Command Set 1.0c 3.2.8"
        : "Write Zeroes across the end, with and without DEAC, and wrapping" => "LBA Out of Range, and every block as before";
    25 deallocate_256_ranges [WRITES] "NVM Command Set 1.0c 3.2.3"
        : "Deallocate of 256 ranges of one block, the list in its capsule and fetched" => "success, and no other block touched";
    25 deallocate_overlapping [WRITES] "NVM Command Set 1.0c 3.2.3"
        : "Deallocate of 256 ranges that overlap" => "success, and no other block touched";
    25 deallocate_past_the_end [WRITES] "NVM Command Set 1.0c 3.2.3"
        : "Deallocate of 256 ranges, the last of which ends behind the namespace" => "LBA Out of Range and every block as before; or success, where it is a hint that is not taken";
    25 deallocate_wrapping [WRITES] "NVM Command Set 1.0c 3.2.3"
        : "Deallocate of a range whose start and length wrap" => "LBA Out of Range, or success, and every block as before";
    25 deallocate_empty_ranges [WRITES] "NVM Command Set 1.0c 3.2.3"
        : "Deallocate of ranges of no blocks, one of them behind the end" => "success, or LBA Out of Range, and every block as before";
    25 deallocate_list_too_short [] "NVM Command Set 1.0c 3.2.3; NVMe Base 2.0c 3.3.3.2.1"
        : "NR of 256 ranges with a list of one" => "Data SGL Length Invalid, or Invalid Field in Command";
    25 copy_from_past_the_end [WRITES] "NVM Command Set 1.0c 3.2.2"
        : "Copy of two ranges, the second of which ends behind the namespace" => "LBA Out of Range, and the destination as before";
    25 copy_to_past_the_end [WRITES] "NVM Command Set 1.0c 3.2.2"
        : "Copy to a destination that ends behind the namespace, and to SDLBA 2^64 - 1" => "LBA Out of Range";
    25 copy_of_too_many_ranges [] "NVM Command Set 1.0c 3.2.2 (MSRC)"
        : "Copy of more ranges than MSRC allows" => "Command Size Limit Exceeded";
    25 copy_of_too_long_a_range [] "NVM Command Set 1.0c 3.2.2 (MSSRL)"
        : "Copy of a range longer than MSSRL" => "Command Size Limit Exceeded";
    25 copy_of_an_unknown_format [] "NVM Command Set 1.0c 3.2.2"
        : "Copy with descriptor format Fh" => "Invalid Field in Command";
    25 copy_onto_itself [WRITES] "NVM Command Set 1.0c 3.2.2; NVM Command Set 1.1 3.3.2 (Overlapping I/O Range)"
        : "Copy whose destination overlaps its source" => "success, which 1.0 does not refuse, or Overlapping I/O Range as of 1.1; no block outside of the destination touched";
    25 namespace_of_nobody [] "NVMe Base 2.0c 3.3.3.2.1.1"
        : "Read, Flush and Write of NSID 0, of an inactive one, FFFFFFFEh and FFFFFFFFh" => "Invalid Namespace or Format; to Flush of FFFFFFFFh success where VWC says so";
    25 blocks_above_the_maximum [] "NVMe Base 2.0c 5.17.2.1 (MDTS)"
        : "Read of one block more than MDTS allows, with a buffer for all of them" => "Invalid Field in Command";
    25 protection_information [] "NVM Command Set 1.0c 5.2.1.1"
        : "Read and Write with PRACT, of a namespace without protection information" => "Invalid Protection Information, or Invalid Field in Command, or success";
    25 unknown_io_opcode [] "NVMe Base 2.0c 3.3.3.2.1.1"
        : "reserved and vendor specific I/O opcodes" => "Invalid Command Opcode";
}

const OUT_OF_RANGE: Status = Status::LBA_OUT_OF_RANGE.with_do_not_retry();

fn offers(context: &Context, what: &str, commands: OptionalNvmCommands) -> Result<(), Failure> {
    if context
        .facts
        .controller
        .optional_nvm_commands
        .contains(commands)
    {
        Ok(())
    } else {
        Err(Failure::NotOffered(what.into()))
    }
}

fn read_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let read = NvmCommand::Read(Blocks::new(context.facts.blocks - 1, 2));
    let reads = 2 * disk.block_bytes;
    disk.refuses("Read across the end", read, &[], reads, &[OUT_OF_RANGE])?;
    disk.still_works()
}

fn read_wrapping(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    for lba in [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32 << 16] {
        let read = NvmCommand::Read(Blocks::new(lba, 2));
        let what = format!("Read from {lba:#x}");
        let reads = 2 * disk.block_bytes;
        disk.refuses(&what, read, &[], reads, &[OUT_OF_RANGE])?;
    }
    disk.still_works()
}

fn read_of_the_last_block(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let blocks = context.facts.blocks;
    disk.read(blocks - 1, 1)?;
    let read = NvmCommand::Read(Blocks::new(blocks, 1));
    let what = "Read behind the last block";
    disk.refuses(what, read, &[], disk.block_bytes, &[OUT_OF_RANGE])?;
    disk.still_works()
}

/// Blocks that a range across the end covers before those of the witness.
const BEFORE_WITNESS: u64 = 4;

/// A range that begins before the witness's blocks and ends one behind the namespace: its first block and its length.
fn across_the_end(context: &Context) -> (u64, u32) {
    let first = context.case_blocks() - BEFORE_WITNESS;
    (first, (BEFORE_WITNESS + WITNESS_BLOCKS + 1) as u32)
}

/// Writes what is to stay before the end; what it is.
fn mark_the_end(context: &Context, disk: &mut Disk) -> Result<Vec<u8>, Failure> {
    let data = block_of(context, 0x77).repeat(BEFORE_WITNESS as usize);
    disk.write(across_the_end(context).0, &data)?;
    Ok(data)
}

fn write_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let kept = mark_the_end(context, &mut disk)?;
    let (lba, blocks) = across_the_end(context);
    let write = NvmCommand::Write(Blocks::new(lba, blocks));
    let data = vec![0xff; blocks as usize * disk.block_bytes as usize];
    disk.refuses("Write across the end", write, &data, 0, &[OUT_OF_RANGE])?;
    disk.holds("after a write across the end", lba, &kept)
}

fn write_wrapping(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let kept = block_of(context, 0x78);
    disk.write(0, &kept)?;
    let write = NvmCommand::Write(Blocks::new(u64::MAX, 2));
    let data = vec![0xff; 2 * disk.block_bytes as usize];
    disk.refuses("a write that wraps", write, &data, 0, &[OUT_OF_RANGE])?;
    disk.holds("after a write that wraps", 0, &kept)
}

fn compare_past_the_end(context: &mut Context) -> Result<(), Failure> {
    offers(context, "Compare", OptionalNvmCommands::COMPARE)?;
    let mut disk = Disk::new(context)?;
    let compare = NvmCommand::Compare(Blocks::new(context.facts.blocks - 1, 2));
    let data = vec![0; 2 * disk.block_bytes as usize];
    disk.refuses("Compare across the end", compare, &data, 0, &[OUT_OF_RANGE])?;
    disk.still_works()
}

fn verify_past_the_end(context: &mut Context) -> Result<(), Failure> {
    offers(context, "Verify", OptionalNvmCommands::VERIFY)?;
    let mut disk = Disk::new(context)?;
    for lba in [context.facts.blocks - 1, u64::MAX] {
        let verify = NvmCommand::Verify(Verify {
            lba,
            blocks: 2,
            ..Verify::default()
        });
        let what = format!("Verify from {lba:#x}");
        disk.refuses(&what, verify, &[], 0, &[OUT_OF_RANGE])?;
    }
    disk.still_works()
}

fn write_zeroes_past_the_end(context: &mut Context) -> Result<(), Failure> {
    offers(context, "Write Zeroes", OptionalNvmCommands::WRITE_ZEROES)?;
    let mut disk = Disk::new(context)?;
    let kept = mark_the_end(context, &mut disk)?;
    let (lba, blocks) = across_the_end(context);
    for (lba, blocks) in [(lba, blocks), (u64::MAX, 2), (lba, 0x1_0000)] {
        if lba
            .checked_add(blocks.into())
            .is_some_and(|end| end <= context.facts.blocks)
        {
            continue;
        }
        for deallocate in [false, true] {
            let zeroes = NvmCommand::WriteZeroes(WriteZeroes {
                lba,
                blocks,
                deallocate,
                ..WriteZeroes::default()
            });
            let what = format!("Write Zeroes of {blocks} blocks from {lba:#x}");
            disk.refuses(&what, zeroes, &[], 0, &[OUT_OF_RANGE])?;
        }
    }
    disk.holds("after Write Zeroes", across_the_end(context).0, &kept)
}

/// Ranges that NR can say.
const RANGES: usize = 256;

fn list(ranges: impl IntoIterator<Item = (u64, u32)>) -> Vec<u8> {
    let encode = |(lba, blocks)| {
        let range = DatasetManagementRange {
            lba,
            blocks,
            ..DatasetManagementRange::default()
        };
        range.encode()
    };
    ranges.into_iter().flat_map(encode).collect()
}

fn deallocate(ranges: usize) -> NvmCommand {
    NvmCommand::DatasetManagement(DatasetManagement {
        ranges: ranges as u16,
        deallocate: true,
        ..DatasetManagement::default()
    })
}

/// A disk with room for the cases of Deallocate: a block at 0 that stays, blocks that may go from 1 to `RANGES + 1`, and one behind them
/// that stays.
fn with_marks(context: &Context) -> Result<(Disk, Vec<u8>), Failure> {
    offers(
        context,
        "Dataset Management",
        OptionalNvmCommands::DATASET_MANAGEMENT,
    )?;
    if context.case_blocks() < RANGES as u64 + 8 {
        return Err(Failure::NotOffered(
            "a namespace of some hundred blocks".into(),
        ));
    }
    let mut disk = Disk::new(context)?;
    let mark = block_of(context, 0x79);
    for lba in [0, RANGES as u64 + 2] {
        disk.write(lba, &mark)?;
    }
    Ok((disk, mark))
}

fn marks_hold(disk: &mut Disk, what: &str, mark: &[u8]) -> Result<(), Failure> {
    disk.holds(what, 0, mark)?;
    disk.holds(what, RANGES as u64 + 2, mark)
}

fn deallocate_256_ranges(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, mark) = with_marks(context)?;
    let data = list((1..=RANGES as u64).map(|lba| (lba, 1)));
    let command = deallocate(RANGES);
    disk.refuses(
        "Deallocate of 256 ranges",
        command,
        &data,
        0,
        &[Status::SUCCESS],
    )?;
    if context.facts.in_capsule_bytes as usize >= data.len() {
        let mut options = context.options();
        options.in_capsule_bytes = context.facts.in_capsule_bytes;
        let mut io = disk.controller.io_with(2, &options)?;
        let sqe = nvm(command, disk.nsid);
        let what = "Deallocate of 256 ranges in its capsule";
        refused(&mut io, what, sqe, &data, 0, &[Status::SUCCESS])?;
    }
    marks_hold(&mut disk, "after Deallocate", &mark)
}

fn deallocate_overlapping(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, mark) = with_marks(context)?;
    let data = list((0..RANGES as u64).map(|index| (1 + index / 2, RANGES as u32 / 2)));
    let what = "Deallocate of overlapping ranges";
    disk.refuses(what, deallocate(RANGES), &data, 0, &[Status::SUCCESS])?;
    marks_hold(&mut disk, "after Deallocate", &mark)
}

fn deallocate_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, _) = with_marks(context)?;
    let kept = block_of(context, 0x7a).repeat(8);
    disk.write(1, &kept)?;
    let end = context.facts.blocks;
    let mut ranges = vec![(1, 1); RANGES - 1];
    ranges.push((end - 1, 2));
    let what = "Deallocate across the end";
    let statuses = [OUT_OF_RANGE, Status::SUCCESS];
    let cqe = disk.refuses(what, deallocate(RANGES), &list(ranges), 0, &statuses)?;
    if cqe.status.is_success() {
        return Ok(());
    }
    disk.holds(what, 1, &kept)
}

fn deallocate_wrapping(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, mark) = with_marks(context)?;
    let what = "Deallocate of a range that wraps";
    let statuses = [OUT_OF_RANGE, Status::SUCCESS];
    for range in [(u64::MAX, 2), (u64::MAX - 1, u32::MAX), (1, u32::MAX)] {
        if range == (1, u32::MAX) && context.facts.blocks > u64::from(u32::MAX) {
            continue;
        }
        disk.refuses(what, deallocate(1), &list([range]), 0, &statuses)?;
    }
    // A target may take the last range as far as it lies in the namespace.
    if context.manner.exact {
        marks_hold(&mut disk, what, &mark)?;
    }
    disk.still_works()
}

fn deallocate_empty_ranges(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, mark) = with_marks(context)?;
    let ranges = [(0, 0), (RANGES as u64 + 2, 0), (u64::MAX, 0)];
    let what = "Deallocate of empty ranges";
    let statuses = [Status::SUCCESS, Status::LBA_OUT_OF_RANGE];
    disk.refuses(what, deallocate(3), &list(ranges), 0, &statuses)?;
    marks_hold(&mut disk, what, &mark)
}

fn deallocate_list_too_short(context: &mut Context) -> Result<(), Failure> {
    offers(
        context,
        "Dataset Management",
        OptionalNvmCommands::DATASET_MANAGEMENT,
    )?;
    let mut disk = Disk::new(context)?;
    // Nothing is deallocated by a range of no blocks.
    let data = list([(0, 0)]);
    let what = "256 ranges in a list of one";
    let statuses = [INVALID_LENGTH, Status::INVALID_FIELD_IN_COMMAND];
    disk.refuses(what, deallocate(RANGES), &data, 0, &statuses)?;
    disk.still_works()
}

fn copy(destination_lba: u64, ranges: usize) -> NvmCommand {
    NvmCommand::Copy(CopyCommand {
        destination_lba,
        ranges: ranges as u16,
        ..CopyCommand::default()
    })
}

fn sources(ranges: &[(u64, u32)]) -> Vec<u8> {
    let encode = |&(lba, blocks): &(u64, u32)| CopyRange::new(lba, blocks).encode();
    ranges.iter().flat_map(encode).collect()
}

fn copying(context: &Context) -> Result<Disk, Failure> {
    offers(context, "Copy", OptionalNvmCommands::COPY)?;
    Disk::new(context)
}

fn copy_from_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut disk = copying(context)?;
    let kept = block_of(context, 0x7b).repeat(4);
    disk.write(8, &kept)?;
    let end = context.facts.blocks;
    // The first range is good; where there may be only one, the bad one is alone.
    let several = context.facts.namespace.copy_source_ranges > 0;
    let ranges = &[(0, 2), (end - 1, 2)][usize::from(!several)..];
    let what = "Copy from behind the end";
    let command = copy(8, ranges.len());
    disk.refuses(what, command, &sources(ranges), 0, &[OUT_OF_RANGE])?;
    disk.holds(what, 8, &kept)
}

fn copy_to_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut disk = copying(context)?;
    let kept = mark_the_end(context, &mut disk)?;
    let (first, blocks) = across_the_end(context);
    for destination in [first, u64::MAX] {
        let what = format!("Copy to {destination:#x}");
        let data = sources(&[(0, blocks)]);
        disk.refuses(&what, copy(destination, 1), &data, 0, &[OUT_OF_RANGE])?;
    }
    disk.holds("after Copy", first, &kept)
}

fn copy_of_too_many_ranges(context: &mut Context) -> Result<(), Failure> {
    let mut disk = copying(context)?;
    let most = usize::from(context.facts.namespace.copy_source_ranges) + 1;
    if most >= RANGES {
        return Err(Failure::NotOffered("an MSRC below 256 ranges".into()));
    }
    let data = sources(&vec![(0, 1); most + 1]);
    let what = format!("Copy of {} ranges", most + 1);
    let statuses = [Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_do_not_retry()];
    disk.refuses(&what, copy(8, most + 1), &data, 0, &statuses)?;
    disk.still_works()
}

fn copy_of_too_long_a_range(context: &mut Context) -> Result<(), Failure> {
    let mut disk = copying(context)?;
    let most = u32::from(context.facts.namespace.copy_source_range_maximum);
    if u64::from(most) >= context.facts.blocks / 4 || most >= 0x1_0000 {
        return Err(Failure::NotOffered(
            "an MSSRL shorter than the namespace".into(),
        ));
    }
    let data = sources(&[(0, most + 1)]);
    let what = format!("Copy of {} blocks", most + 1);
    let statuses = [Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_do_not_retry()];
    disk.refuses(&what, copy(u64::from(most) * 2, 1), &data, 0, &statuses)?;
    disk.still_works()
}

fn copy_of_an_unknown_format(context: &mut Context) -> Result<(), Failure> {
    let mut disk = copying(context)?;
    let NvmCommand::Copy(command) = copy(8, 1) else {
        unreachable!("it is a Copy")
    };
    let command = NvmCommand::Copy(CopyCommand {
        descriptor_format: 0xf,
        ..command
    });
    let data = sources(&[(0, 1)]);
    let what = "Copy of descriptor format Fh";
    disk.refuses(what, command, &data, 0, &[INVALID_FIELD])?;
    disk.still_works()
}

fn copy_onto_itself(context: &mut Context) -> Result<(), Failure> {
    let mut disk = copying(context)?;
    let source: Vec<u8> = (0..8).flat_map(|lba| block_of(context, lba)).collect();
    disk.write(0, &source)?;
    let (block, behind) = (disk.block_bytes as usize, block_of(context, 0x7c));
    disk.write(12, &behind)?;
    let what = "Copy of blocks 0 to 7 to 4";
    let statuses = [Status::SUCCESS, Status::OVERLAPPING_IO_RANGE];
    let data = sources(&[(0, 8)]);
    disk.refuses(what, copy(4, 1), &data, 0, &statuses)?;
    disk.holds(what, 0, &source[..4 * block])?;
    disk.holds(what, 12, &behind)
}

fn namespace_of_nobody(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    // Of the highest there may be, so that none is there.
    let inactive = context.facts.controller.namespaces.max(2);
    let known = inactive == context.target.nsid;
    let data = block_of(context, 1);
    for nsid in [0, inactive, 0xffff_fffe, 0xffff_ffff] {
        if known && nsid == inactive {
            continue;
        }
        let all = nsid == 0xffff_ffff;
        let commands: [(&str, Sqe, &[u8], u32); 3] = [
            ("Read", read_sqe(nsid, 0, 1), &[], disk.block_bytes),
            ("Write", write_sqe(nsid, 0, 1), &data, 0),
            ("Flush", nvm(NvmCommand::Flush, nsid), &[], 0),
        ];
        for (name, sqe, data, reads) in commands {
            let what = format!("{name} of NSID {nsid:#x}");
            let flushes_all = all && name == "Flush";
            let statuses = [INVALID_NAMESPACE, Status::SUCCESS];
            let statuses = if flushes_all {
                &statuses
            } else {
                &statuses[..1]
            };
            refused(&mut disk.io, &what, sqe, data, reads, statuses)?;
        }
    }
    disk.still_works()
}

fn blocks_above_the_maximum(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let most = context.facts.transfer_bytes_max.unwrap_or(u64::MAX) / u64::from(disk.block_bytes);
    if most >= 0x1_0000 || most >= context.facts.blocks {
        return Err(Failure::NotOffered(
            "an MDTS below the namespace's blocks".into(),
        ));
    }
    let blocks = most as u32 + 1;
    let read = NvmCommand::Read(Blocks::new(0, blocks));
    let what = format!("Read of {blocks} blocks");
    let reads = blocks * disk.block_bytes;
    disk.refuses(&what, read, &[], reads, &[INVALID_FIELD])?;
    disk.still_works()
}

fn protection_information(context: &mut Context) -> Result<(), Failure> {
    const PRACT: u8 = 0b1000;
    if context.facts.namespace.protection_settings != 0 {
        return Err(Failure::NotOffered(
            "a namespace without protection information".into(),
        ));
    }
    let mut disk = Disk::new(context)?;
    let blocks = Blocks {
        protection_information: PRACT,
        ..Blocks::new(0, 1)
    };
    let statuses = [
        Status::INVALID_PROTECTION_INFORMATION.with_do_not_retry(),
        Status::INVALID_FIELD_IN_COMMAND,
        Status::SUCCESS,
    ];
    let reads = disk.block_bytes;
    disk.refuses(
        "Read with PRACT",
        NvmCommand::Read(blocks),
        &[],
        reads,
        &statuses,
    )?;
    disk.still_works()
}

fn unknown_io_opcode(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    for opcode in [0x03, 0x0a, 0x2f, 0x7c, 0x80, 0x81, 0x82, 0xff] {
        let sqe = Sqe {
            opcode,
            nsid: disk.nsid,
            ..Sqe::default()
        };
        let what = format!("I/O opcode {opcode:#x}");
        refused_bare(&mut disk.io, &what, sqe, &[INVALID_OPCODE])?;
    }
    disk.still_works()
}
