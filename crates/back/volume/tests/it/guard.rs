//! A guard's duties beside locks: resizing, retiring, fences, counters, read-only, cancelling.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    BlockSize, Completion, CompletionSink, Completions, FenceReply, Geometry, InFlight, Landing,
    Operation, OperationKind, Queue, ReadBuffers, Request, ResizeError, ResizeFuture, Token,
    Volume, VolumeError, VolumeEvent, Watcher,
};
use weir_memory::Pool;
use weir_reactor::sim::DiskConfig;
use weir_reactor::{Reactor, oneshot};
use weir_testing::harness::{self, Client, Harness, compare_write, seed, write};
use weir_volume::{Guard, GuardConfig};

#[derive(Default)]
struct Events(Mutex<Vec<VolumeEvent>>);

impl Watcher for Events {
    fn notice(&self, event: VolumeEvent) {
        self.0.lock().unwrap().push(event);
    }
}

fn watched(volume: &dyn Volume) -> Arc<Events> {
    let events = Arc::new(Events::default());
    let watcher: Weak<Events> = Arc::downgrade(&events);
    volume.watch(watcher);
    events
}

fn guard(volume: Arc<dyn Volume>) -> Arc<Guard> {
    Guard::new(volume, GuardConfig::default()).unwrap()
}

fn as_volume(guard: &Arc<Guard>) -> Arc<dyn Volume> {
    Arc::<Guard>::clone(guard)
}

#[test]
fn a_resize_is_seen_by_watchers_and_by_queues_that_are_open() {
    let seed = seed("a_resize_is_seen_by_watchers_and_by_queues_that_are_open");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for url in ["mem:?size=1M", "null:?size=1M", "file:/a?size=1M"] {
        let guard = guard(harness.open(url));
        let retains = !url.starts_with("null");
        harness.run(0, move |reactor| async move {
            let events = watched(&*guard);
            let volume = as_volume(&guard);
            let client = Client::open(&volume, &reactor, 4);
            let data = vec![9; 4096];
            assert_eq!(client.write(255, 1, &data).await, Ok(()));
            assert_eq!(
                client.write(256, 1, &data).await,
                Err(VolumeError::OutOfRange)
            );

            let grown = Arc::clone(&guard)
                .resize(&reactor, 512, false)
                .await
                .unwrap();
            assert_eq!(grown.blocks, 512);
            assert_eq!(client.write(511, 1, &data).await, Ok(()));
            assert_eq!(client.read(256, 1).await, Ok(vec![0; 4096]));

            let refused = Arc::clone(&guard)
                .resize(&reactor, 300, false)
                .await
                .unwrap_err();
            let would_shrink = ResizeError::WouldShrink {
                from_bytes: 2 << 20,
                to_bytes: 300 * 4096,
            };
            assert_eq!(refused, would_shrink);
            let shrunk = Arc::clone(&guard)
                .resize(&reactor, 300, true)
                .await
                .unwrap();
            assert!(shrunk.generation > grown.generation);
            assert_eq!(client.read(300, 1).await, Err(VolumeError::OutOfRange));
            if retains {
                assert_eq!(client.read(255, 1).await, Ok(data));
            }
            // What was cut off does not come back.
            Arc::clone(&guard)
                .resize(&reactor, 512, false)
                .await
                .unwrap();
            assert_eq!(client.read(511, 1).await, Ok(vec![0; 4096]));
            let seen = events.0.lock().unwrap();
            assert_eq!(*seen, [VolumeEvent::Resized; 3]);
        });
    }
    let stripe = weir_volume::VolumeUrl::new("stripe", "")
        .with("create", 1)
        .with("member", "mem:?size=2M");
    let refused = harness.resize(&harness.open(&stripe.to_string()), 1, true);
    assert_eq!(refused, Err(ResizeError::Unsupported { kind: "stripe" }));
}

#[test]
fn a_retired_volume_ends_what_is_in_flight_and_takes_nothing_more() {
    let seed = seed("a_retired_volume_ends_what_is_in_flight_and_takes_nothing_more");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let guard = guard(harness.open("file:/a?size=1M"));
    harness.run(0, move |reactor| async move {
        let events = watched(&*guard);
        let volume = as_volume(&guard);
        let client = Client::open(&volume, &reactor, 4);
        let data = vec![3; 4096];
        let before = client.submit(write(0, 1, &data));
        let (sender, retired) = oneshot();
        guard.retire(Box::new(move |result| sender.send(result)));
        let after = client.submit(write(1, 1, &data));
        assert_eq!(client.completion(after).await.0, Err(VolumeError::Lost));
        assert_eq!(retired.await, Some(Ok(())));
        assert_eq!(
            client.answered(),
            2,
            "it replied before the write had ended"
        );
        assert_eq!(client.completion(before).await.0, Ok(()));
        assert_eq!(*events.0.lock().unwrap(), [VolumeEvent::Lost]);
        let sink = weir_block::Completions::new();
        let queue = Arc::clone(&volume).open_queue(&reactor, 1, sink);
        assert!(matches!(queue, Err(VolumeError::Lost)));
    });
}

