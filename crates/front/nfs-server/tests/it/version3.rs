//! Version 3, and MOUNT.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use weir_nfs::attribute::{AttributeChanges, SetTime, Time};
use weir_nfs::rpc::{NFS_PROGRAM, Reply};
use weir_nfs::types::{access, file_type, share};
use weir_nfs::v3::{self, Attributes, Procedure};
use weir_nfs::{Reader, Status, Writer, mount};
use weir_nfs_server::{Allowed, Network};

use crate::client::{Client, Connection, ops};
use crate::scene::{Scene, config, export, scene, scene_with};

/// A client with the root of the share.
pub(crate) struct Client3 {
    connection: Connection,
    pub(crate) root: Vec<u8>,
}

/// Mounts a path: the handle.
fn mounted(connection: &mut Connection, path: &str) -> Result<Vec<u8>, Status> {
    let mut writer = Writer::new();
    writer.opaque(path.as_bytes());
    let numbers = (
        mount::PROGRAM,
        mount::VERSION,
        mount::Procedure::Mnt.value(),
    );
    connection.send_call(numbers, writer.bytes()).unwrap();
    let bytes = connection.receive().unwrap();
    let mut reader = Reader::new(&bytes);
    assert_eq!(Reply::parse(&mut reader).unwrap().1, Reply::Success);
    match Status::from_value(reader.u32().unwrap()) {
        Status::Ok => {
            let handle = reader.opaque(64).unwrap().to_vec();
            assert_eq!((reader.u32(), reader.u32()), (Ok(1), Ok(1)), "AUTH_SYS");
            assert_eq!(reader.remaining(), 0);
            Ok(handle)
        }
        status => {
            assert_eq!(reader.remaining(), 0);
            Err(status)
        }
    }
}

