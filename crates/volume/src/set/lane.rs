//! One reactor's queue of a set: a queue of each member, and what was split over several.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_block::{
    Completion, CompletionSink, InFlight, Landing, Operation, Queue, ReadBuffers, Request, Token,
    VolumeError,
};
use weir_memory::{View, Views, slice_views};
use weir_reactor::Reactor;

use super::SetVolume;
use crate::support::{change_range, check, fill, pool_landing};
use weir_reactor::{Key, Slots};

/// A request that is one request to each of several members.
struct Spread {
    token: Token,
    operation: Operation,
    /// Parts that have not ended.
    pending: u32,
    result: Result<(), VolumeError>,
    /// Whether a part of it has had its effect.
    done_in_part: bool,
    /// What each member read.
    read: Vec<Views>,
}

/// What a request to a member is for.
enum Part {
    /// All of a request, which began at this block of the set.
    Whole { token: Token, lba: u64 },
    /// A part of one.
    Of(Key),
}

struct ToMember {
    part: Part,
    member: usize,
}

pub(super) struct SetQueue {
    lane: Rc<Lane>,
    depth: usize,
}

struct Lane {
    volume: Arc<SetVolume>,
    reactor: Reactor,
    sink: Rc<dyn CompletionSink>,
    /// Empty once the queue is dropped.
    queues: RefCell<Vec<Box<dyn Queue>>>,
    /// For each member, what it has not taken yet.
    outgoing: RefCell<Vec<VecDeque<Request>>>,
    in_flight: RefCell<Slots<ToMember>>,
    spread: RefCell<Slots<Spread>>,
    /// Done at once by a member, until the submission to it is over.
    done_below: RefCell<VecDeque<Completion>>,
    /// Requests that were taken and have not ended.
    taken: std::cell::Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl SetQueue {
    pub(super) fn open(
        volume: Arc<SetVolume>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Self, VolumeError> {
        let members = volume.members.len();
        let lane = Rc::new(Lane {
            volume,
            reactor: reactor.clone(),
            sink,
            queues: RefCell::default(),
            outgoing: RefCell::new((0..members).map(|_| VecDeque::new()).collect()),
            in_flight: RefCell::new(Slots::with_capacity(depth as usize)),
            spread: RefCell::new(Slots::with_capacity(0)),
            done_below: RefCell::default(),
            taken: std::cell::Cell::new(0),
            waker: RefCell::default(),
        });
        let mut queues = Vec::with_capacity(members);
        for member in &lane.volume.members {
            let from_member: Rc<dyn CompletionSink> = Rc::<Lane>::clone(&lane);
            queues.push(Arc::clone(member).open_queue(reactor, depth, from_member)?);
        }
        *lane.queues.borrow_mut() = queues;
        let attendant = Attendant {
            lane: Rc::clone(&lane),
        };
        reactor.spawn(attendant).detach();
        Ok(SetQueue {
            lane,
            depth: depth as usize,
        })
    }
}

impl Queue for SetQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        let lane = &self.lane;
        if let Some((member, at)) = lane.volume.layout.single(lba, u64::from(blocks)) {
            return lane.queues.borrow_mut()[member].landing(at, blocks);
        }
        let shift = lane.volume.geometry.block_size.shift();
        pool_landing(lane.reactor.pool(), (blocks as usize) << shift)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        while self.lane.taken.get() < self.depth
            && let Some(request) = batch.pop_front()
        {
            done.extend(self.lane.take(request));
        }
        self.lane.flush(done);
    }

    fn cancel(&mut self, token: Token) {
        let lane = &self.lane;
        let spread = lane.spread.borrow();
        let wanted = spread
            .iter()
            .find(|(_, spread)| spread.token == token)
            .map(|(key, _)| key);
        drop(spread);
        let is_it = |part: &Part| match part {
            Part::Whole { token: whole, .. } => *whole == token,
            Part::Of(key) => Some(*key) == wanted,
        };
        let in_flight = lane.in_flight.borrow();
        let found: Vec<_> = in_flight
            .iter()
            .filter(|(_, request)| is_it(&request.part))
            .map(|(key, request)| (key, request.member))
            .collect();
        drop(in_flight);
        let mut queues = lane.queues.borrow_mut();
        for (key, member) in found {
            queues[member].cancel(token_of(key));
        }
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        let lane = &self.lane;
        for (_, spread) in lane.spread.borrow().iter() {
            visit(InFlight::of(spread.token, &spread.operation));
        }
        let mut visit_whole = |of_member: InFlight| {
            let mut in_flight = lane.in_flight.borrow_mut();
            if let Part::Whole { token, lba } = in_flight.get_mut(key_of(of_member.token)).part {
                let blocks = of_member.range.end - of_member.range.start;
                let (kind, range) = (of_member.kind, lba..lba + blocks);
                visit(InFlight { token, kind, range });
            }
        };
        for queue in lane.queues.borrow().iter() {
            queue.in_flight(&mut visit_whole);
        }
        for request in lane.outgoing.borrow().iter().flatten() {
            visit_whole(InFlight::of(request.token, &request.operation));
        }
    }
}

