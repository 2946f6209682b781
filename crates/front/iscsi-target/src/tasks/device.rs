//! What commands do: the device server (SPC-4, SBC-3).

mod copy;
mod describe;
mod media;
mod reserve;
mod status;
mod unmap;
mod work;

use std::rc::Rc;

use weir_iscsi::pdu::TaskAttribute;
use weir_memory::{View, Views};
use weir_scsi::cdb::{CdbError, Command};
use weir_scsi::lun::{Lun as Address, report_luns};
use weir_scsi::opcodes::supported_operation_codes;
use weir_scsi::sense::{AdditionalSense, FieldPointer, Sense, SenseFormat};
use weir_scsi::task::TaskFunctions;
use weir_scsi::truncate;

pub(crate) use reserve::outcome_of;
pub(crate) use work::{REQUESTS_MAX, Work, completed, run};

use crate::attention::Attentions;
use crate::scene::{AttachedLun, Scene};
use crate::tasks::task::{Outcome, Task};

/// What commands for a logical unit are answered that is not there.
pub(crate) const NO_SUCH_LUN: Sense = Sense::unit_not_supported();

/// Task management functions that every logical unit has.
const FUNCTIONS: TaskFunctions = TaskFunctions {
    abort_task: true,
    abort_task_set: true,
    clear_aca: false,
    clear_task_set: true,
    logical_unit_reset: true,
    query_task: false,
    target_reset: true,
    query_asynchronous_event: false,
    query_task_set: false,
    i_t_nexus_reset: false,
};

/// The number of a logical unit as an initiator wrote it.
#[inline]
pub(crate) fn lun_number(lun: u64) -> Option<u16> {
    match Address::parse(&lun.to_be_bytes()) {
        Ok(Address::Unit(number)) => Some(number),
        _ => None,
    }
}

/// Looks what a task is to do.
///
/// # Errors
/// What it is answered, where nothing is left to be done: it failed, or its answer is known.
#[inline]
pub(crate) fn plan(
    task: &mut Task,
    scene: &Scene,
    attentions: &mut Attentions,
) -> Result<(), Outcome> {
    let command = Command::parse(&task.cdb);
    let lun = task.number.and_then(|number| scene.lun(number));
    match (command, lun) {
        (Ok(command @ (Command::Read { .. } | Command::Write { .. })), Some(lun))
            if attentions.is_empty()
                && task.attribute != TaskAttribute::Aca
                && scene.allows(lun, reserve::access_of(&command)) =>
        {
            media::plan_transfer(task, command, lun, scene)
        }
        (command, lun) => plan_other(task, command, lun, scene, attentions),
    }
}