impl Client3 {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut connection = Connection::new(address);
        let root = mounted(&mut connection, "/exports/share").unwrap();
        Client3 { connection, root }
    }

    fn reply(&mut self) -> (Reply, Vec<u8>) {
        let bytes = self.connection.receive().unwrap();
        let mut reader = Reader::new(&bytes);
        let (_, reply) = Reply::parse(&mut reader).unwrap();
        (reply, bytes[reader.position()..].to_vec())
    }

    /// Calls a procedure with any arguments.
    pub(crate) fn raw(&mut self, procedure: u32, arguments: &[u8]) -> (Reply, Vec<u8>) {
        let numbers = (NFS_PROGRAM, v3::VERSION, procedure);
        self.connection.send_call(numbers, arguments).unwrap();
        self.reply()
    }

    /// Sends the last call once more.
    pub(crate) fn again(&mut self, procedure: u32, arguments: &[u8]) -> (Reply, Vec<u8>) {
        let numbers = (NFS_PROGRAM, v3::VERSION, procedure);
        self.connection.send_again(numbers, arguments).unwrap();
        self.reply()
    }

    /// Calls a procedure: its status, and what it yields.
    fn call(
        &mut self,
        procedure: Procedure,
        write: impl FnOnce(&mut Writer),
    ) -> Result<Vec<u8>, Status> {
        let mut writer = Writer::new();
        write(&mut writer);
        let (reply, bytes) = self.raw(procedure.value(), writer.bytes());
        assert_eq!(reply, Reply::Success, "{procedure}");
        let (status, rest) = bytes.split_at(4);
        match Status::from_value(u32::from_be_bytes(status.try_into().unwrap())) {
            Status::Ok => Ok(rest.to_vec()),
            status => {
                let words = procedure.words_of_failure();
                assert_eq!(rest, vec![0; 4 * words], "{procedure} says {status}");
                Err(status)
            }
        }
    }

    fn at(
        &mut self,
        procedure: Procedure,
        place: (&[u8], &str),
        write: impl FnOnce(&mut Writer),
    ) -> Result<Vec<u8>, Status> {
        self.call(procedure, |writer| {
            write_place(writer, place);
            write(writer);
        })
    }

    /// Makes a file of the share.
    pub(crate) fn create(&mut self, name: &str) -> Vec<u8> {
        let changes = AttributeChanges {
            mode: Some(0o640),
            ..AttributeChanges::default()
        };
        self.create_with(name, 0, &changes).unwrap()
    }

    fn create_with(
        &mut self,
        name: &str,
        how: u32,
        changes: &AttributeChanges,
    ) -> Result<Vec<u8>, Status> {
        let root = self.root.clone();
        let made = self.at(Procedure::Create, (&root, name), |writer| {
            writer.u32(how);
            v3::write_changes(changes, writer);
        });
        Ok(read_made(&made?).0)
    }

    pub(crate) fn look_up(
        &mut self,
        directory: &[u8],
        name: &str,
    ) -> Result<(Vec<u8>, Attributes), Status> {
        let found = self.at(Procedure::Lookup, (directory, name), |_| {})?;
        let mut reader = Reader::new(&found);
        let handle = reader.opaque(64).unwrap().to_vec();
        let attributes = Attributes::parse_told(&mut reader).unwrap().unwrap();
        assert!(Attributes::parse_told(&mut reader).unwrap().is_some());
        assert_eq!(reader.remaining(), 0);
        Ok((handle, attributes))
    }

    fn attributes(&mut self, file: &[u8]) -> Result<Attributes, Status> {
        let told = self.call(Procedure::Getattr, |writer| writer.opaque(file))?;
        Ok(Attributes::parse(&mut Reader::new(&told)).unwrap())
    }

    fn set(
        &mut self,
        file: &[u8],
        changes: &AttributeChanges,
        guard: Option<Time>,
    ) -> Result<Attributes, Status> {
        let set = self.call(Procedure::Setattr, |writer| {
            writer.opaque(file);
            v3::write_changes(changes, writer);
            writer.bool(guard.is_some());
            if let Some(guard) = guard {
                v3::write_time(guard, writer);
            }
        })?;
        Ok(v3::parse_change(&mut Reader::new(&set)).unwrap().unwrap())
    }

    /// Reads: what is there, and whether that is the end.
    pub(crate) fn read(
        &mut self,
        file: &[u8],
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), Status> {
        let read = self.call(Procedure::Read, |writer| {
            writer.opaque(file);
            writer.u64(offset);
            writer.u32(count);
        })?;
        let mut reader = Reader::new(&read);
        assert!(Attributes::parse_told(&mut reader).unwrap().is_some());
        let (count, is_end) = (reader.u32().unwrap(), reader.bool().unwrap());
        let data = reader.opaque(2 << 20).unwrap().to_vec();
        assert_eq!((data.len(), reader.remaining()), (count as usize, 0));
        Ok((data, is_end))
    }

    /// Writes: what the file is like then, and the verifier.
    pub(crate) fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        stable: u32,
        data: &[u8],
    ) -> Result<(Attributes, [u8; 8]), Status> {
        let written = self.call(Procedure::Write, |writer| {
            writer.opaque(file);
            writer.u64(offset);
            writer.u32(data.len() as u32);
            writer.u32(stable);
            writer.opaque(data);
        })?;
        let mut reader = Reader::new(&written);
        let after = v3::parse_change(&mut reader).unwrap().unwrap();
        assert_eq!(reader.u32(), Ok(data.len() as u32));
        assert_eq!(reader.u32(), Ok(stable));
        Ok((after, reader.fixed().unwrap()))
    }

    fn commit(&mut self, file: &[u8]) -> Result<[u8; 8], Status> {
        let committed = self.call(Procedure::Commit, |writer| {
            writer.opaque(file);
            writer.u64(0);
            writer.u32(0);
        })?;
        let mut reader = Reader::new(&committed);
        v3::parse_change(&mut reader).unwrap();
        Ok(reader.fixed().unwrap())
    }

    /// Lists a directory in answers of so many bytes: names, and for each whether it came with its file.
    pub(crate) fn list(
        &mut self,
        directory: &[u8],
        with_files: bool,
        bytes: u32,
    ) -> Vec<(String, bool)> {
        let procedure = match with_files {
            true => Procedure::Readdirplus,
            false => Procedure::Readdir,
        };
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let listed = self.call(procedure, |writer| {
                writer.opaque(directory);
                writer.u64(cookie);
                writer.u64(0);
                if with_files {
                    writer.u32(bytes);
                }
                writer.u32(bytes);
            });
            let listed = listed.unwrap();
            assert!(listed.len() + 4 <= bytes as usize);
            let mut reader = Reader::new(&listed);
            assert!(Attributes::parse_told(&mut reader).unwrap().is_some());
            assert_eq!(reader.u64(), Ok(0), "no verifier");
            while reader.bool().unwrap() {
                let number = reader.u64().unwrap();
                let name = String::from_utf8(reader.opaque(255).unwrap().to_vec()).unwrap();
                cookie = reader.u64().unwrap();
                let mut is_with_file = false;
                if with_files {
                    let attributes = Attributes::parse_told(&mut reader).unwrap();
                    is_with_file = reader.bool().unwrap();
                    assert_eq!(attributes.is_some(), is_with_file);
                    if let Some(attributes) = attributes {
                        assert_eq!(attributes.number, number);
                        reader.opaque(64).unwrap();
                    }
                }
                names.push((name, is_with_file));
            }
            if reader.bool().unwrap() {
                return names;
            }
        }
    }
}

