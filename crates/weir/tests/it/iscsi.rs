//! The commands of iSCSI against a real control socket, behind which an engine without a data path is.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use weir_gateway::engine::SessionReport;
use weir_gateway::state::{Protocol, Secret};

use super::control::{Gateway, connection, fails};

const TARGET: &str = "iqn.2026-01.com.example:t";
const INITIATOR: &str = "iqn.1993-08.org.debian:01:abc";
const SECRET: &str = "a secret of one";
const OTHER: &str = "a secret of two";

#[test]
fn from_a_volume_to_a_lun_and_back() {
    let gateway = Gateway::start();
    gateway.ok("volume add images mem:?size=1G");
    let added = gateway.ok(&format!("target add {TARGET} --alias rack-7"));
    assert!(
        added.starts_with(&format!("added target {TARGET}\n")),
        "{added}"
    );
    let again = gateway.ok(&format!("target add {TARGET}"));
    assert!(again.starts_with("nothing to do"), "{again}");
    let host = gateway.ok(&format!(
        "host add rack-7 --iqn {INITIATOR} --nqn nqn.2026-01.com.example:h"
    ));
    assert!(host.contains(INITIATOR), "{host}");
    gateway.ok(&format!("host add {INITIATOR}1"));
    gateway.ok(&format!("target allow {TARGET} rack-7"));
    let added = gateway.ok(&format!(
        "lun add {TARGET} images --visible-to rack-7 --read-iops 100"
    ));
    assert!(added.contains("LUN         0\n"), "{added}");
    assert!(added.contains("read IOPS 100, burst 10\n"), "{added}");
    gateway.ok(&format!("lun add {TARGET} images --lun 7 --read-only"));
    let listener = gateway.ok("listener add * --protocol iscsi --advertise 198.51.100.7:3260");
    assert!(
        listener.contains("advertised as   198.51.100.7:3260"),
        "{listener}"
    );
    let state = gateway.engine.applied().unwrap();
    let portal = &state.portals[&"*:3260".parse().unwrap()];
    assert_eq!(portal.protocol, Protocol::Iscsi);
    let rows = [
        (
            "target list",
            "TARGET                     HOSTS  LUNS  CHAP  ALIAS",
        ),
        (
            "target list",
            "iqn.2026-01.com.example:t  1      2     none  rack-7",
        ),
        (
            "lun list",
            "iqn.2026-01.com.example:t  0    images  1 GiB  read-write  1 hosts  online",
        ),
        (
            "lun list",
            "iqn.2026-01.com.example:t  7    images  1 GiB  read-only   all      online",
        ),
        (
            "host list",
            "HOST                            SUBSYSTEMS  TARGETS  NOTE",
        ),
        ("host list", "rack-7                          0           1"),
        ("listener list", "*:3260   iscsi   listening"),
        (
            "volume list",
            "images  1 GiB  4096   online  0           2     0        mem:?size=1G",
        ),
        ("status", "targets      1"),
        ("status", "LUNs         2"),
        ("status", "limits       1 LUNs;"),
        ("status", "problems     none"),
    ];
    for (command, row) in rows {
        let shown = gateway.ok(command);
        assert!(shown.contains(row), "no {row:?} in {command}:\n{shown}");
    }
    assert_eq!(gateway.json("lun list")[1]["lun"], 7);
    assert_eq!(
        gateway.json(&format!("target show {TARGET}"))["alias"],
        "rack-7"
    );
    let set = gateway.ok(&format!(
        "lun set {TARGET} 0 --visible-to-all --read-only on"
    ));
    assert!(set.contains("all hosts of the target"), "{set}");
    let set = gateway.ok(&format!("target set {TARGET} --allow-any-host on"));
    assert!(set.contains("hosts        any"), "{set}");
    let in_use = ["volume images is in use by LUN 0 of target iqn.2026-01"];
    gateway.fails("volume remove images", 1, &in_use);
    gateway.fails(
        &format!("target remove {TARGET}"),
        1,
        &["LUN 0", "use --force"],
    );
    gateway.ok(&format!("lun remove {TARGET} 7"));
    gateway.ok(&format!("target deny {TARGET} rack-7"));
    gateway.ok(&format!("target remove {TARGET} --force"));
    gateway.ok("host remove rack-7");
    gateway.ok("volume remove images");
    let state = gateway.engine.applied().unwrap();
    assert!(state.volumes.is_empty() && state.targets.is_empty());
}

