//! `weir plan`: what to buy, from what was measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use weir_plan::cluster::{self, Configuration, MeasuredCurve, PremiseSources, Premises};
use weir_plan::drive::{self, Drive, WhenFull};
use weir_plan::points::{self, Points, PointsError};
use weir_plan::record::{self, Design, Link, Requirements, Told};
use weir_plan::sheet::{Sheet, Source};
use weir_plan::{diff, page, published, text, units};

use super::report::{check_place, put};

/// Drive writes per day, where nobody says.
pub(super) const DWPD: f64 = 1.0;
/// Years of warranty, where nobody says.
pub(super) const WARRANTY_YEARS: f64 = 5.0;
/// What drives get to erase what is deallocated ahead of the head, where nobody says. No drive says how long it takes.
const TRIM_AHEAD: Duration = Duration::from_secs(60);
/// The buffer, where nobody says.
const BUFFER_BYTES: f64 = 8.0 * 1024.0 * 1024.0 * 1024.0;

/// Size from what was measured
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PlanCommand {
    /// Drives in RAID0 for a recorder of a line: by the worst sustained window that its buffer cannot hide
    Record(RecordArguments),
    /// What a cluster of gateways does in other configurations, by a queueing network fitted to measured curves
    Cluster(ClusterArguments),
    /// What differs between two plans
    Diff(DiffArguments),
}

