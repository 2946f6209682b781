//! Identify by each structure's own rule for the NSID (group 23), and the Number of Queues (group 24).

use weir_nvme::Sqe;
use weir_nvme::Status;
use weir_nvme::command::{
    AdminCommand, FeatureSelect, GetFeatures, GetLogPage, Identify, SetFeatures,
};
use weir_nvme::feature::{FeatureId, NumberOfQueues};
use weir_nvme::identify::{Cns, OptionalAdminCommands, decode_namespace_list};
use weir_nvme::log::LogId;
use weir_nvme::sgl::SglDescriptor;

use super::hosts::{
    Disk, INVALID_FIELD, INVALID_LENGTH, INVALID_NAMESPACE, INVALID_OPCODE, SEQUENCE_ERROR,
    admin_refused, judge, refused, refused_bare, set_queues,
};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::queue::Queue;

cases! {
    23 identify_longer_buffer [] "NVMe Base 2.0c 5.17, 3.3.3.2.1"
        : "Identify with a buffer of 8192 bytes" => "4096 bytes, or a whole buffer, or Data SGL Length Invalid";
    23 identify_shorter_buffer [] "NVMe Base 2.0c 5.17, 3.3.3.2.1"
        : "Identify with a buffer of 512 bytes" => "Data SGL Length Invalid, or Invalid Field in Command, and no byte more than 512";
    23 identify_without_buffer [] "NVMe Base 2.0c 5.17, 3.3.3.2.1"
        : "Identify without a buffer" => "Data SGL Length Invalid, or Invalid Field in Command";
    23 identify_namespace_zero [] "NVMe Base 2.0c 5.17.1; NVM Command Set 1.0c 4.1.5.1"
        : "CNS 00h with NSID 0" => "Invalid Namespace or Format";
    23 identify_namespace_inactive [] "NVMe Base 2.0c 5.17.1; NVM Command Set 1.0c 4.1.5.1"
        : "CNS 00h with an inactive NSID" => "zeroes";
    23 identify_namespace_above_nn [] "NVMe Base 2.0c 5.17.1, 3.2.1.2"
        : "CNS 00h with an NSID above NN" => "Invalid Namespace or Format";
    23 identify_namespace_fffffffe [] "NVMe Base 2.0c 5.17.1, 3.2.1.2"
        : "CNS 00h with NSID FFFFFFFEh" => "Invalid Namespace or Format";
    23 identify_namespace_all [] "NVMe Base 2.0c 5.17.1, 3.2.1.2"
        : "CNS 00h with NSID FFFFFFFFh" => "Invalid Namespace or Format; with Namespace Management what all have in common";
    23 identify_active_list [] "NVMe Base 2.0c 5.17.2.2"
        : "CNS 02h from NSID 0, and from the last one" => "the active namespaces; none";
    23 identify_active_list_fffffffe [] "NVMe Base 2.0c 5.17.2.2"
        : "CNS 02h with NSID FFFFFFFEh and FFFFFFFFh" => "Invalid Namespace or Format";
    23 identify_descriptors_of_none [] "NVMe Base 2.0c 5.17.2.3"
        : "CNS 03h with NSID 0, an inactive one, FFFFFFFEh and FFFFFFFFh" => "Invalid Namespace or Format";
    23 identify_command_set_namespace [] "NVMe Base 2.0c 5.17.2.5"
        : "CNS 05h with NSID 0, FFFFFFFEh and FFFFFFFFh" => "Invalid Namespace or Format";
    23 identify_independent_namespace [] "NVMe Base 2.0c 5.17.2.8"
        : "CNS 08h with NSID 0, FFFFFFFEh and FFFFFFFFh" => "Invalid Namespace or Format";
    23 identify_other_command_set [] "NVMe Base 2.0c 5.17.2.5, 5.17.2.6, 5.17.2.7"
        : "CNS 05h, 06h and 07h of command set FFh" => "Invalid I/O Command Set, or Invalid Field in Command";
    23 identify_unknown_structure [] "NVMe Base 2.0c 5.17.1"
        : "CNS 1Fh and FFh" => "Invalid Field in Command";
    23 identify_other_controller [] "NVMe Base 2.0c 5.17.2.18"
        : "CNS 1Ch with the CNTID of nobody" => "Invalid Field in Command";
    23 unknown_opcode [] "NVMe Base 2.0c 3.3.3.2.1.1, 5"
        : "reserved and vendor specific admin opcodes" => "Invalid Command Opcode";
    23 log_page_unknown [] "NVMe Base 2.0c 5.16"
        : "Get Log Page of LID 7Fh" => "Invalid Log Page, or Invalid Field in Command";
    23 log_page_offset_past_the_end [] "NVMe Base 2.0c 5.16"
        : "the SMART log from offset 4096" => "Invalid Field in Command";
    23 log_page_maximum_length [] "NVMe Base 2.0c 5.16, 5.17.2.1 (MDTS)"
        : "the SMART log with NUMD FFFFFFFFh and a buffer of 2^32 - 4 bytes" => "Invalid Field in Command, or Data SGL Length Invalid";
    23 smart_log_of_a_namespace [] "NVMe Base 2.0c 5.16.1.3"
        : "the SMART log of one namespace, which LPA does not offer" => "Invalid Field in Command, or Invalid Namespace or Format";

    24 number_of_queues_reserved [] "NVMe Base 2.0c 5.27.1.5"
        : "NSQR FFFFh, NCQR FFFFh, and both" => "Invalid Field in Command";
    24 number_of_queues_largest [] "NVMe Base 2.0c 5.27.1.5"
        : "NSQR and NCQR FFFEh" => "as many as there may be";
    24 number_of_queues_with_io_queues [] "NVMe Base 2.0c 5.27.1.5"
        : "Number of Queues after an I/O queue was made" => "Command Sequence Error";
    24 number_of_queues_saved [] "NVMe Base 2.0c 5.27"
        : "Number of Queues with SV set" => "Feature Identifier Not Saveable, or Invalid Field in Command";
    24 feature_unknown [] "NVMe Base 2.0c 5.15, 5.27"
        : "Get and Set Features of FID 00h and BFh" => "Invalid Field in Command";
    24 feature_select_reserved [] "NVMe Base 2.0c 5.15"
        : "Get Features with a reserved SEL" => "Invalid Field in Command";
    24 feature_of_a_namespace [] "NVMe Base 2.0c 5.27"
        : "Number of Queues with an NSID" => "Feature Not Namespace Specific, or Invalid Field in Command";
}

