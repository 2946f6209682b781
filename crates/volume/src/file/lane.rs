//! One reactor's queue of a file: what is in flight, and what comes next for each request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, Geometry, InFlight, Landing, Operation, Queue, ReadBuffers,
    Request, Token, VolumeError,
};
use weir_memory::{Segment, Segments, View, Views, segments_len, views_len};
use weir_reactor::{
    AllocateMode, FileKind, Handler, LocalFile, Mailbox, Op, OpToken, Outcome, Output, Reactor,
    Sleep,
};

use super::FileVolume;
use crate::support::{
    TRANSFER_BYTES_MAX, check, compare_views, fill, freeze, pool_landing, pool_segments,
};
use crate::when_all::WhenAll;
use weir_reactor::{Key, Slots};

/// The longest range that one operation allocates or deallocates, so that none keeps the medium for long.
const ALLOCATE_BYTES_MAX: u64 = 1 << 30;
/// How long a request waits before it looks for a buffer again, when nothing of this queue ends meanwhile.
const BUFFER_RETRY: Duration = Duration::from_millis(1);

/// How a range is made to read as zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeroing {
    Allocate(AllocateMode),
    Write,
}

/// What an operation in flight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The request's own transfer; a bounce buffer carries it where the request's memory does not fit.
    Transfer {
        bounced: bool,
    },
    /// A range from `next` to `end`, in bytes; `piece` of it are under way. `unsynced`: a piece before was not written through.
    Zero {
        next: u64,
        end: u64,
        piece: u64,
        how: Zeroing,
        unsynced: bool,
    },
    Deallocate {
        next: u64,
        end: u64,
        piece: u64,
    },
    Verify {
        next: u64,
        end: u64,
        piece: u64,
    },
    /// What was done is made durable.
    Sync,
}

struct Entry {
    token: Token,
    operation: Operation,
    step: Step,
    in_flight: Option<OpToken>,
    cancelled: bool,
    /// Order of submission, for fences.
    number: u64,
}

/// What to do about a request now.
enum Next {
    Submit(Op),
    /// No buffer for now.
    Wait,
    Done(Result<(), VolumeError>),
}

pub(super) struct FileQueue {
    lane: Rc<Lane>,
}

struct Lane {
    volume: Arc<FileVolume>,
    file: Rc<LocalFile>,
    reactor: Reactor,
    depth: usize,
    /// None once the queue is dropped.
    sink: RefCell<Option<Rc<dyn CompletionSink>>>,
    slots: RefCell<Slots<Entry>>,
    /// Requests that wait for a buffer.
    waiting: RefCell<VecDeque<Key>>,
    fences: RefCell<Vec<(u64, Arc<WhenAll>)>>,
    next_number: Cell<u64>,
    /// Operations that the system has.
    operations: Cell<u32>,
    mailbox: Arc<Mailbox<Arc<WhenAll>>>,
    waker: RefCell<Option<Waker>>,
    this: std::rc::Weak<Lane>,
}

impl FileQueue {
    pub(super) fn new(
        volume: Arc<FileVolume>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
        mailbox: Arc<Mailbox<Arc<WhenAll>>>,
    ) -> Self {
        let lane = Rc::new_cyclic(|this| Lane {
            file: LocalFile::new(Arc::clone(&volume.file)),
            volume,
            reactor: reactor.clone(),
            depth: depth as usize,
            sink: RefCell::new(Some(sink)),
            slots: RefCell::new(Slots::with_capacity(depth as usize)),
            waiting: RefCell::default(),
            fences: RefCell::default(),
            next_number: Cell::new(0),
            operations: Cell::new(0),
            mailbox,
            waker: RefCell::default(),
            this: this.clone(),
        });
        let attendant = Attendant {
            lane: Rc::clone(&lane),
            retry: None,
        };
        reactor.spawn(attendant).detach();
        FileQueue { lane }
    }
}

