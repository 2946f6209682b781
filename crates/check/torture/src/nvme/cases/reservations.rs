//! Reservations (group 27).
//!
//! The witness is registered throughout, and what is reserved is reserved for registrants, so that it may go on. Nothing is reserved any
//! more when a case has ended, however it ended.

use weir_nvme::command::NvmCommand;
use weir_nvme::feature::HostIdentifier;
use weir_nvme::identify::OptionalNvmCommands;
use weir_nvme::reservation::{
    AcquireAction, RegisterAction, RegisteredController, ReleaseAction, ReservationAcquire,
    ReservationAcquireKeys, ReservationRegister, ReservationRegisterKeys, ReservationRelease,
    ReservationReleaseKey, ReservationReport, ReservationReportCommand,
};
use weir_nvme::{HostId, Status};

use super::hosts::{Disk, INVALID_FIELD, INVALID_LENGTH, judge, nvm, refused};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::queue::{Controller, Queue, QueueOptions};

cases! {
    27 reservations_are_offered [] "NVMe Base 2.0c 5.17.2.1 (ONCS); NVM Command Set 1.0c 4.1.5.1 (RESCAP)"
        : "Identify Controller and Namespace" => "RESCAP not 0 where ONCS has reservations";
    27 reservation_register [WRITES] "NVMe Base 2.0c 7.3, 8.19.3"
        : "Register, again with its key and with another, Replace, Unregister, a key of zero, a reserved action"
            => "what the action says; Reservation Conflict; Invalid Field in Command";
    27 reservation_register_ignoring_the_key [WRITES] "NVMe Base 2.0c 7.3"
        : "Replace with IEKEY and another current key, registered and not" => "the new key is registered";
    27 reservation_acquire [WRITES] "NVMe Base 2.0c 7.2, 8.19.4"
        : "Acquire of one that has not registered, of each type for registrants, of a reserved type, with IEKEY"
            => "Reservation Conflict; success; Invalid Field in Command";
    27 reservation_release [WRITES] "NVMe Base 2.0c 7.4, 8.19.6"
        : "Release of another type and by one that holds nothing, and Clear" => "Invalid Field in Command; success, and nothing changes; nobody is registered";
    27 reservation_report [WRITES] "NVMe Base 2.0c 7.5"
        : "Reservation Report that is cut, of more than MDTS, and without EDS" => "its beginning; a refusal; Host Identifier Inconsistent Format, or the report";
    27 reservation_registrants_not_sessions [WRITES] "NVMe Base 2.0c 7.5, 8.19"
        : "two controllers of one host that registers once" => "one registrant";
    27 reservation_holder_changes_its_key [WRITES] "NVMe Base 2.0c 8.19.3"
        : "the holder that replaces its key" => "the holder stays the holder, with the new key";
    27 reservation_more_than_16_registrants [WRITES] "NVMe Base 2.0c 7.3; CVE-2025-57275"
        : "17 registrants with persistence" => "all of them are reported";
    27 reservation_short_key_buffer [WRITES] "NVMe Base 2.0c 7.2 to 7.4"
        : "Register, Acquire and Release whose buffer holds half of their keys" => "Data SGL Length Invalid";
    27 reservation_wrong_key [WRITES] "NVMe Base 2.0c 8.19.3 to 8.19.6"
        : "Acquire, Preempt, Release, Clear, Replace and Unregister with another key" => "Reservation Conflict, and nothing is changed";
    27 reservation_binds_others [WRITES] "NVMe Base 2.0c 8.19 (Figure 430)"
        : "reads and writes of a host that has not registered" => "Reservation Conflict";
    27 reservation_all_registrants [WRITES] "NVMe Base 2.0c 8.19"
        : "the types for all registrants, and the registrants that go" => "every registrant holds it; it stays until the last goes";
    27 reservation_preempt_that_fails [WRITES] "NVMe Base 2.0c 8.19.7"
        : "Preempt and Abort of a key that nobody has" => "Reservation Conflict, and nothing is changed";
    27 reservation_of_no_host [WRITES] "NVMe Base 2.0c 7.3"
        : "Register of a host whose identifier is zero" => "Host Identifier Not Initialized, or Connect refuses the host";
}

