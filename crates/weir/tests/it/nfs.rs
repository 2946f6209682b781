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
