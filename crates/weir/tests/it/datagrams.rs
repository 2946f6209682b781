//! `weir record udp:ADDRESS:PORT` as a process, on the loopback.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_pcap::{Found, Reader};

use crate::common::gateway::WEIR;
use crate::common::{catches, until};
use crate::interfaces::{json, script};

/// A recorder that receives.
struct Recorder {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: SocketAddr,
    volume: String,
}

fn weir(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(WEIR);
    command.arg("record").args(arguments).stdin(Stdio::null());
    command.output().expect("the command runs")
}

impl Recorder {
    fn start(folder: &Path, source: &str, arguments: &[&str]) -> Self {
        let volume = format!("file:{}?size=64M", folder.join("ring").display());
        let mut child = Command::new(WEIR)
            .args(["record", source, &volume, "--new", "--json"])
            .args(["--sync", "20ms"])
            .env("RUNTIME_DIRECTORY", folder)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut said = String::new();
        let address = loop {
            let before = said.len();
            assert!(stderr.read_line(&mut said).expect("text") > 0, "{said}");
            if let Some(address) = said[before..].strip_prefix("waiting for datagrams at ") {
                break address.trim_end().parse().expect("an address");
            }
        };
        Recorder {
            child,
            stderr,
            address,
            volume,
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// The recording, as far as it is committed.
    fn listed(&self) -> Option<Value> {
        let output = weir(&["list", &self.volume, "--json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).ok()?;
        listed["recordings"].get(0).cloned()
    }

    /// Committed packets, or bytes.
    fn committed(&self, what: &str) -> u64 {
        let listed = self.listed();
        listed.map_or(0, |one| one[what].as_u64().expect("a number"))
    }

    /// Asks it to stop: its counts.
    fn stop(mut self) -> Value {
        let process = self.child.id();
        until("it handles the signal", || catches(process, Signal::INT));
        self.signal(Signal::INT);
        // It may be stopped.
        self.signal(Signal::CONT);
        let (mut told, mut said) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().expect("it is piped");
        stdout.read_to_string(&mut told).expect("text");
        self.stderr.read_to_string(&mut said).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{said}");
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        assert_eq!(told["ended"], "stopped", "{told}");
        told["counts"].clone()
    }

    /// Stops its threads. All have stopped when this returns.
    fn pause(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.id());
        let has_stopped = |thread: &std::fs::DirEntry| {
            // One that ends meanwhile does nothing more.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        until("all threads have stopped", || {
            let mut all = std::fs::read_dir(&threads).expect("it runs").flatten();
            all.all(|thread| has_stopped(&thread))
        });
    }

    /// Bytes waiting and datagrams dropped, for each of its sockets, from /proc/net/udp.
    fn all_in_kernel(&self) -> Vec<(u64, u64)> {
        let text = std::fs::read_to_string("/proc/net/udp").expect("it is there");
        let IpAddr::V4(ip) = self.address.ip() else {
            panic!("{} is no address of IPv4", self.address)
        };
        let ip = u32::from_ne_bytes(ip.octets());
        let address = format!("{ip:08X}:{:04X}", self.address.port());
        let lines = text.lines().map(|line| line.split_whitespace());
        let own = lines.filter(|line| line.clone().nth(1) == Some(&address));
        own.map(|mut line| {
            let queues = line.nth(4).expect("queues");
            let waiting = queues.split_once(':').expect("two").1;
            let waiting = u64::from_str_radix(waiting, 16).expect("it is hexadecimal");
            let drops = line.last().expect("drops").parse().expect("a number");
            (waiting, drops)
        })
        .collect()
    }

    fn in_kernel(&self) -> (u64, u64) {
        self.all_in_kernel()[0]
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn extracted(folder: &Path) -> Vec<u8> {
    let (volume, out) = (folder.join("ring"), folder.join("out"));
    let volume = format!("file:{}", volume.display());
    let output = weir(&["extract", &volume, "--out", &out.display().to_string()]);
    assert!(output.status.success(), "{output:?}");
    std::fs::read(out).expect("it is there")
}

/// A datagram of a packet file.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    from: SocketAddr,
    to: SocketAddr,
    payload: Vec<u8>,
    /// Those that were lost before it.
    dropped: u64,
}

fn datagram(packet: &[u8]) -> Sent {
    let (at, from, to): (usize, IpAddr, IpAddr) = match packet[0] >> 4 {
        4 => {
            let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).expect("four bytes");
            (20, address(12).into(), address(16).into())
        }
        _ => {
            let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 bytes");
            (40, address(8).into(), address(24).into())
        }
    };
    let number = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    assert_eq!(
        usize::from(number(at + 4)),
        packet.len() - at,
        "length of UDP"
    );
    Sent {
        from: (from, number(at)).into(),
        to: (to, number(at + 2)).into(),
        payload: packet[at + 8..].to_vec(),
        dropped: 0,
    }
}

fn datagrams(file: &[u8]) -> Vec<Sent> {
    let (mut reader, mut left) = (Reader::new(), file);
    let mut found = Vec::new();
    while let Some(one) = reader.next(&mut left).expect("a file of packets") {
        match one {
            Found::Packet(packet) => {
                assert!(packet.time > 0);
                found.push(Sent {
                    dropped: packet.dropped.unwrap_or(0),
                    ..datagram(packet.data)
                });
            }
            Found::Interface(interface) => assert_eq!(interface.link_type, 101),
            _ => {}
        }
    }
    found
}

fn payload(number: usize, size: usize) -> Vec<u8> {
    (0..size)
        .map(|index| ((index * 7 + number) % 251) as u8)
        .collect()
}

const SIZES: [usize; 7] = [0, 1, 2, 511, 1472, 9000, 65_507];

/// Fields of a packet file, as tshark reads them; none where there is no tshark.
fn fields(file: &Path, fields: &[&str]) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ]);
    command.args(["-T", "fields", "-r"]).arg(file);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn datagrams_are_recorded_as_they_were_sent() {
    for (bind, to) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("0.0.0.0:0", "127.0.0.3"),
        ("[::1]:0", "::1"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.0.0.4"),
    ] {
        let to: IpAddr = to.parse().expect("an address");
        if bind.contains("::") && UdpSocket::bind("[::1]:0").is_err() {
            println!("skipped: this machine has no IPv6");
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = Recorder::start(folder.path(), &format!("udp:{bind}"), &[]);
        let out = UdpSocket::bind((if to.is_ipv6() { "::1" } else { "127.0.0.1" }, 0));
        let out = out.expect("a socket");
        let (from, to) = (
            out.local_addr().expect("it has one"),
            (to, recorder.address.port()),
        );
        for (number, size) in SIZES.into_iter().enumerate() {
            out.send_to(&payload(number, size), to).expect("it is sent");
        }
        until("all is committed", || {
            recorder.committed("packets") == SIZES.len() as u64
        });
        let counts = recorder.stop();
        assert_eq!(
            (&counts["kept"], &counts["received"]),
            (&7.into(), &7.into())
        );
        let found = datagrams(&extracted(folder.path()));
        let sent = SIZES.into_iter().enumerate().map(|(number, size)| Sent {
            from,
            to: to.into(),
            payload: payload(number, size),
            dropped: 0,
        });
        assert!(found == sent.collect::<Vec<_>>(), "{bind} {to:?}");
        let wanted = [
            "udp.srcport",
            "udp.length",
            "udp.checksum.status",
            "ip.checksum.status",
        ];
        let Some(text) = fields(&folder.path().join("out"), &wanted) else {
            println!("skipped: tshark is not installed");
            continue;
        };
        // 1: it is right; 3: there is none.
        let status = if from.is_ipv6() { "1\t" } else { "3\t1" };
        let lines = SIZES.map(|size| format!("{}\t{}\t{status}\n", from.port(), size + 8));
        assert_eq!(text, lines.concat());
    }
}

#[test]
fn payloads_are_recorded_one_after_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::start(folder.path(), "udp:127.0.0.1:0?content=bytes", &[]);
    let out = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut all = Vec::new();
    // More than a chunk, and no more at a time than the smallest receive buffer takes.
    for round in 0..20 {
        for size in [60_000, 0, 1, 59_999] {
            let payload = payload(round, size);
            out.send_to(&payload, recorder.address).expect("it is sent");
            all.extend(payload);
        }
        until("all is committed", || {
            recorder.committed("bytes") == all.len() as u64
        });
    }
    let counts = recorder.stop();
    assert_eq!(counts["received_bytes"], all.len(), "{counts}");
    assert!(extracted(folder.path()) == all);
}

