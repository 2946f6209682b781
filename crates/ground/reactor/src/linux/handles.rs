//! Names that the kernel gives files for ever, and opening them by these (name_to_handle_at(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;

/// The longest name of a file that a kernel gives (MAX_HANDLE_SZ).
pub const FILE_NAME_BYTES_MAX: usize = 128;

/// A name of a file on its file system, which it keeps over renames and restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelName {
    /// Kind of the bytes, as the file system says.
    pub kind: i32,
    length: usize,
    bytes: [u8; FILE_NAME_BYTES_MAX],
}

/// The same as the kernel's `struct file_handle`, with room for the longest name.
#[repr(C)]
struct Named {
    length: libc::c_uint,
    kind: libc::c_int,
    bytes: [u8; FILE_NAME_BYTES_MAX],
}

impl KernelName {
    /// The name of this kind and these bytes; none where they are too many.
    #[must_use]
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut name = KernelName {
            kind,
            length: bytes.len(),
            bytes: [0; FILE_NAME_BYTES_MAX],
        };
        name.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(name)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The name of an open file, and the number of the mount that it was reached by.
    ///
    /// # Errors
    /// The system's; `EOPNOTSUPP`: its file system gives none.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<(Self, i32)> {
        let mut named = Named {
            length: FILE_NAME_BYTES_MAX as libc::c_uint,
            kind: 0,
            bytes: [0; FILE_NAME_BYTES_MAX],
        };
        let mut mount = 0;
        // SAFETY: the descriptor is open, the path is an empty string, and `named` has a `struct file_handle`'s layout with as many bytes
        // behind it as it says.
        let result = unsafe {
            libc::name_to_handle_at(
                file.as_raw_fd(),
                c"".as_ptr(),
                (&raw mut named).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let name = KernelName {
            kind: named.kind,
            length: named.length as usize,
            bytes: named.bytes,
        };
        Ok((name, mount))
    }

    /// Opens the file of this name on the file system of which `mount` is an open file. It takes CAP_DAC_READ_SEARCH.
    ///
    /// # Errors
    /// The system's; `ESTALE`: there is no such file any more.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
        let mut named = Named {
            length: self.length as libc::c_uint,
            kind: self.kind,
            bytes: self.bytes,
        };
        let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
        // SAFETY: the descriptor is open, and `named` has a `struct file_handle`'s layout with as many bytes behind it as it says.
        let result =
            unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut named).cast(), flags) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(result) })
    }
}

/// Tells whether this thread may do with an open file, which may be open as a path alone, what `mode` says (`R_OK`, `W_OK`, `X_OK`).
///
/// # Errors
/// The system's.
pub fn may(file: BorrowedFd<'_>, mode: i32) -> io::Result<bool> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the descriptor is open, and the path is an empty string.
    let result = unsafe {
        let path = c"".as_ptr();
        libc::syscall(libc::SYS_faccessat2, file.as_raw_fd(), path, mode, flags)
    };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::ETXTBSY) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_keeps_its_name_and_is_opened_by_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = File::open(folder.path()).expect("it opens");
        let path = folder.path().join("one");
        std::fs::write(&path, "text").expect("it is written");
        let file = File::open(&path).expect("it opens");
        let (name, mount) = KernelName::of(file.as_fd()).expect("the file system gives names");
        let other = folder.path().join("other");
        std::fs::rename(&path, &other).expect("it is renamed");
        let renamed = File::open(&other).expect("it opens");
        let again = KernelName::of(renamed.as_fd()).expect("the file system gives names");
        assert_eq!(again, (name, mount));
        assert_eq!(KernelName::new(name.kind, name.bytes()), Some(name));
        let opened = match name.open(root.as_fd(), OFlags::RDONLY) {
            // Without the right to, that is all there is to see.
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                eprintln!("skipped: the process has no CAP_DAC_READ_SEARCH");
                return;
            }
            Ok(opened) => opened,
        };
        let mut text = String::new();
        File::from(opened)
            .read_to_string(&mut text)
            .expect("it is read");
        assert_eq!(text, "text");
        drop((file, renamed));
        std::fs::remove_file(&other).expect("it is removed");
        let gone = name.open(root.as_fd(), OFlags::RDONLY);
        assert_eq!(
            gone.map_err(|error| error.raw_os_error()).err(),
            Some(Some(libc::ESTALE))
        );
    }

    #[test]
    fn rights_are_told_of_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let path = rustix::fs::open(folder.path(), flags, rustix::fs::Mode::empty());
        let path = path.expect("it opens");
        let all = libc::R_OK | libc::W_OK | libc::X_OK;
        assert!(may(path.as_fd(), all).expect("it is told"));
        let text = folder.path().join("text");
        std::fs::write(&text, "").expect("it is written");
        let text = File::open(&text).expect("it opens");
        assert!(!may(text.as_fd(), libc::X_OK).expect("it is told"));
    }

    #[test]
    fn a_name_that_is_too_long_is_none() {
        assert_eq!(KernelName::new(1, &[0; FILE_NAME_BYTES_MAX + 1]), None);
    }
}
