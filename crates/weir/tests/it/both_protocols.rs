//! One volume, a namespace and a logical unit at once: reservations of one protocol hold for the other, what compares and writes is
//! one step for both, and what persists outlives the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationAcquire, ReservationAcquireKeys,
    ReservationRegister, ReservationRegisterKeys, ReservationRelease, ReservationReleaseKey,
    ReservationReport, ReservationReportCommand,
};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::{HostId, Nqn, Sqe, Status};
use weir_reactor::random::Random;
use weir_torture::connection::Manner;
use weir_torture::iscsi::session::{READ_16, UNIT_ATTENTION, WRITE_16, transfer};
use weir_torture::iscsi::{Login, Session};
use weir_torture::nvme::queue::together;
use weir_torture::nvme::{Controller, Queue, QueueOptions};

use crate::common::gateway::Gateway;
use crate::common::{PATIENCE, free_port, nightly};

const SUBSYSTEM: &str = "nqn.2026-01.org.example:both";
const TARGET: &str = "iqn.2026-01.org.example:both";
const BLOCK: u32 = 512;
const MANNER: Manner = Manner {
    patience: PATIENCE,
    exact: true,
};
/// SCSI status RESERVATION CONFLICT.
const CONFLICT: u8 = 0x18;

/// A gateway that serves one volume both ways.
struct Both {
    gateway: Gateway,
    ports: [u16; 2],
}

impl Both {
    fn serving(volume: &str) -> Self {
        let mut gateway = Gateway::prepared("");
        gateway.start();
        let folder = gateway.path("").display().to_string();
        let volume = volume.replace("FOLDER", folder.trim_end_matches('/'));
        let ports = [free_port(), free_port()];
        gateway.ok(&format!("volume add disk {volume}"));
        gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} disk"));
        gateway.ok(&format!("target add {TARGET} --allow-any-host"));
        gateway.ok(&format!("lun add {TARGET} disk"));
        gateway.ok(&format!("listener add 127.0.0.1:{}", ports[0]));
        let portal = format!("listener add 127.0.0.1:{} --protocol iscsi", ports[1]);
        gateway.ok(&portal);
        Both { gateway, ports }
    }

    fn nvme(&self) -> NvmeHost {
        let nqn = |name: &str| Nqn::new(name).expect("an NQN");
        let host = nqn("nqn.2026-01.org.example:host");
        let mut options = QueueOptions::new(nqn(SUBSYSTEM), host, HostId([7; 16]));
        // As the gateway's default is at least: data of a block goes with its command.
        options.in_capsule_bytes = BLOCK;
        let address = SocketAddr::from(([127, 0, 0, 1], self.ports[0]));
        let controller = Controller::bring_up(address, &options, MANNER).expect("a controller");
        let queue = controller.io(1).expect("an I/O queue");
        NvmeHost {
            _controller: controller,
            queue,
        }
    }

    fn iscsi(&self) -> IscsiHost {
        // The same nexus each time.
        let isid = [0x80, 1, 2, 3, 0, 1];
        let login = Login::new("iqn.2026-01.org.example:host", Some(TARGET), isid, 0);
        let address = SocketAddr::from(([127, 0, 0, 1], self.ports[1]));
        IscsiHost(Session::open(address, &login, MANNER).expect("a session"))
    }
}

/// A host of NVMe/TCP.
struct NvmeHost {
    _controller: Controller,
    queue: Queue,
}

fn nvm(command: NvmCommand, cdw10: u32) -> Sqe {
    let mut sqe = command.sqe(0, 1, SglDescriptor::NONE);
    sqe.cdw10 = cdw10;
    sqe
}

/// An NVMe command about reservations, and its keys.
fn register(key: u64) -> (Sqe, Vec<u8>) {
    let register = ReservationRegister {
        action: RegisterAction::Replace,
        ignores_existing_key: true,
        persistence: Some(true),
    };
    let keys = ReservationRegisterKeys {
        current: 0,
        new: key,
    };
    let sqe = nvm(NvmCommand::ReservationRegister, register.to_cdw10());
    (sqe, keys.encode().to_vec())
}

fn acquire(action: AcquireAction, kind: u8, current: u64, preempted: u64) -> (Sqe, Vec<u8>) {
    let acquire = ReservationAcquire { action, kind };
    let keys = ReservationAcquireKeys { current, preempted };
    let sqe = nvm(NvmCommand::ReservationAcquire, acquire.to_cdw10());
    (sqe, keys.encode().to_vec())
}

