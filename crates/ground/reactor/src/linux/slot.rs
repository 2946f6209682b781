//! One operation in flight: what the kernel is asked, and what its answers make of the operation.
//!
//! A slot keeps everything that a submission refers to besides the operation's own buffers (vectors, addresses) at one
//! place in memory, and is used again and again, so that a steady stream of operations allocates nothing. Memory for vectors
//! goes from one operation to the next, whatever their slots: there is as much as operations are in flight, of the length
//! that they need.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::types::Fd;
use io_uring::{opcode, squeue, types};
use weir_memory::{Segment, View, segments_len, views_len};

use crate::linux::buffers::{GROUP, HEADERS_BYTES};
use crate::linux::socket;
use crate::{AllocateMode, Amount, Handle, Op, Output, ReceiveInto, Socket};

/// Vectors in one system call at most (IOV_MAX); longer lists take several.
const VECTORS_MAX: usize = 1024;

/// Bytes in one system call at most (MAX_RW_COUNT); longer transfers take several.
const TRANSFER_MAX: usize = 0x7fff_f000;

/// fallocate(2) on a block device before Linux 6.12: discard, whatever it reads as afterwards.
const FALLOC_FL_NO_HIDE_STALE: i32 = 0x04;

/// `BLOCK_URING_CMD_DISCARD` of `linux/blkdev.h`: `_IO(0x12, 0)`.
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// A direct read stops at a byte that is no multiple of this only where the file ends.
const SECTOR: usize = 512;

/// What is to be done after a completion.
pub(super) enum Next {
    /// The operation is done.
    Done(io::Result<Output>),
    /// The kernel is asked for the rest.
    Again,
    /// There was no buffer to receive into; the receive waits for one.
    Starved,
    /// There are no bytes yet; the receive starts later.
    Later,
}

/// How long a receive has waited with a large buffer for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BulkWait {
    Young,
    /// Since before others were last looked for a large buffer from.
    Old,
    /// It was called back, to wait without one.
    CalledBack,
}

/// How the next submission of [`AllocateMode::Discard`] asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiscardBy {
    Command,
    Stale,
    Punch,
}

pub(super) struct Slot {
    pub(super) op: Option<Op>,
    /// Its early end was asked for: it is not continued any more.
    pub(super) cancelled: bool,
    /// It waits for a buffer, and the kernel does not know it.
    pub(super) starved: bool,
    /// It is a receive that was not started yet.
    pub(super) held: bool,
    /// It is a receive that comes back when there are no bytes yet.
    pub(super) looks: bool,
    /// The large buffer of a receive that expects much.
    bulk: Option<Segment>,
    bulk_wait: BulkWait,
    /// Bytes done by earlier submissions.
    progress: usize,
    discard_by: DiscardBy,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
    address: libc::sockaddr_storage,
    address_length: libc::socklen_t,
}

impl Slot {
    pub(super) fn new() -> Box<Self> {
        // SAFETY: all zeroes is a value of both structures: null pointers and no family.
        let (message, address) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Box::new(Slot {
            op: None,
            cancelled: false,
            starved: false,
            held: false,
            looks: false,
            bulk: None,
            bulk_wait: BulkWait::Young,
            progress: 0,
            discard_by: DiscardBy::Punch,
            vectors: Vec::new(),
            message,
            address,
            address_length: 0,
        })
    }

