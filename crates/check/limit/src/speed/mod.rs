//! `weir-speed`: runs the table of rows, and says which bars hold.

mod gateway;
mod hosts;
mod idle;
pub mod options;
mod process;
pub mod report;
pub mod rows;
mod run;
pub mod statistics;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_reactor::random::Random;

pub use run::Sample;

use crate::processor;
use options::Options;
use report::{Count, Judged, Ran, RowReport, Verdict};
use rows::{IDLE, Protocol, Row};
use run::Field;
use statistics::Spread;

/// A processor of which more than this is taken by others is not free.
const TAKEN_SHARE_MAX: f64 = 0.05;
/// Percent of a processor, and MiB of memory, that an idle gateway may use.
const IDLE_PERCENT_MAX: f64 = 0.5;
const IDLE_MIB_MAX: f64 = 64.0;

/// All that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    /// What the processors are.
    pub processor: String,
    /// How often each row ran, and for how long, in seconds.
    pub rounds: u32,
    /// What the order of the contestants is drawn from, in each round.
    pub seed: u64,
    /// Seconds of a run.
    pub seconds: u32,
    /// Row by row.
    pub rows: Vec<RowReport>,
    /// What became of the bars.
    pub count: Count,
}

/// Runs what was asked for, printing as it goes; whether every bar that was measured holds.
///
/// # Errors
/// Nothing could be measured: options that do not go together, processors that are not free, an interrupt.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    options.check().map_err(anyhow::Error::msg)?;
    let wanted: Vec<Row> = rows::rows(options.protocol)
        .into_iter()
        .filter(|row| options.wants(&row.name))
        .collect();
    let idle = options.protocol == Protocol::Nvme && options.wants(IDLE);
    if wanted.is_empty() && !idle {
        bail!(
            "no row's name contains {}; see --list",
            options.only.join(" or ")
        );
    }
    if options.list {
        list(&wanted, idle);
        return Ok(true);
    }
    let stop = Stop::new()?;
    processor::bind(options.initiator_processor)
        .with_context(|| format!("processor {} cannot be used", options.initiator_processor))?;
    let field = Field::new(options)?;
    check_processors(options)?;
    let mut done = Vec::new();
    let mut random = Random::new(options.seed);
    for row in &wanted {
        done.push(run_row(&field, row, options, &mut random, &stop)?);
        say(options, &done);
    }
    if idle {
        done.push(run_idle(&field, options, &stop)?);
        say(options, &done);
    }
    finish(options, done)
}

fn list(wanted: &[Row], idle: bool) {
    for row in wanted {
        println!("# {}", row.name);
        for bar in &row.bars {
            println!("{} {}", bar.name, bar.bound.bar());
        }
    }
    if idle {
        println!("# {IDLE}\nidle-busy-percent {IDLE_PERCENT_MAX}\nidle-memory-mib {IDLE_MIB_MAX}");
    }
}

/// Set by an interrupt; programs that run then end with it, or with their run.
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn new() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Stop(flag))
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Refuses processors that others use: every figure would be theirs as well.
fn check_processors(options: &Options) -> anyhow::Result<()> {
    let both = [options.target_processor, options.initiator_processor];
    let before = both.map(processor::spent);
    std::thread::sleep(Duration::from_secs(1));
    for (number, before) in both.into_iter().zip(before) {
        let taken = processor::spent(number)?.since(&before?).taken_share();
        if taken <= TAKEN_SHARE_MAX {
            continue;
        }
        let what = format!(
            "processor {number} is not free: {:.0}% of it was taken while nothing ran here",
            taken * 100.0
        );
        if !options.force {
            bail!(
                "{what}; end what runs there (a peer that polls is stopped with --peer-pid), or say --force"
            );
        }
        eprintln!("weir-speed: warning: {what}; the figures are worth little");
    }
    Ok(())
}