impl Drop for SetQueue {
    fn drop(&mut self) {
        let queues = std::mem::take(&mut *self.lane.queues.borrow_mut());
        drop(queues);
        self.lane.wake();
    }
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

impl CompletionSink for Lane {
    /// Called by a member's queue, which must not be called back.
    fn complete(&self, completion: Completion) {
        if let Some(completion) = self.ended_below(completion) {
            self.sink.complete(completion);
        }
    }
}

impl Lane {
    /// A member has done its part; the completion of the whole, where that was the last one.
    fn ended_below(&self, completion: Completion) -> Option<Completion> {
        let key = key_of(completion.token);
        let ToMember { part, member } = self.in_flight.borrow_mut().remove(key);
        let ended = match part {
            Part::Whole { token, lba } => {
                let mut operation = completion.operation;
                change_range(&mut operation, |_, blocks| (lba, blocks));
                Some(self.end(token, completion.result, operation))
            }
            Part::Of(spread) => self.part_ended(spread, member, completion),
        };
        if self.outgoing.borrow().iter().any(|left| !left.is_empty()) {
            self.wake();
        }
        ended
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn end(
        &self,
        token: Token,
        result: Result<(), VolumeError>,
        operation: Operation,
    ) -> Completion {
        self.taken.set(self.taken.get() - 1);
        Completion {
            token,
            result,
            operation,
        }
    }

    /// Takes a request; its completion where it is refused.
    fn take(&self, request: Request) -> Option<Completion> {
        let Request {
            token,
            mut operation,
        } = request;
        self.taken.set(self.taken.get() + 1);
        if let Err(error) = check(&self.volume.geometry, &operation) {
            return Some(self.end(token, Err(error), operation));
        }
        let single = operation.range().and_then(|(lba, blocks)| {
            let (member, at) = self.volume.layout.single(lba, blocks)?;
            Some((lba, member, at))
        });
        match single {
            Some((lba, member, at)) => {
                change_range(&mut operation, |_, blocks| (at, blocks));
                self.send(Part::Whole { token, lba }, member, operation);
            }
            None => self.spread(token, operation),
        }
        None
    }

    fn send(&self, part: Part, member: usize, operation: Operation) {
        let key = self
            .in_flight
            .borrow_mut()
            .insert(ToMember { part, member });
        self.outgoing.borrow_mut()[member].push_back(Request {
            token: token_of(key),
            operation,
        });
    }

    fn flush(&self, done: &mut VecDeque<Completion>) {
        let mut outgoing = self.outgoing.borrow_mut();
        let mut queues = self.queues.borrow_mut();
        let mut done_below = self.done_below.borrow_mut();
        for (queue, left) in queues.iter_mut().zip(outgoing.iter_mut()) {
            if !left.is_empty() {
                queue.submit(left, &mut done_below);
            }
        }
        drop((outgoing, queues));
        while let Some(completion) = done_below.pop_front() {
            done.extend(self.ended_below(completion));
        }
    }

    /// One request to each member that is concerned.
    fn spread(&self, token: Token, operation: Operation) {
        let members = self.volume.members.len();
        let parts: Vec<_> = (0..members)
            .filter_map(|member| Some((member, self.part(&operation, member)?)))
            .collect();
        let key = self.spread.borrow_mut().insert(Spread {
            token,
            operation,
            pending: parts.len() as u32,
            result: Ok(()),
            done_in_part: false,
            read: vec![Views::new(); members],
        });
        for (member, operation) in parts {
            self.send(Part::Of(key), member, operation);
        }
    }

    /// What one member has to do for a request; none where it is not concerned.
    fn part(&self, operation: &Operation, member: usize) -> Option<Operation> {
        let Some((lba, blocks)) = operation.range() else {
            return Some(Operation::Flush);
        };
        let range = self.volume.layout.on_member(member, lba, blocks);
        if range.is_empty() {
            return None;
        }
        let (at, length) = (range.start, range.end - range.start);
        let blocks_there = || u32::try_from(length).expect("a part is no longer than the whole");
        Some(match operation {
            Operation::Read { .. } => Operation::Read {
                lba: at,
                blocks: blocks_there(),
                buffers: ReadBuffers::Lend,
            },
            Operation::Write { data, fua, .. } => Operation::Write {
                lba: at,
                blocks: blocks_there(),
                data: self.share(data, member, lba, blocks),
                fua: *fua,
            },
            Operation::Compare { data, .. } => Operation::Compare {
                lba: at,
                blocks: blocks_there(),
                data: self.share(data, member, lba, blocks),
            },
            &Operation::WriteZeroes {
                deallocate, fua, ..
            } => Operation::WriteZeroes {
                lba: at,
                blocks: length,
                deallocate,
                fua,
            },
            Operation::Deallocate { .. } => Operation::Deallocate {
                lba: at,
                blocks: length,
            },
            Operation::Verify { .. } => Operation::Verify {
                lba: at,
                blocks: length,
            },
            Operation::CompareWrite { .. } | Operation::Flush => {
                unreachable!("a compare-and-write is one block, and a flush has no range")
            }
        })
    }

    /// The data of a request that belongs on one member.
    fn share(&self, data: &[View], member: usize, lba: u64, blocks: u64) -> Views {
        let shift = self.volume.geometry.block_size.shift();
        let pieces = self.volume.layout.pieces(lba, blocks);
        pieces
            .filter(|piece| piece.member == member)
            .flat_map(|piece| {
                let (from, bytes) = (piece.offset << shift, piece.blocks << shift);
                slice_views(data, from as usize, bytes as usize)
            })
            .collect()
    }

    fn part_ended(&self, key: Key, member: usize, completion: Completion) -> Option<Completion> {
        let mut slots = self.spread.borrow_mut();
        let spread = slots.get_mut(key);
        spread.pending -= 1;
        if let Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } = completion.operation
        {
            spread.read[member] = data;
        }
        match completion.result {
            Ok(()) => spread.done_in_part |= spread.operation.modifies(),
            Err(error) => {
                spread.done_in_part |= spread.operation.modifies() && !error.had_no_effect();
                let error = self.in_the_whole(&spread.operation, member, error);
                spread.result = Err(first_error(spread.result, error));
            }
        }
        if spread.pending > 0 {
            return None;
        }
        let mut spread = slots.remove(key);
        drop(slots);
        match spread.result {
            Ok(()) => self.put_together(&mut spread),
            // A guard then does all of it by other means.
            Err(VolumeError::Unsupported) => {}
            Err(error) if spread.done_in_part => spread.result = Err(error.after_a_part()),
            Err(_) => {}
        }
        Some(self.end(spread.token, spread.result, spread.operation))
    }

