//! A distribution of latencies as it is stored: a summary for readers, and the whole histogram for those who merge or draw.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The percentiles of a summary. All others are in the histogram.
pub const PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99];

/// Latencies of at least one request, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub stddev_ns: f64,
    /// The longest.
    pub max_ns: u64,
    /// [`PERCENTILES`]; the keys are numbers as Rust and JavaScript print them, such as `50` and `99.9`.
    pub percentiles_ns: BTreeMap<String, u64>,
    /// The histogram: HdrHistogram's V2 encoding, compressed, in Base64; the same text that stands in an HdrHistogram log.
    pub histogram: String,
}

/// Why a stored histogram cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stored histogram cannot be read: {0}")]
pub struct LatencyError(String);

impl Latency {
    /// What a histogram of nanoseconds holds; none where it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let at = |&percentile: &f64| {
            let ns = histogram.value_at_percentile(percentile);
            (percentile.to_string(), ns.min(histogram.max()))
        };
        Some(Latency {
            count: histogram.len(),
            min_ns: histogram.min(),
            mean_ns: histogram.mean(),
            stddev_ns: histogram.stdev(),
            max_ns: histogram.max(),
            percentiles_ns: PERCENTILES.iter().map(at).collect(),
            histogram: encode(histogram),
        })
    }

    /// The histogram, in nanoseconds.
    ///
    /// # Errors
    /// [`LatencyError`], where the document was not written by Weir.
    pub fn histogram(&self) -> Result<Histogram<u64>, LatencyError> {
        let bytes = STANDARD
            .decode(&self.histogram)
            .map_err(|error| LatencyError(error.to_string()))?;
        Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| LatencyError(error.to_string()))
    }

    /// The latency that so many of 100 requests do not exceed, in nanoseconds.
    ///
    /// # Errors
    /// As [`Latency::histogram`], where the percentile is none of [`PERCENTILES`].
    pub fn percentile_ns(&self, percentile: f64) -> Result<u64, LatencyError> {
        match self.percentiles_ns.get(&percentile.to_string()) {
            Some(&ns) => Ok(ns),
            None => Ok(self.histogram()?.value_at_percentile(percentile)),
        }
    }

    /// Several distributions as one; none where there are none.
    ///
    /// # Errors
    /// As [`Latency::histogram`].
    pub fn merged<'a>(
        parts: impl IntoIterator<Item = &'a Latency>,
    ) -> Result<Option<Histogram<u64>>, LatencyError> {
        let mut merged: Option<Histogram<u64>> = None;
        for part in parts {
            let histogram = part.histogram()?;
            match &mut merged {
                None => merged = Some(histogram),
                Some(sum) => {
                    sum.auto(true);
                    sum.add(&histogram)
                        .map_err(|error| LatencyError(error.to_string()))?;
                }
            }
        }
        Ok(merged)
    }
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("a histogram of counts below 2^63 is written to memory");
    STANDARD.encode(bytes)
}
