//! RESERVE and PERSISTENT RESERVE, between sessions of two initiator ports.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_block::Volume;
use weir_front::{Hubs, Keeper, Kept, Reservations};
use weir_iscsi::pdu::{Isid, TaskFunction, TaskResponse};
use weir_iscsi_target::{Iscsi, IscsiConfig, Lun};
use weir_reservation::StoredTable;
use weir_scsi::cdb::opcode;
use weir_scsi::copy::{CopyList, CopySegment};
use weir_scsi::reservation::{
    FullStatus, HeldReservation, RegisterAndMoveList, RegisteredKeys, ReservationCapabilities,
    ReservationStatus, ReserveOutAction, ReserveOutList, TransportId,
};
use weir_scsi::sense::{AdditionalSense, FieldPointer, Sense, Status};
use weir_testing::late::Late;
use weir_testing::world::{World, everywhere, simulated};

use crate::commands::{designated, target};
use crate::initiator::{
    BLOCK, Command, Ended, INITIATOR, Initiator, hubs, memory, pattern, read, serve, serve_on,
    served, settings, write,
};

const EXCLUSIVE: u8 = 3;
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_REGISTRANTS: u8 = 6;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;

/// Keeps a table in memory, or cannot.
#[derive(Clone, Default)]
struct Shelf(Arc<OnShelf>);

#[derive(Default)]
struct OnShelf {
    table: Mutex<Option<StoredTable>>,
    is_broken: AtomicBool,
}

impl Shelf {
    fn table(&self) -> Option<StoredTable> {
        self.0.table.lock().expect("nobody panicked").clone()
    }
}

impl Keeper for Shelf {
    fn keep(&self, table: Option<StoredTable>, kept: Kept) {
        if self.0.is_broken.load(Ordering::Relaxed) {
            return kept.tell(false);
        }
        *self.0.table.lock().expect("nobody panicked") = table;
        kept.tell(true);
    }
}

/// Reservations that nothing is stored of.
pub(crate) fn reservations(hubs: &Hubs) -> Option<Arc<Reservations>> {
    let keep_nothing = |_, kept: Kept| kept.tell(true);
    Some(hubs.reservations(None, keep_nothing))
}

/// A front end with one logical unit over `volume`, whose reservations are kept on `shelf`.
async fn serve_reserved(
    world: &World,
    hubs: &Hubs,
    volume: Arc<dyn Volume>,
    shelf: &Shelf,
) -> (Iscsi, SocketAddr) {
    let mut lun = Lun::new(0, volume, [7; 16]);
    lun.reservations = Some(hubs.reservations(shelf.table(), shelf.clone()));
    let snapshot = served(|target| target.luns = vec![lun]);
    serve_on(world, hubs, IscsiConfig::default(), snapshot).await
}

fn isid(number: u16) -> Isid {
    Isid::random([1, 2, 3], number)
}

async fn port(world: &World, address: SocketAddr, number: u16) -> Initiator {
    let mut settings = settings();
    settings.isid = isid(number);
    let session = Initiator::try_login(world, address, settings).await;
    session.expect("it logs in")
}

/// Two ports of one initiator, logged in.
async fn two(world: &World) -> (Initiator, Initiator, Iscsi) {
    let (iscsi, address) = serve_reserved(world, &hubs(world), memory(), &Shelf::default()).await;
    let one = port(world, address, 1).await;
    let other = port(world, address, 2).await;
    (one, other, iscsi)
}

fn out_cdb(action: ReserveOutAction, kind: u8, bytes: usize) -> Command<'static> {
    let mut command = Command::new(&[opcode::PERSISTENT_RESERVE_OUT, action.value(), kind]);
    command.cdb[5..9].copy_from_slice(&(bytes as u32).to_be_bytes());
    command
}

async fn out(
    initiator: &mut Initiator,
    action: ReserveOutAction,
    kind: u8,
    list: ReserveOutList,
) -> Ended {
    let list = list.encode();
    let mut command = out_cdb(action, kind, list.len());
    command.data = &list;
    initiator.run(&command).await
}

fn keys(key: u64, action_key: u64) -> ReserveOutList {
    ReserveOutList {
        key,
        action_key,
        persists: false,
    }
}

async fn register(initiator: &mut Initiator, key: u64) {
    let ended = out(initiator, ReserveOutAction::Register, 0, keys(0, key)).await;
    ended.good();
}

async fn reserve(initiator: &mut Initiator, key: u64, kind: u8) {
    let ended = out(initiator, ReserveOutAction::Reserve, kind, keys(key, 0)).await;
    ended.good();
}

