//! A volume that records every change that is asked of the volume behind it, and when that can change nothing any more.
//!
//! It stands between the target's guard and the volume, and changes nothing on the way.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, HealthFuture, InFlight, Landing, Operation,
    Queue, Request, ResizeFuture, Token, Volume, VolumeError, Watcher, compare_write_halves,
};
use weir_memory::View;
use weir_reactor::Reactor;

use crate::journal::Journal;
use crate::stamp;
use crate::violation::{Check, Violation};

pub(crate) struct Tap {
    inner: Arc<dyn Volume>,
    journal: Journal,
    namespace: usize,
}

impl Tap {
    pub(crate) fn new(inner: Arc<dyn Volume>, journal: Journal, namespace: usize) -> Arc<Self> {
        Arc::new(Tap {
            inner,
            journal,
            namespace,
        })
    }
}

impl Volume for Tap {
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
        let lane = Rc::new(Lane {
            sink,
            journal: self.journal.clone(),
            in_flight: RefCell::default(),
        });
        let from_inner: Rc<dyn CompletionSink> = Rc::<Lane>::clone(&lane);
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, from_inner)?;
        Ok(Box::new(TapQueue {
            tap: self,
            inner: Some(inner),
            lane,
            depth: depth as usize,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.inner.health(reactor)
    }
}

struct Lane {
    sink: Rc<dyn CompletionSink>,
    journal: Journal,
    /// Executions by token; none for what changes nothing.
    in_flight: RefCell<BTreeMap<Token, Option<u64>>>,
}

impl CompletionSink for Lane {
    fn complete(&self, completion: Completion) {
        self.note(&completion);
        self.sink.complete(completion);
    }
}

impl Lane {
    fn note(&self, completion: &Completion) {
        let ended = self.in_flight.borrow_mut().remove(&completion.token);
        match ended {
            Some(Some(number)) => {
                let done = completion.result.is_ok();
                self.journal
                    .with(|history, now| history.over(now, number, done));
            }
            Some(None) => {}
            None => self.journal.accuse(Violation::new(
                Check::ExactlyOnce,
                format!(
                    "the volume completed a {:?} that it was not asked for",
                    completion.operation.kind()
                ),
            )),
        }
    }
}

struct TapQueue {
    tap: Arc<Tap>,
    inner: Option<Box<dyn Queue>>,
    lane: Rc<Lane>,
    depth: usize,
}

impl TapQueue {
    fn inner(&mut self) -> &mut dyn Queue {
        self.inner
            .as_deref_mut()
            .expect("there until it is dropped")
    }

    /// Records a request that is about to be offered.
    fn offer(&self, request: &Request) {
        let operation = &request.operation;
        let number = operation.modifies().then(|| {
            let range = operation.range().expect("a change has a range");
            let (of, kind) = (writer(operation), operation.kind());
            let namespace = self.tap.namespace;
            self.tap
                .journal
                .with(|history, now| history.begin(now, of, namespace, kind, range))
        });
        self.lane
            .in_flight
            .borrow_mut()
            .insert(request.token, number);
    }

    fn check_bound(&self) {
        let in_flight = self.lane.in_flight.borrow().len();
        if in_flight > self.depth {
            self.tap.journal.accuse(Violation::new(
                Check::Bounds,
                format!(
                    "a volume's queue of {} requests has taken {in_flight}",
                    self.depth
                ),
            ));
        }
    }
}

impl Queue for TapQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner().landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let offered = batch.len();
        batch.iter().for_each(|request| self.offer(request));
        let before = done.len();
        self.inner().submit(batch, done);
        // What was not taken did not begin.
        for request in batch.iter() {
            let refused = self.lane.in_flight.borrow_mut().remove(&request.token);
            if let Some(Some(number)) = refused {
                self.tap
                    .journal
                    .with(|history, _| history.never_began(number));
            }
        }
        if batch.len() < offered {
            self.check_bound();
        }
        done.iter().skip(before).for_each(|one| self.lane.note(one));
    }

    fn cancel(&mut self, token: Token) {
        self.inner().cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        if let Some(inner) = &self.inner {
            inner.in_flight(visit);
        }
    }
}

impl Drop for TapQueue {
    fn drop(&mut self) {
        drop(self.inner.take());
        let left = std::mem::take(&mut *self.lane.in_flight.borrow_mut());
        let left: Vec<u64> = left.into_values().flatten().collect();
        if left.is_empty() {
            return;
        }
        let journal = self.tap.journal.clone();
        self.tap.inner.fence(Box::new(move |_| {
            journal.with(|history, now| {
                left.iter()
                    .for_each(|number| history.over(now, *number, false))
            });
        }));
    }
}

/// The number of the write whose data an operation carries.
fn writer(operation: &Operation) -> Option<u64> {
    let first = |views: &[View]| {
        let view = views.iter().find(|view| !view.is_empty())?;
        stamp::peek(view).filter(|value| *value != 0)
    };
    match operation {
        Operation::Write { data, .. } => first(data),
        Operation::CompareWrite { data, .. } => first(&compare_write_halves(data).1),
        _ => None,
    }
}
