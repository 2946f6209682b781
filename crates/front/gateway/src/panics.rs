//! What a broken invariant ends.
//!
//! A panic within one connection ends that connection: its reactor catches it, counts it (`weir_connection_panics_total`) and
//! says whose it was. Any other panic, on a reactor, the control thread or a thread for blocking work, ends the process at once:
//! what others use may have been left half changed. What was acknowledged is as safe then as after `kill -9`.
//!
//! Without this hook a runtime would catch some of them and go on.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// From now on, a panic outside any connection ends the process, with a line in the log. For a program that serves and does nothing
/// else.
pub fn end_the_process_on_any() {
    std::panic::set_hook(Box::new(|info| {
        if weir_reactor::panic_is_contained() {
            // Who catches it says whose connection it was.
            log(info, "an invariant broke in a connection");
            return;
        }
        log(
            info,
            "an invariant broke outside any connection: the process ends",
        );
        std::process::abort();
    }));
}

fn log(info: &PanicHookInfo<'_>, what: &str) {
    let current = std::thread::current();
    let thread = current.name().unwrap_or("unnamed");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let message = text
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    // Where RUST_BACKTRACE asks for one.
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            tracing::error!(thread, place, panic = message, %backtrace, "{what}");
        }
        _ => tracing::error!(thread, place, panic = message, "{what}"),
    }
}
