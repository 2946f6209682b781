//! A volume whose writes take randomly long, each for itself: one that was given up is carried out after another that began later.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    Announcement, Completion, CompletionSink, FenceReply, Geometry, HealthFuture, InFlight,
    Landing, Queue, Request, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_reactor::Reactor;

/// Writes that were taken and have not ended, and fences that wait for them.
#[derive(Default)]
struct UnderWay {
    writes: u64,
    fences: Vec<FenceReply>,
}

/// A volume over another one, whose writes begin up to `longest` late.
pub struct Late {
    inner: Arc<dyn Volume>,
    longest: Duration,
    under_way: Arc<Mutex<UnderWay>>,
}

impl Late {
    pub fn over(inner: Arc<dyn Volume>, longest: Duration) -> Arc<dyn Volume> {
        Arc::new(Late {
            inner,
            longest,
            under_way: Arc::default(),
        })
    }
}

impl Volume for Late {
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
        let inner = Arc::clone(&self.inner).open_queue(reactor, depth, Rc::clone(&sink))?;
        Ok(Box::new(LateQueue {
            inner,
            sink,
            reactor: reactor.clone(),
            volume: self,
            depth,
            late: Rc::default(),
        }))
    }

    fn fence(&self, reply: FenceReply) {
        let mut under_way = self.under_way.lock().expect("nobody panicked");
        match under_way.writes {
            0 => reply(Ok(())),
            _ => under_way.fences.push(reply),
        }
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, bytes: u64, shrink: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, bytes, shrink)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.inner.health(reactor)
    }
}

/// A write that has not ended, and who waits for that.
struct Taken {
    request: InFlight,
    announcements: Vec<Announcement>,
}

struct LateQueue {
    inner: Box<dyn Queue>,
    sink: Rc<dyn CompletionSink>,
    reactor: Reactor,
    volume: Arc<Late>,
    depth: u32,
    late: Rc<RefCell<Vec<Taken>>>,
}

impl Queue for LateQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let mut others = VecDeque::new();
        while let Some(request) = batch.pop_front() {
            if !request.operation.modifies() {
                others.push_back(request);
                continue;
            }
            self.volume
                .under_way
                .lock()
                .expect("nobody panicked")
                .writes += 1;
            let taken = InFlight::of(request.token, &request.operation);
            self.late.borrow_mut().push(Taken {
                request: taken,
                announcements: Vec::new(),
            });
            let late = late(
                self.reactor.clone(),
                Arc::clone(&self.volume),
                Rc::clone(&self.sink),
                self.depth,
                Rc::clone(&self.late),
                request,
            );
            self.reactor.spawn(late).detach();
        }
        self.inner.submit(&mut others, done);
        batch.append(&mut others);
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        let late = self.late.borrow();
        late.iter().for_each(|one| visit(one.request.clone()));
        self.inner.in_flight(visit);
    }

    /// Keeps nothing back, as a guard would: whoever needs to know waits until the writes have ended.
    fn abandon(&mut self, owner: u32, announcement: &Announcement) {
        let mut late = self.late.borrow_mut();
        let of_owner = |one: &&mut Taken| one.request.token.owner == owner;
        let left = late.iter_mut().filter(of_owner);
        left.for_each(|one| one.announcements.push(Arc::clone(announcement)));
    }
}

/// Carries out a write a while later, whoever waits for it still.
async fn late(
    reactor: Reactor,
    volume: Arc<Late>,
    sink: Rc<dyn CompletionSink>,
    depth: u32,
    taken: Rc<RefCell<Vec<Taken>>>,
    request: Request,
) {
    let longest = volume.longest.as_millis() as u64;
    let pause = Duration::from_millis(reactor.random() % (longest + 1));
    reactor.sleep(pause).await;
    let completions = weir_block::Completions::new();
    let inner = Arc::clone(&volume.inner);
    let queue = inner.open_queue(&reactor, depth, completions.clone());
    let mut queue = queue.expect("the volume is there");
    completions.submit(&mut *queue, &mut VecDeque::from([request]));
    let completion = completions.next().await;
    let token = completion.token;
    let is_it = |one: &mut Taken| one.request.token == token;
    let ended: Vec<Taken> = taken.borrow_mut().extract_if(.., is_it).collect();
    sink.complete(completion);
    let fences = {
        let mut under_way = volume.under_way.lock().expect("nobody panicked");
        under_way.writes -= 1;
        match under_way.writes {
            0 => std::mem::take(&mut under_way.fences),
            _ => Vec::new(),
        }
    };
    fences.into_iter().for_each(|reply| reply(Ok(())));
    drop(ended);
}
