//! Properties: what may be written, how a controller is enabled, reset and shut down (group 20); and keep alive (group 21).

use std::time::{Duration, Instant};

use weir_nvme::command::{
    AdminCommand, ConnectParameter, FabricsCommand, GetFeatures, PropertyGet, PropertySet,
    PropertySize, SetFeatures,
};
use weir_nvme::feature::FeatureId;
use weir_nvme::identify::ControllerAttributes;
use weir_nvme::property::{
    Capabilities, Configuration, ControllerStatus, Property, ShutdownNotification, ShutdownStatus,
};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Sqe, Status};

use super::hosts::{
    Attempt, Disk, INVALID_FIELD, INVALID_OPCODE, SEQUENCE_ERROR, admin_refused, block_of,
    connect_refused, connect_refused_by, refused_bare, write_sqe,
};
use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::nvme::context::Context;
use crate::nvme::peer::{Answer, Got};
use crate::nvme::queue::{Controller, Queue, QueueOptions, enabled};

cases! {
    20 property_set_read_only [] "NVMe Base 2.0c 3.1.3, 6.6"
        : "Property Set of CAP, VS, CSTS and CRTO" => "Invalid Field in Command";
    20 property_set_reserved [] "NVMe Base 2.0c 3.1.3, 6.6"
        : "Property Set at offsets where there is nothing, or NSSR, which CAP does not offer" => "Invalid Field in Command";
    20 property_set_eight_bytes_to_cc [] "NVMe Base 2.0c 6.6"
        : "Property Set of 8 bytes to CC" => "Invalid Field in Command, and CC as before";
    20 property_get_reserved [] "NVMe Base 2.0c 3.1.3, 6.5"
        : "Property Get at offsets where there is nothing" => "Invalid Field in Command";
    20 property_get_size [] "NVMe Base 2.0c 6.5"
        : "Property Get of CAP in 4 bytes, of CC and CSTS in 8" => "Invalid Field in Command, or the value";
    20 property_reserved_size [] "NVMe Base 2.0c 6.5, 6.6"
        : "Property Get and Set of a reserved size" => "Invalid Field in Command";
    20 property_on_an_io_queue [] "NVMe Base 2.0c 3.3.1, 6.5"
        : "Property Get and Set on an I/O queue" => "Invalid Field in Command, Invalid Queue Type or Invalid Command Opcode";
    20 entry_size_of_submission_queue [] "NVMe Base 2.0c 3.1.3.5, 3.1.3.6"
        : "CC.EN with IOSQES 5" => "CSTS.CFS, and not CSTS.RDY";
    20 entry_size_of_completion_queue [] "NVMe Base 2.0c 3.1.3.5, 3.1.3.6"
        : "CC.EN with IOCQES 5" => "CSTS.CFS, and not CSTS.RDY";
    20 memory_page_size [] "NVMe Base 2.0c 3.1.3.5, 3.1.3.6"
        : "CC.EN with MPS above CAP.MPSMAX" => "CSTS.CFS, and not CSTS.RDY";
    20 arbitration_mechanism [] "NVMe Base 2.0c 3.1.3.5, 3.1.3.6"
        : "CC.EN with an AMS that CAP does not offer" => "CSTS.CFS, and not CSTS.RDY";
    20 command_set_selected [] "NVMe Base 2.0c 3.1.3.5, 3.1.3.6"
        : "CC.EN with a reserved CSS" => "CSTS.CFS, and not CSTS.RDY";
    20 all_command_sets [] "NVMe Base 2.0c 3.1.3.1, 3.1.3.5, 5.27.1.21"
        : "CC.EN with CSS 110b where CAP.CSS offers it, and I/O Command Set Profiles 0 and 511" => "CSTS.RDY; success, and I/O Command Set Combination Rejected; or Invalid Field in Command";
    20 no_io_queue_after_a_fatal_error [] "NVMe Base 2.0c 3.1.3.6, 6.3"
        : "an I/O queue of a controller whose CSTS.CFS is 1" => "Command Sequence Error, or another refusal of Connect";
    20 a_reset_clears_a_fatal_error [] "NVMe Base 2.0c 3.1.3.6, 3.7.2"
        : "CC.EN 0 after CSTS.CFS, and 1 with what can be" => "CSTS 0, then CSTS.RDY";
    20 enable_twice [] "NVMe Base 2.0c 3.1.3.5"
        : "CC.EN 1 again" => "success, and I/O goes on";
    20 commands_after_a_reset [] "NVMe Base 2.0c 3.7.2, 3.5.1"
        : "Identify after CC.EN 0" => "Command Sequence Error; Keep Alive and Fabrics commands go on";
    20 reset_with_io_in_flight [WRITES] "NVMe Base 2.0c 3.7.2"
        : "CC.EN 0 with 16 writes in flight, half of them without their data" => "CSTS.RDY 0 when the I/O queues have ended, and nothing lands afterwards";
    20 shutdown_with_io_in_flight [WRITES] "NVMe Base 2.0c 3.1.3.5, 3.6.1"
        : "CC.SHN with writes in flight" => "CSTS.SHST 10b, and nothing lands afterwards";
    20 shutdown_twice [] "NVMe Base 2.0c 3.1.3.5, 3.6.1"
        : "CC.SHN, and CC.SHN again" => "CSTS.SHST 10b, both times";
    20 shutdown_abrupt [] "NVMe Base 2.0c 3.1.3.5, 3.6.1"
        : "CC.SHN 10b" => "CSTS.SHST 10b";
    20 shutdown_and_reset_at_once [] "NVMe Base 2.0c 3.1.3.5 (SHN), 3.6.1"
        : "CC with EN 0 and SHN 01b in one write" => "CSTS.SHST 10b and CSTS.RDY 0";
    20 shutdown_of_a_disabled_controller [] "NVMe Base 2.0c 3.1.3.5, 3.6.1"
        : "CC.SHN of a controller that was never enabled" => "CSTS.SHST 10b";
    20 no_io_queue_after_a_shutdown [] "NVMe Base 2.0c 3.6.1, 6.3"
        : "an I/O queue of a controller whose CSTS.SHST is 10b" => "Command Sequence Error, or another refusal of Connect";
    20 enable_after_shutdown [] "NVMe Base 2.0c 3.1.3.6, 3.6.1"
        : "a reset after a shutdown, and CC.EN" => "CSTS.RDY, and SHST 00b";

    21 keep_alive_zero [] "NVMe Base 2.0c 3.9, 5.27.1.12"
        : "KATO 0" => "no timer: Get Features says 0, and silence ends nothing";
    21 keep_alive_below_the_minimum [] "NVMe Base 2.0c 3.9, 5.27.1.12"
        : "KATO of 1 ms" => "rounded up to the granularity or the minimum: a millisecond ends nothing";
    21 keep_alive_above_the_maximum [] "NVMe Base 2.0c 5.27.1.12, 6.3"
        : "KATO FFFFFFFFh in a Connect" => "Connect Invalid Parameters, IPO 48, or a controller";
    21 keep_alive_set_above_the_maximum [] "NVMe Base 2.0c 5.27.1.12"
        : "Set Features of KATO FFFFFFFFh" => "Keep Alive Timeout Invalid, or success";
    21 keep_alive_on_an_io_queue [] "NVMe Base 2.0c 5, 7"
        : "Keep Alive on an I/O queue" => "Invalid Command Opcode, or Invalid Namespace or Format";
    21 keep_alive_expires [] "NVMe Base 2.0c 3.9.1"
        : "silence for longer than KATO on an admin queue and two I/O queues" => "the end of all three connections";
    21 keep_alive_expiry_stops_writes [WRITES] "NVMe Base 2.0c 3.9.1"
        : "silence with a write in flight whose data never came" => "the end of the queues, and the block as before for the next one";
    21 traffic_keeps_alive [] "NVMe Base 2.0c 3.9.2 (CTRATT.TBKAS)"
        : "reads on an I/O queue for longer than KATO, and no Keep Alive" => "the controller lives";
}

