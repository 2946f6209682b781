//! Job files: load in several phases, with a job for each volume, as TOML.
//!
//! What is wrong is told with its file and line, and what is allowed there. Volumes are named here and opened elsewhere: whether they can do
//! what is asked for is found out then.

mod reader;

use std::time::Duration;

use weir_load::bench::{Arrivals, INTERVAL, Load};
use weir_load::workload::{
    Access, Operations, SizeShare, Stream, Workload, WorkloadError, named, parse_sizes,
};

use self::reader::{Source, Table};
use crate::runner::seed_of_run;
use crate::secret;

/// Jobs of all phases together.
pub const JOBS_MAX: usize = 1024;
/// Requests in flight of a queue at most.
const DEPTH_MAX: u64 = 65536;
/// Queues of a job at most.
const QUEUES_MAX: u64 = 4096;
/// Hosts of a job at most.
const HOSTS_MAX: u64 = 1024;
/// The longest run.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// What is done where nothing is said.
const DURATION: Duration = Duration::from_secs(10);
const DEPTH: u32 = 32;
const REQUEST_BYTES: u64 = 4096;
/// Percentages are written in decimals, and their sums may miss 100 by so much: as the shares of streams and sizes may.
const PERCENT_TOLERANCE: f64 = 0.01;

const FILE_KEYS: &[&str] = &["duration", "ramp", "interval", "seed", "phase"];
const PHASE_KEYS: &[&str] = &["name", "duration", "ramp", "interval", "seed", "job"];
const STREAM_KEYS: &[&str] = &[
    "share",
    "block_size",
    "mix",
    "read",
    "write",
    "deallocate",
    "flush",
    "access",
    "align",
    "range",
];
const JOB_KEYS: &[&str] = &[
    "name",
    "volume",
    "workload",
    "block_size",
    "mix",
    "read",
    "write",
    "deallocate",
    "flush",
    "access",
    "align",
    "range",
    "compress",
    "stream",
    "queue_depth",
    "queues",
    "hosts",
    "rate",
    "arrivals",
    "duration",
    "ramp",
    "interval",
    "seed",
];
/// What a job says itself where it has neither a named workload nor streams.
const OWN_REQUESTS: &[&str] = &[
    "block_size",
    "mix",
    "read",
    "write",
    "deallocate",
    "flush",
    "access",
    "align",
];

/// What is wrong with a job file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {wrong}; {allowed}")]
pub struct JobError {
    /// The file, as it was named.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub wrong: String,
    /// What is allowed.
    pub allowed: String,
}

/// What is wrong with a stream in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}; {allowed}")]
pub struct StreamError {
    /// What is wrong.
    pub wrong: String,
    /// What is allowed.
    pub allowed: String,
}

/// A job file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// One after the other.
    pub phases: Vec<Phase>,
}

/// Jobs that run side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// What it is called.
    pub name: String,
    /// At least one.
    pub jobs: Vec<Job>,
}

/// Load on one volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What it is called.
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    /// The volume's URL, as it stands there.
    pub volume: String,
    /// The line on which it stands.
    pub volume_line: usize,
    /// Which requests.
    pub workload: Workload,
    /// How many.
    pub load: Load,
    /// Queues of each host.
    pub queues: u32,
    /// Hosts.
    pub hosts: u32,
    /// The line that says how many, or that of the job.
    pub hosts_line: usize,
    /// For how long it is measured.
    pub duration: Duration,
    /// For how long it runs before.
    pub ramp: Duration,
    /// The length of an interval.
    pub interval: Duration,
    /// What the randomness starts from: the job's own seed, or a part of that of its phase or file, so that no two jobs ask for the same blocks.
    pub seed: u64,
}

/// What may be said once for all.
#[derive(Debug, Clone, Copy)]
struct Times {
    duration: Duration,
    ramp: Duration,
    interval: Duration,
    seed: u64,
}

impl Times {
    fn read(table: &Table<'_>, outer: Times) -> Result<Self, JobError> {
        let positive = Duration::from_nanos(1)..=DURATION_MAX;
        let any = Duration::ZERO..=DURATION_MAX;
        let least = Duration::from_millis(1)..=DURATION_MAX;
        Ok(Times {
            duration: table
                .duration("duration", positive)?
                .unwrap_or(outer.duration),
            ramp: table.duration("ramp", any)?.unwrap_or(outer.ramp),
            interval: table.duration("interval", least)?.unwrap_or(outer.interval),
            seed: table
                .integer("seed", 0..=i64::MAX as u64)?
                .unwrap_or(outer.seed),
        })
    }
}

