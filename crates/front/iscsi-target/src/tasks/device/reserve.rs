//! RESERVE, RELEASE, and PERSISTENT RESERVE IN and OUT (SPC-2, SPC-4), and what reservations let other commands do.

use std::sync::Arc;

use weir_front::Reservations;
use weir_reservation::{Access, Nexus, Operation, Proof, Refused, ReservationType};
use weir_scsi::cdb::{Command, ReserveOut};
use weir_scsi::reservation::{
    RegisterAndMoveList, ReserveInAction, ReserveOutAction, ReserveOutList, TransportId,
};
use weir_scsi::sense::{FieldPointer, Sense};

use super::describe::PORT;
use super::work::{Work, bytes_of};
use crate::config::PORTAL_GROUP;
use crate::registry::Message;
use crate::scene::{AttachedLun, Scene};
use crate::tasks::Tasks;
use crate::tasks::task::{Outcome, SlotIndex};

/// The longest parameter list of PERSISTENT RESERVE OUT that is taken, in bytes: with the longest name of an initiator port.
pub(super) const LIST_BYTES_MAX: u32 = 512;
/// Byte of RELATIVE TARGET PORT IDENTIFIER in the list of REGISTER AND MOVE.
const RELATIVE_PORT_BYTE: u16 = 18;

/// Class of a command, as reservations tell commands apart (SPC-4 tables 66 and 67, SBC-3 table 16).
pub(super) fn access_of(command: &Command) -> Access {
    match command {
        Command::Read { .. }
        | Command::Verify { .. }
        | Command::ModeSense(_)
        | Command::ReportSupportedOperationCodes { .. }
        | Command::ReportSupportedTaskManagementFunctions { .. } => Access::Read,
        Command::Write { .. }
        | Command::WriteAndVerify { .. }
        | Command::CompareAndWrite { .. }
        | Command::SynchronizeCache { .. }
        | Command::Unmap { .. }
        | Command::WriteSame(_)
        | Command::ModeSelect { .. }
        | Command::ExtendedCopy { .. } => Access::Write,
        Command::StartStopUnit { start: false, .. } => Access::Write,
        Command::PreventAllowMediumRemoval { prevent: 1.. } => Access::Write,
        Command::StartStopUnit { .. }
        | Command::PreventAllowMediumRemoval { .. }
        | Command::TestUnitReady
        | Command::ReadCapacity10
        | Command::ReadCapacity16 { .. }
        | Command::ReceiveCopyOperatingParameters { .. } => Access::Status,
        Command::PersistentReserveIn { .. } => Access::Report,
        // The table judges these, which knows their keys.
        Command::Reserve | Command::Release | Command::PersistentReserveOut(_) => Access::Exempt,
        Command::Inquiry { .. }
        | Command::ReportLuns { .. }
        | Command::RequestSense { .. }
        | Command::ReportTargetPortGroups { .. } => Access::Exempt,
    }
}

/// The reservations of a logical unit.
///
/// # Errors
/// It has none.
pub(super) fn of(lun: &AttachedLun) -> Result<&Arc<Reservations>, Sense> {
    let reservations = lun.export.reservations.as_ref();
    reservations.ok_or(Sense::invalid_operation_code())
}

/// Checks PERSISTENT RESERVE OUT before its list comes.
pub(super) fn check_out(out: &ReserveOut) -> Result<(), Sense> {
    if out.list_length > LIST_BYTES_MAX {
        return Err(Sense::parameter_list_length());
    }
    let looks_at_scope = matches!(
        out.action,
        ReserveOutAction::Reserve
            | ReserveOutAction::Release
            | ReserveOutAction::Preempt
            | ReserveOutAction::PreemptAndAbort
    );
    if looks_at_scope && out.scope != 0 {
        return Err(Sense::invalid_field(FieldPointer::cdb_bit(2, 7)));
    }
    Ok(())
}

/// PERSISTENT RESERVE IN data.
pub(super) fn report(
    action: ReserveInAction,
    lun: &AttachedLun,
    scene: &Scene,
) -> Result<Vec<u8>, Sense> {
    let table = of(lun)?.table();
    let target = scene.target().map(|name| name.as_str());
    // Each target has one port of that number; those of others are none of its own.
    let port = |nexus: &Nexus| match target == Some(&*nexus.target) {
        true => PORT,
        false => 0,
    };
    Ok(match action {
        ReserveInAction::ReadKeys => table.registered_keys().encode(),
        ReserveInAction::ReadReservation => table.reservation_status().encode(),
        ReserveInAction::ReportCapabilities => table.capabilities().encode(),
        ReserveInAction::ReadFullStatus => table.full_status(port).encode(),
        ReserveInAction::Other(_) => unreachable!("it was refused with its CDB"),
    })
}