#[test]
fn a_fence_waits_for_what_was_submitted_on_every_queue() {
    let seed = seed("a_fence_waits_for_what_was_submitted_on_every_queue");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    for guarded in [true, false] {
        let volume = harness.open("file:/a?size=1M");
        let volume = if guarded {
            as_volume(&guard(volume))
        } else {
            volume
        };
        let submitted = Arc::new(AtomicU32::new(0));
        harness.run_all(move |index, reactor| {
            let (volume, submitted) = (Arc::clone(&volume), Arc::clone(&submitted));
            async move {
                let client = Client::open(&volume, &reactor, 8);
                let data = vec![1; 4096];
                let tokens: Vec<_> = (0..6)
                    .map(|block| client.submit(write(10 * index as u64 + block, 1, &data)))
                    .collect();
                submitted.fetch_add(1, Ordering::SeqCst);
                if index == 0 {
                    while submitted.load(Ordering::SeqCst) < 2 {
                        reactor.sleep(Duration::from_nanos(100)).await;
                    }
                    let (sender, fenced) = oneshot();
                    volume.fence(Box::new(move |result| sender.send(result)));
                    assert_eq!(fenced.await, Some(Ok(())));
                    assert_eq!(client.answered(), 6);
                    let read = client.read(10, 6).await.unwrap();
                    assert!(
                        read.iter().all(|&byte| byte == 1),
                        "the other's writes are done"
                    );
                }
                for token in tokens {
                    assert_eq!(client.completion(token).await.0, Ok(()));
                }
            }
        });
    }
}

#[test]
fn everything_is_counted_over_all_queues() {
    let seed = seed("everything_is_counted_over_all_queues");
    let harness = Harness::simulated(seed, DiskConfig::default(), 2);
    let guard = guard(harness.open("file:/a?size=1M"));
    let shared = Arc::clone(&guard);
    harness.run_all(move |index, reactor| {
        let volume = as_volume(&shared);
        async move {
            let client = Client::open(&volume, &reactor, 8);
            let data = vec![1; 3 * 4096];
            for round in 0..5 {
                let lba = 50 * index as u64 + 3 * round;
                assert_eq!(client.write(lba, 3, &data).await, Ok(()));
            }
            let wrong = vec![2; 4096];
            let lba = 50 * index as u64;
            let differs = client.done(compare_write(lba, 1, &wrong, &wrong)).await;
            assert!(matches!(
                differs,
                Err(VolumeError::Miscompare { offset: 0 })
            ));
            assert_eq!(client.read(1000, 1).await, Err(VolumeError::OutOfRange));
        }
    });
    let statistics = guard.statistics().wait().unwrap();
    assert_eq!(
        statistics.queues, 0,
        "both queues were dropped, and still count"
    );
    let writes = statistics.kind(OperationKind::Write);
    assert_eq!(
        (writes.succeeded, writes.blocks, writes.failed),
        (10, 30, 0)
    );
    let compared = statistics.kind(OperationKind::CompareWrite);
    assert_eq!((compared.succeeded, compared.failed), (0, 2));
    let reads = statistics.kind(OperationKind::Read);
    assert_eq!((reads.succeeded, reads.failed, reads.in_flight), (0, 2, 0));

    let in_flight = harness.run(0, move |reactor| async move {
        let volume = as_volume(&guard);
        let client = Client::open(&volume, &reactor, 8);
        let token = client.submit(write(0, 1, &[0; 4096]));
        let statistics = guard.statistics().await.unwrap();
        assert_eq!(client.completion(token).await.0, Ok(()));
        (
            statistics.queues,
            statistics.kind(OperationKind::Write).in_flight,
        )
    });
    assert_eq!(in_flight, (1, 1));
}

