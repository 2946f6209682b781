//! What is measured, against what, and which bars it has to clear.
//!
//! Every row is a few contestants that run in turn, and bars over what they did. Nothing is run here.

use crate::work::{Direction, Work};

/// What a target serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volume {
    /// Discards and zeroes.
    Null,
    /// Memory.
    Mem,
}

impl Volume {
    /// As in a row's name and in `--peer`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Volume::Null => "null",
            Volume::Mem => "mem",
        }
    }
}

/// Load that an initiator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// On which volume of the target.
    pub volume: Volume,
    /// Bytes per request.
    pub bytes: u32,
    /// How many of 100 requests read.
    pub read_percent: u8,
    /// Blocks one after the other, not at random.
    pub sequential: bool,
    /// Requests in flight per queue.
    pub depth: u32,
    /// I/O queues, each a connection.
    pub queues: u32,
    /// Requests offered per second; as many as the depth allows when none.
    pub rate: Option<u64>,
    /// With header and data digests.
    pub digests: bool,
}

/// Who drives a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// `weir bench`.
    Weir,
    /// The command that the user named.
    Peer,
}

/// Protocol whose target is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// NVMe over TCP.
    Nvme,
    /// iSCSI, beside NVMe over TCP.
    Iscsi,
}

/// One of those that run in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// `weir serve` with so many reactors.
    Weir {
        /// Its threads.
        reactors: u32,
        /// What it is given to do.
        load: Load,
    },
    /// `weir serve` with one thread, whose volumes are reached by iSCSI.
    Iscsi {
        /// What it is given to do.
        load: Load,
    },
    /// The target that the user named.
    Peer {
        /// What it is given to do.
        load: Load,
    },
    /// The second target that the user named.
    Second {
        /// What it is given to do.
        load: Load,
    },
    /// The canned responder: what any target at least has to do. The initiator is the one that drives Weir.
    Limit {
        /// What it is given to do; its volume does not matter.
        load: Load,
    },
    /// The bare server with its client, both of which ask all the time.
    Bare {
        /// What goes to and fro.
        work: Work,
        /// Connections.
        connections: u32,
        /// Requests outstanding on each.
        depth: u32,
    },
    /// A program on a file of this machine.
    Local {
        /// fio, or else `weir bench`.
        fio: bool,
        /// What it does; its volume does not matter.
        load: Load,
    },
    /// An initiator with the canned responder.
    Canned {
        /// Which.
        initiator: Initiator,
        /// What it does; its volume does not matter.
        load: Load,
    },
}

impl Contestant {
    /// As it is called in reports; different within a row.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Contestant::Weir { reactors: 2, .. } => "weir-two-reactors",
            Contestant::Weir { load, .. } if load.digests => "weir-digests",
            Contestant::Weir { .. } => "weir",
            Contestant::Iscsi { .. } => "weir-iscsi",
            Contestant::Peer { .. } => "peer",
            Contestant::Second { .. } => "second",
            Contestant::Limit { .. } => "limit",
            Contestant::Bare { .. } => "bare",
            Contestant::Local { fio: true, .. } => "fio",
            Contestant::Local { fio: false, .. } => "weir-local",
            Contestant::Canned {
                initiator: Initiator::Weir,
                ..
            } => "weir-initiator",
            Contestant::Canned {
                initiator: Initiator::Peer,
                ..
            } => "peer-initiator",
        }
    }
}

/// What of a run is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Operations per second.
    Iops,
    /// Operations per busy second of what answers.
    PerBusySecond,
    /// Busy time of what answers per operation.
    BusyPerOperation,
    /// Which part of a processor what answers used.
    BusyShare,
    /// The same as its reactors count it.
    CountedShare,
    /// Mean latency in microseconds.
    Mean,
    /// 99th percentile of latency in microseconds.
    P99,
}

/// How a bar's value comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// The first contestant's figure alone.
    Alone(usize),
    /// One contestant's figure over another's, of the same round.
    Ratio(usize, usize),
    /// One contestant's figure less another's, of the same round.
    Difference(usize, usize),
}

/// What a value is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
    /// Not below, and not above 1: what is more than the limit tells that the limit is none, and the bar is void.
    OfLimit(f64),
}

impl Bound {
    /// Whether a value is on the right side.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(bar) => value >= bar,
            Bound::AtMost(bar) => value <= bar,
            Bound::OfLimit(bar) => (bar..=1.0).contains(&value),
        }
    }

    /// The bar itself.
    #[must_use]
    pub fn bar(self) -> f64 {
        match self {
            Bound::AtLeast(bar) | Bound::AtMost(bar) | Bound::OfLimit(bar) => bar,
        }
    }
}

