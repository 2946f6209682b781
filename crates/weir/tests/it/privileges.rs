//! Nothing that a gateway does needs root: one that was started by root becomes another user for good, and one that was started
//! by another user does all that a gateway does. Both need root to arrange, and are skipped without.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::free_port;
use crate::common::gateway::{Gateway, WEIR, spawn, url};

const SUBSYSTEM: &str = "nqn.2026-01.org.example:unprivileged";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user and group named `nobody`, as the system's list of users has them.
fn nobody() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("there is a list of users");
    let line = users.lines().find(|line| line.starts_with("nobody:"));
    let fields: Vec<_> = line.expect("every system has nobody").split(':').collect();
    let number = |index: usize| fields[index].parse().expect("a number");
    (number(2), number(3))
}

fn give(path: &Path, to: (u32, u32)) {
    chown(path, Some(to.0), Some(to.1)).expect("root gives");
}

/// What the kernel says of every thread of a process under `name`.
fn of_threads(process: u32, name: &str) -> BTreeSet<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it is there");
    let of_thread = |status: PathBuf| {
        let text = fs::read_to_string(status).expect("a thread");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let line = line.expect("every thread has one").trim_start_matches(':');
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let threads: BTreeSet<_> = threads
        .map(|thread| of_thread(thread.expect("a thread").path().join("status")))
        .collect();
    assert!(!threads.is_empty());
    threads
}

fn only(text: String) -> BTreeSet<String> {
    BTreeSet::from([text])
}

/// Has a gateway do all that a gateway does: volumes of each kind, hosts, load, a restart.
fn does_everything(gateway: &mut Gateway, restart: impl Fn(&mut Gateway)) {
    let port = free_port();
    let file = |name| format!("file:{}?size=32M", gateway.path(name).display());
    gateway.ok(&format!("volume add file {}", file("one")));
    let member = |name| file(name).replace('?', "%3F");
    gateway.ok(&format!(
        "volume add set stripe:?create=1&member={}&member={}",
        member("two"),
        member("three")
    ));
    gateway.ok("volume add memory mem:?size=8M");
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    for volume in ["file", "memory", "set"] {
        gateway.ok(&format!("namespace add {SUBSYSTEM} {volume}"));
    }
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    gateway.ok(&format!("listener add [::1]:{port}"));
    for (nsid, host) in [(1, "127.0.0.1"), (2, "[::1]"), (3, "127.0.0.1")] {
        let url = url(port, SUBSYSTEM, nsid).replace("127.0.0.1", host) + "&hdgst=1&ddgst=1";
        let verified = Command::new(WEIR)
            .args(["verify", &url, "--queues=4", "--block-size=128k"])
            .output()
            .expect("it runs");
        assert!(
            verified.status.success(),
            "{url}: {verified:?}\n{}",
            gateway.log()
        );
    }
    let before = gateway.ok("--json namespace list");
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
    restart(gateway);
    assert_eq!(gateway.ok("--json namespace list"), before);
}

#[test]
fn root_becomes_another_user_for_good() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let nobody = nobody();
    let mut gateway = Gateway::prepared("user = \"nobody\"");
    // As an operator who leaves them to the gateway: directories that do not exist yet.
    let state = gateway.path("state.json");
    let toml = gateway.path("weir.toml");
    let config = fs::read_to_string(&toml).expect("it was written");
    let made = gateway.path("made/by/it");
    let config = config.replace(
        &format!("{state:?}"),
        &format!("{:?}", made.join("state.json")),
    );
    fs::write(&toml, config).expect("it can be written");
    give(&gateway.path(""), nobody);
    gateway.start();

    let owner = fs::metadata(&made).expect("it was made");
    assert_eq!((owner.uid(), owner.gid()), nobody);
    let process = gateway.id();
    let (user, group) = nobody;
    assert_eq!(
        of_threads(process, "Uid"),
        only(format!("{user} {user} {user} {user}"))
    );
    assert_eq!(
        of_threads(process, "Gid"),
        only(format!("{group} {group} {group} {group}"))
    );
    for capabilities in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        let none = of_threads(process, capabilities);
        assert!(
            none.iter().all(|set| set.chars().all(|digit| digit == '0')),
            "{capabilities}: {none:?}"
        );
    }
    assert_eq!(of_threads(process, "NoNewPrivs"), only("1".to_owned()));
    // Root's groups went too.
    let groups = of_threads(process, "Groups");
    assert!(
        groups.iter().all(|groups| groups == &group.to_string()),
        "{groups:?}"
    );

    does_everything(&mut gateway, Gateway::start);
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
}