#[test]
fn a_guard_can_make_a_volume_read_only() {
    let seed = seed("a_guard_can_make_a_volume_read_only");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let config = GuardConfig {
        read_only: true,
        ..GuardConfig::default()
    };
    let volume: Arc<dyn Volume> = Guard::new(harness.open("mem:?size=1M"), config).unwrap();
    assert!(volume.geometry().read_only);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        let zero = vec![0; 4096];
        let refused = [
            write(0, 1, &zero),
            compare_write(0, 1, &zero, &zero),
            Operation::Deallocate { lba: 0, blocks: 1 },
            Operation::WriteZeroes {
                lba: 0,
                blocks: 1,
                deallocate: false,
                fua: false,
            },
        ];
        for operation in refused {
            assert_eq!(client.done(operation).await, Err(VolumeError::ReadOnly));
        }
        assert_eq!(client.read(0, 1).await, Ok(zero));
        assert_eq!(client.done(Operation::Flush).await, Ok(()));
    });
}

#[test]
fn blocks_can_only_be_made_smaller() {
    let seed = seed("blocks_can_only_be_made_smaller");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let config = GuardConfig {
        block_size: Some(weir_block::BlockSize::B4096),
        ..GuardConfig::default()
    };
    let volume = harness.open("mem:?size=1M&block_size=512");
    let refused = Guard::new(volume, config).err().unwrap();
    assert_eq!((refused.presented, refused.native), (4096, 512));
}

/// A volume of which a size is told late to who asks first: until another was told, or a while.
struct Slow {
    geometry: Mutex<Geometry>,
    asked: AtomicU32,
    told: Mutex<u32>,
    changed: std::sync::Condvar,
}

impl Volume for Slow {
    fn geometry(&self) -> Geometry {
        let geometry = *self.geometry.lock().unwrap();
        // The guard itself asks once.
        if self.asked.fetch_add(1, Ordering::Relaxed) == 1 {
            let told = self.told.lock().unwrap();
            let _ = self
                .changed
                .wait_timeout_while(told, Duration::from_millis(300), |told| *told == 0);
        }
        geometry
    }

    fn name(&self) -> String {
        "slow".to_owned()
    }

    fn watch(&self, _watcher: Weak<dyn Watcher>) {}

    fn open_queue(
        self: Arc<Self>,
        _reactor: &Reactor,
        _depth: u32,
        _sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Err(VolumeError::Lost)
    }

    fn fence(&self, reply: FenceReply) {
        reply(Ok(()));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: "slow",
        })))
    }
}

#[test]
fn of_two_sizes_the_later_stays() {
    let seed = seed("of_two_sizes_the_later_stays");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let geometry = harness.open("null:?size=1M").geometry();
    let slow = Arc::new(Slow {
        geometry: Mutex::new(geometry),
        asked: AtomicU32::new(0),
        told: Mutex::new(0),
        changed: std::sync::Condvar::new(),
    });
    let guard = guard(Arc::clone(&slow) as Arc<dyn Volume>);
    let resized = |blocks| {
        slow.geometry.lock().unwrap().blocks = blocks;
        guard.notice(VolumeEvent::Resized);
        *slow.told.lock().unwrap() += 1;
        slow.changed.notify_all();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| resized(512));
        while slow.asked.load(Ordering::Relaxed) < 2 {
            std::thread::yield_now();
        }
        resized(1024);
    });
    assert_eq!(guard.geometry().blocks, 1024);
}

/// A volume that does as it is scripted: it says no to what it does not support, and holds requests until cancelled.
struct Scripted {
    geometry: Geometry,
    /// What begins at this block or later is held until it is cancelled.
    held_from: u64,
    unsupported: &'static [OperationKind],
    /// Blocks from this one on are lost.
    lost_from: u64,
    inner: Arc<dyn Volume>,
    asked: Arc<Mutex<Vec<OperationKind>>>,
}

struct ScriptedQueue {
    volume: Arc<Scripted>,
    inner: Box<dyn Queue>,
    held: Vec<Request>,
    sink: Rc<dyn CompletionSink>,
    reactor: Reactor,
    /// Requests about to be answered.
    late: Rc<RefCell<Vec<InFlight>>>,
}

impl Volume for Scripted {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        "null:".to_owned()
    }

    fn watch(&self, _watcher: Weak<dyn Watcher>) {}

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, Rc::clone(&sink))?;
        Ok(Box::new(ScriptedQueue {
            volume: self,
            inner,
            held: Vec::new(),
            sink,
            reactor: reactor.clone(),
            late: Rc::default(),
        }))
    }

    fn fence(&self, reply: FenceReply) {
        reply(Ok(()));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: "scripted",
        })))
    }
}

impl ScriptedQueue {
    fn later(&self, token: Token, operation: Operation, error: VolumeError) {
        let (sink, reactor) = (Rc::clone(&self.sink), self.reactor.clone());
        let (late, this) = (Rc::clone(&self.late), InFlight::of(token, &operation));
        late.borrow_mut().push(this.clone());
        let task = self.reactor.spawn(async move {
            reactor.sleep(Duration::from_nanos(1)).await;
            late.borrow_mut().retain(|other| *other != this);
            sink.complete(Completion {
                token,
                result: Err(error),
                operation,
            });
        });
        task.detach();
    }
}

