//! Requests that a lost connection left under way: their host is kept back from them, on every reactor, until they have ended.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    Announcement, BlockSize, Completion, CompletionSink, Completions, FenceReply, Geometry,
    HostNumber, InFlight, Landing, Operation, OperationKind, Queue, ReadBuffers, Request,
    ResizeError, ResizeFuture, Router, Token, Volume, VolumeError, Watcher, submit_to,
};
use weir_reactor::random::Random;
use weir_reactor::sim::DiskConfig;
use weir_reactor::{Reactor, oneshot};
use weir_testing::harness::{self, Client, Harness, compare_write, seed, views_of};
use weir_volume::{Guard, GuardConfig, LimitedVolume, Limits, RateLimit};

const BLOCK: usize = 4096;
const HOST: Option<HostNumber> = Some(HostNumber(1));
const OTHER_HOST: Option<HostNumber> = Some(HostNumber(2));
/// Time between two looks at what is waited for.
const LOOK: Duration = Duration::from_micros(5);
/// Time in which all that nothing keeps back has been done, on a volume that takes none.
const LONG: Duration = Duration::from_millis(10);

/// A volume that keeps what modifies while it is shut, whoever wishes that it end; or, once it is open again, says that it does not
/// support that.
struct Gate {
    inner: Arc<dyn Volume>,
    geometry: Geometry,
    shut: AtomicBool,
    unsupported: AtomicBool,
    taken: AtomicU32,
    fences: Mutex<Vec<FenceReply>>,
}

impl Gate {
    fn new(harness: &Harness, change: impl FnOnce(&mut Geometry)) -> Arc<Self> {
        let inner = harness.open("mem:?size=4M");
        let mut geometry = inner.geometry();
        change(&mut geometry);
        Arc::new(Gate {
            inner,
            geometry,
            shut: AtomicBool::new(false),
            unsupported: AtomicBool::new(false),
            taken: AtomicU32::new(0),
            fences: Mutex::default(),
        })
    }

    fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
    }

    fn taken(&self) -> u32 {
        self.taken.load(Ordering::SeqCst)
    }

    fn guarded(self: &Arc<Self>) -> Arc<dyn Volume> {
        let volume: Arc<dyn Volume> = self.clone();
        Guard::new(volume, GuardConfig::default()).unwrap()
    }
}

impl Volume for Gate {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        "gate".to_owned()
    }

    fn watch(&self, _watcher: Weak<dyn Watcher>) {}

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        // It takes all that is submitted here: nothing is refused to the gate.
        let depth = depth.max(1024);
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, Rc::clone(&sink))?;
        Ok(Box::new(GateQueue {
            gate: self,
            inner: Rc::new(std::cell::RefCell::new(inner)),
            sink,
            reactor: reactor.clone(),
            kept: Rc::default(),
        }))
    }

    /// Waits for as long as the test likes.
    fn fence(&self, reply: FenceReply) {
        self.fences.lock().unwrap().push(reply);
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        let kind = "gate";
        Box::pin(std::future::ready(Err(ResizeError::Unsupported { kind })))
    }
}

struct GateQueue {
    gate: Arc<Gate>,
    inner: Rc<std::cell::RefCell<Box<dyn Queue>>>,
    sink: Rc<dyn CompletionSink>,
    reactor: Reactor,
    kept: Rc<std::cell::RefCell<Vec<InFlight>>>,
}

