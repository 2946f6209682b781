//! Reservation commands of two hosts.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_block::Volume;
use weir_front::{HubLimits, Hubs, Kept};
use weir_nvme::command::{
    AdminCommand, Blocks, CopyCommand, CopyRange, GetFeatures, GetLogPage, NvmCommand, SetFeatures,
};
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::feature::{FeatureId, HostIdentifier};
use weir_nvme::identify::{Cns, IdentifyNamespace, NSID_ALL, OptionalNvmCommands};
use weir_nvme::log::{LogId, ReservationNotification, ReservationNotificationType};
use weir_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationAcquire, ReservationAcquireKeys,
    ReservationRegister, ReservationRegisterKeys, ReservationRelease, ReservationReleaseKey,
    ReservationReport, ReservationReportCommand,
};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{HostId, Sqe, Status};
use weir_nvme_target::{ListenerConfig, Namespace, Subsystem, Target, TargetConfig};
use weir_reactor::Reactor;
use weir_reservation::StoredTable;
use weir_testing::late::Late;

use crate::common::*;

const BLOCK: usize = 4096;
/// Reservation types (RTYPE).
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE: u8 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 3;
const EXCLUSIVE_REGISTRANTS: u8 = 4;

/// What is kept of a table; none: it cannot be kept.
type Shelf = Arc<Mutex<Option<Option<StoredTable>>>>;

fn shelf() -> Shelf {
    Arc::new(Mutex::new(Some(None)))
}

/// A target with one namespace over `volume`, whose reservations are kept on `shelf`.
async fn serve_reserved(
    hubs: &Hubs,
    volume: Arc<dyn Volume>,
    shelf: &Shelf,
    address: SocketAddr,
) -> (Target, SocketAddr) {
    let stored = shelf.lock().expect("nobody panicked").clone().flatten();
    let kept_on = Arc::clone(shelf);
    let keeper = move |table, kept: Kept| {
        let mut shelf = kept_on.lock().expect("nobody panicked");
        let can = shelf.is_some();
        if can {
            *shelf = Some(table);
        }
        drop(shelf);
        kept.tell(can);
    };
    let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "WEIR-TEST-1");
    let mut namespace = Namespace::new(1, volume, [1; 16]);
    namespace.reservations = Some(hubs.reservations(stored, keeper));
    subsystem.namespaces.push(namespace);
    let target = Target::on(hubs, TargetConfig::default()).await;
    let target = target.expect("a target");
    let listener = ListenerConfig::new(address);
    let address = target.add_listener(listener).await.expect("a listener");
    let served = snapshot(1, vec![subsystem], address);
    target.apply(served).await.expect("applied");
    (target, address)
}

/// A host's two queues.
struct Host {
    admin: Queue,
    io: Queue,
}

impl Host {
    /// A host of this number; that of zero gives no identifier.
    async fn connect(reactor: &Reactor, address: SocketAddr, number: u8) -> Self {
        let id = HostId([number; 16]);
        let options = HostOptions::default();
        let (admin, controller) = admin_queue_of(reactor, address, id, SUBSYSTEM, options).await;
        let io = io_queue_of(reactor, address, id, controller, 1, options).await;
        Host { admin, io }
    }

    async fn send(&mut self, command: NvmCommand, cdw10: u32, data: &[u8]) -> Status {
        let mut sqe = command.sqe(0, 1, SglDescriptor::NONE);
        sqe.cdw10 = cdw10;
        self.io.command(sqe, data, 0).await.0.status
    }

    async fn register(&mut self, action: RegisterAction, current: u64, new: u64) -> Status {
        self.register_as(action, current, new, None).await
    }

    async fn register_as(
        &mut self,
        action: RegisterAction,
        current: u64,
        new: u64,
        persistence: Option<bool>,
    ) -> Status {
        let register = ReservationRegister {
            action,
            ignores_existing_key: false,
            persistence,
        };
        let keys = ReservationRegisterKeys { current, new }.encode();
        let command = NvmCommand::ReservationRegister;
        self.send(command, register.to_cdw10(), &keys).await
    }