fn set(size: PropertySize, offset: u32, value: u64) -> Sqe {
    let set = FabricsCommand::PropertySet(PropertySet {
        size,
        offset,
        value,
    });
    set.sqe(0, SglDescriptor::NONE)
}

fn get(size: PropertySize, offset: u32) -> Sqe {
    FabricsCommand::PropertyGet(PropertyGet { size, offset }).sqe(0, SglDescriptor::NONE)
}

fn property_set_read_only(context: &mut Context) -> Result<(), Failure> {
    use PropertySize::{EightBytes, FourBytes};
    let mut admin = context.controller()?.admin;
    for (name, size, property) in [
        ("CAP", EightBytes, Property::Capabilities),
        ("VS", FourBytes, Property::Version),
        ("CSTS", FourBytes, Property::Status),
        ("CRTO", FourBytes, Property::ReadyTimeouts),
    ] {
        let sqe = set(size, property.value(), 0);
        let what = format!("Property Set of {name}");
        refused_bare(&mut admin, &what, sqe, &[INVALID_FIELD])?;
    }
    is_ready(&mut admin)
}

fn property_set_reserved(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let reset = Property::SubsystemReset.value();
    for offset in [0x0c, 0x15, 0x24, 0x0ffc, 0x1000, u32::MAX, reset] {
        let sqe = set(PropertySize::FourBytes, offset, 0x4e56_4d65);
        let what = format!("Property Set at {offset:#x}");
        refused_bare(&mut admin, &what, sqe, &[INVALID_FIELD])?;
    }
    is_ready(&mut admin)
}