impl Queue for GateQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.borrow_mut().landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        for request in batch.drain(..) {
            self.gate.taken.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&self.gate);
            if !request.operation.modifies() || !gate.shut.load(Ordering::SeqCst) {
                self.inner
                    .borrow_mut()
                    .submit(&mut VecDeque::from([request]), done);
                continue;
            }
            let (reactor, inner) = (self.reactor.clone(), Rc::clone(&self.inner));
            let (sink, all) = (Rc::clone(&self.sink), Rc::clone(&self.kept));
            let this = InFlight::of(request.token, &request.operation);
            all.borrow_mut().push(this.clone());
            let kept = async move {
                while gate.shut.load(Ordering::SeqCst) {
                    reactor.sleep(LOOK).await;
                }
                all.borrow_mut().retain(|other| *other != this);
                if gate.unsupported.load(Ordering::SeqCst) {
                    sink.complete(Completion {
                        token: request.token,
                        result: Err(VolumeError::Unsupported),
                        operation: request.operation,
                    });
                    return;
                }
                let mut batch = VecDeque::from([request]);
                submit_to(&mut **inner.borrow_mut(), &mut batch, &*sink);
            };
            self.reactor.spawn(kept).detach();
        }
    }

    fn cancel(&mut self, _token: Token) {}

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.kept.borrow().iter().cloned().for_each(&mut *visit);
        self.inner.borrow().in_flight(visit);
    }
}

/// Steps that tests on several reactors go by.
#[derive(Clone, Default)]
struct Stage(Arc<AtomicU32>);

impl Stage {
    fn reached(&self, stage: u32) {
        self.0.store(stage, Ordering::SeqCst);
    }

    async fn wait(&self, reactor: &Reactor, stage: u32) {
        while self.0.load(Ordering::SeqCst) < stage {
            reactor.sleep(LOOK).await;
        }
    }
}

fn data(byte: u8, blocks: u32) -> Vec<u8> {
    vec![byte; blocks as usize * BLOCK]
}

fn write(lba: u64, blocks: u32, byte: u8) -> Operation {
    harness::write(lba, blocks, &data(byte, blocks))
}

fn read(lba: u64, blocks: u32) -> Operation {
    Operation::Read {
        lba,
        blocks,
        buffers: ReadBuffers::Lend,
    }
}

async fn assert_holds(client: &Client, lba: u64, blocks: u32, byte: u8) {
    let there = client.read(lba, blocks).await.unwrap();
    let wrong = there.iter().position(|&one| one != byte);
    assert_eq!(wrong.map(|at| (at, there[at])), None, "not {byte}");
}

/// Waits until nothing more happens, and sees that only so many were answered.
async fn assert_answered(client: &Client, reactor: &Reactor, answered: u64) {
    reactor.sleep(LONG).await;
    assert_eq!(client.answered(), answered);
}

/// Everything that modifies, on blocks 8 to 16, and what that makes of blocks that hold 1.
fn modifying() -> [(Operation, u8); 4] {
    let zeroes = Operation::WriteZeroes {
        lba: 8,
        blocks: 8,
        deallocate: false,
        fua: false,
    };
    let deallocate = Operation::Deallocate { lba: 8, blocks: 8 };
    let compare = compare_write(8, 8, &data(1, 8), &data(2, 8));
    [
        (write(8, 8, 2), 2),
        (zeroes, 0),
        (deallocate, 0),
        (compare, 2),
    ]
}

/// A change of a volume's geometry.
type Change = fn(&mut Geometry);

/// Geometries with which the volume below does in one step what it does by itself; a compare-and-write takes several in any case.
const STEPS: [(&str, Change); 2] = [
    ("one", |_| {}),
    ("several", |geometry| geometry.transfer_blocks_max = 2),
];

