//! `planted:` breaks invariants where it is told to, so that tests of real processes see what becomes of them.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, InFlight, Landing, Operation, OperationKind,
    Queue, ReadBuffers, Request, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_memory::{View, Views};
use weir_reactor::Reactor;
use weir_volume::{Access, NullVolume, UrlError, VolumeUrl};

/// Reads from here on yield less than was asked for: the connection that asked cannot go on.
const SHORT_READ: u64 = 100;
/// Writes to here panic when they end: with a `delay=`, in the volume's own task.
const PANIC_AT_END: u64 = 101;
/// Writes to here panic while they are submitted, in the task of the connection that submits.
const PANIC_IN_SUBMISSION: u64 = 102;

/// As `null:`, with the same parameters, but for the blocks at which an invariant breaks.
pub(crate) struct PlantedVolume {
    inner: Arc<NullVolume>,
}

pub(crate) fn open(url: &VolumeUrl, access: Access) -> Result<Arc<PlantedVolume>, UrlError> {
    let inner = NullVolume::open(url, access)?;
    Ok(Arc::new(PlantedVolume { inner }))
}

impl Volume for PlantedVolume {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
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
        let planted = Rc::new(PlantedSink(sink));
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, planted)?;
        Ok(Box::new(PlantedQueue(inner)))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

fn is_write_to(operation: &Operation, block: u64) -> bool {
    operation.kind() == OperationKind::Write
        && operation.range().is_some_and(|(lba, _)| lba == block)
}

struct PlantedSink(Rc<dyn CompletionSink>);

impl CompletionSink for PlantedSink {
    fn complete(&self, mut completion: Completion) {
        end(&mut completion);
        self.0.complete(completion);
    }
}

fn end(completion: &mut Completion) {
    assert!(
        !is_write_to(&completion.operation, PANIC_AT_END),
        "planted: a volume's invariant broke"
    );
    if let Operation::Read {
        lba: SHORT_READ,
        buffers,
        ..
    } = &mut completion.operation
    {
        *buffers = ReadBuffers::Filled(Views::from_iter([View::empty()]));
    }
}

struct PlantedQueue(Box<dyn Queue>);

impl Queue for PlantedQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.0.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        for request in batch.iter() {
            assert!(
                !is_write_to(&request.operation, PANIC_IN_SUBMISSION),
                "planted: a queue's invariant broke"
            );
        }
        let before = done.len();
        self.0.submit(batch, done);
        done.iter_mut().skip(before).for_each(end);
    }

    fn cancel(&mut self, token: Token) {
        self.0.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.0.in_flight(visit);
    }
}
