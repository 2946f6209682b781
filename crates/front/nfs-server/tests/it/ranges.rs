//! Room for ranges of files, holes in them, and copies at the server.

use std::os::unix::fs::{FileExt, MetadataExt};

use weir_nfs::types::StateId;
use weir_nfs::{OperationNumber as Number, Status};

use crate::client::{Client, ops, result};
use crate::scene::{Scene, export, scene};

const BLOCK: u64 = 64 << 10;

/// A file that is open, of blocks that each hold their number, and holes where there is none.
fn file(scene: &Scene, client: &mut Client, name: &str, blocks: &[u8]) -> (StateId, Vec<u8>) {
    let opened = client.open("owner", name, 3);
    let file = std::fs::File::options().write(true).open(scene.file(name));
    let file = file.expect("it was made");
    file.set_len(blocks.len() as u64 * BLOCK).expect("it grows");
    for (index, &block) in blocks.iter().enumerate().filter(|(_, block)| **block != 0) {
        let data = vec![block; BLOCK as usize];
        file.write_all_at(&data, index as u64 * BLOCK)
            .expect("it is written");
    }
    file.sync_all().expect("it is synced");
    opened
}

/// The numbers that the blocks of a file hold.
fn blocks(scene: &Scene, name: &str) -> Vec<u8> {
    let content = std::fs::read(scene.file(name)).expect("it is there");
    let of = |block: &[u8]| {
        assert!(
            block.iter().all(|&byte| byte == block[0]),
            "a block of one number"
        );
        block[0]
    };
    content.chunks(BLOCK as usize).map(of).collect()
}

#[test]
fn room_is_reserved_and_given_back() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (open, handle) = file(&scene, &mut client, "file", &[1, 2, 3, 4]);
    let used = || {
        std::fs::metadata(scene.file("file"))
            .expect("it is there")
            .blocks()
            * 512
    };
    let before = used();
    let given_back = ops().put(&handle).deallocate(&open, BLOCK, 2 * BLOCK);
    assert_eq!(client.status(given_back), Status::Ok);
    assert_eq!(blocks(&scene, "file"), [1, 0, 0, 4]);
    assert!(used() < before);
    let reserved = ops().put(&handle).allocate(&open, 2 * BLOCK, 4 * BLOCK);
    assert_eq!(client.status(reserved), Status::Ok);
    assert_eq!(blocks(&scene, "file"), [1, 0, 0, 4, 0, 0], "it is longer");
    assert!(used() > before);
    for (refused, status) in [
        (ops().put(&handle).allocate(&open, 0, 0), Status::Inval),
        (
            ops().put(&handle).allocate(&open, u64::MAX, 2),
            Status::Fbig,
        ),
        (
            ops().put(&handle).deallocate(&open, 1, u64::MAX >> 1),
            Status::Fbig,
        ),
        (ops().share().allocate(&open, 0, 1), Status::BadStateid),
        (ops().root().deallocate(&open, 0, 1), Status::Isdir),
    ] {
        assert_eq!(client.status(refused), status);
    }
    let (reading, handle) = client.open("reader", "file", 1);
    let refused = ops().put(&handle).allocate(&reading, 0, BLOCK);
    assert_eq!(client.status(refused), Status::Openmode);
}

#[test]
fn data_and_holes_are_found() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (open, handle) = file(&scene, &mut client, "file", &[1, 0, 0, 2, 0]);
    let mut find = |offset, content| {
        let results = client.call(ops().put(&handle).seek(&open, offset, content));
        if results.status != Status::Ok {
            return Err(results.status);
        }
        let mut reader = results.ok();
        result(&mut reader, Number::Putfh);
        result(&mut reader, Number::Seek);
        Ok((reader.bool().unwrap(), reader.u64().unwrap()))
    };
    assert_eq!(find(0, 0), Ok((false, 0)));
    assert_eq!(find(0, 1), Ok((false, BLOCK)));
    assert_eq!(find(BLOCK, 0), Ok((false, 3 * BLOCK)));
    assert_eq!(find(3 * BLOCK + 5, 1), Ok((false, 4 * BLOCK)));
    assert_eq!(
        find(4 * BLOCK, 0),
        Ok((true, 5 * BLOCK)),
        "there is no more data"
    );
    assert_eq!(find(5 * BLOCK, 0), Err(Status::Nxio));
    assert_eq!(find(5 * BLOCK, 1), Err(Status::Nxio));
    assert_eq!(find(0, 2), Err(Status::UnionNotsupp));
}