/// Write Exclusive and Exclusive Access, for registrants and all registrants (RTYPE).
const FOR_REGISTRANTS: [u8; 4] = [3, 4, 5, 6];
/// Write Exclusive for registrants: strangers may read.
const WRITE_EXCLUSIVE: u8 = 3;
const EXCLUSIVE: u8 = 4;
const ALL_REGISTRANTS: u8 = 6;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_do_not_retry();
/// Key of the witness.
const WITNESS_KEY: u64 = 0x77;
/// Keys of hosts of a case.
const KEY: u64 = 0xa1;
const OTHER_KEY: u64 = 0xb2;

/// A host of a case, with what it asks of reservations.
struct Host {
    disk: Disk,
}

impl Host {
    fn connect(context: &Context, options: &QueueOptions) -> Result<Self, Failure> {
        let (controller, io) = context.io_with(options)?;
        Ok(Host::of(context, controller, io))
    }

    fn of(context: &Context, controller: Controller, io: Queue) -> Self {
        Host {
            disk: Disk {
                controller,
                io,
                nsid: context.target.nsid,
                block_bytes: context.facts.block_bytes,
            },
        }
    }

    /// Sends a command that is to end with one of `statuses`.
    fn send(
        &mut self,
        what: &str,
        command: NvmCommand,
        cdw10: u32,
        keys: &[u8],
        statuses: &[Status],
    ) -> Result<(), Failure> {
        let mut sqe = nvm(command, self.disk.nsid);
        sqe.cdw10 = cdw10;
        let (cqe, _) = self.disk.io.command(sqe, keys, 0)?;
        judge(&mut self.disk.io, what, cqe, statuses)
    }

    fn register(
        &mut self,
        what: &str,
        action: RegisterAction,
        (current, new): (u64, u64),
        statuses: &[Status],
    ) -> Result<(), Failure> {
        let register = ReservationRegister {
            action,
            ignores_existing_key: false,
            persistence: None,
        };
        let keys = ReservationRegisterKeys { current, new }.encode();
        let command = NvmCommand::ReservationRegister;
        self.send(what, command, register.to_cdw10(), &keys, statuses)
    }

    fn acquire(
        &mut self,
        what: &str,
        (action, kind): (AcquireAction, u8),
        (current, preempted): (u64, u64),
        statuses: &[Status],
    ) -> Result<(), Failure> {
        let acquire = ReservationAcquire { action, kind };
        let keys = ReservationAcquireKeys { current, preempted }.encode();
        let command = NvmCommand::ReservationAcquire;
        self.send(what, command, acquire.to_cdw10(), &keys, statuses)
    }

    fn release(
        &mut self,
        what: &str,
        (action, kind): (ReleaseAction, u8),
        current: u64,
        statuses: &[Status],
    ) -> Result<(), Failure> {
        let release = ReservationRelease { action, kind };
        let keys = ReservationReleaseKey { current }.encode();
        let command = NvmCommand::ReservationRelease;
        self.send(what, command, release.to_cdw10(), &keys, statuses)
    }

    fn report(&mut self) -> Result<ReservationReport, Failure> {
        const BYTES: u32 = 4096;
        let mut sqe = nvm(NvmCommand::ReservationReport, self.disk.nsid);
        let report = ReservationReportCommand {
            dwords_zero_based: BYTES / 4 - 1,
            is_extended: true,
        };
        [sqe.cdw10, sqe.cdw11] = report.to_dwords();
        let (data, _) = self
            .disk
            .io
            .succeed("Reservation Report", sqe, &[], BYTES)?;
        let parsed = ReservationReport::parse(&data, true);
        parsed.map_err(|error| Failure::differs("Reservation Report", "a report", error))
    }
}

/// Some hosts, with the witness registered beside them.
struct Hosts {
    one: Host,
    other: Host,
    witness: Host,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Whatever the case has left: the witness has registered, unless it was preempted.
        let clear = (ReleaseAction::Clear, 0);
        let by = [
            (&mut self.witness, WITNESS_KEY),
            (&mut self.one, KEY),
            (&mut self.other, OTHER_KEY),
        ];
        for (host, key) in by {
            if host.release("Clear", clear, key, GOOD).is_ok() {
                return;
            }
        }
    }
}

const GOOD: &[Status] = &[Status::SUCCESS];

/// Another host's identifier.
fn another(id: HostId, number: u8) -> HostId {
    let mut bytes = id.0;
    bytes[15] ^= number;
    bytes[14] ^= 0x5a;
    HostId(bytes)
}

