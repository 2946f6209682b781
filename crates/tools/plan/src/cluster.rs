//! What a cluster of gateways does: a closed queueing network whose few parameters are found by least squares on measured curves.
//!
//! A request waits at some of these stations, each a number of like queues ([`crate::network`]):
//!
//! - *delay*: what no load makes longer;
//! - *reactors*: one queue for each reactor of each gateway;
//! - *client contexts*: one for each librbd client of a gateway, which `bdevs_per_cluster` volumes share;
//! - *hosts*: the processors of each node, which move what the network carries: of a gateway each request once, of OSDs what they send, for which the share of
//!   reads and the number of replicas is known ([`Premises::storage_work`]). Where gateways run on OSD nodes, these nodes have both;
//! - *storage*: one queue for each OSD;
//! - *links*: each direction of each machine's, where it is said what they carry (`links`). Their demand is known.
//!
//! Which stations there are, and how requests wait for hosts and visit OSDs, is the model's *form* ([`fit::Form`]): 47 are fitted, each with its delay, a demand of each station
//! and, where it has one, the number of a host's queues, by their logarithms from the rates of all points. Forms with a parameter that the readings do not show are none, but for the delay, without
//! which they are fitted again; the others are averaged by how likely they are ([`fit::fits`]). Where none is left the fit is refused.

pub mod fit;
mod links;
mod measured;
mod predict;

pub use predict::{ClusterError, INNER_SECTIONS, Request, plan};

use crate::network::{Network, Station};
use crate::sheet::{Series, Source};

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
    /// Bytes a second that the link of each machine with gateways or OSDs carries each way, where that is said.
    pub link: Option<u64>,
}

impl Configuration {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        let link = self.link.map(|of| {
            let rate = crate::units::bit_rate_text(of as f64);
            format!(", links of {rate}")
        });
        format!(
            "{} nodes, {} OSDs, {} gateways, {} reactors, {} bdevs{}",
            self.nodes,
            self.osds,
            self.gateways,
            self.reactors,
            self.bdevs_per_cluster,
            link.unwrap_or_default()
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
    /// Seconds of an OSD for a request at most, where peaks with few OSDs show it; without a limit where nothing does.
    pub storage_seconds_max: f64,
    /// Bytes of a request in the mean, where that is known; links alone hang on it.
    pub request_bytes: Option<f64>,
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
    /// Of how long a request is.
    pub request_bytes: Source,
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

impl Reading {
    /// Mean seconds of a request, by Little's law where they were not read by themselves.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.latency.unwrap_or(self.in_flight / self.rate)
    }
}

/// What a curve was asked, as far as that is known. A model is of one kind of request: curves of several are not fitted together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// Where the curve is from, such as a file; empty where its name says enough.
    pub place: String,
    /// Lengths of requests, each with how many of 100 requests have it, ascending; empty: not known.
    pub sizes: Vec<(u64, f64)>,
    /// Whether requests move unlike much: reads are of other lengths than writes, or some neither read nor write.
    pub uneven: bool,
    /// How many of 100 requests read.
    pub read_percent: Option<f64>,
    /// How many write; the others deallocate or flush.
    pub write_percent: Option<f64>,
    /// The part of the volumes that was used, in words.
    pub range: Option<String>,
    /// Which blocks were asked for, as the command line has it (`random`); empty: not known.
    pub patterns: Vec<String>,
}

impl Asked {
    /// Bytes of a request in the mean, where its lengths are known, and reads and writes are of the same.
    #[must_use]
    pub fn request_bytes(&self) -> Option<f64> {
        let percent: f64 = self.sizes.iter().map(|(_, percent)| percent).sum();
        let all: f64 = (self.sizes.iter())
            .map(|(bytes, percent)| *bytes as f64 * percent)
            .sum();
        (percent > 0.0 && !self.uneven).then(|| all / percent)
    }
}

/// Shares of 100 requests that differ by less are the same.
const SHARE_SAME: f64 = 0.01;

