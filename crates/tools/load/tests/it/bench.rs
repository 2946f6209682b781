//! Load on volumes in the simulation: what it reports is what was done, and when.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Completions, FenceReply, Geometry, InFlight, Landing, Operation,
    Queue, ReadBuffers, Request, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_load::bench::{
    self, Among, Arrivals, BenchConfig, BenchError, BenchReport, Caveat, Job, Load, Phase,
};
use weir_load::workload::{Access as Blocks, Kind, NAMED, Operations, Workload, WorkloadError};
use weir_load::{PlanError, Stop};
use weir_memory::Pool;
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
use weir_reactor::{
    Driver, Instant, LocalFuture, Notifier, Op, OpToken, Outcome, Owner, Reactor, ReactorConfig,
    ReactorId, Remote, Runner, Wait,
};

use crate::common::{open, simulate};

/// Another reactor of the same machine.
fn another_reactor(reactor: &Reactor) -> Remote {
    let config = ReactorConfig {
        id: ReactorId(7),
        ..ReactorConfig::default()
    };
    let main = Box::new(|_| -> LocalFuture<()> { Box::pin(std::future::pending()) });
    let system = Arc::clone(reactor.system());
    let thread = system.start_reactor(config, main);
    thread.expect("the simulation starts reactors").remote
}

fn config() -> BenchConfig {
    BenchConfig {
        workload: Workload::simple(4096, 70, Blocks::Random),
        load: Load::Closed { depth: 4 },
        queues: 2,
        among: None,
        duration: Duration::from_millis(50),
        ramp: Duration::from_millis(5),
        interval: Duration::from_millis(20),
        seed: 5,
        stop: Stop::new(),
    }
}

fn offered(rate: u64, arrivals: Arrivals) -> Load {
    Load::Open {
        rate,
        arrivals,
        depth_max: 4,
    }
}

/// Runs on one volume with one reactor.
fn run(url: &'static str, config: BenchConfig) -> Result<BenchReport, BenchError> {
    simulate(move |reactor| async move {
        let volume = open(&reactor, url).await;
        bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
    })
}

/// A volume of another sort over one that works.
struct Changed {
    inner: Arc<dyn Volume>,
    /// Nothing is taken in this time.
    stall: Option<(Instant, Instant)>,
    geometry: fn(Geometry) -> Geometry,
}

struct ChangedQueue {
    inner: Box<dyn Queue>,
    reactor: Reactor,
    stall: Option<(Instant, Instant)>,
}

impl Volume for Changed {
    fn geometry(&self) -> Geometry {
        (self.geometry)(self.inner.geometry())
    }