impl Queue for FileQueue {
    fn landing(&mut self, _lba: u64, blocks: u32) -> Landing {
        let shift = self.lane.geometry().block_size.shift();
        pool_landing(self.lane.reactor.pool(), (blocks as usize) << shift)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let geometry = self.lane.geometry();
        while self.lane.slots.borrow().len() < self.lane.depth
            && let Some(request) = batch.pop_front()
        {
            done.extend(self.lane.begin(&geometry, request));
        }
    }

    fn cancel(&mut self, token: Token) {
        let mut slots = self.lane.slots.borrow_mut();
        let found = slots.iter_mut().find(|(_, entry)| entry.token == token);
        let Some((_, entry)) = found else {
            return;
        };
        entry.cancelled = true;
        let in_flight = entry.in_flight.filter(|_| may_be_cut_off(&entry.step));
        drop(slots);
        match in_flight {
            Some(op) => self.lane.reactor.cancel(op),
            None => self.lane.wake(),
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        for (_, entry) in self.lane.slots.borrow().iter() {
            visit(InFlight::of(entry.token, &entry.operation));
        }
    }
}

/// Whether a request holds memory while it waits for a buffer.
fn holds_memory(operation: &Operation) -> bool {
    match operation {
        Operation::Read { buffers, .. } => matches!(buffers, ReadBuffers::Into(_)),
        Operation::Compare { .. } | Operation::Write { .. } => true,
        _ => false,
    }
}

/// Whether ending an operation early leaves its request without an effect.
fn may_be_cut_off(step: &Step) -> bool {
    matches!(step, Step::Transfer { .. } | Step::Verify { .. })
}

impl Drop for FileQueue {
    fn drop(&mut self) {
        let lane = &self.lane;
        drop(lane.sink.borrow_mut().take());
        lane.waiting.borrow_mut().clear();
        let mut slots = lane.slots.borrow_mut();
        let idle: Vec<_> = slots
            .iter()
            .filter(|(_, entry)| entry.in_flight.is_none())
            .map(|(key, _)| key)
            .collect();
        let dropped: Vec<_> = idle.into_iter().map(|key| slots.remove(key)).collect();
        let in_flight: Vec<_> = slots
            .iter()
            .filter_map(|(_, entry)| entry.in_flight)
            .collect();
        drop(slots);
        drop(dropped);
        in_flight.into_iter().for_each(|op| lane.reactor.cancel(op));
        lane.wake();
    }
}

impl Handler for Lane {
    fn complete(&self, user: u64, outcome: Outcome) {
        let key = Key::from_word(user);
        let mut slots = self.slots.borrow_mut();
        let entry = slots.get_mut(key);
        entry.in_flight = None;
        self.operations.set(self.operations.get() - 1);
        let mut next = self.after(entry, outcome);
        if self.sink.borrow().is_none() {
            // The queue is gone: what goes on would go on unseen.
            next = Next::Done(Err(VolumeError::Cancelled));
        }
        drop(slots);
        self.go_on(key, next);
        self.release_fences();
        if !self.waiting.borrow().is_empty() || self.is_over() {
            self.wake();
        }
    }
}

impl Lane {
    fn geometry(&self) -> Geometry {
        self.volume.geometry.get()
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Whether the queue is gone and nothing of it is left.
    fn is_over(&self) -> bool {
        self.sink.borrow().is_none() && self.slots.borrow().is_empty()
    }

    /// Begins a request; its completion where it takes no operation.
    fn begin(&self, geometry: &Geometry, request: Request) -> Option<Completion> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let mut entry = Entry {
            token: request.token,
            operation: request.operation,
            step: Step::Transfer { bounced: false },
            in_flight: None,
            cancelled: false,
            number,
        };
        let next = match check(geometry, &entry.operation) {
            Ok(()) => self.first(geometry, &mut entry),
            Err(error) => Next::Done(Err(error)),
        };
        if let Next::Done(result) = next {
            return Some(Completion {
                token: entry.token,
                result,
                operation: entry.operation,
            });
        }
        let key = self.slots.borrow_mut().insert(entry);
        self.go_on(key, next);
        None
    }

