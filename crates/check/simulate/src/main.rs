//! The command of the simulator: runs seeds, and says what they violate.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use weir_reactor::sim::seed_from_env_or_random;
use weir_simulate::{Plan, Plant, Report, run, run_twice};

/// Runs simulated systems, each from one seed, and checks what Weir promises.
///
/// For each seed that fails: what was violated, and the line that repeats it. Of several seeds: what went wrong how often.
/// Exit status 1 when one failed, or something that many switch on never happened.
#[derive(Debug, Parser)]
#[command(name = "weir-simulate")]
struct Arguments {
    /// The seed. Without it and without --seeds: WEIR_SEED, or one that differs each time.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds from A to below B.
    #[arg(long, value_name = "A..B", value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// Seeds that run at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Run each Nth seed twice, and compare. 0: none.
    #[arg(long, value_name = "N", default_value_t = 1)]
    twice: u64,
    /// One line of JSON for each seed.
    #[arg(long)]
    json: bool,
    /// Print the history of each seed.
    #[arg(long, conflicts_with = "json")]
    trace: bool,
    /// Print what each seed is.
    #[arg(long, conflicts_with = "json")]
    plan: bool,
    /// Log what the parts say of themselves to standard error, as a filter of tracing: debug, weir_nvme_host=trace.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Say after each N seeds how far it is, on standard error. 0: never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    progress: u64,
    /// Plant a defect, which the checkers are to find.
    #[arg(long, value_name = "NAME", value_parser = plant)]
    plant: Option<Plant>,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let bounds = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
        (from < to).then_some((from, to))
    });
    bounds.ok_or_else(|| "seeds are written A..B, with A below B".to_owned())
}

fn plant(name: &str) -> Result<Plant, String> {
    let names: Vec<_> = Plant::ALL.iter().map(|(name, _)| *name).collect();
    Plant::named(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

/// The results of all seeds.
#[derive(Default)]
struct Sum {
    seeds: u64,
    failed: u64,
    commands: u64,
    commands_least: Option<u64>,
    steps: u64,
    simulated_seconds: f64,
    /// Faults and troubles that seeds switch on, by name.
    kinds: BTreeMap<String, Kind>,
}

/// Counts of a fault or trouble that seeds switch on.
#[derive(Default)]
struct Kind {
    /// Seeds in which it is on.
    on: u64,
    /// Seeds in which it happened.
    happened: u64,
    times: u64,
}

/// Of so many seeds in which something is on it happens in one.
const HAPPENS_IN: u64 = 30;

impl Sum {
    /// Adds what one seed came to.
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.failed += u64::from(!report.violations.is_empty());
        self.commands += report.commands;
        let least = self.commands_least.unwrap_or(u64::MAX);
        self.commands_least = Some(least.min(report.commands));
        self.steps += report.steps;
        self.simulated_seconds += report.simulated.as_secs_f64();
        for exercised in &report.exercised {
            let kind = self.kinds.entry(exercised.name()).or_default();
            kind.on += 1;
            kind.happened += u64::from(exercised.times > 0);
            kind.times += exercised.times;
        }
    }

    /// Prints what went wrong how often; whether everything did that was on in enough seeds.
    fn print_kinds(&self) -> bool {
        println!("what went wrong            on in  happened in     times");
        let mut all = true;
        for (name, kind) in &self.kinds {
            let Kind {
                on,
                happened,
                times,
            } = *kind;
            let is_missing = happened == 0 && on >= HAPPENS_IN;
            let remark = if is_missing { ", and should have" } else { "" };
            println!("{name:24} {on:7} {happened:12} {times:9}{remark}");
            all &= !is_missing;
        }
        all
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(filter) = &arguments.log {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
            .with_writer(std::io::stderr)
            .init();
    }
    let (from, to) = arguments.seeds.unwrap_or_else(|| {
        let seed = arguments.seed.unwrap_or_else(seed_from_env_or_random);
        (seed, seed + 1)
    });
    let (next, sum) = (AtomicU64::new(from), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.min(to - from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        return;
                    }
                    one(&arguments, seed, to - from, &sum);
                }
            });
        }
    });
    let sum = sum.into_inner().expect("no seed ends this process");
    let mut all_happened = true;
    if !arguments.json {
        if sum.seeds > 1 {
            all_happened = sum.print_kinds();
        }
        println!(
            "{} seeds, {} failed; {} commands, {} at least in one; {} steps, {:.0} simulated seconds",
            sum.seeds,
            sum.failed,
            sum.commands,
            sum.commands_least.unwrap_or(0),
            sum.steps,
            sum.simulated_seconds
        );
    }
    ExitCode::from(u8::from(sum.failed > 0 || !all_happened))
}

/// Runs one seed, and prints what there is to say of it.
fn one(arguments: &Arguments, seed: u64, of: u64, sum: &Mutex<Sum>) {
    let plan = Plan::of(seed);
    let twice = arguments.twice > 0 && seed.is_multiple_of(arguments.twice);
    let report = match twice {
        true => run_twice(&plan, arguments.plant),
        false => run(&plan, arguments.plant),
    };
    let mut sum = sum.lock().expect("no seed ends this process");
    sum.add(&report);
    if arguments.json {
        println!("{}", json(&report));
    } else {
        print(arguments, &plan, &report);
    }
    if arguments.progress > 0 && sum.seeds.is_multiple_of(arguments.progress) {
        eprintln!("{} of {of} seeds, {} failed", sum.seeds, sum.failed);
    }
}

fn json(report: &Report) -> serde_json::Value {
    let violations = report.violations.iter().map(|violation| {
        serde_json::json!({ "check": violation.check.name(), "message": violation.message })
    });
    serde_json::json!({
        "seed": report.seed,
        "violations": violations.collect::<Vec<_>>(),
        "commands": report.commands,
        "steps": report.steps,
        "simulated_seconds": report.simulated.as_secs_f64(),
        "hash": format!("{:016x}", report.hash),
    })
}

fn print(arguments: &Arguments, plan: &Plan, report: &Report) {
    if arguments.plan {
        println!("{plan}");
    }
    if arguments.trace {
        report.history().for_each(|line| println!("{line}"));
    }
    if report.violations.is_empty() {
        if arguments.seed.is_some() || arguments.trace {
            println!(
                "seed {}: ok, {} commands in {:.1} simulated seconds, {} steps, hash {:016x}",
                report.seed,
                report.commands,
                report.simulated.as_secs_f64(),
                report.steps,
                report.hash
            );
        }
        return;
    }
    /// Violations of a seed that are told at length.
    const TOLD: usize = 3;
    println!(
        "seed {}: {} violations",
        report.seed,
        report.violations.len()
    );
    for violation in report.violations.iter().take(TOLD) {
        println!("  {violation}");
    }
    let plant = arguments.plant.map(|plant| format!(" --plant {plant}"));
    println!(
        "repeat it: cargo run --release -p weir-simulate -- --seed {}{} --trace",
        report.seed,
        plant.unwrap_or_default()
    );
}