/// Lets one path of a host be lost with `lost` under way, and goes on by another on the same or another reactor.
fn lose(seed: u64, geometry: Change, lost: usize, reactors: u32) {
    let harness = Harness::simulated(seed, DiskConfig::default(), reactors);
    let gate = Gate::new(&harness, geometry);
    let volume = gate.guarded();
    let stage = Stage::default();
    let of_first = (Arc::clone(&volume), Arc::clone(&gate), stage.clone());
    let first = async move |reactor: Reactor| {
        let (volume, gate, stage) = of_first;
        let client = Client::of_host(&volume, &reactor, 64, HOST);
        assert_eq!(client.done(write(0, 32, 1)).await, Ok(()));
        let (asked, _) = modifying().into_iter().nth(lost).unwrap();
        let reading = client.submit(read(20, 4));
        gate.shut();
        let taken = gate.taken();
        let token = client.submit(asked);
        while gate.taken() == taken || client.answered() < 2 {
            reactor.sleep(LOOK).await;
        }
        reactor.sleep(LONG).await;
        client.abandon(&[token, reading]).await;
        stage.reached(1);
        let _ = client.completion(token).await;
        stage.wait(&reactor, 2).await;
    };
    let second = async move |reactor: Reactor| {
        let other = Client::of_host(&volume, &reactor, 64, HOST);
        stage.wait(&reactor, 1).await;
        // It hangs for whoever writes meanwhile: only reads tell that they are not kept back.
        let late = Client::of_host(&volume, &reactor, 64, HOST);
        let stranger = Client::of_host(&volume, &reactor, 64, OTHER_HOST);
        let nobody = Client::open(&volume, &reactor, 64);
        let reading = other.submit(read(15, 1));
        let comparing = other.submit(compare_write(6, 3, &data(9, 3), &data(9, 3)));
        let writing = late.submit(write(14, 12, 3));
        let verifying = late.submit(Operation::Verify { lba: 0, blocks: 9 });
        assert_eq!(other.done(read(0, 8)).await, Ok(()));
        assert_eq!(late.done(read(16, 16)).await, Ok(()));
        assert_eq!(other.done(Operation::Flush).await, Ok(()));
        let (asked, expected) = modifying().into_iter().nth(lost).unwrap();
        // A compare-and-write has locked its blocks against everybody.
        let locks = asked.kind() == OperationKind::CompareWrite;
        for client in [stranger, nobody].iter().filter(|_| !locks) {
            assert_holds(client, 8, 8, 1).await;
        }
        assert_answered(&other, &reactor, 2).await;
        assert_answered(&late, &reactor, 1).await;

        gate.open();
        let (result, operation) = other.completion(reading).await;
        assert_eq!(result, Ok(()));
        let seen = harness::data_of(&operation)[0];
        let compared = other.completion(comparing).await.0;
        assert!(
            matches!(compared, Err(VolumeError::Miscompare { .. })),
            "{compared:?}"
        );
        assert_eq!(late.completion(writing).await.0, Ok(()));
        assert_eq!(late.completion(verifying).await.0, Ok(()));
        // Both wait for the same thing, and then for nothing: what was read is the older write, or the newer one.
        assert!(seen == expected || seen == 3, "{seen} was read");
        reactor.sleep(LONG).await;
        assert_holds(&other, 14, 12, 3).await;
        stage.reached(2);
    };
    if reactors == 1 {
        harness.run(0, move |reactor| async move {
            let one = reactor.spawn(first(reactor.clone()));
            second(reactor).await;
            one.await;
        });
        return;
    }
    let both = Mutex::new((Some(first), Some(second)));
    harness.run_all(move |index, reactor| {
        let mut both = both.lock().unwrap();
        let mine = match index {
            0 => (both.0.take(), None),
            _ => (None, both.1.take()),
        };
        async move {
            match mine {
                (Some(first), _) => first(reactor).await,
                (_, Some(second)) => second(reactor).await,
                _ => unreachable!("each of them runs once"),
            }
        }
    });
}

#[test]
fn a_host_waits_for_what_its_lost_path_has_begun_and_nobody_else_does() {
    let seed = seed("a_host_waits_for_what_its_lost_path_has_begun_and_nobody_else_does");
    for (steps, geometry) in STEPS {
        for lost in 0..modifying().len() {
            for reactors in [1, 2] {
                println!("{steps} steps, operation {lost}, {reactors} reactors");
                lose(seed, geometry, lost, reactors);
            }
        }
    }
}