    fn go_on(&self, key: Key, next: Next) {
        match next {
            Next::Submit(op) => {
                let handler = self
                    .this
                    .upgrade()
                    .expect("the lane is borrowed from its Rc");
                let op = self.reactor.submit(op, handler, key.to_word());
                self.slots.borrow_mut().get_mut(key).in_flight = Some(op);
                self.operations.set(self.operations.get() + 1);
            }
            Next::Wait => {
                self.waiting.borrow_mut().push_back(key);
                self.wake();
            }
            Next::Done(result) => self.finish(key, result),
        }
    }

    fn finish(&self, key: Key, result: Result<(), VolumeError>) {
        let entry = self.slots.borrow_mut().remove(key);
        let sink = self.sink.borrow().clone();
        if let Some(sink) = sink {
            sink.complete(Completion {
                token: entry.token,
                result,
                operation: entry.operation,
            });
        }
    }

    /// The first operation of a request.
    fn first(&self, geometry: &Geometry, entry: &mut Entry) -> Next {
        let shift = geometry.block_size.shift();
        match &entry.operation {
            Operation::Read { .. } | Operation::Compare { .. } | Operation::Write { .. } => {
                self.transfer(geometry, entry)
            }
            &Operation::WriteZeroes {
                lba,
                blocks,
                deallocate,
                ..
            } => {
                let how = self.zeroing(deallocate);
                self.zero(entry, lba << shift, (lba + blocks) << shift, how, false)
            }
            &Operation::Deallocate { lba, blocks } => {
                let Some((next, end)) = self.deallocatable(lba << shift, (lba + blocks) << shift)
                else {
                    return Next::Done(Ok(()));
                };
                self.deallocate(entry, next, end)
            }
            &Operation::Verify { lba, blocks } => {
                self.verify(entry, lba << shift, (lba + blocks) << shift)
            }
            Operation::Flush if geometry.read_only => Next::Done(Ok(())),
            Operation::Flush => self.sync(entry),
            Operation::CompareWrite { .. } => Next::Done(Err(VolumeError::Unsupported)),
        }
    }

    fn transfer(&self, geometry: &Geometry, entry: &mut Entry) -> Next {
        let (lba, blocks) = entry.operation.range().expect("a transfer has a range");
        let shift = geometry.block_size.shift();
        let (offset, bytes) = (lba << shift, (blocks << shift) as usize);
        let alignment = geometry.memory_alignment as usize;
        let file = Rc::clone(&self.file);
        match &mut entry.operation {
            Operation::Read { buffers, .. } => {
                if let ReadBuffers::Into(segments) = buffers
                    && segments
                        .iter()
                        .all(|segment| is_aligned(segment, alignment))
                {
                    let into = std::mem::take(segments);
                    return Next::Submit(Op::Read { file, offset, into });
                }
                self.bounced_read(entry, offset, bytes)
            }
            Operation::Compare { .. } => self.bounced_read(entry, offset, bytes),
            Operation::Write { data, fua, .. } => {
                let durable = *fua;
                if data.iter().all(|view| is_aligned(view, alignment)) {
                    let data = std::mem::take(data);
                    return Next::Submit(Op::Write {
                        file,
                        offset,
                        data,
                        durable,
                    });
                }
                let Some(mut bounce) = self.bounce(bytes) else {
                    return Next::Wait;
                };
                copy_out(data, &mut bounce);
                entry.step = Step::Transfer { bounced: true };
                Next::Submit(Op::Write {
                    file,
                    offset,
                    data: freeze(bounce),
                    durable,
                })
            }
            _ => unreachable!("only these are transfers"),
        }
    }

