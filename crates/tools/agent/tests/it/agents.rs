//! Agents and a coordinator over real connections, with workers that make no load: what is merged, what is refused, and what a stranger can do.

use std::fs;
use std::net::{SocketAddr, TcpStream as Plain};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use weir_agent::coordinator::{AgentError, Agents, Coordinator, Outcome, Patience};
use weir_agent::frame::{BYTES_MAX, FIRST_BYTES_MAX, Frames, encode};
use weir_agent::merge;
use weir_agent::message::{
    Code, Concluding, Open, OpenVolume, ToAgent, ToCoordinator, Usage, Verify, WrongJob,
};
use weir_agent::server::{
    Agent, Conductor, HALF_OPEN_MAX, HANDSHAKE, Ran, Refusal, Teller, Worker,
};
use weir_agent::tls::{Fingerprint, Identity, Trust};
use weir_agent::token::Token;
use weir_agent::wire::{Conclusion, Unsound, Wrong};
use weir_agent::{KEEP_ALIVE, PROTOCOL};
use weir_lab::document::{Machine, Volume};
use weir_load::bench::{
    BenchConfig, BenchProgress, BenchReport, Interval, IntervalOperation, Latencies, Load,
};
use weir_load::verified::{ConclusionProgress, VerifiedReport};
use weir_load::workload::{Access, Workload};
use weir_load::{Fault, Finding, Stop};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Only a bound: nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a run of the fake worker takes where it is to last.
const LONG: Duration = Duration::from_secs(600);
/// Requests of each interval of a fake run.
const REQUESTS: u64 = 100;

/// Reports what its seed and its place say, without making any load.
struct Fake {
    /// Set when a worker is dropped.
    gone: Arc<AtomicBool>,
    /// Set when a worker has begun a run.
    begun: Arc<AtomicBool>,
    /// Set when a volume that is slow to open may go on.
    opens: Arc<AtomicBool>,
    /// Whether it does nothing when it should begin, until it is stopped.
    is_still: bool,
    /// Whether it tells of more requests than there can be.
    is_boastful: bool,
    /// Whether its first two volumes are one.
    is_one_medium: bool,
    /// What the last run was told to check.
    verify: Option<Verify>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

fn interval(seed: u64, second: u64) -> Interval {
    let mut operations: [IntervalOperation; 4] = Default::default();
    let latency = 1000 * (seed % 1000 + 1);
    operations[0] = IntervalOperation {
        requests: REQUESTS,
        bytes: REQUESTS * 4096,
        errors: 0,
        service: Latencies::pack([(latency, REQUESTS - 1), (latency * 10, 1)].into_iter()),
        response: None,
    };
    Interval {
        start: Duration::from_secs(second),
        length: Duration::from_secs(1),
        operations,
        lag: Latencies::default(),
    }
}

impl Worker for Fake {
    fn open(&mut self, asked: &Open) -> Result<Vec<Volume>, Refusal> {
        let is_asked = |name| asked.volumes.iter().any(|of| of.url == name);
        self.is_still = is_asked("null:still");
        self.is_boastful = is_asked("null:boastful");
        self.is_one_medium = is_asked("null:same");
        let volume = |of: &OpenVolume| match of.url.as_str() {
            "null:slow" => {
                while !self.opens.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(Refusal::new(Code::Open, "too late"))
            }
            "null:secret" => Err(Refusal::new(Code::Address, "not this one")),
            url => Ok(Volume {
                url: url.to_owned(),
                name: url.to_owned(),
                block_size_bytes: 4096,
                length_bytes: 1 << 30,
                transfer_bytes_max: 1 << 20,
                volatile_cache: false,
                operations: None,
            }),
        };
        asked.volumes.iter().map(volume).collect()
    }

    /// Refuses depths above 7.
    fn check(
        &mut self,
        _side: usize,
        configs: Vec<BenchConfig>,
    ) -> Result<Option<WrongJob>, Refusal> {
        let wrong = configs.iter().position(|of| of.load.depth() > 7);
        Ok(wrong.map(|job| WrongJob {
            job,
            text: "it is too deep".to_owned(),
        }))
    }