#[test]
fn datagrams_that_found_no_room_in_the_kernel_are_counted_to_the_last() {
    const SENT: u64 = 600;
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::start(folder.path(), "udp:127.0.0.1:0?receive-buffer=64k", &[]);
    // The receive buffer fills while nobody empties it.
    recorder.pause();
    let out = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for number in 0..SENT {
        out.send_to(&number.to_be_bytes(), recorder.address)
            .expect("it is sent");
    }
    recorder.signal(Signal::CONT);
    until("all is committed, or dropped", || {
        recorder.committed("packets") + recorder.in_kernel().1 == SENT
    });
    let drops = recorder.in_kernel().1;
    // The counts are read now and then. A packet that comes after that reports what was lost before it.
    let mut sent = SENT;
    until("a packet reports the losses", || {
        out.send_to(&sent.to_be_bytes(), recorder.address)
            .expect("it is sent");
        sent += 1;
        until("it is committed", || {
            recorder.committed("packets") + drops == sent
        });
        let out = folder.path().join(format!("{sent}.pcapng"));
        let arguments = [
            "extract",
            &recorder.volume,
            "--out",
            &out.display().to_string(),
        ];
        assert!(weir(&arguments).status.success());
        let found = datagrams(&std::fs::read(out).expect("it is there"));
        found.iter().any(|one| one.dropped > 0)
    });
    let counts = recorder.stop();
    let count = |name: &str| counts[name].as_u64().expect("a count");
    assert!(drops > 0);
    assert_eq!(count("lost_socket") + count("lost_slow"), drops, "{counts}");
    assert_eq!(
        (count("kept"), count("received")),
        (sent - drops, sent),
        "{counts}"
    );
    let found = datagrams(&extracted(folder.path()));
    let numbers = found.iter().map(|one| one.payload.clone());
    let kept = (0..SENT - drops).chain(SENT..sent);
    assert!(numbers.eq(kept.map(|number| number.to_be_bytes().to_vec())));
    let dropped: Vec<_> = found.iter().map(|one| one.dropped).collect();
    let (last, others) = dropped.split_last().expect("there are some");
    assert!(others.iter().all(|&dropped| dropped == 0), "{dropped:?}");
    assert_eq!(*last, drops);
}

