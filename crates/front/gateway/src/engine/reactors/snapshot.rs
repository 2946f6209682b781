//! From the state and what is open to what the target serves.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use weir_nvme_target::{
    Allowed, AnaState, HostOptions, Namespace as Served, Port, Snapshot, Subsystem as Offered,
};

use super::Books;
use crate::name::Nqn;
use crate::state::{ListenerKind, Namespace, SocketOptions, State, Subsystem, Visibility};

/// What is served of `state`. A namespace whose volume is not open is not among it: hosts see it
/// when the volume is open again.
pub(super) fn of(state: &State, books: &Books) -> Snapshot {
    let hosts = state
        .hosts
        .iter()
        .filter(|(_, host)| host.socket_options != Default::default());
    Snapshot {
        generation: state.discovery_generation,
        subsystems: state
            .subsystems
            .iter()
            .map(|(nqn, found)| offered(nqn, found, books))
            .collect(),
        hosts: hosts
            .map(|(nqn, host)| HostOptions {
                nqn: nqn.wire().clone(),
                options: socket_options(&host.socket_options),
            })
            .collect(),
        ports: ports(books),
    }
}

fn offered(nqn: &Nqn, subsystem: &Subsystem, books: &Books) -> Offered {
    let mut offered = Offered::new(nqn.wire().clone(), subsystem.serial.as_str());
    offered.model = subsystem.model.to_string();
    offered.allowed = match subsystem.allow_any_host {
        true => Allowed::Any,
        false => Allowed::List(wire(&subsystem.allowed_hosts)),
    };
    offered.controller_ids = subsystem.controller_ids.min..=subsystem.controller_ids.max;
    let namespaces = subsystem.namespaces.iter();
    offered.namespaces = namespaces
        .filter_map(|(nsid, namespace)| served(nqn, *nsid, namespace, books))
        .collect();
    offered
}

fn served(nqn: &Nqn, nsid: NonZeroU32, namespace: &Namespace, books: &Books) -> Option<Served> {
    let key = (nqn.clone(), nsid.get());
    let volume = books.served.get(&key)?;
    Some(Served {
        nsid: nsid.get(),
        volume: volume.clone(),
        counted: volume.guard().clone(),
        uuid: namespace.uuid.into_bytes(),
        nguid: namespace.nguid.bytes(),
        eui64: namespace.eui64.bytes(),
        read_only: namespace.read_only,
        visible_to: match &namespace.visible_to {
            Visibility::All => Allowed::Any,
            Visibility::Hosts(hosts) => Allowed::List(wire(hosts)),
        },
        ana_group: namespace.ana_group,
        ana_state: AnaState::Optimized,
    })
}

fn wire(names: &BTreeSet<Nqn>) -> BTreeSet<weir_nvme::Nqn> {
    names.iter().map(|nqn| nqn.wire().clone()).collect()
}

/// The options that are given, as sockets have them.
pub(super) fn socket_options(options: &SocketOptions) -> weir_reactor::SocketOptions {
    weir_reactor::SocketOptions {
        send_buffer: options.send_buffer,
        receive_buffer: options.receive_buffer,
        congestion_control: options.congestion_control.clone(),
        dscp: options.dscp,
        priority: options.priority.map(u32::from),
        ..Default::default()
    }
}

/// Every socket that listens is a port of the discovery log.
fn ports(books: &Books) -> Vec<Port> {
    let own = books.listeners.values().flat_map(|bound| {
        let discovery_only = bound.listener.kind == ListenerKind::Discovery;
        bound
            .addresses
            .iter()
            .map(move |address| (*address, discovery_only))
    });
    let inherited = books.inherited.iter().map(|(_, address)| (*address, false));
    let numbered = own.chain(inherited).zip(1..);
    numbered
        .map(|((address, discovery_only), id)| Port {
            address,
            id,
            discovery_only,
        })
        .collect()
}