/// Where a plan goes beside standard output.
#[derive(Debug, clap::Args)]
pub(super) struct SheetArguments {
    /// Store the plan as JSON in this file; weir plan diff reads it
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the plan as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl SheetArguments {
    /// Fails where a file cannot be written, before anything is computed for it.
    pub(super) fn check(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        let mut others = inputs.to_vec();
        for file in self.output.iter().chain(&self.html) {
            check_place(file, &others)?;
            others.push(file);
        }
        Ok(())
    }

    /// Prints and stores a plan.
    pub(super) fn finish(&self, sheet: Sheet, json: bool) -> anyhow::Result<ExitCode> {
        self.finish_without(sheet, &[], json)
    }

    /// Stores a plan whole, and prints it without sections of these names.
    fn finish_without(
        &self,
        mut sheet: Sheet,
        inner: &[&str],
        json: bool,
    ) -> anyhow::Result<ExitCode> {
        sheet.command = weir_lab::secret::without(&std::env::args().collect::<Vec<_>>());
        sheet.version = env!("CARGO_PKG_VERSION").to_owned();
        let stored = serde_json::to_string_pretty(&sheet)? + "\n";
        if let Some(file) = &self.output {
            put(file, stored.as_bytes())?;
        }
        if let Some(file) = &self.html {
            put(file, page::page(&sheet).as_bytes())?;
        }
        let text = if json {
            stored
        } else {
            text::text_without(&sheet, inner)
        };
        super::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
struct RecordArguments {
    /// The line, such as 100Gb/s (bits) or 12.5GB/s (bytes)
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: f64,
    /// A drive: a result of weir drive, as FILE or FILE,count=N; or published:NAME of docs/plans.md, or published:all. May be given several
    /// times: each is planned by itself, or, where each has a count, all are one array of RAID0. FILE,drive=NAME is one of several drives of a result
    #[arg(long, value_name = "DRIVE", required_unless_present = "sustained")]
    drive: Vec<DriveArgument>,
    /// Instead of a result: bytes per second that a drive keeps at its worst, for ever, such as 1.6GB/s
    #[arg(long, value_name = "RATE", value_parser = units::rate, conflicts_with = "drive")]
    sustained: Option<f64>,
    /// What a drive holds, such as 3.84TB, instead of what a result says; not of an array of different drives
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    capacity: Option<f64>,
    /// How many drives there are, with --sustained
    #[arg(long, value_name = "N", requires = "sustained", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: Option<u64>,
    /// What the data sheet promises, to be shown beside; not of an array of different drives
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    data_sheet: Option<f64>,
    /// How much more than the line the drives must keep up with, such as 20% [default: 0%]
    #[arg(long, value_name = "PART", value_parser = units::fraction)]
    margin: Option<f64>,
    /// Memory between the line and the drives [default: 8GiB]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    buffer: Option<f64>,
    /// For how long to keep what was recorded, such as 7d
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    retain: Option<Duration>,
    /// Bytes that hosts may write to a drive in its life, such as 600TB [default: what a result or the publication says, else by --dwpd]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, conflicts_with = "dwpd")]
    rated_writes: Option<f64>,
    /// Drive writes per day that the warranty allows [default: 1, where nobody says what a drive is rated for]
    #[arg(long, value_name = "N", value_parser = units::fraction)]
    dwpd: Option<f64>,
    /// How long the warranty is, such as 5y [default: 5y]
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    warranty: Option<Duration>,
    /// Packets are stored as pcapng: bytes of a packet as it is captured [default: what arrives is stored as it is]
    #[arg(long, value_name = "N")]
    packet_bytes: Option<u64>,
    /// What --rate counts: payload, the bytes of packets; or ethernet, the wire, on which each packet takes 24 bytes more
    #[arg(long, value_name = "WHAT", value_parser = link, default_value = "payload", requires_if("ethernet", "packet_bytes"))]
    link: Link,
    /// How much of the line is used in the mean, such as 30%: for what is kept and for endurance [default: 100%]
    #[arg(long, value_name = "PART", value_parser = units::fraction)]
    utilisation: Option<f64>,
    /// What the recorder does when its drives are full: trim-ahead, overwrite or stop
    #[arg(long, value_name = "WHAT", value_parser = when_full, default_value = "trim-ahead")]
    when_full: WhenFull,
    /// With trim-ahead: how long before it is written the drives are told [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    trim_ahead: Option<Duration>,
    #[command(flatten)]
    sheet: SheetArguments,
}

#[derive(Debug, clap::Args)]
struct ClusterArguments {
    /// Curves: a file of points (docs/plans.md); a result of weir curve with what it was measured on, as
    /// FILE,nodes=4,osds=96,gateways=4,reactors=10,bdevs=2 (and name=, and link=100Gb/s); or published:ceph. May be given several times
    #[arg(long, required = true, value_name = "CURVE")]
    curve: Vec<CurveArgument>,
    /// A configuration to predict, such as nodes=16,osds=384,gateways=4,reactors=12,bdevs=1,link=25Gb/s; what is left out is as in the curve
    /// with the most nodes, links as in --link. May be given several times
    #[arg(long, value_name = "WHAT=N,...")]
    predict: Vec<Changes>,
    /// The mean latency that a request may take
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "2ms")]
    latency: Duration,
    /// Find what was measured, and designs by the model, that do so many requests a second at that latency, such as 800k
    #[arg(long, value_name = "N", value_parser = requests)]
    target: Option<f64>,
    /// Leave this curve out of the fit and hold the prediction against it; may be given several times
    #[arg(long, value_name = "NAME")]
    hold_out: Vec<String>,
    /// Leave out each curve in turn, and tell how far off it comes out
    #[arg(long)]
    leave_out: bool,
    /// Gateways run on nodes of their own, and not on OSD nodes
    #[arg(long)]
    separate_gateways: bool,
    /// Copies of what is written [default: what the curves say, else 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    replicas: Option<u32>,
    /// How many of 100 requests read [default: what the curves say, else 70]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    read_percent: Option<u32>,
    /// Volumes of all gateways [default: what the curves say, else 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    volumes: Option<u32>,
    /// What the link of each machine with gateways or OSDs carries each way in what is predicted and in designs, such as 25Gb/s [default: what
    /// --measured-link says, else no link binds]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    link: Option<f64>,
    /// What the links of the machines carry that curves were measured on, where a curve has no link= of its own
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    measured_link: Option<f64>,
    /// Bytes of a request in the mean, such as 16KiB: what links carry [default: what the curves say]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    request_bytes: Option<f64>,
    /// Draws that intervals are from: 40 or more, or 0 for no intervals
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    samples: u32,
    /// What its randomness starts from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the model as well: what was fitted, which forms are likely, and what binds (--json, --output and --html have it always)
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    sheet: SheetArguments,
}

/// Parts of a configuration that were said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Changes {
    name: Option<String>,
    gateways: Option<u32>,
    reactors: Option<u32>,
    bdevs_per_cluster: Option<u32>,
    nodes: Option<u32>,
    osds: Option<u32>,
    link: Option<u64>,
}