/// Two users of one queue, as connections of one reactor are.
#[test]
fn users_of_one_queue_are_told_apart() {
    let seed = seed("users_of_one_queue_are_told_apart");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let gate = Gate::new(&harness, |_| {});
    let volume = gate.guarded();
    harness.run(0, move |reactor| async move {
        let Users { router, users } = Users::new();
        let sink: Rc<dyn CompletionSink> = router.clone();
        let mut queue = volume.open_queue(&reactor, 64, sink).unwrap();
        let mut submit = |user: usize, operation| {
            let token = Token {
                owner: users[user].0,
                ..Token::default()
            };
            let mut batch = VecDeque::from([Request { token, operation }]);
            submit_to(&mut *queue, &mut batch, &*router);
            token
        };
        gate.shut();
        let lost = submit(0, write(0, 1, 1));
        let own = submit(1, write(1, 1, 1));
        queue.cancel(lost);
        let (sender, known) = oneshot::<()>();
        let announcement: Announcement = Arc::new(sender);
        queue.abandon(lost.owner, &announcement);
        drop(announcement);
        known.await;
        let mut submit = |user: usize, operation| {
            let token = Token {
                owner: users[user].0,
                slot: 1,
                ..own
            };
            let mut batch = VecDeque::from([Request { token, operation }]);
            submit_to(&mut *queue, &mut batch, &*router);
        };
        submit(1, read(0, 1));
        submit(2, read(0, 1));
        let answered = users[2].1.next().await;
        assert_eq!(answered.result, Ok(()));
        reactor.sleep(LONG).await;
        assert!(users[1].1.is_empty(), "it was not kept back");
        gate.open();
        for (_, completions) in &users[..2] {
            assert_eq!(completions.next().await.result, Ok(()));
        }
        let (_, completions) = &users[1];
        assert_eq!(completions.next().await.result, Ok(()));
        assert_eq!(router.stray(), 0);
    });
}

/// Users of a volume's queues, the first two of which are one host.
struct Users {
    router: Rc<Router>,
    users: Vec<(u32, Rc<Completions>)>,
}

impl Users {
    fn new() -> Self {
        let router = Router::new();
        let add = |host: Option<HostNumber>| {
            let completions = Completions::new();
            let sink: Rc<dyn CompletionSink> = completions.clone();
            let owner = router.add(sink);
            router.set_host(owner, host.unwrap());
            (owner, completions)
        };
        let users = [HOST, HOST, OTHER_HOST].into_iter().map(add).collect();
        Users { router, users }
    }

    fn queue(&self, volume: &Arc<dyn Volume>, reactor: &Reactor, depth: u32) -> Box<dyn Queue> {
        let sink: Rc<dyn CompletionSink> = self.router.clone();
        Arc::clone(volume).open_queue(reactor, depth, sink).unwrap()
    }

    fn token(&self, user: usize, slot: u32) -> Token {
        Token {
            owner: self.users[user].0,
            slot,
            ..Token::default()
        }
    }

    async fn answer(&self, user: usize) -> Result<(), VolumeError> {
        self.users[user].1.next().await.result
    }
}

/// No task has its turn between the loss of a connection and what its host submits by another: on the same queue, or on another one.
#[test]
fn a_hold_holds_from_the_moment_at_which_the_connection_is_lost() {
    let seed = seed("a_hold_holds_from_the_moment_at_which_the_connection_is_lost");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let gate = Gate::new(&harness, |_| {});
    let volume = gate.guarded();
    harness.run(0, move |reactor| async move {
        let users = Users::new();
        let mut queues = [(); 2].map(|()| users.queue(&volume, &reactor, 8));
        let submit = |queue: &mut Box<dyn Queue>, token, operation| {
            let mut batch = VecDeque::from([Request { token, operation }]);
            submit_to(&mut **queue, &mut batch, &*users.router);
        };
        reactor.sleep(LONG).await;
        gate.shut();
        submit(&mut queues[0], users.token(0, 0), write(0, 1, 1));
        let announcement: Announcement = Arc::new(());
        queues[0].abandon(users.users[0].0, &announcement);
        drop(announcement);
        for (slot, queue) in queues.iter_mut().enumerate() {
            let _ = queue.landing(0, 1);
            submit(queue, users.token(1, slot as u32), read(0, 1));
        }
        submit(&mut queues[1], users.token(2, 0), read(0, 1));
        assert_eq!(users.answer(2).await, Ok(()));
        reactor.sleep(LONG).await;
        assert!(users.users[1].1.is_empty(), "it was not kept back");
        gate.open();
        assert_eq!(users.answer(0).await, Ok(()));
        for _ in 0..2 {
            let completion = users.users[1].1.next().await;
            assert_eq!(completion.result, Ok(()));
            let Operation::Read {
                buffers: ReadBuffers::Filled(views),
                ..
            } = completion.operation
            else {
                panic!("a read without its data");
            };
            assert!(views.iter().all(|view| view.iter().all(|&byte| byte == 1)));
        }
    });
}

