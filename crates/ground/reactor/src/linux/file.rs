//! Opening regular files and block devices: direct I/O where it works, one writer per medium, and what is to be known.

use std::fs::File as StdFile;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::{FileInfo, FileKind, OpenOptions, UseDirect};

/// Mode of a file that is made: it holds the data of hosts, which is no other local user's business.
const CREATE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Most walks of a path on which folders are moved meanwhile.
const WALKS_MAX: u32 = 64;
/// What direct I/O asks for where nothing tells and nothing can be tried.
const DIRECT_ALIGNMENT_SAFE: u32 = 4096;
/// The smallest alignment that any direct I/O asks for.
const DIRECT_ALIGNMENT_MIN: u32 = 512;
/// Bytes that the hole punched as a trial has, behind the end of the file.
const PUNCH_TRIAL: u64 = 4096;

/// An open file, not yet owned by a handle.
pub(super) struct Opened {
    pub(super) file: StdFile,
    pub(super) info: FileInfo,
}

/// The error of a system call, with what it was about. Its kind is kept.
fn about(error: &io::Error, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn busy(path: &Path, by: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{} is open for writing {by}", path.display()),
    )
}

/// The error for a medium that this process writes to already.
pub(super) fn busy_here(path: &Path) -> io::Error {
    busy(path, "in this process already")
}

/// What names the medium at `path`; none where there is none.
pub(super) fn identity(path: &Path, options: &OpenOptions) -> Option<(u64, u64)> {
    let metadata = Place::new(path, options).metadata();
    metadata.ok().map(|metadata| identity_of(&metadata))
}

/// Place of a file.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    /// A folder that links must not lead out of.
    beneath: Option<&'a Path>,
}

impl<'a> Place<'a> {
    fn new(path: &'a Path, options: &'a OpenOptions) -> Self {
        Place {
            path,
            beneath: options.beneath.as_deref(),
        }
    }

    /// Opens what is there.
    fn open(self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let Some(beneath) = self.beneath else {
            return Ok(rustix::fs::open(self.path, flags, Mode::empty())?);
        };
        let leads_out = || {
            let text = format!(
                "it is not in {}, or a link on the way is absolute or leads out of it",
                beneath.display()
            );
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        };
        let within = self.path.strip_prefix(beneath).map_err(|_| leads_out())?;
        let within = match within.as_os_str().is_empty() {
            true => Path::new("."),
            false => within,
        };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(beneath, folder, Mode::empty())?;
        // Paths such as /proc/self/fd/3 lead anywhere, and are no links in a folder's tree.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..WALKS_MAX {
            match rustix::fs::openat2(&folder, within, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                Err(Errno::XDEV | Errno::LOOP) => return Err(leads_out()),
                opened => return Ok(opened?),
            }
        }
        Err(io::Error::from(Errno::AGAIN))
    }

    fn metadata(self) -> io::Result<std::fs::Metadata> {
        StdFile::from(self.open(OFlags::PATH)?).metadata()
    }

    /// Opens the folder that it is in.
    fn open_folder(self) -> io::Result<OwnedFd> {
        let path = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder = Place { path, ..self };
        folder.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }
}

fn identity_of(metadata: &std::fs::Metadata) -> (u64, u64) {
    if metadata.file_type().is_block_device() {
        (0, metadata.rdev())
    } else {
        (metadata.dev(), metadata.ino())
    }
}

/// Opens, locks and examines a file.
pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<Opened> {
    let place = Place::new(path, options);
    let existing = match place.metadata() {
        Ok(metadata) => Some(kind(path, &metadata)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(about(&error, path.display())),
    };
    let (file, created) = match (existing, options.create) {
        (Some(kind), _) => (open_existing(place, options, kind)?, false),
        (None, Some(length)) => match create(place, length) {
            Ok(file) => (file, true),
            // Another made it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (open_existing(place, options, FileKind::Regular)?, false)
            }
            Err(error) => {
                return Err(about(
                    &error,
                    format_args!("cannot make {}", path.display()),
                ));
            }
        },
        (None, None) => {
            let error = io::Error::from_raw_os_error(libc::ENOENT);
            return Err(about(&error, path.display()));
        }
    };
    let metadata = file.metadata()?;
    let kind = kind(path, &metadata)?;
    if options.write && kind == FileKind::Regular {
        lock(&file, path)?;
    }
    let info = examine(&file, path, &metadata, kind, options, created)?;
    Ok(Opened { file, info })
}

