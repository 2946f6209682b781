//! The Discovery log: the subsystems that a host may connect to, at every port (NVMe Base 2.0c, section 5.16.1.23).
//!
//! Hosts that may connect to the same subsystems share one log, which is built when one of them first reads it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use weir_nvme::command::ConnectData;
use weir_nvme::log::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, EntryFlags, SecurityType, SubsystemType,
    TransportRequirements,
};
use weir_nvme::{Nqn, nqn};

use super::controller::AdminView;
use crate::snapshot::{ControllerModel, Port};

/// A log as some hosts see it.
pub(super) struct DiscoveryLog {
    /// Which of the snapshot's subsystems they may connect to, by their order.
    allowed: Vec<u32>,
    /// The address that they reached.
    reached: IpAddr,
    page: Vec<u8>,
    records_hash: u64,
}

/// The logs of one reactor's snapshot.
#[derive(Default)]
pub struct DiscoveryLogs {
    /// Those that were built last are last.
    logs: VecDeque<Rc<DiscoveryLog>>,
    bytes: usize,
}

impl DiscoveryLogs {
    /// Bytes that are kept at most. One log may be longer: its length is that of the operator's lists. It is kept alone.
    pub const BYTES_MAX: usize = 1 << 20;

    /// The log for `host`.
    pub(super) fn of(&mut self, host: &Nqn, view: &AdminView<'_>) -> Rc<DiscoveryLog> {
        let subsystems = (0..).zip(&view.snapshot.subsystems);
        let allowed = subsystems.filter(|(_, subsystem)| subsystem.allowed.allows(host));
        let allowed: Vec<u32> = allowed.map(|(index, _)| index).collect();
        let reached = view.local_address.ip();
        let is_it = |log: &&Rc<DiscoveryLog>| log.allowed == allowed && log.reached == reached;
        if let Some(log) = self.logs.iter().find(is_it) {
            return Rc::clone(log);
        }
        let log = Rc::new(DiscoveryLog::new(allowed, view));
        self.bytes += log.memory_bytes();
        while self.bytes > Self::BYTES_MAX
            && let Some(oldest) = self.logs.pop_front()
        {
            self.bytes -= oldest.memory_bytes();
        }
        self.logs.push_back(Rc::clone(&log));
        log
    }
}

