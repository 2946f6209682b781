//! The recorder itself, on models of the article's first drive, at its line.

use anyhow::Context;
use serde_json::Value;
use weir_plan::drive::{self, WhenFull};
use weir_plan::published;
use weir_plan::record::needed;
use weir_plan::reproduce::RecorderRun;

use super::super::own::Own;
use super::words;

/// Published drive and its model, which is small because recorded data goes through this machine's memory.
const DRIVE: (&str, &str) = ("970-evo-plus", "970-evo-plus-1tb?size=4GiB");
const DRIVE_BYTES: f64 = (4u64 << 30) as f64;
/// Buffer of the recorder: covers the model's longest stall, when its cache is full.
const BUFFER: (&str, f64) = ("512M", (512u64 << 20) as f64);
/// Bytes of what the source yields at a time.
const BLOCK_BYTES: f64 = (256u64 << 10) as f64;
/// Small segments: each drive has one that fills.
const SEGMENT: &str = "4M";

/// Runs it with as many drives as the plan asks for, and with as many as the data sheet does: the runs, and their commands.
pub(super) fn run(own: &Own, seed: u64) -> anyhow::Result<(Vec<RecorderRun>, Vec<String>)> {
    let published = published::drives();
    let line = published.line();
    let sheet = published.drives.iter().find(|of| of.name == DRIVE.0);
    let sheet = sheet.context("the drive is one of those that are published")?;
    let mut commands = Vec::new();
    let mut said = |command: &[String]| -> anyhow::Result<String> {
        let told = own.run(command)?;
        commands.push(format!("Run: weir {}", command.join(" ")));
        Ok(told)
    };
    let url = |seed: u64| format!("ssd:{}&seed={seed}", DRIVE.1);
    let mut command = words(&["drive", &url(seed), "--simulated", "--block-size", "1M"]);
    command.extend(words(&["--passes", "fill,overwrite-trimmed"]));
    let found = drive::read(&said(&command)?, WhenFull::TrimAhead)?;
    let drive = found.into_iter().next().context("it was qualified")?;
    let by_run = needed(&drive, line, BUFFER.1)?.drives;
    let by_sheet = (line / sheet.data_sheet()).ceil() as u64;
    let mut ran = Vec::new();
    for (why, drives) in [("By the run", by_run), ("By the data sheet", by_sheet)] {
        // Twice round the ring.
        let count = (2.0 * DRIVE_BYTES * drives as f64 / BLOCK_BYTES) as u64;
        let source = format!(
            "generate:bytes?rate={}Gb/s&size={BLOCK_BYTES}&count={count}",
            line * 8.0 / 1e9
        );
        let mut command = words(&["record", &source]);
        command.extend((0..drives).map(|number| url(seed + number)));
        command.extend(words(&["--new", "--simulated", "--buffer", BUFFER.0]));
        command.extend(words(&["--segment-size", SEGMENT]));
        let told: Value = serde_json::from_str(&said(&command)?).context("a recording is JSON")?;
        let number = |path: &str| told.pointer(path).and_then(Value::as_f64);
        let count = |path: &str| number(path).with_context(|| format!("a recording has {path}"));
        let received = count("/counts/received")?;
        ran.push(RecorderRun {
            why: why.to_owned(),
            drives,
            drive: drive.clone(),
            buffer: BUFFER.1,
            received_bytes: count("/counts/received_bytes")?,
            lost: count("/counts/lost_slow")? / received,
            first_lost: number("/first_lost_seconds"),
        });
    }
    Ok((ran, commands))
}
