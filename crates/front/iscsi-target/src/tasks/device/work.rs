//! What a command does on its volume, step by step.

use std::collections::VecDeque;

use weir_block::{Completion, Operation, OperationKind, ReadBuffers, VolumeError};
use weir_front::{CommandKind, broken_by_volume};
use weir_memory::{Pool, Segment, View, Views, views_len};
use weir_reservation::Access;
use weir_scsi::cdb::ReserveOut;
use weir_scsi::sense::{AdditionalSense, Sense};
use weir_scsi::unmap::UnmapDescriptor;

use super::copy::Copying;
use super::status::of_volume_error;
use crate::scene::Scene;
use crate::tasks::Tasks;
use crate::tasks::task::{Outcome, SlotIndex, Task};

/// Requests of one UNMAP under way at most.
pub(crate) const REQUESTS_MAX: u32 = 8;
/// Bytes that a WRITE SAME writes, a VERIFY compares or an EXTENDED COPY moves at a time at most.
pub(crate) const STEP_BYTES: u32 = 256 << 10;

/// What a command does. What it has done is taken out of it.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    None,
    Read {
        lba: u64,
        blocks: u32,
    },
    Write {
        lba: u64,
        blocks: u32,
        fua: bool,
    },
    /// Writes, and then reads it back: compares it, or only has it read from the medium.
    WriteVerify {
        lba: u64,
        blocks: u32,
        compares: bool,
    },
    /// Reads from the medium.
    Verify {
        lba: u64,
        blocks: u32,
    },
    Compare {
        lba: u64,
        blocks: u32,
    },
    CompareWrite {
        lba: u64,
        blocks: u32,
        fua: bool,
    },
    Flush,
    Zeroes {
        lba: u64,
        blocks: u64,
        deallocate: bool,
    },
    /// Its data is one block, which is written to each of these.
    WriteSame {
        lba: u64,
        blocks: u64,
        deallocate: bool,
    },
    /// Its data is one block, with which each of these is compared.
    CompareSame {
        lba: u64,
        blocks: u64,
    },
    /// Repeats a pattern over blocks: `data` is as many blocks as are done at a time.
    Repeat {
        first: u64,
        lba: u64,
        blocks: u64,
        data: View,
        compares: bool,
    },
    /// Its data is a list of ranges to be deallocated.
    Unmap,
    /// Ranges whose deallocation has not begun.
    Unmapping(VecDeque<UnmapDescriptor>),
    /// Its data is a list of mode pages.
    ModeSelect {
        is_long: bool,
    },
    /// Its data says what to copy.
    CopyList,
    Copying(Box<Copying>),
    /// RESERVE (6) or (10).
    ReserveUnit,
    /// RELEASE (6) or (10).
    ReleaseUnit,
    /// Its data is what PERSISTENT RESERVE OUT asks for.
    ReserveOut(ReserveOut),
    /// The reservations of the volume were asked. Their answer frees the slot, if nothing else does.
    Asked,
}

impl Work {
    /// The blocks that all data of the command is for.
    #[inline]
    pub(crate) fn blocks_written(&self) -> Option<(u64, u32)> {
        match *self {
            Work::Write { lba, blocks, .. } | Work::WriteVerify { lba, blocks, .. } => {
                Some((lba, blocks))
            }
            _ => None,
        }
    }

    /// Tells whether it is about no block at all, so that there is nothing to be done.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match *self {
            Work::Read { blocks, .. }
            | Work::Write { blocks, .. }
            | Work::WriteVerify { blocks, .. }
            | Work::Verify { blocks, .. }
            | Work::Compare { blocks, .. }
            | Work::CompareWrite { blocks, .. } => blocks == 0,
            Work::CompareSame { blocks, .. } => blocks == 0,
            _ => false,
        }
    }

    /// Tells whether it is refused where nothing may be written.
    pub(crate) fn modifies(&self) -> bool {
        match self {
            Work::Write { .. }
            | Work::WriteVerify { .. }
            | Work::CompareWrite { .. }
            | Work::Zeroes { .. }
            | Work::WriteSame { .. }
            | Work::Unmap
            | Work::Unmapping(_)
            | Work::Copying(_) => true,
            Work::Repeat { compares, .. } => !compares,
            _ => false,
        }
    }

    /// What it does, as reservations tell commands apart.
    pub(crate) fn access(&self) -> Access {
        match self {
            Work::Flush | Work::ModeSelect { .. } | Work::CopyList => Access::Write,
            Work::None
            | Work::ReserveUnit
            | Work::ReleaseUnit
            | Work::ReserveOut(_)
            | Work::Asked => Access::Exempt,
            work if work.modifies() => Access::Write,
            _ => Access::Read,
        }
    }
}