/// Whole bytes a second of a link; what is less than one is one.
fn whole_bytes(rate: f64) -> u64 {
    rate.round().max(1.0) as u64
}

impl Changes {
    fn take(&mut self, text: &str) -> Result<(), String> {
        const COUNT_MAX: u32 = 1_000_000;
        let (key, value) =
            (text.split_once('=')).ok_or_else(|| format!("'{text}' is not WHAT=N"))?;
        if key == "name" {
            self.name = Some(value.to_owned());
            return Ok(());
        }
        if key == "link" {
            let rate = units::rate(value).map_err(|error| error.to_string())?;
            return match self.link.replace(whole_bytes(rate)) {
                None => Ok(()),
                Some(_) => Err("link is said twice".to_owned()),
            };
        }
        let place = match key {
            "gateways" => &mut self.gateways,
            "reactors" => &mut self.reactors,
            "bdevs" | "bdevs_per_cluster" => &mut self.bdevs_per_cluster,
            "nodes" => &mut self.nodes,
            "osds" => &mut self.osds,
            _ => {
                return Err(format!(
                    "'{key}' is none of gateways, reactors, bdevs, nodes, osds and link"
                ));
            }
        };
        if place.is_some() {
            return Err(format!("{key} is said twice"));
        }
        match value.parse::<u32>() {
            Ok(value @ 1..=COUNT_MAX) => *place = Some(value),
            _ => {
                return Err(format!(
                    "{key} is a number from 1 to {COUNT_MAX}, not '{value}'"
                ));
            }
        }
        Ok(())
    }

    /// With what is not said as in `base`; as many OSDs in a node where only the nodes are said.
    fn of(&self, base: Configuration) -> Configuration {
        let nodes = self.nodes.unwrap_or(base.nodes);
        let as_dense = || {
            if nodes == base.nodes {
                return base.osds;
            }
            // No more than 32 bits hold: what is beyond that is refused for being far beyond what was measured.
            let osds = u64::from(base.osds) * u64::from(nodes) / u64::from(base.nodes.max(1));
            u32::try_from(osds).unwrap_or(u32::MAX).max(1)
        };
        Configuration {
            gateways: self.gateways.unwrap_or(base.gateways),
            reactors: self.reactors.unwrap_or(base.reactors),
            bdevs_per_cluster: self.bdevs_per_cluster.unwrap_or(base.bdevs_per_cluster),
            nodes,
            osds: self.osds.unwrap_or_else(as_dense),
            link: self.link.or(base.link),
        }
    }

    /// Where all is said.
    fn whole(&self) -> Option<Configuration> {
        Some(Configuration {
            gateways: self.gateways?,
            reactors: self.reactors?,
            bdevs_per_cluster: self.bdevs_per_cluster?,
            nodes: self.nodes?,
            osds: self.osds?,
            link: self.link,
        })
    }
}

impl std::str::FromStr for Changes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut changes = Changes::default();
        text.split(',').try_for_each(|part| changes.take(part))?;
        Ok(changes)
    }
}

/// Curves as they are named at the command line.
#[derive(Debug, Clone)]
enum CurveArgument {
    Published,
    Points(PathBuf),
    Result(PathBuf, Configuration, Option<String>),
}