/// Has the table of the task's volume do what it asks for. Its end comes as a message.
pub(super) fn ask(tasks: &mut Tasks, slot: SlotIndex, scene: &Scene) {
    let task = tasks.task(slot);
    let operation = match &task.work {
        Work::ReserveUnit => Ok(Operation::ReserveUnit),
        Work::ReleaseUnit => Ok(Operation::ReleaseUnit),
        &Work::ReserveOut(out) => operation_of(&out, &bytes_of(&task.take_data()), scene),
        other => unreachable!("{other:?} is no reservation"),
    };
    let operation = match operation {
        Ok(operation) => operation,
        Err(sense) => return tasks.finish(slot, sense.into(), scene),
    };
    task.work = Work::Asked;
    let (lun, uses) = (task.at.attached.clone().expect("it has one"), task.uses);
    let reservations = of(&lun).expect("it was planned so");
    if matches!(operation, Operation::ReserveUnit) {
        tasks.may_shut(reservations);
    }
    let registrant = scene.registrant.clone().expect("it has logical units");
    let handle = scene.line.entry.handle.clone();
    reservations.ask(registrant, operation, move |result| {
        // The session may have ended meanwhile.
        let _ = handle.tell(Message::Reserved { slot, uses, result });
    });
}

/// What a PERSISTENT RESERVE OUT with this list asks for.
fn operation_of(out: &ReserveOut, list: &[u8], scene: &Scene) -> Result<Operation, Sense> {
    if out.action == ReserveOutAction::RegisterAndMove {
        return move_of(list, scene);
    }
    let list = ReserveOutList::parse(list, out.action)?;
    let ReserveOutList {
        key,
        action_key,
        persists,
    } = list;
    let kind = ReservationType::from_scsi(out.kind);
    let persistence = Some(persists);
    Ok(match out.action {
        ReserveOutAction::Register => Operation::Enroll {
            proof: Proof::Key(key),
            key: action_key,
            persistence,
        },
        ReserveOutAction::RegisterAndIgnoreExistingKey => Operation::Enroll {
            proof: Proof::Ignored,
            key: action_key,
            persistence,
        },
        ReserveOutAction::Reserve => Operation::Reserve { key, kind },
        ReserveOutAction::Release => Operation::Release { key, kind },
        ReserveOutAction::Clear => Operation::Clear { key },
        ReserveOutAction::Preempt | ReserveOutAction::PreemptAndAbort => Operation::Preempt {
            key,
            victims: action_key,
            kind,
            aborts: out.action == ReserveOutAction::PreemptAndAbort,
        },
        ReserveOutAction::RegisterAndMove
        | ReserveOutAction::ReplaceLostReservation
        | ReserveOutAction::Other(_) => unreachable!("handled or refused before"),
    })
}

fn move_of(list: &[u8], scene: &Scene) -> Result<Operation, Sense> {
    let list = RegisterAndMoveList::parse(list)?;
    if list.relative_port != PORT {
        return Err(Sense::invalid_field(FieldPointer::list(RELATIVE_PORT_BYTE)));
    }
    let TransportId::IscsiPort { name, isid } = list.transport else {
        unreachable!("a list that names no port was refused")
    };
    let target = scene.target().expect("it has logical units");
    Ok(Operation::Move {
        key: list.key,
        other_key: list.action_key,
        other: Nexus {
            initiator: name,
            isid,
            target: target.as_str().into(),
            portal_group: PORTAL_GROUP,
        },
        unregisters: list.unregisters,
        persistence: Some(list.persists),
    })
}

/// What a command is answered whose operation was refused, or has ended.
pub(crate) fn outcome_of(result: Result<(), Refused>) -> Outcome {
    match result {
        Ok(()) => Outcome::good(),
        Err(refused) => match refused.sense() {
            Some(sense) => sense.into(),
            None => Outcome::conflict(),
        },
    }
}