impl Queue for ScriptedQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    /// Takes one request at a time, so that whoever submits meets backpressure.
    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let Some(request) = batch.pop_front() else {
            return;
        };
        let kind = request.operation.kind();
        let (lba, _) = request.operation.range().unwrap_or_default();
        self.volume.asked.lock().unwrap().push(kind);
        if self.volume.unsupported.contains(&kind) {
            self.later(request.token, request.operation, VolumeError::Unsupported);
        } else if lba >= self.volume.lost_from {
            self.later(request.token, request.operation, VolumeError::Lost);
        } else if lba >= self.volume.held_from {
            self.held.push(request);
        } else {
            self.inner.submit(&mut VecDeque::from([request]), done);
        }
    }

    fn cancel(&mut self, token: Token) {
        if let Some(at) = self.held.iter().position(|held| held.token == token) {
            let held = self.held.remove(at);
            self.later(held.token, held.operation, VolumeError::Cancelled);
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        let held = self.held.iter();
        held.for_each(|held| visit(InFlight::of(held.token, &held.operation)));
        self.late.borrow().iter().cloned().for_each(&mut *visit);
        self.inner.in_flight(visit);
    }
}

fn scripted(
    harness: &Harness,
    held_from: u64,
    unsupported: &'static [OperationKind],
) -> (Arc<dyn Volume>, Arc<Mutex<Vec<OperationKind>>>) {
    scripted_until(harness, held_from, unsupported, u64::MAX)
}

fn scripted_until(
    harness: &Harness,
    held_from: u64,
    unsupported: &'static [OperationKind],
    lost_from: u64,
) -> (Arc<dyn Volume>, Arc<Mutex<Vec<OperationKind>>>) {
    let inner = harness.open("mem:?size=1M");
    let asked = Arc::default();
    let scripted = Scripted {
        geometry: Geometry {
            transfer_blocks_max: 2,
            compare_write_blocks: 0,
            ..inner.geometry()
        },
        held_from,
        unsupported,
        lost_from,
        inner,
        asked: Arc::clone(&asked),
    };
    (Arc::new(scripted), asked)
}

#[test]
fn what_a_volume_does_not_support_is_emulated() {
    let seed = seed("what_a_volume_does_not_support_is_emulated");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let (volume, asked) = scripted(
        &harness,
        u64::MAX,
        &[
            OperationKind::Compare,
            OperationKind::WriteZeroes,
            OperationKind::Deallocate,
            OperationKind::Verify,
        ],
    );
    let volume = as_volume(&guard(volume));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 8);
        let data: Vec<u8> = (0..7 * 4096_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(client.write(1, 7, &data).await, Ok(()), "split into four");
        assert_eq!(client.read(1, 7).await, Ok(data.clone()));
        let compare = |blocks: usize, data: &[u8]| Operation::Compare {
            lba: 1,
            blocks: blocks as u32,
            data: harness::views_of(&data[..blocks * 4096]),
        };
        for blocks in [1, 2, 7] {
            assert_eq!(client.done(compare(blocks, &data)).await, Ok(()));
        }
        let mut wrong = data.clone();
        wrong[5 * 4096 + 17] ^= 1;
        let offset = 5 * 4096 + 17;
        let differs = client.done(compare(7, &wrong)).await;
        assert_eq!(differs, Err(VolumeError::Miscompare { offset }));
        let zero = Operation::WriteZeroes {
            lba: 2,
            blocks: 5,
            deallocate: true,
            fua: true,
        };
        assert_eq!(client.done(zero).await, Ok(()));
        let mut zeroed = data.clone();
        zeroed[4096..6 * 4096].fill(0);
        assert_eq!(client.read(1, 7).await, Ok(zeroed.clone()));
        let verify = Operation::Verify {
            lba: 0,
            blocks: 256,
        };
        assert_eq!(client.done(verify).await, Ok(()));
        let hint = Operation::Deallocate { lba: 0, blocks: 8 };
        assert_eq!(client.done(hint).await, Ok(()));
        assert_eq!(client.read(1, 7).await, Ok(zeroed.clone()));
        let operation = compare_write(1, 7, &zeroed, &data);
        assert_eq!(client.done(operation).await, Ok(()));
        assert_eq!(client.read(1, 7).await, Ok(data));
        // Many at once, below a volume that takes one at a time.
        let tokens: Vec<_> = (0..30)
            .map(|block| client.submit(write(100 + block, 1, &[7; 4096])))
            .collect();
        for token in tokens {
            assert_eq!(client.completion(token).await.0, Ok(()));
        }
    });
    assert!(asked.lock().unwrap().contains(&OperationKind::Compare));
}

