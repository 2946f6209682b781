//! What the machine allows this process, and how the gateway plans within it.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_block::size::Size;

use crate::config::{Config, MemoryLimit};

/// Share of the allowed memory that data buffers take by themselves: one in so many.
const AUTOMATIC_SHARE: u64 = 4;
/// Most memory that data buffers take by themselves, in bytes.
const AUTOMATIC_MAX: u64 = 4 << 30;
/// Transfers of the largest size that a reactor's buffers must hold at once.
const TRANSFERS_PER_REACTOR_MIN: u64 = 4;
/// Bytes that any admin or fabrics command may carry in its capsule (NVMe/TCP 1.0, 3.3.2).
const ADMIN_CAPSULE_DATA: u64 = 8192;
/// Open files that are not connections: volumes, rings, listeners, the store.
const OTHER_FILES: u64 = 1024;

/// Why the configuration does not fit the machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// More memory is configured than there is.
    #[error("limits.memory is {}, more than the {} that this process may use: lower it", Size(*wanted), Size(*allowed))]
    Memory {
        /// What is configured, in bytes.
        wanted: u64,
        /// What is allowed, in bytes.
        allowed: u64,
    },
    /// The buffers that connections reserve do not fit.
    #[error(
        "{connections} connections with {} each reserve {}, more than the {} for data buffers: \
         lower limits.connections or transport.in_capsule_size, or raise limits.memory",
        Size(*each), Size(connections * each), Size(*memory)
    )]
    Connections {
        /// Connections at once.
        connections: u64,
        /// Bytes that each reserves.
        each: u64,
        /// Bytes for data buffers.
        memory: u64,
    },
    /// A reactor's share does not hold enough large transfers.
    #[error(
        "{} for data buffers gives each of {reactors} reactors {}, less than the {} that \
         {TRANSFERS_PER_REACTOR_MIN} transfers of transport.data_transfer_size_max need: raise \
         limits.memory, or lower transport.data_transfer_size_max or reactors",
        Size(*memory), Size(memory / reactors), Size(*needed)
    )]
    Transfers {
        /// Bytes for data buffers.
        memory: u64,
        /// Reactors.
        reactors: u64,
        /// Bytes that each needs.
        needed: u64,
    },
}

/// How the gateway uses the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Reactors to start.
    pub reactors: u32,
    /// Bound on each reactor's buffer pool, in bytes.
    pub pool_bytes: u64,
}

impl Plan {
    /// Plans for `processors` processors and `memory` bytes.
    ///
    /// # Errors
    /// What is configured does not fit; the error has the numbers.
    pub fn new(config: &Config, processors: u32, memory: u64) -> Result<Self, LimitsError> {
        let reactors = config.reactors.min(processors.max(1));
        let buffers = match config.limits.memory {
            MemoryLimit::Automatic => (memory / AUTOMATIC_SHARE).min(AUTOMATIC_MAX),
            MemoryLimit::Bytes(wanted) if wanted > memory => {
                return Err(LimitsError::Memory {
                    wanted,
                    allowed: memory,
                });
            }
            MemoryLimit::Bytes(wanted) => wanted,
        };
        let connections = u64::from(config.limits.connections);
        let each = u64::from(config.transport.in_capsule_size).max(ADMIN_CAPSULE_DATA);
        if connections * each > buffers {
            return Err(LimitsError::Connections {
                connections,
                each,
                memory: buffers,
            });
        }
        let pool_bytes = buffers / u64::from(reactors);
        let needed = TRANSFERS_PER_REACTOR_MIN * u64::from(config.transport.data_transfer_size_max);
        if pool_bytes < needed {
            let reactors = reactors.into();
            return Err(LimitsError::Transfers {
                memory: buffers,
                reactors,
                needed,
            });
        }
        Ok(Self {
            reactors,
            pool_bytes,
        })
    }
}

/// Processors that this process may run on, its control group's quota included.
pub fn processors() -> u32 {
    let found = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(found).unwrap_or(u32::MAX)
}

/// Memory that this process may use, in bytes: the machine's, or its control group's if that is
/// less.
pub fn memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let group = groups.and_then(|text| group_memory(&text, Path::new("/sys/fs/cgroup")));
    machine.into_iter().chain(group).min().unwrap_or(u64::MAX)
}

/// MemTotal of `/proc/meminfo`, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The least `memory.max` from the control group in `/proc/self/cgroup` up to the root at `root`,
/// or the limit of the memory controller of version 1.
fn group_memory(cgroup: &str, root: &Path) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut least = None;
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let leaf = top.join(group.trim_start_matches('/'));
        let own = leaf.ancestors().take_while(|path| path.starts_with(&top));
        least = own
            .filter_map(|path| number(&path.join(file)))
            .chain(least)
            .min();
    }
    least
}

/// Raises the soft limit on open files to the hard one, and returns it.
///
/// # Errors
/// The system refused.
pub fn raise_open_files() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Whether so many open files serve the configured number of connections; the sentence says what to
/// do if not.
pub fn open_files_warning(config: &Config, allowed: u64) -> Option<String> {
    let needed = u64::from(config.limits.connections) + OTHER_FILES;
    (allowed < needed).then(|| {
        format!(
            "this process may open {allowed} files, and limits.connections needs {needed}: raise \
             LimitNOFILE of the service, or lower limits.connections"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_plan_fits_the_machine() {
        let config = Config::default();
        let plan = Plan::new(&config, 8, 64 * GIB).unwrap();
        assert_eq!(
            plan,
            Plan {
                reactors: 4,
                pool_bytes: GIB
            }
        );
        let plan = Plan::new(&config, 2, GIB).unwrap();
        assert_eq!(
            plan,
            Plan {
                reactors: 2,
                pool_bytes: GIB / 8
            }
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let mut config = Config::default();
        config.limits.memory = MemoryLimit::Bytes(2 * GIB);
        let error = Plan::new(&config, 4, GIB).unwrap_err();
        assert!(
            error.to_string().contains("2 GiB, more than the 1 GiB"),
            "{error}"
        );
        config.limits.memory = MemoryLimit::Bytes(16 << 20);
        let error = Plan::new(&config, 4, GIB).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("reserve 32 MiB, more than the 16 MiB"),
            "{error}"
        );
        config.limits.connections = 512;
        config.transport.data_transfer_size_max = 2 << 20;
        let error = Plan::new(&config, 4, GIB).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("reactors 4 MiB, less than the 8 MiB"),
            "{error}"
        );
        assert!(Plan::new(&config, 2, GIB).is_ok());
    }

    #[test]
    fn the_least_limit_of_the_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("memory/c")).unwrap();
        fs::write(root.join("a/memory.max"), "1000\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.join("memory/c/memory.limit_in_bytes"), "500\n").unwrap();
        assert_eq!(group_memory("0::/a/b\n", root), Some(1000));
        assert_eq!(group_memory("0::/\n", root), None);
        assert_eq!(group_memory("0::/nowhere\n", root), None);
        assert_eq!(group_memory("0::/a/b\n5:cpu,memory:/c\n", root), Some(500));
        assert_eq!(group_memory("nonsense", root), None);
        assert_eq!(
            total_of("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2048 * 1024)
        );
        assert!(memory() > 0 && processors() > 0);
    }

    #[test]
    fn the_soft_limit_on_files_is_the_hard_one() {
        let raised = raise_open_files().unwrap();
        assert_eq!(
            getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            raised
        );
        let config = Config::default();
        assert!(
            open_files_warning(&config, 100)
                .unwrap()
                .contains("LimitNOFILE")
        );
        assert_eq!(open_files_warning(&config, 1 << 20), None);
    }
}
