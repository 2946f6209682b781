//! Volumes whose requests end as the program says: late, in any order, with any error.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_block::{
    BlockSize, Completion, CompletionSink, DeallocatedRead, FenceReply, Geometry, Landing,
    Operation, Queue, ReadBuffers, Request, ResizeError, ResizeFuture, Token, Volume, VolumeError,
    Watcher,
};
use weir_memory::{Segments, View, Views};
use weir_reactor::Reactor;

use super::ledger::{Author, SharedLedger};
use super::program::Head;

/// Blocks of the namespaces that programs work on.
pub(super) const BLOCKS: u64 = 256;
/// The longest transfer of a volume whose requests are short, in bytes.
const SHORT_BYTES: u32 = 8192;
/// Bytes from which a landing is in two segments, where it is in several.
const SPLIT_BYTES: usize = 4096;

/// How a volume lets data be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Landings {
    Anywhere,
    /// In one segment of the reactor's pool.
    Pool,
    /// In two.
    Split,
    /// Nowhere at every third time, and else in the pool.
    Reluctant,
}

/// How one request ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    pub(super) delay: Duration,
    pub(super) result: Result<(), VolumeError>,
    /// Of a write that fails, how much is done all the same, in eighths.
    pub(super) done: u8,
    /// A wish to cancel is granted.
    pub(super) cancellable: bool,
}

impl Fate {
    /// It succeeds at once.
    pub(super) const GOOD: Fate = Fate {
        delay: Duration::ZERO,
        result: Ok(()),
        done: 8,
        cancellable: false,
    };
}

/// Fates of the requests to come, in the order in which they are submitted; afterwards all are good.
#[derive(Clone, Default)]
pub(super) struct Fates(Arc<Mutex<VecDeque<Fate>>>);

impl Fates {
    pub(super) fn push(&self, fate: Fate, times: usize) {
        let mut fates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fates.extend(std::iter::repeat_n(fate, times));
    }

    pub(super) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn next(&self) -> Fate {
        let mut fates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fates.pop_front().unwrap_or(Fate::GOOD)
    }
}

/// The volume of one namespace.
pub(super) struct Medium {
    nsid: u32,
    geometry: Geometry,
    landings: Landings,
    ledger: SharedLedger,
    fates: Fates,
}

impl Medium {
    pub(super) fn new(
        nsid: u32,
        head: &Head,
        read_only: bool,
        ledger: SharedLedger,
        fates: Fates,
    ) -> Arc<Self> {
        let bytes = head.block_bytes() as u32;
        // Without a guard nobody splits what is too long: nothing is.
        let transfer_bytes = match (head.guarded, head.short_requests) {
            (false, _) => BLOCKS as u32 * bytes,
            (true, true) => SHORT_BYTES,
            (true, false) => head.mdts.max(SHORT_BYTES),
        };
        let geometry = Geometry {
            generation: 1,
            block_size: BlockSize::from_bytes(u64::from(bytes)).expect("512 or 4096"),
            blocks: BLOCKS,
            transfer_blocks_max: transfer_bytes / bytes,
            transfer_blocks_optimal: 1,
            memory_alignment: 512,
            deallocate_blocks: 1,
            deallocated_read: DeallocatedRead::Zeroes,
            volatile_cache: true,
            read_only,
            atomic_blocks: 1,
            atomic_blocks_power_fail: 1,
            compare_write_blocks: if head.native_compare_write || !head.guarded {
                8
            } else {
                0
            },
        };
        let landings = match head.landings {
            0 => Landings::Anywhere,
            1 => Landings::Pool,
            2 => Landings::Split,
            _ => Landings::Reluctant,
        };
        Arc::new(Medium {
            nsid,
            geometry,
            landings,
            ledger,
            fates,
        })
    }
}

impl Volume for Medium {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        format!("medium {}", self.nsid)
    }

    fn watch(&self, _: Weak<dyn Watcher>) {}

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Ok(Box::new(MediumQueue {
            lane: Rc::new(Lane {
                medium: self,
                reactor: reactor.clone(),
                sink,
                in_flight: RefCell::default(),
                open: Cell::new(true),
            }),
            depth: depth as usize,
            landings: 0,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        reply(Ok(()));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: "medium",
        })))
    }
}

