//! Abort, command identifiers and Disconnect (group 28).

use weir_nvme::command::{Abort, AdminCommand, FabricsCommand, Identify};
use weir_nvme::identify::Cns;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Sqe, Status};

use super::hosts::{
    Disk, INVALID_OPCODE, block_of, discovery, expect_any, has_disconnect, read_sqe, refused_bare,
    write_sqe,
};
use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::nvme::context::Context;
use crate::nvme::peer::{Answer, Got};
use crate::nvme::queue::Queue;
use crate::nvme::queue::together;

cases! {
    28 abort_of_an_unknown_command [] "NVMe Base 2.0c 5.1"
        : "Abort of a CID that nothing has, on both queues" => "success, and bit 0 of dword 0: not aborted";
    28 abort_on_an_unknown_queue [] "NVMe Base 2.0c 5.1"
        : "Abort on SQID FFFFh and on one that was never made" => "success, not aborted; or Invalid Field in Command, or Invalid Queue Identifier";
    28 abort_of_an_event_request [] "NVMe Base 2.0c 5.1, 5.2"
        : "Abort of an Asynchronous Event Request" => "Command Abort Requested to it and bit 0 clear; or not aborted";
    28 abort_of_itself [] "NVMe Base 2.0c 5.1"
        : "Abort of its own CID" => "success, not aborted";
    28 abort_of_another_abort [] "NVMe Base 2.0c 5.1"
        : "two Aborts of each other in one segment" => "success, not aborted, twice";
    28 aborts_above_the_limit [] "NVMe Base 2.0c 5.1, 5.17.2.1 (ACL)"
        : "three times as many Aborts in one segment as ACL allows" => "success, or Abort Command Limit Exceeded, to each of them";
    28 abort_of_a_write_that_lacks_its_data [WRITES] "NVMe Base 2.0c 5.1"
        : "Abort of a write whose R2T is not answered" => "Command Abort Requested and bit 0 clear, or not aborted; the block as before";
    28 abort_twice [WRITES] "NVMe Base 2.0c 5.1"
        : "two Aborts of one write in one segment" => "aborted once at most";
    28 abort_of_discovery [] "NVMe Base 2.0c 3.1.2.3.4, 5.1"
        : "Abort on a discovery controller" => "Invalid Command Opcode, or success";
    28 identifier_in_flight_on_the_admin_queue [] "NVMe Base 2.0c 3.3.3.2.1.1 (Command ID Conflict)"
        : "Identify with the CID of an Asynchronous Event Request that waits" => "Command ID Conflict, or its data: how many commands are searched is the controller's affair";
    28 identifier_in_flight_on_an_io_queue [WRITES] "NVMe Base 2.0c 3.3.3.2.1.1 (Command ID Conflict)"
        : "a Read with the CID of a write that awaits its data" => "Command ID Conflict, or its data; the write goes on";
    28 identifier_reused_after_its_answer [WRITES] "NVMe Base 2.0c 3.3.3.1"
        : "one CID for 64 commands, each right after the answer to the last" => "all succeed";
    28 identifier_reused_after_an_abort [WRITES] "NVMe Base 2.0c 5.1"
        : "the CID of a write that was aborted while its data was awaited" => "success: the answer freed it";
    28 identifier_ffff [] "NVMe Base 2.0c 3.3.3.1, 5.16.1.2"
        : "a command with CID FFFFh" => "success, or Invalid Field in Command";
    28 disconnect_on_the_admin_queue [] "NVMe Base 2.0c 6.4"
        : "Disconnect on the admin queue" => "Invalid Queue Type, and the controller goes on";
    28 disconnect_record_format [] "NVMe Base 2.0c 6.4"
        : "Disconnect with RECFMT 1" => "Connect Incompatible Format, or Invalid Field in Command, and the queue goes on";
    28 disconnect_with_commands_in_flight [WRITES] "NVMe Base 2.0c 3.3.2.4, 6.4"
        : "Disconnect behind writes whose data is awaited" => "success and the end of the connection, and nothing of the writes";
    28 commands_behind_a_disconnect [] "NVMe Base 2.0c 3.3.2.4, 6.4"
        : "Disconnect and reads in one segment" => "success, then the end of the connection";
}

