//! Points that cannot be so are refused by name, with what would fit.

use super::super::{Points, PointsError};

/// A file with one curve of these points, and these peaks.
fn read(points: &str, peaks: &str) -> Result<Points, PointsError> {
    Points::parse(&format!(
        "[[curve]]\nname = 'one'\ngateways = 4\nreactors = 4\nbdevs_per_cluster = 32\nnodes = 4\nosds = 96\npoints = [{points}]\n{peaks}"
    ))
}

fn refused(points: &str, peaks: &str) -> String {
    match read(points, peaks) {
        Err(error @ PointsError::Sense(_)) => error.to_string(),
        other => panic!("{points} {peaks}: {other:?}"),
    }
}

#[test]
fn a_point_that_breaks_littles_law_is_refused_with_what_would_fit() {
    let said = refused("[64, 90e3, 0.72], [32, 48e3, 6.7]", "");
    for part in [
        "curve 'one'",
        "32 in flight, 48,000 requests a second",
        "321.6 in flight",
        "4,776 a second would fit, or 666.7 us",
    ] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
    refused("[32, 48e3, 0.067]", "");
    for good in ["[32, 48e3, 0.67]", "[32, 48e3, 0]", "[32, 48e3, 0.72]"] {
        read(good, "").unwrap();
    }
}

#[test]
fn a_rate_that_no_drive_does_is_refused() {
    let said = refused("[32, 48e9, 0]", "");
    for part in [
        "32 in flight",
        "500,000,000 of each",
        "96,000,000 would fit",
    ] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
}

#[test]
fn a_peak_far_from_the_curve_of_its_gateways_is_refused() {
    let curve = "[32, 48e3, 0.67], [1024, 353e3, 2.9]";
    let peak = |osds: u32, iops: &str| format!("[[peak]]\nosds = {osds}\niops = {iops}\n");
    read(curve, &peak(16, "390e3")).unwrap();
    read(curve, &peak(192, "700e3")).unwrap();
    read(curve, &peak(16, "60e3")).unwrap();
    let said = refused(curve, &peak(16, "3.9e6"));
    for part in [
        "peak of 16 OSDs",
        "3,900,000",
        "19,612 to 1,059,000 would fit",
    ] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
    refused(curve, &peak(96, "390"));
    refused(curve, &peak(16, "390e6"));
}
