//! Clients, sessions and their slots.

use weir_nfs::{OperationNumber as Number, SessionId, Status};

use crate::client::{Client, Connection, ops, result, skip_share};
use crate::scene::scene;

#[test]
fn a_request_that_comes_again_is_answered_and_not_done_again() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let made = ops().share().make_directory("one");
    let request = made.sequence(&client.session, client.sequence + 1, 0, true);
    let first = client.connection.call(2, &request);
    assert_eq!(first.status, Status::Ok);
    // Over another connection, as after the loss of the first.
    let mut other = Connection::new(scene.address);
    let again = other.call(2, &request);
    assert_eq!(again.bytes(), first.bytes());
    std::fs::remove_dir(scene.file("one")).unwrap();
    let again = client.connection.call(2, &request);
    assert_eq!(again.bytes(), first.bytes());
    assert!(!scene.file("one").exists(), "it was not done again");
    let not_kept = ops()
        .share()
        .sequence(&client.session, client.sequence + 2, 0, false);
    assert_eq!(client.connection.call(2, &not_kept).status, Status::Ok);
    let again = client.connection.call(2, &not_kept);
    assert_eq!((again.status, again.count), (Status::RetryUncachedRep, 2));
    let alone = ops().sequence(&client.session, 1, 5, false);
    for _ in 0..2 {
        let results = client.connection.call(2, &alone);
        assert_eq!((results.status, results.count), (Status::Ok, 1));
    }
}

#[test]
fn sequences_slots_and_sessions_are_checked() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (session, next) = (client.session, client.sequence + 1);
    let none = SessionId([9; 16]);
    for (request, status) in [
        (ops().sequence(&none, 1, 0, false), Status::Badsession),
        (ops().sequence(&session, next, 64, false), Status::Badslot),
        (
            ops().sequence(&session, next + 1, 0, false),
            Status::SeqMisordered,
        ),
        (ops().sequence(&session, 0, 3, false), Status::SeqMisordered),
        (ops().root(), Status::OpNotInSession),
        (
            ops()
                .sequence(&session, 2, 1, false)
                .sequence(&session, 1, 1, false),
            Status::SequencePos,
        ),
        (
            ops().raw(2, |_| {}).sequence(&session, 1, 2, false),
            Status::OpIllegal,
        ),
        (
            ops().raw(68, |_| {}).sequence(&session, 1, 3, false),
            Status::Notsupp,
        ),
        (
            ops().raw(18, |_| {}).sequence(&session, 1, 4, false),
            Status::Badxdr,
        ),
        (
            ops().raw(38, |_| {}).sequence(&session, 1, 5, false),
            Status::Badxdr,
        ),
    ] {
        assert_eq!(client.connection.call(2, &request).status, status);
    }
    // In minor version 1 there is no such operation.
    let unknown = ops().raw(68, |_| {}).sequence(&session, 1, 6, false);
    assert_eq!(
        client.connection.call(1, &unknown).status,
        Status::OpIllegal
    );
    for minor in [0, 3] {
        let refused = client.connection.call(minor, &ops().root());
        assert_eq!(
            (refused.status, refused.count),
            (Status::MinorVersMismatch, 0)
        );
    }
}

#[test]
fn a_client_that_starts_anew_ends_what_it_had() {
    let Some(scene) = scene() else { return };
    let mut before = Client::new(scene.address, "client");
    let (stateid, file) = before.open("owner", "one", 3);
    // Without an introduction by a session nothing has changed.
    let mut connection = Connection::new(scene.address);
    let (known, _, flags) = connection.introduce("client", 1);
    assert_eq!((known, flags >> 31), (before.id, 1), "confirmed");
    let (id, sequence, flags) = connection.introduce("client", 2);
    assert_ne!(id, before.id);
    assert_eq!(flags >> 31, 0, "not confirmed");
    assert_eq!(
        before.status(ops().put(&file).read(&stateid, 0, 1)),
        Status::Ok
    );
    let (session, granted) = connection.create_session(id, sequence, 5000).unwrap();
    assert_eq!(granted.slots, 1024);
    assert_eq!(before.status(ops().root()), Status::Badsession);
    // The same call again makes no second session; another number is out of order.
    assert_eq!(
        connection.create_session(id, sequence, 5000).unwrap().0,
        session
    );
    assert_eq!(
        connection.create_session(id, sequence + 2, 1),
        Err(Status::SeqMisordered)
    );
    assert_eq!(
        connection.create_session(id + 100, 1, 1),
        Err(Status::StaleClientid)
    );
    assert_eq!(scene.nfs.clients().len(), 1);
}