fn property_set_eight_bytes_to_cc(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let sqe = set(PropertySize::EightBytes, Property::Configuration.value(), 0);
    refused_bare(&mut admin, "8 bytes to CC", sqe, &[INVALID_FIELD])?;
    is_ready(&mut admin)
}

fn property_get_reserved(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for offset in [0x15, 0x0ffc, 0x1000, u32::MAX] {
        let sqe = get(PropertySize::FourBytes, offset);
        let what = format!("Property Get at {offset:#x}");
        refused_bare(&mut admin, &what, sqe, &[INVALID_FIELD])?;
    }
    is_ready(&mut admin)
}

fn property_get_size(context: &mut Context) -> Result<(), Failure> {
    use PropertySize::{EightBytes, FourBytes};
    let mut admin = context.controller()?.admin;
    for (name, size, property) in [
        ("4 bytes of CAP", FourBytes, Property::Capabilities),
        ("8 bytes of CC", EightBytes, Property::Configuration),
        ("8 bytes of CSTS", EightBytes, Property::Status),
    ] {
        let sqe = get(size, property.value());
        refused_bare(&mut admin, name, sqe, &[INVALID_FIELD, Status::SUCCESS])?;
    }
    is_ready(&mut admin)
}

fn property_reserved_size(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for (what, sqe) in [
        (
            "Property Get of a reserved size",
            get(PropertySize::FourBytes, Property::Status.value()),
        ),
        (
            "Property Set of a reserved size",
            set(PropertySize::FourBytes, Property::Configuration.value(), 0),
        ),
    ] {
        let sqe = Sqe { cdw10: 7, ..sqe };
        refused_bare(&mut admin, what, sqe, &[INVALID_FIELD])?;
    }
    is_ready(&mut admin)
}

fn property_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let refusals = [
        INVALID_FIELD,
        Status::INVALID_QUEUE_TYPE,
        Status::INVALID_COMMAND_OPCODE,
        Status::COMMAND_SEQUENCE_ERROR,
    ];
    let offset = Property::Status.value();
    let sqe = get(PropertySize::FourBytes, offset);
    refused_bare(&mut disk.io, "Property Get on an I/O queue", sqe, &refusals)?;
    let sqe = set(PropertySize::FourBytes, Property::Configuration.value(), 0);
    refused_bare(&mut disk.io, "Property Set on an I/O queue", sqe, &refusals)?;
    is_ready(&mut disk.controller.admin)?;
    disk.still_works()
}

fn is_ready(admin: &mut Queue) -> Result<(), Failure> {
    let status = ControllerStatus(admin.property(Property::Status)? as u32);
    check(
        status.ready() && !status.fatal(),
        "CSTS afterwards",
        "ready",
        format!("{:#x}", status.0),
    )
}

fn entry_size_of_submission_queue(context: &mut Context) -> Result<(), Failure> {
    let completion = Configuration::COMPLETION_ENTRY_SIZE;
    fatal(
        context,
        "IOSQES 5",
        enabled().with_entry_sizes(5, completion),
    )
}

fn entry_size_of_completion_queue(context: &mut Context) -> Result<(), Failure> {
    let submission = Configuration::SUBMISSION_ENTRY_SIZE;
    fatal(
        context,
        "IOCQES 5",
        enabled().with_entry_sizes(submission, 5),
    )
}

