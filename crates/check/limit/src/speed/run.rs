//! Runs contestants: starts what they need, drives them, and reads what they used.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use super::gateway::{self, Gateway, Plan};
use super::options::{Address, Options};
use super::process::{self, Running};
use super::rows::{Contestant, Initiator, Load, Measure, Volume};
use crate::canned::CannedReport;
use crate::client::ClientReport;
use crate::processor::{self, Spent};
use crate::server::ServerReport;
use crate::work::Work;

/// Connections that one `weir bench` makes at most; more of them take more processes.
const QUEUES_OF_ONE_PROCESS: u32 = 125;
/// With more connections than this, making them is left out of the measured time.
const QUEUES_AT_ONCE: u32 = 8;
/// How long making many connections may take, and how far from its ends the measured time stays.
const RAMP_SECONDS: u32 = 4;
const MARGIN: Duration = Duration::from_millis(300);
/// How long a peer that was stopped is given before it is measured.
const AWAKE_AFTER: Duration = Duration::from_millis(100);
/// Of requests that are offered so many may be due and not sent at the end: fewer than a 99th percentile sees.
const UNSENT_SHARE_MAX: f64 = 0.002;
/// The keep-alive timeout of many connections: making them may hold up the first for long.
const KEEP_ALIVE: &str = "kato=120s";
/// Length of the file that is measured locally.
const FILE_BYTES: u64 = 1 << 30;

/// What one run of a contestant was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Operations per second.
    pub iops: f64,
    /// Which part of a processor what answered used.
    pub busy_share: Option<f64>,
    /// The same as its reactors count it, where it is a gateway: without the time that they waited awake.
    pub counted_share: Option<f64>,
    /// Mean latency in microseconds.
    pub mean_us: Option<f64>,
    /// 99th percentile of latency in microseconds.
    pub p99_us: Option<f64>,
    /// Which part of the target's processor the hypervisor took.
    pub stolen_share: f64,
    /// Which part of the target's processor others used, where that is known.
    pub others_share: Option<f64>,
}

impl Sample {
    /// A figure of the run, where it is known.
    #[must_use]
    pub fn figure(&self, measure: Measure) -> Option<f64> {
        let busy = self.busy_share.filter(|share| *share > 0.0);
        match measure {
            Measure::Iops => Some(self.iops),
            Measure::PerBusySecond => busy.map(|share| self.iops / share),
            Measure::BusyPerOperation => busy.map(|share| share / self.iops),
            Measure::BusyShare => self.busy_share,
            Measure::CountedShare => self.counted_share,
            Measure::Mean => self.mean_us,
            Measure::P99 => self.p99_us,
        }
    }
}

/// What an initiator says that it did.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Driven {
    iops: f64,
    /// Seconds in which it did that.
    seconds: f64,
    mean_us: Option<f64>,
    p99_us: Option<f64>,
}

/// Looks at the target's processor while something runs there.
struct Watch {
    processor: usize,
    began: Instant,
    before: Spent,
}

impl Watch {
    fn start(processor: usize) -> anyhow::Result<Self> {
        Ok(Watch {
            processor,
            began: Instant::now(),
            before: processor::spent(processor)?,
        })
    }

    /// Which part of the processor others used since, where what is watched used so much.
    fn others(&self, used: Duration) -> anyhow::Result<f64> {
        let busy = processor::spent(self.processor)?.since(&self.before).busy;
        Ok(busy.saturating_sub(used).as_secs_f64() / self.began.elapsed().as_secs_f64())
    }
}

/// How it is known for how long a target was busy.
enum Busy<'a> {
    /// With so many reactors.
    Gateway(u32),
    Process(u32),
    Command(&'a str),
    Unknown,
}

/// For how many seconds a target was busy, or which part of a time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct BusyTime {
    used: Option<f64>,
    counted: Option<f64>,
}

impl BusyTime {
    fn share(self, before: Self, seconds: f64) -> Self {
        let share = |after: Option<f64>, before: Option<f64>| Some((after? - before?) / seconds);
        BusyTime {
            used: share(self.used, before.used),
            counted: share(self.counted, before.counted),
        }
    }
}