#[test]
fn datagrams_that_came_before_the_request_to_stop_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    for content in ["packets", "bytes"] {
        let source = format!("udp:127.0.0.1:0?content={content}");
        let folder = folder.path().join(content);
        std::fs::create_dir(&folder).expect("a folder");
        let recorder = Recorder::start(&folder, &source, &[]);
        let process = recorder.child.id();
        until("it handles signals", || catches(process, Signal::INT));
        recorder.pause();
        let out = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let send = || {
            out.send_to(&[7; 100], recorder.address)
                .expect("it is sent")
        };
        send();
        until("it has come", || recorder.in_kernel().0 > 0);
        let one = recorder.in_kernel().0;
        for _ in 1..100 {
            send();
        }
        until("all have come", || recorder.in_kernel().0 == 100 * one);
        let counts = recorder.stop();
        assert_eq!(
            counts["received_bytes"],
            100 * if content == "bytes" { 100 } else { 128 }
        );
        assert_eq!(counts["kept"], 100, "{counts}");
    }
}

/// After a stop request, datagrams behind rejected ones are still recorded.
#[test]
fn wanted_datagrams_behind_rejected_ones_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--filter", "udp[8] == 7"];
    let recorder = Recorder::start(folder.path(), "udp:127.0.0.1:0", &arguments);
    let process = recorder.child.id();
    until("it handles signals", || catches(process, Signal::INT));
    recorder.pause();
    let out = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for number in 0..105 {
        let payload = [if number < 100 { 6 } else { 7 }];
        out.send_to(&payload, recorder.address).expect("it is sent");
    }
    assert_eq!(recorder.in_kernel().1, 0, "all have room");
    let counts = recorder.stop();
    assert_eq!(
        (&counts["kept"], &counts["filtered"]),
        (&5.into(), &100.into())
    );
}