/// A request in flight that may be cancelled.
struct InFlight {
    request: weir_block::InFlight,
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct Lane {
    medium: Arc<Medium>,
    reactor: Reactor,
    sink: Rc<dyn CompletionSink>,
    in_flight: RefCell<Vec<Rc<InFlight>>>,
    open: Cell<bool>,
}

struct MediumQueue {
    lane: Rc<Lane>,
    depth: usize,
    landings: u32,
}

impl Queue for MediumQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        let medium = &self.lane.medium;
        let mut ledger = medium.ledger.lock();
        ledger.check_range(medium.nsid, lba, u64::from(blocks), false);
        drop(ledger);
        self.landings += 1;
        let length = (blocks as usize) << medium.geometry.block_size.shift();
        let lengths = match medium.landings {
            Landings::Anywhere => return Landing::Anywhere,
            Landings::Reluctant if self.landings.is_multiple_of(3) => return Landing::Wait,
            Landings::Split if length > SPLIT_BYTES => [SPLIT_BYTES, length - SPLIT_BYTES],
            _ => [length, 0],
        };
        let mut segments = Segments::new();
        for length in lengths.into_iter().filter(|length| *length > 0) {
            match self.lane.reactor.pool().segment(length) {
                Ok(segment) => segments.push(segment),
                Err(_) => return Landing::Wait,
            }
        }
        Landing::Ready(segments)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, _: &mut VecDeque<Completion>) {
        while self.lane.in_flight.borrow().len() < self.depth
            && let Some(request) = batch.pop_front()
        {
            Lane::start(&self.lane, request);
        }
    }

    fn cancel(&mut self, token: Token) {
        for request in self.lane.in_flight.borrow().iter() {
            if request.request.token == token {
                request.cancelled.set(true);
                if let Some(waker) = request.waker.borrow_mut().take() {
                    waker.wake();
                }
            }
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(weir_block::InFlight)) {
        for in_flight in self.lane.in_flight.borrow().iter() {
            visit(in_flight.request.clone());
        }
    }
}

impl Drop for MediumQueue {
    fn drop(&mut self) {
        self.lane.open.set(false);
    }
}

impl Lane {
    fn start(lane: &Rc<Lane>, mut request: Request) {
        let authors = lane.note(&mut request.operation);
        let fate = lane.medium.fates.next();
        let in_flight = Rc::new(InFlight {
            request: weir_block::InFlight::of(request.token, &request.operation),
            cancelled: Cell::new(false),
            waker: RefCell::default(),
        });
        lane.in_flight.borrow_mut().push(Rc::clone(&in_flight));
        let task = {
            let lane = Rc::clone(lane);
            async move {
                let cancelled = lane.wait(fate, &in_flight).await;
                lane.end(request, fate, cancelled, &authors, &in_flight);
            }
        };
        lane.reactor.spawn(task).detach();
    }

    /// Waits until a request ends; whether it does because it was cancelled.
    async fn wait(&self, fate: Fate, in_flight: &InFlight) -> bool {
        if fate.delay.is_zero() {
            return false;
        }
        let mut sleep = pin!(self.reactor.sleep(fate.delay));
        std::future::poll_fn(|context| {
            if fate.cancellable && in_flight.cancelled.get() {
                return Poll::Ready(true);
            }
            *in_flight.waker.borrow_mut() = Some(context.waker().clone());
            sleep.as_mut().poll(context).map(|()| false)
        })
        .await
    }

    /// Judges what the volume is asked, and lets go of what it may not keep.
    fn note(&self, operation: &mut Operation) -> Vec<Option<Author>> {
        let nsid = self.medium.nsid;
        let mut ledger = self.medium.ledger.lock();
        ledger.in_flight += 1;
        if !operation.buffers_fit(self.medium.geometry.block_size) {
            ledger.finding(format!(
                "namespace {nsid}: buffers that do not fit their range: {operation:?}"
            ));
        }
        if let Some((_, blocks)) = operation.range()
            && blocks > u64::from(self.medium.geometry.transfer_blocks_max)
            && matches!(
                operation,
                Operation::Read { .. }
                    | Operation::Write { .. }
                    | Operation::Compare { .. }
                    | Operation::CompareWrite { .. }
            )
        {
            ledger.finding(format!(
                "namespace {nsid}: a transfer of {blocks} blocks is longer than the volume's longest"
            ));
        }
        match operation {
            Operation::Write { lba, data, .. } => {
                self.let_go(data);
                ledger.write_submitted(nsid, *lba, &joined(data))
            }
            Operation::CompareWrite { lba, data, .. } => {
                self.let_go(data);
                let bytes = joined(data);
                ledger.write_submitted(nsid, *lba, &bytes[bytes.len() / 2..])
            }
            Operation::Compare { data, lba, blocks } => {
                self.let_go(data);
                ledger.check_range(nsid, *lba, u64::from(*blocks), false);
                Vec::new()
            }
            Operation::WriteZeroes { lba, blocks, .. } => {
                ledger.zero_submitted(nsid, *lba, *blocks, false);
                Vec::new()
            }
            Operation::Deallocate { lba, blocks } => {
                ledger.zero_submitted(nsid, *lba, *blocks, true);
                Vec::new()
            }
            Operation::Read { lba, blocks, .. } => {
                ledger.check_range(nsid, *lba, u64::from(*blocks), false);
                Vec::new()
            }
            Operation::Verify { lba, blocks } => {
                ledger.check_range(nsid, *lba, *blocks, false);
                Vec::new()
            }
            Operation::Flush => Vec::new(),
        }
    }

