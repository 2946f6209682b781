//! Ends the ring's wait from another thread, by an eventfd that the ring reads.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::Notifier;

pub(super) struct EventNotifier {
    descriptor: OwnedFd,
}

impl EventNotifier {
    pub(super) fn new() -> io::Result<Self> {
        // Not O_NONBLOCK: the ring would answer an early read with EAGAIN in place of waiting.
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(EventNotifier { descriptor })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl Notifier for EventNotifier {
    fn notify(&self) {
        // The counter remembers a notification that finds nobody waiting. It is full after 2^64 of them.
        while let Err(error) = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes()) {
            assert_eq!(error, rustix::io::Errno::INTR, "an eventfd takes a count");
        }
    }
}