/// Everything that runs.
pub(super) struct Field<'a> {
    options: &'a Options,
    limit: PathBuf,
    folder: PathBuf,
    gateways: RefCell<BTreeMap<u32, Gateway>>,
    file: OnceCell<TempDir>,
    /// Targets whose memory was written: by their URLs.
    written: RefCell<Vec<String>>,
    _peers: [Paused; 2],
}

/// A peer that is stopped, for as long as this lives.
struct Paused(Option<u32>);

impl Paused {
    fn new(process: Option<u32>) -> anyhow::Result<Self> {
        if let Some(process) = process {
            process::signal(process, Signal::STOP).context("--peer-pid")?;
        }
        Ok(Paused(process))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(process) = self.0 {
            // A peer that has ended meanwhile needs nothing.
            let _ = process::signal(process, Signal::CONT);
        }
    }
}

/// A peer that goes on, for as long as this lives.
struct Awake(Option<u32>);

impl Awake {
    fn new(process: Option<u32>) -> anyhow::Result<Self> {
        if let Some(process) = process {
            process::signal(process, Signal::CONT).context("--peer-pid")?;
            std::thread::sleep(AWAKE_AFTER);
        }
        Ok(Awake(process))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(process) = self.0 {
            let _ = process::signal(process, Signal::STOP);
        }
    }
}

impl<'a> Field<'a> {
    /// Nothing runs yet; the peer is stopped.
    pub(super) fn new(options: &'a Options) -> anyhow::Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("weir-limit");
        Ok(Field {
            options,
            limit: options.limit.clone().unwrap_or(beside),
            folder: options.folder.clone().unwrap_or_else(std::env::temp_dir),
            gateways: RefCell::default(),
            file: OnceCell::new(),
            written: RefCell::default(),
            _peers: [
                Paused::new(options.peer_pid)?,
                Paused::new(options.second_pid)?,
            ],
        })
    }

