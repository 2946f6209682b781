//! Volumes as files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_block::{Operation, Volume};
use weir_front::{Hubs, Reservations};
use weir_nfs::attribute::{AttributeChanges, Bitmap, number};
use weir_nfs::types::StateId;
use weir_nfs::{OperationNumber as Number, Status};
use weir_nfs_server::{Allowed, Export, Source, VolumeFile, VolumeFiles};
use weir_reactor::random::Random;
use weir_reservation::{Registrant, ReservationType};
use weir_testing::failing::failing;
use weir_volume::{Access, Guard, GuardConfig, LimitedVolume, Limits, MemVolume, RateLimit};

use crate::client::{Client, data, handle, ops, result, skip_share, type_and_size, written};
use crate::scene::{Scene, scene_of};
use crate::version3::Client3;

const BYTES: u64 = 4 << 20;

fn guarded(block_size: u32) -> Arc<Guard> {
    let url = format!("mem:?size=4M&block_size={block_size}");
    let volume = MemVolume::open(&url.parse().unwrap(), Access { read_only: false }).unwrap();
    Guard::new(volume, GuardConfig::default()).unwrap()
}

fn file(hubs: &Hubs, number: u32, name: &str, volume: Arc<dyn Volume>) -> VolumeFile {
    VolumeFile {
        number,
        name: name.to_owned(),
        changes: hubs.changes(&volume, Duration::from_secs(1000)),
        counted: Arc::clone(&volume),
        volume,
        identity: [number as u8; 16],
        is_read_only: false,
        reservations: None,
    }
}

fn export(files: Vec<VolumeFile>) -> Export {
    Export {
        number: 1,
        path: "exports/share".into(),
        source: Source::Volumes(Arc::new(VolumeFiles::new(
            files,
            BTreeMap::new(),
            Duration::from_secs(5),
        ))),
        fsid: (7, 1),
        is_read_only: false,
        allowed: Allowed::Any,
    }
}

/// A server of one volume.
fn served(volume: Arc<dyn Volume>) -> Scene {
    scene_of(|hubs| export(vec![file(hubs, 11, "disk", volume)]))
}

fn open(client: &mut Client) -> (StateId, Vec<u8>) {
    client.open("owner", "disk", 3)
}

fn write(client: &mut Client, file: &(StateId, Vec<u8>), at: u64, how: u32, data: &[u8]) -> Status {
    client.status(ops().put(&file.1).write(&file.0, at, how, data))
}

fn read(client: &mut Client, file: &(StateId, Vec<u8>), at: u64, count: u32) -> (bool, Vec<u8>) {
    let results = client.call(ops().put(&file.1).read(&file.0, at, count));
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    data(&mut reader)
}

fn change(client: &mut Client, file: &(StateId, Vec<u8>)) -> u64 {
    let results = client.call(ops().put(&file.1).attributes(&[number::CHANGE]));
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    result(&mut reader, Number::Getattr);
    Bitmap::parse(&mut reader).unwrap();
    assert_eq!(reader.u32(), Ok(8));
    reader.u64().unwrap()
}

