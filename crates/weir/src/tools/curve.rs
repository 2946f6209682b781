//! `weir curve`: throughput and latency under more and more load, and where it bends.

use std::fmt::Write as _;
use std::process::ExitCode;

use weir_lab::compare::SideConfig;
use weir_lab::convert;
use weir_lab::curve::{self, CurveConfig, Steps};
use weir_lab::document::{Axis, Body, Comparison, Curve, Document, Metric, Point, Run, Verdict};
use weir_lab::statistics::Objective;
use weir_lab::sweep::{self, SweepConfig};
use weir_load::bench::Arrivals;
use weir_volume::VolumeUrl;

use super::bench::arrivals;
use super::knobs::{Knob, Setting, settings};
use super::laboratory::{Laboratory, LaboratoryArguments, latencies, law};
use super::present;

/// As those of `weir compare`.
const CONFIDENCE_PERCENT: f64 = 99.0;
const LEAST_DIFFERENCE_PERCENT: f64 = 1.0;

/// Measure a volume under more and more load, and find where it bends
#[derive(Debug, clap::Args)]
pub(crate) struct CurveArguments {
    /// The volumes, such as file:/path/to/image or nvme+tcp://HOST:4420/NQN?nsid=1. Several are driven at the same time
    #[arg(value_name = "URL", required = true)]
    urls: Vec<VolumeUrl>,
    /// By depth: requests in flight per queue, closed loop. 1..256 doubles from 1 to 256; or a list, such as 1,8,64
    #[arg(long, value_name = "LIST", value_parser = depths, default_value = "1..256", conflicts_with = "rates")]
    depths: Depths,
    /// By rate: finds the highest rate, then offers so many hundredths of it, open loop. 10..120 goes in tens; or a list
    #[arg(long, value_name = "LIST", value_parser = percents, num_args = 0..=1, default_missing_value = "10..120")]
    rates: Option<Percents>,
    /// By rate: what the hundredths are of, in requests a second, instead of what is found
    #[arg(long, value_name = "N", requires = "rates", value_parser = clap::value_parser!(u32).range(1..))]
    maximum: Option<u32>,
    /// By rate: how arrivals are spread over time, uniform or exponential
    #[arg(long, value_name = "HOW", requires = "rates", value_parser = arrivals, default_value = "exponential")]
    arrivals: Arrivals,
    /// By rate: requests in flight per queue at most
    #[arg(long, value_name = "N", requires = "rates", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth_max: u32,
    /// End with the first point that does not hold this, such as p99<20ms
    #[arg(long, value_name = "BOUND")]
    until: Option<Objective>,
    /// Find the highest rate that holds this, such as p99<2ms; may be given several times
    #[arg(long, value_name = "BOUND")]
    objective: Vec<Objective>,
    /// Add no points where the knee and the objectives are
    #[arg(long)]
    no_refinement: bool,
    /// Measure a curve under each of these values, such as send-buffer=64KiB,256KiB,1MiB, and tell which is the best. There are connections,
    /// send-buffer, receive-buffer, congestion-control and dscp of nvme+tcp:, iscsi: and nfs: volumes, and listener, HOST:PORT of one
    /// gateway's listeners, which have socket options of their own. Given several times, every value goes with every other
    #[arg(long, value_name = "WHAT=VALUE,...")]
    sweep: Vec<Knob>,
    /// With --sweep: rounds in which the settings do as much as they can, to be compared
    #[arg(long, value_name = "N", requires = "sweep", default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=1000))]
    rounds: u32,
    #[command(flatten)]
    laboratory: LaboratoryArguments,
}

/// Requests in flight, ascending.
#[derive(Debug, Clone)]
struct Depths(Vec<u32>);

/// Hundredths of a maximum, ascending.
#[derive(Debug, Clone)]
struct Percents(Vec<f64>);

const DEPTH_MAX: u32 = 65536;
const PERCENT_MAX: u32 = 1000;

fn depths(text: &str) -> Result<Depths, String> {
    let list = numbers(text, DEPTH_MAX, |depth| depth * 2)?;
    Ok(Depths(list))
}

fn percents(text: &str) -> Result<Percents, String> {
    let list = numbers(text, PERCENT_MAX, |percent| percent + 10)?;
    Ok(Percents(list.into_iter().map(f64::from).collect()))
}