    /// A temporary folder for what is measured.
    pub(super) fn temporary(&self) -> anyhow::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("weir-speed-")
            .tempdir_in(&self.folder)
            .with_context(|| format!("no folder can be made in {}", self.folder.display()))
    }

    /// Why a contestant cannot run.
    pub(super) fn absent(&self, contestant: &Contestant) -> Option<String> {
        match contestant {
            Contestant::Peer { load } if self.options.peer_of(load.volume).is_none() => {
                Some(format!("there is no --peer {}=URL", load.volume.name()))
            }
            Contestant::Second { load } if self.options.second_of(load.volume).is_none() => {
                Some(format!("there is no --second {}=URL", load.volume.name()))
            }
            Contestant::Canned {
                initiator: Initiator::Peer,
                ..
            } if self.options.peer_initiator.is_none() => {
                Some("there is no --peer-initiator".to_owned())
            }
            _ => None,
        }
    }

    /// Runs a contestant once.
    pub(super) fn sample(&self, contestant: &Contestant) -> anyhow::Result<Sample> {
        let processor = self.options.target_processor;
        let before = processor::spent(processor)?;
        let sample = match contestant {
            Contestant::Weir { reactors, load } => self.weir(*reactors, load),
            Contestant::Iscsi { load } => self.iscsi(load),
            Contestant::Peer { load } => self.peer(load),
            Contestant::Second { load } => self.second(load),
            Contestant::Limit { load } => self.limit(load),
            Contestant::Bare {
                work,
                connections,
                depth,
            } => self.bare(*work, *connections, *depth),
            Contestant::Local { fio, load } => self.local(*fio, load),
            Contestant::Canned { initiator, load } => self.canned(*initiator, load),
        }?;
        Ok(Sample {
            stolen_share: processor::spent(processor)?.since(&before).stolen_share(),
            ..sample
        })
    }

    fn weir(&self, reactors: u32, load: &Load) -> anyhow::Result<Sample> {
        let url = self.gateway(reactors, |gateway| gateway.url(gateway::nsid(load.volume)))?;
        self.gateway_at(&url, reactors, load)
    }

    fn iscsi(&self, load: &Load) -> anyhow::Result<Sample> {
        let url = self.gateway(1, |gateway| gateway.iscsi_url(gateway::nsid(load.volume)))?;
        self.gateway_at(&url, 1, load)
    }

    fn gateway_at(&self, url: &str, reactors: u32, load: &Load) -> anyhow::Result<Sample> {
        let process = self.gateway(reactors, Gateway::id)?;
        self.write_once(url, load.volume)?;
        let watch = Watch::start(self.options.target_processor)?;
        let before = processor::time_of(process)?;
        let sample = self.target(url, load, &Busy::Gateway(reactors))?;
        let used = processor::time_of(process)? - before;
        Ok(Sample {
            // Two reactors are on two processors, of which the initiator has one.
            others_share: (reactors == 1).then_some(watch.others(used)?),
            ..sample
        })
    }

    /// Looks at the gateway with so many reactors, which is started where it does not run.
    fn gateway<T>(&self, reactors: u32, look: impl FnOnce(&Gateway) -> T) -> anyhow::Result<T> {
        let mut gateways = self.gateways.borrow_mut();
        let gateway = match gateways.entry(reactors) {
            Entry::Occupied(started) => started.into_mut(),
            Entry::Vacant(place) => {
                let plan = Plan {
                    weir: &self.options.weir,
                    processors: self.processors(reactors),
                    reactors,
                    volumes: gateway::volumes(self.options.protocol),
                    protocol: self.options.protocol,
                };
                place.insert(Gateway::start(&plan, self.temporary()?)?)
            }
        };
        Ok(look(gateway))
    }

    fn processors(&self, reactors: u32) -> String {
        let options = self.options;
        match reactors {
            1 => options.target_processor.to_string(),
            _ => format!(
                "{},{}",
                options.target_processor, options.initiator_processor
            ),
        }
    }

    fn peer(&self, load: &Load) -> anyhow::Result<Sample> {
        let options = self.options;
        let url = options
            .peer_of(load.volume)
            .context("a peer that is not there does not run")?;
        let _awake = Awake::new(options.peer_pid)?;
        self.write_once(url, load.volume)?;
        let busy = match (&options.peer_busy, options.peer_pid) {
            (Some(command), _) => Busy::Command(command),
            (None, Some(process)) => Busy::Process(process),
            (None, None) => Busy::Unknown,
        };
        self.target(url, load, &busy)
    }

    fn second(&self, load: &Load) -> anyhow::Result<Sample> {
        let options = self.options;
        let url = options
            .second_of(load.volume)
            .context("a peer that is not there does not run")?;
        let _awake = Awake::new(options.second_pid)?;
        self.write_once(url, load.volume)?;
        let busy = options.second_pid.map_or(Busy::Unknown, Busy::Process);
        self.target(url, load, &busy)
    }

    /// Memory that was never written may be none: all of it is written before it is measured.
    fn write_once(&self, url: &str, volume: Volume) -> anyhow::Result<()> {
        if volume != Volume::Mem || self.written.borrow().iter().any(|known| known == url) {
            return Ok(());
        }
        let load = Load {
            volume,
            bytes: 128 << 10,
            read_percent: 0,
            sequential: true,
            depth: 32,
            queues: 1,
            rate: None,
            digests: false,
        };
        self.bench(url, &load, 1, 0)?;
        self.written.borrow_mut().push(url.to_owned());
        Ok(())
    }

    /// Drives a target, and sees how busy it was.
    fn target(&self, url: &str, load: &Load, busy: &Busy<'_>) -> anyhow::Result<Sample> {
        let seconds = self.options.seconds;
        if load.queues > QUEUES_AT_ONCE {
            return self.target_with_many_connections(url, load, busy);
        }
        let before = self.busy_seconds(busy)?;
        let driven = self.drive(self.initiator_of(load), url, load, seconds)?;
        let busy = self.busy_seconds(busy)?.share(before, driven.seconds);
        Ok(driven.sample(busy))
    }

    /// As above, with the target looked at while it is under way: making connections costs as much as using them.
    fn target_with_many_connections(
        &self,
        url: &str,
        load: &Load,
        busy: &Busy<'_>,
    ) -> anyhow::Result<Sample> {
        let seconds = self.options.seconds.max(2);
        let processes = load.queues.div_ceil(QUEUES_OF_ONE_PROCESS);
        let share = Load {
            queues: load.queues / processes,
            ..*load
        };
        ensure!(
            share.queues * processes == load.queues,
            "the processes share the queues evenly"
        );
        let mut running = Vec::new();
        for _ in 0..processes {
            running.push(Running::start(&mut self.bench_command(
                url,
                &share,
                seconds,
                RAMP_SECONDS,
            ))?);
        }
        std::thread::sleep(Duration::from_secs(u64::from(RAMP_SECONDS)) + MARGIN);
        let looked_at = Duration::from_secs(u64::from(seconds)) - 2 * MARGIN;
        let (before, began) = (self.busy_seconds(busy)?, Instant::now());
        std::thread::sleep(looked_at);
        let (after, elapsed) = (self.busy_seconds(busy)?, began.elapsed());
        let mut iops = 0.0;
        for process in running {
            iops += bench_report(&process.finish()?)?.iops;
        }
        let driven = Driven {
            iops,
            seconds: f64::from(seconds),
            mean_us: None,
            p99_us: None,
        };
        Ok(driven.sample(after.share(before, elapsed.as_secs_f64())))
    }

    /// Who drives: what only `weir bench` can do, it does.
    fn initiator_of(&self, load: &Load) -> Initiator {
        if load.rate.is_some() || load.digests {
            Initiator::Weir
        } else {
            self.options.initiator
        }
    }

    fn busy_seconds(&self, busy: &Busy<'_>) -> anyhow::Result<BusyTime> {
        Ok(match busy {
            Busy::Unknown => BusyTime::default(),
            Busy::Gateway(reactors) => {
                let gateways = self.gateways.borrow();
                let gateway = gateways.get(reactors).context("a gateway has ended")?;
                let used = self.busy_seconds(&Busy::Process(gateway.id()))?;
                BusyTime {
                    counted: Some(gateway.busy_seconds(self.options.initiator_processor)?),
                    ..used
                }
            }
            Busy::Process(process) => BusyTime {
                used: Some(processor::time_of(*process)?.as_secs_f64()),
                counted: None,
            },
            Busy::Command(command) => {
                let mut shell = process::shell(self.options.initiator_processor, command);
                let text = process::output(&mut shell)?;
                let seconds = last_numbers(&text).first().copied();
                let seconds =
                    seconds.with_context(|| format!("{command} printed no seconds: {text}"))?;
                BusyTime {
                    used: Some(seconds),
                    counted: None,
                }
            }
        })
    }

    fn drive(
        &self,
        initiator: Initiator,
        url: &str,
        load: &Load,
        seconds: u32,
    ) -> anyhow::Result<Driven> {
        match initiator {
            Initiator::Weir => self.bench(url, load, seconds, 0),
            Initiator::Peer => self.peer_initiator(url, load, seconds),
        }
    }

    fn bench(&self, url: &str, load: &Load, seconds: u32, ramp: u32) -> anyhow::Result<Driven> {
        let text = process::output(&mut self.bench_command(url, load, seconds, ramp))?;
        bench_report(&text)
    }

    fn bench_command(&self, url: &str, load: &Load, seconds: u32, ramp: u32) -> Command {
        let processor = self.options.initiator_processor.to_string();
        bench_command(&processor, &self.options.weir, url, load, (seconds, ramp))
    }

    fn peer_initiator(&self, url: &str, load: &Load, seconds: u32) -> anyhow::Result<Driven> {
        let options = self.options;
        let template = options
            .peer_initiator
            .as_deref()
            .context("--peer-initiator is needed")?;
        let text = fill(template, url, load, seconds, options.initiator_processor)?;
        let said = process::output(&mut process::shell(options.initiator_processor, &text))?;
        let numbers = last_numbers(&said);
        let iops = *numbers
            .first()
            .with_context(|| format!("{text} printed no operations per second: {said}"))?;
        Ok(Driven {
            iops,
            seconds: f64::from(seconds),
            mean_us: numbers.get(1).copied(),
            p99_us: numbers.get(2).copied(),
        })
    }

    fn bare(&self, work: Work, connections: u32, depth: u32) -> anyhow::Result<Sample> {
        let (work, connections) = (work.to_string(), connections.to_string());
        let common = |command: &mut Command, role: &str, processor: usize| {
            command.args(["--processor", &processor.to_string(), role, "--spin"]);
            command.args(["--work", &work, "--connections", &connections]);
        };
        let watch = Watch::start(self.options.target_processor)?;
        let mut command = Command::new(&self.limit);
        common(&mut command, "serve", self.options.target_processor);
        let mut server = Running::start(&mut command)?;
        let address = text_of(&server.line()?, "listening")?;
        let mut command = Command::new(&self.limit);
        common(&mut command, "drive", self.options.initiator_processor);
        command.args(["--depth", &depth.to_string()]);
        command.args(["--seconds", &self.options.seconds.to_string(), &address]);
        let driven: ClientReport = serde_json::from_str(&process::output(&mut command)?)?;
        let served: ServerReport = serde_json::from_str(&server.finish()?)?;
        ensure!(
            served.operations == driven.operations,
            "the bare server and client disagree"
        );
        let used = Duration::from_secs_f64(served.processor_seconds);
        Ok(Sample {
            iops: driven.operations as f64 / driven.elapsed_seconds,
            busy_share: Some(served.processor_seconds / driven.elapsed_seconds),
            counted_share: None,
            mean_us: driven.latency_us.map(|latency| latency.mean),
            p99_us: driven.latency_us.map(|latency| latency.p99),
            stolen_share: 0.0,
            others_share: Some(watch.others(used)?),
        })
    }

    /// Starts the canned responder: its process, and its URL.
    fn responder(&self) -> anyhow::Result<(Running, String)> {
        let mut command = Command::new(&self.limit);
        let processor = self.options.target_processor.to_string();
        command.args(["--processor", &processor, "canned"]);
        let mut responder = Running::start(&mut command)?;
        let url = text_of(&responder.line()?, "url")?;
        Ok((responder, url))
    }

    fn limit(&self, load: &Load) -> anyhow::Result<Sample> {
        let watch = Watch::start(self.options.target_processor)?;
        let (responder, url) = self.responder()?;
        let sample = self.target(&url, load, &Busy::Process(responder.id()))?;
        let used = processor::time_of(responder.id())?;
        let _: CannedReport = serde_json::from_str(&responder.end()?)?;
        Ok(Sample {
            others_share: Some(watch.others(used)?),
            ..sample
        })
    }

    fn canned(&self, initiator: Initiator, load: &Load) -> anyhow::Result<Sample> {
        let (responder, url) = self.responder()?;
        let driven = self.drive(initiator, &url, load, self.options.seconds)?;
        let report: CannedReport = serde_json::from_str(&responder.end()?)?;
        // By what it was busy with over the time of the load: connecting takes some programs longer than that.
        Ok(driven.sample(BusyTime {
            used: Some(report.processor_seconds / driven.seconds),
            counted: None,
        }))
    }

    fn local(&self, fio: bool, load: &Load) -> anyhow::Result<Sample> {
        let path = self.local_file()?;
        let processor = self.options.target_processor.to_string();
        let seconds = self.options.seconds;
        let driven = if fio {
            let mut command = fio_command(&processor, &path, load, seconds);
            fio_report(&process::output(&mut command)?)?
        } else {
            let url = format!("file:{}?direct=always", path.display());
            let weir = &self.options.weir;
            let mut command = bench_command(&processor, weir, &url, load, (seconds, 0));
            bench_report(&process::output(&mut command)?)?
        };
        Ok(driven.sample(BusyTime::default()))
    }

    /// A file all of whose blocks are there, so that no run has to allocate any.
    fn local_file(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = self.file.get() {
            return Ok(folder.path().join("volume"));
        }
        let folder = self.temporary()?;
        let path = folder.path().join("volume");
        let mut file = fs::File::create(&path)?;
        let piece = vec![0xa5; 1 << 20];
        for _ in 0..FILE_BYTES >> 20 {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        self.file.get_or_init(|| folder);
        Ok(path)
    }
}

