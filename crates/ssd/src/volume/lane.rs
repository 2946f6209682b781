//! One reactor's queue of a modelled drive: a queue of the volume below, and completions that wait for the drive.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_block::{
    BlockSize, Completion, CompletionSink, Geometry, InFlight, Landing, Operation, Queue, Request,
    Token, VolumeError,
};
use weir_reactor::{Instant, Reactor, Task, Timer};
use weir_reactor::{Key, Slots};
use weir_volume::parts::{check, pool_landing};

use super::{Clock, Drive, SsdVolume};
use crate::Model;

/// A request that was taken and has not ended.
struct Taken {
    token: Token,
    /// When the drive is done with it.
    due: Instant,
    /// What the drive is asked once it has ended below.
    asks: Option<Asked>,
    /// What came from below; none while it is there.
    ended: Option<Completion>,
}

pub(super) struct SsdQueue {
    inner: Box<dyn Queue>,
    lane: Rc<Lane>,
    geometry: Geometry,
    passes_deallocations: bool,
    depth: usize,
    /// What goes to the volume below; empty between two submissions.
    outgoing: VecDeque<Request>,
    /// Done at once by the volume below.
    done_below: VecDeque<Completion>,
    _task: Task<()>,
}

struct Lane {
    reactor: Reactor,
    sink: Rc<dyn CompletionSink>,
    drive: Arc<Drive>,
    taken: RefCell<Slots<Taken>>,
    /// Requests that ended below, by when the drive is done with them.
    due: RefCell<BinaryHeap<Reverse<(Instant, u64)>>>,
    waker: RefCell<Option<Waker>>,
}

fn token_of(key: Key) -> Token {
    Token {
        owner: 0,
        slot: key.slot,
        generation: key.generation,
    }
}

fn key_of(token: Token) -> Key {
    Key {
        slot: token.slot,
        generation: token.generation,
    }
}

impl SsdQueue {
    pub(super) fn open(
        volume: &SsdVolume,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Self, VolumeError> {
        let lane = Rc::new(Lane {
            reactor: reactor.clone(),
            sink,
            drive: Arc::clone(&volume.drive),
            taken: RefCell::new(Slots::with_capacity(depth as usize)),
            due: RefCell::new(BinaryHeap::with_capacity(depth as usize)),
            waker: RefCell::default(),
        });
        let from_inner: Rc<dyn CompletionSink> = Rc::<Lane>::clone(&lane);
        let inner = Arc::clone(&volume.inner).open_queue(reactor, depth, from_inner)?;
        let (kept, mut timer) = (Rc::clone(&lane), Timer::new(reactor));
        let task = reactor.spawn(std::future::poll_fn(move |context| {
            kept.hand_out(&mut timer, context)
        }));
        Ok(SsdQueue {
            inner,
            lane,
            geometry: volume.geometry,
            passes_deallocations: volume.passes_deallocations,
            depth: depth as usize,
            outgoing: VecDeque::with_capacity(depth as usize),
            done_below: VecDeque::new(),
            _task: task,
        })
    }

    /// Whether the volume below has a part in it.
    fn goes_below(&self, operation: &Operation) -> bool {
        self.passes_deallocations || !matches!(operation, Operation::Deallocate { .. })
    }
}

impl Queue for SsdQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        match self.inner.landing(lba, blocks) {
            // A completion that waits for the drive keeps its data for as long.
            Landing::Anywhere => {
                let bytes = (blocks as usize) << self.geometry.block_size.shift();
                pool_landing(self.lane.reactor.pool(), bytes)
            }
            landing => landing,
        }
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, _: &mut VecDeque<Completion>) {
        while self.lane.taken.borrow().len() < self.depth
            && let Some(Request { token, operation }) = batch.pop_front()
        {
            let checked = check(&self.geometry, &operation);
            let asked = Asked::of(&operation, self.geometry.block_size);
            let key = self.lane.take(token);
            if checked.is_err() || !self.goes_below(&operation) {
                if checked.is_ok() {
                    self.lane.ask(key, asked);
                }
                self.lane.ended(key, checked, operation);
                continue;
            }
            // What the volume below does not support others make of reads and writes, and those are then what the drive is asked.
            let asks_later = matches!(
                operation,
                Operation::WriteZeroes { .. }
                    | Operation::Compare { .. }
                    | Operation::CompareWrite { .. }
                    | Operation::Verify { .. }
            );
            if asks_later {
                self.lane.taken.borrow_mut().get_mut(key).asks = Some(asked);
            }
            let token = token_of(key);
            self.outgoing.push_back(Request { token, operation });
            self.inner.submit(&mut self.outgoing, &mut self.done_below);
            let refused = self.outgoing.pop_front();
            if refused.is_none() && !asks_later {
                self.lane.ask(key, asked);
            }
            while let Some(completion) = self.done_below.pop_front() {
                self.lane.complete(completion);
            }
            if let Some(Request { operation, .. }) = refused {
                let Taken { token, .. } = self.lane.taken.borrow_mut().remove(key);
                batch.push_front(Request { token, operation });
                return;
            }
        }
    }

    /// What the volume below still has is cancelled there. What only waits for the drive ends now, as it ended below: the drive goes on.
    fn cancel(&mut self, token: Token) {
        let taken = self.lane.taken.borrow();
        let mut with_token = taken.iter().filter(|(_, taken)| taken.token == token);
        let found = with_token
            .next()
            .map(|(key, taken)| (key, taken.ended.is_some()));
        drop(with_token);
        drop(taken);
        match found {
            Some((key, true)) => self.lane.hurry(key),
            Some((key, false)) => self.inner.cancel(token_of(key)),
            None => {}
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        for (_, taken) in self.lane.taken.borrow().iter() {
            if let Some(ended) = &taken.ended {
                visit(InFlight::of(ended.token, &ended.operation));
            }
        }
        self.inner.in_flight(&mut |below| {
            let mut taken = self.lane.taken.borrow_mut();
            let token = taken.get_mut(key_of(below.token)).token;
            visit(InFlight { token, ..below });
        });
    }
}

