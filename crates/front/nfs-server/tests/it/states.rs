//! Opens, share reservations, locks, and what is left of them after a restart.

use std::time::Duration;

use weir_nfs::types::StateId;
use weir_nfs::{OperationNumber as Number, Status};
use weir_nfs_server::NfsConfig;

use crate::client::{Client, data, opened, ops, result, skip_share};
use crate::scene::{config, scene, scene_with};

const ALL: (u64, u64) = (0, u64::MAX);

#[test]
fn an_open_denies_others_what_it_says() {
    let Some(scene) = scene() else { return };
    let mut one = Client::new(scene.address, "one");
    let mut two = Client::new(scene.address, "two");
    let results = one.call(ops().share().open("owner", "file", 3, 2, true).get());
    let mut reader = results.ok();
    skip_share(&mut reader);
    let stateid = opened(&mut reader);
    let file = crate::client::handle(&mut reader);
    let open = |access, deny| ops().share().open("owner", "file", access, deny, false);
    assert_eq!(two.status(open(2, 0)), Status::ShareDenied);
    assert_eq!(two.status(open(1, 1)), Status::ShareDenied);
    assert_eq!(two.status(open(1, 0)), Status::Ok);
    let write = ops().put(&file).write(&StateId::ANONYMOUS, 0, 0, b"x");
    assert_eq!(two.status(write), Status::Locked);
    assert_eq!(
        one.status(ops().put(&file).write(&stateid, 0, 0, b"x")),
        Status::Ok
    );
    // Its own owner adds to what it has.
    let results = one.call(ops().share().open("owner", "file", 1, 0, false));
    let mut reader = results.ok();
    skip_share(&mut reader);
    let again = opened(&mut reader);
    assert_eq!(
        (again.other, again.seqid),
        (stateid.other, stateid.seqid + 1)
    );
    assert_eq!(
        one.status(ops().put(&file).close(&stateid)),
        Status::OldStateid
    );
    assert_eq!(
        two.status(ops().put(&file).close(&again)),
        Status::BadStateid
    );
    assert_eq!(one.status(ops().put(&file).close(&again)), Status::Ok);
    assert_eq!(two.status(open(2, 0)), Status::Ok);
}

#[test]
fn locks_keep_others_out_byte_for_byte() {
    let Some(scene) = scene() else { return };
    let mut one = Client::new(scene.address, "one");
    let mut two = Client::new(scene.address, "two");
    let (first, file) = one.open("owner", "file", 3);
    let (second, _) = two.open("owner", "file", 3);
    let locked = |results: crate::client::Results| {
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        result(&mut reader, Number::Lock);
        StateId::parse(&mut reader).unwrap()
    };
    let lock =
        |open: &StateId, range, exclusive| ops().put(&file).lock(open, "locker", range, exclusive);
    let held = locked(one.call(lock(&first, (100, 100), true)));
    let denied = two.call(lock(&second, (150, 1), false));
    assert_eq!(denied.status, Status::Denied);
    let other = locked(two.call(lock(&second, (200, 10), true)));
    locked(two.call(lock(&second, (0, 100), true)));
    assert_eq!(two.status(lock(&second, ALL, false)), Status::Denied);
    // The middle is given back, and both ends stay.
    let unlock = ops().put(&file).unlock(&held, (120, 10));
    assert_eq!(one.status(unlock), Status::Ok);
    locked(two.call(lock(&second, (120, 10), true)));
    assert_eq!(two.status(lock(&second, (119, 1), true)), Status::Denied);
    assert_eq!(two.status(lock(&second, (130, 1), true)), Status::Denied);
    assert_eq!(two.status(lock(&second, (5, 0), true)), Status::Inval);
    assert_eq!(
        two.status(lock(&second, (u64::MAX - 1, 5), true)),
        Status::Inval
    );
    assert_eq!(
        one.status(ops().put(&file).close(&first)),
        Status::LocksHeld
    );
    let newest = StateId { seqid: 0, ..held };
    assert_eq!(
        one.status(ops().put(&file).unlock(&newest, ALL)),
        Status::Ok
    );
    assert_eq!(one.status(ops().put(&file).close(&first)), Status::Ok);
    let newest = StateId { seqid: 0, ..other };
    assert_eq!(
        two.status(ops().put(&file).unlock(&newest, ALL)),
        Status::Ok
    );
    locked(two.call(lock(&second, ALL, true)));
}

