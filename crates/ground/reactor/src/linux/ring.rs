//! One io_uring and the system calls on it. Knows entries, not operations.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue, types};

use crate::Instant;
use crate::linux::feature::{Feature, Features};

/// Opcode of io_uring_register: registers the ring's own descriptor with the calling thread (Linux 5.18).
const REGISTER_RING_FDS: libc::c_uint = 20;
/// Opcode of io_uring_register: undoes [`REGISTER_RING_FDS`].
const UNREGISTER_RING_FDS: libc::c_uint = 21;

const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
pub(super) const ENTER_ABS_TIMER: u32 = 1 << 5;
pub(super) const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// One wait is at most this long: the kernel adds a relative time to its clock without a look at overflow, and a time far
/// away enough would be over at once.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// `struct io_uring_rsrc_update`, as [`REGISTER_RING_FDS`] takes it.
#[repr(C)]
struct ResourceUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// A ring for one thread: the one that made it, which alone may use it.
pub(super) struct Ring {
    uring: IoUring,
    /// What io_uring_enter takes: an index where the descriptor is registered with the thread, else the descriptor.
    enter_fd: i32,
    /// Flags that go with every io_uring_enter.
    enter_flags: u32,
    /// Whether deadlines go to the kernel as they are.
    absolute: bool,
    /// Calls of io_uring_enter so far.
    enters: Cell<u64>,
}

/// `flags` of io_uring_setup that every ring has; all of them are in Linux 6.1.
pub(super) fn builder(entries: u32) -> io_uring::Builder {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(completion_entries(entries));
    builder
}

/// Completions that the ring holds before the kernel must keep them aside: several for every submission of a turn, since
/// many more operations are in flight than are submitted at once.
fn completion_entries(entries: u32) -> u32 {
    entries.saturating_mul(8)
}

impl Ring {
    pub(super) fn new(entries: u32, features: &Features) -> io::Result<Self> {
        let mut builder = builder(entries);
        if features.uses(Feature::NoSubmissionArray) {
            builder.setup_no_sqarray();
        }
        let uring = builder.build(entries)?;
        let mut ring = Ring {
            enter_fd: uring.as_raw_fd(),
            uring,
            enter_flags: 0,
            absolute: features.uses(Feature::AbsoluteTimeout),
            enters: Cell::new(0),
        };
        if features.uses(Feature::NoIowait) {
            ring.enter_flags |= ENTER_NO_IOWAIT;
        }
        ring.register_own_descriptor();
        Ok(ring)
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.uring.submitter()
    }

    /// Spares the kernel a look-up per call. Where it fails (a thread has few such places) the descriptor itself serves.
    fn register_own_descriptor(&mut self) {
        let mut update = ResourceUpdate {
            offset: u32::MAX,
            reserved: 0,
            data: self.uring.as_raw_fd() as u64,
        };
        if self.register(REGISTER_RING_FDS, &mut update).is_ok() {
            self.enter_fd = update.offset as i32;
            self.enter_flags |= ENTER_REGISTERED_RING;
        }
    }

    fn register(&self, opcode: libc::c_uint, update: &mut ResourceUpdate) -> io::Result<()> {
        // SAFETY: the descriptor is a ring's, and `update` is the one structure that these opcodes read and write.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.uring.as_raw_fd(),
                opcode,
                std::ptr::from_mut(update),
                1,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// How many system calls were made to submit and to wait.
    #[cfg(test)]
    pub(super) fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Queues an entry; false when there is no room before [`Ring::submit`].
    ///
    /// # Safety
    /// What the entry refers to must stay valid until its completion has been taken.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: by the caller's promise.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    /// Entries queued and not submitted.
    fn pending(&mut self) -> u32 {
        self.uring.submission().len() as u32
    }

    /// Whether there are completions to take.
    pub(super) fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Hands queued entries to the kernel.
    pub(super) fn submit(&mut self) {
        let pending = self.pending();
        if pending > 0 {
            self.enter(pending, 0, 0, None);
        }
    }

    /// Hands queued entries to the kernel and lets it post what is complete. No system call where there is nothing to do.
    pub(super) fn poll(&mut self) {
        let pending = self.pending();
        let queue = self.uring.submission();
        let posted_late = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if pending > 0 || posted_late {
            self.enter(pending, 0, ENTER_GETEVENTS, None);
        }
    }

    /// As [`Ring::poll`], and waits for a completion until `deadline`. `now` is the time now.
    pub(super) fn wait(&mut self, deadline: Option<Instant>, now: Instant) {
        let pending = self.pending();
        let Some(deadline) = deadline else {
            self.enter(pending, 1, ENTER_GETEVENTS, None);
            return;
        };
        if deadline <= now {
            self.poll();
            return;
        }
        let deadline = deadline.min(now + WAIT_MAX);
        let (time, flag) = if self.absolute {
            (deadline.as_nanos(), ENTER_ABS_TIMER)
        } else {
            (deadline.since(now).as_nanos() as u64, 0)
        };
        let time = types::Timespec::from(Duration::from_nanos(time));
        let arguments = types::SubmitArgs::new().timespec(&time);
        self.enter(pending, 1, ENTER_GETEVENTS | flag, Some(&arguments));
    }

    /// Takes the completions that are there.
    pub(super) fn take(&mut self, into: &mut Vec<cqueue::Entry>) {
        loop {
            into.extend(self.uring.completion());
            if !self.uring.submission().cq_overflow() {
                return;
            }
            // The kernel keeps completions aside that did not fit; now they do.
            self.enter(0, 0, ENTER_GETEVENTS, None);
        }
    }

    /// One io_uring_enter. Whatever it could not do (a signal came, memory is short, the time is up) is done by the next.
    fn enter(
        &self,
        submit: u32,
        wait_for: u32,
        flags: u32,
        arguments: Option<&types::SubmitArgs<'_, '_>>,
    ) {
        let flags = flags | self.enter_flags;
        let flags = if arguments.is_some() {
            flags | ENTER_EXT_ARG
        } else {
            flags
        };
        let (pointer, length) = match arguments {
            Some(arguments) => (std::ptr::from_ref(arguments), size_of_val(arguments)),
            None => (std::ptr::null(), 0),
        };
        self.enters.set(self.enters.get() + 1);
        // SAFETY: the descriptor is a ring's; entries were pushed under `push`'s promise; the argument is the structure
        // that ENTER_EXT_ARG names, and outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submit,
                wait_for,
                flags,
                pointer,
                length,
            )
        };
        if result >= 0 {
            return;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY) => {}
            _ => panic!("io_uring_enter failed, which its arguments rule out: {error}"),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.enter_flags & ENTER_REGISTERED_RING != 0 {
            let mut update = ResourceUpdate {
                offset: self.enter_fd as u32,
                reserved: 0,
                data: 0,
            };
            // Fails only on another thread, where the kernel gives the place back at the owner's end.
            let _ = self.register(UNREGISTER_RING_FDS, &mut update);
        }
    }
}
