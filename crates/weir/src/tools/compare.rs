//! `weir compare`: the same work on several volumes, and whether they differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use weir_block::size::Size;
use weir_lab::compare::{self, CompareConfig, SideConfig};
use weir_lab::convert;
use weir_lab::document::{self, Body, Comparison, Difference, Document, Metric, Verdict, Volume};
use weir_load::bench::Arrivals;
use weir_volume::VolumeUrl;

use super::bench::arrivals;
use super::knobs::{Knob, settings};
use super::laboratory::{Laboratory, LaboratoryArguments};
use super::present;

/// Sides are called by letters.
const SIDES_MAX: usize = 26;
/// Requests in flight of each queue at most, where nothing is said.
const DEPTH_MAX: u32 = 256;

/// Measure volumes side by side in rounds of drawn order, and tell differences from chance
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArguments {
    /// The volumes; the others are compared with the first. With --against all of them together are the first side
    #[arg(value_name = "URL", required = true)]
    urls: Vec<VolumeUrl>,
    /// The volumes of the other side, which are driven at the same time, as those named before are: as many
    #[arg(long, value_name = "URL", num_args = 1..)]
    against: Vec<VolumeUrl>,
    /// Compare one volume with itself under these values, such as connections=1,16; what can be swept is what weir curve sweeps
    #[arg(long, value_name = "WHAT=VALUE,...", conflicts_with = "against")]
    sweep: Vec<Knob>,
    /// Requests in flight per queue when each does as much as it can [default: found]
    #[arg(long, short = 'd', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: Option<u32>,
    /// Requests in flight per queue at most [default: 256, or --queue-depth where that is more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth_max: Option<u32>,
    /// Requests a second that all are offered alike [default: half of what the slowest can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// How arrivals are spread over time, uniform or exponential
    #[arg(long, value_name = "HOW", value_parser = arrivals, default_value = "exponential")]
    arrivals: Arrivals,
    /// Rounds of each of the three stages; a round runs each volume once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(4..=1000))]
    rounds: u32,
    /// How sure all differences together are to be, in percent
    #[arg(long, value_name = "PERCENT", default_value = "99", value_parser = confidence)]
    confidence: f64,
    /// Differences below this are not shown, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = least)]
    least: f64,
    /// What the link to the volumes carries in each direction, in Gb/s, to be told when that is what is measured
    #[arg(long, value_name = "GBIT", value_parser = link)]
    link: Option<f64>,
    #[command(flatten)]
    laboratory: LaboratoryArguments,
}

fn number(text: &str, allowed: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => Err(format!(
            "'{text}' is not a number from {} to {}",
            allowed.start(),
            allowed.end()
        )),
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    number(text, 50.0..=99.999)
}

fn least(text: &str) -> Result<f64, String> {
    number(text, 0.0..=100.0)
}

pub(super) fn link(text: &str) -> Result<f64, String> {
    number(text, 0.001..=10_000.0)
}

pub(crate) fn run(arguments: CompareArguments, json: bool) -> anyhow::Result<ExitCode> {
    let sides = match (arguments.sweep.as_slice(), arguments.urls.as_slice()) {
        ([], urls) => sides(urls, &arguments.against)?,
        (sweep, [url]) => {
            let settings = settings(std::slice::from_ref(url), sweep)?;
            sides(
                &settings
                    .into_iter()
                    .flat_map(|of| of.urls)
                    .collect::<Vec<_>>(),
                &[],
            )?
        }
        (_, urls) => bail!(
            "--sweep compares one volume with itself, and there are {}",
            urls.len()
        ),
    };
    let seed = arguments.laboratory.seed;
    let with_range = arguments.laboratory.requests.range.is_some();
    let laboratory = Laboratory::open(arguments.laboratory, &sides, true)?;
    let side = |index: usize| {
        let volumes = laboratory.stored(index);
        let paths = laboratory.paths(&sides[index]);
        // Volumes by several interfaces have the speed of all of them.
        let speeds: Option<u64> = paths.iter().map(|path| path.speed_bits_per_second).sum();
        let speed = speeds.filter(|_| !paths.is_empty()).map(|bits| bits as f64);
        let link = arguments.link.map(|gigabits| gigabits * 1e9).or(speed);
        SideConfig {
            name: char::from(b'A' + index as u8).to_string(),
            things: together(volumes.iter().map(|volume| things(volume, with_range))),
            volumes,
            link_bytes_per_second: link.map(|bits| bits / 8.0),
            paths,
        }
    };
    let config = CompareConfig {
        sides: (0..sides.len()).map(side).collect(),
        spread: laboratory.spread(),
        depth: arguments.queue_depth,
        depth_max: arguments
            .depth_max
            .unwrap_or(DEPTH_MAX.max(arguments.queue_depth.unwrap_or(0))),
        rate: arguments.rate.map(f64::from),
        arrivals: convert::arrivals(arguments.arrivals),
        rounds: arguments.rounds,
        confidence_percent: arguments.confidence,
        least_difference_percent: arguments.least,
        seed,
        processors: std::thread::available_parallelism().map_or(0, |of| of.get() as u32),
    };
    let (compared, mut caveats) = laboratory
        .run(async move |runner, observe| compare::measure(runner, &config, observe).await)?;
    caveats.extend(compared.caveats);
    let body = Body::Comparison(compared.comparison);
    laboratory.finish(body, caveats, json, text)
}

