//! Names, data and attributes.

use std::net::IpAddr;

use weir_nfs::attribute::{AttributeChanges, number};
use weir_nfs::types::StateId;
use weir_nfs::{OperationNumber as Number, Reader, Status};
use weir_nfs_server::{Allowed, Network};

use crate::client::{
    Client, Connection, data, handle, opened, ops, result, skip, skip_share, type_and_size, written,
};
use crate::scene::{config, export, scene, scene_with};

#[test]
fn a_file_is_made_written_read_and_removed() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "hello", 3);
    let text = b"hello, world".repeat(1000);
    let results = client.call(ops().put(&file).write(&stateid, 0, 0, &text).commit());
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    let (count, stable, verifier) = written(&mut reader);
    assert_eq!((count as usize, stable), (text.len(), 0));
    result(&mut reader, Number::Commit);
    assert_eq!(reader.fixed(), Ok(verifier));
    assert_eq!(std::fs::read(scene.file("hello")).unwrap(), text);

    let read = ops()
        .put(&file)
        .read(&stateid, 5, 100)
        .read(&stateid, 11_990, 100);
    let results = client.call(read);
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    assert_eq!(data(&mut reader), (false, text[5..105].to_vec()));
    assert_eq!(data(&mut reader), (true, text[11_990..].to_vec()));
    let results = client.call(ops().put(&file).read(&stateid, 0, 12_000).read(
        &stateid,
        1 << 40,
        9,
    ));
    let mut reader = results.ok();
    result(&mut reader, Number::Putfh);
    assert_eq!(data(&mut reader), (true, text));
    assert_eq!(data(&mut reader), (true, Vec::new()));

    assert_eq!(client.status(ops().put(&file).close(&stateid)), Status::Ok);
    let again = ops().put(&file).read(&stateid, 0, 10);
    assert_eq!(client.status(again), Status::BadStateid);
    let removed = client.status(ops().share().remove("hello"));
    assert_eq!((removed, scene.file("hello").exists()), (Status::Ok, false));
    let gone = ops().put(&file).attributes(&[number::SIZE]);
    assert_eq!(client.status(gone), Status::Stale);
}

#[test]
fn a_megabyte_goes_both_ways_whatever_the_sync() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "large", 3);
    let bytes: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    for stable in 0..3 {
        let offset = u64::from(stable) << 20;
        let results = client.call(ops().put(&file).write(&stateid, offset, stable, &bytes));
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        let (count, how, _) = written(&mut reader);
        assert_eq!((count as usize, how), (bytes.len(), stable));
        let results = client.call(ops().put(&file).read(&stateid, offset, 1 << 20));
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        let (_, read) = data(&mut reader);
        assert!(read == bytes, "what was read is what was written");
    }
}

#[test]
fn data_that_is_no_multiple_of_four_is_filled_up() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "odd", 3);
    for length in 1..9 {
        let text = vec![b'x'; length];
        let sent = ops()
            .put(&file)
            .write(&stateid, 0, 0, &text)
            .read(&stateid, 0, length as u32)
            .attributes(&[number::TYPE, number::SIZE]);
        let results = client.call(sent);
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        assert_eq!(written(&mut reader).0, length as u32);
        assert_eq!(data(&mut reader), (true, text));
        assert_eq!(type_and_size(&mut reader), (1, length as u64));
        assert_eq!(reader.remaining(), 0);
    }
}

/// More is asked for at once than the pool has: the calls wait for one another, and all are answered.
#[test]
fn reads_wait_for_buffers_and_are_all_answered() {
    let Some(scene) = scene() else { return };
    let bytes = vec![7; 1 << 20];
    std::fs::write(scene.file("large"), &bytes).unwrap();
    let mut clients: Vec<Client> = (0..4)
        .map(|number| Client::new(scene.address, &format!("client {number}")))
        .collect();
    // Nobody takes an answer before all have asked.
    let mut connections = Vec::new();
    for client in &mut clients {
        let (stateid, file) = client.open("owner", "large", 1);
        for of_connection in 0..6 {
            let mut connection = Connection::new(scene.address);
            for slot in 1..=10 {
                let read = ops().put(&file).read(&stateid, 0, 1 << 20);
                let slot = of_connection * 10 + slot;
                connection.send(2, &read.sequence(&client.session, 1, slot, false));
            }
            connections.push(connection);
        }
    }
    for connection in &mut connections {
        for _ in 0..10 {
            let (_, results) = connection.results();
            let mut reader = results.ok();
            result(&mut reader, Number::Putfh);
            assert!(data(&mut reader) == (true, bytes.clone()));
        }
    }
    let client = &mut clients[0];
    let (stateid, file) = client.open("owner", "large", 3);
    // Who writes much and reads in one call has the writing done.
    let both = ops()
        .put(&file)
        .write(&stateid, 0, 0, &bytes)
        .read(&stateid, 0, 10);
    let results = client
        .connection
        .call(2, &both.sequence(&client.session, 2, 9, false));
    assert_eq!((results.status, results.count), (Status::RepTooBig, 4));
}

