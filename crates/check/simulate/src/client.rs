//! Clients on one reactor of a host: each lane asks one thing after another of the host's volumes, and records what it asks
//! and is answered.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Operation, OperationKind, Queue, ReadBuffers, Request, Token,
    Volume, VolumeError,
};
use weir_iscsi_host::IscsiHost;
use weir_memory::{Segment, Segments, Views, copy_views, views_len};
use weir_nvme_host::NvmeHost;
use weir_reactor::{Reactor, oneshot};

use crate::journal::{Ask, Cause, History, Journal, Value};
use crate::plan::Plan;
use crate::plant::{Liar, Plant};
use crate::random::Random;
use crate::stamp::{self, Seen};
use crate::violation::{Check, Violation};

/// Pause of a client after an error that may pass.
const REST: Duration = Duration::from_millis(20);
/// Writes of 100 that repeat the blocks of one that waits on the host's other path, as a host does that lost a path.
const AGAIN_PERCENT: u64 = 50;
/// Pause of a client that could not connect before it tries again.
const OPEN_REST: Duration = Duration::from_millis(200);
/// Time between two looks of a client at whether the faults have stopped.
const CALM_POLL: Duration = Duration::from_millis(20);
/// Tries of a new command after the faults. A host whose connection fell silent just before gives its old controller five seconds to
/// shut down before it connects again, and a namespace that it last saw removed is lost to it for as long; where only its admin queue fell
/// silent, it notices that after its keep-alive timeout, which the quiet time covers.
const CALM_TRIES: u64 = 10;
/// The pause between these tries.
const CALM_PAUSE: Duration = Duration::from_secs(1);

/// State that the clients of all hosts share with the conductor.
pub(crate) struct Progress {
    /// Requests that each lane has left, by host and lane.
    left: Vec<Vec<AtomicU64>>,
    /// No fault happens any more.
    pub(crate) calm: AtomicBool,
}

impl Progress {
    pub(crate) fn new(plan: &Plan) -> Arc<Self> {
        let lanes = |lanes: u64| (0..lanes).map(|_| AtomicU64::new(plan.quota)).collect();
        Arc::new(Progress {
            left: plan
                .hosts
                .iter()
                .map(|host| lanes(u64::from(host.reactors) * u64::from(host.lanes)))
                .collect(),
            calm: AtomicBool::new(false),
        })
    }

    /// Takes one request of a lane's; false when none is left.
    fn take(&self, host: usize, lane: usize) -> bool {
        let left = &self.left[host][lane];
        let before = left.load(Ordering::Relaxed);
        left.store(before.saturating_sub(1), Ordering::Relaxed);
        before > 0
    }

    /// Requests that are left, of all lanes.
    pub(crate) fn left(&self) -> u64 {
        let lanes = self.left.iter().flatten();
        lanes.map(|left| left.load(Ordering::Relaxed)).sum()
    }
}

/// A volume that was opened.
#[derive(Clone)]
pub(crate) struct Opened {
    volume: Arc<dyn Volume>,
    /// Which time it is that one was.
    number: u64,
}

/// Initiator of a host, and where it connects to.
#[derive(Clone)]
pub(crate) enum Initiator {
    Nvme(Arc<NvmeHost>, weir_nvme_host::Options),
    Iscsi(Arc<IscsiHost>, weir_iscsi_host::Options),
}

impl Initiator {
    async fn open(&self, reactor: &Reactor) -> Option<Arc<dyn Volume>> {
        match self {
            Initiator::Nvme(host, options) => {
                let opened = host.open(reactor, options.clone(), false).await.ok()?;
                Some(opened)
            }
            Initiator::Iscsi(host, options) => {
                let opened = host.open(reactor, options.clone(), false).await.ok()?;
                Some(opened)
            }
        }
    }
}

/// Way in which a volume is opened.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) initiator: Initiator,
    pub(crate) journal: Journal,
    /// The defect of the initiator, if it has one.
    pub(crate) plant: Option<Plant>,
}

