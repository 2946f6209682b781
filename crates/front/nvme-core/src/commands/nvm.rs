//! Commands of I/O queues: what they need, what they ask of the volume, how they end.
//!
//! No metadata and no protection information: a command that asks for either is refused.

use std::rc::Rc;

use weir_block::{Completion, DeallocatedRead, Operation, ReadBuffers, VolumeError};
use weir_memory::{View, Views, views_len};
use weir_nvme::command::{
    AdminCommand, Blocks, CommandError, Connect, CopyCommand, CopyRange, DatasetManagement,
    DatasetManagementRange, NvmCommand, PropertyGet, PropertySet, copy_ranges,
    dataset_management_ranges,
};
use weir_nvme::opcode::NvmOpcode;
use weir_nvme::reservation::ReservationReportCommand;
use weir_nvme::sgl::Payload;
use weir_nvme::sqe::Fuse;
use weir_nvme::{Sqe, Status};

use super::queue_pair::{Env, QueuePair, Slot, SlotIndex, check_payload, status_of};
use super::reserve::{self, Reserve, access_of};
use super::status::of_ana_state;
use crate::namespaces::Attached;
use weir_front::{CommandKind, broken_by_volume};

/// Source ranges of one Copy at most (MSRC + 1).
pub(super) const COPY_RANGES_MAX: u16 = 128;
/// Bytes of one source range of a Copy at most (MSSRL).
pub(super) const COPY_RANGE_BYTES_MAX: u32 = 1 << 20;
/// Bytes of all source ranges of a Copy at most (MCL).
pub(super) const COPY_BYTES_MAX: u32 = 16 << 20;
/// Bytes that a Copy moves at a time at most.
const COPY_STEP_BYTES: u32 = 256 << 10;
/// Requests of one connection that run before its Dataset Management commands have no more than one range each under way.
pub(super) const DEALLOCATES_MAX: u32 = 32;
/// The longest list of ranges that a Dataset Management command may bring, in bytes.
const RANGE_LIST_BYTES_MAX: u32 = 4096;

/// Where a command's data is to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// It has none.
    None,
    /// In a buffer of the reactor's pool.
    Buffer,
    /// Where the volume wants data for this range.
    Volume { lba: u64, blocks: u32 },
}

/// What a command is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    None,
    Connect(Connect),
    Disconnect,
    PropertyGet(PropertyGet),
    PropertySet(PropertySet),
    Admin(AdminCommand),
    Read {
        lba: u64,
        blocks: u32,
    },
    Write {
        lba: u64,
        blocks: u32,
        fua: bool,
    },
    Compare {
        lba: u64,
        blocks: u32,
    },
    FusedCompare {
        lba: u64,
        blocks: u32,
    },
    FusedWrite {
        lba: u64,
        blocks: u32,
        fua: bool,
    },
    WriteZeroes {
        lba: u64,
        blocks: u32,
        deallocate: bool,
        fua: bool,
    },
    Verify {
        lba: u64,
        blocks: u32,
    },
    Flush,
    DatasetManagement(DatasetManagement),
    /// The slot has the ranges whose deallocation has not begun.
    Deallocating,
    Copy(CopyCommand),
    /// The slot has the source ranges.
    Copying(CopyProgress),
    Reserve(Reserve),
    ReservationReport {
        /// Bytes that the host wants.
        length: u32,
        is_extended: bool,
    },
}

/// How far a Copy has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyProgress {
    count: u16,
    /// The range that is being copied.
    index: u16,
    /// Blocks of it that are done.
    done: u32,
    /// Blocks of the step in flight, and of the longest.
    step: u32,
    step_blocks_max: u32,
    destination: u64,
    fua: bool,
}

impl Work {
    /// Where data is to be received that is asked for when the command has its turn.
    pub(super) fn space(&self) -> Space {
        match *self {
            Work::Write { lba, blocks, .. }
            | Work::Compare { lba, blocks }
            | Work::FusedCompare { lba, blocks }
            | Work::FusedWrite { lba, blocks, .. } => Space::Volume { lba, blocks },
            Work::Connect(_)
            | Work::Admin(_)
            | Work::DatasetManagement(_)
            | Work::Copy(_)
            | Work::Reserve(_) => Space::Buffer,
            _ => Space::None,
        }
    }