fn memory_page_size(context: &mut Context) -> Result<(), Failure> {
    // CC.MPS, bits 10:7 (section 3.1.3.5).
    fatal(context, "MPS 15", Configuration(enabled().0 | 15 << 7))
}

fn arbitration_mechanism(context: &mut Context) -> Result<(), Failure> {
    // CC.AMS, bits 13:11: 010b is reserved.
    fatal(context, "AMS 2", Configuration(enabled().0 | 2 << 11))
}

fn command_set_selected(context: &mut Context) -> Result<(), Failure> {
    fatal(context, "CSS 5", enabled().with_command_set(5))
}

fn all_command_sets(context: &mut Context) -> Result<(), Failure> {
    let mut controller = disabled(context)?;
    let admin = &mut controller.admin;
    let offered = Capabilities(admin.property(Property::Capabilities)?).command_sets();
    if offered & Capabilities::COMMAND_SETS_SELECTABLE == 0 && !context.manner.exact {
        return Err(Failure::NotOffered("CC.CSS 110b".into()));
    }
    let configuration = enabled().with_command_set(Configuration::COMMAND_SET_ALL);
    let cqe = admin.configure(configuration)?;
    check(cqe.status.is_success(), "CSS 6", "success", cqe.status)?;
    let status = admin.await_status("CSTS.RDY", ControllerStatus::ready)?;
    check(!status.fatal(), "CSTS.CFS", "0", "1")?;
    let rejected = Status::IO_COMMAND_SET_COMBINATION_REJECTED.with_do_not_retry();
    for (index, answer) in [(0, Status::SUCCESS), (511, rejected)] {
        let set = SetFeatures::new(FeatureId::IoCommandSetProfile, index);
        let what = format!("I/O Command Set Profile {index}");
        let statuses = [answer, Status::INVALID_FIELD_IN_COMMAND];
        admin_refused(admin, &what, AdminCommand::SetFeatures(set), 0, &statuses)?;
    }
    Ok(())
}

/// A controller that is connected and not enabled.
fn disabled(context: &Context) -> Result<Controller, Failure> {
    Controller::connected(context.target.address, &context.options(), context.manner)
}

fn fatal(context: &Context, what: &str, configuration: Configuration) -> Result<(), Failure> {
    fail_fatally(context, what, configuration).map(drop)
}

fn fail_fatally(
    context: &Context,
    what: &str,
    configuration: Configuration,
) -> Result<Controller, Failure> {
    let mut controller = disabled(context)?;
    let cqe = controller.admin.configure(configuration)?;
    check(cqe.status.is_success(), what, "success", cqe.status)?;
    let wanted = format!("CFS after {what}");
    let status = controller
        .admin
        .await_status(&wanted, ControllerStatus::fatal)?;
    check(!status.ready(), what, "CSTS.RDY 0", "1")?;
    Ok(controller)
}

fn no_io_queue_after_a_fatal_error(context: &mut Context) -> Result<(), Failure> {
    let controller = fail_fatally(context, "CSS 5", enabled().with_command_set(5))?;
    let attempt = Attempt::io(context, controller.id, 1);
    let expected = [
        SEQUENCE_ERROR,
        Status::CONNECT_INVALID_PARAMETERS,
        Status::CONNECT_CONTROLLER_BUSY,
    ];
    connect_refused(context, "an I/O queue after CFS", &attempt, &expected).map(drop)
}

fn a_reset_clears_a_fatal_error(context: &mut Context) -> Result<(), Failure> {
    let mut controller = fail_fatally(context, "CSS 5", enabled().with_command_set(5))?;
    let admin = &mut controller.admin;
    admin.configure(Configuration::default())?;
    admin.await_status("CSTS 0", |status| status.0 == 0)?;
    admin.configure(enabled())?;
    let status = admin.await_status("CSTS.RDY", ControllerStatus::ready)?;
    check(!status.fatal(), "CSTS.CFS", "0", "1")
}

fn enable_twice(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let cqe = disk.controller.admin.configure(enabled())?;
    check(
        cqe.status.is_success(),
        "CC.EN again",
        "success",
        cqe.status,
    )?;
    is_ready(&mut disk.controller.admin)?;
    disk.still_works()
}