/// A list, ascending, or a range in steps, with its end.
fn numbers(text: &str, max: u32, step: impl Fn(u32) -> u32) -> Result<Vec<u32>, String> {
    let number = |text: &str| match text.trim().parse::<u32>() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("'{text}' is not a number from 1 to {max}")),
    };
    let Some((first, last)) = text.split_once("..") else {
        let list = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        return if list.is_sorted_by(|one, next| one < next) {
            Ok(list)
        } else {
            Err("the list does not ascend".to_owned())
        };
    };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{first} is more than {last}"));
    }
    let steps = std::iter::successors(Some(first), |&at| (at < last).then(|| step(at).min(last)));
    Ok(steps.collect())
}

pub(crate) fn run(arguments: CurveArguments, json: bool) -> anyhow::Result<ExitCode> {
    let by_rate = arguments.rates.is_some();
    let seed = arguments.laboratory.seed;
    let steps = match arguments.rates {
        None => Steps::Depths(arguments.depths.0),
        Some(Percents(percents)) => Steps::Rates {
            percents,
            arrivals: convert::arrivals(arguments.arrivals),
            depth_max: arguments.depth_max,
            maximum: arguments.maximum.map(f64::from),
        },
    };
    let settings = settings(&arguments.urls, &arguments.sweep)?;
    let sides: Vec<Vec<VolumeUrl>> = settings.iter().map(|of| of.urls.clone()).collect();
    let laboratory = Laboratory::open(arguments.laboratory, &sides, by_rate)?;
    let config = CurveConfig {
        side: 0,
        steps,
        spread: laboratory.spread(),
        bound: arguments.until,
        objectives: arguments.objective,
        refine: !arguments.no_refinement,
        seed,
    };
    if !arguments.sweep.is_empty() {
        return swept(&laboratory, config, &settings, arguments.rounds, json);
    }
    let (curve, caveats) = laboratory
        .run(async move |runner, observe| curve::measure(runner, &config, observe).await)?;
    let body = Body::Curve {
        curves: vec![curve],
        settings: None,
    };
    laboratory.finish(body, caveats, json, text)
}

fn swept(
    laboratory: &Laboratory,
    curve: CurveConfig,
    settings: &[Setting],
    rounds: u32,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let side = |(index, setting): (usize, &Setting)| SideConfig {
        name: setting.name.clone(),
        volumes: laboratory.stored(index),
        things: std::collections::BTreeMap::new(),
        link_bytes_per_second: None,
        paths: Vec::new(),
    };
    let config = SweepConfig {
        curve,
        settings: settings.iter().enumerate().map(side).collect(),
        rounds,
        confidence_percent: CONFIDENCE_PERCENT,
        least_difference_percent: LEAST_DIFFERENCE_PERCENT,
    };
    let (swept, mut caveats) = laboratory
        .run(async move |runner, observe| sweep::measure(runner, &config, observe).await)?;
    caveats.extend(swept.caveats);
    let body = Body::Curve {
        curves: swept.curves,
        settings: swept.settings,
    };
    laboratory.finish(body, caveats, json, text)
}

fn text(document: &Document) -> anyhow::Result<String> {
    let Body::Curve { curves, settings } = &document.body else {
        anyhow::bail!("a curve was expected");
    };
    let mut text = String::new();
    for (index, curve) in curves.iter().enumerate() {
        if !curve.name.is_empty() {
            let before = if index == 0 { "" } else { "\n" };
            writeln!(text, "{before}setting {}", curve.name)?;
        }
        text += &curve_text(curve)?;
    }
    if let Some(settings) = settings {
        text += &settings_text(curves, settings)?;
    }
    Ok(text)
}