impl Source {
    /// Opens the volume, as soon as that is possible.
    pub(crate) async fn open(&self, reactor: &Reactor) -> Opened {
        let volume: Arc<dyn Volume> = loop {
            match self.initiator.open(reactor).await {
                Some(volume) => break volume,
                None => reactor.sleep(OPEN_REST).await,
            }
        };
        Opened {
            volume: match self.plant {
                Some(plant) => Liar::of(volume, plant),
                None => volume,
            },
            number: self.journal.with(History::open),
        }
    }
}

/// A volume as clients have it open.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) opened: Opened,
    pub(crate) source: Source,
    /// Which of the host's paths it goes.
    pub(crate) path: usize,
    pub(crate) namespace: usize,
    /// Bytes of a block.
    pub(crate) block: usize,
}

/// Parameters of the clients of one reactor.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) plan: Arc<Plan>,
    pub(crate) journal: Journal,
    pub(crate) progress: Arc<Progress>,
    pub(crate) host: usize,
    pub(crate) life: u32,
    pub(crate) open: Vec<Open>,
    /// Of this host's reactors.
    pub(crate) reactor: usize,
    /// Set by the first answer of this life, which says that an I/O queue was accepted.
    pub(crate) served: Arc<AtomicBool>,
    /// Earlier lives are surely noticed to be over by the gateway.
    pub(crate) fences: bool,
}

struct Waiting {
    id: u64,
    /// The end, once it came.
    ended: Option<Result<(), VolumeError>>,
    waker: Option<Waker>,
}

/// One reactor's queue of one volume, shared by its lanes.
struct Port {
    setting: Setting,
    open: Open,
    /// The volume, which may have been opened again since.
    volume: RefCell<Opened>,
    /// It is being opened again: nothing is asked meanwhile.
    reopening: Cell<bool>,
    queue: RefCell<Option<Box<dyn Queue>>>,
    /// Requests that the queue has not taken yet.
    backlog: RefCell<VecDeque<Request>>,
    waiting: RefCell<BTreeMap<Token, Waiting>>,
    next: Cell<u32>,
    /// The number of times that the queue was opened.
    opened: Cell<u32>,
    /// Values that blocks were last known to hold here.
    known: RefCell<BTreeMap<u64, Value>>,
}

/// Receives the completions of a queue. It does not keep the port, which keeps the queue: a host that dies leaves nothing behind.
struct PortSink(Weak<Port>);

impl CompletionSink for PortSink {
    fn complete(&self, completion: Completion) {
        if let Some(port) = self.0.upgrade() {
            port.complete(completion);
        }
    }
}

impl Port {
    fn complete(&self, completion: Completion) {
        let mut waiting = self.waiting.borrow_mut();
        let known = waiting
            .get_mut(&completion.token)
            .filter(|waiting| waiting.ended.is_none());
        let Some(entry) = known else {
            self.setting.journal.accuse(Violation::new(
                Check::ExactlyOnce,
                format!(
                    "host {}: a {:?} was completed ({:?}) that has no request waiting: {:?}",
                    self.setting.host,
                    completion.operation.kind(),
                    completion.result,
                    completion.token
                ),
            ));
            return;
        };
        let result = completion.result;
        let found = match result {
            Ok(()) => self.found(entry.id, &completion.operation),
            Err(_) => Vec::new(),
        };
        self.record(entry.id, result, found);
        entry.ended = Some(result);
        if let Some(waker) = entry.waker.take() {
            waker.wake();
        }
    }
}

impl Port {
    fn new(setting: &Setting, open: &Open) -> Rc<Self> {
        Rc::new(Port {
            setting: setting.clone(),
            open: open.clone(),
            volume: RefCell::new(open.opened.clone()),
            reopening: Cell::new(false),
            queue: RefCell::default(),
            backlog: RefCell::default(),
            waiting: RefCell::default(),
            next: Cell::new(0),
            opened: Cell::new(0),
            known: RefCell::default(),
        })
    }