fn identify(cns: Cns, nsid: u32) -> AdminCommand {
    AdminCommand::Identify(Identify::new(cns, nsid))
}

fn identify_longer_buffer(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let sqe = identify(Cns::Controller, 0).sqe(0, SglDescriptor::NONE);
    let (cqe, data) = admin.command(sqe, &[], 8192)?;
    let what = "Identify with 8192 bytes";
    let statuses = [
        Status::SUCCESS,
        Status::DATA_SGL_LENGTH_INVALID,
        Status::INVALID_FIELD_IN_COMMAND,
    ];
    judge(&mut admin, what, cqe, &statuses)?;
    if cqe.status.is_success() {
        let whole = data.len() == 4096 || data.len() == 8192 && !context.manner.exact;
        check(whole, what, "4096 bytes", data.len())?;
    }
    admin.still_works(0, 0)
}

fn identify_shorter_buffer(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let command = identify(Cns::Controller, 0);
    let statuses = [INVALID_LENGTH, Status::INVALID_FIELD_IN_COMMAND];
    admin_refused(
        &mut admin,
        "Identify with 512 bytes",
        command,
        512,
        &statuses,
    )?;
    admin.still_works(0, 0)
}

fn identify_without_buffer(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let command = identify(Cns::Controller, 0);
    let statuses = [
        INVALID_LENGTH,
        Status::INVALID_FIELD_IN_COMMAND,
        Status::SGL_DESCRIPTOR_TYPE_INVALID,
    ];
    admin_refused(
        &mut admin,
        "Identify without a buffer",
        command,
        0,
        &statuses,
    )?;
    admin.still_works(0, 0)
}

