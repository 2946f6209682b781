//! The kinds that pass the contract: alone and behind a guard, on the real system and on the simulated one.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_block::{
    BlockSize, Completion, CompletionSink, FenceReply, Geometry, HealthFuture, InFlight, Landing,
    Operation, Queue, Request, ResizeFuture, Token, Volume, VolumeError, Watcher, submit_to,
};
use weir_reactor::Reactor;
use weir_reactor::sim::DiskConfig;
use weir_volume::{Guard, GuardConfig};

use crate::file::open_again;
use weir_testing::contract::{Kind, contract};
use weir_testing::harness::{Harness, seed};

const RETAINS: Kind = Kind { retains: true };

fn guarded(volume: Arc<dyn Volume>) -> Arc<dyn Volume> {
    Guard::new(volume, GuardConfig::default()).unwrap()
}

fn sub_block(volume: Arc<dyn Volume>) -> Arc<dyn Volume> {
    let config = GuardConfig {
        block_size: Some(BlockSize::B512),
        ..GuardConfig::default()
    };
    Guard::new(volume, config).unwrap()
}

/// The contract on a volume as it is, and behind a guard.
fn both(harness: &Harness, url: &str, kind: Kind, seed: u64) {
    println!("{url}");
    let volume = open_again(harness, url);
    contract(harness, &volume, kind, seed);
    contract(harness, &guarded(volume), kind, seed.wrapping_add(1));
}

#[test]
fn null_reads_as_zeroes() {
    let seed = seed("null_reads_as_zeroes");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for url in [
        "null:?size=8M",
        "null:?size=1000k&block_size=512",
        "null:?size=8M&rate=100000&delay=200us",
    ] {
        both(&harness, url, Kind { retains: false }, seed);
    }
}

#[test]
fn mem_on_the_real_system() {
    let seed = seed("mem_on_the_real_system");
    let harness = Harness::real(1);
    both(&harness, "mem:?size=20M", RETAINS, seed);
    both(&harness, "mem:?size=6300k&block_size=512", RETAINS, seed);
}

#[test]
fn mem_on_the_simulated_system() {
    let seed = seed("mem_on_the_simulated_system");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    both(&harness, "mem:?size=8M&block_size=4k", RETAINS, seed);
    contract(
        &harness,
        &sub_block(harness.open("mem:?size=8M")),
        RETAINS,
        seed,
    );
}

/// A directory on the file system that the build is on, which has direct I/O as a rule, or in memory, which has not.
fn directory(on: Option<&Path>) -> tempfile::TempDir {
    match on {
        Some(on) => tempfile::tempdir_in(on).unwrap(),
        None => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    }
}

#[test]
fn files_on_the_real_system() {
    let seed = seed("files_on_the_real_system");
    let harness = Harness::real(1);
    let shm = PathBuf::from("/dev/shm");
    for (number, on) in [None, shm.is_dir().then_some(shm.as_path())]
        .into_iter()
        .enumerate()
    {
        let directory = directory(on);
        for (index, parameters) in [
            "size=5M",
            "size=3M&block_size=512",
            "size=3M&block_size=512&direct=never",
        ]
        .into_iter()
        .enumerate()
        {
            let path = directory.path().join(format!("{number}-{index}"));
            let url = format!("file:{}?{parameters}", path.display());
            both(&harness, &url, RETAINS, seed);
        }
    }
}

#[test]
fn files_on_the_simulated_system() {
    let seed = seed("files_on_the_simulated_system");
    let plain = DiskConfig::default();
    let disks = [
        plain,
        DiskConfig {
            direct: false,
            ..plain
        },
        DiskConfig {
            punch_hole: false,
            memory_alignment: 4096,
            ..plain
        },
        DiskConfig {
            zero_range: false,
            ..plain
        },
        DiskConfig {
            punch_hole: false,
            zero_range: false,
            ..plain
        },
        // Blocks of 512 bytes are made by reading and writing 4096.
        DiskConfig {
            offset_alignment: 4096,
            memory_alignment: 512,
            physical_block: 4096,
            ..plain
        },
    ];
    for disk in disks {
        println!("{disk:?}");
        let harness = Harness::simulated(seed, disk, 1);
        both(&harness, "file:/a?size=5M", RETAINS, seed);
        both(&harness, "file:/b?size=3M&block_size=512", RETAINS, seed);
        if let Some(simulation) = &harness.simulation {
            simulation.add_block_device(0, "/dev/x", 5 << 20);
        }
        both(&harness, "file:/dev/x", RETAINS, seed);
    }
}

