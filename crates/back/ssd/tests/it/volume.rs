//! `ssd:` volumes: the contract of every volume, completions when the model says so, and what a URL may ask for.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_block::{
    BlockSize, Completion, CompletionSink, Completions, FenceReply, Geometry, Health, HealthReport,
    InFlight, Landing, Operation, Queue, Request, ResizeFuture, Token, Volume, VolumeError,
    Watcher,
};
use weir_reactor::Reactor;
use weir_reactor::random::Random;
use weir_reactor::sim::DiskConfig;
use weir_ssd::{Model, Profile, SsdVolume};
use weir_testing::contract::{Kind, contract};
use weir_testing::harness::{self, Client, Harness, seed};
use weir_volume::{Access, Guard, GuardConfig, OpenError, Registry, VolumeUrl};

const MIB: u64 = 1 << 20;
/// What a simulated reactor may be late by: its turns take time.
const LATE: Duration = Duration::from_millis(5);
const RETAINS: Kind = Kind { retains: true };
const FORGETS: Kind = Kind { retains: false };

fn registry() -> Registry {
    let mut registry = Registry::standard();
    registry.register(weir_ssd::SCHEME, SsdVolume::factory());
    registry
}

fn open(harness: &Harness, url: &str) -> Arc<dyn Volume> {
    let opened = harness.open_with(&registry(), url, Access::READ_WRITE);
    opened.unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn guarded(volume: Arc<dyn Volume>, block_size: Option<BlockSize>) -> Arc<dyn Volume> {
    let config = GuardConfig {
        block_size,
        ..GuardConfig::default()
    };
    Guard::new(volume, config).unwrap()
}

fn over(profile: &str, inner: &str) -> String {
    VolumeUrl::new("ssd", profile)
        .with("over", inner)
        .to_string()
}

/// The contract on a volume as it is, and behind guards.
fn all(harness: &Harness, volume: &Arc<dyn Volume>, kind: Kind, seed: u64) {
    println!("{}", volume.name());
    contract(harness, volume, kind, seed);
    let guard = guarded(Arc::clone(volume), None);
    contract(harness, &guard, kind, seed.wrapping_add(1));
    let small = guarded(Arc::clone(volume), Some(BlockSize::B512));
    contract(harness, &small, kind, seed.wrapping_add(2));
}

#[test]
fn the_contract_over_nothing_and_over_memory() {
    let seed = seed("the_contract_over_nothing_and_over_memory");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for url in [
        "ssd:consumer-tlc?size=16M",
        "ssd:optane?size=17M&block_size=512&noise=20",
    ] {
        all(&harness, &open(&harness, url), FORGETS, seed);
    }
    for url in [
        over("consumer-qlc", "mem:?size=16M"),
        over("enterprise-tlc", "mem:?size=16M&block_size=512"),
        over("consumer-tlc", "mem:?size=16M") + "&time=model",
        over("consumer-tlc", "mem:?size=20M") + "&size=16M",
    ] {
        all(&harness, &open(&harness, &url), RETAINS, seed);
    }
}

#[test]
fn the_contract_over_files_and_stripes() {
    let seed = seed("the_contract_over_files_and_stripes");
    let cannot_deallocate = DiskConfig {
        punch_hole: false,
        zero_range: false,
        ..DiskConfig::default()
    };
    for disk in [DiskConfig::default(), cannot_deallocate] {
        let harness = Harness::simulated(seed, disk, 1);
        let url = over("970-evo-plus-1tb", "file:/a?size=16M");
        all(&harness, &open(&harness, &url), RETAINS, seed);
    }
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let stripe = VolumeUrl::new("stripe", "")
        .with("create", 1)
        .with("chunk", "64k");
    let member = over("1725b-1.6tb", "mem:?size=16M");
    let stripe = stripe.with("member", &member).with("member", member);
    all(
        &harness,
        &open(&harness, &stripe.to_string()),
        RETAINS,
        seed,
    );
}

#[test]
fn the_contract_on_the_real_system() {
    let seed = seed("the_contract_on_the_real_system");
    let harness = Harness::real(1);
    let url = over("optane", "mem:?size=16M");
    all(&harness, &open(&harness, &url), RETAINS, seed);
}

/// When each of some requests was submitted, and when it ended, in nanoseconds.
type Course = Vec<(u64, u64)>;

/// Submits writes and reads, up to `depth` at once, as fast as they end.
fn load(
    harness: &Harness,
    volume: &Arc<dyn Volume>,
    requests: u64,
    depth: u32,
    seed: u64,
) -> Course {
    let volume = Arc::clone(volume);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, depth);
        let mut random = Random::new(seed);
        let mut course = Vec::new();
        for _ in 0..requests / u64::from(depth) {
            let begun = reactor.now();
            let tokens: Vec<_> = (0..depth)
                .map(|_| client.submit(request(&mut random)))
                .collect();
            for token in tokens {
                client.completion(token).await.0.unwrap();
                course.push((begun.as_nanos(), reactor.now().as_nanos()));
            }
        }
        course
    })
}