impl JobFile {
    /// Reads a job file. `file` is what it is called in errors.
    ///
    /// # Errors
    /// [`JobError`]: the first thing that is wrong.
    pub fn read(file: &str, text: &str) -> Result<Self, JobError> {
        let source = Source { file, text };
        let parsed = source.parse()?;
        let table = source.table(parsed.get_ref(), parsed.span(), "a job file", FILE_KEYS)?;
        let defaults = Times {
            duration: DURATION,
            ramp: Duration::ZERO,
            interval: INTERVAL,
            seed: 1,
        };
        let times = Times::read(&table, defaults)?;
        let phases = table
            .tables("phase", "a phase", PHASE_KEYS)?
            .iter()
            .enumerate()
            .map(|(index, phase)| read_phase(phase, index, times))
            .collect::<Result<Vec<_>, _>>()?;
        let jobs: usize = phases.iter().map(|phase| phase.jobs.len()).sum();
        if phases.is_empty() {
            return Err(table.wrong(
                "there is no phase",
                "write [[phase]], and [[phase.job]] below it",
            ));
        }
        if jobs > JOBS_MAX {
            let wrong = format!("there are {jobs} jobs");
            return Err(table.wrong(&wrong, &format!("{JOBS_MAX} are allowed")));
        }
        Ok(JobFile { phases })
    }
}

fn read_phase(table: &Table<'_>, index: usize, outer: Times) -> Result<Phase, JobError> {
    let times = Times::read(table, outer)?;
    let name = table.text("name")?;
    let jobs = table
        .tables("job", "a job", JOB_KEYS)?
        .iter()
        .enumerate()
        .map(|(place, job)| read_job(job, index * JOBS_MAX + place, times))
        .collect::<Result<Vec<_>, _>>()?;
    if jobs.is_empty() {
        return Err(table.wrong("the phase has no job", "write [[phase.job]] below it"));
    }
    Ok(Phase {
        name: name.map_or_else(|| format!("phase {}", index + 1), |name| name.value),
        jobs,
    })
}

/// `number` is unlike that of every other job of the file.
fn read_job(table: &Table<'_>, number: usize, outer: Times) -> Result<Job, JobError> {
    let times = Times::read(table, outer)?;
    let Some(volume) = table.text("volume")? else {
        return Err(table.wrong(
            "the job names no volume",
            "write volume = \"URL\", such as \"file:/path/to/image\"",
        ));
    };
    let name = table.text("name")?;
    let seed = match table.has("seed") {
        true => times.seed,
        false => seed_of_run(times.seed, number as u64),
    };
    let number = |key, max| {
        let number = table.integer(key, 1..=max)?;
        Ok::<_, JobError>(number.map(|number| number as u32))
    };
    Ok(Job {
        name: name.map_or_else(|| secret::without_in(&volume.value), |name| name.value),
        line: table.line(),
        volume_line: volume.line,
        volume: volume.value,
        workload: read_workload(table)?,
        load: read_load(table, number("queue_depth", DEPTH_MAX)?.unwrap_or(DEPTH))?,
        queues: number("queues", QUEUES_MAX)?.unwrap_or(1),
        hosts: number("hosts", HOSTS_MAX)?.unwrap_or(1),
        hosts_line: table.line_of("hosts"),
        duration: times.duration,
        ramp: times.ramp,
        interval: times.interval,
        seed,
    })
}

fn read_load(table: &Table<'_>, depth: u32) -> Result<Load, JobError> {
    let arrivals = table.text("arrivals")?;
    let Some(rate) = table.integer("rate", 1..=i64::MAX as u64)? else {
        return match arrivals {
            None => Ok(Load::Closed { depth }),
            Some(_) => {
                Err(table.wrong_key("arrivals", "arrivals go with a rate", "write rate too"))
            }
        };
    };
    let arrivals = match arrivals.as_ref().map(|of| of.value.as_str()) {
        None | Some("uniform") => Arrivals::Uniform,
        Some("exponential") => Arrivals::Exponential,
        Some(other) => {
            return Err(table.wrong_key(
                "arrivals",
                &format!("'{other}' is no way to arrive"),
                "uniform and exponential are",
            ));
        }
    };
    Ok(Load::Open {
        rate,
        arrivals,
        depth_max: depth,
    })
}

fn read_workload(table: &Table<'_>) -> Result<Workload, JobError> {
    let base = match (table.text("workload")?, table.has("stream")) {
        (Some(name), false) => {
            refuse_own(table, "a workload that has a name")?;
            let found = named(&name.value);
            found
                .map_err(|error| table.wrong_workload("workload", &error))?
                .workload()
        }
        (Some(_), true) => {
            return Err(table.wrong_key(
                "stream",
                "the job has a workload by name and streams of its own",
                "leave one of them out",
            ));
        }
        (None, true) => {
            refuse_own(table, "streams")?;
            let streams = table.tables("stream", "a stream", STREAM_KEYS)?;
            Workload {
                streams: streams.iter().map(read_stream).collect::<Result<_, _>>()?,
                ..Workload::simple(REQUEST_BYTES, 100, Access::Random)
            }
        }
        (None, false) => Workload::of(Stream {
            range_bytes: None,
            share_percent: 100.0,
            ..read_stream(table)?
        }),
    };
    let workload = Workload {
        range_bytes: table.size("range")?,
        compressible_percent: table.integer("compress", 0..=100)?.unwrap_or(0) as u8,
        ..base
    };
    workload
        .check()
        .map_err(|error| table.wrong(&error.to_string(), "change the numbers of this table"))?;
    Ok(workload)
}

