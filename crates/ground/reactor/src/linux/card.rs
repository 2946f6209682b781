//! Properties and counts of a network interface, as the kernel and its driver tell them: netdevice(7), and the interface of ethtool(8) (linux/ethtool.h).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netdevice::name_to_index;

use crate::linux::capture::InterfaceInfo;

/// Commands of linux/ethtool.h.
mod command {
    pub(super) const SETTINGS: u32 = 0x01;
    pub(super) const TRANSMIT_CHECKSUMS: u32 = 0x16;
    pub(super) const STRINGS: u32 = 0x1b;
    pub(super) const COUNTERS: u32 = 0x1d;
    pub(super) const TRANSMIT_SEGMENTATION: u32 = 0x1e;
    pub(super) const GENERIC_SEGMENTATION: u32 = 0x23;
    pub(super) const FLAGS: u32 = 0x25;
    pub(super) const GENERIC_RECEIVE: u32 = 0x2b;
    pub(super) const STRING_SETS: u32 = 0x37;
}

/// ETH_SS_STATS: the names of counters.
const COUNTER_NAMES: u32 = 1;
/// Bytes of a name (ETH_GSTRING_LEN).
const NAME_BYTES: usize = 32;
/// Counters of a driver that are asked for at most.
const COUNTERS_MAX: usize = 1 << 13;
/// ETH_FLAG_LRO.
const LARGE_RECEIVE: u32 = 1 << 15;
/// Parts of a counter's name that speak of a loss.
const LOSSES: [&str; 10] = [
    "drop",
    "miss",
    "discard",
    "err",
    "no_buf",
    "nobuf",
    "out_of_buf",
    "fifo",
    "over",
    "timeout",
];

/// Number of an interface; none where there is no such interface.
pub(super) fn index_of(socket: &OwnedFd, interface: &str) -> Option<u32> {
    name_to_index(socket, interface).ok()
}

fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: all zeroes is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.bytes().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    request
}

/// Properties of an interface.
pub(super) fn info(socket: &OwnedFd, interface: &str) -> io::Result<InterfaceInfo> {
    let text = format!("there is no interface {interface}; `ip link` lists what there is");
    let missing = || io::Error::new(io::ErrorKind::NotFound, text);
    if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
        return Err(missing());
    }
    let Some(index) = index_of(socket, interface) else {
        return Err(missing());
    };
    let mut request = request_for(interface);
    // SAFETY: the descriptor is open, and the request is what this ioctl reads and writes.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFHWADDR as _,
            &raw mut request,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this ioctl fills the hardware address, whose family is the type of the hardware.
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
    let is_on = |number| value(socket, interface, number).unwrap_or_default();
    let offloads = [
        (
            "generic-receive-offload",
            is_on(command::GENERIC_RECEIVE) != 0,
        ),
        (
            "large-receive-offload",
            is_on(command::FLAGS) & LARGE_RECEIVE != 0,
        ),
        (
            "tcp-segmentation-offload",
            is_on(command::TRANSMIT_SEGMENTATION) != 0,
        ),
        (
            "generic-segmentation-offload",
            is_on(command::GENERIC_SEGMENTATION) != 0,
        ),
        ("tx-checksumming", is_on(command::TRANSMIT_CHECKSUMS) != 0),
    ];
    let offloads = offloads.into_iter().filter(|(_, is_on)| *is_on);
    Ok(InterfaceInfo {
        index,
        hardware,
        speed: speed(socket, interface),
        offloads: offloads.map(|(name, _)| name).collect(),
    })
}

/// Has the driver of an interface carry out a command, whose structure is `words` and begins with its number.
fn ask(socket: &OwnedFd, interface: &str, words: &mut [u64]) -> io::Result<()> {
    let mut request = request_for(interface);
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the descriptor is open. The request points to the words, which are borrowed for as long as the call takes, and are as many
    // as the structure of the command says of itself that it has: see the callers.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Two words of 32 bits as they lie in memory.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b] = [first, second].map(u32::to_ne_bytes);
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes)
}

/// The value of struct ethtool_value.
fn value(socket: &OwnedFd, interface: &str, number: u32) -> Option<u32> {
    let mut words = [pair(number, 0)];
    ask(socket, interface, &mut words).ok()?;
    Some(halves(words[0])[1])
}

/// Bits a second, by struct ethtool_cmd: 44 bytes, with the speed in Mb/s in two halves.
fn speed(socket: &OwnedFd, interface: &str) -> Option<u64> {
    let mut words = [0; 6];
    words[0] = pair(command::SETTINGS, 0);
    ask(socket, interface, &mut words).ok()?;
    let low = halves(words[1])[1] & 0xffff;
    let high = halves(words[3])[1] & 0xffff;
    let megabits = high << 16 | low;
    let is_known = megabits != 0 && megabits != u32::MAX && megabits != 0xffff;
    is_known.then(|| u64::from(megabits) * 1_000_000)
}