#[test]
fn some_packets_are_wanted_and_part_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [
        "--filter",
        "udp[8] == 7 and len > 100",
        "--snap-length",
        "40",
    ];
    let recorder = Recorder::start(folder.path(), "udp:127.0.0.1:0", &arguments);
    let out = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for payload in [[7; 80], [6; 80], [7; 80]] {
        out.send_to(&payload[..50], recorder.address)
            .expect("it is sent");
        out.send_to(&payload, recorder.address).expect("it is sent");
    }
    until("two are committed", || recorder.committed("packets") == 2);
    let counts = recorder.stop();
    assert_eq!(
        (&counts["kept"], &counts["filtered"]),
        (&2.into(), &4.into())
    );
    let file = extracted(folder.path());
    let (mut reader, mut left, mut lengths) = (Reader::new(), &file[..], Vec::new());
    while let Some(found) = reader.next(&mut left).expect("a file of packets") {
        if let Found::Packet(packet) = found {
            lengths.push((packet.data.len(), packet.length));
        }
    }
    assert_eq!(lengths, [(40, 108), (40, 108)]);
}

#[test]
fn senders_are_divided_among_reactors() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        println!("skipped: two reactors need two processors");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::start(
        folder.path(),
        "udp:127.0.0.1:0",
        &["--reactors", "2", "--segment-size", "4M"],
    );
    let mut sent = Vec::new();
    recorder.pause();
    for number in 0..100_u8 {
        let out = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for piece in 0..2 {
            out.send_to(&[number, piece], recorder.address)
                .expect("it is sent");
            sent.push(vec![number, piece]);
        }
    }
    let waiting = recorder.all_in_kernel();
    assert!(
        waiting
            .iter()
            .all(|&(bytes, drops)| bytes > 0 && drops == 0),
        "{waiting:?}"
    );
    assert_eq!(waiting.len(), 2);
    recorder.signal(Signal::CONT);
    until("all is committed", || recorder.committed("packets") == 200);
    assert_eq!(recorder.stop()["kept"], 200);
    let found = datagrams(&extracted(folder.path()));
    let mut found: Vec<_> = found.into_iter().map(|one| one.payload).collect();
    found.sort_unstable();
    assert_eq!(found, sent);
}

/// A group is joined on the interface that was named, and nothing else comes: not what comes on another one, where another program joined the
/// same group, nor another group that a program joined.
#[test]
fn a_group_is_joined_on_an_interface() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let ran = script(
        path,
        r#"
        ip link set lo up
        echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
        for one in 1 2; do
            ip link add "a$one" type veth peer name "b$one"
            echo 0 >"/proc/sys/net/ipv6/conf/a$one/disable_ipv6" 2>/dev/null || true
            ip link set "a$one" addrgenmode none up
            ip link set "b$one" addrgenmode none up
            ip address add "192.0.2.$one/32" dev "a$one"
            ip address add "fe80::$one/64" dev "a$one" nodad 2>/dev/null || true
        done
        groups="239.1.2.3"
        ip -6 address show dev a1 | grep -q fe80::1 && groups="$groups ff05::1234 ff02::1234"
        for group in $groups; do
            case $group in *:*) address="[$group]:5000" ;; *) address="$group:5000" ;; esac
            "$WEIR" record "udp:$address?interface=a1" "file:$FOLDER/$group?size=64M" --new --json >"$group.json" 2>"$group.err" &
            recorder=$!
            until grep -q 'waiting for datagrams' "$group.err"; do
                kill -0 "$recorder"
                sleep 0.01
            done
            python3 - "$group" <<'END'