fn write_place(writer: &mut Writer, place: (&[u8], &str)) {
    writer.opaque(place.0);
    writer.opaque(place.1.as_bytes());
}

/// Reads what a procedure yields that makes a file: its handle and its attributes.
fn read_made(made: &[u8]) -> (Vec<u8>, Attributes) {
    let mut reader = Reader::new(made);
    assert_eq!(reader.bool(), Ok(true));
    let handle = reader.opaque(64).unwrap().to_vec();
    let attributes = Attributes::parse_told(&mut reader).unwrap().unwrap();
    assert!(v3::parse_change(&mut reader).unwrap().is_some());
    assert_eq!(reader.remaining(), 0);
    (handle, attributes)
}

fn client() -> Option<(Scene, Client3)> {
    let scene = scene()?;
    let client = Client3::new(scene.address);
    Some((scene, client))
}

#[test]
fn paths_are_mounted_that_clients_may_use() {
    let Some((mut scene, mut client)) = client() else {
        return;
    };
    std::fs::create_dir(scene.file("below")).unwrap();
    std::fs::write(scene.file("file"), "data").unwrap();
    std::os::unix::fs::symlink("/", scene.file("out")).unwrap();
    let connection = &mut client.connection;
    let below = mounted(connection, "/exports/share/below/").unwrap();
    let root = client.root.clone();
    assert_eq!(client.look_up(&root, "below").unwrap().0, below);
    let connection = &mut client.connection;
    for (path, status) in [
        ("/", Status::Noent),
        ("/exports", Status::Noent),
        ("/exports/none", Status::Noent),
        ("/exports/share/none", Status::Noent),
        ("/exports/share/..", Status::Inval),
        ("/exports/share/file", Status::Notdir),
        ("/exports/share/out", Status::Notdir),
    ] {
        assert_eq!(mounted(connection, path), Err(status), "{path}");
    }
    let mut other = export(&scene.harness, &scene.path, 2, "other");
    other.allowed = Allowed::These(vec![Network {
        address: "192.0.2.0".parse().unwrap(),
        prefix: 24,
    }]);
    let mut first = export(&scene.harness, &scene.path, 1, "exports/share");
    first.allowed = Allowed::These(vec![Network {
        address: "127.0.0.0".parse().unwrap(),
        prefix: 8,
    }]);
    scene.apply(vec![first, other]);
    assert_eq!(mounted(connection, "/other"), Err(Status::Access));
    // What there is, to those who may use it.
    let numbers = (mount::PROGRAM, 3, mount::Procedure::Export.value());
    connection.send_call(numbers, &[]).unwrap();
    let bytes = connection.receive().unwrap();
    let mut reader = Reader::new(&bytes);
    assert_eq!(Reply::parse(&mut reader).unwrap().1, Reply::Success);
    assert_eq!(reader.bool(), Ok(true));
    assert_eq!(reader.opaque(64), Ok(&b"/exports/share"[..]));
    assert_eq!(reader.bool(), Ok(true));
    assert_eq!(reader.opaque(64), Ok(&b"127.0.0.0/8"[..]));
    assert_eq!((reader.bool(), reader.bool()), (Ok(false), Ok(false)));
    assert_eq!(reader.remaining(), 0);
    // A handle is of no use to those who may not use the export.
    scene.apply(vec![]);
    assert_eq!(client.attributes(&root), Err(Status::Stale));
}

