//! EXTENDED COPY among the logical units that the initiator sees (SPC-4, section 6.4).

use std::collections::VecDeque;
use std::rc::Rc;

use weir_block::{Operation, ReadBuffers};
use weir_front::{CommandKind, broken_by_volume};
use weir_memory::Views;
use weir_reservation::Access;
use weir_scsi::copy::{CopyBounds, CopyList, CopySegment, CopyTarget, OperatingParameters};
use weir_scsi::sense::{AdditionalSense, Sense};

use super::describe;
use super::work::{REQUESTS_MAX, STEP_BYTES, Work, bytes_of};
use crate::scene::{AttachedLun, Scene};
use crate::tasks::task::{Outcome, SlotIndex, Task};
use crate::tasks::{Loss, Tasks};

const BOUNDS: CopyBounds = CopyBounds {
    targets: 16,
    segments: 64,
};
/// The longest list, in bytes.
pub(super) const LIST_BYTES_MAX: u32 = BOUNDS.list_length() as u32;
/// Requests of one copy under way at most: so many blocks are read at once, and then written at once.
const STEPS: u32 = REQUESTS_MAX / 2;
/// Bytes of a copy in memory at most.
pub(super) const ROOM_BYTES: u32 = STEPS * STEP_BYTES;

/// A copy that is under way.
#[derive(Debug)]
pub(crate) struct Copying {
    /// What is left of its segments.
    segments: VecDeque<Segment>,
    /// What was read of the first segment and is not written: where to, and the data.
    read: Vec<(u64, Views)>,
}

/// Blocks to be copied.
#[derive(Clone)]
struct Segment {
    source: Rc<AttachedLun>,
    source_lba: u64,
    destination: Rc<AttachedLun>,
    destination_lba: u64,
    blocks: u64,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Segment")
            .field("source", &self.source.export)
            .field("source_lba", &self.source_lba)
            .field("destination", &self.destination.export)
            .field("destination_lba", &self.destination_lba)
            .field("blocks", &self.blocks)
            .finish()
    }
}

impl Copying {
    /// Tells whether nothing is left to be begun.
    pub(super) fn is_done(&self) -> bool {
        self.read.is_empty() && self.segments.iter().all(|segment| segment.blocks == 0)
    }

    /// Why a logical unit of the copy may not be used so any more.
    pub(crate) fn loss(
        &self,
        loss: impl Fn(&AttachedLun, bool, Access) -> Option<Loss>,
    ) -> Option<Loss> {
        self.segments.iter().find_map(|segment| {
            loss(&segment.source, false, Access::Read)
                .or_else(|| loss(&segment.destination, true, Access::Write))
        })
    }
}

/// RECEIVE COPY OPERATING PARAMETERS data.
pub(super) fn operating_parameters(lun: &AttachedLun) -> Vec<u8> {
    let shift = lun.geometry.get().block_size.shift();
    let parameters = OperatingParameters {
        bounds: BOUNDS,
        segment_length_max: u32::try_from(u64::from(u16::MAX) << shift).unwrap_or(u32::MAX),
        concurrent_copies_total: u16::MAX,
        concurrent_copies_max: u8::MAX,
        granularity_exponent: shift as u8,
    };
    parameters.encode()
}

/// Begins with a list that has come.
pub(super) fn begin(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    let list = bytes_of(&task.take_data());
    match segments_of(&list, scene) {
        Ok(segments) => {
            let copying = Copying {
                segments,
                read: Vec::new(),
            };
            task.work = Work::Copying(Box::new(copying));
        }
        Err(sense) => return tasks.finish(slot, sense.into(), scene),
    }
    go_on(tasks, slot, scene);
}

/// The segments of a list, all of which are checked before the first is copied.
fn segments_of(list: &[u8], scene: &Scene) -> Result<VecDeque<Segment>, Sense> {
    let list = CopyList::parse(list, BOUNDS)?;
    let mut luns = Vec::new();
    for target in &list.targets {
        luns.push(resolve(target, scene)?);
    }
    let mut segments = VecDeque::new();
    for segment in &list.segments {
        let segment = check(segment, &luns, scene)?;
        if segment.blocks > 0 {
            segments.push_back(segment);
        }
    }
    Ok(segments)
}

