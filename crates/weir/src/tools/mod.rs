//! The tools at the command line: arguments in, a report out.

pub(crate) mod agent;
mod agents;
pub(crate) mod bench;
mod checked;
pub(crate) mod compare;
pub(crate) mod copy;
pub(crate) mod curve;
mod destroy;
pub(crate) mod discover;
pub(crate) mod drive;
pub(crate) mod interrupt;
mod job;
mod knobs;
mod laboratory;
mod live;
mod own;
mod path;
pub(crate) mod plan;
mod present;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod reproduce;
mod session;
pub(crate) mod torture;
pub(crate) mod verify;
mod watched;

pub(crate) use agent::AgentArguments;
pub(crate) use bench::BenchArguments;
pub(crate) use compare::CompareArguments;
pub(crate) use copy::CopyArguments;
pub(crate) use curve::CurveArguments;
pub(crate) use discover::DiscoverArguments;
pub(crate) use drive::DriveArguments;
pub(crate) use plan::PlanArguments;
pub(crate) use record::RecordArguments;
pub(crate) use report::ReportArguments;
pub(crate) use reproduce::ReproduceArguments;
pub(crate) use torture::TortureArguments;
pub(crate) use verify::VerifyArguments;

use std::io::Write;
use std::time::Duration;

use anyhow::Context;

/// Reads a size for an argument.
fn size(text: &str) -> Result<u64, String> {
    weir_block::size::parse(text).map_err(|error| error.to_string())
}

/// Reads a duration for an argument: `10s`, `2m`, `1h 30m`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|error| {
        format!("'{text}' is not a duration ({error}); write seconds, or a number with a unit, such as 500ms, 10s or 2m")
    })
}

/// Writes to standard output. A reader that has gone, as `head` does, is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("the answer cannot be written")
        }
        _ => Ok(()),
    }
}

/// Which reactors a tool uses.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ReactorArguments {
    /// Reactors (threads) that drive the volume; the queues are spread over them. Default: one per queue, as far as there
    /// are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    reactors: Option<u32>,
}

impl ReactorArguments {
    /// So many, or as many as are of use.
    fn of(reactors: Option<u32>) -> Self {
        ReactorArguments { reactors }
    }

    /// How many were asked for.
    fn asked(&self) -> Option<u32> {
        self.reactors
    }
}
