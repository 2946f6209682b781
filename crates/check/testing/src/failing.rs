//! A volume whose requests fail where a test wants that.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, InFlight, Landing, Operation, Queue, Request,
    ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_reactor::Reactor;

/// Tells of an operation whether it is to fail.
type Fails = Arc<dyn Fn(&Operation) -> bool + Send + Sync>;

struct Failing {
    inner: Arc<dyn Volume>,
    fails: Fails,
}

struct FailingQueue {
    inner: Box<dyn Queue>,
    fails: Fails,
}

/// `inner`, but that its medium fails for those operations of which `fails` says so.
pub fn failing(
    inner: Arc<dyn Volume>,
    fails: impl Fn(&Operation) -> bool + Send + Sync + 'static,
) -> Arc<dyn Volume> {
    let fails = Arc::new(fails);
    Arc::new(Failing { inner, fails })
}

impl Volume for Failing {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        format!("failing {}", self.inner.name())
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
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, sink)?;
        let fails = Arc::clone(&self.fails);
        Ok(Box::new(FailingQueue { inner, fails }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

impl Queue for FailingQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let fails = |request: &Request| (self.fails)(&request.operation);
        let (failing, others): (Vec<_>, _) = batch.drain(..).partition(fails);
        *batch = others.into();
        done.extend(failing.into_iter().map(|request| Completion {
            token: request.token,
            result: Err(VolumeError::Medium),
            operation: request.operation,
        }));
        self.inner.submit(batch, done);
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.inner.in_flight(visit);
    }
}
