//! What a cluster of gateways does: a closed queueing network whose few parameters are found by least squares on measured curves.
//!
//! A request waits at these stations, each a number of like queues ([`crate::network`]):
//!
//! - *delay*: what no load makes longer;
//! - *reactors*: one queue for each reactor of each gateway;
//! - *client contexts*: one for each librbd client of a gateway, which `bdevs_per_cluster` volumes share;
//! - *hosts*: the processors of each node, which move what the network carries: of a gateway each request once, of OSDs what they send, for which the share of
//!   reads and the number of replicas is known ([`Premises::storage_work`]). Where gateways run on OSD nodes, these nodes have both;
//! - *storage*: one queue for each OSD.
//!
//! Parameters are the delay, a demand of each station and the number of a host's queues: six at most, found by their logarithms from all readings
//! of rate and latency. Those that the readings do not show, or do not need, are dropped one by one ([`fit::fit`]); where nothing is left that waits, the fit is refused.

pub mod fit;
mod predict;

pub use predict::{ClusterError, Request, plan};

use crate::network::{Network, Station};
use crate::sheet::Source;

/// A host's queues where the curves do not show how many there are: one for each of 24 drives.
pub const HOST_QUEUES: f64 = 24.0;

/// What a cluster is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// Gateways.
    pub gateways: u32,
    /// Reactors of each gateway.
    pub reactors: u32,
    /// Volumes that share one librbd client.
    pub bdevs_per_cluster: u32,
    /// Nodes with OSDs.
    pub nodes: u32,
    /// OSDs of all nodes.
    pub osds: u32,
}

impl Configuration {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{} nodes, {} OSDs, {} gateways, {} reactors, {} bdevs",
            self.nodes, self.osds, self.gateways, self.reactors, self.bdevs_per_cluster
        )
    }
}

/// What is taken to be so, and not estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Premises {
    /// Whether gateways run on nodes with OSDs.
    pub colocated: bool,
    /// Copies of what is written.
    pub replicas: f64,
    /// The part of the requests that read.
    pub read_part: f64,
    /// Volumes of all gateways.
    pub volumes: f64,
    /// Where each of these comes from.
    pub sources: PremiseSources,
}

/// Where premises come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PremiseSources {
    /// Of where gateways run.
    pub colocated: Source,
    /// Of the replicas.
    pub replicas: Source,
    /// Of the part that reads.
    pub read_part: Source,
    /// Of the volumes.
    pub volumes: Source,
}

impl Premises {
    /// What OSD nodes send for each request, in requests: a read's data once, a write's to all replicas but the first.
    #[must_use]
    pub fn storage_work(&self) -> f64 {
        self.read_part + (1.0 - self.read_part) * (self.replicas - 1.0)
    }
}

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Requests in flight.
    pub in_flight: f64,
    /// Requests a second.
    pub rate: f64,
    /// Mean seconds of a request, where it was read by itself: off a chart, and not computed from the others.
    pub latency: Option<f64>,
}

/// A curve with what it was measured on.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCurve {
    /// What it is called; unlike the others.
    pub name: String,
    /// What it was measured on.
    pub configuration: Configuration,
    /// Ascending by requests in flight; at least one.
    pub readings: Vec<Reading>,
    /// [`Source::Measured`] or [`Source::Published`].
    pub source: Source,
}

impl MeasuredCurve {
    /// The highest rate.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.readings.iter().map(|of| of.rate).fold(0.0, f64::max)
    }

    /// The most in flight.
    #[must_use]
    pub fn in_flight_max(&self) -> f64 {
        self.readings
            .iter()
            .map(|of| of.in_flight)
            .fold(1.0, f64::max)
    }

    /// The rate at a mean latency, between two readings on a line in logarithms; none where the curve does not cross it.
    #[must_use]
    pub fn rate_within(&self, seconds: f64) -> Option<f64> {
        let read = |of: &Reading| (of.rate, of.latency.unwrap_or(of.in_flight / of.rate));
        self.readings.windows(2).find_map(|pair| {
            let ((rate, latency), (rate_next, latency_next)) = (read(&pair[0]), read(&pair[1]));
            if latency > seconds || latency_next <= seconds {
                return None;
            }
            let part = (seconds / latency).ln() / (latency_next / latency).ln();
            Some((rate.ln() + part * (rate_next / rate).ln()).exp())
        })
    }
}

