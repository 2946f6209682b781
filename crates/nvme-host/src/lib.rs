//! The NVMe over TCP initiator, as a volume.
#![forbid(unsafe_code)]