fn report(action: u8) -> Command<'static> {
    let mut command = Command::new(&[opcode::PERSISTENT_RESERVE_IN, action]);
    command.cdb[7..9].copy_from_slice(&1024_u16.to_be_bytes());
    command.reads = 1024;
    command
}

async fn registered(initiator: &mut Initiator) -> Vec<u64> {
    let data = initiator.run(&report(0)).await.good();
    RegisteredKeys::parse(&data).expect("keys").keys
}

async fn held(initiator: &mut Initiator) -> Option<HeldReservation> {
    let data = initiator.run(&report(1)).await.good();
    ReservationStatus::parse(&data).expect("a status").held
}

fn is_conflict(ended: &Ended) -> bool {
    ended.status == Status::ReservationConflict
}

#[test]
fn a_reservation_binds_those_that_have_not_registered() {
    everywhere(|world| async move {
        let (mut one, mut other, _iscsi) = two(&world).await;
        let data = pattern(BLOCK, 1);
        // Only registrants reserve.
        let early = out(
            &mut one,
            ReserveOutAction::Reserve,
            WRITE_EXCLUSIVE,
            keys(1, 0),
        )
        .await;
        assert!(is_conflict(&early));
        register(&mut one, 1).await;
        assert_eq!(registered(&mut other).await, [1]);
        assert_eq!(held(&mut other).await, None);
        other.run(&write(0, &data)).await.good();
        for (kind, reads, writes) in [
            (WRITE_EXCLUSIVE, true, false),
            (EXCLUSIVE, false, false),
            (WRITE_EXCLUSIVE_REGISTRANTS, true, false),
            (EXCLUSIVE_REGISTRANTS, false, false),
        ] {
            reserve(&mut one, 1, kind).await;
            assert_eq!(
                held(&mut other).await,
                Some(HeldReservation { key: 1, kind })
            );
            assert_eq!(!is_conflict(&other.run(&read(0, 1)).await), reads, "{kind}");
            assert_eq!(
                !is_conflict(&other.run(&write(0, &data)).await),
                writes,
                "{kind}"
            );
            let flush = Command::new(&[opcode::SYNCHRONIZE_CACHE_10]);
            assert_eq!(!is_conflict(&other.run(&flush).await), writes, "{kind}");
            // These tell nothing of what is stored.
            other
                .run(&Command::new(&[opcode::TEST_UNIT_READY]))
                .await
                .good();
            let mut inquiry = Command::new(&[opcode::INQUIRY, 0, 0, 0, 36]);
            inquiry.reads = 36;
            other.run(&inquiry).await.good();
            // Its holder does what it wants.
            one.run(&write(0, &data)).await.good();
            one.run(&read(0, 1)).await.good();
            out(&mut one, ReserveOutAction::Release, kind, keys(1, 0))
                .await
                .good();
            other.run(&write(0, &data)).await.good();
        }
        // A registrant may use what is reserved for registrants, until its registration ends.
        register(&mut other, 2).await;
        reserve(&mut one, 1, EXCLUSIVE_REGISTRANTS).await;
        other.run(&write(0, &data)).await.good();
        out(&mut other, ReserveOutAction::Register, 0, keys(2, 0))
            .await
            .good();
        assert!(is_conflict(&other.run(&write(0, &data)).await));
    });
}

#[test]
fn reports_say_who_has_registered_and_what_can_be_done() {
    simulated(|world| async move {
        let (mut one, mut other, _iscsi) = two(&world).await;
        register(&mut one, 17).await;
        register(&mut other, 18).await;
        reserve(&mut other, 18, WRITE_EXCLUSIVE_REGISTRANTS).await;
        let data = one.run(&report(3)).await.good();
        let (_, all) = FullStatus::parse(&data).expect("a status");
        let of = |number| TransportId::IscsiPort {
            name: INITIATOR.into(),
            isid: isid(number).0,
        };
        let told: Vec<_> = all
            .into_iter()
            .map(|one| one.expect("a registrant"))
            .map(|one| (one.key, one.holds, one.relative_port, one.transport))
            .collect();
        assert_eq!(
            told,
            [
                (17, None, 1, of(1)),
                (18, Some(WRITE_EXCLUSIVE_REGISTRANTS), 1, of(2))
            ]
        );
        let data = one.run(&report(2)).await.good();
        let can = ReservationCapabilities::parse(&data).expect("capabilities");
        assert!(can.can_persist && !can.persists);
        assert!(!can.specifies_initiator_ports && !can.all_target_ports);
    });
}

