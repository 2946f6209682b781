//! What has hold of a file or block device on this machine: mounts, swap, devices that are made of it. Read from where the kernel says so;
//! programs that only have it open are not told, for that is what locks are for.

use std::fs::{canonicalize, read_dir, read_link, read_to_string};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Devices that are followed from one to the next, at most: a device that is made of one that is made of one.
const DEPTH_MAX: usize = 8;

/// A medium, as the kernel tells one from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    /// A block device, by its number.
    Device(u64),
    /// A regular file, by its file system's device and its inode.
    File(u64, u64),
}

impl Medium {
    /// None where there is nothing at `path`.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let Some(metadata) = there(std::fs::metadata(path), path)? else {
            return Ok(None);
        };
        Ok(Some(if metadata.file_type().is_block_device() {
            Medium::Device(metadata.rdev())
        } else {
            Medium::File(metadata.dev(), metadata.ino())
        }))
    }
}

/// Where the kernel says what holds what, and how it is known which medium a path names.
struct Kernel<'a> {
    proc: &'a Path,
    sys: &'a Path,
    medium_at: &'a dyn Fn(&Path) -> io::Result<Option<Medium>>,
}

/// This machine's.
fn kernel() -> Kernel<'static> {
    Kernel {
        proc: Path::new("/proc"),
        sys: Path::new("/sys"),
        medium_at: &Medium::at,
    }
}

/// In words; nothing where nobody has hold of it.
///
/// # Errors
/// It cannot be told: something that the kernel says it with could not be read.
pub(super) fn of_path(path: &Path) -> io::Result<Vec<String>> {
    match Medium::at(path)? {
        None => Ok(Vec::new()),
        Some(medium) => kernel().holders_of(medium),
    }
}

/// What was read; none where it is not there. Whatever else went wrong is told with its path.
fn there<T>(result: io::Result<T>, path: &Path) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            kind => Err(io::Error::new(kind, format!("{}: {error}", path.display()))),
        },
    }
}