fn run_row(
    field: &Field<'_>,
    row: &Row,
    options: &Options,
    random: &mut Random,
    stop: &Stop,
) -> anyhow::Result<RowReport> {
    let mut contestants: Vec<Ran> = row
        .contestants
        .iter()
        .map(|contestant| Ran {
            name: contestant.name(),
            absent: field.absent(contestant),
            samples: Vec::new(),
        })
        .collect();
    let mut failure = None;
    'rounds: for _ in 0..options.rounds {
        for index in shuffled(row.contestants.len(), random) {
            let (contestant, ran) = (&row.contestants[index], &mut contestants[index]);
            stop.check()?;
            if ran.absent.is_some() {
                continue;
            }
            match field.sample(contestant) {
                Ok(sample) => ran.samples.push(sample),
                Err(error) => {
                    stop.check()?;
                    failure = Some(format!("{}: {error:#}", ran.name));
                    break 'rounds;
                }
            }
        }
    }
    Ok(RowReport::judge(row, contestants, failure))
}

/// The numbers below `count` in an order drawn at random: who always came second would run on caches and clocks that others warmed.
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

fn run_idle(field: &Field<'_>, options: &Options, stop: &Stop) -> anyhow::Result<RowReport> {
    stop.check()?;
    let found = idle::look(field, options);
    stop.check()?;
    let bar = |what: &str, value: Option<f64>, most: f64| Judged {
        name: format!("{IDLE}-{what}"),
        value: value.and_then(|value| Spread::of([value])),
        bar: most,
        cleared: None,
        verdict: match value {
            None => Verdict::Failed,
            Some(value) if value <= most => Verdict::Ok,
            Some(_) => Verdict::Short,
        },
    };
    let (percent, mib) = match &found {
        Ok(idle) => (Some(idle.busy_percent), Some(idle.resident_mib)),
        Err(_) => (None, None),
    };
    Ok(RowReport {
        name: IDLE.to_owned(),
        failure: found.err().map(|error| format!("{error:#}")),
        contestants: Vec::new(),
        bars: vec![
            bar("busy-percent", percent, IDLE_PERCENT_MAX),
            bar("memory-mib", mib, IDLE_MIB_MAX),
        ],
    })
}

/// Prints the row that was done last; to standard error where standard output is for JSON.
fn say(options: &Options, done: &[RowReport]) {
    let Some(row) = done.last() else {
        return;
    };
    let line = |text: String| {
        if options.json {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
    };
    for ran in &row.contestants {
        line(format!("# {} {ran}", row.name));
    }
    if let Some(failure) = &row.failure {
        line(format!("# {} failed: {failure}", row.name));
    }
    for bar in &row.bars {
        line(bar.to_string());
        if let Some(value) = bar.value.filter(|value| value.min < value.max) {
            let [cleared, all] = bar.cleared.unwrap_or_default();
            line(format!(
                "# {} {:.3} to {:.3}, cleared in {cleared} of {all} rounds",
                bar.name, value.min, value.max
            ));
        }
    }
}

fn finish(options: &Options, rows: Vec<RowReport>) -> anyhow::Result<bool> {
    let count = Count::of(&rows);
    let report = Report {
        kernel: first_line("/proc/sys/kernel/osrelease", ""),
        processor: first_line("/proc/cpuinfo", "model name"),
        rounds: options.rounds,
        seed: options.seed,
        seconds: options.seconds,
        rows,
        count,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!(
            "# {} ok, {} short, {} failed, {} skipped, {} void; {} rounds of {} s, seed {}, on {}, Linux {}",
            count.ok,
            count.short,
            count.failed,
            count.skipped,
            count.void,
            report.rounds,
            report.seconds,
            report.seed,
            report.processor,
            report.kernel
        );
    }
    Ok(count.short == 0 && count.failed == 0 && count.void == 0)
}

/// What stands behind a name and a colon in a file, or its first line; `unknown` where it is not there.
fn first_line(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.map(|line| line.split_once(": ").map_or(line, |(_, value)| value));
    value.unwrap_or("unknown").to_owned()
}
