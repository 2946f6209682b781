//! Files and block devices.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use weir_memory::{Segments, Views};

use crate::{AllocateMode, Handle, Op, Output, Reactor, System};

/// Whether a file is opened for direct I/O, past the kernel's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UseDirect {
    /// Where the file system allows it; [`FileInfo::direct`] tells.
    #[default]
    Auto,
    /// Or else opening fails.
    Always,
    /// Through the page cache.
    Never,
}

/// How a file is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Open for writing. It is then locked against any other writer, in this process or another: a regular file
    /// by a lock, a block device by an exclusive open. Without it the file is opened read-only.
    pub write: bool,
    /// Where the file does not exist, make it with this length in bytes, sparse.
    pub create: Option<u64>,
    /// Past the page cache?
    pub direct: UseDirect,
    /// A folder that the path begins with, and that no link on the rest of the way leads out of, whoever changes links
    /// meanwhile. None: wherever the path leads.
    pub beneath: Option<PathBuf>,
}

/// What kind of medium a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
}

/// What is known of an open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Regular file or block device.
    pub kind: FileKind,
    /// Its length in bytes.
    pub length: u64,
    /// Whether it was made by this opening.
    pub created: bool,
    /// Whether I/O goes past the page cache.
    pub direct: bool,
    /// What direct I/O asks of the address of a buffer, in bytes; 1 without.
    pub memory_alignment: u32,
    /// What direct I/O asks of offset and length, in bytes; 1 without.
    pub offset_alignment: u32,
    /// The smallest write that is not a read-modify-write for the medium, in bytes (a device's physical block).
    pub physical_block: u32,
    /// An aligned write of so many bytes is there whole or not at all after a power failure (the physical block of the device,
    /// also of one below a file system). None where that is not known.
    pub atomic_bytes: Option<u32>,
    /// Granularity at which ranges can be deallocated, in bytes; 0: not at all.
    pub deallocate_granularity: u32,
    /// Whether the medium may lose what was written and not yet synced at a power failure.
    pub volatile_cache: bool,
    /// The same for every name of the same medium: (device, inode), or (0, device number) of a block device.
    pub identity: (u64, u64),
}

/// Contents that [`File::find`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// Data.
    Data,
    /// A hole; one begins at the end of each file.
    Hole,
}

/// A command for the admin queue of an NVMe drive that yields data and changes nothing; its opcode has the direction of data in its two lowest bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdminQuery {
    /// Opcode.
    pub opcode: u8,
    /// Namespace.
    pub nsid: u32,
    /// Command dwords 10 to 15.
    pub dwords: [u32; 6],
}

impl AdminQuery {
    /// Whether the opcode is that of a command that transfers data from the drive, and none to it.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.opcode & 0b11 == 0b10
    }
}

/// An open file or block device. Any thread may hold it; each reactor does I/O through a [`LocalFile`] of its own.
pub struct File {
    handle: Handle,
    system: Arc<dyn System>,
}

impl File {
    /// For systems: wraps a handle, which is closed with the last reference.
    #[must_use]
    pub fn new(handle: Handle, system: Arc<dyn System>) -> Arc<Self> {
        Arc::new(File { handle, system })
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// What is known of it now: its length may have changed since it was opened.
    ///
    /// # Errors
    /// The system's.
    pub fn length(&self) -> io::Result<u64> {
        self.system.file_length(self.handle)
    }

    /// Its status as the operating system tells it (fstat(2)).
    ///
    /// # Errors
    /// `Unsupported` where files have no owners and times, as in the simulator; or the system's.
    pub fn status(&self) -> io::Result<rustix::fs::Stat> {
        self.system.file_status(self.handle)
    }

    /// Asks the NVMe drive that this device is, or is a partition of; what it yields is in `data`. The drive's status, as 15 bits without the phase: 0 is success. Blocks
    /// until the drive has answered: call it through [`Reactor::offload`].
    ///
    /// # Errors
    /// `InvalidInput` for a command that is no query; `Unsupported` where there is no NVMe drive; `PermissionDenied` where the process may not ask it; or the
    /// system's.
    pub fn query_nvme(&self, query: &AdminQuery, data: &mut [u8]) -> io::Result<u16> {
        if !query.is_one() {
            let text = format!("opcode {:02X}h is that of no query", query.opcode);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.system.query_nvme(self.handle, query, data)
    }

    /// Sets the length of a regular file; [`File::sync_all`] makes it durable. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn set_length(&self, length: u64) -> io::Result<()> {
        self.system.set_file_length(self.handle, length)
    }

    /// The first byte of what is sought in a regular file, from `offset` on; none where there is no more data. Blocks.
    ///
    /// # Errors
    /// The system's; `ENXIO` where the file is not that long.
    pub fn find(&self, offset: u64, sought: Sought) -> io::Result<Option<u64>> {
        self.system.find_in_file(self.handle, offset, sought)
    }

    /// Copies up to `bytes` from `offset` on to byte `to_offset` of a file of the same system, which may be this one; how many. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn copy_to(&self, offset: u64, to: &File, to_offset: u64, bytes: u64) -> io::Result<u64> {
        let (from, to) = ((self.handle, offset), (to.handle, to_offset));
        self.system.copy_in_files(from, to, bytes)
    }

