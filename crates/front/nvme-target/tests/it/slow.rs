//! A volume that answers late, or wrongly.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, InFlight, Landing, Operation, Queue,
    ReadBuffers, Request, ResizeFuture, Token, Volume, VolumeError, VolumeEvent, Watcher,
    submit_to,
};
use weir_memory::{View, Views};
use weir_reactor::Reactor;

/// Hands requests on after a delay; reads of block [`SlowVolume::BAD_BLOCK`] yield too little, of block
/// [`SlowVolume::TWICE_BLOCK`] end twice.
pub(crate) struct SlowVolume {
    inner: Arc<dyn Volume>,
    delay_ms: AtomicU64,
    forced: AtomicU64,
    taken: AtomicU64,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
}

impl SlowVolume {
    /// Reading from here on breaks the volume's contract.
    pub(crate) const BAD_BLOCK: u64 = 13;
    /// As does reading from here on.
    pub(crate) const TWICE_BLOCK: u64 = 14;

    pub(crate) fn new(inner: Arc<dyn Volume>) -> Arc<Self> {
        Arc::new(SlowVolume {
            inner,
            delay_ms: AtomicU64::new(0),
            forced: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            watchers: Mutex::default(),
        })
    }

    /// Tells whoever watches it of an event that did not happen below.
    pub(crate) fn tell(&self, event: VolumeEvent) {
        let watchers = self.watchers.lock().expect("nobody panicked").clone();
        let alive = watchers.iter().filter_map(Weak::upgrade);
        alive.for_each(|watcher| watcher.notice(event));
    }

    /// Requests with Force Unit Access that came.
    pub(crate) fn forced(&self) -> u64 {
        self.forced.load(Ordering::Relaxed)
    }

    /// Requests that came.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.delay_ms
            .store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Volume for SlowVolume {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        "slow".to_owned()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(Weak::clone(&watcher));
        self.watchers.lock().expect("nobody panicked").push(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let sink: Rc<dyn CompletionSink> = Rc::new(BadSink(sink));
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, Rc::clone(&sink))?;
        Ok(Box::new(SlowQueue {
            volume: self,
            reactor: reactor.clone(),
            inner: Rc::new(std::cell::RefCell::new(inner)),
            sink,
            delayed: Rc::default(),
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }
}

struct BadSink(Rc<dyn CompletionSink>);

impl CompletionSink for BadSink {
    fn complete(&self, mut completion: weir_block::Completion) {
        if let Operation::Read {
            lba: SlowVolume::BAD_BLOCK,
            buffers,
            ..
        } = &mut completion.operation
        {
            *buffers = ReadBuffers::Filled(Views::from_iter([View::empty()]));
        }
        if let Operation::Read {
            lba: SlowVolume::TWICE_BLOCK,
            ..
        } = &completion.operation
        {
            self.0.complete(weir_block::Completion {
                token: completion.token,
                result: Ok(()),
                operation: Operation::Flush,
            });
        }
        self.0.complete(completion);
    }
}

struct SlowQueue {
    volume: Arc<SlowVolume>,
    reactor: Reactor,
    inner: Rc<std::cell::RefCell<Box<dyn Queue>>>,
    sink: Rc<dyn CompletionSink>,
    delayed: Rc<std::cell::RefCell<Vec<InFlight>>>,
}

impl Queue for SlowQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.borrow_mut().landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, _: &mut VecDeque<Completion>) {
        let delay = Duration::from_millis(self.volume.delay_ms.load(Ordering::Relaxed));
        let mut taken = std::mem::take(batch);
        let forced = taken.iter().filter(|request| is_forced(&request.operation));
        let forced = forced.count() as u64;
        self.volume.forced.fetch_add(forced, Ordering::Relaxed);
        self.volume
            .taken
            .fetch_add(taken.len() as u64, Ordering::Relaxed);
        let (reactor, inner) = (self.reactor.clone(), Rc::clone(&self.inner));
        let (sink, delayed) = (Rc::clone(&self.sink), Rc::clone(&self.delayed));
        let in_flight = |request: &Request| InFlight::of(request.token, &request.operation);
        let these: Vec<_> = taken.iter().map(in_flight).collect();
        delayed.borrow_mut().extend(these.iter().cloned());
        let later = async move {
            if !delay.is_zero() {
                reactor.sleep(delay).await;
            }
            delayed.borrow_mut().retain(|one| !these.contains(one));
            submit_to(&mut **inner.borrow_mut(), &mut taken, &*sink);
            assert!(taken.is_empty(), "memory takes every request");
        };
        self.reactor.spawn(later).detach();
    }

    fn cancel(&mut self, _token: Token) {}

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.delayed.borrow().iter().cloned().for_each(&mut *visit);
        self.inner.borrow().in_flight(visit);
    }
}

fn is_forced(operation: &Operation) -> bool {
    match operation {
        Operation::Write { fua, .. }
        | Operation::WriteZeroes { fua, .. }
        | Operation::CompareWrite { fua, .. } => *fua,
        _ => false,
    }
}