fn commands_after_a_reset(context: &mut Context) -> Result<(), Failure> {
    use weir_nvme::command::Identify;
    use weir_nvme::identify::Cns;
    let mut admin = context.controller()?.admin;
    reset(&mut admin)?;
    let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
    let statuses = [SEQUENCE_ERROR, Status::INVALID_FIELD_IN_COMMAND];
    admin_refused(
        &mut admin,
        "Identify after a reset",
        identify,
        4096,
        &statuses,
    )?;
    admin.property(Property::Configuration)?;
    admin.still_works(0, 0)
}

fn reset(admin: &mut Queue) -> Result<(), Failure> {
    let cqe = admin.configure(enabled().with_enabled(false))?;
    check(cqe.status.is_success(), "CC.EN 0", "success", cqe.status)?;
    admin
        .await_status("CSTS.RDY 0", |status| !status.ready())
        .map(drop)
}

/// Commands in flight when a controller ends.
const IN_FLIGHT: u64 = 16;

/// Sends writes of a block each; R2Ts of half of them are answered.
fn write_without_waiting(context: &Context, disk: &mut Disk) -> Result<(), Failure> {
    let data = block_of(context, 0x5a);
    let mut bytes = Vec::new();
    for lba in 0..IN_FLIGHT {
        let sqe = write_sqe(disk.nsid, lba, 1);
        let (_, capsule) = disk.io.prepare(sqe, &data, 0);
        bytes.extend(capsule);
    }
    disk.io.send(&bytes)?;
    let mut asked = 0;
    while asked < IN_FLIGHT / 2 {
        match disk.io.receive() {
            Got::R2t(r2t) => {
                asked += 1;
                disk.io.send_data(&r2t, &data)?;
            }
            Got::Response(cqe) if cqe.status.is_success() => {}
            got => return Err(Failure::preparation("writes in flight", got)),
        }
    }
    Ok(())
}

/// What an I/O queue sends until its connection ends: answers and requests for data, nothing that is wrong.
fn drain_until_end(queue: &mut Queue, what: &str) -> Result<(), Failure> {
    loop {
        match queue.receive() {
            Got::Response(_) | Got::R2t(_) => {}
            got => return queue.judge(what, &[Answer::End], got).map(drop),
        }
    }
}

/// A new controller of the same host overwrites what was in flight; what an older one wrote does not land on it.
fn nothing_lands(context: &Context, disk: &mut Disk) -> Result<(), Failure> {
    let data: Vec<u8> = block_of(context, 0xc3).repeat(IN_FLIGHT as usize);
    disk.write(0, &data)?;
    disk.holds("right after the write", 0, &data)?;
    std::thread::sleep(QUIET);
    disk.holds("some time after the write", 0, &data)
}

fn reset_with_io_in_flight(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    write_without_waiting(context, &mut disk)?;
    reset(&mut disk.controller.admin)?;
    drain_until_end(&mut disk.io, "an I/O queue of a controller that was reset")?;
    let admin = &mut disk.controller.admin;
    admin.configure(enabled())?;
    admin.await_status("CSTS.RDY", ControllerStatus::ready)?;
    disk.io = disk.controller.io(1)?;
    nothing_lands(context, &mut disk)
}

fn shutdown_with_io_in_flight(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    write_without_waiting(context, &mut disk)?;
    shut_down(
        &mut disk.controller.admin,
        enabled().with_shutdown(ShutdownNotification::Normal),
    )?;
    if context.manner.exact {
        drain_until_end(
            &mut disk.io,
            "an I/O queue of a controller that is shut down",
        )?;
    }
    drop(disk);
    let mut disk = Disk::new(context)?;
    nothing_lands(context, &mut disk)
}

/// Writes CC with SHN and waits for CSTS.SHST 10b.
fn shut_down(admin: &mut Queue, configuration: Configuration) -> Result<ControllerStatus, Failure> {
    let cqe = admin.configure(configuration)?;
    check(cqe.status.is_success(), "CC.SHN", "success", cqe.status)?;
    admin.await_status("CSTS.SHST 10b", |status| {
        status.shutdown() == ShutdownStatus::Complete
    })
}