impl std::str::FromStr for CurveArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix("published:") {
            return match name {
                "ceph" => Ok(CurveArgument::Published),
                _ => Err(format!(
                    "no curves '{name}' were published; there are: ceph"
                )),
            };
        }
        let (file, said) = text.split_once(',').unwrap_or((text, ""));
        if file.is_empty() {
            return Err("it names no file".to_owned());
        }
        if said.is_empty() {
            return Ok(CurveArgument::Points(PathBuf::from(file)));
        }
        let changes: Changes = said.parse()?;
        match changes.whole() {
            Some(of) => Ok(CurveArgument::Result(PathBuf::from(file), of, changes.name)),
            None => Err(
                "a result needs all of what it was measured on: nodes=, osds=, gateways=, reactors= and bdevs="
                    .to_owned(),
            ),
        }
    }
}

/// Reads requests a second: `800000`, `800k`, `1.2M`.
fn requests(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K', 'M']) {
        None => (text, 1.0),
        Some(number) if text.ends_with('M') => (number, 1e6),
        Some(number) => (number, 1e3),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number * factor),
        _ => Err(format!(
            "'{text}' is no number of requests; write 800000, 800k or 1.2M"
        )),
    }
}

#[derive(Debug, clap::Args)]
struct DiffArguments {
    /// A stored plan
    #[arg(value_name = "PLAN")]
    one: PathBuf,
    /// Another one
    #[arg(value_name = "PLAN")]
    other: PathBuf,
    #[command(flatten)]
    sheet: SheetArguments,
}

/// A drive as it is named at the command line.
#[derive(Debug, Clone)]
struct DriveArgument {
    place: DrivePlace,
    /// Which of the drives of a result.
    drive: Option<String>,
    count: Option<u64>,
}

#[derive(Debug, Clone)]
enum DrivePlace {
    File(PathBuf),
    Published(String),
}

impl std::str::FromStr for DriveArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (place, count) = match text.rsplit_once(",count=") {
            None => (text, None),
            Some((place, count)) => match count.parse::<u64>() {
                Ok(count @ 1..=100_000) => (place, Some(count)),
                _ => {
                    return Err(format!(
                        "'{count}' is no count from 1 to 100000; it comes last"
                    ));
                }
            },
        };
        let (place, drive) = match place.rsplit_once(",drive=") {
            Some((place, drive)) => (place, Some(drive.to_owned())),
            None => (place, None),
        };
        let place = match place.strip_prefix("published:") {
            Some(_) if drive.is_some() => {
                return Err("drive= is of a result: published:NAME is one drive".to_owned());
            }
            Some(name) => DrivePlace::Published(name.to_owned()),
            None if place.is_empty() => return Err("it names no file".to_owned()),
            None => DrivePlace::File(PathBuf::from(place)),
        };
        Ok(DriveArgument {
            place,
            drive,
            count,
        })
    }
}

impl DriveArgument {
    /// Of the drives of a result those that are meant.
    fn named_of(&self, drives: Vec<Drive>) -> anyhow::Result<Vec<Drive>> {
        let Some(name) = &self.drive else {
            return Ok(drives);
        };
        let names: Vec<String> = drives.iter().map(|of| of.name.clone()).collect();
        let meant: Vec<Drive> = drives.into_iter().filter(|of| &of.name == name).collect();
        if meant.is_empty() {
            bail!("it has no drive '{name}'; there are: {}", names.join(", "));
        }
        Ok(meant)
    }