impl Asked {
    /// In what it is another load, in words; none where that is not known or it is none.
    #[must_use]
    pub fn differs(&self, other: &Asked) -> Option<String> {
        let same = |one: f64, other: f64| (one - other).abs() < SHARE_SAME;
        let is_same_size =
            |(one, other): (&(u64, f64), &(u64, f64))| one.0 == other.0 && same(one.1, other.1);
        let known = !self.sizes.is_empty() && !other.sizes.is_empty();
        if known
            && (self.sizes.len() != other.sizes.len()
                || !self.sizes.iter().zip(&other.sizes).all(is_same_size))
        {
            let (one, other) = (sizes_text(&self.sizes), sizes_text(&other.sizes));
            return Some(format!("requests of {one} and of {other}"));
        }
        if let Some((one, other)) = self.read_percent.zip(other.read_percent)
            && !same(one, other)
        {
            let number = |of| weir_report::words::trimmed(of, 2);
            return Some(format!(
                "{} and {} reads of 100 requests",
                number(one),
                number(other)
            ));
        }
        if let Some((one, other)) = self.write_percent.zip(other.write_percent)
            && !same(one, other)
        {
            let number = |of| weir_report::words::trimmed(of, 2);
            return Some(format!(
                "{} and {} writes of 100 requests",
                number(one),
                number(other)
            ));
        }
        if let Some((one, other)) = self.range.as_ref().zip(other.range.as_ref())
            && one != other
        {
            return Some(format!("requests to {one} and to {other}"));
        }
        let known = !self.patterns.is_empty() && !other.patterns.is_empty();
        (known && self.patterns != other.patterns).then(|| {
            format!(
                "{} and {}",
                self.patterns.join(" with "),
                other.patterns.join(" with ")
            )
        })
    }
}

fn sizes_text(sizes: &[(u64, f64)]) -> String {
    let bytes = |of: u64| format!("{} bytes", weir_report::words::grouped(of));
    match sizes {
        [(of, _)] => bytes(*of),
        several => {
            let each = several.iter().map(|(of, percent)| {
                format!(
                    "{} ({}%)",
                    bytes(*of),
                    weir_report::words::trimmed(*percent, 2)
                )
            });
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A curve with what it was measured on.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCurve {
    /// What it is called; unlike the others.
    pub name: String,
    /// Name of its size where it has one, such as small.
    pub size: Option<String>,
    /// What it was measured on.
    pub configuration: Configuration,
    /// What it was asked.
    pub asked: Asked,
    /// Ascending by requests in flight; at least one.
    pub readings: Vec<Reading>,
    /// [`Source::Measured`], [`Source::Modelled`], [`Source::Given`] or [`Source::Published`].
    pub source: Source,
    /// Points that are not among the readings, each with why, as sentences without a full stop.
    pub left_out: Vec<String>,
}

impl MeasuredCurve {
    /// What has to be said where it is used.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let place = self.place();
        let left_out = self.left_out.iter();
        let mut caveats: Vec<_> = left_out.map(|why| format!("{place}: {why}.")).collect();
        if self.source == Source::Modelled {
            caveats.push(format!(
                "{place} is of a modelled drive: what is fitted to it and follows from it is of no device."
            ));
        }
        caveats
    }

    /// Where it is from, or what it is called.
    #[must_use]
    pub fn place(&self) -> &str {
        match self.asked.place.as_str() {
            "" => &self.name,
            place => place,
        }
    }

    /// The highest rate.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.readings.iter().map(|of| of.rate).fold(0.0, f64::max)
    }

    /// Its points for a chart of latency, in nanoseconds, against requests a second.
    #[must_use]
    pub fn series(&self) -> Series {
        let points = self.readings.iter();
        Series {
            name: self.name.clone(),
            source: self.source,
            points: points.map(|of| [of.rate, of.seconds() * 1e9]).collect(),
        }
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
        let read = |of: &Reading| (of.rate, of.seconds());
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

/// How requests wait for a host's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostForm {
    /// Queues of which a request gets any; their number is estimated.
    Queues,
    /// One server as fast as all together. What else a request takes there is the same in every configuration, and part of the delay (Seidmann, Schweitzer,
    /// Shalev-Oren 1977).
    One,
    /// Processors that share one queue; their number is estimated.
    Shared,
}

impl HostForm {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            HostForm::Queues => "queues of which a request gets any",
            HostForm::One => "one fast server",
            HostForm::Shared => "processors that share a queue",
        }
    }

    /// Whether the number of queues or processors bears on anything.
    #[must_use]
    pub fn counts(self) -> bool {
        self != HostForm::One
    }
}