#[test]
fn bytes_are_where_they_were_written() {
    for block_size in [512, 4096] {
        let scene = served(guarded(block_size));
        let mut client = Client::new(scene.address, "client");
        let mut other = Client3::new(scene.address);
        let file = open(&mut client);
        let mut model = vec![0; BYTES as usize];
        let seed = weir_testing::harness::seed("bytes_are_where_they_were_written");
        let mut random = Random::new(seed);
        for round in 0..300_u32 {
            let length = match random.below(3) {
                0 => 1 + random.below(100),
                1 => 1 + random.below(20_000),
                _ => 4096 * (1 + random.below(16)),
            } as usize;
            let mut at = random.below(BYTES - length as u64 + 1);
            if random.below(2) == 0 {
                at -= at % 4096;
            }
            let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            let place = at as usize..at as usize + length;
            match round % 4 {
                0 => assert_eq!(
                    write(&mut client, &file, at, round / 4 % 3, &bytes),
                    Status::Ok
                ),
                1 => drop(other.write(&file.1, at, round / 4 % 3, &bytes).unwrap()),
                2 => {
                    let (is_end, found) = read(&mut client, &file, at, length as u32);
                    assert!(found == model[place.clone()], "{length} from {at}");
                    assert_eq!(is_end, place.end as u64 == BYTES);
                    continue;
                }
                _ => {
                    let (found, is_end) = other.read(&file.1, at, length as u32).unwrap();
                    assert!(found == model[place.clone()], "{length} from {at}");
                    assert_eq!(is_end, place.end as u64 == BYTES);
                    continue;
                }
            }
            model[place].copy_from_slice(&bytes);
        }
        let at = BYTES - 1000;
        assert_eq!(
            read(&mut client, &file, at, 5000),
            (true, model[at as usize..].to_vec())
        );
        assert_eq!(read(&mut client, &file, BYTES, 5), (true, Vec::new()));
        assert_eq!(write(&mut client, &file, at, 0, &[0; 1001]), Status::Nospc);
        assert_eq!(
            write(&mut client, &file, u64::MAX, 0, &[0; 5]),
            Status::Nospc
        );
        // Bytes that are given back read as zeroes, and no byte beside them.
        let given_back = ops().put(&file.1).deallocate(&file.0, 5, 20_000);
        assert_eq!(client.status(given_back), Status::Ok);
        model[5..20_005].fill(0);
        let (_, found) = read(&mut client, &file, 0, 24_000);
        assert!(found == model[..24_000]);
    }
}