    fn run(
        &mut self,
        _side: usize,
        configs: Vec<BenchConfig>,
        verify: Option<Verify>,
        mut conductor: Conductor,
    ) -> Result<Ran, Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime can be made");
        self.verify.clone_from(&verify);
        let is_of_wrong_writer = |verify: &Verify| verify.writer == WRONG_WRITER;
        let mut reports: Vec<BenchReport> = configs
            .iter()
            .map(|_| merge::from_intervals(Vec::new(), false))
            .collect();
        let mut is_wrong = false;
        let Some(beginning) = runtime.block_on(conductor.ready()) else {
            return Ok(Ran { reports, is_wrong });
        };
        std::thread::sleep(beginning.remaining());
        let teller = conductor.teller();
        teller.began(beginning);
        self.begun.store(true, Ordering::SeqCst);
        while self.is_still && !configs[0].stop.is_asked() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let lasts = configs[0].duration;
        let began = Instant::now();
        let mut second = 0;
        while second < 2
            || (lasts >= LONG && began.elapsed() < lasts && !configs[0].stop.is_asked())
        {
            is_wrong =
                second >= 2 && !self.is_still && verify.as_ref().is_some_and(is_of_wrong_writer);
            if is_wrong {
                break;
            }
            for (job, (config, report)) in configs.iter().zip(&mut reports).enumerate() {
                // Each agent has another place.
                let place = u64::from(config.among().before);
                let next = interval(config.seed + place, second);
                let mut intervals = std::mem::take(&mut report.intervals);
                intervals.push(next.clone());
                *report = merge::from_intervals(intervals, false);
                report.caveats.clear();
                teller.progress(BenchProgress {
                    job,
                    elapsed: Duration::from_secs(second + 1),
                    total: lasts,
                    ramping: false,
                    interval: Duration::from_secs(1),
                    requests: REQUESTS,
                    bytes: REQUESTS * 4096,
                    errors: 0,
                    intervals: vec![next],
                });
            }
            second += 1;
            if lasts >= LONG {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if self.is_boastful {
            reports[0].operations[0].requests = u64::MAX;
        }
        Ok(Ran { reports, is_wrong })
    }

    fn distinct(&mut self, _side: usize) -> Result<Option<(usize, usize)>, Refusal> {
        Ok(self.is_one_medium.then_some((0, 1)))
    }

    /// Says what it was told to check: the seed, and which agent it is, as an address.
    fn conclude(&mut self, stop: &Stop, teller: &Teller) -> Result<Vec<Conclusion>, Refusal> {
        let Some(verify) = self.verify.take() else {
            return Err(Refusal::new(Code::Run, "nothing was checked"));
        };
        let began = Instant::now();
        while self.is_still && !stop.is_asked() {
            assert!(began.elapsed() < PATIENCE, "it is stopped");
            let progress = ConclusionProgress {
                elapsed: began.elapsed(),
                block: 1,
                blocks: 10,
                searching: false,
            };
            teller.concluding(0, &progress);
            std::thread::sleep(Duration::from_millis(20));
        }
        let of_job = |seed: &u64| match verify.writer == WRONG_WRITER && !self.is_still {
            true => Err(Unsound::Wrong(Wrong {
                requests: 3,
                findings: vec![finding(*seed)],
            })),
            false => Ok(VerifiedReport {
                written_blocks: u64::from(verify.writer),
                compared_blocks: *seed,
                whole: !stop.is_asked(),
            }),
        };
        Ok(verify.seeds.iter().map(of_job).collect())
    }
}

/// The agent that finds something wrong where blocks are checked.
const WRONG_WRITER: u16 = 2;

fn finding(lba: u64) -> Finding {
    Finding {
        fault: Fault::TornWrite,
        lba,
        blocks: 1,
        sequence: 1,
        found: "half of it".to_owned(),
        counterpart: None,
        persists: true,
    }
}

/// An agent in a thread of its own.
struct Running {
    address: SocketAddr,
    fingerprint: Fingerprint,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    gone: Arc<AtomicBool>,
    begun: Arc<AtomicBool>,
    opens: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let identity = Identity::own(folder.path(), &["localhost".to_owned()]);
        Self::start_as(identity.expect("a certificate is made"), folder)
    }