    /// Tells whether it brings no data and yields some, or has the volume read, so that it needs room before it begins.
    #[inline]
    pub(super) fn only_reads(&self) -> bool {
        matches!(
            self,
            Work::Read { .. } | Work::Verify { .. } | Work::ReservationReport { .. }
        )
    }

    /// Bytes that a Copy has in flight beside its list: what it moves at a time. 0 for all others.
    #[inline]
    pub(super) fn copy_step_bytes(&self, env: &Env<'_>) -> u32 {
        match self {
            Work::Copy(_) => COPY_STEP_BYTES.min(env.transfer_bytes_max),
            _ => 0,
        }
    }

    pub(super) fn is_fused(&self) -> bool {
        matches!(self, Work::FusedCompare { .. } | Work::FusedWrite { .. })
    }

    /// Tells whether it is refused where nothing may be written.
    pub(super) fn writes(&self) -> bool {
        match self {
            Work::Write { .. }
            | Work::WriteZeroes { .. }
            | Work::Deallocating
            | Work::Copy(_)
            | Work::Copying(_) => true,
            Work::DatasetManagement(management) => management.deallocate,
            other => other.is_fused(),
        }
    }

    /// The range of one half of a fused pair.
    pub(super) fn fused_range(&self) -> Option<(u64, u32)> {
        match *self {
            Work::FusedCompare { lba, blocks } | Work::FusedWrite { lba, blocks, .. } => {
                Some((lba, blocks))
            }
            _ => None,
        }
    }
}

pub(super) fn refuse<T>(status: Status) -> Result<T, Status> {
    Err(status.with_do_not_retry())
}

impl Slot {
    /// Reads a command of an I/O queue into its slot, or yields the status that refuses it.
    #[inline]
    pub(super) fn plan_nvm(
        &mut self,
        sqe: &Sqe,
        payload: Payload,
        env: &Env<'_>,
    ) -> Result<(), Status> {
        let opcode = NvmOpcode::from_value(sqe.opcode);
        if matches!(opcode, NvmOpcode::Fabrics | NvmOpcode::Other(_)) {
            return Err(CommandError::Opcode { opcode: sqe.opcode }.status());
        }
        if sqe.fuse != Fuse::Normal {
            check_fuse(sqe.fuse, opcode)?;
        }
        let Some(namespace) = env.namespaces.get(sqe.nsid) else {
            return refuse(Status::INVALID_NAMESPACE_OR_FORMAT);
        };
        if let Some(status) = of_ana_state(namespace.export.ana_state) {
            return Err(status);
        }
        if let Some(status) = reserve::refusal(namespace, || access_of(opcode), env.registrant) {
            return Err(status);
        }
        let target = Target { namespace, env };
        // By far the most are of these two kinds, and not written down as a command in between.
        match opcode {
            NvmOpcode::Read => {
                self.work = target.read(&Blocks::from_sqe(sqe), payload)?;
                self.length = 0;
            }
            NvmOpcode::Write => {
                let write = Blocks::from_sqe(sqe);
                self.length = target.write(&write, sqe.fuse)?;
                check_payload(self.length, payload, env.in_capsule_bytes)?;
                let (lba, blocks, fua) = (write.lba, write.blocks, write.force_unit_access);
                self.work = if sqe.fuse == Fuse::Second {
                    Work::FusedWrite { lba, blocks, fua }
                } else {
                    Work::Write { lba, blocks, fua }
                };
            }
            _ => {
                (self.work, self.length) = target.plan(sqe, payload)?;
                check_payload(self.length, payload, env.in_capsule_bytes)?;
            }
        }
        if let Err(error) = namespace.queue.ready() {
            return Err(status_of(error, weir_block::OperationKind::Flush, env));
        }
        self.at.attached = Some(Rc::clone(namespace));
        Ok(())
    }
}

/// Only Compare followed by Write can be fused (NVM Command Set 1.0c, section 3.4).
fn check_fuse(fuse: Fuse, opcode: NvmOpcode) -> Result<(), Status> {
    match (fuse, opcode) {
        (Fuse::Normal, _)
        | (Fuse::First, NvmOpcode::Compare)
        | (Fuse::Second, NvmOpcode::Write) => Ok(()),
        _ => refuse(Status::INVALID_FIELD_IN_COMMAND),
    }
}