/// A write or a read of 64 KiB, within 16 MiB.
fn request(random: &mut Random) -> Operation {
    let lba = random.below(16 * MIB / 65_536) * 16;
    if random.one_in(3) {
        return Operation::Read {
            lba,
            blocks: 16,
            buffers: weir_block::ReadBuffers::Lend,
        };
    }
    harness::write(lba, 16, &vec![7; 65_536])
}

/// What the model alone says of the same load.
fn expected(profile: &Profile, course: &Course, depth: u32, seed: u64) -> Vec<u64> {
    let mut model = Model::new(profile, 42);
    let mut random = Random::new(seed);
    let mut due = Vec::new();
    for round in course.chunks(depth as usize) {
        for (begun, _) in round {
            due.push(match request(&mut random) {
                Operation::Read { lba, .. } => model.read(*begun, lba * 4096, 65_536),
                operation => {
                    let (lba, _) = operation.range().unwrap();
                    model.write(*begun, lba * 4096, 65_536)
                }
            });
        }
    }
    due
}

#[test]
fn a_request_ends_when_the_model_says() {
    let seed = seed("a_request_ends_when_the_model_says");
    let profile = Profile::builtin("consumer-qlc")
        .unwrap()
        .scaled(16 * MIB)
        .unwrap();
    let url = "ssd:consumer-qlc?size=16M&seed=42";
    for depth in [1, 7] {
        let harness = Harness::simulated(seed, DiskConfig::default(), 1);
        let course = load(&harness, &open(&harness, url), 70, depth, seed);
        let due = expected(&profile, &course, depth, seed);
        // They are awaited in order: one is seen when all before it are done as well.
        for (round, due) in course
            .chunks(depth as usize)
            .zip(due.chunks(depth as usize))
        {
            let mut latest = 0;
            for ((begun, ended), due) in round.iter().zip(due) {
                latest = latest.max(*due);
                assert!(
                    *ended >= latest,
                    "submitted at {begun}, ended at {ended}, due at {due}"
                );
                let late = Duration::from_nanos(ended - latest);
                assert!(late < LATE, "{late:?} late");
            }
        }
        let again = Harness::simulated(seed, DiskConfig::default(), 1);
        let same = load(&again, &open(&again, url), 70, depth, seed);
        assert_eq!(course, same, "the same seed is the same run");
        let other = load(
            &again,
            &open(&again, "ssd:consumer-qlc?size=16M&seed=43"),
            70,
            depth,
            seed,
        );
        assert_ne!(course, other);
    }
}

