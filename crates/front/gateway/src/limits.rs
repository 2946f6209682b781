//! What the machine allows this process, and how the gateway plans within it.
//!
//! A [`Plan`] is made before anything is started: how many reactors and connections there are, how much each may take, and
//! what all of it comes to at worst. What hosts can make the gateway take is in it; what the operator adds while it runs (the
//! blocks of `mem:` volumes, the tables of volumes and namespaces) is not, and comes on top.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_block::size::Size;
use weir_front::MemoryNeeds;
use weir_reactor::linux::ReceiveBuffers;
use weir_reactor::linux::limits::{SocketMemory, machine_memory, memory_limit, socket_memory};

use crate::config::{Config, CountLimit, MemoryLimit};

/// Share of the allowed memory that data buffers take by themselves: one in so many, the first with which all fits.
const AUTOMATIC_SHARES: [u64; 4] = [4, 6, 8, 12];
/// Most memory that data buffers take by themselves, in bytes.
const AUTOMATIC_MAX: u64 = 4 << 30;
/// Most connections where their number is not given.
const AUTOMATIC_CONNECTIONS_MAX: u32 = 4096;
/// Fewest connections where their number is not given: some hosts with a queue for each of their processors.
const AUTOMATIC_CONNECTIONS_MIN: u32 = 64;
/// Memory for each connection where their number is not given, in bytes: about twice what one takes, beside the data buffers.
const AUTOMATIC_CONNECTION_BYTES: u64 = 4 << 20;
/// Share of the connections that may be half open, so that there is room for the others: one in so many.
const HALF_OPEN_SHARE: u32 = 2;
/// Share of the connections that may be half open of one address: one in so many.
const ADDRESS_SHARE: u32 = 4;
/// The part of the budget that is what `mem:` volumes lend.
const LENT_BY_VOLUMES: &str = "lent_by_volumes";
/// Transfers of the largest size that a reactor's buffers must hold at once.
const TRANSFERS_PER_REACTOR_MIN: u64 = 4;
/// Bytes that any admin or fabrics command may carry in its capsule (NVMe/TCP 1.0, 3.3.2).
const ADMIN_CAPSULE_DATA: u64 = 8192;
/// Open files that are not connections: volumes, rings, listeners, the store.
const OTHER_FILES: u64 = 1024;
/// The program and its control plane, in bytes: several times what is measured of it at rest.
const PROCESS_BYTES: u64 = 48 << 20;
/// A reactor's ring, stack, timers and tasks, in bytes, without buffers and connections.
const REACTOR_BYTES: u64 = 4 << 20;
/// Share of a reactor's data buffers that one connection may have: one in so many.
const CONNECTION_SHARE: u64 = 4;
/// Share of the allowed memory that sockets may take: one in so many. Beyond it their buffers are given a size.
const SOCKET_SHARE: u64 = 4;
/// The smallest buffer that a socket is given in each direction, in bytes.
const SOCKET_BUFFER_MIN: u64 = 64 << 10;

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
    /// What the limits come to at worst does not fit.
    #[error("the limits allow for more memory than this process may use: {remedy}\n{budget}")]
    Budget {
        /// What to lower, and to what.
        remedy: String,
        /// What it comes to.
        budget: Box<Budget>,
    },
}

/// What the machine has for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Processors that it may run on.
    pub processors: u32,
    /// Memory that it may use, in bytes.
    pub memory: u64,
    /// What the kernel lets sockets take.
    pub sockets: SocketMemory,
}

impl Machine {
    /// The one that this process runs on, its control group's limits included.
    pub fn here() -> Self {
        Machine {
            processors: processors(),
            memory: memory(),
            sockets: socket_memory(),
        }
    }
}

/// A part of the memory that the gateway takes at worst.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryPart {
    /// What it is for, such as `data_buffers`.
    pub name: String,
    /// Bytes at worst.
    pub bytes: u64,
    /// How it comes to that.
    pub from: String,
}