/// A job says what its requests are in one way only.
fn refuse_own(table: &Table<'_>, instead: &str) -> Result<(), JobError> {
    match OWN_REQUESTS.iter().find(|key| table.has(key)) {
        None => Ok(()),
        Some(key) => Err(table.wrong_key(
            key,
            &format!("{key} does not go with {instead}"),
            "leave one of them out",
        )),
    }
}

/// A stream as a command line has it: what a job file's `stream` table has, as `share=70 read=100 block_size=8k access=zipf:1.1`.
///
/// # Errors
/// [`StreamError`].
pub fn stream(words: &str) -> Result<Stream, StreamError> {
    let (mut lines, mut keys) = (String::new(), Vec::new());
    for word in words.split_whitespace() {
        let Some((key, value)) = word.split_once('=') else {
            return Err(StreamError {
                wrong: format!("'{word}' is no KEY=VALUE"),
                allowed: format!("a stream has {}", STREAM_KEYS.join(", ")),
            });
        };
        let is_key = !key.is_empty()
            && key
                .bytes()
                .all(|of| of.is_ascii_lowercase() || b"_-".contains(&of));
        let is_plain = value
            .bytes()
            .all(|of| of.is_ascii_alphanumeric() || b":,./%+-_".contains(&of));
        if !is_key || !is_plain {
            return Err(StreamError {
                wrong: format!("'{word}' cannot be read"),
                allowed: format!("a stream has {}, such as share=70", STREAM_KEYS.join(", ")),
            });
        }
        let key = key.replace('-', "_");
        if keys.contains(&key) {
            return Err(StreamError {
                wrong: format!("{key} is given twice"),
                allowed: "give each key once".to_owned(),
            });
        }
        let is_number = value.parse::<f64>().is_ok_and(f64::is_finite)
            && value.starts_with(|of: char| of.is_ascii_digit());
        match is_number {
            true => lines.push_str(&format!("{key} = {value}\n")),
            false => lines.push_str(&format!("{key} = \"{value}\"\n")),
        }
        keys.push(key);
    }
    let source = Source {
        file: "stream",
        text: &lines,
    };
    let read = || {
        let parsed = source.parse()?;
        let table = source.table(parsed.get_ref(), 0..0, "a stream", STREAM_KEYS)?;
        read_stream(&table)
    };
    read().map_err(|error| StreamError {
        wrong: error.wrong,
        allowed: error.allowed,
    })
}

fn read_stream(table: &Table<'_>) -> Result<Stream, JobError> {
    let access = match table.text("access")? {
        None => Access::Random,
        Some(access) => access
            .value
            .parse()
            .map_err(|error: WorkloadError| table.wrong_workload("access", &error))?,
    };
    Ok(Stream {
        share_percent: table.percent("share")?.unwrap_or(100.0),
        operations: read_operations(table)?,
        sizes: read_sizes(table)?,
        align_bytes: table.size("align")?,
        access,
        range_bytes: table.size("range")?,
    })
}

fn read_sizes(table: &Table<'_>) -> Result<Vec<SizeShare>, JobError> {
    match (table.size("block_size")?, table.text("mix")?) {
        (Some(_), Some(_)) => Err(table.wrong_key(
            "mix",
            "there is a block_size and a mix of sizes",
            "leave one of them out",
        )),
        (None, Some(mix)) => {
            parse_sizes(&mix.value).map_err(|error| table.wrong_workload("mix", &error))
        }
        (size, None) => Ok(vec![SizeShare {
            bytes: size.unwrap_or(REQUEST_BYTES),
            percent: 100.0,
        }]),
    }
}

/// What is not said is the rest: reads, or writes where reads are said.
fn read_operations(table: &Table<'_>) -> Result<Operations, JobError> {
    let percent = |key| table.percent(key);
    let (read, write) = (percent("read")?, percent("write")?);
    let deallocate_percent = percent("deallocate")?.unwrap_or(0.0);
    let flush_percent = percent("flush")?.unwrap_or(0.0);
    let said = read.unwrap_or(0.0) + write.unwrap_or(0.0) + deallocate_percent + flush_percent;
    let rest = 100.0 - said;
    let all_said = read.is_some() && write.is_some();
    if rest < -PERCENT_TOLERANCE || (all_said && rest > PERCENT_TOLERANCE) {
        // Written as decimals, not as what their sum is in binary.
        let said = (said * 1e6).round() / 1e6;
        return Err(table.wrong(
            &format!("read, write, deallocate and flush make {said} percent together"),
            "they must make 100; read or write may be left out and is then the rest",
        ));
    }
    let rest = rest.max(0.0);
    let (read_percent, write_percent) = match (read, write) {
        (Some(read), Some(write)) => (read, write),
        (Some(read), None) => (read, rest),
        (None, write) => (rest, write.unwrap_or(0.0)),
    };
    Ok(Operations {
        read_percent,
        write_percent,
        deallocate_percent,
        flush_percent,
    })
}

#[cfg(test)]
mod tests;
