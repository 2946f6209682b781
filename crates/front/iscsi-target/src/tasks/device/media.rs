//! Commands on blocks (SBC-3): each is checked against its logical unit before anything of it is done.

use std::rc::Rc;

use weir_block::{DeallocatedRead, Geometry, Operation};
use weir_scsi::cdb::{ByteCheck, Command, Extent, WriteSame, cdb_length, opcode};
use weir_scsi::sense::{AdditionalSense, FieldPointer, Sense};

use super::status::of_volume_error;
use super::unmap::LIST_BYTES_MAX;
use super::work::Work;
use crate::scene::{AttachedLun, Scene};
use crate::tasks::task::{Outcome, Task};

/// Bytes that one WRITE SAME writes, or one range of an UNMAP has, at most: what takes longer has hosts reset the logical unit.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// What bounds the commands for a logical unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    geometry: Geometry,
    transfer_bytes_max: u32,
}

impl Bounds {
    pub(super) fn of(lun: &AttachedLun, scene: &Scene) -> Self {
        Bounds {
            geometry: lun.geometry.get(),
            transfer_bytes_max: scene.config().transfer_bytes_max,
        }
    }

    fn shift(&self) -> u32 {
        self.geometry.block_size.shift()
    }

    /// Blocks of one transfer at most.
    pub(super) fn transfer_blocks_max(&self) -> u32 {
        (self.transfer_bytes_max >> self.shift()).max(1)
    }

    /// Blocks of one COMPARE AND WRITE at most: a number of one byte.
    pub(super) fn compare_write_blocks_max(&self) -> u8 {
        let all = self.geometry.compare_write_blocks.max(1);
        let all = all.min(self.transfer_blocks_max() / 2).max(1);
        u8::try_from(all).unwrap_or(u8::MAX)
    }

    /// Blocks of one WRITE SAME, or of all ranges of an UNMAP, at most.
    pub(super) fn range_blocks_max(&self) -> u32 {
        (RANGE_BYTES_MAX >> self.shift()) as u32
    }

    fn contains(&self, lba: u64, blocks: u64) -> Result<(), Sense> {
        match self.geometry.contains(lba, blocks) {
            true => Ok(()),
            false => Err(Sense::lba_out_of_range()),
        }
    }

    /// Checks blocks whose data is transferred. Returns their length in bytes.
    #[inline]
    fn transfer(&self, extent: Extent, task: &Task) -> Result<u32, Sense> {
        if extent.blocks > self.transfer_blocks_max() {
            return Err(wrong_length(task));
        }
        self.contains(extent.lba, extent.blocks.into())?;
        Ok(extent.blocks << self.shift())
    }

    pub(super) fn deallocated_reads_zeroes(&self) -> bool {
        self.geometry.deallocated_read == DeallocatedRead::Zeroes
    }
}

/// The number of blocks is more than may be asked for at once.
#[cold]
fn wrong_length(task: &Task) -> Sense {
    let byte = match (task.cdb[0], cdb_length(task.cdb[0])) {
        (opcode::COMPARE_AND_WRITE, _) => 13,
        (_, Some(6)) => 4,
        (_, Some(10)) => 7,
        (_, Some(12)) => 6,
        _ => 10,
    };
    Sense::invalid_field(FieldPointer::cdb(byte))
}

/// A READ or a WRITE.
#[inline]
pub(super) fn plan_transfer(
    task: &mut Task,
    command: Command,
    lun: &Rc<AttachedLun>,
    scene: &Scene,
) -> Result<(), Outcome> {
    let bounds = Bounds::of(lun, scene);
    let (work, brings) = match command {
        Command::Read { extent, .. } => {
            bounds.transfer(extent, task)?;
            let Extent { lba, blocks } = extent;
            (Work::Read { lba, blocks }, 0)
        }
        Command::Write { extent, fua } => {
            let bytes = bounds.transfer(extent, task)?;
            let Extent { lba, blocks } = extent;
            (Work::Write { lba, blocks, fua }, bytes)
        }
        other => return plan(task, other, lun, scene),
    };
    assign(task, lun, work, brings)
}