fn release(kind: u8, current: u64) -> (Sqe, Vec<u8>) {
    let action = ReleaseAction::Release;
    let release = ReservationRelease { action, kind };
    let key = ReservationReleaseKey { current };
    let sqe = nvm(NvmCommand::ReservationRelease, release.to_cdw10());
    (sqe, key.encode().to_vec())
}

impl NvmeHost {
    fn ask(&mut self, (sqe, keys): &(Sqe, Vec<u8>)) -> Status {
        let (cqe, _) = self.queue.command(*sqe, keys, 0).expect("an answer");
        cqe.status
    }

    fn reads(&mut self) -> Result<Vec<u8>, Status> {
        let read = NvmCommand::Read(Blocks::new(0, 1)).sqe(0, 1, SglDescriptor::NONE);
        let (cqe, data) = self.queue.command(read, &[], BLOCK).expect("an answer");
        match cqe.status.is(Status::SUCCESS) {
            true => Ok(data),
            false => Err(cqe.status),
        }
    }

    fn writes(&mut self, byte: u8) -> Status {
        let write = NvmCommand::Write(Blocks::new(0, 1)).sqe(0, 1, SglDescriptor::NONE);
        let data = vec![byte; BLOCK as usize];
        let (cqe, _) = self.queue.command(write, &data, 0).expect("an answer");
        cqe.status
    }

    /// Keys, in order, and the holder's with the type (RTYPE).
    fn report(&mut self) -> Reported {
        const BYTES: u32 = 4096;
        let mut sqe = nvm(NvmCommand::ReservationReport, 0);
        let report = ReservationReportCommand {
            dwords_zero_based: BYTES / 4 - 1,
            is_extended: true,
        };
        [sqe.cdw10, sqe.cdw11] = report.to_dwords();
        let (cqe, data) = self.queue.command(sqe, &[], BYTES).expect("an answer");
        assert!(cqe.status.is(Status::SUCCESS), "{}", cqe.status);
        let report = ReservationReport::parse(&data, true).expect("a report");
        let mut keys: Vec<u64> = report.controllers.iter().map(|one| one.key).collect();
        keys.sort_unstable();
        // Each controller of the host is told, and the one before may not have ended.
        keys.dedup();
        let holder = report.controllers.iter().find(|one| one.holds);
        Reported {
            keys,
            held: holder.map(|one| (one.key, report.kind)),
        }
    }

    /// Compare and Write of block 0, fused; whether it was done.
    fn compares_and_writes(&mut self, old: &[u8], new: &[u8]) -> bool {
        let fused = |command: NvmCommand, fuse| {
            let mut sqe = command.sqe(0, 1, SglDescriptor::NONE);
            sqe.fuse = fuse;
            sqe
        };
        let blocks = Blocks::new(0, 1);
        let compare = fused(NvmCommand::Compare(blocks), Fuse::First);
        let write = fused(NvmCommand::Write(blocks), Fuse::Second);
        let pair = [(compare, old, 0), (write, new, 0)];
        let answers = together(&mut self.queue, &pair).expect("two answers");
        let done = answers.iter().all(|cqe| cqe.status.is(Status::SUCCESS));
        let failed = answers[0].status.is(Status::COMPARE_FAILURE);
        assert!(
            done || failed,
            "{} {}",
            answers[0].status,
            answers[1].status
        );
        done
    }
}

/// Registrations and reservation, as either protocol says them; types are NVMe's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reported {
    keys: Vec<u64>,
    held: Option<(u64, u8)>,
}

impl Reported {
    fn of(keys: &[u64], held: Option<(u64, u8)>) -> Self {
        Reported {
            keys: keys.to_vec(),
            held,
        }
    }
}

/// The type of a reservation in SCSI that is this one in NVMe (NVMe SCSI Translation; SPC-4, table 211).
const SCSI_TYPES: [(u8, u8); 6] = [(1, 1), (2, 3), (3, 5), (4, 6), (5, 7), (6, 8)];

/// PERSISTENT RESERVE OUT: its action, its type in SCSI's numbers, and its keys.
struct ReserveOut(u8, u8, u64, u64);