/// A request that is done in several steps fails at a later one: its error does not say that it had no effect.
#[test]
fn what_was_done_in_part_is_not_told_as_not_done() {
    let seed = seed("what_was_done_in_part_is_not_told_as_not_done");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let unsupported = &[OperationKind::WriteZeroes];
    let (volume, _) = scripted_until(&harness, u64::MAX, unsupported, 4);
    let volume = as_volume(&guard(volume));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 8);
        let (there, new) = (vec![0; 4 * 4096], vec![7; 4 * 4096]);
        let zero = |lba, blocks| Operation::WriteZeroes {
            lba,
            blocks,
            deallocate: false,
            fua: false,
        };
        // Two blocks at a time: the third is not there.
        let in_part = [write(2, 4, &new), zero(2, 4)];
        for operation in in_part {
            let what = operation.kind();
            let result = client.done(operation).await;
            assert_eq!(result, Err(VolumeError::TimedOut), "{what:?}");
        }
        let nothing = [
            write(4, 4, &new),
            zero(4, 4),
            compare_write(2, 4, &there, &new),
        ];
        for operation in nothing {
            let what = operation.kind();
            let result = client.done(operation).await;
            assert_eq!(result, Err(VolumeError::Lost), "{what:?}");
        }
    });
}

#[test]
fn what_its_user_cancels_is_cancelled() {
    let seed = seed("what_its_user_cancels_is_cancelled");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let (volume, _) = scripted(&harness, 0, &[]);
    let volume = as_volume(&guard(volume));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 8);
        let token = client.submit(Operation::Read {
            lba: 0,
            blocks: 1,
            buffers: ReadBuffers::Lend,
        });
        client.cancel(token);
        assert_eq!(
            client.completion(token).await.0,
            Err(VolumeError::Cancelled)
        );
    });
}

/// Counts what it is told of.
struct Counting {
    sink: Rc<Completions>,
    told: Arc<AtomicU32>,
}

impl CompletionSink for Counting {
    fn complete(&self, completion: Completion) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.sink.complete(completion);
    }
}

/// A queue of this volume, what it completes, how much of that was told, and the same at the time at which a fence replies.
struct Counted {
    queue: Box<dyn Queue>,
    completions: Rc<Completions>,
    told: Arc<AtomicU32>,
}

impl Counted {
    fn open(volume: &Arc<dyn Volume>, reactor: &Reactor) -> Self {
        let (completions, told) = (Completions::new(), Arc::default());
        let sink = Rc::new(Counting {
            sink: completions.clone(),
            told: Arc::clone(&told),
        });
        let queue = Arc::clone(volume).open_queue(reactor, 8, sink).unwrap();
        Counted {
            queue,
            completions,
            told,
        }
    }

    fn submit(&mut self, operations: impl IntoIterator<Item = Operation>) {
        let token = Token::default();
        let requests = operations.into_iter();
        let mut batch = requests
            .map(|operation| Request { token, operation })
            .collect();
        self.completions.submit(&mut *self.queue, &mut batch);
        assert!(batch.is_empty(), "it has room");
    }

    /// Has `volume` fenced; how much was told when it replied.
    fn fence(&self, volume: &Arc<dyn Volume>) -> Arc<Mutex<Option<u32>>> {
        let (told, at_reply) = (Arc::clone(&self.told), Arc::new(Mutex::new(None)));
        let fenced = Arc::clone(&at_reply);
        volume.fence(Box::new(move |result| {
            assert_eq!(result, Ok(()));
            *fenced.lock().unwrap() = Some(told.load(Ordering::Relaxed));
        }));
        at_reply
    }
}