impl Driven {
    fn sample(&self, busy: BusyTime) -> Sample {
        Sample {
            iops: self.iops,
            busy_share: busy.used,
            counted_share: busy.counted,
            mean_us: self.mean_us,
            p99_us: self.p99_us,
            stolen_share: 0.0,
            others_share: None,
        }
    }
}

fn bench_command(
    processor: &str,
    weir: &Path,
    url: &str,
    load: &Load,
    (seconds, ramp): (u32, u32),
) -> Command {
    let mut url = url.to_owned();
    if load.digests {
        url.push_str("&hdgst=1&ddgst=1");
    }
    if load.queues > QUEUES_AT_ONCE {
        url = format!("{url}&{KEEP_ALIVE}");
    }
    let mut command = process::bound(processor, weir);
    command.args([
        "--json",
        "bench",
        &url,
        "--destroy-data",
        &url,
        "--reactors",
        "1",
    ]);
    command.arg(if load.sequential {
        "--sequential"
    } else {
        "--random"
    });
    let mut number = |name: &str, value: u64| {
        command.args([format!("--{name}"), value.to_string()]);
    };
    number("block-size", u64::from(load.bytes));
    number("read-percent", u64::from(load.read_percent));
    number("queue-depth", u64::from(load.depth));
    number("queues", u64::from(load.queues));
    number("duration", u64::from(seconds));
    number("ramp", u64::from(ramp));
    if let Some(rate) = load.rate {
        number("rate", rate);
    }
    command
}

