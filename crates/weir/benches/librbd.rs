//! What Weir adds to librbd: random reads through a reactor, on the library that stands for Ceph's and takes a fixed time for each.
//!
//! For bench/ceph, which builds and runs it. Prints one line per bar (name, value, bar, "ok" or "short"), and lines that begin with # with
//! the figures behind them; exit status 1 where a bar is short. Figures are medians of the rounds. What is added is the
//! mean service time that the load saw less the mean that the library took, from its being called to its calling back.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_block::Volume;
use weir_load::Stop;
use weir_load::bench::{self, BenchConfig, Job, Load};
use weir_load::workload::{Access as Blocks, Workload};
use weir_rbd::SCHEME;
use weir_testing::ceph::{Cluster, host};
use weir_testing::harness::Harness;
use weir_volume::{Access, Registry, VolumeUrl};

const ROUNDS: usize = 5;
const SECONDS: Duration = Duration::from_secs(1);
const RAMP: Duration = Duration::from_millis(300);
const BLOCK: u64 = 4096;
const IMAGE_BYTES: u64 = 64 << 20;
/// What each operation takes: longer than a reactor looks for completions before it sleeps.
const LATENCY_US: u64 = 200;
/// The most that may be added to an operation whose end wakes the reactor, in microseconds.
const ADDED_US_MAX: f64 = 15.0;
/// Completions that a reactor takes in a second, at least.
const COMPLETIONS_MIN: f64 = 200_000.0;

/// What came of a round.
struct Round {
    /// Requests in a second.
    rate: f64,
    /// Mean service time beyond what the library took, in microseconds.
    added_us: f64,
    /// Processor time of the reactor's thread for each request, the load's included, in microseconds.
    processor_us: f64,
}

