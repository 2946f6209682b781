//! `weir copy`: one volume onto another.

use std::process::ExitCode;

use serde_json::json;
use weir_block::size::Size;
use weir_load::copy::{self, CopyConfig, CopyProgress};
use weir_volume::{Access, VolumeUrl};

use super::destroy::DestroyArguments;
use super::present::{self, Line, Progress};
use super::session::Session;
use super::{ReactorArguments, size};

/// Copy one volume onto another
#[derive(Debug, clap::Args)]
pub(crate) struct CopyArguments {
    /// The volume to read
    source: VolumeUrl,
    /// The volume to overwrite
    target: VolumeUrl,
    /// Bytes per request at most
    #[arg(long, short = 'b', value_name = "SIZE", default_value = "1M", value_parser = size)]
    block_size: u64,
    /// Requests in flight on each side
    #[arg(long, short = 'd', value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queue_depth: u32,
    #[command(flatten)]
    destroy: DestroyArguments,
}

pub(crate) fn run(arguments: CopyArguments, json: bool) -> anyhow::Result<ExitCode> {
    arguments.destroy.check([&arguments.target])?;
    let session = Session::start(&ReactorArguments { reactors: Some(1) }, 1)?;
    let source = session.open(&arguments.source, Access::READ_ONLY)?;
    let target = session.open(&arguments.target, Access::READ_WRITE)?;
    session.check_overwritable(
        &target,
        &arguments.target,
        arguments.destroy.names(&arguments.target),
    )?;
    let config = CopyConfig {
        request_bytes: arguments.block_size,
        depth: arguments.queue_depth,
    };
    let (stop, from, to) = (session.stop.clone(), source.clone(), target.clone());
    let progress = Progress::start();
    let mut sink = progress.sink();
    let report = session.run(move |reactor| async move {
        copy::run(&reactor, &from, &to, &config, &stop, |progress| {
            sink(line(&progress))
        })
        .await
    })??;
    drop(progress);

    let seconds = report.elapsed.as_secs_f64();
    let bytes_per_second = if seconds > 0.0 {
        report.copied_bytes as f64 / seconds
    } else {
        0.0
    };
    if json {
        let report = json!({
            "source": arguments.source.to_string(),
            "target": arguments.target.to_string(),
            "copied_bytes": report.copied_bytes,
            "zero_bytes": report.zero_bytes,
            "elapsed_seconds": seconds,
            "bytes_per_second": bytes_per_second,
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!(
            "copied {} from {} to {} in {seconds:.1} s, {}; {} of it zeroes",
            Size(report.copied_bytes),
            source.name(),
            target.name(),
            present::rate(bytes_per_second),
            Size(report.zero_bytes),
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn line(progress: &CopyProgress) -> Line {
    let per_second = progress.copied_bytes as f64 / progress.elapsed.as_secs_f64();
    Line {
        elapsed: progress.elapsed,
        fraction: progress.copied_bytes as f64 / progress.total_bytes.max(1) as f64,
        text: format!(
            "{} of {}, {}",
            Size(progress.copied_bytes),
            Size(progress.total_bytes),
            present::rate(per_second),
        ),
    }
}