/// The memory that the gateway takes at worst, by what it is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budget {
    /// Memory that the process may use, in bytes: the machine's, or its control group's.
    pub allowed_bytes: u64,
    /// All parts together, in bytes.
    pub planned_bytes: u64,
    /// The parts.
    pub parts: Vec<MemoryPart>,
}

impl Budget {
    /// All parts but what `mem:` volumes lend, in bytes: there may be no such volume.
    fn without_lent(&self) -> u64 {
        let lent = self.parts.iter().find(|part| part.name == LENT_BY_VOLUMES);
        self.planned_bytes - lent.map_or(0, |part| part.bytes)
    }

    /// Says that `mem:` volumes could make it more than is allowed, where that is so.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        (self.planned_bytes > self.allowed_bytes).then(|| {
            format!(
                "with mem: volumes that are written while they are read, the limits allow for {}, more than the {} that this \
                 process may use: lower limits.memory where there are such volumes",
                Size(self.planned_bytes),
                Size(self.allowed_bytes)
            )
        })
    }

    fn new(allowed_bytes: u64, parts: Vec<MemoryPart>) -> Self {
        Budget {
            allowed_bytes,
            planned_bytes: parts.iter().map(|part| part.bytes).sum(),
            parts,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "memory at worst: {} of {}",
            Size(self.planned_bytes),
            Size(self.allowed_bytes)
        )?;
        for part in &self.parts {
            let size = Size(part.bytes).to_string();
            let name = part.name.replace('_', " ");
            write!(formatter, "\n  {name:<20} {size:>12}  {}", part.from)?;
        }
        Ok(())
    }
}

/// How the gateway uses the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Reactors to start.
    pub reactors: u32,
    /// Bound on each reactor's buffer pool, in bytes.
    pub pool_bytes: u64,
    /// Connections at once.
    pub connections: u32,
    /// Of these, so many that are not a queue yet.
    pub half_open_connections: u32,
    /// Of these, so many of one address.
    pub half_open_per_address: u32,
    /// I/O queues of one controller: no more than one address may have connections that are no queue yet. A host opens all
    /// before it connects one.
    pub io_queues: u16,
    /// Data of one connection's commands at once, in bytes.
    pub bytes_in_flight_per_connection: u32,
    /// Buffers of each socket in each direction, in bytes, where the kernel's own are too large for the machine.
    pub socket_buffer: Option<u32>,
    /// What it comes to at worst.
    pub budget: Budget,
}

/// Everything that a plan is made of but the number of connections.
#[derive(Clone, Copy)]
struct Draft<'a> {
    config: &'a Config,
    machine: &'a Machine,
    needs: MemoryNeeds,
    reactors: u64,
    /// For data buffers, receive buffers included.
    buffers: u64,
    /// Whether there must be room for what `mem:` volumes lend.
    with_lent: bool,
}

impl Plan {
    /// Plans for a machine. `needs` is what the front ends keep.
    ///
    /// # Errors
    /// What is configured does not fit; the error has the numbers and the way out.
    pub fn new(
        config: &Config,
        needs: MemoryNeeds,
        machine: &Machine,
    ) -> Result<Self, LimitsError> {
        let draft = |buffers: u64, with_lent: bool| Draft {
            config,
            machine,
            needs,
            reactors: u64::from(config.reactors.min(machine.processors.max(1))),
            buffers,
            with_lent,
        };
        let drafts: Vec<_> = match config.limits.memory {
            MemoryLimit::Automatic => {
                let of_share = |share: u64| (machine.memory / share).min(AUTOMATIC_MAX);
                let shares = || AUTOMATIC_SHARES.map(of_share).into_iter();
                let with_lent = shares().map(|buffers| draft(buffers, true));
                let without = shares().map(|buffers| draft(buffers, false));
                with_lent.chain(without).collect()
            }
            MemoryLimit::Bytes(wanted) if wanted > machine.memory => {
                return Err(LimitsError::Memory {
                    wanted,
                    allowed: machine.memory,
                });
            }
            // Who says how much wants it for data, whatever volumes there are.
            MemoryLimit::Bytes(wanted) => vec![draft(wanted, false)],
        };
        // Their number is that of the draft that has room for most, so that more memory never gives fewer.
        let connections = match config.limits.connections {
            CountLimit::Count(count) => count,
            CountLimit::Automatic => {
                let most = drafts.iter().map(Draft::automatic_connections).max();
                most.unwrap_or(0).max(AUTOMATIC_CONNECTIONS_MIN)
            }
        };
        let mut refusal = None;
        for draft in drafts {
            match draft.plan(connections) {
                Ok(plan) => return Ok(plan),
                // Where less of it for data would do, less is taken; the first refusal tells most.
                Err(error) => _ = refusal.get_or_insert(error),
            }
        }
        Err(refusal.expect("a plan was tried"))
    }