fn kind(path: &Path, metadata: &std::fs::Metadata) -> io::Result<FileKind> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        Ok(FileKind::Regular)
    } else if file_type.is_block_device() {
        Ok(FileKind::BlockDevice)
    } else {
        let what = if file_type.is_dir() {
            "a directory"
        } else if file_type.is_char_device() {
            "a character device"
        } else {
            "neither a regular file nor a block device"
        };
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{} is {what}; name a regular file or a block device",
                path.display()
            ),
        ))
    }
}

fn open_existing(place: Place<'_>, options: &OpenOptions, kind: FileKind) -> io::Result<StdFile> {
    let exclusive = options.write && kind == FileKind::BlockDevice;
    let mut flags = match options.write {
        true => OFlags::RDWR,
        false => OFlags::RDONLY,
    };
    flags.set(OFlags::EXCL, exclusive);
    let opened = place
        .open(flags)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) if exclusive => busy_device(place.path),
            _ => about(&error, place.path.display()),
        });
    Ok(StdFile::from(opened?))
}

/// The error for a device that somebody has for himself, and if it can be told who.
fn busy_device(path: &Path) -> io::Error {
    // What could not be told is not missed: it is refused as it is.
    let holders = super::holders::of_path(path).unwrap_or_default();
    let by = match holders.is_empty() {
        true => "mounted, part of another device, or open for writing elsewhere".to_owned(),
        false => holders.join("; "),
    };
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{} is in use: {by}", path.display()),
    )
}

/// Makes a sparse file that survives a crash once this has returned; or none.
fn create(place: Place<'_>, length: u64) -> io::Result<StdFile> {
    let name = place.path.file_name();
    let name = name.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let folder = place.open_folder()?;
    // No link is followed: what has the name is a file that exists.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = StdFile::from(rustix::fs::openat(&folder, name, flags, CREATE_MODE)?);
    let made = file
        .set_len(length)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(rustix::fs::fsync(&folder)?));
    if let Err(error) = made {
        // What is half made is of no use; that it cannot be removed adds nothing to the error.
        let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
        return Err(error);
    }
    Ok(file)
}

/// Locks a regular file against every other writer that asks, in any process. The lock belongs to the open file and ends
/// with it.
fn lock(file: &StdFile, path: &Path) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this structure; a length of 0 is the whole file, whatever becomes of its length.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    // SAFETY: the descriptor is open, and the structure is what F_OFD_SETLK reads.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(busy(path, "in another process")),
        _ => Err(about(
            &error,
            format_args!("cannot lock {} against other writers", path.display()),
        )),
    }
}

fn examine(
    file: &StdFile,
    path: &Path,
    metadata: &std::fs::Metadata,
    kind: FileKind,
    options: &OpenOptions,
    created: bool,
) -> io::Result<FileInfo> {
    let length = length(file)?;
    let device = (kind == FileKind::BlockDevice).then(|| Device::look(file, metadata.rdev()));
    let alignment = direct_alignment(file, length, device.as_ref(), options.direct)
        .map_err(|error| about(&error, format_args!("direct I/O on {}", path.display())))?;
    let file_block = u32::try_from(metadata.blksize()).unwrap_or(DIRECT_ALIGNMENT_SAFE);
    let deallocate_granularity = match &device {
        _ if !options.write => 0,
        Some(device) => device.discard_granularity,
        None if can_punch(file, length) => file_block,
        None => 0,
    };
    Ok(FileInfo {
        kind,
        length,
        created,
        direct: alignment.is_some(),
        memory_alignment: alignment.map_or(1, |alignment| alignment.memory),
        offset_alignment: alignment.map_or(1, |alignment| alignment.offset),
        physical_block: device
            .as_ref()
            .map_or(file_block, |device| device.physical_block),
        atomic_bytes: match &device {
            Some(device) => Some(device.physical_block),
            // One that is on no device of its own, or on several, says nothing here.
            None => QueueAttributes::of(metadata.dev()).physical_block(),
        },
        deallocate_granularity,
        // A file's data and its allocation are the file system's until they are synced, whatever the drive under it does.
        volatile_cache: device.as_ref().is_none_or(|device| device.volatile_cache),
        identity: identity_of(metadata),
    })
}

/// The length of a regular file or a block device.
pub(super) fn length(file: &StdFile) -> io::Result<u64> {
    // Reads and writes name their offset: the position is nobody's.
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?)
}

#[derive(Clone, Copy)]
struct Alignment {
    memory: u32,
    offset: u32,
}