/// The settings side by side, the best first.
fn settings_text(curves: &[Curve], settings: &Comparison) -> anyhow::Result<String> {
    let Some(stage) = settings.stages.first() else {
        anyhow::bail!("settings were compared in a stage");
    };
    let sure = format!("{}% sure", settings.confidence_percent);
    let heads = [
        "",
        "knee",
        "without load",
        "full load",
        "difference",
        &sure,
        "",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (place, side) in settings.sides.iter().enumerate() {
        let knee = curves.iter().find(|curve| curve.name == side.name);
        let knee = knee.and_then(|curve| curve.knee.as_ref());
        let iops = |rate: f64| format!("{} IOPS", present::grouped(rate as u64));
        let mut row = vec![
            side.name.clone(),
            knee.map_or("-".to_owned(), |knee| iops(knee.rate)),
            knee.map_or("-".to_owned(), |knee| {
                present::latency(knee.latency_unloaded_ns)
            }),
            iops(side.maximum_rate),
        ];
        let mut differences = stage.differences.iter();
        let throughput =
            differences.find(|of| of.side as usize == place && of.metric == Metric::Throughput);
        row.extend(match throughput {
            None => ["-".to_owned(), "-".to_owned(), String::new()],
            Some(of) if of.verdict == Verdict::Unknown => {
                ["-", "-", of.verdict.name()].map(str::to_owned)
            }
            Some(of) => [
                format!("{:+.2}%", of.percent),
                present::between(of.percent_low, of.percent_high),
                of.verdict.name().to_owned(),
            ],
        });
        rows.push(row);
    }
    let mut text = format!("\n{} ({} rounds)\n", stage.name, stage.rounds.len());
    text += &present::table(&rows);
    writeln!(text, "\n{}", settings.summary)?;
    Ok(text)
}

fn curve_text(curve: &Curve) -> anyhow::Result<String> {
    let mut text = String::new();
    if let Some(point) = curve.points.first() {
        for volume in &point.run.volumes {
            writeln!(text, "volume  {}", volume.name)?;
        }
        writeln!(text, "load    {}", point.run.workload.text)?;
    }
    if let Some(maximum) = curve.maximum_rate {
        writeln!(text, "maximum {} IOPS", present::grouped(maximum as u64))?;
    }
    let mut rows = vec![heads(curve)];
    for point in &curve.points {
        rows.push(row(point)?);
    }
    writeln!(text, "\n{}", present::table(&rows))?;
    text += &findings(curve);
    Ok(text)
}

fn heads(curve: &Curve) -> Vec<String> {
    let offered = match curve.axis {
        Axis::Depth => ["", "in flight"],
        Axis::Rate => ["", "offered"],
    };
    let others = [
        "IOPS",
        "bandwidth",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "max",
        "generator",
        "gateway",
        "law",
        "errors",
    ];
    offered
        .iter()
        .chain(&others)
        .map(|&of| of.to_owned())
        .collect()
}

fn row(point: &Point) -> anyhow::Result<Vec<String>> {
    let run = &point.run;
    let marked = if point.refinement { "+" } else { "" };
    let mut cells = vec![
        format!("{}{marked}", run.name),
        present::grouped(point.offered as u64),
        present::grouped(run.rate() as u64),
        present::rate(run.bytes_per_second()),
    ];
    cells.extend(latencies(run.felt()?.as_ref())?);
    cells.push(processors(run, run.processor.generator_seconds));
    cells.push(processors(run, run.processor.gateway_seconds));
    cells.push(law(run));
    cells.push(present::grouped(run.errors()));
    Ok(cells)
}

/// Processor time as processors that were busy.
fn processors(run: &Run, seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) if run.elapsed_seconds > 0.0 => {
            format!("{:.2} CPU", seconds / run.elapsed_seconds)
        }
        _ => "-".to_owned(),
    }
}

fn findings(curve: &Curve) -> String {
    let mut lines = Vec::new();
    match &curve.knee {
        None => lines.push("knee       not shown by these points".to_owned()),
        Some(knee) => lines.push(format!(
            "knee       {:.1} requests in flight: {} IOPS at {} (without load {})",
            knee.outstanding,
            present::grouped(knee.rate as u64),
            present::latency(knee.latency_ns),
            present::latency(knee.latency_unloaded_ns),
        )),
    }
    for objective in &curve.objectives {
        let broken = objective.broken_rate.map_or(String::new(), |rate| {
            format!("; broken at {} IOPS", present::grouped(rate as u64))
        });
        let held = objective.rate.map_or("never held".to_owned(), |rate| {
            format!("held up to {} IOPS", present::grouped(rate as u64))
        });
        lines.push(format!("objective  {} {held}{broken}", objective.objective));
    }
    for point in &curve.points {
        if let Some(text) = point.left_out_text(present::latency) {
            lines.push(format!("again      {}: {text}", point.run.name));
        }
    }
    for failure in &curve.failures {
        lines.push(format!("failed     {}: {}", failure.point, failure.reason));
    }
    if let Some(past) = &curve.past_saturation {
        lines.push(format!("saturation {}", past.text));
    }
    lines.push(format!("end        {}", curve.stopped));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(depths("1..8").unwrap().0, [1, 2, 4, 8]);
        assert_eq!(depths("1..100").unwrap().0, [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(depths("3").unwrap().0, [3]);
        assert_eq!(depths("1,5, 9").unwrap().0, [1, 5, 9]);
        assert_eq!(
            percents("10..45").unwrap().0,
            [10.0, 20.0, 30.0, 40.0, 45.0]
        );
        for (wrong, part) in [
            ("", "1 to 65536"),
            ("0..8", "1 to 65536"),
            ("8..1", "more than"),
            ("1,1", "ascend"),
            ("1..x", "'x'"),
            ("70000", "1 to 65536"),
        ] {
            assert!(depths(wrong).unwrap_err().contains(part), "{wrong}");
        }
    }
}