#[test]
fn files_are_written_and_read() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let file = client.create("file");
    let data: Vec<u8> = (0..300_001_u32).map(|index| (index % 251) as u8).collect();
    let (after, verifier) = client.write(&file, 5, 0, &data).unwrap();
    assert_eq!(after.size, 300_006);
    assert_eq!(client.write(&file, 0, 2, b"12345").unwrap().1, verifier);
    assert_eq!(client.write(&file, 1, 1, b"").unwrap().0.size, 300_006);
    assert_eq!(client.commit(&file), Ok(verifier));
    let served = std::fs::read(scene.file("file")).unwrap();
    assert!(served[..5] == *b"12345" && served[5..] == data);
    assert_eq!(client.read(&file, 5, 1 << 20), Ok((data.clone(), true)));
    assert_eq!(client.read(&file, 5, 7), Ok((data[..7].to_vec(), false)));
    assert_eq!(client.read(&file, 0, 0), Ok((Vec::new(), false)));
    assert_eq!(client.read(&file, 300_006, 9), Ok((Vec::new(), true)));
    assert_eq!(client.read(&file, u64::MAX, 9), Ok((Vec::new(), true)));
    assert_eq!(client.write(&file, u64::MAX, 0, b"x"), Err(Status::Fbig));
    let root = client.root.clone();
    assert_eq!(client.read(&root, 0, 9), Err(Status::Isdir));
    // What is removed is gone, though it was open a moment ago.
    std::fs::remove_file(scene.file("file")).unwrap();
    assert_eq!(client.read(&file, 0, 9), Err(Status::Stale));
    assert_eq!(client.read(&file, 0, 9), Err(Status::Stale));
    assert_eq!(client.write(&file, 0, 0, b"x"), Err(Status::Stale));
}

#[test]
fn attributes_are_told_and_set() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let file = client.create("file");
    client.write(&file, 0, 2, b"hello").unwrap();
    let metadata = std::fs::metadata(scene.file("file")).unwrap();
    let told = client.attributes(&file).unwrap();
    assert_eq!(told.kind, file_type::REGULAR);
    assert_eq!((told.mode, told.links, told.size), (0o640, 1, 5));
    assert_eq!((told.owner, told.group), (metadata.uid(), metadata.gid()));
    assert_eq!((told.number, told.fsid), (metadata.ino(), 7 ^ 1));
    assert_eq!(told.modified.seconds, metadata.mtime());
    let time = Time {
        seconds: 1_000_000,
        nanoseconds: 7,
    };
    let changes = AttributeChanges {
        size: Some(3),
        // Some say there of which kind the file is.
        mode: Some(0o100_600),
        modify_time: Some(SetTime::Client(time)),
        access_time: Some(SetTime::Server),
        ..AttributeChanges::default()
    };
    let other = Time {
        seconds: 1,
        nanoseconds: 1,
    };
    assert_eq!(
        client.set(&file, &changes, Some(other)),
        Err(Status::NotSync)
    );
    let after = client.set(&file, &changes, Some(told.changed)).unwrap();
    assert_eq!((after.mode, after.size, after.modified), (0o600, 3, time));
    let given = AttributeChanges {
        owner: Some(metadata.uid() + 1),
        ..AttributeChanges::default()
    };
    assert_eq!(client.set(&file, &given, None), Err(Status::Perm));
    let root = client.root.clone();
    for procedure in [Procedure::Fsstat, Procedure::Fsinfo, Procedure::Pathconf] {
        let told = client.call(procedure, |writer| writer.opaque(&root));
        let told = told.unwrap();
        let mut reader = Reader::new(&told);
        let attributes = Attributes::parse_told(&mut reader).unwrap();
        assert_eq!(attributes.unwrap().kind, file_type::DIRECTORY);
        if procedure == Procedure::Fsinfo {
            assert_eq!(reader.u32(), Ok(config().transfer_bytes_max));
        }
    }
    let asked = access::ALL | 0x40;
    let told = client.call(Procedure::Access, |writer| {
        writer.opaque(&root);
        writer.u32(asked);
    });
    let told = told.unwrap();
    let mut reader = Reader::new(&told);
    Attributes::parse_told(&mut reader).unwrap().unwrap();
    assert_eq!(reader.u32(), Ok(access::ALL & !access::EXECUTE));
}