    /// Plans for this machine.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn here(config: &Config, needs: MemoryNeeds) -> Result<Self, LimitsError> {
        Self::new(config, needs, &Machine::here())
    }
}

impl Draft<'_> {
    fn plan(&self, connections: u32) -> Result<Plan, LimitsError> {
        let pool_bytes = self.pool_bytes()?;
        self.check_reserves(connections)?;
        let (budget, socket_buffer) = self.budget(connections);
        if !self.has_room(&budget) {
            return Err(self.refuse(connections, budget));
        }
        let limits = &self.config.limits;
        let share = |of: u32| (connections / of).max(1);
        let half_open_connections = limits.half_open_connections.min(share(HALF_OPEN_SHARE));
        let half_open_per_address = limits.half_open_per_address.min(share(ADDRESS_SHARE));
        let io_queues_max = u16::try_from(share(ADDRESS_SHARE)).unwrap_or(u16::MAX);
        Ok(Plan {
            reactors: self.reactors as u32,
            pool_bytes,
            connections,
            half_open_connections,
            half_open_per_address,
            io_queues: limits.io_queues.min(io_queues_max),
            bytes_in_flight_per_connection: self.bytes_in_flight_per_connection(pool_bytes),
            socket_buffer,
            budget,
        })
    }

    /// As configured, but no more than a share of a reactor's buffers, and one transfer at least.
    fn bytes_in_flight_per_connection(&self, pool_bytes: u64) -> u32 {
        let share = u32::try_from(pool_bytes / CONNECTION_SHARE).unwrap_or(u32::MAX);
        let configured = self.config.limits.bytes_in_flight_per_connection;
        let least = self.config.transport.data_transfer_size_max;
        configured.min(share.max(least))
    }

    fn fits(&self, connections: u32) -> bool {
        let (budget, _) = self.budget(connections);
        self.has_room(&budget)
    }

    fn has_room(&self, budget: &Budget) -> bool {
        let needed = match self.with_lent {
            true => budget.planned_bytes,
            false => budget.without_lent(),
        };
        needed <= budget.allowed_bytes
    }

    /// The most connections, `most` at most, that fit; none where not one does.
    fn most_that_fit(&self, most: u32) -> Option<u32> {
        if !self.fits(1) {
            return None;
        }
        // More connections never take less.
        let (mut fits, mut over) = (1, most + 1);
        while over - fits > 1 {
            let middle = fits + (over - fits) / 2;
            match self.fits(middle) {
                true => fits = middle,
                false => over = middle,
            }
        }
        Some(fits)
    }

    /// A reactor's share of the data buffers. Its buffers for what arrives are beside its pool.
    fn pool_bytes(&self) -> Result<u64, LimitsError> {
        let left = (self.buffers / self.reactors).saturating_sub(receive_bytes());
        let largest = u64::from(self.config.transport.data_transfer_size_max);
        let needed = TRANSFERS_PER_REACTOR_MIN * largest;
        if left < needed {
            return Err(LimitsError::Transfers {
                memory: self.buffers,
                reactors: self.reactors as u32,
                left,
                needed,
            });
        }
        Ok(left)
    }

    /// Bytes that each connection reserves of the data buffers.
    fn reserve_bytes(&self) -> u64 {
        u64::from(self.config.transport.in_capsule_size).max(ADMIN_CAPSULE_DATA)
    }

    /// How many connections there may be where that is not given: by the memory, or as many as fit if these are fewer.
    fn automatic_connections(&self) -> u32 {
        if self.pool_bytes().is_err() {
            return 0;
        }
        let by_memory = self.machine.memory / AUTOMATIC_CONNECTION_BYTES;
        let (least, most) = (AUTOMATIC_CONNECTIONS_MIN, AUTOMATIC_CONNECTIONS_MAX);
        let by_memory = by_memory.clamp(u64::from(least), u64::from(most));
        let reserved = self.buffers / 2 / self.reserve_bytes();
        let wanted = by_memory.min(reserved) as u32;
        self.most_that_fit(wanted.max(1)).unwrap_or(0)
    }

    fn check_reserves(&self, connections: u32) -> Result<(), LimitsError> {
        let (connections, each) = (u64::from(connections), self.reserve_bytes());
        if connections * each > self.buffers {
            return Err(LimitsError::Connections {
                connections,
                each,
                memory: self.buffers,
            });
        }
        Ok(())
    }

    /// What sockets take at worst, and the size that their buffers are given where the kernel's own would be too large.
    fn sockets(&self, connections: u64) -> (MemoryPart, Option<u32>) {
        let sockets = self.machine.sockets;
        let (each, share) = (sockets.each_bytes, self.machine.memory / SOCKET_SHARE);
        let part = |bytes: u64, from: String| MemoryPart {
            name: "socket_buffers".to_owned(),
            bytes,
            from,
        };
        let unbounded = connections.saturating_mul(each);
        let from_each = format!("{connections} x {} (tcp_rmem, tcp_wmem)", Size(each));
        let most = unbounded.min(sockets.all_bytes);
        if most <= share {
            let from = match unbounded <= sockets.all_bytes {
                true => from_each,
                false => format!("{from_each}, and all sockets no more than net.ipv4.tcp_mem"),
            };
            return (part(most, from), None);
        }
        let direction = (share / connections / 2).max(SOCKET_BUFFER_MIN);
        let from = format!(
            "{connections} x 2 x {} (the kernel's own would take {})",
            Size(direction),
            Size(most)
        );
        // The kernel doubles what it is given, for its own needs.
        let given = u32::try_from(direction / 2).unwrap_or(u32::MAX);
        (part(connections * 2 * direction, from), Some(given))
    }

    fn budget(&self, connections: u32) -> (Budget, Option<u32>) {
        let (connections, reactors) = (u64::from(connections), self.reactors);
        let needs = &self.needs;
        let (sockets, socket_buffer) = self.sockets(connections);
        let part = |name: &str, bytes: u64, from: String| MemoryPart {
            name: name.to_owned(),
            bytes,
            from,
        };
        let receive = reactors * receive_bytes();
        let data = self.buffers.saturating_sub(receive);
        let connection = needs.connection_bytes;
        let controllers = connections.min(u64::from(self.config.limits.controllers));
        let parts = vec![
            part(
                "data_buffers",
                data,
                format!("limits.memory without the receive buffers: {reactors} reactors"),
            ),
            part(
                "receive_buffers",
                receive,
                format!("{reactors} x {}", Size(receive_bytes())),
            ),
            part(
                "connections",
                connections * connection,
                format!(
                    "{connections} x {} (limits.queue_depth {})",
                    Size(connection),
                    self.config.limits.queue_depth
                ),
            ),
            part(
                "controllers",
                controllers * needs.session_bytes,
                format!("{controllers} x {}", Size(needs.session_bytes)),
            ),
            part(
                "data_in_flight",
                data / needs.list_share,
                "lists of the data that is in flight".to_owned(),
            ),
            part(
                LENT_BY_VOLUMES,
                data + connections * self.reserve_bytes(),
                "what mem: volumes lend to sends while it is written anew: as the data buffers, none without such volumes"
                    .to_owned(),
            ),
            sockets,
            part(
                "reactors",
                reactors * (REACTOR_BYTES + needs.reactor_bytes),
                format!("{reactors} x {}", Size(REACTOR_BYTES + needs.reactor_bytes)),
            ),
            part(
                "program",
                PROCESS_BYTES,
                "the program and its control plane".to_owned(),
            ),
        ];
        (Budget::new(self.machine.memory, parts), socket_buffer)
    }

    /// The refusal, with what would fit.
    fn refuse(&self, connections: u32, budget: Budget) -> LimitsError {
        let with = |buffers: u64| Draft { buffers, ..*self };
        // In steps in which people think.
        let less = (1..=64)
            .map(|part| whole_mebibytes(self.buffers / 64 * (64 - part)))
            .find(|&buffers| with(buffers).pool_bytes().is_ok() && with(buffers).fits(connections));
        let fewer = self.most_that_fit(connections);
        let mut ways = Vec::new();
        if let Some(less) = less {
            ways.push(format!("limits.memory to {}M", less >> 20));
        }
        if let Some(fewer) = fewer {
            ways.push(format!("limits.connections to {fewer}"));
        }
        let remedy = if ways.is_empty() {
            let quarter = whole_mebibytes(budget.allowed_bytes / AUTOMATIC_SHARES[0]);
            match with(quarter).most_that_fit(connections) {
                Some(fewer) => format!(
                    "lower limits.memory to {}M and limits.connections to {fewer}",
                    quarter >> 20
                ),
                None => "give it more memory, or lower reactors".to_owned(),
            }
        } else {
            format!("lower {}", ways.join(", or "))
        };
        LimitsError::Budget {
            remedy,
            budget: Box::new(budget),
        }
    }
}