/// How many OSDs a request visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageForm {
    /// One.
    One,
    /// One of a read; of a write all replicas at once, and it waits for the last of them.
    Replicas,
}

impl StorageForm {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            StorageForm::One => "one OSD of each request",
            StorageForm::Replicas => "all replicas of a write at once",
        }
    }
}

/// Values of all parameters, 0 of a demand that is not there, and the form that they are of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values {
    values: [f64; Parameter::ALL.len()],
    /// How requests wait for hosts.
    pub hosts: HostForm,
    /// How they visit OSDs.
    pub storage: StorageForm,
}

impl Values {
    /// Without any demand.
    #[must_use]
    pub fn none() -> Self {
        let mut values = Values {
            values: [0.0; Parameter::ALL.len()],
            hosts: HostForm::Queues,
            storage: StorageForm::One,
        };
        values.set(Parameter::HostQueues, 1.0);
        values
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, parameter: Parameter) -> f64 {
        self.values[parameter as usize]
    }

    /// Sets one of them.
    pub fn set(&mut self, parameter: Parameter, value: f64) {
        self.values[parameter as usize] = value;
    }
}

fn storage(values: &Values, of: &Configuration, premises: &Premises) -> Station {
    let demand = values.get(Parameter::Storage);
    let station = Station::any("storage", f64::from(of.osds), demand);
    match values.storage {
        StorageForm::One => station,
        StorageForm::Replicas => {
            // Of so many exponential times the greatest is this many times one.
            let last: f64 = (1..=premises.replicas.round().max(1.0) as u32)
                .map(|of| 1.0 / f64::from(of))
                .sum();
            let writes = 1.0 - premises.read_part;
            let visits = premises.read_part + writes * premises.replicas;
            let alone = demand * (premises.read_part + writes * last) / visits;
            Station {
                alone,
                wait: alone,
                ..station
            }
        }
    }
}

/// The network of a configuration.
#[must_use]
pub fn network(values: &Values, of: &Configuration, premises: &Premises) -> Network {
    let get = |parameter| values.get(parameter);
    let (gateways, nodes) = (f64::from(of.gateways), f64::from(of.nodes));
    let contexts = (premises.volumes / gateways / f64::from(of.bdevs_per_cluster)).max(1.0);
    let mut stations = vec![
        Station::any(
            "reactors",
            gateways * f64::from(of.reactors),
            get(Parameter::Reactor),
        ),
        Station::any(
            "client contexts",
            gateways * contexts,
            get(Parameter::Context),
        ),
        storage(values, of, premises),
    ];
    let host = |name, hosts: f64, demand: f64| match values.hosts {
        HostForm::One => Station::any(name, hosts, demand),
        HostForm::Queues => Station::any(name, hosts * get(Parameter::HostQueues), demand),
        HostForm::Shared => Station::shared(name, hosts, get(Parameter::HostQueues), demand),
    };
    let demand = get(Parameter::Host);
    let work = premises.storage_work() * demand;
    if premises.colocated {
        // With more gateways than nodes some nodes have several.
        let both = gateways.min(nodes);
        let with = demand + work * both / nodes;
        stations.push(host("hosts with gateways", both, with));
        if nodes > both {
            let without = work * (nodes - both) / nodes;
            stations.push(host("hosts without gateways", nodes - both, without));
        }
    } else {
        stations.push(host("hosts of gateways", gateways, demand));
        stations.push(host("hosts of OSDs", nodes, work));
    }
    stations.extend(links::stations(of, premises));
    stations.retain(|of| of.demand > 0.0);
    Network {
        delay: get(Parameter::Delay),
        stations,
    }
}

#[cfg(test)]
mod tests;