/// Any other command on blocks.
pub(super) fn plan(
    task: &mut Task,
    command: Command,
    lun: &Rc<AttachedLun>,
    scene: &Scene,
) -> Result<(), Outcome> {
    let bounds = Bounds::of(lun, scene);
    let (work, brings) = match command {
        Command::WriteAndVerify { extent, compares } => {
            let bytes = bounds.transfer(extent, task)?;
            let Extent { lba, blocks } = extent;
            let work = Work::WriteVerify {
                lba,
                blocks,
                compares,
            };
            (work, bytes)
        }
        Command::Verify { extent, check } => verify(&bounds, extent, check, task)?,
        Command::CompareAndWrite { extent, fua } => {
            if extent.blocks > bounds.compare_write_blocks_max().into() {
                return Err(wrong_length(task).into());
            }
            let bytes = bounds.transfer(extent, task)?;
            let Extent { lba, blocks } = extent;
            (Work::CompareWrite { lba, blocks, fua }, 2 * bytes)
        }
        // All that was written is made durable, and the answer comes when it is, whether IMMED asks for an earlier one or not.
        Command::SynchronizeCache { extent } => {
            bounds.contains(extent.lba, extent.blocks.into())?;
            (Work::Flush, 0)
        }
        Command::WriteSame(same) => write_same(&bounds, &same, task)?,
        Command::Unmap { list_length } => {
            if list_length > LIST_BYTES_MAX {
                return Err(Sense::parameter_list_length().into());
            }
            (Work::Unmap, list_length)
        }
        other => unreachable!("{other:?} is no command on blocks"),
    };
    assign(task, lun, work, brings)
}

fn verify(
    bounds: &Bounds,
    extent: Extent,
    check: ByteCheck,
    task: &Task,
) -> Result<(Work, u32), Sense> {
    let Extent { lba, blocks } = extent;
    bounds.contains(lba, blocks.into())?;
    Ok(match check {
        ByteCheck::Medium => (Work::Verify { lba, blocks }, 0),
        ByteCheck::Data => {
            let bytes = bounds.transfer(extent, task)?;
            (Work::Compare { lba, blocks }, bytes)
        }
        ByteCheck::OneBlock => {
            let blocks = blocks.into();
            (Work::CompareSame { lba, blocks }, 1 << bounds.shift())
        }
    })
}

fn write_same(bounds: &Bounds, same: &WriteSame, task: &Task) -> Result<(Work, u32), Sense> {
    // The block limits page says so (WSNZ, MAXIMUM WRITE SAME LENGTH).
    if same.blocks == 0 || same.blocks > bounds.range_blocks_max() {
        return Err(wrong_length(task));
    }
    let (lba, blocks, deallocate) = (same.lba, same.blocks.into(), same.unmap);
    bounds.contains(lba, blocks)?;
    Ok(match same.no_data {
        true => {
            let work = Work::Zeroes {
                lba,
                blocks,
                deallocate,
            };
            (work, 0)
        }
        false => {
            let work = Work::WriteSame {
                lba,
                blocks,
                deallocate,
            };
            (work, 1 << bounds.shift())
        }
    })
}

/// Gives a task its work, for which so many bytes of data come.
#[inline]
pub(super) fn assign(
    task: &mut Task,
    lun: &Rc<AttachedLun>,
    work: Work,
    brings: u32,
) -> Result<(), Outcome> {
    task.brings = brings;
    if work.modifies() && lun.is_read_only() {
        return Err(Sense::write_protected().into());
    }
    let comes = if task.writes { task.expected } else { 0 };
    if brings > comes {
        // Nothing is done by halves: an initiator that sends less than its command says is wrong about one of the two.
        let additional = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
        return Err(Sense::illegal_request(additional).into());
    }
    if work.is_empty() {
        return Err(Outcome::good());
    }
    if let Err(error) = lun.queue.ready() {
        return Err(of_volume_error(error, &Operation::Flush));
    }
    task.wanted = brings;
    task.work = work;
    task.at.attached = Some(Rc::clone(lun));
    Ok(())
}