    fn record(&self, id: u64, result: Result<(), VolumeError>, found: Vec<Value>) {
        let Setting {
            journal,
            host,
            life,
            served,
            fences,
            ..
        } = &self.setting;
        journal.with(|history, now| {
            history.end(now, id, result, found.clone());
            if result.is_ok() && !served.swap(true, Ordering::Relaxed) && *fences {
                let what = format!("host {host}, life {life}, is served: earlier lives are fenced");
                history.fence(now, what, |op| op.ask.host == *host && op.ask.life < *life);
            }
            let op = history.op(id);
            let ask = &op.ask;
            let mut known = self.known.borrow_mut();
            for block in 0..ask.blocks {
                let value = match ask.kind {
                    OperationKind::Read if result.is_ok() => found.get(block as usize).copied(),
                    OperationKind::Write | OperationKind::CompareWrite if result.is_ok() => {
                        Some(id)
                    }
                    OperationKind::WriteZeroes if result.is_ok() => Some(0),
                    _ => None,
                };
                if let Some(value) = value {
                    known.insert(ask.lba + block, value);
                }
            }
        });
    }

    /// Returns the values that blocks were last known to hold here.
    fn known(&self, lba: u64, blocks: u64) -> Vec<Value> {
        let known = self.known.borrow();
        let value = |block| known.get(&block).copied().unwrap_or(0);
        (lba..lba + blocks).map(value).collect()
    }

    /// Returns the values that a read found, by block.
    fn found(&self, id: u64, operation: &Operation) -> Vec<Value> {
        let Operation::Read {
            lba,
            blocks,
            buffers,
        } = operation
        else {
            return Vec::new();
        };
        let accuse = |check, what: String| {
            let (host, namespace) = (self.setting.host, self.open.namespace + 1);
            let message = format!("#{id} of host {host}, namespace {namespace}: {what}");
            self.setting.journal.accuse(Violation::new(check, message));
            Vec::new()
        };
        let ReadBuffers::Filled(views) = buffers else {
            return accuse(Check::HonestStatus, "a read ended well without data".into());
        };
        if views_len(views) != *blocks as usize * self.open.block {
            return accuse(
                Check::HonestStatus,
                format!(
                    "a read of {blocks} blocks yielded {} bytes",
                    views_len(views)
                ),
            );
        }
        let mut bytes = vec![0; views_len(views)];
        copy_views(views, &mut bytes);
        let mut values = Vec::with_capacity(*blocks as usize);
        for (index, block) in bytes.chunks_exact(self.open.block).enumerate() {
            let at = lba + index as u64;
            match stamp::read(block, self.open.namespace, at) {
                Seen::Value(value) => values.push(value),
                Seen::Torn(of) => {
                    let what = format!("block {at} is of several writes, by sector: {of:?}");
                    return accuse(Check::Atomicity, what);
                }
                Seen::Foreign => {
                    let what = format!("block {at} holds what nobody wrote there");
                    return accuse(Check::Reads, what);
                }
            }
        }
        values
    }

    fn volume(&self) -> Arc<dyn Volume> {
        Arc::clone(&self.volume.borrow().volume)
    }

    /// Opens the volume again, once what was asked of it has ended. Another one that is at it is left alone.
    async fn reopen(&self, reactor: &Reactor) {
        if self.reopening.replace(true) {
            return;
        }
        while !self.waiting.borrow().is_empty() {
            reactor.sleep(REST).await;
        }
        let host = self.setting.host;
        self.close();
        let opened = self.open.source.open(reactor).await;
        let what = format!(
            "host {host} opens namespace {} again",
            self.open.namespace + 1
        );
        self.setting.journal.say(what);
        *self.volume.borrow_mut() = opened;
        self.reopening.set(false);
    }

    /// Opens the queue, where it is not open, as soon as one can be had.
    async fn ready(self: &Rc<Self>, reactor: &Reactor) {
        while self.reopening.get() || self.queue.borrow().is_none() {
            if self.reopening.get() {
                reactor.sleep(REST).await;
                continue;
            }
            let sink: Rc<dyn CompletionSink> = Rc::new(PortSink(Rc::downgrade(self)));
            let depth = 64;
            match self.volume().open_queue(reactor, depth, sink) {
                Ok(queue) => {
                    *self.queue.borrow_mut() = Some(queue);
                    self.opened.set(self.opened.get() + 1);
                }
                Err(_) => reactor.sleep(REST).await,
            }
        }
    }