impl DiscoveryLog {
    fn new(allowed: Vec<u32>, view: &AdminView<'_>) -> Self {
        let snapshot = view.snapshot;
        let subsystem_ports = snapshot.ports.iter().filter(|port| !port.discovery_only);
        let count = snapshot.ports.len() + allowed.len() * subsystem_ports.clone().count();
        let header = DiscoveryLogHeader {
            generation: snapshot.generation,
            records: count as u64,
            record_format: 0,
        };
        let mut page =
            Vec::with_capacity(DiscoveryLogHeader::SIZE + count * DiscoveryLogEntry::SIZE);
        page.extend(header.encode());
        // This discovery subsystem at its ports, then what may be connected to.
        for port in &snapshot.ports {
            let mut entry = entry_of(port, view);
            entry.subsystem_type = SubsystemType::CurrentDiscovery;
            entry.subsystem_nqn = Nqn::discovery().to_field();
            entry.flags = EntryFlags::PERSISTENT_CONNECTION | EntryFlags::DUPLICATE;
            page.extend(entry.encode());
        }
        for &index in &allowed {
            let subsystem = &snapshot.subsystems[index as usize];
            for port in subsystem_ports.clone() {
                let mut entry = entry_of(port, view);
                entry.subsystem_nqn = subsystem.nqn.to_field();
                if subsystem.controller_model == ControllerModel::Static {
                    entry.controller_id = ConnectData::ANY_STATIC_CONTROLLER;
                }
                page.extend(entry.encode());
            }
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(&page[DiscoveryLogHeader::SIZE..]);
        DiscoveryLog {
            allowed,
            reached: view.local_address.ip(),
            page,
            records_hash: hasher.finish(),
        }
    }

    /// The whole page.
    pub(super) fn page(&self) -> &[u8] {
        &self.page
    }

    /// Differs where the records do. The header, whose generation grows with every change that any host sees, is not in it.
    pub(super) fn records_hash(&self) -> u64 {
        self.records_hash
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.page.len() + size_of_val(&self.allowed[..])
    }
}

fn entry_of(port: &Port, view: &AdminView<'_>) -> DiscoveryLogEntry {
    let address = advertised(port.address, view.local_address);
    let mut entry = DiscoveryLogEntry {
        transport_type: view.config.transport,
        address_family: match address {
            IpAddr::V4(_) => AddressFamily::Ipv4,
            IpAddr::V6(_) => AddressFamily::Ipv6,
        },
        subsystem_type: SubsystemType::Nvm,
        requirements: TransportRequirements::SQ_FLOW_CONTROL_CAN_BE_OFF,
        port_id: port.id,
        controller_id: ConnectData::ANY_CONTROLLER,
        admin_queue_entries: view.config.queue_depth,
        flags: EntryFlags::NONE,
        service: [0; 32],
        subsystem_nqn: [0; nqn::NQN_FIELD_SIZE],
        address: [0; 256],
        security_type: SecurityType::None,
    };
    entry.set_address(&address.to_string(), &port.address.port().to_string());
    entry
}

/// A wildcard stands for the address that the host reached.
fn advertised(listening: SocketAddr, reached: SocketAddr) -> IpAddr {
    let address = if listening.ip().is_unspecified() {
        reached.ip()
    } else {
        listening.ip()
    };
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;

    use super::*;
    use crate::config::CoreConfig;
    use crate::snapshot::{Allowed, Snapshot, Subsystem};
    use weir_front::IoTotals;

    fn named(number: usize) -> Nqn {
        Nqn::new(&format!("nqn.2026-01.org.example:{number}")).expect("a name")
    }

    /// A snapshot of so many subsystems at four ports; host `n` may connect to all but the `n`th.
    fn snapshot(subsystems: usize) -> Snapshot {
        let hosts = || (0..subsystems + 2).map(named);
        let of = |number| {
            let mut subsystem = Subsystem::new(named(number), "1");
            subsystem.allowed =
                Allowed::List(hosts().filter(|one| *one != named(number)).collect());
            subsystem
        };
        let port = |id| Port {
            address: SocketAddr::from(([0, 0, 0, 0], 4420 + id)),
            id,
            discovery_only: false,
        };
        Snapshot {
            generation: 7,
            subsystems: (0..subsystems).map(of).collect(),
            ports: (0..4).map(port).collect(),
            ..Snapshot::default()
        }
    }

    fn with_view(snapshot: &Snapshot, address: &str, work: impl FnOnce(&AdminView<'_>)) {
        let discovery = RefCell::default();
        work(&AdminView {
            snapshot,
            config: &CoreConfig::example(),
            local_address: address.parse().expect("an address"),
            discovery: &discovery,
            totals: &IoTotals::default,
            errors: &Mutex::default(),
            io_queues: 0,
            up: std::time::Duration::ZERO,
        });
    }

    #[test]
    fn hosts_that_see_the_same_share_one_log() {
        let (snapshot, mut logs) = (snapshot(3), DiscoveryLogs::default());
        with_view(&snapshot, "10.0.0.1:4420", |view| {
            let one = logs.of(&named(0), view);
            assert_eq!(one.page().len(), 1024 + (4 + 2 * 4) * 1024);
            assert!(Rc::ptr_eq(&one, &logs.of(&named(0), view)));
            let other = logs.of(&named(1), view);
            assert_ne!(one.records_hash(), other.records_hash());
            // These may connect to all subsystems.
            let (all, same) = (logs.of(&named(3), view), logs.of(&named(4), view));
            assert!(Rc::ptr_eq(&all, &same));
        });
        let before = logs.logs.len();
        with_view(&snapshot, "10.0.0.2:4420", |view| {
            logs.of(&named(0), view);
            assert_eq!(
                logs.logs.len(),
                before + 1,
                "ports at the address it reached"
            );
        });
    }

    #[test]
    fn logs_have_a_bound_but_for_one_alone() {
        let mut logs = DiscoveryLogs::default();
        let check = |logs: &DiscoveryLogs| {
            let bytes = logs.logs.iter().map(|log| log.memory_bytes());
            assert_eq!(bytes.sum::<usize>(), logs.bytes);
            assert!(logs.bytes <= DiscoveryLogs::BYTES_MAX || logs.logs.len() == 1);
        };
        for (subsystems, kept) in [(40, 6), (400, 1)] {
            with_view(&snapshot(subsystems), "10.0.0.1:4420", |view| {
                for host in 0..10 {
                    logs.of(&named(host), view);
                    check(&logs);
                }
            });
            assert_eq!(logs.logs.len(), kept);
        }
    }

    #[test]
    fn a_wildcard_stands_for_the_address_that_was_reached() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let told =
            |listening, reached| advertised(address(listening), address(reached)).to_string();
        assert_eq!(told("0.0.0.0:4420", "10.0.0.7:8009"), "10.0.0.7");
        assert_eq!(told("[::]:4420", "[2001:db8::1]:4420"), "2001:db8::1");
        assert_eq!(told("[::]:4420", "[::ffff:10.0.0.7]:4420"), "10.0.0.7");
        assert_eq!(told("10.0.0.9:4420", "10.0.0.7:4420"), "10.0.0.9");
    }
}