#[test]
fn one_session_works_over_many_connections() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "one", 3);
    let written = ops().put(&file).write(&stateid, 0, 0, &[7; 4096]);
    assert_eq!(client.status(written), Status::Ok);
    let mut connections: Vec<Connection> =
        (0..16).map(|_| Connection::new(scene.address)).collect();
    for round in 1..20 {
        for (slot, connection) in (1..).zip(&mut connections) {
            let read = ops().put(&file).read(&stateid, 0, 4096);
            let read = read.sequence(&client.session, round, slot, false);
            connection.send(2, &read);
        }
        for connection in &mut connections {
            let (_, results) = connection.results();
            let mut reader = results.ok();
            result(&mut reader, Number::Putfh);
            assert_eq!(crate::client::data(&mut reader), (true, vec![7; 4096]));
        }
    }
    let harness = &scene.harness;
    let nfs = scene.nfs.clone();
    let known = harness.run(0, move |_| async move { nfs.connections().await });
    assert_eq!(known.len(), 17);
    let reactors = known.iter().map(|connection| connection.reactor);
    assert!((0..2).all(|one| reactors.clone().filter(|&other| one == other).count() >= 8));
    assert!(known.iter().all(|connection| connection.about.is_some()));
}

#[test]
fn calls_are_answered_in_any_order_and_all_of_them() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "one", 3);
    let mut sent: Vec<u32> = (1..64)
        .map(|slot| {
            let request = match slot % 3 {
                0 => ops().put(&file).write(&stateid, slot.into(), 2, &[1; 5000]),
                1 => ops().put(&file).read(&stateid, 0, 100_000),
                _ => ops().share().list(0, 1000, &[]),
            };
            let request = request.sequence(&client.session, 1, slot, false);
            client.connection.send(2, &request)
        })
        .collect();
    while !sent.is_empty() {
        let (xid, results) = client.connection.results();
        assert_eq!(results.status, Status::Ok);
        let place = sent.iter().position(|&one| one == xid);
        sent.swap_remove(place.expect("each is answered once"));
    }
    let results = client.call(ops().share());
    skip_share(&mut results.ok());
}

#[test]
fn a_reply_is_no_longer_than_what_may_be_sent_and_kept() {
    let Some(scene) = scene() else { return };
    for number in 0..200 {
        std::fs::write(scene.file(&format!("{number:0200}")), "").unwrap();
    }
    let mut client = Client::new(scene.address, "client");
    // A listing is not kept, whatever the client wishes.
    let list = || ops().share().list(0, 100_000, &[]);
    let kept = list().sequence(&client.session, 1, 9, true);
    assert_eq!(
        client.connection.call(2, &kept).status,
        Status::RepTooBigToCache
    );
    assert_eq!(client.status(list()), Status::Ok);
    // What was done before it is told.
    let results = client.call(ops().share().make_directory("new").lookup("none"));
    assert_eq!((results.status, results.count), (Status::Noent, 6));
    // A client that takes few bytes gets no more.
    let mut connection = Connection::new(scene.address);
    let (id, sequence, _) = connection.introduce("small", 1);
    let (session, granted) = connection.create_session_of(id, sequence, 4, 1024).unwrap();
    assert_eq!(granted.reply_bytes_max, 1024);
    let read = ops()
        .share()
        .list(0, 4000, &[])
        .sequence(&session, 1, 0, false);
    let results = connection.call(2, &read);
    assert_eq!(results.status, Status::Ok);
    assert!(results.bytes().len() < 1024);
    let many = (0..20).fold(ops().share(), |ops, _| ops.get());
    let results = connection.call(2, &many.sequence(&session, 2, 0, false));
    assert_eq!(results.status, Status::TooManyOps);
    let many = (0..10).fold(ops().share(), |ops, _| {
        ops.attributes(&[36, 37, 0, 19, 47, 52, 53, 45, 42])
    });
    let results = connection.call(2, &many.sequence(&session, 2, 0, false));
    assert_eq!(results.status, Status::RepTooBig);
    assert!(results.bytes().len() <= 1024);
}