    async fn acquire(&mut self, action: AcquireAction, kind: u8, key: u64, other: u64) -> Status {
        let acquire = ReservationAcquire { action, kind };
        let keys = ReservationAcquireKeys {
            current: key,
            preempted: other,
        };
        let command = NvmCommand::ReservationAcquire;
        self.send(command, acquire.to_cdw10(), &keys.encode()).await
    }

    async fn release(&mut self, action: ReleaseAction, kind: u8, key: u64) -> Status {
        let release = ReservationRelease { action, kind };
        let keys = ReservationReleaseKey { current: key }.encode();
        let command = NvmCommand::ReservationRelease;
        self.send(command, release.to_cdw10(), &keys).await
    }

    async fn report(&mut self) -> ReservationReport {
        let mut sqe = NvmCommand::ReservationReport.sqe(0, 1, SglDescriptor::NONE);
        let report = ReservationReportCommand {
            dwords_zero_based: 4096 / 4 - 1,
            is_extended: true,
        };
        [sqe.cdw10, sqe.cdw11] = report.to_dwords();
        let (_, data) = self.io.expect(sqe, &[], 4096).await;
        ReservationReport::parse(&data, true).expect("a report")
    }

    async fn read(&mut self, blocks: u32) -> (Status, Vec<u8>) {
        let read = NvmCommand::Read(of_blocks(blocks));
        let (cqe, data) = self.io.nvm(read, 1, &[], blocks * BLOCK as u32).await;
        (cqe.status, data)
    }

    async fn write(&mut self, data: &[u8]) -> Status {
        let write = NvmCommand::Write(of_blocks((data.len() / BLOCK) as u32));
        self.io.nvm(write, 1, data, 0).await.0.status
    }

    async fn feature(&mut self, feature: FeatureId, nsid: u32) -> (Status, u64) {
        let get = AdminCommand::GetFeatures(GetFeatures {
            nsid,
            ..GetFeatures::new(feature)
        });
        let (cqe, _) = self.admin.admin(get, &[], 0).await;
        (cqe.status, cqe.result)
    }

    async fn set_feature(&mut self, feature: FeatureId, nsid: u32, cdw11: u32) -> Status {
        let set = AdminCommand::SetFeatures(SetFeatures {
            nsid,
            ..SetFeatures::new(feature, cdw11)
        });
        self.admin.admin(set, &[], 0).await.0.status
    }

    async fn notification(&mut self) -> ReservationNotification {
        let get = AdminCommand::GetLogPage(GetLogPage::new(LogId::ReservationNotification, 0, 64));
        let (cqe, data) = self.admin.admin(get, &[], 64).await;
        assert!(cqe.status.is_success(), "{:?}", cqe.status);
        ReservationNotification::decode(data.first_chunk().expect("a page"))
    }
}

fn of_blocks(blocks: u32) -> Blocks {
    Blocks {
        blocks,
        ..Blocks::default()
    }
}

fn good(status: Status) {
    assert!(status.is_success(), "{status:?}");
}

fn conflict(status: Status) {
    assert!(status.is(Status::RESERVATION_CONFLICT), "{status:?}");
}

/// Runs a case in the simulator with hubs on two reactors.
fn run<F: Future<Output = ()> + 'static>(
    case: impl FnOnce(Reactor, Hubs, SocketAddr) -> F + 'static,
) {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let address = SocketAddr::new(simulation.address(SERVER), 0);
    simulation.run(CLIENT, move |reactor| {
        let hubs = Hubs::new(&remotes, &HubLimits::default()).expect("reactors run");
        case(reactor, hubs, address)
    });
}