    /// Refuses one count of several drives: it would be of each.
    fn check_count(&self, drives: &[Drive]) -> anyhow::Result<()> {
        let (Some(count), [first, _, ..]) = (self.count, drives) else {
            return Ok(());
        };
        let (place, one) = match &self.place {
            DrivePlace::Published(name) => (
                format!("published:{name}"),
                format!("published:{}", first.name),
            ),
            DrivePlace::File(file) => {
                let file = file.display();
                (file.to_string(), format!("{file},drive={}", first.name))
            }
        };
        let names: Vec<&str> = drives.iter().map(|of| of.name.as_str()).collect();
        bail!(
            "{place} has {} drives ({}), and count={count} would be of each: name each with a count of its own, as in --drive '{one},count={count}'",
            drives.len(),
            names.join(", ")
        )
    }
}

fn link(text: &str) -> Result<Link, &'static str> {
    match text {
        "payload" => Ok(Link::Payload),
        "ethernet" => Ok(Link::Ethernet),
        _ => Err("write payload or ethernet"),
    }
}

fn when_full(text: &str) -> Result<WhenFull, &'static str> {
    match text {
        "trim-ahead" => Ok(WhenFull::TrimAhead),
        "overwrite" => Ok(WhenFull::Overwrite),
        "stop" => Ok(WhenFull::Stop),
        _ => Err("write trim-ahead, overwrite or stop"),
    }
}

pub(crate) fn run(arguments: &PlanArguments, json: bool) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        PlanCommand::Record(arguments) => record(arguments, json),
        PlanCommand::Cluster(arguments) => of_cluster(arguments, json),
        PlanCommand::Diff(arguments) => compared(arguments, json),
    }
}

fn record(arguments: &RecordArguments, json: bool) -> anyhow::Result<ExitCode> {
    let files: Vec<&Path> = arguments.drive.iter().filter_map(file).collect();
    arguments.sheet.check(&files)?;
    if arguments.trim_ahead.is_some() && arguments.when_full != WhenFull::TrimAhead {
        bail!("--trim-ahead goes with --when-full trim-ahead alone");
    }
    let trim_ahead = match arguments.when_full {
        WhenFull::TrimAhead => TRIM_AHEAD,
        WhenFull::Overwrite | WhenFull::Stop => Duration::ZERO,
    };
    let seconds = |of: Option<Duration>| of.map(|of| of.as_secs_f64());
    let requirements = Requirements {
        line: arguments.rate,
        link: arguments.link,
        packet_bytes: arguments.packet_bytes,
        utilisation: Told::or(arguments.utilisation, 1.0),
        margin: Told::or(arguments.margin, 0.0),
        buffer: Told::or(arguments.buffer, BUFFER_BYTES),
        retain: seconds(arguments.retain),
        rated_writes: arguments.rated_writes,
        dwpd: Told::or(arguments.dwpd, DWPD),
        warranty: Told::or(
            seconds(arguments.warranty),
            WARRANTY_YEARS * units::SECONDS_OF_YEAR,
        ),
        trim_ahead: Told::or(seconds(arguments.trim_ahead), trim_ahead.as_secs_f64()),
    };
    let sheet = record::plan(&requirements, &designs(arguments)?)?;
    arguments.sheet.finish(sheet, json)
}

fn file(argument: &DriveArgument) -> Option<&Path> {
    match &argument.place {
        DrivePlace::File(file) => Some(file),
        DrivePlace::Published(_) => None,
    }
}