fn main() -> ExitCode {
    // `cargo test --benches` asks for no measurement.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let mut short = false;
    println!(
        "# a thread that sleeps and is woken by another after {LATENCY_US} us runs {:.1} us later",
        bare_wake()
    );
    for images in [1, 4] {
        for depth in [1, 32, 128] {
            let rounds = measure(images, depth, LATENCY_US);
            let (rate, added, processor) = medians(&rounds);
            println!(
                "# fake, {LATENCY_US} us, images {images}, in flight of each {depth}: {rate:.0} requests/s, {added:.1} us added, {processor:.2} us processor a request"
            );
            if (images, depth) == (1, 1) {
                short |= !tell("fake-added-us", added, ADDED_US_MAX, added <= ADDED_US_MAX);
            }
        }
    }
    let rounds = measure(1, 128, 0);
    let (rate, _, processor) = medians(&rounds);
    println!(
        "# fake, no latency, in flight 128: {rate:.0} requests/s, {processor:.2} us processor a request"
    );
    let enough = rate >= COMPLETIONS_MIN;
    short |= !tell("fake-completions", rate, COMPLETIONS_MIN, enough);
    if short {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// What the machine itself takes to wake a thread that sleeps, in microseconds: the mean. A reactor that is woken pays as much too.
fn bare_wake() -> f64 {
    const WAKES: u32 = 5_000;
    let (began, waiting) = (Instant::now(), std::thread::current());
    // When it was woken, in nanoseconds from then on; 0 until it is.
    let woken = Arc::new(AtomicU64::new(0));
    let (ask, asked) = std::sync::mpsc::channel();
    let told = Arc::clone(&woken);
    let waker = std::thread::spawn(move || {
        while asked.recv().is_ok() {
            std::thread::sleep(Duration::from_micros(LATENCY_US));
            told.store(began.elapsed().as_nanos() as u64, Ordering::Release);
            waiting.unpark();
        }
    });
    let mut late = Duration::ZERO;
    for _ in 0..WAKES {
        ask.send(()).expect("it waits for this");
        let at = loop {
            std::thread::park();
            match woken.swap(0, Ordering::Acquire) {
                0 => {}
                at => break Duration::from_nanos(at),
            }
        };
        late += began.elapsed() - at;
    }
    drop(ask);
    waker.join().expect("it does not panic");
    (late / WAKES).as_nanos() as f64 / 1000.0
}

fn tell(name: &str, value: f64, bar: f64, ok: bool) -> bool {
    println!(
        "{name} {value:.1} {bar} {}",
        if ok { "ok" } else { "short" }
    );
    ok
}

/// Rate, microseconds added, microseconds of processor time.
fn medians(rounds: &[Round]) -> (f64, f64, f64) {
    let median = |figure: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    (
        median(|round| round.rate),
        median(|round| round.added_us),
        median(|round| round.processor_us),
    )
}

/// Random reads of so many images at once, so many in flight of each, on one reactor.
fn measure(images: usize, depth: u32, latency_us: u64) -> Vec<Round> {
    let cluster = Cluster::new();
    let harness = Harness::real(1);
    let host = host("bench");
    let mut registry = Registry::new();
    registry.register(SCHEME, host.factory());
    let volumes: Vec<Arc<dyn Volume>> = (0..images)
        .map(|image| {
            cluster.tell(&format!("image rbd/image{image} {IMAGE_BYTES}"));
            let url = format!("rbd:rbd/image{image}?conf={}", cluster.conf.display());
            let url: VolumeUrl = url.parse().expect("a URL");
            let registry = registry.clone();
            harness
                .run(0, move |reactor| async move {
                    registry.open(&reactor, &url, Access::READ_ONLY).await
                })
                .unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    cluster.tell(&format!("latency_us {latency_us}"));
    (0..ROUNDS)
        .map(|round| one(&cluster, &harness, &volumes, depth, round as u64))
        .collect()
}

fn one(
    cluster: &Cluster,
    harness: &Harness,
    volumes: &[Arc<dyn Volume>],
    depth: u32,
    seed: u64,
) -> Round {
    let job = |volume: &Arc<dyn Volume>| Job {
        name: volume.name(),
        volumes: vec![Arc::clone(volume)],
        config: BenchConfig {
            workload: Workload::simple(BLOCK, 100, Blocks::Random),
            load: Load::Closed { depth },
            queues: 1,
            among: None,
            duration: SECONDS,
            ramp: RAMP,
            interval: SECONDS,
            seed,
            stop: Stop::new(),
        },
    };
    let jobs: Vec<Job> = volumes.iter().map(job).collect();
    let library = || (cluster.ask("ended"), cluster.ask("spent_ns"));
    let (before, processor_before) = (library(), reactor_ns());
    let reports = harness.run(0, move |reactor| async move {
        bench::run_jobs(&reactor, &[reactor.remote()], &jobs, |_| {}).await
    });
    let (after, processor_after) = (library(), reactor_ns());
    let reports = reports.unwrap_or_else(|error| panic!("{error}"));
    let (mut requests, mut service_ns, mut rate) = (0_u64, 0.0, 0.0);
    for report in &reports {
        assert_eq!(report.first_error, None, "nothing goes wrong");
        let [reads, ..] = &report.operations;
        requests += reads.requests;
        service_ns += reads.service_ns.mean() * reads.requests as f64;
        rate += reads.requests as f64 / report.elapsed.as_secs_f64();
    }
    // The ramp's are like those that are measured.
    let ended = (after.0 - before.0) as f64;
    let library_ns = (after.1 - before.1) as f64 / ended;
    Round {
        rate,
        added_us: (service_ns / requests as f64 - library_ns) / 1e3,
        processor_us: (processor_after - processor_before) as f64 / ended / 1e3,
    }
}

/// Processor time of the reactor's thread so far, in nanoseconds.
fn reactor_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let of_reactor = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        name.starts_with("test-").then_some(task)
    });
    let spent = of_reactor.map(|task| {
        let told = std::fs::read_to_string(task.join("schedstat")).expect("CONFIG_SCHED_INFO");
        let first = told.split_whitespace().next();
        let spent: u64 = first
            .and_then(|first| first.parse().ok())
            .expect("a number");
        spent
    });
    spent.sum()
}
