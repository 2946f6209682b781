//! Defects on purpose: volumes that lie, so that it is seen that the checkers can fail.
//!
//! A liar stands where the volume is, behind the tap; in the target, in front of the guard; or at the initiator, in front of
//! the client.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_block::{
    Announcement, Completion, CompletionSink, FenceReply, GUARD_OWNER, Geometry, HealthFuture,
    HostNumber, InFlight, Landing, Operation, OperationKind, Queue, Request, ResizeFuture, Token,
    Volume, VolumeError, Watcher, compare_write_halves, submit_to,
};
use weir_memory::{View, Views};
use weir_reactor::Reactor;

/// Every so many requests of its kind a liar lies.
const LIE_EVERY: u32 = 12;
/// The delay of a write that should not land any more.
const LATE: Duration = Duration::from_millis(700);

/// A defect that is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Flush and FUA are answered and not done.
    DropFlush,
    /// Once a write with FUA failed, flushes that fail are answered as done: they are not what tells of the failure.
    ForgetFailedFua,
    /// Writes are answered, and now and then not done.
    LoseWrite,
    /// Writes are answered before they are done.
    AcknowledgeEarly,
    /// Now and then a write lands once more, after it was answered.
    LandLate,
    /// Compare-and-write does not compare.
    SkipCompare,
    /// Of a write of several sectors the last one is not done: its block is of two writes.
    TearBlock,
    /// The client is answered twice.
    CompleteTwice,
    /// The client is not answered.
    Swallow,
    /// The client is told that a write was cancelled which was done.
    WrongStatus,
    /// The client is told that a request timed out, though nothing took long.
    TimeOutForNothing,
    /// Initiators let flushes succeed after a reconnect over which writes may have been lost.
    TrustReconnect,
    /// It is acknowledged that a right was taken away while it is still made use of.
    AcknowledgeRevocationEarly,
    /// Writes of a lost connection are not kept apart from what their host does next.
    AbandonNothing,
    /// No trouble is made, whatever the seed switches on.
    SkipTroubles,
    /// The target allows more connections than it was told to.
    LooseBounds,
    /// The history depends on something besides the seed.
    Coin,
}

impl Plant {
    /// All of them, by name.
    pub const ALL: [(&'static str, Plant); 17] = [
        ("drop-flush", Plant::DropFlush),
        ("forget-failed-fua", Plant::ForgetFailedFua),
        ("lose-write", Plant::LoseWrite),
        ("acknowledge-early", Plant::AcknowledgeEarly),
        ("land-late", Plant::LandLate),
        ("skip-compare", Plant::SkipCompare),
        ("tear-block", Plant::TearBlock),
        ("complete-twice", Plant::CompleteTwice),
        ("swallow", Plant::Swallow),
        ("wrong-status", Plant::WrongStatus),
        ("time-out-for-nothing", Plant::TimeOutForNothing),
        ("trust-reconnect", Plant::TrustReconnect),
        (
            "acknowledge-revocation-early",
            Plant::AcknowledgeRevocationEarly,
        ),
        ("abandon-nothing", Plant::AbandonNothing),
        ("skip-troubles", Plant::SkipTroubles),
        ("loose-bounds", Plant::LooseBounds),
        ("coin", Plant::Coin),
    ];

    /// The defect of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Plant> {
        let found = Plant::ALL.iter().find(|(other, _)| *other == name);
        found.map(|(_, plant)| *plant)
    }

    /// Tells whether it is of the volume behind the target.
    pub(crate) fn is_behind_the_target(self) -> bool {
        use Plant::{
            AcknowledgeEarly, DropFlush, ForgetFailedFua, LoseWrite, SkipCompare, TearBlock,
        };
        matches!(
            self,
            DropFlush | ForgetFailedFua | LoseWrite | AcknowledgeEarly | SkipCompare | TearBlock
        )
    }

    /// Tells whether it is of the target, in front of the guard.
    pub(crate) fn is_in_the_target(self) -> bool {
        matches!(self, Plant::LandLate | Plant::AbandonNothing)
    }

    /// Tells whether it is of the initiator.
    pub(crate) fn is_at_the_client(self) -> bool {
        matches!(
            self,
            Plant::CompleteTwice | Plant::Swallow | Plant::WrongStatus | Plant::TimeOutForNothing
        )
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Plant::ALL.iter().find(|(_, plant)| plant == self);
        formatter.write_str(found.map_or("", |(name, _)| name))
    }
}

/// A volume that lies.
pub(crate) struct Liar {
    inner: Arc<dyn Volume>,
    plant: Plant,
    /// A write with FUA failed.
    failed_fua: AtomicBool,
}

