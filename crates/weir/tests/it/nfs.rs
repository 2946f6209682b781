//! The commands of NFS against a gateway that serves directories.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::common::free_port;
use crate::common::gateway::Gateway;

/// A call of no procedure (NULL) of version 4, and what answers it.
const NULL_CALL: [u32; 11] = [0x8000_0028, 7, 0, 2, 100_003, 4, 0, 0, 0, 0, 0];
const NULL_REPLY: [u32; 7] = [0x8000_0018, 7, 1, 0, 0, 0, 0];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn answers(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(&bytes(&NULL_CALL)).expect("it is sent");
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).expect("it is answered");
    assert_eq!(reply[..], bytes(&NULL_REPLY));
}

#[test]
fn a_directory_is_exported_and_stays_so() {
    let mut gateway = Gateway::started();
    let folder = gateway.path("share");
    std::fs::create_dir(&folder).expect("it is made");
    let source = format!("dir:{}", folder.display());
    let added = gateway.weir(&format!(
        "export add /exports/share {source} --allow 127.0.0.0/8"
    ));
    let text = String::from_utf8_lossy(&added.stderr);
    if text.contains("CAP_DAC_READ_SEARCH") {
        eprintln!("skipped: the process has no CAP_DAC_READ_SEARCH");
        return;
    }
    assert!(added.status.success(), "{text}");
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port} --protocol nfs"));
    answers(port);
    let kept = gateway.path("state.json.nfs");
    let mode = std::fs::metadata(&kept)
        .expect("it is kept")
        .permissions()
        .mode();
    assert_eq!(
        mode & 0o777,
        0o600,
        "whoever reads it can make file handles"
    );
    let listed = gateway.ok("export list");
    for piece in ["/exports/share", &source, "read and write", "served"] {
        assert!(listed.contains(piece), "{listed}");
    }
    let before = gateway.json("export show /exports/share");
    gateway.kill();
    gateway.start();
    answers(port);
    assert_eq!(gateway.json("export show /exports/share"), before);
    assert!(
        gateway.ok("status").contains("exports"),
        "status tells of them"
    );
    let set = gateway.ok("export set /exports/share --read-only on --allow 127.0.0.1 --allow ::1");
    assert!(set.contains("read only") && set.contains("::1"), "{set}");
    let inner = folder.join("inner");
    std::fs::create_dir(&inner).expect("it is made");
    let nested = format!("export add /inner dir:{}", inner.display());
    gateway.fails(&nested, &["exports do not nest"]);
    let gone = folder.with_file_name("gone");
    gateway.fails(
        &format!("export add /gone dir:{}", gone.display()),
        &["there is no such directory"],
    );
    gateway.fails("export add /share /srv/share", &["as in dir:/srv/share"]);
    gateway.fails(
        "export set /exports/share",
        &["nothing to change was given", "--allow"],
    );
    // Another directory in its place is not served.
    std::fs::rename(&folder, &gone).expect("it is moved");
    std::fs::create_dir(&folder).expect("it is made");
    let shown = gateway.ok("export show /exports/share");
    assert!(shown.contains("is its disk mounted"), "{shown}");
    gateway.ok("export remove /exports/share");
    gateway.fails(
        "export show /exports/share",
        &["there is no export /exports/share"],
    );
    assert_eq!(gateway.end(), Some(0));
}

/// A gateway that exports a folder, and the beginning of the URLs of its files; none where the process may not serve directories.
fn exported() -> Option<(Gateway, String)> {
    let gateway = Gateway::started();
    let folder = gateway.path("share");
    std::fs::create_dir(&folder).expect("it is made");
    let source = format!("dir:{}", folder.display());
    let added = gateway.weir(&format!(
        "export add /exports/share {source} --allow 127.0.0.0/8"
    ));
    let text = String::from_utf8_lossy(&added.stderr);
    if text.contains("CAP_DAC_READ_SEARCH") {
        eprintln!("skipped: the process has no CAP_DAC_READ_SEARCH");
        return None;
    }
    assert!(added.status.success(), "{text}");
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port} --protocol nfs"));
    Some((gateway, format!("nfs://127.0.0.1:{port}/exports/share")))
}

