//! What the tests of volumes share: reactors on the real or the simulated system, a client that awaits requests, and
//! random choices from a seed.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use weir_block::{
    Announcement, Completion, CompletionSink, Geometry, HostNumber, Operation, Queue, ReadBuffers,
    Request, ResizeError, Token, Volume, VolumeError,
};
use weir_memory::{Segment, View, Views};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::sim::{Config, DiskConfig, Simulation, seed_from_env_or_random};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, ReactorId, ReactorThread, System};
use weir_volume::{Access, OpenError, Registry, VolumeUrl};

pub const POOL_BYTES: usize = 64 << 20;

/// Result of a resize, once it has ended.
pub type Resized = Arc<Mutex<Option<Result<Geometry, ResizeError>>>>;

/// Reactors of one system.
pub struct Harness {
    pub system: Arc<dyn System>,
    threads: Vec<ReactorThread>,
    /// Kept while its reactors run.
    pub simulation: Option<Simulation>,
}

impl Harness {
    pub fn on(system: Arc<dyn System>, reactors: u32, simulation: Option<Simulation>) -> Self {
        let start = |id| {
            let config = ReactorConfig {
                id: ReactorId(id),
                name: format!("test-{id}"),
                pool_bytes: POOL_BYTES,
                on_panic: PanicPolicy::Unwind,
                ..ReactorConfig::default()
            };
            let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
                Box::pin(std::future::pending())
            });
            Arc::clone(&system).start_reactor(config, main).unwrap()
        };
        let threads = (0..reactors).map(start).collect();
        Harness {
            system,
            threads,
            simulation,
        }
    }

    pub fn real(reactors: u32) -> Self {
        let system = LinuxSystem::new(LinuxConfig::default()).unwrap();
        Harness::on(system, reactors, None)
    }

    pub fn simulated(seed: u64, disk: DiskConfig, reactors: u32) -> Self {
        let config = Config {
            seed,
            disk,
            ..Config::default()
        };
        let simulation = Simulation::new(config);
        let system = simulation.host("host");
        Harness::on(system, reactors, Some(simulation))
    }

    pub fn reactors(&self) -> usize {
        self.threads.len()
    }

    /// Runs a future on one of the reactors.
    pub fn run<T, F>(&self, reactor: usize, work: impl FnOnce(Reactor) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.threads[reactor].remote.call_blocking(work).unwrap()
    }

    /// Runs a future on every reactor at once; their results, by reactor.
    pub fn run_all<T, F>(
        &self,
        work: impl Fn(usize, Reactor) -> F + Send + Sync + 'static,
    ) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let work = Arc::new(work);
        let mut receivers = Vec::new();
        for (index, thread) in self.threads.iter().enumerate() {
            let (sender, receiver) = weir_reactor::oneshot();
            let work = Arc::clone(&work);
            let started = thread.remote.run(move |reactor| {
                let future = work(index, reactor.clone());
                reactor
                    .spawn(async move { sender.send(future.await) })
                    .detach();
            });
            started.unwrap();
            receivers.push(receiver);
        }
        let results = receivers.into_iter();
        results.map(|receiver| receiver.wait().unwrap()).collect()
    }

    /// Resizes a volume on the first reactor.
    pub fn resize(
        &self,
        volume: &Arc<dyn Volume>,
        blocks: u64,
        force: bool,
    ) -> Result<Geometry, ResizeError> {
        let volume = Arc::clone(volume);
        self.run(0, move |reactor| async move {
            volume.resize(&reactor, blocks, force).await
        })
    }

    /// Resizes a volume on the first reactor and lets it be; what it came to appears where this points.
    pub fn begin_resize(&self, volume: &Arc<dyn Volume>, blocks: u64, force: bool) -> Resized {
        let (volume, resized) = (Arc::clone(volume), Resized::default());
        let told = Arc::clone(&resized);
        self.run(0, move |reactor| async move {
            let resize = volume.resize(&reactor, blocks, force);
            let task = async move { *told.lock().unwrap() = Some(resize.await) };
            reactor.spawn(task).detach();
        });
        resized
    }

    pub fn open(&self, url: &str) -> Arc<dyn Volume> {
        self.try_open(url, Access::READ_WRITE)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    pub fn try_open(&self, url: &str, access: Access) -> Result<Arc<dyn Volume>, OpenError> {
        self.open_with(&Registry::standard(), url, access)
    }

    pub fn open_with(
        &self,
        registry: &Registry,
        url: &str,
        access: Access,
    ) -> Result<Arc<dyn Volume>, OpenError> {
        let (registry, url) = (registry.clone(), url.parse::<VolumeUrl>().unwrap());
        self.run(0, move |reactor| async move {
            registry.open(&reactor, &url, access).await
        })
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for thread in self.threads.drain(..) {
            thread.remote.stop();
            thread.join();
        }
    }
}

