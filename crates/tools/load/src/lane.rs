//! A queue of a volume and what is in flight on it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{Completion, Completions, Operation, Queue, Request, Token, Volume, VolumeError};
use weir_reactor::{Reactor, Timer};

/// How soon requests that a queue had no room for are offered again when no completion comes first.
const RETRY: Duration = Duration::from_millis(1);

/// Why a tool stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// A queue of the volume could not be opened.
    #[error("cannot open a queue of {volume}: {error}")]
    Open {
        /// The volume's name.
        volume: String,
        /// Why.
        error: VolumeError,
    },
    /// A request failed.
    #[error("{operation} of {blocks} blocks at block {lba} of {volume} failed: {error}")]
    Request {
        /// The volume's name.
        volume: String,
        /// What was asked.
        operation: &'static str,
        /// First block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// Why.
        error: VolumeError,
    },
    /// A reactor of the tool stopped.
    #[error("reactor {0} of the tool stopped early")]
    Stopped(weir_reactor::ReactorId),
}

impl From<weir_reactor::Stopped> for LaneError {
    fn from(stopped: weir_reactor::Stopped) -> Self {
        LaneError::Stopped(stopped.reactor)
    }
}

/// One queue, with what the tool wants to remember of each request in flight.
pub struct Lane<T> {
    volume: String,
    queue: Box<dyn Queue>,
    completions: Rc<Completions>,
    batch: VecDeque<Request>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    retry: Timer,
    reactor: Reactor,
}

struct Slot<T> {
    generation: u32,
    tag: Option<T>,
}

/// One request that ended.
pub struct Ended<T> {
    /// What was to be remembered of it.
    pub tag: T,
    /// How it ended.
    pub result: Result<(), VolumeError>,
    /// The operation with its buffers.
    pub operation: Operation,
}

impl<T> Lane<T> {
    /// A queue of `volume` with at most `depth` requests.
    ///
    /// # Errors
    /// [`LaneError::Open`].
    pub fn open(
        reactor: &Reactor,
        volume: &Arc<dyn Volume>,
        depth: u32,
    ) -> Result<Self, LaneError> {
        let completions = Completions::new();
        let name = volume.name();
        let queue = Arc::clone(volume)
            .open_queue(reactor, depth, completions.clone())
            .map_err(|error| LaneError::Open {
                volume: name.clone(),
                error,
            })?;
        let slots = (0..depth)
            .map(|_| Slot {
                generation: 0,
                tag: None,
            })
            .collect();
        Ok(Lane {
            volume: name,
            queue,
            completions,
            batch: VecDeque::with_capacity(depth as usize),
            slots,
            free: (0..depth).rev().collect(),
            retry: Timer::new(reactor),
            reactor: reactor.clone(),
        })
    }

    /// Whether there is room for a request.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Requests that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Requests that were added and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing was added that has not ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Adds a request to the next batch.
    ///
    /// # Panics
    /// Where there is no room for it.
    pub fn push(&mut self, tag: T, operation: Operation) {
        let index = self.free.pop().expect("the caller asked for room");
        let slot = &mut self.slots[index as usize];
        slot.tag = Some(tag);
        let token = Token {
            owner: 0,
            slot: index,
            generation: slot.generation,
        };
        self.batch.push_back(Request { token, operation });
    }

    /// Offers the batch to the queue.
    pub fn submit(&mut self) {
        if !self.batch.is_empty() {
            self.completions.submit(&mut *self.queue, &mut self.batch);
        }
        if self.batch.is_empty() {
            self.retry.clear();
        } else {
            self.retry.set(self.reactor.now() + RETRY);
        }
    }

    /// The next request that ended. Something must be in flight or in the batch.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Ended<T>> {
        while self.retry.poll_elapsed(context).is_ready() {
            self.submit();
        }
        self.completions
            .poll_pop(context)
            .map(|completion| self.end(completion))
    }

    /// Waits for the next request that ends.
    ///
    /// # Panics
    /// Where nothing is in flight or in the batch.
    pub async fn next(&mut self) -> Ended<T> {
        assert!(!self.is_idle(), "an idle lane waits for nothing");
        self.submit();
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// A request that has ended already, if there is one.
    pub fn try_next(&mut self) -> Option<Ended<T>> {
        let completion = self.completions.pop()?;
        Some(self.end(completion))
    }

    fn end(&mut self, completion: Completion) -> Ended<T> {
        let Completion {
            token,
            result,
            operation,
        } = completion;
        let slot = &mut self.slots[token.slot as usize];
        assert_eq!(
            slot.generation, token.generation,
            "a request completed twice"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.slot);
        Ended {
            tag: slot.tag.take().expect("a request in flight has a tag"),
            result,
            operation,
        }
    }

    /// Wishes that all that is in flight end early. What the queue had no room for yet is not sent any more.
    pub fn cancel_all(&mut self) {
        for Request { token, .. } in self.batch.drain(..) {
            let slot = &mut self.slots[token.slot as usize];
            slot.generation = slot.generation.wrapping_add(1);
            slot.tag = None;
            self.free.push(token.slot);
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.tag.is_some() {
                self.queue.cancel(Token {
                    owner: 0,
                    slot: index as u32,
                    generation: slot.generation,
                });
            }
        }
    }

    /// The error of a failed request, in words.
    #[must_use]
    pub fn error(&self, operation: &Operation, error: VolumeError) -> LaneError {
        let (lba, blocks) = operation.range().unwrap_or_default();
        LaneError::Request {
            volume: self.volume.clone(),
            operation: operation_name(operation),
            lba,
            blocks,
            error,
        }
    }

    /// Runs one request by itself, nothing else being in flight.
    ///
    /// # Errors
    /// [`LaneError::Request`].
    ///
    /// # Panics
    /// Where something is in flight.
    pub async fn alone(&mut self, tag: T, operation: Operation) -> Result<Operation, LaneError> {
        assert!(
            self.is_idle(),
            "a request that runs alone finds the lane idle"
        );
        self.push(tag, operation);
        let ended = self.next().await;
        match ended.result {
            Ok(()) => Ok(ended.operation),
            Err(error) => Err(self.error(&ended.operation, error)),
        }
    }
}

fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Read { .. } => "reading",
        Operation::Write { .. } => "writing",
        Operation::WriteZeroes { .. } => "zeroing",
        Operation::Compare { .. } => "comparing",
        Operation::CompareWrite { .. } => "comparing and writing",
        Operation::Deallocate { .. } => "deallocating",
        Operation::Verify { .. } => "verifying",
        Operation::Flush => "flushing",
    }
}
