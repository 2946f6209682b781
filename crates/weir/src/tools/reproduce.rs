//! `weir reproduce`: a published test, run here or predicted, beside its published figures.
//!
//! What is run, is run by the commands that anyone would run for it, as processes of their own; the report names them.

mod gateways;
mod nfs;
mod recorder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use weir_drive::{Document, PassKind};
use weir_lab::document::Body;
use weir_lab::secret::without_in_text;
use weir_plan::cluster::{self, Configuration, MeasuredCurve};
use weir_plan::drive::{self, Drive, WhenFull};
use weir_plan::points::{self, Points};
use weir_plan::published;
use weir_plan::reproduce::{self, Beside, RecorderRun};
use weir_plan::sheet::Source;
use weir_plan::units;
use weir_volume::VolumeUrl;

use self::gateways::{Axis, Gateway};
use super::destroy::DestroyArguments;
use super::drive::ended;
use super::own::Own;
use super::plan::SheetArguments;

/// The published drives, with the profile that models each.
const PROFILES: [(&str, &str); 5] = [
    ("970-evo-plus", "970-evo-plus-1tb"),
    ("970-pro", "970-pro-512gb"),
    ("1725b", "1725b-1.6tb"),
    ("optane", "optane-480gb"),
    ("p5510", "p5510-3.84tb"),
];
/// The length of a modelled drive's writes: sequential ones are as fast whatever it is, and longer ones are fewer.
const BLOCK: &str = "2M";
/// The buffer of a recorder, where nobody says: that of `weir plan record`.
const BUFFER_BYTES: f64 = 8.0 * 1024.0 * 1024.0 * 1024.0;
/// The article's objective: the mean latency at which curves are compared.
const LATENCY_SECONDS: f64 = 2e-3;
/// Draws that its intervals are from.
const SAMPLES: u32 = 200;

/// Run a published test here, or predict it, and see it beside its published figures
#[derive(Debug, clap::Args)]
pub(crate) struct ReproduceArguments {
    #[command(subcommand)]
    article: Article,
}

#[derive(Debug, clap::Subcommand)]
enum Article {
    /// What drives sustain when they are written, and how many a recorder of 100 Gb/s takes
    Recorder(RecorderArguments),
    /// Ceph's NVMe/TCP gateway: curves of 4, 8 and 12 nodes
    Ceph(CephArguments),
    /// iSCSI and NVMe over RoCE v2 under vSphere: 4K and 64K reads, SQL and Oracle, at parts of each side's maximum
    Vsphere(VsphereArguments),
    /// NFS over one TCP connection and over 16 (nconnect): at equal reads in flight, and as published
    Nfs(nfs::NfsArguments),
}

#[derive(Debug, clap::Args)]
struct RecorderArguments {
    /// Qualify this drive, instead of models of the article's; what it holds is lost. May be given several times
    #[arg(long, value_name = "URL")]
    target: Vec<VolumeUrl>,
    /// Overwrite this target though it holds something; may be given several times
    #[arg(long, value_name = "URL", requires = "target")]
    destroy_data: Vec<VolumeUrl>,
    /// Write only the first so many bytes of each target, such as 10g
    #[arg(long, value_name = "SIZE", requires = "target", value_parser = super::size)]
    size: Option<u64>,
    /// Store the run of the targets in this file, as weir drive --output does; beside it the run is kept while it goes on (FILE.kept), to be taken up again
    #[arg(long, value_name = "FILE", requires = "target")]
    run: Option<PathBuf>,
    /// Take up the run that was interrupted, with the same targets and options; one that has ended is reported again from its file
    #[arg(long, requires = "run")]
    resume: bool,
    /// Memory between the line and the drives [default: 8GiB]
    #[arg(long, value_name = "SIZE", conflicts_with = "no_run", value_parser = units::bytes)]
    buffer: Option<f64>,
    /// Run nothing: only what was published, and its checks
    #[arg(long, conflicts_with = "target")]
    no_run: bool,
    /// What the models' randomness starts from
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["target", "no_run"])]
    seed: u64,
    #[command(flatten)]
    sheet: SheetArguments,
}