impl ReserveOut {
    const REGISTER_AND_IGNORE: u8 = 6;
    const RESERVE: u8 = 1;
    const RELEASE: u8 = 2;
    const CLEAR: u8 = 3;
    const PREEMPT: u8 = 4;

    fn cdb(&self) -> [u8; 10] {
        [0x5f, self.0, self.1, 0, 0, 0, 0, 0, 24, 0]
    }

    fn list(&self) -> Vec<u8> {
        let mut list = [self.2.to_be_bytes(), self.3.to_be_bytes()].concat();
        list.resize(24, 0);
        if self.0 == Self::REGISTER_AND_IGNORE {
            // APTPL.
            list[20] = 1;
        }
        list
    }
}

/// A host of iSCSI.
struct IscsiHost(Session);

impl IscsiHost {
    /// Runs a command; again where the unit has something to say first.
    fn run(&mut self, cdb: &[u8], reads: u32, writes: &[u8]) -> (u8, Vec<u8>) {
        loop {
            let ended = self.0.run(cdb, reads, writes).expect("an end");
            let key = ended.reply.sense().map(|(key, _)| key);
            if ended.reply.status() != 2 || key != Some(UNIT_ATTENTION) {
                return (ended.reply.status(), ended.data);
            }
        }
    }

    fn ask(&mut self, out: &ReserveOut) -> u8 {
        self.run(&out.cdb(), 0, &out.list()).0
    }

    fn reads(&mut self) -> Result<Vec<u8>, u8> {
        match self.run(&transfer(READ_16, 0, 1), BLOCK, &[]) {
            (0, data) => Ok(data),
            (status, _) => Err(status),
        }
    }

    fn writes(&mut self, byte: u8) -> u8 {
        let data = vec![byte; BLOCK as usize];
        self.run(&transfer(WRITE_16, 0, 1), 0, &data).0
    }

    fn report(&mut self) -> Reported {
        let reserve_in = |action| [0x5e, action, 0, 0, 0, 0, 0, 2, 0, 0];
        let (status, data) = self.run(&reserve_in(0), 512, &[]);
        assert_eq!(status, 0, "READ KEYS");
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        let mut keys: Vec<u64> = data[8..].chunks(8).map(number).collect();
        keys.sort_unstable();
        let (status, data) = self.run(&reserve_in(1), 512, &[]);
        assert_eq!(status, 0, "READ RESERVATION");
        let held = data.get(8..16).map(|key| {
            let kind = data[21] & 0x0f;
            let as_nvme = SCSI_TYPES.iter().find(|(_, scsi)| *scsi == kind);
            (number(key), as_nvme.expect("a known type").0)
        });
        Reported { keys, held }
    }

    /// COMPARE AND WRITE of block 0; whether it was done.
    fn compares_and_writes(&mut self, old: &[u8], new: &[u8]) -> bool {
        let mut cdb = transfer(0x89, 0, 0);
        cdb[13] = 1;
        match self.run(&cdb, 0, &[old, new].concat()).0 {
            0 => true,
            // MISCOMPARE: nothing else is refused.
            2 => false,
            status => panic!("status {status:02x}h"),
        }
    }
}

const GOOD: u8 = 0;

