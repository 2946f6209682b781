//! Volumes that lie, and honest ones under load: verification names the lie, and finds none where there is none.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Completions, FenceReply, Geometry, InFlight, Landing, Operation,
    Queue, ReadBuffers, Request, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_load::copy::{self, CopyConfig, CopyError};
use weir_load::verified::{self, Verification, VerifiedError, VerifiedReport};
use weir_load::verify::{self, Until, VerifyConfig, VerifyError, VerifyReport};
use weir_load::{Fault, Finding, Stop};
use weir_memory::{View, Views, copy_views, slice_views, views_len};
use weir_reactor::Reactor;
use weir_reactor::random::Random;
use weir_reactor::sim::seed_from_env_or_random;

use crate::common::{open, simulate_with};

/// Choices of a seed.
struct Numbers(Random);

impl Numbers {
    fn new(seed: u64) -> Self {
        Numbers(Random::new(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

async fn verified(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
) -> Result<VerifyReport, VerifyError> {
    verify::run(reactor, &[reactor.remote()], volume, config, |_| {}).await
}

fn config(numbers: &mut Numbers, passes: u64) -> VerifyConfig {
    VerifyConfig {
        request_bytes: numbers.of(&[8192, 16_384, 65_536]),
        depth: 1 + numbers.below(16) as u32,
        queues: 1 + numbers.below(4) as u32,
        range_bytes: None,
        seed: numbers.below(u64::MAX),
        until: Until::Passes(passes),
        check_only: false,
        passes_made: 0,
        stop: Stop::new(),
    }
}

const BLOCKS: u64 = 256;

/// What a run finds on a volume that tells one lie, and the block that it is about. What is misdirected goes to, or comes from, block
/// `to`.
fn found(
    seed: u64,
    config: &VerifyConfig,
    lie: &'static str,
    write: u64,
    block: u64,
    to: u64,
) -> Vec<Finding> {
    let url = format!("lying:?size=1M&lie={lie}&block={block}&write={write}&to={to}");
    let config = config.clone();
    let outcome = simulate_with(seed, move |reactor| async move {
        let volume = open(&reactor, &url).await;
        verified(&reactor, &volume, &config).await
    });
    match outcome {
        Err(VerifyError::Wrong { findings, .. }) => findings,
        other => panic!("seed {seed}, {lie}, block {block}, write {write}: {other:?}"),
    }
}

#[test]
fn every_lie_is_found_and_named() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for (lie, expected, persists) in [
        ("lost-write", Fault::LostWrite, true),
        ("torn-write", Fault::TornWrite, true),
        ("torn-block", Fault::TornWrite, true),
        ("stale-read", Fault::StaleRead, false),
        ("misdirected-read", Fault::MisdirectedRead, false),
        ("bit-flip", Fault::BitFlip, true),
        ("bit-flip-in-read", Fault::BitFlip, false),
    ] {
        for (seed, write) in (0..8).map(|run| (first.wrapping_add(run), 1 + run % 3)) {
            // Nothing that was misdirected can come from where nothing was written yet.
            let write = if lie == "misdirected-read" {
                write.max(2)
            } else {
                write
            };
            let mut numbers = Numbers::new(seed);
            let config = config(&mut numbers, write.max(2));
            let block = numbers.below(BLOCKS);
            let findings = found(seed, &config, lie, write, block, (block + 64) % BLOCKS);
            let about = format!("seed {seed}, {lie}, write {write}: {findings:?}");
            assert_eq!(findings.len(), 1, "{about}");
            let finding = &findings[0];
            assert_eq!(
                (finding.fault, finding.persists),
                (expected, persists),
                "{about}"
            );
            let request = finding.lba..finding.lba + u64::from(finding.blocks);
            let is_there = request.contains(&block)
                || lie.ends_with("write") && request.start.abs_diff(block) <= 16;
            assert!(is_there, "{about}");
        }
    }
}

#[test]
fn a_write_that_went_elsewhere_is_no_lost_one() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for seed in (0..24).map(|run| first.wrapping_add(run)) {
        let mut numbers = Numbers::new(seed);
        let write = 1 + numbers.below(3);
        let mut config = config(&mut numbers, write.max(2));
        let unit = config.request_bytes / 4096;
        let block = numbers.below(BLOCKS / 2);
        let to = BLOCKS / 2 + numbers.below(BLOCKS / 4) / unit * unit;
        if numbers.below(2) == 0 {
            // It goes to where nothing is written and nothing is compared.
            config.range_bytes = Some(BLOCKS / 2 * 4096);
        } else {
            // What it overwrote is not being overwritten itself just then: that would be the end of every trace.
            (config.depth, config.queues) = (1, 1);
        }
        let findings = found(seed, &config, "misdirected-write", write, block, to);
        for finding in &findings {
            let about = format!("seed {seed}, write {write}, {block} to {to}: {findings:?}");
            assert_eq!(finding.fault, Fault::MisdirectedWrite, "{about}");
            assert!(finding.counterpart.is_some(), "{about}");
        }
    }
}

/// The last write of one queue may damage blocks that another queue has compared already.
#[test]
fn what_strays_last_is_found_whoever_is_done() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    let mut seen = 0;
    for seed in (0..40).map(|run| first.wrapping_add(run)) {
        let mut numbers = Numbers::new(seed);
        let passes = 1 + numbers.below(2);
        let mut config = config(&mut numbers, passes);
        config.queues = 2 + numbers.below(3) as u32;
        let part = BLOCKS / u64::from(config.queues);
        let (lie, block, to) = match numbers.below(2) {
            // Into the part of the next queue.
            0 => ("overrunning-write", part - 1, part),
            _ => (
                "duplicated-write",
                numbers.below(part),
                BLOCKS - 1 - numbers.below(part),
            ),
        };
        let about = format!("seed {seed}, {lie} {block}, pass {passes}");
        let url = format!("lying:?size=1M&lie={lie}&block={block}&write={passes}&to={to}");
        let found = simulate_with(seed, move |reactor| async move {
            let volume = open(&reactor, &url).await;
            let found = verified(&reactor, &volume, &config).await;
            if found.is_ok() {
                // It was overwritten before it was looked at, which leaves no trace.
                config.check_only = true;
                config.passes_made = passes;
                let left = verified(&reactor, &volume, &config).await;
                left.expect("nothing is left of it");
            }
            found
        });
        match found {
            Ok(_) => {}
            Err(VerifyError::Wrong { findings, .. }) => {
                seen += 1;
                for finding in findings {
                    assert_eq!(finding.fault, Fault::MisdirectedWrite, "{about}: {finding}");
                    assert!(finding.counterpart.is_some(), "{about}: {finding}");
                }
            }
            Err(other) => panic!("{about}: {other}"),
        }
    }
    assert!(seen >= 10, "seed {first}: {seen} of 40");
}

#[test]
fn an_honest_volume_under_load_raises_no_alarm() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for seed in (0..8).map(|run| first.wrapping_add(run)) {
        let mut numbers = Numbers::new(seed);
        let url = numbers.of(&[
            "mem:?size=1M",
            "mem:?size=1000k&block_size=512",
            "file:/image?size=1M",
            "file:/image?size=1000k&block_size=512",
            "lying:?size=1M",
            "stripe:?create=1&chunk=16k&member=file:/a%3Fsize%3D3M&member=file:/b%3Fsize%3D3M",
        ]);
        let passes = 1 + numbers.below(3);
        let config = config(&mut numbers, passes);
        let outcome = simulate_with(seed, move |reactor| async move {
            let volume = open(&reactor, url).await;
            // All of it is read besides, again and again, through a queue of its own.
            let (source, own) = (Arc::clone(&volume), reactor.clone());
            let target = open(&reactor, "null:?size=1G").await;
            let stop = Stop::new();
            let ends = stop.clone();
            let load = reactor.spawn(async move {
                let config = CopyConfig {
                    request_bytes: 32 << 10,
                    depth: 4,
                };
                loop {
                    match copy::run(&own, &source, &target, &config, &ends, |_| {}).await {
                        Ok(_) => {}
                        Err(CopyError::Stopped { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            let outcome = verified(&reactor, &volume, &config).await;
            stop.stop();
            load.await;
            // What it left is what a later check finds.
            let passes_made = outcome.as_ref().map_or(0, |report| report.passes);
            let check = VerifyConfig {
                check_only: true,
                passes_made,
                queues: 1,
                ..config
            };
            if passes_made > 0 {
                let checked = verified(&reactor, &volume, &check).await;
                checked.unwrap_or_else(|error| panic!("{url}, checked: {error}"));
            }
            outcome
        });
        outcome.unwrap_or_else(|error| panic!("seed {seed}, {url}: {error}"));
    }
}

/// Requests of each queue.
const REQUESTS: u64 = 400;
/// The block that lies are about, what is misdirected with it, and which write to it is lied about.
const LIE: u64 = 5;
const LIE_TO: u64 = 9;
const LIE_WRITE: u64 = 20;

/// What queues do together.
#[derive(Clone)]
struct Traffic {
    writes: bool,
    /// Writes to the block that lies are about, so far and at most.
    lie_writes: Rc<Cell<u64>>,
    lie_writes_max: u64,
}

impl Traffic {
    fn new(writes: bool, lie_writes_max: u64) -> Self {
        Traffic {
            writes,
            lie_writes: Rc::default(),
            lie_writes_max,
        }
    }

    /// Some blocks to read or to write.
    fn next(&self, numbers: &mut Numbers, geometry: &Geometry) -> Operation {
        let blocks = 1 + numbers.below(4) as u32;
        let lba = numbers.below(geometry.blocks - 4);
        let is_of_lie = (lba..lba + u64::from(blocks)).contains(&LIE);
        let has_enough = is_of_lie && self.lie_writes.get() == self.lie_writes_max;
        if numbers.below(2) == 0 || !self.writes || has_enough {
            return Operation::Read {
                lba,
                blocks,
                buffers: ReadBuffers::Lend,
            };
        }
        let noted = self.lie_writes.get() + u64::from(is_of_lie);
        self.lie_writes.set(noted);
        write(lba, blocks, geometry)
    }
}

fn write(lba: u64, blocks: u32, geometry: &Geometry) -> Operation {
    let bytes = (blocks as usize) << geometry.block_size.shift();
    Operation::Write {
        lba,
        blocks,
        data: View::zeroes(bytes).collect(),
        fua: false,
    }
}

/// Random requests of 1 to 4 blocks, 8 in flight on each of two queues.
async fn drive_both(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    seed: u64,
    traffic: Traffic,
    stop: &Stop,
) {
    let queues: Vec<_> = (0..2)
        .map(|queue| {
            let (own, volume, stop) = (reactor.clone(), Arc::clone(volume), stop.clone());
            let (mut numbers, traffic) = (Numbers::new(seed ^ (queue << 32)), traffic.clone());
            let geometry = volume.geometry();
            reactor.spawn(async move {
                let next = || traffic.next(&mut numbers, &geometry);
                drive(&own, &volume, REQUESTS, next, &stop).await
            })
        })
        .collect();
    for queue in queues {
        queue.await;
    }
}

async fn drive(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    requests: u64,
    mut next: impl FnMut() -> Operation,
    stop: &Stop,
) {
    let completions = Completions::new();
    let queue = Arc::clone(volume).open_queue(reactor, 8, completions.clone());
    let mut queue = queue.expect("a queue opens");
    let (mut batch, mut sent, mut ended) = (VecDeque::new(), 0, 0);
    let is_over = |sent: u64| sent == requests || stop.is_asked();
    while ended < sent || !is_over(sent) {
        while sent - ended < 8 && !is_over(sent) {
            let token = Token {
                slot: sent as u32,
                ..Token::default()
            };
            let operation = next();
            batch.push_back(Request { token, operation });
            sent += 1;
        }
        completions.submit(&mut *queue, &mut batch);
        // What overlaps what is in flight on the other queue waits for that, and is to be offered again.
        reactor.sleep(Duration::from_micros(20)).await;
        while let Some(completion) = completions.pop() {
            completion.result.expect("nothing fails");
            ended += 1;
        }
    }
}

fn wrapped(volume: &Arc<dyn Volume>, seed: u64, stop: &Stop) -> (Arc<dyn Volume>, Verification) {
    let volumes = [Arc::clone(volume)];
    let (mut volumes, verification) =
        verified::wrap(&volumes, seed ^ 0x5EED_5EED, None, stop).expect("it is small");
    (volumes.remove(0), verification)
}

/// Reads and writes through a checked volume, and its conclusion.
async fn loaded(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    seed: u64,
) -> Result<VerifiedReport, VerifiedError> {
    let stop = Stop::new();
    let (checked, verification) = wrapped(volume, seed, &stop);
    let traffic = Traffic::new(true, u64::MAX);
    drive_both(reactor, &checked, seed, traffic, &stop).await;
    verification.conclude(reactor, &Stop::new(), |_| {}).await
}

/// As [`loaded`], but that the write that is lied about is the last one of all, so that nothing covers its traces: then there are reads only.
async fn loaded_around_a_lie(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    seed: u64,
) -> Result<VerifiedReport, VerifiedError> {
    let stop = Stop::new();
    let (checked, verification) = wrapped(volume, seed, &stop);
    let traffic = Traffic::new(true, LIE_WRITE - 1);
    drive_both(reactor, &checked, seed, traffic.clone(), &stop).await;
    assert_eq!(traffic.lie_writes.get(), LIE_WRITE - 1, "seed {seed}");
    let geometry = checked.geometry();
    let last = || write(LIE - 1, 4, &geometry);
    drive(reactor, &checked, 1, last, &stop).await;
    drive_both(reactor, &checked, !seed, Traffic::new(false, 0), &stop).await;
    verification.conclude(reactor, &Stop::new(), |_| {}).await
}

#[test]
fn checked_load_on_an_honest_volume_raises_no_alarm() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for seed in (0..8).map(|run| first.wrapping_add(run)) {
        for url in [
            "mem:?size=256k",
            "file:/image?size=1M",
            "mem:?size=64k&block_size=512",
        ] {
            let report = simulate_with(seed, move |reactor| async move {
                let volume = open(&reactor, url).await;
                loaded(&reactor, &volume, seed).await
            });
            let report = report.unwrap_or_else(|error| panic!("seed {seed}, {url}: {error}"));
            assert!(report.written_blocks > REQUESTS, "{report:?}");
            assert!(report.compared_blocks > REQUESTS, "{report:?}");
            assert!(report.whole);
        }
    }
}

#[test]
fn checked_load_finds_and_names_every_lie() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for (lie, expected, persists) in [
        ("lost-write", Fault::LostWrite, true),
        ("torn-write", Fault::TornWrite, true),
        ("torn-block", Fault::TornWrite, true),
        ("stale-read", Fault::StaleRead, false),
        ("misdirected-write", Fault::MisdirectedWrite, true),
        ("misdirected-read", Fault::MisdirectedRead, false),
        ("bit-flip", Fault::BitFlip, true),
        ("bit-flip-in-read", Fault::BitFlip, false),
    ] {
        for seed in (0..6).map(|run| first.wrapping_add(run)) {
            let url =
                format!("lying:?size=64k&lie={lie}&block={LIE}&write={LIE_WRITE}&to={LIE_TO}");
            let outcome = simulate_with(seed, move |reactor| async move {
                let volume = open(&reactor, &url).await;
                loaded_around_a_lie(&reactor, &volume, seed).await
            });
            let about = format!("seed {seed}, {lie}: {outcome:?}");
            let Err(VerifiedError::Wrong { findings, .. }) = outcome else {
                panic!("{about}")
            };
            assert!(!findings.is_empty(), "{about}");
            for finding in &findings {
                let named = (finding.fault, finding.persists);
                assert_eq!(named, (expected, persists), "{about}");
                let near = LIE - 1..LIE_TO + 4;
                assert!(near.contains(&finding.lba), "{about}");
            }
        }
    }
}

/// A volume whose reads are changed when they end.
struct Bent {
    inner: Arc<dyn Volume>,
    bend: fn(u64, &[View]) -> Views,
}

struct BentSink {
    sink: Rc<dyn CompletionSink>,
    bend: fn(u64, &[View]) -> Views,
}

impl BentSink {
    fn bend(&self, completion: &mut Completion) {
        if let Operation::Read {
            lba,
            buffers: ReadBuffers::Filled(data),
            ..
        } = &mut completion.operation
        {
            *data = (self.bend)(*lba, data);
        }
    }
}

impl CompletionSink for BentSink {
    fn complete(&self, mut completion: Completion) {
        self.bend(&mut completion);
        self.sink.complete(completion);
    }
}

struct BentQueue {
    inner: Box<dyn Queue>,
    sink: Rc<BentSink>,
}

impl Queue for BentQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let before = done.len();
        self.inner.submit(batch, done);
        let ended = done.iter_mut().skip(before);
        ended.for_each(|completion| self.sink.bend(completion));
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}

impl Volume for Bent {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        "bent".to_owned()
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
        let bend = self.bend;
        let sink = Rc::new(BentSink { sink, bend });
        let to: Rc<dyn CompletionSink> = Rc::<BentSink>::clone(&sink);
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, to)?;
        Ok(Box::new(BentQueue { inner, sink }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

const BLOCK_BYTES: usize = 4096;

/// Where block [`LIE`] is in what was read from `lba` on.
fn place_of_lie(lba: u64, data: &[View]) -> Option<usize> {
    let at = LIE.checked_sub(lba)? as usize * BLOCK_BYTES;
    (at < views_len(data)).then_some(at)
}

fn with_lie_of(lba: u64, data: &[View], byte: u8) -> Views {
    let mut bytes = vec![0; views_len(data)];
    copy_views(data, &mut bytes);
    if let Some(at) = place_of_lie(lba, data) {
        bytes[at..at + BLOCK_BYTES].fill(byte);
    }
    Views::from_iter([View::copy_of(&bytes)])
}

/// Block [`LIE`] always holds what nobody has written.
fn garbage(lba: u64, data: &[View]) -> Views {
    with_lie_of(lba, data, 0x77)
}

/// Block [`LIE`] always holds what it held at first.
fn forgetful(lba: u64, data: &[View]) -> Views {
    with_lie_of(lba, data, 0)
}

/// Reads end before block [`LIE`], and with a part of a block.
fn short(lba: u64, data: &[View]) -> Views {
    match place_of_lie(lba, data) {
        Some(0) => Views::from_iter([View::empty()]),
        Some(at) => slice_views(data, 0, at - 100),
        None => data.iter().cloned().collect(),
    }
}

#[test]
fn what_nobody_wrote_and_what_was_not_read_are_called_so() {
    let first = seed_from_env_or_random();
    println!("seed {first}");
    for (bend, expected) in [
        (garbage as fn(u64, &[View]) -> Views, Fault::ForeignData),
        (short, Fault::ShortRead),
    ] {
        for seed in (0..6).map(|run| first.wrapping_add(run)) {
            let (under_load, alone) = simulate_with(seed, move |reactor| async move {
                let inner = open(&reactor, "mem:?size=64k").await;
                let volume: Arc<dyn Volume> = Arc::new(Bent { inner, bend });
                let under_load = loaded(&reactor, &volume, seed).await;
                let config = VerifyConfig {
                    request_bytes: 16_384,
                    queues: 1,
                    ..config(&mut Numbers::new(seed), 2)
                };
                (under_load, verified(&reactor, &volume, &config).await)
            });
            let Err(VerifiedError::Wrong { findings, .. }) = under_load else {
                panic!("seed {seed}: {under_load:?}")
            };
            let is_named = |finding: &Finding| finding.fault == expected && finding.persists;
            assert!(findings.iter().all(is_named), "seed {seed}: {findings:?}");
            let Err(VerifyError::Wrong { findings, .. }) = alone else {
                panic!("seed {seed}: {alone:?}")
            };
            assert!(findings.iter().all(is_named), "seed {seed}: {findings:?}");
        }
    }
}

#[test]
fn what_is_found_wrong_ends_the_load_and_asks_for_no_end_of_anything_else() {
    let url = format!("lying:?size=64k&lie=lost-write&block={LIE}&write=1");
    simulate_with(3, move |reactor| async move {
        let volume = open(&reactor, &url).await;
        let session = Stop::new();
        let stop = session.within();
        let (checked, verification) = wrapped(&volume, 3, &stop);
        let traffic = Traffic::new(true, 1);
        drive_both(&reactor, &checked, 3, traffic, &stop).await;
        assert!(stop.is_asked() && !session.is_asked());
        let concluded = verification.conclude(&reactor, &session, |_| {}).await;
        assert!(concluded.is_err(), "{concluded:?}");
        assert!(!session.is_asked());
    });
}

/// Each request takes a while.
#[test]
fn a_conclusion_says_how_far_it_is_and_can_be_ended() {
    for ended in [false, true] {
        let (report, told) = simulate_with(5, move |reactor| async move {
            let volume = open(&reactor, "mem:?size=16M&delay=400ms").await;
            let stop = Stop::new();
            let (checked, verification) = wrapped(&volume, 5, &stop);
            let geometry = checked.geometry();
            let mut lba = 0;
            let all = || {
                lba += 64;
                write(lba - 64, 64, &geometry)
            };
            drive(&reactor, &checked, geometry.blocks / 64, all, &stop).await;
            let mut told = Vec::new();
            let concluded = verification.conclude(&reactor, &stop, |progress| {
                told.push((progress.block, progress.blocks, progress.searching));
                if ended {
                    stop.stop();
                }
            });
            (concluded.await, told)
        });
        let report = report.expect("nothing is wrong");
        assert_eq!((report.whole, report.written_blocks), (!ended, 4096));
        assert!(!told.is_empty() && told.is_sorted());
        assert!(told.iter().all(|of| of.1 == 4096 && !of.2));
        match ended {
            true => assert_eq!(told.len(), 1),
            false => assert_eq!(report.compared_blocks, 4096),
        }
    }
}

#[test]
fn a_search_says_how_far_it_is_and_can_be_ended() {
    for ended in [false, true] {
        let told = simulate_with(5, move |reactor| async move {
            let inner = open(&reactor, "mem:?size=64M&delay=500ms").await;
            let volume: Arc<dyn Volume> = Arc::new(Bent {
                inner,
                bend: forgetful,
            });
            let stop = Stop::new();
            let (checked, verification) = wrapped(&volume, 5, &stop.within());
            let geometry = checked.geometry();
            let one = || write(LIE, 1, &geometry);
            drive(&reactor, &checked, 1, one, &stop).await;
            let mut told = Vec::new();
            let concluded = verification.conclude(&reactor, &stop, |progress| {
                // Before that, the block that is wrong is read a few times.
                if !progress.searching {
                    return;
                }
                assert_eq!(progress.blocks, 16_384);
                told.push(progress.block);
                if ended {
                    stop.stop();
                }
            });
            let Err(VerifiedError::Wrong { findings, .. }) = concluded.await else {
                panic!("a write was lost")
            };
            assert_eq!(findings[0].fault, Fault::LostWrite);
            told
        });
        assert!(told.is_sorted());
        match ended {
            true => assert_eq!(told.len(), 1),
            false => assert!(told.len() > 1, "{told:?}"),
        }
    }
}

#[test]
fn volumes_that_are_one_medium_are_known_and_left_as_they_were() {
    simulate_with(9, |reactor| async move {
        let one = open(&reactor, "mem:?size=1M").await;
        let other = open(&reactor, "mem:?size=1M&block_size=512").await;
        let nothing = open(&reactor, "null:?size=1M").await;
        let run = VerifyConfig {
            queues: 1,
            ..config(&mut Numbers::new(1), 1)
        };
        verified(&reactor, &one, &run).await.expect("it is sound");
        for (volumes, expected) in [
            (vec![&one], None),
            (vec![&one, &other, &nothing, &nothing], None),
            (vec![&one, &other, &one], Some((0, 2))),
            (vec![&other, &other], Some((0, 1))),
        ] {
            let volumes: Vec<_> = volumes.into_iter().map(Arc::clone).collect();
            let same = verified::same_medium(&reactor, &volumes).await;
            assert_eq!(same, Ok(expected));
        }
        let check = VerifyConfig {
            check_only: true,
            passes_made: 1,
            ..run
        };
        let checked = verified(&reactor, &one, &check).await;
        checked.expect("it holds what it held before");
    });
}

#[test]
fn a_check_that_knows_the_passes_finds_a_lost_write() {
    simulate_with(7, |reactor| async move {
        let volume = open(&reactor, "mem:?size=1M").await;
        let mut numbers = Numbers::new(1);
        let run = VerifyConfig {
            queues: 1,
            ..config(&mut numbers, 2)
        };
        verified(&reactor, &volume, &run)
            .await
            .expect("the run is sound");
        let check = |passes_made| VerifyConfig {
            check_only: true,
            passes_made,
            ..run.clone()
        };
        for passes in [0, 1, 2] {
            let checked = verified(&reactor, &volume, &check(passes)).await;
            checked.expect("the volume holds what the second pass wrote");
        }
        let Err(VerifyError::Wrong { findings, .. }) = verified(&reactor, &volume, &check(3)).await
        else {
            panic!("nothing of a third pass is there");
        };
        assert_eq!(findings[0].fault, Fault::LostWrite, "{}", findings[0]);
    });
}
