//! Asynchronous events: how many requests there may be, and which events are told when (group 22).

use weir_nvme::Status;
use weir_nvme::command::{AdminCommand, GetLogPage, SetFeatures};
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::feature::{AsynchronousEventConfiguration, FeatureId};
use weir_nvme::log::{LogId, decode_changed_namespaces};
use weir_nvme::property::ControllerStatus;
use weir_nvme::sgl::SglDescriptor;

use super::guests::{GUEST_NSID, with_guest};
use super::hosts::{discovery, expect_any};
use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::nvme::context::Context;
use crate::nvme::peer::Got;
use crate::nvme::queue::{Queue, enabled};

cases! {
    22 event_requests_above_the_limit [] "NVMe Base 2.0c 5.2, 5.17.2.1 (AERL)"
        : "AERL + 3 Asynchronous Event Requests" => "AERL + 1 wait, the others: Asynchronous Event Request Limit Exceeded";
    22 event_requests_and_other_commands [] "NVMe Base 2.0c 5.2"
        : "as many Asynchronous Event Requests as there may be, and Identify behind them" => "Identify is answered";
    22 event_requests_at_a_reset [] "NVMe Base 2.0c 3.7.2, 5.2"
        : "CC.EN 0 with Asynchronous Event Requests outstanding, and as many after CC.EN 1" => "Command Abort Requested, or no answer; the new ones wait";
    22 event_masked_until_its_log_is_read [GATEWAY] "NVMe Base 2.0c 5.2"
        : "a namespace that comes, changes and goes, with two requests outstanding" => "one Namespace Attribute Changed, and a second only after the list was read";
    22 event_stays_masked_with_retain [GATEWAY] "NVMe Base 2.0c 5.2, 5.16 (RAE)"
        : "the list read with Retain Asynchronous Event set" => "no second event";
    22 event_waits_for_a_request [GATEWAY] "NVMe Base 2.0c 5.2"
        : "a namespace that comes while no request is outstanding" => "the event answers the next request";
    22 event_not_asked_for [GATEWAY] "NVMe Base 2.0c 5.27.1.8"
        : "a namespace that comes while its notices are off" => "no event";
    22 changed_namespaces_are_listed_once [GATEWAY] "NVMe Base 2.0c 5.16.1.5"
        : "the Changed Namespace List, twice" => "the NSID, then nothing";
    22 discovery_change_event [GATEWAY] "NVMe Base 2.0c 5.2, 5.16.1.23"
        : "a subsystem that comes, seen by a discovery controller" => "Discovery Log Page Change, once until the log is read";
    22 changed_namespaces_above_1024 not applicable "no subsystem of Weir has more than 1024 namespaces (NN), so that no more can change"
        : "more than 1024 namespaces that change" => "FFFFFFFFh and zeroes in the Changed Namespace List";
}

const GUEST: &str = "torture-events";
const GUEST_URL: &str = "null:?size=1M&block_size=512";

/// Sends an Asynchronous Event Request; its CID.
fn request(queue: &mut Queue) -> Result<u16, Failure> {
    let sqe = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
    let (sqe, capsule) = queue.prepare(sqe, &[], 0);
    queue.send(&capsule)?;
    Ok(sqe.cid)
}

fn limit(context: &Context) -> usize {
    usize::from(context.facts.controller.asynchronous_event_request_limit) + 1
}

fn event_requests_above_the_limit(context: &mut Context) -> Result<(), Failure> {
    let mut options = context.options();
    options.entries = options.entries.max(limit(context) as u16 + 8);
    let mut admin = context.controller_with(&options)?.admin;
    for _ in 0..limit(context) {
        request(&mut admin)?;
    }
    admin.expect_silence("as many event requests as there may be", QUIET)?;
    for _ in 0..2 {
        let cid = request(&mut admin)?;
        let refusal = Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED.with_do_not_retry();
        expect_any(&mut admin, "an event request too many", cid, &[refusal])?;
    }
    admin.still_works(0, 0)
}