fn shutdown_twice(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let configuration = enabled().with_shutdown(ShutdownNotification::Normal);
    shut_down(&mut admin, configuration)?;
    shut_down(&mut admin, configuration).map(drop)
}

fn shutdown_abrupt(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let configuration = enabled().with_shutdown(ShutdownNotification::Abrupt);
    shut_down(&mut admin, configuration).map(drop)
}

fn shutdown_and_reset_at_once(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let configuration = enabled()
        .with_enabled(false)
        .with_shutdown(ShutdownNotification::Normal);
    let admin = &mut disk.controller.admin;
    shut_down(admin, configuration)?;
    admin
        .await_status("CSTS.RDY 0", |status| !status.ready())
        .map(drop)
}

fn shutdown_of_a_disabled_controller(context: &mut Context) -> Result<(), Failure> {
    let mut controller = disabled(context)?;
    let configuration = enabled()
        .with_enabled(false)
        .with_shutdown(ShutdownNotification::Normal);
    shut_down(&mut controller.admin, configuration).map(drop)
}

fn no_io_queue_after_a_shutdown(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let configuration = enabled().with_shutdown(ShutdownNotification::Normal);
    shut_down(&mut controller.admin, configuration)?;
    let attempt = Attempt::io(context, controller.id, 1);
    let expected = [
        SEQUENCE_ERROR,
        Status::CONNECT_INVALID_PARAMETERS,
        Status::CONNECT_CONTROLLER_BUSY,
    ];
    let what = "an I/O queue after a shutdown";
    connect_refused(context, what, &attempt, &expected).map(drop)
}

fn enable_after_shutdown(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let admin = &mut controller.admin;
    shut_down(admin, enabled().with_shutdown(ShutdownNotification::Normal))?;
    reset(admin)?;
    admin.configure(enabled())?;
    let status = admin.await_status("CSTS.RDY", ControllerStatus::ready)?;
    check(
        status.shutdown() == ShutdownStatus::Normal,
        "CSTS.SHST after CC.EN",
        "00b",
        format!("{:#x}", status.0),
    )
}

fn keep_alive_zero(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller_with(&with_keep_alive(context, 0))?.admin;
    let used = keep_alive_of(&mut admin)?;
    check(used == 0, "KATO", "0", used)?;
    std::thread::sleep(QUIET);
    admin.still_works(0, 0)
}

fn with_keep_alive(context: &Context, keep_alive_ms: u32) -> QueueOptions {
    QueueOptions {
        keep_alive_ms,
        ..context.options()
    }
}

/// KATO as the controller uses it, in milliseconds.
fn keep_alive_of(admin: &mut Queue) -> Result<u32, Failure> {
    let get = AdminCommand::GetFeatures(GetFeatures::new(FeatureId::KeepAliveTimer));
    let sqe = get.sqe(0, SglDescriptor::NONE);
    let (_, value) = admin.succeed("Get Features of KATO", sqe, &[], 0)?;
    Ok(value)
}

fn keep_alive_below_the_minimum(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller_with(&with_keep_alive(context, 1))?.admin;
    // KAS: in units of 100 ms.
    let granularity = u32::from(context.facts.controller.keep_alive_granularity) * 100;
    let used = keep_alive_of(&mut admin)?;
    if context.manner.exact {
        let holds = used >= 1 && granularity > 0 && used.is_multiple_of(granularity);
        check(
            holds,
            "KATO",
            format!("a multiple of {granularity} ms"),
            used,
        )?;
    }
    std::thread::sleep(Duration::from_millis(u64::from(granularity / 2)));
    admin.still_works(0, 0)
}

fn keep_alive_above_the_maximum(context: &mut Context) -> Result<(), Failure> {
    let mut attempt = Attempt::admin(context);
    attempt.connect.keep_alive_timeout_ms = u32::MAX;
    let parameter = ConnectParameter::KEEP_ALIVE_TIMEOUT;
    let others = [Status::SUCCESS, Status::KEEP_ALIVE_TIMEOUT_INVALID];
    connect_refused_by(context, "KATO FFFFFFFFh", &attempt, parameter, &others)
}