/// As many requests as a queue takes wait for what their host has left behind; others have all of the queue.
#[test]
fn what_is_held_takes_no_room_from_others() {
    const DEPTH: u32 = 4;
    let seed = seed("what_is_held_takes_no_room_from_others");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let gate = Gate::new(&harness, |_| {});
    let volume = gate.guarded();
    harness.run(0, move |reactor| async move {
        let users = Users::new();
        let mut queue = users.queue(&volume, &reactor, DEPTH);
        gate.shut();
        let token = users.token(0, 0);
        let operation = write(0, 1, 1);
        let mut batch = VecDeque::from([Request { token, operation }]);
        submit_to(&mut *queue, &mut batch, &*users.router);
        let announcement: Announcement = Arc::new(());
        queue.abandon(token.owner, &announcement);
        drop(announcement);
        let mut held: VecDeque<_> = (0..2 * DEPTH)
            .map(|slot| Request {
                token: users.token(1, slot),
                operation: read(0, 1),
            })
            .collect();
        submit_to(&mut *queue, &mut held, &*users.router);
        assert!(held.is_empty(), "{} were not taken", held.len());
        for slot in 0..2 * DEPTH {
            let token = users.token(2, slot);
            let operation = read(0, 1);
            let mut batch = VecDeque::from([Request { token, operation }]);
            submit_to(&mut *queue, &mut batch, &*users.router);
            assert_eq!(users.answer(2).await, Ok(()));
        }
        // One of those that wait is given up.
        queue.cancel(users.token(1, 3));
        assert_eq!(users.answer(1).await, Err(VolumeError::Cancelled));
        assert!(users.users[1].1.is_empty());
        gate.open();
        assert_eq!(users.answer(0).await, Ok(()));
        for _ in 1..2 * DEPTH {
            assert_eq!(users.answer(1).await, Ok(()));
        }
        // And the queue takes as many as before.
        gate.shut();
        let mut more: VecDeque<_> = (0..2 * DEPTH)
            .map(|slot| Request {
                token: users.token(2, slot),
                operation: write(u64::from(slot), 1, 2),
            })
            .collect();
        submit_to(&mut *queue, &mut more, &*users.router);
        assert_eq!(more.len() as u32, DEPTH);
        gate.open();
        for _ in 0..DEPTH {
            assert_eq!(users.answer(2).await, Ok(()));
        }
    });
}

