//! `weir reproduce nfs`: reads over one connection and over several, with as many in flight and with the article's, by two versions.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use weir_lab::document::{Body, Document, Run};
use weir_lab::statistics::orders;
use weir_load::workload::{Access, Workload};
use weir_nfs_host::{Options, SCHEME, Version};
use weir_plan::published;
use weir_plan::reproduce::{self, Case, CaseRun};
use weir_reactor::random::Random;
use weir_volume::VolumeUrl;

use super::super::compare::link;
use super::super::own::Own;
use super::super::path;
use super::super::plan::SheetArguments;
use super::super::session::Session;
use super::super::watched::WatchArguments;
use super::super::{ReactorArguments, duration};

/// Parameters of the URL that the runs differ in.
const VARIED: [&str; 2] = ["connections", "depth"];

#[derive(Debug, clap::Args)]
pub(super) struct NfsArguments {
    /// The file that is read, as nfs://HOST/EXPORT/FILE; weir verify makes and fills one (docs/plans.md)
    #[arg(long, value_name = "URL", required_unless_present = "no_run")]
    target: Option<VolumeUrl>,
    /// Rounds; each has every run once, in an order that is drawn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// For how long to measure in each run; the article measures for 60s
    #[arg(
        long,
        short = 't',
        value_name = "TIME",
        default_value = "5s",
        value_parser = duration
    )]
    duration: Duration,
    /// Gb/s that the link to the server carries [default: as the interface says]
    #[arg(long, value_name = "GBIT", value_parser = link)]
    link: Option<f64>,
    #[command(flatten)]
    watch: WatchArguments,
    /// Start of the randomness by which the order of the runs is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run nothing: only what was published, and its contradictions
    #[arg(
        long,
        conflicts_with_all = ["target", "rounds", "duration", "link", "gateway_pid", "seed"]
    )]
    no_run: bool,
    #[command(flatten)]
    sheet: SheetArguments,
}

pub(super) fn run(arguments: &NfsArguments, json: bool) -> anyhow::Result<ExitCode> {
    arguments.sheet.check(&[])?;
    let Some(target) = &arguments.target else {
        return arguments.sheet.finish(reproduce::nfs(&[], None), json);
    };
    let versions = versions(target)?;
    arguments.watch.watched()?;
    let slots = slots(target, &versions)?;
    let own = Own::start()?;
    let cases: Vec<Case> = versions
        .iter()
        .flat_map(|version| reproduce::cases(version.name()))
        .collect();
    let mut random = Random::new(arguments.seed);
    let orders = orders(cases.len() as u32, arguments.rounds as usize, &mut random);
    let (mut runs, mut commands) = (Vec::new(), Vec::new());
    for order in orders {
        for index in order {
            let case = cases[index as usize];
            let command = arguments.command(target, case);
            let run = bench(&own, &command)?;
            runs.push(arguments.measured(target, case, &run)?);
            let shown = weir_lab::secret::without(&command).join(" ");
            if !commands.contains(&shown) {
                commands.push(shown);
            }
        }
    }
    let mut sheet = reproduce::nfs(&runs, slots);
    commands.sort();
    let commands = commands
        .iter()
        .map(|command| format!("Run: weir {command}"));
    sheet.caveats.extend(commands);
    sheet.caveats.push(format!(
        "Each was run {} times, for {} s.",
        arguments.rounds,
        arguments.duration.as_secs_f64()
    ));
    arguments.sheet.finish(sheet, json)
}

/// The versions that a target, which must leave to this what it varies, is read by.
fn versions(target: &VolumeUrl) -> anyhow::Result<Vec<Version>> {
    if target.scheme() != SCHEME {
        bail!("{target} is no file on an NFS server; name one as {SCHEME}://HOST/EXPORT/FILE");
    }
    for name in VARIED {
        if target.parameters().text(name)?.is_some() {
            bail!("{target} says {name}=, which is what the runs differ in; leave it out");
        }
    }
    match target.parameters().text("version")? {
        None => Ok(vec![Version::V3, Version::V41]),
        Some(_) => Ok(vec![Options::from_url(target)?.version]),
    }
}