    /// Takes an operation. The result, where it needs no kernel.
    pub(super) fn begin(&mut self, op: Op, discards_by_command: bool) -> Option<Output> {
        assert!(self.op.is_none(), "a slot holds one operation");
        let nothing_to_do = match &op {
            Op::Send { gather, .. } if gather.is_empty() => Some(Output::Done),
            Op::Receive {
                into: ReceiveInto::Segment { segment, from },
                ..
            } if *from >= segment.len() => Some(Output::Count(0)),
            Op::Read { into, .. } if segments_len(into) == 0 => Some(Output::Count(0)),
            Op::Write { data, .. } if views_len(data) == 0 => Some(Output::Count(0)),
            Op::Allocate { length: 0, .. } => Some(Output::Done),
            _ => None,
        };
        self.discard_by = match &op {
            Op::Allocate {
                file,
                mode: AllocateMode::Discard,
                ..
            } if is_block_device(file.handle()) => {
                if discards_by_command {
                    DiscardBy::Command
                } else {
                    DiscardBy::Stale
                }
            }
            _ => DiscardBy::Punch,
        };
        self.op = Some(op);
        self.progress = 0;
        self.cancelled = false;
        self.starved = false;
        self.held = false;
        self.looks = false;
        self.bulk_wait = BulkWait::Young;
        nothing_to_do
    }

    /// Whether it is an operation that may be asked again and again: a receive of whatever there is.
    pub(super) fn can_wait(&self) -> bool {
        matches!(
            self.op,
            Some(Op::Receive {
                into: ReceiveInto::Ring(_),
                ..
            })
        )
    }