fn keep_alive_set_above_the_maximum(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let before = keep_alive_of(&mut admin)?;
    let set = AdminCommand::SetFeatures(SetFeatures::new(FeatureId::KeepAliveTimer, u32::MAX));
    let statuses = [
        Status::KEEP_ALIVE_TIMEOUT_INVALID.with_do_not_retry(),
        Status::SUCCESS,
    ];
    let cqe = admin_refused(&mut admin, "KATO FFFFFFFFh", set, 0, &statuses)?;
    if !cqe.status.is_success() {
        let after = keep_alive_of(&mut admin)?;
        check(
            after == before,
            "KATO afterwards",
            before.to_string(),
            after,
        )?;
    }
    Ok(())
}

fn keep_alive_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
    let what = "Keep Alive on an I/O queue";
    let statuses = [INVALID_OPCODE, Status::INVALID_NAMESPACE_OR_FORMAT];
    refused_bare(&mut disk.io, what, sqe, &statuses)?;
    disk.still_works()
}

/// The shortest keep-alive timeout that the cases of expiry ask for, in milliseconds.
const KEEP_ALIVE_MS: u32 = 1000;
/// How long cases of expiry wait at most for a target with a long shortest timeout.
const EXPIRY_MAX: Duration = Duration::from_secs(30);

/// A controller with the shortest timeout there is, and by when silence must have ended it.
fn short_lived(context: &Context) -> Result<(Controller, Duration), Failure> {
    let mut controller = context.controller_with(&with_keep_alive(context, KEEP_ALIVE_MS))?;
    let used = keep_alive_of(&mut controller.admin)?;
    if used == 0 {
        return Err(Failure::NotOffered("a keep-alive timer".into()));
    }
    // With traffic based keep alive it may take twice as long.
    let bound = Duration::from_millis(u64::from(used) * 2) + context.manner.patience / 2;
    if bound > EXPIRY_MAX {
        let what = format!("a keep-alive timeout short enough to wait for: it is {used} ms");
        return Err(Failure::NotOffered(what));
    }
    Ok((controller, bound))
}

fn keep_alive_expires(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, bound) = short_lived(context)?;
    let mut queues = [controller.io(1)?, controller.io(2)?];
    let began = Instant::now();
    let got = controller.admin.receive_within(bound);
    let what = "an admin queue after its keep-alive timeout";
    controller.admin.judge(what, &[Answer::End], got)?;
    let least = Duration::from_millis(KEEP_ALIVE_MS.into()) / 2;
    check(
        began.elapsed() >= least,
        what,
        format!("not before {least:?}"),
        format!("after {:?}", began.elapsed()),
    )?;
    for queue in &mut queues {
        queue.expect_end("an I/O queue after its controller's keep-alive timeout")?;
    }
    Ok(())
}

fn keep_alive_expiry_stops_writes(context: &mut Context) -> Result<(), Failure> {
    let before = block_of(context, 0x11);
    let mut disk = Disk::new(context)?;
    disk.write(0, &before)?;
    let (controller, bound) = short_lived(context)?;
    let mut silent = controller.io(1)?;
    let data = block_of(context, 0x22);
    let (sqe, capsule) = silent.prepare(write_sqe(disk.nsid, 0, 1), &data, 0);
    silent.send(&capsule)?;
    let r2t = silent.expect_r2t("a write", sqe.cid)?;
    let got = silent.receive_within(bound);
    silent.judge("a silent queue with a write in flight", &[Answer::End], got)?;
    // The data comes too late.
    silent.send_data(&r2t, &data)?;
    let mut next = Disk::new(context)?;
    next.holds("after the expiry", 0, &before)?;
    std::thread::sleep(QUIET);
    next.holds("some time after the expiry", 0, &before)
}

fn traffic_keeps_alive(context: &mut Context) -> Result<(), Failure> {
    let attributes = context.facts.controller.attributes;
    if !attributes.contains(ControllerAttributes::TRAFFIC_BASED_KEEP_ALIVE) {
        return Err(Failure::NotOffered("traffic based keep alive".into()));
    }
    let (mut controller, bound) = short_lived(context)?;
    let mut queue = controller.io(1)?;
    let began = Instant::now();
    while began.elapsed() < bound.min(Duration::from_millis(u64::from(KEEP_ALIVE_MS) * 3)) {
        queue.still_works(context.target.nsid, context.facts.block_bytes)?;
        std::thread::sleep(Duration::from_millis(u64::from(KEEP_ALIVE_MS) / 10));
    }
    controller.admin.still_works(0, 0)
}