#[test]
fn who_is_preempted_is_told_and_what_it_began_has_ended() {
    simulated(|world| async move {
        let hubs = hubs(&world);
        let volume = Late::over(memory(), Duration::from_millis(80));
        let (_iscsi, address) = serve_reserved(&world, &hubs, volume, &Shelf::default()).await;
        let mut other = port(&world, address, 2).await;
        register(&mut other, 2).await;
        for (round, action) in [ReserveOutAction::Preempt, ReserveOutAction::PreemptAndAbort]
            .into_iter()
            .cycle()
            .take(20)
            .enumerate()
        {
            let mut one = port(&world, address, 1).await;
            let ignoring = ReserveOutAction::RegisterAndIgnoreExistingKey;
            out(&mut one, ignoring, 0, keys(0, 1)).await.good();
            reserve(&mut one, 1, EXCLUSIVE_REGISTRANTS).await;
            let (old, new) = (pattern(4 * BLOCK, 5), pattern(4 * BLOCK, round as u8));
            let mut begun = write(0, &old);
            begun.immediate = old.len();
            one.begin_command(&begun).await;
            // It comes, and is not carried out yet most often.
            world.reactor.sleep(Duration::from_millis(10)).await;
            let taken = out(&mut other, action, EXCLUSIVE_REGISTRANTS, keys(2, 1)).await;
            taken.good();
            assert_eq!(registered(&mut other).await, [2]);
            other.run(&write(0, &new)).await.good();
            world.reactor.sleep(Duration::from_millis(200)).await;
            let now = other.run(&read(0, 4)).await.good();
            assert!(now == new, "nothing came after it");
            other
                .run(&Command::new(&[opcode::TEST_UNIT_READY]))
                .await
                .good();
            out(
                &mut other,
                ReserveOutAction::Release,
                EXCLUSIVE_REGISTRANTS,
                keys(2, 0),
            )
            .await
            .good();
        }
    });
}

#[test]
fn a_preempted_initiator_is_told_once() {
    everywhere(|world| async move {
        let (mut one, mut other, _iscsi) = two(&world).await;
        register(&mut one, 1).await;
        register(&mut other, 2).await;
        reserve(&mut one, 1, EXCLUSIVE_REGISTRANTS).await;
        out(
            &mut other,
            ReserveOutAction::Preempt,
            EXCLUSIVE_REGISTRANTS,
            keys(2, 1),
        )
        .await
        .good();
        let told = one.run(&read(0, 1)).await.sense();
        assert_eq!(
            told,
            Sense::unit_attention(AdditionalSense::REGISTRATIONS_PREEMPTED)
        );
        assert!(is_conflict(&one.run(&read(0, 1)).await));
        register(&mut one, 3).await;
        one.run(&read(0, 1)).await.good();
        // A release is told to the registrants that shared it, and clearing to all.
        out(
            &mut other,
            ReserveOutAction::Release,
            EXCLUSIVE_REGISTRANTS,
            keys(2, 0),
        )
        .await
        .good();
        let told = one.run(&read(0, 1)).await.sense();
        assert_eq!(
            told,
            Sense::unit_attention(AdditionalSense::RESERVATIONS_RELEASED)
        );
        out(&mut other, ReserveOutAction::Clear, 0, keys(2, 0))
            .await
            .good();
        let told = one.run(&read(0, 1)).await.sense();
        assert_eq!(
            told,
            Sense::unit_attention(AdditionalSense::RESERVATIONS_PREEMPTED)
        );
        assert!(registered(&mut one).await.is_empty());
    });
}

#[test]
fn what_persists_is_stored_before_the_answer_and_comes_back() {
    simulated(|world| async move {
        let (hubs, shelf, volume) = (hubs(&world), Shelf::default(), memory());
        let (_iscsi, address) = serve_reserved(&world, &hubs, Arc::clone(&volume), &shelf).await;
        let mut one = port(&world, address, 1).await;
        register(&mut one, 1).await;
        assert_eq!(shelf.table(), None, "it is not to persist");
        let persisting = |key, action_key| ReserveOutList {
            persists: true,
            ..keys(key, action_key)
        };
        let ended = out(&mut one, ReserveOutAction::Register, 0, persisting(1, 7)).await;
        ended.good();
        reserve(&mut one, 7, EXCLUSIVE).await;
        let before = shelf.table().expect("it persists");
        // A store that fails changes nothing.
        shelf.0.is_broken.store(true, Ordering::Relaxed);
        let ended = out(&mut one, ReserveOutAction::Release, EXCLUSIVE, keys(7, 0)).await;
        assert_eq!(ended.sense(), Sense::internal_failure());
        assert_eq!(held(&mut one).await.map(|held| held.key), Some(7));
        assert_eq!(shelf.table(), Some(before));
        shelf.0.is_broken.store(false, Ordering::Relaxed);
        // Another front end goes on with it.
        let (_again, address) = serve_reserved(&world, &hubs, volume, &shelf).await;
        let mut stranger = port(&world, address, 2).await;
        assert!(is_conflict(&stranger.run(&read(0, 1)).await));
        let mut one = port(&world, address, 1).await;
        one.run(&read(0, 1)).await.good();
        let ended = out(&mut one, ReserveOutAction::Register, 0, keys(7, 7)).await;
        ended.good();
        assert_eq!(shelf.table(), None, "it persists no more");
    });
}