#[test]
fn reservations_of_one_protocol_hold_for_the_other() {
    const NVME: u64 = 0xa1;
    const ISCSI: u64 = 0xb1;
    let mut both = Both::serving("mem:?size=16M&block_size=512");
    let (mut nvme, mut iscsi) = (both.nvme(), both.iscsi());
    assert!(nvme.ask(&register(NVME)).is(Status::SUCCESS));

    // Write Exclusive of the NVMe host: the other may read.
    let first = acquire(AcquireAction::Acquire, 1, NVME, 0);
    assert!(nvme.ask(&first).is(Status::SUCCESS));
    assert!(nvme.writes(1).is(Status::SUCCESS));
    assert_eq!(iscsi.writes(2), CONFLICT);
    assert_eq!(iscsi.reads(), Ok(vec![1; BLOCK as usize]));
    let told = Reported::of(&[NVME], Some((NVME, 1)));
    assert_eq!((nvme.report(), iscsi.report()), (told.clone(), told));

    // The SCSI host takes it, with Exclusive Access: the NVMe host is out, and has no registration left.
    let register_iscsi = ReserveOut(ReserveOut::REGISTER_AND_IGNORE, 0, 0, ISCSI);
    assert_eq!(iscsi.ask(&register_iscsi), GOOD);
    assert_eq!(iscsi.writes(2), CONFLICT);
    assert_eq!(
        iscsi.ask(&ReserveOut(ReserveOut::PREEMPT, 3, ISCSI, NVME)),
        GOOD
    );
    assert_eq!(iscsi.writes(3), GOOD);
    let conflict = Status::RESERVATION_CONFLICT;
    assert!(nvme.writes(4).is(conflict));
    assert!(nvme.reads().is_err_and(|status| status.is(conflict)));
    let told = Reported::of(&[ISCSI], Some((ISCSI, 2)));
    assert_eq!((nvme.report(), iscsi.report()), (told.clone(), told));

    // For all registrants: both hold it, and it ends with the last of them.
    let released = ReserveOut(ReserveOut::RELEASE, 3, ISCSI, 0);
    assert_eq!(iscsi.ask(&released), GOOD);
    assert!(nvme.writes(5).is(Status::SUCCESS));
    assert!(nvme.ask(&register(NVME)).is(Status::SUCCESS));
    let all = acquire(AcquireAction::Acquire, 6, NVME, 0);
    assert!(nvme.ask(&all).is(Status::SUCCESS));
    assert_eq!(iscsi.writes(6), GOOD);
    assert!(nvme.writes(7).is(Status::SUCCESS));
    assert_eq!(iscsi.reads(), Ok(vec![7; BLOCK as usize]));
    assert_eq!(iscsi.ask(&ReserveOut(ReserveOut::CLEAR, 0, ISCSI, 0)), GOOD);
    let none = Reported::of(&[], None);
    assert_eq!(
        (nvme.report(), iscsi.report()),
        (none.clone(), none.clone())
    );

    // What hosts have left behind the operator takes away, and it is gone for good.
    assert!(nvme.ask(&register(NVME)).is(Status::SUCCESS));
    let exclusive = acquire(AcquireAction::Acquire, 2, NVME, 0);
    assert!(nvme.ask(&exclusive).is(Status::SUCCESS));
    assert_eq!(iscsi.writes(8), CONFLICT);
    both.gateway.ok("volume clear-reservations disk");
    assert_eq!(iscsi.writes(9), GOOD);
    assert!(nvme.writes(10).is(Status::SUCCESS));
    assert_eq!(
        (nvme.report(), iscsi.report()),
        (none.clone(), none.clone())
    );
    both.gateway.ok("volume clear-reservations disk");
    let unknown = "volume clear-reservations none";
    both.gateway.fails(unknown, &["no volume none"]);
    both.gateway.kill();
    both.gateway.start();
    assert_eq!(both.iscsi().report(), none);
}

#[test]
fn compare_and_write_is_one_step_for_both_protocols() {
    const EACH: u64 = 200;
    let both = Both::serving("mem:?size=16M&block_size=512");
    let counted = |block: &[u8]| u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
    let next = |block: &[u8]| {
        let mut next = block.to_vec();
        next[..8].copy_from_slice(&(counted(block) + 1).to_le_bytes());
        next
    };
    let lost = std::thread::scope(|scope| {
        let nvme = scope.spawn(|| {
            let mut host = both.nvme();
            let (mut done, mut lost) = (0, 0);
            while done < EACH {
                let old = host.reads().expect("a read");
                match host.compares_and_writes(&old, &next(&old)) {
                    true => done += 1,
                    false => lost += 1,
                }
            }
            lost
        });
        let mut host = both.iscsi();
        let (mut done, mut lost) = (0, 0);
        while done < EACH {
            let old = host.reads().expect("a read");
            match host.compares_and_writes(&old, &next(&old)) {
                true => done += 1,
                false => lost += 1,
            }
        }
        lost + nvme.join().expect("it counts")
    });
    let block = both.iscsi().reads().expect("a read");
    assert_eq!(counted(&block), 2 * EACH);
    println!("{lost} were lost to the other host");
}

/// A change of what is reserved, by either protocol.
enum Step {
    Nvme((Sqe, Vec<u8>)),
    Iscsi(ReserveOut),
}