/// Identify of these NSIDs must be refused.
fn no_namespace(context: &Context, cns: Cns, nsids: &[u32]) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for &nsid in nsids {
        let what = format!("{cns} of NSID {nsid:#x}");
        let statuses = [INVALID_NAMESPACE, Status::INVALID_FIELD_IN_COMMAND];
        // Structures that revision 2.0 added are not everywhere.
        let known = matches!(
            cns,
            Cns::Namespace | Cns::ActiveNamespaceList | Cns::NamespaceDescriptors
        );
        let statuses = if known { &statuses[..1] } else { &statuses };
        admin_refused(&mut admin, &what, identify(cns, nsid), 4096, statuses)?;
    }
    admin.still_works(0, 0)
}

fn identify_namespace_zero(context: &mut Context) -> Result<(), Failure> {
    no_namespace(context, Cns::Namespace, &[0])
}

/// An NSID that is allowed and that no namespace has.
fn inactive(context: &Context, admin: &mut Queue) -> Result<u32, Failure> {
    let list = admin.identify(Cns::ActiveNamespaceList, 0)?;
    let active: Vec<u32> = decode_namespace_list(&list).collect();
    (1..=context.facts.controller.namespaces)
        .find(|nsid| !active.contains(nsid))
        .ok_or_else(|| Failure::NotOffered("an inactive NSID".into()))
}

fn identify_namespace_inactive(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let nsid = inactive(context, &mut admin)?;
    let data = admin.identify(Cns::Namespace, nsid)?;
    let what = format!("Identify of NSID {nsid}, which is inactive");
    check(
        data.iter().all(|byte| *byte == 0),
        what,
        "zeroes",
        "other bytes",
    )
}

fn identify_namespace_above_nn(context: &mut Context) -> Result<(), Failure> {
    let above = context.facts.controller.namespaces.saturating_add(1);
    no_namespace(context, Cns::Namespace, &[above, 0x8000_0000])
}

fn identify_namespace_fffffffe(context: &mut Context) -> Result<(), Failure> {
    no_namespace(context, Cns::Namespace, &[0xffff_fffe])
}

fn identify_namespace_all(context: &mut Context) -> Result<(), Failure> {
    let offered = context.facts.controller.optional_admin_commands;
    if offered.contains(OptionalAdminCommands::NAMESPACE_MANAGEMENT) {
        let mut admin = context.controller()?.admin;
        return admin.identify(Cns::Namespace, 0xffff_ffff).map(drop);
    }
    no_namespace(context, Cns::Namespace, &[0xffff_ffff])
}

fn identify_active_list(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let list = admin.identify(Cns::ActiveNamespaceList, 0)?;
    let active: Vec<u32> = decode_namespace_list(&list).collect();
    let nsid = context.target.nsid;
    let rising = active.is_sorted();
    check(
        rising && active.contains(&nsid),
        "the active namespaces",
        format!("a rising list with {nsid}"),
        format!("{active:?}"),
    )?;
    let last = active.last().copied().unwrap_or(nsid);
    for after in [last, 0xffff_fffd] {
        let list = admin.identify(Cns::ActiveNamespaceList, after)?;
        check(
            list.iter().all(|byte| *byte == 0),
            format!("the active namespaces after {after:#x}"),
            "none",
            "some",
        )?;
    }
    Ok(())
}

fn identify_active_list_fffffffe(context: &mut Context) -> Result<(), Failure> {
    no_namespace(
        context,
        Cns::ActiveNamespaceList,
        &[0xffff_fffe, 0xffff_ffff],
    )
}

fn identify_descriptors_of_none(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let nsid = inactive(context, &mut admin)?;
    drop(admin);
    let nsids = [0, nsid, 0xffff_fffe, 0xffff_ffff];
    no_namespace(context, Cns::NamespaceDescriptors, &nsids)
}