/// What `weir --json bench` says.
fn bench_report(text: &str) -> anyhow::Result<Driven> {
    let report: Value = serde_json::from_str(text).context("weir bench printed no JSON")?;
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
    let want =
        |path: &str| number(path).with_context(|| format!("weir bench's report has no {path}"));
    let (seconds, requests) = (want("/elapsed_seconds")?, want("/total/requests")?);
    let unsent = number("/unsent").unwrap_or(0.0);
    ensure!(
        unsent <= UNSENT_SHARE_MAX * requests,
        "the rate was not kept: {unsent} requests were due and not sent, {requests} were"
    );
    Ok(Driven {
        iops: requests / seconds,
        seconds,
        mean_us: number("/total/latency_ns/mean").map(|nanoseconds| nanoseconds / 1e3),
        p99_us: number("/total/latency_ns/percentile/99").map(|nanoseconds| nanoseconds / 1e3),
    })
}

fn fio_command(processor: &str, path: &Path, load: &Load, seconds: u32) -> Command {
    let mut command = process::bound(processor, "fio");
    command.args([
        "--name=speed",
        "--ioengine=io_uring",
        "--direct=1",
        "--time_based",
    ]);
    command.args(["--output-format=json", "--randrepeat=0", "--thread"]);
    let kind = match (load.sequential, load.read_percent) {
        (false, 100) => "randread",
        (false, _) => "randwrite",
        (true, 100) => "read",
        (true, _) => "write",
    };
    command.arg(format!("--filename={}", path.display()));
    command.arg(format!("--rw={kind}"));
    command.arg(format!("--bs={}", load.bytes));
    command.arg(format!("--iodepth={}", load.depth));
    command.arg(format!("--size={FILE_BYTES}"));
    command.arg(format!("--runtime={seconds}"));
    command
}