#[test]
fn a_reservation_binds_other_hosts() {
    run(|reactor, hubs, address| async move {
        let volume = memory_volume("4M", 4096);
        let (_target, address) = serve_reserved(&hubs, volume, &shelf(), address).await;
        let mut one = Host::connect(&reactor, address, 1).await;
        let mut other = Host::connect(&reactor, address, 2).await;
        let controller = one.admin.identify_controller().await;
        let commands = controller.optional_nvm_commands;
        assert!(commands.contains(OptionalNvmCommands::RESERVATIONS));
        let (_, data) = one.admin.identify(Cns::Namespace, 1).await;
        let namespace = IdentifyNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(namespace.reservation_capabilities, 0xff);
        let data = pattern(1, BLOCK);
        conflict(one.acquire(AcquireAction::Acquire, EXCLUSIVE, 1, 0).await);
        good(one.register(RegisterAction::Register, 0, 1).await);
        for (kind, reads, writes) in [
            (WRITE_EXCLUSIVE, true, false),
            (EXCLUSIVE, false, false),
            (WRITE_EXCLUSIVE_REGISTRANTS, true, false),
            (EXCLUSIVE_REGISTRANTS, false, false),
        ] {
            good(one.acquire(AcquireAction::Acquire, kind, 1, 0).await);
            let (status, _) = other.read(1).await;
            assert_eq!(status.is_success(), reads, "{kind}: {status:?}");
            let status = other.write(&data).await;
            assert_eq!(status.is_success(), writes, "{kind}: {status:?}");
            let (cqe, _) = other.io.nvm(NvmCommand::Flush, 1, &[], 0).await;
            assert_eq!(cqe.status.is_success(), writes, "{kind}: {:?}", cqe.status);
            let copy = NvmCommand::Copy(CopyCommand {
                destination_lba: 8,
                ranges: 1,
                ..CopyCommand::default()
            });
            let (cqe, _) = other
                .io
                .nvm(copy, 1, &CopyRange::new(0, 1).encode(), 0)
                .await;
            conflict(cqe.status);
            good(one.write(&data).await);
            good(one.read(1).await.0);
            let report = other.report().await;
            assert_eq!((report.kind, report.persists), (kind, false));
            let [registered] = &report.controllers[..] else {
                panic!("{report:?}");
            };
            let host = HostIdentifier::Extended(HostId([1; 16]));
            assert_eq!(
                (registered.key, registered.holds, registered.host),
                (1, true, host)
            );
            assert_eq!(registered.controller, controller.controller_id);
            good(one.release(ReleaseAction::Release, kind, 1).await);
            good(other.write(&data).await);
        }
        good(other.register(RegisterAction::Register, 0, 2).await);
        good(
            one.acquire(AcquireAction::Acquire, EXCLUSIVE_REGISTRANTS, 1, 0)
                .await,
        );
        good(other.write(&data).await);
        conflict(other.release(ReleaseAction::Clear, 0, 3).await);
        good(other.register(RegisterAction::Replace, 2, 3).await);
        good(other.register(RegisterAction::Unregister, 3, 0).await);
        conflict(other.write(&data).await);
        good(one.release(ReleaseAction::Clear, 0, 1).await);
        good(other.write(&data).await);
    });
}

#[test]
fn what_a_preempted_host_began_has_ended() {
    run(|reactor, hubs, address| async move {
        let volume = Late::over(memory_volume("4M", 4096), Duration::from_millis(80));
        let (_target, address) = serve_reserved(&hubs, volume, &shelf(), address).await;
        let mut other = Host::connect(&reactor, address, 2).await;
        good(other.register(RegisterAction::Register, 0, 2).await);
        for round in 0..20_u64 {
            let action = match round % 2 {
                0 => AcquireAction::Preempt,
                _ => AcquireAction::PreemptAndAbort,
            };
            let mut one = Host::connect(&reactor, address, 1).await;
            good(one.register(RegisterAction::Register, 0, 1).await);
            let kind = EXCLUSIVE_REGISTRANTS;
            good(one.acquire(AcquireAction::Acquire, kind, 1, 0).await);
            let (old, new) = (pattern(99, 2 * BLOCK), pattern(round, 2 * BLOCK));
            let write = NvmCommand::Write(of_blocks(2));
            let sqe = write.sqe(0, 1, SglDescriptor::NONE);
            let cid = one.io.submit(sqe, &old, 0).await.expect("connected");
            // It comes, and is not carried out yet most often.
            reactor.sleep(Duration::from_millis(10)).await;
            good(other.acquire(action, kind, 2, 1).await);
            good(other.write(&new).await);
            reactor.sleep(Duration::from_millis(200)).await;
            let (status, now) = other.read(2).await;
            good(status);
            assert!(now == new, "nothing came after it");
            let (cqe, _) = one.io.answer(cid).await.expect("connected");
            let ends = [
                Status::SUCCESS,
                Status::RESERVATION_CONFLICT,
                Status::ABORTED_PREEMPT_AND_ABORT,
            ];
            assert!(
                ends.iter().any(|end| cqe.status.is(*end)),
                "{:?}",
                cqe.status
            );
            good(other.release(ReleaseAction::Release, kind, 2).await);
        }
    });
}