fn designs(arguments: &RecordArguments) -> anyhow::Result<Vec<Design>> {
    if let Some(rate) = arguments.sustained {
        let drive = Drive {
            data_sheet: arguments.data_sheet,
            ..Drive::steady("given", rate, arguments.capacity, Source::Given)
        };
        return Ok(vec![Design {
            drive,
            count: arguments.count,
        }]);
    }
    let mut found: Vec<(Drive, Option<u64>)> = Vec::new();
    for argument in &arguments.drive {
        let drives = match &argument.place {
            DrivePlace::Published(name) => published::drives_named(name)?,
            DrivePlace::File(file) => {
                let named = || file.display().to_string();
                let text = fs::read_to_string(file).with_context(named)?;
                let drives = drive::read(&text, arguments.when_full).with_context(named)?;
                argument.named_of(drives).with_context(named)?
            }
        };
        argument.check_count(&drives)?;
        found.extend(drives.into_iter().map(|drive| (drive, argument.count)));
    }
    let is_array = found.len() > 1 && found.iter().any(|(_, count)| count.is_some());
    for (option, is_said) in [
        ("--capacity", arguments.capacity.is_some()),
        ("--data-sheet", arguments.data_sheet.is_some()),
    ] {
        if is_said && is_array {
            bail!(
                "{option} would be said of every drive of the array, and they are different ones: leave it out, or plan each by itself, without count="
            );
        }
    }
    for (drive, _) in &mut found {
        if let Some(capacity) = arguments.capacity {
            (drive.capacity, drive.capacity_source) = (Some(capacity), Source::Given);
        }
        if let Some(rate) = arguments.data_sheet {
            (drive.data_sheet, drive.data_sheet_source) = (Some(rate), Source::Given);
        }
    }
    let counted: Vec<(Drive, u64)> = found
        .iter()
        .filter_map(|(drive, count)| Some((drive.clone(), (*count)?)))
        .collect();
    match counted.len() {
        0 => Ok(found
            .into_iter()
            .map(|(drive, _)| Design { drive, count: None })
            .collect()),
        some if some == found.len() => {
            let (drive, count) = Drive::striped(&counted);
            Ok(vec![Design {
                drive,
                count: Some(count),
            }])
        }
        _ => bail!("some drives have a count and some have none: an array needs one of each"),
    }
}

fn of_cluster(arguments: &ClusterArguments, json: bool) -> anyhow::Result<ExitCode> {
    let files: Vec<&Path> = arguments
        .curve
        .iter()
        .filter_map(|of| match of {
            CurveArgument::Published => None,
            CurveArgument::Points(file) | CurveArgument::Result(file, _, _) => Some(file.as_path()),
        })
        .collect();
    arguments.sheet.check(&files)?;
    let options = [
        ("--separate-gateways", arguments.separate_gateways),
        ("--replicas", arguments.replicas.is_some()),
        ("--volumes", arguments.volumes.is_some()),
    ];
    let options = options.iter().filter(|(_, is_given)| *is_given);
    let options: Vec<&str> = options.map(|(option, _)| *option).collect();
    let (mut curves, said) = curves(&arguments.curve, &options)?;
    for curve in &mut curves {
        let link = &mut curve.configuration.link;
        *link = link.or(arguments.measured_link.map(whole_bytes));
    }
    if let Some(percent) = arguments.read_percent {
        check_reads(f64::from(percent), &curves)?;
    }
    if let Some(bytes) = arguments.request_bytes {
        check_length(bytes, &curves)?;
    }
    let told = |said: bool, source: Source| if said { Source::Given } else { source };
    let premises = Premises {
        colocated: said.colocated && !arguments.separate_gateways,
        replicas: arguments.replicas.map_or(said.replicas, f64::from),
        read_part: (arguments.read_percent).map_or(said.read_part, |of| f64::from(of) / 100.0),
        volumes: arguments.volumes.map_or(said.volumes, f64::from),
        storage_seconds_max: said.storage_seconds_max,
        request_bytes: arguments.request_bytes.or(said.request_bytes),
        sources: PremiseSources {
            colocated: told(arguments.separate_gateways, said.sources.colocated),
            replicas: told(arguments.replicas.is_some(), said.sources.replicas),
            read_part: told(arguments.read_percent.is_some(), said.sources.read_part),
            volumes: told(arguments.volumes.is_some(), said.sources.volumes),
            request_bytes: told(
                arguments.request_bytes.is_some(),
                said.sources.request_bytes,
            ),
        },
    };
    let largest = (curves
        .iter()
        .map(|of| of.configuration)
        .max_by_key(|of| of.nodes))
    .context("no curve to plan from")?;
    if arguments.predict.iter().any(|of| of.name.is_some()) {
        bail!("--predict takes no name=: a configuration is called by what it is");
    }
    // What is planned is taken to have the links that were measured, unless told otherwise.
    let told = arguments.link.map(|of| (whole_bytes(of), Source::Given));
    let link = told.or(largest.link.map(|of| (of, Source::Assumed)));
    let base = Configuration {
        link: link.map(|(of, _)| of),
        ..largest
    };
    let request = cluster::Request {
        premises,
        latency: arguments.latency.as_secs_f64(),
        targets: arguments.predict.iter().map(|of| of.of(base)).collect(),
        wanted: arguments.target,
        link,
        held_out: arguments.hold_out.clone(),
        leave_out: arguments.leave_out,
        samples: arguments.samples,
        seed: arguments.seed,
        curves,
    };
    let sheet = cluster::plan(&request)?;
    let inner = &cluster::INNER_SECTIONS[..];
    let hidden = if arguments.explain { &[] } else { inner };
    arguments.sheet.finish_without(sheet, hidden, json)
}