impl Liar {
    pub(crate) fn of(inner: Arc<dyn Volume>, plant: Plant) -> Arc<dyn Volume> {
        Arc::new(Liar {
            inner,
            plant,
            failed_fua: AtomicBool::new(false),
        })
    }
}

impl Volume for Liar {
    fn geometry(&self) -> Geometry {
        let geometry = self.inner.geometry();
        match self.plant {
            Plant::SkipCompare => Geometry {
                compare_write_blocks: 16,
                ..geometry
            },
            _ => geometry,
        }
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
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let lies = Rc::new(Lies {
            plant: self.plant,
            liar: Arc::clone(&self),
            reactor: reactor.clone(),
            sink,
            inner: RefCell::default(),
            counted: Cell::new(0),
            asked: RefCell::default(),
        });
        let from_inner: Rc<dyn CompletionSink> = Rc::<Lies>::clone(&lies);
        // Room for what it does on its own.
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth + 64, from_inner)?;
        *lies.inner.borrow_mut() = Some(inner);
        Ok(Box::new(LiarQueue {
            lies,
            depth: depth as usize,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.inner.health(reactor)
    }
}

/// Marks requests that nobody asked for: an owner that neither users nor guards have.
const OWN: u32 = GUARD_OWNER - 1;

struct Lies {
    plant: Plant,
    liar: Arc<Liar>,
    reactor: Reactor,
    sink: Rc<dyn CompletionSink>,
    inner: RefCell<Option<Box<dyn Queue>>>,
    counted: Cell<u32>,
    /// Requests in whose place something else was done.
    asked: RefCell<BTreeMap<Token, Operation>>,
}

impl Lies {
    /// Tells whether it is time for a lie.
    fn is_time(&self) -> bool {
        self.counted.set(self.counted.get() + 1);
        self.counted.get().is_multiple_of(LIE_EVERY)
    }

    fn answer_later(self: &Rc<Self>, token: Token, operation: Operation) {
        let lies = Rc::clone(self);
        let task = async move {
            lies.sink.complete(Completion {
                token,
                result: Ok(()),
                operation,
            });
        };
        self.reactor.spawn(task).detach();
    }

    /// Does something of its own, which nobody is told of.
    fn do_later(self: &Rc<Self>, after: Duration, operation: Operation) {
        let lies = Rc::clone(self);
        let task = async move {
            lies.reactor.sleep(after).await;
            let token = Token {
                owner: OWN,
                slot: 0,
                generation: 0,
            };
            let mut batch = VecDeque::from([Request { token, operation }]);
            if let Some(inner) = lies.inner.borrow_mut().as_mut() {
                submit_to(&mut **inner, &mut batch, &*lies);
            }
        };
        self.reactor.spawn(task).detach();
    }

    /// Returns what is submitted in place of a request; none when it was answered.
    fn twist(self: &Rc<Self>, request: Request) -> Option<Request> {
        let Request { token, operation } = request;
        let operation = match (self.plant, operation) {
            (Plant::DropFlush, Operation::Flush) => {
                self.answer_later(token, Operation::Flush);
                return None;
            }
            (Plant::DropFlush, mut operation) => {
                forget_fua(&mut operation);
                operation
            }
            (Plant::LoseWrite, write @ Operation::Write { .. }) if self.is_time() => {
                self.answer_later(token, write);
                return None;
            }
            (Plant::AcknowledgeEarly, write @ Operation::Write { .. }) => {
                let after = Duration::from_micros(self.reactor.random() % 20_000);
                self.do_later(after, copy_of(&write));
                self.answer_later(token, write);
                return None;
            }
            (Plant::LandLate, write @ Operation::Write { .. }) if self.is_time() => {
                self.do_later(LATE, copy_of(&write));
                write
            }
            (
                Plant::SkipCompare,
                Operation::CompareWrite {
                    lba,
                    blocks,
                    data,
                    fua,
                },
            ) => {
                let written = compare_write_halves(&data).1;
                let asked = Operation::CompareWrite {
                    lba,
                    blocks,
                    data,
                    fua,
                };
                self.asked.borrow_mut().insert(token, asked);
                Operation::Write {
                    lba,
                    blocks,
                    data: written,
                    fua,
                }
            }
            (Plant::TearBlock, write @ Operation::Write { .. }) if self.is_time() => torn(write),
            (_, operation) => operation,
        };
        Some(Request { token, operation })
    }
}

fn has_fua(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Write { fua: true, .. }
            | Operation::WriteZeroes { fua: true, .. }
            | Operation::CompareWrite { fua: true, .. }
    )
}

fn forget_fua(operation: &mut Operation) {
    if let Operation::Write { fua, .. }
    | Operation::WriteZeroes { fua, .. }
    | Operation::CompareWrite { fua, .. } = operation
    {
        *fua = false;
    }
}

fn copy_of(write: &Operation) -> Operation {
    let Operation::Write {
        lba, blocks, data, ..
    } = write
    else {
        unreachable!("only writes are copied")
    };
    Operation::Write {
        lba: *lba,
        blocks: *blocks,
        data: data.iter().map(|view| View::copy_of(view)).collect(),
        fua: false,
    }
}

/// The same write, with other bytes at its end.
fn torn(write: Operation) -> Operation {
    let Operation::Write {
        lba, blocks, data, ..
    } = &write
    else {
        unreachable!("only writes are torn")
    };
    let mut bytes: Vec<u8> = data.iter().flat_map(|view| view.iter().copied()).collect();
    let end = bytes.len() - 256;
    bytes[end..].fill(0);
    Operation::Write {
        lba: *lba,
        blocks: *blocks,
        data: Views::from_iter([View::copy_of(&bytes)]),
        fua: false,
    }
}

impl CompletionSink for Lies {
    fn complete(&self, completion: Completion) {
        self.lie(completion, |completion| self.sink.complete(completion));
    }

