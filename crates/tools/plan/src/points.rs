//! Curves to fit: points written by hand or published, in TOML, and results of `weir curve`.

mod sense;

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_lab::document::{Axis, Body, Document, Run, Workload};
use weir_lab::modelled::is_modelled;

use crate::cluster::{Asked, Configuration, MeasuredCurve, PremiseSources, Premises, Reading};
use crate::sheet::Source;

pub use sense::SenseError;

/// The published curves.
const CEPH: &str = include_str!("../published/ceph.toml");
/// Copies of what is written, where nobody says: the default of Ceph's pools.
const REPLICAS: f64 = 3.0;
/// The part of requests that read, where nobody says.
const READ_PERCENT: f64 = 70.0;

/// The most that a configuration may have of anything.
const COUNT_MAX: u32 = 1_000_000;

/// A file of points.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// Where they are from.
    pub source: Option<String>,
    read_percent: Option<f64>,
    block_size_bytes: Option<u64>,
    clients: Option<f64>,
    volumes: Option<f64>,
    replicas: Option<f64>,
    colocated: Option<bool>,
    #[serde(rename = "curve")]
    curves: Vec<CurveOfPoints>,
    /// Peaks of the first curve's configuration with other numbers of OSDs. So many OSDs can do that much: this bounds what an OSD takes for a request.
    #[serde(default, rename = "peak")]
    pub peaks: Vec<PeakOfOsds>,
    /// Words of their source, to the letter, by matter.
    #[serde(default)]
    pub quotes: BTreeMap<String, String>,
}

/// A peak with so many OSDs.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakOfOsds {
    /// OSDs.
    pub osds: u32,
    /// Requests a second.
    pub iops: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveOfPoints {
    name: String,
    title: Option<String>,
    /// Name of its size.
    size: Option<String>,
    gateways: u32,
    reactors: u32,
    bdevs_per_cluster: u32,
    nodes: u32,
    osds: u32,
    points: Vec<[f64; 3]>,
}