/// Directories that are made can be reached, whatever the umask is of who starts the gateway.
#[test]
fn a_strict_umask_keeps_nobody_from_its_state() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let mut gateway = Gateway::prepared("user = \"nobody\"");
    let state = gateway.path("state.json");
    let toml = gateway.path("weir.toml");
    let config = fs::read_to_string(&toml).expect("it was written");
    let made = gateway.path("made/by/it");
    let other = format!("{:?}", made.join("state.json"));
    fs::write(&toml, config.replace(&format!("{state:?}"), &other)).expect("it can be written");
    give(&gateway.path(""), nobody());
    let serving = gateway.serving(WEIR);
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 077; exec \"$0\" \"$@\""])
        .arg(serving.get_program())
        .args(serving.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(gateway.path("log")).expect("a log"));
    gateway.start_with(command);
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
    for above in made.ancestors().take(3) {
        let mode = fs::metadata(above).expect("it was made").mode();
        assert_eq!(mode & 0o777, 0o755, "{}", above.display());
    }
}

/// What an earlier run as root left is said to be the trouble, with the way out.
#[test]
fn what_root_left_is_named() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let nobody = nobody();
    for left in ["", "state.json", "state.json.lock"] {
        let gateway = Gateway::prepared("user = \"nobody\"");
        give(&gateway.path(""), nobody);
        if left.is_empty() {
            give(&gateway.path(""), (0, 0));
        } else {
            fs::write(gateway.path(left), "").expect("root can");
            fs::set_permissions(gateway.path(left), fs::Permissions::from_mode(0o600))
                .expect("root can");
        }
        let output = gateway
            .serving(WEIR)
            .stderr(Stdio::piped())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{left}: {text}");
        assert!(
            text.contains("left from a run as another user"),
            "{left}: {text}"
        );
        assert!(text.contains("chown -R nobody: "), "{left}: {text}");
    }
}

/// A group that the process does not have is not ignored, and nobody gains rights later.
#[test]
fn who_is_the_user_already_must_have_the_group_too() {
    if !is_root() {
        eprintln!("skipped: only root can start it as another user");
        return;
    }
    let nobody = nobody();
    for (group, starts) in [("nogroup", true), ("daemon", false)] {
        let mut gateway = Gateway::prepared(&format!("user = \"nobody\"\ngroup = {group:?}"));
        let program = gateway.path("weir");
        fs::copy(WEIR, &program).expect("the binary can be copied");
        give(&gateway.path(""), nobody);
        let mut command = gateway.serving(&program);
        command.uid(nobody.0).gid(nobody.1);
        if starts {
            gateway.start_with(command);
            assert_eq!(of_threads(gateway.id(), "NoNewPrivs"), only("1".to_owned()));
            assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
            continue;
        }
        command.stderr(Stdio::piped());
        let output = spawn(&mut command).wait_with_output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("`group` is \"daemon\""), "{text}");
    }
}

#[test]
fn nothing_that_a_gateway_does_needs_root() {
    if !is_root() {
        eprintln!("skipped: only root can start it as another user");
        return;
    }
    let nobody = nobody();
    let mut gateway = Gateway::prepared("");
    // Where the build is, nobody may not look.
    let program = gateway.path("weir");
    fs::copy(WEIR, &program).expect("the binary can be copied");
    give(&gateway.path(""), nobody);
    let start = move |gateway: &mut Gateway| {
        let mut command = gateway.serving(&program);
        command.uid(nobody.0).gid(nobody.1);
        gateway.start_with(command);
    };
    start(&mut gateway);
    let (user, _) = nobody;
    assert_eq!(
        of_threads(gateway.id(), "Uid"),
        only(format!("{user} {user} {user} {user}"))
    );
    does_everything(&mut gateway, start);
    assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
}

#[test]
fn a_user_that_cannot_be_had_is_refused() {
    let cases = [
        ("user = \"no such user\"", "there is no user"),
        ("user = \"root\"", "which is root"),
        ("group = \"nogroup\"", "group is of no use without user"),
    ];
    for (config, said) in cases {
        for check in [&["--check"][..], &[]] {
            let gateway = Gateway::prepared(config);
            let mut command = gateway.serving(WEIR);
            let output = command.args(check).stderr(Stdio::piped()).output();
            let output = output.expect("it runs");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{config}: {text}");
            assert!(text.contains(said), "{config}: {text}");
            assert!(!gateway.path("state.json").exists());
        }
    }
}

/// Only root can become somebody else, and only who one is already needs no becoming.
#[test]
fn who_is_not_root_stays_who_it_is() {
    if !is_root() {
        eprintln!("skipped: only root can start it as another user");
        return;
    }
    let nobody = nobody();
    for (user, starts) in [("nobody", true), ("daemon", false)] {
        let mut gateway = Gateway::prepared(&format!("user = \"{user}\""));
        let program = gateway.path("weir");
        fs::copy(WEIR, &program).expect("the binary can be copied");
        give(&gateway.path(""), nobody);
        let mut command = gateway.serving(&program);
        command.uid(nobody.0).gid(nobody.1);
        if starts {
            gateway.start_with(command);
            assert_eq!(gateway.end(), Some(0), "{}", gateway.log());
            continue;
        }
        command.stderr(Stdio::piped());
        let output = spawn(&mut command).wait_with_output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("started as another user"), "{text}");
    }
}