/// What is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// Seconds without waiting.
    Delay,
    /// Seconds of a reactor for each request.
    Reactor,
    /// Seconds of a client context.
    Context,
    /// Seconds of a host's processors for a gateway's part.
    Host,
    /// Queues of a host.
    HostQueues,
    /// Seconds of an OSD.
    Storage,
}

impl Parameter {
    /// All of them.
    pub const ALL: [Parameter; 6] = [
        Parameter::Delay,
        Parameter::Reactor,
        Parameter::Context,
        Parameter::Host,
        Parameter::HostQueues,
        Parameter::Storage,
    ];

    /// The same in every plan.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Parameter::Delay => "delay",
            Parameter::Reactor => "reactor",
            Parameter::Context => "context",
            Parameter::Host => "host",
            Parameter::HostQueues => "host-queues",
            Parameter::Storage => "storage",
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Parameter::Delay => "Delay that no load makes longer",
            Parameter::Reactor => "A reactor's time for a request",
            Parameter::Context => "A client context's time for a request",
            Parameter::Host => "A host's time for a gateway's request",
            Parameter::HostQueues => "Queues of a host",
            Parameter::Storage => "An OSD's time for a request",
        }
    }
}

/// Values of all parameters: 0 of a demand that was dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values([f64; Parameter::ALL.len()]);

impl Values {
    /// Without any demand.
    #[must_use]
    pub fn none() -> Self {
        let mut values = Values([0.0; Parameter::ALL.len()]);
        values.set(Parameter::HostQueues, HOST_QUEUES);
        values
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, parameter: Parameter) -> f64 {
        self.0[parameter as usize]
    }

    /// Sets one of them.
    pub fn set(&mut self, parameter: Parameter, value: f64) {
        self.0[parameter as usize] = value;
    }
}

/// The network of a configuration.
#[must_use]
pub fn network(values: &Values, of: &Configuration, premises: &Premises) -> Network {
    let get = |parameter| values.get(parameter);
    let (gateways, nodes) = (f64::from(of.gateways), f64::from(of.nodes));
    let contexts = (premises.volumes / gateways / f64::from(of.bdevs_per_cluster)).max(1.0);
    let mut stations = vec![
        Station {
            name: "reactors",
            queues: gateways * f64::from(of.reactors),
            demand: get(Parameter::Reactor),
        },
        Station {
            name: "client contexts",
            queues: gateways * contexts,
            demand: get(Parameter::Context),
        },
        Station {
            name: "storage",
            queues: f64::from(of.osds),
            demand: get(Parameter::Storage),
        },
    ];
    let (queues, demand) = (get(Parameter::HostQueues), get(Parameter::Host));
    let work = premises.storage_work() * demand;
    if premises.colocated {
        // With more gateways than nodes some nodes have several.
        let both = gateways.min(nodes);
        stations.push(Station {
            name: "hosts with gateways",
            queues: both * queues,
            demand: demand + work * both / nodes,
        });
        if nodes > both {
            stations.push(Station {
                name: "hosts without gateways",
                queues: (nodes - both) * queues,
                demand: work * (nodes - both) / nodes,
            });
        }
    } else {
        stations.push(Station {
            name: "hosts of gateways",
            queues: gateways * queues,
            demand,
        });
        stations.push(Station {
            name: "hosts of OSDs",
            queues: nodes * queues,
            demand: work,
        });
    }
    stations.retain(|of| of.demand > 0.0);
    Network {
        delay: get(Parameter::Delay),
        stations,
    }
}

#[cfg(test)]
mod tests;