import socket, struct, sys
group = sys.argv[1]
is_6 = ":" in group
family = socket.AF_INET6 if is_6 else socket.AF_INET
packed = socket.inet_pton(family, group)

def joined(group, name):
    other = socket.socket(family, socket.SOCK_DGRAM)
    index = socket.if_nametoindex(name)
    if is_6:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(family, group) + struct.pack("@I", index))
    else:
        other.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + bytes(4) + struct.pack("@i", index))
    return other

another = "ff05::4321" if is_6 else "239.1.2.4"
others = [joined(group, "a2"), joined(another, "a1")]

def sender(name):
    out = socket.socket(family, socket.SOCK_DGRAM)
    index = socket.if_nametoindex(name)
    if is_6:
        out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    else:
        out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("@i", index))
    return out

own, foreign = sender("a1"), sender("a2")
for number in range(10):
    foreign.sendto(bytes([100]), (group, 5000))
    own.sendto(bytes([200]), (another, 5000))
    own.sendto(bytes([number]), (group, 5000))
END
            holds 10 "file:$FOLDER/$group"
            stop
            [ "$status" = 0 ]
            extract "$group"
        done
        ! "$WEIR" record 'udp:239.1.2.3:5000?interface=nowhere' "file:$FOLDER/x?size=64M" --new 2>nowhere.err
        "#,
    );
    if !ran {
        return;
    }
    for group in ["239.1.2.3", "ff05::1234", "ff02::1234"] {
        let file = path.join(format!("{group}.pcapng"));
        let Ok(file) = std::fs::read(file) else {
            assert_ne!(group, "239.1.2.3");
            println!("skipped {group}: this machine has no IPv6");
            continue;
        };
        let told = json(&path.join(format!("{group}.json")));
        assert_eq!(told["counts"]["kept"], 10, "{group}: {told}");
        let group: IpAddr = group.parse().expect("an address");
        for (number, one) in datagrams(&file).into_iter().enumerate() {
            assert_eq!(one.to, SocketAddr::new(group, 5000));
            assert_eq!(one.payload, [number as u8]);
        }
    }
    let said = std::fs::read_to_string(path.join("nowhere.err")).expect("it is there");
    assert!(said.contains("there is no interface nowhere"), "{said}");
}

#[test]
fn errors_name_the_way_out() {
    let held = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let taken = format!("udp:{}", held.local_addr().expect("it has one"));
    for (arguments, words) in [
        (vec![taken.as_str()], "`ss -ulnp` shows it"),
        (
            vec![taken.as_str(), "--reactors", "2"],
            "`ss -ulnp` shows it",
        ),
        (vec!["udp:192.0.2.1:5000"], "`ip address` lists"),
        (vec!["udp:5000"], "write udp:ADDRESS:PORT"),
        (vec!["udp:127.0.0.1:0?interface=lo"], "remove interface="),
        (vec!["udp:[fe80::1]:5000"], "interface=NAME"),
        (vec!["udp:[ff02::1]:5000"], "interface=NAME"),
        (
            vec!["udp:[ff02::1]:5000?interface=nowhere"],
            "`ip link` lists",
        ),
        (vec!["udp:127.0.0.1:0?receive-buffer=1k"], "4k to 512M"),
        (vec!["udp:127.0.0.1:0?content=pcap"], "packets or bytes"),
        (
            vec!["udp:239.1.2.3:5000", "--reactors", "2"],
            "leave --reactors out",
        ),
        (
            vec!["udp:127.0.0.1:0?content=bytes", "--filter", "udp"],
            "work on packets",
        ),
        (
            vec!["udp:127.0.0.1:0?content=bytes", "--snap-length", "96"],
            "work on packets",
        ),
    ] {
        let mut all = arguments.clone();
        all.extend(["mem:?size=64M", "--new"]);
        let output = weir(&all);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?} succeeds");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
