//! What the machine allows this process, and how the gateway plans within it.

use weir_block::size::Size;
use weir_reactor::linux::ReceiveBuffers;
use weir_reactor::linux::limits::{machine_memory, memory_limit};

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
        "{} for data buffers leaves each of {reactors} reactors {} for data, less than the {} that \
         {TRANSFERS_PER_REACTOR_MIN} transfers of transport.data_transfer_size_max need: raise \
         limits.memory, or lower transport.data_transfer_size_max or reactors",
        Size(*memory), Size(*left), Size(*needed)
    )]
    Transfers {
        /// Bytes for data buffers.
        memory: u64,
        /// Reactors.
        reactors: u32,
        /// Bytes that each has for data.
        left: u64,
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
        // Each reactor's buffers for what arrives are on top of its pool.
        let receive_bytes = ReceiveBuffers::default().memory_bytes_max() as u64;
        let pool_bytes = (buffers / u64::from(reactors)).saturating_sub(receive_bytes);
        let needed = TRANSFERS_PER_REACTOR_MIN * u64::from(config.transport.data_transfer_size_max);
        if pool_bytes < needed {
            let (memory, left) = (buffers, pool_bytes);
            return Err(LimitsError::Transfers {
                memory,
                reactors,
                left,
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
    memory_limit().map_or(machine_memory(), |limit| limit.min(machine_memory()))
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
        let receive_bytes = ReceiveBuffers::default().memory_bytes_max() as u64;
        let plan = Plan::new(&config, 8, 64 * GIB).unwrap();
        assert_eq!(
            plan,
            Plan {
                reactors: 4,
                pool_bytes: GIB - receive_bytes
            }
        );
        let plan = Plan::new(&config, 2, GIB).unwrap();
        assert_eq!(
            plan,
            Plan {
                reactors: 2,
                pool_bytes: GIB / 8 - receive_bytes
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
                .contains("reserve 64 MiB, more than the 16 MiB"),
            "{error}"
        );
        config.limits.memory = MemoryLimit::Bytes(64 << 20);
        config.transport.data_transfer_size_max = 4 << 20;
        let error = Plan::new(&config, 4, GIB).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("less than the 16 MiB that 4 transfers"),
            "{error}"
        );
        assert!(Plan::new(&config, 1, GIB).is_ok());
    }

    #[test]
    fn this_machine_allows_something() {
        assert!(memory() > 0 && processors() > 0);
        let config = Config::default();
        assert!(
            open_files_warning(&config, 100)
                .unwrap()
                .contains("LimitNOFILE")
        );
        assert_eq!(open_files_warning(&config, 1 << 20), None);
    }
}