/// `bytes` without what is left of a MiB.
fn whole_mebibytes(bytes: u64) -> u64 {
    (bytes >> 20) << 20
}

/// A reactor's buffers for what arrives, in bytes.
fn receive_bytes() -> u64 {
    ReceiveBuffers::default().memory_bytes_max() as u64
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

/// Memory of the process that is in the machine's now, in bytes; none where the system does not tell.
pub fn resident_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Whether so many open files serve the planned number of connections; the sentence says what to
/// do if not.
pub fn open_files_warning(connections: u32, allowed: u64) -> Option<String> {
    let needed = u64::from(connections) + OTHER_FILES;
    (allowed < needed).then(|| {
        format!(
            "this process may open {allowed} files, and {connections} connections need {needed}: raise \
             LimitNOFILE of the service, or lower limits.connections"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::reactors::memory_needs;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn machine(processors: u32, memory: u64) -> Machine {
        Machine {
            processors,
            memory,
            sockets: SocketMemory {
                each_bytes: 10 * MIB,
                // As Linux has it by itself.
                all_bytes: memory / 11,
            },
        }
    }

    fn plan(config: &Config, processors: u32, memory: u64) -> Result<Plan, LimitsError> {
        let needs = memory_needs(config);
        Plan::new(config, needs, &machine(processors, memory))
    }

    #[test]
    fn a_plan_fits_the_machine() {
        let config = Config::default();
        let large = plan(&config, 8, 64 * GIB).unwrap();
        assert_eq!((large.reactors, large.connections), (4, 4096));
        assert_eq!(large.pool_bytes, GIB - receive_bytes());
        assert_eq!(large.socket_buffer, None);
        let small = plan(&config, 2, GIB).unwrap();
        assert_eq!(small.reactors, 2);
        assert_eq!(small.pool_bytes, GIB / 8 - receive_bytes());
        assert_eq!(large.bytes_in_flight_per_connection, 64 << 20);
        let quarter = small.pool_bytes / 4;
        assert_eq!(u64::from(small.bytes_in_flight_per_connection), quarter);
    }

    /// The defaults serve on any machine that could hold a gateway at all, and never plan for more than there is.
    #[test]
    fn the_defaults_fit_small_machines_and_groups() {
        let config = Config::default();
        for memory in [
            256 * MIB,
            384 * MIB,
            512 * MIB,
            GIB,
            2 * GIB,
            8 * GIB,
            512 * GIB,
        ] {
            for processors in [1, 2, 4] {
                // In a control group the kernel's bound on sockets is that of a larger machine.
                for all_bytes in [memory / 11, 6 * GIB] {
                    let mut machine = machine(processors, memory);
                    machine.sockets.all_bytes = all_bytes;
                    let needs = memory_needs(&config);
                    let made = Plan::new(&config, needs, &machine);
                    if memory < 512 * MIB && processors > 1 {
                        continue;
                    }
                    let made =
                        made.unwrap_or_else(|error| panic!("{memory} {processors}: {error}"));
                    assert!(made.budget.planned_bytes <= memory, "{}", made.budget);
                    assert!(made.connections >= AUTOMATIC_CONNECTIONS_MIN);
                    assert_eq!(made.budget.warning(), None);
                    assert!(made.half_open_connections <= made.connections / 2);
                    assert!(made.half_open_per_address <= made.connections / 4);
                    assert!(u32::from(made.io_queues) <= made.connections / 4);
                    let sum: u64 = made.budget.parts.iter().map(|part| part.bytes).sum();
                    assert_eq!(sum, made.budget.planned_bytes);
                }
            }
        }
    }

    /// More memory never gives fewer connections.
    #[test]
    fn connections_grow_with_the_memory() {
        let mut settings = Vec::new();
        for (memory, queue_depth, in_capsule_size) in [
            (MemoryLimit::Automatic, 128, 16 << 10),
            (MemoryLimit::Automatic, 1024, 0),
            (MemoryLimit::Automatic, 128, 64 << 10),
            (MemoryLimit::Bytes(128 * MIB), 128, 16 << 10),
        ] {
            let mut config = Config::default();
            config.limits.memory = memory;
            config.limits.queue_depth = queue_depth;
            config.transport.in_capsule_size = in_capsule_size;
            settings.push(config);
        }
        for config in settings {
            let needs = memory_needs(&config);
            for group in [false, true] {
                let mut before = (0, 0);
                for step in 8..=20 * 32 {
                    // 256 MiB to 20 GiB, in steps that are no round numbers.
                    let memory = step * 32 * MIB + step * 4321;
                    let mut machine = machine(2, memory);
                    if group {
                        machine.sockets.all_bytes = 6 * GIB;
                    }
                    let Ok(made) = Plan::new(&config, needs, &machine) else {
                        assert_eq!(before.1, 0, "{memory} is refused and {} is not", before.0);
                        continue;
                    };
                    assert!(
                        made.connections >= before.1,
                        "{memory} gives {}, {before:?}",
                        made.connections
                    );
                    before = (memory, made.connections);
                }
                assert!(before.1 > 1000, "{before:?}");
            }
        }
    }

    /// What only `mem:` volumes would take keeps no gateway from its start.
    #[test]
    fn what_mem_volumes_lend_is_warned_of_and_not_refused() {
        let mut config = Config::default();
        config.limits.memory = MemoryLimit::Bytes(11 * GIB);
        let memory = 23 * GIB + GIB / 2;
        let made = plan(&config, 2, memory).unwrap();
        assert_eq!(made.connections, AUTOMATIC_CONNECTIONS_MAX);
        assert!(made.budget.without_lent() <= memory);
        let warning = made.budget.warning().expect("with mem: volumes it is more");
        assert!(warning.contains("lower limits.memory"), "{warning}");
        config.limits.memory = MemoryLimit::Bytes(23 * GIB);
        plan(&config, 2, memory).unwrap_err();
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let mut config = Config::default();
        config.limits.memory = MemoryLimit::Bytes(2 * GIB);
        let error = plan(&config, 4, GIB).unwrap_err();
        assert!(
            error.to_string().contains("2 GiB, more than the 1 GiB"),
            "{error}"
        );
        config.limits.memory = MemoryLimit::Bytes(64 * MIB);
        config.limits.connections = CountLimit::Count(8192);
        let error = plan(&config, 1, GIB).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("reserve 128 MiB, more than the 64 MiB"),
            "{error}"
        );
        config.limits.connections = CountLimit::Automatic;
        config.transport.data_transfer_size_max = 4 << 20;
        let error = plan(&config, 4, GIB).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("less than the 16 MiB that 4 transfers"),
            "{error}"
        );
        assert!(plan(&config, 1, GIB).is_ok());
    }

    /// The value that a refusal says `limit` should have.
    fn lowered(text: &str, limit: &str) -> Option<u64> {
        let (_, rest) = text.split_once(&format!("limits.{limit} to "))?;
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        let value = rest[..end].split(" and ").next()?.replace(' ', "");
        Some(weir_block::size::parse(&value).unwrap())
    }

    /// What the refusal says would fit does.
    #[test]
    fn the_way_out_of_a_refusal_is_one() {
        const ALLOWED: u64 = 4 * GIB;
        // Connections too many, memory too much, both.
        for (connections, memory) in [(60_000, GIB), (100, 4 * GIB - 64 * MIB), (60_000, 3 * GIB)] {
            let mut config = Config::default();
            config.limits.connections = CountLimit::Count(connections);
            config.limits.half_open_connections = 64;
            config.limits.memory = MemoryLimit::Bytes(memory);
            let error = plan(&config, 4, ALLOWED).unwrap_err();
            let text = error.to_string();
            let LimitsError::Budget { remedy, budget } = error else {
                panic!("{text}")
            };
            assert!(budget.planned_bytes > ALLOWED);
            for part in [
                "socket buffers",
                "data buffers",
                &format!("{connections} x"),
            ] {
                assert!(text.contains(part), "{text}");
            }
            let (less, fewer) = (lowered(&remedy, "memory"), lowered(&remedy, "connections"));
            let fewer = fewer.map(|count| CountLimit::Count(count as u32));
            let less = less.map(MemoryLimit::Bytes);
            assert!(less.is_some() || fewer.is_some(), "{remedy}");
            let both = remedy.contains(" and ");
            let (mut one, mut other) = (config.clone(), config.clone());
            one.limits.memory = less.unwrap_or(one.limits.memory);
            other.limits.connections = fewer.unwrap_or(other.limits.connections);
            if both {
                one.limits.connections = other.limits.connections;
                other.limits.memory = one.limits.memory;
            }
            for (mended, given) in [(one, less.is_some()), (other, fewer.is_some())] {
                if given {
                    plan(&mended, 4, ALLOWED).unwrap_or_else(|error| panic!("{remedy}: {error}"));
                }
            }
        }
    }

    #[test]
    fn sockets_are_given_buffers_where_the_kernels_own_are_too_large() {
        let config = Config::default();
        let mut group = machine(1, 512 * MIB);
        group.sockets.all_bytes = 6 * GIB;
        let needs = memory_needs(&config);
        let plan = Plan::new(&config, needs, &group).unwrap();
        let given = u64::from(plan.socket_buffer.expect("they are given a size"));
        let sockets = plan
            .budget
            .parts
            .iter()
            .find(|part| part.name == "socket_buffers");
        // Doubled by the kernel, in two directions.
        let bytes = u64::from(plan.connections) * given * 4;
        assert!(sockets.unwrap().bytes >= bytes);
    }

    #[test]
    fn this_machine_allows_something() {
        let here = Machine::here();
        assert!(here.memory > 0 && here.processors > 0);
        assert!(here.sockets.each_bytes > 0 && here.sockets.all_bytes > 0);
        assert!(resident_memory().unwrap() > MIB);
        assert!(
            open_files_warning(4096, 100)
                .unwrap()
                .contains("LimitNOFILE")
        );
        assert_eq!(open_files_warning(4096, 1 << 20), None);
    }
}
