//! `weir record --plan`: a recording beside what `weir drive` found of its drives, before it begins.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use weir_plan::drive::{self, Drive};
use weir_plan::record::{self, Design, Link, Requirements, Told};
use weir_plan::units;
use weir_record::WhenFull;

use crate::tools::plan::{DWPD, WARRANTY_YEARS};

/// Comparison of a recording with a plan
#[derive(Debug, clap::Args)]
pub(super) struct PlanArguments {
    /// Say how long drives like these last, and warn where they do not keep up or do not hold what is to be kept: a result of weir drive. May be
    /// given several times
    #[arg(long, value_name = "RESULT.json", conflicts_with = "simulated")]
    plan: Vec<PathBuf>,
    /// With --plan: the line, such as 100Gb/s [default: rate= of the source, or the interface's speed]
    #[arg(long, value_name = "RATE", requires = "plan", value_parser = units::rate)]
    line: Option<f64>,
    /// Time that the ring must hold, such as 7d. A warning says when it holds less, at the recording's rate or by --plan
    #[arg(long, value_name = "TIME", conflicts_with = "simulated", value_parser = crate::tools::duration)]
    pub(super) retain: Option<Duration>,
}

/// A line, and drives that were measured: there may be none.
pub(super) struct Planned {
    line: f64,
    retain: Option<Duration>,
    drives: Vec<Drive>,
}

impl PlanArguments {
    /// Reads the results, before anything is recorded or lost; `line` is the bytes a second that the source tells.
    pub(super) fn read(
        &self,
        line: Option<f64>,
        when_full: WhenFull,
    ) -> anyhow::Result<Option<Planned>> {
        if self.plan.is_empty() {
            return Ok(None);
        }
        let Some(line) = self.line.or(line) else {
            bail!(
                "--plan needs the line's rate, which the source does not tell: say --line 10Gb/s"
            );
        };
        let when_full = match when_full {
            WhenFull::Stop => drive::WhenFull::Stop,
            WhenFull::GoRound => drive::WhenFull::TrimAhead,
        };
        let mut drives = Vec::new();
        for file in &self.plan {
            let named = || file.display().to_string();
            let text = fs::read_to_string(file).with_context(named)?;
            drives.extend(drive::read(&text, when_full).with_context(named)?);
        }
        Ok(Some(Planned {
            line,
            retain: self.retain,
            drives,
        }))
    }
}

impl Planned {
    /// Prints how well a recording on this many volumes fits each measured drive. `ahead` is the bytes that are given up ahead of the writes.
    pub(super) fn print(
        &self,
        volumes: usize,
        buffer_bytes: u64,
        ahead: u64,
    ) -> anyhow::Result<()> {
        let requirements = Requirements {
            line: self.line,
            link: Link::Payload,
            packet_bytes: None,
            utilisation: Told::or(None, 1.0),
            margin: Told::or(None, 0.0),
            buffer: Told::or(Some(buffer_bytes as f64), 0.0),
            retain: self.retain.map(|of| of.as_secs_f64()),
            rated_writes: None,
            dwpd: Told::or(None, DWPD),
            warranty: Told::or(None, WARRANTY_YEARS * units::SECONDS_OF_YEAR),
            trim_ahead: Told::or(Some(ahead as f64 / self.line), 0.0),
        };
        for drive in &self.drives {
            let design = Design {
                drive: drive.clone(),
                count: Some(volumes as u64),
            };
            let word = match record::fits(&requirements, &design)? {
                true => "note",
                false => "warning",
            };
            let sheet = record::plan(&requirements, &[design])?;
            eprintln!(
                "{word}: by the plan (weir plan record says more), {}",
                sheet.answer
            );
        }
        Ok(())
    }
}