#[test]
fn reserve_shuts_the_unit_until_its_session_or_a_reset_ends_it() {
    everywhere(|world| async move {
        let (_iscsi, address) =
            serve_reserved(&world, &hubs(&world), memory(), &Shelf::default()).await;
        let mut one = port(&world, address, 1).await;
        let mut other = port(&world, address, 2).await;
        let (shut, open) = ([opcode::RESERVE_6], [opcode::RELEASE_10]);
        let (shut, open) = (Command::new(&shut), Command::new(&open));
        for _ in 0..2 {
            one.run(&shut).await.good();
        }
        let ready = Command::new(&[opcode::TEST_UNIT_READY]);
        for command in [&read(0, 1), &ready, &shut] {
            assert!(is_conflict(&other.run(command).await), "{:x?}", command.cdb);
        }
        // It is not the other's to open.
        other.run(&open).await.good();
        assert!(is_conflict(&other.run(&ready).await));
        one.run(&read(0, 1)).await.good();
        one.run(&open).await.good();
        other.run(&ready).await.good();
        // A reset opens it.
        one.run(&shut).await.good();
        let reset = other
            .manage(TaskFunction::LogicalUnitReset, 0, weir_iscsi::pdu::Itt(0))
            .await;
        assert_eq!(other.managed(reset).await, TaskResponse::Complete);
        for initiator in [&mut one, &mut other] {
            let told = initiator.run(&ready).await.sense();
            let reset = AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED;
            assert_eq!(told, Sense::unit_attention(reset));
            initiator.run(&ready).await.good();
        }
        // So does the end of its session, and nobody else's RESERVE ends when it has logged in anew.
        one.run(&shut).await.good();
        drop(one);
        let mut again = port(&world, address, 1).await;
        other.run(&shut).await.good();
        assert!(is_conflict(&again.run(&ready).await));
        // It has no place beside registrations.
        other.run(&open).await.good();
        register(&mut again, 1).await;
        assert!(is_conflict(&other.run(&shut).await));
    });
}

#[test]
fn a_reservation_is_moved_to_another_port() {
    simulated(|world| async move {
        let (mut one, mut other, _iscsi) = two(&world).await;
        register(&mut one, 1).await;
        reserve(&mut one, 1, WRITE_EXCLUSIVE).await;
        let list = RegisterAndMoveList {
            key: 1,
            action_key: 9,
            unregisters: true,
            persists: false,
            relative_port: 1,
            transport: TransportId::IscsiPort {
                name: INITIATOR.into(),
                isid: isid(2).0,
            },
        };
        let action = ReserveOutAction::RegisterAndMove;
        let run = async |initiator: &mut Initiator, list: &RegisterAndMoveList| {
            let list = list.encode();
            let mut command = out_cdb(action, 0, list.len());
            command.data = &list;
            initiator.run(&command).await
        };
        let wrong = RegisterAndMoveList {
            relative_port: 2,
            ..list.clone()
        };
        let sense = run(&mut one, &wrong).await.sense();
        assert_eq!(sense, Sense::invalid_field(FieldPointer::list(18)));
        run(&mut one, &list).await.good();
        let data = pattern(BLOCK, 4);
        other.run(&write(0, &data)).await.good();
        assert!(is_conflict(&one.run(&write(0, &data)).await));
        assert_eq!(registered(&mut one).await, [9]);
    });
}