/// The deallocations of one command have one token: each is a request of its own, and a cancel is for all of them.
#[test]
fn requests_under_one_token_are_told_apart_and_cancelled_together() {
    let seed = seed("requests_under_one_token_are_told_apart_and_cancelled_together");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let (volume, _) = scripted(&harness, 0, &[]);
    let volume = as_volume(&guard(volume));
    harness.run(0, move |reactor| async move {
        let mut counted = Counted::open(&volume, &reactor);
        for lba in 0..2 {
            counted.submit([Operation::Deallocate { lba, blocks: 1 }]);
        }
        let token = Token::default();
        let in_flight = |queue: &dyn Queue| {
            let mut all = Vec::new();
            queue.in_flight(&mut |request| all.push((request.token, request.range.start)));
            all
        };
        assert_eq!(in_flight(&*counted.queue), [(token, 0), (token, 1)]);
        let fenced = counted.fence(&volume);
        reactor.sleep(Duration::from_millis(1)).await;
        assert_eq!(*fenced.lock().unwrap(), None, "both are in flight");
        counted.queue.cancel(token);
        for _ in 0..2 {
            let completion = counted.completions.next().await;
            assert_eq!(completion.token, token);
            assert_eq!(completion.result, Err(VolumeError::Cancelled));
        }
        assert_eq!(in_flight(&*counted.queue), []);
        reactor.sleep(Duration::from_millis(1)).await;
        assert_eq!(*fenced.lock().unwrap(), Some(2));
    });
}

/// A drained volume may be taken away: its users know of everything then.
#[test]
fn a_fence_replies_when_the_user_was_told_of_the_last_completion() {
    let seed = seed("a_fence_replies_when_the_user_was_told_of_the_last_completion");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = as_volume(&guard(harness.open("null:?size=1M&delay=1ms")));
    harness.run(0, move |reactor| async move {
        let mut counted = Counted::open(&volume, &reactor);
        counted.submit([write(0, 1, &[1; 4096])]);
        let fenced = counted.fence(&volume);
        reactor.sleep(Duration::from_millis(10)).await;
        assert_eq!(*fenced.lock().unwrap(), Some(1));
    });
}

/// A request that waits for room below holds no memory that others receive into.
#[test]
fn data_is_copied_out_of_the_memory_of_others_where_it_waits_for_room() {
    let seed = seed("data_is_copied_out_of_the_memory_of_others_where_it_waits_for_room");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let (volume, _) = scripted(&harness, 0, &[]);
    let volume = as_volume(&guard(volume));
    harness.run(0, move |reactor| async move {
        let of_others = Pool::new(1 << 20);
        let data = of_others.segment(4096).unwrap().freeze();
        let mut counted = Counted::open(&volume, &reactor);
        // Of these the volume takes the first, and the guard keeps the second.
        let write = Operation::Write {
            lba: 1,
            blocks: 1,
            data: [data].into_iter().collect(),
            fua: false,
        };
        counted.submit([Operation::Deallocate { lba: 0, blocks: 1 }, write]);
        assert_eq!(of_others.usage().used_bytes, 0);
    });
}

/// A request of several steps ends at once when it is cancelled, unless one of them has changed something: then it goes on, for an end
/// would leave it done in part.
#[test]
fn what_has_changed_something_is_not_ended_by_a_cancel() {
    let seed = seed("what_has_changed_something_is_not_ended_by_a_cancel");
    // Of blocks 0, 1 and 2 the first and the last are read, changed and written.
    for held_from in 0..4 {
        let harness = Harness::simulated(seed, DiskConfig::default(), 1);
        let (volume, asked) = scripted(&harness, held_from, &[]);
        let config = GuardConfig {
            block_size: Some(BlockSize::B512),
            ..GuardConfig::default()
        };
        let volume = as_volume(&Guard::new(volume, config).unwrap());
        harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 4);
            let token = client.submit(Operation::WriteZeroes {
                lba: 4,
                blocks: 16,
                deallocate: false,
                fua: false,
            });
            reactor.sleep(Duration::from_millis(10)).await;
            client.cancel(token);
            reactor.sleep(Duration::from_millis(10)).await;
            let steps = asked.lock().unwrap().len();
            match held_from {
                0 => assert_eq!(steps, 1, "only the first block was asked for"),
                1 => assert_eq!(steps, 3, "the first block is written, the next is held"),
                2 => assert_eq!(steps, 4, "the last one is held"),
                _ => assert_eq!(steps, 5, "all is done"),
            }
            let ended = match held_from {
                0 => Some(Err(VolumeError::Cancelled)),
                3 => Some(Ok(())),
                _ => None,
            };
            assert_eq!(client.answered(), u64::from(ended.is_some()));
            if let Some(ended) = ended {
                assert_eq!(client.completion(token).await.0, ended);
            }
        });
    }
}