impl Task {
    fn block_shift(&self) -> u32 {
        let lun = self.at.attached.as_ref().expect("it has one");
        lun.geometry.get().block_size.shift()
    }

    /// Room that it needs beside that for the data that it brings, in bytes.
    #[inline]
    pub(crate) fn room_bytes(&self) -> u32 {
        match &self.work {
            Work::Read { blocks, .. } => blocks << self.block_shift(),
            Work::Write { .. } => 0,
            other => self.other_room_bytes(other),
        }
    }

    #[inline(never)]
    fn other_room_bytes(&self, work: &Work) -> u32 {
        let bytes = match work {
            Work::Verify { blocks, .. } | Work::WriteVerify { blocks, .. } => u64::from(*blocks),
            Work::WriteSame { blocks, .. } | Work::CompareSame { blocks, .. } => *blocks,
            Work::CopyList => return super::copy::ROOM_BYTES,
            _ => return 0,
        };
        (bytes << self.block_shift()).min(STEP_BYTES.into()) as u32
    }

    /// Blocks of one step.
    pub(super) fn step_blocks(&self) -> u32 {
        (STEP_BYTES >> self.block_shift()).max(1)
    }
}

/// Starts a task whose data is there.
pub(crate) fn run(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    match task.work {
        Work::Read { lba, blocks } => {
            let buffers = ReadBuffers::Lend;
            let read = Operation::Read {
                lba,
                blocks,
                buffers,
            };
            tasks.submit(slot, CommandKind::Read, read);
        }
        Work::Write { lba, blocks, fua } => {
            let data = task.take_data();
            let write = Operation::Write {
                lba,
                blocks,
                data,
                fua,
            };
            tasks.submit(slot, CommandKind::Write, write);
        }
        _ => run_other(tasks, slot, scene),
    }
}

#[inline(never)]
fn run_other(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    let operation = match task.work {
        Work::WriteVerify { lba, blocks, .. } => Operation::Write {
            lba,
            blocks,
            data: task.take_data(),
            fua: false,
        },
        Work::Verify { lba, blocks } => return verify_step(tasks, slot, lba, blocks, scene),
        Work::Compare { lba, blocks } => Operation::Compare {
            lba,
            blocks,
            data: task.take_data(),
        },
        Work::CompareWrite { lba, blocks, fua } => Operation::CompareWrite {
            lba,
            blocks,
            data: task.take_data(),
            fua,
        },
        Work::Flush => Operation::Flush,
        Work::Zeroes {
            lba,
            blocks,
            deallocate,
        } => zeroes(lba, blocks, deallocate),
        Work::WriteSame {
            lba,
            blocks,
            deallocate,
        } => {
            let block = task.take_data();
            if block.iter().all(|view| view.iter().all(|&byte| byte == 0)) {
                zeroes(lba, blocks, deallocate)
            } else {
                return repeat(tasks, slot, (lba, blocks), &block, false, scene);
            }
        }
        Work::CompareSame { lba, blocks } => {
            let block = task.take_data();
            return repeat(tasks, slot, (lba, blocks), &block, true, scene);
        }
        Work::Unmap => return super::unmap::begin(tasks, slot, scene),
        Work::CopyList => return super::copy::begin(tasks, slot, scene),
        Work::ReserveUnit | Work::ReleaseUnit | Work::ReserveOut(_) => {
            return super::reserve::ask(tasks, slot, scene);
        }
        Work::ModeSelect { is_long } => {
            let list = bytes_of(&task.take_data());
            let lun = task.at.attached.clone().expect("it has one");
            let outcome = match super::describe::mode_select(&list, is_long, &lun) {
                Ok(()) => Outcome::good(),
                Err(sense) => sense.into(),
            };
            return tasks.finish(slot, outcome, scene);
        }
        ref other => unreachable!("{other:?} does not begin so"),
    };
    tasks.submit(slot, CommandKind::Other, operation);
}

