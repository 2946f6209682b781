//! `weir plan`: what to buy, from what was measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use weir_plan::drive::{self, Drive, WhenFull};
use weir_plan::record::{self, Design, Link, Requirements, Told};
use weir_plan::sheet::{Sheet, Source};
use weir_plan::{diff, page, published, text, units};

use super::report::{check_place, put};

/// Drive writes per day, where nobody says.
const DWPD: f64 = 1.0;
/// Years of warranty, where nobody says.
const WARRANTY_YEARS: f64 = 5.0;
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
    pub(super) fn finish(&self, mut sheet: Sheet, json: bool) -> anyhow::Result<ExitCode> {
        sheet.command = weir_lab::secret::without(&std::env::args().collect::<Vec<_>>());
        sheet.version = env!("CARGO_PKG_VERSION").to_owned();
        let stored = serde_json::to_string_pretty(&sheet)? + "\n";
        if let Some(file) = &self.output {
            put(file, stored.as_bytes())?;
        }
        if let Some(file) = &self.html {
            put(file, page::page(&sheet).as_bytes())?;
        }
        super::print(&if json { stored } else { text::text(&sheet) })?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
struct RecordArguments {
    /// The line, such as 100Gb/s (bits) or 12.5GB/s (bytes)
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: f64,
    /// A drive: a result of weir drive, as FILE or FILE,count=N; or published:NAME of docs/plans.md, or published:all. May be given several
    /// times: each is planned by itself, or, where each has a count, all are one array of RAID0
    #[arg(long, value_name = "DRIVE", required_unless_present = "sustained")]
    drive: Vec<DriveArgument>,
    /// Instead of a result: bytes per second that a drive keeps at its worst, for ever, such as 1.6GB/s
    #[arg(long, value_name = "RATE", value_parser = units::rate, conflicts_with = "drive")]
    sustained: Option<f64>,
    /// What a drive holds, such as 3.84TB, where --sustained is given or a result does not say
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    capacity: Option<f64>,
    /// How many drives there are, with --sustained
    #[arg(long, value_name = "N", requires = "sustained", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: Option<u64>,
    /// What the data sheet promises, to be shown beside
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
    /// Drive writes per day that the warranty allows [default: 1]
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
                _ => return Err(format!("'{count}' is no count from 1 to 100000")),
            },
        };
        let place = match place.strip_prefix("published:") {
            Some(name) => DrivePlace::Published(name.to_owned()),
            None if place.is_empty() => return Err("it names no file".to_owned()),
            None => DrivePlace::File(PathBuf::from(place)),
        };
        Ok(DriveArgument { place, count })
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
                drive::read(&text, arguments.when_full).with_context(named)?
            }
        };
        for mut drive in drives {
            drive.data_sheet = arguments.data_sheet.or(drive.data_sheet);
            drive.capacity = arguments.capacity.or(drive.capacity);
            found.push((drive, argument.count));
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
    fn a_drive_is_a_file_or_published_and_may_have_a_count() {
        let read = |text: &str| text.parse::<DriveArgument>();
        let one = read("results/a,b.json,count=12").unwrap();
        assert_eq!(file(&one), Some(Path::new("results/a,b.json")));
        assert_eq!(one.count, Some(12));
        assert!(file(&read("published:all").unwrap()).is_none());
        for wrong in ["", "a,count=0", "a,count=x", "a,count=100001", ",count=2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
