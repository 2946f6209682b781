//! What the links of machines carry. How much that is follows from how long requests are and where they go: nothing of it is estimated.
//!
//! Counted as what machines send, as hosts are ([`Premises::storage_work`]), less what stays in one: between a gateway and the OSDs of its own node. Headers are not
//! counted.

use super::{Configuration, Premises};
use crate::network::Station;

/// What the machines of a kind move for each request of the cluster, all together, in lengths of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traffic {
    /// What the stations of their links are called.
    pub name: &'static str,
    /// How many there are.
    pub machines: f64,
    /// What they send.
    pub sent: f64,
    /// What they receive.
    pub received: f64,
    /// What of that comes from NVMe hosts, whose own links are not part of the model.
    pub from_outside: f64,
}

/// Of machines with gateways first, and of the others where there are any.
pub(super) fn traffic(of: &Configuration, premises: &Premises) -> Vec<Traffic> {
    let (gateways, nodes) = (f64::from(of.gateways), f64::from(of.nodes));
    let (reads, writes) = (premises.read_part, 1.0 - premises.read_part);
    // As many nodes as there are replicas have one each; of more replicas than nodes, what stays in a node is sent nowhere.
    let copies = writes * (premises.replicas.min(nodes) - 1.0).max(0.0);
    if !premises.colocated {
        return vec![
            Traffic {
                name: "links of hosts of gateways",
                machines: gateways,
                sent: reads + writes,
                received: writes + reads,
                from_outside: writes,
            },
            Traffic {
                name: "links of hosts of OSDs",
                machines: nodes,
                sent: reads + copies,
                received: writes + copies,
                from_outside: 0.0,
            },
        ];
    }
    let both = gateways.min(nodes);
    // A gateway's node is as likely as any other to have what it asks for.
    let away = 1.0 - 1.0 / nodes;
    let osds_away = (both - 1.0) / nodes;
    let mut all = vec![Traffic {
        name: "links of hosts with gateways",
        machines: both,
        sent: reads + writes * away + reads * osds_away + copies * both / nodes,
        received: writes + reads * away + writes * osds_away + copies * both / nodes,
        from_outside: writes,
    }];
    if nodes > both {
        let part = (nodes - both) / nodes;
        all.push(Traffic {
            name: "links of hosts without gateways",
            machines: nodes - both,
            sent: (reads + copies) * part,
            received: (writes + copies) * part,
            from_outside: 0.0,
        });
    }
    all
}

/// Each direction of the links of each kind of machine; none where it is not known what they carry, or how much that is.
pub(super) fn stations(of: &Configuration, premises: &Premises) -> Vec<Station> {
    let Some((link, bytes)) = of.link.zip(premises.request_bytes) else {
        return Vec::new();
    };
    let seconds = bytes / link as f64;
    let each = |kind: Traffic| {
        let station = |lengths: f64| Station::any(kind.name, kind.machines, lengths * seconds);
        // What one machine sends another receives while it is being sent: it takes time once, and may wait on either side.
        let receiving = Station {
            alone: kind.from_outside * seconds,
            ..station(kind.received)
        };
        [station(kind.sent), receiving]
    };
    traffic(of, premises).into_iter().flat_map(each).collect()
}

/// Requests a second that the links carry at most.
pub(super) fn capacity(of: &Configuration, premises: &Premises) -> f64 {
    let all = stations(of, premises);
    all.iter()
        .map(Station::capacity)
        .fold(f64::INFINITY, f64::min)
}