fn abort(sqid: u16, cid: u16) -> Sqe {
    AdminCommand::Abort(Abort { sqid, cid }).sqe(0, SglDescriptor::NONE)
}

/// Bit 0 of dword 0: the command was not aborted (NVMe Base 2.0c section 5.1).
const NOT_ABORTED: u32 = 1;

fn not_aborted(admin: &mut Queue, what: &str, sqid: u16, cid: u16) -> Result<(), Failure> {
    let (_, dword) = admin.succeed(what, abort(sqid, cid), &[], 0)?;
    check(
        dword & NOT_ABORTED == NOT_ABORTED,
        what,
        "not aborted",
        "aborted",
    )
}

fn abort_of_an_unknown_command(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let admin = &mut disk.controller.admin;
    not_aborted(admin, "Abort on the admin queue", 0, 0x5aa5)?;
    not_aborted(admin, "Abort on an I/O queue", 1, 0x5aa5)?;
    disk.still_works()
}

fn abort_on_an_unknown_queue(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    for sqid in [1, u16::MAX] {
        let what = format!("Abort on SQID {sqid}");
        let statuses = [
            Status::SUCCESS,
            Status::INVALID_FIELD_IN_COMMAND,
            Status::INVALID_QUEUE_IDENTIFIER,
        ];
        let cqe = refused_bare(&mut admin, &what, abort(sqid, 0), &statuses)?;
        if cqe.status.is_success() {
            let bit = cqe.dw0() & NOT_ABORTED;
            check(bit == NOT_ABORTED, what, "not aborted", "aborted")?;
        }
    }
    admin.still_works(0, 0)
}

fn abort_of_an_event_request(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let request = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
    let (request, capsule) = admin.prepare(request, &[], 0);
    admin.send(&capsule)?;
    let (sqe, capsule) = admin.prepare(abort(0, request.cid), &[], 0);
    admin.send(&capsule)?;
    let mut aborted = false;
    loop {
        match admin.receive() {
            Got::Response(cqe) if cqe.cid == request.cid => {
                let expected = Status::COMMAND_ABORT_REQUESTED;
                let what = "an event request that was aborted";
                check(
                    cqe.status.is(expected),
                    what,
                    expected.to_string(),
                    cqe.status,
                )?;
                aborted = true;
            }
            Got::Response(cqe) if cqe.cid == sqe.cid => {
                let says = cqe.status.is_success() && cqe.dw0() & NOT_ABORTED == 0;
                // The aborted command's answer comes before that of the Abort.
                let holds = says == aborted && (says || !context.manner.exact);
                return check(holds, "Abort of an event request", "aborted", cqe.status);
            }
            got => return Err(Failure::differs("Abort", "its answer", got)),
        }
    }
}

fn abort_of_itself(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let cid = admin.cid();
    // The next command has the next CID.
    not_aborted(&mut admin, "Abort of itself", 0, cid + 1)?;
    admin.still_works(0, 0)
}

fn abort_of_another_abort(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let first = admin.cid() + 1;
    let both = [
        (abort(0, first + 1), &[][..], 0),
        (abort(0, first), &[][..], 0),
    ];
    for cqe in together(&mut admin, &both)? {
        let what = "one Abort of two";
        check(cqe.status.is_success(), what, "success", cqe.status)?;
        let bit = cqe.dw0() & NOT_ABORTED;
        check(bit == NOT_ABORTED, what, "not aborted", "aborted")?;
    }
    admin.still_works(0, 0)
}

