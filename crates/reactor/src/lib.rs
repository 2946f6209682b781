//! The event loop, and its drivers: io_uring and the deterministic one.