/// The volumes of each side.
fn sides(urls: &[VolumeUrl], against: &[VolumeUrl]) -> anyhow::Result<Vec<Vec<VolumeUrl>>> {
    if !against.is_empty() {
        if urls.len() != against.len() {
            bail!(
                "{} against {} volumes: name as many on both sides, or the load differs too",
                urls.len(),
                against.len()
            );
        }
        return Ok(vec![urls.to_vec(), against.to_vec()]);
    }
    match urls.len() {
        1 => bail!(
            "one volume can be compared with nothing: name another, or --sweep what is to differ"
        ),
        2..=SIDES_MAX => Ok(urls.iter().map(|url| vec![url.clone()]).collect()),
        _ => bail!("{SIDES_MAX} volumes can be compared at once"),
    }
}

/// The things of all volumes of a side: what is the same of all stands there once.
fn together(each: impl Iterator<Item = BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in each.flatten() {
        let values = all.entry(name).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let joined = all
        .into_iter()
        .map(|(name, values)| (name, values.join("; ")));
    joined.collect()
}

/// What could make a difference, by name. Which volume it is counts once, whatever its name and protocol.
fn things(volume: &Volume, with_range: bool) -> BTreeMap<String, String> {
    let (place, parameters) = volume.url.split_once('?').unwrap_or((&volume.url, ""));
    let parameters: Vec<(&str, &str)> = parameters
        .split('&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "yes")))
        .collect();
    let of_volume = parameters.iter().find(|(name, _)| *name == "nsid");
    let place = of_volume.map_or(place.to_owned(), |(_, nsid)| {
        format!("{place}, namespace {nsid}")
    });
    let mut things = BTreeMap::from([
        ("volume".to_owned(), place),
        (
            "block size".to_owned(),
            Size(u64::from(volume.block_size_bytes)).to_string(),
        ),
    ]);
    if !with_range {
        let length = Size(volume.length_bytes).to_string();
        things.insert("length".to_owned(), length);
    }
    // What these say is the volume, or is looked at above.
    const SAID: [&str; 4] = ["nsid", "size", "block_size", "hostnqn"];
    for (name, value) in parameters.into_iter().filter(|of| !SAID.contains(&of.0)) {
        // A parameter may be there several times, such as the members of a stripe.
        let all = things.entry(name.to_owned()).or_default();
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.push_str(value);
    }
    things
}

fn text(document: &Document) -> anyhow::Result<String> {
    let Body::Comparison(comparison) = &document.body else {
        bail!("a comparison was expected");
    };
    let mut text = String::new();
    for side in &comparison.sides {
        let urls = side.volumes.iter().map(|volume| volume.url.as_str());
        writeln!(
            text,
            "{}  {} (maximum {} IOPS)",
            side.name,
            urls.collect::<Vec<_>>().join(", "),
            present::grouped(side.maximum_rate as u64)
        )?;
        for path in &side.paths {
            writeln!(text, "   by {}", path.words())?;
        }
    }
    for stage in &comparison.stages {
        writeln!(text, "\n{} ({} rounds)", stage.name, stage.rounds.len())?;
        let mut rows = vec![heads(comparison)];
        rows.extend(stage.differences.iter().map(|of| row(comparison, of)));
        text += &present::table(&rows);
        text += &costs(comparison, stage);
    }
    writeln!(text, "\n{}", comparison.summary)?;
    Ok(text)
}

/// Processor time of a request on each side, and the worst that Little's law was missed by.
fn costs(comparison: &Comparison, stage: &document::Stage) -> String {
    let runs = |side: usize| {
        stage
            .rounds
            .iter()
            .filter_map(move |round| round.runs.get(side))
    };
    let mut text = String::new();
    for (index, side) in comparison.sides.iter().enumerate() {
        let requests: u64 = runs(index).map(|run| run.operations.requests()).sum();
        let each = |seconds: fn(&document::Run) -> Option<f64>| -> Option<String> {
            let all: Option<f64> = runs(index).map(seconds).sum();
            let each = all.filter(|_| requests > 0)? / requests as f64;
            Some(present::latency(each * 1e9))
        };
        let generator = each(|run| run.processor.generator_seconds);
        let gateway = each(|run| run.processor.gateway_seconds);
        let missed = runs(index).filter_map(|run| run.littles_law.as_ref());
        let missed = missed.map(|law| law.error_percent.abs()).reduce(f64::max);
        let time: Vec<String> = [("generator", generator), ("gateway", gateway)]
            .into_iter()
            .filter_map(|(who, each)| Some(format!("{who} {}", each?)))
            .collect();
        let mut said = Vec::new();
        if !time.is_empty() {
            said.push(format!("processor time of a request: {}", time.join(", ")));
        }
        said.extend(missed.map(|of| format!("Little's law holds within {of:.1}%")));
        if !said.is_empty() {
            text += &format!("{}  {}\n", side.name, said.join("; "));
        }
    }
    text
}

fn heads(comparison: &Comparison) -> Vec<String> {
    let first = comparison.sides.first().map_or("", |side| &side.name);
    let interval = format!("{}% sure", comparison.confidence_percent);
    ["", first, "other", "difference", &interval, ""]
        .map(str::to_owned)
        .to_vec()
}

fn row(comparison: &Comparison, of: &Difference) -> Vec<String> {
    let side = &comparison.sides[of.side as usize].name;
    let number = |value: f64| match of.metric {
        Metric::Throughput => format!("{} IOPS", present::grouped(value as u64)),
        Metric::LatencyMean | Metric::LatencyP99 => present::latency(value),
    };
    let mut cells = vec![
        format!("{side} {}", of.metric.name()),
        number(of.baseline),
        number(of.value),
    ];
    if matches!(of.verdict, Verdict::Fixed | Verdict::Unknown) {
        cells.extend(["-", "-", of.verdict.name()].map(str::to_owned));
        return cells;
    }
    cells.push(format!("{:+.2}%", of.percent));
    cells.push(present::between(of.percent_low, of.percent_high));
    cells.push(of.verdict.name().to_owned());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(url: &str) -> Volume {
        Volume {
            url: url.to_owned(),
            name: url.to_owned(),
            block_size_bytes: 4096,
            length_bytes: 1 << 30,
            transfer_bytes_max: 1 << 20,
            volatile_cache: false,
            operations: None,
        }
    }

    #[test]
    fn what_could_make_a_difference_is_listed() {
        let things = things(&volume("nvme+tcp://h/n?nsid=1&queues=4&hdgst"), true);
        let listed: Vec<_> = things
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            listed,
            [
                "block size=4 KiB",
                "hdgst=yes",
                "queues=4",
                "volume=nvme+tcp://h/n, namespace 1"
            ]
        );
    }

    #[test]
    fn a_side_is_a_volume_or_as_many_as_the_other() {
        let urls = |count: usize| vec!["mem:?size=1M".parse::<VolumeUrl>().unwrap(); count];
        let counts = |one, other| {
            let sides = sides(&urls(one), &urls(other));
            sides.map(|of| of.iter().map(Vec::len).collect::<Vec<_>>())
        };
        assert_eq!(counts(3, 0).unwrap(), [1, 1, 1]);
        assert_eq!(counts(1, 1).unwrap(), [1, 1]);
        assert_eq!(counts(8, 8).unwrap(), [8, 8]);
        for (one, other, part) in [
            (1, 0, "name another"),
            (27, 0, "26 volumes"),
            (2, 1, "2 against 1 volumes"),
        ] {
            let error = counts(one, other).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn volumes_of_a_side_have_their_things_together() {
        let of = |urls: &[&str]| together(urls.iter().map(|url| things(&volume(url), true)));
        let side = of(&[
            "nvme+tcp://h/n?nsid=1&queues=2",
            "nvme+tcp://h/n?nsid=2&queues=2",
        ]);
        assert_eq!(side["queues"], "2");
        assert_eq!(
            side["volume"],
            "nvme+tcp://h/n, namespace 1; nvme+tcp://h/n, namespace 2"
        );
        let one = of(&["nvme+tcp://h/n?nsid=1&queues=2"]);
        assert_eq!(one, things(&volume("nvme+tcp://h/n?nsid=1&queues=2"), true));
    }

    /// Two namespaces of one subsystem are two volumes.
    #[test]
    fn another_namespace_is_another_volume() {
        let of = |url: &str| things(&volume(url), true);
        let differing = |one: &str, other: &str| {
            let (one, other) = (of(one), of(other));
            let caveat = compare::differing_things(&[&one, &other]);
            caveat.map(|caveat| caveat.text)
        };
        assert_eq!(
            differing("nvme+tcp://h/n?nsid=1", "nvme+tcp://h/n?nsid=2"),
            None
        );
        let text = differing("nvme+tcp://h/n?nsid=1&queues=2", "nvme+tcp://h/n?nsid=2");
        let text = text.expect("the volume and its queues differ");
        assert!(
            text.contains("2 things") && text.contains("namespace 2"),
            "{text}"
        );
        let stripe = "stripe:?member=mem%3A%3Fsize%3D1M&member=null%3A";
        assert_eq!(of(stripe)["member"], "mem%3A%3Fsize%3D1M, null%3A");
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(confidence("99"), Ok(99.0));
        for wrong in ["100", "0", "x", "NaN", "-1"] {
            assert!(confidence(wrong).unwrap_err().contains("50 to 99.999"));
        }
    }
}