    fn host_of(&self, owner: u32) -> Option<HostNumber> {
        self.sink.host_of(owner)
    }
}

impl Lies {
    fn lie(&self, mut completion: Completion, mut tell: impl FnMut(Completion)) {
        if completion.token.owner == OWN {
            return;
        }
        if let Some(asked) = self.asked.borrow_mut().remove(&completion.token) {
            completion.operation = asked;
        }
        let is_write = completion.operation.kind() == OperationKind::Write;
        let failed_fua = &self.liar.failed_fua;
        match self.plant {
            Plant::ForgetFailedFua if has_fua(&completion.operation) => {
                failed_fua.fetch_or(completion.result.is_err(), Ordering::Relaxed);
            }
            Plant::ForgetFailedFua
                if completion.operation.kind() == OperationKind::Flush
                    && failed_fua.load(Ordering::Relaxed) =>
            {
                completion.result = Ok(());
            }
            Plant::Swallow if self.is_time() => return,
            Plant::WrongStatus if is_write && completion.result.is_ok() && self.is_time() => {
                completion.result = Err(VolumeError::Cancelled);
            }
            Plant::TimeOutForNothing if completion.result.is_ok() && self.is_time() => {
                completion.result = Err(VolumeError::TimedOut);
            }
            Plant::CompleteTwice if is_write && self.is_time() => {
                tell(Completion {
                    token: completion.token,
                    result: completion.result,
                    operation: Operation::Flush,
                });
            }
            _ => {}
        }
        tell(completion);
    }
}

struct LiarQueue {
    lies: Rc<Lies>,
    depth: usize,
}

impl Queue for LiarQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        let mut inner = self.lies.inner.borrow_mut();
        inner.as_mut().expect("open").landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let taken = batch.len().min(self.depth);
        let twisted: Vec<_> = batch
            .drain(..taken)
            .filter_map(|request| self.lies.twist(request))
            .collect();
        let mut twisted = VecDeque::from(twisted);
        let mut inner = self.lies.inner.borrow_mut();
        let mut honest = VecDeque::new();
        let queue = inner.as_mut().expect("open");
        queue.submit(&mut twisted, &mut honest);
        drop(inner);
        for completion in honest {
            self.lies.lie(completion, |told| done.push_back(told));
        }
        while let Some(request) = twisted.pop_back() {
            batch.push_front(request);
        }
    }

    fn cancel(&mut self, token: Token) {
        if let Some(inner) = self.lies.inner.borrow_mut().as_mut() {
            inner.cancel(token);
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        if let Some(inner) = self.lies.inner.borrow().as_ref() {
            inner.in_flight(&mut |request| {
                if request.token.owner != OWN {
                    visit(request);
                }
            });
        }
    }

    fn abandon(&mut self, owner: u32, announcement: &Announcement) {
        if self.lies.plant == Plant::AbandonNothing {
            return;
        }
        if let Some(inner) = self.lies.inner.borrow_mut().as_mut() {
            inner.abandon(owner, announcement);
        }
    }
}

impl Drop for LiarQueue {
    fn drop(&mut self) {
        drop(self.lies.inner.borrow_mut().take());
    }
}