fn event_requests_and_other_commands(context: &mut Context) -> Result<(), Failure> {
    let mut options = context.options();
    options.entries = options.entries.max(limit(context) as u16 + 8);
    let mut admin = context.controller_with(&options)?.admin;
    for _ in 0..limit(context) {
        request(&mut admin)?;
    }
    admin
        .identify(weir_nvme::identify::Cns::Controller, 0)
        .map(drop)
}

fn event_requests_at_a_reset(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    let mut waiting = vec![request(&mut admin)?, request(&mut admin)?];
    let disable =
        weir_nvme::command::FabricsCommand::PropertySet(weir_nvme::command::PropertySet {
            size: weir_nvme::command::PropertySize::FourBytes,
            offset: weir_nvme::property::Property::Configuration.value(),
            value: enabled().with_enabled(false).0.into(),
        });
    let (sqe, capsule) = admin.prepare(disable.sqe(0, SglDescriptor::NONE), &[], 0);
    admin.send(&capsule)?;
    let mut answered = false;
    // The answer to the write and those to the requests come in any order.
    loop {
        match admin.receive_within(QUIET * 4) {
            Got::Response(cqe) if cqe.cid == sqe.cid && cqe.status.is_success() => answered = true,
            Got::Response(cqe) if waiting.contains(&cqe.cid) => {
                waiting.retain(|cid| *cid != cqe.cid);
                let aborted = Status::COMMAND_ABORT_REQUESTED;
                check(
                    cqe.status.is(aborted),
                    "an event request at a reset",
                    aborted.to_string(),
                    cqe.status,
                )?;
            }
            Got::Nothing(_) if answered => break,
            got => return Err(Failure::differs("a reset", "its answer", got)),
        }
    }
    check(
        waiting.is_empty() || !context.manner.exact,
        "event requests at a reset",
        "Command Abort Requested, for each",
        format!("{} without an answer", waiting.len()),
    )?;
    admin.await_status("CSTS.RDY 0", |status| !status.ready())?;
    admin.configure(enabled())?;
    admin.await_status("CSTS.RDY", ControllerStatus::ready)?;
    for _ in 0..limit(context) {
        request(&mut admin)?;
    }
    admin.expect_silence("event requests after a reset", QUIET)
}

/// Turns these notices on, and all others off.
fn want(queue: &mut Queue, notices: AsynchronousEventConfiguration) -> Result<(), Failure> {
    let set = SetFeatures::new(FeatureId::AsynchronousEventConfiguration, notices.0);
    let sqe = AdminCommand::SetFeatures(set).sqe(0, SglDescriptor::NONE);
    queue
        .succeed("Asynchronous Event Configuration", sqe, &[], 0)
        .map(drop)
}

/// A controller that tells of namespaces.
fn observer(context: &Context) -> Result<Queue, Failure> {
    let mut admin = context.controller()?.admin;
    want(
        &mut admin,
        AsynchronousEventConfiguration::NAMESPACE_ATTRIBUTE,
    )?;
    Ok(admin)
}

/// Waits for an event; it answers one of `requests`.
fn event(
    queue: &mut Queue,
    what: &str,
    requests: &mut Vec<u16>,
    expected: EventType,
) -> Result<(), Failure> {
    let got = queue.receive();
    let Got::Response(cqe) = &got else {
        return Err(Failure::differs(what, "an event", got));
    };
    let holds = requests.contains(&cqe.cid)
        && cqe.status.is_success()
        && AsynchronousEvent::from_dword(cqe.dw0()) == AsynchronousEvent::new(expected);
    requests.retain(|cid| *cid != cqe.cid);
    check(
        holds,
        what,
        expected.to_string(),
        format!("{got}, {:#x}", cqe.dw0()),
    )
}