#[test]
fn a_file_is_a_volume_for_every_tool() {
    let Some((mut gateway, place)) = exported() else {
        return;
    };
    let file = format!("{place}/disk.img");
    gateway.fails(
        &format!("bench {file} -t 100ms"),
        &["with size= it is made"],
    );
    gateway.fails(
        &format!("bench {place}/folder/disk.img -t 100ms"),
        &["/exports/share/folder", "NFS4ERR_NOENT"],
    );
    gateway.fails(
        &format!("bench {file}?version=2 -t 100ms"),
        &["3, 4.1 or 4.2"],
    );
    gateway.fails(
        &format!("bench {place}/folder/disk.img?version=3 -t 100ms"),
        &["/exports/share/folder", "NFS4ERR_NOENT"],
    );
    gateway.ok(&format!("verify {file}?size=8M&connections=4 --seed 3"));
    let kept = std::fs::metadata(gateway.path("share/disk.img")).expect("it is made");
    assert_eq!(
        (kept.len(), kept.permissions().mode() & 0o777),
        (8 << 20, 0o600)
    );
    gateway.ok(&format!("verify {file}?version=4.1 --seed 3 --check"));
    gateway.ok(&format!("verify {file}?version=3 --seed 3 --check"));
    gateway.fails(
        &format!("verify {file}?size=16M"),
        &["has 8388608 bytes", "leave size= out"],
    );
    let copy = gateway.path("copy.img");
    gateway.ok(&format!("copy {file} file:{}?size=8M", copy.display()));
    let both = [
        std::fs::read(gateway.path("share/disk.img")),
        std::fs::read(&copy),
    ];
    let [one, other] = both.map(|read| read.expect("it is there"));
    assert!(one == other, "the copy differs");
    // A gateway serves it on, by another protocol.
    gateway.ok(&format!("volume add onwards {file}"));
    assert!(gateway.ok("volume show onwards").contains("8 MiB"));
    gateway.ok("volume remove onwards");
    assert_eq!(gateway.end(), Some(0));
}

#[test]
fn the_article_on_connections_is_run() {
    let Some((gateway, place)) = exported() else {
        return;
    };
    let file = format!("{place}/test.img");
    gateway.fails(
        "reproduce nfs --target file:/x",
        &["no file on an NFS server"],
    );
    gateway.fails(
        &format!("reproduce nfs --target {file}?connections=2"),
        &["says connections=", "leave it out"],
    );
    gateway.ok(&format!("verify {file}?size=64M"));
    let pid = std::process::id();
    let sheet = gateway.json(&format!(
        "reproduce nfs --target {file} --rounds 1 -t 1s --gateway-pid {pid} --link 40"
    ));
    let section = |name: &str| {
        let sections = sheet["sections"].as_array().expect("sections");
        let found = sections.iter().find(|section| section["name"] == name);
        found.expect("it is there").clone()
    };
    for measured in ["measured-3", "measured-4.1"].map(section) {
        assert_eq!(measured["columns"].as_array().map(Vec::len), Some(4));
        let rows = measured["rows"].as_array().expect("rows");
        for row in rows.iter().filter(|row| row["name"] != "limit") {
            let cells = row["cells"].as_array().expect("cells");
            let are_there = cells.iter().all(|cell| cell["value"].as_f64().is_some());
            assert!(cells.len() == 4 && are_there, "{row}");
        }
    }
    let gains = section("gains");
    assert_eq!(gains["rows"].as_array().map(Vec::len), Some(3));
    let told = sheet["caveats"].to_string();
    for part in [
        "grants a session 1024 slots",
        "version=3&connections=16&depth=256",
        "version=4.1&connections=1&depth=128",
    ] {
        assert!(told.contains(part), "no {part} in {told}");
    }
}