    /// Has a range of a file of the same system share the blocks from `offset` on; 0 bytes: all to the end. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn share_with(&self, offset: u64, to: &File, to_offset: u64, bytes: u64) -> io::Result<()> {
        let (from, to) = ((self.handle, offset), (to.handle, to_offset));
        self.system.share_in_files(from, to, bytes)
    }

    /// Makes durable what was written, and the length. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn sync_all(&self) -> io::Result<()> {
        self.system.sync_file(self.handle)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.system.close(self.handle);
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "File({})", self.handle.0)
    }
}

/// One reactor's reference to a [`File`]: operations count references to it without touching what is shared.
#[derive(Debug)]
pub struct LocalFile(Arc<File>);

impl LocalFile {
    /// A reference for the caller's reactor.
    #[must_use]
    pub fn new(file: Arc<File>) -> Rc<Self> {
        Rc::new(LocalFile(file))
    }

    /// The file, for other threads.
    #[must_use]
    pub fn shared(&self) -> Arc<File> {
        Arc::clone(&self.0)
    }

    /// Reads into `into`; the number of bytes, fewer than asked for only at the end of the file.
    pub async fn read(
        self: &Rc<Self>,
        reactor: &Reactor,
        offset: u64,
        into: Segments,
    ) -> (io::Result<usize>, Segments) {
        let op = Op::Read {
            file: Rc::clone(self),
            offset,
            into,
        };
        let outcome = reactor.start(op).await;
        let Op::Read { into, .. } = outcome.op else {
            unreachable!("an outcome returns its operation")
        };
        (outcome.result.map(count), into)
    }

    /// Writes `data`; the number of bytes.
    pub async fn write(
        self: &Rc<Self>,
        reactor: &Reactor,
        offset: u64,
        data: Views,
        durable: bool,
    ) -> (io::Result<usize>, Views) {
        let op = Op::Write {
            file: Rc::clone(self),
            offset,
            data,
            durable,
        };
        let outcome = reactor.start(op).await;
        let Op::Write { data, .. } = outcome.op else {
            unreachable!("an outcome returns its operation")
        };
        (outcome.result.map(count), data)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The system's.
    pub async fn sync(self: &Rc<Self>, reactor: &Reactor) -> io::Result<()> {
        reactor
            .start(Op::Sync {
                file: Rc::clone(self),
            })
            .await
            .result
            .map(drop)
    }

    /// Changes the allocation of a range.
    ///
    /// # Errors
    /// The system's.
    pub async fn allocate(
        self: &Rc<Self>,
        reactor: &Reactor,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> io::Result<()> {
        let op = Op::Allocate {
            file: Rc::clone(self),
            offset,
            length,
            mode,
        };
        reactor.start(op).await.result.map(drop)
    }
}

impl Deref for LocalFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

fn count(output: Output) -> usize {
    match output {
        Output::Count(count) => count,
        other => unreachable!("reads and writes yield a count, not {other:?}"),
    }
}
