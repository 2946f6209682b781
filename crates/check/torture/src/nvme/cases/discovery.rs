//! The Discovery log: where it is read, and what a reader can tell of changes (group 18).

use weir_nvme::Status;
use weir_nvme::command::{AdminCommand, GetLogPage};
use weir_nvme::log::{DiscoveryLogEntry, DiscoveryLogHeader, LogId};
use weir_nvme::sgl::SglDescriptor;

use super::hosts::{INVALID_FIELD, INVALID_LENGTH, discovery, judge, refused};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::queue::Queue;

cases! {
    18 discovery_offset_past_the_end [] "NVMe Base 2.0c 5.16"
        : "the Discovery log from one dword past its end" => "Invalid Field in Command";
    18 discovery_offset_far_past_the_end [] "NVMe Base 2.0c 5.16"
        : "the Discovery log from the highest offset, and from 2^32" => "Invalid Field in Command";
    18 discovery_offset_at_the_end [] "NVMe Base 2.0c 5.16"
        : "the Discovery log from its end" => "nothing but zeroes, or Invalid Field in Command";
    18 discovery_read_across_the_end [] "NVMe Base 2.0c 5.16"
        : "more of the Discovery log than there is" => "the log, and zeroes behind it: no byte of anything else";
    18 discovery_offset_unaligned [] "NVMe Base 2.0c 5.16"
        : "the Discovery log from offset 2" => "Invalid Field in Command";
    18 discovery_offset_is_an_index [] "NVMe Base 2.0c 5.16"
        : "the Discovery log by index (OT 1)" => "Invalid Field in Command";
    18 discovery_length_maximum [] "NVMe Base 2.0c 5.16, 3.3.3.2.1"
        : "NUMD FFFFFFFFh with a buffer of 4096 bytes" => "Invalid Field in Command, or Data SGL Length Invalid";
    18 discovery_length_maximum_and_buffer [] "NVMe Base 2.0c 5.16, 3.3.3.2.1"
        : "NUMD FFFFFFFFh with a buffer of 2^32 - 4 bytes" => "Invalid Field in Command, or Data SGL Length Invalid";
    18 discovery_buffer_too_short [] "NVMe Base 2.0c 5.16, 3.3.3.2.1"
        : "1024 bytes of the Discovery log with a buffer of 512" => "Data SGL Length Invalid, or Invalid Field in Command";
    18 discovery_has_no_smart_log [] "NVMe Base 2.0c 5.16, 3.1.2.3.4"
        : "the SMART log of a discovery controller" => "Invalid Log Page, or Invalid Field in Command";
    18 discovery_generation_grows [GATEWAY] "NVMe Base 2.0c 5.16.1.23"
        : "the Discovery log before and after a subsystem comes, and after it goes" => "another GENCTR and NUMREC each time";
    18 discovery_change_between_chunks [GATEWAY] "NVMe Base 2.0c 5.16.1.23"
        : "the Discovery log in two chunks, and a subsystem that comes between them" => "a GENCTR at the end that is not the one at the start";
}

const HEADER: u32 = DiscoveryLogHeader::SIZE as u32;
const ENTRY: u64 = DiscoveryLogEntry::SIZE as u64;
/// A subsystem that comes and goes.
const GUEST: &str = "nqn.2026-01.com.example:torture-guest";

fn part(offset: u64, length: u64) -> GetLogPage {
    GetLogPage::new(LogId::Discovery, offset, length)
}

/// Reads a part of the log that must be there.
fn read(queue: &mut Queue, offset: u64, length: u32) -> Result<Vec<u8>, Failure> {
    let get = AdminCommand::GetLogPage(part(offset, length.into()));
    let sqe = get.sqe(0, SglDescriptor::NONE);
    let (data, _) = queue.succeed("the Discovery log", sqe, &[], length)?;
    check(
        data.len() == length as usize,
        "the Discovery log",
        format!("{length} bytes"),
        data.len(),
    )?;
    Ok(data)
}

fn header(queue: &mut Queue) -> Result<DiscoveryLogHeader, Failure> {
    let data = read(queue, 0, HEADER)?;
    DiscoveryLogHeader::parse(&data)
        .map_err(|error| Failure::preparation("the Discovery log's header", error))
}

/// Bytes of the whole log.
fn length(queue: &mut Queue) -> Result<u64, Failure> {
    Ok(u64::from(HEADER) + header(queue)?.records * ENTRY)
}

fn refuses(
    queue: &mut Queue,
    what: &str,
    get: GetLogPage,
    buffer: u32,
    statuses: &[Status],
) -> Result<(), Failure> {
    let sqe = AdminCommand::GetLogPage(get).sqe(0, SglDescriptor::NONE);
    refused(queue, what, sqe, &[], buffer, statuses)?;
    header(queue).map(drop)
}

