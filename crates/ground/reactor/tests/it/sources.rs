//! Sources of work that a reactor polls, on the real system.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{PanicPolicy, Reactor, ReactorConfig, Source, Spin, System};

/// Work from another thread, in memory.
#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    is_armed: AtomicBool,
}

/// Counts the work, and tells when there was enough.
#[derive(Default)]
struct Counter {
    shared: Arc<Shared>,
    polls: Cell<usize>,
    done: Cell<usize>,
    wanted: Cell<usize>,
    enough: RefCell<Option<weir_reactor::Sender<()>>>,
    /// Comes as the reactor is about to sleep, and nobody tells of it.
    late: Cell<usize>,
}

impl Source for Counter {
    fn poll(&self) -> usize {
        self.polls.set(self.polls.get() + 1);
        let taken = self.shared.waiting.swap(0, Ordering::SeqCst);
        self.done.set(self.done.get() + taken);
        if self.done.get() >= self.wanted.get()
            && let Some(enough) = self.enough.take()
        {
            enough.send(());
        }
        taken
    }

    fn arm(&self) -> bool {
        self.shared.is_armed.store(true, Ordering::SeqCst);
        self.shared
            .waiting
            .fetch_add(self.late.take(), Ordering::SeqCst);
        self.shared.waiting.load(Ordering::SeqCst) == 0
    }
}

impl Counter {
    async fn wait_for(&self, wanted: usize) {
        let (sender, receiver) = weir_reactor::oneshot();
        self.wanted.set(wanted);
        *self.enough.borrow_mut() = Some(sender);
        receiver.await;
    }
}

fn on_a_reactor(spin: Spin, main: impl AsyncFnOnce(Reactor) + Send + 'static) {
    let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
    let config = ReactorConfig {
        spin,
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let thread = system
        .start_reactor(config, Box::new(|reactor| Box::pin(main(reactor))))
        .expect("a reactor can be started");
    thread.join();
}

#[test]
fn work_of_a_source_wakes_a_reactor_that_sleeps() {
    const ROUNDS: usize = 200;
    on_a_reactor(Spin::For(std::time::Duration::ZERO), async |reactor| {
        let counter = Rc::new(Counter::default());
        let source: Rc<dyn Source> = counter.clone();
        reactor.add_source(&source);
        for round in 1..=ROUNDS {
            let (shared, remote) = (Arc::clone(&counter.shared), reactor.remote());
            let other = std::thread::spawn(move || {
                shared.waiting.fetch_add(1, Ordering::SeqCst);
                if shared.is_armed.swap(false, Ordering::SeqCst) {
                    assert!(remote.run(|_| ()).is_ok(), "the reactor runs");
                }
            });
            counter.wait_for(round).await;
            other.join().expect("it does not panic");
        }
    });
}

#[test]
fn work_that_comes_as_the_reactor_falls_asleep_is_done() {
    on_a_reactor(Spin::For(std::time::Duration::ZERO), async |reactor| {
        let counter = Rc::new(Counter::default());
        counter.late.set(3);
        let source: Rc<dyn Source> = counter.clone();
        reactor.add_source(&source);
        counter.wait_for(3).await;
    });
}

#[test]
fn a_source_that_is_dropped_is_polled_no_more_and_others_are() {
    on_a_reactor(Spin::Auto, async |reactor| {
        let [first, second] = [(); 2].map(|()| Rc::new(Counter::default()));
        let sources: [Rc<dyn Source>; 2] = [first.clone(), second.clone()];
        sources.iter().for_each(|source| reactor.add_source(source));
        let shared = Arc::clone(&first.shared);
        drop((first, sources));
        shared.waiting.store(1, Ordering::SeqCst);
        second.late.set(1);
        second.wait_for(1).await;
        assert_eq!(shared.waiting.load(Ordering::SeqCst), 1);
        assert!(second.polls.get() > 0);
    });
}