#[test]
fn wrong_input_is_answered_with_the_way_out() {
    let gateway = Gateway::start();
    gateway.ok(&format!("target add {TARGET}"));
    let cases: &[(&str, i32, &[&str])] = &[
        (
            "target add nqn.2026-01.a:b",
            2,
            &["iSCSI name", "iqn.YYYY-MM"],
        ),
        (
            "target add iqn.2026-01.com.example:ä",
            2,
            &["may hold only letters"],
        ),
        (
            "target show iqn.2026-01.com.example:s",
            1,
            &[
                "there is no target",
                "did you mean iqn.2026-01.com.example:t?",
            ],
        ),
        (
            "target allow iqn.2026-01.com.example:t rack-7",
            1,
            &["register it first: weir host add rack-7"],
        ),
        ("host add rack-7", 1, &["no name under which it connects"]),
        (
            "host add iqn.2026-13.com.example:h",
            2,
            &["iSCSI name", "iqn.YYYY-MM"],
        ),
        (
            "lun add iqn.2026-01.com.example:t images",
            1,
            &["there is no volume images"],
        ),
        (
            "lun show iqn.2026-01.com.example:t 3",
            1,
            &["has no LUN 3", "weir lun list"],
        ),
        (
            "lun set iqn.2026-01.com.example:t 3",
            1,
            &["nothing to change"],
        ),
        (
            "listener add * --protocol smb",
            2,
            &["write nvme, iscsi or nfs"],
        ),
        (
            "listener add * --protocol iscsi --discovery",
            1,
            &["kind is for"],
        ),
        (
            "listener add * --advertise 198.51.100.7:1",
            1,
            &["advertise is for"],
        ),
        (
            "listener add * --protocol iscsi --advertise *:1",
            2,
            &["not a wildcard"],
        ),
        ("target chap iqn.2026-01.com.example:t", 2, &["--user"]),
        (
            "target chap iqn.2026-01.com.example:t --user u",
            1,
            &["--secret-file FILE", "WEIR_CHAP_SECRET"],
        ),
        (
            "target chap iqn.2026-01.com.example:t --user u --secret-file /nowhere",
            1,
            &["cannot read /nowhere"],
        ),
        (
            "target chap iqn.2026-01.com.example:t --user u --secret x",
            2,
            &["--secret"],
        ),
        (
            "target chap iqn.2026-01.com.example:t --none --user u",
            2,
            &["--none"],
        ),
    ];
    for (arguments, code, pieces) in cases {
        gateway.fails(arguments, *code, pieces);
    }
}