    fn pump(&self) {
        let mut backlog = self.backlog.borrow_mut();
        let mut done = VecDeque::new();
        if let Some(queue) = self.queue.borrow_mut().as_mut()
            && !backlog.is_empty()
        {
            queue.submit(&mut backlog, &mut done);
        }
        drop(backlog);
        done.into_iter().for_each(|one| self.complete(one));
    }

    /// Submits a request; its token.
    fn submit(&self, ask: Ask, operation: Operation, id: u64) -> Token {
        debug_assert_eq!(ask.kind, operation.kind());
        let token = Token {
            owner: self.opened.get(),
            slot: self.next.get(),
            generation: 0,
        };
        self.next.set(self.next.get() + 1);
        let waiting = Waiting {
            id,
            ended: None,
            waker: None,
        };
        self.waiting.borrow_mut().insert(token, waiting);
        self.backlog
            .borrow_mut()
            .push_back(Request { token, operation });
        self.pump();
        token
    }

    /// Waits for the end of a request; none when its queue was dropped.
    async fn end_of(&self, token: Token) -> Option<Result<(), VolumeError>> {
        let end = poll_fn(|context| {
            let mut waiting = self.waiting.borrow_mut();
            let Some(entry) = waiting.get_mut(&token) else {
                return Poll::Ready(None);
            };
            if let Some(result) = entry.ended {
                waiting.remove(&token);
                return Poll::Ready(Some(result));
            }
            entry.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.pump();
        end
    }

    /// Lets go of the queue, which holds this port.
    fn close(&self) {
        let queue = self.queue.borrow_mut().take();
        drop(queue);
    }

    /// Drops the queue with all that it has in flight, and fences it.
    async fn drop_queue(&self) {
        let queue = self.queue.borrow_mut().take();
        self.backlog.borrow_mut().clear();
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let ids: Vec<u64> = waiting.values().map(|waiting| waiting.id).collect();
        let (host, journal) = (self.setting.host, &self.setting.journal);
        journal.say(format!("host {host} drops a queue with {ids:?} in flight"));
        let incident = journal.with(|history, now| {
            history.incident(now, Cause::Fence, Some(host), Some(self.open.namespace))
        });
        drop(queue);
        let wakers = waiting.into_values().filter_map(|waiting| waiting.waker);
        wakers.for_each(Waker::wake);
        let (sender, fenced) = oneshot();
        self.volume()
            .fence(Box::new(move |result| sender.send(result)));
        let fenced = fenced.await;
        journal.over(incident);
        if let Some(Ok(())) = fenced {
            journal.with(|history, now| {
                let what = format!("host {host}: {ids:?} are fenced");
                history.fence(now, what, |op| ids.contains(&op.id));
            });
        }
    }
}

/// Runs all lanes of one reactor to their end.
pub(crate) async fn run(reactor: Reactor, setting: Setting) {
    let ports: Vec<Rc<Port>> = setting
        .open
        .iter()
        .map(|open| Port::new(&setting, open))
        .collect();
    let ports = Rc::new(ports);
    let lanes = setting.plan.hosts[setting.host].lanes as usize;
    let tasks: Vec<_> = (0..lanes)
        .map(|lane| {
            let number = setting.reactor * lanes + lane;
            let stream = 1000
                + setting.host as u64 * 10_000
                + number as u64 * 100
                + u64::from(setting.life) * 1_000_000;
            let lane = Lane {
                random: Random::new(setting.plan.seed, stream),
                reactor: reactor.clone(),
                setting: setting.clone(),
                ports: Rc::clone(&ports),
                number,
            };
            reactor.spawn(lane.run())
        })
        .collect();
    for task in tasks {
        task.await;
    }
    ports.iter().for_each(|port| port.close());
}

struct Lane {
    setting: Setting,
    reactor: Reactor,
    ports: Rc<Vec<Rc<Port>>>,
    number: usize,
    random: Random,
}

impl Lane {
    async fn run(mut self) {
        let (host, number) = (self.setting.host, self.number);
        while self.setting.progress.take(host, number) {
            self.one().await;
            let think = self.setting.plan.mix.think;
            let think = self.random.time(Duration::ZERO..=think);
            self.reactor.sleep(think).await;
        }
        while !self.setting.progress.calm.load(Ordering::Relaxed) {
            self.reactor.sleep(CALM_POLL).await;
        }
        self.finish().await;
    }

    /// After the faults: new commands succeed.
    async fn finish(&mut self) {
        let ports = Rc::clone(&self.ports);
        for port in ports.iter() {
            let lba = self.random.below(self.used(port));
            for kind in [
                OperationKind::Write,
                OperationKind::Flush,
                OperationKind::Read,
            ] {
                let blocks = u64::from(kind != OperationKind::Flush);
                let lba = if blocks == 0 { 0 } else { lba };
                // A medium may have broken for good when its fault was injected; the network may not.
                let broken = self.setting.plan.has_disk_errors();
                let (mut result, mut fine) = (None, false);
                let tries = calm_tries(&self.setting.plan);
                for _ in 0..tries {
                    result = self.ask(port, kind, lba, blocks).await;
                    // Tries may be cancelled by the client itself: it is enough that one of them met what is broken.
                    fine = result == Some(Ok(()))
                        || broken && result == Some(Err(VolumeError::Medium));
                    if fine {
                        break;
                    }
                    self.reactor.sleep(CALM_PAUSE).await;
                }
                if !fine {
                    let message = format!(
                        "host {}, namespace {}: with no fault any more a {kind:?} of block {lba} ended as {result:?}, {tries} times",
                        self.setting.host,
                        port.open.namespace + 1
                    );
                    self.setting
                        .journal
                        .accuse(Violation::new(Check::Progress, message));
                }
            }
        }
    }

    /// The path to the same namespace on which the fewest requests wait: over one that is lost none ends.
    fn way_to(&self, port: Rc<Port>) -> Rc<Port> {
        let namespace = port.open.namespace;
        let ways = self.ports.iter();
        let fewer = ways
            .filter(|other| other.open.namespace == namespace)
            .min_by_key(|other| other.waiting.borrow().len())
            .filter(|other| other.waiting.borrow().len() < port.waiting.borrow().len());
        fewer.cloned().unwrap_or(port)
    }

    /// The blocks of a write that waits on another path to the same namespace.
    fn waits_elsewhere(&self, port: &Rc<Port>) -> Option<(u64, u64)> {
        let ways = self.ports.iter();
        let mut others = ways
            .filter(|other| other.open.namespace == port.open.namespace)
            .filter(|other| !Rc::ptr_eq(other, port));
        others.find_map(|other| {
            let waiting = other.waiting.borrow();
            self.setting.journal.with(|history, _| {
                let asks = waiting.values().map(|waiting| &history.op(waiting.id).ask);
                let mut writes = asks.filter(|ask| ask.kind == OperationKind::Write);
                writes.next().map(|ask| (ask.lba, ask.blocks))
            })
        })
    }

    fn used(&self, port: &Port) -> u64 {
        self.setting.plan.volumes[port.open.namespace].used
    }

    async fn one(&mut self) {
        let plan = Arc::clone(&self.setting.plan);
        let mix = &plan.mix;
        let port = Rc::clone(&self.ports[self.random.below(self.ports.len() as u64) as usize]);
        let port = self.way_to(port);
        if self.random.below(1000) < mix.drops_per_thousand {
            port.drop_queue().await;
        }
        let kind = match self.random.weighted(&mix.kinds) {
            // Not every volume has it; NVMe's take it for a hint, and iSCSI's say so.
            OperationKind::Deallocate if port.volume().geometry().deallocate_blocks == 0 => {
                OperationKind::Flush
            }
            kind => kind,
        };
        let used = self.used(&port);
        let most = match kind {
            OperationKind::CompareWrite => {
                let allowed = u64::from(port.volume().geometry().compare_write_blocks);
                mix.compare_blocks_max.min(allowed.max(1))
            }
            _ if self.random.percent(mix.long_percent) => mix.long_blocks_max,
            _ => mix.blocks_max,
        };
        let blocks = self.random.within(1..=most.min(used));
        let in_tail = self.random.percent(mix.tail_percent);
        let (lba, blocks) = match kind {
            OperationKind::Flush => (0, 0),
            _ if in_tail => {
                let tail = plan.volumes[port.open.namespace].tail;
                (used + self.random.below(2 * tail), 1)
            }
            _ => (self.random.below(used - blocks + 1), blocks),
        };
        let (lba, blocks) = match self.waits_elsewhere(&port) {
            Some(range) if kind == OperationKind::Write && self.random.percent(AGAIN_PERCENT) => {
                range
            }
            _ => (lba, blocks),
        };
        if matches!(kind, OperationKind::Compare | OperationKind::CompareWrite)
            && self.random.percent(60)
        {
            // Who knows what is there has more success.
            self.ask(&port, OperationKind::Read, lba, blocks).await;
        }
        let result = self.ask(&port, kind, lba, blocks).await;
        if matches!(result, Some(Err(VolumeError::Lost | VolumeError::Busy))) {
            self.reactor.sleep(REST).await;
        }
    }

    /// Asks for one thing, and waits for its end. A flush that fails because what was not flushed may be lost has the volume opened
    /// again; that helps no broken medium.
    async fn ask(
        &mut self,
        port: &Rc<Port>,
        kind: OperationKind,
        lba: u64,
        blocks: u64,
    ) -> Option<Result<(), VolumeError>> {
        let result = self.ask_once(port, kind, lba, blocks).await;
        if kind == OperationKind::Flush
            && result == Some(Err(VolumeError::Medium))
            && !self.setting.plan.has_disk_errors()
        {
            port.reopen(&self.reactor).await;
        }
        result
    }

    async fn ask_once(
        &mut self,
        port: &Rc<Port>,
        kind: OperationKind,
        lba: u64,
        blocks: u64,
    ) -> Option<Result<(), VolumeError>> {
        port.ready(&self.reactor).await;
        let geometry = port.volume().geometry();
        let bytes = blocks as usize * port.open.block;
        let fua = matches!(
            kind,
            OperationKind::Write | OperationKind::WriteZeroes | OperationKind::CompareWrite
        ) && self.random.percent(self.setting.plan.mix.fua_percent);
        let expects = matches!(kind, OperationKind::Compare | OperationKind::CompareWrite);
        let expected: Vec<Value> = match expects {
            true => port.known(lba, blocks),
            false => Vec::new(),
        };
        let ask = Ask {
            host: self.setting.host,
            life: self.setting.life,
            path: port.open.path,
            namespace: port.open.namespace,
            opening: port.volume.borrow().number,
            kind,
            lba,
            blocks,
            fua,
            whole: blocks <= u64::from(geometry.transfer_blocks_max)
                && bytes as u32 <= self.setting.plan.target.mdts_bytes,
            expected: expected.clone(),
        };
        let asked = ask.clone();
        let id = self
            .setting
            .journal
            .with(|history, now| history.ask(now, asked));
        let data = |values: &dyn Fn(u64) -> Value| {
            let mut bytes = vec![0; bytes];
            for (index, block) in bytes.chunks_exact_mut(port.open.block).enumerate() {
                let at = lba + index as u64;
                stamp::fill(
                    block,
                    values(index as u64),
                    port.open.namespace,
                    at,
                    port.open.block,
                );
            }
            bytes
        };
        let expected = data(&|index| expected.get(index as usize).copied().unwrap_or(0));
        let written = data(&|_| id);
        let operation = self.operation(kind, lba, blocks, fua, &expected, &written);
        let token = port.submit(ask, operation, id);
        if self.random.percent(self.setting.plan.mix.cancel_percent) {
            let patience = self.random.time(Duration::ZERO..=Duration::from_millis(5));
            let mut sleep = pin!(self.reactor.sleep(patience));
            let mut end = pin!(port.end_of(token));
            let early = poll_fn(|context| {
                if let Poll::Ready(end) = end.as_mut().poll(context) {
                    return Poll::Ready(Some(end));
                }
                sleep.as_mut().poll(context).map(|()| None)
            })
            .await;
            if let Some(end) = early {
                return end;
            }
            self.setting.journal.with(|history, _| history.cancel(id));
            if let Some(queue) = port.queue.borrow_mut().as_mut() {
                queue.cancel(token);
            }
            return end.await;
        }
        port.end_of(token).await
    }

    fn operation(
        &mut self,
        kind: OperationKind,
        lba: u64,
        blocks: u64,
        fua: bool,
        expected: &[u8],
        written: &[u8],
    ) -> Operation {
        let count = blocks as u32;
        match kind {
            OperationKind::Read => Operation::Read {
                lba,
                blocks: count,
                buffers: match self.random.percent(50) {
                    true => ReadBuffers::Lend,
                    false => ReadBuffers::Into(self.segments(written.len())),
                },
            },
            OperationKind::Write => Operation::Write {
                lba,
                blocks: count,
                data: self.views(&[written]),
                fua,
            },
            OperationKind::WriteZeroes => Operation::WriteZeroes {
                lba,
                blocks,
                deallocate: self.random.percent(50),
                fua,
            },
            OperationKind::Compare => Operation::Compare {
                lba,
                blocks: count,
                data: self.views(&[expected]),
            },
            OperationKind::CompareWrite => Operation::CompareWrite {
                lba,
                blocks: count,
                data: self.views(&[expected, written]),
                fua,
            },
            OperationKind::Deallocate => Operation::Deallocate { lba, blocks },
            OperationKind::Verify => Operation::Verify { lba, blocks },
            OperationKind::Flush => Operation::Flush,
        }
    }

    /// Bytes in two pieces, as data may come from anywhere.
    fn views(&mut self, parts: &[&[u8]]) -> Views {
        let bytes = parts.concat();
        let cut = self.random.below(bytes.len() as u64 + 1) as usize;
        [&bytes[..cut], &bytes[cut..]]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| Segment::copy_of(part).freeze())
            .collect()
    }

    fn segments(&mut self, length: usize) -> Segments {
        let cut = self.random.below(length as u64 + 1) as usize;
        [cut, length - cut]
            .into_iter()
            .filter(|length| *length > 0)
            .map(Segment::heap)
            .collect()
    }
}

/// Returns the number of tries of a command after the faults.
fn calm_tries(plan: &Plan) -> u64 {
    CALM_TRIES + plan.quiet().as_secs()
}

/// Reads all blocks that clients use, and records it, so that what is there in the end is explained too.
pub(crate) async fn read_everything(reactor: Reactor, setting: Setting) {
    for open in &setting.open {
        let port = Port::new(&setting, open);
        let mut lane = Lane {
            random: Random::new(setting.plan.seed, 77),
            reactor: reactor.clone(),
            setting: setting.clone(),
            ports: Rc::new(vec![Rc::clone(&port)]),
            number: 0,
        };
        let used = lane.used(&port);
        let mut lba = 0;
        while lba < used {
            let blocks = (used - lba).min(8);
            let mut read = false;
            for _ in 0..calm_tries(&setting.plan) {
                read |= lane.ask(&port, OperationKind::Read, lba, blocks).await == Some(Ok(()));
                if read {
                    break;
                }
                reactor.sleep(CALM_PAUSE).await;
            }
            if !read {
                let message = format!(
                    "namespace {}: with no fault any more blocks {lba}..{} cannot be read",
                    open.namespace + 1,
                    lba + blocks
                );
                let violation = Violation::new(Check::Progress, message);
                setting.journal.accuse(violation);
            }
            lba += blocks;
        }
        port.close();
    }
}