/// A request that has not begun is cancelled and holds nothing.
#[test]
fn what_has_not_begun_keeps_nobody_back() {
    let seed = seed("what_has_not_begun_keeps_nobody_back");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let gate = Gate::new(&harness, |geometry| geometry.compare_write_blocks = 0);
    let volume: Arc<dyn Volume> = gate.clone();
    let guard = Guard::new(volume, GuardConfig::default()).unwrap();
    let limits = Limits {
        write_iops: Some(RateLimit::new(1, Some(1)).unwrap()),
        ..Limits::default()
    };
    let limited: Arc<dyn Volume> = LimitedVolume::new(Arc::clone(&guard), limits);
    let volume: Arc<dyn Volume> = guard;
    harness.run(0, move |reactor| async move {
        // Behind a limit.
        let behind = Client::of_host(&limited, &reactor, 8, HOST);
        let writes: Vec<_> = (0..4).map(|lba| behind.submit(write(lba, 1, 1))).collect();
        assert_eq!(behind.completion(writes[0]).await.0, Ok(()));
        behind.abandon(&writes[1..]).await;
        for &token in &writes[1..] {
            let cancelled = Err(VolumeError::Cancelled);
            assert_eq!(behind.completion(token).await.0, cancelled);
        }
        // Behind the lock of another host's compare-and-write, which writes already.
        let client = Client::of_host(&volume, &reactor, 8, HOST);
        let stranger = Client::of_host(&volume, &reactor, 8, OTHER_HOST);
        gate.shut();
        let taken = gate.taken();
        let locking = stranger.submit(compare_write(8, 2, &data(0, 2), &data(5, 2)));
        while gate.taken() < taken + 2 {
            reactor.sleep(LOOK).await;
        }
        let lost = [
            client.submit(write(8, 2, 1)),
            client.submit(compare_write(9, 1, &data(0, 1), &data(1, 1))),
        ];
        reactor.sleep(LONG).await;
        client.abandon(&lost).await;
        let other = Client::of_host(&volume, &reactor, 8, HOST);
        let writing = other.submit(write(8, 1, 6));
        gate.open();
        assert_eq!(stranger.completion(locking).await.0, Ok(()));
        for token in lost {
            let cancelled = Err(VolumeError::Cancelled);
            assert_eq!(client.completion(token).await.0, cancelled);
        }
        assert_eq!(other.completion(writing).await.0, Ok(()));
        reactor.sleep(LONG).await;
        assert_holds(&other, 0, 1, 1).await;
        assert_holds(&other, 1, 3, 0).await;
        assert_holds(&other, 8, 1, 6).await;
        assert_holds(&other, 9, 1, 5).await;
    });
}

/// A request that the volume below cannot do is not emulated for somebody who is gone.
#[test]
fn nothing_is_emulated_for_who_is_gone() {
    let seed = seed("nothing_is_emulated_for_who_is_gone");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let gate = Gate::new(&harness, |_| {});
    let volume = gate.guarded();
    harness.run(0, move |reactor| async move {
        let client = Client::of_host(&volume, &reactor, 8, HOST);
        gate.shut();
        let lost = client.submit(Operation::WriteZeroes {
            lba: 0,
            blocks: 4,
            deallocate: false,
            fua: false,
        });
        client.abandon(&[lost]).await;
        gate.unsupported.store(true, Ordering::SeqCst);
        gate.open();
        let (result, _) = client.completion(lost).await;
        assert_eq!(result, Err(VolumeError::Unsupported));
        reactor.sleep(LONG).await;
        assert_eq!(gate.taken(), 1);
        assert_holds(&client, 0, 4, 0).await;
    });
}

/// A queue that is dropped with holds lets go of them when nothing of it can land any more.
#[test]
fn a_dropped_queue_holds_until_it_is_fenced() {
    let seed = seed("a_dropped_queue_holds_until_it_is_fenced");
    for (steps, geometry) in STEPS {
        let harness = Harness::simulated(seed, DiskConfig::default(), 1);
        let gate = Gate::new(&harness, geometry);
        let volume = gate.guarded();
        harness.run(0, move |reactor| async move {
            let client = Client::of_host(&volume, &reactor, 8, HOST);
            gate.shut();
            let lost = client.submit(write(0, 4, 1));
            while gate.taken() == 0 {
                reactor.sleep(LOOK).await;
            }
            client.abandon(&[lost]).await;
            drop(client);
            let other = Client::of_host(&volume, &reactor, 8, HOST);
            let reading = other.submit(read(3, 1));
            assert_answered(&other, &reactor, 0).await;
            let fences = std::mem::take(&mut *gate.fences.lock().unwrap());
            assert_eq!(fences.len(), 1, "{steps} steps");
            for fence in fences {
                fence(Ok(()));
            }
            assert_eq!(other.completion(reading).await.0, Ok(()));
        });
    }
}

