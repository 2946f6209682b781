//! Input that no client sends.

use std::io::{Read, Write};
use std::time::Duration;

use weir_nfs::rpc::{NFS_PROGRAM, Reply};
use weir_nfs::{Reader, Status, Writer, mount, v3};
use weir_reactor::random::Random;

use crate::client::{Client, Connection, ops};
use crate::scene::{export, scene};
use crate::version3::Client3;

#[test]
fn handles_that_were_made_up_are_refused() {
    let Some(mut scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (_, file) = client.open("owner", "file", 3);
    for index in 0..file.len() {
        let mut forged = file.clone();
        forged[index] ^= 0x10;
        assert_eq!(
            client.status(ops().put(&forged)),
            Status::Badhandle,
            "byte {index}"
        );
    }
    for handle in [&[][..], &[1], &[0; 64], &[0xff; 128]] {
        assert_eq!(client.status(ops().put(handle)), Status::Badhandle);
    }
    // One of another export does not become one of this, though the file is the same.
    let two = export(&scene.harness, &scene.path, 2, "two");
    scene.apply(vec![two]);
    assert_eq!(client.status(ops().put(&file)), Status::Stale);
}

#[test]
fn calls_of_other_programs_are_answered() {
    let Some(scene) = scene() else { return };
    let mut connection = Connection::new(scene.address);
    for (numbers, expected) in [
        ((NFS_PROGRAM, 4, 0), Reply::Success),
        ((NFS_PROGRAM, 4, 2), Reply::ProcedureUnavailable),
        ((NFS_PROGRAM, 3, 0), Reply::Success),
        ((NFS_PROGRAM, 3, 22), Reply::ProcedureUnavailable),
        ((NFS_PROGRAM, 2, 0), Reply::ProgramMismatch(3, 4)),
        ((mount::PROGRAM, 3, 0), Reply::Success),
        ((mount::PROGRAM, 3, 6), Reply::ProcedureUnavailable),
        ((mount::PROGRAM, 1, 0), Reply::ProgramMismatch(3, 3)),
        ((100_000, 2, 0), Reply::ProgramUnavailable),
        ((NFS_PROGRAM, 3, 6), Reply::GarbageArguments),
        ((mount::PROGRAM, 3, 1), Reply::GarbageArguments),
        ((NFS_PROGRAM, 4, 1), Reply::GarbageArguments),
    ] {
        let xid = connection.send_call(numbers, &[0xff; 8]).unwrap();
        let bytes = connection.receive().unwrap();
        let reply = Reply::parse(&mut Reader::new(&bytes));
        assert_eq!(reply, Ok((xid, expected)));
    }
}

#[test]
fn what_is_no_call_ends_the_connection() {
    let Some(scene) = scene() else { return };
    for bytes in [
        &[0x80, 0, 0, 0][..],
        &[0x7f, 0xff, 0xff, 0xff],
        // A reply where a call belongs.
        &[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut connection = Connection::new(scene.address);
        let stream = connection.stream();
        stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        // It may be a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{bytes:?}");
    }
    Client::new(scene.address, "client");
}

/// Whatever operations say, each COMPOUND is answered and the server goes on.
#[test]
fn operations_of_any_bytes_are_answered() {
    let Some(scene) = scene() else { return };
    let seed = weir_testing::harness::seed("operations_of_any_bytes_are_answered");
    let mut random = Random::new(seed);
    let mut client = Client::new(scene.address, "client");
    let (stateid, file) = client.open("owner", "file", 3);
    let limit = Duration::from_secs(60);
    client
        .connection
        .stream()
        .set_read_timeout(Some(limit))
        .unwrap();
    for round in 0..2000 {
        let mut request = ops().put(&file).save();
        for _ in 0..random.below(4) + 1 {
            let number = random.below(80) as u32;
            let length = random.below(30) as usize * 4;
            let bytes = random.bytes(length);
            let small: Vec<u8> = bytes
                .chunks(4)
                .flat_map(|_| (random.below(6) as u32).to_be_bytes())
                .collect();
            let mixed = random.one_in(2);
            request = request.raw(number, |writer: &mut Writer| {
                if mixed {
                    stateid.write(writer);
                }
                writer.raw(if mixed { &small } else { &bytes });
            });
        }
        let results = client.call(request);
        assert_ne!(results.status, Status::Serverfault);
        assert!(results.count >= 1);
        if results.status == Status::Badsession {
            // It ended its own session, by chance.
            client = Client::new(scene.address, &format!("client {round}"));
        }
    }
    let mut other = Client::new(scene.address, "other");
    assert_eq!(other.status(ops().share()), Status::Ok);
}

/// Whatever a procedure of version 3 is given, its call is answered, and those that must not be done twice are as if they had come once.
#[test]
fn procedures_of_any_bytes_are_answered() {
    let Some(scene) = scene() else { return };
    let seed = weir_testing::harness::seed("procedures_of_any_bytes_are_answered");
    let mut random = Random::new(seed);
    let mut client = Client3::new(scene.address);
    let (file, root) = (client.create("file"), client.root.clone());
    for _ in 0..2000 {
        let procedure = random.below(v3::Procedure::NAMED.len() as u64) as u32;
        let mut writer = Writer::new();
        if !random.one_in(8) {
            writer.opaque(if random.one_in(2) { &file } else { &root });
        }
        if random.one_in(2) {
            writer.opaque(b"name");
        }
        for _ in 0..random.below(12) {
            let small = random.one_in(4);
            let word = random.below(if small { u64::from(u32::MAX) } else { 4 });
            writer.u32(word as u32);
        }
        let arguments = writer.into_bytes();
        let first = client.raw(procedure, &arguments);
        let (reply, rest) = &first;
        if *reply == Reply::Success && procedure != 0 {
            let status = Status::from_value(u32::from_be_bytes(rest[..4].try_into().unwrap()));
            assert!(status.value() <= Status::Delay.value(), "{status}");
            assert_ne!(status, Status::Serverfault);
        }
        if !v3::Procedure::from_value(procedure).is_idempotent() {
            assert_eq!(client.again(procedure, &arguments), first);
        }
    }
    assert_eq!(Client3::new(scene.address).root, root);
}