    /// Whether it moves bytes from or to a file.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self.op, Some(Op::Read { .. } | Op::Write { .. }))
    }

    /// Whether the kernel has the operation, or will have it with what was queued.
    pub(super) fn is_in_kernel(&self) -> bool {
        self.op.is_some() && !self.starved && !self.held
    }

    /// Lends memory for the vectors of the next operation.
    pub(super) fn lend_vectors(&mut self, vectors: Vec<libc::iovec>) {
        self.vectors = vectors;
    }

    /// The memory that was lent for vectors, when it is worth keeping. The operation has ended.
    pub(super) fn take_vectors(&mut self) -> Option<Vec<libc::iovec>> {
        (self.vectors.capacity() > 0).then(|| std::mem::take(&mut self.vectors))
    }

    /// Whether it is a receive that expects much and has no large buffer yet, nor lost one.
    pub(super) fn wants_bulk(&self) -> bool {
        self.bulk.is_none()
            && self.bulk_wait != BulkWait::CalledBack
            && matches!(
                &self.op,
                Some(Op::Receive {
                    into: ReceiveInto::Ring(Amount::Bulk),
                    ..
                })
            )
    }

    /// An operation that ended without a use for its large buffer has none any more.
    pub(super) fn bulk_returns(&mut self) {
        self.bulk = None;
    }

    #[cfg(test)]
    pub(super) fn has_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    /// Gives a receive a large buffer.
    pub(super) fn set_bulk(&mut self, segment: Segment) {
        self.bulk = Some(segment);
    }

    /// Whether its large buffer is to be called back: it has waited with it since before the last time that this was asked.
    pub(super) fn calls_bulk_back(&mut self) -> bool {
        if self.bulk.is_none() || self.cancelled {
            return false;
        }
        let (next, idle) = match self.bulk_wait {
            BulkWait::Young => (BulkWait::Old, false),
            BulkWait::Old => (BulkWait::CalledBack, true),
            BulkWait::CalledBack => (BulkWait::CalledBack, false),
        };
        self.bulk_wait = next;
        idle
    }

    /// The submission for what is left of the operation. It refers to this slot and to the operation's buffers.
    pub(super) fn entry(&mut self, receive_bytes: u32) -> squeue::Entry {
        let mut op = self.op.take().expect("a slot in use holds an operation");
        let entry = match &mut op {
            Op::Accept { listener } => self.accept(descriptor(listener.handle())),
            Op::Connect { socket, address } => self.connect(
                descriptor(socket.handle()),
                socket2::SockAddr::from(*address),
            ),
            Op::Receive { socket, into } => {
                self.receive(descriptor(socket.handle()), into, receive_bytes)
            }
            Op::Ready { socket } => {
                let events = (libc::POLLIN | libc::POLLERR) as u32;
                opcode::PollAdd::new(Fd(socket.as_raw_fd()), events).build()
            }
            Op::Send { socket, gather } => {
                self.gather(gather.slices());
                self.send(descriptor(socket.handle()))
            }
            Op::Read { file, offset, into } => {
                let buffers = into.iter_mut().map(|segment| &**segment);
                self.gather(buffers);
                self.read(descriptor(file.handle()), *offset)
            }
            Op::Write {
                file,
                offset,
                data,
                durable,
            } => {
                self.gather(data.iter().map(|view| &**view));
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                self.write(descriptor(file.handle()), *offset, flags)
            }
            Op::Sync { file } => opcode::Fsync::new(descriptor(file.handle()))
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Op::Allocate {
                file,
                offset,
                length,
                mode,
            } => self.allocate(descriptor(file.handle()), *offset, *length, *mode),
        };
        self.op = Some(op);
        entry
    }

    fn accept(&mut self, listener: Fd) -> squeue::Entry {
        self.address_length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let address = std::ptr::from_mut(&mut self.address).cast();
        opcode::Accept::new(listener, address, &mut self.address_length)
            .flags(libc::SOCK_CLOEXEC)
            .build()
    }

    fn connect(&mut self, socket: Fd, address: socket2::SockAddr) -> squeue::Entry {
        self.address_length = address.len();
        // SAFETY: SockAddrStorage is a transparent sockaddr_storage.
        self.address = unsafe { address.as_ptr().cast::<libc::sockaddr_storage>().read() };
        let pointer = std::ptr::from_ref(&self.address).cast();
        opcode::Connect::new(socket, pointer, self.address_length).build()
    }

    fn receive(&mut self, socket: Fd, into: &mut ReceiveInto, ring_bytes: u32) -> squeue::Entry {
        match into {
            ReceiveInto::Ring(amount) => {
                let flags = if self.looks { libc::MSG_DONTWAIT } else { 0 };
                if let Some(bulk) = &mut self.bulk {
                    let length = bulk.len() as u32;
                    return opcode::Recv::new(socket, bulk.as_mut_ptr(), length)
                        .flags(flags)
                        .build();
                }
                let bytes = match amount {
                    Amount::Headers => ring_bytes.min(HEADERS_BYTES),
                    Amount::Usual | Amount::Bulk => ring_bytes,
                };
                opcode::Recv::new(socket, std::ptr::null_mut(), bytes)
                    .buf_group(GROUP)
                    .flags(flags)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            ReceiveInto::Segment { segment, from } => {
                let rest = &mut segment[*from + self.progress..];
                opcode::Recv::new(
                    socket,
                    rest.as_mut_ptr(),
                    rest.len().min(TRANSFER_MAX) as u32,
                )
                .flags(libc::MSG_WAITALL)
                .build()
            }
        }
    }

    fn send(&mut self, socket: Fd) -> squeue::Entry {
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        if let [only] = self.vectors[..] {
            return opcode::Send::new(socket, only.iov_base.cast(), only.iov_len as u32)
                .flags(flags)
                .build();
        }
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len() as _;
        opcode::SendMsg::new(socket, &self.message)
            .flags(flags as u32)
            .build()
    }

    fn read(&mut self, file: Fd, offset: u64) -> squeue::Entry {
        let offset = offset + self.progress as u64;
        match self.vectors[..] {
            [only] => opcode::Read::new(file, only.iov_base.cast(), only.iov_len as u32)
                .offset(offset)
                .build(),
            ref vectors => opcode::Readv::new(file, vectors.as_ptr(), vectors.len() as u32)
                .offset(offset)
                .build(),
        }
    }

    fn write(&mut self, file: Fd, offset: u64, flags: i32) -> squeue::Entry {
        let offset = offset + self.progress as u64;
        match self.vectors[..] {
            [only] => opcode::Write::new(file, only.iov_base.cast(), only.iov_len as u32)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            ref vectors => opcode::Writev::new(file, vectors.as_ptr(), vectors.len() as u32)
                .offset(offset)
                .rw_flags(flags)
                .build(),
        }
    }

    fn allocate(
        &mut self,
        file: Fd,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> squeue::Entry {
        let mode = match (mode, self.discard_by) {
            (AllocateMode::Discard, DiscardBy::Command) => return discard(file, offset, length),
            (AllocateMode::Discard, DiscardBy::Stale) => {
                libc::FALLOC_FL_PUNCH_HOLE | FALLOC_FL_NO_HIDE_STALE
            }
            (AllocateMode::Discard, DiscardBy::Punch) | (AllocateMode::PunchHole, _) => {
                libc::FALLOC_FL_PUNCH_HOLE
            }
            (AllocateMode::ZeroRange, _) => libc::FALLOC_FL_ZERO_RANGE,
            (AllocateMode::Reserve, _) => 0,
        };
        let length_stays = match mode {
            0 => 0,
            _ => libc::FALLOC_FL_KEEP_SIZE,
        };
        opcode::Fallocate::new(file, length)
            .offset(offset)
            .mode(mode | length_stays)
            .build()
    }

    /// Collects what is left of `slices` after [`Slot::progress`] bytes, as much as one system call takes.
    fn gather<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>) {
        self.vectors.clear();
        let mut skip = self.progress;
        for slice in slices {
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let rest = &slice[skip..];
            skip = 0;
            self.vectors.push(libc::iovec {
                iov_base: rest.as_ptr().cast_mut().cast(),
                iov_len: rest.len().min(TRANSFER_MAX),
            });
            if self.vectors.len() == VECTORS_MAX || rest.len() > TRANSFER_MAX {
                return;
            }
        }
        assert!(
            !self.vectors.is_empty(),
            "an operation that is done is not submitted again"
        );
    }

    /// What a completion makes of the operation. `received` is the buffer of a receive that chose one; `accepted` makes a
    /// socket of a descriptor.
    pub(super) fn complete(
        &mut self,
        result: i32,
        received: Option<View>,
        accepted: impl FnOnce(RawFd) -> Socket,
    ) -> Next {
        let op = self.op.as_ref().expect("a slot in use holds an operation");
        if result < 0 {
            return self.failed(-result);
        }
        let count = result as usize;
        match op {
            Op::Accept { listener } => {
                Next::Done(self.accepted(listener.handle(), accepted(result)))
            }
            Op::Receive {
                into: ReceiveInto::Ring(_),
                ..
            } => {
                let bulk = self.bulk.take().map(|mut segment| {
                    segment.set_len(count);
                    segment.freeze()
                });
                let view = bulk.or(received).unwrap_or_else(View::empty);
                assert_eq!(view.len(), count, "received bytes are in a buffer");
                Next::Done(Ok(Output::Received(view)))
            }
            Op::Receive {
                into: ReceiveInto::Segment { segment, from },
                ..
            } => self.advance(count, segment.len() - from, End::OfStream),
            Op::Send { gather, .. } => self.advance(count, gather.len(), End::Unexpected),
            Op::Read { into, .. } => self.advance(count, segments_len(into), End::OfStream),
            Op::Write { data, .. } => self.advance(count, views_len(data), End::Unexpected),
            Op::Connect { .. } | Op::Ready { .. } | Op::Sync { .. } | Op::Allocate { .. } => {
                Next::Done(Ok(Output::Done))
            }
        }
    }

    /// A transfer of `total` bytes went on by `count`.
    fn advance(&mut self, count: usize, total: usize, end: End) -> Next {
        self.progress += count;
        assert!(
            self.progress <= total,
            "the kernel transfers no more than asked"
        );
        if self.progress == total {
            let is_send = matches!(self.op, Some(Op::Send { .. }));
            return Next::Done(Ok(if is_send {
                Output::Done
            } else {
                Output::Count(total)
            }));
        }
        match (count, end) {
            (0, End::OfStream) => Next::Done(Ok(Output::Count(self.progress))),
            (0, End::Unexpected) => Next::Done(Err(io::ErrorKind::WriteZero.into())),
            _ if self.cancelled => Next::Done(Err(error(libc::ECANCELED))),
            _ => Next::Again,
        }
    }

    fn failed(&mut self, errno: i32) -> Next {
        let op = self.op.as_ref().expect("a slot in use holds an operation");
        match (op, errno) {
            (Op::Receive { .. }, libc::EAGAIN) if self.looks && !self.cancelled => Next::Later,
            // A signal: nothing has happened yet.
            (_, libc::EINTR) if !self.cancelled => Next::Again,
            // No bytes came: it waits on as others do.
            (Op::Receive { .. }, libc::ECANCELED)
                if self.bulk_wait == BulkWait::CalledBack && !self.cancelled =>
            {
                self.bulk = None;
                Next::Again
            }
            // The medium's queue was full for a moment. (A socket says so only where another process made it non-blocking,
            // and would at once again.)
            (Op::Read { .. } | Op::Write { .. } | Op::Sync { .. }, libc::EAGAIN)
                if !self.cancelled =>
            {
                Next::Again
            }
            (
                Op::Receive {
                    into: ReceiveInto::Ring(_),
                    ..
                },
                libc::ENOBUFS,
            ) if !self.cancelled => Next::Starved,
            (_, libc::EINTR | libc::EAGAIN | libc::ENOBUFS) if self.cancelled => {
                Next::Done(Err(error(libc::ECANCELED)))
            }
            (Op::Read { .. }, libc::EINVAL) if !self.progress.is_multiple_of(SECTOR) => {
                Next::Done(Ok(Output::Count(self.progress)))
            }
            (
                Op::Allocate {
                    mode: AllocateMode::Discard,
                    ..
                },
                libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY,
            ) if self.discard_by != DiscardBy::Punch && !self.cancelled => {
                self.discard_by = match self.discard_by {
                    DiscardBy::Command => DiscardBy::Stale,
                    DiscardBy::Stale | DiscardBy::Punch => DiscardBy::Punch,
                };
                Next::Again
            }
            _ => Next::Done(Err(error(errno))),
        }
    }

    fn accepted(&self, listener: Handle, socket: Socket) -> io::Result<Output> {
        socket::inherit(listener, socket.handle())?;
        let mut storage = socket2::SockAddrStorage::zeroed();
        // SAFETY: SockAddrStorage is a transparent sockaddr_storage.
        unsafe {
            *std::ptr::from_mut(&mut storage).cast::<libc::sockaddr_storage>() = self.address;
        }
        // SAFETY: the kernel wrote an address of this length.
        let address = unsafe { socket2::SockAddr::new(storage, self.address_length) };
        let peer = address
            .as_socket()
            .ok_or_else(|| io::Error::other("accepted a connection that is not TCP over IP"))?;
        Ok(Output::Accepted(socket, peer))
    }
}

/// What no more bytes mean.
enum End {
    OfStream,
    Unexpected,
}

fn discard(file: Fd, offset: u64, length: u64) -> squeue::Entry {
    let mut command = [0; 16];
    command[..8].copy_from_slice(&length.to_ne_bytes());
    opcode::UringCmd16::new(file, BLOCK_URING_CMD_DISCARD)
        .addr(Some(offset))
        .cmd(command)
        .build()
}

fn is_block_device(handle: Handle) -> bool {
    // SAFETY: an operation keeps what it works on open.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(handle.0 as RawFd) };
    rustix::fs::fstat(file).is_ok_and(|status| {
        rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::BlockDevice
    })
}

pub(super) fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn descriptor(handle: Handle) -> Fd {
    Fd(handle.0 as RawFd)
}