#[derive(Debug, clap::Args)]
struct CephArguments {
    /// Measure the article's curve on this volume, instead of predicting it by the model; may be given several times
    #[arg(long, value_name = "URL")]
    target: Vec<VolumeUrl>,
    #[command(flatten)]
    destroy: DestroyArguments,
    /// Serve the targets by a gateway with this configuration file, and measure through it; of several, each in turn, and
    /// what each gains on the first stands beside what the article's tuning gained. Each has a state of its own, which is gone afterwards
    #[arg(long, value_name = "CONF", requires = "target")]
    gateway: Vec<PathBuf>,
    /// Serve the targets by gateways with each of these values, reactors=1,2 or bdevs_per_cluster=32,1. Given twice, every value goes with every other, and with every --gateway
    #[arg(long, value_name = "WHAT=VALUE,...", requires = "target")]
    sweep: Vec<Axis>,
    /// Clients: hosts of nvme+tcp: targets, queues of others
    #[arg(long, value_name = "N", requires = "target", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Depths of each client, as weir curve has them
    #[arg(
        long,
        value_name = "LIST",
        requires = "target",
        default_value = "1..256"
    )]
    depths: String,
    /// For how long to measure each depth
    #[arg(
        long,
        short = 't',
        value_name = "TIME",
        requires = "target",
        default_value = "2s"
    )]
    duration: String,
    #[command(flatten)]
    sheet: SheetArguments,
}

#[derive(Debug, clap::Args)]
struct VsphereArguments {
    /// The volumes of the first side, in the place of the article's iSCSI; may be given several times, such as for eight disks
    #[arg(
        long,
        value_name = "URL",
        required_unless_present = "no_run",
        requires = "against"
    )]
    target: Vec<VolumeUrl>,
    /// The volumes of the other side, in the place of its NVMe over RoCE v2: as many
    #[arg(long, value_name = "URL", requires = "target")]
    against: Vec<VolumeUrl>,
    #[command(flatten)]
    destroy: DestroyArguments,
    /// Run only this workload of the article's; may be given several times [default: all four]
    #[arg(long, short = 'w', value_name = "NAME", requires = "target", value_parser = of_the_article)]
    workload: Vec<String>,
    /// Rounds of each of the three stages of a comparison
    #[arg(long, value_name = "N", requires = "target", default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=1000))]
    rounds: u32,
    /// For how long to measure in each run
    #[arg(
        long,
        short = 't',
        value_name = "TIME",
        requires = "target",
        default_value = "2s",
        value_parser = super::duration
    )]
    duration: Duration,
    /// Run nothing: only what was published, its contradictions, and what follows from it
    #[arg(
        long,
        conflicts_with_all = ["target", "against", "destroy_data", "workload", "rounds", "duration"]
    )]
    no_run: bool,
    #[command(flatten)]
    sheet: SheetArguments,
}

pub(crate) fn run(arguments: &ReproduceArguments, json: bool) -> anyhow::Result<ExitCode> {
    match &arguments.article {
        Article::Recorder(arguments) => recorder(arguments, json),
        Article::Ceph(arguments) => ceph(arguments, json),
        Article::Vsphere(arguments) => vsphere(arguments, json),
        Article::Nfs(arguments) => nfs::run(arguments, json),
    }
}

/// Why a run that has ended is not reported again.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} holds the whole result of another run: {what}; name another file with --run, or leave --resume out, and a new run takes its place",
    file.display()
)]
struct AnotherRun {
    file: PathBuf,
    what: String,
}

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|of| (*of).to_owned()).collect()
}

fn recorder(arguments: &RecorderArguments, json: bool) -> anyhow::Result<ExitCode> {
    let stored: Vec<&Path> = arguments.run.iter().map(PathBuf::as_path).collect();
    arguments.sheet.check(&stored)?;
    let mut measured = BTreeMap::new();
    let mut others: Vec<Drive> = Vec::new();
    let mut commands: Vec<String> = Vec::new();
    let own = Own::start()?;
    let mut ran: Vec<RecorderRun> = Vec::new();
    let mut qualify = |command: Vec<String>| -> anyhow::Result<Vec<Drive>> {
        let shown = weir_lab::secret::without(&command).join(" ");
        let stored = own.run(&command)?;
        let drives =
            drive::read(&stored, WhenFull::Overwrite).with_context(|| format!("weir {shown}"))?;
        commands.push(format!("Run: weir {shown}"));
        Ok(drives)
    };
    const PASSES: [&str; 2] = ["--passes", "fill,overwrite"];
    if let Some((file, document)) = arguments.ended() {
        arguments.check_own(file, &document)?;
        let mut stored = Vec::new();
        document.write(&mut stored)?;
        let stored = String::from_utf8(stored).context("a result is text")?;
        others = drive::read(&stored, WhenFull::Overwrite)
            .with_context(|| file.display().to_string())?;
        let ran = document.command.get(1..).unwrap_or_default().join(" ");
        let file = file.display();
        // It may be another than whoever asks thinks: one that was begun later and kept nothing has left no trace.
        eprintln!(
            "note: the run in {file}, begun {}, had ended: it is reported again, and nothing is written; to run it anew, leave --resume out",
            document.started
        );
        commands.push(format!(
            "Run: weir {ran}, begun {}; it had ended, and was read again from {file}",
            document.started
        ));
    } else if !arguments.target.is_empty() {
        let mut command = words(&["drive"]);
        command.extend(arguments.target.iter().map(ToString::to_string));
        command.extend(words(&PASSES));
        for url in &arguments.destroy_data {
            command.extend(["--destroy-data".to_owned(), url.to_string()]);
        }
        if let Some(size) = arguments.size {
            command.extend(["--size".to_owned(), size.to_string()]);
        }
        if let Some(file) = &arguments.run {
            let file = file.to_str().context("--run is no UTF-8")?;
            command.extend(["--output".to_owned(), file.to_owned()]);
        }
        if arguments.resume {
            command.push("--resume".to_owned());
        }
        others = qualify(command)?;
    } else if !arguments.no_run {
        for (name, profile) in PROFILES {
            let url = format!("ssd:{profile}?seed={}", arguments.seed);
            let mut command = words(&["drive", &url, "--simulated", "--block-size", BLOCK]);
            command.extend(words(&PASSES));
            let mut found = qualify(command)?;
            if let Some(drive) = found.pop() {
                measured.insert(name.to_owned(), drive);
            }
        }
        let (runs, commands_of_runs) = recorder::run(&own, arguments.seed)?;
        ran = runs;
        commands.extend(commands_of_runs);
    }
    let buffer = arguments.buffer.unwrap_or(BUFFER_BYTES);
    let mut sheet = reproduce::recorder(&measured, &others, buffer, &ran)?;
    sheet.caveats.extend(commands);
    arguments.sheet.finish(sheet, json)
}