/// Refuses a length of requests that curves say otherwise.
fn check_length(bytes: f64, curves: &[MeasuredCurve]) -> anyhow::Result<()> {
    if !(1.0..=f64::from(u32::MAX)).contains(&bytes) {
        bail!("--request-bytes is from 1 to {} bytes", u32::MAX);
    }
    for curve in curves {
        if let Some(asked) = curve.asked.request_bytes()
            && (asked - bytes).abs() >= 0.5
        {
            bail!(
                "--request-bytes is {bytes}, and {} was measured with requests of {} bytes in the mean: leave the option out",
                curve.place(),
                weir_report::words::trimmed(asked, 1)
            );
        }
    }
    Ok(())
}

/// Refuses a part that reads which results say otherwise.
fn check_reads(percent: f64, curves: &[MeasuredCurve]) -> anyhow::Result<()> {
    let is_run = |of: &&MeasuredCurve| matches!(of.source, Source::Measured | Source::Modelled);
    for curve in curves.iter().filter(is_run) {
        if let Some(read) = curve.asked.read_percent
            && (read - percent).abs() >= 0.5
        {
            bail!(
                "--read-percent is {percent}, and {} was measured with {} reads of 100 requests: leave the option out",
                curve.place(),
                weir_report::words::trimmed(read, 2)
            );
        }
    }
    Ok(())
}

/// The curves, and what the files of points and the results say of them, where these options say otherwise than files.
fn curves(
    arguments: &[CurveArgument],
    options: &[&str],
) -> anyhow::Result<(Vec<MeasuredCurve>, Premises)> {
    let mut curves: Vec<MeasuredCurve> = Vec::new();
    let mut premises: Option<(String, Premises)> = None;
    let mut take = |place: &str, more: Premises| -> Result<(), PointsError> {
        let all = match premises.take() {
            Some((before, all)) => (
                format!("{before} and {place}"),
                points::merged((&before, all), (place, more), options)?,
            ),
            None => (place.to_owned(), more),
        };
        premises = Some(all);
        Ok(())
    };
    for argument in arguments {
        let (place, mut found) = match argument {
            CurveArgument::Published => {
                let points = Points::published();
                let place = "published:ceph".to_owned();
                take(&place, points.premises(Source::Published))?;
                (place, points.curves(Source::Published))
            }
            CurveArgument::Points(file) => {
                let named = || file.display().to_string();
                let text = fs::read_to_string(file).with_context(named)?;
                let points = Points::parse(&text).with_context(named)?;
                take(&named(), points.premises(Source::Given))?;
                (named(), points.curves(Source::Given))
            }
            CurveArgument::Result(file, configuration, name) => {
                let named = || file.display().to_string();
                let text = fs::read_to_string(file).with_context(named)?;
                let name = name.clone().unwrap_or_else(named);
                let curve =
                    points::of_document(&text, &name, *configuration).with_context(named)?;
                (named(), vec![curve])
            }
        };
        for curve in &mut found {
            curve.asked.place.clone_from(&place);
        }
        curves.extend(found);
    }
    for (at, curve) in curves.iter().enumerate() {
        if curves[..at].iter().any(|of| of.name == curve.name) {
            bail!(
                "two curves are called '{}': give one another name=",
                curve.name
            );
        }
    }
    let mut premises = premises.map_or_else(points::premises, |(_, of)| of);
    // What a result was asked is known, and need not be assumed.
    if premises.sources.read_part == Source::Assumed
        && let Some(curve) = curves.iter().find(|of| of.asked.read_percent.is_some())
        && let Some(percent) = curve.asked.read_percent
    {
        premises.read_part = percent / 100.0;
        premises.sources.read_part = curve.source;
    }
    let lengths = |of: &MeasuredCurve| Some((of.asked.request_bytes()?, of.source));
    if premises.request_bytes.is_none()
        && let Some((bytes, source)) = curves.iter().find_map(lengths)
    {
        premises.request_bytes = Some(bytes);
        premises.sources.request_bytes = source;
    }
    Ok((curves, premises))
}

