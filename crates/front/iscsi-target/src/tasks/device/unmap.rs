//! UNMAP (SBC-3, section 5.28).

use std::collections::VecDeque;

use weir_block::{Geometry, Operation};
use weir_front::CommandKind;
use weir_scsi::sense::{FieldPointer, Sense};
use weir_scsi::unmap::{UNMAP_DESCRIPTOR_LENGTH, UNMAP_HEADER_LENGTH, UnmapDescriptor, UnmapList};

use super::media::Bounds;
use super::work::{REQUESTS_MAX, Work, bytes_of};
use crate::scene::Scene;
use crate::tasks::Tasks;
use crate::tasks::task::{Outcome, SlotIndex};

/// Ranges of one command at most, as the block limits page says.
pub(super) const RANGES_MAX: u32 = 256;

/// The longest list, in bytes.
pub(super) const LIST_BYTES_MAX: u32 =
    UNMAP_HEADER_LENGTH as u32 + RANGES_MAX * UNMAP_DESCRIPTOR_LENGTH as u32;

/// Begins with a list that has come.
pub(super) fn begin(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    let list = bytes_of(&task.take_data());
    let lun = task.at.attached.clone().expect("it has one");
    let blocks_max = Bounds::of(&lun, scene).range_blocks_max();
    match ranges_of(&list, &lun.geometry.get(), blocks_max) {
        Ok(ranges) => task.work = Work::Unmapping(ranges),
        Err(sense) => return tasks.finish(slot, Outcome::check(sense), scene),
    }
    go_on(tasks, slot, scene);
}

/// The ranges of a list, all of which are checked before the first is deallocated.
fn ranges_of(
    list: &[u8],
    geometry: &Geometry,
    blocks_max: u32,
) -> Result<VecDeque<UnmapDescriptor>, Sense> {
    let list = UnmapList::parse(list)?;
    if list.len() > RANGES_MAX as usize {
        // BLOCK DESCRIPTOR DATA LENGTH.
        return Err(Sense::invalid_field(FieldPointer::list(2)));
    }
    let contains = |range: UnmapDescriptor| geometry.contains(range.lba, range.blocks.into());
    if !list.descriptors().all(contains) {
        return Err(Sense::lba_out_of_range());
    }
    let blocks: u64 = list
        .descriptors()
        .map(|range| u64::from(range.blocks))
        .sum();
    if blocks > blocks_max.into() {
        // More than MAXIMUM UNMAP LBA COUNT (SBC-3 section 5.28.1).
        return Err(Sense::invalid_field(FieldPointer::list(2)));
    }
    if geometry.deallocate_blocks == 0 {
        // A hint that there is no use for.
        return Ok(VecDeque::new());
    }
    let ranges = list.descriptors().filter(|range| range.blocks > 0);
    Ok(ranges.collect())
}

/// Begins to deallocate as many of the next ranges as may be under way, or ends the command.
pub(super) fn go_on(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    loop {
        let task = tasks.task(slot);
        let outstanding = task.at.outstanding();
        let Work::Unmapping(ranges) = &mut task.work else {
            unreachable!("an UNMAP in progress")
        };
        if outstanding >= REQUESTS_MAX {
            return;
        }
        match ranges.pop_front() {
            Some(range) => {
                let (lba, blocks) = (range.lba, range.blocks.into());
                let deallocate = Operation::Deallocate { lba, blocks };
                tasks.submit(slot, CommandKind::Other, deallocate);
            }
            None if outstanding > 0 => return,
            None => break,
        }
    }
    scene.counters().other_commands.add(1);
    tasks.finish(slot, Outcome::good(), scene);
}

#[cfg(test)]
mod tests {
    use weir_block::{BlockSize, DeallocatedRead};
    use weir_scsi::unmap::encode;

    use super::*;

    #[test]
    fn ranges_have_no_more_blocks_in_all_than_the_page_says() {
        let geometry = Geometry {
            generation: 0,
            block_size: BlockSize::B512,
            blocks: 1000,
            transfer_blocks_max: 8,
            transfer_blocks_optimal: 1,
            memory_alignment: 1,
            deallocate_blocks: 1,
            deallocated_read: DeallocatedRead::Zeroes,
            volatile_cache: false,
            read_only: false,
            atomic_blocks: 1,
            atomic_blocks_power_fail: 1,
            compare_write_blocks: 1,
        };
        let list =
            |blocks: [u32; 3]| encode(&blocks.map(|blocks| UnmapDescriptor { lba: 0, blocks }));
        let ranges = ranges_of(&list([40, 0, 60]), &geometry, 100).expect("they fit");
        assert_eq!(ranges.len(), 2);
        let refused = ranges_of(&list([40, 1, 60]), &geometry, 100);
        assert_eq!(refused, Err(Sense::invalid_field(FieldPointer::list(2))));
        assert_eq!(
            ranges_of(&list([1, 1, 1001]), &geometry, 100),
            Err(Sense::lba_out_of_range())
        );
    }
}