fn offered(context: &Context) -> Result<(), Failure> {
    let commands = context.facts.controller.optional_nvm_commands;
    let has_some = context.facts.namespace.reservation_capabilities != 0;
    let is_offered = commands.contains(OptionalNvmCommands::RESERVATIONS) && has_some;
    if is_offered || context.manner.exact {
        return Ok(());
    }
    Err(Failure::NotOffered("reservations".into()))
}

/// Two hosts, neither of which has registered, and the witness, which has.
fn hosts(context: &Context) -> Result<Hosts, Failure> {
    offered(context)?;
    let target = &context.target;
    if target.witness_id == target.host_id {
        return Err(Failure::NotOffered("two hosts".into()));
    }
    let options = context.options();
    let mut witness = Host::connect(
        context,
        &QueueOptions {
            host_nqn: target.witness_nqn.clone(),
            host_id: target.witness_id,
            ..options.clone()
        },
    )?;
    let other = QueueOptions {
        host_id: another(options.host_id, 1),
        ..options.clone()
    };
    let keys = (0, WITNESS_KEY);
    witness.register("Register", RegisterAction::Register, keys, GOOD)?;
    Ok(Hosts {
        one: Host::connect(context, &options)?,
        other: Host::connect(context, &other)?,
        witness,
    })
}

/// As [`hosts`], with one of them registered.
fn hosts_with_registrant(context: &Context) -> Result<Hosts, Failure> {
    let mut hosts = hosts(context)?;
    let keys = (0, KEY);
    hosts
        .one
        .register("Register", RegisterAction::Register, keys, GOOD)?;
    Ok(hosts)
}

/// What is reported of one host.
fn reported(report: &ReservationReport, id: HostId) -> Vec<RegisteredController> {
    let its = report
        .controllers
        .iter()
        .filter(|one| one.host == HostIdentifier::Extended(id));
    its.copied().collect()
}

/// The registration of the first host: its key, and whether it holds the reservation.
fn expect_registration(
    context: &Context,
    hosts: &mut Hosts,
    what: &str,
    expected: Option<(u64, bool)>,
) -> Result<(), Failure> {
    let report = hosts.one.report()?;
    let its = reported(&report, context.target.host_id);
    let got = its.first().map(|one| (one.key, one.holds));
    check(
        got == expected,
        format!("{what}: the host's registration"),
        format!("{expected:x?}"),
        format!("{got:x?}"),
    )
}

fn reservations_are_offered(context: &mut Context) -> Result<(), Failure> {
    offered(context)?;
    let capabilities = context.facts.namespace.reservation_capabilities;
    let is_right = match context.manner.exact {
        true => capabilities == 0xff,
        false => capabilities != 0,
    };
    check(is_right, "RESCAP", "what can be reserved", capabilities)
}

fn reservation_register(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts(context)?;
    let (register, replace) = (RegisterAction::Register, RegisterAction::Replace);
    let unregister = RegisterAction::Unregister;
    let one = &mut hosts.one;
    one.register(
        "a key of zero",
        register,
        (0, 0),
        &[INVALID_FIELD, CONFLICT],
    )?;
    one.register("Replace before Register", replace, (0, KEY), &[CONFLICT])?;
    one.register(
        "Unregister before Register",
        unregister,
        (KEY, 0),
        &[CONFLICT],
    )?;
    one.register("Register", register, (0, KEY), GOOD)?;
    one.register("Register with its key", register, (0, KEY), GOOD)?;
    one.register(
        "Register with another key",
        register,
        (0, OTHER_KEY),
        &[CONFLICT],
    )?;
    let command = NvmCommand::ReservationRegister;
    one.send("RREGA 7", command, 7, &[0; 16], &[INVALID_FIELD])?;
    one.send("CPTPL 01b", command, 1 << 30, &[0; 16], &[INVALID_FIELD])?;
    expect_registration(context, &mut hosts, "Register", Some((KEY, false)))?;
    let keys = (KEY, OTHER_KEY);
    hosts.one.register("Replace", replace, keys, GOOD)?;
    expect_registration(context, &mut hosts, "Replace", Some((OTHER_KEY, false)))?;
    let keys = (OTHER_KEY, 0);
    hosts.one.register("Unregister", unregister, keys, GOOD)?;
    expect_registration(context, &mut hosts, "Unregister", None)?;
    hosts.one.disk.still_works()
}

