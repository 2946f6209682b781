//! What the machine grants the process: descriptors and memory.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What became of the limit on open descriptors (RLIMIT_NOFILE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The soft limit as it was.
    pub before: u64,
    /// The soft limit as it is: the hard one. `u64::MAX` is none.
    pub now: u64,
}

/// Raises the soft limit on open descriptors to the hard one.
///
/// # Errors
/// The system's.
pub fn raise_descriptor_limit() -> io::Result<DescriptorLimit> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(DescriptorLimit {
        before: limit.current.unwrap_or(u64::MAX),
        now: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    })
}

/// The least memory limit, in bytes, of the control groups that the process is in (cgroup v2 `memory.max`, v1
/// `memory.limit_in_bytes`); `None` where there is no limit.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_limit_under(&groups, Path::new("/sys/fs/cgroup"))
}

/// Memory of the machine, in bytes.
#[must_use]
pub fn machine_memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram as u64 * u64::from(system.mem_unit)
}

/// What the kernel lets TCP sockets take of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes that the buffers of one socket may grow to, both directions together (`net.ipv4.tcp_rmem` and `tcp_wmem`).
    pub each_bytes: u64,
    /// Bytes that all sockets of the machine may take (`net.ipv4.tcp_mem`).
    pub all_bytes: u64,
}

/// What this machine lets TCP sockets take.
#[must_use]
pub fn socket_memory() -> SocketMemory {
    let page = rustix::param::page_size() as u64;
    socket_memory_under(Path::new("/proc/sys/net/ipv4"), page, machine_memory())
}

/// As [`socket_memory`], with the settings at `root`. What cannot be read is as Linux has it by itself.
fn socket_memory_under(root: &Path, page: u64, memory: u64) -> SocketMemory {
    const RECEIVE_MAX: u64 = 6 << 20;
    const SEND_MAX: u64 = 4 << 20;
    // tcp(7): the least, the usual and the most.
    let most = |name: &str| {
        let text = std::fs::read_to_string(root.join(name)).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    SocketMemory {
        each_bytes: most("tcp_rmem").unwrap_or(RECEIVE_MAX) + most("tcp_wmem").unwrap_or(SEND_MAX),
        all_bytes: most("tcp_mem").map_or(memory / 8, |pages| pages.saturating_mul(page)),
    }
}

/// A v1 limit above this is none: the kernel writes the largest multiple of a page.
const V1_UNLIMITED: u64 = 1 << 60;

/// As [`memory_limit`], of the groups in the text of `/proc/self/cgroup`, with the control file system at `root`.
fn memory_limit_under(groups: &str, root: &Path) -> Option<u64> {
    groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            if number == "0" && controllers.is_empty() {
                least(root, path, "memory.max")
            } else if controllers
                .split(',')
                .any(|controller| controller == "memory")
            {
                least(&root.join("memory"), path, "memory.limit_in_bytes")
            } else {
                None
            }
        })
        .min()
}

/// The least limit in `file` of the group at `path` and of those above it.
fn least(root: &Path, path: &str, file: &str) -> Option<u64> {
    let mut group: PathBuf = root.join(path.trim_start_matches('/'));
    let mut limit: Option<u64> = None;
    loop {
        let text = std::fs::read_to_string(group.join(file)).unwrap_or_default();
        let found = text
            .trim()
            .parse()
            .ok()
            .filter(|&bytes| bytes < V1_UNLIMITED);
        limit = limit.into_iter().chain(found).min();
        if group == root || !group.pop() {
            return limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    #[test]
    fn v2_limit_of_an_ancestor_counts() {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path().join("a/memory.max"), "1048576\n");
        write(root.path().join("a/b/memory.max"), "max\n");
        assert_eq!(memory_limit_under("0::/a/b\n", root.path()), Some(1 << 20));
        assert_eq!(memory_limit_under("0::/\n", root.path()), None);
    }

    #[test]
    fn v2_limit_of_a_container_is_at_the_root() {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path().join("memory.max"), "2097152\n");
        assert_eq!(memory_limit_under("0::/\n", root.path()), Some(2 << 20));
        // The path may be of the host's, and not be seen inside.
        let unseen = "0::/system.slice/docker-1.scope\n";
        assert_eq!(memory_limit_under(unseen, root.path()), Some(2 << 20));
    }

    #[test]
    fn v1_limit_and_no_limit() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("memory/x/memory.limit_in_bytes");
        let groups = "5:cpu,cpuacct:/\n4:memory:/x\n";
        write(file.clone(), "4194304\n");
        assert_eq!(memory_limit_under(groups, root.path()), Some(4 << 20));
        write(file, "9223372036854771712\n");
        assert_eq!(memory_limit_under(groups, root.path()), None);
    }

    #[test]
    fn sockets_may_take_what_the_settings_say() {
        let root = tempfile::tempdir().expect("a directory");
        let without = socket_memory_under(root.path(), 4096, 8 << 30);
        assert_eq!((without.each_bytes, without.all_bytes), (10 << 20, 1 << 30));
        write(root.path().join("tcp_rmem"), "4096\t131072\t8388608\n");
        write(root.path().join("tcp_wmem"), "4096\t16384\t1048576\n");
        write(root.path().join("tcp_mem"), "100\t200\t300\n");
        let with = socket_memory_under(root.path(), 4096, 8 << 30);
        assert_eq!((with.each_bytes, with.all_bytes), (9 << 20, 300 * 4096));
    }

    #[test]
    fn descriptor_limit_is_raised_to_the_hard_one() {
        let limit = raise_descriptor_limit().expect("raised");
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(limit.now, hard);
        assert!(limit.before <= limit.now);
    }

    #[test]
    fn machine_has_memory() {
        assert!(machine_memory() > 16 << 20);
    }
}