    /// A miscompare of a part, counted from the start of the whole.
    fn in_the_whole(
        &self,
        operation: &Operation,
        member: usize,
        error: VolumeError,
    ) -> VolumeError {
        let (VolumeError::Miscompare { offset }, Some((lba, blocks))) = (error, operation.range())
        else {
            return error;
        };
        let shift = self.volume.geometry.block_size.shift();
        let layout = &self.volume.layout;
        let at = layout.on_member(member, lba, blocks).start + (offset >> shift);
        let mut pieces = layout.pieces(lba, blocks);
        let piece = pieces
            .find(|piece| {
                piece.member == member && (piece.lba..piece.lba + piece.blocks).contains(&at)
            })
            .expect("a part consists of the pieces of its member");
        let within = offset & ((1 << shift) - 1);
        VolumeError::Miscompare {
            offset: ((piece.offset + at - piece.lba) << shift) + within,
        }
    }

    /// Makes the data of a read of what each member read.
    fn put_together(&self, spread: &mut Spread) {
        let Operation::Read {
            lba,
            blocks,
            buffers,
        } = &mut spread.operation
        else {
            return;
        };
        let shift = self.volume.geometry.block_size.shift();
        let layout = &self.volume.layout;
        let (lba, blocks) = (*lba, u64::from(*blocks));
        let data = layout.pieces(lba, blocks).flat_map(|piece| {
            let start = layout.on_member(piece.member, lba, blocks).start;
            let (from, bytes) = ((piece.lba - start) << shift, piece.blocks << shift);
            slice_views(&spread.read[piece.member], from as usize, bytes as usize)
        });
        let data: Views = data.collect();
        fill(buffers, data);
    }
}

/// The error of a request of which two parts failed: the first, and of two differences the one nearer to the start.
fn first_error(before: Result<(), VolumeError>, error: VolumeError) -> VolumeError {
    match (before, error) {
        (Ok(()), error) => error,
        (
            Err(VolumeError::Miscompare { offset: before }),
            VolumeError::Miscompare { offset: now },
        ) => VolumeError::Miscompare {
            offset: before.min(now),
        },
        (Err(before), _) => before,
    }
}

/// The task of a queue: it submits what a member did not take.
struct Attendant {
    lane: Rc<Lane>,
}

impl Future for Attendant {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let lane = &self.lane;
        if lane.queues.borrow().is_empty() {
            drop(lane.waker.borrow_mut().take());
            return Poll::Ready(());
        }
        let mut waker = lane.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        let mut done = VecDeque::new();
        lane.flush(&mut done);
        lane.sink.complete_all(&mut done);
        Poll::Pending
    }
}