#[test]
fn hosts_are_told_by_events_and_a_log_page() {
    run(|reactor, hubs, address| async move {
        let volume = memory_volume("4M", 4096);
        let (_target, address) = serve_reserved(&hubs, volume, &shelf(), address).await;
        let mut one = Host::connect(&reactor, address, 1).await;
        let mut other = Host::connect(&reactor, address, 2).await;
        assert_eq!(one.notification().await, ReservationNotification::default());
        let request = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
        let event = one.admin.submit(request, &[], 0).await.expect("connected");
        good(one.register(RegisterAction::Register, 0, 1).await);
        good(other.register(RegisterAction::Register, 0, 2).await);
        let kind = EXCLUSIVE_REGISTRANTS;
        good(one.acquire(AcquireAction::Acquire, kind, 1, 0).await);
        good(other.acquire(AcquireAction::Preempt, kind, 2, 1).await);
        let (cqe, _) = one.admin.answer(event).await.expect("connected");
        let told = AsynchronousEvent::new(EventType::ReservationLogAvailable);
        assert_eq!(cqe.dw0(), told.to_dword());
        // A second one waits behind it.
        good(one.register(RegisterAction::Register, 0, 1).await);
        good(other.release(ReleaseAction::Clear, 0, 2).await);
        let first = one.notification().await;
        let expected = ReservationNotification {
            count: 1,
            event: ReservationNotificationType::RegistrationPreempted,
            available: 1,
            nsid: 1,
        };
        assert_eq!(first, expected);
        let event = one.admin.submit(request, &[], 0).await.expect("connected");
        let (cqe, _) = one.admin.answer(event).await.expect("connected");
        assert_eq!(cqe.dw0(), told.to_dword());
        let second = one.notification().await;
        assert_eq!(second.count, 2);
        assert_eq!(
            second.event,
            ReservationNotificationType::ReservationPreempted
        );
        assert_eq!(one.notification().await, ReservationNotification::default());
        // The other way round, and silenced.
        let mask = FeatureId::ReservationNotificationMask;
        good(one.set_feature(mask, NSID_ALL, 1 << 3).await);
        let (status, value) = one.feature(mask, 1).await;
        good(status);
        assert_eq!(value, 1 << 3);
        good(one.register(RegisterAction::Register, 0, 1).await);
        good(other.register(RegisterAction::Register, 0, 2).await);
        good(other.release(ReleaseAction::Clear, 0, 2).await);
        assert_eq!(one.notification().await, ReservationNotification::default());
    });
}