fn identify_command_set_namespace(context: &mut Context) -> Result<(), Failure> {
    no_namespace(
        context,
        Cns::CommandSetNamespace,
        &[0, 0xffff_fffe, 0xffff_ffff],
    )
}

fn identify_independent_namespace(context: &mut Context) -> Result<(), Failure> {
    no_namespace(
        context,
        Cns::IndependentNamespace,
        &[0, 0xffff_fffe, 0xffff_ffff],
    )
}

fn identify_other_command_set(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for (cns, nsid) in [
        (Cns::CommandSetNamespace, context.target.nsid),
        (Cns::CommandSetController, 0),
        (Cns::CommandSetActiveNamespaceList, 0),
    ] {
        let command = AdminCommand::Identify(Identify {
            command_set: 0xff,
            ..Identify::new(cns, nsid)
        });
        let statuses = [
            Status::INVALID_IO_COMMAND_SET.with_do_not_retry(),
            Status::INVALID_FIELD_IN_COMMAND,
        ];
        let what = format!("{cns} of command set FFh");
        admin_refused(&mut admin, &what, command, 4096, &statuses)?;
    }
    admin.still_works(0, 0)
}

fn identify_unknown_structure(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for cns in [0x1f, 0xff] {
        let what = format!("CNS {cns:#x}");
        let command = identify(Cns::from_value(cns), 0);
        admin_refused(&mut admin, &what, command, 4096, &[INVALID_FIELD])?;
    }
    admin.still_works(0, 0)
}

fn identify_other_controller(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let command = AdminCommand::Identify(Identify {
        controller_id: controller.id ^ 0x4000,
        ..Identify::new(Cns::CommandSetVector, 0)
    });
    let what = "CNS 1Ch of another controller";
    let statuses = [INVALID_FIELD, Status::INVALID_CONTROLLER_IDENTIFIER];
    admin_refused(&mut controller.admin, what, command, 4096, &statuses).map(drop)
}

fn unknown_opcode(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    // Create and Delete I/O Queue are not for Fabrics; 07h and BCh are reserved, C1h to C3h vendor specific, one for each direction.
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x07, 0xbc, 0xc0, 0xc1, 0xc2, 0xc3] {
        let sqe = Sqe {
            opcode,
            ..Sqe::default()
        };
        let what = format!("admin opcode {opcode:#x}");
        refused_bare(&mut admin, &what, sqe, &[INVALID_OPCODE])?;
    }
    admin.still_works(0, 0)
}

fn log_page_unknown(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let get = AdminCommand::GetLogPage(GetLogPage::new(LogId::from_value(0x7f), 0, 512));
    let statuses = [
        Status::INVALID_LOG_PAGE.with_do_not_retry(),
        Status::INVALID_FIELD_IN_COMMAND,
    ];
    admin_refused(&mut admin, "LID 7Fh", get, 512, &statuses).map(drop)
}

fn log_page_offset_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for offset in [4096, u64::MAX - 3] {
        let get = AdminCommand::GetLogPage(GetLogPage::new(LogId::SmartHealth, offset, 512));
        let what = format!("the SMART log from {offset:#x}");
        admin_refused(&mut admin, &what, get, 512, &[INVALID_FIELD])?;
    }
    admin.still_works(0, 0)
}

fn log_page_maximum_length(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let get = AdminCommand::GetLogPage(GetLogPage {
        dwords_zero_based: u32::MAX,
        ..GetLogPage::new(LogId::SmartHealth, 0, 512)
    });
    let statuses = [INVALID_FIELD, Status::DATA_SGL_LENGTH_INVALID];
    admin_refused(&mut admin, "NUMD FFFFFFFFh", get, u32::MAX - 3, &statuses)?;
    admin.still_works(0, 0)
}