    fn start_as(identity: Identity, folder: tempfile::TempDir) -> Self {
        let fingerprint = identity.fingerprint();
        let gone = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicBool::new(false));
        let opens = Arc::new(AtomicBool::new(false));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (worker_gone, lines) = (Arc::clone(&gone), Arc::clone(&log));
        let (worker_begun, worker_opens) = (Arc::clone(&begun), Arc::clone(&opens));
        let agent = Agent {
            token: Token::new(TOKEN).expect("it is a token"),
            tls: identity.server().expect("it is an identity"),
            version: "0.0.1".to_owned(),
            machine: Machine::default(),
            workers: Arc::new(move || {
                worker_gone.store(false, Ordering::SeqCst);
                Box::new(Fake {
                    gone: Arc::clone(&worker_gone),
                    begun: Arc::clone(&worker_begun),
                    opens: Arc::clone(&worker_opens),
                    is_still: false,
                    is_boastful: false,
                    is_one_medium: false,
                    verify: None,
                })
            }),
            log: Arc::new(move |line| lines.lock().unwrap().push(line.to_owned())),
        };
        let (end, ended) = oneshot::channel::<()>();
        let (told, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
                told.send(listener.local_addr().unwrap()).unwrap();
                agent
                    .serve(listener, async {
                        let _ = ended.await;
                    })
                    .await;
            });
        });
        Running {
            address: address.recv_timeout(PATIENCE).expect("it listens"),
            fingerprint,
            end: Some(end),
            thread: Some(thread),
            gone,
            begun,
            opens,
            log,
            folder,
        }
    }

    fn end(&mut self) {
        self.opens.store(true, Ordering::SeqCst);
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the agent ends well");
        }
    }

    fn until_logged(&self, what: &str) {
        let began = Instant::now();
        loop {
            let log = self.log.lock().unwrap().join("\n");
            if log.contains(what) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what} is not in:\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn block_on<T>(of: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be made").block_on(of)
}

fn agents(of: &[&Running]) -> Agents {
    Agents {
        addresses: of
            .iter()
            .map(|of| of.address.to_string().parse().unwrap())
            .collect(),
        token: Token::new(TOKEN).unwrap(),
        trust: Trust {
            fingerprints: of.iter().map(|of| of.fingerprint).collect(),
            authorities: None,
        },
        name: "first@here".to_owned(),
        version: "0.0.1".to_owned(),
        patience: Patience::default(),
    }
}

fn open() -> Open {
    open_of(&["null:a", "null:b"])
}

/// One side of these volumes.
fn open_of(urls: &[&str]) -> Open {
    let side = urls.iter().map(|url| (*url).to_owned()).collect();
    Open::of_sides(&[side], 1, 1, Usage::Reads).expect("they can be counted")
}

fn config(duration: Duration) -> BenchConfig {
    BenchConfig {
        workload: Workload::simple(4096, 100, Access::Random),
        load: Load::Closed { depth: 1 },
        queues: 1,
        among: None,
        duration,
        ramp: Duration::ZERO,
        interval: Duration::from_secs(1),
        seed: 7,
        stop: Stop::new(),
    }
}

/// Connects once.
async fn try_connect(agents: &Agents) -> Result<Coordinator, AgentError> {
    Coordinator::connect(agents, &Stop::new()).await
}

/// Connects, and tries again where one of the two ends had no processor for so long that a time-out of the other expired. The agent may
/// belong to the attempt before for a moment then.
async fn connect(agents: &Agents) -> Result<Coordinator, AgentError> {
    let (began, mut was_cut) = (Instant::now(), false);
    loop {
        let error = match try_connect(agents).await {
            Ok(coordinator) => return Ok(coordinator),
            Err(error) => error,
        };
        let is_cut = matches!(
            error,
            AgentError::Silent { .. } | AgentError::Lost { .. } | AgentError::Tls { .. }
        );
        let is_left = matches!(
            error,
            AgentError::Refused {
                code: Code::Busy,
                ..
            }
        );
        was_cut |= is_cut;
        let goes_on = is_cut || (was_cut && is_left);
        if !goes_on || began.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn run(coordinator: &mut Coordinator, duration: Duration) -> Outcome {
    let configs = [config(duration), config(duration)];
    let (stop, mut nothing) = (Stop::new(), |_| {});
    let run = coordinator.run(0, &configs, &stop, &mut nothing);
    let outcome = tokio::time::timeout(PATIENCE, run).await;
    outcome.expect("it ends").expect("it is run")
}

async fn refused(agents: &Agents) -> AgentError {
    match connect(agents).await {
        Ok(_) => panic!("it was let in"),
        Err(error) => error,
    }
}

#[test]
fn what_several_agents_measured_is_merged() {
    let (one, two, three) = (Running::start(), Running::start(), Running::start());
    block_on(async {
        let mut coordinator = connect(&agents(&[&one, &two, &three])).await.unwrap();
        let sides = coordinator.open(&open(), &Stop::new()).await.unwrap();
        assert_eq!(sides[0].len(), 2);
        assert_eq!(coordinator.strangers().count(), 0);
        // More than one run over the same connections.
        for _ in 0..2 {
            let mut ticks = Vec::new();
            let configs = [
                config(Duration::from_secs(2)),
                config(Duration::from_secs(2)),
            ];
            let outcome = coordinator
                .run(0, &configs, &Stop::new(), &mut |tick| ticks.push(tick))
                .await
                .unwrap();
            assert!(outcome.error.is_none(), "{:?}", outcome.error);
            assert_eq!(outcome.parts.len(), 3);
            assert!(outcome.spread.is_some());
            for (volume, report) in outcome.merged.iter().enumerate() {
                assert_eq!(report.requests(), 3 * 2 * REQUESTS);
                assert_eq!(report.intervals.len(), 2);
                assert_eq!(report.intervals[1].requests(), 3 * REQUESTS);
                let mut sum = outcome.parts[0].reports[volume].latency_ns();
                for part in &outcome.parts[1..] {
                    sum.add(part.reports[volume].latency_ns()).unwrap();
                }
                assert_eq!(report.latency_ns(), sum);
            }
            assert!(outcome.parts.iter().all(|part| part.seed == 7));
            // Each had its own queues.
            let latency = |part: usize| outcome.parts[part].reports[0].latency_ns().min();
            assert!(latency(0) < latency(1) && latency(1) < latency(2));
            let told: u64 = ticks.iter().map(|tick| tick.requests).sum();
            assert_eq!(told, 3 * 2 * 2 * REQUESTS);
            let measured: u64 = ticks
                .iter()
                .flat_map(|tick| &tick.intervals)
                .map(Interval::requests)
                .sum();
            assert_eq!(measured, told);
        }
        coordinator.close().await;
    });
    one.until_logged("it is done");
}

#[test]
fn sides_may_share_volumes_and_a_job_that_cannot_be_run_is_told_before() {
    let (one, two) = (Running::start(), Running::start());
    block_on(async {
        let mut coordinator = connect(&agents(&[&one, &two])).await.unwrap();
        let asked = Open {
            sides: vec![vec![1], vec![0, 1, 0]],
            ..open()
        };
        let stop = Stop::new();
        let sides = coordinator.open(&asked, &stop).await.unwrap();
        let names: Vec<Vec<_>> = sides
            .iter()
            .map(|side| side.iter().map(|of| of.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["null:b"], vec!["null:a", "null:b", "null:a"]]);
        let good = config(Duration::from_secs(2));
        let deep = BenchConfig {
            load: Load::Closed { depth: 8 },
            ..good.clone()
        };
        let phase = [good.clone(), good.clone(), deep];
        let error = coordinator.check(1, &phase, &stop).await.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, AgentError::Job { job: 2, .. }), "{said}");
        assert!(
            said.contains(&one.address.to_string()) && said.contains("too deep"),
            "{said}"
        );
        let phase = [good.clone(), good.clone(), good];
        coordinator.check(1, &phase, &stop).await.unwrap();
        let outcome = coordinator
            .run(1, &phase, &stop, &mut |_| {})
            .await
            .unwrap();
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.merged.len(), 3);
        coordinator.close().await;
    });
}

const SEEDS: [u64; 2] = [50, 60];

/// Blocks are checked, each agent's by itself; one that finds something wrong ends the run of all, and all conclude.
#[test]
fn agents_check_blocks_of_their_own_and_one_that_finds_something_ends_the_run() {
    let (one, two) = (Running::start(), Running::start());
    block_on(async {
        let mut coordinator = connect(&agents(&[&one, &two])).await.unwrap();
        coordinator.open(&open(), &Stop::new()).await.unwrap();
        coordinator.check_distinct(0, &Stop::new()).await.unwrap();
        let (configs, stop) = ([config(LONG), config(LONG)], Stop::new());
        let mut nothing = |_| {};
        let run = coordinator.run_verified(0, &configs, &SEEDS, &stop, &mut nothing);
        let outcome = tokio::time::timeout(PATIENCE, run).await;
        let outcome = outcome.expect("it ends").expect("it was run");
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert!(!stop.is_asked(), "the user did not ask for it");
        let concluded = coordinator.conclude(&stop, &mut |_, _| {}).await;
        let each = concluded.into_iter().map(|of| of.expect("it is there"));
        let [first, second] = each.collect::<Vec<_>>().try_into().unwrap();
        let sound = |seed| {
            Ok(VerifiedReport {
                written_blocks: 1,
                compared_blocks: seed,
                whole: true,
            })
        };
        let wrong = |seed| {
            Err(Unsound::Wrong(Wrong {
                requests: 3,
                findings: vec![finding(seed)],
            }))
        };
        assert_eq!(first, SEEDS.map(sound));
        assert_eq!(second, SEEDS.map(wrong));
        // Without a run that checked there is nothing to conclude.
        let outcome = run_again(&mut coordinator).await;
        assert!(outcome.error.is_none());
        for concluded in coordinator.conclude(&stop, &mut |_, _| {}).await {
            let error = concluded.unwrap_err().to_string();
            assert!(error.contains("nothing was checked"), "{error}");
        }
        coordinator.close().await;
    });
}