fn discovery_offset_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let past = length(&mut queue)? + 4;
    let what = "the Discovery log past its end";
    refuses(&mut queue, what, part(past, 512), 512, &[INVALID_FIELD])
}

fn discovery_offset_far_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    for past in [u64::MAX - 3, 1 << 32, (1 << 63) + 4096] {
        let what = format!("the Discovery log from {past:#x}");
        refuses(&mut queue, &what, part(past, 512), 512, &[INVALID_FIELD])?;
    }
    Ok(())
}

fn discovery_offset_at_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let end = length(&mut queue)?;
    let sqe = AdminCommand::GetLogPage(part(end, 512)).sqe(0, SglDescriptor::NONE);
    let (cqe, data) = queue.command(sqe, &[], 512)?;
    let what = "the Discovery log from its end";
    let statuses = [Status::SUCCESS, Status::INVALID_FIELD_IN_COMMAND];
    judge(&mut queue, what, cqe, &statuses)?;
    check(
        data.iter().all(|byte| *byte == 0),
        what,
        "zeroes",
        "other bytes",
    )
}

fn discovery_read_across_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let whole = length(&mut queue)?;
    let asked = (whole + 8192).next_multiple_of(4096) as u32;
    let data = read(&mut queue, 0, asked)?;
    let beyond = data.iter().skip(whole as usize).find(|byte| **byte != 0);
    check(
        beyond.is_none(),
        "what lies behind the Discovery log",
        "zeroes",
        "other bytes",
    )
}

fn discovery_offset_unaligned(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let what = "the Discovery log from offset 2";
    refuses(&mut queue, what, part(2, 512), 512, &[INVALID_FIELD])
}

fn discovery_offset_is_an_index(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let get = GetLogPage {
        offset_is_index: true,
        ..part(0, 512)
    };
    refuses(
        &mut queue,
        "the Discovery log by index",
        get,
        512,
        &[INVALID_FIELD],
    )
}

fn discovery_length_maximum(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let get = GetLogPage {
        dwords_zero_based: u32::MAX,
        ..part(0, 4)
    };
    let statuses = [INVALID_FIELD, INVALID_LENGTH];
    refuses(&mut queue, "NUMD FFFFFFFFh", get, 4096, &statuses)
}

fn discovery_length_maximum_and_buffer(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let get = GetLogPage {
        dwords_zero_based: u32::MAX,
        ..part(0, 4)
    };
    let statuses = [INVALID_FIELD, INVALID_LENGTH];
    refuses(&mut queue, "NUMD FFFFFFFFh", get, u32::MAX - 3, &statuses)
}

fn discovery_buffer_too_short(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let statuses = [INVALID_LENGTH, Status::INVALID_FIELD_IN_COMMAND];
    let what = "1024 bytes into a buffer of 512";
    refuses(&mut queue, what, part(0, 1024), 512, &statuses)
}

fn discovery_has_no_smart_log(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let get = GetLogPage::new(LogId::SmartHealth, 0, 512);
    let statuses = [
        Status::INVALID_LOG_PAGE.with_do_not_retry(),
        Status::INVALID_FIELD_IN_COMMAND,
    ];
    refuses(
        &mut queue,
        "the SMART log of discovery",
        get,
        512,
        &statuses,
    )
}

fn discovery_generation_grows(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let before = header(&mut queue)?;
    context.weir(&["subsystem", "add", GUEST, "--allow-any-host"])?;
    let with = header(&mut queue);
    context.weir(&["subsystem", "remove", GUEST])?;
    let with = with?;
    let without = header(&mut queue)?;
    for (what, now, then) in [("it came", &with, &before), ("it went", &without, &with)] {
        check(
            now.generation != then.generation,
            format!("GENCTR after {what}"),
            format!("not {}", then.generation),
            now.generation,
        )?;
        check(
            now.records != then.records,
            format!("NUMREC after {what}"),
            format!("not {}", then.records),
            now.records,
        )?;
    }
    Ok(())
}

fn discovery_change_between_chunks(context: &mut Context) -> Result<(), Failure> {
    let mut queue = discovery(context)?.admin;
    let first = read(&mut queue, 0, HEADER)?;
    let before = DiscoveryLogHeader::parse(&first)
        .map_err(|error| Failure::preparation("the Discovery log's header", error))?;
    context.weir(&["subsystem", "add", GUEST, "--allow-any-host"])?;
    let rest = read(&mut queue, HEADER.into(), DiscoveryLogEntry::SIZE as u32);
    let after = header(&mut queue);
    context.weir(&["subsystem", "remove", GUEST])?;
    rest?;
    let after = after?;
    check(
        after.generation != before.generation,
        "GENCTR after the last chunk",
        format!("not {}", before.generation),
        after.generation,
    )
}
