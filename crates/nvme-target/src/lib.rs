//! The NVMe over TCP target.
#![forbid(unsafe_code)]
