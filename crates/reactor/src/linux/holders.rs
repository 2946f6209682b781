//! What has hold of a file or block device on this machine: mounts, swap, devices that are made of it. Read from where the kernel says so;
//! programs that only have it open are not told, for that is what locks are for.

use std::fs::{canonicalize, read_dir, read_link, read_to_string};
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
    fn at(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        if metadata.file_type().is_block_device() {
            Some(Medium::Device(metadata.rdev()))
        } else {
            Some(Medium::File(metadata.dev(), metadata.ino()))
        }
    }
}

/// In words; nothing where nobody has hold of it, or it cannot be told.
pub(super) fn of_path(path: &Path) -> Vec<String> {
    Medium::at(path).map_or_else(Vec::new, of_medium)
}

fn of_medium(medium: Medium) -> Vec<String> {
    let mut holders = Vec::new();
    collect(medium, "", DEPTH_MAX, &mut holders);
    holders
}

/// Adds what holds `medium`, which the first asked for is part of as `through` says.
fn collect(medium: Medium, through: &str, depth: usize, holders: &mut Vec<String>) {
    let places = mounts(
        &read_to_string("/proc/self/mountinfo").unwrap_or_default(),
        medium,
    );
    let mounted = places
        .iter()
        .map(|place| format!("{through}mounted at {place}"));
    holders.extend(mounted);
    if is_swap(medium) {
        holders.push(format!("{through}in use as swap"));
    }
    if depth == 0 {
        return;
    }
    for (link, name) in users(medium) {
        let through = format!("{through}{link} /dev/{name}, ");
        let before = holders.len();
        if let Some(number) = number_of(&name) {
            collect(Medium::Device(number), &through, depth - 1, holders);
        }
        // A partition holds its disk only as far as something holds the partition.
        if holders.len() == before && link != PARTITION {
            holders.push(through.trim_end_matches(", ").to_owned());
        }
    }
}

const PARTITION: &str = "its partition";

/// Devices that are made of a medium: how, and their names.
fn users(medium: Medium) -> Vec<(&'static str, String)> {
    match medium {
        Medium::Device(number) => {
            let directory = sysfs(number);
            let mut users = Vec::new();
            for name in names_in(&directory.join("holders")) {
                users.push(("part of", name));
            }
            for name in names_in(&directory) {
                if directory.join(&name).join("partition").exists() {
                    users.push((PARTITION, name));
                }
            }
            users
        }
        Medium::File(..) => names_in(Path::new("/sys/block"))
            .into_iter()
            .filter(|name| backing_file(name).is_some_and(|path| Medium::at(&path) == Some(medium)))
            .map(|name| ("attached as", name))
            .collect(),
    }
}

/// The file that a loop device shows.
fn backing_file(name: &str) -> Option<PathBuf> {
    let path = format!("/sys/block/{name}/loop/backing_file");
    let text = read_to_string(path).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

fn sysfs(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    canonicalize(&link).unwrap_or(link)
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// The number of a block device, by its name.
fn number_of(name: &str) -> Option<u64> {
    let link = read_link(Path::new("/sys/class/block").join(name)).ok()?;
    let directory = Path::new("/sys/class/block").join(link);
    let text = read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// Where a device is mounted, by mountinfo (proc_pid_mountinfo(5)): a line has the device's number as its third field, the mount point as its
/// fifth, and behind a lone hyphen the kind of file system and what it was mounted from. Some file systems have numbers of
/// their own: they are known by what they were mounted from.
fn mounts(mountinfo: &str, medium: Medium) -> Vec<String> {
    let Medium::Device(wanted) = medium else {
        return Vec::new();
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
        let is_source = |source: &&str| {
            source.starts_with("/dev/") && Medium::at(Path::new(&unescaped(source))) == Some(medium)
        };
        if device == number || source.is_some_and(is_source) {
            places.push(unescaped(place));
        }
    }
    places.dedup();
    places
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

fn is_swap(medium: Medium) -> bool {
    let swaps = read_to_string("/proc/swaps").unwrap_or_default();
    // The first line is a heading.
    swaps.lines().skip(1).any(|line| {
        let path = line.split_whitespace().next().unwrap_or_default();
        Medium::at(Path::new(&unescaped(path))) == Some(medium)
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
        assert_eq!(mounts(lines, device(254, 3)), ["/", "/with space"]);
        assert_eq!(mounts(lines, device(254, 33)), ["/other"]);
        assert!(mounts(lines, device(54, 3)).is_empty());
        assert!(mounts(lines, Medium::File(254, 3)).is_empty());
    }

    #[test]
    fn nothing_holds_a_file_that_was_just_made() {
        let path = std::env::temp_dir().join(format!("weir-holders-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).expect("a file can be made");
        let holders = of_path(&path);
        std::fs::remove_file(&path).expect("it is there");
        assert!(holders.is_empty(), "{holders:?}");
        assert!(of_path(Path::new("/nowhere/at/all")).is_empty());
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
            let holders = of_medium(Medium::Device(rustix::fs::makedev(numbers.0, numbers.1)));
            let wanted = format!("mounted at {}", unescaped(fields[4]));
            assert!(holders.contains(&wanted), "{line}: {holders:?}");
        }
    }
}