#[test]
fn names_are_made_changed_and_removed() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let root = client.root.clone();
    let none = AttributeChanges::default();
    let made = client.at(Procedure::Mkdir, (&root, "folder"), |writer| {
        let changes = AttributeChanges {
            mode: Some(0o750),
            // Its owner is the gateway's user all the same.
            owner: Some(12_345),
            ..none
        };
        v3::write_changes(&changes, writer);
    });
    let (folder, attributes) = read_made(&made.unwrap());
    assert_eq!(
        (attributes.kind, attributes.mode),
        (file_type::DIRECTORY, 0o750)
    );
    let made = client.at(Procedure::Symlink, (&folder, "link"), |writer| {
        v3::write_changes(&none, writer);
        writer.opaque(b"../file");
    });
    let (link, _) = read_made(&made.unwrap());
    let text = client.call(Procedure::Readlink, |writer| writer.opaque(&link));
    let text = text.unwrap();
    let mut reader = Reader::new(&text);
    Attributes::parse_told(&mut reader).unwrap().unwrap();
    assert_eq!(reader.opaque(64), Ok(&b"../file"[..]));
    let not_a_link = client.call(Procedure::Readlink, |writer| writer.opaque(&folder));
    assert_eq!(not_a_link, Err(Status::Inval));
    let made = client.at(Procedure::Mknod, (&folder, "pipe"), |writer| {
        writer.u32(file_type::PIPE);
        v3::write_changes(&none, writer);
    });
    assert_eq!(read_made(&made.unwrap()).1.kind, file_type::PIPE);
    let device = client.at(Procedure::Mknod, (&folder, "disk"), |writer| {
        writer.u32(file_type::BLOCK);
        v3::write_changes(&none, writer);
        writer.u64(0);
    });
    assert_eq!(device, Err(Status::Perm));
    let regular = client.at(Procedure::Mknod, (&folder, "file"), |writer| {
        writer.u32(file_type::REGULAR);
    });
    assert_eq!(regular, Err(Status::Badtype));

    let file = client.create("file");
    let linked = client.call(Procedure::Link, |writer| {
        writer.opaque(&file);
        write_place(writer, (&folder, "second"));
    });
    let linked = linked.unwrap();
    let links = Attributes::parse_told(&mut Reader::new(&linked)).unwrap();
    assert_eq!(links.unwrap().links, 2);
    let rename = |client: &mut Client3, from: (&[u8], &str), to: (&[u8], &str)| {
        client.call(Procedure::Rename, |writer| {
            write_place(writer, from);
            write_place(writer, to);
        })
    };
    rename(&mut client, (&root, "file"), (&folder, "third")).unwrap();
    assert_eq!(client.look_up(&folder, "third").unwrap().0, file);
    assert_eq!(client.look_up(&folder, "..").unwrap().0, root);
    assert_eq!(client.look_up(&root, "..").unwrap().0, root);
    assert_eq!(client.look_up(&root, ".").unwrap().0, root);
    assert_eq!(client.look_up(&file, "."), Err(Status::Notdir));
    assert_eq!(client.look_up(&link, "x"), Err(Status::Inval));
    let lost = rename(&mut client, (&root, "file"), (&folder, "fourth"));
    assert_eq!(lost, Err(Status::Noent));

    let remove = |client: &mut Client3, procedure, name| {
        let removed = client.at(procedure, (&folder, name), |_| {});
        removed.map(|_| ())
    };
    let (file, directory) = (Procedure::Remove, Procedure::Rmdir);
    assert_eq!(remove(&mut client, directory, "third"), Err(Status::Notdir));
    for name in ["second", "third", "link", "pipe"] {
        assert_eq!(remove(&mut client, file, name), Ok(()), "{name}");
    }
    assert_eq!(remove(&mut client, file, "third"), Err(Status::Noent));
    let not_a_file = client.at(Procedure::Remove, (&root, "folder"), |_| {});
    assert_eq!(not_a_file, Err(Status::Isdir));
    client
        .at(Procedure::Rmdir, (&root, "folder"), |_| {})
        .unwrap();
    assert_eq!(std::fs::read_dir(&scene.path).unwrap().count(), 0);
    for name in ["", "a/b", "a\0b"] {
        let named = client.create_with(name, 0, &AttributeChanges::default());
        assert_eq!(named, Err(Status::Inval), "{name:?}");
    }
    let long = "x".repeat(256);
    let named = client.create_with(&long, 0, &AttributeChanges::default());
    assert_eq!(named, Err(Status::Nametoolong));
}