#[test]
fn the_tree_leads_to_the_export_and_back() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let walk = ops().share().get().parent().get().parent().get();
    let results = client.call(walk);
    let mut reader = results.ok();
    skip_share(&mut reader);
    let share = handle(&mut reader);
    result(&mut reader, Number::Lookupp);
    let exports = handle(&mut reader);
    result(&mut reader, Number::Lookupp);
    let root = handle(&mut reader);
    let results = client.call(ops().root().get().lookup("exports").get());
    let mut reader = results.ok();
    result(&mut reader, Number::Putrootfh);
    assert_eq!(handle(&mut reader), root);
    result(&mut reader, Number::Lookup);
    assert_eq!(handle(&mut reader), exports);
    assert_eq!(client.status(ops().root().parent()), Status::Noent);
    assert_eq!(client.status(ops().root().lookup("none")), Status::Noent);
    assert_eq!(
        client.status(ops().put(&exports).make_directory("x")),
        Status::Rofs
    );
    assert_eq!(
        client.status(ops().put(&share).make_directory("x")),
        Status::Ok
    );
    assert!(scene.file("x").is_dir());
    for (name, status) in [
        ("", Status::Inval),
        (".", Status::Badname),
        ("..", Status::Badname),
        ("a/b", Status::Badchar),
        ("a\0b", Status::Badchar),
        (&"x".repeat(256), Status::Nametoolong),
    ] {
        assert_eq!(
            client.status(ops().put(&share).lookup(name)),
            status,
            "{name:?}"
        );
        assert_eq!(
            client.status(ops().put(&share).make_directory(name)),
            status,
            "{name:?}"
        );
    }
}

/// Reads one entry of a READDIR that asks for no attributes.
fn entry(reader: &mut Reader<'_>) -> (u64, String) {
    let (cookie, name) = (reader.u64().unwrap(), reader.opaque(255).unwrap());
    assert_eq!(
        (reader.u32(), reader.u32()),
        (Ok(0), Ok(0)),
        "no attributes"
    );
    (cookie, String::from_utf8(name.to_vec()).unwrap())
}

#[test]
fn a_directory_is_listed_whole() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let mut names: Vec<String> = (0..1000).map(|number| format!("{number:032}")).collect();
    for name in &names {
        std::fs::write(scene.file(name), "").unwrap();
    }
    let (mut listed, mut cookie, mut calls) = (Vec::new(), 0, 0);
    loop {
        calls += 1;
        let results = client.call(ops().share().list(cookie, 4096, &[]));
        let mut reader = results.ok();
        skip_share(&mut reader);
        result(&mut reader, Number::Readdir);
        reader.fixed::<8>().unwrap();
        while reader.bool().unwrap() {
            let (next, name) = entry(&mut reader);
            cookie = next;
            listed.push(name);
        }
        if reader.bool().unwrap() {
            break;
        }
    }
    assert!(calls > 10, "in {calls} pieces");
    listed.sort();
    names.sort();
    assert!(listed == names, "all were listed once");
    assert_eq!(
        client.status(ops().share().list(0, 20, &[])),
        Status::Toosmall
    );
    assert_eq!(
        client.status(ops().share().list(2, 4096, &[])),
        Status::BadCookie
    );
    let with_attributes = ops()
        .share()
        .list(0, 1 << 16, &[number::TYPE, number::FILEHANDLE]);
    assert_eq!(client.status(with_attributes), Status::Ok);
}