fn aborts_above_the_limit(context: &mut Context) -> Result<(), Failure> {
    let limit = usize::from(context.facts.controller.abort_command_limit) + 1;
    let mut options = context.options();
    // More at once than the queue holds would be another case.
    let count = (limit * 3).min(120);
    options.entries = options.entries.max(count as u16 + 1);
    let (mut controller, mut io) = context.io_with(&options)?;
    let commands = vec![(abort(1, 0x5aa5), &[][..], 0); count];
    for cqe in together(&mut controller.admin, &commands)? {
        let exceeded = cqe.status.is(Status::ABORT_COMMAND_LIMIT_EXCEEDED);
        let done = cqe.status.is_success() && cqe.dw0() & NOT_ABORTED == NOT_ABORTED;
        check(
            exceeded || done,
            format!("one of {count} Aborts, {limit} of which are allowed"),
            "not aborted, or Abort Command Limit Exceeded",
            cqe.status,
        )?;
    }
    // What was counted is counted back.
    not_aborted(&mut controller.admin, "an Abort afterwards", 1, 0x5aa5)?;
    io.still_works(context.target.nsid, context.facts.block_bytes)
}

/// A disk whose block 0 is known, and a write of another one whose data is awaited.
fn awaiting(context: &Context) -> Result<(Disk, Vec<u8>, Vec<u8>, weir_nvme::tcp::R2t), Failure> {
    let mut disk = Disk::new(context)?;
    let (before, after) = (block_of(context, 0x31), block_of(context, 0x32));
    disk.write(0, &before)?;
    let (sqe, capsule) = disk.io.prepare(write_sqe(disk.nsid, 0, 1), &after, 0);
    disk.io.send(&capsule)?;
    let r2t = disk.io.expect_r2t("a write", sqe.cid)?;
    Ok((disk, before, after, r2t))
}

fn abort_of_a_write_that_lacks_its_data(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, before, after, r2t) = awaiting(context)?;
    let what = "Abort of a write whose data is awaited";
    let admin = &mut disk.controller.admin;
    let (_, dword) = admin.succeed(what, abort(1, r2t.cid), &[], 0)?;
    let aborted = dword & NOT_ABORTED == 0;
    check(
        aborted || !context.manner.exact,
        what,
        "aborted",
        "not aborted",
    )?;
    if aborted {
        let status = Status::COMMAND_ABORT_REQUESTED;
        expect_any(&mut disk.io, what, r2t.cid, &[status])?;
    }
    // The data comes all the same, and does no harm.
    disk.io.send_data(&r2t, &after)?;
    if aborted {
        return disk.holds(what, 0, &before);
    }
    disk.io.expect_status(what, r2t.cid, Status::SUCCESS)?;
    disk.holds(what, 0, &after)
}

fn abort_twice(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, before, after, r2t) = awaiting(context)?;
    let both = [(abort(1, r2t.cid), &[][..], 0), (abort(1, r2t.cid), &[], 0)];
    let answers = together(&mut disk.controller.admin, &both)?;
    let mut aborted = 0;
    for cqe in &answers {
        check(
            cqe.status.is_success(),
            "one Abort of two",
            "success",
            cqe.status,
        )?;
        aborted += u32::from(cqe.dw0() & NOT_ABORTED == 0);
    }
    let right = aborted == 1 || aborted == 0 && !context.manner.exact;
    check(right, "two Aborts of one write", "aborted once", aborted)?;
    disk.io.send_data(&r2t, &after)?;
    let status = [Status::SUCCESS, Status::COMMAND_ABORT_REQUESTED][aborted as usize];
    disk.io.expect_status("the write", r2t.cid, status)?;
    disk.io
        .expect_silence("after the answer to the write", QUIET)?;
    let now = if aborted == 1 { &before } else { &after };
    disk.holds("after two Aborts", 0, now)
}