fn reservation_register_ignoring_the_key(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts(context)?;
    for key in [KEY, OTHER_KEY] {
        let register = ReservationRegister {
            action: RegisterAction::Replace,
            ignores_existing_key: true,
            persistence: None,
        };
        let keys = ReservationRegisterKeys {
            current: 0x5555,
            new: key,
        };
        let command = NvmCommand::ReservationRegister;
        let what = "Replace with IEKEY";
        // Some want a registration all the same.
        let statuses = [Status::SUCCESS, CONFLICT];
        let statuses = match context.manner.exact {
            true => &statuses[..1],
            false => &statuses,
        };
        let cdw10 = register.to_cdw10();
        hosts
            .one
            .send(what, command, cdw10, &keys.encode(), statuses)?;
        if context.manner.exact {
            expect_registration(context, &mut hosts, what, Some((key, false)))?;
        }
    }
    Ok(())
}

fn reservation_acquire(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts(context)?;
    let acquire = |kind| (AcquireAction::Acquire, kind);
    let what = "Acquire of one that has not registered";
    hosts
        .one
        .acquire(what, acquire(EXCLUSIVE), (KEY, 0), &[CONFLICT])?;
    let keys = (0, KEY);
    hosts
        .one
        .register("Register", RegisterAction::Register, keys, GOOD)?;
    for kind in FOR_REGISTRANTS {
        let what = format!("Acquire of type {kind}");
        hosts.one.acquire(&what, acquire(kind), (KEY, 0), GOOD)?;
        let again = format!("{what}, again");
        hosts.one.acquire(&again, acquire(kind), (KEY, 0), GOOD)?;
        expect_registration(context, &mut hosts, &what, Some((KEY, true)))?;
        let release = (ReleaseAction::Release, kind);
        hosts.one.release("Release", release, KEY, GOOD)?;
    }
    for kind in [0, 7, 0xff] {
        let what = format!("Acquire of type {kind}");
        hosts
            .one
            .acquire(&what, acquire(kind), (KEY, 0), &[INVALID_FIELD])?;
    }
    let with_iekey = ReservationAcquire {
        action: AcquireAction::Acquire,
        kind: EXCLUSIVE,
    };
    let keys = ReservationAcquireKeys {
        current: KEY,
        preempted: 0,
    };
    let cdw10 = with_iekey.to_cdw10() | 1 << 3;
    let command = NvmCommand::ReservationAcquire;
    let what = "Acquire with IEKEY";
    hosts
        .one
        .send(what, command, cdw10, &keys.encode(), &[INVALID_FIELD])?;
    hosts.one.disk.still_works()
}

fn reservation_release(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let keys = (0, OTHER_KEY);
    hosts
        .other
        .register("Register", RegisterAction::Register, keys, GOOD)?;
    let acquire = (AcquireAction::Acquire, EXCLUSIVE);
    hosts.one.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
    let release = |kind| (ReleaseAction::Release, kind);
    let what = "Release of another type";
    hosts
        .one
        .release(what, release(WRITE_EXCLUSIVE), KEY, &[INVALID_FIELD])?;
    let what = "Release by one that holds nothing";
    hosts
        .other
        .release(what, release(EXCLUSIVE), OTHER_KEY, GOOD)?;
    expect_registration(context, &mut hosts, what, Some((KEY, true)))?;
    let clear = (ReleaseAction::Clear, 0);
    hosts.other.release("Clear", clear, OTHER_KEY, GOOD)?;
    let report = hosts.one.report()?;
    check(
        report.controllers.is_empty() && report.kind == 0,
        "Clear",
        "nobody registered, nothing reserved",
        format!("{report:?}"),
    )
}

fn reservation_report(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let command = |bytes: u32, is_extended| {
        let mut sqe = nvm(NvmCommand::ReservationReport, context.target.nsid);
        let report = ReservationReportCommand {
            dwords_zero_based: (bytes / 4).wrapping_sub(1),
            is_extended,
        };
        [sqe.cdw10, sqe.cdw11] = report.to_dwords();
        sqe
    };
    let io = &mut hosts.one.disk.io;
    let (data, _) = io.succeed("a report of 16 bytes", command(16, true), &[], 16)?;
    check(
        data.len() == 16,
        "a report of 16 bytes",
        "16 bytes",
        data.len(),
    )?;
    if let Some(most) = context.facts.transfer_bytes_max
        && let Ok(most) = u32::try_from(most)
    {
        let statuses = [INVALID_FIELD, INVALID_LENGTH];
        let long = command(most + 4096, true);
        refused(
            io,
            "a report of more than MDTS",
            long,
            &[],
            most + 4096,
            &statuses,
        )?;
    }
    refused(
        io,
        "a report of more than its buffer",
        command(0, true),
        &[],
        4096,
        &[INVALID_FIELD, INVALID_LENGTH],
    )?;
    let (cqe, _) = io.command(command(4096, false), &[], 4096)?;
    let statuses = [
        Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT.with_do_not_retry(),
        Status::SUCCESS,
    ];
    judge(io, "a report without EDS", cqe, &statuses)?;
    hosts.one.disk.still_works()
}