#[test]
fn a_copy_needs_the_right_to_both_its_ends() {
    simulated(|world| async move {
        let hubs = hubs(&world);
        let lun = |number: u16| {
            let mut lun = Lun::new(number, memory(), [number as u8 + 1; 16]);
            lun.reservations = reservations(&hubs);
            lun
        };
        let snapshot = served(|target| target.luns = vec![lun(0), lun(1), lun(2)]);
        let (_iscsi, address) = serve_on(&world, &hubs, IscsiConfig::default(), snapshot).await;
        let mut one = port(&world, address, 1).await;
        let mut other = port(&world, address, 2).await;
        let at = |number: u64| number << 48;
        let list = copy_list();
        let mut copy = Command::new(&[opcode::THIRD_PARTY_COPY_OUT]);
        copy.cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
        (copy.lun, copy.data) = (at(2), &list);
        one.run(&copy).await.good();
        for (number, kind, may) in [
            (0, WRITE_EXCLUSIVE, true),
            (0, EXCLUSIVE, false),
            (1, WRITE_EXCLUSIVE, false),
            (1, EXCLUSIVE, false),
        ] {
            for action in [
                ReserveOutAction::RegisterAndIgnoreExistingKey,
                ReserveOutAction::Reserve,
            ] {
                let list = match action {
                    ReserveOutAction::Reserve => keys(4, 0),
                    _ => keys(0, 4),
                };
                let list = list.encode();
                let mut command = out_cdb(action, kind, list.len());
                (command.lun, command.data) = (at(number), &list);
                other.run(&command).await.good();
            }
            let ended = one.run(&copy).await;
            match may {
                true => drop(ended.good()),
                false => assert_eq!(
                    ended.sense(),
                    Sense::copy_aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE)
                ),
            }
            let list = keys(4, 0).encode();
            let mut clear = out_cdb(ReserveOutAction::Clear, 0, list.len());
            (clear.lun, clear.data) = (at(number), &list);
            other.run(&clear).await.good();
        }
    });
}

/// A list that copies one block from the first logical unit to the second.
fn copy_list() -> Vec<u8> {
    let (first, second) = (designated(1), designated(2));
    let segment = CopySegment {
        source: 0,
        destination: 1,
        blocks: 1,
        counts_destination: false,
        source_lba: 0,
        destination_lba: 0,
    };
    CopyList {
        targets: vec![target(&first), target(&second)],
        segments: vec![segment],
    }
    .encode()
}

#[test]
fn what_is_wrong_is_named() {
    simulated(|world| async move {
        let (mut one, _other, _iscsi) = two(&world).await;
        let list = keys(0, 1).encode();
        let run = async |initiator: &mut Initiator, cdb: Command<'static>, list: &[u8]| {
            let command = Command { data: list, ..cdb };
            initiator.run(&command).await.sense()
        };
        let action = ReserveOutAction::Register;
        let short = run(&mut one, out_cdb(action, 0, 23), &list[..23]).await;
        assert_eq!(short, Sense::parameter_list_length());
        let long = [0; 600];
        let long = run(&mut one, out_cdb(action, 0, long.len()), &long).await;
        assert_eq!(long, Sense::parameter_list_length());
        let mut ports = list;
        ports[20] = 1 << 3;
        let ports = run(&mut one, out_cdb(action, 0, ports.len()), &ports).await;
        assert_eq!(ports, Sense::invalid_field(FieldPointer::list_bit(20, 3)));
        register(&mut one, 1).await;
        let list = keys(1, 0).encode();
        let kind = run(
            &mut one,
            out_cdb(ReserveOutAction::Reserve, 2, list.len()),
            &list,
        )
        .await;
        assert_eq!(kind, Sense::invalid_field(FieldPointer::cdb_bit(2, 3)));
        let scope = run(
            &mut one,
            out_cdb(ReserveOutAction::Reserve, 0x13, list.len()),
            &list,
        );
        let scope = scope.await;
        assert_eq!(scope, Sense::invalid_field(FieldPointer::cdb_bit(2, 7)));
        let unknown = run(
            &mut one,
            out_cdb(ReserveOutAction::from_value(0x1f), 0, 24),
            &list,
        );
        let sense = unknown.await;
        assert_eq!(sense.additional, AdditionalSense::INVALID_FIELD_IN_CDB);
        assert_eq!(registered(&mut one).await, [1]);
    });
}

#[test]
fn a_unit_without_reservations_knows_none_of_the_commands() {
    simulated(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), served(|_| {})).await;
        let mut initiator = Initiator::login(&world, address).await;
        let list = keys(0, 1).encode();
        let register = Command {
            data: &list,
            ..out_cdb(ReserveOutAction::Register, 0, list.len())
        };
        let shut = Command::new(&[opcode::RESERVE_10]);
        for command in [&register, &shut, &report(0)] {
            let sense = initiator.run(command).await.sense();
            assert_eq!(sense, Sense::invalid_operation_code());
        }
    });
}