#[test]
fn a_silent_client_gives_way() {
    let short = NfsConfig {
        lease: Duration::from_millis(300),
        ..config()
    };
    let Some(scene) = scene_with(short, |_| {}) else {
        return;
    };
    let mut one = Client::new(scene.address, "one");
    let mut two = Client::new(scene.address, "two");
    one.call(ops().share().open("owner", "file", 3, 3, true))
        .ok();
    let open = || ops().share().open("owner", "file", 3, 0, false);
    while two.status(open()) != Status::Ok {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(one.status(ops().root()), Status::Badsession);
}

#[test]
fn clients_reclaim_after_a_restart_and_nobody_comes_before_them() {
    let Some(mut scene) = scene() else { return };
    let mut one = Client::new(scene.address, "one");
    let (_, file) = one.open("owner", "file", 3);
    let _two = Client::new(scene.address, "two");
    scene.restart(config());
    let mut stranger = Client::new(scene.address, "stranger");
    let open = || ops().share().open("owner", "other", 3, 0, true);
    assert_eq!(stranger.status(open()), Status::Grace);
    assert_eq!(
        stranger.status(ops().put(&file).reopen("owner", 3)),
        Status::NoGrace
    );
    let mut one = Client::without_completion(scene.address, "one", 1);
    let results = one.call(ops().put(&file).reopen("owner", 3));
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    let stateid = opened(&mut reader);
    one.call(ops().complete()).ok();
    assert_eq!(one.status(ops().complete()), Status::CompleteAlready);
    assert_eq!(
        one.status(ops().put(&file).reopen("owner", 3)),
        Status::NoGrace
    );
    assert_eq!(
        stranger.status(open()),
        Status::Grace,
        "the other one is not back"
    );
    Client::new(scene.address, "two");
    assert_eq!(stranger.status(open()), Status::Ok);
    let results = one.call(ops().put(&file).read(&stateid, 0, 10));
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    assert_eq!(data(&mut reader), (true, Vec::new()));
    let names = scene.names.0.lock().unwrap();
    let names: Vec<_> = names.iter().map(Vec::as_slice).collect();
    assert_eq!(names, [&b"one"[..], b"stranger", b"two"]);
}

#[test]
fn who_does_not_come_back_in_time_is_not_waited_for() {
    let Some(mut scene) = scene() else { return };
    Client::new(scene.address, "one");
    scene.restart(NfsConfig {
        lease: Duration::from_millis(200),
        ..config()
    });
    let mut two = Client::new(scene.address, "two");
    let mut open = || two.status(ops().share().open("owner", "file", 3, 0, true));
    while open() == Status::Grace {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(open(), Status::Ok);
}

#[test]
fn a_client_that_left_is_not_waited_for() {
    let Some(mut scene) = scene() else { return };
    let mut client = Client::new(scene.address, "one");
    assert_eq!(scene.names.0.lock().unwrap().len(), 1);
    let session = client.session;
    let ended = ops().raw(Number::DestroySession.value(), |writer| {
        writer.fixed(&session.0);
    });
    assert_eq!(client.connection.call(2, &ended).status, Status::Ok);
    let id = client.id;
    let left = ops().raw(Number::DestroyClientid.value(), |writer| writer.u64(id));
    assert_eq!(client.connection.call(2, &left).status, Status::Ok);
    // It is kept after the answer.
    while !scene.names.0.lock().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.restart(config());
    let mut other = Client::new(scene.address, "other");
    other.open("owner", "file", 3);
}