#[test]
fn what_persists_outlives_a_kill_at_any_step() {
    let rounds = if nightly() { 30 } else { 3 };
    let seed = weir_testing::harness::seed("both_protocols");
    let mut random = Random::new(seed);
    let mut both = Both::serving("file:FOLDER/image?size=16M&block_size=512");
    let (mut kept_before, mut kept_after) = (0, 0);
    for round in 0..rounds {
        let [a, b] = [0xa00 + 2 * round, 0xb00 + 2 * round];
        let nvme = |step| Step::Nvme(step);
        let iscsi = |action, kind, key, other| Step::Iscsi(ReserveOut(action, kind, key, other));
        // What is asked, and what is registered and reserved after it.
        let steps = [
            (nvme(register(a)), Reported::of(&[a], None)),
            (
                iscsi(ReserveOut::REGISTER_AND_IGNORE, 0, 0, b),
                Reported::of(&[a, b], None),
            ),
            (
                nvme(acquire(AcquireAction::Acquire, 1, a, 0)),
                Reported::of(&[a, b], Some((a, 1))),
            ),
            (
                iscsi(ReserveOut::PREEMPT, 5, b, a),
                Reported::of(&[b], Some((b, 3))),
            ),
            (
                nvme(register(a + 1)),
                Reported::of(&[a + 1, b], Some((b, 3))),
            ),
            (
                nvme(acquire(AcquireAction::Preempt, 4, a + 1, b)),
                Reported::of(&[a + 1], Some((a + 1, 4))),
            ),
            (
                iscsi(ReserveOut::REGISTER_AND_IGNORE, 0, 0, b + 1),
                Reported::of(&[a + 1, b + 1], Some((a + 1, 4))),
            ),
            (nvme(release(4, a + 1)), Reported::of(&[a + 1, b + 1], None)),
            (
                iscsi(ReserveOut::RESERVE, 3, b + 1, 0),
                Reported::of(&[a + 1, b + 1], Some((b + 1, 2))),
            ),
            (
                iscsi(ReserveOut::CLEAR, 0, b + 1, 0),
                Reported::of(&[], None),
            ),
        ];
        for (number, (step, after)) in steps.iter().enumerate() {
            let what = format!("round {round}, step {number}");
            let before = both.nvme().report();
            let pause = Duration::from_micros(random.below(12_000));
            let is_answered = killed_in(&mut both, step, pause);
            both.gateway.start();
            let (nvme, iscsi) = (both.nvme().report(), both.iscsi().report());
            assert_eq!(nvme, iscsi, "{what}");
            let is_done = nvme == *after;
            assert!(is_done || nvme == before, "{what}: {nvme:x?}");
            assert!(
                is_done || !is_answered,
                "{what}: it was answered, and is lost"
            );
            match is_done {
                true => kept_after += 1,
                false => kept_before += 1,
            }
            if !is_done {
                let done = match step {
                    Step::Nvme(step) => both.nvme().ask(step).is(Status::SUCCESS),
                    Step::Iscsi(out) => both.iscsi().ask(out) == GOOD,
                };
                assert!(done, "{what}: once more");
                assert_eq!(both.iscsi().report(), *after, "{what}: once more");
            }
        }
    }
    println!("seed {seed}: {kept_before} kills before a step, {kept_after} after it");
}

/// Asks for a step, and kills the gateway after so long. Whether it was answered before that.
fn killed_in(both: &mut Both, step: &Step, pause: Duration) -> bool {
    match step {
        Step::Nvme((sqe, keys)) => {
            let mut host = both.nvme();
            let (sqe, capsule) = host.queue.prepare(*sqe, keys, 0);
            host.queue.send(&capsule).expect("it takes the command");
            std::thread::sleep(pause);
            both.gateway.kill();
            host.queue
                .answer(&sqe, keys)
                .is_ok_and(|(cqe, _)| cqe.status.is(Status::SUCCESS))
        }
        Step::Iscsi(out) => {
            let IscsiHost(mut session) = both.iscsi();
            let list = out.list();
            let command = session
                .command(&out.cdb(), 0, list.len() as u32)
                .carrying(&list);
            session.peer.send(&command).expect("it takes the command");
            std::thread::sleep(pause);
            both.gateway.kill();
            session
                .ended(command.itt(), &list)
                .is_ok_and(|ended| ended.reply.status() == GOOD)
        }
    }
}