#[test]
fn parts_of_one_block_do_not_write_over_each_other() {
    let scene = served(guarded(4096));
    let address = scene.address;
    let writers: Vec<_> = (0..4_u8)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::new(address, &format!("client {writer}"));
                let file = open(&mut client);
                for round in 0..100_u64 {
                    let at = round % 3 * 4096 + 100 * u64::from(writer);
                    let bytes = [writer + 1; 100];
                    assert_eq!(write(&mut client, &file, at, 0, &bytes), Status::Ok);
                    assert_eq!(read(&mut client, &file, at, 100).1, bytes);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|one| one.join().unwrap());
    let mut client = Client::new(address, "client");
    let file = open(&mut client);
    for block in 0..3 {
        let (_, found) = read(&mut client, &file, block * 4096, 400);
        let expected: Vec<u8> = (1..=4).flat_map(|writer| [writer; 100]).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn files_are_there_and_stay_as_they_are() {
    let scene = scene_of(|hubs| {
        export(vec![
            file(hubs, 12, "b", guarded(512)),
            file(hubs, 11, "a", guarded(4096)),
        ])
    });
    let mut client = Client::new(scene.address, "client");
    let results = client.call(
        ops()
            .share()
            .lookup("b")
            .attributes(&[number::TYPE, number::SIZE])
            .get(),
    );
    let mut reader = results.ok();
    skip_share(&mut reader);
    result(&mut reader, Number::Lookup);
    assert_eq!(type_and_size(&mut reader), (1, BYTES));
    let b = handle(&mut reader);
    let mut other = Client3::new(scene.address);
    let root = other.root.clone();
    for bytes in [400, 4096] {
        let listed = other.list(&root, true, bytes);
        let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [".", "..", "a", "b"]);
        assert!(listed[2].1 && listed[3].1, "they come with their files");
    }
    assert_eq!(other.look_up(&root, "b").unwrap().0, b);
    let share = || ops().share();
    for (asked, status) in [
        (share().lookup("c"), Status::Noent),
        (share().open("owner", "c", 3, 0, true), Status::Perm),
        (share().open("owner", "c", 3, 0, false), Status::Noent),
        (share().make_directory("c"), Status::Perm),
        (share().make_directory("a"), Status::Exist),
        (share().remove("a"), Status::Perm),
        (share().remove("c"), Status::Noent),
        (share().save().rename("a", "c"), Status::Perm),
        (ops().put(&b).lookup("a"), Status::Notdir),
        (
            share().lookup("a").save().put(&b).lookup("a"),
            Status::Notdir,
        ),
    ] {
        assert_eq!(client.status(asked), status);
    }
    let opened = client.open("owner", "b", 3);
    for (size, status) in [
        (BYTES, Status::Ok),
        (0, Status::Perm),
        (BYTES + 1, Status::Perm),
    ] {
        let size = AttributeChanges {
            size: Some(size),
            ..AttributeChanges::default()
        };
        let set = ops().put(&opened.1).set(&opened.0, &size);
        assert_eq!(client.status(set), status);
    }
    let mode = AttributeChanges {
        mode: Some(0o600),
        ..AttributeChanges::default()
    };
    let set = ops().put(&b).set(&StateId::ANONYMOUS, &mode);
    assert_eq!(client.status(set), Status::Perm);
    // All of it is data, no room is reserved, and clients copy by themselves.
    let hole = client.call(ops().put(&b).seek(&opened.0, 5, 1));
    let mut reader = hole.ok();
    result(&mut reader, Number::Putfh);
    result(&mut reader, Number::Seek);
    assert_eq!((reader.bool(), reader.u64()), (Ok(true), Ok(BYTES)));
    let place = ops().put(&b).seek(&opened.0, BYTES, 0);
    assert_eq!(client.status(place), Status::Nxio);
    let room = ops().put(&b).allocate(&opened.0, 0, 4096);
    assert_eq!(client.status(room), Status::Notsupp);
    let both = (&opened.0, &opened.0);
    let copy = ops().put(&b).save().put(&b).copy(both, (0, 4096), 4096);
    assert_eq!(client.status(copy), Status::Notsupp);
}

#[test]
fn changes_of_all_are_seen_and_nothing_else() {
    let volume: Arc<dyn Volume> = guarded(512);
    let shared = Arc::clone(&volume);
    // The same volume twice: what one file is written the other one shows.
    let scene = scene_of(move |hubs| {
        export(vec![
            file(hubs, 11, "disk", Arc::clone(&shared)),
            file(hubs, 12, "twin", shared),
        ])
    });
    let mut client = Client::new(scene.address, "client");
    let (disk, twin) = (open(&mut client), client.open("owner", "twin", 3));
    let first = change(&mut client, &disk);
    assert_eq!(read(&mut client, &disk, 0, 100).1, [0; 100]);
    assert_eq!(client.status(ops().put(&disk.1).commit()), Status::Ok);
    assert_eq!(change(&mut client, &disk), first);
    assert_eq!(write(&mut client, &twin, 0, 0, &[1; 512]), Status::Ok);
    let second = change(&mut client, &disk);
    assert!(second > first, "{second} after {first}");
    assert_eq!(change(&mut client, &twin), second);
    assert_eq!(read(&mut client, &disk, 0, 512).1, [1; 512]);
    assert!(scene.hubs.changes(&volume, Duration::ZERO).value() == second);
}

#[test]
fn what_is_gone_is_stale_and_what_waits_for_it_too() {
    let limits = Limits {
        total_iops: Some(RateLimit::new(100, Some(1)).unwrap()),
        ..Limits::default()
    };
    let guard = guarded(512);
    let volume: Arc<dyn Volume> = LimitedVolume::new(Arc::clone(&guard), limits);
    let mut scene = served(Arc::clone(&volume));
    let mut client = Client::new(scene.address, "client");
    let file_of = open(&mut client);
    assert_eq!(write(&mut client, &file_of, 0, 0, &[3; 512]), Status::Ok);
    // Most of these wait for their turn.
    for slot in 0..60 {
        let write = ops().put(&file_of.1).write(&file_of.0, 0, 0, &[3; 512]);
        let write = write.sequence(&client.session, 1, slot + 1, false);
        client.connection.send(2, &write);
    }
    // With the first answer the others are in line.
    assert_eq!(client.connection.results().1.status, Status::Ok);
    scene.apply(vec![export(Vec::new())]);
    let answers: Vec<_> = (0..59)
        .map(|_| client.connection.results().1.status)
        .collect();
    let stale = answers.iter().filter(|&&status| status == Status::Stale);
    assert!(stale.count() >= 1, "{answers:?}");
    let known = [Status::Ok, Status::Stale, Status::BadStateid];
    assert!(
        answers.iter().all(|status| known.contains(status)),
        "{answers:?}"
    );
    let old = ops().put(&file_of.1).attributes(&[number::SIZE]);
    assert_eq!(client.status(old), Status::Stale);
    assert_eq!(scene.nfs.under_way().len(), 0);
    // Under the same name it is another file, and its clients know that.
    let mut read_only = file(&scene.hubs, 13, "disk", guard);
    read_only.is_read_only = true;
    scene.apply(vec![export(vec![read_only])]);
    let again = client.open("owner", "disk", 1);
    assert_ne!(again.1, file_of.1);
    assert!(read(&mut client, &again, 0, 512).1 == [3; 512]);
    let refused = ops().share().open("writer", "disk", 2, 0, false);
    assert_eq!(client.status(refused), Status::Rofs);
    let anonymous = ops()
        .put(&again.1)
        .write(&StateId::ANONYMOUS, 0, 0, &[0; 512]);
    assert_eq!(client.status(anonymous), Status::Rofs);
}

#[test]
fn clients_of_a_volume_that_is_not_open_ask_again() {
    let guard = guarded(512);
    let mut scene = served(guard.clone());
    let mut client = Client::new(scene.address, "client");
    let file_of = open(&mut client);
    assert_eq!(write(&mut client, &file_of, 0, 0, &[3; 512]), Status::Ok);
    let absent = BTreeMap::from([(11, "disk".to_owned())]);
    let mut closed = export(Vec::new());
    closed.source = Source::Volumes(Arc::new(VolumeFiles::new(
        Vec::new(),
        absent,
        Duration::from_secs(5),
    )));
    scene.apply(vec![closed]);
    for asked in [
        ops().put(&file_of.1).read(&file_of.0, 0, 512),
        ops().put(&file_of.1).write(&file_of.0, 0, 0, &[4; 512]),
        ops().put(&file_of.1).attributes(&[number::SIZE]),
        ops().share().lookup("disk"),
        ops().share().open("other", "disk", 3, 0, true),
    ] {
        assert_eq!(client.status(asked), Status::Delay);
    }
    assert_eq!(client.status(ops().share().lookup("other")), Status::Noent);
    scene.apply(vec![export(vec![file(&scene.hubs, 11, "disk", guard)])]);
    assert!(read(&mut client, &file_of, 0, 512).1 == [3; 512]);
}

/// The registrant of some host.
fn host() -> Registrant {
    Registrant::Nexus(weir_reservation::Nexus {
        initiator: "iqn.2026-01.org.example:host".into(),
        isid: [1; 6],
        target: "iqn.2026-01.org.example:target".into(),
        portal_group: 1,
    })
}

fn reserve(scene: &Scene, reservations: &Arc<Reservations>, kind: ReservationType) {
    use weir_reservation::Operation;
    let register = Operation::Replace {
        proof: weir_reservation::Proof::Ignored,
        key: 7,
        persistence: None,
    };
    let kind = Some(kind);
    for asked in [
        Operation::Clear { key: 7 },
        register,
        Operation::Reserve { key: 7, kind },
    ] {
        let reservations = Arc::clone(reservations);
        scene.harness.run(0, move |_| async move {
            let (answer, answered) = weir_reactor::oneshot();
            reservations.ask(host(), asked, |result| answer.send(result));
            // There is nothing to clear at first.
            let _ = answered.await.unwrap();
        });
    }
}

#[test]
fn reservations_of_others_bind_clients() {
    let mut reservations = None;
    let scene = scene_of(|hubs| {
        let keep = |_, kept: weir_front::Kept| kept.tell(true);
        reservations = Some(hubs.reservations(None, keep));
        let mut file = file(hubs, 11, "disk", guarded(512));
        file.reservations = reservations.clone();
        export(vec![file])
    });
    let reservations = reservations.unwrap();
    let mut client = Client::new(scene.address, "client");
    let file = open(&mut client);
    assert_eq!(write(&mut client, &file, 0, 0, &[1; 600]), Status::Ok);
    let may = |client: &mut Client| {
        let results = client.call(ops().put(&file.1).access(0x3f));
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        result(&mut reader, Number::Access);
        reader.u32().unwrap();
        reader.u32().unwrap()
    };
    assert_eq!(may(&mut client), 0x01 | 0x04 | 0x08);
    reserve(&scene, &reservations, ReservationType::WriteExclusive);
    assert_eq!(write(&mut client, &file, 0, 0, &[2; 600]), Status::Access);
    assert_eq!(client.status(ops().put(&file.1).commit()), Status::Access);
    assert_eq!(read(&mut client, &file, 0, 600).1, [1; 600]);
    assert_eq!(may(&mut client), 0x01);
    reserve(&scene, &reservations, ReservationType::ExclusiveAccess);
    let refused = ops().put(&file.1).read(&file.0, 0, 600);
    assert_eq!(client.status(refused), Status::Access);
    assert_eq!(may(&mut client), 0);
    let clear = weir_reservation::Operation::Clear { key: 7 };
    scene.harness.run(0, move |_| async move {
        let (answer, answered) = weir_reactor::oneshot();
        reservations.ask(host(), clear, |result| answer.send(result));
        answered.await.unwrap().unwrap();
    });
    assert_eq!(write(&mut client, &file, 0, 2, &[3; 600]), Status::Ok);
    assert_eq!(read(&mut client, &file, 0, 600).1, [3; 600]);
}

#[test]
fn a_failed_flush_has_clients_send_again() {
    let fails = Arc::<AtomicBool>::default();
    let flushes_fail = Arc::clone(&fails);
    let fails_now = move |operation: &Operation| {
        matches!(operation, Operation::Flush) && flushes_fail.load(Ordering::Acquire)
    };
    let mut scene = served(failing(guarded(512), fails_now));
    let mut client = Client::new(scene.address, "client");
    let file_of = open(&mut client);
    let verifier = |client: &mut Client| {
        let results = client.call(ops().put(&file_of.1).write(&file_of.0, 0, 0, &[1; 512]));
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        written(&mut reader).2
    };
    let before = verifier(&mut client);
    assert_eq!(client.status(ops().put(&file_of.1).commit()), Status::Ok);
    assert_eq!(verifier(&mut client), before);
    fails.store(true, Ordering::Release);
    assert_eq!(client.status(ops().put(&file_of.1).commit()), Status::Io);
    let after = verifier(&mut client);
    assert_ne!(after, before);
    fails.store(false, Ordering::Release);
    // The same file of another volume: what was not committed may be gone.
    scene.apply(vec![export(vec![file(
        &scene.hubs,
        11,
        "disk",
        guarded(512),
    )])]);
    let again = open(&mut client);
    let results = client.call(ops().put(&again.1).write(&again.0, 0, 0, &[1; 512]));
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    assert_ne!(written(&mut reader).2, after);
}

#[test]
fn times_and_counts_are_kept() {
    let volume: Arc<dyn Volume> = guarded(512);
    let scene = served(Arc::clone(&volume));
    let mut client = Client::new(scene.address, "client");
    let file = open(&mut client);
    for round in 0..10 {
        assert_eq!(
            write(&mut client, &file, round * 512, 0, &[1; 512]),
            Status::Ok
        );
        read(&mut client, &file, 0, 1024);
    }
    assert_eq!(client.status(ops().put(&file.1).commit()), Status::Ok);
    let totals = scene.nfs.totals();
    let (path, totals) = &totals[0];
    assert_eq!(
        (&**path, totals.reads, totals.writes),
        ("exports/share", 10, 10)
    );
    assert_eq!((totals.bytes_read, totals.bytes_written), (10_240, 5120));
    let nfs = scene.nfs.clone();
    let (files, volumes) = scene.harness.run(0, move |_| async move {
        let files = nfs.file_latencies(None).await;
        (files, nfs.volume_latencies(&[volume]).await)
    });
    let latency = &files[&("exports/share".into(), 11)];
    for (kind, count) in [
        (weir_front::CommandKind::Read, 10),
        (weir_front::CommandKind::Write, 10),
        (weir_front::CommandKind::Other, 1),
    ] {
        let of_file = latency.kind(kind).unwrap().count();
        let of_volume = volumes[0].kind(kind).unwrap().count();
        assert_eq!((of_file, of_volume), (count, count));
    }
}