/// A queue is closed by dropping it, with anything in flight: its completions are lost, and nothing else is.
#[test]
fn a_queue_can_be_dropped_with_requests_in_flight() {
    let seed = seed("a_queue_can_be_dropped_with_requests_in_flight");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for url in ["mem:?size=1M", "null:?size=1M", "file:/a?size=1M"] {
        for guarded in [false, true] {
            let mut volume = harness.open(url);
            if guarded {
                volume = as_volume(&guard(volume));
            }
            harness.run(0, move |reactor| async move {
                let used = reactor.pool().usage().used_bytes;
                for _ in 0..3 {
                    let client = Client::open(&volume, &reactor, 4);
                    for block in 0..8 {
                        client.submit(Operation::Read {
                            lba: block,
                            blocks: 4,
                            buffers: ReadBuffers::Lend,
                        });
                        client.submit(write(block, 1, &[5; 4096]));
                    }
                }
                let (sender, fenced) = oneshot();
                volume.fence(Box::new(move |result| sender.send(result)));
                assert_eq!(fenced.await, Some(Ok(())));
                reactor.sleep(Duration::from_millis(10)).await;
                assert_eq!(reactor.pool().usage().used_bytes, used, "a buffer leaked");
                let client = Client::open(&volume, &reactor, 4);
                assert!(client.read(0, 8).await.is_ok());
            });
        }
    }
}

/// Reads that the pool has no buffer for wait for one, and all end.
#[test]
fn reads_wait_for_buffers() {
    let seed = seed("reads_wait_for_buffers");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = harness.open("file:/a?size=8M");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 200);
        let held: Rc<RefCell<Vec<_>>> = Rc::default();
        while let Ok(segment) = reactor.pool().segment(1 << 20) {
            held.borrow_mut().push(segment);
        }
        let released = Rc::new(Cell::new(false));
        let (later, keeper, flag) = (reactor.clone(), Rc::clone(&held), Rc::clone(&released));
        let task = reactor.spawn(async move {
            later.sleep(Duration::from_millis(20)).await;
            flag.set(true);
            keeper.borrow_mut().truncate(8);
        });
        task.detach();
        let read = |lba| Operation::Read {
            lba,
            blocks: 256,
            buffers: ReadBuffers::Lend,
        };
        let tokens: Vec<_> = (0..150)
            .map(|lba| client.submit(read(lba % 1000)))
            .collect();
        let cancelled = client.submit(Operation::Verify {
            lba: 0,
            blocks: 2048,
        });
        client.cancel(cancelled);
        reactor.sleep(Duration::from_millis(10)).await;
        assert_eq!(
            client.answered(),
            1,
            "what was cancelled does not wait for the others"
        );
        for token in tokens {
            // Each result is dropped before the next is waited for, and its buffers with it.
            assert_eq!(client.completion(token).await.0, Ok(()));
            assert!(released.get(), "no buffer was there before");
        }
        assert_eq!(
            client.completion(cancelled).await.0,
            Err(VolumeError::Cancelled)
        );
    });
}

/// Whatever is cancelled whenever, each request ends once; one that ended as cancelled had no effect.
#[test]
fn a_cancelled_request_ends_once_and_had_no_effect() {
    let seed = seed("a_cancelled_request_ends_once_and_had_no_effect");
    let stripe = weir_volume::VolumeUrl::new("stripe", "")
        .with("create", 1)
        .with("chunk", "8k")
        .with("member", "file:/s?size=4M")
        .with("member", "file:/t?size=4M")
        .to_string();
    let mut cancelled = 0;
    for (round, url) in ["file:/a?size=4M", "mem:?size=4M", &stripe]
        .into_iter()
        .enumerate()
    {
        for guarded in [false, true] {
            let seed = seed.wrapping_add(round as u64);
            let harness = Harness::simulated(seed, DiskConfig::default(), 1);
            let mut volume = harness.open(url);
            if guarded {
                volume = as_volume(&guard(volume));
            }
            cancelled += harness.run(0, move |reactor| cancel_some(volume, reactor, seed));
        }
    }
    assert!(cancelled > 0, "nothing was cancelled in time");
}