/// What a row has to clear.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The row's name and what is looked at.
    pub name: String,
    /// Of each run.
    pub measure: Measure,
    /// Of which contestants.
    pub compare: Compare,
    /// The bar.
    pub bound: Bound,
}

/// What runs in turn, and what is made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What `--only` looks at.
    pub name: String,
    /// Who runs, in this order.
    pub contestants: Vec<Contestant>,
    /// What is to hold.
    pub bars: Vec<Bar>,
}

impl Row {
    fn new(name: impl Into<String>, contestants: Vec<Contestant>) -> Self {
        Row {
            name: name.into(),
            contestants,
            bars: Vec::new(),
        }
    }

    fn bar(mut self, what: &str, measure: Measure, compare: Compare, bound: Bound) -> Self {
        self.bars.push(Bar {
            name: format!("{}-{what}", self.name),
            measure,
            compare,
            bound,
        });
        self
    }
}

/// The name of the row that needs no load: an idle gateway.
pub const IDLE: &str = "idle";

/// Every row of a protocol's table but [`IDLE`].
#[must_use]
pub fn rows(protocol: Protocol) -> Vec<Row> {
    match protocol {
        Protocol::Nvme => nvme_rows(),
        Protocol::Iscsi => iscsi_rows(),
    }
}

fn iscsi_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for volume in [Volume::Null, Volume::Mem] {
        for direction in [Direction::Read, Direction::Write] {
            rows.extend([1, 4].map(|sessions| iscsi_small(volume, direction, sessions)));
        }
    }
    rows.extend([Direction::Read, Direction::Write].map(iscsi_large));
    rows.extend([Direction::Read, Direction::Write].map(iscsi_alone));
    rows
}

fn iscsi_small(volume: Volume, direction: Direction, sessions: u32) -> Row {
    let load = Load {
        volume,
        ..plain(direction, 32, sessions)
    };
    let contestants = vec![
        Contestant::Iscsi { load },
        Contestant::Peer { load },
        Contestant::Second { load },
        weir(load),
    ];
    let of = |other| Compare::Ratio(0, other);
    let named = format!(
        "iscsi-{}-4k-{}-d32-s{sessions}",
        volume.name(),
        name(direction)
    );
    Row::new(named, contestants)
        .bar("iops", Measure::Iops, of(1), Bound::AtLeast(2.0))
        .bar(
            "per-busy-second",
            Measure::PerBusySecond,
            of(1),
            Bound::AtLeast(2.0),
        )
        .bar(
            "per-busy-second-of-second",
            Measure::PerBusySecond,
            of(2),
            Bound::AtLeast(1.5),
        )
        .bar("iops-of-nvme", Measure::Iops, of(3), Bound::AtLeast(0.85))
}

fn iscsi_large(direction: Direction) -> Row {
    let load = Load {
        bytes: 128 << 10,
        sequential: true,
        ..plain(direction, 16, 1)
    };
    let contestants = vec![Contestant::Iscsi { load }, Contestant::Peer { load }];
    Row::new(
        format!("iscsi-null-128k-{}-d16-s1", name(direction)),
        contestants,
    )
    .bar(
        "iops",
        Measure::Iops,
        Compare::Ratio(0, 1),
        Bound::AtLeast(1.1),
    )
}

fn iscsi_alone(direction: Direction) -> Row {
    let load = plain(direction, 1, 1);
    let contestants = vec![Contestant::Iscsi { load }, Contestant::Peer { load }];
    Row::new(
        format!("iscsi-null-4k-{}-d1-s1", name(direction)),
        contestants,
    )
    .bar(
        "mean",
        Measure::Mean,
        Compare::Ratio(0, 1),
        Bound::AtMost(1.0),
    )
}

fn nvme_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for volume in [Volume::Null, Volume::Mem] {
        for direction in [Direction::Read, Direction::Write] {
            if volume == Volume::Null {
                rows.push(small(volume, direction, 8, 1));
            }
            for depth in [32, 128] {
                rows.extend([1, 4].map(|queues| small(volume, direction, depth, queues)));
            }
        }
    }
    for volume in [Volume::Null, Volume::Mem] {
        rows.extend([1, 4].map(|queues| mixed(volume, queues)));
    }
    rows.extend([Direction::Read, Direction::Write].map(large));
    rows.extend([Direction::Read, Direction::Write].map(alone));
    rows.push(offered());
    rows.extend([Direction::Read, Direction::Write].map(digests));
    for bytes in [4 << 10, 128 << 10] {
        rows.extend([Direction::Read, Direction::Write].map(|direction| local(direction, bytes)));
    }
    rows.extend([(64, 16), (1000, 1)].map(|(queues, depth)| connections(queues, depth)));
    rows.extend([Direction::Read, Direction::Write].map(reactors));
    rows.extend([Direction::Read, Direction::Write].map(initiator));
    rows
}