fn abort_of_discovery(context: &mut Context) -> Result<(), Failure> {
    let mut admin = discovery(context)?.admin;
    let statuses = [INVALID_OPCODE, Status::SUCCESS];
    refused_bare(
        &mut admin,
        "Abort on discovery",
        abort(0, 0x5aa5),
        &statuses,
    )?;
    admin.still_works(0, 0)
}

fn identifier_in_flight_on_the_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let request = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
    let (request, capsule) = admin.prepare(request, &[], 0);
    admin.send(&capsule)?;
    let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
    let sqe = identify.sqe(request.cid, SglDescriptor::Transport { length: 4096 });
    let capsule = admin.format.capsule(&sqe, &[]);
    admin.send(&capsule)?;
    conflict(&mut admin, request.cid)?;
    admin.still_works(0, 0)
}

/// A second command with this CID was sent: it is refused, or carried out.
fn conflict(queue: &mut Queue, cid: u16) -> Result<(), Failure> {
    let what = "a command with a CID in flight";
    let got = queue.receive();
    match got {
        Got::Data(data, _) if data.cid == cid && !queue.manner.exact => {
            if data.success {
                return Ok(());
            }
            queue.expect_status(what, cid, Status::SUCCESS).map(drop)
        }
        got => {
            let answers = [Answer::Status(cid, Status::COMMAND_ID_CONFLICT)];
            queue.judge(what, &answers, got).map(drop)
        }
    }
}

fn identifier_in_flight_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, _, after, r2t) = awaiting(context)?;
    let mut sqe = read_sqe(disk.nsid, 1, 1);
    sqe.cid = r2t.cid;
    sqe.sgl = SglDescriptor::Transport {
        length: disk.block_bytes,
    };
    let capsule = disk.io.format.capsule(&sqe, &[]);
    disk.io.send(&capsule)?;
    conflict(&mut disk.io, r2t.cid)?;
    disk.io.send_data(&r2t, &after)?;
    disk.io
        .expect_status("the write whose CID it was", r2t.cid, Status::SUCCESS)?;
    disk.holds("after the conflict", 0, &after)
}

fn identifier_reused_after_its_answer(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    for round in 0..64_u8 {
        let data = block_of(context, round);
        let mut sqe = write_sqe(disk.nsid, 0, 1);
        sqe.cid = 5;
        sqe.sgl = SglDescriptor::Transport {
            length: disk.block_bytes,
        };
        let capsule = disk.io.format.capsule(&sqe, &[]);
        disk.io.send(&capsule)?;
        let (cqe, _) = disk.io.answer(&sqe, &data)?;
        check(
            cqe.status.is_success(),
            "a CID that is free",
            "success",
            cqe.status,
        )?;
    }
    let last = block_of(context, 63);
    disk.holds("after the last", 0, &last)
}

fn identifier_reused_after_an_abort(context: &mut Context) -> Result<(), Failure> {
    let (mut disk, before, after, r2t) = awaiting(context)?;
    let what = "Abort of a write whose data is awaited";
    let admin = &mut disk.controller.admin;
    let (_, dword) = admin.succeed(what, abort(1, r2t.cid), &[], 0)?;
    if dword & NOT_ABORTED == NOT_ABORTED && !context.manner.exact {
        return Err(Failure::NotOffered(
            "aborting a write whose data is awaited".into(),
        ));
    }
    expect_any(
        &mut disk.io,
        what,
        r2t.cid,
        &[Status::COMMAND_ABORT_REQUESTED],
    )?;
    let mut sqe = read_sqe(disk.nsid, 0, 1);
    sqe.cid = r2t.cid;
    sqe.sgl = SglDescriptor::Transport {
        length: disk.block_bytes,
    };
    let capsule = disk.io.format.capsule(&sqe, &[]);
    disk.io.send(&capsule)?;
    let (cqe, read) = disk.io.answer(&sqe, &[])?;
    check(
        cqe.status.is_success() && read == before,
        "a read with the CID of an aborted write",
        "the block as before",
        cqe.status,
    )?;
    // The data of the aborted write is still owed, and does no harm.
    disk.io.send_data(&r2t, &after)?;
    disk.holds("after the late data", 0, &before)
}