    /// A buffer of the pool for a request that holds memory of the pool itself. Where the pool is exhausted and nothing of
    /// this queue is under way it is memory outside the pool: all of the pool may be held by requests that wait like this
    /// one, and so one of them always goes on.
    fn bounce(&self, bytes: usize) -> Option<Segments> {
        let pooled = pool_segments(self.reactor.pool(), bytes);
        pooled.or_else(|| {
            let idle = self.operations.get() == 0;
            idle.then(|| Segments::from_iter([Segment::heap(bytes)]))
        })
    }

    fn bounced_read(&self, entry: &mut Entry, offset: u64, bytes: usize) -> Next {
        let buffer = match holds_memory(&entry.operation) {
            true => self.bounce(bytes),
            false => pool_segments(self.reactor.pool(), bytes),
        };
        let Some(into) = buffer else {
            return Next::Wait;
        };
        entry.step = Step::Transfer { bounced: true };
        Next::Submit(Op::Read {
            file: Rc::clone(&self.file),
            offset,
            into,
        })
    }

    /// The best way that the medium is not known to lack.
    fn zeroing(&self, may_deallocate: bool) -> Zeroing {
        let modes = [
            (
                may_deallocate && self.volume.deallocate_bytes > 0,
                AllocateMode::PunchHole,
            ),
            (true, AllocateMode::ZeroRange),
        ];
        let usable =
            |&(allowed, mode): &(bool, AllocateMode)| allowed && !self.volume.unsupported.is(mode);
        let found = modes.into_iter().find(usable);
        found.map_or(Zeroing::Write, |(_, mode)| Zeroing::Allocate(mode))
    }

    fn zero(&self, entry: &mut Entry, next: u64, end: u64, how: Zeroing, unsynced: bool) -> Next {
        let fua = matches!(entry.operation, Operation::WriteZeroes { fua: true, .. });
        if next == end {
            return if fua && unsynced {
                self.sync(entry)
            } else {
                Next::Done(Ok(()))
            };
        }
        let piece_max = match how {
            Zeroing::Allocate(_) => ALLOCATE_BYTES_MAX,
            Zeroing::Write => u64::from(TRANSFER_BYTES_MAX),
        };
        let piece = (end - next).min(piece_max);
        entry.step = Step::Zero {
            next,
            end,
            piece,
            how,
            unsynced,
        };
        let file = Rc::clone(&self.file);
        Next::Submit(match how {
            Zeroing::Allocate(mode) => Op::Allocate {
                file,
                offset: next,
                length: piece,
                mode,
            },
            Zeroing::Write => Op::Write {
                file,
                offset: next,
                data: View::zeroes(piece as usize).collect(),
                durable: fua,
            },
        })
    }

    /// The part of a range that lies on whole units of deallocation.
    fn deallocatable(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let unit = self.volume.deallocate_bytes;
        if unit == 0 || self.volume.unsupported.is(self.deallocate_mode()) {
            return None;
        }
        let (start, end) = (start.next_multiple_of(unit), end / unit * unit);
        (start < end).then_some((start, end))
    }

    fn deallocate_mode(&self) -> AllocateMode {
        match self.volume.kind {
            FileKind::Regular => AllocateMode::PunchHole,
            FileKind::BlockDevice => AllocateMode::Discard,
        }
    }

    fn deallocate(&self, entry: &mut Entry, next: u64, end: u64) -> Next {
        if next == end {
            return Next::Done(Ok(()));
        }
        // A piece ends on a unit, as the range does.
        let unit = self.volume.deallocate_bytes;
        let piece = (end - next).min((ALLOCATE_BYTES_MAX / unit).max(1) * unit);
        entry.step = Step::Deallocate { next, end, piece };
        Next::Submit(Op::Allocate {
            file: Rc::clone(&self.file),
            offset: next,
            length: piece,
            mode: self.deallocate_mode(),
        })
    }

    fn verify(&self, entry: &mut Entry, next: u64, end: u64) -> Next {
        let piece = (end - next).min(u64::from(TRANSFER_BYTES_MAX));
        entry.step = Step::Verify { next, end, piece };
        if piece == 0 {
            return Next::Done(Ok(()));
        }
        let Some(into) = pool_segments(self.reactor.pool(), piece as usize) else {
            return Next::Wait;
        };
        Next::Submit(Op::Read {
            file: Rc::clone(&self.file),
            offset: next,
            into,
        })
    }