/// The target by one version.
fn by_version(target: &VolumeUrl, version: Version) -> VolumeUrl {
    target.clone().without("version").with("version", version)
}

/// Slots that the server grants a session, where one of the versions has sessions. The server must speak all of them.
fn slots(target: &VolumeUrl, versions: &[Version]) -> anyhow::Result<Option<u32>> {
    let mut granted = None;
    for &version in versions {
        let options = Options::from_url(&by_version(target, version))?;
        let session = Session::start(&ReactorArguments::default(), 1)?;
        let host = session.nfs();
        let asked = session.run(async move |reactor| host.slots(&reactor, options).await)?;
        let asked = match versions.len() {
            1 => asked?,
            _ => asked.with_context(|| {
                format!("version {version}; with version= in the URL only that one is run")
            })?,
        };
        granted = granted.or(asked);
    }
    Ok(granted)
}

impl NfsArguments {
    fn command(&self, target: &VolumeUrl, case: Case) -> Vec<String> {
        let article = published::connections();
        let url = target.clone().without("version");
        let url = url.with("version", case.version);
        let url = url.with("connections", case.connections);
        let url = url.with("depth", case.in_flight);
        let milliseconds = self.duration.as_millis();
        let mut command = vec![
            "bench".to_owned(),
            url.to_string(),
            "--sequential".to_owned(),
        ];
        let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
        option("--block-size", format!("{}k", article.load.block_kibibytes));
        option("--queue-depth", case.in_flight.to_string());
        option("--duration", format!("{milliseconds}ms"));
        option("--ramp", format!("{}ms", milliseconds.div_ceil(10)));
        if let Some(pid) = self.watch.pid() {
            option("--gateway-pid", pid.to_string());
        }
        command
    }

    fn measured(&self, target: &VolumeUrl, case: Case, run: &Run) -> anyhow::Result<CaseRun> {
        let article = published::connections();
        let felt = run.felt()?.context("not one read ended")?;
        let bytes = (article.load.block_kibibytes * 1024.0) as u64;
        let path = path::of(target, &Workload::simple(bytes, 100, Access::Sequential));
        let speed = path.as_ref().and_then(|path| path.speed_bits_per_second);
        let overhead = path.as_ref().and_then(|path| path.overhead.as_ref());
        let wire = overhead.map(|of| of.wire_bytes as f64 / of.data_bytes as f64);
        let of_time = |seconds: Option<f64>| Some(seconds? / run.elapsed_seconds);
        let busy = run.processor.generator_busy_percent.iter().copied();
        Ok(CaseRun {
            case,
            bytes_per_second: run.bytes_per_second(),
            mean: felt.mean_ns / 1e9,
            p99: felt.percentile_ns(99.0)? as f64 / 1e9,
            in_flight: run.littles_law.as_ref().map_or(0.0, |law| law.in_flight),
            client: of_time(run.processor.generator_seconds),
            server: of_time(run.processor.gateway_seconds),
            busy_percent: busy.fold(0.0, f64::max),
            link_bits: self
                .link
                .map(|gigabits| gigabits * 1e9)
                .or(speed.map(|bits| bits as f64)),
            wire_bytes: wire.unwrap_or(1.0),
        })
    }
}

/// The run that `weir bench` stores.
fn bench(own: &Own, command: &[String]) -> anyhow::Result<Run> {
    let printed: serde_json::Value = serde_json::from_str(&own.run(command)?)?;
    let document = Document::from_json(&printed["result"].to_string())?;
    let Body::Bench { mut runs } = document.body else {
        bail!("weir bench printed no run");
    };
    let run = runs.pop().context("weir bench printed no run")?;
    match &run.first_error {
        Some(error) => bail!("a read failed: {error}"),
        None => Ok(run),
    }
}