/// However much a connection leaves, it makes no more than so many holds, and each is let go of when what it stands for has ended.
#[test]
fn many_requests_hold_together() {
    const MANY: u64 = 200;
    let seed = seed("many_requests_hold_together");
    for many in [64, MANY] {
        let harness = Harness::simulated(seed, DiskConfig::default(), 2);
        let gate = Gate::new(&harness, |_| {});
        let volume = gate.guarded();
        let stage = Stage::default();
        harness.run_all(move |index, reactor| {
            let (volume, gate, stage) = (Arc::clone(&volume), Arc::clone(&gate), stage.clone());
            async move {
                let client = Client::of_host(&volume, &reactor, 512, HOST);
                if index == 0 {
                    gate.shut();
                    // Every other block, in no order.
                    let lost: Vec<_> = (0..many)
                        .map(|at| client.submit(write(at * 77 % many * 2, 1, 1)))
                        .collect();
                    client.abandon(&lost).await;
                    stage.reached(1);
                    for token in lost {
                        assert_eq!(client.completion(token).await.0, Ok(()));
                    }
                    return;
                }
                stage.wait(&reactor, 1).await;
                let taken = gate.taken();
                let between: Vec<_> = (0..many)
                    .map(|at| client.submit(read(at * 2 + 1, 1)))
                    .collect();
                let at: Vec<_> = (0..many).map(|at| client.submit(read(at * 2, 1))).collect();
                reactor.sleep(LONG).await;
                // Between the writes of one hold nobody reads.
                let holds = match many {
                    64 => many,
                    // Four writes each, the last one after three gaps.
                    _ => many / 4,
                };
                assert_eq!(client.answered(), holds);
                assert_eq!(u64::from(gate.taken() - taken), holds);
                gate.open();
                for token in between.into_iter().chain(at) {
                    assert_eq!(client.completion(token).await.0, Ok(()));
                }
            }
        });
    }
}

/// A volume that is taken out of service while its host is kept back ends everything.
#[test]
fn a_retired_volume_ends_what_is_kept_back() {
    let seed = seed("a_retired_volume_ends_what_is_kept_back");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let gate = Gate::new(&harness, |_| {});
    let below: Arc<dyn Volume> = gate.clone();
    let guard = Guard::new(below, GuardConfig::default()).unwrap();
    harness.run(0, move |reactor| async move {
        let volume: Arc<dyn Volume> = guard.clone();
        let client = Client::of_host(&volume, &reactor, 8, HOST);
        let other = Client::of_host(&volume, &reactor, 8, HOST);
        gate.shut();
        let lost = client.submit(write(0, 1, 1));
        client.abandon(&[lost]).await;
        let kept = other.submit(write(0, 1, 2));
        let (sender, retired) = oneshot();
        guard.retire(Box::new(move |result| sender.send(result)));
        assert_eq!(other.done(read(0, 1)).await, Err(VolumeError::Lost));
        // It has had no effect, and would have none before the volume answers.
        assert_eq!(other.completion(kept).await.0, Err(VolumeError::Lost));
        gate.open();
        assert_eq!(client.completion(lost).await.0, Ok(()));
        assert_eq!(retired.await, Some(Ok(())));
    });
}

/// One path of a host is lost again and again with anything under way, beside another host that locks the same blocks. What the host
/// does by its other path comes after, and everything ends.
#[test]
fn nothing_older_lands_on_what_a_host_writes_next() {
    let seed = seed("nothing_older_lands_on_what_a_host_writes_next");
    race(seed, "file:/a?size=1M");
    // Blocks of 512 bytes on 4096: most requests take several steps, and locks.
    race(seed, "file:/a?size=1M&block_size=512");
}