fn compared(arguments: &DiffArguments, json: bool) -> anyhow::Result<ExitCode> {
    let files = [arguments.one.as_path(), arguments.other.as_path()];
    arguments.sheet.check(&files)?;
    let mut sheets = Vec::new();
    for file in files {
        let named = || file.display().to_string();
        let text = fs::read_to_string(file).with_context(named)?;
        sheets.push(Sheet::from_json(&text).with_context(named)?);
    }
    let names = files.map(|file| file.display().to_string());
    let names = [names[0].as_str(), names[1].as_str()];
    let sheet = diff::diff(&sheets[0], &sheets[1], names);
    arguments.sheet.finish(sheet, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_in_the_largest_curve() {
        let base = Configuration {
            gateways: 4,
            reactors: 4,
            bdevs_per_cluster: 1,
            nodes: 4,
            osds: 10,
            link: Some(12_500_000_000),
        };
        let of = |text: &str| text.parse::<Changes>().unwrap().of(base);
        assert_eq!(of("reactors=8").osds, 10);
        assert_eq!(of("nodes=8").osds, 20);
        assert_eq!(of("nodes=8").link, Some(12_500_000_000));
        assert_eq!(of("nodes=8,link=25Gb/s").link, Some(3_125_000_000));
        for wrong in ["link=25", "link=25Gb/s,link=25Gb/s", "link"] {
            assert!(wrong.parse::<Changes>().is_err(), "{wrong}");
        }
        assert_eq!(of("nodes=1000000").osds, 2_500_000);
        let none = Configuration { nodes: 0, ..base };
        let read: Changes = "nodes=8".parse().unwrap();
        assert_eq!(read.of(none).nodes, 8, "the fit refuses the curve");
    }

    #[test]
    fn a_drive_is_a_file_or_published_and_may_have_a_count() {
        let read = |text: &str| text.parse::<DriveArgument>();
        let one = read("results/a,b.json,count=12").unwrap();
        assert_eq!(file(&one), Some(Path::new("results/a,b.json")));
        assert_eq!(one.count, Some(12));
        let of_several = read("both.json,drive=file:/dev/b,count=4").unwrap();
        assert_eq!(file(&of_several), Some(Path::new("both.json")));
        assert_eq!(of_several.drive.as_deref(), Some("file:/dev/b"));
        assert_eq!(of_several.count, Some(4));
        assert!(read("published:all,drive=optane").is_err());
        assert!(file(&read("published:all").unwrap()).is_none());
        for wrong in ["", "a,count=0", "a,count=x", "a,count=100001", ",count=2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