async fn run_again(coordinator: &mut Coordinator) -> Outcome {
    run(coordinator, Duration::from_secs(2)).await
}

/// Who ends a conclusion gets what was found until then; of a lost agent there is an error, and what the others found.
#[test]
fn a_conclusion_that_is_ended_and_one_without_an_agent_are_told_as_such() {
    let (one, mut two) = (Running::start(), Running::start());
    let name = two.address.to_string();
    let both = agents(&[&one, &two]);
    block_on(async {
        let mut coordinator = connect(&both).await.unwrap();
        let still = open_of(&["null:still", "null:b"]);
        coordinator.open(&still, &Stop::new()).await.unwrap();
        let (configs, stop) = ([config(LONG), config(LONG)], Stop::new());
        let (loading, mut nothing) = (Stop::new(), |_| {});
        let ends = loading.clone();
        let run = coordinator.run_verified(0, &configs, &SEEDS, &loading, &mut nothing);
        let begun = [Arc::clone(&one.begun), Arc::clone(&two.begun)];
        let end = async {
            let began = Instant::now();
            while !begun.iter().all(|of| of.load(Ordering::SeqCst)) {
                assert!(began.elapsed() < PATIENCE, "they do not begin");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            ends.stop();
        };
        let (outcome, ()) = tokio::join!(run, end);
        assert!(outcome.unwrap().error.is_none());
        let mut told = [false; 2];
        let asked = stop.clone();
        let mut tell = |agent: usize, progress: Concluding| {
            told[agent] = progress.blocks == 10;
            if told == [true; 2] {
                asked.stop();
            }
        };
        let concluded = coordinator.conclude(&stop, &mut tell);
        let concluded = tokio::time::timeout(PATIENCE, concluded).await;
        for concluded in concluded.expect("it ends") {
            let reports = concluded.expect("it is there");
            assert!(reports.iter().all(|of| !of.as_ref().unwrap().whole));
        }
        tokio::task::spawn_blocking(move || two.end())
            .await
            .unwrap();
        let (stop, mut nothing) = (Stop::new(), |_: usize, _: Concluding| {});
        let concluded = coordinator.conclude(&stop, &mut nothing);
        let concluded = tokio::time::timeout(PATIENCE, concluded).await;
        let [first, second] = concluded.expect("it ends").try_into().unwrap();
        // It has told what it checked.
        assert!(first.is_err());
        let error = second.unwrap_err().to_string();
        assert!(error.contains(&name), "{error}");
    });
}

#[test]
fn volumes_that_are_one_medium_for_an_agent_are_told() {
    let one = Running::start();
    block_on(async {
        let mut coordinator = connect(&agents(&[&one])).await.unwrap();
        let same = open_of(&["null:same", "null:b"]);
        coordinator.open(&same, &Stop::new()).await.unwrap();
        let error = coordinator.check_distinct(0, &Stop::new()).await;
        let error = error.unwrap_err();
        assert!(
            matches!(
                error,
                AgentError::Same {
                    one: 0,
                    other: 1,
                    ..
                }
            ),
            "{error}"
        );
    });
}

/// Agents that write over one another's blocks could find nothing that is true.
#[test]
fn an_agent_checks_nothing_that_is_not_its_own() {
    let one = Running::start();
    let job = weir_agent::wire::JobOnWire::of(&config(LONG));
    block_on(async {
        let ask = |verify: Verify| {
            let run = ToAgent::Run {
                side: 0,
                jobs: vec![job.clone(), job.clone()],
                verify: Some(verify),
            };
            encode(&run).unwrap()
        };
        let shared = Verify {
            seeds: SEEDS.to_vec(),
            writer: 1,
        };
        let run = ask(shared);
        let (mut stream, mut frames) = opened(&one, "far@away").await;
        stream.write_all(&run).await.unwrap();
        let is_refused = |said: &ToCoordinator| {
            let ToCoordinator::Refused { code, text } = said else {
                return false;
            };
            *code == Code::Message && text.contains("blocks of its own")
        };
        until(&mut stream, &mut frames, is_refused).await;
    });
}

#[test]
fn more_queues_than_can_be_counted_are_refused() {
    let (one, two) = (Running::start(), Running::start());
    block_on(async {
        let mut coordinator = connect(&agents(&[&one, &two])).await.unwrap();
        coordinator.open(&open(), &Stop::new()).await.unwrap();
        let config = BenchConfig {
            queues: 1 << 31,
            ..config(Duration::from_secs(1))
        };
        let error = coordinator
            .run(0, &[config.clone(), config], &Stop::new(), &mut |_| {})
            .await
            .unwrap_err();
        assert!(error.to_string().contains("2 agents"), "{error}");
    });
}

#[test]
fn a_user_who_ends_it_before_it_begins_gets_an_error() {
    let one = Running::start();
    block_on(async {
        let stop = Stop::new();
        stop.stop();
        let connected = Coordinator::connect(&agents(&[&one]), &stop).await;
        let error = connected.map(drop).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
        let began = Instant::now();
        let mut coordinator = loop {
            match connect(&agents(&[&one])).await {
                Ok(coordinator) => break coordinator,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
        };
        let error = coordinator.open(&open(), &stop).await.unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
    });
    let other = Running::start();
    block_on(async {
        let mut coordinator = connect(&agents(&[&other])).await.unwrap();
        coordinator.open(&open(), &Stop::new()).await.unwrap();
        let (configs, stop) = ([config(LONG), config(LONG)], Stop::new());
        stop.stop();
        let mut nothing = |_| {};
        let run = coordinator.run(0, &configs, &stop, &mut nothing);
        let run = tokio::time::timeout(PATIENCE, run).await;
        let error = run.expect("it ends").expect_err("nothing was measured");
        assert!(
            error.to_string().contains("nothing was measured"),
            "{error}"
        );
    });
}

/// It answers pings all the while.
#[test]
fn an_agent_that_stands_still_is_lost() {
    let one = Running::start();
    let asked = |url: &str| open_of(&[url]);
    block_on(async {
        let short = |prepare, progress| Agents {
            patience: Patience { prepare, progress },
            ..agents(&[&one])
        };
        let (moment, long) = (Duration::from_millis(300), PATIENCE);
        let mut coordinator = connect(&short(moment, long)).await.unwrap();
        let error = coordinator.open(&asked("null:slow"), &Stop::new()).await;
        let error = error.unwrap_err();
        assert!(matches!(error, AgentError::Lost { .. }), "{error}");
        assert!(error.to_string().contains("did not open"), "{error}");
        one.opens.store(true, Ordering::SeqCst);
        drop(coordinator);
        let began = Instant::now();
        let mut coordinator = loop {
            match connect(&short(long, moment)).await {
                Ok(coordinator) => break coordinator,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let opened = coordinator.open(&asked("null:still"), &Stop::new()).await;
        opened.unwrap();
        let (configs, stop) = ([config(LONG)], Stop::new());
        let mut nothing = |_| {};
        let run = coordinator.run(0, &configs, &stop, &mut nothing);
        let run = tokio::time::timeout(PATIENCE, run).await;
        let outcome = run.expect("it ends").expect("it was run");
        let error = outcome.error.expect("it is lost").to_string();
        assert!(error.contains("made no progress"), "{error}");
        assert!(error.contains(&one.address.to_string()), "{error}");
    });
}

#[test]
fn who_does_not_ask_for_the_protocol_is_not_heard() {
    let one = Running::start();
    let trust = Trust {
        fingerprints: vec![one.fingerprint],
        authorities: None,
    };
    block_on(async {
        let (config, _) = trust.client().unwrap();
        let mut config = rustls::ClientConfig::clone(&config);
        config.alpn_protocols.clear();
        let mut stream = secured_with(&one, Arc::new(config)).await;
        // It may have hung up already.
        let _ = stream.write_all(&hello(TOKEN, PROTOCOL, "x")).await;
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        assert_eq!(said, b"");
    });
    one.until_logged("does not ask for weir-agent/3");
}

#[test]
fn a_lost_agent_is_an_error_and_what_was_measured_is_kept() {
    let (one, mut two) = (Running::start(), Running::start());
    let name = two.address.to_string();
    let both = agents(&[&one, &two]);
    let (outcome, again) = block_on(async {
        let mut coordinator = connect(&both).await.unwrap();
        coordinator.open(&open(), &Stop::new()).await.unwrap();
        let configs = [config(LONG), config(LONG)];
        let (seen, is_seen) = oneshot::channel::<()>();
        let mut seen = Some(seen);
        let stop = Stop::new();
        let mut tell = |tick: weir_agent::coordinator::Tick| {
            if tick.agent == 1
                && let Some(seen) = seen.take()
            {
                seen.send(()).unwrap();
            }
        };
        let run = coordinator.run(0, &configs, &stop, &mut tell);
        let lose = async {
            is_seen.await.unwrap();
            tokio::task::spawn_blocking(move || two.end())
                .await
                .unwrap();
        };
        let (outcome, ()) = tokio::join!(tokio::time::timeout(PATIENCE, run), lose);
        let outcome = outcome.expect("it ends").expect("it was run");
        let mut nothing = |_| {};
        let again = coordinator.run(0, &configs, &stop, &mut nothing);
        // It is not waited for: that would take as long as an agent may take to be ready.
        let again = tokio::time::timeout(PATIENCE, again).await;
        (outcome, again.expect("it is known to be lost"))
    });
    let error = outcome.error.as_ref().expect("an error").to_string();
    assert!(error.contains(&name), "{error}");
    let again = again.expect_err("one is lost").to_string();
    assert!(
        again.starts_with(&format!("agent {name} is lost: before this run")),
        "{again}"
    );
    assert!(outcome.parts[1].error.is_some() && outcome.parts[0].error.is_none());
    // The other one was stopped, and what it measured is whole.
    assert!(outcome.parts[0].reports[0].requests() >= 2 * REQUESTS);
    assert!(outcome.parts[1].reports[0].requests() >= REQUESTS);
    assert_eq!(
        outcome.merged[0].requests(),
        outcome.parts[0].reports[0].requests() + outcome.parts[1].reports[0].requests()
    );
}

#[test]
fn agents_that_tell_of_more_than_can_be_are_lost() {
    let (one, two) = (Running::start(), Running::start());
    let both = agents(&[&one, &two]);
    let outcome = block_on(async {
        let mut coordinator = connect(&both).await.unwrap();
        let boastful = open_of(&["null:boastful", "null:b"]);
        coordinator.open(&boastful, &Stop::new()).await.unwrap();
        run(&mut coordinator, Duration::from_secs(2)).await
    });
    let error = outcome.error.as_ref().expect("an error").to_string();
    assert!(error.contains("the number of requests"), "{error}");
    assert!(outcome.parts.iter().all(|part| part.error.is_some()));
    // What they told before holds.
    let told = outcome.parts.iter().map(|part| part.reports[0].requests());
    assert_eq!(outcome.merged[0].requests(), told.sum::<u64>());
}

#[test]
fn a_user_ends_a_run_and_that_is_no_error() {
    let one = Running::start();
    block_on(async {
        let mut coordinator = connect(&agents(&[&one])).await.unwrap();
        coordinator.open(&open(), &Stop::new()).await.unwrap();
        let stop = Stop::new();
        let configs = [config(LONG), config(LONG)];
        let asked = stop.clone();
        let mut tell = |_| asked.stop();
        let run = coordinator.run(0, &configs, &stop, &mut tell);
        let outcome = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert!(outcome.merged[0].requests() >= 2 * REQUESTS);
    });
}

#[test]
fn a_wrong_token_a_wrong_certificate_and_a_second_coordinator_are_refused_in_words() {
    let one = Running::start();
    let right = agents(&[&one]);
    let wrong_token = Agents {
        token: Token::new("fedcba9876543210").unwrap(),
        ..right.clone()
    };
    let other: Fingerprint = "00".repeat(32).parse().unwrap();
    let wrong_certificate = Agents {
        trust: Trust {
            fingerprints: vec![other],
            authorities: None,
        },
        ..right.clone()
    };
    let twice = agents(&[&one, &one]);
    block_on(async {
        let error = refused(&wrong_token).await;
        let said = error.to_string();
        assert!(
            matches!(
                error,
                AgentError::Refused {
                    code: Code::Token,
                    ..
                }
            ),
            "{said}"
        );
        assert!(
            said.contains("token file") && said.contains(&one.address.to_string()),
            "{said}"
        );
        let said = refused(&wrong_certificate).await.to_string();
        assert!(said.contains(&one.fingerprint.to_string()), "{said}");
        assert!(refused(&twice).await.to_string().contains("named twice"));

        let mut first = connect(&right).await.unwrap();
        let error = refused(&right).await;
        let said = error.to_string();
        assert!(
            matches!(
                error,
                AgentError::Refused {
                    code: Code::Busy,
                    ..
                }
            ),
            "{said}"
        );
        assert!(said.contains("first@here"), "{said}");
        // The first one does not notice.
        first.open(&open(), &Stop::new()).await.unwrap();
        let outcome = run(&mut first, Duration::from_secs(2)).await;
        assert!(outcome.error.is_none());
        first.close().await;
        one.until_logged("it is done");
        connect(&right).await.expect("it is free again");
    });
}

#[test]
fn what_an_agent_may_not_open_is_refused_with_its_name() {
    let one = Running::start();
    block_on(async {
        let mut coordinator = connect(&agents(&[&one])).await.unwrap();
        let asked = open_of(&["null:secret"]);
        let error = coordinator.open(&asked, &Stop::new()).await.unwrap_err();
        let said = error.to_string();
        assert!(
            matches!(
                error,
                AgentError::Refused {
                    code: Code::Address,
                    ..
                }
            ),
            "{said}"
        );
        assert!(
            said.contains(&one.address.to_string()) && said.contains("not this one"),
            "{said}"
        );
    });
}

#[test]
fn a_run_ends_when_its_coordinator_goes_or_falls_silent() {
    let one = Running::start();
    let job = |duration| weir_agent::wire::JobOnWire::of(&config(duration));
    let begin = |duration| {
        let run = ToAgent::Run {
            side: 0,
            jobs: vec![job(duration), job(duration)],
            verify: None,
        };
        [
            encode(&run).unwrap(),
            encode(&ToAgent::Start { after_ns: 0 }).unwrap(),
        ]
        .concat()
    };
    block_on(async {
        for is_silent in [false, true] {
            let (mut stream, mut frames) = opened(&one, "short@life").await;
            let began = Instant::now();
            stream.write_all(&begin(LONG)).await.unwrap();
            until(&mut stream, &mut frames, |said| {
                matches!(said, ToCoordinator::Progress(_))
            })
            .await;
            assert!(!one.gone.load(Ordering::SeqCst));
            if is_silent {
                // It is told until the agent has enough.
                let mut bytes = vec![0; 1 << 16];
                while stream.read(&mut bytes).await.unwrap_or(0) > 0 {}
                assert!(began.elapsed() >= KEEP_ALIVE - Duration::from_secs(2));
            }
            drop(stream);
            let began = Instant::now();
            while !one.gone.load(Ordering::SeqCst) {
                assert!(began.elapsed() < PATIENCE, "the run goes on");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    one.until_logged("nothing was heard of it");
}

/// Nobody else could have the agent until then.
#[test]
fn a_run_begins_soon_or_is_refused() {
    let one = Running::start();
    let job = weir_agent::wire::JobOnWire::of(&config(LONG));
    block_on(async {
        let run = ToAgent::Run {
            side: 0,
            jobs: vec![job.clone(), job],
            verify: None,
        };
        let (mut stream, mut frames) = opened(&one, "far@away").await;
        stream.write_all(&encode(&run).unwrap()).await.unwrap();
        let start = ToAgent::Start { after_ns: u64::MAX };
        stream.write_all(&encode(&start).unwrap()).await.unwrap();
        let is_refused = |said: &ToCoordinator| {
            matches!(
                said,
                ToCoordinator::Refused {
                    code: Code::Message,
                    ..
                }
            )
        };
        until(&mut stream, &mut frames, is_refused).await;
        drop(stream);
        still_serves(&one).await;
    });
}

fn hello(token: &str, protocol: &str, name: &str) -> Vec<u8> {
    let hello = ToAgent::Hello {
        protocol: protocol.to_owned(),
        version: "0.0.2".to_owned(),
        name: name.to_owned(),
        token: token.to_owned(),
    };
    encode(&hello).expect("it is short")
}

type Secured = tokio_rustls::client::TlsStream<TcpStream>;

/// A connection with TLS; tried again while there are too many others.
async fn secured(of: &Running) -> Secured {
    let trust = Trust {
        fingerprints: vec![of.fingerprint],
        authorities: None,
    };
    let (config, _) = trust.client().unwrap();
    secured_with(of, config).await
}

async fn secured_with(of: &Running, config: Arc<rustls::ClientConfig>) -> Secured {
    let began = Instant::now();
    loop {
        let stream = TcpStream::connect(of.address).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let connector = TlsConnector::from(Arc::clone(&config));
        match connector.connect(name, stream).await {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until(stream: &mut Secured, frames: &mut Frames, is_it: impl Fn(&ToCoordinator) -> bool) {
    assert!(is_said(stream, frames, is_it).await, "it hung up");
}

/// Reads until it says this, or hangs up.
async fn is_said(
    stream: &mut Secured,
    frames: &mut Frames,
    is_it: impl Fn(&ToCoordinator) -> bool,
) -> bool {
    let mut bytes = vec![0; 1 << 16];
    loop {
        while let Some(said) = frames.take::<ToCoordinator>().unwrap() {
            if is_it(&said) {
                return true;
            }
        }
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await;
        let Ok(read @ 1..) = read.expect("it answers") else {
            return false;
        };
        frames.push(&bytes[..read]);
    }
}

/// A connection whose volumes are open; tried again while the agent belongs to the one before.
async fn opened(of: &Running, name: &str) -> (Secured, Frames) {
    let began = Instant::now();
    let greeting = [
        hello(TOKEN, PROTOCOL, name),
        encode(&ToAgent::Open(open())).unwrap(),
    ]
    .concat();
    loop {
        let (mut stream, mut frames) = (secured(of).await, Frames::of_known());
        let is_open = |said: &ToCoordinator| matches!(said, ToCoordinator::Opened { .. });
        let sent = stream.write_all(&greeting).await;
        if sent.is_ok() && is_said(&mut stream, &mut frames, is_open).await {
            return (stream, frames);
        }
        assert!(began.elapsed() < PATIENCE, "it does not open volumes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns its answer to `bytes`, up to its hanging up. It gives none when the time for a greeting is over; then it is asked again.
async fn answers(of: &Running, bytes: &[u8]) -> Vec<ToCoordinator> {
    let began = Instant::now();
    loop {
        let said = answers_once(of, bytes).await;
        if !said.is_empty() {
            return said;
        }
        assert!(began.elapsed() < PATIENCE, "it says nothing");
    }
}

async fn answers_once(of: &Running, bytes: &[u8]) -> Vec<ToCoordinator> {
    let mut stream = secured(of).await;
    // It may hang up before all of it is written.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let (mut frames, mut said, mut bytes) = (Frames::of_known(), Vec::new(), vec![0; 1 << 16]);
    let patience = HANDSHAKE + PATIENCE;
    while let Ok(read) = tokio::time::timeout(patience, stream.read(&mut bytes))
        .await
        .unwrap()
    {
        if read == 0 {
            break;
        }
        frames.push(&bytes[..read]);
        while let Some(message) = frames.take().unwrap() {
            said.push(message);
        }
    }
    said
}

fn codes(said: &[ToCoordinator]) -> Vec<Code> {
    said.iter()
        .filter_map(|said| match said {
            ToCoordinator::Refused { code, .. } => Some(*code),
            _ => None,
        })
        .collect()
}

async fn still_serves(of: &Running) {
    let began = Instant::now();
    loop {
        match connect(&agents(&[of])).await {
            Ok(mut coordinator) => {
                coordinator.open(&open(), &Stop::new()).await.unwrap();
                let outcome = run(&mut coordinator, Duration::from_secs(2)).await;
                assert!(outcome.error.is_none(), "{:?}", outcome.error);
                return;
            }
            // The one before has not been cleared away yet.
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn strangers_are_heard_for_little() {
    let one = Running::start();
    let long = |bytes: u32| [&bytes.to_be_bytes()[..], &[b' '; 100]].concat();
    block_on(async {
        let other = hello(TOKEN, "weir-agent/99", "later");
        let said = answers(&one, &other).await;
        assert_eq!(codes(&said), [Code::Protocol]);
        let text = format!("{said:?}");
        assert!(
            text.contains(PROTOCOL) && text.contains("weir-agent/99"),
            "{text}"
        );
        for (what, bytes, code) in [
            (
                "an open without a hello",
                encode(&ToAgent::Open(open())).unwrap(),
                Code::Message,
            ),
            (
                "too long for a stranger",
                long(FIRST_BYTES_MAX as u32 + 1),
                Code::Message,
            ),
            ("as long as can be said", long(u32::MAX), Code::Message),
            ("nothing", long(0), Code::Message),
            (
                "no JSON",
                [&4u32.to_be_bytes()[..], b"{{{{"].concat(),
                Code::Message,
            ),
            (
                "JSON of something else",
                [&2u32.to_be_bytes()[..], b"{}"].concat(),
                Code::Message,
            ),
            (
                "half a hello",
                hello(TOKEN, PROTOCOL, "x")[..20].to_vec(),
                Code::Message,
            ),
            (
                "a wrong token",
                hello("fedcba9876543210", PROTOCOL, "x"),
                Code::Token,
            ),
            ("no token", hello("", PROTOCOL, "x"), Code::Token),
        ] {
            assert_eq!(codes(&answers(&one, &bytes).await), [code], "{what}");
        }
        // Known now, and no better.
        for (what, more) in [
            ("too long for anybody", long(BYTES_MAX as u32 + 1)),
            (
                "a run before volumes",
                encode(&ToAgent::Run {
                    side: 0,
                    jobs: Vec::new(),
                    verify: None,
                })
                .unwrap(),
            ),
            ("a second hello", hello(TOKEN, PROTOCOL, "x")),
            (
                "no volumes",
                encode(&ToAgent::Open(Open {
                    sides: vec![Vec::new()],
                    ..open()
                }))
                .unwrap(),
            ),
            (
                "a volume that is not there",
                encode(&ToAgent::Open(Open {
                    sides: vec![vec![0, 2]],
                    ..open()
                }))
                .unwrap(),
            ),
            (
                "a check before volumes",
                encode(&ToAgent::Check {
                    side: 0,
                    jobs: Vec::new(),
                })
                .unwrap(),
            ),
        ] {
            let bytes = [hello(TOKEN, PROTOCOL, "known"), more].concat();
            let mut said = answers(&one, &bytes).await;
            // The coordinator before has not been cleared away yet.
            while codes(&said) == [Code::Busy] {
                said = answers(&one, &bytes).await;
            }
            assert!(
                matches!(said[0], ToCoordinator::Welcome { .. }),
                "{what}: {said:?}"
            );
            assert_eq!(codes(&said), [Code::Message], "{what}");
            still_serves(&one).await;
        }
    });
}

#[test]
fn any_bytes_do_no_harm() {
    let seed = weir_reactor::sim::seed_from_env_or_random();
    println!("seed {seed}");
    let mut noise = weir_reactor::random::Random::new(seed);
    let one = Running::start();
    block_on(async {
        for _ in 0..20 {
            // Not even TLS.
            let mut plain = TcpStream::connect(one.address).await.unwrap();
            let _ = plain.write_all(&noise.bytes(600)).await;
        }
        for round in 0..60 {
            let mut bytes = match round % 3 {
                0 => Vec::new(),
                _ => hello(TOKEN, PROTOCOL, "noise"),
            };
            if round % 3 == 2 {
                bytes.extend(encode(&ToAgent::Open(open())).unwrap());
                let job = weir_agent::wire::JobOnWire::of(&config(Duration::from_secs(1)));
                let mut text = encode(&ToAgent::Run {
                    side: 0,
                    jobs: vec![job.clone(), job],
                    verify: None,
                })
                .unwrap();
                for _ in 0..noise.next() % 4 {
                    let at = 4 + noise.next() as usize % (text.len() - 4);
                    text[at] = noise.next() as u8;
                }
                bytes.extend(text);
            }
            let garbage = noise.bytes(300);
            // Announced as what it is, so that it is read, or not.
            if noise.next().is_multiple_of(2) {
                bytes.extend((garbage.len() as u32).to_be_bytes());
            }
            bytes.extend(garbage);
            let mut stream = secured(&one).await;
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        still_serves(&one).await;
    });
}

#[test]
fn silent_strangers_do_not_keep_others_out_for_long() {
    let one = Running::start();
    let began = Instant::now();
    let silent: Vec<_> = (0..4 * HALF_OPEN_MAX)
        .map(|_| Plain::connect(one.address).expect("it is accepted by the system at least"))
        .collect();
    one.until_logged("too many connections");
    one.until_logged("which are not told for a while");
    block_on(still_serves(&one));
    // Of strangers 11 lines in 10 s, however many there are; of each coordinator 2.
    let lines = one.log.lock().unwrap().len() as u64;
    let most = 11 * (began.elapsed().as_secs() / 10 + 1) + 20;
    assert!(lines < most, "{lines} lines");
    drop(silent);
}

/// A certificate that an authority signed, and the authority, as files.
fn signed(folder: &Path, name: &str, until_year: i32) -> (Identity, PathBuf) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(until_year, 1, 1);
    let certificate = parameters.signed_by(&key, &issuer).unwrap();
    let path = |name: &str| folder.join(name);
    let put = |name: &str, text: String| {
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path(name));
        std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
    };
    put("authority", authority_certificate.pem());
    put("certificate", certificate.pem());
    put("key", key.serialize_pem());
    let identity = Identity::from_files(&path("certificate"), &path("key")).unwrap();
    (identity, path("authority"))
}

#[test]
fn an_authority_vouches_for_a_name_and_for_a_time() {
    for (name, until_year, wrong) in [
        ("127.0.0.1", 4000, None),
        ("127.0.0.1", 2010, Some("expired")),
        ("other.example.com", 4000, Some("not valid for name")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (identity, authority) = signed(folder.path(), name, until_year);
        let one = Running::start_as(identity, folder);
        let asked = Agents {
            trust: Trust {
                fingerprints: Vec::new(),
                authorities: Some(authority),
            },
            ..agents(&[&one])
        };
        block_on(async {
            let Some(wrong) = wrong else {
                connect(&asked).await.expect("it is trusted");
                return;
            };
            let error = refused(&asked).await;
            let said = error.to_string();
            assert!(matches!(error, AgentError::Certificate { .. }), "{said}");
            assert!(said.contains(wrong), "{said}");
            // Whom a fingerprint was told of is trusted whatever the time.
            connect(&agents(&[&one])).await.expect("it is trusted");
        });
        let other = tempfile::tempdir().unwrap();
        let (_, authority) = signed(other.path(), name, 4000);
        let asked = Agents {
            trust: Trust {
                fingerprints: Vec::new(),
                authorities: Some(authority),
            },
            ..agents(&[&one])
        };
        let error = block_on(refused(&asked));
        assert!(matches!(error, AgentError::Certificate { .. }), "{error}");
        assert!(one.folder.path().exists());
    }
}

#[test]
fn who_is_no_agent_is_told_apart_from_who_is_not_there() {
    block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Agents {
            addresses: vec![address.to_string().parse().unwrap()],
            token: Token::new(TOKEN).unwrap(),
            trust: Trust {
                fingerprints: vec!["00".repeat(32).parse().unwrap()],
                authorities: None,
            },
            name: "x".to_owned(),
            version: "0.0.1".to_owned(),
            patience: Patience::default(),
        };
        let talk = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream
                .write_all(b"SSH-2.0-something else\r\n")
                .await
                .unwrap();
            let _ = stream.read(&mut [0; 1000]).await;
        };
        let (connected, ()) = tokio::join!(try_connect(&asked), talk);
        let error = connected.map(drop).expect_err("it is no agent");
        assert!(matches!(error, AgentError::Tls { .. }), "{error}");
        drop(listener);
        let error = refused(&asked).await;
        assert!(matches!(error, AgentError::Reach { .. }), "{error}");
        assert!(error.to_string().contains("weir agent"), "{error}");
    });
}