    fn name(&self) -> String {
        "changed".to_owned()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Ok(Box::new(ChangedQueue {
            inner: Arc::clone(&self.inner).open_queue(reactor, depth, sink)?,
            reactor: reactor.clone(),
            stall: self.stall,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

impl Queue for ChangedQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let now = self.reactor.now();
        match self.stall {
            Some((from, until)) if now >= from && now < until => {}
            _ => self.inner.submit(batch, done),
        }
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}

#[test]
fn a_stall_is_in_the_response_times_and_not_in_the_service_times_of_what_was_not_sent() {
    const RATE: u64 = 1000;
    let report = simulate(|reactor| async move {
        let from = reactor.precise_now() + Duration::from_millis(500);
        let volume: Arc<dyn Volume> = Arc::new(Changed {
            inner: open(&reactor, "null:?size=1G").await,
            stall: Some((from, from + Duration::from_secs(1))),
            geometry: |geometry| geometry,
        });
        let config = BenchConfig {
            load: offered(RATE, Arrivals::Uniform),
            queues: 1,
            ramp: Duration::ZERO,
            duration: Duration::from_secs(3),
            interval: Duration::from_millis(250),
            ..config()
        };
        bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
    });
    let report = report.expect("the run is sound");
    assert_eq!(
        (report.requests(), report.unsent, report.errors()),
        (3 * RATE, 0, 0)
    );
    let total = report.total();
    let response = total.response_ns.as_ref().expect("the loop is open");
    let longer = |of: &hdrhistogram::Histogram<u64>, milliseconds: u64| {
        of.count_between(milliseconds * 1_000_000, u64::MAX)
    };
    // What was handed over before the stall was noticed: as much as the depth allows.
    assert_eq!(longer(&total.service_ns, 100), 4);
    assert_eq!(longer(&total.service_ns, 1), 4);
    // Due in the stall, one each millisecond: nine of ten waited for a tenth of it or longer.
    assert!(
        longer(response, 100).abs_diff(900) <= 5,
        "{}",
        longer(response, 100)
    );
    assert!(
        longer(response, 900).abs_diff(100) <= 5,
        "{}",
        longer(response, 900)
    );
    assert!(
        response.max().abs_diff(1_000_000_000) < 3_000_000,
        "{}",
        response.max()
    );
    assert!(report.waited.abs_diff(996) <= 5, "{}", report.waited);
    let waited = Caveat::DepthReached {
        requests: report.waited,
    };
    assert_eq!(report.caveats, [waited]);
    let lag = report.lag_ns.as_ref().expect("the loop is open");
    assert_eq!(lag.len(), 3 * RATE);
    assert!(longer(lag, 100).abs_diff(900) <= 5, "{}", longer(lag, 100));
    // The intervals say when. The edge at which the stall begins and ends lies within one of them.
    let counts: Vec<_> = report.intervals.iter().map(|of| of.requests()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 3 * RATE);
    assert_eq!(counts[3..5], [0, 0], "{counts:?}");
    assert!(counts[5] + counts[6] > 1200, "{counts:?}");
    let longest = |index: usize| report.intervals[index].latency().max();
    assert!(longest(0) < 2_000_000 && longest(8) < 2_000_000);
    assert!(longest(5).max(longest(6)) > 990_000_000);
}

/// Each of two machines does what one with all four queues would do with its two.
#[test]
fn queues_among_those_of_other_machines_have_their_own_requests_and_times() {
    const HALF: usize = 512 << 10;
    for before in [0, 2] {
        let config = BenchConfig {
            among: Some(Among {
                before,
                queues: 4,
                apart: false,
            }),
            ramp: Duration::ZERO,
            ..config()
        };
        let timed = BenchConfig {
            load: offered(4, Arrivals::Uniform),
            duration: Duration::from_secs(1),
            interval: Duration::from_millis(250),
            ..config.clone()
        };
        let report = run("null:?size=1G", timed).expect("the run is sound");
        let counts: Vec<_> = report.intervals.iter().map(|of| of.requests()).collect();
        match before {
            0 => assert_eq!(counts, [1, 1, 0, 0]),
            _ => assert_eq!(counts, [0, 0, 1, 1]),
        }
        let written = simulate(move |reactor| async move {
            let volume = open(&reactor, "mem:?size=1M").await;
            let config = BenchConfig {
                workload: Workload::simple(16_384, 0, Blocks::Sequential),
                load: offered(2000, Arrivals::Uniform),
                ..config
            };
            let ran = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
            ran.expect("the run is sound");
            read_all(&reactor, &volume).await
        });
        let (first, second) = written.split_at(HALF);
        let is_touched = |half: &[u8]| half.iter().any(|byte| *byte != 0);
        assert_eq!(is_touched(first), before == 0);
        assert_eq!(is_touched(second), before == 2);
    }
    let beyond = BenchConfig {
        among: Some(Among {
            before: 3,
            queues: 4,
            apart: false,
        }),
        ..config()
    };
    let error = run("null:?size=1G", beyond).expect_err("it has no place");
    assert!(error.to_string().contains("4 queues"), "{error}");
}

/// What is due next may be far away.
#[test]
fn a_stop_is_seen_before_anything_is_due() {
    let report = simulate(|reactor| async move {
        let volume = open(&reactor, "null:?size=1G").await;
        let config = BenchConfig {
            load: offered(1, Arrivals::Uniform),
            queues: 100,
            duration: Duration::from_secs(1000),
            interval: Duration::from_secs(1),
            ..config()
        };
        let remotes = [reactor.remote()];
        bench::run(&reactor, &remotes, &volume, &config, |progress| {
            if progress.elapsed >= Duration::from_secs(2) {
                config.stop.stop();
            }
        })
        .await
    });
    let report = report.expect("the run is sound");
    assert!(report.elapsed < Duration::from_secs(4), "{report:?}");
    assert_eq!(report.caveats, [Caveat::EndedEarly]);
}

/// A volume that answers nothing: it takes two requests of a queue, which end when they are cancelled.
struct Silent(Arc<dyn Volume>);

struct SilentQueue {
    taken: VecDeque<Request>,
    sink: Rc<dyn CompletionSink>,
}

impl Volume for Silent {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn name(&self) -> String {
        "silent".to_owned()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        _: &Reactor,
        _: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let taken = VecDeque::new();
        Ok(Box::new(SilentQueue { taken, sink }))
    }

    fn fence(&self, reply: FenceReply) {
        self.0.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.0).resize(reactor, blocks, force)
    }
}

impl Queue for SilentQueue {
    fn landing(&mut self, _: u64, _: u32) -> Landing {
        Landing::Anywhere
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, _: &mut VecDeque<Completion>) {
        let room = 2 - self.taken.len();
        self.taken.extend(batch.drain(..room.min(batch.len())));
    }

    fn cancel(&mut self, token: Token) {
        let at = self.taken.iter().position(|one| one.token == token);
        let request = at.and_then(|at| self.taken.remove(at));
        if let Some(Request { token, operation }) = request {
            let result = Err(VolumeError::Cancelled);
            self.sink.complete(Completion {
                token,
                result,
                operation,
            });
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        for request in &self.taken {
            visit(InFlight::of(request.token, &request.operation));
        }
    }
}

/// What a volume never answers does not keep a run that is to end; it is in no figure but its own.
#[test]
fn a_run_that_is_stopped_does_not_wait_for_what_never_ends() {
    for load in [Load::Closed { depth: 4 }, offered(1000, Arrivals::Uniform)] {
        let report = simulate(move |reactor| async move {
            let volume: Arc<dyn Volume> = Arc::new(Silent(open(&reactor, "null:?size=1G").await));
            let config = BenchConfig {
                load,
                queues: 3,
                duration: Duration::from_secs(1000),
                interval: Duration::from_secs(1),
                ..config()
            };
            let remotes = [reactor.remote()];
            let began = reactor.now();
            let report = bench::run(&reactor, &remotes, &volume, &config, |progress| {
                if progress.elapsed >= Duration::from_secs(2) {
                    config.stop.stop();
                }
            })
            .await;
            let took = reactor.now() - began;
            assert!(took < Duration::from_secs(9), "{took:?}");
            report
        });
        let report = report.expect("the run is sound");
        assert_eq!((report.requests(), report.errors()), (0, 0));
        assert_eq!(report.unfinished, 2 * 3);
        assert!(report.unfinished_ns_max >= 5_000_000_000, "{report:?}");
        assert!(report.caveats.contains(&Caveat::EndedEarly));
    }
}

#[test]
fn arrivals_are_offered_as_they_were_drawn_whatever_the_reactors() {
    const RATE: u64 = 20_000;
    for reactors in [1, 2] {
        let report = simulate(move |reactor| async move {
            let volume = open(&reactor, "null:?size=1G").await;
            let mut remotes = vec![reactor.remote()];
            if reactors == 2 {
                remotes.push(another_reactor(&reactor));
            }
            let config = BenchConfig {
                load: offered(RATE, Arrivals::Exponential),
                queues: 4,
                duration: Duration::from_millis(500),
                ..config()
            };
            bench::run(&reactor, &remotes, &volume, &config, |_| {}).await
        });
        let report = report.expect("the run is sound");
        let (mean, requests) = (RATE as f64 / 2.0, report.requests() as f64);
        assert!(
            (requests - mean).abs() < 6.0 * mean.sqrt(),
            "{requests} of {mean}"
        );
        assert_eq!(
            (report.unsent, report.generator.busy_shares.len()),
            (0, reactors)
        );
        assert!(report.queue_requests.iter().all(|&of| of > 0));
        let each: u64 = report.queue_requests.iter().sum();
        assert_eq!(each, report.requests());
        let lag = report.lag_ns.expect("the loop is open");
        assert!(
            lag.value_at_percentile(99.0) < 100_000,
            "{}",
            lag.value_at_percentile(99.0)
        );
        assert_eq!(lag.len(), each);
    }
}

#[test]
fn intervals_are_the_run_in_pieces() {
    for load in [
        Load::Closed { depth: 4 },
        offered(3000, Arrivals::Exponential),
    ] {
        let report = simulate(move |reactor| async move {
            let volume = open(&reactor, "file:/image?size=4M").await;
            let remotes = [reactor.remote(), another_reactor(&reactor)];
            let config = BenchConfig { load, ..config() };
            bench::run(&reactor, &remotes, &volume, &config, |_| {}).await
        });
        let report = report.expect("the run is sound");
        assert_eq!(report.elapsed, Duration::from_millis(50));
        let spans: Vec<_> = report
            .intervals
            .iter()
            .map(|of| (of.start, of.length))
            .collect();
        let milliseconds = Duration::from_millis;
        let within = [(0, 20), (20, 20), (40, 10)];
        assert_eq!(
            spans[..3],
            within.map(|(from, length)| (milliseconds(from), milliseconds(length)))
        );
        for kind in Kind::ALL {
            let (mut sum, mut service) = (0, bench::histogram());
            for interval in &report.intervals {
                let of = interval.of(kind);
                sum += of.requests;
                service.add(of.service.histogram()).expect("one shape");
                assert_eq!(of.response.is_some(), load.rate().is_some());
            }
            assert_eq!(sum, report.of(kind).requests);
            assert_eq!(service, report.of(kind).service_ns, "{kind:?}");
        }
        assert!(report.of(Kind::Read).requests > 0 && report.of(Kind::Write).requests > 0);
    }
}

#[test]
fn what_was_in_flight_is_throughput_times_service_time() {
    let config = BenchConfig {
        duration: Duration::from_millis(400),
        ..config()
    };
    let report = run("file:/image?size=4M", config).expect("the run is sound");
    let law = report.littles_law;
    assert!((7.5..=8.0).contains(&law.in_flight), "{law:?}");
    assert!(law.error() < 0.03, "{law:?}");
    assert_eq!(report.caveats, []);
}

#[test]
fn jobs_run_side_by_side_each_with_its_own_load() {
    let (reports, told) = simulate(|reactor| async move {
        let job = |name: &str, volume, config| Job {
            name: name.to_owned(),
            volumes: vec![volume],
            config,
        };
        let jobs = [
            job(
                "fast",
                open(&reactor, "null:?size=1G").await,
                BenchConfig {
                    load: offered(2000, Arrivals::Uniform),
                    duration: Duration::from_millis(2500),
                    interval: Duration::from_secs(1),
                    ..config()
                },
            ),
            job(
                "reads",
                open(&reactor, "null:?size=1G").await,
                BenchConfig {
                    workload: Workload::simple(8192, 100, Blocks::Sequential),
                    load: offered(100, Arrivals::Uniform),
                    queues: 3,
                    duration: Duration::from_millis(1500),
                    interval: Duration::from_millis(500),
                    ..config()
                },
            ),
        ];
        let remotes = [reactor.remote(), another_reactor(&reactor)];
        let told = RefCell::new(vec![(0, 0); 2]);
        let reports = bench::run_jobs(&reactor, &remotes, &jobs, |progress| {
            let told = &mut told.borrow_mut()[progress.job];
            told.0 += progress.requests;
            told.1 += progress
                .intervals
                .iter()
                .map(|of| of.requests())
                .sum::<u64>();
        })
        .await;
        (reports, told.into_inner())
    });
    let reports = reports.expect("the run is sound");
    assert_eq!(reports.len(), 2);
    let [fast, reads] = &reports[..] else {
        panic!("a report for each job")
    };
    assert_eq!((fast.requests(), reads.requests()), (5000, 150));
    assert_eq!(
        (fast.elapsed.as_millis(), reads.elapsed.as_millis()),
        (2500, 1500)
    );
    assert_eq!(
        (fast.queue_requests.len(), reads.queue_requests.len()),
        (2, 3)
    );
    assert_eq!((fast.intervals.len(), reads.intervals.len()), (3, 3));
    assert_eq!(reads.of(Kind::Read).bytes, 150 * 8192);
    // Two seconds of the run were told of while it ran, and whole intervals of it.
    assert!(told[0].0 >= 3900 && told[0].1 == 2000, "{told:?}");
    assert!(told[1].1 >= 50, "{told:?}");
}

#[test]
fn phases_follow_each_other_until_one_is_stopped() {
    for stopped in [false, true] {
        let (reports, phases) = simulate(move |reactor| async move {
            let volume = open(&reactor, "null:?size=1G").await;
            let stop = Stop::new();
            let phase = |rate| Phase {
                name: format!("at {rate}"),
                jobs: vec![Job {
                    name: "a".to_owned(),
                    volumes: vec![Arc::clone(&volume)],
                    config: BenchConfig {
                        load: offered(rate, Arrivals::Uniform),
                        duration: Duration::from_millis(1500),
                        stop: stop.clone(),
                        ..config()
                    },
                }],
            };
            let phases = [phase(100), phase(1000)];
            let mut seen = Vec::new();
            let reports = bench::run_phases(&reactor, &[reactor.remote()], &phases, |phase, _| {
                seen.push(phase);
                if stopped {
                    stop.stop();
                }
            })
            .await;
            (reports, seen)
        });
        let done = reports.expect("the jobs are sound");
        assert!(done.failed.is_none());
        let reports = done.reports;
        let requests: Vec<_> = reports.iter().map(|jobs| jobs[0].requests()).collect();
        if stopped {
            assert_eq!((requests.len(), phases), (1, vec![0]));
            assert_eq!(reports[0][0].caveats, [Caveat::EndedEarly]);
            assert_eq!(reports[0][0].unsent, 0, "what a stop cut off is not unsent");
        } else {
            assert_eq!((requests, phases), (vec![150, 1500], vec![0, 1]));
        }
    }
}

#[test]
fn deallocations_and_flushes_are_counted_apart() {
    let mut workload = Workload::simple(8192, 0, Blocks::Random);
    workload.streams[0].operations = Operations {
        read_percent: 25.0,
        write_percent: 25.0,
        deallocate_percent: 25.0,
        flush_percent: 25.0,
    };
    let report = run(
        "mem:?size=4M",
        BenchConfig {
            workload,
            load: offered(20_000, Arrivals::Uniform),
            ..config()
        },
    );
    let report = report.expect("the run is sound");
    assert_eq!(report.requests(), 1000);
    for kind in Kind::ALL {
        let of = report.of(kind);
        assert!(
            (150..350).contains(&of.requests),
            "{kind:?}: {}",
            of.requests
        );
        let bytes = if kind == Kind::Flush { 0 } else { 8192 };
        assert_eq!(of.bytes, of.requests * bytes, "{kind:?}");
    }
    let moved = report.of(Kind::Read).bytes + report.of(Kind::Write).bytes;
    assert_eq!((report.bytes(), report.total().bytes), (moved, moved));
}

#[test]
fn deallocations_that_may_have_done_nothing_are_told() {
    for (bytes, told) in [(512, true), (4096, false)] {
        let mut workload = Workload::simple(bytes, 0, Blocks::Random);
        workload.streams[0].operations = Operations {
            read_percent: 0.0,
            write_percent: 0.0,
            deallocate_percent: 100.0,
            flush_percent: 0.0,
        };
        let config = BenchConfig {
            workload,
            load: offered(20_000, Arrivals::Uniform),
            ..config()
        };
        let report = run("mem:?size=4M&block_size=512", config).expect("the run is sound");
        assert!(report.of(Kind::Deallocate).requests > 0);
        let caveat = Caveat::DeallocatedInPart {
            granularity_bytes: 4096,
        };
        assert_eq!(report.caveats.contains(&caveat), told, "{bytes}");
        assert!(!told || caveat.to_string().contains("4096 bytes"));
    }
}

/// Nothing that is sent from a moment on ends before another one.
#[test]
fn what_is_in_flight_at_the_end_of_a_closed_loop_is_told() {
    let report = |stall_ms: Option<(u64, u64)>| {
        simulate(move |reactor| async move {
            let began = reactor.precise_now();
            let at = |milliseconds| began + Duration::from_millis(milliseconds);
            let volume: Arc<dyn Volume> = Arc::new(Changed {
                inner: open(&reactor, "null:?size=1G&delay=100us").await,
                stall: stall_ms.map(|(from, until)| (at(from), at(until))),
                geometry: |geometry| geometry,
            });
            let config = BenchConfig {
                ramp: Duration::ZERO,
                duration: Duration::from_millis(500),
                queues: 1,
                ..config()
            };
            let report = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
            report.expect("the run is sound")
        })
    };
    // As always: as many as the depth, no slower than the others.
    let steady = report(None);
    assert_eq!((steady.unfinished, &steady.caveats[..]), (4, &[][..]));
    assert!(steady.unfinished_ns_max < 200_000);
    // The stall that the end of the time hides is not as if it had not been.
    let stalled = report(Some((400, 5000)));
    assert_eq!(stalled.unfinished, 4);
    assert!(stalled.total().service_ns.max() < 1_000_000);
    let expected = Duration::from_millis(4600);
    let longest = Duration::from_nanos(stalled.unfinished_ns_max);
    assert!(
        longest.abs_diff(expected) < Duration::from_millis(4),
        "{longest:?}"
    );
    let caveat = Caveat::Unfinished {
        requests: 4,
        longest,
    };
    assert!(stalled.caveats.contains(&caveat), "{:?}", stalled.caveats);
    assert!(caveat.to_string().contains("4.6s"), "{caveat}");
    // And one that ended in the time is in the figures.
    let early = report(Some((100, 300)));
    assert_eq!(early.unfinished, 4);
    assert!(early.total().service_ns.max() > 190_000_000);
    assert!(!early.caveats.iter().any(|of| of.code() == "unfinished"));
}

/// The machine stands still over the end of the run: what was due before the end is late, but neither lost nor is the run too short.
#[test]
fn what_was_due_just_before_an_end_that_was_seen_late_is_sent() {
    let seed = seed_from_env_or_random();
    println!("seed {seed}");
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let (host, world) = (simulation.host_id("host"), simulation.world());
    let report = simulation.run(host, move |reactor| async move {
        let volume = open(&reactor, "null:?size=1G").await;
        let config = BenchConfig {
            load: Load::Open {
                rate: 1000,
                arrivals: Arrivals::Uniform,
                depth_max: 16,
            },
            queues: 1,
            ramp: Duration::ZERO,
            duration: Duration::from_millis(100),
            ..config()
        };
        let sleeper = reactor.clone();
        let stalling = async move {
            // Ten are due from then on.
            sleeper.sleep(Duration::from_micros(91_500)).await;
            world.stall(host, Duration::from_millis(50));
        };
        reactor.spawn(stalling).detach();
        bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
    });
    let report = report.expect("the run is sound");
    assert_eq!((report.requests(), report.unsent), (100, 0));
    assert_eq!(report.elapsed, Duration::from_millis(100));
    let codes: Vec<_> = report.caveats.iter().map(Caveat::code).collect();
    assert_eq!(codes, ["late"]);
    assert!(report.latency_ns().max() > 40_000_000);
}

/// A driver with nothing to do, whose clock goes on by a microsecond whenever it is looked at, and to the end of a wait.
struct Ticking(Cell<Instant>);

struct Nobody;

impl Notifier for Nobody {
    fn notify(&self) {}
}

impl Driver for Ticking {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + Duration::from_micros(1));
        self.0.get()
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn submit(&mut self, _: Owner, op: Op) -> OpToken {
        panic!("nobody submits: {op:?}");
    }

    fn cancel(&mut self, _: OpToken) {}

    fn in_flight(&self) -> usize {
        0
    }

    fn abandon_all(&mut self) -> Vec<Owner> {
        Vec::new()
    }

    fn turn(&mut self, wait: Wait, _: &mut Vec<(Owner, Outcome)>) {
        if let Wait::Until(Some(end)) = wait {
            self.0.set(self.0.get().max(end));
        }
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(Nobody)
    }
}

/// The turn in which the end is seen began before it: the last request was due just before the end.
#[test]
fn a_run_whose_last_turn_began_before_its_end_has_not_ended_early() {
    const DURATION: Duration = Duration::from_micros(10_003);
    let simulation = Simulation::new(Config::default());
    let report = Arc::new(Mutex::new(None));
    let reported = Arc::clone(&report);
    let main = move |reactor: Reactor| -> LocalFuture<()> {
        Box::pin(async move {
            let volume = open(&reactor, "null:?size=1G").await;
            let config = BenchConfig {
                load: offered(100_000, Arrivals::Uniform),
                queues: 1,
                ramp: Duration::ZERO,
                duration: DURATION,
                ..config()
            };
            let ran = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
            *reported.lock().expect("nothing panics") = Some(ran);
        })
    };
    let runner = Runner::new(
        &ReactorConfig::default(),
        Pool::new(1 << 20),
        Box::new(Ticking(Cell::new(Instant::from_nanos(0)))),
        simulation.host("host"),
        Box::new(main),
    );
    runner.run_to_end();
    let report = report.lock().expect("nothing panics").take();
    let report = report.expect("it ran").expect("the run is sound");
    assert_eq!((report.requests(), report.unsent), (1001, 0));
    assert_eq!(report.elapsed, DURATION);
    let is_early = report.caveats.contains(&Caveat::EndedEarly);
    assert!(!is_early, "{:?}", report.caveats);
}

/// Fails what is submitted in a time.
struct FailingFor {
    inner: Arc<dyn Volume>,
    from: Instant,
    until: Instant,
}

struct FailingForQueue {
    inner: Box<dyn Queue>,
    reactor: Reactor,
    from: Instant,
    until: Instant,
}

impl Volume for FailingFor {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        "failing".to_owned()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Ok(Box::new(FailingForQueue {
            inner: Arc::clone(&self.inner).open_queue(reactor, depth, sink)?,
            reactor: reactor.clone(),
            from: self.from,
            until: self.until,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

impl Queue for FailingForQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let now = self.reactor.now();
        if now < self.from || now >= self.until {
            return self.inner.submit(batch, done);
        }
        for Request { token, operation } in batch.drain(..) {
            done.push_back(Completion {
                token,
                result: Err(VolumeError::Medium),
                operation,
            });
        }
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}

#[test]
fn failures_of_the_ramp_are_told_and_are_not_the_runs() {
    let report = |from_ms, until_ms| {
        simulate(move |reactor| async move {
            let began = reactor.precise_now();
            let at = |milliseconds| began + Duration::from_millis(milliseconds);
            let volume: Arc<dyn Volume> = Arc::new(FailingFor {
                inner: open(&reactor, "null:?size=1G").await,
                from: at(from_ms),
                until: at(until_ms),
            });
            let config = BenchConfig {
                load: offered(1000, Arrivals::Uniform),
                ramp: Duration::from_millis(100),
                duration: Duration::from_millis(200),
                ..config()
            };
            let report = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
            report.expect("failures are counted")
        })
    };
    let of_ramp = report(0, 50);
    assert_eq!((of_ramp.errors(), of_ramp.requests()), (0, 200));
    assert!(
        (40..=60).contains(&of_ramp.ramp_errors),
        "{}",
        of_ramp.ramp_errors
    );
    let caveat = Caveat::RampErrors {
        requests: of_ramp.ramp_errors,
    };
    assert_eq!(of_ramp.caveats, [caveat]);
    assert!(of_ramp.first_error.is_some());
    let of_run = report(150, 170);
    assert_eq!(of_run.ramp_errors, 0);
    assert_eq!(of_run.errors() + of_run.requests(), 200);
    assert!((15..=25).contains(&of_run.errors()), "{}", of_run.errors());
}

#[test]
fn every_named_workload_runs_on_every_kind_of_volume() {
    for named in NAMED {
        for url in [
            "mem:?size=8M",
            "mem:?size=8M&block_size=512",
            "file:/image?size=8M",
            "null:?size=8M",
        ] {
            let workload = named.workload();
            let report = run(
                url,
                BenchConfig {
                    workload: workload.clone(),
                    load: offered(20_000, Arrivals::Uniform),
                    duration: Duration::from_millis(10),
                    ..config()
                },
            );
            let report = report.unwrap_or_else(|error| panic!("{} on {url}: {error}", named.name));
            assert_eq!(
                report.errors(),
                0,
                "{} on {url}: {:?}",
                named.name,
                report.first_error
            );
            assert!(report.requests() > 0);
            let rounded = report
                .caveats
                .contains(&Caveat::RoundedUp { block_bytes: 4096 });
            assert_eq!(rounded, named.name == "jesd219" && !url.contains("512"));
            if !workload.does(Kind::Write) {
                assert_eq!(report.of(Kind::Write).requests, 0);
            }
        }
    }
}

#[test]
fn data_is_as_compressible_as_it_was_asked_to_be() {
    for (percent, url) in [
        (0, "mem:?size=1M"),
        (50, "mem:?size=1M"),
        (75, "mem:?size=1M&block_size=512"),
        (100, "mem:?size=1M"),
    ] {
        simulate(move |reactor| async move {
            let volume = open(&reactor, url).await;
            let config = BenchConfig {
                workload: Workload {
                    compressible_percent: percent,
                    ..Workload::simple(16_384, 0, Blocks::Sequential)
                },
                load: offered(10_000, Arrivals::Uniform),
                ..config()
            };
            let report = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
            let report = report.expect("the run is sound");
            assert!(report.bytes() > 2 << 20, "all of the volume was written");
            let block_bytes = volume.geometry().block_size.bytes() as usize;
            for block in read_all(&reactor, &volume).await.chunks(block_bytes) {
                let tail = block_bytes * usize::from(percent) / 100;
                let (filled, zeroes) = block.split_at(block_bytes - tail);
                assert!(zeroes.iter().all(|&byte| byte == 0), "{percent}");
                let ones: u32 = filled.iter().map(|byte| byte.count_ones()).sum();
                let expected = filled.len() as f64 * 4.0;
                let off = (f64::from(ones) - expected).abs();
                assert!(
                    off <= 6.5 * (filled.len() as f64 * 2.0).sqrt(),
                    "{percent}: not random"
                );
            }
        });
    }
}

async fn read_all(reactor: &Reactor, volume: &Arc<dyn Volume>) -> Vec<u8> {
    let sink = Completions::new();
    let queue = Arc::clone(volume).open_queue(reactor, 1, sink.clone());
    let mut queue = queue.expect("a queue opens");
    let blocks = volume.geometry().blocks as u32;
    let operation = Operation::Read {
        lba: 0,
        blocks,
        buffers: ReadBuffers::Lend,
    };
    let token = Token::default();
    let mut batch = VecDeque::from([Request { token, operation }]);
    sink.submit(&mut *queue, &mut batch);
    let completion = sink.next().await;
    completion.result.expect("a read succeeds");
    let Operation::Read {
        buffers: ReadBuffers::Filled(data),
        ..
    } = completion.operation
    else {
        panic!("a read is filled")
    };
    let mut bytes = Vec::new();
    data.iter().for_each(|view| bytes.extend_from_slice(view));
    bytes
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let refused = |change: fn(&mut BenchConfig)| {
        let mut config = config();
        change(&mut config);
        run("mem:?size=1M", config).expect_err("it cannot be")
    };
    let error = refused(|of| of.workload.streams[0].operations.flush_percent = 1.0);
    assert!(
        matches!(error, BenchError::Workload(WorkloadError::Shares { .. })),
        "{error}"
    );
    let error = refused(|of| of.interval = Duration::from_nanos(200));
    assert!(
        error.to_string().contains("intervals of 250ns or longer"),
        "{error}"
    );
    let error = refused(|of| of.interval = Duration::ZERO);
    assert!(
        matches!(error, BenchError::Plan(PlanError::Zero { .. })),
        "{error}"
    );
    let error = refused(|of| of.load = offered(0, Arrivals::Uniform));
    assert!(
        error.to_string().contains("the rate must be at least 1"),
        "{error}"
    );
    let error = refused(|of| of.load = offered(1_000_000_000_000, Arrivals::Uniform));
    assert!(
        error.to_string().contains("at most 1000000000 can"),
        "{error}"
    );
    let error =
        refused(|of| of.workload.streams[0].access = Blocks::Strided { stride_bytes: 5000 });
    assert!(
        error.to_string().contains("the stride is 5000 bytes, and"),
        "{error}"
    );
    let error = refused(|of| {
        of.workload = Workload::simple(512 << 10, 100, Blocks::Sequential);
        of.queues = 3;
    });
    assert!(
        error.to_string().contains("each queue works within"),
        "{error}"
    );

    let error = simulate(|reactor| async move {
        let volume: Arc<dyn Volume> = Arc::new(Changed {
            inner: open(&reactor, "mem:?size=1M").await,
            stall: None,
            geometry: |geometry| Geometry {
                deallocate_blocks: 0,
                ..geometry
            },
        });
        let mut config = config();
        config.workload.streams[0].operations = Operations {
            deallocate_percent: 30.0,
            write_percent: 0.0,
            ..config.workload.streams[0].operations
        };
        bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
    });
    let error = error.expect_err("it cannot deallocate").to_string();
    assert!(error.contains("changed cannot deallocate"), "{error}");
}