/// What must be there.
fn must<T>(found: Option<T>, path: &Path) -> io::Result<T> {
    found.ok_or_else(|| {
        let text = format!("{} is not there", path.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// Names in a directory; none where it is not there.
fn names_in(directory: &Path) -> io::Result<Option<Vec<String>>> {
    let Some(entries) = there(read_dir(directory), directory)? else {
        return Ok(None);
    };
    let mut names = Vec::new();
    for entry in entries {
        // What the kernel names has no bytes that are not text.
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(Some(names))
}

const PARTITION: &str = "its partition";

impl Kernel<'_> {
    fn holders_of(&self, medium: Medium) -> io::Result<Vec<String>> {
        let mut holders = Vec::new();
        self.collect(medium, "", DEPTH_MAX, &mut holders)?;
        Ok(holders)
    }

    /// Adds what holds `medium`, which the first asked for is part of as `through` says.
    fn collect(
        &self,
        medium: Medium,
        through: &str,
        depth: usize,
        holders: &mut Vec<String>,
    ) -> io::Result<()> {
        let mountinfo = self.proc.join("self/mountinfo");
        let lines = must(there(read_to_string(&mountinfo), &mountinfo)?, &mountinfo)?;
        let places = mounts(&lines, medium, self.medium_at)?;
        let mounted = places
            .iter()
            .map(|place| format!("{through}mounted at {place}"));
        holders.extend(mounted);
        if self.is_swap(medium)? {
            holders.push(format!("{through}in use as swap"));
        }
        if depth == 0 {
            return Ok(());
        }
        for (link, name) in self.users(medium)? {
            let through = format!("{through}{link} /dev/{name}, ");
            let before = holders.len();
            if let Some(number) = self.number_of(&name)? {
                self.collect(Medium::Device(number), &through, depth - 1, holders)?;
            }
            // A partition holds its disk only as far as something holds the partition.
            if holders.len() == before && link != PARTITION {
                holders.push(through.trim_end_matches(", ").to_owned());
            }
        }
        Ok(())
    }

    /// Devices that are made of a medium: how, and their names.
    fn users(&self, medium: Medium) -> io::Result<Vec<(&'static str, String)>> {
        let mut users = Vec::new();
        if let Medium::Device(number) = medium {
            let directory = self.directory_of(number)?;
            for name in names_in(&directory.join("holders"))?.unwrap_or_default() {
                users.push(("part of", name));
            }
            for name in must(names_in(&directory)?, &directory)? {
                let mark = directory.join(&name).join("partition");
                if there(std::fs::metadata(&mark), &mark)?.is_some() {
                    users.push((PARTITION, name));
                }
            }
        }
        // Loop devices show files, and other block devices.
        let block = self.sys.join("block");
        for name in must(names_in(&block)?, &block)? {
            let shown = self.backing_file(&name)?;
            let shown = shown.map(|path| (self.medium_at)(&path)).transpose()?;
            if shown.flatten() == Some(medium) {
                users.push(("attached as", name));
            }
        }
        Ok(users)
    }

    /// What a loop device shows.
    fn backing_file(&self, name: &str) -> io::Result<Option<PathBuf>> {
        let path = self.sys.join(format!("block/{name}/loop/backing_file"));
        let text = there(read_to_string(&path), &path)?;
        Ok(text.map(|text| PathBuf::from(text.trim_end_matches('\n'))))
    }

    /// What the kernel says of a block device.
    fn directory_of(&self, number: u64) -> io::Result<PathBuf> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = self.sys.join(format!("dev/block/{major}:{minor}"));
        must(there(canonicalize(&link), &link)?, &link)
    }

    /// The number of a block device, by its name; none where it is gone.
    fn number_of(&self, name: &str) -> io::Result<Option<u64>> {
        let link = self.sys.join("class/block").join(name);
        let Some(target) = there(read_link(&link), &link)? else {
            return Ok(None);
        };
        let path = self.sys.join("class/block").join(target).join("dev");
        let Some(text) = there(read_to_string(&path), &path)? else {
            return Ok(None);
        };
        let number = text.trim_end().split_once(':').and_then(|(major, minor)| {
            Some(rustix::fs::makedev(
                major.parse().ok()?,
                minor.parse().ok()?,
            ))
        });
        let not_a_number = || {
            let text = format!("{} holds no number of a device", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        number.map(Some).ok_or_else(not_a_number)
    }

    /// A kernel without swap has no list of it.
    fn is_swap(&self, medium: Medium) -> io::Result<bool> {
        let path = self.proc.join("swaps");
        let swaps = there(read_to_string(&path), &path)?.unwrap_or_default();
        // The first line is a heading.
        for line in swaps.lines().skip(1) {
            let path = line.split_whitespace().next().unwrap_or_default();
            if (self.medium_at)(Path::new(&unescaped(path)))? == Some(medium) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Where a device is mounted, by mountinfo (proc_pid_mountinfo(5)): a line has the device's number as its third field, the mount point as its
/// fifth, and behind a lone hyphen the kind of file system and what it was mounted from. Some file systems have numbers of
/// their own: they are known by what they were mounted from.
fn mounts(
    mountinfo: &str,
    medium: Medium,
    medium_at: &dyn Fn(&Path) -> io::Result<Option<Medium>>,
) -> io::Result<Vec<String>> {
    let Medium::Device(wanted) = medium else {
        return Ok(Vec::new());
    };
    let number = format!(
        "{}:{}",
        rustix::fs::major(wanted),
        rustix::fs::minor(wanted)
    );
    let mut places = Vec::new();
    for line in mountinfo.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (Some(&device), Some(&place)) = (fields.get(2), fields.get(4)) else {
            continue;
        };
        let behind = fields.iter().position(|&field| field == "-");
        let source = behind.and_then(|at| fields.get(at + 2));
        let source = source.filter(|source| source.starts_with("/dev/"));
        let is_mounted = device == number
            || match source {
                Some(source) => medium_at(Path::new(&unescaped(source)))? == Some(medium),
                None => false,
            };
        if is_mounted {
            places.push(unescaped(place));
        }
    }
    places.dedup();
    Ok(places)
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescaped(field: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(field.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_the_number_of_their_device() {
        let lines = "22 28 0:20 / /proc rw,nosuid - proc proc rw\n\
            28 1 254:3 / / rw,relatime shared:1 - ext4 /dev/nowhere rw\n\
            31 28 254:3 /srv /with\\040space rw,relatime - ext4 /dev/nowhere rw\n\
            32 28 254:33 / /other rw - xfs /dev/nowhere2 rw\n\
            short\n";
        let device = |major, minor| Medium::Device(rustix::fs::makedev(major, minor));
        let mounts = |medium| mounts(lines, medium, &Medium::at).expect("nothing is unreadable");
        assert_eq!(mounts(device(254, 3)), ["/", "/with space"]);
        assert_eq!(mounts(device(254, 33)), ["/other"]);
        assert!(mounts(device(54, 3)).is_empty());
        assert!(mounts(Medium::File(254, 3)).is_empty());
    }

    #[test]
    fn nothing_holds_a_file_that_was_just_made() {
        let path = std::env::temp_dir().join(format!("weir-holders-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).expect("a file can be made");
        let holders = of_path(&path);
        std::fs::remove_file(&path).expect("it is there");
        let holders = holders.expect("the kernel says what holds what");
        assert!(holders.is_empty(), "{holders:?}");
        let nothing = of_path(Path::new("/nowhere/at/all"));
        assert!(nothing.expect("it is not there").is_empty());
    }

    /// What a kernel says, in a directory of its own: a disk 8:0 with a partition, a loop device 7:0 over the partition, and a file system on that.
    struct Told {
        directory: PathBuf,
    }

    const DISK: Medium = Medium::Device(0x800);
    const PART: Medium = Medium::Device(0x801);
    const LOOP: Medium = Medium::Device(0x700);
    const IMAGE: Medium = Medium::File(2049, 77);

    impl Told {
        fn new(test: &str, loop_over: &str) -> Self {
            let name = format!("weir-kernel-{test}-{}", std::process::id());
            let told = Told {
                directory: std::env::temp_dir().join(name),
            };
            let put = |path: &str, text: &str| {
                let path = told.directory.join(path);
                std::fs::create_dir_all(path.parent().expect("it has one")).expect("one is made");
                std::fs::write(path, text).expect("a file is made");
            };
            put(
                "proc/self/mountinfo",
                "31 28 7:0 / /srv rw - ext4 /dev/loop0 rw\n",
            );
            put("proc/swaps", "Filename Type Size Used Priority\n");
            put("sys/devices/sda/dev", "8:0\n");
            put("sys/devices/sda/sda1/dev", "8:1\n");
            put("sys/devices/sda/sda1/partition", "1\n");
            put("sys/devices/sda/sda1/start", "2048\n");
            put("sys/devices/loop0/dev", "7:0\n");
            put(
                "sys/devices/loop0/loop/backing_file",
                &format!("{loop_over}\n"),
            );
            for name in ["sda", "sda/sda1", "loop0"] {
                std::fs::create_dir_all(told.directory.join(format!("sys/devices/{name}/holders")))
                    .expect("a directory is made");
            }
            let links = [
                ("sys/block/sda", "../devices/sda"),
                ("sys/block/loop0", "../devices/loop0"),
                ("sys/class/block/sda", "../../devices/sda"),
                ("sys/class/block/sda1", "../../devices/sda/sda1"),
                ("sys/class/block/loop0", "../../devices/loop0"),
                ("sys/dev/block/8:0", "../../devices/sda"),
                ("sys/dev/block/8:1", "../../devices/sda/sda1"),
                ("sys/dev/block/7:0", "../../devices/loop0"),
            ];
            for (link, target) in links {
                let link = told.directory.join(link);
                std::fs::create_dir_all(link.parent().expect("it has one")).expect("one is made");
                std::os::unix::fs::symlink(target, link).expect("a link is made");
            }
            told
        }

        fn holders_of(&self, medium: Medium) -> io::Result<Vec<String>> {
            let medium_at = |path: &Path| match path.to_str() {
                Some("/dev/sda1") => Ok(Some(PART)),
                Some("/srv/image") => Ok(Some(IMAGE)),
                Some("/dev/loop0") => Ok(Some(LOOP)),
                Some("/locked/image") => Err(io::ErrorKind::PermissionDenied.into()),
                _ => Ok(None),
            };
            let kernel = Kernel {
                proc: &self.directory.join("proc"),
                sys: &self.directory.join("sys"),
                medium_at: &medium_at,
            };
            kernel.holders_of(medium)
        }

        fn remove(&self, path: &str) {
            let path = self.directory.join(path);
            let removed = match path.is_dir() && !path.is_symlink() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.expect("it is there");
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn a_loop_device_holds_what_it_shows_be_it_a_file_or_a_device() {
        let over_device = Told::new("device", "/dev/sda1");
        let held = ["attached as /dev/loop0, mounted at /srv"];
        assert_eq!(over_device.holders_of(PART).expect("all is told"), held);
        let of_disk = over_device.holders_of(DISK).expect("all is told");
        let through = "its partition /dev/sda1, attached as /dev/loop0, mounted at /srv";
        assert_eq!(of_disk, [through]);
        assert!(
            over_device
                .holders_of(IMAGE)
                .expect("all is told")
                .is_empty()
        );
        let over_file = Told::new("file", "/srv/image");
        assert_eq!(over_file.holders_of(IMAGE).expect("all is told"), held);
        assert!(over_file.holders_of(DISK).expect("all is told").is_empty());
    }

    #[test]
    fn what_cannot_be_read_does_not_mean_that_nobody_holds_it() {
        for gone in ["proc/self/mountinfo", "sys/block", "sys/dev/block/8:1"] {
            let told = Told::new("gone", "/srv/image");
            told.remove(gone);
            let error = told.holders_of(PART).expect_err(gone).to_string();
            assert!(error.contains("is not there"), "{gone}: {error}");
        }
        // In place of a file there is a directory: reading it fails, whoever asks.
        for broken in [
            "proc/self/mountinfo",
            "proc/swaps",
            "sys/devices/loop0/loop/backing_file",
        ] {
            let told = Told::new("broken", "/srv/image");
            told.remove(broken);
            std::fs::create_dir(told.directory.join(broken)).expect("a directory is made");
            let error = told.holders_of(PART).expect_err(broken).to_string();
            assert!(
                error.contains(broken.rsplit('/').next().unwrap_or(broken)),
                "{error}"
            );
        }
        let locked = Told::new("locked", "/locked/image");
        assert!(locked.holders_of(IMAGE).is_err());
        let garbled = Told::new("garbled", "/dev/sda1");
        let dev = garbled.directory.join("sys/devices/loop0/dev");
        std::fs::write(dev, "none").expect("it is written");
        assert!(garbled.holders_of(PART).is_err());
        // A kernel without swap, and a device that vanishes meanwhile, are no failures.
        let without = Told::new("without", "/dev/sda1");
        without.remove("proc/swaps");
        without.remove("sys/class/block/loop0");
        let held = without.holders_of(PART).expect("all is told");
        assert_eq!(held, ["attached as /dev/loop0"]);
    }

    /// Wherever this runs, the device under some mounted file system can most often be named; where none can, there is nothing to see.
    #[test]
    fn what_is_mounted_here_is_told() {
        let mountinfo = read_to_string("/proc/self/mountinfo").expect("there is a /proc");
        for line in mountinfo.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let Some((major, minor)) = fields[2].split_once(':') else {
                panic!("{line}")
            };
            if major == "0" {
                continue;
            }
            let numbers = (
                major.parse().expect("a number"),
                minor.parse().expect("a number"),
            );
            let medium = Medium::Device(rustix::fs::makedev(numbers.0, numbers.1));
            let holders = kernel().holders_of(medium).expect("the kernel says it");
            let wanted = format!("mounted at {}", unescaped(fields[4]));
            assert!(holders.contains(&wanted), "{line}: {holders:?}");
        }
    }
}