/// What fio says; notes may stand before its JSON.
fn fio_report(text: &str) -> anyhow::Result<Driven> {
    let start = text.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&text[start..]).context("fio's JSON")?;
    let number = |path: String| report.pointer(&path).and_then(Value::as_f64);
    let mut driven = None;
    for direction in ["read", "write"] {
        let base = format!("/jobs/0/{direction}");
        let iops = number(format!("{base}/iops")).unwrap_or(0.0);
        if iops > 0.0 {
            let us =
                |path: &str| number(format!("{base}{path}")).map(|nanoseconds| nanoseconds / 1e3);
            driven = Some(Driven {
                iops,
                seconds: number(format!("{base}/runtime")).unwrap_or(0.0) / 1e3,
                mean_us: us("/clat_ns/mean"),
                p99_us: us("/clat_ns/percentile/99.000000"),
            });
        }
    }
    driven.context("fio did nothing")
}

/// A text field of an object.
fn text_of(json: &str, field: &str) -> anyhow::Result<String> {
    let object: Value = serde_json::from_str(json)?;
    let text = object.get(field).and_then(Value::as_str);
    Ok(text
        .with_context(|| format!("no {field} in {json}"))?
        .to_owned())
}

/// The numbers at the start of the last line that is not empty.
fn last_numbers(text: &str) -> Vec<f64> {
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    last.unwrap_or_default()
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok())
        .filter(|number: &f64| number.is_finite())
        .collect()
}