#[inline(never)]
fn plan_other(
    task: &mut Task,
    command: Result<Command, CdbError>,
    lun: Option<&Rc<AttachedLun>>,
    scene: &Scene,
    attentions: &mut Attentions,
) -> Result<(), Outcome> {
    if task.attribute == TaskAttribute::Aca {
        // There is no ACA.
        let additional = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
        return Err(Sense::illegal_request(additional).into());
    }
    // These are answered whatever waits to be told, and where there is no logical unit (SAM-5, section 5.14).
    match command {
        Ok(Command::Inquiry {
            page,
            allocation_length,
        }) => {
            let data = describe::inquiry(page, lun, scene)?;
            return Err(answer(data, allocation_length));
        }
        Ok(Command::ReportLuns {
            select,
            allocation_length,
        }) => {
            let data = luns(select, scene)?;
            attentions.forget(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
            return Err(answer(data, allocation_length));
        }
        Ok(Command::RequestSense {
            descriptor,
            allocation_length,
        }) => {
            let data = pending_sense(
                descriptor,
                task.number.filter(|_| lun.is_some()),
                attentions,
            );
            return Err(answer(data, allocation_length));
        }
        _ => {}
    }
    let lun = lun.ok_or(NO_SUCH_LUN)?;
    if let Some(condition) = attentions.take(lun.export.number) {
        return Err(Sense::unit_attention(condition).into());
    }
    let command = command.map_err(Sense::from)?;
    if !scene.allows(lun, reserve::access_of(&command)) {
        return Err(Outcome::conflict());
    }
    match command {
        command @ (Command::Read { .. } | Command::Write { .. }) => {
            media::plan_transfer(task, command, lun, scene)
        }
        command @ (Command::WriteAndVerify { .. }
        | Command::Verify { .. }
        | Command::CompareAndWrite { .. }
        | Command::SynchronizeCache { .. }
        | Command::WriteSame(_)
        | Command::Unmap { .. }) => media::plan(task, command, lun, scene),
        Command::StartStopUnit {
            start,
            load_eject,
            no_flush,
            power_condition,
        } => {
            // Nothing can be ejected, and there is one power condition. A disk that others use too goes on running when one of them
            // stops it, but what was written is made durable.
            if load_eject || power_condition != 0 {
                let bit = if load_eject { 1 } else { 7 };
                return Err(Sense::invalid_field(FieldPointer::cdb_bit(4, bit)).into());
            }
            match start || no_flush {
                true => Err(Outcome::good()),
                false => media::assign(task, lun, Work::Flush, 0),
            }
        }
        Command::ModeSelect {
            is_long,
            save,
            list_length,
        } => {
            if save {
                // Nothing is saved.
                return Err(Sense::invalid_field(FieldPointer::cdb_bit(1, 0)).into());
            }
            if list_length > describe::MODE_LIST_BYTES_MAX {
                return Err(Sense::parameter_list_length().into());
            }
            media::assign(task, lun, Work::ModeSelect { is_long }, list_length)
        }
        Command::ExtendedCopy { list_length } => {
            if list_length > copy::LIST_BYTES_MAX {
                return Err(Sense::parameter_list_length().into());
            }
            media::assign(task, lun, Work::CopyList, list_length)
        }
        Command::Reserve => {
            reserve::of(lun)?;
            media::assign(task, lun, Work::ReserveUnit, 0)
        }
        Command::Release => {
            reserve::of(lun)?;
            media::assign(task, lun, Work::ReleaseUnit, 0)
        }
        Command::PersistentReserveOut(out) => {
            reserve::of(lun)?;
            reserve::check_out(&out)?;
            media::assign(task, lun, Work::ReserveOut(out), out.list_length)
        }
        Command::PersistentReserveIn {
            action,
            allocation_length,
        } => Err(answer(
            reserve::report(action, lun, scene)?,
            allocation_length,
        )),
        command => Err(report(&command, lun, scene)),
    }
}

/// The answer to a command that asks for data about the logical unit or does nothing.
fn report(command: &Command, lun: &AttachedLun, scene: &Scene) -> Outcome {
    let (data, allocation_length) = match *command {
        // Media stay in their place, whoever may ask for what.
        Command::TestUnitReady | Command::PreventAllowMediumRemoval { .. } => {
            return Outcome::good();
        }
        Command::ReadCapacity10 => (describe::capacity(lun).encode_10().to_vec(), u32::MAX),
        Command::ReadCapacity16 { allocation_length } => {
            let data = describe::capacity(lun).encode_16().to_vec();
            (data, allocation_length)
        }
        Command::ModeSense(sense) => match describe::mode_sense(&sense, lun) {
            Ok(data) => (data, sense.allocation_length),
            Err(sense) => return sense.into(),
        },
        Command::ReportTargetPortGroups {
            extended,
            allocation_length,
        } => (describe::port_groups(extended), allocation_length),
        Command::ReportSupportedOperationCodes {
            timeouts,
            reporting,
            allocation_length,
        } => match supported_operation_codes(reporting, timeouts) {
            Ok(data) => (data, allocation_length),
            Err(sense) => return sense.into(),
        },
        Command::ReportSupportedTaskManagementFunctions {
            extended,
            allocation_length,
        } => {
            let data = match extended {
                true => FUNCTIONS.encode_extended(None).to_vec(),
                false => FUNCTIONS.encode().to_vec(),
            };
            (data, allocation_length)
        }
        Command::ReceiveCopyOperatingParameters { allocation_length } => {
            (copy::operating_parameters(lun), allocation_length)
        }
        ref other => unreachable!("{other:?} was planned before"),
    };
    let _ = scene;
    answer(data, allocation_length)
}

/// An answer with data that the initiator wants so much of at most.
fn answer(mut data: Vec<u8>, allocation_length: u32) -> Outcome {
    truncate(&mut data, allocation_length);
    let length = data.len() as u32;
    let mut views = Views::new();
    if length > 0 {
        views.push(View::copy_of(&data));
    }
    Outcome::data(views, length)
}

/// REPORT LUNS data.
fn luns(select: u8, scene: &Scene) -> Result<Vec<u8>, Sense> {
    let numbers = match select {
        0x00 | 0x02 => scene.luns(),
        // Well-known logical units: none.
        0x01 => &[],
        _ => return Err(Sense::invalid_field(FieldPointer::cdb(2))),
    };
    let unit = |lun: &Rc<AttachedLun>| Address::Unit(lun.export.number);
    let luns: Vec<_> = numbers.iter().map(unit).collect();
    Ok(report_luns(&luns))
}

/// What waits to be told, as REQUEST SENSE asks for it.
fn pending_sense(descriptor: bool, lun: Option<u16>, attentions: &mut Attentions) -> Vec<u8> {
    let sense = match lun {
        None => NO_SUCH_LUN,
        Some(lun) => match attentions.take(lun) {
            Some(condition) => Sense::unit_attention(condition),
            None => Sense::none(),
        },
    };
    let format = match descriptor {
        true => SenseFormat::Descriptor,
        false => SenseFormat::Fixed,
    };
    sense.encode(format).to_vec()
}