#[test]
fn names_move_and_attributes_are_set() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    client.call(ops().share().make_directory("folder")).ok();
    let (stateid, file) = client.open("owner", "one", 3);
    let rename = ops().share().save().lookup("folder").rename("one", "two");
    assert_eq!(client.status(rename), Status::Ok);
    assert!(scene.file("folder/two").is_file() && !scene.file("one").exists());
    assert_eq!(
        client.status(ops().share().remove("folder")),
        Status::Notempty
    );
    let changes = AttributeChanges {
        size: Some(5000),
        mode: Some(0o640),
        ..AttributeChanges::default()
    };
    assert_eq!(
        client.status(ops().put(&file).set(&stateid, &changes)),
        Status::Ok
    );
    let metadata = std::fs::metadata(scene.file("folder/two")).unwrap();
    assert_eq!(metadata.len(), 5000);
    let read_only = client.open("other", "other", 1).0;
    let refused = client.status(ops().share().lookup("other").set(&read_only, &changes));
    assert_eq!(refused, Status::Openmode);
    let given_away = AttributeChanges {
        owner: Some(4711),
        ..AttributeChanges::default()
    };
    let refused = client.status(ops().put(&file).set(&StateId::ANONYMOUS, &given_away));
    assert_eq!(refused, Status::Perm);
}

#[test]
fn access_is_what_the_server_may() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (_, file) = client.open("owner", "file", 3);
    let mut ask = |ops: crate::client::Ops| {
        // With bits that mean nothing.
        let results = client.call(ops.access(0x1ff));
        let mut reader = results.ok();
        while reader.remaining() > 16 {
            reader.u32().unwrap();
        }
        result(&mut reader, Number::Access);
        (reader.u32().unwrap(), reader.u32().unwrap())
    };
    assert_eq!(ask(ops().put(&file)), (0x2d, 0x0d));
    assert_eq!(ask(ops().share()), (0x1f, 0x1f));
    assert_eq!(ask(ops().root()), (0x3f, 0x03));
}

#[test]
fn nothing_is_changed_where_that_is_not_allowed() {
    let Some(scene) = scene_with(config(), |export| export.is_read_only = true) else {
        return;
    };
    std::fs::write(scene.file("one"), "text").unwrap();
    let mut client = Client::new(scene.address, "client");
    for forbidden in [
        ops().share().make_directory("x"),
        ops().share().remove("one"),
        ops().share().open("owner", "new", 1, 0, true),
        ops().share().open("owner", "one", 2, 0, false),
        ops().share().save().rename("one", "two"),
        ops()
            .share()
            .lookup("one")
            .set(&StateId::ANONYMOUS, &AttributeChanges::default()),
        ops()
            .share()
            .lookup("one")
            .write(&StateId::ANONYMOUS, 0, 0, b"x"),
    ] {
        assert_eq!(client.status(forbidden), Status::Rofs);
    }
    let results = client.call(ops().share().open("owner", "one", 1, 0, false).read(
        &StateId::CURRENT,
        0,
        100,
    ));
    let mut reader = results.ok();
    skip_share(&mut reader);
    opened(&mut reader);
    assert_eq!(data(&mut reader), (true, b"text".to_vec()));
}

#[test]
fn clients_from_elsewhere_see_nothing() {
    let elsewhere = Allowed::These(vec![Network {
        address: IpAddr::from([192, 0, 2, 0]),
        prefix: 24,
    }]);
    let Some(mut scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let results = client.call(ops().share().get());
    let mut reader = results.ok();
    skip_share(&mut reader);
    let share = handle(&mut reader);
    let mut narrowed = export(&scene.harness, &scene.path, 1, "exports/share");
    narrowed.allowed = elsewhere;
    scene.apply(vec![narrowed]);
    assert_eq!(client.status(ops().root().lookup("exports")), Status::Noent);
    assert_eq!(client.status(ops().put(&share)), Status::Access);
    scene.apply(Vec::new());
    assert_eq!(client.status(ops().put(&share)), Status::Stale);
}

#[test]
fn an_export_that_is_gone_ends_what_was_open() {
    let Some(mut scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "one", 3);
    let read = || ops().put(&file).read(&stateid, 0, 10);
    assert_eq!(client.status(read()), Status::Ok);
    scene.apply(Vec::new());
    assert_eq!(client.status(read()), Status::Stale);
    assert!(scene.nfs.under_way().is_empty());
    let again = export(&scene.harness, &scene.path, 1, "exports/share");
    scene.apply(vec![again]);
    assert_eq!(client.status(read()), Status::BadStateid);
    let results = client.call(ops().put(&file).read(&StateId::ANONYMOUS, 0, 10));
    let mut reader = results.ok();
    skip(&mut reader, &[Number::Putfh]);
    assert_eq!(data(&mut reader), (true, Vec::new()));
}