    fn sync(&self, entry: &mut Entry) -> Next {
        if let Err(error) = self.volume.failed_sync.check() {
            return Next::Done(Err(error));
        }
        entry.step = Step::Sync;
        Next::Submit(Op::Sync {
            file: Rc::clone(&self.file),
        })
    }

    /// What follows the end of an operation.
    fn after(&self, entry: &mut Entry, outcome: Outcome) -> Next {
        let Outcome { result, op } = outcome;
        if let (Op::Write { durable: true, .. } | Op::Sync { .. }, Some(error)) =
            (&op, error_of(&result))
        {
            self.note_failed(error);
        }
        match entry.step {
            Step::Transfer { bounced } => {
                Next::Done(after_transfer(&mut entry.operation, bounced, result, op))
            }
            Step::Zero {
                next,
                end,
                piece,
                how,
                unsynced,
            } => match (error_of(&result), how) {
                (None, _) => {
                    let unsynced = unsynced || how != Zeroing::Write;
                    self.zero(entry, next + piece, end, how, unsynced)
                }
                (Some(VolumeError::Unsupported), Zeroing::Allocate(mode)) => {
                    self.volume.unsupported.set(mode);
                    let deallocate = matches!(
                        entry.operation,
                        Operation::WriteZeroes {
                            deallocate: true,
                            ..
                        }
                    );
                    let how = self.zeroing(deallocate);
                    self.zero(entry, next, end, how, unsynced)
                }
                (Some(error), _) => Next::Done(Err(error)),
            },
            Step::Deallocate { next, end, piece } => match error_of(&result) {
                None => self.deallocate(entry, next + piece, end),
                // It was a hint.
                Some(VolumeError::Unsupported) => {
                    self.volume.unsupported.set(self.deallocate_mode());
                    Next::Done(Ok(()))
                }
                Some(error) => Next::Done(Err(error)),
            },
            Step::Verify { next, end, piece } => {
                let expected = piece as usize;
                match full(&result, expected) {
                    Ok(()) if entry.cancelled && next + piece < end => {
                        Next::Done(Err(VolumeError::Cancelled))
                    }
                    Ok(()) => self.verify(entry, next + piece, end),
                    failed => Next::Done(failed),
                }
            }
            // A sync that succeeds beside one that failed proves nothing: the system reports a failure only once.
            Step::Sync => Next::Done(match error_of(&result) {
                Some(error) => Err(error),
                None => self.volume.failed_sync.check(),
            }),
        }
    }

    /// A sync or a durable write failed.
    fn note_failed(&self, error: VolumeError) {
        // What was cut off had no failure of its own.
        if error != VolumeError::Cancelled {
            self.volume.failed_sync.note(&self.volume.name, &error);
        }
    }

    /// Goes on with what waited for a buffer, in order; what was cancelled meanwhile ends wherever it stands.
    fn retry(&self) {
        let geometry = self.geometry();
        let waiting = self.waiting.borrow().len();
        let mut exhausted = false;
        for _ in 0..waiting {
            let Some(key) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            let mut slots = self.slots.borrow_mut();
            let next = self.retry_one(&geometry, slots.get_mut(key), exhausted);
            drop(slots);
            if matches!(next, Next::Wait) {
                exhausted = true;
                self.waiting.borrow_mut().push_back(key);
            } else {
                self.go_on(key, next);
            }
        }
    }

    fn retry_one(&self, geometry: &Geometry, entry: &mut Entry, exhausted: bool) -> Next {
        match entry.step {
            _ if entry.cancelled => Next::Done(Err(VolumeError::Cancelled)),
            _ if exhausted && !holds_memory(&entry.operation) => Next::Wait,
            Step::Verify { next, end, .. } => self.verify(entry, next, end),
            _ => self.transfer(geometry, entry),
        }
    }

