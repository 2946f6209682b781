//! Curves to fit: points written by hand or published, in TOML, and results of `weir curve`.

use serde::Deserialize;
use weir_lab::document::{Axis, Body, Document};

use crate::cluster::{Configuration, MeasuredCurve, PremiseSources, Premises, Reading};
use crate::sheet::Source;

/// The published curves.
const CEPH: &str = include_str!("../published/ceph.toml");
/// Copies of what is written, where nobody says: the default of Ceph's pools.
const REPLICAS: f64 = 3.0;
/// The part of requests that read, where nobody says.
const READ_PERCENT: f64 = 70.0;

/// A file of points.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// Where they are from.
    pub source: Option<String>,
    read_percent: Option<f64>,
    clients: Option<f64>,
    volumes: Option<f64>,
    replicas: Option<f64>,
    colocated: Option<bool>,
    #[serde(rename = "curve")]
    curves: Vec<CurveOfPoints>,
    /// Peaks of the first curve's configuration with other numbers of OSDs.
    #[serde(default, rename = "peak")]
    pub peaks: Vec<PeakOfOsds>,
    /// What was said of them in words, by matter.
    #[serde(default)]
    pub words: std::collections::BTreeMap<String, String>,
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
    /// No curve of Weir's.
    #[error(transparent)]
    Document(#[from] weir_lab::document::DocumentError),
    /// A result of something else.
    #[error("it is no result of `weir curve`")]
    NoCurve,
    /// It holds several.
    #[error("it has {0} curves, of a sweep; a plan takes one at a time")]
    Several(usize),
    /// No point of it can be used.
    #[error("no point of it ended a request")]
    Empty,
}

impl Points {
    /// Reads a file of points.
    ///
    /// # Errors
    /// [`PointsError::Toml`].
    pub fn parse(text: &str) -> Result<Self, PointsError> {
        Ok(toml::from_str(text)?)
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
            sources: PremiseSources {
                colocated: of(self.colocated.is_some()),
                replicas: of(self.replicas.is_some()),
                read_part: of(self.read_percent.is_some()),
                // One volume for each client is a guess as well.
                volumes: of(self.volumes.is_some()),
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
                configuration: Configuration {
                    gateways: of.gateways,
                    reactors: of.reactors,
                    bdevs_per_cluster: of.bdevs_per_cluster,
                    nodes: of.nodes,
                    osds: of.osds,
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
        sources: PremiseSources {
            colocated: Source::Assumed,
            replicas: Source::Assumed,
            read_part: Source::Assumed,
            volumes: Source::Assumed,
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
    let mut readings: Vec<Reading> = curve
        .points
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
        return Err(PointsError::Empty);
    }
    Ok(MeasuredCurve {
        name: name.to_owned(),
        configuration,
        readings,
        source: Source::Measured,
    })
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
    fn what_is_no_curve_is_refused() {
        let configuration = Points::published().curves(Source::Published)[0].configuration;
        assert!(Points::parse("x = 1").is_err());
        assert!(of_document("{}", "a", configuration).is_err());
    }
}