/// What the drive is asked to do, in bytes.
#[derive(Clone, Copy)]
enum Asked {
    Read(u64, u64),
    Write(u64, u64),
    /// Reads, and writes when nothing differs.
    ReadWrite(u64, u64),
    Deallocate(u64, u64),
    Flush,
}

impl Asked {
    fn of(operation: &Operation, block_size: BlockSize) -> Self {
        let Some((lba, blocks)) = operation.range() else {
            return Asked::Flush;
        };
        // Of a request that is refused, nothing is asked.
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(block_size.bytes()));
        let (offset, bytes) = (bytes(lba), bytes(blocks));
        match operation {
            Operation::Read { .. } | Operation::Compare { .. } | Operation::Verify { .. } => {
                Asked::Read(offset, bytes)
            }
            Operation::WriteZeroes {
                deallocate: true, ..
            }
            | Operation::Deallocate { .. } => Asked::Deallocate(offset, bytes),
            Operation::Write { .. } | Operation::WriteZeroes { .. } => Asked::Write(offset, bytes),
            Operation::CompareWrite { .. } => Asked::ReadWrite(offset, bytes),
            Operation::Flush => Asked::Flush,
        }
    }

    fn ask(self, model: &mut Model, now: u64) -> u64 {
        match self {
            Asked::Read(offset, bytes) => model.read(now, offset, bytes),
            Asked::Write(offset, bytes) => model.write(now, offset, bytes),
            Asked::ReadWrite(offset, bytes) => {
                let read = model.read(now, offset, bytes);
                model.write(now, offset, bytes).max(read)
            }
            Asked::Deallocate(offset, bytes) => model.deallocate(now, offset, bytes),
            Asked::Flush => model.flush(now),
        }
    }
}

impl Lane {
    fn take(&self, token: Token) -> Key {
        self.taken.borrow_mut().insert(Taken {
            token,
            due: Instant::default(),
            asks: None,
            ended: None,
        })
    }

    /// Has the drive begin what was taken.
    fn ask(&self, key: Key, asked: Asked) {
        let due = self
            .drive
            .ask(self.reactor.now(), |model, now| asked.ask(model, now));
        self.taken.borrow_mut().get_mut(key).due = Instant::from_nanos(due);
    }

    /// A request ended below, or never went there. It is handed out when the drive is done.
    fn ended(&self, key: Key, result: Result<(), VolumeError>, operation: Operation) {
        let asks = self.taken.borrow_mut().get_mut(key).asks.take();
        match (asks, &result) {
            (None, _) | (_, Err(VolumeError::Unsupported)) => {}
            (Some(Asked::ReadWrite(offset, bytes)), Err(_)) => {
                self.ask(key, Asked::Read(offset, bytes));
            }
            (Some(asked), _) => self.ask(key, asked),
        }
        let mut slots = self.taken.borrow_mut();
        let taken = slots.get_mut(key);
        taken.ended = Some(Completion {
            token: taken.token,
            result,
            operation,
        });
        let at = taken.due;
        drop(slots);
        self.wait(key, at);
    }

    /// Has a request that ended below wait no longer.
    fn hurry(&self, key: Key) {
        let now = self.reactor.now();
        if self.drive.clock == Clock::Model || self.taken.borrow_mut().get_mut(key).due <= now {
            return;
        }
        self.taken.borrow_mut().get_mut(key).due = now;
        let word = key.to_word();
        self.due
            .borrow_mut()
            .retain(|Reverse((_, other))| *other != word);
        self.wait(key, now);
    }

    fn wait(&self, key: Key, at: Instant) {
        let at = Reverse((at, key.to_word()));
        let mut due = self.due.borrow_mut();
        due.push(at);
        // The task waits for what was the first before.
        if due.peek() == Some(&at)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// The first request that the drive is done with.
    fn next_done(&self) -> Option<(Completion, Instant)> {
        let mut due = self.due.borrow_mut();
        let Reverse((at, word)) = *due.peek()?;
        if self.drive.clock == Clock::Real && at > self.reactor.now() {
            return None;
        }
        due.pop();
        let taken = self.taken.borrow_mut().remove(Key::from_word(word));
        Some((taken.ended.expect("it ended below"), at))
    }

    fn hand_out(&self, timer: &mut Timer, context: &mut Context<'_>) -> Poll<()> {
        loop {
            while let Some((completion, at)) = self.next_done() {
                self.drive.ended(at);
                self.sink.complete(completion);
            }
            match self.due.borrow().peek() {
                Some(Reverse((at, _))) => timer.set(*at),
                None => timer.clear(),
            }
            if timer.poll_elapsed(context).is_pending() {
                let mut waker = self.waker.borrow_mut();
                let waits = waker
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(context.waker()));
                if !waits {
                    *waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
        }
    }
}

impl CompletionSink for Lane {
    fn complete(&self, completion: Completion) {
        let key = key_of(completion.token);
        self.ended(key, completion.result, completion.operation);
    }
}