#[derive(Default)]
struct Answers {
    answers: RefCell<HashMap<u32, Completion>>,
    wakers: RefCell<HashMap<u32, Waker>>,
    answered: Cell<u64>,
    host: Option<HostNumber>,
}

impl CompletionSink for Answers {
    fn complete(&self, completion: Completion) {
        let slot = completion.token.slot;
        self.answered.set(self.answered.get() + 1);
        let twice = self.answers.borrow_mut().insert(slot, completion);
        assert!(twice.is_none(), "request {slot} was completed twice");
        // Whoever waits may have to submit what was not taken.
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        wakers.into_values().for_each(Waker::wake);
    }

    fn host_of(&self, _owner: u32) -> Option<HostNumber> {
        self.host
    }
}

/// Whose all requests of a client are.
const OWNER: u32 = 7;

/// A queue whose requests are awaited one by one; any number may be in flight.
pub struct Client {
    queue: RefCell<Box<dyn Queue>>,
    waiting: RefCell<VecDeque<Request>>,
    answers: Rc<Answers>,
    next: Cell<u32>,
}

impl Client {
    pub fn open(volume: &Arc<dyn Volume>, reactor: &Reactor, depth: u32) -> Rc<Self> {
        Client::of_host(volume, reactor, depth, None)
    }

    /// One whose requests are submitted for a host.
    pub fn of_host(
        volume: &Arc<dyn Volume>,
        reactor: &Reactor,
        depth: u32,
        host: Option<HostNumber>,
    ) -> Rc<Self> {
        let answers = Rc::new(Answers {
            host,
            ..Answers::default()
        });
        let sink: Rc<dyn CompletionSink> = Rc::<Answers>::clone(&answers);
        let queue = Arc::clone(volume).open_queue(reactor, depth, sink).unwrap();
        Rc::new(Client {
            queue: RefCell::new(queue),
            waiting: RefCell::default(),
            answers,
            next: Cell::new(0),
        })
    }

    fn push(&self) {
        let before = self.answers.answered.get();
        let mut done = VecDeque::new();
        self.queue
            .borrow_mut()
            .submit(&mut self.waiting.borrow_mut(), &mut done);
        assert_eq!(
            before,
            self.answers.answered.get(),
            "a completion came from within a submission"
        );
        done.into_iter().for_each(|one| self.answers.complete(one));
    }

    /// Submits a request; its token.
    pub fn submit(&self, operation: Operation) -> Token {
        let slot = self.next.get();
        self.next.set(slot + 1);
        let token = Token {
            owner: OWNER,
            slot,
            generation: !slot,
        };
        self.waiting
            .borrow_mut()
            .push_back(Request { token, operation });
        self.push();
        token
    }

