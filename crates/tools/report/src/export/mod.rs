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

/// Which blocks requests go to, as far as other tools can say it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Blocks {
    /// So many of 100 go to random blocks, in whatever distribution, and the others one after the other.
    Random(f64),
    /// One after the other, so many bytes apart from beginning to beginning.
    Strided(u64),
}

/// Which blocks all requests go to, where that is the same for all; none where it is not, or is not known.
fn blocks(run: &weir_lab::document::Run) -> Option<Blocks> {
    let mut streams = run.workload.streams.iter();
    let first = blocks_of(&streams.next()?.pattern)?;
    streams
        .all(|stream| blocks_of(&stream.pattern) == Some(first))
        .then_some(first)
}

/// A pattern as the document has it: as the command line writes it.
fn blocks_of(pattern: &str) -> Option<Blocks> {
    match pattern.split_once(':') {
        None if pattern == "sequential" => Some(Blocks::Random(0.0)),
        None if pattern == "random" => Some(Blocks::Random(100.0)),
        Some(("random", percent)) => percent.parse().ok().map(Blocks::Random),
        Some(("stride", bytes)) => weir_block::size::parse(bytes).ok().map(Blocks::Strided),
        Some(("zipf" | "pareto" | "hot", _)) => Some(Blocks::Random(100.0)),
        _ => None,
    }
}

/// How likely random blocks are, as fio writes it, where they are not alike and it is one law for all.
fn distribution(run: &weir_lab::document::Run) -> Option<String> {
    let mut patterns = run.workload.streams.iter().map(|stream| &stream.pattern);
    let first = patterns.next()?;
    if !patterns.all(|pattern| pattern == first) {
        return None;
    }
    match first.split_once(':')? {
        ("zipf" | "pareto", _) => Some(first.clone()),
        ("hot", areas) => Some(format!("zoned:{}", areas.replace(',', ":"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_what_they_say() {
        for (pattern, expected) in [
            ("random", Some(Blocks::Random(100.0))),
            ("sequential", Some(Blocks::Random(0.0))),
            ("random:10", Some(Blocks::Random(10.0))),
            ("random:0.1", Some(Blocks::Random(0.1))),
            ("stride:64KiB", Some(Blocks::Strided(65536))),
            ("zipf:1.1", Some(Blocks::Random(100.0))),
            ("hot:50/5,30/15,20/80", Some(Blocks::Random(100.0))),
            ("something later", None),
        ] {
            assert_eq!(blocks_of(pattern), expected, "{pattern}");
        }
    }
}