    /// Lets go of the fences that nothing older is in flight for.
    fn release_fences(&self) {
        if self.fences.borrow().is_empty() {
            return;
        }
        let slots = self.slots.borrow();
        let oldest = slots.iter().map(|(_, entry)| entry.number).min();
        drop(slots);
        let mut fences = self.fences.borrow_mut();
        let (kept, released): (Vec<_>, Vec<_>) = std::mem::take(&mut *fences)
            .into_iter()
            .partition(|&(limit, _)| oldest.is_some_and(|oldest| oldest < limit));
        *fences = kept;
        drop(fences);
        drop(released);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        drop(self.mailbox.close());
    }
}

/// The task of a queue: it takes fences, and finds buffers for what waits.
/// It lives until the queue is dropped and everything of it has ended.
struct Attendant {
    lane: Rc<Lane>,
    retry: Option<Sleep>,
}

impl Future for Attendant {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let lane = Rc::clone(&self.lane);
        let known = lane
            .waker
            .borrow()
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()));
        if !known {
            *lane.waker.borrow_mut() = Some(context.waker().clone());
        }
        let limit = lane.next_number.get();
        let fences = lane.mailbox.take(context);
        lane.fences
            .borrow_mut()
            .extend(fences.into_iter().map(|fence| (limit, fence)));
        lane.retry();
        lane.release_fences();
        if lane.is_over() {
            drop(lane.waker.borrow_mut().take());
            return Poll::Ready(());
        }
        if lane.waiting.borrow().is_empty() {
            self.retry = None;
            return Poll::Pending;
        }
        loop {
            let sleep = self
                .retry
                .get_or_insert_with(|| lane.reactor.sleep(BUFFER_RETRY));
            if std::pin::Pin::new(sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
            self.retry = None;
        }
    }
}

fn is_aligned(bytes: &[u8], alignment: usize) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(alignment) && bytes.len().is_multiple_of(alignment)
}

fn copy_out(views: &Views, segments: &mut Segments) {
    let mut from = 0;
    for segment in segments {
        let part = weir_memory::slice_views(views, from, segment.len());
        weir_memory::copy_views(&part, segment);
        from += segment.len();
    }
}

fn error_of(result: &io::Result<Output>) -> Option<VolumeError> {
    result.as_ref().err().map(VolumeError::from_io)
}

/// Whether a transfer did all of `expected` bytes. Less was read where the file has become shorter than the volume.
fn full(result: &io::Result<Output>, expected: usize) -> Result<(), VolumeError> {
    match result {
        Ok(Output::Count(count)) if *count == expected => Ok(()),
        Ok(_) => Err(VolumeError::Medium),
        Err(error) => Err(VolumeError::from_io(error)),
    }
}

/// Gives the buffers of a transfer back to its request.
fn after_transfer(
    operation: &mut Operation,
    bounced: bool,
    result: io::Result<Output>,
    op: Op,
) -> Result<(), VolumeError> {
    match (operation, op) {
        (Operation::Read { buffers, .. }, Op::Read { into, .. }) => {
            let done = full(&result, segments_len(&into));
            match (done, bounced) {
                (Ok(()), true) => fill(buffers, freeze(into)),
                (Ok(()), false) => *buffers = ReadBuffers::Filled(freeze(into)),
                (Err(_), true) => {}
                (Err(_), false) => *buffers = ReadBuffers::Into(into),
            }
            done
        }
        (Operation::Compare { data, .. }, Op::Read { into, .. }) => {
            full(&result, segments_len(&into))?;
            let there: Views = into.into_iter().map(Segment::freeze).collect();
            compare_views(data, &there)
        }
        (Operation::Write { data, .. }, Op::Write { data: written, .. }) => {
            let done = full(&result, views_len(&written));
            if !bounced {
                *data = written;
            }
            done
        }
        _ => unreachable!("an outcome returns its operation"),
    }
}