/// Runs a command with secrets in its environment and on its standard input.
fn with_secrets(
    gateway: &Gateway,
    arguments: &str,
    variables: &[(&str, &str)],
    input: &str,
) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let command = command.args(arguments.split_whitespace());
    let command = command.env("WEIR_SOCKET", gateway.socket());
    let command = command.envs(variables.iter().copied());
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A command that reads none has closed it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn secrets_come_from_files_from_input_and_from_the_environment() {
    let gateway = Gateway::start();
    gateway.ok(&format!("target add {TARGET} --allow-any-host"));
    let file = gateway.directory.path().join("secret");
    fs::write(&file, format!("{SECRET}\nand a second line\n")).unwrap();
    let file = file.display();
    let chap = format!("target chap {TARGET} --user u");
    let both = format!("{chap} --mutual-user m");
    let environment = [
        ("WEIR_CHAP_SECRET", SECRET),
        ("WEIR_CHAP_MUTUAL_SECRET", OTHER),
    ];
    let cases = [
        (
            format!("{chap} --secret-file {file}"),
            &environment[..0],
            "",
            None,
        ),
        (format!("{chap} --secret-file -"), &[], SECRET, None),
        (chap.clone(), &environment[..1], "", None),
        (both.clone(), &environment[..], "", Some(OTHER)),
        (
            format!("{both} --secret-file {file} --mutual-secret-file -"),
            &[],
            OTHER,
            Some(OTHER),
        ),
    ];
    for (arguments, variables, input, mutual) in cases {
        gateway.ok(&format!("target chap {TARGET} --none"));
        let output = with_secrets(&gateway, &arguments, variables, input);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("user         u\n"), "{shown}");
        assert!(!shown.contains(SECRET) && !shown.contains(OTHER), "{shown}");
        let state = gateway.engine.applied().unwrap();
        let secrets = &state.secrets.chap[&TARGET.parse().unwrap()];
        assert_eq!(secrets.initiator.expose(), SECRET, "{arguments}");
        assert_eq!(
            secrets.target.as_ref().map(Secret::expose),
            mutual,
            "{arguments}"
        );
    }
    assert!(gateway.ok("target list").contains("mutual"));
    let state = fs::read_to_string(gateway.directory.path().join("state")).unwrap();
    assert!(!state.contains(SECRET) && !state.contains(OTHER), "{state}");
    let same = [
        ("WEIR_CHAP_SECRET", SECRET),
        ("WEIR_CHAP_MUTUAL_SECRET", SECRET),
    ];
    for (arguments, variables, input, piece) in [
        (
            &both,
            &same[..],
            "",
            "mutual_secret must differ from secret",
        ),
        (
            &chap,
            &[("WEIR_CHAP_SECRET", "short")],
            "",
            "secret must have 12 to 255 bytes",
        ),
        (
            &format!("{chap} --secret-file -"),
            &[],
            "",
            "standard input holds no secret",
        ),
        (
            &format!("{both} --secret-file - --mutual-secret-file -"),
            &[],
            SECRET,
            "standard input holds one secret",
        ),
    ] {
        let output = with_secrets(&gateway, arguments, variables, input);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!told.contains(SECRET), "{told}");
        fails(&output, arguments, 1, &[piece]);
    }
}

#[test]
fn sessions_are_listed_and_shown() {
    let gateway = Gateway::start();
    let mut report = connection();
    report.queue = None;
    report.session = Some(SessionReport {
        initiator: INITIATOR.parse().unwrap(),
        alias: None,
        isid: "00023d000001".to_owned(),
        target: Some(TARGET.parse().unwrap()),
        tsih: 4,
        user: Some("u".to_owned()),
        header_digest: true,
        data_digest: false,
    });
    gateway.engine.add_connection(report.clone());
    let session = report.session.as_mut().unwrap();
    (session.target, session.user) = (None, None);
    report.id = 8;
    gateway.engine.add_connection(report);
    gateway.engine.add_connection(connection());
    let text = gateway.ok("session list");
    let lines: Vec<_> = text.lines().collect();
    let heading = "CONNECTION  PEER             REACTOR  ISID          IN FLIGHT  DIGESTS  USER  INITIATOR                      TARGET";
    assert_eq!(lines[0], heading);
    assert!(
        lines[1].ends_with(&format!("header   u     {INITIATOR}  {TARGET}")),
        "{text}"
    );
    assert!(lines[2].ends_with("discovery"), "{text}");
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(gateway.json("session list")[0]["isid"], "00023d000001");
    let connections = gateway.ok("connection list");
    let is_its = |line: &str| line.contains(INITIATOR) && line.ends_with(TARGET);
    assert!(connections.lines().any(is_its), "{connections}");
    let shown = gateway.ok("connection show 7");
    for row in [
        "initiator           iqn.1993-08",
        "ISID                00023d000001",
        "user                u\n",
    ] {
        assert!(shown.contains(row), "no {row:?} in:\n{shown}");
    }
}