fn zeroes(lba: u64, blocks: u64, deallocate: bool) -> Operation {
    Operation::WriteZeroes {
        lba,
        blocks,
        deallocate,
        fua: false,
    }
}

/// All the bytes of some views in one piece.
pub(super) fn bytes_of(views: &Views) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(views_len(views));
    for view in views {
        bytes.extend_from_slice(view);
    }
    bytes
}

/// Verifies the first of the blocks that are left, and notes the others.
fn verify_step(tasks: &mut Tasks, slot: SlotIndex, lba: u64, blocks: u32, scene: &Scene) {
    if blocks == 0 {
        scene.counters().reads.add(1);
        return tasks.finish(slot, Outcome::good(), scene);
    }
    let task = tasks.task(slot);
    let step = task.step_blocks().min(blocks);
    task.work = Work::Verify {
        lba: lba + u64::from(step),
        blocks: blocks - step,
    };
    let blocks = step.into();
    tasks.submit(slot, CommandKind::Other, Operation::Verify { lba, blocks });
}

/// Begins to repeat one block over a range.
fn repeat(
    tasks: &mut Tasks,
    slot: SlotIndex,
    (lba, blocks): (u64, u64),
    block: &Views,
    compares: bool,
    scene: &Scene,
) {
    let task = tasks.task(slot);
    let count = u64::from(task.step_blocks()).min(blocks) as usize;
    let data = repeated(&bytes_of(block), count, scene.pool());
    task.work = Work::Repeat {
        first: lba,
        lba,
        blocks,
        data,
        compares,
    };
    repeat_step(tasks, slot, scene);
}

fn repeated(block: &[u8], count: usize, pool: &Pool) -> View {
    let length = block.len() * count;
    let segment = pool.segment(length);
    let mut segment = segment.unwrap_or_else(|_| Segment::heap(length));
    for part in segment.chunks_exact_mut(block.len()) {
        part.copy_from_slice(block);
    }
    segment.freeze()
}

/// Does the next step of a repetition, or ends it.
fn repeat_step(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    let shift = task.block_shift();
    let Work::Repeat {
        lba,
        blocks,
        data,
        compares,
        ..
    } = &mut task.work
    else {
        unreachable!("a repetition in progress")
    };
    if *blocks == 0 {
        let counters = scene.counters();
        match compares {
            true => counters.reads.add(1),
            false => counters.writes.add(1),
        }
        return tasks.finish(slot, Outcome::good(), scene);
    }
    let step = ((data.len() >> shift) as u64).min(*blocks) as u32;
    let mut views = Views::new();
    views.push(data.slice(0..(step as usize) << shift));
    let (at, compares) = (*lba, *compares);
    *lba += u64::from(step);
    *blocks -= u64::from(step);
    let operation = match compares {
        true => Operation::Compare {
            lba: at,
            blocks: step,
            data: views,
        },
        false => Operation::Write {
            lba: at,
            blocks: step,
            data: views,
            fua: false,
        },
    };
    tasks.submit(slot, CommandKind::Other, operation);
}

/// A request of a task ended.
#[inline]
pub(crate) fn completed(tasks: &mut Tasks, slot: SlotIndex, completion: Completion, scene: &Scene) {
    let is_good = completion.result.is_ok();
    match tasks.task(slot).work {
        Work::Read { .. } if is_good => read_completed(tasks, slot, completion, scene),
        Work::Write { .. } if is_good => {
            let counters = scene.counters();
            let task = tasks.task(slot);
            counters.writes.add(1);
            counters.bytes_written.add(task.wanted.into());
            tasks.finish(slot, Outcome::good(), scene);
        }
        _ => other_completed(tasks, slot, completion, scene),
    }
}

#[inline]
fn read_completed(tasks: &mut Tasks, slot: SlotIndex, completion: Completion, scene: &Scene) {
    let Operation::Read {
        blocks,
        buffers: ReadBuffers::Filled(data),
        ..
    } = completion.operation
    else {
        broken_by_volume(completion.token)
    };
    let bytes = blocks << tasks.task(slot).block_shift();
    assert_eq!(
        views_len(&data),
        bytes as usize,
        "a volume yields all that was read"
    );
    let counters = scene.counters();
    counters.reads.add(1);
    counters.bytes_read.add(bytes.into());
    tasks.finish(slot, Outcome::data(data, bytes), scene);
}

