//! Checks of a file's points against each other, before anything is fitted to them.
//!
//! A slip of a digit moves every figure of a plan, and no error of the fit shows that it is a slip.

use super::{CurveOfPoints, PeakOfOsds, Points};
use weir_report::words::{grouped, latency, trimmed};

/// Rate times latency may differ from what is in flight by this part: charts are read to a few hundredths.
const LITTLES_LAW_OFF_MAX: f64 = 0.1;
/// Requests a second of one OSD that no drive does.
const OSD_RATE_MAX: f64 = 1e6;
/// Times the first curve's highest rate, for as many OSDs, that a peak of the same gateways may be above or below it.
const PEAK_OFF_MAX: f64 = 3.0;

/// A point that cannot be so.
#[derive(Debug, thiserror::Error)]
pub enum SenseError {
    /// Rate, latency and requests in flight contradict each other.
    #[error(
        "curve '{curve}': its point of {} in flight, {} requests a second and {} breaks Little's law: {} x {} is {} in flight. With {} in flight {} a second would fit, or {}; correct the point, or write 0 for a latency that nobody read",
        trimmed(*.in_flight, 1), grouped(.rate.round() as u64), latency(.seconds * 1e9), grouped(.rate.round() as u64), latency(.seconds * 1e9),
        trimmed(.rate * .seconds, 1), trimmed(*.in_flight, 1), grouped((.in_flight / .seconds).round() as u64), latency(.in_flight / .rate * 1e9)
    )]
    LittlesLaw {
        /// The curve.
        curve: String,
        /// Requests in flight.
        in_flight: f64,
        /// Requests a second.
        rate: f64,
        /// Mean seconds of a request.
        seconds: f64,
    },
    /// More than the drives behind it can do.
    #[error(
        "{what}: {} requests a second of {osds} OSDs are {} of each, and no drive does more than {}; at most {} would fit",
        grouped(.rate.round() as u64), grouped((.rate / f64::from(*.osds)).round() as u64), grouped(OSD_RATE_MAX as u64),
        grouped((OSD_RATE_MAX * f64::from(*.osds)) as u64)
    )]
    TooFast {
        /// The point.
        what: String,
        /// Requests a second.
        rate: f64,
        /// OSDs.
        osds: u32,
    },
    /// Far from what the first curve does with the same gateways.
    #[error(
        "the peak of {osds} OSDs is {} requests a second, and curve '{curve}', of the same gateways, reaches {} with {curve_osds}: {} to {} would fit",
        grouped(.rate.round() as u64), grouped(.curve_peak.round() as u64), grouped(.least.ceil() as u64), grouped(.most.floor() as u64)
    )]
    Peak {
        /// OSDs of the peak.
        osds: u32,
        /// Its requests a second.
        rate: f64,
        /// The first curve.
        curve: String,
        /// Its OSDs.
        curve_osds: u32,
        /// Its highest rate.
        curve_peak: f64,
        /// The least that would fit.
        least: f64,
        /// The most that would.
        most: f64,
    },
}

/// Checks all points of a file.
pub(super) fn check(points: &Points) -> Result<(), SenseError> {
    for curve in &points.curves {
        check_curve(curve)?;
    }
    for peak in &points.peaks {
        check_peak(peak, points.curves.first())?;
    }
    Ok(())
}

fn check_curve(curve: &CurveOfPoints) -> Result<(), SenseError> {
    for &[in_flight, rate, milliseconds] in &curve.points {
        let seconds = milliseconds / 1e3;
        let off = (rate * seconds / in_flight - 1.0).abs();
        if seconds != 0.0 && off > LITTLES_LAW_OFF_MAX {
            return Err(SenseError::LittlesLaw {
                curve: curve.name.clone(),
                in_flight,
                rate,
                seconds,
            });
        }
        let of = || format!("curve '{}', the point of {in_flight} in flight", curve.name);
        check_rate(of, rate, curve.osds)?;
    }
    Ok(())
}

fn check_rate(what: impl Fn() -> String, rate: f64, osds: u32) -> Result<(), SenseError> {
    if rate <= OSD_RATE_MAX * f64::from(osds) {
        return Ok(());
    }
    let what = what();
    Err(SenseError::TooFast { what, rate, osds })
}

/// Holds a peak against the first curve, of whose gateways it is: more OSDs may do as much more, and fewer may do as much less.
fn check_peak(peak: &PeakOfOsds, first: Option<&CurveOfPoints>) -> Result<(), SenseError> {
    check_rate(
        || format!("the peak of {} OSDs", peak.osds),
        peak.iops,
        peak.osds,
    )?;
    let Some(first) = first else {
        return Ok(());
    };
    let curve_peak = first.points.iter().map(|of| of[1]).fold(0.0, f64::max);
    let osds = f64::from(peak.osds) / f64::from(first.osds);
    let least = curve_peak * osds.min(1.0) / PEAK_OFF_MAX;
    let most = curve_peak * osds.max(1.0) * PEAK_OFF_MAX;
    if (least..=most).contains(&peak.iops) {
        return Ok(());
    }
    Err(SenseError::Peak {
        osds: peak.osds,
        rate: peak.iops,
        curve: first.name.clone(),
        curve_osds: first.osds,
        curve_peak,
        least,
        most,
    })
}

#[cfg(test)]
mod tests;