/// One volume over three protocols, without a right that the process may lack.
#[test]
fn a_volume_is_a_file_a_namespace_and_a_lun_at_once() {
    let mut gateway = Gateway::started();
    let disk = gateway.path("disk");
    gateway.ok(&format!("volume add disk file:{}?size=8M", disk.display()));
    gateway.ok("volume add other mem:?size=8M");
    let (nfs, nvme, iscsi) = (free_port(), free_port(), free_port());
    gateway.ok("export add /disks volumes: --allow 127.0.0.0/8");
    let shown = gateway.ok("export show /disks");
    assert!(shown.contains("`weir file add`"), "{shown}");
    gateway.ok("file add /disks disk --read-iops 100000");
    gateway.ok("file add /disks other --read-only");
    gateway.ok(&format!("listener add 127.0.0.1:{nfs} --protocol nfs"));
    let nqn = "nqn.2026-01.org.example:s";
    gateway.ok(&format!("subsystem add {nqn} --allow-any-host"));
    gateway.ok(&format!("namespace add {nqn} disk --nsid 1"));
    gateway.ok(&format!("listener add 127.0.0.1:{nvme}"));
    let iqn = "iqn.2026-01.org.example:t";
    gateway.ok(&format!("target add {iqn} --allow-any-host"));
    gateway.ok(&format!("lun add {iqn} disk --lun 0"));
    gateway.ok(&format!("listener add 127.0.0.1:{iscsi} --protocol iscsi"));
    let file = format!("nfs://127.0.0.1:{nfs}/disks/disk");
    gateway.ok(&format!("verify {file} --seed 5"));
    gateway.kill();
    gateway.start();
    for url in [
        format!("nvme+tcp://127.0.0.1:{nvme}/{nqn}?nsid=1"),
        format!("iscsi://127.0.0.1:{iscsi}/{iqn}/0"),
        format!("{file}?version=3"),
    ] {
        gateway.ok(&format!("verify {url} --seed 5 --check"));
    }
    let read_only = format!("nfs://127.0.0.1:{nfs}/disks/other");
    gateway.fails(&format!("verify {read_only}"), &["read-only"]);
    let listed = gateway.ok("file list");
    for piece in [
        "/disks",
        "disk",
        "8 MiB",
        "read-only",
        "read-write",
        "online",
    ] {
        assert!(listed.contains(piece), "{listed}");
    }
    let times = gateway.ok("latency --file /disks disk");
    assert!(
        times.contains("read") && times.contains("volume"),
        "{times}"
    );
    let shown = gateway.ok("volume show disk");
    assert!(
        shown.contains("exports") && shown.contains("/disks"),
        "{shown}"
    );
    gateway.fails("volume remove other", &["file other of export /disks"]);
    gateway.fails(
        "file set /disks disk",
        &["nothing to change", "--read-only"],
    );
    gateway.fails("file add /disks dsk", &["there is no volume dsk", "disk"]);
    gateway.fails(
        &format!("verify {file}?size=16M"),
        &["has 8388608 bytes", "leave size= out"],
    );
    gateway.fails(
        &format!("verify nfs://127.0.0.1:{nfs}/disks/none?size=1M"),
        &["/disks/none", "NFS4ERR_PERM"],
    );
    gateway.ok("file set /disks other --read-only off");
    gateway.ok(&format!("verify {read_only}"));
    gateway.ok("volume resize disk 16M");
    assert!(gateway.ok("file show /disks disk").contains("16 MiB"));
    gateway.ok("file remove /disks disk");
    gateway.fails(&format!("bench {file} -t 1s"), &["/disks/disk"]);
    gateway.ok("export remove /disks");
    gateway.ok("volume remove other");
    assert_eq!(gateway.end(), Some(0));
}
