//! The forms that other tools read.

pub(crate) mod csv;
pub(crate) mod fio;
pub(crate) mod hdr;
pub(crate) mod vdbench;

/// The length of requests where all have one length.
fn one_size(run: &weir_lab::document::Run) -> Option<u64> {
    let mut sizes = run
        .workload
        .streams
        .iter()
        .flat_map(|stream| &stream.sizes)
        .map(|share| share.bytes);
    let first = sizes.next()?;
    sizes.all(|bytes| bytes == first).then_some(first)
}

/// A percentage of all requests that were asked for.
fn asked(
    run: &weir_lab::document::Run,
    percent: fn(&weir_lab::document::Stream) -> f64,
) -> Option<f64> {
    let streams = &run.workload.streams;
    let shares: f64 = streams.iter().map(|stream| stream.share_percent).sum();
    (shares > 0.0).then(|| {
        let parts = streams
            .iter()
            .map(|stream| percent(stream) * stream.share_percent);
        parts.sum::<f64>() / shares
    })
}

/// Whether all requests go to random blocks (true), or all to one after the other (false).
fn random(run: &weir_lab::document::Run) -> Option<bool> {
    let mut patterns = run
        .workload
        .streams
        .iter()
        .map(|stream| !stream.pattern.starts_with("sequential"));
    let first = patterns.next()?;
    patterns.all(|random| random == first).then_some(first)
}
