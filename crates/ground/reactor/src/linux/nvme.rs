//! Queries to the admin queue of an NVMe drive, by the kernel's passthrough (linux/nvme_ioctl.h).
//!
//! Only a block device that is an NVMe namespace, or a partition of one, is asked. A device-mapper target with one device below it would hand the command on to
//! that, whose counters then stood for something else.

use std::fs::{File as StdFile, canonicalize};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::AdminQuery;

/// `struct nvme_admin_cmd`.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    dwords_2_and_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    dwords_10_to_15: [u32; 6],
    /// 0: the driver's own. When one elapses the driver resets the drive, so it is not made shorter.
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
const ADMIN_COMMAND: u32 =
    3 << 30 | (size_of::<AdminCommand>() as u32) << 16 | (b'N' as u32) << 8 | 0x41;
/// What the status of a command has of the completion's, the phase left out.
const STATUS_MASK: libc::c_int = 0x7fff;

pub(super) fn query(file: &StdFile, query: &AdminQuery, data: &mut [u8]) -> io::Result<u16> {
    let metadata = file.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Err(no_drive("it is a regular file, not an NVMe drive"));
    }
    check_is_nvme(Path::new("/sys"), metadata.rdev())?;
    let data_length = u32::try_from(data.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no query has so much data"))?;
    let mut command = AdminCommand {
        opcode: query.opcode,
        nsid: query.nsid,
        address: data.as_mut_ptr() as u64,
        data_length,
        dwords_10_to_15: query.dwords,
        ..AdminCommand::default()
    };
    // SAFETY: the descriptor is open, and the command is what this ioctl reads and writes. It names `data` and its length, which are borrowed for as long as
    // the call takes; the kernel is done with them when it returns.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_COMMAND as _, &raw mut command) };
    match status {
        0.. => Ok((status & STATUS_MASK) as u16),
        _ => Err(io::Error::last_os_error()),
    }
}

fn no_drive(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text.into())
}

/// Refuses a block device that is neither an NVMe namespace nor a partition of one, by what sysfs says of it: a namespace's device is of the class of NVMe
/// controllers, or of that of subsystems where there may be several ways to it.
fn check_is_nvme(sys: &Path, number: u64) -> io::Result<()> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let directory = canonicalize(sys.join(format!("dev/block/{major}:{minor}")))?;
    let disk = match (directory.join("partition").exists(), directory.parent()) {
        (true, Some(disk)) => disk.to_owned(),
        _ => directory,
    };
    let subsystem = canonicalize(disk.join("device/subsystem")).ok();
    let subsystem = subsystem.as_deref().and_then(name);
    match subsystem.as_deref() {
        Some("nvme" | "nvme-subsystem") => Ok(()),
        other => {
            let disk = name(&disk).unwrap_or_default();
            let what = match other {
                Some(other) => format!("a device of the {other} subsystem"),
                None if disk.starts_with("dm-") => "made by the device mapper".to_owned(),
                None if disk.starts_with("md") => "an array of devices".to_owned(),
                None if disk.starts_with("loop") => "a loop device".to_owned(),
                None => "no device of its own".to_owned(),
            };
            Err(no_drive(format!(
                "/dev/{disk} is {what}, not an NVMe drive"
            )))
        }
    }
}

fn name(path: impl AsRef<Path>) -> Option<String> {
    let path: PathBuf = path.as_ref().to_owned();
    path.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs with an NVMe namespace 259:0 with a partition 259:1, one 259:2 that is reached over a subsystem, a SCSI disk 8:0, and devices that the kernel makes
    /// of others.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let sys = root.path();
        let disk = |path: &str, number: &str, device: Option<(&str, &str)>| {
            let directory = sys.join("devices").join(path);
            std::fs::create_dir_all(&directory).expect("it is made");
            std::fs::create_dir_all(sys.join("dev/block")).expect("it is made");
            symlink(&directory, sys.join("dev/block").join(number)).expect("a link");
            if let Some((device, class)) = device {
                let (device, class) = (
                    sys.join("devices").join(device),
                    sys.join("class").join(class),
                );
                std::fs::create_dir_all(&device).expect("it is made");
                std::fs::create_dir_all(&class).expect("it is made");
                symlink(&device, directory.join("device")).expect("a link");
                if !device.join("subsystem").exists() {
                    symlink(&class, device.join("subsystem")).expect("a link");
                }
            }
            directory
        };
        disk("nvme0/nvme0n1", "259:0", Some(("nvme0", "nvme")));
        let partition = disk("nvme0/nvme0n1/nvme0n1p1", "259:1", None);
        std::fs::write(partition.join("partition"), "1\n").expect("it is written");
        disk(
            "nvme-subsys1/nvme1n1",
            "259:2",
            Some(("nvme-subsys1", "nvme-subsystem")),
        );
        disk("host0/sda", "8:0", Some(("host0", "scsi")));
        disk("virtual/dm-0", "254:0", None);
        disk("virtual/md0", "9:0", None);
        disk("virtual/loop0", "7:0", None);
        disk("virtual/ram0", "1:0", None);
        root
    }

    #[test]
    fn only_nvme_namespaces_and_their_partitions_are_asked() {
        let root = sysfs();
        let check = |major, minor| check_is_nvme(root.path(), rustix::fs::makedev(major, minor));
        for minor in 0..3 {
            check(259, minor).expect("it is one");
        }
        for ((major, minor), words) in [
            ((8, 0), "/dev/sda is a device of the scsi subsystem"),
            ((254, 0), "/dev/dm-0 is made by the device mapper"),
            ((9, 0), "/dev/md0 is an array"),
            ((7, 0), "/dev/loop0 is a loop device"),
            ((1, 0), "/dev/ram0 is no device of its own"),
        ] {
            let error = check(major, minor).expect_err(words);
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().starts_with(words), "{error}");
        }
        let gone = check(77, 7).expect_err("there is none");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_command_is_the_kernels() {
        // What `NVME_IOCTL_ADMIN_CMD` is on every machine whose ioctl numbers have the common form.
        assert_eq!(ADMIN_COMMAND, 0xc048_4e41);
        assert_eq!(std::mem::offset_of!(AdminCommand, nsid), 4);
        assert_eq!(std::mem::offset_of!(AdminCommand, address), 24);
        assert_eq!(std::mem::offset_of!(AdminCommand, data_length), 36);
        assert_eq!(std::mem::offset_of!(AdminCommand, dwords_10_to_15), 40);
        assert_eq!(std::mem::offset_of!(AdminCommand, timeout_ms), 64);
        assert_eq!(std::mem::offset_of!(AdminCommand, result), 68);
    }

    #[test]
    fn a_regular_file_is_no_drive() {
        let file = tempfile::tempfile().expect("a file");
        let error = query(&file, &AdminQuery::default(), &mut []).expect_err("it is none");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