#[test]
fn all_reactors_have_one_drive() {
    let seed = seed("all_reactors_have_one_drive");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    let volume = open(&harness, "ssd:970-pro-512gb?size=64M&noise=0");
    let opened = Arc::clone(&volume);
    let ran = harness.run_all(move |index, reactor| {
        let client = Client::open(&opened, &reactor, 16);
        async move {
            let begun = reactor.now();
            let data = vec![1; MIB as usize];
            let tokens: Vec<_> = (0..32)
                .map(|mib| {
                    client.submit(harness::write((index as u64 * 32 + mib) * 256, 256, &data))
                })
                .collect();
            for token in tokens {
                client.completion(token).await.0.unwrap();
            }
            (begun, reactor.now())
        }
    });
    let begun = ran.iter().map(|(begun, _)| *begun).min().unwrap();
    let ended = ran.iter().map(|(_, ended)| *ended).max().unwrap();
    let least = Duration::from_secs_f64(64.0 * MIB as f64 / 2.2e9);
    let took = ended - begun;
    assert!(
        took >= least && took < least + 2 * LATE,
        "{took:?}, at least {least:?}"
    );
    let report = harness.run(
        0,
        move |reactor| async move { volume.health(&reactor).await },
    );
    let health = report.health.unwrap();
    assert_eq!(health.data_units_written_bytes, Some(64 * MIB));
    assert_eq!(health.host_write_commands, Some(64));
    assert_eq!(health.media_bytes_written, Some(64 * MIB));
}

#[test]
fn a_drive_tells_of_its_cache_where_it_is_to() {
    let seed = seed("a_drive_tells_of_its_cache_where_it_is_to");
    for (counters, is_told) in [("", true), ("&counters=standard", false)] {
        let harness = Harness::simulated(seed, DiskConfig::default(), 1);
        let volume = open(&harness, &format!("ssd:consumer-qlc?size=64M{counters}"));
        let report = harness.run(
            0,
            move |reactor| async move { volume.health(&reactor).await },
        );
        let health = report.health.expect("a drive has counters");
        let own = [
            health.folded_bytes,
            health.collected_bytes,
            health.cache_bytes_used,
            health.cache_bytes_size,
        ];
        assert!(own.iter().all(|of| of.is_some() == is_told), "{health:?}");
        assert!(health.data_units_written_bytes.is_some(), "{health:?}");
    }
}

#[test]
fn a_drive_by_the_models_clock_keeps_nobody_waiting() {
    let seed = seed("a_drive_by_the_models_clock_keeps_nobody_waiting");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    // 64 MiB at 0.3 GB/s would take 0.2 s.
    let volume = open(&harness, "ssd:consumer-qlc?size=64M&time=model");
    let (took, before, health) = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        let begun = reactor.now();
        let data = vec![1; MIB as usize];
        let before = volume.health(&reactor).await.health.unwrap();
        for mib in 0..64 {
            client.write(mib * 256, 256, &data).await.unwrap();
        }
        (
            reactor.now() - begun,
            before,
            volume.health(&reactor).await.health.unwrap(),
        )
    });
    assert!(took < Duration::from_millis(20), "{took:?}");
    assert_eq!(health.data_units_written_bytes, Some(64 * MIB));
    assert!(health.folded_bytes > Some(0), "{health:?}");
    assert!(
        health.temperature_kelvin > before.temperature_kelvin,
        "{health:?}"
    );
}

#[test]
fn health_passes_guards_and_adds_up_over_stripes() {
    let seed = seed("health_passes_guards_and_adds_up_over_stripes");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let stripe = VolumeUrl::new("stripe", "").with("create", 1);
    let member = over("optane", "mem:?size=16M");
    let set = stripe
        .clone()
        .with("member", &member)
        .with("member", member.clone());
    let mixed = stripe
        .with("member", member)
        .with("member", "mem:?size=16M");
    let set = guarded(open(&harness, &set.to_string()), None);
    let mixed = open(&harness, &mixed.to_string());
    let alone = harness.open("mem:?size=16M");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&set, &reactor, 4);
        let before = set.health(&reactor).await.health.unwrap();
        client.write(0, 256, &vec![1; MIB as usize]).await.unwrap();
        let after = set.health(&reactor).await.health.unwrap();
        let written = |health: &Health| health.data_units_written_bytes.unwrap();
        assert_eq!(written(&after) - written(&before), MIB);
        let silent = mixed.health(&reactor).await;
        assert_eq!(silent.health, None, "one member says nothing");
        assert_eq!(alone.health(&reactor).await, HealthReport::default());
    });
}