/// The logical unit that a descriptor tells: one that this initiator sees through this target, and no other.
fn resolve(target: &CopyTarget<'_>, scene: &Scene) -> Result<Rc<AttachedLun>, Sense> {
    let is_it = |lun: &&Rc<AttachedLun>| describe::is_designated(lun, target);
    let lun = scene.luns().iter().find(is_it);
    let lun = lun.ok_or(Sense::copy_aborted(
        AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE,
    ))?;
    if lun.queue.ready().is_err() {
        return Err(Sense::copy_aborted(
            AdditionalSense::THIRD_PARTY_DEVICE_FAILURE,
        ));
    }
    if target.block_length != lun.geometry.get().block_size.bytes() {
        return Err(Sense::illegal_request(
            AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        ));
    }
    Ok(Rc::clone(lun))
}

fn check(segment: &CopySegment, luns: &[Rc<AttachedLun>], scene: &Scene) -> Result<Segment, Sense> {
    let lun = |index: u16| {
        let lun = luns.get(usize::from(index)).map(Rc::clone);
        lun.ok_or(Sense::illegal_request(
            AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        ))
    };
    let (source, destination) = (lun(segment.source)?, lun(segment.destination)?);
    if !scene.allows(&source, Access::Read) || !scene.allows(&destination, Access::Write) {
        return Err(Sense::copy_aborted(
            AdditionalSense::THIRD_PARTY_DEVICE_FAILURE,
        ));
    }
    let (from, to) = (source.geometry.get(), destination.geometry.get());
    if from.block_size != to.block_size {
        return Err(Sense::copy_aborted(
            AdditionalSense::COPY_SEGMENT_GRANULARITY_VIOLATION,
        ));
    }
    let blocks = u64::from(segment.blocks);
    if !from.contains(segment.source_lba, blocks) || !to.contains(segment.destination_lba, blocks) {
        return Err(Sense::lba_out_of_range());
    }
    if destination.is_read_only() {
        return Err(Sense::write_protected());
    }
    Ok(Segment {
        source,
        source_lba: segment.source_lba,
        destination,
        destination_lba: segment.destination_lba,
        blocks,
    })
}

/// A part of a copy was read: it is kept until all that is being read has come.
pub(super) fn keep(task: &mut Task, operation: Operation, token: weir_block::Token) {
    let Operation::Read {
        lba,
        buffers: ReadBuffers::Filled(data),
        ..
    } = operation
    else {
        broken_by_volume(token)
    };
    let Work::Copying(copying) = &mut task.work else {
        unreachable!("a copy in progress")
    };
    copying.read.push((lba, data));
}

/// Writes what was read, or reads what comes next, or ends the copy.
pub(super) fn go_on(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    let step = task.step_blocks();
    let Work::Copying(copying) = &mut task.work else {
        unreachable!("a copy in progress")
    };
    if copying.read.is_empty()
        && copying
            .segments
            .front()
            .is_some_and(|first| first.blocks == 0)
    {
        // Its last blocks were written.
        copying.segments.pop_front();
    }
    let Some(segment) = copying.segments.front_mut() else {
        scene.counters().other_commands.add(1);
        return tasks.finish(slot, Outcome::good(), scene);
    };
    if copying.read.is_empty() {
        task.at.attached = Some(Rc::clone(&segment.source));
        let (mut lba, mut left) = (segment.source_lba, segment.blocks);
        for _ in 0..STEPS {
            let blocks = u64::from(step).min(left) as u32;
            if blocks == 0 {
                break;
            }
            let buffers = ReadBuffers::Lend;
            let read = Operation::Read {
                lba,
                blocks,
                buffers,
            };
            tasks.submit(slot, CommandKind::Other, read);
            lba += u64::from(blocks);
            left -= u64::from(blocks);
        }
        return;
    }
    // All that was asked for has come, in whatever order.
    let read = std::mem::take(&mut copying.read);
    let shift = segment.source.geometry.get().block_size.shift();
    let (source_lba, destination_lba) = (segment.source_lba, segment.destination_lba);
    task.at.attached = Some(Rc::clone(&segment.destination));
    let blocks_of = |data: &Views| (weir_memory::views_len(data) >> shift) as u32;
    let all: u64 = read
        .iter()
        .map(|(_, data)| u64::from(blocks_of(data)))
        .sum();
    segment.source_lba += all;
    segment.destination_lba += all;
    segment.blocks -= all;
    for (lba, data) in read {
        let write = Operation::Write {
            lba: lba - source_lba + destination_lba,
            blocks: blocks_of(&data),
            data,
            fua: false,
        };
        tasks.submit(slot, CommandKind::Other, write);
    }
}
