//! Reservations, of a target that has none (group 27).
//!
//! ONCS and RESCAP say that there are none, and each of the commands is an opcode that is not there. The inputs that need reservations are
//! listed, and do not apply yet.

use weir_nvme::command::NvmCommand;
use weir_nvme::identify::OptionalNvmCommands;

use super::hosts::{Disk, INVALID_OPCODE};
use crate::case::{Failure, check};
use crate::context::Context;

cases! {
    27 reservations_are_not_offered [] "NVMe Base 2.0c 5.17.2.1 (ONCS); NVM Command Set 1.0c 4.1.5.1 (RESCAP)"
        : "Identify Controller and Namespace" => "ONCS without reservations, and RESCAP 0";
    27 reservation_register [] "NVMe Base 2.0c 3.3.3.2.1.1, 7.3"
        : "Reservation Register, whole and with a short key buffer" => "Invalid Command Opcode";
    27 reservation_register_ignoring_the_key [] "NVMe Base 2.0c 3.3.3.2.1.1, 7.3"
        : "Reservation Register with IEKEY" => "Invalid Command Opcode";
    27 reservation_acquire [] "NVMe Base 2.0c 3.3.3.2.1.1, 7.2"
        : "Reservation Acquire of every type, preempt, and preempt and abort" => "Invalid Command Opcode";
    27 reservation_release [] "NVMe Base 2.0c 3.3.3.2.1.1, 7.4"
        : "Reservation Release and clear" => "Invalid Command Opcode";
    27 reservation_report [] "NVMe Base 2.0c 3.3.3.2.1.1, 7.5"
        : "Reservation Report, in both forms" => "Invalid Command Opcode";
    27 reservation_registrants_not_sessions not applicable "reservations are not implemented"
        : "two controllers of one host that registers once" => "one registrant";
    27 reservation_holder_changes_its_key not applicable "reservations are not implemented"
        : "the holder that replaces its key" => "the holder stays the holder, with the new key";
    27 reservation_more_than_16_registrants not applicable "reservations are not implemented"
        : "17 registrants with persistence (CVE-2025-57275)" => "all of them, or a status; after a restart too";
    27 reservation_short_key_buffer not applicable "reservations are not implemented"
        : "a Register whose buffer holds half a key" => "Data SGL Length Invalid";
    27 reservation_wrong_key not applicable "reservations are not implemented"
        : "Acquire, Release and Register with another key, with and without IEKEY" => "Reservation Conflict where the key counts";
    27 reservation_all_registrants not applicable "reservations are not implemented"
        : "the types for all registrants, and the last registrant that goes" => "every registrant holds it; it is released with the last";
    27 reservation_preempt_that_fails not applicable "reservations are not implemented"
        : "preempt and abort that fails validation" => "no command is aborted, nothing is changed";
}

/// Not of Weir, which has none: there these cases mean nothing.
fn without_reservations(context: &Context) -> Result<Disk, Failure> {
    let commands = context.facts.controller.optional_nvm_commands;
    if commands.contains(OptionalNvmCommands::RESERVATIONS) && !context.manner.exact {
        return Err(Failure::NotOffered(
            "a controller without reservations".into(),
        ));
    }
    Disk::new(context)
}

fn reservations_are_not_offered(context: &mut Context) -> Result<(), Failure> {
    let disk = without_reservations(context)?;
    drop(disk);
    let commands = context.facts.controller.optional_nvm_commands;
    check(
        !commands.contains(OptionalNvmCommands::RESERVATIONS),
        "ONCS",
        "no reservations",
        format!("{commands:?}"),
    )?;
    let capabilities = context.facts.namespace.reservation_capabilities;
    check(capabilities == 0, "RESCAP", "0", capabilities)
}

/// Each variant of a command: CDW10, what goes with it, what is asked for.
fn refused(
    context: &Context,
    what: &str,
    command: NvmCommand,
    variants: &[(u32, &[u8], u32)],
) -> Result<(), Failure> {
    let mut disk = without_reservations(context)?;
    for (cdw10, data, reads) in variants {
        let mut sqe = super::hosts::nvm(command, disk.nsid);
        sqe.cdw10 = *cdw10;
        let what = format!("{what} with CDW10 {cdw10:#x}");
        super::hosts::refused(&mut disk.io, &what, sqe, data, *reads, &[INVALID_OPCODE])?;
    }
    disk.still_works()
}

/// Current key and new key.
const KEYS: [u8; 16] = [7; 16];

fn reservation_register(context: &mut Context) -> Result<(), Failure> {
    let variants = [
        (0, &KEYS[..], 0),
        (1, &KEYS, 0),
        (2, &KEYS, 0),
        (0, &KEYS[..8], 0),
    ];
    refused(
        context,
        "Reservation Register",
        NvmCommand::ReservationRegister,
        &variants,
    )
}

fn reservation_register_ignoring_the_key(context: &mut Context) -> Result<(), Failure> {
    // IEKEY, bit 3 of CDW10.
    let variants = [(1 << 3, &KEYS[..], 0), (1 << 3 | 2, &KEYS, 0)];
    refused(
        context,
        "Reservation Register",
        NvmCommand::ReservationRegister,
        &variants,
    )
}

fn reservation_acquire(context: &mut Context) -> Result<(), Failure> {
    // RACQA, bits 2:0, and RTYPE, bits 15:8.
    let of = |action: u32, kind: u32| (kind << 8 | action, &KEYS[..], 0);
    let mut variants: Vec<_> = (1..=6).map(|kind| of(0, kind)).collect();
    variants.extend([of(1, 1), of(2, 1), of(0, 0xff)]);
    refused(
        context,
        "Reservation Acquire",
        NvmCommand::ReservationAcquire,
        &variants,
    )
}

fn reservation_release(context: &mut Context) -> Result<(), Failure> {
    let variants = [(0x100, &KEYS[..8], 0), (1, &KEYS[..8], 0)];
    refused(
        context,
        "Reservation Release",
        NvmCommand::ReservationRelease,
        &variants,
    )
}

fn reservation_report(context: &mut Context) -> Result<(), Failure> {
    // NUMD in CDW10; the extended form is EDS in CDW11.
    let variants = [(1023, &[][..], 4096), (u32::MAX, &[], 4096)];
    refused(
        context,
        "Reservation Report",
        NvmCommand::ReservationReport,
        &variants,
    )?;
    let mut disk = without_reservations(context)?;
    let mut sqe = super::hosts::nvm(NvmCommand::ReservationReport, disk.nsid);
    (sqe.cdw10, sqe.cdw11) = (1023, 1);
    let what = "Reservation Report with EDS";
    super::hosts::refused(&mut disk.io, what, sqe, &[], 4096, &[INVALID_OPCODE]).map(drop)
}