/// A command with its placeholders replaced.
fn fill(
    template: &str,
    url: &str,
    load: &Load,
    seconds: u32,
    processor: usize,
) -> anyhow::Result<String> {
    let address = Address::of(url).map_err(anyhow::Error::msg)?;
    let pattern = if load.sequential {
        "sequential"
    } else {
        "random"
    };
    let values = [
        ("{url}", url.to_owned()),
        ("{host}", address.host),
        ("{port}", address.port.to_string()),
        ("{nqn}", address.nqn),
        ("{nsid}", address.nsid.to_string()),
        ("{size}", load.bytes.to_string()),
        ("{read-percent}", load.read_percent.to_string()),
        ("{pattern}", pattern.to_owned()),
        ("{depth}", load.depth.to_string()),
        ("{queues}", load.queues.to_string()),
        ("{seconds}", seconds.to_string()),
        ("{processor}", processor.to_string()),
    ];
    let mut text = template.to_owned();
    for (name, value) in values {
        text = text.replace(name, &value);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            volume: Volume::Null,
            bytes: 4096,
            read_percent: 100,
            sequential: false,
            depth: 32,
            queues: 4,
            rate: None,
            digests: false,
        }
    }

    #[test]
    fn figures_follow_from_a_sample() {
        let sample = Sample {
            iops: 500_000.0,
            busy_share: Some(0.5),
            counted_share: None,
            mean_us: Some(60.0),
            p99_us: None,
            stolen_share: 0.0,
            others_share: None,
        };
        assert_eq!(sample.figure(Measure::PerBusySecond), Some(1_000_000.0));
        assert_eq!(sample.figure(Measure::BusyPerOperation), Some(1e-6));
        assert_eq!(sample.figure(Measure::P99), None);
        let unknown = Sample {
            busy_share: None,
            ..sample
        };
        assert_eq!(unknown.figure(Measure::PerBusySecond), None);
        assert_eq!(unknown.figure(Measure::Iops), Some(500_000.0));
    }

    #[test]
    fn a_bench_report_is_read() {
        let text = r#"{"elapsed_seconds": 2.0, "unsent": 0, "total": {"requests": 1000,
            "latency_ns": {"mean": 20000.0, "percentile": {"50": 1, "99": 30000}}}}"#;
        let driven = bench_report(text).unwrap();
        assert_eq!((driven.iops, driven.seconds), (500.0, 2.0));
        assert_eq!((driven.mean_us, driven.p99_us), (Some(20.0), Some(30.0)));
        assert!(bench_report("{}").is_err());
        let late = text.replace("\"unsent\": 0", "\"unsent\": 50");
        assert!(
            bench_report(&late)
                .unwrap_err()
                .to_string()
                .contains("not kept")
        );
    }

    #[test]
    fn a_fio_report_is_read_behind_its_notes() {
        let text = r#"note: this is fio
            {"jobs": [{"read": {"iops": 0}, "write": {"iops": 1234.5, "runtime": 3000,
            "clat_ns": {"mean": 5000, "percentile": {"99.000000": 9000}}}}]}"#;
        let driven = fio_report(text).unwrap();
        assert_eq!(
            (driven.iops, driven.seconds, driven.p99_us),
            (1234.5, 3.0, Some(9.0))
        );
        assert!(fio_report("nothing").is_err());
    }

    #[test]
    fn the_last_line_counts() {
        assert_eq!(
            last_numbers("1 2\n500000.5 12 30\n\n"),
            [500_000.5, 12.0, 30.0]
        );
        assert_eq!(last_numbers("7 - 3"), [7.0]);
        assert!(
            last_numbers("").is_empty()
                && last_numbers("a 1").is_empty()
                && last_numbers("inf").is_empty()
        );
    }

    #[test]
    fn a_command_is_filled() {
        let url = "nvme+tcp://127.0.0.1:4420/nqn.2026-01.org.example:a?nsid=2";
        let template = "drive {host} {port} {nqn} {nsid} {size} {read-percent} {pattern} {depth} {queues} {seconds} {processor}";
        let text = fill(template, url, &load(), 3, 1).unwrap();
        assert_eq!(
            text,
            "drive 127.0.0.1 4420 nqn.2026-01.org.example:a 2 4096 100 random 32 4 3 1"
        );
    }

    #[test]
    fn a_load_is_spelled_as_weir_bench_has_it() {
        let load = Load {
            rate: Some(10_000),
            digests: true,
            ..load()
        };
        let command = bench_command(
            "1",
            Path::new("weir"),
            "nvme+tcp://h:1/nqn.a?nsid=1",
            &load,
            (3, 0),
        );
        let said: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let said = said.join(" ");
        for part in [
            "nsid=1&hdgst=1&ddgst=1",
            "--queue-depth 32",
            "--queues 4",
            "--rate 10000",
            "--random",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