fn reservation_registrants_not_sessions(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let mut again = Host::connect(context, &context.options())?;
    let keys = (0, KEY);
    let what = "Register through another controller";
    again.register(what, RegisterAction::Register, keys, GOOD)?;
    let acquire = (AcquireAction::Acquire, EXCLUSIVE);
    again.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
    expect_registration(context, &mut hosts, what, Some((KEY, true)))?;
    let write = vec![0x5a; context.facts.block_bytes as usize];
    hosts.one.disk.write(0, &write)?;
    let report = hosts.one.report()?;
    let its = reported(&report, context.target.host_id);
    let mut controllers: Vec<_> = its.iter().map(|one| one.controller).collect();
    controllers.sort_unstable();
    controllers.dedup();
    check(
        controllers.len() == its.len() && its.iter().all(|one| one.key == KEY && one.holds),
        "the report",
        "each controller of the host once, with its key",
        format!("{its:?}"),
    )
}

fn reservation_holder_changes_its_key(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let acquire = (AcquireAction::Acquire, EXCLUSIVE);
    hosts.one.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
    let keys = (KEY, 0x1234);
    hosts
        .one
        .register("Replace", RegisterAction::Replace, keys, GOOD)?;
    expect_registration(context, &mut hosts, "Replace", Some((0x1234, true)))
}

fn reservation_more_than_16_registrants(context: &mut Context) -> Result<(), Failure> {
    const COUNT: u8 = 17;
    let mut hosts = hosts(context)?;
    let options = context.options();
    for number in 0..COUNT {
        let id = another(options.host_id, 0x10 + number);
        let options = QueueOptions {
            host_id: id,
            ..options.clone()
        };
        let mut host = Host::connect(context, &options)?;
        let register = ReservationRegister {
            action: RegisterAction::Register,
            ignores_existing_key: false,
            persistence: Some(true),
        };
        let keys = ReservationRegisterKeys {
            current: 0,
            new: 0x100 + u64::from(number),
        };
        let what = format!("registrant {number}");
        let command = NvmCommand::ReservationRegister;
        host.send(&what, command, register.to_cdw10(), &keys.encode(), GOOD)?;
    }
    let report = hosts.witness.report()?;
    for number in 0..COUNT {
        let key = 0x100 + u64::from(number);
        let is_there = report.controllers.iter().any(|one| one.key == key);
        let what = format!("registrant {number}");
        check(is_there, what, "it is reported", format!("{report:?}"))?;
    }
    // Nothing of this is to outlast the case.
    let register = ReservationRegister {
        action: RegisterAction::Register,
        ignores_existing_key: false,
        persistence: Some(false),
    };
    let keys = ReservationRegisterKeys {
        current: 0,
        new: WITNESS_KEY,
    };
    let command = NvmCommand::ReservationRegister;
    let cdw10 = register.to_cdw10();
    let what = "Register without persistence";
    hosts
        .witness
        .send(what, command, cdw10, &keys.encode(), GOOD)
}

fn reservation_short_key_buffer(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts(context)?;
    for (what, command, length) in [
        ("Register", NvmCommand::ReservationRegister, 8),
        ("Acquire", NvmCommand::ReservationAcquire, 8),
        ("Release", NvmCommand::ReservationRelease, 4),
    ] {
        let what = format!("{what} with {length} bytes");
        let data = [7; 8];
        hosts.one.send(
            &what,
            command,
            0,
            &data[..length],
            &[INVALID_LENGTH, INVALID_FIELD],
        )?;
    }
    expect_registration(context, &mut hosts, "after all", None)?;
    hosts.one.disk.still_works()
}