    /// Waits for the completion of a request.
    pub async fn completion(&self, token: Token) -> (Result<(), VolumeError>, Operation) {
        // What was done at once is known in the next turn, as what is done later: tests go on side by side.
        let mut is_known = !self.answers.answers.borrow().contains_key(&token.slot);
        let answered = std::future::poll_fn(|context| {
            if !std::mem::replace(&mut is_known, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.untaken() > 0 {
                self.push();
            }
            if let Some(completion) = self.answers.answers.borrow_mut().remove(&token.slot) {
                return Poll::Ready(completion);
            }
            let waker = context.waker().clone();
            self.answers.wakers.borrow_mut().insert(token.slot, waker);
            Poll::Pending
        });
        let completion = answered.await;
        assert_eq!(completion.token, token, "a token comes back unchanged");
        (completion.result, completion.operation)
    }

    pub async fn call(&self, operation: Operation) -> (Result<(), VolumeError>, Operation) {
        let token = self.submit(operation);
        self.completion(token).await
    }

    pub async fn done(&self, operation: Operation) -> Result<(), VolumeError> {
        self.call(operation).await.0
    }

    pub async fn read(&self, lba: u64, blocks: u32) -> Result<Vec<u8>, VolumeError> {
        let read = Operation::Read {
            lba,
            blocks,
            buffers: ReadBuffers::Lend,
        };
        let (result, operation) = self.call(read).await;
        result.map(|()| data_of(&operation))
    }

    pub async fn write(&self, lba: u64, blocks: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.done(write(lba, blocks, data)).await
    }

    pub fn cancel(&self, token: Token) {
        self.queue.borrow_mut().cancel(token);
    }

    /// Gives up what it has under way, as a connection that is lost does. Done when every queue of the volume knows.
    pub async fn abandon(&self, tokens: &[Token]) {
        tokens.iter().for_each(|&token| self.cancel(token));
        let (sender, known) = weir_reactor::oneshot::<()>();
        let announcement: Announcement = Arc::new(sender);
        self.queue.borrow_mut().abandon(OWNER, &announcement);
        drop(announcement);
        assert!(known.await.is_none(), "nobody sends");
    }

    pub fn queue(&self) -> std::cell::RefMut<'_, Box<dyn Queue>> {
        self.queue.borrow_mut()
    }

    /// How many requests the queue has not taken yet.
    pub fn untaken(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Returns whether the queue has taken a request that has not ended. Its completion was not waited for yet.
    pub fn is_under_way(&self, token: Token) -> bool {
        let is_untaken = |request: &Request| request.token == token;
        let answers = self.answers.answers.borrow();
        !answers.contains_key(&token.slot) && !self.waiting.borrow().iter().any(is_untaken)
    }

    pub fn answered(&self) -> u64 {
        self.answers.answered.get()
    }
}

pub fn data_of(operation: &Operation) -> Vec<u8> {
    let Operation::Read {
        buffers: ReadBuffers::Filled(views),
        ..
    } = operation
    else {
        panic!("a read that succeeded is filled, not {operation:?}")
    };
    views
        .iter()
        .map(|view| &**view)
        .collect::<Vec<_>>()
        .concat()
}

pub fn views_of(data: &[u8]) -> Views {
    std::iter::once(View::copy_of(data)).collect()
}

pub fn write(lba: u64, blocks: u32, data: &[u8]) -> Operation {
    Operation::Write {
        lba,
        blocks,
        data: views_of(data),
        fua: false,
    }
}

pub fn compare_write(lba: u64, blocks: u32, compare: &[u8], data: &[u8]) -> Operation {
    Operation::CompareWrite {
        lba,
        blocks,
        data: views_of(compare)
            .into_iter()
            .chain(views_of(data))
            .collect(),
        fua: false,
    }
}

pub fn segment(length: usize) -> Segment {
    let mut segment = Segment::heap(length);
    // What was there before must not look like data.
    segment.fill(0xEE);
    segment
}

/// A seed, said aloud: with WEIR_SEED it is the same again.
pub fn seed(test: &str) -> u64 {
    let seed = seed_from_env_or_random();
    println!("{test}: WEIR_SEED={seed}");
    seed
}
