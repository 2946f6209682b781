//! `weir record interface:NAME` on a pair of interfaces in a network namespace of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_pcap::{Found, Reader};

use crate::common::gateway::WEIR;

/// Functions of the scripts below. Frames come from veth0 and are recorded at veth1; frame number N has N in it.
const COMMON: &str = r#"
set -eu
cd "$FOLDER"
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null || true
ip link add veth0 mtu 9000 type veth peer name veth1 mtu 9000
ip link set veth0 up
ip link set veth1 up

# opened N: waits until the recorder has its N sockets and has given up the right to open more, after which it takes packets.
opened() {
    for attempt in $(seq 6000); do
        kill -0 "$recorder" || { cat ./*.err >&2; exit 1; }
        held=$(awk '/^CapEff/ { print $2 }' "/proc/$recorder/status")
        [ "$(tail -n +2 /proc/self/net/packet | wc -l)" = "$1" ] && [ $((0x$held >> 13 & 1)) = 0 ] && return
        sleep 0.01
    done
}

# record RING ARGUMENT...: begins to record.
record() {
    ring=$1
    shift
    "$WEIR" record "$@" "file:$FOLDER/$ring?size=64M" --new --json >"$ring.json" 2>"$ring.err" &
    recorder=$!
    opened 1
}

# send FROM TO [SIZE]: sends frames of these numbers, and waits until the last one has come to whoever listens at veth1.
send() {
    python3 - "$@" <<'END'
import socket, sys
first, last = int(sys.argv[1]), int(sys.argv[2])
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("veth0", 0))
back = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
back.bind(("veth1", 0))
back.setblocking(False)
end = (last - 1).to_bytes(8, "big")
has_come = False

def look():
    global has_come
    try:
        while True:
            has_come |= end in back.recv(65536)[:40]
    except BlockingIOError:
        pass

for number in range(first, last):
    size = int(sys.argv[3]) if len(sys.argv) > 3 else [0, 8, 50, 1486, 8900][number % 5]
    tag = [b"", b"\x81\x00\x00\x05", b"\x88\xa8\x20\x06"][number % 3]
    data = number.to_bytes(8, "big") + bytes(index % 251 for index in range(size))
    out.send(bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]) + tag + b"\x88\xb5" + data)
    look()
back.settimeout(120)
while not has_come:
    has_come = end in back.recv(65536)[:40]
END
}

# holds N VOLUME...: waits until so many packets are committed.
holds() {
    count=$1
    shift
    until "$WEIR" record list "$@" --json 2>/dev/null | grep -q "\"packets\": $count,"; do
        kill -0 "$recorder"
        sleep 0.05
    done
}

# stop: asks the recorder to stop; its exit status is in `status`.
stop() {
    kill -INT "$recorder"
    status=0
    wait "$recorder" || status=$?
}

extract() { "$WEIR" record extract "file:$FOLDER/$1" --out "$1.pcapng" >/dev/null; }
"#;

/// Runs a script in a network namespace, in the folder; false, where there can be none.
pub(crate) fn script(folder: &Path, text: &str) -> bool {
    let can = Command::new("unshare")
        .args(["-rn", "sh", "-c", "ip link && python3 -c 0"])
        .stdout(Stdio::null())
        .status();
    if !can.is_ok_and(|status| status.success()) {
        println!(
            "skipped: no network namespace can be made here, or there is no iproute2 or Python"
        );
        return false;
    }
    let output = Command::new("unshare")
        .args(["-rn", "bash", "-c", &format!("{COMMON}\n{text}")])
        .env("WEIR", WEIR)
        .env("FOLDER", folder)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    true
}

pub(crate) fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("it is there");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Frames of a file: number, length, and the bytes that were kept.
fn frames(path: &Path) -> Vec<(u64, u32, Vec<u8>)> {
    let file = std::fs::read(path).expect("it is there");
    let (mut reader, mut left) = (Reader::new(), &file[..]);
    let mut frames = Vec::new();
    while let Some(found) = reader.next(&mut left).expect("a file of packets") {
        if let Found::Packet(packet) = found {
            let head = match packet.data[12..14] {
                [0x88, 0xb5] => 14,
                _ => 18,
            };
            let number = packet.data[head..head + 8].try_into().expect("eight bytes");
            let number = u64::from_be_bytes(number);
            frames.push((number, packet.length, packet.data.to_vec()));
        }
    }
    reader.end(left).expect("it is whole");
    frames
}

/// Frame number N, as it was sent.
fn frame(number: u64, size: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(match number % 3 {
        0 => &[][..],
        1 => &[0x81, 0, 0, 5],
        _ => &[0x88, 0xa8, 0x20, 6],
    });
    frame.extend([0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.extend((0..size).map(|index| (index % 251) as u8));
    frame
}

const SIZES: [usize; 5] = [0, 8, 50, 1486, 8900];

#[test]
fn packets_of_an_interface_are_recorded_as_they_were_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let ran = script(
        path,
        r#"
        record whole interface:veth1
        send 0 3000
        grep CapEff "/proc/$recorder/status" >caps
        stop
        [ "$status" = 0 ]
        extract whole
        record cut interface:veth1 --snap-length 40
        send 0 100
        stop
        extract cut
        record chosen interface:veth1 --filter 'vlan 5 and len > 1000'
        send 0 300
        stop
        extract chosen
        ! "$WEIR" record interface:nowhere "file:$FOLDER/x?size=64M" --new 2>nowhere.err
        ! "$WEIR" record interface:veth1 "file:$FOLDER/x?size=64M" --new --filter 'no filter' 2>filter.err
        # A packet file, by the filter of those that lie in files.
        "$WEIR" record "pcap:$FOLDER/whole.pcapng" "file:$FOLDER/again?size=64M" --new --filter 'vlan 5' --json >again.json
        extract again
        "#,
    );
    if !ran {
        return;
    }
    let size = |number: u64| SIZES[(number % 5) as usize];
    let counts = &json(&path.join("whole.json"))["counts"];
    assert_eq!(counts["kept"], 3000, "{counts}");
    assert_eq!(
        (&counts["lost_socket"], &counts["lost_slow"]),
        (&0.into(), &0.into())
    );
    let all = frames(&path.join("whole.pcapng"));
    assert_eq!(all.len(), 3000);
    for (index, (number, length, data)) in all.iter().enumerate() {
        let sent = frame(index as u64, size(index as u64));
        assert_eq!((*number, *length as usize), (index as u64, sent.len()));
        assert!(*data == sent, "frame {index}");
    }
    for (number, length, data) in frames(&path.join("cut.pcapng")) {
        let sent = frame(number, size(number));
        assert_eq!(length as usize, sent.len());
        // The tag comes on top: the kernel counts without it.
        let kept = data.len();
        assert!(
            kept == sent.len().min(40) || kept == sent.len().min(44),
            "{kept}"
        );
        assert!(sent.starts_with(&data));
    }
    let chosen = frames(&path.join("chosen.pcapng"));
    let numbers: Vec<u64> = chosen.iter().map(|(number, ..)| *number).collect();
    let wanted = (0..300).filter(|&number| number % 3 == 1 && size(number) > 1000);
    assert_eq!(numbers, wanted.collect::<Vec<_>>());
    let again = frames(&path.join("again.pcapng"));
    assert_eq!(again.len(), 1000);
    assert!(again.iter().all(|(number, ..)| number % 3 == 1));
    assert_eq!(json(&path.join("again.json"))["counts"]["filtered"], 2000);
    let text = |name: &str| std::fs::read_to_string(path.join(name)).expect("it is there");
    assert!(text("nowhere.err").contains("there is no interface nowhere"));
    assert!(text("filter.err").contains("invalid filter 'no filter'"));
    let held = text("caps");
    let held = held.split_whitespace().last().expect("a number");
    let held = u64::from_str_radix(held, 16).expect("it is hexadecimal");
    const NET_RAW: u32 = 13;
    assert_eq!(held >> NET_RAW & 1, 0, "CAP_NET_RAW is given up");
}

#[test]
fn packets_that_found_no_room_in_the_kernel_are_counted_to_the_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let ran = script(
        path,
        r#"
        record lossy 'interface:veth1?ring=2M'
        send 0 500 500
        # The kernel's ring fills while nobody empties it.
        kill -STOP "$recorder"
        send 500 10500 500
        kill -CONT "$recorder"
        stop
        extract lossy
        "$WEIR" record list "file:$FOLDER/lossy" --json >list.json
        "#,
    );
    if !ran {
        return;
    }
    let counts = &json(&path.join("lossy.json"))["counts"];
    let count = |name: &str| counts[name].as_u64().expect("a count");
    let (kept, lost) = (count("kept"), count("lost_socket"));
    // A recorder that is slow loses some of the first ones, too.
    assert!(kept > 0 && lost > 0, "{counts}");
    assert_eq!((kept + lost, count("lost_slow")), (10_500, 0), "{counts}");
    let listed = &json(&path.join("list.json"))["recordings"][0]["counts"];
    assert_eq!(listed["lost_socket"], lost);
    let numbers = frames(&path.join("lossy.pcapng"));
    assert_eq!(numbers.len() as u64, kept);
    // At the end of the file stands what was lost, for others to read.
    let file = std::fs::read(path.join("lossy.pcapng")).expect("it is there");
    let (mut reader, mut left) = (Reader::new(), &file[..]);
    let mut last = BTreeMap::new();
    while let Some(found) = reader.next(&mut left).expect("a file of packets") {
        if let Found::Statistics(statistics) = found {
            last.insert(statistics.interface, statistics);
        }
    }
    let told = &last[&0];
    assert_eq!(
        (told.received, told.system_dropped, told.delivered),
        (Some(10_500), Some(lost), Some(kept))
    );
}

/// By flow, on two reactors, each with a kernel's ring and a stream of segments of its own.
#[test]
fn packets_of_several_reactors_are_merged_by_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let ran = script(
        path,
        r#"
        [ "$(nproc)" -ge 2 ] || exit 0
        "$WEIR" record interface:veth1 "file:$FOLDER/two?size=64M" "file:$FOLDER/three?size=64M" --new --reactors 2 --json >two.json 2>two.err &
        recorder=$!
        opened 2
        python3 - <<'END'
import socket, struct
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("veth0", 0))
for number in range(4000):
    # 40 flows of UDP.
    data = number.to_bytes(8, "big") + bytes(100)
    udp = struct.pack("!HHHH", 1000 + number % 40, 9, 8 + len(data), 0) + data
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
    out.send(bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]) + ip + udp)
END
        holds 4000 "file:$FOLDER/two" "file:$FOLDER/three"
        stop
        [ "$status" = 0 ]
        "$WEIR" record extract "file:$FOLDER/two" "file:$FOLDER/three" --out two.pcapng --json >extracted.json
        "$WEIR" record list "file:$FOLDER/two" "file:$FOLDER/three" --json >list.json
        # At the sending end: nothing comes in, on one reactor or on two; on the loopback each packet comes in once.
        for reactors in 1 2; do
            "$WEIR" record 'interface:veth0?direction=in' "file:$FOLDER/in$reactors?size=64M" --new --reactors $reactors --json >in$reactors.json 2>in.err &
            recorder=$!
            opened $reactors
            send 0 100 200
            stop
            ip link set lo up
            "$WEIR" record interface:lo "file:$FOLDER/lo$reactors?size=64M" --new --reactors $reactors --json >lo$reactors.json 2>lo.err &
            recorder=$!
            opened $reactors
            ip addr add 192.0.2.9/32 dev lo 2>/dev/null || true
            python3 -c 'import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("192.0.2.9", 9))
for port in range(100):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(100), ("192.0.2.9", 9))
    own.recv(1000)'
            stop
        done
        "#,
    );
    if !ran {
        return;
    }
    if !path.join("list.json").exists() {
        println!("skipped: two reactors need two processors");
        return;
    }
    assert_eq!(json(&path.join("two.json"))["counts"]["kept"], 4000);
    for reactors in [1, 2] {
        let kept = |name: &str| {
            json(&path.join(format!("{name}{reactors}.json")))["counts"]["kept"].clone()
        };
        assert_eq!(
            (kept("in"), kept("lo")),
            (0.into(), 100.into()),
            "{reactors}"
        );
    }
    let listed = &json(&path.join("list.json"))["recordings"];
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(
        (&listed[0]["counts"]["kept"], &listed[0]["is_closed"]),
        (&4000.into(), &true.into())
    );
    let file = std::fs::read(path.join("two.pcapng")).expect("it is there");
    let (mut reader, mut left) = (Reader::new(), &file[..]);
    let (mut numbers, mut times, mut told) = (Vec::new(), Vec::new(), None);
    while let Some(found) = reader.next(&mut left).expect("a file of packets") {
        match found {
            Found::Packet(packet) => {
                numbers.push(u64::from_be_bytes(
                    packet.data[42..50].try_into().expect("eight"),
                ));
                times.push(packet.time);
            }
            Found::Statistics(statistics) => told = Some(statistics),
            _ => {}
        }
    }
    assert!(times.is_sorted(), "by time");
    numbers.sort_unstable();
    assert_eq!(numbers, (0..4000).collect::<Vec<_>>());
    let told = told.expect("counts are at the end");
    assert_eq!((told.received, told.delivered), (Some(4000), Some(4000)));
}

#[test]
fn an_interface_that_goes_down_is_waited_for_and_one_that_is_gone_ends_the_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let ran = script(
        path,
        r#"
        record gone interface:veth1
        send 0 100
        holds 100 "file:$FOLDER/gone"
        ip link set veth1 down
        ip link set veth1 up
        until ip -o link show veth0 | grep -q LOWER_UP; do sleep 0.01; done
        send 100 200
        ip link del veth1
        status=0
        wait "$recorder" || status=$?
        echo "$status" >status
        extract gone
        "$WEIR" record list "file:$FOLDER/gone" >list
        "#,
    );
    if !ran {
        return;
    }
    let text = |name: &str| std::fs::read_to_string(path.join(name)).expect("it is there");
    assert_eq!(text("status").trim(), "1");
    assert!(text("gone.err").contains("the interface veth1 was removed"));
    assert!(text("list").contains("whole"), "it ended in order");
    let numbers: Vec<u64> = frames(&path.join("gone.pcapng"))
        .iter()
        .map(|(number, ..)| *number)
        .collect();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}