/// A volume that takes two requests at a time, and counts them.
struct Stingy {
    inner: Arc<dyn Volume>,
    submitted: Arc<AtomicUsize>,
}

impl Volume for Stingy {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        _depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let inner = Arc::clone(&self.inner).open_queue(reactor, 2, sink)?;
        let submitted = Arc::clone(&self.submitted);
        Ok(Box::new(StingyQueue { inner, submitted }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

struct StingyQueue {
    inner: Box<dyn Queue>,
    submitted: Arc<AtomicUsize>,
}

impl Queue for StingyQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let before = batch.len();
        self.inner.submit(batch, done);
        self.submitted
            .fetch_add(before - batch.len(), Ordering::Relaxed);
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}

#[test]
fn requests_go_below_at_once_or_when_there_is_room() {
    let seed = seed("requests_go_below_at_once_or_when_there_is_room");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let submitted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&submitted);
    let mut registry = registry();
    registry.register(
        "stingy",
        Arc::new(move |request| {
            let submitted = Arc::clone(&counter);
            Box::pin(async move {
                let url = "mem:?size=16M&delay=1ms".parse().unwrap();
                let registry = &request.registry;
                let inner = registry
                    .open(&request.reactor, &url, request.access)
                    .await?;
                let volume: Arc<dyn Volume> = Arc::new(Stingy { inner, submitted });
                Ok(volume)
            })
        }),
    );
    let url = over("consumer-qlc", "stingy:");
    let volume = harness
        .open_with(&registry, &url, Access::READ_WRITE)
        .unwrap();
    contract(&harness, &volume, RETAINS, seed);
    let before = submitted.load(Ordering::Relaxed);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 8);
        let data = vec![3; 4096];
        let tokens: Vec<_> = (0..5)
            .map(|lba| client.submit(harness::write(lba, 1, &data)))
            .collect();
        assert_eq!(submitted.load(Ordering::Relaxed) - before, 2);
        assert_eq!(
            client.untaken(),
            0,
            "the drive keeps what the volume below does not take"
        );
        assert!(
            !matches!(client.queue().landing(0, 1), Landing::Anywhere),
            "a write that waits for the drive keeps its data"
        );
        for token in tokens {
            client.completion(token).await.0.unwrap();
        }
        assert_eq!(client.read(0, 5).await.unwrap(), vec![3; 5 * 4096]);
        let again: Vec<_> = (0..3)
            .map(|lba| client.submit(harness::write(lba, 1, &vec![4; 4096])))
            .collect();
        client.queue().cancel(again[2]);
        let (result, _) = client.completion(again[2]).await;
        assert_eq!(result, Err(VolumeError::Cancelled), "it was not below");
        for &token in &again[..2] {
            client.completion(token).await.0.unwrap();
        }
        assert_eq!(client.read(2, 1).await.unwrap(), vec![3; 4096]);
    });
}

#[test]
fn no_more_than_the_depth_is_taken() {
    let seed = seed("no_more_than_the_depth_is_taken");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = open(&harness, "ssd:consumer-tlc?size=16M");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 3);
        let tokens: Vec<_> = (0..5)
            .map(|lba| client.submit(harness::write(lba, 1, &vec![0; 4096])))
            .collect();
        assert_eq!(client.untaken(), 2);
        for token in tokens {
            client.completion(token).await.0.unwrap();
        }
        assert_eq!(client.untaken(), 0);
    });
}

/// Writes of 1 MiB that keep a drive of 0.3 GB/s busy for some hundred milliseconds; their tokens.
const QUEUED: u64 = 32;
fn queued(client: &Client) -> Vec<Token> {
    let data = vec![1; MIB as usize];
    let write = |mib| client.submit(harness::write(mib * 256, 256, &data));
    (0..QUEUED).map(write).collect()
}

const SLOW: &str = "consumer-qlc";

/// All of a drive of 32 MiB is written once, so that its cache is full.
async fn filled(client: &Client) {
    for token in queued(client) {
        client.completion(token).await.0.unwrap();
    }
}

