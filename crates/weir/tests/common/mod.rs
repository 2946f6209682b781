//! What tests of whole gateways share.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that is free, of those that the system gives to nobody by itself: while a gateway is dead, no socket takes its port.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(64);
    loop {
        let next = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (next % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