/// A loop device over a file, where the machine lets us have one.
struct Loop {
    device: String,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new(sector: u32) -> Option<Self> {
        let directory = directory(None);
        let path = directory.path().join("backing");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(3 << 20)
            .unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size"])
            .arg(sector.to_string())
            .arg(&path)
            .output()
            .ok()?;
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        output.status.success().then_some(Loop {
            device,
            _directory: directory,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
    }
}

#[test]
fn block_devices_on_the_real_system() {
    let seed = seed("block_devices_on_the_real_system");
    for sector in [512, 4096] {
        let Some(device) = Loop::new(sector) else {
            println!("skipped: no loop device of {sector}-byte sectors can be had here");
            continue;
        };
        let harness = Harness::real(1);
        let url = format!("file:{}", device.device);
        assert_eq!(
            open_again(&harness, &url).geometry().block_size.bytes(),
            sector
        );
        both(&harness, &url, RETAINS, seed);
        both(&harness, &format!("{url}?block_size=512"), RETAINS, seed);
        drop(harness);
    }
}

/// The URL of a new stripe over these members.
fn stripe_of(chunk: &str, members: &[String]) -> String {
    let url = weir_volume::VolumeUrl::new("stripe", "").with("chunk", chunk);
    set_of(url, members)
}

fn set_of(url: weir_volume::VolumeUrl, members: &[String]) -> String {
    let new = url.with("create", 1);
    let all = members
        .iter()
        .fold(new, |url, member| url.with("member", member));
    all.to_string()
}

#[test]
fn stripes_on_the_simulated_system() {
    let seed = seed("stripes_on_the_simulated_system");
    let disk = DiskConfig {
        punch_hole: !seed.is_multiple_of(3),
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 1);
    let mem = |size: &str| format!("mem:?size={size}");
    let file = |name: &str, parameters: &str| format!("file:/{name}?{parameters}");
    for url in [
        stripe_of("4k", &[mem("2M"), mem("2100k"), mem("3M")]),
        stripe_of("64k", &[mem("3M")]),
        stripe_of("12k", &[file("a", "size=3M"), mem("2M")]),
        stripe_of(
            "32k",
            &[
                file("b", "size=2M&block_size=512"),
                file("c", "size=2M&block_size=512"),
                file("d", "size=2M&block_size=512"),
                file("e", "size=2M&block_size=512"),
            ],
        ),
        // A stripe of stripes.
        stripe_of(
            "16k",
            &[
                stripe_of("4k", &[mem("3M"), mem("3M")]),
                stripe_of("8k", &[file("f", "size=3M"), mem("3M")]),
            ],
        ),
    ] {
        both(&harness, &url, RETAINS, seed);
    }
}

#[test]
fn concatenations() {
    let seed = seed("concatenations");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let concat = |members: &[String]| set_of(weir_volume::VolumeUrl::new("concat", ""), members);
    let mem = |size: &str| format!("mem:?size={size}");
    for url in [
        concat(&[mem("3M")]),
        concat(&[mem("1040k"), mem("2M"), mem("1028k"), mem("2100k")]),
        concat(&[
            "file:/a?size=2M&block_size=512".to_owned(),
            "file:/b?size=1100k&block_size=512".to_owned(),
        ]),
        concat(&[stripe_of("8k", &[mem("2M"), mem("3M")]), mem("2M")]),
    ] {
        both(&harness, &url, RETAINS, seed);
    }
}

#[test]
fn stripes_on_the_real_system() {
    let seed = seed("stripes_on_the_real_system");
    let harness = Harness::real(1);
    let directory = directory(None);
    let member = |name: &str| format!("file:{}?size=3M", directory.path().join(name).display());
    let url = stripe_of("128k", &[member("a"), member("b"), member("c")]);
    both(&harness, &url, RETAINS, seed);
}

/// The one thing that a volume does wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    Nothing,
    /// A fence is never over.
    FenceNever,
    /// A fence is over while writes are under way.
    FenceAtOnce,
    /// A request that is cancelled is never completed.
    CancelSwallows,
    /// A request that is cancelled is completed as well as it ends.
    CancelTwice,
    /// A request that is cancelled ends as cancelled, and is done.
    CancelLies,
    /// Nobody is told of anything.
    WatchNothing,
    /// A resize says that it was done.
    ResizeSaysSo,
    /// A volume that can be resized says that another kind cannot.
    ResizeOfAnother,
    /// A drive never answers.
    HealthNever,
    /// Nothing is ever in flight.
    InFlightNothing,
    /// Requests in flight are told with other blocks.
    InFlightElsewhere,
    /// Requests in flight are told twice.
    InFlightTwice,
}

/// Memory whose requests take a while, with a flaw.
struct Flawed {
    inner: Arc<dyn Volume>,
    flaw: Flaw,
    /// Fences so far: what was begun before the last has no effect.
    fences: Arc<AtomicU64>,
}

impl Volume for Flawed {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        if self.flaw != Flaw::WatchNothing {
            self.inner.watch(watcher);
        }
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, Rc::clone(&sink))?;
        Ok(Box::new(FlawedQueue {
            flaw: self.flaw,
            fences: Arc::clone(&self.fences),
            inner: Rc::new(std::cell::RefCell::new(inner)),
            under_way: Rc::default(),
            sink,
            depth: depth as usize,
            reactor: reactor.clone(),
        }))
    }

    fn fence(&self, reply: FenceReply) {
        match self.flaw {
            Flaw::FenceNever => std::mem::forget(reply),
            Flaw::FenceAtOnce => reply(Ok(())),
            _ => {
                self.fences.fetch_add(1, Ordering::SeqCst);
                reply(Ok(()));
            }
        }
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        match self.flaw {
            Flaw::ResizeSaysSo => {
                let geometry = Geometry {
                    blocks,
                    ..self.geometry()
                };
                Box::pin(std::future::ready(Ok(geometry)))
            }
            Flaw::ResizeOfAnother => {
                let kind = "file";
                Box::pin(std::future::ready(Err(
                    weir_block::ResizeError::Unsupported { kind },
                )))
            }
            _ => Arc::clone(&self.inner).resize(reactor, blocks, force),
        }
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        match self.flaw {
            Flaw::HealthNever => Box::pin(std::future::pending()),
            _ => self.inner.health(reactor),
        }
    }
}

