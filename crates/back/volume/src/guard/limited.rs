//! A guarded volume as one namespace serves it: under limits of its own.
//!
//! Several of them may stand before one guard; each has its own queues there, and an account that they draw from. Without
//! limits a request costs one test more than on the guard itself.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{
    CompletionSink, FenceReply, Geometry, HealthFuture, Queue, ResizeFuture, Volume, VolumeError,
    Watcher,
};
use weir_reactor::Reactor;

use super::Guard;
use super::lane::GuardQueue;
use super::limits::{Account, Limits, Throttled};
use crate::when_all::WhenAll;

/// A guarded volume under limits. See the module.
pub struct LimitedVolume {
    guard: Arc<Guard>,
    account: Arc<Account>,
}

impl LimitedVolume {
    /// Serves a guarded volume under `limits`.
    #[must_use]
    pub fn new(guard: Arc<Guard>, limits: Limits) -> Arc<Self> {
        let account = Account::new(limits);
        Arc::new(LimitedVolume { guard, account })
    }

    /// The guarded volume.
    #[must_use]
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// The limits as they are now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.account.limits()
    }

    /// Changes the limits. Replies when every queue keeps to them; requests that waited for the old ones go on under the new.
    pub fn set_limits(&self, limits: Limits, reply: FenceReply) {
        let told = WhenAll::new(reply);
        self.account.set_limits(limits, &told);
    }

    /// What waited for the limits.
    #[must_use]
    pub fn throttled(&self) -> Throttled {
        self.account.throttled()
    }
}

impl Volume for LimitedVolume {
    fn geometry(&self) -> Geometry {
        self.guard.geometry()
    }

    fn name(&self) -> String {
        self.guard.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.guard.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let (guard, account) = (Arc::clone(&self.guard), Arc::clone(&self.account));
        if guard.is_retired() {
            return Err(VolumeError::Lost);
        }
        let queue = GuardQueue::open(guard, Some(account), reactor, depth, sink)?;
        Ok(Box::new(queue))
    }

    fn fence(&self, reply: FenceReply) {
        self.guard.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.guard).resize(reactor, blocks, force)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.guard.health(reactor)
    }
}
