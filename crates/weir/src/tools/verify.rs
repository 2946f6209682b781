//! `weir verify`: does the volume hold what was written to it?

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use weir_block::size::Size;
use weir_load::Finding;
use weir_load::verify::{self, Until, VerifyConfig, VerifyError, VerifyProgress};
use weir_volume::{Access, VolumeUrl};

use super::destroy::DestroyArguments;
use super::present::{self, Line, Progress};
use super::session::Session;
use super::{ReactorArguments, duration, size};
use weir_lab::secret::without_in_text;

/// Write stamped blocks to a volume, read them back, and say of what is wrong whether a write was lost, torn or misdirected, a read stale,
/// or a bit flipped
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArguments {
    /// The volume. What it holds is lost, unless --check is given
    url: VolumeUrl,
    /// Bytes per request
    #[arg(long, short = 'b', value_name = "SIZE", default_value = "64k", value_parser = size)]
    block_size: u64,
    /// Requests in flight per queue
    #[arg(long, short = 'd', value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: u32,
    /// Queues, each with a part of the volume to itself
    #[arg(long, short = 'q', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: u32,
    /// Passes over the range; each overwrites everything and compares everything [default: 1]. With --check: how many the earlier run
    /// finished, so that a block that holds less is known as a lost write
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    passes: Option<u64>,
    /// Make passes for so long
    #[arg(long, short = 't', value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Use only the first so many bytes of the volume
    #[arg(long, value_name = "SIZE", value_parser = size)]
    range: Option<u64>,
    /// What contents and order start from; default: random. It is printed, and a later --check needs it
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// Write nothing; check that the volume holds what an earlier run with this --seed left
    #[arg(long, requires = "seed", conflicts_with = "duration")]
    check: bool,
    #[command(flatten)]
    destroy: DestroyArguments,
    #[command(flatten)]
    reactors: ReactorArguments,
}

/// A seed, in decimal or with 0x in hexadecimal as it is printed.
fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| {
        format!(
            "'{text}' is not a seed ({error}); write a number below 2^64, in decimal or as 0x..."
        )
    })
}

pub(crate) fn run(arguments: VerifyArguments, json: bool) -> anyhow::Result<ExitCode> {
    arguments.destroy.check([&arguments.url])?;
    let session = Session::start(&arguments.reactors, arguments.queues)?;
    let access = if arguments.check {
        Access::READ_ONLY
    } else {
        Access::READ_WRITE
    };
    let volume = session.open(&arguments.url, access)?;
    if !arguments.check {
        session.check_overwritable(
            &volume,
            &arguments.url,
            arguments.destroy.names(&arguments.url),
        )?;
    }
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => session.run(|reactor| async move { reactor.random() })?,
    };
    let until = match (arguments.duration, arguments.passes) {
        (Some(duration), _) => Until::Elapsed(duration),
        (None, passes) => Until::Passes(passes.unwrap_or(1)),
    };
    let config = VerifyConfig {
        request_bytes: arguments.block_size,
        depth: arguments.queue_depth,
        queues: arguments.queues,
        range_bytes: arguments.range,
        seed,
        until,
        check_only: arguments.check,
        passes_made: arguments.passes.unwrap_or(0),
        stop: session.stop.clone(),
    };
    let range = arguments
        .range
        .unwrap_or(u64::MAX)
        .min(volume.geometry().length_bytes());
    eprintln!("seed {seed:#018x}");
    let (named, name) = (
        without_in_text(&arguments.url.to_string()),
        without_in_text(&volume.name()),
    );
    let (remotes, driven) = (session.remotes(), volume.clone());
    let progress = Progress::start();
    let mut sink = progress.sink();
    let outcome = session.run(move |control| async move {
        let show = |progress: VerifyProgress| sink(line(&progress, until, range));
        verify::run(&control, &remotes, &driven, &config, show).await
    })?;
    drop(progress);

    let report = match outcome {
        Ok(report) => report,
        Err(
            ref error @ VerifyError::Wrong {
                ref findings,
                requests,
                ..
            },
        ) => {
            if json {
                let wrong = json!({
                    "ok": false,
                    "volume": named,
                    "seed": seed,
                    "fault": findings[0].fault.code(),
                    "first_wrong_lba": findings[0].lba,
                    "wrong_requests": requests,
                    "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
                    "error": without_in_text(&error.to_string()),
                });
                println!("{}", serde_json::to_string_pretty(&wrong)?);
            } else {
                eprintln!("weir: {name} is at fault (seed {seed:#018x}):");
                findings.iter().for_each(|finding| eprintln!("  {finding}"));
            }
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    };
    if json {
        let report = json!({
            "ok": true,
            "volume": named,
            "seed": seed,
            "passes": report.passes,
            "written_bytes": report.written_bytes,
            "compared_bytes": report.compared_bytes,
            "elapsed_seconds": report.elapsed.as_secs_f64(),
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!(
            "every block as written: {} written and {} compared in {:.1} s, {} whole passes, seed {seed:#018x}",
            Size(report.written_bytes),
            Size(report.compared_bytes),
            report.elapsed.as_secs_f64(),
            report.passes,
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({
        "fault": finding.fault.code(),
        "lba": finding.lba,
        "blocks": finding.blocks,
        "expected_sequence": finding.number(),
        "found": finding.found,
        "other_lba": finding.counterpart,
        "persists": finding.persists,
    })
}

fn line(progress: &VerifyProgress, until: Until, range_bytes: u64) -> Line {
    let fraction = match until {
        Until::Elapsed(duration) => progress.elapsed.as_secs_f64() / duration.as_secs_f64(),
        Until::Passes(passes) => {
            let done = progress.written_bytes.max(progress.compared_bytes);
            done as f64 / (range_bytes.saturating_mul(passes)) as f64
        }
    };
    let searching = match progress.searching {
        true => "; something is wrong, and searched for where it went",
        false => "",
    };
    let text = format!(
        "pass {}, {} written, {} compared{searching}",
        present::grouped(progress.pass),
        Size(progress.written_bytes),
        Size(progress.compared_bytes),
    );
    Line {
        elapsed: progress.elapsed,
        fraction,
        text,
    }
}