#[test]
fn what_waits_for_the_drive_ends_when_it_is_cancelled() {
    let seed = seed("what_waits_for_the_drive_ends_when_it_is_cancelled");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = open(&harness, &over(SLOW, "mem:?size=32M"));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, QUEUED as u32);
        filled(&client).await;
        let begun = reactor.now();
        let mut tokens = queued(&client);
        let last = tokens.pop().unwrap();
        // By then it ended below.
        reactor.sleep(LATE).await;
        assert!(client.answered() < QUEUED + 10);
        let cancelled = reactor.now();
        client.cancel(last);
        client.cancel(last);
        client.completion(last).await.0.unwrap();
        let took = reactor.now() - cancelled;
        assert!(took < LATE, "{took:?}");
        for token in tokens {
            client.completion(token).await.0.unwrap();
        }
        let took = reactor.now() - begun;
        assert!(took > 10 * LATE, "the others wait: {took:?}");
        assert_eq!(client.answered(), 2 * QUEUED);
        // Whoever comes next has its place, and waits for the drive.
        client.write(0, 1, &[2; 4096]).await.unwrap();
        assert_eq!(client.read(0, 1).await.unwrap(), vec![2; 4096]);
    });
}

#[test]
fn a_queue_may_go_while_requests_wait_for_the_drive() {
    let seed = seed("a_queue_may_go_while_requests_wait_for_the_drive");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = open(&harness, &over(SLOW, "mem:?size=32M"));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, QUEUED as u32);
        filled(&client).await;
        queued(&client);
        reactor.sleep(LATE).await;
        drop(client);
        let begun = reactor.now();
        let client = Client::open(&volume, &reactor, 1);
        client.done(Operation::Flush).await.unwrap();
        let took = reactor.now() - begun;
        assert!(took > 5 * LATE, "the drive goes on: {took:?}");
        assert_eq!(client.answered(), 1);
        assert_eq!(client.read(31 * 256, 1).await.unwrap(), vec![1; 4096]);
    });
}

#[test]
fn a_fence_does_not_wait_for_the_drive() {
    let seed = seed("a_fence_does_not_wait_for_the_drive");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = open(&harness, &over(SLOW, "mem:?size=32M"));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, QUEUED as u32);
        filled(&client).await;
        let tokens = queued(&client);
        let begun = reactor.now();
        let (sender, receiver) = weir_reactor::oneshot();
        volume.fence(Box::new(move |result| sender.send(result)));
        receiver.await.unwrap().unwrap();
        let took = reactor.now() - begun;
        assert!(took < LATE, "{took:?}");
        let last = *tokens.last().unwrap();
        assert!(client.answered() < 2 * QUEUED);
        client.completion(last).await.0.unwrap();
    });
}

/// The model is told of the requests of one batch in their order, where the volume below does them at once.
#[test]
fn zeroes_before_a_write_are_told_before_it() {
    let seed = seed("zeroes_before_a_write_are_told_before_it");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = open(&harness, &over("consumer-qlc", "mem:?size=16M"));
    harness.run(0, move |reactor| async move {
        let completions = Completions::new();
        let sink: Rc<dyn CompletionSink> = Rc::<Completions>::clone(&completions);
        let mut queue = Arc::clone(&volume).open_queue(&reactor, 2, sink).unwrap();
        let zeroes = Operation::WriteZeroes {
            lba: 0,
            blocks: 1,
            deallocate: true,
            fua: false,
        };
        let token = Token::default();
        let requests = [zeroes, harness::write(0, 1, &[1; 4096])];
        let mut batch = requests
            .map(|operation| Request { token, operation })
            .into();
        completions.submit(&mut *queue, &mut batch);
        for _ in 0..2 {
            completions.next().await.result.unwrap();
        }
        let health = volume.health(&reactor).await.health.unwrap();
        assert_eq!(health.cache_bytes_used, Some(4096), "what was written");
    });
}

