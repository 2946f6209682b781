//! The Discovery log: the subsystems that a host may connect to, at every port (NVMe Base 2.0c, section 5.16.1.23).

use std::net::{IpAddr, SocketAddr};

use weir_nvme::command::ConnectData;
use weir_nvme::log::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, EntryFlags, SecurityType, SubsystemType,
    TransportRequirements, TransportType,
};
use weir_nvme::{Nqn, nqn};

use super::controller::AdminView;
use crate::snapshot::{ControllerModel, Port};

/// The page for `host`.
pub(super) fn log_page(host: &Nqn, view: &AdminView<'_>) -> Vec<u8> {
    let records = records(host, view);
    let header = DiscoveryLogHeader {
        generation: view.snapshot.generation,
        records: (records.len() / DiscoveryLogEntry::SIZE) as u64,
        record_format: 0,
    };
    let mut page = header.encode().to_vec();
    page.extend(records);
    page
}

/// The entries for `host`: this discovery subsystem at its ports, then what may be connected to.
pub(super) fn records(host: &Nqn, view: &AdminView<'_>) -> Vec<u8> {
    let snapshot = view.snapshot;
    let mut records = Vec::new();
    for port in &snapshot.ports {
        let mut entry = entry_of(port, view);
        entry.subsystem_type = SubsystemType::CurrentDiscovery;
        entry.subsystem_nqn = Nqn::discovery().to_field();
        entry.flags = EntryFlags::PERSISTENT_CONNECTION | EntryFlags::DUPLICATE;
        records.extend(entry.encode());
    }
    let allowed = snapshot
        .subsystems
        .iter()
        .filter(|subsystem| subsystem.allowed.allows(host));
    for subsystem in allowed {
        for port in snapshot.ports.iter().filter(|port| !port.discovery_only) {
            let mut entry = entry_of(port, view);
            entry.subsystem_nqn = subsystem.nqn.to_field();
            if subsystem.controller_model == ControllerModel::Static {
                entry.controller_id = ConnectData::ANY_STATIC_CONTROLLER;
            }
            records.extend(entry.encode());
        }
    }
    records
}

fn entry_of(port: &Port, view: &AdminView<'_>) -> DiscoveryLogEntry {
    let address = advertised(port.address, view.local_address);
    let mut entry = DiscoveryLogEntry {
        transport_type: TransportType::Tcp,
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
    use super::*;

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