fn identifier_ffff(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let mut sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
    sqe.cid = u16::MAX;
    let admin = &mut disk.controller.admin;
    let capsule = admin.format.capsule(&sqe, &[]);
    admin.send(&capsule)?;
    let statuses = [Status::SUCCESS, Status::INVALID_FIELD_IN_COMMAND];
    expect_any(admin, "CID FFFFh", u16::MAX, &statuses)?;
    disk.still_works()
}

fn disconnect(record_format: u16) -> Sqe {
    FabricsCommand::Disconnect { record_format }.sqe(0, SglDescriptor::NONE)
}

fn disconnect_on_the_admin_queue(context: &mut Context) -> Result<(), Failure> {
    has_disconnect(context)?;
    let mut disk = Disk::new(context)?;
    let refusal = [Status::INVALID_QUEUE_TYPE.with_do_not_retry()];
    let what = "Disconnect on the admin queue";
    refused_bare(&mut disk.controller.admin, what, disconnect(0), &refusal)?;
    disk.controller.admin.still_works(0, 0)?;
    disk.still_works()
}

fn disconnect_record_format(context: &mut Context) -> Result<(), Failure> {
    has_disconnect(context)?;
    let mut disk = Disk::new(context)?;
    let statuses = [
        Status::CONNECT_INCOMPATIBLE_FORMAT.with_do_not_retry(),
        Status::INVALID_FIELD_IN_COMMAND,
    ];
    refused_bare(&mut disk.io, "RECFMT 1", disconnect(1), &statuses)?;
    disk.still_works()
}

fn disconnect_with_commands_in_flight(context: &mut Context) -> Result<(), Failure> {
    has_disconnect(context)?;
    let (mut disk, before, after, r2t) = awaiting(context)?;
    let (sqe, capsule) = disk.io.prepare(disconnect(0), &[], 0);
    disk.io.send(&capsule)?;
    loop {
        match disk.io.receive() {
            // What was in flight may be answered first.
            Got::Response(cqe) if cqe.cid == r2t.cid && !cqe.status.is_success() => {}
            Got::Response(cqe) if cqe.cid == sqe.cid && cqe.status.is_success() => break,
            got => return Err(Failure::differs("Disconnect", "success", got)),
        }
    }
    disk.io.send_data(&r2t, &after)?;
    disk.io.expect_end("the queue after its Disconnect")?;
    disk.io = disk.controller.io(1)?;
    disk.holds("after the Disconnect", 0, &before)?;
    std::thread::sleep(QUIET);
    disk.holds("some time after the Disconnect", 0, &before)
}

fn commands_behind_a_disconnect(context: &mut Context) -> Result<(), Failure> {
    has_disconnect(context)?;
    let mut disk = Disk::new(context)?;
    let (sqe, mut bytes) = disk.io.prepare(disconnect(0), &[], 0);
    for _ in 0..4 {
        let read = read_sqe(disk.nsid, 0, 1);
        let (_, capsule) = disk.io.prepare(read, &[], disk.block_bytes);
        bytes.extend(capsule);
    }
    disk.io.send(&bytes)?;
    let mut disconnected = false;
    loop {
        match disk.io.receive() {
            Got::Response(cqe) if cqe.cid == sqe.cid && cqe.status.is_success() => {
                disconnected = true;
            }
            // Whether commands behind it are still carried out is open.
            Got::Response(_) | Got::Data(..) => {}
            got => {
                check(
                    disconnected,
                    "Disconnect",
                    "its answer before the end",
                    &got,
                )?;
                disk.io
                    .judge("the queue after its Disconnect", &[Answer::End], got)?;
                break;
            }
        }
    }
    disk.controller.admin.still_works(0, 0)
}