#[test]
fn ranges_are_copied_at_the_server() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (from, source) = file(&scene, &mut client, "source", &[1, 2, 3, 4]);
    let (to, destination) = file(&scene, &mut client, "destination", &[9; 6]);
    let both = || ops().put(&source).save().put(&destination);
    let mut copied = |offsets, count| {
        let results = client.call(both().copy((&from, &to), offsets, count));
        if results.status != Status::Ok {
            return Err(results.status);
        }
        let mut reader = results.ok();
        for number in [Number::Putfh, Number::Savefh, Number::Putfh, Number::Copy] {
            result(&mut reader, number);
        }
        assert_eq!(reader.u32(), Ok(0), "it has ended");
        let count = reader.u64().unwrap();
        assert_eq!(reader.u32(), Ok(0), "a COMMIT is to follow");
        reader.fixed::<8>().unwrap();
        assert_eq!((reader.bool(), reader.bool()), (Ok(true), Ok(true)));
        Ok(count)
    };
    assert_eq!(copied((BLOCK, 0), 2 * BLOCK), Ok(2 * BLOCK));
    assert_eq!(blocks(&scene, "destination"), [2, 3, 9, 9, 9, 9]);
    assert_eq!(
        copied((2 * BLOCK, 5 * BLOCK), 0),
        Ok(2 * BLOCK),
        "to the end"
    );
    assert_eq!(blocks(&scene, "destination"), [2, 3, 9, 9, 9, 3, 4]);
    assert_eq!(copied((4 * BLOCK, 0), 0), Ok(0));
    assert_eq!(copied((5 * BLOCK, 0), 0), Err(Status::Inval));
    assert_eq!(copied((3 * BLOCK, 0), BLOCK + 1), Err(Status::Inval));
    assert_eq!(copied((0, u64::MAX), BLOCK), Err(Status::Fbig));
    let unsaved = ops().put(&destination).copy((&from, &to), (0, 0), 1);
    assert_eq!(client.status(unsaved), Status::Nofilehandle);
    let swapped = both().copy((&to, &from), (0, 0), 1);
    assert_eq!(client.status(swapped), Status::BadStateid);
    // Where the file system shares no blocks it says so, and nothing has changed.
    let before = blocks(&scene, "destination");
    match client.status(both().clone_range((&from, &to), (0, 0), 0)) {
        Status::Ok => assert_eq!(blocks(&scene, "destination")[..4], [1, 2, 3, 4]),
        status => {
            assert_eq!(status, Status::Notsupp);
            assert_eq!(blocks(&scene, "destination"), before);
        }
    }
}

#[test]
fn a_long_copy_is_done_in_pieces() {
    let Some(scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (from, source) = file(&scene, &mut client, "source", &[7; 512]);
    let (to, destination) = file(&scene, &mut client, "destination", &[]);
    let (mut done, mut pieces) = (0, 0);
    while done < 512 * BLOCK {
        let both = ops().put(&source).save().put(&destination);
        let results = client.call(both.copy((&from, &to), (done, done), 512 * BLOCK - done));
        let mut reader = results.ok();
        for number in [Number::Putfh, Number::Savefh, Number::Putfh, Number::Copy] {
            result(&mut reader, number);
        }
        reader.u32().unwrap();
        let count = reader.u64().unwrap();
        assert!(count > 0, "it goes on");
        (done, pieces) = (done + count, pieces + 1);
    }
    assert!(pieces > 1);
    assert_eq!(blocks(&scene, "destination"), [7; 512]);
}

#[test]
fn what_may_not_be_changed_is_not() {
    let Some(mut scene) = scene() else { return };
    let mut client = Client::new(scene.address, "client");
    let (from, source) = file(&scene, &mut client, "source", &[1, 2]);
    let (to, destination) = file(&scene, &mut client, "destination", &[9, 9]);
    let mut read_only = export(&scene.harness, &scene.path, 1, "exports/share");
    read_only.is_read_only = true;
    scene.apply(vec![read_only]);
    let both = || ops().put(&source).save().put(&destination);
    for refused in [
        ops().put(&destination).allocate(&to, 0, BLOCK),
        ops().put(&destination).deallocate(&to, 0, BLOCK),
        both().copy((&from, &to), (0, 0), 0),
        both().clone_range((&from, &to), (0, 0), 0),
    ] {
        assert_eq!(client.status(refused), Status::Rofs);
    }
    let found = ops().put(&destination).seek(&to, 0, 0);
    assert_eq!(client.status(found), Status::Ok);
    assert_eq!(blocks(&scene, "destination"), [9, 9]);
}