/// Writes reach the memory after a while, whether the queue is there still or not.
struct FlawedQueue {
    flaw: Flaw,
    fences: Arc<AtomicU64>,
    inner: Rc<std::cell::RefCell<Box<dyn Queue>>>,
    under_way: Rc<std::cell::RefCell<Vec<(InFlight, bool)>>>,
    sink: Rc<dyn CompletionSink>,
    depth: usize,
    reactor: Reactor,
}

impl Queue for FlawedQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.borrow_mut().landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        while self.under_way.borrow().len() < self.depth
            && let Some(request) = batch.pop_front()
        {
            if !request.operation.modifies() {
                let mut one = VecDeque::from([request]);
                self.inner.borrow_mut().submit(&mut one, done);
                continue;
            }
            self.begin(request);
        }
    }

    fn cancel(&mut self, token: Token) {
        let mut under_way = self.under_way.borrow_mut();
        let found = under_way.iter_mut().find(|(other, _)| other.token == token);
        let Some((_, is_cancelled)) = found else {
            return;
        };
        *is_cancelled = true;
        drop(under_way);
        if matches!(self.flaw, Flaw::CancelTwice | Flaw::CancelLies) {
            self.sink.complete(Completion {
                token,
                result: Err(VolumeError::Cancelled),
                operation: Operation::Flush,
            });
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        for (request, _) in self.under_way.borrow().iter() {
            match self.flaw {
                Flaw::InFlightNothing => {}
                Flaw::InFlightElsewhere => visit(InFlight {
                    range: request.range.start..request.range.end + 1,
                    ..request.clone()
                }),
                Flaw::InFlightTwice => (0..2).for_each(|_| visit(request.clone())),
                _ => visit(request.clone()),
            }
        }
    }
}