fn reservation_wrong_key(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let acquire = (AcquireAction::Acquire, EXCLUSIVE);
    hosts.one.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
    let one = &mut hosts.one;
    let wrong = KEY + 1;
    one.acquire("Acquire", acquire, (wrong, 0), &[CONFLICT])?;
    let preempt = (AcquireAction::Preempt, EXCLUSIVE);
    one.acquire("Preempt", preempt, (wrong, WITNESS_KEY), &[CONFLICT])?;
    let release = (ReleaseAction::Release, EXCLUSIVE);
    one.release("Release", release, wrong, &[CONFLICT])?;
    let clear = (ReleaseAction::Clear, 0);
    one.release("Clear", clear, wrong, &[CONFLICT])?;
    one.register("Replace", RegisterAction::Replace, (wrong, 5), &[CONFLICT])?;
    one.register(
        "Unregister",
        RegisterAction::Unregister,
        (wrong, 0),
        &[CONFLICT],
    )?;
    expect_registration(context, &mut hosts, "after all", Some((KEY, true)))
}

fn reservation_binds_others(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let block = vec![0xa5; context.facts.block_bytes as usize];
    for (kind, reads) in [(WRITE_EXCLUSIVE, true), (EXCLUSIVE, false)] {
        let acquire = (AcquireAction::Acquire, kind);
        hosts.one.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
        hosts.one.disk.write(0, &block)?;
        let other = &mut hosts.other.disk;
        let write = super::hosts::write_sqe(other.nsid, 0, 1);
        let what = format!("a stranger's write at type {kind}");
        refused(&mut other.io, &what, write, &block, 0, &[CONFLICT])?;
        let what = format!("a stranger's Flush at type {kind}");
        other.refuses(&what, NvmCommand::Flush, &[], 0, &[CONFLICT])?;
        if reads {
            other.holds("a stranger's read", 0, &block)?;
        } else {
            let read = super::hosts::read_sqe(other.nsid, 0, 1);
            let what = format!("a stranger's read at type {kind}");
            let bytes = other.block_bytes;
            refused(&mut other.io, &what, read, &[], bytes, &[CONFLICT])?;
        }
        let release = (ReleaseAction::Release, kind);
        hosts.one.release("Release", release, KEY, GOOD)?;
    }
    hosts.other.disk.still_works()
}

fn reservation_all_registrants(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let acquire = (AcquireAction::Acquire, ALL_REGISTRANTS);
    hosts.one.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
    let report = hosts.one.report()?;
    check(
        report.controllers.iter().all(|one| one.holds),
        "the report",
        "every registrant is a holder",
        format!("{report:?}"),
    )?;
    let keys = (KEY, 0);
    hosts
        .one
        .register("Unregister", RegisterAction::Unregister, keys, GOOD)?;
    let report = hosts.witness.report()?;
    check(
        report.kind == ALL_REGISTRANTS,
        "a registrant that goes",
        "the reservation stays",
        format!("{report:?}"),
    )?;
    let keys = (WITNESS_KEY, 0);
    hosts
        .witness
        .register("Unregister", RegisterAction::Unregister, keys, GOOD)?;
    let report = hosts.witness.report()?;
    check(
        report.kind == 0 && report.controllers.is_empty(),
        "the last registrant that goes",
        "nothing is reserved",
        format!("{report:?}"),
    )
}

fn reservation_preempt_that_fails(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts_with_registrant(context)?;
    let acquire = (AcquireAction::Acquire, EXCLUSIVE);
    hosts.one.acquire("Acquire", acquire, (KEY, 0), GOOD)?;
    let before = hosts.one.report()?;
    let preempt = (AcquireAction::PreemptAndAbort, EXCLUSIVE);
    let what = "Preempt and Abort of a key that nobody has";
    hosts
        .one
        .acquire(what, preempt, (KEY, 0x9999), &[CONFLICT])?;
    let after = hosts.one.report()?;
    check(
        before == after,
        what,
        "nothing is changed",
        format!("{after:?}"),
    )?;
    hosts.one.disk.still_works()
}

fn reservation_of_no_host(context: &mut Context) -> Result<(), Failure> {
    let mut hosts = hosts(context)?;
    let options = QueueOptions {
        host_id: HostId([0; 16]),
        ..context.options()
    };
    let nameless = match Host::connect(context, &options) {
        Err(_) if !context.manner.exact => return Ok(()),
        nameless => nameless,
    };
    let what = "Register of a host without an identifier";
    let statuses = [
        Status::HOST_IDENTIFIER_NOT_INITIALIZED.with_do_not_retry(),
        INVALID_FIELD,
    ];
    let keys = (0, KEY);
    nameless?.register(what, RegisterAction::Register, keys, &statuses)?;
    hosts.one.disk.still_works()
}