/// A volume that refuses what is neither a read nor a write, and loses what goes to its last block.
struct Poor(Arc<dyn Volume>);

struct PoorQueue {
    inner: Box<dyn Queue>,
    reactor: Reactor,
    sink: Rc<dyn CompletionSink>,
}

impl Volume for Poor {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.0.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let inner = Arc::clone(&self.0).open_queue(reactor, depth, Rc::clone(&sink))?;
        let reactor = reactor.clone();
        Ok(Box::new(PoorQueue {
            inner,
            reactor,
            sink,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.0.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.0).resize(reactor, blocks, force)
    }
}

impl Queue for PoorQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        while let Some(request) = batch.pop_front() {
            let Request { token, operation } = request;
            let is_lost = operation.range().is_some_and(|(lba, _)| lba == POOR_LAST);
            let error = match operation {
                _ if is_lost => VolumeError::Lost,
                Operation::Read { .. } | Operation::Write { .. } | Operation::Flush => {
                    self.inner
                        .submit(&mut [Request { token, operation }].into(), done);
                    continue;
                }
                _ => VolumeError::Unsupported,
            };
            let sink = Rc::clone(&self.sink);
            let completion = Completion {
                token,
                result: Err(error),
                operation,
            };
            let answer = async move { sink.complete(completion) };
            self.reactor.spawn(answer).detach();
        }
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}

const POOR_LAST: u64 = 16 * MIB / 4096 - 1;

fn poor(harness: &Harness) -> Arc<dyn Volume> {
    let mut registry = registry();
    registry.register(
        "poor",
        Arc::new(move |request| {
            Box::pin(async move {
                let url = "mem:?size=16M".parse().unwrap();
                let opened = request
                    .registry
                    .open(&request.reactor, &url, request.access);
                let volume: Arc<dyn Volume> = Arc::new(Poor(opened.await?));
                Ok(volume)
            })
        }),
    );
    let url = over("optane", "poor:");
    harness
        .open_with(&registry, &url, Access::READ_WRITE)
        .unwrap()
}

#[test]
fn what_others_have_to_do_is_asked_of_the_drive_once() {
    let seed = seed("what_others_have_to_do_is_asked_of_the_drive_once");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = guarded(poor(&harness), None);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        let counts = async |volume: &Arc<dyn Volume>| {
            let health = volume.health(&reactor).await.health.unwrap();
            let (written, read) = (
                health.data_units_written_bytes,
                health.data_units_read_bytes,
            );
            (written.unwrap(), read.unwrap())
        };
        let zeroes = Operation::WriteZeroes {
            lba: 0,
            blocks: 16,
            deallocate: false,
            fua: false,
        };
        client.done(zeroes).await.unwrap();
        assert_eq!(counts(&volume).await, (65_536, 0));
        let (zeroes, ones) = (vec![0; 65_536], vec![1; 65_536]);
        let swap = harness::compare_write(0, 16, &zeroes, &ones);
        client.done(swap).await.unwrap();
        assert_eq!(counts(&volume).await, (131_072, 65_536));
        let swap = harness::compare_write(0, 16, &zeroes, &ones);
        let result = client.done(swap).await;
        assert!(matches!(result, Err(VolumeError::Miscompare { .. })));
        assert_eq!(counts(&volume).await, (131_072, 131_072));
    });
}

#[test]
fn what_fails_below_fails_when_the_drive_is_done() {
    let seed = seed("what_fails_below_fails_when_the_drive_is_done");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = poor(&harness);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 2);
        let lost = client.write(POOR_LAST, 1, &[1; 4096]).await;
        assert_eq!(lost, Err(VolumeError::Lost));
        let health = volume.health(&reactor).await.health.unwrap();
        assert_eq!(health.data_units_written_bytes, Some(4096));
        let verify = Operation::Verify { lba: 0, blocks: 1 };
        let refused = client.done(verify).await;
        assert_eq!(refused, Err(VolumeError::Unsupported));
        let health = volume.health(&reactor).await.health.unwrap();
        assert_eq!(health.data_units_read_bytes, Some(0));
        client.write(0, 1, &[1; 4096]).await.unwrap();
        assert_eq!(client.read(0, 1).await.unwrap(), vec![1; 4096]);
    });
}