fn race(seed: u64, url: &str) {
    const BLOCKS: u64 = 12;
    const ROUNDS: u8 = 40;
    let disk = DiskConfig {
        offset_alignment: 4096,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 2);
    let volume = harness.open(url);
    let volume = match volume.geometry().block_size {
        BlockSize::B512 => volume,
        _ => Guard::new(volume, GuardConfig::default()).unwrap(),
    };
    let block = volume.geometry().block_size.bytes() as usize;
    let stage = Stage::default();
    harness.run_all(move |index, reactor| {
        let (volume, stage) = (Arc::clone(&volume), stage.clone());
        let mut random = Random::new(seed.wrapping_add(index as u64));
        async move {
            let bytes = |byte: u8, blocks: u64| vec![byte; blocks as usize * block];
            let range = |random: &mut Random| {
                let lba = random.below(BLOCKS);
                (lba, 1 + random.below(BLOCKS - lba))
            };
            for round in 0..u32::from(ROUNDS) {
                if index == 0 {
                    let lost = Client::of_host(&volume, &reactor, 64, HOST);
                    let tokens: Vec<_> = (0..1 + random.below(12))
                        .map(|_| {
                            let (lba, blocks) = range(&mut random);
                            let old = bytes(0xFF, blocks);
                            let operation = match random.below(4) {
                                0 => Operation::WriteZeroes {
                                    lba,
                                    blocks,
                                    deallocate: false,
                                    fua: false,
                                },
                                1 => compare_write(lba, blocks as u32, &old, &old),
                                _ => Operation::Write {
                                    lba,
                                    blocks: blocks as u32,
                                    data: views_of(&old),
                                    fua: false,
                                },
                            };
                            lost.submit(operation)
                        })
                        .collect();
                    let pause = random.below(400_000);
                    reactor.sleep(Duration::from_nanos(pause)).await;
                    lost.abandon(&tokens).await;
                    stage.reached(2 * round + 1);
                    if random.one_in(4) {
                        drop(lost);
                    } else {
                        for token in tokens {
                            let _ = lost.completion(token).await;
                        }
                    }
                    stage.wait(&reactor, 2 * round + 2).await;
                    continue;
                }
                stage.wait(&reactor, 2 * round + 1).await;
                let other = Client::of_host(&volume, &reactor, 64, HOST);
                let stranger = Client::of_host(&volume, &reactor, 64, OTHER_HOST);
                let mut strange = Vec::new();
                let mut written = HashMap::new();
                let mut writes = Vec::new();
                let mut lba = 0;
                while lba < BLOCKS {
                    let blocks = (1 + random.below(4)).min(BLOCKS - lba);
                    let stamp = 1 + round as u8;
                    written.extend((lba..lba + blocks).map(|lba| (lba, stamp)));
                    writes.push(other.submit(harness::write(
                        lba,
                        blocks as u32,
                        &bytes(stamp, blocks),
                    )));
                    let (lba_of, blocks_of) = range(&mut random);
                    let never = bytes(0xEE, blocks_of);
                    strange.push(stranger.submit(compare_write(
                        lba_of,
                        blocks_of as u32,
                        &never,
                        &never,
                    )));
                    lba += blocks;
                }
                for token in writes {
                    assert_eq!(other.completion(token).await.0, Ok(()));
                }
                for token in strange {
                    let compared = stranger.completion(token).await.0;
                    assert!(matches!(compared, Err(VolumeError::Miscompare { .. })));
                }
                reactor.sleep(LONG).await;
                let there = other.read(0, BLOCKS as u32).await.unwrap();
                for (at, &byte) in there.iter().enumerate() {
                    let expected = written[&((at / block) as u64)];
                    assert_eq!(byte, expected, "round {round}, byte {at}");
                }
                stage.reached(2 * round + 2);
            }
        }
    });
}