impl RecorderArguments {
    /// A run that is to be taken up and has ended, with its file.
    fn ended(&self) -> Option<(&Path, Document)> {
        let file = self.run.as_deref().filter(|_| self.resume)?;
        Some((file, ended(file)?))
    }

    /// Refuses what is the result of something else than what was asked for.
    fn check_own(&self, file: &Path, document: &Document) -> Result<(), AnotherRun> {
        let another = |what| {
            Err(AnotherRun {
                file: file.to_owned(),
                what,
            })
        };
        let asked: Vec<String> = (self.target.iter())
            .map(|url| without_in_text(&url.to_string()))
            .collect();
        let urls: Vec<&str> = document.drives.iter().map(|of| of.url.as_str()).collect();
        if urls != asked {
            return another(format!(
                "of {}, and not of {}",
                urls.join(" and "),
                asked.join(" and ")
            ));
        }
        for drive in &document.drives {
            let passes: Vec<PassKind> = drive.passes.iter().map(|of| of.pass).collect();
            if passes != [PassKind::Fill, PassKind::Overwrite] {
                let names: Vec<&str> = passes.iter().map(|of| of.name()).collect();
                return another(format!(
                    "its passes are {}, and not fill, overwrite",
                    names.join(", ")
                ));
            }
            // What is asked for is rounded down to the drive's blocks.
            let bytes = self.size.unwrap_or(drive.capacity_bytes);
            let written = drive.written_bytes;
            if !(written..written.saturating_add(drive.block_bytes)).contains(&bytes) {
                return another(format!(
                    "it wrote {written} bytes of {}, and not {bytes}",
                    drive.url
                ));
            }
        }
        Ok(())
    }
}

fn ceph(arguments: &CephArguments, json: bool) -> anyhow::Result<ExitCode> {
    arguments.sheet.check(&[])?;
    if arguments.target.is_empty() {
        let points = Points::published();
        let plan = cluster::plan(&cluster::Request {
            curves: points.curves(Source::Published),
            premises: points.premises(Source::Published),
            latency: LATENCY_SECONDS,
            targets: Vec::new(),
            wanted: None,
            link: None,
            held_out: vec!["12".to_owned()],
            leave_out: true,
            samples: SAMPLES,
            seed: 1,
        })?;
        let sheet = reproduce::ceph(&Beside::Predicted(Box::new(plan)), LATENCY_SECONDS);
        return arguments.sheet.finish(sheet, json);
    }
    arguments.destroy.check(&arguments.target)?;
    let own = Own::start()?;
    let mut runs = Vec::new();
    let mut curves = Vec::new();
    if arguments.gateway.is_empty() && arguments.sweep.is_empty() {
        let targets: Vec<String> = arguments.target.iter().map(ToString::to_string).collect();
        let named = arguments
            .target
            .iter()
            .map(|url| arguments.destroy.names(url));
        let mut command = arguments.curve(&targets);
        for (url, _) in targets.iter().zip(named).filter(|(_, is_named)| *is_named) {
            command.extend(["--destroy-data".to_owned(), url.clone()]);
        }
        curves.push(measured(&own, &command, "measured here")?);
        runs.push(command);
    } else {
        if let Some(url) = (arguments.target.iter()).find(|url| !arguments.destroy.names(url)) {
            let url = weir_lab::secret::without_in_text(&url.to_string());
            anyhow::bail!(
                "the clients of a gateway overwrite parts of {url}: say --destroy-data {url}"
            );
        }
        for setting in gateways::settings(&arguments.gateway, &arguments.sweep)? {
            let name = setting.name();
            let gateway = Gateway::start(&own, &setting, &arguments.target)
                .with_context(|| format!("the gateway with {name}"))?;
            let served = gateway.served();
            let mut command = arguments.curve(&served);
            for url in served {
                command.extend(["--destroy-data".to_owned(), url]);
            }
            command.extend(["--gateway-pid".to_owned(), gateway.pid().to_string()]);
            curves.push(measured(&own, &command, &name)?);
            runs.push(command);
        }
    }
    let mut sheet = reproduce::ceph(&Beside::Measured(curves), LATENCY_SECONDS);
    for command in &runs {
        let run = weir_lab::secret::without(command).join(" ");
        sheet.caveats.push(format!("Run: weir {run}"));
    }
    arguments.sheet.finish(sheet, json)
}