fn smart_log_of_a_namespace(context: &mut Context) -> Result<(), Failure> {
    if context.facts.controller.log_page_attributes.0 & 1 != 0 {
        return Err(Failure::NotOffered(
            "a SMART log of the controller alone".into(),
        ));
    }
    let mut admin = context.controller()?.admin;
    let get = AdminCommand::GetLogPage(GetLogPage {
        nsid: context.target.nsid,
        ..GetLogPage::new(LogId::SmartHealth, 0, 512)
    });
    let statuses = [INVALID_FIELD, Status::INVALID_NAMESPACE_OR_FORMAT];
    admin_refused(
        &mut admin,
        "the SMART log of a namespace",
        get,
        512,
        &statuses,
    )
    .map(drop)
}

fn set(feature: FeatureId, value: u32) -> SetFeatures {
    SetFeatures::new(feature, value)
}

fn number_of_queues_reserved(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for value in [0x0000_ffff, 0xffff_0000, 0xffff_ffff] {
        let command = AdminCommand::SetFeatures(set(FeatureId::NumberOfQueues, value));
        let what = format!("Number of Queues {value:#010x}");
        admin_refused(&mut admin, &what, command, 0, &[INVALID_FIELD])?;
    }
    set_queues(&mut admin, 1).map(drop)
}

fn number_of_queues_largest(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let granted = set_queues(&mut controller.admin, 0xffff)?;
    check(granted >= 1, "the queues granted", "one or more", granted)?;
    let mut last = controller.io(granted)?;
    last.still_works(context.target.nsid, context.facts.block_bytes)
}

fn number_of_queues_with_io_queues(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let asked = NumberOfQueues {
        submission: 4,
        completion: 4,
    };
    let command = AdminCommand::SetFeatures(set(FeatureId::NumberOfQueues, asked.to_dword()));
    let what = "Number of Queues with an I/O queue";
    admin_refused(
        &mut disk.controller.admin,
        what,
        command,
        0,
        &[SEQUENCE_ERROR],
    )?;
    disk.still_works()
}

fn number_of_queues_saved(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let command = AdminCommand::SetFeatures(SetFeatures {
        save: true,
        ..set(FeatureId::NumberOfQueues, 0x0003_0003)
    });
    let statuses = [
        Status::FEATURE_IDENTIFIER_NOT_SAVEABLE.with_do_not_retry(),
        Status::INVALID_FIELD_IN_COMMAND,
    ];
    admin_refused(&mut admin, "Number of Queues, saved", command, 0, &statuses).map(drop)
}

fn feature_unknown(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for feature in [0x00, 0xbf] {
        let id = FeatureId::from_value(feature);
        let what = format!("Get Features of FID {feature:#x}");
        let get = AdminCommand::GetFeatures(GetFeatures::new(id));
        admin_refused(&mut admin, &what, get, 0, &[INVALID_FIELD])?;
        let what = format!("Set Features of FID {feature:#x}");
        let command = AdminCommand::SetFeatures(set(id, 0));
        admin_refused(&mut admin, &what, command, 0, &[INVALID_FIELD])?;
    }
    admin.still_works(0, 0)
}

fn feature_select_reserved(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let get = AdminCommand::GetFeatures(GetFeatures {
        select: FeatureSelect::Current,
        ..GetFeatures::new(FeatureId::NumberOfQueues)
    });
    let mut sqe = get.sqe(0, SglDescriptor::NONE);
    // SEL, bits 10:8 of CDW10.
    sqe.cdw10 |= 0b111 << 8;
    refused(&mut admin, "a reserved SEL", sqe, &[], 0, &[INVALID_FIELD]).map(drop)
}

fn feature_of_a_namespace(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let command = AdminCommand::SetFeatures(SetFeatures {
        nsid: context.target.nsid,
        ..set(FeatureId::NumberOfQueues, 0x0003_0003)
    });
    let sqe = Sqe {
        nsid: context.target.nsid,
        ..command.sqe(0, SglDescriptor::NONE)
    };
    let statuses = [
        Status::FEATURE_NOT_NAMESPACE_SPECIFIC.with_do_not_retry(),
        Status::INVALID_FIELD_IN_COMMAND,
    ];
    refused_bare(
        &mut admin,
        "Number of Queues of a namespace",
        sqe,
        &statuses,
    )
    .map(drop)
}