/// Reads the Changed Namespace List.
fn changed(queue: &mut Queue, retain: bool) -> Result<Vec<u32>, Failure> {
    let get = AdminCommand::GetLogPage(GetLogPage {
        retain_asynchronous_event: retain,
        ..GetLogPage::new(LogId::ChangedNamespaceList, 0, 4096)
    });
    let sqe = get.sqe(0, SglDescriptor::NONE);
    let (data, _) = queue.succeed("the Changed Namespace List", sqe, &[], 4096)?;
    let list: [u8; 4096] = data
        .try_into()
        .map_err(|_| Failure::differs("the Changed Namespace List", "4096 bytes", "another"))?;
    match decode_changed_namespaces(&list) {
        Some(changed) => Ok(changed.collect()),
        None => Err(Failure::differs(
            "the Changed Namespace List",
            "the namespaces",
            "too many to list",
        )),
    }
}

const NAMESPACE: EventType = EventType::NamespaceAttributeChanged;

fn event_masked_until_its_log_is_read(context: &mut Context) -> Result<(), Failure> {
    let mut admin = observer(context)?;
    let mut requests = vec![request(&mut admin)?, request(&mut admin)?];
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        event(
            &mut admin,
            "a namespace that came",
            &mut requests,
            NAMESPACE,
        )?;
        guest.retire(context)?;
        guest.serve(context)?;
        admin.expect_silence("changes while the event is masked", QUIET)?;
        let list = changed(&mut admin, false)?;
        check(
            list == [GUEST_NSID],
            "the Changed Namespace List",
            format!("[{GUEST_NSID}]"),
            format!("{list:?}"),
        )?;
        guest.retire(context)?;
        event(
            &mut admin,
            "a namespace that went",
            &mut requests,
            NAMESPACE,
        )
    })
}

fn event_stays_masked_with_retain(context: &mut Context) -> Result<(), Failure> {
    let mut admin = observer(context)?;
    let mut requests = vec![request(&mut admin)?, request(&mut admin)?];
    with_guest(context, GUEST, GUEST_URL, |context, guest| {
        event(
            &mut admin,
            "a namespace that came",
            &mut requests,
            NAMESPACE,
        )?;
        changed(&mut admin, true)?;
        guest.retire(context)?;
        admin.expect_silence("a change after a read with RAE", QUIET)
    })
}

fn event_waits_for_a_request(context: &mut Context) -> Result<(), Failure> {
    let mut admin = observer(context)?;
    with_guest(context, GUEST, GUEST_URL, |_, _| {
        admin.expect_silence("a change without a request", QUIET)?;
        let mut requests = vec![request(&mut admin)?];
        event(&mut admin, "the event before", &mut requests, NAMESPACE)
    })
}

fn event_not_asked_for(context: &mut Context) -> Result<(), Failure> {
    let mut admin = context.controller()?.admin;
    want(&mut admin, AsynchronousEventConfiguration::NONE)?;
    request(&mut admin)?;
    with_guest(context, GUEST, GUEST_URL, |_, _| {
        admin.expect_silence("a change whose notices are off", QUIET)
    })
}

fn changed_namespaces_are_listed_once(context: &mut Context) -> Result<(), Failure> {
    let mut admin = observer(context)?;
    changed(&mut admin, false)?;
    with_guest(context, GUEST, GUEST_URL, |_, _| {
        for expected in [&[GUEST_NSID][..], &[]] {
            let list = changed(&mut admin, false)?;
            check(
                list == expected,
                "the Changed Namespace List",
                format!("{expected:?}"),
                format!("{list:?}"),
            )?;
        }
        Ok(())
    })
}

fn discovery_change_event(context: &mut Context) -> Result<(), Failure> {
    const SUBSYSTEM: &str = "nqn.2026-01.com.example:torture-announced";
    let mut admin = discovery(context)?.admin;
    want(
        &mut admin,
        AsynchronousEventConfiguration::DISCOVERY_LOG_CHANGE,
    )?;
    let mut requests = vec![request(&mut admin)?, request(&mut admin)?];
    context.weir(&["subsystem", "add", SUBSYSTEM, "--allow-any-host"])?;
    let change = EventType::DiscoveryLogChange;
    let came = event(&mut admin, "a subsystem that came", &mut requests, change);
    context.weir(&["subsystem", "remove", SUBSYSTEM])?;
    came?;
    admin.expect_silence("a second change before the log is read", QUIET)
}