    /// Who lets data be anywhere must not keep it there for long.
    fn let_go(&self, data: &mut Views) {
        if self.medium.landings == Landings::Anywhere {
            *data = Views::from_iter([View::copy_of(&joined(data))]);
        }
    }

    fn end(
        &self,
        request: Request,
        fate: Fate,
        cancelled: bool,
        authors: &[Option<Author>],
        in_flight: &Rc<InFlight>,
    ) {
        let mut operation = request.operation;
        let wish = if cancelled {
            Err(VolumeError::Cancelled)
        } else {
            fate.result
        };
        let done = if cancelled { 0 } else { fate.done };
        let result = self.carry_out(&mut operation, wish, done, authors);
        self.in_flight
            .borrow_mut()
            .retain(|other| !Rc::ptr_eq(other, in_flight));
        let mut ledger = self.medium.ledger.lock();
        ledger.in_flight -= 1;
        ledger.failures_made |= wish.is_err();
        drop(ledger);
        if self.open.get() {
            self.sink.complete(Completion {
                token: request.token,
                result,
                operation,
            });
        }
    }

    fn carry_out(
        &self,
        operation: &mut Operation,
        wish: Result<(), VolumeError>,
        done: u8,
        authors: &[Option<Author>],
    ) -> Result<(), VolumeError> {
        let (nsid, size) = (
            self.medium.nsid,
            self.medium.geometry.block_size.bytes() as usize,
        );
        let mut ledger = self.medium.ledger.lock();
        let part = |bytes: Vec<u8>| {
            let blocks = match wish {
                Ok(()) => bytes.len() / size,
                Err(_) => bytes.len() / size * usize::from(done.min(8)) / 8,
            };
            bytes[..blocks * size].to_vec()
        };
        match operation {
            Operation::Write { lba, data, .. } => {
                ledger.write(nsid, *lba, &part(joined(data)), authors);
            }
            Operation::CompareWrite {
                lba, blocks, data, ..
            } if wish.is_ok() => {
                let bytes = joined(data);
                let (expected, new) = bytes.split_at(bytes.len() / 2);
                let there = ledger.read(nsid, *lba, u64::from(*blocks));
                if let Some(offset) = first_difference(there, expected) {
                    return Err(VolumeError::Miscompare { offset });
                }
                ledger.write(nsid, *lba, new, authors);
            }
            Operation::Compare { lba, blocks, data } if wish.is_ok() => {
                let there = ledger.read(nsid, *lba, u64::from(*blocks));
                if let Some(offset) = first_difference(there, &joined(data)) {
                    return Err(VolumeError::Miscompare { offset });
                }
            }
            Operation::WriteZeroes { lba, blocks, .. } | Operation::Deallocate { lba, blocks } => {
                let zeroes = part(vec![0; *blocks as usize * size]);
                ledger.write(nsid, *lba, &zeroes, &[]);
            }
            Operation::Read {
                lba,
                blocks,
                buffers,
            } if wish.is_ok() => {
                let there = ledger.read(nsid, *lba, u64::from(*blocks));
                fill(buffers, there);
            }
            _ => {}
        }
        wish
    }
}

fn fill(buffers: &mut ReadBuffers, bytes: &[u8]) {
    let views = match std::mem::replace(buffers, ReadBuffers::Lend) {
        ReadBuffers::Into(segments) => {
            let mut at = 0;
            let mut views = Views::new();
            for mut segment in segments {
                let length = segment.len();
                segment.copy_from_slice(&bytes[at..at + length]);
                at += length;
                views.push(segment.freeze());
            }
            views
        }
        // In two, so that lists of several views are seen.
        _ => {
            let (front, back) = bytes.split_at(bytes.len() / 2);
            [front, back]
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(View::copy_of)
                .collect()
        }
    };
    *buffers = ReadBuffers::Filled(views);
}

fn joined(views: &[View]) -> Vec<u8> {
    views.iter().flat_map(|view| view.iter().copied()).collect()
}

fn first_difference(there: &[u8], expected: &[u8]) -> Option<u64> {
    let same = there.iter().zip(expected);
    let place = same.clone().position(|(one, other)| one != other)?;
    Some(place as u64)
}