/// A request ended that is neither a read nor a write, or failed.
#[inline(never)]
fn other_completed(tasks: &mut Tasks, slot: SlotIndex, completion: Completion, scene: &Scene) {
    let Completion {
        token,
        result,
        operation,
    } = completion;
    let task = tasks.task(slot);
    let kind = operation.kind();
    if matches!(task.work, Work::Copying(_)) && kind == OperationKind::Read && result.is_ok() {
        super::copy::keep(task, operation, token);
        return part_ended(tasks, slot, kind, None, scene);
    }
    if let Err(error) = result
        && !(kind == OperationKind::Deallocate && error == VolumeError::Unsupported)
    {
        let outcome = failed(task, error, &operation, scene);
        // Others of it may be under way. The first that failed is told.
        task.outcome.get_or_insert(outcome);
    }
    part_ended(tasks, slot, kind, Some(operation), scene);
}

/// Goes on when all requests of a task that were under way have ended.
fn part_ended(
    tasks: &mut Tasks,
    slot: SlotIndex,
    kind: OperationKind,
    operation: Option<Operation>,
    scene: &Scene,
) {
    let task = tasks.task(slot);
    if task.at.is_revoked() && task.outcome.is_none() && !task.is_done_with(kind) {
        task.outcome = Some(task.revoked_outcome(scene));
    }
    if task.at.outstanding() > 0 {
        return;
    }
    if let Some(outcome) = task.outcome.take() {
        return tasks.finish(slot, outcome, scene);
    }
    go_on(tasks, slot, operation, scene);
}

impl Task {
    /// Tells whether nothing is left to be begun when a request of this kind has ended.
    fn is_done_with(&self, kind: OperationKind) -> bool {
        match &self.work {
            Work::WriteVerify { .. } => kind != OperationKind::Write,
            Work::Verify { blocks, .. } => *blocks == 0,
            Work::Repeat { blocks, .. } => *blocks == 0,
            Work::Unmapping(ranges) => ranges.is_empty(),
            Work::Copying(copying) => copying.is_done(),
            _ => true,
        }
    }
}

/// What a failed request answers its command.
fn failed(task: &Task, error: VolumeError, operation: &Operation, scene: &Scene) -> Outcome {
    let counters = scene.counters();
    counters.failed_commands.add(1);
    if error == VolumeError::Medium {
        counters.media_errors.add(1);
    }
    if task.at.is_revoked() && error == VolumeError::Cancelled {
        return task.revoked_outcome(scene);
    }
    if matches!(task.work, Work::Copying(_)) {
        return Sense::copy_aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE).into();
    }
    let mut error = error;
    if let (Work::Repeat { first, .. }, VolumeError::Miscompare { offset }, Some((lba, _))) =
        (&task.work, &mut error, operation.range())
    {
        // It is told from the first block of the command.
        *offset += (lba - first) << task.block_shift();
    }
    of_volume_error(error, operation)
}

/// Does the next step of a task whose last request ended well, or ends it.
fn go_on(tasks: &mut Tasks, slot: SlotIndex, operation: Option<Operation>, scene: &Scene) {
    let counters = scene.counters();
    let task = tasks.task(slot);
    match task.work {
        Work::Verify { lba, blocks } => return verify_step(tasks, slot, lba, blocks, scene),
        Work::Repeat { .. } => return repeat_step(tasks, slot, scene),
        Work::Unmapping(_) => return super::unmap::go_on(tasks, slot, scene),
        Work::Copying(_) => return super::copy::go_on(tasks, slot, scene),
        Work::WriteVerify {
            lba,
            blocks,
            compares,
        } => {
            if let Some(Operation::Write { data, .. }) = operation {
                counters.bytes_written.add(task.wanted.into());
                let next = match compares {
                    true => Operation::Compare { lba, blocks, data },
                    false => {
                        let blocks = blocks.into();
                        Operation::Verify { lba, blocks }
                    }
                };
                return tasks.submit(slot, CommandKind::Other, next);
            }
            counters.writes.add(1);
        }
        Work::Compare { .. } => counters.reads.add(1),
        Work::CompareWrite { .. } => {
            counters.writes.add(1);
            counters.bytes_written.add((task.wanted / 2).into());
        }
        Work::Zeroes { .. } | Work::WriteSame { .. } => counters.writes.add(1),
        _ => counters.other_commands.add(1),
    }
    tasks.finish(slot, Outcome::good(), scene);
}