/// Turns direct I/O on where it is wanted and works; what it asks for then.
fn direct_alignment(
    file: &StdFile,
    length: u64,
    device: Option<&Device>,
    wanted: UseDirect,
) -> io::Result<Option<Alignment>> {
    if wanted == UseDirect::Never {
        return Ok(None);
    }
    match turn_direct_on(file, length, device) {
        Ok(alignment) => Ok(Some(alignment)),
        Err(error) if wanted == UseDirect::Auto && is_unsupported(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
    )
}

fn turn_direct_on(file: &StdFile, length: u64, device: Option<&Device>) -> io::Result<Alignment> {
    let told = told_alignment(file);
    if let Some(Alignment { offset: 0, .. }) = told {
        // Told that there is none: EINVAL, as from a file system that refuses.
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let known = told.or_else(|| device.map(Device::alignment));
    match known.or_else(|| tried_alignment(file, length)) {
        Some(alignment) => Ok(alignment),
        None => {
            rustix::fs::fcntl_setfl(file, flags)?;
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
    }
}

/// What the kernel tells (STATX_DIOALIGN, Linux 6.1); an offset alignment of 0 means that there is no direct I/O.
fn told_alignment(file: &StdFile) -> Option<Alignment> {
    let status = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    told.then_some(Alignment {
        memory: status.stx_dio_mem_align,
        offset: status.stx_dio_offset_align,
    })
}

/// The least offset alignment at which a direct read succeeds; for file systems that do not tell. None where none does: a
/// stacked file system turns direct I/O on whether or not the one below it can.
fn tried_alignment(file: &StdFile, length: u64) -> Option<Alignment> {
    let mut buffer = weir_memory::Segment::heap(DIRECT_ALIGNMENT_SAFE as usize);
    let mut works = |alignment: u32, offset: u64| {
        let buffer = &mut buffer[..alignment as usize];
        std::os::unix::fs::FileExt::read_at(file, buffer, offset).is_ok()
    };
    if !works(DIRECT_ALIGNMENT_SAFE, 0) {
        return None;
    }
    let trials = std::iter::successors(Some(DIRECT_ALIGNMENT_MIN), |trial| Some(trial * 2))
        .take_while(|&trial| trial < DIRECT_ALIGNMENT_SAFE);
    // Behind the end of a file every read succeeds, and tells nothing.
    let offset = trials
        .filter(|&trial| length >= 2 * u64::from(trial))
        .find(|&trial| works(trial, u64::from(trial)))
        .unwrap_or(DIRECT_ALIGNMENT_SAFE);
    Some(Alignment {
        memory: DIRECT_ALIGNMENT_SAFE,
        offset,
    })
}

/// Whether holes can be punched: tried behind the end of the file, where it changes nothing.
fn can_punch(file: &StdFile, length: u64) -> bool {
    let behind = length.next_multiple_of(PUNCH_TRIAL);
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, mode, behind, PUNCH_TRIAL).is_ok()
}

/// What is known of a block device.
struct Device {
    logical_block: u32,
    physical_block: u32,
    discard_granularity: u32,
    volatile_cache: bool,
}

impl Device {
    fn look(file: &StdFile, number: u64) -> Self {
        let logical_block = rustix::fs::ioctl_blksszget(file).unwrap_or(DIRECT_ALIGNMENT_MIN);
        let physical_block = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical_block);
        let queue = QueueAttributes::of(number);
        Device {
            logical_block,
            physical_block,
            discard_granularity: queue.discard_granularity(),
            volatile_cache: queue.volatile_cache(),
        }
    }

    fn alignment(&self) -> Alignment {
        Alignment {
            memory: self.logical_block,
            offset: self.logical_block,
        }
    }
}

/// The directory in which sysfs describes the queue of a block device; a partition has its disk's.
struct QueueAttributes(PathBuf);

impl QueueAttributes {
    fn of(number: u64) -> Self {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let own = device.join("queue");
        // The link must be followed first: the parent of a partition's directory is its disk's.
        let of_disk = std::fs::canonicalize(&device).map(|path| path.join("../queue"));
        QueueAttributes(match of_disk {
            Ok(of_disk) if !own.exists() => of_disk,
            _ => own,
        })
    }

    fn read(&self, attribute: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(attribute)).ok()?;
        Some(text.trim().to_owned())
    }

    /// In bytes. Of an NVMe drive Linux makes it no longer than what that writes atomically across a power failure.
    fn physical_block(&self) -> Option<u32> {
        self.read("physical_block_size")?.parse().ok()
    }

    /// In bytes; 0 where the device discards nothing.
    fn discard_granularity(&self) -> u32 {
        let number = |attribute| self.read(attribute)?.parse::<u64>().ok();
        match (number("discard_max_bytes"), number("discard_granularity")) {
            (Some(1..), Some(granularity)) => u32::try_from(granularity).unwrap_or(0),
            _ => 0,
        }
    }

    /// A device of which nothing is known may have one.
    fn volatile_cache(&self) -> bool {
        self.read("write_cache")
            .is_none_or(|cache| cache != "write through")
    }
}