/// A command's namespace, for checks.
struct Target<'a> {
    namespace: &'a Rc<Attached>,
    env: &'a Env<'a>,
}

impl Target<'_> {
    /// The work of a command that is neither a read nor a write, and the bytes that it brings.
    #[inline(never)]
    fn plan(&self, sqe: &Sqe, payload: Payload) -> Result<(Work, u32), Status> {
        let work = match NvmCommand::parse(sqe).map_err(CommandError::status)? {
            NvmCommand::Flush => Work::Flush,
            NvmCommand::Read(_) | NvmCommand::Write(_) => unreachable!("planned without a command"),
            NvmCommand::Compare(blocks) => return self.compare(&blocks, sqe.fuse),
            NvmCommand::WriteZeroes(zeroes) => {
                self.writable()?;
                self.range(zeroes.lba, u64::from(zeroes.blocks))?;
                no_protection(zeroes.protection_information)?;
                Work::WriteZeroes {
                    lba: zeroes.lba,
                    blocks: zeroes.blocks,
                    deallocate: zeroes.deallocate,
                    fua: zeroes.force_unit_access,
                }
            }
            NvmCommand::Verify(verify) => {
                self.range(verify.lba, u64::from(verify.blocks))?;
                no_protection(verify.protection_information)?;
                Work::Verify {
                    lba: verify.lba,
                    blocks: verify.blocks,
                }
            }
            NvmCommand::DatasetManagement(management) => {
                if management.deallocate {
                    self.writable()?;
                }
                let length = list_length(payload, management.data_length())?;
                return Ok((Work::DatasetManagement(management), length));
            }
            NvmCommand::Copy(copy) => return self.copy(copy, payload),
            NvmCommand::ReservationRegister
            | NvmCommand::ReservationAcquire
            | NvmCommand::ReservationRelease => {
                reserve::check(self.namespace)?;
                return Reserve::plan(sqe, payload);
            }
            NvmCommand::ReservationReport => {
                reserve::check(self.namespace)?;
                self.report(sqe, payload)?
            }
            NvmCommand::WriteUncorrectable { .. } => {
                return refuse(Status::INVALID_COMMAND_OPCODE);
            }
        };
        Ok((work, 0))
    }

    #[inline]
    fn read(&self, read: &Blocks, payload: Payload) -> Result<Work, Status> {
        let length = self.transfer(read)?;
        if payload != (Payload::Transport { length }) {
            return refuse(Status::DATA_SGL_LENGTH_INVALID);
        }
        Ok(Work::Read {
            lba: read.lba,
            blocks: read.blocks,
        })
    }

    /// Checks a write; its length in bytes.
    #[inline]
    fn write(&self, write: &Blocks, fuse: Fuse) -> Result<u32, Status> {
        self.writable()?;
        if write.directive_type != 0 {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        let length = self.transfer(write)?;
        if fuse == Fuse::Second {
            self.fits_compare_write(write.blocks)?;
        }
        Ok(length)
    }

    fn compare(&self, compare: &Blocks, fuse: Fuse) -> Result<(Work, u32), Status> {
        let length = self.transfer(compare)?;
        let (lba, blocks) = (compare.lba, compare.blocks);
        if fuse == Fuse::First {
            self.writable()?;
            self.fits_compare_write(blocks)?;
            return Ok((Work::FusedCompare { lba, blocks }, length));
        }
        Ok((Work::Compare { lba, blocks }, length))
    }

    fn copy(&self, copy: CopyCommand, payload: Payload) -> Result<(Work, u32), Status> {
        self.writable()?;
        if copy.descriptor_format != 0 || copy.directive_type != 0 {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        no_protection(copy.protection_information_read)?;
        no_protection(copy.protection_information_write)?;
        if copy.ranges > COPY_RANGES_MAX {
            return refuse(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        let length = list_length(payload, copy.data_length())?;
        Ok((Work::Copy(copy), length))
    }

    fn report(&self, sqe: &Sqe, payload: Payload) -> Result<Work, Status> {
        let report = ReservationReportCommand::from_sqe(sqe);
        // Hosts have identifiers of 128 bits here, as in all of Fabrics.
        if !report.is_extended {
            return refuse(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
        }
        if report.length() > u64::from(self.env.transfer_bytes_max) {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        let length = report.length() as u32;
        match payload {
            Payload::Transport { length: buffer } if buffer >= length => {}
            _ => return refuse(Status::DATA_SGL_LENGTH_INVALID),
        }
        Ok(Work::ReservationReport {
            length,
            is_extended: report.is_extended,
        })
    }

    fn writable(&self) -> Result<(), Status> {
        if self.namespace.is_read_only() {
            return refuse(Status::NAMESPACE_IS_WRITE_PROTECTED);
        }
        Ok(())
    }

    fn range(&self, lba: u64, blocks: u64) -> Result<(), Status> {
        if !self.namespace.geometry.get().contains(lba, blocks) {
            return refuse(Status::LBA_OUT_OF_RANGE);
        }
        Ok(())
    }

    fn fits_compare_write(&self, blocks: u32) -> Result<(), Status> {
        if blocks > self.namespace.geometry.get().compare_write_blocks.max(1) {
            return refuse(Status::ATOMIC_WRITE_UNIT_EXCEEDED);
        }
        Ok(())
    }

    /// Checks a transfer; its length in bytes.
    #[inline]
    fn transfer(&self, blocks: &Blocks) -> Result<u32, Status> {
        no_protection(blocks.protection_information)?;
        let geometry = self.namespace.geometry.get();
        let count = u64::from(blocks.blocks);
        let bytes = count << geometry.block_size.shift();
        if bytes > u64::from(self.env.transfer_bytes_max) {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        if !geometry.contains(blocks.lba, count) {
            return refuse(Status::LBA_OUT_OF_RANGE);
        }
        Ok(bytes as u32)
    }
}

/// PRACT asks the controller to make protection information, which no namespace has (NVM Command Set 1.0c, section 5.2.1.1:
/// without protection information PRINFO is ignored, but for this).
fn no_protection(protection_information: u8) -> Result<(), Status> {
    const PRACT: u8 = 0b1000;
    if protection_information & PRACT != 0 {
        return refuse(Status::INVALID_PROTECTION_INFORMATION);
    }
    Ok(())
}

/// The length of a list of ranges: hosts may send a longer buffer than the ranges need.
pub(super) fn list_length(payload: Payload, needed: u32) -> Result<u32, Status> {
    let length = payload.length();
    if length < needed || length > RANGE_LIST_BYTES_MAX.max(needed) {
        return refuse(Status::DATA_SGL_LENGTH_INVALID);
    }
    Ok(length)
}

impl QueuePair {
    /// Starts a command whose data is there.
    pub(super) fn run(&mut self, slot: SlotIndex, env: &Env<'_>) {
        match self.slot(slot).work {
            Work::Read { lba, blocks } => {
                let buffers = ReadBuffers::Lend;
                let read = Operation::Read {
                    lba,
                    blocks,
                    buffers,
                };
                self.submit_now(slot, CommandKind::Read, read);
            }
            Work::Write { lba, blocks, fua } => {
                let data = self.take_data(slot);
                let write = Operation::Write {
                    lba,
                    blocks,
                    data,
                    fua,
                };
                self.submit_now(slot, CommandKind::Write, write);
            }
            _ => self.run_other(slot, env),
        }
    }

    /// Starts a command of an I/O queue that is neither a read nor a write.
    pub(super) fn run_nvm(&mut self, slot: SlotIndex, env: &Env<'_>) {
        let operation = match self.slot(slot).work {
            Work::Compare { lba, blocks } => Operation::Compare {
                lba,
                blocks,
                data: self.take_data(slot),
            },
            Work::WriteZeroes {
                lba,
                blocks,
                deallocate,
                fua,
            } => Operation::WriteZeroes {
                lba,
                blocks: u64::from(blocks),
                deallocate,
                fua,
            },
            Work::Verify { lba, blocks } => return self.verify_step(slot, lba, blocks, env),
            Work::Flush => Operation::Flush,
            Work::DatasetManagement(management) => {
                return self.run_dataset_management(slot, management, env);
            }
            Work::Copy(copy) => return self.run_copy(slot, copy, env),
            Work::Reserve(reserve) => return self.run_reserve(slot, reserve),
            Work::ReservationReport {
                length,
                is_extended,
            } => return self.run_report(slot, length, is_extended),
            ref other => unreachable!("{other:?} is not a command of an I/O queue"),
        };
        self.submit(slot, CommandKind::Other, operation);
    }

    /// Verifies the first of the blocks that are left, and notes the others.
    #[inline(never)]
    fn verify_step(&mut self, slot: SlotIndex, lba: u64, blocks: u32, env: &Env<'_>) {
        let entry = self.slot(slot);
        let step = entry.verify_step_blocks(env);
        entry.work = Work::Verify {
            lba: lba + u64::from(step),
            blocks: blocks - step,
        };
        let blocks = u64::from(step);
        let verify = Operation::Verify { lba, blocks };
        self.submit(slot, CommandKind::Other, verify);
    }

    /// Takes the list of ranges that a command brought, in one piece. A reserve that has the list is lent for good: what the command's
    /// requests bring back is other memory.
    fn take_list(&mut self, slot: SlotIndex) -> View {
        self.slot(slot).reserve = false;
        let mut views = self.take_data(slot);
        assert_eq!(views.len(), 1, "a list is received into one buffer");
        views.pop().expect("just counted")
    }

    #[inline(never)]
    fn run_dataset_management(
        &mut self,
        slot: SlotIndex,
        management: DatasetManagement,
        env: &Env<'_>,
    ) {
        let list = self.take_list(slot);
        let namespace = self.slot(slot).at.attached.clone().expect("it has one");
        let geometry = namespace.geometry.get();
        let within =
            |range: DatasetManagementRange| geometry.contains(range.lba, u64::from(range.blocks));
        if !ranges_of(&list, &management).all(within) {
            return self.finish(slot, Status::LBA_OUT_OF_RANGE.with_do_not_retry());
        }
        let works = management.deallocate && geometry.deallocate_blocks > 0;
        if !works {
            // Hints that there is no use for; deallocation is one too.
            return self.finish(slot, Status::SUCCESS);
        }
        let bytes = usize::from(management.ranges) * DatasetManagementRange::SIZE;
        let entry = self.slot(slot);
        entry.work = Work::Deallocating;
        entry.ranges = Some(list.slice(0..bytes));
        self.deallocate_next(slot, env);
    }

    /// Begins to deallocate as many of the next ranges as may be under way, or ends the command.
    fn deallocate_next(&mut self, slot: SlotIndex, env: &Env<'_>) {
        loop {
            let running = self.requests_running();
            let entry = self.slot(slot);
            if entry.at.outstanding() > 0 && running >= DEALLOCATES_MAX {
                return;
            }
            let ranges = entry.ranges.as_mut().expect("a deallocation in progress");
            let range = match (entry.status.is_success(), entry.revoked) {
                (true, None) => next_range(ranges),
                (true, Some(status)) => {
                    if !ranges.is_empty() {
                        entry.status = status;
                    }
                    None
                }
                // One that failed is the last.
                (false, _) => None,
            };
            match range {
                Some(range) => {
                    let (lba, blocks) = (range.lba, u64::from(range.blocks));
                    let deallocate = Operation::Deallocate { lba, blocks };
                    self.submit(slot, CommandKind::Other, deallocate);
                }
                None if entry.at.outstanding() > 0 => return,
                None => break,
            }
        }
        let status = self.slot(slot).status;
        if status.is_success() {
            env.counters.other_commands.add(1);
        }
        self.finish(slot, status);
    }

    #[inline(never)]
    fn run_copy(&mut self, slot: SlotIndex, copy: CopyCommand, env: &Env<'_>) {
        let list = self.take_list(slot);
        let namespace = self.slot(slot).at.attached.clone().expect("it has one");
        if let Err(status) = check_copy(&copy, &list, &namespace) {
            return self.finish(slot, status);
        }
        let shift = namespace.geometry.get().block_size.shift();
        let entry = self.slot(slot);
        let step_bytes = entry.work.copy_step_bytes(env);
        entry.ranges = Some(list);
        entry.work = Work::Copying(CopyProgress {
            step_blocks_max: (step_bytes >> shift).max(1),
            count: copy.ranges,
            index: 0,
            done: 0,
            step: 0,
            destination: copy.destination_lba,
            fua: copy.force_unit_access,
        });
        self.copy_step(slot);
    }

    /// Reads the next piece of a Copy, or ends it.
    fn copy_step(&mut self, slot: SlotIndex) {
        let entry = self.slot(slot);
        let Work::Copying(progress) = &mut entry.work else {
            unreachable!("a copy in progress")
        };
        if progress.index == progress.count {
            return self.finish(slot, Status::SUCCESS);
        }
        if let Some(status) = entry.revoked {
            return self.end_copy(slot, status);
        }
        let range = progress.range(entry.ranges.as_ref());
        progress.step = (range.blocks() - progress.done).min(progress.step_blocks_max);
        let operation = Operation::Read {
            lba: range.lba + u64::from(progress.done),
            blocks: progress.step,
            buffers: ReadBuffers::Lend,
        };
        self.submit(slot, CommandKind::Other, operation);
    }

    /// Ends a Copy that is not done.
    fn end_copy(&mut self, slot: SlotIndex, status: Status) {
        let entry = self.slot(slot);
        if let Work::Copying(progress) = &entry.work {
            // The lowest source range that was not copied whole.
            entry.result = u64::from(progress.index);
        }
        self.finish(slot, status);
    }

    fn copy_completed(&mut self, slot: SlotIndex, operation: Operation, env: &Env<'_>) {
        let entry = self.slot(slot);
        let shift = entry.block_shift();
        let Work::Copying(progress) = &mut entry.work else {
            unreachable!("a copy in progress")
        };
        let data = match operation {
            Operation::Read {
                buffers: ReadBuffers::Filled(data),
                ..
            } if views_len(&data) == (progress.step as usize) << shift => data,
            Operation::Read { .. } => {
                // Not all that was read: there is nothing to write that would be right.
                env.counters.failed_commands.add(1);
                return self.end_copy(slot, Status::INTERNAL_ERROR);
            }
            _ => {
                progress.advance(entry.ranges.as_ref());
                return self.copy_step(slot);
            }
        };
        if let Some(status) = entry.revoked {
            return self.end_copy(slot, status);
        }
        let write = Operation::Write {
            lba: progress.destination,
            blocks: progress.step,
            data,
            fua: progress.fua,
        };
        self.submit(slot, CommandKind::Other, write);
    }

    /// A request of a command of an I/O queue ended.
    #[inline]
    pub(super) fn completed_nvm(&mut self, slot: SlotIndex, completion: Completion, env: &Env<'_>) {
        match self.slot(slot).work {
            Work::Read { .. } if completion.result.is_ok() => {
                self.read_completed(slot, completion, env);
            }
            Work::Write { .. } if completion.result.is_ok() => {
                self.write_completed(slot, completion, env);
            }
            Work::FusedWrite { .. } => self.fused_completed(slot, completion, env),
            _ => self.other_completed(slot, completion, env),
        }
    }

    #[inline]
    fn read_completed(&mut self, slot: SlotIndex, completion: Completion, env: &Env<'_>) {
        let Operation::Read {
            blocks,
            buffers: ReadBuffers::Filled(data),
            ..
        } = completion.operation
        else {
            broken_by_volume(completion.token)
        };
        let expected = self.slot(slot).bytes_of(blocks);
        let length = match &data[..] {
            [view] => view.len(),
            views => views_len(views),
        };
        assert_eq!(length as u64, expected, "a volume yields all that was read");
        env.counters.reads.add(1);
        env.counters.bytes_read.add(expected);
        self.finish_with(slot, Status::SUCCESS, data, expected as u32);
    }

    #[inline]
    fn write_completed(&mut self, slot: SlotIndex, completion: Completion, env: &Env<'_>) {
        let Operation::Write { blocks, data, .. } = completion.operation else {
            broken_by_volume(completion.token)
        };
        let entry = self.slot(slot);
        let bytes = entry.bytes_of(blocks);
        env.counters.writes.add(1);
        env.counters.bytes_written.add(bytes);
        if entry.reserve {
            self.recover_reserve(slot, data);
        }
        self.finish(slot, Status::SUCCESS);
    }

    /// A request of a command ended that is neither a read nor a write, or failed.
    #[inline(never)]
    fn other_completed(&mut self, slot: SlotIndex, completion: Completion, env: &Env<'_>) {
        if let Err(error) = completion.result {
            self.request_failed(slot, error, completion.operation.kind(), env);
        }
        let entry = self.slot(slot);
        if matches!(entry.work, Work::Copying(_) | Work::Deallocating) {
            return self.step_completed(slot, completion, env);
        }
        if entry.at.outstanding() > 0 {
            return;
        }
        let status = entry.status;
        if status.is_success() {
            return self.succeed(slot, completion.operation, env);
        }
        if let Some(data) = data_of(completion.operation) {
            self.recover_reserve(slot, data);
        }
        self.finish(slot, status);
    }

    /// A request of a command that has several ended.
    #[inline(never)]
    fn step_completed(&mut self, slot: SlotIndex, completion: Completion, env: &Env<'_>) {
        let entry = self.slot(slot);
        if !matches!(entry.work, Work::Copying(_)) {
            return self.deallocate_next(slot, env);
        }
        let status = entry.status;
        match completion.result {
            Ok(()) => self.copy_completed(slot, completion.operation, env),
            Err(_) => self.end_copy(slot, status),
        }
    }

    fn request_failed(
        &mut self,
        slot: SlotIndex,
        error: VolumeError,
        kind: weir_block::OperationKind,
        env: &Env<'_>,
    ) {
        let deallocate = kind == weir_block::OperationKind::Deallocate;
        if deallocate && error == VolumeError::Unsupported {
            return;
        }
        env.counters.failed_commands.add(1);
        if error == VolumeError::Medium {
            env.counters.media_errors.add(1);
        }
        let entry = self.slot(slot);
        if entry.status.is_success() {
            entry.status = entry.status_of(error, kind, env);
        }
    }

    fn succeed(&mut self, slot: SlotIndex, operation: Operation, env: &Env<'_>) {
        let counters = env.counters;
        match operation {
            Operation::Compare { data, .. } => {
                counters.reads.add(1);
                self.recover_reserve(slot, data);
            }
            Operation::Verify { .. } => {
                let entry = self.slot(slot);
                let revoked = entry.revoked;
                match entry.work {
                    Work::Verify {
                        lba,
                        blocks: blocks @ 1..,
                    } => {
                        return match revoked {
                            Some(status) => self.finish(slot, status),
                            None => self.verify_step(slot, lba, blocks, env),
                        };
                    }
                    _ => counters.reads.add(1),
                }
            }
            Operation::WriteZeroes { .. } => counters.writes.add(1),
            _ => counters.other_commands.add(1),
        }
        self.finish(slot, Status::SUCCESS);
    }

    fn fused_completed(&mut self, second: SlotIndex, completion: Completion, env: &Env<'_>) {
        let first = self
            .slot(second)
            .partner
            .take()
            .expect("a pair runs together");
        self.slot(first).partner = None;
        let Operation::CompareWrite { blocks, data, .. } = completion.operation else {
            unreachable!("a volume gives back what it compared and wrote")
        };
        // At most one half used the reserve; the data of both is in the operation.
        if std::mem::take(&mut self.slot(first).reserve) {
            self.slot(second).reserve = true;
        }
        self.recover_reserve(second, data);
        match completion.result {
            Ok(()) => {
                let bytes = self.slot(second).bytes_of(blocks);
                env.counters.reads.add(1);
                env.counters.writes.add(1);
                env.counters.bytes_written.add(bytes);
                self.finish(first, Status::SUCCESS);
                self.finish(second, Status::SUCCESS);
            }
            Err(error) => {
                env.counters.failed_commands.add(2);
                let kind = weir_block::OperationKind::CompareWrite;
                let status = self.slot(second).status_of(error, kind, env);
                self.finish(first, status);
                self.finish(second, Status::ABORTED_FAILED_FUSED_COMMAND);
            }
        }
    }
}

impl Slot {
    /// The status for a failed request. One that was cancelled has the status of what it was cancelled for.
    fn status_of(
        &self,
        error: VolumeError,
        kind: weir_block::OperationKind,
        env: &Env<'_>,
    ) -> Status {
        let revoked = self.revoked.filter(|_| error == VolumeError::Cancelled);
        revoked.unwrap_or_else(|| status_of(error, kind, env))
    }

    /// Blocks that the next step of a Verify reads: no more than one transfer has.
    fn verify_step_blocks(&self, env: &Env<'_>) -> u32 {
        let Work::Verify { blocks, .. } = self.work else {
            unreachable!("a Verify")
        };
        blocks.min((env.transfer_bytes_max >> self.block_shift()).max(1))
    }

    /// The same in bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn verify_step_bytes(&self, env: &Env<'_>) -> u32 {
        self.verify_step_blocks(env) << self.block_shift()
    }

    /// Bytes of so many blocks.
    fn bytes_of(&self, blocks: u32) -> u64 {
        u64::from(blocks) << self.block_shift()
    }

    fn block_shift(&self) -> u32 {
        let namespace = self.at.attached.as_ref().expect("it has one");
        namespace.geometry.get().block_size.shift()
    }
}

/// The data of a request that brought some.
pub(super) fn data_of(operation: Operation) -> Option<Views> {
    match operation {
        Operation::Write { data, .. }
        | Operation::Compare { data, .. }
        | Operation::CompareWrite { data, .. } => Some(data),
        _ => None,
    }
}

impl CopyProgress {
    fn range(&self, ranges: Option<&View>) -> CopyRange {
        copy_ranges(ranges.expect("a copy in progress"), self.count)
            .expect("the length was checked")
            .nth(usize::from(self.index))
            .expect("an index within the list")
    }

    fn advance(&mut self, ranges: Option<&View>) {
        self.destination += u64::from(self.step);
        self.done += self.step;
        if self.done == self.range(ranges).blocks() {
            self.index += 1;
            self.done = 0;
        }
    }
}

/// The ranges of a Dataset Management command that are not empty.
fn ranges_of(
    list: &View,
    management: &DatasetManagement,
) -> impl Iterator<Item = DatasetManagementRange> {
    dataset_management_ranges(list, management.ranges)
        .expect("the length was checked")
        .filter(|range| range.blocks > 0)
}

/// Takes the next range that is not empty out of a list.
fn next_range(list: &mut View) -> Option<DatasetManagementRange> {
    while let Some(bytes) = list.first_chunk() {
        let range = DatasetManagementRange::decode(bytes);
        list.advance(DatasetManagementRange::SIZE);
        if range.blocks > 0 {
            return Some(range);
        }
    }
    None
}

/// Checks the whole of a Copy before any of it is done.
fn check_copy(copy: &CopyCommand, list: &View, namespace: &Attached) -> Result<(), Status> {
    let geometry = namespace.geometry.get();
    let shift = geometry.block_size.shift();
    let mut blocks = 0_u64;
    for range in copy_ranges(list, copy.ranges).expect("the length was checked") {
        if range.blocks() > COPY_RANGE_BYTES_MAX >> shift {
            return refuse(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        if !geometry.contains(range.lba, u64::from(range.blocks())) {
            return refuse(Status::LBA_OUT_OF_RANGE);
        }
        blocks += u64::from(range.blocks());
    }
    if blocks > u64::from(COPY_BYTES_MAX >> shift) {
        return refuse(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
    }
    if !geometry.contains(copy.destination_lba, blocks) {
        return refuse(Status::LBA_OUT_OF_RANGE);
    }
    Ok(())
}

/// DLFEAT: what deallocated blocks read as, and whether Write Zeroes may deallocate (NVM Command Set 1.0c, section 4.1.5.1).
pub(super) fn deallocate_features(read: DeallocatedRead) -> u8 {
    const READS_ZEROES: u8 = 0b001;
    const WRITE_ZEROES_DEALLOCATES: u8 = 0b1000;
    match read {
        DeallocatedRead::Zeroes => READS_ZEROES | WRITE_ZEROES_DEALLOCATES,
        DeallocatedRead::Unknown => 0,
    }
}