fn refusal(harness: &Harness, url: &str) -> String {
    let opened = harness.open_with(&registry(), url, Access::READ_WRITE);
    match opened {
        Ok(volume) => panic!("{url} opened: {:?}", volume.geometry()),
        Err(error @ OpenError::Member { .. }) => format!("member: {error}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_a_url_may_ask_for() {
    let harness = Harness::simulated(1, DiskConfig::default(), 1);
    let bytes = |url: &str| open(&harness, url).geometry().length_bytes();
    assert_eq!(bytes("ssd:optane-480gb"), 480_103_981_056);
    assert_eq!(bytes("ssd:optane-480gb?size=1G"), 1 << 30);
    assert_eq!(
        bytes(&over("optane", "null:?size=20M&block_size=512")),
        20 << 20
    );
    assert_eq!(
        bytes(&over("optane", "null:?size=16778k&block_size=512")),
        16_776 << 10
    );
    let read_only = harness.open_with(&registry(), "ssd:optane?size=16M", Access::READ_ONLY);
    assert!(read_only.unwrap().geometry().read_only);
    let cached = open(&harness, "ssd:consumer-tlc?size=16M").geometry();
    assert!(cached.volatile_cache);
    assert_eq!(cached.deallocate_blocks, 1);
    for (url, words) in [
        ("ssd:", "a profile and no host"),
        ("ssd://host/optane", "a profile and no host"),
        ("ssd:optan", "there are 970-evo-plus-1tb, "),
        ("ssd:optane?size=1M", "size= says how many"),
        ("ssd:optane?size=17000001", "cannot have 17000001 bytes"),
        ("ssd:optane?noise=51", "from 0 to 50"),
        ("ssd:optane?seed=-1", "seed=-1"),
        ("ssd:optane?time=fast", "one of real, model"),
        ("ssd:optane?sise=1G", "did you mean size=?"),
        ("ssd:optane?over=mem", "over=mem is not allowed"),
        (
            "ssd:optane?over=mem:%3Fsize%3D16M&block_size=512",
            "of the volume below",
        ),
        (
            "ssd:optane?over=mem:%3Fsize%3D16M&size=20M",
            "make size= smaller",
        ),
        (
            "ssd:optane?over=mem:%3Fsize%3D1M",
            "has no more than 1048576 bytes",
        ),
        ("ssd:optane?over=mem:", "member: "),
        ("ssd:/no/such.toml", "its profile cannot be read"),
        ("ssd:nosuch.toml", "its profile cannot be read"),
    ] {
        let refusal = refusal(&harness, url);
        assert!(refusal.contains(words), "{url}: {refusal}");
    }
}

#[test]
fn a_profile_is_read_from_a_file() {
    let harness = Harness::real(1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("own profile.toml");
    let text = include_str!("../../profiles/optane.toml");
    let write = |text: &[u8]| std::fs::write(&path, text).unwrap();
    let url = VolumeUrl::new("ssd", path.to_str().unwrap())
        .with("size", "16M")
        .to_string();
    write(text.replace("960197124096B", "1GiB").as_bytes());
    assert_eq!(open(&harness, &url).geometry().length_bytes(), 16 << 20);
    let without_size = VolumeUrl::new("ssd", path.to_str().unwrap()).to_string();
    assert_eq!(
        open(&harness, &without_size).geometry().length_bytes(),
        1 << 30
    );
    write(text.replace("direct_rate", "direct_rat").as_bytes());
    let words = refusal(&harness, &url);
    assert!(words.contains("own profile.toml, line "), "{words}");
    write(&[0xFF, 0xFE]);
    assert!(refusal(&harness, &url).contains("not UTF-8"));
    write(b"");
    assert!(refusal(&harness, &url).contains("name is missing"));
    write(&vec![b'#'; (1 << 20) + 1]);
    assert!(refusal(&harness, &url).contains("at most 1048576"));
}