impl FlawedQueue {
    fn begin(&self, request: Request) {
        let Request { token, operation } = request;
        let this = InFlight::of(token, &operation);
        self.under_way.borrow_mut().push((this, false));
        let (flaw, sink, reactor) = (self.flaw, Rc::clone(&self.sink), self.reactor.clone());
        let under_way = Rc::clone(&self.under_way);
        let (inner, fences) = (Rc::clone(&self.inner), Arc::clone(&self.fences));
        let before = fences.load(Ordering::SeqCst);
        let task = async move {
            reactor.sleep(Duration::from_millis(1)).await;
            let is_fenced = fences.load(Ordering::SeqCst) != before;
            let at = |under_way: &[(InFlight, bool)]| {
                let mut tokens = under_way.iter().map(|(request, _)| request.token);
                tokens
                    .position(|other| other == token)
                    .expect("it is under way")
            };
            let place = at(&under_way.borrow());
            let (_, is_cancelled) = under_way.borrow_mut().remove(place);
            let mut batch = VecDeque::from([Request { token, operation }]);
            match flaw {
                Flaw::CancelSwallows if is_cancelled => {}
                _ if is_fenced => cancelled(batch, &*sink),
                Flaw::CancelLies if is_cancelled => {
                    let mut done = VecDeque::new();
                    inner.borrow_mut().submit(&mut batch, &mut done);
                }
                Flaw::Nothing if is_cancelled => cancelled(batch, &*sink),
                _ => submit_to(&mut **inner.borrow_mut(), &mut batch, &*sink),
            }
        };
        self.reactor.spawn(task).detach();
    }
}

fn cancelled(batch: VecDeque<Request>, sink: &dyn CompletionSink) {
    for Request { token, operation } in batch {
        sink.complete(Completion {
            token,
            result: Err(VolumeError::Cancelled),
            operation,
        });
    }
}

/// A stub of a fence, of cancelling, of watching, of a resize, of health or of what is in flight does not pass.
#[test]
fn a_volume_with_one_flaw_does_not_pass() {
    let seed = seed("a_volume_with_one_flaw_does_not_pass");
    let flaws = [
        Flaw::Nothing,
        Flaw::FenceNever,
        Flaw::FenceAtOnce,
        Flaw::CancelSwallows,
        Flaw::CancelTwice,
        Flaw::CancelLies,
        Flaw::WatchNothing,
        Flaw::ResizeSaysSo,
        Flaw::ResizeOfAnother,
        Flaw::HealthNever,
        Flaw::InFlightNothing,
        Flaw::InFlightElsewhere,
        Flaw::InFlightTwice,
    ];
    for flaw in flaws {
        let harness = Harness::simulated(seed, DiskConfig::default(), 1);
        let inner = harness.open("mem:?size=2M");
        let fences = Arc::default();
        let volume: Arc<dyn Volume> = Arc::new(Flawed {
            inner,
            flaw,
            fences,
        });
        let passes = std::panic::catch_unwind(AssertUnwindSafe(|| {
            contract(&harness, &volume, RETAINS, seed);
        }));
        assert_eq!(passes.is_ok(), flaw == Flaw::Nothing, "{flaw:?}");
        std::mem::forget(harness);
    }
}
