//! From the state and what is open to what the target serves.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use weir_nvme_target::{
    Allowed, AnaState, HostOptions, Namespace as Served, Port, Snapshot, Subsystem as Offered,
};

use super::Books;
use crate::name::{HostName, Nqn};
use crate::state::{
    ListenerKind, Namespace, Protocol, SocketOptions, State, Subsystem, Visibility,
};

/// What is served of `state`. A namespace whose volume is not open is not among it: hosts see it
/// when the volume is open again.
pub(super) fn of(state: &State, books: &Books) -> Snapshot {
    let hosts = state
        .hosts
        .values()
        .filter(|host| host.socket_options != Default::default());
    Snapshot {
        generation: state.discovery_generation,
        subsystems: state
            .subsystems
            .iter()
            .map(|(nqn, found)| offered(state, nqn, found, books))
            .collect(),
        hosts: hosts
            .flat_map(|host| host.nqns.iter().map(move |nqn| (nqn, host)))
            .map(|(nqn, host)| HostOptions {
                nqn: nqn.wire().clone(),
                options: socket_options(&host.socket_options),
            })
            .collect(),
        ports: ports(books),
    }
}

fn offered(state: &State, nqn: &Nqn, subsystem: &Subsystem, books: &Books) -> Offered {
    let mut offered = Offered::new(nqn.wire().clone(), subsystem.serial.as_str());
    offered.model = subsystem.model.to_string();
    offered.allowed = match subsystem.allow_any_host {
        true => Allowed::Any,
        false => Allowed::List(wire(state, &subsystem.allowed_hosts)),
    };
    offered.controller_ids = subsystem.controller_ids.min..=subsystem.controller_ids.max;
    let namespaces = subsystem.namespaces.iter();
    offered.namespaces = namespaces
        .filter_map(|(nsid, namespace)| served(state, nqn, *nsid, namespace, books))
        .collect();
    offered
}

fn served(
    state: &State,
    nqn: &Nqn,
    nsid: NonZeroU32,
    namespace: &Namespace,
    books: &Books,
) -> Option<Served> {
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
            Visibility::Hosts(hosts) => Allowed::List(wire(state, hosts)),
        },
        ana_group: namespace.ana_group,
        ana_state: AnaState::Optimized,
    })
}

fn wire(state: &State, hosts: &BTreeSet<HostName>) -> BTreeSet<weir_nvme::Nqn> {
    state.nqns(hosts).map(|nqn| nqn.wire().clone()).collect()
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
        let Protocol::Nvme { kind } = bound.listener.protocol;
        let discovery_only = kind == ListenerKind::Discovery;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_all_of_its_nqns() {
        let nqn = |name: &str| -> Nqn { format!("nqn.2026-01.a:{name}").parse().unwrap() };
        let text = r#"{"revision": 1, "discovery_generation": 1, "volumes": {}, "portals": {},
            "hosts": {"m": {"nqns": ["nqn.2026-01.a:h", "nqn.2026-01.a:i"], "note": "", "socket_options": {"dscp": 1}}},
            "subsystems": {"nqn.2026-01.a:s": {"serial": "S", "model": "M", "allow_any_host": false, "allowed_hosts": ["m"],
            "controller_ids": {"min": 1, "max": 9}, "ana_changes": 0, "namespaces": {}}}}"#;
        let state: State = serde_json::from_str(text).unwrap();
        let snapshot = of(&state, &Books::default());
        let both = BTreeSet::from(["h", "i"].map(|name| nqn(name).wire().clone()));
        assert!(snapshot.hosts.iter().map(|host| &host.nqn).eq(&both));
        let Allowed::List(allowed) = &snapshot.subsystems[0].allowed else {
            panic!("not everybody is allowed");
        };
        assert_eq!(allowed, &both);
    }
}