/// Runs a curve.
fn measured(own: &Own, command: &[String], name: &str) -> anyhow::Result<MeasuredCurve> {
    // What a target is made of is not asked: its curve stands beside the published ones, and is fitted to nothing.
    let unknown = Configuration {
        gateways: 1,
        reactors: 1,
        bdevs_per_cluster: 1,
        nodes: 1,
        osds: 1,
        link: None,
    };
    Ok(points::of_document(&own.run(command)?, name, unknown)?)
}

impl CephArguments {
    /// The command that measures the article's curve on these.
    fn curve(&self, targets: &[String]) -> Vec<String> {
        let mut command = words(&["curve"]);
        command.extend(targets.iter().cloned());
        command.extend(words(&["--block-size", "16k", "--random"]));
        command.extend(words(&["--read-percent", "70"]));
        let remote = targets.iter().all(|url| url.starts_with("nvme+tcp:"));
        let clients = if remote { "--hosts" } else { "--queues" };
        command.extend(words(&[clients, &self.clients.to_string()]));
        command.extend(words(&["--depths", &self.depths]));
        command.extend(words(&["--duration", &self.duration]));
        command.push("--no-refinement".to_owned());
        command
    }
}

/// The workloads of the article on protocols, each once.
fn workloads_of_the_article() -> Vec<String> {
    let mut workloads: Vec<String> = Vec::new();
    for of in published::protocols().differences {
        if !workloads.contains(&of.workload) {
            workloads.push(of.workload);
        }
    }
    workloads
}

fn of_the_article(name: &str) -> Result<String, String> {
    let all = workloads_of_the_article();
    match all.iter().find(|of| *of == name) {
        Some(found) => Ok(found.clone()),
        None => Err(format!("the article has {}", all.join(", "))),
    }
}

fn vsphere(arguments: &VsphereArguments, json: bool) -> anyhow::Result<ExitCode> {
    arguments.sheet.check(&[])?;
    let both = || arguments.target.iter().chain(&arguments.against);
    arguments.destroy.check(both())?;
    let mut measured = reproduce::Measured::new();
    let mut runs = Vec::new();
    if !arguments.no_run {
        let own = Own::start()?;
        let wanted = &arguments.workload;
        let all = workloads_of_the_article().into_iter();
        for workload in all.filter(|of| wanted.is_empty() || wanted.contains(of)) {
            let mut command = words(&["compare"]);
            command.extend(arguments.target.iter().map(ToString::to_string));
            command.push("--against".to_owned());
            command.extend(arguments.against.iter().map(ToString::to_string));
            command.extend(words(&["--workload", &workload]));
            command.extend(words(&["--rounds", &arguments.rounds.to_string()]));
            let milliseconds = arguments.duration.as_millis();
            let (duration, ramp) = (format!("{milliseconds}ms"), milliseconds.div_ceil(10));
            command.extend(words(&["--duration", &duration]));
            command.extend(words(&["--ramp", &format!("{ramp}ms")]));
            for url in both().filter(|url| arguments.destroy.names(url)) {
                command.extend(["--destroy-data".to_owned(), url.to_string()]);
            }
            let document = weir_lab::document::Document::from_json(&own.run(&command)?)?;
            let Body::Comparison(comparison) = document.body else {
                anyhow::bail!("weir compare printed no comparison");
            };
            measured.insert(workload, comparison);
            runs.push(weir_lab::secret::without(&command).join(" "));
        }
    }
    let mut sheet = reproduce::vsphere(&measured);
    (sheet.caveats).extend(runs.iter().map(|run| format!("Run: weir {run}")));
    arguments.sheet.finish(sheet, json)
}