async fn cancel_some(volume: Arc<dyn Volume>, reactor: Reactor, seed: u64) -> u32 {
    const REQUESTS: u64 = 40;
    /// Blocks of each request.
    const BLOCKS: u32 = 5;
    let client = Client::open(&volume, &reactor, 16);
    let mut random = weir_reactor::random::Random::new(seed);
    let compare_write_at_most = volume.geometry().compare_write_blocks;
    let mut cancelled = 0;
    for round in 0..10_u8 {
        let (before, after) = (round.wrapping_mul(3), round.wrapping_mul(3) + 1);
        let bytes = vec![before; BLOCKS as usize * 4096];
        for index in 0..REQUESTS {
            let lba = index * u64::from(BLOCKS);
            assert_eq!(client.write(lba, BLOCKS, &bytes).await, Ok(()));
        }
        let new = vec![after; bytes.len()];
        let mut tokens = Vec::new();
        for index in 0..REQUESTS {
            let lba = index * u64::from(BLOCKS);
            let operation = if random.one_in(3) && compare_write_at_most >= BLOCKS {
                compare_write(lba, BLOCKS, &bytes, &new)
            } else {
                write(lba, BLOCKS, &new)
            };
            tokens.push(client.submit(operation));
        }
        let taken = tokens.len() - client.untaken();
        for token in &tokens[..taken] {
            if random.one_in(2) {
                client.cancel(*token);
            }
            if random.one_in(8) {
                reactor.sleep(Duration::from_micros(random.below(50))).await;
            }
        }
        for (index, token) in tokens.into_iter().enumerate() {
            let (result, operation) = client.completion(token).await;
            let lba = index as u64 * u64::from(BLOCKS);
            assert_eq!(operation.range(), Some((lba, u64::from(BLOCKS))));
            let there = client.read(lba, BLOCKS).await.unwrap();
            match result {
                Ok(()) => assert!(there == new, "request {index} of {round}"),
                Err(VolumeError::Cancelled) => {
                    cancelled += 1;
                    assert!(there == bytes, "request {index} of {round}");
                }
                // Of several parts, one was done and one was not: it is said that this may have had an effect.
                Err(VolumeError::TimedOut) if volume.name().starts_with("stripe") => cancelled += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    cancelled
}

/// What a lock keeps back stays for as long as others take: it must not keep what connections receive into.
#[test]
fn data_lands_in_the_pool_behind_a_lock() {
    let seed = seed("data_lands_in_the_pool_behind_a_lock");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for block_size in [BlockSize::B4096, BlockSize::B512] {
        let (volume, asked) = scripted(&harness, 0, &[]);
        let config = GuardConfig {
            block_size: Some(block_size),
            ..GuardConfig::default()
        };
        let volume = as_volume(&Guard::new(volume, config).unwrap());
        harness.run(0, move |reactor| async move {
            let ratio = 4096 / block_size.bytes();
            let clients = [(); 2].map(|()| Client::open(&volume, &reactor, 4));
            // Which of the blocks below are data of a write received anywhere for.
            let anywhere = || {
                let of = |client: &Client| {
                    (3..8)
                        .filter(|&block| {
                            let landing = client.queue().landing(block * u64::from(ratio), ratio);
                            if let Landing::Ready(segments) = &landing {
                                assert_eq!(weir_memory::segments_len(segments), 4096);
                            }
                            matches!(landing, Landing::Anywhere)
                        })
                        .collect::<Vec<_>>()
                };
                clients.each_ref().map(|client| of(client))
            };
            let all = vec![3, 4, 5, 6, 7];
            assert_eq!(anywhere(), [all.clone(), all.clone()]);
            let data = vec![0; 2 * 4096];
            let operation = compare_write(4 * u64::from(ratio), 2 * ratio, &data, &data);
            let locking = clients[0].submit(operation);
            // Its first step is a read under the lock, which the volume below keeps.
            while asked.lock().unwrap().is_empty() {
                reactor.sleep(Duration::from_micros(1)).await;
            }
            assert_eq!(anywhere(), [vec![3, 6, 7], vec![3, 6, 7]]);
            clients[0].cancel(locking);
            let ended = clients[0].completion(locking).await.0;
            assert_eq!(ended, Err(VolumeError::Cancelled));
            reactor.sleep(Duration::from_micros(1)).await;
            assert_eq!(anywhere(), [all.clone(), all]);
        });
    }
}

/// A compare-and-write holds its data while it reads: were all of the pool held by such, none could go on.
#[test]
fn compare_and_write_ends_though_the_pool_is_exhausted() {
    let seed = seed("compare_and_write_ends_though_the_pool_is_exhausted");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let config = GuardConfig {
        block_size: Some(BlockSize::B512),
        ..GuardConfig::default()
    };
    let guard = Guard::new(harness.open("file:/a?size=8M&block_size=4096"), config).unwrap();
    let volume: Arc<dyn Volume> = guard;
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 16);
        let mut taken = Vec::new();
        for length in [1 << 20, 64 << 10, 4096, 512] {
            while let Ok(segment) = reactor.pool().segment(length) {
                taken.push(segment);
            }
        }
        let (zeroes, ones) = ([0; 1024], [1; 1024]);
        let tokens: Vec<_> = (0..6)
            .map(|index| client.submit(compare_write(index * 3 + 1, 2, &zeroes, &ones)))
            .collect();
        for token in tokens {
            assert_eq!(client.completion(token).await.0, Ok(()));
        }
        drop(taken);
        assert_eq!(client.read(4, 2).await, Ok(ones.to_vec()));
    });
}
