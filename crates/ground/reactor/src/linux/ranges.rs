//! Ranges of files: where they have data, and what copies them without the data passing through here.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::Sought;

/// `FICLONERANGE` of ioctl_ficlonerange(2).
const CLONE_RANGE: u32 = 0x4020_940d;

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    source_length: u64,
    destination_offset: u64,
}

/// See [`crate::File::find`].
pub(super) fn find(file: &File, offset: u64, sought: Sought) -> io::Result<Option<u64>> {
    let whence = match sought {
        Sought::Data => libc::SEEK_DATA,
        Sought::Hole => libc::SEEK_HOLE,
    };
    let Ok(from) = i64::try_from(offset) else {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    };
    // SAFETY: the descriptor is open, and no memory is passed. The place that it sets nobody uses: all I/O says where it is.
    let found = unsafe { libc::lseek64(file.as_raw_fd(), from, whence) };
    if found >= 0 {
        return Ok(Some(found.cast_unsigned()));
    }
    let error = io::Error::last_os_error();
    // There is no data from there on; or the file is not that long.
    let is_none = error.raw_os_error() == Some(libc::ENXIO) && sought == Sought::Data;
    if is_none && offset < file.metadata()?.len() {
        return Ok(None);
    }
    Err(error)
}

/// See [`crate::File::copy_to`].
pub(super) fn copy(from: (&File, u64), to: (&File, u64), bytes: u64) -> io::Result<u64> {
    let (mut source_offset, mut destination_offset) = (from.1, to.1);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let copied = rustix::fs::copy_file_range(
        from.0,
        Some(&mut source_offset),
        to.0,
        Some(&mut destination_offset),
        bytes,
    )?;
    Ok(copied as u64)
}

/// See [`crate::File::share_with`].
pub(super) fn share(from: (&File, u64), to: (&File, u64), bytes: u64) -> io::Result<()> {
    let range = CloneRange {
        source: from.0.as_raw_fd().into(),
        source_offset: from.1,
        source_length: bytes,
        destination_offset: to.1,
    };
    // SAFETY: both descriptors are open, and `range` has the layout that the command reads, for as long as the call takes.
    let result = unsafe { libc::ioctl(to.0.as_raw_fd(), CLONE_RANGE as _, &raw const range) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
