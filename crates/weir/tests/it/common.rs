//! Helpers of the tests of whole programs.

pub(crate) mod agents;
pub(crate) mod gateway;
pub(crate) mod lies;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

/// Longest wait of a test before it gives up. Only a bound: nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Tries of what comes to nothing on a machine that stands still for as long as it takes.
const TRIES: u32 = 20;

/// Waits until `done` says so.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Does something short again until it comes to something: a process that is stopped meanwhile may miss all of it. The attempts have numbers,
/// from 1, so that the later ones may take longer.
#[track_caller]
pub(crate) fn retry<T>(what: &str, attempt: impl FnMut(u32) -> Option<T>) -> T {
    let found = (1..=TRIES).find_map(attempt);
    found.unwrap_or_else(|| panic!("in vain, {TRIES} times: {what}"))
}

/// Tells whether tests run at full size: `scripts/nightly` sets this variable for what takes long and adds little.
pub(crate) fn nightly() -> bool {
    std::env::var_os("WEIR_NIGHTLY").is_some_and(|value| !value.is_empty())
}

/// Ends a test that waits for longer than a change has time for, with the reason; tests/skips names it.
macro_rules! by_night {
    ($why:literal) => {
        if !crate::common::nightly() {
            println!("skipped: by night only: {}", $why);
            return;
        }
    };
}
pub(crate) use by_night;

/// Tells whether a process handles a signal by now. Before that the signal would end it at once.
pub(crate) fn catches(process: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default() & (1 << (signal.as_raw() - 1)) != 0
}

/// Counts how often the first reactor of a tool has slept; 0 before it is there.
pub(crate) fn sleeps_of_reactor(process: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return 0;
    };
    let of_thread = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_reactor = field("Name:")?.trim() == "weir-tool-0";
        is_reactor.then(|| field("voluntary_ctxt_switches:")?.trim().parse().ok())?
    };
    let found = threads.flatten().find_map(of_thread);
    found.unwrap_or_default()
}

/// A port of 127.0.0.1 that belongs to this process until it ends.
///
/// A socket that never listens holds it: a gateway that allows the reuse of addresses, as Weir does, may listen there, again and
/// again, and the system gives the port to nobody else while no gateway runs.
pub(crate) fn free_port() -> u16 {
    static HELD: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option");
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .expect("a port is free");
    let bound = socket.local_addr().expect("an address");
    HELD.lock().expect("nobody panics with it").push(socket);
    bound.as_socket().expect("of the internet").port()
}