#[test]
fn what_persists_is_stored_before_the_answer() {
    run(|reactor, hubs, address| async move {
        let (volume, shelf) = (memory_volume("4M", 4096), shelf());
        let (_target, first) = serve_reserved(&hubs, volume.clone(), &shelf, address).await;
        let mut one = Host::connect(&reactor, first, 1).await;
        let stored = || shelf.lock().expect("nobody panicked").clone().flatten();
        good(one.register(RegisterAction::Register, 0, 1).await);
        assert_eq!(stored(), None);
        good(
            one.register_as(RegisterAction::Replace, 1, 7, Some(true))
                .await,
        );
        good(one.acquire(AcquireAction::Acquire, EXCLUSIVE, 7, 0).await);
        let before = stored().expect("it persists");
        let persistence = FeatureId::ReservationPersistence;
        assert_eq!(one.feature(persistence, 1).await.1, 1);
        // A store that fails changes nothing.
        *shelf.lock().expect("nobody panicked") = None;
        let status = one.release(ReleaseAction::Release, EXCLUSIVE, 7).await;
        assert!(status.is(Status::INTERNAL_ERROR), "{status:?}");
        let status = one.set_feature(persistence, 1, 0).await;
        assert!(status.is(Status::INTERNAL_ERROR), "{status:?}");
        assert!(one.report().await.controllers[0].holds);
        *shelf.lock().expect("nobody panicked") = Some(Some(before));
        // Another target goes on with it.
        let (_again, second) = serve_reserved(&hubs, volume, &shelf, address).await;
        let mut other = Host::connect(&reactor, second, 2).await;
        conflict(other.read(1).await.0);
        assert!(other.report().await.persists);
        let mut one = Host::connect(&reactor, second, 1).await;
        good(one.read(1).await.0);
        good(one.set_feature(persistence, 1, 0).await);
        assert_eq!(stored(), None);
        let (_, value) = one.feature(persistence, 1).await;
        assert_eq!(value, 0);
    });
}

#[test]
fn what_is_wrong_is_refused() {
    run(|reactor, hubs, address| async move {
        let volume = memory_volume("4M", 4096);
        let (target, address) = serve_reserved(&hubs, volume.clone(), &shelf(), address).await;
        let mut one = Host::connect(&reactor, address, 1).await;
        let is = |status: Status, wanted: Status| assert!(status.is(wanted), "{status:?}");
        let field = Status::INVALID_FIELD_IN_COMMAND;
        let register = NvmCommand::ReservationRegister;
        is(
            one.send(register, 0, &[0; 8]).await,
            Status::DATA_SGL_LENGTH_INVALID,
        );
        is(one.send(register, 7, &[0; 16]).await, field);
        is(one.register(RegisterAction::Register, 0, 0).await, field);
        good(one.register(RegisterAction::Register, 0, 1).await);
        is(one.acquire(AcquireAction::Acquire, 7, 1, 0).await, field);
        let report = |is_extended, bytes: u32| {
            let mut sqe: Sqe = NvmCommand::ReservationReport.sqe(0, 1, SglDescriptor::NONE);
            let report = ReservationReportCommand {
                dwords_zero_based: bytes / 4 - 1,
                is_extended,
            };
            [sqe.cdw10, sqe.cdw11] = report.to_dwords();
            sqe
        };
        let (cqe, _) = one.io.command(report(false, 64), &[], 64).await;
        is(cqe.status, Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
        let (cqe, _) = one.io.command(report(true, 128), &[], 64).await;
        is(cqe.status, Status::DATA_SGL_LENGTH_INVALID);
        let (cqe, data) = one.io.command(report(true, 64), &[], 64).await;
        good(cqe.status);
        assert_eq!(data.len(), 64, "a page that is cut");
        is(
            one.set_feature(FeatureId::ReservationPersistence, NSID_ALL, 1)
                .await,
            field,
        );
        let gone = Status::INVALID_NAMESPACE_OR_FORMAT;
        is(
            one.feature(FeatureId::ReservationNotificationMask, 2)
                .await
                .0,
            gone,
        );
        // A host without an identifier cannot hold anything.
        let mut nameless = Host::connect(&reactor, address, 0).await;
        is(
            nameless.register(RegisterAction::Register, 0, 5).await,
            Status::HOST_IDENTIFIER_NOT_INITIALIZED,
        );
        // A namespace without reservations.
        let plain = snapshot(2, vec![subsystem(&[volume])], address);
        target.apply(plain).await.expect("applied");
        is(
            one.send(register, 0, &[0; 16]).await,
            Status::INVALID_COMMAND_OPCODE,
        );
        let (_, data) = one.admin.identify(Cns::Namespace, 1).await;
        let namespace = IdentifyNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(namespace.reservation_capabilities, 0);
    });
}