/// The counters of a driver, by their names.
fn driver_counts(socket: &OwnedFd, interface: &str) -> Option<Vec<(String, u64)>> {
    // struct ethtool_sset_info: the command, a reserved word, the mask of sets, and a count for each.
    let mut words = [pair(command::STRING_SETS, 0), 1 << COUNTER_NAMES, 0];
    ask(socket, interface, &mut words).ok()?;
    let count = halves(words[2])[0] as usize;
    if words[1] == 0 || count == 0 || count > COUNTERS_MAX {
        return None;
    }
    // struct ethtool_gstrings: the command, the set, their number, and the names. The kernel asks the driver again how many there are, and
    // copies as many: room is for several times as many as any has.
    let room = 4 * COUNTERS_MAX;
    let mut names = vec![0_u64; 2 + room * NAME_BYTES / 8];
    names[0] = pair(command::STRINGS, COUNTER_NAMES);
    names[1] = pair(count as u32, 0);
    ask(socket, interface, &mut names).ok()?;
    // struct ethtool_stats: the command, their number, and the counts.
    let mut counts = vec![0_u64; 1 + room];
    counts[0] = pair(command::COUNTERS, count as u32);
    ask(socket, interface, &mut counts).ok()?;
    let words = names.iter().take(2 + count * NAME_BYTES / 8);
    let bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
    // Behind three words of 32 bits.
    let named = bytes[12..].chunks_exact(NAME_BYTES).take(count);
    let named = named.zip(&counts[1..]).map(|(name, &count)| {
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        (String::from_utf8_lossy(name).into_owned(), count)
    });
    Some(named.collect())
}

/// The counters of the kernel for an interface, as /proc/net/dev has them (proc(5)).
fn kernel_counts(text: &str, interface: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let Some((_, counts)) = lines.into_iter().find(|(name, _)| *name == interface) else {
        return Vec::new();
    };
    let counts = counts.split_whitespace().map(|count| count.parse().ok());
    let names = [
        "",
        "",
        "rx_errors",
        "rx_dropped",
        "rx_fifo_errors",
        "rx_frame_errors",
    ];
    let named = names
        .into_iter()
        .zip(counts)
        .filter(|(name, _)| !name.is_empty());
    named
        .filter_map(|(name, count)| Some((name.to_owned(), count?)))
        .collect()
}

/// Packets that an interface lost, as the kernel counts them.
pub(super) fn lost(interface: &str) -> io::Result<u64> {
    let counts = kernel_counts(&kernel_text()?, interface);
    let lost = counts.iter().find(|(name, _)| name == "rx_dropped");
    lost.map(|(_, count)| *count)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The counters of the thread's own network namespace.
fn kernel_text() -> io::Result<String> {
    std::fs::read_to_string("/proc/thread-self/net/dev")
}

/// Counters whose names speak of a loss, or of an error, of packets that come.
pub(super) fn loss_counts(socket: &OwnedFd, interface: &str) -> io::Result<Vec<(String, u64)>> {
    let mut counts = kernel_counts(&kernel_text()?, interface);
    let own = driver_counts(socket, interface).unwrap_or_default();
    let own = own.into_iter().filter(|(name, _)| {
        let name = name.to_ascii_lowercase();
        let is_sent = name.starts_with("tx") || name.contains("_tx_");
        !is_sent && LOSSES.iter().any(|part| name.contains(part))
    });
    counts.extend(own);
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_are_found() {
        let text = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes\n    lo: 100 2 3 4 5 6 0 0 100 2 0 0 0 0 0 0\n  eth0:7 8 9 10 11 12 0 0 1 1 0 0 0 0 0 0\n";
        let named = |name: &str, count| (name.to_owned(), count);
        assert_eq!(
            kernel_counts(text, "eth0"),
            [
                named("rx_errors", 9),
                named("rx_dropped", 10),
                named("rx_fifo_errors", 11),
                named("rx_frame_errors", 12)
            ]
        );
        assert_eq!(kernel_counts(text, "eth1"), []);
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            None,
        )
        .expect("a socket");
        let error = info(&socket, "no-such-thing").expect_err("there is none");
        assert!(error.to_string().contains("no-such-thing"), "{error}");
        let lo = info(&socket, "lo").expect("each namespace has one");
        assert_eq!(lo.hardware, libc::ARPHRD_LOOPBACK);
        assert!(loss_counts(&socket, "lo").expect("it has counts").len() >= 4);
    }
}
