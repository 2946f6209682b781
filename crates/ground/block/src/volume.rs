//! Volumes and their queues.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use weir_memory::Segments;
use weir_reactor::Reactor;

use crate::{
    Completion, CompletionSink, Geometry, HealthFuture, HealthReport, Operation, OperationKind,
    Request, Token, VolumeError,
};

/// What happened to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeEvent {
    /// Its geometry changed; the new one is there already.
    Resized,
    /// Its medium cannot be reached; requests fail with [`VolumeError::Lost`] or wait.
    Lost,
    /// Its medium can be reached again.
    Restored,
    /// It is lost, and requests that it has stay unanswered, for they may take effect still: whoever waits for them is to be told
    /// otherwise, and nothing new is to be begun, until [`VolumeEvent::Fenced`].
    Unfenced,
    /// What stayed unanswered can no longer take effect, and is being answered.
    Fenced,
    /// Writes that it acknowledged and that were not flushed may be gone: every flush fails until the volume is opened again.
    CacheLost,
}

/// Is told what happens to a volume, on any thread. It must not block.
pub trait Watcher: Send + Sync {
    /// Something happened.
    fn notice(&self, event: VolumeEvent);
}

/// Is told once, on any thread, how a fence ended. It may come from within a submission, and must not call the volume.
pub type FenceReply = Box<dyn FnOnce(Result<(), VolumeError>) + Send>;

/// Why a volume was not resized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// This kind of volume has the size that it has.
    #[error("a {kind} volume cannot be resized")]
    Unsupported {
        /// The kind, as the scheme of its URL.
        kind: &'static str,
    },
    /// The new size would cut blocks off, and force was not given.
    #[error(
        "shrinking from {from_bytes} to {to_bytes} bytes would destroy what lies behind the new end; force it if that is meant"
    )]
    WouldShrink {
        /// The size now.
        from_bytes: u64,
        /// The size asked for.
        to_bytes: u64,
    },
    /// The size does not fit the volume's geometry.
    #[error("{bytes} bytes is not a multiple of {multiple}")]
    Unaligned {
        /// The size asked for.
        bytes: u64,
        /// What it must be a multiple of, in bytes.
        multiple: u64,
    },
    /// The medium refused.
    #[error("the medium refused: {reason}")]
    Medium {
        /// What it said.
        reason: String,
    },
}

/// Held by everybody who must still learn of something: when the last clone is dropped, on any thread, all know.
pub type Announcement = Arc<dyn Send + Sync>;

/// Result of a resize, which stays on the reactor that it was asked on.
pub type ResizeFuture = Pin<Box<dyn Future<Output = Result<Geometry, ResizeError>>>>;

/// Stored blocks. Shared by all reactors; each does I/O through a [`Queue`] of its own.
pub trait Volume: Send + Sync {
    /// What it is like now. For the control path: a queue's user keeps a copy and renews it when told.
    fn geometry(&self) -> Geometry;

    /// The volume in words a person would know it by: its URL, without secrets.
    fn name(&self) -> String;

    /// Has `watcher` told of every event from now on, for as long as it lives.
    fn watch(&self, watcher: std::sync::Weak<dyn Watcher>);

    /// A queue on `reactor`, with up to `depth` requests in flight, whose completions go to `sink` where they are not done at once. To be called on that
    /// reactor.
    ///
    /// # Errors
    /// [`VolumeError::Lost`] or [`VolumeError::Busy`] where a queue cannot be had.
    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError>;

    /// Replies when nothing that was submitted on any queue before this call can take effect any more. It waits for
    /// what can be waited for, and cuts off the rest.
    fn fence(&self, reply: FenceReply);

    /// Changes the size. Growing keeps everything; shrinking destroys what lies behind the new end, and needs `force`. When a shrink has ended, nothing that
    /// was submitted before it can take effect behind the new end any more. To be called on `reactor`, and awaited there; the I/O path goes on meanwhile.
    ///
    /// # Errors
    /// [`ResizeError`].
    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture;

    /// What the drive below says of itself, now. To be called on `reactor`, and awaited there; the I/O path goes on meanwhile. It takes as long as the drive
    /// takes to answer.
    fn health(&self, reactor: &Reactor) -> HealthFuture {
        let _ = reactor;
        Box::pin(std::future::ready(HealthReport::default()))
    }
}

/// Where data that is about to be written may be received.
#[derive(Debug)]
pub enum Landing {
    /// Here. The segments become the data of a write to the same range, or are dropped.
    Ready(Segments),
    /// Wherever it arrives: the volume needs no alignment, and once it has taken a request that is submitted before anything
    /// else happens on the reactor, it lets go of the data soon, whatever else happens then. Who keeps a request that it has
    /// not taken sees to the data itself.
    Anywhere,
    /// Nowhere for now: ask again after the next completion, or a little later.
    Wait,
}

/// A request that a queue has taken and that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// The request's.
    pub token: Token,
    /// The kind of operation.
    pub kind: OperationKind,
    /// Its blocks; none of a flush.
    pub range: Range<u64>,
}

impl InFlight {
    /// A request as it was submitted.
    #[must_use]
    pub fn of(token: Token, operation: &Operation) -> Self {
        let (lba, blocks) = operation.range().unwrap_or_default();
        InFlight {
            token,
            kind: operation.kind(),
            // Nobody may have checked it.
            range: lba..lba.saturating_add(blocks),
        }
    }
}

/// One reactor's way to a volume.
///
/// Requests may be reordered among each other; who needs an order waits for the completion. Dropping a queue cancels what
/// is in flight, whose completions are then lost.
pub trait Queue {
    /// Where the data of a write to this range may be received.
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing;

    /// Takes requests from the front of `batch` for as long as there is room; what is left is backpressure, to be submitted
    /// again after the next completion.
    ///
    /// Completions of requests that are done at once are pushed onto `done`, and those of the others go to the sink later: never from within a
    /// submission.
    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>);

    /// Wishes that a request end early. Its completion still comes, exactly once, whatever its result is by then. Of a request that has ended, or that
    /// was never taken, nothing happens.
    fn cancel(&mut self, token: Token);

    /// Visits each request that was taken and has not ended, once. Locks, fences and lost connections are waited for by what it tells; it
    /// is not called for each request. The visitor does not call the queue.
    fn in_flight(&self, visit: &mut dyn FnMut(InFlight));

    /// The connection of `owner` is lost, and nobody waits for what it has left here. Until its requests that modify have ended, each
    /// queue of the volume that has dropped its clone of `announcement` keeps back what overlaps them and is submitted for the same
    /// [host](CompletionSink::host_of). Such requests end early by [`Queue::cancel`] alone, which comes before.
    ///
    /// Guards do so, which wrap every served volume. By itself a volume makes no such promise.
    fn abandon(&mut self, owner: u32, announcement: &Announcement) {
        let _ = (owner, announcement);
    }
}