/// 4 KiB at random on `null:`.
fn plain(direction: Direction, depth: u32, queues: u32) -> Load {
    Load {
        volume: Volume::Null,
        bytes: 4 << 10,
        read_percent: match direction {
            Direction::Read => 100,
            Direction::Write => 0,
        },
        sequential: false,
        depth,
        queues,
        rate: None,
        digests: false,
    }
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

fn weir(load: Load) -> Contestant {
    Contestant::Weir { reactors: 1, load }
}

fn small(volume: Volume, direction: Direction, depth: u32, queues: u32) -> Row {
    let load = Load {
        volume,
        ..plain(direction, depth, queues)
    };
    let more = match direction {
        Direction::Read => 1.3,
        Direction::Write => 1.2,
    };
    let named = format!(
        "{}-4k-{}-d{depth}-q{queues}",
        volume.name(),
        name(direction)
    );
    let peer = Contestant::Peer { load };
    let mut contestants = vec![weir(load), peer];
    if volume == Volume::Null {
        contestants.push(Contestant::Limit { load });
    }
    let to_peer = Compare::Ratio(0, 1);
    let row = Row::new(named, contestants).bar(
        "per-busy-second",
        Measure::PerBusySecond,
        to_peer,
        Bound::AtLeast(more),
    );
    if volume == Volume::Mem {
        return row;
    }
    let as_many = if depth < 128 { 1.0 } else { 1.2 };
    let row = row.bar("iops", Measure::Iops, to_peer, Bound::AtLeast(as_many));
    if direction == Direction::Write || depth < 128 {
        return row;
    }
    let of = Compare::Ratio(0, 2);
    row.bar("of-limit", Measure::PerBusySecond, of, Bound::OfLimit(0.65))
}

fn mixed(volume: Volume, queues: u32) -> Row {
    let load = Load {
        volume,
        bytes: 16 << 10,
        read_percent: 70,
        ..plain(Direction::Read, 32, queues)
    };
    let named = format!("{}-16k-mixed-d32-q{queues}", volume.name());
    Row::new(named, vec![weir(load), Contestant::Peer { load }]).bar(
        "per-busy-second",
        Measure::PerBusySecond,
        Compare::Ratio(0, 1),
        Bound::AtLeast(1.2),
    )
}

fn large(direction: Direction) -> Row {
    let load = Load {
        bytes: 128 << 10,
        sequential: true,
        ..plain(direction, 32, 1)
    };
    let contestants = vec![
        weir(load),
        Contestant::Peer { load },
        Contestant::Limit { load },
    ];
    let (per, of) = (Compare::Ratio(0, 1), Compare::Ratio(0, 2));
    Row::new(format!("null-128k-{}-d32-q1", name(direction)), contestants)
        .bar(
            "per-busy-second",
            Measure::PerBusySecond,
            per,
            Bound::AtLeast(1.1),
        )
        .bar("of-limit", Measure::PerBusySecond, of, Bound::OfLimit(0.8))
}

fn alone(direction: Direction) -> Row {
    let load = plain(direction, 1, 1);
    let spinning = Contestant::Bare {
        work: Work {
            direction,
            data_bytes: load.bytes as usize,
        },
        connections: 1,
        depth: 1,
    };
    let contestants = vec![weir(load), Contestant::Peer { load }, spinning];
    let to_peer = Compare::Ratio(0, 1);
    Row::new(format!("null-4k-{}-d1-q1", name(direction)), contestants)
        .bar("iops", Measure::Iops, to_peer, Bound::AtLeast(1.0))
        .bar("mean", Measure::Mean, to_peer, Bound::AtMost(1.0))
        .bar("p99", Measure::P99, to_peer, Bound::AtMost(1.0))
}

fn offered() -> Row {
    let load = Load {
        rate: Some(10_000),
        ..plain(Direction::Read, 32, 1)
    };
    Row::new("offered-10000", vec![weir(load), Contestant::Peer { load }])
        .bar(
            "busy-share",
            Measure::BusyShare,
            Compare::Alone(0),
            Bound::AtMost(0.25),
        )
        .bar(
            "p99-above-us",
            Measure::P99,
            Compare::Difference(0, 1),
            Bound::AtMost(50.0),
        )
}

fn digests(direction: Direction) -> Row {
    let off = plain(direction, 128, 1);
    let on = Load {
        digests: true,
        ..off
    };
    Row::new(
        format!("digests-4k-{}", name(direction)),
        vec![weir(on), weir(off)],
    )
    .bar(
        "per-busy-second",
        Measure::PerBusySecond,
        Compare::Ratio(0, 1),
        Bound::AtLeast(0.85),
    )
}

fn local(direction: Direction, bytes: u32) -> Row {
    let load = Load {
        bytes,
        sequential: bytes > 4 << 10,
        ..plain(direction, 32, 1)
    };
    let contestants = vec![
        Contestant::Local { fio: false, load },
        Contestant::Local { fio: true, load },
    ];
    let named = format!("file-{}k-{}", bytes >> 10, name(direction));
    let to_fio = Compare::Ratio(0, 1);
    Row::new(named, contestants).bar("iops", Measure::Iops, to_fio, Bound::AtLeast(0.95))
}

fn connections(queues: u32, depth: u32) -> Row {
    let load = plain(Direction::Read, depth, queues);
    let contestants = vec![weir(load), Contestant::Limit { load }];
    let of = Compare::Ratio(0, 1);
    let named = format!("connections-{queues}");
    Row::new(named, contestants).bar("of-limit", Measure::PerBusySecond, of, Bound::OfLimit(0.65))
}

fn reactors(direction: Direction) -> Row {
    let load = plain(direction, 32, 4);
    let two = Contestant::Weir { reactors: 2, load };
    Row::new(
        format!("reactors-4k-{}", name(direction)),
        vec![two, weir(load)],
    )
    .bar(
        "busy-per-operation",
        Measure::BusyPerOperation,
        Compare::Ratio(0, 1),
        Bound::AtMost(1.05),
    )
}

fn initiator(direction: Direction) -> Row {
    let load = plain(direction, 128, 1);
    let contestants = [Initiator::Weir, Initiator::Peer]
        .map(|initiator| Contestant::Canned { initiator, load })
        .to_vec();
    Row::new(format!("initiator-4k-{}", name(direction)), contestants)
        .bar(
            "iops",
            Measure::Iops,
            Compare::Ratio(0, 1),
            Bound::AtLeast(1.2),
        )
        .bar(
            "responder-busy",
            Measure::BusyShare,
            Compare::Alone(0),
            Bound::AtMost(0.95),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Row> {
        [Protocol::Nvme, Protocol::Iscsi]
            .into_iter()
            .flat_map(rows)
            .collect()
    }

    #[test]
    fn every_row_and_every_bar_has_a_name_of_its_own() {
        let rows = all();
        let names: BTreeSet<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(!names.contains(IDLE));
        let bars: Vec<_> = rows.iter().flat_map(|row| &row.bars).collect();
        let unique: BTreeSet<_> = bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(unique.len(), bars.len());
    }

    #[test]
    fn bars_speak_of_contestants_that_are_there_and_differ() {
        for row in all() {
            assert!(!row.bars.is_empty(), "{}", row.name);
            let names: BTreeSet<_> = row.contestants.iter().map(Contestant::name).collect();
            assert_eq!(names.len(), row.contestants.len(), "{}", row.name);
            for bar in &row.bars {
                let named = match bar.compare {
                    Compare::Alone(one) => vec![one],
                    Compare::Ratio(one, other) | Compare::Difference(one, other) => {
                        vec![one, other]
                    }
                };
                let unique: BTreeSet<_> = named.iter().collect();
                assert_eq!(unique.len(), named.len(), "{}", bar.name);
                let there = named.iter().all(|&index| index < row.contestants.len());
                assert!(there, "{}", bar.name);
            }
        }
    }

    #[test]
    fn a_bound_holds_on_its_edge() {
        assert!(Bound::AtLeast(1.3).holds(1.3) && !Bound::AtLeast(1.3).holds(1.29));
        assert!(Bound::AtMost(1.0).holds(1.0) && !Bound::AtMost(1.0).holds(1.01));
        let of_limit = Bound::OfLimit(0.65);
        assert!(of_limit.holds(0.65) && of_limit.holds(1.0));
        assert!(!of_limit.holds(0.64) && !of_limit.holds(1.01));
    }
}