#[test]
fn files_are_made_as_they_are_asked_for() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let none = AttributeChanges::default();
    let file = client.create_with("file", 1, &none).unwrap();
    assert_eq!(client.create_with("file", 1, &none), Err(Status::Exist));
    client.write(&file, 0, 2, b"hello").unwrap();
    assert_eq!(client.create_with("file", 0, &none), Ok(file.clone()));
    assert_eq!(client.attributes(&file).unwrap().size, 5);
    let empty = AttributeChanges {
        size: Some(0),
        ..none
    };
    assert_eq!(client.create_with("file", 0, &empty), Ok(file.clone()));
    assert_eq!(client.attributes(&file).unwrap().size, 0);
    std::fs::create_dir(scene.file("folder")).unwrap();
    assert_eq!(client.create_with("folder", 0, &none), Err(Status::Exist));
    let root = client.root.clone();
    let exclusive = |client: &mut Client3, verifier: u64| {
        let made = client.at(Procedure::Create, (&root, "own"), |writer| {
            writer.u32(2);
            writer.u64(verifier);
        });
        made.map(|made| read_made(&made).0)
    };
    let own = exclusive(&mut client, 77).unwrap();
    assert_eq!(exclusive(&mut client, 77), Ok(own));
    assert_eq!(exclusive(&mut client, 78), Err(Status::Exist));
}

/// A file that its mode keeps its owner from writing is written by who made it, over any connection.
#[test]
fn owners_write_what_they_made_unwritable() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let changes = AttributeChanges {
        mode: Some(0o444),
        ..AttributeChanges::default()
    };
    let file = client.create_with("file", 1, &changes).unwrap();
    let mut other = Client3::new(scene.address);
    client.write(&file, 0, 0, b"one").unwrap();
    other.write(&file, 3, 0, b"two").unwrap();
    assert_eq!(std::fs::read(scene.file("file")).unwrap(), b"onetwo");
    let metadata = std::fs::metadata(scene.file("file")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o444);
}

#[test]
fn directories_are_listed_in_pieces() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let mut expected = vec![(".".to_owned(), false), ("..".to_owned(), false)];
    for index in 0..300 {
        let name = format!("a name that has a number {index}");
        std::fs::write(scene.file(&name), "").unwrap();
        expected.push((name, true));
    }
    expected.sort();
    let root = client.root.clone();
    for bytes in [400, 1000, 4096, 1 << 20] {
        let mut listed = client.list(&root, true, bytes);
        listed.sort();
        assert_eq!(listed, expected, "in {bytes}");
        let mut names = client.list(&root, false, bytes);
        names.sort();
        let only_names = expected.iter().map(|(name, _)| (name.clone(), false));
        assert_eq!(names, only_names.collect::<Vec<_>>(), "in {bytes}");
    }
    let mut listed = |bytes: u32| {
        client.call(Procedure::Readdir, |writer| {
            writer.opaque(&root);
            writer.u64(0);
            writer.u64(0);
            writer.u32(bytes);
        })
    };
    for bytes in [0, 50, 110] {
        assert_eq!(listed(bytes), Err(Status::Toosmall), "in {bytes}");
    }
}