/// Why a text is no curve to fit.
#[derive(Debug, thiserror::Error)]
pub enum PointsError {
    /// No TOML of points.
    #[error("this is no file of points (docs/plans.md): {0}")]
    Toml(#[from] toml::de::Error),
    /// A number is out of its range.
    #[error("{what} is {value}, and may be {allowed}")]
    Range {
        /// The number.
        what: String,
        /// Its value.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
    /// No curve of Weir's.
    #[error(transparent)]
    Document(#[from] weir_lab::document::DocumentError),
    /// A result of something else.
    #[error("it is no result of `weir curve`")]
    NoCurve,
    /// It holds several.
    #[error("it has {0} curves, of a sweep; a plan takes one at a time")]
    Several(usize),
    /// Two files say different things of the same cluster.
    #[error(
        "{one} and {other} differ in {what}; give files that say the same, or say it with {option}"
    )]
    Premises {
        /// A file.
        one: String,
        /// Another one.
        other: String,
        /// In what.
        what: String,
        /// What says it.
        option: &'static str,
    },
    /// A point of a file cannot be so.
    #[error(transparent)]
    Sense(#[from] SenseError),
    /// No point of it can be used.
    #[error("no point of it can be used{}", reasons(.0))]
    Empty(Vec<String>),
}

impl Points {
    /// Reads a file of points.
    ///
    /// # Errors
    /// [`PointsError::Toml`], [`PointsError::Range`], [`PointsError::Sense`].
    pub fn parse(text: &str) -> Result<Self, PointsError> {
        let mut points: Points = toml::from_str(text)?;
        points.check()?;
        sense::check(&points)?;
        for curve in &mut points.curves {
            (curve.points).sort_by(|one, other| one[0].total_cmp(&other[0]));
        }
        Ok(points)
    }

    fn check(&self) -> Result<(), PointsError> {
        let held = |what: &str, value: f64, from: f64, to: f64, allowed| {
            if value >= from && value <= to {
                return Ok(());
            }
            Err(PointsError::Range {
                what: what.to_owned(),
                value,
                allowed,
            })
        };
        let most = f64::from(COUNT_MAX);
        held(
            "read_percent",
            self.read_percent.unwrap_or(0.0),
            0.0,
            100.0,
            "from 0 to 100",
        )?;
        held(
            "replicas",
            self.replicas.unwrap_or(1.0),
            1.0,
            16.0,
            "from 1 to 16",
        )?;
        if let Some(bytes) = self.block_size_bytes {
            held(
                "block_size_bytes",
                bytes as f64,
                1.0,
                f64::MAX,
                "1 at least",
            )?;
        }
        for (what, value) in [("clients", self.clients), ("volumes", self.volumes)] {
            held(what, value.unwrap_or(1.0), 1.0, most, "from 1 to 1000000")?;
        }
        for of in &self.peaks {
            held(
                "the OSDs of a peak",
                f64::from(of.osds),
                1.0,
                most,
                "from 1 to 1000000",
            )?;
            held("a peak", of.iops, f64::MIN_POSITIVE, f64::MAX, "above 0")?;
        }
        for of in &self.curves {
            let name = |what: &str| format!("curve '{}': {what}", of.name);
            for (what, value) in [
                ("gateways", of.gateways),
                ("reactors", of.reactors),
                ("bdevs_per_cluster", of.bdevs_per_cluster),
                ("nodes", of.nodes),
                ("osds", of.osds),
            ] {
                held(
                    &name(what),
                    f64::from(value),
                    1.0,
                    most,
                    "from 1 to 1000000",
                )?;
            }
            held(
                &name("the number of points"),
                of.points.len() as f64,
                1.0,
                most,
                "1 at least",
            )?;
            for [in_flight, rate, milliseconds] in &of.points {
                held(
                    &name("what is in flight"),
                    *in_flight,
                    1.0,
                    f64::MAX,
                    "1 at least",
                )?;
                held(
                    &name("a rate"),
                    *rate,
                    f64::MIN_POSITIVE,
                    f64::MAX,
                    "above 0",
                )?;
                held(
                    &name("a latency"),
                    *milliseconds,
                    0.0,
                    f64::MAX,
                    "0 at least",
                )?;
            }
        }
        Ok(())
    }

    /// The published curves of Ceph's gateway.
    ///
    /// # Panics
    /// Never: the data is part of the program, and tested.
    #[must_use]
    pub fn published() -> Self {
        Points::parse(CEPH).expect("the published data is well formed")
    }

    /// What is taken to be so; what the file does not say is as [`premises`] has it. `source` is that of the file.
    #[must_use]
    pub fn premises(&self, source: Source) -> Premises {
        let usual = premises();
        let of = |said: bool| if said { source } else { Source::Assumed };
        Premises {
            colocated: self.colocated.unwrap_or(usual.colocated),
            replicas: self.replicas.unwrap_or(usual.replicas),
            read_part: self.read_percent.unwrap_or(READ_PERCENT) / 100.0,
            volumes: self.volumes.or(self.clients).unwrap_or(usual.volumes),
            storage_seconds_max: (self.peaks.iter())
                .map(|of| f64::from(of.osds) / of.iops)
                .fold(f64::INFINITY, f64::min),
            request_bytes: self.block_size_bytes.map(|of| of as f64),
            sources: PremiseSources {
                colocated: of(self.colocated.is_some()),
                replicas: of(self.replicas.is_some()),
                read_part: of(self.read_percent.is_some()),
                // One volume for each client is a guess as well.
                volumes: of(self.volumes.is_some()),
                request_bytes: of(self.block_size_bytes.is_some()),
            },
        }
    }

    /// The curves, with their sources.
    #[must_use]
    pub fn curves(&self, source: Source) -> Vec<MeasuredCurve> {
        self.curves
            .iter()
            .map(|of| MeasuredCurve {
                name: of.name.clone(),
                size: of.size.clone(),
                configuration: Configuration {
                    gateways: of.gateways,
                    reactors: of.reactors,
                    bdevs_per_cluster: of.bdevs_per_cluster,
                    nodes: of.nodes,
                    osds: of.osds,
                    link: None,
                },
                asked: Asked {
                    sizes: self
                        .block_size_bytes
                        .map(|of| (of, 100.0))
                        .into_iter()
                        .collect(),
                    read_percent: self.read_percent,
                    ..Asked::default()
                },
                readings: of
                    .points
                    .iter()
                    .map(|&[in_flight, rate, milliseconds]| Reading {
                        in_flight,
                        rate,
                        latency: (milliseconds != 0.0).then_some(milliseconds / 1e3),
                    })
                    .collect(),
                source,
                left_out: Vec::new(),
            })
            .collect()
    }

    /// What a curve is called in words.
    #[must_use]
    pub fn title(&self, name: &str) -> String {
        let found = self.curves.iter().find(|of| of.name == name);
        found
            .and_then(|of| of.title.clone())
            .unwrap_or_else(|| name.to_owned())
    }
}

/// What is taken to be so where nobody says: gateways on OSD nodes, three replicas, 70 reads of 100 requests, and 32 volumes.
#[must_use]
pub fn premises() -> Premises {
    Premises {
        colocated: true,
        replicas: REPLICAS,
        read_part: READ_PERCENT / 100.0,
        volumes: 32.0,
        storage_seconds_max: f64::INFINITY,
        request_bytes: None,
        sources: PremiseSources {
            colocated: Source::Assumed,
            replicas: Source::Assumed,
            read_part: Source::Assumed,
            volumes: Source::Assumed,
            request_bytes: Source::Assumed,
        },
    }
}

/// The curve of a result of `weir curve`. By depth, requests in flight are those offered; by rate they are rate times latency.
///
/// # Errors
/// [`PointsError`].
pub fn of_document(
    text: &str,
    name: &str,
    configuration: Configuration,
) -> Result<MeasuredCurve, PointsError> {
    let document = Document::from_json(text)?;
    let Body::Curve { curves, .. } = &document.body else {
        return Err(PointsError::NoCurve);
    };
    let [curve] = curves.as_slice() else {
        return Err(PointsError::Several(curves.len()));
    };
    let (used, unused): (Vec<_>, Vec<_>) = curve
        .points
        .iter()
        .partition(|point| unusable(&point.run).is_none());
    let left_out = unused.iter().filter_map(|point| unusable(&point.run));
    let left_out: Vec<String> = left_out.collect();
    let mut readings: Vec<Reading> = used
        .iter()
        .filter_map(|point| {
            let rate = point.run.rate();
            let latency = point.run.felt().ok().flatten()?.mean_ns / 1e9;
            let in_flight = match curve.axis {
                Axis::Depth => point.offered,
                Axis::Rate => (rate * latency).max(1.0),
            };
            // By Little's law the latency is the same reading once more.
            (rate > 0.0 && latency > 0.0).then_some(Reading {
                in_flight,
                rate,
                latency: None,
            })
        })
        .collect();
    readings.sort_by(|one, other| one.in_flight.total_cmp(&other.in_flight));
    if readings.is_empty() {
        return Err(PointsError::Empty(left_out));
    }
    let volumes = || curve.points.iter().flat_map(|point| &point.run.volumes);
    Ok(MeasuredCurve {
        name: name.to_owned(),
        size: None,
        configuration,
        asked: (curve.points.first())
            .map(|point| asked(&point.run.workload))
            .unwrap_or_default(),
        readings,
        source: match volumes().any(|volume| is_modelled(&volume.url)) {
            true => Source::Modelled,
            false => Source::Measured,
        },
        left_out,
    })
}

/// Why a point says nothing of what the cluster does: requests that fail cost another time than those that do not.
fn unusable(run: &Run) -> Option<String> {
    let (name, failed) = (&run.name, run.errors());
    if failed > 0 {
        let number = weir_report::words::grouped;
        return Some(format!(
            "its point '{name}' is left out, as {} of {} requests failed",
            number(failed),
            number(run.operations.requests() + failed)
        ));
    }
    let why = run.error()?;
    Some(format!(
        "its point '{name}' is left out, as it is not whole: {why}"
    ))
}

fn reasons(left_out: &[String]) -> String {
    left_out.iter().map(|why| format!("; {why}")).collect()
}

/// What a workload asks, its streams put together.
fn asked(workload: &Workload) -> Asked {
    let mut sizes = BTreeMap::<u64, f64>::new();
    let (mut share, mut reads, mut writes) = (0.0, 0.0, 0.0);
    let (mut bytes_read, mut bytes_written) = (0.0, 0.0);
    let mut patterns = BTreeMap::<String, f64>::new();
    for stream in &workload.streams {
        share += stream.share_percent;
        reads += stream.share_percent * stream.read_percent / 100.0;
        writes += stream.share_percent * stream.write_percent / 100.0;
        let bytes: f64 = (stream.sizes.iter())
            .map(|of| of.bytes as f64 * of.percent / 100.0)
            .sum();
        bytes_read += stream.share_percent * stream.read_percent / 100.0 * bytes;
        bytes_written += stream.share_percent * stream.write_percent / 100.0 * bytes;
        *patterns.entry(stream.pattern.clone()).or_default() += stream.share_percent;
        for of in &stream.sizes {
            *sizes.entry(of.bytes).or_default() += stream.share_percent * of.percent / 100.0;
        }
    }
    // Of either kind where there is any.
    let same_length = (bytes_read * writes - bytes_written * reads).abs()
        <= 1e-9 * bytes_read.max(bytes_written) * reads.max(writes);
    let moves_all = (reads + writes - share).abs() <= 1e-9 * share;
    Asked {
        uneven: !(same_length && moves_all),
        sizes: sizes.into_iter().collect(),
        read_percent: (share > 0.0).then(|| 100.0 * reads / share),
        write_percent: (share > 0.0).then(|| 100.0 * writes / share),
        range: Some(match workload.range_bytes {
            None => "all of the volumes".to_owned(),
            Some(bytes) => {
                let bytes = weir_report::words::grouped(bytes);
                format!("the first {bytes} bytes of the volumes")
            }
        }),
        patterns: match patterns.len() {
            0 | 1 => patterns.into_keys().collect(),
            _ => (patterns.iter())
                .map(|(of, percent)| {
                    format!("{of} ({}%)", weir_report::words::trimmed(*percent, 2))
                })
                .collect(),
        },
        ..Asked::default()
    }
}

/// What two files say of the cluster, together: what one does not say the other may. In what the options `said` say they may differ.
///
/// # Errors
/// [`PointsError::Premises`], where both say something and not the same.
pub fn merged(
    one: (&str, Premises),
    other: (&str, Premises),
    said: &[&str],
) -> Result<Premises, PointsError> {
    let (mut all, more) = (one.1, other.1);
    let says = |source: Source| source != Source::Assumed;
    // Whether the other's is taken.
    let takes = |says: [bool; 2], differs: bool, what: String, option: &'static str| match says {
        [true, true] if differs && !said.contains(&option) => Err(PointsError::Premises {
            one: one.0.to_owned(),
            other: other.0.to_owned(),
            what,
            option,
        }),
        [mine, theirs] => Ok(!mine && theirs),
    };
    let number = |of| weir_report::words::trimmed(of, 2);
    let both = |what: &str, one, other| format!("{what}, {} and {}", number(one), number(other));
    let (mine, theirs) = (&mut all.sources, more.sources);
    let say = [mine.colocated, theirs.colocated].map(says);
    let differs = all.colocated != more.colocated;
    let what = "where gateways run".to_owned();
    if takes(say, differs, what, "--separate-gateways")? {
        (all.colocated, mine.colocated) = (more.colocated, theirs.colocated);
    }
    let say = [mine.replicas, theirs.replicas].map(says);
    let differs = all.replicas != more.replicas;
    let what = both("the number of replicas", all.replicas, more.replicas);
    if takes(say, differs, what, "--replicas")? {
        (all.replicas, mine.replicas) = (more.replicas, theirs.replicas);
    }
    // Where neither says how many volumes there are, their clients do: one each.
    let mut say = [mine.volumes, theirs.volumes].map(says);
    if say == [false; 2] {
        let usual = premises().volumes;
        say = [all.volumes, more.volumes].map(|of| of != usual);
    }
    let differs = all.volumes != more.volumes;
    let what = both("the number of volumes", all.volumes, more.volumes);
    if takes(say, differs, what, "--volumes")? {
        (all.volumes, mine.volumes) = (more.volumes, theirs.volumes);
    }
    // Curves with different parts that read are told apart by themselves.
    if !says(mine.read_part) && says(theirs.read_part) {
        (all.read_part, mine.read_part) = (more.read_part, theirs.read_part);
    }
    // So are curves with requests of different lengths.
    if all.request_bytes.is_none() {
        (all.request_bytes, mine.request_bytes) = (more.request_bytes, theirs.request_bytes);
    }
    all.storage_seconds_max = all.storage_seconds_max.min(more.storage_seconds_max);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_points_hang_together_by_littles_law() {
        let points = Points::published();
        let curves = points.curves(Source::Published);
        assert_eq!(curves.len(), 4);
        for curve in &curves {
            for reading in &curve.readings {
                let in_flight = reading.rate * reading.latency.unwrap();
                let off = (in_flight / reading.in_flight - 1.0).abs();
                assert!(off < 0.03, "{}: {reading:?}", curve.name);
            }
        }
        assert_eq!(points.peaks.len(), 4);
        assert!((points.premises(Source::Published).storage_work() - 1.3).abs() < 1e-12);
    }

    #[test]
    fn curves_of_different_loads_are_told_apart() {
        let asked = |sizes: &[(u64, f64)], read_percent, pattern: &str| Asked {
            place: String::new(),
            sizes: sizes.to_vec(),
            read_percent,
            patterns: (!pattern.is_empty())
                .then(|| pattern.to_owned())
                .into_iter()
                .collect(),
            ..Asked::default()
        };
        let one = asked(&[(16384, 100.0)], Some(70.0), "random");
        let nothing = Asked::default();
        for same in [
            &one,
            &nothing,
            &asked(&[], Some(70.0), ""),
            &asked(&[(16384, 100.0)], None, ""),
        ] {
            assert_eq!(one.differs(same), None);
            assert_eq!(same.differs(&one), None);
        }
        for (other, difference) in [
            (
                asked(&[(4096, 100.0)], Some(70.0), "random"),
                "requests of 16,384 bytes and of 4,096 bytes",
            ),
            (
                asked(&[(4096, 20.0), (16384, 80.0)], None, ""),
                "requests of 16,384 bytes and of 4,096 bytes (20%), 16,384 bytes (80%)",
            ),
            (
                asked(&[], Some(100.0), "random"),
                "70 and 100 reads of 100 requests",
            ),
            (asked(&[], None, "sequential"), "random and sequential"),
        ] {
            assert_eq!(one.differs(&other).as_deref(), Some(difference));
        }
        let of = |read_percent, bytes, percent| weir_lab::document::Stream {
            share_percent: 50.0,
            read_percent,
            write_percent: 100.0 - read_percent,
            sizes: vec![weir_lab::document::SizeShare { bytes, percent }],
            pattern: "random".to_owned(),
            ..weir_lab::document::Stream::default()
        };
        let workload = Workload {
            streams: vec![of(100.0, 4096, 100.0), of(40.0, 4096, 100.0)],
            ..Workload::default()
        };
        let whole = super::asked(&workload);
        assert_eq!(
            whole,
            Asked {
                write_percent: Some(30.0),
                range: Some("all of the volumes".to_owned()),
                ..asked(&[(4096, 100.0)], Some(70.0), "random")
            }
        );
        let mut flushes = workload.clone();
        flushes.streams[1].write_percent = 0.0;
        // Of what flushes, and of two lengths for two kinds, no one length says what moves where.
        let mut lengths = workload.clone();
        lengths.streams[1].sizes[0].bytes = 65536;
        for (of, bytes) in [
            (&workload, Some(4096.0)),
            (&flushes, None),
            (&lengths, None),
        ] {
            assert_eq!(super::asked(of).request_bytes(), bytes);
        }
        lengths.streams[1].read_percent = 100.0;
        lengths.streams[1].write_percent = 0.0;
        assert_eq!(super::asked(&lengths).request_bytes(), Some(34816.0));
        let mut beginning = workload.clone();
        beginning.range_bytes = Some(4096);
        let mut ordered = workload.clone();
        ordered.streams[0].pattern = "sequential".to_owned();
        for (other, difference) in [
            (flushes, "30 and 0 writes of 100 requests"),
            (
                beginning,
                "requests to all of the volumes and to the first 4,096 bytes of the volumes",
            ),
            (ordered, "random and random (50%) with sequential (50%)"),
        ] {
            let other = super::asked(&other);
            assert_eq!(whole.differs(&other).as_deref(), Some(difference));
        }
    }

    #[test]
    fn what_two_files_say_of_a_cluster_is_put_together_or_refused() {
        let curve = "[[curve]]\nname = \"a\"\ngateways = 1\nreactors = 1\nbdevs_per_cluster = 1\nnodes = 3\nosds = 3\npoints = [[1, 1e3, 0]]\n";
        let of = |said: &str| {
            Points::parse(&format!("{said}\n{curve}"))
                .unwrap()
                .premises(Source::Given)
        };
        let both = |one: &str, other: &str| merged(("a.toml", of(one)), ("b.toml", of(other)), &[]);
        let all = both("replicas = 2", "volumes = 8\ncolocated = false").unwrap();
        assert_eq!(
            (all.replicas, all.volumes, all.colocated),
            (2.0, 8.0, false)
        );
        assert_eq!(all.sources.volumes, Source::Given);
        assert_eq!(both("", "").unwrap(), premises());
        assert_eq!(both("", "clients = 8").unwrap().volumes, 8.0);
        assert_eq!(both("clients = 8", "").unwrap().volumes, 8.0);
        assert_eq!(both("clients = 8", "volumes = 4").unwrap().volumes, 4.0);
        let (one, other) = (
            ("a.toml", of("replicas = 2")),
            ("b.toml", of("replicas = 3")),
        );
        assert_eq!(merged(one, other, &["--replicas"]).unwrap().replicas, 2.0);
        for (one, other, part) in [
            (
                "replicas = 2",
                "replicas = 3",
                "the number of replicas, 2 and 3",
            ),
            ("volumes = 2", "volumes = 3", "--volumes"),
            (
                "clients = 8",
                "clients = 64",
                "the number of volumes, 8 and 64",
            ),
            (
                "colocated = true",
                "colocated = false",
                "where gateways run",
            ),
        ] {
            let refused = both(one, other).unwrap_err().to_string();
            assert!(refused.starts_with("a.toml and b.toml differ"), "{refused}");
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let configuration = Points::published().curves(Source::Published)[0].configuration;
        assert!(Points::parse("x = 1").is_err());
        let good = "[[curve]]\nname = \"a\"\ngateways = 1\nreactors = 1\nbdevs_per_cluster = 1\nnodes = 3\nosds = 3\npoints = [[4, 3e3, 0], [1, 1e3, 0]]\n";
        let sorted = Points::parse(good).unwrap().curves(Source::Given);
        assert_eq!(sorted[0].readings[0].in_flight, 1.0);
        for wrong in [
            good.replace("[[4, 3e3, 0], [1, 1e3, 0]]", "[]"),
            good.replace("nodes = 3", "nodes = 0"),
            good.replace("[4,", "[0,"),
            good.replace("3e3", "nan"),
            format!("replicas = 0\n{good}"),
            format!("volumes = -1\n{good}"),
            format!("clients = 0\n{good}"),
            format!("read_percent = 101\n{good}"),
            format!("{good}[[peak]]\nosds = 0\niops = 1e3\n"),
            format!("{good}[[peak]]\nosds = 1\niops = 0\n"),
        ] {
            let refused = Points::parse(&wrong);
            assert!(matches!(refused, Err(PointsError::Range { .. })), "{wrong}");
        }
        assert!(of_document("{}", "a", configuration).is_err());
    }
}