/// Opens of version 4 deny what they deny to version 3 also.
#[test]
fn what_is_denied_is_denied_to_all() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let file = client.create("file");
    let mut newer = Client::new(scene.address, "newer");
    let open = ops()
        .share()
        .open("owner", "file", share::BOTH, share::WRITE, false);
    let results = newer.call(open.get());
    assert_eq!(results.status, Status::Ok);
    let mut reader = results.ok();
    crate::client::skip_share(&mut reader);
    let stateid = crate::client::opened(&mut reader);
    assert_eq!(client.write(&file, 0, 0, b"x"), Err(Status::Access));
    let shorter = AttributeChanges {
        size: Some(0),
        ..AttributeChanges::default()
    };
    assert_eq!(client.set(&file, &shorter, None), Err(Status::Access));
    assert_eq!(client.create_with("file", 0, &shorter), Err(Status::Access));
    assert_eq!(client.read(&file, 0, 9), Ok((Vec::new(), true)));
    let handle = client.root.clone();
    let (handle, _) = client.look_up(&handle, "file").unwrap();
    assert_eq!(newer.status(ops().put(&handle).close(&stateid)), Status::Ok);
    client.write(&file, 0, 0, b"x").unwrap();
}

/// A call that comes again is not done again; neither is one that comes over another connection from the same place.
#[test]
fn calls_are_done_once() {
    let Some((scene, mut client)) = client() else {
        return;
    };
    let root = client.root.clone();
    client.create("file");
    let mut writer = Writer::new();
    write_place(&mut writer, (&root, "file"));
    let arguments = writer.into_bytes();
    let remove = Procedure::Remove.value();
    let first = client.raw(remove, &arguments);
    assert_eq!(first.1[..4], [0; 4]);
    std::fs::write(scene.file("file"), "another one").unwrap();
    assert_eq!(client.again(remove, &arguments), first);
    assert!(scene.file("file").exists());
    // With other arguments it is another call, whatever its number.
    let mut writer = Writer::new();
    write_place(&mut writer, (&root, "none"));
    let other = client.again(remove, writer.bytes());
    assert_eq!(other.1[..4], Status::Noent.value().to_be_bytes());
    assert_eq!(client.again(remove, &arguments), first);
    let new = client.raw(remove, &arguments);
    assert_eq!(new.1[..4], [0; 4]);
    assert!(!scene.file("file").exists());
}

/// An answer that says to try later is not the answer of later.
#[test]
fn calls_that_were_put_off_are_done_when_they_come_again() {
    let Some((mut scene, mut client)) = client() else {
        return;
    };
    let root = client.root.clone();
    client.create("file");
    let mut writer = Writer::new();
    write_place(&mut writer, (&root, "file"));
    let arguments = writer.into_bytes();
    // As where its disk is not mounted.
    let absent = export(&scene.harness, &scene.file("none"), 1, "exports/share");
    let present = export(&scene.harness, &scene.path, 1, "exports/share");
    scene.apply(vec![absent]);
    let remove = Procedure::Remove.value();
    let put_off = client.raw(remove, &arguments);
    assert_eq!(put_off.1[..4], Status::Delay.value().to_be_bytes());
    assert_eq!(client.again(remove, &arguments), put_off);
    scene.apply(vec![present]);
    let done = client.again(remove, &arguments);
    assert_eq!(done.1[..4], [0; 4]);
    assert!(!scene.file("file").exists());
    assert_eq!(client.again(remove, &arguments), done);
}

#[test]
fn exports_that_may_not_be_changed_are_not() {
    let Some(scene) = scene_with(config(), |export| export.is_read_only = true) else {
        return;
    };
    std::fs::write(scene.file("file"), "data").unwrap();
    let mut client = Client3::new(scene.address);
    let root = client.root.clone();
    let (file, _) = client.look_up(&root, "file").unwrap();
    assert_eq!(client.read(&file, 0, 9), Ok((b"data".to_vec(), true)));
    assert_eq!(client.write(&file, 0, 0, b"x"), Err(Status::Rofs));
    let none = AttributeChanges::default();
    assert_eq!(client.set(&file, &none, None), Err(Status::Rofs));
    assert_eq!(client.create_with("new", 0, &none), Err(Status::Rofs));
    let removed = client.at(Procedure::Remove, (&root, "file"), |_| {});
    assert_eq!(removed, Err(Status::Rofs));
}
